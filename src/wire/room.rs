//! The memory that lines on their way may take together.
//!
//! Each connection has a little of its own, which small requests never exceed: they pass whatever the big
//! ones do. Beyond that a line takes from what all share, as it grows. Lines that grow side by side could
//! each wait for what the others hold; so one of them at a time, the one that waits longest, may take the
//! *lane*: as much as a whole line, set aside, which no other touches. Whoever has it waits for nobody.
//!
//! A line's memory counts until its answer has left, then the answer's does. An answer is never refused: what
//! it tells has happened. It counts, so that lines wait for it.

use crate::sync::lock;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What each connection has of its own, bytes.
pub const OWN: usize = 64 << 10;
/// How long a line waits for room.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is shared.
#[derive(Debug, Default)]
pub struct Room {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes of all lines but the one in the lane.
    shared: usize,
    lane: Option<Lane>,
    /// Who waits, by age.
    waiting: BTreeSet<u64>,
    next: u64,
}

/// The line that has what is set aside.
#[derive(Debug)]
struct Lane {
    ticket: u64,
    bytes: usize,
    /// Whether it grows no more.
    whole: bool,
}

impl Room {
    /// Bytes that lines hold now, beyond what each connection has of its own.
    pub fn held(&self) -> usize {
        let state = lock(&self.state);
        state.shared + state.lane.as_ref().map_or(0, |lane| lane.bytes)
    }
}

/// One connection's part of a [`Room`], given back when it is dropped.
#[derive(Debug)]
pub struct Hold<'r> {
    room: &'r Room,
    /// What all may hold beside the lane.
    most: usize,
    /// Its place among those that wait: that of the line it holds, if any.
    ticket: Cell<u64>,
    bytes: Cell<usize>,
}

/// There was no room, and it was waited for in vain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRoom;

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no room for so long a line now")
    }
}

impl std::error::Error for NoRoom {}

impl<'r> Hold<'r> {
    /// A part of nothing yet. All lines together may hold `most` bytes, a single one `longest`.
    pub fn new(room: &'r Room, most: usize, longest: usize) -> Self {
        Hold { room, most: most.saturating_sub(longest), ticket: Cell::new(0), bytes: Cell::new(0) }
    }

    /// Makes room for a line that grows to `bytes`; waits for it until the deadline, and some seconds at most.
    ///
    /// # Errors
    /// None came free. What the line has, it keeps.
    pub fn grow(&self, bytes: usize, deadline: Instant) -> Result<(), NoRoom> {
        let (had, wanted) = (self.bytes.get(), counted(bytes));
        if wanted <= had {
            return Ok(());
        }
        let deadline = deadline.min(Instant::now() + PATIENCE);
        let mut state = lock(&self.room.state);
        if had == 0 {
            state.next += 1;
            self.ticket.set(state.next);
        }
        let ticket = self.ticket.get();
        while !state.take(ticket, had, wanted, self.most) {
            state.waiting.insert(ticket);
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.waiting.remove(&ticket);
                // Whoever waited behind this one may be next.
                self.room.changed.notify_all();
                return Err(NoRoom);
            }
            state = self.room.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.waiting.remove(&ticket) {
            self.room.changed.notify_all();
        }
        self.bytes.set(wanted);
        Ok(())
    }

    /// What is held from now on: a line that is whole, the answer in its place, or nothing. Never waits.
    pub fn settle(&self, bytes: usize) {
        let (had, has) = (self.bytes.get(), counted(bytes));
        if (had, has) == (0, 0) {
            return;
        }
        self.bytes.set(has);
        let mut state = lock(&self.room.state);
        match &mut state.lane {
            Some(lane) if had > 0 && lane.ticket == self.ticket.get() => {
                lane.bytes = has;
                lane.whole = true;
            }
            _ => state.shared = state.shared - had + has,
        }
        state.clear_lane(self.most);
        drop(state);
        self.room.changed.notify_all();
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.settle(0);
    }
}

impl State {
    /// Takes from what is shared, or the lane; first come, first served.
    fn take(&mut self, ticket: u64, had: usize, wanted: usize, most: usize) -> bool {
        if let Some(lane) = self.lane.as_mut().filter(|lane| lane.ticket == ticket) {
            lane.bytes = wanted;
            lane.whole = false;
            return true;
        }
        if self.waiting.first().is_some_and(|first| *first < ticket) {
            return false;
        }
        if self.shared - had + wanted <= most {
            self.shared = self.shared - had + wanted;
            return true;
        }
        if self.lane.is_none() {
            self.shared -= had;
            self.lane = Some(Lane { ticket, bytes: wanted, whole: false });
            return true;
        }
        false
    }

    /// What is in the lane and grows no more goes to the others as soon as there is room for it.
    fn clear_lane(&mut self, most: usize) {
        let fits = |lane: &mut Lane| lane.bytes == 0 || self.shared + lane.bytes <= most;
        if let Some(lane) = self.lane.take_if(|lane| lane.whole && fits(lane)) {
            self.shared += lane.bytes;
        }
    }
}

/// What counts of so many bytes.
fn counted(bytes: usize) -> usize {
    match bytes <= OWN {
        true => 0,
        false => bytes,
    }
}

#[cfg(test)]
#[path = "room_tests.rs"]
mod tests;
