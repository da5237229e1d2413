//! `agentcontainer capsule …`; the same under the names `agentcapsule` and `capsule`.
//!
//! Options, exit statuses, lines and JSON fields are those of the reference implementation, so that a
//! script written for it keeps working: 0, or 2 with one line on standard error and nothing on standard
//! output. With `--audit-json` the event tells of a failure instead of the line.

pub(in crate::cli) mod args;
mod describe;
mod keys;
mod pack;
pub mod pack_agent;
mod receive;
mod report;
mod scan;
mod trust;

use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Write};
use std::path::Path;

use crate::capsule::CapsuleError;
use args::{Command, Given};

/// The names under which the program is this command.
const NAMES: [&str; 2] = ["agentcapsule", "capsule"];

/// What a command prints, or why it failed.
type Outcome = Result<String, Failure>;

/// A command that failed.
#[derive(Debug)]
struct Failure {
    /// For standard error: one line; none if standard output tells it.
    line: String,
    /// For standard output.
    event: String,
}

impl From<CapsuleError> for Failure {
    fn from(error: CapsuleError) -> Failure {
        Failure { line: error.to_string(), event: String::new() }
    }
}

impl From<String> for Failure {
    fn from(line: String) -> Failure {
        Failure { line, event: String::new() }
    }
}

/// A command and what runs it.
type Entry = (&'static Command, fn(&Given) -> Outcome);

const COMMANDS: [Entry; 8] = [
    (&pack::COMMAND, pack::run),
    (&receive::INSPECT, receive::inspect),
    (&receive::VERIFY, receive::verify),
    (&receive::UNPACK, receive::unpack),
    (&scan::COMMAND, scan::run),
    (&describe::CODECS_COMMAND, describe::codecs),
    (&describe::REFERENCE, describe::reference),
    (&pack_agent::COMMAND, pack_agent::run),
];

/// Commands of two words.
const GROUPS: [(&str, &[Entry]); 2] = [("keys", &keys::COMMANDS), ("trust", &trust::COMMANDS)];

/// Whether the program, started as `argv0`, is this command.
pub fn is_named(argv0: &OsStr) -> bool {
    Path::new(argv0).file_name().is_some_and(|name| NAMES.iter().any(|known| name == *known))
}

/// Runs a command; `args` is what follows the program's name and the word `capsule`. The exit status.
pub fn main(args: impl Iterator<Item = OsString>) -> i32 {
    let mut args = args.peekable();
    let first = args.next().map(|word| word.to_string_lossy().into_owned());
    let found = match first.as_deref() {
        None => {
            return finish(Err(format!("a command is missing; there are: {}", names(&COMMANDS, true)).into()))
        }
        Some("-h" | "--help" | "help") => return finish(Ok(overview())),
        // Ours alone, with the options of our own commands.
        Some("report") => return report::run(args),
        Some(word) => match GROUPS.iter().find(|(group, _)| *group == word) {
            Some((group, commands)) => {
                match args.next().map(|word| word.to_string_lossy().into_owned()).as_deref() {
                    Some("-h" | "--help" | "help") => return finish(Ok(group_overview(group, commands))),
                    Some(second) => find(commands, second, group),
                    None => {
                        Err(format!("a command is missing; there are: {}", names(commands, false)).into())
                    }
                }
            }
            None => find(&COMMANDS, word, ""),
        },
    };
    finish(found.and_then(|(command, run)| run_with(command, args, run)))
}

/// What was typed before the command's name.
fn program(command: &Command) -> String {
    let mut words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let started = words.next().unwrap_or_default();
    if is_named(OsStr::new(&started)) {
        return started.rsplit('/').next().unwrap_or_default().to_owned();
    }
    // `trust` and `pack-agent` need no `capsule` before them.
    let short = words.next().is_some_and(|word| command.name.split(' ').next() == Some(&*word));
    String::from(if short { "agentcontainer" } else { "agentcontainer capsule" })
}

/// Runs one command with its arguments.
fn run_with(
    command: &'static Command,
    args: impl Iterator<Item = OsString>,
    run: impl FnOnce(&Given) -> Outcome,
) -> Outcome {
    match args::parse(command, args)? {
        None => Ok(args::help(&program(command), command)),
        Some(given) => run(&given),
    }
}

fn find(commands: &[Entry], word: &str, group: &str) -> Result<Entry, Failure> {
    let last = |command: &Command| command.name.rsplit(' ').next() == Some(word);
    commands.iter().find(|(command, _)| last(command)).copied().ok_or_else(|| {
        let of = if group.is_empty() { String::new() } else { format!("{group} ") };
        format!("no command {of}{word:?}; there are: {}", names(commands, group.is_empty())).into()
    })
}

fn names(commands: &[Entry], groups: bool) -> String {
    let mut names: Vec<&str> = commands.iter().map(|(command, _)| command.name).collect();
    if groups {
        names.extend(GROUPS.iter().map(|(group, _)| *group));
        names.push("report");
    }
    names.join(", ")
}

fn overview() -> String {
    let mut text = String::from("Exact payloads as one block of text that anyone can inspect and check.\n\n");
    let grouped = GROUPS.iter().flat_map(|(_, commands)| commands.iter());
    for (command, _) in COMMANDS.iter().chain(grouped) {
        text.push_str(&format!("  {:<22} {}\n", command.name, command.about));
    }
    text.push_str(&format!("  {:<22} {}\n", "report", "Renders a handoff's events as one page."));
    text.push_str("\nEach command explains itself with --help.\n");
    text
}

fn group_overview(group: &str, commands: &[Entry]) -> String {
    let lines = commands.iter().map(|(command, _)| format!("  {:<22} {}\n", command.name, command.about));
    format!("Commands of {group}:\n\n{}", lines.collect::<String>())
}

/// Prints what came of it; the exit status.
fn finish(outcome: Outcome) -> i32 {
    let (text, status) = match outcome {
        Ok(text) => (text, 0),
        Err(failure) => {
            if !failure.line.is_empty() {
                eprintln!("{}", failure.line);
            }
            (failure.event, 2)
        }
    };
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Whoever read it had enough of it.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            eprintln!("writing to standard output: {error}");
            2
        }
        _ => status,
    }
}

/// JSON as a line.
fn line(json: String) -> String {
    json + "\n"
}
