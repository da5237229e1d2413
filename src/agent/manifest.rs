//! Reading an agent's manifest from its source without running anything.
//!
//! A stranger's secret is needed before its signature can be checked, so this runs on text from
//! anyone. It reads only `NAME = literal` at the start of a line, outside of strings and brackets;
//! when the agent is loaded, Python's own syntax tree must agree with it.

use crate::wire::Secret;
use serde_json::{Map, Value};
use std::fmt;

/// The names that are read.
const NAMES: [&str; 5] = ["AGENT_ID", "AGENT_SECRET", "AGENT_NAME", "AGENT_CAPABILITIES", "AGENT_VERSION"];
/// The longest id, bytes.
const ID_BYTES: usize = 128;
/// The longest other string of the manifest, bytes.
const TEXT_BYTES: usize = 4096;

/// What a source says about itself.
#[derive(Clone)]
pub struct Manifest {
    /// `AGENT_ID`.
    pub id: String,
    /// `AGENT_SECRET`.
    pub secret: Secret,
    /// `AGENT_NAME`.
    pub name: Option<String>,
    /// `AGENT_CAPABILITIES`: what it asks for; absent: all that it is granted.
    pub capabilities: Option<Vec<String>>,
    /// `AGENT_VERSION`.
    pub version: Option<String>,
}

impl fmt::Debug for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manifest").field("id", &self.id).field("name", &self.name).finish_non_exhaustive()
    }
}

impl Manifest {
    /// Reads the manifest of `source`.
    ///
    /// # Errors
    /// One sentence that names what is missing or wrong, with the line.
    pub fn read(source: &str) -> Result<Manifest, String> {
        let mut found: Map<String, Value> = Map::new();
        for (name, line, value) in Scanner::new(source).assignments() {
            let value = value.map_err(|why| format!("line {line}: {name} {why}"))?;
            if found.insert(name.to_owned(), value).is_some() {
                return Err(format!("line {line}: {name} is assigned a second time"));
            }
        }
        let text = |found: &mut Map<String, Value>, name: &str| match found.remove(name) {
            None => Ok(None),
            Some(Value::String(text)) if text.len() > TEXT_BYTES => {
                Err(format!("{name} is longer than {TEXT_BYTES} bytes"))
            }
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(format!("{name} must be a string")),
        };
        let missing = |name: &str| {
            format!("the source has no line {name} = \"…\" (one plain literal at the start of a line)")
        };
        let id = text(&mut found, "AGENT_ID")?.ok_or_else(|| missing("AGENT_ID"))?;
        check_id(&id).map_err(|why| format!("AGENT_ID {why}"))?;
        let secret = text(&mut found, "AGENT_SECRET")?.ok_or_else(|| missing("AGENT_SECRET"))?;
        let secret = Secret::new(&secret).map_err(|why| format!("AGENT_SECRET: {why}"))?;
        let capabilities = match found.remove("AGENT_CAPABILITIES") {
            None => None,
            Some(Value::Array(items)) => Some(
                items
                    .into_iter()
                    .map(|item| match item {
                        Value::String(text) => Ok(text),
                        _ => Err("AGENT_CAPABILITIES must be a list of strings".to_owned()),
                    })
                    .collect::<Result<_, _>>()?,
            ),
            Some(_) => return Err("AGENT_CAPABILITIES must be a list of strings".into()),
        };
        Ok(Manifest {
            id,
            secret,
            name: text(&mut found, "AGENT_NAME")?,
            capabilities,
            version: text(&mut found, "AGENT_VERSION")?,
        })
    }

    /// A source that says no more than who it is and what it signs with.
    pub fn head(&self) -> String {
        let quote = |text: &str| if text.contains('"') { format!("'{text}'") } else { format!("\"{text}\"") };
        format!("AGENT_ID = {}\nAGENT_SECRET = {}\n", quote(&self.id), quote(self.secret.expose()))
    }

    /// What the syntax tree must agree with, by name. Holds the secret: for the agent's own process.
    pub(super) fn facts(&self) -> Value {
        let mut facts = Map::new();
        facts.insert("AGENT_ID".into(), self.id.clone().into());
        facts.insert("AGENT_SECRET".into(), self.secret.expose().into());
        for (name, value) in [("AGENT_NAME", &self.name), ("AGENT_VERSION", &self.version)] {
            if let Some(value) = value {
                facts.insert(name.into(), value.clone().into());
            }
        }
        if let Some(capabilities) = &self.capabilities {
            facts.insert("AGENT_CAPABILITIES".into(), capabilities.clone().into());
        }
        facts.into()
    }
}

