//! How an agent comes to live here: deployed by the admin, or received from another node.

use super::harness::Harness;
use super::ledger::{Opened, Standing};
use super::messages::{deadline, Deploy, Mode, Receive, StateFile};
use super::package::Package;
use super::record::Arrived;
use super::senders::{transfer_of, NotNow, Proof, Sender, Signed};
use super::state_files::Place;
use super::{state_files, Admits, Node, Origin, Record};
use crate::agent::{HookError, Spec, Turn};
use crate::crash;
use crate::log::{clipped, Level};
use crate::state;
use crate::sync::lock;
use crate::wire::{Answer, Code, Failure, Request};
use serde_json::value::RawValue;
use serde_json::{json, Map, Value};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{mpsc, Arc};
use std::time::{Duration, Instant};

/// What a line's envelope may take beside an activation's result, bytes.
const ENVELOPE: usize = 64 * 1024;

/// How much of an error's text an activation's result tells, bytes.
const LONGEST_ERROR: usize = 8 * 1024;

/// A source that has not loaded after so long does not load. Whoever gave it less may give it more the
/// next time.
const FAIR: Duration = Duration::from_secs(10);

/// An agent on its way in.
struct Incoming {
    package: Package,
    origin: Origin,
    memory: Option<Arc<str>>,
    /// `None`: the files that are here already stay.
    files: Option<Vec<StateFile>>,
    metadata: Map<String, Value>,
    trace: Vec<Value>,
    /// The transfer that brings it, if its outcome is promised to anyone.
    transfer: Option<String>,
    deadline: Instant,
}

/// The place that an id which is being loaded has among the agents.
struct Room<'a> {
    node: &'a Node,
    id: &'a str,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        lock(&self.node.registry).arrived(self.id);
    }
}

impl Node {
    /// `deploy_agent`: the admin puts an agent here, in place of one of the same id.
    ///
    /// # Errors
    /// `bad_payload` (no manifest), `agent_error` (it does not load), `rejected` (no room),
    /// `timeout`. What goes wrong in `on_activate` is told inside the result.
    pub fn deploy(self: &Arc<Self>, mut order: Deploy) -> Result<Box<RawValue>, Failure> {
        let deadline = deadline(order.timeout, self.hook_limit())?;
        let mut package = self.open_package(order.source_code.as_deref(), order.capsule.as_deref())?;
        (order.source_code, order.capsule) = (None, None); // megabytes, perhaps, and the package has its own
        self.check_id(&package.manifest.id)?;
        self.may_come(&package, None)?;
        let lives = self.agent(&package.manifest.id);
        let here = lives.clone().filter(|_| !order.fresh);
        let packed = package.memory.take();
        let files = std::mem::take(&mut package.files);
        let incoming = Incoming {
            origin: Origin::Admin,
            memory: here.as_ref().map_or(packed, |record| record.life.memory()),
            // What an agent that lives here has stays, unless it is to begin with what its capsule holds.
            // Where none lives, what lies there was another's.
            files: Some(files).filter(|_| lives.is_none() || (order.fresh && package.sealed.is_some())),
            metadata: merged(here.map(|record| lock(&record.metadata).clone()), order.agent_metadata),
            trace: Vec::new(),
            transfer: None,
            deadline,
            package,
        };
        let (record, turn) = self.settle(incoming, |_| Ok(()))?;
        self.log.event(Level::Info, "agent_deployed", &[("agent", &record.id)]);
        self.note_deploy(&record);
        let activate = order.activate_payload.as_deref().map(RawValue::get);
        self.activate(&record, &turn, activate, deadline)
    }

    /// Registers an agent as it is declared on this machine; what lives here under its id goes on with its
    /// memory and files.
    ///
    /// # Errors
    /// As [`Node::deploy`]; `rejected`: it declares another id, or its identity is revoked.
    pub(super) fn deploy_declared(
        self: &Arc<Self>,
        id: &str,
        source: &str,
        metadata: Option<Map<String, Value>>,
        deadline: Instant,
    ) -> Result<(Arc<Record>, Turn), Failure> {
        let rejected = |text: String| Failure::new(Code::Rejected, text);
        let package = self.open_package(Some(source), None)?;
        if package.manifest.id != id {
            let found = &package.manifest.id;
            return Err(rejected(format!("config/agent.py of {id:?} has AGENT_ID {found:?}")));
        }
        self.check_id(id)?;
        if self.is_revoked(id) {
            return Err(rejected(format!("the identity of {id:?} is revoked")));
        }
        let here = self.agent(id);
        let incoming = Incoming {
            origin: Origin::Admin,
            memory: here.as_ref().and_then(|record| record.life.memory()),
            files: None,
            metadata: merged(here.map(|record| lock(&record.metadata).clone()), metadata),
            trace: Vec::new(),
            transfer: None,
            deadline,
            package,
        };
        let (record, turn) = self.settle(incoming, |_| Ok(()))?;
        self.log.event(Level::Info, "agent_deployed", &[("agent", &record.id)]);
        self.note_deploy(&record);
        Ok((record, turn))
    }

