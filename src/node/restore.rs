//! What earlier runs left in the state directory, taken up again: agents, transfers, and activations that
//! a kill interrupted.

use super::arrive::disk_failure;
use super::harness::{Harness, Stored, HARNESS};
use super::known::Fact;
use super::ledger::Found;
use super::messages::Mode;
use super::outbox::{Outcome, Transfer};
use super::record::Arrived;
use super::{state_files, Node, Origin, Record};
use crate::agent::{Manifest, NoTurn, Spec, Turn};
use crate::crash;
use crate::log::Level;
use crate::state;
use crate::sync::lock;
use crate::wire::Failure;
use serde_json::{json, Value};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an interrupted agent waits before it asks for a turn again, where too many wait for one.
const FULL: Duration = Duration::from_millis(100);

/// What was found beside the agents' own directories.
pub(super) struct Left {
    pub(super) known: HashMap<String, Fact>,
    pub(super) arrivals: Vec<Found>,
    pub(super) transfers: Vec<Transfer>,
}

/// An agent whose activation a kill interrupted, and what it was given.
pub(super) struct Interrupted {
    id: String,
    generation: u64,
    payload: String,
}

/// Where a generation stands that was found on disk.
enum Stands {
    Here,
    /// It has left, or never came.
    Over,
    /// Whether it came is not known any more.
    Unknown,
}

/// A generation that was found, and the directory of its record.
type Generation = (u64, Harness, Stored);

impl Node {
    /// Takes everything up again. Runs once, before anybody can ask.
    ///
    /// # Errors
    /// The directory of all agents can't be read.
    pub(super) fn restore(&self, left: Left) -> Result<(), String> {
        crash::point("restoring");
        let Left { mut known, arrivals, transfers } = left;
        let mut highest = arrivals.iter().map(|found| found.generation).max().unwrap_or(0);
        highest =
            transfers.iter().filter_map(|transfer| transfer.traveller.generation).fold(highest, u64::max);
        let agents = self.state_dir.join("agents");
        let homes =
            state::entries(&agents).map_err(|error| format!("reading {}: {error}", agents.display()))?;
        let mut restored = Vec::new();
        for home in homes {
            let id = home.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if crate::agent::manifest::check_id(&id).is_err() {
                continue;
            }
            let stands = |generation: u64, stored: &Stored| {
                let arrived = |transfer: &String| {
                    arrivals.iter().any(|found| {
                        (&found.agent, &found.transfer, found.generation) == (&id, transfer, generation)
                    })
                };
                let left = |transfer: &Transfer| {
                    transfer.mode == Mode::Move
                        && transfer.traveller.id == id
                        && transfer.traveller.generation == Some(generation)
                        && transfer.outcome() == Some(Outcome::Arrived)
                };
                // A later one was here, and may have left.
                let registered = known.get(&id).map_or(0, |fact| fact.sequence);
                match &stored.meta.transfer {
                    _ if stored.meta.sequence < registered => Stands::Over,
                    _ if transfers.iter().any(left) => Stands::Over,
                    Some(transfer) if arrived(transfer) => Stands::Here,
                    Some(transfer) if self.ledger.is_damaged(&id, transfer) => Stands::Unknown,
                    Some(_) => Stands::Over,
                    None => Stands::Here,
                }
            };
            let (seen, current) = self.find_generation(&home, &id, stands);
            highest = highest.max(seen);
            if let Some((generation, harness, stored)) = current {
                // A manager that the configuration has no more keeps its files, and is not here.
                if stored.meta.origin == Origin::Node && self.manager.as_deref() != Some(&*id) {
                    continue;
                }
                let fact = known.get(&id).map_or(0, |fact| fact.sequence).max(stored.meta.sequence);
                match self.revive(&home, generation, harness, stored) {
                    Ok(record) => {
                        let secret = record.manifest().secret.clone();
                        known.insert(id, Fact { secret, sequence: fact });
                        restored.push(record);
                    }
                    Err(why) => self.damaged(&format!("{}: {why}", home.display())),
                }
            }
            crash::point("agent-restored");
        }
        {
            let mut registry = lock(&self.registry);
            registry.restore(known, highest);
            restored.iter().for_each(|record| drop(registry.insert(record)));
        }
        for transfer in &transfers {
            // Written down before the kill; that it is away was not yet, perhaps.
            let left = transfer.mode == Mode::Move && transfer.outcome() == Some(Outcome::Arrived);
            if left && self.agent(&transfer.traveller.id).is_none() {
                self.has_left(&transfer.traveller.id);
            }
        }
        self.reopen(transfers);
        crash::point("outbox-restored");
        self.finish_interrupted(arrivals);
        crash::point("restored");
        if !restored.is_empty() {
            let count = restored.len().to_string();
            self.log.event(Level::Info, "agents_restored", &[("count", &count)]);
        }
        Ok(())
    }

