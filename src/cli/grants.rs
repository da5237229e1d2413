//! What agents may do: `grant`, `revoke`, `grants`.

use super::agents::wait;
use super::args::Given;
use super::ask::ask;
use super::fault::Fault;
use super::{out, secrets};
use crate::wire::{self, json::quote};

/// `grant`.
pub fn grant(given: &Given) -> Result<(), Fault> {
    let scope = given.json_object("scope")?.map_or(String::new(), |scope| format!(",\"scope\":{scope}"));
    change(given, "set_grant", &scope)
}

/// `revoke`.
pub fn revoke(given: &Given) -> Result<(), Fault> {
    change(given, "revoke_grant", "")
}

fn change(given: &Given, kind: &str, more: &str) -> Result<(), Fault> {
    let (id, name, address) = (given.word(0)?, given.word(1)?, given.address(2)?);
    let caller = secrets::caller(given, Some(&address))?;
    let payload = format!("{{\"agent_id\":{},\"grant\":{}{more}}}", quote(id), quote(name));
    let answer = ask(&address, &caller, kind, &payload, wait(given)?)?;
    let result = answer.result().unwrap_or("null");
    if given.flag("json") {
        return out::result(result, true);
    }
    let told = wire::parse(result).ok();
    let changed = told.as_ref().and_then(|told| told.get("changed")?.as_bool()).unwrap_or(true);
    match told.as_ref().and_then(|told| told.get("grant")) {
        Some(grant) => out::line(&format!("{}: {}", out::shown(id), in_words(grant)))?,
        None => out::result(result, false)?,
    }
    if !changed {
        out::note(&format!("{} had nothing of {} before", out::shown(id), out::shown(name)));
    }
    Ok(())
}

/// `grants`.
pub fn grants(given: &Given) -> Result<(), Fault> {
    let address = given.address(0)?;
    let caller = secrets::caller(given, Some(&address))?;
    let answer = ask(&address, &caller, "list_grants", "{}", wait(given)?)?;
    let result = answer.result().unwrap_or("null");
    if given.flag("json") {
        return out::result(result, true);
    }
    let Ok(told) = wire::parse(result) else { return out::result(result, false) };
    let mut rows = vec![["AGENT", "GRANTED"].map(String::from).to_vec()];
    for (name, who) in [("admin", "(sent by the admin)"), ("own", "(on its own signature)")] {
        if let Some(grant) = told.get("default").and_then(|default| default.get(name)) {
            rows.push(vec![who.to_owned(), in_words(grant)]);
        }
    }
    for member in told.get("agents").iter().flat_map(|agents| agents.members()) {
        rows.push(vec![out::shown(&member.key), in_words(member.value)]);
    }
    out::line(&out::table(&rows))
}

/// `files, run {"commands":["ps"]}`.
pub(super) fn in_words(grant: wire::Json<'_>) -> String {
    let scopes: Vec<String> = grant
        .get("scopes")
        .iter()
        .flat_map(|scopes| scopes.members())
        .map(|scope| format!("{} only {}", out::shown(&scope.key), scope.value.raw()))
        .collect();
    let names = ["groups", "capabilities"].into_iter().filter_map(|name| grant.get(name));
    let names = names.flat_map(|list| {
        list.elements().filter_map(|name| name.as_str().map(|name| out::shown(&name))).collect::<Vec<_>>()
    });
    let mut words: Vec<String> = names.collect();
    words.extend(scopes);
    words.extend(grant.get("quotas").map(|quotas| format!("quotas {}", quotas.raw())));
    match words.is_empty() {
        true => "nothing".into(),
        false => words.join(", "),
    }
}
