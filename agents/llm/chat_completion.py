"""Chat completion: an agent that carries its own language model access and asks it over HTTP.

The node knows nothing of models or keys: address, model and key are the agent's, below. Any
service with a chat-completions interface will do, also one on this machine.

Payload: {"url", "model", "api_key", "system": instructions, "timeout": seconds, "prompt": "…"};
         each replaces what is below, and with a prompt the first question is asked at once.
Message: {"prompt": "…"} goes on with the conversation; {"forget": true} starts a new one.
Returns: {"ok": true, "reply", "model", "usage", "turns"}, or {"ok": false, "error", "text"} with
         "status" when there was an HTTP answer. A failed question is not part of the conversation,
         so it can simply be asked again.
Try it with a model server of your own:
    agentcontainer run agents/llm/chat_completion.py --message '{"prompt": "Say hello"}' --activate '{"url": "http://127.0.0.1:8080/v1/chat/completions", "model": "local", "api_key": ""}'
"""

AGENT_ID = "chat-completion"
# Everyone can read this one. Give your own agent a secret of its own: openssl rand -hex 32
AGENT_SECRET = "1738bc6aa431a69ff35aa30f367e46162bd785b42efb186a"
AGENT_NAME = "Chat completion"
AGENT_CAPABILITIES = ["http_request"]

# Whoever gets the source of an agent gets these too: use a key that can be withdrawn, and send the
# agent only to nodes that may have it. The address is a placeholder that never resolves.
ENDPOINT_URL = "https://llm.invalid/v1/chat/completions"
MODEL = "example-model"
API_KEY = "put-your-own-key-here"

import json

from agentctx import CtxError

# The conversation is memory and goes along with every move, every save and every request, so it
# is bounded: the oldest turns are forgotten first.
MAX_TURNS = 10
MAX_CHARACTERS = 20000


class Agent:
    def __init__(self):
        self.url = ENDPOINT_URL
        self.model = MODEL
        self.api_key = API_KEY
        self.system = "You are a helpful assistant on a small network node. Be brief."
        self.timeout = 60
        self.turns = []  # [[question, reply], …]

    def on_activate(self, ctx, payload):
        payload = payload or {}
        for name in ("url", "model", "api_key", "system", "timeout"):
            if name in payload:
                setattr(self, name, payload[name])
        if payload.get("prompt"):
            return self.ask(ctx, payload["prompt"])
        # Never the key: results are logged and shown.
        return {"ok": True, "url": self.url, "model": self.model, "turns": len(self.turns)}

    def on_message(self, ctx, message):
        message = message if isinstance(message, dict) else {}
        if message.get("forget"):
            self.turns = []
        if message.get("prompt"):
            return self.ask(ctx, message["prompt"])
        return {"ok": True, "turns": len(self.turns)}

    def ask(self, ctx, prompt):
        headers = {"Accept": "application/json"}
        if self.api_key:
            headers["Authorization"] = "Bearer " + self.api_key
        body = {"model": self.model, "messages": self.messages(prompt)}
        try:
            answer = ctx.http_request(
                "POST", self.url, body=body, headers=headers, timeout=self.timeout
            )
        except CtxError as error:
            # timeout, unreachable, forbidden …: no answer at all.
            return {"ok": False, "error": error.code, "text": str(error)}

        outcome = read_answer(answer)
        if outcome["ok"]:
            self.turns.append([prompt, outcome["reply"]])
            self.forget_oldest()
            outcome["turns"] = len(self.turns)
        ctx.log("chat completion", ok=outcome["ok"], status=answer["status"])
        return outcome

    def messages(self, prompt):
        messages = [{"role": "system", "content": self.system}]
        for question, reply in self.turns:
            messages.append({"role": "user", "content": question})
            messages.append({"role": "assistant", "content": reply})
        messages.append({"role": "user", "content": prompt})
        return messages

    def forget_oldest(self):
        while self.turns and (
            len(self.turns) > MAX_TURNS
            or sum(len(question) + len(reply) for question, reply in self.turns) > MAX_CHARACTERS
        ):
            self.turns.pop(0)


def read_answer(answer):
    """What the service said, checked step by step: it may be anything, down to a proxy's page."""
    status = answer["status"]
    try:
        data = json.loads(answer["body"])
    except ValueError:
        data = None
    if not 200 <= status < 300:
        return failure("http_status", status, error_text(data, answer["body"]))
    if not isinstance(data, dict):
        return failure("not_json", status, answer["body"][:200])
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices:
        return failure("no_choices", status, error_text(data, answer["body"]))
    try:
        reply = choices[0]["message"]["content"]
    except (KeyError, TypeError):
        reply = None
    if not isinstance(reply, str):
        # For one, a model that wants to call a tool answers with a null here.
        return failure("no_text", status, json.dumps(choices[0])[:200])
    return {"ok": True, "reply": reply, "model": data.get("model"), "usage": data.get("usage")}


def error_text(data, body):
    """The service's own words where it has some: {"error": {"message": …}} or {"error": "…"}."""
    if isinstance(data, dict) and data.get("error"):
        error = data["error"]
        return str(error.get("message", error) if isinstance(error, dict) else error)[:500]
    return body[:200]


def failure(kind, status, text):
    return {"ok": False, "error": kind, "status": status, "text": text}
