//! The envelope: what is read as a capsule, and each way not to be one.

use crate::case::Case;
use crate::draft::{sha256, Draft, FILE, HELLO};
use crate::judge::judged;
use crate::judge::Verdict::{self, Good, Invalid, Unreadable};
use crate::kit::Kit;

pub fn cases(_: &Kit) -> Vec<Case> {
    let plain = Draft::hello().text();
    let mut table: Vec<(String, String, Verdict)> = Vec::new();
    let mut row = |name: &str, text: String, verdict| table.push((name.to_owned(), text, verdict));
    let edit = |from: &str, to: &str| {
        assert!(plain.contains(from), "{from}");
        plain.replacen(from, to, 1)
    };

    row("as written", plain.clone(), Good);
    row("CRLF", plain.replace('\n', "\r\n"), Good);
    row("CR", plain.replace('\n', "\r"), Good);
    row("mixed line ends", edit("codec: base64\n", "codec: base64\r\n"), Good);
    row("byte order mark", format!("\u{feff}{plain}"), Good);
    row("no last newline", plain.trim_end().to_owned(), Good);
    row("trailing blanks", plain.replace('\n', "  \n"), Good);
    row("trailing tabs", plain.replace('\n', "\t\n"), Good);
    row("text before and after", format!("Dear B,\n\n{plain}\nyours, A\n"), Good);
    row("text right before BEGIN", format!("see: {plain}"), Good);
    row("text right after END", format!("{} and so on\n", plain.trim_end()), Good);
    row(
        "PAYLOAD and END before BEGIN",
        format!("-----PAYLOAD-----\n-----END AGENT CAPSULE-----\n{plain}"),
        Good,
    );
    row("two capsules", format!("{plain}{}", Draft::new(b"second", FILE).text()), Good);
    row("the first of two is broken", format!("{}{plain}", edit("codec", "cod")), Unreadable("codec"));
    row("blank lines between headers", edit("codec:", "\n   \ncodec:"), Good);
    row("indented headers", edit("codec: base64", "   codec: base64"), Good);
    row("blank before the colon", edit("codec: base64", "codec : base64"), Good);
    row("no blank after the colon", edit("codec: base64", "codec:base64"), Good);
    row("colons in a value", edit("created_by: a test", "created_by: a: b :c"), Good);
    row("unknown headers", Draft::hello().set("zeta", "1").set("alpha", "2").text(), Good);
    row("name in capitals", edit("codec:", "Codec:"), Unreadable("codec"));

    row("empty text", String::new(), Unreadable("begin"));
    row("no BEGIN", edit("-----BEGIN AGENT CAPSULE-----\n", ""), Unreadable("begin"));
    row("small letters", plain.to_lowercase(), Unreadable("begin"));
    row("no PAYLOAD", edit("-----PAYLOAD-----\n", ""), Unreadable("payload"));
    row("no END", edit("-----END AGENT CAPSULE-----\n", ""), Unreadable("end"));
    row(
        "a second BEGIN among the headers",
        edit("codec:", "-----BEGIN AGENT CAPSULE-----\ncodec:"),
        Unreadable("begin"),
    );
    row(
        "a second BEGIN in the payload",
        edit("aGVs", "-----BEGIN AGENT CAPSULE-----\naGVs"),
        Unreadable("begin"),
    );
    row("a second PAYLOAD", edit("aGVs", "-----PAYLOAD-----\naGVs"), Invalid("base64"));
    row(
        "END missing before the next capsule",
        format!("{}{plain}", edit("-----END AGENT CAPSULE-----\n", "")),
        Unreadable("begin"),
    );
    row("a line without a colon", edit("codec:", "nonsense\ncodec:"), Unreadable("nonsense"));
    row("an empty name", edit("codec:", ": value\ncodec:"), Unreadable("empty"));
    row("an empty value", edit("codec:", "note:\ncodec:"), Unreadable("empty"));
    row("a repeated name", edit("codec:", "codec: base64\ncodec:"), Unreadable("codec"));
    row(
        "a repeated name with another value",
        edit("policy:", "created_by: b\npolicy:"),
        Unreadable("created_by"),
    );
    row("another version", Draft::hello().set("capsule_version", "0.2").text(), Unreadable("version"));
    row("version 0.10", Draft::hello().set("capsule_version", "0.10").text(), Unreadable("version"));
    row("a short hash", Draft::hello().set("payload_sha256", "ab").text(), Unreadable("sha256"));
    row(
        "a hash that is not hex",
        Draft::hello().set("payload_sha256", &"g".repeat(64)).text(),
        Unreadable("sha256"),
    );
    row(
        "a hash in capitals",
        Draft::hello().set("payload_sha256", &sha256(HELLO).to_uppercase()).text(),
        Good,
    );
    row(
        "the hash of something else",
        Draft::hello().set("payload_sha256", &"a".repeat(64)).text(),
        Invalid("sha256"),
    );
    row("quoted with >", format!("> {}", plain.replace('\n', "\n> ")), Unreadable(">"));
    for name in [
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
    ] {
        row(&format!("no {name}"), Draft::hello().without(name).text(), Unreadable(name));
    }
    row(
        "several missing",
        Draft::hello().without("codec").without("policy").text(),
        Unreadable("codec, policy"),
    );

    row("any created_at", Draft::hello().set("created_at", "yesterday").text(), Good);
    row("any policy", Draft::hello().set("policy", "run-at-once").text(), Good);
    row("a codec nobody knows", Draft::hello().set("codec", "rot13").text(), Unreadable("rot13"));
    row(
        "a content type not allowed",
        Draft::hello().set("content_type", "text/plain").text(),
        Unreadable("text/plain"),
    );
    row("no filename", Draft::hello().text(), Good);
    for filename in ["p.txt", "two words", "Ünï 日本 😀.txt", ".hidden", "CON", "a:b", "-dash", "a", "x"]
    {
        row(&format!("filename {filename}"), Draft::hello().set("filename", filename).text(), Good);
    }

    row("base64 in lines", Draft::hello().payload_text("aGVs\nbG8K").text(), Good);
    row("base64 with white space", Draft::hello().payload_text("aG Vs\n\n\tbG8K \n").text(), Good);
    row("a newline more before it", Draft::hello().payload_text("\naGVsbG8K").text(), Good);
    row(
        "base64 with a strange character",
        Draft::hello().payload_text("aGVsbG8K!").text(),
        Invalid("base64"),
    );
    row(
        "base64 of the other alphabet",
        Draft::new(&[255; 3], FILE).payload_text("____").text(),
        Invalid("base64"),
    );
    row(
        "base64 without its padding",
        Draft::new(b"hello", FILE).payload_text("aGVsbG8").text(),
        Invalid("base64"),
    );
    row("padding in the middle", Draft::hello().payload_text("aGVsbG8=aGVs").text(), Invalid("base64"));
    row(
        "a zero width space in base64",
        Draft::hello().payload_text("aGVs\u{200b}bG8K").text(),
        Invalid("base64"),
    );
    row("no payload text", Draft::hello().payload_text("").text(), Invalid("sha256"));
    row("the payload cut", Draft::hello().payload_text("aGVs").text(), Invalid("sha256"));
    row("wrapped with =", Draft::hello().payload_text("aGV=\nsbG8K").text(), Invalid("base64"));
    row("an empty payload", Draft::new(b"", FILE).text(), Good);
    row(
        "an empty payload without its line",
        Draft::new(b"", FILE).text().replace("\n\n-----END", "\n-----END"),
        Good,
    );
    row("every byte", Draft::new(&(0..=255).collect::<Vec<u8>>(), FILE).text(), Good);

    let lines: String = (0..200).map(|n| format!("line {n} of a payload in several lines\n")).collect();
    let long = Draft::new(lines.as_bytes(), FILE);
    let folded: Vec<String> = crate::draft::base64(lines.as_bytes())
        .as_bytes()
        .chunks(76)
        .map(|line| String::from_utf8(line.to_vec()).unwrap())
        .collect();
    let with = |lines: &[String]| long.clone().payload_text(&lines.join("\n")).text();
    let mut swapped = folded.clone();
    swapped.swap(3, 4);
    let mut doubled = folded.clone();
    doubled.insert(3, folded[3].clone());
    let mut dropped = folded.clone();
    dropped.remove(3);
    row("payload lines folded", with(&folded), Good);
    row("payload lines swapped", with(&swapped), Invalid("sha256"));
    row("a payload line doubled", with(&doubled), Invalid("sha256"));
    row("a payload line dropped", with(&dropped), Invalid("sha256"));

    table
        .into_iter()
        .flat_map(|(name, text, verdict)| judged(&format!("reading: {name}"), text, &[], "", verdict))
        .chain([
            Case::new("reading: no such file (verify)", "verify nothing.txt").refused("nothing.txt"),
            Case::new("reading: no such file (inspect)", "inspect nothing.txt").refused("nothing.txt"),
            Case::new("reading: no such file (unpack)", "unpack nothing.txt --out out")
                .refused("nothing.txt"),
            Case::new("reading: a directory", "verify .").refused("directory"),
        ])
        .collect()
}
