//! Who may exist and who may come: the root's identities, their way down the tree, and the trust level.

use super::arrive::disk_failure;
use super::messages::{CreateIdentity, PushIdentities, RevokeIdentity, RotateIdentity};
use super::package::Package;
use super::senders::{Sender, HANDING_DOWN};
use super::{Config, Node};
use crate::agent::manifest::check_id;
use crate::capsule::{keys, PrivateKey, PublicKey, TrustStatus};
use crate::journal::Event;
use crate::log::Level;
use crate::roster::identities::{self, Identity, Refusal, Table, Trust};
use crate::roster::snapshot::{self, Snapshot};
use crate::state;
use crate::sync::lock;
use crate::wire::{self, Address, Code, Failure, RequestOptions, Secret};
use serde_json::{json, Value};
use std::fs::File;
use std::path::Path;
use std::sync::{mpsc, Arc};
use std::time::{Duration, Instant};

/// How long a snapshot is good unless told otherwise, seconds.
const WEEK: u32 = 7 * 24 * 3600;
/// How long one node gets to take a snapshot.
const HANDING: Duration = Duration::from_secs(10);
/// How long a push waits for the children's answers.
const PUSHING: Duration = Duration::from_secs(12);
/// The longest answer to it that is read, bytes.
const ANSWER: usize = 64 << 10;
/// How long is waited before a child that was away, or refused, is tried again, at most.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The root's key pair, below the state directory.
const PRIVATE: &str = "keys/identity.key";
const PUBLIC: &str = "keys/identity.pub";

/// How far a child is with the present snapshot.
#[derive(Default)]
pub(super) struct Handing {
    /// The sequence that it has confirmed.
    taken: u64,
    /// One is on its way.
    running: bool,
    next: Option<Instant>,
    wait: Duration,
    /// What was logged last, so that it is said once.
    told: String,
}

/// The identities that count on this node.
enum Known {
    /// Its own: it is the root.
    Own(Arc<Table>),
    /// Those of the last good snapshot, if one has come.
    Handed(Option<Arc<Snapshot>>),
}

impl Known {
    fn identity(&self, id: &str) -> Option<&Identity> {
        match self {
            Known::Own(table) => table.by_id.get(id),
            Known::Handed(snapshot) => snapshot.as_ref()?.identities.get(id),
        }
    }
}

/// The key that snapshots are checked with: the configured one, or this node's own.
///
/// # Errors
/// Its own can't be read.
pub(super) fn root_key(config: &Config, state_dir: &Path) -> Result<Option<PublicKey>, String> {
    if let Some(text) = &config.keys.identity_root_key {
        return identities::read_key(text).map(Some);
    }
    let file = state_dir.join(PRIVATE);
    match file.exists() {
        true => PrivateKey::read(&file)
            .map(|key| Some(key.public()))
            .map_err(|error| format!("the root's key {}: {error}", file.display())),
        false => Ok(None),
    }
}

impl Node {
    /// Whether an agent may come, by what is trusted here. `signed_with`: what its message was signed with,
    /// where it is its own.
    ///
    /// # Errors
    /// `rejected`: its identity is revoked, or it has none; the secret or the capsule is not the identity's;
    /// the node does not know the identities of now.
    pub(super) fn may_come(&self, package: &Package, signed_with: Option<&Secret>) -> Result<(), Failure> {
        let trust = self.config().keys.trust;
        let id = &package.manifest.id;
        self.may_register(id)?;
        let rejected = |text: String| Failure::new(Code::Rejected, text);
        let known = self.known_identities();
        let identity = known.identity(id);
        if identity.is_some_and(|identity| identity.revoked) {
            return Err(rejected(format!("the identity of {id:?} is revoked")));
        }
        if trust == Trust::Open {
            return Ok(());
        }
        let now = wire::unix_now();
        match &known {
            Known::Handed(None) => {
                return Err(rejected("the identities of the root have not come to this node yet".into()))
            }
            Known::Handed(Some(snapshot)) if now >= snapshot.expires_at => {
                return Err(rejected(format!(
                    "the identities that this node has from {} have expired: nothing new may arrive until others come",
                    snapshot.issuer
                )))
            }
            _ => {}
        }
        let identity = identity.ok_or_else(|| {
            let level = trust.as_str();
            rejected(format!("{id:?} has no identity, and this node takes nobody without (trust: {level})"))
        })?;
        let secrets = [Some(&package.manifest.secret), signed_with];
        if !secrets.into_iter().flatten().all(|secret| identity.has_secret(secret, now)) {
            return Err(rejected(format!("the secret of {id:?} is not the one of its identity")));
        }
        match trust {
            Trust::Signed => signed_by_its_key(package, identity).map_err(rejected),
            _ => Ok(()),
        }
    }

