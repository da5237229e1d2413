//! What is printed beside the judgement: descriptors, codecs, inspection in words, audit events, usage.

use crate::case::Case;
use crate::draft::{Draft, FILE};
use crate::kit::{Kit, SECRET};
use crate::place::Entry;
use serde_json::json;

pub fn cases(kit: &Kit) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut revoked = kit.entry();
    revoked["status"] = "revoked".into();
    let registry = |keys: serde_json::Value| json!({"keys": keys}).to_string();
    let mixed = format!("mail\n{}{}", kit.text("plain.txt"), kit.text("hmac.txt"));
    let run = |name: &str, command: &str| {
        Case::new(format!("report: {name}"), command)
            .entries(&kit.entries)
            .file("trusted.json", registry(json!([kit.entry()])))
            .file("revoked.json", registry(json!([revoked])))
            .file("empty.json", registry(json!([])))
            .file("wrong.txt", Draft::hello().set("payload_sha256", &"a".repeat(64)).text())
            .file("rsa.txt", Draft::hello().set("signature", "rsa").text())
            .file("crlf.txt", kit.text("plain.txt").replace('\n', "\r\n"))
            .file("mail.txt", &mixed)
            .file("full.txt", full())
            .file("strict.json", "{\"allow_unsigned\":false,\"max_payload_bytes\":7}")
            .file("bad.json", "{\"foo\":1}")
            .entry("dir", Entry::Dir)
            .env("K", SECRET)
            .env("WRONG", "x")
    };

    cases.push(run("codecs", "codecs").carriers());
    cases.push(run("codecs", "codecs --json").carriers());
    for file in [
        "plain.txt",
        "hmac.txt",
        "ed.txt",
        "bare.txt",
        "tree.txt",
        "wrong.txt",
        "full.txt",
        "mail.txt",
        "crlf.txt",
    ] {
        cases.push(run("reference", &format!("reference {file} --uri https://x.example/c.txt")));
        cases.push(run("reference", &format!("reference {file} --uri https://x.example/c.txt --json")));
    }
    cases.push(run("reference to anywhere", "reference plain.txt --json --uri").arg("ü 😀"));
    cases.push(run("reference of nothing", "reference nothing.txt --uri u").refused("nothing.txt"));
    cases.push(run("reference of no capsule", "reference p.txt --uri u").refused("begin"));
    cases.push(run("reference without uri", "reference plain.txt").refused("--uri"));

    for (file, options) in [
        ("plain.txt", ""),
        ("tree.txt", ""),
        ("full.txt", ""),
        ("wrong.txt", ""),
        ("hmac.txt", ""),
        ("hmac.txt", "--key-env K"),
        ("hmac.txt", "--key-env WRONG"),
        ("hmac.txt", "--key-env UNSET"),
        ("ed.txt", ""),
        ("ed.txt", "--ed25519-public-key o.pub"),
        ("ed.txt", "--signature-registry trusted.json"),
        ("ed.txt", "--signature-registry revoked.json"),
        ("ed.txt", "--signature-registry empty.json"),
        ("anon.txt", ""),
        ("bare.txt", ""),
        ("bare.txt", "--signature-registry trusted.json"),
    ] {
        cases.push(run("inspect", &format!("inspect {file} {options}")));
        cases.push(run("inspect", &format!("inspect {file} {options} --json")));
    }
    for text in [
        "verify plain.txt",
        "verify ed.txt",
        "verify hmac.txt --key-env K",
        "verify tree.txt",
        "unpack tree.txt --out out",
        "unpack ed.txt --out x/y",
    ] {
        cases.push(run("in words", text));
    }
    cases.push(
        run("codec nobody here has, in words", "inspect odd.txt --policy any.json")
            .file("odd.txt", Draft::new(b"1", FILE).set("codec", "rot13").text())
            .file("any.json", "{\"require_known_codec\":false}"),
    );

    for operation in ["inspect", "verify", "unpack --out out", "scan"] {
        let scan = operation == "scan";
        let inspect = operation == "inspect";
        let mut event = |arguments: &str, refusal: Option<&'static str>| {
            let (verb, rest) = operation.split_once(' ').unwrap_or((operation, ""));
            let case = run("event", &format!("{verb} {arguments} {rest} --audit-json"));
            cases.push(match refusal {
                Some(word) => case.refused(word),
                None => case,
            });
        };
        let unless = |passes: bool, word: &'static str| if passes { None } else { Some(word) };
        event("plain.txt", None);
        event("./plain.txt", None);
        event("tree.txt", None);
        event("full.txt", None);
        event("ed.txt", None);
        event("anon.txt", None);
        for registry in ["trusted", "revoked", "empty"] {
            event(&format!("ed.txt --signature-registry {registry}.json"), None);
        }
        event("named.txt --signature-registry trusted.json", None);
        event("named.txt --signature-registry revoked.json", None);
        event("bare.txt", unless(inspect || scan, "public key"));
        event("named.txt --signature-registry empty.json", unless(inspect || scan, "public key"));
        event("hmac.txt", unless(inspect || scan, "--key-env"));
        event("wrong.txt", unless(inspect || scan, "sha256"));
        if !scan && !inspect {
            event("rsa.txt", Some("rsa"));
        }
        if !scan {
            event("hmac.txt --key-env K", None);
            event("hmac.txt --key-env WRONG", unless(inspect, "signature"));
            event("hmac.txt --key-env UNSET", unless(inspect, "UNSET"));
            event("ed.txt --ed25519-public-key o.pub", unless(inspect, "fingerprint"));
        }
        event("plain.txt --policy strict.json", unless(scan, "unsigned"));
        event("ed.txt --policy strict.json", None);
        event("plain.txt --policy bad.json", Some("foo"));
        event("plain.txt --policy nothing.json", Some("nothing.json"));
        event("plain.txt --signature-registry bad.json", Some("keys"));
        event("plain.txt --signature-registry nothing.json", Some("nothing.json"));
        event("nothing.txt", Some("nothing.txt"));
        event("p.txt", unless(scan, "begin"));
        event("dir", Some("directory"));
    }
    cases.push(run("event and JSON", "verify plain.txt --json --audit-json"));
    cases.push(run("event and JSON", "inspect plain.txt --audit-json --json"));
    cases.push(run("event and JSON", "scan plain.txt --audit-json --json"));

    for (command, word) in [
        ("", "command"),
        ("bogus", "bogus"),
        ("verify", "capsule|file"),
        ("verify plain.txt extra", "extra"),
        ("verify --bogus plain.txt", "--bogus"),
        ("verify plain.txt --policy", "--policy"),
        ("inspect", "capsule|file"),
        ("unpack plain.txt", "--out"),
        ("unpack plain.txt --out out --json", "--json"),
        ("scan", "file"),
        ("scan plain.txt --key-env K", "--key-env"),
        ("codecs extra", "extra"),
        ("keys", "keys"),
        ("keys bogus", "bogus"),
    ] {
        cases.push(run("usage", command).refused(word));
    }
    cases.push(run("options first", "verify --json --key-env K hmac.txt"));
    cases.push(run("options cut short", "verify --js --key K hmac.txt"));
    cases.push(run("an option cut too short", "verify plain.txt --s").refused("--s"));
    cases.push(run("options twice", "verify --json --json plain.txt"));
    cases.push(run("options with =", "verify hmac.txt --key-env=K --json"));
    cases.push(run("after --", "verify --json -- plain.txt"));
    cases
}

/// A capsule in which every line of an inspection has something to show.
fn full() -> String {
    let mut manifest = crate::draft::manifest();
    manifest["delivery"] = json!({"mode": "reference", "uri": "https://x.example/ü"});
    manifest["task_id"] = json!("T 1");
    manifest["requested_capabilities"] = json!(["read_files", "run_tests"]);
    manifest["policy_hints"]["more"] = json!(true);
    Draft::hello()
        .set("capsule_manifest", &manifest.to_string())
        .set("created_by", "Zoë 😀")
        .set("filename", "p.txt")
        .set("lmcodec_ngram_order", "3")
        .set("note", "x")
        .text()
}
