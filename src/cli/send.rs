//! `send`: an agent's journey, from a stage and back to it.

use super::agents::{activation_fault, agent_in, member};
use super::args::Given;
use super::ask::{ask, patience};
use super::fault::{Answered, Fault, UNREACHED};
use super::follow::Follow;
use super::secrets::{self, Caller};
use super::temporary::Temporary;
use super::{out, outbox, tls, token};
use crate::agent::Manifest;
use crate::log::Show;
use crate::node::config::{is_loopback, TlsKeys};
use crate::node::{Admits, Keys};
use crate::roster::token::METADATA;
use crate::wire::{self, json::quote, Address, Failure, ReceivedAnswer};
use serde_json::value::RawValue;
use serde_json::{json, Value};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::mpsc::{sync_channel, Receiver, RecvTimeoutError};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a journey may take unless told otherwise, seconds.
const JOURNEY: f64 = 60.0;
/// How often the stage is looked at.
const LOOK: Duration = Duration::from_millis(10);
/// What the nodes behind get at the end to pass their answers on.
const FAREWELL: Duration = Duration::from_secs(1);

/// How the agent came home.
struct Home {
    outcome: Result<Box<RawValue>, Failure>,
    trace: Vec<Value>,
}

/// `send`.
pub fn run(given: &Given) -> Result<(), Fault> {
    let file = given.word_path(0)?;
    if given.flag("queue") {
        if let Some(option) = ["stage-host", "timeout"].into_iter().find(|name| given.flag(name)) {
            let text = format!(
                "--{option} says something about a stage of its own; with --queue the node here is the stage"
            );
            return Err(Fault::Usage(text));
        }
        let activate = given.json("activate")?;
        let (agent, _) = agent_in(&file)?;
        let metadata = token::into_metadata(given, None)?;
        return outbox::queue(given, &agent, given.word(1)?, activate.as_deref(), metadata.as_deref(), true);
    }
    let target = given.address(1)?;
    let activate = given.json("activate")?.unwrap_or_else(|| "{}".into());
    let seconds = given.seconds("timeout")?.unwrap_or(JOURNEY);
    let stage_host = given.text("stage-host")?.map(str::to_owned);
    if let Some(host) = &stage_host {
        Address::new(host, 1).map_err(|why| Fault::Usage(format!("--stage-host: {why}")))?;
    }
    let (agent, manifest) = agent_in(&file)?;
    let itself = || Caller {
        sender: manifest.id.clone(),
        secret: manifest.secret.clone(),
        found: format!("the AGENT_SECRET of {}", file.display()),
    };
    let caller = secrets::find(given, Some(&target), None)?.unwrap_or_else(itself);

    let shown = tls::identity(given)?;
    if shown.is_none() && target.tls.is_some() && !is_loopback(&target.host) {
        out::note(
            "the stage speaks plain TCP: the agent's last hop home can be read on its way; see --tls-cert",
        );
    }
    let stage = open_stage(&target, stage_host, seconds, &manifest, shown)?;
    let stage_json = stage.with(|running| running.node.told_to(&target, "name"))?;
    let mut metadata = json!({"stage": stage_json});
    if let Some(token) = token::given(given)? {
        metadata[METADATA] = token;
    }
    let payload = payload(&agent, &activate, seconds, &metadata);

    let follow = Arc::new(Follow::new(itself(), target.clone(), std::io::stderr().is_terminal()));
    let deadline = Instant::now() + Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX / 4);
    let answers = in_thread("ship", {
        let (target, patience) = (target.clone(), patience(Some(seconds)));
        move || ask(&target, &caller, "receive_agent", &payload, patience)
    })?;
    let _asking = in_thread("follow", {
        let follow = Arc::clone(&follow);
        move || follow.keep_asking()
    })?;
    let journey = Journey { given, stage: &stage, follow: &follow, target: &target, id: &manifest.id };
    let ended = journey.wait(&answers, deadline);
    follow.end();
    ended
}

/// A node that only this agent may come to.
fn open_stage(
    target: &Address,
    advertise_host: Option<String>,
    seconds: f64,
    manifest: &Manifest,
    shown: Option<(PathBuf, PathBuf)>,
) -> Result<Temporary, Fault> {
    let v6 = target.host.parse::<std::net::Ipv6Addr>().is_ok();
    let local = is_loopback(&target.host) && advertise_host.as_deref().is_none_or(is_loopback);
    let listen_host = match (local, v6) {
        (true, false) => "127.0.0.1",
        (true, true) => "::1",
        (false, false) => "0.0.0.0",
        (false, true) => "::",
    };
    let keys = Keys {
        container_name: format!("stage-{}", std::process::id()),
        listen_host: listen_host.into(),
        listen_port: 0,
        advertise_host,
        tls: shown.map(|(certificate, key)| TlsKeys {
            certificate,
            key,
            client_ca: None,
            client_certificates: None,
            peer_ca: None,
        }),
        parked_workers: 1,
        hook_timeout_s: seconds,
        ..Keys::default()
    };
    let stage = Temporary::start(keys, Admits::Only(manifest.id.clone()), Show::Agents)?;
    stage.with(|running| running.node.expect(&manifest.id, manifest.secret.clone()))?;
    Ok(stage)
}

