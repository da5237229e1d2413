//! The root's identities on their way down the tree, signed, and the last good ones that a node has,
//! `meta/snapshot.json`.
//!
//! ```json
//! {"issuer":"root","sequence":1780000000,"created_at":1780000000,"expires_at":1780604800,
//!  "identities":[…],"signature":"base64"}
//! ```
//!
//! `signature` is the root's Ed25519 signature over the canonical JSON (ASCII form) of the other members.
//! A node takes one that the key in its configuration (`identity_root_key`) signed, that has not expired, and
//! whose sequence is above that of the one it has. The same one again changes nothing.

use super::identities::{read_all, ById, Identity, Table};
use crate::capsule::{PrivateKey, PublicKey};
use crate::state;
use crate::sync::lock;
use crate::wire::{canonical, Form};
use serde_json::{json, Value};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// A snapshot whose signature is good.
#[derive(Debug)]
pub struct Snapshot {
    /// The root's name.
    pub issuer: String,
    /// Grows with each.
    pub sequence: u64,
    /// Unix seconds.
    pub expires_at: i64,
    /// Who exists.
    pub identities: ById,
    /// As it goes on down the tree.
    pub text: String,
    /// What it was checked with.
    pub key: PublicKey,
}

/// Why a snapshot is not taken.
#[derive(Debug)]
pub enum Refusal {
    /// It is no snapshot, another key signed it, or it has expired or is older than the one that is here.
    Wrong(String),
    /// It could not be written.
    Disk(io::Error),
}

/// The last good one of a node.
pub struct Held {
    path: PathBuf,
    here: RwLock<Option<Arc<Snapshot>>>,
    taking: Mutex<()>,
}

/// Makes a snapshot of a roster. Times are Unix seconds.
pub fn issue(table: &Table, issuer: &str, key: &PrivateKey, created_at: i64, expires_at: i64) -> Snapshot {
    let all: Vec<Value> = table.by_id.values().map(Identity::to_json).collect();
    let mut body = json!({
        "issuer": issuer,
        "sequence": table.sequence,
        "created_at": created_at,
        "expires_at": expires_at,
        "identities": all,
    });
    let signature = key.sign_text(&signed_text(&body.to_string()).unwrap_or_default());
    body["signature"] = signature.into();
    Snapshot {
        issuer: issuer.to_owned(),
        sequence: table.sequence,
        expires_at,
        identities: table.by_id.clone(),
        text: body.to_string(),
        key: key.public(),
    }
}

/// Reads a snapshot and checks its signature, and nothing of its time.
///
/// # Errors
/// What is wrong with it.
pub fn read(text: &str, key: &PublicKey) -> Result<Snapshot, String> {
    let members = ["issuer", "sequence", "created_at", "expires_at", "identities", "signature"];
    let signed = signed_text(text)?;
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let object = value.as_object().ok_or("a snapshot must be an object")?;
    if let Some(odd) = object.keys().find(|name| !members.contains(&name.as_str())) {
        return Err(format!("a snapshot has no member {odd:?}"));
    }
    let wrong = |name: &str| format!("{name:?} of the snapshot is missing or no such thing");
    let signature = value["signature"].as_str().ok_or_else(|| wrong("signature"))?;
    if !key.verifies(&signed, signature) {
        return Err(format!(
            "the snapshot is not signed by the root's key, {} (identity_root_key)",
            key.text()
        ));
    }
    let issuer = value["issuer"].as_str().ok_or_else(|| wrong("issuer"))?;
    value["created_at"].as_i64().ok_or_else(|| wrong("created_at"))?;
    Ok(Snapshot {
        issuer: issuer.to_owned(),
        sequence: value["sequence"].as_u64().ok_or_else(|| wrong("sequence"))?,
        expires_at: value["expires_at"].as_i64().ok_or_else(|| wrong("expires_at"))?,
        identities: read_all(&value["identities"])?,
        text: text.to_owned(),
        key: *key,
    })
}

/// What is signed of a snapshot.
fn signed_text(text: &str) -> Result<String, String> {
    let parsed = crate::wire::parse(text).map_err(|wrong| format!("the snapshot: {wrong}"))?;
    Ok(canonical(&parsed, Form::Ascii, Some("signature")))
}

