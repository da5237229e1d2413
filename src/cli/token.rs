//! Capability tokens: `token issue`, `show`, `attenuate`, without any node; `token revoke`, `revoked` on one.

use super::agents::wait;
use super::args::{dashed, Given};
use super::ask::ask;
use super::fault::Fault;
use super::{out, secrets, tls};
use crate::clock;
use crate::roster::token::{named_grant, Narrowing, Token, METADATA, MOST_BYTES};
use crate::wire::{self, json::quote, unix_now};
use serde_json::{json, Map, Value};
use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

/// How long a token counts that is issued without a word about it.
const USUAL: Duration = Duration::from_secs(3600);

/// `token`.
pub fn run(given: &Given) -> Result<(), Fault> {
    let what = given.word(0)?;
    let (own, words): (&[&str], usize) = match what {
        "issue" => (&["agent", "grant", "scope", "node", "ttl", "key"], 1),
        "attenuate" => (&["grant", "scope", "node", "ttl"], 2),
        "show" => (&[], 2),
        "revoke" => (&["secret-file", "config", "state-dir", "timeout"], 3),
        "revoked" => (&["secret-file", "config", "state-dir", "timeout"], 2),
        _ => {
            let text = format!("token does issue, show, attenuate, revoke or revoked, not {what:?}");
            return Err(Fault::Usage(text));
        }
    };
    let asks = matches!(what, "revoke" | "revoked");
    let known = |name: &str| own.contains(&name) || name == "json" || (asks && tls::is_option(name));
    if let Some(name) = given.given().find(|name| !known(name)) {
        return Err(Fault::Usage(format!("token {what} has no option {}", dashed(name))));
    }
    if given.has_word(words) {
        return Err(Fault::Usage(format!(
            "token {what} takes no further word, but {:?}",
            given.word(words)?
        )));
    }
    match what {
        "issue" => issue(given),
        "attenuate" => attenuate(given),
        "show" => show(given),
        "revoke" => revoke(given),
        _ => revoked(given),
    }
}

/// The token in the file that `--token` names.
///
/// # Errors
/// It can't be read, or is none.
pub fn given(given: &Given) -> Result<Option<Value>, Fault> {
    let file = given.path("token");
    file.map(|file| Ok(read(&file)?.to_json())).transpose()
}

/// An agent's metadata, JSON text, with the token that `--token` names.
///
/// # Errors
/// As [`given()`].
pub fn into_metadata(options: &Given, metadata: Option<String>) -> Result<Option<String>, Fault> {
    let Some(token) = given(options)? else { return Ok(metadata) };
    let mut members: Map<String, Value> = match &metadata {
        Some(text) => serde_json::from_str(text).map_err(|error| Fault::Usage(error.to_string()))?,
        None => Map::new(),
    };
    members.insert(METADATA.into(), token);
    Ok(Some(Value::from(members).to_string()))
}

fn issue(given: &Given) -> Result<(), Fault> {
    let agent = given.text("agent")?.ok_or_else(|| missing("--agent ID"))?;
    let file = given.path("key").ok_or_else(|| missing("--key F"))?;
    let key = secrets::private_key(&file);
    let key = key.map_err(|error| Fault::Local(format!("--key {}: {error}", file.display())))?;
    let (names, scopes) = (names(given, "grant")?, scopes(given)?);
    if names.is_empty() && scopes.is_empty() {
        return Err(missing("--grant GRANT"));
    }
    let grant = named_grant(None, Some(&names), &scopes).map_err(Fault::Usage)?;
    let now = unix_now();
    let end = now.saturating_add(seconds(given)?.unwrap_or(USUAL.as_secs() as i64));
    print(&Token::issue(&key, agent, now, end, nodes(given)?, &grant).map_err(Fault::Usage)?)
}

fn attenuate(given: &Given) -> Result<(), Fault> {
    let token = read(&given.word_path(1)?)?;
    let (names, scopes) = (names(given, "grant")?, scopes(given)?);
    let grant = match (names.is_empty(), scopes.is_empty()) {
        (true, true) => None,
        (true, false) => Some(named_grant(Some(token.grant()), None, &scopes)),
        (false, _) => Some(named_grant(None, Some(&names), &scopes)),
    };
    let narrowing = Narrowing {
        expires_at: seconds(given)?.map(|ttl| unix_now().saturating_add(ttl)),
        nodes: nodes(given)?,
        grant: grant.transpose().map_err(Fault::Usage)?,
    };
    print(&token.narrow(&narrowing).map_err(Fault::Usage)?)
}

fn show(given: &Given) -> Result<(), Fault> {
    let token = read(&given.word_path(1)?)?;
    if given.flag("json") {
        let blocks: Vec<Value> = token.says().map(|(id, says)| block_json(id, says)).collect();
        let told = json!({
            "token_id": token.id(),
            "agent_id": token.agent_id(),
            "issuer": token.issuer().text(),
            "issued_at": token.issued_at(),
            "expires_at": token.expires_at(),
            "expired": unix_now() >= token.expires_at(),
            "nodes": token.nodes(),
            "grant": token.grant().to_json(),
            "blocks": blocks,
        });
        return out::result(&told.to_string(), true);
    }
    let ended = if unix_now() >= token.expires_at() { " (it has ended)" } else { "" };
    out::line(&format!("token {} for {}: the chain is whole", token.id(), out::shown(token.agent_id())))?;
    out::line(&format!("signed by {}", token.issuer().text()))?;
    out::line(&format!(
        "issued {}, ends {}{ended}",
        clock::utc(token.issued_at()),
        clock::utc(token.expires_at())
    ))?;
    let nodes =
        |nodes: &BTreeSet<String>| nodes.iter().map(|name| out::shown(name)).collect::<Vec<_>>().join(", ");
    out::line(&format!("on {}", token.nodes().map_or("every node that trusts its key".into(), nodes)))?;
    for (index, (id, says)) in token.says().enumerate() {
        let mut words = Vec::new();
        if let Some(grant) = &says.grant {
            let text = grant.to_json().to_string();
            words.extend(wire::parse(&text).ok().map(super::grants::in_words));
        }
        if index > 0 {
            words.extend(says.nodes.as_ref().map(|names| format!("on {}", nodes(names))));
            words.extend(says.expires_at.map(|end| format!("until {}", clock::utc(end))));
        }
        let words = if words.is_empty() { "nothing less".into() } else { words.join("; ") };
        out::line(&format!("block {} ({id}): {words}", index + 1))?;
    }
    Ok(())
}

