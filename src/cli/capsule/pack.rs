//! `pack PATH --out FILE`.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::args::{option, required, switch, Command, Given};
use super::{Failure, Outcome};
use crate::capsule::manifest::DELIVERY_MODES;
use crate::capsule::pack::Content;
use crate::capsule::whole_file::{is_same_file, WholeFile};
use crate::capsule::{self, codec, CapsuleError, HmacKey, PackOptions, Packed, Signing};
use crate::carrier::{Model, NGram};
use crate::cli::secrets::private_key;
use crate::clock;

pub(super) static COMMAND: Command = Command {
    name: "pack",
    about: "Packs a file or a directory into a capsule.",
    operand: Some("PATH"),
    flags: &[
        required("out", "FILE", "where the capsule goes"),
        option("codec", "CODEC", "how the payload is written; base64 unless said otherwise"),
        option("model", "FILE", "the model of a codec that needs one"),
        option("capsule-type", "TYPE", "manifest: what kind of capsule it is (agent_handoff)"),
        option("created-by", "WHO", "who made it (local)"),
        option("created-at", "TIME", "when, 2026-05-09T00:00:00Z; now unless said otherwise"),
        option("task-id", "ID", "manifest: the task it belongs to"),
        option("delivery-mode", "MODE", "manifest: inline, attachment or reference"),
        option("delivery-uri", "URI", "manifest: where it is to be found"),
        option("requested-capability", "NAME", "manifest: what the receiver should allow; may be repeated"),
        option("policy-hint", "KEY=true|false", "manifest: a hint for the receiver; may be repeated"),
        option("sign-key-env", "VAR", "sign with the shared key in this environment variable"),
        option("sign-ed25519-key", "FILE", "sign with this private key"),
        switch("no-inline-public-key", "leave the public key out of the capsule"),
        option("signature-key-id", "ID", "what the key is called"),
    ],
};

pub(super) fn run(given: &Given) -> Outcome {
    let mut options = options(given)?;
    if let Some(path) = given.path("model") {
        if options.codec != codec::NGRAM {
            return Err(format!("--model is not supported for codec: {}", options.codec).into());
        }
        options.model = Some(ngram_model(&path)?);
    } else if options.codec == codec::NGRAM {
        return Err(format!("{} requires --model", options.codec).into());
    }
    if let Some(kind) = given.text("capsule-type")? {
        options.capsule_type = kind;
    }
    let content = Content::read(given.operand())?;
    let out = given.needed("out");
    keep(&out, &[given.operand()])?;
    let mut file = WholeFile::create(&out).map_err(|error| not_written(&out, &error))?;
    let packed = capsule::pack(&content, &options, &mut file).map_err(|error| about(&out, error))?;
    file.finish().map_err(|error| not_written(&out, &error))?;
    Ok(report(&out, &packed))
}

fn ngram_model(path: &Path) -> Result<Box<NGram>, Failure> {
    match Model::read(path) {
        Ok(Model::NGram(model)) => Ok(model),
        Ok(other) => {
            Err(format!("invalid n-gram model: {} is of the type {}", path.display(), other.kind()).into())
        }
        Err(why) => Err(format!("invalid n-gram model: {why}").into()),
    }
}

/// The options that capsules of files and capsules of agents share.
pub(super) fn options(given: &Given) -> Result<PackOptions, Failure> {
    let mut options = PackOptions::default();
    let set = |field: &mut String, name: &str| -> Result<(), Failure> {
        if let Some(value) = given.text(name)? {
            *field = value;
        }
        Ok(())
    };
    set(&mut options.codec, "codec")?;
    set(&mut options.created_by, "created-by")?;
    set(&mut options.created_at, "created-at")?;
    set(&mut options.task_id, "task-id")?;
    if !clock::is_utc(&options.created_at) {
        return Err(
            format!("--created-at is no time like 2026-05-09T00:00:00Z: {}", options.created_at).into()
        );
    }
    if let Some(mode) = given.choice("delivery-mode", &DELIVERY_MODES)? {
        options.delivery_mode = mode;
    }
    options.delivery_uri = given.text("delivery-uri")?;
    options.requested_capabilities = given.texts("requested-capability")?;
    options.policy_hints = given
        .texts("policy-hint")?
        .iter()
        .map(|hint| policy_hint(hint))
        .collect::<Result<BTreeMap<_, _>, _>>()?;
    options.signing = signing(given)?;
    options.key_id = given.text("signature-key-id")?;
    Ok(options)
}

fn policy_hint(hint: &str) -> Result<(String, bool), String> {
    let (key, value) = hint.split_once('=').ok_or_else(|| format!("invalid policy hint: {hint}"))?;
    let key = key.trim();
    if key.is_empty() {
        return Err("policy hint key is required".into());
    }
    match value.trim().to_ascii_lowercase().as_str() {
        "true" => Ok((key.into(), true)),
        "false" => Ok((key.into(), false)),
        _ => Err(format!("policy hint value must be true or false: {hint}")),
    }
}

fn signing(given: &Given) -> Result<Signing, Failure> {
    match (given.raw("sign-key-env"), given.path("sign-ed25519-key")) {
        (Some(_), Some(_)) => Err(String::from("choose only one signature mode").into()),
        (Some(variable), None) => Ok(Signing::Hmac(key_from_env(variable)?)),
        (None, Some(path)) => {
            let inline = !given.has("no-inline-public-key");
            Ok(Signing::Ed25519 { key: Box::new(private_key(&path)?), inline })
        }
        (None, None) => Ok(Signing::None),
    }
}

/// The shared key that an environment variable holds.
pub(super) fn key_from_env(variable: &std::ffi::OsStr) -> Result<HmacKey, CapsuleError> {
    let missing = || {
        let variable = variable.to_string_lossy();
        CapsuleError::Key(format!("missing signature key environment variable: {variable}"))
    };
    HmacKey::new(std::env::var_os(variable).ok_or_else(missing)?.as_bytes())
}

/// What is told of a capsule that was packed.
pub(super) fn report(out: &Path, packed: &Packed) -> String {
    format!(
        "capsule path: {}\ncodec: {}\ncontent type: {}\npayload bytes: {}\npayload sha256: {}\n",
        out.display(),
        packed.codec,
        packed.content_type,
        packed.payload_bytes,
        packed.payload_sha256
    )
}

/// An error of writing, with the file's name.
fn about(out: &Path, error: CapsuleError) -> Failure {
    match error {
        CapsuleError::Io(what) => format!("{}: {what}", out.display()).into(),
        other => other.into(),
    }
}

/// The capsule could not be written.
pub(super) fn not_written(out: &Path, error: &std::io::Error) -> Failure {
    about(out, CapsuleError::Io(format!("writing the capsule: {error}")))
}

/// Refuses an output that is one of the files read.
pub(super) fn keep(out: &Path, read: &[&Path]) -> Result<(), Failure> {
    match read.iter().find(|read| is_same_file(out, read)) {
        Some(read) => Err(format!("--out {} would overwrite {}", out.display(), read.display()).into()),
        None => Ok(()),
    }
}
