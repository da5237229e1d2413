//! What a scan finds in a text.

use super::support::Scratch;

/// The findings of a text, as `type line:column start-end`.
fn scan(text: &str) -> (String, Vec<String>) {
    let scratch = Scratch::new();
    scratch.file("t.txt", text);
    let report = scratch.run(&["scan", "t.txt", "--json"]).json();
    let findings = report["findings"].as_array().unwrap().iter();
    let findings = findings.map(|one| {
        let kind = one["type"].as_str().unwrap();
        format!("{kind} {}:{} {}-{}", one["line"], one["column"], one["start"], one["end"])
    });
    (report["disposition"].as_str().unwrap().to_owned(), findings.collect())
}

#[test]
fn dense_text_is_to_be_reviewed() {
    let eighty = "A".repeat(80);
    for (text, expected) in [
        ("A".repeat(79), None),
        (eighty.clone(), Some("dense_base64_like 1:1 0-80")),
        (format!("é\n_{eighty}=="), Some("dense_base64_like 2:2 3-85")),
        (format!("{eighty}==="), None),
        (format!("={eighty}"), None),
        (format!("{eighty}=A"), None),
        ("-".repeat(499), None),
        (format!("x\r\n  {} ", "é".repeat(500)), Some("dense_long_line 2:3 4-504")),
        (format!("{0} {0}", "-".repeat(250)), Some("dense_long_line 1:1 0-501")),
        (format!("{0} {0} -", "-".repeat(250)), None),
    ] {
        let (disposition, findings) = scan(&text);
        assert_eq!(findings.first().map(|finding| &**finding), expected, "{text}");
        assert_eq!(disposition, if expected.is_some() { "review" } else { "allow" });
    }
}

#[test]
fn hidden_characters_are_blocked() {
    let (disposition, findings) = scan("😀a\u{200b}\n\u{feff}b");
    assert_eq!(disposition, "block");
    assert_eq!(findings, ["unicode_invisible 1:3 2-3", "unicode_invisible 2:1 4-5"]);
}

#[test]
fn capsules_are_found_wherever_they_stand() {
    let scratch = Scratch::new();
    scratch.file("note.txt", "hello\n");
    scratch.run(&["pack", "note.txt", "--out", "c.txt"]).ok();
    let good = std::fs::read_to_string(scratch.at("c.txt")).unwrap();
    let bad = good.replace("aGVs", "aGVt");
    assert_eq!(scan(&format!("a\n{good}b\n{good}")), ("allow".into(), vec![]));
    let (disposition, findings) = scan(&format!("a\n{good}> {bad}x\n-----BEGIN AGENT CAPSULE-----\n"));
    assert_eq!(disposition, "block");
    let kinds: Vec<_> = findings.iter().map(|finding| finding.rsplit_once(' ').unwrap().0).collect();
    assert_eq!(kinds, ["capsule_invalid 18:3", "capsule_malformed 35:1"], "{findings:?}");
}

#[test]
fn no_number_of_markers_makes_a_text_long() {
    let scratch = Scratch::new();
    scratch.file("t.txt", "-----BEGIN AGENT CAPSULE-----".repeat(100_000));
    let report = scratch.run(&["scan", "t.txt", "--json"]).json();
    assert_eq!(report["capsules_detected"], 100_000);
    assert_eq!(report["findings"].as_array().unwrap().len(), 10_000, "bounded");
}
