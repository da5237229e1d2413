//! Delivery that waits for its destination: `queue=True`, `--queue`, `outbox`. The built binary, nodes that
//! are killed and come back.

#[path = "support/mod.rs"]
mod support;
use rustix::process::Signal;
use serde_json::{json, Value};
use std::net::TcpListener;
use std::time::{Duration, Instant};
use support::cli::{Home, Server};
use support::wait_until;

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Nodes of one tree, each with a port of its own, none of them running.
struct Tree {
    home: Home,
    names: Vec<&'static str>,
    ports: Vec<u16>,
}

impl Tree {
    fn new(test: &str, names: &[&'static str]) -> Tree {
        let home = Home::new(test);
        let ports: Vec<u16> = names.iter().map(|_| free_port()).collect();
        let node = |index: usize| json!({"name": names[index], "host": "127.0.0.1", "port": ports[index]});
        let mut tree = node(0);
        tree["children"] = (1..names.len()).map(node).collect();
        home.file("secret", "a secret of the whole lab\n");
        for (name, port) in names.iter().zip(&ports) {
            let config = json!({
                "container_name": name,
                "listen_port": port,
                "admin_secret_file": "secret",
                "federation": tree,
                "parked_workers": 1,
            });
            home.file(&format!("{name}.json"), &config.to_string());
        }
        Tree { home, names: names.to_vec(), ports }
    }

    fn start(&self, index: usize) -> Server {
        let config = self.home.path(&format!("{}.json", self.names[index]));
        self.home.server(self.names[index], &["--config", config.to_str().unwrap()])
    }

    fn at(&self, index: usize) -> String {
        format!("127.0.0.1:{}", self.ports[index])
    }

    fn secret(&self) -> [String; 2] {
        ["--secret-file".into(), self.home.path("secret").to_str().unwrap().to_owned()]
    }

    /// Runs a command with the lab's secret.
    fn run(&self, arguments: &[&str]) -> support::cli::Ran {
        let [option, file] = self.secret();
        self.home.run(&[arguments, &[&option, &file]].concat())
    }

    fn agents(&self, index: usize) -> Value {
        self.run(&["list", &self.at(index), "--json"]).exits(0).json()
    }

    fn has(&self, index: usize, id: &str) -> bool {
        self.agents(index).as_array().unwrap().iter().any(|agent| agent["agent_id"] == id)
    }

    fn outbox(&self, index: usize) -> Value {
        self.run(&["outbox", "list", "--node", &self.at(index), "--json"]).exits(0).json()
    }
}

const MOVER: &str = "    def __init__(self):\n        self.seen = []\n    def on_activate(self, ctx, p):\n        self.seen.append(ctx.container_name)\n        return self.seen\n    def on_message(self, ctx, m):\n        if 'go' in m:\n            self.asked = True\n            return getattr(ctx, m.get('how', 'move'))(m['go'], queue=True)\n        return self.seen";

#[test]
fn a_queued_move_waits_for_its_destination_also_when_its_source_is_killed() {
    let lab = Tree::new("queued-move", &["home", "away"]);
    let mut home = lab.start(0);
    let mover = lab.home.agent("mover", MOVER);
    lab.run(&["deploy", &mover, &lab.at(0)]).exits(0);
    let told = lab.run(&["invoke", "mover", &lab.at(0), "--message", r#"{"go":"away"}"#]).exits(0).json();
    assert_eq!((&told["status"], &told["destination"]), (&json!("queued"), &json!("away")), "{told}");
    assert_eq!(lab.agents(0)[0]["status"], "departing");
    let waiting = lab.outbox(0);
    assert_eq!(
        (&waiting[0]["agent_id"], &waiting[0]["transfer_id"]),
        (&json!("mover"), &told["transfer_id"])
    );
    home.signal(Signal::KILL);
    home.end();
    let _home = lab.start(0);
    assert_eq!(lab.agents(0)[0]["status"], "departing", "it departs, whoever is killed");
    let _away = lab.start(1);
    wait_until("it has arrived", || lab.has(1, "mover"));
    wait_until("it has left", || !lab.has(0, "mover"));
    let seen = lab.run(&["invoke", "mover", &lab.at(1)]).exits(0).json();
    assert_eq!(seen, json!(["home", "away"]));
    assert_eq!(lab.outbox(0), json!([]));
}

#[test]
fn a_queued_clone_leaves_the_original_to_its_messages() {
    let lab = Tree::new("queued-clone", &["home", "away"]);
    let _home = lab.start(0);
    let mover = lab.home.agent("mover", MOVER);
    lab.run(&["deploy", &mover, &lab.at(0)]).exits(0);
    let go = r#"{"go":"away","how":"clone"}"#;
    let told = lab.run(&["invoke", "mover", &lab.at(0), "--message", go]).exits(0).json();
    assert_eq!(told["status"], "queued");
    assert_eq!(lab.run(&["invoke", "mover", &lab.at(0)]).exits(0).json(), json!(["home"]));
    let _away = lab.start(1);
    wait_until("the copy has arrived", || lab.has(1, "mover"));
    assert!(lab.has(0, "mover"));
}

#[test]
fn a_cancelled_transfer_gives_the_agent_back() {
    let lab = Tree::new("queued-cancel", &["home", "away"]);
    let _home = lab.start(0);
    let mover = lab.home.agent("mover", MOVER);
    lab.run(&["deploy", &mover, &lab.at(0)]).exits(0);
    let told = lab.run(&["invoke", "mover", &lab.at(0), "--message", r#"{"go":"away"}"#]).exits(0).json();
    let transfer = told["transfer_id"].as_str().unwrap();
    lab.run(&["outbox", "retry", "nonsense", "--node", &lab.at(0)]).exits(1).says("nonsense");
    lab.run(&["outbox", "retry", transfer, "--node", &lab.at(0)]).exits(0);
    wait_until("it is cancelled between two attempts", || {
        lab.run(&["outbox", "cancel", transfer, "--node", &lab.at(0)]).status == 0
    });
    assert_eq!(lab.outbox(0), json!([]));
    assert_eq!(lab.run(&["invoke", "mover", &lab.at(0)]).exits(0).json(), json!(["home"]));
    let _away = lab.start(1);
    assert!(!lab.has(1, "mover"));
}

#[test]
fn a_command_queues_on_the_node_of_this_machine_or_says_that_there_is_none() {
    let lab = Tree::new("queued-command", &["home", "away"]);
    let mover = lab.home.agent("mover", MOVER);
    lab.home.run(&["deploy", &mover, "away", "--queue"]).exits(2).says("no node of this user runs");
    lab.home.run(&["deploy", &mover, "away", "--queue", "--fresh"]).exits(2).says("--fresh");
    let _home = lab.start(0);
    lab.run(&["deploy", &mover, "nowhere", "--queue", "--node", &lab.at(0)]).exits(1).says("nowhere");
    lab.run(&["deploy", &mover, &lab.at(1), "--queue", "--node", &lab.at(0)]).exits(0);
    assert!(!lab.has(0, "mover"), "it does not live here");
    let traveller = support::cli::agent("demo/visit_and_go_back");
    lab.run(&["send", &traveller, "away", "--queue", "--node", &lab.at(0)]).exits(0);
    assert_eq!(lab.outbox(0).as_array().unwrap().len(), 2);
    let _away = lab.start(1);
    wait_until("the agent is there", || lab.has(1, "mover"));
    wait_until("the traveller is home", || lab.has(0, "visit-and-go-back"));
}

const TOURIST: &str = "    def __init__(self):\n        self.seen = []\n        self.left = []\n    def on_activate(self, ctx, p):\n        self.seen.append(ctx.container_name)\n        self.left = p.get('tour', [])\n        self.next(ctx)\n    def on_resume(self, ctx, p):\n        self.left = p.get('tour', [])\n        self.next(ctx)\n    def next(self, ctx):\n        if self.left:\n            ctx.move(self.left[0], {'tour': self.left[1:]}, queue=True)\n    def on_message(self, ctx, m):\n        return self.seen";

/// Each node is up a fifth of the time, ended by SIGTERM and by SIGKILL in turn, as a cron table with
/// `--for` has it; phases drift, so that each pair meets now and then.
#[test]
fn nodes_that_are_up_one_minute_in_five_deliver_every_agent_and_get_it_home() {
    const UP: Duration = Duration::from_millis(1500);
    let lab = Tree::new("queued-cron", &["home", "a", "b", "c"]);
    let mut home = lab.start(0);
    for (agent, tour) in [("one", ["a", "b", "c", "home"]), ("two", ["c", "b", "a", "home"])] {
        let file = lab.home.agent(agent, TOURIST);
        let payload = json!({"tour": tour}).to_string();
        lab.run(&["deploy", &file, &lab.at(0), "--activate", &payload]).exits(0);
    }
    home.signal(Signal::KILL);
    home.end();
    let expected = [json!(["home", "a", "b", "c", "home"]), json!(["home", "c", "b", "a", "home"])];
    // Five phases a round for four nodes: in each round some two of them overlap by half.
    let begun = Instant::now();
    let mut running: Vec<(Instant, usize, Server)> = Vec::new();
    let mut round = 0;
    'rounds: loop {
        assert!(begun.elapsed() < Duration::from_secs(150), "{:?}", lab.names);
        round += 1;
        let pair = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 3), (3, 2), (2, 1), (1, 0)][round % 8];
        for index in [pair.0, pair.1] {
            let server = lab.start(index);
            running.push((Instant::now(), index, server));
            std::thread::sleep(UP / 2);
            let both = || {
                let agents = lab.agents(0);
                let here = |id: &str| {
                    let all = agents.as_array().unwrap();
                    all.iter().any(|agent| {
                        agent["agent_id"] == id && agent["sequence"] == 2 && agent["status"] != "departing"
                    })
                };
                here("one") && here("two")
            };
            if running.iter().any(|(_, index, _)| *index == 0) && both() {
                break 'rounds;
            }
        }
        for (count, (_, _, mut server)) in running.drain(..).enumerate() {
            let signal = if (round + count) % 2 == 0 { Signal::TERM } else { Signal::KILL };
            server.signal(signal);
            server.end();
        }
    }
    for (id, expected) in ["one", "two"].iter().zip(expected) {
        assert_eq!(lab.run(&["invoke", id, &lab.at(0)]).exits(0).json(), expected, "{id}");
    }
}
