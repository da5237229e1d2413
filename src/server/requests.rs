//! From a line to its answer: the checks in the protocol's order, then one `match` from type to handler.

use super::budget::{Budgets, Left};
use crate::journal::Event;
use crate::log::{clipped, Level};
use crate::node::arrive::{word_of, Arrival};
use crate::node::messages::{self, deadline};
use crate::node::senders::{not_its_own, transfer_of, NotNow, Proof, Sender, Signed};
use crate::node::{Heard, Node};
use crate::wire::{freshness, unix_now, Answer, Code, Failure, Request};
use serde_json::value::RawValue;
use serde_json::{json, Value};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

/// The longest error text in the answer to a line that nobody known has signed, bytes.
const LONGEST_REFUSAL: usize = 500;

/// Answers a line; the second says whether the connection stays open.
pub(super) fn answer(
    node: &Arc<Node>,
    line: Vec<u8>,
    stream: &TcpStream,
    budgets: &Budgets,
) -> (String, bool) {
    let mut request = match Request::parse(line) {
        Ok(request) => request,
        Err(failure) => {
            let written = is_written_down(node, stream, budgets);
            if written {
                node.note_unread(stream, failure.code);
            }
            return (refuse(node, "?", failure, written), false);
        }
    };
    let fresh = freshness(request.timestamp, unix_now(), node.config().keys.clock_skew_s);
    let address = stream.peer_addr().map(|peer| peer.ip());
    let strangers = address.map_or(true, |address| budgets.has_some(address, Instant::now()));
    let signed = match node.authenticate(&request, strangers) {
        Ok(signed) => signed,
        // Freshness comes first in the order; the signature is looked at all the same, because an
        // answer to whoever signed well is signed, a refusal too.
        Err(failure) => {
            let failure = fresh.err().unwrap_or(failure);
            // It counts like any other, so that a flood of them is seen too.
            let written = is_written_down(node, stream, budgets) && !request.only_knocks();
            if written {
                node.note_stranger(&request, stream, &failure);
            }
            return (refuse(node, &request.sender, failure, written), false);
        }
    };
    let heard = Heard::new(node, &request, &signed, stream);
    let answered = if request.kind == "receive_agent" {
        receive(node, &mut request, &signed, fresh, &heard)
    } else {
        match fresh.and_then(|()| carry_out(node, &mut request, &signed, stream, &heard)) {
            Ok(answer) => answer,
            Err(failure) => failed(node, &request, &failure),
        }
    };
    heard.ended(&answered);
    let proof = Some((request.nonce.as_str(), &signed.secret));
    let line = answered.to_line(proof);
    let most = node.config().keys.max_message_bytes;
    if line.len() > most {
        let text = format!(
            "the answer has {} bytes, more than a line may have ({most}, max_message_bytes)",
            line.len()
        );
        let answered = failed(node, &request, &Failure::new(Code::TooLarge, text));
        heard.ended(&answered);
        return (answered.to_line(proof), request.keep_alive);
    }
    (line, request.keep_alive)
}

/// Counts a line without a good signature. Whether it is written down by itself: not when its address has
/// sent too many, which is.
pub(super) fn is_written_down(node: &Node, stream: &TcpStream, budgets: &Budgets) -> bool {
    let Ok(peer) = stream.peer_addr() else { return true };
    match budgets.spend(peer.ip(), Instant::now()) {
        Left::Some => true,
        Left::Last => {
            let address = peer.ip().to_string();
            node.log.event(Level::Warn, "address_limited", &[("address", &address)]);
            node.journal.note(&Event::new("limited").text("peer", &address));
            true
        }
        Left::None => false,
    }
}

/// Refuses a line of nobody known, without a signature and without repeating all that it says: a key
/// or number that is wrong may have megabytes.
fn refuse(node: &Node, sender: &str, mut failure: Failure, written: bool) -> String {
    let end = clipped(&failure.message, LONGEST_REFUSAL).len();
    if end < failure.message.len() {
        failure.message.truncate(end);
        failure.message.push('…');
    }
    let fields = [("sender", sender), ("code", failure.code.as_str()), ("error", &failure.message)];
    if written {
        node.log.event(Level::Warn, "request_refused", &fields);
    }
    Answer::failure(node.name(), &failure).to_line(None)
}

fn failed(node: &Node, request: &Request, failure: &Failure) -> Answer {
    let fields = [
        ("type", request.kind.as_str()),
        ("sender", request.sender.as_str()),
        ("code", failure.code.as_str()),
        ("error", &failure.message),
    ];
    node.log.event(Level::Warn, "request_failed", &fields);
    Answer::failure(node.name(), failure)
}

