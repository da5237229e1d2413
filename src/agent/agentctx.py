"""The Python side of an agent's process: zygote, parked worker, bridge, `ctx`.

One file, standard library only, Python 3.6 to 3.13. The node hands it to `python3` as a memory
file; nothing of it needs to be on disk. Agents may `import agentctx` for `CtxError`.

Bridge, both ways, one JSON text a line:

    node -> worker   {"seal": {...}}                        before the load, with a Landlock ruleset beside it
                     {"load": {...}}                        once; answered {"loaded": ...} or {"refused": ...}
                     {"hook": n, "name": ..., "payload": ...}
                     {"reply": n, "result": ...} or {"reply": n, "error": {"code", "message", "detail"}}
    worker -> node   {"hello": slot}
                     {"done": n, "result": ..., "memory"?: ..., "left"?: [...], "stale"?: ...}
                     {"failed": n, "error": {"type", "text", "traceback"}, "memory"?: ..., "left"?: [...], "stale"?: ...}
                     {"call": n, "hook": n or null, "name": ..., "args": {...}, "memory"?: ...}
"""
import collections.abc
import json
import os
import select
import socket
import sys
import threading
import types

__all__ = ["CtxError"]

# Descriptors an agent is likely to write to by number are small; the bridge sits far above them.
BRIDGE_FD_FLOOR = 400
RECV_BYTES = 1 << 16
TEXT_LIMIT = 8192
TRACEBACK_LINES = 50
AGENT_FILE = "agent.py"
OWN_FILE = "<agentctx>"
MANIFEST = ("AGENT_ID", "AGENT_SECRET", "AGENT_NAME", "AGENT_CAPABILITIES", "AGENT_VERSION")
# What the launcher adds at the end of this text: the seccomp filters of workers by name, each with the places
# that hold the process's own number; what it could not do.
FILTERS = {}
SANDBOX = {}
# Modules that an `async def` hook can use without an event loop. A source that imports anything
# else (asyncio first of all) gets a real loop.
LOOPLESS = frozenset((
    "__future__", "abc", "agentctx", "argparse", "array", "ast", "base64", "binascii", "bisect", "calendar",
    "collections", "colorsys", "copy", "csv", "datetime", "decimal", "difflib", "enum", "errno", "fnmatch",
    "fractions", "functools", "getpass", "glob", "gzip", "hashlib", "heapq", "hmac", "html", "inspect", "io",
    "ipaddress", "itertools", "json", "keyword", "locale", "logging", "math", "mimetypes", "numbers", "operator",
    "os", "pathlib", "platform", "pprint", "random", "re", "secrets", "shlex", "shutil", "signal", "socket",
    "sqlite3", "stat", "statistics", "string", "struct", "subprocess", "sys", "tempfile", "textwrap", "threading",
    "time", "traceback", "types", "typing", "unicodedata", "urllib", "uuid", "warnings", "xml", "zipfile", "zlib",
))


class CtxError(Exception):
    """A `ctx` call that failed: `code` (one word), the sentence, `detail` (what there is all the same)."""

    def __init__(self, code, message, detail=None):
        Exception.__init__(self, message)
        self.code = code
        self.detail = detail

    def __str__(self):
        return "%s: %s" % (self.code, self.args[0])


def dumps(value):
    """JSON as the bridge speaks it. Raises ValueError or TypeError for what JSON cannot say."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def say(value, where):
    """`value` as JSON text; a TypeError names what JSON cannot say. The value is walked only if it can't be said."""
    try:
        text = dumps(value)
        text.encode("utf-8")  # lone surrogates
        return text
    except (TypeError, ValueError, RecursionError) as wrong:
        found = unsayable(value, where)
        raise TypeError("what JSON cannot say: %s" % (found or "%s (%s)" % (where, wrong))) from None


def unsayable(value, where):
    """A sentence that names the first thing in `value` that JSON cannot say, or None."""
    seen = []

    def look(item, place):
        kind = type(item)
        if item is None or isinstance(item, (bool, int)):
            return None
        if isinstance(item, str):
            try:
                item.encode("utf-8")
            except UnicodeEncodeError:
                return "a str with a lone surrogate at %s" % place
            return None
        if isinstance(item, float):
            return None if item == item and abs(item) != float("inf") else "float %r at %s" % (item, place)
        if not isinstance(item, (dict, list, tuple)):
            return "%s at %s" % (name_of(kind), place)
        if any(item is one for one in seen):
            return "a %s that contains itself at %s" % (name_of(kind), place)
        if len(seen) > 200:
            return "a %s nested too deep at %s" % (name_of(kind), place)
        seen.append(item)
        try:
            if isinstance(item, dict):
                for key, inner in item.items():
                    if not (key is None or isinstance(key, (str, int, float))):
                        return "a key of type %s at %s" % (name_of(type(key)), place)
                    found = look(key, place + " (a key)") or look(inner, "%s[%r]" % (place, key))
                    if found:
                        return found
            else:
                for index, inner in enumerate(item):
                    found = look(inner, "%s[%d]" % (place, index))
                    if found:
                        return found
        finally:
            seen.pop()
        return None

    return look(value, where)


def name_of(kind):
    module = getattr(kind, "__module__", None)
    name = getattr(kind, "__qualname__", None) or getattr(kind, "__name__", "?")
    return name if module in (None, "builtins", "__main__", "agent") else "%s.%s" % (module, name)


# ---- memory ---------------------------------------------------------------------------------

