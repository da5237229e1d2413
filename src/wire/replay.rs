//! Remembering which messages were accepted, so that none is accepted twice.
//!
//! A message is remembered until its timestamp can no longer be fresh. Whatever is forgotten, for its
//! age or for want of room, leaves a floor behind: what is stamped at or before it is refused. Floors
//! are made of the timestamps of messages and not of the clock. So they hold when the clock is set
//! back, and a clock that was ahead for a while does not lock anybody out.

use std::collections::{BTreeSet, HashMap};

/// What is to be done with a message whose signature is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was not seen before, and now it is remembered.
    New,
    /// It was accepted before.
    Replayed,
    /// It is stamped at or before the floor: it may have been accepted and forgotten.
    BelowFloor,
}

/// As much of a signature as is remembered: two messages do not share it by chance.
pub type Mark = [u8; 16];

/// The accepted messages of all senders. Put it behind a mutex; a call takes microseconds, but for a
/// sweep over all senders once in half a `skew`.
#[derive(Debug)]
pub struct ReplayWindow {
    /// How far a timestamp may be from the clock, in seconds.
    skew: i64,
    senders: HashMap<String, Memory>,
    /// What was forgotten for its age, of whichever sender, is stamped at or before this.
    floor: i64,
    swept: i64,
}

#[derive(Debug)]
struct Memory {
    accepted: BTreeSet<(i64, Mark)>,
    /// What was forgotten for want of room is stamped at or before this.
    floor: i64,
}

impl ReplayWindow {
    /// An empty memory for messages that may be `skew_s` seconds away from the clock.
    pub fn new(skew_s: u64) -> ReplayWindow {
        let skew = i64::try_from(skew_s).unwrap_or(i64::MAX);
        ReplayWindow { skew, senders: HashMap::new(), floor: i64::MIN, swept: i64::MIN }
    }

    /// Asks whether a message may be acted on, and remembers it if so. It has been found fresh at `now`
    /// and its signature valid (so that strangers cannot fill the memory). `capacity` is the number of
    /// messages remembered of this sender; beyond it the oldest are forgotten. Times in Unix seconds.
    pub fn check(
        &mut self,
        sender: &str,
        signature: &[u8; 32],
        timestamp: i64,
        now: i64,
        capacity: usize,
    ) -> Verdict {
        self.sweep(now);
        if timestamp <= self.floor {
            return Verdict::BelowFloor;
        }
        let oldest_fresh = now.saturating_sub(self.skew);
        let memory = self.memory(sender);
        if timestamp <= memory.floor {
            return Verdict::BelowFloor;
        }
        let mut mark = Mark::default();
        mark.copy_from_slice(&signature[..16]);
        if !memory.accepted.insert((timestamp, mark)) {
            return Verdict::Replayed;
        }
        let forgotten = memory.forget_before(oldest_fresh);
        memory.forget_beyond(capacity);
        self.floor = self.floor.max(forgotten);
        Verdict::New
    }

    /// The latest timestamp of this sender that is refused whatever the clock says; `i64::MIN` if none.
    pub fn floor(&self, sender: &str) -> i64 {
        self.senders.get(sender).map_or(self.floor, |memory| memory.floor.max(self.floor))
    }

    /// What was forgotten for its age, of whichever sender, is stamped at or before this.
    pub fn common_floor(&self) -> i64 {
        self.floor
    }

    /// Raises the floor of all senders: as it was in an earlier run. It never falls.
    pub fn raise_common_floor(&mut self, floor: i64) {
        self.floor = self.floor.max(floor);
    }

    /// Raises one sender's own floor: as it was in an earlier run. It never falls.
    pub fn raise_floor(&mut self, sender: &str, floor: i64) {
        let memory = self.memory(sender);
        memory.floor = memory.floor.max(floor);
    }

    /// Remembers a message that an earlier run accepted.
    pub fn remember(&mut self, sender: &str, timestamp: i64, mark: Mark) {
        self.memory(sender).accepted.insert((timestamp, mark));
    }

    /// Each sender's own floor (`i64::MIN`: none), and what is remembered of it, for the next run.
    pub fn each(&self, mut tell: impl FnMut(&str, i64, &BTreeSet<(i64, Mark)>)) {
        for (sender, memory) in &self.senders {
            tell(sender, memory.floor, &memory.accepted);
        }
    }

    fn memory(&mut self, sender: &str) -> &mut Memory {
        let fresh = || Memory { accepted: BTreeSet::new(), floor: i64::MIN };
        self.senders.entry(sender.to_owned()).or_insert_with(fresh)
    }

    /// How many senders something is remembered of.
    pub fn senders(&self) -> usize {
        self.senders.len()
    }

    /// Forgets what is too old, of all senders, and the senders of which nothing remains. A sender's own
    /// floor, once too old to matter, goes into the common one, so that it still holds.
    pub fn sweep(&mut self, now: i64) {
        // Also when the clock was set back, lest the next sweep be far away.
        if now.abs_diff(self.swept) <= self.skew.unsigned_abs() / 2 {
            return;
        }
        self.swept = now;
        let oldest_fresh = now.saturating_sub(self.skew);
        let mut floor = self.floor;
        self.senders.retain(|_, memory| {
            floor = floor.max(memory.forget_before(oldest_fresh));
            let matters = !memory.accepted.is_empty() || memory.floor >= oldest_fresh;
            if !matters {
                floor = floor.max(memory.floor);
            }
            matters
        });
        self.floor = floor;
        if self.senders.len() < self.senders.capacity() / 4 {
            self.senders.shrink_to_fit();
        }
    }
}

impl Memory {
    /// Gives the latest timestamp that was forgotten.
    fn forget_before(&mut self, oldest_fresh: i64) -> i64 {
        let mut latest = i64::MIN;
        while let Some(oldest) = self.accepted.first().copied().filter(|oldest| oldest.0 < oldest_fresh) {
            self.accepted.remove(&oldest);
            latest = oldest.0;
        }
        latest
    }

    fn forget_beyond(&mut self, capacity: usize) {
        while self.accepted.len() > capacity {
            let Some((timestamp, _)) = self.accepted.pop_first() else {
                return;
            };
            self.floor = self.floor.max(timestamp);
            // The floor speaks for the others of that second.
            while self.accepted.first().is_some_and(|next| next.0 <= timestamp) {
                self.accepted.pop_first();
            }
        }
    }
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
