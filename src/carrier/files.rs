//! Files, read within bounds.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::CarrierError;

/// Reads a file of at most `most` bytes.
///
/// # Errors
/// It cannot be read, or is larger.
pub fn read_bytes(path: &Path, most: u64) -> Result<Vec<u8>, CarrierError> {
    let failed =
        |what: &dyn std::fmt::Display| CarrierError::Io(format!("reading {}: {what}", path.display()));
    let file = File::open(path).map_err(|error| failed(&error))?;
    let expected = file.metadata().map_or(0, |about| about.len().min(most));
    let mut bytes = Vec::with_capacity(usize::try_from(expected).unwrap_or(0) + 1);
    file.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    match bytes.len() as u64 > most {
        true => Err(failed(&format!("more than {most} bytes"))),
        false => Ok(bytes),
    }
}

/// The same, of UTF-8.
///
/// # Errors
/// As [`read_bytes`], and for anything but UTF-8.
pub fn read_text(path: &Path, most: u64) -> Result<String, CarrierError> {
    String::from_utf8(read_bytes(path, most)?)
        .map_err(|_| CarrierError::Io(format!("reading {}: it is not UTF-8 text", path.display())))
}
