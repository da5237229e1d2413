//! The operator's own door: declared agents, `ctl` through `admin.sock`, restored backups. The real binary.

#[path = "support/mod.rs"]
mod support;
use serde_json::{json, Value};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use support::cli::{Home, Ran, Server};
use support::lab::until;

/// Counts what it is told.
const COUNTER: &str = "    def __init__(self):\n        self.count = 0\n    def on_activate(self, ctx, payload):\n        return {\"activated\": payload}\n    def on_message(self, ctx, message):\n        self.count += 1\n        return [\"first\", self.count]";

/// A home, and commands about the node in `state`.
struct Place {
    home: Home,
    state: PathBuf,
}

impl Place {
    fn new(name: &str) -> Place {
        let home = Home::new(name);
        let state = home.path("node");
        std::fs::DirBuilder::new().mode(0o700).create(&state).unwrap();
        Place { home, state }
    }

    fn start(&self) -> Server {
        self.start_with(&[])
    }

    fn start_with(&self, more: &[&str]) -> Server {
        self.home.server("node", &[&["127.0.0.1:0", "--name", "node"], more].concat())
    }

    fn ctl(&self, arguments: &[&str]) -> Ran {
        self.home.run(&[&["ctl"], arguments, &["--state-dir", self.state.to_str().unwrap()]].concat())
    }

    fn at(&self, server: &Server, arguments: &[&str]) -> Ran {
        let mut all = arguments.to_vec();
        let at = server.at();
        all.extend([at.as_str(), "--state-dir", server.dir()]);
        self.home.run(&all)
    }

    fn says(&self, server: &Server, id: &str) -> Value {
        self.at(server, &["invoke", id]).exits(0).json()
    }

    /// Puts an agent's `config/` into place.
    fn declare(&self, id: &str, methods: &str, settings: Option<Value>) {
        let config = self.state.join("agents").join(id).join("config");
        std::fs::create_dir_all(&config).unwrap();
        std::fs::copy(self.home.agent(id, methods), config.join("agent.py")).unwrap();
        if let Some(settings) = settings {
            std::fs::write(config.join("agent.json"), settings.to_string()).unwrap();
        }
    }

    fn state_of(&self, id: &str) -> String {
        let told = self.ctl(&["status", id, "--json"]).exits(0).json();
        told["state"].as_str().unwrap().to_owned()
    }

    fn is_here(&self, id: &str) -> bool {
        self.ctl(&["status", id, "--json"]).json()["registered"] == true
    }
}

/// Ends a node as a power cut would, but for the disk.
fn kill(mut server: Server) {
    server.child.kill().unwrap();
    server.child.wait().unwrap();
}

#[test]
fn a_killed_agent_stays_stopped_across_restarts_until_it_is_started() {
    let place = Place::new("ctl-kill");
    let server = place.start();
    let file = place.home.agent("a", COUNTER);
    place.at(&server, &["deploy", &file]).exits(0);
    assert_eq!(place.says(&server, "a"), json!(["first", 1]));
    assert_eq!(place.ctl(&["kill", "a"]).exits(0).out, "a is stopped until ctl start\n");
    assert_eq!(place.state_of("a"), "killed");
    place.at(&server, &["invoke", "a"]).exits(1).says("was stopped by the operator");
    // Nobody brings it back in another way: neither the admin nor the agent itself.
    place.at(&server, &["deploy", &file]).exits(1).says("ctl start");
    place.at(&server, &["dispatch", "a", "127.0.0.1:1"]).exits(1).says("ctl start");
    place.home.run(&["send", &file, &server.at(), "--timeout", "5"]).says("ctl start");
    let listed = place.at(&server, &["list", "--json"]).exits(0).json();
    assert!(listed[0]["status"] == "killed" && listed[0]["live"] == false, "{listed}");
    kill(server);
    let server = place.start();
    assert_eq!(place.state_of("a"), "killed", "a node that was killed left a socket, which is no obstacle");
    place.at(&server, &["invoke", "a"]).exits(1).says("was stopped by the operator");
    place.ctl(&["start", "a"]).exits(0);
    assert_eq!(place.says(&server, "a"), json!(["first", 2]), "with its memory");
    place.ctl(&["kill", "nobody"]).exits(1).says("no agent \"nobody\"");
    place.ctl(&["start", "../a"]).exits(1).says("no agent");
    let shown = place.ctl(&["list"]).exits(0).out;
    assert!(shown.lines().nth(1).unwrap().starts_with("a      idle"), "{shown}");
}

