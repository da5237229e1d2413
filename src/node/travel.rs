//! How an agent leaves: the source's side of a transfer (TRANSFER.md, "At the source").

use super::arrive::disk_failure;
use super::federation::{self, Destination};
use super::messages::{Dispatch, Mode, Queue};
use super::outbox::{Outcome, Transfer, Traveller};
use super::{state_files, Node, Origin, Record};
use crate::agent::host::CallError;
use crate::agent::NoTurn;
use crate::crash;
use crate::log::Level;
use crate::roster::token::METADATA;
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
    /// If the destination can't be reached, or takes nothing now, the outbox tries again.
    pub queue: bool,
    /// The capability token that goes along in place of the agent's own.
    pub token: Option<Value>,
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
    /// It says no, for good, in an answer that it could not sign.
    Denied(CallError),
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
        self.may_run(&record.id)?;
        if record.origin == Origin::Node {
            return Err(Failure::new(Code::Rejected, super::manager::STAYS));
        }
        // Its turn is taken, so that the memory that goes is that of no hook's middle.
        let turn = record.life.enter(deadline).map_err(|why| match why {
            NoTurn::Over => self.unknown_agent(&order.agent_id),
            NoTurn::Full => {
                Failure::new(Code::Busy, format!("{} has as many messages waiting as it may", record.id))
            }
            NoTurn::Late => Failure::new(Code::Timeout, format!("{} is busy with a hook", record.id)),
        })?;
        if let Some(why) = record.life.stale() {
            let text = format!(
                "the memory of {} could not be taken after its last hook ({why}); sent on, it would forget that",
                record.id
            );
            return Err(Failure::new(Code::AgentError, text));
        }
        if let Some(patch) = order.metadata_patch {
            lock(&record.metadata).extend(patch);
            record.look_at_token_again();
            record.rewrite().map_err(|error| disk_failure("the agent's metadata", &error))?;
        }
        let destination =
            match (self.resolve(&record, &order.destination), order.destination.parse::<wire::Address>()) {
                (Ok(destination), _) => destination,
                (Err(_), Ok(address)) => Destination { name: address.to_string(), address, unsigned: false },
                (Err(error), Err(_)) => return Err(Failure::new(Code::UnknownDestination, error.message)),
            };
        let journey = Journey {
            mode: order.mode,
            destination,
            activate: order.activate_payload.as_deref().map_or("{}", RawValue::get).to_owned(),
            memory: record.life.memory(),
            deadline,
            cancel: order.timeout.is_some() && !order.queue,
            queue: order.queue,
            token: None,
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
        // What is queued waits in the outbox for the next run.
        if self.is_stopping() && !journey.queue {
            return Err(CallError::new("shutting_down", "the node is shutting down"));
        }
        if record.origin == Origin::Node {
            return Err(CallError::new("forbidden", super::manager::STAYS));
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
        crash::point("departing");
        let Journey { mode, destination, memory, deadline, cancel, queue, .. } = journey;
        let body = format!("{},\"transfer_id\":\"{id}\"", body.strip_suffix('}').unwrap_or(&body));
        let transfer = Transfer::new(id, mode, destination, Traveller::of(record), queue, body);
        if let Err(error) = self.write_down(&transfer, memory.as_deref()) {
            if mode == Mode::Move {
                record.life.set_departing(false);
            }
            let failure = disk_failure(&format!("the transfer of {}", record.id), &error);
            return Err(CallError::new(failure.code.as_str(), failure.message));
        }
        crash::point("outbox-written");
        self.outbox.add(&transfer);
        if transfer.destination.unsigned {
            return self.travel_unsigned(&transfer, deadline);
        }
        match self.pursue(&transfer, deadline) {
            Some(outcome) => outcome,
            None if cancel => self.call_off(&transfer),
            None if queue => {
                self.leave(&transfer);
                queued_answer(&transfer)
            }
            None => {
                self.leave(&transfer);
                let text = format!(
                    "{} has not said yet whether {} arrived; it stays marked as departing, takes no messages, and the transfer \
                     is pursued",
                    transfer.destination.name, record.id
                );
                Err(CallError::new("timeout", text))
            }
        }
    }

    /// `queue_agent`: an agent that does not live here goes out through this node's outbox, on its own
    /// signature. Its stage is this node, if it is to come back.
    ///
    /// # Errors
    /// `bad_payload`, `unknown_destination`, `too_large`; `busy` or `internal` if it can't be written
    /// down.
    pub fn queue(self: &Arc<Self>, order: Queue) -> Result<Box<RawValue>, Failure> {
        let package = self.open_package(order.source_code.as_deref(), order.capsule.as_deref())?;
        self.check_id(&package.manifest.id)?;
        let destination =
            match (self.tree().find(&order.destination), order.destination.parse::<wire::Address>()) {
                (Some(place), _) => Destination::of(place),
                (None, Ok(address)) => {
                    Some(Destination { name: address.to_string(), address, unsigned: false })
                }
                (None, Err(_)) => None,
            };
        let destination = destination.filter(|destination| !destination.unsigned).ok_or_else(|| {
            let text = format!(
                "{:?} is neither HOST:PORT nor a node of the tree of {} that signs its answers",
                order.destination,
                self.name()
            );
            Failure::new(Code::UnknownDestination, text)
        })?;
        let mut metadata = order.agent_metadata.unwrap_or_default();
        metadata.insert(
            "agent_name".into(),
            package.manifest.name.as_ref().unwrap_or(&package.manifest.id).clone().into(),
        );
        if order.stage {
            metadata.insert("stage".into(), self.told_to(&destination.address, "name"));
        }
        let mut hop = self.told_to(&destination.address, "node");
        hop["time"] = wire::unix_now().into();
        let mut head = json!({"mode": "move", "trace": [hop], "agent_metadata": metadata}).to_string();
        head.pop(); // the members that follow are text already
        let (form, text) = match &package.sealed {
            Some(sealed) => ("capsule", sealed.text.as_str()),
            None => ("source_code", &*package.source),
        };
        let id = wire::random_nonce()
            .map_err(|error| Failure::new(Code::Internal, format!("making an id: {error}")))?;
        let activate = order.activate_payload.as_deref().map_or("{}", RawValue::get);
        let agent = wire::json::quote(text);
        let body =
            format!("{head},\"{form}\":{agent},\"activate_payload\":{activate},\"transfer_id\":\"{id}\"");
        self.fits_a_line(&package.manifest.id, &body)
            .map_err(|error| Failure::new(Code::TooLarge, error.message))?;
        if order.stage {
            // Who comes back is known.
            self.pin(&package.manifest)?;
        }
        let traveller = Traveller::stranger(&package.manifest);
        let transfer = Transfer::new(id, Mode::Move, destination, traveller, true, body);
        self.outbox.store(&transfer).map_err(|error| disk_failure("the transfer", &error))?;
        self.outbox.add(&transfer);
        self.leave(&transfer);
        transfer.hurry();
        self.log.event(
            Level::Info,
            "agent_queued",
            &[("agent", &transfer.traveller.id), ("to", &transfer.destination.name)],
        );
        queued_answer(&transfer).map_err(|error| Failure::new(Code::Internal, error.message))
    }

    /// Writes a transfer down, if it is one that must outlive the node: a move, or what is queued. With
    /// a move the memory of the call is the agent's: if the hook that called does not come to its end,
    /// it is the latest there is.
    fn write_down(&self, transfer: &Transfer, memory: Option<&str>) -> std::io::Result<()> {
        if transfer.destination.unsigned || (transfer.mode == Mode::Clone && !transfer.queued) {
            return Ok(());
        }
        if let (Mode::Move, Some(record)) = (transfer.mode, transfer.traveller.record()) {
            memory.map_or(Ok(()), |memory| record.life.remember(memory))?;
            record.harness().sync_memory()?;
        }
        crash::point("memory-settled");
        self.outbox.store(transfer)
    }

    /// Leaves a transfer to the timers.
    fn leave(&self, transfer: &Transfer) {
        self.outbox.rest(transfer);
        transfer.leave();
    }

    /// Takes up transfers whose callers are gone.
    pub(super) fn pursue_transfers(self: &Arc<Self>) {
        for transfer in self.outbox.due() {
            if self.is_suspended(&transfer.traveller.id) {
                transfer.leave(); // of a backup: where it is now, the operator knows
                continue;
            }
            let node = Arc::clone(self);
            let ours = Arc::clone(&transfer);
            let started = self.in_background(move || {
                let deadline = Instant::now() + node.hook_limit();
                match ours.outcome() {
                    Some(_) => node.tell_to_forget(&ours),
                    None => {
                        let step = node.first_step(&ours, deadline);
                        if node.decide(&ours, step, deadline).is_none() {
                            node.leave(&ours);
                        }
                    }
                }
            });
            if !started {
                transfer.leave();
            }
        }
    }

    /// Attempts and asks until the transfer is decided, at most until the deadline. What is queued is
    /// attempted once.
    fn pursue(
        self: &Arc<Self>,
        transfer: &Arc<Transfer>,
        deadline: Instant,
    ) -> Option<Result<Box<RawValue>, CallError>> {
        let mut step = self.first_step(transfer, deadline);
        loop {
            if let Some(decided) = self.decide(transfer, step, deadline) {
                return Some(decided);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.is_stopping() || transfer.queued {
                return None;
            }
            std::thread::sleep(transfer.back_off().min(left));
            if Instant::now() >= deadline {
                return None;
            }
            step = self.ask(transfer, "transfer_status", deadline);
        }
    }

    /// An attempt; or a question, where an earlier attempt may have arrived.
    fn first_step(&self, transfer: &Transfer, deadline: Instant) -> Step {
        match transfer.is_unclear() {
            false => self.attempt(transfer, deadline),
            true => self.ask(transfer, "transfer_status", deadline),
        }
    }

    /// What a step decides; nothing, if it decides nothing.
    fn decide(
        self: &Arc<Self>,
        transfer: &Arc<Transfer>,
        mut step: Step,
        deadline: Instant,
    ) -> Option<Result<Box<RawValue>, CallError>> {
        let mut direct = !transfer.is_unclear();
        if let Step::Unknown = step {
            // The request may still be on its way: the same transfer once more.
            direct = false;
            step = self.attempt(transfer, deadline);
        }
        match step {
            Step::Arrived(answer) => Some(Ok(self.arrived(transfer, answer, direct))),
            Step::Refused(error) => Some(Err(self.stays(transfer, error, Some(Outcome::Refused)))),
            Step::Untouched(error) if !transfer.is_unclear() && !transfer.queued => {
                Some(Err(self.stays(transfer, error, None)))
            }
            // While an earlier attempt is unclear, one that reached nobody decides nothing.
            Step::Untouched(error) => {
                transfer.set_error(&error.message);
                None
            }
            Step::Unknown => None,
            Step::Unclear(why) | Step::Denied(CallError { message: why, .. })
                if transfer.mode == Mode::Clone && !transfer.queued =>
            {
                let text = format!("{}: {why}; the copy may have arrived", transfer.destination.name);
                Some(Err(self.stays(transfer, CallError::new("timeout", text), None)))
            }
            Step::Unclear(why) | Step::Denied(CallError { message: why, .. }) => {
                self.becomes_unclear(transfer, &why);
                None
            }
        }
    }

    fn becomes_unclear(&self, transfer: &Transfer, why: &str) {
        if !transfer.is_unclear() {
            let fields = [
                ("agent", transfer.traveller.id.as_str()),
                ("transfer", &transfer.id),
                ("to", &transfer.destination.name),
                ("why", why),
            ];
            self.log.event(Level::Warn, "transfer_unclear", &fields);
            self.note_journey(&transfer.traveller, transfer.mode, &transfer.destination.name, "unclear");
        }
        transfer.set_unclear(why);
    }

    /// Sends the transfer once.
    fn attempt(&self, transfer: &Transfer, deadline: Instant) -> Step {
        let left = deadline.saturating_duration_since(Instant::now());
        // The destination answers before we stop listening. What a hop takes off is small: a tour has many.
        let theirs = left.saturating_sub((left / 20).min(HOP_RESERVE));
        transfer.begin_attempt();
        let body = match self.outbox.body(transfer) {
            Ok(body) => body,
            // It can't be sent again. If it has not arrived it never shall, and the agent stays.
            Err(error) => {
                self.damaged(&format!("outbox/{}: {error}", transfer.id));
                return match self.ask(transfer, "transfer_cancel", deadline) {
                    Step::Unknown => Step::Unclear("it does not answer for this agent".into()),
                    step => step,
                };
            }
        };
        if transfer.is_untried() {
            // What reached nobody can be given up without asking, in later runs too.
            let address = &transfer.destination.address;
            if let Err(why) = wire::open(&self.secured(address), deadline) {
                return Step::Untouched(self.nothing_sent(transfer, &why.to_string()));
            }
            if let Err(error) = self.outbox.try_now(transfer) {
                let failure = disk_failure("that a transfer is under way", &error);
                return Step::Untouched(CallError::new(failure.code.as_str(), failure.message));
            }
        }
        let payload = format!("{body},\"timeout\":{:.3}}}", theirs.as_secs_f64().max(0.001));
        transfer.begin_sending();
        crash::point("attempt-begun");
        let answer = match self.exchange(transfer, "receive_agent", &payload, deadline) {
            Ok(answer) => answer,
            Err(Step::Unknown) => return Step::Unclear("it does not know the agent".into()),
            Err(Step::Denied(error)) => return self.settle_denied(transfer, error, deadline),
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

    /// What a destination refuses before it has a secret to sign with (the agent's stands in a capsule
    /// that breaks its policy, or in a line that is too long for it), it says without a signature. What
    /// it can sign is that this transfer never acts there.
    fn settle_denied(&self, transfer: &Transfer, error: CallError, deadline: Instant) -> Step {
        match self.ask(transfer, "transfer_cancel", deadline) {
            Step::Refused(_) => Step::Refused(error),
            // An earlier copy got through.
            arrived @ Step::Arrived(_) => arrived,
            _ => Step::Denied(error),
        }
    }

    /// Asks about the transfer, or calls it off.
    fn ask(&self, transfer: &Transfer, kind: &str, deadline: Instant) -> Step {
        // A destination that never got the transfer may know nothing else to check the question with,
        // and to sign its answer.
        let head = &transfer.traveller.head;
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
                    transfer.traveller.id,
                    said.unwrap_or("?")
                );
                Step::Refused(CallError::new("rejected", text))
            }
            // Signed with the agent's secret, it says that another agent has this id there: none of
            // this one's transfers gets in.
            _ if answer.known_code() == Some(Code::BadSignature) => Step::Refused(refusal(transfer, &answer)),
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
        let secret = &transfer.traveller.secret;
        let signed =
            wire::signed_request(kind, &transfer.traveller.id, secret, payload, RequestOptions::default())
                .map_err(|failure| Step::Untouched(CallError::new("bad_payload", failure.message)))?;
        let most = self.config().keys.max_message_bytes;
        let address = self.secured(&transfer.destination.address);
        match wire::exchange(&address, &signed.line, deadline, most) {
            Ok(answer) if transfer.destination.unsigned || answer.genuine(secret, &signed.nonce) => {
                Ok(answer)
            }
            // Nobody there reads plain text: also what it can't sign says that nothing came of it.
            Ok(answer) if address.tls.is_none() && answer.wants_tls() => {
                let text = format!(
                    "{} speaks TLS alone, and neither the tree here nor the agent says so of it: it read nothing",
                    transfer.destination.name
                );
                Err(Step::Untouched(CallError::new("unreachable", text)))
            }
            Ok(answer) if answer.known_code() == Some(Code::UnknownSender) => Err(Step::Unknown),
            Ok(answer) if answer.known_code().is_some_and(is_final) => {
                Err(Step::Denied(refusal(transfer, &answer)))
            }
            Ok(answer) => {
                let said = answer.error().map(|error| format!(": {error}")).unwrap_or_default();
                Err(Step::Unclear(format!("it answered without a good signature{said}")))
            }
            Err(ExchangeError::NotSent(why)) => Err(Step::Untouched(self.nothing_sent(transfer, &why))),
            Err(ExchangeError::Unclear(why)) => Err(Step::Unclear(why)),
        }
    }

    fn nothing_sent(&self, transfer: &Transfer, why: &str) -> CallError {
        let text = format!("{} ({why}): nothing was sent", transfer.destination.name);
        CallError::new("unreachable", text)
    }

    /// The caller's own deadline has passed: only a durable `refused` brings the agent back.
    fn call_off(self: &Arc<Self>, transfer: &Arc<Transfer>) -> Result<Box<RawValue>, CallError> {
        let (id, name) = (&transfer.traveller.id, &transfer.destination.name);
        match self.ask(transfer, "transfer_cancel", Instant::now() + CALLING_OFF) {
            Step::Arrived(answer) => Ok(self.arrived(transfer, answer, false)),
            Step::Refused(_) => {
                let text = format!("{name} did not take {id} in time; the transfer was cancelled");
                Err(self.stays(transfer, CallError::new("timeout", text), Some(Outcome::Refused)))
            }
            _ => {
                transfer.set_unclear("it could not be cancelled");
                self.leave(transfer);
                let text = format!(
                    "{name} has not said whether {id} arrived and can't be asked to cancel; the agent stays marked \
                     as departing, takes no messages, and the transfer is pursued"
                );
                Err(CallError::new("timeout", text))
            }
        }
    }

    /// `cancel_outbox`: gives a transfer up. One that reached nobody ends here; else only the
    /// destination's durable refusal ends it.
    ///
    /// # Errors
    /// `bad_payload` (no such transfer), `busy` (an attempt runs), `rejected` (the agent has arrived),
    /// `unreachable` (the destination can't be asked, and may have it).
    pub fn cancel_transfer(self: &Arc<Self>, id: &str) -> Result<Value, Failure> {
        let transfer = self.open_transfer(id)?;
        if !transfer.take() {
            let text = format!("an attempt of transfer {id} is under way; try again when it is over");
            return Err(Failure::new(Code::Busy, text));
        }
        let told = || json!({"transfer_id": id, "agent_id": transfer.traveller.id, "cancelled": true});
        let given_up = || CallError::new("timeout", "the transfer was cancelled");
        if !transfer.is_unclear() {
            self.stays(&transfer, given_up(), None);
            return Ok(told());
        }
        match self.ask(&transfer, "transfer_cancel", Instant::now() + QUESTION) {
            Step::Refused(_) => {
                crash::point("cancel-answered");
                self.stays(&transfer, given_up(), Some(Outcome::Refused));
                Ok(told())
            }
            Step::Arrived(answer) => {
                self.arrived(&transfer, answer, false);
                let text = format!("{} has arrived at {}", transfer.traveller.id, transfer.destination.name);
                Err(Failure::new(Code::Rejected, text))
            }
            Step::Unclear(why) => Err(self.cannot_cancel(&transfer, &why)),
            Step::Untouched(error) | Step::Denied(error) => {
                Err(self.cannot_cancel(&transfer, &error.message))
            }
            Step::Unknown => Err(self.cannot_cancel(&transfer, "it does not answer for this agent")),
        }
    }

    fn cannot_cancel(&self, transfer: &Transfer, why: &str) -> Failure {
        self.leave(transfer);
        let text = format!(
            "{} may have {} and can't be asked now ({why}); the transfer stays open",
            transfer.destination.name, transfer.traveller.id
        );
        Failure::new(Code::Unreachable, text)
    }

    /// `retry_outbox`: the transfer is due at once.
    ///
    /// # Errors
    /// `bad_payload`: there is no such transfer.
    pub fn retry_transfer(&self, id: &str) -> Result<Value, Failure> {
        let transfer = self.open_transfer(id)?;
        transfer.hurry();
        Ok(transfer.summary())
    }

    /// `list_outbox`: the transfers whose end is not known.
    pub fn list_outbox(&self) -> Value {
        self.outbox.undecided().iter().map(|transfer| transfer.summary()).collect()
    }

    fn open_transfer(&self, id: &str) -> Result<Arc<Transfer>, Failure> {
        let open = self.outbox.transfer(id).filter(|transfer| transfer.outcome().is_none());
        open.ok_or_else(|| Failure::new(Code::BadPayload, format!("no transfer {id:?} is open here")))
    }

    /// A node of the base implementation: its plain answer decides, once.
    fn travel_unsigned(
        self: &Arc<Self>,
        transfer: &Arc<Transfer>,
        deadline: Instant,
    ) -> Result<Box<RawValue>, CallError> {
        let body = self.outbox.body(transfer).unwrap_or_default(); // held: it was made just now
        let body = body.rsplit_once(",\"transfer_id\":").map_or(&*body, |(body, _)| body);
        match self.exchange(transfer, "receive_agent", &format!("{body}}}"), deadline) {
            Ok(answer) if answer.is_ok() => Ok(self.arrived(transfer, whole(&answer), true)),
            Ok(answer) => Err(self.stays(transfer, refusal(transfer, &answer), None)),
            Err(Step::Untouched(error) | Step::Refused(error) | Step::Denied(error)) => {
                Err(self.stays(transfer, error, None))
            }
            Err(Step::Unclear(why)) => {
                let text = format!(
                    "{}, a node that signs nothing: {why}; the agent stays here and may be there too",
                    transfer.destination.name
                );
                Err(self.stays(transfer, CallError::new("timeout", text), None))
            }
            Err(Step::Arrived(answer)) => Ok(self.arrived(transfer, answer, true)),
            Err(Step::Unknown) => {
                let text = format!("{} does not know the agent", transfer.destination.name);
                Err(self.stays(transfer, CallError::new("rejected", text), None))
            }
        }
    }

    /// The agent lives there now: that is written down, then this generation goes, then the destination
    /// may forget. `direct`: it answered the attempt itself.
    fn arrived(
        self: &Arc<Self>,
        transfer: &Arc<Transfer>,
        answer: Box<RawValue>,
        direct: bool,
    ) -> Box<RawValue> {
        crash::point("answer-received");
        let traveller = &transfer.traveller;
        let stored = self.outbox.is_stored(transfer);
        let recorded = match stored {
            true => self.outbox.conclude(transfer, Outcome::Arrived, direct),
            false => Ok(()),
        };
        crash::point("outcome-recorded");
        if let (Mode::Move, Some(record)) = (transfer.mode, traveller.record()) {
            self.has_left(&traveller.id);
            {
                let mut registry = lock(&self.registry);
                if registry.remove(&record) {
                    registry.note_departure(&traveller.id, &transfer.destination.name);
                }
            }
            match record.discard() {
                Ok(()) => traveller.release(),
                Err(error) => self.not_written("that an agent has left", &error),
            }
            record.life.retire();
            self.roster_changed();
        }
        crash::point("generation-removed");
        self.counters.departures.fetch_add(1, Ordering::Relaxed);
        let fields = [
            ("agent", traveller.id.as_str()),
            ("mode", transfer.mode.as_str()),
            ("to", transfer.destination.name.as_str()),
        ];
        self.log.event(Level::Info, "agent_sent", &fields);
        self.note_journey(traveller, transfer.mode, &transfer.destination.name, "arrived");
        match recorded {
            // It stays open on disk: after a restart the destination, which must not forget, says the
            // same again.
            Err(error) => self.not_written("that an agent has arrived", &error),
            // The timers tell it to forget.
            Ok(()) if stored => {}
            Ok(()) => {
                self.close(transfer);
                if !transfer.destination.unsigned {
                    self.forget_in_background(transfer);
                }
            }
        }
        answer
    }

    /// Tells the destination to forget; when it has, the outbox does, too. Not before what it would be
    /// asked for again is done, on disk too.
    fn tell_to_forget(&self, transfer: &Transfer) {
        let gone = || match (transfer.mode, transfer.outcome(), transfer.traveller.record()) {
            (Mode::Move, Some(Outcome::Arrived), Some(record)) => {
                record.discard().map(|()| transfer.traveller.release())
            }
            _ => Ok(()),
        };
        let done = self.outbox.record(transfer).and_then(|()| gone());
        if let Err(error) = &done {
            self.not_written("the end of a transfer", error);
        }
        if done.is_ok() && transfer.leave_until_forgotten() {
            return;
        }
        if done.is_ok() && self.ask_to_forget(transfer) {
            crash::point("forget-answered");
            self.close(transfer);
        } else {
            transfer.leave();
        }
    }

    /// If this is lost the destination keeps a small entry for longer; nothing else.
    fn forget_in_background(self: &Arc<Self>, transfer: &Arc<Transfer>) {
        let (node, transfer) = (Arc::clone(self), Arc::clone(transfer));
        self.in_background(move || {
            let _ = node.ask_to_forget(&transfer);
        });
    }

    fn ask_to_forget(&self, transfer: &Transfer) -> bool {
        let payload = json!({"transfer_id": transfer.id, "source_code": transfer.traveller.head}).to_string();
        let answer = self.exchange(transfer, "transfer_forget", &payload, Instant::now() + QUESTION);
        matches!(answer, Ok(answer) if answer.is_ok())
    }

    fn close(&self, transfer: &Transfer) {
        if let Err(error) = self.outbox.close(transfer) {
            self.not_written("the end of a transfer", &error);
        }
    }

    /// The agent stays; its messages go on. `outcome`: the destination's ledger has an entry of it.
    fn stays(
        self: &Arc<Self>,
        transfer: &Arc<Transfer>,
        error: CallError,
        outcome: Option<Outcome>,
    ) -> CallError {
        let traveller = &transfer.traveller;
        let fields = [
            ("agent", traveller.id.as_str()),
            ("mode", transfer.mode.as_str()),
            ("to", transfer.destination.name.as_str()),
            ("error", &error.message),
        ];
        self.log.event(Level::Warn, "agent_not_sent", &fields);
        self.note_journey(traveller, transfer.mode, &transfer.destination.name, error.code);
        let here = traveller.record().filter(|record| !record.life.is_over());
        if transfer.mode == Mode::Move && here.is_none() && self.outbox.is_stored(transfer) {
            self.supersede(transfer);
            return error;
        }
        let stored = self.outbox.is_stored(transfer);
        let recorded = match outcome.filter(|_| stored) {
            Some(outcome) => self.outbox.conclude(transfer, outcome, false),
            None => self.outbox.close(transfer),
        };
        if let Err(error) = recorded {
            self.not_written("the end of a transfer", &error);
        }
        if let (Some(_), false) = (outcome, stored) {
            // The answer to the only attempt that there will be.
            self.forget_in_background(transfer);
        }
        crash::point("refusal-received");
        if let (Mode::Move, Some(record)) = (transfer.mode, here) {
            record.life.set_departing(false);
        }
        traveller.release();
        error
    }

    /// A refused agent whose id a newer arrival has taken, or that never lived here, goes where a person
    /// finds it.
    fn supersede(&self, transfer: &Transfer) {
        let id = transfer.traveller.id.as_str();
        match self.outbox.supersede(transfer) {
            Ok(file) => {
                let why = match transfer.traveller.generation {
                    Some(_) => "a newer arrival has its id",
                    None => "it does not live here",
                };
                let file = file.to_string_lossy();
                self.log.event(
                    Level::Warn,
                    "agent_superseded",
                    &[("agent", id), ("why", why), ("file", &file)],
                );
            }
            Err(error) => self.not_written("a superseded agent", &error),
        }
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
            .map_err(|why| CallError::new(why.code.as_str(), format!("{}: {}", record.id, why.message)))?;
        let head = json!({
            "mode": journey.mode.as_str(),
            "trace": trace,
            "agent_metadata": self.travelling_metadata(record, journey.token.as_ref()),
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
        self.fits_a_line(&record.id, &body)?;
        Ok(body)
    }

    /// Whether a payload goes into one message.
    fn fits_a_line(&self, id: &str, body: &str) -> Result<(), CallError> {
        let most = self.config().keys.max_message_bytes;
        // The signed line is ASCII: what is not takes up to six bytes a code unit.
        let escaped: usize =
            body.chars().filter(|c| !c.is_ascii()).map(|c| c.len_utf16() * 6 - c.len_utf8()).sum();
        let length = body.len() + escaped + ENVELOPE;
        if length > most {
            let text = format!(
                "{id} would take {length} bytes where a message has at most {most} (max_message_bytes)"
            );
            return Err(CallError::new("too_large", text));
        }
        Ok(())
    }

    fn own_hop(&self, record: &Record, destination: &Destination) -> Value {
        let mut hop = self.told_to(&destination.address, "node");
        hop["time"] = wire::unix_now().into();
        let notes = lock(&record.notes).clone();
        if !notes.is_empty() {
            hop["notes"] = notes.into();
        }
        hop
    }

    /// The metadata with the agent's name and its view of the network: what it brought, with this
    /// node's own configuration put in, or else this node's tree.
    fn travelling_metadata(&self, record: &Record, token: Option<&Value>) -> Value {
        let mut metadata = lock(&record.metadata).clone();
        if let Some(token) = token {
            metadata.insert(METADATA.into(), token.clone());
        }
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

/// What is said of a transfer that waits in the outbox.
fn queued_answer(transfer: &Transfer) -> Result<Box<RawValue>, CallError> {
    let mut told = transfer.summary();
    told["status"] = "queued".into();
    serde_json::value::to_raw_value(&told).map_err(|error| CallError::new("internal", error.to_string()))
}

/// Whether an error means the same for the same message at any other time.
fn is_final(code: Code) -> bool {
    !matches!(
        code,
        Code::Busy
            | Code::ShuttingDown
            | Code::StaleTimestamp
            | Code::Replayed
            | Code::Timeout
            | Code::UnknownSender
    )
}

fn refusal(transfer: &Transfer, answer: &ReceivedAnswer) -> CallError {
    let code = answer.known_code().unwrap_or(Code::Rejected).as_str();
    let said = answer.error().unwrap_or("it gave no reason");
    CallError::new(
        code,
        format!("{} did not take {}: {said}", transfer.destination.name, transfer.traveller.id),
    )
    .with_detail(whole(answer))
}
