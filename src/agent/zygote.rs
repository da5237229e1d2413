//! The zygote: one warmed interpreter from which every agent's process is forked.

use super::{launcher, python, Settings};
use crate::sync::lock;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::net::{
    recvmsg, sendmsg, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::process::Pid;
use serde::Deserialize;
use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a cold interpreter may take to become the zygote (old machines, cold disks).
const START_LIMIT: Duration = Duration::from_secs(30);
/// How long a forked worker may take to say hello.
const HELLO_LIMIT: Duration = Duration::from_secs(15);

/// How long the zygote may take to end what is below it.
const END_LIMIT: Duration = Duration::from_secs(6);

/// How a process ended, from the zygote's report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It exited with this status.
    Exited(i32),
    /// This signal ended it.
    Signalled(i32),
    /// Nobody can tell (the zygote went first).
    Unknown,
}

/// A process's end, once it is known.
#[derive(Debug, Default)]
pub struct Exit {
    ending: Mutex<Option<Ending>>,
    told: Condvar,
}

impl Exit {
    fn tell(&self, ending: Ending) {
        lock(&self.ending).get_or_insert(ending);
        self.told.notify_all();
    }

    /// Waits at most `limit` for the report.
    pub fn wait(&self, limit: Duration) -> Ending {
        let (ending, _) = self
            .told
            .wait_timeout_while(lock(&self.ending), limit, |ending| ending.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        ending.unwrap_or(Ending::Unknown)
    }
}

/// A forked, warmed process without an agent.
pub struct Parked {
    /// Its number, as the node sees it.
    pub pid: Pid,
    /// Pins the process; `None` on kernels before 5.3.
    pub pidfd: Option<OwnedFd>,
    /// The node's end of the bridge.
    pub bridge: UnixStream,
    /// What it writes to its standard output and error.
    pub output: OwnedFd,
    /// Its end, once it comes.
    pub exit: Arc<Exit>,
}

impl Parked {
    /// Whether the process is still there.
    pub fn is_alive(&self) -> bool {
        let mut fds = [PollFd::new(&self.bridge, PollFlags::empty())];
        // Without asking for anything poll reports only hang-up and errors.
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok() && fds[0].revents().is_empty()
    }
}

/// Starts the zygote when it is needed and forks workers from it.
pub struct Zygote {
    settings: Arc<Settings>,
    running: Mutex<Option<Arc<Running>>>,
    next_slot: AtomicU64,
}

struct Running {
    control: OwnedFd,
    slots: Mutex<HashMap<u64, Arc<Exit>>>,
    state: Mutex<State>,
    changed: Condvar,
}

enum State {
    Starting,
    Ready(String),
    Dead(String),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Report {
    Ready { ready: String },
    Exit { exit: u64, status: i32 },
}

impl Zygote {
    /// A zygote that is not started yet.
    pub fn new(settings: Arc<Settings>) -> Self {
        Zygote { settings, running: Mutex::new(None), next_slot: AtomicU64::new(1) }
    }

    /// Starts the interpreter if none runs, and waits until it is ready. Returns Python's version.
    ///
    /// # Errors
    /// No interpreter, or one that did not become the zygote: the text says what it printed.
    pub fn start(&self) -> io::Result<String> {
        self.ensure().map(|(_, version)| version)
    }

    /// Python's version if the zygote runs, without starting it.
    pub fn version(&self) -> Option<String> {
        let running = lock(&self.running).clone()?;
        let state = lock(&running.state);
        match &*state {
            State::Ready(version) => Some(version.clone()),
            _ => None,
        }
    }

    /// Ends the zygote and everything below it, and waits until it is gone.
    pub fn end(&self) {
        let Some(running) = lock(&self.running).take() else { return };
        let _ = rustix::net::shutdown(&running.control, rustix::net::Shutdown::Both);
        let state = lock(&running.state);
        // Its thread tells when it has gone; a bound, so that a stuck one cannot hold the node's end.
        let _ = running
            .changed
            .wait_timeout_while(state, END_LIMIT * 2, |state| !matches!(state, State::Dead(_)));
    }

