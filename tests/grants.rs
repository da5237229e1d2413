//! What agents may do: grants, scopes, and agents that try for more. Real nodes, real agents.

#[path = "support/mod.rs"]
mod support;
use serde_json::{json, Value};
use support::cli::Home;
use support::lab::{agent, Lab};

/// Tries a call, and tells how it ended.
const TRIER: &str = "def on_activate(self, ctx, p):\n    return sorted(ctx.capabilities())\ndef on_message(self, ctx, m):\n    try:\n        return {'ok': getattr(ctx, m['call'])(*m.get('args', []))}\n    except Exception as wrong:\n        return {'code': getattr(wrong, 'code', type(wrong).__name__), 'text': str(wrong)}";

fn tries(lab: &Lab, id: &str, call: &str, args: Value) -> Value {
    lab.invoke(id, json!({"call": call, "args": args}))
}

#[track_caller]
fn forbidden(told: &Value, part: &str) {
    assert_eq!(told["code"], "forbidden", "{told}");
    assert!(told["text"].as_str().unwrap().contains(part), "{part:?}: {told}");
}

fn grant(lab: &Lab, id: &str, name: &str) -> Value {
    lab.ok("set_grant", json!({"agent_id": id, "grant": name}))
}

fn narrow(lab: &Lab, id: &str, name: &str, scope: Value) {
    lab.ok("set_grant", json!({"agent_id": id, "grant": name, "scope": scope}));
}

fn revoke(lab: &Lab, id: &str, name: &str) -> Value {
    lab.ok("revoke_grant", json!({"agent_id": id, "grant": name}))
}

#[test]
fn who_came_on_its_own_signature_gets_less_and_a_change_counts_at_the_next_call() {
    let lab = Lab::start("grants");
    let admins = lab.deploy(&agent("admins", TRIER))["activate_result"].clone();
    assert!(admins.as_array().unwrap().contains(&json!("run")), "{admins}");
    let source = agent("stranger", TRIER);
    let secret = source
        .lines()
        .find_map(|line| line.strip_prefix("AGENT_SECRET = "))
        .unwrap()
        .trim_matches('"')
        .to_owned();
    let arrive = |payload: Value| lab.ask_as("stranger", &secret, "receive_agent", &payload.to_string());
    let answer = arrive(json!({"source_code": source}));
    let told: Value = serde_json::from_str(answer.result().unwrap()).unwrap();
    let expected = [
        "clone",
        "move",
        "networks",
        "read_file",
        "resources",
        "return_to_stage",
        "search_files",
        "send",
        "stage",
        "trace",
    ];
    assert_eq!(told["activate_result"], json!(expected));
    forbidden(
        &tries(&lab, "stranger", "run", json!([["true"]])),
        "the node grants stranger neither \"run\" nor its group \"process\"",
    );
    grant(&lab, "stranger", "process");
    assert_eq!(tries(&lab, "stranger", "run", json!([["true"]]))["ok"]["returncode"], 0);
    revoke(&lab, "stranger", "run");
    forbidden(&tries(&lab, "stranger", "run", json!([["true"]])), "process");
    // It keeps its own entry when it comes again; an admin's agent that is replaced so drops to the lesser.
    lab.deploy(&agent("late", TRIER));
    let own = agent("late", TRIER);
    let secret = own
        .lines()
        .find_map(|line| line.strip_prefix("AGENT_SECRET = "))
        .unwrap()
        .trim_matches('"')
        .to_owned();
    lab.ask_as("late", &secret, "receive_agent", &json!({"source_code": own}).to_string());
    forbidden(&tries(&lab, "late", "run", json!([["true"]])), "process");
}

