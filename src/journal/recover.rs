//! What a start finds: where the chain goes on, and what is not as it was left.
//!
//! A node that was killed leaves a torn last line at worst, and a head that is behind. Anything else was done by
//! somebody, or by a power cut, and goes into the journal: where lines are missing that were there, the chain goes on
//! behind them, so that the hole stays for whoever verifies.

use super::chain::End;
use super::head::Head;
use super::line::{Event, Line, BEGINNING, LINE_BYTES};
use super::{reader, DIRECTORY};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// How much of a file's end is looked at.
const TAIL_BYTES: u64 = 4 * LINE_BYTES as u64;

/// Where a journal goes on.
pub(super) struct Recovered {
    /// What the next line follows.
    pub(super) end: End,
    /// The file it goes into; `None`: a new one.
    pub(super) file: Option<PathBuf>,
    /// The first line that is kept.
    pub(super) first: u64,
    /// What there is to say.
    pub(super) events: Vec<Event>,
    /// Whether the last line is the node's own `stop`, or there was none yet.
    pub(super) clean: bool,
}

/// What the last line of all files is.
enum Tail {
    /// There is no line.
    None,
    /// A line of ours, in the last file.
    Line { end: End, clean: bool },
    /// None of ours; with what it could be the number.
    Damaged { file: String, seq: u64, why: String },
}

/// Looks at a state directory's journal, and takes off what was torn. `known`: the end that this very process
/// has written, if it has.
///
/// # Errors
/// A file or directory can't be made, read or cut.
pub(super) fn recover(state_dir: &Path, known: Option<&End>) -> io::Result<Recovered> {
    make_dir(&state_dir.join(DIRECTORY))?;
    let mut events = Vec::new();
    let head = Head::read(state_dir).unwrap_or_else(|why| {
        events.push(Event::new("damaged").text("why", &why));
        None
    });
    let tail = tail(state_dir, &mut events)?;
    let files = reader::files(state_dir)?;
    let last = files.last().map(|(_, path)| path.clone());
    let promised = head.as_ref().map(|head| End { seq: head.seq, hash: head.hash.clone() });
    let promised = [promised, known.cloned()].into_iter().flatten().max_by_key(|end| end.seq);
    let (end, file, clean) = match (tail, promised) {
        (Tail::None, None) => (End::default(), None, true),
        (Tail::None, Some(promised)) => {
            let first = head.as_ref().map_or(1, |head| head.first);
            if promised.seq > 0 {
                events.push(cut(first, promised.seq));
            }
            (promised, None, false)
        }
        (Tail::Line { end, clean }, None) => {
            if events.is_empty() {
                events.push(Event::new("damaged").text("why", "meta/journal.head is missing"));
            }
            (end, last, clean)
        }
        (Tail::Line { end, clean }, Some(promised)) => {
            if promised.seq < end.seq || promised == end {
                (end, last, clean)
            } else {
                // Where the last line is another than it was, it is that one which is missing.
                events.push(cut((end.seq + 1).min(promised.seq), promised.seq));
                (promised, None, false)
            }
        }
        (Tail::Damaged { file, seq, why }, promised) => {
            events.push(Event::new("damaged").text("file", &file).text("why", &why));
            let hash = promised.as_ref().map_or(BEGINNING, |end| &end.hash).to_owned();
            let seq = promised.map_or(seq, |end| end.seq);
            // The next file's name has to come behind those that are there.
            (End { seq: seq.max(files.last().map_or(0, |(first, _)| *first)), hash }, None, false)
        }
    };
    let here = files.first().map_or(end.seq + 1, |(first, _)| *first);
    let first = head.map_or(here, |head| head.first.min(here));
    Ok(Recovered { end, file, first, events, clean })
}

/// Makes a directory for this user alone, if it is not there. Not what is above it: a state directory that was
/// removed stays so.
pub(super) fn make_dir(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn cut(from: u64, to: u64) -> Event {
    Event::new("cut").number("from", from).number("to", to)
}

/// The last line; files that hold none are removed.
fn tail(state_dir: &Path, events: &mut Vec<Event>) -> io::Result<Tail> {
    while let Some((first, path)) = reader::files(state_dir)?.pop() {
        let mut file = OpenOptions::new().read(true).append(true).open(&path)?;
        let length = file.seek(SeekFrom::End(0))?;
        let from = length.saturating_sub(TAIL_BYTES);
        file.seek(SeekFrom::Start(from))?;
        let mut end = Vec::new();
        (&mut file).take(TAIL_BYTES).read_to_end(&mut end)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let damaged = |seq, why| Ok(Tail::Damaged { file: name.clone(), seq, why });
        let whole = end.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if whole == 0 && from > 0 {
            return damaged(first, "its end holds no line".into());
        }
        let (lines, torn) = end.split_at(whole);
        let last = lines.strip_suffix(b"\n").map(|rest| {
            let begins = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            Line::read(&rest[begins..])
        });
        let last = match last {
            None => None,
            Some(Ok(line)) if line.is_genuine() => Some(line),
            Some(Ok(line)) => {
                return damaged(line.seq, format!("line {} has not the hash of its content", line.seq))
            }
            Some(Err(why)) => return damaged(first + count(lines), format!("its last line: {why}")),
        };
        let before = match (&last, first) {
            (Some(line), _) => Some(End { seq: line.seq, hash: line.hash.clone().into_owned() }),
            (None, 1) => Some(End::default()),
            (None, _) => None,
        };
        let completes = |torn: &[u8]| {
            let line = Line::read(torn).ok().filter(Line::is_genuine)?;
            let before = before.as_ref()?;
            (line.seq == before.seq + 1 && line.prev == before.hash)
                .then(|| (End { seq: line.seq, hash: line.hash.into_owned() }, line.kind == "stop"))
        };
        if let Some((end, clean)) = completes(torn) {
            file.write_all(b"\n")?;
            events.push(Event::new("torn").text("file", &name).flag("completed", true));
            return Ok(Tail::Line { end, clean });
        }
        if !torn.is_empty() {
            file.set_len(from + whole as u64)?;
            let event = Event::new("torn").text("file", &name).number("bytes", torn.len() as u64);
            events.push(event.text("text", &String::from_utf8_lossy(torn)));
        }
        match (last, before) {
            (Some(line), Some(end)) => return Ok(Tail::Line { end, clean: line.kind == "stop" }),
            // Begun, and the node was killed before its first line.
            _ => fs::remove_file(&path)?,
        }
    }
    Ok(Tail::None)
}

fn count(lines: &[u8]) -> u64 {
    lines.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// Opens a directory, to force what was made in it to the disk.
pub(super) fn open_dir(dir: &Path) -> io::Result<File> {
    File::open(dir)
}
