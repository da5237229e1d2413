//! One event as a line: for people and `grep`, or as JSON for programs.

use super::{clipped, escape, is_odd, Level};
use crate::clock;
use crate::wire::unix_now;
use std::fmt::Write as _;

/// The longest value that an event shows, bytes: a stranger's line may hold a name of megabytes.
pub(super) const LONGEST_VALUE: usize = 8 << 10;

/// How an event is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// `2026-05-09T00:00:00Z info lab listening address=127.0.0.1:7000`: values with blanks, quotes, `=` or
    /// nothing in them are quoted; control characters are escaped.
    #[default]
    Plain,
    /// `{"time":"2026-05-09T00:00:00Z","level":"info","node":"lab","event":"listening","address":"127.0.0.1:7000"}`:
    /// every value is a string.
    Json,
}

/// What every event says.
pub(super) struct Head<'a> {
    pub level: Level,
    pub node: &'a str,
    pub event: &'a str,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        }
    }
}

impl Form {
    /// The line of an event that happens now, with its end.
    pub(super) fn line(self, head: Head<'_>, fields: &[(&str, &str)]) -> String {
        let Head { level, node, event } = head;
        let (time, level) = (clock::utc(unix_now()), level.word());
        let mut line = match self {
            Form::Plain => format!("{time} {level} {node} {event}"),
            Form::Json => {
                let mut line = String::from("{");
                for (name, value) in
                    [("time", time.as_str()), ("level", level), ("node", node), ("event", event)]
                {
                    member(&mut line, name, value);
                }
                line
            }
        };
        for (name, value) in fields {
            let head = clipped(value, LONGEST_VALUE);
            let cut =
                if head.len() < value.len() { format!("…({}_bytes)", value.len()) } else { String::new() };
            match self {
                Form::Plain => {
                    let _ = write!(line, " {name}={}{cut}", quoted(head)); // writing to a String cannot fail
                }
                Form::Json => member(&mut line, name, &format!("{head}{cut}")),
            }
        }
        line.push_str(if self == Form::Json { "}\n" } else { "\n" });
        line
    }
}

/// A value as a plain line shows it.
pub fn quoted(value: &str) -> String {
    let clean = escape(value);
    if clean.is_empty() || clean.contains([' ', '"', '=']) {
        format!("\"{}\"", clean.replace('"', "\\\""))
    } else {
        clean
    }
}

/// Adds a member to an object that is still open.
fn member(line: &mut String, name: &str, value: &str) {
    if line.len() > 1 {
        line.push(',');
    }
    string(line, name);
    line.push(':');
    string(line, value);
}

/// A JSON string in which nothing is left that a terminal would act on.
fn string(line: &mut String, text: &str) {
    line.push('"');
    for c in text.chars() {
        match c {
            '"' => line.push_str("\\\""),
            '\\' => line.push_str("\\\\"),
            c if is_odd(c) => {
                let _ = write!(line, "\\u{:04x}", u32::from(c)); // all of them are below U+10000
            }
            c => line.push(c),
        }
    }
    line.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    const ODD: &str = "a b\"c\\d\n2026 info n forged\u{1b}[2J\u{85}\u{202e}\u{2028}é𝄞\t\0";

    #[test]
    fn json_says_the_same_and_comes_back_equal() {
        let head = || Head { level: Level::Warn, node: "lab", event: "said" };
        let line = Form::Json.line(head(), &[("text", ODD), ("empty", "")]);
        assert!(line.ends_with("}\n") && line.lines().count() == 1, "{line}");
        assert!(!line.trim_end().chars().any(is_odd), "{line}");
        let value: Value = serde_json::from_str(&line).unwrap();
        let members: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(members.len(), 6, "{members:?}");
        assert_eq!(value["text"], ODD);
        assert_eq!(
            (&value["level"], &value["node"], &value["event"]),
            (&"warn".into(), &"lab".into(), &"said".into())
        );
        assert!(crate::clock::is_utc(value["time"].as_str().unwrap()));
        let plain = Form::Plain.line(head(), &[("text", ODD), ("empty", "")]);
        assert!(
            plain.contains(" warn lab said text=\"a b\\\"c") && plain.ends_with(" empty=\"\"\n"),
            "{plain}"
        );
    }

    #[test]
    fn a_long_value_is_cut_in_json_too() {
        let head = Head { level: Level::Info, node: "n", event: "said" };
        let line = Form::Json.line(head, &[("text", &"é".repeat(1 << 20))]);
        let value: Value = serde_json::from_str(&line).unwrap();
        assert!(
            line.len() < 2 * LONGEST_VALUE && value["text"].as_str().unwrap().ends_with("é…(2097152_bytes)")
        );
    }
}
