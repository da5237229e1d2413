//! One directory in which both programs run, one after the other: same paths, same content, so that what
//! they print and what they leave there can be compared as it is.

use serde_json::json;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than any run needs, also on a machine that does other things.
const PATIENCE: Duration = Duration::from_secs(60);
/// All of the environment both get, but for what a case adds.
const ENVIRONMENT: [(&str, &str); 3] = [("PATH", "/usr/bin:/bin"), ("HOME", "/"), ("LANG", "C.UTF-8")];

/// What stands in the directory before a program starts.
#[derive(Clone)]
pub enum Entry {
    /// A file of mode 0644.
    File(Vec<u8>),
    /// A file of this mode.
    Mode(Vec<u8>, u32),
    /// An empty directory.
    Dir,
    /// A symbolic link to this.
    Link(String),
}

/// What stands there afterwards.
#[derive(Clone, PartialEq, Eq)]
pub enum Node {
    /// Mode and content.
    File(u32, Vec<u8>),
    /// Mode.
    Dir(u32),
    /// Where it leads.
    Link(PathBuf),
}

/// Everything below a directory, by path.
pub type Tree = BTreeMap<PathBuf, Node>;

/// What a program did.
pub struct Ran {
    /// Its exit status; `None` if a signal ended it, or our patience.
    pub status: Option<i32>,
    /// What it printed.
    pub stdout: String,
    /// What it complained about.
    pub stderr: String,
    /// The directory before.
    pub before: Tree,
    /// The directory after.
    pub after: Tree,
}

/// How a program is run.
pub enum Program {
    /// Started from its file.
    Started(PathBuf),
    /// Python, forked from a process that has the program loaded: what it does is the same, but for the start
    /// of the interpreter, which takes ten times as long as the rest.
    Warm(RefCell<Warm>),
}

/// The process behind `Program::Warm`.
pub struct Warm {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Program {
    /// The program at `path` in the environment of `python`, kept warm.
    pub fn warm(python: &Path, path: &Path) -> Program {
        let mut child = Command::new(python)
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/capsule_interop/warm.py"))
            .arg(path)
            .env_clear()
            .envs(ENVIRONMENT)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Program::Warm(RefCell::new(Warm { child, answers }))
    }

    /// Fills `dir` anew with `entries`, runs the program there and looks at what it left.
    pub fn run(
        &self,
        dir: &Path,
        entries: &[(String, Entry)],
        env: &[(String, String)],
        args: &[OsString],
    ) -> Ran {
        if dir.exists() {
            fs::remove_dir_all(dir).unwrap();
        }
        fs::create_dir_all(dir).unwrap();
        for (path, entry) in entries {
            put(&dir.join(path), entry);
        }
        let before = tree(dir);
        // Beside the directory, not in it: what is in it is compared.
        let out = dir.with_extension("stdout");
        let err = dir.with_extension("stderr");
        let fixed = ENVIRONMENT.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let env: HashMap<String, String> = fixed.into_iter().chain(env.iter().cloned()).collect();
        let status = match self {
            Program::Started(path) => start(path, dir, &env, args, &out, &err),
            Program::Warm(warm) => warm.borrow_mut().order(dir, &env, args, &out, &err),
        };
        let text = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
        Ran { status, stdout: text(&out), stderr: text(&err), before, after: tree(dir) }
    }
}

/// The exit status; `None` if a signal ended it, or our patience.
fn start(
    path: &Path,
    dir: &Path,
    env: &HashMap<String, String>,
    args: &[OsString],
    out: &Path,
    err: &Path,
) -> Option<i32> {
    let mut child = Command::new(path)
        .args(args)
        .current_dir(dir)
        .env_clear()
        .envs(env)
        .stdin(Stdio::null())
        .stdout(File::create(out).unwrap())
        .stderr(File::create(err).unwrap())
        .spawn()
        .unwrap_or_else(|error| panic!("starting {}: {error}", path.display()));
    let give_up = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if Instant::now() > give_up {
            child.kill().unwrap();
            child.wait().unwrap();
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Warm {
    fn order(
        &mut self,
        dir: &Path,
        env: &HashMap<String, String>,
        args: &[OsString],
        out: &Path,
        err: &Path,
    ) -> Option<i32> {
        let args: Vec<&str> = args.iter().map(|word| word.to_str().expect("arguments are text")).collect();
        let order = json!({"args": args, "cwd": dir, "env": env, "stdout": out, "stderr": err});
        let orders = self.child.stdin.as_mut().unwrap();
        writeln!(orders, "{order}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        // A signal's number comes negative.
        Some(answer.trim().parse().expect("the warm peer lives")).filter(|status| *status >= 0)
    }
}

impl Drop for Warm {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// What there is below `dir`.
pub fn tree(dir: &Path) -> Tree {
    let mut found = Tree::new();
    let mut open = vec![dir.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            let about = fs::symlink_metadata(&path).unwrap();
            let mode = about.permissions().mode() & 0o7777;
            let node = if about.is_symlink() {
                Node::Link(fs::read_link(&path).unwrap())
            } else if about.is_dir() {
                open.push(path.clone());
                Node::Dir(mode)
            } else {
                Node::File(mode, fs::read(&path).unwrap())
            };
            found.insert(path.strip_prefix(dir).unwrap().to_owned(), node);
        }
    }
    found
}

fn put(path: &Path, entry: &Entry) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    match entry {
        Entry::File(bytes) => fs::write(path, bytes).unwrap(),
        Entry::Mode(bytes, mode) => {
            fs::write(path, bytes).unwrap();
            fs::set_permissions(path, Permissions::from_mode(*mode)).unwrap();
        }
        Entry::Dir => fs::create_dir_all(path).unwrap(),
        Entry::Link(target) => symlink(target, path).unwrap(),
    }
}
