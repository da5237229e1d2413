//! A full disk, 1 MB of tmpfs in a mount namespace of the node's own: clear errors, old state intact, and on
//! it goes when there is room.

use super::node::{secret_of, stands, Node, Reply, Stage};
use crate::support::cli::Server;
use crate::support::lab::agent;
use agentcontainer::wire::RequestOptions;
use serde_json::{json, Value};
use std::path::{Path, PathBuf};
use std::process::Command;

const KEEPS: &str = "def __init__(self):\n    self.text = ''\ndef on_message(self, ctx, m):\n    if m.get('go'):\n        try:\n            return ctx.move('far', {})\n        except Exception as error:\n            return [error.code, str(error)]\n    if 'text' in m:\n        self.text = 'x' * m['text']\n    return len(self.text)";

/// A node whose state directory is a small disk, and where its files are seen from outside.
struct Small {
    node: Node,
    server: Server,
    root: PathBuf,
}

/// None, where the tester may not mount.
fn small(children: &[(&str, u16)]) -> Option<Small> {
    let node = Node::new("small", children).with("memory_fsync", json!("interval"));
    std::fs::create_dir_all(node.state("")).unwrap();
    let probe = Command::new("unshare").args(["-m", "true"]).status();
    if !rustix::process::getuid().is_root() || !probe.is_ok_and(|status| status.success()) {
        println!("passed over: only root may mount a small disk");
        return None;
    }
    let server = start(&node, "mount -t tmpfs -o size=1m,mode=700 none \"$STATE\" && ");
    let root = PathBuf::from(format!("/proc/{}/root", server.child.id()));
    Some(Small { node, server, root })
}

fn start(node: &Node, before: &str) -> Server {
    let plain = node.command();
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", &format!("{before}exec \"$0\" \"$@\"")]);
    command.arg(plain.get_program()).args(plain.get_args()).env("STATE", node.state(""));
    command.stdout(std::process::Stdio::null());
    let log = std::fs::OpenOptions::new().append(true).create(true).open(node.dir.path().join("log"));
    command.stderr(log.unwrap());
    let child = command.spawn().unwrap();
    let seen = PathBuf::from(format!("/proc/{}/root{}", child.id(), node.state("").display()));
    Server::wait(child, seen)
}

impl Small {
    /// A path in the node's own namespace.
    fn inside(&self, below: &str) -> PathBuf {
        self.root.join(self.node.state(below).strip_prefix("/").unwrap())
    }

    /// Fills the disk up to the last byte.
    fn fill(&self) {
        fill_up(&self.inside("filler"));
    }

    fn make_room(&self) {
        std::fs::remove_file(self.inside("filler")).unwrap();
    }

    /// The files of the node, with what is in them, but what every message adds a line to, what is derived, and the
    /// filler.
    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files = Vec::new();
        let mut waiting = vec![self.inside("")];
        while let Some(dir) = waiting.pop() {
            for entry in std::fs::read_dir(&dir).unwrap().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    waiting.push(path);
                } else if path.is_file() // admin.sock is none
                    && !["filler", "replay.log", "journal.head", "topology.json"].iter().any(|name| path.ends_with(name))
                    && path.extension().is_none_or(|kind| kind != "jsonl" || path.ends_with("known.jsonl"))
                {
                    files.push((path.clone(), std::fs::read(&path).unwrap()));
                }
            }
        }
        files.sort();
        files
    }

    #[track_caller]
    fn busy(&self, kind: &str, payload: Value, what: &str) {
        let (code, text) = self.node.err(kind, payload);
        assert!(code == "busy" && text.contains(what) && text.contains("No space left"), "{code}: {text}");
    }
}

fn arrival(id: &str, file: &str) -> agentcontainer::wire::SignedRequest {
    let content = agentcontainer::base64::encode(file.as_bytes());
    let state = json!({"memory": {"text": ""}, "files": [{"path": "note", "content_base64": content}]});
    let payload = json!({"source_code": agent(id, KEEPS), "state": state, "transfer_id": format!("t-{id}-{}", file.len())});
    crate::lines::signed(
        "receive_agent",
        id,
        secret_of(id).expose(),
        &payload.to_string(),
        RequestOptions::default(),
    )
}

