//! Who sends: whose secret checks a message, and what its sender may send.

use super::arrive::disk_failure;
use super::replay_log::Asking;
use super::{messages, Node, Origin};
use crate::log::clipped;
use crate::sync::lock;
use crate::wire::{Code, Failure, Request, Secret, Verdict};

/// Every message type of the protocol.
pub const TYPES: [&str; 27] = [
    "deploy_agent",
    "receive_agent",
    "invoke_agent",
    "dispatch_agent",
    "remove_agent",
    "list_agents",
    "describe_container",
    "network_tree",
    "transfer_status",
    "transfer_cancel",
    "transfer_forget",
    "queue_agent",
    "list_outbox",
    "retry_outbox",
    "cancel_outbox",
    "set_grant",
    "revoke_grant",
    "list_grants",
    "revoke_token",
    "list_revoked_tokens",
    "list_schedules",
    "create_identity",
    "list_identities",
    "rotate_identity",
    "revoke_identity",
    "push_identities",
    "list_roster",
];

/// Whether there is such a type.
///
/// # Errors
/// There is none; says which is the nearest.
pub fn check_type(kind: &str) -> Result<(), String> {
    if TYPES.contains(&kind) {
        return Ok(());
    }
    let hint = match super::config::nearest(clipped(kind, REPEATED), TYPES) {
        Some(near) => format!("the nearest is {near:?}"),
        None => "docs/PROTOCOL.md lists them".into(),
    };
    Err(format!("there is no message type {}; {hint}", shown(kind)))
}

/// Who hands a snapshot of the identities down the tree: no id has a dot at its beginning. The message is
/// signed with the text of the root's public key, which is no secret: what counts is the snapshot's own
/// signature.
pub const HANDING_DOWN: &str = ".identities";

/// Whoever signed a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sender {
    /// The admin.
    Admin,
    /// An operator, by name.
    Operator(String),
    /// An agent, by id.
    Agent(String),
    /// Whoever brings a snapshot of the identities, which speaks for itself.
    Snapshot,
}

/// A message whose signature is good.
pub struct Signed {
    /// Who signed it.
    pub sender: Sender,
    /// With what; the answer is signed with the same.
    pub secret: Secret,
    /// What makes the secret count.
    pub proof: Proof,
}

/// What makes a secret count for a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// It is the configured or pinned one.
    Registered,
    /// The message's own source carries it, and no other is known of that agent.
    OwnSource,
    /// The message's own source carries it, but another one is pinned: a namesake, which gets a
    /// signed refusal and leaves no mark here.
    Namesake,
    /// The ledger has it with the transfer that the message speaks of. It counts for that alone.
    Transfer,
    /// The message's own source carries it and the agent's identity has it, whatever is pinned.
    Identity,
    /// None is needed: what the message brings is signed with the root's key, and taken once.
    Snapshot,
}

/// The longest sender or type that an error repeats, bytes: the line that it came in may have megabytes.
const REPEATED: usize = 200;
/// How many senders are remembered against replay before strangers are told to come back later.
const STRANGERS: usize = 100_000;

/// Why a message is not acted on.
pub struct NotNow {
    /// What its sender is told.
    pub failure: Failure,
    /// Its signature is remembered: these very bytes do not act later either.
    pub noted: bool,
}

impl From<Failure> for NotNow {
    fn from(failure: Failure) -> Self {
        NotNow { failure, noted: true }
    }
}

impl From<NotNow> for Failure {
    fn from(why: NotNow) -> Self {
        why.failure
    }
}

