//! `server`: a node, in the foreground or without a terminal, until a signal ends it or its time is up.

use super::args::Given;
use super::fault::Fault;
use super::{detach, out, secrets};
use crate::boot::{self, NotStarted, Out, Running, Start};
use crate::log::{Form, Level};
use crate::node::config::OneOrMore;
use crate::node::{Keys, Node};
use crate::sys::{self, Signals};
use crate::wire::Address;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{sync_channel, SyncSender};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the last lines of the log get to be written when all else is done.
const LAST_LINES: Duration = Duration::from_secs(1);
/// The same when somebody does not want to wait.
const LAST_LINES_IN_HASTE: Duration = Duration::from_millis(100);

/// Runs a node until a signal ends it.
pub fn run(given: &Given) -> Result<(), Fault> {
    let mut asked = Asked::read(given)?;
    if asked.detached {
        detach::leave_session();
    } else if asked.detach {
        return detach::launch();
    }
    // Nobody is to read it there while the node runs.
    asked.secret = sys::take_variable(secrets::VARIABLE).filter(|text| !text.is_empty());
    let terminal = Terminal::now();
    // Reloading and reopening are asked for, also under `nohup`. A file that may not grow any more is an
    // error to whoever writes it, and not the node's end.
    let always = [libc::SIGHUP, libc::SIGUSR1, libc::SIGXFSZ];
    let signals = Signals::block(&[libc::SIGTERM, libc::SIGINT], &always)
        .map_err(|error| Fault::Local(format!("holding back signals: {error}")))?;
    let out = match &asked.log_file {
        Some(file) => Out::File(file.clone()),
        None if asked.detached => Out::OwnFile,
        None => Out::Stderr,
    };
    let start = Start {
        config_file: asked.config.clone(),
        out,
        form: asked.form,
        restored: asked.restored,
        before_serving: log_panics,
        ..Start::new(asked.keys()?)
    };
    crate::supervise::reap_below()
        .map_err(|error| Fault::Local(format!("becoming the reaper of what agents start: {error}")))?;
    let running = match boot::start(start) {
        Ok(running) => Arc::new(running),
        Err(NotStarted::Held(_)) if asked.if_not_running => return Ok(()),
        Err(why) => return Err(Fault::Local(why.to_string())),
    };
    let end = asked.span.as_ref().map(|(_, span)| Instant::now() + *span);
    tell(&asked, &running)?;
    let reload = reloader(asked.clone(), Arc::clone(&running))?;
    let why = serve(&signals, end, &terminal, &running, &reload);
    let why =
        why.unwrap_or_else(|| format!("--for {}", asked.span.map_or_else(String::new, |(text, _)| text)));
    running.node.log.event(Level::Info, "stopping", &[("why", &why)]);
    stop(&signals, running)
}

/// Does what signals ask for, until one asks for the end, which it then returns the name of; `None` when
/// time is up.
fn serve(
    signals: &Signals,
    end: Option<Instant>,
    terminal: &Terminal,
    running: &Running,
    reload: &SyncSender<()>,
) -> Option<String> {
    loop {
        match signals.wait_until(end)? {
            libc::SIGTERM => return Some("SIGTERM".into()),
            libc::SIGINT => return Some("SIGINT".into()),
            libc::SIGHUP if terminal.is_gone() => return Some("the end of its terminal".into()),
            libc::SIGHUP => {
                // One that waits already reads the file as it is by then.
                let _ = reload.try_send(());
            }
            libc::SIGUSR1 => reopen_log(running),
            _ => {}
        }
    }
}

