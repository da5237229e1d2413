//! `server`: starting it anywhere, and ending it.

mod support;

use rustix::process::Signal;
use serde_json::json;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::cli::{agent, below, exists, Home, Server, BINARY};

const SLEEPER: &str = "    def on_activate(self, ctx, payload):\n        pass\n    \
                       def on_message(self, ctx, seconds):\n        import time\n        time.sleep(seconds)\n        return 'slept'";

#[test]
fn sigterm_ends_it_in_good_order_with_all_its_processes() {
    let home = Home::new("cli-term");
    let mut node = home.server("state/agentcontainer/n", &["127.0.0.1:0"]);
    home.run(&["deploy", &home.agent("sleeper", SLEEPER), &node.at()]).exits(0);
    let asker = home.command(&["invoke", "sleeper", &node.at(), "--message", "1.5"]).spawn().unwrap();
    support::wait_until("the hook runs", || {
        let listed = home.run(&["list", &node.at(), "--json"]).exits(0).json();
        listed[0]["status"] == "running"
    });
    let processes = below(node.child.id());
    assert!(processes.len() >= 2, "zygote and agent: {processes:?}");
    node.signal(Signal::TERM);
    assert_eq!(node.end().code(), Some(0));
    let asked = asker.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&asked.stdout), "\"slept\"\n", "a running hook may end");
    support::wait_until("its processes are gone", || !processes.iter().any(|pid| exists(*pid)));
    home.run(&["list", &node.at()]).exits(3);
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let home = Home::new("cli-twice");
    let mut node = home.server("state/agentcontainer/n", &["127.0.0.1:0"]);
    home.run(&["deploy", &home.agent("sleeper", SLEEPER), &node.at()]).exits(0);
    let mut asker = home.command(&["invoke", "sleeper", &node.at(), "--message", "60"]).spawn().unwrap();
    support::wait_until("the hook runs", || {
        home.run(&["list", &node.at(), "--json"]).exits(0).json()[0]["status"] == "running"
    });
    let processes = below(node.child.id());
    let began = Instant::now();
    node.signal(Signal::INT);
    support::wait_until("no new connection is taken", || {
        std::net::TcpStream::connect(("127.0.0.1", node.port)).is_err()
    });
    node.signal(Signal::TERM);
    assert_eq!(node.end().code(), Some(128 + 15));
    assert!(began.elapsed() < Duration::from_secs(8), "not after the grace of ten seconds");
    support::wait_until("its processes are gone", || !processes.iter().any(|pid| exists(*pid)));
    assert_eq!(support::cli::wait_for(&mut asker).code(), Some(3), "whoever waited is told");
}

const DETACHES: &str = "    def on_activate(self, ctx, payload):\n        pass\n    \
                        def on_message(self, ctx, mark):\n        import os, subprocess\n        \
                        subprocess.Popen(['sh', '-c', 'setsid sleep %s & sleep 0.05' % mark]).wait()\n        \
                        if os.fork() == 0:\n            os.setsid()\n            if os.fork() == 0:\n                \
                        os.execvp('sleep', ['sleep', mark])\n            os._exit(0)\n        return mark";

#[test]
fn a_killed_node_takes_everything_along() {
    let home = Home::new("cli-killed");
    for signal in [Signal::KILL, Signal::TERM] {
        let mut node = home.server("state/agentcontainer/n", &["127.0.0.1:0"]);
        home.run(&["deploy", &home.agent("detaches", DETACHES), &node.at()]).exits(0);
        let mark = format!("88{}.{}", signal.as_raw(), std::process::id());
        home.run(&["invoke", "detaches", &node.at(), "--message", &format!("\"{mark}\"")]).exits(0);
        let command = format!("sleep {mark}");
        assert!(support::is_running(&command));
        let processes = below(node.child.id());
        node.signal(signal);
        node.end();
        support::wait_until("its processes are gone", || !processes.iter().any(|pid| exists(*pid)));
        support::wait_until("what they detached is gone", || !support::is_running(&command));
    }
}

#[test]
fn a_second_node_on_a_state_directory_is_told_whose_it_is() {
    let home = Home::new("cli-locked");
    let mut first = home.server("state/agentcontainer/n", &["127.0.0.1:0"]);
    let told = home.run(&["server", "127.0.0.1:0", "--state-dir", first.dir()]).exits(2);
    told.says(&format!("process {}", first.child.id()));
    home.run(&["list", &first.at()]).exits(0);
    first.signal(Signal::KILL);
    first.end();
    // A lock that a killed node left blocks nobody.
    let second = home.server("state/agentcontainer/n", &["127.0.0.1:0"]);
    home.run(&["list", &second.at()]).exits(0);
}

