//! A node of the binary that a test kills and starts again, and what plays a destination.

use crate::support::cli::{Server, BINARY};
use crate::support::lab::ADMIN;
use crate::support::TempDir;
use agentcontainer::wire::{self, Answer, ReceivedAnswer, Request, RequestOptions, Secret};
use serde_json::{json, Value};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A node with a state directory of its own; it runs, or it does not.
pub struct Node {
    pub dir: TempDir,
    pub port: u16,
    name: String,
    keys: Value,
    server: Option<Server>,
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Node {
    /// A node that does not run yet, with these others below it in its tree.
    pub fn new(name: &str, children: &[(&str, u16)]) -> Node {
        let port = free_port();
        let child = |(name, port): &(&str, u16)| json!({"name": name, "host": "127.0.0.1", "port": port});
        let children: Vec<Value> = children.iter().map(child).collect();
        let keys = json!({
            "container_name": name,
            "listen_port": port,
            "admin_secret": ADMIN,
            "parked_workers": 1,
            "hook_timeout_s": 20,
            "ruthless": true,
            "federation": {"name": name, "host": "127.0.0.1", "port": port, "children": children},
        });
        Node { dir: TempDir::new(&format!("durable-{name}")), port, name: name.into(), keys, server: None }
    }

    pub fn with(mut self, key: &str, value: Value) -> Node {
        self.keys[key] = value;
        self
    }

    /// A running one without others.
    pub fn alone(name: &str) -> Node {
        let mut node = Node::new(name, &[]);
        node.start();
        node
    }

    pub fn command(&self) -> Command {
        self.dir.write("node.config", self.keys.to_string());
        let log = std::fs::OpenOptions::new().append(true).create(true).open(self.dir.path().join("log"));
        let mut command = Command::new(BINARY);
        command
            .args(["server", "--config"])
            .arg(self.dir.path().join("node.config"))
            .arg("--state-dir")
            .arg(self.state(""))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.unwrap());
        command
    }

    pub fn start(&mut self) {
        self.start_with(&[]);
    }

    pub fn start_with(&mut self, environment: &[(&str, &str)]) {
        let mut command = self.command();
        command.envs(environment.iter().copied());
        self.server = Some(Server::wait(command.spawn().unwrap(), self.state("")));
    }

    /// Starts one that may end at once.
    pub fn start_to_crash(&mut self, place: &str) {
        let _ = std::fs::remove_file(self.state("node.json"));
        self.start_with(&[("AGENTCONTAINER_CRASH_AT", place)]);
    }

    pub fn pid(&self) -> u32 {
        self.server.as_ref().unwrap().child.id()
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        drop(self.server.take());
    }

    /// SIGTERM, and its end.
    pub fn stop(&mut self) {
        let mut server = self.server.take().unwrap();
        server.signal(rustix::process::Signal::TERM);
        assert!(server.end().success());
    }

    pub fn crash_and_restart(&mut self) {
        self.kill();
        self.start();
    }

    /// Waits until it has ended by itself.
    pub fn wait_for_crash(&mut self) {
        let status = self.server.take().unwrap().end();
        assert!(!status.success(), "{status}");
    }

    pub fn state(&self, below: &str) -> PathBuf {
        self.dir.path().join("state").join(below)
    }

