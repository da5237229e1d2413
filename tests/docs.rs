//! What the documents show is run: the shell blocks of README.md, OPERATIONS.md, TOKENS.md, CAPSULE.md and CARRIERS.md in order, PROTOCOL.md's
//! examples, and the policies of CAPSULE-THREATS.md are read.

#[path = "support/mod.rs"]
mod support;
use agentcontainer::capsule::Policy;
use serde_json::{json, Value};
use std::path::Path;
use std::process::Command;
use support::lab::{Lab, ADMIN};

/// The fenced blocks of a document: language and text.
fn blocks(document: &str) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(document)).unwrap();
    let mut found = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in text.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(language)) => open = Some((language.trim().to_owned(), String::new())),
            (Some(_), Some(_)) => found.extend(open.take()),
            (Some((_, block)), None) => {
                block.push_str(line);
                block.push('\n');
            }
            (None, None) => {}
        }
    }
    found
}

/// Whether `text` is `pattern`, where `…` stands for anything.
fn matches(pattern: &str, text: &str) -> bool {
    let mut rest = text;
    let pieces: Vec<&str> = pattern.split('…').collect();
    for (index, piece) in pieces.iter().enumerate() {
        let found = match index {
            0 => rest.starts_with(piece).then_some(0),
            last if last + 1 == pieces.len() && rest.ends_with(piece) => Some(rest.len() - piece.len()),
            last if last + 1 == pieces.len() => None,
            _ => rest.find(piece),
        };
        match found {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    rest.is_empty() || pieces.len() > 1
}

fn is_there(program: &str) -> bool {
    Command::new("sh").args(["-c", &format!("command -v {program} >/dev/null")]).status().unwrap().success()
}

/// Runs a document's shell blocks in order, as one script in `dir`, and compares what each prints with
/// the text block behind it; there are at least so many. Port 7000 is a free one; `paths` come before this process's PATH.
fn run_as_printed(document: &str, least: usize, dir: &Path, paths: &[&Path]) {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let all = blocks(document);
    let mut script = String::from("set -eu\nnode=\ntrap 'kill \"$node\" 2>/dev/null || true' EXIT\n");
    let mut expected = Vec::new();
    for (index, (language, block)) in all.iter().enumerate() {
        if language == "sh" {
            script.push_str(&format!("printf '@@%s\\n' {index}\n{}\n", block.replace("7000", &free)));
            let output = all.get(index + 1).filter(|next| next.0 == "text");
            expected.push((index, output.map(|next| next.1.clone())));
        }
    }
    assert!(expected.len() >= least, "{document} has its shell blocks");
    let mut path = String::new();
    for place in paths {
        path.push_str(&format!("{}:", place.display()));
    }
    path.push_str(&std::env::var("PATH").unwrap());
    let output = Command::new("sh")
        .args(["-c", &script])
        .current_dir(dir)
        .env("PATH", path)
        .env("HOME", dir)
        .env_remove("XDG_STATE_HOME")
        .env_remove("AGENTCONTAINER_SECRET")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let log = std::fs::read_to_string(dir.join("node.log")).unwrap_or_default();
    assert!(output.status.success(), "{document}: {}\n{printed}\n{said}\n{log}", output.status);
    for (index, wanted) in expected {
        let Some(wanted) = wanted else { continue };
        let from = printed.split(&format!("@@{index}\n")).nth(1).unwrap();
        let part = from.split("@@").next().unwrap();
        assert!(
            matches(wanted.trim_end(), part.trim_end()),
            "{document}, block {index}: expected\n{wanted}\ngot\n{part}\n{said}\n{log}"
        );
    }
}

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_agentcontainer"))
}

#[test]
fn the_readme_is_run_as_printed() {
    for tool in ["nc", "jq", "openssl"] {
        if !is_there(tool) {
            eprintln!("passed over: the README's shell blocks need {tool}");
            return;
        }
    }
    let dir = support::TempDir::new("readme");
    for name in ["agents", "examples", "fixtures"] {
        std::os::unix::fs::symlink(top().join(name), dir.path().join(name)).unwrap();
    }
    // Another node of the same user, whose secret is not the one to take.
    dir.write(
        ".local/state/agentcontainer/another/node.json",
        r#"{"name":"another","host":"127.0.0.1","port":1,"pid":1}"#,
    );
    dir.write(".local/state/agentcontainer/another/meta/admin.secret", "another secret\n");
    run_as_printed("README.md", 6, dir.path(), &[binary().parent().unwrap()]);
}

#[test]
fn the_page_about_running_a_node_is_run_as_printed() {
    let dir = support::TempDir::new("operations-page");
    run_as_printed("docs/OPERATIONS.md", 6, dir.path(), &[binary().parent().unwrap()]);
}

#[test]
fn the_page_about_tokens_is_run_as_printed() {
    let dir = support::TempDir::new("tokens-page");
    run_as_printed("docs/TOKENS.md", 6, dir.path(), &[binary().parent().unwrap()]);
}

#[test]
fn the_page_about_running_a_node_says_what_every_line_in_the_log_means() {
    let page = std::fs::read_to_string(top().join("docs/OPERATIONS.md")).unwrap();
    let table = page.split("### What a line in the log means").nth(1).unwrap().split("\n## ").next().unwrap();
    let mut events = std::collections::BTreeSet::new();
    let mut folders = vec![top().join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            match entry.path() {
                path if path.is_dir() => folders.push(path),
                path if path.extension().is_some_and(|kind| kind == "rs") => events.extend(logged_by(&path)),
                _ => {}
            }
        }
    }
    assert!(events.len() > 30, "{events:?}");
    for event in &events {
        assert!(table.contains(&format!("`{event}`")), "{event}");
    }
    let told = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    let told =
        told.flat_map(|cell| cell.split(", ")).filter_map(|name| name.strip_prefix('`')?.strip_suffix('`'));
    for name in told {
        assert!(events.contains(name), "{name} is an event no more");
    }
}

