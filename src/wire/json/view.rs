//! Looking at a checked document in place.

use std::borrow::Cow;

use super::text::{closing_quote, decode};

/// One checked JSON value: the slice of the text that holds it, without white space around it.
///
/// Copying it is free. Finding a member or an element walks over what stands before it, so a caller
/// that wants several of a large object goes through [`members`](Json::members) once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Json<'a> {
    raw: &'a str,
}

/// A [`Json`] to match on.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// An object; no key appears twice.
    Object(Members<'a>),
    /// An array.
    Array(Elements<'a>),
    /// A string, its escapes decoded.
    String(Cow<'a, str>),
    /// A number, the token as it stands.
    Number(&'a str),
    /// `true` or `false`.
    Bool(bool),
    /// `null`.
    Null,
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// The key, its escapes decoded.
    pub key: Cow<'a, str>,
    /// The value.
    pub value: Json<'a>,
}

impl<'a> Json<'a> {
    /// `raw` has been accepted by the scanner.
    pub(in crate::wire) fn trusted(raw: &'a str) -> Json<'a> {
        Json { raw }
    }

    /// The value exactly as it stands in the source.
    pub fn raw(self) -> &'a str {
        self.raw
    }

    /// The value, to match on.
    pub fn value(self) -> Value<'a> {
        match self.raw.as_bytes().first() {
            Some(b'{') => Value::Object(Members { text: self.raw, at: 1 }),
            Some(b'[') => Value::Array(Elements { text: self.raw, at: 1 }),
            Some(b'"') => Value::String(decode(self.raw.get(1..self.raw.len() - 1).unwrap_or(""))),
            Some(b't') => Value::Bool(true),
            Some(b'f') => Value::Bool(false),
            Some(b'n') | None => Value::Null,
            Some(_) => Value::Number(self.raw),
        }
    }

    /// What kind of value it is, with its article: `a string`, `an object`.
    pub fn kind(self) -> &'static str {
        match self.raw.as_bytes().first() {
            Some(b'{') => "an object",
            Some(b'[') => "an array",
            Some(b'"') => "a string",
            Some(b't' | b'f') => "a boolean",
            Some(b'n') | None => "null",
            Some(_) => "a number",
        }
    }

    /// The members in the order they stand in; none if it is not an object.
    pub fn members(self) -> Members<'a> {
        match self.value() {
            Value::Object(members) => members,
            _ => Members { text: "", at: 0 },
        }
    }

    /// The elements; none if it is not an array.
    pub fn elements(self) -> Elements<'a> {
        match self.value() {
            Value::Array(elements) => elements,
            _ => Elements { text: "", at: 0 },
        }
    }

    /// The member of that key, if this is an object and has one.
    pub fn get(self, key: &str) -> Option<Json<'a>> {
        self.members().find(|member| member.key == key).map(|member| member.value)
    }

    /// Whether it is an object.
    pub fn is_object(self) -> bool {
        self.raw.starts_with('{')
    }

    /// The text of a string.
    pub fn as_str(self) -> Option<Cow<'a, str>> {
        match self.value() {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// An integer within 64 bits, written as one: neither `1.0` nor `1e3`.
    pub fn as_i64(self) -> Option<i64> {
        // A token of the number grammar that `i64` reads is an integer; other values are not read.
        self.raw.parse().ok()
    }

    /// `true` or `false`.
    pub fn as_bool(self) -> Option<bool> {
        match self.value() {
            Value::Bool(value) => Some(value),
            _ => None,
        }
    }
}

/// The members of an object, in the order they stand in.
#[derive(Clone, Debug)]
pub struct Members<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Iterator for Members<'a> {
    type Item = Member<'a>;

    fn next(&mut self) -> Option<Member<'a>> {
        let bytes = self.text.as_bytes();
        let quote = skip(bytes, self.at, b",");
        if bytes.get(quote) != Some(&b'"') {
            self.at = bytes.len();
            return None;
        }
        let close = closing_quote(bytes, quote + 1);
        let start = skip(bytes, close + 1, b":");
        let end = value_end(bytes, start);
        self.at = end;
        let key = decode(self.text.get(quote + 1..close)?);
        Some(Member { key, value: Json::trusted(self.text.get(start..end)?) })
    }
}

/// The elements of an array.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Iterator for Elements<'a> {
    type Item = Json<'a>;

    fn next(&mut self) -> Option<Json<'a>> {
        let bytes = self.text.as_bytes();
        let start = skip(bytes, self.at, b",");
        if matches!(bytes.get(start), None | Some(b']')) {
            self.at = bytes.len();
            return None;
        }
        let end = value_end(bytes, start);
        self.at = end;
        self.text.get(start..end).map(Json::trusted)
    }
}

/// Behind white space and the given punctuation.
pub(super) fn skip(bytes: &[u8], mut at: usize, punctuation: &[u8]) -> usize {
    while let Some(byte) = bytes.get(at) {
        if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') && !punctuation.contains(byte) {
            break;
        }
        at += 1;
    }
    at
}

/// Behind the value that starts at `at`.
pub(super) fn value_end(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            b'}' | b']' => {
                at += 1;
                depth = depth.saturating_sub(1);
            }
            b'"' => at = closing_quote(bytes, at + 1) + 1,
            b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' => {
                at += 1;
                continue;
            }
            _ => at = scalar_end(bytes, at),
        }
        if depth == 0 {
            break;
        }
    }
    at.min(bytes.len())
}

/// Behind the number or word that starts at `at`.
pub(super) fn scalar_end(bytes: &[u8], at: usize) -> usize {
    let tail = bytes.get(at..).unwrap_or(&[]);
    let len = tail.iter().position(|byte| {
        matches!(byte, b',' | b':' | b']' | b'}' | b'[' | b'{' | b'"' | b' ' | b'\t' | b'\n' | b'\r')
    });
    // At least one byte, so that no walk can stand still.
    at + len.unwrap_or(tail.len()).max(1)
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    #[test]
    fn values_are_seen_as_they_stand() {
        let text = r#" { "a" : [ 1.0 , -0,{"x":"]"} , "é\n\ud83d\ude00" ] , "\u0062":true,"c":null,"d":{}, "e":[] } "#;
        let json = parse(text).unwrap();
        let keys: Vec<_> = json.members().map(|member| member.key.into_owned()).collect();
        assert_eq!(keys, ["a", "b", "c", "d", "e"]);
        let a: Vec<_> = json.get("a").unwrap().elements().map(Json::raw).collect();
        assert_eq!(a, ["1.0", "-0", r#"{"x":"]"}"#, r#""é\n\ud83d\ude00""#]);
        assert_eq!(json.get("a").unwrap().elements().nth(3).unwrap().as_str().unwrap(), "é\n😀");
        assert_eq!(json.get("b").unwrap().as_bool(), Some(true));
        assert!(matches!(json.get("c").unwrap().value(), Value::Null));
        assert_eq!(json.get("d").unwrap().members().count(), 0);
        assert_eq!(json.get("e").unwrap().elements().count(), 0);
        assert_eq!(json.get("f"), None);
        assert_eq!(json.raw(), text.trim());
    }

    #[test]
    fn only_an_integer_token_is_an_integer() {
        let integer = |text| parse(text).unwrap().as_i64();
        assert_eq!(integer("-9223372036854775808"), Some(i64::MIN));
        assert_eq!(integer("-0"), Some(0));
        for other in ["9223372036854775808", "1.0", "1e3", "\"1\"", "true", "[1]"] {
            assert_eq!(integer(other), None, "{other}");
        }
    }
}
