//! The payloads of the message types, as typed and strict as the protocol lets them be.

use super::federation::check_name;
use crate::log::clipped;
use crate::plain;
use crate::wire::{Code, Failure};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::time::{Duration, Instant};

/// `deploy_agent`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deploy {
    /// The agent's source.
    #[serde(default)]
    pub source_code: Option<String>,
    /// Or a capsule that holds the agent; there may be text around it.
    #[serde(default)]
    pub capsule: Option<String>,
    /// What `on_activate` gets; absent: it is not activated.
    #[serde(default, deserialize_with = "given")]
    pub activate_payload: Option<Box<RawValue>>,
    /// Merged into the agent's metadata.
    #[serde(default)]
    pub agent_metadata: Option<Map<String, Value>>,
    /// Forget the memory of the agent that lives here under this id.
    #[serde(default)]
    pub fresh: bool,
    /// Seconds; shorter than the node's own limit.
    #[serde(default)]
    pub timeout: Option<f64>,
}

/// `receive_agent`. Unknown fields are passed over, and `null` for a field that may be absent counts as
/// absent (but for `activate_payload`): the sender may be newer, or of another make.
#[derive(Deserialize)]
pub struct Receive {
    /// The agent's source.
    #[serde(default)]
    pub source_code: Option<String>,
    /// Or the capsule that holds the agent; memory and files beside it (`state`) outrank those in it.
    #[serde(default)]
    pub capsule: Option<String>,
    /// What `on_activate` gets; absent: `{}`.
    #[serde(default, deserialize_with = "given")]
    pub activate_payload: Option<Box<RawValue>>,
    /// Copy, or the agent itself.
    #[serde(default)]
    pub mode: Option<Mode>,
    /// The hops behind it, oldest first; a bare string is a node's name.
    #[serde(default, deserialize_with = "or_empty")]
    pub trace: Vec<Value>,
    /// Its memory and files.
    #[serde(default)]
    pub state: Option<State>,
    /// Its metadata.
    #[serde(default)]
    pub agent_metadata: Option<Map<String, Value>>,
    /// Names the transfer; absent: a plain arrival, without any promise.
    #[serde(default, deserialize_with = "transfer_id")]
    pub transfer_id: Option<String>,
    /// Seconds; shorter than the node's own limit.
    #[serde(default)]
    pub timeout: Option<f64>,
}

impl Receive {
    /// Checks what the types do not say: the hops of the trace, and the metadata that the node reads.
    ///
    /// # Errors
    /// `bad_payload`, naming the hop or the member.
    pub fn check(&self) -> Result<(), Failure> {
        let bad = |text: String| {
            let text = clipped(&text, LONGEST_REASON);
            Failure::new(Code::BadPayload, format!("the payload of receive_agent: {text}"))
        };
        for (index, hop) in self.trace.iter().enumerate() {
            check_hop(hop).map_err(|why| bad(format!("trace[{index}]: {why}")))?;
        }
        let metadata = self.agent_metadata.iter().flatten().filter(|(_, value)| !value.is_null());
        for (name, value) in metadata {
            let wanted = match name.as_str() {
                "stage" | "network" if !value.is_object() => "an object",
                "agent_name" if !value.is_string() => "a string",
                _ => continue,
            };
            return Err(bad(format!("agent_metadata.{name} must be {wanted}")));
        }
        Ok(())
    }
}

/// Whether a hop is a node's name, or an object that has one as its `node`.
fn check_hop(hop: &Value) -> Result<(), String> {
    let object = match hop {
        Value::String(name) => return check_name(name),
        Value::Object(object) => object,
        _ => return Err("must be the name of a node, or an object with its name as \"node\"".into()),
    };
    let name =
        object.get("node").and_then(Value::as_str).ok_or("\"node\" must be a string, a node's name")?;
    check_name(name)?;
    let given = |name: &str| object.get(name).filter(|value| !value.is_null());
    if given("host").is_some_and(|host| !host.is_string()) {
        return Err("\"host\" must be a string".into());
    }
    if given("port").is_some_and(|port| !port.as_u64().is_some_and(|port| (1..=65535).contains(&port))) {
        return Err("\"port\" must be a whole number from 1 to 65535".into());
    }
    Ok(())
}

