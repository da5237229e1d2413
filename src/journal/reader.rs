//! Reading the files, line by line, within bounds.

use super::line::{LINE_BYTES, MOST};
use super::DIRECTORY;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// The ending of the files' names.
const ENDING: &str = ".jsonl";

/// What the file is called whose first line is `seq`.
pub(super) fn name(seq: u64) -> String {
    format!("{seq:012}{ENDING}")
}

/// The journal's files in the state directory, oldest first, with the number of the first line that each is for. None
/// where there is no journal.
///
/// # Errors
/// The directory can't be read.
pub fn files(state_dir: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let entries = match std::fs::read_dir(state_dir.join(DIRECTORY)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let seq =
            name.to_str().and_then(|name| name.strip_suffix(ENDING)).and_then(|digits| digits.parse().ok());
        if let Some(seq) = seq.filter(|seq| *seq <= MOST) {
            found.push((seq, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

/// The lines of one file.
pub struct Lines {
    reader: BufReader<File>,
    /// How many were read.
    pub number: u64,
}

/// A line as it stands in its file.
pub struct Raw {
    /// Its bytes, without the line end.
    pub text: Vec<u8>,
    /// Whether it had one: the last one may be in the middle of being written, or torn.
    pub whole: bool,
    /// How many it takes in the file.
    pub bytes: u64,
    /// Whether it is longer than any line of ours; then `text` is its head.
    pub too_long: bool,
}

impl Lines {
    /// Opens a file.
    ///
    /// # Errors
    /// It can't be opened.
    pub fn open(file: &Path) -> io::Result<Lines> {
        Ok(Lines::of(File::open(file)?))
    }

    /// The lines from where the file stands.
    pub fn of(file: File) -> Lines {
        Lines { reader: BufReader::with_capacity(64 << 10, file), number: 0 }
    }

    /// The next line; `None` at the end.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn next_line(&mut self) -> io::Result<Option<Raw>> {
        let mut text = Vec::new();
        let read = (&mut self.reader).take(LINE_BYTES as u64 + 1).read_until(b'\n', &mut text)?;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        let whole = text.last() == Some(&b'\n');
        if whole {
            text.pop();
        }
        let too_long = !whole && read > LINE_BYTES;
        let rest = if too_long { self.reader.skip_until(b'\n')? } else { 0 };
        Ok(Some(Raw { text, whole: whole || too_long, bytes: (read + rest) as u64, too_long }))
    }
}
