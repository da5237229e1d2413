//! The outbox: transfers of this node's agents whose end is not known yet.

use super::federation::Destination;
use super::messages::Mode;
use super::Record;
use crate::sync::lock;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The shortest wait before a transfer is asked about again.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// The longest.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// One transfer, from the call that began it to a deciding answer.
pub(super) struct Transfer {
    /// Its id, random.
    pub(super) id: String,
    pub(super) mode: Mode,
    pub(super) destination: Destination,
    /// The generation that goes or is copied.
    pub(super) record: Arc<Record>,
    /// The memory as it was at the call.
    pub(super) memory: Option<Arc<str>>,
    /// The request's payload without its closing brace, so that `timeout` can be added.
    pub(super) body: String,
    state: Mutex<State>,
}

struct State {
    /// An attempt may have reached the destination.
    unclear: bool,
    /// A thread is at it.
    attended: bool,
    wait: Duration,
    next: Instant,
}

impl Transfer {
    pub(super) fn new(
        id: String,
        mode: Mode,
        destination: Destination,
        record: Arc<Record>,
        memory: Option<Arc<str>>,
        body: String,
    ) -> Arc<Self> {
        let state = State { unclear: false, attended: true, wait: FIRST_WAIT, next: Instant::now() };
        Arc::new(Transfer { id, mode, destination, record, memory, body, state: Mutex::new(state) })
    }

    pub(super) fn is_unclear(&self) -> bool {
        lock(&self.state).unclear
    }

    pub(super) fn set_unclear(&self) {
        lock(&self.state).unclear = true;
    }

    /// How long to wait before the next question; longer each time.
    pub(super) fn back_off(&self) -> Duration {
        let mut state = lock(&self.state);
        let wait = state.wait;
        state.wait = (wait * 2).min(LONGEST_WAIT);
        wait
    }

    /// The thread that attended to it leaves it to the timers.
    pub(super) fn leave(&self) {
        let wait = self.back_off();
        let mut state = lock(&self.state);
        state.attended = false;
        state.next = Instant::now() + wait;
    }

    /// Takes it up again if it is due and nobody is at it.
    fn take_up(&self) -> bool {
        let mut state = lock(&self.state);
        let due = !state.attended && state.next <= Instant::now();
        state.attended |= due;
        due
    }
}

/// Transfers under way, by id.
#[derive(Default)]
pub(super) struct Outbox {
    open: Mutex<HashMap<String, Arc<Transfer>>>,
}

impl Outbox {
    pub(super) fn add(&self, transfer: &Arc<Transfer>) {
        lock(&self.open).insert(transfer.id.clone(), Arc::clone(transfer));
    }

    pub(super) fn close(&self, transfer: &Transfer) {
        lock(&self.open).remove(&transfer.id);
    }

    /// Those that are due; whoever gets one attends to it.
    pub(super) fn due(&self) -> Vec<Arc<Transfer>> {
        lock(&self.open).values().filter(|transfer| transfer.take_up()).cloned().collect()
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.open).len()
    }
}
