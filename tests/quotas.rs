//! Quotas: each is broken by an agent on a real node, names itself and its value, and is written down.

#[path = "support/mod.rs"]
mod support;
use agentcontainer::capsule::PrivateKey;
use agentcontainer::node::Keys;
use agentcontainer::roster::grants::Grant;
use agentcontainer::roster::token::Token;
use agentcontainer::wire::unix_now;
use serde_json::{json, Value};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use support::cli::Home;
use support::lab::{agent, keys, until, Lab};

/// Burns CPU time, by itself or by children; writes and removes files; makes calls.
const WORKER: &str = "def on_activate(self, ctx, p):\n    return None\ndef burn(self, seconds):\n    import time\n    end = time.process_time() + seconds\n    while time.process_time() < end:\n        pass\ndef on_message(self, ctx, m):\n    import os, time\n    if 'burn' in m:\n        self.burn(m['burn'])\n    for each in m.get('children', []):\n        pid = os.fork()\n        if pid == 0:\n            self.burn(each)\n            os._exit(0)\n        if m.get('wait', True):\n            os.waitpid(pid, 0)\n    if 'sleep' in m:\n        time.sleep(m['sleep'])\n    for name, size in m.get('files', {}).items():\n        path = os.path.join(ctx.state_dir(), name)\n        os.makedirs(os.path.dirname(path), exist_ok=True)\n        open(path, 'wb').write(b'x' * size)\n    for name in m.get('remove', []):\n        os.unlink(os.path.join(ctx.state_dir(), name))\n    for name in m.get('links', []):\n        os.symlink(name, os.path.join(ctx.state_dir(), 'link'))\n    told = []\n    for call in m.get('calls', []):\n        try:\n            told.append(getattr(ctx, call[0])(*call[1:]))\n        except Exception as wrong:\n            told.append([getattr(wrong, 'code', type(wrong).__name__), str(wrong)])\n    return told";

fn lab(name: &str, change: impl FnOnce(&mut Keys)) -> Lab {
    let mut keys = keys(name);
    change(&mut keys);
    let lab = Lab::with(keys);
    lab.deploy(&agent("a", WORKER));
    lab
}

fn set(lab: &Lab, id: &str, quotas: Value) {
    lab.ok("set_grant", json!({"agent_id": id, "grant": "quotas", "scope": quotas}));
}

/// How a hook ends that goes over a quota.
#[track_caller]
fn over(lab: &Lab, message: Value, parts: &[&str]) {
    let (code, text) = lab.err("invoke_agent", json!({"agent_id": "a", "message": message}));
    assert_eq!(code, "quota", "{text}");
    parts.iter().for_each(|part| assert!(text.contains(part), "{part:?}: {text}"));
}

/// How a call ends that does.
#[track_caller]
fn refused(told: &Value, parts: &[&str]) {
    assert_eq!(told[0], "quota", "{told}");
    parts.iter().for_each(|part| assert!(told[1].as_str().unwrap().contains(part), "{part:?}: {told}"));
}

/// How often the journal says that `a` went over this quota.
fn noted(lab: &Lab, quota: &str, limit: u64) -> usize {
    let text = std::fs::read_to_string(lab.dir.path().join("state/journal/000000000001.jsonl")).unwrap();
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let ours = |event: &Value| event["kind"] == "quota" && event["quota"] == quota && event["limit"] == limit;
    events.filter(|event| ours(event) && event["agent"] == "a").count()
}

