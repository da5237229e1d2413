//! The head: where the journal ends, and where the part that is kept begins.
//!
//! `meta/journal.head`, one line of JSON: `{"file","first","hash","seq"}`: the last line's file, number and hash
//! (`seq` 0 before there is one), and the number of the first line that is kept. It is written after each line, in
//! place, so that it is at most a little behind the journal and never ahead of it.

use super::line::MOST;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The head's file in a state directory.
const FILE: &str = "meta/journal.head";
/// How often it is read until it stands still.
const TRIES: usize = 200;

/// Where a journal ends, and begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Head {
    pub(super) file: String,
    pub(super) first: u64,
    pub(super) hash: String,
    pub(super) seq: u64,
}

/// Where the head of a state directory's journal is.
pub(super) fn path(state_dir: &Path) -> PathBuf {
    state_dir.join(FILE)
}

impl Head {
    /// Reads the head; `None`: there is none.
    ///
    /// # Errors
    /// It can't be read, or is no head.
    pub(super) fn read(state_dir: &Path) -> Result<Option<Head>, String> {
        let path = path(state_dir);
        let doing = |error: io::Error| format!("reading {}: {error}", path.display());
        let mut last = None;
        for _ in 0..TRIES {
            let text = match fs::read(&path) {
                Ok(text) => text,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(doing(error)),
            };
            // The node may be in the middle of writing it: what is read twice alike was whole.
            if last.as_ref() == Some(&text) {
                let head: Option<Head> = serde_json::from_slice(&text).ok();
                let head =
                    head.filter(|head| head.seq <= MOST && head.first <= MOST && head.hash.len() == 64);
                return head.map(Some).ok_or_else(|| format!("{} is no head of a journal", path.display()));
            }
            last = Some(text);
        }
        Err(format!("{} changes faster than it can be read", path.display()))
    }

    /// Puts it in place of what is there, whole, and keeps it open for [`Head::write`].
    pub(super) fn create(&self, state_dir: &Path) -> io::Result<File> {
        let path = path(state_dir);
        if let Some(meta) = path.parent() {
            super::recover::make_dir(meta)?;
        }
        let beside = path.with_extension("head.new");
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(self.text().as_bytes())?;
        fs::rename(&beside, &path)?;
        Ok(file)
    }

    /// Writes it over the one before. No member ever gets shorter, so nothing of that one stays.
    pub(super) fn write(&self, file: &File) -> io::Result<()> {
        file.write_all_at(self.text().as_bytes(), 0)
    }

    fn text(&self) -> String {
        let Head { file, first, hash, seq } = self;
        format!("{{\"file\":\"{file}\",\"first\":{first},\"hash\":\"{hash}\",\"seq\":{seq}}}\n")
    }
}
