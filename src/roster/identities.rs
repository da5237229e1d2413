//! The swarm's roster, `meta/identities.json` at the root of the tree: an agent exists in the swarm if and
//! only if it has an identity there. Only the admin's messages write it.
//!
//! ```json
//! {"sequence":1780000000,"identities":[{"agent_id":"scout","secret_sha256":["9f86…"],"public_key":null,
//!  "created_at":1780000000,"created_by":"admin","status":"active","rotation_ends":null}]}
//! ```
//!
//! | field | rule |
//! |---|---|
//! | `agent_id` | an agent's id |
//! | `secret_sha256` | SHA-256 of its `AGENT_SECRET`, 64 lower-case digits; two while a rotation runs, the old one first |
//! | `public_key` | Ed25519, the base64 of 32 bytes, of an agent that travels in signed capsules; or null |
//! | `created_at` | Unix seconds |
//! | `created_by` | who asked for it: `admin`, or an operator |
//! | `status` | `active` or `revoked`; a revoked one stays so |
//! | `rotation_ends` | Unix seconds from which on the old secret does not count; null: when it is told to end |

use crate::agent::manifest::check_id;
use crate::capsule::PublicKey;
use crate::state;
use crate::sync::lock;
use crate::wire::{hex, Secret};
use serde::Deserialize;
use serde_json::{json, Value};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Who may arrive on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trust {
    /// Anyone: a stranger's own secret vouches for it and is pinned; identities count where one is revoked.
    #[default]
    Open,
    /// Whoever has an active identity, with its secret.
    Known,
    /// The same, in a capsule signed by the identity's key, or else by one of the trust registry.
    Signed,
}

impl Trust {
    /// As it stands in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Trust::Open => "open",
            Trust::Known => "known",
            Trust::Signed => "signed",
        }
    }
}

/// How many identities there can be.
const MOST: usize = 100_000;

/// Who an agent is, for the whole swarm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its id.
    pub agent_id: String,
    /// SHA-256 of its secret; of the old and the new one while a rotation runs.
    pub secrets: Vec<[u8; 32]>,
    /// What its capsules are signed with.
    pub public_key: Option<PublicKey>,
    /// Unix seconds.
    pub created_at: i64,
    /// Who asked for it.
    pub created_by: String,
    /// Whether it is revoked.
    pub revoked: bool,
    /// Unix seconds from which on only the newer secret counts.
    pub rotation_ends: Option<i64>,
}

/// Identities by agent id.
pub type ById = BTreeMap<String, Identity>;

/// Why nothing was changed.
#[derive(Debug)]
pub enum Refusal {
    /// There is no such identity.
    Unknown(String),
    /// What was asked for is wrong, or does not fit.
    Wrong(String),
    /// It could not be written.
    Disk(io::Error),
}

/// The authoritative roster.
pub struct Identities {
    path: PathBuf,
    table: RwLock<Arc<Table>>,
    /// Held while an entry is changed and written; readers go on with what was.
    editing: Mutex<()>,
}

/// The roster at one moment.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// That of the last snapshot.
    pub sequence: u64,
    /// Everyone.
    pub by_id: ById,
}

/// The SHA-256 of a secret.
pub fn digest(secret: &Secret) -> [u8; 32] {
    Sha256::digest(secret.expose()).into()
}

impl Identity {
    /// Whether `secret` is its own at a moment, Unix seconds.
    pub fn has_secret(&self, secret: &Secret, now: i64) -> bool {
        let over = self.rotation_ends.is_some_and(|end| now >= end);
        let counting = match over {
            true => &self.secrets[self.secrets.len().saturating_sub(1)..],
            false => &self.secrets[..],
        };
        counting.contains(&digest(secret))
    }

    /// As it stands in the file and in snapshots.
    pub fn to_json(&self) -> Value {
        json!({
            "agent_id": self.agent_id,
            "secret_sha256": self.secrets.iter().map(|hash| hex::encode(hash)).collect::<Vec<_>>(),
            "public_key": self.public_key.map(|key| key.text()),
            "created_at": self.created_at,
            "created_by": self.created_by,
            "status": if self.revoked { "revoked" } else { "active" },
            "rotation_ends": self.rotation_ends,
        })
    }

