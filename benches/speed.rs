//! How long the node's main steps take, each beside what it is compared with, in turn, in one run.
//!
//! `make bench` prints medians and the median of the ratios pair by pair. A noisy machine shows in the
//! spread; the ratios hold better than the times.

#[path = "../tests/support/mod.rs"]
mod support;
use agentcontainer::journal::{Event, Fsync, Journal, Settings};
use agentcontainer::node::Keys;
use agentcontainer::sandbox::Wanted;
use serde_json::json;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::lab::{agent, keys, until, Lab};

const ROUNDS: usize = 60;
const BODY: &str = "def __init__(self):\n    self.count = 0\ndef on_activate(self, ctx, p):\n    return p\ndef on_message(self, ctx, m):\n    self.count += 1\n    return m";

fn main() {
    let lab = Lab::start("bench");
    lab.deploy(&agent("warm", BODY));
    println!("{:<58} {:>10} {:>10} {:>7}", "ours / compared with", "ours", "other", "ratio");
    deploy_beside_cold_python(&lab);
    deploy_beside_no_sandbox(&lab);
    invoke_beside_plain_tcp(&lab);
    wake_beside_invoke(&lab);
    memory_beside_none();
    first_answer_beside_true();
    journal_line_beside_write();
}

/// An agent deployed and activated in a process of its own, beside an interpreter that is started,
/// loads the same source into itself, and ends.
fn deploy_beside_cold_python(lab: &Lab) {
    let source = agent("cold", BODY);
    let script =
        format!("import json, asyncio\n{source}\nprint(json.dumps(Agent().on_activate(None, {{}})))");
    // The interpreter itself: a version manager's wrapper would cost its own start.
    let python = agentcontainer::agent::python::find(None).expect("an interpreter");
    let python = python.to_string_lossy();
    let parked = || lab.running.node.pool.parked() > 0;
    compare(
        "deploy and activate / python3 starts and loads the source",
        || {
            until(5, "a worker is parked", parked);
            timed(|| drop(lab.deploy(&source)))
        },
        || timed(|| run(&python, &["-I", "-S", "-c", &script])),
    );
}

/// An agent deployed to a parked worker that seals itself, beside the same on a node without a sandbox.
fn deploy_beside_no_sandbox(lab: &Lab) {
    let open = Lab::with(Keys { sandbox: Wanted::Off, ..keys("bench-open") });
    let source = agent("cold", BODY);
    open.deploy(&agent("warm", BODY));
    let deploy = |lab: &Lab| {
        until(5, "a worker is parked", || lab.running.node.pool.parked() > 0);
        timed(|| drop(lab.deploy(&source)))
    };
    compare("deploy, sandboxed / deploy without a sandbox", || deploy(lab), || deploy(&open));
}

/// A signed message to an agent and its signed answer, beside a line and its echo.
fn invoke_beside_plain_tcp(lab: &Lab) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut line = String::new();
            let _ = BufReader::new(&stream).read_line(&mut line);
            let _ = stream.write_all(line.as_bytes());
        }
    });
    compare(
        "invoke over a fresh connection / a line echoed over one",
        || timed(|| drop(lab.invoke("warm", json!({"n": 1})))),
        || {
            timed(|| {
                let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("an echo");
                let _ = stream.write_all(b"{\"n\":1}\n");
                let _ = BufReader::new(stream).read_line(&mut String::new());
            })
        },
    );
}

/// The first message to an agent whose process has ended, beside one to an agent that has one.
fn wake_beside_invoke(lab: &Lab) {
    compare(
        "invoke of a hibernated agent / of a live one",
        || {
            let record = lab.running.node.agent("warm").expect("it lives here");
            record.life.hibernate(Duration::ZERO);
            until(5, "a worker is parked", || lab.running.node.pool.parked() > 0);
            timed(|| drop(lab.invoke("warm", json!({}))))
        },
        || timed(|| drop(lab.invoke("warm", json!({})))),
    );
}