    /// Forks a worker and waits for its hello.
    ///
    /// # Errors
    /// What kept the zygote from starting, or the worker from coming up.
    pub fn spawn(&self) -> io::Result<Parked> {
        let (running, _) = self.ensure()?;
        let slot = self.next_slot.fetch_add(1, Ordering::Relaxed);
        let (bridge, far_bridge) = UnixStream::pair()?;
        rustix::net::sockopt::set_socket_passcred(&bridge, true)?;
        let (output, far_output) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let exit = Arc::new(Exit::default());
        lock(&running.slots).insert(slot, Arc::clone(&exit));
        let order = format!(r#"{{"spawn":{slot},"limits":{}}}"#, self.settings.limits_json());
        let sent = send_with_fds(
            running.control.as_fd(),
            order.as_bytes(),
            &[far_bridge.as_fd(), far_output.as_fd()],
        );
        drop((far_bridge, far_output));
        let hello = sent.and_then(|()| read_hello(&bridge, slot));
        match hello {
            Ok(pid) => {
                let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok();
                rustix::fs::fcntl_setfl(&output, rustix::fs::OFlags::NONBLOCK)?;
                Ok(Parked { pid, pidfd, bridge, output, exit })
            }
            Err(error) => {
                lock(&running.slots).remove(&slot);
                let mut said = String::new();
                if rustix::fs::fcntl_setfl(&output, rustix::fs::OFlags::NONBLOCK).is_ok() {
                    let mut text = Vec::new();
                    // Nonblocking: what is there, then an error that does not matter.
                    let _ = std::fs::File::from(output).take(4096).read_to_end(&mut text);
                    said = String::from_utf8_lossy(&text).trim().replace('\n', " | ");
                }
                Err(io::Error::new(error.kind(), format!("starting an agent's process: {error} {said}")))
            }
        }
    }

    fn ensure(&self) -> io::Result<(Arc<Running>, String)> {
        let running = {
            let mut current = lock(&self.running);
            let usable = current.as_ref().filter(|running| !matches!(*lock(&running.state), State::Dead(_)));
            match usable {
                Some(running) => Arc::clone(running),
                None => Arc::clone(current.insert(self.launch()?)),
            }
        };
        let state = lock(&running.state);
        let (state, _) = running
            .changed
            .wait_timeout_while(state, START_LIMIT, |state| matches!(state, State::Starting))
            .unwrap_or_else(PoisonError::into_inner);
        let version = match &*state {
            State::Ready(version) => python::check_version(version).map(|()| version.clone())?,
            State::Dead(why) => {
                return Err(io::Error::other(format!("starting Python: {}", python::not_started(why))))
            }
            State::Starting => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "starting Python took too long"))
            }
        };
        drop(state);
        Ok((running, version))
    }

    /// Starts the launcher from a thread that lives as long as the zygote: the death signal follows
    /// the thread that spawned, not the process.
    fn launch(&self) -> io::Result<Arc<Running>> {
        let python = python::find(self.settings.python.as_deref())?;
        let (control, far_control) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let (said, far_said) = std::io::pipe()?;
        let running = Arc::new(Running {
            control,
            slots: Mutex::new(HashMap::new()),
            state: Mutex::new(State::Starting),
            changed: Condvar::new(),
        });
        let mut command = Command::new(&self.settings.self_exe);
        command.arg(launcher::COMMAND).arg(&python).arg("-I");
        if !self.settings.site_packages {
            command.arg("-S");
        }
        command.args(["-X", "utf8"]).env_clear().envs(self.settings.environment());
        command.current_dir("/").stdin(far_control).stdout(far_said.try_clone()?).stderr(far_said);
        let ours = Arc::clone(&running);
        std::thread::Builder::new().name("zygote".into()).spawn(move || {
            let spawned = command.spawn();
            drop(command); // it holds the far ends of the socket and the pipe
            match spawned {
                Ok(child) => ours.attend(child, said),
                Err(error) => ours.die(format!("{}: {error}", python.display())),
            }
        })?;
        Ok(running)
    }
}

