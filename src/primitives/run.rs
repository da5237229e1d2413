//! Running a command for an agent: bounded in time and output, and nothing of it stays behind.
//!
//! The work is shared with the [supervisor](crate::supervise), a process a command: it starts the
//! command and ends everything that came of it; this side reads the output, watches the clock and
//! holds one end of a socket, whose closing, also by the node's death, means the end of it all.

use super::{deadline_after, with_partial};
use crate::agent::host::CallError;
use crate::log::clipped;
use crate::sandbox::Owner;
use crate::supervise::{self, tree, Report};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::pipe::{pipe_with, PipeFlags};
use rustix::process::{kill_process, Pid, Signal};
use serde::Serialize;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// So much of a command's standard output, and as much of its standard error, is kept: 1 MiB. The
/// rest is read and thrown away, so that the command does not stall.
pub const MAX_OUTPUT_BYTES: usize = 1024 * 1024;

/// How much of a program's name an error repeats, bytes.
const SHOWN: usize = 200;

/// How long the supervisor is waited for after the timeout: its own bound, and some more.
const GRACE: Duration = Duration::from_secs(7);

/// How long the processes of a supervisor that was killed are looked for.
const SWEEP_TIME: Duration = Duration::from_secs(1);

/// Where and how commands run.
#[derive(Debug, Clone, Copy)]
pub struct RunSetup<'a> {
    /// The binary that is executed as the supervisor: [`RunSetup::THIS_BINARY`], save in tests.
    pub supervisor: &'a Path,
    /// As whom it runs, if not as the node does.
    pub user: Option<Owner>,
    /// The command's working directory (the data root).
    pub directory: &'a Path,
    /// A folder whose files the command does not reach, where the kernel can keep it from them, but for those in
    /// `directory`: the state directory.
    pub hidden: Option<&'a Path>,
    /// The command's whole environment; nothing of the node's is added.
    pub environment: &'a [(String, String)],
}

impl RunSetup<'_> {
    /// The running binary itself, whatever became of its file.
    pub const THIS_BINARY: &'static str = "/proc/self/exe";
}

/// A small environment: a `PATH` of the system's directories, `HOME`, and UTF-8.
pub fn minimal_environment(home: &Path) -> Vec<(String, String)> {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    vec![
        pair("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        pair("HOME", &home.to_string_lossy()),
        pair("LANG", "C.UTF-8"),
    ]
}

/// What came of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunResult {
    /// The exit code, or minus the number of the signal that ended the command.
    pub returncode: i32,
    /// Its standard output, [`MAX_OUTPUT_BYTES`] at most; what is not UTF-8 is replaced by U+FFFD.
    pub stdout: String,
    /// Its standard error, likewise.
    pub stderr: String,
    /// There was more standard output.
    pub stdout_truncated: bool,
    /// There was more standard error.
    pub stderr_truncated: bool,
    /// Standard output was UTF-8, so that nothing was replaced.
    pub stdout_utf8: bool,
    /// Standard error was UTF-8.
    pub stderr_utf8: bool,
    /// Processes that it started and that could not be ended. 0, save when the kernel holds one
    /// (a dead network file system).
    pub left_running: u32,
}

/// Runs `command` (the program and its arguments; no shell) with empty standard input, for `timeout`
/// at most. When it ends, everything that it started and left running is ended too.
///
/// # Errors
/// - `bad_payload`: no command, a NUL in it, or a file that is no program
/// - `not_found`, `forbidden`: there is no such program, or it may not be executed
/// - `too_large`: the arguments are more than the system passes on
/// - `timeout`: the time was over; everything it started is gone; the detail is the [`RunResult`] so far
/// - `busy`: no process can be started at the moment
/// - `internal`: the supervisor could not be started or was killed
pub fn run(setup: &RunSetup<'_>, command: &[String], timeout: Duration) -> Result<RunResult, CallError> {
    let program = check(command)?;
    let deadline = deadline_after(timeout);
    let mut running = Running::start(setup, command).map_err(|error| explain_start(&error, program))?;
    let timed_out = running.watch(deadline);
    match running.finish() {
        (Some(Report::Ended { returncode, left }), stdout, stderr) => {
            let result = result(returncode, left, stdout, stderr);
            if timed_out {
                let message = format!("`{program}` was ended at its timeout of {} s", timeout.as_secs_f64());
                return Err(with_partial(CallError::new("timeout", message), &result));
            }
            Ok(result)
        }
        (Some(Report::Failed(errno)), ..) => Err(explain_exec(Errno::from_raw_os_error(errno), program)),
        (Some(Report::Broken(errno)), ..) => {
            let errno = Errno::from_raw_os_error(errno);
            Err(CallError::new("internal", format!("supervising `{program}`: {errno}")))
        }
        (_, stdout, stderr) => {
            let partial = result(-Signal::KILL.as_raw(), 0, stdout, stderr);
            let (code, what) = if timed_out {
                ("timeout", format!("`{program}` was ended at its timeout, and had stopped its supervisor"))
            } else {
                (
                    "internal",
                    format!("the process that supervises `{program}` was killed, and with it the command"),
                )
            };
            Err(with_partial(CallError::new(code, what), &partial))
        }
    }
}

