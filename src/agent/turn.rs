//! Whose turn it is: hooks of one agent run one at a time, in the order in which they came.

use crate::sync::lock;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

/// The queue before one generation of an agent.
pub(super) struct Queue {
    state: Mutex<State>,
    moved: Condvar,
    most: Arc<AtomicUsize>,
}

/// A place in the queue.
struct Ticket {
    number: u64,
    /// Whether somebody waits there, or only a message does that nobody waits for.
    attended: bool,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Ticket>,
    next: u64,
    held: bool,
    /// A move is open: whoever comes waits for its end.
    closed: bool,
    /// This generation is over: whoever waits looks the agent up again.
    over: bool,
}

/// Why a message got no turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoTurn {
    /// As many as may wait are waiting.
    Full,
    /// The deadline passed.
    Late,
    /// This generation of the agent is over (moved away, replaced, removed): look it up again.
    Over,
}

impl Queue {
    pub(super) fn new(most: Arc<AtomicUsize>) -> Self {
        Queue { state: Mutex::default(), moved: Condvar::new(), most }
    }

    /// Waits for a turn, first come, first served.
    pub(super) fn enter(&self, deadline: Instant) -> Result<(), NoTurn> {
        self.wait(self.take_place(true)?, deadline)
    }

    /// Takes a place in the queue for a message that nobody waits for. It must be waited for, or left.
    pub(super) fn join(&self) -> Result<u64, NoTurn> {
        self.take_place(false)
    }

    /// What nobody waits for cannot keep out whoever does; it counts with all that wait itself.
    fn take_place(&self, attended: bool) -> Result<u64, NoTurn> {
        let mut state = lock(&self.state);
        if state.over {
            return Err(NoTurn::Over);
        }
        let before = state.waiting.iter().filter(|other| other.attended || !attended).count();
        if before >= self.most.load(Ordering::Relaxed) {
            return Err(NoTurn::Full);
        }
        let number = state.next;
        state.next += 1;
        state.waiting.push_back(Ticket { number, attended });
        Ok(number)
    }

    /// Gives up a place in the queue.
    pub(super) fn abandon(&self, ticket: u64) {
        lock(&self.state).waiting.retain(|other| other.number != ticket);
        self.moved.notify_all();
    }

    /// Waits until it is this place's turn.
    pub(super) fn wait(&self, ticket: u64, deadline: Instant) -> Result<(), NoTurn> {
        let mut state = lock(&self.state);
        loop {
            if state.over {
                return Err(NoTurn::Over);
            }
            if !state.held
                && !state.closed
                && state.waiting.front().is_some_and(|first| first.number == ticket)
            {
                state.waiting.pop_front();
                state.held = true;
                return Ok(());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.waiting.retain(|other| other.number != ticket);
                self.moved.notify_all();
                return Err(NoTurn::Late);
            }
            state = self.moved.wait_timeout(state, left).unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }

    /// A turn if it is free this instant.
    pub(super) fn try_enter(&self) -> bool {
        let mut state = lock(&self.state);
        let free = !state.held && !state.closed && !state.over && state.waiting.is_empty();
        state.held |= free;
        free
    }

    /// Gives the turn back. Returns whether this generation is over.
    pub(super) fn leave(&self) -> bool {
        let mut state = lock(&self.state);
        state.held = false;
        self.moved.notify_all();
        state.over
    }

    /// Closes the queue; false if it was closed, or this generation is over.
    pub(super) fn close(&self) -> bool {
        let mut state = lock(&self.state);
        let open = !state.closed && !state.over;
        state.closed = true;
        open
    }

    pub(super) fn set_closed(&self, closed: bool) {
        lock(&self.state).closed = closed;
        self.moved.notify_all();
    }

    pub(super) fn is_closed(&self) -> bool {
        lock(&self.state).closed
    }

    /// Ends this generation. Returns whether no hook is running.
    pub(super) fn end(&self) -> bool {
        let mut state = lock(&self.state);
        state.over = true;
        state.waiting.clear();
        self.moved.notify_all();
        !state.held
    }

    pub(super) fn is_over(&self) -> bool {
        lock(&self.state).over
    }

    pub(super) fn is_held(&self) -> bool {
        lock(&self.state).held
    }

    pub(super) fn waiting(&self) -> usize {
        lock(&self.state).waiting.len()
    }
}