def is_plain(value, depth=0):
    """Whether `value` comes back equal and of the same types from JSON."""
    kind = type(value)
    if value is None or kind is bool or kind is int:
        return True
    if kind is str:
        try:
            value.encode("utf-8")
            return True
        except UnicodeEncodeError:
            return False
    if kind is float:
        return value == value and abs(value) != float("inf")
    if depth > 48:  # the node refuses lines nested over 64, and the envelope takes some
        return False
    if kind is list:
        return all(is_plain(item, depth + 1) for item in value)
    if kind is dict:
        return all(type(key) is str and is_plain(key) and is_plain(item, depth + 1) for key, item in value.items())
    return False


class Memory:
    """What an agent's instance remembers, and whether the node has it already."""

    def __init__(self, instance):
        self.instance = instance
        self.sent = None
        self.named = set()

    def restore(self, memory):
        if memory is None:
            return
        set_state = getattr(self.instance, "set_state", None)
        if callable(set_state):
            set_state(memory)
        elif isinstance(memory, dict):
            for name, value in memory.items():
                setattr(self.instance, name, value)
        else:
            print("memory of type %s has no set_state() to go to and stays unused" % type(memory).__name__, file=sys.stderr)
            return
        self.sent = self.text()

    def text(self):
        """The memory as JSON text; attributes that cannot travel stay behind."""
        get_state = getattr(self.instance, "get_state", None)
        if callable(get_state):
            return say(get_state(), "get_state()")
        kept = {}
        for name, value in attributes(self.instance):
            try:
                if is_plain(name) and is_plain(value):
                    kept[name] = value
                    continue
            except (RecursionError, RuntimeError):
                pass
            self.left_behind(name, value)
        return dumps(kept)

    left = ()

    def left_behind(self, name, value):
        if name not in self.named:
            self.named.add(name)
            self.left += (safe_text("%s (%s)" % (name, name_of(type(value)))),)

    def news(self):
        """Frame members after a hook: `memory` if it changed, `left` if something new stays behind, `stale` if it can't be taken."""
        members = ""
        try:
            text = self.text()
            if text != self.sent:
                members = ',"memory":' + text
                self.sent = text
        except Exception as wrong:  # the hook's own answer must still leave
            told = describe(wrong)
            print("the agent's memory could not be taken: %s" % told["text"], file=sys.stderr)
            members = ',"stale":' + dumps("%s: %s" % (told["type"], told["text"]))
        if self.left:
            members += ',"left":' + dumps(list(self.left))
            self.left = ()
        return members


def attributes(instance):
    """Names and values, those in `__slots__` too."""
    # A copy: a thread of the agent's may add attributes meanwhile.
    found = list(getattr(instance, "__dict__", {}).items())
    for kind in type(instance).__mro__:
        if "__slots__" in vars(kind):
            for name, member in vars(kind).items():
                if isinstance(member, types.MemberDescriptorType) and hasattr(instance, name):
                    found.append((name, getattr(instance, name)))
    return found


# ---- the bridge -----------------------------------------------------------------------------

class Call:
    """One `ctx` call under way. `future` is set where an event loop waits for it."""

    __slots__ = ("number", "done", "result", "error", "future", "convert", "name", "awaited")

    def __init__(self, number, name, convert):
        self.number = number
        self.name = name
        self.done = False
        self.result = None
        self.error = None
        self.future = None
        self.convert = convert
        self.awaited = False

    def finish(self, frame):
        error = frame.get("error")
        if error is None:
            self.result = frame.get("result")
            if self.convert is not None:
                self.result = self.convert(self.result)
        else:
            self.error = CtxError(error.get("code", "internal"), error.get("message", ""), error.get("detail"))
        self.done = True

    def value(self):
        self.awaited = True
        if self.error is not None:
            raise self.error
        return self.result


