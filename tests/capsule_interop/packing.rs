//! Packing: the same second, the same capsule, byte for byte.

use crate::case::{Case, End};
use crate::kit::{Kit, SECRET};
use crate::place::Entry;

pub fn cases(kit: &Kit) -> Vec<Case> {
    let mut cases = Vec::new();
    let every: Vec<u8> = (0..=255).collect();
    let many: Vec<(String, Entry)> =
        (0..300).map(|n| (format!("many/{}/{n}.txt", n % 7), Entry::File(format!("{n}\n").into()))).collect();
    let around: Vec<(String, Entry)> = [
        ("p.txt", b"hello\n".to_vec()),
        ("empty", vec![]),
        ("bin", every.repeat(33)),
        ("two words.txt", b"1".to_vec()),
        ("Ünï 日本 😀.txt", b"2".to_vec()),
        (".hidden", b"3".to_vec()),
        ("a:b", b"4".to_vec()),
        ("-dash", b"5".to_vec()),
        ("tree/z.txt", b"z".to_vec()),
        ("tree/a/b.txt", b"b".to_vec()),
        ("tree/a/c/d/e", b"e".to_vec()),
        ("tree/empty", vec![]),
        ("tree/bin", every),
        ("tree/.hidden/.x", b"x".to_vec()),
        ("tree/__pycache__/m.pyc", b"cache".to_vec()),
        ("tree/a/__pycache__/n.pyc", b"cache".to_vec()),
        ("tree/__pycache__.txt", b"no cache".to_vec()),
        ("tree/Ünï/日本 😀", b"unicode".to_vec()),
        ("tree/Ünï/e\u{301}", b"decomposed".to_vec()),
        ("tree/Ünï/\u{e9}", b"composed".to_vec()),
        ("caches/__pycache__/x", b"1".to_vec()),
    ]
    .map(|(path, content)| (path.to_owned(), Entry::File(content)))
    .into_iter()
    // Names whose order tells code points from UTF-16, bytes from letters, and files from directories.
    .chain(
        [
            "B", "a", "_", "b/z", "b.c", "b-/q", "Z/q", "\u{e9}", "z", "😀", "\u{ffee}", "10", "9", "a b",
            "A", "aa/x", "a.x", "\u{7f}",
        ]
        .map(|name| (format!("order/{name}"), Entry::File(name.into()))),
    )
    .chain([
        ("void".to_owned(), Entry::Dir),
        ("tree/void".to_owned(), Entry::Dir),
        ("link".to_owned(), Entry::Link("p.txt".into())),
    ])
    .collect();

    let pack = |name: &str, command: &str| {
        Case::new(format!("pack: {name}"), &format!("pack --out q.txt {command}"))
            .entries(&around)
            .entries(
                &kit.entries.iter().filter(|(name, _)| name.ends_with(".key")).cloned().collect::<Vec<_>>(),
            )
            .env("K", SECRET)
            .env("EMPTY", "")
            .env("UNICODE", "schlüssel 😀")
    };

    for file in ["p.txt", "empty", "bin", ".hidden", "a:b", "./p.txt", "tree/../p.txt", "tree/a/b.txt"] {
        cases.push(pack(&format!("file {file}"), file));
    }
    for file in ["two words.txt", "Ünï 日本 😀.txt"] {
        cases.push(pack(&format!("file {file}"), "").arg(file));
    }
    cases.push(pack("file after --", "-- -dash"));
    cases.push(pack("a link to a file", "link"));
    let linked = |name: &str, target: &str| {
        Case::new(format!("pack: {name}"), "pack d --out q.txt")
            .file("d/a", "1")
            .file("d/s/b", "2")
            .entry("d/l", Entry::Link(target.into()))
    };
    cases.push(linked("a link to a file within", "a"));
    cases.push(linked("a link to a file in a directory within", "s/b"));
    cases.push(linked("a link to a directory within", "s"));
    cases.push(linked("a link to the directory itself", "."));
    for dir in [
        "tree",
        "tree/",
        "tree/.",
        "./tree",
        "tree/a",
        "void",
        "caches",
        "caches/__pycache__",
        "order",
        "tree/Ünï",
    ] {
        cases.push(pack(&format!("directory {dir}"), dir));
    }
    cases.push(pack("directory of many files", "many").entries(&many));
    cases.push(
        Case::new("pack: the present directory", "pack . --out ../q.txt").file("a", "1").file("b/c", "2"),
    );
    cases.push(
        Case::new("pack: over an older capsule", "pack p.txt --out q.txt")
            .file("p.txt", "1")
            .file("q.txt", "old\n".repeat(500)),
    );
    cases.push(
        Case::new("pack: a file without leave to write", "pack p.txt --out q.txt")
            .entry("p.txt", Entry::Mode(b"1".to_vec(), 0o400)),
    );
    cases.push(
        Case::new("pack: executable files", "pack d --out q.txt")
            .entry("d/x", Entry::Mode(b"1".to_vec(), 0o755)),
    );
    cases.push(
        Case::new("pack: 300 KB", "pack big --out q.txt")
            .file("big", (0..300_000u32).map(|n| ((n * 7919) >> 5) as u8).collect::<Vec<_>>()),
    );

    for options in [
        "--codec base64",
        "--capsule-type report",
        "--created-by agent-a",
        "--task-id T-1",
        "--task-id=T-1",
        "--delivery-mode inline",
        "--delivery-mode attachment",
        "--delivery-mode attachment --delivery-uri https://x.example/c",
        "--delivery-mode reference --delivery-uri https://x.example/c",
        "--delivery-uri u",
        "--requested-capability read_files",
        "--requested-capability b --requested-capability a --requested-capability b",
        "--policy-hint network_egress=true",
        "--policy-hint a=true --policy-hint a=false --policy-hint sandbox_required=false",
        "--policy-hint a=TRUE --policy-hint b=False",
        "--signature-key-id ignored",
        "--no-inline-public-key",
        "--task-id a --task-id b",
        "--task T --capsule t --created c",
        "--policy-hint a=true --requested-c r",
        "--capsule-type t --created-by c --task-id i --delivery-mode attachment --requested-capability r --policy-hint h=true",
        "--sign-key-env K",
        "--sign-key-env K --signature-key-id kid",
        "--sign-key-env UNICODE",
        "--sign-key-env K --no-inline-public-key",
        "--sign-ed25519-key k.key",
        "--sign-ed25519-key k.key --signature-key-id kid",
        "--sign-ed25519-key k.key --no-inline-public-key",
        "--sign-ed25519-key k.key --no-inline-public-key --signature-key-id kid",
        "--sign-ed25519-key o.key --task-id T --created-by somebody",
    ] {
        cases.push(pack(options, &format!("p.txt {options}")));
    }
    for options in [
        "--sign-key-env K",
        "--sign-ed25519-key k.key --signature-key-id kid",
        "--task-id T --delivery-mode attachment",
    ] {
        cases.push(pack(&format!("directory {options}"), &format!("tree {options}")));
    }
    for (option, values) in [
        ("--created-by", ["Zoë 日本 😀", "a: b", "\"quoted\" \\ \u{7f}"].as_slice()),
        ("--task-id", &["", "Zoë 😀", "two\nlines\tand \u{1} more", "/<>&'", " blanks "]),
        ("--capsule-type", &["Zoë", " "]),
        ("--requested-capability", &["", "two words", "é"]),
        ("--signature-key-id", &["", "Zoë 日本"]),
        ("--delivery-uri", &["", "https://x.example/ü?a=1&b=2"]),
        ("--policy-hint", &["two words=true", "é=false"]),
    ] {
        for value in values {
            let signed = if option == "--signature-key-id" { "--sign-key-env K" } else { "" };
            cases.push(
                pack(&format!("{option} {value:?}"), &format!("p.txt {signed}")).arg(option).arg(*value),
            );
        }
    }

    for (name, command, word) in [
        ("no such file", "nothing", "nothing"),
        ("no path", "", "path|file"),
        ("reference without uri", "p.txt --delivery-mode reference", "uri"),
        ("another delivery mode", "p.txt --delivery-mode mail", "mail"),
        ("another codec", "p.txt --codec rot13", "rot13"),
        ("hint without value", "p.txt --policy-hint a", "hint"),
        ("hint without name", "p.txt --policy-hint =true", "hint"),
        ("hint that is neither", "p.txt --policy-hint a=yes", "a=yes"),
        ("hint with an empty value", "p.txt --policy-hint a=", "a="),
        ("hint with two values", "p.txt --policy-hint a=true=false", "a=true=false"),
        ("variable not set", "p.txt --sign-key-env UNSET", "UNSET"),
        (
            "two signatures",
            "p.txt --sign-key-env K --sign-ed25519-key k.key",
            "one signature|--sign-key-env|both",
        ),
        ("no such key", "p.txt --sign-ed25519-key nothing.key", "nothing.key"),
        ("no key in the file", "p.txt --sign-ed25519-key p.txt", "private key"),
        ("an unknown option", "p.txt --compress", "--compress"),
        ("an option without its value", "p.txt --task-id", "--task-id"),
        ("two paths", "p.txt bin", "bin"),
    ] {
        cases.push(pack(name, command).refused(word));
    }
    cases.push(
        pack("a codec without its model", "p.txt --codec lmcodec-ngram-v2").refused("model").carriers(),
    );
    cases.push(pack("the fixed carrier", "p.txt --codec lmcodec-fixed").carriers());
    cases.push(pack("the fixed carrier, a directory", "tree/a --codec lmcodec-fixed").carriers());
    let empty =
        |option: &str, word| pack(&format!("{option} empty"), "p.txt").arg(option).arg("").refused(word);
    cases.push(empty("--created-by", "created_by|--created-by"));
    cases.push(empty("--capsule-type", "capsule_type|--capsule-type"));
    cases.push(
        pack("empty uri for a reference", "p.txt --delivery-mode reference --delivery-uri")
            .arg("")
            .refused("uri"),
    );
    cases.push(Case::new("pack: no --out", "pack p.txt").file("p.txt", "1").refused("--out"));
    cases.push(
        Case::new("pack: out is a directory", "pack p.txt --out d")
            .file("p.txt", "1")
            .entry("d", Entry::Dir)
            .refused("d"),
    );
    cases.push(
        Case::new("pack: out in no directory", "pack p.txt --out no/q.txt")
            .file("p.txt", "1")
            .refused("no/q.txt"),
    );
    cases.push(
        Case::new("pack: a dangling link within", "pack d --out q.txt")
            .file("d/a", "1")
            .entry("d/l", Entry::Link("nothing".into()))
            .refused("l"),
    );
    for (name, content) in [
        ("short", "AAAA\n".to_owned()),
        ("empty", String::new()),
        ("in two lines", {
            let key = kit.text("k.key");
            format!("{}\n{}", &key[..20], &key[20..])
        }),
    ] {
        let case =
            Case::new(format!("pack: key file {name}"), "pack p.txt --out q.txt --sign-ed25519-key x.key");
        cases.push(case.file("p.txt", "1").file("x.key", content).refused("private key"));
    }
    for (name, content) in [
        ("without newline", kit.text("k.key").trim().to_owned()),
        ("with blanks and CRLF", format!("  {}  \r\n\n", kit.text("k.key").trim())),
    ] {
        let case =
            Case::new(format!("pack: key file {name}"), "pack p.txt --out q.txt --sign-ed25519-key x.key");
        cases.push(case.file("p.txt", "1").entry("x.key", Entry::Mode(content.into(), 0o600)));
    }
    cases
}

