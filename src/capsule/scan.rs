//! Scanning: what in a text is a capsule, or looks like one, or hides.
//!
//! | type | risk | what |
//! |---|---|---|
//! | `capsule_malformed` | high | BEGIN without END |
//! | `capsule_invalid` | high | a capsule that does not verify; the message says why |
//! | `signature_revoked` | high | the registry revokes its key |
//! | `signature_untrusted` | medium | its key is trusted by no registry |
//! | `unicode_invisible` | high | U+200B, U+200C, U+200D, U+2060 or U+FEFF |
//! | `dense_base64_like` | medium | 80 or more base64 digits that stand alone |
//! | `dense_long_line` | medium | a line of 500 or more characters and at most two words |
//!
//! A signature is checked if there is a key to check it with. Places are counted in characters of the
//! text with LF for CRLF and CR.

use std::collections::BTreeSet;
use std::ops::Range;

use super::audit::Disposition;
use super::envelope::{find, BEGIN, END};
use super::inspect::inspect;
use super::json::{array, Object};
use super::{Envelope, Keys, Policy, TrustStatus};
use crate::base64::is_space;
use crate::log::escape;

/// How many findings a report holds at most.
const MAX_FINDINGS: usize = 10_000;

/// How many characters of a finding's text are shown.
const EXCERPT: usize = 96;

/// A report.
#[derive(Clone, Debug)]
pub struct Report {
    /// How often BEGIN stands in the text.
    pub detected: u64,
    /// How many capsules verify.
    pub valid: u64,
    /// How many do not.
    pub invalid: u64,
    /// Why the risk is what it is; sorted.
    pub reasons: BTreeSet<String>,
    /// The highest risk of what was found.
    pub risk: Risk,
    /// Capsules first, then the rest by type; by place within each.
    pub findings: Vec<Finding>,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Risk {
    /// Nothing.
    Low,
    /// Someone should look at it.
    Medium,
    /// It should not be used.
    High,
}

/// Something in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Of the table above.
    pub kind: &'static str,
    /// How bad it is.
    pub risk: Risk,
    /// What it is.
    pub message: String,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// In characters from the text's start.
    pub start: usize,
    /// Behind it.
    pub end: usize,
    /// Its beginning, newlines escaped.
    pub excerpt: String,
}

impl Risk {
    fn name(self) -> &'static str {
        match self {
            Risk::Low => "low",
            Risk::Medium => "medium",
            Risk::High => "high",
        }
    }
}

/// Scans a [`super::normalized`] text.
pub fn scan(text: &str, policy: &Policy, keys: &Keys<'_>) -> Report {
    let mut scan = Scan {
        text,
        report: Report {
            detected: 0,
            valid: 0,
            invalid: 0,
            reasons: BTreeSet::new(),
            risk: Risk::Low,
            findings: Vec::new(),
        },
        place: Place::default(),
        last: None,
    };
    scan.capsules(policy, keys);
    scan.invisible();
    scan.dense_runs();
    scan.long_lines();
    scan.report
}

struct Scan<'a> {
    text: &'a str,
    report: Report,
    /// Where the last finding was; findings of one pass come in order.
    place: Place,
    /// The text's end, once it was asked for: any number of capsules may be cut off there.
    last: Option<Place>,
}

/// A place in the text, and how often each unit stands before it.
#[derive(Clone, Copy, Default)]
struct Place {
    byte: usize,
    characters: usize,
    lines: usize,
    /// The characters before the line.
    line_start: usize,
}

