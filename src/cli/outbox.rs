//! The outbox of the node on this machine: `outbox`, and the `--queue` of `deploy` and `send`.

use super::agents::wait;
use super::args::{opt, Given, Opt};
use super::ask::ask;
use super::fault::Fault;
use super::{out, secrets, tls};
use crate::wire::{self, json::quote, Address, Value};
use std::time::Duration;

/// Which node's outbox.
pub const NODE: Opt =
    opt("node", "HOST:PORT", "the node on this machine whose outbox it is (the only one that runs)");

/// How long the node may take to write something down.
const WRITING: Duration = Duration::from_secs(30);

/// `outbox list|retry|cancel`.
pub fn run(given: &Given) -> Result<(), Fault> {
    let what = given.word(0)?;
    let kind = match what {
        "list" => "list_outbox",
        "retry" => "retry_outbox",
        "cancel" => "cancel_outbox",
        other => return Err(Fault::Usage(format!("outbox does list, retry or cancel, not {other:?}"))),
    };
    let payload = match (what, given.has_word(1)) {
        ("list", false) => "{}".to_owned(),
        ("list", true) => return Err(Fault::Usage("outbox list takes no transfer".into())),
        (_, true) => format!("{{\"transfer_id\":{}}}", quote(given.word(1)?)),
        (_, false) => {
            return Err(Fault::Usage(format!("outbox {what} needs a TRANSFER, as outbox list names it")))
        }
    };
    let (address, caller) = secrets::node_here(given)?;
    let answer = ask(&address, &caller, kind, &payload, wait(given)?)?;
    let result = answer.result().unwrap_or("null");
    if given.flag("json") {
        return out::result(result, true);
    }
    match what {
        "list" => list(result, answer.node().unwrap_or("the node")),
        "retry" => out::line("it is tried now"),
        _ => out::line("it is cancelled; the agent stays"),
    }
}

fn list(result: &str, node: &str) -> Result<(), Fault> {
    let transfers = wire::parse(result).map(|json| json.elements().collect::<Vec<_>>()).unwrap_or_default();
    if transfers.is_empty() {
        out::note(&format!("nothing waits in the outbox of {node}"));
        return Ok(());
    }
    let names = ["transfer_id", "agent_id", "mode", "destination", "state", "attempts", "last_error"];
    let mut rows = vec![["TRANSFER", "AGENT", "MODE", "TO", "STATE", "ATTEMPTS", "LAST ERROR"]
        .map(String::from)
        .to_vec()];
    for transfer in transfers {
        let cell = |name: &&str| match transfer.get(name).map(|value| (value.value(), value)) {
            Some((Value::String(text), _)) => out::shown(&text),
            Some((_, value)) => value.raw().to_owned(),
            None => "-".to_owned(),
        };
        rows.push(names.iter().map(cell).collect());
    }
    out::line(&out::table(&rows))
}

/// Leaves an agent to the outbox of the node on this machine. `agent` is a member, `activate` and
/// `metadata` are JSON; `stage`: the node here is where the agent comes home to.
///
/// # Errors
/// No node of this user runs here; the node refuses.
pub fn queue(
    given: &Given,
    agent: &str,
    destination: &str,
    activate: Option<&str>,
    metadata: Option<&str>,
    stage: bool,
) -> Result<(), Fault> {
    if destination.parse::<Address>().is_err() && destination.contains(':') {
        return Err(Fault::Usage(format!("{destination:?} is neither HOST:PORT nor the name of a node")));
    }
    let destination = &tls::in_words(given, destination)?;
    let (address, caller) = secrets::node_here(given)?;
    let mut payload = format!("{{{agent},\"destination\":{},\"stage\":{stage}", quote(destination));
    for (name, value) in [("activate_payload", activate), ("agent_metadata", metadata)] {
        if let Some(value) = value {
            payload.push_str(&format!(",\"{name}\":{value}"));
        }
    }
    payload.push('}');
    let answer = ask(&address, &caller, "queue_agent", &payload, WRITING)?;
    let result = answer.result().unwrap_or("null");
    if given.flag("json") {
        return out::result(result, true);
    }
    let told = wire::parse(result).ok();
    let text = |name: &str| told.as_ref()?.get(name)?.as_str().map(|text| out::shown(&text));
    out::note(&format!(
        "{} waits in the outbox of {} until {destination} takes it",
        text("agent_id").unwrap_or_default(),
        answer.node().unwrap_or("the node")
    ));
    out::line(&text("transfer_id").unwrap_or_default())
}
