//! The commands for agents on a node: `deploy`, `invoke`, `list`, `remove`, `dispatch`.

use super::args::Given;
use super::ask::{ask, patience, QUICK};
use super::fault::{Answered, Fault};
use super::{out, outbox, pretty, secrets, token};
use crate::agent::Manifest;
use crate::capsule::Policy;
use crate::input;
use crate::node::package;
use crate::wire::{self, json::quote, Value};
use std::path::Path;
use std::time::Duration;

/// The longest file with an agent that is read, bytes: what a line of 32 MiB carries, as a capsule with text around it.
const AGENT_BYTES: u64 = 64 << 20;

/// The longest cell that `list` shows of a result, characters.
const CELL: usize = 48;

/// What a file holds, as a member of a payload (`"source_code":…` or `"capsule":…`), not looked into
/// if it is a capsule: only the node knows under which policy and registry.
///
/// # Errors
/// The file can't be read, or is a source without a manifest.
pub fn to_deploy(file: &Path) -> Result<String, Fault> {
    let text = input::read_text(file, AGENT_BYTES)
        .map_err(|error| Fault::Local(format!("reading {}: {error}", file.display())))?;
    match package::is_capsule(&text) {
        true => Ok(format!("\"capsule\":{}", quote(&text))),
        false => agent_in(file).map(|(agent, _)| agent),
    }
}

/// An agent in a file, as a member of a payload (`"source_code":…` or `"capsule":…`), and what it says
/// about itself. The node checks a capsule under a policy and registry of its own; here it is only
/// opened.
///
/// # Errors
/// The file can't be read, has no manifest, or holds a capsule that breaks a rule.
pub fn agent_in(file: &Path) -> Result<(String, Manifest), Fault> {
    let doing = |why: String| Fault::Local(format!("{}: {why}", file.display()));
    let text = input::read_text(file, AGENT_BYTES)
        .map_err(|error| Fault::Local(format!("reading {}: {error}", file.display())))?;
    if !package::is_capsule(&text) {
        let manifest = Manifest::read(&text).map_err(doing)?;
        return Ok((format!("\"source_code\":{}", quote(&text)), manifest));
    }
    let manifest = package::open(&text, &Policy::default(), None).map_err(doing)?.manifest;
    Ok((format!("\"capsule\":{}", quote(&text)), manifest))
}

/// How long a quick question waits.
pub fn wait(given: &Given) -> Result<Duration, Fault> {
    let seconds = given.seconds("timeout")?;
    Ok(seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or(QUICK))
}

/// The payload of `deploy_agent`. `agent` is a member, `activate` is JSON.
pub fn deploy_payload(agent: &str, activate: Option<&str>, timeout: Option<f64>) -> String {
    let mut payload = format!("{{{agent}");
    if let Some(activate) = activate {
        payload.push_str(&format!(",\"activate_payload\":{activate}"));
    }
    if let Some(timeout) = timeout {
        payload.push_str(&format!(",\"timeout\":{timeout}"));
    }
    payload.push('}');
    payload
}

/// The payload of `invoke_agent`. `message` is JSON.
pub fn invoke_payload(id: &str, message: &str, timeout: Option<f64>) -> String {
    let timeout = timeout.map_or(String::new(), |timeout| format!(",\"timeout\":{timeout}"));
    format!("{{\"agent_id\":{},\"message\":{message}{timeout}}}", quote(id))
}

/// The `activate_error` in a result, if the hook failed.
pub fn activation_fault(node: &str, result: &str) -> Option<Fault> {
    let error = wire::parse(result).ok()?.get("activate_error")?.raw();
    let error = serde_json::from_str(error).unwrap_or_default();
    Some(Answered::from_activation(node, &error).into())
}

/// Who signed the capsule that an agent came in: the key's id, or the start of its fingerprint, and how
/// far it is trusted.
fn signer(agent: wire::Json<'_>) -> String {
    let text = |name: &str| agent.get("signer")?.get(name)?.as_str().map(|text| out::shown(&text));
    let Some(fingerprint) = text("fingerprint") else { return "-".into() };
    let key = text("key_id").unwrap_or_else(|| fingerprint.chars().take(12).collect());
    format!("{key} ({})", text("trust").unwrap_or_default())
}

/// A member of an object, as it stands.
pub fn member<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    wire::parse(object).ok()?.get(name).map(|value| value.raw())
}

/// `deploy`.
pub fn deploy(given: &Given) -> Result<(), Fault> {
    let file = given.word_path(0)?;
    let timeout = given.seconds("timeout")?;
    let activate = given.json("activate")?;
    if activate.is_some() && given.flag("no-activate") {
        return Err(Fault::Usage("--activate and --no-activate contradict each other".into()));
    }
    let activate =
        if given.flag("no-activate") { None } else { Some(activate.unwrap_or_else(|| "{}".into())) };
    let metadata = token::into_metadata(given, given.json_object("metadata")?)?;
    if given.flag("queue") {
        if let Some(option) =
            ["no-activate", "fresh", "timeout", "as"].into_iter().find(|name| given.flag(name))
        {
            let text =
                format!("--{option} can't be queued: the agent goes on its own signature, and is activated");
            return Err(Fault::Usage(text));
        }
        let (activate, metadata) = (activate.as_deref(), metadata.as_deref());
        return outbox::queue(given, &to_deploy(&file)?, given.word(1)?, activate, metadata, false);
    }
    let address = given.address(1)?;
    let agent = to_deploy(&file)?;
    let mut payload = deploy_payload(&agent, activate.as_deref(), timeout);
    payload.pop();
    if given.flag("fresh") {
        payload.push_str(",\"fresh\":true");
    }
    if let Some(metadata) = metadata {
        payload.push_str(&format!(",\"agent_metadata\":{metadata}"));
    }
    payload.push('}');

    let caller = secrets::caller(given, Some(&address))?;
    let answer = ask(&address, &caller, "deploy_agent", &payload, patience(timeout))?;
    let (node, result) = (answer.node().unwrap_or("the node"), answer.result().unwrap_or("null"));
    let failed = activation_fault(node, result);
    let printed = if given.flag("json") {
        out::result(result, true)
    } else {
        let text =
            |name| member(result, name).and_then(|text| wire::parse(text).ok()?.as_str().map(String::from));
        let (id, status) = (text("agent_id").unwrap_or_default(), text("status").unwrap_or_default());
        out::note(&format!("{id} on {node}: {status}"));
        if let Some(why) = text("result_error") {
            out::note(&why);
        }
        match member(result, "activate_result") {
            Some(returned) if status == "active" => out::result(returned, false),
            _ => Ok(()),
        }
    };
    failed.map_or(printed, Err)
}

