//! A node that is asked for more than it has: it refuses the rest clearly, loses nothing, and is well again
//! as soon as it can be. And what happens when it fails itself.

#[path = "support/lines.rs"]
mod lines;
#[path = "support/mod.rs"]
mod support;
use agentcontainer::node::Keys;
use agentcontainer::wire::{self, ReceivedAnswer, RequestOptions, Secret};
use lines::{admin, code, handmade, Peer};
use serde_json::json;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::cli::{Home, Server, BINARY};
use support::lab::{agent, keys, until, Lab};

/// What the hostile use to write to their bridge behind the runtime's back.
const SEND: &str = "import os, socket
def send(data):
    links = [(int(name), os.readlink('/proc/self/fd/' + name)) for name in os.listdir('/proc/self/fd') if name != '0' and os.path.exists('/proc/self/fd/' + name)]
    socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, os.dup(max(n for n, to in links if to.startswith('socket:')))).sendall(data)
";

#[test]
fn a_panic_in_a_handler_answers_internal_and_ends_that_connection_alone() {
    let mut poor = Poor::start("panic", 256, json!({"container_name": "panic"}));
    for round in 0..40 {
        let mut peer = Peer::connect(poor.server.port).unwrap();
        peer.send(poor.line("panic_for_tests", json!({}), true));
        let answer = peer.answer();
        assert_eq!(code(&answer), "internal", "round {round}");
        assert!(answer.error().unwrap().contains("its log says how"), "{}", answer.line());
        assert_eq!(peer.line(), None, "that connection ends, kept alive or not");
        assert!(poor.ask("network_tree", json!({})).is_ok(), "the others go on");
    }
    let told = || poor.log().matches(" panic thread=connection at=src/server/requests.rs").count();
    until(5, "the log has all of them", || told() >= 40); // it is written behind the answers
    assert_eq!(told(), 40, "{}", poor.log());
    assert!(poor.ask_anew("list_agents", json!({})).is_ok());
}

#[test]
fn a_panic_at_a_call_is_an_error_of_that_call_and_one_at_a_frame_ends_that_process() {
    let lab = Lab::start("call-panic");
    let body = "def __init__(self):\n    self.n = 0\ndef on_message(self, ctx, message):\n    self.n += 1\n    if message:\n        send(message.encode())\n        ctx.capabilities()\n    return self.n";
    lab.deploy(&format!("{SEND}{}", agent("caller", body)));
    let frames = [
        "{\"call\":1000001,\"name\":\"panic_for_tests\",\"args\":{}}\n",
        "{\"call\":1000002,\"name\":\"panic_at_once_for_tests\",\"args\":{}}\n",
    ];
    for (n, frame) in frames.iter().enumerate() {
        assert_eq!(lab.invoke("caller", json!(frame)), json!(n + 1), "the hook goes on");
    }
    let frame = "{\"done\":1000003,\"result\":1,\"left\":[\"panic_for_tests\"]}\n";
    let (code, text) = lab.err("invoke_agent", json!({"agent_id": "caller", "message": frame}));
    assert!(code == "agent_error" && text.contains("the node failed at what it sent"), "{code}: {text}");
    assert_eq!(lab.invoke("caller", json!(null)), json!(3), "from its memory");
}

const MB: usize = 1 << 20;

/// A node whose lines may have 4 MiB, and 8 together.
fn narrow(name: &str) -> Lab {
    let keys = Keys { max_message_bytes: 4 * MB, max_bytes_in_flight: Some(8 * MB), ..keys(name) };
    Lab::with(Keys { request_timeout_s: 60.0, ..keys })
}

fn in_flight(lab: &Lab) -> usize {
    lab.ok("describe_container", json!({}))["counters"]["bytes_in_flight"].as_u64().unwrap() as usize
}

