//! Files of a state directory that are damaged, empty, cut or none of ours: set aside, named, and the node
//! starts with the rest.

use super::node::{free_port, secret_of, Node};
use crate::support::lab::agent;
use agentcontainer::wire::RequestOptions;
use serde_json::json;
use std::path::{Path, PathBuf};

const COUNTS: &str = "def __init__(self):\n    self.n = 0\ndef on_message(self, ctx, m):\n    self.n += 1\n    if m.get('go'):\n        return ctx.move('far', {}, queue=True)\n    return self.n";

/// A node that was killed: `whole` and `hurt` live there, `leaving` is on its way, `came` has a ledger entry.
fn killed() -> Node {
    let mut node = Node::new("n", &[("far", free_port())]);
    node.start();
    for id in ["whole", "hurt", "leaving"] {
        node.deploy(&agent(id, COUNTS));
        node.invoke(id, json!({}));
    }
    let payload = json!({"source_code": agent("came", COUNTS), "transfer_id": "t-1"}).to_string();
    let line = crate::lines::signed(
        "receive_agent",
        "came",
        secret_of("came").expose(),
        &payload,
        RequestOptions::default(),
    );
    assert!(node.line(&line.line).is_ok());
    node.invoke("leaving", json!({"go": 1}));
    node.kill();
    node
}

fn only(dir: PathBuf) -> PathBuf {
    let mut entries: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(entries.len(), 1, "{entries:?}");
    entries.remove(0)
}

