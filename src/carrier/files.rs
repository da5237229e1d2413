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
    let size = file.metadata().map_or(0, |about| if about.is_file() { about.len() } else { 0 });
    // Said of a file at once. What has no size, as a pipe, or says 0, as a file of /proc, is read to tell.
    if size > most {
        return Err(failed(&format!("it has {size} bytes, at most {most} are read")));
    }
    let mut bytes = Vec::new();
    let room = usize::try_from(size).unwrap_or(usize::MAX).saturating_add(1);
    bytes.try_reserve_exact(room).map_err(|_| failed(&format!("there is no memory for its {size} bytes")))?;
    file.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    match bytes.len() as u64 > most {
        true => Err(failed(&format!("it has more than {most} bytes"))),
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