class Bridge:
    """The line to the node. Whoever waits while nobody reads, reads, and hands on what is others'."""

    def __init__(self, sock):
        self.sock = sock
        self.buffer = bytearray()
        self.searched = 0
        self.lines = []
        self.inbox = []
        self.calls = {}
        self.last_call = 0
        self.reading = False
        self.loop = None
        self.loop_thread = None
        self.owner = os.getpid()
        self.turn = threading.Condition()
        self.send_lock = threading.Lock()
        # Until the load: descriptors that come with orders are kept.
        self.fds = []

    def send(self, text):
        data = memoryview(text.encode("utf-8") + b"\n")
        with self.send_lock:
            while len(data):
                try:
                    data = data[self.sock.send(data, socket.MSG_DONTWAIT):]
                except BlockingIOError:
                    self.make_room()

    def make_room(self):
        """Waits until more can be sent, and reads meanwhile, or two full sockets would wait for each other."""
        with self.turn:
            # A loop that is attached may itself be waiting for `send_lock`; a thread that reads, reads.
            ours = self.loop is not None or not self.reading
        poll = select.poll()
        poll.register(self.sock, select.POLLOUT | (select.POLLIN if ours else 0))
        ready = poll.poll(None if ours else 20)  # the thread that reads may stop doing so
        if ours and ready and ready[0][1] & ~select.POLLOUT:
            with self.turn:
                if self.loop is not None or not self.reading:
                    self.take()

    def start(self, name, args, hook, extra="", convert=None):
        """Sends a call; `args` is JSON text already."""
        with self.turn:
            self.last_call += 1
            call = Call(self.last_call, name, convert)
            self.calls[call.number] = call
        try:
            self.send('{"call":%d,"hook":%s,"name":%s,"args":%s%s}' % (
                call.number, "null" if hook is None else hook, dumps(name), args, extra))
        except BaseException:
            with self.turn:
                self.calls.pop(call.number, None)
            raise
        return call

    def receive(self, flags=0):
        """Reads once; whole lines go to `lines`. The end of the node is the end of this process."""
        try:
            data = self.sock.recv(RECV_BYTES, flags) if self.fds is None else self.receive_fds(flags)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            os._exit(0)
        self.buffer += data
        while True:
            end = self.buffer.find(b"\n", self.searched)
            if end < 0:
                self.searched = len(self.buffer)
                return
            self.lines.append(bytes(self.buffer[:end]))
            del self.buffer[:end + 1]
            self.searched = 0

    def receive_fds(self, flags):
        data, ancillary, _, _ = self.sock.recvmsg(RECV_BYTES, socket.CMSG_SPACE(16), flags)
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                for start in range(0, len(payload) - 3, 4):
                    self.fds.append(int.from_bytes(payload[start:start + 4], sys.byteorder))
        return data

    def dispatch(self):
        """Hands on the lines read so far. Called with `turn` held."""
        for line in self.lines:
            frame = json.loads(line.decode("utf-8"))
            if "reply" in frame:
                call = self.calls.pop(frame["reply"], None)
                if call is None:
                    continue
                call.finish(frame)
                if call.future is not None:
                    self.wake(call.future)
            else:
                self.inbox.append(frame)
        del self.lines[:]

    def wake(self, future):
        if self.loop is None or threading.get_ident() == self.loop_thread:
            settle(future)
        else:
            self.loop.call_soon_threadsafe(settle, future)

    def take(self):
        """Reads what is there and hands it on. Called with `turn` held."""
        self.receive(socket.MSG_DONTWAIT)
        self.dispatch()
        self.turn.notify_all()

    def until(self, ready):
        """Blocks until `ready()` is true, reading when nobody else does."""
        with self.turn:
            while not ready():
                if self.reading:
                    self.turn.wait()
                    continue
                self.reading = True
                self.turn.release()
                try:
                    self.receive()
                finally:
                    self.turn.acquire()
                    self.reading = False
                    self.dispatch()
                    self.turn.notify_all()

    def wait(self, call):
        self.until(lambda: call.done)
        return call.value()

    def next_frame(self):
        self.until(lambda: self.inbox)
        with self.turn:
            return self.inbox.pop(0)

    def attach(self, loop):
        """Lets an event loop be the reader for as long as it runs."""
        with self.turn:
            while self.reading:
                self.turn.wait()
            self.reading = True
            self.loop, self.loop_thread = loop, threading.get_ident()
            for call in self.calls.values():
                call.future = None
        loop.add_reader(self.sock.fileno(), self.readable)

    def readable(self):
        with self.turn:
            self.take()

    def detach(self, loop):
        loop.remove_reader(self.sock.fileno())
        with self.turn:
            self.reading = False
            self.loop = None
            self.turn.notify_all()


def settle(future):
    if not future.done():
        future.set_result(None)


class Pending(collections.abc.Coroutine):
    """What a `ctx` method returns in an `async def` hook: the call is under way already.

    A coroutine to `asyncio` (create_task, gather, wait_for take it), and, where no loop runs, an
    awaitable that waits inside `__await__` and never yields.
    """

    def __init__(self, bridge, call, loop):
        self.bridge = bridge
        self.call = call
        self.loop = loop
        self.inner = None
        if loop is not None:
            with bridge.turn:
                call.future = loop.create_future()
                if call.done:
                    call.future.set_result(None)

    def __await__(self):
        if self.loop is None:
            self.bridge.until(lambda: self.call.done)
        else:
            # Shielded by being shared: a cancelled waiter does not cancel the call.
            while not self.call.done:
                waiter = self.call.future
                if waiter.cancelled():
                    with self.bridge.turn:
                        if not self.call.done:
                            self.call.future = waiter = self.loop.create_future()
                if not self.call.done:
                    yield from waiter
        return self.call.value()

    def send(self, value):
        if self.inner is None:
            self.inner = self.__await__()
        return self.inner.send(value)

    def throw(self, kind, value=None, traceback=None):
        if self.inner is None:
            self.inner = self.__await__()
        if value is None and isinstance(kind, BaseException):
            return self.inner.throw(kind)
        if value is None:
            value = kind()
        return self.inner.throw(value if traceback is None else value.with_traceback(traceback))

    def close(self):
        if self.inner is not None:
            self.inner.close()


# ---- ctx ------------------------------------------------------------------------------------

