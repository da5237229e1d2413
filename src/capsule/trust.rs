//! Trust: what a registry of one's own says of the key that signed a capsule.
//!
//! A valid signature tells that the holder of a key signed; who that is, a local registry tells:
//!
//! ```json
//! {"keys":[{"key_id":"publisher","fingerprint":"c345…","public_key":"jK0y…","status":"trusted"}]}
//! ```
//!
//! | field | rule |
//! |---|---|
//! | `key_id`, `fingerprint` | strings; the fingerprint is 64 hexadecimal digits |
//! | `public_key` or `public_key_path` | one of them or none; a path is relative to the registry's directory. The key has to have the fingerprint |
//! | `status` | `trusted` (also if it is missing) or `revoked` |
//! | `publisher`, `note` | strings, optional |
//!
//! Other fields are kept. A capsule's key is looked for by all that the capsule tells: fingerprint and
//! key id. If any of the entries that match is revoked, the key is: an old entry further up must not
//! bring it back.

use std::path::Path;

use super::json::{array, canonical, Object};
use super::signature::ED25519;
use super::{CapsuleError, Headers, PublicKey};
use crate::wire::{hex, parse, Json};

/// A registry that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registry {
    /// Its keys, in their order.
    pub entries: Vec<Entry>,
    /// The fields besides `keys`, as JSON.
    pub extra: Vec<(String, String)>,
}

/// One key of a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What its publisher calls it.
    pub key_id: String,
    /// Lower-case hexadecimal digits.
    pub fingerprint: String,
    /// The key, if the registry has it.
    pub key: Option<PublicKey>,
    /// Where the key was read from, as the registry says it.
    pub key_path: Option<String>,
    /// Whether it is revoked; else it is trusted.
    pub revoked: bool,
    /// Whose it is.
    pub publisher: Option<String>,
    /// A remark.
    pub note: Option<String>,
    /// The fields that are not listed, as JSON.
    pub extra: Vec<(String, String)>,
}

/// How far a key is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrustStatus {
    /// The registry has it.
    Trusted,
    /// The registry does not have it, or there is no registry.
    Untrusted,
    /// The registry says so.
    Revoked,
}

/// What is known of the key that signed a capsule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    /// How far it is trusted.
    pub status: TrustStatus,
    /// Why.
    pub reason: &'static str,
    /// By the capsule, or else by the registry.
    pub key_id: Option<String>,
    /// By the capsule, or else by the registry.
    pub fingerprint: Option<String>,
    /// By the registry.
    pub publisher: Option<String>,
    /// The registry's key.
    pub key: Option<PublicKey>,
}

impl TrustStatus {
    /// As reports call it.
    pub fn name(self) -> &'static str {
        match self {
            TrustStatus::Trusted => "trusted",
            TrustStatus::Untrusted => "untrusted",
            TrustStatus::Revoked => "revoked",
        }
    }

    /// The status that [`TrustStatus::name`] calls so.
    pub fn named(name: &str) -> Option<TrustStatus> {
        let all = [TrustStatus::Trusted, TrustStatus::Untrusted, TrustStatus::Revoked];
        all.into_iter().find(|status| status.name() == name)
    }
}

impl Trust {
    /// The object that reports hold.
    pub fn json(&self) -> String {
        Object::new()
            .text("status", self.status.name())
            .text("reason", self.reason)
            .optional("key_id", self.key_id.as_deref())
            .optional("fingerprint", self.fingerprint.as_deref())
            .optional("publisher", self.publisher.as_deref())
            .finish()
    }
}

/// What is known of the key of these headers; nothing if the capsule is not signed with a key pair, or
/// if there is neither a registry nor a key in the capsule.
pub fn assess(headers: &Headers, registry: Option<&Registry>) -> Option<Trust> {
    if headers.required("signature") != ED25519 {
        return None;
    }
    let key_id = headers.get("signature_key_id");
    let fingerprint = headers.get("signature_public_key_fingerprint");
    let unknown = |reason| Trust {
        status: TrustStatus::Untrusted,
        reason,
        key_id: key_id.map(String::from),
        fingerprint: fingerprint.map(String::from),
        publisher: None,
        key: None,
    };
    let Some(registry) = registry else {
        let inline = headers.get("signature_public_key").is_some();
        return inline.then(|| unknown("inline public key is not trusted by a registry"));
    };
    if key_id.is_none() && fingerprint.is_none() {
        return Some(unknown("missing key id and fingerprint"));
    }
    let matches = |entry: &&Entry| {
        fingerprint.is_none_or(|fingerprint| fingerprint.eq_ignore_ascii_case(&entry.fingerprint))
            && key_id.is_none_or(|key_id| key_id == entry.key_id)
    };
    let first = registry.entries.iter().find(matches);
    let revoked = registry.entries.iter().filter(matches).find(|entry| entry.revoked);
    let Some(entry) = revoked.or(first) else { return Some(unknown("key not found in local registry")) };
    let (status, reason) = if entry.revoked {
        (TrustStatus::Revoked, "key is revoked in local registry")
    } else {
        (TrustStatus::Trusted, "key trusted by local registry")
    };
    Some(Trust {
        status,
        reason,
        key_id: Some(key_id.unwrap_or(&entry.key_id).into()),
        fingerprint: Some(entry.fingerprint.clone()),
        publisher: entry.publisher.clone(),
        key: entry.key,
    })
}