    /// The latest generation that is an agent's; those that are over or never came are removed. The
    /// first is the highest number seen.
    fn find_generation(
        &self,
        home: &Path,
        id: &str,
        stands: impl Fn(u64, &Stored) -> Stands,
    ) -> (u64, Option<Generation>) {
        let harnesses = home.join(HARNESS);
        // A directory without any record is of a version that kept none: whose files those are nobody
        // knows.
        let recorded = harnesses.exists();
        let (mut seen, mut current) = (0, None::<Generation>);
        for path in state::entries(&harnesses).unwrap_or_default() {
            let number = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
            let Some(generation) = number else { continue };
            seen = seen.max(generation);
            let harness = Harness::new(home, generation, &self.syncer);
            let stored = match harness.read() {
                Ok(stored) => stored,
                Err(why) => {
                    self.set_aside(&path, &why);
                    continue;
                }
            };
            let standing = stored.as_ref().map_or(Stands::Over, |stored| stands(generation, stored));
            match (standing, stored) {
                (Stands::Here, Some(stored)) => {
                    let found = (generation, harness, stored);
                    let later = current.as_ref().is_none_or(|(before, ..)| *before < generation);
                    let over = if later { current.replace(found) } else { Some(found) };
                    over.iter().for_each(|(_, harness, _)| self.sweep(harness));
                }
                (Stands::Unknown, _) => {
                    let why =
                        "the ledger's entry of the transfer that brought it is damaged, and nobody else \
                               knows whether it was accepted";
                    self.set_aside(&path, why);
                }
                _ => {
                    self.log.event(
                        Level::Info,
                        "generation_discarded",
                        &[("agent", id), ("generation", &generation.to_string())],
                    );
                    self.sweep(&harness);
                }
            }
        }
        // Of one that was set aside nobody knows which files are its.
        // A declared agent's stay where the operator can find them, also when it is not registered.
        let kept = current.is_none() && home.join("config").is_dir();
        if recorded && !kept && !state::has_damaged(&harnesses) {
            sweep_files(home, current.as_ref().map(|(_, _, stored)| stored.meta.state_dir.as_str()));
        }
        (seen, current)
    }

    fn sweep(&self, harness: &Harness) {
        if let Err(error) = harness.discard() {
            self.not_written("that a generation is over", &error);
        }
    }

    fn revive(
        &self,
        home: &Path,
        generation: u64,
        harness: Harness,
        stored: Stored,
    ) -> Result<Arc<Record>, String> {
        let Stored { meta, source, sealed, memory, damaged_memory, resume } = stored;
        if let Some(file) = damaged_memory {
            self.set_aside(&file, "no JSON; the agent begins without its memory");
        }
        let manifest = Manifest::read(&source).map_err(|why| {
            let why = format!("agent.py: {why}");
            self.set_aside(&home.join(HARNESS).join(generation.to_string()), &why);
            why
        })?;
        let state_dir = home.join(&meta.state_dir);
        if let Err(error) = state::make_dir(&state_dir) {
            self.not_written(&state_dir.to_string_lossy(), &error);
        }
        let place = self.places.take(state_dir.clone()).ok_or("its directory is another agent's")?;
        let spec = Spec {
            source: source.into(),
            manifest,
            container_name: self.name().to_owned(),
            state_dir: Some(state_dir),
            trace: Value::from(meta.trace.clone()).to_string(),
        };
        let life = self.new_life(spec, memory.map(Into::into));
        let arrived = Arrived {
            origin: meta.origin,
            metadata: meta.metadata,
            trace: meta.trace,
            place,
            harness: Arc::new(harness),
            registered_at: meta.registered_at,
            transfer: meta.transfer,
            sealed: sealed.map(Arc::new),
        };
        let record = Record::new(life, generation, meta.sequence, arrived);
        record.life.keep_in(Arc::clone(record.harness()) as Arc<dyn crate::agent::Keep>);
        if let Some(payload) = resume {
            // An earlier run was ended before it came to that.
            lock(&self.interrupted).push(Interrupted { id: record.id.clone(), generation, payload });
        }
        Ok(record)
    }