class Context:
    """What an agent's hook is given. Blocking in a plain hook, awaitable in an `async def` hook."""

    def __init__(self, worker, facts):
        self._worker = worker
        self._bridge = worker.bridge
        self._hook = None
        self._loop = None
        self._async = False
        self._thread = None
        self._open = []
        self._state_dir = facts.get("state_dir")
        self.agent_id = facts["agent_id"]
        self.container_name = facts.get("container_name")
        self._trace = facts.get("trace")
        self._trace_denied = facts.get("trace_denied")

    @property
    def trace(self):
        """The hops behind the agent, oldest first."""
        if self._trace_denied:
            raise CtxError("forbidden", self._trace_denied)
        return self._trace

    def _call(self, name, args, extra="", convert=None):
        try:
            text = say(args, name)
        except TypeError as wrong:
            raise CtxError("bad_payload", "an argument is %s" % wrong) from None
        if os.getpid() != self._bridge.owner:
            raise CtxError("forbidden", "ctx is the agent's own; a process that it forked has none")
        call = self._bridge.start(name, text, self._hook, extra, convert)
        # In an async hook only the hook's own thread gets awaitables: a helper thread has no loop.
        if self._async and threading.current_thread() is self._thread:
            pending = Pending(self._bridge, call, self._loop)
            self._open.append(call)
            return pending
        return self._bridge.wait(call)

    def log(self, message, **fields):
        """A line in the node's log."""
        return self._call("log", {"message": str(message), "fields": {
            name: value if is_plain(value) else str(value) for name, value in fields.items()}})

    def mark(self, note):
        """Adds a note to this hop of the trace that clones and moves take along."""
        return self._call("mark", {"note": note})

    def networks(self):
        """This node's place in the tree: {"name", "host", "port", "children": [...]}."""
        return self._call("networks", {})

    def capabilities(self):
        """The names of the calls that this agent may make, sorted."""
        return self._call("capabilities", {})

    def resources(self):
        """The container, its data_root and the first files below it."""
        return self._call("resources", {})

    def stage(self):
        """Where the agent was sent from, {"name", "host", "port"}, or None."""
        return self._call("stage", {})

    def state_dir(self):
        """The path of the agent's own directory; what is in it travels along."""
        return self._call("state_dir", {})

    def prompt(self):
        """The operator's prompt for agents on this node, or None."""
        return self._call("prompt", {})

    def read_file(self, path, binary=False):
        """The text of a file below data_root (with binary=True: its bytes)."""
        return self._call("read_file", {"path": path_text(path), "binary": bool(binary)},
                          convert=from_base64 if binary else None)

    def search_files(self, query, path=".", limit=100, details=False):
        """Files that contain `query`, any case: [{"path", "preview", "line", "count"}]."""
        return self._call("search_files", {"query": query, "path": path_text(path), "limit": limit},
                          convert=None if details else hits_only)

    def run(self, command, timeout=10):
        """Runs a command, an argument list: {"returncode", "stdout", "stderr", ...}."""
        if isinstance(command, tuple):
            command = list(command)
        return self._call("run", {"command": command, "timeout": timeout})

    def http_request(self, method, url, body=None, headers=None, timeout=20):
        """An HTTP request: {"status", "headers", "body", "url"}, whatever the status."""
        args = {"method": method, "url": url, "headers": dict(headers or {}), "timeout": timeout}
        if isinstance(body, (dict, list)):
            args["body"] = dumps(body)
            if not any(name.lower() == "content-type" for name in args["headers"]):
                args["headers"]["Content-Type"] = "application/json"
        elif isinstance(body, (bytes, bytearray)):
            args["body_base64"] = to_base64(body)
        elif body is not None:
            args["body"] = body
        return self._call("http_request", args)

    def attenuate(self, grants=None, scopes=None, nodes=None, ttl=None):
        """A capability token that says no more than `grants`, for `nodes`, for `ttl` seconds, made from the agent's
        own, for a clone: `clone(destination, token=...)`. What is left out stays as it is; nothing can be added."""
        if isinstance(grants, str) or isinstance(nodes, str):
            raise CtxError("bad_payload", "grants and nodes are lists of names")
        return self._call("attenuate", {
            "grants": None if grants is None else list(grants), "scopes": scopes,
            "nodes": None if nodes is None else list(nodes), "ttl": ttl})

    def clone(self, destination, payload=None, timeout=None, queue=False, token=None):
        """A copy of this agent, activated at `destination`; the destination's whole answer.

        With `queue`, a destination that can't be reached is no error: the node tries again until it is.
        With `token`, one that `attenuate` made, the copy has that one.
        """
        return self._travel("clone", destination, payload, timeout, queue, token)

    def move(self, destination, payload=None, timeout=None, queue=False, token=None):
        """This agent itself goes to `destination`; the destination's whole answer. `queue`, `token`: as `clone`."""
        return self._travel("move", destination, payload, timeout, queue, token)

    def return_to_stage(self, payload=None, timeout=None, queue=False):
        """Moves home to where the agent was sent from. `queue`: as `clone`."""
        return self._travel("return_to_stage", None, payload, timeout, queue)

    def _travel(self, name, destination, payload, timeout, queue, token=None):
        args = {"payload": {} if payload is None else payload, "queue": bool(queue)}
        if destination is not None:
            args["destination"] = destination
        if timeout is not None:
            args["timeout"] = timeout
        if token is not None:
            args["token"] = token
        memory = self._worker.memory
        text = memory.text()
        if name != "clone":
            memory.sent = None  # the node may keep this one; whatever the hook leaves counts again
        return self._call(name, args, ',"memory":' + text)

    def wake(self, sender, message):
        """Puts a message into this agent's own inbox; on_message gets it later."""
        return self._call("wake", {"from": sender, "message": message})

    def send(self, agent_id, message):
        """Leaves a message for another agent on this node; its on_message gets {"from", "message"} later."""
        return self._call("send", {"agent_id": agent_id, "message": message})

    # What follows is the node's to grant; the scheduling requests are the manager's alone.

    def agent_status(self, agent_id=None):
        """An agent here, and whether what runs is what its config/ says; without an id: all of them."""
        return self._call("agent_status", {"agent_id": agent_id})

    def deploy_log(self, limit=50):
        """The latest deployments, arrivals, departures and removals on this node, oldest first."""
        return self._call("deploy_log", {"limit": limit})

    def agent_files(self, agent_id):
        """Another agent's files: [{"path": "state/...", "size"}], those in config/ too. Takes ManageRootAgent."""
        return self._call("agent_files", {"agent_id": agent_id})

    def read_agent_file(self, agent_id, path, binary=False):
        """The text (with binary=True: the bytes) of another agent's file, "state/..." or "config/..."."""
        return self._call("read_agent_file",
                          {"agent_id": agent_id, "path": path_text(path), "binary": bool(binary)},
                          convert=from_base64 if binary else None)

    def write_agent_file(self, agent_id, path, content):
        """Writes another agent's file, "state/...", whole: text, or bytes."""
        args = {"agent_id": agent_id, "path": path_text(path)}
        if isinstance(content, (bytes, bytearray)):
            args["body_base64"] = to_base64(content)
        else:
            args["body"] = content
        return self._call("write_agent_file", args)

    def request_schedule_prompt(self, agent_id, message, at=None, every=None, daily=None, catch_up=False, id=None):
        """Has an agent here given a message at a time (Unix seconds), every so many seconds, or daily at "HH:MM"."""
        return self._call("request_schedule_prompt", {
            "agent_id": agent_id, "message": message, "at": at, "every": every, "daily": daily,
            "catch_up": bool(catch_up), "id": id})

    def edit_schedule(self, id, **changes):
        """Changes agent_id, message, at, every, daily or catch_up of a schedule."""
        changes["id"] = id
        return self._call("edit_schedule", changes)

    def cancel_schedule(self, id):
        """Takes a schedule away; a delivery under way goes on."""
        return self._call("cancel_schedule", {"id": id})

    def fire_schedule_now(self, id):
        """One delivery at once; when the schedule is due next stays."""
        return self._call("fire_schedule_now", {"id": id})


