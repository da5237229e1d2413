//! Files of a state directory: written whole or not at all, set aside when they do not parse, their
//! fsync batched where it may be.

mod removal;

use crate::crash;
use crate::sync::lock;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

pub use removal::remove_tree;

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
    opened
        .and_then(|mut out| out.write_all(content))
        .and_then(|()| {
            crash::point("file-unfinished");
            fs::rename(&beside, file)
        })
        .inspect_err(|_| {
            let _ = fs::remove_file(&beside); // the error itself is what matters
        })
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
        .and_then(|()| {
            crash::point("durable-file-unfinished");
            fs::rename(&beside, file)
        })
        .inspect_err(|_| {
            let _ = fs::remove_file(&beside); // the error itself is what matters
        })?;
    crash::point("durable-file-renamed");
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
    let aside = free_name(path)?;
    fs::rename(path, &aside)?;
    Ok(aside)
}

/// Copies what can't be read in part beside itself, for a person to look at, before it is written anew.
/// Returns where the copy is.
///
/// # Errors
/// What the system says.
fn copy_aside(path: &Path) -> io::Result<PathBuf> {
    let aside = free_name(path)?;
    fs::copy(path, &aside)?;
    Ok(aside)
}

/// Sets a file aside and says where it is and why.
pub fn set_aside_for(path: &Path, why: &str) -> String {
    // Where it can't be renamed it stays, and is named at the next start again.
    let at = set_aside(path).unwrap_or_else(|_| path.to_owned());
    format!("{}: {why}", at.display())
}

/// Whether something of this name was set aside.
pub fn was_set_aside(path: &Path) -> bool {
    with_suffix(path, DAMAGED).symlink_metadata().is_ok()
}

/// Copies a file aside some lines of which can't be read, and says which those are and where it is.
pub fn describe_damaged(path: &Path, lines: &[usize]) -> String {
    const TOLD: usize = 10;
    let mut told: Vec<String> = lines.iter().take(TOLD).map(usize::to_string).collect();
    if lines.len() > TOLD {
        told.push(format!("{} more", lines.len() - TOLD));
    }
    let at = copy_aside(path).unwrap_or_else(|_| path.to_owned()); // on a full disk it is only named
    format!("{}: what stands in line {} makes no sense and is passed over", at.display(), told.join(", "))
}

fn free_name(path: &Path) -> io::Result<PathBuf> {
    let numbered = (1..1000).map(|number| with_suffix(path, &format!("{DAMAGED}.{number}")));
    let mut names = std::iter::once(with_suffix(path, DAMAGED)).chain(numbered);
    names
        .find(|aside| aside.symlink_metadata().is_err())
        .ok_or_else(|| io::Error::other("a thousand damaged ones lie there already"))
}

