#!/usr/bin/env python3
"""The handoff demo: agent A sends its workspace through a chat, agent B decides what to do with it.

    examples/handoff/handoff.py [DIRECTORY]

    DIRECTORY       where everything goes; it must not exist yet (default: build/handoff of this
                    clone, which is removed first)
    AGENTCONTAINER  the binary (default: target/release/agentcontainer of this clone)
    AGENTCAPSULE    another program with the same command line as `agentcontainer capsule`, with its
                    first arguments if it needs any: AGENTCAPSULE="python3 -m something"

A signs with a key made for this run and writes a message: a summary for people, a capsule for
programs. B gets no more than that message and, by another way, A's public key and fingerprint. B
trusts nothing that the message says of itself: only its own registry and its own policy count.

Leaves events.jsonl (one line a decision), evaluation.json (verdict, score, checklist, policy matrix)
and report.html. Exit status: 0 for the verdict pass, 1 for fail, 2 if the demo could not be run.
Python 3.6 or later, standard library only.
"""

import datetime
import json
import os
import shlex
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CLONE = os.path.dirname(os.path.dirname(HERE))
WORKSPACE = os.path.join(HERE, "workspace")
POLICIES = os.path.join(HERE, "policies")
BEGIN = "-----BEGIN AGENT CAPSULE-----"
KEY_ID = "agent-a"

# Everything is named relative to the demo's directory, which each command runs in.
MESSAGE = "channel/message.txt"
CAPSULE = "agent-a/capsule.txt"
UNSIGNED = "agent-a/unsigned.txt"
PUBLIC_KEY = "agent-a/signing.pub"
OTHER_PUBLIC_KEY = "stranger/signing.pub"
REGISTRY = "agent-b/registry.json"
SANDBOX = "agent-b/sandbox"

# What has to be decided, in this order, for a handoff that went well.
EXPECTED = [
    ("keys", "allow"),
    ("registry", "allow"),
    ("pack", "allow"),
    ("compose", "allow"),
    ("scan", "review"),
    ("verify", "allow"),
    ("unpack", "allow"),
    ("compare", "allow"),
]


class CannotRun(Exception):
    """Something is missing that the demo needs."""


class Blocked(Exception):
    """A step was refused, and recorded; nothing comes after it."""


# --- the program and what it says -----------------------------------------------------------