/// Whether `id` can be an agent's id: 1 to 128 of letters, digits, `.`, `_`, `-`, starting with a
/// letter or digit.
///
/// # Errors
/// What is wrong with it, to be put after its name.
pub fn check_id(id: &str) -> Result<(), String> {
    if id.is_empty() || id.len() > ID_BYTES {
        return Err(format!("must have 1 to {ID_BYTES} characters"));
    }
    if !id.starts_with(|first: char| first.is_ascii_alphanumeric()) {
        return Err("must start with a letter or digit".into());
    }
    match id.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))) {
        Some(odd) => Err(format!("may hold letters, digits, '.', '_' and '-', not {odd:?}")),
        None => Ok(()),
    }
}

/// Walks the source once, linear in its length, keeping only whether it stands in a string or bracket.
struct Scanner<'a> {
    source: &'a str,
    bytes: &'a [u8],
    at: usize,
    line: usize,
}

type Assignment<'a> = (&'a str, usize, Result<Value, &'static str>);

impl<'a> Scanner<'a> {
    fn new(source: &'a str) -> Self {
        let source = source.strip_prefix('\u{feff}').unwrap_or(source);
        Scanner { source, bytes: source.as_bytes(), at: 0, line: 1 }
    }

    fn assignments(mut self) -> Vec<Assignment<'a>> {
        let mut found = Vec::new();
        let mut depth = 0usize;
        let mut fresh = true; // at the start of a logical line
        while let Some(byte) = self.peek(0) {
            if fresh && depth == 0 {
                fresh = false;
                if let Some(name) = self.name_here() {
                    let line = self.line;
                    let value = self.assigned(name);
                    found.push((name, line, value));
                    continue;
                }
            }
            match byte {
                b'\n' => {
                    self.newline();
                    fresh = true;
                    continue;
                }
                b'\\' if self.peek(1) == Some(b'\n') => {
                    self.at += 1;
                    self.newline();
                    continue;
                }
                b'#' => {
                    self.skip_to_line_end();
                    continue;
                }
                b'"' | b'\'' => {
                    self.skip_string(byte);
                    continue;
                }
                b'(' | b'[' | b'{' => depth += 1,
                b')' | b']' | b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.at += 1;
        }
        found
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at + ahead).copied()
    }

    fn newline(&mut self) {
        self.at += 1;
        self.line += 1;
    }

    fn skip_to_line_end(&mut self) {
        while self.peek(0).is_some_and(|byte| byte != b'\n') {
            self.at += 1;
        }
    }

    /// One of the manifest's names here, followed by a single `=`; moves past the `=`.
    fn name_here(&mut self) -> Option<&'static str> {
        let rest = &self.bytes[self.at..];
        let name = NAMES.into_iter().find(|name| rest.starts_with(name.as_bytes()))?;
        let mut end = name.len();
        while matches!(rest.get(end), Some(b' ' | b'\t')) {
            end += 1;
        }
        if rest.get(end) != Some(&b'=') || rest.get(end + 1) == Some(&b'=') {
            return None;
        }
        self.at += end + 1;
        Some(name)
    }

    /// The literal after the `=`, up to the end of its line.
    fn assigned(&mut self, name: &str) -> Result<Value, &'static str> {
        self.blanks(false);
        let value = match self.peek(0) {
            Some(b'[') if name == "AGENT_CAPABILITIES" => self.list()?,
            Some(b'"' | b'\'') => Value::String(self.plain_string()?),
            _ => return Err("must be one plain literal in quotes (a list of them for AGENT_CAPABILITIES)"),
        };
        self.blanks(false);
        match self.peek(0) {
            None | Some(b'\n' | b'#' | b'\r') => Ok(value),
            _ => Err("must be one plain literal with nothing behind it on its line"),
        }
    }

    fn blanks(&mut self, lines_too: bool) {
        loop {
            match self.peek(0) {
                Some(b' ' | b'\t' | b'\r') => self.at += 1,
                Some(b'\n') if lines_too => self.newline(),
                Some(b'#') if lines_too => self.skip_to_line_end(),
                _ => return,
            }
        }
    }

    fn list(&mut self) -> Result<Value, &'static str> {
        self.at += 1;
        let mut items = Vec::new();
        loop {
            self.blanks(true);
            match self.peek(0) {
                Some(b']') => break,
                Some(b'"' | b'\'') => items.push(Value::String(self.plain_string()?)),
                _ => return Err("must be a list of plain literals"),
            }
            self.blanks(true);
            match self.peek(0) {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                _ => return Err("must be a list of plain literals, separated by commas"),
            }
        }
        self.at += 1;
        Ok(items.into())
    }

    fn plain_string(&mut self) -> Result<String, &'static str> {
        let quote = self.peek(0).unwrap_or(b'"');
        if self.peek(1) == Some(quote) && self.peek(2) == Some(quote) {
            return Err("must be a plain literal in single or double quotes, not in triple ones");
        }
        let start = self.at + 1;
        let mut end = start;
        loop {
            match self.bytes.get(end) {
                Some(byte) if *byte == quote => break,
                Some(b'\\') => return Err("must be a plain literal without escapes"),
                Some(b'\n') | None => return Err("has a literal that does not end on its line"),
                Some(_) => end += 1,
            }
        }
        self.at = end + 1;
        Ok(self.source[start..end].to_owned())
    }

    /// Passes over a string literal of any kind; raw or not makes no difference to where it ends.
    fn skip_string(&mut self, quote: u8) {
        let triple = self.peek(1) == Some(quote) && self.peek(2) == Some(quote);
        self.at += if triple { 3 } else { 1 };
        while let Some(byte) = self.peek(0) {
            match byte {
                b'\\' => {
                    self.at += 1;
                    if self.peek(0) == Some(b'\n') {
                        self.line += 1;
                    }
                    self.at += 1;
                }
                b'\n' if triple => self.newline(),
                b'\n' => return, // an unterminated literal: Python will say so
                _ if byte == quote && !triple => {
                    self.at += 1;
                    return;
                }
                _ if byte == quote && self.peek(1) == Some(quote) && self.peek(2) == Some(quote) => {
                    self.at += 3;
                    return;
                }
                _ => self.at += 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "AGENT_ID = \"a\"\nAGENT_SECRET = 's'\n";

    #[test]
    fn reads_plain_literals_with_comments_and_lists_over_lines() {
        let source = "\"\"\"doc\nAGENT_ID = 'no'\n\"\"\"\nAGENT_ID = 'scout-1'  # who\nAGENT_SECRET=\"ü#x\"\nAGENT_CAPABILITIES = [\n  'files', # a\n  \"run\",\n]\nx = (\nAGENT_NAME = 1)\n";
        let manifest = Manifest::read(source).unwrap();
        assert_eq!(manifest.id, "scout-1");
        assert_eq!(manifest.secret.expose(), "ü#x");
        assert_eq!(manifest.capabilities, Some(vec!["files".into(), "run".into()]));
        assert!(manifest.name.is_none());
        assert!(!format!("{manifest:?}").contains("ü#x"));
    }

    #[test]
    fn refuses_what_is_not_one_plain_literal() {
        for (line, part) in [
            ("AGENT_NAME = 'a' 'b'", "nothing behind"),
            ("AGENT_NAME = 'a' + 'b'", "nothing behind"),
            ("AGENT_NAME = r'a'", "plain literal"),
            ("AGENT_NAME = 'a\\n'", "escapes"),
            ("AGENT_NAME = '''a'''", "triple"),
            ("AGENT_NAME = 'a", "does not end"),
            ("AGENT_ID = 'b'", "second time"),
            ("AGENT_CAPABILITIES = ['a' 'b']", "commas"),
            ("AGENT_CAPABILITIES = ('a',)", "plain literal"),
            ("AGENT_CAPABILITIES = 'a'", "list of strings"),
        ] {
            let error = Manifest::read(&format!("{PLAIN}{line}\n")).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }

    #[test]
    fn names_what_is_missing_or_odd_in_an_id() {
        assert!(Manifest::read("AGENT_SECRET = 's'\n").unwrap_err().contains("AGENT_ID"));
        assert!(Manifest::read("AGENT_ID = 'a'\n").unwrap_err().contains("AGENT_SECRET"));
        assert!(Manifest::read("AGENT_ID = 'a'\nAGENT_SECRET = ''\n").unwrap_err().contains("empty"));
        for id in ["", "-a", ".a", "a/b", "a b", "ä", &"x".repeat(129)] {
            assert!(check_id(id).is_err(), "{id}");
        }
        assert!(check_id("0").is_ok() && check_id("a.b_c-d").is_ok() && check_id(&"x".repeat(128)).is_ok());
    }

    #[test]
    fn a_scan_is_linear_and_survives_anything() {
        for source in
            ["(".repeat(200_000), "'".repeat(100_001), "\\".into(), "\"\"\"".into(), "AGENT_ID =".into()]
        {
            assert!(Manifest::read(&source).is_err());
        }
    }
}
