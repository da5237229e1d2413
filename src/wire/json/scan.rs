//! The one pass that checks a document, and finds which of its objects are not in canonical order.

use super::text::{closing_quote, compare, decode, hex4};
use super::view::Json;
use super::{Malformed, MAX_NESTING};

/// The objects of a document whose keys do not stand in canonical order, and the order they should
/// stand in. Offsets are into the scanned text. Most messages are signed as sent and have none.
#[derive(Debug, Default)]
pub(in crate::wire) struct Order {
    /// By offset.
    objects: Vec<Unsorted>,
    keys: Vec<u32>,
}

#[derive(Debug)]
struct Unsorted {
    at: u32,
    end: u32,
    first: u32,
    count: u32,
}

impl Order {
    /// The offsets of the keys (of their opening quotes) of the object at `at`, sorted, and the offset
    /// behind the object; nothing if it is in order as it stands.
    pub(super) fn of(&self, at: usize) -> Option<(&[u32], usize)> {
        let found = self.objects.binary_search_by_key(&at, |object| object.at as usize).ok()?;
        let object = self.objects.get(found)?;
        let keys = self.keys.get(object.first as usize..)?.get(..object.count as usize)?;
        Some((keys, object.end as usize))
    }
}

/// Checks `text`, which will stand `outer` levels deep in another document, to be one JSON value.
pub(in crate::wire) fn scan(text: &str, outer: usize) -> Result<(Json<'_>, Order), Malformed> {
    if u32::try_from(text.len()).is_err() {
        return Err(Malformed { what: "a text of more than 4 GiB".into(), at: 0 });
    }
    let mut scanner = Scanner {
        text,
        bytes: text.as_bytes(),
        at: 0,
        nesting: outer,
        open: Vec::new(),
        order: Order::default(),
    };
    scanner.space();
    let start = scanner.at;
    if start == text.len() {
        return Err(scanner.wrong("no JSON value, only an empty text"));
    }
    scanner.value()?;
    let end = scanner.at;
    scanner.space();
    if scanner.at != text.len() {
        return Err(scanner.wrong("further text after the value"));
    }
    let mut order = scanner.order;
    order.objects.sort_unstable_by_key(|object| object.at);
    Ok((Json::trusted(&text[start..end]), order))
}

struct Scanner<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    nesting: usize,
    /// Inner start and end of each key of the objects that are open.
    open: Vec<(u32, u32)>,
    order: Order,
}

