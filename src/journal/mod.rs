//! The audit journal: one event a line, appended, each line's hash covering the line before.
//!
//! # Where
//!
//! `journal/*.jsonl` in the state directory, each file named by the `seq` of its first line. A file that has its
//! size is closed and the next one begun; the chain goes on over files. Only so many files are kept.
//! `meta/journal.head` says where the journal ends (see `head.rs`), so that a tail that was cut off shows.
//!
//! # A line
//!
//! A flat JSON object in ASCII, without white space, its members in this order:
//!
//! | member | value |
//! |---|---|
//! | `seq` | integer, 1 for the first line ever, then one more each |
//! | `time` | `2026-05-09T00:00:00Z`, UTC |
//! | `kind` | what happened, one word |
//! | … | the event's own: strings of at most 200 characters, integers, booleans; often `agent`, `peer` |
//! | `prev` | the `hash` of the line before, 64 hexadecimal digits; 64 zeros in the first line |
//! | `hash` | SHA-256, 64 hexadecimal digits, of the canonical JSON (keys sorted, no white space) of the line without `hash` |
//!
//! ```text
//! {"seq":2,"time":"2026-05-09T00:00:00Z","kind":"deploy","agent":"ping","prev":"6b8f…","hash":"0c1d…"}
//! ```
//!
//! The journal writes five kinds itself: `gap` (`lost` lines could not be written since `since`), `torn` (a last line
//! without its end was found at the start, and taken off), `cut` (lines are missing that were there), `damaged` (the last
//! line found is none of ours) and `left_out` (`count` refused messages more than are noted in a second).
//!
//! # What is promised
//!
//! What was noted is with the kernel when [`Journal::settle`] returns, so that it survives the node's SIGKILL; the
//! server settles before an answer leaves. fsync is batched ([`Fsync`]). A failure to write never fails the caller.

mod bound;
mod chain;
mod head;
mod line;
mod reader;
mod recover;
#[cfg(test)]
mod tests;
mod verify;
mod writer;

pub use line::{Event, Line};
pub use reader::{files, Lines};
pub use verify::{verify, Fault, Report, Wrong};
pub use writer::Journal;

/// The journal's directory in a state directory.
pub const DIRECTORY: &str = "journal";

pub use crate::state::Fsync;

/// How a journal is kept.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// From which size on a file is closed, bytes.
    pub file_bytes: u64,
    /// How many files are kept, at least 1.
    pub files: usize,
    /// When it is forced to the disk.
    pub fsync: Fsync,
}
