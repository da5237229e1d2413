//! Every difference that is meant, with its reason: nearly all of them make ours the stricter one. Both
//! behaviours are asserted: should the peer change, or ours grow lax, the case says so. The bundles' and the
//! packing's are beside their tables.

use crate::case::{Case, End};
use crate::draft::{bundle, manifest, Draft, BUNDLE, FILE, HELLO};
use crate::kit::Kit;
use crate::{bundles, packing};
use serde_json::json;

pub fn cases(kit: &Kit) -> Vec<Case> {
    let mut cases = bundles::stricter();
    cases.extend(packing::stricter());

    cases.extend(signatures(kit));
    cases.extend(repeated(kit));

    const CANONICAL: &str =
        "canonical base64: one payload has one spelling, without spare bits and surplus padding";
    let spare = Draft::new(b"hello", FILE).payload_text("aGVsbG9=").text();
    let padded = Draft::hello().payload_text("aGVsbG8K====").text();
    for (name, text) in [("spare bits", spare), ("surplus padding", padded)] {
        for command in ["verify m.txt", "unpack m.txt --out out"] {
            let case = Case::new(format!("base64 with {name}"), command).file("m.txt", &text);
            cases.push(case.apart(End::Done, End::Refused, "base64", CANONICAL));
        }
    }

    let lines: Vec<String> =
        Draft::hello().set("note", "x").hmac("a key").text().lines().map(String::from).collect();
    let headers = 1..lines.iter().position(|line| line.starts_with("-----PAYLOAD")).unwrap();
    for at in headers.start..headers.end - 1 {
        let mut swapped = lines.clone();
        swapped.swap(at, at + 1);
        let name = format!("lines {} and {} swapped", at + 1, at + 2);
        for command in ["verify m.txt --key-env KEY", "unpack m.txt --out out --key-env KEY", "inspect m.txt"]
        {
            let case = Case::new(&name, command).env("KEY", "a key").file("m.txt", swapped.join("\n"));
            cases.push(case.apart(End::Done, End::Refused, "misplaced", "swapped lines are damage"));
        }
    }
    let doubled = Draft::hello().text().replace("-----END", "-----END AGENT CAPSULE-----\n-----END");
    for command in ["verify m.txt", "unpack m.txt --out out"] {
        cases.push(Case::new("END doubled", command).file("m.txt", &doubled).apart(
            End::Done,
            End::Refused,
            "repeated",
            "doubled lines are damage",
        ));
    }

    let early = Draft::hello().set("note", "-----END AGENT CAPSULE-----").text();
    for command in ["verify m.txt", "unpack m.txt --out out"] {
        cases.push(Case::new("END among the headers", command).file("m.txt", &early).apart(
            End::Done,
            End::Refused,
            "end|boundary",
            "whoever looks for the first END finds another capsule",
        ));
    }

    let bytes = Draft::hello().text().into_bytes();
    let at = bytes.windows(6).position(|window| window == b"a test").unwrap();
    let mut broken = bytes;
    broken[at] = 0xff;
    for command in ["verify m.txt", "inspect m.txt", "unpack m.txt --out out", "scan m.txt"] {
        cases.push(Case::new("no UTF-8", command).file("m.txt", &broken).apart(
            End::Crashed,
            End::Refused,
            "utf-8",
            "the peer ends in a traceback",
        ));
    }
    for option in ["--policy", "--signature-registry"] {
        let case = Case::new(format!("no UTF-8 ({option})"), &format!("verify m.txt {option} latin"));
        cases.push(case.file("m.txt", Draft::hello().text()).file("latin", [0xff]).apart(
            End::Crashed,
            End::Refused,
            "latin",
            "the peer ends in a traceback",
        ));
    }
    cases.push(
        Case::new("both keys in one file", "keys generate --private-key same --public-key same --force")
            .random()
            .apart(End::Done, End::Refused, "two", "the public key overwrites the private one"),
    );
    let deep = format!("{}1{}", "{\"a\":".repeat(3000), "}".repeat(3000));
    cases.push(
        Case::new("a manifest nested deeply", "verify m.txt")
            .file("m.txt", Draft::hello().set("capsule_manifest", &deep).text())
            .apart(End::Crashed, End::Refused, "manifest", "the peer ends in a traceback"),
    );
    cases.push(
        Case::new("a policy nested deeply", "verify m.txt --policy policy.json")
            .file("m.txt", Draft::hello().text())
            .file("policy.json", "[".repeat(100_000))
            .apart(End::Crashed, End::Refused, "policy", "the peer ends in a traceback"),
    );
    let mut boolean = manifest();
    boolean["files"][0]["bytes"] = true.into();
    let boolean = Draft::hello().set("capsule_manifest", &boolean.to_string()).text();
    cases.push(Case::new("a size that is `true`", "verify m.txt").file("m.txt", boolean).apart(
        End::Done,
        End::Refused,
        "bytes",
        "`true` is no number",
    ));
    let not_a_number = manifest().to_string().replace("\"task_id\"", "\"more\":NaN,\"task_id\"");
    let not_a_number = Draft::new(HELLO, FILE).set("capsule_manifest", &not_a_number).text();
    cases.push(Case::new("NaN in a manifest", "verify m.txt --json").file("m.txt", not_a_number).apart(
        End::Done,
        End::Refused,
        "manifest",
        "NaN is no JSON; the peer prints it on",
    ));
    for (name, command) in [
        ("fingerprint", "keys fingerprint --public-key raw"),
        ("pack", "pack p.txt --out q.txt --sign-ed25519-key raw"),
    ] {
        let case =
            Case::new(format!("a raw key file ({name})"), command).file("raw", [0xff; 32]).file("p.txt", "1");
        cases.push(case.apart(End::Crashed, End::Refused, "key", "the peer ends in a traceback"));
    }
    cases
}

