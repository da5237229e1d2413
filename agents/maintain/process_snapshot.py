"""Process snapshot: the processes of a node, largest first.

Payload / message: {"limit": 20} (may be left out).
Returns: {"node", "source": "ps" or "/proc", "count", "processes": [{"pid", "parent", "rss_kb", "command"}]},
         with "note" where ps could not be used, or "error" if neither source could.
Try it:
    agentcontainer run agents/maintain/process_snapshot.py --activate '{"limit": 5}'
"""

AGENT_ID = "process-snapshot"
# Everyone can read this one. Give your own agent a secret of its own: openssl rand -hex 32
AGENT_SECRET = "110312bf5d46e9543e6e27eb591af41376e86bdec9f21f86"
AGENT_NAME = "Process snapshot"
AGENT_CAPABILITIES = ["run"]

import os

from agentctx import CtxError


class Agent:
    def on_activate(self, ctx, payload):
        return self.snapshot(ctx, payload or {})

    def on_message(self, ctx, message):
        return self.snapshot(ctx, message or {})

    def snapshot(self, ctx, request):
        answer = {"node": ctx.container_name, "source": "ps"}
        try:
            processes = by_ps(ctx)
        except (CtxError, ValueError) as error:
            # Slim images come without procps, and a node may forbid run: look for ourselves. A
            # strict sandbox shows an agent few processes or none, so say which source it was.
            answer.update(source="/proc", note="no ps: %s" % error)
            processes = by_proc()
        if not processes:
            answer["error"] = "no process could be seen"
        processes.sort(key=lambda process: process["rss_kb"], reverse=True)
        answer.update(count=len(processes), processes=processes[: int(request.get("limit", 20))])
        return answer


def by_ps(ctx):
    # "name=" prints no heading; comm rather than args, which may hold other people's secrets.
    columns = ["-o", "pid=", "-o", "ppid=", "-o", "rss=", "-o", "comm="]
    ps = ctx.run(["ps", "-A"] + columns, timeout=20)
    processes = []
    for line in ps["stdout"].splitlines():
        pid, parent, rss, command = line.split(None, 3)
        processes.append(
            {"pid": int(pid), "parent": int(parent), "rss_kb": int(rss), "command": command}
        )
    if ps["returncode"] != 0 or not processes:
        raise ValueError(ps["stderr"].strip()[:200] or "ps exited with %s" % ps["returncode"])
    return processes


def by_proc():
    try:
        pids = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    processes = []
    for pid in pids:
        fields = {"Name": "?", "PPid": "0", "VmRSS": "0 kB"}  # kernel threads have no VmRSS
        try:
            with open("/proc/%s/status" % pid, errors="replace") as status:
                for line in status:
                    name, _, value = line.partition(":")
                    fields[name] = value.strip()
        except OSError:
            continue  # ended between the listing and the reading, or not ours to see
        processes.append(
            {
                "pid": int(pid),
                "parent": int(fields["PPid"]),
                "rss_kb": int(fields["VmRSS"].split()[0]),
                "command": fields["Name"],
            }
        )
    return processes
