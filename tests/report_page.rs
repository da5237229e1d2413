//! The handoff demo, and its report as a browser shows it.
//!
//! `tests/report/` has the events and the evaluation of a run of the demo. Screenshots are saved below
//! `target/tmp/report/`.

#[path = "support/mod.rs"]
mod support;
use agentcontainer::capsule::report::render;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use support::browser::Browser;
use support::cli::BINARY;
use support::TempDir;

const EVENTS: &str = include_str!("report/events.jsonl");
const EVALUATION: &str = include_str!("report/evaluation.json");

/// Receiver, expected and actual outcome.
const MATRIX: [(&str, &str); 6] = [
    ("observe", "allow"),
    ("strict and trusted", "allow"),
    ("strict scan of the message", "review"),
    ("wrong key", "block"),
    ("payload limit", "block"),
    ("unsigned", "block"),
];
const STEPS: [(&str, &str); 8] = [
    ("keys", "allow"),
    ("registry", "allow"),
    ("pack", "allow"),
    ("compose", "allow"),
    ("scan", "review"),
    ("verify", "allow"),
    ("unpack", "allow"),
    ("compare", "allow"),
];

// ---- the page --------------------------------------------------------------------------------

#[test]
fn a_browser_shows_the_verdict_and_every_row() {
    let Some(browser) = Browser::find() else { return };
    let dom = browser.dom(&render(EVENTS, Some(EVALUATION)).unwrap());
    assert_eq!(attribute(&dom, "data-verdict"), ["pass"]);
    assert_eq!(text(between(&dom, "id=\"verdict\"", "</h2>")), "The handoff passed");
    assert!(dom.contains("aria-label=\"Score: 100 of 100\""));
    let tally: Vec<String> = parts(&dom, "<li class=\"", "data-count").into_iter().map(text).collect();
    assert_eq!(tally, ["7 allow", "1 review", "0 block"]);

    let checks = parts(between(&dom, "<ul class=\"checks", "</ul>"), "<li", "");
    assert_eq!(checks.len(), 9);
    assert!(checks.iter().all(|check| text(check).contains("passed: ")), "{checks:?}");

    let rows: Vec<Vec<String>> = parts(between(&dom, "<tbody", "</tbody>"), "<tr", "")
        .into_iter()
        .map(|row| row.split("</th>").flat_map(|part| part.split("</td>")).map(text).collect())
        .collect();
    let seen: Vec<(&str, &str)> = rows.iter().map(|row| (&*row[0], &*row[3])).collect();
    assert_eq!(seen, MATRIX);
    assert!(rows.iter().all(|row| row[2] == row[3]), "{rows:?}");
    assert_eq!(rows[5][4], "unsigned capsules are not allowed");

    let timeline = between(&dom, "<ol class=\"line\"", "</ol>");
    assert_eq!(attribute(timeline, "data-decision"), STEPS.map(|(_, decision)| decision));
    let heads: Vec<String> = parts(timeline, "<h3", "").into_iter().map(text).collect();
    for (head, (step, decision)) in heads.iter().zip(STEPS) {
        assert!(head.starts_with(&format!("{step} by agent-")) && head.contains(decision), "{head}");
    }
}

#[test]
fn hostile_text_stays_text_in_a_browser() {
    let Some(browser) = Browser::find() else { return };
    let hostile = r#"</bdi></pre></style><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"><style>*{display:none}</style>\u202e\u200bend"#;
    let events = EVENTS
        .replace("5 files, equal byte by byte", hostile)
        .replace("\"channel/message.txt\"", &format!("\"{hostile}\""))
        .replace("\"medium\"", &format!("\"{hostile}\""))
        .replace("agent-b", hostile);
    let evaluation = EVALUATION
        .replace("\"unsigned\"", &format!("\"{hostile}\""))
        .replace("The signature is good", hostile)
        .replace("\"verify\"", &format!("\"{hostile}\""));
    let dom = browser.dom(&render(&events, Some(&evaluation)).unwrap());
    assert!(dom.contains("<title>Handoff report</title>"), "something ran");
    for element in ["<script", "<img"] {
        assert!(!dom.contains(element), "{element}");
    }
    assert_eq!(dom.matches("<style").count(), 1);
    let rows = parts(between(&dom, "<tbody", "</tbody>"), "<tr", "");
    let shown = text(rows[5].split("</th>").next().unwrap());
    assert_eq!(
        shown,
        "</bdi></pre></style><script>document.title='owned'</script><img src=x \
         onerror=\"document.title='owned'\"><style>*{display:none}</style>U+202EU+200Bend"
    );
}