impl Registry {
    /// Reads a registry; `directory` is where `public_key_path` starts from.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str, directory: &Path) -> Result<Registry, CapsuleError> {
        let wrong = |what: &str| CapsuleError::File(what.into());
        let json = parse(text)
            .map_err(|error| CapsuleError::File(format!("invalid signature registry JSON: {error}")))?;
        if !json.is_object() {
            return Err(wrong("signature registry JSON must be an object"));
        }
        let keys = json.get("keys").filter(|keys| keys.raw().starts_with('['));
        let keys = keys.ok_or_else(|| wrong("signature registry must contain a keys list"))?;
        let entries = keys.elements().map(|json| Entry::parse(json, directory)).collect::<Result<_, _>>()?;
        let extra = json.members().filter(|member| member.key != "keys");
        let extra = extra.map(|member| (member.key.into_owned(), canonical(&member.value))).collect();
        Ok(Registry { entries, extra })
    }

    /// The registry as it is written.
    pub fn json(&self) -> String {
        let mut object = Object::new();
        for (key, value) in &self.extra {
            object = object.raw(key, value.clone());
        }
        object.raw("keys", array(self.entries.iter().map(Entry::json))).finish()
    }
}

impl Entry {
    /// The entry of a key that is at hand.
    pub fn new(key_id: &str, key: PublicKey) -> Entry {
        Entry {
            key_id: key_id.into(),
            fingerprint: key.fingerprint(),
            key: Some(key),
            key_path: None,
            revoked: false,
            publisher: None,
            note: None,
            extra: Vec::new(),
        }
    }

    /// Reads one element of `keys`.
    pub(super) fn parse(json: Json<'_>, directory: &Path) -> Result<Entry, CapsuleError> {
        let wrong = |what: &str| CapsuleError::File(what.into());
        if !json.is_object() {
            return Err(wrong("signature registry key entries must be objects"));
        }
        let required = |name: &str| {
            let text = json.get(name).and_then(|value| value.as_str()).map(String::from);
            text.filter(|text| !text.is_empty())
                .ok_or_else(|| wrong(&format!("signature registry key requires string field: {name}")))
        };
        let optional = |name: &str| match json.get(name) {
            None => Ok(None),
            Some(value) => match value.as_str() {
                Some(text) => Ok(Some(text.into_owned())),
                None => Err(wrong(&format!("signature registry {name} must be a string"))),
            },
        };
        let key_id = required("key_id")?;
        let fingerprint = required("fingerprint")?.to_ascii_lowercase();
        if hex::decode32(&fingerprint).is_none() {
            return Err(wrong("signature registry fingerprint must be a SHA256 hex string"));
        }
        let revoked = match optional("status")?.as_deref() {
            None | Some("trusted") => false,
            Some("revoked") => true,
            Some(_) => return Err(wrong("signature registry key status must be trusted or revoked")),
        };
        let (publisher, note) = (optional("publisher")?, optional("note")?);
        let (text, key_path) = (optional("public_key")?, optional("public_key_path")?);
        let key = match (text, &key_path) {
            (Some(_), Some(_)) => {
                return Err(wrong(
                    "signature registry key cannot contain both public_key and public_key_path",
                ))
            }
            (Some(text), None) => Some(PublicKey::parse(&text)?),
            (None, Some(path)) => Some(PublicKey::read(&directory.join(path))?),
            (None, None) => None,
        };
        if key.is_some_and(|key| key.fingerprint() != fingerprint) {
            return Err(wrong("signature registry public key does not match fingerprint"));
        }
        let known = ["key_id", "fingerprint", "public_key", "public_key_path", "status", "publisher", "note"];
        let extra = json.members().filter(|member| !known.contains(&&*member.key));
        let extra = extra.map(|member| (member.key.into_owned(), canonical(&member.value))).collect();
        Ok(Entry { key_id, fingerprint, key, key_path, revoked, publisher, note, extra })
    }

    /// The entry as it is written.
    pub fn json(&self) -> String {
        let mut object = Object::new();
        for (key, value) in &self.extra {
            object = object.raw(key, value.clone());
        }
        object = object.text("key_id", &self.key_id).text("fingerprint", &self.fingerprint);
        object = match (&self.key_path, &self.key) {
            (Some(path), _) => object.text("public_key_path", path),
            (None, Some(key)) => object.text("public_key", &key.text()),
            (None, None) => object,
        };
        object = object.text("status", if self.revoked { "revoked" } else { "trusted" });
        for (name, value) in [("publisher", &self.publisher), ("note", &self.note)] {
            if let Some(value) = value {
                object = object.text(name, value);
            }
        }
        object.finish()
    }
}