    /// Reads what [`Identity::to_json`] wrote.
    ///
    /// # Errors
    /// The member that is wrong.
    pub fn read(value: &Value) -> Result<Identity, String> {
        const MEMBERS: [&str; 7] = [
            "agent_id",
            "secret_sha256",
            "public_key",
            "created_at",
            "created_by",
            "status",
            "rotation_ends",
        ];
        let members = value.as_object().ok_or("an identity must be an object")?;
        if let Some(odd) = members.keys().find(|name| !MEMBERS.contains(&name.as_str())) {
            return Err(format!("an identity has no member {odd:?}"));
        }
        let text = |name: &str| {
            value[name].as_str().ok_or_else(|| format!("{name:?} of an identity must be a string"))
        };
        let id = text("agent_id")?;
        check_id(id).map_err(|why| format!("agent_id {id:?} {why}"))?;
        let wrong = |what: &str| format!("{what} of the identity of {id:?}");
        let hashes = value["secret_sha256"].as_array().filter(|hashes| (1..=2).contains(&hashes.len()));
        let hashes = hashes.into_iter().flatten().map(|hash| read_digest(hash.as_str().unwrap_or_default()));
        let secrets: Vec<[u8; 32]> = hashes.collect::<Option<_>>().unwrap_or_default();
        if secrets.is_empty() {
            return Err(wrong(
                "\"secret_sha256\" must be one or two of 64 lower-case hexadecimal digits: that",
            ));
        }
        let public_key = match &value["public_key"] {
            Value::Null => None,
            Value::String(text) => {
                Some(read_key(text).map_err(|why| format!("{}: {why}", wrong("public_key")))?)
            }
            _ => return Err(wrong("\"public_key\" must be a string or null: that")),
        };
        let seconds = |name: &str| value[name].as_i64();
        Ok(Identity {
            agent_id: id.to_owned(),
            secrets,
            public_key,
            created_at: seconds("created_at")
                .ok_or_else(|| wrong("\"created_at\" must be whole seconds: that"))?,
            created_by: text("created_by")?.to_owned(),
            revoked: match text("status")? {
                "active" => false,
                "revoked" => true,
                _ => return Err(wrong("\"status\" must be active or revoked: that")),
            },
            rotation_ends: match &value["rotation_ends"] {
                Value::Null => None,
                _ => Some(
                    seconds("rotation_ends")
                        .ok_or_else(|| wrong("\"rotation_ends\" must be whole seconds or null: that"))?,
                ),
            },
        })
    }
}

/// Reads a SHA-256: lower-case digits only, so that one has one text.
pub fn read_digest(text: &str) -> Option<[u8; 32]> {
    hex::decode32(text).filter(|_| !text.bytes().any(|byte| byte.is_ascii_uppercase()))
}

/// Reads a public key that signatures can be checked with.
///
/// # Errors
/// It is none.
pub fn read_key(text: &str) -> Result<PublicKey, String> {
    PublicKey::parse(text).and_then(PublicKey::usable).map_err(|error| error.to_string())
}

/// Reads a list of identities, each id once.
///
/// # Errors
/// What is wrong, and with whom.
pub fn read_all(value: &Value) -> Result<ById, String> {
    let list = value.as_array().ok_or("\"identities\" must be a list")?;
    if list.len() > MOST {
        return Err(format!("there are {} identities, more than {MOST}", list.len()));
    }
    let mut by_id = ById::new();
    for value in list {
        let identity = Identity::read(value)?;
        if let Some(twice) = by_id.insert(identity.agent_id.clone(), identity) {
            return Err(format!("{:?} has two identities", twice.agent_id));
        }
    }
    Ok(by_id)
}

impl Table {
    fn read(text: &str) -> Result<Self, String> {
        crate::wire::parse(text).map_err(|wrong| wrong.to_string())?; // names that stand twice, among others
        let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let sequence = value["sequence"].as_u64().ok_or("\"sequence\" must be a whole number")?;
        Ok(Table { sequence, by_id: read_all(&value["identities"])? })
    }

    fn to_json(&self) -> Value {
        let all: Vec<Value> = self.by_id.values().map(Identity::to_json).collect();
        json!({"sequence": self.sequence, "identities": all})
    }
}