impl Node {
    /// Checks the signature. What is not signed by anyone known is refused, without a signature. Unless
    /// `strangers` are looked at, only who is known already counts: nothing that a message brings is opened.
    ///
    /// # Errors
    /// `unknown_sender`, `bad_signature`; `busy` for strangers that are not looked at; `bad_payload` or `forbidden` for a `receive_agent` whose
    /// source says nothing that its signature could be checked with.
    pub fn authenticate(&self, request: &Request, strangers: bool) -> Result<Signed, Failure> {
        let sender = &request.sender;
        let matching = |secrets: &[Secret]| secrets.iter().find(|secret| request.verify(secret)).cloned();
        let signed = |who: Sender, secret: Secret| Signed { sender: who, secret, proof: Proof::Registered };
        let named = shown(sender);
        let wrong = || {
            Failure::new(Code::BadSignature, format!("the signature of {named} does not match the message"))
        };
        if sender == "admin" {
            return matching(&self.config().admin_secrets)
                .map(|secret| signed(Sender::Admin, secret))
                .ok_or_else(wrong);
        }
        if let Some(operator) = self.config().operators.get(sender) {
            let secret = matching(std::slice::from_ref(&operator.secret)).ok_or_else(wrong)?;
            return Ok(signed(Sender::Operator(sender.clone()), secret));
        }
        if sender == HANDING_DOWN && request.kind == "push_identities" {
            let key = self.config().keys.identity_root_key.as_deref().and_then(|key| Secret::new(key).ok());
            let secret = matching(key.as_slice()).ok_or_else(wrong)?;
            return Ok(Signed { sender: Sender::Snapshot, secret, proof: Proof::Snapshot });
        }
        let pinned = lock(&self.registry).pinned(sender);
        if let Some(secret) = matching(pinned.as_slice()) {
            return Ok(signed(Sender::Agent(sender.clone()), secret));
        }
        let by = |secret: Secret, proof| Signed { sender: Sender::Agent(sender.clone()), secret, proof };
        let of_transfer = transfer_of(request).and_then(|id| self.ledger.secret(sender, &id));
        let carried = if strangers { carried_secret(self, request) } else { None };
        if let Some(secret) = carried.as_ref().and_then(|carried| carried.as_ref().ok()) {
            if request.verify(secret) {
                let proof = match pinned {
                    None => Proof::OwnSource,
                    Some(_) if self.identity_has(sender, secret) => Proof::Identity,
                    Some(_) => Proof::Namesake,
                };
                // A transfer that the ledger has under this very secret is its sender's to ask about.
                let own = request.kind != "receive_agent" && of_transfer.as_ref() == Some(secret);
                return Ok(by(secret.clone(), if own { Proof::Transfer } else { proof }));
            }
        }
        if let Some(secret) = matching(of_transfer.as_slice()) {
            return Ok(by(secret, Proof::Transfer));
        }
        match carried {
            Some(Err(failure)) if pinned.is_none() && request.kind == "receive_agent" => Err(failure),
            None if !strangers && pinned.is_none() => {
                let text = "too many lines without a good signature came from this address: who is not known here has to wait";
                Err(Failure::new(Code::Busy, text))
            }
            None if pinned.is_none() && of_transfer.is_none() => {
                Err(Failure::new(Code::UnknownSender, format!("nobody called {named} is known here")))
            }
            _ => Err(wrong()),
        }
    }

    /// Whether this `sender` may send this type of message.
    ///
    /// # Errors
    /// `unknown_type`, `forbidden`.
    pub fn authorise(&self, signed: &Signed, request: &Request) -> Result<(), Failure> {
        let kind = request.kind.as_str();
        check_type(kind).map_err(|why| Failure::new(Code::UnknownType, why))?;
        let allowed = match &signed.sender {
            Sender::Admin => true,
            Sender::Snapshot => kind == "push_identities",
            Sender::Operator(name) => {
                let config = self.config();
                let allow = config.operators.get(name).map_or(&[][..], |operator| &operator.allow);
                matches!(kind, "list_agents" | "describe_container" | "network_tree")
                    || allow.iter().any(|allowed| allowed == kind)
            }
            Sender::Agent(id) if matches!(kind, "describe_container" | "network_tree") => {
                if self.is_revoked(id) {
                    let text = format!("the identity of {id:?} is revoked");
                    return Err(Failure::new(Code::Forbidden, text));
                }
                true
            }
            // Whether a revoked agent may come is decided where its arrival is, for good.
            Sender::Agent(_) => {
                matches!(kind, "receive_agent" | "transfer_status" | "transfer_cancel" | "transfer_forget")
            }
        };
        if allowed {
            Ok(())
        } else {
            Err(Failure::new(Code::Forbidden, format!("{:?} may not send {kind}", request.sender)))
        }
    }

    /// Whether an agent that nobody here knows may come in.
    ///
    /// # Errors
    /// `rejected` when no one new is let in.
    pub fn admit_stranger(&self) -> Result<(), Failure> {
        if lock(&self.registry).may_pin() {
            return Ok(());
        }
        Err(Failure::new(Code::Rejected, "the node knows as many agents as it can and takes no new ones"))
    }

