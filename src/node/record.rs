//! The registry: who lives here, one record a generation.

use super::harness::{Harness, Meta};
use super::known::Fact;
use super::package::Sealed;
use super::state_files::Place;
use super::tokens::Carried;
use crate::agent::{Life, Manifest};
use crate::sync::lock;
use crate::throttle::Throttle;
use crate::wire::{Failure, Secret};
use serde_json::value::RawValue;
use serde_json::{json, Map, Value};
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The largest `last_result` that is kept, bytes; of a larger one only its size.
const LAST_RESULT_BYTES: usize = 16 * 1024;
/// How many ids are remembered of agents that have left, and where they went.
const DEPARTED: usize = 1000;
/// How many secrets are pinned before strangers with new ids are turned away.
const PINNED: usize = 100_000;

/// On whose word an agent is here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The admin deployed or sent it.
    Admin,
    /// It came on its own signature.
    Own,
    /// The node itself: its manager, and no other.
    Node,
}

impl Origin {
    /// As `list_agents` tells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Origin::Admin => "admin",
            Origin::Own => "own",
            Origin::Node => "node",
        }
    }

    /// The origin that [`Origin::as_str`] calls so.
    pub fn named(name: &str) -> Option<Origin> {
        [Origin::Admin, Origin::Own, Origin::Node].into_iter().find(|origin| origin.as_str() == name)
    }
}

/// One generation of an agent.
pub struct Record {
    /// Its id.
    pub id: String,
    /// Unlike any other's on this node.
    pub generation: u64,
    /// How often this id was registered here.
    pub sequence: u64,
    /// Its process, memory and queue.
    pub life: Arc<Life>,
    /// On whose word it is here.
    pub origin: Origin,
    /// What it carries along.
    pub metadata: Mutex<Map<String, Value>>,
    /// The hops behind it.
    pub trace: Vec<Value>,
    /// Notes for this hop of the trace (`ctx.mark`).
    pub notes: Mutex<Vec<String>>,
    /// What it says to the log.
    pub talk: Arc<Throttle>,
    /// How often a hook ran.
    pub activations: AtomicU64,
    /// Unix seconds.
    pub registered_at: i64,
    last_result: Mutex<Option<Box<RawValue>>>,
    /// Whole, unlike `last_result`; only where somebody waits for it.
    outcome: Mutex<Option<Result<Box<RawValue>, Failure>>>,
    place: Arc<Place>,
    harness: Arc<Harness>,
    /// The transfer that brought it, as long as the ledger speaks for it.
    transfer: Mutex<Option<String>>,
    /// The capsule that it came in.
    pub sealed: Option<Arc<Sealed>>,
    /// The token in its metadata, once it was read.
    pub(super) carried: Mutex<Option<Carried>>,
}

impl Record {
    pub(super) fn new(life: Arc<Life>, generation: u64, sequence: u64, arrival: Arrived) -> Arc<Self> {
        let manifest = &life.spec.manifest;
        Arc::new(Record {
            id: manifest.id.clone(),
            generation,
            sequence,
            origin: arrival.origin,
            metadata: Mutex::new(arrival.metadata),
            trace: arrival.trace,
            notes: Mutex::default(),
            talk: Arc::default(),
            activations: AtomicU64::new(0),
            registered_at: arrival.registered_at,
            last_result: Mutex::new(None),
            outcome: Mutex::new(None),
            place: arrival.place,
            harness: arrival.harness,
            transfer: Mutex::new(arrival.transfer),
            sealed: arrival.sealed,
            carried: Mutex::default(),
            life,
        })
    }

    /// What the source says about itself.
    pub fn manifest(&self) -> &Manifest {
        &self.life.spec.manifest
    }

    /// Its own directory.
    pub fn state_dir(&self) -> &Path {
        &self.place.path
    }

    pub(super) fn place(&self) -> &Arc<Place> {
        &self.place
    }

    pub(super) fn harness(&self) -> &Arc<Harness> {
        &self.harness
    }

