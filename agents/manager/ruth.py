"""Ruth: the manager of a node, its roster, its schedules, and how its agents are.

Every node registers its own at its start, from this source, with the node's own name for it ("manager" in the
configuration) and a secret made there. It stays on its node and has no process until somebody asks it.

Message: {"do": ...}, one of
    {"do": "help"}                                  what it knows
    {"do": "roster"}                                who is here, and what is scheduled for them
    {"do": "status", "agent": ID}                   one agent: is what runs what its config/ says; or all, without "agent"
    {"do": "deploys", "limit": 50}                  who was deployed, came, went or was removed, oldest first
    {"do": "schedule", "agent": ID, "message": M,   give an agent a message: one of
        "at": UNIX_SECONDS | "every": SECONDS | "daily": "HH:MM",
        "catch_up": false, "id": NAME}              (catch_up: once at the start, if the node was down then)
    {"do": "cancel", "id": NAME}                    no more of this schedule
    {"do": "fire", "id": NAME}                      once now, beside its times
    {"do": "edit", "id": NAME, ...}                 another agent, message, time or catch_up
Returns: {"node", and what was asked for: "agents", "agent", "deploys" or "schedule"}, or {"node", "error", "known"}.
The admin and operators who may invoke it are obeyed. What other agents leave for it (ctx.send) is not.
Try it:
    agentcontainer invoke ruth 127.0.0.1:7000 --message '{"do": "roster"}'
    agentcontainer invoke ruth 127.0.0.1:7000 --message '{"do": "schedule", "agent": "ping", "every": 60, "message": 1}'
"""

AGENT_ID = "ruth"
AGENT_SECRET = "each node makes one of its own"
AGENT_NAME = "Manager"

from agentctx import CtxError

TIMES = ("at", "every", "daily")


class Agent:
    def on_message(self, ctx, message):
        answer = {"node": ctx.container_name}
        if isinstance(message, dict) and "from" in message:
            # Only the node puts a sender there: it speaks for an agent, and no agent commands this one.
            ctx.log("not obeyed: a message of an agent", sender=message["from"])
            answer["error"] = "only the admin's messages are obeyed here, not those of agents"
            return answer
        try:
            answer.update(self.obey(ctx, message))
        except CtxError as error:
            answer["error"] = str(error)
        except Unclear as error:
            answer.update({"error": str(error), "known": sorted(KNOWN)})
        return answer

    def obey(self, ctx, message):
        if not isinstance(message, dict) or not isinstance(message.get("do"), str):
            raise Unclear('the message must be an object like {"do": "roster"}')
        if message["do"] not in KNOWN:
            raise Unclear("there is nothing called %r to do" % message["do"][:100])
        what, needed, allowed = KNOWN[message["do"]]
        for name in needed:
            if name not in message:
                raise Unclear('%s needs "%s"' % (message["do"], name))
        odd = sorted(set(message) - {"do"} - set(needed) - set(allowed))
        if odd:
            raise Unclear("%s knows no %r" % (message["do"], odd[0][:100]))
        return what(ctx, {name: value for name, value in message.items() if name != "do"})


class Unclear(Exception):
    """What was asked for is nothing that it knows."""


def tell_help(ctx, order):
    known = {name: {"needs": list(needed), "takes": list(allowed)} for name, (_, needed, allowed) in KNOWN.items()}
    return {"knows": known, "may": ctx.capabilities()}


def roster(ctx, order):
    keys = ("agent_id", "agent_name", "status", "live", "origin", "config", "manager")
    agents = []
    for agent in ctx.agent_status():
        line = {key: agent.get(key) for key in keys}
        line["schedules"] = [schedule["id"] for schedule in agent["schedules"]]
        agents.append(line)
    return {"agents": agents}


def status(ctx, order):
    if "agent" in order:
        return {"agent": ctx.agent_status(order["agent"])}
    return {"agents": ctx.agent_status()}


def deploys(ctx, order):
    return {"deploys": ctx.deploy_log(order.get("limit", 50))}


def schedule(ctx, order):
    order["agent_id"] = order.pop("agent")
    return {"schedule": ctx.request_schedule_prompt(**order)}


def cancel(ctx, order):
    return {"schedule": ctx.cancel_schedule(order["id"])}


def fire(ctx, order):
    return {"schedule": ctx.fire_schedule_now(order["id"])}


def edit(ctx, order):
    if "agent" in order:
        order["agent_id"] = order.pop("agent")
    return {"schedule": ctx.edit_schedule(**order)}


# What it does, what that needs, and what it takes besides.
KNOWN = {
    "help": (tell_help, (), ()),
    "roster": (roster, (), ()),
    "status": (status, (), ("agent",)),
    "deploys": (deploys, (), ("limit",)),
    "schedule": (schedule, ("agent", "message"), TIMES + ("catch_up", "id")),
    "cancel": (cancel, ("id",), ()),
    "fire": (fire, ("id",), ()),
    "edit": (edit, ("id",), ("agent", "message", "catch_up") + TIMES),
}