    /// Whether an agent's identity has this secret now, on a node where that counts.
    pub(super) fn identity_has(&self, id: &str, secret: &Secret) -> bool {
        let now = wire::unix_now();
        self.config().keys.trust != Trust::Open
            && self
                .known_identities()
                .identity(id)
                .is_some_and(|identity| !identity.revoked && identity.has_secret(secret, now))
    }

    /// Whether an agent's identity is revoked.
    pub(super) fn is_revoked(&self, id: &str) -> bool {
        self.known_identities().identity(id).is_some_and(|identity| identity.revoked)
    }

    fn known_identities(&self) -> Known {
        let Some(text) = &self.config().keys.identity_root_key else {
            return Known::Own(self.identities.table());
        };
        // One of another key is of before the configuration was changed.
        let snapshot = self.snapshot.latest().filter(|snapshot| snapshot.key.text() == text.trim());
        Known::Handed(snapshot)
    }

    /// `create_identity`.
    ///
    /// # Errors
    /// `bad_payload`: no id, no SHA-256, no key; this node is not the root; `busy`, `internal`: it can't be
    /// written.
    pub fn create_identity(&self, order: CreateIdentity, by: &str) -> Result<Value, Failure> {
        let id = order.agent_id;
        check_id(&id).map_err(|why| bad(format!("agent_id {id:?} {why}")))?;
        if self.config().is_reserved(&id) {
            return Err(bad(format!("agent_id {id:?} is taken by the node itself")));
        }
        let key = self.own_key()?;
        let (created, identity) = self
            .identities
            .create(Identity {
                agent_id: id.clone(),
                secrets: vec![read_digest(&order.secret_sha256)?],
                public_key: order.public_key.as_deref().map(read_key).transpose()?,
                created_at: wire::unix_now(),
                created_by: by.to_owned(),
                revoked: false,
                rotation_ends: None,
            })
            .map_err(failed)?;
        if created {
            self.log.event(Level::Info, "identity_changed", &[("agent", &id), ("what", "created")]);
        }
        Ok(json!({
            "created": created,
            "identity": identity.to_json(),
            "root_key": key.public().text(),
        }))
    }

    /// `rotate_identity`.
    ///
    /// # Errors
    /// `bad_payload`: what was asked for does not fit; this node is not the root; `busy`, `internal`: it
    /// can't be written.
    pub fn rotate_identity(&self, order: RotateIdentity) -> Result<Value, Failure> {
        self.own_key()?;
        let id = &order.agent_id;
        let now = wire::unix_now();
        let (changed, what) = match (&order.secret_sha256, order.end) {
            (Some(new), false) => {
                let key = order.public_key.as_deref().map(read_key).transpose()?;
                let ends = order.overlap_s.map(|seconds| now.saturating_add(i64::from(seconds)));
                (self.identities.rotate(id, read_digest(new)?, key, ends, now), "rotation_begun")
            }
            (None, true) if order.public_key.is_none() && order.overlap_s.is_none() => {
                (self.identities.end_rotation(id), "rotation_ended")
            }
            _ => {
                return Err(bad("the payload of rotate_identity: secret_sha256 begins a rotation, \"end\": true alone ends it".into()))
            }
        };
        let changed = changed.map_err(failed)?;
        self.log.event(Level::Info, "identity_changed", &[("agent", id), ("what", what)]);
        Ok(json!({"identity": changed.to_json()}))
    }

