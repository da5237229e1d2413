//! Who lives on a node, across its restarts.

use super::node::{fails, Node, Reply, Stage};
use crate::support::lab::{agent, until};
use serde_json::{json, Value};
use std::path::Path;

const KEEPS: &str = "def __init__(self):\n    self.n = 0\n    self.activated = 0\ndef on_activate(self, ctx, p):\n    self.activated += 1\n    return self.activated\ndef on_message(self, ctx, m):\n    self.n += 1\n    if m.get('file'):\n        open(ctx.state_dir() + '/note', 'a').write(m['file'])\n    try:\n        note = open(ctx.state_dir() + '/note').read()\n    except OSError:\n        note = None\n    return [self.n, self.activated, note, ctx.stage(), ctx.trace]";

/// The list without what only a run knows.
fn lasting(node: &Node) -> Value {
    let mut list = node.list();
    for agent in list.as_array_mut().unwrap() {
        for of_a_run in ["live", "activations", "last_result", "waiting"] {
            agent.as_object_mut().unwrap().remove(of_a_run);
        }
    }
    list
}

#[test]
fn the_same_agents_live_there_after_a_kill_and_after_a_signal() {
    let mut node = Node::alone("n");
    let stage = json!({"name": "home", "host": "127.0.0.1", "port": 9});
    let metadata = json!({"stage": stage, "colour": "green"});
    node.ok(
        "deploy_agent",
        json!({"source_code": agent("one", KEEPS), "activate_payload": {}, "agent_metadata": metadata}),
    );
    node.deploy(&agent("one", KEEPS));
    node.invoke("one", json!({"file": "kept"}));
    let trace = json!([{"node": "origin", "host": "127.0.0.1", "port": 9, "time": 5}]);
    let arrival = json!({"source_code": agent("two", KEEPS), "trace": trace, "state": {"memory": {"n": 40, "activated": 1}, "files": []}});
    let line = crate::lines::signed(
        "receive_agent",
        "two",
        "secret of two",
        &arrival.to_string(),
        Default::default(),
    );
    assert!(node.line(&line.line).is_ok());
    node.ok("deploy_agent", json!({"source_code": agent("never-activated", KEEPS)}));
    let before = lasting(&node);
    assert_eq!(before.as_array().unwrap().len(), 3);
    assert_eq!(
        (&before[1]["sequence"], &before[2]["origin"], &before[2]["hops"]),
        (&json!(2), &json!("own"), &json!(1))
    );
    for round in 1..4 {
        match round {
            2 => node.stop(),
            _ => node.kill(),
        }
        node.start();
        assert_eq!(lasting(&node), before);
        assert!(
            node.list().as_array().unwrap().iter().all(|agent| agent["live"] == false),
            "until they are used"
        );
        assert_eq!(node.invoke("one", json!({})), json!([1 + round, 2, "kept", stage, []]));
        assert_eq!(node.invoke("two", json!({})), json!([40 + round, 2, null, null, trace]));
        assert_eq!(node.invoke("never-activated", json!({}))[1], 0);
    }
    // The next registration goes on counting.
    assert_eq!(node.deploy(&agent("one", KEEPS))["sequence"], 3);
}

#[test]
fn what_was_acknowledged_survives_a_kill_with_each_way_of_syncing() {
    for fsync in ["always", "interval", "never"] {
        let mut node = Node::new("n", &[]).with("memory_fsync", json!(fsync));
        node.start();
        node.deploy(&agent("counter", KEEPS));
        for round in 1..6 {
            assert_eq!(node.invoke("counter", json!({}))[0], round);
            node.crash_and_restart();
        }
    }
}

