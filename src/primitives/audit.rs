//! What the journal is told of a call: its name, its arguments as far as they are nobody's secret, its outcome.

use crate::agent::host::HostCall;
use crate::journal::Event;
use crate::node::Node;
use crate::wire::{json::quote, parse, Json, Secret, Value};
use std::sync::Arc;

/// How much is made of all arguments, characters; a line takes less.
const CHARACTERS: usize = 256;
/// What usually stands before a secret, in lower case: the rest of such a text is not told.
const BEFORE_SECRETS: [&str; 8] =
    ["authorization:", "cookie:", "bearer ", "password=", "passwd=", "secret=", "token=", "api_key="];

/// A call under way.
pub(super) struct Told<'a> {
    node: &'a Arc<Node>,
    event: Event,
    outcome: &'static str,
    /// It may change something beyond the node: then it is known to the kernel at its end.
    settles: bool,
}

impl<'a> Told<'a> {
    /// A call of the agent `id`, whose own secret is `own`.
    pub(super) fn new(node: &'a Arc<Node>, id: &str, own: &Secret, call: &HostCall, settles: bool) -> Self {
        let clean = |text: &str| node.without_secrets(text, Some(own));
        let event = Event::new("call").agent(id).text("name", &clean(&call.name));
        let told = arguments(&call.name, call.args.get(), &clean);
        let event = if told.is_empty() { event } else { event.text("args", &told) };
        Told { node, event, outcome: "internal", settles }
    }

    /// It ended so: `ok`, or a code. Dropped without that, the node failed at it.
    pub(super) fn ended(mut self, outcome: &'static str) {
        self.outcome = outcome;
    }
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.node.journal.note(&self.event.clone().text("outcome", self.outcome));
        if self.settles {
            self.node.journal.settle();
        }
    }
}

/// `name: value, …`, the head of it.
fn arguments(name: &str, args: &str, clean: &dyn Fn(&str) -> String) -> String {
    let Ok(args) = parse(args) else { return "(not JSON)".into() };
    let mut told = Text { text: String::new(), room: CHARACTERS };
    for member in args.members() {
        if !told.text.is_empty() {
            told.push(", ");
        }
        told.push(&clean(&member.key));
        told.push(": ");
        match (&*member.key, member.value.value()) {
            (_, Value::Null) => told.push("null"),
            // What it carries along may hold anything, and whoever has a token's proof has the token.
            ("token" | "payload" | "body" | "body_base64", _) => {
                told.push(&format!("({} bytes)", member.value.raw().len()));
            }
            // A log line's is told in the log; others are what an agent is given.
            ("message", _) if name != "log" => {
                told.push(&format!("({} bytes)", member.value.raw().len()));
            }
            // Their values are tokens and cookies.
            ("headers", Value::Object(headers)) => {
                let names: Vec<String> = headers.map(|header| clean(&header.key)).collect();
                told.push(&format!("({})", names.join(" ")));
            }
            ("url", Value::String(url)) => told.push(&clean(&bare_url(&url))),
            _ => value(member.value, clean, &mut told),
        }
        if told.room == 0 {
            break;
        }
    }
    told.text
}

/// A text of so many characters.
struct Text {
    text: String,
    room: usize,
}

impl Text {
    fn push(&mut self, more: &str) {
        for c in more.chars().take(self.room) {
            self.text.push(c);
            self.room -= 1;
        }
    }
}

/// A value, each of its texts cleaned by itself: JSON's escapes would hide a secret.
fn value(json: Json<'_>, clean: &dyn Fn(&str) -> String, told: &mut Text) {
    if told.room == 0 {
        return;
    }
    let mut first = true;
    match json.value() {
        Value::String(text) => told.push(&quote(&without_what_follows(&clean(&text)))),
        Value::Object(members) => {
            told.push("{");
            for member in members {
                told.push(if std::mem::take(&mut first) { "" } else { ", " });
                let key = clean(&member.key);
                told.push(&format!("{}: ", quote(&key)));
                match member.value.value() {
                    Value::String(_) if is_before_secret(&format!("{}=", member.key)) => told.push("…"),
                    _ => value(member.value, clean, told),
                }
                if told.room == 0 {
                    return;
                }
            }
            told.push("}");
        }
        Value::Array(elements) => {
            told.push("[");
            for element in elements {
                told.push(if std::mem::take(&mut first) { "" } else { ", " });
                value(element, clean, told);
                if told.room == 0 {
                    return;
                }
            }
            told.push("]");
        }
        _ => told.push(json.raw()),
    }
}

fn is_before_secret(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    BEFORE_SECRETS.iter().any(|word| lower.ends_with(word))
}

/// A text up to where it usually goes on with a secret.
fn without_what_follows(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let ends = BEFORE_SECRETS.iter().filter_map(|word| lower.find(word).map(|at| at + word.len()));
    match ends.min() {
        Some(end) if end < text.len() => format!("{}…", &text[..end]),
        _ => text.to_owned(),
    }
}

/// A URL without user, password, query and fragment.
fn bare_url(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (scheme, rest));
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    let more = if end < rest.len() { "?…" } else { "" };
    let colon = if scheme.is_empty() { "" } else { "://" };
    format!("{scheme}{colon}{host}{}{more}", &rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(args: &str) -> String {
        arguments("call", args, &|text| text.replace("hunter\"2", "[its secret]"))
    }

    #[test]
    fn arguments_are_told_and_what_they_carry_is_measured() {
        assert_eq!(told("{}"), "");
        assert_eq!(told(r#"{"path": "a/b.txt", "binary": false}"#), r#"path: "a/b.txt", binary: false"#);
        assert_eq!(
            told(r#"{"command": ["ls", "-l"], "timeout": 10}"#),
            r#"command: ["ls", "-l"], timeout: 10"#
        );
        assert_eq!(
            told(r#"{"destination": "n", "payload": {"a": 1}}"#),
            r#"destination: "n", payload: (8 bytes)"#
        );
        assert_eq!(told("nothing"), "(not JSON)");
    }

    #[test]
    fn secrets_are_left_out_however_they_are_written() {
        for args in [
            r#"{"command": ["login", "hunter\"2"]}"#,
            r#"{"command": ["login", "\u0068unter\u00222"]}"#,
            r#"{"message": "x", "fields": {"key": [{"hunter\"2": 1}]}}"#,
            r#"{"headers": {"Authorization": "Bearer hunter\"2"}}"#,
            r#"{"headers": {"hunter\"2": "x"}}"#,
            r#"{"body": "hunter\"2"}"#,
            r#"{"url": "http://me:hunter%222@h/p?key=hunter2#hunter2"}"#,
            r#"{"url": "http://h/hunter\"2"}"#,
            r#"{"command": ["curl", "-H", "Authorization: Basic aHVudGVyMg"]}"#,
            r#"{"message": "logged in", "fields": {"password": "hunter2"}}"#,
        ] {
            let told = told(args);
            assert!(!told.contains("unter") && !told.contains("aHVu"), "{args}: {told}");
        }
        assert_eq!(told(r#"{"url": "https://me:pw@h:1/p/q?k=v"}"#), "url: https://h:1/p/q?…");
    }

    #[test]
    fn long_arguments_are_cut() {
        assert!(told(&format!(r#"{{"a": "{}", "b": 1}}"#, "x".repeat(10_000))).chars().count() <= CHARACTERS);
        let many: Vec<String> = (0..10_000).map(|n| n.to_string()).collect();
        assert!(told(&format!(r#"{{"a": [{}]}}"#, many.join(","))).chars().count() <= CHARACTERS);
    }
}
