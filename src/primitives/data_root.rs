//! The directory below which agents read, and the only way to open anything in it.
//!
//! A path is resolved by the kernel, from a descriptor of the directory, with `openat2` and
//! `RESOLVE_BENEATH`: there is no moment between a check and an opening in which somebody could
//! swap a directory for a link. Where that call is missing (before Linux 5.6) or refused by a
//! seccomp filter, a walk that opens one component after the other without following links serves.
//!
//! | the path leads to | with `openat2` | with the walk |
//! |---|---|---|
//! | a link whose (relative) target stays inside | followed | `forbidden` |
//! | a link out, or any absolute link | `forbidden` | `forbidden` |
//! | `..` above the root, `/…` | `forbidden` | `forbidden` |
//! | a FIFO, a socket, a device | `bad_payload`, never opened | the same |

use crate::agent::host::CallError;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// How often an opening is tried again that raced with a rename (EAGAIN), or whose file was
/// replaced between two steps. In a loop of renames about one try in three fails.
const TRIES: u32 = 64;

/// A directory whose files agents may read, held by a descriptor: renaming it, or repointing a
/// link on the way to it, does not change what it is.
#[derive(Debug)]
pub struct DataRoot {
    dir: OwnedFd,
    path: PathBuf,
    walk_only: bool,
}

/// What a path below the root turned out to be.
#[derive(Debug)]
pub(super) enum Node {
    /// A regular file, open for reading, and its size in bytes.
    File(File, u64),
    /// A directory, open for listing.
    Directory(OwnedFd),
}

