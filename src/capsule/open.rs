//! Opening a capsule: from a text to checked bytes, in one call.

use super::bundle::Bundle;
use super::signature::{Checked, HMAC};
use super::unpack::file_name;
use super::verify::verified_payload;
use super::{
    normalized, CapsuleError, Envelope, Headers, Keys, Manifest, Policy, Registry, TrustStatus, BUNDLE_TYPE,
    FILE_TYPE,
};

use serde_json::{json, Value};

/// A capsule that was verified, and what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The capsule alone, without the text around it: what is sent on so that its signature stays valid.
    pub text: String,
    /// Its headers.
    pub headers: Headers,
    /// What the sender says is inside.
    pub manifest: Option<Manifest>,
    /// What is inside.
    pub payload: Payload,
    /// Who signed it with a key pair.
    pub signer: Option<Signer>,
}

/// The checked content of a capsule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// One file.
    File {
        /// A plain file name.
        name: String,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// A directory: safe relative paths, and bytes whose hashes were right.
    Bundle(Vec<(String, Vec<u8>)>),
}

/// The key that signed a capsule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signer {
    /// What the capsule or the registry calls it.
    pub key_id: Option<String>,
    /// The SHA-256 of the key.
    pub fingerprint: String,
    /// How far it is trusted.
    pub trust: TrustStatus,
    /// Why.
    pub reason: &'static str,
    /// Whose it is, by the registry.
    pub publisher: Option<String>,
}

impl Signer {
    /// The signer as `list_agents` and a node's own records tell it.
    pub fn to_json(&self) -> Value {
        json!({
            "key_id": self.key_id,
            "fingerprint": self.fingerprint,
            "trust": self.trust.name(),
            "publisher": self.publisher,
        })
    }

    /// Reads what [`Signer::to_json`] wrote; what is not that is no signer.
    pub fn from_json(value: &Value) -> Option<Signer> {
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        Some(Signer {
            key_id: text("key_id"),
            fingerprint: text("fingerprint")?,
            trust: TrustStatus::named(value["trust"].as_str()?)?,
            reason: "as it was when the capsule came",
            publisher: text("publisher"),
        })
    }
}

impl Payload {
    /// The bytes of a file of the bundle.
    pub fn get(&self, path: &str) -> Option<&[u8]> {
        match self {
            Payload::File { name, bytes } if name == path => Some(bytes),
            Payload::File { .. } => None,
            Payload::Bundle(files) => files.iter().find(|(name, _)| name == path).map(|(_, bytes)| &**bytes),
        }
    }
}

/// Verifies the first capsule of a text under a policy and with a registry, and takes its content out.
/// A capsule with a shared key cannot be opened here: see [`super::verify()`].
///
/// # Errors
/// The first rule that is broken; nothing of the content is handed out then.
pub fn open(text: &str, policy: &Policy, registry: Option<&Registry>) -> Result<Opened, CapsuleError> {
    let text = normalized(text);
    let envelope = Envelope::parse(&text)?;
    let keys = Keys { registry, ..Keys::default() };
    let (verified, bytes) = verified_payload(&envelope, policy, &keys).map_err(|why| match why {
        CapsuleError::KeyNeeded(_) => CapsuleError::KeyNeeded(match envelope.headers.required("signature") {
            HMAC => "signed with a shared key (hmac-sha256), which no node has; sign with an Ed25519 key",
            _ => "the key that signed it is neither in it nor in a trust registry",
        }),
        other => other,
    })?;
    let payload = match envelope.headers.required("content_type") {
        FILE_TYPE => Payload::File { name: file_name(&envelope)?.into(), bytes },
        BUNDLE_TYPE => {
            let bundle = Bundle::parse(&bytes)?;
            let mut files = Vec::with_capacity(bundle.files().len());
            for file in bundle.files() {
                let mut plain = Vec::new();
                file.content(&mut plain)?;
                files.push((file.path.clone(), plain));
            }
            Payload::Bundle(files)
        }
        other => return Err(CapsuleError::ContentType(other.into())),
    };
    let signed = verified.signature == Checked::Valid;
    // Without a registry and without an inline key there would be no key to have checked it with.
    let signer = verified.trust.filter(|_| signed).map(|trust| Signer {
        key_id: trust.key_id,
        fingerprint: trust.fingerprint.unwrap_or_default(),
        trust: trust.status,
        reason: trust.reason,
        publisher: trust.publisher,
    });
    let text = format!("{}\n", text.get(envelope.start..envelope.end).unwrap_or(""));
    Ok(Opened { text, headers: envelope.headers, manifest: envelope.manifest, payload, signer })
}
