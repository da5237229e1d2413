//! Codecs: the payload's bytes as text, and back.
//!
//! | name | payload text |
//! |---|---|
//! | `base64` | standard base64 on one line. White space is dropped on reading; everything else has to be valid, down to the spare bits |
//!
//! Only what works is listed. A capsule of another codec can be inspected, and neither verified nor
//! unpacked.

use sha2::{Digest, Sha256};

use super::{CapsuleError, Envelope};
use crate::base64::{self, is_space};
use crate::wire::hex;

/// The codec of the stable format.
pub const BASE64: &str = "base64";

/// What the listing says of a codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codec {
    /// As it stands in the header `codec`.
    pub name: &'static str,
    /// Whether the format may still change.
    pub stability: &'static str,
    /// What it is for.
    pub purpose: &'static str,
    /// Whether a model has to be given to it.
    pub requires_external_model: bool,
    /// More about it.
    pub notes: &'static str,
}

/// The codecs of this build.
pub const CODECS: [Codec; 1] = [Codec {
    name: BASE64,
    stability: "stable-v0",
    purpose: "stable interoperability baseline",
    requires_external_model: false,
    notes: "standard-library base64 for tests and broad tool compatibility",
}];

/// The codec of that name.
pub fn named(name: &str) -> Option<&'static Codec> {
    CODECS.iter().find(|codec| codec.name == name)
}

/// Decodes and hashes the payload in one pass, and hands its bytes to `sink`; their number.
///
/// # Errors
/// It is larger than `allowed` (told without decoding it), no text of its codec, or not what the hash
/// in the headers says.
pub(super) fn decode(
    envelope: &Envelope<'_>,
    allowed: u64,
    mut sink: impl FnMut(&[u8]),
) -> Result<u64, CapsuleError> {
    let name = envelope.headers.required("codec");
    if name != BASE64 {
        return Err(CapsuleError::UnknownCodec(name.into()));
    }
    let text = envelope.payload;
    // Blanks are only counted in a text that is too long with them.
    if (text.len() / 4 * 3) as u64 > allowed && least_size(text) > allowed {
        return Err(CapsuleError::TooLarge { allowed });
    }
    let (mut hash, mut count) = (Sha256::new(), 0);
    base64::decode_spaced(text, |part| {
        hash.update(part);
        count += part.len() as u64;
        sink(part);
    })
    .map_err(|wrong| CapsuleError::Base64 { line: envelope.line_in_payload(wrong.at), what: wrong.what })?;
    if Some(hash.finalize().into()) != hex::decode32(envelope.headers.required("payload_sha256")) {
        return Err(CapsuleError::HashMismatch { line: envelope.payload_line() });
    }
    if count > allowed {
        return Err(CapsuleError::TooLarge { allowed });
    }
    Ok(count)
}

/// How many bytes a text of base64 decodes to; never more than it really does.
pub(super) fn least_size(text: &str) -> u64 {
    let digits = text.chars().filter(|character| !is_space(*character)).count();
    let ends = text.chars().rev().filter(|character| !is_space(*character)).take(2);
    let padding = ends.filter(|character| *character == '=').count();
    ((digits / 4 * 3) as u64).saturating_sub(padding as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_is_known_before_decoding() {
        for length in 0..50 {
            let text = base64::encode(&vec![7; length]);
            assert_eq!(least_size(&text), length as u64);
            let spaced: String = text.chars().flat_map(|digit| [digit, ' ', '\u{a0}', '\n']).collect();
            assert_eq!(least_size(&spaced), length as u64);
        }
        assert_eq!(least_size(&" ".repeat(1000)), 0);
    }
}