/// Ends the node in good order; at a further signal at once.
fn stop(signals: &Signals, running: Arc<Running>) -> Result<(), Fault> {
    let ours = Arc::clone(&running);
    let stopped = std::thread::Builder::new().name("stop".into()).spawn(move || {
        ours.stop(ours.node.shutdown_grace());
        flush_log(&ours, LAST_LINES);
        // What still runs (threads in a connection's last seconds) ends with the process.
        std::process::exit(0);
    });
    if let Err(error) = stopped {
        return Err(Fault::Local(format!("starting a thread to stop in good order: {error}")));
    }
    loop {
        match signals.wait() {
            signal @ (libc::SIGTERM | libc::SIGINT) => {
                running.node.log.event(Level::Warn, "stopped_at_once", &[("why", "a second signal")]);
                flush_log(&running, LAST_LINES_IN_HASTE);
                std::process::exit(128 + signal);
            }
            libc::SIGUSR1 => reopen_log(&running),
            _ => {}
        }
    }
}

fn reopen_log(running: &Running) {
    if let Some(spool) = running.node.log.spool() {
        spool.reopen();
    }
}

fn flush_log(running: &Running, limit: Duration) {
    if let Some(spool) = running.node.log.spool() {
        spool.flush(limit);
    }
}

/// Tells whoever started the node that it is there.
fn tell(asked: &Asked, running: &Running) -> Result<(), Fault> {
    let (name, at) = (running.node.name(), running.server.address());
    if asked.detached {
        let log = asked.log_file.clone().unwrap_or_else(|| running.state_dir.join(boot::LOG_FILE));
        let pid = std::process::id();
        let note = format!("the node {name} listens on {at}, as process {pid}; its log is {}", log.display());
        // Whoever started it may look at once.
        flush_log(running, LAST_LINES);
        return detach::settle(&note).map_err(Fault::Local);
    }
    if std::io::stderr().is_terminal() {
        out::note(&format!("the node {name} listens on {at}; try: agentcontainer list {at}"));
    }
    Ok(())
}

/// Starts the thread that reloads the configuration when it is told to: reading files may take as long as
/// it likes, and a signal that ends the node is still heard.
fn reloader(asked: Asked, running: Arc<Running>) -> Result<SyncSender<()>, Fault> {
    let (tell, told) = sync_channel(1);
    let work = move || {
        while told.recv().is_ok() {
            let keys = asked.keys().map_err(|fault| fault.sentence());
            running.reload(keys, asked.config.as_deref());
        }
    };
    let started = std::thread::Builder::new().name("reload".into()).spawn(work);
    started.map_err(|error| Fault::Local(format!("starting a thread: {error}")))?;
    Ok(tell)
}

/// Sends what a panic says to the log: standard error may be nobody's.
fn log_panics(node: &Arc<Node>) {
    let node = Arc::downgrade(node);
    std::panic::set_hook(Box::new(move |panic| {
        let Some(node) = node.upgrade() else { return };
        let payload = panic.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("-");
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let thread = std::thread::current().name().unwrap_or("-").to_owned();
        node.log.event(Level::Error, "panic", &[("thread", &thread), ("at", &place), ("text", text)]);
    }));
}

/// What the command line asks for; paths are absolute, because a node without a terminal works in `/`.
#[derive(Clone)]
struct Asked {
    address: Option<Address>,
    config: Option<PathBuf>,
    name: Option<String>,
    data_root: Option<PathBuf>,
    state_dir: Option<PathBuf>,
    secret_file: Option<String>,
    /// The environment's.
    secret: Option<OsString>,
    log_file: Option<PathBuf>,
    form: Form,
    /// As it was written, and how long it is.
    span: Option<(String, Duration)>,
    if_not_running: bool,
    ruthless: bool,
    detach: bool,
    detached: bool,
    restored: bool,
}

