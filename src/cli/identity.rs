//! Who exists: `identity create`, `list`, `rotate`, `revoke`, `push`; and who is here: `roster`.

use super::agents::wait;
use super::args::{dashed, Given};
use super::ask::ask;
use super::fault::{Fault, ANSWERED};
use super::{out, secrets, tls};
use crate::agent::Manifest;
use crate::capsule::PublicKey;
use crate::clock;
use crate::input;
use crate::roster::identities::digest;
use crate::wire::{self, hex, json::quote, Address, Json, Secret};
use std::time::Duration;

/// How long a push may take: the node waits twelve seconds for its children.
const PUSH: Duration = Duration::from_secs(30);

/// `identity`.
pub fn run(given: &Given) -> Result<(), Fault> {
    let what = given.word(0)?;
    let own: &[&str] = match what {
        "create" => &["source", "secret-file", "public-key", "admin-secret-file"],
        "rotate" => &["source", "secret-file", "public-key", "admin-secret-file", "overlap", "end"],
        "list" | "revoke" => &["secret-file", "admin-secret-file"],
        "push" => &["secret-file", "admin-secret-file", "expires"],
        _ => {
            return Err(Fault::Usage(format!(
                "identity does create, list, rotate, revoke or push, not {what:?}"
            )))
        }
    };
    let common =
        |name: &str| matches!(name, "config" | "state-dir" | "timeout" | "json") || tls::is_option(name);
    if let Some(name) = given.given().find(|name| !own.contains(name) && !common(name)) {
        return Err(Fault::Usage(format!("identity {what} has no option {}", dashed(name))));
    }
    let address = match (what, given.has_word(2)) {
        ("list" | "push", false) if given.has_word(1) => given.address(1)?,
        ("list" | "push", true) => {
            return Err(Fault::Usage(format!(
                "identity {what} takes HOST:PORT alone, it is about all of them"
            )))
        }
        ("list" | "push", false) => return Err(Fault::Usage("HOST:PORT is missing".into())),
        (_, true) => given.address(2)?,
        (_, false) => {
            return Err(Fault::Usage(format!("identity {what} ID HOST:PORT: HOST:PORT is missing")))
        }
    };
    match what {
        "create" => create(given, &address),
        "rotate" => rotate(given, &address),
        "revoke" => revoke(given, &address),
        "list" => list(given, &address),
        _ => push(given, &address),
    }
}

/// Asks, and prints the result if JSON was asked for; else it is the caller's to tell.
fn told(
    given: &Given,
    address: &Address,
    kind: &str,
    payload: &str,
    patience: Duration,
) -> Result<String, Fault> {
    // Where --secret-file is the agent's, the admin's has another name.
    let agents = matches!(kind, "create_identity" | "rotate_identity");
    let option = if agents || given.flag("admin-secret-file") { "admin-secret-file" } else { "secret-file" };
    let caller = secrets::caller_by(given, Some(address), option)?;
    let answer = ask(address, &caller, kind, payload, patience)?;
    let result = answer.result().unwrap_or("null").to_owned();
    if given.flag("json") {
        out::result(&result, true)?;
    }
    Ok(result)
}

fn create(given: &Given, address: &Address) -> Result<(), Fault> {
    let id = given.word(1)?;
    let hash = secret_hash(given, id)?;
    let payload =
        format!("{{\"agent_id\":{},\"secret_sha256\":\"{hash}\"{}}}", quote(id), public_key(given)?);
    let result = told(given, address, "create_identity", &payload, wait(given)?)?;
    if given.flag("json") {
        return Ok(());
    }
    let Ok(json) = wire::parse(&result) else { return out::result(&result, false) };
    let identity = json.get("identity");
    let created = json.get("created").and_then(|created| created.as_bool()).unwrap_or(false);
    match identity {
        Some(identity) if created => {
            out::line(&in_words(identity))?;
            if let Some(key) = json.get("root_key").and_then(|key| key.as_str()) {
                out::note(&format!(
                    "identity push hands it to the nodes below, which have \"identity_root_key\": {}",
                    quote(&out::shown(&key))
                ));
            }
        }
        Some(identity) => {
            out::line(&in_words(identity))?;
            let same = identity.get("secret_sha256").is_some_and(|hashes| {
                hashes.elements().any(|known| known.as_str().as_deref() == Some(&hash))
            });
            let other = if same { "" } else { ", and its secret is another (identity rotate)" };
            out::note(&format!("{} has an identity already; nothing was changed{other}", out::shown(id)));
        }
        None => out::result(&result, false)?,
    }
    Ok(())
}

