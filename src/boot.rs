//! Starting a node: its address, its name, its state directory, its log, its secret.

mod files;
pub mod lock;
mod reload;
mod secret;
pub mod whereabouts;

pub use lock::NotTaken;
pub use secret::secret_of_config;
pub use whereabouts::{state_home, Whereabouts};

use crate::agent::{python, Settings};
use crate::log::{Form, Level, Log, Show, Target};
use crate::node::{config, Admits, Config, Keys, Node, Parts};
use crate::primitives::{desk, DataRoot};
use crate::sandbox::{self, Owner};
use crate::server::admin_socket::AdminSocket;
use crate::server::Server;
use crate::wire::Address;
use files::make_private;
use lock::Lock;
use std::fmt;
use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The log of a node without a terminal, below its state directory.
pub const LOG_FILE: &str = "node.log";

/// How a node is started.
pub struct Start {
    /// The configuration.
    pub keys: Keys,
    /// The configuration's file, for the commands of this machine to find the secret.
    pub config_file: Option<PathBuf>,
    /// What of its log is shown.
    pub show: Show,
    /// Where.
    pub out: Out,
    /// How an event is written.
    pub form: Form,
    /// Who may arrive.
    pub admits: Admits,
    /// The state directory is a backup that was put back: its agents wait for `ctl start`.
    pub restored: bool,
    /// This program's file (`/proc/self/exe` but in tests).
    pub self_exe: PathBuf,
    /// Is given the node before it serves anyone.
    pub before_serving: fn(&Arc<Node>),
}

/// Where a node's log goes.
pub enum Out {
    /// To this, as the events happen.
    Stream(Box<dyn Write + Send>),
    /// To standard error, which never holds up the node.
    Stderr,
    /// To the end of this file, which never does either and can be opened anew.
    File(PathBuf),
    /// The same, [`LOG_FILE`] in the state directory.
    OwnFile,
}

impl Start {
    /// The usual start: events on standard error.
    pub fn new(keys: Keys) -> Self {
        Start {
            keys,
            config_file: None,
            show: Show::Events,
            out: Out::Stream(Box::new(std::io::stderr())),
            form: Form::Plain,
            admits: Admits::Anyone,
            restored: false,
            self_exe: Settings::default().self_exe,
            before_serving: |_| {},
        }
    }
}

/// Why a node was not started.
#[derive(Debug)]
pub enum NotStarted {
    /// Another one runs on its state directory.
    Held(NotTaken),
    /// One sentence that says what could not be done, and to what.
    Failed(String),
}

impl fmt::Display for NotStarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotStarted::Held(by) => by.fmt(f),
            NotStarted::Failed(why) => f.write_str(why),
        }
    }
}

impl From<String> for NotStarted {
    fn from(why: String) -> Self {
        NotStarted::Failed(why)
    }
}

impl From<NotTaken> for NotStarted {
    fn from(why: NotTaken) -> Self {
        match why {
            NotTaken::Failed(why) => NotStarted::Failed(why),
            held => NotStarted::Held(held),
        }
    }
}

/// A node that listens.
pub struct Running {
    /// The node.
    pub node: Arc<Node>,
    /// Its server.
    pub server: Server,
    /// The operator's door, if it could be made.
    admin: Option<AdminSocket>,
    /// Where it keeps its state.
    pub state_dir: PathBuf,
    /// Where it listens.
    bound: SocketAddr,
    /// Held as long as the node runs.
    _lock: Lock,
}

/// Starts a node and its server.
///
/// # Errors
/// What could not be done, and to what; or who has the state directory.
pub fn start(start: Start) -> Result<Running, NotStarted> {
    let Start { mut keys, config_file, show, out, form, admits, restored, self_exe, before_serving } = start;
    let address = Address::new(&keys.listen_host, keys.listen_port).map_err(|why| why.to_string())?;
    // A name may be made of the port. Any free one is only known once it is bound, and bound it disturbs nobody.
    let early = if address.port == 0 { Some(bind(&address)?) } else { None };
    if keys.container_name.is_empty() {
        let port = early.as_ref().map_or(address.port, |(_, bound)| bound.port());
        keys.container_name = match &keys.federation {
            Some(tree) => tree.name.clone(),
            None => config::default_name(&Address { port, ..address.clone() }),
        };
    }
    let state_dir = match &keys.state_dir {
        Some(dir) => dir.clone(),
        None => state_home()?.join(&keys.container_name),
    };
    // Who asks for a second node on a state directory is told so, and not that its port is in use.
    let held = if state_dir.exists() { Some(open(&state_dir)?) } else { None };
    let (listener, bound) = match early {
        Some(early) => early,
        None => bind(&address)?,
    };
    let (state_dir, lock) = match held {
        Some(held) => held,
        None => open(&state_dir)?,
    };
    let made = secret::own_if_needed(&keys, &state_dir)?;
    let data_root = match &keys.data_root {
        Some(dir) => dir.clone(),
        None => {
            let dir = state_dir.join("data");
            make_private(&dir)?;
            dir
        }
    };
    let opened = DataRoot::open(&data_root);
    let data_root = opened.map_err(|error| format!("opening data_root {}: {error}", data_root.display()))?;
    let settings = Settings {
        python: keys.python.clone(),
        self_exe,
        parked_workers: keys.parked_workers,
        site_packages: keys.allow_site_packages,
        memory_bytes: keys.agent_memory_bytes,
        open_files: keys.agent_open_files,
        file_bytes: keys.agent_file_bytes,
        processes: keys.agent_processes,
        sandbox: keys.sandbox,
        user: agent_user(&keys, &state_dir)?,
        state_dir: Some(state_dir.clone()),
        inbox_length: keys.inbox_length,
        max_frame_bytes: keys.max_message_bytes + (1 << 20),
        ..Settings::default()
    };
    let config = Config::new(keys, made)?;
    let log = open_log(&config.keys.container_name, show, form, out, &state_dir)?;
    let parts = Parts {
        config,
        state_dir: state_dir.clone(),
        log,
        settings,
        make_host: desk::maker(data_root),
        admits,
        restored,
    };
    let node = Node::new(parts)?;
    before_serving(&node);
    let server = Server::start(Arc::clone(&node), listener)?;
    let admin = match AdminSocket::start(&node, &state_dir) {
        Ok(admin) => Some(admin),
        // The node is of use without it.
        Err(why) => {
            node.log.event(Level::Error, "admin_socket_failed", &[("error", &why)]);
            None
        }
    };
    let running = Running { node, server, admin, state_dir, bound, _lock: lock };
    running.tell_whereabouts(config_file.as_deref())?;
    let (address, pid) = (bound.to_string(), std::process::id().to_string());
    let dir = running.state_dir.to_string_lossy();
    let tls = running.node.config().tls.as_ref().map(|acceptor| acceptor.fingerprint().to_string());
    let mut fields = vec![("address", &*address), ("state_dir", &*dir), ("pid", &*pid)];
    fields.push(("version", env!("CARGO_PKG_VERSION")));
    fields.extend(tls.as_deref().map(|fingerprint| ("tls", fingerprint)));
    running.node.log.event(Level::Info, "listening", &fields);
    running.node.note_start(&bound.to_string());
    Ok(running)
}

