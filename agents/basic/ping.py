"""Ping: the smallest useful agent, and a good one to copy.

Payload / message: any JSON.
Returns: {"pong": what it was given, "node": where it runs, "count": how often it was asked}.
Try it:
    agentcontainer run agents/basic/ping.py --activate '"hello"' --message '{"n": 1}'
"""

AGENT_ID = "ping"
# Everyone can read this one. Give your own agent a secret of its own: openssl rand -hex 32
AGENT_SECRET = "6d90e834affca12b227b3528b3520bac4eb666bd43553585"
AGENT_NAME = "Ping"
AGENT_CAPABILITIES = []


class Agent:
    def __init__(self):
        # A plain attribute is memory: it survives a restart and travels with the agent.
        self.count = 0

    def on_activate(self, ctx, payload):
        return self.answer(ctx, payload)

    def on_message(self, ctx, message):
        return self.answer(ctx, message)

    def answer(self, ctx, value):
        self.count += 1
        return {"pong": value, "node": ctx.container_name, "count": self.count}
