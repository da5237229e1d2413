//! Whose secret is pinned here, and how often each id was registered: `meta/known.jsonl`, a line a
//! change. It outlives the agents: one that moved on stays known.

use crate::state::{self, Lines, Syncer};
use crate::sync::lock;
use crate::wire::Secret;
use serde_json::{json, Value};
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// What is known of an id.
#[derive(Clone)]
pub(super) struct Fact {
    pub(super) secret: Secret,
    /// How often it was registered here.
    pub(super) sequence: u64,
}

/// The file.
pub(super) struct Known {
    syncer: Arc<Syncer>,
    lines: Mutex<Lines>,
}

/// What a file says.
pub(super) struct Read {
    pub(super) facts: HashMap<String, Fact>,
    /// The numbers of the lines that could not be read.
    pub(super) damaged: Vec<usize>,
    lines: usize,
}

impl Known {
    /// Opens the file and returns what it says; the last says which lines could not be read.
    ///
    /// # Errors
    /// It can't be read or appended to.
    pub(super) fn open(
        path: &Path,
        syncer: &Arc<Syncer>,
    ) -> io::Result<(Self, HashMap<String, Fact>, Option<String>)> {
        let bytes = match std::fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other?,
        };
        let Read { facts, damaged, lines } = read(&bytes);
        let damaged = (!damaged.is_empty()).then(|| state::describe_damaged(path, &damaged));
        // One line an id, and none that is damaged. On a full disk it stays as it is.
        if lines != facts.len() {
            let text: String = facts.iter().map(|(id, fact)| line_of(id, fact)).collect();
            let _ = state::write_durably(path, text.as_bytes());
        }
        let lines = Mutex::new(Lines::open(path, 0)?);
        Ok((Known { syncer: Arc::clone(syncer), lines }, facts, damaged))
    }

    /// Adds what is known now of an id.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn note(&self, id: &str, fact: &Fact) -> io::Result<()> {
        let mut lines = lock(&self.lines);
        lines.append(&line_of(id, fact))?;
        self.syncer.written(lines.path())
    }
}

/// Reads the file's content. The last line may lack its end: a power cut took it, and nobody was told.
pub(super) fn read(bytes: &[u8]) -> Read {
    let mut read = Read { facts: HashMap::new(), damaged: Vec::new(), lines: 0 };
    for line in String::from_utf8_lossy(bytes).split_inclusive('\n') {
        read.lines += 1;
        match read_line(line) {
            Some((id, fact)) if line.ends_with('\n') => drop(read.facts.insert(id, fact)),
            None if line.ends_with('\n') => read.damaged.push(read.lines),
            _ => {}
        }
    }
    read
}

fn line_of(id: &str, fact: &Fact) -> String {
    format!("{}\n", json!({"id": id, "secret": fact.secret.expose(), "sequence": fact.sequence}))
}

fn read_line(line: &str) -> Option<(String, Fact)> {
    let value: Value = serde_json::from_str(line).ok()?;
    let secret = Secret::new(value["secret"].as_str()?).ok()?;
    Some((value["id"].as_str()?.to_owned(), Fact { secret, sequence: value["sequence"].as_u64()? }))
}
