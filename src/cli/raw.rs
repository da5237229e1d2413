//! The protocol by hand: `call`, `sign`, `check`.

use super::args::Given;
use super::ask::{ask, patience};
use super::fault::{Fault, ANSWERED};
use super::{out, secrets};
use crate::wire::{self, json::quote, Address, ReceivedAnswer, RequestOptions};
use std::io::Read;

/// The longest answer line that `check` reads, bytes.
const ANSWER_BYTES: u64 = 256 << 20;

/// `call`.
pub fn call(given: &Given) -> Result<(), Fault> {
    let (kind, address) = (given.word(0)?, given.address(1)?);
    let payload = given.json_object("payload")?.unwrap_or_else(|| "{}".into());
    let wait = patience(given.seconds("timeout")?);
    let caller = secrets::caller(given, Some(&address))?;
    let answer = ask(&address, &caller, kind, &payload, wait)?;
    out::result(answer.result().unwrap_or("null"), given.flag("json"))
}

/// `sign`.
pub fn sign(given: &Given) -> Result<(), Fault> {
    let kind = given.word(0)?;
    let payload = given.json_object("payload")?.unwrap_or_else(|| "{}".into());
    let node = node(given)?;
    // Signing sends nothing: the node need not be there, and is not asked.
    let caller = secrets::find(given, node.as_ref(), None)?.ok_or_else(|| secrets::none(node.as_ref()))?;
    let options = RequestOptions {
        nonce: given.text("nonce")?.map(str::to_owned),
        keep_alive: given.flag("keep-alive"),
        ..RequestOptions::default()
    };
    let signed = wire::signed_request(kind, &caller.sender, &caller.secret, &payload, options)
        .map_err(|failure| Fault::Usage(failure.message))?;
    out::line(&signed.line)
}

/// `check`.
pub fn check(given: &Given) -> Result<(), Fault> {
    let mut line = Vec::new();
    std::io::stdin()
        .lock()
        .take(ANSWER_BYTES)
        .read_to_end(&mut line)
        .map_err(|error| Fault::Local(format!("reading standard input: {error}")))?;
    let no_answer = |why: String| {
        out::note(&why);
        Fault::Status(ANSWERED)
    };
    if line.iter().all(u8::is_ascii_whitespace) {
        return Err(no_answer("there is no answer on standard input".into()));
    }
    let answer = ReceivedAnswer::parse(line).map_err(|why| no_answer(why.to_string()))?;
    let node = node(given)?;
    let caller =
        secrets::find(given, node.as_ref(), answer.node())?.ok_or_else(|| secrets::none(node.as_ref()))?;
    let own =
        answer.json().get("nonce").and_then(|nonce| nonce.as_str().map(String::from)).unwrap_or_default();
    let signed = answer.genuine(&caller.secret, &own);
    let asked = given.text("nonce")?.is_none_or(|nonce| nonce == own);
    let verdict = match (signed, asked) {
        (true, true) => "genuine",
        (true, false) => "genuine, but the answer to another request",
        (false, _) if answer.field("signature").is_none() => "not signed",
        (false, _) => "not genuine: the signature does not fit the line and the secret",
    };
    let node = answer.node().unwrap_or("?");
    let printed = if given.flag("json") {
        let good = signed && asked;
        out::line(&format!("{{\"genuine\":{good},\"verdict\":{},\"node\":{}}}", quote(verdict), quote(node)))
    } else {
        let what = if answer.is_ok() { "ok" } else { "error" };
        out::line(&format!(
            "{verdict} ({what} from {}; secret from {})",
            out::shown(node),
            out::shown(&caller.found)
        ))
    };
    match signed && asked {
        true => printed,
        false => Err(Fault::Status(ANSWERED)),
    }
}

/// The node whose secret is meant.
fn node(given: &Given) -> Result<Option<Address>, Fault> {
    let node = given.text("node")?.map(str::parse::<Address>).transpose();
    node.map_err(|why| Fault::Usage(format!("--node: {why}")))
}