    /// `revoke_identity`.
    ///
    /// # Errors
    /// As [`Node::rotate_identity`].
    pub fn revoke_identity(&self, order: RevokeIdentity) -> Result<Value, Failure> {
        self.own_key()?;
        let (changed, identity) = self.identities.revoke(&order.agent_id).map_err(failed)?;
        if changed {
            let fields = [("agent", order.agent_id.as_str()), ("what", "revoked")];
            self.log.event(Level::Info, "identity_changed", &fields);
        }
        Ok(json!({"changed": changed, "identity": identity.to_json()}))
    }

    /// `list_identities`: those that count here, and where they are from.
    pub fn list_identities(&self) -> Value {
        let key = root_key(&self.config(), &self.state_dir).ok().flatten().map(|key| key.text());
        let known = self.known_identities();
        let all = |by_id: &identities::ById| by_id.values().map(Identity::to_json).collect::<Vec<_>>();
        match &known {
            Known::Own(table) => json!({
                "root": true, "root_key": key, "issuer": self.name(), "sequence": table.sequence,
                "expires_at": null, "identities": all(&table.by_id),
            }),
            Known::Handed(None) => json!({
                "root": false, "root_key": key, "issuer": null, "sequence": null, "expires_at": null,
                "identities": [],
            }),
            Known::Handed(Some(snapshot)) => json!({
                "root": false, "root_key": key, "issuer": snapshot.issuer, "sequence": snapshot.sequence,
                "expires_at": snapshot.expires_at, "identities": all(&snapshot.identities),
            }),
        }
    }

    /// `push_identities`: the root makes a snapshot of now; a node below takes the one that is brought. Either
    /// hands it on: the admin is told how its children took it, whoever hands it down is not kept waiting.
    ///
    /// # Errors
    /// `bad_payload`, `rejected`: the snapshot is refused, or this node is no root; `busy`, `internal`: it
    /// can't be written.
    pub fn push_identities(self: &Arc<Self>, order: PushIdentities, by: &Sender) -> Result<Value, Failure> {
        let disk = |error| disk_failure("the identities", &error);
        let now = wire::unix_now();
        let is_root = self.config().keys.identity_root_key.is_none();
        let (text, key) = match (&order.snapshot, is_root) {
            (None, true) => {
                let key = self.own_key()?;
                let seconds = i64::from(order.expires_in_s.unwrap_or(WEEK));
                let table = self.identities.next_sequence(now).map_err(disk)?;
                let made =
                    snapshot::issue(&table, self.name(), &key, now, now.saturating_add(seconds.max(1)));
                (made.text, key.public())
            }
            (None, false) if *by == Sender::Snapshot => return Err(bad("no snapshot was brought".into())),
            // What it has is handed down once more.
            (None, false) => match self.snapshot.latest() {
                Some(snapshot) => (snapshot.text.clone(), snapshot.key),
                None => return Err(not_root("has no snapshot yet that it could hand on")),
            },
            (Some(_), true) => {
                return Err(not_root("has no identity_root_key: it takes identities from nobody"))
            }
            (Some(snapshot), false) => {
                let key = self.config().keys.identity_root_key.clone().unwrap_or_default();
                (snapshot.get().to_owned(), read_key(&key)?)
            }
        };
        let taken = self.snapshot.take(&text, &key, now).map_err(|refusal| match refusal {
            snapshot::Refusal::Wrong(why) => Failure::new(Code::Rejected, why),
            snapshot::Refusal::Disk(error) => disk(error),
        })?;
        let here = self.snapshot.latest().ok_or_else(|| Failure::new(Code::Internal, "it is gone"))?;
        if taken {
            let sequence = here.sequence.to_string();
            let fields = [("issuer", here.issuer.as_str()), ("sequence", &sequence)];
            self.log.event(Level::Info, "identities_taken", &fields);
            self.journal.note(&Event::new("identities").number("sequence", here.sequence));
        }
        let children: Vec<Value> = match by {
            Sender::Snapshot => {
                self.hand_down();
                Vec::new()
            }
            _ => self.hand_down_now(&here),
        };
        Ok(json!({
            "sequence": here.sequence,
            "expires_at": here.expires_at,
            "identities": here.identities.len(),
            "changed": taken,
            "children": children,
        }))
    }