/// `invoke`.
pub fn invoke(given: &Given) -> Result<(), Fault> {
    let (id, address) = (given.word(0)?, given.address(1)?);
    let timeout = given.seconds("timeout")?;
    let message = given.json("message")?.unwrap_or_else(|| "{}".into());
    let caller = secrets::caller(given, Some(&address))?;
    let payload = invoke_payload(id, &message, timeout);
    let answer = ask(&address, &caller, "invoke_agent", &payload, patience(timeout))?;
    let result = answer.result().unwrap_or("null");
    match given.flag("json") {
        true => out::result(result, true),
        false => out::result(member(result, "result").unwrap_or(result), false),
    }
}

/// `list`.
pub fn list(given: &Given) -> Result<(), Fault> {
    let address = given.address(0)?;
    let caller = secrets::caller(given, Some(&address))?;
    let answer = ask(&address, &caller, "list_agents", "{}", wait(given)?)?;
    let result = answer.result().unwrap_or("[]");
    let agents = wire::parse(result).map(|json| json.elements().collect::<Vec<_>>()).unwrap_or_default();
    if given.flag("json") {
        return out::result(result, true);
    }
    if agents.is_empty() {
        out::note(&format!("no agents live on {}", answer.node().unwrap_or("the node")));
        return Ok(());
    }
    let mut rows = vec![["AGENT", "STATUS", "PROCESS", "SEQUENCE", "HOOKS", "HOPS", "SIGNER", "LAST RESULT"]
        .map(String::from)
        .to_vec()];
    for agent in agents {
        let cell = |name: &str| match agent.get(name).map(|value| (value.value(), value)) {
            None | Some((Value::Null, _)) => "-".to_owned(),
            Some((Value::String(text), _)) => out::shown(&text),
            Some((_, value)) => pretty::flat(value, out::speaks_utf8()),
        };
        let live = agent.get("live").and_then(|live| live.as_bool()).unwrap_or(false);
        rows.push(vec![
            cell("agent_id"),
            cell("status"),
            (if live { "yes" } else { "no" }).to_owned(),
            cell("sequence"),
            cell("activations"),
            cell("hops"),
            signer(agent),
            shortened(&cell("last_result")),
        ]);
    }
    out::line(&out::table(&rows))
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= CELL {
        return text.to_owned();
    }
    let dots = if out::speaks_utf8() { "…" } else { "..." };
    let kept: String = text.chars().take(CELL).collect();
    format!("{kept}{dots}")
}

/// `remove`.
pub fn remove(given: &Given) -> Result<(), Fault> {
    let (id, address) = (given.word(0)?, given.address(1)?);
    let caller = secrets::caller(given, Some(&address))?;
    let payload = format!("{{\"agent_id\":{}}}", quote(id));
    let answer = ask(&address, &caller, "remove_agent", &payload, wait(given)?)?;
    if given.flag("json") {
        return out::result(answer.result().unwrap_or("null"), true);
    }
    out::line(&format!(
        "{} is removed from {}",
        out::shown(id),
        out::shown(answer.node().unwrap_or("the node"))
    ))
}

/// `dispatch`.
pub fn dispatch(given: &Given) -> Result<(), Fault> {
    let (id, destination, address) = (given.word(0)?, given.word(1)?, given.address(2)?);
    let timeout = given.seconds("timeout")?;
    let mode = given.text("mode")?.unwrap_or("move");
    if !["move", "clone"].contains(&mode) {
        return Err(Fault::Usage(format!("--mode is move or clone, not {mode:?}")));
    }
    let mut payload =
        format!("{{\"agent_id\":{},\"destination\":{},\"mode\":\"{mode}\"", quote(id), quote(destination));
    if let Some(activate) = given.json("activate")? {
        payload.push_str(&format!(",\"activate_payload\":{activate}"));
    }
    if let Some(timeout) = timeout {
        payload.push_str(&format!(",\"timeout\":{timeout}"));
    }
    if given.flag("queue") {
        payload.push_str(",\"queue\":true");
    }
    payload.push('}');
    let caller = secrets::caller(given, Some(&address))?;
    let answer = ask(&address, &caller, "dispatch_agent", &payload, patience(timeout))?;
    let result = answer.result().unwrap_or("null");
    let printed = out::result(result, given.flag("json"));
    // The destination's whole answer: its result may say that the hook failed there.
    let failed = member(result, "result").and_then(|arrived| activation_fault(destination, arrived));
    failed.map_or(printed, Err)
}
