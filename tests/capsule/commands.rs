//! The commands as a script sees them.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::support::{Ran, Scratch};

const MANIFEST: &str = concat!(
    r#"{"capsule_type":"agent_handoff","created_by":"local","delivery":{"mode":"inline"},"files":[{"bytes":20,"#,
    r#""path":"note.txt","sha256":"1e4e935febd33df1abc05eac4cc6b2c05da9a522d5cac4aeff634dbe2b7fa25e"}],"#,
    r#""policy_hints":{"network_egress":false,"sandbox_required":true},"requested_capabilities":[],"task_id":""}"#
);

fn packed(more: &[&str]) -> Scratch {
    let scratch = Scratch::new();
    scratch.keys("k");
    scratch.file("note.txt", "agent handoff state\n");
    let words = ["pack", "note.txt", "--out", "c.txt", "--created-at", "2026-05-09T00:00:00Z"];
    scratch.run(&[&words[..], more].concat()).ok();
    scratch
}

#[test]
fn a_capsule_is_written_to_the_byte() {
    let scratch = packed(&[]);
    let expected = format!(
        "-----BEGIN AGENT CAPSULE-----\ncapsule_version: 0.1\ncodec: base64\n\
         content_type: application/octet-stream\ncapsule_manifest: {MANIFEST}\n\
         payload_sha256: 1e4e935febd33df1abc05eac4cc6b2c05da9a522d5cac4aeff634dbe2b7fa25e\ncompression: none\n\
         encryption: none\nsignature: none\ncreated_by: local\ncreated_at: 2026-05-09T00:00:00Z\n\
         policy: inspect-before-use\nfilename: note.txt\n-----PAYLOAD-----\nYWdlbnQgaGFuZG9mZiBzdGF0ZQo=\n\
         -----END AGENT CAPSULE-----\n"
    );
    assert_eq!(std::fs::read_to_string(scratch.at("c.txt")).unwrap(), expected);
}

#[test]
fn the_signature_with_a_shared_key_is_the_reference_implementations() {
    let scratch = packed(&["--sign-key-env", "KEY", "--signature-key-id", "shared"]);
    let text = std::fs::read_to_string(scratch.at("c.txt")).unwrap();
    // Computed with Python's hmac module over the bytes that CAPSULE.md names.
    let value = "signature_value: ";
    let line = text.lines().find(|line| line.starts_with(value)).unwrap();
    let signed = format!(
        "AGENT-CAPSULE-SIGNATURE-V0\ncapsule_manifest: {MANIFEST}\ncapsule_version: 0.1\ncodec: base64\n\
         compression: none\ncontent_type: application/octet-stream\ncreated_at: 2026-05-09T00:00:00Z\n\
         created_by: local\nencryption: none\nfilename: note.txt\n\
         payload_sha256: 1e4e935febd33df1abc05eac4cc6b2c05da9a522d5cac4aeff634dbe2b7fa25e\n\
         policy: inspect-before-use\nsignature: hmac-sha256\nsignature_key_id: shared\n\n\
         YWdlbnQgaGFuZG9mZiBzdGF0ZQo="
    );
    let secret = agentcontainer::wire::Secret::new("correct horse").unwrap();
    let expected = agentcontainer::wire::hex::encode(&secret.sign(&signed));
    assert_eq!(line, format!("{value}{expected}"));
}

#[test]
fn verify_inspect_and_unpack_tell_what_they_found() {
    let scratch = packed(&[]);
    assert_eq!(scratch.run(&["verify", "c.txt"]).ok(), "verification: ok\npayload bytes: 20\n");
    let inspected = scratch.run(&["inspect", "c.txt"]).ok();
    assert!(inspected.contains("\nverification status: ok\nrisk note: unsigned capsule; "), "{inspected}");
    let path = scratch.at("out/note.txt");
    let expected = format!("verification: ok\nfiles written: 1\n{}\n", path.display());
    assert_eq!(scratch.run(&["unpack", "c.txt", "--out", "out"]).ok(), expected);

    let report = scratch.run(&["verify", "c.txt", "--json"]).ok();
    let expected = format!(
        "{{\"capsule_manifest\":{MANIFEST},\"codec\":\"base64\",\"content_type\":\"application/octet-stream\",\
         \"payload_bytes\":20,\
         \"payload_sha256\":\"1e4e935febd33df1abc05eac4cc6b2c05da9a522d5cac4aeff634dbe2b7fa25e\",\
         \"signature_trust\":null,\"signature_verification\":\"unsigned\",\"verification\":\"ok\"}}\n"
    );
    assert_eq!(report, expected);
}

