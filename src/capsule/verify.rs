//! Verification: headers, policy, signature, trust, payload, in this order.

use super::signature::{self, Checked};
use super::{codec, trust, CapsuleError, Envelope, HmacKey, Policy, PublicKey, Registry, Trust};

/// The keys that a receiver has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keys<'a> {
    /// For `hmac-sha256`.
    pub hmac: Option<&'a HmacKey>,
    /// For `ed25519`; beats the registry's and the capsule's.
    pub ed25519: Option<PublicKey>,
    /// Whose keys are trusted.
    pub registry: Option<&'a Registry>,
}

/// A capsule that is what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Whether it is signed; never [`Checked::NotChecked`].
    pub signature: Checked,
    /// How far its key is trusted.
    pub trust: Option<Trust>,
    /// How many bytes its payload has.
    pub payload_bytes: u64,
}

/// Verifies a capsule and hands its payload to `sink` in parts. What was handed on before an error is
/// worth nothing.
///
/// # Errors
/// The first rule that is broken.
pub fn verify(
    envelope: &Envelope<'_>,
    policy: &Policy,
    keys: &Keys<'_>,
    sink: impl FnMut(&[u8]),
) -> Result<Verified, CapsuleError> {
    policy.check_headers(&envelope.headers)?;
    let trust = trust::assess(&envelope.headers, keys.registry);
    let signature = signature::check(envelope, keys, trust.as_ref());
    let signature = signature.map_err(|why| located(why, envelope, policy))?;
    if let Checked::NotChecked(error) = signature {
        return Err(error);
    }
    let payload_bytes = check_rest(envelope, policy, trust.as_ref(), sink)?;
    Ok(Verified { signature, trust, payload_bytes })
}

/// A complaint about the signature, with the lines to look at: people paste texts, and lines get lost.
fn located(why: CapsuleError, envelope: &Envelope<'_>, policy: &Policy) -> CapsuleError {
    if !matches!(why, CapsuleError::Forged | CapsuleError::SignatureForm(_)) {
        return why;
    }
    // Bounded as every payload is; one that is too large tells nothing.
    let payload = match codec::decode(envelope, policy.max_payload_bytes, |_| {}) {
        Err(CapsuleError::HashMismatch { line } | CapsuleError::Base64 { line, .. })
            if why == CapsuleError::Forged =>
        {
            Some(line)
        }
        _ => None,
    };
    let (line, within) = (envelope.headers.line("signature"), envelope.lines_within());
    CapsuleError::Signature { why: Box::new(why), line, within, payload }
}

/// What follows the signature; how many bytes the payload has.
pub(super) fn check_rest(
    envelope: &Envelope<'_>,
    policy: &Policy,
    trust: Option<&Trust>,
    sink: impl FnMut(&[u8]),
) -> Result<u64, CapsuleError> {
    policy.check_trust(trust)?;
    for header in ["compression", "encryption"] {
        let value = envelope.headers.required(header);
        if value != "none" {
            return Err(CapsuleError::Unsupported { header, value: value.into() });
        }
    }
    codec::decode(envelope, policy.max_payload_bytes, sink)
}

/// [`verify`], with the payload.
///
/// # Errors
/// As [`verify`].
pub fn verified_payload(
    envelope: &Envelope<'_>,
    policy: &Policy,
    keys: &Keys<'_>,
) -> Result<(Verified, Vec<u8>), CapsuleError> {
    // At most what the text can hold, and what the policy lets through.
    let room = u64::try_from(envelope.payload.len() / 4 * 3).unwrap_or(u64::MAX);
    let room = usize::try_from(room.min(policy.max_payload_bytes)).unwrap_or(0);
    let mut payload = Vec::with_capacity(room);
    let verified = verify(envelope, policy, keys, |part| payload.extend_from_slice(part))?;
    Ok((verified, payload))
}