def path_text(path):
    return path if isinstance(path, str) else os.fspath(path)


def from_base64(text):
    import base64
    return base64.b64decode(text)


def to_base64(data):
    import base64
    return base64.b64encode(data).decode("ascii")


def hits_only(found):
    return found["hits"]


# ---- errors ---------------------------------------------------------------------------------

def describe(wrong):
    """An exception as {"type", "text", "traceback"}: the lines that are the agent's own."""
    import traceback
    try:
        text = str(wrong)
    except Exception as worse:
        text = "(its text could not be made: %s)" % type(worse).__name__
    lines = []
    try:
        frames = traceback.extract_tb(wrong.__traceback__)
        for frame in frames:
            if frame.filename == AGENT_FILE:
                lines.append("%s:%d, in %s: %s" % (AGENT_FILE, frame.lineno, frame.name, (frame.line or "").strip()))
        if isinstance(wrong, SyntaxError) and wrong.filename == AGENT_FILE:
            lines.append("%s:%s: %s" % (AGENT_FILE, wrong.lineno, (wrong.text or "").strip()))
    except Exception:
        pass
    if len(lines) > TRACEBACK_LINES:
        half = TRACEBACK_LINES // 2
        lines = lines[:half] + ["... %d more ..." % (len(lines) - 2 * half)] + lines[-half:]
    clean = [safe_text(line) for line in lines]
    return {"type": name_of(type(wrong)), "text": safe_text(text), "traceback": clean}


def safe_text(text):
    return text[:TEXT_LIMIT].encode("utf-8", "backslashreplace").decode("utf-8")


def print_exception(wrong):
    import traceback
    try:
        # From the agent's first line on: what is ours above it tells nobody anything.
        trace = wrong.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == OWN_FILE:
            trace = trace.tb_next
        traceback.print_exception(type(wrong), wrong, trace)
    except Exception:
        pass


# ---- one agent ------------------------------------------------------------------------------

class Refusal(Exception):
    """The source is not an agent that this node can run."""


def check_manifest(tree, facts):
    """The syntax tree must say what the node's scanner read, once, at the top level."""
    import ast
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name in MANIFEST and name not in found:
                try:
                    found[name] = ast.literal_eval(node.value)
                except (ValueError, TypeError, MemoryError, RecursionError):
                    raise Refusal("%s is not one plain literal" % name)
    bound = {}
    for node in ast.walk(tree):
        name = None
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            name = node.id
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            name = node.name
        elif isinstance(node, ast.alias):
            name = node.asname or node.name.split(".")[0]
        elif isinstance(node, ast.ExceptHandler):
            name = node.name
        if name in MANIFEST:
            bound[name] = bound.get(name, 0) + 1
    for name in MANIFEST:
        if bound.get(name, 0) > 1:
            raise Refusal("%s is bound more than once in the source" % name)
        if found.get(name) != facts.get(name):
            raise Refusal("the node's scanner and the syntax tree disagree about %s" % name)


def source_lines(source):
    """As Python counts them: `splitlines` ends lines at form feeds and other marks, too."""
    return [line + "\n" for line in source.replace("\r\n", "\n").replace("\r", "\n").split("\n")]


def wants_loop(tree):
    import ast
    for node in ast.walk(tree):
        names = ()
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            if name.split(".")[0] not in LOOPLESS:
                return True
    return False