    /// Runs a declared agent's `on_activate`.
    ///
    /// # Errors
    /// Its result can't be said.
    pub(super) fn activate_declared(
        self: &Arc<Self>,
        record: &Arc<Record>,
        turn: &Turn,
        payload: &str,
        deadline: Instant,
    ) -> Result<Box<RawValue>, Failure> {
        self.activate(record, turn, Some(payload), deadline)
    }

    /// `receive_agent`: an agent comes from another node. The whole answer says where the transfer
    /// stands. `may` are the checks that a transfer which the ledger knows need not pass again: they run
    /// when the entry is open, so that a second copy of the same line finds it and waits.
    pub fn receive(
        self: &Arc<Self>,
        arrival: Arrival,
        signed: &Signed,
        may: impl FnOnce() -> Result<(), NotNow>,
    ) -> Answer {
        let Arrival { id, transfer, order } = arrival;
        let may = || -> Result<(), NotNow> {
            may()?;
            match self.is_stopping() {
                false => Ok(()),
                true => Err(Failure::new(Code::ShuttingDown, "the node is shutting down").into()),
            }
        };
        let Some(transfer) = transfer else {
            let taken: Result<_, NotNow> = may().and_then(|()| {
                let (order, package) = order?;
                Ok(self.take_in(order, package, signed, |_, _| Ok(()))?)
            });
            return match taken {
                Ok(result) => self.raw_answer(&result, None),
                Err(why) => self.not_taken(&id, &why.failure, word_of(&why)),
            };
        };
        match self.ledger.open(&id, &transfer, &signed.secret, signed.proof == Proof::OwnSource) {
            Opened::First => {}
            Opened::Known => {
                let timeout = order.ok().and_then(|(order, _)| order.timeout);
                return self.answer_known(&id, &transfer, timeout);
            }
            Opened::Full => {
                let busy =
                    Failure::new(Code::Busy, "the node keeps as many transfers of strangers as it can");
                let why = may().err().unwrap_or(busy.into());
                return self.not_taken(&id, &why.failure, word_of(&why));
            }
        }
        // Whatever happens here, a panic too: an entry that is still open is closed again.
        let _open = StillOpen { node: self, id: &id, transfer: &transfer };
        let began = Instant::now();
        let taken: Result<_, NotNow> = may().and_then(|()| {
            let (order, package) = order?;
            Ok(self.take_in(order, package, signed, |generation, activate| {
                self.ledger.accept(&id, &transfer, generation, activate)
            })?)
        });
        match taken {
            Ok(result) => {
                crash::point("activated");
                if let Err(error) = self.ledger.finish(&id, &transfer, &result) {
                    self.not_written("the ledger", &error);
                }
                crash::point("done-recorded");
                self.raw_answer(&result, Some("done"))
            }
            Err(why) => {
                let hurried = why.failure.code == Code::Timeout && began.elapsed() < FAIR;
                let word = match word_of(&why) {
                    Some("refused") if hurried => Some("untouched"),
                    Some("refused") if self.ledger.refuse(&id, &transfer, &why.failure) => Some("refused"),
                    // What can't be written down is not promised.
                    Some(_) => Some("untouched"),
                    None => None,
                };
                crash::point("refusal-recorded");
                self.not_taken(&id, &why.failure, word)
            }
        }
    }

    /// Whether the ledger knows the transfer that a `receive_agent` is about.
    pub fn knows_transfer(&self, request: &Request) -> bool {
        let known = |transfer: String| self.ledger.standing(&request.sender, &transfer).is_some();
        transfer_of(request).is_some_and(known)
    }

