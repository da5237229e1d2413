//! `agentcontainer capsule report`: the recorded decisions of a handoff as a page.

use super::super::args::{opt, Command, Given, Wish};
use super::super::fault::{Fault, LOCAL};
use super::super::{help, out};
use crate::capsule::report;
use crate::capsule::whole_file::{is_same_file, WholeFile};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

/// The longest file that is read, bytes. A page of more than that no browser would like.
const MOST: u64 = 16 << 20;

static COMMAND: Command = Command {
    name: "capsule report",
    summary: "Makes a page of a handoff's recorded decisions.",
    words: &[],
    options: &[&[
        opt("events", "F", "the decisions, one line of JSON each (events.jsonl)"),
        opt("evaluation", "F", "verdict, score, checklist and policy matrix (evaluation.json)"),
        opt("out", "F", "where the page goes"),
    ]],
    notes: "The page is one HTML file that runs nothing and loads nothing. A file with an error in it (named by\n\
            line and field) makes no page. make demo-handoff writes both files below build/handoff.",
    example: "agentcontainer capsule report --events events.jsonl --evaluation evaluation.json --out page.html",
    run: carry_out,
};

/// Does it; gives the exit status: 0, or 2 with one line on standard error.
pub fn run(arguments: impl Iterator<Item = OsString>) -> i32 {
    let done = COMMAND.read(arguments.collect()).and_then(|wish| match wish {
        Wish::Help => out::line(help::command(&COMMAND).trim_end()),
        Wish::Do(given) => (COMMAND.run)(&given),
    });
    match done {
        Ok(()) | Err(Fault::PipeClosed) => 0,
        Err(Fault::Usage(why)) => {
            out::note(&format!("{why} (agentcontainer {} --help says more)", COMMAND.name));
            i32::from(LOCAL)
        }
        Err(fault) => {
            fault.tell(COMMAND.name, false);
            i32::from(fault.status())
        }
    }
}

fn carry_out(given: &Given) -> Result<(), Fault> {
    let needed =
        |name: &str| given.path(name).ok_or_else(|| Fault::Usage(format!("--{name} is missing, a file")));
    let (events, target) = (needed("events")?, needed("out")?);
    for read in given.path("evaluation").iter().chain([&events]) {
        if is_same_file(&target, read) {
            let (target, read) = (target.display(), read.display());
            return Err(Fault::Usage(format!("--out {target} would overwrite {read}")));
        }
    }
    let events = read(&events)?;
    let evaluation = given.path("evaluation").map(|file| read(&file)).transpose()?;
    let page = report::render(&events, evaluation.as_deref()).map_err(|why| Fault::Local(why.to_string()))?;
    let written = WholeFile::create(&target).and_then(|mut file| {
        file.write_all(page.as_bytes())?;
        file.finish()
    });
    written.map_err(|error| Fault::Local(format!("writing {}: {error}", target.display())))?;
    out::line(&format!("report path: {}", target.display()))
}

fn read(path: &Path) -> Result<String, Fault> {
    let fault = |why: String| Fault::Local(format!("reading {}: {why}", path.display()));
    let file = File::open(path).map_err(|error| fault(error.to_string()))?;
    let mut bytes = Vec::new();
    let length = file.take(MOST + 1).read_to_end(&mut bytes).map_err(|error| fault(error.to_string()))?;
    if length as u64 > MOST {
        return Err(fault(format!("it has more than {MOST} bytes")));
    }
    String::from_utf8(bytes)
        .map_err(|error| fault(format!("it is not UTF-8 behind byte {}", error.utf8_error().valid_up_to())))
}
