"""What lab.sh leaves to Python: ports, shifted configurations, and reading results.

    lab_tools.py secret CONFIG                     print the admin secret of a configuration
    lab_tools.py ports-free BASE                   complain about those of the four ports in use
    lab_tools.py shift-configs BASE FOLDER         the configurations, moved to other ports
    lab_tools.py hits RESULT NAME… -- NAME…        print the hits; the first names must have some,
                                                   those after "--" must have none
    lab_tools.py visits RESULT NAME…               print the tour; it must have gone in this order
"""

import json
import os
import socket
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = ["root", "department-a", "department-b", "lab-c"]
BASE = 7000


def secret(path):
    print(load(path)["admin_secret"])


def ports_free(base):
    taken = []
    for port in range(int(base), int(base) + len(NAMES)):
        with socket.socket() as probe:
            # Without this, a port whose last connections are just fading away would count as taken.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except (OSError, OverflowError) as error:
                taken.append("port %d can't be used: %s" % (port, error))
    if taken:
        sys.exit("\n".join(taken))


def shift_configs(base, folder):
    offset = int(base) - BASE
    os.makedirs(folder)
    for name in NAMES:
        config = load(os.path.join(HERE, name + ".json"))
        config["listen_port"] += offset
        # Relative to the folder of the configuration, which is about to be another one.
        config["data_root"] = os.path.normpath(os.path.join(HERE, config["data_root"]))
        shift_tree(config["federation"], offset)
        with open(os.path.join(folder, name + ".json"), "w") as file:
            json.dump(config, file, indent=2)


def shift_tree(node, offset):
    node["port"] += offset
    for child in node["children"]:
        shift_tree(child, offset)


def hits(path, *names):
    split = names.index("--")
    wanted, unwanted = names[:split], names[split + 1 :]
    found = {}
    collect(first(load(path), "hits"), found)
    for node, node_hits in found.items():
        print("%s: %s" % (node, "nothing" if not node_hits else "%d files" % len(node_hits)))
        for hit in node_hits:
            print("    %s:%s: %s" % (hit["path"], hit["line"], hit["preview"].strip()))
    wrong = ["nothing found in " + name for name in wanted if not found.get(name)]
    wrong += ["no answer from " + name for name in unwanted if name not in found]
    wrong += ["unexpected hits in " + name for name in unwanted if found.get(name)]
    if wrong:
        sys.exit("\n".join(wrong))


def collect(report, found):
    """The scout's report is a tree; makes it {node: hits}."""
    found[report["node"]] = report["hits"]
    for name, child in report.get("children", {}).items():
        if "error" in child:
            sys.exit("%s: %s: %s" % (name, child["error"], child.get("text")))
        collect(child, found)


def visits(path, *names):
    report = first(load(path), "visits")
    for visit in report["visits"]:
        print("%s: %d files" % (visit["node"], visit["files"]))
    went = [visit["node"] for visit in report["visits"]]
    if went != list(names):
        sys.exit("visited %s, expected %s; errors: %s" % (went, list(names), report["unreachable"]))


def first(value, key):
    """The outermost object with this key: what the agent returned, without its wrapping."""
    level = [value]
    while level:
        for item in level:
            if isinstance(item, dict) and key in item:
                return item
        level = [
            child
            for item in level
            if isinstance(item, (dict, list))
            for child in (item.values() if isinstance(item, dict) else item)
        ]
    sys.exit("no %r in the result: %s" % (key, json.dumps(value)[:2000]))


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


COMMANDS = {
    "secret": secret,
    "ports-free": ports_free,
    "shift-configs": shift_configs,
    "hits": hits,
    "visits": visits,
}

if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in COMMANDS:
        sys.exit(__doc__)
    COMMANDS[sys.argv[1]](*sys.argv[2:])