/// A genuine request of `bytes`.
fn long_request(n: usize, bytes: usize) -> String {
    let (now, pad) = (agentcontainer::wire::unix_now(), "p".repeat(bytes));
    handmade(&format!(
        "\"type\":\"network_tree\",\"sender\":\"admin\",\"timestamp\":{now},\"nonce\":\"long-{n}\",\"payload\":{{}},\"pad\":\"{pad}\""
    ))
}

/// Connections that have sent all but the end of a long line, and fall silent.
fn stalled(lab: &Lab, many: usize) -> Vec<Peer> {
    let mut all: Vec<Peer> = (0..many).map(|_| Peer::to(lab)).collect();
    for peer in &mut all {
        peer.send(vec![b'x'; 3 * MB]);
    }
    all
}

#[test]
fn lines_on_their_way_hold_no_more_than_they_may_and_small_requests_pass() {
    let lab = narrow("flight");
    let held = stalled(&lab, 2);
    until(10, "both have what they may", || in_flight(&lab) >= 6 * MB);
    let mut third = Peer::to(&lab);
    let began = Instant::now();
    third.send(vec![b'x'; 3 * MB]);
    // It waits for room, and meanwhile whoever has little to say is served.
    for _ in 0..50 {
        lab.ok("network_tree", json!({}));
        assert!(in_flight(&lab) <= 8 * MB + 1);
    }
    let answer = third.answer();
    assert_eq!(code(&answer), "busy");
    assert!(answer.error().unwrap().contains("max_bytes_in_flight"), "{}", answer.line());
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    // However a connection ends, what it held is given back.
    let mut held = held.into_iter();
    let reset = held.next().unwrap();
    rustix::net::sockopt::set_socket_linger(&reset.stream, Some(Duration::ZERO)).unwrap();
    drop(reset);
    let mut half = held.next().unwrap();
    half.no_more_to_send();
    assert_eq!(code(&half.answer()), "bad_message");
    let mut over = Peer::to(&lab);
    over.send(vec![b'x'; 5 * MB]);
    assert_eq!(code(&over.answer()), "too_large");
    until(10, "nothing is held", || in_flight(&lab) == 0);
    let mut peer = Peer::to(&lab);
    peer.send(format!("{}\n", long_request(0, 3 * MB)));
    assert!(peer.answer().is_ok());
}

/// More of them than there is room for, all at once: none waits for another without end.
#[test]
fn long_requests_side_by_side_are_all_answered_in_turn() {
    let lab = narrow("turns");
    std::thread::scope(|scope| {
        for n in 0..10 {
            let lab = &lab;
            scope.spawn(move || {
                // Whoever is told that there is no room comes again, as it says.
                for attempt in 0..10 {
                    let mut peer = Peer::to(lab);
                    peer.send(format!("{}\n", long_request(n * 100 + attempt, 3 * MB)));
                    let answer = peer.answer();
                    if answer.is_ok() {
                        return;
                    }
                    assert_eq!(code(&answer), "busy");
                }
                panic!("request {n} was never served");
            });
        }
    });
    until(10, "nothing is held", || in_flight(&lab) == 0);
}

#[test]
fn an_answer_that_nobody_reads_counts_until_its_connection_ends() {
    let lab = Lab::with(Keys { max_message_bytes: 16 * MB, ..keys("unread") });
    lab.deploy(&agent("big", "def on_message(self, ctx, m):\n    return 'y' * (12 << 20)"));
    let mut peer = Peer::to(&lab);
    peer.send(format!("{}\n", admin("invoke_agent", json!({"agent_id": "big"})).line));
    until(20, "the answer waits for its reader", || in_flight(&lab) >= 12 * MB);
    lab.ok("network_tree", json!({}));
    drop(peer);
    until(10, "nothing is held", || in_flight(&lab) == 0);
}

/// The built binary, with no more descriptors than these, and a connection to it that is kept.
struct Poor {
    server: Server,
    secret: Secret,
    kept: Peer,
    home: Home,
}