/// Whether something in a directory was set aside.
pub fn has_damaged(dir: &Path) -> bool {
    let listed = fs::read_dir(dir).into_iter().flatten().flatten();
    listed.into_iter().any(|entry| entry.file_name().to_string_lossy().contains(DAMAGED))
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

/// A file that grows by whole lines. One that could not be written whole, on a full disk say, leaves
/// nothing of itself.
pub struct Lines {
    path: PathBuf,
    file: File,
    /// How much of the file is whole lines.
    length: u64,
    /// Up to where the disk has room set aside.
    reserved: u64,
    /// How much more of it is asked for at a time; 0: none.
    reserve: u64,
}

impl Lines {
    /// Opens a file to append to, and makes it if it is not there. A last line without its end, which a
    /// power cut left, goes. `reserve`: how many bytes beyond its end are set aside, where the file system
    /// can, so that a full disk does not stop it at once.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(path: &Path, reserve: u64) -> io::Result<Lines> {
        let mut options = fs::OpenOptions::new();
        let file = options.append(true).create(true).mode(0o600).open(path)?;
        let content = fs::read(path)?;
        let length = content.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1) as u64;
        if length < content.len() as u64 {
            file.set_len(length)?;
        }
        let mut lines = Lines { path: path.to_owned(), file, length, reserved: length, reserve };
        lines.set_aside_room();
        Ok(lines)
    }

    /// Appends a line, which brings its newline.
    ///
    /// # Errors
    /// What the system says; the file is what it was.
    pub fn append(&mut self, line: &str) -> io::Result<()> {
        if let Err(error) = self.file.write_all(line.as_bytes()) {
            // Half a line would spoil the next one, too. If this fails as well, that one is named at the
            // next start.
            let _ = self.file.set_len(self.length);
            self.reserved = self.length;
            return Err(error);
        }
        self.length += line.len() as u64;
        if self.length + self.reserve / 2 > self.reserved {
            self.set_aside_room();
        }
        Ok(())
    }

    /// Replaces the file by one with this content, durably, and goes on there.
    ///
    /// # Errors
    /// What the system says; the file is what it was.
    pub fn replace(&mut self, content: &str) -> io::Result<()> {
        let beside = with_suffix(&self.path, UNFINISHED);
        let _ = fs::remove_file(&beside); // of a kill; if it stays, opening says so
        let mut options = fs::OpenOptions::new();
        let opened = options.append(true).create_new(true).mode(0o600).open(&beside);
        let replaced = opened.and_then(|mut file| {
            file.write_all(content.as_bytes())?;
            file.sync_all()?;
            fs::rename(&beside, &self.path)?;
            Ok(file)
        });
        self.file = replaced.inspect_err(|_| {
            let _ = fs::remove_file(&beside); // the error itself is what matters
        })?;
        (self.length, self.reserved) = (content.len() as u64, content.len() as u64);
        self.set_aside_room();
        sync_dir(self.path.parent().unwrap_or(Path::new("/")))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn set_aside_room(&mut self) {
        if self.reserve == 0 {
            return;
        }
        // A convenience: where it can't be had, lines are written as long as there is room.
        let flags = rustix::fs::FallocateFlags::KEEP_SIZE;
        if rustix::fs::fallocate(&self.file, flags, self.length, self.reserve).is_ok() {
            self.reserved = self.length + self.reserve;
        } else {
            self.reserved = self.reserved.max(self.length + self.reserve / 2);
        }
    }
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
    /// Held while what was due is synced.
    flushing: Mutex<()>,
}

impl Syncer {
    /// Nothing is due yet.
    pub fn new(when: Fsync) -> Self {
        Syncer { when, due: Mutex::default(), flushing: Mutex::default() }
    }

    /// A file was replaced: syncs it now, later or never, as configured.
    ///
    /// # Errors
    /// What the system says, where it is synced now.
    pub fn written(&self, file: &Path) -> io::Result<()> {
        match self.when {
            Fsync::Always => sync(file)?,
            Fsync::Interval => drop(lock(&self.due).insert(file.to_owned())),
            Fsync::Never => {}
        }
        Ok(())
    }

    /// A line was added to a file: syncs it later, or never.
    pub fn appended(&self, file: &Path) {
        if self.when != Fsync::Never {
            lock(&self.due).insert(file.to_owned());
        }
    }

    /// Syncs what is due. Returns the first file that could not be, and why.
    pub fn flush(&self) -> Option<(PathBuf, io::Error)> {
        let _flushing = lock(&self.flushing);
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
        if lock(&self.due).remove(file) {
            return sync(file);
        }
        // A flush may be about to sync it.
        drop(lock(&self.flushing));
        Ok(())
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
    fn a_line_that_does_not_fit_leaves_nothing_of_itself() {
        let top = crate::testing::TempDir::new("state-lines");
        let file = top.path().join("lines");
        write(&file, b"half a line that a power cut le").unwrap();
        let mut lines = Lines::open(&file, 4096).unwrap();
        lines.append("one\n").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"one\n", "the room set aside does not show");
        // A descriptor that can't be written stands for a full disk.
        let whole = std::mem::replace(&mut lines.file, File::open(&file).unwrap());
        assert!(lines.append("two\n").is_err());
        lines.file = whole;
        lines.append("three\n").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"one\nthree\n");
        lines.replace("anew\n").unwrap();
        lines.append("four\n").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"anew\nfour\n");
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
