//! `trust snapshot` and `trust import`.

use super::args::{option, required, Command, Flag, Given};
use super::{Entry, Outcome};
use crate::capsule::snapshot::{self, Issue};
use crate::capsule::{registry_file, PrivateKey, PublicKey};
use crate::clock;
use crate::wire::unix_now;

const REGISTRY: Flag = required("registry", "FILE", "the registry");

/// How long a snapshot is good for.
const DAYS: u32 = 30;

pub(super) static COMMANDS: [Entry; 2] = [(&SNAPSHOT, snapshot), (&IMPORT, import)];

static SNAPSHOT: Command = Command {
    name: "trust snapshot",
    about: "Signs a registry for receivers to import.",
    operand: None,
    flags: &[
        REGISTRY,
        required("issuer", "WHO", "who keeps the registry"),
        required("key", "FILE", "the issuer's private key"),
        required("out", "FILE", "where the snapshot goes"),
        option("sequence", "N", "higher than the last one's; the time in milliseconds unless said otherwise"),
        option("expires-in-days", "N", "how long it is good for (30)"),
    ],
};

static IMPORT: Command = Command {
    name: "trust import",
    about: "Takes the keys of a signed snapshot into a registry.",
    operand: None,
    flags: &[
        required("snapshot", "FILE", "the snapshot"),
        required("issuer-key", "FILE", "the issuer's public key"),
        REGISTRY,
    ],
};

fn snapshot(given: &Given) -> Outcome {
    let number = |name: &str| match given.text(name)? {
        None => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| format!("--{name} is no number: {text}")),
    };
    let registry = registry_file::read(&given.needed("registry"))?;
    let key = PrivateKey::read(&given.needed("key"))?;
    let now = unix_now();
    let days = number("expires-in-days")?.unwrap_or(u64::from(DAYS)).min(36_500);
    let issue = Issue {
        issuer: &given.text("issuer")?.unwrap_or_default(),
        key: &key,
        // Two snapshots of one second have to differ.
        sequence: number("sequence")?.unwrap_or_else(milliseconds).min(i64::MAX as u64),
        created: now,
        expires: now.saturating_add(days as i64 * 86_400),
    };
    let text = snapshot::issue(&registry, &issue)?;
    let out = given.needed("out");
    registry_file::replace(&out, &text)?;
    Ok(format!(
        "snapshot path: {}\nissuer: {}\nsequence: {}\nkeys: {}\nexpires at: {}\n",
        out.display(),
        issue.issuer,
        issue.sequence,
        registry.entries.len(),
        clock::utc(issue.expires)
    ))
}

fn milliseconds() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

fn import(given: &Given) -> Outcome {
    let text = registry_file::read_text(&given.needed("snapshot"))?;
    let key = PublicKey::read(&given.needed("issuer-key"))?;
    let imported = registry_file::edit(&given.needed("registry"), |registry| {
        snapshot::import(registry, &text, &key, unix_now())
    })?;
    Ok(format!(
        "imported: {} keys\nissuer: {}\nsequence: {}\n",
        imported.keys, imported.issuer, imported.sequence
    ))
}
