//! `admin.sock` in the state directory: the operator's door on this machine, without any secret. Its mode is
//! 0600, the kernel says who is at the other end, and whoever runs below the node is none.
//!
//! A connection is one line, `{"do":"kill","agent_id":"scout"}`, and one line back, an answer as on TCP but
//! unsigned. `do`: `list`; `status`, `start`, `kill`, `restart`, `rebuild` with `agent_id`; `start` with
//! `"all": true`.

use crate::log::Level;
use crate::node::Node;
use crate::plain;
use crate::wire::{Answer, Code, Failure, ReceivedAnswer};
use rustix::fs::{Mode, OFlags};
use serde::Deserialize;
use serde_json::Value;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// Its name in the state directory.
pub const FILE: &str = "admin.sock";

/// The longest path that the kernel takes for a socket, bytes.
const PATH_BYTES: usize = 107;
/// The longest line, bytes.
const LINE: u64 = 64 << 10;
/// The longest answer, bytes.
const ANSWER: u64 = 64 << 20;
/// How long a line may take to come, and an answer to be read.
const TIME: Duration = Duration::from_secs(5);
/// How many are served at once: `start` may run a hook, and nobody must wait for it to kill another.
const MOST: usize = 32;
/// How far up the tree of processes is looked.
const ANCESTORS: usize = 64;

/// What is asked for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    #[serde(rename = "do")]
    what: String,
    #[serde(default)]
    agent_id: Option<String>,
    #[serde(default)]
    all: bool,
}

/// The socket; it goes when it is dropped.
pub struct AdminSocket {
    path: PathBuf,
    stopping: Arc<AtomicBool>,
}

