//! References: what a message says of a capsule that lies elsewhere.
//!
//! The descriptor names the place and the SHA-256 of the capsule's file, so that who fetches it knows
//! that it is that one. Nothing is verified here, and nothing fetched.

use sha2::{Digest, Sha256};

use super::inspect::manifest_json;
use super::json::Object;
use super::Envelope;
use crate::log::escape;
use crate::wire::hex;

/// The descriptor's `reference_type`.
pub const TYPE: &str = "agent_capsule_reference";

/// The SHA-256 of a capsule's file as it lies there, in hexadecimal digits.
pub fn file_sha256(file: &[u8]) -> String {
    hex::encode(&Sha256::digest(file))
}

/// The descriptor as JSON.
pub fn json(envelope: &Envelope<'_>, uri: &str, capsule_sha256: &str) -> String {
    let headers = &envelope.headers;
    let signature = Object::new()
        .text("mode", headers.required("signature"))
        .optional("key_id", headers.get("signature_key_id"))
        .optional("public_key_fingerprint", headers.get("signature_public_key_fingerprint"))
        .optional("value_encoding", headers.get("signature_value_encoding"))
        .optional("value", headers.get("signature_value"));
    let mut descriptor = Object::new()
        .text("reference_type", TYPE)
        .number("schema_version", 1)
        .text("capsule_uri", uri)
        .text("capsule_sha256", capsule_sha256)
        .raw("capsule_manifest", manifest_json(envelope))
        .raw("signature", signature.finish());
    for name in ["capsule_version", "payload_sha256", "codec", "content_type", "created_by", "created_at"] {
        descriptor = descriptor.text(name, headers.required(name));
    }
    descriptor.finish()
}

/// The descriptor for people, a line each.
pub fn text(envelope: &Envelope<'_>, uri: &str, capsule_sha256: &str) -> String {
    let headers = &envelope.headers;
    let mut lines =
        format!("reference type: {TYPE}\ncapsule uri: {}\ncapsule sha256: {capsule_sha256}\n", escape(uri));
    let mut line = |name: &str, value: Option<&str>| {
        if let Some(value) = value {
            lines.push_str(&format!("{name}: {}\n", escape(value)));
        }
    };
    line("payload sha256", headers.get("payload_sha256"));
    line("signature mode", headers.get("signature"));
    line("signature key id", headers.get("signature_key_id"));
    line("signature public key fingerprint", headers.get("signature_public_key_fingerprint"));
    lines
}
