#!/usr/bin/env python3
"""Kills nodes while agents move between them, and counts what was lost.

    tools/crash.py [--kills N] [--seed S] [--pairs N] [BINARY]

Pairs of nodes of the debug binary (only that one has named places to be killed at), a proxy in each direction
that cuts, delays, half-delivers and holds requests back, and one agent a pair that counts in its memory. Every
message has an id; the agent notes in its memory and in a file which it has acted on. At the end the links are
honest, all nodes run, and nothing may be lost, doubled, acted on twice, or older than what was acknowledged.
Prints these four numbers; status 1 if one is not 0 (the state directories are kept then).
"""

import argparse
import collections
import hashlib
import hmac
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

SECRET = "the crash test's admin secret"
AGENT = '''AGENT_ID = "{id}"
AGENT_SECRET = "secret of {id}"
import os
class Agent:
    def __init__(self):
        self.acted = []
        self.activated = []
        self.resumed = 0
    def note(self, ctx, kind, word):
        with open(os.path.join(ctx.state_dir(), "acted.txt"), "a") as file:
            file.write(kind + " " + word + "\\n")
    def on_activate(self, ctx, payload):
        self.activated.append(payload["id"])
        self.note(ctx, "activated", payload["id"])
        if payload.get("back"):
            return ctx.move(payload["back"], {{"id": payload["id"] + "-back"}}, queue=payload.get("queue", False))
    def on_resume(self, ctx, payload):
        self.resumed += 1
    def on_message(self, ctx, message):
        if "show" in message:
            with open(os.path.join(ctx.state_dir(), "acted.txt")) as file:
                lines = file.read().splitlines()
            return {{"acted": self.acted, "activated": self.activated, "resumed": self.resumed, "lines": lines}}
        self.acted.append(message["id"])
        self.note(ctx, "acted", message["id"])
        if "go" in message:
            return ctx.move(message["go"], message["payload"], queue=message.get("queue", False))
        return len(self.acted)
'''
# Where a node can be told to end itself; see src/crash.rs.
PLACES = """activated agent-restored answer-received arrival-committed arrival-current arrival-prepared attempt-begun
cancel-answered departing done-recorded durable-file-renamed durable-file-unfinished entry-forgotten file-
unfinished files-laid-out files-removed first-memory-written forget-answered generation-removed hook-begins
hook-ended loading memory-kept memory-settled message-noted older-over outbox-restored outbox-written outcome-
recorded record-removed record-settled record-uncommitted refusal-received refusal-recorded restored restoring
resume-noted resuming source-written superseded""".split()


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def signed(kind, payload):
    message = {"type": kind, "sender": "admin", "timestamp": int(time.time()), "nonce": os.urandom(8).hex(), "payload": payload}
    message["signature"] = hmac.new(SECRET.encode(), canonical(message).encode(), hashlib.sha256).hexdigest()
    return (json.dumps(message) + "\n").encode()


def exchange(port, line, limit):
    """One line and its answer; None if none came."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=limit) as peer:
            peer.sendall(line)
            answer = b""
            while not answer.endswith(b"\n"):
                more = peer.recv(65536)
                if not more:
                    return None
                answer += more
            return json.loads(answer.decode())
    except (OSError, ValueError):
        return None


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Proxy:
    """A link that can't be relied upon, until `honest`."""

    def __init__(self, target, chance):
        self.target, self.chance, self.honest = target, chance, False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.done = collections.Counter()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        try:
            self.pass_on(client)
        except OSError:
            pass
        finally:
            client.close()

    def pass_on(self, client):
        what = "honest" if self.honest else self.chance.choices(
            ["honest", "refuse", "half a request", "half an answer", "no answer", "late", "held back"], [60, 5, 8, 8, 8, 6, 5])[0]
        self.done[what] += 1
        if what == "refuse":
            return
        request = b""
        while not request.endswith(b"\n"):
            more = client.recv(65536)
            if not more:
                return
            request += more
        if what == "held back":
            # Whoever asked is told nothing; what was asked comes all the same, later.
            client.close()
            time.sleep(self.chance.uniform(0.2, 4))
            exchange(self.target, request, 10)
            return
        if what == "late":
            time.sleep(self.chance.uniform(0.05, 1))
        with socket.create_connection(("127.0.0.1", self.target), timeout=20) as peer:
            if what == "half a request":
                peer.sendall(request[: self.chance.randrange(len(request))])
                return
            peer.sendall(request)
            answer = b""
            while not answer.endswith(b"\n"):
                more = peer.recv(65536)
                if not more:
                    break
                answer += more
            if what == "no answer":
                return
            client.sendall(answer[: self.chance.randrange(len(answer) or 1)] if what == "half an answer" else answer)


