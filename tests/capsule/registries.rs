//! Registries edited by command, and snapshots on their way to many receivers.

use super::support::Scratch;

fn signed() -> Scratch {
    let scratch = Scratch::new();
    scratch.keys("alice");
    scratch.file("note.txt", "hello\n");
    scratch
        .run(&[
            "pack",
            "note.txt",
            "--out",
            "c.txt",
            "--sign-ed25519-key",
            "alice.key",
            "--signature-key-id",
            "alice",
        ])
        .ok();
    scratch
}

fn trust(scratch: &Scratch, registry: &str) -> String {
    let report = scratch.run(&["verify", "c.txt", "--signature-registry", registry, "--json"]).json();
    report["signature_trust"]["status"].as_str().unwrap().to_owned()
}

#[test]
fn a_registry_is_begun_edited_and_listed_by_command() {
    let scratch = signed();
    let add =
        ["keys", "registry-add", "--registry", "r.json", "--key-id", "alice", "--public-key", "alice.pub"];
    scratch.run(&[&add[..], &["--publisher", "Alice & co"]].concat()).ok();
    assert_eq!(trust(&scratch, "r.json"), "trusted");
    assert!(scratch.run(&add).refused().contains("is in the registry already, as alice, trusted"));

    let other = scratch.keys("bob");
    let refused = scratch.run(&[
        "keys",
        "registry-add",
        "--registry",
        "r.json",
        "--key-id",
        "alice",
        "--public-key",
        "bob.pub",
    ]);
    assert_eq!(refused.refused(), "the registry has another key with the id alice");
    scratch
        .run(&["keys", "registry-add", "--registry", "r.json", "--key-id", "bob", "--public-key", "bob.pub"])
        .ok();
    scratch
        .run(&["keys", "registry-revoke", "--registry", "r.json", "--key-id", "alice", "--note", "lost"])
        .ok();
    assert_eq!(trust(&scratch, "r.json"), "revoked");
    let listed = scratch.run(&["keys", "registry-list", "--registry", "r.json"]).ok();
    assert!(listed.starts_with("revoked\talice\t"), "{listed}");
    assert!(listed.ends_with(&format!("trusted\tbob\t{other}\t-\n")), "{listed}");
    let nobody = scratch.run(&["keys", "registry-revoke", "--registry", "r.json", "--key-id", "carol"]);
    assert_eq!(nobody.refused(), "the registry has no such key");
}

