//! Lines over real sockets, and the tools that others speak the protocol with.
#![allow(dead_code)] // each test file uses a part of it

use crate::support::lab::{Lab, ADMIN};
use crate::support::TempDir;
use agentcontainer::node::Keys;
use agentcontainer::wire::{self, ReceivedAnswer, RequestOptions, Secret, SignedRequest};
use serde_json::{json, Value};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A connection to a node.
pub struct Peer {
    pub stream: TcpStream,
    rest: Vec<u8>,
}

impl Peer {
    pub fn to(lab: &Lab) -> Peer {
        Peer::connect(lab.running.node.port()).unwrap()
    }

    /// A connection to whatever listens on this port here.
    pub fn connect(port: u16) -> std::io::Result<Peer> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Peer { stream, rest: Vec::new() })
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// The next line; `None` at the orderly end.
    pub fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(String::from_utf8(line[..end].to_vec()).unwrap());
            }
            let mut chunk = [0; 65536];
            match self.stream.read(&mut chunk) {
                Ok(0) => {
                    assert!(self.rest.is_empty(), "half a line: {}", String::from_utf8_lossy(&self.rest));
                    return None;
                }
                Ok(count) => self.rest.extend_from_slice(&chunk[..count]),
                Err(error) => panic!("no line: {error}"),
            }
        }
    }

    pub fn answer(&mut self) -> ReceivedAnswer {
        ReceivedAnswer::parse(self.line().expect("an answer")).unwrap()
    }

    pub fn no_more_to_send(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }
}

/// A message of the admin's, signed.
pub fn admin(kind: &str, payload: Value) -> SignedRequest {
    signed(kind, "admin", ADMIN, &payload.to_string(), RequestOptions::default())
}

/// One that keeps the connection open.
pub fn kept(kind: &str, payload: Value) -> SignedRequest {
    let options = RequestOptions { keep_alive: true, ..RequestOptions::default() };
    signed(kind, "admin", ADMIN, &payload.to_string(), options)
}

/// One that was stamped `offset` seconds from now.
pub fn stamped(kind: &str, sender: &str, secret: &str, payload: &str, offset: i64) -> SignedRequest {
    let timestamp = Some(wire::unix_now() + offset);
    signed(kind, sender, secret, payload, RequestOptions { timestamp, ..RequestOptions::default() })
}

pub fn signed(
    kind: &str,
    sender: &str,
    secret: &str,
    payload: &str,
    options: RequestOptions,
) -> SignedRequest {
    wire::signed_request(kind, sender, &Secret::new(secret).unwrap(), payload, options).unwrap()
}

/// A line with the members as they stand in `members` (no braces), signed by the admin: for what the
/// library's own signer would not write.
pub fn handmade(members: &str) -> String {
    let text = format!("{{{members}}}");
    let canonical = wire::canonical(&wire::parse(&text).unwrap(), wire::Form::Ascii, None);
    let signature = wire::hex::encode(&Secret::new(ADMIN).unwrap().sign(&canonical));
    format!("{{{members},\"signature\":\"{signature}\"}}")
}

/// Sends one line and gives the answer to it.
pub fn send(lab: &Lab, line: &str) -> ReceivedAnswer {
    let mut peer = Peer::to(lab);
    peer.send(format!("{line}\n"));
    peer.answer()
}

/// The code of an answer that must be an error.
#[track_caller]
pub fn code(answer: &ReceivedAnswer) -> String {
    answer.code().unwrap_or_else(|| panic!("no error: {}", answer.line())).to_owned()
}

/// A top-level member of an answer.
pub fn member(answer: &ReceivedAnswer, name: &str) -> Value {
    answer.field(name).map_or(Value::Null, |text| serde_json::from_str(text).unwrap())
}

/// The word that says where a transfer stands.
pub fn word(answer: &ReceivedAnswer) -> String {
    member(answer, "transfer").as_str().unwrap_or("").to_owned()
}

pub fn is_signed(answer: &ReceivedAnswer, secret: &str, request: &SignedRequest) -> bool {
    answer.genuine(&Secret::new(secret).unwrap(), &request.nonce)
}

/// Adds an operator to a node's keys.
pub fn operator(keys: &mut Keys, dir: &TempDir, name: &str, allow: &[&str]) {
    dir.write(&format!("{name}.secret"), format!("secret of {name}\n"));
    let file = dir.path().join(format!("{name}.secret"));
    let operator = serde_json::from_value(json!({"secret_file": file, "allow": allow})).unwrap();
    keys.operators.insert(name.into(), operator);
}

/// Runs a program with arguments, environment and input; what it printed, if it ended well.
pub fn run(program: &str, arguments: &[&str], envs: &[(&str, &str)], input: &str) -> Result<String, String> {
    let mut child = Command::new(program)
        .args(arguments)
        .envs(envs.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("starting {program}: {error}"))?;
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let _ = writer.join().unwrap(); // a program need not read it all
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(printed);
    }
    Err(format!("{program}: {}\n{printed}\n{}", output.status, String::from_utf8_lossy(&output.stderr)))
}

/// An agent that counts its messages: `{"count"}` is how many it got.
pub const COUNTER: &str = "\
AGENT_ID = \"counter\"
AGENT_SECRET = \"secret of counter\"

class Agent:
    def __init__(self):
        self.count = 0
    def on_message(self, ctx, message):
        self.count += 1
        return {\"count\": self.count, \"got\": message}
";
