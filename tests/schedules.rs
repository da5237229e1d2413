//! Schedules on real nodes, whose clocks are set and who are killed.

#[path = "support/mod.rs"]
mod support;

#[path = "support/lines.rs"]
mod lines;

#[allow(dead_code)] // a part of it is used here
mod durable {
    pub mod node;
}

use agentcontainer::node::Keys;
use durable::node::Node;
use serde_json::{json, Value};
use std::process::Stdio;
use support::cli::{Home, Server};
use support::lab::{agent, keys, until, Lab};

/// Notes when it begins and ends, and sleeps as long as the message says in between.
const SLEEPER: &str = "def __init__(self):\n    self.runs = 0\ndef on_message(self, ctx, m):\n    import os, time\n    place = os.path.join(ctx.state_dir(), 'running')\n    fd = os.open(place, os.O_CREAT | os.O_EXCL)\n    time.sleep(m)\n    os.close(fd)\n    os.remove(place)\n    self.runs += 1\n    return self.runs";

/// Counts what it is told.
const COUNTER: &str = "def __init__(self):\n    self.told = []\ndef on_message(self, ctx, m):\n    self.told.append(m)\n    return len(self.told)";

fn schedule(node: &Node, mut order: Value) -> Value {
    order["do"] = json!("schedule");
    let told = node.ok("invoke_agent", json!({"agent_id": "ruth", "message": order}));
    assert!(told["result"]["schedule"].is_object(), "{told}");
    told["result"]["schedule"].clone()
}

fn one(node: &Node, id: &str) -> Value {
    let listed = node.ok("list_schedules", json!({}));
    listed.as_array().unwrap().iter().find(|schedule| schedule["id"] == id).cloned().unwrap_or_default()
}

fn result(node: &Node, id: &str) -> Value {
    let listed = node.ok("list_agents", json!({}));
    listed.as_array().unwrap().iter().find(|agent| agent["agent_id"] == id).unwrap()["last_result"].clone()
}

#[test]
fn a_schedule_that_is_due_while_it_runs_never_runs_twice_at_once() {
    let lab = Lab::with(Keys { ruthless: false, ..keys("twice") });
    lab.deploy(&agent("sleeper", SLEEPER));
    let order = json!({"do": "schedule", "agent": "sleeper", "message": 2.5, "every": 1, "id": "often"});
    lab.invoke("ruth", order);
    let told = || lab.ok("list_schedules", json!({}))[0].clone();
    until(60, "it has run twice", || {
        let told = told();
        // At most one waits or runs, whatever has come due meanwhile.
        let sleeper = lab.running.node.agent("sleeper").unwrap();
        assert!(sleeper.life.waiting() <= 1, "{told}");
        told["fired"].as_u64() >= Some(3)
    });
    let told = told();
    assert_eq!(told["failed"], 0, "no two at once: {told}");
    assert!(told["skipped"].as_u64() >= Some(2), "{told}");
    lab.invoke("ruth", json!({"do": "cancel", "id": "often"}));
    assert_eq!(lab.ok("list_schedules", json!({})), json!([]));
}

#[test]
fn an_at_fires_once_and_what_fails_is_told() {
    let lab = Lab::with(Keys { ruthless: false, ..keys("once") });
    lab.deploy(&agent("counter", COUNTER));
    let now = agentcontainer::wire::unix_now();
    let order =
        |id: &str, at: i64| json!({"do": "schedule", "agent": "counter", "message": id, "at": at, "id": id});
    lab.invoke("ruth", order("soon", now + 2));
    lab.invoke(
        "ruth",
        json!({"do": "schedule", "agent": "counter", "message": 1, "every": 86400, "id": "left"}),
    );
    until(20, "it has fired and is gone", || {
        lab.ok("list_schedules", json!({})).as_array().unwrap().len() == 1
    });
    let counter = lab.running.node.agent("counter").unwrap();
    assert!(counter.life.memory().unwrap().contains("[\"soon\"]"));
    let told = lab.invoke("ruth", order("past", now - 1));
    assert!(told["error"].as_str().unwrap().contains("in the future"), "{told}");
    lab.ok("remove_agent", json!({"agent_id": "counter"}));
    let told = lab.invoke("ruth", json!({"do": "fire", "id": "left"}));
    assert!(told["error"].as_str().unwrap().contains("unknown_agent"), "{told}");
    let told = lab.ok("list_schedules", json!({}))[0].clone();
    assert!(told["failed"] == 1 && told["last_error"].as_str().unwrap().contains("counter"), "{told}");
}

