//! `journal verify`, `show`, `tail`: a node's audit journal, read from its files.

use super::args::{dashed, Given};
use super::fault::{Fault, ANSWERED};
use super::{out, secrets};
use crate::boot;
use crate::clock;
use crate::journal::{self, Line, Lines, Report};
use crate::log::{escape, quoted};
use crate::wire::{unix_now, Json};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often `tail --follow` looks.
const EVERY: Duration = Duration::from_millis(200);
/// How many lines `tail` shows unless told.
const LINES: usize = 10;
/// How many it can be told.
const MOST_LINES: usize = 1_000_000;

/// `journal`.
pub fn run(given: &Given) -> Result<(), Fault> {
    let what = given.word(0)?;
    let own: &[&str] = match what {
        "verify" => &[],
        "show" => &["agent", "kind", "since"],
        "tail" => &["n", "follow"],
        _ => return Err(Fault::Usage(format!("journal takes verify, show or tail, not {what:?}"))),
    };
    let foreign = |name: &&str| !own.contains(name) && !matches!(*name, "state-dir" | "name" | "json");
    if let Some(name) = given.given().find(foreign) {
        return Err(Fault::Usage(format!("journal {what} has no option {}", dashed(name))));
    }
    match what {
        "verify" => verify(given),
        "show" => show(given),
        _ => tail(given),
    }
}

fn verify(given: &Given) -> Result<(), Fault> {
    let dir = state_dir(given)?;
    let found = journal::verify(&dir).map_err(|error| reading(&dir, &error))?;
    let report = found.ok_or_else(|| none(&dir))?;
    if given.flag("json") {
        out::line(&as_json(&report))?;
    } else {
        let good = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let range = match report.lines {
            0 => String::new(),
            _ => format!(" (seq {} to {})", report.first, report.last),
        };
        let (files, lines) = (good(report.files, "file"), good(report.lines, "line"));
        match report.fault {
            None => out::line(&format!("good: {files}, {lines}{range}"))?,
            Some(_) => out::line(&format!("good before the first fault: {files}, {lines}{range}"))?,
        }
        for note in &report.notes {
            out::line(&out::shown(note))?;
        }
    }
    match &report.fault {
        None => Ok(()),
        Some(fault) => {
            out::note(&fault.to_string());
            Err(Fault::Status(ANSWERED))
        }
    }
}

fn as_json(report: &Report) -> String {
    let fault = report.fault.as_ref().map(|fault| {
        serde_json::json!({
            "file": fault.file.to_string_lossy(),
            "line": fault.line,
            "seq": fault.seq,
            "wrong": fault.wrong.to_string(),
        })
    });
    serde_json::json!({
        "good": report.fault.is_none(),
        "files": report.files,
        "lines": report.lines,
        "first": report.first,
        "last": report.last,
        "notes": report.notes,
        "fault": fault,
    })
    .to_string()
}

/// What `show` leaves out.
struct Wanted<'a> {
    agent: Option<&'a str>,
    kind: Option<&'a str>,
    since: Option<String>,
}

impl Wanted<'_> {
    fn takes(&self, line: &Line<'_>) -> bool {
        self.kind.is_none_or(|kind| line.kind == kind)
            && self.since.as_ref().is_none_or(|since| *line.time >= **since)
            && self.agent.is_none_or(|agent| {
                line.text("agent").is_some_and(|id| id == agent)
                    || line.text("sender").is_some_and(|sender| sender == agent)
            })
    }
}

fn show(given: &Given) -> Result<(), Fault> {
    let since = given.text("since")?.map(since).transpose()?;
    let wanted = Wanted { agent: given.text("agent")?, kind: given.text("kind")?, since };
    let dir = state_dir(given)?;
    for file in files(&dir)? {
        let mut lines = match Lines::open(&file) {
            Ok(lines) => lines,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue, // dropped meanwhile
            Err(error) => return Err(reading(&file, &error)),
        };
        while let Some(raw) = lines.next_line().map_err(|error| reading(&file, &error))? {
            match Line::read(&raw.text) {
                Ok(line) if wanted.takes(&line) => print(&raw.text, given.flag("json"))?,
                Ok(_) => {}
                Err(why) if raw.whole => {
                    out::note(&format!("{}, line {}: {why}", file.display(), lines.number))
                }
                Err(_) => {} // being written, or torn
            }
        }
    }
    Ok(())
}

fn tail(given: &Given) -> Result<(), Fault> {
    let most = match given.text("n")? {
        None => LINES,
        Some(text) => text.parse().ok().filter(|n| *n <= MOST_LINES).ok_or_else(|| {
            Fault::Usage(format!("-n needs a number of lines, at most {MOST_LINES}, not {text:?}"))
        })?,
    };
    let dir = state_dir(given)?;
    let files = files(&dir)?;
    let mut last: VecDeque<Vec<u8>> = VecDeque::new();
    let mut at = (PathBuf::new(), 0);
    // From the newest file back, until there are enough.
    for file in files.iter().rev() {
        let wanted = most - last.len();
        let mut found = VecDeque::new();
        let read = read_from(file, 0, &mut |line| {
            found.push_back(line);
            if found.len() > wanted {
                found.pop_front();
            }
            Ok(())
        })?;
        if at.0.as_os_str().is_empty() {
            at = (file.clone(), read);
        }
        found.extend(last);
        last = found;
        if last.len() >= most {
            break;
        }
    }
    for line in last {
        print(&line, given.flag("json"))?;
    }
    while given.flag("follow") {
        std::thread::sleep(EVERY);
        let (file, from) = &at;
        let newer = journal::files(&dir).map_err(|error| reading(&dir, &error))?;
        let newer = newer.into_iter().map(|(_, path)| path).find(|path| path > file);
        // A newer file is there when no more is added to this one.
        let mut add = |line: Vec<u8>| print(&line, given.flag("json"));
        let read = if file.as_os_str().is_empty() { 0 } else { read_from(file, *from, &mut add)? };
        at = match newer {
            Some(newer) => (newer, 0),
            None => (file.clone(), read),
        };
    }
    Ok(())
}

