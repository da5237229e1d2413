"""Payload echo: gives back what it was given, to see what a message looks like on arrival.

Payload / message: any JSON. {"fail": "text"} raises that text, {"sleep": seconds} waits first: so
one can see how errors and timeouts look to the caller.
Returns: {"node", "hook", "value": what came, "type": its Python type, "bytes": its size as JSON}.
Try it:
    agentcontainer run agents/lab/payload_echo.py --activate '{"a": [1, 2.5, null, "ä"]}' --message '{"fail": "on purpose"}'
"""

AGENT_ID = "payload-echo"
# Everyone can read this one. Give your own agent a secret of its own: openssl rand -hex 32
AGENT_SECRET = "38262cc2a56a0dd1ac3774705bf5121d1b561ea2207034cf"
AGENT_NAME = "Payload echo"
AGENT_CAPABILITIES = []

import json
import time


class Agent:
    def on_activate(self, ctx, payload):
        return echo(ctx, "on_activate", payload)

    def on_message(self, ctx, message):
        return echo(ctx, "on_message", message)


def echo(ctx, hook, value):
    wishes = value if isinstance(value, dict) else {}
    if "sleep" in wishes:
        time.sleep(float(wishes["sleep"]))
    if "fail" in wishes:
        raise RuntimeError(wishes["fail"])
    return {
        "node": ctx.container_name,
        "hook": hook,
        "value": value,
        "type": type(value).__name__,
        "bytes": len(json.dumps(value, ensure_ascii=False).encode("utf-8")),
    }
