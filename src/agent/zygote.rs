//! The zygote: one warmed interpreter from which every agent's process is forked.
//!
//! One that has stopped answering (somebody's SIGSTOP, a machine that ran out of something) is found out by
//! whoever waits for a fork, and another takes its place. Its agents end with it and come back from their
//! memory, as when it dies by itself.

use super::{launcher, python, Settings};
use crate::sandbox::{Reported, Sandbox};
use crate::supervise::tree;
use crate::sync::lock;
use crate::sys::{is_starved, STARVED};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::net::{
    recvmsg, sendmsg, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::process::{Pid, Signal};
use serde::Deserialize;
use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a cold interpreter may take to become the zygote (old machines, cold disks).
const START_LIMIT: Duration = Duration::from_secs(30);
/// How long a forked worker may take to say hello.
const HELLO_LIMIT: Duration = Duration::from_secs(15);

/// How long one that forked nothing may take to say that it is there; a sweep after an agent takes half a second.
const PONG_LIMIT: Duration = Duration::from_secs(5);
/// How long it may be seen stopped, and how often that is looked at.
const STOPPED_LIMIT: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(250);
/// How long an order may wait for room in the zygote's socket.
const ORDER_LIMIT: Duration = Duration::from_secs(5);

/// How long what a zygote leaves is hunted down.
const STRAYS_LIMIT: Duration = Duration::from_secs(5);

/// How long a killed one's end is waited for before another is started.
const REPLACED_LIMIT: Duration = Duration::from_secs(2);

/// How long the zygote may take to end what is below it.
const END_LIMIT: Duration = Duration::from_secs(6);

/// What happened to the zygote without anybody's wish, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It ended; another is started when it is needed.
    Ended(String),
    /// It did not answer and was ended; another takes its place.
    Replaced(String),
}

/// Hears of it.
pub type Notice = Arc<dyn Fn(Fate) + Send + Sync>;

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
    notice: Notice,
    sandbox: Arc<Sandbox>,
    running: Mutex<Option<Arc<Running>>>,
    /// It was ended for good: nobody starts it again.
    over: AtomicBool,
    next_slot: AtomicU64,
}

struct Running {
    sandbox: Arc<Sandbox>,
    control: OwnedFd,
    /// The interpreter, once it is started; after its end it is only a number that is not used again.
    child: Mutex<Option<Child>>,
    begun: Instant,
    /// Since when it was seen stopped each time that it was looked at.
    seen_stopped: Mutex<Option<Instant>>,
    /// Whether it did not answer when it should have.
    deaf: AtomicBool,
    /// Whether it is meant to end.
    dismissed: AtomicBool,
    pongs: AtomicU64,
    notice: Notice,
    slots: Mutex<HashMap<u64, Arc<Exit>>>,
    state: Mutex<State>,
    changed: Condvar,
}

enum State {
    Starting,
    Ready(String),
    /// Why, and of which kind that is.
    Dead(String, io::ErrorKind),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Report {
    Ready {
        ready: String,
        #[serde(flatten)]
        reported: Reported,
    },
    Pong {
        pong: u64,
    },
    Exit {
        exit: u64,
        status: i32,
    },
}

impl Zygote {
    /// A zygote that is not started yet.
    pub fn new(settings: Arc<Settings>, sandbox: Arc<Sandbox>, notice: Notice) -> Self {
        Zygote {
            settings,
            sandbox,
            notice,
            running: Mutex::new(None),
            over: AtomicBool::new(false),
            next_slot: AtomicU64::new(1),
        }
    }

    /// Starts the interpreter if none runs, and waits until it is ready. Returns Python's version.
    ///
    /// # Errors
    /// No interpreter, or one that did not become the zygote: the text says what it printed.
    pub fn start(&self) -> io::Result<String> {
        self.ensure(Instant::now() + START_LIMIT).map(|(_, version)| version)
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

    /// Ends the zygote and everything below it, for good, and waits until it is gone.
    pub fn end(&self) {
        let running = {
            let mut running = lock(&self.running);
            self.over.store(true, Ordering::Release);
            running.take()
        };
        let Some(running) = running else { return };
        running.dismissed.store(true, Ordering::Release);
        let _ = rustix::net::shutdown(&running.control, rustix::net::Shutdown::Both);
        let state = lock(&running.state);
        // Its thread tells when it has gone; a bound, so that a stuck one cannot hold the node's end.
        let _ = running
            .changed
            .wait_timeout_while(state, END_LIMIT * 2, |state| !matches!(state, State::Dead(..)));
    }

    /// Forks a worker and waits for its hello, at most until the deadline. A zygote that does not answer
    /// is replaced, and the fork tried once more.
    ///
    /// # Errors
    /// What kept the zygote from starting, or the worker from coming up.
    pub fn spawn(&self, deadline: Instant) -> io::Result<Parked> {
        let (running, _) = self.ensure(deadline)?;
        match self.fork(&running, deadline) {
            Err(error) if running.is_deaf() => {
                self.replace(&running, &error.to_string());
                let (running, _) = self.ensure(deadline)?;
                self.fork(&running, deadline)
            }
            forked => forked,
        }
    }

    fn fork(&self, running: &Arc<Running>, deadline: Instant) -> io::Result<Parked> {
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
        let hello = sent.and_then(|()| running.await_hello(&bridge, slot, deadline));
        let pinned = hello.and_then(|pid| {
            rustix::fs::fcntl_setfl(&output, rustix::fs::OFlags::NONBLOCK)?;
            match rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
                // The kernel has them, and no descriptor is left for one.
                Err(error) if is_starved(&error.into()) => Err(error.into()),
                pidfd => Ok((pid, pidfd.ok())),
            }
        });
        match pinned {
            Ok((pid, pidfd)) => Ok(Parked { pid, pidfd, bridge, output, exit }),
            Err(error) => {
                lock(&running.slots).remove(&slot);
                let mut said = String::new();
                if rustix::fs::fcntl_setfl(&output, rustix::fs::OFlags::NONBLOCK).is_ok() {
                    let mut text = Vec::new();
                    // Nonblocking: what is there, then an error that does not matter.
                    let _ = std::fs::File::from(output).take(4096).read_to_end(&mut text);
                    said = String::from_utf8_lossy(&text).trim().replace('\n', " | ");
                }
                let text = format!("starting an agent's process: {error} {said}");
                Err(io::Error::new(kind_of(&error), text.trim_end()))
            }
        }
    }

