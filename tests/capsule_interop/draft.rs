//! Capsules written by the test itself, from the specification: neither program has a part in them.

use ed25519_dalek::{Signer, SigningKey};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{json, Value};
use sha2::{Digest, Sha256};

pub const FILE: &str = "application/octet-stream";
pub const BUNDLE: &str = "application/vnd.agent.bundle+json";
pub const HELLO: &[u8] = b"hello\n";

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The order in which the specification has the headers; others follow, sorted.
const ORDER: [&str; 18] = [
    "capsule_version",
    "codec",
    "content_type",
    "capsule_manifest",
    "payload_sha256",
    "compression",
    "encryption",
    "signature",
    "signature_key_id",
    "signature_public_key_fingerprint",
    "signature_public_key_encoding",
    "signature_public_key",
    "signature_value_encoding",
    "signature_value",
    "created_by",
    "created_at",
    "policy",
    "filename",
];

/// Headers, and the payload's text.
#[derive(Clone)]
pub struct Draft {
    headers: Vec<(String, String)>,
    payload_text: String,
}

impl Draft {
    /// An unsigned capsule with the required headers alone.
    pub fn new(payload: &[u8], content_type: &str) -> Draft {
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        Draft {
            headers: vec![
                header("capsule_version", "0.1"),
                header("codec", "base64"),
                header("content_type", content_type),
                header("payload_sha256", &sha256(payload)),
                header("compression", "none"),
                header("encryption", "none"),
                header("signature", "none"),
                header("created_by", "a test"),
                header("created_at", "2026-05-09T00:00:00Z"),
                header("policy", "inspect-before-use"),
            ],
            payload_text: base64(payload),
        }
    }

    /// The capsule most cases start from.
    pub fn hello() -> Draft {
        Draft::new(HELLO, FILE)
    }

    /// This header with this value, instead of another one it may have.
    pub fn set(mut self, name: &str, value: &str) -> Draft {
        match self.headers.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value.into(),
            None => self.headers.push((name.into(), value.into())),
        }
        self
    }

    pub fn without(mut self, name: &str) -> Draft {
        self.headers.retain(|(known, _)| known != name);
        self
    }

    pub fn payload_text(mut self, text: &str) -> Draft {
        self.payload_text = text.into();
        self
    }

    /// Signs what stands there now.
    pub fn hmac(self, key: &str) -> Draft {
        let draft = self.set("signature", "hmac-sha256");
        let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).unwrap();
        mac.update(draft.signed_text().as_bytes());
        let value = hex(&mac.finalize().into_bytes());
        draft.set("signature_value", &value)
    }

    /// Signs what stands there now with the key of this key file. A fingerprint set before stays.
    pub fn ed25519(self, key_file: &str, inline: bool) -> Draft {
        let key = SigningKey::from_bytes(&unbase64(key_file.trim()).try_into().unwrap());
        let public = key.verifying_key();
        let mut draft = self.set("signature", "ed25519").set("signature_value_encoding", "base64");
        if !draft.headers.iter().any(|(name, _)| name == "signature_public_key_fingerprint") {
            draft = draft.set("signature_public_key_fingerprint", &sha256(public.as_bytes()));
        }
        if inline {
            let public = base64(public.as_bytes());
            draft = draft.set("signature_public_key_encoding", "base64").set("signature_public_key", &public);
        }
        let value = base64(&key.sign(draft.signed_text().as_bytes()).to_bytes());
        draft.set("signature_value", &value)
    }

    fn signed_text(&self) -> String {
        let mut lines: Vec<String> = self
            .headers
            .iter()
            .filter(|(name, _)| name != "signature_value")
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        lines.sort();
        format!("AGENT-CAPSULE-SIGNATURE-V0\n{}\n\n{}", lines.join("\n"), self.payload_text)
    }

    pub fn text(&self) -> String {
        let mut headers = self.headers.clone();
        headers.sort_by_key(|(name, _)| {
            let carrier = name.starts_with("lmcodec_").then_some(4);
            let known =
                ORDER.iter().position(|known| known == name).map(|at| if at < 4 { at } else { at + 1 });
            (carrier.or(known).unwrap_or(usize::MAX), carrier.map_or(name.clone(), |_| String::new()))
        });
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
        format!(
            "-----BEGIN AGENT CAPSULE-----\n{headers}-----PAYLOAD-----\n{}\n-----END AGENT CAPSULE-----\n",
            self.payload_text
        )
    }
}

/// A bundle of these files, as it should be.
pub fn bundle(files: &[(&str, &[u8])]) -> Value {
    let files: Vec<Value> = files.iter().map(|(path, content)| bundle_file(path, content)).collect();
    json!({"files": files, "format": "agent-capsule-bundle-v0"})
}

pub fn bundle_file(path: &str, content: &[u8]) -> Value {
    json!({
        "content_base64": base64(content),
        "path": path,
        "sha256": sha256(content),
        "size": content.len(),
    })
}

/// The capsule of a bundle; `serde_json` writes what it gets with sorted keys and no blanks.
pub fn bundle_capsule(bundle: &Value) -> String {
    Draft::new(bundle.to_string().as_bytes(), BUNDLE).text()
}

/// A manifest of one file `p.txt` that holds `HELLO`.
pub fn manifest() -> Value {
    json!({
        "capsule_type": "agent_handoff",
        "created_by": "a test",
        "delivery": {"mode": "inline"},
        "files": [{"bytes": HELLO.len(), "path": "p.txt", "sha256": sha256(HELLO)}],
        "policy_hints": {"network_egress": false, "sandbox_required": true},
        "requested_capabilities": [],
        "task_id": "",
    })
}

pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let at = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for position in 0..4 {
            if position <= group.len() {
                out.push(char::from(ALPHABET[(bits >> (18 - 6 * position) & 63) as usize]));
            } else {
                out.push('=');
            }
        }
    }
    out
}

/// Of text that `base64` has written.
fn unbase64(text: &str) -> Vec<u8> {
    let value = |letter: u8| ALPHABET.iter().position(|known| *known == letter).unwrap() as u32;
    let mut out = Vec::new();
    for group in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits = group.iter().fold(0, |bits, letter| bits << 6 | value(*letter)) << (6 * (4 - group.len()));
        out.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    out
}
