//! What the operator decides on this machine: agents declared in `agents/<id>/config/`, and who is to run
//! (`ctl`). The admin's messages have no part in it.

use super::arrive::disk_failure;
use super::stopped::Stop;
use super::{Admits, Node, Record};
use crate::agent::HookError;
use crate::journal::Event;
use crate::log::Level;
use crate::plain;
use crate::sync::lock;
use crate::wire::{Code, Failure};
use rustix::fs::OFlags;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{json, Map, Value};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest file of a declaration that is read, bytes.
const LONGEST: u64 = 16 << 20;
/// How long `ctl start` waits for an agent whose hook runs.
const TURN: Duration = Duration::from_secs(5);

/// `agent.json`, which may be missing.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declaration {
    /// Whether the node runs it by itself.
    #[serde(default)]
    pub autostart: bool,
    /// What `on_activate` gets; absent: `{}`.
    #[serde(default)]
    pub activate_payload: Option<Box<RawValue>>,
    /// Merged into its metadata.
    #[serde(default)]
    pub agent_metadata: Option<Map<String, Value>>,
}

/// What `config/` holds.
struct Declared {
    declaration: Declaration,
    source: String,
    /// Of both files: what failed once is not tried again before it is changed.
    digest: [u8; 32],
}

impl Node {
    /// Whether an agent may run.
    ///
    /// # Errors
    /// `rejected`: the operator stopped it, or it waits for the operator.
    pub(super) fn may_run(&self, id: &str) -> Result<(), Failure> {
        let why = match self.stopped.get(id) {
            Some(Stop::Killed) => "was stopped by the operator of this node (ctl kill)",
            Some(Stop::Suspended) => "is suspended: this node was started from a backup (server --restored)",
            _ => return Ok(()),
        };
        Err(Failure::new(Code::Rejected, format!("{id:?} {why}, and runs again after ctl start")))
    }

    /// Whether one may come under an id.
    ///
    /// # Errors
    /// `rejected`: the operator stopped it.
    pub(super) fn may_register(&self, id: &str) -> Result<(), Failure> {
        match self.stopped.get(id) {
            Some(Stop::Killed) => self.may_run(id),
            _ => Ok(()),
        }
    }

    /// One has been registered under an id: it is here now, and not away or of a backup any more.
    pub(super) fn is_here(&self, record: &Record) {
        match self.stopped.get(&record.id) {
            None => {}
            // While it was loaded.
            Some(Stop::Killed) => record.life.end_process("the operator stopped it"),
            Some(_) => self.tell_if_lost(self.stopped.clear(&record.id)),
        }
    }

    /// An agent has left for another node: a declared one is not to be started here by itself.
    pub(super) fn has_left(&self, id: &str) {
        if self.is_declared(id) {
            self.tell_if_lost(self.stopped.set(id, Stop::Away));
        }
    }

    /// The admin removed an agent. A declared one does not start by itself again.
    pub(super) fn was_removed(&self, id: &str) {
        let declared = self.is_declared(id);
        let changed = self.stopped.change(|stopped| match (stopped.get(id), declared) {
            (Some(Stop::Killed), true) => {}
            (_, true) => {
                stopped.insert(id.to_owned(), Stop::Removed);
            }
            (_, false) => {
                stopped.remove(id);
            }
        });
        self.tell_if_lost(changed);
    }

    fn tell_if_lost(&self, written: io::Result<()>) {
        if let Err(error) = written {
            self.not_written("who is not to run", &error);
        }
    }

    /// The node is a restored backup: everyone in it waits for the operator.
    ///
    /// # Errors
    /// It can't be written.
    pub(super) fn suspend_all(&self) -> io::Result<()> {
        let mut ids: Vec<String> = self.agents().iter().map(|record| record.id.clone()).collect();
        ids.extend(self.outbox.undecided().iter().map(|transfer| transfer.traveller.id.clone()));
        ids.extend(self.declared());
        self.stopped.change(|stopped| {
            for id in &ids {
                if stopped.get(id) != Some(&Stop::Killed) {
                    stopped.insert(id.clone(), Stop::Suspended);
                }
            }
        })?;
        let count = self.stopped.all(Stop::Suspended).len().to_string();
        self.log.event(Level::Warn, "agents_suspended", &[("count", &count)]);
        Ok(())
    }

