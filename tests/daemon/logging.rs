//! The log: a file that is rotated, JSON, and streams that take nothing.

use super::*;

#[test]
fn the_log_file_is_opened_anew_at_sigusr1() {
    let home = Home::new("daemon-rotate");
    let logged = Logged::start(&home, &["127.0.0.1:0", "--name", "lab"]);
    logged.line(" listening ");
    let mode = std::fs::metadata(&logged.log).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    std::fs::rename(&logged.log, home.path("log.1")).unwrap();
    home.run(&["list", &logged.node.at(), "--secret-file", &home.file("wrong", "a wrong secret")]).exits(1);
    wait_until("it still writes to the old file", || {
        std::fs::read_to_string(home.path("log.1")).unwrap().contains(" request_refused ")
    });
    logged.node.signal(Signal::USR1);
    logged.line(" info lab log_reopened file=");
    home.run(&["list", &logged.node.at(), "--secret-file", "wrong"]).exits(1);
    logged.line(" request_refused ");
    assert!(!std::fs::read_to_string(home.path("log.1")).unwrap().contains("log_reopened"));
    // A place where no file can be made: the old one goes on, and says so.
    std::fs::remove_file(&logged.log).unwrap();
    std::fs::create_dir(&logged.log).unwrap();
    logged.node.signal(Signal::USR1);
    home.run(&["list", &logged.node.at(), "--state-dir", "n"]).exits(0);
    home.run(&["server", "127.0.0.1:0", "--state-dir", "m", "--log-file", "log"])
        .exits(2)
        .says("opening the log");
}

