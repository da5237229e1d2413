//! An answer line: making it, and reading it at the other end.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use super::code::Code;
use super::failure::Failure;
use super::hex;
use super::json::{canonical, object, parse_within, quote, scan, Form, Json, Malformed, Order};
use super::secret::Secret;

/// The members that an answer sets itself.
const OWN: [&str; 7] = ["status", "node", "result", "code", "error", "nonce", "signature"];

/// An answer in the making.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Canonical ASCII text by name.
    members: BTreeMap<String, String>,
}

impl Answer {
    /// Success. `result` is the text of any JSON value; it is checked, as only a text that reads in one
    /// way can be signed (Python's `json.dumps` can print a key twice, or nest beyond the bound).
    pub fn ok(node: &str, result: &str) -> Result<Answer, Malformed> {
        let mut answer = Answer::bare("ok", node);
        answer.members.insert("result".into(), canonical_value(result)?);
        Ok(answer)
    }

    /// An error. Fields of the failure that are no proper JSON, or have one of the answer's own names,
    /// are left out: the error itself has to reach the caller.
    pub fn failure(node: &str, failure: &Failure) -> Answer {
        let mut answer = Answer::bare("error", node);
        answer.members.insert("code".into(), quote(failure.code.as_str()));
        answer.members.insert("error".into(), quote(&failure.message));
        for (name, value) in &failure.fields {
            if let Ok(value) = canonical_value(value.get()) {
                if !OWN.contains(name) {
                    answer.members.insert((*name).into(), value);
                }
            }
        }
        answer
    }

    /// Code and sentence of an error.
    pub fn error(&self) -> Option<(String, String)> {
        let text = |name: &str| {
            let json = Json::trusted(self.members.get(name)?);
            json.as_str().map(String::from)
        };
        Some((text("code")?, text("error")?))
    }

    fn bare(status: &str, node: &str) -> Answer {
        let members = [("status", status), ("node", node)];
        Answer { members: members.map(|(name, value)| (name.into(), quote(value))).into() }
    }

    /// Adds a top-level member, from JSON text. Refuses the answer's own names.
    pub fn field(mut self, name: &str, value: &str) -> Result<Answer, Malformed> {
        if OWN.contains(&name) {
            return Err(Malformed { what: format!("`{name}` is the answer's own member"), at: 0 });
        }
        self.members.insert(name.into(), canonical_value(value)?);
        Ok(self)
    }

    /// The line, without a newline: canonical text, and if the request was genuine, with the request's
    /// nonce in it and `,"signature":"…"` put before its closing brace. What is signed is the line
    /// without that.
    pub fn to_line(mut self, signed: Option<(&str, &Secret)>) -> String {
        let Some((nonce, secret)) = signed else {
            return object(&self.members);
        };
        self.members.insert("nonce".into(), quote(nonce));
        let mut line = object(&self.members);
        let signature = hex::encode(&secret.sign(&line));
        line.pop();
        line.push_str(",\"signature\":\"");
        line.push_str(&signature);
        line.push_str("\"}");
        line
    }
}

fn canonical_value(text: &str) -> Result<String, Malformed> {
    Ok(canonical(&parse_within(text, 1)?, Form::Ascii, None))
}

/// An answer that was received. It owns its line.
#[derive(Debug)]
pub struct ReceivedAnswer {
    line: String,
    order: Order,
    ok: bool,
    code: Option<String>,
    error: Option<String>,
    node: Option<String>,
    nonce: Option<String>,
    signature: Option<[u8; 32]>,
}

impl ReceivedAnswer {
    /// Reads a line, with or without its line end. A `Vec<u8>` or `String` is not copied. An answer
    /// without a signature, or with one that is no signature, is read: it is just not genuine.
    pub fn parse(line: impl Into<Vec<u8>>) -> Result<ReceivedAnswer, BadAnswer> {
        let line = String::from_utf8(line.into()).map_err(|error| {
            BadAnswer(format!("the answer is not UTF-8 at byte {}", error.utf8_error().valid_up_to()))
        })?;
        let (json, order) =
            scan(&line, 0).map_err(|wrong| BadAnswer(format!("the answer is not JSON: {wrong}")))?;
        if !json.is_object() {
            return Err(BadAnswer(format!("the answer is {}, not an object", json.kind())));
        }
        let mut status = None;
        let (mut code, mut error, mut node, mut nonce, mut signature) = (None, None, None, None, None);
        for member in json.members() {
            let slot = match member.key.as_ref() {
                "status" => &mut status,
                "code" => &mut code,
                "error" => &mut error,
                "node" => &mut node,
                "nonce" => &mut nonce,
                "signature" => &mut signature,
                _ => continue,
            };
            *slot = member.value.as_str().map(Cow::into_owned);
        }
        let ok = match status.as_deref() {
            Some("ok") => true,
            Some("error") => false,
            _ => return Err(BadAnswer("the answer's status is neither \"ok\" nor \"error\"".into())),
        };
        let signature = signature.as_deref().and_then(hex::decode32);
        Ok(ReceivedAnswer { order, ok, code, error, node, nonce, signature, line })
    }

    /// Whether the status is `ok`.
    pub fn is_ok(&self) -> bool {
        self.ok
    }

    /// The result of a successful request, as it stands.
    pub fn result(&self) -> Option<&str> {
        self.field("result").filter(|_| self.ok)
    }

    /// The code of an error as it was sent, known here or not.
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    /// The code of an error, if it is one of the protocol's.
    pub fn known_code(&self) -> Option<Code> {
        self.code()?.parse().ok()
    }

    /// The sentence of an error.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// The name of the node that answered.
    pub fn node(&self) -> Option<&str> {
        self.node.as_deref()
    }

    /// Any top-level member, as it stands. Walks over the answer.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.json().get(name).map(Json::raw)
    }

    /// Whether it says that the line came in plain text to a node that speaks TLS alone, which read nothing
    /// of it. Such an answer is never signed.
    pub fn wants_tls(&self) -> bool {
        !self.is_ok() && self.field("tls") == Some("\"required\"")
    }

    /// The whole answer, to be looked at.
    pub fn json(&self) -> Json<'_> {
        Json::trusted(self.line.trim())
    }

    /// The line as it was received.
    pub fn line(&self) -> &str {
        &self.line
    }

    /// Whether it answers the request of that nonce and was signed with this secret: only then does it
    /// tell what the node did.
    pub fn genuine(&self, secret: &Secret, nonce: &str) -> bool {
        self.nonce.as_deref() == Some(nonce)
            && self
                .signature
                .is_some_and(|signature| secret.verify_signed(&self.line, &self.order, &signature))
    }
}

/// The line is not an answer; says why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadAnswer(pub String);

impl fmt::Display for BadAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadAnswer {}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
