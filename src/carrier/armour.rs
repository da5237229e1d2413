//! The armour: a block of lines around the carrier text.
//!
//! ```text
//! -----BEGIN LMCODEC-----
//! version: 1
//! model_fingerprint: d60583f4d741e42cb713b11c78b8ffc89cda1ee05eca522929bec8cbdb423be8
//! settings: TOT=65536; TOPK=0
//!
//! te1dmqabaabZJauPaaecaWqfbGCicqOlda0odXareHmufryxgbKAgXWDhH8GisiJjcuMjYGPkISSls4V
//! -----END LMCODEC-----
//! ```
//!
//! * Text before BEGIN and behind END is passed over; the first block is the one read. Lines end with LF,
//!   CRLF or CR, and markers may have blanks around them.
//! * Header lines have a colon; the first line that is blank or has none ends them. The three above are
//!   needed; others are passed over, and of one that stands there twice the last counts.
//! * `TOT` is 65536 and `TOPK` 0. The shaping settings follow; other names are passed over.
//! * Line ends within the carrier are no symbols. Everything else is one, blanks at the ends of lines too,
//!   so a block whose lines were trimmed does not come through.

use std::io::{BufRead, Write};

use super::quantise::TOTAL;
use super::{CarrierError, Shape};

/// Opens a block.
pub const BEGIN: &str = "-----BEGIN LMCODEC-----";
/// Closes it.
pub const END: &str = "-----END LMCODEC-----";

/// The longest header line that is read, in bytes.
const MAX_LINE: usize = 4096;

/// How many header lines are read at most.
const MAX_HEADERS: usize = 64;

/// What stands above the carrier.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// Of the model that made it.
    pub fingerprint: String,
    /// How the model's distributions were shaped.
    pub shape: Shape,
}

/// Writes a block, the carrier of which comes in parts.
pub struct Writer<'a> {
    out: &'a mut dyn Write,
    buffer: Vec<u8>,
    /// Characters a line; 0: all on one.
    wrap: usize,
    column: usize,
    carrier: u64,
    written: u64,
}

/// How many bytes are collected before they are written.
const BUFFER: usize = 64 << 10;

