//! Unpacking: a verified payload into files, below one directory and nowhere else.
//!
//! Everything is known before the first write: the payload is verified, every file of a bundle checked
//! ([`super::bundle`]), and no file is there already. Only then is the destination made. Below it each
//! directory is opened in the one before, never through a link, and each file is created anew, with
//! plain permissions and under a hidden name. When all are written they get their names. If anything fails
//! on the way, everything is as it was, also what `--force` had replaced by then; a process that is killed
//! leaves hidden files, and no cut one under its name.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{
    linkat, mkdirat, openat, renameat, renameat_with, statat, unlinkat, AtFlags, FileType, Mode, OFlags,
    RenameFlags, CWD,
};
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
    let mut above = Vec::new();
    let written = make_root(directory, &mut above).and_then(|()| {
        let root = open_root(directory)?;
        let home = directory.canonicalize().map_err(|error| CapsuleError::Io(describe(directory, &error)))?;
        let mut work = Work { root, names, steps: Vec::new(), made: Vec::new() };
        let done = work.draft(&mut fill).and_then(|()| work.place(force));
        match done {
            Ok(()) => work.forget_replaced(),
            Err((name, error)) => {
                work.undo();
                return Err(about(directory, name, &error));
            }
        }
        Ok(names.iter().map(|name| home.join(name)).collect())
    });
    if written.is_err() {
        for directory in above.iter().rev() {
            let _ = fs::remove_dir(directory); // Best effort, and only if it is empty.
        }
    }
    written
}

/// Files on their way below an open directory.
struct Work<'a> {
    root: OwnedFd,
    names: &'a [&'a str],
    /// How far each file is; those that are not begun are missing.
    steps: Vec<Step>,
    /// The directories that were made, as paths below the root.
    made: Vec<String>,
}

/// How far a file is.
#[derive(Clone, Copy)]
enum Step {
    /// It lies under its hidden name.
    Drafted,
    /// It has its name.
    Placed,
    /// It has its name, and what had it before lies under the hidden one.
    Exchanged,
}

/// What failed, with which file.
type Failed<'a> = (&'a str, io::Error);

impl<'a> Work<'a> {
    /// Writes all files, each under a hidden name in the directory where it will be.
    fn draft(&mut self, fill: &mut impl FnMut(usize, &mut File) -> io::Result<()>) -> Result<(), Failed<'a>> {
        let names = self.names;
        let mut place = Place::default();
        for (at, name) in names.iter().enumerate() {
            let parent = parent(name);
            let written = place.enter(parent, &self.root, Some(&mut self.made)).and_then(|directory| {
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = openat(directory, hidden(at), flags, Mode::from_raw_mode(0o666))?;
                self.steps.push(Step::Drafted);
                fill(at, &mut File::from(file))
            });
            written.map_err(|error| (*name, error))?;
        }
        Ok(())
    }

    /// Gives all files their names.
    fn place(&mut self, force: bool) -> Result<(), Failed<'a>> {
        let names = self.names;
        let mut place = Place::default();
        for (at, name) in names.iter().enumerate() {
            let placed = place
                .enter(parent(name), &self.root, None)
                .and_then(|directory| settle(directory, &hidden(at), leaf(name), force));
            let step = placed.map_err(|error| (*name, error))?;
            if let Some(entry) = self.steps.get_mut(at) {
                *entry = step;
            }
        }
        Ok(())
    }

    /// Takes away what was replaced.
    fn forget_replaced(&self) {
        self.each(|directory, at, _, step| {
            if matches!(step, Step::Exchanged) {
                let _ = unlinkat(directory, hidden(at), AtFlags::empty());
            }
        });
    }

    /// Takes away what was made, and brings back what was replaced. Best effort: what cannot be removed
    /// stays, and a directory goes only if it is empty.
    fn undo(&self) {
        self.each(|directory, at, name, step| {
            if matches!(step, Step::Exchanged) {
                let _ = renameat_with(directory, hidden(at), directory, name, RenameFlags::EXCHANGE);
            }
            let _ = match step {
                Step::Drafted | Step::Exchanged => unlinkat(directory, hidden(at), AtFlags::empty()),
                Step::Placed => unlinkat(directory, name, AtFlags::empty()),
            };
        });
        let mut place = Place::default();
        for path in self.made.iter().rev() {
            if let Ok(directory) = place.enter(parent(path), &self.root, None) {
                let _ = unlinkat(directory, leaf(path), AtFlags::REMOVEDIR);
            }
        }
    }

    fn each(&self, mut what: impl FnMut(&OwnedFd, usize, &str, Step)) {
        let mut place = Place::default();
        for (at, (name, step)) in self.names.iter().zip(&self.steps).enumerate() {
            if let Ok(directory) = place.enter(parent(name), &self.root, None) {
                what(directory, at, leaf(name), *step);
            }
        }
    }
}

