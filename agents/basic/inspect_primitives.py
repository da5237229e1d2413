"""Inspect primitives: tries everything harmless that ctx offers and shows what came back.

Payload: {"query": text to search for, default "the"}.
Returns: {"node", "agent_id", "state_dir", "trace", "capabilities": […],
          "calls": {name: {"value": …} or {"error": code, "text": …}}}.
Try it:
    agentcontainer run agents/basic/inspect_primitives.py --data-root fixtures/root
"""

# No list of capabilities here: this agent wants to see all that it is granted.
AGENT_ID = "inspect-primitives"
# Everyone can read this one. Give your own agent a secret of its own: openssl rand -hex 32
AGENT_SECRET = "ca2d633133b5e66e372bd2d9dfcfc9b27c1f7b7c496f2a92"
AGENT_NAME = "Inspect primitives"

from agentctx import CtxError


class Agent:
    def on_activate(self, ctx, payload):
        query = (payload or {}).get("query", "the")
        files = attempt(ctx.resources).get("value", {}).get("files", [])
        calls = {
            "resources": attempt(ctx.resources),
            "networks": attempt(ctx.networks),
            "stage": attempt(ctx.stage),
            "search_files": attempt(ctx.search_files, query, limit=3),
            "run": attempt(ctx.run, ["echo", "hello from", ctx.container_name]),
            # What must fail is worth seeing too: nothing above data_root can be read.
            "read_file outside": attempt(ctx.read_file, "../outside"),
        }
        if files:
            calls["read_file"] = attempt(ctx.read_file, files[0])
        ctx.log("primitives inspected", calls=len(calls))
        return {
            "node": ctx.container_name,
            "agent_id": ctx.agent_id,
            # Where the agent may keep files of its own; they travel with it.
            "state_dir": ctx.state_dir(),
            "trace": ctx.trace,
            "capabilities": ctx.capabilities(),
            "calls": calls,
        }

    def on_message(self, ctx, message):
        return self.on_activate(ctx, message)


def attempt(call, *args, **kwargs):
    """One call, with its failure as a value: a forbidden call must not hide the others."""
    try:
        return {"value": call(*args, **kwargs)}
    except CtxError as error:
        return {"error": error.code, "text": str(error)}
