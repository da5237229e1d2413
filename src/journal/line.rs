//! One line: making it, and reading it as strictly as it was made.

use crate::wire::{canonical, hex, json::quote, parse, Form, Json, Value};
use sha2::{Digest, Sha256};
use std::borrow::Cow;

/// The longest line, bytes. What the node writes stays far below: some ten members of 200 characters, each of
/// which takes at most twelve bytes.
pub(super) const LINE_BYTES: usize = 64 << 10;
/// The `prev` of the first line.
pub(super) const BEGINNING: &str = "0000000000000000000000000000000000000000000000000000000000000000";
/// The largest number that a line may have: exact in every reader of JSON, and far from where counting overflows.
pub(super) const MOST: u64 = 1 << 53;
/// The longest text of a member, characters.
const TEXT_CHARACTERS: usize = 200;

/// Something that happened, to be noted. It gets its number, time and place in the chain from the journal.
#[derive(Debug, Clone)]
pub struct Event {
    kind: &'static str,
    /// JSON text by name.
    members: Vec<(&'static str, String)>,
}

impl Event {
    /// An event of a kind.
    pub fn new(kind: &'static str) -> Event {
        Event { kind, members: Vec::new() }
    }

    /// Adds a text; of a longer one than 200 characters the head, and an ellipsis. The journal's own names, and one
    /// that is there already, are passed over.
    pub fn text(self, name: &'static str, value: &str) -> Event {
        let json = quote(&cut(value));
        self.member(name, json)
    }

    /// Adds a number.
    pub fn number(self, name: &'static str, value: u64) -> Event {
        self.member(name, value.to_string())
    }

    /// Adds a yes or no.
    pub fn flag(self, name: &'static str, value: bool) -> Event {
        self.member(name, value.to_string())
    }

    /// Adds whom it is about.
    pub fn agent(self, id: &str) -> Event {
        self.text("agent", id)
    }

    fn member(mut self, name: &'static str, json: String) -> Event {
        let own = matches!(name, "seq" | "time" | "kind" | "prev" | "hash");
        if !own && self.members.iter().all(|(known, _)| *known != name) {
            self.members.push((name, json));
        }
        self
    }

    /// The line, with its line end, and its hash.
    pub(super) fn line(&self, seq: u64, time: &str, prev: &str) -> (String, String) {
        let own = [("seq", seq.to_string()), ("time", quote(time)), ("kind", quote(self.kind))];
        let prev = [("prev", quote(prev))];
        let members: Vec<(&str, &str)> =
            own.iter().chain(&self.members).chain(&prev).map(|(name, json)| (*name, json.as_str())).collect();
        let mut line = object(&members);
        let mut sorted = members;
        sorted.sort_unstable();
        let hash = digest(&object(&sorted));
        line.pop();
        line.push_str(",\"hash\":\"");
        line.push_str(&hash);
        line.push_str("\"}\n");
        (line, hash)
    }
}

/// The first characters of a text, as many as a member may have.
fn cut(text: &str) -> Cow<'_, str> {
    if text.chars().nth(TEXT_CHARACTERS).is_none() {
        return text.into();
    }
    text.chars().take(TEXT_CHARACTERS - 1).chain(['…']).collect::<String>().into()
}

/// Names here need no escapes.
fn object(members: &[(&str, &str)]) -> String {
    let mut text = String::with_capacity(512);
    for (name, json) in members {
        text.push(if text.is_empty() { '{' } else { ',' });
        text.push('"');
        text.push_str(name);
        text.push_str("\":");
        text.push_str(json);
    }
    text.push('}');
    text
}

fn digest(text: &str) -> String {
    hex::encode(&Sha256::digest(text.as_bytes()))
}

/// A line as it was read: a line of ours by its form. Whether its hash is right is another matter.
#[derive(Debug, Clone)]
pub struct Line<'a> {
    /// Its number.
    pub seq: u64,
    /// When it was written.
    pub time: Cow<'a, str>,
    /// What happened.
    pub kind: Cow<'a, str>,
    /// The hash of the line before, as it says.
    pub prev: Cow<'a, str>,
    /// Its own hash, as it says.
    pub hash: Cow<'a, str>,
    json: Json<'a>,
}

impl<'a> Line<'a> {
    /// Reads a line, without its line end.
    ///
    /// # Errors
    /// Why no journal of ours wrote it.
    pub fn read(text: &'a [u8]) -> Result<Line<'a>, String> {
        let text = std::str::from_utf8(text)
            .map_err(|error| format!("not JSON: not UTF-8 at byte {}", error.valid_up_to()))?;
        let json = parse(text).map_err(|wrong| format!("not JSON: {wrong}"))?;
        if !json.is_object() {
            return Err(format!("{}, not an object", json.kind()));
        }
        let names: Vec<Cow<'a, str>> = json.members().map(|member| member.key).collect();
        let placed =
            |at: Option<usize>, name: &str| at.and_then(|at| names.get(at)).is_some_and(|n| n == name);
        let from_end = |n: usize| names.len().checked_sub(n);
        for (at, name) in [
            (Some(0), "seq"),
            (Some(1), "time"),
            (Some(2), "kind"),
            (from_end(2), "prev"),
            (from_end(1), "hash"),
        ] {
            if !placed(at, name) {
                return Err(format!("not a line of the journal: `{name}` is missing, or in another place"));
            }
        }
        if rewritten(json).as_deref() != Some(text) {
            return Err("not a line of the journal: written in another way".into());
        }
        let told = |name: &str| json.get(name).and_then(Json::as_str);
        let wrong = |name: &str, what: &str| format!("not a line of the journal: `{name}` is not {what}");
        let seq =
            json.get("seq").and_then(|seq| seq.raw().parse().ok()).filter(|seq| (1..=MOST).contains(seq));
        Ok(Line {
            seq: seq.ok_or_else(|| wrong("seq", "a number from 1 on"))?,
            time: told("time").ok_or_else(|| wrong("time", "a string"))?,
            kind: told("kind").ok_or_else(|| wrong("kind", "a string"))?,
            prev: told("prev").ok_or_else(|| wrong("prev", "a string"))?,
            hash: told("hash").ok_or_else(|| wrong("hash", "a string"))?,
            json,
        })
    }

    /// Whether its hash is that of its content.
    pub fn is_genuine(&self) -> bool {
        digest(&canonical(&self.json, Form::Ascii, Some("hash"))) == self.hash
    }

    /// The event's own members, as they stand.
    pub fn members(&self) -> impl Iterator<Item = (Cow<'a, str>, Json<'a>)> {
        self.json
            .members()
            .filter(|member| !matches!(&*member.key, "seq" | "time" | "kind" | "prev" | "hash"))
            .map(|member| (member.key, member.value))
    }

    /// One of them, if it is a string.
    pub fn text(&self, name: &str) -> Option<Cow<'a, str>> {
        self.json.get(name).and_then(Json::as_str)
    }