/// What a signature, or the want of one, is worth.
fn signatures(kit: &Kit) -> Vec<Case> {
    let mut cases = Vec::new();
    let run = |name: &str, command: &str, text: &str| {
        Case::new(name, command)
            .entries(&kit.entries)
            .file("m.txt", text)
            .env("K", crate::kit::SECRET)
            .env("EMPTY", "")
    };

    const MODE: &str =
        "a signature of a mode nobody knows cannot be called good; `verify` refuses it at both";
    let plain = Draft::hello().set("signature", "rsa").text();
    let signed = kit.text("hmac.txt").replacen("signature: hmac-sha256", "signature: hmac-sha251", 1);
    for (text, options) in [(plain, ""), (signed, "--key-env K")] {
        let name = "a signature mode nobody knows";
        let inspect = run(name, &format!("inspect m.txt --json {options}"), &text);
        cases.push(inspect.told("/verification_status", "ok", "failed", MODE));
        cases.push(run(name, "scan m.txt --json", &text).told("/invalid_capsules", "0", "1", MODE));
        cases.push(run(name, &format!("verify m.txt {options}"), &text).refused("signature mode"));
        cases.push(run(name, &format!("unpack m.txt --out out {options}"), &text).refused("signature mode"));
    }

    const PLAIN: &str =
        "the payload is neither compressed nor encrypted in this version: what claims it is not understood";
    for header in ["compression", "encryption"] {
        let text = Draft::hello().set(header, "gzip").text();
        let inspect = run(header, "inspect m.txt --json", &text);
        cases.push(inspect.told("/verification_status", "ok", "failed", PLAIN));
        cases.push(run(header, "scan m.txt --json", &text).told("/invalid_capsules", "0", "1", PLAIN));
        cases.push(run(header, "verify m.txt", &text).apart(End::Done, End::Refused, header, PLAIN));
        cases.push(run(header, "unpack m.txt --out out", &text).apart(
            End::Done,
            End::Refused,
            header,
            PLAIN,
        ));
    }

    let text = Draft::hello().hmac("").text();
    for command in ["verify m.txt --key-env EMPTY", "unpack m.txt --out out --key-env EMPTY"] {
        cases.push(run("an empty HMAC key", command, &text).apart(
            End::Done,
            End::Refused,
            "empty",
            "everybody knows an empty key",
        ));
    }

    const SCANNED: &str =
        "the peer's scan does not look at signatures: a changed capsule of a trusted key counts as valid";
    let registry = json!({"keys": [kit.entry()]}).to_string();
    let changed = kit.text("ed.txt").replacen("filename: p", "filename: q", 1);
    for options in ["", "--signature-registry registry.json"] {
        let case = run("a changed capsule scanned", &format!("scan m.txt --json {options}"), &changed);
        let case = case.file("registry.json", &registry);
        cases.push(case.told("/invalid_capsules", "0", "1", SCANNED));
    }
    let bare = kit.text("bare.txt").replacen("filename: p", "filename: q", 1);
    let case =
        run("a changed capsule scanned", "scan m.txt --json --signature-registry registry.json", &bare);
    cases.push(case.file("registry.json", &registry).told("/invalid_capsules", "0", "1", SCANNED));

    const BLANKS: &str =
        "mail and chat append blanks to lines; base64 does not mean them, so ours does not sign them";
    for (file, options) in
        [("hmac.txt", "--key-env K"), ("ed.txt", ""), ("bare.txt", "--ed25519-public-key k.pub")]
    {
        let text = kit.text(file);
        for text in [text.replacen("aGVsbG8K", "aGVsbG8K ", 1), text.replace('\n', "  \n")] {
            for command in ["verify m.txt", "unpack m.txt --out out"] {
                let case = run("blanks at line ends", &format!("{command} {options}"), &text);
                cases.push(case.apart(End::Refused, End::Done, "", BLANKS));
            }
            let inspect = run("blanks at line ends", &format!("inspect m.txt --json {options}"), &text);
            cases.push(inspect.told("/verification_status", "failed", "ok", BLANKS));
        }
    }

    const UNSIGNED: &str = "without a signature anybody can write down a trusted key's id";
    let policies = [
        ("signature_key_id", "trusted_signature_key_ids", "kid"),
        ("signature_public_key_fingerprint", "trusted_signature_key_fingerprints", &kit.key.1),
    ];
    for (header, field, value) in policies {
        let text = Draft::hello().set(header, value).text();
        let policy = json!({field: [value]}).to_string();
        for command in ["verify m.txt --policy policy.json", "unpack m.txt --out out --policy policy.json"] {
            let case = run("unsigned with a trusted name", command, &text).file("policy.json", &policy);
            cases.push(case.apart(End::Done, End::Refused, "unsigned|signature", UNSIGNED));
        }
    }

    const IN_FORCE: &str = "an event tells the policy that decided; the peer's tells the default one";
    let policy = "{\"allow_unsigned\":false}";
    for command in ["verify plain.txt", "inspect plain.txt", "unpack plain.txt --out out"] {
        let case = run(
            "the policy in a failure's event",
            &format!("{command} --audit-json --policy policy.json"),
            "",
        );
        let case = case.file("policy.json", policy).refused("unsigned");
        cases.push(case.told("/policy/allow_unsigned", "true", "false", IN_FORCE));
    }

    const UNPROVEN: &str =
        "without a signature there is no key that a registry could trust; `verify` refuses it at both";
    let policy = "{\"require_signature_registry\":true}";
    for (file, inspect_only) in [("plain.txt", false), ("hmac.txt", true)] {
        let name = "a registry is required";
        let inspect = run(name, &format!("inspect {file} --json --policy policy.json"), "");
        cases.push(inspect.file("policy.json", policy).told(
            "/verification_status",
            "ok",
            "failed",
            UNPROVEN,
        ));
        if !inspect_only {
            let scan = run(name, &format!("scan {file} --json --policy policy.json"), "");
            cases.push(scan.file("policy.json", policy).told("/invalid_capsules", "0", "1", UNPROVEN));
        }
    }

    const REVOKED: &str = "revoked wins, wherever it stands: the peer takes the first entry that fits";
    let mut revoked = kit.entry();
    revoked["status"] = "revoked".into();
    let mut elsewhere = kit.entry();
    elsewhere["key_id"] = "zed".into();
    for (command, keys) in [
        ("verify ed.txt", [kit.entry(), revoked.clone()]),
        ("inspect ed.txt", [kit.entry(), revoked.clone()]),
        ("verify bare.txt", [kit.entry(), revoked.clone()]),
        ("verify bare.txt", [elsewhere, revoked]),
    ] {
        let case = run(
            "a key trusted and revoked",
            &format!("{command} --json --signature-registry registry.json"),
            "",
        );
        let case = case.file("registry.json", json!({"keys": keys}).to_string());
        cases.push(case.told("/signature_trust/status", "trusted", "revoked", REVOKED));
    }
    cases
}