/// Whether the agent is copied or goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// It stays, a copy goes.
    Clone,
    /// It goes.
    Move,
}

impl Mode {
    /// The mode that [`Mode::as_str`] calls so.
    pub fn named(name: &str) -> Option<Mode> {
        [Mode::Clone, Mode::Move].into_iter().find(|mode| mode.as_str() == name)
    }

    /// As it stands in a message.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Clone => "clone",
            Mode::Move => "move",
        }
    }
}

/// What travels beside the source.
#[derive(Default, Deserialize)]
#[serde(remote = "Self")]
pub struct State {
    /// The agent's memory.
    #[serde(default)]
    pub memory: Option<Box<RawValue>>,
    /// The files of its `state/`.
    #[serde(default, deserialize_with = "or_empty")]
    pub files: Vec<StateFile>,
}

/// A file of an agent's `state/`.
#[derive(Debug, Deserialize, serde::Serialize)]
#[serde(remote = "Self")]
pub struct StateFile {
    /// Relative, with `/`.
    pub path: String,
    /// Its bytes, standard base64.
    pub content_base64: String,
}

plain::only_from_object!(State);
plain::only_from_object!(StateFile and write);

/// `invoke_agent`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invoke {
    /// Who gets the message.
    pub agent_id: String,
    /// The message; absent: `{}`.
    #[serde(default, deserialize_with = "given")]
    pub message: Option<Box<RawValue>>,
    /// Seconds; shorter than the node's own limit.
    #[serde(default)]
    pub timeout: Option<f64>,
}

/// `dispatch_agent`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dispatch {
    /// Who goes.
    pub agent_id: String,
    /// A node's name, or `HOST:PORT`.
    pub destination: String,
    /// Copy, or the agent itself.
    pub mode: Mode,
    /// What `on_activate` gets there; absent: `{}`.
    #[serde(default, deserialize_with = "given")]
    pub activate_payload: Option<Box<RawValue>>,
    /// Merged into the agent's metadata before it goes.
    #[serde(default)]
    pub metadata_patch: Option<Map<String, Value>>,
    /// If the destination can't be reached, the outbox tries again.
    #[serde(default)]
    pub queue: bool,
    /// Seconds; shorter than the node's own limit.
    #[serde(default)]
    pub timeout: Option<f64>,
}

/// `queue_agent`: an agent goes out through this node's outbox and does not live here.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// The agent's source.
    #[serde(default)]
    pub source_code: Option<String>,
    /// Or a capsule that holds the agent.
    #[serde(default)]
    pub capsule: Option<String>,
    /// A node's name, or `HOST:PORT`.
    pub destination: String,
    /// What `on_activate` gets there; absent: `{}`.
    #[serde(default, deserialize_with = "given")]
    pub activate_payload: Option<Box<RawValue>>,
    /// The agent's metadata.
    #[serde(default)]
    pub agent_metadata: Option<Map<String, Value>>,
    /// This node is the agent's stage: `return_to_stage` brings it here.
    #[serde(default)]
    pub stage: bool,
}

/// `retry_outbox`, `cancel_outbox`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutboxRef {
    /// Which transfer of this node's outbox.
    pub transfer_id: String,
}

/// `remove_agent`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remove {
    /// Who goes.
    pub agent_id: String,
}

/// `transfer_status`, `transfer_cancel`, `transfer_forget`. An agent that the node may not know adds
/// its `source_code`, whose secret then checks the message.
#[derive(Deserialize)]
pub struct TransferRef {
    /// Which transfer.
    #[serde(deserialize_with = "some_transfer_id")]
    pub transfer_id: String,
    /// Whose, where the admin asks; an agent asks for its own.
    #[serde(default)]
    pub agent_id: Option<String>,
    /// With `transfer_cancel` of an agent that the destination never saw: a source whose manifest
    /// says what the question, and so the answer, is signed with.
    #[serde(default)]
    pub source_code: Option<String>,
}

