//! The receiver's policy: every field, before every command that keeps it.

use crate::case::Case;
use crate::draft::{bundle, bundle_capsule, Draft};
use crate::kit::{Kit, SECRET};
use crate::place::Entry;
use serde_json::{json, Value};

/// Under each of these commands a row of the table has one letter: `.` passes, `x` refuses, `-` stands among
/// the differences that are meant.
const COMMANDS: [&str; 18] = [
    "verify plain.txt --json",
    "inspect plain.txt --json",
    "unpack plain.txt --out out",
    "scan plain.txt --json",
    "verify hmac.txt --key-env K --json",
    "inspect hmac.txt --json",
    "unpack hmac.txt --key-env K --out out",
    "verify ed.txt --json",
    "inspect ed.txt --json",
    "unpack ed.txt --out out",
    "verify ed.txt --ed25519-public-key k.pub --json",
    "verify ed.txt --signature-registry trusted.json --json",
    "inspect ed.txt --signature-registry trusted.json --json",
    "verify ed.txt --signature-registry revoked.json --json",
    "verify ed.txt --signature-registry empty.json --json",
    "unpack named.txt --signature-registry trusted.json --out out",
    "scan ed.txt --signature-registry trusted.json --json",
    "verify tree.txt --json",
];

pub fn kept(kit: &Kit) -> Vec<Case> {
    let all_types = ["application/octet-stream", "application/vnd.agent.bundle+json"];
    let table: Vec<(Value, &str, &'static str)> = vec![
        (json!({}), "..................", ""),
        (json!({"allow_unsigned": false}), "xxx..............x", "unsigned"),
        (json!({"allow_unsigned": true}), "..................", ""),
        (json!({"required_signature_modes": []}), "..................", ""),
        (json!({"required_signature_modes": ["ed25519"]}), "xxx.xxx..........x", "signature mode"),
        (json!({"required_signature_modes": ["hmac-sha256"]}), "xxx....xxxxxxxxx.x", "signature mode"),
        (
            json!({"required_signature_modes": ["hmac-sha256", "ed25519"]}),
            "xxx..............x",
            "signature mode",
        ),
        (json!({"required_signature_modes": ["none"]}), "....xxxxxxxxxxxx..", "signature mode"),
        (json!({"required_signature_modes": ["rsa"]}), "xxx.xxxxxxxxxxxx.x", "signature mode"),
        (json!({"require_signature_registry": true}), "x-x-x-xx.xx..xx..x", "registry"),
        (json!({"require_signature_registry": false}), "..................", ""),
        (json!({"allow_inline_public_keys": false}), ".......xxxxxxxx...", "inline"),
        (json!({"allow_inline_public_keys": true}), "..................", ""),
        (json!({"trusted_signature_key_ids": ["kid"]}), "xxx..............x", "key id"),
        (json!({"trusted_signature_key_ids": ["other", "kid"]}), "xxx..............x", "key id"),
        (json!({"trusted_signature_key_ids": ["other"]}), "xxx.xxxxxxxxxxxx.x", "key id"),
        (json!({"trusted_signature_key_ids": []}), "..................", ""),
        (json!({"trusted_signature_key_fingerprints": [kit.key.1]}), "xxx.xxx..........x", "fingerprint"),
        (
            json!({"trusted_signature_key_fingerprints": [kit.key.1.to_uppercase()]}),
            "xxx.xxx..........x",
            "fingerprint",
        ),
        (json!({"trusted_signature_key_fingerprints": [kit.other.1]}), "xxx.xxxxxxxxxxxx.x", "fingerprint"),
        (json!({"trusted_signature_key_fingerprints": []}), "..................", ""),
        (
            json!({"trusted_signature_key_ids": ["kid"], "trusted_signature_key_fingerprints": [kit.other.1]}),
            "xxx.xxxxxxxxxxxx.x",
            "key id|fingerprint",
        ),
        (json!({"allowed_content_types": []}), "xxx.xxxxxxxxxxxx.x", "content type"),
        (json!({"allowed_content_types": [all_types[0]]}), ".................x", "content type"),
        (json!({"allowed_content_types": [all_types[1]]}), "xxx.xxxxxxxxxxxx..", "content type"),
        (json!({"allowed_content_types": all_types}), "..................", ""),
        (json!({"max_payload_bytes": 0}), "x.x.x.xx.xxx.xxx.x", "size|bytes"),
        (json!({"max_payload_bytes": 5}), "x.x.x.xx.xxx.xxx.x", "size|bytes"),
        (json!({"max_payload_bytes": 6}), ".................x", "size|bytes"),
        (json!({"max_payload_bytes": 1_000_000_000}), "..................", ""),
        (json!({"require_known_codec": false}), "..................", ""),
        (json!({"require_known_codec": true}), "..................", ""),
        (json!({"require_hash": false}), "..................", ""),
        (json!({"require_hash": true}), "..................", ""),
        (json!({"decode_to_sandbox_required": false}), "..................", ""),
        (json!({"decode_to_sandbox_required": true}), "..................", ""),
        (
            json!({"allow_unsigned": false, "required_signature_modes": ["ed25519"], "require_signature_registry": true,
                "trusted_signature_key_ids": ["kid"], "trusted_signature_key_fingerprints": [kit.key.1],
                "max_payload_bytes": 6, "allowed_content_types": [all_types[0]]}),
            "xxx.xxxx.xx..xx..x",
            "",
        ),
    ];
    let mut cases = Vec::new();
    let around = surroundings(kit);
    for (policy, letters, word) in table {
        assert_eq!(letters.len(), COMMANDS.len(), "{policy}");
        for (command, letter) in COMMANDS.iter().zip(letters.chars()).filter(|(_, letter)| *letter != '-') {
            let case = Case::new(format!("policy: {policy}"), command)
                .words("--policy policy.json")
                .entries(&around)
                .file("policy.json", policy.to_string())
                .env("K", SECRET);
            cases.push(if letter == 'x' { case.refused(word) } else { case });
        }
    }

    // Rules that other capsules show.
    let mut row = |name: &str, text: String, policy: Value, verdicts: [Option<&'static str>; 3]| {
        let commands = ["verify m.txt --json", "inspect m.txt --json", "unpack m.txt --out out"];
        for (command, refusal) in commands.into_iter().zip(verdicts).chain([("scan m.txt --json", None)]) {
            let case = Case::new(format!("policy: {name}"), command)
                .words("--policy policy.json")
                .file("m.txt", &text)
                .file("policy.json", policy.to_string());
            cases.push(match refusal {
                Some(word) => case.refused(word),
                None => case,
            });
        }
    };
    let unknown = Draft::hello().set("codec", "rot13").text();
    row(
        "unknown codec, allowed",
        unknown.clone(),
        json!({"require_known_codec": false}),
        [Some("rot13"), None, Some("rot13")],
    );
    row("unknown codec", unknown, json!({}), [Some("rot13"); 3]);
    let wrong = Draft::hello().set("payload_sha256", &"a".repeat(64)).text();
    row(
        "wrong hash, not required",
        wrong,
        json!({"require_hash": false}),
        [Some("sha256"), None, Some("sha256")],
    );
    let other = Draft::hello().set("content_type", "text/plain").text();
    row("another content type, allowed", other, json!({"allowed_content_types": ["text/plain"]}), [None; 3]);
    let files = bundle_capsule(&bundle(&[("a", b"1234567890")]));
    row(
        "a bundle as large as allowed",
        files.clone(),
        json!({"max_payload_bytes": bundle(&[("a", b"1234567890")]).to_string().len()}),
        [None; 3],
    );
    row(
        "a bundle one byte larger",
        files,
        json!({"max_payload_bytes": bundle(&[("a", b"1234567890")]).to_string().len() - 1}),
        [Some("size|bytes"), None, Some("size|bytes")],
    );
    cases
}

