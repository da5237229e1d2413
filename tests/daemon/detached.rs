//! A node without a terminal.

use super::*;

/// A node that was detached, ended with the test.
struct Detached {
    pid: i32,
    dir: PathBuf,
}

impl Detached {
    fn start(home: &Home, arguments: &[&str]) -> (Detached, Ran) {
        let dir = home.path("n");
        let line = [&["server", "--detach", "--state-dir", dir.to_str().unwrap()], arguments].concat();
        let started = home.run(&line).exits(0);
        // As soon as it returns the node listens, and has said so.
        let told: Value = serde_json::from_slice(&std::fs::read(dir.join("node.json")).unwrap()).unwrap();
        let pid = i32::try_from(told["pid"].as_i64().unwrap()).unwrap();
        let node = Detached { pid, dir };
        home.run(&["list", &node.at(), "--state-dir", "n"]).exits(0);
        (node, started)
    }

    fn at(&self) -> String {
        let told: Value =
            serde_json::from_slice(&std::fs::read(self.dir.join("node.json")).unwrap()).unwrap();
        format!("{}:{}", told["host"].as_str().unwrap(), told["port"])
    }

    fn link(&self, name: &str) -> String {
        let place = format!("/proc/{}/{name}", self.pid);
        std::fs::read_link(place).unwrap().to_string_lossy().into_owned()
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        signal_pid(self.pid, Signal::TERM);
        let give_up = Instant::now() + Duration::from_secs(15);
        while !is_gone(self.pid) && Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(5));
        }
        signal_pid(self.pid, Signal::KILL);
    }
}

#[test]
fn detached_it_has_a_session_and_nothing_of_its_callers() {
    let home = Home::new("daemon-detach");
    let (node, started) = Detached::start(&home, &["127.0.0.1:0", "--data-root", "."]);
    assert_eq!(
        (started.out.as_str(), started.err.as_str()),
        ("", ""),
        "and so the caller's pipes were closed"
    );
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", node.pid)).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    assert_eq!(
        (fields[2], fields[3], fields[4]),
        (&*node.pid.to_string(), &*node.pid.to_string(), "0"),
        "{stat}"
    );
    assert_eq!(node.link("cwd"), "/");
    for stream in ["fd/0", "fd/1", "fd/2"] {
        assert_eq!(node.link(stream), "/dev/null");
    }
    let log = node.dir.join("node.log");
    let text = || std::fs::read_to_string(&log).unwrap();
    assert!(text().contains(" listening "), "{}", text());
    // Paths are what they were where the command was given.
    let reads = "    def on_activate(self, ctx, payload):\n        return ctx.read_file('reads.py')[:8]";
    let read = home.run(&["deploy", &home.agent("reads", reads), &node.at(), "--state-dir", "n"]).exits(0);
    assert_eq!(read.out, "\"AGENT_ID\"\n");
    home.run(&["server", "--detach", &node.at(), "--state-dir", "n"])
        .exits(2)
        .says(&format!("the node of process {} runs", node.pid));
    signal_pid(node.pid, Signal::TERM);
    wait_until("it ends", || is_gone(node.pid));
    assert!(text().ends_with(" stopped\n"), "{}", text());
}

#[test]
fn detached_it_reloads_and_logs_where_it_was_told_by_names_that_were_relative() {
    let home = Home::new("daemon-detach-relative");
    home.file("node.json", r#"{"listen_port": 0}"#);
    let arguments = ["--config", "node.json", "--log-file", "here.log", "--for", "1h"];
    let (node, _) = Detached::start(&home, &arguments);
    home.file("node.json", r#"{"listen_port": 0, "max_agents": 4}"#);
    signal_pid(node.pid, Signal::HUP);
    let text = || std::fs::read_to_string(home.path("here.log")).unwrap();
    wait_until("it has reloaded", || text().contains("changed=max_agents"));
    assert!(!node.dir.join("node.log").exists());
    std::fs::rename(home.path("here.log"), home.path("old.log")).unwrap();
    signal_pid(node.pid, Signal::USR1);
    wait_until("it has reopened", || home.path("here.log").exists());
}

#[test]
fn what_keeps_a_detached_node_from_listening_is_the_callers_error() {
    let home = Home::new("daemon-detach-wrong");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    home.run(&["server", "--detach", &at, "--state-dir", "n"]).exits(2).says("in use");
    home.run(&["server", "--detach", "--config", "none.json"]).exits(2).says("none.json");
    home.run(&["server", "--detach", "--for", "x"]).exits(2).says("30s");
    home.file("taken/log/x", "");
    home.run(&["server", "127.0.0.1:0", "--detach", "--state-dir", "n", "--log-file", "taken/log"])
        .exits(2)
        .says("opening the log");
    assert!(!home.path("n/node.json").exists());
}