#[test]
fn inspect_answers_even_if_a_capsule_does_not_verify() {
    let scratch = packed(&["--sign-key-env", "KEY"]);
    let report = scratch.run(&["inspect", "c.txt", "--json"]).json();
    assert_eq!(
        (&report["signature_verification"], &report["verification_status"]),
        (&"not_checked".into(), &"ok".into())
    );
    let text = std::fs::read_to_string(scratch.at("c.txt")).unwrap();
    scratch.file("c.txt", text.replace("created_by: local", "created_by: root"));
    let report = scratch.run(&["inspect", "c.txt", "--key-env", "KEY", "--json"]).json();
    assert_eq!(report["verification_error"], "signature verification failed");
    let missing = scratch.run(&["inspect", "c.txt", "--key-env", "NO_KEY", "--json"]).json();
    assert_eq!(missing["verification_error"], "missing signature key environment variable: NO_KEY");
    assert!(missing.get("payload_bytes").is_none());
}

#[test]
fn a_policy_that_wants_a_registry_is_not_met_in_any_report_by_less() {
    let scratch = packed(&[]);
    scratch.file("p.json", r#"{"require_signature_registry":true}"#);
    let words = ["--policy", "p.json", "--json"];
    let report = scratch.run(&[&["inspect", "c.txt"][..], &words].concat()).json();
    assert_eq!(report["verification_status"], "failed");
    let report = scratch.run(&[&["scan", "c.txt"][..], &words].concat()).json();
    assert_eq!(report["disposition"], "block");
}

#[test]
fn an_audit_event_tells_of_success_doubt_and_failure() {
    let scratch = packed(&["--sign-ed25519-key", "k.key"]);
    let event = scratch.run(&["verify", "c.txt", "--audit-json"]).json();
    assert_eq!((&event["disposition"], &event["operation"]), (&"review".into(), &"verify".into()));
    assert_eq!(event["reasons"][0], "inline public key is not trusted by a registry");
    scratch.file("p.json", r#"{"allowed_content_types":[]}"#);
    for command in ["verify", "inspect", "unpack"] {
        let mut words = vec![command, "c.txt", "--policy", "p.json", "--audit-json"];
        if command == "unpack" {
            words.extend(["--out", "out"]);
        }
        let event = scratch.run(&words).failed_in_json();
        assert_eq!(event["disposition"], "block");
        assert_eq!(event["result"]["verification"], "failed");
        assert_eq!(event["policy"]["allowed_content_types"], serde_json::json!([]), "the one in force");
    }
    assert!(!scratch.at("out").exists());
}

#[test]
fn a_reference_names_the_file_as_it_lies_there() {
    let scratch = packed(&[]);
    let report = scratch.run(&["reference", "c.txt", "--uri", "https://x/c", "--json"]).json();
    assert_eq!(report["reference_type"], "agent_capsule_reference");
    assert_eq!(report["capsule_sha256"].as_str().unwrap().len(), 64);
    let text = std::fs::read_to_string(scratch.at("c.txt")).unwrap();
    scratch.file("crlf.txt", text.replace('\n', "\r\n"));
    let crlf = scratch.run(&["reference", "crlf.txt", "--uri", "https://x/c", "--json"]).json();
    assert_ne!(crlf["capsule_sha256"], report["capsule_sha256"]);
    assert_eq!(crlf["payload_sha256"], report["payload_sha256"]);
}

#[test]
fn the_program_goes_by_the_names_of_the_reference_implementation() {
    let scratch = packed(&[]);
    for name in ["agentcapsule", "capsule", "/some/where/agentcapsule"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_agentcontainer"));
        let output =
            command.arg0(name).args(["verify", "c.txt"]).current_dir(scratch.at("")).output().unwrap();
        assert_eq!(output.stdout, b"verification: ok\npayload bytes: 20\n", "{name}");
    }
}

#[test]
fn keys_are_written_once_and_the_private_one_for_its_owner() {
    let scratch = Scratch::new();
    let words = ["keys", "generate", "--private-key", "a.key", "--public-key", "a.pub"];
    scratch.run(&words).ok();
    assert_eq!(scratch.at("a.key").metadata().unwrap().mode() & 0o777, 0o600);
    assert_eq!(scratch.run(&words).refused(), "key file already exists: a.key");
    let before = std::fs::read(scratch.at("a.pub")).unwrap();
    scratch.run(&[&words[..], &["--force"]].concat()).ok();
    assert_ne!(std::fs::read(scratch.at("a.pub")).unwrap(), before);
    let same = scratch.run(&["keys", "generate", "--private-key", "b", "--public-key", "b"]);
    assert_eq!(same.refused(), "the two keys need two files");
}

#[test]
fn signing_with_a_key_that_others_can_read_says_so() {
    let scratch = packed(&[]);
    let words = ["pack", "note.txt", "--out", "signed.txt", "--sign-ed25519-key"];
    scratch.run(&[&words[..], &["k.key"]].concat()).ok();
    let said = scratch.run(&[&words[..], &["k.pub"]].concat()).warned();
    assert!(said.contains("k.pub can be read by others"), "{said}");
}

#[test]
fn what_cannot_be_packed_leaves_an_old_capsule_alone() {
    let scratch = packed(&[]);
    let before = std::fs::read(scratch.at("c.txt")).unwrap();
    let pack =
        |more: &[&str]| -> Ran { scratch.run(&[&["pack", "note.txt", "--out", "c.txt"][..], more].concat()) };
    for (more, what) in [
        (&["--delivery-mode", "reference"][..], "reference delivery requires a uri"),
        (
            &["--delivery-mode", "pigeon"],
            "--delivery-mode is one of inline, attachment, reference, and not \"pigeon\"",
        ),
        (&["--policy-hint", "a"], "invalid policy hint: a"),
        (&["--policy-hint", "a=maybe"], "policy hint value must be true or false: a=maybe"),
        (&["--created-by", ""], "capsule manifest created_by is required"),
        (
            &["--created-by", "a\nsignature: none"],
            "the header created_by cannot carry \"a\\nsignature: none\": it has more than one line",
        ),
        (&["--created-at", "now"], "--created-at is no time like 2026-05-09T00:00:00Z: now"),
        (
            &["--codec", "base32"],
            "unknown capsule codec: base32 (there are: base64, lmcodec-fixed, lmcodec-ngram-v2)",
        ),
        (&["--codec", "lmcodec-ngram-v2"], "lmcodec-ngram-v2 requires --model"),
        (&["--model", "note.txt"], "--model is not supported for codec: base64"),
        (
            &["--codec", "lmcodec-ngram-v2", "--model", "note.txt"],
            "invalid n-gram model: note.txt: the model is no JSON: expected a value at byte 0",
        ),
        (&["--sign-key-env", "NO_KEY"], "missing signature key environment variable: NO_KEY"),
        (&["--sign-key-env", "KEY", "--sign-ed25519-key", "k.key"], "choose only one signature mode"),
        (&["--sign-ed25519-key", "note.txt"], "invalid Ed25519 private key"),
    ] {
        assert_eq!(pack(more).refused(), what);
    }
    assert_eq!(std::fs::read(scratch.at("c.txt")).unwrap(), before);
    let empty =
        scratch.run_as(&["capsule", "pack", "note.txt", "--out", "x", "--sign-key-env", "KEY"], |command| {
            command.env("KEY", "");
        });
    assert_eq!(empty.refused(), "the HMAC key is empty");
}

#[test]
fn a_link_out_of_the_directory_is_not_packed() {
    let scratch = Scratch::new();
    scratch.file("secret", "s");
    scratch.file("dir/a", "a");
    std::os::unix::fs::symlink("a", scratch.at("dir/b")).unwrap();
    scratch.run(&["pack", "dir", "--out", "c.txt"]).ok();
    std::os::unix::fs::symlink("../secret", scratch.at("dir/c")).unwrap();
    let refused = scratch.run(&["pack", "dir", "--out", "c2.txt"]).refused();
    assert_eq!(refused, "a link that leads out of the directory: dir/c");
    std::fs::remove_file(scratch.at("dir/c")).unwrap();
    let made = Command::new("mkfifo").arg(scratch.at("dir/fifo")).status().unwrap();
    assert!(made.success());
    let refused = scratch.run(&["pack", "dir", "--out", "c2.txt"]).refused();
    assert_eq!(refused, "not a regular file: dir/fifo");
}

#[test]
fn usage_names_the_program_as_it_was_called() {
    let scratch = Scratch::new();
    let first = |words: &[&str], name: &str| {
        let text = scratch
            .run_as(words, |command| {
                command.arg0(name);
            })
            .ok();
        text.lines().next().unwrap().to_owned()
    };
    let own = "agentcontainer";
    assert!(first(&["capsule", "verify", "--help"], own).starts_with("usage: agentcontainer capsule verify "));
    let keys = first(&["capsule", "keys", "registry-list", "-h"], own);
    assert!(keys.starts_with("usage: agentcontainer capsule keys registry-list --registry FILE"), "{keys}");
    assert!(first(&["verify", "--help"], "/usr/bin/agentcapsule").starts_with("usage: agentcapsule verify "));
    assert!(first(&["pack-agent", "--help"], own).starts_with("usage: agentcontainer pack-agent --out FILE"));
    assert!(first(&["trust", "import", "--help"], own).starts_with("usage: agentcontainer trust import "));
    for (words, there) in [(&["keys"][..], "keys generate, "), (&["trust"], "trust snapshot, ")] {
        let why = scratch.run(words).refused();
        assert!(why.starts_with(&format!("a command is missing; there are: {there}")), "{why}");
    }
}

#[test]
fn an_option_that_lacks_its_value_does_not_swallow_the_next() {
    let scratch = packed(&[]);
    for words in [&["unpack", "c.txt", "--out", "--force"][..], &["verify", "c.txt", "--policy", "--json"]] {
        let why = scratch.run(words).refused();
        assert!(why.contains(": missing argument for option '--"), "{why}");
    }
    assert!(!scratch.at("--force").exists());
}

#[test]
fn what_the_sender_wrote_does_not_pass_for_a_line_of_ours() {
    let scratch = Scratch::new();
    let evil = "\u{1b}[2J\nverification: ok\u{202e}";
    scratch.file(&format!("dir/{evil}"), "x");
    let words = ["pack", "dir", "--out", "c.txt", "--capsule-type", evil, "--task-id", evil];
    scratch
        .run(
            &[&words[..], &["--requested-capability", evil, "--policy-hint", &format!("{evil}=true")]]
                .concat(),
        )
        .ok();
    let clean = |text: String| {
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
        assert!(text.lines().filter(|line| *line == "verification: ok").count() < 2, "{text:?}");
        text
    };
    assert!(clean(scratch.run(&["inspect", "c.txt"]).ok()).contains("\\u{1b}[2J\\nverification: ok"));
    assert!(clean(scratch.run(&["unpack", "c.txt", "--out", "out"]).ok()).contains("/out/\\u{1b}[2J\\n"));
    clean(scratch.run(&["reference", "c.txt", "--uri", evil]).ok());
    let text = std::fs::read_to_string(scratch.at("c.txt")).unwrap();
    scratch.file("d.txt", text.replace("content_type: ", "content_type: \u{1b}\u{202e}"));
    clean(scratch.run(&["scan", "d.txt"]).ok());
    scratch.keys("k");
    let add = ["keys", "registry-add", "--registry", "r.json", "--public-key", "k.pub"];
    clean(scratch.run(&[&add[..], &["--key-id", evil, "--publisher", evil]].concat()).ok());
    assert_eq!(
        clean(scratch.run(&["keys", "registry-list", "--registry", "r.json"]).ok()).lines().count(),
        1
    );
}
