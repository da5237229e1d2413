//! The end of the chain, and the lines that wait to be written.

use super::line::{Event, BEGINNING};
use crate::clock;
use crate::wire::unix_now;

/// The end of the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct End {
    /// The last line's number; 0: there is none yet.
    pub(super) seq: u64,
    /// Its hash.
    pub(super) hash: String,
}

impl Default for End {
    fn default() -> End {
        End { seq: 0, hash: BEGINNING.to_owned() }
    }
}

/// Lines that follow each other, to be written at once.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) text: Vec<u8>,
    /// How many.
    pub(super) lines: u64,
    /// The chain's end with them.
    pub(super) end: End,
}

impl Batch {
    /// The first line's number.
    pub(super) fn first(&self) -> u64 {
        self.end.seq + 1 - self.lines
    }
}

/// The chain as it will be when all that waits is written; or, while nothing can be written, the count of what is lost.
#[derive(Default)]
pub(super) struct Chain {
    end: End,
    text: Vec<u8>,
    lines: u64,
    /// Since when nothing can be written, and how many lines that cost.
    failing: Option<(i64, u64)>,
}

impl Chain {
    /// A chain that cannot be written yet.
    pub(super) fn unopened() -> Chain {
        Chain { failing: Some((unix_now(), 0)), ..Chain::default() }
    }

    pub(super) fn is_failing(&self) -> bool {
        self.failing.is_some()
    }

    /// Adds an event, or counts it as lost. Returns the bytes that wait.
    pub(super) fn add(&mut self, event: &Event) -> usize {
        match &mut self.failing {
            Some((_, lost)) => *lost += 1,
            None => self.append(event),
        }
        self.text.len()
    }

    /// Takes what waits.
    pub(super) fn take(&mut self) -> Option<Batch> {
        if self.lines == 0 {
            return None;
        }
        let text = std::mem::take(&mut self.text);
        Some(Batch { text, lines: std::mem::take(&mut self.lines), end: self.end.clone() })
    }

    /// A batch could not be written: the chain ends at `end` again, and what was added since is lost, too.
    pub(super) fn fail(&mut self, batch: u64, end: &End) {
        let lost = batch + std::mem::take(&mut self.lines);
        self.text.clear();
        self.end = end.clone();
        let (_, before) = self.failing.get_or_insert((unix_now(), 0));
        *before += lost;
    }

    /// Tries again from `end`, with `events` first and what was lost. What is written then, the caller takes next.
    pub(super) fn resume(&mut self, end: &End, events: &[Event]) {
        self.end = end.clone();
        for event in events {
            self.append(event);
        }
        if let Some((since, lost)) = self.failing.take().filter(|(_, lost)| *lost > 0) {
            self.append(&Event::new("gap").number("lost", lost).text("since", &clock::utc(since)));
        }
    }

    /// That try failed too: back to what was known before it.
    pub(super) fn fail_again(&mut self, failing: Option<(i64, u64)>, end: &End) {
        self.text.clear();
        self.lines = 0;
        self.end = end.clone();
        self.failing = failing;
    }

    pub(super) fn failing(&self) -> Option<(i64, u64)> {
        self.failing
    }

    fn append(&mut self, event: &Event) {
        let seq = self.end.seq + 1;
        let (line, hash) = event.line(seq, &clock::utc(unix_now()), &self.end.hash);
        self.text.extend_from_slice(line.as_bytes());
        self.lines += 1;
        self.end = End { seq, hash };
    }
}
