//! The user as whom agents run where the node is root's (`agent_user`): finding it, and handing it what is an agent's.

use rustix::fs::{chownat, openat, statat, AtFlags, Dir, FileType, Mode, OFlags, CWD};
use rustix::process::{Gid, Uid};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// How deep an agent's folders are handed over; what is deeper stays root's, and the agent sees an error.
const DEPTH: usize = 64;

/// A user and a group: as [`Owner::find`] gives them, none of them root's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The user's number.
    pub uid: u32,
    /// The group's.
    pub gid: u32,
}

impl fmt::Display for Owner {
    /// In the form that [`Owner::parse`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}

impl Owner {
    /// A user by its name in `/etc/passwd`, or by numbers, `UID:GID`.
    ///
    /// # Errors
    /// There is no such user, or it is root.
    pub fn find(text: &str) -> Result<Owner, String> {
        let owner = match Owner::parse(text) {
            Some(owner) => owner,
            None => {
                let users = std::fs::read("/etc/passwd").unwrap_or_default();
                of_passwd(&String::from_utf8_lossy(&users), text).ok_or_else(|| {
                    format!("there is no user {text:?} in /etc/passwd; others are given as UID:GID")
                })?
            }
        };
        match owner {
            Owner { uid: 0, .. } | Owner { gid: 0, .. } => {
                Err(format!("{text:?} is root, or of root's group, and agents must not be"))
            }
            owner => Ok(owner),
        }
    }

    /// `UID:GID`.
    pub fn parse(text: &str) -> Option<Owner> {
        let (uid, gid) = text.split_once(':')?;
        Some(Owner { uid: uid.parse().ok()?, gid: gid.parse().ok()? })
    }

    /// Gives this user an agent's own directory with all that is in it, and the way to it from `top`, the node's
    /// state directory, where it may pass and see nothing. One that is the user's already costs one look.
    ///
    /// Called before the agent has a process: nobody changes the names meanwhile. No link is followed.
    ///
    /// # Errors
    /// What the system says.
    pub fn hand_over(self, dir: &Path, top: &Path) -> io::Result<()> {
        for folder in dir.ancestors().skip(1).take_while(|folder| folder.starts_with(top)) {
            let mode = folder.metadata()?.permissions().mode();
            if mode & 0o111 != 0o111 {
                std::fs::set_permissions(folder, std::fs::Permissions::from_mode((mode & 0o7777) | 0o111))?;
            }
        }
        self.give(dir)
    }

    fn give(self, dir: &Path) -> io::Result<()> {
        let told = dir.symlink_metadata()?;
        if told.uid() == self.uid && told.gid() == self.gid {
            return Ok(());
        }
        // The directory itself comes last: its owner says that what is in it is done.
        let open = openat(CWD, dir, FOLDER, Mode::empty())?;
        self.hand_over_below(open.as_fd(), DEPTH)?;
        Ok(rustix::fs::fchown(&open, self.user(), self.group())?)
    }

    fn hand_over_below(self, folder: BorrowedFd<'_>, depth: usize) -> io::Result<()> {
        for entry in Dir::read_from(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let told = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if FileType::from_raw_mode(told.st_mode) == FileType::Directory && depth > 0 {
                let below = openat(folder, name, FOLDER, Mode::empty())?;
                self.hand_over_below(below.as_fd(), depth - 1)?;
            }
            chownat(folder, name, self.user(), self.group(), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }

    fn user(self) -> Option<Uid> {
        Some(Uid::from_raw(self.uid))
    }

    fn group(self) -> Option<Gid> {
        Some(Gid::from_raw(self.gid))
    }
}

/// Gives an agent's own directory back to the node's user: it was another's while the configuration had an
/// `agent_user`. Only root may, and only root's nodes had one.
///
/// # Errors
/// What the system says.
pub fn take_back(dir: &Path) -> io::Result<()> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    match uid.is_root() {
        true => Owner { uid: uid.as_raw(), gid: gid.as_raw() }.give(dir),
        false => Ok(()),
    }
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The first folder above `dir` that other users may not pass.
pub fn closed_above(dir: &Path) -> Option<&Path> {
    dir.ancestors()
        .skip(1)
        .find(|folder| folder.metadata().is_ok_and(|told| told.permissions().mode() & 0o001 == 0))
}

/// A user's line: `name:x:uid:gid:…`.
fn of_passwd(users: &str, name: &str) -> Option<Owner> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then_some(())?;
        let mut numbers = fields.skip(1).map(str::parse);
        Some(Owner { uid: numbers.next()?.ok()?, gid: numbers.next()?.ok()? })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_by_numbers_and_root_is_refused() {
        let users = "root:x:0:0:root:/root:/bin/sh\nagents:x:990:991::/:/bin/false\nodd:x:many:1::/:\n";
        assert_eq!(of_passwd(users, "agents"), Some(Owner { uid: 990, gid: 991 }));
        for name in ["odd", "nobody", "", "agent"] {
            assert_eq!(of_passwd(users, name), None, "{name}");
        }
        assert_eq!(Owner::find("7:8"), Ok(Owner { uid: 7, gid: 8 }));
        for text in ["0:8", "7:0", "root", "no such user", "7:8:9", "-1:5", ""] {
            assert!(Owner::find(text).is_err(), "{text}");
        }
        assert_eq!(Owner { uid: 7, gid: 8 }.to_string(), "7:8");
    }
}