    /// Ends a zygote that does not answer; the next one is started by whoever needs it.
    fn replace(&self, running: &Arc<Running>, why: &str) {
        {
            let mut current = lock(&self.running);
            if current.as_ref().is_none_or(|current| !Arc::ptr_eq(current, running)) {
                return; // somebody was quicker
            }
            *current = None;
        }
        running.dismissed.store(true, Ordering::Release);
        running.kill();
        (self.notice)(Fate::Replaced(why.to_owned()));
        // Until its agents' ends are known, so that no hook is given to one of them.
        let state = lock(&running.state);
        let _ = running
            .changed
            .wait_timeout_while(state, REPLACED_LIMIT, |state| !matches!(state, State::Dead(..)));
    }

    /// The running zygote, ready to fork, and Python's version.
    fn ensure(&self, deadline: Instant) -> io::Result<(Arc<Running>, String)> {
        let running = {
            let mut current = lock(&self.running);
            let usable = current.as_ref().filter(|running| !matches!(*lock(&running.state), State::Dead(..)));
            match usable {
                Some(running) => Arc::clone(running),
                None if self.over.load(Ordering::Acquire) => {
                    return Err(io::Error::new(
                        io::ErrorKind::BrokenPipe,
                        "agents' processes have been ended",
                    ));
                }
                None => Arc::clone(current.insert(self.launch()?)),
            }
        };
        let late = || io::Error::new(io::ErrorKind::TimedOut, "starting Python took too long");
        let mut state = lock(&running.state);
        while let State::Starting = *state {
            let now = Instant::now();
            let begun = running.begun.elapsed();
            if begun > START_LIMIT || running.was_seen_stopped() {
                drop(state);
                self.replace(&running, &format!("not ready after {:.0} s", begun.as_secs_f64()));
                return Err(late());
            }
            if now >= deadline {
                return Err(late());
            }
            let look = LOOK.min(deadline - now);
            state = running.changed.wait_timeout(state, look).unwrap_or_else(PoisonError::into_inner).0;
        }
        let version = match &*state {
            State::Ready(version) => python::check_version(version).map(|()| version.clone())?,
            State::Dead(why, kind) => {
                return Err(io::Error::new(*kind, format!("starting Python: {}", python::not_started(why))))
            }
            State::Starting => return Err(late()),
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
        let limit = rustix::net::sockopt::Timeout::Send;
        rustix::net::sockopt::set_socket_timeout(&control, limit, Some(ORDER_LIMIT))?;
        let (said, far_said) = std::io::pipe()?;
        let running = Arc::new(Running {
            sandbox: Arc::clone(&self.sandbox),
            control,
            child: Mutex::new(None),
            begun: Instant::now(),
            seen_stopped: Mutex::new(None),
            deaf: AtomicBool::new(false),
            dismissed: AtomicBool::new(false),
            pongs: AtomicU64::new(0),
            notice: Arc::clone(&self.notice),
            slots: Mutex::new(HashMap::new()),
            state: Mutex::new(State::Starting),
            changed: Condvar::new(),
        });
        let mut command = Command::new(&self.settings.self_exe);
        command.arg(launcher::COMMAND).arg(self.sandbox.launcher_plan()).arg(&python).arg("-I");
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
                Ok(child) => {
                    *lock(&ours.child) = Some(child);
                    ours.attend(said);
                }
                Err(error) => ours.die(format!("{}: {error}", python.display()), kind_of(&error)),
            }
        })?;
        Ok(running)
    }
}

