//! Why a carrier text is refused, or none is made.

use std::fmt;

/// Each check that can fail has a variant, so that whoever reads the sentence knows which one did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CarrierError {
    /// The text holds no carrier block that can be read: a marker or a header line is missing.
    Armour(&'static str),
    /// The block is of another version than 1; the one it names.
    Version(String),
    /// The block was made with another model.
    Fingerprint {
        /// In the block.
        block: String,
        /// Of the model that was given.
        model: String,
    },
    /// The settings are none that can be used, or not those of the block.
    Settings(String),
    /// A character of the carrier is none of the vocabulary's.
    Character {
        /// The character; what is no ASCII is shown as one byte.
        found: char,
        /// The line of the text, from 1.
        line: u64,
    },
    /// The frame does not begin as frames do: the first characters were changed, or another model made them.
    Magic,
    /// The text ends before the payload does.
    Truncated,
    /// The payload's CRC-32 is not the one in the frame.
    Crc,
    /// The payload is larger than whoever reads it allows.
    TooLarge {
        /// What is allowed, in bytes.
        allowed: u64,
    },
    /// The payload is longer than a frame can say, 4 GiB.
    TooLong,
    /// The encoder took as many steps as it may.
    NotConverged {
        /// How many.
        steps: u64,
    },
    /// A distribution has less entropy than the settings ask for.
    Entropy,
    /// A model file is none, or its numbers make no sense.
    Model(String),
    /// The text to train with has no character of the vocabulary.
    NothingToLearn,
    /// Reading or writing failed: what was done to what, and the system's reason.
    Io(String),
}

impl CarrierError {
    /// The sentence without details.
    pub fn reason(&self) -> String {
        use CarrierError as E;
        match self {
            E::Armour(_) => "invalid armour block".into(),
            E::Version(_) => "unsupported version".into(),
            E::Fingerprint { .. } => "fingerprint mismatch".into(),
            E::Settings(_) => "invalid settings".into(),
            E::Character { found, .. } => format!("invalid carrier token: {found:?}"),
            E::Magic => "invalid payload magic".into(),
            E::Truncated => "truncated message".into(),
            E::Crc => "CRC mismatch / corrupted message".into(),
            E::TooLarge { .. } => "payload exceeds maximum allowed size".into(),
            E::TooLong => "the payload is longer than a frame can say".into(),
            E::NotConverged { .. } => "encoding did not converge".into(),
            E::Entropy => "probability distribution below entropy guard".into(),
            E::NothingToLearn => "training text has no characters in vocab".into(),
            E::Model(what) | E::Io(what) => what.clone(),
        }
    }
}

impl fmt::Display for CarrierError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use CarrierError as E;
        f.write_str(&self.reason())?;
        match self {
            E::Armour(what) => write!(f, ": {what}"),
            E::Version(version) => write!(f, ": {version:?}, only 1 is known"),
            E::Fingerprint { block, model } => {
                write!(f, ": the block was made with the model {block:?}, this one is {model}")
            }
            E::Settings(what) => write!(f, ": {what}"),
            E::Character { line, .. } => write!(f, " in line {line} is outside the vocabulary"),
            E::Magic => f.write_str(": the first characters were changed, or made with another model"),
            E::Truncated => f.write_str(": the text ends before the payload does"),
            E::Crc => f.write_str(": the carrier text was changed"),
            E::TooLarge { allowed } => write!(f, " ({allowed} bytes are allowed)"),
            E::TooLong => f.write_str(" (4294967295 bytes)"),
            E::NotConverged { steps } => write!(f, " within {steps} steps"),
            E::Entropy | E::NothingToLearn | E::Model(_) | E::Io(_) => Ok(()),
        }
    }
}

impl std::error::Error for CarrierError {}
