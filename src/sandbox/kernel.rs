//! The named corner for the system calls of the sandbox.
#![allow(unsafe_code)]

use super::filter::Instruction;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The same on every architecture.
const LANDLOCK_CREATE_RULESET: libc::c_long = 444;
const LANDLOCK_ADD_RULE: libc::c_long = 445;
const LANDLOCK_RESTRICT_SELF: libc::c_long = 446;

const CREATE_RULESET_VERSION: u32 = 1;
const RULE_PATH_BENEATH: libc::c_int = 1;

/// What a ruleset handles; of an older kernel only the first members are known.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Handled {
    /// Access to files.
    pub files: u64,
    /// Access to TCP ports.
    pub net: u64,
    /// What does not reach out of the domain.
    pub scoped: u64,
}

#[repr(C, packed)]
struct PathBeneath {
    access: u64,
    parent: i32,
}

/// The version of Landlock's interface; 0 where there is none.
pub fn landlock_version() -> u32 {
    // SAFETY: with this flag the call takes no memory and only answers a number.
    let version = unsafe {
        libc::syscall(LANDLOCK_CREATE_RULESET, std::ptr::null::<Handled>(), 0usize, CREATE_RULESET_VERSION)
    };
    u32::try_from(version).unwrap_or(0)
}

/// A new ruleset; `size` is how many bytes of `handled` this kernel knows.
pub fn landlock_ruleset(handled: &Handled, size: usize) -> io::Result<OwnedFd> {
    let size = size.min(size_of::<Handled>());
    // SAFETY: `handled` is valid for `size` bytes, which the kernel only reads.
    let fd = unsafe { libc::syscall(LANDLOCK_CREATE_RULESET, handled as *const Handled, size, 0u32) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us; nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Allows `access` to what `parent` is, and below.
pub fn landlock_allow(ruleset: BorrowedFd<'_>, parent: BorrowedFd<'_>, access: u64) -> io::Result<()> {
    let rule = PathBeneath { access, parent: parent.as_raw_fd() };
    // SAFETY: `rule` has the layout that this kind of rule has, and is only read.
    let done = unsafe {
        libc::syscall(
            LANDLOCK_ADD_RULE,
            ruleset.as_raw_fd(),
            RULE_PATH_BENEATH,
            &rule as *const PathBeneath,
            0u32,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Puts the calling thread, and what it starts, under a ruleset. Needs no_new_privs.
pub fn landlock_restrict(ruleset: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a descriptor and a number; no memory is passed.
    match unsafe { libc::syscall(LANDLOCK_RESTRICT_SELF, ruleset.as_raw_fd(), 0u32) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether the kernel has seccomp filters.
pub fn has_filters() -> bool {
    // SAFETY: a null program is refused, with EFAULT where filters are known and EINVAL where not; nothing
    // is read or changed.
    let refused = unsafe { libc::prctl(libc::PR_SET_SECCOMP, 2, std::ptr::null::<libc::sock_fprog>(), 0, 0) };
    refused == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT)
}

/// Loads a filter for the calling thread and what it starts. Needs no_new_privs.
pub fn load_filter(program: &[Instruction]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?,
        filter: program.as_ptr() as *mut libc::sock_filter,
    };
    // SAFETY: `Instruction` has the layout of `sock_filter`; the kernel reads `len` of them and keeps a copy.
    match unsafe { libc::prctl(libc::PR_SET_SECCOMP, 2, &program as *const libc::sock_fprog, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Puts the calling process into new namespaces.
pub fn unshare(flags: libc::c_int) -> io::Result<()> {
    // SAFETY: changes this process only; it has a single thread, and passes no memory.
    match unsafe { libc::unshare(flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes the calling process another user's, for good. It has a single thread.
///
/// # Errors
/// What the kernel says; then it is not to go on.
pub fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: numbers only, and no groups at a null pointer with a length of 0. The groups go first: afterwards
    // they can't be changed.
    let done = unsafe {
        libc::setgroups(0, std::ptr::null()) == 0
            && libc::setresgid(gid, gid, gid) == 0
            && libc::setresuid(uid, uid, uid) == 0
    };
    if !done {
        return Err(io::Error::last_os_error());
    }
    // What is in /proc/self is root's after this change, and this process writes there.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable)?;
    Ok(())
}

/// Takes every capability out of the bounding set, so that no program that is executed gains one.
pub fn drop_capabilities() {
    for capability in 0..64 {
        // SAFETY: numbers only. One that does not exist, or that is not ours to drop, is an error that
        // changes nothing.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
    }
    // SAFETY: as above: what would be handed on beside the bounding set (PR_CAP_AMBIENT_CLEAR_ALL).
    unsafe { libc::prctl(libc::PR_CAP_AMBIENT, 4, 0, 0, 0) };
}

/// Runs `attempt` in a child that ends with it; whether it answered true. Only for a process with a single
/// thread.
pub fn in_a_child(attempt: impl FnOnce() -> bool) -> bool {
    // SAFETY: the process has a single thread, so that the child's copy of it is whole; the child leaves by
    // `_exit` and runs no destructor of its parent's.
    match unsafe { libc::fork() } {
        0 => {
            let done = attempt();
            // SAFETY: ends the child, at once.
            unsafe { libc::_exit(i32::from(!done)) }
        }
        -1 => false,
        child => {
            let mut status = 0;
            // SAFETY: `status` is ours and outlives the call.
            while unsafe { libc::waitpid(child, &mut status, 0) } < 0 {
                if io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
                    return false;
                }
            }
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
        }
    }
}