    /// Whether a transfer of this agent waits, because it is suspended.
    pub(super) fn is_suspended(&self, id: &str) -> bool {
        self.stopped.get(id) == Some(Stop::Suspended)
    }

    /// Why an agent does not run, in a word, if it is not to.
    pub fn stop_word(&self, id: &str) -> Option<&'static str> {
        self.stopped.get(id).map(Stop::as_str)
    }

    /// `ctl start`: lets a stopped agent run again, or registers a declared one and activates it.
    ///
    /// # Errors
    /// `unknown_agent`; what is wrong with its `config/`; it does not load.
    pub fn control_start(self: &Arc<Self>, id: &str) -> Result<Value, Failure> {
        let before = self.known_here(id)?;
        self.let_run(id)?;
        let result = match self.agent(id) {
            Some(record) => self.load_now(&record).map(|()| json!({"agent_id": id, "registered": true})),
            None => self.register(id),
        };
        if result.is_err() {
            // As it was: killed, say.
            before.into_iter().for_each(|stop| self.tell_if_lost(self.stopped.set(id, stop)));
        }
        self.controlled("start", id, &result);
        result
    }

    /// `ctl start --all`: every suspended agent may run again.
    ///
    /// # Errors
    /// It can't be written.
    pub fn control_start_all(self: &Arc<Self>) -> Result<Value, Failure> {
        let suspended = self.stopped.all(Stop::Suspended);
        let changed = self.stopped.change(|stopped| stopped.retain(|_, stop| *stop != Stop::Suspended));
        changed.map_err(|error| disk_failure("who is to run", &error))?;
        self.roster_changed();
        for id in &suspended {
            self.controlled("start", id, &Ok(Value::Null));
        }
        Ok(json!({"started": suspended}))
    }

    /// `ctl kill`: ends an agent's process, and nothing starts another until `ctl start`.
    ///
    /// # Errors
    /// `unknown_agent`; it can't be written.
    pub fn control_kill(&self, id: &str) -> Result<Value, Failure> {
        self.known_here(id)?;
        self.stopped.set(id, Stop::Killed).map_err(|error| disk_failure("who is to run", &error))?;
        if let Some(record) = self.agent(id) {
            record.life.end_process("the operator stopped it");
        }
        let result = Ok(json!({"agent_id": id, "state": self.state_of(id).0}));
        self.controlled("kill", id, &result);
        result
    }

    /// `ctl restart`: a new process, with the memory and the source that the agent has.
    ///
    /// # Errors
    /// As [`Node::control_start`].
    pub fn control_restart(self: &Arc<Self>, id: &str) -> Result<Value, Failure> {
        self.known_here(id)?;
        if let Some(record) = self.agent(id) {
            record.life.end_process("the operator restarts it");
        }
        self.control_start(id)
    }

    /// `ctl rebuild`: loads `config/agent.py` afresh; the agent's memory and files stay.
    ///
    /// # Errors
    /// As [`Node::control_start`]; the agent that is here stays as it is.
    pub fn control_rebuild(self: &Arc<Self>, id: &str) -> Result<Value, Failure> {
        let before = self.known_here(id)?;
        if self.agent(id).is_some_and(|record| record.life.is_departing()) {
            return Err(Failure::new(Code::Busy, format!("a move of {id:?} is under way")));
        }
        let here = self.agent(id).is_some();
        let result = self.read_declared(id).and_then(|declared| {
            self.let_run(id)?;
            if !here {
                return self.register(id);
            }
            let deadline = Instant::now() + self.hook_limit();
            let Declared { declaration, source, .. } = declared;
            let (record, _turn) = self.deploy_declared(id, &source, declaration.agent_metadata, deadline)?;
            Ok(json!({"agent_id": id, "sequence": record.sequence}))
        });
        if result.is_err() {
            before.into_iter().for_each(|stop| self.tell_if_lost(self.stopped.set(id, stop)));
        }
        self.controlled("rebuild", id, &result);
        result
    }

    /// `ctl status`: all that is known here of an agent, but for secrets and source.
    ///
    /// # Errors
    /// `unknown_agent`.
    pub fn control_status(&self, id: &str) -> Result<Value, Failure> {
        self.known_here(id)?;
        let (state, live) = self.state_of(id);
        let record = self.agent(id);
        let declared = match self.is_declared(id) {
            true => self.read_declared(id).map(Some),
            false => Ok(None),
        };
        let current = match (&record, &declared) {
            (Some(record), Ok(Some(declared))) => Some(*record.life.spec.source == *declared.source),
            _ => None,
        };
        Ok(json!({
            "agent_id": id,
            "state": state,
            "live": live,
            "pid": record.as_ref().and_then(|record| record.life.pid()),
            "registered": record.is_some(),
            "sequence": record.as_ref().map(|record| record.sequence),
            "origin": record.as_ref().map(|record| record.origin.as_str()),
            "waiting": record.as_ref().map(|record| record.life.waiting()),
            "moved_to": lock(&self.registry).departed_to(id),
            "declared": self.is_declared(id),
            "autostart": declared.as_ref().ok().and_then(|declared| Some(declared.as_ref()?.declaration.autostart)),
            "runs_its_config": current,
            "config_error": declared.as_ref().err().map(|failure| failure.message.clone()),
        }))
    }

    /// Starts the declared agents that are to run by themselves and are neither here, nor stopped, nor away.
    pub(super) fn autostart(self: &Arc<Self>) {
        if self.is_stopping() || self.port() == 0 || self.admits != Admits::Anyone {
            return;
        }
        let declared = self.declared();
        lock(&self.autostarted).retain(|id, _| declared.contains(id));
        for id in declared {
            if self.agent(&id).is_some() || self.stopped.get(&id).is_some() {
                continue;
            }
            let read = self.read_declared(&id);
            let tried = read.as_ref().map_or([0; 32], |declared| declared.digest);
            if lock(&self.autostarted).insert(id.clone(), tried) == Some(tried) {
                continue; // it was started, or failed, as it is
            }
            match read {
                Ok(declared) if !declared.declaration.autostart => {}
                Ok(_) => {
                    let (node, ours) = (Arc::clone(self), id.clone());
                    self.in_background(move || {
                        if let Err(failure) = node.register(&ours) {
                            node.not_started(&ours, &failure);
                        }
                    });
                }
                Err(failure) => self.not_started(&id, &failure),
            }
        }
    }

    fn not_started(&self, id: &str, failure: &Failure) {
        let fields = [("agent", id), ("error", &*failure.to_string())];
        self.log.event(Level::Warn, "agent_not_started", &fields);
    }

    /// Registers a declared agent and activates it, unless somebody else does just now.
    fn register(self: &Arc<Self>, id: &str) -> Result<Value, Failure> {
        let Some(_alone) = Registering::begin(self, id) else {
            return Err(Failure::new(Code::Busy, format!("{id:?} is being started already")));
        };
        if let Some(record) = self.agent(id) {
            return Ok(json!({"agent_id": id, "sequence": record.sequence}));
        }
        let Declared { declaration, source, .. } = self.read_declared(id)?;
        let deadline = Instant::now() + self.hook_limit();
        let (record, turn) = self.deploy_declared(id, &source, declaration.agent_metadata, deadline)?;
        let payload = declaration.activate_payload.as_deref().map_or("{}", RawValue::get);
        let told = self.activate_declared(&record, &turn, payload, deadline)?;
        Ok(serde_json::from_str(told.get()).unwrap_or_default())
    }

    /// Gives an agent that is here a process, unless it is in the middle of something.
    fn load_now(self: &Arc<Self>, record: &Arc<Record>) -> Result<(), Failure> {
        let Ok(turn) = record.life.enter(Instant::now() + TURN) else { return Ok(()) };
        if record.life.pid().is_some() {
            return Ok(());
        }
        let _starting = self.make_room()?;
        let host = || (self.make_host)(self, record);
        turn.load(Instant::now() + self.hook_limit(), &host).map(drop).map_err(|error| match error {
            HookError::NoProcess(why) => Failure::new(Code::Internal, format!("{}: {why}", record.id)),
            error => Failure::new(Code::AgentError, format!("{}: {error}", record.id)),
        })
    }

    fn let_run(&self, id: &str) -> Result<(), Failure> {
        self.stopped.clear(id).map_err(|error| disk_failure("who is to run", &error))
    }

    /// Why an agent of this node does not run, if it is not to.
    fn known_here(&self, id: &str) -> Result<Option<Stop>, Failure> {
        let stop = self.stopped.get(id);
        match self.agent(id).is_some() || stop.is_some() || (is_id(id) && self.is_declared(id)) {
            true => Ok(stop),
            false => Err(self.unknown_agent(id)),
        }
    }

    fn controlled(&self, what: &str, id: &str, result: &Result<Value, Failure>) {
        let outcome = result.as_ref().map_or_else(|failure| failure.code.as_str(), |_| "ok");
        self.journal.note(&Event::new("control").agent(id).text("do", what).text("outcome", outcome));
        self.journal.settle();
        self.log.event(Level::Info, "controlled", &[("agent", id), ("what", what), ("outcome", outcome)]);
    }

    fn read_declared(&self, id: &str) -> Result<Declared, Failure> {
        let config = self.home(id).join("config");
        if !config.is_dir() {
            let text = format!("{id:?} is not declared: {} is no directory", config.display());
            return Err(Failure::new(Code::Rejected, text));
        }
        let source = read_text(&config.join("agent.py"))?
            .ok_or_else(|| Failure::new(Code::Rejected, format!("{} has no agent.py", config.display())))?;
        let settings = read_text(&config.join("agent.json"))?;
        let declaration = match &settings {
            None => Declaration::default(),
            Some(text) => crate::wire::parse(text)
                .map_err(|wrong| wrong.to_string())
                .and_then(|_| plain::read_object(text))
                .map_err(|why| {
                    let file = config.join("agent.json");
                    Failure::new(Code::Rejected, format!("{}: {why}", file.display()))
                })?,
        };
        let mut digest = Sha256::new();
        digest.update(settings.unwrap_or_default());
        digest.update([0]);
        digest.update(&source);
        Ok(Declared { declaration, source, digest: digest.finalize().into() })
    }
}

