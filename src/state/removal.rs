//! Removing a directory with all that is in it, however deep it is.
//!
//! The standard library goes down by recursion, with a stack frame and a descriptor a level. What an agent has
//! nested deep enough would end the node that way. Here the folders in a folder are moved up to the top until
//! none holds another, so that both stay as they are, whatever the depth.

use rustix::fs::{openat, renameat, unlinkat, AtFlags, Dir, Mode, OFlags, CWD};
use rustix::io::Errno;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Removes a directory and what is in it. No link is followed; one in the directory's own place is removed itself.
///
/// # Errors
/// What the system says; what could be removed before is gone.
pub fn remove_tree(dir: &Path) -> io::Result<()> {
    let name = rustix::path::Arg::into_c_str(dir)?;
    match open(CWD, &name) {
        Ok(top) => empty(&top)?,
        Err(Errno::LOOP | Errno::NOTDIR) => return Ok(unlinkat(CWD, &*name, AtFlags::empty())?),
        Err(error) => return Err(error.into()),
    }
    Ok(unlinkat(CWD, &*name, AtFlags::REMOVEDIR)?)
}

/// Each pass leaves what the folders of the last one held; the last pass finds nothing.
fn empty(top: &OwnedFd) -> Result<(), Errno> {
    let mut moved = 0u64;
    loop {
        let mut found = false;
        for entry in Dir::read_from(top)? {
            let entry = entry?;
            let name = entry.file_name();
            if is_itself(name) || removed(top.as_fd(), name)? {
                continue;
            }
            found = true;
            raise(top.as_fd(), name, &mut moved)?;
        }
        if !found {
            return Ok(());
        }
    }
}

/// Removes what is in a folder of the top one, but moves the folders that hold something up beside it; then the
/// folder.
fn raise(top: BorrowedFd<'_>, name: &CStr, moved: &mut u64) -> Result<(), Errno> {
    let folder = open(top, name)?;
    loop {
        let mut found = false;
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            let below = entry.file_name();
            if is_itself(below) {
                continue;
            }
            found = true;
            if !removed(folder.as_fd(), below)? {
                move_up(folder.as_fd(), below, top, moved)?;
            }
        }
        if !found {
            break; // a listing may pass over what stands where something was removed meanwhile
        }
    }
    match unlinkat(top, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}

/// True if it has gone; false for a folder that holds something.
fn removed(folder: BorrowedFd<'_>, name: &CStr) -> Result<bool, Errno> {
    match unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(true),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error),
    }
    match unlinkat(folder, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(error) => Err(error),
    }
}

fn move_up(folder: BorrowedFd<'_>, name: &CStr, top: BorrowedFd<'_>, moved: &mut u64) -> Result<(), Errno> {
    let mut opened = false;
    loop {
        *moved += 1;
        match renameat(folder, name, top, format!(".gone.{moved}")) {
            // Something has that name already.
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR | Errno::ISDIR) => {}
            // Moving a folder changes it, so that its mode counts.
            Err(Errno::ACCESS) if !opened => {
                opened = true;
                open_up(folder, name)?;
            }
            done => return done,
        }
    }
}

/// Opens a folder, also one whose owner has closed it to itself.
fn open(at: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    match openat(at, name, FOLDER, Mode::empty()) {
        Err(Errno::ACCESS) => {
            open_up(at, name)?;
            openat(at, name, FOLDER, Mode::empty())
        }
        // The mode may still forbid removing what is in it; that shows where it is tried.
        Ok(folder) => {
            let told = rustix::fs::fstat(&folder)?;
            if Mode::from_raw_mode(told.st_mode) & Mode::RWXU != Mode::RWXU {
                let _ = rustix::fs::fchmod(&folder, Mode::RWXU); // somebody else's is not ours to open
            }
            Ok(folder)
        }
        Err(error) => Err(error),
    }
}

fn open_up(at: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place = openat(at, name, flags, Mode::empty())?;
    rustix::fs::chmod(format!("/proc/self/fd/{}", place.as_raw_fd()), Mode::RWXU)
}

fn is_itself(name: &CStr) -> bool {
    name == c"." || name == c".."
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;
    use std::fs;
    use std::os::unix::fs::{symlink, PermissionsExt};

    /// More levels than a thread's stack or its descriptors would carry.
    const DEEP: usize = 10_000;

    #[test]
    fn a_directory_of_any_depth_goes() {
        let top = TempDir::new("deep");
        let dir = top.path().join("state");
        fs::create_dir(&dir).unwrap();
        let mut here = open(CWD, &rustix::path::Arg::into_c_str(dir.as_path()).unwrap()).unwrap();
        for _ in 0..DEEP {
            rustix::fs::mkdirat(&here, "d", Mode::RWXU).unwrap();
            here = openat(&here, "d", FOLDER, Mode::empty()).unwrap();
        }
        drop(here);
        let small = std::thread::Builder::new().stack_size(256 << 10);
        small.spawn(move || remove_tree(&dir)).unwrap().join().unwrap().unwrap();
        assert!(!top.path().join("state").exists());
    }

    #[test]
    fn links_names_that_are_taken_and_closed_folders_are_no_hindrance() {
        let top = TempDir::new("odd");
        let dir = top.path().join("state");
        let kept = top.path().join("kept");
        fs::create_dir_all(kept.join("inside")).unwrap();
        fs::write(kept.join("file"), "x").unwrap();
        fs::create_dir_all(dir.join("a/b/c/d")).unwrap();
        fs::create_dir_all(dir.join("a/closed/c/d")).unwrap();
        fs::write(dir.join(".gone.1"), "a file").unwrap();
        fs::create_dir_all(dir.join(".gone.2/full")).unwrap();
        symlink(&kept, dir.join("a/b/link")).unwrap();
        symlink(&kept, dir.join("link")).unwrap();
        rustix::fs::mkfifoat(CWD, dir.join("a/fifo"), Mode::RUSR).unwrap();
        fs::set_permissions(dir.join("a/closed"), fs::Permissions::from_mode(0o000)).unwrap();
        remove_tree(&dir).unwrap();
        assert!(!dir.exists());
        assert!(kept.join("inside").is_dir() && kept.join("file").is_file());
        symlink(&kept, &dir).unwrap();
        remove_tree(&dir).unwrap();
        assert!(dir.symlink_metadata().is_err() && kept.join("file").is_file());
        assert_eq!(remove_tree(&dir).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