#[test]
fn on_a_full_disk_errors_say_what_could_not_be_written_and_nothing_is_lost() {
    let far = Stage::play(|_, got| match got.kind.as_str() {
        "transfer_forget" => Reply::Signed(stands("unknown", Value::Null)),
        _ => Reply::Signed(stands("done", json!({}))),
    });
    let Some(small) = small(&[("far", far.port)]) else { return };
    let node = &small.node;
    node.deploy(&agent("keeper", KEEPS));
    assert_eq!(node.invoke("keeper", json!({"text": 1000})), 1000);
    node.deploy(&agent("goer", KEEPS));
    for _ in 0..2 {
        small.fill();
        let before = small.files();
        // What changes nothing goes on, and so does what only asks.
        assert_eq!(node.invoke("keeper", json!({})), 1000);
        assert_eq!(node.list().as_array().unwrap().len(), 2);
        small.busy("deploy_agent", json!({"source_code": agent("new", KEEPS)}), "the record of new");
        small.busy("deploy_agent", json!({"source_code": agent("keeper", KEEPS)}), "the record of keeper");
        let answer = node.line(&arrival("guest", &"long".repeat(5000)).line);
        assert_eq!(
            (answer.code(), answer.field("transfer")),
            (Some("busy"), Some("\"untouched\"")),
            "{}",
            answer.line()
        );
        assert!(answer.error().unwrap().contains("could not write the agent's"), "{}", answer.line());
        let told = node.invoke("goer", json!({"go": 1}));
        assert!(told[0] == "busy" && told[1].as_str().unwrap().contains("the transfer of goer"), "{told}");
        small.busy(
            "invoke_agent",
            json!({"agent_id": "keeper", "message": {"text": 20_000}}),
            "the memory of keeper",
        );
        assert_eq!(small.files(), before, "old state intact, nothing half-written");
        assert_eq!((far.count("receive_agent"), node.list().as_array().unwrap().len()), (0, 2));
        small.make_room();
        // The hook had run: what it left is kept at the next one's end.
        assert_eq!(node.invoke("keeper", json!({})), 20_000);
        assert_eq!(node.invoke("keeper", json!({"text": 1000})), 1000);
    }
    // With room it all works.
    assert!(node.line(&arrival("guest", "short").line).is_ok());
    node.deploy(&agent("new", KEEPS));
    assert_eq!(node.invoke("goer", json!({"go": 1}))["transfer"], "done");
    assert!(!node.has("goer"));
}

#[test]
fn a_full_replay_memory_takes_questions_only_and_promises_nothing() {
    let Some(small) = small(&[]) else { return };
    let node = &small.node;
    node.deploy(&agent("keeper", KEEPS));
    small.fill();
    // The room that it has set aside is used up by and by.
    let full = (0..3000).any(|_| {
        let answer = node.ask("invoke_agent", json!({"agent_id": "keeper"}));
        assert!(answer.is_ok() || answer.error().unwrap().contains("the replay memory"), "{}", answer.line());
        !answer.is_ok()
    });
    assert!(full, "the disk is full");
    assert_eq!(node.list().as_array().unwrap().len(), 1);
    let request = arrival("guest", "x");
    let answer = node.line(&request.line);
    assert_eq!((answer.code(), answer.field("transfer")), (Some("busy"), None), "{}", answer.line());
    let text = std::fs::read_to_string(small.inside("meta/replay.log")).unwrap();
    assert!(text.ends_with('\n'), "no half a line");
    small.make_room();
    assert_eq!(node.invoke("keeper", json!({})), 0);
    let text = std::fs::read_to_string(small.inside("meta/replay.log")).unwrap();
    let is_whole =
        |line: &str| line.split(' ').count() == 3 || line.starts_with("floor ") || line.starts_with("boot ");
    assert!(text.lines().all(is_whole), "{text}");
}

#[test]
fn an_outcome_that_a_full_disk_does_not_take_is_recorded_when_there_is_room() {
    let filled = std::sync::Arc::new(std::sync::Mutex::new(None::<PathBuf>));
    let fills = std::sync::Arc::clone(&filled);
    let far = Stage::play(move |_, got| {
        if got.kind == "receive_agent" {
            // The disk fills while the agent is on its way.
            fill_up(fills.lock().unwrap().as_deref().unwrap());
        }
        Reply::Signed(stands("done", json!({})))
    });
    let Some(small) = small(&[("far", far.port)]) else { return };
    *filled.lock().unwrap() = Some(small.inside("filler"));
    let node = &small.node;
    node.deploy(&agent("goer", KEEPS));
    let told = node.invoke("goer", json!({"go": 1}));
    assert_eq!(told["transfer"], "done");
    assert!(!node.has("goer"));
    small.make_room();
    crate::support::lab::until(40, "its record is closed", || {
        std::fs::read_dir(small.inside("outbox")).unwrap().count() == 0 && far.count("transfer_forget") > 0
    });
    let _ = &small.server;
}

fn fill_up(file: &Path) {
    let mut filler = std::fs::OpenOptions::new();
    let mut filler = filler.append(true).create(true).open(file).unwrap();
    let (block, byte) = (vec![b'x'; 4096], b"x");
    while std::io::Write::write_all(&mut filler, &block).is_ok() {}
    while std::io::Write::write_all(&mut filler, byte).is_ok() {}
}