fn carry_out(
    node: &Arc<Node>,
    request: &mut Request,
    signed: &Signed,
    stream: &TcpStream,
    heard: &Heard,
) -> Result<Answer, Failure> {
    match (signed.proof, request.kind.as_str()) {
        // Its source is told to send the transfer again, and that gets its refusal.
        (Proof::Namesake, "transfer_status") => {}
        (Proof::Namesake, _) => return Err(namesake(request)),
        // Its sequence is what is remembered of it.
        (Proof::Snapshot, _) => {}
        _ => match node.first_time(signed, request) {
            // Acting twice on it would change nothing, and on a full disk people need to look around.
            Err(why) if !why.noted && signed.proof == Proof::Registered && only_asks(&request.kind) => {}
            other => other?,
        },
    }
    // A release has no such type.
    #[cfg(debug_assertions)]
    if request.kind == "panic_for_tests" {
        panic!("asked for by a test");
    }
    node.authorise(signed, request)?;
    if node.is_stopping() {
        return Err(Failure::new(Code::ShuttingDown, "the node is shutting down"));
    }
    heard.accepted();
    match request.kind.as_str() {
        "deploy_agent" => {
            let order = read(request)?;
            request.release();
            say(node, &node.deploy(order)?)
        }
        "invoke_agent" => {
            let order: messages::Invoke = read(request)?;
            request.release();
            let until = deadline(order.timeout, node.hook_limit())?;
            let message = order.message.as_deref().map_or("{}", RawValue::get);
            let outcome = node.invoke(&order.agent_id, message, until)?;
            drop(order.message);
            let id = Value::from(order.agent_id);
            let result = format!("{{\"agent_id\":{id},\"result\":{}}}", outcome.result.get());
            drop(outcome);
            say_text(node, &result)
        }
        "dispatch_agent" => say(node, &node.dispatch(read(request)?)?),
        "queue_agent" => say(node, &node.queue(read(request)?)?),
        "list_outbox" => {
            let _: messages::Nothing = read(request)?;
            Ok(plain(node, node.list_outbox()))
        }
        "set_grant" => Ok(plain(node, node.set_grant(read(request)?)?)),
        "revoke_grant" => Ok(plain(node, node.revoke_grant(read(request)?)?)),
        "list_grants" => {
            let _: messages::Nothing = read(request)?;
            Ok(plain(node, node.list_grants()))
        }
        "revoke_token" => Ok(plain(node, node.revoke_token(read(request)?)?)),
        "list_revoked_tokens" => {
            let _: messages::Nothing = read(request)?;
            Ok(plain(node, node.list_revoked_tokens()))
        }
        "list_schedules" => {
            let _: messages::Nothing = read(request)?;
            Ok(plain(node, node.list_schedules()))
        }
        "create_identity" => Ok(plain(node, node.create_identity(read(request)?, &request.sender)?)),
        "rotate_identity" => Ok(plain(node, node.rotate_identity(read(request)?)?)),
        "revoke_identity" => Ok(plain(node, node.revoke_identity(read(request)?)?)),
        "push_identities" => Ok(plain(node, node.push_identities(read(request)?, &signed.sender)?)),
        "list_identities" => {
            let _: messages::Nothing = read(request)?;
            Ok(plain(node, node.list_identities()))
        }
        "list_roster" => {
            let _: messages::Nothing = read(request)?;
            Ok(plain(node, node.list_roster()))
        }
        "retry_outbox" => {
            let order: messages::OutboxRef = read(request)?;
            Ok(plain(node, node.retry_transfer(&order.transfer_id)?))
        }
        "cancel_outbox" => {
            let order: messages::OutboxRef = read(request)?;
            Ok(plain(node, node.cancel_transfer(&order.transfer_id)?))
        }
        "remove_agent" => {
            let order: messages::Remove = read(request)?;
            node.remove(&order.agent_id)?;
            Ok(plain(node, json!({"agent_id": order.agent_id})))
        }
        "list_agents" => {
            let _: messages::Nothing = read(request)?;
            let told = |record: &Arc<crate::node::Record>| {
                let mut told = record.summary();
                if let Some(word) = node.stop_word(&record.id) {
                    told["status"] = word.into();
                }
                told
            };
            let all: Vec<Value> = node.agents().iter().map(told).collect();
            Ok(plain(node, all.into()))
        }
        "describe_container" => {
            let _: messages::Nothing = read(request)?;
            let mut told = node.describe(&seen_host(node, stream));
            if let Sender::Agent(id) = &signed.sender {
                told["sender"] = node.standing(id);
            }
            Ok(plain(node, told))
        }
        "network_tree" => {
            let _: messages::Nothing = read(request)?;
            Ok(plain(node, serde_json::to_value(node.tree()).unwrap_or_default()))
        }
        kind @ ("transfer_status" | "transfer_cancel" | "transfer_forget") => {
            let order: messages::TransferRef = messages::read(kind, request.payload())?;
            let id = match (&signed.sender, order.agent_id) {
                (Sender::Agent(id), _) => id.clone(),
                (_, Some(id)) => id,
                (_, None) => {
                    return Err(Failure::new(
                        Code::BadPayload,
                        format!("the payload of {kind}: agent_id is missing"),
                    ))
                }
            };
            node.transfer_query(kind, &id, &order.transfer_id, signed)
        }
        kind => Err(Failure::new(Code::UnknownType, format!("there is no message type {kind:?}"))),
    }
}

