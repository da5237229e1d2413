//! A node's life as a daemon, with the real binary: one at a time, signals, reloading, the log, detached,
//! for a while, and what `status` says of it. Nothing is left running.

mod support;

#[path = "daemon/alone.rs"]
mod alone;
#[path = "daemon/detached.rs"]
mod detached;
#[path = "daemon/ending.rs"]
mod ending;
#[path = "daemon/logging.rs"]
mod logging;
#[path = "daemon/reloading.rs"]
mod reloading;
#[path = "daemon/status.rs"]
mod status;

use rustix::process::{kill_process, Pid, Signal};
use serde_json::{json, Value};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};
use support::cli::{agent, below, exists, ran, wait_for, Home, Ran, Server, BINARY};
use support::wait_until;

const SLEEPER: &str = "    def on_activate(self, ctx, payload):\n        pass\n    \
                       def on_message(self, ctx, seconds):\n        import time\n        time.sleep(seconds)\n        return 'slept'";

/// A node whose log is a file of the test's.
struct Logged {
    node: Server,
    log: PathBuf,
}

impl Logged {
    /// Starts `server` with these arguments, its state in `n`, its log in `log`.
    fn start(home: &Home, arguments: &[&str]) -> Logged {
        let log = home.path("log");
        let node = home.server("n", &[arguments, &["--log-file", log.to_str().unwrap()]].concat());
        Logged { node, log }
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits for a line with `part`, and returns the last such.
    #[track_caller]
    fn line(&self, part: &str) -> String {
        let find = || self.text().lines().rfind(|line| line.contains(part)).map(str::to_owned);
        let give_up = Instant::now() + Duration::from_secs(10);
        loop {
            match find() {
                Some(line) => return line,
                None => assert!(Instant::now() < give_up, "no {part:?} in\n{}", self.text()),
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Has it reload, and returns what it says about that.
    fn reload(&self) -> String {
        let said = || self.text().matches(" configuration_").count();
        let before = said();
        self.node.signal(Signal::HUP);
        wait_until("it says what became of the reload", || said() > before);
        self.line(" configuration_")
    }
}

/// Any process, ended with the test.
struct Leftover(i32);

impl Drop for Leftover {
    fn drop(&mut self) {
        signal_pid(self.0, Signal::KILL);
    }
}

fn signal_pid(pid: i32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid).unwrap(), signal);
}

/// An address that nobody else is given by chance, so that it is still free when its node has ended: below
/// the ports that the system hands out.
fn own_address() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let step = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 12_000 + (std::process::id() * 53 + step) % 18_000;
        if std::net::TcpListener::bind(format!("127.0.0.1:{port}")).is_ok() {
            return format!("127.0.0.1:{port}");
        }
    }
}

fn is_gone(pid: i32) -> bool {
    !exists(pid.unsigned_abs())
}
