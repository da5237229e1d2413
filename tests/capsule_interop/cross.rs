//! What one makes the other takes.

use crate::case::{left, Case};
use crate::place::{Entry, Node, Program, Tree};
use crate::Bench;
use serde_json::{json, Value};
use std::path::{Path, PathBuf};

/// Packs with both, then inspects, verifies, scans and unpacks each one's capsule with each.
pub fn packs(bench: &Bench) {
    let every: Vec<u8> = (0..=255).collect();
    let tree: Vec<(String, Entry)> = [
        ("w/README.md", b"# read me\n".to_vec()),
        ("w/data/every", every.clone()),
        ("w/data/empty", vec![]),
        ("w/deep/er/and/deeper/still", b"down here\n".to_vec()),
        ("w/Ünï/日本 😀.txt", "Zoë\n".into()),
        ("w/.hidden", b"1".to_vec()),
        ("w/big", (0..200_000u32).map(|n| ((n * 7919) >> 5) as u8).collect()),
        ("w/__pycache__/left.out", b"x".to_vec()),
        ("every", every),
        ("empty", vec![]),
        ("日本 😀", b"name\n".to_vec()),
    ]
    .map(|(path, content)| (path.to_owned(), Entry::File(content)))
    .into_iter()
    .chain([("w/void".to_owned(), Entry::Dir), ("void".to_owned(), Entry::Dir)])
    .collect();

    let registry = json!({"keys": [bench.kit.entry()]}).to_string();
    let mut wrong = Vec::new();
    for (what, pack, read) in [
        ("every", "", ""),
        ("empty", "--sign-key-env K", "--key-env K"),
        ("日本 😀", "--sign-ed25519-key k.key", ""),
        ("w", "", ""),
        ("void", "--task-id T", ""),
        ("w", "--sign-key-env K --signature-key-id kid --delivery-mode attachment", "--key-env K"),
        ("w", "--sign-ed25519-key k.key --signature-key-id kid", ""),
        ("w", "--sign-ed25519-key k.key --signature-key-id kid", "--signature-registry registry.json"),
        ("w", "--sign-ed25519-key k.key --no-inline-public-key", "--ed25519-public-key k.pub"),
        ("every", "--sign-ed25519-key k.key --no-inline-public-key --signature-key-id kid", "--signature-registry registry.json"),
        ("w", "--capsule-type report --created-by Zoë --requested-capability a --policy-hint b=true --delivery-mode reference --delivery-uri u", ""),
    ] {
        let name = format!("cross: {what} {pack}");
        let case = Case::new(&*name, "pack --out capsule.txt")
            .words(pack)
            .arg(what)
            .entries(&tree)
            .entries(&bench.kit.entries)
            .env("K", crate::kit::SECRET);
        let (peer, ours) = bench.both(&case);
        let Some(capsules) = left(&peer, "capsule.txt").zip(left(&ours, "capsule.txt")) else {
            wrong.push(format!("{name}: not packed\n  peer: {}\n  ours: {}", peer.stderr, ours.stderr));
            continue;
        };
        let mut made = vec![("the peer", capsules.0)];
        if capsules.0 != capsules.1 {
            wrong.push(case.differences(&peer, &ours));
            made.push(("ours", capsules.1));
        }
        for (maker, capsule) in made {
            for command in ["inspect m.txt --json", "verify m.txt --json", "scan m.txt --json", "unpack m.txt --out out"] {
                let read = if command.starts_with("scan") && !read.contains("registry") { "" } else { read };
                let case = Case::new(format!("{name}, made by {maker}"), command)
                    .words(read)
                    .entries(&bench.kit.entries)
                    .file("registry.json", &registry)
                    .file("m.txt", capsule)
                    .env("K", crate::kit::SECRET);
                let (peer, ours) = bench.both(&case);
                wrong.push(case.differences(&peer, &ours));
                if command.starts_with("unpack") {
                    let (got, sent) = (files_below(&ours.after, "out"), original(&tree, what));
                    if got != sent {
                        wrong.push(format!("{name}, made by {maker}: unpacked are {:?}", got.keys()));
                    }
                }
            }
        }
    }
    wrong.retain(|difference| !difference.is_empty());
    assert!(wrong.is_empty(), "{} differences:\n\n{}", wrong.len(), wrong.join("\n"));
}

/// The files of a tree below a directory, by their path from there.
fn files_below(tree: &Tree, dir: &str) -> std::collections::BTreeMap<PathBuf, Vec<u8>> {
    tree.iter()
        .filter_map(|(path, node)| match node {
            Node::File(_, bytes) => Some((path.strip_prefix(dir).ok()?.to_owned(), bytes.clone())),
            _ => None,
        })
        .collect()
}

/// What must come out again: one file under its name, or a directory's files.
fn original(tree: &[(String, Entry)], what: &str) -> std::collections::BTreeMap<PathBuf, Vec<u8>> {
    tree.iter()
        .filter(|(path, _)| !path.contains("__pycache__"))
        .filter_map(|(path, entry)| {
            let Entry::File(bytes) = entry else { return None };
            let inside = match path.strip_prefix(what)? {
                "" => path,
                rest => rest.strip_prefix('/')?,
            };
            Some((PathBuf::from(inside), bytes.clone()))
        })
        .collect()
}

