//! What an agent's process may reach of the file system: an allow-list, built anew for each process.

use super::kernel::{self, Handled};
use rustix::fs::{fstat, openat, FileType, Mode, OFlags, CWD};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const REMOVE_DIR: u64 = 1 << 4;
const REMOVE_FILE: u64 = 1 << 5;
const MAKE_DIR: u64 = 1 << 7;
const MAKE_REG: u64 = 1 << 8;
const MAKE_FIFO: u64 = 1 << 10;
const MAKE_SYM: u64 = 1 << 12;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;

/// What can be allowed for something that is not a directory.
const OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;

const BIND_AND_CONNECT_TCP: u64 = 0b11;
const ABSTRACT_SOCKETS_AND_SIGNALS: u64 = 0b11;

/// From this version on truncating is covered; before it a path that can be opened can't be, but `truncate`
/// reaches it.
pub const TRUNCATES: u32 = 3;
/// From this version on TCP ports are.
pub const TCP: u32 = 4;
/// From this version on signals and abstract sockets are.
pub const SCOPES: u32 = 6;

/// A kind of access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Files are read and folders listed.
    Read,
    /// The same, and programs are started.
    ReadExecute,
    /// A device that is read and written, but not controlled.
    Device,
    /// Everything but devices, sockets and programs.
    Own,
}

impl Access {
    fn bits(self) -> u64 {
        match self {
            Access::Read => READ_FILE | READ_DIR,
            Access::ReadExecute => READ_FILE | READ_DIR | EXECUTE,
            Access::Device => READ_FILE | WRITE_FILE | TRUNCATE,
            Access::Own => {
                let names = REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | MAKE_FIFO | MAKE_SYM | REFER;
                READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | names
            }
        }
    }
}

/// Something that exists, held open by its path only.
#[derive(Debug)]
pub struct Place {
    fd: OwnedFd,
    is_dir: bool,
}

impl Place {
    /// `None` where nothing is there.
    ///
    /// # Errors
    /// It is there and can't be opened.
    pub fn open(path: &Path) -> io::Result<Option<Place>> {
        let fd = match openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR | rustix::io::Errno::ACCESS) => {
                return Ok(None)
            }
            Err(error) => return Err(error.into()),
        };
        let is_dir = FileType::from_raw_mode(fstat(&fd)?.st_mode) == FileType::Directory;
        Ok(Some(Place { fd, is_dir }))
    }

    /// The same of something that must be there, and be itself: the last name is no link.
    pub fn open_itself(path: &Path) -> io::Result<Place> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::DIRECTORY;
        let fd = openat(CWD, path, flags, Mode::empty())?;
        Ok(Place { fd, is_dir: true })
    }
}

/// A ruleset under way.
pub struct Ruleset {
    fd: OwnedFd,
    handled: u64,
}

impl Ruleset {
    /// One that allows nothing yet, for a kernel with this version of Landlock. With `tcp` its process may
    /// use TCP.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new(version: u32, tcp: bool) -> io::Result<Ruleset> {
        let files = match version {
            0 | 1 => REFER - 1,
            2 => TRUNCATE - 1,
            3 | 4 => IOCTL_DEV - 1,
            _ => (IOCTL_DEV << 1) - 1,
        };
        let handled = Handled {
            files,
            net: if version >= TCP && !tcp { BIND_AND_CONNECT_TCP } else { 0 },
            scoped: if version >= SCOPES { ABSTRACT_SOCKETS_AND_SIGNALS } else { 0 },
        };
        let known = match version {
            0..TCP => 8,
            TCP..SCOPES => 16,
            _ => 24,
        };
        Ok(Ruleset { fd: kernel::landlock_ruleset(&handled, known)?, handled: files })
    }

    /// Allows a kind of access to a place and what is below it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn allow(&self, place: &Place, access: Access) -> io::Result<()> {
        let possible = if place.is_dir { u64::MAX } else { OF_FILES };
        let access = access.bits() & self.handled & possible;
        kernel::landlock_allow(self.fd.as_fd(), place.fd.as_fd(), access)
    }

    /// The same for a path, if something is there.
    ///
    /// # Errors
    /// It is there and can't be opened, or what the kernel says.
    pub fn allow_path(&self, path: &Path, access: Access) -> io::Result<()> {
        match Place::open(path)? {
            Some(place) => self.allow(&place, access),
            None => Ok(()),
        }
    }

    /// The finished ruleset.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }
}

/// Keeps the calling process, and what it starts, from what is in `hidden` but not in `shown`: everything
/// beside the folders on the way there stays as it was. Names can still be listed; files can't be opened, made
/// or removed, also not right in the folders on the way. Without Landlock nothing is kept from anyone.
///
/// # Errors
/// A folder can't be read, or the kernel refuses a rule.
pub fn hide(hidden: &Path, shown: &Path) -> io::Result<()> {
    let version = kernel::landlock_version();
    if version == 0 {
        return Ok(());
    }
    let files = if version < 3 { REFER << (version - 1) } else { IOCTL_DEV };
    let handled = (files - 1) & !READ_DIR;
    let only = Handled { files: handled, ..Handled::default() };
    let rules = kernel::landlock_ruleset(&only, 8)?;
    let allow = |path: &Path| match Place::open(path)? {
        Some(place) => {
            let possible = if place.is_dir { handled } else { handled & OF_FILES };
            kernel::landlock_allow(rules.as_fd(), place.fd.as_fd(), possible)
        }
        None => Ok(()),
    };
    for folder in hidden.ancestors().skip(1) {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        for entry in entries.flatten() {
            // What a link leads to is allowed where it is, if it is.
            let is_link = entry.file_type().map_or(true, |kind| kind.is_symlink());
            if !is_link && !hidden.starts_with(entry.path()) {
                allow(&entry.path())?;
            }
        }
    }
    if !hidden.starts_with(shown) {
        allow(shown)?;
    }
    kernel::landlock_restrict(rules.as_fd())
}

/// Where programs and libraries are, and what they read to run.
pub const PROGRAMS: [&str; 8] =
    ["/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/nix/store"];

/// What every agent may read besides.
pub const READABLE: [&str; 11] = [
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/mime.types",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/certs",
    "/etc/ca-certificates",
    "/dev/urandom",
    "/dev/random",
    "/sys/devices/system/cpu/online",
];

/// What is read to find a host by its name.
pub const OF_SOCKETS: [&str; 7] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/protocols",
];

/// What programs read that an agent alone does not.
pub const OF_PROGRAMS: [&str; 4] = ["/etc/passwd", "/etc/group", "/etc/alternatives", "/proc"];

/// Devices that are read and written.
pub const DEVICES: [&str; 3] = ["/dev/null", "/dev/zero", "/dev/full"];

/// The first of `paths` that holds `inside`, symbolic links followed.
pub fn holder<'a>(paths: impl IntoIterator<Item = &'a PathBuf>, inside: &Path) -> Option<&'a PathBuf> {
    paths.into_iter().find(|path| path.canonicalize().is_ok_and(|path| inside.starts_with(path)))
}
