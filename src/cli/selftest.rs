//! `selftest`: an agent that tries to get out, and ordinary things that must work, on this very machine.

use super::agents::{deploy_payload, invoke_payload, member};
use super::args::Given;
use super::ask::{ask, patience};
use super::fault::Fault;
use super::out;
use super::secrets::Caller;
use super::temporary::Temporary;
use crate::agent::python;
use crate::log::Show;
use crate::node::{Admits, Keys, Node};
use crate::wire::json::quote;
use crate::wire::Address;
use rustix::net::{bind, socket, AddressFamily, SocketAddrUnix, SocketType};
use serde::Deserialize;
use serde_json::{json, Value};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

const PROBE: &str = include_str!("../sandbox/probe_agent.py");
/// Stands by and is attacked.
const BYSTANDER: &str = "AGENT_ID = \"bystander\"\nAGENT_SECRET = \"the bystander's secret\"\nclass Agent:\n    def on_activate(self, ctx, payload):\n        with open(ctx.state_dir() + '/victim', 'w') as file:\n            file.write('mine')\n";
/// How long an attempt may take, seconds; the one that never ends, less.
const TIME: f64 = 30.0;
const ENDLESS: f64 = 3.0;

/// What the agent lists: kind, name, words, layer, rights.
#[derive(Deserialize)]
struct Entry(String, String, String, String, String);

/// What came of one.
struct Tried {
    entry: Entry,
    result: &'static str,
    as_it_should: bool,
    how: String,
}

/// `selftest`.
pub fn run(given: &Given) -> Result<(), Fault> {
    let python = given.path("python");
    python::locate(python.as_deref()).map_err(|error| Fault::Local(error.to_string()))?;
    let keys = Keys {
        container_name: "selftest".into(),
        listen_port: 0,
        python,
        parked_workers: 1,
        agent_processes: 200,
        ..Keys::default()
    };
    let temporary = Temporary::start(keys, Admits::Anyone, Show::Nothing)?;
    let (node, state_dir) =
        temporary.with(|running| (Arc::clone(&running.node), running.state_dir.clone()))?;
    let version = node.pool.start().map_err(|error| Fault::Local(error.to_string()))?;
    let secret = node.config().admin_secrets.first().cloned();
    let secret = secret.ok_or_else(|| Fault::Local("the node has no secret".into()))?;
    let asker = Asker {
        caller: Caller { sender: "admin".into(), secret, found: "the node itself".into() },
        address: Address { host: "127.0.0.1".into(), port: node.port(), tls: None },
    };
    let (facts, _held) = scene(&node, &state_dir, &asker)?;
    let listed = asker.invoke("plain", "\"list\"", TIME)?;
    let entries: Vec<Entry> = serde_json::from_str(&listed)
        .map_err(|error| Fault::Local(format!("the agent's list makes no sense: {error}")))?;
    let tried = entries.into_iter().map(|entry| asker.attempt(&node, entry, &facts));
    let tried = tried.collect::<Result<Vec<_>, _>>()?;
    let level = node.pool.sandbox().level().to_string();
    drop(temporary);
    let well = tried.iter().all(|one| one.as_it_should);
    let stopped = tried.iter().filter(|one| one.result == "stopped").count();
    if given.flag("json") {
        let rows: Vec<Value> = tried.iter().map(Tried::to_json).collect();
        let all = json!({"ok": well, "level": level, "python": version, "stopped": stopped, "tried": rows});
        out::result(&all.to_string(), true)?;
    } else {
        for one in &tried {
            let mark = if one.as_it_should { " " } else { "!" };
            let Entry(kind, name, words, ..) = &one.entry;
            out::line(&format!("{mark} {kind:<8} {name:<20} {:<8} {words}: {}", one.result, one.how))?;
        }
        out::line(&format!("level: {level}; Python {version}; {stopped} attempts stopped"))?;
    }
    if well {
        return Ok(());
    }
    Err(Fault::Local("not everything is as it should be at this level; the lines marked ! say what".into()))
}

impl Tried {
    fn to_json(&self) -> Value {
        let Entry(kind, name, words, layer, rights) = &self.entry;
        json!({"kind": kind, "name": name, "what": words, "layer": layer, "rights": rights,
            "result": self.result, "as_it_should": self.as_it_should, "how": self.how})
    }
}

struct Asker {
    caller: Caller,
    address: Address,
}