#[test]
fn kill_ends_a_hook_that_never_ends() {
    let place = Place::new("ctl-hook");
    let server = place.start();
    let file = place.home.agent("a", "    def on_message(self, ctx, message):\n        while True: pass");
    place.at(&server, &["deploy", &file]).exits(0);
    let at = server.at();
    let mut command = place.home.command(&["invoke", "a", &at, "--state-dir", server.dir()]);
    let hanging = command.spawn().unwrap();
    until(20, "its hook runs", || place.state_of("a") == "running");
    place.ctl(&["kill", "a"]).exits(0);
    assert_eq!(hanging.wait_with_output().unwrap().status.code(), Some(1));
    let told = place.ctl(&["status", "a", "--json"]).exits(0).json();
    assert!(told["live"] == false && told["pid"].is_null(), "{told}");
}

#[test]
fn restart_gives_a_new_process_with_the_memory() {
    let place = Place::new("ctl-restart");
    let server = place.start();
    place.at(&server, &["deploy", &place.home.agent("a", COUNTER)]).exits(0);
    assert_eq!(place.says(&server, "a"), json!(["first", 1]));
    let pid = || place.ctl(&["status", "a", "--json"]).exits(0).json()["pid"].as_i64().unwrap();
    let before = pid();
    place.ctl(&["restart", "a"]).exits(0);
    assert_ne!(pid(), before);
    assert_eq!(place.says(&server, "a"), json!(["first", 2]));
}

#[test]
fn a_declared_agent_is_listed_started_and_rebuilt_with_its_memory_and_files() {
    let place = Place::new("ctl-declared");
    let server = place.start();
    place.declare("a", COUNTER, Some(json!({"activate_payload": {"n": 1}, "agent_metadata": {"k": "v"}})));
    assert_eq!(place.state_of("a"), "declared");
    place.at(&server, &["invoke", "a"]).exits(1).says("no agent \"a\"");
    let started = place.ctl(&["start", "a", "--json"]).exits(0).json();
    assert_eq!(started["activate_result"], json!({"activated": {"n": 1}}), "{started}");
    assert_eq!(place.says(&server, "a"), json!(["first", 1]));
    let note = place.state.join("agents/a/state/note");
    std::fs::write(&note, "kept").unwrap();
    place.declare("a", &COUNTER.replace("\"first\"", "\"second\""), None);
    assert_eq!(place.ctl(&["status", "a", "--json"]).json()["runs_its_config"], false);
    place.ctl(&["rebuild", "a"]).exits(0);
    assert_eq!(place.says(&server, "a"), json!(["second", 2]));
    assert!(note.exists());
    assert_eq!(place.ctl(&["status", "a", "--json"]).json()["runs_its_config"], true);
    // What does not load leaves what is there.
    place.declare("a", "    def on_message(self:", None);
    place.ctl(&["rebuild", "a"]).exits(1);
    assert_eq!(place.says(&server, "a"), json!(["second", 3]));
    // Restarts take nothing of it.
    kill(server);
    let server = place.start();
    assert_eq!(place.says(&server, "a"), json!(["second", 4]));
    assert!(note.exists() && place.state.join("agents/a/config/agent.json").exists());
    // Removed, it is still declared.
    place.at(&server, &["remove", "a"]).exits(0);
    assert_eq!(place.state_of("a"), "removed");
    assert!(place.state.join("agents/a/config/agent.py").exists());
    place.declare("b", COUNTER, Some(json!({"autostrat": true})));
    place.ctl(&["start", "b"]).exits(1).says("autostrat");
    std::fs::create_dir_all(place.state.join("agents/c/config")).unwrap();
    place.ctl(&["start", "c"]).exits(1).says("has no agent.py");
    place.declare("d", COUNTER, None);
    std::fs::copy(place.home.path("a.py"), place.state.join("agents/d/config/agent.py")).unwrap();
    place.ctl(&["start", "d"]).exits(1).says("AGENT_ID \"a\"");
    place.at(&server, &["deploy", &place.home.agent("e", COUNTER)]).exits(0);
    place.ctl(&["rebuild", "e"]).exits(1).says("not declared");
}

