//! `agentcontainer pack-agent AGENT.py --out FILE`.

use std::ffi::OsString;
use std::io::Write;

use super::args::{option, required, switch, Command, Given};
use super::pack::{keep, not_written, options};
use super::{finish, run_with, Outcome};
use crate::agent::Manifest;
use crate::capsule::registry_file::read_text;
use crate::capsule::whole_file::WholeFile;
use crate::capsule::{pack_agent, Agent, CapsuleError};
use crate::primitives::capabilities;

pub(super) static COMMAND: Command = Command {
    name: "pack-agent",
    about: "Packs an agent, what it remembers and its files into a capsule that deploys.",
    operand: Some("AGENT.py"),
    flags: &[
        required("out", "FILE", "where the capsule goes"),
        option("state", "DIR", "the directory with the agent's files"),
        option("memory", "FILE", "what the agent remembers, a JSON object"),
        option("requested-capability", "NAME", "what the agent wants to call; may be repeated"),
        option("created-by", "WHO", "who made it (local)"),
        option("created-at", "TIME", "when, 2026-05-09T00:00:00Z; now unless said otherwise"),
        option("task-id", "ID", "the task it belongs to"),
        option("policy-hint", "KEY=true|false", "a hint for the receiver; may be repeated"),
        option("sign-key-env", "VAR", "sign with the shared key in this environment variable"),
        option("sign-ed25519-key", "FILE", "sign with this private key"),
        switch("no-inline-public-key", "leave the public key out of the capsule"),
        option("signature-key-id", "ID", "what the key is called"),
    ],
};

/// Runs the command; `args` is what follows its name. The exit status.
pub fn main(args: impl Iterator<Item = OsString>) -> i32 {
    finish(run_with(&COMMAND, args, run))
}

pub(super) fn run(given: &Given) -> Outcome {
    let source = read_text(given.operand())?;
    Manifest::read(&source)
        .map_err(|why| CapsuleError::Pack(format!("{}: {why}", given.operand().display())))?;
    let options = options(given)?;
    if let Some(name) = options.requested_capabilities.iter().find(|name| !capabilities::is_known(name)) {
        let hint = capabilities::near(name).map(|near| format!("; the nearest is {near:?}"));
        let what = format!("no node has a capability {name:?}{}", hint.unwrap_or_default());
        return Err(CapsuleError::Pack(what).into());
    }
    let memory_file = given.path("memory");
    let memory = memory_file.as_deref().map(read_text).transpose()?;
    let state = given.path("state");
    let agent = Agent { source: &source, memory: memory.as_deref(), state: state.as_deref() };
    let text = pack_agent(&agent, &options)?;
    let out = given.needed("out");
    let read = [Some(given.operand().to_owned()), memory_file];
    keep(&out, &read.iter().flatten().map(|path| &**path).collect::<Vec<_>>())?;
    let written = WholeFile::create(&out).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.finish()
    });
    written.map_err(|error| not_written(&out, &error))?;
    Ok(format!("capsule path: {}\ncapsule bytes: {}\n", out.display(), text.len()))
}
