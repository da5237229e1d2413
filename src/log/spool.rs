//! Lines on their way to a stream that may be slow, full or gone.
//!
//! Whoever logs only puts a line into a bounded queue; a thread writes it. A line for which there is no
//! room, or which can't be written, is lost and counted; how many were lost stands in the log where it
//! goes on (`log_lines_lost`).

use super::line::{Form, Head};
use super::target::Target;
use super::Level;
use crate::sync::lock;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How much may wait to be written, bytes.
const MOST_WAITING: usize = 4 << 20;

/// The queue before a log's target.
pub struct Spool {
    node: String,
    form: Form,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Item>,
    bytes: usize,
    /// Lines for which there was no room.
    dropped: u64,
    /// Whether the thread is at work on what it took last.
    writing: bool,
}

enum Item {
    Line(String),
    Reopen,
}

impl Spool {
    /// Starts the thread that writes to `target`. It lasts as long as the process.
    pub(super) fn start(node: &str, form: Form, target: Target) -> io::Result<Arc<Spool>> {
        let state = Mutex::default();
        let spool = Arc::new(Spool { node: node.to_owned(), form, state, changed: Condvar::new() });
        let ours = Arc::clone(&spool);
        std::thread::Builder::new().name("log".into()).spawn(move || ours.write_to(target))?;
        Ok(spool)
    }

    pub(super) fn push(&self, line: String) {
        let mut state = lock(&self.state);
        if state.bytes + line.len() > MOST_WAITING {
            state.dropped += 1;
            return;
        }
        state.bytes += line.len();
        state.waiting.push_back(Item::Line(line));
        self.changed.notify_all();
    }

    /// Has the file opened anew, once what waits is written to the one that is open now.
    pub fn reopen(&self) {
        lock(&self.state).waiting.push_back(Item::Reopen);
        self.changed.notify_all();
    }