class Node:
    def __init__(self, binary, folder, name):
        self.binary, self.name = binary, name
        self.port = free_port()
        self.state = os.path.join(folder, name)
        self.config = os.path.join(folder, name + ".json")
        self.log = open(os.path.join(folder, name + ".log"), "ab")
        self.process = None
        self.turn = threading.Lock()

    def configure(self, other, link):
        tree = {"name": self.name, "host": "127.0.0.1", "port": self.port, "children": [{"name": other, "host": "127.0.0.1", "port": link}]}
        with open(self.config, "w") as file:
            json.dump({"container_name": self.name, "listen_port": self.port, "admin_secret": SECRET, "state_dir": self.state,
                       "federation": tree, "parked_workers": 1, "hook_timeout_s": 15}, file)

    def start(self, place=None):
        environment = dict(os.environ)
        environment.pop("AGENTCONTAINER_CRASH_AT", None)
        if place:
            environment["AGENTCONTAINER_CRASH_AT"] = place
        self.process = subprocess.Popen([self.binary, "server", "--config", self.config], stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log, env=environment)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def ask(self, kind, payload, limit=10):
        answer = exchange(self.port, signed(kind, payload), limit)
        return answer.get("result") if answer and answer.get("status") == "ok" else None

    def agents(self):
        listed = self.ask("list_agents", {})
        return None if listed is None else {agent["agent_id"]: agent["status"] for agent in listed}


class Pair:
    """Two nodes, their links, one agent, and whoever talks to it."""

    def __init__(self, binary, folder, number, seed):
        self.chance = random.Random("%s driver %d" % (seed, number))
        self.agent = "counter-%d" % number
        self.nodes = [Node(binary, folder, "n%d%s" % (number, side)) for side in "ab"]
        self.links = [Proxy(self.nodes[1 - side].port, random.Random("%s link %d %d" % (seed, number, side))) for side in (0, 1)]
        for side in (0, 1):
            self.nodes[side].configure(self.nodes[1 - side].name, self.links[side].port)
        self.sent, self.acknowledged, self.moves, self.cancelled = 0, set(), 0, 0
        self.stop = threading.Event()

    def begin(self):
        for node in self.nodes:
            node.start()
        payload = {"source_code": AGENT.format(id=self.agent), "activate_payload": {"id": "first"}}
        until(lambda: all(node.agents() is not None for node in self.nodes), 30, "the nodes listen")
        if self.nodes[0].ask("deploy_agent", payload) is None:
            raise SystemExit("the agent could not be deployed")

    def drive(self):
        while not self.stop.is_set():
            node = self.chance.choice(self.nodes)
            if self.chance.random() < 0.03:
                self.cancel(node)
                continue
            agents = node.agents()
            if not agents or agents.get(self.agent) in (None, "departing"):
                time.sleep(0.02)
                continue
            self.send(node, self.nodes[1 - self.nodes.index(node)].name)

    def cancel(self, node):
        for transfer in node.ask("list_outbox", {}) or []:
            if node.ask("cancel_outbox", {"transfer_id": transfer["transfer_id"]}):
                self.cancelled += 1

    def send(self, node, other):
        self.sent += 1
        word = "%s-%d" % (self.agent, self.sent)
        message = {"id": word}
        how = self.chance.random()
        kind, payload = "invoke_agent", {"agent_id": self.agent, "message": message, "timeout": 8}
        if how < 0.35:
            message["go"], message["payload"] = other, {"id": "a-" + word}
            message["queue"] = self.chance.random() < 0.5
            if self.chance.random() < 0.3:
                message["payload"].update(back=node.name, queue=message["queue"])
        elif how < 0.42:
            kind = "dispatch_agent"
            payload = {"agent_id": self.agent, "destination": other, "mode": "move", "activate_payload": {"id": "a-" + word},
                       "queue": self.chance.random() < 0.5, "timeout": 8}
        line = signed(kind, payload)
        # Whoever got no answer sends the very same line again: it must not act twice.
        for attempt in range(self.chance.choice([1, 1, 3])):
            answer = exchange(node.port, line, 12)
            if answer is not None and answer.get("code") not in ("busy", "shutting_down"):
                break
            time.sleep(0.2)
        if answer and answer.get("status") == "ok":
            if kind == "invoke_agent":
                self.acknowledged.add(word)
            self.moves += "go" in message or kind == "dispatch_agent"

    def settle(self):
        """Honest links, nothing under way."""
        for link in self.links:
            link.honest = True
        def quiet():
            for node in self.nodes:
                waiting = node.ask("list_outbox", {})
                if waiting is None:
                    return False
                for transfer in waiting:
                    node.ask("retry_outbox", {"transfer_id": transfer["transfer_id"]})
                if waiting:
                    return False
            agents = [node.agents() for node in self.nodes]
            return None not in agents and all("running" not in here.values() for here in agents)
        until(quiet, 120, "the transfers of %s are decided" % self.agent)

    def verdict(self):
        homes = [node for node in self.nodes if self.agent in (node.agents() or {})]
        lost, doubled = int(not homes), max(0, len(homes) - 1)
        twice = stale = 0
        for node in homes:
            shown = (node.ask("invoke_agent", {"agent_id": self.agent, "message": {"show": 1}}) or {}).get("result")
            if shown is None:
                lost += 1
                continue
            for words in (shown["acted"], shown["activated"], shown["lines"]):
                twice += len(words) - len(set(words))
            stale += len(self.acknowledged - set(shown["acted"]))
        return lost, doubled, twice, stale

    def left_on_disk(self):
        """Generations and unfinished files that no registered agent explains, once the nodes have ended."""
        odd, generations = [], 0
        for node in self.nodes:
            for folder, _, files in os.walk(node.state):
                generations += os.path.basename(os.path.dirname(folder)) == "harness"
                odd += [os.path.join(folder, name) for name in files if name.endswith((".unfinished", ".prepared")) or ".damaged" in name]
        return odd, generations