impl<'a> Scanner<'a> {
    /// Recurses at most [`MAX_NESTING`] deep.
    fn value(&mut self) -> Result<(), Malformed> {
        match self.peek() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::array),
            Some(b'"') => self.string().map(drop),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true"),
            Some(b'f') => self.word("false"),
            Some(b'n') => self.word("null"),
            Some(0xef) if self.at == 0 && self.text.starts_with('\u{feff}') => {
                Err(self.wrong("a byte order mark, which JSON does not begin with, instead of a value"))
            }
            Some(_) => Err(self.wrong("expected a value")),
            None => Err(self.wrong("the text ends where a value was expected")),
        }
    }

    fn nested(&mut self, inside: fn(&mut Self) -> Result<(), Malformed>) -> Result<(), Malformed> {
        if self.nesting >= MAX_NESTING {
            return Err(self.wrong(format!("objects and arrays nested more than {MAX_NESTING} deep")));
        }
        self.nesting += 1;
        inside(self)?;
        self.nesting -= 1;
        Ok(())
    }

    fn array(&mut self) -> Result<(), Malformed> {
        self.at += 1;
        self.space();
        if self.take(b']') {
            return Ok(());
        }
        loop {
            self.value()?;
            self.space();
            if self.take(b']') {
                return Ok(());
            }
            self.comma("`,` or `]`")?;
        }
    }

    fn object(&mut self) -> Result<(), Malformed> {
        let start = self.at;
        let first = self.open.len();
        let mut sorted = true;
        self.at += 1;
        self.space();
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.wrong("expected a key in quotes"));
            }
            let key = self.string()?;
            if let Some(before) = self.open.get(first..).and_then(|keys| keys.last()) {
                sorted = sorted && compare(self.inner(*before), self.inner(key)).is_lt();
            }
            self.open.push(key);
            self.space();
            if !self.take(b':') {
                return Err(self.wrong("expected `:` after a key"));
            }
            self.space();
            self.value()?;
            self.space();
            if self.take(b'}') {
                break;
            }
            self.comma("`,` or `}`")?;
        }
        if !sorted {
            self.sort_keys(start, first)?;
        }
        self.open.truncate(first);
        Ok(())
    }

    /// Finds a key that appears twice and notes the order of the others, for the object that began at
    /// `start` and has just ended. Sorted keys need neither: they ascend strictly.
    fn sort_keys(&mut self, start: usize, first: usize) -> Result<(), Malformed> {
        let text = self.text;
        let inner = |key: (u32, u32)| &text[key.0 as usize..key.1 as usize];
        let keys = &mut self.open[first..];
        // By place among equals, so that the one reported is the second.
        keys.sort_unstable_by(|a, b| compare(inner(*a), inner(*b)).then(a.cmp(b)));
        for pair in keys.windows(2) {
            if compare(inner(pair[0]), inner(pair[1])).is_eq() {
                let name: String = decode(inner(pair[1])).chars().take(64).collect();
                let what = format!("the key {name:?} for the second time in one object");
                return Err(Malformed { what, at: pair[1].0 as usize - 1 });
            }
        }
        let order = &mut self.order;
        order.objects.push(Unsorted {
            at: start as u32,
            end: self.at as u32,
            first: order.keys.len() as u32,
            count: keys.len() as u32,
        });
        order.keys.extend(keys.iter().map(|key| key.0 - 1));
        Ok(())
    }

    /// Takes a string; gives where its inner text starts and ends.
    fn string(&mut self) -> Result<(u32, u32), Malformed> {
        let quote = self.at;
        self.at += 1;
        let start = self.at;
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => self.escape()?,
                Some(0..=0x1f) => return Err(self.wrong("a raw control character in a string")),
                Some(_) => self.at += 1,
                None => {
                    return Err(Malformed { what: "a string without its closing quote".into(), at: quote })
                }
            }
        }
        let end = self.at;
        self.at += 1;
        debug_assert_eq!(closing_quote(self.bytes, start), end);
        Ok((start as u32, end as u32))
    }

    fn escape(&mut self) -> Result<(), Malformed> {
        match self.bytes.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 2;
                Ok(())
            }
            Some(b'u') => match hex4(self.text, self.at + 2) {
                None => Err(self.wrong("`\\u` without four hexadecimal digits")),
                Some(0xd800..=0xdbff) => {
                    let follows = self.bytes.get(self.at + 6..self.at + 8) == Some(b"\\u");
                    let low = hex4(self.text, self.at + 8).filter(|low| (0xdc00..=0xdfff).contains(low));
                    if !follows || low.is_none() {
                        return Err(self.wrong("a high surrogate without its low one"));
                    }
                    self.at += 12;
                    Ok(())
                }
                Some(0xdc00..=0xdfff) => Err(self.wrong("a low surrogate without its high one")),
                Some(_) => {
                    self.at += 6;
                    Ok(())
                }
            },
            Some(_) => Err(self.wrong("an escape that JSON does not have")),
            None => Err(self.wrong("the text ends within an escape")),
        }
    }

    /// `-? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?`
    fn number(&mut self) -> Result<(), Malformed> {
        self.take(b'-');
        if self.take(b'0') {
            if let Some(b'0'..=b'9') = self.peek() {
                return Err(self.wrong("a digit after a number's leading zero"));
            }
        } else {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _sign = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Malformed> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == start {
            return Err(self.wrong("expected a digit of a number"));
        }
        Ok(())
    }

    fn word(&mut self, word: &str) -> Result<(), Malformed> {
        if !self.bytes[self.at..].starts_with(word.as_bytes()) {
            return Err(self.wrong(format!("expected `{word}`")));
        }
        self.at += word.len();
        Ok(())
    }

    fn comma(&mut self, expected: &str) -> Result<(), Malformed> {
        if !self.take(b',') {
            let what = if self.at < self.bytes.len() { "expected" } else { "the text ends before" };
            return Err(self.wrong(format!("{what} {expected}")));
        }
        self.space();
        Ok(())
    }

    fn inner(&self, (start, end): (u32, u32)) -> &'a str {
        &self.text[start as usize..end as usize]
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn wrong(&self, what: impl Into<String>) -> Malformed {
        Malformed { what: what.into(), at: self.at }
    }
}

#[cfg(test)]
#[path = "scan_tests.rs"]
mod tests;
