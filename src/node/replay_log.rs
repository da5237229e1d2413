//! The replay memory on disk, `meta/replay.log`: a line for each accepted message, written before it is
//! acted on; and the floors, at the file's head since it was last rewritten.

use crate::crash;
use crate::state::{self, Lines, Syncer};
use crate::wire::{hex, ReplayWindow, Verdict};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The file is rewritten when it has this many lines and twice as many as after the last time.
const LEAST_REWRITTEN: usize = 20_000;
/// How much room is set aside on the disk, bytes: on a full one, some hundred messages more are taken,
/// which may be those that make room.
const RESERVE: u64 = 64 * 1024;

/// A replay memory and its file.
pub(super) struct ReplayLog {
    window: ReplayWindow,
    syncer: Arc<Syncer>,
    file: Lines,
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
    /// The memory that the file holds; the second says what of it makes no sense. Then, and if the machine
    /// was started anew meanwhile (a power cut may have taken lines that were not synced yet), something
    /// may be missing, and what is stamped before `now` counts as stale.
    ///
    /// # Errors
    /// The file can't be read or appended to.
    pub(super) fn open(
        path: &Path,
        skew_s: u64,
        syncer: &Arc<Syncer>,
        now: i64,
    ) -> io::Result<(Self, Option<String>)> {
        let bytes = match std::fs::read(path) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let mut window = ReplayWindow::new(skew_s);
        let read = read(&mut window, bytes.as_deref().unwrap_or_default());
        let damaged = match &bytes {
            Some(bytes) if bytes.is_empty() => Some(format!("{}: it is empty", path.display())),
            _ if read.damaged.is_empty() => None,
            _ => Some(state::describe_damaged(path, &read.damaged)),
        };
        if bytes.is_some() && (damaged.is_some() || read.boot != boot()) {
            window.raise_common_floor(now.saturating_sub(1));
        }
        window.sweep(now);
        let mut log = ReplayLog {
            window,
            syncer: Arc::clone(syncer),
            file: Lines::open(path, RESERVE)?,
            lines: 0,
            rewritten_at: 0,
        };
        log.rewrite();
        Ok((log, damaged))
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
        match verdict {
            Verdict::New => self.append(&line_of(sender, timestamp, &signature[..16]))?,
            Verdict::Replayed => {}
            // Floors rise with what is forgotten, and are not written down each time. This one counts.
            Verdict::BelowFloor => self.append(&floor_of(sender, self.window.floor(sender)))?,
        }
        Ok(verdict)
    }

    fn append(&mut self, line: &str) -> io::Result<()> {
        self.file.append(line)?;
        crash::point("message-noted");
        self.syncer.appended(self.file.path());
        self.lines += 1;
        if self.lines >= self.rewritten_at {
            self.rewrite();
        }
        Ok(())
    }

    /// Writes the file anew, without what is forgotten. Where that fails it only goes on growing.
    fn rewrite(&mut self) {
        let boot = boot().map(|boot| format!("boot {boot}\n")).unwrap_or_default();
        let mut text = format!("floor {}\n{boot}", self.window.common_floor());
        let mut lines = 2;
        self.window.each(|sender, floor, accepted| {
            if floor != i64::MIN {
                text.push_str(&floor_of(sender, floor));
                lines += 1;
            }
            for (timestamp, mark) in accepted {
                text.push_str(&line_of(sender, *timestamp, mark));
                lines += 1;
            }
        });
        if self.file.replace(&text).is_ok() {
            self.lines = lines;
        }
        self.rewritten_at = (2 * self.lines).max(LEAST_REWRITTEN);
    }
}

/// What a file says beside what is remembered.
pub(super) struct Read {
    /// The numbers of the lines that make no sense.
    pub(super) damaged: Vec<usize>,
    /// Since when the machine had run, as the kernel calls it.
    boot: Option<String>,
}

/// Reads the file's content into `window`. A last line that lacks its end makes no sense: a power cut took
/// it, and maybe others.
pub(super) fn read(window: &mut ReplayWindow, bytes: &[u8]) -> Read {
    let mut read = Read { damaged: Vec::new(), boot: None };
    for (index, line) in String::from_utf8_lossy(bytes).split_inclusive('\n').enumerate() {
        let whole = line.strip_suffix('\n');
        if let Some(boot) = whole.and_then(|line| line.strip_prefix("boot ")) {
            read.boot = Some(boot.to_owned());
        } else if whole.and_then(|line| read_line(window, line)).is_none() {
            read.damaged.push(index + 1);
        }
    }
    read
}

/// What the kernel calls this run of the machine; nothing, where it does not say.
fn boot() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|id| id.trim().to_owned())
}

fn floor_of(sender: &str, floor: i64) -> String {
    format!("below {floor} {}\n", crate::wire::json::quote(sender))
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
