"""Read docs preview: the first lines of the text files of a node.

Payload: {"lines": 3, "limit": 20, "suffixes": [".txt", ".md"], "paths": [exactly these instead]};
         everything may be left out.
Returns: {"node", "previews": [{"path", "lines": […], "characters"} or {"path", "error"}]}.
Try it:
    agentcontainer run agents/basic/read_docs_preview.py --data-root fixtures/root --activate '{}'
"""

AGENT_ID = "read-docs-preview"
# Everyone can read this one. Give your own agent a secret of its own: openssl rand -hex 32
AGENT_SECRET = "232472f56dc2a8c54f6162ded8ec606c964893b39b99b200"
AGENT_NAME = "Read docs preview"
AGENT_CAPABILITIES = ["resources", "read_file"]

from agentctx import CtxError


class Agent:
    def on_activate(self, ctx, payload):
        payload = payload or {}
        lines = int(payload.get("lines", 3))
        limit = int(payload.get("limit", 20))
        suffixes = tuple(payload.get("suffixes", [".txt", ".md"]))
        paths = payload.get("paths")
        if paths is None:
            # resources() names the first 50 files; enough for a preview.
            paths = [path for path in ctx.resources()["files"] if path.lower().endswith(suffixes)]
        return {
            "node": ctx.container_name,
            "previews": [preview(ctx, path, lines) for path in paths[:limit]],
        }

    def on_message(self, ctx, message):
        return self.on_activate(ctx, message)


def preview(ctx, path, lines):
    try:
        text = ctx.read_file(path)
    except CtxError as error:
        # One file that is gone or not text is no reason to lose the other previews.
        return {"path": path, "error": error.code}
    return {"path": path, "lines": text.splitlines()[:lines], "characters": len(text)}