#[test]
fn what_was_missed_while_the_node_was_down_runs_once_where_it_is_caught_up() {
    let mut node =
        Node::new("missed", &[]).with("ruthless", json!(false)).with("clock_skew_s", json!(30_000));
    let clock = node.dir.path().join("clock");
    let set = |seconds: i64| std::fs::write(&clock, seconds.to_string()).unwrap();
    set(0);
    let environment = [("AGENTCONTAINER_CLOCK_FILE", clock.to_str().unwrap()), ("TZ", "UTC")];
    node.start_with(&environment);
    for id in ["counter", "other"] {
        node.ok("deploy_agent", json!({"source_code": agent(id, COUNTER)}));
    }
    schedule(
        &node,
        json!({"agent": "counter", "message": 1, "every": 3600, "catch_up": true, "id": "caught"}),
    );
    schedule(&node, json!({"agent": "other", "message": 1, "every": 3600, "id": "dropped"}));
    node.kill();
    set(5 * 3600);
    node.start_with(&environment);
    until(20, "it was caught up", || result(&node, "counter") == json!(1));
    assert_eq!((&one(&node, "caught")["fired"], &one(&node, "dropped")["fired"]), (&json!(1), &json!(0)));
    // And not a second time.
    node.stop();
    node.start_with(&environment);
    assert_eq!(one(&node, "caught")["fired"], 1);
    assert!(one(&node, "caught")["next"].as_i64() > Some(agentcontainer::wire::unix_now() + 5 * 3600 + 3000));
}

#[test]
fn a_clock_that_is_set_by_an_hour_makes_no_burst() {
    let mut node = Node::new("set", &[]).with("ruthless", json!(false)).with("clock_skew_s", json!(10_000));
    let clock = node.dir.path().join("clock");
    let set = |seconds: i64| std::fs::write(&clock, seconds.to_string()).unwrap();
    set(0);
    node.start_with(&[("AGENTCONTAINER_CLOCK_FILE", clock.to_str().unwrap()), ("TZ", "UTC")]);
    node.ok("deploy_agent", json!({"source_code": agent("counter", COUNTER)}));
    let soon = agentcontainer::wire::unix_now() + 1800;
    let minutes = soon.rem_euclid(86400) / 60;
    let daily = format!("{:02}:{:02}", minutes / 60, minutes % 60);
    schedule(&node, json!({"agent": "counter", "message": "d", "daily": daily, "id": "daily"}));
    schedule(&node, json!({"agent": "counter", "message": "e", "every": 1800, "id": "every"}));
    set(3600);
    until(20, "it fires", || one(&node, "daily")["fired"] == 1);
    set(0);
    schedule(&node, json!({"agent": "counter", "message": "t", "every": 1, "id": "tick"}));
    until(20, "time goes on", || one(&node, "tick")["fired"].as_u64() >= Some(2));
    set(3600);
    let before = one(&node, "tick")["fired"].as_u64();
    until(20, "time goes on", || one(&node, "tick")["fired"].as_u64() > before.map(|before| before + 1));
    assert_eq!((&one(&node, "daily")["fired"], &one(&node, "every")["fired"]), (&json!(1), &json!(0)));
    assert_eq!(one(&node, "every")["skipped"], 0);
}

#[test]
fn a_time_of_day_is_that_of_the_machine() {
    let mut node = Node::new("local", &[]).with("ruthless", json!(false));
    node.start_with(&[("TZ", "AAA-05:30")]);
    let told =
        schedule(&node, json!({"agent": "ruth", "message": {"do": "roster"}, "daily": "07:00", "id": "d"}));
    assert_eq!((told["next"].as_i64().unwrap() + 5 * 3600 + 1800) % 86400, 7 * 3600);
}

#[test]
fn schedules_are_listed_by_a_command() {
    let home = Home::new("schedule-list");
    let dir = home.path("state/agentcontainer/node");
    let mut command = home.managed_command(&["server", "127.0.0.1:0", "--state-dir", dir.to_str().unwrap()]);
    let silent = command.stdout(Stdio::null()).stderr(Stdio::null());
    let node = Server::wait(silent.spawn().unwrap(), dir);
    let listed = || home.run(&["schedule", "list", &node.at()]).exits(0);
    listed().says("nothing is scheduled");
    let order = json!({"do": "schedule", "agent": "ruth", "message": {"do": "roster"}, "daily": "07:05", "id": "look"});
    home.run(&["invoke", "ruth", &node.at(), "--message", &order.to_string()]).exits(0);
    let told = listed().out;
    assert!(told.contains("look") && told.contains("daily 07:05") && told.contains("SKIPPED"), "{told}");
    let told = home.run(&["schedule", "list", &node.at(), "--json"]).exits(0).json();
    assert_eq!((&told[0]["agent_id"], &told[0]["running"]), (&json!("ruth"), &json!(false)));
}
