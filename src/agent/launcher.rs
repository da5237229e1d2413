//! The hidden command `__launch`: turns a fresh copy of this program into the zygote.
//!
//! It runs single-threaded, right after exec, so that what it sets (death signal, subreaper,
//! no_new_privs; later: namespaces, Landlock, seccomp) holds for the interpreter and everything it
//! forks, without any code between fork and exec in the threaded node.

use rustix::fs::{memfd_create, MemfdFlags};
use rustix::io::{fcntl_dupfd_cloexec, fcntl_setfd, FdFlags};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// First argument of the hidden command.
pub const COMMAND: &str = "__launch";

/// The bridge, as it is handed to the interpreter.
const BRIDGE: &str = include_str!("agentctx.py");

/// Reads the bridge from its memory file, makes it the module `agentctx`, and becomes the zygote.
const STUB: &str = "import sys, types
with open(int(sys.argv[1]), encoding='utf-8') as file:
    source = file.read()
module = sys.modules['agentctx'] = types.ModuleType('agentctx')
exec(compile(source, '<agentctx>', 'exec', 0, True), module.__dict__)
module.zygote(int(sys.argv[2]))
";

/// Runs the hidden command: `__launch PYTHON [FLAG…]`, the control socket as standard input.
/// Returns only if the interpreter could not be started.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> i32 {
    let Some(python) = arguments.next() else { return 2 };
    let error = match prepare() {
        Ok((bridge, control)) => {
            let mut command = Command::new(&python);
            command.args(arguments).arg("-c").arg(STUB);
            command.arg(bridge.as_raw_fd().to_string()).arg(control.as_raw_fd().to_string());
            command.stdin(std::process::Stdio::null());
            command.exec()
        }
        Err(error) => error,
    };
    eprintln!("starting {}: {error}", python.display());
    127
}

fn prepare() -> io::Result<(File, OwnedFd)> {
    // The node holds back the signals that it waits for; an agent must not.
    crate::sys::unblock_signals();
    // The node dies, the zygote is told, ends what is below it and itself; the zygote dies, its workers die.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
    // What an agent's process leaves behind comes to the zygote, which reaps it.
    rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1))?;
    rustix::thread::set_no_new_privs(true)?;
    let control = fcntl_dupfd_cloexec(io::stdin().as_fd(), 3)?;
    let mut bridge = File::from(memfd_create("agentctx", MemfdFlags::CLOEXEC)?);
    bridge.write_all(BRIDGE.as_bytes())?;
    bridge.rewind()?;
    crate::sys::close_on_exec_from(3);
    for fd in [bridge.as_fd(), control.as_fd()] {
        fcntl_setfd(fd, FdFlags::empty())?;
    }
    Ok((bridge, control))
}
