//! The replay memory on disk, `meta/replay.log`: a line for each accepted message, written before it is
//! acted on; and the floors, at the file's head since it was last rewritten.

use crate::state::{self, Syncer};
use crate::wire::{hex, ReplayWindow, Verdict};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file is rewritten when it has this many lines and twice as many as after the last time.
const LEAST_REWRITTEN: usize = 20_000;

/// A replay memory and its file.
pub(super) struct ReplayLog {
    window: ReplayWindow,
    path: PathBuf,
    syncer: Arc<Syncer>,
    file: File,
    lines: usize,
    rewritten_at: usize,
}

/// One message that asks to be acted on.
pub(super) struct Asking<'a> {
    pub(super) sender: &'a str,
    pub(super) signature: &'a [u8; 32],
    pub(super) timestamp: i64,
    /// Unix seconds.
    pub(super) now: i64,
    /// How many are remembered of this sender.
    pub(super) capacity: usize,
}

impl ReplayLog {
    /// The memory that the file holds. What it can't make sense of is passed over: the end of a line
    /// that a power cut took.
    ///
    /// # Errors
    /// The file can't be read or written.
    pub(super) fn open(path: &Path, skew_s: u64, syncer: &Arc<Syncer>) -> io::Result<Self> {
        let text = match std::fs::read(path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error),
        };
        let mut window = ReplayWindow::new(skew_s);
        for line in text.lines() {
            let _ = read_line(&mut window, line);
        }
        let mut log = ReplayLog {
            window,
            path: path.to_owned(),
            syncer: Arc::clone(syncer),
            file: OpenOptions::new().append(true).create(true).mode(0o600).open(path)?,
            lines: 0,
            rewritten_at: 0,
        };
        log.rewrite()?;
        Ok(log)
    }

    /// How many senders something is remembered of.
    pub(super) fn senders(&self) -> usize {
        self.window.senders()
    }

    /// Asks whether a message may be acted on, and remembers it if so, also beyond this run.
    ///
    /// # Errors
    /// It can't be written down, and so must not be acted on.
    pub(super) fn check(&mut self, asking: &Asking) -> io::Result<Verdict> {
        let Asking { sender, signature, timestamp, now, capacity } = *asking;
        let verdict = self.window.check(sender, signature, timestamp, now, capacity);
        if verdict == Verdict::New {
            self.file.write_all(line_of(sender, timestamp, &signature[..16]).as_bytes())?;
            self.syncer.written(&self.path)?;
            self.lines += 1;
            if self.lines >= self.rewritten_at {
                self.rewrite()?;
            }
        }
        Ok(verdict)
    }

    fn rewrite(&mut self) -> io::Result<()> {
        let mut text = format!("floor {}\n", self.window.common_floor());
        self.lines = 1;
        self.window.each(|sender, floor, accepted| {
            if floor != i64::MIN {
                text.push_str(&format!("below {floor} {}\n", crate::wire::json::quote(sender)));
                self.lines += 1;
            }
            for (timestamp, mark) in accepted {
                text.push_str(&line_of(sender, *timestamp, mark));
                self.lines += 1;
            }
        });
        state::write_durably(&self.path, text.as_bytes())?;
        self.file = OpenOptions::new().append(true).open(&self.path)?;
        self.rewritten_at = (2 * self.lines).max(LEAST_REWRITTEN);
        Ok(())
    }
}

fn line_of(sender: &str, timestamp: i64, mark: &[u8]) -> String {
    format!("{timestamp} {} {}\n", hex::encode(mark), crate::wire::json::quote(sender))
}

fn read_line(window: &mut ReplayWindow, line: &str) -> Option<()> {
    let (first, rest) = line.split_once(' ')?;
    if first == "floor" {
        window.raise_common_floor(rest.parse().ok()?);
        return Some(());
    }
    let (second, sender) = rest.split_once(' ')?;
    let sender: String = serde_json::from_str(sender).ok()?;
    if first == "below" {
        window.raise_floor(&sender, second.parse().ok()?);
        return Some(());
    }
    // A mark is half a signature.
    let mut mark = [0; 16];
    mark.copy_from_slice(&hex::decode32(&format!("{second:0<64}")).filter(|_| second.len() == 32)?[..16]);
    window.remember(&sender, first.parse().ok()?, mark);
    Some(())
}
