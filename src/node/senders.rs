//! Who sends: whose secret checks a message, and what its sender may send.

use super::{Node, Origin};
use crate::agent::Manifest;
use crate::sync::lock;
use crate::wire::{Code, Failure, Request, Secret, Verdict};

/// Every message type of the protocol.
pub const TYPES: [&str; 11] = [
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
];

/// Whoever signed a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sender {
    /// The admin.
    Admin,
    /// An operator, by name.
    Operator(String),
    /// An agent, by id.
    Agent(String),
}

/// A message whose signature is good.
pub struct Signed {
    /// Who signed it.
    pub sender: Sender,
    /// With what; the answer is signed with the same.
    pub secret: Secret,
    /// The secret is not the registered one but the one that the message's own source carries.
    pub vouched_by_itself: bool,
}

impl Node {
    /// Checks the signature. What is not signed by anyone known is refused, without a signature.
    ///
    /// # Errors
    /// `unknown_sender`, `bad_signature`; `bad_payload` or `forbidden` for a `receive_agent` whose
    /// source says nothing that its signature could be checked with.
    pub fn authenticate(&self, request: &Request) -> Result<Signed, Failure> {
        let sender = &request.sender;
        let matching = |secrets: &[Secret]| secrets.iter().find(|secret| request.verify(secret)).cloned();
        let signed = |who: Sender, secret: Secret| Signed { sender: who, secret, vouched_by_itself: false };
        let wrong = || {
            Failure::new(
                Code::BadSignature,
                format!("the signature of {sender:?} does not match the message"),
            )
        };
        if sender == "admin" {
            return matching(&self.config.admin_secrets)
                .map(|secret| signed(Sender::Admin, secret))
                .ok_or_else(wrong);
        }
        if let Some(operator) = self.config.operators.get(sender) {
            let secret = matching(std::slice::from_ref(&operator.secret)).ok_or_else(wrong)?;
            return Ok(signed(Sender::Operator(sender.clone()), secret));
        }
        let known = self.secrets_of(request);
        if let Some(secret) = matching(&known) {
            return Ok(signed(Sender::Agent(sender.clone()), secret));
        }
        let carries = request.kind == "receive_agent" || request.payload_json().get("source_code").is_some();
        if carries && matches!(request.kind.as_str(), "receive_agent" | "transfer_cancel") {
            let secret = carried_secret(request)?;
            if request.verify(&secret) {
                return Ok(Signed { sender: Sender::Agent(sender.clone()), secret, vouched_by_itself: true });
            }
            return Err(wrong());
        }
        if known.is_empty() {
            return Err(Failure::new(Code::UnknownSender, format!("nobody called {sender:?} is known here")));
        }
        Err(wrong())
    }

    /// The secrets that count for an agent here: its pinned one, and, for questions about a transfer,
    /// the one that came with the transfer.
    fn secrets_of(&self, request: &Request) -> Vec<Secret> {
        let mut secrets: Vec<_> = lock(&self.registry).pinned(&request.sender).into_iter().collect();
        if request.kind.starts_with("transfer_") {
            let transfer = request
                .payload_json()
                .get("transfer_id")
                .and_then(|id| id.as_str().map(|id| id.into_owned()));
            secrets.extend(transfer.and_then(|transfer| self.ledger.secret(&request.sender, &transfer)));
        }
        secrets
    }

    /// Whether this `sender` may send this type of message.
    ///
    /// # Errors
    /// `unknown_type`, `forbidden`.
    pub fn authorise(&self, signed: &Signed, request: &Request) -> Result<(), Failure> {
        let kind = request.kind.as_str();
        if !TYPES.contains(&kind) {
            let near = TYPES.iter().min_by_key(|known| super::config::distance(kind, known)).unwrap_or(&"");
            return Err(Failure::new(
                Code::UnknownType,
                format!("there is no message type {kind:?}; the nearest is {near:?}"),
            ));
        }
        let allowed = match &signed.sender {
            Sender::Admin => true,
            Sender::Operator(name) => self
                .config
                .operators
                .get(name)
                .is_some_and(|operator| operator.allow.iter().any(|allowed| allowed == kind)),
            Sender::Agent(_) => matches!(
                kind,
                "receive_agent"
                    | "describe_container"
                    | "network_tree"
                    | "transfer_status"
                    | "transfer_cancel"
                    | "transfer_forget"
            ),
        };
        if allowed {
            Ok(())
        } else {
            Err(Failure::new(Code::Forbidden, format!("{:?} may not send {kind}", request.sender)))
        }
    }

    /// Whether a stranger, vouched for by its own secret alone, may come in.
    ///
    /// # Errors
    /// `bad_signature` when another secret is pinned to its id, `rejected` when no one new is let in.
    pub fn admit_stranger(&self, id: &str) -> Result<(), Failure> {
        let registry = lock(&self.registry);
        if registry.pinned(id).is_some() {
            let text = format!("{id:?} is known here with another secret than the one its source carries");
            return Err(Failure::new(Code::BadSignature, text));
        }
        if !registry.may_pin() {
            return Err(Failure::new(
                Code::Rejected,
                "the node knows as many agents as it can and takes no new ones",
            ));
        }
        Ok(())
    }

    /// Whether a signed message is acted on for the first time; remembers it.
    ///
    /// # Errors
    /// `replayed`, or `stale_timestamp` below the floor of what is remembered.
    pub fn first_time(&self, signed: &Signed, request: &Request) -> Result<(), Failure> {
        let keys = &self.config.keys;
        let capacity =
            if signed.sender == Sender::Admin { keys.replay_entries } else { keys.replay_entries_agent };
        let now = crate::wire::unix_now();
        let verdict =
            lock(&self.replay).check(&request.sender, &request.signature, request.timestamp, now, capacity);
        match verdict {
            Verdict::New => Ok(()),
            Verdict::Replayed => Err(Failure::new(Code::Replayed, "this very message was accepted before; sign a new one")),
            Verdict::BelowFloor => Err(Failure::new(
                Code::StaleTimestamp,
                "the message is older than what the node still remembers of its sender; sign it with the present time",
            )
            .with_value("node_time", now)
            .with_value("clock_skew_s", keys.clock_skew_s)),
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

/// The secret that a `receive_agent` carries in its source; the source must be the sender's own.
fn carried_secret(request: &Request) -> Result<Secret, Failure> {
    let source = request
        .payload_json()
        .get("source_code")
        .and_then(|source| source.as_str().map(|text| text.into_owned()));
    let source = source.ok_or_else(|| {
        Failure::new(Code::BadPayload, "the payload of receive_agent: source_code is missing")
    })?;
    let manifest = Manifest::read(&source)
        .map_err(|why| Failure::new(Code::BadPayload, format!("the source: {why}")))?;
    if manifest.id != request.sender {
        let text = format!(
            "{:?} sends the source of {:?}; an agent may bring only its own",
            request.sender, manifest.id
        );
        return Err(Failure::new(Code::Forbidden, text));
    }
    Ok(manifest.secret)
}
