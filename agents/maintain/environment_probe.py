"""Environment probe: what an agent finds where it runs. Worth running before writing one.

Payload / message: {"modules": [names to look for]} (may be left out).
Returns: {"node", "python", "system", "encoding", "limits", "modules": {name: found},
          "state_dir_writable", "capabilities": […], "allow_subprocess", "sandbox"}.
Try it:
    agentcontainer run agents/maintain/environment_probe.py --activate '{"modules": ["numpy"]}'
"""

# No list of capabilities here: this agent wants to see all that it is granted.
AGENT_ID = "environment-probe"
# Everyone can read this one. Give your own agent a secret of its own: openssl rand -hex 32
AGENT_SECRET = "23bdcc49db543ad2284e9bec5fb45496802b40fb21694d45"
AGENT_NAME = "Environment probe"

import importlib.util
import os
import resource
import sys

MODULES = ["asyncio", "ctypes", "sqlite3", "ssl", "zlib"]


class Agent:
    def on_activate(self, ctx, payload):
        return self.probe(ctx, payload or {})

    def on_message(self, ctx, message):
        return self.probe(ctx, message or {})

    def probe(self, ctx, request):
        resources = ctx.resources()
        return {
            "node": ctx.container_name,
            "python": {
                "version": "%d.%d.%d" % sys.version_info[:3],
                "implementation": sys.implementation.name,
                "executable": sys.executable,
            },
            "system": system(),
            "encoding": {
                "default": sys.getdefaultencoding(),
                "files": sys.getfilesystemencoding(),
                "stdout": getattr(sys.stdout, "encoding", None),
            },
            "limits": limits(),
            "modules": {name: found(name) for name in MODULES + request.get("modules", [])},
            "state_dir_writable": writable(ctx.state_dir()),
            "capabilities": ctx.capabilities(),
            "allow_subprocess": resources["allow_subprocess"],
            "sandbox": resources["container"].get("sandbox"),
        }


def system():
    # os.uname, not the platform module: on older Pythons that starts a program to find out more,
    # and an agent's process may not start any.
    name = os.uname()
    return {
        "platform": sys.platform,
        "sysname": name.sysname,
        "release": name.release,
        "machine": name.machine,
        "cpus": os.cpu_count(),
        "uid": os.getuid(),
    }


def limits():
    """The soft limits of this process; None: unlimited."""
    names = {"memory": "RLIMIT_AS", "cpu_seconds": "RLIMIT_CPU", "open_files": "RLIMIT_NOFILE"}
    values = {}
    for label, name in names.items():
        soft = resource.getrlimit(getattr(resource, name))[0]
        values[label] = None if soft == resource.RLIM_INFINITY else soft
    return values


def found(name):
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def writable(folder):
    """Tries it: what the sandbox allows does not show in the file's mode."""
    probe = os.path.join(folder, ".probe")
    try:
        with open(probe, "w") as file:
            file.write("x")
        os.unlink(probe)
        return True
    except OSError:
        return False
