//! How an agent leaves: the source's side of a transfer (TRANSFER.md, "At the source").

use super::federation::{self, Destination};
use super::messages::{Dispatch, Mode};
use super::outbox::Transfer;
use super::{state_files, Node, Record};
use crate::agent::host::CallError;
use crate::agent::NoTurn;
use crate::log::Level;
use crate::sync::lock;
use crate::wire::{self, Code, ExchangeError, Failure, ReceivedAnswer, RequestOptions};
use serde_json::value::RawValue;
use serde_json::{json, Map, Value};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the envelope and the timeout take of a line beside the payload, bytes.
const ENVELOPE: usize = 4096;
/// What is kept of a deadline for the answer's way back, at most.
const HOP_RESERVE: Duration = Duration::from_millis(100);
/// How long one question about an open transfer may take.
const QUESTION: Duration = Duration::from_secs(10);
/// How long a destination may take to call a transfer off.
const CALLING_OFF: Duration = Duration::from_secs(2);
/// How long the timers' thread pursues one transfer before it lets go of it again.
const PURSUIT: Duration = Duration::from_secs(30);

/// A journey that an agent wants to make.
pub struct Journey {
    /// Copy, or the agent itself.
    pub mode: Mode,
    /// Where to.
    pub destination: Destination,
    /// What `on_activate` gets there, JSON text.
    pub activate: String,
    /// The memory as it was at the call.
    pub memory: Option<Arc<str>>,
    /// When the caller stops waiting.
    pub deadline: Instant,
    /// The caller gave the deadline itself: at it, the transfer is called off.
    pub cancel: bool,
}

/// What one attempt, or one question, brought.
enum Step {
    /// The agent lives there; the answer, if there is one yet.
    Arrived(Box<RawValue>),
    /// It never will, by this transfer.
    Refused(CallError),
    /// Nothing was written, or the destination says that it took nothing.
    Untouched(CallError),
    /// Nobody can say.
    Unclear(String),
    /// The destination does not know the transfer, or the agent. Whoever says so, sending the same
    /// transfer once more does no harm.
    Unknown,
}

impl Node {
    /// Where `name` leads for this agent.
    ///
    /// # Errors
    /// `unknown_destination`, naming it.
    pub fn resolve(&self, record: &Record, name: &str) -> Result<Destination, CallError> {
        let found = federation::resolve(name, &self.tree(), &lock(&record.metadata), &record.trace);
        found.ok_or_else(|| {
            let text = format!(
                "no node {name:?} in the tree of {}, in the agent's network view or in its trace",
                self.name()
            );
            CallError::new("unknown_destination", text)
        })
    }

    /// `dispatch_agent`: the admin sends an agent on, or a copy of it.
    ///
    /// # Errors
    /// As an agent's own `clone` or `move`.
    pub fn dispatch(self: &Arc<Self>, order: Dispatch) -> Result<Box<RawValue>, Failure> {
        let deadline = super::messages::deadline(order.timeout, self.hook_limit())?;
        let record = self.agent(&order.agent_id).ok_or_else(|| self.unknown_agent(&order.agent_id))?;
        // Its turn is taken, so that the memory that goes is that of no hook's middle.
        let turn = record.life.enter(deadline).map_err(|why| match why {
            NoTurn::Over => self.unknown_agent(&order.agent_id),
            NoTurn::Full => {
                Failure::new(Code::Busy, format!("{} has as many messages waiting as it may", record.id))
            }
            NoTurn::Late => Failure::new(Code::Timeout, format!("{} is busy with a hook", record.id)),
        })?;
        if let Some(patch) = order.metadata_patch {
            lock(&record.metadata).extend(patch);
        }
        let destination =
            match (self.resolve(&record, &order.destination), order.destination.parse::<wire::Address>()) {
                (Ok(destination), _) => destination,
                (Err(_), Ok(address)) => {
                    Destination { name: order.destination.clone(), address, unsigned: false }
                }
                (Err(error), Err(_)) => return Err(Failure::new(Code::UnknownDestination, error.message)),
            };
        let journey = Journey {
            mode: order.mode,
            destination,
            activate: order.activate_payload.as_deref().map_or("{}", RawValue::get).to_owned(),
            memory: record.life.memory(),
            deadline,
            cancel: order.timeout.is_some(),
        };
        let answer = self.travel(&record, journey);
        drop(turn);
        answer.map_err(|error| {
            let code = error.code.parse().unwrap_or(Code::Rejected);
            Failure::new(code, error.message)
        })
    }

