//! The process between the node and a command that an agent runs: it sees to it that nothing of
//! the command stays behind, whatever the command did and whoever dies first.
//!
//! The node executes itself as `agentcontainer __supervise COMMAND ARGUMENT…`, with the command's
//! directory, environment, standard output and standard error, and with a socket to the node as
//! standard input. The supervisor makes itself the reaper of all its descendants
//! (`PR_SET_CHILD_SUBREAPER`: who loses a parent becomes its child, also after `setsid` or a double
//! fork) and starts the command in a session of its own. When the command has ended, or the socket
//! does (the node gave up, or died), it ends every descendant, reports, and exits.
//!
//! On the socket it writes lines: `started PID`, then one of
//!
//! | line | meaning |
//! |---|---|
//! | `exited CODE LEFT` | the command ended; LEFT processes could not be ended (0, save when the kernel holds one) |
//! | `killed SIGNAL LEFT` | the same, by a signal |
//! | `failed ERRNO` | the command could not be executed |
//! | `broken ERRNO` | the supervisor could not do its work |
//!
//! The command cannot gain privileges (`no_new_privs`): a setuid program would run as somebody
//! whose processes the node may not end.

pub(crate) mod tree;

pub use tree::reap_below;

use crate::sandbox::{self, kernel, Owner};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::{fcntl_dupfd_cloexec, Errno};
use rustix::process::{Pid, PidfdFlags, WaitOptions, WaitStatus};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The hidden first argument under which the binary is a supervisor.
pub const ARGUMENT: &str = "__supervise";

/// How long ending everything may take before the supervisor reports what it could not end.
pub(crate) const KILL_TIME: Duration = Duration::from_secs(5);

/// How often orphans that ended by themselves are collected while the command runs.
const REAP_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };

/// The same where the kernel has no pidfd (before 5.3), so that the command's end is seen soon.
const REAP_WITHOUT_PIDFD: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// What the supervisor tells the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// The command runs, as this process.
    Started(i32),
    /// It ended: exit code, or minus the signal; and how many processes could not be ended.
    Ended { returncode: i32, left: u32 },
    /// It could not be executed.
    Failed(i32),
    /// Something else went wrong.
    Broken(i32),
}

impl Report {
    fn to_line(self) -> String {
        match self {
            Report::Started(pid) => format!("started {pid}\n"),
            Report::Ended { returncode, left } if returncode < 0 => {
                format!("killed {} {left}\n", -returncode)
            }
            Report::Ended { returncode, left } => format!("exited {returncode} {left}\n"),
            Report::Failed(errno) => format!("failed {errno}\n"),
            Report::Broken(errno) => format!("broken {errno}\n"),
        }
    }

    /// Reads one line, without its end; `None` if it is none of ours.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let word = words.next()?;
        let mut number = || words.next()?.parse::<i32>().ok();
        Some(match word {
            "started" => Report::Started(number()?),
            "exited" => Report::Ended { returncode: number()?, left: number()?.try_into().ok()? },
            "killed" => Report::Ended { returncode: -number()?, left: number()?.try_into().ok()? },
            "failed" => Report::Failed(number()?),
            "broken" => Report::Broken(number()?),
            _ => return None,
        })
    }
}

/// Supervises the command that the process's arguments name, and exits.
pub fn main() -> ! {
    let report = supervise().unwrap_or_else(|errno| Report::Broken(errno.raw_os_error()));
    tell(report);
    std::process::exit(0)
}

fn supervise() -> Result<Report, Errno> {
    // The node holds back the signals that it waits for; a command must not.
    crate::sys::unblock_signals();
    descriptors::close_from(3);
    // Out of the node's session: Ctrl-C at the node's terminal is not for us.
    let _ = rustix::process::setsid();
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    rustix::thread::set_no_new_privs(true)?;

    let mut arguments = std::env::args_os().skip(2);
    let user = arguments.next().unwrap_or_default();
    let (hidden, shown) = (arguments.next().unwrap_or_default(), arguments.next().unwrap_or_default());
    if !hidden.is_empty() {
        let (hidden, shown) = (Path::new(&hidden), Path::new(&shown));
        let kept = sandbox::freeze(hidden, shown).and_then(|_| sandbox::hide(hidden, shown));
        kept.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::PERM))?;
    }
    if !user.is_empty() {
        let user = user.to_str().and_then(Owner::parse).ok_or(Errno::INVAL)?;
        kernel::become_user(user.uid, user.gid)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::PERM))?;
    }
    let mut command = Command::new(arguments.next().unwrap_or_default());
    command.args(arguments).stdin(Stdio::null());
    session::start_in_own(&mut command, fcntl_dupfd_cloexec(std::io::stdin().as_fd(), 3)?);
    let pid = match command.spawn() {
        Ok(child) => Pid::from_child(&child),
        Err(error) => return Ok(Report::Failed(error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error()))),
    };
    let mut status = None;
    let mut keep = |ended: Pid, how: WaitStatus| {
        if ended == pid {
            status = Some(returncode(how));
        }
    };
    wait_for_end(pid, &mut keep);
    let left = tree::end_descendants(KILL_TIME, &mut keep);
    // Without a status the command itself could not be ended in time.
    let returncode = status.unwrap_or(-rustix::process::Signal::KILL.as_raw());
    Ok(Report::Ended { returncode, left: u32::try_from(left).unwrap_or(u32::MAX) })
}

