//! `ctl`: the operator's word on this machine, through the node's `admin.sock`. No secret is needed.

use super::args::{dashed, Given};
use super::ask::patience;
use super::fault::{Answered, Fault};
use super::{identity, out, secrets};
use crate::boot::whereabouts;
use crate::server::admin_socket;
use crate::wire;
use serde_json::json;
use std::path::PathBuf;

/// `ctl`.
pub fn run(given: &Given) -> Result<(), Fault> {
    let what = given.word(0)?;
    let all = given.flag("all");
    match what {
        "list" if given.has_word(1) => return Err(Fault::Usage("ctl list takes no ID".into())),
        "list" | "status" | "start" | "kill" | "restart" | "rebuild" => {}
        _ => {
            let text = format!("ctl does list, status, start, kill, restart or rebuild, not {what:?}");
            return Err(Fault::Usage(text));
        }
    }
    if all && (what != "start" || given.has_word(1)) {
        return Err(Fault::Usage(format!("{} goes with ctl start, and without an ID", dashed("all"))));
    }
    let mut order = json!({"do": what});
    if all {
        order["all"] = true.into();
    } else if what != "list" {
        if !given.has_word(1) {
            return Err(Fault::Usage(format!("ctl {what} needs an ID")));
        }
        order["agent_id"] = given.word(1)?.into();
    }
    let dir = state_dir(given)?;
    let answer = admin_socket::ask(&dir, &order, patience(given.seconds("timeout")?)).map_err(|error| {
        Fault::Unreached(match whereabouts::is_stale(&dir) {
            true => format!("no node runs on {}", dir.display()),
            false => format!("the node of {}: {error}", dir.display()),
        })
    })?;
    if !answer.is_ok() {
        return Err(Answered::from_answer(&answer, true).into());
    }
    let result = answer.result().unwrap_or("null");
    if given.flag("json") {
        return out::result(result, true);
    }
    match what {
        "list" => identity::print_roster(result),
        "kill" => out::line(&format!("{} is stopped until ctl start", out::shown(given.word(1)?))),
        "start" if all => {
            let started = wire::parse(result).ok().and_then(|json| json.get("started"));
            let count = started.map_or(0, |started| started.elements().count());
            out::line(&format!("{count} agents may run again"))
        }
        _ => out::result(result, false),
    }
}

/// The state directory of the node that is meant.
fn state_dir(given: &Given) -> Result<PathBuf, Fault> {
    if let Some(dir) = given.path("state-dir") {
        return Ok(dir);
    }
    let name = given.text("name")?;
    match secrets::on_this_machine(None, name)? {
        Some((dir, _)) => Ok(dir),
        None => {
            let called = name.map(|name| format!(" called {name:?}")).unwrap_or_default();
            Err(Fault::Unreached(format!(
                "no node of this user{called} is noted as running here; say which: --state-dir D"
            )))
        }
    }
}
