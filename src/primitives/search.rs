//! Searching the files of the data root for a text.
//!
//! One thread walks the tree and hands out runs of neighbouring files; up to two search them. The
//! runs are numbered, so the answer is the same as that of one thread: the first `limit` files with
//! a match, in the order of the bytes of their paths.

use super::data_root::{DataRoot, Node};
use super::needle::Needle;
use super::walk::{Batch, Walk};
use super::with_partial;
use crate::agent::host::CallError;
use rustix::fs::{FileType, Mode, OFlags};
use serde::Serialize;
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{mpsc, Mutex, PoisonError};
use std::time::Instant;

/// The greatest `limit` that may be asked for.
pub const MAX_HITS: usize = 10_000;

/// The longest query, in bytes.
pub const MAX_QUERY_BYTES: usize = 1024;

/// The longest preview, in characters.
pub const PREVIEW_CHARS: usize = 160;

/// So many characters of the line stand before the match in a preview, if they have room.
const PREVIEW_BEFORE: usize = 60;

/// A NUL in so many bytes at the beginning of a file says that it is not text (as git and grep do).
const BINARY_PROBE: usize = 8 * 1024;

/// Files are read in pieces of this size; a line that is longer is searched in parts.
const PIECE: usize = 256 * 1024;

/// Files in a run.
const RUN: usize = 64;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Search {
    /// One entry a file with a match, in the order of the bytes of their paths.
    pub hits: Vec<Hit>,
    /// Text files that were searched.
    pub files: u64,
    /// Files and directories that could not be read.
    pub skipped: u64,
    /// Files that were passed over because they are not text.
    pub binary: u64,
    /// There are more files with a match than `limit`, or the time was over before the end.
    pub truncated: bool,
}

/// A file with a match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hit {
    /// Relative to the data root, as `read_file` takes it (if the name is UTF-8).
    pub path: String,
    /// The first matching line, or the part around the match, without control characters: at most
    /// [`PREVIEW_CHARS`] characters.
    pub preview: String,
    /// The number of that line, from 1.
    pub line: u64,
    /// How many lines of the file match.
    pub count: u64,
}

/// Searches the regular files at or below `path` for `query`, in any case of its letters.
///
/// Links and special files are not looked at (`path` itself may go through links that stay inside).
/// What may not be read is counted and passed over.
///
/// # Errors
/// `bad_payload` for an empty, long or many-line query and for a `limit` outside 1 to [`MAX_HITS`];
/// those of [`DataRoot::open_file`] for `path`; `timeout` at the deadline, with the [`Search`] so far
/// as the detail.
pub fn search_files(
    root: &DataRoot,
    query: &str,
    path: &str,
    limit: usize,
    deadline: Instant,
) -> Result<Search, CallError> {
    search_within(root, query, path, limit, deadline, &Budget::default())
}

/// How many bytes a search may read, and how many it has read.
pub struct Budget {
    most: u64,
    read: AtomicU64,
}

impl Default for Budget {
    fn default() -> Self {
        Budget::new(u64::MAX)
    }
}

impl Budget {
    /// So many, and a piece more: it is looked at between two.
    pub fn new(most: u64) -> Self {
        Budget { most, read: AtomicU64::new(0) }
    }

    /// How many bytes were read.
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    fn is_used_up(&self) -> bool {
        self.read() > self.most
    }
}

/// The same, within a budget. What was read is in it, however the search ends; one that it ended is cut.
///
/// # Errors
/// As [`search_files`].
pub fn search_within(
    root: &DataRoot,
    query: &str,
    path: &str,
    limit: usize,
    deadline: Instant,
    budget: &Budget,
) -> Result<Search, CallError> {
    check(query, limit)?;
    let job = Job {
        needle: Needle::new(query),
        limit,
        deadline,
        budget,
        found: AtomicUsize::new(0),
        late: AtomicBool::new(false),
    };
    let clean = path.split('/').filter(|name| !matches!(*name, "" | ".")).collect::<Vec<_>>().join("/");
    let mut search = match root.open_node(path)? {
        Node::File(file, size) => {
            let mut part = Part::default();
            job.search_file(&file, size, || clean, &mut vec![0; PIECE], &mut part);
            merge(vec![part], limit)
        }
        Node::Directory(top) => {
            let prefix = if clean.is_empty() { clean } else { clean + "/" };
            job.search_tree(Walk::new(top, &prefix, usize::MAX, deadline))
        }
    };
    if job.late.into_inner() {
        search.truncated = true;
        let message =
            format!("the search for `{query}` was cut at its timeout, after {} files", search.files);
        return Err(with_partial(CallError::new("timeout", message), &search));
    }
    Ok(search)
}

