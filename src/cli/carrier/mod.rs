//! `agentcontainer carrier …`; the same under the name `lmcodec`.
//!
//! Options, exit statuses and lines are those of the reference implementation, so that a script written for
//! it keeps working: 0, or 2 with one line on standard error and nothing on standard output, and no file.

mod coding;
mod compare;
mod corpus;
mod experiment;
mod golden;
mod meter;
mod report;
mod settings;
mod table;
mod train;

use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Write};
use std::path::Path;

use super::capsule::args::{self, Command, Given};
use crate::capsule::whole_file::{is_same_file, WholeFile};

/// The name under which the program is this command.
const NAME: &str = "lmcodec";

/// What a command prints, or the line that it fails with.
type Outcome = Result<String, String>;

/// A command and what runs it.
type Entry = (&'static Command, fn(&Given) -> Outcome);

const COMMANDS: [Entry; 10] = [
    (&train::COMMAND, train::run),
    (&coding::ENCODE, coding::encode),
    (&coding::DECODE, coding::decode),
    (&golden::COMMAND, golden::run),
    (&corpus::CORPUS, corpus::corpus),
    (&corpus::SPLIT, corpus::split),
    (&compare::COMPARE, compare::compare),
    (&experiment::COMMAND, experiment::run),
    (&compare::SWEEP, compare::sweep),
    (&report::COMMAND, report::run),
];

/// Whether the program, started as `argv0`, is this command.
pub fn is_named(argv0: &OsStr) -> bool {
    Path::new(argv0).file_name().is_some_and(|name| name == NAME)
}

/// Runs a command; `args` is what follows the program's name and the word `carrier`. The exit status.
pub fn main(args: impl Iterator<Item = OsString>) -> i32 {
    let mut args = args;
    let outcome = match args.next().map(|word| word.to_string_lossy().into_owned()).as_deref() {
        None => Err(format!("a command is missing; there are: {}", names())),
        Some("-h" | "--help" | "help") => Ok(overview()),
        Some(word) => match COMMANDS.iter().find(|(command, _)| command.name == word) {
            Some((command, run)) => args::parse(command, args).and_then(|given| match given {
                None => Ok(args::help(program(), command)),
                Some(given) => run(&given),
            }),
            None => Err(format!("no command {word:?}; there are: {}", names())),
        },
    };
    finish(outcome)
}

/// What was typed before the command's name.
fn program() -> &'static str {
    match std::env::args_os().next().is_some_and(|name| is_named(&name)) {
        true => NAME,
        false => "agentcontainer carrier",
    }
}

fn names() -> String {
    COMMANDS.map(|(command, _)| command.name).join(", ")
}

fn overview() -> String {
    let mut text = String::from("Exact bytes as text whose characters a small model makes likely.\n\n");
    for (command, _) in COMMANDS {
        text.push_str(&format!("  {:<10} {}\n", command.name, command.about));
    }
    text + "\nIt hides nothing and saves nothing. Each command explains itself with --help.\n"
}

fn finish(outcome: Outcome) -> i32 {
    let (text, status) = match outcome {
        Ok(text) => (text, 0),
        Err(line) => {
            eprintln!("{}", one_line(&line));
            (String::new(), 2)
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

/// A name or a value may have held anything.
fn one_line(text: &str) -> String {
    crate::log::escape(text)
}

/// Begins a file beside its place.
///
/// # Errors
/// It would replace one that is read, or cannot be written.
fn create(out: &Path, read: &[&Path]) -> Result<WholeFile, String> {
    if let Some(read) = read.iter().find(|read| is_same_file(out, read)) {
        return Err(format!("--out {} would overwrite {}", out.display(), read.display()));
    }
    WholeFile::create(out).map_err(|error| not_written(out, &error))
}

/// Writes a file as a whole.
fn write(out: &Path, read: &[&Path], bytes: &[u8]) -> Result<(), String> {
    let mut file = create(out, read)?;
    let written = file.write_all(bytes).and_then(|()| file.finish());
    written.map_err(|error| not_written(out, &error))
}

fn not_written(out: &Path, error: &std::io::Error) -> String {
    format!("writing {}: {error}", out.display())
}
