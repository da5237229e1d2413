"""Tree walker: goes to every node of the tree in person and compares it with the map.

The map is the tree as the first node's configuration tells it. The walker moves to each node, asks
it for its own children, and ends at the first node again. It leaves nothing behind.

Payload: {"max_depth": how far down, may be left out}.
Returns: {"drawing": [lines], "nodes": {name: {"children": […]} or {"error": code}},
          "differences": [sentences where a node and the map disagree]}.
Try it:
    agentcontainer deploy agents/network/tree_walker.py 127.0.0.1:7000 --activate '{}'
"""

AGENT_ID = "tree-walker"
# Everyone can read this one. Give your own agent a secret of its own: openssl rand -hex 32
AGENT_SECRET = "0cb1479266d44779c29160c7aec034c5c5e1fffc268eb8f0"
AGENT_NAME = "Tree walker"
AGENT_CAPABILITIES = ["networks", "move"]

from agentctx import CtxError


class Agent:
    def __init__(self):
        self.map = {}  # the first node's view, {"name", "children", …}
        self.to_visit = []
        self.going_to = ""  # the map's name for the node we are on, or on our way to
        self.nodes = {}

    def on_activate(self, ctx, payload):
        payload = payload or {}
        view = ctx.networks()
        if not payload.get("walking"):  # from outside: a new walk begins here
            self.map = view
            self.to_visit = names_below(view, payload.get("max_depth"))
            self.going_to = view["name"]
            self.nodes = {}
        if self.going_to not in self.nodes:
            children = [child["name"] for child in view["children"]]
            self.nodes[self.going_to] = {"name": view["name"], "children": children}

        first = self.map["name"]
        if self.going_to != first:
            # Only the first node has all addresses, so every visit sets out from there. It is in
            # the trace: that is how a node that never heard of it finds it.
            return self.move(ctx, first)
        while self.to_visit:
            name = self.to_visit.pop(0)
            try:
                return self.move(ctx, name)
            except CtxError as error:
                if error.code == "timeout":
                    raise  # we may have arrived: going on here as well would make us two
                self.going_to = first
                self.nodes[name] = {"error": error.code}
        return self.report()

    def move(self, ctx, name):
        self.going_to = name  # before the call: memory travels as it is then
        result = ctx.move(name, {"walking": True})["result"] or {}
        # We live there now; what is left for this hook is to pass the walk's report back. If
        # there is none, the result says why, as activate_error or result_error.
        return result.get("activate_result") or result

    def on_message(self, ctx, message):
        return self.report()

    def report(self):
        return {
            "drawing": draw(self.map, self.nodes) if self.map else [],
            "nodes": self.nodes,
            "differences": differences(self.map, self.nodes) if self.map else [],
        }


def names_below(node, depth=None):
    if depth == 0:
        return []
    names = []
    for child in node["children"]:
        names.append(child["name"])
        names.extend(names_below(child, None if depth is None else depth - 1))
    return names


def draw(node, nodes, indent=""):
    visited = nodes.get(node["name"], {"error": "not visited"})
    state = visited.get("error", "ok")
    lines = ["%s%s  %s:%s  %s" % (indent, node["name"], node["host"], node["port"], state)]
    for child in node["children"]:
        lines.extend(draw(child, nodes, indent + "  "))
    return lines


def differences(node, nodes):
    found = []
    visited = nodes.get(node["name"], {})
    if visited.get("name", node["name"]) != node["name"]:
        found.append("%s calls itself %s" % (node["name"], visited["name"]))
    on_map = sorted(child["name"] for child in node["children"])
    if "children" in visited and sorted(visited["children"]) != on_map:
        found.append(
            "%s says its children are %s, the map says %s"
            % (node["name"], sorted(visited["children"]), on_map)
        )
    for child in node["children"]:
        found.extend(differences(child, nodes))
    return found