/// An id that is being registered, until this is dropped.
struct Registering<'a>(&'a Node, &'a str);

impl<'a> Registering<'a> {
    fn begin(node: &'a Node, id: &'a str) -> Option<Self> {
        lock(&node.registering).insert(id.to_owned()).then_some(Registering(node, id))
    }
}

impl Drop for Registering<'_> {
    fn drop(&mut self) {
        lock(&self.0.registering).remove(self.1);
    }
}

fn is_id(id: &str) -> bool {
    crate::agent::manifest::check_id(id).is_ok()
}

/// A file of a declaration; none is there: `None`.
fn read_text(file: &Path) -> Result<Option<String>, Failure> {
    let doing = |why: String| Failure::new(Code::Rejected, format!("reading {}: {why}", file.display()));
    // A FIFO would wait for its writer.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    let opened = match File::options().read(true).custom_flags(flags).open(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|error| doing(error.to_string()))?,
    };
    if !opened.metadata().is_ok_and(|about| about.is_file()) {
        return Err(doing("it is no file".into()));
    }
    let mut text = String::new();
    let length = opened.take(LONGEST + 1).read_to_string(&mut text);
    match length.map_err(|error| doing(error.to_string()))? as u64 {
        length if length > LONGEST => Err(doing(format!("it is longer than {LONGEST} bytes"))),
        _ => Ok(Some(text)),
    }
}
