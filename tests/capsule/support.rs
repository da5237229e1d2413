//! A directory of its own for each test, and the program as a script calls it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory that goes when the test ends.
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    pub fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("capsule-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Scratch { path: path.canonicalize().unwrap() }
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file, with the directories above it.
    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.at(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// Runs `agentcontainer capsule …` here.
    pub fn run(&self, words: &[&str]) -> Ran {
        self.run_as(&[&["capsule"], words].concat(), |_| {})
    }

    /// Runs the program with these words, after changing the command.
    pub fn run_as(&self, words: &[&str], change: impl FnOnce(&mut Command)) -> Ran {
        let mut command = Command::new(env!("CARGO_BIN_EXE_agentcontainer"));
        command.args(words).current_dir(&self.path).env("KEY", "correct horse").env_remove("NO_KEY");
        change(&mut command);
        Ran { words: words.join(" "), output: command.output().unwrap() }
    }

    /// A new key pair, `NAME.key` and `NAME.pub`; its fingerprint.
    pub fn keys(&self, name: &str) -> String {
        let (private, public) = (format!("{name}.key"), format!("{name}.pub"));
        let made = self.run(&["keys", "generate", "--private-key", &private, "--public-key", &public]).ok();
        made.rsplit(' ').next().unwrap().trim().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// What a run of the program did.
pub struct Ran {
    words: String,
    output: Output,
}

impl Ran {
    /// What it printed, having succeeded and complained of nothing.
    #[track_caller]
    pub fn ok(&self) -> String {
        assert_eq!(self.output.status.code(), Some(0), "{self}");
        assert!(self.output.stderr.is_empty(), "{self}");
        self.stdout()
    }

    /// The one line it warned with, having succeeded.
    #[track_caller]
    pub fn warned(&self) -> String {
        let line = String::from_utf8(self.output.stderr.clone()).unwrap();
        assert_eq!(self.output.status.code(), Some(0), "{self}");
        assert_eq!(line.matches('\n').count(), 1, "{self}");
        line.trim_end().to_owned()
    }

    /// The one line it complained with, having printed nothing.
    #[track_caller]
    pub fn refused(&self) -> String {
        let line = String::from_utf8(self.output.stderr.clone()).unwrap();
        assert_eq!(self.output.status.code(), Some(2), "{self}");
        assert!(self.output.stdout.is_empty(), "{self}");
        assert_eq!(line.matches('\n').count(), 1, "{self}");
        line.trim_end().to_owned()
    }

    /// What it printed, having failed without a complaint: an audit event.
    #[track_caller]
    pub fn failed_in_json(&self) -> serde_json::Value {
        assert_eq!(self.output.status.code(), Some(2), "{self}");
        assert!(self.output.stderr.is_empty(), "{self}");
        serde_json::from_slice(&self.output.stdout).unwrap()
    }

    /// What it printed, as JSON in one line.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        let text = self.ok();
        assert_eq!(text.matches('\n').count(), 1, "{self}");
        serde_json::from_str(&text).unwrap()
    }

    fn stdout(&self) -> String {
        String::from_utf8(self.output.stdout.clone()).unwrap()
    }
}

impl std::fmt::Display for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Output { status, stdout, stderr } = &self.output;
        let (out, err) = (String::from_utf8_lossy(stdout), String::from_utf8_lossy(stderr));
        write!(f, "{}: {status}\nstdout: {out}\nstderr: {err}", self.words)
    }
}

/// All files below a directory, sorted.
pub fn files_below(path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![path.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.symlink_metadata().unwrap().is_dir() {
                open.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
