//! `run`: an agent on a node of its own, for as long as it takes.

use super::agents::{activation_fault, agent_in, deploy_payload, invoke_payload, member};
use super::args::Given;
use super::ask::{ask, patience};
use super::fault::Fault;
use super::out;
use super::secrets::Caller;
use super::temporary::Temporary;
use crate::agent::python;
use crate::log::Show;
use crate::node::{Admits, Keys};
use crate::wire::{json::quote, Address};
use std::sync::Arc;

/// What it all came to.
#[derive(Default)]
struct Results {
    activate: Option<String>,
    messages: Vec<String>,
}

/// `run`.
pub fn run(given: &Given) -> Result<(), Fault> {
    let file = given.word_path(0)?;
    let activate = given.json("activate")?.unwrap_or_else(|| "{}".into());
    let messages = given.all_json("message")?;
    let timeout = given.seconds("timeout")?;
    let port = match given.text("port")? {
        None => 0,
        Some(text) => {
            text.parse().map_err(|_| Fault::Usage(format!("--port is 0 to 65535, not {text:?}")))?
        }
    };
    let (agent, manifest) = agent_in(&file)?;
    let python = given.path("python");
    let no_python = |error: std::io::Error| match &python {
        Some(python) => Fault::Local(format!("--python {}: {error}", python.display())),
        None => Fault::Local(error.to_string()),
    };
    python::locate(python.as_deref()).map_err(no_python)?;
    let keys = Keys {
        container_name: "run".into(),
        listen_port: port,
        data_root: given.path("data-root"),
        python: python.clone(),
        // One process is all that is needed, unless the agent's dies.
        parked_workers: 1,
        hook_timeout_s: timeout.unwrap_or(300.0),
        ..Keys::default()
    };
    let node = Temporary::start(keys, Admits::Anyone, Show::Agents)?;
    // Before anything is asked, so that its start is no part of the first hook's time.
    let pool = node.with(|running| Arc::clone(&running.node.pool))?;
    pool.start().map_err(no_python)?;
    let (caller, address) = node.with(|running| {
        let secret = running.node.config().admin_secrets.first().cloned();
        let at = running.server.address();
        let caller =
            secret.map(|secret| Caller { sender: "admin".into(), secret, found: "the node itself".into() });
        (caller, Address { host: at.ip().to_string(), port: at.port(), tls: None })
    })?;
    let caller = caller.ok_or_else(|| Fault::Local("the node has no secret".into()))?;
    // Whoever develops an agent has its services on this very machine.
    node.with(|running| running.node.name_this_machine(&manifest.id))?
        .map_err(|failure| Fault::Local(failure.message))?;

    // Over the wire, as from anywhere else: a result that no answer line can carry shows here already.
    let as_json = given.flag("json");
    let mut results = Results::default();
    let done = (|| {
        let payload = deploy_payload(&agent, Some(&activate), timeout);
        let answer = ask(&address, &caller, "deploy_agent", &payload, patience(timeout))?;
        let result = answer.result().unwrap_or("null");
        if let Some(fault) = activation_fault("run", result) {
            return Err(fault);
        }
        let returned = member(result, "activate_result").unwrap_or("null");
        if let Some(why) = member(result, "result_error") {
            out::note(why);
        }
        results.activate = Some(returned.to_owned());
        if !as_json {
            out::result(returned, false)?;
        }
        for message in &messages {
            let payload = invoke_payload(&manifest.id, message, timeout);
            let answer = ask(&address, &caller, "invoke_agent", &payload, patience(timeout))?;
            let returned = answer.result().and_then(|result| member(result, "result")).unwrap_or("null");
            if !as_json {
                out::result(returned, false)?;
            }
            results.messages.push(returned.to_owned());
        }
        Ok(())
    })();
    drop(node);
    let printed = if as_json { out::result(&results.to_json(&manifest.id), true) } else { Ok(()) };
    done.and(printed)
}

impl Results {
    /// Whatever came before a failure is in it.
    fn to_json(&self, id: &str) -> String {
        let activate = self.activate.as_deref().unwrap_or("null");
        format!(
            "{{\"agent_id\":{},\"activate_result\":{activate},\"results\":[{}]}}",
            quote(id),
            self.messages.join(",")
        )
    }
}