class Worker:
    """One process, one agent: loads it, then runs its hooks one at a time."""

    def __init__(self, bridge):
        self.bridge = bridge
        self.instance = None
        self.memory = None
        self.ctx = None
        self.wants_loop = False
        self.loop = None

    def load(self, facts):
        import ast
        import linecache
        source = facts["source"]
        if source.startswith("\ufeff"):  # what some editors put before UTF-8
            source = source[1:]
        tree = compile(source, AGENT_FILE, "exec", ast.PyCF_ONLY_AST, True)
        check_manifest(tree, facts["manifest"])
        self.wants_loop = wants_loop(tree)
        code = compile(tree, AGENT_FILE, "exec", 0, True)
        module = types.ModuleType("agent")
        module.__file__ = AGENT_FILE
        sys.modules["agent"] = module
        linecache.cache[AGENT_FILE] = (len(source), None, source_lines(source), AGENT_FILE)
        if facts.get("state_dir"):
            os.environ["AGENTCONTAINER_STATE_DIR"] = os.environ["TMPDIR"] = facts["state_dir"]
        if self.wants_loop:
            import asyncio
            self.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self.loop)
        exec(code, module.__dict__)
        for name in MANIFEST:
            if getattr(module, name, None) != facts["manifest"].get(name):
                raise Refusal("%s has another value once the source has run" % name)
        kind = getattr(module, "Agent", None)
        if not isinstance(kind, type):
            raise Refusal("the source defines no class Agent")
        self.instance = kind()
        self.memory = Memory(self.instance)
        self.ctx = Context(self, facts)
        self.memory.restore(facts.get("memory"))

    def hook(self, frame):
        """Runs one hook and returns the frame that answers it."""
        number, name = frame["hook"], frame["name"]
        function = getattr(self.instance, name, None)
        try:
            if function is None:
                if name != "on_message":
                    return '{"done":%d,"result":null%s}' % (number, self.memory.news())
                raise Refusal("the agent has no on_message hook")
            ctx = self.ctx
            ctx._hook, ctx._open, ctx._thread = number, [], threading.current_thread()
            try:
                result = self.run(function, frame.get("payload"))
            finally:
                ctx._hook = None
                ctx._async = False
                ctx._loop = None
            text = say(result, name + "()")
        except SystemExit:
            raise
        except BaseException as wrong:
            print_exception(wrong)
            return '{"failed":%d,"error":%s%s}' % (number, dumps(describe(wrong)), self.memory.news())
        return '{"done":%d,"result":%s%s}' % (number, text, self.memory.news())

    def run(self, function, payload):
        import inspect
        ctx = self.ctx
        if not inspect.iscoroutinefunction(function):
            result = function(ctx, payload)
            if inspect.isgenerator(result) or inspect.isasyncgen(result):
                raise TypeError("the hook yields; it must return its answer, once")
            if not inspect.iscoroutine(result):
                return result
            coroutine = result  # an `async def` behind a decorator: not begun yet
        else:
            coroutine = None
        ctx._async = True
        if self.wants_loop:
            return self.run_in_loop(function, payload, coroutine)
        coroutine = coroutine or function(ctx, payload)
        try:
            try:
                coroutine.send(None)
            except StopIteration as end:
                return end.value
            raise RuntimeError("the hook awaited something that needs an event loop: import asyncio in the agent's source")
        finally:
            coroutine.close()
            for call in ctx._open:
                self.bridge.until(lambda: call.done)
                tell_unawaited(call)

    def run_in_loop(self, function, payload, coroutine):
        import asyncio
        loop, ctx = self.loop, self.ctx
        if loop.is_closed() or not is_sound(loop):
            loop = self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        ctx._loop = loop

        async def whole():
            try:
                return await (coroutine or function(ctx, payload))
            finally:
                for call in list(ctx._open):
                    while not call.done:
                        with self.bridge.turn:
                            if not call.done and (call.future is None or call.future.done()):
                                call.future = loop.create_future()
                        if not call.done:
                            await asyncio.wait([call.future])
                    tell_unawaited(call)

        self.bridge.attach(loop)
        try:
            return loop.run_until_complete(whole())
        finally:
            try:
                # As asyncio.run does: what the hook left running ends with it.
                all_tasks = getattr(asyncio, "all_tasks", None)
                tasks = all_tasks(loop) if all_tasks else {t for t in asyncio.Task.all_tasks(loop) if not t.done()}
                for task in tasks:
                    task.cancel()
                if tasks:
                    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
                loop.run_until_complete(loop.shutdown_asyncgens())
            finally:
                self.bridge.detach(loop)

    def serve(self):
        while True:
            frame = self.bridge.next_frame()
            if "seal" in frame:
                answer = self.seal(frame["seal"])
                if answer is None:
                    continue
            elif "load" in frame:
                answer = self.try_load(frame["load"])
            elif "hook" in frame:
                answer = self.hook(frame)
            else:
                continue
            if os.getpid() != self.bridge.owner:
                leave(0)  # forked in the hook; the answer is its parent's
            flush()
            self.bridge.send(answer)

    def seal(self, order):
        """Gives up what the agent is not granted; returns a refusal where that can't be done."""
        try:
            seal(order, self.bridge.fds)
            self.bridge.fds = None
        except BaseException as wrong:
            self.unsealed = True
            return '{"refused":%s}' % dumps(describe(wrong))

    unsealed = False

    def try_load(self, facts):
        if self.unsealed:
            os._exit(71)
        self.bridge.fds = None
        try:
            self.load(facts)
            return '{"loaded":true%s}' % self.memory.news()
        except SystemExit:
            raise
        except BaseException as wrong:
            print_exception(wrong)
            return '{"refused":%s}' % dumps(describe(wrong))


def is_sound(loop):
    """Whether the loop's own descriptors are still there: an agent may have closed what it did not open."""
    try:
        os.fstat(loop._selector.fileno())
        os.fstat(loop._ssock.fileno())
        os.fstat(loop._csock.fileno())
        return True
    except (OSError, ValueError):
        return False
    except AttributeError:  # another kind of loop
        return True


