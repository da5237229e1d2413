//! `inspect FILE`, `verify FILE`, `unpack FILE --out DIR`.

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::args::{option, required, switch, Command, Flag, Given};
use super::pack::key_from_env;
use super::{line, Failure, Outcome};
use crate::capsule::inspect::{manifest_json, Inspection};
use crate::capsule::json::{array, null, quote, Object};
use crate::capsule::signature::{ED25519, HMAC};
use crate::capsule::verify::verified_payload;
use crate::capsule::{
    self, audit, normalized, registry_file, CapsuleError, Envelope, HmacKey, Keys, Policy, PublicKey,
    Registry, Trust, Verified, MAX_TEXT_BYTES,
};
use crate::log::escape;

pub(super) const POLICY: Flag = option("policy", "FILE", "the receiver's policy, JSON");
pub(super) const REGISTRY: Flag = option("signature-registry", "FILE", "the keys that are trusted, JSON");
pub(super) const AUDIT: Flag = switch("audit-json", "print an audit event");
pub(super) const JSON: Flag = switch("json", "print JSON");
const KEY_ENV: Flag = option("key-env", "VAR", "the environment variable with the shared key");
const PUBLIC_KEY: Flag =
    option("ed25519-public-key", "FILE", "the public key that an Ed25519 signature is checked with");

pub(super) static INSPECT: Command = Command {
    name: "inspect",
    about: "Tells what a capsule says of itself, and whether it verifies.",
    operand: Some("FILE"),
    flags: &[POLICY, KEY_ENV, PUBLIC_KEY, REGISTRY, JSON, AUDIT],
};

pub(super) static VERIFY: Command = Command {
    name: "verify",
    about: "Checks a capsule's signature, payload and the policy.",
    operand: Some("FILE"),
    flags: &[POLICY, KEY_ENV, PUBLIC_KEY, REGISTRY, JSON, AUDIT],
};

pub(super) static UNPACK: Command = Command {
    name: "unpack",
    about: "Verifies a capsule and writes its files below a directory.",
    operand: Some("FILE"),
    flags: &[
        required("out", "DIR", "the directory; made if it is not there"),
        switch("force", "replace files that are there"),
        POLICY,
        KEY_ENV,
        PUBLIC_KEY,
        REGISTRY,
        AUDIT,
    ],
};

/// Reads the policy and the registry that are given. The policy is put into `policy` as soon as it is
/// known, so that the event of a later failure tells it.
pub(super) fn read_rules(given: &Given, policy: &mut Policy) -> Result<Option<Registry>, CapsuleError> {
    if let Some(path) = given.path(POLICY.name) {
        *policy = Policy::parse(&registry_file::read_text(&path)?)?;
    }
    given.path(REGISTRY.name).map(|path| registry_file::read(&path)).transpose()
}

/// A file that may hold a capsule: its text with LF, and nothing is copied if it has no CR.
pub(super) fn read_text(path: &Path, policy: &Policy) -> Result<String, CapsuleError> {
    let text = String::from_utf8(read_bytes(path, policy)?).map_err(|_| not_text(path))?;
    Ok(match normalized(&text) {
        Cow::Owned(text) => text,
        Cow::Borrowed(_) => text,
    })
}

/// A file that may hold a capsule, as it lies there.
pub(super) fn read_bytes(path: &Path, policy: &Policy) -> Result<Vec<u8>, CapsuleError> {
    let failed =
        |what: &dyn std::fmt::Display| CapsuleError::Io(format!("reading {}: {what}", path.display()));
    let limit = MAX_TEXT_BYTES.max(policy.max_payload_bytes.saturating_mul(2));
    let file = File::open(path).map_err(|error| failed(&error))?;
    let expected = file.metadata().map_or(0, |meta| meta.len().min(limit));
    let mut bytes = Vec::with_capacity(usize::try_from(expected).unwrap_or(0) + 1);
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    if bytes.len() as u64 > limit {
        return Err(failed(&format!("more than {limit} bytes")));
    }
    Ok(bytes)
}

pub(super) fn not_text(path: &Path) -> CapsuleError {
    CapsuleError::Io(format!("reading {}: it is not UTF-8 text", path.display()))
}

/// The keys that the capsule's mode asks for; others are not even read.
#[derive(Default)]
struct GivenKeys {
    hmac: Option<HmacKey>,
    ed25519: Option<PublicKey>,
}

fn keys_for(envelope: &Envelope<'_>, given: &Given) -> Result<GivenKeys, CapsuleError> {
    let mode = envelope.headers.required("signature");
    let hmac = given.raw("key-env").filter(|_| mode == HMAC);
    let ed25519 = given.path("ed25519-public-key").filter(|_| mode == ED25519);
    Ok(GivenKeys {
        hmac: hmac.map(|variable| key_from_env(variable)).transpose()?,
        ed25519: ed25519.map(|path| PublicKey::read(&path)).transpose()?,
    })
}

