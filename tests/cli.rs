//! The commands, end to end: the built binary against nodes of the built binary.

mod support;

use serde_json::{json, Value};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use support::cli::{agent, ran, Home, Ran, Server, BINARY};

/// In the state home, where commands look for nodes by themselves.
const FOUND: &str = "state/agentcontainer/one";

fn home_and_node(name: &str) -> (Home, Server) {
    let home = Home::new(name);
    let node = home.server(FOUND, &["127.0.0.1:0", "--name", "one"]);
    (home, node)
}

#[test]
fn an_agent_is_deployed_invoked_listed_and_removed() {
    let (home, node) = home_and_node("cli-life");
    let at = node.at();
    let deployed = home.run(&["deploy", &agent("basic/ping"), &at, "--activate", "\"hello\""]).exits(0);
    assert_eq!(deployed.json(), json!({"pong": "hello", "node": "one", "count": 1}));
    let deployed = deployed.says("ping on one: active");
    assert_eq!(deployed.err.lines().count(), 1);

    let invoked = home.run(&["invoke", "ping", &at, "--message", r#"{"n": 1.0}"#]).exits(0);
    assert!(invoked.out.contains(r#""n": 1.0"#), "numbers stay as they are: {}", invoked.out);
    let whole = home.run(&["invoke", "ping", &at, "--json"]).exits(0);
    assert_eq!(whole.out.lines().count(), 1);
    assert_eq!(whole.json()["result"], json!({"pong": {}, "node": "one", "count": 3}));

    let listed = home.run(&["list", &at]).exits(0);
    assert!(listed.out.starts_with("AGENT ") && listed.out.contains("\nping "), "{}", listed.out);
    assert_eq!(home.run(&["list", &at, "--json"]).exits(0).json()[0]["activations"], 3);

    home.run(&["deploy", &agent("basic/ping"), &at, "--no-activate"]).exits(0).says("registered");
    assert_eq!(home.run(&["invoke", "ping", &at]).json()["count"], 4, "memory stays with a new deployment");
    let fresh = ["deploy", &agent("basic/ping"), &at, "--fresh", "--metadata", r#"{"tokens": 3}"#, "--json"];
    assert_eq!(home.run(&fresh).exits(0).json()["activate_result"]["count"], 1);

    assert_eq!(home.run(&["remove", "ping", &at]).exits(0).out, "ping is removed from one\n");
    home.run(&["remove", "ping", &at]).exits(1).says("unknown_agent").says("agentcontainer list");
    let none = home.run(&["list", &at]).exits(0).says("no agents");
    assert_eq!(none.out, "");
}

#[test]
fn a_payload_comes_from_the_line_a_file_or_standard_input() {
    let (home, node) = home_and_node("cli-json");
    let at = node.at();
    home.run(&["deploy", &agent("basic/ping"), &at]).exits(0);
    let file = home.file("message.json", "[\n  \"from a file\"\n]\n");
    let invoked = home.run(&["invoke", "ping", &at, "--message", &format!("@{file}")]).exits(0);
    assert_eq!(invoked.json()["pong"], json!(["from a file"]));
    let invoked = home.run_with(&["invoke", "ping", &at, "--message", "-"], "\"von drüben\"").exits(0);
    assert!(invoked.out.contains("von drüben"), "{}", invoked.out);
    let payload = r#"{"agent_id": "ping", "message": 7}"#;
    let called = home.run_with(&["call", "invoke_agent", &at, "--payload", "-"], payload).exits(0);
    assert_eq!(called.json()["result"]["pong"], 7);
    home.run_with(&["invoke", "ping", &at, "--message", "-"], "{").exits(2).says("--message is not JSON");
    home.run(&["invoke", "ping", &at, "--message", "@/nowhere"]).exits(2).says("--message: reading /nowhere");
}

#[test]
fn a_node_describes_itself_and_its_tree() {
    let (home, node) = home_and_node("cli-describe");
    let described = home.run(&["describe", &node.at()]).exits(0);
    let named = |line: &str| line.split_whitespace().eq(["container_name", "one"]);
    assert!(described.out.lines().any(named), "{}", described.out);
    assert_eq!(home.run(&["describe", &node.at(), "--json"]).exits(0).json()["listen_port"], node.port);

    // A tree with a node that is there, one whose secret is not known, and one that is not there.
    let other = home.server("elsewhere", &["127.0.0.1:0", "--name", "other"]);
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let leaf = |name: &str, port: u16| json!({"name": name, "host": "127.0.0.1", "port": port});
    let mut tree = leaf("top", gone);
    tree["children"] = json!([leaf("one", node.port), leaf("other", other.port)]);
    let config = home.file("top.json", &json!({"container_name": "top", "federation": tree}).to_string());
    let top = home.server("state/agentcontainer/top", &["127.0.0.1:0", "--config", &config]);

    let drawn = home.run(&["tree", &top.at()]).exits(0).out;
    let names: Vec<&str> = drawn.lines().map(|line| line.split(" 127").next().unwrap().trim_end()).collect();
    assert_eq!(names, ["top", "├─ one", "└─ other"]);
    let ascii = ran({
        let mut command = home.command(&["tree", &top.at()]);
        command.env("LC_ALL", "C");
        command
    });
    assert!(ascii.out.is_ascii() && ascii.out.contains("\n`- other"), "{}", ascii.out);

    home.run(&["deploy", &agent("basic/ping"), &node.at()]).exits(0);
    let live = home.run(&["tree", &top.at(), "--live"]).exits(0).out;
    let lines: Vec<&str> = live.lines().collect();
    assert!(lines[0].ends_with("up, no agents"), "reached as it was typed: {live}");
    assert!(lines[1].ends_with("up: ping") && lines[2].contains("no secret for it is known"), "{live}");
    let live = home.run(&["tree", &top.at(), "--live", "--json"]).exits(0).json();
    assert_eq!(live["children"][0]["live"], json!({"up": true, "agents": ["ping"]}));
    drop(node);
    let live = home.run(&["tree", &top.at(), "--live", "--json"]).exits(0).json();
    assert_eq!(live["children"][0]["live"]["up"], false);
}

#[test]
fn a_node_sends_its_agent_on() {
    let (home, node) = home_and_node("cli-dispatch");
    let other = home.server("state/agentcontainer/two", &["127.0.0.1:0", "--name", "two"]);
    home.run(&["deploy", &agent("basic/ping"), &node.at()]).exits(0);
    let cloned =
        home.run(&["dispatch", "ping", &other.at(), &node.at(), "--mode", "clone", "--activate", "1"]);
    assert_eq!(cloned.exits(0).json()["result"]["activate_result"]["pong"], 1);
    home.run(&["invoke", "ping", &other.at()]).exits(0);
    home.run(&["dispatch", "ping", &other.at(), &node.at()]).exits(0);
    home.run(&["invoke", "ping", &node.at()]).exits(1).says("it moved to");
    home.run(&["dispatch", "ping", "nowhere", &other.at()]).exits(1).says("unknown_destination");
    home.run(&["dispatch", "ping", "x", &other.at(), "--mode", "teleport"]).exits(2).says("move or clone");
}

#[test]
fn a_secret_is_found_in_each_of_its_ways() {
    let home = Home::new("cli-secrets");
    let node = home.server("elsewhere", &["127.0.0.1:0"]);
    let at = node.at();
    home.run(&["list", &at])
        .exits(2)
        .says("no secret is known for")
        .says("--secret-file")
        .says("--config")
        .says("--state-dir")
        .says("AGENTCONTAINER_SECRET")
        .says("/node.json");
    home.run(&["list", &at, "--state-dir", node.dir()]).exits(0);
    let secret = node.dir.join("meta/admin.secret");
    home.run(&["list", &at, "--secret-file", secret.to_str().unwrap()]).exits(0);
    let from_environment = |secret: &str| {
        let mut command = home.command(&["list", &at]);
        command.env("AGENTCONTAINER_SECRET", secret);
        ran(command)
    };
    let text = std::fs::read_to_string(&secret).unwrap();
    from_environment(text.trim_end()).exits(0);
    from_environment("another").exits(1).says("bad_signature (unsigned)").says("from AGENTCONTAINER_SECRET");
    home.run(&["list", &at, "--state-dir", node.dir(), "--secret-file", "x"]).exits(2).says("both say");
    home.run(&["list", &at, "--secret-file", "/nowhere"]).exits(2).says("/nowhere");
    home.run(&["list", &at, "--state-dir", "tmp"]).exits(2).says("node.json");

    // A configuration names it, in the file or beside it; the node's note names the configuration.
    home.file("secret", "beside the configuration\n");
    let config = home.file("node.json", r#"{"admin_secret_file": "secret", "listen_port": 0}"#);
    let configured = home.server("configured", &["--config", &config]);
    home.run(&["list", &configured.at(), "--config", &config]).exits(0);
    home.run(&["list", &configured.at(), "--state-dir", configured.dir()]).exits(0);
    let config = home.file("bare.json", r#"{"container_name": "bare"}"#);
    let bare = home.server("state/agentcontainer/bare", &["127.0.0.1:0", "--config", &config]);
    home.run(&["list", &bare.at(), "--config", &config]).exits(0);
    home.run(&["list", &bare.at().replace("127.0.0.1", "localhost")]).exits(0);
    let secret = home.path("secret").to_str().unwrap().to_owned();
    let given = home.server("given", &["127.0.0.1:0", "--secret-file", &secret]);
    home.run(&["list", &given.at(), "--secret-file", &secret]).exits(0);
    home.run(&["list", &given.at(), "--state-dir", given.dir()]).exits(0);
}

#[test]
fn an_operator_does_what_it_may_and_no_more() {
    let home = Home::new("cli-operator");
    home.file("ann.secret", "ann's own secret");
    let config = json!({"operators": {"ann": {"secret_file": "ann.secret", "allow": ["list_agents"]}},
                        "admin_secret": "the admin's secret"});
    let config = home.file("node.json", &config.to_string());
    let node = home.server("state/agentcontainer/n", &["127.0.0.1:0", "--config", &config]);
    for way in [vec!["--config", &config], vec!["--secret-file", "ann.secret"], vec![]] {
        home.run(&[&["list", &node.at(), "--as", "ann"], &way[..]].concat()).exits(0);
    }
    home.run(&["remove", "x", &node.at(), "--as", "ann"]).exits(1).says("forbidden").says("allow");
    home.run(&["list", &node.at(), "--as", "bob"]).exits(2).says("no operator \"bob\"");
    home.run(&["list", &node.at(), "--as", "bob", "--secret-file", "ann.secret"])
        .exits(1)
        .says("unknown_sender");
    home.run(&["call", "list_agents", &node.at(), "--sender", "ann"]).exits(0);
    home.run(&["list", &node.at()]).exits(0);
}

#[test]
fn the_protocol_can_be_spoken_by_hand() {
    let (home, node) = home_and_node("cli-sign");
    let signed = home.run(&["sign", "list_agents", "--nonce", "n-1"]).exits(0).out;
    assert_eq!(signed.lines().count(), 1);
    let mut stream = TcpStream::connect(("127.0.0.1", node.port)).unwrap();
    stream.write_all(signed.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();

    let checked = home.run_with(&["check", "--nonce", "n-1"], &answer).exits(0);
    assert!(checked.out.starts_with("genuine (ok from one;"), "{}", checked.out);
    home.run_with(&["check"], &answer).exits(0);
    assert_eq!(home.run_with(&["check", "--json"], &answer).exits(0).json()["genuine"], true);
    let other = home.run_with(&["check", "--nonce", "n-2"], &answer).exits(1);
    assert!(other.out.contains("another request"), "{}", other.out);
    let forged = answer.replace("[]", "[1]");
    assert!(home.run_with(&["check"], &forged).exits(1).out.starts_with("not genuine"));
    home.run_with(&["check"], "\n").exits(1).says("no answer");
    home.run_with(&["check"], "hello\n").exits(1).says("not JSON");
    let unsigned = home.run_with(&["check", "--node", &node.at()], r#"{"status":"ok","result":1}"#).exits(1);
    assert!(unsigned.out.starts_with("not signed"), "{}", unsigned.out);

    // Kept alive: two lines on one connection.
    let mut stream = BufReader::new(TcpStream::connect(("127.0.0.1", node.port)).unwrap());
    for _ in 0..2 {
        let signed = home.run(&["sign", "network_tree", "--keep-alive", "--payload", "{}"]).exits(0).out;
        stream.get_mut().write_all(signed.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_line(&mut answer).unwrap();
        home.run_with(&["check"], &answer).exits(0);
    }

    if Command::new("sh").args(["-c", "nc -h 2>&1 | grep -q -e -N"]).status().unwrap().success() {
        let line = format!("\"$0\" sign describe_container | nc -N 127.0.0.1 {} | \"$0\" check", node.port);
        let mut shell = home.command(&[]);
        let mut piped = Command::new("sh");
        piped.arg("-c").arg(line).arg(BINARY).envs(shell.get_envs().filter_map(|(n, v)| Some((n, v?))));
        ran(piped).exits(0);
        shell.arg("--version");
    }
    let second = home.server("state/agentcontainer/two", &["127.0.0.1:0"]);
    home.run(&["sign", "list_agents"]).exits(2).says("several nodes").says("--node");
    home.run(&["sign", "list_agents", "--node", &second.at()]).exits(0);
    // Nothing is sent, so nobody need be there, and whoever is there sees no connection.
    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    stranger.set_nonblocking(true).unwrap();
    let there = stranger.local_addr().unwrap().to_string();
    for at in [&there, "127.0.0.1:1"] {
        home.run(&["sign", "list_agents", "--node", at]).exits(2).says("no secret").says("--secret-file");
        home.run_with(&["check", "--node", at], &answer).exits(2).says("no secret");
    }
    assert!(stranger.accept().is_err(), "nobody connected");
}

/// A stand-in for a node: answers one line with what `answer` makes of the request.
fn pretender(answer: impl FnOnce(Value) -> String + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let said = answer(serde_json::from_str(&line).unwrap());
        let _ = stream.get_mut().write_all(said.as_bytes());
        // Until the client has seen enough.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    at
}

#[test]
fn an_answer_that_proves_nothing_counts_for_nothing() {
    let home = Home::new("cli-forged");
    let secret = home.file("secret", "the secret");
    let ask = |at: &str, more: &[&str]| -> Ran {
        home.run(&[&["list", at, "--secret-file", &secret], more].concat())
    };
    let forged = pretender(|request| {
        let signature = "0".repeat(64);
        format!(
            "{}\n",
            json!({"status": "ok", "node": "x", "result": [], "nonce": request["nonce"], "signature": signature})
        )
    });
    let forged = ask(&forged, &[]).exits(1).says("without a good signature");
    assert_eq!(forged.out, "");
    let unsigned = pretender(|_| format!("{}\n", json!({"status": "ok", "node": "x", "result": []})));
    ask(&unsigned, &["--json"]).exits(1).says("\"signed\":false");
    let busy = pretender(|_| {
        format!("{}\n", json!({"status": "error", "node": "x", "code": "busy", "error": "full\u{1b}[2J"}))
    });
    let busy = ask(&busy, &[]).exits(1).says("busy (unsigned): full").says("later");
    assert!(!busy.err.contains('\u{1b}'));
    let stale =
        json!({"status": "error", "node": "x", "code": "stale_timestamp", "error": "old", "node_time": 1});
    let stale = pretender(move |_| format!("{stale}\n"));
    ask(&stale, &[]).exits(1).says("clock");
    let garbage = pretender(|_| "SSH-2.0-nothing\n".into());
    ask(&garbage, &[]).exits(3).says("not JSON");
    let mute = pretender(|_| String::new());
    ask(&mute, &["--timeout", "0.3"]).exits(3).says("in time");
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    ask(&nobody, &[]).exits(3).says("nothing was sent");
    home.run(&["list", &nobody]).exits(3).says("refused").says("no secret");
    ask("no-such-host.invalid:7", &[]).exits(3).says("resolve");
}

#[test]
fn the_exit_status_tells_the_agents_errors_and_the_clock_apart() {
    let (home, node) = home_and_node("cli-status");
    let source = home.agent(
        "moody",
        "    def on_activate(self, ctx, payload):\n        raise ValueError('not today')\n    \
         def on_message(self, ctx, message):\n        import time\n        time.sleep(30)",
    );
    home.run(&["deploy", &source, &node.at()])
        .exits(1)
        .says("ValueError: not today")
        .says("agent.py:6, in on_activate");
    let failed =
        home.run(&["deploy", &source, &node.at(), "--json"]).exits(1).says("\"code\":\"agent_error\"");
    assert_eq!(failed.json()["status"], "failed", "the result is there all the same");
    home.run(&["invoke", "moody", &node.at(), "--timeout", "0.5"]).exits(3).says("timeout");
    let broken = home.file("broken.py", "AGENT_ID = \"b\"\nAGENT_SECRET = \"s-of-b\"\nclass Agent\n");
    home.run(&["deploy", &broken, &node.at()]).exits(1).says("SyntaxError");
    let bare = home.file("bare.py", "print(1)\n");
    home.run(&["deploy", &bare, &node.at()]).exits(2).says("AGENT_ID").says("bare.py");
    home.run(&["deploy", "nowhere.py", &node.at()]).exits(2).says("nowhere.py");
    home.run(&["deplyo"]).exits(2).says("\"deploy\"");
    home.run(&["list", &node.at(), "--jsno"]).exits(2).says("--json");
    home.run(&["call", "list_agent", &node.at()]).exits(1).says("list_agents");
    let usage = home.run(&[]).exits(2).says("Commands:");
    assert_eq!(usage.out, "");
}

#[test]
fn the_help_is_on_standard_output_and_has_an_example() {
    let home = Home::new("cli-help");
    let overview = home.run(&["--help"]).exits(0).out;
    assert_eq!(overview, home.run(&["help"]).exits(0).out);
    let commands: Vec<&str> = overview
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .collect();
    assert!(commands.len() >= 14, "{overview}");
    for line in commands {
        let name = line.split_whitespace().next().unwrap();
        let help = home.run(&[name, "--help"]).exits(0).out;
        assert!(help.contains(&format!("Example:\n  agentcontainer {name}")), "{help}");
        assert_eq!(help, home.run(&["help", name]).exits(0).out);
    }
    let version = home.run(&["--version"]).exits(0).out;
    assert_eq!(version, format!("agentcontainer {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_closed_pipe_is_no_error_and_a_full_disk_is_one() {
    let home = Home::new("cli-pipe");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut closed = home.command(&["--help"]).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    assert_eq!(closed.wait().unwrap().code(), Some(0));
    let mut said = String::new();
    closed.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "");
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    assert_eq!(home.command(&["--help"]).stdout(full).status().unwrap().code(), Some(2));
    let mut shell = Command::new("sh");
    shell.args(["-c", "{ \"$0\" help; echo $? >&2; } | head -0", BINARY]);
    assert_eq!(ran(shell).exits(0).err, "0\n");
}

#[test]
fn ipv6_is_spoken() {
    if TcpListener::bind("[::1]:0").is_err() {
        return; // not on this machine
    }
    let home = Home::new("cli-v6");
    let node = home.server(FOUND, &["[::1]:0"]);
    assert!(node.at().starts_with("[::1]:"));
    home.run(&["deploy", &agent("basic/ping"), &node.at()]).exits(0);
    let sent = home.run(&["send", &agent("demo/visit_and_go_back"), &node.at(), "--timeout", "30", "--json"]);
    assert_eq!(sent.exits(0).json()["trace"][0]["host"], "::1");
    home.run(&["list", "::1:7000"]).exits(2).says("[IPv6]:PORT");
}
