//! Files that appear as a whole: until all of it is written, whoever looks finds what was there before.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{linkat, AtFlags, CWD};

/// A file that is being written, unseen. Dropped before [`finish`](WholeFile::finish) it leaves nothing behind, and
/// mostly neither does a process that is killed: the file has no name before it is whole. Where the file system does
/// not know such files it has a hidden name beside its place.
#[derive(Debug)]
pub struct WholeFile {
    file: File,
    way: Way,
}

/// How a file comes to its place.
#[derive(Debug)]
enum Way {
    /// It is none that could be replaced: a pipe, or this process's own output.
    Straight,
    /// It gets its name.
    Unnamed { target: PathBuf },
    /// It is renamed.
    Hidden { new: PathBuf, target: PathBuf },
}

impl WholeFile {
    /// Begins a file. A link is followed, so that it stays; an old file's permissions stay too.
    ///
    /// # Errors
    /// The old file may not be written, or none may be made in its directory.
    pub fn create(path: &Path) -> io::Result<WholeFile> {
        let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let old = match fs::metadata(&target) {
            Ok(old) => {
                if let Some(file) = own_output(path, &old)? {
                    return Ok(WholeFile { file, way: Way::Straight });
                }
                // Says whether it may be written, and is the way into a pipe or a terminal.
                let file = OpenOptions::new().write(true).open(&target)?;
                if !old.is_file() {
                    return Ok(WholeFile { file, way: Way::Straight });
                }
                Some(old)
            }
            Err(_) => None,
        };
        let unnamed = unnamed(directory_of(&target));
        let whole = WholeFile::begin(target, unnamed)?;
        if let Some(old) = old {
            whole.file.set_permissions(old.permissions())?;
        }
        Ok(whole)
    }

    /// Begins it without a name, or with a hidden one if there is no file without a name.
    fn begin(target: PathBuf, unnamed: Option<File>) -> io::Result<WholeFile> {
        let new = target.with_file_name(hidden_name(&target)?);
        discard(&new); // Of a process of that number that was killed.
        if let Some(file) = unnamed {
            return Ok(WholeFile { file, way: Way::Unnamed { target } });
        }
        let file = OpenOptions::new().write(true).create_new(true).open(&new)?;
        Ok(WholeFile { file, way: Way::Hidden { new, target } })
    }

    /// Puts the file in its place.
    ///
    /// # Errors
    /// It cannot be; then the old one is there still.
    pub fn finish(mut self) -> io::Result<()> {
        match std::mem::replace(&mut self.way, Way::Straight) {
            Way::Straight => Ok(()),
            Way::Hidden { new, target } => fs::rename(&new, target).inspect_err(|_| discard(&new)),
            Way::Unnamed { target } => {
                let named = named_by(&self.file);
                let link = |to: &Path| linkat(CWD, &named, CWD, to, AtFlags::SYMLINK_FOLLOW);
                if link(&target).is_ok() {
                    return Ok(());
                }
                // A link replaces nothing, so what is there makes the way round by a hidden name needed.
                let new = target.with_file_name(hidden_name(&target)?);
                discard(&new);
                link(&new)?;
                fs::rename(&new, target).inspect_err(|_| discard(&new))
            }
        }
    }

    /// The same, and returns when the disk has it.
    ///
    /// # Errors
    /// As [`WholeFile::finish`].
    pub fn finish_durably(self) -> io::Result<()> {
        let directory = match &self.way {
            Way::Straight => return self.finish(),
            Way::Unnamed { target } | Way::Hidden { target, .. } => directory_of(target).to_owned(),
        };
        self.file.sync_all()?;
        self.finish()?;
        File::open(directory)?.sync_all()
    }
}

/// A file without a name in a directory; none where there can be none, or where it could not be named later.
fn unnamed(directory: &Path) -> Option<File> {
    let file = OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(directory).ok()?;
    fs::symlink_metadata(named_by(&file)).is_ok().then_some(file)
}

