//! Nodes for tests: started in this process on a free port, driven over real sockets.
#![allow(dead_code)] // each test file uses a part of it

use agentcontainer::boot::{self, Out, Running, Start};
use agentcontainer::log::Show;
use agentcontainer::node::federation::TreeNode;
use agentcontainer::node::Keys;
use agentcontainer::wire::{self, Address, ReceivedAnswer, RequestOptions, Secret, Tls};
use serde_json::{json, Value};
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The admin's secret of every test node.
pub const ADMIN: &str = "an admin secret for tests";

/// A node with a state directory that goes with it.
pub struct Lab {
    pub running: Running,
    pub dir: super::TempDir,
    pub log: Arc<Mutex<Vec<u8>>>,
}

/// Keeps what a node logs.
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(data);
        Ok(data.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Keys for a test node; change what matters.
pub fn keys(name: &str) -> Keys {
    Keys {
        container_name: name.into(),
        listen_port: 0,
        admin_secret: Some(serde_json::from_value(json!(ADMIN)).unwrap()),
        parked_workers: 1,
        hook_timeout_s: 20.0,
        // Most tests count who is there.
        ruthless: true,
        ..Keys::default()
    }
}

impl Lab {
    pub fn start(name: &str) -> Lab {
        Lab::with(keys(name))
    }

    /// What the node's journal holds.
    pub fn journal(&self) -> String {
        let dir = self.dir.path().join("state/journal");
        let files = std::fs::read_dir(dir).unwrap().flatten().map(|entry| entry.path());
        files.filter_map(|file| std::fs::read_to_string(file).ok()).collect()
    }

    pub fn with(mut keys: Keys) -> Lab {
        let dir = super::TempDir::new(&keys.container_name);
        keys.state_dir.get_or_insert(dir.path().join("state"));
        if keys.data_root.is_none() {
            let data = dir.path().join("data");
            std::fs::create_dir_all(&data).unwrap();
            keys.data_root = Some(data);
        }
        let log = Arc::new(Mutex::new(Vec::new()));
        let running = boot::start(Start {
            out: Out::Stream(Box::new(Kept(Arc::clone(&log)))),
            show: Show::Events,
            self_exe: PathBuf::from(env!("CARGO_BIN_EXE_agentcontainer")),
            ..Start::new(keys)
        });
        Lab { running: running.unwrap(), dir, log }
    }

    pub fn address(&self) -> Address {
        let tls = self.running.node.config().tls.as_ref().map(|own| Tls::pinned(vec![own.fingerprint()]));
        Address::new("127.0.0.1", self.running.node.port()).unwrap().with_tls(tls)
    }

    /// This node in a tree.
    pub fn tree_node(&self, children: Vec<TreeNode>) -> TreeNode {
        TreeNode {
            children,
            ..TreeNode::leaf(self.running.node.name(), "127.0.0.1", self.running.node.port())
        }
    }

    pub fn logged(&self) -> String {
        String::from_utf8_lossy(&self.log.lock().unwrap()).into_owned()
    }

    /// Sends a signed message and returns the genuine answer, or says what came instead.
    pub fn ask_as(&self, sender: &str, secret: &str, kind: &str, payload: &str) -> ReceivedAnswer {
        let secret = Secret::new(secret).unwrap();
        let signed = wire::signed_request(kind, sender, &secret, payload, RequestOptions::default()).unwrap();
        let answer =
            wire::exchange(&self.address(), &signed.line, Instant::now() + Duration::from_secs(60), 64 << 20);
        let answer = answer.unwrap_or_else(|error| panic!("{kind}: {error}\n{}", self.logged()));
        assert!(
            answer.field("signature").is_none() || answer.genuine(&secret, &signed.nonce),
            "forged: {}",
            answer.line()
        );
        answer
    }

    pub fn ask(&self, kind: &str, payload: Value) -> ReceivedAnswer {
        self.ask_as("admin", ADMIN, kind, &payload.to_string())
    }

    /// The result of a message that succeeds.
    pub fn ok(&self, kind: &str, payload: Value) -> Value {
        let answer = self.ask(kind, payload);
        assert!(answer.is_ok(), "{kind}: {}\n{}", answer.line(), self.logged());
        serde_json::from_str(answer.result().unwrap()).unwrap()
    }

    /// Code and text of a message that fails.
    pub fn err(&self, kind: &str, payload: Value) -> (String, String) {
        let answer = self.ask(kind, payload);
        assert!(!answer.is_ok(), "{kind} should fail: {}", answer.line());
        (answer.code().unwrap().to_owned(), answer.error().unwrap().to_owned())
    }

    /// Deploys a source and activates it with `{}`.
    pub fn deploy(&self, source: &str) -> Value {
        self.ok("deploy_agent", json!({"source_code": source, "activate_payload": {}}))
    }

    pub fn invoke(&self, id: &str, message: Value) -> Value {
        self.ok("invoke_agent", json!({"agent_id": id, "message": message}))["result"].clone()
    }

    pub fn has(&self, id: &str) -> bool {
        self.running.node.agent(id).is_some()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.running.stop(Duration::from_secs(2));
        if std::thread::panicking() {
            eprintln!("---- log of {}\n{}", self.running.node.name(), self.logged());
        }
    }
}

/// An agent's source around the body of its class.
pub fn agent(id: &str, body: &str) -> String {
    let body: String = body.lines().map(|line| format!("    {line}\n")).collect();
    format!("AGENT_ID = \"{id}\"\nAGENT_SECRET = \"secret of {id}\"\n\nclass Agent:\n{body}")
}

/// Waits until `done`, at most `seconds`.
pub fn until(seconds: u64, what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    while !done() {
        assert!(Instant::now() < deadline, "not within {seconds} s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
