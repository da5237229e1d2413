"""Visit and go back: one agent that moves through the whole tree, depth first, and comes home.

There is only ever one of it. At each node it writes a visit note into its memory, moves to the
first child that it has not seen, and, when there is none left, back up to where it came from.
At the first node again, with everything seen, it returns to the stage that sent it.

Payload: {}.
Home it brings: {"report": {"visits": [{"node", "children", "files"}], "unreachable": {name: why}}}.
Deployed rather than sent, it has no stage and ends at its first node with the same report.
Try it:
    agentcontainer send agents/demo/visit_and_go_back.py 127.0.0.1:7000 --timeout 60
"""

AGENT_ID = "visit-and-go-back"
# Everyone can read this one. Give your own agent a secret of its own: openssl rand -hex 32
AGENT_SECRET = "884badf788d8c204a51e46153c89e1402611dfae5b20d6dc"
AGENT_NAME = "Visit and go back"
AGENT_CAPABILITIES = ["resources", "networks", "stage", "move", "return_to_stage"]

from agentctx import CtxError

# What our own moves carry. A payload without it comes from outside and starts a new tour, even
# if memory of an earlier one is still here.
ON_TOUR = {"on_tour": True}


class Agent:
    def __init__(self):
        self.start_tour()

    def start_tour(self):
        self.path = []  # the names from the first node down to this one
        self.seen = []  # every name that we need not go to again
        self.visits = []
        self.unreachable = {}

    def on_activate(self, ctx, payload):
        payload = payload or {}
        if "report" in payload:
            return payload  # we are home: the stage activates us one last time
        if not payload.get("on_tour"):
            self.start_tour()
            self.path.append(ctx.container_name)
        children = [child["name"] for child in ctx.networks()["children"]]
        # A node is noted under the name by which we came and go back: two configurations may
        # call it differently, and the tour must end all the same.
        if self.path[-1] not in self.seen:
            self.seen.append(self.path[-1])
            self.seen.append(ctx.container_name)
            self.visits.append(
                {
                    "node": ctx.container_name,
                    "children": children,
                    "files": len(ctx.resources()["files"]),
                }
            )
            ctx.mark("visit %d" % len(self.visits))
        return self.go_on(ctx, children)

    def go_on(self, ctx, children):
        for name in children:
            if name in self.seen:
                continue
            # Memory travels as it is at the call of move, so the step is written down before it.
            self.path.append(name)
            try:
                return move_on(ctx, name)
            except CtxError as error:
                self.path.pop()
                self.note_failure(name, error)

        # Nothing new below. The way up is in the trace, so a node that doesn't know its parent
        # can still send us there; if the parent is gone, the one above it will do.
        while len(self.path) > 1:
            self.path.pop()
            try:
                return move_on(ctx, self.path[-1])
            except CtxError as error:
                self.note_failure(self.path[-1], error)

        report = {"visits": self.visits, "unreachable": self.unreachable}
        if ctx.stage() is None:
            return {"report": report}
        return ctx.return_to_stage({"report": report})

    def note_failure(self, name, error):
        if error.code == "timeout":
            # We may have arrived there after all. Going on here as well would make us two.
            raise error
        self.seen.append(name)
        self.unreachable[name] = error.code

    def on_message(self, ctx, message):
        return {"node": ctx.container_name, "path": self.path, "visits": self.visits}


def move_on(ctx, name):
    """Moves; after that the agent lives there, and this hook has only the answer to pass back."""
    result = ctx.move(name, ON_TOUR)["result"] or {}
    # Only what on_activate returned there: answers within answers grow with every hop. If it
    # returned nothing, the result says why, as activate_error or result_error.
    return result.get("activate_result") or result