/// The events that a source file logs: the first text of each call that does.
fn logged_by(source: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(source).unwrap();
    let text = text.split("#[cfg(test)]").next().unwrap();
    let mut events = Vec::new();
    for call in ["log.event(", "said.event(", "log.agent(", "self.line("] {
        for rest in text.split(call).skip(1) {
            let arguments = &rest[..rest.find(';').unwrap_or(rest.len())];
            let name = arguments.split('"').nth(1).unwrap_or("");
            let plain = |c: char| c.is_ascii_lowercase() || c == '_';
            let field = arguments.split('"').next().is_some_and(|before| before.contains("&["));
            if !name.is_empty() && name.chars().all(plain) && !field {
                events.push(name.to_owned());
            }
        }
    }
    events
}

#[test]
fn the_page_about_running_a_node_says_which_keys_a_reload_changes() {
    let page = std::fs::read_to_string(top().join("docs/OPERATIONS.md")).unwrap();
    let source = std::fs::read_to_string(top().join("src/node/config.rs")).unwrap();
    let lists = source.split("\nkeys! {").nth(1).unwrap();
    let list = |kind: &str| {
        let keys = lists.split(&format!("{kind}: [")).nth(1).unwrap().split(']').next().unwrap();
        keys.split(',').map(|key| format!("`{}`", key.trim())).filter(|key| key != "``").collect::<Vec<_>>()
    };
    let row = page.lines().find(|line| line.starts_with("| `admin_secret`")).unwrap();
    let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
    for (cell, other, kind) in [(cells[0], cells[1], "live"), (cells[1], cells[0], "fixed")] {
        for key in list(kind) {
            assert!(cell.contains(&key) && !other.contains(&key), "{key} is {kind}");
        }
    }
}

#[test]
fn the_page_about_capsules_is_run_as_printed() {
    let dir = support::TempDir::new("capsule-page");
    std::os::unix::fs::symlink(top().join("agents"), dir.path().join("agents")).unwrap();
    let bin = support::TempDir::new("capsule-page-bin");
    for name in ["agentcontainer", "agentcapsule"] {
        std::os::unix::fs::symlink(binary(), bin.path().join(name)).unwrap();
    }
    run_as_printed("docs/CAPSULE.md", 6, dir.path(), &[bin.path()]);
}

