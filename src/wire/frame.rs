//! Lines over a connection, bounded in bytes and in time.
//!
//! A deadline is for the whole line. A peer that sends a byte now and then does not push it back.

use super::room::{Hold, NoRoom};
use super::stream::{Stream, Trouble};
use super::tls::HELLO;
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

/// What is asked of the kernel at a time, in bytes.
const CHUNK: usize = 32 << 10;

/// What came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A line without its newline (a carriage return before it stays), or the last text of a stream
    /// that ended without one.
    Text(Vec<u8>),
    /// The peer sends no more.
    End,
}

/// Why there is no line.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// The deadline passed. `partial` tells whether part of a line had come.
    TimedOut {
        /// Whether the peer had begun a line.
        partial: bool,
    },
    /// The line has more than this many bytes. What follows on the connection is the rest of it.
    TooLarge {
        /// The limit.
        limit: usize,
    },
    /// All lines together hold as much as they may ([`Hold`]).
    NoRoom,
    /// What came is the beginning of a TLS handshake, and no line.
    Secured,
    /// The connection failed.
    Io(io::Error),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::TimedOut { partial: true } => f.write_str("the line was not complete in time"),
            ReadError::TimedOut { partial: false } => f.write_str("no line came in time"),
            ReadError::TooLarge { limit } => write!(f, "the line is longer than {limit} bytes"),
            ReadError::NoRoom => f.write_str("there is no room for so long a line now"),
            ReadError::Secured => f.write_str("it is a TLS handshake and no line"),
            ReadError::Io(error) => write!(f, "reading from the connection: {error}"),
        }
    }
}

impl std::error::Error for ReadError {}

/// Reads the lines of a connection. Sets the stream's read timeout and leaves it set.
///
/// Memory grows with what arrives, up to the limit, and a long line takes its memory along.
pub struct LineReader<'s> {
    stream: &'s dyn Stream,
    limit: usize,
    hold: Option<&'s Hold<'s>>,
    buffer: Vec<u8>,
    /// Where the next line starts in `buffer`.
    start: usize,
    /// Up to where `buffer` holds no newline.
    searched: usize,
}

impl<'s> LineReader<'s> {
    /// A reader of lines of at most `max_bytes`, the newline not counted.
    pub fn new(stream: &'s dyn Stream, max_bytes: usize) -> LineReader<'s> {
        LineReader { stream, limit: max_bytes, hold: None, buffer: Vec::new(), start: 0, searched: 0 }
    }

    /// The same, its memory counted in `hold`. What a line that was handed out holds is the caller's to settle.
    pub fn within(self, hold: &'s Hold<'s>) -> LineReader<'s> {
        LineReader { hold: Some(hold), ..self }
    }

    /// The next line that is not only white space. What has come behind it is kept for the next call.
    ///
    /// # Errors
    /// There is none, and there will be none: what had come is dropped.
    pub fn next_line(&mut self, deadline: Instant) -> Result<Line, ReadError> {
        self.find_line(deadline).inspect_err(|_| {
            (self.start, self.searched) = (0, 0);
            self.buffer = Vec::new(); // before anyone waits for the peer to read why
        })
    }

    fn find_line(&mut self, deadline: Instant) -> Result<Line, ReadError> {
        loop {
            // It would not end as a line does, and its sender waits for an answer.
            if self.buffer.get(self.start) == Some(&HELLO) {
                return Err(ReadError::Secured);
            }
            while let Some(line) = self.buffered_line() {
                if line.len() > self.limit {
                    return Err(ReadError::TooLarge { limit: self.limit });
                }
                if !is_blank(&line) {
                    return Ok(Line::Text(line));
                }
                // Blank lines that come without end are bounded by the deadline too.
                if Instant::now() >= deadline {
                    return Err(ReadError::TimedOut { partial: false });
                }
            }
            if self.buffer.len() - self.start > self.limit {
                return Err(ReadError::TooLarge { limit: self.limit });
            }
            if self.read_more(deadline)? == 0 {
                // Reading has moved the line to the start of the buffer.
                let rest = std::mem::take(&mut self.buffer);
                self.searched = 0;
                return Ok(if is_blank(&rest) { Line::End } else { Line::Text(rest) });
            }
        }
    }

