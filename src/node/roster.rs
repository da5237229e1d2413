//! The node's own roster: which agents it has state or configuration of, kept in `meta/topology.json`.

use super::Node;
use crate::agent::manifest::check_id;
use crate::roster::topology;
use crate::state;
use crate::sync::lock;
use serde_json::{json, Value};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How often the roster is brought up to date when nothing has changed it.
const EVERY: Duration = Duration::from_secs(30);

/// What the passes of a node share.
pub(super) struct Roster {
    path: PathBuf,
    changed: AtomicBool,
    /// When the last pass was. Held during one, so that no older set follows a newer.
    passed: Mutex<Instant>,
}

impl Roster {
    pub(super) fn new(meta: &Path) -> Self {
        let path = meta.join("topology.json");
        Roster { path, changed: AtomicBool::new(false), passed: Mutex::new(Instant::now()) }
    }
}

impl Node {
    /// Who is here now, in name order: the set that `ManageRootAgent` reaches. Brings the file up to date.
    pub fn roster(&self) -> BTreeSet<String> {
        self.reconcile();
        topology::all_agents(&self.roster.path)
    }

    /// `list_roster`.
    pub fn list_roster(&self) -> Value {
        let entries = self.roster().into_iter().map(|id| {
            let (state, live) = self.state_of(&id);
            json!({"agent_id": id, "state": state, "live": live, "declared": self.is_declared(&id)})
        });
        entries.collect()
    }

    /// An agent was registered, removed, or has left: the next pass is due.
    pub(super) fn roster_changed(&self) {
        self.roster.changed.store(true, Ordering::Release);
    }

    pub(super) fn reconcile_if_due(self: &Arc<Self>) {
        let due = lock(&self.roster.passed).elapsed() >= EVERY;
        if due || self.roster.changed.load(Ordering::Acquire) {
            self.reconcile();
            self.autostart();
        }
    }

    /// One pass.
    pub(super) fn reconcile(&self) {
        let mut passed = lock(&self.roster.passed);
        *passed = Instant::now();
        self.roster.changed.store(false, Ordering::Release);
        let mut agents: BTreeSet<String> = self.agents().iter().map(|record| record.id.clone()).collect();
        agents.extend(self.declared());
        if let Err(error) = topology::reconcile(&self.roster.path, &agents) {
            self.not_written("the roster", &error);
        }
    }

    /// The agents that the operator has put here, whether they run or not: `agents/<id>/config/`.
    pub(super) fn declared(&self) -> Vec<String> {
        let homes = state::entries(&self.state_dir.join("agents")).unwrap_or_default();
        let ids = homes.iter().filter(|home| home.join("config").is_dir()).filter_map(|home| {
            let id = home.file_name()?.to_str()?;
            check_id(id).is_ok().then(|| id.to_owned())
        });
        ids.collect()
    }

    pub(super) fn is_declared(&self, id: &str) -> bool {
        self.home(id).join("config").is_dir()
    }

    /// Where an agent's `state` or `config` is, or would be; none where no such agent is here or declared.
    pub fn directory_of(&self, id: &str, name: &str) -> Option<PathBuf> {
        match self.agent(id) {
            Some(record) if name == "state" => Some(record.state_dir().to_path_buf()),
            None if check_id(id).is_err() || !self.is_declared(id) => None,
            _ => Some(self.home(id).join(name)),
        }
    }

    /// How an agent stands, in a word, and whether it has a process.
    pub(super) fn state_of(&self, id: &str) -> (&'static str, bool) {
        match (self.agent(id), self.stop_word(id)) {
            (record, Some(word)) => (word, record.is_some_and(|record| record.life.pid().is_some())),
            (Some(record), None) => (record.status(), record.life.pid().is_some()),
            (None, None) => ("declared", false),
        }
    }
}