class Capsule:
    """The capsule program, run in one directory."""

    def __init__(self, words, directory):
        self.words = words
        self.directory = directory

    def run(self, *arguments):
        """Exit status, standard output, and the last line of standard error."""
        command = self.words + list(arguments)
        try:
            done = subprocess.run(
                command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                timeout=60,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CannotRun("running %s: %s" % (" ".join(command), error))
        errors = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return done.returncode, done.stdout.decode("utf-8", "replace"), errors[-1] if errors else ""

    def audit(self, *arguments):
        """The audit event of a command, which there is for success and refusal alike."""
        status, out, error = self.run(*(arguments + ("--audit-json",)))
        try:
            event = json.loads(out)
            disposition = event["disposition"]
        except (ValueError, KeyError, TypeError):
            raise CannotRun("%s printed no audit event: %s" % (arguments[0], error or out[:200]))
        # Two ways to tell the outcome that disagree would be worse than either.
        if status != (2 if disposition == "block" else 0):
            raise CannotRun("%s said %s and ended with status %d" % (arguments[0], disposition, status))
        return event


class Events:
    """events.jsonl: one line a decision, written when it is made."""

    def __init__(self, path):
        self.path = path
        self.all = []

    def record(self, step, actor, decision, reason, audit=None):
        """Notes a decision; a block ends the handoff."""
        now = datetime.datetime.now(datetime.timezone.utc)
        event = {
            "schema_version": 1,
            "time": now.strftime("%Y-%m-%dT%H:%M:%S.") + "%03dZ" % (now.microsecond // 1000),
            "step": step,
            "actor": actor,
            "decision": decision,
            "reason": reason,
        }
        if audit is not None:
            event["audit"] = audit
        self.all.append(event)
        with open(self.path, "a") as file:
            file.write(json.dumps(event, sort_keys=True) + "\n")
        print("%-9s %-8s %-7s %s" % (step, actor, decision, reason))
        if decision == "block":
            raise Blocked()

    def record_audit(self, step, actor, audit):
        """Notes the decision that an audit event tells."""
        self.record(step, actor, audit["disposition"], "; ".join(audit["reasons"]), audit)

    def decisions(self):
        return [(event["step"], event["decision"]) for event in self.all]

    def audit_result(self, step):
        """What the program reported at a step, or nothing."""
        for event in self.all:
            if event["step"] == step:
                return event.get("audit", {}).get("result", {})
        return {}


# --- agent A --------------------------------------------------------------------------------


def make_keys(capsule, events):
    """A's key for this run; gives its fingerprint, which B shall hear by another way."""
    status, _, error = capsule.run(
        "keys", "generate", "--private-key", "agent-a/signing.key", "--public-key", PUBLIC_KEY
    )
    if status != 0:
        events.record("keys", "agent-a", "block", error)
    mine = fingerprint(capsule, PUBLIC_KEY)
    events.record("keys", "agent-a", "allow", "Ed25519 key made for this run, fingerprint %s" % mine)
    return mine


def pack(capsule, events):
    """The signed capsule of the workspace; gives the hash of its payload."""
    status, out, error = capsule.run(
        "pack", WORKSPACE, "--out", CAPSULE,
        "--created-by", "agent-a", "--task-id", "importer-review",
        "--requested-capability", "read_files", "--requested-capability", "run_tests",
        "--sign-ed25519-key", "agent-a/signing.key", "--signature-key-id", KEY_ID,
    )
    if status != 0:
        events.record("pack", "agent-a", "block", error)
    told = dict(line.split(": ", 1) for line in out.splitlines() if ": " in line)
    reason = "%d files in %s bytes, signed" % (len(files_below(WORKSPACE)), told.get("payload bytes", "?"))
    events.record("pack", "agent-a", "allow", reason)
    return told.get("payload sha256")


def compose(events, directory):
    """The message: what people read, then the capsule."""
    lines = [
        "Hello B, I am done with my part of the importer review; please take over.",
        "",
        "Summary: all three sample feeds are read. Two of five checks fail, because dates",
        "without a time zone are taken for local time. The next steps are in the plan.",
        "",
        "In the capsule below:",
    ]
    for path, content in sorted(files_below(WORKSPACE).items()):
        lines.append("  - %s (%d bytes)" % (path, len(content)))
    lines += [
        "",
        "You will want to read the files and run the tests. My key's fingerprint you have",
        "already; do not take it from this message.",
        "",
        read_text(os.path.join(directory, CAPSULE)).rstrip("\n"),
        "",
        "Regards, A",
    ]
    write_text(os.path.join(directory, MESSAGE), "\n".join(lines) + "\n")
    words = sum(len(line.split()) for line in summary_of(directory))
    events.record("compose", "agent-a", "allow", "a summary of %d words above the capsule" % words)


# --- agent B --------------------------------------------------------------------------------


def trust(capsule, events, told):
    """B adds A's key to its registry, after it has compared the fingerprint with the one it was told."""
    found = fingerprint(capsule, PUBLIC_KEY)
    if found != told:
        events.record("registry", "agent-b", "block", "the key's fingerprint is %s, not %s" % (found, told))
    entry = ["--key-id", KEY_ID, "--public-key", PUBLIC_KEY]
    if capsule.run("keys", "registry-add", "--help")[0] == 0:
        status, _, error = capsule.run("keys", "registry-add", "--registry", REGISTRY, *entry)
    else:
        # A program without that command still makes the entry.
        status, out, error = capsule.run("keys", "registry-entry", "--json", *entry)
        if status == 0:
            registry = {"keys": [json.loads(out)]}
            write_text(os.path.join(capsule.directory, REGISTRY), json.dumps(registry) + "\n")
    if status != 0:
        events.record("registry", "agent-b", "block", error)
    reason = "fingerprint compared by another way than the message, %s registered as trusted" % KEY_ID
    events.record("registry", "agent-b", "allow", reason)


def receive(capsule, events):
    """B looks at the message, checks the capsule in it, and unpacks it into a sandbox directory."""
    mine = ["--policy", policy("strict"), "--signature-registry", REGISTRY]
    events.record_audit("scan", "agent-b", capsule.audit("scan", MESSAGE, *mine))
    events.record_audit("verify", "agent-b", capsule.audit("verify", MESSAGE, *mine))
    # unpack checks everything once more: what was verified a moment ago may be another file by now.
    events.record_audit("unpack", "agent-b", capsule.audit("unpack", MESSAGE, "--out", SANDBOX, *mine))


def compare(events, directory):
    """Every file that came out, against the one that went in; only a demo can do that."""
    sent, got = files_below(WORKSPACE), files_below(os.path.join(directory, SANDBOX))
    for path in sorted(set(sent) | set(got)):
        if sent.get(path) != got.get(path):
            what = "was not sent" if path not in sent else "is missing" if path not in got else "differs"
            events.record("compare", "agent-b", "block", "%s %s" % (path, what))
    events.record("compare", "agent-b", "allow", "%d files, equal byte by byte" % len(sent))


# --- six receivers --------------------------------------------------------------------------


def policy_matrix(capsule):
    """The same message, or a variant of it, at six receivers.

    A block for another reason than the one that was meant proves nothing, so each names a part of it.
    """
    trusting = ["--signature-registry", REGISTRY]
    receivers = [
        # receiver, operation, text, policy, further options, expected, its reason
        ("observe", "verify", MESSAGE, "observe", trusting, "allow", ""),
        ("strict and trusted", "verify", MESSAGE, "strict", trusting, "allow", ""),
        ("strict scan of the message", "scan", MESSAGE, "strict", trusting, "review", ""),
        ("wrong key", "verify", MESSAGE, "strict",
         trusting + ["--ed25519-public-key", OTHER_PUBLIC_KEY], "block", "fingerprint"),
        ("payload limit", "verify", MESSAGE, "small", trusting, "block", "exceeds"),
        ("unsigned", "verify", UNSIGNED, "strict", trusting, "block", "unsigned"),
    ]
    rows = []
    for receiver, operation, text, rules, options, expected, because in receivers:
        audit = capsule.audit(operation, text, "--policy", policy(rules), *options)
        actual, reason = audit["disposition"], "; ".join(audit["reasons"])
        rows.append({
            "receiver": receiver,
            "operation": operation,
            "policy": rules,
            "expected": expected,
            "actual": actual,
            "reason": reason,
            "matched": actual == expected and because in reason,
        })
    return rows


def make_variants(capsule):
    """What three of the receivers need: a stranger's key, and the workspace without a signature."""
    for command in (
        ["keys", "generate", "--private-key", "stranger/signing.key", "--public-key", OTHER_PUBLIC_KEY],
        ["pack", WORKSPACE, "--out", UNSIGNED, "--created-by", "agent-a"],
    ):
        status, _, error = capsule.run(*command)
        if status != 0:
            raise CannotRun("%s: %s" % (" ".join(command), error))


# --- the evaluation -------------------------------------------------------------------------


def evaluate(events, matrix, directory, packed_hash):
    """What the evidence shows, each point by itself."""
    scan, verify, unpack = (events.audit_result(step) for step in ("scan", "verify", "unpack"))
    signer = verify.get("signature_trust") or {}
    outside = [path for path in unpack.get("files_written", []) if not in_sandbox(directory, path)]
    matched = sum(row["matched"] for row in matrix)
    points = [
        ("The message has a summary for people above the capsule",
         any(line.startswith("Summary:") for line in summary_of(directory)), MESSAGE),
        ("The scan found one capsule in the message, and it is valid",
         (scan.get("capsules_detected"), scan.get("valid_capsules")) == (1, 1),
         "risk %s" % scan.get("risk_level", "unknown")),
        ("The payload is the one that was packed",
         packed_hash is not None and verify.get("payload_sha256") == packed_hash,
         "SHA-256 %s" % verify.get("payload_sha256", "unknown")),
        ("The signature is good",
         verify.get("signature_verification") == "ok", verify.get("signature_verification", "not checked")),
        ("The receiver's registry trusts the key",
         signer.get("status") == "trusted", signer.get("reason", "no signer")),
        ("It was unpacked into the sandbox directory, and nowhere else",
         bool(unpack.get("files_written")) and not outside,
         "%d files written, %d of them outside" % (len(unpack.get("files_written", [])), len(outside))),
        ("Every file is equal to the one that was sent",
         ("compare", "allow") in events.decisions(), "%d files sent" % len(files_below(WORKSPACE))),
        ("Every decision is recorded, and is the expected one",
         events.decisions() == EXPECTED, "%d of %d" % (len(events.all), len(EXPECTED))),
        ("Six receivers decide as their policies say",
         matched == len(matrix) == 6, "%d of 6" % matched),
    ]
    checklist = [{"check": check, "passed": bool(ok), "detail": detail} for check, ok, detail in points]
    passed = sum(point["passed"] for point in checklist)
    made = [decision for _, decision in events.decisions()]
    return {
        "schema_version": 1,
        "verdict": "pass" if passed == len(checklist) else "fail",
        "score": 100 * passed // len(checklist),
        "checklist": checklist,
        "counts": {decision: made.count(decision) for decision in ("allow", "review", "block")},
        "policy_matrix": matrix,
    }


# --- small things ---------------------------------------------------------------------------


def policy(name):
    return os.path.join(POLICIES, name + ".json")


def fingerprint(capsule, public_key):
    status, out, error = capsule.run("keys", "fingerprint", "--public-key", public_key)
    if status != 0:
        raise CannotRun("the fingerprint of %s: %s" % (public_key, error))
    return out.split()[-1]


def summary_of(directory):
    """The lines of the message above its capsule."""
    path = os.path.join(directory, MESSAGE)
    text = read_text(path) if os.path.exists(path) else ""
    return text.split(BEGIN)[0].splitlines() if BEGIN in text else []


def files_below(top):
    """Relative path and content of every file; a link or anything else is none."""
    found = {}
    for folder, _, names in os.walk(top):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.islink(path):
                with open(path, "rb") as file:
                    found[os.path.relpath(path, top).replace(os.sep, "/")] = file.read()
    return found


def in_sandbox(directory, path):
    """Whether the path, with all links followed, is below the sandbox directory."""
    sandbox = os.path.realpath(os.path.join(directory, SANDBOX))
    return os.path.realpath(os.path.join(directory, path)).startswith(sandbox + os.sep)


def read_text(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write_text(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def fresh_directory(arguments):
    """Where to write: what the caller named, if that is not there yet, or build/handoff anew."""
    if len(arguments) > 1:
        raise CannotRun("usage: handoff.py [DIRECTORY]")
    if arguments:
        directory = os.path.abspath(arguments[0])
    else:
        directory = os.path.join(CLONE, "build", "handoff")
        if os.path.lexists(directory):
            shutil.rmtree(directory)
    for part in ("agent-a", "agent-b", "channel", "stranger"):
        os.makedirs(os.path.join(directory, part))
    return directory


def program(words):
    """The words of a command; the program's path must hold in other directories, too."""
    if not words or shutil.which(words[0]) is None:
        raise CannotRun("no program %s (make build, or set AGENTCAPSULE)" % " ".join(words))
    return [os.path.abspath(words[0]) if os.sep in words[0] else words[0]] + words[1:]


def write_report(binary, directory):
    """The page, by our own binary; another program's run may do without."""
    if shutil.which(binary) is None:
        print("no page: there is no binary at %s" % binary)
        return
    command = ["capsule", "report", "--events", "events.jsonl", "--evaluation", "evaluation.json"]
    status, _, error = Capsule(program([binary]), directory).run(*(command + ["--out", "report.html"]))
    if status != 0:
        raise CannotRun("the page: %s" % error)
    print("page: %s" % os.path.join(directory, "report.html"))


def main(arguments):
    binary = os.environ.get("AGENTCONTAINER") or os.path.join(CLONE, "target", "release", "agentcontainer")
    given = shlex.split(os.environ.get("AGENTCAPSULE", ""))
    words = program(given or [binary, "capsule"])
    directory = fresh_directory(arguments)
    capsule = Capsule(words, directory)
    events = Events(os.path.join(directory, "events.jsonl"))

    packed_hash, matrix = None, []
    try:
        told = make_keys(capsule, events)
        trust(capsule, events, told)
        packed_hash = pack(capsule, events)
        compose(events, directory)
        receive(capsule, events)
        compare(events, directory)
        make_variants(capsule)
        matrix = policy_matrix(capsule)
    except Blocked:
        pass  # it is in the events; the evaluation says what is missing

    evaluation = evaluate(events, matrix, directory, packed_hash)
    text = json.dumps(evaluation, indent=2, sort_keys=True) + "\n"
    write_text(os.path.join(directory, "evaluation.json"), text)
    print()
    for row in matrix:
        mark = "" if row["matched"] else "  NOT AS EXPECTED (%s)" % row["expected"]
        print("%-27s %-7s %s%s" % (row["receiver"], row["actual"], row["reason"], mark))
    print()
    for point in evaluation["checklist"]:
        if not point["passed"]:
            print("failed: %s (%s)" % (point["check"], point["detail"]))
    write_report(binary, directory)
    counts = evaluation["counts"]
    print("handoff: %s, score %d, %d allow, %d review, %d block" % (
        evaluation["verdict"], evaluation["score"], counts["allow"], counts["review"], counts["block"],
    ))
    return 0 if evaluation["verdict"] == "pass" else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (CannotRun, OSError) as failure:
        sys.stderr.write("handoff: FAILED: %s\n" % failure)
        sys.exit(2)
