//! Snapshots: a registry on its way to many receivers, signed by who keeps it.
//!
//! | field | what |
//! |---|---|
//! | `format` | `agent-capsule-trust-snapshot-v0` |
//! | `issuer` | who keeps the registry |
//! | `issuer_fingerprint` | of the key that signs |
//! | `sequence` | grows with each snapshot of an issuer |
//! | `created_at`, `expires_at` | UTC, `2026-05-09T00:00:00Z` |
//! | `keys` | the entries, keys included |
//! | `signature` | base64 of the Ed25519 signature over the line `AGENT-CAPSULE-TRUST-SNAPSHOT-V0`, LF, and the canonical JSON of the other fields |
//!
//! Import checks the signature with the issuer's key, which the receiver has from elsewhere. The
//! registry notes under `snapshot` what it took last: a lower sequence, another content under the same
//! one, an expired snapshot, and one of another issuer are refused. Imported entries carry `source`, and
//! the next import replaces them; entries that the receiver made itself stay. Revoked ones come first,
//! for readers that take the first that matches.

use std::path::Path;

use ed25519_dalek::{Signature, Signer as _, Verifier as _};

use super::json::{array, Object};
use super::trust::Entry;
use super::{CapsuleError, PrivateKey, PublicKey, Registry};
use crate::wire::{canonical, parse, Form, Json};
use crate::{base64, clock};

/// The value of `format`.
pub const FORMAT: &str = "agent-capsule-trust-snapshot-v0";

const CONTEXT: &str = "AGENT-CAPSULE-TRUST-SNAPSHOT-V0\n";

/// What makes a snapshot besides the registry.
#[derive(Clone, Copy, Debug)]
pub struct Issue<'a> {
    /// Who keeps the registry.
    pub issuer: &'a str,
    /// The issuer's key.
    pub key: &'a PrivateKey,
    /// Higher than the last one's.
    pub sequence: u64,
    /// Unix seconds.
    pub created: i64,
    /// Unix seconds.
    pub expires: i64,
}

/// What was imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// Who issued it.
    pub issuer: String,
    /// Its sequence.
    pub sequence: u64,
    /// How many keys it holds.
    pub keys: usize,
}

/// The text of a snapshot of this registry.
///
/// # Errors
/// The issuer has no name, or an entry's key is not at hand.
pub fn issue(registry: &Registry, issue: &Issue<'_>) -> Result<String, CapsuleError> {
    if issue.issuer.is_empty() {
        return Err(CapsuleError::File("the issuer has no name".into()));
    }
    let keys = registry.entries.iter().map(|entry| {
        // A path means nothing elsewhere, and neither does where we had it from.
        let extra = entry.extra.iter().filter(|(name, _)| name != "source").cloned().collect();
        Entry { key_path: None, extra, ..entry.clone() }.json()
    });
    let unsigned = |object: Object| {
        object
            .text("format", FORMAT)
            .text("issuer", issue.issuer)
            .text("issuer_fingerprint", &issue.key.public().fingerprint())
            .number("sequence", issue.sequence)
            .text("created_at", &clock::utc(issue.created))
            .text("expires_at", &clock::utc(issue.expires))
    };
    let keys = array(keys);
    let text = unsigned(Object::new()).raw("keys", keys.clone()).finish();
    let signature = issue.key.key.sign(format!("{CONTEXT}{text}").as_bytes());
    let signed =
        unsigned(Object::new()).raw("keys", keys).text("signature", &base64::encode(&signature.to_bytes()));
    Ok(format!("{}\n", signed.finish()))
}

