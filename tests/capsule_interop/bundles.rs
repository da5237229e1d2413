//! Unpacking: what lands where, and bundles of which nothing must land anywhere.
//!
//! Both refuse the hostile ones. That ours leaves nothing behind, not even the directory, where the peer has
//! written the files before the bad one, is seen by every refusal here: ours must leave the box as it was.

use crate::case::{Case, End};
use crate::draft::{base64, bundle, bundle_capsule, bundle_file, sha256, Draft, BUNDLE};
use crate::kit::Kit;
use crate::place::Entry;
use serde_json::{json, Value};

pub fn cases(kit: &Kit) -> Vec<Case> {
    let mut cases = Vec::new();
    let unpack = |name: &str, capsule: &str| {
        Case::new(format!("bundle: {name}"), "unpack m.txt --out out").file("m.txt", capsule)
    };

    for (name, files) in good() {
        let files: Vec<(&str, &[u8])> = files.iter().map(|(path, content)| (*path, &**content)).collect();
        let capsule = bundle_capsule(&bundle(&files));
        cases.push(unpack(name, &capsule));
        cases.push(
            Case::new(format!("bundle: {name} (verify)"), "verify m.txt --json").file("m.txt", capsule),
        );
    }
    let one = bundle(&[("a.txt", b"x")]);
    let pretty = serde_json::to_string_pretty(&one).unwrap();
    cases.push(unpack("JSON with blanks", &Draft::new(pretty.as_bytes(), BUNDLE).text()));
    let mut more = one.clone();
    more["more"] = json!(1);
    more["files"][0]["more"] = json!(1);
    cases.push(unpack("unknown fields", &bundle_capsule(&more)));

    for path in [
        "../evil",
        "/tmp/agentcontainer-interop-evil",
        "a/../../evil",
        "a/../b",
        "..",
        "a/..",
        "../../../../../../etc/evil",
    ] {
        let capsule = bundle_capsule(&bundle(&[("first", b"1"), (path, b"2")]));
        cases.push(unpack(&format!("path {path}"), &capsule).refused("path"));
    }
    for path in ["", "."] {
        let capsule = bundle_capsule(&bundle(&[("first", b"1"), (path, b"2")]));
        cases.push(unpack(&format!("path `{path}`"), &capsule).refused("path|directory"));
    }
    let long = "x".repeat(300);
    cases.push(unpack("a name of 300 bytes", &bundle_capsule(&bundle(&[(&long, b"2")]))).refused("long"));
    cases.push(
        unpack("a file and below it another", &bundle_capsule(&bundle(&[("a", b"1"), ("a/b", b"2")])))
            .refused("a"),
    );
    cases.push(
        unpack(
            "a directory and in its place a file",
            &bundle_capsule(&bundle(&[("a/b", b"1"), ("a", b"2")])),
        )
        .refused("a"),
    );

    let field = |field: &str, value: Value| {
        let mut bad = bundle_file("a.txt", b"x");
        match value {
            Value::Null => drop(bad.as_object_mut().unwrap().remove(field)),
            value => bad[field] = value,
        }
        bundle_capsule(
            &json!({"files": [bundle_file("first", b"1"), bad], "format": "agent-capsule-bundle-v0"}),
        )
    };
    for (name, value, word) in [
        ("size", json!(2), "a.txt"),
        ("size", json!(0), "a.txt"),
        ("size", json!(-1), "a.txt|size"),
        ("size", json!("1"), "size|metadata"),
        ("size", json!(1.0), "size|metadata"),
        ("size", json!(1.5), "size|metadata"),
        ("size", Value::Null, "size|metadata"),
        ("sha256", json!("a".repeat(64)), "a.txt"),
        ("sha256", json!("x"), "a.txt|sha256"),
        ("sha256", json!(""), "a.txt|sha256"),
        ("sha256", json!(5), "sha256|metadata"),
        ("sha256", Value::Null, "sha256|metadata"),
        ("sha256", json!(sha256(b"x").to_uppercase()), "a.txt|sha256"),
        ("content_base64", json!(base64(b"y")), "a.txt"),
        ("content_base64", json!(""), "a.txt"),
        ("content_base64", json!(5), "content|metadata"),
        ("content_base64", Value::Null, "content|metadata"),
        ("path", json!(5), "path|metadata"),
        ("path", Value::Null, "path|metadata"),
    ] {
        let shown = if value.is_null() { "missing".to_owned() } else { value.to_string() };
        cases.push(unpack(&format!("{name} {shown}"), &field(name, value)).refused(word));
    }
    for (name, text) in [
        ("another format", json!({"files": [], "format": "tar"}).to_string()),
        ("no format", json!({"files": []}).to_string()),
        ("format a number", json!({"files": [], "format": 0}).to_string()),
        ("no files", json!({"format": "agent-capsule-bundle-v0"}).to_string()),
        ("files that are no list", json!({"files": {}, "format": "agent-capsule-bundle-v0"}).to_string()),
        ("a file that is no object", json!({"files": [5], "format": "agent-capsule-bundle-v0"}).to_string()),
        ("no JSON", "{".to_owned()),
        ("nothing", String::new()),
    ] {
        cases.push(unpack(name, &Draft::new(text.as_bytes(), BUNDLE).text()).refused("bundle"));
    }
    cases.push(unpack("no UTF-8", &Draft::new(b"\xff{}", BUNDLE).text()).refused("bundle"));

    // One file.
    cases.push(unpack("filename p.txt", &Draft::hello().set("filename", "p.txt").text()));
    cases.push(unpack("no filename", &Draft::hello().text()));
    cases.push(unpack("filename ..", &Draft::hello().set("filename", "..").text()).refused("path|name"));
    cases.push(
        unpack("another content type", &Draft::hello().set("content_type", "text/plain").text())
            .words("--policy policy.json")
            .file("policy.json", "{\"allowed_content_types\":[\"text/plain\"]}"),
    );

    // The destination.
    let tree = bundle_capsule(&bundle(&[("a.txt", b"x"), ("d/b", b"y")]));
    let into = |name: &str, out: &str| {
        Case::new(format!("bundle: {name}"), &format!("unpack m.txt --out {out}")).file("m.txt", &tree)
    };
    cases.push(into("into a deep new directory", "x/y/z"));
    cases.push(into("into the present directory", "."));
    cases.push(into("into a directory beside", "x/../out").entry("x", Entry::Dir));
    cases.push(into("into a directory with other files", "out").file("out/other", "1"));
    cases.push(into("into a directory that has the subdirectory", "out").entry("out/d", Entry::Dir));
    cases.push(
        into("into a link to a directory", "out")
            .entry("there", Entry::Dir)
            .entry("out", Entry::Link("there".into())),
    );
    cases.push(into("into a file", "out").file("out", "1").refused("out"));
    cases.push(
        into("into a link that leads out", "out")
            .entry("out/d", Entry::Link("../elsewhere".into()))
            .entry("elsewhere", Entry::Dir)
            .refused("d/b|d"),
    );
    cases.push(
        into("over a link that leads out", "out")
            .entry("out/a.txt", Entry::Link("../victim".into()))
            .file("victim", "old")
            .refused("a.txt"),
    );
    cases.push(
        into("over a link that leads nowhere", "out")
            .entry("out/a.txt", Entry::Link("../nowhere".into()))
            .refused("a.txt"),
    );
    cases.push(
        Case::new("bundle: a text that is none", "unpack m.txt --out out")
            .file("m.txt", "hello")
            .refused("begin"),
    );
    cases.push(Case::new("bundle: the kit's directory", "unpack tree.txt --out out").entries(&kit.entries));
    cases
}