#[test]
fn nothing_is_wider_than_a_phone() {
    let Some(browser) = Browser::find() else { return };
    let long = "0123456789abcdef".repeat(40);
    let events = EVENTS.replace("agent-b", &long).replace("operation verified successfully", &long);
    let evaluation = EVALUATION
        .replace("operation verified successfully", &long)
        .replace("\"wrong key\"", &format!("\"{long}\""))
        .replace("The signature is good", &long);
    for (events, evaluation) in [(EVENTS, EVALUATION), (&events, &evaluation)] {
        let page = render(events, Some(evaluation)).unwrap();
        // The page itself forbids scripts; the ruler is laid on a copy that does not. It stands in a frame,
        // because a headless window is not narrower than 500 pixels.
        let from = page.find("<meta http-equiv").unwrap();
        let policy = &page[from..from + page[from..].find('>').unwrap() + 1];
        let ruler = "<script>onload = () => parent.postMessage(innerWidth + ' ' + \
                     document.documentElement.scrollWidth, '*')</script></body>";
        let copy = page.replace(policy, "").replace("<details>", "<details open>").replace("</body>", ruler);
        let copy = copy.replace('&', "&amp;").replace('"', "&quot;");
        let frame = format!(
            "<!DOCTYPE html><body><script>onmessage = told => document.body.dataset.widths = told.data</script>\
             <iframe style=\"border:0;width:360px;height:700px\" srcdoc=\"{copy}\"></iframe></body>"
        );
        let dom = browser.run(&frame, &["--virtual-time-budget=5000", "--hide-scrollbars", "--dump-dom"]);
        assert_eq!(attribute(&dom, "data-widths"), ["360 360"]);
    }
}

#[test]
fn screenshots_are_taken() {
    let Some(browser) = Browser::find() else { return };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report");
    std::fs::create_dir_all(&folder).unwrap();
    let page = render(EVENTS, Some(EVALUATION)).unwrap();
    for (width, height) in [(360_u32, 3400_u32), (1200, 2700)] {
        let mut seen = Vec::new();
        for (scheme, number) in [("dark", 0), ("light", 1)] {
            let file = folder.join(format!("{width}-{scheme}.png"));
            let _ = std::fs::remove_file(&file);
            browser.run(
                &page,
                &[
                    &format!("--window-size={width},{height}"),
                    &format!("--blink-settings=preferredColorScheme={number}"),
                    "--hide-scrollbars",
                    &format!("--screenshot={}", file.display()),
                ],
            );
            let image = std::fs::read(&file).unwrap();
            assert!(image.starts_with(b"\x89PNG\r\n\x1a\n"), "{}", file.display());
            let wide = u32::from_be_bytes(image[16..20].try_into().unwrap());
            assert_eq!(wide, width, "{}", file.display());
            seen.push(image);
        }
        assert_ne!(seen[0], seen[1], "light and dark look the same");
    }
    println!("screenshots: {}", folder.display());
}

// ---- the command -----------------------------------------------------------------------------