    /// Writes its record, and commits nothing yet.
    pub(super) fn prepare(&self) -> io::Result<()> {
        let transfer = lock(&self.transfer).clone();
        self.harness.prepare(&self.life.spec.source, self.sealed.as_deref(), &self.meta(transfer))
    }

    /// Writes what has changed of its record.
    pub(super) fn rewrite(&self) -> io::Result<()> {
        let transfer = lock(&self.transfer);
        self.rewrite_as(transfer.clone())
    }

    /// The ledger is about to forget the transfer that brought it: its record speaks for itself now.
    pub(super) fn settled(&self) -> io::Result<()> {
        let mut transfer = lock(&self.transfer);
        if transfer.is_some() {
            self.rewrite_as(None)?;
            *transfer = None;
        }
        Ok(())
    }

    fn rewrite_as(&self, transfer: Option<String>) -> io::Result<()> {
        self.harness.rewrite(&self.life.spec.source, self.sealed.as_deref(), &self.meta(transfer))
    }

    fn meta(&self, transfer: Option<String>) -> Meta {
        let state_dir = self.place.path.file_name().unwrap_or_default();
        Meta {
            sequence: self.sequence,
            origin: self.origin,
            registered_at: self.registered_at,
            metadata: lock(&self.metadata).clone(),
            trace: self.trace.clone(),
            state_dir: state_dir.to_string_lossy().into_owned(),
            transfer,
        }
    }

    /// Removes what is on disk of this generation: its record now, its files with their last user.
    ///
    /// # Errors
    /// Its record can't be removed.
    pub(super) fn discard(&self) -> io::Result<()> {
        self.place.discard();
        self.harness.discard()
    }

    /// Its name: the manifest's, else its id.
    pub fn name(&self) -> &str {
        self.manifest().name.as_deref().unwrap_or(&self.id)
    }

    /// Keeps a result for `list_agents`.
    pub fn keep_result(&self, result: &RawValue) {
        let kept = if result.get().len() <= LAST_RESULT_BYTES {
            Some(result.to_owned())
        } else {
            let text = json!({"omitted_bytes": result.get().len()}).to_string();
            RawValue::from_string(text).ok()
        };
        *lock(&self.last_result) = kept;
    }

    /// How its last hook here ended: whole, and only on a node that waits for this agent
    /// ([`Admits::Only`](super::Admits)); elsewhere results are not kept beyond `last_result`.
    pub fn outcome(&self) -> Option<Result<Box<RawValue>, Failure>> {
        lock(&self.outcome).clone()
    }

    pub(super) fn keep_outcome(&self, outcome: Result<Box<RawValue>, Failure>) {
        *lock(&self.outcome) = Some(outcome);
    }

    /// What it does, in a word: `departing`, `running`, `idle`.
    pub fn status(&self) -> &'static str {
        if self.life.is_departing() {
            "departing"
        } else if self.life.is_running() {
            "running"
        } else {
            "idle"
        }
    }

    /// Its line of `list_agents`: never a secret, never source.
    pub fn summary(&self) -> Value {
        json!({
            "agent_id": self.id,
            "agent_name": self.name(),
            "agent_version": self.manifest().version,
            "status": self.status(),
            "live": self.life.pid().is_some(),
            "sequence": self.sequence,
            "activations": self.activations.load(Ordering::Relaxed),
            "last_result": *lock(&self.last_result),
            "waiting": self.life.waiting(),
            "hops": self.trace.len(),
            "signer": self.sealed.as_ref().map(|sealed| sealed.signer_json()),
            "registered_at": self.registered_at,
            "origin": self.origin.as_str(),
        })
    }
}

/// What a record takes over from its arrival.
pub(super) struct Arrived {
    pub(super) origin: Origin,
    pub(super) metadata: Map<String, Value>,
    pub(super) trace: Vec<Value>,
    pub(super) place: Arc<Place>,
    pub(super) harness: Arc<Harness>,
    pub(super) registered_at: i64,
    pub(super) transfer: Option<String>,
    pub(super) sealed: Option<Arc<Sealed>>,
}