impl Asked {
    fn read(given: &Given) -> Result<Asked, Fault> {
        let address = match given.has_word(0) {
            true => {
                Some(Address::parse_listening(given.word(0)?).map_err(|why| Fault::Usage(why.to_string()))?)
            }
            false => None,
        };
        let path = |name: &str| given.path(name).map(|path| absolute(&path)).transpose();
        let secret_file = match given.text("secret-file")? {
            Some(file) => {
                let file = absolute(Path::new(file))?.into_os_string();
                let utf8 = |file| Fault::Local(format!("--secret-file is not UTF-8: {file:?}"));
                Some(file.into_string().map_err(utf8)?)
            }
            None => None,
        };
        let form = match given.text("log-format")? {
            None | Some("plain") => Form::Plain,
            Some("json") => Form::Json,
            Some(other) => return Err(Fault::Usage(format!("--log-format is plain or json, not {other:?}"))),
        };
        let span =
            given.span("for")?.map(|span| (given.text("for").ok().flatten().unwrap_or("").to_owned(), span));
        Ok(Asked {
            address,
            config: path("config")?,
            name: given.text("name")?.map(str::to_owned),
            data_root: path("data-root")?,
            state_dir: path("state-dir")?,
            secret_file,
            secret: None,
            log_file: path("log-file")?,
            form,
            span,
            if_not_running: given.flag("if-not-running"),
            ruthless: given.flag("ruthless"),
            detach: given.flag("detach"),
            detached: given.flag("detached"),
            restored: given.flag("restored"),
        })
    }

    /// The configuration: the file's as it is now, outranked by the command line.
    fn keys(&self) -> Result<Keys, Fault> {
        let mut keys = match &self.config {
            Some(file) => Keys::from_file(file).map_err(Fault::Local)?,
            None => Keys::default(),
        };
        if let Some(address) = &self.address {
            keys.listen_host.clone_from(&address.host);
            keys.listen_port = address.port;
        }
        if let Some(name) = &self.name {
            // The name is that of a directory, too.
            crate::agent::manifest::check_id(name)
                .map_err(|why| Fault::Usage(format!("--name {name:?} {why}")))?;
            if keys.federation.as_ref().is_some_and(|tree| tree.find(name).is_none()) {
                return Err(Fault::Usage(format!(
                    "--name {name:?}: the configuration's federation has no such node"
                )));
            }
            keys.container_name.clone_from(name);
        }
        keys.ruthless |= self.ruthless;
        let or = |given: &Option<PathBuf>, before: Option<PathBuf>| given.clone().or(before);
        keys.data_root = or(&self.data_root, keys.data_root.take());
        keys.state_dir = or(&self.state_dir, keys.state_dir.take());
        if let Some(file) = &self.secret_file {
            keys.admin_secret_file = Some(OneOrMore::One(file.clone()));
            keys.admin_secret = None;
        } else if keys.admin_secret.is_none() && keys.admin_secret_file.is_none() {
            let not_utf8 = |_| Fault::Local(format!("{} is not UTF-8", secrets::VARIABLE));
            let secret = self.secret.clone().map(|text| text.into_string().map_err(not_utf8)).transpose()?;
            keys.admin_secret = secret.map(OneOrMore::One);
        }
        Ok(keys)
    }
}

fn absolute(path: &Path) -> Result<PathBuf, Fault> {
    std::path::absolute(path).map_err(|error| Fault::Local(format!("{}: {error}", path.display())))
}

/// The terminal that a node was started at. When that goes, SIGHUP does not ask for anything: the node goes
/// as well, unless `nohup` said otherwise.
struct Terminal {
    stdin: bool,
    stderr: bool,
}

impl Terminal {
    fn now() -> Self {
        let stays = sys::is_ignored(libc::SIGHUP);
        Terminal {
            stdin: !stays && std::io::stdin().is_terminal(),
            stderr: !stays && std::io::stderr().is_terminal(),
        }
    }

    fn is_gone(&self) -> bool {
        let (stdin, stderr) = (std::io::stdin(), std::io::stderr());
        let hung_up = |fd| {
            // Without asking for anything poll reports only hang-up and errors.
            let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::empty())];
            poll(&mut fds, Some(&Timespec::default())).is_ok() && !fds[0].revents().is_empty()
        };
        (self.stdin && hung_up(stdin.as_fd())) || (self.stderr && hung_up(stderr.as_fd()))
    }
}
