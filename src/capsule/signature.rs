//! Signatures: over which bytes, and how they are made and checked.
//!
//! Signed are the line `AGENT-CAPSULE-SIGNATURE-V0`, then every header but `signature_value`, sorted by
//! name, as `name: value`, then an empty line, then the payload text; joined with LF, in UTF-8. So a
//! header that is changed, added or taken away breaks the signature, the mode and the key's name too.
//!
//! * `hmac-sha256`: `signature_value` is lower-case hexadecimal digits.
//! * `ed25519`: `signature_value` is base64 (`signature_value_encoding: base64`) of 64 bytes.
//!   `signature_public_key_fingerprint` names the key; `signature_public_key` may carry it.
//!
//! The key's kind is taken from where it was given, never from the capsule alone: an HMAC capsule is
//! checked with an HMAC key only, so a public key cannot be passed off as a shared one.
//!
//! A trailing blank that mail adds to a line of base64 changes no byte of the payload. If the text as it
//! stands fails, the text without trailing blanks is tried too: it is then what the signer signed.

use std::borrow::Cow;

use ed25519_dalek::ed25519::signature::{MultipartSigner, MultipartVerifier};
use ed25519_dalek::Signature;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::envelope::without_newlines;
use super::{codec, CapsuleError, Envelope, Headers, HmacKey, Keys, PrivateKey, PublicKey, Trust};
use crate::base64::{self, is_space};
use crate::wire::hex;

/// No signature.
pub const NONE: &str = "none";
/// With a shared key.
pub const HMAC: &str = "hmac-sha256";
/// With a key pair.
pub const ED25519: &str = "ed25519";

/// What was found out about a signature that is not wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Checked {
    /// It is the key's over this capsule.
    Valid,
    /// There is none.
    Unsigned,
    /// The key to check it with was not given: why this is an error for those who need it.
    NotChecked(CapsuleError),
}

impl Checked {
    /// As reports call it.
    pub fn name(&self) -> &'static str {
        match self {
            Checked::Valid => "ok",
            Checked::Unsigned => "unsigned",
            Checked::NotChecked(_) => "not_checked",
        }
    }
}

/// Checks the signature of a capsule. `trust` is what the registry says of its key.
///
/// # Errors
/// The signature is wrong, or malformed, or of an unknown mode.
pub(super) fn check(
    envelope: &Envelope<'_>,
    keys: &Keys<'_>,
    trust: Option<&Trust>,
) -> Result<Checked, CapsuleError> {
    let headers = &envelope.headers;
    match headers.required("signature") {
        NONE => Ok(Checked::Unsigned),
        HMAC => match keys.hmac {
            Some(key) if is_public(key, headers, keys) => Err(CapsuleError::Key(PUBLIC_AS_SHARED.into())),
            Some(key) => check_hmac(envelope, key),
            None => {
                Ok(Checked::NotChecked(CapsuleError::KeyNeeded("hmac-sha256 signature requires --key-env")))
            }
        },
        ED25519 => {
            // The key given beats the registry's, which beats the one in the capsule.
            let given = keys.ed25519.or_else(|| trust.and_then(|trust| trust.key));
            match given.map_or_else(|| inline_key(headers), |key| Ok(Some(key)))? {
                Some(key) => check_ed25519(envelope, &key),
                None => Ok(Checked::NotChecked(CapsuleError::KeyNeeded("missing inline Ed25519 public key"))),
            }
        }
        other => Err(CapsuleError::SignatureMode(other.into())),
    }
}

const PUBLIC_AS_SHARED: &str = "the HMAC key is an Ed25519 public key, which is no secret";

/// Whether a shared key is a public one that is known here, raw or as it stands in files: a capsule may
/// claim HMAC where its receiver keeps the key of a pair.
fn is_public(key: &HmacKey, headers: &Headers, keys: &Keys<'_>) -> bool {
    let text = std::str::from_utf8(&key.bytes).ok().and_then(|text| PublicKey::parse(text).ok());
    let raw = PublicKey::parse(&base64::encode(&key.bytes)).ok();
    text.iter().chain(&raw).any(|key| {
        let (text, fingerprint) = (key.text(), key.fingerprint());
        let named = headers.get("signature_public_key_fingerprint");
        headers.get("signature_public_key") == Some(&text)
            || named.is_some_and(|named| named.eq_ignore_ascii_case(&fingerprint))
            || keys.ed25519.is_some_and(|given| given == *key)
            || keys
                .registry
                .is_some_and(|known| known.entries.iter().any(|entry| entry.fingerprint == fingerprint))
    })
}