fn check(command: &[String]) -> Result<&str, CallError> {
    let refuse = |what| Err(CallError::new("bad_payload", what));
    match command.first() {
        None => refuse("the command is empty; it is a list: the program and its arguments"),
        Some(program) if program.is_empty() => refuse("the program's name is empty"),
        Some(_) if command.iter().any(|word| word.contains('\0')) => {
            refuse("the command contains a NUL character")
        }
        Some(program) => Ok(clipped(program, SHOWN)),
    }
}

/// A command under way, as the node holds it.
struct Running {
    supervisor: Child,
    control: UnixStream,
    /// What came on the control socket and is not yet a line.
    pending: String,
    command_pid: Option<i32>,
    report: Option<Report>,
    stdout: Output,
    stderr: Output,
}

impl Running {
    fn start(setup: &RunSetup<'_>, command: &[String]) -> io::Result<Self> {
        let (control, theirs) = UnixStream::pair()?;
        control.set_nonblocking(true)?;
        let (stdout, stdout_end) = Output::pipe()?;
        let (stderr, stderr_end) = Output::pipe()?;
        let mut command_line = Command::new(setup.supervisor);
        command_line
            .arg(supervise::ARGUMENT)
            .arg(setup.user.map(|user| user.to_string()).unwrap_or_default())
            .arg(setup.hidden.unwrap_or(Path::new("")))
            .arg(setup.directory)
            .args(command)
            .env_clear()
            .envs(setup.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(setup.directory)
            .stdin(OwnedFd::from(theirs))
            .stdout(stdout_end)
            .stderr(stderr_end);
        let supervisor = tree::start_supervisor(&mut command_line)?;
        drop(command_line); // it holds the far ends of the socket and the pipes
        let pending = String::new();
        Ok(Running { supervisor, control, pending, command_pid: None, report: None, stdout, stderr })
    }

    /// Reads until the supervisor has reported or is gone; true if the deadline came first.
    fn watch(&mut self, deadline: Instant) -> bool {
        let mut until = deadline;
        let mut timed_out = false;
        loop {
            self.wait_for_input(until);
            self.stdout.read_some();
            self.stderr.read_some();
            let open = self.read_control();
            if self.report.is_some() || !open {
                return timed_out;
            }
            if Instant::now() < until {
                continue;
            }
            if timed_out {
                return true;
            }
            timed_out = true;
            until = Instant::now() + GRACE;
            // The end of the socket asks the supervisor to end everything. In case the command
            // stopped it, it is woken.
            let _ = self.control.shutdown(Shutdown::Write);
            let _ = kill_process(Pid::from_child(&self.supervisor), Signal::CONT);
        }
    }

    fn wait_for_input(&self, until: Instant) {
        let left = until.saturating_duration_since(Instant::now());
        // Rounded up to a millisecond, so that the last wait is not a row of empty ones.
        let timeout = Timespec::try_from(left + Duration::from_millis(1)).ok();
        let mut fds = vec![PollFd::new(&self.control, PollFlags::IN)];
        for output in [&self.stdout, &self.stderr] {
            fds.extend(output.pipe.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        }
        let _ = poll(&mut fds, timeout.as_ref()); // interrupted or not: the caller looks at everything
    }

    /// Takes what the supervisor said; false at the end of the socket.
    fn read_control(&mut self) -> bool {
        let mut bytes = [0; 256];
        let open = match rustix::io::read(&self.control, &mut bytes) {
            Ok(0) => false,
            Ok(n) => {
                self.pending.push_str(&String::from_utf8_lossy(&bytes[..n]));
                true
            }
            Err(Errno::AGAIN | Errno::INTR) => true,
            Err(_) => false,
        };
        while let Some(end) = self.pending.find('\n') {
            match Report::parse(&self.pending[..end]) {
                Some(Report::Started(pid)) => self.command_pid = Some(pid),
                Some(report) => self.report = Some(report),
                None => {}
            }
            self.pending.drain(..=end);
        }
        open
    }

    /// Collects the supervisor and the last of the output. Without a report it was killed, or does
    /// not answer: then what can still be recognised as its command's is ended from here.
    fn finish(mut self) -> (Option<Report>, Output, Output) {
        if self.report.is_none() {
            let _ = self.supervisor.kill();
            let sessions = [Some(self.supervisor.id() as i32), self.command_pid];
            let sessions: Vec<i32> = sessions.into_iter().flatten().collect();
            tree::end_sessions(&sessions, SWEEP_TIME);
            tree::collect_supervisor(&mut self.supervisor);
            // What had left its sessions came to the node, which is the next reaper above.
            tree::end_strays(SWEEP_TIME);
        } else {
            tree::collect_supervisor(&mut self.supervisor);
        }
        self.stdout.read_rest();
        self.stderr.read_rest();
        (self.report, self.stdout, self.stderr)
    }
}

/// One output stream of a command.
struct Output {
    pipe: Option<OwnedFd>,
    bytes: Vec<u8>,
    truncated: bool,
}

impl Output {
    fn pipe() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&ours, true)?; // ours only: the command's end keeps its mode
        Ok((Output { pipe: Some(ours), bytes: Vec::new(), truncated: false }, theirs))
    }

