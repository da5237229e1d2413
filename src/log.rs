//! The node's log: one event a line, `time level node event key=value…`, everything escaped.

use crate::clock;
use crate::sync::lock;
use crate::wire::unix_now;
use std::fmt::Write as _;
use std::io::Write;
use std::sync::Mutex;

/// The longest value that an event shows, bytes: a stranger's line may hold a name of megabytes.
const LONGEST_VALUE: usize = 8 << 10;

/// How much an event matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// What happens when all is well.
    Info,
    /// Something was refused, lost or left out.
    Warn,
    /// The node could not do what it should.
    Error,
}

/// What a log shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// Every event, as a line for files and pipes.
    Events,
    /// Only what agents print and log, as a developer at a terminal wants it.
    Agents,
    /// Nothing.
    Nothing,
}

/// Writes events to a stream. A stream that fails is no reason to stop the node.
pub struct Log {
    node: String,
    show: Show,
    out: Mutex<Box<dyn Write + Send>>,
}

impl Log {
    /// A log of the node called `node`.
    pub fn new(node: &str, show: Show, out: Box<dyn Write + Send>) -> Self {
        Log { node: node.to_owned(), show, out: Mutex::new(out) }
    }

    /// One event. Values with blanks or quotes are quoted; control characters come out escaped.
    pub fn event(&self, level: Level, event: &str, fields: &[(&str, &str)]) {
        if self.show != Show::Events {
            return;
        }
        let level = match level {
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        };
        let mut line = format!("{} {level} {} {event}", clock::utc(unix_now()), self.node);
        for (name, value) in fields {
            let head = clipped(value, LONGEST_VALUE);
            let _ = write!(line, " {name}={}", quoted(head)); // writing to a String cannot fail
            if head.len() < value.len() {
                let _ = write!(line, "…({}_bytes)", value.len());
            }
        }
        self.write(line);
    }

    /// A line of an agent's: what it printed, or logged with `ctx.log`.
    pub fn agent(&self, agent: &str, event: &str, text: &str) {
        match self.show {
            Show::Events => self.event(Level::Info, event, &[("agent", agent), ("text", text)]),
            Show::Agents => self.write(format!("{agent}: {}", escape(text))),
            Show::Nothing => {}
        }
    }

    fn write(&self, mut line: String) {
        line.push('\n');
        let mut out = lock(&self.out);
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    }
}

/// The head of a text, at most `most` bytes of it, cut between two characters.
pub fn clipped(text: &str, most: usize) -> &str {
    if text.len() <= most {
        return text;
    }
    let end = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}

fn quoted(value: &str) -> String {
    let clean = escape(value);
    if clean.is_empty() || clean.contains([' ', '"', '=']) {
        format!("\"{}\"", clean.replace('"', "\\\""))
    } else {
        clean
    }
}

/// Control and direction characters as escapes, so that a text cannot pass for another line.
pub fn escape(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        let turns = matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if c.is_control() || turns {
            clean.extend(c.escape_default());
        } else {
            clean.push(c);
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
            lock(&self.0).extend_from_slice(data);
            Ok(data.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_long_value_is_cut_between_characters_and_says_so() {
        assert_eq!(clipped("aé", 2), "a");
        assert_eq!(clipped("aé", 3), "aé");
        assert_eq!(clipped("é", 1), "");
        let kept = Kept::default();
        let log = Log::new("n", Show::Events, Box::new(kept.clone()));
        log.event(Level::Warn, "said", &[("text", &"é".repeat(1 << 20)), ("n", "1")]);
        let text = String::from_utf8(lock(&kept.0).clone()).unwrap();
        assert!(
            text.len() < 2 * LONGEST_VALUE && text.ends_with("é…(2097152_bytes) n=1\n"),
            "{}",
            text.len()
        );
    }

    #[test]
    fn a_value_cannot_begin_another_line() {
        let kept = Kept::default();
        let log = Log::new("n", Show::Events, Box::new(kept.clone()));
        log.event(Level::Warn, "said", &[("text", "a b\n2026 info n forged\x1b[2J\u{2028}x"), ("n", "1")]);
        let text = String::from_utf8(lock(&kept.0).clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(
            text.contains(r"a b\n2026") && text.ends_with(" n=1\n") && !text.contains('\u{2028}'),
            "{text}"
        );
    }
}