#[test]
fn the_command_writes_a_page_or_says_in_one_line_why_not() {
    let dir = TempDir::new("report");
    dir.write("events.jsonl", EVENTS);
    dir.write("evaluation.json", EVALUATION);
    dir.write("torn.jsonl", &EVENTS[..EVENTS.len() - 9]);
    dir.write("latin1.jsonl", b"{\"reason\":\"caf\xe9\"}");
    dir.write("empty.jsonl", "");
    let report = |arguments: &[&str]| -> Output {
        Command::new(BINARY)
            .args(["capsule", "report"])
            .args(arguments)
            .current_dir(dir.path())
            .output()
            .unwrap()
    };
    let done = report(&["--events", "events.jsonl", "--evaluation", "evaluation.json", "--out", "page.html"]);
    assert_eq!(String::from_utf8_lossy(&done.stdout), "report path: page.html\n");
    assert!(done.status.success());
    let page = std::fs::read_to_string(dir.path().join("page.html")).unwrap();
    assert_eq!(page, render(EVENTS, Some(EVALUATION)).unwrap());

    for (arguments, said) in [
        (vec!["--events", "torn.jsonl", "--out", "no.html"], "events, line 8: it is not JSON"),
        (
            vec!["--events", "latin1.jsonl", "--out", "no.html"],
            "latin1.jsonl: it is not UTF-8 behind byte 14",
        ),
        (vec!["--events", "empty.jsonl", "--out", "no.html"], "events, line 1: there is no event"),
        (vec!["--events", "nowhere", "--out", "no.html"], "reading nowhere: "),
        (vec!["--events", "/dev/zero", "--out", "no.html"], "it has more than"),
        (
            vec!["--events", "events.jsonl", "--evaluation", "events.jsonl", "--out", "no.html"],
            "evaluation, line ",
        ),
        (vec!["--events", "events.jsonl", "--out", "nowhere/no.html"], "writing nowhere/no.html: "),
        (vec!["--events", "events.jsonl"], "--out is missing"),
        (vec!["--out", "no.html"], "--events is missing"),
        (vec!["--events", "events.jsonl", "--out", "no.html", "--title", "x"], "has no option --title"),
    ] {
        let done = report(&arguments);
        let error = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!((done.status.code(), done.stdout.len()), (Some(2), 0), "{arguments:?}: {error}");
        assert!(error.contains(said) && error.trim_end().lines().count() == 1, "{arguments:?}: {error:?}");
        assert!(!dir.path().join("no.html").exists(), "{arguments:?}");
    }
    let help = report(&["--help"]);
    assert!(help.status.success() && String::from_utf8_lossy(&help.stdout).contains("--evaluation F"));
}

// ---- the demo --------------------------------------------------------------------------------

#[test]
fn the_demo_hands_over_and_six_receivers_decide_as_the_issue_says() {
    let Some(program) = capsule_program() else { return };
    let dir = TempDir::new("handoff");
    let (status, said) = handoff(&program, &dir.path().join("out"));
    assert_eq!(status, Some(0), "{said}");
    assert_eq!(said.trim_end().lines().last(), Some("handoff: pass, score 100, 7 allow, 1 review, 0 block"));

    let events: Vec<Value> = read(&dir, "events.jsonl").lines().map(json).collect();
    let steps: Vec<_> =
        events.iter().map(|event| (string(event, "step"), string(event, "decision"))).collect();
    assert_eq!(steps, STEPS);
    for event in &events {
        let asked = ["scan", "verify", "unpack"].contains(&string(event, "step"));
        assert_eq!(event.get("audit").is_some(), asked, "{event}");
        assert!(!asked || event["audit"]["operation"] == event["step"], "{event}");
    }
    let evaluation = json(&read(&dir, "evaluation.json"));
    let matrix: Vec<_> = evaluation["policy_matrix"].as_array().unwrap().iter().collect();
    let actual: Vec<_> = matrix.iter().map(|row| (string(row, "receiver"), string(row, "actual"))).collect();
    assert_eq!(actual, MATRIX);
    assert!(matrix.iter().all(|row| row["expected"] == row["actual"] && row["matched"] == true));
    assert_eq!((string(&evaluation, "verdict"), &evaluation["score"]), ("pass", &Value::from(100)));
    assert!(read(&dir, "report.html").contains("data-verdict=\"pass\""));

    let message = read(&dir, "channel/message.txt");
    let (before, behind) = message.split_once("-----BEGIN AGENT CAPSULE-----").unwrap();
    assert!(
        before.contains("\nSummary: ") && behind.ends_with("-----END AGENT CAPSULE-----\n\nRegards, A\n")
    );
    let sent = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/handoff/workspace/results/sample.bin");
    let got = dir.path().join("out/agent-b/sandbox/results/sample.bin");
    assert_eq!(std::fs::read(sent).unwrap(), std::fs::read(got).unwrap());

    let (status, said) = handoff(&program, &dir.path().join("out"));
    assert_eq!(status, Some(2), "a directory that was there already: {said}");
}

