//! Signatures: every header changed, removed and swapped, and the keys a receiver may hold.

use crate::case::Case;
use crate::draft::{bundle, bundle_capsule, Draft, BUNDLE};
use crate::judge::judged;
use crate::judge::Verdict::{self, Good, Invalid, Unproven, Unreadable};
use crate::kit::{Kit, SECRET};
use crate::place::Entry;
use hmac::{Hmac, KeyInit, Mac};

const REQUIRED: [&str; 10] = [
    "capsule_version",
    "codec",
    "content_type",
    "payload_sha256",
    "compression",
    "encryption",
    "signature",
    "created_by",
    "created_at",
    "policy",
];

/// Capsules that were signed and then touched.
pub fn changed(kit: &Kit) -> Vec<Case> {
    let mut cases = Vec::new();
    for (file, options) in [
        ("hmac.txt", "--key-env K"),
        ("ed.txt", ""),
        ("bare.txt", "--ed25519-public-key k.pub"),
        ("named.txt", "--signature-registry r.json"),
    ] {
        let registry = serde_json::json!({"keys": [kit.entry()]}).to_string();
        let around = [
            ("k.pub".to_owned(), Entry::File(kit.text("k.pub").into())),
            ("r.json".to_owned(), Entry::File(registry.into())),
        ];
        for (name, text, verdict) in touched(&kit.text(file)) {
            cases.extend(judged(&format!("changed {file}: {name}"), text, &around, options, verdict));
        }
    }
    cases
}

