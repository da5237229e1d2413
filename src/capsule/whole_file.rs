//! Files that appear as a whole: until all of it is written, whoever looks finds what was there before.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file that is being written beside its place. Dropped before [`finish`](WholeFile::finish) it leaves
/// nothing behind.
#[derive(Debug)]
pub struct WholeFile {
    file: File,
    /// Where it is written, and where it goes; nothing for what is no file, as a pipe, which is written to.
    way: Option<(PathBuf, PathBuf)>,
}

impl WholeFile {
    /// Begins a file. A link is followed, so that it stays; an old file's permissions stay too.
    ///
    /// # Errors
    /// The old file may not be written, or none may be made in its directory.
    pub fn create(path: &Path) -> io::Result<WholeFile> {
        let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let old = match fs::metadata(&target) {
            Ok(old) => {
                // Says whether it may be written, and is the way into a pipe or a terminal.
                let file = OpenOptions::new().write(true).open(&target)?;
                if !old.is_file() {
                    return Ok(WholeFile { file, way: None });
                }
                Some(old)
            }
            Err(_) => None,
        };
        let new = target.with_file_name(hidden_name(&target)?);
        discard(&new); // Of a process of that number that was killed.
        let file = OpenOptions::new().write(true).create_new(true).open(&new)?;
        let whole = WholeFile { file, way: Some((new, target)) };
        if let Some(old) = old {
            whole.file.set_permissions(old.permissions())?;
        }
        Ok(whole)
    }

    /// Puts the file in its place.
    ///
    /// # Errors
    /// It cannot be; then the old one is there still.
    pub fn finish(mut self) -> io::Result<()> {
        match self.way.take() {
            Some((new, target)) => fs::rename(&new, target).inspect_err(|_| discard(&new)),
            None => Ok(()),
        }
    }

    /// The same, and returns when the disk has it.
    ///
    /// # Errors
    /// As [`WholeFile::finish`].
    pub fn finish_durably(self) -> io::Result<()> {
        let Some((_, target)) = &self.way else { return self.finish() };
        let directory = directory_of(target).to_owned();
        self.file.sync_all()?;
        self.finish()?;
        File::open(directory)?.sync_all()
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if let Some((new, _)) = &self.way {
            discard(new);
        }
    }
}

fn discard(new: &Path) {
    let _ = fs::remove_file(new); // The error that counts is told already.
}

/// `.NAME.PROCESS`, for a file called NAME.
fn hidden_name(target: &Path) -> io::Result<std::ffi::OsString> {
    let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}", std::process::id()));
    Ok(hidden)
}

/// Takes away what writers of this file left that were killed. Only where nobody else writes it now.
pub(super) fn sweep(path: &Path) {
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let (Some(name), Ok(entries)) = (target.file_name(), fs::read_dir(directory_of(&target))) else { return };
    let start = format!(".{}.", name.to_string_lossy());
    for entry in entries.flatten() {
        let left = entry.file_name();
        let process = left.to_str().and_then(|left| left.strip_prefix(&start));
        if process.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())) {
            discard(&entry.path());
        }
    }
}

/// Whether both paths lead to the same file: what is read must not be written over.
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    let id = |path: &Path| {
        fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|file| (file.dev(), file.ino()))
    };
    id(one).is_some_and(|one| id(other) == Some(one))
}

pub(super) fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
