//! Header lines: their names, their order, and the rules for one.
//!
//! * A line is trimmed; a blank one is passed over.
//! * The name ends at the first colon; name and value are trimmed and neither may be empty.
//! * No name appears twice. Names are case-sensitive, and ones that are not listed here are kept (and
//!   signed) like the others.
//! * They are read in the order in which they are written: a line that stands elsewhere was moved on the way.

use std::collections::BTreeMap;

use super::CapsuleError;
use crate::base64::is_space;

/// The order of the headers; any others come after them, sorted by name.
const ORDER: [&str; 25] = [
    "capsule_version",
    "codec",
    "content_type",
    "capsule_manifest",
    "lmcodec_backend_version",
    "lmcodec_model_type",
    "lmcodec_model_fingerprint",
    "lmcodec_model_sha256",
    "lmcodec_model_encoding",
    "lmcodec_ngram_order",
    "lmcodec_ngram_uniform_mix",
    "payload_sha256",
    "compression",
    "encryption",
    "signature",
    "signature_key_id",
    "signature_public_key_fingerprint",
    "signature_public_key_encoding",
    "signature_public_key",
    "signature_value_encoding",
    "signature_value",
    "created_by",
    "created_at",
    "policy",
    "filename",
];

/// The headers that every capsule has, in the order in which missing ones are told.
pub const REQUIRED: [&str; 10] = [
    "capsule_version",
    "codec",
    "content_type",
    "payload_sha256",
    "compression",
    "encryption",
    "signature",
    "created_by",
    "created_at",
    "policy",
];

/// The headers of one capsule, sorted by name, as the signature wants them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    by_name: BTreeMap<String, Header>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Header {
    value: String,
    /// In the text it was read from; 0 if it was not read.
    line: usize,
}

impl Headers {
    /// Reads the text between BEGIN and PAYLOAD, whose first line is the text's line `line`.
    ///
    /// # Errors
    /// The first line that breaks a rule.
    pub fn parse(text: &str, line: usize) -> Result<Headers, CapsuleError> {
        let mut headers = Headers::default();
        for (number, raw) in (line..).zip(text.split('\n')) {
            let header = raw.trim_matches(is_space);
            if header.is_empty() {
                continue;
            }
            let line = number;
            // No header of ours begins so, and the advice is better than "unknown header".
            if header.starts_with('>') {
                return Err(CapsuleError::Quoted { line, text: header.into() });
            }
            let Some((name, value)) = header.split_once(':') else {
                return Err(CapsuleError::HeaderWithoutColon { line, text: header.into() });
            };
            let (name, value) = (name.trim_matches(is_space), value.trim_matches(is_space));
            if name.is_empty() || value.is_empty() {
                return Err(CapsuleError::EmptyHeader { line });
            }
            let header = Header { value: value.into(), line };
            if headers.by_name.insert(name.into(), header).is_some() {
                return Err(CapsuleError::RepeatedHeader { line, name: name.into() });
            }
        }
        Ok(headers)
    }

    /// The value of a header.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.by_name.get(name).map(|header| &*header.value)
    }

    /// The value of a header that a parsed capsule has; empty if it has not.
    pub fn required(&self, name: &str) -> &str {
        self.get(name).unwrap_or("")
    }

    /// The line a header was read from.
    pub(super) fn line(&self, name: &str) -> usize {
        self.by_name.get(name).map_or(0, |header| header.line)
    }

    /// The line of the first header; 0 if there is none.
    pub(super) fn first_line(&self) -> usize {
        self.by_name.values().map(|header| header.line).min().unwrap_or(0)
    }

    /// The first header that does not stand where it is written. Told after what is missing: a name that was
    /// mistyped stands wrong, too.
    pub(super) fn check_order(&self) -> Result<(), CapsuleError> {
        let mut lines: Vec<(usize, &str)> =
            self.by_name.iter().map(|(name, header)| (header.line, &**name)).collect();
        lines.sort_unstable();
        for (before, after) in lines.iter().zip(lines.iter().skip(1)) {
            if place(after.1) < place(before.1) {
                // One that is not listed has no business before one that is.
                let listed = place(before.1).0 < ORDER.len();
                let (line, name) = if listed || place(after.1).0 == ORDER.len() { after } else { before };
                return Err(CapsuleError::MovedHeader { line: *line, name: (*name).into() });
            }
        }
        Ok(())
    }

    /// The required headers that are not there.
    pub(super) fn missing(&self) -> Vec<&'static str> {
        REQUIRED.into_iter().filter(|name| !self.by_name.contains_key(*name)).collect()
    }

    /// Sets a header that will be written.
    ///
    /// # Errors
    /// A value that would not read back as it is: empty, of several lines, with blanks at its ends, or
    /// holding a marker.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<(), CapsuleError> {
        let wrong = if value.is_empty() {
            "is empty"
        } else if value.contains(['\n', '\r']) {
            "has more than one line"
        } else if value.trim_matches(is_space).len() != value.len() {
            "begins or ends with a blank"
        } else if super::envelope::MARKERS.iter().any(|marker| value.contains(marker)) {
            "holds a line that marks a capsule"
        } else {
            self.by_name.insert(name.into(), Header { value: value.into(), line: 0 });
            return Ok(());
        };
        Err(CapsuleError::Pack(format!("the header {name} cannot carry {value:?}: it {wrong}")))
    }

    /// Names and values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.by_name.iter().map(|(name, header)| (&**name, &*header.value))
    }

    /// The lines as they are written.
    pub(super) fn lines(&self) -> String {
        let mut sorted: Vec<(&str, &str)> = self.iter().collect();
        sorted.sort_by_key(|(name, _)| place(name));
        sorted.iter().map(|(name, value)| format!("{name}: {value}\n")).collect()
    }
}

