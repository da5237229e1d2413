//! Starting a node: its address, its name, its state directory, its secret.

use crate::agent::Settings;
use crate::log::{Level, Log, Show};
use crate::node::{config, Admits, Config, Keys, Node, Parts};
use crate::primitives::{desk, DataRoot};
use crate::server::Server;
use crate::wire::{hex, Address, Secret};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Write};
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The file in a state directory that says where its node listens.
const ADDRESS_FILE: &str = "node.json";
/// Locked by the node that runs on a state directory; holds its process's number.
const LOCK_FILE: &str = "lock";
/// The admin secret that a node made for itself, below the state directory.
const SECRET_FILE: &str = "meta/admin.secret";

/// How a node is started.
pub struct Start {
    /// The configuration.
    pub keys: Keys,
    /// The configuration's file, for the commands of this machine to find the secret.
    pub config_file: Option<PathBuf>,
    /// What of its log is shown.
    pub show: Show,
    /// Where.
    pub out: Box<dyn Write + Send>,
    /// Who may arrive.
    pub admits: Admits,
    /// This program's file (`/proc/self/exe` but in tests).
    pub self_exe: PathBuf,
}

impl Start {
    /// The usual start: events on standard error.
    pub fn new(keys: Keys) -> Self {
        Start {
            keys,
            config_file: None,
            show: Show::Events,
            out: Box::new(io::stderr()),
            admits: Admits::Anyone,
            self_exe: Settings::default().self_exe,
        }
    }
}

/// A node that listens.
pub struct Running {
    /// The node.
    pub node: Arc<Node>,
    /// Its server.
    pub server: Server,
    /// Where it keeps its state.
    pub state_dir: PathBuf,
    /// Held as long as the node runs.
    _lock: fs::File,
}

/// What a state directory says of its node: `{"name","host","port","pid","secret_file"?,"config"?}`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Whereabouts {
    /// The node's name.
    pub name: String,
    /// The address it listens on.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The process.
    pub pid: u32,
    /// The file with the admin's secret, if it stands in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<PathBuf>,
    /// The configuration file, if the secret stands there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<PathBuf>,
}

/// Starts a node and its server.
///
/// # Errors
/// One sentence that says what could not be done, and to what.
pub fn start(start: Start) -> Result<Running, String> {
    let Start { mut keys, config_file, show, out, admits, self_exe } = start;
    let address = Address::new(&keys.listen_host, keys.listen_port).map_err(|why| why.to_string())?;
    let listener = TcpListener::bind((address.host.as_str(), address.port))
        .map_err(|error| format!("listening on {address}: {error}"))?;
    let bound = listener.local_addr().map_err(|error| format!("listening on {address}: {error}"))?;
    if keys.container_name.is_empty() {
        keys.container_name = match &keys.federation {
            Some(tree) => tree.name.clone(),
            None => config::default_name(&Address { host: address.host.clone(), port: bound.port() }),
        };
    }
    let state_dir = match &keys.state_dir {
        Some(dir) => dir.clone(),
        None => state_home()?.join(&keys.container_name),
    };
    make_private(&state_dir)?;
    let state_dir =
        state_dir.canonicalize().map_err(|error| format!("opening {}: {error}", state_dir.display()))?;
    let lock = lock_state(&state_dir)?;
    let made = match keys.admin_secret.is_none() && keys.admin_secret_file.is_none() {
        true => Some(own_secret(&state_dir)?),
        false => None,
    };
    let secret_file = match &made {
        Some(_) => Some(state_dir.join(SECRET_FILE)),
        None => keys.only_secret_file().and_then(|file| file.canonicalize().ok()),
    };
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
        inbox_length: keys.inbox_length,
        max_frame_bytes: keys.max_message_bytes + (1 << 20),
        ..Settings::default()
    };
    let config = Config::new(keys, made)?;
    let log = Log::new(&config.keys.container_name, show, out);
    let parts = Parts {
        config,
        state_dir: state_dir.clone(),
        log,
        settings,
        make_host: desk::maker(data_root),
        admits,
    };
    let node = Node::new(parts)?;
    let server = Server::start(Arc::clone(&node), listener)?;
    let whereabouts = Whereabouts {
        name: node.name().to_owned(),
        host: bound.ip().to_string(),
        port: bound.port(),
        pid: std::process::id(),
        config: config_file.filter(|_| secret_file.is_none()).and_then(|file| file.canonicalize().ok()),
        secret_file,
    };
    whereabouts.write(&state_dir)?;
    node.log.event(
        Level::Info,
        "listening",
        &[("address", &bound.to_string()), ("state_dir", &state_dir.to_string_lossy())],
    );
    Ok(Running { node, server, state_dir, _lock: lock })
}

impl Running {
    /// Takes no new connections, lets running hooks and open answers end for at most `grace`, ends
    /// every process.
    pub fn stop(&self, grace: Duration) {
        self.server.stop();
        let deadline = Instant::now() + grace;
        self.node.stop(grace);
        self.server.drain(deadline.max(Instant::now() + Duration::from_millis(200)));
        let _ = fs::remove_file(self.state_dir.join(ADDRESS_FILE)); // a stale one only misleads for a moment
        self.node.log.event(Level::Info, "stopped", &[]);
    }
}