type Files = Vec<(&'static str, Vec<u8>)>;

fn good() -> Vec<(&'static str, Files)> {
    let every: Vec<u8> = (0..=255).collect();
    vec![
        ("one file", vec![("a.txt", b"x".to_vec())]),
        ("no file", vec![]),
        ("an empty file", vec![("empty", vec![])]),
        ("binary", vec![("bin", every.repeat(40))]),
        ("nested", vec![("a/b/c/d/e", b"1".to_vec()), ("a/b/f", b"2".to_vec()), ("g", b"3".to_vec())]),
        ("in another order", vec![("z", b"1".to_vec()), ("a/b", b"2".to_vec()), ("a0", b"3".to_vec())]),
        (
            "Unicode names",
            vec![("Ünï/日本/😀.txt", b"1".to_vec()), ("é", b"2".to_vec()), ("e\u{301}", b"3".to_vec())],
        ),
        (
            "strange names",
            vec![
                (" a", b"1".to_vec()),
                ("~", b"2".to_vec()),
                ("C:", b"3".to_vec()),
                ("-x", b"4".to_vec()),
                ("a b", b"5".to_vec()),
            ],
        ),
        (
            "dots in names",
            vec![
                ("..a", b"1".to_vec()),
                ("a..", b"2".to_vec()),
                (".hidden", b"3".to_vec()),
                ("...", b"4".to_vec()),
            ],
        ),
        ("a caches' directory", vec![("__pycache__/x.pyc", b"1".to_vec())]),
    ]
}

/// Bundles that the peer takes, or stumbles over, and ours refuses.
pub fn stricter() -> Vec<Case> {
    let paths = |files: &[(&str, &[u8])]| {
        Case::new("", "unpack m.txt --out out").file("m.txt", bundle_capsule(&bundle(files)))
    };
    let named = |name: &str, mut case: Case| {
        case.name = format!("bundle: {name}");
        case
    };
    let mut cases = Vec::new();
    for path in ["./a", "a/./b", "a//b", "a/", "/./a/"] {
        if path.starts_with('/') {
            continue;
        }
        cases.push(named(&format!("path {path}"), paths(&[("first", b"1"), (path, b"2")])).apart(
            End::Done,
            End::Refused,
            "path",
            "a part that is empty or `.` is refused: one file has one spelling",
        ));
    }
    for path in ["a\\b", "..\\evil", "\\\\host\\share"] {
        cases.push(named(&format!("path {path}"), paths(&[("first", b"1"), (path, b"2")])).apart(
            End::Done,
            End::Refused,
            "path",
            "a backslash separates directories elsewhere",
        ));
    }
    cases.push(named("a NUL in a path", paths(&[("first", b"1"), ("a\0b", b"2")])).apart(
        End::Crashed,
        End::Refused,
        "path",
        "no file can have such a name; the peer ends in a traceback after the files before it",
    ));
    cases.push(named("the same path twice", paths(&[("a", b"1"), ("a", b"2")])).apart(
        End::Done,
        End::Refused,
        "a",
        "which of both is meant? The peer writes the second over the first",
    ));
    let field = |field: &str, value: Value| {
        let mut bad = bundle_file("a.txt", b"x");
        bad[field] = value;
        let files = json!({"files": [bundle_file("first", b"1"), bad], "format": "agent-capsule-bundle-v0"});
        Case::new(format!("bundle: {field} {}", bad[field]), "unpack m.txt --out out")
            .file("m.txt", bundle_capsule(&files))
    };
    cases.push(field("size", json!(true)).apart(
        End::Done,
        End::Refused,
        "size|metadata",
        "`true` is no number",
    ));
    cases.push(field("content_base64", json!("eB==")).apart(
        End::Done,
        End::Refused,
        "base64|content",
        "canonical base64: spare bits are zero",
    ));
    for text in ["eA", "!!", "e A=="] {
        cases.push(field("content_base64", json!(text)).apart(
            End::Crashed,
            End::Refused,
            "base64|content",
            "the peer ends in a traceback after the files before it",
        ));
    }
    cases.push(
        named(
            "a list",
            Case::new("", "unpack m.txt --out out").file("m.txt", Draft::new(b"[]", BUNDLE).text()),
        )
        .apart(End::Crashed, End::Refused, "bundle", "the peer ends in a traceback"),
    );
    cases.push(named("a file is there already", paths(&[("a.txt", b"new")])).file("out/a.txt", "old").apart(
        End::Done,
        End::Refused,
        "a.txt",
        "nothing is overwritten without --force",
    ));
    cases.push(
        named("a single file is there already", Case::new("", "unpack m.txt --out out"))
            .file("m.txt", Draft::hello().set("filename", "p.txt").text())
            .file("out/p.txt", "old")
            .apart(End::Done, End::Refused, "p.txt", "nothing is overwritten without --force"),
    );
    for name in ["../evil", "/tmp/agentcontainer-interop-evil", "a/b", "."] {
        cases.push(
            named(&format!("filename {name}"), Case::new("", "unpack m.txt --out out"))
                .file("m.txt", Draft::hello().set("filename", name).text())
                .apart(End::Done, End::Refused, "name", "a name is no path; the peer takes its last part"),
        );
    }
    cases.push(
        named("filename with a backslash", Case::new("", "unpack m.txt --out out"))
            .file("m.txt", Draft::hello().set("filename", "a\\b").text())
            .apart(End::Done, End::Refused, "name|path", "a backslash separates directories elsewhere"),
    );
    cases.push(
        named("filename with a NUL", Case::new("", "unpack m.txt --out out"))
            .file("m.txt", Draft::hello().set("filename", "a\0b").text())
            .apart(End::Crashed, End::Refused, "name|path", "no file can have such a name"),
    );
    cases
}