#[test]
fn it_starts_with_nothing_at_all() {
    let home = Home::new("cli-bare");
    let dir = home.path("state");
    let line = "cd /; exec env -i \"$0\" server 127.0.0.1:0 --state-dir \"$1\" <&- >&- 2>&-";
    let mut shell = Command::new("sh");
    shell.args(["-c", line, BINARY]).arg(&dir).stdin(Stdio::null()).stdout(Stdio::null());
    let mut node = Server::wait(shell.spawn().unwrap(), dir);
    let deployed =
        home.run(&["deploy", &agent("basic/ping"), &node.at(), "--state-dir", node.dir()]).exits(0);
    assert_eq!(deployed.json()["count"], 1);
    node.signal(Signal::TERM);
    assert_eq!(node.end().code(), Some(0));
}

#[test]
fn what_is_wrong_with_its_start_is_said() {
    let home = Home::new("cli-start");
    let node = home.server("one", &["127.0.0.1:0"]);
    home.run(&["server", &node.at(), "--state-dir", "two"])
        .exits(2)
        .says("listening on 127.0.0.1:")
        .says("in use");
    home.run(&["server", "nowhere"]).exits(2).says("HOST:PORT");
    home.run(&["server", "127.0.0.1:0", "--name", "../up"]).exits(2).says("--name");
    home.run(&["server", "--config", "none.json"]).exits(2).says("none.json");
    let config = home.file("odd.json", r#"{"listen_prot": 1}"#);
    home.run(&["server", "--config", &config]).exits(2).says("listen_port");
    let weak = home.file("weak", "short");
    home.run(&["server", "0.0.0.0:0", "--state-dir", "weak.d", "--secret-file", &weak])
        .exits(2)
        .says("shorter");
    home.run(&["server", "127.0.0.1:0", "--state-dir", "d", "--data-root", "/nowhere"])
        .exits(2)
        .says("/nowhere");
}

#[test]
fn what_has_no_end_or_no_writer_is_neither_read_for_ever_nor_waited_for() {
    let home = Home::new("cli-endless");
    let pipe = home.path("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    let key = home.file("x.key", "x");
    for file in [pipe.to_str().unwrap(), "/dev/zero"] {
        for (name, value) in [
            ("tls", json!({"certificate": file, "key": key})),
            ("admin_secret_file", json!(file)),
            ("trust_registry", json!(file)),
            ("capsule_policy", json!(file)),
            ("operators", json!({"op": {"secret_file": file, "allow": ["list_agents"]}})),
        ] {
            let keys = json!({"listen_port": 0, "state_dir": home.path("s"), name: value});
            let config = home.file("node.json", &keys.to_string());
            home.run(&["server", "--config", &config, "--for", "1s"]).exits(2).says(file);
        }
        home.run(&["server", "--config", file, "--for", "1s"]).exits(2).says(file);
        home.run(&["deploy", file, "127.0.0.1:1"]).exits(2).says(file);
        home.run(&["list", "127.0.0.1:1", "--secret-file", file]).exits(2).says(file);
        home.run(&["capsule", "keys", "fingerprint", "--public-key", file]).exits(2).says("Ed25519");
    }
    let keys = json!({"listen_port": 0, "state_dir": home.path("s"), "prompt_file": "/dev/zero"});
    let config = home.file("node.json", &keys.to_string());
    home.run(&["server", "--config", &config, "--for", "1s"]).exits(2).says("prompt_file");
}

#[test]
fn a_secret_in_its_environment_is_the_admins() {
    let home = Home::new("cli-env");
    let dir = home.path("n");
    let mut command = home.command(&["server", "127.0.0.1:0", "--state-dir", dir.to_str().unwrap()]);
    command.env("AGENTCONTAINER_SECRET", "from the environment").stdout(Stdio::null()).stderr(Stdio::null());
    let node = Server::wait(command.spawn().unwrap(), dir);
    // Nor is it left where `/proc` shows it to others of the same user.
    let shown = std::fs::read(format!("/proc/{}/environ", node.child.id())).unwrap();
    let shown = String::from_utf8_lossy(&shown);
    assert!(shown.contains("AGENTCONTAINER_SECRET=--") && !shown.contains("from the environment"), "{shown}");
    let secret = home.file("secret", "from the environment\n");
    node.signal(Signal::HUP);
    home.run(&["list", &node.at(), "--secret-file", &secret]).exits(0);
    home.run(&["list", &node.at(), "--secret-file", &secret]).exits(0);
    assert!(!node.dir.join("meta/admin.secret").exists(), "none was made");
    home.run(&["list", &node.at(), "--state-dir", node.dir()])
        .exits(2)
        .says("keeps its admin secret elsewhere");
}