/// `list_agents`, `describe_container`, `network_tree`: nothing.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// `set_grant`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetGrant {
    /// Who gets it; need not live here yet.
    pub agent_id: String,
    /// A group, a call, or `ManageRootAgent`.
    pub grant: String,
    /// What it is narrowed to.
    #[serde(default)]
    pub scope: Option<Value>,
}

/// `revoke_grant`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Revoke {
    /// Who loses it.
    pub agent_id: String,
    /// A group, a call, or `ManageRootAgent`.
    pub grant: String,
}

/// `revoke_token`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RevokeToken {
    /// The id of a token, or of a block of one.
    pub token_id: String,
}

/// `create_identity`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateIdentity {
    /// Whose.
    pub agent_id: String,
    /// SHA-256 of its `AGENT_SECRET`, lower-case hexadecimal digits.
    pub secret_sha256: String,
    /// What its capsules are signed with.
    #[serde(default)]
    pub public_key: Option<String>,
}

/// `rotate_identity`: begins a rotation, or ends it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RotateIdentity {
    /// Whose.
    pub agent_id: String,
    /// SHA-256 of the new secret; absent with `end`.
    #[serde(default)]
    pub secret_sha256: Option<String>,
    /// A new key; it counts at once and alone.
    #[serde(default)]
    pub public_key: Option<String>,
    /// Seconds after which the rotation ends by itself.
    #[serde(default)]
    pub overlap_s: Option<u32>,
    /// The old secret counts no more.
    #[serde(default)]
    pub end: bool,
}

/// `revoke_identity`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RevokeIdentity {
    /// Whose.
    pub agent_id: String,
}

/// `push_identities`: the root signs its identities and hands them down; a node below takes a snapshot and
/// hands it on.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PushIdentities {
    /// How long the new snapshot is good, seconds; a week.
    #[serde(default)]
    pub expires_in_s: Option<u32>,
    /// A snapshot for a node below the root.
    #[serde(default)]
    pub snapshot: Option<Box<RawValue>>,
}

/// The longest transfer id, bytes: the ledger keeps it for as long as its source wants.
const TRANSFER_ID_BYTES: usize = 128;

/// Whether a text can name a transfer.
///
/// # Errors
/// What it must be.
pub fn check_transfer_id(id: &str) -> Result<(), String> {
    match id.len() {
        1..=TRANSFER_ID_BYTES => Ok(()),
        bytes => Err(format!("transfer_id must have 1 to {TRANSFER_ID_BYTES} bytes, not {bytes}")),
    }
}

fn transfer_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let id: Option<String> = Option::deserialize(deserializer)?;
    id.as_deref().map_or(Ok(()), check_transfer_id).map_err(serde::de::Error::custom)?;
    Ok(id)
}

fn some_transfer_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let id = String::deserialize(deserializer)?;
    check_transfer_id(&id).map_err(serde::de::Error::custom)?;
    Ok(id)
}

fn or_empty<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// A present `null` is a value, not an absence.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// How much is told of what is wrong with a payload, bytes: it repeats names out of the payload.
const LONGEST_REASON: usize = 1000;

/// Reads a payload.
///
/// # Errors
/// `bad_payload`: the field that is missing, unknown or mistyped.
pub fn read<'a, T: Deserialize<'a>>(kind: &str, payload: &'a str) -> Result<T, Failure> {
    plain::read_object(payload).map_err(|why| {
        let why = clipped(&why, LONGEST_REASON);
        Failure::new(Code::BadPayload, format!("the payload of {kind}: {why}"))
    })
}

/// When a request must be over: `timeout` seconds from now, at most `limit`.
///
/// # Errors
/// `bad_payload` for a timeout that is not a positive number.
pub fn deadline(timeout: Option<f64>, limit: Duration) -> Result<Instant, Failure> {
    let allowed = match timeout {
        None => limit,
        Some(seconds) if seconds > 0.0 => Duration::try_from_secs_f64(seconds).unwrap_or(limit).min(limit),
        Some(seconds) => {
            let text = format!("timeout must be a positive number of seconds, not {seconds}");
            return Err(Failure::new(Code::BadPayload, text));
        }
    };
    Ok(Instant::now() + allowed)
}