/// A path to the socket that the kernel takes, and what keeps it good.
fn reach(state_dir: &Path) -> io::Result<(PathBuf, Option<OwnedFd>)> {
    let path = state_dir.join(FILE);
    if path.as_os_str().as_bytes().len() <= PATH_BYTES {
        return Ok((path, None));
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(state_dir, flags, Mode::empty())?;
    Ok((PathBuf::from(format!("/proc/self/fd/{}/{FILE}", dir.as_raw_fd())), Some(dir)))
}

impl AdminSocket {
    /// Listens in a state directory that this process has locked: a socket that is there is of a node that
    /// was killed.
    ///
    /// # Errors
    /// It can't be made, with what to do about it.
    pub fn start(node: &Arc<Node>, state_dir: &Path) -> Result<AdminSocket, String> {
        let path = state_dir.join(FILE);
        let doing = |error: io::Error| format!("listening on {}: {error}", path.display());
        match fs::symlink_metadata(&path) {
            Ok(there) if there.file_type().is_socket() => fs::remove_file(&path).map_err(doing)?,
            Ok(_) => return Err(format!("{} is no socket: move it away", path.display())),
            Err(_) => {}
        }
        let (reached, _dir) = reach(state_dir).map_err(doing)?;
        let listener = UnixListener::bind(&reached).map_err(|error| match _dir {
            None => doing(error),
            Some(_) => format!(
                "{}; its path is longer than a socket's may be ({PATH_BYTES} bytes) and /proc is no way to it: take a shorter state directory",
                doing(error)
            ),
        })?;
        // The directory is this user's alone, so nobody came before.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(doing)?;
        let stopping = Arc::new(AtomicBool::new(false));
        let (node, stop) = (Arc::clone(node), Arc::clone(&stopping));
        let accept = move || serve(&node, &listener, &stop);
        let started = std::thread::Builder::new().name("admin".into()).spawn(accept);
        started.map_err(|error| format!("starting a thread: {error}"))?;
        Ok(AdminSocket { path, stopping })
    }

    /// Takes nobody in any more, and removes the socket.
    pub fn stop(&self) {
        if !self.stopping.swap(true, Ordering::AcqRel) {
            let dir = self.path.parent().unwrap_or(Path::new("."));
            // Wakes the thread that waits in accept.
            let _ = connect(dir);
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        self.stop();
    }
}

fn connect(state_dir: &Path) -> io::Result<UnixStream> {
    let (path, _dir) = reach(state_dir)?;
    UnixStream::connect(path)
}

fn serve(node: &Arc<Node>, listener: &UnixListener, stopping: &AtomicBool) {
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let accepted = listener.accept();
        if stopping.load(Ordering::Acquire) {
            return;
        }
        let Ok((stream, _)) = accepted else {
            std::thread::sleep(Duration::from_millis(20)); // out of descriptors: hurrying would not help
            continue;
        };
        if open.fetch_add(1, Ordering::AcqRel) >= MOST {
            open.fetch_sub(1, Ordering::AcqRel);
            let busy = Failure::new(Code::Busy, format!("{MOST} orders are being carried out already"));
            say(&stream, &Answer::failure(node.name(), &busy));
            continue;
        }
        let (node, ours) = (Arc::clone(node), Arc::clone(&open));
        let attend = move || {
            let answer = answer(&node, &stream);
            say(&stream, &answer);
            ours.fetch_sub(1, Ordering::AcqRel);
        };
        if std::thread::Builder::new().name("admin".into()).spawn(attend).is_err() {
            open.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn say(mut stream: &UnixStream, answer: &Answer) {
    let _ = stream.set_write_timeout(Some(TIME));
    let _ = stream.write_all(format!("{}\n", answer.clone().to_line(None)).as_bytes());
}

fn answer(node: &Arc<Node>, stream: &UnixStream) -> Answer {
    let done = admitted(node, stream).and_then(|()| {
        let line = read_line(stream, LINE, TIME).map_err(|why| Failure::new(Code::BadMessage, why))?;
        let caught = std::panic::AssertUnwindSafe(|| carry_out(node, &line));
        std::panic::catch_unwind(caught)
            .unwrap_or_else(|_| Err(Failure::new(Code::Internal, "the node failed; its log says how")))
    });
    match done {
        Ok(result) => node.plain_answer(&result),
        Err(failure) => Answer::failure(node.name(), &failure),
    }
}

/// Whether the one at the other end is the operator: this user or root, and no process that the node has
/// started itself. The second is no wall (the sandbox is); it keeps an agent's command from coming by.
fn admitted(node: &Node, stream: &UnixStream) -> Result<(), Failure> {
    let no = |why: String| {
        node.log.event(Level::Warn, "control_refused", &[("why", &why)]);
        Failure::new(Code::Forbidden, why)
    };
    let peer = rustix::net::sockopt::socket_peercred(stream)
        .map_err(|error| no(format!("the kernel does not say who asks: {error}")))?;
    let own = rustix::process::geteuid();
    if peer.uid != own && !peer.uid.is_root() {
        return Err(no(format!("user {} is not the one of this node", peer.uid.as_raw())));
    }
    let (pid, ours) = (peer.pid.as_raw_nonzero().get(), std::process::id() as i32);
    if pid != ours && ancestors(pid).any(|ancestor| ancestor == ours) {
        return Err(no(format!("process {pid} was started by the node itself")));
    }
    Ok(())
}

fn ancestors(pid: i32) -> impl Iterator<Item = i32> {
    let parent = |pid: &i32| -> Option<i32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok().filter(|parent| *parent > 0)
    };
    std::iter::successors(Some(pid), parent).skip(1).take(ANCESTORS)
}

fn carry_out(node: &Arc<Node>, line: &str) -> Result<Value, Failure> {
    let order: Order = crate::wire::parse(line)
        .map_err(|wrong| wrong.to_string())
        .and_then(|_| plain::read_object(line))
        .map_err(|why| Failure::new(Code::BadMessage, why))?;
    let id = || {
        let missing = || Failure::new(Code::BadPayload, format!("{} needs an agent_id", order.what));
        order.agent_id.as_deref().ok_or_else(missing)
    };
    match order.what.as_str() {
        "list" => Ok(node.list_roster()),
        "start" if order.all => node.control_start_all(),
        "status" => node.control_status(id()?),
        "start" => node.control_start(id()?),
        "kill" => node.control_kill(id()?),
        "restart" => node.control_restart(id()?),
        "rebuild" => node.control_rebuild(id()?),
        other => Err(Failure::new(
            Code::UnknownType,
            format!("list, status, start, kill, restart or rebuild, not {other:?}"),
        )),
    }
}

fn read_line(stream: &UnixStream, most: u64, time: Duration) -> Result<String, String> {
    let _ = stream.set_read_timeout(Some(time));
    let mut line = String::new();
    let read = BufReader::new(stream.take(most)).read_line(&mut line);
    match read {
        Ok(_) if line.ends_with('\n') => Ok(line),
        Ok(_) => Err("no whole line came".into()),
        Err(error) => Err(format!("reading: {error}")),
    }
}

/// Asks the node of a state directory, and waits for its answer at most `patience`.
///
/// # Errors
/// The system's, where nobody listens or no answer came.
pub fn ask(state_dir: &Path, order: &Value, patience: Duration) -> io::Result<ReceivedAnswer> {
    let mut stream = connect(state_dir)?;
    stream.set_write_timeout(Some(TIME))?;
    stream.write_all(format!("{order}\n").as_bytes())?;
    let line = read_line(&stream, ANSWER, patience).map_err(io::Error::other)?;
    ReceivedAnswer::parse(line.trim_end()).map_err(|wrong| io::Error::other(wrong.to_string()))
}