#[test]
fn the_page_about_carriers_is_run_as_printed_and_names_every_command() {
    let dir = support::TempDir::new("carriers-page");
    run_as_printed("docs/CARRIERS.md", 2, dir.path(), &[binary().parent().unwrap()]);
    let page = std::fs::read_to_string(top().join("docs/CARRIERS.md")).unwrap();
    let help = Command::new(binary()).args(["carrier", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let commands = help.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let commands: Vec<&str> = commands.collect();
    assert!(commands.len() >= 10, "{commands:?}");
    for name in commands {
        assert!(page.contains(&format!("`{name} ")) || page.contains(&format!("carrier {name} ")), "{name}");
    }
}

#[test]
fn the_policies_that_the_threat_page_shows_are_policies() {
    let shown = blocks("docs/CAPSULE-THREATS.md");
    let policies: Vec<Policy> = shown
        .iter()
        .filter(|block| block.0 == "json")
        .map(|block| {
            let value: Value = serde_json::from_str(&block.1).unwrap();
            assert_eq!(value.as_object().unwrap().len(), 11, "it has all fields: {value}");
            Policy::parse(&block.1).unwrap()
        })
        .collect();
    let [observing, signed, small] = &policies[..] else { panic!("three policies, not {}", policies.len()) };
    assert_eq!(*observing, Policy::default());
    for strict in [signed, small] {
        assert!(!strict.allow_unsigned && strict.require_signature_registry);
        assert!(strict.required_signature_modes.iter().eq(["ed25519"]));
    }
    assert!(small.max_payload_bytes < signed.max_payload_bytes && small.allowed_content_types.len() == 1);
}

#[test]
fn the_page_about_capsules_names_every_field_of_a_policy_and_every_command() {
    let page = std::fs::read_to_string(top().join("docs/CAPSULE.md")).unwrap();
    let policy: Value = serde_json::from_str(&Policy::default().json()).unwrap();
    for name in policy.as_object().unwrap().keys() {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
    for name in agentcontainer::capsule::headers::REQUIRED {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
    let help = Command::new(binary()).args(["capsule", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let commands = help.lines().filter_map(|line| Some(line.strip_prefix("  ")?.split("  ").next()?.trim()));
    let commands: Vec<&str> = commands.collect();
    assert!(commands.len() >= 17, "{commands:?}");
    for name in commands {
        assert!(page.contains(&format!("`{name}")), "{name}");
    }
}

#[test]
fn the_examples_of_the_protocol_are_what_a_node_says() {
    let lab = Lab::start("docs");
    let all = blocks("docs/PROTOCOL.md");
    let examples: Vec<Value> = all
        .iter()
        .filter(|block| block.0 == "json")
        .map(|block| serde_json::from_str(&block.1).unwrap())
        .collect();
    assert!(examples.len() >= 12 && examples.len().is_multiple_of(2));
    for pair in examples.chunks(2) {
        let kind = pair[0]["type"].as_str().unwrap();
        let answer = lab.ask_as("admin", ADMIN, kind, &pair[0]["payload"].to_string());
        let result: Value =
            serde_json::from_str(answer.result().unwrap_or_else(|| panic!("{}", answer.line()))).unwrap();
        same_shape(kind, &pair[1], &result);
        if matches!(kind, "deploy_agent" | "invoke_agent" | "remove_agent") {
            assert_eq!(pair[1], result, "{kind}");
        }
    }
    let documented =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/PROTOCOL.md")).unwrap();
    for kind in agentcontainer::node::senders::TYPES {
        assert!(documented.contains(&format!("`{kind}`")), "{kind} is documented");
    }
    for code in agentcontainer::wire::Code::ALL {
        assert!(documented.contains(&format!("`{code}`")), "{code} is documented");
    }
}

/// Every member that the document shows is there, and no other; `{}` and numbers stand for any.
fn same_shape(place: &str, shown: &Value, real: &Value) {
    match (shown, real) {
        (Value::Object(shown), Value::Object(real)) if !shown.is_empty() => {
            let names = |object: &serde_json::Map<String, Value>| {
                object.keys().cloned().collect::<std::collections::BTreeSet<_>>()
            };
            assert_eq!(names(shown), names(real), "{place}");
            for (name, value) in shown {
                same_shape(&format!("{place}.{name}"), value, &real[name]);
            }
        }
        (Value::Array(shown), Value::Array(real)) if !shown.is_empty() => {
            assert_eq!(shown.len(), real.len(), "{place}");
            same_shape(place, &shown[0], &real[0]);
        }
        (Value::Null, _) | (_, Value::Null) => {}
        _ => {
            assert_eq!(std::mem::discriminant(shown), std::mem::discriminant(real), "{place}: {shown} {real}")
        }
    }
}

#[test]
fn every_key_of_the_configuration_is_in_the_readme() {
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let error = agentcontainer::node::Keys::parse(&json!({"listen_prot": 1}).to_string()).unwrap_err();
    assert!(error.contains("nearest"));
    let source =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/node/config.rs")).unwrap();
    let keys = source.split("pub struct Keys {").nth(1).unwrap().split("\n}\n").next().unwrap();
    let names: Vec<&str> =
        keys.lines().filter_map(|line| line.trim().strip_prefix("pub ")?.split(':').next()).collect();
    assert!(names.len() > 30, "{names:?}");
    for name in names {
        assert!(readme.contains(&format!("`{name}`")), "{name} is in the README's table");
        assert!(!is_unknown_key(name), "{name} is a key that the file may have");
    }
}

fn is_unknown_key(name: &str) -> bool {
    let text = json!({name: null}).to_string();
    agentcontainer::node::Keys::parse(&text).is_err_and(|error| error.contains("there is no key"))
}