    /// The answer to a request for a transfer that the ledger knows; a repeat waits for the attempt
    /// that runs.
    fn answer_known(&self, id: &str, transfer: &str, timeout: Option<f64>) -> Answer {
        let waits = deadline(timeout, self.hook_limit()).unwrap_or_else(|_| Instant::now());
        match self.ledger.outcome(id, transfer, waits) {
            Some(Standing::Done(answer)) => self.raw_answer(&answer, Some("done")),
            Some(Standing::Refused(failure)) => self.transfer_failure(&failure, Some("refused")),
            // No word of where it stands: its source asks again.
            _ => {
                let text = format!("transfer {transfer} of {id} is not decided yet");
                Answer::failure(self.name(), &Failure::new(Code::Timeout, text))
            }
        }
    }

    /// `transfer_status`, `transfer_cancel`, `transfer_forget`.
    ///
    /// # Errors
    /// `unknown_type` for another.
    pub fn transfer_query(
        &self,
        kind: &str,
        id: &str,
        transfer: &str,
        signed: &Signed,
    ) -> Result<Answer, Failure> {
        let standing = match kind {
            "transfer_status" if signed.proof == Proof::Namesake => Standing::Loading,
            "transfer_status" => self.ledger.standing(id, transfer).unwrap_or(Standing::Loading),
            "transfer_cancel" => {
                let failure =
                    Failure::new(Code::Rejected, format!("transfer {transfer} was cancelled by its source"));
                let stranger = signed.proof == Proof::OwnSource;
                let standing = self.ledger.cancel(id, transfer, &signed.secret, stranger, failure);
                standing.ok_or_else(|| Failure::new(Code::Busy, "the node cannot keep one more transfer"))?
            }
            "transfer_forget" => {
                let forgotten =
                    self.forget(id, transfer).map_err(|error| disk_failure("the ledger", &error))?;
                return Ok(self.plain_answer(&json!({"transfer_id": transfer, "forgotten": forgotten})));
            }
            _ => return Err(Failure::new(Code::UnknownType, format!("there is no message type {kind:?}"))),
        };
        let mut result = json!({"transfer_id": transfer, "transfer": standing.word()});
        match &standing {
            Standing::Done(answer) => result["answer"] = serde_json::to_value(answer).unwrap_or_default(),
            Standing::Refused(failure) => {
                result["answer"] = json!({"code": failure.code.as_str(), "error": failure.message});
            }
            _ => {}
        }
        let answer = self.plain_answer(&result);
        Ok(answer.clone().field("transfer", &format!("\"{}\"", standing.word())).unwrap_or(answer))
    }

    /// Forgets a transfer. From then on the generation that it brought speaks for itself.
    fn forget(&self, id: &str, transfer: &str) -> io::Result<bool> {
        if let Some(generation) = self.ledger.generation(id, transfer) {
            let brought = self.agent(id).filter(|record| record.generation == generation);
            brought.map_or(Ok(()), |record| record.settled())?;
        }
        crash::point("record-settled");
        self.ledger.forget(id, transfer)
    }

    fn take_in(
        self: &Arc<Self>,
        order: Receive,
        mut package: Package,
        signed: &Signed,
        commit: impl FnOnce(u64, &str) -> Result<(), Failure>,
    ) -> Result<Box<RawValue>, Failure> {
        let deadline = deadline(order.timeout, self.hook_limit())?;
        let rejected = |text: String| Failure::new(Code::Rejected, text);
        self.check_id(&package.manifest.id)?;
        let own = matches!(signed.sender, Sender::Agent(_));
        self.may_come(&package, own.then_some(&signed.secret))?;
        if let Admits::Only(expected) = &self.admits {
            if *expected != package.manifest.id {
                return Err(rejected(format!("this node waits for {expected:?} and takes no other agent")));
            }
        }
        if order.trace.len() > self.config().keys.max_trace {
            return Err(rejected(format!(
                "the trace has {} hops, more than the {} allowed here (max_trace)",
                order.trace.len(),
                self.config().keys.max_trace
            )));
        }
        // What travels beside a capsule is newer than what it holds.
        let (memory, files) = match order.state {
            Some(state) => (state.memory.map(|memory| memory.get().into()), state.files),
            None => (package.memory.take(), std::mem::take(&mut package.files)),
        };
        let incoming = Incoming {
            origin: signed.sender.origin(),
            memory,
            files: Some(files),
            metadata: order.agent_metadata.unwrap_or_default(),
            trace: order.trace.into_iter().map(hop).collect(),
            transfer: order.transfer_id,
            deadline,
            package,
        };
        let activate = order.activate_payload.as_deref().map_or("{}", RawValue::get);
        let (record, turn) = self.settle(incoming, |generation| commit(generation, activate))?;
        let mode = order.mode.unwrap_or(Mode::Clone).as_str();
        self.log.event(
            Level::Info,
            "agent_arrived",
            &[("agent", &record.id), ("mode", mode), ("from", &from(&record))],
        );
        self.note_arrival(&record, mode, &from(&record));
        self.judge_token(&record);
        self.activate(&record, &turn, Some(activate), deadline)
    }

