"""List files: what lies below a node's data_root.

Payload / message: {"pattern": "*.csv", "limit": 1000}; both may be left out.
Returns: {"node", "files": […], "count": of all that match, "complete": false if some may be missing,
          and then "why"}.
Try it:
    agentcontainer run agents/search/list_files.py --data-root fixtures/root --activate '{"pattern": "*.txt"}'
"""

AGENT_ID = "list-files"
# Everyone can read this one. Give your own agent a secret of its own: openssl rand -hex 32
AGENT_SECRET = "61a8484b2d22d419aad05cfc4c5bfe7eb9a464263c9f53f3"
AGENT_NAME = "List files"
AGENT_CAPABILITIES = ["resources", "run"]

import fnmatch

from agentctx import CtxError

# resources() names this many files at most.
RESOURCES_LIMIT = 50


class Agent:
    def on_activate(self, ctx, payload):
        return self.list(ctx, payload or {})

    def on_message(self, ctx, message):
        return self.list(ctx, message or {})

    def list(self, ctx, request):
        files, why = all_files(ctx)
        pattern = request.get("pattern", "*")
        limit = int(request.get("limit", 1000))
        matching = [path for path in files if fnmatch.fnmatch(path, pattern)]
        if len(matching) > limit:
            why = why or "cut at limit"
        answer = {
            "node": ctx.container_name,
            "files": matching[:limit],
            "count": len(matching),
            "complete": why is None,
        }
        if why is not None:
            answer["why"] = why
        return answer


def all_files(ctx):
    """The files, and the reason why some may be missing (None: these are all)."""
    files = ctx.resources()["files"]
    if len(files) < RESOURCES_LIMIT:
        return files, None
    # There are more than the node lists by itself, so ask find, which starts in data_root. Names
    # end in a zero byte rather than a line end: a name may contain one.
    try:
        found = ctx.run(["find", ".", "-type", "f", "-print0"], timeout=30)
    except CtxError as error:
        return files, "only the first %d: run answered %s" % (RESOURCES_LIMIT, error.code)
    # What comes after the last zero byte is nothing, or half a name where the output was cut.
    names = found["stdout"].split("\0")
    cut = names.pop()
    names = [name[2:] for name in names]
    if cut:
        return sorted(names), "find had more to say than run hands on"
    if found["returncode"] != 0:
        # A folder that find may not enter; the rest of its list is still good.
        return sorted(names), "find: " + found["stderr"].strip()[:200]
    return sorted(names), None
