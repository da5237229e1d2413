//! Why a capsule is refused.

use std::fmt;

/// Each malformation and each refusal has a variant, and each variant its own sentence.
///
/// [`reason`](CapsuleError::reason) gives the sentence alone, as it stands in JSON (the wording is the
/// reference implementation's where that refuses the same); `Display` adds the line of the text and
/// what to do about it, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CapsuleError {
    /// The text has no BEGIN marker: it was cut off at its head, or is no capsule.
    MissingBegin {
        /// Of the first other marker; 0 if there is none.
        line: usize,
    },
    /// No PAYLOAD marker follows BEGIN.
    MissingPayload {
        /// Of BEGIN.
        line: usize,
    },
    /// No END marker follows PAYLOAD: the text was cut off.
    MissingEnd {
        /// Of BEGIN.
        line: usize,
    },
    /// Another BEGIN stands before END: two capsules were pasted into each other.
    NestedBegin {
        /// Of the second BEGIN.
        line: usize,
    },
    /// END is followed by END again: lines were doubled on the way.
    RepeatedEnd {
        /// Of the second END.
        line: usize,
    },
    /// END stands before PAYLOAD, where readers would disagree about what the capsule is.
    EndBeforePayload {
        /// Of END.
        line: usize,
    },
    /// A header line begins with `>`: the text went through a mail that quoted it.
    Quoted {
        /// Of the header.
        line: usize,
        /// The line.
        text: String,
    },
    /// A line between BEGIN and PAYLOAD has no colon.
    HeaderWithoutColon {
        /// Of the header.
        line: usize,
        /// The line.
        text: String,
    },
    /// Nothing stands before or behind a header's colon.
    EmptyHeader {
        /// Of the header.
        line: usize,
    },
    /// A header stands there twice.
    RepeatedHeader {
        /// Of the second one.
        line: usize,
        /// The header's name.
        name: String,
    },
    /// A header does not stand where it stands in every capsule: lines were swapped or moved.
    MovedHeader {
        /// Of the header.
        line: usize,
        /// The header's name.
        name: String,
    },
    /// Required headers are not there.
    MissingHeaders {
        /// Of BEGIN.
        line: usize,
        /// All of them.
        names: Vec<&'static str>,
    },
    /// Another version than 0.1.
    Version {
        /// Of the header.
        line: usize,
    },
    /// `payload_sha256` is not 64 hexadecimal digits.
    HashHeader {
        /// Of the header.
        line: usize,
    },
    /// `capsule_manifest` is not what [`super::manifest`] describes.
    Manifest {
        /// Of the header; 0 if the manifest is being made.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// The policy forbids it, by its headers or by the trust in its key.
    Policy(String),
    /// A codec that this build does not have.
    UnknownCodec(String),
    /// The capsule claims a compression or encryption, which V0 does not have.
    Unsupported {
        /// The header.
        header: &'static str,
        /// Its value.
        value: String,
    },
    /// A signature mode that nothing here can check.
    SignatureMode(String),
    /// The key that is needed was not given; the sentence tells which.
    KeyNeeded(&'static str),
    /// A part of the signature is missing or malformed.
    SignatureForm(&'static str),
    /// The public key is another than the one that the capsule names.
    FingerprintMismatch,
    /// The signature is not this key's over this capsule.
    Forged,
    /// [`Forged`](Self::Forged) or [`SignatureForm`](Self::SignatureForm), with where to look.
    Signature {
        /// What is wrong.
        why: Box<CapsuleError>,
        /// The line of the header `signature`.
        line: usize,
        /// The first line of the capsule and the last, its markers left out.
        within: (usize, usize),
        /// Where the payload begins, if it is not the one that `payload_sha256` names.
        payload: Option<usize>,
    },
    /// The payload text is no base64.
    Base64 {
        /// In the payload.
        line: usize,
        /// What is wrong there.
        what: &'static str,
    },
    /// The payload text is no carrier block of its model; which check failed.
    Carrier(crate::carrier::CarrierError),
    /// The model in the headers is incomplete, or another than they say.
    CarrierModel(String),
    /// The decoded payload is larger than the policy allows.
    TooLarge {
        /// What is allowed, in bytes.
        allowed: u64,
    },
    /// The decoded payload is not the one that the header names.
    HashMismatch {
        /// Where the payload begins.
        line: usize,
    },
    /// The bundle is malformed, or one of its files is not what it says, or its path leads elsewhere.
    Bundle(String),
    /// The content type is one that nothing here can unpack.
    ContentType(String),
    /// `filename` is no plain file name.
    Filename(String),
    /// A key file or key text is none.
    Key(String),
    /// A policy, registry or snapshot file is malformed, or may not be used.
    File(String),
    /// What shall be packed cannot be.
    Pack(String),
    /// Reading or writing failed: what was done to what, and the system's reason.
    Io(String),
}

impl CapsuleError {
    /// The sentence without line and advice.
    pub fn reason(&self) -> String {
        use CapsuleError as E;
        match self {
            E::MissingBegin { .. } => "missing capsule begin marker".into(),
            E::MissingPayload { .. } => "missing capsule payload marker".into(),
            E::MissingEnd { .. } => "missing capsule end marker".into(),
            E::NestedBegin { .. } => "nested capsule begin marker".into(),
            E::RepeatedEnd { .. } => "repeated capsule end marker".into(),
            E::EndBeforePayload { .. } => "malformed capsule boundary".into(),
            E::Quoted { text, .. } | E::HeaderWithoutColon { text, .. } => {
                format!("malformed header line: {text}")
            }
            E::EmptyHeader { .. } => "empty capsule header key or value".into(),
            E::RepeatedHeader { name, .. } => format!("duplicate capsule header: {name}"),
            E::MovedHeader { name, .. } => format!("misplaced capsule header: {name}"),
            E::MissingHeaders { names, .. } => {
                format!("missing required capsule headers: {}", names.join(", "))
            }
            E::Version { .. } => "unsupported capsule version".into(),
            E::HashHeader { .. } => "invalid payload SHA256".into(),
            E::UnknownCodec(name) => format!("unknown capsule codec: {name}"),
            E::Unsupported { header, value } => format!("unsupported {header}: {value}"),
            E::SignatureMode(mode) => format!("unsupported signature mode: {mode}"),
            E::KeyNeeded(what) | E::SignatureForm(what) => (*what).into(),
            E::FingerprintMismatch => "public key fingerprint mismatch".into(),
            E::Signature { why, .. } => why.reason(),
            E::Forged => "signature verification failed".into(),
            E::Base64 { .. } => "invalid base64 payload".into(),
            E::Carrier(why) => why.reason(),
            E::CarrierModel(what) => what.clone(),
            E::TooLarge { .. } => "payload exceeds maximum allowed size".into(),
            E::HashMismatch { .. } => "payload SHA256 mismatch".into(),
            E::ContentType(name) => format!("unsupported content type: {name}"),
            E::Filename(name) => format!("unsafe filename: {name}"),
            E::Manifest { what, .. } => what.clone(),
            E::Policy(what) | E::Bundle(what) | E::Key(what) => what.clone(),
            E::File(what) | E::Pack(what) | E::Io(what) => what.clone(),
        }
    }
}

impl fmt::Display for CapsuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use CapsuleError as E;
        // One line, whatever a header held.
        let reason = match self {
            E::Carrier(why) => why.to_string(),
            other => other.reason(),
        };
        for character in reason.chars() {
            if character.is_control() {
                write!(f, "{}", character.escape_default())?;
            } else {
                write!(f, "{character}")?;
            }
        }
        match self {
            E::MissingBegin { line } if *line > 0 => {
                write!(f, " (another marker stands in line {line}; the text before it was cut off)")
            }
            E::MissingPayload { line } => write!(f, " (after BEGIN in line {line})"),
            E::MissingEnd { line } => write!(f, " (after BEGIN in line {line}; the text may be cut off)"),
            E::Quoted { line, .. } => write!(f, " (line {line} is quoted; take the > off every line)"),
            E::MovedHeader { line, .. } => write!(f, " (line {line} stood elsewhere)"),
            E::NestedBegin { line }
            | E::RepeatedEnd { line }
            | E::EndBeforePayload { line }
            | E::HeaderWithoutColon { line, .. }
            | E::EmptyHeader { line }
            | E::RepeatedHeader { line, .. }
            | E::Version { line }
            | E::HashHeader { line } => write!(f, " (line {line})"),
            E::Signature { payload: Some(line), .. } => {
                write!(f, " (the payload at line {line} was changed, or its header)")
            }
            E::Signature { why, within: (first, last), .. } if **why == E::Forged => {
                write!(f, " (another key's, or lines {first} to {last} were changed)")
            }
            E::Signature { line, .. } => write!(f, " (line {line} says that there is one)"),
            E::MissingHeaders { line, .. } => write!(f, " (in the capsule at line {line})"),
            E::Manifest { line, .. } if *line > 0 => write!(f, " (line {line})"),
            E::Base64 { line, what } => write!(f, ": {what} (line {line})"),
            E::TooLarge { allowed } => write!(f, " (the policy allows {allowed} bytes)"),
            E::HashMismatch { line } => {
                write!(f, " (the payload at line {line} was changed, or its header)")
            }
            _ => Ok(()),
        }
    }
}

impl std::error::Error for CapsuleError {}
