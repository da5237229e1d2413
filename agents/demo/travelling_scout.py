"""Travelling scout: searches a node, and leaves a copy of itself in every node below.

It searches here, clones itself into each child at the same time, and each clone does the same;
the answers come back up the tree as one. The clones stay, and can be asked later.

Payload: {"query": "text"}.
Returns: {"node", "hits": [{"path", "preview", "line", "count"}], "children": {name: the same}};
         a child that could not be reached is {"error": code, "text": …} instead.
Message: {"query": "text"} searches this node again; anything else reports the last hits.
Try it (examples/lab.sh does, on four nodes):
    agentcontainer deploy agents/demo/travelling_scout.py 127.0.0.1:7000 --activate '{"query": "chess"}'
    agentcontainer invoke travelling-scout 127.0.0.1:7001 --message '{"query": "opening"}'
"""

AGENT_ID = "travelling-scout"
# Everyone can read this one. Give your own agent a secret of its own: openssl rand -hex 32
AGENT_SECRET = "acbd7c33d47874572082ce3d893b90e5239b912561fb7673"
AGENT_NAME = "Travelling scout"
AGENT_CAPABILITIES = ["search_files", "networks", "trace", "clone"]

import asyncio

from agentctx import CtxError


class Agent:
    def __init__(self):
        # Memory: what a clone that stayed behind can tell when it is asked.
        self.query = None
        self.hits = []

    async def on_activate(self, ctx, payload):
        query = (payload or {}).get("query")
        if not query:
            raise ValueError('the payload needs a "query"')
        report = await self.search(ctx, query)

        # Each node knows its own children, so the scout needs no map of the whole tree. The trace
        # names the nodes behind us: two nodes that list each other must not send us in circles.
        behind = {hop["node"] for hop in ctx.trace}
        behind.add(ctx.container_name)
        below = (await ctx.networks())["children"]
        names = [child["name"] for child in below if child["name"] not in behind]

        # All at once: the time this takes is that of the slowest branch, not their sum.
        answers = await asyncio.gather(*[leave_clone(ctx, name, query) for name in names])
        report["children"] = dict(zip(names, answers))
        return report

    async def on_message(self, ctx, message):
        query = message.get("query") if isinstance(message, dict) else None
        if query:
            return await self.search(ctx, query)
        return {"node": ctx.container_name, "query": self.query, "hits": self.hits}

    async def search(self, ctx, query):
        report = {"node": ctx.container_name, "query": query, "hits": []}
        try:
            report["hits"] = await ctx.search_files(query)
        except CtxError as error:
            # A node whose files are closed to us may still have children worth searching.
            report.update(error=error.code, text=str(error))
        self.query = query
        self.hits = report["hits"]
        await ctx.log("scout searched", query=query, hits=len(self.hits))
        return report


async def leave_clone(ctx, name, query):
    try:
        answer = await ctx.clone(name, {"query": query})
    except CtxError as error:
        return {"error": error.code, "text": str(error)}
    # The answer is the destination's whole answer; what on_activate returned there is in its result.
    result = answer["result"] or {}
    if result.get("activate_result"):
        return result["activate_result"]
    # It arrived, but its on_activate failed there, or returned too much for an answer.
    failed = result.get("activate_error") or {"error": result.get("result_error")}
    return {"error": "no_report", "text": failed["error"]}
