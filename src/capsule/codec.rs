//! Codecs: the payload's bytes as text, and back.
//!
//! | name | payload text |
//! |---|---|
//! | `base64` | standard base64 on one line. White space is dropped on reading; everything else has to be valid, down to the spare bits |
//! | `lmcodec-fixed` | a [`carrier`] block of the fixed model, 80 characters a line |
//! | `lmcodec-ngram-v2` | a carrier block of an n-gram model that the capsule carries in its headers |
//!
//! The headers of `lmcodec-ngram-v2`: `lmcodec_backend_version`, `lmcodec_model_type`, `lmcodec_model_encoding`
//! (`inline-base64-json`), `lmcodec_model_json_b64` (the model's file), `lmcodec_model_sha256` of that, its
//! `lmcodec_model_fingerprint`, and for people `lmcodec_ngram_order` and `lmcodec_ngram_uniform_mix`. Both hashes
//! are checked before the model is used.
//!
//! Only what works is listed. A capsule of another codec can be inspected, and neither verified nor
//! unpacked.

use sha2::{Digest, Sha256};

use super::{CapsuleError, Envelope, Headers};
use crate::base64::{self, is_space};
use crate::carrier::{self, float_text, CarrierError, Decoding, Encoding, Model, NGram};
use crate::wire::hex;

/// The codec of the stable format.
pub const BASE64: &str = "base64";

/// The codec of carrier text by the fixed model.
pub const FIXED: &str = "lmcodec-fixed";

/// The codec of carrier text by an n-gram model of its own.
pub const NGRAM: &str = "lmcodec-ngram-v2";

/// How a model stands in the headers.
const INLINE: &str = "inline-base64-json";

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
pub const CODECS: [Codec; 3] = [
    Codec {
        name: BASE64,
        stability: "stable-v0",
        purpose: "stable interoperability baseline",
        requires_external_model: false,
        notes: "standard-library base64 for tests and broad tool compatibility",
    },
    Codec {
        name: FIXED,
        stability: "experimental-v0",
        purpose: "LMCodec fixed carrier backend",
        requires_external_model: false,
        notes: "uses the existing default FixedLM path; no V2 registry required",
    },
    Codec {
        name: NGRAM,
        stability: "experimental-v0",
        purpose: "self-contained LMCodec n-gram capsule backend",
        requires_external_model: false,
        notes: "embeds canonical n-gram model JSON in capsule headers with fingerprint and SHA256 metadata",
    },
];

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
    let (mut hash, mut count) = (Sha256::new(), 0);
    let mut take = |part: &[u8]| {
        hash.update(part);
        count += part.len() as u64;
        sink(part);
    };
    match envelope.headers.required("codec") {
        BASE64 => decode_base64(envelope, allowed, &mut take)?,
        FIXED => take(&decode_carrier(envelope, &Model::Fixed, allowed)?),
        NGRAM => {
            let model = Model::NGram(Box::new(inline_model(&envelope.headers)?));
            take(&decode_carrier(envelope, &model, allowed)?);
        }
        name => return Err(CapsuleError::UnknownCodec(name.into())),
    }
    if Some(hash.finalize().into()) != hex::decode32(envelope.headers.required("payload_sha256")) {
        return Err(CapsuleError::HashMismatch { line: envelope.payload_line() });
    }
    if count > allowed {
        return Err(CapsuleError::TooLarge { allowed });
    }
    Ok(count)
}

fn decode_base64(
    envelope: &Envelope<'_>,
    allowed: u64,
    take: &mut dyn FnMut(&[u8]),
) -> Result<(), CapsuleError> {
    let text = envelope.payload;
    // Blanks are only counted in a text that is too long with them.
    if (text.len() / 4 * 3) as u64 > allowed && least_size(text) > allowed {
        return Err(CapsuleError::TooLarge { allowed });
    }
    base64::decode_spaced(text, |part| take(part))
        .map_err(|wrong| CapsuleError::Base64 { line: envelope.line_in_payload(wrong.at), what: wrong.what })
}

