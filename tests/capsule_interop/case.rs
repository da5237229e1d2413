//! A case: a command, what lies around it, and what is expected of both programs.

use crate::place::{Entry, Node, Ran, Tree};
use serde_json::Value;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;

/// How a program may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Status 0, nothing on standard error.
    Done,
    /// Status 2, nothing on standard output (but for an audit event).
    Refused,
    /// The peer's other way to fail: a traceback and status 1.
    Crashed,
}

/// What is expected.
#[derive(Clone)]
enum Expect {
    /// Both end like this, print the same and leave the same.
    Alike(End),
    /// A difference that is meant: how each ends, and why.
    Apart { peer: End, ours: End, reason: &'static str },
    /// Both end like this and say different things, which is meant. What each must say is in `fields`.
    Told { end: End, reason: &'static str },
}

/// One command in one situation.
#[derive(Clone)]
pub struct Case {
    pub name: String,
    pub args: Vec<OsString>,
    pub entries: Vec<(String, Entry)>,
    pub env: Vec<(String, String)>,
    expect: Expect,
    /// What our complaint must name: any of the words between `|`, in any case.
    needle: &'static str,
    /// Fields of the JSON printed, with the value that the peer must give them, and ours.
    fields: Vec<(&'static str, &'static str, &'static str)>,
    /// Output with keys in it that are new with every run: they are compared by their shape.
    random: bool,
    /// Concerns codecs that ours may not have yet.
    pub carriers: bool,
}

impl Case {
    /// The command is split at blanks; `arg` adds one that has some.
    pub fn new(name: impl Into<String>, command: &str) -> Case {
        Case {
            name: name.into(),
            args: command.split(' ').filter(|word| !word.is_empty()).map(OsString::from).collect(),
            entries: Vec::new(),
            env: Vec::new(),
            expect: Expect::Alike(End::Done),
            needle: "",
            fields: Vec::new(),
            random: false,
            carriers: false,
        }
    }

    pub fn arg(mut self, word: impl Into<OsString>) -> Case {
        self.args.push(word.into());
        self
    }

    pub fn words(mut self, words: &str) -> Case {
        self.args.extend(words.split(' ').filter(|word| !word.is_empty()).map(OsString::from));
        self
    }

    pub fn file(self, path: impl Into<String>, content: impl AsRef<[u8]>) -> Case {
        self.entry(path, Entry::File(content.as_ref().to_vec()))
    }

    pub fn entry(mut self, path: impl Into<String>, entry: Entry) -> Case {
        self.entries.push((path.into(), entry));
        self
    }

    pub fn entries(mut self, entries: &[(String, Entry)]) -> Case {
        self.entries.extend_from_slice(entries);
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Case {
        self.env.push((name.into(), value.into()));
        self
    }

    pub fn field(mut self, pointer: &'static str, value: &'static str) -> Case {
        self.fields.push((pointer, value, value));
        self
    }

    /// Both end alike; this field of what they print differs, and is meant to.
    pub fn told(
        mut self,
        pointer: &'static str,
        peer: &'static str,
        ours: &'static str,
        reason: &'static str,
    ) -> Case {
        self.fields.push((pointer, peer, ours));
        let end = if let Expect::Alike(end) = self.expect { end } else { End::Done };
        self.expect = Expect::Told { end, reason };
        self
    }

    pub fn carriers(mut self) -> Case {
        self.carriers = true;
        self
    }

    pub fn random(mut self) -> Case {
        self.random = true;
        self
    }

    pub fn refused(mut self, needle: &'static str) -> Case {
        self.expect = Expect::Alike(End::Refused);
        self.needle = needle;
        self
    }

    /// Ours ends otherwise than the peer, and is meant to.
    pub fn apart(mut self, peer: End, ours: End, needle: &'static str, reason: &'static str) -> Case {
        self.expect = Expect::Apart { peer, ours, reason };
        self.needle = needle;
        self
    }

    fn command(&self) -> String {
        let words: Vec<_> = self.args.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    fn audit(&self) -> bool {
        self.args.iter().any(|word| word == "--audit-json")
    }

    /// What is wrong, in lines; empty if nothing is.
    pub fn differences(&self, peer: &Ran, ours: &Ran) -> String {
        let mut wrong = String::new();
        let (peer_end, our_end, reason) = match self.expect {
            Expect::Alike(end) => (end, end, ""),
            Expect::Apart { peer, ours, reason } => (peer, ours, reason),
            Expect::Told { end, reason } => (end, end, reason),
        };
        for (who, ran, end) in [("peer", peer, peer_end), ("ours", ours, our_end)] {
            if let Some(problem) = self.ended_otherwise(ran, end) {
                let _ = writeln!(wrong, "  {who} should have {end:?}: {problem}");
            }
        }
        // The peer in our place has its own manners of refusing.
        if our_end == End::Refused && wrong.is_empty() && crate::other_program().is_none() {
            self.refusal_is_proper(ours, &mut wrong);
        }
        if peer_end == our_end && wrong.is_empty() {
            if !matches!(self.expect, Expect::Told { .. }) {
                self.same_output(peer, ours, &mut wrong);
            }
            if our_end == End::Done {
                same_tree(peer, ours, self.random, &mut wrong);
            }
            self.fields_hold(peer, ours, &mut wrong);
        }
        if wrong.is_empty() {
            return wrong;
        }
        if !reason.is_empty() {
            let _ = writeln!(wrong, "  meant to differ: {reason}");
        }
        for (who, ran) in [("peer", peer), ("ours", ours)] {
            let _ = writeln!(wrong, "  {who}: status {:?}", ran.status);
            for (stream, text) in [("stdout", &ran.stdout), ("stderr", &ran.stderr)] {
                if !text.is_empty() {
                    let _ = writeln!(wrong, "    {stream}: {}", shown(text));
                }
            }
        }
        format!("{}: {}\n{wrong}", self.name, self.command())
    }

    fn ended_otherwise(&self, ran: &Ran, end: End) -> Option<String> {
        let status = match end {
            End::Done => 0,
            End::Refused => 2,
            End::Crashed => 1,
        };
        if ran.status != Some(status) {
            return Some(format!("status {:?} instead of {status}", ran.status));
        }
        if end == End::Done && !ran.stderr.is_empty() {
            return Some("it wrote on standard error".into());
        }
        if end == End::Refused && !self.audit() && !ran.stdout.is_empty() {
            return Some("it wrote on standard output".into());
        }
        None
    }

    /// One line that names the thing, and a directory as it was.
    fn refusal_is_proper(&self, ours: &Ran, wrong: &mut String) {
        let lines = ours.stderr.lines().count();
        let said = if self.audit() { &ours.stdout } else { &ours.stderr };
        if lines > 1 || (lines == 0 && !self.audit()) || (lines == 1 && !ours.stderr.ends_with('\n')) {
            let _ = writeln!(wrong, "  ours wrote {lines} lines on standard error instead of one");
        }
        let said = said.to_lowercase();
        if !self.needle.split('|').any(|word| said.contains(&word.to_lowercase())) {
            let _ = writeln!(wrong, "  ours does not name `{}`", self.needle);
        }
        if ours.after != ours.before {
            let _ = writeln!(wrong, "  ours left something: {}", tree_difference(&ours.before, &ours.after));
        }
    }

    fn same_output(&self, peer: &Ran, ours: &Ran, wrong: &mut String) {
        if peer.stdout == ours.stdout {
            return;
        }
        let json = |text: &str| serde_json::from_str::<Value>(text).ok().filter(Value::is_object);
        match (json(&peer.stdout), json(&ours.stdout)) {
            (Some(peer_value), Some(our_value)) if peer_value == our_value => {
                let _ = writeln!(wrong, "  the same JSON, spelled differently");
            }
            (Some(mut peer_value), Some(mut our_value)) => {
                for value in [&mut peer_value, &mut our_value] {
                    blur(value);
                }
                if self.random {
                    let _ = compare_text(
                        &blur_keys(&peer_value.to_string()),
                        &blur_keys(&our_value.to_string()),
                        wrong,
                    );
                } else {
                    compare_values("", &peer_value, &our_value, wrong);
                }
            }
            _ => {
                let lines = |text: &str| {
                    let text: Vec<String> = text.lines().map(blur_line).collect();
                    if self.random {
                        blur_keys(&text.join("\n"))
                    } else {
                        text.join("\n")
                    }
                };
                let _ = compare_text(&lines(&peer.stdout), &lines(&ours.stdout), wrong);
            }
        }
    }

    fn fields_hold(&self, peer: &Ran, ours: &Ran, wrong: &mut String) {
        for (who, ran) in [("peer", peer), ("ours", ours)] {
            let value = serde_json::from_str::<Value>(&ran.stdout).unwrap_or_default();
            for (pointer, peers, our) in &self.fields {
                let wanted = if who == "peer" { peers } else { our };
                let found = value.pointer(pointer).map(|found| match found {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                });
                if found.as_deref() != Some(*wanted) {
                    let _ = writeln!(wrong, "  {who}: {pointer} should be {wanted} and is {found:?}");
                }
            }
        }
    }
}

/// The wording of a failure is each program's own; that there is one, and where, is not.
fn blur(value: &mut Value) {
    const WORDS: &str = "<words>";
    match value {
        Value::Array(items) => {
            items.iter_mut().for_each(blur);
            for item in items.iter_mut() {
                if let Value::String(text) = item {
                    *text = blur_invalid(text);
                }
            }
            // Only lists of reasons and of capabilities hold text alone; reasons are sorted by their words.
            if items.iter().any(|item| item.as_str().is_some_and(|text| text.contains(WORDS))) {
                items.sort_by_key(|item| item.to_string());
            }
        }
        Value::Object(fields) => {
            fields.values_mut().for_each(blur);
            if let Some(Value::String(text)) = fields.get_mut("verification_error") {
                *text = WORDS.into();
            }
            if let Some(Value::String(text)) = fields.get_mut("message") {
                *text = blur_invalid(text);
            }
            let failed =
                fields.get("result").is_some_and(|result| result.get("verification_error").is_some());
            if failed {
                if let Some(Value::Array(reasons)) = fields.get_mut("reasons") {
                    reasons.iter_mut().for_each(|reason| *reason = WORDS.into());
                }
            }
            // A failed operation's event carries the default policy at the peer, whatever policy was given:
            // see `differences`.
            let refused = fields
                .get("result")
                .is_some_and(|result| result.get("verification") == Some(&"failed".into()));
            if refused {
                if let Some(Value::Object(policy)) = fields.get_mut("policy") {
                    policy.values_mut().for_each(|value| *value = Value::Null);
                }
            }
        }
        _ => {}
    }
}

fn blur_invalid(text: &str) -> String {
    match text.strip_prefix("invalid capsule: ") {
        Some(_) => "invalid capsule: <words>".into(),
        None => text.into(),
    }
}

fn blur_line(line: &str) -> String {
    for (start, end) in [("verification status: failed (", ")"), ("reason: invalid capsule: ", "")] {
        if line.starts_with(start) && line.ends_with(end) {
            return format!("{start}<words>{end}");
        }
    }
    match line.split_once(": invalid capsule: ") {
        Some((start, _)) if line.starts_with("finding: ") => format!("{start}: invalid capsule: <words>"),
        _ => line.into(),
    }
}

/// Runs of 40 and more of the letters keys are written in become their shape.
fn blur_keys(text: &str) -> String {
    let letter = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(letter) {
        out.push_str(&rest[..start]);
        rest = &rest[start..];
        let end = rest.find(|c| !letter(c)).unwrap_or(rest.len());
        let word = &rest[..end];
        match end {
            64 if word.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c)) => {
                out.push_str("<hex64>")
            }
            44 if word.ends_with('=') => out.push_str("<base64 of 32>"),
            _ => out.push_str(word),
        }
        rest = &rest[end..];
    }
    out + rest
}

fn compare_values(path: &str, peer: &Value, ours: &Value, wrong: &mut String) {
    match (peer, ours) {
        (Value::Object(a), Value::Object(b)) => {
            for name in a.keys().chain(b.keys().filter(|name| !a.contains_key(*name))) {
                match (a.get(name), b.get(name)) {
                    (Some(a), Some(b)) => compare_values(&format!("{path}/{name}"), a, b, wrong),
                    (Some(a), None) => {
                        let _ =
                            writeln!(wrong, "  {path}/{name} is missing, peer: {}", shown(&a.to_string()));
                    }
                    (None, Some(b)) => {
                        let _ =
                            writeln!(wrong, "  {path}/{name} is too much, ours: {}", shown(&b.to_string()));
                    }
                    (None, None) => {}
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                compare_values(&format!("{path}/{index}"), a, b, wrong);
            }
        }
        _ if peer != ours => {
            let (peer, ours) = (peer.to_string(), ours.to_string());
            let _ = writeln!(wrong, "  {path} differs, peer: {} ours: {}", shown(&peer), shown(&ours));
        }
        _ => {}
    }
}

fn compare_text(peer: &str, ours: &str, wrong: &mut String) -> Option<()> {
    if peer == ours {
        return None;
    }
    let (a, b): (Vec<_>, Vec<_>) = (peer.lines().collect(), ours.lines().collect());
    let at = a.iter().zip(&b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()));
    let line = |lines: &[&str]| lines.get(at).map_or("(no line)".to_owned(), |line| shown(line));
    let _ = writeln!(wrong, "  line {} differs, peer: {} ours: {}", at + 1, line(&a), line(&b));
    Some(())
}

fn same_tree(peer: &Ran, ours: &Ran, random: bool, wrong: &mut String) {
    let blurred = |tree: &Tree| -> Tree {
        let node = |node: &Node| match node {
            Node::File(mode, bytes) if random => {
                Node::File(*mode, blur_keys(&String::from_utf8_lossy(bytes)).into_bytes())
            }
            other => other.clone(),
        };
        tree.iter().map(|(path, found)| (path.clone(), node(found))).collect()
    };
    let (a, b) = (blurred(&peer.after), blurred(&ours.after));
    if a != b {
        let _ = writeln!(wrong, "  what they left differs (peer to ours): {}", tree_difference(&a, &b));
    }
}

fn tree_difference(a: &Tree, b: &Tree) -> String {
    let mut out = Vec::new();
    for path in a.keys().chain(b.keys().filter(|path| !a.contains_key(*path))) {
        match (a.get(path), b.get(path)) {
            (Some(_), None) => out.push(format!("{} is gone", path.display())),
            (None, Some(_)) => out.push(format!("{} is new", path.display())),
            (Some(a), Some(b)) if a != b => {
                out.push(format!("{}: {} became {}", path.display(), node(a, b), node(b, a)));
            }
            _ => {}
        }
    }
    out.join("; ")
}

/// A node in words; of a file the first line in which it differs from the other.
fn node(this: &Node, other: &Node) -> String {
    match this {
        Node::Link(target) => format!("a link to {}", target.display()),
        Node::Dir(mode) => format!("a directory {mode:o}"),
        Node::File(mode, bytes) => {
            let text = String::from_utf8_lossy(bytes);
            let others = match other {
                Node::File(_, bytes) => String::from_utf8_lossy(bytes).into_owned(),
                _ => String::new(),
            };
            let mut others = others.lines();
            let line = text.lines().find(|line| others.next() != Some(line));
            format!("a file {mode:o} of {} bytes, {}", bytes.len(), shown(line.unwrap_or("")))
        }
    }
}

/// The created_at of the capsule that was made, if one was.
pub fn created_at(ran: &Ran) -> Option<String> {
    ran.after.iter().filter(|(path, node)| ran.before.get(*path) != Some(node)).find_map(|(_, node)| {
        let Node::File(_, bytes) = node else { return None };
        let text = String::from_utf8_lossy(bytes);
        text.lines().find_map(|line| line.strip_prefix("created_at: ").map(str::to_owned))
    })
}

/// The file `path` of what was left.
pub fn left<'a>(ran: &'a Ran, path: &str) -> Option<&'a [u8]> {
    match ran.after.get(Path::new(path)) {
        Some(Node::File(_, bytes)) => Some(bytes),
        _ => None,
    }
}

fn shown(text: &str) -> String {
    const MOST: usize = 700;
    let text = text.trim_end_matches('\n').replace('\n', "\\n");
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
