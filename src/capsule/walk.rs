//! The files of a directory, in the order in which a bundle lists them.
//!
//! A directory's files, sorted, come before its subdirectories, sorted; `__pycache__` directories are
//! left out. A link to a file is the file, if that lies in the directory too: one that leads out would
//! put into a capsule what nobody meant to send. Links to directories are left out.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::bundle::{Writer, MAX_ENTRIES};
use super::pack::MAX_PACKED_BYTES;
use super::CapsuleError;

/// How deep directories are followed.
const MAX_DEPTH: usize = 128;

/// Adds the files below `root` to a bundle, their paths after `prefix`.
///
/// # Errors
/// Something cannot be read, or is no file, or leads out of the directory, or there is too much of it.
pub(super) fn add_directory(writer: &mut Writer, root: &Path, prefix: &str) -> Result<(), CapsuleError> {
    let home = root.canonicalize().map_err(|error| io("resolving", root, &error))?;
    let mut walk = Walk { writer, home, seen: 0, bytes: 0 };
    walk.directory(root, prefix, 0)
}

struct Walk<'a> {
    writer: &'a mut Writer,
    /// The directory without links.
    home: PathBuf,
    seen: usize,
    bytes: u64,
}

impl Walk<'_> {
    fn directory(&mut self, directory: &Path, prefix: &str, depth: usize) -> Result<(), CapsuleError> {
        if depth > MAX_DEPTH {
            return Err(refuse("directories nested too deep", directory));
        }
        let (mut files, mut directories) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(directory).map_err(|error| io("reading", directory, &error))? {
            let entry = entry.map_err(|error| io("reading", directory, &error))?;
            let path = entry.path();
            self.seen += 1;
            if self.seen > MAX_ENTRIES {
                return Err(CapsuleError::Pack(format!("more than {MAX_ENTRIES} entries")));
            }
            let name = entry.file_name().into_string();
            let name = name.map_err(|_| refuse("a name that is not UTF-8", &path))?;
            let kind = entry.file_type().map_err(|error| io("reading", &path, &error))?;
            if kind.is_dir() {
                if name != "__pycache__" {
                    directories.push(name);
                }
            } else if !kind.is_symlink() || self.leads_to_a_file(&path)? {
                files.push(name);
            }
        }
        // Code points sort as their UTF-8 does.
        files.sort_unstable();
        directories.sort_unstable();
        for name in files {
            let bytes = read_file(&directory.join(&name), MAX_PACKED_BYTES - self.bytes)?;
            self.bytes += bytes.len() as u64;
            self.writer.add(&format!("{prefix}{name}"), &bytes)?;
        }
        for name in directories {
            self.directory(&directory.join(&name), &format!("{prefix}{name}/"), depth + 1)?;
        }
        Ok(())
    }

    fn leads_to_a_file(&self, link: &Path) -> Result<bool, CapsuleError> {
        let target = link.canonicalize().map_err(|error| io("following the link", link, &error))?;
        if target.is_dir() {
            return Ok(false);
        }
        if !target.starts_with(&self.home) {
            return Err(refuse("a link that leads out of the directory", link));
        }
        Ok(true)
    }
}

/// The bytes of a regular file, if it has no more than `allowed`.
pub(super) fn read_file(path: &Path, allowed: u64) -> Result<Vec<u8>, CapsuleError> {
    // Before it is opened: a FIFO would wait for its writer.
    let meta = fs::metadata(path).map_err(|error| io("reading", path, &error))?;
    if !meta.is_file() {
        return Err(refuse("not a regular file", path));
    }
    let too_large = || refuse("too large to pack", path);
    if meta.len() > allowed {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(meta.len()).unwrap_or(0) + 1);
    let file = File::open(path).map_err(|error| io("opening", path, &error))?;
    file.take(allowed + 1).read_to_end(&mut bytes).map_err(|error| io("reading", path, &error))?;
    if bytes.len() as u64 > allowed {
        return Err(too_large());
    }
    Ok(bytes)
}

fn io(doing: &str, path: &Path, error: &std::io::Error) -> CapsuleError {
    CapsuleError::Io(format!("{doing} {}: {error}", path.display()))
}

fn refuse(what: &str, path: &Path) -> CapsuleError {
    CapsuleError::Pack(format!("{what}: {}", path.display()))
}
