//! Agents in capsules.

use agentcontainer::capsule::{self, Payload, Policy};

use super::support::Scratch;

const AGENT: &str = "AGENT_ID = 'scout'\nAGENT_SECRET = 'a secret of its own'\nclass Agent:\n    pass\n";

#[test]
fn an_agent_travels_with_what_it_remembers_and_its_files() {
    let scratch = Scratch::new();
    let fingerprint = scratch.keys("dev");
    scratch.file("scout.py", AGENT);
    scratch.file("m.json", r#"{"seen":[1.0]}"#);
    scratch.file("files/z.txt", "z");
    scratch.file("files/sub/ü.bin", [0, 255]);
    scratch.file("files/__pycache__/x.pyc", "");
    let words = [
        "pack-agent",
        "scout.py",
        "--memory",
        "m.json",
        "--state",
        "files",
        "--requested-capability",
        "run",
        "--requested-capability",
        "read_file",
        "--sign-ed25519-key",
        "dev.key",
        "--signature-key-id",
        "dev",
        "--out",
        "a.txt",
    ];
    let printed = scratch.run_as(&words, |_| {}).ok();
    assert!(printed.starts_with("capsule path: a.txt\ncapsule bytes: "), "{printed}");

    let mail = format!("Please deploy:\r\n{}thanks", std::fs::read_to_string(scratch.at("a.txt")).unwrap());
    let opened = capsule::open(&mail, &Policy::default(), None).unwrap();
    let Payload::Bundle(files) = &opened.payload else { panic!("one file") };
    let paths: Vec<&str> = files.iter().map(|(path, _)| &**path).collect();
    assert_eq!(paths, ["agent.py", "memory.json", "state/z.txt", "state/sub/ü.bin"]);
    assert_eq!(opened.payload.get("memory.json"), Some(&br#"{"seen":[1.0]}"#[..]));
    let manifest = opened.manifest.as_ref().unwrap();
    assert_eq!(manifest.capsule_type, "agent");
    assert_eq!(manifest.requested_capabilities, ["run", "read_file"]);
    let signer = opened.signer.unwrap();
    assert_eq!((signer.key_id.as_deref(), &*signer.fingerprint), (Some("dev"), &*fingerprint));
    // What is sent on is the capsule alone, and its signature holds.
    assert_eq!(opened.text, std::fs::read_to_string(scratch.at("a.txt")).unwrap());
}

#[test]
fn what_is_no_agent_is_not_packed() {
    let scratch = Scratch::new();
    scratch.file("a.py", AGENT);
    scratch.file("x.py", "x = 1\n");
    scratch.file("secretless.py", "AGENT_ID = 'a'\n");
    scratch.file("list.json", "[]");
    let refused = |words: &[&str]| scratch.run_as(words, |_| {}).refused();
    let memory = refused(&["pack-agent", "a.py", "--memory", "list.json", "--out", "o"]);
    assert_eq!(memory, "the memory is an array, not an object");
    assert_eq!(refused(&["pack-agent", "a.py"]), "pack-agent: --out FILE is missing");
    let none = refused(&["pack-agent", "x.py", "--out", "o"]);
    assert!(none.starts_with("x.py: ") && none.contains("AGENT_ID"), "{none}");
    let half = refused(&["pack-agent", "secretless.py", "--out", "o"]);
    assert!(half.starts_with("secretless.py: ") && half.contains("AGENT_SECRET"), "{half}");
    let unknown = refused(&["pack-agent", "a.py", "--requested-capability", "fils", "--out", "o"]);
    assert_eq!(unknown, "no node has a capability \"fils\"; the nearest is \"files\"");
    for number in 0..=10_000 {
        scratch.file(&format!("many/{number}"), "");
    }
    let many = refused(&["pack-agent", "a.py", "--state", "many", "--out", "o"]);
    assert_eq!(many, "more than 10000 files, which no node takes: many");
    scratch.file("state/big", vec![0; 20 << 20]);
    let large = refused(&["pack-agent", "a.py", "--state", "state", "--out", "o"]);
    assert!(large.ends_with("bytes of a message, and 33488896 fit"), "{large}");
    // What a node would refuse is refused by the same reader, and nothing of it runs.
    let source = |text: &str| {
        scratch.file("b.py", text);
        refused(&["pack-agent", "b.py", "--out", "o"])
    };
    let no_id = "b.py: the source has no line AGENT_ID = ";
    assert!(source("open('ran', 'w')\n").starts_with(no_id) && source("").starts_with(no_id));
    assert!(source("AGENT_ID = 'x\n").starts_with("b.py: "));
    assert!(source("AGENT_ID = 'x'\nopen('ran', 'w')\n").contains("AGENT_SECRET"));
    for name in ["frob", ""] {
        let why = refused(&["pack-agent", "a.py", "--requested-capability", name, "--out", "o"]);
        assert!(why.starts_with(&format!("no node has a capability {name:?}")), "{why}");
    }
    let own = refused(&["pack-agent", "a.py", "--out", "./a.py"]);
    assert_eq!(own, "--out ./a.py would overwrite a.py");
    assert!(!scratch.at("ran").exists());
    assert!(!scratch.at("o").exists());
}
