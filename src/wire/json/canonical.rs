//! The text that signatures are made over.

use std::collections::BTreeMap;

use super::scan::{scan, Order};
use super::text::{closing_quote, decode, escape, quote, Piece, Pieces};
use super::view::{scalar_end, skip, value_end, Json};

/// How canonical JSON writes its strings. Whatever the form, keys are sorted by code point, no white
/// space stands between tokens, and numbers are the tokens of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// All but printable ASCII escaped, as Python's `json.dumps` does by default (U+007F too).
    Ascii,
    /// Only the quote, the backslash and what is below U+0020 escaped.
    Utf8 {
        /// U+007F written `\u007f`, as `jq` does, instead of raw.
        escape_del: bool,
    },
}

/// The canonical text of a value, leaving out the top-level key `without`.
pub fn canonical(json: &Json<'_>, form: Form, without: Option<&str>) -> String {
    // A `Json` was accepted before, so its order is found again without fail.
    let order = scan(json.raw(), 0).map(|(_, order)| order).unwrap_or_default();
    let mut out = String::with_capacity(json.raw().len());
    write_canonical(json.raw(), &order, form, without, &mut |part| out.push_str(part));
    out
}

/// The canonical object of these members, whose values are canonical already.
pub(in crate::wire) fn object<K: AsRef<str> + Ord>(members: &BTreeMap<K, String>) -> String {
    // UTF-8 sorts as its code points do, so the map has the canonical order.
    let size = members.iter().map(|(name, value)| name.as_ref().len() + value.len() + 4).sum::<usize>();
    let mut out = String::with_capacity(size + 128);
    out.push('{');
    for (n, (name, value)) in members.iter().enumerate() {
        if n > 0 {
            out.push(',');
        }
        out.push_str(&quote(name.as_ref()));
        out.push(':');
        out.push_str(value);
    }
    out.push('}');
    out
}

/// Hands the canonical text of the document `text` to `sink` in parts of some kilobytes, so that a
/// signature can be checked without the text ever being in memory. `order` came from scanning `text`.
pub(in crate::wire) fn write_canonical(
    text: &str,
    order: &Order,
    form: Form,
    without: Option<&str>,
    sink: &mut dyn FnMut(&str),
) {
    let mut writer = Writer { text, bytes: text.as_bytes(), order, form, buffer: String::new(), sink };
    let start = skip(writer.bytes, 0, b"");
    writer.value(start, without);
    (writer.sink)(&writer.buffer);
}

/// What is gathered before it goes to the sink, and the longest stretch escaped at a time, in bytes.
const PART: usize = 8 << 10;

struct Writer<'a, 's> {
    text: &'a str,
    bytes: &'a [u8],
    order: &'a Order,
    form: Form,
    buffer: String,
    sink: &'s mut dyn FnMut(&str),
}

impl Writer<'_, '_> {
    /// Writes the value at `at`, gives the offset behind it.
    fn value(&mut self, at: usize, without: Option<&str>) -> usize {
        match self.bytes.get(at) {
            Some(b'{') => self.object(at, without),
            Some(b'[') => self.array(at),
            Some(b'"') => self.string(at),
            _ => {
                let end = scalar_end(self.bytes, at).min(self.bytes.len());
                self.run(at, end);
                end
            }
        }
    }

    fn array(&mut self, at: usize) -> usize {
        let mut at = skip(self.bytes, at + 1, b"");
        self.push("[");
        while !matches!(self.bytes.get(at), None | Some(b']')) {
            at = self.value(at, None);
            at = skip(self.bytes, at, b"");
            if self.bytes.get(at) == Some(&b',') {
                self.push(",");
                at = skip(self.bytes, at + 1, b"");
            }
        }
        self.push("]");
        at + 1
    }

    fn object(&mut self, at: usize, without: Option<&str>) -> usize {
        let mut first = true;
        self.push("{");
        let end = if let Some((keys, end)) = self.order.of(at) {
            for key in keys {
                self.member(*key as usize, &mut first, without);
            }
            end
        } else {
            let mut key = skip(self.bytes, at + 1, b"");
            while self.bytes.get(key) == Some(&b'"') {
                let behind = self.member(key, &mut first, without);
                key = skip(self.bytes, behind, b",");
            }
            key + 1
        };
        self.push("}");
        end
    }

    /// Writes the member whose key's quote is at `at`, unless it is `without`.
    fn member(&mut self, at: usize, first: &mut bool, without: Option<&str>) -> usize {
        if let Some(without) = without {
            let close = closing_quote(self.bytes, at + 1);
            if self.text.get(at + 1..close).is_some_and(|inner| decode(inner) == without) {
                return value_end(self.bytes, skip(self.bytes, close + 1, b":"));
            }
        }
        if !std::mem::take(first) {
            self.push(",");
        }
        let behind = self.string(at);
        self.push(":");
        self.value(skip(self.bytes, behind, b":"), None)
    }

    fn string(&mut self, at: usize) -> usize {
        let close = closing_quote(self.bytes, at + 1);
        self.push("\"");
        for piece in (Pieces { rest: self.text.get(at + 1..close).unwrap_or("") }) {
            match piece {
                Piece::Escaped(c) => escape(&mut self.buffer, c.encode_utf8(&mut [0; 4]), self.form),
                Piece::Run(mut run) => {
                    while !run.is_empty() {
                        let (head, tail) = run.split_at(part_of(run));
                        escape(&mut self.buffer, head, self.form);
                        self.flush_full();
                        run = tail;
                    }
                }
            }
            self.flush_full();
        }
        self.push("\"");
        close + 1
    }

    /// Copies a stretch of the source; a long number goes by parts as well.
    fn run(&mut self, start: usize, end: usize) {
        let mut run = self.text.get(start..end).unwrap_or("");
        while !run.is_empty() {
            let (head, tail) = run.split_at(part_of(run));
            self.push(head);
            run = tail;
        }
    }

    fn push(&mut self, text: &str) {
        self.buffer.push_str(text);
        self.flush_full();
    }

    fn flush_full(&mut self) {
        if self.buffer.len() >= PART {
            (self.sink)(&self.buffer);
            self.buffer.clear();
        }
    }
}

/// Where to cut off the next part of a run, between two characters.
fn part_of(run: &str) -> usize {
    if run.len() <= PART {
        return run.len();
    }
    (PART - 3..=PART).rev().find(|at| run.is_char_boundary(*at)).unwrap_or(run.len())
}

#[cfg(test)]
#[path = "canonical_tests.rs"]
mod tests;