/// Hands on the whole lines of a file from a byte on; gives the byte behind the last. A file that is not there has
/// none.
fn read_from(
    file: &Path,
    from: u64,
    each: &mut dyn FnMut(Vec<u8>) -> Result<(), Fault>,
) -> Result<u64, Fault> {
    let opened = File::open(file).and_then(|mut open| open.seek(SeekFrom::Start(from)).map(|_| open));
    let mut lines = match opened {
        Ok(open) => Lines::of(open),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(from),
        Err(error) => return Err(reading(file, &error)),
    };
    let mut at = from;
    while let Some(raw) = lines.next_line().map_err(|error| reading(file, &error))?.filter(|raw| raw.whole) {
        at += raw.bytes;
        each(raw.text)?;
    }
    Ok(at)
}

/// A line as it stands, or for people: `time seq kind key=value…`.
fn print(text: &[u8], as_json: bool) -> Result<(), Fault> {
    let line = match Line::read(text) {
        Ok(line) if !as_json => line,
        _ => return out::line(&escape(&String::from_utf8_lossy(text))),
    };
    let mut shown = format!("{} {} {}", line.time, line.seq, line.kind);
    for (name, value) in line.members() {
        let value = match Json::as_str(value) {
            Some(text) => quoted(&text),
            None => value.raw().to_owned(),
        };
        shown.push_str(&format!(" {name}={value}"));
    }
    out::line(&out::shown(&shown))
}

/// Since when: a date, a moment, or how long ago.
fn since(text: &str) -> Result<String, Fault> {
    let day = format!("{text}T00:00:00Z");
    if clock::is_utc(text) {
        return Ok(text.to_owned());
    }
    if clock::is_utc(&day) {
        return Ok(day);
    }
    let unit = |unit: char| match unit {
        's' => Some(1),
        'm' => Some(60),
        'h' => Some(3600),
        'd' => Some(86_400),
        _ => None,
    };
    let ago = text.chars().last().and_then(unit).and_then(|unit| {
        let count: i64 =
            text[..text.len() - 1].parse().ok().filter(|count| (0..=1_000_000_000).contains(count))?;
        Some(unix_now().saturating_sub(count * unit).max(0))
    });
    ago.map(clock::utc).ok_or_else(|| {
        Fault::Usage(format!(
            "--since takes 2026-05-09T00:00:00Z, 2026-05-09, or an age as 10m, not {text:?}"
        ))
    })
}

/// The journal's files; there is at least one.
fn files(dir: &Path) -> Result<Vec<PathBuf>, Fault> {
    let files = journal::files(dir).map_err(|error| reading(dir, &error))?;
    match files.is_empty() {
        true => Err(none(dir)),
        false => Ok(files.into_iter().map(|(_, path)| path).collect()),
    }
}

/// The state directory that is meant.
fn state_dir(given: &Given) -> Result<PathBuf, Fault> {
    if let Some(dir) = secrets::named_dir(given, 1)? {
        return Ok(dir);
    }
    let address = given.has_word(1).then(|| given.address(1)).transpose()?;
    let hint = "give --name or --state-dir, the node's";
    match secrets::on_this_machine(address.as_ref(), None) {
        Ok(Some((dir, _))) => Ok(dir),
        Ok(None) => match &address {
            Some(address) => {
                Err(Fault::Local(format!("no node of this user is noted as listening at {address}; {hint}")))
            }
            None => only_one(hint),
        },
        Err(Fault::Usage(text)) => Err(Fault::Usage(text.replace("--node HOST:PORT", "HOST:PORT"))),
        Err(fault) => Err(fault),
    }
}

/// Where no node runs: the one state directory of this user that has a journal.
fn only_one(hint: &str) -> Result<PathBuf, Fault> {
    let home = boot::state_home().map_err(Fault::Local)?;
    let entries = std::fs::read_dir(&home).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut dirs: Vec<PathBuf> = entries.filter(|dir| dir.join(journal::DIRECTORY).is_dir()).collect();
    dirs.sort();
    match &dirs[..] {
        [dir] => Ok(dir.clone()),
        [] => Err(Fault::Local(format!("no node of this user has a journal in {}; {hint}", home.display()))),
        _ => {
            let names: Vec<String> = dirs.iter().map(|dir| dir.display().to_string()).collect();
            Err(Fault::Usage(format!("several nodes have a journal here ({}); {hint}", names.join(", "))))
        }
    }
}

fn none(dir: &Path) -> Fault {
    Fault::Local(format!("there is no journal in {}", dir.display()))
}

fn reading(what: &Path, error: &io::Error) -> Fault {
    Fault::Local(format!("reading the journal in {}: {error}", what.display()))
}