#[test]
fn a_grant_outlives_the_node_and_only_the_admin_changes_it() {
    let mut keys = support::lab::keys("grants-kept");
    let dir = support::TempDir::new("grants-kept-state");
    keys.state_dir = Some(dir.path().join("state"));
    let lab = Lab::with(keys.clone());
    lab.deploy(&agent("a", TRIER));
    revoke(&lab, "a", "files");
    let secret = "secret of a";
    for kind in ["set_grant", "revoke_grant", "list_grants"] {
        let answer = lab.ask_as("a", secret, kind, r#"{"agent_id":"a","grant":"files"}"#);
        assert!(!answer.is_ok(), "{kind}");
    }
    drop(lab);
    let lab = Lab::with(keys);
    forbidden(&tries(&lab, "a", "read_file", json!(["x"])), "files");
    assert_eq!(lab.ok("list_grants", json!({}))["agents"]["a"]["groups"].as_array().unwrap().len(), 6);
}

#[test]
fn scopes_narrow_and_have_no_way_around() {
    let lab = Lab::start("scopes");
    for (name, text) in [("docs/a.txt", "chess"), ("docs2/b.txt", "chess"), ("c.txt", "chess")] {
        lab.dir.write(&format!("data/{name}"), text);
    }
    lab.deploy(&agent("a", TRIER));
    let paths = json!({"paths": ["docs/"]});
    for call in ["read_file", "search_files", "resources"] {
        narrow(&lab, "a", call, paths.clone());
    }
    assert_eq!(tries(&lab, "a", "read_file", json!(["docs/a.txt"]))["ok"], "chess");
    for path in ["c.txt", "docs2/b.txt", "docs/../c.txt", "docs/../../state/meta/admin.secret", ".", ""] {
        let told = tries(&lab, "a", "read_file", json!([path]));
        forbidden(&told, "its scope does not have it");
    }
    forbidden(&tries(&lab, "a", "search_files", json!(["chess"])), "\".\"");
    let found = tries(&lab, "a", "search_files", json!(["chess", "docs"]));
    assert_eq!(found["ok"].as_array().unwrap().len(), 1, "{found}");
    assert_eq!(tries(&lab, "a", "resources", json!([]))["ok"]["files"], json!(["docs/a.txt"]));
    narrow(&lab, "a", "run", json!({"commands": ["echo"]}));
    assert_eq!(tries(&lab, "a", "run", json!([["echo", "x"]]))["ok"]["stdout"], "x\n");
    for command in [json!(["sh", "-c", "echo"]), json!(["/bin/echo"]), json!(["echo;ls"]), json!(["./echo"])]
    {
        forbidden(&tries(&lab, "a", "run", json!([command])), "command");
    }
    narrow(&lab, "a", "move", json!({"destinations": ["elsewhere"]}));
    forbidden(&tries(&lab, "a", "move", json!(["scopes"])), "destination \"scopes\"");
    assert_eq!(tries(&lab, "a", "move", json!(["elsewhere"]))["code"], "unknown_destination");
    for (payload, part) in [
        (json!({"agent_id": "a", "grant": "fly"}), "neither a group"),
        (json!({"agent_id": "a", "grant": "run", "scope": {"command": ["x"]}}), "no member \"command\""),
        (json!({"agent_id": "a", "grant": "scheduling"}), "the manager's alone"),
        (json!({"agent_id": "a", "grant": "edit_schedule"}), "the manager's alone"),
        (json!({"agent_id": "../a", "grant": "run"}), "../a"),
    ] {
        let (code, error) = lab.err("set_grant", payload);
        assert!(code == "bad_payload" && error.contains(part), "{error}");
    }
    assert!(revoke(&lab, "a", "management")["changed"] == false);
}

#[test]
fn this_machines_servers_must_be_named() {
    let lab = Lab::start("grants-http");
    lab.deploy(&agent("a", TRIER));
    let port = lab.running.node.port();
    let url = format!("http://127.0.0.1:{port}/");
    forbidden(&tries(&lab, "a", "http_request", json!(["GET", url])), "must be named");
    narrow(&lab, "a", "http", json!({"hosts": [format!("127.0.0.1:{port}")]}));
    assert_ne!(tries(&lab, "a", "http_request", json!(["GET", url]))["code"], "forbidden");
    let other = format!("http://localhost:{port}/");
    forbidden(&tries(&lab, "a", "http_request", json!(["GET", other])), "localhost");
}

#[test]
fn an_agent_that_tries_everything_it_reaches_has_what_it_had() {
    let lab = Lab::start("grants-tries");
    let body = format!("{TRIER}\ndef sneak(self):\n    pass");
    lab.deploy(&agent("a", &body));
    revoke(&lab, "a", "process");
    let before = lab.ok("list_grants", json!({}));
    // As a sender of messages with its own secret.
    for kind in agentcontainer::node::senders::TYPES {
        let payload = json!({"agent_id": "a", "grant": "process", "source_code": "x", "transfer_id": "t"});
        lab.ask_as("a", "secret of a", kind, &payload.to_string());
        lab.ask_as("admin", "secret of a", kind, &payload.to_string());
    }
    // As a caller: a name that is no method of ctx, its own metadata, a forged frame.
    let forged = "def on_activate(self, ctx, p):\n    pass\ndef on_message(self, ctx, m):\n    told = []\n    for name in ('set_grant', 'revoke_grant', 'run', 'admin'):\n        try:\n            told.append(ctx._call(name, {'agent_id': 'a', 'grant': 'process', 'command': ['true'], 'timeout': 1}))\n        except Exception as wrong:\n            told.append(getattr(wrong, 'code', str(wrong)))\n    return told";
    lab.deploy(&agent("a", forged));
    assert_eq!(lab.invoke("a", json!({})), json!(["bad_payload", "bad_payload", "forbidden", "bad_payload"]));
    assert_eq!(lab.ok("list_grants", json!({})), before);
}

#[test]
fn the_commands_show_and_change_grants() {
    let home = Home::new("grants-cli");
    let server = home.server("node", &["127.0.0.1:0"]);
    let at = server.at();
    let with = |arguments: &[&str]| home.run(&[arguments, &["--state-dir", server.dir()]].concat());
    let shown = with(&["grants", &at]).exits(0).out;
    assert!(shown.contains("(sent by the admin)") && shown.contains("process"), "{shown}");
    let told = with(&["grant", "probe", "http", &at, "--scope", r#"{"hosts":["127.0.0.1:1"]}"#]).exits(0).out;
    assert!(told.contains("http_request only {\"hosts\":[\"127.0.0.1:1\"]}"), "{told}");
    with(&["grant", "probe", "fly", &at]).exits(1).says("neither a group");
    with(&["revoke", "probe", "sockets", &at]).exits(0).says("had nothing of sockets");
    let json = with(&["revoke", "probe", "http", &at, "--json"]).exits(0).json();
    assert_eq!(json["changed"], true);
}