impl Identities {
    /// The roster in a file. One that can't be read is set aside and nobody has an identity: the second
    /// says what was wrong.
    ///
    /// # Errors
    /// The file is there and the system does not let it be read or moved.
    pub fn open(path: &Path) -> io::Result<(Self, Option<String>)> {
        let (table, damaged) = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => (Table::default(), None),
            Err(error) if error.kind() != io::ErrorKind::InvalidData => return Err(error),
            read => match read.map_err(|error| error.to_string()).and_then(|text| Table::read(&text)) {
                Ok(table) => (table, None),
                Err(why) => {
                    let aside = state::set_aside(path)?;
                    let what = format!("{}: {why}; no agent has an identity", aside.display());
                    (Table::default(), Some(what))
                }
            },
        };
        let identities = Identities {
            path: path.to_owned(),
            table: RwLock::new(Arc::new(table)),
            editing: Mutex::new(()),
        };
        Ok((identities, damaged))
    }

    /// The roster as it is now.
    pub fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes an identity, once: of one that is there already nothing changes. The first says whether it
    /// was made now.
    ///
    /// # Errors
    /// There are as many as there can be; it can't be written.
    pub fn create(&self, identity: Identity) -> Result<(bool, Identity), Refusal> {
        let _editing = lock(&self.editing);
        let mut table = (*self.table()).clone();
        if let Some(there) = table.by_id.get(&identity.agent_id) {
            return Ok((false, there.clone()));
        }
        if table.by_id.len() >= MOST {
            return Err(Refusal::Wrong(format!("there are {MOST} identities, as many as there can be")));
        }
        table.by_id.insert(identity.agent_id.clone(), identity.clone());
        self.write(table)?;
        Ok((true, identity))
    }

    /// Begins a rotation: old and new secret both count, until `ends` (Unix seconds) or until it is told
    /// to end. A new key counts at once, and alone.
    ///
    /// # Errors
    /// There is no such identity; it is revoked; a rotation runs already; it is the secret that it has; it
    /// can't be written.
    pub fn rotate(
        &self,
        id: &str,
        new: [u8; 32],
        key: Option<PublicKey>,
        ends: Option<i64>,
        now: i64,
    ) -> Result<Identity, Refusal> {
        self.change(id, |identity| {
            if identity.rotation_ends.is_some_and(|end| now >= end) {
                finish(identity);
            }
            if identity.secrets.len() > 1 {
                return Err(format!("a rotation of {id:?} runs already; end it first"));
            }
            if identity.secrets.contains(&new) {
                return Err(format!("that is the secret that {id:?} has already"));
            }
            identity.secrets.push(new);
            identity.rotation_ends = ends;
            identity.public_key = key.or(identity.public_key);
            Ok(())
        })
    }

    /// Ends a rotation: only the new secret counts from now on.
    ///
    /// # Errors
    /// There is no such identity; it is revoked; no rotation runs; it can't be written.
    pub fn end_rotation(&self, id: &str) -> Result<Identity, Refusal> {
        self.change(id, |identity| match identity.secrets.len() {
            1 => Err(format!("no rotation of {id:?} runs")),
            _ => {
                finish(identity);
                Ok(())
            }
        })
    }

    /// Revokes an identity, for good. The first is false if it was revoked already.
    ///
    /// # Errors
    /// There is no such identity; it can't be written.
    pub fn revoke(&self, id: &str) -> Result<(bool, Identity), Refusal> {
        if let Some(there) = self.table().by_id.get(id).filter(|there| there.revoked) {
            return Ok((false, there.clone()));
        }
        let revoked = self.change(id, |identity| {
            identity.revoked = true;
            Ok(())
        })?;
        Ok((true, revoked))
    }

    /// Takes the next sequence for a snapshot, and what goes into it. It is never below the clock, so that
    /// a root that was restored from a backup is not behind its own snapshots.
    ///
    /// # Errors
    /// It can't be written.
    pub fn next_sequence(&self, now: i64) -> io::Result<Arc<Table>> {
        let _editing = lock(&self.editing);
        let mut table = (*self.table()).clone();
        table.sequence = (table.sequence + 1).max(u64::try_from(now).unwrap_or(0));
        match self.write(table) {
            Err(Refusal::Disk(error)) => Err(error),
            _ => Ok(self.table()),
        }
    }

    fn change(
        &self,
        id: &str,
        change: impl FnOnce(&mut Identity) -> Result<(), String>,
    ) -> Result<Identity, Refusal> {
        let _editing = lock(&self.editing);
        let mut table = (*self.table()).clone();
        let identity = table.by_id.get_mut(id);
        let identity = identity.ok_or_else(|| Refusal::Unknown(format!("{id:?} has no identity")))?;
        if identity.revoked {
            return Err(Refusal::Wrong(format!("the identity of {id:?} is revoked, and stays so")));
        }
        change(identity).map_err(Refusal::Wrong)?;
        let changed = identity.clone();
        self.write(table)?;
        Ok(changed)
    }

    fn write(&self, table: Table) -> Result<(), Refusal> {
        state::write_durably(&self.path, table.to_json().to_string().as_bytes()).map_err(Refusal::Disk)?;
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
        Ok(())
    }
}