    /// Carries out a clone or move and waits for a deciding answer, at most until the deadline.
    ///
    /// # Errors
    /// - `departing`: a move of this agent is open or was accepted
    /// - `too_large`: it does not fit one message; nothing was marked
    /// - `unreachable`: nothing could be written to the destination; the agent stays
    /// - the destination's own code when it refuses; the agent stays
    /// - `timeout`: not decided yet. A move stays open and is pursued; a clone may have arrived.
    pub fn travel(
        self: &Arc<Self>,
        record: &Arc<Record>,
        journey: Journey,
    ) -> Result<Box<RawValue>, CallError> {
        if self.is_stopping() {
            return Err(CallError::new("shutting_down", "the node is shutting down"));
        }
        let body = self.compose(record, &journey)?;
        let id = wire::random_nonce()
            .map_err(|error| CallError::new("internal", format!("making an id: {error}")))?;
        let departing =
            || CallError::new("departing", format!("a move of {} is under way or done", record.id));
        match journey.mode {
            Mode::Move if !record.life.depart() => return Err(departing()),
            Mode::Clone if record.life.is_departing() || record.life.is_over() => return Err(departing()),
            _ => {}
        }
        let Journey { mode, destination, memory, deadline, cancel, .. } = journey;
        let body = format!("{},\"transfer_id\":\"{id}\"", body.strip_suffix('}').unwrap_or(&body));
        let transfer = Transfer::new(id, mode, destination, Arc::clone(record), memory, body);
        self.outbox.add(&transfer);
        if transfer.destination.unsigned {
            return self.travel_unsigned(&transfer, deadline);
        }
        match self.pursue(&transfer, deadline) {
            Some(outcome) => outcome,
            None if cancel => self.call_off(&transfer),
            None => {
                transfer.leave();
                let text = format!(
                    "{} has not said yet whether {} arrived; it stays marked as departing, takes no messages, and the transfer \
                     is pursued",
                    transfer.destination.name, record.id
                );
                Err(CallError::new("timeout", text))
            }
        }
    }

    /// Takes up transfers whose callers are gone.
    pub(super) fn pursue_transfers(self: &Arc<Self>) {
        for transfer in self.outbox.due() {
            let node = Arc::clone(self);
            let ours = Arc::clone(&transfer);
            let started = self.in_background(move || {
                if node.pursue(&ours, Instant::now() + PURSUIT).is_none() {
                    ours.leave();
                }
            });
            if !started {
                transfer.leave();
            }
        }
    }