#[test]
fn a_hook_that_the_kill_cut_leaves_the_memory_of_the_one_before() {
    let mut node = Node::alone("n");
    node.deploy(&agent("cut", "def __init__(self):\n    self.n = 0\ndef on_message(self, ctx, m):\n    self.n += 1\n    if m:\n        open(ctx.state_dir() + '/began', 'w').close()\n        __import__('time').sleep(30)\n    return self.n"));
    assert_eq!(node.invoke("cut", json!(0)), 1);
    let began = node.state("agents/cut/state/began");
    let line = crate::lines::admin("invoke_agent", json!({"agent_id": "cut", "message": 1}));
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| node.try_line(&line.line).is_none());
        until(10, "its hook runs", || began.exists());
        let pid = rustix::process::Pid::from_raw(i32::try_from(node.pid()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        assert!(caller.join().unwrap());
    });
    node.crash_and_restart();
    assert_eq!(node.invoke("cut", json!(0)), 2);
}

#[test]
fn a_deployment_keeps_files_and_memory_unless_it_is_fresh_and_a_removal_stays_one() {
    let mut node = Node::alone("n");
    let source = agent("kept", KEEPS);
    node.deploy(&source);
    node.invoke("kept", json!({"file": "a"}));
    node.crash_and_restart();
    node.deploy(&source);
    assert_eq!(node.invoke("kept", json!({"file": "b"})), json!([2, 2, "ab", null, []]));
    node.crash_and_restart();
    assert_eq!(node.invoke("kept", json!({})), json!([3, 2, "ab", null, []]));
    node.ok("deploy_agent", json!({"source_code": source, "activate_payload": {}, "fresh": true}));
    node.crash_and_restart();
    assert_eq!(node.invoke("kept", json!({}))[0], 1);
    node.ok("remove_agent", json!({"agent_id": "kept"}));
    assert!(!node.has("kept"));
    node.crash_and_restart();
    assert!(!node.has("kept") && !node.state("agents/kept").exists());
    // Whose secret it is stays known.
    let stranger = agent("kept", KEEPS).replace("secret of kept", "a stranger's secret");
    let payload = json!({"source_code": stranger}).to_string();
    let line =
        crate::lines::signed("receive_agent", "kept", "a stranger's secret", &payload, Default::default());
    assert_eq!(node.line(&line.line).code(), Some("bad_signature"));
    assert_eq!(node.deploy(&source)["sequence"], 4);
}

#[test]
fn a_kill_while_files_are_removed_leaves_none_behind() {
    let far = Stage::play(|_, _| Reply::Signed(super::node::stands("done", json!({}))));
    let mut node = Node::new("n", &[("far", far.port)]);
    // Its record is gone, its files are not yet: its last hook still runs.
    node.start_to_crash("generation-removed");
    node.deploy(&agent("tidy", "def on_message(self, ctx, m):\n    open(ctx.state_dir() + '/note', 'w').write('x')\n    return ctx.move('far', {})"));
    let line = crate::lines::admin("invoke_agent", json!({"agent_id": "tidy"}));
    assert!(node.try_line(&line.line).is_none());
    node.wait_for_crash();
    assert!(node.state("agents/tidy/state/note").exists());
    node.start();
    assert!(!node.has("tidy") && !node.state("agents/tidy").exists());
}

#[test]
fn an_older_one_whose_record_a_kill_left_does_not_live_again() {
    let mut node = Node::alone("n");
    node.deploy(&agent("anew", KEEPS));
    let harness = node.state("agents/anew/harness/1");
    let copied = node.dir.path().join("older");
    copy(&harness, &copied);
    node.deploy(&agent("anew", KEEPS));
    node.ok("remove_agent", json!({"agent_id": "anew"}));
    node.kill();
    // As if the kill had come before the older record was removed.
    copy(&copied, &harness);
    node.start();
    assert!(!node.has("anew") && !harness.exists());
}

