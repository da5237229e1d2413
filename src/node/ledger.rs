//! The ledger: transfers that came here, and what became of each (TRANSFER.md, "At the destination").

use crate::sync::lock;
use crate::wire::{Failure, Secret};
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

/// Where a transfer stands. The words are the protocol's.
#[derive(Clone)]
pub(super) enum Standing {
    /// It is being looked at; nothing is promised yet.
    Loading,
    /// The agent lives here; its activation runs.
    Accepted,
    /// The agent lives here (or lived here), and this was the answer.
    Done(Box<RawValue>),
    /// It never will.
    Refused(Failure),
}

impl Standing {
    pub(super) fn word(&self) -> &'static str {
        match self {
            Standing::Loading => "unknown",
            Standing::Accepted => "accepted",
            Standing::Done(_) => "done",
            Standing::Refused(_) => "refused",
        }
    }
}

struct Entry {
    standing: Standing,
    /// Signs answers about it when the agent has gone on.
    secret: Secret,
}

/// Transfers by agent and id: a stranger who reuses another's transfer id finds nothing.
#[derive(Default)]
pub(super) struct Ledger {
    entries: Mutex<HashMap<(String, String), Entry>>,
    changed: Condvar,
}

/// What a new request for a transfer finds.
pub(super) enum Opened {
    /// It is the first: load, then commit.
    First,
    /// It is known.
    Known,
    /// A stranger's, and there are as many entries as strangers may have a part in.
    Full,
}

/// Up to how many entries there may be for one more to be a stranger's: anyone can invent strangers,
/// and nobody forgets their transfers.
const STRANGERS: usize = 100_000;

impl Ledger {
    /// Opens a transfer, unless it is known.
    pub(super) fn open(&self, agent: &str, transfer: &str, secret: &Secret, stranger: bool) -> Opened {
        let mut entries = lock(&self.entries);
        match entries.get(&key(agent, transfer)) {
            Some(_) => Opened::Known,
            None if stranger && entries.len() >= STRANGERS => Opened::Full,
            None => {
                let entry = Entry { standing: Standing::Loading, secret: secret.clone() };
                entries.insert(key(agent, transfer), entry);
                Opened::First
            }
        }
    }

    /// Where a transfer stands, if it is known.
    pub(super) fn standing(&self, agent: &str, transfer: &str) -> Option<Standing> {
        lock(&self.entries).get(&key(agent, transfer)).map(|entry| entry.standing.clone())
    }

    /// The secret that signs answers about a transfer.
    pub(super) fn secret(&self, agent: &str, transfer: &str) -> Option<Secret> {
        lock(&self.entries).get(&key(agent, transfer)).map(|entry| entry.secret.clone())
    }

    /// The commit: from here on the agent lives here.
    ///
    /// # Errors
    /// The refusal that a cancellation wrote meanwhile.
    pub(super) fn accept(&self, agent: &str, transfer: &str) -> Result<(), Failure> {
        let mut entries = lock(&self.entries);
        if let Some(entry) = entries.get_mut(&key(agent, transfer)) {
            if let Standing::Refused(failure) = &entry.standing {
                return Err(failure.clone());
            }
            entry.standing = Standing::Accepted;
        }
        self.changed.notify_all();
        Ok(())
    }

    /// The end of an activation.
    pub(super) fn finish(&self, agent: &str, transfer: &str, answer: &RawValue) {
        if let Some(entry) = lock(&self.entries).get_mut(&key(agent, transfer)) {
            entry.standing = Standing::Done(answer.to_owned());
        }
        self.changed.notify_all();
    }

    /// A final refusal; one that stands already stays.
    pub(super) fn refuse(&self, agent: &str, transfer: &str, failure: &Failure) {
        if let Some(entry) = lock(&self.entries).get_mut(&key(agent, transfer)) {
            if matches!(entry.standing, Standing::Loading) {
                entry.standing = Standing::Refused(failure.clone());
            }
        }
        self.changed.notify_all();
    }

    /// Forgets an attempt that was not taken.
    pub(super) fn untouch(&self, agent: &str, transfer: &str) {
        let mut entries = lock(&self.entries);
        if entries.get(&key(agent, transfer)).is_some_and(|entry| matches!(entry.standing, Standing::Loading))
        {
            entries.remove(&key(agent, transfer));
        }
        self.changed.notify_all();
    }

    /// Cancels: what is not accepted yet is refused for good. Returns where it stands then; `None` if
    /// it is a stranger's and there is no room for it.
    pub(super) fn cancel(
        &self,
        agent: &str,
        transfer: &str,
        secret: &Secret,
        stranger: bool,
        failure: Failure,
    ) -> Option<Standing> {
        let mut entries = lock(&self.entries);
        if stranger && entries.len() >= STRANGERS && !entries.contains_key(&key(agent, transfer)) {
            return None;
        }
        let entry = entries
            .entry(key(agent, transfer))
            .or_insert_with(|| Entry { standing: Standing::Loading, secret: secret.clone() });
        if matches!(entry.standing, Standing::Loading) {
            entry.standing = Standing::Refused(failure);
            self.changed.notify_all();
        }
        Some(entry.standing.clone())
    }

    /// The source has recorded the outcome. Returns whether there was something to forget.
    pub(super) fn forget(&self, agent: &str, transfer: &str) -> bool {
        let mut entries = lock(&self.entries);
        let over = entries
            .get(&key(agent, transfer))
            .is_some_and(|entry| matches!(entry.standing, Standing::Done(_) | Standing::Refused(_)));
        if over {
            entries.remove(&key(agent, transfer));
        }
        over
    }

    /// Waits until the attempt that runs has ended, for a repeat of it. `None`: not before the
    /// deadline, or that attempt was not taken after all.
    pub(super) fn outcome(&self, agent: &str, transfer: &str, deadline: Instant) -> Option<Standing> {
        let mut entries = lock(&self.entries);
        loop {
            match entries.get(&key(agent, transfer)).map(|entry| &entry.standing) {
                Some(Standing::Loading | Standing::Accepted) => {}
                other => return other.cloned(),
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            entries = self.changed.wait_timeout(entries, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.entries).len()
    }
}

fn key(agent: &str, transfer: &str) -> (String, String) {
    (agent.to_owned(), transfer.to_owned())
}