/// What keeping an agent's memory costs: a hook that changes it beside one that does not, for each way of
/// syncing; and one that does not, where every change is synced, beside the same where none is.
fn memory_beside_none() {
    const MEMORY: &str =
        "def __init__(self):\n    self.n = 0\ndef on_message(self, ctx, m):\n    self.n += m\n    return self.n";
    let nodes = ["always", "interval", "never"].map(|fsync| {
        let named = support::lab::keys(fsync);
        let memory_fsync = serde_json::from_value(json!(fsync)).expect("a way of syncing");
        let lab = Lab::with(agentcontainer::node::Keys { memory_fsync, ..named });
        lab.deploy(&agent("keeper", MEMORY));
        (fsync, lab)
    });
    let invoke = |lab: &Lab, by: u32| timed(|| drop(lab.invoke("keeper", json!(by))));
    for (fsync, lab) in &nodes {
        let what = format!("invoke that changes the memory / that does not ({fsync})");
        compare(&what, || invoke(lab, 1), || invoke(lab, 0));
    }
    let [always, _, never] = &nodes;
    compare("invoke that changes no memory, always / never", || invoke(&always.1, 0), || invoke(&never.1, 0));
}

/// From exec to the first signed answer, beside a program that does nothing.
fn first_answer_beside_true() {
    let dir = support::TempDir::new("bench-first");
    let binary = env!("CARGO_BIN_EXE_agentcontainer");
    let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
    let address = format!("127.0.0.1:{port}");
    compare(
        "server started until it accepts / /bin/true",
        || {
            let start = Instant::now();
            let mut server = Command::new(binary)
                .args(["server", &address, "--state-dir"])
                .arg(dir.path().join("state"))
                .stderr(Stdio::null())
                .spawn()
                .expect("the binary runs");
            while TcpStream::connect(&address).is_err() {
                std::thread::sleep(Duration::from_micros(100));
            }
            let took = start.elapsed();
            let _ = server.kill();
            let _ = server.wait();
            took
        },
        || timed(|| run("/bin/true", &[])),
    );
}

/// A line noted in the journal and handed to the kernel, beside the same bytes appended to a file; a thousand of each.
fn journal_line_beside_write() {
    let dir = support::TempDir::new("bench-journal");
    let settings = Settings { file_bytes: 64 << 20, files: 2, fsync: Fsync::Interval };
    let journal = Journal::open(dir.path(), settings).expect("a thread");
    let event = Event::new("accepted").text("type", "invoke_agent").text("sender", "admin").agent("an-agent");
    let event = event.text("peer", "127.0.0.1:50000");
    let mut file = std::fs::File::create(dir.path().join("plain")).expect("a file");
    compare(
        "1000 journal lines, each settled / 1000 times write(2)",
        || {
            timed(|| {
                for _ in 0..1000 {
                    journal.note(&event);
                    journal.settle();
                }
            })
        },
        || timed(|| (0..1000).for_each(|_| file.write_all(&[b'x'; 330]).expect("room"))),
    );
}

fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).stdout(Stdio::null()).status();
    assert!(status.is_ok_and(|status| status.success()), "{program}");
}

fn timed(job: impl FnOnce()) -> Duration {
    let start = Instant::now();
    job();
    start.elapsed()
}

fn compare(what: &str, mut ours: impl FnMut() -> Duration, mut other: impl FnMut() -> Duration) {
    let pairs: Vec<(f64, f64)> = (0..ROUNDS).map(|_| (ours().as_secs_f64(), other().as_secs_f64())).collect();
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let (a, b) = (median(pairs.iter().map(|p| p.0).collect()), median(pairs.iter().map(|p| p.1).collect()));
    let ratio = median(pairs.iter().map(|p| p.0 / p.1).collect());
    println!("{what:<58} {:>7.3} ms {:>7.3} ms {ratio:>7.3}", a * 1e3, b * 1e3);
}
