//! `trust snapshot` and `trust import`.

use super::args::{option, required, Command, Flag, Given};
use super::pack::keep;
use super::{Entry, Outcome};
use crate::capsule::snapshot::{self, Issue};
use crate::capsule::{registry_file, PublicKey};
use crate::cli::secrets::private_key;
use crate::clock;
use crate::log::escape;
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
    let number = |name: &str, least: u64, most: u64| match given.text(name)? {
        None => Ok(None),
        Some(text) => match text.parse() {
            Ok(number) if (least..=most).contains(&number) => Ok(Some(number)),
            _ => Err(format!("--{name} is a number from {least} to {most}, and not {text}")),
        },
    };
    let registry = registry_file::read(&given.needed("registry"))?;
    let key = private_key(&given.needed("key"))?;
    let now = unix_now();
    let days = number("expires-in-days", 0, 36_500)?.unwrap_or(u64::from(DAYS));
    let issue = Issue {
        issuer: &given.text("issuer")?.unwrap_or_default(),
        key: &key,
        // Two snapshots of one second have to differ.
        sequence: number("sequence", 0, i64::MAX as u64)?.unwrap_or_else(milliseconds),
        created: now,
        expires: now.saturating_add(days as i64 * 86_400),
    };
    let text = snapshot::issue(&registry, &issue)?;
    let out = given.needed("out");
    keep(&out, &[&given.needed("registry"), &given.needed("key")])?;
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
        "imported keys: {}\nissuer: {}\nsequence: {}\n",
        imported.keys,
        escape(&imported.issuer),
        imported.sequence
    ))
}
