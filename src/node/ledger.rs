//! The ledger: transfers that came here, and what became of each (TRANSFER.md, "At the destination").
//!
//! A file an entry, `ledger/<hash>.json`. An entry that is being looked at has none; each other standing
//! is on disk before anybody is told of it.

use super::arrive::disk_failure;
use crate::crash;
use crate::state;
use crate::sync::lock;
use crate::wire::{hex, Code, Failure, Secret};
use serde_json::value::RawValue;
use serde_json::{json, Value};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The largest answer that is kept in memory, bytes; a larger one is read when somebody asks.
const HELD_ANSWER: usize = 4096;

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

pub(super) struct Entry {
    standing: Kept,
    /// Signs answers about it when the agent has gone on.
    secret: Secret,
    /// The generation that it brought.
    generation: Option<u64>,
    /// Its file is being written: whoever wants to change it waits.
    writing: bool,
}

/// A [`Standing`] as it is held in memory.
#[derive(Clone)]
enum Kept {
    Loading,
    Accepted,
    /// `None`: the answer is long, and in the file.
    Done(Option<Box<RawValue>>),
    Refused(Failure),
}

/// An entry that an earlier run left.
pub(super) struct Found {
    pub(super) agent: String,
    pub(super) transfer: String,
    pub(super) generation: u64,
    /// What it was activated with, if that did not come to its end.
    pub(super) interrupted: Option<String>,
}

/// Transfers by agent and id: a stranger who reuses another's transfer id finds nothing.
pub(super) struct Ledger {
    dir: PathBuf,
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
    /// The ledger in `dir`, with what earlier runs left there; the second are the files that could not
    /// be read, set aside, each with what is wrong with it.
    ///
    /// # Errors
    /// The directory can't be made or read.
    pub(super) fn open_dir(dir: &Path) -> io::Result<(Self, Vec<Found>, Vec<String>)> {
        state::make_durable_dir(dir)?;
        let (mut entries, mut found, mut damaged) = (HashMap::new(), Vec::new(), Vec::new());
        for file in state::entries(dir)? {
            let read = fs::read_to_string(&file)
                .map_err(|error| error.to_string())
                .and_then(|text| read_entry(&text));
            match read {
                Ok((agent, transfer, entry, second)) => {
                    if let Some(generation) = entry.generation {
                        let accepted = matches!(entry.standing, Kept::Accepted);
                        found.push(Found {
                            agent: agent.clone(),
                            transfer: transfer.clone(),
                            generation,
                            interrupted: accepted.then_some(second),
                        });
                    }
                    entries.insert((agent, transfer), entry);
                }
                Err(why) => {
                    damaged.push(state::set_aside_for(&file, &why));
                }
            }
        }
        let ledger = Ledger { dir: dir.to_owned(), entries: Mutex::new(entries), changed: Condvar::new() };
        Ok((ledger, found, damaged))
    }

    /// Opens a transfer, unless it is known.
    pub(super) fn open(&self, agent: &str, transfer: &str, secret: &Secret, stranger: bool) -> Opened {
        let mut entries = lock(&self.entries);
        match entries.get(&key(agent, transfer)) {
            Some(_) => Opened::Known,
            None if stranger && entries.len() >= STRANGERS => Opened::Full,
            None => {
                entries.insert(key(agent, transfer), Entry::new(secret));
                Opened::First
            }
        }
    }

    /// Where a transfer stands, if it is known.
    pub(super) fn standing(&self, agent: &str, transfer: &str) -> Option<Standing> {
        let kept = lock(&self.entries).get(&key(agent, transfer)).map(|entry| entry.standing.clone());
        kept.map(|kept| self.whole(agent, transfer, kept))
    }

    /// The secret that signs answers about a transfer.
    pub(super) fn secret(&self, agent: &str, transfer: &str) -> Option<Secret> {
        lock(&self.entries).get(&key(agent, transfer)).map(|entry| entry.secret.clone())
    }

    /// The generation that a transfer brought.
    pub(super) fn generation(&self, agent: &str, transfer: &str) -> Option<u64> {
        lock(&self.entries).get(&key(agent, transfer)).and_then(|entry| entry.generation)
    }

    /// The commit: from here on the agent lives here, as that generation, to be activated with
    /// `activate`.
    ///
    /// # Errors
    /// The refusal that a cancellation wrote meanwhile; `busy` or `internal` if the entry can't be
    /// written.
    pub(super) fn accept(
        &self,
        agent: &str,
        transfer: &str,
        generation: u64,
        activate: &str,
    ) -> Result<(), Failure> {
        let text = {
            let mut entries = self.settled(agent, transfer);
            let Some(entry) = entries.get_mut(&key(agent, transfer)) else {
                return Err(Failure::new(Code::Internal, "the transfer is not open any more"));
            };
            if let Kept::Refused(failure) = &entry.standing {
                return Err(failure.clone());
            }
            entry.writing = true;
            let accepted = Entry { generation: Some(generation), standing: Kept::Accepted, ..entry.clone() };
            accepted.text(agent, transfer, activate)
        };
        let written = self.write(agent, transfer, &text).inspect_err(|_| {
            let _ = fs::remove_file(self.file(agent, transfer)); // nothing half-promised
        });
        self.written(agent, transfer, |entry| {
            if written.is_ok() {
                entry.standing = Kept::Accepted;
                entry.generation = Some(generation);
            }
        });
        written.map_err(|error| disk_failure("that it takes the agent", &error))
    }

