//! Two nodes under more load than they can carry, from clients and agents of which many misbehave.
//!
//! `make soak SECONDS=60`. Four times as many clients as a node serves at once; drippers, half-closed
//! connections, garbage, lines of 500 MB, answers that nobody reads, resets, replays, wrong signatures; agents
//! that exit, crash, kill themselves, loop, take all memory, shout, and leave children behind; and among them
//! well-behaved invocations, deployments, removals and clones between the nodes.
//!
//! Exits 1 if a well-behaved request got no answer within its bound, if memory, descriptors or threads did not
//! come back to what they were, or if a zombie or a process is left over. The numbers come from /proc.

use agentcontainer::wire::{self, Address, ExchangeError, ReceivedAnswer, RequestOptions, Secret};
use serde_json::{json, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Connections that a node serves at once, and how many clients there are for each.
const CONNECTIONS: usize = 64;
const TIMES: usize = 4;
/// What lines on their way may hold, bytes.
const IN_FLIGHT: usize = 64 << 20;
/// A well-behaved request is answered within this.
const BOUND: Duration = Duration::from_secs(10);
/// How much larger a node may be at the end than it was after the warm-up, and at most in between, KiB.
const GROWTH_KB: u64 = 24 << 10;
const PEAK_KB: u64 = 384 << 10;
/// How many descriptors and threads more a node may have at the end.
const MORE_DESCRIPTORS: u64 = 2;
const MORE_THREADS: u64 = 20;
/// What an agent leaves behind is recognised by this argument of `sleep`.
const LEFT_BEHIND: &str = "86399.25";

fn main() -> ExitCode {
    let seconds = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let load = Duration::from_secs(seconds("SECONDS").unwrap_or(60));
    let warm_up = Duration::from_secs((load.as_secs() / 5).clamp(4, 20));
    let dir = Scratch::new();
    let ports = [free_port(), free_port()];
    let nodes = ["a", "b"].map(|name| Arc::new(Node::start(dir.0.join(name), name, ports)));
    let tally = Arc::new(Tally::default());
    for node in &nodes {
        node.deploy_all();
    }
    println!("warm-up of {} s, load of {} s, two nodes", warm_up.as_secs(), load.as_secs());
    run(&nodes, &Arc::new(Tally::default()), warm_up);
    let start = nodes.each_ref().map(|node| node.settled());
    let peaks = run(&nodes, &tally, load);
    let end = nodes.each_ref().map(|node| node.settled());

    let mut wrong = tally.report();
    println!("\n{:<34} {:>12} {:>12} {:>12}", "", "start", "end", "peak");
    for (n, node) in nodes.iter().enumerate() {
        let (start, end, peak) = (&start[n], &end[n], peaks[n]);
        let name = &node.name;
        let row = |what: &str, start: u64, end: u64, peak: Option<u64>| {
            let peak = peak.map_or_else(String::new, |peak| peak.to_string());
            println!("{:<34} {start:>12} {end:>12} {peak:>12}", format!("{name}: {what}"));
        };
        row("memory of the node (RSS, KiB)", start.rss, end.rss, Some(peak));
        row("memory of all (PSS, KiB)", start.pss, end.pss, None);
        row("descriptors", start.descriptors, end.descriptors, None);
        row("threads", start.threads, end.threads, None);
        row("zombies", start.zombies, end.zombies, None);
        let mut check = |fine: bool, what: String| {
            if !fine {
                wrong.push(format!("{name}: {what}"));
            }
        };
        let grown = end.rss.saturating_sub(start.rss);
        check(grown <= GROWTH_KB, format!("memory grew by {grown} KiB, more than {GROWTH_KB}"));
        check(peak <= PEAK_KB, format!("memory was at {peak} KiB, more than {PEAK_KB}"));
        let more = |end: u64, start: u64| end.saturating_sub(start);
        check(more(end.descriptors, start.descriptors) <= MORE_DESCRIPTORS, "descriptors leaked".into());
        check(more(end.threads, start.threads) <= MORE_THREADS, "threads leaked".into());
        check(end.zombies == 0, format!("{} zombies", end.zombies));
    }
    for node in nodes {
        wrong.extend(node.stop());
    }
    let left = left_over(&dir.0);
    println!("{:<34} {:>12} {:>12}", "processes left over", "", left.len());
    if !left.is_empty() {
        wrong.push(format!("processes are left over: {left:?}"));
    }
    for what in &wrong {
        println!("WRONG  {what}");
    }
    println!("{}", if wrong.is_empty() { "all is well" } else { "not all is well" });
    ExitCode::from(u8::from(!wrong.is_empty()))
}

/// Puts all load on the nodes for a while; the largest memory of each in that time, KiB.
fn run(nodes: &[Arc<Node>; 2], tally: &Arc<Tally>, time: Duration) -> [u64; 2] {
    let over = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    let mut start = |many: usize, client: Client| {
        for n in 0..many {
            for (me, other) in [(0, 1), (1, 0)] {
                let at = At {
                    node: Arc::clone(&nodes[me]),
                    other: Arc::clone(&nodes[other]),
                    tally: Arc::clone(tally),
                    over: Arc::clone(&over),
                    n,
                };
                let builder = std::thread::Builder::new().stack_size(512 << 10);
                let running = builder.spawn(move || {
                    while !at.over.load(Ordering::Acquire) {
                        client(&at);
                    }
                });
                threads.push(running.expect("a thread"));
            }
        }
    };
    for (many, client) in CLIENTS {
        start(*many, *client);
    }
    let end = Instant::now() + time;
    let mut peaks = [0, 0];
    while Instant::now() < end {
        for (peak, node) in peaks.iter_mut().zip(nodes) {
            *peak = (*peak).max(status(node.pid, "VmRSS"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    over.store(true, Ordering::Release);
    for thread in threads {
        if thread.join().is_err() {
            tally.wrong("a client of this program panicked".into());
        }
    }
    peaks
}

type Client = fn(&At);

/// Where a client works.
struct At {
    node: Arc<Node>,
    other: Arc<Node>,
    tally: Arc<Tally>,
    over: Arc<AtomicBool>,
    n: usize,
}

/// How many of each there are for each node. The first are the crowd: well-behaved, but too many.
const CLIENTS: &[(usize, Client)] = &[
    (CONNECTIONS * TIMES - 60, crowd),
    (6, invokes),
    (2, looks),
    (2, deploys_and_removes),
    (1, clones),
    (1, invokes_with_much),
    (6, drips),
    (4, half_closes),
    (4, talks_garbage),
    (1, floods),
    (4, does_not_read),
    (6, resets),
    (3, replays),
    (3, signs_wrong),
    (6, is_silent),
    (7, crashes_agents),
    (2, asks_for_a_panic),
];

fn crowd(at: &At) {
    let id = ["slow-0", "slow-1", "slow-2"][at.n % 3];
    at.ask("crowd", "invoke_agent", &json!({"agent_id": id, "message": at.n, "timeout": 5}));
}

fn invokes(at: &At) {
    let id = ["echo-0", "echo-1"][at.n % 2];
    let mark = at.tally.next();
    let answer = at.ask("invoke", "invoke_agent", &json!({"agent_id": id, "message": {"mark": mark}}));
    if let Some(result) = answer.as_ref().and_then(ReceivedAnswer::result) {
        let told = serde_json::from_str::<Value>(result).unwrap_or_default();
        if told["result"]["mark"] != json!(mark) {
            at.tally.wrong(format!("another answer than its own: {result}"));
        }
    }
    pause(at, 5);
}

fn looks(at: &At) {
    let kind = ["list_agents", "describe_container", "network_tree"][at.tally.next() as usize % 3];
    at.ask("look", kind, &json!({}));
    pause(at, 20);
}

fn deploys_and_removes(at: &At) {
    let id = format!("guest-{}", at.n);
    let source = format!("AGENT_ID = \"{id}\"\nAGENT_SECRET = \"secret of {id}\"\nclass Agent:\n    def __init__(self):\n        self.n = 0\n    def on_message(self, ctx, m):\n        self.n += 1\n        return self.n\n");
    at.ask("deploy", "deploy_agent", &json!({"source_code": source, "fresh": true}));
    at.ask("deploy", "invoke_agent", &json!({"agent_id": id}));
    at.ask("deploy", "remove_agent", &json!({"agent_id": id}));
    pause(at, 20);
}

fn clones(at: &At) {
    let message = json!({"to": at.other.name});
    at.ask(
        "clone",
        "invoke_agent",
        &json!({"agent_id": format!("traveller-{}", at.node.name), "message": message, "timeout": 8}),
    );
    pause(at, 50);
}

fn invokes_with_much(at: &At) {
    let much = "m".repeat(6 << 20);
    at.ask("large invoke", "invoke_agent", &json!({"agent_id": "echo-0", "message": much}));
    pause(at, 200);
}

fn drips(at: &At) {
    let Some(mut stream) = at.connect() else { return pause(at, 50) };
    let line = at.node.line("network_tree", &json!({})).line;
    for byte in line.bytes() {
        if at.over.load(Ordering::Acquire) || stream.write_all(&[byte]).is_err() {
            break;
        }
        pause(at, 40);
    }
}

fn half_closes(at: &At) {
    let Some(mut stream) = at.connect() else { return pause(at, 50) };
    let line = at.node.line("network_tree", &json!({})).line;
    let _ = stream.write_all(&line.as_bytes()[..line.len() / 2]);
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.read_to_end(&mut Vec::new());
    pause(at, 20);
}

fn talks_garbage(at: &At) {
    let Some(mut stream) = at.connect() else { return pause(at, 50) };
    let mut noise = vec![0; 4096];
    let _ = rustix::rand::getrandom(&mut noise, rustix::rand::GetRandomFlags::empty());
    let said = [&b"{\"type\":[[[[\n"[..], b"\0\0\0\n", b"GET / HTTP/1.1\r\n\r\n", &noise];
    let _ = stream.write_all(said[at.tally.next() as usize % said.len()]);
    let _ = stream.write_all(b"\n");
    let _ = stream.read_to_end(&mut Vec::new());
    pause(at, 20);
}

fn floods(at: &At) {
    let Some(mut stream) = at.connect() else { return pause(at, 50) };
    let block = vec![b'f'; 1 << 20];
    for _ in 0..500 {
        if at.over.load(Ordering::Acquire) || stream.write_all(&block).is_err() {
            break;
        }
    }
    pause(at, 100);
}

fn does_not_read(at: &At) {
    let Some(mut stream) = at.connect() else { return pause(at, 50) };
    let line = at.node.line("invoke_agent", &json!({"agent_id": "big"})).line;
    let _ = stream.write_all(line.as_bytes()).and_then(|()| stream.write_all(b"\n"));
    pause(at, 1500);
}

fn resets(at: &At) {
    let Some(mut stream) = at.connect() else { return pause(at, 50) };
    let _ = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
    let line = at.node.line("invoke_agent", &json!({"agent_id": "slow-0"})).line;
    let much = at.tally.next() as usize % (line.len() + 1);
    let _ = stream.write_all(&line.as_bytes()[..much]);
    if much.is_multiple_of(2) {
        let _ = stream.write_all(b"\n");
    }
    pause(at, 10);
}

/// The same line twice: it acts once.
fn replays(at: &At) {
    let request = at.node.line("network_tree", &json!({}));
    let first = at.exchange("replay", &request.line);
    if first.is_some_and(|answer| answer.is_ok()) {
        if let Some(again) = at.exchange("replay", &request.line) {
            if again.is_ok() {
                at.tally.wrong("a message was accepted twice".into());
            }
        }
    }
    pause(at, 30);
}

fn signs_wrong(at: &At) {
    let wrong = Secret::new("not the admin's").expect("a secret");
    let made = wire::signed_request("list_agents", "admin", &wrong, "{}", RequestOptions::default());
    if let Some(answer) = at.exchange("wrong signature", &made.expect("it signs").line) {
        if answer.is_ok() {
            at.tally.wrong("a wrong signature was taken".into());
        }
    }
    pause(at, 30);
}

fn is_silent(at: &At) {
    let stream = at.connect();
    pause(at, 2000);
    drop(stream);
}

fn crashes_agents(at: &At) {
    let how = CRASHES[at.n % CRASHES.len()].0;
    at.ask("crash", "invoke_agent", &json!({"agent_id": how, "timeout": 1}));
    pause(at, 100);
}

/// Tests provoke one so; a release does not know it.
fn asks_for_a_panic(at: &At) {
    if let Some(answer) = at.ask("panic", "panic_for_tests", &json!({})) {
        if !matches!(answer.code(), Some("unknown_type" | "busy")) {
            at.tally.wrong(format!("a release that panics when it is asked to: {}", answer.line()));
        }
    }
    pause(at, 300);
}

fn pause(at: &At, milliseconds: u64) {
    if !at.over.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(milliseconds));
    }
}

impl At {
    fn connect(&self) -> Option<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", self.node.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(8))).ok()?;
        stream.set_write_timeout(Some(Duration::from_secs(8))).ok()?;
        self.tally.sockets.fetch_add(1, Ordering::Relaxed);
        Some(stream)
    }

    /// A request that must be answered, and well signed unless it was refused at the door.
    fn ask(&self, group: &'static str, kind: &str, payload: &Value) -> Option<ReceivedAnswer> {
        let request = self.node.line(kind, payload);
        let answer = self.exchange(group, &request.line)?;
        let unsigned = matches!(answer.code(), Some("busy" | "timeout"));
        if !unsigned && !answer.genuine(&self.node.secret, &request.nonce) {
            self.tally.wrong(format!("{group}: an answer that is not genuine: {:.200}", answer.line()));
        }
        if answer.code() == Some("internal") {
            self.tally.wrong(format!("{group}: {:.300}", answer.line()));
        }
        Some(answer)
    }

    fn exchange(&self, group: &'static str, line: &str) -> Option<ReceivedAnswer> {
        let began = Instant::now();
        let address = Address::new("127.0.0.1", self.node.port).expect("an address");
        let answer = wire::exchange(&address, line, began + BOUND, 40 << 20);
        self.tally.count(group, began.elapsed(), &answer);
        answer.ok()
    }
}

/// What came of it all.
#[derive(Default)]
struct Tally {
    groups: Mutex<BTreeMap<&'static str, Group>>,
    wrong: Mutex<Vec<String>>,
    sockets: AtomicU64,
    number: AtomicU64,
}

#[derive(Default)]
struct Group {
    /// Microseconds: of those that succeeded, and of those that were refused.
    good: Vec<u32>,
    refused: Vec<u32>,
    codes: BTreeMap<String, u64>,
    unanswered: Vec<String>,
}

impl Tally {
    fn next(&self) -> u64 {
        self.number.fetch_add(1, Ordering::Relaxed)
    }

    fn wrong(&self, what: String) {
        let mut wrong = self.wrong.lock().expect("whole");
        if wrong.len() < 20 {
            wrong.push(what);
        }
    }

    fn count(&self, group: &'static str, took: Duration, answer: &Result<ReceivedAnswer, ExchangeError>) {
        let mut groups = self.groups.lock().expect("whole");
        let group = groups.entry(group).or_default();
        let micros = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        match answer {
            Ok(answer) => {
                if answer.is_ok() { &mut group.good } else { &mut group.refused }.push(micros);
                *group.codes.entry(answer.code().unwrap_or("ok").to_owned()).or_default() += 1;
            }
            Err(error) => group.unanswered.push(format!("after {:.1} s: {error}", took.as_secs_f64())),
        }
    }

    /// Prints it; what is wrong with it.
    fn report(&self) -> Vec<String> {
        let mut groups = self.groups.lock().expect("whole");
        let mut wrong = self.wrong.lock().expect("whole").clone();
        println!(
            "\n{:<16} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
            "milliseconds", "ok", "p50", "p99", "refused", "p50", "p99"
        );
        let mut all = 0;
        let mut codes: BTreeMap<String, u64> = BTreeMap::new();
        for (name, group) in groups.iter_mut() {
            let [good, refused] = [&mut group.good, &mut group.refused].map(|times| {
                times.sort_unstable();
                let at = |part: usize| {
                    times.get(times.len() * part / 100).map_or(0.0, |time| f64::from(*time) / 1e3)
                };
                (times.len(), at(50), at(99))
            });
            println!(
                "{name:<16} {:>9} {:>9.1} {:>9.1} {:>9} {:>9.1} {:>9.1}",
                good.0, good.1, good.2, refused.0, refused.1, refused.2
            );
            all += good.0 + refused.0;
            for (code, count) in &group.codes {
                *codes.entry(code.clone()).or_default() += count;
            }
            if let Some(first) = group.unanswered.first() {
                wrong.push(format!(
                    "{name}: {} requests got no answer, the first {first}",
                    group.unanswered.len()
                ));
            }
            // What behaves well succeeds, too, be there ever so many others.
            if matches!(*name, "crowd" | "invoke" | "look" | "deploy" | "clone") && good.0 == 0 {
                wrong.push(format!("{name}: not one request succeeded"));
            }
        }
        let mut line = format!("\n{all} requests answered:");
        for (code, count) in codes {
            let _ = write!(line, " {code} {count}"); // writing to a String cannot fail
        }
        println!("{line}\n{} connections of those that misbehave", self.sockets.load(Ordering::Relaxed));
        wrong
    }
}

/// Agents that come to a bad end.
const CRASHES: [(&str, &str); 7] = [
    ("exits", "os._exit(3)"),
    ("crashes", "os.kill(os.getpid(), signal.SIGSEGV)"),
    ("kills-itself", "os.kill(os.getpid(), signal.SIGKILL)"),
    ("loops", "while True:\n            pass"),
    ("takes-all", "all = []\n        while True:\n            all.append(bytearray(1 << 24))"),
    ("shouts", "for n in range(3000):\n            ctx.log('x' * 500)\n            print('y' * 500)"),
    (
        "leaves-children",
        "subprocess.Popen(['sleep', '86399.25'], start_new_session=True)\n        os._exit(0)",
    ),
];

/// A node of the binary that was built for this.
struct Node {
    name: String,
    pid: u32,
    port: u16,
    secret: Secret,
    child: Mutex<Child>,
}

/// What a node takes, when nothing happens.
struct Taken {
    rss: u64,
    pss: u64,
    descriptors: u64,
    threads: u64,
    zombies: u64,
}

impl Node {
    fn start(dir: PathBuf, name: &str, ports: [u16; 2]) -> Node {
        std::fs::create_dir_all(&dir).expect("a directory");
        let leaf =
            |name: &str, port: u16| json!({"name": name, "host": "127.0.0.1", "port": port, "children": []});
        let mut tree = leaf("a", ports[0]);
        tree["children"] = json!([leaf("b", ports[1])]);
        let port = if name == "a" { ports[0] } else { ports[1] };
        let config = json!({
            "container_name": name, "listen_port": port, "federation": tree,
            "max_connections": CONNECTIONS, "max_bytes_in_flight": IN_FLIGHT,
            "max_live_agents": 12, "max_agents": 100, "inbox_length": 16,
            "request_timeout_s": 4, "keep_alive_timeout_s": 4, "hook_timeout_s": 5, "idle_timeout_s": 2,
            "agent_memory_bytes": 256 << 20, "replay_entries": 50_000,
        });
        std::fs::write(dir.join("config.json"), config.to_string()).expect("a file");
        let state = dir.join("state");
        let log = std::fs::File::create(dir.join("log")).expect("a file");
        let child = Command::new(env!("CARGO_BIN_EXE_agentcontainer"))
            .arg("server")
            .arg("--config")
            .arg(dir.join("config.json"))
            .arg("--state-dir")
            .arg(&state)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the node starts");
        until("the node listens", || state.join("node.json").exists());
        let secret = Secret::from_file(&state.join("meta/admin.secret")).expect("its secret");
        Node { name: name.into(), pid: child.id(), port, secret, child: Mutex::new(child) }
    }

    fn line(&self, kind: &str, payload: &Value) -> wire::SignedRequest {
        let options = RequestOptions::default();
        wire::signed_request(kind, "admin", &self.secret, &payload.to_string(), options).expect("it signs")
    }

    fn ok(&self, kind: &str, payload: &Value) -> Value {
        let address = Address::new("127.0.0.1", self.port).expect("an address");
        let line = self.line(kind, payload).line;
        let answer = wire::exchange(&address, &line, Instant::now() + Duration::from_secs(30), 40 << 20);
        match &answer {
            Ok(answer) if answer.is_ok() => {
                serde_json::from_str(answer.result().unwrap_or("null")).unwrap_or_default()
            }
            Ok(answer) => panic!("{kind}: {:.500}", answer.line()),
            Err(error) => panic!("{kind}: {error}"),
        }
    }

    fn deploy_all(&self) {
        let traveller = format!("traveller-{}", self.name);
        let mut all: Vec<(&str, &str)> = vec![
            ("echo-0", "return message"),
            ("echo-1", "return message"),
            ("slow-0", "time.sleep(0.01)"),
            ("slow-1", "time.sleep(0.01)"),
            ("slow-2", "time.sleep(0.01)"),
            ("big", "return 'b' * (4 << 20)"),
            (&traveller, "return ctx.clone(message['to'], {})"),
        ];
        all.extend(CRASHES);
        for (id, body) in all {
            let source = format!("import os, signal, subprocess, time\nAGENT_ID = \"{id}\"\nAGENT_SECRET = \"secret of {id}\"\nclass Agent:\n    def on_activate(self, ctx, payload):\n        pass\n    def on_message(self, ctx, message):\n        {body}\n");
            self.ok("deploy_agent", &json!({"source_code": source}));
        }
    }

    /// Waits until nothing happens here any more, and measures.
    fn settled(&self) -> Taken {
        let mut last = Value::Null;
        until("the node comes to rest", || {
            last = self.ok("describe_container", &json!({}))["counters"].clone();
            last["live_agents"] == 0 && last["bytes_in_flight"] == 0 && last["open_transfers"] == 0
        });
        // Threads that wait for more work end after ten seconds.
        std::thread::sleep(Duration::from_secs(11));
        let zombies =
            || processes().iter().filter(|(pid, it)| it.zombie && descends(**pid, self.pid)).count();
        // The one that ends this instant is none.
        let _ = patient(Duration::from_secs(2), || zombies() == 0);
        let family: Vec<u32> = processes().keys().copied().filter(|pid| descends(*pid, self.pid)).collect();
        let pss = |pid: &u32| number(&format!("/proc/{pid}/smaps_rollup"), "Pss:");
        Taken {
            rss: status(self.pid, "VmRSS"),
            pss: pss(&self.pid) + family.iter().map(pss).sum::<u64>(),
            descriptors: std::fs::read_dir(format!("/proc/{}/fd", self.pid))
                .map_or(0, |list| list.count() as u64),
            threads: status(self.pid, "Threads"),
            zombies: zombies() as u64,
        }
    }

    /// Ends it in good order; what is wrong with that.
    fn stop(&self) -> Vec<String> {
        let mut child = self.child.lock().expect("whole");
        let mut wrong = Vec::new();
        if let Ok(Some(status)) = child.try_wait() {
            return vec![format!("{}: it ended by itself: {status}", self.name)];
        }
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&child),
            rustix::process::Signal::TERM,
        );
        let ended = patient(Duration::from_secs(20), || matches!(child.try_wait(), Ok(Some(_))));
        match child.try_wait() {
            Ok(Some(status)) if status.success() => {}
            Ok(Some(status)) => wrong.push(format!("{}: SIGTERM ended it with {status}", self.name)),
            _ => wrong.push(format!("{}: it does not end on SIGTERM ({ended})", self.name)),
        }
        let _ = child.kill(); // gone already, in all ordinary cases
        let _ = child.wait();
        wrong
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let child = self.child.get_mut().expect("whole");
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Processes that have to do with the nodes of this run, or that its agents left behind.
fn left_over(dir: &Path) -> Vec<String> {
    let dir = dir.to_string_lossy().into_owned();
    let found = || -> Vec<String> {
        processes()
            .iter()
            .filter(|(pid, it)| !it.zombie && **pid != std::process::id())
            .filter_map(|(pid, _)| {
                let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
                let line = String::from_utf8_lossy(&line).replace('\0', " ");
                let (cwd, ours) =
                    (std::fs::read_link(format!("/proc/{pid}/cwd")), descends(*pid, std::process::id()));
                let in_dir = cwd.is_ok_and(|cwd| cwd.starts_with(&dir));
                (ours || in_dir || line.contains(&dir) || line.contains(LEFT_BEHIND))
                    .then(|| format!("{pid} {line}"))
            })
            .collect()
    };
    let _ = patient(Duration::from_secs(3), || found().is_empty());
    found()
}

struct Process {
    parent: u32,
    zombie: bool,
}

fn processes() -> HashMap<u32, Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let read = |entry: std::fs::DirEntry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let (_, rest) = stat.rsplit_once(") ")?;
        let mut fields = rest.split(' ');
        let zombie = fields.next()? == "Z";
        Some((pid, Process { parent: fields.next()?.parse().ok()?, zombie }))
    };
    entries.filter_map(read).collect()
}

fn descends(pid: u32, from: u32) -> bool {
    let all = processes();
    let mut seen = BTreeSet::new();
    let mut at = pid;
    while let Some(process) = all.get(&at).filter(|_| seen.insert(at)) {
        if process.parent == from {
            return true;
        }
        at = process.parent;
    }
    false
}

/// A number of /proc/PID/status, in its own unit.
fn status(pid: u32, name: &str) -> u64 {
    number(&format!("/proc/{pid}/status"), &format!("{name}:"))
}

fn number(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn patient(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    while !done() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    true
}

#[track_caller]
fn until(what: &str, done: impl FnMut() -> bool) {
    assert!(patient(Duration::from_secs(60), done), "not within a minute: {what}");
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

/// A directory that goes with the run, unless it is asked for.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        let path = std::env::temp_dir().join(format!("agentcontainer-soak-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::env::var_os("KEEP").is_none() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}