#[test]
fn a_hook_that_burns_cpu_is_ended_and_one_that_waits_is_not() {
    let lab = lab("quota-cpu", |keys| keys.agent_cpu_s = 1);
    let pid = lab.running.node.agent("a").unwrap().life.pid().unwrap();
    over(&lab, json!({"burn": 15}), &["on_message took more than the 1 s of CPU time", "cpu_s"]);
    until(5, "its process is gone", || !std::path::Path::new(&format!("/proc/{pid}")).exists());
    until(5, "it is written down", || noted(&lab, "cpu_s", 1) == 1);
    // By hook, and not by life: a third of a second, five times.
    for _ in 0..5 {
        lab.invoke("a", json!({"burn": 0.3}));
    }
    lab.invoke("a", json!({"sleep": 2}));
    // What it starts counts with it: one that it waits for, and two beside it.
    over(&lab, json!({"children": [0.6, 0.6, 0.6, 15]}), &["CPU time"]);
    over(&lab, json!({"children": [9, 9], "wait": false, "sleep": 15}), &["CPU time"]);
    // So does loading the source.
    let source = agent("burner", WORKER).replace("class Agent:", "while True:\n    pass\nclass Agent:");
    let (code, text) = lab.err("deploy_agent", json!({"source_code": source}));
    assert!(code == "quota" && text.contains("loading the source took more than the 1 s"), "{code} {text}");
    // And what a hook leaves behind: it has no hook of its own to be an error of.
    lab.invoke("a", json!({"children": [15], "wait": false}));
    let pid = lab.running.node.agent("a").unwrap().life.pid().unwrap();
    until(10, "its process is gone", || !std::path::Path::new(&format!("/proc/{pid}")).exists());
    until(5, "it is told", || lab.logged().contains("what its hooks left behind took more CPU time"));
    // A grant raises it.
    set(&lab, "a", json!({"cpu_s": 6}));
    lab.invoke("a", json!({"burn": 1.5}));
}

#[test]
fn a_directory_that_grows_over_its_bound_is_an_error_until_it_shrinks() {
    let lab = lab("quota-state", |keys| keys.agent_state_bytes = 100_000);
    lab.invoke("a", json!({"files": {"f": 60_000}}));
    over(&lab, json!({"files": {"sub/g": 60_000}}), &["the quota state_bytes is 100000"]);
    over(&lab, json!({}), &["state_bytes"]);
    assert!(noted(&lab, "state_bytes", 100_000) >= 2);
    // It may still tidy up.
    lab.invoke("a", json!({"remove": ["f"]}));
    lab.invoke("a", json!({"links": ["/usr", ]}));
    set(&lab, "a", json!({"state_bytes": 50_000}));
    over(&lab, json!({}), &["the quota state_bytes is 50000"]);
    set(&lab, "a", json!({"state_bytes": 0}));
    lab.invoke("a", json!({"files": {"h": 500_000}}));
    // Another that writes into it, with its rights, is stopped before.
    set(&lab, "a", json!({"state_bytes": 600_000}));
    lab.deploy(&agent("root", WORKER));
    for grant in ["management", "ManageRootAgent"] {
        lab.ok("set_grant", json!({"agent_id": "root", "grant": grant}));
    }
    let write = |size: usize| {
        lab.invoke("root", json!({"calls": [["write_agent_file", "a", "state/w", "x".repeat(size)]]}))
    };
    refused(&write(100_000)[0], &["a: the quota state_bytes is 600000"]);
    assert_eq!(write(10)[0], Value::Null);
}

#[test]
fn calls_are_counted_by_the_minute_and_across_generations() {
    let lab = lab("quota-calls", |keys| keys.agent_calls_per_minute = 5);
    let calls = |count: usize| json!({"calls": vec![json!(["networks"]); count]});
    let told = lab.invoke("a", calls(7));
    assert_eq!(told[4]["name"], "quota-calls");
    for place in [5, 6] {
        refused(
            &told[place],
            &["the quota calls_per_minute is 5", "more ctx calls than it may make a minute"],
        );
    }
    assert_eq!(noted(&lab, "calls_per_minute", 5), 1, "once a minute, however often");
    lab.deploy(&agent("a", WORKER));
    refused(&lab.invoke("a", calls(1))[0], &["calls_per_minute"]);
    // Another's count is its own; a line for the log has its own measure.
    lab.deploy(&agent("b", WORKER));
    assert_eq!(lab.invoke("b", calls(1))[0]["name"], "quota-calls");
    assert_eq!(lab.invoke("a", json!({"calls": [["log", "x"]]}))[0], Value::Null);
    set(&lab, "a", json!({"calls_per_minute": 0}));
    assert_eq!(lab.invoke("a", calls(20))[19]["name"], "quota-calls");
}

