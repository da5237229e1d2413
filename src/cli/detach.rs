//! `--detach`: a node without a terminal. The command starts this program again, in a session of its own,
//! and waits until the node listens.
//!
//! The node's standard output is a pipe to the command until then: a line means that the node listens, its
//! end without one that it does not, and the exit status then says why. Errors go straight to the command's
//! standard error.

use super::fault::Fault;
use super::out;
use crate::sys;
use std::io::{IsTerminal, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The hidden option under which a server is the one that a `--detach` started.
pub const OPTION: &str = "detached";

/// How much of the line is read, bytes.
const LINE_BYTES: u64 = 16 << 10;

/// Starts the node of this command line and waits until it listens.
///
/// # Errors
/// It can't be started; or it ended without listening, with the status that it ended with.
pub fn launch() -> Result<(), Fault> {
    // Whatever else the caller has open is not the node's to hold: pipes that somebody reads to their end.
    sys::close_on_exec_from(3);
    let mut arguments = std::env::args_os();
    let mut command = Command::new(program());
    command.arg0(arguments.next().unwrap_or_else(|| "agentcontainer".into()));
    command.args(arguments.next()).arg(format!("--{OPTION}")).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut node = command.spawn().map_err(|error| Fault::Local(format!("starting the node: {error}")))?;
    let mut line = String::new();
    if let Some(from) = node.stdout.take() {
        // What can't be read ends like a node that says nothing.
        let _ = from.take(LINE_BYTES).read_to_string(&mut line);
    }
    if let Some(note) = line.strip_suffix('\n') {
        if std::io::stderr().is_terminal() {
            out::note(note);
        }
        return Ok(());
    }
    let status = node.wait().map_err(|error| Fault::Local(format!("waiting for the node: {error}")))?;
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()), // --if-not-running, and one runs
        (Some(code), _) => Err(Fault::Status(u8::try_from(code).unwrap_or(super::fault::LOCAL))),
        (None, signal) => {
            let signal = signal.unwrap_or(0);
            out::note(&format!("signal {signal} ended the node before it listened"));
            Err(Fault::Status(u8::try_from(128 + signal).unwrap_or(super::fault::LOCAL)))
        }
    }
}

/// This program, under its name if it still has one: the process list shows it.
fn program() -> PathBuf {
    let own = PathBuf::from("/proc/self/exe");
    std::env::current_exe().ok().filter(|path| path.exists()).unwrap_or(own)
}

/// The first that a detached node does: no terminal's end is its own.
pub fn leave_session() {
    // It fails for a leader of its group, which only somebody is who used the hidden option by hand.
    let _ = rustix::process::setsid();
}

/// The last that one does before it is on its own: it lets go of everything that it was started with, and
/// says `note` to whoever waits.
///
/// # Errors
/// Nobody waits any more, or what it was started with can't be let go.
pub fn settle(note: &str) -> Result<(), String> {
    let doing = |what: &str, error: std::io::Error| format!("{what}: {error}");
    std::env::set_current_dir("/").map_err(|error| doing("changing to /", error))?;
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null");
    let null = null.map_err(|error| doing("opening /dev/null", error))?;
    let quiet = |error: rustix::io::Errno| doing("replacing standard error", error.into());
    rustix::stdio::dup2_stdin(&null).and_then(|()| rustix::stdio::dup2_stderr(&null)).map_err(quiet)?;
    let line = format!("{}\n", note.replace('\n', " "));
    // One piece: a pipe takes as much at once.
    rustix::io::write(rustix::stdio::stdout(), line.as_bytes())
        .and_then(|_| rustix::stdio::dup2_stdout(&null))
        .map_err(|error| doing("telling that the node listens", error.into()))
}