impl Poor {
    fn start(name: &str, descriptors: u32, config: serde_json::Value) -> Poor {
        let home = Home::new(name);
        let mut config = config;
        config["listen_port"] = json!(0);
        let file = home.file("config.json", &config.to_string());
        let state = home.path("poor");
        let mut shell = Command::new("sh");
        let line = format!("ulimit -n {descriptors}; exec \"$0\" \"$@\"");
        shell.args(["-c", &line, BINARY, "server", "--config", &file, "--state-dir"]).arg(&state);
        let log = std::fs::File::create(home.path("log")).unwrap();
        shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let server = Server::wait(shell.spawn().unwrap(), state.clone());
        let secret = Secret::from_file(&state.join("meta/admin.secret")).unwrap();
        let mut poor = Poor { kept: Peer::connect(server.port).unwrap(), server, secret, home };
        assert!(poor.ask("network_tree", json!({})).is_ok());
        poor
    }

    fn line(&self, kind: &str, payload: serde_json::Value, keep_alive: bool) -> String {
        let options = RequestOptions { keep_alive, ..RequestOptions::default() };
        wire::signed_request(kind, "admin", &self.secret, &payload.to_string(), options).unwrap().line + "\n"
    }

    /// On the connection that was there before all others.
    fn ask(&mut self, kind: &str, payload: serde_json::Value) -> ReceivedAnswer {
        let line = self.line(kind, payload, true);
        self.kept.send(line);
        self.kept.answer()
    }

    /// On a connection of its own, which must answer within two seconds.
    fn ask_anew(&self, kind: &str, payload: serde_json::Value) -> ReceivedAnswer {
        let began = Instant::now();
        let mut peer = Peer::connect(self.server.port).unwrap();
        peer.send(self.line(kind, payload, false));
        let answer = peer.answer();
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}: {}", began.elapsed(), answer.line());
        answer
    }

    fn limit(&self, descriptors: u64) {
        let pid = rustix::process::Pid::from_child(&self.server.child);
        let limit = rustix::process::Rlimit { current: Some(descriptors), maximum: Some(64) };
        rustix::process::prlimit(Some(pid), rustix::process::Resource::Nofile, limit).unwrap();
    }

    fn agents(&mut self) -> Vec<String> {
        let answer = self.ask("list_agents", json!({}));
        let all: Vec<serde_json::Value> = serde_json::from_str(answer.result().unwrap()).unwrap();
        let ids = all.iter().map(|agent| agent["agent_id"].as_str().unwrap().to_owned());
        ids.filter(|id| id != "ruth").collect()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.home.path("log")).unwrap()
    }

    fn is_up(&mut self) -> bool {
        self.server.child.try_wait().unwrap().is_none()
    }
}

const COUNTS: &str =
    "def __init__(self):\n    self.n = 0\ndef on_message(self, ctx, m):\n    self.n += 1\n    return self.n";

#[test]
fn a_hundred_sockets_and_sixty_four_descriptors_the_node_lives_and_serves_again_at_once() {
    let mut poor = Poor::start("poor", 64, json!({"container_name": "poor"}));
    assert!(poor.log().contains("few_descriptors"), "{}", poor.log());
    assert!(poor.ask("deploy_agent", json!({"source_code": agent("in", COUNTS)})).is_ok());
    for round in 1..=4u64 {
        // Silent ones, half a line, garbage, and a line that is whole and whose answer nobody reads.
        let crowd: Vec<Peer> = (0..100)
            .filter_map(|n| {
                let mut peer = Peer::connect(poor.server.port).ok()?;
                let line = poor.line("describe_container", json!({}), true);
                let said = ["", &line[..line.len() / 2], "garbage without an end", &line];
                let _ = std::io::Write::write_all(&mut peer.stream, said[n % 4].as_bytes());
                Some(peer)
            })
            .collect();
        // Whoever is in is served, with an agent that runs.
        let answer = poor.ask("invoke_agent", json!({"agent_id": "in"}));
        assert_eq!(
            answer.result(),
            Some(&*format!("{{\"agent_id\":\"in\",\"result\":{round}}}")),
            "{}",
            answer.line()
        );
        assert!(poor.is_up());
        drop(crowd);
        let gone = Instant::now();
        loop {
            let mut peer = Peer::connect(poor.server.port).unwrap();
            peer.send(poor.line("network_tree", json!({}), false));
            if peer.answer().is_ok() {
                break;
            }
            assert!(gone.elapsed() < Duration::from_secs(2), "round {round}\n{}", poor.log());
        }
        assert!(gone.elapsed() < Duration::from_secs(2), "round {round}: {:?}", gone.elapsed());
    }
    assert!(poor.is_up());
}

