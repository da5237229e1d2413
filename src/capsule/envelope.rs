//! The block of text: where a capsule begins and ends, and what stands in it.
//!
//! * CRLF and CR are LF before anything else is looked at ([`normalized`]).
//! * Text before BEGIN and after END means nothing; the first capsule of a text is the one that is read.
//! * BEGIN, PAYLOAD and END follow each other, with no other BEGIN before END. A marker is found
//!   wherever it stands in a line, as other readers find it; so none may stand in a header either.
//! * The payload text is what stands between PAYLOAD and END without the one newline on each side.
//! * All required headers are there, the version is `0.1`, `payload_sha256` is 64 hexadecimal digits,
//!   and the manifest, if there is one, is one.

use std::borrow::Cow;

use super::{CapsuleError, Headers, Manifest};
use crate::wire::hex;

/// Opens a capsule.
pub const BEGIN: &str = "-----BEGIN AGENT CAPSULE-----";
/// Ends its headers.
pub const PAYLOAD: &str = "-----PAYLOAD-----";
/// Closes it.
pub const END: &str = "-----END AGENT CAPSULE-----";
/// The three of them.
pub const MARKERS: [&str; 3] = [BEGIN, PAYLOAD, END];

/// The version that is read and written.
pub const VERSION: &str = "0.1";

/// A capsule as it stands in a text: its form is right, its content is not looked at yet.
#[derive(Clone, Debug)]
pub struct Envelope<'a> {
    /// The header lines.
    pub headers: Headers,
    /// What the sender says is inside; older capsules lack it.
    pub manifest: Option<Manifest>,
    /// The payload text.
    pub payload: &'a str,
    /// Everything between PAYLOAD and END, with the newlines on both sides.
    pub(super) between: &'a str,
    /// The line in which `between` begins.
    pub(super) line: usize,
    /// Where BEGIN begins, in bytes.
    pub start: usize,
    /// Where the text goes on behind END, in bytes.
    pub end: usize,
}

/// The text with LF for CRLF and CR.
pub fn normalized(text: &str) -> Cow<'_, str> {
    if text.contains('\r') {
        Cow::Owned(text.replace("\r\n", "\n").replace('\r', "\n"))
    } else {
        Cow::Borrowed(text)
    }
}

impl<'a> Envelope<'a> {
    /// Reads the first capsule of a [`normalized`] text.
    ///
    /// # Errors
    /// Which rule of the format it breaks, and in which line.
    pub fn parse(text: &'a str) -> Result<Envelope<'a>, CapsuleError> {
        let line_at = |at: usize| line_of(text, at);
        let start = find(text, 0, BEGIN).ok_or_else(|| CapsuleError::MissingBegin {
            line: next_marker(text, 0).map_or(0, |(at, _)| line_at(at)),
        })?;
        let inside = start + BEGIN.len();
        // One walk to END, whatever stands before it.
        let (mut payload, mut at) = (None, inside);
        let end = loop {
            match next_marker(text, at) {
                Some((nested, BEGIN)) => {
                    return Err(CapsuleError::NestedBegin { line: line_at(nested) });
                }
                Some((found, PAYLOAD)) => {
                    payload = payload.or(Some(found));
                    at = found + PAYLOAD.len();
                }
                end => break end.map(|(found, _)| found),
            }
        };
        let Some(payload) = payload else {
            // Told apart from a capsule without PAYLOAD, behind which another one may follow.
            let late = end.filter(|end| matches!(next_marker(text, end + END.len()), Some((_, PAYLOAD))));
            return Err(match late {
                Some(end) => CapsuleError::EndBeforePayload { line: line_at(end) },
                None => CapsuleError::MissingPayload { line: line_at(start) },
            });
        };
        let end = end.ok_or_else(|| CapsuleError::MissingEnd { line: line_at(start) })?;

        // A line doubled; what a text says of markers further down is its own affair.
        let after = end + END.len();
        let next = text[after..].trim_start();
        if next.lines().next().is_some_and(|line| line.trim_end() == END) {
            return Err(CapsuleError::RepeatedEnd { line: line_at(text.len() - next.len()) });
        }

        let line = line_at(start);
        let headers = Headers::parse(&text[inside..payload], line)?;
        let manifest = checked(&headers, line)?;
        let between = &text[payload + PAYLOAD.len()..end];
        Ok(Envelope {
            headers,
            manifest,
            payload: without_newlines(between),
            between,
            line: line_at(payload),
            start,
            end: after,
        })
    }

    /// The first line of what stands between BEGIN and END, and the last.
    pub(super) fn lines_within(&self) -> (usize, usize) {
        let end = self.line + self.between.trim_end_matches('\n').matches('\n').count();
        (self.headers.first_line(), end)
    }

    /// The line in which the payload text begins.
    pub(super) fn payload_line(&self) -> usize {
        self.line + usize::from(self.between.starts_with('\n'))
    }

    /// The line of the byte `at` of the payload text.
    pub(super) fn line_in_payload(&self, at: usize) -> usize {
        self.payload_line() + line_of(self.payload, at) - 1
    }
}

/// The rules that the headers have to keep together.
fn checked(headers: &Headers, line: usize) -> Result<Option<Manifest>, CapsuleError> {
    let names = headers.missing();
    if !names.is_empty() {
        return Err(CapsuleError::MissingHeaders { line, names });
    }
    headers.check_order()?;
    if headers.required("capsule_version") != VERSION {
        return Err(CapsuleError::Version { line: headers.line("capsule_version") });
    }
    if hex::decode32(headers.required("payload_sha256")).is_none() {
        return Err(CapsuleError::HashHeader { line: headers.line("payload_sha256") });
    }
    let line = headers.line("capsule_manifest");
    headers
        .get("capsule_manifest")
        .map(|json| Manifest::parse(json).map_err(|what| CapsuleError::Manifest { line, what }))
        .transpose()
}

pub(super) fn without_newlines(between: &str) -> &str {
    let between = between.strip_prefix('\n').unwrap_or(between);
    between.strip_suffix('\n').unwrap_or(between)
}

/// Where `marker`, which begins with a hyphen, stands at or behind `from`. A payload has hardly a
/// hyphen in it, and a single byte is found much faster than a word.
pub(super) fn find(text: &str, from: usize, marker: &str) -> Option<usize> {
    let mut at = from;
    while let Some(hyphen) = text.get(at..).and_then(|rest| rest.find('-')) {
        at += hyphen;
        if text[at..].starts_with(marker) {
            return Some(at);
        }
        at += 1;
    }
    None
}

/// The next marker at or behind `from`.
fn next_marker(text: &str, from: usize) -> Option<(usize, &'static str)> {
    let mut at = from;
    while let Some(hyphen) = text.get(at..).and_then(|rest| rest.find('-')) {
        at += hyphen;
        if let Some(marker) = MARKERS.into_iter().find(|marker| text[at..].starts_with(marker)) {
            return Some((at, marker));
        }
        at += 1;
    }
    None
}

/// The line, counted from 1, in which the byte `at` stands.
fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        "x\n-----BEGIN AGENT CAPSULE-----\ncapsule_version: 0.1\ncodec: base64\ncontent_type: t\n\
        payload_sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\ncompression: none\n\
        encryption: none\nsignature: none\ncreated_by: a\ncreated_at: b\npolicy: c\n-----PAYLOAD-----\n\
        aa\n\n-----END AGENT CAPSULE-----\ny";