fn finish(identity: &mut Identity) {
    let new = identity.secrets.len().saturating_sub(1);
    identity.secrets.drain(..new);
    identity.rotation_ends = None;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    fn secret(text: &str) -> Secret {
        Secret::new(text).unwrap()
    }

    fn identity(id: &str, text: &str) -> Identity {
        Identity {
            agent_id: id.into(),
            secrets: vec![digest(&secret(text))],
            public_key: None,
            created_at: 1,
            created_by: "admin".into(),
            revoked: false,
            rotation_ends: None,
        }
    }

    #[test]
    fn an_identity_is_made_once_rotated_and_revoked_for_good() {
        let top = TempDir::new("identities");
        let path = top.path().join("identities.json");
        let (all, damaged) = Identities::open(&path).unwrap();
        assert!(damaged.is_none());
        assert!(all.create(identity("a", "old")).unwrap().0);
        let (made, there) = all.create(identity("a", "other")).unwrap();
        assert!(!made && there.has_secret(&secret("old"), 5) && !there.has_secret(&secret("other"), 5));
        let new = digest(&secret("new"));
        let rotating = all.rotate("a", new, None, Some(100), 50).unwrap();
        assert!(rotating.has_secret(&secret("old"), 99) && rotating.has_secret(&secret("new"), 99));
        assert!(!rotating.has_secret(&secret("old"), 100) && rotating.has_secret(&secret("new"), 100));
        assert!(matches!(all.rotate("a", [0; 32], None, None, 50), Err(Refusal::Wrong(_))));
        assert!(all.end_rotation("a").unwrap().secrets == [new]);
        assert!(matches!(all.end_rotation("a"), Err(Refusal::Wrong(_))));
        assert!(matches!(all.rotate("a", new, None, None, 50), Err(Refusal::Wrong(_))));
        // One whose time is up makes room for the next.
        all.rotate("a", [1; 32], None, Some(60), 50).unwrap();
        assert_eq!(all.rotate("a", [2; 32], None, None, 61).unwrap().secrets, [[1; 32], [2; 32]]);
        assert!(all.revoke("a").unwrap().0 && !all.revoke("a").unwrap().0);
        assert!(matches!(all.rotate("a", [3; 32], None, None, 70), Err(Refusal::Wrong(_))));
        assert!(matches!(all.revoke("b"), Err(Refusal::Unknown(_))));
        let (again, _) = Identities::open(&path).unwrap();
        assert_eq!(again.table().by_id, all.table().by_id);
        assert!(again.table().by_id["a"].revoked);
    }

    #[test]
    fn a_sequence_grows_and_is_never_below_the_clock() {
        let top = TempDir::new("sequence");
        let path = top.path().join("identities.json");
        let (all, _) = Identities::open(&path).unwrap();
        assert_eq!(all.next_sequence(1000).unwrap().sequence, 1000);
        assert_eq!(all.next_sequence(1000).unwrap().sequence, 1001);
        assert_eq!(all.next_sequence(5).unwrap().sequence, 1002);
        assert_eq!(Identities::open(&path).unwrap().0.table().sequence, 1002);
    }

    #[test]
    fn a_damaged_roster_is_set_aside_and_nobody_has_an_identity() {
        let top = TempDir::new("damaged-identities");
        let path = top.path().join("identities.json");
        let good = identity("a", "x").to_json();
        let with = |name: &str, value: Value| {
            let mut changed = good.clone();
            changed[name] = value;
            json!({"sequence": 1, "identities": [changed]}).to_string()
        };
        for text in [
            String::new(),
            "{}".into(),
            r#"{"sequence":1,"identities":[],"identities":[]}"#.into(),
            json!({"sequence": 1, "identities": [good, good]}).to_string(),
            with("agent_id", json!("../a")),
            with("secret_sha256", json!([])),
            with("secret_sha256", json!(["A".repeat(64)])),
            with("public_key", json!("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")),
            with("status", json!("gone")),
            with("other", json!(1)),
        ] {
            fs::write(&path, &text).unwrap();
            let (all, damaged) = Identities::open(&path).unwrap();
            assert!(damaged.is_some() && all.table().by_id.is_empty(), "{text}");
        }
    }
}