/// As whom agents run.
fn agent_user(keys: &Keys, state_dir: &Path) -> Result<Option<Owner>, String> {
    let Some(user) = &keys.agent_user else { return Ok(None) };
    if !rustix::process::geteuid().is_root() {
        return Err(format!(
            "agent_user {user:?}: only a node that runs as root can run agents as another user"
        ));
    }
    let owner = Owner::find(user).map_err(|why| format!("agent_user: {why}"))?;
    let closed = |what: &str, path: &Path, key: &str| {
        match sandbox::closed_above(path) {
        None => Ok(()),
        Some(folder) => Err(format!(
            "agent_user: agents would not reach {what}, because {} is closed to other users; take another {key}",
            folder.display()
        )),
    }
    };
    closed("their own directories", state_dir, "state_dir")?;
    // Where there is none, the first agent says so.
    if let Ok(python) = python::find(keys.python.as_deref()).and_then(std::fs::canonicalize) {
        closed(&format!("the interpreter {}", python.display()), &python, "python")?;
    }
    Ok(Some(owner))
}

/// Listens. SO_REUSEADDR is set, so that connections of a node that has just ended do not matter.
fn bind(address: &Address) -> Result<(TcpListener, SocketAddr), String> {
    let doing = |error| format!("listening on {address}: {error}");
    let listener = TcpListener::bind((address.host.as_str(), address.port)).map_err(doing)?;
    let bound = listener.local_addr().map_err(doing)?;
    Ok((listener, bound))
}

/// Makes a state directory if need be and takes it for this process.
fn open(state_dir: &Path) -> Result<(PathBuf, Lock), NotStarted> {
    make_private(state_dir)?;
    let state_dir =
        state_dir.canonicalize().map_err(|error| format!("opening {}: {error}", state_dir.display()))?;
    let lock = lock::take(&state_dir)?;
    Ok((state_dir, lock))
}

fn open_log(name: &str, show: Show, form: Form, out: Out, state_dir: &Path) -> Result<Log, String> {
    let file = match out {
        Out::Stream(stream) => return Ok(Log::new(name, show, stream)),
        Out::Stderr => None,
        Out::File(file) => Some(file),
        Out::OwnFile => Some(state_dir.join(LOG_FILE)),
    };
    let target = match &file {
        Some(file) => {
            Target::file(file).map_err(|error| format!("opening the log {}: {error}", file.display()))?
        }
        None => Target::stderr(),
    };
    Log::spooled(name, show, form, target).map_err(|error| format!("starting a thread: {error}"))
}

impl Running {
    /// Takes no new connections, lets running hooks and open answers end for at most `grace`, ends
    /// every process.
    pub fn stop(&self, grace: Duration) {
        self.server.stop();
        if let Some(admin) = &self.admin {
            admin.stop();
        }
        let deadline = Instant::now() + grace;
        self.node.stop(grace);
        self.server.drain(deadline.max(Instant::now() + Duration::from_millis(200)));
        // A stale one misleads nobody for long: the lock says whether the node runs.
        let _ = fs::remove_file(self.state_dir.join(whereabouts::FILE));
        self.node.log.event(Level::Info, "stopped", &[]);
        self.node.note_stop();
    }

    /// Writes where the node is, and where its secret, for the commands of this machine and user.
    fn tell_whereabouts(&self, config_file: Option<&Path>) -> Result<(), String> {
        let keys = &self.node.config().keys;
        let absolute = |file: &Path| file.canonicalize().ok();
        let secret_file = match keys.admin_secret.is_none() && keys.admin_secret_file.is_none() {
            true => Some(self.state_dir.join(secret::FILE)),
            false => keys.only_secret_file().and_then(absolute),
        };
        let whereabouts = Whereabouts {
            name: self.node.name().to_owned(),
            host: self.bound.ip().to_string(),
            port: self.bound.port(),
            pid: std::process::id(),
            tls: self.node.config().tls.as_ref().map(|acceptor| acceptor.fingerprint().to_string()),
            config: config_file.filter(|_| secret_file.is_none()).and_then(absolute),
            secret_file,
        };
        whereabouts.write(&self.state_dir)
    }
}
