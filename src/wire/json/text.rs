//! The strings of a checked document: their end, their meaning, their order, their escapes.
//!
//! "Inner" is the text between the quotes as it stands. Everything here trusts the scanner to have
//! refused what is not a string; on other text the results are meaningless but nothing panics.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::canonical::Form;

/// A JSON string that means `text`, in the ASCII form, with its quotes.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    escape(&mut out, text, Form::Ascii);
    out.push('"');
    out
}

/// Where the string ends whose first inner byte is at `at`: the offset of its closing quote.
pub(super) fn closing_quote(bytes: &[u8], mut at: usize) -> usize {
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// What an inner text means.
pub(super) fn decode(inner: &str) -> Cow<'_, str> {
    if !inner.contains('\\') {
        return Cow::Borrowed(inner);
    }
    let mut out = String::with_capacity(inner.len());
    for piece in (Pieces { rest: inner }) {
        match piece {
            Piece::Run(run) => out.push_str(run),
            Piece::Escaped(c) => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Orders two inner texts by the code points they mean.
pub(super) fn compare(a: &str, b: &str) -> Ordering {
    if a.contains('\\') || b.contains('\\') {
        Characters { rest: a }.cmp(Characters { rest: b })
    } else {
        // UTF-8 keeps the order of code points.
        a.cmp(b)
    }
}

/// Appends `text`, which holds no escapes, in the given form, without quotes.
pub(super) fn escape(out: &mut String, text: &str, form: Form) {
    let mut done = 0;
    for (at, c) in text.char_indices() {
        if !needs_escape(c, form) {
            continue;
        }
        out.push_str(&text[done..at]);
        done = at + c.len_utf8();
        escape_char(out, c);
    }
    out.push_str(&text[done..]);
}

fn needs_escape(c: char, form: Form) -> bool {
    match c {
        '"' | '\\' | '\0'..='\u{1f}' => true,
        ' '..='~' => false,
        '\u{7f}' => !matches!(form, Form::Utf8 { escape_del: false }),
        _ => form == Form::Ascii,
    }
}

fn escape_char(out: &mut String, c: char) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        _ => {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.push_str("\\u");
                for shift in [12, 8, 4, 0] {
                    let digit = u32::from(*unit >> shift) & 15;
                    out.extend(char::from_digit(digit, 16));
                }
            }
        }
    }
}

/// A stretch of an inner text.
pub(super) enum Piece<'a> {
    /// Stands for itself.
    Run(&'a str),
    /// Was written as an escape.
    Escaped(char),
}

/// The stretches of an inner text.
pub(super) struct Pieces<'a> {
    pub(super) rest: &'a str,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let run = self.rest.find('\\').unwrap_or(self.rest.len());
        if run > 0 {
            let (head, tail) = self.rest.split_at(run);
            self.rest = tail;
            return Some(Piece::Run(head));
        }
        let (c, tail) = read_escape(self.rest);
        self.rest = tail;
        Some(Piece::Escaped(c))
    }
}

/// The characters that an inner text means.
struct Characters<'a> {
    rest: &'a str,
}

impl Iterator for Characters<'_> {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        let first = self.rest.chars().next()?;
        let (c, tail) =
            if first == '\\' { read_escape(self.rest) } else { (first, &self.rest[first.len_utf8()..]) };
        self.rest = tail;
        Some(c)
    }
}

/// The character an escape at the start of `text` stands for, and what follows it.
fn read_escape(text: &str) -> (char, &str) {
    let after = |n: usize| text.get(n..).unwrap_or("");
    let c = match text.as_bytes().get(1) {
        Some(b'u') => {
            let high = hex4(text, 2).unwrap_or(0xfffd);
            if (0xd800..0xdc00).contains(&high) {
                let low = hex4(text, 8).unwrap_or(0xdc00);
                let point = 0x10000 + ((high - 0xd800) << 10) + (low.wrapping_sub(0xdc00) & 0x3ff);
                return (char::from_u32(point).unwrap_or('\u{fffd}'), after(12));
            }
            return (char::from_u32(high).unwrap_or('\u{fffd}'), after(6));
        }
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        // The quote, the backslash and the slash stand for themselves.
        Some(other) => char::from(*other),
        None => '\\',
    };
    (c, after(2))
}

/// Four hexadecimal digits at `at`, if there are four.
pub(super) fn hex4(text: &str, at: usize) -> Option<u32> {
    let digits = text.as_bytes().get(at..at + 4)?;
    digits.iter().try_fold(0, |value, digit| Some(value << 4 | char::from(*digit).to_digit(16)?))
}