    pub fn logged(&self) -> String {
        // The log has a writer of its own, which may be a moment behind.
        let read = || std::fs::read(self.dir.path().join("log")).unwrap_or_default();
        let mut bytes = read();
        for _ in 0..100 {
            std::thread::sleep(Duration::from_millis(50));
            let now = read();
            let text = String::from_utf8_lossy(&now);
            if now == bytes && (text.contains(" listening ") || text.contains("agentcontainer:")) {
                break;
            }
            bytes = now;
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Sends a line; what came back, if anything did.
    pub fn try_line(&self, line: &str) -> Option<ReceivedAnswer> {
        let address = wire::Address::new("127.0.0.1", self.port).unwrap();
        wire::exchange(&address, line, Instant::now() + Duration::from_secs(60), 64 << 20).ok()
    }

    #[track_caller]
    pub fn line(&self, line: &str) -> ReceivedAnswer {
        self.try_line(line).unwrap_or_else(|| panic!("no answer\n{}", self.logged()))
    }

    #[track_caller]
    pub fn ask(&self, kind: &str, payload: Value) -> ReceivedAnswer {
        let secret = Secret::new(ADMIN).unwrap();
        let payload = payload.to_string();
        let signed = wire::signed_request(kind, "admin", &secret, &payload, RequestOptions::default());
        let signed = signed.unwrap();
        let answer = self.line(&signed.line);
        assert!(answer.genuine(&secret, &signed.nonce), "not signed: {}\n{}", answer.line(), self.logged());
        answer
    }

    #[track_caller]
    pub fn ok(&self, kind: &str, payload: Value) -> Value {
        let answer = self.ask(kind, payload);
        assert!(answer.is_ok(), "{kind}: {}\n{}", answer.line(), self.logged());
        serde_json::from_str(answer.result().unwrap()).unwrap()
    }

    /// Code and text of a message that fails.
    #[track_caller]
    pub fn err(&self, kind: &str, payload: Value) -> (String, String) {
        let answer = self.ask(kind, payload);
        assert!(!answer.is_ok(), "{kind} should fail: {}", answer.line());
        (answer.code().unwrap().to_owned(), answer.error().unwrap().to_owned())
    }

    #[track_caller]
    pub fn deploy(&self, source: &str) -> Value {
        self.ok("deploy_agent", json!({"source_code": source, "activate_payload": {}}))
    }

    #[track_caller]
    pub fn invoke(&self, id: &str, message: Value) -> Value {
        self.ok("invoke_agent", json!({"agent_id": id, "message": message}))["result"].clone()
    }

    #[track_caller]
    pub fn list(&self) -> Value {
        self.ok("list_agents", json!({}))
    }

    /// Its line of the list.
    #[track_caller]
    pub fn agent(&self, id: &str) -> Option<Value> {
        self.list().as_array().unwrap().iter().find(|agent| agent["agent_id"] == id).cloned()
    }

    #[track_caller]
    pub fn has(&self, id: &str) -> bool {
        self.agent(id).is_some()
    }

    #[track_caller]
    pub fn outbox(&self) -> Vec<Value> {
        self.ok("list_outbox", json!({})).as_array().unwrap().clone()
    }

    /// The transfers whose files are there.
    pub fn outbox_files(&self) -> Vec<String> {
        let listed = std::fs::read_dir(self.state("outbox")).into_iter().flatten().flatten();
        let files = listed.filter(|entry| entry.path().is_file());
        files.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("---- log of {}\n{}", self.name, self.logged());
        }
    }
}

/// The secret of an agent that `lab::agent` makes.
pub fn secret_of(id: &str) -> Secret {
    Secret::new(&format!("secret of {id}")).unwrap()
}

/// What a played destination does with a request.
pub enum Reply {
    /// It closes the connection.
    Nothing,
    /// It says this, unsigned.
    Unsigned(Answer),
    /// It signs this as the sender.
    Signed(Answer),
    /// It signs this with another secret.
    Forged(Answer),
}

/// A request that a played destination got.
pub struct Got {
    pub kind: String,
    pub payload: Value,
    pub line: String,
}

impl Got {
    pub fn transfer(&self) -> &str {
        self.payload["transfer_id"].as_str().unwrap()
    }
}

/// Plays a destination that answers by a script; what it got is kept.
pub struct Stage {
    pub port: u16,
    pub got: Arc<Mutex<Vec<Got>>>,
}

impl Stage {
    pub fn play(script: impl Fn(usize, &Got) -> Reply + Send + Sync + 'static) -> Stage {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let got: Arc<Mutex<Vec<Got>>> = Arc::default();
        let kept = Arc::clone(&got);
        let script = Arc::new(script);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (kept, script) = (Arc::clone(&kept), Arc::clone(&script));
                std::thread::spawn(move || play_one(stream, &kept, &*script));
            }
        });
        Stage { port, got }
    }

    /// How many requests of a type came.
    pub fn count(&self, kind: &str) -> usize {
        self.got.lock().unwrap().iter().filter(|got| got.kind == kind).count()
    }
}

fn play_one(mut stream: TcpStream, kept: &Mutex<Vec<Got>>, script: &(dyn Fn(usize, &Got) -> Reply + Sync)) {
    let line = read_line(&stream);
    let Ok(request) = Request::parse(line.clone().into_bytes()) else { return };
    let payload = serde_json::from_str(request.payload()).unwrap();
    let got = Got { kind: request.kind.clone(), payload, line };
    let number = {
        let mut kept = kept.lock().unwrap();
        let number = kept.iter().filter(|before| before.kind == got.kind).count();
        kept.push(Got { kind: got.kind.clone(), payload: got.payload.clone(), line: got.line.clone() });
        number
    };
    let secret = secret_of(&request.sender);
    let line = match script(number, &got) {
        Reply::Nothing => return,
        Reply::Unsigned(answer) => answer.to_line(None),
        Reply::Signed(answer) => answer.to_line(Some((&request.nonce, &secret))),
        Reply::Forged(answer) => answer.to_line(Some((&request.nonce, &secret_of("somebody else")))),
    };
    let _ = writeln!(stream, "{line}");
}

/// An `ok` that says where a transfer stands, as an answer to any of the messages about it.
pub fn stands(word: &str, answer: Value) -> Answer {
    let result = match word {
        "unknown" => json!({"transfer": word}),
        _ => json!({"transfer": word, "answer": answer, "agent_id": "played"}),
    };
    Answer::ok("played", &result.to_string()).unwrap().field("transfer", &format!("\"{word}\"")).unwrap()
}

/// An error that says where a transfer stands.
pub fn fails(code: &str, word: &str) -> Answer {
    let failure = wire::Failure::new(code.parse().unwrap(), "it was played so");
    Answer::failure("played", &failure).field("transfer", &format!("\"{word}\"")).unwrap()
}

/// Stands between two nodes: each line that comes goes to `treat`, with a way to pass it on.
pub fn between(
    to: u16,
    treat: impl Fn(&str, &dyn Fn(&str) -> String) -> Option<String> + Send + Sync + 'static,
) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let treat = Arc::new(treat);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let treat = Arc::clone(&treat);
            std::thread::spawn(move || {
                let line = read_line(&stream);
                if line.is_empty() {
                    return;
                }
                if let Some(answer) = treat(&line, &|line| pass_on(line, to)) {
                    let _ = stream.write_all(answer.as_bytes());
                }
            });
        }
    });
    port
}

pub fn read_line(stream: &TcpStream) -> String {
    let mut line = String::new();
    let _ = BufReader::new(stream).read_line(&mut line);
    line
}

/// Sends a line on; the answer, or nothing.
fn pass_on(line: &str, to: u16) -> String {
    let Ok(mut far) = TcpStream::connect(("127.0.0.1", to)) else { return String::new() };
    let _ = far.write_all(line.as_bytes());
    read_line(&far)
}

/// Whether a line is a message of this type.
pub fn is(line: &str, kind: &str) -> bool {
    line.contains(&format!("\"type\":\"{kind}\""))
}
