//! Any text scanned: what is found, where, and how bad it is.

use crate::case::Case;
use crate::draft::{bundle, bundle_capsule, Draft, FILE};
use crate::kit::Kit;
use serde_json::json;

pub fn cases(kit: &Kit) -> Vec<Case> {
    let plain = Draft::hello().text();
    let wrong = Draft::hello().set("payload_sha256", &"a".repeat(64)).text();
    let endless = plain.replace("-----END AGENT CAPSULE-----\n", "");
    let begin = "-----BEGIN AGENT CAPSULE-----";
    let a = |count: usize| "A".repeat(count);
    let dots = |count: usize| ".".repeat(count);
    let mut table: Vec<(String, String)> = Vec::new();
    let mut row = |name: &str, text: String| table.push((name.to_owned(), text));

    row("nothing", String::new());
    row("a line", "hello\n".into());
    row("one capsule", plain.clone());
    row("one in a mail", format!("Dear B,\n\n{plain}\nA\n"));
    row("two", format!("{plain}between\n{}", Draft::new(b"second", FILE).text()));
    row("a bundle", bundle_capsule(&bundle(&[("a", b"1")])));
    row("CRLF", plain.replace('\n', "\r\n"));
    row("byte order mark", format!("\u{feff}{plain}"));
    row("BEGIN without END", format!("x\n{endless}"));
    row("BEGIN in prose", format!("we write {begin} like this"));
    row("BEGIN alone", begin.into());
    row("BEGIN twice in prose", format!("{begin} and {begin}"));
    row("END alone", "-----END AGENT CAPSULE-----\n".into());
    row("BEGIN without END, then a capsule", format!("{begin}\nfoo\n{plain}"));
    row("a capsule, then BEGIN without END", format!("{plain}{begin}\nfoo"));
    row("BEGIN without END in lines of CRLF", format!("x\r\ny\r\n{}", endless.replace('\n', "\r\n")));
    row("a capsule within one", plain.replacen("codec:", &format!("{begin}\ncodec:"), 1));
    row("wrong hash", wrong.clone());
    row("two invalid ones", format!("{wrong}{}", plain.replacen("codec:", "codec", 1)));
    row("valid, invalid, valid", format!("{plain}{wrong}{plain}"));
    row("a header without colon", plain.replacen("codec:", "codec", 1));
    row("unknown codec", Draft::hello().set("codec", "rot13").text());
    row("bad base64", Draft::hello().payload_text("!!!").text());
    row("bad manifest", Draft::hello().set("capsule_manifest", "{}").text());
    row("content type not allowed", Draft::hello().set("content_type", "text/plain").text());
    row("invalid after astral characters", format!("😀😀\n😀 {wrong}"));

    for invisible in ['\u{200b}', '\u{200c}', '\u{200d}', '\u{feff}', '\u{2060}'] {
        row(&format!("U+{:04X}", u32::from(invisible)), format!("ab{invisible}c\nd\n"));
    }
    for visible in
        ['\u{ad}', '\u{202e}', '\u{180e}', '\u{200e}', '\u{2061}', '\u{a0}', '\u{e0041}', '\u{3164}']
    {
        row(&format!("U+{:04X}, which is not looked for", u32::from(visible)), format!("ab{visible}c\nd\n"));
    }
    row("invisible at the start", "\u{feff}hello\n".into());
    row("invisible at the end", "hello\u{200b}".into());
    row("several invisible", "a\u{200b}b\u{200c}\u{200c}c\n\u{2060}\n".into());
    row("many invisible", "\u{200b}".repeat(300));
    row("invisible in a header", plain.replacen("a test", "a te\u{200b}st", 1));
    row("invisible in a payload", plain.replacen("aGVs", "aG\u{200b}Vs", 1));
    row("invisible after astral characters", "😀😀\nx😀y\u{200b}z\n".into());
    row("invisible after CRLF", "a\r\nb\u{200b}c\r\nd".into());
    row("invisible after CR", "a\rb\u{200b}c".into());
    row("invisible after other separators", "a\u{2028}b\u{85}c\u{b}d\u{c}e\u{200b}f".into());
    row("a joined emoji", "👩\u{200d}👩\u{200d}👧".into());

    for count in [79, 80, 81, 95, 96, 97, 300] {
        row(&format!("{count} of base64"), format!("x {} y\n", a(count)));
    }
    row("dense: all its letters", "Ab9+/".repeat(16));
    row("dense: 79 and padding", format!("{}=", a(79)));
    row("dense: 80 and padding", format!("{}= {}==", a(80), a(82)));
    row("dense: 80 and too much padding", format!("{}===", a(80)));
    row("dense: padding in the middle", format!("{}={}", a(80), a(80)));
    row("dense: after =", format!("={}", a(80)));
    row("dense: key=value", format!("token={}", a(90)));
    row("dense: in brackets", format!("({}).", a(80)));
    row("dense: between underscores", format!("_{}_", a(80)));
    row("dense: between dashes", format!("-{}-", a(80)));
    row("dense: next to letters of other scripts", format!("é{}日", a(80)));
    row("dense: in quotes", format!("\"{}\"", a(80)));
    row("dense: an address", format!("https://x.example/{}?q=1", a(80)));
    row("dense: two lines of 76", format!("{}\n{}\n", a(76), a(76)));
    row("dense: two in one line", format!("{} {}", a(80), a(90)));
    row("dense: two lines of 80", format!("{}\n{}\n", a(80), a(80)));
    row("dense: a hash of hex digits", "0123456789abcdef".repeat(8));
    row("dense: slashes", "/".repeat(80));
    row("dense: equal signs", "=".repeat(100));
    row("dense: after astral characters", format!("😀\n😀 {}", a(80)));
    row("dense: CRLF", format!("x\r\n{}\r\ny", a(80)));
    row("dense: in a header", Draft::hello().set("created_by", &a(80)).text());
    row("dense: the payload", Draft::new(&[7; 300], FILE).text());
    row("dense: the payload of an invalid one", Draft::new(&[7; 300], FILE).set("codec", "rot13").text());

    for count in [499, 500, 501] {
        for words in [1, 2, 3] {
            let text = format!("{}{}", dots(count - 2 * (words - 1)), " .".repeat(words - 1));
            assert_eq!(text.len(), count);
            row(&format!("a line of {count} in {words} words"), format!("x\n{text}\n"));
        }
    }
    row("long: blanks alone", " ".repeat(600));
    row("long: blanks before it", format!("{}{}", " ".repeat(300), dots(300)));
    row("long: blanks around it", format!("x\n  {}  \n", dots(500)));
    row("long: blanks within", format!("{}{}{}", dots(200), " ".repeat(200), dots(200)));
    row("long: tabs", format!("{}\t{}", dots(250), dots(250)));
    row("long: no-break spaces", format!("{}\u{a0}{}\u{a0}{}", dots(200), dots(200), dots(200)));
    row("long: line separators", format!("{}\u{2028}{}\u{85}{}", dots(200), dots(200), dots(200)));
    row("long: form feeds", format!("{}\u{c}{}", dots(300), dots(300)));
    row("long: zero width spaces", format!("{}\u{200b}{}", dots(300), dots(300)));
    row("long: 500 emoji", "😀".repeat(500));
    row("long: 250 emoji", "😀".repeat(250));
    row("long: 250 letters of two bytes", "é".repeat(250));
    row("long: base64", format!("{}\n{}\n", a(500), dots(500)));
    row("long: CRLF, 499", format!("{}\r\nx\r\n", dots(499)));
    row("long: CRLF, 500", format!("{}\r\nx\r\n", dots(500)));
    row("long: no last newline", dots(500));
    row("long: a header", Draft::hello().set("note", &dots(600)).text());
    row("long: the payload", Draft::new(&[7; 3000], FILE).text());

    row("excerpt: newlines", format!("x {begin}\na\nb\r\nc\td\n"));
    row("excerpt: quotes and backslashes", format!("{}\"\\{}", dots(50), dots(500)));
    row("excerpt: 96", format!("x {begin}{}", dots(96 - begin.len())));
    row("excerpt: 97", format!("x {begin}{}", dots(97 - begin.len())));
    row("excerpt: astral", format!("{}😀", "😀".repeat(600)));
    row("excerpt: newline at the edge", format!("x {begin}\n{}\n{}", dots(65), dots(40)));
    row("a mixture", format!("intro\u{200b}\n{}\n{}\n{plain}{wrong}\n😀\u{200d}\n{begin}", a(90), dots(600)));
    row("all on one line", format!("\u{200b}{} {}\n", a(80), dots(500)));
    row("a NUL", "a\0b\n".into());

    let mut cases: Vec<Case> = table
        .iter()
        .map(|(name, text)| Case::new(format!("scan: {name}"), "scan s.txt --json").file("s.txt", text))
        .collect();
    for shown in [
        "nothing",
        "one capsule",
        "BEGIN without END",
        "a mixture",
        "all on one line",
        "valid, invalid, valid",
    ] {
        let (name, text) = table.iter().find(|(name, _)| name == shown).unwrap();
        cases.push(Case::new(format!("scan: {name}, as text"), "scan s.txt").file("s.txt", text));
        cases.push(
            Case::new(format!("scan: {name}, as an event"), "scan s.txt --audit-json").file("s.txt", text),
        );
    }

    let mut revoked = kit.entry();
    revoked["status"] = "revoked".into();
    for (name, entries) in [
        ("no registry", None),
        ("trusted", Some(json!([kit.entry()]))),
        ("revoked", Some(json!([revoked]))),
        ("unknown", Some(json!([]))),
    ] {
        for file in ["ed.txt", "anon.txt", "bare.txt", "named.txt", "hmac.txt", "plain.txt"] {
            let case = Case::new(format!("scan: a kit's capsule, {name}"), &format!("scan {file} --json"))
                .entries(&kit.entries);
            cases.push(match &entries {
                Some(entries) => case
                    .words("--signature-registry registry.json")
                    .file("registry.json", json!({"keys": entries}).to_string()),
                None => case,
            });
        }
    }
    let text = |option: &str| {
        Case::new("scan: signed, as text", &format!("scan ed.txt {option}")).entries(&kit.entries)
    };
    cases.push(text(""));
    let mut other = kit.entry();
    other["status"] = "revoked".into();
    cases.push(
        text("--signature-registry registry.json")
            .file("registry.json", json!({"keys": [other]}).to_string()),
    );

    for policy in [
        json!({"allow_unsigned": false}),
        json!({"max_payload_bytes": 1}),
        json!({"require_signature_registry": true}),
        json!({"required_signature_modes": ["ed25519"]}),
        json!({"allow_inline_public_keys": false}),
        json!({"trusted_signature_key_ids": ["other"]}),
        json!({"require_known_codec": false, "require_hash": false, "allow_unsigned": true}),
    ] {
        for file in ["plain.txt", "ed.txt"] {
            // Unsigned under a policy that wants a registry: see `differences`.
            if file == "plain.txt" && policy.get("require_signature_registry").is_some() {
                continue;
            }
            let case =
                Case::new(format!("scan: under {policy}"), &format!("scan {file} --policy policy.json"));
            let case = case.entries(&kit.entries).file("policy.json", policy.to_string());
            cases.push(case.clone());
            cases.push(case.words("--json"));
        }
    }
    cases.push(Case::new("scan: no such file", "scan nothing.txt").refused("nothing.txt"));
    cases.push(Case::new("scan: a directory", "scan .").refused("directory"));
    cases
}