#[test]
fn fields_that_are_not_known_outlive_an_edit() {
    let scratch = signed();
    let entry = scratch
        .run(&["keys", "registry-entry", "--key-id", "alice", "--public-key", "alice.pub", "--json"])
        .ok();
    let entry = entry.trim().replacen('{', r#"{"contact":{"mail":"a@b"},"#, 1);
    scratch.file("r.json", format!(r#"{{"keys":[{entry}],"site":[1.0]}}"#));
    scratch.run(&["keys", "registry-revoke", "--registry", "r.json", "--key-id", "alice"]).ok();
    let text = std::fs::read_to_string(scratch.at("r.json")).unwrap();
    assert!(text.contains(r#""contact":{"mail":"a@b"}"#) && text.contains(r#""site":[1.0]"#), "{text}");
}

#[test]
fn edits_at_once_lose_nothing() {
    let scratch = Scratch::new();
    let names: Vec<String> = (0..8).map(|n| format!("key{n}")).collect();
    for name in &names {
        scratch.keys(name);
    }
    std::thread::scope(|scope| {
        for name in &names {
            let scratch = &scratch;
            scope.spawn(move || {
                let public = format!("{name}.pub");
                let words = [
                    "keys",
                    "registry-add",
                    "--registry",
                    "r.json",
                    "--key-id",
                    name,
                    "--public-key",
                    &public,
                ];
                scratch.run(&words).ok();
            });
        }
    });
    let listed = scratch.run(&["keys", "registry-list", "--registry", "r.json"]).ok();
    assert_eq!(listed.lines().count(), names.len(), "{listed}");
}

#[test]
fn a_snapshot_carries_trust_and_revocation_to_a_receiver() {
    let scratch = signed();
    scratch.keys("issuer");
    scratch.keys("local");
    let add = |registry: &str, name: &str| {
        let public = format!("{name}.pub");
        scratch
            .run(&["keys", "registry-add", "--registry", registry, "--key-id", name, "--public-key", &public])
            .ok();
    };
    let snapshot = |more: &[&str]| {
        let words = [
            "trust",
            "snapshot",
            "--registry",
            "central.json",
            "--issuer",
            "hq",
            "--key",
            "issuer.key",
            "--out",
            "s.json",
        ];
        scratch.run(&[&words[..], more].concat()).ok();
    };
    let import = || {
        scratch.run(&[
            "trust",
            "import",
            "--snapshot",
            "s.json",
            "--issuer-key",
            "issuer.pub",
            "--registry",
            "mine.json",
        ])
    };
    add("central.json", "alice");
    add("mine.json", "local");
    snapshot(&[]);
    let first = std::fs::read(scratch.at("s.json")).unwrap();
    import().ok();
    assert_eq!(trust(&scratch, "mine.json"), "trusted");
    import().ok(); // the same once more changes nothing

    std::thread::sleep(std::time::Duration::from_millis(2)); // the sequence is the time
    scratch.run(&["keys", "registry-revoke", "--registry", "central.json", "--key-id", "alice"]).ok();
    snapshot(&[]);
    import().ok();
    assert_eq!(trust(&scratch, "mine.json"), "revoked");
    let listed = scratch.run(&["keys", "registry-list", "--registry", "mine.json"]).ok();
    assert_eq!(listed.lines().count(), 2, "{listed}");
    assert!(listed.starts_with("revoked"), "for readers that take the first: {listed}");

    let before = std::fs::read(scratch.at("mine.json")).unwrap();
    scratch.file("s.json", &first);
    assert!(import().refused().contains("is lower than"), "the older one would bring the key back");
    snapshot(&["--expires-in-days", "0"]);
    assert!(import().refused().starts_with("the snapshot expired at "));
    scratch.keys("mallory");
    scratch
        .run(&[
            "trust",
            "snapshot",
            "--registry",
            "central.json",
            "--issuer",
            "hq",
            "--key",
            "mallory.key",
            "--out",
            "s.json",
        ])
        .ok();
    assert_eq!(import().refused(), "the snapshot is signed with another issuer's key");
    scratch
        .run(&[
            "trust",
            "snapshot",
            "--registry",
            "central.json",
            "--issuer",
            "branch",
            "--key",
            "issuer.key",
            "--out",
            "s.json",
        ])
        .ok();
    assert_eq!(import().refused(), "the snapshot is of branch, and the registry takes those of hq");
    snapshot(&[]);
    let forged = std::fs::read_to_string(scratch.at("s.json")).unwrap().replace("revoked", "trusted");
    scratch.file("s.json", forged);
    assert_eq!(import().refused(), "snapshot signature verification failed");
    assert_eq!(std::fs::read(scratch.at("mine.json")).unwrap(), before);
}

#[test]
fn a_key_revoked_by_the_receiver_stays_revoked_whatever_is_imported() {
    let scratch = signed();
    scratch.keys("issuer");
    let run = |line: &str| scratch.run(&line.split(' ').collect::<Vec<_>>());
    run("keys registry-add --registry central.json --key-id alice --public-key alice.pub").ok();
    let snapshot =
        "trust snapshot --registry central.json --issuer hq --key issuer.key --out s.json --sequence";
    let import = || run("trust import --snapshot s.json --issuer-key issuer.pub --registry mine.json");
    run(&format!("{snapshot} 1")).ok();
    assert!(import().ok().starts_with("imported keys: 1\n"));
    run("keys registry-revoke --registry mine.json --key-id alice --note stolen").ok();
    for sequence in 2..4 {
        run(&format!("{snapshot} {sequence}")).ok();
        import().ok();
        assert_eq!(trust(&scratch, "mine.json"), "revoked");
    }
    assert_eq!(run("keys registry-list --registry mine.json").ok().lines().count(), 2);
}

#[test]
fn a_snapshot_overwrites_nothing_that_it_reads_and_numbers_are_not_bent() {
    let scratch = signed();
    scratch.keys("issuer");
    let run = |line: &str| scratch.run(&line.split(' ').collect::<Vec<_>>());
    run("keys registry-add --registry r.json --key-id alice --public-key alice.pub").ok();
    let snapshot = "trust snapshot --registry r.json --issuer hq --key issuer.key --out";
    let before =
        (std::fs::read(scratch.at("r.json")).unwrap(), std::fs::read(scratch.at("issuer.key")).unwrap());
    assert_eq!(run(&format!("{snapshot} ./r.json")).refused(), "--out ./r.json would overwrite r.json");
    assert_eq!(
        run(&format!("{snapshot} issuer.key")).refused(),
        "--out issuer.key would overwrite issuer.key"
    );
    assert_eq!(
        (std::fs::read(scratch.at("r.json")).unwrap(), std::fs::read(scratch.at("issuer.key")).unwrap()),
        before
    );
    for (option, most) in [("--expires-in-days", "36500"), ("--sequence", "9223372036854775807")] {
        for wrong in ["9223372036854775808", "-1", "x"] {
            let why = run(&format!("{snapshot} s.json {option} {wrong}")).refused();
            assert_eq!(why, format!("{option} is a number from 0 to {most}, and not {wrong}"));
        }
    }
    // What is no file is written to, and not replaced.
    let made = std::process::Command::new("mkfifo").arg(scratch.at("pipe")).status().unwrap();
    assert!(made.success());
    let pipe = scratch.at("pipe");
    let reader = std::thread::spawn(move || std::fs::read_to_string(pipe).unwrap());
    run(&format!("{snapshot} pipe")).ok();
    assert!(reader.join().unwrap().starts_with("{\"created_at\""));
    use std::os::unix::fs::FileTypeExt;
    assert!(scratch.at("pipe").symlink_metadata().unwrap().file_type().is_fifo());
}

#[test]
fn what_a_killed_edit_left_goes_with_the_next() {
    let scratch = signed();
    scratch.file(".r.json.4711", "{");
    scratch.file(".r.json.bak", "mine");
    scratch.file(".other.json.4711", "");
    scratch
        .run(&["keys", "registry-add", "--registry", "r.json", "--key-id", "a", "--public-key", "alice.pub"])
        .ok();
    let there = [".r.json.4711", ".r.json.bak", ".other.json.4711"].map(|name| scratch.at(name).exists());
    assert_eq!(there, [false, true, true]);
}

#[test]
fn another_key_of_the_same_issuer_is_told_by_its_fingerprint() {
    let scratch = signed();
    let run = |line: &str| scratch.run(&line.split(' ').collect::<Vec<_>>());
    run("keys registry-add --registry r.json --key-id alice --public-key alice.pub").ok();
    let import = |name: &str| {
        run(&format!("trust snapshot --registry r.json --issuer hq --key {name}.key --out s.json")).ok();
        run(&format!("trust import --snapshot s.json --issuer-key {name}.pub --registry mine.json"))
    };
    let (old, new) = (scratch.keys("old"), scratch.keys("new"));
    import("old").ok();
    let why = import("new").refused();
    assert!(why.contains(&old) && why.contains(&new), "{why}");
}
