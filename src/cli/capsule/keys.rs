//! `keys generate`, `keys fingerprint`, `keys registry-…`.

use super::args::{option, required, switch, Command, Flag, Given};
use super::receive::JSON;
use super::{line, Entry, Outcome};
use crate::capsule::json::{array, Object};
use crate::capsule::trust;
use crate::capsule::{keys, registry_file, PublicKey};
use crate::log::escape;

const PUBLIC_KEY: Flag = required("public-key", "FILE", "the public key");
const KEY_ID: Flag = required("key-id", "ID", "what the key is called");
const PUBLISHER: Flag = option("publisher", "WHO", "whose it is");
const STATUS: Flag = option("status", "STATUS", "trusted or revoked");
const NOTE: Flag = option("note", "TEXT", "a remark");
const REGISTRY: Flag = required("registry", "FILE", "the registry");

pub(super) static COMMANDS: [Entry; 6] = [
    (&GENERATE, generate),
    (&FINGERPRINT, fingerprint),
    (&ENTRY, entry),
    (&ADD, add),
    (&REVOKE, revoke),
    (&LIST, list),
];

static GENERATE: Command = Command {
    name: "keys generate",
    about: "Makes an Ed25519 key pair.",
    operand: None,
    flags: &[
        required("private-key", "FILE", "where the private key goes, mode 0600"),
        required("public-key", "FILE", "where the public key goes"),
        switch("force", "replace files that are there"),
    ],
};

static FINGERPRINT: Command = Command {
    name: "keys fingerprint",
    about: "Prints the fingerprint of a public key.",
    operand: None,
    flags: &[PUBLIC_KEY],
};

static ENTRY: Command = Command {
    name: "keys registry-entry",
    about: "Prints a registry with one key; with --json, the key's entry alone.",
    operand: None,
    flags: &[KEY_ID, PUBLIC_KEY, PUBLISHER, STATUS, NOTE, JSON],
};

static ADD: Command = Command {
    name: "keys registry-add",
    about: "Adds a key to a registry, which is begun if there is none.",
    operand: None,
    flags: &[REGISTRY, KEY_ID, PUBLIC_KEY, PUBLISHER, STATUS, NOTE],
};

static REVOKE: Command = Command {
    name: "keys registry-revoke",
    about: "Revokes the keys of a registry that have this id or this fingerprint.",
    operand: None,
    flags: &[
        REGISTRY,
        option("key-id", "ID", "what the key is called"),
        option("fingerprint", "DIGITS", "the key's fingerprint"),
        NOTE,
    ],
};

static LIST: Command = Command {
    name: "keys registry-list",
    about: "Lists the keys of a registry.",
    operand: None,
    flags: &[REGISTRY, JSON],
};

fn generate(given: &Given) -> Outcome {
    let (private, public) = (given.needed("private-key"), given.needed("public-key"));
    let key = keys::generate(&private, &public, given.has("force"))?;
    Ok(format!(
        "private key: {}\npublic key: {}\npublic key fingerprint: {}\n",
        private.display(),
        public.display(),
        key.fingerprint()
    ))
}

fn fingerprint(given: &Given) -> Outcome {
    let key = PublicKey::read(&given.needed("public-key"))?;
    Ok(format!("public key fingerprint: {}\n", key.fingerprint()))
}

fn read_entry(given: &Given) -> Result<trust::Entry, super::Failure> {
    let status = given.choice("status", &["trusted", "revoked"])?;
    let key_id = given.text("key-id")?.unwrap_or_default();
    let text = |name| given.text(name).map(|text| text.filter(|text| !text.is_empty()));
    Ok(trust::Entry {
        revoked: status.as_deref() == Some("revoked"),
        publisher: text("publisher")?,
        note: text("note")?,
        ..trust::Entry::new(&key_id, PublicKey::read(&given.needed("public-key"))?)
    })
}

fn entry(given: &Given) -> Outcome {
    let entry = read_entry(given)?.json();
    Ok(line(if given.has(JSON.name) { entry } else { Object::new().raw("keys", array([entry])).finish() }))
}

fn add(given: &Given) -> Outcome {
    let entry = read_entry(given)?;
    let text = format!("added: {} {}\n", escape(&entry.key_id), entry.fingerprint);
    registry_file::edit(&given.needed("registry"), |registry| registry.add(entry))?;
    Ok(text)
}

fn revoke(given: &Given) -> Outcome {
    let (key_id, fingerprint) = (given.text("key-id")?, given.text("fingerprint")?);
    if key_id.is_none() && fingerprint.is_none() {
        return Err(String::from("keys registry-revoke: --key-id or --fingerprint is missing").into());
    }
    let note = given.text("note")?;
    let revoked = registry_file::edit(&given.needed("registry"), |registry| {
        registry.revoke(key_id.as_deref(), fingerprint.as_deref(), note.as_deref())
    })?;
    Ok(format!("revoked: {revoked}\n"))
}

fn list(given: &Given) -> Outcome {
    let registry = registry_file::read(&given.needed("registry"))?;
    if given.has(JSON.name) {
        return Ok(line(registry.json()));
    }
    let lines = registry.entries.iter().map(|entry| {
        let status = if entry.revoked { "revoked" } else { "trusted" };
        let (key_id, publisher) = (escape(&entry.key_id), escape(entry.publisher.as_deref().unwrap_or("-")));
        format!("{status}\t{key_id}\t{}\t{publisher}\n", entry.fingerprint)
    });
    Ok(lines.collect())
}
