//! What a log's lines are written to at last.

use rustix::event::{poll, PollFd, PollFlags};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Standard error, or a file that can be opened anew.
pub struct Target {
    file: Option<(PathBuf, File)>,
    /// The last line did not get out whole: the next one begins on a line of its own.
    torn: bool,
}

impl Target {
    /// Standard error.
    pub fn stderr() -> Self {
        Target { file: None, torn: false }
    }

    /// A file, made if need be (mode 0600), and written at its end.
    ///
    /// # Errors
    /// It can't be opened.
    pub fn file(path: &Path) -> io::Result<Self> {
        Ok(Target { file: Some((path.to_owned(), open(path)?)), torn: false })
    }

    /// Opens the file anew, which another may have been put in the place of; a target that fails stays
    /// with the one that it has. False: there is none to open.
    pub(super) fn reopen(&mut self) -> io::Result<bool> {
        let Some((path, file)) = &mut self.file else { return Ok(false) };
        *file = open(path)?;
        self.torn = false;
        Ok(true)
    }

    /// The file's name, if it is one.
    pub(super) fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(|(path, _)| path.as_path())
    }

    /// Writes a line whole, as far as the system lets it. Waits for a pipe that is full.
    pub(super) fn write(&mut self, line: &str) -> io::Result<()> {
        let joined;
        let mut rest = line.as_bytes();
        let mend = usize::from(self.torn);
        if self.torn {
            joined = [b"\n", rest].concat();
            rest = &joined;
        }
        let whole = rest.len();
        while !rest.is_empty() {
            // Not `std::io::stderr`: its lock would be held while a full pipe keeps us waiting, and whoever
            // reports a panic wants it.
            match rustix::io::write(self.fd(), rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => rest = &rest[count..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    poll(&mut [PollFd::from_borrowed_fd(self.fd(), PollFlags::OUT)], None)?;
                }
                Err(error) => {
                    match whole - rest.len() {
                        0 => {}
                        written => self.torn = written > mend, // the line break alone mends it
                    }
                    return Err(error.into());
                }
            }
        }
        self.torn = false;
        Ok(())
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match &self.file {
            Some((_, file)) => file.as_fd(),
            None => rustix::stdio::stderr(),
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}
