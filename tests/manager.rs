//! The manager of a node, messages between agents, and who may schedule. Real nodes, real agents.

#[path = "support/mod.rs"]
mod support;

#[path = "support/lines.rs"]
mod lines;

#[allow(dead_code)] // a part of it is used here
mod durable {
    pub mod node;
}

use agentcontainer::node::Keys;
use durable::node::Node;
use serde_json::{json, Value};
use support::lab::{agent, keys, until, Lab};

/// Does what it is told with `ctx`, and tells how that ended; keeps what others say.
const TRIER: &str = "def __init__(self):\n    self.heard = []\ndef on_message(self, ctx, m):\n    if 'call' not in m:\n        self.heard.append(m)\n        return None\n    try:\n        return {'ok': getattr(ctx, m['call'])(*m.get('args', []), **m.get('named', {}))}\n    except Exception as wrong:\n        return {'code': getattr(wrong, 'code', type(wrong).__name__), 'text': str(wrong)}";

fn lab(name: &str) -> Lab {
    Lab::with(Keys { ruthless: false, ..keys(name) })
}

fn tries(lab: &Lab, id: &str, call: &str, args: Value) -> Value {
    lab.invoke(id, json!({"call": call, "args": args}))
}

fn heard(lab: &Lab, id: &str) -> Vec<Value> {
    let memory = lab.running.node.agent(id).unwrap().life.memory();
    let memory: Value = memory.map_or(Value::Null, |memory| serde_json::from_str(&memory).unwrap());
    memory["heard"].as_array().cloned().unwrap_or_default()
}

fn refused(told: (String, String), code: &str, part: &str) {
    assert!(told.0 == code && told.1.contains(part), "{code} {part:?}: {told:?}");
}

#[test]
fn the_manager_is_there_from_the_start_has_its_grant_and_no_process() {
    let lab = lab("managed");
    let listed = lab.ok("list_agents", json!({}));
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(
        (&listed[0]["agent_id"], &listed[0]["live"], &listed[0]["origin"]),
        (&json!("ruth"), &json!(false), &json!("node"))
    );
    let grants = lab.ok("list_grants", json!({}));
    let own = &grants["agents"]["ruth"];
    assert_eq!(own["groups"].as_array().unwrap().len(), 9, "{own}");
    assert_eq!(own["capabilities"], json!(["ManageRootAgent"]));
    let told = lab.invoke("ruth", json!({"do": "help"}));
    for name in ["ManageRootAgent", "agent_status", "deploy_log", "edit_schedule", "send"] {
        assert!(told["may"].as_array().unwrap().contains(&json!(name)), "{name}: {told}");
    }
    assert!(lab.running.node.agent("ruth").unwrap().life.pid().is_some());
    // A place of its own: the others have all that they may.
    let full = Lab::with(Keys { ruthless: false, max_agents: 1, ..keys("full") });
    full.deploy(&agent("a", TRIER));
}

#[test]
fn the_manager_never_arrives_and_never_leaves() {
    let lab = lab("stays");
    let other = lab_of_ruth();
    let source = "AGENT_ID = \"ruth\"\nAGENT_SECRET = \"a secret of mine\"\nclass Agent:\n    pass\n";
    refused(lab.err("deploy_agent", json!({"source_code": source})), "bad_payload", "ruth");
    refused(lab.err("receive_agent", json!({"source_code": source})), "bad_payload", "ruth");
    let answer = lab.ask_as(
        "ruth",
        "a secret of mine",
        "receive_agent",
        &json!({"source_code": source, "transfer_id": "t1"}).to_string(),
    );
    assert!(!answer.is_ok(), "{}", answer.line());
    let to = format!("127.0.0.1:{}", other.running.node.port());
    for mode in ["clone", "move"] {
        let order = json!({"agent_id": "ruth", "destination": to, "mode": mode});
        refused(lab.err("dispatch_agent", order), "rejected", "the manager stays");
    }
    refused(lab.err("remove_agent", json!({"agent_id": "ruth"})), "rejected", "ruthless");
    assert!(lab.has("ruth"));
    assert_eq!(lab.invoke("ruth", json!({"do": "roster"}))["agents"][0]["manager"], true);
}