fn rotate(given: &Given, address: &Address) -> Result<(), Fault> {
    let id = given.word(1)?;
    let payload = if given.flag("end") {
        let more = ["source", "secret-file", "public-key", "overlap"];
        if more.iter().any(|name| given.flag(name)) {
            return Err(Fault::Usage("identity rotate takes --end alone, or a new secret".into()));
        }
        format!("{{\"agent_id\":{},\"end\":true}}", quote(id))
    } else {
        let overlap = given.span("overlap")?;
        let overlap =
            overlap.map_or(String::new(), |span| format!(",\"overlap_s\":{}", span.as_secs().max(1)));
        let (hash, key) = (secret_hash(given, id)?, public_key(given)?);
        format!("{{\"agent_id\":{},\"secret_sha256\":\"{hash}\"{key}{overlap}}}", quote(id))
    };
    let result = told(given, address, "rotate_identity", &payload, wait(given)?)?;
    tell_identity(given, &result)
}

fn revoke(given: &Given, address: &Address) -> Result<(), Fault> {
    let id = given.word(1)?;
    let payload = format!("{{\"agent_id\":{}}}", quote(id));
    let result = told(given, address, "revoke_identity", &payload, wait(given)?)?;
    tell_identity(given, &result)?;
    let changed = wire::parse(&result).ok().and_then(|json| json.get("changed")?.as_bool());
    if changed == Some(false) {
        out::note(&format!("the identity of {} was revoked already", out::shown(id)));
    }
    Ok(())
}

fn tell_identity(given: &Given, result: &str) -> Result<(), Fault> {
    if given.flag("json") {
        return Ok(());
    }
    match wire::parse(result).ok().and_then(|json| json.get("identity")) {
        Some(identity) => out::line(&in_words(identity)),
        None => out::result(result, false),
    }
}

fn list(given: &Given, address: &Address) -> Result<(), Fault> {
    let result = told(given, address, "list_identities", "{}", wait(given)?)?;
    if given.flag("json") {
        return Ok(());
    }
    let Ok(json) = wire::parse(&result) else { return out::result(&result, false) };
    let mut rows = vec![["AGENT", "STATUS", "SECRETS", "KEY", "CREATED", "BY"].map(String::from).to_vec()];
    for identity in json.get("identities").iter().flat_map(|all| all.elements()) {
        let text =
            |name: &str| identity.get(name).and_then(|text| text.as_str()).map(|text| out::shown(&text));
        let secrets = identity.get("secret_sha256").map_or(0, |hashes| hashes.elements().count());
        rows.push(vec![
            text("agent_id").unwrap_or_default(),
            text("status").unwrap_or_default(),
            if secrets > 1 { "2 (rotating)".into() } else { secrets.to_string() },
            if text("public_key").is_some() { "yes".into() } else { "-".into() },
            identity.get("created_at").map_or_else(|| "-".into(), when),
            text("created_by").unwrap_or_default(),
        ]);
    }
    out::line(&out::table(&rows))?;
    let text = |name: &str| json.get(name).and_then(|text| text.as_str()).map(|text| out::shown(&text));
    let root = json.get("root").and_then(|root| root.as_bool()).unwrap_or(false);
    match (root, text("root_key"), text("issuer")) {
        (true, Some(key), _) => out::note(&format!("the root; its key: {key}")),
        (true, None, _) => {}
        (false, _, Some(issuer)) => {
            let until = json.get("expires_at").map_or_else(|| "-".into(), when);
            out::note(&format!("as {issuer} handed them down; they are good until {until}"));
        }
        (false, ..) => out::note("none have come from the root yet"),
    }
    Ok(())
}

fn push(given: &Given, address: &Address) -> Result<(), Fault> {
    let expires = given.span("expires")?;
    let payload = expires.map_or("{}".into(), |span| {
        format!("{{\"expires_in_s\":{}}}", span.as_secs().clamp(1, u32::MAX.into()))
    });
    let patience = if given.flag("timeout") { wait(given)? } else { PUSH };
    let result = told(given, address, "push_identities", &payload, patience)?;
    let Ok(json) = wire::parse(&result) else { return out::result(&result, false) };
    let children: Vec<Json<'_>> = json.get("children").iter().flat_map(|all| all.elements()).collect();
    let taken = |child: &Json<'_>| child.get("taken").and_then(|taken| taken.as_bool()) == Some(true);
    if !given.flag("json") {
        let count = json.get("identities").map_or("?", |count| count.raw());
        let until = json.get("expires_at").map_or_else(|| "-".into(), when);
        let sequence = json.get("sequence").map_or("?", |sequence| sequence.raw());
        out::line(&format!("{count} identities in snapshot {sequence}, good until {until}"))?;
        for child in &children {
            let text =
                |name: &str| child.get(name).and_then(|text| text.as_str()).map(|text| out::shown(&text));
            let name = text("node").unwrap_or_default();
            match taken(child) {
                true => out::line(&format!("{name}: has it"))?,
                false => {
                    out::line(&format!("{name}: {}; it is tried again", text("error").unwrap_or_default()))?
                }
            }
        }
    }
    match children.iter().all(taken) {
        true => Ok(()),
        false => Err(Fault::Status(ANSWERED)),
    }
}

