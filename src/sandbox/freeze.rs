//! Keeps a command from changing modes, owners and times of the node's files, which Landlock does not cover.

use super::kernel;
use rustix::fs::{statvfs, StatVfsMountFlags};
use rustix::mount::{mount_bind, mount_change, mount_remount, MountFlags, MountPropagationFlags};
use std::io;
use std::path::Path;

/// Makes all that is in `hidden`, but not in `shown`, read-only for the calling process and what it starts, by mounts
/// of its own; it works in `shown` afterwards. Takes the right to mount, which root has unless it is in a container:
/// without it nothing is done, and false returned. Landlock, which comes afterwards, keeps the mounts as they are.
///
/// # Errors
/// What the kernel says of a step after the first.
pub fn freeze(hidden: &Path, shown: &Path) -> io::Result<bool> {
    // An ordinary user could have the right in a namespace of users of its own, where it would know no other user:
    // `ps` and `ls` would show other names.
    if kernel::unshare(libc::CLONE_NEWNS).is_err() {
        return Ok(false);
    }
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    mount_bind(hidden, hidden)?;
    if shown.starts_with(hidden) {
        mount_bind(shown, shown)?;
    }
    mount_remount(hidden, MountFlags::BIND | MountFlags::RDONLY | kept(hidden)?, "")?;
    // A working directory is on the mount that it was opened on.
    std::env::set_current_dir(shown)?;
    Ok(true)
}

/// The flags that a remount would drop.
fn kept(place: &Path) -> io::Result<MountFlags> {
    let told = statvfs(place)?.f_flag;
    let pairs = [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ];
    let held = pairs.into_iter().filter(|(flag, _)| told.contains(*flag));
    Ok(held.fold(MountFlags::empty(), |all, (_, flag)| all | flag))
}
