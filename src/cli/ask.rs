//! One question to a node, with every answer's signature checked.

use super::fault::{Answered, Fault};
use super::secrets::{Caller, VARIABLE};
use crate::wire::{self, Address, Code, ExchangeError, ReceivedAnswer, RequestOptions};
use std::time::{Duration, Instant};

/// How long a node is waited for that has nothing to run for its answer.
pub const QUICK: Duration = Duration::from_secs(30);
/// How long one is that runs a hook, unless told otherwise: a node's own limit.
const HOOK: f64 = 300.0;
/// What the node gets beyond that for its answer, so that it is the one to say that time is up.
const SLACK: Duration = Duration::from_secs(5);
/// The longest answer that is read; a node's lines are 32 MiB unless configured longer.
const ANSWER_BYTES: usize = 256 << 20;

/// How long to wait for a request that may run a hook for `timeout` seconds.
pub fn patience(timeout: Option<f64>) -> Duration {
    Duration::try_from_secs_f64(timeout.unwrap_or(HOOK)).unwrap_or(Duration::MAX / 4).saturating_add(SLACK)
}

/// Sends a request and returns its `ok` answer, which is genuine.
///
/// # Errors
/// The answer, if it is an error; that it is not signed, if it is `ok`; that none came.
pub fn ask(
    address: &Address,
    caller: &Caller,
    kind: &str,
    payload: &str,
    wait: Duration,
) -> Result<ReceivedAnswer, Fault> {
    let (answer, genuine) = exchange(address, caller, kind, payload, wait)?;
    match (answer.is_ok(), genuine) {
        (true, true) => Ok(answer),
        (true, false) => Err(Fault::from(Answered {
            node: address.to_string(),
            code: "ok".into(),
            error: format!("without a good signature, so it does not know the secret (from {}) and its answer counts for nothing", caller.found),
            lines: Vec::new(),
            hint: None,
            signed: false,
        })),
        (false, genuine) => Err(Fault::from(explained(&answer, genuine, address, caller))),
    }
}

/// Sends a request; the second says whether the answer is genuine.
///
/// # Errors
/// No answer came.
pub fn exchange(
    address: &Address,
    caller: &Caller,
    kind: &str,
    payload: &str,
    wait: Duration,
) -> Result<(ReceivedAnswer, bool), Fault> {
    heard(address, caller, kind, payload, wait)?.map_err(|error| {
        Fault::Unreached(match error {
            ExchangeError::NotSent(why) => format!("{why}; nothing was sent"),
            ExchangeError::Unclear(why) => format!("{why}; whether the node acted is not known"),
        })
    })
}

/// The same for whom no answer is an answer, too.
///
/// # Errors
/// The request can't be made.
pub fn heard(
    address: &Address,
    caller: &Caller,
    kind: &str,
    payload: &str,
    wait: Duration,
) -> Result<Result<(ReceivedAnswer, bool), ExchangeError>, Fault> {
    let signed =
        wire::signed_request(kind, &caller.sender, &caller.secret, payload, RequestOptions::default())
            .map_err(|failure| Fault::Usage(failure.message))?;
    Ok(wire::exchange(address, &signed.line, until(wait), ANSWER_BYTES).map(|answer| {
        let genuine = answer.genuine(&caller.secret, &signed.nonce);
        (answer, genuine)
    }))
}

/// Asks without any secret whether a node is there; its answer proves nothing more.
///
/// # Errors
/// The request can't be made.
pub fn knock(address: &Address, wait: Duration) -> Result<Result<ReceivedAnswer, ExchangeError>, Fault> {
    let line = wire::knock().map_err(|error| Fault::Local(format!("making a nonce: {error}")))?;
    Ok(wire::exchange(address, &line, until(wait), ANSWER_BYTES))
}

fn until(wait: Duration) -> Instant {
    Instant::now().checked_add(wait).unwrap_or_else(|| Instant::now() + Duration::from_secs(1 << 30))
}

/// An error answer, with what may be done about it.
fn explained(answer: &ReceivedAnswer, genuine: bool, address: &Address, caller: &Caller) -> Answered {
    let answered = Answered::from_answer(answer, genuine);
    let sender = &caller.sender;
    match answer.known_code() {
        Some(Code::BadSignature) => answered.advised(format!(
            "the secret used, from {}, is not the one that the node has for {sender}; others: --secret-file, --config, --state-dir, {VARIABLE}",
            caller.found
        )),
        Some(Code::UnknownSender) => {
            answered.advised(format!("operators stand in the node's configuration; is {sender:?} one of them?"))
        }
        Some(Code::StaleTimestamp) => {
            let theirs = answer.field("node_time").and_then(|text| text.parse::<i64>().ok());
            let apart = theirs.map(|theirs| theirs.abs_diff(wire::unix_now()));
            let apart = apart.map_or(String::new(), |apart| format!(" {apart} s from the node's"));
            answered.advised(format!("this machine's clock is{apart}: set it, or the node's"))
        }
        Some(Code::Forbidden) => answered.advised("what an operator may send is its \"allow\" list in the node's configuration"),
        Some(Code::UnknownAgent) => answered.advised(format!("who lives there: agentcontainer list {address}")),
        _ if answer.wants_tls() => {
            answered.advised("say whose certificate it must be: --tls-fingerprint HEX, or --tls-ca FILE")
        }
        Some(Code::Busy) => answered.advised("later it may do"),
        _ => answered,
    }
}