#[test]
fn an_agent_from_a_capsule_goes_on_in_that_very_capsule() {
    let far = Stage::play(|_, _| Reply::Signed(fails("rejected", "refused")));
    let mut node = Node::new("n", &[("far", far.port)]);
    node.start();
    let body = "def on_message(self, ctx, m):\n    try:\n        ctx.clone('far', {})\n    except Exception as error:\n        return error.code";
    let source = agent("sealed", body);
    let options = agentcontainer::capsule::PackOptions::default();
    let agent = agentcontainer::capsule::Agent { source: &source, memory: None, state: None };
    let capsule = agentcontainer::capsule::pack_agent(&agent, &options).unwrap();
    node.ok("deploy_agent", json!({"capsule": capsule, "activate_payload": {}}));
    for restarts in 0..3 {
        assert_eq!(node.invoke("sealed", json!({})), "rejected");
        let got = far.got.lock().unwrap();
        let sent: Vec<_> = got.iter().filter(|got| got.kind == "receive_agent").collect();
        assert_eq!(sent.len(), restarts + 1);
        assert_eq!(sent[restarts].payload["capsule"], sent[0].payload["capsule"]);
        assert_eq!(sent[restarts].payload["capsule"].as_str().unwrap().trim(), capsule.trim());
        assert!(sent[restarts].payload.get("source_code").is_none());
        drop(got);
        node.crash_and_restart();
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let to = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}

/// A node on a copy of one of the samples.
fn of_sample(name: &str) -> Node {
    let node = Node::new("sample", &[]);
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name), &node.state(""));
    // As a node makes it.
    std::fs::set_permissions(node.state(""), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    node
}

#[test]
fn a_state_directory_of_an_earlier_version_loads() {
    let mut node = of_sample("state-v1");
    for round in 1..3 {
        node.start();
        let list = node.list();
        let ids: Vec<_> =
            list.as_array().unwrap().iter().map(|agent| agent["agent_id"].as_str().unwrap()).collect();
        assert_eq!(ids, ["arrived", "deployed", "leaving", "sealed"]);
        assert_eq!((&list[0]["hops"], &list[1]["sequence"]), (&json!(1), &json!(2)));
        let told = node.invoke("deployed", json!({}));
        assert_eq!(
            (&told["count"], &told["activated"], &told["note"]),
            (&json!(1 + round), &json!(2), &json!("kept"))
        );
        let told = node.invoke("arrived", json!({}));
        assert_eq!((&told["count"], &told["trace"][0]["node"]), (&json!(42 + round), &json!("origin")));
        assert_eq!(node.invoke("sealed", json!({}))["count"], 7 + round);
        // A move that is open, a transfer that arrived, one that was refused.
        assert_eq!(list[2]["status"], "departing");
        let outbox = node.outbox();
        assert_eq!(
            (outbox[0]["agent_id"].as_str(), outbox[0]["destination"].as_str()),
            (Some("leaving"), Some("beyond"))
        );
        for (agent, transfer, word) in [
            ("arrived", "a-transfer-that-arrived", "done"),
            ("stranger", "a-transfer-that-was-refused", "refused"),
        ] {
            let told = node.ok("transfer_status", json!({"agent_id": agent, "transfer_id": transfer}));
            assert_eq!(told["transfer"], word);
        }
        assert!(!node.logged().contains("state_damaged"), "{}", node.logged());
        node.kill();
    }
}

#[test]
fn files_of_the_first_version_which_kept_no_records_stay_until_an_agent_of_that_id_comes() {
    let mut node = of_sample("state-v0");
    let kept = node.state("agents/old/state/note.txt");
    for _ in 0..2 {
        node.start();
        assert_eq!(node.list(), json!([]));
        assert_eq!(std::fs::read_to_string(&kept).unwrap(), "of the first version");
        node.kill();
    }
    // Whose they were nobody knows: the agent that comes does not find them.
    node.start();
    node.deploy(&agent(
        "old",
        "def on_message(self, ctx, m):\n    return __import__('os').listdir(ctx.state_dir())",
    ));
    for _ in 0..2 {
        assert_eq!(node.invoke("old", json!({})), json!([]));
        node.crash_and_restart();
    }
}