def tell_unawaited(call):
    if call.error is not None and not call.awaited:
        print("ctx.%s() was not awaited and failed: %s" % (call.name, call.error), file=sys.stderr)


def flush():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass


# ---- a parked worker ------------------------------------------------------------------------

DRY_AGENT = '''AGENT_ID = "dry"
AGENT_SECRET = "dry"
class Agent:
    def __init__(self):
        self.seen = [1, 2.5, "three", None, {"four": True}]
    def on_activate(self, ctx, payload):
        return {"seen": self.seen, "payload": payload}
    async def on_message(self, ctx, message):
        return message
'''


class DryBridge(Bridge):
    """Stands in for the bridge during the dry run."""

    def send(self, text):
        text.encode("utf-8")


def dry_run():
    """Walks once through what a first deployment walks through: its pages are then this process's own."""
    manifest = {"AGENT_ID": "dry", "AGENT_SECRET": "dry"}
    load = {"load": {"source": DRY_AGENT, "manifest": manifest, "agent_id": "dry", "memory": {"seen": []}, "trace": []}}
    worker = Worker(DryBridge(None))
    worker.bridge.lines.append(dumps(load).encode("utf-8"))
    with worker.bridge.turn:
        worker.bridge.dispatch()
    worker.try_load(worker.bridge.next_frame()["load"])
    worker.hook({"hook": 1, "name": "on_activate", "payload": {"a": 1}})
    worker.hook({"hook": 2, "name": "on_message", "payload": {"a": 1}})
    describe(ValueError("dry"))
    sys.modules.pop("agent", None)
    os.environ.pop("AGENTCONTAINER_STATE_DIR", None)


def prctl(option, value):
    """Best effort: a Python without ctypes goes on without."""
    try:
        import ctypes
        return ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0
    except Exception:
        return False


# ---- the seal -------------------------------------------------------------------------------

class SandboxError(Exception):
    """A step of the sandbox failed that this machine can do."""


PREPARED = {}
LANDLOCK_RESTRICT_SELF = 446
PR_SET_SECCOMP = 22
SECCOMP_MODE_FILTER = 2


def prepare_seal():
    """Makes ready what sealing needs, so that it costs two system calls."""
    if not (FILTERS and has_ctypes()):
        return
    import ctypes
    import struct
    libc = PREPARED["libc"] = ctypes.CDLL(None, use_errno=True)
    PREPARED["errno"] = ctypes.get_errno
    PREPARED["syscall"], PREPARED["prctl"] = libc.syscall, libc.prctl
    number = struct.pack("=I", os.getpid())
    for name, (program, places) in FILTERS.items():
        code = bytearray(program)
        for place in places:
            code[place * 8 + 4:place * 8 + 8] = number
        held = ctypes.create_string_buffer(bytes(code), len(code))
        head = struct.pack("@HP", len(code) // 8, ctypes.addressof(held))
        PREPARED[name] = (ctypes.create_string_buffer(head, len(head)), held)
    PREPARED["pointer"] = ctypes.c_void_p
    PREPARED["address"] = ctypes.addressof


def has_ctypes():
    return bool(SANDBOX.get("ctypes")) and "ctypes" in sys.modules


def seal(order, fds):
    if order["landlock"]:
        fd = fds.pop()
        if PREPARED["syscall"](LANDLOCK_RESTRICT_SELF, fd, 0):
            raise SandboxError("Landlock: %s" % os.strerror(PREPARED["errno"]()))
        os.close(fd)
    if order["filter"] is not None:
        pointer = PREPARED["pointer"](PREPARED["address"](PREPARED[order["filter"]][0]))
        if PREPARED["prctl"](PR_SET_SECCOMP, SECCOMP_MODE_FILTER, pointer, 0, 0):
            raise SandboxError("seccomp: %s" % os.strerror(PREPARED["errno"]()))


def library():
    """Where this interpreter's own files are; agents read there."""
    places = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix, os.path.dirname(os.__file__)}
    places.update(place for place in sys.path if os.path.isabs(place))
    return sorted(place for place in places if os.path.exists(place))


PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def become_worker(slot, bridge_fd, log_fd, zygote_pid, limits):
    import fcntl
    import io
    import random
    import signal
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    # What the agent starts and detaches stays below it for as long as it lives, and comes to the zygote
    # when it ends: nothing of it goes astray.
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != zygote_pid:
        os._exit(0)
    os.dup2(log_fd, 1)
    os.dup2(log_fd, 2)
    os.close(log_fd)
    try:
        high = fcntl.fcntl(bridge_fd, fcntl.F_DUPFD_CLOEXEC, BRIDGE_FD_FLOOR)
        os.close(bridge_fd)
        bridge_fd = high
    except OSError:
        os.set_inheritable(bridge_fd, False)
    apply_limits(limits)
    random.seed()
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8")
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = io.TextIOWrapper(io.BufferedWriter(io.FileIO(number, "w", closefd=False)), encoding="utf-8",
                                  errors="backslashreplace", line_buffering=True)
        setattr(sys, name, stream)
        setattr(sys, "__%s__" % name, stream)
    prepare_seal()
    dry_run()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, bridge_fd)
    bridge = Bridge(sock)
    bridge.send('{"hello":%d}' % slot)
    try:
        Worker(bridge).serve()
    except SystemExit as end:
        leave(end.code)
    except BrokenPipeError:
        leave(0)


