//! The built binary, run as a user would, with a state home of the test's own.
#![allow(dead_code)] // each test file uses a part of it

use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The binary.
pub const BINARY: &str = env!("CARGO_BIN_EXE_agentcontainer");

/// A user's home for one test.
pub struct Home {
    pub dir: super::TempDir,
}

/// What a command did.
pub struct Ran {
    pub status: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// Checks the exit status; shows everything if it is another.
    #[track_caller]
    pub fn exits(self, status: i32) -> Self {
        assert_eq!(self.status, status, "\nstdout: {}\nstderr: {}", self.out, self.err);
        self
    }

    /// Standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out)
            .unwrap_or_else(|error| panic!("{error}: {:?} {:?}", self.out, self.err))
    }

    /// Checks what standard error says.
    #[track_caller]
    pub fn says(self, part: &str) -> Self {
        assert!(self.err.contains(part), "{part:?} is not in {:?}", self.err);
        self
    }
}

/// An agent of the repository.
pub fn agent(name: &str) -> String {
    format!("{}/agents/{name}.py", env!("CARGO_MANIFEST_DIR"))
}

impl Home {
    pub fn new(name: &str) -> Self {
        let dir = super::TempDir::new(name);
        std::fs::create_dir(dir.path().join("tmp")).unwrap();
        Home { dir }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file and returns its path.
    pub fn file(&self, name: &str, content: &str) -> String {
        self.dir.write(name, content);
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Writes an agent: its methods, indented by four blanks.
    pub fn agent(&self, id: &str, methods: &str) -> String {
        let source = format!(
            "AGENT_ID = \"{id}\"\nAGENT_SECRET = \"secret-of-{id}-0123\"\n\nclass Agent:\n{methods}\n"
        );
        self.file(&format!("{id}.py"), &source)
    }

    /// The command, with nothing of the tester's own environment that matters.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.managed_command(arguments);
        if arguments.first() == Some(&"server") {
            command.arg("--ruthless");
        }
        command
    }

    /// The same; a node that it starts has a manager.
    pub fn managed_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command
            .args(arguments)
            .env_remove("AGENTCONTAINER_SECRET")
            .env("XDG_STATE_HOME", self.path("state"))
            .env("TMPDIR", self.path("tmp"))
            .env("LC_ALL", "C.UTF-8")
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, arguments: &[&str]) -> Ran {
        ran(self.command(arguments))
    }

    /// The same with something on standard input.
    pub fn run_with(&self, arguments: &[&str], input: &str) -> Ran {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes()); // it may end without reading
        finished(child.wait_with_output().unwrap())
    }

    /// What is left in the place for temporary files.
    pub fn left_over(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.path("tmp")).unwrap().flatten().map(|entry| entry.path()).collect()
    }

    /// Starts `server` with these arguments and waits until it listens.
    pub fn server(&self, state: &str, arguments: &[&str]) -> Server {
        let dir = self.path(state);
        let mut command = self.command(&[&["server"], arguments].concat());
        command.arg("--state-dir").arg(&dir).stderr(Stdio::null()).stdout(Stdio::null());
        Server::wait(command.spawn().unwrap(), dir)
    }
}

/// Runs any command to its end.
pub fn ran(mut command: Command) -> Ran {
    finished(command.output().unwrap())
}

fn finished(output: std::process::Output) -> Ran {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { status: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

/// A node of the binary, ended with the test.
pub struct Server {
    pub child: Child,
    pub dir: PathBuf,
    pub port: u16,
    pub host: String,
}

impl Server {
    /// Waits until the node's note says where it listens.
    pub fn wait(mut child: Child, dir: PathBuf) -> Server {
        let note = dir.join("node.json");
        let pid = child.id();
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let told: Option<Value> =
                std::fs::read(&note).ok().and_then(|text| serde_json::from_slice(&text).ok());
            if let Some(told) = told.filter(|told| told["pid"] == pid) {
                let port = u16::try_from(told["port"].as_u64().unwrap()).unwrap();
                return Server { child, dir, port, host: told["host"].as_str().unwrap().to_owned() };
            }
            if let Some(status) = child.try_wait().unwrap() {
                panic!("the node ended: {status}");
            }
            assert!(Instant::now() < deadline, "no {}", note.display());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// `HOST:PORT`.
    pub fn at(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// `--state-dir D`, for nodes outside of the state home.
    pub fn dir(&self) -> &str {
        self.dir.to_str().unwrap()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        signal_to(&self.child, signal);
    }

    /// Waits for the end.
    pub fn end(&mut self) -> ExitStatus {
        wait_for(&mut self.child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn signal_to(child: &Child, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
}

/// Waits for a child's end, at most twenty seconds.
pub fn wait_for(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(Instant::now() < deadline, "it does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The processes that descend from `root`, zombies aside.
pub fn below(root: u32) -> Vec<u32> {
    let mut parents = std::collections::HashMap::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let mut fields = stat.rsplit_once(") ").unwrap().1.split(' ');
        if fields.next() != Some("Z") {
            parents.insert(pid, fields.next().unwrap().parse::<u32>().unwrap());
        }
    }
    let descends = |mut pid: u32| loop {
        match parents.get(&pid) {
            Some(parent) if *parent == root => return true,
            Some(parent) => pid = *parent,
            None => return false,
        }
    };
    parents.keys().copied().filter(|pid| descends(*pid)).collect()
}

/// Whether a process is there, and no zombie.
pub fn exists(pid: u32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}
