//! The named corner for system calls that no safe crate offers.
#![allow(unsafe_code)]

/// Marks every descriptor from `first` on close-on-exec, so that nothing the node was started with
/// reaches a program that it starts. Best effort: kernels before 5.11 lack the flag, and then the
/// descriptors listed in `/proc/self/fd` are marked one by one.
pub fn close_on_exec_from(first: u32) {
    // SAFETY: close_range with CLOSE_RANGE_CLOEXEC only sets a flag on descriptors; no memory is
    // passed, and no descriptor that Rust code owns is closed before exec.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, CLOSE_RANGE_CLOEXEC) };
    if done == 0 {
        return;
    }
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
    for entry in entries.flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        if let Some(number) = number.filter(|number| *number >= first as i32) {
            // SAFETY: F_SETFD on a number that may be stale at worst fails with EBADF.
            unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
}

/// From linux/close_range.h; the musl headers lack it.
const CLOSE_RANGE_CLOEXEC: libc::c_uint = 4;

/// The signals that end a command in good order, held back from every thread that is started after
/// [`Signals::block`], so that one thread can wait for them.
pub struct Signals {
    set: libc::sigset_t,
}

impl Signals {
    /// Holds back SIGTERM, SIGINT and SIGHUP. To be called before any thread is started: threads
    /// inherit it. So do programs, which therefore call [`unblock_signals`] when they start.
    ///
    /// One that is ignored already stays so: `nohup` and a shell's `&` mean it.
    pub fn block() -> std::io::Result<Signals> {
        let mut set = empty_set();
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            if !is_ignored(signal) {
                // SAFETY: `set` is an initialised signal set, `signal` the number of a signal.
                unsafe { libc::sigaddset(&mut set, signal) };
            }
        }
        set_mask(libc::SIG_BLOCK, &set)?;
        Ok(Signals { set })
    }

    /// Waits for one of them.
    pub fn wait(&self) -> i32 {
        let mut signal = 0;
        // SAFETY: both pointers are to values that outlive the call. It fails only for a set that is
        // none, and with EINTR on some systems.
        while unsafe { libc::sigwait(&self.set, &mut signal) } != 0 {}
        signal
    }
}

/// Lets every signal through again: the mask outlives `exec`, and whatever this process becomes or
/// starts could not be ended by SIGTERM otherwise.
pub fn unblock_signals() {
    // It can only fail for a set or an order that is none.
    let _ = set_mask(libc::SIG_SETMASK, &empty_set());
}

fn set_mask(how: libc::c_int, set: &libc::sigset_t) -> std::io::Result<()> {
    // SAFETY: `set` is initialised and outlives the call; the old mask is not asked for.
    match unsafe { libc::pthread_sigmask(how, set, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(std::io::Error::from_raw_os_error(error)),
    }
}

fn empty_set() -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises what it is given, and cannot fail for a valid pointer.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

fn is_ignored(signal: libc::c_int) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: nothing is set, only asked for; on success `action` is initialised, and only then read.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}