impl GivenKeys {
    fn with<'a>(&'a self, registry: Option<&'a Registry>) -> Keys<'a> {
        Keys { hmac: self.hmac.as_ref(), ed25519: self.ed25519, registry }
    }
}

/// Runs an operation; tells of its failure as the caller wants it told.
pub(super) fn audited(
    operation: &str,
    given: &Given,
    run: impl FnOnce(&mut Policy) -> Result<String, CapsuleError>,
) -> Outcome {
    let mut policy = Policy::default();
    run(&mut policy).map_err(|error| {
        if given.has(AUDIT.name) {
            let event = line(audit::failed(operation, &given.subject(), &policy, &error));
            Failure { line: String::new(), event }
        } else {
            error.into()
        }
    })
}

pub(super) fn inspect(given: &Given) -> Outcome {
    audited("inspect", given, |policy| {
        let registry = read_rules(given, policy)?;
        let text = read_text(given.operand(), policy)?;
        let envelope = Envelope::parse(&text)?;
        // A key that cannot be read is a reason not to verify, not one to say nothing.
        let (keys, failed) = match keys_for(&envelope, given) {
            Ok(keys) => (keys, None),
            Err(error) => (GivenKeys::default(), Some(error)),
        };
        let mut seen = capsule::inspect::inspect(&envelope, policy, &keys.with(registry.as_ref()))?;
        if let Some(error) = failed {
            seen = Inspection { signature: "not_checked", payload: Err(error), ..seen };
        }
        if !given.has(AUDIT.name) {
            return Ok(if given.has(JSON.name) { line(seen.json(&envelope)) } else { seen.text(&envelope) });
        }
        let (subject, report) = (given.subject(), seen.json(&envelope));
        Ok(line(match &seen.payload {
            Ok(_) => audit::verified("inspect", &subject, policy, seen.trust.as_ref(), report),
            Err(error) => {
                let reasons = [error.reason()];
                audit::event("inspect", &subject, policy, audit::Disposition::Block, &reasons, report)
            }
        }))
    })
}

pub(super) fn verify(given: &Given) -> Outcome {
    audited("verify", given, |policy| {
        let registry = read_rules(given, policy)?;
        let text = read_text(given.operand(), policy)?;
        let envelope = Envelope::parse(&text)?;
        policy.check_headers(&envelope.headers)?;
        let keys = keys_for(&envelope, given)?;
        let verified = capsule::verify(&envelope, policy, &keys.with(registry.as_ref()), |_| {})?;
        let report = report(&envelope, &verified);
        Ok(if given.has(AUDIT.name) {
            line(audit::verified(
                "verify",
                &given.subject(),
                policy,
                verified.trust.as_ref(),
                report.finish(),
            ))
        } else if given.has(JSON.name) {
            line(report.finish())
        } else {
            format!("verification: ok\npayload bytes: {}\n", verified.payload_bytes)
        })
    })
}

pub(super) fn unpack(given: &Given) -> Outcome {
    audited("unpack", given, |policy| {
        let registry = read_rules(given, policy)?;
        let text = read_text(given.operand(), policy)?;
        let envelope = Envelope::parse(&text)?;
        policy.check_headers(&envelope.headers)?;
        let keys = keys_for(&envelope, given)?;
        let (verified, payload) = verified_payload(&envelope, policy, &keys.with(registry.as_ref()))?;
        let written = capsule::unpack::unpack(&envelope, &payload, &given.needed("out"), given.has("force"))?;
        let written: Vec<_> = written.iter().map(|path| path.to_string_lossy().into_owned()).collect();
        Ok(if given.has(AUDIT.name) {
            let files = array(written.iter().map(|path| quote(path)));
            let report = report(&envelope, &verified).raw("files_written", files).finish();
            line(audit::verified("unpack", &given.subject(), policy, verified.trust.as_ref(), report))
        } else {
            let paths: String = written.iter().map(|path| format!("{}\n", escape(path))).collect();
            format!("verification: ok\nfiles written: {}\n{paths}", written.len())
        })
    })
}

fn report(envelope: &Envelope<'_>, verified: &Verified) -> Object {
    let headers = &envelope.headers;
    Object::new()
        .text("verification", "ok")
        .text("signature_verification", verified.signature.name())
        .number("payload_bytes", verified.payload_bytes)
        .text("payload_sha256", headers.required("payload_sha256"))
        .text("codec", headers.required("codec"))
        .text("content_type", headers.required("content_type"))
        .raw("capsule_manifest", manifest_json(envelope))
        .raw("signature_trust", verified.trust.as_ref().map_or_else(null, Trust::json))
}