/// The payload of `receive_agent`, as from the stage.
fn payload(agent: &str, activate: &str, seconds: f64, metadata: &Value) -> String {
    let stage = &metadata["stage"];
    let mut hop = json!({"node": stage["name"], "host": stage["host"], "port": stage["port"], "time": wire::unix_now()});
    if let Some(tls) = stage.get("tls") {
        hop["tls"] = tls.clone();
    }
    format!(
        "{{{agent},\"activate_payload\":{activate},\"mode\":\"move\",\"trace\":[{hop}],\
         \"agent_metadata\":{metadata},\"timeout\":{seconds}}}"
    )
}

fn in_thread<T: Send + 'static>(
    name: &str,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<Receiver<T>, Fault> {
    let (tell, told) = sync_channel(1);
    std::thread::Builder::new()
        .name(name.into())
        .spawn(move || {
            let _ = tell.send(job()); // nobody waits any more: the agent is home, or time is up
        })
        .map_err(|error| Fault::Local(format!("starting a thread: {error}")))?;
    Ok(told)
}

/// A journey under way.
struct Journey<'a> {
    given: &'a Given,
    stage: &'a Temporary,
    follow: &'a Follow,
    target: &'a Address,
    id: &'a str,
}

type Shipped = Result<ReceivedAnswer, Fault>;

impl Journey<'_> {
    /// Waits until the agent is home, will never be, or the time is up.
    fn wait(&self, answers: &Receiver<Shipped>, deadline: Instant) -> Result<(), Fault> {
        let mut answered: Option<ReceivedAnswer> = None;
        let mut waiting = true;
        loop {
            if let Some(home) = self.home()? {
                self.follow.tell("home");
                if waiting {
                    // The nodes behind us pass their answers on, the first one to us.
                    let _ = answers.recv_timeout(FAREWELL);
                }
                self.stage.end(FAREWELL);
                return self.print(home);
            }
            if Instant::now() >= deadline {
                return self.late(answered.as_ref());
            }
            if !waiting {
                std::thread::sleep(LOOK);
                continue;
            }
            match answers.recv_timeout(LOOK) {
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => waiting = false,
                Ok(shipped) => {
                    waiting = false;
                    answered = self.shipped(shipped)?;
                }
            }
        }
    }

    /// What the first node answered. An error is the end of it, unless the agent may be on its way.
    fn shipped(&self, shipped: Shipped) -> Result<Option<ReceivedAnswer>, Fault> {
        let answer = match shipped {
            Ok(answer) => answer,
            Err(fault @ Fault::Unreached(_)) if self.follow.last_seen().is_none() => return Err(fault),
            // The connection broke, and the agent was seen: it goes on without the answer.
            Err(Fault::Unreached(why)) => {
                out::note(&why);
                return Ok(None);
            }
            Err(fault) => return Err(fault),
        };
        if let Some(fault) =
            activation_fault(answer.node().unwrap_or("the node"), answer.result().unwrap_or("null"))
        {
            // It may have moved on before it raised.
            if self.follow.is_at(self.target) {
                return Err(match fault {
                    Fault::Answered(error) => {
                        let stays = format!("{} stays on {}", self.id, error.node);
                        error.advised(stays).into()
                    }
                    fault => fault,
                });
            }
        }
        Ok(Some(answer))
    }

    /// The agent, if it is on the stage and its hook there has ended.
    fn home(&self) -> Result<Option<Home>, Fault> {
        self.stage.with(|running| {
            let record = running.node.agent(self.id)?;
            if record.life.is_departing() || record.life.is_over() {
                return None; // only passing through
            }
            Some(Home { outcome: record.outcome()?, trace: record.trace.clone() })
        })
    }

    fn print(&self, home: Home) -> Result<(), Fault> {
        // The first hop is the stage itself.
        let hops = home.trace.get(1..).unwrap_or_default();
        let result = home.outcome.map_err(|failure| {
            let mut error = json!({"code": failure.code.as_str(), "error": failure.message});
            for (name, value) in &failure.fields {
                error[*name] = serde_json::from_str(value.get()).unwrap_or_default();
            }
            Fault::from(Answered::from_activation("home", &error))
        })?;
        if self.given.flag("json") {
            let trace = Value::from(hops.to_vec());
            let text =
                format!("{{\"agent_id\":{},\"result\":{},\"trace\":{trace}}}", quote(self.id), result.get());
            return out::result(&text, true);
        }
        let names: Vec<&str> = hops.iter().filter_map(|hop| hop.get("node")?.as_str()).collect();
        out::note(&format!("{} is home; it was on {}", self.id, names.join(", ")));
        out::result(result.get(), false)
    }

    /// Time is up: what is known of it, and what the first node answered.
    fn late(&self, answered: Option<&ReceivedAnswer>) -> Result<(), Fault> {
        let seen = match self.follow.last_seen() {
            Some(seen) if seen.here => format!("it is on {} ({})", seen.node, seen.address),
            Some(seen) => format!("it was last seen on {} ({}), and has left", seen.node, seen.address),
            None => format!("it was not seen anywhere, not on {} either", self.target),
        };
        let mut text = format!("{} did not come home in time; {seen}", self.id);
        let result = answered.and_then(|answer| answer.result());
        match result {
            Some(_) => text.push_str("; the first node's answer is on standard output"),
            None => text.push_str("; the first node has not answered yet"),
        }
        out::note(&text);
        if let Some(result) = result {
            let shown = match self.given.flag("json") {
                true => result,
                false => member(result, "activate_result").unwrap_or(result),
            };
            out::result(shown, self.given.flag("json"))?;
        }
        Err(Fault::Status(UNREACHED))
    }
}