/// Whether a message of this type changes nothing.
fn only_asks(kind: &str) -> bool {
    matches!(
        kind,
        "list_agents"
            | "describe_container"
            | "network_tree"
            | "list_outbox"
            | "list_schedules"
            | "transfer_status"
            | "list_identities"
            | "list_roster"
            | "list_revoked_tokens"
    )
}

/// `receive_agent` has an order of its own: the ledger answers for a transfer that it knows, and each
/// refusal says where the transfer stands.
fn receive(
    node: &Arc<Node>,
    request: &mut Request,
    signed: &Signed,
    fresh: Result<(), Failure>,
    heard: &Heard,
) -> Answer {
    let told = |request: &Request, failure: Failure, word: Option<&str>| {
        let failure = word.into_iter().fold(failure, |failure, word| failure.with_value("transfer", word));
        failed(node, request, &failure)
    };
    if signed.proof == Proof::Namesake {
        return told(request, fresh.err().unwrap_or_else(|| namesake(request)), Some("refused"));
    }
    if let Err(failure) = fresh {
        // Noted, so that these bytes do not act later, when the clocks agree. A copy that comes late, of an
        // attempt that the ledger knows, says nothing about that: its source asks.
        let noted = node.first_time(signed, request).map_or_else(|why| why.noted, |()| true);
        let promised = noted && !node.knows_transfer(request);
        return told(request, failure, promised.then_some("untouched"));
    }
    let order = read::<messages::Receive>(request).and_then(|mut order| {
        order.check()?;
        let package = node.open_package(order.source_code.as_deref(), order.capsule.as_deref())?;
        (order.source_code, order.capsule) = (None, None); // megabytes, perhaps, and the package has its own
        Ok((order, package))
    });
    let transfer = transfer_of(request);
    request.release();
    let request = &*request;
    let brought = order.as_ref().map_or("", |(_, package)| &package.manifest.id);
    let (id, own) = match &signed.sender {
        // Its own transfers are all that it can ask for, whatever source it sends.
        Sender::Agent(id) if brought != id && !brought.is_empty() => (id, Err(not_its_own(id, brought))),
        Sender::Agent(id) => (id, Ok(())),
        _ => (&brought.to_owned(), Ok(())),
    };
    let allowed = || {
        node.first_time(signed, request)?;
        node.authorise(signed, request).map_err(NotNow::from)
    };
    if let Sender::Operator(_) = signed.sender {
        // Before the ledger: not even a refusal is written on the word of one who may not.
        if let Err(failure) = node.authorise(signed, request) {
            let why = allowed().err().unwrap_or(failure.into());
            let word = word_of(&why);
            return told(request, why.failure, word);
        }
    }
    let arrival = Arrival { id: id.clone(), transfer: transfer.filter(|_| !id.is_empty()), order };
    node.receive(arrival, signed, || {
        allowed()?;
        own?;
        match signed.proof {
            Proof::OwnSource => node.admit_stranger()?,
            // Its entry has been forgotten since: it speaks for nothing any more.
            Proof::Transfer => return Err(namesake(request).into()),
            _ => {}
        }
        heard.accepted();
        Ok(())
    })
}

fn namesake(request: &Request) -> Failure {
    let text =
        format!("{:?} is known here with another secret than the one its source carries", request.sender);
    Failure::new(Code::BadSignature, text)
}

fn read<'a, T: serde::Deserialize<'a>>(request: &'a Request) -> Result<T, Failure> {
    messages::read(&request.kind, request.payload())
}

fn plain(node: &Node, value: Value) -> Answer {
    node.plain_answer(&value)
}

fn say(node: &Node, result: &RawValue) -> Result<Answer, Failure> {
    say_text(node, result.get())
}

/// A result that came from an agent may be something that no line can say.
fn say_text(node: &Node, result: &str) -> Result<Answer, Failure> {
    Answer::ok(node.name(), result).map_err(|wrong| {
        Failure::new(
            Code::AgentError,
            format!("the agent's result does not go into an answer: {}", wrong.what),
        )
    })
}

/// This node's address as the asker sees it, unless one is configured.
fn seen_host(node: &Node, stream: &TcpStream) -> String {
    match (&node.config().keys.advertise_host, stream.local_addr()) {
        (Some(host), _) => host.clone(),
        (None, Ok(address)) => address.ip().to_string(),
        (None, Err(_)) => node.config().keys.listen_host.clone(),
    }
}
