//! Registry files: read, and edited so that a reader finds the old one or the new one, whole.
//!
//! Who edits one holds a lock on its directory meanwhile, so that two commands at once lose nothing.

use crate::input;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use rustix::fs::{flock, FlockOperation};

use super::trust::Entry;
use super::whole_file::{directory_of, sweep, WholeFile};
use super::{CapsuleError, PublicKey, Registry};

/// The longest registry, policy or snapshot that is read, in bytes.
pub const MAX_FILE_BYTES: u64 = 16 << 20;

/// Reads a file of JSON, of which no more than [`MAX_FILE_BYTES`] are taken.
///
/// # Errors
/// It cannot be read, is too long, or not UTF-8.
pub fn read_text(path: &Path) -> Result<String, CapsuleError> {
    let failed = |error: io::Error| CapsuleError::Io(format!("reading {}: {error}", path.display()));
    input::read_text(path, MAX_FILE_BYTES).map_err(failed)
}

/// Reads a registry.
///
/// # Errors
/// It cannot be read, or is none.
pub fn read(path: &Path) -> Result<Registry, CapsuleError> {
    Registry::parse(&read_text(path)?, directory_of(path))
}

/// Changes a registry, or begins one if there is no such file. If `change` fails, nothing changes.
///
/// # Errors
/// Reading, writing, or `change` failed.
pub fn edit<T>(
    path: &Path,
    change: impl FnOnce(&mut Registry) -> Result<T, CapsuleError>,
) -> Result<T, CapsuleError> {
    let directory = directory_of(path);
    let locked = File::open(directory)
        .and_then(|file| Ok(flock(&file, FlockOperation::LockExclusive).map(|()| file)?));
    let _lock =
        locked.map_err(|error| CapsuleError::Io(format!("locking {}: {error}", directory.display())))?;
    sweep(path);
    let mut registry = match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Registry::default(),
        _ => read(path)?,
    };
    let changed = change(&mut registry)?;
    replace(path, &format!("{}\n", registry.json()))?;
    Ok(changed)
}

/// Writes a file so that it is there as a whole or as it was.
///
/// # Errors
/// What failed.
pub fn replace(path: &Path, text: &str) -> Result<(), CapsuleError> {
    let written = WholeFile::create(path).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.finish_durably()
    });
    written.map_err(|error| CapsuleError::Io(format!("writing {}: {error}", path.display())))
}

impl Registry {
    /// Adds a key.
    ///
    /// # Errors
    /// The key is weak, or there already, or another one has its id.
    pub fn add(&mut self, entry: Entry) -> Result<(), CapsuleError> {
        let refuse = |what: String| Err(CapsuleError::File(what));
        if entry.key_id.is_empty() {
            return refuse("the key id is empty".into());
        }
        entry.key.map(PublicKey::usable).transpose()?;
        if let Some(there) = self.entries.iter().find(|there| there.fingerprint == entry.fingerprint) {
            let status = if there.revoked { "revoked" } else { "trusted" };
            return refuse(format!("the key is in the registry already, as {}, {status}", there.key_id));
        }
        if self.entries.iter().any(|there| there.key_id == entry.key_id && !there.revoked) {
            return refuse(format!("the registry has another key with the id {}", entry.key_id));
        }
        self.entries.push(entry);
        Ok(())
    }

    /// Revokes the keys that are called so and have that fingerprint; how many there are. An imported entry
    /// becomes the registry's own by it, so that no import brings the key back.
    ///
    /// # Errors
    /// There is none.
    pub fn revoke(
        &mut self,
        key_id: Option<&str>,
        fingerprint: Option<&str>,
        note: Option<&str>,
    ) -> Result<usize, CapsuleError> {
        let mut count = 0;
        for entry in &mut self.entries {
            let called = key_id.is_none_or(|key_id| key_id == entry.key_id);
            if called && fingerprint.is_none_or(|digits| digits.eq_ignore_ascii_case(&entry.fingerprint)) {
                entry.revoked = true;
                entry.extra.retain(|(name, _)| name != "source");
                entry.note = note.map(String::from).or(entry.note.take());
                count += 1;
            }
        }
        if count == 0 {
            return Err(CapsuleError::File("the registry has no such key".into()));
        }
        Ok(count)
    }
}
