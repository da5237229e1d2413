//! What an error answer says.

use std::fmt;

use serde_json::value::{to_raw_value, RawValue};

use super::code::Code;

/// A request that was not done: the code, one clear sentence, and what else the answer tells.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The reason, for programs.
    pub code: Code,
    /// One sentence for people.
    pub message: String,
    /// Further top-level members of the answer, such as `node_time` or `transfer`.
    pub fields: Vec<(&'static str, Box<RawValue>)>,
}

impl Failure {
    /// A failure without further members.
    pub fn new(code: Code, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into(), fields: Vec::new() }
    }

    /// Adds a top-level member to the answer. The answer's own names (`status`, `node`, …) cannot be
    /// given this way; see [`Answer::failure`](super::Answer::failure).
    pub fn with(mut self, name: &'static str, value: Box<RawValue>) -> Failure {
        self.fields.push((name, value));
        self
    }

    /// [`with`](Failure::with), from a number, a string or a `serde_json::Value`.
    pub fn with_value(self, name: &'static str, value: impl Into<serde_json::Value>) -> Failure {
        match to_raw_value(&value.into()) {
            Ok(raw) => self.with(name, raw),
            // A `Value` always serialises; were it ever not so, the failure matters more than its extras.
            Err(_) => self,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_its_code_and_sentence_and_keeps_its_members() {
        let failure = Failure::new(Code::Busy, "every place is taken").with_value("limit", 64);
        assert_eq!(failure.to_string(), "busy: every place is taken");
        assert_eq!(failure.fields[0].0, "limit");
        assert_eq!(failure.fields[0].1.get(), "64");
    }
}
