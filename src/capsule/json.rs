//! JSON as capsules and their reports write it: sorted keys, no spaces, ASCII.
//!
//! It is what Python's `json.dumps(x, sort_keys=True, separators=(",", ":"))` writes.

use std::collections::BTreeMap;

use crate::wire::{self, Form, Json};

/// An object in the making.
#[derive(Debug, Default)]
pub struct Object {
    members: BTreeMap<String, String>,
}

impl Object {
    /// One without members.
    pub fn new() -> Object {
        Object::default()
    }

    /// With a member whose value is canonical JSON already.
    #[must_use]
    pub fn raw(mut self, key: &str, value: impl Into<String>) -> Object {
        self.members.insert(key.into(), value.into());
        self
    }

    /// With a string.
    #[must_use]
    pub fn text(self, key: &str, value: &str) -> Object {
        let value = quote(value);
        self.raw(key, value)
    }

    /// With a string or null.
    #[must_use]
    pub fn optional(self, key: &str, value: Option<&str>) -> Object {
        let value = value.map_or_else(null, quote);
        self.raw(key, value)
    }

    /// With a boolean.
    #[must_use]
    pub fn flag(self, key: &str, value: bool) -> Object {
        self.raw(key, value.to_string())
    }

    /// With a count.
    #[must_use]
    pub fn number(self, key: &str, value: u64) -> Object {
        self.raw(key, value.to_string())
    }

    /// With an array of strings.
    #[must_use]
    pub fn texts(self, key: &str, values: impl IntoIterator<Item = impl AsRef<str>>) -> Object {
        let value = array(values.into_iter().map(|value| quote(value.as_ref())));
        self.raw(key, value)
    }

    /// The text.
    pub fn finish(self) -> String {
        let mut out = String::from("{");
        for (key, value) in &self.members {
            if out.len() > 1 {
                out.push(',');
            }
            out.push_str(&quote(key));
            out.push(':');
            out.push_str(value);
        }
        out.push('}');
        out
    }
}

/// A string.
pub fn quote(text: &str) -> String {
    wire::json::quote(text)
}

/// An array of values that are JSON already.
pub fn array(values: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let mut out = String::from("[");
    for value in values {
        if out.len() > 1 {
            out.push(',');
        }
        out.push_str(value.as_ref());
    }
    out.push(']');
    out
}

/// `null`.
pub fn null() -> String {
    "null".into()
}

/// A value that was read, as we write it.
pub fn canonical(json: &Json<'_>) -> String {
    wire::canonical(json, Form::Ascii, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_as_python_writes_it() {
        let object = Object::new()
            .text("b", "é😀\n\u{7f}")
            .optional("a", None)
            .flag("ü", true)
            .number("n", 7)
            .texts("t", ["x", "\""]);
        let expected = r#"{"a":null,"b":"\u00e9\ud83d\ude00\n\u007f","n":7,"t":["x","\""],"\u00fc":true}"#;
        assert_eq!(object.finish(), expected);
        assert_eq!(Object::new().finish(), "{}");
    }
}
