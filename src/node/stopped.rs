//! Who is not to run, and why, `meta/stopped.json`: `{"scout":"killed"}`. It outlives the node.

use crate::state;
use crate::sync::lock;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, RwLock};

/// Why an agent is not to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stop {
    /// The operator stopped it, until it is started.
    Killed,
    /// The node was started as a restored backup: it may have moved on since.
    Suspended,
    /// It is declared here, and has moved to another node.
    Away,
    /// It is declared here, and the admin removed it.
    Removed,
}

impl Stop {
    /// As lists tell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Stop::Killed => "killed",
            Stop::Suspended => "suspended",
            Stop::Away => "away",
            Stop::Removed => "removed",
        }
    }
}

type Table = BTreeMap<String, Stop>;

/// The file.
pub(super) struct Stopped {
    path: PathBuf,
    table: RwLock<Table>,
    /// Held while an entry is changed and written; readers go on with what was.
    editing: Mutex<()>,
}

impl Stopped {
    /// Opens the file. The second says what was wrong with one that made no sense: then nobody knows who is
    /// not to run.
    ///
    /// # Errors
    /// It can't be read.
    pub(super) fn open(path: &Path) -> io::Result<(Self, Option<String>)> {
        let (table, damaged) = match std::fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => (Table::new(), None),
            Err(error) => return Err(error),
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(table) => (table, None),
                Err(error) => {
                    let why = format!("{error}; every agent is suspended until ctl start");
                    (Table::new(), Some(state::set_aside_for(path, &why)))
                }
            },
        };
        let stopped = Stopped { path: path.to_owned(), table: RwLock::new(table), editing: Mutex::new(()) };
        Ok((stopped, damaged))
    }

    pub(super) fn get(&self, id: &str) -> Option<Stop> {
        self.table.read().unwrap_or_else(PoisonError::into_inner).get(id).copied()
    }

    /// Everyone who is stopped so.
    pub(super) fn all(&self, why: Stop) -> Vec<String> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.iter().filter(|(_, stop)| **stop == why).map(|(id, _)| id.clone()).collect()
    }

    /// Changes what is known, durably.
    ///
    /// # Errors
    /// It can't be written; nothing has changed.
    pub(super) fn change(&self, change: impl FnOnce(&mut Table)) -> io::Result<()> {
        let _editing = lock(&self.editing);
        let before = self.table.read().unwrap_or_else(PoisonError::into_inner).clone();
        let mut table = before.clone();
        change(&mut table);
        if table == before {
            return Ok(());
        }
        let text = serde_json::to_vec(&table)?;
        state::write_durably(&self.path, &text)?;
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = table;
        Ok(())
    }

    pub(super) fn set(&self, id: &str, why: Stop) -> io::Result<()> {
        self.change(|table| {
            table.insert(id.to_owned(), why);
        })
    }

    pub(super) fn clear(&self, id: &str) -> io::Result<()> {
        self.change(|table| {
            table.remove(id);
        })
    }
}