impl Scan<'_> {
    fn capsules(&mut self, policy: &Policy, keys: &Keys<'_>) {
        let mut at = 0;
        // Found again only behind the last one, so that many BEGINs do not make the text long.
        let mut end = find(self.text, 0, END);
        if end.is_none() && find(self.text, 0, BEGIN).is_some() {
            self.report.reasons.insert("capsule begin marker without end marker".into());
        }
        while let Some(begin) = find(self.text, at, BEGIN) {
            self.report.detected += 1;
            at = begin + BEGIN.len();
            if end.is_some_and(|end| end < at) {
                end = find(self.text, at, END);
            }
            let Some(close) = end else {
                self.report.invalid += 1;
                self.finding(
                    "capsule_malformed",
                    Risk::High,
                    begin..self.text.len(),
                    "malformed capsule-like block",
                );
                continue;
            };
            let block = begin..close + END.len();
            let shown = begin..close;
            // Those within are counted, and looked at as a part of this one.
            while let Some(nested) = find(&self.text[..close], at, BEGIN) {
                self.report.detected += 1;
                at = nested + BEGIN.len();
            }
            at = block.end;
            self.capsule(block, shown, policy, keys);
        }
    }

    /// Looks at the capsule in `block`; `shown` is what its findings name, which ends before END.
    fn capsule(&mut self, block: Range<usize>, shown: Range<usize>, policy: &Policy, keys: &Keys<'_>) {
        let text = &self.text[block];
        let seen = Envelope::parse(text).and_then(|envelope| inspect(&envelope, policy, keys));
        if let Some(trust) = seen.as_ref().ok().and_then(|seen| seen.trust.as_ref()) {
            let (kind, risk) = match trust.status {
                TrustStatus::Trusted => ("", Risk::Low),
                TrustStatus::Untrusted => ("signature_untrusted", Risk::Medium),
                TrustStatus::Revoked => ("signature_revoked", Risk::High),
            };
            if risk > Risk::Low {
                self.finding(kind, risk, shown.clone(), trust.reason);
            }
        }
        match seen.and_then(|seen| seen.payload) {
            Ok(_) => self.report.valid += 1,
            Err(error) => {
                self.report.invalid += 1;
                let message = format!("invalid capsule: {}", error.reason());
                self.finding("capsule_invalid", Risk::High, shown, &message);
            }
        }
    }

    fn invisible(&mut self) {
        self.place = Place::default();
        let hidden = |c| matches!(c, '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}');
        for (at, found) in self.text.match_indices(hidden) {
            let range = at..at + found.len();
            let message = "suspicious invisible Unicode character";
            self.add(
                "unicode_invisible",
                Risk::High,
                range,
                message,
                "suspicious invisible Unicode characters",
            );
        }
    }

    fn dense_runs(&mut self) {
        self.place = Place::default();
        let digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
        let bytes = self.text.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            let length = bytes[at..].iter().take_while(|byte| digit(byte)).count();
            let padding = bytes[at + length..].iter().take_while(|byte| **byte == b'=').count();
            let behind = at + length + padding;
            // What stands alone has no digit and no padding on either side.
            let alone = (at == 0 || bytes[at - 1] != b'=')
                && padding <= 2
                && (padding == 0 || !bytes.get(behind).is_some_and(digit));
            if length >= 80 && alone {
                let message = "high-entropy/base64-looking block";
                self.finding("dense_base64_like", Risk::Medium, at..behind, message);
            }
            at = behind.max(at + 1);
        }
    }

    fn long_lines(&mut self) {
        self.place = Place::default();
        let mut start = 0;
        // The line ends that Python's `splitlines` knows.
        let ends = |c| {
            matches!(c, '\n' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
        };
        for line in self.text.split_inclusive(ends) {
            let left = line.trim_start_matches(is_space);
            let inner = left.trim_end_matches(is_space);
            let from = start + line.len() - left.len();
            start += line.len();
            // Bytes first: a character has at least one.
            let long = inner.len() >= 500 && inner.chars().take(500).count() == 500;
            if long && inner.split(is_space).filter(|word| !word.is_empty()).take(3).count() <= 2 {
                let message = "very long dense text block";
                self.finding("dense_long_line", Risk::Medium, from..from + inner.len(), message);
            }
        }
    }

    fn finding(&mut self, kind: &'static str, risk: Risk, range: Range<usize>, message: &str) {
        self.add(kind, risk, range, message, message);
    }

    fn add(&mut self, kind: &'static str, risk: Risk, range: Range<usize>, message: &str, reason: &str) {
        if !self.report.reasons.contains(reason) {
            self.report.reasons.insert(reason.into());
        }
        self.report.risk = self.report.risk.max(risk);
        if self.report.findings.len() >= MAX_FINDINGS {
            self.report.reasons.insert(format!("more than {MAX_FINDINGS} findings"));
            return;
        }
        self.place = self.place.forward(self.text, range.start);
        // Counted apart: the next finding may begin within this one.
        let end = match self.last {
            Some(last) if last.byte == range.end => last,
            _ => self.place.forward(self.text, range.end),
        };
        if range.end == self.text.len() {
            self.last = Some(end);
        }
        self.report.findings.push(Finding {
            kind,
            risk,
            message: message.into(),
            line: self.place.lines + 1,
            column: self.place.characters - self.place.line_start + 1,
            start: self.place.characters,
            end: end.characters,
            excerpt: excerpt(&self.text[range]),
        });
    }
}