impl Running {
    /// Reads the zygote's reports until it ends, then says so to everyone who waits for one.
    fn attend(&self, mut child: Child, said: io::PipeReader) {
        let words = std::thread::Builder::new().name("zygote-output".into()).spawn(move || {
            let mut text = Vec::new();
            let mut said = said;
            // The zygote itself prints only when something is wrong; the start of it is enough.
            let _ = Read::by_ref(&mut said).take(16 * 1024).read_to_end(&mut text);
            let _ = io::copy(&mut said, &mut io::sink());
            String::from_utf8_lossy(&text).into_owned()
        });
        let mut buffer = vec![0u8; 64 * 1024];
        loop {
            match rustix::net::recv(&self.control, &mut buffer[..], RecvFlags::empty()) {
                Err(rustix::io::Errno::INTR) => continue,
                Ok((length, _)) if length > 0 => self.hear(&buffer[..length]),
                _ => break,
            }
        }
        let status = end_of(&mut child);
        let words = words.ok().and_then(|words| words.join().ok()).unwrap_or_default();
        let ended = status.map(|status| status.to_string()).unwrap_or_default();
        self.die(format!("{ended} {}", words.trim().replace('\n', " | ")).trim().to_owned());
    }

    fn hear(&self, report: &[u8]) {
        match serde_json::from_slice(report) {
            Ok(Report::Ready { ready }) => {
                *lock(&self.state) = State::Ready(ready);
                self.changed.notify_all();
            }
            Ok(Report::Exit { exit, status }) => {
                if let Some(slot) = lock(&self.slots).remove(&exit) {
                    slot.tell(ending(status));
                }
            }
            Err(_) => {} // the zygote is ours; a line of a newer one is passed over
        }
    }

    fn die(&self, why: String) {
        *lock(&self.state) = State::Dead(why);
        self.changed.notify_all();
        for (_, slot) in lock(&self.slots).drain() {
            slot.tell(Ending::Unknown);
        }
    }
}

/// Waits for the zygote, which ends what is left below it; one that takes too long is killed.
fn end_of(child: &mut Child) -> io::Result<std::process::ExitStatus> {
    let deadline = Instant::now() + END_LIMIT;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill()?;
    child.wait()
}

/// A wait status as waitpid gives it.
fn ending(status: i32) -> Ending {
    if status < 0 {
        Ending::Unknown
    } else if status & 0x7f == 0 {
        Ending::Exited((status >> 8) & 0xff)
    } else {
        Ending::Signalled(status & 0x7f)
    }
}

fn send_with_fds(
    socket: std::os::fd::BorrowedFd<'_>,
    data: &[u8],
    fds: &[std::os::fd::BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("no room for the descriptors"));
    }
    loop {
        match sendmsg(socket, &[IoSlice::new(data)], &mut ancillary, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads the worker's first line and takes its number from the kernel, not from what it says.
fn read_hello(bridge: &UnixStream, slot: u64) -> io::Result<Pid> {
    let deadline = Instant::now() + HELLO_LIMIT;
    let mut line = Vec::new();
    let mut pid = None;
    while !line.ends_with(b"\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos() as _ };
        let mut fds = [PollFd::new(bridge, PollFlags::IN)];
        match poll(&mut fds, Some(&limit)) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(0) => return Err(io::Error::new(io::ErrorKind::TimedOut, "it did not come up in time")),
            Ok(_) => {}
        }
        let mut data = [0u8; 256];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let got =
            recvmsg(bridge, &mut [IoSliceMut::new(&mut data)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        if got.bytes == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ended before it came up"));
        }
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmCredentials(credentials) = message {
                pid = Some(credentials.pid);
            }
        }
        line.extend_from_slice(&data[..got.bytes]);
        if line.len() > 1024 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its hello is too long"));
        }
    }
    if line != format!("{{\"hello\":{slot}}}\n").into_bytes() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "its hello is not one"));
    }
    rustix::net::sockopt::set_socket_passcred(bridge, false)?;
    pid.ok_or_else(|| io::Error::other("the kernel did not say who it is"))
}