/// Policy files that are not policies.
pub fn files(kit: &Kit) -> Vec<Case> {
    let mut cases = Vec::new();
    let around = surroundings(kit);
    let mut row = |name: &str, policy: &str, word: &'static str, all: bool| {
        let commands: &[&str] = &[COMMANDS[0], COMMANDS[1], COMMANDS[2], COMMANDS[3]];
        for command in &commands[..if all { 4 } else { 1 }] {
            let case = Case::new(format!("policy file: {name}"), command)
                .words("--policy policy.json")
                .entries(&around)
                .file("policy.json", policy);
            cases.push(if word.is_empty() { case } else { case.refused(word) });
        }
    };
    row("unknown field", "{\"foo\":1}", "foo", true);
    row("unknown fields", "{\"foo\":1,\"bar\":2}", "bar", false);
    row("a field misspelled", "{\"allow_unsinged\":false}", "allow_unsinged", false);
    row("no JSON", "{", "policy", true);
    row("a list", "[]", "policy", true);
    row("null", "null", "policy", false);
    row("empty", "", "policy", false);
    row("a byte order mark", "\u{feff}{}", "policy", false);
    row("text after it", "{} x", "policy", false);
    row("white space", " \n{ \"allow_unsigned\" : true }\n\n", "", false);
    for field in [
        "require_known_codec",
        "require_hash",
        "allow_unsigned",
        "require_signature_registry",
        "allow_inline_public_keys",
        "decode_to_sandbox_required",
    ] {
        for value in ["1", "0", "\"true\"", "null", "[]"] {
            row(&format!("{field} {value}"), &format!("{{\"{field}\":{value}}}"), field, false);
        }
    }
    for field in [
        "required_signature_modes",
        "trusted_signature_key_ids",
        "trusted_signature_key_fingerprints",
        "allowed_content_types",
    ] {
        for value in ["\"ed25519\"", "[1]", "[\"ed25519\",null]", "null", "{}", "true"] {
            row(&format!("{field} {value}"), &format!("{{\"{field}\":{value}}}"), field, false);
        }
    }
    for value in ["-1", "6.0", "6.5", "\"6\"", "true", "null", "[6]"] {
        row(
            &format!("max_payload_bytes {value}"),
            &format!("{{\"max_payload_bytes\":{value}}}"),
            "max_payload_bytes",
            false,
        );
    }
    for command in &COMMANDS[..4] {
        let case =
            Case::new("policy file: no such file", command).entries(&around).words("--policy nothing.json");
        cases.push(case.refused("nothing.json"));
    }
    cases
}

fn surroundings(kit: &Kit) -> Vec<(String, Entry)> {
    let mut revoked = kit.entry();
    revoked["status"] = "revoked".into();
    let registry = |keys: Value| Entry::File(json!({"keys": keys}).to_string().into());
    let mut around = kit.entries.clone();
    around.push(("trusted.json".into(), registry(json!([kit.entry()]))));
    around.push(("revoked.json".into(), registry(json!([revoked]))));
    around.push(("empty.json".into(), registry(json!([]))));
    around
}