impl Place {
    /// The place of the byte `to`, which is not before this one.
    fn forward(self, text: &str, to: usize) -> Place {
        let mut place = self;
        for c in text.get(place.byte..to).unwrap_or("").chars() {
            place.characters += 1;
            if c == '\n' {
                place.lines += 1;
                place.line_start = place.characters;
            }
        }
        place.byte = to.max(place.byte);
        place
    }
}

fn excerpt(text: &str) -> String {
    // No more than can be shown, in a long text.
    let head: String = text.chars().take(EXCERPT + 1).collect();
    let escaped = head.replace('\n', "\\n");
    if escaped.chars().count() <= EXCERPT {
        return escaped;
    }
    escaped.chars().take(EXCERPT - 3).chain("...".chars()).collect()
}

impl Report {
    /// What is to be done with the text.
    pub fn disposition(&self) -> Disposition {
        match self.risk {
            Risk::Low => Disposition::Allow,
            Risk::Medium => Disposition::Review,
            Risk::High => Disposition::Block,
        }
    }

    /// The report as JSON.
    pub fn json(&self, policy: &Policy) -> String {
        let findings = self.findings.iter().map(|finding| {
            Object::new()
                .text("type", finding.kind)
                .text("risk", finding.risk.name())
                .text("message", &finding.message)
                .number("line", finding.line as u64)
                .number("column", finding.column as u64)
                .number("start", finding.start as u64)
                .number("end", finding.end as u64)
                .text("excerpt", &finding.excerpt)
                .finish()
        });
        Object::new()
            .text("report_type", "agent_capsule_governance_scan")
            .number("schema_version", 1)
            .text("disposition", self.disposition().name())
            .number("capsules_detected", self.detected)
            .number("valid_capsules", self.valid)
            .number("invalid_capsules", self.invalid)
            .text("risk_level", self.risk.name())
            .texts("reasons", &self.reasons)
            .raw("policy", policy.json())
            .raw("findings", array(findings))
            .finish()
    }

    /// The report for people.
    pub fn text(&self, policy: &Policy) -> String {
        let flag = |value| if value { "True" } else { "False" };
        let mut lines = format!(
            "Agent Capsule Governance Report\nreport type: agent_capsule_governance_scan\nschema version: 1\n\
             risk level: {}\ndisposition: {}\ncapsules detected: {}\nvalid capsules: {}\n\
             invalid capsules: {}\npolicy: known_codec={} hash_required={} allow_unsigned={} \
             max_payload_bytes={}\n",
            self.risk.name(),
            self.disposition().name(),
            self.detected,
            self.valid,
            self.invalid,
            flag(policy.require_known_codec),
            flag(policy.require_hash),
            flag(policy.allow_unsigned),
            policy.max_payload_bytes,
        );
        let modes: Vec<&str> = policy.required_signature_modes.iter().map(|mode| &**mode).collect();
        if !modes.is_empty() {
            lines.push_str(&format!("policy signatures: {}\n", escape(&modes.join(", "))));
        }
        for reason in &self.reasons {
            lines.push_str(&format!("reason: {}\n", escape(reason)));
        }
        for finding in &self.findings {
            let risk = finding.risk.name().to_uppercase();
            let Finding { kind, line, column, message, .. } = finding;
            let message = escape(message);
            lines.push_str(&format!("finding: [{risk}] {kind} line {line}, column {column}: {message}\n"));
        }
        lines
    }
}