/// The directory entered last; files of one directory stand together.
#[derive(Default)]
struct Place {
    entered: Option<(String, OwnedFd)>,
}

impl Place {
    /// Opens the directory `path` below the root, part by part and through no link. With `made`, missing
    /// ones are made and noted there.
    fn enter(
        &mut self,
        path: &str,
        root: &OwnedFd,
        mut made: Option<&mut Vec<String>>,
    ) -> io::Result<&OwnedFd> {
        let there = self.entered.take().filter(|(entered, _)| entered == path);
        let directory = match there {
            Some((_, directory)) => directory,
            None => {
                let mut directory = root.try_clone()?;
                let mut so_far = String::new();
                for part in path.split('/').filter(|part| !part.is_empty()) {
                    so_far.push_str(if so_far.is_empty() { "" } else { "/" });
                    so_far.push_str(part);
                    if let Some(made) = made.as_deref_mut() {
                        match mkdirat(&directory, part, Mode::from_raw_mode(0o777)) {
                            Ok(()) => made.push(so_far.clone()),
                            Err(Errno::EXIST) => {}
                            Err(error) => return Err(error.into()),
                        }
                    }
                    directory = openat(&directory, part, DIRECTORY, Mode::empty())?;
                }
                directory
            }
        };
        Ok(&self.entered.insert((path.to_owned(), directory)).1)
    }
}

fn parent(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn leaf(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(_, leaf)| leaf)
}

/// What the file of that number is called until all are written.
fn hidden(at: usize) -> String {
    format!(".agentcapsule.{}.{at}", std::process::id())
}

/// Gives a file its name. A link or another name of an old file is replaced, not written through.
fn settle(directory: &OwnedFd, hidden: &str, name: &str, force: bool) -> io::Result<Step> {
    match renameat_with(directory, hidden, directory, name, RenameFlags::NOREPLACE) {
        Ok(()) => return Ok(Step::Placed),
        Err(Errno::EXIST) if force => {}
        Err(Errno::EXIST) => return Err(io::Error::other(THERE)),
        // A file system that has no such flags.
        Err(Errno::INVAL) if !force => {
            linkat(directory, hidden, directory, name, AtFlags::empty())?;
            unlinkat(directory, hidden, AtFlags::empty())?;
            return Ok(Step::Placed);
        }
        Err(Errno::INVAL) => {}
        Err(error) => return Err(error.into()),
    }
    let kind = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    if kind.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory) {
        return Err(io::Error::other(DIRECTORY_THERE));
    }
    match renameat_with(directory, hidden, directory, name, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(Step::Exchanged),
        Err(Errno::INVAL | Errno::NOENT) => {
            renameat(directory, hidden, directory, name)?;
            Ok(Step::Placed)
        }
        Err(error) => Err(error.into()),
    }
}

const THERE: &str = "it is there already (--force replaces it)";
const DIRECTORY_THERE: &str = "a directory stands in its place";

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The destination itself may be a link: whoever named it chose it.
fn open_root(directory: &Path) -> Result<OwnedFd, CapsuleError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, directory, flags, Mode::empty())
        .map_err(|error| CapsuleError::Io(describe(directory, &error.into())))
}

/// Makes the destination and what is missing above it, and remembers what it made.
fn make_root(directory: &Path, made: &mut Vec<PathBuf>) -> Result<(), CapsuleError> {
    let missing = directory
        .ancestors()
        .take_while(|path| !path.as_os_str().is_empty() && path.symlink_metadata().is_err());
    let missing: Vec<&Path> = missing.collect();
    for path in missing.into_iter().rev() {
        match fs::create_dir(path) {
            Ok(()) => made.push(path.to_owned()),
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
            (true, FileType::Directory) => return in_the_way(DIRECTORY_THERE),
            (true, _) if force => {}
            (true, _) => return in_the_way(THERE),
        }
    }
    Ok(())
}

fn about(directory: &Path, name: &str, error: &io::Error) -> CapsuleError {
    CapsuleError::Io(describe(&directory.join(name), error))
}

fn describe(path: &Path, error: &io::Error) -> String {
    format!("unpacking to {}: {error}", path.display())
}
