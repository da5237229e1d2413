//! The node's log: one event a line, as text (`time level node event key=value…`) or as JSON, everything
//! escaped.
//!
//! Writing it must neither hold up nor end the node: what goes to standard error or a file goes through a
//! [`Spool`], which keeps a bounded number of lines and counts those that it loses.

mod line;
mod spool;
mod target;

pub use line::{quoted, Form};
pub use spool::Spool;
pub use target::Target;

use crate::sync::lock;
use line::Head;
use std::io::Write;
use std::sync::{Arc, Mutex};

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

/// Where lines go.
enum Out {
    /// Written where the event happens.
    Direct(Mutex<Box<dyn Write + Send>>),
    /// Handed to a thread that writes them.
    Spooled(Arc<Spool>),
}

/// Writes events. A stream that fails is no reason to stop the node.
pub struct Log {
    node: String,
    show: Show,
    form: Form,
    out: Out,
}

impl Log {
    /// A log of the node called `node`, written where its events happen: for a developer at a terminal,
    /// and for tests.
    pub fn new(node: &str, show: Show, out: Box<dyn Write + Send>) -> Self {
        Log { node: node.to_owned(), show, form: Form::Plain, out: Out::Direct(Mutex::new(out)) }
    }

    /// A log of the node called `node` that never holds it up.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn spooled(node: &str, show: Show, form: Form, target: Target) -> std::io::Result<Self> {
        let out = Out::Spooled(Spool::start(node, form, target)?);
        Ok(Log { node: node.to_owned(), show, form, out })
    }

    /// The spool, if lines go through one.
    pub fn spool(&self) -> Option<&Arc<Spool>> {
        match &self.out {
            Out::Direct(_) => None,
            Out::Spooled(spool) => Some(spool),
        }
    }

    /// One event. Values with blanks or quotes are quoted; control characters come out escaped.
    pub fn event(&self, level: Level, event: &str, fields: &[(&str, &str)]) {
        if self.show == Show::Events {
            self.write(self.form.line(Head { level, node: &self.node, event }, fields));
        }
    }

    /// A line of an agent's: what it printed, or logged with `ctx.log`.
    pub fn agent(&self, agent: &str, event: &str, text: &str) {
        match self.show {
            Show::Events => self.event(Level::Info, event, &[("agent", agent), ("text", text)]),
            Show::Agents => self.write(format!("{agent}: {}\n", escape(text))),
            Show::Nothing => {}
        }
    }

    fn write(&self, line: String) {
        match &self.out {
            Out::Direct(out) => {
                let mut out = lock(out);
                let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
            }
            Out::Spooled(spool) => spool.push(line),
        }
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

/// Control and direction characters as escapes, so that a text cannot pass for another line.
pub fn escape(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        if is_odd(c) {
            clean.extend(c.escape_default());
        } else {
            clean.push(c);
        }
    }
    clean
}

/// Whether a character does something to a terminal or an editor instead of being shown.
fn is_odd(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::line::LONGEST_VALUE;
    use super::*;

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
