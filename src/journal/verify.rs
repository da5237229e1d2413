//! Checking a journal: line by line, file by file, and against the head.
//!
//! It reads files only, so it works whether the node runs or not. While it runs, lines are added and old files dropped
//! meanwhile: the head is read first, so that all that it promises is there to be read.

use super::chain::End;
use super::head::{self, Head};
use super::line::{Line, BEGINNING};
use super::reader::{self, Lines, Raw};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// How often it begins again when a file was dropped under it.
const TRIES: usize = 5;

/// What was found.
#[derive(Debug, Default)]
pub struct Report {
    /// Files that are good.
    pub files: u64,
    /// Lines that are good, before the first that is not.
    pub lines: u64,
    /// The first one's number, 0 without any.
    pub first: u64,
    /// The last good one's number.
    pub last: u64,
    /// What is no fault, and worth saying.
    pub notes: Vec<String>,
    /// The first fault.
    pub fault: Option<Fault>,
}

/// The first line that is not as it was written, or not where it was.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault {
    /// The file.
    pub file: PathBuf,
    /// The line in it, from 1; 0: the file as a whole.
    pub line: u64,
    /// The number that it gives itself, if it can be read.
    pub seq: Option<u64>,
    /// What is wrong.
    pub wrong: Wrong,
}

/// What can be wrong.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wrong {
    /// It is no line of a journal; why.
    NotALine(String),
    /// Its hash is not that of its content.
    Changed,
    /// Lines between the one before it and this one are not there.
    Missing {
        /// The first of them.
        from: u64,
        /// The last.
        to: u64,
    },
    /// It stands before the line that it follows.
    Swapped {
        /// That line's number.
        with: u64,
        /// Where that stands in the file.
        line: u64,
    },
    /// It stands where another should; that one's number.
    OutOfPlace(u64),
    /// It does not follow the line before: one of the two was put in another's place.
    Broken,
    /// The end is missing: the head names a later line.
    CutTail {
        /// The last line that is there.
        last: u64,
        /// The one that the head names.
        head: u64,
    },
    /// The line that the head names is another one.
    NotTheHeads,
    /// Lines at the beginning are missing that the head says are kept.
    CutBeginning {
        /// The first that should be there.
        from: u64,
    },
    /// There are lines and no head.
    NoHead,
    /// The head cannot be read; why.
    BadHead(String),
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = |from: &u64, to: &u64| match to - from {
            0 => format!("line {from} is missing"),
            _ => format!("lines {from} to {to} are missing"),
        };
        match self {
            Wrong::NotALine(why) => write!(f, "{why}"),
            Wrong::Changed => f.write_str("changed: its hash is not that of its content"),
            Wrong::Missing { from, to } => write!(f, "dropped: {} before it", lines(from, to)),
            Wrong::Swapped { with, line } => {
                write!(f, "swapped: seq {with}, which comes before it, stands behind it, in line {line}")
            }
            Wrong::OutOfPlace(wanted) => write!(f, "out of place: seq {wanted} should stand here"),
            Wrong::Broken => {
                f.write_str("its prev is not the hash of the line before it: one of the two was replaced")
            }
            Wrong::CutTail { last, head } => write!(
                f,
                "cut tail: the journal ends with seq {last}, but its head names seq {head}: {}",
                lines(&(last + 1), head)
            ),
            Wrong::NotTheHeads => f.write_str("replaced: the journal's head names another line of this seq"),
            Wrong::CutBeginning { from } => {
                write!(f, "dropped: the journal's head says that it begins with seq {from}")
            }
            Wrong::NoHead => f.write_str("there is no head: whether the tail was cut cannot be seen"),
            Wrong::BadHead(why) => f.write_str(why),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if self.line > 0 {
            write!(f, ", line {}", self.line)?;
        }
        if let Some(seq) = self.seq {
            write!(f, " (seq {seq})")?;
        }
        write!(f, ": {}", self.wrong)
    }
}

/// Checks the journal of a state directory. `None`: there is none.
///
/// # Errors
/// A file can't be read.
pub fn verify(state_dir: &Path) -> io::Result<Option<Report>> {
    for _ in 1..TRIES {
        match attempt(state_dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // An old file may have been dropped between two looks.
            Ok(Some(Report { fault: Some(Fault { wrong: Wrong::CutBeginning { .. }, .. }), .. })) => {}
            done => return done,
        }
    }
    attempt(state_dir)
}