/// A node where an agent called ruth is like any other.
fn lab_of_ruth() -> Lab {
    let lab = Lab::start("ruthless");
    assert!(!lab.has("ruth"));
    lab.deploy(&agent("ruth", TRIER));
    let told = tries(&lab, "ruth", "cancel_schedule", json!(["s1"]));
    assert_eq!(told["code"], "forbidden", "{told}");
    let order = json!({"agent_id": "ruth", "grant": "scheduling"});
    refused(lab.err("set_grant", order), "bad_payload", "manager");
    lab
}

/// What an agent's own process finds at a path: what it reads, or why not.
const OPENER: &str = "def on_message(self, ctx, m):\n    try:\n        if 'call' in m:\n            return getattr(ctx, m['call'])(*m['args'])\n        with open(m['path'], m['mode']) as f:\n            return f.read() if m['mode'] == 'r' else f.write('by hand')\n    except Exception as wrong:\n        return getattr(wrong, 'code', type(wrong).__name__) + ': ' + str(wrong)";

#[test]
fn manage_root_agent_gives_exactly_the_table() {
    let lab = Lab::with(Keys { ruthless: true, ..keys("table") });
    let leave = "def on_message(self, ctx, m):\n    import os\n    d = ctx.state_dir()\n    open(d + '/note', 'w').write('mine')\n    os.path.lexists(d + '/out') or os.symlink('../harness', d + '/out')\n    return open(d + '/' + m).read()";
    lab.deploy(&agent("worker", leave));
    lab.deploy(&agent("boss", OPENER));
    assert_eq!(lab.invoke("worker", json!("note")), json!("mine"));
    let home = lab.dir.path().join("state/agents/worker");
    std::fs::create_dir(home.join("config")).unwrap();
    std::fs::write(home.join("config/agent.py"), "AGENT_ID = 'worker'").unwrap();
    let call = |name: &str, args: Value| {
        let told = lab.invoke("boss", json!({"call": name, "args": args}));
        told.as_str().map_or_else(|| told.to_string(), str::to_owned)
    };
    let open = |path: &str, mode: &str| {
        let told = lab.invoke("boss", json!({"path": home.join(path), "mode": mode}));
        told.as_str().map_or_else(|| told.to_string(), str::to_owned)
    };
    let forbidden = |told: String, part: &str| {
        assert!(told.starts_with("forbidden: ") && told.contains(part), "{part}: {told}");
    };
    let sealed = !lab.ok("describe_container", json!({}))["sandbox"].as_str().unwrap().contains("Landlock");
    let shut = |path: &str| {
        for mode in ["r", "a"] {
            let told = open(path, mode);
            assert!(!sealed || told.starts_with("PermissionError"), "{path} {mode}: {told}");
        }
    };
    let nothing = || {
        for path in ["state/note", "config/agent.py", "harness/1/meta.json", "harness/1/agent.py"] {
            shut(path);
        }
    };
    forbidden(call("agent_files", json!(["worker"])), "management");
    nothing();
    lab.ok("set_grant", json!({"agent_id": "boss", "grant": "management"}));
    for (name, args) in [
        ("agent_files", json!(["worker"])),
        ("read_agent_file", json!(["worker", "state/note"])),
        ("write_agent_file", json!(["worker", "state/note", "x"])),
    ] {
        forbidden(call(name, args), "ManageRootAgent");
    }
    nothing();
    lab.ok("set_grant", json!({"agent_id": "boss", "grant": "ManageRootAgent"}));
    // state/: read and write, by call and by hand.
    assert_eq!(
        call("agent_files", json!(["worker"])),
        r#"[{"path":"config/agent.py","size":19},{"path":"state/note","size":4}]"#
    );
    assert_eq!(call("read_agent_file", json!(["worker", "state/note"])), "mine");
    assert_eq!(call("write_agent_file", json!(["worker", "state/deep/er/new", "from the boss"])), "null");
    assert_eq!(lab.invoke("worker", json!("deep/er/new")), json!("from the boss"));
    assert_eq!(call("read_agent_file", json!(["worker", "state/deep/er/new"])), "from the boss");
    assert_eq!((open("state/note", "r").as_str(), open("state/byhand", "w").as_str()), ("mine", "7"));
    // config/: read.
    assert_eq!(call("read_agent_file", json!(["worker", "config/agent.py"])), "AGENT_ID = 'worker'");
    forbidden(call("write_agent_file", json!(["worker", "config/agent.py", "x"])), "the operator's to write");
    assert_eq!(open("config/agent.py", "r"), "AGENT_ID = 'worker'");
    assert!(!sealed || open("config/agent.py", "a").starts_with("PermissionError"));
    // harness/: nothing, ever, on no way.
    for path in
        ["harness/1/meta.json", "harness", "", "state/../harness/1/meta.json", "state/out/1/meta.json"]
    {
        forbidden(call("read_agent_file", json!(["worker", path])), "");
        forbidden(call("write_agent_file", json!(["worker", path, "x"])), "");
    }
    shut("harness/1/meta.json");
    shut("harness/1/agent.py");
    for id in ["nobody", "../agents/worker", ""] {
        let told = call("read_agent_file", json!([id, "state/note"]));
        assert!(told.starts_with("unknown_agent: "), "{id}: {told}");
    }
    let long = "x".repeat(256);
    let (long_file, long_folder) = (format!("state/{long}"), format!("state/{long}/x"));
    let odd = ["state/a\0b", "state/a\0/b", "state/a/\0", "state\0", &long_file, &long_folder];
    for path in ["state", "state/", "state/deep", "state/deep/"].into_iter().chain(odd) {
        let told = call("write_agent_file", json!(["worker", path, "x"]));
        assert!(told.starts_with("bad_payload: "), "{path}: {told}");
    }
    assert_eq!(std::fs::read_to_string(home.join("config/agent.py")).unwrap(), "AGENT_ID = 'worker'");
    // And it ends with the grant.
    lab.ok("revoke_grant", json!({"agent_id": "boss", "grant": "ManageRootAgent"}));
    forbidden(call("read_agent_file", json!(["worker", "state/note"])), "ManageRootAgent");
    nothing();
}