impl Held {
    /// The last good one in a file; one of another key than `key` counts as none. The second says what was
    /// wrong with the file.
    ///
    /// # Errors
    /// The file is there and can't be read.
    pub fn open(path: &Path, key: Option<&PublicKey>) -> io::Result<(Self, Option<String>)> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            other => Some(other?),
        };
        let (here, wrong) = match text.zip(key).map(|(text, key)| read(&text, key)) {
            None => (None, None),
            Some(Ok(snapshot)) => (Some(Arc::new(snapshot)), None),
            Some(Err(why)) => {
                let aside = state::set_aside_for(path, &why);
                (None, Some(format!("{aside}; the node waits for another snapshot of the identities")))
            }
        };
        Ok((Held { path: path.to_owned(), here: RwLock::new(here), taking: Mutex::new(()) }, wrong))
    }

    /// The last good one.
    pub fn latest(&self) -> Option<Arc<Snapshot>> {
        self.here.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes a snapshot. False if it is the one that is here. `now`: Unix seconds.
    ///
    /// # Errors
    /// It is refused; nothing has changed.
    pub fn take(&self, text: &str, key: &PublicKey, now: i64) -> Result<bool, Refusal> {
        let snapshot = read(text, key).map_err(Refusal::Wrong)?;
        let _taking = lock(&self.taking);
        if now >= snapshot.expires_at {
            return Err(Refusal::Wrong(format!(
                "the snapshot {} has expired, {} s ago",
                snapshot.sequence,
                now - snapshot.expires_at
            )));
        }
        // One that another key signed, before the configuration was changed, holds nobody up.
        let here = self.latest().filter(|here| here.key == *key);
        match here {
            Some(here) if here.sequence > snapshot.sequence => Err(Refusal::Wrong(format!(
                "the snapshot {} is older than the one that is here, {}",
                snapshot.sequence, here.sequence
            ))),
            Some(here) if here.sequence == snapshot.sequence => {
                match here.identities == snapshot.identities {
                    true => Ok(false),
                    false => Err(Refusal::Wrong(format!(
                        "another snapshot {} is here already, with other identities",
                        snapshot.sequence
                    ))),
                }
            }
            _ => {
                state::write_durably(&self.path, snapshot.text.as_bytes()).map_err(Refusal::Disk)?;
                *self.here.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(snapshot));
                Ok(true)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    fn table(sequence: u64) -> Table {
        let identity = json!({
            "agent_id": "a", "secret_sha256": ["0".repeat(64)], "public_key": null, "created_at": 1,
            "created_by": "admin", "status": "active", "rotation_ends": null,
        });
        Table { sequence, by_id: read_all(&json!([identity])).unwrap() }
    }

    fn refused(result: Result<bool, Refusal>) -> String {
        match result {
            Err(Refusal::Wrong(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_the_roots_newer_living_snapshots_are_taken() {
        let top = TempDir::new("snapshots");
        let path = top.path().join("snapshot.json");
        let (root, stranger) = (PrivateKey::generate().unwrap(), PrivateKey::generate().unwrap());
        let key = root.public();
        let (held, _) = Held::open(&path, Some(&key)).unwrap();
        let second = issue(&table(2), "root", &root, 10, 100).text;
        assert!(held.take(&second, &key, 20).unwrap());
        assert!(!held.take(&second, &key, 20).unwrap());
        assert!(
            refused(held.take(&issue(&table(1), "root", &root, 10, 100).text, &key, 20)).contains("older")
        );
        assert!(
            refused(held.take(&issue(&table(3), "root", &stranger, 10, 100).text, &key, 20)).contains("key")
        );
        assert!(
            refused(held.take(&issue(&table(3), "root", &root, 10, 20).text, &key, 20)).contains("expired")
        );
        let mut other = table(2);
        other.by_id.clear();
        assert!(refused(held.take(&issue(&other, "root", &root, 10, 100).text, &key, 20)).contains("another"));
        // Whatever is changed, the signature notices.
        let third = issue(&table(3), "root", &root, 10, 100).text;
        for (from, to) in
            [("\"root\"", "\"roof\""), ("active", "revoked"), (":100", ":101"), ("\"a\"", "\"b\"")]
        {
            let changed = third.replacen(from, to, 1);
            assert!(changed != third);
            assert!(refused(held.take(&changed, &key, 20)).contains("not signed"), "{from}");
        }
        for text in ["", "[]", "{}", &third.replacen('{', "{\"more\":1,", 1)] {
            refused(held.take(text, &key, 20));
        }
        assert_eq!(held.latest().unwrap().sequence, 2);
        let (again, wrong) = Held::open(&path, Some(&key)).unwrap();
        assert!(wrong.is_none() && again.latest().unwrap().identities.contains_key("a"));
        // Its own expiry is for whoever uses it: it is still the last good one.
        assert_eq!(again.latest().unwrap().expires_at, 100);
        let (none, wrong) = Held::open(&path, Some(&stranger.public())).unwrap();
        assert!(wrong.is_some() && none.latest().is_none());
    }
}