/// Sorts as the headers stand. The name decides among those that are not listed only.
fn place(name: &str) -> (usize, &str) {
    match ORDER.iter().position(|known| *known == name) {
        Some(at) => (at, ""),
        None => (ORDER.len(), name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_trimmed_and_split_at_its_first_colon() {
        let headers = Headers::parse("\n  a : b:c \n\n\tnäme:\u{a0}välue\n", 2).unwrap();
        assert_eq!(headers.iter().collect::<Vec<_>>(), [("a", "b:c"), ("näme", "välue")]);
        assert_eq!((headers.line("a"), headers.line("näme")), (3, 5));
    }

    #[test]
    fn each_broken_rule_has_its_own_error() {
        let wrong = |text| Headers::parse(text, 1).unwrap_err();
        assert_eq!(wrong("a: b\nc d"), CapsuleError::HeaderWithoutColon { line: 2, text: "c d".into() });
        assert_eq!(wrong("a:"), CapsuleError::EmptyHeader { line: 1 });
        assert_eq!(wrong(": b"), CapsuleError::EmptyHeader { line: 1 });
        assert_eq!(
            wrong("codec: b\n\na: b\ncodec:b"),
            CapsuleError::RepeatedHeader { line: 4, name: "codec".into() }
        );
        assert_eq!(wrong("a: b\n\na:b"), CapsuleError::RepeatedHeader { line: 3, name: "a".into() });
        assert_eq!(wrong("> a: b"), CapsuleError::Quoted { line: 1, text: "> a: b".into() });
    }

    #[test]
    fn a_line_that_stands_elsewhere_was_moved() {
        let moved = |text: &str| match Headers::parse(text, 1).unwrap().check_order() {
            Err(CapsuleError::MovedHeader { line, name }) => Some((line, name)),
            other => other.map(|()| None).unwrap(),
        };
        assert_eq!(moved("capsule_version: 1\ncodec: 2\nfilename: 3\nZ: 4\na: 5"), None);
        assert_eq!(moved("codec: 2\ncapsule_version: 1"), Some((2, "capsule_version".into())));
        assert_eq!(moved("codec: 2\na: 5\nfilename: 3"), Some((2, "a".into())));
        assert_eq!(moved("filename: 3\na: 5\nZ: 4"), Some((3, "Z".into())));
    }

    #[test]
    fn headers_are_written_in_the_order_of_the_format() {
        let mut headers = Headers::default();
        for name in ["zz", "filename", "aa", "codec", "capsule_version", "created_at", "signature"] {
            headers.set(name, "x").unwrap();
        }
        let lines = headers.lines();
        let names: Vec<_> = lines.lines().map(|line| line.split(':').next().unwrap()).collect();
        assert_eq!(names, ["capsule_version", "codec", "signature", "created_at", "filename", "aa", "zz"]);
    }

    #[test]
    fn a_value_that_would_not_read_back_is_not_written() {
        let mut headers = Headers::default();
        for value in ["", "a\nb", "a\rb", " a", "a\u{a0}", "-----PAYLOAD-----"] {
            assert!(headers.set("created_by", value).is_err(), "{value:?}");
        }
    }
}
