//! How a node ends: by signals, after its time, with its terminal.

use super::*;

#[test]
fn running_hooks_get_the_time_that_is_configured() {
    let home = Home::new("daemon-grace");
    let config = home.file("node.json", r#"{"listen_port": 0, "shutdown_grace_s": 0.2}"#);
    let mut logged = Logged::start(&home, &["--config", &config]);
    let at = logged.node.at();
    home.run(&["deploy", &home.agent("sleeper", SLEEPER), &at, "--state-dir", "n"]).exits(0);
    let message = ["invoke", "sleeper", &at, "--state-dir", "n", "--message", "600"];
    let mut asker = home.command(&message).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the hook runs", || {
        home.run(&["list", &at, "--state-dir", "n", "--json"]).exits(0).json()[0]["status"] == "running"
    });
    let processes = below(logged.node.child.id());
    logged.node.signal(Signal::INT);
    assert_eq!(logged.node.end().code(), Some(0));
    wait_until("its processes are gone", || !processes.iter().any(|pid| exists(*pid)));
    assert_ne!(wait_for(&mut asker).code(), Some(0));
    assert!(logged.text().contains(" stopping why=SIGINT\n"), "{}", logged.text());
    assert!(logged.text().ends_with(" stopped\n"), "the last line is written: {}", logged.text());
}

#[test]
fn a_silent_connection_does_not_hold_up_the_end() {
    let home = Home::new("daemon-silent");
    let config = home.file("node.json", r#"{"listen_port": 0, "shutdown_grace_s": 600}"#);
    let mut logged = Logged::start(&home, &["--config", &config]);
    let line = home.run(&["sign", "list_agents", "--keep-alive", "--state-dir", "n"]).exits(0).out;
    let mut kept = TcpStream::connect(("127.0.0.1", logged.node.port)).unwrap();
    kept.write_all(line.as_bytes()).unwrap();
    let mut answer = [0u8; 1];
    kept.read_exact(&mut answer).unwrap();
    let silent = TcpStream::connect(("127.0.0.1", logged.node.port)).unwrap();
    logged.node.signal(Signal::TERM);
    assert_eq!(logged.node.end().code(), Some(0));
    drop((kept, silent));
}

#[test]
fn after_its_time_it_ends_as_if_by_sigterm() {
    let home = Home::new("daemon-for");
    let mut logged = Logged::start(&home, &["127.0.0.1:0", "--for", "1.5s"]);
    assert_eq!(logged.node.end().code(), Some(0));
    assert!(logged.text().contains(" stopping why=\"--for 1.5s\"\n"), "{}", logged.text());
    assert!(!logged.node.dir.join("node.json").exists());
    home.run(&["server", "--for", "1d"]).exits(2).says("30s, 10m or 2h");
}

#[test]
fn when_its_terminal_goes_so_does_it() {
    // The node is at the terminal's other end; closing ours is what a window does that is closed.
    let script = "
import os, pty, sys, time
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
note = sys.argv[-1] + '/node.json'
for _ in range(2000):
    if os.path.exists(note):
        break
    time.sleep(0.005)
os.close(terminal)
print(os.WEXITSTATUS(os.waitpid(pid, 0)[1]))
";
    let home = Home::new("daemon-terminal");
    let dir = home.path("n");
    let mut command = Command::new("python3");
    command.args(["-c", script, BINARY, "server", "127.0.0.1:0", "--log-file"]).arg(home.path("log"));
    command.arg("--state-dir").arg(&dir).current_dir(home.dir.path());
    assert_eq!(ran(command).exits(0).out, "0\n");
    let log = std::fs::read_to_string(home.path("log")).unwrap();
    assert!(log.contains(" stopping why=\"the end of its terminal\""), "{log}");
}
