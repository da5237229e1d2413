//! Whose secret is pinned here, and how often each id was registered: `meta/known.jsonl`, a line a
//! change. It outlives the agents: one that moved on stays known.

use crate::state::{self, Syncer};
use crate::sync::lock;
use crate::wire::Secret;
use serde_json::{json, Value};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
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
    path: PathBuf,
    syncer: Arc<Syncer>,
    file: Mutex<File>,
}

impl Known {
    /// Opens the file and returns what it says; the last are the lines that could not be read.
    ///
    /// # Errors
    /// It can't be read or written.
    pub(super) fn open(
        path: &Path,
        syncer: &Arc<Syncer>,
    ) -> io::Result<(Self, HashMap<String, Fact>, Vec<String>)> {
        let text = match std::fs::read(path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error),
        };
        let (mut facts, mut damaged, mut lines) = (HashMap::new(), Vec::new(), 0);
        for line in text.lines() {
            lines += 1;
            match read_line(line) {
                Some((id, fact)) => drop(facts.insert(id, fact)),
                None => damaged.push(format!("{} line {lines}", path.display())),
            }
        }
        // One line an id, and none that is damaged. The end of a line that a power cut took is no loss:
        // nobody was told.
        if lines != facts.len() || !text.is_empty() && !text.ends_with('\n') {
            let text: String = facts.iter().map(|(id, fact)| line_of(id, fact)).collect();
            state::write_durably(path, text.as_bytes())?;
        }
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        Ok((
            Known { path: path.to_owned(), syncer: Arc::clone(syncer), file: Mutex::new(file) },
            facts,
            damaged,
        ))
    }

    /// Adds what is known now of an id.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn note(&self, id: &str, fact: &Fact) -> io::Result<()> {
        lock(&self.file).write_all(line_of(id, fact).as_bytes())?;
        self.syncer.written(&self.path)
    }
}

fn line_of(id: &str, fact: &Fact) -> String {
    format!("{}\n", json!({"id": id, "secret": fact.secret.expose(), "sequence": fact.sequence}))
}

fn read_line(line: &str) -> Option<(String, Fact)> {
    let value: Value = serde_json::from_str(line).ok()?;
    let secret = Secret::new(value["secret"].as_str()?).ok()?;
    Some((value["id"].as_str()?.to_owned(), Fact { secret, sequence: value["sequence"].as_u64()? }))
}