impl<'a> Writer<'a> {
    /// Writes what stands above the carrier.
    ///
    /// # Errors
    /// `out` fails.
    pub fn begin(out: &'a mut dyn Write, header: &Header, wrap: usize) -> Result<Writer<'a>, CarrierError> {
        let head = format!(
            "{BEGIN}\nversion: 1\nmodel_fingerprint: {}\nsettings: TOT={TOTAL}; TOPK=0{}\n\n",
            header.fingerprint,
            header.shape.settings()
        );
        let mut buffer = Vec::with_capacity(BUFFER + 1024);
        buffer.extend_from_slice(head.as_bytes());
        Ok(Writer { out, buffer, wrap, column: 0, carrier: 0, written: 0 })
    }

    /// Takes characters of the carrier.
    ///
    /// # Errors
    /// `out` fails.
    pub fn write(&mut self, mut text: &[u8]) -> Result<(), CarrierError> {
        self.carrier += text.len() as u64;
        while !text.is_empty() {
            if self.wrap > 0 && self.column == self.wrap {
                self.buffer.push(b'\n');
                self.column = 0;
            }
            let room = if self.wrap > 0 { self.wrap - self.column } else { BUFFER };
            let (line, rest) = text.split_at(room.min(text.len()));
            self.buffer.extend_from_slice(line);
            self.column += if self.wrap > 0 { line.len() } else { 0 };
            text = rest;
            if self.buffer.len() >= BUFFER {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Closes the block; how many characters the carrier has, and the whole block.
    ///
    /// # Errors
    /// `out` fails.
    pub fn end(mut self) -> Result<(u64, u64), CarrierError> {
        self.buffer.extend_from_slice(b"\n");
        self.buffer.extend_from_slice(END.as_bytes());
        self.buffer.extend_from_slice(b"\n");
        self.flush()?;
        Ok((self.carrier, self.written))
    }

    fn flush(&mut self) -> Result<(), CarrierError> {
        self.written += self.buffer.len() as u64;
        let written = self.out.write_all(&self.buffer);
        self.buffer.clear();
        written.map_err(|error| CarrierError::Io(format!("writing the carrier: {error}")))
    }
}

/// Takes characters of the carrier and the line they stand in; whether more are wanted.
pub type Each<'a> = &'a mut dyn FnMut(&[u8], u64) -> Result<bool, CarrierError>;

/// Reads a block, the carrier of which is handed on in parts.
pub struct Reader<'a> {
    source: &'a mut dyn BufRead,
    /// What was read of the carrier while the header's end was looked for.
    ahead: Vec<u8>,
    /// The number of the line that comes.
    line: u64,
}

impl<'a> Reader<'a> {
    /// Reads up to the carrier.
    ///
    /// # Errors
    /// No block, or one with a wrong header.
    pub fn begin(source: &'a mut dyn BufRead) -> Result<(Header, Reader<'a>), CarrierError> {
        let mut reader = Reader { source, ahead: Vec::new(), line: 1 };
        loop {
            match reader.next_line()? {
                Some(line) if line.trimmed() == BEGIN.as_bytes() && line.whole => break,
                Some(line) if !line.whole => reader.rest_of_line()?,
                Some(_) => {}
                None => return Err(CarrierError::Armour("it has no BEGIN line")),
            }
        }
        let (mut version, mut fingerprint, mut settings) = (None, None, None);
        for _ in 0..MAX_HEADERS {
            let Some(line) = reader.next_line()? else { break };
            let text = String::from_utf8_lossy(&line.bytes).into_owned();
            let text = text.trim();
            let Some((name, value)) = text.split_once(':').filter(|_| line.whole) else {
                if !text.is_empty() || !line.whole {
                    reader.ahead = line.bytes;
                    if line.whole {
                        reader.ahead.push(b'\n');
                        reader.line -= 1;
                    }
                }
                break;
            };
            let field = match name.trim() {
                "version" => &mut version,
                "model_fingerprint" => &mut fingerprint,
                "settings" => &mut settings,
                _ => continue,
            };
            *field = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
        }
        let version: String = version.ok_or(CarrierError::Armour("it has no version"))?;
        match version.parse::<i64>() {
            Ok(1) => {}
            Ok(_) => return Err(CarrierError::Version(version)),
            Err(_) => return Err(CarrierError::Armour("its version is no number")),
        }
        let fingerprint = fingerprint.ok_or(CarrierError::Armour("it has no model_fingerprint"))?;
        let shape = shape_of(&settings.ok_or(CarrierError::Armour("it has no settings"))?)?;
        Ok((Header { fingerprint, shape }, reader))
    }

    /// Hands the carrier's characters to `each`, with the line they stand in, until that has enough; then only
    /// END is looked for.
    ///
    /// # Errors
    /// What `each` says; no END; the source fails.
    pub fn carrier(mut self, each: Each<'_>) -> Result<(), CarrierError> {
        let mut lines =
            Lines { each, line: self.line, hungry: true, state: State::Start(0), after_cr: false };
        if lines.feed(&std::mem::take(&mut self.ahead))? {
            return Ok(());
        }
        loop {
            let bytes = fill(self.source)?;
            if bytes.is_empty() {
                break;
            }
            let count = bytes.len();
            if lines.feed(bytes)? {
                return Ok(());
            }
            self.source.consume(count);
        }
        match lines.feed(b"\n")? {
            true => Ok(()),
            false => Err(CarrierError::Armour("it has no END line: the text may be cut off")),
        }
    }

    /// The next line without its end; at most [`MAX_LINE`] bytes of it.
    fn next_line(&mut self) -> Result<Option<Line>, CarrierError> {
        let mut line = Line { bytes: Vec::new(), whole: true };
        loop {
            let bytes = fill(self.source)?;
            if bytes.is_empty() {
                return Ok((!line.bytes.is_empty()).then_some(line));
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let take = end.unwrap_or(bytes.len()).min(MAX_LINE - line.bytes.len());
            line.bytes.extend_from_slice(&bytes[..take]);
            match end.filter(|end| *end == take) {
                Some(end) => {
                    let cr = bytes[end] == b'\r';
                    self.source.consume(end + 1);
                    if cr && fill(self.source)?.first() == Some(&b'\n') {
                        self.source.consume(1);
                    }
                    self.line += 1;
                    return Ok(Some(line));
                }
                None => self.source.consume(take),
            }
            if line.bytes.len() == MAX_LINE {
                line.whole = false;
                return Ok(Some(line));
            }
        }
    }

    /// Passes over what is left of a long line.
    fn rest_of_line(&mut self) -> Result<(), CarrierError> {
        while self.next_line()?.is_some_and(|line| !line.whole) {}
        Ok(())
    }
}

struct Line {
    bytes: Vec<u8>,
    /// Whether it ended; else more of it follows.
    whole: bool,
}

impl Line {
    fn trimmed(&self) -> &[u8] {
        self.bytes.trim_ascii()
    }
}

fn fill(source: &mut dyn BufRead) -> Result<&[u8], CarrierError> {
    loop {
        match source.fill_buf() {
            Ok(_) => break,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(CarrierError::Io(format!("reading the carrier: {error}"))),
        }
    }
    source.fill_buf().map_err(|error| CarrierError::Io(format!("reading the carrier: {error}")))
}

/// Takes the carrier's lines apart.
struct Lines<'a> {
    each: Each<'a>,
    line: u64,
    /// Whether more characters are wanted.
    hungry: bool,
    state: State,
    /// Whether an LF that follows ends the same line.
    after_cr: bool,
}

enum State {
    /// At a line's start, behind so many blanks: the line may be END.
    Start(u64),
    /// Within carrier text.
    Text,
    /// In a line that begins with a hyphen, as END does.
    Marker(Vec<u8>),
}

impl Lines<'_> {
    /// Whether END was found.
    fn feed(&mut self, mut bytes: &[u8]) -> Result<bool, CarrierError> {
        if std::mem::take(&mut self.after_cr) {
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(first) = bytes.first() {
            match &mut self.state {
                State::Start(blanks) => match first {
                    b' ' => {
                        *blanks += 1;
                        bytes = &bytes[1..];
                    }
                    b'-' => self.state = State::Marker(Vec::new()),
                    _ => {
                        let blanks = *blanks;
                        self.state = State::Text;
                        self.hand_on_blanks(blanks)?;
                    }
                },
                State::Text => {
                    let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
                    let (text, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
                    if !text.is_empty() {
                        self.hand_on(text)?;
                    }
                    bytes = rest;
                    if end.is_some() {
                        bytes = self.end_line(bytes);
                    }
                }
                State::Marker(line) => {
                    let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
                    let (text, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
                    let room = MAX_LINE - line.len();
                    line.extend_from_slice(&text[..text.len().min(room)]);
                    bytes = rest;
                    if end.is_some() {
                        if line.trim_ascii_end() == END.as_bytes() {
                            return Ok(true);
                        }
                        // No marker, then: text that does not belong there.
                        let line = std::mem::take(line);
                        self.hand_on(&line)?;
                        bytes = self.end_line(bytes);
                    }
                }
            }
        }
        Ok(false)
    }

    fn end_line<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        self.state = State::Start(0);
        self.line += 1;
        if let Some(rest) = bytes.strip_prefix(b"\r") {
            self.after_cr = rest.is_empty();
            return rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        &bytes[1..]
    }

    fn hand_on_blanks(&mut self, mut blanks: u64) -> Result<(), CarrierError> {
        const BLANKS: [u8; 64] = [b' '; 64];
        while blanks > 0 {
            let some = blanks.min(64) as usize;
            self.hand_on(&BLANKS[..some])?;
            blanks -= some as u64;
        }
        Ok(())
    }

    fn hand_on(&mut self, text: &[u8]) -> Result<(), CarrierError> {
        if self.hungry {
            self.hungry = (self.each)(text, self.line)?;
        }
        Ok(())
    }
}

/// Reads the settings line.
fn shape_of(settings: &str) -> Result<Shape, CarrierError> {
    let (mut shape, mut total, mut top) = (Shape::default(), None, None);
    for setting in settings.split(';').map(str::trim).filter(|setting| !setting.is_empty()) {
        let Some((name, value)) = setting.split_once('=') else {
            return Err(CarrierError::Armour("a setting has no ="));
        };
        let (name, value) = (name.trim(), value.trim());
        match name {
            "TOT" => total = Some(value),
            "TOPK" => top = Some(value),
            _ => drop(shape.set(name, value)?),
        }
    }
    for (name, value, only) in [("TOT", total, "65536"), ("TOPK", top, "0")] {
        match value {
            Some(value) if value == only => {}
            Some(value) => {
                return Err(CarrierError::Settings(format!("{name} is {only} here, not {value:?}")));
            }
            None => return Err(CarrierError::Settings(format!("{name} is missing"))),
        }
    }
    shape.check()?;
    Ok(shape)
}

#[cfg(test)]
#[path = "armour_tests.rs"]
mod tests;
