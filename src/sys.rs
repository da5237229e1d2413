//! The named corner for system calls that no safe crate offers.
#![allow(unsafe_code)]

use std::ffi::{CString, OsString};
use std::time::{Duration, Instant};

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

/// Takes a variable out of the environment: what it was, if it was set. Its bytes are overwritten too, because
/// `/proc/PID/environ` shows for good what the process was started with. To be called before any thread is started.
pub fn take_variable(name: &str) -> Option<OsString> {
    let value = std::env::var_os(name)?;
    let c_name = CString::new(name).ok()?;
    // SAFETY: no other thread reads or changes the environment yet. getenv gives a string that ends with NUL in
    // memory which belongs to this process and may be written; only what stands before the NUL is.
    unsafe {
        let stands = libc::getenv(c_name.as_ptr());
        if !stands.is_null() {
            std::ptr::write_bytes(stands, b'-', libc::strlen(stands));
        }
    }
    std::env::remove_var(name);
    Some(value)
}

/// Signals held back from every thread that is started after [`Signals::block`], so that one thread can
/// wait for them.
pub struct Signals {
    set: libc::sigset_t,
}

/// The signals that end a command in good order.
pub const ENDING: [i32; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

impl Signals {
    /// Holds back `signals`. To be called before any thread is started: threads inherit it. So do programs,
    /// which therefore call [`unblock_signals`] when they start.
    ///
    /// One that is ignored already stays so, `nohup` and a shell's `&` mean it; but for those in `always`,
    /// which come all the same.
    pub fn block(signals: &[i32], always: &[i32]) -> std::io::Result<Signals> {
        let mut set = empty_set();
        let heeded = signals.iter().filter(|signal| !is_ignored(**signal));
        for signal in heeded.chain(always) {
            // SAFETY: `set` is an initialised signal set, `signal` the number of a signal.
            unsafe { libc::sigaddset(&mut set, *signal) };
        }
        set_mask(libc::SIG_BLOCK, &set)?;
        Ok(Signals { set })
    }

    /// Waits for one of them.
    pub fn wait(&self) -> i32 {
        loop {
            if let Some(signal) = self.wait_until(None) {
                return signal;
            }
        }
    }

    /// Waits for one of them, at most until `end`; then it is `None`.
    pub fn wait_until(&self, end: Option<Instant>) -> Option<i32> {
        loop {
            // Without an end: an hour at a time, because the C type of seconds has 32 bits on some systems.
            let hour = Duration::from_secs(3600);
            let left = end.map_or(hour, |end| end.saturating_duration_since(Instant::now()).min(hour));
            // SAFETY: all zero is a value of timespec, which on some systems has padding; its two members
            // are set next, and hold what they are given: at most an hour.
            let mut limit: libc::timespec = unsafe { std::mem::zeroed() };
            limit.tv_sec = left.as_secs() as _;
            limit.tv_nsec = left.subsec_nanos() as _;
            // SAFETY: the set and the limit are initialised and outlive the call; nothing else is asked for.
            let signal = unsafe { libc::sigtimedwait(&self.set, std::ptr::null_mut(), &limit) };
            if signal > 0 {
                return Some(signal);
            }
            // Time is up, or a signal came that is none of ours.
            if end.is_some_and(|end| Instant::now() >= end) {
                return None;
            }
        }
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

/// Whether a signal is ignored, as `nohup` has it.
pub fn is_ignored(signal: libc::c_int) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: nothing is set, only asked for; on success `action` is initialised, and only then read.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Whether an error says that the machine has no more descriptors, memory or processes to give just now.
pub fn is_starved(error: &std::io::Error) -> bool {
    let starved = [libc::EMFILE, libc::ENFILE, libc::EAGAIN, libc::ENOMEM, libc::ENOBUFS, libc::ETOOMANYREFS];
    error.kind() == STARVED || error.raw_os_error().is_some_and(|number| starved.contains(&number))
}

/// The kind that [`is_starved`] knows again when an error has been put into other words.
pub const STARVED: std::io::ErrorKind = std::io::ErrorKind::OutOfMemory;

/// Has the allocator give memory back that a long line took. By itself glibc keeps it: it raises the size from
/// which on a block is a mapping of its own, up to 32 MiB, each time that such a block is freed, and keeps
/// up to eight arenas a processor, each as large as it ever was. After thirty-two lines of 20 MB at once a
/// node of 5 MB stood at 580 MB for good. To be called before any thread is started.
///
/// Other allocators (musl's) unmap large blocks as they are freed.
pub fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    for (what, value) in [
        // Fixed: blocks from here on are mapped, and unmapped when they are freed.
        (libc::M_MMAP_THRESHOLD, LARGE_BLOCK),
        (libc::M_TRIM_THRESHOLD, 2 * LARGE_BLOCK),
        (libc::M_ARENA_MAX, MOST_ARENAS),
    ] {
        // SAFETY: mallopt sets a number in the allocator; it reads no memory of ours, and a value that it does
        // not take it refuses. No other thread allocates yet.
        unsafe { libc::mallopt(what, value) };
    }
}

/// From where on a block is a mapping of its own, bytes: as small as glibc has it at the start.
#[cfg(target_env = "gnu")]
const LARGE_BLOCK: libc::c_int = 128 << 10;
/// Threads that allocate at once mostly wait for something else; two processors rarely want more.
#[cfg(target_env = "gnu")]
const MOST_ARENAS: libc::c_int = 4;

/// How far local time is ahead of UTC at a moment (Unix seconds), in seconds. 0 where the system can't say.
pub fn utc_offset(at: i64) -> i64 {
    let mut told = std::mem::MaybeUninit::<libc::tm>::uninit();
    // On some systems it has 32 bits: beyond 2038 that is another offset at worst.
    let time = at as _;
    // SAFETY: both pointers are valid for the call; `told` is read only if the call has filled it.
    unsafe {
        match libc::localtime_r(&time, told.as_mut_ptr()).is_null() {
            true => 0,
            false => told.assume_init().tm_gmtoff as _,
        }
    }
}
