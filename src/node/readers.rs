//! The readers of state files as functions of bytes, for whoever wants to know what they make of a file
//! without a node: the fuzzer does.

use super::{harness, known, ledger, outbox, replay_log};
use crate::wire::ReplayWindow;

/// A kind of file in a state directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateFile {
    /// `agents/<id>/harness/<generation>/meta.json`
    Record,
    /// `ledger/<hash>.json`
    LedgerEntry,
    /// `outbox/<transfer>`
    Transfer,
    /// `meta/known.jsonl`
    Known,
    /// `meta/replay.log`
    ReplayMemory,
}

impl StateFile {
    /// Every kind.
    pub const ALL: [StateFile; 5] = [
        StateFile::Record,
        StateFile::LedgerEntry,
        StateFile::Transfer,
        StateFile::Known,
        StateFile::ReplayMemory,
    ];

    /// Reads a file's content as the node does at its start.
    ///
    /// # Errors
    /// What makes no sense in it.
    pub fn check(self, content: &[u8]) -> Result<(), String> {
        let text = || std::str::from_utf8(content).map_err(|error| error.to_string());
        let lines = |damaged: Vec<usize>| match damaged.is_empty() {
            true => Ok(()),
            false => Err(format!("lines {damaged:?}")),
        };
        match self {
            StateFile::Record => harness::parse_meta(text()?).map(drop),
            StateFile::LedgerEntry => ledger::read_entry(text()?).map(drop),
            StateFile::Transfer => outbox::read_transfer(text()?).map(drop),
            StateFile::Known => lines(known::read(content).damaged),
            StateFile::ReplayMemory => lines(replay_log::read(&mut ReplayWindow::new(300), content).damaged),
        }
    }
}
