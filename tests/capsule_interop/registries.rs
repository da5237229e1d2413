//! Local registries: what they make of a signature, and which files are none.

use crate::case::Case;
use crate::kit::{Kit, SECRET};
use crate::place::Entry;
use serde_json::{json, Value};

/// Under each of these commands a row of the table has one letter: `.` passes, `x` refuses.
const COMMANDS: [&str; 10] = [
    "verify ed.txt --json",
    "inspect ed.txt --json",
    "verify bare.txt --json",
    "inspect bare.txt --json",
    "verify named.txt --json",
    "inspect anon.txt --json",
    "verify ed.txt --ed25519-public-key k.pub --json",
    "verify ed.txt --ed25519-public-key o.pub --json",
    "verify hmac.txt --key-env K --json",
    "scan ed.txt --json",
];
const PASSES: &str = ".......x..";
const NO_KEY: &str = "..x.x..x..";
const BROKEN: &str = "xxxxxxxxxx";

pub fn cases(kit: &Kit) -> Vec<Case> {
    let with = |field: &str, value: Value| {
        let mut entry = kit.entry();
        entry[field] = value;
        entry
    };
    let without = |field: &str| {
        let mut entry = kit.entry();
        entry.as_object_mut().unwrap().remove(field);
        entry
    };
    let mut cases = Vec::new();
    let mut row = |name: &str, registry: &str, letters: &str, word: &'static str| {
        assert_eq!(letters.len(), COMMANDS.len(), "{name}");
        let broken = letters == BROKEN;
        for (command, letter) in COMMANDS.iter().zip(letters.chars()) {
            // A file that is no registry is refused by all; four commands are enough to see it.
            if broken
                && !["verify ed.txt --json", "inspect ed.txt --json", "scan ed.txt --json"].contains(command)
            {
                continue;
            }
            let case = Case::new(format!("registry: {name}"), command)
                .words("--signature-registry registry.json")
                .entries(&kit.entries)
                .file("registry.json", registry)
                .env("K", SECRET);
            let word = if broken { word } else { "public key|fingerprint" };
            cases.push(if letter == 'x' { case.refused(word) } else { case });
        }
    };
    let keys = |keys: &[Value]| json!({"keys": keys}).to_string();

    row("the key, trusted", &keys(&[kit.entry()]), PASSES, "");
    row("the key, revoked", &keys(&[with("status", json!("revoked"))]), PASSES, "");
    row("empty", &keys(&[]), NO_KEY, "");
    row("another key", &keys(&[kit.other_entry()]), NO_KEY, "");
    row("both keys", &keys(&[kit.other_entry(), kit.entry()]), PASSES, "");
    row(
        "a publisher and a note",
        &keys(&[{
            let mut entry = with("publisher", json!("Zoë & Söhne 😀"));
            entry["note"] = json!("seen in person");
            entry
        }]),
        PASSES,
        "",
    );
    row(
        "the id of another key",
        &keys(&[{
            let mut entry = kit.other_entry();
            entry["key_id"] = json!("kid");
            entry
        }]),
        NO_KEY,
        "",
    );
    row("the key under another id", &keys(&[with("key_id", json!("zed"))]), "....x..x..", "");
    row("no public key, the fingerprint alone", &keys(&[without("public_key")]), NO_KEY, "");
    row(
        "a path to the key",
        &keys(&[{
            let mut entry = without("public_key");
            entry["public_key_path"] = json!("k.pub");
            entry
        }]),
        PASSES,
        "",
    );
    row("no status", &keys(&[without("status")]), PASSES, "");
    row("unknown fields", &json!({"keys": [with("more", json!(1))], "more": 2}).to_string(), PASSES, "");
    row(
        "fingerprint in capitals",
        &keys(&[with("fingerprint", json!(kit.key.1.to_uppercase()))]),
        PASSES,
        "",
    );
    row("twice, revoked and trusted", &keys(&[with("status", json!("revoked")), kit.entry()]), PASSES, "");

    row(
        "a key that does not match its fingerprint",
        &keys(&[with("fingerprint", json!(kit.other.1))]),
        BROKEN,
        "fingerprint",
    );
    row(
        "a path to a key that does not match",
        &keys(&[{
            let mut entry = without("public_key");
            entry["public_key_path"] = json!("o.pub");
            entry
        }]),
        BROKEN,
        "fingerprint",
    );
    row(
        "a path to nothing",
        &keys(&[{
            let mut entry = without("public_key");
            entry["public_key_path"] = json!("nothing.pub");
            entry
        }]),
        BROKEN,
        "nothing.pub",
    );
    row("a key and a path", &keys(&[with("public_key_path", json!("k.pub"))]), BROKEN, "public_key_path");
    row("no fingerprint", &keys(&[without("fingerprint")]), BROKEN, "fingerprint");
    row("no key id", &keys(&[without("key_id")]), BROKEN, "key_id");
    for (field, value) in [
        ("status", json!("maybe")),
        ("status", json!(1)),
        ("publisher", json!(5)),
        ("note", json!(5)),
        ("key_id", json!(5)),
        ("key_id", json!("")),
        ("fingerprint", json!("ab")),
        ("fingerprint", json!("g".repeat(64))),
        ("fingerprint", json!(null)),
        ("public_key", json!("!!")),
        ("public_key", json!("AAAA")),
        ("public_key", json!("")),
        ("public_key", json!(5)),
    ] {
        let word = if field == "public_key" { "public key|public_key" } else { field };
        row(&format!("{field} {value}"), &keys(&[with(field, value)]), BROKEN, word);
    }
    row("no JSON", "{", BROKEN, "registry");
    row("a list", "[]", BROKEN, "registry");
    row("no keys", "{}", BROKEN, "keys");
    row("keys that are no list", "{\"keys\":{}}", BROKEN, "keys");
    row("an entry that is no object", "{\"keys\":[5]}", BROKEN, "registry");
    row(
        "one bad entry among good ones",
        &keys(&[kit.entry(), without("fingerprint")]),
        BROKEN,
        "fingerprint",
    );

    // The path is relative to the registry, or to where the command runs?
    let mut entry = without("public_key");
    entry["public_key_path"] = json!("k.pub");
    for (name, place) in [("beside the registry", "keys/k.pub"), ("where the command runs", "k.pub")] {
        let case = Case::new(
            format!("registry: a path, the key {name}"),
            "verify bare.txt --json --signature-registry keys/registry.json",
        )
        .file("bare.txt", kit.text("bare.txt"))
        .file("keys/registry.json", keys(&[entry.clone()]))
        .file(place, kit.text("k.pub"));
        cases.push(if place == "k.pub" { case.refused("k.pub") } else { case });
    }
    for command in ["verify plain.txt", "inspect plain.txt", "unpack plain.txt --out out", "scan plain.txt"] {
        let case = Case::new("registry: no such file", command).entries(&kit.entries);
        cases.push(case.words("--signature-registry nothing.json").refused("nothing.json"));
    }
    let unpack = |name: &str, command: &str, status: &str| {
        Case::new(format!("registry: unpacking, {name}"), command)
            .entries(&kit.entries)
            .entry("registry.json", Entry::File(keys(&[with("status", json!(status))]).into()))
    };
    cases.push(unpack("trusted", "unpack named.txt --out out --signature-registry registry.json", "trusted"));
    cases.push(unpack("revoked", "unpack named.txt --out out --signature-registry registry.json", "revoked"));
    cases
}