    /// Open transfers go on; those of agents that live here have their generation again.
    fn reopen(&self, transfers: Vec<Transfer>) {
        for transfer in transfers {
            let here = self.agent(&transfer.traveller.id);
            let here = here.filter(|record| Some(record.generation) == transfer.traveller.generation);
            if let (Some(record), Mode::Move, None) = (&here, transfer.mode, transfer.outcome()) {
                record.life.depart();
            }
            *lock(&transfer.traveller.record) = here;
            self.outbox.add(&Arc::new(transfer));
        }
    }

    /// What was accepted and not finished is finished: the agent lives here, its activation was
    /// interrupted.
    fn finish_interrupted(&self, arrivals: Vec<Found>) {
        for Found { agent, transfer, generation, interrupted } in arrivals {
            let Some(payload) = interrupted else { continue };
            let record = self.agent(&agent).filter(|record| record.generation == generation);
            let answer = json!({
                "agent_id": agent,
                "sequence": record.as_ref().map(|record| record.sequence),
                "status": "failed",
                "activate_error": {
                    "code": "interrupted",
                    "error": "the node was ended while on_activate ran; the agent lives here",
                },
                "activate_result": null,
            });
            // The first first, so that a kill does not come between.
            let noted = record.as_ref().map_or(Ok(()), |record| record.harness().note_resume(&payload));
            let finished = serde_json::value::to_raw_value(&answer)
                .map_err(std::io::Error::from)
                .and_then(|answer| self.ledger.finish(&agent, &transfer, &answer));
            if let Err(error) = noted.and(finished) {
                self.not_written("that an activation was interrupted", &error);
            }
            self.log.event(
                Level::Warn,
                "activation_interrupted",
                &[("agent", &agent), ("transfer", &transfer)],
            );
            let mut interrupted = lock(&self.interrupted);
            let noted = interrupted.iter().any(|other| other.id == agent && other.generation == generation);
            if record.is_some() && !noted {
                interrupted.push(Interrupted { id: agent, generation, payload });
            }
        }
    }

    /// Runs `on_resume` of agents whose activation was interrupted, with what that had been given: before
    /// any message, and where a move of the agent is open, when it has turned out to stay.
    pub fn resume_interrupted(self: &Arc<Self>) {
        for Interrupted { id, generation, payload } in std::mem::take(&mut *lock(&self.interrupted)) {
            let Some(record) = self.agent(&id).filter(|record| record.generation == generation) else {
                continue;
            };
            let mut first = record.life.try_enter();
            let node = Arc::clone(self);
            self.in_background(move || {
                let turn = loop {
                    let entered = match first.take() {
                        Some(turn) => Ok(turn),
                        None => record.life.enter(Instant::now() + node.hook_limit()),
                    };
                    match entered {
                        Ok(turn) => break turn,
                        Err(NoTurn::Over) => return,
                        Err(_) if node.is_stopping() => return,
                        Err(NoTurn::Late) => {}
                        Err(NoTurn::Full) => std::thread::sleep(FULL),
                    }
                };
                crash::point("resuming");
                if let Err(failure) = node.resume(&record, &turn, &payload) {
                    let error = failure.to_string();
                    node.log.event(Level::Warn, "resume_failed", &[("agent", &id), ("error", &error)]);
                }
            });
        }
    }

    /// Runs `on_resume`, in this run or a later one, and once at most.
    fn resume(self: &Arc<Self>, record: &Arc<Record>, turn: &Turn, payload: &str) -> Result<(), Failure> {
        let deadline = Instant::now() + self.hook_limit();
        self.load(record, turn, deadline)?;
        crash::point("resume-noted");
        record.harness().take_resume().map_err(|error| disk_failure("that an agent resumes", &error))?;
        self.run_hook(record, turn, "on_resume", payload, deadline).map(drop)
    }

    fn set_aside(&self, path: &Path, why: &str) {
        self.damaged(&state::set_aside_for(path, why));
    }

    /// Names what could not be read, and goes on with the rest.
    pub(super) fn damaged(&self, what: &str) {
        self.log.event(Level::Error, "state_damaged", &[("what", what)]);
    }
}

/// Removes the directories of generations that are over.
fn sweep_files(home: &Path, current: Option<&str>) {
    let stale = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let ours = name == "state" || name.strip_prefix("state.").is_some_and(|n| n.parse::<u64>().is_ok());
        ours && Some(&*name) != current
    };
    for path in state::entries(home).unwrap_or_default().into_iter().filter(stale) {
        let _ = state::remove_tree(&path); // the next start tries again
    }
    state_files::remove_home(home);
}