#[test]
fn the_files_of_a_declared_agent_are_there_after_any_start() {
    let place = Place::new("ctl-sweep");
    place.declare("a", COUNTER, None);
    let home = place.state.join("agents/a");
    // As a kill in the middle of a registration leaves it: a record that was never committed.
    std::fs::create_dir_all(home.join("harness/7")).unwrap();
    std::fs::create_dir_all(home.join("state")).unwrap();
    std::fs::write(home.join("state/note"), "kept").unwrap();
    let server = place.start();
    assert_eq!(std::fs::read_to_string(home.join("state/note")).unwrap(), "kept");
    assert!(home.join("config/agent.py").exists());
    place.ctl(&["start", "a"]).exits(0);
    assert_eq!(std::fs::read_to_string(home.join("state/note")).unwrap(), "kept");
    drop(server);
}

#[test]
fn autostart_runs_what_is_dropped_into_place_unless_it_was_stopped_or_has_moved() {
    let place = Place::new("ctl-autostart");
    let auto = Some(json!({"autostart": true}));
    place.declare("a", COUNTER, auto.clone());
    place.declare("m", COUNTER, auto.clone());
    place.declare("r", COUNTER, auto);
    place.declare("n", COUNTER, None);
    let server = place.start();
    until(20, "they run", || ["a", "m", "r"].iter().all(|id| place.is_here(id)));
    assert!(!place.is_here("n"));
    for id in ["a", "m", "r"] {
        let told = place.ctl(&["status", id, "--json"]).exits(0).json();
        assert_eq!(told["sequence"], 1, "{id} was started once");
    }
    place.ctl(&["kill", "a"]).exits(0);
    place.at(&server, &["remove", "r"]).exits(0);
    let other = place.home.server("other", &["127.0.0.1:0", "--name", "other"]);
    let told = place.at(&server, &["dispatch", "m", &other.at()]).exits(0).out;
    assert_eq!(place.state_of("m"), "away", "{told}");
    kill(server);
    let server = place.start();
    place.declare("late", COUNTER, Some(json!({"autostart": true})));
    // A change that makes the next pass due at once.
    place.at(&server, &["deploy", &place.home.agent("x", COUNTER)]).exits(0);
    until(20, "a new one runs", || place.is_here("late"));
    for (id, state) in [("a", "killed"), ("m", "away"), ("r", "removed"), ("n", "declared")] {
        assert_eq!(place.state_of(id), state, "{id}");
    }
    // It comes home, and is away no more.
    place.at(&other, &["dispatch", "m", &server.at()]).exits(0);
    assert_eq!(place.state_of("m"), "idle");
    // The operator's own word starts any of them.
    for id in ["a", "r", "n"] {
        place.ctl(&["start", id]).exits(0);
        assert!(place.is_here(id));
    }
}

fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => copy_tree(&path, &target),
            kind if kind.is_file() => drop(std::fs::copy(&path, &target).unwrap()),
            _ => {}
        }
    }
}

#[test]
fn a_restored_backup_runs_nobody_until_the_operator_says_so() {
    let place = Place::new("ctl-restored");
    let server = place.start();
    for id in ["a", "b", "moved"] {
        place.at(&server, &["deploy", &place.home.agent(id, COUNTER)]).exits(0);
        place.says(&server, id);
    }
    drop(server);
    let backup = place.home.path("backup");
    copy_tree(&place.state, &backup);
    let server = place.start();
    let other = place.home.server("other", &["127.0.0.1:0", "--name", "other"]);
    place.at(&server, &["dispatch", "moved", &other.at()]).exits(0);
    drop(server);
    std::fs::remove_dir_all(&place.state).unwrap();
    copy_tree(&backup, &place.state);
    let server = place.start_with(&["--restored"]);
    place.at(&server, &["invoke", "a"]).exits(1).says("started from a backup");
    place.at(&server, &["dispatch", "b", &other.at()]).exits(1).says("started from a backup");
    drop(server);
    let server = place.start();
    for id in ["a", "b", "moved"] {
        assert_eq!(place.state_of(id), "suspended", "also when it is started without --restored");
    }
    place.ctl(&["start", "a"]).exits(0);
    assert_eq!(place.says(&server, "a"), json!(["first", 2]));
    // The one that had moved comes home: it is the true one.
    place.says(&other, "moved");
    place.at(&other, &["dispatch", "moved", &server.at()]).exits(0);
    assert_eq!(place.says(&server, "moved"), json!(["first", 3]));
    assert_eq!(place.ctl(&["start", "--all"]).exits(0).out, "1 agents may run again\n");
    assert_eq!(place.says(&server, "b"), json!(["first", 2]));
}