impl DataRoot {
    /// Opens the directory at `path`, which may itself be a link.
    ///
    /// # Errors
    /// What the kernel says: missing, not a directory, not permitted.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(path.as_ref(), flags, Mode::empty())?;
        let walk_only = matches!(kernel_resolve(&dir, "."), Err(Errno::NOSYS | Errno::PERM));
        Ok(DataRoot { dir, path: path.as_ref().canonicalize()?, walk_only })
    }

    /// Its absolute path, without links, as it was when it was opened: for showing, and for commands to
    /// run in.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether paths are resolved by `openat2`, so that links that stay inside are followed.
    pub fn uses_openat2(&self) -> bool {
        !self.walk_only
    }

    /// The same root without `openat2`, as on an old kernel: for tests, and for comparing.
    pub fn without_openat2(mut self) -> Self {
        self.walk_only = true;
        self
    }

    /// Opens a regular file for reading. Never blocks on a FIFO and never opens a device: both are
    /// recognised by a descriptor that does not open them (`O_PATH`) and refused.
    ///
    /// # Errors
    /// `bad_payload` (empty path, NUL, not a regular file), `forbidden` (leads outside, or the node
    /// may not read it), `not_found`, `busy` (renames raced with every try).
    pub fn open_file(&self, relative: &str) -> Result<File, CallError> {
        match self.open_node(relative)? {
            Node::File(file, _) => Ok(file),
            Node::Directory(_) => {
                Err(CallError::new("bad_payload", format!("`{relative}` is a directory, not a file")))
            }
        }
    }

    /// Opens a regular file or a directory; the errors are those of [`DataRoot::open_file`].
    pub(super) fn open_node(&self, relative: &str) -> Result<Node, CallError> {
        check_form(relative)?;
        for _ in 0..TRIES {
            match self.try_open(relative) {
                Err(Errno::AGAIN) => {}
                Err(errno) => return Err(self.explain(errno, relative)),
                Ok(Some(node)) => return Ok(node),
                Ok(None) => {
                    let what = "is neither a regular file nor a directory (a FIFO, a socket or a device)";
                    return Err(CallError::new(
                        "bad_payload",
                        format!("`{relative}` {what}; it is not opened"),
                    ));
                }
            }
        }
        Err(self.explain(Errno::AGAIN, relative))
    }

    /// One try; `None` is something that must not be opened, EAGAIN asks for another try.
    fn try_open(&self, relative: &str) -> Result<Option<Node>, Errno> {
        let place = self.resolve(relative)?;
        let seen = rustix::fs::fstat(&place)?;
        match FileType::from_raw_mode(seen.st_mode) {
            FileType::RegularFile => {
                let file = self.reopen(&place, &seen, relative)?;
                Ok(Some(Node::File(File::from(file), u64::try_from(seen.st_size).unwrap_or(0))))
            }
            FileType::Directory => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                Ok(Some(Node::Directory(rustix::fs::openat(&place, ".", flags, Mode::empty())?)))
            }
            _ => Ok(None),
        }
    }

    /// A descriptor that names what is at `relative` without opening it.
    fn resolve(&self, relative: &str) -> Result<OwnedFd, Errno> {
        if !self.walk_only {
            match kernel_resolve(&self.dir, relative) {
                // A seccomp filter that came after the root was opened.
                Err(Errno::NOSYS | Errno::PERM) => {}
                answer => return answer,
            }
        }
        self.walk(relative)
    }

    /// Component by component, no link followed. `..` is taken away from the text beforehand: with
    /// no link on the way, text and directories agree.
    fn walk(&self, relative: &str) -> Result<OwnedFd, Errno> {
        let mut names: Vec<&str> = Vec::new();
        for name in relative.split('/') {
            match name {
                "" | "." => {}
                ".." => {
                    names.pop().ok_or(Errno::XDEV)?;
                }
                name => names.push(name),
            }
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut here = rustix::fs::openat(&self.dir, ".", flags, Mode::empty())?;
        for name in names {
            here = rustix::fs::openat(&here, name, flags, Mode::empty())?;
            let found = FileType::from_raw_mode(rustix::fs::fstat(&here)?.st_mode);
            if found == FileType::Symlink {
                return Err(Errno::LOOP);
            }
        }
        if relative.ends_with('/') {
            here = rustix::fs::openat(&here, ".", flags | OFlags::DIRECTORY, Mode::empty())?;
        }
        Ok(here)
    }

    /// Opens for reading what `place` names, which was seen to be a regular file.
    fn reopen(&self, place: &OwnedFd, seen: &Stat, relative: &str) -> Result<OwnedFd, Errno> {
        let by_number = format!("/proc/self/fd/{}", place.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        match rustix::fs::open(by_number, flags, Mode::empty()) {
            // The link of an open descriptor leads to its file even when that was deleted: only a
            // system without /proc says "not there".
            Err(Errno::NOENT | Errno::NOTDIR) => self.open_again(seen, relative),
            answer => answer,
        }
    }

    /// Without /proc: the name is opened a second time, below the same root and by the same rules,
    /// and must be the same file.
    fn open_again(&self, seen: &Stat, relative: &str) -> Result<OwnedFd, Errno> {
        let (parent, name) = relative.rsplit_once('/').unwrap_or((".", relative));
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(self.resolve(parent)?, name, flags, Mode::empty())?;
        let now = rustix::fs::fstat(&file)?;
        if (now.st_dev, now.st_ino) != (seen.st_dev, seen.st_ino) {
            return Err(Errno::AGAIN);
        }
        Ok(file)
    }

    /// The error an agent sees. It speaks of the path that was asked for and never of what a link
    /// points to: whether something outside exists stays unknown.
    fn explain(&self, errno: Errno, relative: &str) -> CallError {
        let (code, what) = match errno {
            Errno::XDEV => (
                "forbidden",
                "leads outside the data root (through `..`, or a link that is absolute or points out)",
            ),
            Errno::LOOP if self.walk_only => {
                ("forbidden", "goes through a link, and links are not followed on this node")
            }
            Errno::LOOP => ("forbidden", "goes through links that form a loop or are not ordinary ones"),
            Errno::ACCESS | Errno::PERM => ("forbidden", "may not be read by this node's user"),
            Errno::NOENT | Errno::NOTDIR => ("not_found", "does not exist in the data root"),
            Errno::NAMETOOLONG => ("bad_payload", "is longer than a path can be"),
            Errno::AGAIN => ("busy", "was being moved or replaced during every try; ask again"),
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => {
                ("busy", "cannot be opened now, the node is short of descriptors")
            }
            _ => ("internal", "cannot be opened"),
        };
        let reason = if code == "internal" { format!(": {errno}") } else { String::new() };
        CallError::new(code, format!("`{}` {what}{reason}", shown(relative)))
    }
}

impl AsFd for DataRoot {
    /// The `O_PATH` descriptor of the directory (`fchdir` to it works, reading it does not).
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

/// NOSYS on an old kernel; PERM from a seccomp filter that does not know the call.
fn kernel_resolve(dir: &OwnedFd, relative: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(dir, relative, flags, Mode::empty(), resolve)
}

/// What can be said of a path without looking at the disk.
fn check_form(relative: &str) -> Result<(), CallError> {
    if relative.is_empty() {
        return Err(CallError::new("bad_payload", "the path is empty; it is relative to the data root"));
    }
    if relative.contains('\0') {
        return Err(CallError::new("bad_payload", "the path contains a NUL character"));
    }
    if relative.starts_with('/') {
        let what = "is absolute; paths are relative to the data root";
        return Err(CallError::new("forbidden", format!("`{}` {what}", shown(relative))));
    }
    Ok(())
}

/// The path as an error quotes it: its beginning is enough.
fn shown(path: &str) -> String {
    match path.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &path[..end]),
        None => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    #[test]
    fn without_proc_the_second_opening_must_find_the_same_file() {
        let dir = TempDir::new("again");
        std::fs::create_dir(dir.path().join("d")).unwrap();
        std::fs::write(dir.path().join("d/a"), "a").unwrap();
        std::fs::write(dir.path().join("d/b"), "b").unwrap();
        for root in
            [DataRoot::open(dir.path()).unwrap(), DataRoot::open(dir.path()).unwrap().without_openat2()]
        {
            let seen = rustix::fs::stat(dir.path().join("d/a")).unwrap();
            assert!(root.open_again(&seen, "d/a").is_ok());
            assert_eq!(root.open_again(&seen, "d/b").unwrap_err(), Errno::AGAIN);
        }
    }
}