    /// Waits until something of a next line is there; false if the peer sends no more. For a wait
    /// between lines that has another bound than the line itself.
    pub fn wait(&mut self, deadline: Instant) -> Result<bool, ReadError> {
        Ok(self.start < self.buffer.len() || self.read_more(deadline)? > 0)
    }

    fn buffered_line(&mut self) -> Option<Vec<u8>> {
        let fresh = &self.buffer[self.searched..];
        let Some(found) = fresh.iter().position(|byte| *byte == b'\n') else {
            self.searched = self.buffer.len();
            return None;
        };
        let newline = self.searched + found;
        let line = if newline - self.start > CHUNK {
            // Behind a long line there is less than a chunk; the line keeps the memory it came in.
            let rest = self.buffer.split_off(newline + 1);
            let mut line = std::mem::replace(&mut self.buffer, rest);
            line.truncate(newline);
            line.drain(..self.start);
            self.start = 0;
            line
        } else {
            let line = self.buffer[self.start..newline].to_vec();
            self.start = newline + 1;
            line
        };
        self.searched = self.start;
        Some(line)
    }

    fn read_more(&mut self, deadline: Instant) -> Result<usize, ReadError> {
        self.buffer.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        // One byte beyond the limit tells that the line is too long.
        let room = self.limit.saturating_add(1).saturating_sub(self.buffer.len()).clamp(1, CHUNK);
        let mut chunk = [0; CHUNK];
        let partial = !is_blank(&self.buffer[..self.buffer.len().min(CHUNK)]);
        let count =
            self.stream.read_before(&mut chunk[..room], deadline).map_err(|trouble| match trouble {
                Trouble::Late => ReadError::TimedOut { partial },
                Trouble::Io(error) => ReadError::Io(error),
            })?;
        let needed = self.buffer.len() + count;
        if needed > self.buffer.capacity() {
            let grown = (self.buffer.capacity() * 2).min(self.limit.saturating_add(1)).max(needed);
            if let Some(hold) = self.hold {
                hold.grow(grown, deadline).map_err(|NoRoom| ReadError::NoRoom)?;
            }
            self.buffer.reserve_exact(grown - self.buffer.len());
        }
        self.buffer.extend_from_slice(&chunk[..count]);
        Ok(count)
    }
}

fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_whitespace)
}

/// Writes a line and its newline before the deadline. Sets the stream's write timeout.
///
/// After an error the peer may have received all, part or none of it.
pub fn write_line(stream: &dyn Stream, line: &str, deadline: Instant) -> io::Result<()> {
    // The newline goes with the last stretch and not in a packet of its own.
    let (head, tail) = line.as_bytes().split_at(line.len() - line.len() % CHUNK);
    let mut last = Vec::with_capacity(tail.len() + 1);
    last.extend_from_slice(tail);
    last.push(b'\n');
    // By stretches, so that the deadline is looked at in between.
    for part in head.chunks(CHUNK).chain([&*last]) {
        stream.write_before(part, deadline)?;
    }
    Ok(())
}

/// Ends a connection so that the peer gets what was written to it: closing with unread input makes the
/// kernel send a reset, on which the peer may lose the answer. So the writing side is ended and what still
/// comes is read (below TLS, where there is one), at most `max_bytes` and for at most `max_time`. Dropping
/// the stream afterwards closes it.
pub fn close(stream: &dyn Stream, max_bytes: usize, max_time: Duration) {
    let deadline = Instant::now() + max_time;
    if stream.finish(deadline).is_err() {
        return;
    }
    let mut left = max_bytes;
    let mut chunk = [0; CHUNK];
    while left > 0 {
        let room = left.min(CHUNK);
        match stream.tcp().read_before(&mut chunk[..room], deadline) {
            Ok(count) if count > 0 => left -= count,
            _ => break,
        }
    }
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
