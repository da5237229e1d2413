//! What a command prints: results on standard output, everything else on standard error.

use super::fault::Fault;
use super::pretty::pretty;
use crate::log::escape;
use crate::wire;
use std::io::{self, Write};

/// Prints a line of results.
///
/// # Errors
/// `PipeClosed` when the reader has gone; `Local` for a disk that is full, and the like.
pub fn line(text: &str) -> Result<(), Fault> {
    let mut out = io::stdout().lock();
    let written =
        out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
    written.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Fault::PipeClosed,
        _ => Fault::Local(format!("writing to standard output: {error}")),
    })
}

/// Prints a result: one compact line, or readable.
///
/// # Errors
/// As [`line`].
pub fn result(json: &str, compact: bool) -> Result<(), Fault> {
    match wire::parse(json) {
        Ok(value) if compact => line(&wire::canonical(&value, wire::Form::Ascii, None)),
        Ok(value) => line(&pretty(value, speaks_utf8())),
        // Not one of ours, then; shown all the same, on one line that hides nothing.
        Err(_) => line(&escape(json)),
    }
}

/// Says something to whoever runs the command. That nobody reads it is no error.
pub fn note(text: &str) {
    let clean: Vec<String> = text.split('\n').map(escape).collect();
    note_raw(&format!("agentcontainer: {}", clean.join("\n")));
}

/// A line on standard error, as it is.
pub fn note_raw(text: &str) {
    let _ = io::stderr().lock().write_all(format!("{text}\n").as_bytes());
}

/// Whether the locale lets us print more than ASCII.
pub fn speaks_utf8() -> bool {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// A text of somebody else's within a line of ours.
pub fn shown(text: &str) -> String {
    let clean = escape(text);
    if speaks_utf8() {
        clean
    } else {
        clean.chars().map(|c| if c.is_ascii() { c } else { '?' }).collect()
    }
}

/// Columns, as wide as they need to be; the last one is not padded.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let lines = rows.iter().map(|row| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    #[test]
    fn columns_stand_below_each_other() {
        let rows = [["a", "bbb", "c"], ["aaaa", "b", ""]].map(|row| row.map(String::from).to_vec());
        assert_eq!(super::table(&rows), "a     bbb  c\naaaa  b");
    }
}
