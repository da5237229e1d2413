//! What an agent prints: cut into lines, escaped, bounded, handed to the host's log.

use super::host::Host;
use crate::log::escape;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest line kept, bytes; the rest of it is counted.
const LINE_BYTES: usize = 2048;
/// How much is kept in each [`WINDOW`], bytes.
const WINDOW_BYTES: usize = 64 * 1024;
const WINDOW: Duration = Duration::from_secs(10);

/// Collects an agent's standard output and error.
pub(super) struct Output {
    host: Arc<dyn Host>,
    secret: String,
    line: Vec<u8>,
    over: usize,
    window: Instant,
    kept: usize,
    dropped: usize,
}

impl Output {
    pub(super) fn new(host: Arc<dyn Host>, secret: &str) -> Self {
        Output {
            host,
            secret: secret.to_owned(),
            line: Vec::new(),
            over: 0,
            window: Instant::now(),
            kept: 0,
            dropped: 0,
        }
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

    /// Hands on an unterminated last line and says what was left out.
    pub(super) fn finish(&mut self) {
        if !self.line.is_empty() {
            self.end_line();
        }
        self.tell_dropped();
    }

    fn end_line(&mut self) {
        if self.window.elapsed() > WINDOW {
            self.tell_dropped();
            self.window = Instant::now();
            self.kept = 0;
        }
        if self.kept + self.line.len() > WINDOW_BYTES {
            self.dropped += self.line.len() + self.over + 1;
        } else {
            self.kept += self.line.len() + 1;
            let mut text = escape(&without_secret(&String::from_utf8_lossy(&self.line), &self.secret));
            if self.over > 0 {
                text.push_str(&format!(" … ({} bytes more)", self.over));
            }
            self.host.printed(&text);
        }
        self.line.clear();
        self.over = 0;
    }

    fn tell_dropped(&mut self) {
        if self.dropped > 0 {
            self.host.printed(&format!("… {} bytes of output left out", self.dropped));
            self.dropped = 0;
        }
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
