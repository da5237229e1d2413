//! Agents in capsules: `agent.py`, what it remembers, and its files, as one bundle.
//!
//! The capsule's type is `agent`. It holds `agent.py`, `memory.json` (a JSON object) if the agent
//! remembers something, and `state/…` if it has files. It fits into one line of the wire protocol.

use std::path::Path;

use super::bundle::Writer;
use super::json::quote;
use super::pack::{pack, Content};
use super::{walk, CapsuleError, PackOptions};
use crate::wire;

/// The value of `capsule_type`.
pub const TYPE: &str = "agent";
/// The agent's source.
pub const SOURCE: &str = "agent.py";
/// What it remembers.
pub const MEMORY: &str = "memory.json";
/// Before the paths of its files.
pub const STATE: &str = "state/";

/// How long the capsule may be as a JSON string: a line of 32 MiB has to hold the rest of the message.
pub const MAX_QUOTED_BYTES: usize = (32 << 20) - (64 << 10);

/// How many files an agent travels with, at most.
pub const MAX_STATE_FILES: usize = 10_000;

/// What an agent consists of.
#[derive(Clone, Copy, Debug)]
pub struct Agent<'a> {
    /// Python.
    pub source: &'a str,
    /// A JSON object.
    pub memory: Option<&'a str>,
    /// The directory with its files.
    pub state: Option<&'a Path>,
}

/// The capsule of an agent. `options.capsule_type` is not looked at.
///
/// # Errors
/// The memory is no JSON object, a file cannot be packed, or all of it does not fit.
pub fn pack_agent(agent: &Agent<'_>, options: &PackOptions) -> Result<String, CapsuleError> {
    let mut writer = Writer::default();
    writer.add(SOURCE, agent.source.as_bytes())?;
    if let Some(memory) = agent.memory {
        let json = wire::parse(memory).map_err(|error| CapsuleError::Pack(format!("the memory: {error}")))?;
        if !json.is_object() {
            return Err(CapsuleError::Pack(format!("the memory is {}, not an object", json.kind())));
        }
        writer.add(MEMORY, memory.as_bytes())?;
    }
    if let Some(state) = agent.state {
        let before = writer.count();
        walk::add_directory(&mut writer, state, STATE)?;
        if writer.count() - before > MAX_STATE_FILES {
            let what = format!("more than {MAX_STATE_FILES} files, which no node takes: {}", state.display());
            return Err(CapsuleError::Pack(what));
        }
    }
    let options = PackOptions { capsule_type: TYPE.into(), ..options.clone() };
    let mut text = Vec::new();
    pack(&Content::bundle(writer), &options, &mut text)?;
    let text = String::from_utf8(text).map_err(|error| CapsuleError::Pack(error.to_string()))?;
    let quoted = quote(&text).len();
    if quoted > MAX_QUOTED_BYTES {
        let what = format!("the capsule needs {quoted} bytes of a message, and {MAX_QUOTED_BYTES} fit");
        return Err(CapsuleError::Pack(what));
    }
    Ok(text)
}
