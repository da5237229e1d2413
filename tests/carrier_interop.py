"""Runs the peer's command line again and again without its start: an array of arguments a line in, status and
output a line out."""

import contextlib
import io
import json
import sys

from lmcodec import cli

for line in sys.stdin:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = cli.main(json.loads(line))
        except SystemExit as end:
            status = end.code
        except Exception as error:  # What the peer does not catch, its users see as a traceback.
            status = 1
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
    print(json.dumps([status, out.getvalue(), err.getvalue()]), flush=True)
