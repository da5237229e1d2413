//! Messages that nobody waits for: an agent's to itself or to another one here, and those of schedules.
//!
//! Each takes its place in the agent's queue at once, so that it stands in the order of all its messages, and
//! counts with them against `inbox_length`; it does not keep out messages that somebody waits for.
//! One thread an agent hands them over, whatever their number.
//! They are in memory alone: what waits when the node ends is lost.

use super::record::Record;
use super::{Node, Outcome};
use crate::agent::{NoTurn, Seat, Turn};
use crate::log::Level;
use crate::sync::{lock, Crew};
use crate::wire::{Code, Failure};
use std::collections::{HashMap, VecDeque};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The largest such message, bytes: an agent's queue may hold many.
pub const MESSAGE_BYTES: usize = 1 << 20;
/// How many agents' messages are handed over at once. Apart from the crew for `ctx` calls: what waits for
/// slow agents must not keep others from calling.
const THREADS: usize = 256;
/// How long a message waits that has its turn; until then the generation's end ends the waiting.
const LONG: Duration = Duration::from_secs(365 * 24 * 3600);
/// How often a process is asked for where all are taken.
const FULL: Duration = Duration::from_millis(50);

/// What is told when a message was handled, or was not.
type Then = Box<dyn FnOnce(Result<Outcome, Failure>) + Send>;

struct Letter {
    seat: Seat,
    message: String,
    then: Then,
}

/// The messages that wait, by agent and generation. Its mutex is held for map operations, and for taking a
/// place in an agent's queue.
pub(super) struct Inboxes {
    waiting: Mutex<HashMap<(String, u64), VecDeque<Letter>>>,
    crew: Crew,
}

impl Default for Inboxes {
    fn default() -> Self {
        Inboxes { waiting: Mutex::default(), crew: Crew::new("inbox", THREADS) }
    }
}

impl Node {
    /// Puts a message of the agent `from` into an agent's inbox and does not wait for it.
    ///
    /// # Errors
    /// As [`Node::post`].
    pub fn mail(self: &Arc<Self>, record: &Arc<Record>, message: String, from: &str) -> Result<(), Failure> {
        let (node, to, from) = (Arc::clone(self), Arc::clone(record), from.to_owned());
        // Agents cannot fill the inbox of another one: what the admin sends it, and its schedules, find room.
        let most = self.config().keys.inbox_length;
        let most = if from == record.id { most } else { most - most / 4 };
        self.post_within(record, message, most, move |ended| {
            if let Err(failure) = ended {
                let error = failure.to_string();
                let fields = [("agent", &*to.id), ("from", &*from), ("error", &*error)];
                node.let_say(&to.id, &to.talk, 0, || node.log.event(Level::Warn, "message_failed", &fields));
            }
        })
    }

    /// Puts a message into an agent's inbox; `then` is told its outcome, on a thread of its own.
    ///
    /// # Errors
    /// `too_large`, `busy` (as many wait as may, or there is no thread), `unknown_agent` (it is leaving just
    /// now), `shutting_down`. Then `then` is never told.
    pub fn post(
        self: &Arc<Self>,
        record: &Arc<Record>,
        message: String,
        then: impl FnOnce(Result<Outcome, Failure>) + Send + 'static,
    ) -> Result<(), Failure> {
        self.post_within(record, message, usize::MAX, then)
    }

    /// The same, unless `most` messages of this kind wait already.
    fn post_within(
        self: &Arc<Self>,
        record: &Arc<Record>,
        message: String,
        most: usize,
        then: impl FnOnce(Result<Outcome, Failure>) + Send + 'static,
    ) -> Result<(), Failure> {
        if message.len() > MESSAGE_BYTES {
            let text = format!("the message has {} bytes, at most {MESSAGE_BYTES} may wait", message.len());
            return Err(Failure::new(Code::TooLarge, text));
        }
        let key = (record.id.clone(), record.generation);
        let first = {
            let mut waiting = lock(&self.inboxes.waiting);
            if waiting.get(&key).is_some_and(|letters| letters.len() >= most) {
                return Err(self.no_place(record, NoTurn::Full));
            }
            let seat = record.life.join().map_err(|why| self.no_place(record, why))?;
            let letter = Letter { seat, message, then: Box::new(then) };
            let first = !waiting.contains_key(&key);
            waiting.entry(key.clone()).or_default().push_back(letter);
            first
        };
        if !first {
            return Ok(());
        }
        let (node, of, again) = (Arc::clone(self), Arc::clone(record), key.clone());
        if self.inboxes.crew.run(move || node.hand_over(&of, &again)) {
            return Ok(());
        }
        let busy = || Failure::new(Code::Busy, "the node has no thread for one more message");
        // Behind the first one, which is this one, others may have come meanwhile.
        let others = lock(&self.inboxes.waiting).remove(&key);
        others.into_iter().flatten().skip(1).for_each(|letter| (letter.then)(Err(busy())));
        Err(busy())
    }

    fn no_place(&self, record: &Record, why: NoTurn) -> Failure {
        match why {
            NoTurn::Over if self.is_stopping() => {
                Failure::new(Code::ShuttingDown, "the node is shutting down")
            }
            NoTurn::Over => self.unknown_agent(&record.id),
            NoTurn::Full | NoTurn::Late => {
                let most = self.config().keys.inbox_length;
                let text = format!("{} has as many messages waiting as it may ({most})", record.id);
                Failure::new(Code::Busy, text)
            }
        }
    }

    fn hand_over(self: &Arc<Self>, record: &Arc<Record>, key: &(String, u64)) {
        loop {
            let letter = {
                let mut waiting = lock(&self.inboxes.waiting);
                match waiting.get_mut(key).and_then(VecDeque::pop_front) {
                    Some(letter) => letter,
                    None => {
                        waiting.remove(key);
                        return;
                    }
                }
            };
            let Letter { seat, message, then } = letter;
            // A panic at one message, which its hook reports, is not the end of the others.
            let handed = catch_unwind(AssertUnwindSafe(|| self.hand_over_one(record, seat, &message)));
            let ended = handed.unwrap_or_else(|_| {
                Err(Failure::new(Code::Internal, "the node failed at this message; its log says how"))
            });
            let _ = catch_unwind(AssertUnwindSafe(|| then(ended)));
        }
    }

    fn hand_over_one(
        self: &Arc<Self>,
        record: &Arc<Record>,
        seat: Seat,
        message: &str,
    ) -> Result<Outcome, Failure> {
        match seat.wait(Instant::now() + LONG) {
            Ok(turn) => {
                self.wait_for_room(record, &turn)?;
                self.run_hook(record, &turn, "on_message", message, Instant::now() + self.hook_limit())
            }
            Err(_) if self.is_stopping() => {
                Err(Failure::new(Code::ShuttingDown, "the node is shutting down"))
            }
            // Moved, replaced or removed meanwhile: whoever has its id now gets it.
            Err(_) => self.invoke(&record.id, message, Instant::now() + self.hook_limit()),
        }
    }

    /// Waits, with the turn, until the agent may have a process: what was taken in is not refused because
    /// others are at work.
    fn wait_for_room(&self, record: &Record, _turn: &Turn) -> Result<(), Failure> {
        let deadline = Instant::now() + self.hook_limit();
        while record.life.pid().is_none() {
            match self.make_room() {
                Ok(_) => return Ok(()),
                Err(failure) if Instant::now() >= deadline || self.is_stopping() => return Err(failure),
                Err(_) => std::thread::sleep(FULL),
            }
        }
        Ok(())
    }
}
