//! Unpacking: a verified payload into files, below one directory and nowhere else.
//!
//! Everything is known before the first write: the payload is verified, every file of a bundle checked
//! ([`super::bundle`]), and no file is there already. Only then is the destination made. Below it each
//! directory is opened in the one before, never through a link, and each file is created anew, with
//! plain permissions. If writing fails on the way, what was written is taken away again (what `--force`
//! replaced does not come back).

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{mkdirat, openat, statat, unlinkat, AtFlags, FileType, Mode, OFlags, CWD};
use rustix::io::Errno;

use super::bundle::{check_path, Bundle};
use super::{CapsuleError, Envelope, BUNDLE_TYPE};

/// The name of a file whose capsule has none.
pub const DEFAULT_NAME: &str = "payload.bin";

/// Writes a verified payload below `directory`; the paths of its files, absolute, in their order.
/// Files that are there already are replaced if `force` is set; a directory in their place is not.
///
/// # Errors
/// The bundle is bad, or something is in the way (then nothing is written), or writing failed.
pub fn unpack(
    envelope: &Envelope<'_>,
    payload: &[u8],
    directory: &Path,
    force: bool,
) -> Result<Vec<PathBuf>, CapsuleError> {
    match envelope.headers.required("content_type") {
        BUNDLE_TYPE => {
            let bundle = Bundle::parse(payload)?;
            let names: Vec<&str> = bundle.files().iter().map(|file| &*file.path).collect();
            let mut plain = Vec::new();
            write_all(&names, directory, force, |at, file| {
                if let Some(entry) = bundle.files().get(at) {
                    entry.content(&mut plain).map_err(io::Error::other)?;
                }
                file.write_all(&plain)
            })
        }
        // Any other type, where a policy lets it in, is a file.
        _ => {
            let name = file_name(envelope)?;
            write_all(&[name], directory, force, |_, file| file.write_all(payload))
        }
    }
}

/// The name that the capsule gives to its one file.
///
/// # Errors
/// It is more than a name.
pub fn file_name<'a>(envelope: &'a Envelope<'_>) -> Result<&'a str, CapsuleError> {
    let name = envelope.headers.get("filename").unwrap_or(DEFAULT_NAME);
    if name.contains('/') || check_path(name).is_err() {
        return Err(CapsuleError::Filename(name.into()));
    }
    Ok(name)
}

fn write_all(
    names: &[&str],
    directory: &Path,
    force: bool,
    mut fill: impl FnMut(usize, &mut File) -> io::Result<()>,
) -> Result<Vec<PathBuf>, CapsuleError> {
    if directory.symlink_metadata().is_ok() {
        let root = open_root(directory)?;
        for name in names {
            check_free(&root, name, force).map_err(|error| about(directory, name, &error))?;
        }
    }
    let mut undo = Undo::default();
    let made = make_root(directory, &mut undo);
    let written = made.and_then(|()| {
        let root = open_root(directory)?;
        let home = directory.canonicalize().map_err(|error| CapsuleError::Io(describe(directory, &error)))?;
        let mut written = Vec::with_capacity(names.len());
        let mut place = Place { path: String::new(), directory: clone(&root, directory)? };
        for (at, name) in names.iter().enumerate() {
            place =
                place.of(name, &root, &home, &mut undo).map_err(|error| about(directory, name, &error))?;
            place
                .create(name, force)
                .and_then(|mut file| {
                    undo.files.push(home.join(name));
                    fill(at, &mut file)
                })
                .map_err(|error| about(directory, name, &error))?;
            written.push(home.join(name));
        }
        Ok(written)
    });
    if written.is_err() {
        undo.run();
    }
    written
}

/// The directory of one file, open.
struct Place {
    /// Below the destination; empty is the destination itself.
    path: String,
    directory: OwnedFd,
}

