//! Key files and registry entries. New keys differ from run to run: they are compared by their shape.

use crate::case::Case;
use crate::kit::Kit;
use crate::place::Entry;

pub fn cases(kit: &Kit) -> Vec<Case> {
    let mut cases = Vec::new();
    let generate = |name: &str, rest: &str| {
        Case::new(
            format!("keys: {name}"),
            &format!("keys generate --private-key n.key --public-key n.pub {rest}"),
        )
        .random()
    };
    cases.push(generate("generate", ""));
    cases.push(generate("generate with --force where nothing is", "--force"));
    cases.push(generate("the private one is there", "").file("n.key", "old").refused("n.key"));
    cases.push(generate("the public one is there", "").file("n.pub", "old").refused("n.pub"));
    cases.push(generate("both are there", "").file("n.key", "old").file("n.pub", "old").refused("n.key"));
    cases.push(
        generate("both are there, --force", "--force")
            .entry("n.key", Entry::Mode(b"old".to_vec(), 0o600))
            .file("n.pub", "old"),
    );
    cases.push(
        generate("a wide private one is there, --force", "--force").file("n.key", "old key\n".repeat(50)),
    );
    cases.push(
        Case::new("keys: generate, no public key", "keys generate --private-key n.key")
            .refused("--public-key"),
    );
    cases.push(
        Case::new("keys: generate, no private key", "keys generate --public-key n.pub")
            .refused("--private-key"),
    );

    let key = kit.text("k.pub");
    let key = key.trim();
    let fingerprint = |name: &str, content: &str| {
        Case::new(format!("keys: fingerprint, {name}"), "keys fingerprint --public-key x.pub")
            .file("x.pub", content)
    };
    cases.push(fingerprint("as written", &kit.text("k.pub")));
    cases.push(fingerprint("no newline", key));
    cases.push(fingerprint("blanks and CRLF", &format!("  {key}  \r\n\r\n")));
    cases.push(fingerprint("the other key", &kit.text("o.pub")));
    for (name, content) in [
        ("empty", String::new()),
        ("no base64", "!!\n".into()),
        ("short", "AAAA\n".into()),
        ("long", format!("{}AAAA\n", key.trim_end_matches('='))),
        ("no padding", key.trim_end_matches('=').into()),
        ("in two lines", format!("{}\n{}\n", &key[..10], &key[10..])),
    ] {
        cases.push(fingerprint(name, &content).refused("public key"));
    }
    cases.push(
        Case::new("keys: fingerprint, no such file", "keys fingerprint --public-key nothing.pub")
            .refused("nothing.pub"),
    );
    cases.push(Case::new("keys: fingerprint, no option", "keys fingerprint").refused("--public-key"));

    let entry = |options: &str| {
        let command = format!("keys registry-entry --key-id kid --public-key k.pub {options}");
        Case::new("keys: registry entry", &command).entries(&kit.entries)
    };
    for options in [
        "",
        "--json",
        "--publisher P --json",
        "--status trusted --json",
        "--status revoked",
        "--status revoked --json",
        "--note N --json",
        "--publisher P --status revoked --note N",
        "--publisher P --status revoked --note N --json",
    ] {
        cases.push(entry(options));
    }
    cases.push(entry("--json --note").arg("Zoë's key 😀\n"));
    cases.push(entry("--json --publisher").arg(""));
    cases.push(entry("--json --note").arg(""));
    cases.push(entry("--status maybe").refused("maybe"));
    let bare = |command: &str| Case::new("keys: registry entry", command).entries(&kit.entries);
    cases.push(bare("keys registry-entry --public-key k.pub").refused("--key-id"));
    cases.push(bare("keys registry-entry --key-id a").refused("--public-key"));
    cases.push(bare("keys registry-entry --key-id a --public-key nothing.pub").refused("nothing.pub"));
    cases.push(bare("keys registry-entry --key-id a --public-key p.txt").refused("public key"));
    cases.push(bare("keys registry-entry --public-key k.pub --json --key-id").arg("Zoë"));
    cases
}