    /// The end of an activation.
    ///
    /// # Errors
    /// The answer can't be written; it is known all the same as long as the node runs.
    pub(super) fn finish(&self, agent: &str, transfer: &str, answer: &RawValue) -> io::Result<()> {
        let text = {
            let mut entries = self.settled(agent, transfer);
            let Some(entry) = entries.get_mut(&key(agent, transfer)) else { return Ok(()) };
            entry.writing = true;
            Entry { standing: Kept::Done(None), ..entry.clone() }.text(agent, transfer, answer.get())
        };
        let written = self.write(agent, transfer, &text);
        self.written(agent, transfer, |entry| {
            let held = written.is_err() || answer.get().len() <= HELD_ANSWER;
            entry.standing = Kept::Done(held.then(|| answer.to_owned()));
        });
        written
    }

    /// A final refusal; one that stands already stays. False if it could not be written down: then
    /// nothing is promised.
    pub(super) fn refuse(&self, agent: &str, transfer: &str, failure: &Failure) -> bool {
        let entries = self.settled(agent, transfer);
        self.refuse_loading(entries, agent, transfer, failure).is_ok()
    }

    /// Forgets an attempt that was not taken.
    pub(super) fn untouch(&self, agent: &str, transfer: &str) {
        let mut entries = self.settled(agent, transfer);
        if entries.get(&key(agent, transfer)).is_some_and(|entry| matches!(entry.standing, Kept::Loading)) {
            entries.remove(&key(agent, transfer));
        }
        self.changed.notify_all();
    }

    /// Cancels: what is not accepted yet is refused for good. Returns where it stands then; `None` if
    /// it is a stranger's and there is no room for it, or if that could not be written down.
    pub(super) fn cancel(
        &self,
        agent: &str,
        transfer: &str,
        secret: &Secret,
        stranger: bool,
        failure: Failure,
    ) -> Option<Standing> {
        let mut entries = self.settled(agent, transfer);
        let full = stranger && entries.len() >= STRANGERS;
        let known = entries.contains_key(&key(agent, transfer));
        if full && !known {
            return None;
        }
        entries.entry(key(agent, transfer)).or_insert_with(|| Entry::new(secret));
        let refused = self.refuse_loading(entries, agent, transfer, &failure);
        if refused.is_err() && !known {
            self.untouch(agent, transfer);
        }
        refused.ok()?;
        self.standing(agent, transfer)
    }

    /// The source has recorded the outcome. Returns whether there was something to forget.
    ///
    /// # Errors
    /// The file can't be removed.
    pub(super) fn forget(&self, agent: &str, transfer: &str) -> io::Result<bool> {
        let mut entries = self.settled(agent, transfer);
        let over = entries
            .get(&key(agent, transfer))
            .is_some_and(|entry| matches!(entry.standing, Kept::Done(_) | Kept::Refused(_)));
        if over {
            if let Some(entry) = entries.get_mut(&key(agent, transfer)) {
                entry.writing = true;
            }
            drop(entries);
            let removed = state::remove_durably(&self.file(agent, transfer));
            crash::point("entry-forgotten");
            self.written(agent, transfer, |_| {});
            removed?;
            lock(&self.entries).remove(&key(agent, transfer));
        }
        Ok(over)
    }