impl Running {
    /// Reads the zygote's reports until it ends, then says so to everyone who waits for one.
    fn attend(&self, said: io::PipeReader) {
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
        let status = self.end_of();
        let words = words.ok().and_then(|words| words.join().ok()).unwrap_or_default();
        let ended = status.map(|status| status.to_string()).unwrap_or_default();
        let why = format!("{ended} {}", words.trim().replace('\n', " | ")).trim().to_owned();
        if !self.dismissed.load(Ordering::Acquire) {
            (self.notice)(Fate::Ended(why.clone()));
        }
        self.die(why, io::ErrorKind::Other);
        // Its workers end with it, and come to the node, which reaps what is below it.
        tree::end_strays(STRAYS_LIMIT);
    }

    /// Waits for the interpreter, which ends what is left below it; one that takes too long is killed.
    fn end_of(&self) -> io::Result<std::process::ExitStatus> {
        let deadline = Instant::now() + END_LIMIT;
        while Instant::now() < deadline && !self.is_stopped() {
            if let Some(child) = lock(&self.child).as_mut() {
                if let Some(status) = child.try_wait()? {
                    return Ok(status);
                }
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.kill();
        match lock(&self.child).as_mut() {
            Some(child) => child.wait(), // killed: it does not take long
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Ends the interpreter and what is below it.
    fn kill(&self) {
        if let Some(child) = lock(&self.child).as_mut() {
            let below = tree::descendants(Pid::from_child(child));
            let _ = child.kill(); // already gone is as good
            tree::signal_all(&below, Signal::KILL);
        }
        let _ = rustix::net::shutdown(&self.control, rustix::net::Shutdown::Both);
    }

    fn is_stopped(&self) -> bool {
        let pid = lock(&self.child).as_ref().map(Child::id);
        pid.is_some_and(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
        })
    }

    /// Looks whether it is stopped; true if it has been so, at every look, for too long.
    fn was_seen_stopped(&self) -> bool {
        let stopped = self.is_stopped();
        let mut since = lock(&self.seen_stopped);
        if !stopped {
            *since = None;
            return false;
        }
        since.get_or_insert_with(Instant::now).elapsed() >= STOPPED_LIMIT
    }

    /// Whether it failed to answer.
    fn is_deaf(&self) -> bool {
        self.deaf.load(Ordering::Acquire)
    }

    /// Waits for the worker of `slot`. If it does not come, the zygote is asked whether it is there: it
    /// takes its orders in turn, so that its answer says that the worker alone is late.
    fn await_hello(&self, bridge: &UnixStream, slot: u64, deadline: Instant) -> io::Result<Pid> {
        let limit = Instant::now() + HELLO_LIMIT;
        let hello = read_hello(bridge, slot, deadline.min(limit), || self.was_seen_stopped());
        let late = hello.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut);
        if late && (self.was_seen_stopped() || (Instant::now() >= limit && !self.answers())) {
            self.deaf.store(true, Ordering::Release);
        }
        hello
    }

    fn answers(&self) -> bool {
        let before = self.pongs.load(Ordering::Acquire);
        if send_with_fds(self.control.as_fd(), format!(r#"{{"ping":{before}}}"#).as_bytes(), &[]).is_err() {
            return false;
        }
        let deadline = Instant::now() + PONG_LIMIT;
        let mut state = lock(&self.state);
        loop {
            // Dead is known to be so by whoever asks next.
            if self.pongs.load(Ordering::Acquire) > before || matches!(*state, State::Dead(..)) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn hear(&self, report: &[u8]) {
        match serde_json::from_slice(report) {
            Ok(Report::Ready { ready, reported }) => {
                self.sandbox.ready(reported);
                *lock(&self.state) = State::Ready(ready);
                self.changed.notify_all();
            }
            Ok(Report::Pong { pong }) => {
                let _state = lock(&self.state); // whoever waits for it looks at the count under this lock
                self.pongs.fetch_max(pong + 1, Ordering::AcqRel);
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

    fn die(&self, why: String, kind: io::ErrorKind) {
        *lock(&self.state) = State::Dead(why, kind);
        self.changed.notify_all();
        for (_, slot) in lock(&self.slots).drain() {
            slot.tell(Ending::Unknown);
        }
    }
}

fn kind_of(error: &io::Error) -> io::ErrorKind {
    match is_starved(error) {
        true => STARVED,
        false => error.kind(),
    }
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

pub(super) fn send_with_fds(
    socket: std::os::fd::BorrowedFd<'_>,
    data: &[u8],
    fds: &[std::os::fd::BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
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

/// Reads the worker's first line and takes its number from the kernel, not from what it says. `hopeless` is
/// asked now and then whether to go on.
fn read_hello(
    bridge: &UnixStream,
    slot: u64,
    deadline: Instant,
    mut hopeless: impl FnMut() -> bool,
) -> io::Result<Pid> {
    let late = || io::Error::new(io::ErrorKind::TimedOut, "it did not come up in time");
    let mut line = Vec::new();
    let mut pid = None;
    while !line.ends_with(b"\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        let look = left.min(LOOK);
        let limit = Timespec { tv_sec: look.as_secs() as i64, tv_nsec: look.subsec_nanos() as _ };
        let mut fds = [PollFd::new(bridge, PollFlags::IN)];
        match poll(&mut fds, Some(&limit)) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(0) if left.is_zero() || hopeless() => return Err(late()),
            Ok(0) => continue,
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