fn attempt(state_dir: &Path) -> io::Result<Option<Report>> {
    let head = Head::read(state_dir);
    let files = reader::files(state_dir)?;
    if files.is_empty() && matches!(head, Ok(None)) {
        return Ok(None);
    }
    let mut walk = Walk { report: Report::default(), end: None, head: None, last: None };
    let fault = match head {
        Ok(head) => {
            walk.head = head;
            walk.files(&files)?
        }
        Err(why) => Some(whole(head::path(state_dir), Wrong::BadHead(why))),
    };
    let mut report = walk.report;
    report.fault = fault.or_else(|| {
        let head = match &walk.head {
            Some(head) => head,
            None => return Some(whole(head::path(state_dir), Wrong::NoHead)),
        };
        let last = walk.end.as_ref().map_or(0, |end| end.seq);
        let (file, line) = walk.last.clone().unwrap_or((state_dir.join(super::DIRECTORY), 0));
        (head.seq > last).then(|| Fault {
            file,
            line,
            seq: walk.end.as_ref().map(|end| end.seq),
            wrong: Wrong::CutTail { last, head: head.seq },
        })
    });
    if report.first > 1 {
        report.notes.insert(0, format!("it begins with seq {}: older files were dropped", report.first));
    }
    Ok(Some(report))
}

fn whole(file: PathBuf, wrong: Wrong) -> Fault {
    Fault { file, line: 0, seq: None, wrong }
}

/// A walk over the files.
struct Walk {
    report: Report,
    end: Option<End>,
    head: Option<Head>,
    /// Where the last good line stands.
    last: Option<(PathBuf, u64)>,
}

impl Walk {
    fn files(&mut self, files: &[(u64, PathBuf)]) -> io::Result<Option<Fault>> {
        for (index, (first, path)) in files.iter().enumerate() {
            let newest = index + 1 == files.len();
            if index == 0 {
                // Its name says with which line it begins.
                self.report.first = *first;
                if let Some(head) = self.head.as_ref().filter(|head| *first > head.first) {
                    return Ok(Some(whole(path.clone(), Wrong::CutBeginning { from: head.first })));
                }
            }
            let mut lines = Lines::open(path)?;
            while let Some(raw) = lines.next_line()? {
                if !raw.whole && newest {
                    // In the middle of being written, or torn by a kill: the head says whether it counts.
                    let bytes = raw.text.len();
                    self.report.notes.push(format!("the last line has no end yet ({bytes} bytes)"));
                    break;
                }
                if let Some((seq, wrong)) = self.line(&raw, &mut lines)? {
                    let number =
                        self.last.as_ref().filter(|(file, _)| file == path).map_or(0, |(_, line)| *line);
                    return Ok(Some(Fault { file: path.clone(), line: number + 1, seq, wrong }));
                }
                self.last = Some((path.clone(), lines.number));
            }
            self.report.files += 1;
        }
        Ok(None)
    }

    /// Takes the next line, or says what is wrong with it.
    fn line(&mut self, raw: &Raw, rest: &mut Lines) -> io::Result<Option<(Option<u64>, Wrong)>> {
        if raw.too_long {
            return Ok(Some((None, Wrong::NotALine("longer than any line of the journal".into()))));
        }
        let line = match Line::read(&raw.text) {
            Ok(line) => line,
            Err(why) => return Ok(Some((None, Wrong::NotALine(why)))),
        };
        let seq = Some(line.seq);
        if !line.is_genuine() {
            return Ok(Some((seq, Wrong::Changed)));
        }
        let (wanted, prev) = match &self.end {
            Some(end) => (end.seq + 1, end.hash.as_str()),
            None => (self.report.first, if line.seq == 1 { BEGINNING } else { &*line.prev }),
        };
        if line.seq > wanted {
            let number = rest.number;
            if let Some(at) = find(rest, wanted)? {
                let wrong = Wrong::Swapped { with: wanted, line: at };
                return Ok(Some((seq, if at == number + 1 { wrong } else { Wrong::OutOfPlace(wanted) })));
            }
            return Ok(Some((seq, Wrong::Missing { from: wanted, to: line.seq - 1 })));
        }
        if line.seq < wanted {
            return Ok(Some((seq, Wrong::OutOfPlace(wanted))));
        }
        if line.prev != prev {
            return Ok(Some((seq, Wrong::Broken)));
        }
        if self.head.as_ref().is_some_and(|head| head.seq == line.seq && head.hash != line.hash) {
            return Ok(Some((seq, Wrong::NotTheHeads)));
        }
        if line.kind == "gap" {
            let lost = line.number("lost").unwrap_or(0);
            let since = line.text("since").unwrap_or_default();
            self.report.notes.push(format!(
                "seq {}: the node could not write {lost} lines, from {since} to {}",
                line.seq, line.time
            ));
        }
        self.end = Some(End { seq: line.seq, hash: line.hash.into_owned() });
        self.report.lines += 1;
        self.report.last = line.seq;
        Ok(None)
    }
}

/// Whether line `seq` stands further on in the file, and where.
fn find(rest: &mut Lines, seq: u64) -> io::Result<Option<u64>> {
    while let Some(raw) = rest.next_line()? {
        if Line::read(&raw.text).is_ok_and(|line| line.seq == seq) {
            return Ok(Some(rest.number));
        }
    }
    Ok(None)
}