#[test]
fn an_agent_for_which_there_are_no_descriptors_is_refused_whole_and_comes_later() {
    let mut poor = Poor::start("crowded", 64, json!({"container_name": "crowded"}));
    let mut inside = Vec::new();
    let refused = loop {
        let id = format!("agent-{:02}", inside.len());
        let answer = poor.ask("deploy_agent", json!({"source_code": agent(&id, COUNTS)}));
        if !answer.is_ok() {
            break (id, answer);
        }
        inside.push(id);
        assert!(inside.len() < 64, "that many agents in 64 descriptors");
    };
    let (id, answer) = refused;
    assert!(inside.len() >= 2, "{inside:?}: {}", answer.line());
    assert_eq!(answer.code(), Some("busy"), "{}", answer.line());
    assert!(answer.error().unwrap().contains("Too many open files"), "{}", answer.line());
    assert_eq!(poor.agents(), inside);
    assert!(!poor.server.dir.join("agents").join(&id).exists(), "nothing of it stays");
    for id in &inside {
        let answer = poor.ask("invoke_agent", json!({"agent_id": id}));
        assert_eq!(
            answer.result(),
            Some(&*format!("{{\"agent_id\":\"{id}\",\"result\":1}}")),
            "{}",
            answer.line()
        );
    }
    for id in &inside[..2] {
        assert!(poor.ask("remove_agent", json!({"agent_id": id})).is_ok());
    }
    until(5, "there is room again", || {
        poor.ask("deploy_agent", json!({"source_code": agent(&id, COUNTS)})).is_ok()
    });
    assert!(poor.ask("invoke_agent", json!({"agent_id": id})).is_ok());
    assert!(poor.is_up());
}

#[test]
fn a_node_that_cannot_start_python_for_want_of_descriptors_starts_it_later() {
    let config = json!({"container_name": "bare", "prewarm": false});
    let mut poor = Poor::start("bare", 64, config);
    for (n, few) in [3u64, 12, 13, 14, 15, 16].into_iter().enumerate() {
        // Not one more than it has; or a few, which do not reach to the end of all that it takes.
        poor.limit(few);
        let id = format!("late-{n}");
        let answer = poor.ask("deploy_agent", json!({"source_code": agent(&id, COUNTS)}));
        if few == 3 {
            assert_eq!(answer.code(), Some("busy"), "{}", answer.line());
            assert!(answer.error().unwrap().contains("Too many open files"), "{}", answer.line());
        }
        if !answer.is_ok() {
            assert_eq!(answer.code(), Some("busy"), "{few}: {}", answer.line());
            assert!(!poor.agents().contains(&id));
            assert!(!poor.server.dir.join("agents").join(&id).exists(), "{few}: nothing of it stays");
        }
        assert!(poor.is_up());
        poor.limit(64);
        until(10, "it can be deployed", || {
            poor.ask("deploy_agent", json!({"source_code": agent(&id, COUNTS)})).is_ok()
        });
        let answer = poor.ask("invoke_agent", json!({"agent_id": id}));
        assert!(answer.is_ok(), "{}", answer.line());
        assert!(poor.ask_anew("remove_agent", json!({"agent_id": id})).is_ok());
    }
}
