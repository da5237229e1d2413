//! The manifest of a capsule that is read: which shapes pass, which do not.

use crate::case::Case;
use crate::draft::{manifest, sha256, Draft, HELLO};
use crate::judge::{judged, Verdict};
use crate::kit::Kit;
use serde_json::{json, Value};

pub fn cases(_: &Kit) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut row = |name: &str, text: &str, refusal: Option<&'static str>| {
        let case = Case::new(format!("manifest: {name}"), "verify m.txt --json")
            .file("m.txt", Draft::hello().set("capsule_manifest", text).text());
        cases.push(match refusal {
            None => case,
            Some(word) => case.refused(word),
        });
    };
    let with = |field: &str, value: Value| {
        let mut changed = manifest();
        changed[field] = value;
        changed.to_string()
    };
    let without = |field: &str| {
        let mut changed = manifest();
        changed.as_object_mut().unwrap().remove(field);
        changed.to_string()
    };

    row("as written", &manifest().to_string(), None);
    row("with blanks", &serde_json::to_string_pretty(&manifest()).unwrap().replace('\n', " "), None);
    row("unknown fields", &with("more", json!({"a": [1, 2.5, null, true]})), None);
    row("characters outside ASCII", &with("task_id", json!("é 日本 😀")), None);
    row("escaped characters", &manifest().to_string().replace("a test", "\\u00e9 \\ud83d\\ude00"), None);
    for (name, text) in [
        ("no JSON", "{"),
        ("text after it", "{} {}"),
        ("an array", "[]"),
        ("null", "null"),
        ("a string", "\"x\""),
        ("a number", "1"),
        ("nothing in it", "{}"),
    ] {
        row(name, text, Some("manifest"));
    }
    row("no delivery", &without("delivery"), None);
    for field in ["capsule_type", "created_by", "files", "policy_hints", "requested_capabilities", "task_id"]
    {
        row(&format!("no {field}"), &without(field), Some(field));
    }
    for field in ["capsule_type", "created_by", "task_id"] {
        for value in [json!(5), Value::Null, json!([]), json!({}), json!(true)] {
            row(&format!("{field} {value}"), &with(field, value), Some(field));
        }
    }
    for field in ["capsule_type", "created_by"] {
        row(&format!("{field} empty"), &with(field, json!("")), Some(field));
        row(&format!("{field} blank"), &with(field, json!(" ")), None);
        row(&format!("{field} another"), &with(field, json!("another")), None);
    }
    for field in ["files", "requested_capabilities"] {
        for value in [json!(5), Value::Null, json!({}), json!("x")] {
            row(&format!("{field} {value}"), &with(field, value), Some(field));
        }
    }
    for field in ["policy_hints", "delivery"] {
        for value in [json!(5), Value::Null, json!([]), json!("x")] {
            row(&format!("{field} {value}"), &with(field, value), Some(field));
        }
    }
    for value in [json!([5]), json!(["a", null]), json!([["a"]])] {
        row(
            &format!("requested_capabilities {value}"),
            &with("requested_capabilities", value),
            Some("requested_capabilities"),
        );
    }
    for value in [json!([""]), json!(["a", "a", " "])] {
        row(&format!("requested_capabilities {value}"), &with("requested_capabilities", value), None);
    }
    for value in [
        json!({}),
        json!({"a": 5}),
        json!({"a": "true"}),
        json!({"": null}),
        json!({"sandbox_required": false}),
    ] {
        row(&format!("policy_hints {value}"), &with("policy_hints", value), None);
    }

    for value in [
        json!({"mode": "inline", "uri": "u"}),
        json!({"mode": "inline", "uri": null}),
        json!({"mode": "inline", "more": 1}),
        json!({"mode": "attachment"}),
        json!({"mode": "reference", "uri": "https://x.example/y"}),
    ] {
        row(&format!("delivery {value}"), &with("delivery", value), None);
    }
    for value in
        [json!({}), json!({"uri": "u"}), json!({"mode": "mail"}), json!({"mode": 5}), json!({"mode": null})]
    {
        row(&format!("delivery {value}"), &with("delivery", value), Some("mode"));
    }
    for value in [
        json!({"mode": "reference"}),
        json!({"mode": "reference", "uri": ""}),
        json!({"mode": "reference", "uri": null}),
        json!({"mode": "inline", "uri": ""}),
        json!({"mode": "inline", "uri": 5}),
    ] {
        row(&format!("delivery {value}"), &with("delivery", value), Some("uri"));
    }

    let file = |field: &str, value: Value| {
        let mut changed = manifest()["files"][0].clone();
        changed[field] = value;
        with("files", json!([changed]))
    };
    let hash = sha256(HELLO);
    row("files empty", &with("files", json!([])), None);
    row("files twice", &with("files", json!([manifest()["files"][0], manifest()["files"][0]])), None);
    row("file with more", &file("more", json!(1)), None);
    row("file of another size", &file("bytes", json!(5)), None);
    row("file of another name", &file("path", json!("q.txt")), None);
    row("file with another hash", &file("sha256", json!("a".repeat(64))), None);
    row("file hash in capitals", &file("sha256", json!(hash.to_uppercase())), None);
    for entry in [json!([5]), json!(["x"]), json!([null]), json!([[]])] {
        row(&format!("files {entry}"), &with("files", entry), Some("file"));
    }
    for field in ["bytes", "path", "sha256"] {
        let mut changed = manifest()["files"][0].clone();
        changed.as_object_mut().unwrap().remove(field);
        row(&format!("file without {field}"), &with("files", json!([changed])), Some(field));
        row(&format!("file {field} null"), &file(field, Value::Null), Some(field));
        row(&format!("file {field} []"), &file(field, json!([])), Some(field));
    }
    for value in [json!(-1), json!(6.0), json!(6.5), json!("6")] {
        row(&format!("file bytes {value}"), &file("bytes", value), Some("bytes"));
    }
    for value in [json!(""), json!(5)] {
        row(&format!("file path {value}"), &file("path", value), Some("path"));
    }
    for value in [json!("ab"), json!(""), json!("g".repeat(64)), json!(format!("{hash}0")), json!(5)] {
        row(&format!("file sha256 {value}"), &file("sha256", value), Some("sha256"));
    }

    let shown =
        Draft::hello().set("capsule_manifest", &with("delivery", json!({"mode": "attachment", "uri": "u"})));
    cases.extend(judged("manifest: before all commands", shown.text(), &[], "", Verdict::Good));
    let broken = Draft::hello().set("capsule_manifest", "{");
    cases.extend(judged("manifest: no JSON", broken.text(), &[], "", Verdict::Unreadable("manifest")));
    let short = Draft::hello().set("capsule_manifest", &without("files"));
    cases.extend(judged("manifest: a field is missing", short.text(), &[], "", Verdict::Unreadable("files")));
    cases
}
