//! The receiver's policy: what it accepts, whatever a capsule says of itself.
//!
//! One JSON object; a field that is not listed, or of another type, is an error, since a rule that is
//! misspelt would be no rule.
//!
//! | field | default | refuses |
//! |---|---|---|
//! | `require_known_codec` | true | codecs that this build does not have, before anything is decoded |
//! | `require_hash` | true | (the hash is always checked) |
//! | `allow_unsigned` | true | `signature: none`, if false |
//! | `required_signature_modes` | [] | other modes, if any are listed |
//! | `require_signature_registry` | false | keys that the registry does not trust, and signatures without a key pair |
//! | `allow_inline_public_keys` | true | capsules that carry their key, if false |
//! | `trusted_signature_key_ids` | [] | other key ids, if any are listed |
//! | `trusted_signature_key_fingerprints` | [] | other keys, if any are listed |
//! | `allowed_content_types` | both | other content types |
//! | `max_payload_bytes` | 16777216 | larger payloads |
//! | `decode_to_sandbox_required` | true | (a hint for the operator; unpacking never leaves its directory) |

use std::collections::BTreeSet;

use super::json::Object;
use super::signature::{ED25519, NONE};
use super::{codec, CapsuleError, Headers, Trust, TrustStatus, BUNDLE_TYPE, FILE_TYPE};
use crate::wire::{parse, Json};

/// What a receiver accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Refuse codecs that this build does not have.
    pub require_known_codec: bool,
    /// Said for other readers; the hash is always checked.
    pub require_hash: bool,
    /// Take capsules without a signature.
    pub allow_unsigned: bool,
    /// The signature modes that are taken; all, if empty.
    pub required_signature_modes: BTreeSet<String>,
    /// Refuse keys that the registry does not trust.
    pub require_signature_registry: bool,
    /// Take capsules that carry their key.
    pub allow_inline_public_keys: bool,
    /// The key ids that are taken; all, if empty.
    pub trusted_signature_key_ids: BTreeSet<String>,
    /// The fingerprints that are taken, in lower case; all, if empty.
    pub trusted_signature_key_fingerprints: BTreeSet<String>,
    /// The content types that are taken; none, if empty.
    pub allowed_content_types: BTreeSet<String>,
    /// The largest decoded payload.
    pub max_payload_bytes: u64,
    /// Said for the operator.
    pub decode_to_sandbox_required: bool,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            require_known_codec: true,
            require_hash: true,
            allow_unsigned: true,
            required_signature_modes: BTreeSet::new(),
            require_signature_registry: false,
            allow_inline_public_keys: true,
            trusted_signature_key_ids: BTreeSet::new(),
            trusted_signature_key_fingerprints: BTreeSet::new(),
            allowed_content_types: BTreeSet::from([FILE_TYPE.into(), BUNDLE_TYPE.into()]),
            max_payload_bytes: 16 << 20,
            decode_to_sandbox_required: true,
        }
    }
}