fn tell(socket: &Path, line: &str) -> Value {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(format!("{line}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    serde_json::from_str(&answer).unwrap()
}

#[test]
fn the_socket_is_this_users_alone_and_takes_only_whole_orders() {
    let place = Place::new("ctl-socket");
    // Whatever lies there of a node that was killed.
    drop(std::os::unix::net::UnixListener::bind(place.state.join("admin.sock")).unwrap());
    let server = place.start();
    let socket = place.state.join("admin.sock");
    let about = std::fs::symlink_metadata(&socket).unwrap();
    assert!(about.file_type().is_socket() && about.permissions().mode() & 0o777 == 0o600);
    for (line, code) in [
        ("", "bad_message"),
        ("[]", "bad_message"),
        ("{}", "bad_message"),
        (r#"{"do":"list","do":"kill"}"#, "bad_message"),
        (r#"{"do":"list","more":1}"#, "bad_message"),
        (r#"{"do":"fly"}"#, "unknown_type"),
        (r#"{"do":"kill"}"#, "bad_payload"),
        (r#"{"do":"kill","agent_id":"../../meta"}"#, "unknown_agent"),
        (r#"{"do":"start","agent_id":".."}"#, "unknown_agent"),
    ] {
        assert_eq!(tell(&socket, line)["code"], code, "{line}");
    }
    assert_eq!(tell(&socket, r#"{"do":"list"}"#)["status"], "ok");
    let mut stop = server;
    support::cli::signal_to(&stop.child, rustix::process::Signal::TERM);
    assert!(support::cli::wait_for(&mut stop.child).success());
    assert!(!socket.exists());
    place.ctl(&["list"]).exits(3).says("no node runs");
}

#[test]
fn an_agents_own_command_is_no_operator() {
    let place = Place::new("ctl-agent");
    let server = place.start();
    let tries = format!(
        "    def on_message(self, ctx, message):\n        told = ctx.run([{:?}, \"ctl\", \"kill\", \"b\", \"--state-dir\", {:?}])\n        return [told[\"returncode\"], told[\"stderr\"]]",
        support::cli::BINARY,
        server.dir()
    );
    place.at(&server, &["deploy", &place.home.agent("a", &tries)]).exits(0);
    place.at(&server, &["deploy", &place.home.agent("b", COUNTER)]).exits(0);
    let told = place.says(&server, "a");
    assert_ne!(told[0], 0, "{told}");
    // A sandbox, where there is one, keeps it from the socket at all.
    assert_eq!(place.says(&server, "b"), json!(["first", 1]));
    let direct = "    def on_message(self, ctx, message):\n        import socket\n        try:\n            s = socket.socket(socket.AF_UNIX)\n            s.connect(message)\n            s.sendall(b'{\"do\":\"kill\",\"agent_id\":\"b\"}\\n')\n            return s.recv(65536).decode()\n        except Exception as wrong:\n            return str(wrong)";
    place.at(&server, &["deploy", &place.home.agent("c", direct)]).exits(0);
    let socket = json!(place.state.join("admin.sock")).to_string();
    let told = place.at(&server, &["invoke", "c", "--message", &socket]).exits(0).out;
    assert!(!told.contains("\\\"ok\\\""), "{told}");
    assert_eq!(place.says(&server, "b"), json!(["first", 2]));
}

#[test]
fn a_command_that_kills_its_supervisor_leaves_nothing_behind_and_is_no_operator() {
    let place = Place::new("ctl-stray");
    let server = place.start();
    let program = place.home.file("stray.py", "import os, socket, sys, time\nabove = os.getppid()\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        os.setsid()\n        os.closerange(0, 100)\n        while os.path.exists('/proc/%d/cmdline' % above) and open('/proc/%d/cmdline' % above).read():\n            time.sleep(0.001)\n        s = socket.socket(socket.AF_UNIX)\n        s.connect(sys.argv[1])\n        s.sendall(b'{\"do\":\"kill\",\"agent_id\":\"b\"}\\n')\n        time.sleep(60)\n    time.sleep(60)\ntime.sleep(0.3)\nos.kill(above, 9)\ntime.sleep(60)\n");
    let socket = place.state.join("admin.sock");
    let mark = format!("{}-mark", place.state.display());
    let kills = format!(
        "    def on_message(self, ctx, message):\n        try:\n            return ctx.run([\"python3\", {program:?}, {:?}, {mark:?}])\n        except Exception as wrong:\n            return str(wrong)",
        socket.to_str().unwrap()
    );
    place.at(&server, &["deploy", &place.home.agent("a", &kills)]).exits(0);
    place.at(&server, &["deploy", &place.home.agent("b", COUNTER)]).exits(0);
    let told = place.says(&server, "a").to_string();
    assert!(told.contains("was killed"), "{told}");
    assert_eq!(place.says(&server, "b"), json!(["first", 1]), "it was stopped");
    let marked = |entry: std::fs::DirEntry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&mark)
    };
    let left = std::fs::read_dir("/proc").unwrap().flatten().filter(|e| e.path().join("cmdline").exists());
    assert_eq!(left.map(marked).filter(|is| *is).count(), 0, "something of the command runs on");
}

#[test]
fn what_is_no_file_in_config_is_told_and_waited_for_by_nobody() {
    let place = Place::new("ctl-fifo");
    let config = place.state.join("agents/pipe/config");
    std::fs::DirBuilder::new().mode(0o700).recursive(true).create(&config).unwrap();
    let flags = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, config.join("agent.py"), flags).unwrap();
    let _server = place.start();
    place.ctl(&["start", "pipe", "--timeout", "5"]).exits(1).says("it is no file");
}

#[test]
fn a_state_directory_with_a_path_too_long_for_a_socket_has_one_all_the_same() {
    let place = Place::new("ctl-long");
    let name = "n".repeat(120);
    let server = place.home.server(&name, &["127.0.0.1:0", "--name", "node"]);
    place.at(&server, &["deploy", &place.home.agent("a", COUNTER)]).exits(0);
    let dir = server.dir().to_owned();
    let ctl = |arguments: &[&str]| place.home.run(&[&["ctl"], arguments, &["--state-dir", &dir]].concat());
    ctl(&["kill", "a"]).exits(0);
    assert_eq!(ctl(&["status", "a", "--json"]).exits(0).json()["state"], "killed");
}

#[test]
fn an_agents_command_changes_no_modes_in_the_state_directory() {
    let may_mount = std::process::Command::new("unshare").args(["-m", "true"]).status();
    if !may_mount.is_ok_and(|status| status.success()) {
        eprintln!("not shown here: it takes the right to mount");
        return;
    }
    let place = Place::new("ctl-modes");
    let server = place.start();
    let runs = "    async def on_message(self, ctx, command):\n        done = await ctx.run(['sh', '-c', command])\n        return [done['returncode'], done['stdout'] + done['stderr']]";
    place.at(&server, &["deploy", &place.home.agent("runs", runs)]).exits(0);
    let says = |command: &str| {
        let message = json!(command).to_string();
        place.at(&server, &["invoke", "runs", "--message", &message]).exits(0).json()
    };
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
    let secret = place.state.join("meta/admin.secret");
    let files = [place.state.clone(), place.state.join("meta"), secret, place.state.join("node.json")];
    let before = files.each_ref().map(|file| mode(file));
    for file in &files {
        let file = file.display();
        for command in [
            format!("chmod 777 {file}"),
            format!("umount {}; chmod 777 {file}", place.state.display()),
            format!("mount -o remount,rw {}; chmod 777 {file}", place.state.display()),
            format!("touch -d 2001-01-01 {file}"),
            format!("cd /proc/self/root; chmod 777 .{file}"),
            format!("chmod 777 /proc/{}/root{file}", server.child.id()),
        ] {
            let told = says(&command);
            assert_ne!(told[0], 0, "{command}: {told}");
        }
    }
    assert_ne!(says("chmod 777 ../meta ../meta/admin.secret")[0], 0);
    assert_eq!(files.each_ref().map(|file| mode(file)), before);
    // Its own place is as ever.
    let told = says("echo 'echo hello' >own && chmod +x own && ./own && touch -d 2001-01-01 own && pwd");
    assert_eq!(told, json!([0, format!("hello\n{}\n", place.state.join("data").display())]), "{told}");
    assert_eq!(mode(&place.state.join("data/own")) & 0o111, 0o111);
}