/// Returns when the command has ended or the node does not want it any more.
fn wait_for_end(command: Pid, reaped: &mut impl FnMut(Pid, WaitStatus)) {
    let pidfd: Option<OwnedFd> = rustix::process::pidfd_open(command, PidfdFlags::empty()).ok();
    let tick = if pidfd.is_some() { REAP_EVERY } else { REAP_WITHOUT_PIDFD };
    let node = std::io::stdin();
    loop {
        let mut over = false;
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            over |= pid == command;
            reaped(pid, status);
        }
        if over {
            return;
        }
        let mut fds = vec![PollFd::from_borrowed_fd(node.as_fd(), PollFlags::IN)];
        fds.extend(pidfd.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)));
        match poll(&mut fds, Some(&tick)) {
            // The node never writes: readable means that its end is shut.
            Ok(_) if !fds[0].revents().is_empty() => return,
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// As Python's `subprocess` has it: minus the signal for a command that one ended.
fn returncode(status: WaitStatus) -> i32 {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => -signal,
        (None, None) => -1, // not a status that a wait without WUNTRACED gives
    }
}

fn tell(report: Report) {
    let stdin = std::io::stdin();
    let node: BorrowedFd<'_> = stdin.as_fd();
    // A node that is gone is not told; SIGPIPE is ignored by Rust's runtime.
    let _ = rustix::io::write(node, report.to_line().as_bytes());
}

/// Closing what a parent left open.
#[allow(unsafe_code)]
mod descriptors {
    /// Closes every descriptor from `first` on.
    pub fn close_from(first: u32) {
        // SAFETY: close_range takes numbers only. Nothing in this process owns a descriptor above
        // the standard ones yet: this is the first thing that the supervisor does.
        if unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) } == 0 {
            return;
        }
        // Before Linux 5.9: one by one, as far as /proc tells or by guess.
        let open: Vec<i32> = match std::fs::read_dir("/proc/self/fd") {
            Ok(entries) => {
                entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
            }
            Err(_) => (0..65_536).collect(),
        };
        for fd in open.into_iter().filter(|&fd| fd >= first as i32) {
            // SAFETY: as above; the number may already be closed, which gives EBADF.
            unsafe { libc::close(fd) };
        }
    }
}

/// The command's session.
#[allow(unsafe_code)]
mod session {
    use rustix::process::Signal;
    use std::io::Write;
    use std::os::fd::OwnedFd;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    /// Makes the command start in a new session. One of its own, not the supervisor's, because the
    /// kernel may share the CPU between sessions (autogroups): a fork bomb then leaves the
    /// supervisor its half.
    ///
    /// The command's own process tells the node which it is, before it becomes the command: one that
    /// kills its supervisor at once would otherwise leave the node without its session's number.
    pub fn start_in_own(command: &mut Command, node: OwnedFd) {
        // SAFETY: between fork and exec the closure makes a few system calls and formats a number into
        // a buffer on its stack; it neither allocates nor takes a lock, and the process has a single
        // thread anyway.
        unsafe {
            command.pre_exec(move || {
                rustix::process::setsid()?;
                let mut line = [0u8; 32];
                let mut rest = &mut line[..];
                writeln!(rest, "started {}", rustix::process::getpid().as_raw_nonzero())?;
                let left = rest.len();
                rustix::io::write(&node, &line[..line.len() - left])?;
                // Not relied on: it covers a supervisor that was itself killed.
                rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
                Ok(())
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Report;

    #[test]
    fn reports_survive_the_line() {
        let reports = [
            Report::Started(17),
            Report::Ended { returncode: 3, left: 0 },
            Report::Ended { returncode: -9, left: 2 },
            Report::Failed(2),
            Report::Broken(22),
        ];
        for report in reports {
            assert_eq!(Report::parse(report.to_line().trim_end()), Some(report));
        }
        for noise in ["", "started", "exited x 0", "exited 0 -1", "killed 9", "hello 1 2"] {
            assert_eq!(Report::parse(noise), None, "{noise}");
        }
    }
}
