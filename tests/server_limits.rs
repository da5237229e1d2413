//! How many connections, threads and bytes a node takes. One test at a time, as they count for the process.

#[path = "support/lines.rs"]
mod lines;
#[path = "support/mod.rs"]
mod support;
use agentcontainer::node::Keys;
use lines::{admin, code, is_signed, kept, Peer};
use serde_json::json;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use support::lab::{agent, keys, until, Lab, ADMIN};

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A line of /proc/self/status, in its own unit.
fn of_process(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').split_whitespace().next().unwrap().parse().unwrap()
}

/// The server's own threads.
fn connection_threads() -> usize {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .flatten()
        .filter(|task| {
            std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == "connection")
        })
        .count()
}

/// Connections that have been served once and are kept, so that each surely has its thread.
fn held(lab: &Lab, many: usize) -> Vec<Peer> {
    (0..many)
        .map(|n| {
            let mut peer = Peer::to(lab);
            peer.send(format!("{}\n", kept("network_tree", json!({})).line));
            let answer = peer.answer();
            assert!(answer.is_ok(), "connection {n}: {}", answer.line());
            peer
        })
        .collect()
}

#[test]
fn threads_are_used_again_and_those_of_a_rush_go_away() {
    let _alone = alone();
    let lab = Lab::start("threads");
    for _ in 0..300 {
        lab.ok("network_tree", json!({}));
    }
    let after = connection_threads();
    // As many as may wait, and some slack: on a loaded machine a connection's last moments overlap with
    // the next ones' first.
    assert!(after <= 20, "{after} threads after three hundred connections one by one");
    let rush = held(&lab, 100);
    assert!(connection_threads() > 100);
    drop(rush);
    until(10, "the threads of the rush end", || connection_threads() <= 20);
    lab.ok("network_tree", json!({}));
}

#[test]
fn beyond_max_connections_there_is_a_busy_answer_at_once_and_a_place_that_is_free_is_given() {
    let _alone = alone();
    let lab = Lab::with(Keys { max_connections: 8, ..keys("full") });
    let mut held = held(&lab, 8);
    for _ in 0..30 {
        let started = Instant::now();
        let mut peer = Peer::to(&lab);
        peer.send(format!("{}\n", admin("network_tree", json!({})).line));
        let answer = peer.answer();
        assert_eq!(code(&answer), "busy");
        assert!(answer.error().unwrap().contains('8') && answer.field("signature").is_none());
        assert_eq!(peer.line(), None);
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    }
    // Those that are refused take nobody's place, and those inside are served on.
    let crowd: Vec<_> = (0..4).map(|_| Peer::to(&lab)).collect();
    for peer in &mut held {
        peer.send(format!("{}\n", kept("network_tree", json!({})).line));
        assert!(peer.answer().is_ok());
    }
    drop(crowd);
    drop(held.pop());
    let started = Instant::now();
    let mut served = false;
    while !served {
        let mut peer = Peer::to(&lab);
        peer.send(format!("{}\n", admin("network_tree", json!({})).line));
        served = peer.answer().is_ok();
        assert!(started.elapsed() < Duration::from_secs(5), "the place that was left is not given");
    }
    let noted = lab.journal();
    let busy = |line: &str| line.contains("\"code\":\"busy\"") && line.contains("\"kind\":\"refused\"");
    assert!(noted.lines().any(busy), "{noted}");
    // The refusals' threads are a few beyond the bound, no more.
    assert!(connection_threads() <= 8 + 5, "{}", connection_threads());
}

#[test]
fn two_hundred_idle_connections_do_not_delay_a_signed_request() {
    let _alone = alone();
    let lab = Lab::start("idle");
    let median = |lab: &Lab| {
        let mut times: Vec<_> = (0..21)
            .map(|_| {
                let started = Instant::now();
                lab.ok("network_tree", json!({}));
                started.elapsed()
            })
            .collect();
        times.sort();
        times[10]
    };
    let before = median(&lab);
    // Half of them have said nothing yet, half are kept after a request.
    let silent: Vec<_> = (0..100).map(|_| Peer::to(&lab)).collect();
    let kept = held(&lab, 100);
    let among = median(&lab);
    assert!(among < before * 10 + Duration::from_millis(20), "{before:?} alone, {among:?} among 200");
    drop((silent, kept));
}