#[test]
fn whoever_else_asks_for_schedules_is_refused_whatever_it_sends() {
    let lab = lab("forbidden");
    lab.deploy(&agent("bold", TRIER));
    for (call, args) in [
        ("request_schedule_prompt", json!(["bold", {"x": 1}, null, 2])),
        ("request_schedule_prompt", json!(["ruth", {"do": "roster"}, null, 2])),
        ("cancel_schedule", json!(["s1"])),
        ("fire_schedule_now", json!([null])),
        ("edit_schedule", json!(["s1"])),
        ("agent_status", json!(["ruth"])),
        ("deploy_log", json!([])),
        // What the bridge carries, with another's id and flavour in it.
        (
            "_call",
            json!(["request_schedule_prompt", {"agent_id": "bold", "message": 1, "every": 2, "id": "x"}]),
        ),
        ("_call", json!(["edit_schedule", {"id": "x", "from": "ruth", "agent": "ruth", "manager": true}])),
    ] {
        let told = tries(&lab, "bold", call, args);
        assert_eq!(told["code"], "forbidden", "{call}: {told}");
    }
    // A frame with more in it is none, and ends the process.
    let frame = json!({"call": "_call", "args": ["cancel_schedule", {}, ",\"agent_id\":\"ruth\""]});
    refused(
        lab.err("invoke_agent", json!({"agent_id": "bold", "message": frame})),
        "agent_error",
        "no frame",
    );
    let order = json!({"agent_id": "bold", "grant": "edit_schedule"});
    refused(lab.err("set_grant", order), "bad_payload", "manager");
    assert_eq!(lab.ok("list_schedules", json!({})), json!([]));
    // Nor does the manager do it for them.
    tries(
        &lab,
        "bold",
        "send",
        json!(["ruth", {"do": "schedule", "agent": "bold", "every": 2, "message": 1}]),
    );
    until(10, "ruth has refused", || lab.logged().contains("not obeyed"));
    assert_eq!(lab.ok("list_schedules", json!({})), json!([]));
}

