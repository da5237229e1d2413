//! The node's own roster: what is in `meta/topology.json`, and that nobody but the node's own pass writes it.

#[path = "support/mod.rs"]
mod support;
use serde_json::{json, Value};
use std::path::PathBuf;
use support::cli::Home;
use support::lab::{agent, keys, until, Lab};

const BODY: &str =
    "def on_activate(self, ctx, p):\n    return p\ndef on_message(self, ctx, m):\n    return m";

fn file(lab: &Lab) -> PathBuf {
    lab.running.state_dir.join("meta/topology.json")
}

fn written(lab: &Lab) -> Value {
    std::fs::read(file(lab)).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

fn ids(lab: &Lab) -> Vec<String> {
    let listed = lab.ok("list_roster", json!({}));
    listed.as_array().unwrap().iter().map(|agent| agent["agent_id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_roster_follows_who_comes_goes_and_is_declared() {
    let lab = Lab::start("roster");
    assert_eq!(written(&lab), json!([]), "it is there from the start");
    lab.deploy(&agent("zoe", BODY));
    lab.deploy(&agent("adam", BODY));
    until(10, "both are written", || written(&lab) == json!(["adam", "zoe"]));
    let home = lab.running.state_dir.join("agents/mike/config");
    std::fs::create_dir_all(&home).unwrap();
    assert_eq!(ids(&lab), ["adam", "mike", "zoe"], "declared, and never ran");
    let listed = lab.ok("list_roster", json!({}));
    assert_eq!(listed[1], json!({"agent_id": "mike", "state": "declared", "live": false, "declared": true}));
    lab.ok("remove_agent", json!({"agent_id": "zoe"}));
    until(10, "one is gone", || written(&lab) == json!(["adam", "mike"]));
    std::fs::remove_dir(&home).unwrap();
    assert_eq!(ids(&lab), ["adam"]);
    assert_eq!(written(&lab), json!(["adam"]));
}

#[test]
fn a_hand_edit_is_overwritten_by_the_next_pass_and_a_start_is_one() {
    let dir = support::TempDir::new("roster-edited");
    let mut keys = keys("edited");
    keys.state_dir = Some(dir.path().join("state"));
    let lab = Lab::with(keys.clone());
    lab.deploy(&agent("a", BODY));
    for edit in [r#"["a","eve"]"#, r#"{"a":null,"eve":"a"}"#, "no json", ""] {
        std::fs::write(file(&lab), edit).unwrap();
        assert_eq!(ids(&lab), ["a"], "{edit}");
        assert_eq!(written(&lab), json!(["a"]));
    }
    drop(lab);
    std::fs::write(dir.path().join("state/meta/topology.json"), r#"["eve"]"#).unwrap();
    let lab = Lab::with(keys);
    assert_eq!(written(&lab), json!(["a"]));
    assert!(lab.has("a") && !lab.has("eve"));
}

#[test]
fn an_agent_adds_nobody_to_anything_with_any_message_call_or_path() {
    let lab = Lab::start("nobody");
    let tries = "def on_activate(self, ctx, p):\n    return p\ndef on_message(self, ctx, m):\n    told = []\n    for name, arguments in m:\n        try:\n            told.append({'ok': ctx._call(name, arguments)})\n        except Exception as wrong:\n            told.append({'code': getattr(wrong, 'code', type(wrong).__name__)})\n    return told";
    lab.deploy(&agent("a", tries));
    lab.ok("create_identity", json!({"agent_id": "b", "secret_sha256": "0".repeat(64)}));
    let identities = lab.ok("list_identities", json!({}));
    let grants = lab.ok("list_grants", json!({}));
    let payload = |kind: &str| match kind {
        "create_identity" => json!({"agent_id": "eve", "secret_sha256": "1".repeat(64)}),
        "rotate_identity" => json!({"agent_id": "b", "secret_sha256": "1".repeat(64)}),
        "push_identities" | "list_identities" | "list_roster" | "list_grants" => json!({}),
        "deploy_agent" | "receive_agent" | "queue_agent" => json!({"source_code": agent("eve", BODY)}),
        "set_grant" => json!({"agent_id": "a", "grant": "ManageRootAgent"}),
        "transfer_status" | "transfer_cancel" | "transfer_forget" => json!({"transfer_id": "t"}),
        _ => json!({"agent_id": "b"}),
    };
    for kind in agentcontainer::node::senders::TYPES {
        // With its own secret, in its own name and in those that count for more.
        for sender in ["a", "admin", "ruth", ".identities", "eve"] {
            let answer = lab.ask_as(sender, "secret of a", kind, &payload(kind).to_string());
            let harmless = sender == "a"
                && matches!(
                    kind,
                    "describe_container"
                        | "network_tree"
                        | "transfer_status"
                        | "transfer_cancel"
                        | "transfer_forget"
                );
            assert!(harmless || !answer.is_ok(), "{sender} {kind}: {}", answer.line());
        }
    }
    // As calls, under the names of messages and of the node's own functions.
    let mut calls: Vec<Value> =
        agentcontainer::node::senders::TYPES.iter().map(|kind| json!([kind, payload(kind)])).collect();
    for name in ["roster", "reconcile", "start", "kill", "rebuild", "admin", "set_roster", "topology"] {
        calls.push(json!([name, {"agent_id": "eve"}]));
    }
    for path in ["../state/meta/topology.json", "/etc/passwd", "../state/meta/identities.json"] {
        calls.push(json!(["read_file", {"path": path, "binary": false}]));
    }
    for told in lab.invoke("a", json!(calls)).as_array().unwrap() {
        assert!(told.get("ok").is_none(), "{told}");
    }
    assert_eq!(ids(&lab), ["a"]);
    assert_eq!(lab.ok("list_identities", json!({})), identities);
    assert_eq!(lab.ok("list_grants", json!({})), grants);
}

#[test]
fn the_command_prints_who_is_here() {
    let home = Home::new("roster-cli");
    let server = home.server("node", &["127.0.0.1:0"]);
    std::fs::create_dir_all(server.dir.join("agents/later/config")).unwrap();
    let at = server.at();
    let with = |arguments: &[&str]| home.run(&[arguments, &["--state-dir", server.dir()]].concat());
    let file = home.agent("now", "    def on_activate(self, ctx, payload):\n        return 1");
    with(&["deploy", &file, &at]).exits(0);
    let shown = with(&["roster", &at]).exits(0).out;
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[1].starts_with("later  declared") && lines[2].starts_with("now    idle"), "{shown}");
    let told = with(&["roster", &at, "--json"]).exits(0).json();
    assert_eq!(told.as_array().unwrap().len(), 2);
}

#[test]
fn an_address_that_sends_too_much_without_a_signature_shuts_out_strangers_and_not_the_admin() {
    let lab = Lab::start("budget");
    lab.deploy(&agent("a", BODY));
    let stranger = |id: &str| {
        let payload = json!({"source_code": agent(id, BODY)}).to_string();
        lab.ask_as(id, &format!("secret of {id}"), "receive_agent", &payload)
    };
    assert!(stranger("early").is_ok());
    let refused = |times: usize| {
        for _ in 0..times {
            assert!(!lab.ask_as("admin", "not the secret", "list_agents", "{}").is_ok());
        }
    };
    refused(150);
    // On a slow machine the budget may have recovered by one meanwhile.
    let busy = (0..20).any(|round| {
        refused(5);
        stranger(&format!("late-{round}")).code() == Some("busy")
    });
    assert!(busy, "strangers have to wait");
    assert_eq!(lab.ask_as("admin", "not the secret", "list_agents", "{}").code(), Some("bad_signature"));
    lab.ok("list_agents", json!({}));
    assert!(lab.ask_as("a", "secret of a", "describe_container", "{}").is_ok());
    refused(5);
    assert!(stranger("early").is_ok(), "who is pinned comes again");
    assert_eq!(lab.logged().matches("address_limited").count(), 1);
    assert!(lab.logged().matches("request_refused").count() < 200);
    let mut journal = String::new();
    for entry in std::fs::read_dir(lab.running.state_dir.join("journal")).unwrap().flatten() {
        journal.push_str(&std::fs::read_to_string(entry.path()).unwrap());
    }
    assert_eq!(journal.matches("\"kind\":\"limited\"").count(), 1);
}