/// Every way to touch this capsule, and what must come of it.
fn touched(text: &str) -> Vec<(String, String, Verdict)> {
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let end = lines.iter().position(|line| line == "-----PAYLOAD-----").unwrap();
    let headers: Vec<(String, String)> = lines[1..end]
        .iter()
        .map(|line| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned())).unwrap())
        .collect();
    let hmac = headers.iter().any(|(_, value)| value == "hmac-sha256");
    let inline = headers.iter().any(|(name, _)| name == "signature_public_key");
    let join = |lines: &[String]| lines.join("\n") + "\n";
    let mut rows = vec![("not at all".to_owned(), text.to_owned(), Good)];

    for (index, (name, value)) in headers.iter().enumerate() {
        let mut without = lines.clone();
        without.remove(index + 1);
        let verdict = match name.as_str() {
            name if REQUIRED.contains(&name) => {
                Unreadable(REQUIRED.iter().find(|known| **known == name).unwrap())
            }
            "signature_public_key" => Unproven("public key"),
            "signature_public_key_encoding" => Invalid("public key"),
            "signature_public_key_fingerprint" => Invalid("fingerprint"),
            _ => Invalid("signature"),
        };
        rows.push((format!("{name} removed"), join(&without), verdict));

        // A mode nobody knows is judged differently by `inspect`: see `differences`.
        if name == "signature" {
            continue;
        }
        let mut other = lines.clone();
        let last = value.chars().last().unwrap();
        let kept = &value[..value.len() - last.len_utf8()];
        other[index + 1] = format!("{name}: {kept}{}", if last == '1' { '2' } else { '1' });
        let verdict = match name.as_str() {
            "capsule_version" => Unreadable("version"),
            "codec" => Unreadable("codec"),
            "content_type" => Unreadable("content type"),
            "capsule_manifest" => Unreadable("manifest"),
            "signature_public_key" | "signature_public_key_encoding" => Invalid("public key"),
            "signature_public_key_fingerprint" => Invalid("fingerprint"),
            _ => Invalid("signature"),
        };
        // Of a registry's keys another id or fingerprint names none.
        let named = !inline && headers.iter().any(|(name, _)| name == "signature_key_id");
        let names = ["signature_key_id", "signature_public_key_fingerprint"].contains(&&**name);
        let verdict = if named && names && !hmac { Unproven("public key") } else { verdict };
        rows.push((format!("{name} changed"), join(&other), verdict));
    }

    let value = |wanted: &str| &headers.iter().find(|(name, _)| name == wanted).unwrap().1;
    let swap = |a: &str, b: &str| {
        text.replacen(&format!("\n{a}: {}\n", value(a)), &format!("\n{a}: {}\n", value(b)), 1).replacen(
            &format!("\n{b}: {}\n", value(b)),
            &format!("\n{b}: {}\n", value(a)),
            1,
        )
    };
    let mut row = |name: &str, text: String, verdict| rows.push((name.to_owned(), text, verdict));
    row("values of two headers swapped", swap("created_by", "filename"), Invalid("signature"));
    row("values of two others swapped", swap("created_by", "policy"), Invalid("signature"));
    row("a header more", text.replacen("-----PAYLOAD", "note: x\n-----PAYLOAD", 1), Invalid("signature"));
    row(
        "manifest changed",
        text.replacen("network_egress\":false", "network_egress\":true", 1),
        Invalid("signature"),
    );
    row("payload changed", text.replacen("aGVsbG8K", "aGVsbG8L", 1), Invalid("signature"));
    row(
        "unsigned, the rest kept",
        text.replacen(&format!("signature: {}", value("signature")), "signature: none", 1),
        Good,
    );
    let unsigned: Vec<String> = lines
        .iter()
        .filter(|line| !line.starts_with("signature_"))
        .map(|line| if line.starts_with("signature: ") { "signature: none".into() } else { line.clone() })
        .collect();
    row("the signature removed", join(&unsigned), Good);
    row("signature_value cut", text.replacen(value("signature_value"), "AAAA", 1), Invalid("signature"));
    row("signature_value nonsense", text.replacen(value("signature_value"), "!!!!", 1), Invalid("signature"));
    row("CRLF", text.replace('\n', "\r\n"), Good);
    row("byte order mark", format!("\u{feff}{text}"), Good);
    row("no last newline", text.trim_end().to_owned(), Good);
    row("blanks around values", text.replace(": ", ":   "), Good);
    row("a blank line", text.replacen("codec", "\ncodec", 1), Good);
    row("in a mail", format!("Hello,\n{text}\nbye\n"), Good);
    row("quoted", format!("> {}", text.replace('\n', "\n> ")), Unreadable(">"));
    row("payload folded", text.replacen("aGVsbG8K", "aGVs\nbG8K", 1), Invalid("signature"));
    if value("signature") == "ed25519" {
        row(
            "said to be HMAC",
            text.replacen("signature: ed25519", "signature: hmac-sha256", 1),
            Unproven("--key-env"),
        );
        row(
            "fingerprint in capitals",
            text.replacen(
                value("signature_public_key_fingerprint"),
                &value("signature_public_key_fingerprint").to_uppercase(),
                1,
            ),
            Invalid("signature|fingerprint"),
        );
    } else {
        row(
            "said to be Ed25519",
            text.replacen("signature: hmac-sha256", "signature: ed25519", 1),
            Unproven("public key"),
        );
        row(
            "signature_value in capitals",
            text.replacen(value("signature_value"), &value("signature_value").to_uppercase(), 1),
            Invalid("signature"),
        );
    }
    rows
}