/// The key that the capsule carries.
fn inline_key(headers: &Headers) -> Result<Option<PublicKey>, CapsuleError> {
    let Some(text) = headers.get("signature_public_key") else { return Ok(None) };
    if headers.get("signature_public_key_encoding") != Some("base64") {
        return Err(CapsuleError::SignatureForm("missing inline Ed25519 public key"));
    }
    PublicKey::parse(text).map(Some)
}

fn check_hmac(envelope: &Envelope<'_>, key: &HmacKey) -> Result<Checked, CapsuleError> {
    let value = envelope.headers.get("signature_value");
    let value = value.ok_or(CapsuleError::SignatureForm("missing signature value"))?;
    // Lower case only: one signature has one text.
    let digits = !value.bytes().any(|byte| byte.is_ascii_uppercase());
    let value = hex::decode32(value).filter(|_| digits).ok_or(CapsuleError::Forged)?;
    let head = signed_head(&envelope.headers);
    first_that_verifies(envelope, |payload| {
        let mut mac = mac(key);
        mac.update(head.as_bytes());
        mac.update(payload.as_bytes());
        mac.verify_slice(&value).is_ok()
    })
}

fn check_ed25519(envelope: &Envelope<'_>, key: &PublicKey) -> Result<Checked, CapsuleError> {
    let headers = &envelope.headers;
    let missing = CapsuleError::SignatureForm;
    let fingerprint = headers.get("signature_public_key_fingerprint");
    if !fingerprint
        .ok_or(missing("missing Ed25519 public key fingerprint"))?
        .eq_ignore_ascii_case(&key.fingerprint())
    {
        return Err(CapsuleError::FingerprintMismatch);
    }
    if headers.get("signature_value_encoding") != Some("base64") {
        return Err(missing("missing Ed25519 signature value encoding"));
    }
    let value = headers.get("signature_value").ok_or(missing("missing signature value"))?;
    let value = base64::decode(value).map_err(|_| missing("invalid Ed25519 signature"))?;
    let value = Signature::from_slice(&value).map_err(|_| missing("invalid Ed25519 signature length"))?;
    let key = key.verifying().ok_or(CapsuleError::Forged)?;
    let head = signed_head(headers);
    first_that_verifies(envelope, |payload| {
        key.multipart_verify(&[head.as_bytes(), payload.as_bytes()], &value).is_ok()
    })
}

fn first_that_verifies(
    envelope: &Envelope<'_>,
    mut verifies: impl FnMut(&str) -> bool,
) -> Result<Checked, CapsuleError> {
    if verifies(envelope.payload) {
        return Ok(Checked::Valid);
    }
    if envelope.headers.get("codec") == Some(codec::BASE64) {
        if let Cow::Owned(payload) = without_trailing_blanks(envelope.between) {
            if verifies(without_newlines(&payload)) {
                return Ok(Checked::Valid);
            }
        }
    }
    Err(CapsuleError::Forged)
}

fn without_trailing_blanks(text: &str) -> Cow<'_, str> {
    // Before anything is copied: most texts have none.
    if !text.contains([' ', '\t', '\u{a0}']) {
        return Cow::Borrowed(text);
    }
    let lines: Vec<&str> = text.split('\n').map(|line| line.trim_end_matches(is_space)).collect();
    Cow::Owned(lines.join("\n"))
}

/// What is signed, up to the payload text.
fn signed_head(headers: &Headers) -> String {
    let mut head = String::from("AGENT-CAPSULE-SIGNATURE-V0\n");
    for (name, value) in headers.iter().filter(|(name, _)| *name != "signature_value") {
        head.push_str(name);
        head.push_str(": ");
        head.push_str(value);
        head.push('\n');
    }
    head.push('\n');
    head
}

fn mac(key: &HmacKey) -> Hmac<Sha256> {
    Hmac::new_from_slice(&key.bytes).expect("HMAC takes a key of any length")
}

/// The value of an HMAC signature; `payload` hands the payload text on in parts.
pub(super) fn sign_hmac(
    headers: &Headers,
    key: &HmacKey,
    payload: impl FnOnce(&mut dyn FnMut(&[u8])),
) -> String {
    let mut mac = mac(key);
    mac.update(signed_head(headers).as_bytes());
    payload(&mut |part| mac.update(part));
    hex::encode(&mac.finalize().into_bytes())
}

/// The value of an Ed25519 signature.
pub(super) fn sign_ed25519(
    headers: &Headers,
    key: &PrivateKey,
    payload: &str,
) -> Result<String, CapsuleError> {
    let head = signed_head(headers);
    let value = key.key.try_multipart_sign(&[head.as_bytes(), payload.as_bytes()]);
    let value = value.map_err(|_| CapsuleError::Key("signing with the Ed25519 key failed".into()))?;
    Ok(base64::encode(&value.to_bytes()))
}
