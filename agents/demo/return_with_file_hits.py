"""Return with file hits: goes where it is told, or everywhere, searches, and comes home.

Without a destination it visits every node below the first one, going out from there each time:
the first node's configuration has every address below it, a leaf's has only its own.

Payload: {"query": "text", "destination": name of one node, may be left out}.
Home it brings: {"report": {"query", "hits": {node: […]}, "errors": {name: why}}}.
Deployed rather than sent, it has no stage and returns the same report.
Try it:
    agentcontainer send agents/demo/return_with_file_hits.py 127.0.0.1:7000 --activate '{"query": "chess"}'
    agentcontainer send agents/demo/return_with_file_hits.py 127.0.0.1:7000 --activate '{"query": "chess", "destination": "lab-c"}'
"""

AGENT_ID = "return-with-file-hits"
# Everyone can read this one. Give your own agent a secret of its own: openssl rand -hex 32
AGENT_SECRET = "16f2cbef24cb44b08590ee0f09815cf3e9e4419cb3dd6cbe"
AGENT_NAME = "Return with file hits"
AGENT_CAPABILITIES = ["search_files", "networks", "stage", "move", "return_to_stage"]

from agentctx import CtxError


class Agent:
    def __init__(self):
        self.query = ""
        self.first = ""  # the node from which we set out
        self.to_visit = []
        self.hits = {}
        self.errors = {}

    def on_activate(self, ctx, payload):
        payload = payload or {}
        if "report" in payload:
            return payload  # we are home: the stage activates us one last time
        here = ctx.container_name
        if not payload.get("on_tour"):
            self.set_out(ctx, payload)
        # Only a tour of everything wants the first node's files, and wants them once.
        if here not in self.hits and (here != self.first or not payload.get("destination")):
            self.search(ctx, here)
        return self.go_on(ctx, here)

    def set_out(self, ctx, payload):
        if not payload.get("query"):
            raise ValueError('the payload needs a "query"')
        self.query = payload["query"]
        self.first = ctx.container_name
        self.hits = {}
        self.errors = {}
        destination = payload.get("destination")
        if destination == self.first:
            self.to_visit = []
            self.search(ctx, self.first)
        elif destination:
            self.to_visit = [destination]
        else:
            self.to_visit = names_below(ctx.networks())

    def search(self, ctx, here):
        try:
            self.hits[here] = ctx.search_files(self.query)
        except CtxError as error:
            self.hits[here] = []
            self.errors[here] = error.code

    def go_on(self, ctx, here):
        while self.to_visit:
            # Elsewhere, the next step is back to where the addresses are; the trace knows the way.
            name = self.to_visit.pop(0) if here == self.first else self.first
            try:
                return move_on(ctx, name)
            except CtxError as error:
                if error.code == "timeout":
                    raise  # we may have arrived: going on here as well would make us two
                self.errors[name] = error.code
                if name == self.first:
                    break  # cut off from the rest; home with what we have
        report = {"query": self.query, "hits": self.hits, "errors": self.errors}
        if ctx.stage() is None:
            return {"report": report}
        return ctx.return_to_stage({"report": report})

    def on_message(self, ctx, message):
        return {"query": self.query, "hits": self.hits}


def names_below(node):
    names = []
    for child in node["children"]:
        names.append(child["name"])
        names.extend(names_below(child))
    return names


def move_on(ctx, name):
    """Moves; after that the agent lives there, and this hook has only the answer to pass back."""
    result = ctx.move(name, {"on_tour": True})["result"] or {}
    # Only what on_activate returned there: answers within answers grow with every hop. If it
    # returned nothing, the result says why, as activate_error or result_error.
    return result.get("activate_result") or result