fn check(query: &str, limit: usize) -> Result<(), CallError> {
    let problem = if query.is_empty() {
        "the query is empty".to_owned()
    } else if query.len() > MAX_QUERY_BYTES {
        format!("the query has {} bytes where {MAX_QUERY_BYTES} are allowed", query.len())
    } else if query.contains(['\n', '\0']) {
        "the query contains a line end or a NUL; a search looks within lines".to_owned()
    } else if !(1..=MAX_HITS).contains(&limit) {
        format!("the limit is {limit}; it has to be between 1 and {MAX_HITS}")
    } else {
        return Ok(());
    };
    Err(CallError::new("bad_payload", problem))
}

/// A search under way, shared by its threads.
struct Job<'a> {
    needle: Needle,
    limit: usize,
    deadline: Instant,
    budget: &'a Budget,
    /// Hits so far.
    found: AtomicUsize,
    /// The deadline passed.
    late: AtomicBool,
}

/// What one run of files gave.
#[derive(Default)]
struct Part {
    number: u64,
    hits: Vec<Hit>,
    files: u64,
    skipped: u64,
    binary: u64,
}

impl Job<'_> {
    fn search_tree(&self, mut walk: Walk) -> Search {
        let workers = std::thread::available_parallelism().map_or(1, |n| n.get().min(2));
        let parts = Mutex::new(Vec::new());
        // Few runs wait: each holds a descriptor of its directory.
        let (runs, waiting) = mpsc::sync_channel::<(u64, Batch)>(workers);
        let waiting = Mutex::new(waiting);
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    let mut buffer = vec![0; PIECE];
                    loop {
                        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
                        let Ok((number, batch)) = next else { return };
                        let part = self.search_run(number, &batch, &mut buffer);
                        drop(batch);
                        parts.lock().unwrap_or_else(PoisonError::into_inner).push(part);
                    }
                });
            }
            let mut number = 0;
            // Runs that were handed out come before all others: with enough hits in them, the
            // rest of the tree cannot change the answer.
            while self.found.load(Ordering::Relaxed) <= self.limit && !self.is_late() {
                let Some(batch) = walk.next_batch(RUN) else { break };
                if runs.send((number, batch)).is_err() {
                    break;
                }
                number += 1;
            }
            drop(runs);
        });
        if walk.timed_out {
            self.late.store(true, Ordering::Relaxed);
        }
        let mut search = merge(parts.into_inner().unwrap_or_else(PoisonError::into_inner), self.limit);
        search.skipped += walk.skipped;
        search
    }

    fn search_run(&self, number: u64, batch: &Batch, buffer: &mut [u8]) -> Part {
        let mut part = Part { number, ..Part::default() };
        for name in &batch.names {
            if part.hits.len() > self.limit || self.is_late() {
                break;
            }
            match open_plain(&batch.dir, name) {
                Ok(Some((file, size))) => {
                    let path = || {
                        let path = [&batch.prefix, name.to_bytes()].concat();
                        String::from_utf8_lossy(&path).into_owned()
                    };
                    self.search_file(&file, size, path, buffer, &mut part);
                }
                Ok(None) => {}
                Err(_) => part.skipped += 1,
            }
        }
        self.found.fetch_add(part.hits.len(), Ordering::Relaxed);
        part
    }

    fn search_file(
        &self,
        file: impl AsFd,
        size: u64,
        path: impl FnOnce() -> String,
        buffer: &mut [u8],
        part: &mut Part,
    ) {
        match self.scan(file, size, buffer) {
            Ok(Content::Text(found)) => {
                part.files += 1;
                part.hits.extend(found.map(|found| Hit {
                    path: path(),
                    preview: found.preview,
                    line: found.line,
                    count: found.count,
                }));
            }
            Ok(Content::Binary) => part.binary += 1,
            Ok(Content::Unfinished) => {}
            Err(_) => part.skipped += 1,
        }
    }

    /// Reads a file piece by piece and searches it, up to the size it has now.
    fn scan(&self, file: impl AsFd, size: u64, buffer: &mut [u8]) -> rustix::io::Result<Content> {
        let mut left = size;
        let mut kept = 0; // bytes at the front of the buffer that the last piece left over
        let mut lines = Lines::default();
        let mut first = true;
        while left > 0 {
            let got = match rustix::io::read(&file, &mut buffer[kept..]) {
                Err(rustix::io::Errno::INTR) => continue,
                got => got?,
            };
            self.budget.read.fetch_add(got as u64, Ordering::Relaxed);
            left = if got == 0 { 0 } else { left.saturating_sub(got as u64) };
            let piece = &buffer[..kept + got];
            if first && piece[..piece.len().min(BINARY_PROBE)].contains(&0) {
                return Ok(Content::Binary);
            }
            first = false;
            if left == 0 {
                lines.search(piece, &self.needle);
                break;
            }
            if self.is_late() {
                return Ok(Content::Unfinished);
            }
            let mut whole = piece.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
            if whole > 0 {
                lines.search(&piece[..whole], &self.needle);
            } else if piece.len() == buffer.len() {
                // A line longer than the buffer: searched as far as it goes, and a match that
                // begins at its cut is found in the next piece.
                lines.search(piece, &self.needle);
                whole = piece.len() - self.needle.overlap().min(PIECE / 2);
            }
            let end = piece.len();
            buffer.copy_within(whole..end, 0);
            kept = end - whole;
        }
        Ok(Content::Text(lines.found))
    }

    fn is_late(&self) -> bool {
        let over = || Instant::now() >= self.deadline || self.budget.is_used_up();
        if !self.late.load(Ordering::Relaxed) && over() {
            self.late.store(true, Ordering::Relaxed);
        }
        self.late.load(Ordering::Relaxed)
    }
}

