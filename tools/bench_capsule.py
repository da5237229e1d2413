#!/usr/bin/env python3
"""Packs, verifies and unpacks 1 MB and 15 MB with our program, with the reference program and with a shell
that only hashes and encodes (sha256sum and base64), and prints the three side by side.

The runs alternate, so that a busy machine slows all three; times are medians of the wall clock. Peak memory is
ru_maxrss as the kernel reports it at the end of a run; it starts at what this script itself occupies (printed
first), because a new process begins as a copy of its parent. Standard library only.
"""

import argparse
import fcntl
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
REQUIREMENT = "agentcapsule[signing]==0.1.0"
# What the project set itself: so many times the reference's speed, by size of the payload.
FASTER = {1: 15.0, 15: 3.5}
# At most so many times the time of hashing and encoding alone, and the memory of the payload.
FLOOR = 1.3
MEMORY = 3.0


def main():
    options = arguments()
    peer, why = reference(options.peer, options.build)
    if peer is None:
        print(f"bench-capsule: the reference program is left out: {why}", file=sys.stderr)
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{options.runs} runs each, medians; wanted: peer/ours at least {FASTER[1]:g} (1 MB) and "
          f"{FASTER[15]:g} (15 MB),")
    print(f"ours/bare at most {FLOOR:g}, memory at most {MEMORY:g} times the payload "
          f"(nothing below {own:.0f} MB can be seen)\n")
    print(f"{'':14}{'time in ms':^27}{'':4}{'ratio':^22}{'':4}{'peak memory in MB':^24}")
    print(f"{'':14}{'ours':>9}{'peer':>9}{'bare':>9}{'':4}{'peer/ours':>11}{'ours/bare':>11}"
          f"{'':4}{'ours':>8}{'peer':>8}{'bare':>8}")
    missed = []
    with tempfile.TemporaryDirectory(prefix="bench-capsule-", dir=options.directory) as place:
        for size in options.sizes:
            for operation in ("pack", "verify", "unpack"):
                programs = commands(operation, size, place, options.ours, peer)
                missed += row(size, operation, measure(programs, options.runs))
    if missed:
        print("\nmissed: " + "; ".join(missed))
    sys.exit(1 if missed and options.check else 0)


def arguments():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    build = os.environ.get("CARGO_TARGET_DIR", os.path.join(root, "target"))
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--ours", default=os.path.join(build, "release", "agentcontainer"))
    parser.add_argument("--peer", help="the reference program; made below the build folder if not given")
    parser.add_argument("--build", default=build, help="the build folder")
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 15], metavar="MB")
    parser.add_argument("--directory", help="where the files lie while measuring (the system's temporary one)")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    options = parser.parse_args()
    options.ours = os.path.abspath(options.ours)
    if not os.access(options.ours, os.X_OK):
        sys.exit(f"bench-capsule: no program at {options.ours}: cargo build --release")
    return options


