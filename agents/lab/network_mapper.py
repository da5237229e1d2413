"""Network mapper: a table of all nodes below this one, with how long each took to answer.

It puts a clone into every child at the same time, and each clone does the same. The clones stay
until they are removed: agentcontainer remove network-mapper HOST:PORT.

Payload: {}.
Returns: {"node", "nodes": [{"node", "host", "port", "parent", "depth", "ms", "version"} or
          {"node", "host", "port", "parent", "depth", "error"}]}; ms is for the node and all below it.
Message: anything; the last table.
Try it:
    agentcontainer deploy agents/lab/network_mapper.py 127.0.0.1:7000 --activate '{}'
"""

AGENT_ID = "network-mapper"
# Everyone can read this one. Give your own agent a secret of its own: openssl rand -hex 32
AGENT_SECRET = "f67983094b1dacbecea74406de87c1696bd7c7e0495f92a6"
AGENT_NAME = "Network mapper"
AGENT_CAPABILITIES = ["networks", "trace", "resources", "clone"]

import asyncio
import time

from agentctx import CtxError


class Agent:
    def __init__(self):
        self.table = []

    async def on_activate(self, ctx, payload):
        depth = int((payload or {}).get("depth", 0))
        here = await ctx.networks()
        me = row(here, parent=None, depth=depth)
        me["version"] = (await ctx.resources())["container"].get("version")
        behind = {hop["node"] for hop in ctx.trace}
        behind.add(ctx.container_name)
        below = [child for child in here["children"] if child["name"] not in behind]
        tables = await asyncio.gather(
            *[map_child(ctx, child, here["name"], depth + 1) for child in below]
        )
        self.table = [me] + [line for table in tables for line in table]
        return {"node": ctx.container_name, "nodes": self.table}

    def on_message(self, ctx, message):
        return {"node": ctx.container_name, "nodes": self.table}


async def map_child(ctx, child, parent, depth):
    """The rows of a child and of everything below it; the first is its own."""
    # Host and port are those by which we reached it: behind a forwarded port it knows itself
    # under others.
    mine = row(child, parent, depth)
    started = time.monotonic()
    try:
        result = (await ctx.clone(child["name"], {"depth": depth}))["result"] or {}
    except CtxError as error:
        mine["error"] = str(error)
        return [mine]
    if not result.get("activate_result"):
        failed = result.get("activate_error") or {"error": result.get("result_error")}
        mine["error"] = failed["error"]
        return [mine]
    rows = result["activate_result"]["nodes"]
    mine["version"] = rows[0]["version"]
    mine["ms"] = round((time.monotonic() - started) * 1000, 1)
    return [mine] + rows[1:]


def row(node, parent, depth):
    return {
        "node": node["name"],
        "host": node["host"],
        "port": node["port"],
        "parent": parent,
        "depth": depth,
    }