/// What a file is, and what is in it.
enum Content {
    Text(Option<Found>),
    Binary,
    /// The deadline passed in the middle of it.
    Unfinished,
}

struct Found {
    preview: String,
    line: u64,
    count: u64,
}

/// The lines of a file, given piece after piece.
#[derive(Default)]
struct Lines {
    found: Option<Found>,
    /// Line ends before the piece; kept up until something is found.
    before: u64,
    /// The line in whose middle the last piece ended has been counted.
    counted: bool,
}

impl Lines {
    /// Searches `piece`: whole lines, or a part of one without a line end.
    fn search(&mut self, piece: &[u8], needle: &Needle) {
        let mut from = 0;
        if self.counted {
            let Some(end) = line_end(piece, 0) else { return };
            from = end + 1;
            self.counted = false;
        }
        while let Some(at) = needle.find(piece, from) {
            let end = line_end(piece, at);
            match &mut self.found {
                Some(found) => found.count += 1,
                None => {
                    let start = piece[..at].iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
                    let preview = preview(&piece[start..end.unwrap_or(piece.len())], at - start);
                    self.found =
                        Some(Found { preview, line: self.before + count_lines(&piece[..at]) + 1, count: 1 });
                }
            }
            match end {
                Some(end) => from = end + 1,
                None => {
                    self.counted = true;
                    return;
                }
            }
        }
        if self.found.is_none() {
            self.before += count_lines(piece);
        }
    }
}

fn line_end(text: &[u8], from: usize) -> Option<usize> {
    text[from..].iter().position(|&byte| byte == b'\n').map(|at| from + at)
}

fn count_lines(text: &[u8]) -> u64 {
    text.iter().map(|&byte| u64::from(byte == b'\n')).sum()
}

/// The part of `line` around the match that begins at byte `at`.
fn preview(line: &[u8], at: usize) -> String {
    // A line of megabytes is not decoded whole: 4 bytes make a character at most.
    let start = at.saturating_sub(PREVIEW_BEFORE * 4);
    let end = line.len().min(at + PREVIEW_CHARS * 4);
    let before = String::from_utf8_lossy(&line[start..at]);
    let skip = before.chars().count().saturating_sub(PREVIEW_BEFORE);
    let after = String::from_utf8_lossy(&line[at..end]);
    let text: String = before.chars().skip(skip).chain(after.chars()).map(printable).collect();
    text.trim_start().chars().take(PREVIEW_CHARS).collect::<String>().trim_end().to_owned()
}

/// Control characters, and those that reorder or break the line of a terminal, become spaces.
fn printable(c: char) -> char {
    match c {
        '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => ' ',
        c if c.is_control() => ' ',
        c => c,
    }
}

/// Opens a regular file by its name in a directory; `None` when it is none any more.
fn open_plain(dir: &OwnedFd, name: &CStr) -> rustix::io::Result<Option<(OwnedFd, u64)>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    let plain = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    Ok(plain.then(|| (file, u64::try_from(stat.st_size).unwrap_or(0))))
}

/// Puts the runs' results in order and keeps the first `limit` hits. Runs behind the one that
/// fills the limit do not count: how many of them were searched is a matter of luck.
fn merge(mut parts: Vec<Part>, limit: usize) -> Search {
    parts.sort_unstable_by_key(|part| part.number);
    let mut search = Search { hits: Vec::new(), files: 0, skipped: 0, binary: 0, truncated: false };
    for part in parts {
        search.hits.extend(part.hits);
        search.files += part.files;
        search.skipped += part.skipped;
        search.binary += part.binary;
        if search.hits.len() > limit {
            search.hits.truncate(limit);
            search.truncated = true;
            break;
        }
    }
    search
}