    /// Waits until the attempt that runs has ended, for a repeat of it. `None`: not before the
    /// deadline, or that attempt was not taken after all.
    pub(super) fn outcome(&self, agent: &str, transfer: &str, deadline: Instant) -> Option<Standing> {
        let mut entries = lock(&self.entries);
        loop {
            match entries.get(&key(agent, transfer)).map(|entry| entry.standing.clone()) {
                Some(Kept::Loading | Kept::Accepted) => {}
                other => {
                    drop(entries);
                    return other.map(|kept| self.whole(agent, transfer, kept));
                }
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

    /// The entries, when nobody is writing this one's file.
    fn settled(&self, agent: &str, transfer: &str) -> MutexGuard<'_, HashMap<(String, String), Entry>> {
        let key = key(agent, transfer);
        let writing = |entries: &mut HashMap<(String, String), Entry>| {
            entries.get(&key).is_some_and(|entry| entry.writing)
        };
        self.changed.wait_while(lock(&self.entries), writing).unwrap_or_else(PoisonError::into_inner)
    }

    fn written(&self, agent: &str, transfer: &str, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = lock(&self.entries).get_mut(&key(agent, transfer)) {
            entry.writing = false;
            change(entry);
        }
        self.changed.notify_all();
    }

    fn refuse_loading(
        &self,
        mut entries: MutexGuard<'_, HashMap<(String, String), Entry>>,
        agent: &str,
        transfer: &str,
        failure: &Failure,
    ) -> io::Result<()> {
        let Some(entry) = entries.get_mut(&key(agent, transfer)) else { return Ok(()) };
        if !matches!(entry.standing, Kept::Loading) {
            return Ok(());
        }
        entry.writing = true;
        let refused = Entry { standing: Kept::Refused(failure.clone()), ..entry.clone() };
        drop(entries);
        let written = self.write(agent, transfer, &refused.text(agent, transfer, "null"));
        self.written(agent, transfer, |entry| {
            if written.is_ok() {
                entry.standing = refused.standing;
            }
        });
        written
    }

    /// Whether this transfer's entry was set aside, at this start or an earlier one.
    pub(super) fn is_damaged(&self, agent: &str, transfer: &str) -> bool {
        state::was_set_aside(&self.file(agent, transfer))
    }

    fn file(&self, agent: &str, transfer: &str) -> PathBuf {
        // An id has no blank.
        let hash = Sha256::digest(format!("{agent} {transfer}"));
        self.dir.join(format!("{}.json", hex::encode(&hash[..16])))
    }

    fn write(&self, agent: &str, transfer: &str, text: &str) -> io::Result<()> {
        state::write_durably(&self.file(agent, transfer), text.as_bytes())
    }

    /// With the answer from the file, where it is not held.
    fn whole(&self, agent: &str, transfer: &str, kept: Kept) -> Standing {
        match kept {
            Kept::Loading => Standing::Loading,
            Kept::Accepted => Standing::Accepted,
            Kept::Refused(failure) => Standing::Refused(failure),
            Kept::Done(Some(answer)) => Standing::Done(answer),
            Kept::Done(None) => {
                let text = fs::read_to_string(self.file(agent, transfer)).unwrap_or_default();
                let answer = answer_of(&text).and_then(|text| RawValue::from_string(text.to_owned()).ok());
                // The agent came; what its activation answered is lost with the file.
                Standing::Done(answer.unwrap_or_else(|| RawValue::NULL.to_owned()))
            }
        }
    }
}

impl Clone for Entry {
    fn clone(&self) -> Self {
        Entry {
            standing: self.standing.clone(),
            secret: self.secret.clone(),
            generation: self.generation,
            writing: self.writing,
        }
    }
}

impl Entry {
    fn new(secret: &Secret) -> Self {
        Entry { standing: Kept::Loading, secret: secret.clone(), generation: None, writing: false }
    }

    /// A line of JSON, and on the next the answer, or what an activation that runs was given.
    fn text(&self, agent: &str, transfer: &str, second: &str) -> String {
        let (word, failure) = match &self.standing {
            Kept::Loading => ("loading", Value::Null),
            Kept::Accepted => ("accepted", Value::Null),
            Kept::Done(_) => ("done", Value::Null),
            Kept::Refused(failure) => {
                ("refused", json!({"code": failure.code.as_str(), "error": failure.message}))
            }
        };
        let head = json!({
            "agent": agent,
            "transfer": transfer,
            "standing": word,
            "generation": self.generation,
            "secret": self.secret.expose(),
            "refusal": failure,
        });
        format!("{head}\n{second}")
    }
}

fn answer_of(text: &str) -> Option<&str> {
    text.split_once('\n').map(|(_, answer)| answer)
}

/// Agent, transfer, entry, and the second line.
pub(super) fn read_entry(text: &str) -> Result<(String, String, Entry, String), String> {
    let (head, second) = text.split_once('\n').ok_or("it has no second line")?;
    let head: Value = serde_json::from_str(head).map_err(|error| error.to_string())?;
    let word = |name: &str| head[name].as_str().ok_or_else(|| format!("{name:?} is missing or no text"));
    let standing = match word("standing")? {
        "accepted" => Kept::Accepted,
        "done" => {
            let answer = RawValue::from_string(second.to_owned()).map_err(|error| error.to_string())?;
            Kept::Done((answer.get().len() <= HELD_ANSWER).then_some(answer))
        }
        "refused" => {
            let code = head["refusal"]["code"].as_str().and_then(|code| code.parse().ok());
            let error = head["refusal"]["error"].as_str().unwrap_or_default();
            Kept::Refused(Failure::new(code.unwrap_or(Code::Rejected), error))
        }
        other => return Err(format!("no transfer stands {other:?}")),
    };
    let secret = Secret::new(word("secret")?).map_err(|error| error.to_string())?;
    let generation = head["generation"].as_u64();
    if generation.is_none() && matches!(standing, Kept::Accepted) {
        return Err("it was accepted and names no generation".into());
    }
    let entry = Entry { standing, secret, generation, writing: false };
    Ok((word("agent")?.to_owned(), word("transfer")?.to_owned(), entry, second.to_owned()))
}

fn key(agent: &str, transfer: &str) -> (String, String) {
    (agent.to_owned(), transfer.to_owned())
}