#[test]
fn bytes_of_files_are_counted_by_the_minute() {
    let lab = lab("quota-read", |keys| keys.agent_read_bytes_per_minute = 1000);
    for name in ["f", "g"] {
        lab.dir.write(&format!("data/{name}"), "x".repeat(600));
    }
    let told =
        lab.invoke("a", json!({"calls": [["read_file", "f"], ["read_file", "g"], ["search_files", "x"]]}));
    assert_eq!(told[0].as_str().unwrap().len(), 600);
    for place in [1, 2] {
        refused(&told[place], &["the quota read_bytes_per_minute is 1000", "more bytes of files"]);
    }
    assert_eq!(noted(&lab, "read_bytes_per_minute", 1000), 1);
    // What is searched through counts, not what is found.
    lab.deploy(&agent("b", WORKER));
    let told = lab.invoke("b", json!({"calls": [["search_files", "nothing"], ["read_file", "f"]]}));
    refused(&told[0], &["read_bytes_per_minute"]);
    refused(&told[1], &["read_bytes_per_minute"]);
}

#[test]
fn bytes_of_bodies_are_counted_by_the_hour() {
    let lab = lab("quota-http", |keys| keys.agent_http_bytes_per_hour = 1500);
    let served = support::TempDir::new("quota-http-served");
    served.write("f", "x".repeat(600));
    let mut server = Command::new("python3")
        .args(["-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory"])
        .arg(served.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let port: u16 = line.split("port ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let url = format!("http://127.0.0.1:{port}/f");
    lab.ok(
        "set_grant",
        json!({"agent_id": "a", "grant": "http", "scope": {"hosts": [format!("127.0.0.1:{port}")]}}),
    );
    let told = lab.invoke(
        "a",
        json!({"calls": [["http_request", "POST", url, "y".repeat(100)], ["http_request", "GET", url],
        ["http_request", "GET", url], ["http_request", "POST", url, "y".repeat(901)]]}),
    );
    assert_eq!(told[0]["status"], 501);
    assert_eq!(told[1]["body"].as_str().unwrap_or_default().len(), 600, "{told}");
    for place in [2, 3] {
        refused(&told[place], &["the quota http_bytes_per_hour is 1500", "an hour"]);
    }
    assert_eq!(noted(&lab, "http_bytes_per_hour", 1500), 1);
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn what_the_kernel_bounds_is_bounded_by_a_grant_too() {
    let body = "def on_activate(self, ctx, p):\n    return None\ndef on_message(self, ctx, m):\n    import os, resource\n    told = [resource.getrlimit(getattr(resource, name)) for name in ('RLIMIT_AS', 'RLIMIT_NOFILE', 'RLIMIT_FSIZE')]\n    try:\n        if m == 'memory':\n            bytearray(400_000_000)\n        if m == 'files':\n            kept = [os.open('/dev/null', os.O_RDONLY) for _ in range(600)]\n            [os.close(fd) for fd in kept]\n        if m == 'file':\n            with open(os.path.join(ctx.state_dir(), 'big'), 'wb') as out:\n                out.write(b'x' * 200_000)\n        return told\n    except (MemoryError, OSError) as wrong:\n        return type(wrong).__name__";
    let lab = lab("quota-process", |_| {});
    lab.deploy(&agent("a", body));
    for what in ["memory", "files", "file"] {
        assert!(lab.invoke("a", json!(what)).is_array(), "{what}");
    }
    // The process has it from its start on, so a change renews it.
    set(&lab, "a", json!({"memory_bytes": 300_000_000, "open_files": 512, "file_bytes": 100_000}));
    assert_eq!(
        lab.invoke("a", json!("")),
        json!([[300_000_000, 300_000_000], [512, 512], [100_000, 100_000]])
    );
    assert_eq!(lab.invoke("a", json!("memory")), "MemoryError");
    assert_eq!(lab.invoke("a", json!("files")), "OSError");
    assert_eq!(lab.invoke("a", json!("file")), "OSError");
    lab.ok("revoke_grant", json!({"agent_id": "a", "grant": "quotas"}));
    assert!(lab.invoke("a", json!("memory")).is_array());
    let (code, text) =
        lab.err("set_grant", json!({"agent_id": "a", "grant": "quotas", "scope": {"open_files": 2000}}));
    assert!(code == "bad_payload" && text.contains("agent_open_files (1024)"), "{text}");
}

#[test]
fn a_token_narrows_quotas_and_never_raises_them() {
    let ops = PrivateKey::generate().unwrap();
    let key = json!({"ops": {"key": ops.public().text(), "groups": ["federation"]}});
    let lab = Lab::with(Keys {
        token_keys: serde_json::from_value(key).unwrap(),
        agent_calls_per_minute: 4,
        ..keys("quota-token")
    });
    let arrive = |id: &str, quotas: Value| {
        let says = Grant::read(&json!({"groups": ["federation"], "quotas": quotas})).unwrap();
        let token = Token::issue(&ops, id, unix_now(), unix_now() + 600, None, &says).unwrap();
        let payload = json!({"source_code": agent(id, WORKER), "agent_metadata": {"capability_token": token.to_json()}});
        assert!(lab.ask_as(id, &format!("secret of {id}"), "receive_agent", &payload.to_string()).is_ok());
        lab.invoke(id, json!({"calls": vec![json!(["networks"]); 6]}))
    };
    for (id, quotas, most) in [
        ("less", json!({"calls_per_minute": 2}), 2),
        ("none", json!({"calls_per_minute": 0}), 4),
        ("more", json!({"calls_per_minute": 100}), 4),
    ] {
        let told = arrive(id, quotas);
        assert_eq!(told[most - 1]["name"], "quota-token", "{id}");
        refused(&told[most], &[&format!("the quota calls_per_minute is {most}")]);
    }
}

#[test]
fn what_bounds_agents_is_told_and_changed() {
    let lab = lab("quota-told", |keys| keys.agent_cpu_s = 7);
    let limits = lab.ok("describe_container", json!({}))["limits"].clone();
    assert_eq!((&limits["agent_cpu_s"], &limits["agent_state_bytes"]), (&json!(7), &json!(1 << 30)));
    for name in ["agent_calls_per_minute", "agent_read_bytes_per_minute", "agent_http_bytes_per_hour"] {
        assert_eq!(limits[name], 0, "{name}");
    }
    for name in ["agent_memory_bytes", "agent_open_files", "agent_file_bytes", "agent_processes"] {
        assert!(limits[name].as_u64().unwrap() > 0, "{name}");
    }
    for (scope, part) in [
        (json!({"cpu": 1}), "no quota \"cpu\"; there are cpu_s"),
        (json!({"cpu_s": -1}), "whole number"),
        (json!({}), "name nothing"),
    ] {
        let (code, text) = lab.err("set_grant", json!({"agent_id": "a", "grant": "quotas", "scope": scope}));
        assert!(code == "bad_payload" && text.contains(part), "{text}");
    }
    assert!(lab.err("set_grant", json!({"agent_id": "a", "grant": "quotas"})).1.contains("set by a scope"));
    // An agent does not set its own.
    let answer = lab.ask_as(
        "a",
        "secret of a",
        "set_grant",
        r#"{"agent_id":"a","grant":"quotas","scope":{"cpu_s":0}}"#,
    );
    assert!(!answer.is_ok());
    let home = Home::new("quotas-cli");
    let server = home.server("node", &["127.0.0.1:0"]);
    let at = server.at();
    let with = |arguments: &[&str]| home.run(&[arguments, &["--state-dir", server.dir()]].concat());
    let told =
        with(&["grant", "probe", "quotas", &at, "--scope", r#"{"cpu_s": 5, "state_bytes": 0}"#]).exits(0).out;
    assert!(told.contains("quotas {\"cpu_s\":5,\"state_bytes\":0}"), "{told}");
    let told =
        with(&["grant", "probe", "quotas", &at, "--scope", r#"{"cpu_s": 6}"#, "--json"]).exits(0).json();
    assert_eq!(told["grant"]["quotas"], json!({"cpu_s": 6, "state_bytes": 0}));
    assert_eq!(
        with(&["revoke", "probe", "quotas", &at, "--json"]).exits(0).json()["grant"]["quotas"],
        Value::Null
    );
}