/// What a link can be made to while a file has no name. (The other way, without a path, takes a privilege.)
fn named_by(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// A way into a file that this process has as its output: whoever opened it reads what is there, and not what would be
/// put in its place.
fn own_output(path: &Path, about: &fs::Metadata) -> io::Result<Option<File>> {
    if !about.is_file() {
        return Ok(None);
    }
    let (out, errors) = (io::stdout(), io::stderr());
    for descriptor in [out.as_fd(), errors.as_fd()] {
        // The same descriptor anew, so that whatever else is written there stands behind this.
        let Ok(same) = descriptor.try_clone_to_owned() else { continue };
        let same = File::from(same);
        if same.metadata().is_ok_and(|own| (own.dev(), own.ino()) == (about.dev(), about.ino())) {
            return Ok(Some(same));
        }
    }
    // Another one, as /dev/fd/3.
    let is_descriptor = directory_of(path).canonicalize().is_ok_and(|directory| {
        directory.starts_with("/proc") && directory.file_name().is_some_and(|name| name == "fd")
    });
    match is_descriptor {
        true => OpenOptions::new().append(true).open(path).map(Some),
        false => Ok(None),
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if let Way::Hidden { new, .. } = &self.way {
            discard(new);
        }
    }
}

fn discard(new: &Path) {
    let _ = fs::remove_file(new); // The error that counts is told already.
}

/// `.NAME.PROCESS`, for a file called NAME.
fn hidden_name(target: &Path) -> io::Result<std::ffi::OsString> {
    let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}", std::process::id()));
    Ok(hidden)
}

/// Takes away what writers of this file left that were killed. Only where nobody else writes it now.
pub(super) fn sweep(path: &Path) {
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let (Some(name), Ok(entries)) = (target.file_name(), fs::read_dir(directory_of(&target))) else { return };
    let start = format!(".{}.", name.to_string_lossy());
    for entry in entries.flatten() {
        let left = entry.file_name();
        let process = left.to_str().and_then(|left| left.strip_prefix(&start));
        if process.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())) {
            discard(&entry.path());
        }
    }
}

/// Whether both paths lead to the same file: what is read must not be written over.
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    let id = |path: &Path| {
        fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|file| (file.dev(), file.ino()))
    };
    id(one).is_some_and(|one| id(other) == Some(one))
}

pub(super) fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Both ways, also where the machine at hand takes but one of them.
    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let dir = std::env::temp_dir().join(format!("agentcontainer-whole-file-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let names = || {
            let mut names: Vec<_> =
                fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let target = dir.join("f");
        for hidden in [true, false] {
            let unnamed = || if hidden { None } else { unnamed(&dir) };
            if !hidden && unnamed().is_none() {
                eprintln!("passed over: no file without a name below {}", dir.display());
                continue;
            }
            for text in ["new", "replaced"] {
                let before = names();
                let mut file = WholeFile::begin(target.clone(), unnamed()).unwrap();
                file.write_all(b"not whole").unwrap();
                assert_eq!(names().len(), before.len() + usize::from(hidden));
                drop(file);
                assert_eq!(names(), before);
                let mut file = WholeFile::begin(target.clone(), unnamed()).unwrap();
                file.write_all(text.as_bytes()).unwrap();
                file.finish_durably().unwrap();
                assert_eq!((names(), &*fs::read_to_string(&target).unwrap()), (vec!["f".into()], text));
            }
            fs::remove_file(&target).unwrap();
        }
        fs::write(&target, "old").unwrap();
        fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("f", dir.join("link")).unwrap();
        let mut file = WholeFile::create(&dir.join("link")).unwrap();
        file.write_all(b"new").unwrap();
        file.finish().unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "new");
        assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(names(), ["f", "link"]);
        fs::remove_dir_all(&dir).unwrap();
    }
}