/// `roster`.
pub fn roster(given: &Given) -> Result<(), Fault> {
    let address = given.address(0)?;
    let caller = secrets::caller(given, Some(&address))?;
    let answer = ask(&address, &caller, "list_roster", "{}", wait(given)?)?;
    let result = answer.result().unwrap_or("null");
    if given.flag("json") {
        return out::result(result, true);
    }
    print_roster(result)
}

/// Prints whom a node has, and how they stand.
///
/// # Errors
/// As [`out::line`].
pub fn print_roster(result: &str) -> Result<(), Fault> {
    let Ok(json) = wire::parse(result) else { return out::result(result, false) };
    let mut rows = vec![["AGENT", "STATE", "LIVE", "DECLARED"].map(String::from).to_vec()];
    for agent in json.elements() {
        let text = |name: &str| agent.get(name).and_then(|text| text.as_str()).map(|text| out::shown(&text));
        let yes = |name: &str| match agent.get(name).and_then(|yes| yes.as_bool()) {
            Some(true) => "yes".to_owned(),
            _ => "-".to_owned(),
        };
        let (id, state) = (text("agent_id").unwrap_or_default(), text("state").unwrap_or_default());
        rows.push(vec![id, state, yes("live"), yes("declared")]);
    }
    out::line(&out::table(&rows))
}

/// The SHA-256 of the agent's secret, from its source or from a file.
fn secret_hash(given: &Given, id: &str) -> Result<String, Fault> {
    let secret = match (given.path("source"), given.path("secret-file")) {
        (Some(file), None) => {
            let doing = |why: String| Fault::Local(format!("{}: {why}", file.display()));
            let text = input::read_text(&file, input::MOST).map_err(|error| doing(error.to_string()))?;
            let manifest = Manifest::read(&text).map_err(doing)?;
            if manifest.id != id {
                let found = format!("its AGENT_ID is {:?}, not {id:?}", manifest.id);
                return Err(Fault::Usage(format!("{}: {found}", file.display())));
            }
            manifest.secret
        }
        (None, Some(file)) => Secret::from_file(&file).map_err(|why| Fault::Local(why.to_string()))?,
        (Some(_), Some(_)) => {
            return Err(Fault::Usage(
                "--source and --secret-file both say what the secret is; give one".into(),
            ))
        }
        (None, None) => {
            return Err(Fault::Usage(
                "what the agent's secret is say --source AGENT.py or --secret-file F".into(),
            ))
        }
    };
    Ok(hex::encode(&digest(&secret)))
}

/// The member of a payload with the key, if one was given.
fn public_key(given: &Given) -> Result<String, Fault> {
    let Some(file) = given.path("public-key") else { return Ok(String::new()) };
    let key = PublicKey::read(&file).map_err(|error| Fault::Local(error.to_string()))?;
    Ok(format!(",\"public_key\":{}", quote(&key.text())))
}

fn when(seconds: Json<'_>) -> String {
    seconds.raw().parse().map_or_else(|_| seconds.raw().to_owned(), clock::utc)
}

/// `scout: active, created 2026-01-01T00:00:00Z by admin, two secrets (a rotation runs)`.
fn in_words(identity: Json<'_>) -> String {
    let text = |name: &str| identity.get(name).and_then(|text| text.as_str()).map(|text| out::shown(&text));
    let mut words = format!(
        "{}: {}, created {} by {}",
        text("agent_id").unwrap_or_default(),
        text("status").unwrap_or_default(),
        identity.get("created_at").map_or_else(|| "-".into(), when),
        text("created_by").unwrap_or_default()
    );
    if identity.get("secret_sha256").is_some_and(|hashes| hashes.elements().count() > 1) {
        words.push_str(", two secrets (a rotation runs");
        let ends = identity.get("rotation_ends").filter(|ends| ends.raw() != "null");
        words.push_str(&ends.map_or_else(|| ")".into(), |ends| format!(" until {})", when(ends))));
    }
    if text("public_key").is_some() {
        words.push_str(", with a key");
    }
    words
}
