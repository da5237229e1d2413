//! The files of an agent's `state/`: gathered when it goes, laid out when it comes.

use super::arrive::disk_failure;
use super::harness::HARNESS;
use super::messages::StateFile;
use crate::base64;
use crate::crash;
use crate::state::{self, make_dir};
use crate::sync::lock;
use crate::wire::{Code, Failure};
use rustix::fs::{Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Up to how many files are synced one by one.
const SYNCED_ALONE: usize = 32;
/// How many files travel with an agent.
const MOST_FILES: usize = crate::capsule::agent::MAX_STATE_FILES;
/// How many names, of files and of all else, are looked at for it.
const MOST_NAMES: usize = 10 * MOST_FILES;
/// The longest path of a folder, bytes; the kernel takes no longer one where the files are laid out.
const MOST_PATH: usize = 4096;

/// The directories that generations use: one that is used is nobody else's, also when the agent has
/// left and only its last hook still runs.
#[derive(Default)]
pub(super) struct Places {
    taken: Mutex<HashSet<PathBuf>>,
}

/// A generation's directory; a replacement by deployment shares it. When the last one lets go and the
/// agent is not here any more, the files go.
pub(super) struct Place {
    pub(super) path: PathBuf,
    discard: AtomicBool,
    places: Arc<Places>,
}

impl Places {
    /// Takes `path`, unless it is taken.
    pub(super) fn take(self: &Arc<Self>, path: PathBuf) -> Option<Arc<Place>> {
        let fresh = lock(&self.taken).insert(path.clone());
        fresh.then(|| Arc::new(Place { path, discard: AtomicBool::new(false), places: Arc::clone(self) }))
    }
}

impl Place {
    /// The files go with the last generation that uses them.
    pub(super) fn discard(&self) {
        self.discard.store(true, Ordering::Release);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.discard.load(Ordering::Acquire) {
            // Best effort: what stays behind holds nothing that lives.
            if fs::remove_dir(&self.path).is_err() {
                let _ = state::remove_tree(&self.path);
            }
            crash::point("files-removed");
            if let Some(home) = self.path.parent() {
                remove_home(home);
            }
        }
        lock(&self.places.taken).remove(&self.path);
    }
}

/// Removes an agent's home, unless there is something of the agent's in it. The folder of its records is
/// the last to go: at a start it says that the files beside it are a node's to remove.
pub(super) fn remove_home(home: &Path) {
    let harness = home.join(HARNESS);
    let is_bare = match fs::read_dir(home) {
        Ok(mut entries) => entries.all(|entry| entry.is_ok_and(|entry| entry.file_name() == HARNESS)),
        // Looking takes a descriptor, and the want of one may be why it is to go.
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    };
    if is_bare {
        let empty = fs::remove_dir(&harness).is_ok(); // unless a record lies in it, new or old
        if fs::remove_dir(home).is_err() && empty {
            let _ = fs::create_dir(&harness);
        }
    }
}

/// Everything below `dir`: regular files only. Links are not followed, neither below it nor in its own
/// place or the agent's: what they lead to is not the agent's.
///
/// # Errors
/// `too_large`: more than `most_bytes` (known before a file is read), too many names, or folders too deep.
/// `rejected`: a name that no message can say. `internal`: a file that can't be read. The text names the file.
pub(super) fn gather(dir: &Path, most_bytes: usize) -> Result<Vec<StateFile>, Failure> {
    let too_much = || {
        let what =
            format!("its state directory holds more than travels ({most_bytes} bytes, {MOST_FILES} files)");
        Failure::new(Code::TooLarge, what)
    };
    let unread = |path: &Path, error: &dyn Display| {
        Failure::new(Code::Internal, format!("reading {:?}: {error}", dir.join(path)))
    };
    let mut files = Vec::new();
    let (mut bytes, mut names) = (0usize, 0usize);
    let mut waiting = vec![PathBuf::new()];
    while let Some(below) = waiting.pop() {
        let doing = |error: Errno| unread(&below, &error);
        let folder = match open_folder(dir, &below) {
            Ok(folder) => folder,
            Err(Errno::NOENT) => continue,
            Err(error) => return Err(doing(error)),
        };
        for entry in Dir::read_from(&folder).map_err(doing)? {
            let entry = entry.map_err(doing)?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            names += 1;
            if names > MOST_NAMES {
                let text = format!("its state directory holds more names than are looked at ({MOST_NAMES})");
                return Err(Failure::new(Code::TooLarge, text));
            }
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let opened = match rustix::fs::openat(&folder, name, flags, Mode::empty()) {
                Ok(opened) => opened,
                // A link, a socket or a device is none of what travels; nor is what has gone meanwhile.
                Err(Errno::LOOP | Errno::NXIO | Errno::NODEV | Errno::NOENT) => continue,
                Err(error) => return Err(unread(&below.join(name), &error)),
            };
            let told = rustix::fs::fstat(&opened).map_err(doing)?;
            match FileType::from_raw_mode(told.st_mode) {
                FileType::Directory => {
                    let path = below.join(name);
                    if path.as_os_str().len() > MOST_PATH {
                        let text = format!("its folders are deeper than a path can say ({MOST_PATH} bytes)");
                        return Err(Failure::new(Code::TooLarge, text));
                    }
                    waiting.push(path);
                }
                FileType::RegularFile => {
                    let size = usize::try_from(told.st_size).unwrap_or(usize::MAX);
                    bytes = bytes.saturating_add(size);
                    if bytes > most_bytes || files.len() >= MOST_FILES {
                        return Err(too_much());
                    }
                    let path = below.join(name);
                    let Some(name) = path.to_str() else {
                        let why = format!(
                            "the name of its file {path:?} is not UTF-8, and no such file travels; rename or \
                             remove it"
                        );
                        return Err(Failure::new(Code::Rejected, why));
                    };
                    let mut content = Vec::with_capacity(size);
                    // One that grows meanwhile counts with what it was.
                    let read = File::from(opened).take(size as u64).read_to_end(&mut content);
                    read.map_err(|error| unread(&path, &error))?;
                    files.push(StateFile { path: name.to_owned(), content_base64: base64::encode(&content) });
                }
                _ => {}
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// Opens a directory of an agent step by step from the directory of all agents, following no link.
fn open_folder(dir: &Path, below: &Path) -> rustix::io::Result<OwnedFd> {
    let home = dir.parent().and_then(Path::parent).unwrap_or(dir);
    let steps = dir.strip_prefix(home).unwrap_or(Path::new("")).join(below);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut folder = rustix::fs::open(home, flags, Mode::empty())?;
    for step in steps.components() {
        folder = rustix::fs::openat(&folder, step.as_os_str(), flags | OFlags::NOFOLLOW, Mode::empty())?;
    }
    Ok(folder)
}

/// How many entries of a directory are measured.
const MEASURED: usize = 100_000;

/// What a directory holds, bytes: its files, its folders, and one for each entry. Links are not followed. Above
/// `enough`, or beyond [`MEASURED`] entries, it is some larger number.
pub(super) fn measure(dir: &Path, enough: u64) -> u64 {
    let (mut bytes, mut entries) = (0u64, 0usize);
    let mut waiting = vec![PathBuf::new()];
    while let Some(below) = waiting.pop() {
        // What can't be opened has gone meanwhile.
        let Ok(folder) = open_folder(dir, &below) else { continue };
        let Ok(all) = Dir::read_from(&folder) else { continue };
        for entry in all.flatten() {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
            let Ok(stat) = rustix::fs::statat(&folder, name, flags) else { continue };
            entries += 1;
            bytes = bytes.saturating_add(u64::try_from(stat.st_size).unwrap_or(0)).saturating_add(1);
            if bytes > enough || entries > MEASURED {
                return bytes.max(enough.saturating_add(1));
            }
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                waiting.push(below.join(name));
            }
        }
    }
    bytes
}

/// Lays `files` out below `dir`, which is new. On an error nothing is left of it.
///
/// # Errors
/// `rejected`: a path that leads out, stands twice or is none, content that is not base64. `busy`: the
/// disk is full; `internal`: it can't be written otherwise.
pub(super) fn lay_out(dir: &Path, files: &[StateFile]) -> Result<(), Failure> {
    let laid = (|| {
        make_dir(dir).map_err(|error| disk_failure("the agent's directory", &error))?;
        if files.len() > MOST_FILES {
            return Err(rejected(format!("it brings more than {MOST_FILES} files")));
        }
        files.iter().try_for_each(|file| lay_out_one(dir, file, files.len() <= SYNCED_ALONE))?;
        sync_all(dir, files).map_err(|error| disk_failure("the agent's files", &error))
    })();
    if laid.is_err() {
        let _ = state::remove_tree(dir); // best effort; the error itself is what matters
    }
    laid
}

fn lay_out_one(dir: &Path, file: &StateFile, sync: bool) -> Result<(), Failure> {
    let path = Path::new(&file.path);
    let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    if !plain || file.path.is_empty() || file.path.contains('\0') || file.path.ends_with('/') {
        return Err(rejected(format!("the file path {:?} is not a plain relative one", file.path)));
    }
    let content = base64::decode(&file.content_base64)
        .map_err(|why| rejected(format!("the file {:?}: {why}", file.path)))?;
    let target = dir.join(path);
    let opened = target.parent().map_or(Ok(()), make_dir).and_then(|()| {
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).open(&target)
    });
    let written = opened.and_then(|mut target| {
        io::Write::write_all(&mut target, &content)?;
        // Of many, one sync of the whole file system does it.
        if sync {
            target.sync_all()
        } else {
            Ok(())
        }
    });
    written.map_err(|error| match error.kind() {
        // Two of one name, or one below another: what it brings is wrong.
        io::ErrorKind::AlreadyExists
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::InvalidFilename => rejected(format!("the file {:?}: {error}", file.path)),
        _ => disk_failure(&format!("the agent's file {:?}", file.path), &error),
    })
}

fn rejected(text: String) -> Failure {
    Failure::new(Code::Rejected, text)
}

/// Makes what was laid out durable: its directories, and the files where they are many.
fn sync_all(dir: &Path, files: &[StateFile]) -> io::Result<()> {
    if files.is_empty() {
        return Ok(());
    }
    if files.len() > SYNCED_ALONE {
        rustix::fs::syncfs(File::open(dir)?)?;
    } else {
        let folders: HashSet<_> =
            files.iter().flat_map(|file| Path::new(&file.path).ancestors().skip(1)).collect();
        folders.iter().try_for_each(|folder| state::sync_dir(&dir.join(folder)))?;
    }
    state::sync_dir(dir.parent().unwrap_or(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, content: &str) -> StateFile {
        StateFile { path: path.into(), content_base64: base64::encode(content.as_bytes()) }
    }

    #[test]
    fn what_is_laid_out_is_gathered_again_and_links_stay_behind() {
        let top = crate::testing::TempDir::new("state-files");
        let dir = top.path().join("state");
        lay_out(&dir, &[file("a.txt", "one"), file("deep/er/b", "")]).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.join("link")).unwrap();
        let files = gather(&dir, 100).unwrap();
        let names: Vec<_> = files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(names, ["a.txt", "deep/er/b"]);
        assert!(gather(&dir, 2).unwrap_err().message.contains("more than travels"));
        // Known from its size, before a byte of it is read.
        let huge = std::fs::File::create(dir.join("huge")).unwrap();
        huge.set_len(1 << 40).unwrap();
        assert!(gather(&dir, 1 << 20).unwrap_err().message.contains("more than travels"));
    }

    #[test]
    fn folders_without_end_and_names_without_number_are_refused_and_take_no_time() {
        let top = crate::testing::TempDir::new("state-deep");
        let dir = top.path().join("agents/a/state");
        make_dir(&dir).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut here = rustix::fs::open(&dir, flags, Mode::empty()).unwrap();
        for _ in 0..MOST_PATH {
            rustix::fs::mkdirat(&here, "d", Mode::RWXU).unwrap();
            here = rustix::fs::openat(&here, "d", flags, Mode::empty()).unwrap();
        }
        let refused = gather(&dir, 100).unwrap_err();
        assert_eq!(refused.code, Code::TooLarge);
        assert!(refused.message.contains("deeper than a path can say"), "{}", refused.message);
        state::remove_tree(&dir).unwrap();
        make_dir(&dir).unwrap();
        std::os::unix::fs::symlink("nowhere", dir.join("0")).unwrap();
        // Links to one link: names that cost nothing.
        for name in 1..=MOST_NAMES {
            let again = std::fs::hard_link(dir.join("0"), dir.join(name.to_string()));
            again.or_else(|_| std::os::unix::fs::symlink("nowhere", dir.join(name.to_string()))).unwrap();
        }
        let refused = gather(&dir, 100).unwrap_err();
        assert!(refused.message.contains("more names"), "{}", refused.message);
        state::remove_tree(&dir).unwrap();
    }

    #[test]
    fn a_directory_that_became_a_link_is_not_followed() {
        let top = crate::testing::TempDir::new("state-link");
        let dir = top.path().join("agents/a/state");
        make_dir(dir.parent().unwrap()).unwrap();
        make_dir(&top.path().join("elsewhere/state")).unwrap();
        std::fs::write(top.path().join("elsewhere/state/secret"), "x").unwrap();
        std::os::unix::fs::symlink(top.path().join("elsewhere/state"), &dir).unwrap();
        assert!(gather(&dir, 100).is_err());
        std::fs::remove_dir_all(top.path().join("agents")).unwrap();
        make_dir(&top.path().join("agents")).unwrap();
        std::os::unix::fs::symlink(top.path().join("elsewhere"), top.path().join("agents/a")).unwrap();
        assert!(gather(&dir, 100).is_err());
    }

    #[test]
    fn a_path_that_leads_out_writes_nothing() {
        let top = crate::testing::TempDir::new("state-out");
        for path in ["../x", "/x", "a/../../x", "", "a//../b", "./..", "a/"] {
            let dir = top.path().join("state");
            assert!(lay_out(&dir, &[file("ok", "1"), file(path, "2")]).is_err(), "{path}");
            assert!(!dir.exists(), "{path}");
            assert!(!top.path().join("x").exists(), "{path}");
        }
        assert!(lay_out(&top.path().join("s"), &[file("a", "1"), file("a", "2")]).is_err(), "twice");
    }
}