def leave(code):
    """sys.exit() in a hook ends the process as it would end a script."""
    if code is None:
        status = 0
    elif isinstance(code, int):
        status = code & 0xFF
    else:
        print(code, file=sys.stderr)
        status = 1
    flush()
    os._exit(status)


def apply_limits(limits):
    import resource
    for name, value in limits.items():
        if name == "nproc" and not SANDBOX.get("namespace"):
            continue  # it would count what else this user runs
        number = getattr(resource, "RLIMIT_" + name.upper(), None)
        if number is None:
            continue
        hard = resource.getrlimit(number)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        try:
            resource.setrlimit(number, (value, value))
        except (ValueError, OSError) as wrong:
            print("limit %s=%s: %s" % (name, value, wrong), file=sys.stderr)


# ---- the zygote -----------------------------------------------------------------------------

def preload():
    """What agents commonly import. None of these starts a thread."""
    import ast  # noqa: F401
    import asyncio  # noqa: F401
    import base64  # noqa: F401
    import collections  # noqa: F401
    import datetime  # noqa: F401
    import fcntl  # noqa: F401
    import functools  # noqa: F401
    import hashlib  # noqa: F401
    import inspect  # noqa: F401
    import io  # noqa: F401
    import itertools  # noqa: F401
    import linecache  # noqa: F401
    import math  # noqa: F401
    import pathlib  # noqa: F401
    import random  # noqa: F401
    import re  # noqa: F401
    import resource  # noqa: F401
    import subprocess  # noqa: F401
    import tempfile  # noqa: F401
    import time  # noqa: F401
    import traceback  # noqa: F401
    import types  # noqa: F401
    import typing  # noqa: F401
    try:
        import ctypes  # noqa: F401
    except ImportError:
        pass


def zygote(control_fd):
    """Forks workers on demand and reports how they ended. Never runs agent code."""
    import array
    import gc
    import select
    import signal
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)  # numbers pass through as they are, whatever their length
    preload()
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, control_fd)
    wake_read, wake_write = socket.socketpair()
    wake_read.setblocking(False)
    wake_write.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write.fileno())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Sent by the kernel when the node dies. The end of the control socket says the same, and there
    # is still something to do then.
    signal.signal(signal.SIGTERM, lambda *_: None)
    me = os.getpid()
    slots = {}
    gc.collect()
    if hasattr(gc, "freeze"):
        gc.freeze()
    control.send(dumps({
        "ready": "%d.%d.%d" % sys.version_info[:3],
        "paths": library(),
        "ctypes": has_ctypes(),
        "missing": SANDBOX.get("missing", []),
    }).encode("utf-8"))
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(wake_read, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd == wake_read.fileno():
                try:
                    wake_read.recv(4096)
                except BlockingIOError:
                    pass
                reap(control, slots)
                continue
            fds = array.array("i")
            try:
                data, ancillary, _, _ = control.recvmsg(65536, socket.CMSG_SPACE(2 * fds.itemsize))
            except ConnectionError:
                data = b""
            if not data:
                sweep((), LAST_SWEEP_S)
                os._exit(0)
            for level, kind, payload in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    fds.frombytes(payload[:len(payload) - len(payload) % fds.itemsize])
            order = json.loads(data.decode("utf-8"))
            if "ping" in order:
                control.send(dumps({"pong": order["ping"]}).encode("ascii"))
                continue
            slot = order["spawn"]
            try:
                pid = os.fork()
            except OSError as wrong:
                control.send(dumps({"exit": slot, "status": -1, "why": str(wrong)}).encode("utf-8"))
                pid = -1
            if pid == 0:
                try:
                    control.close()
                    wake_read.close()
                    wake_write.close()
                    become_worker(slot, fds[0], fds[1], me, order.get("limits") or {})
                except BaseException as wrong:
                    print_exception(wrong)
                    flush()
                    os._exit(70)
                os._exit(0)
            if pid > 0:
                slots[pid] = slot
            for number in fds:
                os.close(number)


def reap(control, slots):
    """Reports every child that ended; what it left in its process group ends first."""
    import signal
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None:
            return
        pid = ended.si_pid
        slot = slots.pop(pid, None)
        if slot is not None:
            # Not reaped yet: the number still names this group and no other.
            try:
                os.killpg(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        _, status = os.waitpid(pid, 0)
        if slot is not None:
            sweep(slots, SWEEP_S)
            control.send(dumps({"exit": slot, "status": status}).encode("ascii"))


# How long what an agent left behind is hunted down, seconds: at its end, and at the node's.
SWEEP_S = 0.5
LAST_SWEEP_S = 5


def sweep(keep, seconds):
    """Ends every child that is not in `keep`, and all below them: what agents that ended had detached."""
    import signal
    import time
    me = os.getpid()
    deadline = time.monotonic() + seconds
    while True:
        strays = [pid for pid in children(me) if pid not in keep]
        if not strays or time.monotonic() > deadline:
            return
        below = list(strays)
        for pid in below:
            below.extend(children(pid))
        # Stopped first: what is stopped forks no more.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in below:
                try:
                    os.kill(pid, number)
                except (ProcessLookupError, PermissionError):
                    pass
        for pid in strays:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass
        time.sleep(0.001)


def children(pid):
    """The children of a process, from the kernel's lists, or, where it keeps none, from every process's parent."""
    found = []
    try:
        for thread in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, thread)) as file:
                found.extend(int(word) for word in file.read().split())
        return found
    except OSError:
        pass
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return found
    for name in names:
        try:
            with open("/proc/%s/stat" % name, "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if parent == pid:
            found.append(int(name))
    return found