#[test]
fn the_manager_answers_what_it_is_asked_and_says_what_it_does_not_know() {
    let lab = lab("answers");
    lab.deploy(&agent("worker", TRIER));
    let ask = |message: Value| lab.invoke("ruth", message);
    let roster = ask(json!({"do": "roster"}));
    let ids: Vec<&str> =
        roster["agents"].as_array().unwrap().iter().flat_map(|a| a["agent_id"].as_str()).collect();
    assert_eq!(ids, ["ruth", "worker"]);
    let made = ask(
        json!({"do": "schedule", "agent": "worker", "message": {"n": 1}, "daily": "07:00", "id": "morning"}),
    );
    assert_eq!(
        (&made["schedule"]["daily"], &made["schedule"]["id"]),
        (&json!("07:00"), &json!("morning")),
        "{made}"
    );
    assert_eq!(ask(json!({"do": "fire", "id": "morning"}))["schedule"]["agent_id"], "worker");
    until(10, "it was fired", || heard(&lab, "worker") == [json!({"n": 1})]);
    let edited = ask(json!({"do": "edit", "id": "morning", "every": 3600, "message": {"n": 2}}));
    assert_eq!(
        (&edited["schedule"]["every"], edited["schedule"].get("daily")),
        (&json!(3600), None),
        "{edited}"
    );
    let status = ask(json!({"do": "status", "agent": "worker"}))["agent"].clone();
    assert_eq!(
        (&status["config"], &status["schedules"][0]["id"]),
        (&json!("none"), &json!("morning")),
        "{status}"
    );
    assert_eq!(ask(json!({"do": "roster"}))["agents"][1]["schedules"], json!(["morning"]));
    ask(json!({"do": "cancel", "id": "morning"}));
    assert_eq!(lab.ok("list_schedules", json!({})), json!([]));
    let deploys = ask(json!({"do": "deploys"}))["deploys"].clone();
    let kinds: Vec<_> =
        deploys.as_array().unwrap().iter().map(|line| (&line["kind"], &line["agent"])).collect();
    assert_eq!(kinds, [(&json!("deploy"), &json!("ruth")), (&json!("deploy"), &json!("worker"))]);
    assert_eq!(ask(json!({"do": "deploys", "limit": 1}))["deploys"][0]["agent"], "worker");
    for (message, part) in [
        (json!("roster"), "must be an object"),
        (json!({}), "must be an object"),
        (json!({"do": "dance"}), "'dance'"),
        (json!({"do": "schedule", "agent": "worker", "every": 5}), "needs \"message\""),
        (json!({"do": "schedule", "agent": "worker", "message": 1, "evry": 5}), "'evry'"),
        (json!({"do": "schedule", "agent": "worker", "message": 1}), "none is given"),
        (json!({"do": "schedule", "agent": "worker", "message": 1, "every": 0.5}), "not 0.5"),
        (json!({"do": "schedule", "agent": "worker", "message": 1, "every": "5"}), "every"),
        (
            json!({"do": "schedule", "agent": "worker", "message": 1, "every": 5, "daily": "07:00"}),
            "more than one",
        ),
        (json!({"do": "schedule", "agent": "nobody", "message": 1, "every": 5}), "unknown_agent"),
        (json!({"do": "cancel", "id": "nothing"}), "nothing"),
        (json!({"do": "fire", "id": "nothing"}), "nothing"),
        (json!({"do": "edit", "id": "nothing"}), "nothing"),
        (json!({"do": "status", "agent": "../ruth"}), "unknown_agent"),
        (json!({"do": "deploys", "limit": 0}), "limit"),
        (json!({"do": "roster", "from": "admin"}), "only the admin's"),
    ] {
        let told = ask(message.clone());
        assert!(told["error"].as_str().is_some_and(|why| why.contains(part)), "{message}: {told}");
    }
}