impl Place {
    /// The place of the file `name`; this one, if it is in the same directory.
    fn of(self, name: &str, root: &OwnedFd, home: &Path, undo: &mut Undo) -> io::Result<Place> {
        let parent = name.rsplit_once('/').map_or("", |(parent, _)| parent);
        if parent == self.path {
            return Ok(self);
        }
        let mut directory = root.try_clone()?;
        let mut path = home.to_owned();
        for part in parent.split('/').filter(|part| !part.is_empty()) {
            path.push(part);
            match mkdirat(&directory, part, Mode::from_raw_mode(0o777)) {
                Ok(()) => undo.directories.push(path.clone()),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            directory = openat(&directory, part, DIRECTORY, Mode::empty())?;
        }
        Ok(Place { path: parent.into(), directory })
    }

    /// A new file of that name, and never what was there under it before.
    fn create(&self, name: &str, force: bool) -> io::Result<File> {
        let name = name.rsplit_once('/').map_or(name, |(_, name)| name);
        if force {
            // A link or another name of the old file is not written through.
            match unlinkat(&self.directory, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(openat(&self.directory, name, flags, Mode::from_raw_mode(0o666))?))
    }
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The destination itself may be a link: whoever named it chose it.
fn open_root(directory: &Path) -> Result<OwnedFd, CapsuleError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, directory, flags, Mode::empty())
        .map_err(|error| CapsuleError::Io(describe(directory, &error.into())))
}

fn clone(root: &OwnedFd, directory: &Path) -> Result<OwnedFd, CapsuleError> {
    root.try_clone().map_err(|error| CapsuleError::Io(describe(directory, &error)))
}

/// Makes the destination and what is missing above it, and remembers what it made.
fn make_root(directory: &Path, undo: &mut Undo) -> Result<(), CapsuleError> {
    let missing = directory
        .ancestors()
        .take_while(|path| !path.as_os_str().is_empty() && path.symlink_metadata().is_err());
    let missing: Vec<&Path> = missing.collect();
    for path in missing.into_iter().rev() {
        match fs::create_dir(path) {
            Ok(()) => undo.directories.push(path.to_owned()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(CapsuleError::Io(describe(path, &error))),
        }
    }
    Ok(())
}

/// Whether the file can be created: nothing in its place, no link or file where a directory has to be.
fn check_free(root: &OwnedFd, name: &str, force: bool) -> io::Result<()> {
    let in_the_way = |what| Err(io::Error::other(what));
    let mut directory = None;
    let parts: Vec<&str> = name.split('/').collect();
    for (at, part) in parts.iter().enumerate() {
        let here = directory.as_ref().unwrap_or(root);
        let kind = match statat(here, *part, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => FileType::from_raw_mode(stat.st_mode),
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        match (at + 1 == parts.len(), kind) {
            (false, FileType::Directory) => {
                directory = Some(openat(here, *part, DIRECTORY, Mode::empty())?);
            }
            (false, FileType::Symlink) => {
                return in_the_way("a link stands in the way, and none is followed")
            }
            (false, _) => return in_the_way("a file stands where a directory has to be"),
            (true, FileType::Directory) => return in_the_way("a directory stands in its place"),
            (true, _) if force => {}
            (true, _) => return in_the_way("it is there already (--force replaces it)"),
        }
    }
    Ok(())
}

/// What was made, to be taken away if not all of it could be.
#[derive(Default)]
struct Undo {
    files: Vec<PathBuf>,
    directories: Vec<PathBuf>,
}

impl Undo {
    fn run(self) {
        // Best effort: what cannot be removed stays. A directory goes only if it is empty.
        for file in &self.files {
            let _ = fs::remove_file(file);
        }
        for directory in self.directories.iter().rev() {
            let _ = fs::remove_dir(directory);
        }
    }
}

fn about(directory: &Path, name: &str, error: &io::Error) -> CapsuleError {
    CapsuleError::Io(describe(&directory.join(name), error))
}

fn describe(path: &Path, error: &io::Error) -> String {
    format!("unpacking to {}: {error}", path.display())
}