/// What may have become of a file.
fn damages(whole: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let mut flipped = whole.to_vec();
    if let Some(byte) = flipped.get_mut(whole.len() / 3) {
        *byte = 0xff;
    }
    vec![
        ("empty", Vec::new()),
        ("cut", whole[..whole.len() / 2].to_vec()),
        ("a byte changed", flipped),
        ("zeros", vec![0; whole.len()]),
        ("a list", b"[]\n[]".to_vec()),
        ("a number", b"7\nnull".to_vec()),
        ("a text of somebody's", b"Dear diary,\n".to_vec()),
        ("deep", [vec![b'['; 100_000], b"\n".to_vec()].concat()),
        ("huge numbers", br#"{"sequence":1e999,"generation":-1,"version":99999999999999999999}"#.to_vec()),
    ]
}

/// Damages `file` in every way and looks at the node each time.
fn each_damage(node: &mut Node, file: &Path, look: impl Fn(&Node, &str)) {
    let sane = node.dir.path().join("sane");
    copy(&node.state(""), &sane);
    let whole = std::fs::read(file).unwrap();
    for (how, content) in damages(&whole) {
        let _ = std::fs::remove_dir_all(node.state(""));
        copy(&sane, &node.state(""));
        std::fs::write(file, content).unwrap();
        let _ = std::fs::remove_file(node.dir.path().join("log"));
        node.start();
        look(node, how);
        let log = node.logged();
        assert!(!log.contains("panicked"), "{how}: {log}");
        // The next start is one as any.
        node.crash_and_restart();
        look(node, how);
        node.kill();
    }
}

fn copy(from: &Path, to: &Path) {
    let status = std::process::Command::new("cp").arg("-a").arg("-T").arg(from).arg(to).status();
    assert!(status.unwrap().success());
}

#[track_caller]
fn named(node: &Node, how: &str, part: &str) {
    let told = |log: String| log.lines().any(|line| line.contains("state_damaged") && line.contains(part));
    crate::support::lab::until(5, &format!("{how}: the log names {part}"), || told(node.logged()));
}

/// The others live on.
#[track_caller]
fn others(node: &Node, how: &str) {
    assert!(node.invoke("whole", json!({})).as_i64() >= Some(2), "{how}");
    assert!(node.has("came"), "{how}");
}

#[test]
fn a_damaged_record_or_source_sets_its_agent_aside_and_its_files_stay() {
    for name in ["meta.json", "agent.py"] {
        let mut node = killed();
        let harness = only(node.state("agents/hurt/harness"));
        std::fs::write(node.state("agents/hurt/state/note"), "precious").unwrap();
        each_damage(&mut node, &harness.join(name), |node, how| {
            assert!(!node.has("hurt"), "{how}");
            named(node, how, "hurt/harness");
            others(node, how);
            let aside = PathBuf::from(format!("{}.damaged", harness.display()));
            assert!(aside.join("memory.json").exists(), "{how}: what can be saved is there");
            assert!(node.state("agents/hurt/state/note").exists(), "{how}");
        });
        // Another of its id can come.
        node.start();
        node.deploy(&agent("hurt", COUNTS));
        node.crash_and_restart();
        assert_eq!(node.invoke("hurt", json!({})), 1);
    }
}

#[test]
fn a_damaged_memory_is_set_aside_and_the_agent_begins_anew() {
    let mut node = killed();
    let file = only(node.state("agents/hurt/harness")).join("memory.json");
    each_damage(&mut node, &file, |node, how| {
        others(node, how);
        // What parses as JSON is a memory, if an odd one.
        if node.logged().contains("state_damaged") {
            named(node, how, "memory.json.damaged");
            assert!(node.invoke("hurt", json!({})).as_i64() >= Some(1), "{how}");
        }
        assert!(node.has("hurt"), "{how}");
    });
}

#[test]
fn a_damaged_ledger_entry_sets_the_agent_aside_that_it_speaks_for() {
    let mut node = killed();
    let file = only(node.state("ledger"));
    each_damage(&mut node, &file, |node, how| {
        named(node, how, "ledger/");
        assert!(node.invoke("whole", json!({})).as_i64() >= Some(2), "{how}");
        assert!(!node.has("came"), "{how}: whether it was accepted nobody knows");
        let kept: Vec<_> = std::fs::read_dir(node.state("agents/came/harness")).unwrap().collect();
        assert!(kept.len() == 1 && node.state("agents/came/state").exists(), "{how}: a person can look");
    });
}

#[test]
fn a_ledger_entry_of_an_agent_that_is_settled_is_no_loss_to_it() {
    let mut node = killed();
    node.start();
    node.ok("transfer_forget", json!({"transfer_id": "t-1", "agent_id": "came"}));
    node.kill();
    std::fs::write(node.state("ledger/foreign.json"), "{}").unwrap();
    std::fs::create_dir(node.state("ledger/a-directory")).unwrap();
    node.start();
    named(&node, "foreign", "ledger/");
    others(&node, "foreign");
}

#[test]
fn a_damaged_outbox_record_is_set_aside_and_one_that_lost_its_request_is_not() {
    let mut node = killed();
    let file = only(node.state("outbox"));
    each_damage(&mut node, &file, |node, how| {
        others(node, how);
        let agent = node.agent("leaving").unwrap();
        match node.outbox().len() {
            // Its head is whole: whether it arrived can be asked.
            1 => assert_eq!(agent["status"], "departing", "{how}"),
            _ => {
                named(node, how, "outbox/");
                assert_eq!(agent["status"], "idle", "{how}");
                assert!(node.state("outbox").read_dir().unwrap().count() == 1, "{how}");
            }
        }
    });
}

#[test]
fn damaged_lines_of_known_agents_are_passed_over_and_a_copy_is_kept() {
    let mut node = killed();
    let file = node.state("meta/known.jsonl");
    each_damage(&mut node, &file, |node, how| {
        others(node, how);
        assert!(node.has("hurt"), "{how}");
        let lost = matches!(how, "a list" | "a number" | "a text of somebody's" | "deep");
        if lost {
            named(node, how, "known.jsonl.damaged");
        }
    });
}

#[test]
fn a_damaged_replay_memory_counts_as_one_that_may_have_held_anything() {
    let mut node = killed();
    // Accepted before the damage.
    node.start();
    let line = crate::lines::admin("invoke_agent", json!({"agent_id": "whole"}));
    assert!(node.line(&line.line).is_ok());
    node.kill();
    let second = agentcontainer::wire::unix_now();
    crate::support::lab::until(5, "a second later", || agentcontainer::wire::unix_now() > second + 1);
    let file = node.state("meta/replay.log");
    each_damage(&mut node, &file, |node, how| {
        let answer = node.line(&line.line);
        assert!(matches!(answer.code(), Some("stale_timestamp" | "replayed")), "{how}: {}", answer.line());
        others(node, how);
        named(node, how, "replay.log");
    });
}

#[test]
fn a_damaged_note_of_where_the_node_listens_is_written_anew() {
    let mut node = killed();
    node.start();
    node.kill();
    let file = node.state("node.json");
    each_damage(&mut node, &file, |node, how| others(node, how));
}

#[test]
fn what_is_none_of_the_nodes_is_left_alone() {
    let mut node = killed();
    std::fs::create_dir_all(node.state("agents/.snapshot")).unwrap();
    std::fs::create_dir_all(node.state("agents/name with blanks/state")).unwrap();
    std::fs::write(node.state("agents/a-file"), "x").unwrap();
    std::fs::create_dir_all(node.state("agents/empty/harness/7")).unwrap();
    std::fs::write(node.state("agents/whole/harness/note.txt"), "x").unwrap();
    std::fs::write(node.state("agents/whole/README"), "x").unwrap();
    std::fs::write(node.state("agents/whole/harness/x.unfinished"), "x").unwrap();
    std::fs::create_dir_all(node.state("outbox/superseded")).unwrap();
    for _ in 0..2 {
        node.start();
        others(&node, "foreign");
        assert!(!node.has("empty") && !node.has("a-file"));
        for kept in
            ["agents/.snapshot", "agents/name with blanks/state", "agents/a-file", "agents/whole/README"]
        {
            assert!(node.state(kept).exists(), "{kept}");
        }
        assert!(!node.state("agents/whole/harness/x.unfinished").exists());
        node.kill();
    }
}