impl Whereabouts {
    /// Reads what `state_dir` says, if it says anything.
    pub fn read(state_dir: &Path) -> Option<Whereabouts> {
        serde_json::from_slice(&fs::read(state_dir.join(ADDRESS_FILE)).ok()?).ok()
    }

    /// The admin's secret of that node.
    ///
    /// # Errors
    /// The file that can't be read, or holds none.
    pub fn secret(&self) -> Result<Secret, String> {
        if let Some(file) = &self.secret_file {
            return Secret::from_file(file).map_err(|why| why.to_string());
        }
        let file = self.config.as_ref().ok_or("the node keeps its admin secret elsewhere")?;
        secret_of_config(file)
    }

    fn write(&self, state_dir: &Path) -> Result<(), String> {
        let file = state_dir.join(ADDRESS_FILE);
        let text = serde_json::to_string(self).map_err(|error| error.to_string())?;
        write_new(&file, text.as_bytes()).map_err(|error| format!("writing {}: {error}", file.display()))
    }
}

/// The first admin secret that a configuration file names.
///
/// # Errors
/// What is wrong with the file, or that it names none.
pub fn secret_of_config(file: &Path) -> Result<Secret, String> {
    // Who asks for the secret needs neither Python nor prompt.
    let keys = Keys { allow_weak_secret: true, python: None, prompt_file: None, ..Keys::from_file(file)? };
    let config = Config::new(keys, None)?;
    config.admin_secrets.into_iter().next().ok_or_else(|| format!("{} names no admin secret", file.display()))
}

/// Where nodes keep their state unless told otherwise: `$XDG_STATE_HOME/agentcontainer`.
///
/// # Errors
/// Neither the environment nor the user database names a home.
pub fn state_home() -> Result<PathBuf, String> {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(dir) = set("XDG_STATE_HOME") {
        return Ok(dir.join("agentcontainer"));
    }
    let home = set("HOME").or_else(home_of_user);
    let home = home.ok_or("no home directory is known: give --state-dir, or set HOME or XDG_STATE_HOME")?;
    Ok(home.join(".local/state/agentcontainer"))
}

/// The user's home from /etc/passwd: cron and `env -i` set no HOME.
fn home_of_user() -> Option<PathBuf> {
    let uid = rustix::process::getuid().as_raw().to_string();
    let users = fs::read_to_string("/etc/passwd").ok()?;
    users.lines().map(|line| line.split(':').collect::<Vec<_>>()).find_map(|fields| {
        (fields.get(2) == Some(&uid.as_str())).then(|| fields.get(5).map(PathBuf::from)).flatten()
    })
}

/// Makes a directory for this user alone. One that exists and is open to others is closed to them if
/// it is empty or a node's already; else it is somebody's, and none of ours to change.
fn make_private(dir: &Path) -> Result<(), String> {
    let doing = |error: io::Error| format!("making {}: {error}", dir.display());
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(doing)?;
    let mode = fs::metadata(dir).map_err(doing)?.permissions().mode();
    if mode & 0o077 != 0 {
        let empty = fs::read_dir(dir).map_err(doing)?.next().is_none();
        if !empty && !dir.join("meta").is_dir() && !dir.join(ADDRESS_FILE).is_file() {
            return Err(format!(
                "{} is open to other users (mode {:o}) and holds other things: take another state directory, or chmod it to 700",
                dir.display(),
                mode & 0o7777
            ));
        }
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).map_err(doing)?;
    }
    Ok(())
}

/// Takes a state directory for this process. The kernel lets go of the lock of one that was killed.
fn lock_state(state_dir: &Path) -> Result<fs::File, String> {
    let path = state_dir.join(LOCK_FILE);
    let doing = |error: io::Error| format!("locking {}: {error}", path.display());
    let mut options = fs::OpenOptions::new();
    let mut file =
        options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(doing)?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let holder = fs::read_to_string(&path).unwrap_or_default();
            return Err(format!(
                "the node of process {} runs on {} already",
                holder.trim(),
                state_dir.display()
            ));
        }
        Err(error) => return Err(doing(error.into())),
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(doing)?;
    Ok(file)
}

/// The secret in the state directory, made at the first start.
fn own_secret(state_dir: &Path) -> Result<Secret, String> {
    let file = state_dir.join(SECRET_FILE);
    if file.exists() {
        return Secret::from_file(&file).map_err(|why| why.to_string());
    }
    make_private(&state_dir.join("meta"))?;
    let mut bytes = [0u8; 32];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| format!("making an admin secret: {error}"))?;
    let text = hex::encode(&bytes);
    write_new(&file, format!("{text}\n").as_bytes())
        .map_err(|error| format!("writing {}: {error}", file.display()))?;
    Secret::new(&text).map_err(|why| why.to_string())
}

/// Writes a file whole, for this user alone, or not at all.
fn write_new(file: &Path, content: &[u8]) -> io::Result<()> {
    let beside = file.with_extension(format!("new.{}", std::process::id()));
    let mut options = fs::OpenOptions::new();
    let written =
        options.write(true).create(true).truncate(true).mode(0o600).open(&beside).and_then(|mut out| {
            out.write_all(content)?;
            out.sync_all()
        });
    written.and_then(|()| fs::rename(&beside, file)).inspect_err(|_| {
        let _ = fs::remove_file(&beside);
    })
}