    /// Loads an agent and makes it the current generation of its id. Until `commit` has succeeded
    /// nothing of it is here.
    fn settle(
        self: &Arc<Self>,
        incoming: Incoming,
        commit: impl FnOnce(u64) -> Result<(), Failure>,
    ) -> Result<(Arc<Record>, Turn), Failure> {
        let id = incoming.package.manifest.id.clone();
        let most = self.config().keys.max_agents;
        let (generation, sequence, here) = {
            let mut registry = lock(&self.registry);
            if !registry.make_room(&id, most) {
                let text = format!("the node holds {most} agents, as many as it may (max_agents)");
                return Err(Failure::new(Code::Rejected, text));
            }
            let (generation, sequence) = registry.next_generation(&id);
            (generation, sequence, registry.agent(&id))
        };
        let _room = Room { node: self, id: &id };
        let starting = self.make_room()?;
        let home = self.home(&id);
        let harness = Arc::new(Harness::new(&home, generation, &self.syncer));
        let placed = harness
            .make()
            .map_err(|error| disk_failure(&format!("the home of {id}"), &error))
            .and_then(|()| self.place_files(&incoming, generation, here.as_deref()))
            .inspect_err(|_| {
                let _ = harness.discard(); // nothing of it is committed
                state_files::remove_home(&home);
            });
        let (place, new_dir) = placed?;
        crash::point("files-laid-out");
        let life = self.new_life(
            Spec {
                source: incoming.package.source,
                manifest: incoming.package.manifest,
                container_name: self.name().to_owned(),
                state_dir: Some(place.path.clone()),
                trace: Value::from(incoming.trace.clone()).to_string(),
            },
            incoming.memory,
        );
        let arrived = Arrived {
            origin: incoming.origin,
            metadata: incoming.metadata,
            trace: incoming.trace,
            place,
            harness,
            registered_at: crate::wire::unix_now(),
            transfer: incoming.transfer,
            sealed: incoming.package.sealed,
        };
        let record = Record::new(life, generation, sequence, arrived);
        let settled = self.load_and_commit(&record, incoming.deadline, commit);
        drop(starting);
        match settled {
            Ok(turn) => {
                let (over, fact) = {
                    let mut registry = lock(&self.registry);
                    (registry.insert(&record), registry.fact(&id))
                };
                crash::point("arrival-current");
                if let Some(over) = over {
                    // A replacement by deployment goes on with the files.
                    if over.state_dir() != record.state_dir() || over.generation == record.generation {
                        over.place().discard();
                    }
                    over.life.retire();
                    crash::point("older-over");
                    // Not on the caller's time: a start finds that a later one is, or was, here.
                    if !self.in_background(move || drop(over.harness().discard())) {
                        self.log.event(Level::Warn, "no_thread", &[("agent", &id)]);
                    }
                }
                self.is_here(&record);
                self.roster_changed();
                if let Some(Err(error)) = fact.map(|fact| self.known.note(&id, &fact)) {
                    self.not_written("the secrets that are pinned", &error);
                }
                self.counters.arrivals.fetch_add(1, Ordering::Relaxed);
                Ok((record, turn))
            }
            Err(failure) => {
                if new_dir {
                    record.place().discard();
                }
                record.life.retire();
                if let Err(error) = record.harness().discard() {
                    self.not_written("that an agent did not come", &error);
                }
                Err(failure)
            }
        }
    }

    /// Loads an agent while its record is written, then commits it: an arrival by its ledger entry, a
    /// deployment by the record itself.
    fn load_and_commit(
        self: &Arc<Self>,
        record: &Arc<Record>,
        deadline: Instant,
        commit: impl FnOnce(u64) -> Result<(), Failure>,
    ) -> Result<Turn, Failure> {
        let host = || (self.make_host)(self, record);
        // A new generation's queue is empty: this is its first turn.
        let turn = record
            .life
            .enter(deadline)
            .map_err(|_| Failure::new(Code::Timeout, "no time was left to load it"))?;
        let (written, prepared) = mpsc::sync_channel(1);
        let writing = Arc::clone(record);
        let write = move || drop(written.send(writing.prepare()));
        if !self.in_background(write.clone()) {
            write();
        }
        crash::point("loading");
        let loaded = turn.load(deadline, &host);
        let prepared = prepared.recv().unwrap_or_else(|_| Err(io::Error::other("the writer gave up")));
        loaded.map_err(|error| self.not_loaded(&record.id, error))?;
        let memory = record.life.memory();
        prepared
            .and_then(|()| record.harness().commit(memory.as_deref()))
            .map_err(|error| disk_failure(&format!("the record of {}", record.id), &error))?;
        record.life.keep_in(Arc::clone(record.harness()) as Arc<dyn crate::agent::Keep>);
        crash::point("arrival-prepared");
        commit(record.generation)?;
        crash::point("arrival-committed");
        Ok(turn)
    }