    /// Reads once; false when there is nothing to read at the moment, or any more.
    fn read_some(&mut self) -> bool {
        let Some(pipe) = &self.pipe else { return false };
        let mut piece = [0; 64 * 1024];
        match rustix::io::read(pipe.as_fd(), &mut piece) {
            Ok(0) => {
                self.pipe = None;
                false
            }
            Ok(n) => {
                let room = MAX_OUTPUT_BYTES - self.bytes.len();
                self.bytes.extend_from_slice(&piece[..n.min(room)]);
                self.truncated |= n > room;
                true
            }
            Err(Errno::INTR) => true,
            Err(Errno::AGAIN) => false,
            Err(_) => {
                self.pipe = None;
                false
            }
        }
    }

    /// Reads what is still in the pipe; bounded, should something that could not be ended go on
    /// writing (a pipe holds 1 MiB at most, unless root enlarged it).
    fn read_rest(&mut self) {
        let mut tries = 0;
        while tries < 64 && self.read_some() {
            tries += 1;
        }
    }

    /// The text, and whether it was UTF-8. A character that the bound cut in two is left out.
    fn into_text(mut self) -> (String, bool) {
        if self.truncated {
            if let Err(error) = std::str::from_utf8(&self.bytes) {
                if error.error_len().is_none() {
                    self.bytes.truncate(error.valid_up_to());
                }
            }
        }
        match String::from_utf8(self.bytes) {
            Ok(text) => (text, true),
            Err(error) => (String::from_utf8_lossy(error.as_bytes()).into_owned(), false),
        }
    }
}

fn result(returncode: i32, left_running: u32, stdout: Output, stderr: Output) -> RunResult {
    let (stdout_truncated, stderr_truncated) = (stdout.truncated, stderr.truncated);
    let (stdout, stdout_utf8) = stdout.into_text();
    let (stderr, stderr_utf8) = stderr.into_text();
    RunResult {
        returncode,
        stdout,
        stderr,
        stdout_truncated,
        stderr_truncated,
        stdout_utf8,
        stderr_utf8,
        left_running,
    }
}

/// Why the command could not be executed, as its supervisor found.
fn explain_exec(errno: Errno, program: &str) -> CallError {
    let (code, what) = match errno {
        Errno::NOENT | Errno::NOTDIR => {
            ("not_found", "was not found, or the interpreter that it names was not")
        }
        Errno::ACCESS | Errno::PERM => ("forbidden", "may not be executed by this node's user"),
        Errno::NOEXEC => {
            ("bad_payload", "is not a program that this system can execute (a script needs a `#!` line)")
        }
        Errno::NAMETOOLONG => ("bad_payload", "has a name longer than the system takes"),
        Errno::LOOP => ("bad_payload", "is a link that leads round in a circle"),
        Errno::TOOBIG => ("too_large", "has more arguments than the system passes on"),
        Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE => {
            ("busy", "cannot be started now: the system is short of processes, memory or descriptors")
        }
        _ => return CallError::new("internal", format!("executing `{program}`: {errno}")),
    };
    CallError::new(code, format!("the command `{program}` {what}"))
}

/// Why the supervisor could not be started: mostly what the command would have met too.
fn explain_start(error: &io::Error, program: &str) -> CallError {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(errno @ (Errno::TOOBIG | Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE)) => {
            explain_exec(errno, program)
        }
        _ => CallError::new(
            "internal",
            format!("starting the supervisor of `{program}` in the data root: {error}"),
        ),
    }
}
