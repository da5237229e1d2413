//! What `status` says of a node that runs, was killed, hangs or is another's.

use super::*;

fn status(home: &Home, arguments: &[&str]) -> Ran {
    home.run(&[&["status"], arguments].concat())
}

#[test]
fn status_of_a_node_that_runs_and_of_one_that_does_not() {
    let home = Home::new("daemon-status");
    status(&home, &[]).exits(3);
    let mut node = home.server("state/agentcontainer/lab", &[&own_address(), "--name", "lab"]);
    home.run(&["deploy", &agent("basic/ping"), &node.at()]).exits(0);
    let pid = node.child.id().to_string();
    let begin = format!("running name=lab pid={pid} address={} uptime_s=", node.at());
    for way in [&[][..], &[node.at().as_str()], &["--name", "lab"], &["--state-dir", node.dir()]] {
        let said = status(&home, way).exits(0).out;
        assert!(said.starts_with(&begin) && said.lines().count() == 1, "{way:?}: {said}");
        assert!(said.contains(" agents=1 live_agents=1 version="), "{way:?}: {said}");
    }
    let told = status(&home, &["--json"]).exits(0).json();
    assert_eq!(
        (&told["state"], &told["agents"], &told["pid"]),
        (&json!("running"), &json!(1), &json!(node.child.id()))
    );
    assert_eq!(status(&home, &["--pid"]).exits(0).out, format!("{pid}\n"));

    node.signal(Signal::KILL);
    node.end();
    for way in [&[][..], &[node.at().as_str()], &["--name", "lab"], &["--state-dir", node.dir()]] {
        let said = status(&home, way).exits(3).out;
        assert!(said.starts_with("not-running "), "{way:?}: {said}");
    }
    assert_eq!(status(&home, &["--pid", "--name", "lab"]).exits(3).out, "");
    assert_eq!(status(&home, &["--json", "--name", "lab"]).exits(3).json()["state"], "not-running");
    let said = status(&home, &["--state-dir", "nowhere"]).exits(3).out;
    assert!(said.starts_with("not-running ") && !home.path("nowhere").exists(), "{said}");
    status(&home, &[&node.at(), "--name", "lab"]).exits(2).says("give one of them");
    status(&home, &["--name", "../lab"]).exits(2).says("--name");
}

#[test]
fn a_node_that_was_killed_is_not_taken_for_the_process_that_has_its_number_now() {
    let home = Home::new("daemon-status-reused");
    let mut node = home.server("state/agentcontainer/lab", &["127.0.0.1:0"]);
    node.signal(Signal::KILL);
    node.end();
    // A process that lives, and listens where the node did.
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (at, own) = (other.local_addr().unwrap(), std::process::id());
    let note = json!({"name": "lab", "host": "127.0.0.1", "port": at.port(), "pid": own});
    home.file("state/agentcontainer/lab/node.json", &note.to_string());
    home.file("state/agentcontainer/lab/lock", &format!("{own}\n"));
    for way in [&[][..], &["--name", "lab"]] {
        let said = status(&home, way).exits(3).out;
        assert!(said.starts_with("not-running "), "{said}");
    }
    // By its address alone nobody knows whose it is, but no node answers there.
    let said = status(&home, &[&at.to_string(), "--timeout", "0.5"]).exits(3).out;
    assert!(said.starts_with("not-answering "), "{said}");
    drop(other);
}

#[test]
fn a_node_that_hangs_is_told_from_one_that_runs() {
    let home = Home::new("daemon-status-hung");
    let node = home.server("state/agentcontainer/lab", &["127.0.0.1:0", "--name", "lab"]);
    node.signal(Signal::STOP);
    let pid = node.child.id();
    for way in [&["--name", "lab"][..], &[&node.at()], &[]] {
        let said = status(&home, &[way, &["--timeout", "0.3"]].concat()).exits(3).out;
        let begin = format!("not-answering name=lab pid={pid} ");
        assert!(said.starts_with(&begin) && said.contains("in time"), "{said}");
    }
    // Whoever is to be told something is there all the same.
    let told = status(&home, &["--name", "lab", "--timeout", "0.3", "--pid"]).exits(3);
    assert_eq!(told.out, format!("{pid}\n"));
    node.signal(Signal::CONT);
    status(&home, &["--name", "lab"]).exits(0);
}

#[test]
fn of_several_nodes_one_must_be_named_and_a_stranger_is_known_by_its_answer() {
    let home = Home::new("daemon-status-several");
    let log = home.path("log");
    let logged = || std::fs::read_to_string(&log).unwrap();
    let with_log = ["127.0.0.1:0", "--name", "one", "--log-file", log.to_str().unwrap()];
    let one = home.server("state/agentcontainer/one", &with_log);
    let two = home.server("state/agentcontainer/two", &["127.0.0.1:0", "--name", "two"]);
    status(&home, &[]).exits(2).says("(one, two)").says("--name");
    status(&home, &[&two.at()]).exits(0);
    // Another user's, as it were: no state directory and no secret of it is known here.
    let abroad = Home::new("daemon-status-abroad");
    let said = status(&abroad, &[&one.at()]).exits(0).out;
    assert_eq!(said, format!("running name=one address={}\n", one.at()));
    // Nobody's question is no attempt; one with a secret that is not the node's is.
    assert!(!logged().contains("request_refused"), "{}", logged());
    let wrong = abroad.file("wrong", "not the secret of this node");
    status(&abroad, &[&one.at(), "--secret-file", &wrong]).exits(0);
    assert_eq!(logged().matches("request_refused").count(), 1, "{}", logged());
    let secret = one.dir.join("meta/admin.secret");
    let said = status(&abroad, &[&one.at(), "--secret-file", secret.to_str().unwrap()]).exits(0).out;
    assert!(said.contains(" agents=0 "), "{said}");
    let free = own_address();
    let said = status(&abroad, &[&free]).exits(3).out;
    assert!(said.starts_with("not-running "), "{said}");
}

#[test]
fn a_node_that_does_not_listen_yet_is_starting() {
    let home = Home::new("daemon-status-starting");
    home.file("n/meta/x", "");
    let lock = std::fs::File::create(home.path("n/lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    home.file("n/lock", "4194301\n");
    home.file("n/node.json", r#"{"name":"old","host":"127.0.0.1","port":1,"pid":4194302}"#);
    let said = status(&home, &["--state-dir", "n"]).exits(3).out;
    assert!(said.starts_with("starting pid=4194301 "), "{said}");
}