    fn wrong(text: &str) -> CapsuleError {
        Envelope::parse(text).unwrap_err()
    }

    #[test]
    fn the_payload_text_loses_one_newline_on_each_side() {
        let envelope = Envelope::parse(GOOD).unwrap();
        assert_eq!(envelope.payload, "aa\n");
        assert_eq!((envelope.start, &GOOD[envelope.end..]), (2, "\ny"));
        assert_eq!((envelope.payload_line(), envelope.line_in_payload(3)), (14, 15));
        let bare = GOOD.replace("-----\naa\n\n-----END", "----------END");
        assert_eq!(Envelope::parse(&bare).unwrap().payload, "");
    }

    #[test]
    fn each_missing_or_misplaced_marker_is_named() {
        assert_eq!(wrong(""), CapsuleError::MissingBegin { line: 0 });
        assert_eq!(wrong(&GOOD.replace("BEGIN", "BEGAN")), CapsuleError::MissingBegin { line: 13 });
        assert_eq!(wrong(&GOOD.replace("PAYLOAD", "PAYL")), CapsuleError::MissingPayload { line: 2 });
        assert_eq!(wrong(&GOOD.replace("END", "AND")), CapsuleError::MissingEnd { line: 2 });
        assert_eq!(wrong(&GOOD.replace("aa", BEGIN)), CapsuleError::NestedBegin { line: 14 });
        assert_eq!(wrong(&GOOD.replace("codec", END)), CapsuleError::EndBeforePayload { line: 4 });
    }

    #[test]
    fn a_doubled_end_is_refused_and_a_mention_of_it_is_not() {
        let doubled = GOOD.replace(END, &format!("{END}\n\n{END}"));
        assert_eq!(wrong(&doubled), CapsuleError::RepeatedEnd { line: 18 });
        for text in [format!("{GOOD}\n{END}"), GOOD.replace("\ny", &format!("\n{END} closes a capsule"))] {
            assert!(Envelope::parse(&text).is_ok(), "{text}");
        }
    }

    #[test]
    fn markers_that_share_their_hyphens_are_no_markers() {
        let text = GOOD.replace("-----PAYLOAD-----\naa\n\n-----END", "-----PAYLOAD-----END");
        assert_eq!(wrong(&text), CapsuleError::MissingEnd { line: 2 });
        assert_eq!(
            wrong("-----BEGIN AGENT CAPSULE-----END AGENT CAPSULE-----"),
            CapsuleError::MissingPayload { line: 1 }
        );
    }

    #[test]
    fn a_capsule_without_payload_does_not_take_the_next_ones() {
        let text = format!("{}\n{GOOD}", GOOD.replace("PAYLOAD", "PAYL"));
        assert_eq!(wrong(&text), CapsuleError::MissingPayload { line: 2 });
    }

    #[test]
    fn the_first_capsule_of_a_text_is_read() {
        let two = format!("{GOOD}\n{}", GOOD.replace("created_by: a", "created_by: z"));
        assert_eq!(Envelope::parse(&two).unwrap().headers.get("created_by"), Some("a"));
    }

    #[test]
    fn headers_that_are_missing_or_wrong_are_named() {
        let text = GOOD.replace("codec: base64\n", "").replace("policy: c\n", "");
        let names = vec!["codec", "policy"];
        assert_eq!(wrong(&text), CapsuleError::MissingHeaders { line: 2, names });
        assert_eq!(wrong(&GOOD.replace("0.1", "0.10")), CapsuleError::Version { line: 3 });
        assert_eq!(wrong(&GOOD.replace("e3b0", "e3b")), CapsuleError::HashHeader { line: 6 });
    }
}
