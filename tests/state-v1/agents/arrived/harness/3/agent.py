AGENT_ID = "arrived"
AGENT_SECRET = "secret of arrived"

class Agent:
    def __init__(self):
        self.count = 0
        self.activated = 0
    def on_activate(self, ctx, payload):
        import os
        self.activated += 1
        with open(os.path.join(ctx.state_dir(), "note.txt"), "w") as out:
            out.write("kept")
        return self.activated
    def on_message(self, ctx, message):
        import os
        if message.get("go"):
            return ctx.move(message["go"], queue=True)
        self.count += 1
        with open(os.path.join(ctx.state_dir(), "note.txt")) as text:
            return {"count": self.count, "activated": self.activated, "note": text.read(), "trace": ctx.trace}