    /// Waits until everything is written, at most for `limit`. False if time was up first.
    pub fn flush(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut state = lock(&self.state);
        while state.writing || !state.waiting.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn write_to(&self, mut target: Target) {
        let mut losses = Losses::default();
        loop {
            let (item, dropped) = self.next();
            losses.add(dropped, "they came faster than they could be written");
            match item {
                Item::Line(line) => self.put(&mut target, &line, &mut losses),
                Item::Reopen => self.renew(&mut target, &mut losses),
            }
        }
    }

    /// Says that the last item is done, and takes the next one.
    fn next(&self) -> (Item, u64) {
        let mut state = lock(&self.state);
        state.writing = false;
        loop {
            match state.waiting.pop_front() {
                Some(item) => {
                    if let Item::Line(line) = &item {
                        state.bytes -= line.len();
                    }
                    state.writing = true;
                    let dropped = std::mem::take(&mut state.dropped);
                    return (item, dropped);
                }
                None => {
                    self.changed.notify_all(); // whoever waits for the flush
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    fn put(&self, target: &mut Target, line: &str, losses: &mut Losses) {
        if losses.lines > 0 {
            let lines = losses.lines.to_string();
            let said = self.line("log_lines_lost", Level::Warn, &[("lines", &lines), ("why", &losses.why)]);
            if let Err(error) = target.write(&said) {
                return losses.add(1, &error.to_string());
            }
            *losses = Losses::default();
        }
        if let Err(error) = target.write(line) {
            losses.add(1, &error.to_string());
        }
    }

    fn renew(&self, target: &mut Target, losses: &mut Losses) {
        let done = target.reopen();
        let file = target.path().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
        let line = match done {
            Ok(false) => return, // standard error is whoever's who started us
            Ok(true) => self.line("log_reopened", Level::Info, &[("file", &file)]),
            Err(error) => {
                let error = error.to_string();
                self.line("log_not_reopened", Level::Error, &[("file", &file), ("error", &error)])
            }
        };
        self.put(target, &line, losses);
    }

    fn line(&self, event: &str, level: Level, fields: &[(&str, &str)]) -> String {
        self.form.line(Head { level, node: &self.node, event }, fields)
    }
}

/// Lines that were lost since the last one that was written.
#[derive(Default)]
struct Losses {
    lines: u64,
    /// Why the first of them was.
    why: String,
}

impl Losses {
    fn add(&mut self, lines: u64, why: &str) {
        if lines > 0 && self.lines == 0 {
            why.clone_into(&mut self.why);
        }
        self.lines += lines;
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Log, Show};
    use super::*;
    use crate::testing::TempDir;

    fn logged(dir: &TempDir) -> String {
        std::fs::read_to_string(dir.path().join("log")).unwrap()
    }

    #[test]
    fn what_waits_goes_to_the_file_that_was_open_and_the_rest_to_the_new_one() {
        let dir = TempDir::new("spool");
        let file = dir.path().join("log");
        let log = Log::spooled("n", Show::Events, Form::Plain, Target::file(&file).unwrap()).unwrap();
        log.event(Level::Info, "first", &[]);
        assert!(log.spool().unwrap().flush(Duration::from_secs(10)));
        std::fs::rename(&file, dir.path().join("log.1")).unwrap();
        log.event(Level::Info, "second", &[]);
        log.spool().unwrap().reopen();
        log.event(Level::Info, "third", &[]);
        assert!(log.spool().unwrap().flush(Duration::from_secs(10)));
        let old = std::fs::read_to_string(dir.path().join("log.1")).unwrap();
        assert!(old.contains(" n first\n") && old.ends_with(" n second\n"), "{old}");
        let new = logged(&dir);
        assert!(new.contains(" log_reopened file=") && new.ends_with(" n third\n"), "{new}");
    }

    #[test]
    fn a_file_that_cannot_be_opened_anew_is_kept() {
        let dir = TempDir::new("spool-kept");
        let file = dir.path().join("log");
        let log = Log::spooled("n", Show::Events, Form::Plain, Target::file(&file).unwrap()).unwrap();
        std::fs::rename(&file, dir.path().join("log.1")).unwrap();
        std::fs::create_dir(&file).unwrap();
        log.spool().unwrap().reopen();
        log.event(Level::Info, "goes_on", &[]);
        assert!(log.spool().unwrap().flush(Duration::from_secs(10)));
        let old = std::fs::read_to_string(dir.path().join("log.1")).unwrap();
        assert!(old.contains("error n log_not_reopened") && old.ends_with(" n goes_on\n"), "{old}");
    }

    #[test]
    fn beyond_its_bound_lines_are_lost_and_counted() {
        let dir = TempDir::new("spool-bound");
        let fifo = dir.path().join("log");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        // Open at both ends and read by nobody yet: writing gets stuck after the pipe's 64 KiB.
        let mut reader = std::fs::OpenOptions::new().read(true).write(true).open(&fifo).unwrap();
        let log = Log::spooled("n", Show::Events, Form::Plain, Target::file(&fifo).unwrap()).unwrap();
        let text = "x".repeat(8000);
        for _ in 0..1200 {
            log.event(Level::Info, "said", &[("text", &text)]);
        }
        assert!(!log.spool().unwrap().flush(Duration::from_millis(20)), "nobody reads");
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut seen = Vec::new();
            let mut piece = [0u8; 65536];
            loop {
                let count = io::Read::read(&mut reader, &mut piece).unwrap();
                seen.extend_from_slice(&piece[..count]);
                if seen.ends_with(b" n last\n") {
                    break;
                }
            }
            tell.send(String::from_utf8(seen).unwrap()).unwrap();
        });
        assert!(log.spool().unwrap().flush(Duration::from_secs(20)));
        log.event(Level::Info, "last", &[]);
        let seen = told.recv_timeout(Duration::from_secs(20)).unwrap();
        let said = seen.matches(" n said ").count() as u64;
        let lost: u64 = seen
            .lines()
            .filter_map(|line| {
                line.split_once(" log_lines_lost lines=")?.1.split(' ').next()?.parse::<u64>().ok()
            })
            .sum();
        assert!(lost > 0, "{}", seen.len());
        assert_eq!(said + lost, 1200);
    }

    #[test]
    fn a_full_device_is_an_error_to_nobody() {
        let target = Target::file(std::path::Path::new("/dev/full")).unwrap();
        let log = Log::spooled("n", Show::Events, Form::Plain, target).unwrap();
        log.event(Level::Info, "said", &[]);
        assert!(log.spool().unwrap().flush(Duration::from_secs(10)), "lost, and done with");
    }
}