#[test]
fn an_endless_line_is_refused_at_the_limit_with_flat_memory() {
    let _alone = alone();
    let lab = Lab::start("endless");
    lab.ok("network_tree", json!({}));
    let before = of_process("VmHWM");
    for _ in 0..2 {
        let mut peer = Peer::to(&lab);
        let mut stream = peer.stream.try_clone().unwrap();
        let flood = std::thread::spawn(move || {
            let block = vec![b'x'; 1 << 20];
            (0..500).take_while(|_| stream.write_all(&block).is_ok()).count()
        });
        let answer = peer.answer();
        assert_eq!(code(&answer), "too_large");
        assert!(answer.error().unwrap().contains(&(32 << 20).to_string()), "{}", answer.line());
        drop(peer);
        assert!(flood.join().unwrap() < 500, "the node does not read five hundred megabytes");
    }
    // The limit is 32 MiB; the rest is the sender's block and slack.
    let grown = of_process("VmHWM") - before;
    assert!(grown < 44 << 10, "{grown} KB");
}

/// What waits for a busy agent takes one thread, and its inbox's length in memory, whoever sends it.
#[test]
fn an_agent_that_wakes_itself_without_end_fills_its_own_inbox_and_no_more() {
    let _alone = alone();
    let lab = Lab::start("inbox");
    let body = "def __init__(self):\n    self.got = 0\ndef on_message(self, ctx, message):\n    if message == 'count':\n        return self.got\n    if not isinstance(message, dict):\n        refused = 0\n        for n in range(1000):\n            try:\n                ctx.wake('me', n)\n            except Exception as error:\n                refused += error.code == 'busy'\n        return refused\n    self.got += 1";
    lab.deploy(&agent("waker", body));
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let before = threads();
    // One is on its way to the agent, whose hook still runs, and counts as waiting, too.
    let refused = lab.invoke("waker", json!("wake")).as_u64().unwrap();
    assert!((1000 - 65..=1000 - 64).contains(&refused), "{refused}");
    assert!(threads() <= before + 8, "{before} threads, then {}", threads());
    until(10, "all that were taken are delivered", || {
        lab.invoke("waker", json!("count")) == json!(1000 - refused)
    });
}

/// Each connection costs a descriptor; when there are none, accepting fails, and goes on later.
#[test]
fn a_node_out_of_descriptors_serves_again_when_there_are_some() {
    let _alone = alone();
    let lab = Lab::start("descriptors");
    lab.ok("network_tree", json!({}));
    let script = "import os, socket, sys\n\
                  sys.stdin.readline()\n\
                  peers = [socket.create_connection(('127.0.0.1', int(sys.argv[1]))) for n in range(80)]\n\
                  print('open', flush=True)\n\
                  sys.stdin.readline()\n";
    let mut child = Command::new("python3")
        .args(["-I", "-c", script, &lab.address().port.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let limits = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let mut early = held(&lab, 1);
    let few = rustix::process::Rlimit { current: Some(open() as u64 + 20), maximum: limits.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, few).unwrap();
    stdin.write_all(b"go\n").unwrap();
    let mut said = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
    let exhausted = Instant::now() + Duration::from_secs(5);
    while std::fs::File::open("/dev/null").is_ok() && Instant::now() < exhausted {
        std::thread::sleep(Duration::from_millis(5));
    }
    let none_left = std::fs::File::open("/dev/null").is_err();
    // Whoever is in is served all the same.
    let request = kept("network_tree", json!({}));
    early[0].send(format!("{}\n", request.line));
    let answer = early[0].answer();
    drop(stdin);
    let status = child.wait().unwrap();
    until(10, "the descriptors come back", || std::fs::File::open("/dev/null").is_ok());
    lab.ok("network_tree", json!({}));
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limits).unwrap();
    assert!(none_left, "the test did not use up the descriptors");
    assert_eq!((said.trim(), status.success()), ("open", true));
    assert!(is_signed(&answer, ADMIN, &request), "{}", answer.line());
    assert!(connection_threads() <= 24, "{}", connection_threads());
    lab.ok("list_agents", json!({}));
}