    /// Attempts and asks until the transfer is decided, at most until the deadline.
    fn pursue(
        self: &Arc<Self>,
        transfer: &Arc<Transfer>,
        deadline: Instant,
    ) -> Option<Result<Box<RawValue>, CallError>> {
        let mut step = match transfer.is_unclear() {
            false => self.attempt(transfer, deadline),
            true => self.ask(transfer, "transfer_status", deadline),
        };
        loop {
            if let Step::Unknown = step {
                // The request may still be on its way: the same transfer once more.
                step = self.attempt(transfer, deadline);
            }
            match step {
                Step::Arrived(answer) => return Some(Ok(self.arrived(transfer, answer))),
                Step::Refused(error) => return Some(Err(self.stays(transfer, error))),
                Step::Untouched(error) if !transfer.is_unclear() => {
                    return Some(Err(self.stays(transfer, error)))
                }
                // While an earlier attempt is unclear, one that reached nobody decides nothing.
                Step::Untouched(_) | Step::Unknown => {}
                Step::Unclear(why) if transfer.mode == Mode::Clone => {
                    let text = format!("{}: {why}; the copy may have arrived", transfer.destination.name);
                    return Some(Err(self.stays(transfer, CallError::new("timeout", text))));
                }
                Step::Unclear(why) => self.becomes_unclear(transfer, &why),
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.is_stopping() {
                return None;
            }
            std::thread::sleep(transfer.back_off().min(left));
            if Instant::now() >= deadline {
                return None;
            }
            step = self.ask(transfer, "transfer_status", deadline);
        }
    }

    fn becomes_unclear(&self, transfer: &Transfer, why: &str) {
        if !transfer.is_unclear() {
            let fields =
                [("agent", transfer.record.id.as_str()), ("to", &transfer.destination.name), ("why", why)];
            self.log.event(Level::Warn, "move_unclear", &fields);
        }
        transfer.set_unclear();
    }

    /// Sends the transfer once.
    fn attempt(&self, transfer: &Transfer, deadline: Instant) -> Step {
        let left = deadline.saturating_duration_since(Instant::now());
        // The destination answers before we stop listening. What a hop takes off is small: a tour has many.
        let theirs = left.saturating_sub((left / 20).min(HOP_RESERVE));
        let payload = format!("{},\"timeout\":{:.3}}}", transfer.body, theirs.as_secs_f64().max(0.001));
        let answer = match self.exchange(transfer, "receive_agent", &payload, deadline) {
            Ok(answer) => answer,
            Err(Step::Unknown) => return Step::Unclear("it does not know the agent".into()),
            Err(step) => return step,
        };
        let word = answer.field("transfer").unwrap_or("\"\"").trim_matches('"').to_owned();
        match word.as_str() {
            "done" | "accepted" => Step::Arrived(whole(&answer)),
            "refused" => Step::Refused(refusal(transfer, &answer)),
            "untouched" => Step::Untouched(refusal(transfer, &answer)),
            _ => Step::Unclear(
                answer.error().unwrap_or("its answer does not say where the transfer stands").to_owned(),
            ),
        }
    }

    /// Asks about the transfer, or calls it off.
    fn ask(&self, transfer: &Transfer, kind: &str, deadline: Instant) -> Step {
        // A destination that never got the transfer may know nothing else to check the question with,
        // and to sign its answer.
        let head = transfer.record.manifest().head();
        let payload = json!({"transfer_id": transfer.id, "source_code": head}).to_string();
        let until = deadline.min(Instant::now() + QUESTION);
        let answer = match self.exchange(transfer, kind, &payload, until) {
            Ok(answer) => answer,
            Err(step) => return step,
        };
        let told: Map<String, Value> =
            answer.result().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        match told.get("transfer").and_then(Value::as_str) {
            Some("unknown") => Step::Unknown,
            Some("done" | "accepted") => {
                let result = told.get("answer").cloned().unwrap_or_default();
                let standing = told.get("transfer").cloned().unwrap_or_default();
                let node = answer.node().unwrap_or(&transfer.destination.name);
                let text =
                    json!({"status": "ok", "node": node, "result": result, "transfer": standing}).to_string();
                RawValue::from_string(text)
                    .map_or_else(|error| Step::Unclear(error.to_string()), Step::Arrived)
            }
            Some("refused") => {
                let said = told.get("answer").and_then(|answer| answer.get("error")).and_then(Value::as_str);
                let text = format!(
                    "{} refused {}: {}",
                    transfer.destination.name,
                    transfer.record.id,
                    said.unwrap_or("?")
                );
                Step::Refused(CallError::new("rejected", text))
            }
            _ => Step::Unclear(answer.error().unwrap_or("an answer that tells nothing").to_owned()),
        }
    }

    /// One signed exchange; only a genuine answer comes back as one.
    fn exchange(
        &self,
        transfer: &Transfer,
        kind: &str,
        payload: &str,
        deadline: Instant,
    ) -> Result<ReceivedAnswer, Step> {
        let secret = &transfer.record.manifest().secret;
        let signed =
            wire::signed_request(kind, &transfer.record.id, secret, payload, RequestOptions::default())
                .map_err(|failure| Step::Refused(CallError::new("bad_payload", failure.message)))?;
        let most = self.config().keys.max_message_bytes;
        match wire::exchange(&transfer.destination.address, &signed.line, deadline, most) {
            Ok(answer) if transfer.destination.unsigned || answer.genuine(secret, &signed.nonce) => {
                Ok(answer)
            }
            Ok(answer) if answer.known_code() == Some(Code::UnknownSender) => Err(Step::Unknown),
            Ok(answer) => {
                let said = answer.error().map(|error| format!(": {error}")).unwrap_or_default();
                Err(Step::Unclear(format!("it answered without a good signature{said}")))
            }
            Err(ExchangeError::NotSent(why)) => {
                let text = format!("{} ({why}): nothing was sent", transfer.destination.name);
                Err(Step::Untouched(CallError::new("unreachable", text)))
            }
            Err(ExchangeError::Unclear(why)) => Err(Step::Unclear(why)),
        }
    }

    /// The caller's own deadline has passed: only a durable `refused` brings the agent back.
    fn call_off(self: &Arc<Self>, transfer: &Arc<Transfer>) -> Result<Box<RawValue>, CallError> {
        match self.ask(transfer, "transfer_cancel", Instant::now() + CALLING_OFF) {
            Step::Arrived(answer) => Ok(self.arrived(transfer, answer)),
            Step::Refused(_) => {
                let text = format!(
                    "{} did not take {} in time; the transfer was cancelled",
                    transfer.destination.name, transfer.record.id
                );
                Err(self.stays(transfer, CallError::new("timeout", text)))
            }
            _ => {
                transfer.leave();
                let text = format!(
                    "{} has not said whether {} arrived and can't be asked to cancel; the agent stays marked \
                     as departing, takes no messages, and the transfer is pursued",
                    transfer.destination.name, transfer.record.id
                );
                Err(CallError::new("timeout", text))
            }
        }
    }

    /// A node of the base implementation: its plain answer decides, once.
    fn travel_unsigned(
        self: &Arc<Self>,
        transfer: &Arc<Transfer>,
        deadline: Instant,
    ) -> Result<Box<RawValue>, CallError> {
        let body =
            transfer.body.rsplit_once(",\"transfer_id\":").map_or(transfer.body.as_str(), |(body, _)| body);
        match self.exchange(transfer, "receive_agent", &format!("{body}}}"), deadline) {
            Ok(answer) if answer.is_ok() => Ok(self.arrived(transfer, whole(&answer))),
            Ok(answer) => Err(self.stays(transfer, refusal(transfer, &answer))),
            Err(Step::Untouched(error) | Step::Refused(error)) => Err(self.stays(transfer, error)),
            Err(Step::Unclear(why)) => {
                let text = format!(
                    "{}, a node that signs nothing: {why}; the agent stays here and may be there too",
                    transfer.destination.name
                );
                Err(self.stays(transfer, CallError::new("timeout", text)))
            }
            Err(Step::Arrived(answer)) => Ok(self.arrived(transfer, answer)),
            Err(Step::Unknown) => {
                let text = format!("{} does not know the agent", transfer.destination.name);
                Err(self.stays(transfer, CallError::new("rejected", text)))
            }
        }
    }

    /// The agent lives there now.
    fn arrived(self: &Arc<Self>, transfer: &Arc<Transfer>, answer: Box<RawValue>) -> Box<RawValue> {
        let record = &transfer.record;
        if transfer.mode == Mode::Move {
            {
                let mut registry = lock(&self.registry);
                if registry.remove(record) {
                    registry.note_departure(&record.id, &transfer.destination.name);
                }
            }
            record.place().discard();
            record.life.retire();
        }
        self.outbox.close(transfer);
        self.counters.departures.fetch_add(1, Ordering::Relaxed);
        let fields = [
            ("agent", record.id.as_str()),
            ("mode", transfer.mode.as_str()),
            ("to", transfer.destination.name.as_str()),
        ];
        self.log.event(Level::Info, "agent_sent", &fields);
        if !transfer.destination.unsigned {
            let (node, transfer) = (Arc::clone(self), Arc::clone(transfer));
            // If this is lost the destination keeps a small entry for longer; nothing else.
            self.in_background(move || {
                let payload = json!({"transfer_id": transfer.id}).to_string();
                let _ = node.exchange(&transfer, "transfer_forget", &payload, Instant::now() + QUESTION);
            });
        }
        answer
    }

    /// The agent stays; its messages go on.
    fn stays(&self, transfer: &Transfer, error: CallError) -> CallError {
        let record = &transfer.record;
        let fields = [
            ("agent", record.id.as_str()),
            ("mode", transfer.mode.as_str()),
            ("to", transfer.destination.name.as_str()),
            ("error", &error.message),
        ];
        self.log.event(Level::Warn, "agent_not_sent", &fields);
        if transfer.mode == Mode::Move {
            if record.life.is_over() {
                self.log.event(
                    Level::Warn,
                    "agent_superseded",
                    &[("agent", &record.id), ("why", "a newer arrival has its id")],
                );
            }
            if record.life.pid().is_none() {
                // The hook that called died: the memory of the call is the latest there is.
                record.life.set_memory(transfer.memory.clone());
            }
            record.life.set_departing(false);
        }
        self.outbox.close(transfer);
        error
    }

    /// The payload of `receive_agent`, without transfer id and timeout.
    fn compose(&self, record: &Record, journey: &Journey) -> Result<String, CallError> {
        let most = self.config().keys.max_message_bytes;
        if record.trace.len() + 1 > self.config().keys.max_trace {
            let text = format!("the trace has {} hops, as many as it may (max_trace)", record.trace.len());
            return Err(CallError::new("rejected", text));
        }
        let mut trace = record.trace.clone();
        trace.push(self.own_hop(record, &journey.destination));
        let files = state_files::gather(record.state_dir(), most)
            .map_err(|why| CallError::new("too_large", format!("{}: {why}", record.id)))?;
        let head = json!({
            "mode": journey.mode.as_str(),
            "trace": trace,
            "agent_metadata": self.travelling_metadata(record),
        })
        .to_string();
        // An agent that came in a capsule goes on in that very capsule.
        let (form, agent) = match &record.sealed {
            Some(sealed) => ("capsule", &*sealed.text),
            None => ("source_code", &*record.life.spec.source),
        };
        let agent = wire::json::quote(agent);
        let files =
            serde_json::to_string(&files).map_err(|error| CallError::new("internal", error.to_string()))?;
        let body = format!(
            "{},\"{form}\":{agent},\"activate_payload\":{},\"state\":{{\"memory\":{},\"files\":{files}}}}}",
            &head[..head.len() - 1],
            journey.activate,
            journey.memory.as_deref().unwrap_or("null"),
        );
        // The signed line is ASCII: what is not takes up to six bytes a code unit.
        let escaped: usize =
            body.chars().filter(|c| !c.is_ascii()).map(|c| c.len_utf16() * 6 - c.len_utf8()).sum();
        let length = body.len() + escaped + ENVELOPE;
        if length > most {
            let text = format!(
                "{} would take {length} bytes where a message has at most {most} (max_message_bytes)",
                record.id
            );
            return Err(CallError::new("too_large", text));
        }
        Ok(body)
    }

    fn own_hop(&self, record: &Record, destination: &Destination) -> Value {
        let mut hop = json!({
            "node": self.name(),
            "host": self.advertised_to(&destination.address),
            "port": self.port(),
            "time": wire::unix_now(),
        });
        let notes = lock(&record.notes).clone();
        if !notes.is_empty() {
            hop["notes"] = notes.into();
        }
        hop
    }

    /// The metadata with the agent's name and its view of the network: what it brought, with this
    /// node's own configuration put in, or else this node's tree.
    fn travelling_metadata(&self, record: &Record) -> Value {
        let mut metadata = lock(&record.metadata).clone();
        metadata.insert("agent_name".into(), record.name().into());
        let own = self.tree();
        let network = match federation::carried(metadata.get("network")) {
            Some(tree) => match own.find(self.name()) {
                Some(place) => tree.with_own(place),
                None => tree,
            },
            None => own,
        };
        metadata.insert("network".into(), serde_json::to_value(network).unwrap_or_default());
        metadata.into()
    }
}

/// The destination's whole answer, without what only proves it.
fn whole(answer: &ReceivedAnswer) -> Box<RawValue> {
    let members: Vec<String> = answer
        .json()
        .members()
        .filter(|member| !matches!(&*member.key, "signature" | "nonce"))
        .map(|member| format!("{}:{}", wire::json::quote(&member.key), member.value.raw()))
        .collect();
    RawValue::from_string(format!("{{{}}}", members.join(","))).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

fn refusal(transfer: &Transfer, answer: &ReceivedAnswer) -> CallError {
    let code = answer.known_code().unwrap_or(Code::Rejected).as_str();
    let said = answer.error().unwrap_or("it gave no reason");
    CallError::new(code, format!("{} did not take {}: {said}", transfer.destination.name, transfer.record.id))
        .with_detail(whole(answer))
}
