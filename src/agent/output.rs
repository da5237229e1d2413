//! What an agent prints: cut into lines, escaped, handed to the host's log, which bounds how many there are.

use super::host::Host;
use crate::log::escape;
use std::sync::Arc;

/// The longest line kept, bytes; the rest of it is counted.
const LINE_BYTES: usize = 2048;
/// Collects an agent's standard output and error.
pub(super) struct Output {
    host: Arc<dyn Host>,
    secret: String,
    line: Vec<u8>,
    over: usize,
}

impl Output {
    pub(super) fn new(host: Arc<dyn Host>, secret: &str) -> Self {
        Output { host, secret: secret.to_owned(), line: Vec::new(), over: 0 }
    }

    pub(super) fn feed(&mut self, data: &[u8]) {
        for piece in data.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            let room = LINE_BYTES.saturating_sub(self.line.len()).min(text.len());
            self.line.extend_from_slice(&text[..room]);
            self.over += text.len() - room;
            if ends {
                self.end_line();
            }
        }
    }

    /// Hands on an unterminated last line.
    pub(super) fn finish(&mut self) {
        if !self.line.is_empty() {
            self.end_line();
        }
    }

    fn end_line(&mut self) {
        let mut text = escape(&without_secret(&String::from_utf8_lossy(&self.line), &self.secret));
        if self.over > 0 {
            text.push_str(&format!(" … ({} bytes more)", self.over));
        }
        self.host.printed(&text);
        self.line.clear();
        self.over = 0;
    }
}

/// A text with the agent's secret taken out: a line of the source that an exception quotes may be the
/// very one that holds it. One of a few characters would stand in every other word.
pub fn without_secret(text: &str, secret: &str) -> String {
    match secret.len() {
        0..=5 => text.to_owned(),
        _ => text.replace(secret, "[its secret]"),
    }
}
