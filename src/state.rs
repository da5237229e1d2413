//! Files of a state directory: written whole or not at all, set aside when they do not parse, their
//! fsync batched where it may be.

use crate::sync::lock;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// What a file that is being written is called until it is whole.
const UNFINISHED: &str = ".unfinished";
/// What a file is called that did not parse.
const DAMAGED: &str = ".damaged";

/// When what agents' hooks and accepted messages change reaches the disk itself. The kernel has it
/// before the answer leaves in any case: only a power cut can take what is not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fsync {
    /// Before the answer leaves.
    Always,
    /// Within a second.
    #[default]
    Interval,
    /// When the kernel sees fit.
    Never,
}

/// Makes a directory and those above it, for this user alone.
///
/// # Errors
/// What the system says.
pub fn make_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Makes a directory that outlives a power cut, and those above it that are missing.
///
/// # Errors
/// What the system says.
pub fn make_durable_dir(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let above = path.parent().unwrap_or(Path::new("/"));
    make_durable_dir(above)?;
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    sync_dir(above)
}

/// Writes a file whole, for this user alone, or not at all: beside it, then renamed.
///
/// # Errors
/// What the system says; the file is what it was.
pub fn write(file: &Path, content: &[u8]) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    let beside = with_suffix(file, UNFINISHED);
    let opened = options.write(true).create(true).truncate(true).mode(0o600).open(&beside);
    opened.and_then(|mut out| out.write_all(content)).and_then(|()| fs::rename(&beside, file)).inspect_err(
        |_| {
            let _ = fs::remove_file(&beside); // the error itself is what matters
        },
    )
}

/// Writes a file whole and durably: a power cut after the return does not take it back.
///
/// # Errors
/// What the system says; the file is what it was.
pub fn write_durably(file: &Path, content: &[u8]) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    let beside = with_suffix(file, UNFINISHED);
    let opened = options.write(true).create(true).truncate(true).mode(0o600).open(&beside);
    opened
        .and_then(|mut out| {
            out.write_all(content)?;
            out.sync_all()
        })
        .and_then(|()| fs::rename(&beside, file))
        .inspect_err(|_| {
            let _ = fs::remove_file(&beside); // the error itself is what matters
        })?;
    sync_dir(file.parent().unwrap_or(Path::new("/")))
}

/// Removes a file durably; one that is not there is removed already.
///
/// # Errors
/// What the system says.
pub fn remove_durably(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(()) => sync_dir(file.parent().unwrap_or(Path::new("/"))),
    }
}

/// Makes what was created, renamed or removed in a directory durable.
///
/// # Errors
/// What the system says.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Renames what can't be read, so that a person can look at it and nothing reads it again. Returns
/// where it is now.
///
/// # Errors
/// What the system says.
pub fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let free = (1..1000).map(|number| with_suffix(path, &format!("{DAMAGED}.{number}")));
    let aside = std::iter::once(with_suffix(path, DAMAGED)).chain(free).find(|aside| !aside.exists());
    let aside = aside.ok_or_else(|| io::Error::other("a thousand damaged ones lie there already"))?;
    fs::rename(path, &aside)?;
    Ok(aside)
}

/// The entries of a directory that are whole: neither unfinished nor set aside. Unfinished files are
/// what a kill left behind; they are removed.
///
/// # Errors
/// What the system says; a directory that is not there has no entries.
pub fn entries(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let listed = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut whole = Vec::new();
    for entry in listed {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(UNFINISHED) {
            let _ = fs::remove_file(&path); // the next start tries again
        } else if !name.contains(DAMAGED) {
            whole.push(path);
        }
    }
    whole.sort();
    Ok(whole)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Files whose fsync is still due.
pub struct Syncer {
    when: Fsync,
    due: Mutex<BTreeSet<PathBuf>>,
}

impl Syncer {
    /// Nothing is due yet.
    pub fn new(when: Fsync) -> Self {
        Syncer { when, due: Mutex::default() }
    }

    /// A file was replaced or appended to: syncs it now, later or never, as configured.
    ///
    /// # Errors
    /// What the system says, where it is synced now.
    pub fn written(&self, file: &Path) -> io::Result<()> {
        match self.when {
            Fsync::Always => sync(file),
            Fsync::Interval => {
                lock(&self.due).insert(file.to_owned());
                Ok(())
            }
            Fsync::Never => Ok(()),
        }
    }

    /// Syncs what is due. Returns the first file that could not be, and why.
    pub fn flush(&self) -> Option<(PathBuf, io::Error)> {
        let due = std::mem::take(&mut *lock(&self.due));
        let mut failed = None;
        for file in due {
            match sync(&file) {
                // It has gone meanwhile, with its agent.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => failed = failed.or(Some((file, error))),
                Ok(()) => {}
            }
        }
        failed
    }

    /// Syncs one file, if it is due: before a transfer, say.
    ///
    /// # Errors
    /// What the system says.
    pub fn force(&self, file: &Path) -> io::Result<()> {
        match lock(&self.due).remove(file) {
            true => sync(file),
            false => Ok(()),
        }
    }
}

fn sync(file: &Path) -> io::Result<()> {
    File::open(file)?.sync_all()?;
    sync_dir(file.parent().unwrap_or(Path::new("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_what_a_kill_left_is_swept() {
        let top = crate::testing::TempDir::new("state");
        let file = top.path().join("a.json");
        write(&file, b"one").unwrap();
        write_durably(&file, b"two").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"two");
        fs::write(top.path().join("b.json.unfinished"), b"half").unwrap();
        assert_eq!(entries(top.path()).unwrap(), [file.as_path()]);
        assert!(!top.path().join("b.json.unfinished").exists());
        let aside = set_aside(&file).unwrap();
        fs::write(&file, b"three").unwrap();
        assert_ne!(set_aside(&file).unwrap(), aside, "nothing set aside is lost");
        assert_eq!(entries(top.path()).unwrap(), [] as [PathBuf; 0]);
    }

    #[test]
    fn what_cannot_be_written_leaves_what_was_there() {
        let top = crate::testing::TempDir::new("state-fail");
        let file = top.path().join("a");
        write(&file, b"old").unwrap();
        fs::create_dir(top.path().join("a.unfinished")).unwrap();
        assert!(write(&file, b"new").is_err());
        assert_eq!(fs::read(&file).unwrap(), b"old");
    }

    #[test]
    fn due_files_are_synced_once_and_gone_ones_are_no_error() {
        let top = crate::testing::TempDir::new("state-sync");
        let syncer = Syncer::new(Fsync::Interval);
        let (kept, gone) = (top.path().join("kept"), top.path().join("gone"));
        for file in [&kept, &gone] {
            write(file, b"x").unwrap();
            syncer.written(file).unwrap();
        }
        fs::remove_file(&gone).unwrap();
        assert!(syncer.flush().is_none());
        assert!(lock(&syncer.due).is_empty());
    }
}