    /// Hands the snapshot to every child at once, and says what each answered.
    fn hand_down_now(self: &Arc<Self>, snapshot: &Arc<Snapshot>) -> Vec<Value> {
        let (said, heard) = mpsc::channel();
        let mut children = Vec::new();
        for child in self.place().children.into_iter().filter(|child| !child.unsigned) {
            let Ok(address) = child.address().map(|address| self.secured(&address)) else { continue };
            let (node, snapshot, said) = (Arc::clone(self), Arc::clone(snapshot), said.clone());
            let name = child.name.clone();
            children.push(child.name);
            self.in_background(move || {
                let outcome = node.hand_to(&name, &address, &snapshot);
                let _ = said.send((name, outcome));
            });
        }
        drop(said);
        let deadline = Instant::now() + PUSHING;
        let mut outcomes = std::collections::HashMap::new();
        while let Ok((name, outcome)) = heard.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            outcomes.insert(name, outcome);
        }
        let told = children.into_iter().map(|name| match outcomes.remove(&name) {
            Some(Ok(())) => json!({"node": name, "taken": true, "error": null}),
            Some(Err(why)) => json!({"node": name, "taken": false, "error": why}),
            None => json!({"node": name, "taken": false, "error": "no answer in time"}),
        });
        told.collect()
    }

    /// Hands the snapshot to the children that have not confirmed it. One that is away is tried again, until
    /// it has the present one: nobody needs to push again when it is back.
    pub(super) fn hand_down(self: &Arc<Self>) {
        let Some(snapshot) = self.snapshot.latest() else { return };
        if wire::unix_now() >= snapshot.expires_at || self.port() == 0 {
            return;
        }
        for child in self.place().children.into_iter().filter(|child| !child.unsigned) {
            let Ok(address) = child.address().map(|address| self.secured(&address)) else { continue };
            {
                let mut handing = lock(&self.handing);
                let child = handing.entry(child.name.clone()).or_default();
                let due = child.next.is_none_or(|next| Instant::now() >= next);
                if child.taken >= snapshot.sequence || child.running || !due {
                    continue;
                }
                child.running = true;
            }
            let (node, snapshot) = (Arc::clone(self), Arc::clone(&snapshot));
            let name = child.name.clone();
            let started = self.in_background(move || drop(node.hand_to(&name, &address, &snapshot)));
            if !started {
                lock(&self.handing).entry(child.name).or_default().running = false;
            }
        }
    }

    fn hand_to(&self, name: &str, address: &Address, snapshot: &Snapshot) -> Result<(), String> {
        let payload = format!("{{\"snapshot\":{}}}", snapshot.text);
        let outcome = ask_to_take(address, &snapshot.key, &payload);
        let mut handing = lock(&self.handing);
        let child = handing.entry(name.to_owned()).or_default();
        child.running = false;
        let told = match &outcome {
            Ok(()) => {
                child.taken = child.taken.max(snapshot.sequence);
                (child.wait, child.next) = (Duration::ZERO, None);
                String::new()
            }
            Err(why) => {
                child.wait = (child.wait * 2).clamp(Duration::from_secs(1), LONGEST_WAIT);
                child.next = Some(Instant::now() + child.wait);
                why.clone()
            }
        };
        let new = child.told != told;
        child.told.clone_from(&told);
        drop(handing);
        if new && !told.is_empty() {
            self.log.event(Level::Warn, "identities_not_taken", &[("to", name), ("error", &told)]);
        }
        outcome
    }

    /// The root's key, made at first need.
    fn own_key(&self) -> Result<PrivateKey, Failure> {
        if self.config().keys.identity_root_key.is_some() {
            return Err(not_root("takes them from the root of its tree (identity_root_key)"));
        }
        let internal = |what: String| Failure::new(Code::Internal, what);
        let (private, public) = (self.state_dir.join(PRIVATE), self.state_dir.join(PUBLIC));
        // Two that need it at once get the same.
        let _making = lock(&self.handing);
        if !private.exists() {
            let dir = self.state_dir.join("keys");
            state::make_durable_dir(&dir).map_err(|error| disk_failure("the root's key", &error))?;
            keys::generate(&private, &public, true).map_err(|error| internal(error.to_string()))?;
            let written = File::open(&private).and_then(|file| file.sync_all());
            written
                .and_then(|()| state::sync_dir(&dir))
                .map_err(|error| disk_failure("the root's key", &error))?;
        }
        PrivateKey::read(&private).map_err(|error| internal(error.to_string()))
    }
}

