"""Disk report: how full the disks of a node are, and which need attention.

Payload / message: {"warn_at": 90} (per cent; may be left out).
Returns: {"node", "disks": [{"filesystem", "kb", "used_kb", "free_kb", "used_percent", "mounted_on"}],
          "warnings": [mount points]}, or {"node", "error": why there is no report}.
Try it:
    agentcontainer run agents/maintain/disk_report.py --activate '{"warn_at": 80}'
"""

AGENT_ID = "disk-report"
# Everyone can read this one. Give your own agent a secret of its own: openssl rand -hex 32
AGENT_SECRET = "a489f2ec39f728ab45009a45d762a6257bc7b8304e18ec67"
AGENT_NAME = "Disk report"
AGENT_CAPABILITIES = ["run"]

from agentctx import CtxError


class Agent:
    def on_activate(self, ctx, payload):
        return self.report(ctx, payload or {})

    def on_message(self, ctx, message):
        return self.report(ctx, message or {})

    def report(self, ctx, request):
        warn_at = float(request.get("warn_at", 90))
        try:
            # -P: the POSIX layout, one line a disk whatever the length of its name.
            df = ctx.run(["df", "-k", "-P"], timeout=20)
        except CtxError as error:
            return {"node": ctx.container_name, "error": str(error)}
        # df exits with 1 when a single mount can't be asked; the other lines are good.
        disks = [disk for disk in map(parse_line, df["stdout"].splitlines()[1:]) if disk]
        if not disks:
            return {"node": ctx.container_name, "error": "df: " + df["stderr"].strip()[:200]}
        full = [disk["mounted_on"] for disk in disks if disk["used_percent"] >= warn_at]
        for place in full:
            ctx.log("disk almost full", mounted_on=place)
        return {"node": ctx.container_name, "disks": disks, "warnings": full}


def parse_line(line):
    """One line of df; None for one that has no sizes ("-")."""
    try:
        name, size, used, free, percent, place = line.split(None, 5)
        return {
            "filesystem": name,
            "kb": int(size),
            "used_kb": int(used),
            "free_kb": int(free),
            "used_percent": int(percent.rstrip("%")),
            "mounted_on": place,
        }
    except ValueError:
        return None
