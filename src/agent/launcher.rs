//! The hidden command `__launch`: turns a fresh copy of this program into the zygote.
//!
//! It runs single-threaded, right after exec, so that what it sets (namespaces, no capabilities, death
//! signal, subreaper, no_new_privs, the general seccomp filter) holds for the interpreter and everything it
//! forks, without any code between fork and exec in the threaded node.

use crate::sandbox::{self, filter, kernel, Owner};
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

/// Runs the hidden command: `__launch PLAN PYTHON [FLAG…]`, the control socket as standard input.
/// Returns only if the interpreter could not be started.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> i32 {
    let (Some(plan), Some(python)) = (arguments.next(), arguments.next()) else { return 2 };
    let plan = plan.to_string_lossy();
    let error = match prepare(&plan.split(',').collect::<Vec<_>>()) {
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

/// `plan` is what the sandbox wants done here (`Sandbox::launcher_plan`).
fn prepare(plan: &[&str]) -> io::Result<(File, OwnedFd)> {
    let plans = |word: &str| plan.contains(&word);
    // The node holds back the signals that it waits for; an agent must not.
    crate::sys::unblock_signals();
    if let Some(user) = plan.iter().find_map(|word| word.strip_prefix("user=")) {
        let user = Owner::parse(user).ok_or(io::ErrorKind::InvalidInput)?;
        kernel::become_user(user.uid, user.gid)?;
    }
    // Before the death signal is set: a process whose rights change loses it.
    let mut missing = Vec::new();
    if plans("namespaces") {
        missing.extend(enter_namespaces(plans("lacks-namespaces")).err());
        kernel::drop_capabilities();
    }
    // The node dies, the zygote is told, ends what is below it and itself; the zygote dies, its workers die.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
    // What an agent's process leaves behind comes to the zygote, which reaps it.
    rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1))?;
    rustix::thread::set_no_new_privs(true)?;
    let control = fcntl_dupfd_cloexec(io::stdin().as_fd(), 3)?;
    let mut bridge = File::from(memfd_create("agentctx", MemfdFlags::CLOEXEC)?);
    bridge.write_all(BRIDGE.as_bytes())?;
    if !plans("off") {
        bridge.write_all(sandbox::filters_for_python().as_bytes())?;
        let namespace = if plans("namespaces") && missing.is_empty() { "True" } else { "False" };
        let missing = serde_json::Value::from(missing).to_string();
        let has_ctypes = if plans("lacks-ctypes") { "False" } else { "True" };
        // A JSON list of strings is one in Python too.
        writeln!(bridge, "SANDBOX.update(missing={missing}, ctypes={has_ctypes}, namespace={namespace})")?;
    }
    bridge.rewind()?;
    crate::sys::close_on_exec_from(3);
    for fd in [bridge.as_fd(), control.as_fd()] {
        fcntl_setfd(fd, FdFlags::empty())?;
    }
    if plans("filter") {
        kernel::load_filter(&filter::general())?;
    }
    Ok((bridge, control))
}

/// Own user, IPC and UTS namespaces, with this user's and group's numbers as they are. Tried in a child
/// first: where the kernel lets a process in and then refuses its numbers, there is no way back.
///
/// # Errors
/// What is missing, and why, for the operator.
fn enter_namespaces(lacking: bool) -> Result<(), String> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let enter = || -> io::Result<()> {
        kernel::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS)?;
        std::fs::write("/proc/self/setgroups", "deny")?;
        std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
    };
    if !lacking && kernel::in_a_child(|| enter().is_ok()) && enter().is_ok() {
        return Ok(());
    }
    Err("no user namespace of its own, because this system does not let the node's user make one".into())
}