#[test]
fn a_demo_in_which_a_step_is_refused_fails_and_says_so() {
    let Some(program) = capsule_program() else { return };
    let dir = TempDir::new("refused");
    let event = r#"{"event_type":"agent_capsule_audit","schema_version":1,"operation":"verify","disposition":"block","subject":"m","policy":{},"reasons":["signature verification failed"],"result":{"verification":"failed"}}"#;
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = verify ]; then printf '%s\\n' '{event}'; exit 2; fi\nexec {program} \"$@\"\n"
    );
    dir.write("refusing.sh", script);
    let (status, said) =
        handoff(&format!("sh {}", dir.path().join("refusing.sh").display()), &dir.path().join("out"));
    assert_eq!(status, Some(1), "{said}");
    assert_eq!(said.trim_end().lines().last(), Some("handoff: fail, score 22, 4 allow, 1 review, 1 block"));
    assert!(!dir.path().join("out/agent-b/sandbox").exists(), "unpacked what was not verified");
    let page = read(&dir, "report.html");
    assert!(page.contains("data-verdict=\"fail\"") && page.contains("No receiver was tried"));
}

/// Runs the demo into `out`; gives its status and all that it said. Nothing of it may be left running.
fn handoff(program: &str, out: &Path) -> (Option<i32>, String) {
    let mark = format!("HANDOFF_TEST={}", out.display());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/handoff/handoff.py");
    let done = Command::new("python3")
        .arg(script)
        .arg(out)
        .env("AGENTCONTAINER", BINARY)
        .env("AGENTCAPSULE", program)
        .env("HANDOFF_TEST", out)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let left = std::fs::read_dir("/proc").unwrap().flatten().filter(|process| {
        let environment = std::fs::read(process.path().join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    });
    assert_eq!(left.count(), 0, "processes of the demo are still there");
    let said = format!("{}{}", String::from_utf8_lossy(&done.stderr), String::from_utf8_lossy(&done.stdout));
    (done.status.code(), said)
}

/// Our own capsule commands, or else the reference program.
fn capsule_program() -> Option<String> {
    let works = |words: &str| {
        let mut words = words.split(' ');
        let mut command = Command::new(words.next().unwrap());
        let asked = command.args(words).args(["pack", "--help"]).stdout(Stdio::null()).stderr(Stdio::null());
        asked.status().is_ok_and(|status| status.success())
    };
    let peer = std::env::var("AGENTCAPSULE_PEER").unwrap_or_else(|_| "/tmp/peer/bin/agentcapsule".into());
    let found = [format!("{BINARY} capsule"), peer].into_iter().find(|words| works(words));
    if found.is_none() {
        eprintln!("skipped: there is neither our capsule command nor the reference (AGENTCAPSULE_PEER)");
    }
    found
}

fn read(dir: &TempDir, name: &str) -> String {
    std::fs::read_to_string(dir.path().join("out").join(name)).unwrap()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn string<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap()
}

// ---- looking at a document -------------------------------------------------------------------

/// From the first `from` to the next `to`, what stands between.
#[track_caller]
fn between<'a>(dom: &'a str, from: &str, to: &str) -> &'a str {
    let start = dom.find(from).unwrap_or_else(|| panic!("there is no {from}")) + from.len();
    let rest = &dom[start..];
    &rest[..rest.find(to).unwrap_or_else(|| panic!("there is no {to} behind {from}"))]
}

/// What begins with `tag`, each up to its end or the next one; only those with `mark` in them.
fn parts<'a>(dom: &'a str, tag: &str, mark: &str) -> Vec<&'a str> {
    let close = if tag == "<h3" { "</h3>" } else { "</li>" };
    let end = |part: &'a str| part.find(close).map_or(part, |end| &part[..end]);
    dom.split(tag).skip(1).filter(|part| part.contains(mark)).map(end).collect()
}

/// The values of an attribute, in order.
fn attribute<'a>(dom: &'a str, name: &str) -> Vec<&'a str> {
    let opening = format!("{name}=\"");
    dom.split(&*opening).skip(1).map(|rest| rest.split('"').next().unwrap_or("")).collect()
}

/// The text of a piece of a document, which may begin within a tag; white space as one blank.
fn text(piece: &str) -> String {
    let mut out = String::new();
    let mut inside = piece.find('>').is_some_and(|close| piece.find('<').is_none_or(|open| close < open));
    for c in piece.chars() {
        match c {
            '<' => inside = true,
            '>' => inside = false,
            _ if !inside => out.push(c),
            _ => {}
        }
    }
    let plain = out.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&#39;", "'");
    plain.replace("&nbsp;", " ").replace("&amp;", "&").split_whitespace().collect::<Vec<_>>().join(" ")
}