    /// Why a source did not load. What is not its own fault passes: it is no reason to refuse it for good.
    fn not_loaded(&self, id: &str, error: HookError) -> Failure {
        let unfinished = matches!(error, HookError::NoProcess(_) | HookError::Lost(_));
        let failure = self.hook_failure(id, error);
        if self.is_stopping() {
            return Failure::new(Code::ShuttingDown, "the node is shutting down");
        }
        match unfinished {
            true => Failure::new(Code::Busy, failure.message),
            false => failure,
        }
    }

    /// The directory of a generation, with what it brings; and whether it is a new one.
    fn place_files(
        &self,
        incoming: &Incoming,
        generation: u64,
        here: Option<&Record>,
    ) -> Result<(Arc<Place>, bool), Failure> {
        let home = self.home(&incoming.package.manifest.id);
        if let (None, Some(here)) = (&incoming.files, here) {
            // Deployed in place of another: the files that are here stay its files.
            return Ok((Arc::clone(here.place()), false));
        }
        // What an arrival brings gets a directory that nobody uses and that holds nothing yet.
        let usual = home.join("state");
        let usable = incoming.files.is_none() || !usual.exists();
        let usual = usable.then(|| self.places.take(usual)).flatten();
        let place = usual.or_else(|| self.places.take(home.join(format!("state.{generation}"))));
        let place = place.ok_or_else(|| Failure::new(Code::Internal, "the agent's directory is in use"))?;
        let fresh = incoming.files.is_some() || !place.path.exists();
        let placed = match &incoming.files {
            None => {
                state::make_dir(&place.path).map_err(|error| disk_failure("the agent's directory", &error))
            }
            Some(files) => state_files::lay_out(&place.path, files).inspect_err(|_| place.discard()),
        };
        placed?;
        Ok((place, fresh))
    }

    /// Runs `on_activate` if there is a payload for it. What goes wrong is part of the result.
    fn activate(
        self: &Arc<Self>,
        record: &Arc<Record>,
        turn: &Turn,
        payload: Option<&str>,
        deadline: Instant,
    ) -> Result<Box<RawValue>, Failure> {
        let mut result = Map::new();
        result.insert("agent_id".into(), record.id.clone().into());
        result.insert("sequence".into(), record.sequence.into());
        let mut raw = "null".to_owned();
        let status =
            match payload.map(|payload| self.run_hook(record, turn, "on_activate", payload, deadline)) {
                None => "registered",
                Some(Ok(outcome)) => {
                    match fits(outcome.result.get(), self.config().keys.max_message_bytes) {
                        Ok(()) => raw = outcome.result.get().to_owned(),
                        Err(why) => drop(result.insert("result_error".into(), why.into())),
                    }
                    "active"
                }
                Some(Err(failure)) => {
                    let mut error = Map::new();
                    error.insert("code".into(), failure.code.as_str().into());
                    error.insert("error".into(), clipped(&failure.message, LONGEST_ERROR).into());
                    // Python's own part of it comes from the agent's process, which may say anything.
                    for (name, value) in &failure.fields {
                        if fits(value.get(), self.config().keys.max_message_bytes / 2).is_ok() {
                            error.insert((*name).into(), serde_json::to_value(value).unwrap_or_default());
                        }
                    }
                    result.insert("activate_error".into(), error.into());
                    "failed"
                }
            };
        result.insert("status".into(), status.into());
        let head = Value::from(result).to_string();
        let text = format!("{},\"activate_result\":{raw}}}", &head[..head.len() - 1]);
        RawValue::from_string(text).map_err(|error| Failure::new(Code::Internal, error.to_string()))
    }

    /// Whether an agent can have this id here.
    pub(super) fn check_id(&self, id: &str) -> Result<(), Failure> {
        if self.config().is_reserved(id) {
            return Err(Failure::new(
                Code::BadPayload,
                format!("AGENT_ID {id:?} is taken by the node itself"),
            ));
        }
        Ok(())
    }