/// The same name twice in one JSON object.
fn repeated(kit: &Kit) -> Vec<Case> {
    const TWICE: &str =
        "the same name twice: who reads the first and who reads the last see different things";
    let twice = |text: String, name: &str| {
        let (start, end) = text.split_once(&format!("\"{name}\":")).unwrap();
        format!("{start}\"{name}\":\"first\",\"{name}\":{end}")
    };
    let registry = twice(json!({"keys": [kit.entry()]}).to_string(), "status");
    let manifest = twice(manifest().to_string(), "task_id");
    let files = twice(bundle(&[("a", b"1")]).to_string(), "path");
    [
        Case::new("repeated: manifest", "verify m.txt")
            .file("m.txt", Draft::hello().set("capsule_manifest", &manifest).text()),
        Case::new("repeated: policy", "verify plain.txt --policy p.json")
            .file("p.json", "{\"allow_unsigned\":false,\"allow_unsigned\":true}"),
        Case::new("repeated: registry", "verify ed.txt --signature-registry r.json").file("r.json", registry),
        Case::new("repeated: bundle", "unpack m.txt --out out")
            .file("m.txt", Draft::new(files.as_bytes(), BUNDLE).text()),
    ]
    .map(|case| {
        case.entries(&kit.entries).apart(End::Done, End::Refused, "manifest|policy|registry|bundle", TWICE)
    })
    .into()
}