/// Sends a snapshot to a node. That it has a newer one is as good.
fn ask_to_take(address: &Address, key: &PublicKey, payload: &str) -> Result<(), String> {
    let secret = Secret::new(&key.text()).map_err(|why| why.to_string())?;
    let options = RequestOptions::default();
    let signed = wire::signed_request("push_identities", HANDING_DOWN, &secret, payload, options)
        .map_err(|failure| failure.message)?;
    let answer = wire::exchange(address, &signed.line, Instant::now() + HANDING, ANSWER);
    let answer = answer.map_err(|error| error.to_string())?;
    match answer.is_ok() && answer.genuine(&secret, &signed.nonce) {
        true => Ok(()),
        false => Err(answer.error().unwrap_or("an answer without a good signature").to_owned()),
    }
}

/// Whether the capsule that an agent came in is signed as its identity wants it.
fn signed_by_its_key(package: &Package, identity: &Identity) -> Result<(), String> {
    let id = &identity.agent_id;
    let signer = package.sealed.as_ref().and_then(|sealed| sealed.signer.as_ref()).ok_or_else(|| {
        format!("{id:?} did not come in a capsule that is signed with a key pair (trust: signed)")
    })?;
    if signer.trust == TrustStatus::Revoked {
        return Err(format!("the key that signed the capsule of {id:?} is revoked in the trust registry"));
    }
    match &identity.public_key {
        Some(key) if key.fingerprint().eq_ignore_ascii_case(&signer.fingerprint) => Ok(()),
        Some(_) => Err(format!("the capsule of {id:?} is not signed with the key of its identity")),
        None if signer.trust == TrustStatus::Trusted => Ok(()),
        None => Err(format!("the key that signed the capsule of {id:?} is not in the trust registry")),
    }
}

fn bad(text: String) -> Failure {
    Failure::new(Code::BadPayload, text)
}

fn not_root(why: &str) -> Failure {
    Failure::new(Code::Rejected, format!("identities are made and signed at the root; this node {why}"))
}

fn read_digest(text: &str) -> Result<[u8; 32], Failure> {
    let hint = "secret_sha256 must be the SHA-256 of the secret, 64 lower-case hexadecimal digits";
    identities::read_digest(text).ok_or_else(|| bad(hint.into()))
}

fn read_key(text: &str) -> Result<PublicKey, Failure> {
    identities::read_key(text).map_err(|why| bad(format!("public_key: {why}")))
}

fn failed(refusal: Refusal) -> Failure {
    match refusal {
        Refusal::Unknown(why) | Refusal::Wrong(why) => bad(why),
        Refusal::Disk(error) => disk_failure("the identities", &error),
    }
}
