//! The manager: an agent that the node itself brings. It is registered at the start where it is missing, with
//! a secret made for this node, costs no process until it is used, never arrives and never leaves.

use super::record::Arrived;
use super::{Node, Origin, Record};
use crate::agent::{Keep, Manifest, Spec};
use crate::log::Level;
use crate::state;
use crate::sync::lock;
use crate::wire::hex;
use serde_json::Map;
use std::sync::Arc;

/// What it runs, but for its id and its secret.
const SOURCE: &str = include_str!("../../agents/manager/ruth.py");
/// What whoever would send it on, or remove it, is told.
pub(super) const STAYS: &str =
    "the manager stays where it is; \"ruthless\": true in the configuration runs a node without one";

impl Node {
    /// Whether this is the node's manager, by what made it and not by its name.
    pub fn is_manager(&self, record: &Record) -> bool {
        record.origin == Origin::Node
    }

    /// Registers the manager where it is missing, and anew where this program brings another source than
    /// the one that runs. `grants`: whether the table of grants could be read. A node without its manager
    /// goes on, and says so.
    pub(super) fn register_manager(self: &Arc<Self>, grants: bool) {
        let Some(id) = &self.manager else { return };
        let missing = |why: &str| {
            self.log.event(Level::Error, "manager_missing", &[("agent", id), ("error", why)]);
        };
        let here = self.agent(id);
        if here.as_ref().is_some_and(|here| here.origin != Origin::Node) {
            let why = "another agent of that id lives here; name the manager otherwise (\"manager\"), \
                       or remove that agent and start the node again";
            return missing(why);
        }
        if let Err(why) = self.bring_manager(id, here) {
            return missing(&why);
        }
        // Of a table that is damaged it is not known what it granted: then the admin grants anew.
        if grants {
            if let Err(error) = self.grants.default_of_the_manager() {
                self.not_written("the manager's grant", &error);
            }
        }
    }

    fn bring_manager(self: &Arc<Self>, id: &str, here: Option<Arc<Record>>) -> Result<(), String> {
        let secret = match &here {
            Some(here) => here.manifest().secret.expose().to_owned(),
            None => new_secret()?,
        };
        let source = source_of(id, &secret);
        if here.as_ref().is_some_and(|here| *here.life.spec.source == *source) {
            return Ok(());
        }
        let manifest = Manifest::read(&source).map_err(|why| format!("its source: {why}"))?;
        let (generation, sequence) = lock(&self.registry).next_generation(id);
        let home = self.home(id);
        let place = match &here {
            Some(here) => Arc::clone(here.place()),
            None => {
                let usual = self.places.take(home.join("state"));
                let place = usual.or_else(|| self.places.take(home.join(format!("state.{generation}"))));
                place.ok_or("its directory is in use")?
            }
        };
        let written = |error: std::io::Error| format!("its record could not be written: {error}");
        state::make_durable_dir(&place.path).map_err(written)?;
        let memory = here.as_ref().and_then(|here| here.life.memory());
        let spec = Spec {
            source: source.into(),
            manifest,
            container_name: self.name().to_owned(),
            state_dir: Some(place.path.clone()),
            trace: "[]".into(),
        };
        let arrived = Arrived {
            origin: Origin::Node,
            metadata: Map::new(),
            trace: Vec::new(),
            place,
            harness: Arc::new(super::harness::Harness::new(&home, generation, &self.syncer)),
            registered_at: crate::wire::unix_now(),
            transfer: None,
            sealed: None,
        };
        let record = Record::new(self.new_life(spec, memory.clone()), generation, sequence, arrived);
        let kept = record
            .harness()
            .make()
            .and_then(|()| record.prepare())
            .and_then(|()| record.harness().commit(memory.as_deref()));
        if let Err(error) = kept {
            let _ = record.harness().discard(); // the next start tries again
            return Err(written(error));
        }
        record.life.keep_in(Arc::clone(record.harness()) as Arc<dyn Keep>);
        let (over, fact) = {
            let mut registry = lock(&self.registry);
            (registry.insert(&record), registry.fact(id))
        };
        if let Some(over) = over {
            over.life.retire();
            if let Err(error) = over.harness().discard() {
                self.not_written("that a generation of the manager is over", &error);
            }
        }
        if let Some(Err(error)) = fact.map(|fact| self.known.note(id, &fact)) {
            self.not_written("the secrets that are pinned", &error);
        }
        self.log.event(Level::Info, "manager_registered", &[("agent", id)]);
        self.note_deploy(&record);
        Ok(())
    }
}

/// The bundled source under an id and with a secret; neither holds what a Python string would escape.
fn source_of(id: &str, secret: &str) -> String {
    let line = |line: &str| match line.split_once(" = ").map(|(name, _)| name) {
        Some("AGENT_ID") => format!("AGENT_ID = \"{id}\"\n"),
        Some("AGENT_SECRET") => format!("AGENT_SECRET = \"{secret}\"\n"),
        _ => format!("{line}\n"),
    };
    SOURCE.lines().map(line).collect()
}

fn new_secret() -> Result<String, String> {
    let mut bytes = [0u8; 32];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| format!("making its secret: {error}"))?;
    Ok(hex::encode(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundled_source_takes_any_id_and_secret() {
        let manifest = Manifest::read(&source_of("boss-2", "0123456789abcdef")).unwrap();
        assert_eq!((&*manifest.id, manifest.secret.expose()), ("boss-2", "0123456789abcdef"));
        assert_eq!(Manifest::read(SOURCE).unwrap().id, "ruth");
    }
}