impl Asker {
    fn deploy(&self, source: &str) -> Result<(), Fault> {
        let payload = deploy_payload(&format!("\"source_code\":{}", quote(source)), Some("{}"), Some(TIME));
        ask(&self.address, &self.caller, "deploy_agent", &payload, patience(Some(TIME))).map(drop)
    }

    fn invoke(&self, id: &str, message: &str, time: f64) -> Result<String, Fault> {
        let payload = invoke_payload(id, message, Some(time));
        let answer = ask(&self.address, &self.caller, "invoke_agent", &payload, patience(Some(time)))?;
        Ok(answer.result().and_then(|result| member(result, "result")).unwrap_or("null").to_owned())
    }

    fn attempt(&self, node: &Node, entry: Entry, facts: &Value) -> Result<Tried, Fault> {
        let Entry(kind, name, _, layer, rights) = &entry;
        let attack = kind == "attack";
        let in_force = node.pool.sandbox().has(layer);
        if attack && !in_force {
            // Not tried: some would harm this machine.
            let how = format!("not tried: {layer} is not in force here");
            return Ok(Tried { entry, result: "open", as_it_should: true, how });
        }
        let message = json!({"kind": kind, "name": name, "facts": facts}).to_string();
        let time = if name == "cpu" { ENDLESS } else { TIME };
        let (done, how) = match self.invoke(rights, &message, time) {
            Ok(told) => {
                let told: Value = serde_json::from_str(&told).unwrap_or_default();
                (told["done"] == true, told["how"].as_str().unwrap_or_default().to_owned())
            }
            // The process ended: it did not get what it wanted.
            Err(Fault::Answered(answered)) => (false, answered.error),
            Err(other) => return Err(other),
        };
        let result = match (attack, done) {
            (true, false) => "stopped",
            (true, true) => "open",
            (false, true) => "works",
            (false, false) => "fails",
        };
        Ok(Tried { entry, result, as_it_should: done != attack, how })
    }
}

/// Puts everyone in place. The second is to be held while the attempts last.
fn scene(node: &Node, state_dir: &Path, asker: &Asker) -> Result<(Value, [OwnedFd; 2]), Fault> {
    let made = |what: &str, error: std::io::Error| Fault::Local(format!("making {what}: {error}"));
    let write = |path: &Path, text: &str| {
        std::fs::write(path, text).map_err(|error| made(&path.display().to_string(), error))
    };
    asker.deploy(BYSTANDER)?;
    for (id, asks) in [("plain", r#"["files"]"#), ("armed", r#"["files", "process", "sockets"]"#)] {
        let head = format!(
            "AGENT_ID = \"{id}\"\nAGENT_SECRET = \"the secret of {id}\"\nAGENT_CAPABILITIES = {asks}\n"
        );
        asker.deploy(&format!("{head}{PROBE}"))?;
    }
    let bystander = node.agent("bystander").ok_or_else(|| Fault::Local("the bystander is gone".into()))?;
    let other_home = state_dir.join("agents/bystander");
    let outside = state_dir.join("outside");
    for folder in [&outside, &other_home.join("config"), &state_dir.join("agents/plain/config")] {
        std::fs::create_dir_all(folder).map_err(|error| made(&folder.display().to_string(), error))?;
    }
    let data_file = state_dir.join("data/data.txt");
    write(&data_file, "data")?;
    for home in [&other_home, &state_dir.join("agents/plain")] {
        write(&home.join("config/agent.py"), "# the operator's")?;
    }
    let path = outside.join("s");
    let name = format!("agentcontainer-selftest-{}", std::process::id());
    let listening = |address: rustix::io::Result<SocketAddrUnix>| -> std::io::Result<OwnedFd> {
        let fd = socket(AddressFamily::UNIX, SocketType::DGRAM, None)?;
        bind(&fd, &address?)?;
        Ok(fd)
    };
    let held = [
        listening(SocketAddrUnix::new(&path)).map_err(|error| made("a socket", error))?,
        listening(SocketAddrUnix::new_abstract_name(name.as_bytes()))
            .map_err(|error| made("a socket", error))?,
    ];
    let facts = json!({
        "node": std::process::id(),
        "sibling": bystander.life.pid(),
        "port": node.port(),
        "state_dir": state_dir,
        "node_file": state_dir.join("node.json"),
        "data_file": data_file,
        "other": "bystander",
        "other_home": other_home,
        "other_state": bystander.state_dir(),
        "victim": bystander.state_dir().join("victim"),
        "outside": outside,
        "socket": path,
        "abstract": name,
    });
    Ok((facts, held))
}
