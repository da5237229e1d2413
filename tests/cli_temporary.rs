//! `run` and `send`: nodes that live as long as a command.

mod support;

use rustix::process::Signal;
use serde_json::{json, Value};
use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};
use support::cli::{agent, below, exists, ran, signal_to, wait_for, Home, Server, BINARY};

#[test]
fn an_agent_is_run_and_nothing_stays() {
    let home = Home::new("cli-run");
    let ping = agent("basic/ping");
    let run =
        home.run(&["run", &ping, "--activate", "\"hello\"", "--message", r#"{"n":1}"#, "--message", "2"]);
    let run = run.exits(0);
    let pongs: Vec<Value> = run.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(pongs[0]["pong"], "hello");
    assert_eq!(
        (&pongs[1]["pong"]["n"], &pongs[2]["pong"], &pongs[2]["count"]),
        (&json!(1), &json!(2), &json!(3))
    );
    assert_eq!(run.err, "");
    let run = home.run(&["run", &ping, "--message", "1", "--json"]).exits(0);
    assert_eq!(run.json()["results"][0]["pong"], 1);
    assert_eq!(run.out.lines().count(), 1);
    assert!(home.left_over().is_empty());

    home.dir.write("docs/a.txt", "needle in a haystack");
    let find = agent("search/find_text");
    let found =
        home.run(&["run", &find, "--activate", r#"{"query":"needle"}"#, "--data-root", "docs"]).exits(0);
    assert!(found.out.contains("a.txt"), "{}", found.out);
    let found = home.run(&["run", &find, "--activate", r#"{"query":"needle"}"#]).exits(0);
    assert!(!found.out.contains("a.txt"), "without --data-root there is nothing to read: {}", found.out);
}

/// In a container without an init of its own, a program's session has the number 0.
#[test]
fn it_runs_in_a_session_that_was_begun_outside_its_pid_namespace() {
    let home = Home::new("cli-session");
    let kills = home.agent(
        "kills",
        "    def on_message(self, ctx, message):\n        shell = ['sh', '-c', 'kill -9 $PPID; sleep 60']\n        \
         try:\n            return ctx.run(shell)\n        except Exception as wrong:\n            return str(wrong)",
    );
    let inside = home.command(&["run", &kills, "--message", "1"]);
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc", BINARY]).args(inside.get_args());
    command
        .envs(inside.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .current_dir(home.dir.path());
    let run = ran(command).exits(0);
    assert!(run.out.contains("was killed"), "{}", run.out);
    assert_eq!(run.err, "");
}

#[test]
fn an_exception_is_shown_with_the_agents_own_lines() {
    let home = Home::new("cli-raise");
    let source = home.agent(
        "raiser",
        "    def on_activate(self, ctx, payload):\n        print('so far')\n        ctx.log('noted', n=1)\n    \
         def on_message(self, ctx, message):\n        return self.deeper(message)\n    \
         def deeper(self, message):\n        return message['missing']",
    );
    let run = home.run(&["run", &source, "--message", "{}"]).exits(1);
    let run = run.says("raiser: so far").says("raiser: noted n=1");
    assert_eq!(run.out, "null\n");
    let run = run.says("KeyError").says("agent.py:9, in on_message: return self.deeper(message)");
    run.says("agent.py:11, in deeper: return message['missing']");
    let compact = home.run(&["run", &source, "--message", "{}", "--json"]).exits(1);
    assert_eq!(compact.json(), json!({"agent_id": "raiser", "activate_result": null, "results": []}));
    let last = compact.err.lines().last().unwrap();
    assert_eq!(serde_json::from_str::<Value>(last).unwrap()["code"], "agent_error");

    let odd = home.agent("odd", "    def on_activate(self, ctx, payload):\n        return {1, 2}");
    home.run(&["run", &odd]).exits(1).says("set");
    let dies = home.agent("dies", "    def on_activate(self, ctx, payload):\n        import os; os._exit(3)");
    home.run(&["run", &dies]).exits(1).says("status 3");
    let slow = home.agent("slow", "    def on_activate(self, ctx, payload):\n        while True: pass");
    home.run(&["run", &slow, "--timeout", "0.5"]).exits(3).says("timeout");
    home.run(&["run", &odd, "--python", "/nowhere/python3"]).exits(2).says("--python /nowhere/python3");
    home.run(&["run", &odd, "--python", "/bin/true"]).exits(2).says("--python /bin/true");
    home.file("python2", "#!/bin/sh\necho 'Unknown option: -I' >&2\nexit 2\n");
    let old = home.path("python2");
    std::fs::set_permissions(&old, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    home.run(&["run", &odd, "--python", old.to_str().unwrap()])
        .exits(2)
        .says("--python")
        .says("3.6 or newer");
    home.run(&["run", &odd, "--port", "x"]).exits(2).says("--port");
    home.run(&["run", &odd, "--data-root", "/nowhere"]).exits(2).says("/nowhere");
    assert!(home.left_over().is_empty());
}

#[test]
fn what_an_agent_runs_in_can_be_ended_by_signals() {
    let home = Home::new("cli-mask");
    let source = home.agent(
        "masks",
        "    def on_activate(self, ctx, payload):\n        own = open('/proc/self/status').read()\n        \
         child = ctx.run(['cat', '/proc/self/status'])['stdout']\n        \
         return [line.split()[1] for text in (own, child) for line in text.splitlines() if line.startswith('SigBlk')]",
    );
    let none = "0000000000000000";
    assert_eq!(home.run(&["run", &source]).exits(0).json(), json!([none, none]));
}

#[test]
fn a_signal_takes_the_temporary_node_with_it() {
    let home = Home::new("cli-interrupt");
    let source = home
        .agent("sleeper", "    def on_activate(self, ctx, payload):\n        import time; time.sleep(60)");
    for signal in [Signal::INT, Signal::TERM] {
        let mut child = home.command(&["run", &source]).spawn().unwrap();
        support::wait_until("the agent's process is there", || below(child.id()).len() >= 2);
        let processes = below(child.id());
        signal_to(&child, signal);
        assert_eq!(wait_for(&mut child).code(), Some(128 + signal.as_raw()));
        support::wait_until("its processes are gone", || !processes.iter().any(|pid| exists(*pid)));
        assert!(home.left_over().is_empty());
    }
}

/// Three nodes: a root that knows two departments.
fn three(home: &Home) -> [Server; 3] {
    let a = home.server("state/agentcontainer/a", &["127.0.0.1:0", "--name", "a"]);
    let b = home.server("state/agentcontainer/b", &["127.0.0.1:0", "--name", "b"]);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let leaf = |name: &str, port: u16| json!({"name": name, "host": "127.0.0.1", "port": port});
    let mut tree = leaf("root", port);
    tree["children"] = json!([leaf("a", a.port), leaf("b", b.port)]);
    let config = home.file(
        "root.json",
        &json!({"container_name": "root", "listen_port": port, "federation": tree}).to_string(),
    );
    let root = home.server("state/agentcontainer/root", &["--config", &config]);
    [root, a, b]
}

#[test]
fn an_agent_travels_and_comes_home() {
    let home = Home::new("cli-send");
    let [root, a, b] = three(&home);
    let visitor = agent("demo/visit_and_go_back");
    let sent = home.run(&["send", &visitor, &root.at(), "--timeout", "30"]).exits(0);
    let sent = sent.says("visit-and-go-back is home; it was on root, a, root, b, root");
    let nodes = |sent: &Value| -> Vec<String> {
        sent["report"]["visits"]
            .as_array()
            .unwrap()
            .iter()
            .map(|visit| visit["node"].as_str().unwrap().into())
            .collect()
    };
    assert_eq!(nodes(&sent.json()), ["root", "a", "b"]);
    for node in [&root, &a, &b] {
        assert_eq!(home.run(&["list", &node.at(), "--json"]).json(), json!([]), "nothing of it stays");
    }

    // By its own signature alone: here no admin secret is known.
    let stranger = Home::new("cli-stranger");
    let sent = stranger.run(&["send", &visitor, &root.at(), "--timeout", "30", "--json"]).exits(0);
    assert_eq!(nodes(&sent.json()["result"]), ["root", "a", "b"]);
    assert_eq!(sent.json()["agent_id"], "visit-and-go-back");
    assert_eq!(sent.json()["trace"].as_array().unwrap().len(), 5);
    assert!(home.left_over().is_empty() && stranger.left_over().is_empty());
}

#[test]
fn at_a_terminal_the_hops_are_shown() {
    let home = Home::new("cli-hops");
    let [root, a, _] = three(&home);
    if Command::new("script").arg("--version").output().is_err() {
        return; // no way to have a terminal
    }
    let source = home.agent(
        "walker",
        "    def on_activate(self, ctx, payload):\n        import time\n        time.sleep(0.7)\n        \
         if payload == 'home':\n            return 'back'\n        \
         if ctx.container_name == 'root':\n            return ctx.move('a', {})\n        \
         return ctx.return_to_stage('home')",
    );
    let mut terminal = Command::new("script");
    let line = format!("{BINARY} send {source} {} --timeout 30", root.at());
    terminal.args(["-qec", &line, "/dev/null"]).stdin(std::process::Stdio::null());
    let plain = home.command(&[]);
    terminal.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let shown = ran(terminal).exits(0).out;
    let at = |part: &str| shown.find(part).unwrap_or_else(|| panic!("{part:?} is not in {shown}"));
    assert!(at("seen on root") < at(&format!("seen on a ({})", a.at())), "{shown}");
    assert!(at("seen on a") < at(" s  home") && at(" s  home") < at("\"back\""), "{shown}");
}

#[test]
fn an_agent_that_does_not_come_home_is_told_of() {
    let home = Home::new("cli-lost");
    let node = home.server("state/agentcontainer/one", &["127.0.0.1:0", "--name", "one"]);
    let began = Instant::now();
    let lost = home.run(&["send", &agent("basic/ping"), &node.at(), "--timeout", "4"]).exits(3);
    assert!(began.elapsed() >= Duration::from_secs(4));
    let lost = lost.says("did not come home in time; it is on one");
    assert_eq!(lost.json()["pong"], json!({}), "what the first node answered");

    let source = home
        .agent("raiser", "    def on_activate(self, ctx, payload):\n        raise ValueError('no further')");
    let began = Instant::now();
    home.run(&["send", &source, &node.at()])
        .exits(1)
        .says("no further")
        .says("agent.py:6")
        .says("stays on one");
    assert!(began.elapsed() < Duration::from_secs(20), "it is known at once");

    let source = home.agent(
        "late",
        "    def on_activate(self, ctx, payload):\n        if payload == 'home':\n            raise ValueError('at home')\n        \
         return ctx.return_to_stage('home')",
    );
    home.run(&["send", &source, &node.at()]).exits(1).says("at home").says("agent.py:7");

    // Another's id: the node knows it with another secret.
    let stranger = Home::new("cli-thief");
    let source = stranger
        .file("ping.py", "AGENT_ID = \"ping\"\nAGENT_SECRET = \"not the ping's\"\nclass Agent:\n    pass\n");
    stranger.run(&["send", &source, &node.at()]).exits(1).says("bad_signature");
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    stranger.run(&["send", &source, &nobody]).exits(3).says("nothing was sent");
    assert!(home.left_over().is_empty() && stranger.left_over().is_empty());
}

#[test]
fn a_large_result_comes_home_whole() {
    let home = Home::new("cli-large");
    let node = home.server("state/agentcontainer/one", &["127.0.0.1:0"]);
    let source = home.agent(
        "bearer",
        "    def on_activate(self, ctx, payload):\n        if isinstance(payload, dict) and 'n' in payload:\n            return 'x' * payload['n']\n        \
         return ctx.return_to_stage({'n': 300000})",
    );
    let sent = home.run(&["send", &source, &node.at(), "--json"]).exits(0);
    assert_eq!(sent.json()["result"].as_str().unwrap().len(), 300_000);
}