/// The warm peer does what the peer does.
pub fn warmth(bench: &Bench, started: &Program) {
    let place = bench.dir.path().join("box");
    let mut entries = bench.kit.entries.clone();
    entries.push(("latin".into(), Entry::File(vec![0xff])));
    for command in [
        "",
        "codecs --json",
        "verify ed.txt --json",
        "verify hmac.txt",
        "verify hmac.txt --key-env K",
        "inspect plain.txt",
        "scan ed.txt --audit-json",
        "unpack tree.txt --out x/y",
        "verify latin",
        "verify nothing.txt",
        "keys registry-entry --key-id a --public-key k.pub --note é",
        "keys fingerprint",
    ] {
        let args: Vec<_> = command.split(' ').filter(|word| !word.is_empty()).map(Into::into).collect();
        let env = [("K".to_owned(), crate::kit::SECRET.to_owned())];
        let of = |program: &Program| {
            let ran = program.run(&place, &entries, &env, &args);
            // A traceback names other frames; its last line is the same.
            let said = match ran.status {
                Some(1) => ran.stderr.lines().last().unwrap_or_default().to_owned(),
                _ => ran.stderr,
            };
            (ran.status, ran.stdout, said, ran.after == ran.before)
        };
        assert_eq!(of(&bench.peer), of(started), "{command}");
    }
}

/// A pair of keys made by either signs, verifies and is entered with both.
pub fn keys(bench: &Bench) {
    let programs = [("peer", &bench.peer), ("ours", &bench.ours)];
    let place = bench.dir.path().join("box");
    let step = |program: &Program, entries: &[(String, Entry)], command: &str| {
        let args: Vec<_> = command.split(' ').map(Into::into).collect();
        let ran = program.run(&place, entries, &[], &args);
        assert_eq!((ran.status, &*ran.stderr), (Some(0), ""), "{command}");
        ran
    };
    for (maker, program) in programs {
        let ran = step(program, &[], "keys generate --private-key n.key --public-key n.pub");
        let mut entries: Vec<(String, Entry)> = vec![("p.txt".into(), Entry::File(b"hello\n".to_vec()))];
        for (name, mode) in [("n.key", 0o600), ("n.pub", 0o644)] {
            let Some(Node::File(found, bytes)) = ran.after.get(Path::new(name)) else {
                panic!("{maker} made no {name}")
            };
            assert_eq!((*found, bytes.len(), bytes.last()), (mode, 45, Some(&b'\n')), "{name} of {maker}");
            entries.push((name.into(), Entry::Mode(bytes.clone(), mode)));
        }
        let said: Vec<String> = programs
            .iter()
            .map(|(_, reader)| step(reader, &entries, "keys fingerprint --public-key n.pub").stdout)
            .collect();
        assert_eq!(said[0], said[1], "fingerprint of a key of {maker}");
        assert!(ran.stdout.ends_with(&said[0]), "{maker} said {:?} about {:?}", ran.stdout, said[0]);
        for (signer, signing) in programs {
            let signed = step(
                signing,
                &entries,
                "pack p.txt --out c.txt --sign-ed25519-key n.key --signature-key-id n",
            );
            let registry =
                step(signing, &entries, "keys registry-entry --key-id n --public-key n.pub --publisher N")
                    .stdout;
            let mut entries = entries.clone();
            entries.push(("c.txt".into(), Entry::File(left(&signed, "c.txt").unwrap().to_vec())));
            entries.push(("r.json".into(), Entry::File(registry.into())));
            for (reader, reading) in programs {
                let verified =
                    step(reading, &entries, "verify c.txt --json --signature-registry r.json").stdout;
                let verified: Value = serde_json::from_str(&verified).unwrap();
                let trust = &verified["signature_trust"];
                assert_eq!(
                    (&verified["signature_verification"], &trust["status"], &trust["publisher"]),
                    (&json!("ok"), &json!("trusted"), &json!("N")),
                    "key of {maker}, capsule of {signer}, read by {reader}"
                );
            }
        }
    }
}

/// `agentcapsule` and `capsule` are links; `agentcontainer capsule` is the long way.
pub fn names(bench: &Bench) {
    let place = bench.dir.path().join("box");
    let short = bench.dir.path().join("capsule");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_agentcontainer"), &short).unwrap();
    let short = Program::Started(short);
    let long = Program::Started(env!("CARGO_BIN_EXE_agentcontainer").into());
    for command in [
        "verify plain.txt --json",
        "inspect ed.txt",
        "scan nothing.txt",
        "codecs --json",
        "unpack tree.txt --out out",
    ] {
        let words: Vec<std::ffi::OsString> = command.split(' ').map(Into::into).collect();
        let with = |program: &Program, first: &[&str]| {
            let args: Vec<_> = first.iter().map(Into::into).chain(words.iter().cloned()).collect();
            let ran = program.run(&place, &bench.kit.entries, &[], &args);
            (ran.status, ran.stdout, ran.stderr)
        };
        let expected = with(&bench.ours, &[]);
        assert_eq!(with(&short, &[]), expected, "{command}");
        let whole = with(&long, &["capsule"]);
        assert_eq!((whole.0, &whole.1), (expected.0, &expected.1), "{command}");
    }
}
