//! The lock of a state directory: one node at a time keeps its state there.
//!
//! The kernel holds it (`flock`) for as long as the node's process lives, and lets go of it however that
//! ends. The number of the process stands in the file, for people; nothing is decided by it, because
//! numbers are used again.

use rustix::fs::{flock, FlockOperation};
use rustix::io::Errno;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The file that is locked.
const FILE: &str = "lock";

/// How long a lock that another holds is tried again: [`holder`] takes it for an instant to see whether it is
/// free, and that of a process that is being killed is let go a moment later.
const PATIENCE: Duration = Duration::from_millis(250);

/// A state directory that is this process's.
pub struct Lock {
    _file: File,
}

/// Why a state directory is not ours.
#[derive(Debug)]
pub enum NotTaken {
    /// A node runs on it.
    Held {
        /// Its process, if the file says so.
        pid: Option<u32>,
        /// The directory.
        state_dir: PathBuf,
    },
    /// The file can't be made, opened or locked.
    Failed(String),
}

impl fmt::Display for NotTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotTaken::Held { pid: Some(pid), state_dir } => {
                write!(f, "the node of process {pid} runs on {} already", state_dir.display())
            }
            NotTaken::Held { pid: None, state_dir } => {
                write!(f, "a node runs on {} already", state_dir.display())
            }
            NotTaken::Failed(why) => f.write_str(why),
        }
    }
}

/// Takes a state directory for this process.
///
/// # Errors
/// Another node has it, or the file can't be locked.
pub fn take(state_dir: &Path) -> Result<Lock, NotTaken> {
    let path = state_dir.join(FILE);
    let doing = |error: io::Error| NotTaken::Failed(format!("locking {}: {error}", path.display()));
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let mut file = options.open(&path).map_err(doing)?;
    let give_up = Instant::now() + PATIENCE;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if Instant::now() < give_up => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(Errno::WOULDBLOCK) => {
                return Err(NotTaken::Held { pid: written(&path), state_dir: state_dir.to_owned() })
            }
            Err(error) => return Err(doing(error.into())),
        }
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(doing)?;
    Ok(Lock { _file: file })
}

/// Who has a state directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// No node runs on it, whatever its files say.
    Nobody,
    /// A node does; its process, if the file says so.
    Process(Option<u32>),
}

/// Looks who has a state directory. Makes and changes nothing.
///
/// # Errors
/// The file is there and can't be read.
pub fn holder(state_dir: &Path) -> io::Result<Holder> {
    let path = state_dir.join(FILE);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Holder::Nobody),
        Err(error) => return Err(error),
    };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(Holder::Nobody), // and let go again, when the file is closed
        Err(Errno::WOULDBLOCK) => Ok(Holder::Process(written(&path))),
        Err(error) => Err(error.into()),
    }
}

fn written(path: &Path) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    #[test]
    fn a_lock_is_one_process_s_and_outlives_no_holder() {
        let dir = TempDir::new("lock");
        assert_eq!(holder(dir.path()).unwrap(), Holder::Nobody, "there is no file yet");
        let first = take(dir.path()).unwrap();
        assert_eq!(holder(dir.path()).unwrap(), Holder::Process(Some(std::process::id())));
        let Err(refused) = take(dir.path()) else { panic!("taken twice") };
        let told =
            format!("the node of process {} runs on {} already", std::process::id(), dir.path().display());
        assert_eq!(refused.to_string(), told);
        drop(first);
        assert_eq!(holder(dir.path()).unwrap(), Holder::Nobody, "the number in the file decides nothing");
        take(dir.path()).unwrap();
    }

    #[test]
    fn looking_does_not_keep_a_node_from_starting() {
        let dir = TempDir::new("lock-looked-at");
        drop(take(dir.path()).unwrap());
        std::thread::scope(|scope| {
            let looking = scope.spawn(|| {
                for _ in 0..2000 {
                    holder(dir.path()).unwrap();
                }
            });
            while !looking.is_finished() {
                drop(take(dir.path()).map_err(|why| why.to_string()).unwrap());
            }
        });
    }
}
