//! The audit journal: what a node of the real binary writes, what `journal` says of it, and what never stands in it.

mod support;

use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::cli::{wait_for, Home, Ran, Server};

const COUNTS: &str = "    def __init__(self):\n        self.n = 0\n    def on_activate(self, ctx, payload):\n        pass\n    \
                      def on_message(self, ctx, message):\n        self.n += 1\n        return self.n";

fn node(home: &Home, name: &str) -> Server {
    home.server(&format!("state/agentcontainer/{name}"), &["127.0.0.1:0"])
}

/// Everything in a journal, as text.
fn text(dir: &Path) -> String {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(dir.join("journal")).unwrap().flatten().map(|entry| entry.path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect()
}

fn events(dir: &Path) -> Vec<Value> {
    text(dir).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn kinds(dir: &Path) -> Vec<String> {
    events(dir).iter().map(|event| event["kind"].as_str().unwrap().to_owned()).collect()
}

fn first_file(dir: &Path) -> PathBuf {
    dir.join("journal/000000000001.jsonl")
}

fn verify(home: &Home, dir: &Path) -> Ran {
    home.run(&["journal", "verify", "--state-dir", dir.to_str().unwrap()])
}

/// A node that did a few things and was killed; its state directory.
fn killed(home: &Home) -> PathBuf {
    let mut node = node(home, "n");
    home.run(&["deploy", &home.agent("counts", COUNTS), &node.at()]).exits(0);
    for _ in 0..4 {
        home.run(&["invoke", "counts", &node.at()]).exits(0);
    }
    node.signal(Signal::KILL);
    node.end();
    node.dir.clone()
}

#[test]
fn a_life_is_written_down_and_verifies() {
    let home = Home::new("journal-life");
    let mut node = node(&home, "n");
    home.run(&["deploy", &home.agent("counts", COUNTS), &node.at()]).exits(0);
    home.run(&["invoke", "counts", &node.at()]).exits(0);
    home.run(&["invoke", "nobody", &node.at()]).exits(1);
    // While the node runs, by its address, and as the only one.
    for arguments in [&["journal", "verify", &node.at()][..], &["journal", "verify"]] {
        let ran = home.run(arguments).exits(0);
        assert!(ran.out.starts_with("good: 1 file, "), "{}", ran.out);
    }
    home.run(&["remove", "counts", &node.at()]).exits(0);
    node.signal(Signal::TERM);
    assert_eq!(node.end().code(), Some(0));
    let all = kinds(&node.dir);
    let expected =
        ["start", "accepted", "process_start", "deploy", "accepted", "accepted", "failed", "accepted"];
    assert_eq!(all[..expected.len()], expected);
    assert!(all.contains(&"remove".into()) && all.contains(&"process_end".into()), "{all:?}");
    assert_eq!(all.last().unwrap(), "stop");
    let events = events(&node.dir);
    assert_eq!(events[0]["clean"], true);
    assert_eq!((&events[1]["type"], &events[1]["sender"]), (&"deploy_agent".into(), &"admin".into()));
    assert!(events[1]["peer"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert_eq!((&events[3]["agent"], &events[3]["origin"]), (&"counts".into(), &"admin".into()));
    assert_eq!((&events[4]["agent"], &events[6]["code"]), (&"counts".into(), &"unknown_agent".into()));
    // And when it does not run: it is the only one with a journal.
    let ran = home.run(&["journal", "verify", "--json"]).exits(0).json();
    assert_eq!(
        (&ran["good"], &ran["lines"], &ran["fault"]),
        (&true.into(), &events.len().into(), &Value::Null)
    );
    for file in ["journal", "journal/000000000001.jsonl", "meta/journal.head"] {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(node.dir.join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{file}");
    }
}

#[test]
fn what_was_done_to_the_files_is_named_with_its_place() {
    let home = Home::new("journal-forged");
    let dir = killed(&home);
    verify(&home, &dir).exits(0);
    let file = first_file(&dir);
    let whole = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    let last = lines.len();
    let with = |lines: Vec<&str>| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let mut dropped = lines.clone();
    dropped.remove(4);
    let mut swapped = lines.clone();
    swapped.swap(4, 5);
    let path = file.display();
    for (forged, expected) in [
        (whole.replacen("\"admin\"", "\"adnin\"", 1), format!("{path}, line 2 (seq 2): changed")),
        (with(dropped), format!("{path}, line 5 (seq 6): dropped: line 5 is missing before it")),
        (with(swapped), format!("{path}, line 5 (seq 6): swapped: seq 5")),
        (
            with(lines[..last - 2].to_vec()),
            format!("(seq {}): cut tail: the journal ends with seq {0}", last - 2),
        ),
        (whole[..whole.len() - 30].to_owned(), format!("(seq {}): cut tail", last - 1)),
        (with([&lines[..3], &["rubbish"], &lines[3..]].concat()), format!("{path}, line 4: not JSON")),
    ] {
        std::fs::write(&file, forged).unwrap();
        verify(&home, &dir).exits(1).says(&expected);
        let ran = home.run(&["journal", "verify", "--json", "--state-dir", dir.to_str().unwrap()]).exits(1);
        assert_eq!(ran.json()["good"], false);
    }
    std::fs::write(&file, &whole).unwrap();
    std::fs::remove_file(dir.join("meta/journal.head")).unwrap();
    verify(&home, &dir).exits(1).says("there is no head");
}

#[test]
fn a_cut_tail_shows_also_after_the_next_start() {
    let home = Home::new("journal-cut");
    let dir = killed(&home);
    let file = first_file(&dir);
    let whole = std::fs::read_to_string(&file).unwrap();
    let kept: Vec<&str> = whole.lines().take(3).collect();
    std::fs::write(&file, kept.join("\n") + "\n").unwrap();
    let node = node(&home, "n");
    home.run(&["list", &node.at()]).exits(0);
    verify(&home, &dir).exits(1).says("dropped: lines 4 to ").says("are missing");
    assert!(kinds(&dir).contains(&"cut".into()));
}

#[test]
fn a_torn_last_line_is_recovered_from() {
    let home = Home::new("journal-torn");
    let dir = killed(&home);
    let mut file = std::fs::OpenOptions::new().append(true).open(first_file(&dir)).unwrap();
    file.write_all(b"{\"seq\":99,\"time\":\"20").unwrap();
    assert!(verify(&home, &dir).exits(0).out.contains("no end yet"));
    let node = node(&home, "n");
    home.run(&["list", &node.at()]).exits(0);
    verify(&home, &dir).exits(0);
    let all = events(&dir);
    let torn = all.iter().position(|event| event["kind"] == "torn").expect("it is said");
    assert_eq!((&all[torn]["bytes"], &all[torn + 1]["kind"]), (&20.into(), &"start".into()));
    assert_eq!(all[torn + 1]["clean"], false, "the node before was killed");
}

#[test]
fn killed_at_any_moment_it_goes_on_without_a_fault() {
    let home = Home::new("journal-killed");
    let mut answered = 0;
    for round in 0..6u64 {
        let mut node = node(&home, "n");
        let ask = |stream: &mut TcpStream| {
            let signed = home.run(&["sign", "list_agents", "--node", &node.at()]).exits(0).out;
            stream.write_all(signed.as_bytes())?;
            BufReader::new(stream).read_line(&mut String::new())
        };
        for _ in 0..=round {
            let mut stream = TcpStream::connect(node.at()).unwrap();
            assert!(ask(&mut stream).unwrap() > 0);
            answered += 1;
        }
        node.signal(Signal::KILL);
        node.end();
        verify(&home, &node.dir).exits(0);
        let noted = kinds(&node.dir).iter().filter(|kind| *kind == "accepted").count();
        assert_eq!(noted, answered, "what was answered is written");
    }
}

#[test]
fn it_is_rotated_and_the_chain_goes_on_over_files() {
    let home = Home::new("journal-rotated");
    let config = home.file(
        "node.json",
        r#"{"listen_port": 0, "container_name": "n", "journal_file_bytes": 4096, "journal_files": 3, "journal_fsync": "always"}"#,
    );
    let mut node = home.server("state/agentcontainer/n", &["--config", &config]);
    let state = node.dir.clone();
    // Refused lines are the quickest to make, twenty a second; accepted ones are all noted.
    let signed =
        |n: usize| home.run(&["sign", "list_agents", "--node", &node.at(), "--nonce", &n.to_string()]).out;
    for n in 0..60 {
        let mut stream = TcpStream::connect(node.at()).unwrap();
        stream.write_all(signed(n).as_bytes()).unwrap();
        BufReader::new(stream).read_line(&mut String::new()).unwrap();
        if n % 10 == 0 {
            verify(&home, &state).exits(0);
        }
    }
    let ran = verify(&home, &state).exits(0);
    assert!(
        ran.out.starts_with("good: 3 files, ") && ran.out.contains("older files were dropped"),
        "{}",
        ran.out
    );
    assert_eq!(std::fs::read_dir(state.join("journal")).unwrap().count(), 3);
    node.signal(Signal::TERM);
    node.end();
    verify(&home, &state).exits(0);
    let oldest =
        std::fs::read_dir(state.join("journal")).unwrap().flatten().map(|entry| entry.path()).min().unwrap();
    std::fs::remove_file(oldest).unwrap();
    verify(&home, &state).exits(1).says("the journal's head says that it begins with seq");
}

/// A line of HTTP at a time, to whoever asks.
fn web() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
        }
    });
    port
}

const TALKATIVE: &str = "    def on_activate(self, ctx, payload):\n        pass\n    \
    def on_message(self, ctx, message):\n        \
        kind, value = message['kind'], message.get('value')\n        \
        own = AGENT_SECRET\n        \
        if kind == 'log':\n            \
            ctx.log('line one\\nline two \\x1b[2J \\u202e ' + own, **{'password': 'hunter2', 'note': own})\n        \
        if kind == 'run':\n            \
            ctx.run(['echo', own, value, '-H', 'Authorization: Bearer hunter2'])\n        \
        if kind == 'http':\n            \
            ctx.http_request('POST', value, body='body ' + own, headers={'Authorization': 'Bearer hunter2', 'X-Own': own})\n        \
        if kind == 'raise':\n            \
            raise ValueError('no ' + own + ' a marked source line')\n        \
        if kind == 'wake':\n            \
            ctx.wake('me', {'kind': 'nothing', 'value': own})\n        \
        if kind == 'move':\n            \
            ctx.clone(value, {'token': own + ' hunter2'})  # a marked source line\n            \
            ctx.move(value, {'token': own + ' hunter2'})\n        \
        if kind == 'unknown':\n            \
            try:\n                \
                ctx.read_file(own)\n            \
            except Exception:\n                \
                pass";

#[test]
fn secrets_and_sources_never_stand_in_it_and_every_call_does() {
    let home = Home::new("journal-secrets");
    let there = node(&home, "there");
    let here_config = home.file(
        "here.json",
        &format!(
            r#"{{"listen_port": 0, "container_name": "here", "federation": {{"name": "here", "host": "127.0.0.1", "port": 1,
                "children": [{{"name": "there", "host": "127.0.0.1", "port": {}}}]}}}}"#,
            there.port
        ),
    );
    let here = home.server("state/agentcontainer/here", &["--config", &here_config]);
    let agent = home.agent("talkative", TALKATIVE);
    let own = "secret-of-talkative-0123";
    let admin = std::fs::read_to_string(here.dir.join("meta/admin.secret")).unwrap().trim().to_owned();
    let admin_there = std::fs::read_to_string(there.dir.join("meta/admin.secret")).unwrap().trim().to_owned();
    home.run(&["deploy", &agent, &here.at()]).exits(0);
    let url = format!("http://127.0.0.1:{}/path?key=hunter2", web());
    let scope = r#"{"hosts": ["127.0.0.1"]}"#;
    home.run(&["grant", "talkative", "http", &here.at(), "--scope", scope]).exits(0);
    let say = |kind: &str, value: &str| {
        let message = serde_json::json!({"kind": kind, "value": value}).to_string();
        home.run(&["invoke", "talkative", &here.at(), "--message", &message])
    };
    for (kind, value) in [("log", ""), ("run", &*admin), ("http", &url), ("wake", ""), ("unknown", "")] {
        say(kind, value).exits(0);
    }
    say("raise", "").exits(1);
    // Sources that are refused, and secrets where they do not belong.
    let broken = home.agent("broken", "    def on_activate(self, ctx) # a marked source line");
    home.run(&["deploy", &broken, &here.at()]).exits(1);
    let bare = home.file("bare.py", &format!("AGENT_SECRET = '{own}'\n# a marked source line\n"));
    let payload = serde_json::json!({"source_code": std::fs::read_to_string(&bare).unwrap()}).to_string();
    home.run(&["call", "deploy_agent", &here.at(), "--payload", &payload]).exits(1);
    home.run(&["call", "invoke_agent", &here.at(), "--payload", &format!(r#"{{"{admin}": "{own}"}}"#)])
        .exits(1);
    home.run(&["call", "invoke_agent", &here.at(), "--payload", &format!(r#"{{"agent_id": "{admin}"}}"#)])
        .exits(1);
    home.run(&["call", &admin, &here.at()]).exits(1);
    let stranger = home.file("stranger", "the secret of a stranger");
    home.run(&["call", "list_agents", &here.at(), "--sender", &admin, "--secret-file", &stranger]).exits(1);
    let mut stream = TcpStream::connect(here.at()).unwrap();
    writeln!(stream, r#"{{"type": "{admin}", "sender": "{own}", "signature": "x"}}"#).unwrap();
    BufReader::new(stream).read_line(&mut String::new()).unwrap();
    say("move", "there").exits(0);
    support::wait_until("both have written it", || {
        kinds(&there.dir).iter().filter(|kind| *kind == "arrival").count() == 2
            && kinds(&here.dir).contains(&"move".into())
    });
    for node in [&here, &there] {
        verify(&home, &node.dir).exits(0);
        let text = text(&node.dir);
        for secret in
            [own, &admin, &admin_there, "hunter2", "marked source", "AGENT_SECRET", "secret of a stranger"]
        {
            assert!(
                !text.contains(secret),
                "{secret}: {:?}",
                text.lines().find(|line| line.contains(secret))
            );
        }
        assert!(text.is_ascii() && !text.contains(|c: char| c.is_ascii_control() && c != '\n'));
    }
    let events = events(&here.dir);
    let called: Vec<(&str, &str)> = events
        .iter()
        .filter(|event| event["kind"] == "call")
        .map(|event| (event["name"].as_str().unwrap(), event["outcome"].as_str().unwrap()))
        .collect();
    for call in ["log", "run", "http_request", "wake", "clone", "move"] {
        assert!(called.contains(&(call, "ok")), "{call}: {called:?}");
    }
    assert!(called.iter().any(|(name, outcome)| *name == "read_file" && *outcome != "ok"), "{called:?}");
    let args = |name: &str| {
        let event = events.iter().find(|event| event["kind"] == "call" && event["name"] == name).unwrap();
        event["args"].as_str().unwrap().to_owned()
    };
    assert!(args("run").contains("[its secret]") && args("run").contains("[a secret]"), "{}", args("run"));
    assert!(args("http_request").contains("/path?…") && args("http_request").contains("Authorization"));
    assert!(args("log").contains(r"line one\nline two \u001b"), "{}", args("log"));
    let journey = |kind: &str| events.iter().find(|event| event["kind"] == kind).unwrap();
    assert_eq!((&journey("move")["to"], &journey("move")["outcome"]), (&"there".into(), &"arrived".into()));
    assert_eq!(journey("clone")["outcome"], "arrived");
    let modes: Vec<Value> = self::events(&there.dir)
        .iter()
        .filter(|event| event["kind"] == "arrival")
        .map(|event| event["mode"].clone())
        .collect();
    assert_eq!(modes, ["clone", "move"]);
    // What is shown is as harmless as what is written.
    let shown = home.run(&["journal", "show", &here.at(), "--agent", "talkative", "--kind", "call"]).exits(0);
    assert_eq!(shown.out.lines().count(), called.len());
    assert!(!shown.out.contains(|c: char| c.is_control() && c != '\n') && !shown.out.contains('\u{202e}'));
}

#[test]
fn refusals_are_noted_at_a_bounded_rate() {
    let home = Home::new("journal-refused");
    let mut node = node(&home, "n");
    let began = Instant::now();
    for n in 0..300 {
        let mut stream = TcpStream::connect(node.at()).unwrap();
        writeln!(stream, "{{\"no\": {n}}}").unwrap();
        BufReader::new(stream).read_line(&mut String::new()).unwrap();
    }
    let windows = 2 + began.elapsed().as_secs() as usize;
    node.signal(Signal::TERM);
    node.end();
    let all = events(&node.dir);
    let refused = all.iter().filter(|event| event["kind"] == "refused").count();
    let left_out: u64 = all.iter().filter_map(|event| event["count"].as_u64()).sum();
    // Beyond its budget an address is told of once, not line by line.
    let counted = refused as u64 + left_out;
    assert!((100..=100 + windows as u64).contains(&counted), "{counted} in {windows} s");
    assert_eq!(all.iter().filter(|event| event["kind"] == "limited").count(), 1);
    assert!(refused <= 20 * windows, "{refused} in {windows} s");
    verify(&home, &node.dir).exits(0);
}

#[test]
fn show_and_tail_say_what_they_are_asked_for() {
    let home = Home::new("journal-show");
    let node = node(&home, "n");
    home.run(&["deploy", &home.agent("counts", COUNTS), &node.at()]).exits(0);
    home.run(&["deploy", &home.agent("other", COUNTS), &node.at()]).exits(0);
    let show = |more: &[&str]| home.run(&[&["journal", "show", &node.at()], more].concat());
    let all = show(&[]).exits(0).out;
    assert!(all.lines().next().unwrap().contains(" 1 start version="), "{all}");
    assert_eq!(show(&["--json"]).exits(0).out, text(&node.dir));
    let deployed = show(&["--kind", "deploy"]).exits(0).out;
    assert_eq!(deployed.lines().count(), 2, "{deployed}");
    let one = show(&["--agent", "other", "--since", "1h"]).exits(0).out;
    assert!(one.lines().count() >= 2 && one.lines().all(|line| line.contains("agent=other")), "{one}");
    for since in ["2199-01-01", "2199-01-01T00:00:00Z"] {
        assert_eq!(show(&["--since", since]).exits(0).out, "");
    }
    let tail = home.run(&["journal", "tail", &node.at(), "-n", "3"]).exits(0).out;
    assert_eq!(
        tail.lines().collect::<Vec<_>>(),
        all.lines().rev().take(3).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>()
    );
    assert_eq!(home.run(&["journal", "tail", &node.at(), "-n", "0"]).exits(0).out, "");
    assert_eq!(home.run(&["journal", "tail", "--name", "n", "-n", "3"]).exits(0).out, tail);
    let mut follows = home.command(&["journal", "tail", &node.at(), "-n", "1", "--follow"]).spawn().unwrap();
    let mut lines = BufReader::new(follows.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    home.run(&["invoke", "counts", &node.at()]).exits(0);
    assert!(lines.next().unwrap().unwrap().contains("type=invoke_agent"));
    // Nobody reads any more: no error.
    drop(lines);
    home.run(&["invoke", "counts", &node.at()]).exits(0);
    assert_eq!(wait_for(&mut follows).code(), Some(0));
    home.run(&["journal", "verify", "--state-dir", "nowhere"])
        .exits(2)
        .says("there is no journal in nowhere");
    home.run(&["journal", "verify", "--name", "m"]).exits(2).says("there is no journal in").says("/m");
    home.run(&["journal", "verify", "--name", "../n"]).exits(2).says("--name");
    home.run(&["journal", "verify", &node.at(), "--name", "n"]).exits(2).says("give one of them");
    home.run(&["journal", "verify", "127.0.0.1:1"]).exits(2).says("no node of this user");
}

/// The node in a mount namespace of its own, where its state directory is a tmpfs of 1 MB.
#[test]
fn a_full_disk_costs_lines_and_not_the_node() {
    let may = Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|status| status.success());
    if !may || !rustix::process::geteuid().is_root() {
        eprintln!("passed over: a tmpfs of its own needs root and unshare");
        return;
    }
    let home = Home::new("journal-full");
    let dir = home.path("small");
    std::fs::create_dir(&dir).unwrap();
    let script =
        "mount -t tmpfs -o size=1m,mode=700 none \"$1\" && exec \"$0\" server 127.0.0.1:0 --state-dir \"$1\" --secret-file \"$2\"";
    let mut command = Command::new("unshare");
    let secret = home.file("secret", "a secret outside of it");
    command.args(["-m", "sh", "-c", script, support::cli::BINARY]).arg(&dir).arg(&secret);
    command.env("XDG_STATE_HOME", home.path("state")).stdin(Stdio::null()).stdout(Stdio::null());
    let log = std::fs::File::create(home.path("log")).unwrap();
    let child = command.stderr(log).spawn().unwrap();
    // Seen through the node's own root, once it is there.
    let seen = PathBuf::from(format!("/proc/{}/root{}", child.id(), dir.display()));
    let mut node = Server::wait(child, seen.clone());
    let at = node.at();
    let ask = || home.run(&["list", &at, "--secret-file", &secret]).exits(0);
    ask();
    let filler = seen.join("filler");
    let mut file = std::fs::File::create(&filler).unwrap();
    while file.write(&[0; 4096]).is_ok_and(|written| written > 0) {}
    let failed = || std::fs::read_to_string(home.path("log")).unwrap().matches("journal_failed").count();
    let deadline = Instant::now() + Duration::from_secs(60);
    while failed() == 0 {
        assert!(Instant::now() < deadline, "the disk is full and the journal does not say so");
        ask();
    }
    for _ in 0..5 {
        ask();
    }
    assert_eq!(failed(), 1, "one line for all of it");
    // What was written before stands as it was.
    verify(&home, &seen).exits(0);
    drop(file);
    std::fs::remove_file(&filler).unwrap();
    support::wait_until("the gap is noted", || kinds(&seen).contains(&"gap".into()));
    ask();
    let ran = verify(&home, &seen).exits(0);
    assert!(ran.out.contains("could not write"), "{}", ran.out);
    let all = events(&seen);
    let gap = all.iter().position(|event| event["kind"] == "gap").unwrap();
    assert!(all[gap]["lost"].as_u64().unwrap() >= 6, "{}", all[gap]);
    assert_eq!(all[gap + 1]["kind"], "accepted");
    node.signal(Signal::TERM);
    assert_eq!(node.end().code(), Some(0));
}