    /// Whether a signed message is acted on for the first time; remembers it.
    ///
    /// # Errors
    /// `replayed`, or `stale_timestamp` below the floor of what is remembered. Not noted: `busy` for a
    /// stranger when too many senders are remembered (anyone can invent strangers, and stamp them far
    /// ahead), `busy` or `internal` if it can't be written down.
    pub fn first_time(&self, signed: &Signed, request: &Request) -> Result<(), NotNow> {
        let not_noted = |failure| NotNow { failure, noted: false };
        let keys = &self.config().keys;
        let capacity =
            if signed.sender == Sender::Admin { keys.replay_entries } else { keys.replay_entries_agent };
        let now = crate::wire::unix_now();
        let verdict = {
            let mut replay = lock(&self.replay);
            if signed.proof == Proof::OwnSource && replay.senders() >= STRANGERS {
                let text = "the node remembers as many strangers as it can";
                return Err(not_noted(Failure::new(Code::Busy, text)));
            }
            // Who holds no more than a transfer's secret (an old one, after a rotation) fills no memory
            // but its own: a full one makes the sender's other messages stale. No id has a blank.
            let ours = if signed.proof == Proof::Transfer { " transfer" } else { "" };
            let sender = format!("{}{ours}", request.sender);
            let asking = Asking {
                sender: &sender,
                signature: &request.signature,
                timestamp: request.timestamp,
                now,
                capacity,
            };
            let checked = replay.check(&asking);
            checked.map_err(|error| not_noted(disk_failure("the replay memory", &error)))?
        };
        match verdict {
            Verdict::New => Ok(()),
            Verdict::Replayed => {
                Err(Failure::new(Code::Replayed, "this very message was accepted before; sign a new one").into())
            }
            Verdict::BelowFloor => Err(Failure::new(
                Code::StaleTimestamp,
                "the message is older than what the node still remembers of its sender; sign it with the present time",
            )
            .with_value("node_time", now)
            .with_value("clock_skew_s", keys.clock_skew_s)
            .into()),
        }
    }
}

impl Sender {
    /// On whose word an agent comes that this sender sends.
    pub fn origin(&self) -> Origin {
        match self {
            Sender::Admin => Origin::Admin,
            _ => Origin::Own,
        }
    }
}

/// The transfer that a message is about, if it is about one.
pub fn transfer_of(request: &Request) -> Option<String> {
    if request.kind != "receive_agent" && !request.kind.starts_with("transfer_") {
        return None;
    }
    let id = request.payload_json().get("transfer_id")?.as_str()?.into_owned();
    messages::check_transfer_id(&id).is_ok().then_some(id)
}

/// The secret that a message brings in its source, which must be the sender's own. `None`: it brings
/// none, and need not.
fn carried_secret(node: &Node, request: &Request) -> Option<Result<Secret, Failure>> {
    let arrives = request.kind == "receive_agent";
    if !arrives && !request.kind.starts_with("transfer_") {
        return None;
    }
    let mut forms = [None, None];
    for member in request.payload_json().members() {
        match &*member.key {
            "source_code" => forms[0] = member.value.as_str(),
            "capsule" => forms[1] = member.value.as_str(),
            _ => {}
        }
    }
    if !arrives && forms.iter().all(Option::is_none) {
        return None;
    }
    let [source, capsule] = &forms;
    let manifest = match node.open_package(source.as_deref(), capsule.as_deref()) {
        Ok(package) => package.manifest,
        Err(failure) => return Some(Err(failure)),
    };
    Some(if manifest.id == request.sender {
        Ok(manifest.secret)
    } else {
        Err(not_its_own(&request.sender, &manifest.id))
    })
}

/// The refusal of an agent that brings another one's source.
pub fn not_its_own(sender: &str, id: &str) -> Failure {
    let text = format!("{} sends the source of {id:?}; an agent may bring only its own", shown(sender));
    Failure::new(Code::Forbidden, text)
}

/// A text of somebody else's for an error: quoted, and not longer than anyone wants to read.
fn shown(text: &str) -> String {
    let head = clipped(text, REPEATED);
    if head.len() == text.len() {
        format!("{text:?}")
    } else {
        format!("{head:?}… ({} bytes)", text.len())
    }
}