/// Who lives here. Behind one mutex, held for map operations only.
#[derive(Default)]
pub(super) struct Registry {
    agents: HashMap<String, Arc<Record>>,
    known: HashMap<String, Fact>,
    /// New ids that are being loaded: they have room already.
    arriving: HashMap<String, usize>,
    departed: HashMap<String, String>,
    generations: u64,
}

impl Registry {
    /// What earlier runs knew: ids, and the highest number of a generation.
    pub(super) fn restore(&mut self, known: HashMap<String, Fact>, generations: u64) {
        self.known = known;
        self.generations = generations;
    }

    pub(super) fn agent(&self, id: &str) -> Option<Arc<Record>> {
        self.agents.get(id).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<Record>> {
        let mut all: Vec<_> = self.agents.values().cloned().collect();
        all.sort_by(|a, b| a.id.cmp(&b.id));
        all
    }

    /// The number of the next generation, and how often `id` will have been registered with it.
    pub(super) fn next_generation(&mut self, id: &str) -> (u64, u64) {
        self.generations += 1;
        (self.generations, self.known.get(id).map_or(0, |fact| fact.sequence) + 1)
    }

    /// Takes a place for `id`, until [`Registry::arrived`] gives it back. False if there is none.
    pub(super) fn make_room(&mut self, id: &str, most: usize) -> bool {
        let new = self.arriving.keys().filter(|id| !self.agents.contains_key(*id)).count();
        let known = self.agents.contains_key(id) || self.arriving.contains_key(id);
        // The manager is here anyway.
        let here = self.agents.values().filter(|record| record.origin != Origin::Node).count();
        let room = known || here + new < most;
        if room {
            *self.arriving.entry(id.to_owned()).or_default() += 1;
        }
        room
    }

    /// The agent is here, or it did not come after all.
    pub(super) fn arrived(&mut self, id: &str) {
        if let Some(count) = self.arriving.get_mut(id) {
            *count -= 1;
            if *count == 0 {
                self.arriving.remove(id);
            }
        }
    }

    /// Makes `record` the current generation, unless a later one is here; returns the one that is over
    /// with it: the one before, or `record` itself.
    pub(super) fn insert(&mut self, record: &Arc<Record>) -> Option<Arc<Record>> {
        let known = self.known.get(&record.id).map_or(0, |fact| fact.sequence);
        let secret = record.manifest().secret.clone();
        self.known.insert(record.id.clone(), Fact { secret, sequence: known.max(record.sequence) });
        self.departed.remove(&record.id);
        if self.agents.get(&record.id).is_some_and(|here| here.generation > record.generation) {
            return Some(Arc::clone(record));
        }
        self.agents.insert(record.id.clone(), Arc::clone(record))
    }

    /// Removes that generation and no other.
    pub(super) fn remove(&mut self, record: &Record) -> bool {
        let current = self.agents.get(&record.id).is_some_and(|here| here.generation == record.generation);
        if current {
            self.agents.remove(&record.id);
        }
        current
    }

    /// What is known of `id`, also when it has left.
    pub(super) fn fact(&self, id: &str) -> Option<Fact> {
        self.known.get(id).cloned()
    }

    /// The secret that counts for `id`, also when it has left.
    pub(super) fn pinned(&self, id: &str) -> Option<Secret> {
        self.known.get(id).map(|fact| fact.secret.clone())
    }

    /// Pins the secret of an agent that is expected and not here yet.
    pub(super) fn pin(&mut self, id: &str, secret: Secret) {
        self.known.insert(id.to_owned(), Fact { secret, sequence: 0 });
    }

    pub(super) fn may_pin(&self) -> bool {
        self.known.len() < PINNED
    }

    pub(super) fn note_departure(&mut self, id: &str, destination: &str) {
        if self.departed.len() >= DEPARTED {
            self.departed.clear(); // only hints for people
        }
        self.departed.insert(id.to_owned(), destination.to_owned());
    }

    pub(super) fn departed_to(&self, id: &str) -> Option<&str> {
        self.departed.get(id).map(String::as_str)
    }
}
