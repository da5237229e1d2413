//! The other tools that speak the protocol, for comparison.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Runs a program with `input` on its standard input; gives what it printed. `None` if this machine does
/// not have it.
pub fn try_run(program: &str, arguments: &[&str], input: &[u8]) -> Option<String> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    let _ = writer.join().unwrap();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Some(String::from_utf8(output.stdout).unwrap())
}

/// Runs a Python script, which is required for these tests.
pub fn python(script: &str, input: &str) -> String {
    try_run("python3", &["-I", "-X", "utf8", "-c", script], input.as_bytes()).expect("python3 is needed")
}

/// Both ends of a connection.
pub fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    (server, client)
}

/// Far enough that a test that needs it has failed.
pub fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}