    /// One of them, if it is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.json.get(name).and_then(|value| value.raw().parse().ok())
    }
}

/// The line as the journal would have written it. The hash alone would let pass what has the same meaning: white
/// space, or other escapes.
fn rewritten(json: Json<'_>) -> Option<String> {
    let mut text = String::with_capacity(json.raw().len());
    for member in json.members() {
        text.push(if text.is_empty() { '{' } else { ',' });
        text.push_str(&quote(&member.key));
        text.push(':');
        match member.value.value() {
            Value::String(value) => text.push_str(&quote(&value)),
            Value::Number(number) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
                text.push_str(number)
            }
            Value::Bool(value) => text.push_str(if value { "true" } else { "false" }),
            _ => return None,
        }
    }
    text.push('}');
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (String, String) {
        let event = Event::new("call").agent("a\"b").text("note", "é\n\u{7f}\u{202e}").number("n", 7);
        event.flag("ok", true).text("note", "twice").text("hash", "own").line(
            2,
            "2026-05-09T00:00:00Z",
            BEGINNING,
        )
    }

    #[test]
    fn a_line_reads_back_and_carries_the_hash_of_its_canonical_text() {
        let (text, hash) = sample();
        let (text, end) = text.split_at(text.len() - 1);
        assert_eq!(end, "\n");
        assert!(text.is_ascii() && !text.contains(|c: char| c.is_control()), "{text}");
        let line = Line::read(text.as_bytes()).unwrap();
        assert_eq!((line.seq, &*line.kind, &*line.prev), (2, "call", BEGINNING));
        assert_eq!(line.text("note").unwrap(), "é\n\u{7f}\u{202e}");
        assert_eq!((line.number("n"), line.text("agent").unwrap()), (Some(7), "a\"b".into()));
        assert_eq!(line.hash, hash);
        assert!(line.is_genuine());
    }

    #[test]
    fn no_byte_of_a_line_can_be_changed() {
        let (text, _) = sample();
        let text = text.trim_end();
        for at in 0..text.len() {
            for byte in [b' ', b'0', b'a', b'"', b'\\', text.as_bytes()[at] ^ 1, text.as_bytes()[at] ^ 0x20] {
                let mut other = text.as_bytes().to_vec();
                if std::mem::replace(&mut other[at], byte) == byte {
                    continue;
                }
                let passes = Line::read(&other).is_ok_and(|line| line.is_genuine());
                assert!(!passes, "byte {at}: {}", String::from_utf8_lossy(&other));
            }
        }
        // What means the same is not the same.
        for (from, to) in
            [("\"n\":7", "\"n\": 7"), ("\\u00e9", "\u{e9}"), ("\\u00e9", "\\u00E9"), ("{", " {")]
        {
            assert!(text.contains(from));
            assert!(Line::read(text.replacen(from, to, 1).as_bytes()).is_err(), "{to}");
        }
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let (text, _) = Event::new("x").text("t", &"😀".repeat(500)).line(1, "t", BEGINNING);
        let line = Line::read(text.trim_end().as_bytes()).unwrap();
        assert_eq!(line.text("t").unwrap().chars().count(), 200);
        assert!(line.text("t").unwrap().ends_with('…'));
        let (text, _) = Event::new("x").text("t", &"é".repeat(200)).line(1, "t", BEGINNING);
        assert_eq!(Line::read(text.trim_end().as_bytes()).unwrap().text("t").unwrap(), "é".repeat(200));
    }

    #[test]
    fn what_no_journal_wrote_is_told_from_a_line() {
        for (text, part) in [
            ("", "not JSON"),
            ("{", "not JSON"),
            ("[]", "not an object"),
            ("{}", "`seq`"),
            (r#"{"seq":18446744073709551615,"time":"t","kind":"k","prev":"","hash":""}"#, "`seq` is not"),
            (r#"{"seq":1,"time":"t","kind":"k","hash":"","prev":""}"#, "`prev`"),
            (r#"{"seq":0,"time":"t","kind":"k","prev":"","hash":""}"#, "`seq` is not"),
            (r#"{"seq":1,"time":"t","kind":"k","x":[],"prev":"","hash":""}"#, "another way"),
            (r#"{"seq":1,"time":1,"kind":"k","prev":"","hash":""}"#, "`time` is not"),
        ] {
            let why = Line::read(text.as_bytes()).unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
        assert!(Line::read(b"\xff").unwrap_err().contains("UTF-8"));
    }
}