#[test]
fn logrotate_rotates_it() {
    let there = Command::new("logrotate").arg("--version").output().is_ok_and(|said| said.status.success());
    if !there {
        eprintln!("passed over: there is no logrotate here");
        return;
    }
    let home = Home::new("daemon-logrotate");
    let logged = Logged::start(&home, &["127.0.0.1:0", "--name", "lab"]);
    logged.line(" listening ");
    let example =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/logrotate.conf"));
    let rules: String = example
        .unwrap()
        .replace("/var/log/agentcontainer/node.log", logged.log.to_str().unwrap())
        .replace("/usr/local/bin/agentcontainer", BINARY)
        .replace("/var/lib/agentcontainer", logged.node.dir())
        .lines()
        .filter(|line| !line.trim_start().starts_with("su "))
        .map(|line| format!("{line}\n"))
        .collect();
    assert!(rules.contains(BINARY) && rules.contains(logged.node.dir()), "{rules}");
    // logrotate wants its rules and the folder of the log to be its own alone.
    let rules = home.file("rules", &rules);
    for (path, mode) in [(Path::new(&rules), 0o600), (home.dir.path(), 0o700)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut command = Command::new("logrotate");
    command.args(["--force", "--state"]).arg(home.path("rotated")).arg(&rules);
    let said = ran(command).exits(0);
    assert!(said.err.is_empty(), "{}", said.err);
    logged.line(" log_reopened ");
    let old: Vec<_> = std::fs::read_dir(home.dir.path()).unwrap().flatten().collect();
    let old = old.iter().find(|entry| entry.file_name().to_string_lossy().starts_with("log.1")).unwrap();
    assert!(std::fs::read_to_string(old.path()).unwrap().contains(" listening "));
    // Without a node there is nobody to tell, and that is no error.
    drop(logged);
    let mut command = Command::new("logrotate");
    command.args(["--force", "--state"]).arg(home.path("rotated")).arg(&rules);
    ran(command).exits(0);
}

#[test]
fn as_json_each_line_is_an_object_that_says_the_same() {
    let home = Home::new("daemon-json");
    let methods = "    def on_activate(self, ctx, payload):\n        ctx.log('two\\nlines \"q\" \\x1b[2J', n=1)\n        print('printed')";
    let says = home.agent("says", methods);
    let mut logged = Logged::start(&home, &["127.0.0.1:0", "--name", "lab", "--log-format", "json"]);
    home.run(&["deploy", &says, &logged.node.at(), "--state-dir", "n"]).exits(0);
    logged.line("agent_printed");
    logged.node.signal(Signal::TERM);
    logged.node.end();
    let lines: Vec<Value> = logged
        .text()
        .lines()
        .map(|line| {
            assert!(!line.contains('\x1b'), "{line}");
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
        })
        .collect();
    for line in &lines {
        assert_eq!(line["node"], "lab", "{line}");
        assert!(["info", "warn", "error"].contains(&line["level"].as_str().unwrap()), "{line}");
        assert!(agentcontainer::clock::is_utc(line["time"].as_str().unwrap()), "{line}");
        assert!(line.as_object().unwrap().values().all(Value::is_string), "{line}");
    }
    let events: Vec<&str> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!((events.first(), events.last()), (Some(&"listening"), Some(&"stopped")));
    let said = lines.iter().find(|line| line["event"] == "agent_log").unwrap();
    assert!(said["text"].as_str().unwrap().starts_with("two\nlines \"q\" \u{1b}[2J"), "{said}");
}

/// Prints far more than a pipe holds.
const CHATTY: &str = "    def on_activate(self, ctx, payload):\n        pass\n    \
                      def on_message(self, ctx, n):\n        for i in range(40):\n            ctx.log('x' * 4000)\n        return 'said'";

#[test]
fn a_log_that_nobody_reads_holds_nobody_up() {
    let home = Home::new("daemon-unread");
    let dir = home.path("n");
    let mut command = home.command(&["server", "127.0.0.1:0", "--state-dir", dir.to_str().unwrap()]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut node = Server::wait(child, dir);
    home.run(&["deploy", &home.agent("chatty", CHATTY), &node.at(), "--state-dir", "n"]).exits(0);
    for _ in 0..3 {
        let message = ["invoke", "chatty", &node.at(), "--state-dir", "n", "--timeout", "20"];
        assert_eq!(home.run(&message).exits(0).out, "\"said\"\n");
    }
    node.signal(Signal::TERM);
    assert_eq!(node.end().code(), Some(0), "not even its end waits for a reader");
}

#[test]
fn a_log_whose_reader_has_gone_ends_nobody() {
    let home = Home::new("daemon-reader-gone");
    let dir = home.path("n");
    let mut command = home.command(&["server", "127.0.0.1:0", "--state-dir", dir.to_str().unwrap()]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    let mut node = Server::wait(child, dir);
    home.run(&["deploy", &home.agent("chatty", CHATTY), &node.at(), "--state-dir", "n"]).exits(0);
    home.run(&["invoke", "chatty", &node.at(), "--state-dir", "n"]).exits(0);
    node.signal(Signal::TERM);
    assert_eq!(node.end().code(), Some(0));
}

/// What a full disk is to a log, for everyone who runs this: its file may not grow beyond `bytes`.
fn limit_files(node: &Server, bytes: Option<u64>) {
    let limit = rustix::process::Rlimit { current: bytes, maximum: None };
    let pid = Some(Pid::from_child(&node.child));
    rustix::process::prlimit(pid, rustix::process::Resource::Fsize, limit).unwrap();
}

#[test]
fn a_log_that_may_not_grow_ends_nobody_and_says_later_what_it_lost() {
    let home = Home::new("daemon-full");
    let mut logged = Logged::start(&home, &["127.0.0.1:0", "--name", "lab"]);
    let at = logged.node.at();
    home.run(&["deploy", &home.agent("chatty", CHATTY), &at, "--state-dir", "n"]).exits(0);
    limit_files(&logged.node, Some(30_000));
    home.run(&["invoke", "chatty", &at, "--state-dir", "n"]).exits(0);
    wait_until("it is full", || logged.text().len() == 30_000);
    home.run(&["list", &at, "--state-dir", "n"]).exits(0);
    // Room again, in another file.
    std::fs::rename(&logged.log, home.path("log.1")).unwrap();
    logged.node.signal(Signal::USR1);
    let lost = logged.line(" warn lab log_lines_lost lines=");
    assert!(lost.contains("large"), "it says why: {lost}");
    logged.line(" log_reopened ");
    logged.node.signal(Signal::TERM);
    assert_eq!(logged.node.end().code(), Some(0));
    assert!(logged.text().lines().all(|line| line.contains(" lab ")), "{}", logged.text());
}

#[test]
fn a_line_that_was_torn_is_followed_by_whole_ones() {
    let home = Home::new("daemon-torn");
    let logged = Logged::start(&home, &["127.0.0.1:0", "--name", "lab"]);
    let at = logged.node.at();
    home.run(&["deploy", &home.agent("chatty", CHATTY), &at, "--state-dir", "n"]).exits(0);
    limit_files(&logged.node, Some(6_000));
    home.run(&["invoke", "chatty", &at, "--state-dir", "n"]).exits(0);
    wait_until("it is full", || logged.text().len() == 6_000);
    assert!(!logged.text().ends_with('\n'), "a line is torn");
    // The same file, with room again.
    limit_files(&logged.node, None);
    home.run(&["list", &at, "--secret-file", &home.file("wrong", "a wrong secret")]).exits(1);
    logged.line(" request_refused ");
    let text = logged.text();
    let tail: Vec<&str> = text.lines().rev().take(2).collect();
    assert!(tail[0].contains(" warn lab request_refused "), "{tail:?}");
    assert!(tail[1].starts_with("20") && tail[1].contains(" warn lab log_lines_lost lines="), "{tail:?}");
}