fn block_json(id: &str, says: &Narrowing) -> Value {
    json!({
        "id": id,
        "expires_at": says.expires_at,
        "nodes": says.nodes,
        "grant": says.grant.as_ref().map(|grant| grant.to_json()),
    })
}

fn revoke(given: &Given) -> Result<(), Fault> {
    let (id, address) = (given.word(1)?, given.address(2)?);
    let caller = secrets::caller(given, Some(&address))?;
    let payload = format!("{{\"token_id\":{}}}", quote(id));
    let answer = ask(&address, &caller, "revoke_token", &payload, wait(given)?)?;
    let result = answer.result().unwrap_or("null");
    if given.flag("json") {
        return out::result(result, true);
    }
    let Ok(told) = wire::parse(result) else { return out::result(result, false) };
    out::line(&format!("{}: revoked", out::shown(id)))?;
    let agents = told.get("agents").map(|agents| {
        agents.elements().filter_map(|id| id.as_str().map(|id| out::shown(&id))).collect::<Vec<_>>()
    });
    // Also that nobody has it: an id that was mistyped looks so.
    out::note(&match agents.unwrap_or_default() {
        none if none.is_empty() => "no agent here carries it".to_owned(),
        agents => format!("carried here by {}", agents.join(", ")),
    });
    if told.get("changed").and_then(|changed| changed.as_bool()) == Some(false) {
        out::note(&format!("{} was revoked already", out::shown(id)));
    }
    Ok(())
}

fn revoked(given: &Given) -> Result<(), Fault> {
    let address = given.address(1)?;
    let caller = secrets::caller(given, Some(&address))?;
    let answer = ask(&address, &caller, "list_revoked_tokens", "{}", wait(given)?)?;
    let result = answer.result().unwrap_or("null");
    if given.flag("json") {
        return out::result(result, true);
    }
    let Ok(told) = wire::parse(result) else { return out::result(result, false) };
    let mut rows = vec![["TOKEN", "REVOKED"].map(String::from).to_vec()];
    for entry in told.elements() {
        let id = entry.get("token_id").and_then(|id| id.as_str()).map(|id| out::shown(&id));
        let at = entry.get("revoked_at").and_then(|at| at.as_i64()).map_or("-".into(), clock::utc);
        rows.push(vec![id.unwrap_or_default(), at]);
    }
    out::line(&out::table(&rows))
}

/// A token is one line; where it goes is the shell's to say.
fn print(token: &Token) -> Result<(), Fault> {
    out::line(&token.text())
}

fn missing(what: &str) -> Fault {
    Fault::Usage(format!("token issue needs {what}"))
}

fn names(given: &Given, option: &str) -> Result<Vec<String>, Fault> {
    Ok(given.all_text(option)?.into_iter().map(str::to_owned).collect())
}

fn nodes(given: &Given) -> Result<Option<BTreeSet<String>>, Fault> {
    let nodes: BTreeSet<String> = names(given, "node")?.into_iter().collect();
    Ok(Some(nodes).filter(|nodes| !nodes.is_empty()))
}

fn scopes(given: &Given) -> Result<Vec<(String, Value)>, Fault> {
    let read = |text: &str| {
        let wrong = |why: &str| Fault::Usage(format!("--scope {text:?} {why}; it is GRANT=JSON"));
        let (name, scope) = text.split_once('=').ok_or_else(|| wrong("has no ="))?;
        wire::parse(scope).map_err(|why| wrong(&format!("is no JSON behind the =: {why}")))?;
        let scope = serde_json::from_str(scope).map_err(|why| wrong(&why.to_string()))?;
        Ok((name.to_owned(), scope))
    };
    given.all_text("scope")?.into_iter().map(read).collect()
}

fn seconds(given: &Given) -> Result<Option<i64>, Fault> {
    Ok(given.span("ttl")?.map(|span| i64::try_from(span.as_secs().max(1)).unwrap_or(i64::MAX)))
}

fn read(file: &Path) -> Result<Token, Fault> {
    let doing = |why: String| Fault::Local(format!("{}: {why}", file.display()));
    let text = match file.as_os_str() == "-" {
        true => bounded(std::io::stdin().lock()),
        false => std::fs::File::open(file).and_then(bounded),
    };
    Token::read(text.map_err(|error| doing(error.to_string()))?.trim()).map_err(doing)
}

/// A little more than a token has: what is longer is refused for its length.
fn bounded(source: impl Read) -> std::io::Result<String> {
    let mut text = String::new();
    source.take(2 * MOST_BYTES as u64).read_to_string(&mut text)?;
    Ok(text)
}