/// Takes a snapshot into a registry. `now` is Unix seconds.
///
/// # Errors
/// It is malformed, not signed by that key, expired, older than what the registry has, or of another
/// issuer. The registry is then as it was.
pub fn import(
    registry: &mut Registry,
    text: &str,
    issuer_key: &PublicKey,
    now: i64,
) -> Result<Imported, CapsuleError> {
    let wrong = |what: &str| CapsuleError::File(what.into());
    let json = parse(text).map_err(|error| CapsuleError::File(format!("invalid snapshot JSON: {error}")))?;
    let field = |name: &str| {
        let text = json.get(name).and_then(|value| value.as_str()).map(String::from);
        text.ok_or_else(|| CapsuleError::File(format!("snapshot requires string field: {name}")))
    };
    if field("format")? != FORMAT {
        return Err(wrong("unsupported snapshot format"));
    }
    let fingerprint = issuer_key.fingerprint();
    if field("issuer_fingerprint")? != fingerprint {
        return Err(wrong("the snapshot is signed with another issuer's key"));
    }
    let signature = base64::decode(&field("signature")?).ok();
    let signature = signature.and_then(|bytes| Signature::from_slice(&bytes).ok());
    let key = issuer_key.verifying().ok_or_else(|| wrong("invalid Ed25519 public key"))?;
    let signed = format!("{CONTEXT}{}", canonical(&json, Form::Ascii, Some("signature")));
    let genuine = signature.is_some_and(|signature| key.verify(signed.as_bytes(), &signature).is_ok());
    if !genuine {
        return Err(wrong("snapshot signature verification failed"));
    }
    // From here on it is the issuer's word.
    let (issuer, expires_at) = (field("issuer")?, field("expires_at")?);
    let sequence =
        sequence_of(json).ok_or_else(|| wrong("snapshot sequence must be a non-negative integer"))?;
    // Dates of that form sort as time does; any other form is refused with it.
    if !clock::is_utc(&expires_at) || expires_at <= clock::utc(now) {
        return Err(CapsuleError::File(format!("the snapshot expired at {expires_at}")));
    }
    let digest = super::reference::file_sha256(signed.as_bytes());
    check_last(registry, &issuer, &fingerprint, sequence, &digest)?;

    let keys = json.get("keys").filter(|keys| keys.raw().starts_with('['));
    let keys = keys.ok_or_else(|| wrong("snapshot must contain a keys list"))?;
    let mut entries = Vec::new();
    for element in keys.elements() {
        if element.get("public_key_path").is_some() {
            return Err(wrong("a snapshot's key cannot be a path"));
        }
        let mut entry = Entry::parse(element, Path::new("."))?;
        entry.extra.retain(|(name, _)| name != "source");
        entry.extra.push(("source".into(), super::json::quote(&format!("snapshot:{issuer}"))));
        entries.push(entry);
    }
    let imported = Imported { issuer: issuer.clone(), sequence, keys: entries.len() };
    registry.entries.retain(|entry| !is_imported(entry));
    registry.entries.extend(entries);
    registry.entries.sort_by_key(|entry| !entry.revoked); // stable
    let note = Object::new()
        .text("issuer", &issuer)
        .text("issuer_fingerprint", &fingerprint)
        .number("sequence", sequence)
        .text("created_at", &field("created_at")?)
        .text("expires_at", &expires_at)
        .text("sha256", &digest);
    registry.extra.retain(|(name, _)| name != "snapshot");
    registry.extra.push(("snapshot".into(), note.finish()));
    Ok(imported)
}

/// Compares a snapshot with the one that the registry took last.
fn check_last(
    registry: &Registry,
    issuer: &str,
    fingerprint: &str,
    sequence: u64,
    digest: &str,
) -> Result<(), CapsuleError> {
    let Some((_, note)) = registry.extra.iter().find(|(name, _)| name == "snapshot") else { return Ok(()) };
    let refuse = |what: String| Err(CapsuleError::File(what));
    let last =
        parse(note).map_err(|error| CapsuleError::File(format!("the registry's snapshot: {error}")))?;
    let text = |name: &str| last.get(name).and_then(|value| value.as_str()).unwrap_or_default();
    if text("issuer") != issuer {
        let known = text("issuer");
        return refuse(format!("the snapshot is of {issuer}, and the registry takes those of {known}"));
    }
    if text("issuer_fingerprint") != fingerprint {
        let known = text("issuer_fingerprint");
        return refuse(format!(
            "the snapshot is signed with the key {fingerprint}, and the registry takes {issuer}'s {known}"
        ));
    }
    match sequence_of(last) {
        Some(last) if sequence < last => {
            refuse(format!("the snapshot's sequence {sequence} is lower than {last}, which the registry has"))
        }
        Some(last) if sequence == last && text("sha256") != digest => {
            refuse(format!("another snapshot with the sequence {sequence} was imported before"))
        }
        Some(_) => Ok(()),
        None => refuse("the registry's snapshot has no sequence".into()),
    }
}

fn sequence_of(json: Json<'_>) -> Option<u64> {
    json.get("sequence")?.as_i64()?.try_into().ok()
}

fn is_imported(entry: &Entry) -> bool {
    entry.extra.iter().any(|(name, value)| name == "source" && value.starts_with("\"snapshot:"))
}