impl Policy {
    /// Reads a policy; a field that is not there has its default.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Policy, CapsuleError> {
        let wrong = CapsuleError::File;
        let json = parse(text).map_err(|error| wrong(format!("invalid policy JSON: {error}")))?;
        if !json.is_object() {
            return Err(wrong("policy JSON must be an object".into()));
        }
        let mut policy = Policy::default();
        let mut unknown = Vec::new();
        for member in json.members() {
            let (name, value) = (&*member.key, member.value);
            match name {
                "require_known_codec" => policy.require_known_codec = flag(name, value)?,
                "require_hash" => policy.require_hash = flag(name, value)?,
                "allow_unsigned" => policy.allow_unsigned = flag(name, value)?,
                "required_signature_modes" => policy.required_signature_modes = texts(name, value)?,
                "require_signature_registry" => policy.require_signature_registry = flag(name, value)?,
                "allow_inline_public_keys" => policy.allow_inline_public_keys = flag(name, value)?,
                "trusted_signature_key_ids" => policy.trusted_signature_key_ids = texts(name, value)?,
                "trusted_signature_key_fingerprints" => {
                    let listed = texts(name, value)?;
                    policy.trusted_signature_key_fingerprints =
                        listed.iter().map(|digits| digits.to_ascii_lowercase()).collect();
                }
                "allowed_content_types" => policy.allowed_content_types = texts(name, value)?,
                "max_payload_bytes" => policy.max_payload_bytes = count(name, value)?,
                "decode_to_sandbox_required" => policy.decode_to_sandbox_required = flag(name, value)?,
                other => unknown.push(other.to_owned()),
            }
        }
        if !unknown.is_empty() {
            unknown.sort();
            return Err(wrong(format!("unknown policy fields: {}", unknown.join(", "))));
        }
        Ok(policy)
    }

    /// The object that reports hold.
    pub fn json(&self) -> String {
        Object::new()
            .flag("require_known_codec", self.require_known_codec)
            .flag("require_hash", self.require_hash)
            .flag("allow_unsigned", self.allow_unsigned)
            .texts("required_signature_modes", &self.required_signature_modes)
            .flag("require_signature_registry", self.require_signature_registry)
            .flag("allow_inline_public_keys", self.allow_inline_public_keys)
            .texts("trusted_signature_key_ids", &self.trusted_signature_key_ids)
            .texts("trusted_signature_key_fingerprints", &self.trusted_signature_key_fingerprints)
            .texts("allowed_content_types", &self.allowed_content_types)
            .number("max_payload_bytes", self.max_payload_bytes)
            .flag("decode_to_sandbox_required", self.decode_to_sandbox_required)
            .finish()
    }

    /// The rules that the headers alone answer.
    ///
    /// # Errors
    /// The first one that is broken.
    pub fn check_headers(&self, headers: &Headers) -> Result<(), CapsuleError> {
        let refuse = |what: String| Err(CapsuleError::Policy(what));
        let codec = headers.required("codec");
        if self.require_known_codec && codec::named(codec).is_none() {
            return refuse(format!("unknown codec is not allowed: {codec}"));
        }
        let mode = headers.required("signature");
        if !self.allow_unsigned && mode == NONE {
            return refuse("unsigned capsules are not allowed".into());
        }
        let listed = |list: &BTreeSet<String>, value: &str| list.is_empty() || list.contains(value);
        if !listed(&self.required_signature_modes, mode) {
            return refuse("signature mode is not allowed".into());
        }
        if !self.allow_inline_public_keys && headers.get("signature_public_key").is_some() {
            return refuse("inline public keys are not allowed".into());
        }
        // What an unsigned capsule says of a key is nobody's word.
        let signed = |name| headers.get(name).filter(|_| mode != NONE).unwrap_or("");
        if !listed(&self.trusted_signature_key_ids, signed("signature_key_id")) {
            return refuse("signature key id is not trusted by policy".into());
        }
        let fingerprints = &self.trusted_signature_key_fingerprints;
        // Only a key pair's signature is checked against it.
        let fingerprint = headers.get("signature_public_key_fingerprint").filter(|_| mode == ED25519);
        let fingerprint = fingerprint.unwrap_or("");
        if !listed(fingerprints, &fingerprint.to_ascii_lowercase()) {
            return refuse("signature key fingerprint is not trusted by policy".into());
        }
        let content_type = headers.required("content_type");
        if !self.allowed_content_types.contains(content_type) {
            return refuse(format!("content type is not allowed: {content_type}"));
        }
        Ok(())
    }

    /// The rule that the registry answers.
    ///
    /// # Errors
    /// The key has to be trusted and is not.
    pub fn check_trust(&self, trust: Option<&Trust>) -> Result<(), CapsuleError> {
        match trust.map(|trust| trust.status) {
            _ if !self.require_signature_registry => Ok(()),
            Some(TrustStatus::Trusted) => Ok(()),
            Some(TrustStatus::Revoked) => {
                Err(CapsuleError::Policy("signature key is revoked by local registry".into()))
            }
            _ => Err(CapsuleError::Policy("signature key is not trusted by local registry".into())),
        }
    }
}

fn flag(name: &str, value: Json<'_>) -> Result<bool, CapsuleError> {
    value.as_bool().ok_or_else(|| CapsuleError::File(format!("policy field must be boolean: {name}")))
}

fn texts(name: &str, value: Json<'_>) -> Result<BTreeSet<String>, CapsuleError> {
    let list = Some(value).filter(|value| value.raw().starts_with('['));
    let list = list.and_then(|list| list.elements().map(|one| one.as_str().map(String::from)).collect());
    list.ok_or_else(|| CapsuleError::File(format!("policy field must be a list of strings: {name}")))
}

fn count(name: &str, value: Json<'_>) -> Result<u64, CapsuleError> {
    let count = value.as_i64().and_then(|count| u64::try_from(count).ok());
    count.ok_or_else(|| CapsuleError::File(format!("policy field must be a non-negative integer: {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_written_as_it_is_read() {
        let policy = Policy { max_payload_bytes: 7, allow_unsigned: false, ..Policy::default() };
        assert_eq!(Policy::parse(&policy.json()), Ok(policy));
        assert_eq!(Policy::parse("{}"), Ok(Policy::default()));
    }

    #[test]
    fn a_field_that_is_misspelt_or_mistyped_is_an_error() {
        for (text, what) in [
            (r#"{"zz":1,"allow_unsinged":false}"#, "unknown policy fields: allow_unsinged, zz"),
            (r#"{"allow_unsigned":0}"#, "policy field must be boolean: allow_unsigned"),
            (
                r#"{"allowed_content_types":"x"}"#,
                "policy field must be a list of strings: allowed_content_types",
            ),
            (
                r#"{"required_signature_modes":[1]}"#,
                "policy field must be a list of strings: required_signature_modes",
            ),
            (r#"{"max_payload_bytes":-1}"#, "policy field must be a non-negative integer: max_payload_bytes"),
            (
                r#"{"max_payload_bytes":1.0}"#,
                "policy field must be a non-negative integer: max_payload_bytes",
            ),
            ("[]", "policy JSON must be an object"),
        ] {
            assert_eq!(Policy::parse(text), Err(CapsuleError::File(what.into())));
        }
        let twice = Policy::parse(r#"{"allow_unsigned":false,"allow_unsigned":true}"#).unwrap_err();
        assert!(twice.to_string().starts_with("invalid policy JSON: the key"), "{twice}");
    }
}
