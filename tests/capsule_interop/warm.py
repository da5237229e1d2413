"""Runs the peer's program again and again without its start: a fork a run, from a process that has loaded it.

Usage: python warm.py PROGRAM. Reads one JSON object a line ({"args", "cwd", "env", "stdout", "stderr"}), runs
PROGRAM so, and answers with its exit status in a line. What the program does is left to the program: it is
started as `__main__`, from its file, in the child.
"""

import json
import os
import runpy
import sys
import traceback


def program(path, args):
    """The exit status of the program, run in this process as the interpreter would run it."""
    sys.argv = [path, *args]
    try:
        runpy.run_path(path, run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code
        if status is None:
            status = 0
        elif not isinstance(status, int):
            print(status, file=sys.stderr)
            status = 1
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def redirect(stdout, stderr):
    for number, path in ((1, stdout), (2, stderr)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(file, number)
        os.close(file)


def main():
    path = sys.argv[1]
    # Answers go where the program cannot print.
    answers = os.fdopen(os.dup(1), "w")
    redirect(os.devnull, os.devnull)
    # Loads what every run loads, and what signing needs.
    program(path, ["codecs"])
    import cryptography.hazmat.primitives.asymmetric.ed25519  # noqa: F401

    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            os.chdir(order["cwd"])
            os.environ.clear()
            os.environ.update(order["env"])
            redirect(order["stdout"], order["stderr"])
            os._exit(program(path, order["args"]) & 0xFF)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)


main()
