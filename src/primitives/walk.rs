//! Every regular file below a directory, in the order of the bytes of their paths.
//!
//! The walk keeps its own stack instead of recursing, opens everything relative to the descriptor
//! of its directory, and never follows a link: so it cannot loop or leave, whatever is renamed
//! meanwhile. Deep trees cost no descriptors: only the innermost [`OPEN_LEVELS`] directories stay
//! open, the others are found again through `..`, which must be the very directory that was left.

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use std::cmp::Ordering;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

/// How many directories on the way to the current one stay open.
const OPEN_LEVELS: usize = 12;

/// How many entries go by between two looks at the clock.
const CLOCK_EVERY: usize = 256;

/// A walk under way.
pub struct Walk {
    stack: Vec<Level>,
    /// The path of the innermost directory, with its closing `/`; empty for the root.
    path: Vec<u8>,
    listing: Vec<MaybeUninit<u8>>,
    budget: usize,
    deadline: Instant,
    /// Directories that could not be read, or moved away during the walk.
    pub skipped: u64,
    /// The deadline passed: what was handed out is not everything.
    pub timed_out: bool,
}

/// Files that are neighbours in the order and live in one directory.
pub struct Batch {
    /// Their directory.
    pub dir: Arc<OwnedFd>,
    /// Its path below the root, with a closing `/` unless it is the root.
    pub prefix: Vec<u8>,
    /// The names, in order.
    pub names: Vec<CString>,
}

struct Level {
    dir: Option<Arc<OwnedFd>>,
    identity: Identity,
    /// What is still to come, the next one at the end.
    entries: Vec<Entry>,
    path_len: usize,
}

type Identity = (u64, u64);

struct Entry {
    name: CString,
    directory: bool,
}

impl Entry {
    /// The order of whole paths: a directory compares as its name with the `/` that follows.
    fn order(&self, other: &Entry) -> Ordering {
        let (a, b) = (self.name.to_bytes(), other.name.to_bytes());
        let shared = a.len().min(b.len());
        a[..shared].cmp(&b[..shared]).then_with(|| {
            let next = |entry: &Entry, bytes: &[u8]| match bytes.get(shared) {
                Some(&byte) => Some(byte),
                None => entry.directory.then_some(b'/'),
            };
            next(self, a).cmp(&next(other, b))
        })
    }
}

impl Walk {
    /// A walk from `top`, whose path below the root is `prefix` (empty, or with a closing `/`),
    /// that looks at `budget` entries at most and stops at the deadline.
    pub fn new(top: OwnedFd, prefix: &str, budget: usize, deadline: Instant) -> Self {
        let mut walk = Walk {
            stack: Vec::new(),
            path: prefix.as_bytes().to_vec(),
            listing: vec![MaybeUninit::uninit(); 32 * 1024],
            budget,
            deadline,
            skipped: 0,
            timed_out: false,
        };
        walk.enter(top);
        walk
    }

    /// The next files, `most` at most, or `None` at the end.
    pub fn next_batch(&mut self, most: usize) -> Option<Batch> {
        loop {
            let level = self.stack.last_mut()?;
            let Some(dir) = level.dir.clone() else {
                // It could not be found again: somebody moved it away.
                self.skipped += u64::from(!level.entries.is_empty());
                level.entries.clear();
                self.leave();
                continue;
            };
            match level.entries.pop() {
                None => self.leave(),
                Some(entry) if entry.directory => self.descend(&dir, &entry.name),
                Some(first) => {
                    let mut names = vec![first.name];
                    while names.len() < most && level.entries.last().is_some_and(|next| !next.directory) {
                        names.extend(level.entries.pop().map(|next| next.name));
                    }
                    return Some(Batch { dir, prefix: self.path.clone(), names });
                }
            }
        }
    }

    fn descend(&mut self, parent: &OwnedFd, name: &CStr) {
        if self.out_of_time() {
            return;
        }
        match open_dir(parent, name) {
            Some(dir) => {
                self.path.extend_from_slice(name.to_bytes());
                self.path.push(b'/');
                self.enter(dir);
            }
            None => self.skipped += 1,
        }
    }

    fn enter(&mut self, dir: OwnedFd) {
        let entries = self.list(&dir);
        let path_len = self.path.len();
        // fstat of a descriptor that was just opened does not fail; an identity that nothing has
        // only means that this level is not found again.
        let identity = identity(&dir).unwrap_or((u64::MAX, u64::MAX));
        self.stack.push(Level { dir: Some(Arc::new(dir)), identity, entries, path_len });
        match self.stack.len().checked_sub(OPEN_LEVELS + 1) {
            None | Some(0) => {} // the first level stays open: it is the way back when `..` is not
            Some(far) => self.stack[far].dir = None,
        }
    }

    /// Back to the parent, whose descriptor may have been given up on the way down.
    fn leave(&mut self) {
        let Some(left) = self.stack.pop() else { return };
        let Some(parent) = self.stack.last_mut() else { return };
        self.path.truncate(parent.path_len);
        if parent.dir.is_none() {
            let above = left.dir.and_then(|child| open_dir(&child, c".."));
            let above = above.filter(|dir| identity(dir) == Some(parent.identity));
            let found = above.or_else(|| self.find_again());
            if let Some(level) = self.stack.last_mut() {
                level.dir = found.map(Arc::new);
            }
        }
    }

    /// The innermost directory by its path from the first: for when one below it was moved, so that
    /// `..` no longer leads to it.
    fn find_again(&self) -> Option<OwnedFd> {
        let (first, last) = (self.stack.first()?, self.stack.last()?);
        let mut here: Option<OwnedFd> = None;
        for name in
            self.path.get(first.path_len..)?.split(|&byte| byte == b'/').filter(|name| !name.is_empty())
        {
            let name = CString::new(name).ok()?;
            here = Some(match &here {
                None => open_dir(first.dir.as_ref()?, &name)?,
                Some(dir) => open_dir(dir, &name)?,
            });
        }
        here.filter(|dir| identity(dir) == Some(last.identity))
    }

    /// The regular files and directories in `dir`, in reverse order.
    fn list(&mut self, dir: &OwnedFd) -> Vec<Entry> {
        let mut entries = Vec::new();
        let mut listing = std::mem::take(&mut self.listing);
        let mut raw = RawDir::new(dir, &mut listing);
        while let Some(found) = raw.next() {
            let Ok(found) = found else {
                self.skipped += 1;
                break;
            };
            let name = found.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            if self.budget == 0 || (self.budget.is_multiple_of(CLOCK_EVERY) && self.out_of_time()) {
                break;
            }
            self.budget -= 1;
            let kind = match found.file_type() {
                // Some file systems do not say it in the listing.
                FileType::Unknown => rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
                    .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
                kind => kind,
            };
            if matches!(kind, FileType::RegularFile | FileType::Directory) {
                entries.push(Entry { name: name.to_owned(), directory: kind == FileType::Directory });
            }
        }
        self.listing = listing;
        entries.sort_unstable_by(|a, b| b.order(a));
        entries
    }

    fn out_of_time(&mut self) -> bool {
        self.timed_out = self.timed_out || Instant::now() >= self.deadline;
        self.timed_out
    }
}

fn open_dir(parent: &OwnedFd, name: &CStr) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty()).ok()
}

fn identity(dir: &OwnedFd) -> Option<Identity> {
    let stat = rustix::fs::fstat(dir).ok()?;
    Some((stat.st_dev, stat.st_ino))
}
