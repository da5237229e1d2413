//! Other agents' files, for an agent with `ManageRootAgent`: `agent_files`, `read_agent_file`, `write_agent_file`.
//!
//! A path begins with the directory's name: `state/…` (read, write) or `config/…` (read). The third directory of an
//! agent, `harness/`, is the node's, and nobody reaches it from here.

use super::data_root::{self, DataRoot};
use super::files;
use crate::agent::host::CallError;
use crate::log::clipped;
use crate::node::Node;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use serde::Serialize;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// How many paths `agent_files` gives at most.
const LISTED: usize = 10_000;
/// How much of a name an error repeats, bytes.
const SHOWN: usize = 200;
/// The directories, and whether they may be written.
const DIRECTORIES: [(&str, bool); 2] = [("config", false), ("state", true)];

/// One file, as `agent_files` tells it.
#[derive(Debug, Serialize)]
pub struct AgentFile {
    path: String,
    size: u64,
}

/// Every regular file of an agent, the first [`LISTED`] in the order of their names.
///
/// # Errors
/// `unknown_agent`; `internal` when a directory can't be read.
pub fn list(node: &Node, id: &str) -> Result<Vec<AgentFile>, CallError> {
    let mut all = Vec::new();
    for (name, _) in DIRECTORIES {
        let Some(root) = open(&place(node, id, name)?)? else { continue };
        for path in files::list_first(&root, LISTED - all.len())? {
            if let Ok(data_root::Node::File(_, size)) = root.open_node(&path) {
                all.push(AgentFile { path: format!("{name}/{path}"), size });
            }
        }
    }
    Ok(all)
}

/// Reads one of them; errors as of `read_file`, and `unknown_agent`.
pub fn read(
    node: &Node,
    id: &str,
    path: &str,
    max_bytes: u64,
    binary: bool,
) -> Result<Option<String>, CallError> {
    let (name, rest, _) = split(path)?;
    let root = open(&place(node, id, name)?)?
        .ok_or_else(|| CallError::new("not_found", format!("{id} has no directory `{name}`")))?;
    let content = files::read_file(&root, rest, max_bytes, binary)?;
    Ok(content.text.or(content.base64))
}

/// Writes one of them whole, making the folders on the way: readers see the old content or the new.
///
/// # Errors
/// `unknown_agent`; `forbidden` outside `state/`; `bad_payload` for a name that a directory has; `busy` and `internal`
/// when the disk does not take it.
pub fn write(node: &Node, id: &str, path: &str, content: &[u8]) -> Result<(), CallError> {
    let (name, rest, may_write) = split(path)?;
    let dir = place(node, id, name)?;
    if !may_write {
        return Err(CallError::new("forbidden", format!("`{name}/` is the operator's to write")));
    }
    let root = open(&dir)?.ok_or_else(|| {
        CallError::new("not_found", format!("{id} has no directory `{name}`: it has not been here yet"))
    })?;
    let (folders, file) = match rest.rsplit_once('/') {
        Some((folders, file)) => (folders, file),
        None => (".", rest),
    };
    if file.is_empty() || file == "." || file == ".." {
        return Err(CallError::new("bad_payload", format!("`{}` names no file", clipped(path, SHOWN))));
    }
    let folder = make_folders(&root, folders)?;
    replace(&folder, file, content)
        .map_err(|error| failed(&format!("writing `{}` of {id}", clipped(path, SHOWN)), &error))
}

fn failed(doing: &str, error: &io::Error) -> CallError {
    let code = match error.kind() {
        io::ErrorKind::IsADirectory | io::ErrorKind::InvalidFilename => "bad_payload",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "busy",
        _ => "internal",
    };
    CallError::new(code, format!("{doing}: {error}"))
}

/// The directory's name, the path in it, and whether it may be written.
fn split(path: &str) -> Result<(&'static str, &str, bool), CallError> {
    if path.contains('\0') {
        return Err(CallError::new("bad_payload", "the path contains a NUL character"));
    }
    let (top, rest) = path.split_once('/').unwrap_or((path, ""));
    let known = DIRECTORIES.iter().find(|(name, _)| *name == top);
    match known {
        Some((name, may_write)) if !rest.is_empty() => Ok((name, rest, *may_write)),
        Some(_) => Err(CallError::new("bad_payload", format!("`{top}` is a directory; name a file in it"))),
        None => Err(CallError::new(
            "forbidden",
            format!("`{}` is neither in `state/` nor in `config/`", clipped(path, SHOWN)),
        )),
    }
}

/// Where one of an agent's directories is, whether it exists or not.
fn place(node: &Node, id: &str, name: &str) -> Result<PathBuf, CallError> {
    node.directory_of(id, name).ok_or_else(|| {
        CallError::new("unknown_agent", format!("there is no agent {:?} on this node", clipped(id, SHOWN)))
    })
}

fn open(dir: &Path) -> Result<Option<DataRoot>, CallError> {
    // An agent may put a link in the place of what is its own: that is not opened.
    match dir.symlink_metadata() {
        Ok(told) if told.is_dir() => {}
        _ => return Ok(None),
    }
    match DataRoot::open(dir) {
        Ok(root) => Ok(Some(root)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(CallError::new("internal", format!("opening an agent's directory: {error}"))),
    }
}

fn make_folders(root: &DataRoot, folders: &str) -> Result<OwnedFd, CallError> {
    let folder = |path: &str| match root.open_node(path) {
        Ok(data_root::Node::Directory(dir)) => Ok(dir),
        Ok(data_root::Node::File(..)) => {
            Err(CallError::new("bad_payload", format!("`{}` is a file", clipped(path, SHOWN))))
        }
        Err(error) => Err(error),
    };
    let making = |path: &str| format!("making `{}`", clipped(path, SHOWN));
    let mut here = folder(".")?;
    let mut so_far = String::new();
    for name in folders.split('/').filter(|name| !matches!(*name, "" | ".")) {
        if !so_far.is_empty() {
            so_far.push('/');
        }
        so_far.push_str(name);
        here = match folder(&so_far) {
            Err(error) if error.code == "not_found" => {
                match rustix::fs::mkdirat(&here, name, Mode::RWXU) {
                    Ok(()) => {
                        let made = folder(&so_far)?;
                        given_like(&here, &made).map_err(|error| failed(&making(&so_far), &error))?;
                    }
                    Err(Errno::EXIST) => {}
                    Err(error) => return Err(failed(&making(&so_far), &error.into())),
                }
                folder(&so_far)?
            }
            found => found?,
        };
    }
    Ok(here)
}

/// Makes what the node has made its folder's owner's: as root, agents run as somebody else.
fn given_like(folder: &OwnedFd, made: &OwnedFd) -> io::Result<()> {
    let told = rustix::fs::fstat(folder)?;
    let owner = (Uid::from_raw(told.st_uid), Gid::from_raw(told.st_gid));
    match owner == (rustix::process::geteuid(), rustix::process::getegid()) {
        true => Ok(()),
        false => Ok(rustix::fs::fchown(made, Some(owner.0), Some(owner.1))?),
    }
}

fn replace(folder: &OwnedFd, file: &str, content: &[u8]) -> io::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let beside = format!(".new.{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let written = rustix::fs::openat(folder, &beside, flags, Mode::RUSR | Mode::WUSR)
        .map_err(io::Error::from)
        .and_then(|new| {
            given_like(folder, &new)?;
            File::from(new).write_all(content)
        })
        .and_then(|()| Ok(rustix::fs::renameat(folder, &beside, folder, file)?));
    written.inspect_err(|_| {
        let _ = rustix::fs::unlinkat(folder, &beside, AtFlags::empty());
    })
}
