//! Inspection: everything that can be told of a capsule, even of one that does not verify.

use super::json::{null, Object};
use super::signature::{self, Checked, ED25519, HMAC, NONE};
use super::verify::check_rest;
use super::{codec, trust, CapsuleError, Envelope, Keys, Policy, Trust};
use crate::log::escape;

/// What was found.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// Whether the signature is valid. A wrong one counts as not checked, and as the error.
    pub signature: &'static str,
    /// How far its key is trusted.
    pub trust: Option<Trust>,
    /// The payload's size, or why the capsule does not verify. A key that was not given is no reason.
    pub payload: Result<u64, CapsuleError>,
    /// What a reader should know.
    pub risk_notes: Vec<&'static str>,
}

/// Looks at a capsule. Nothing of its payload is kept.
///
/// # Errors
/// The policy forbids it by its headers.
pub fn inspect(
    envelope: &Envelope<'_>,
    policy: &Policy,
    keys: &Keys<'_>,
) -> Result<Inspection, CapsuleError> {
    policy.check_headers(&envelope.headers)?;
    let trust = trust::assess(&envelope.headers, keys.registry);
    let signature = signature::check(envelope, keys, trust.as_ref());
    let name = signature.as_ref().map_or("not_checked", Checked::name);
    let payload = signature.and_then(|_| check_rest(envelope, policy, trust.as_ref(), |_| {}));
    Ok(Inspection { signature: name, trust, payload, risk_notes: risk_notes(envelope) })
}

fn risk_notes(envelope: &Envelope<'_>) -> Vec<&'static str> {
    let headers = &envelope.headers;
    let mut notes = Vec::new();
    match headers.required("signature") {
        NONE => notes.push("unsigned capsule; SHA256 only proves integrity against the header"),
        HMAC => notes.push("HMAC signature proves shared-secret authenticity, not public identity"),
        ED25519 => {
            notes.push("Ed25519 signature proves public-key authenticity only if the key is trusted");
            if headers.get("signature_public_key").is_some() {
                notes.push("inline public key verifies the signature but does not establish trust");
            }
        }
        _ => {}
    }
    if headers.required("encryption") == "none" {
        notes.push("payload is not encrypted");
    }
    if headers.required("codec") != codec::BASE64 {
        notes.push("non-base64 codec requires matching decoder support");
    }
    notes
}

impl Inspection {
    /// The report.
    pub fn json(&self, envelope: &Envelope<'_>) -> String {
        let headers = &envelope.headers;
        let mut report = Object::new();
        for name in ["capsule_version", "codec", "content_type", "compression", "encryption"] {
            report = report.text(name, headers.required(name));
        }
        for name in ["payload_sha256", "created_by", "created_at"] {
            report = report.text(name, headers.required(name));
        }
        for name in ["signature_key_id", "signature_public_key_fingerprint"] {
            report = report.optional(name, headers.get(name));
        }
        let mut metadata = Object::new();
        for (name, value) in headers.iter().filter(|(name, _)| name.starts_with("lmcodec_")) {
            metadata = metadata.text(name, value);
        }
        report = report
            .raw("capsule_manifest", manifest_json(envelope))
            .text("signature_mode", headers.required("signature"))
            .flag("signature_public_key_inline", headers.get("signature_public_key").is_some())
            .text("signature_verification", self.signature)
            .raw("signature_trust", self.trust.as_ref().map_or_else(null, Trust::json))
            .number("payload_character_length", envelope.payload.chars().count() as u64)
            .raw("codec_metadata", metadata.finish())
            .texts("risk_notes", &self.risk_notes);
        match &self.payload {
            Ok(bytes) => report.text("verification_status", "ok").number("payload_bytes", *bytes),
            Err(error) => {
                report.text("verification_status", "failed").text("verification_error", &error.reason())
            }
        }
        .finish()
    }

    /// The report for people, a line each.
    pub fn text(&self, envelope: &Envelope<'_>) -> String {
        let headers = &envelope.headers;
        let mut lines = Vec::new();
        // What the sender wrote must not pass for a line of ours.
        let mut line = |name: &str, value: &str| lines.push(format!("{}: {}\n", escape(name), escape(value)));
        line("capsule version", headers.required("capsule_version"));
        line("codec", headers.required("codec"));
        line("content type", headers.required("content_type"));
        if let Some(manifest) = &envelope.manifest {
            line("capsule type", &manifest.capsule_type);
            if let Some(delivery) = &manifest.delivery {
                line("delivery mode", &delivery.mode);
                if let Some(uri) = &delivery.uri {
                    line("delivery uri", uri);
                }
            }
            if !manifest.task_id.is_empty() {
                line("task id", &manifest.task_id);
            }
            line("manifest files", &manifest.files.to_string());
            if !manifest.requested_capabilities.is_empty() {
                line("requested capabilities", &manifest.requested_capabilities.join(", "));
            }
        }
        line("compression", headers.required("compression"));
        line("encryption", headers.required("encryption"));
        let mode = headers.required("signature");
        line("signature mode", mode);
        if let Some(key_id) = headers.get("signature_key_id") {
            line("signature key id", key_id);
        }
        if let Some(fingerprint) = headers.get("signature_public_key_fingerprint") {
            line("signature public key fingerprint", fingerprint);
        }
        if mode == ED25519 {
            let inline = headers.get("signature_public_key").is_some();
            line("signature public key inline", if inline { "True" } else { "False" });
        }
        line("signature verification", self.signature);
        if let Some(trust) = &self.trust {
            line("signature trust", &format!("{} ({})", trust.status.name(), trust.reason));
        }
        line("payload sha256", headers.required("payload_sha256"));
        for (name, value) in headers.iter().filter(|(name, _)| name.starts_with("lmcodec_")) {
            match name {
                // Of no use to people, and long.
                "lmcodec_model_json_b64" => line(name, &format!("<{} chars>", value.chars().count())),
                _ => line(name, value),
            }
        }
        line("created_by", headers.required("created_by"));
        line("created_at", headers.required("created_at"));
        line("payload character length", &envelope.payload.chars().count().to_string());
        match &self.payload {
            Ok(_) => line("verification status", "ok"),
            Err(error) => line("verification status", &format!("failed ({})", error.reason())),
        }
        for note in &self.risk_notes {
            line("risk note", note);
        }
        lines.concat()
    }
}

/// The manifest as reports hold it.
pub fn manifest_json(envelope: &Envelope<'_>) -> String {
    envelope.manifest.as_ref().map_or_else(null, |manifest| manifest.json.clone())
}