/// What the peer packs and ours refuses.
pub fn stricter() -> Vec<Case> {
    const INJECTION: &str = "a line end would make a header of the rest: the peer writes a capsule that says something else, or none";
    const BLANKS: &str =
        "readers trim values: the value comes out another, and a signature over it does not verify";
    let pack = |name: &str| Case::new(format!("pack: {name}"), "pack p.txt --out q.txt").file("p.txt", "1");
    vec![
        pack("a line end in --created-by").arg("--created-by").arg("a\nfilename: b").apart(
            End::Done,
            End::Refused,
            "created_by|created-by",
            INJECTION,
        ),
        pack("a line end in --signature-key-id")
            .words("--sign-key-env K --signature-key-id")
            .arg("a\nb")
            .env("K", "s")
            .apart(End::Done, End::Refused, "key_id|key-id|key id", INJECTION),
        pack("blanks around --created-by").arg("--created-by").arg(" a ").apart(
            End::Done,
            End::Refused,
            "created_by|created-by",
            BLANKS,
        ),
        pack("blanks around --signature-key-id")
            .words("--sign-key-env K --signature-key-id")
            .arg(" k ")
            .env("K", "s")
            .apart(End::Done, End::Refused, "key_id|key-id|key id", BLANKS),
        Case::new("pack: a blank before a file's name", "pack --out q.txt").arg(" a").file(" a", "1").apart(
            End::Done,
            End::Refused,
            "name",
            BLANKS,
        ),
        Case::new("pack: a line end in a file's name", "pack --out q.txt")
            .arg("a\nb")
            .file("a\nb", "1")
            .apart(End::Done, End::Refused, "name", INJECTION),
        pack("--created-by blank").arg("--created-by").arg(" ").apart(
            End::Done,
            End::Refused,
            "created_by|created-by",
            "a capsule that nobody can read: its value is empty after trimming",
        ),
        pack("an empty HMAC key").words("--sign-key-env EMPTY").env("EMPTY", "").apart(
            End::Done,
            End::Refused,
            "empty",
            "everybody knows an empty key",
        ),
        Case::new("pack: a link that leads out of the directory", "pack d --out q.txt")
            .file("d/a", "1")
            .file("secret", "2")
            .entry("d/l", Entry::Link("../secret".into()))
            .apart(End::Done, End::Refused, "l", "a link would carry what stands elsewhere into the capsule"),
    ]
}