def until(done, limit, what):
    deadline = time.monotonic() + limit
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError("not in %d s: %s" % (limit, what))
        time.sleep(0.05)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary", nargs="?", default="target/debug/agentcontainer")
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    parser.add_argument("--pairs", type=int, default=3)
    given = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="agentcontainer-crash-")
    print("seed %d, state in %s" % (given.seed, folder), flush=True)
    chance = random.Random("%d killer" % given.seed)
    pairs = [Pair(os.path.abspath(given.binary), folder, number, given.seed) for number in range(given.pairs)]
    kills = collections.Counter()
    begun = time.monotonic()
    drivers = []
    status = 1
    try:
        for pair in pairs:
            pair.begin()
            drivers.append(threading.Thread(target=pair.drive, daemon=True))
        for driver in drivers:
            driver.start()
        nodes = [node for pair in pairs for node in pair.nodes]
        armed = {}
        while sum(kills.values()) < given.kills:
            time.sleep(chance.uniform(0.02, 0.3))
            for node in nodes:
                if node.process.poll() is None:
                    continue
                if node.process.returncode != -signal.SIGKILL:
                    raise SystemExit("%s ended by itself with %s; see its log" % (node.name, node.process.returncode))
                kills[armed.pop(node.name, "?")] += 1
                time.sleep(chance.choice([0, 0, 0.1]))
                node.start()
            victims = [chance.choice(nodes)] if chance.random() < 0.85 else list(chance.choice(pairs).nodes)
            for node in victims:
                if node.name in armed and chance.random() < 0.8:
                    continue  # it shall get to its place
                node.kill()
                armed.pop(node.name, None)
                kills["anywhere"] += 1
                time.sleep(chance.choice([0, 0, 0.05, 0.4]))
                place = None
                if chance.random() < 0.6:
                    place = chance.choice(PLACES)
                    armed[node.name] = place
                    place = "%s:%d" % (place, chance.choice([1, 1, 2]))
                node.start(place)
        for pair in pairs:
            pair.stop.set()
        for driver in drivers:
            driver.join(60)
        for node in nodes:
            node.kill()
            node.start()
        for pair in pairs:
            pair.settle()
        time.sleep(5)  # what the links still hold back comes now, and must find its end known
        for pair in pairs:
            pair.settle()
        verdicts = [pair.verdict() for pair in pairs]
        for node in nodes:
            node.process.terminate()
        for node in nodes:
            if node.process.wait(30) != 0:
                raise SystemExit("%s ended with %s" % (node.name, node.process.returncode))
        # One of each pair's agent, and one of each node's manager.
        odd, unexplained = [], -len(pairs) - len(nodes)
        for pair in pairs:
            more, count = pair.left_on_disk()
            odd += more
            unexplained += count
        lost, doubled, twice, stale = (sum(column) for column in zip(*verdicts))
        links = sum((link.done for pair in pairs for link in pair.links), collections.Counter())
        print("kills      %d: %s" % (sum(kills.values()), ", ".join("%s %d" % item for item in sorted(kills.items()))))
        print("links      %s" % ", ".join("%s %d" % item for item in sorted(links.items())))
        print("messages   %d sent, %d acknowledged, %d moves acknowledged, %d transfers cancelled" % (
            sum(pair.sent for pair in pairs), sum(len(pair.acknowledged) for pair in pairs),
            sum(pair.moves for pair in pairs), sum(pair.cancelled for pair in pairs)))
        print("time       %.0f s" % (time.monotonic() - begun))
        print("agents lost                                  %d" % lost)
        print("agents doubled                               %d" % doubled)
        print("hooks run twice for one message              %d" % twice)
        print("acknowledged messages that memory forgot     %d" % stale)
        print("files left that nothing explains             %d" % (len(odd) + abs(unexplained)))
        for path in odd:
            print("  " + path)
        status = int(bool(lost or doubled or twice or stale or odd or unexplained))
    finally:
        for pair in pairs:
            pair.stop.set()
            for node in pair.nodes:
                if node.process and node.process.poll() is None:
                    node.kill()
        if status == 0:
            shutil.rmtree(folder)
        else:
            print("what was there is kept in %s; again: --seed %d" % (folder, given.seed))
    return status


if __name__ == "__main__":
    sys.exit(main())
