"""Find and return: searches the node it is sent to and brings the lines around each hit home.

Payload: {"query": "text", "context": 1, "limit": 20}; context is the lines before and after.
Home it brings: {"report": {"node", "query", "passages": [{"path", "line", "text"}]}}.
Deployed rather than sent, it has no stage and returns the same report.
Try it:
    agentcontainer send agents/search/find_and_return.py 127.0.0.1:7001 --activate '{"query": "opening"}'
"""

AGENT_ID = "find-and-return"
# Everyone can read this one. Give your own agent a secret of its own: openssl rand -hex 32
AGENT_SECRET = "406223bff8b2aabe808e01da6d583a31d18a370db8a633bd"
AGENT_NAME = "Find and return"
AGENT_CAPABILITIES = ["search_files", "read_file", "stage", "return_to_stage"]

from agentctx import CtxError


class Agent:
    def on_activate(self, ctx, payload):
        payload = payload or {}
        if "report" in payload:
            return payload  # we are home: the stage activates us one last time
        if not payload.get("query"):
            raise ValueError('the payload needs a "query"')
        around = int(payload.get("context", 1))
        hits = ctx.search_files(payload["query"], limit=int(payload.get("limit", 20)))
        report = {
            "node": ctx.container_name,
            "query": payload["query"],
            "passages": [passage(ctx, hit, around) for hit in hits],
        }
        if ctx.stage() is None:
            return {"report": report}
        return ctx.return_to_stage({"report": report})


def passage(ctx, hit, around):
    """The hit with its neighbours; lines are counted from 1."""
    try:
        lines = ctx.read_file(hit["path"]).splitlines()
    except CtxError:
        # Gone or changed since the search: its preview is what we have.
        return {"path": hit["path"], "line": hit["line"], "text": [hit["preview"]]}
    first = max(hit["line"] - 1 - around, 0)
    return {"path": hit["path"], "line": hit["line"], "text": lines[first : hit["line"] + around]}