#[test]
fn status_tells_whether_what_runs_is_what_config_says() {
    let lab = lab("config");
    let source = agent("here", TRIER);
    lab.deploy(&source);
    let of = |id: &str| lab.invoke("ruth", json!({"do": "status", "agent": id}))["agent"]["config"].clone();
    let config = |id: &str| lab.running.state_dir.join("agents").join(id).join("config");
    for id in ["here", "declared"] {
        std::fs::create_dir_all(config(id)).unwrap();
    }
    std::fs::write(config("here").join("agent.py"), &source).unwrap();
    assert_eq!(of("here"), "same");
    std::fs::write(config("here").join("agent.py"), source + "# new\n").unwrap();
    assert_eq!(of("here"), "differs");
    std::fs::remove_file(config("here").join("agent.py")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", config("here").join("agent.py")).unwrap();
    assert_eq!(of("here"), "unreadable");
    std::fs::write(config("declared").join("agent.py"), agent("declared", TRIER)).unwrap();
    assert_eq!(of("declared"), "not_running");
}

#[test]
fn agents_leave_each_other_messages_in_order_and_do_not_wait() {
    let lab = Lab::with(Keys { inbox_length: 3, ..keys("letters") });
    lab.deploy(&agent("a", TRIER));
    lab.deploy(&agent("b", TRIER));
    for n in 0..3 {
        let told = tries(&lab, "a", "send", json!(["b", {"n": n}]));
        assert_eq!(told, json!({"ok": null}));
    }
    let expected: Vec<Value> = (0..3).map(|n| json!({"from": "a", "message": {"n": n}})).collect();
    until(10, "they have come", || heard(&lab, "b") == expected);
    assert_eq!(tries(&lab, "a", "send", json!(["nobody", 1]))["code"], "unknown_agent");
    assert_eq!(tries(&lab, "a", "send", json!([7, 1]))["code"], "bad_payload");
    let sent = json!({"call": "_call", "args": ["send", {"agent_id": "b", "message": "x".repeat(1 << 20)}]});
    assert_eq!(lab.invoke("a", sent)["code"], "too_large");
    // Whoever sends to itself, or in a circle, waits for nobody; a full inbox says so.
    lab.deploy(&agent(
        "circle",
        "def __init__(self):\n    self.heard = []\ndef on_message(self, ctx, m):\n    told = []\n    for n in range(5 if m == 'go' else 0):\n        try:\n            ctx.send(ctx.agent_id, n)\n            told.append('ok')\n        except Exception as wrong:\n            told.append(wrong.code)\n    if m != 'go':\n        self.heard.append(m['message'])\n    return told",
    ));
    assert_eq!(lab.invoke("circle", json!("go")), json!(["ok", "ok", "ok", "busy", "busy"]));
    until(10, "what was taken came", || heard(&lab, "circle") == [json!(0), json!(1), json!(2)]);
    lab.ok("revoke_grant", json!({"agent_id": "a", "grant": "messaging"}));
    let told = tries(&lab, "a", "send", json!(["b", 1]));
    assert!(told["code"] == "forbidden" && told["text"].as_str().unwrap().contains("messaging"), "{told}");
}

#[test]
fn many_that_send_to_one_slow_agent_keep_nobody_from_calling() {
    let lab = Lab::with(Keys { inbox_length: 1000, max_live_agents: 3, ..keys("slow") });
    lab.deploy(&agent("slow", "def on_message(self, ctx, m):\n    import time\n    time.sleep(0.01)"));
    lab.deploy(&agent("many", "def on_message(self, ctx, m):\n    for n in range(400):\n        ctx.send('slow', n)\n    return sorted(ctx.resources())"));
    lab.invoke("many", json!({}));
    until(30, "all have come", || {
        let slow = lab.running.node.agent("slow").unwrap();
        slow.life.waiting() == 0 && slow.activations.load(std::sync::atomic::Ordering::Relaxed) == 401
    });
}

#[test]
fn others_cannot_fill_an_inbox_up_to_where_nobody_gets_in() {
    let lab = Lab::with(Keys { inbox_length: 8, ..keys("room") });
    lab.deploy(&agent("slow", "def on_message(self, ctx, m):\n    import time\n    time.sleep(0 if m == 'admin' else 0.3)\n    return m"));
    lab.deploy(&agent("many", "def on_message(self, ctx, m):\n    told = []\n    for n in range(12):\n        try:\n            ctx.send('slow', n)\n            told.append('ok')\n        except Exception as wrong:\n            told.append(wrong.code)\n    return told"));
    let told = lab.invoke("many", json!({}));
    let busy = told.as_array().unwrap().iter().filter(|told| *told == "busy").count();
    assert!((4..=6).contains(&busy), "{told}");
    assert_eq!(lab.invoke("slow", json!("admin")), "admin", "there is room for the admin's");
}

#[test]
fn every_agent_finds_the_same_in_its_environment() {
    let lab = lab("environment");
    let probe = "def on_message(self, ctx, m):\n    import os\n    return [sorted(os.environ), os.environ['AGENTCONTAINER_STATE_DIR'], ctx.state_dir()]";
    for id in ["one", "two"] {
        lab.deploy(&agent(id, probe));
        let told = lab.invoke(id, json!({}));
        assert_eq!(told[1], told[2]);
        assert!(told[1].as_str().unwrap().ends_with(&format!("agents/{id}/state")), "{told}");
    }
    assert_eq!(lab.invoke("one", json!({}))[0], lab.invoke("two", json!({}))[0]);
    // The manager's directory is in the same place.
    let ruth = lab.running.node.agent("ruth").unwrap();
    assert!(ruth.state_dir().ends_with("agents/ruth/state") && ruth.state_dir().is_dir());
}

#[test]
fn the_manager_outlives_its_node_with_its_secret_its_memory_and_a_changed_grant() {
    let mut node = Node::new("again", &[]).with("ruthless", json!(false));
    node.start();
    let source = |node: &Node| {
        let harness = node.state("agents/ruth/harness");
        let newest = std::fs::read_dir(harness).unwrap().flatten().map(|entry| entry.path()).max().unwrap();
        std::fs::read_to_string(newest.join("agent.py")).unwrap()
    };
    let first = source(&node);
    assert!(!first.contains("each node makes"), "it has a secret of its own");
    node.ok("revoke_grant", json!({"agent_id": "ruth", "grant": "http"}));
    let mut node = node;
    node.crash_and_restart();
    assert_eq!(source(&node), first);
    let own = node.ok("list_grants", json!({}))["agents"]["ruth"].clone();
    assert_eq!(own["groups"].as_array().unwrap().len(), 8, "only what is not set yet is set: {own}");
    assert_eq!(node.ok("list_agents", json!({}))[0]["sequence"], 1);
    // Another one, and none: the first keeps its files and comes back.
    node.kill();
    let mut node = node.with("manager", json!("boss"));
    node.start();
    let ids = |node: &Node| {
        let listed = node.ok("list_agents", json!({}));
        listed
            .as_array()
            .unwrap()
            .iter()
            .map(|agent| agent["agent_id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(&node), ["boss"]);
    node.kill();
    let mut node = node.with("ruthless", json!(true));
    node.start();
    assert_eq!(ids(&node), [""; 0]);
    node.kill();
    let mut node = node.with("ruthless", json!(false)).with("manager", json!("ruth"));
    node.start();
    assert_eq!(ids(&node), ["ruth"]);
    assert_eq!(source(&node), first);
}

#[test]
fn a_node_where_another_agent_has_the_managers_name_says_so_and_goes_on() {
    let mut node = Node::new("taken", &[]);
    node.start();
    node.ok("deploy_agent", json!({"source_code": agent("ruth", TRIER)}));
    node.kill();
    let mut node = node.with("ruthless", json!(false));
    node.start();
    assert!(node.logged().contains("manager_missing"), "{}", node.logged());
    let told = node.ok(
        "invoke_agent",
        json!({"agent_id": "ruth", "message": {"call": "cancel_schedule", "args": ["x"]}}),
    );
    assert_eq!(told["result"]["code"], "forbidden", "{told}");
}
