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