    pub(crate) fn plain_answer(&self, result: &Value) -> Answer {
        self.text_answer(&result.to_string())
    }

    fn raw_answer(&self, result: &RawValue, word: Option<&str>) -> Answer {
        let answer = self.text_answer(result.get());
        match word {
            Some(word) => answer.clone().field("transfer", &format!("\"{word}\"")).unwrap_or(answer),
            None => answer,
        }
    }

    fn text_answer(&self, result: &str) -> Answer {
        Answer::ok(self.name(), result).unwrap_or_else(|wrong| {
            Answer::failure(
                self.name(),
                &Failure::new(Code::Internal, format!("the result cannot be said: {wrong}")),
            )
        })
    }

    fn not_taken(&self, id: &str, failure: &Failure, word: Option<&str>) -> Answer {
        let fields = [("agent", id), ("code", failure.code.as_str()), ("error", &failure.message)];
        self.log.event(Level::Warn, "arrival_refused", &fields);
        self.transfer_failure(failure, word)
    }

    fn transfer_failure(&self, failure: &Failure, word: Option<&str>) -> Answer {
        let failure = failure.clone();
        let failure = word.into_iter().fold(failure, |failure, word| failure.with_value("transfer", word));
        Answer::failure(self.name(), &failure)
    }
}

/// An agent on its way in, as far as its message could be read.
pub struct Arrival {
    /// Whose arrival: the sender, or the agent of the source that the admin sends; empty if unreadable.
    pub id: String,
    /// The transfer, if its outcome is promised to anyone.
    pub transfer: Option<String>,
    /// What is asked for.
    pub order: Result<(Receive, Package), Failure>,
}

/// Something could not be written. A full disk passes: it is no reason to refuse for good.
pub(super) fn disk_failure(what: &str, error: &io::Error) -> Failure {
    let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
        || crate::sys::is_starved(error);
    let code = if full { Code::Busy } else { Code::Internal };
    Failure::new(code, format!("the node could not write {what}: {error}"))
}

/// Where a transfer stands that failed so, in the protocol's word. None, if nothing can be promised: the
/// same bytes might still act later.
pub fn word_of(why: &NotNow) -> Option<&'static str> {
    match (why.noted, is_passing(&why.failure)) {
        (false, _) => None,
        (true, true) => Some("untouched"),
        (true, false) => Some("refused"),
    }
}

/// Whether a later attempt may fare better; everything else is final.
fn is_passing(failure: &Failure) -> bool {
    matches!(failure.code, Code::Busy | Code::ShuttingDown | Code::StaleTimestamp | Code::Replayed)
}

/// Forgets an attempt that came to no decision.
struct StillOpen<'a> {
    node: &'a Node,
    id: &'a str,
    transfer: &'a str,
}

impl Drop for StillOpen<'_> {
    fn drop(&mut self) {
        self.node.ledger.untouch(self.id, self.transfer);
    }
}

/// Whether a result goes into an answer line: it parses in one way, is not too deep, not too long. An
/// answer is ASCII, where one byte of UTF-8 can take three.
fn fits(result: &str, max_message_bytes: usize) -> Result<(), String> {
    let escaped: usize = result.chars().filter(|c| !matches!(c, ' '..='~')).map(|c| c.len_utf16() * 6).sum();
    let plain = result.bytes().filter(|byte| matches!(byte, b' '..=b'~')).count();
    let length = escaped + plain;
    if length + ENVELOPE.min(max_message_bytes / 2) > max_message_bytes {
        return Err(format!("the result takes {length} bytes, too many for one answer line"));
    }
    // As deep as it will stand: in an answer, in its result, in the answer that the result repeats.
    crate::wire::parse_within(result, 4)
        .map(|_| ())
        .map_err(|wrong| format!("the result does not go into an answer: {}", wrong.what))
}

fn merged(before: Option<Map<String, Value>>, given: Option<Map<String, Value>>) -> Map<String, Value> {
    let mut metadata = before.unwrap_or_default();
    metadata.extend(given.unwrap_or_default());
    metadata
}

/// A bare string of a trace is a node's name.
fn hop(value: Value) -> Value {
    match value {
        Value::String(name) => json!({"node": name}),
        other => other,
    }
}

fn from(record: &Record) -> String {
    record.trace.last().and_then(|hop| hop.get("node")).and_then(Value::as_str).unwrap_or("?").to_owned()
}