/// The length in the frame is held against what is allowed before the rest is read.
fn decode_carrier(envelope: &Envelope<'_>, model: &Model, allowed: u64) -> Result<Vec<u8>, CapsuleError> {
    let decoding = Decoding { shape: None, max_payload: allowed };
    let payload = carrier::decode(&mut envelope.payload.as_bytes(), model, &decoding, &mut |_, _| ());
    payload.map_err(|why| match why {
        CarrierError::TooLarge { allowed } => CapsuleError::TooLarge { allowed },
        // Lines are told as those of the whole text.
        CarrierError::Character { found, line } => {
            let line = line - 1 + envelope.payload_line() as u64;
            CapsuleError::Carrier(CarrierError::Character { found, line })
        }
        other => CapsuleError::Carrier(other),
    })
}

/// Writes a payload as the text of a carrier codec.
///
/// # Errors
/// What the encoder says.
pub(super) fn encode_carrier(payload: &[u8], model: &Model) -> Result<String, CapsuleError> {
    let mut text = Vec::new();
    let encoding = Encoding { wrap: 80, ..Encoding::default() };
    carrier::encode(payload, model, &encoding, &mut text, &mut |_, _| ()).map_err(CapsuleError::Carrier)?;
    String::from_utf8(text).map_err(|_| CapsuleError::Pack("a carrier that is no text".into()))
}

/// Sets the headers with the model.
///
/// # Errors
/// None that a model brings about.
pub(super) fn set_model(headers: &mut Headers, model: &NGram) -> Result<(), CapsuleError> {
    let mut text = String::new();
    model.json(|part| text.push_str(part));
    headers.set("lmcodec_backend_version", "ngram-v2")?;
    headers.set("lmcodec_model_type", carrier::ngram::TYPE)?;
    headers.set("lmcodec_model_fingerprint", model.fingerprint())?;
    headers.set("lmcodec_model_sha256", &hex::encode(&Sha256::digest(text.as_bytes())))?;
    headers.set("lmcodec_model_encoding", INLINE)?;
    headers.set("lmcodec_model_json_b64", &base64::encode(text.as_bytes()))?;
    headers.set("lmcodec_ngram_order", &model.order().to_string())?;
    headers.set("lmcodec_ngram_uniform_mix", &float_text::exact(model.uniform_mix()))
}

/// The model that the capsule carries.
fn inline_model(headers: &Headers) -> Result<NGram, CapsuleError> {
    let wrong = |what: &str| CapsuleError::CarrierModel(what.into());
    if headers.get("lmcodec_model_encoding") != Some(INLINE) {
        return Err(wrong("lmcodec-ngram-v2 requires inline base64 model metadata"));
    }
    let needed = |name| headers.get(name).ok_or(wrong("lmcodec-ngram-v2 model metadata is incomplete"));
    let sha256 = needed("lmcodec_model_sha256")?;
    let fingerprint = needed("lmcodec_model_fingerprint")?;
    let text = needed("lmcodec_model_json_b64")?;
    if text.len() as u64 / 4 * 3 > carrier::MAX_FILE_BYTES {
        return Err(wrong("the inline n-gram model is too large"));
    }
    let bytes = base64::decode(text).map_err(|_| wrong("invalid inline n-gram model encoding"))?;
    if hex::encode(&Sha256::digest(&bytes)) != sha256 {
        return Err(wrong("inline n-gram model SHA256 mismatch"));
    }
    let text = std::str::from_utf8(&bytes).map_err(|_| wrong("the inline n-gram model is not UTF-8"))?;
    let model = match Model::parse(text).map_err(CapsuleError::Carrier)? {
        Model::NGram(model) => *model,
        _ => return Err(wrong("the inline model is no n-gram model")),
    };
    match model.fingerprint() == fingerprint {
        true => Ok(model),
        false => Err(wrong("inline n-gram model fingerprint mismatch")),
    }
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
