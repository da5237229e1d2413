"""HTTP probe: asks web addresses from the node's place in the network and times the answers.

Payload / message: {"url": "http://…"} or {"urls": […]}, {"method": "GET", "timeout": 10}.
Returns: {"node", "results": [{"url", "status", "ms", "characters", "content_type"} or
          {"url", "error": code, "text", "ms"}]}, in the order asked.
Try it:
    agentcontainer run agents/lab/http_probe.py --activate '{"url": "http://127.0.0.1:8000/"}'
"""

AGENT_ID = "http-probe"
# Everyone can read this one. Give your own agent a secret of its own: openssl rand -hex 32
AGENT_SECRET = "4ff4288480405563ced47d945eeb22193fdb2125a0c38394"
AGENT_NAME = "HTTP probe"
AGENT_CAPABILITIES = ["http_request"]

import asyncio
import time

from agentctx import CtxError


class Agent:
    async def on_activate(self, ctx, payload):
        return await self.probe_all(ctx, payload or {})

    async def on_message(self, ctx, message):
        return await self.probe_all(ctx, message or {})

    async def probe_all(self, ctx, request):
        urls = request.get("urls") or [request["url"]]
        method = request.get("method", "GET")
        timeout = float(request.get("timeout", 10))
        results = await asyncio.gather(*[probe(ctx, method, url, timeout) for url in urls])
        return {"node": ctx.container_name, "results": results}


async def probe(ctx, method, url, timeout):
    started = time.monotonic()
    try:
        answer = await ctx.http_request(method, url, timeout=timeout)
    except CtxError as error:
        return {"url": url, "error": error.code, "text": str(error), "ms": since(started)}
    # 404 and 500 are answers too: whether that is good is for the reader to say.
    headers = {name.lower(): value for name, value in answer["headers"].items()}
    return {
        "url": url,
        "status": answer["status"],
        "ms": since(started),
        "characters": len(answer["body"]),
        "content_type": headers.get("content-type"),
    }


def since(started):
    return round((time.monotonic() - started) * 1000, 1)