def reference(given, build):
    """The reference program: the one given, or the one that the interop tests keep and share with us."""
    if given:
        return os.path.abspath(given), ""
    environment = os.path.join(build, "interop-venv")
    program = os.path.join(environment, "bin", "agentcapsule")
    marker = os.path.join(environment, "interop-complete")
    os.makedirs(build, exist_ok=True)
    with open(os.path.join(build, "interop-venv.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(marker) and os.path.exists(program):
            return program, ""
        shutil.rmtree(environment, ignore_errors=True)
        for command in (
            [sys.executable, "-m", "venv", environment],
            [os.path.join(environment, "bin", "python"), "-m", "pip", "install", "--quiet", "--retries", "1",
             "--timeout", "60", REQUIREMENT],
        ):
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=300)
            except (OSError, subprocess.TimeoutExpired) as error:
                return None, str(error)
            if done.returncode:
                return None, (done.stderr.strip().splitlines() or ["pip failed without a word"])[-1]
        with open(marker, "w") as file:
            file.write(REQUIREMENT)
        return program, ""


def commands(operation, size, place, ours, peer):
    """Per program: its command, and what to remove before each run."""
    payload = os.path.join(place, f"payload-{size}")
    capsule = os.path.join(place, f"capsule-{size}")
    encoded = os.path.join(place, f"encoded-{size}")
    if not os.path.exists(payload):
        with open(payload, "wb") as file:
            for _ in range(size * 16):
                file.write(os.urandom(MIB // 16))
        shell(f"base64 -w 0 {payload} > {encoded}")
        subprocess.run([ours, "capsule", "pack", payload, "--out", capsule], check=True, stdout=subprocess.DEVNULL)

    out = os.path.join(place, "out")
    words = {
        "pack": ["pack", payload, "--out", out],
        "verify": ["verify", capsule],
        "unpack": ["unpack", capsule, "--out", out],
    }[operation]
    bare = {
        "pack": f"sha256sum {payload} && base64 -w 0 {payload} > {out}",
        "verify": f"base64 -d {encoded} | sha256sum",
        "unpack": f"base64 -d {encoded} > {out} && sha256sum {out}",
    }[operation]
    programs = {"ours": [ours, "capsule", *words], "bare": ["/bin/sh", "-c", bare]}
    if peer:
        programs["peer"] = [peer, *words]
    return {who: (command, out) for who, command in programs.items()}


def shell(command):
    subprocess.run(["/bin/sh", "-c", command], check=True)


def measure(programs, runs):
    """Per program the median time in milliseconds and the largest memory in megabytes."""
    times = {who: [] for who in programs}
    memory = dict.fromkeys(programs, 0.0)
    # The first round only fills the caches.
    for turn in range(runs + 1):
        for who, (command, out) in programs.items():
            remove(out)
            seconds, peak = run(command)
            if turn:
                times[who].append(seconds * 1000)
                memory[who] = max(memory[who], peak)
            remove(out)
    return {who: (statistics.median(times[who]), memory[who]) for who in programs}


def run(command):
    silence = os.open(os.devnull, os.O_WRONLY)
    begin = time.perf_counter()
    child = os.posix_spawn(command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, silence, 1)])
    _, status, usage = os.wait4(child, 0)
    seconds = time.perf_counter() - begin
    os.close(silence)
    if status:
        sys.exit(f"bench-capsule: status {os.waitstatus_to_exitcode(status)} of {' '.join(command)}")
    return seconds, usage.ru_maxrss / 1024


def remove(path):
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.remove(path)


def row(size, operation, measured):
    """Prints a line and returns the goals it misses."""
    (ours, ours_memory), (bare, _) = measured["ours"], measured["bare"]
    peer = measured.get("peer", (None, None))[0]
    ratio = peer / ours if peer else None

    def cell(who, index, width, digits):
        return f"{measured[who][index]:>{width}.{digits}f}" if who in measured else f"{'-':>{width}}"

    name = f"{operation} {size} MB"
    line = f"{name:14}" + "".join(cell(who, 0, 9, 1) for who in ("ours", "peer", "bare"))
    line += f"{'':4}" + (f"{ratio:>11.1f}" if ratio else f"{'-':>11}") + f"{ours / bare:>11.2f}"
    line += f"{'':4}" + "".join(cell(who, 1, 8, 0) for who in ("ours", "peer", "bare"))
    print(line, flush=True)

    missed = []
    if ratio and size in FASTER and ratio < FASTER[size]:
        missed.append(f"{name} {ratio:.1f} times the peer's speed")
    if ours / bare > FLOOR:
        missed.append(f"{name} {ours / bare:.2f} times the bare time")
    # Below that size the program's own pages count for more than the payload does.
    if size >= 15 and ours_memory > MEMORY * size:
        missed.append(f"{name} {ours_memory:.0f} MB of memory")
    return missed


if __name__ == "__main__":
    main()