/// What the receiver holds.
pub fn keys_given(kit: &Kit) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut row = |name: &str, text: &str, options: &str, verdict| {
        let around: Vec<_> = kit
            .entries
            .iter()
            .filter(|(name, _)| !name.ends_with(".txt") || name == "p.txt")
            .cloned()
            .chain([
                ("policy.json".into(), Entry::File(b"{\"allow_unsigned\":false}".to_vec())),
                ("modes.json".into(), Entry::File(b"{\"required_signature_modes\":[\"ed25519\"]}".to_vec())),
            ])
            .collect();
        cases.extend(
            judged(&format!("keys given: {name}"), text, &around, options, verdict)
                .into_iter()
                .map(|case| case.env("WRONG", "another secret").env("EMPTY", "").env("PUBLIC", &kit.key.0)),
        );
    };
    let hmac = kit.text("hmac.txt");
    row("HMAC, the key", &hmac, "--key-env K", Good);
    row("HMAC, no key", &hmac, "", Unproven("--key-env"));
    row("HMAC, wrong key", &hmac, "--key-env WRONG", Invalid("signature verification failed"));
    row("HMAC, empty key", &hmac, "--key-env EMPTY", Invalid("signature|empty"));
    row("HMAC, variable not set", &hmac, "--key-env UNSET", Invalid("UNSET"));
    row("HMAC, a public key instead", &hmac, "--ed25519-public-key k.pub", Unproven("--key-env"));
    row("HMAC, both", &hmac, "--key-env K --ed25519-public-key k.pub", Good);

    let drafts = [
        ("plain", Draft::hello()),
        (
            "more headers",
            Draft::hello().set("zeta", "1").set("Alpha", "two: 2").set("a-b", "3").set("a_b", "4"),
        ),
        ("Unicode headers", Draft::hello().set("created_by", "Zoë 日本 😀").set("ümlaut", "x")),
        ("folded payload", Draft::hello().payload_text("aGVs\nbG8K")),
        ("payload in three lines", Draft::hello().payload_text("aG\nVs\nbG8K")),
        ("empty payload", Draft::new(b"", BUNDLE).set("content_type", crate::draft::FILE)),
    ];
    for (name, draft) in drafts {
        row(&format!("HMAC by the specification, {name}"), &draft.hmac(SECRET).text(), "--key-env K", Good);
    }
    row(
        "HMAC by the specification, wrong key",
        &Draft::hello().hmac("x").text(),
        "--key-env K",
        Invalid("signature"),
    );

    let ed = kit.text("ed.txt");
    row("Ed25519, the key inline", &ed, "", Good);
    row("Ed25519, the key given", &ed, "--ed25519-public-key k.pub", Good);
    row("Ed25519, another key given", &ed, "--ed25519-public-key o.pub", Invalid("fingerprint"));
    row("Ed25519, no such key", &ed, "--ed25519-public-key nothing.pub", Invalid("nothing.pub"));
    row("Ed25519, no key file", &ed, "--ed25519-public-key p.txt", Invalid("public key"));
    row("Ed25519, an HMAC key", &ed, "--key-env K", Good);
    row("Ed25519, no id", &kit.text("anon.txt"), "", Good);
    let bare = kit.text("bare.txt");
    row("Ed25519 without key, none given", &bare, "", Unproven("public key"));
    row("Ed25519 without key, given", &bare, "--ed25519-public-key k.pub", Good);
    row("Ed25519 without key, another given", &bare, "--ed25519-public-key o.pub", Invalid("fingerprint"));
    row("Ed25519 without key, an HMAC key", &bare, "--key-env K", Unproven("public key"));
    let other = ed.replace(&kit.key.0, &kit.other.0);
    row("Ed25519, another key inline", &other, "", Invalid("fingerprint"));
    let other = other.replace(&kit.key.1, &kit.other.1);
    row("Ed25519, another key inline and its fingerprint", &other, "", Invalid("signature"));

    let secret = kit.text("k.key");
    let draft = || Draft::hello().set("created_by", "Zoë 😀").set("zeta", "1");
    let given = "--ed25519-public-key k.pub";
    row("Ed25519 by the specification", &draft().ed25519(&secret, true).text(), "", Good);
    row("Ed25519 by the specification, no key", &draft().ed25519(&secret, false).text(), given, Good);
    row(
        "Ed25519 by the specification, folded",
        &draft().payload_text("aGVs\nbG8K").ed25519(&secret, true).text(),
        "",
        Good,
    );
    row(
        "Ed25519 by the specification, another key",
        &draft().ed25519(&kit.text("o.key"), false).text(),
        given,
        Invalid("fingerprint"),
    );
    let loud = draft().set("signature_public_key_fingerprint", &kit.key.1.to_uppercase());
    row("Ed25519, fingerprint signed in capitals", &loud.ed25519(&secret, true).text(), "", Good);

    let plain = kit.text("plain.txt");
    row("unsigned, an HMAC key", &plain, "--key-env K", Good);
    row("unsigned, a public key", &plain, "--ed25519-public-key k.pub", Good);
    row("unsigned under a policy", &plain, "--policy policy.json", Unreadable("unsigned"));
    row("unsigned under a policy of modes", &plain, "--policy modes.json", Unreadable("signature mode"));
    for name in ["hmac.txt", "ed.txt"] {
        let stripped: String = kit
            .text(name)
            .lines()
            .filter(|line| !line.starts_with("signature_"))
            .map(|line| {
                if line.starts_with("signature: ") {
                    "signature: none\n".into()
                } else {
                    format!("{line}\n")
                }
            })
            .collect();
        let options = "--key-env K --ed25519-public-key k.pub --policy policy.json";
        row(
            &format!("signature of {name} removed under a policy"),
            &stripped,
            options,
            Unreadable("unsigned"),
        );
    }
    row(
        "HMAC under a policy of Ed25519",
        &hmac,
        "--key-env K --policy modes.json",
        Unreadable("signature mode"),
    );

    // The public key, which everybody knows, used as the secret of an HMAC.
    let confused = with_hmac(&ed.replacen("signature: ed25519", "signature: hmac-sha256", 1), &kit.key.0);
    row(
        "algorithm changed, public key as secret",
        &confused,
        "--ed25519-public-key k.pub",
        Unproven("--key-env"),
    );
    row(
        "algorithm changed under a policy",
        &confused,
        "--key-env PUBLIC --policy modes.json",
        Unreadable("signature mode"),
    );

    let pub_file = kit.text("k.pub");
    let key = pub_file.trim();
    for (name, content, verdict) in [
        ("no newline", key.to_owned(), Good),
        ("blanks around", format!("  {key} \n\n"), Good),
        ("CRLF", format!("{key}\r\n"), Good),
        ("empty", String::new(), Invalid("public key")),
        ("in two lines", format!("{}\n{}\n", &key[..20], &key[20..]), Invalid("public key")),
        ("short", "AAAA\n".into(), Invalid("public key")),
        ("no padding", key.trim_end_matches('=').into(), Invalid("public key")),
        ("a comment after it", format!("{key} k@example\n"), Invalid("public key")),
    ] {
        let around = [("key.pub".to_owned(), Entry::File(content.into()))];
        cases.extend(judged(
            &format!("keys given: file, {name}"),
            &bare,
            &around,
            "--ed25519-public-key key.pub",
            verdict,
        ));
    }

    let files = bundle(&[("a", b"1"), ("b/c", b"2")]);
    let signed = Draft::new(files.to_string().as_bytes(), BUNDLE).hmac(SECRET);
    cases.extend(judged("keys given: a bundle", signed.text(), &[], "--key-env K", Good));
    cases.extend(judged("keys given: a bundle, unsigned", bundle_capsule(&files), &[], "--key-env K", Good));
    cases
}

/// The capsule signed anew as HMAC with this key, from the rules of the specification.
fn with_hmac(text: &str, key: &str) -> String {
    let (head, rest) = text.split_once("-----PAYLOAD-----\n").unwrap();
    let payload = rest.split_once("\n-----END").unwrap().0;
    let mut headers: Vec<&str> =
        head.lines().skip(1).filter(|line| !line.starts_with("signature_value:")).collect();
    headers.sort();
    let signed = format!("AGENT-CAPSULE-SIGNATURE-V0\n{}\n\n{payload}", headers.join("\n"));
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(key.as_bytes()).unwrap();
    mac.update(signed.as_bytes());
    let value = crate::draft::hex(&mac.finalize().into_bytes());
    let old = head.lines().find(|line| line.starts_with("signature_value:")).unwrap();
    text.replacen(old, &format!("signature_value: {value}"), 1)
}
