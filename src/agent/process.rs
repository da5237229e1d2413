//! One agent's running process: the bridge's node side.

use super::cpu::{Idle, Meter};
use super::frame::{AgentError, Frame, Frames, Said};
use super::host::{CallError, Host, HostCall};
use super::output::Output;
use super::zygote::{send_with_fds, Ending, Exit, Parked};
use super::Settings;
use crate::sandbox::Seal;
use crate::supervise::tree;
use crate::sync::{lock, Crew};
use crate::sys::is_starved;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::process::{prlimit, Pid, Resource, Rlimit, Signal};
use serde_json::value::RawValue;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{sync_channel, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long the bridge may stay full before the agent counts as one that does not read.
const WRITE_LIMIT: Duration = Duration::from_secs(30);
const NEWLINE: &[u8] = b"\n";
/// Up to which length a frame is put together before it is sent, bytes.
const JOINED: usize = 64 << 10;
/// How long a process whose bridge has ended may take to end, before it counts as one that closed it.
const GONE_LIMIT: Duration = Duration::from_millis(200);
/// How long a dead process's status is waited for before its end is told without one.
const STATUS_LIMIT: Duration = Duration::from_secs(1);

/// A hook that ran to its end.
#[derive(Debug)]
pub struct Done {
    /// What it returned, or the exception that it raised.
    pub outcome: Result<Box<RawValue>, AgentError>,
    /// The agent's memory, if the hook changed it.
    pub memory: Option<Box<RawValue>>,
    /// Why its memory could not be taken: what the node has is older than the hook.
    pub stale: Option<String>,
}

/// A hook that did not.
#[derive(Debug, Clone)]
pub enum HookError {
    /// The process ended in the middle, or before; in words, with its status or signal.
    Ended(String),
    /// It was lost with the zygote: nothing that the agent did.
    Lost(String),
    /// The hook's time was up; the process was ended.
    Timeout(String),
    /// It took more CPU time than it may; the process was ended.
    Cpu(String),
    /// No process could be had.
    NoProcess(String),
    /// The machine has none to give just now: no descriptor, no memory, no process.
    Starved(String),
    /// The source was refused, or did not load.
    Refused(AgentError),
    /// The hook ran, but its memory could not be written where it is kept.
    NotKept(Arc<io::Error>),
}

impl HookError {
    /// Why no process could be had, where one was wanted until `deadline`.
    pub(super) fn no_process(error: &io::Error, deadline: Instant) -> Self {
        let text = error.to_string();
        if is_starved(error) {
            HookError::Starved(text)
        } else if error.kind() == io::ErrorKind::TimedOut && Instant::now() >= deadline {
            HookError::Timeout(text)
        } else {
            HookError::NoProcess(text)
        }
    }
}

impl fmt::Display for HookError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HookError::Ended(text)
            | HookError::Lost(text)
            | HookError::Timeout(text)
            | HookError::Cpu(text)
            | HookError::NoProcess(text)
            | HookError::Starved(text) => f.write_str(text),
            HookError::Refused(error) => write!(f, "the source does not load: {error}"),
            HookError::NotKept(error) => {
                write!(f, "the hook ran, but the memory that it left could not be written: {error}")
            }
        }
    }
}

/// A process that has loaded its agent, and the memory that it began with.
pub(super) type Loaded = (Arc<Process>, Option<Box<RawValue>>);

/// The hook number of the load.
const LOAD: u64 = 0;

/// A live agent's process. It lives until [`Process::kill`], or until it ends by itself.
pub struct Process {
    pid: Pid,
    pidfd: Option<OwnedFd>,
    writer: Mutex<UnixStream>,
    exit: Arc<Exit>,
    state: Mutex<State>,
    calls: AtomicUsize,
    idle: Mutex<Idle>,
}

/// What a parked worker is told, in this order.
pub(super) struct Orders {
    /// What the kernel is to bound it by, beside what every worker has.
    pub limits: Vec<(Resource, u64)>,
    /// How much CPU time loading may take.
    pub cpu: Option<Duration>,
    /// What it gives up before it loads an agent, with its Landlock ruleset.
    pub seal: Option<(Seal, Option<OwnedFd>)>,
    /// The load order, a frame without its newline.
    pub load: Vec<u8>,
}

struct State {
    /// The hook under way.
    hook: Option<Waiting>,
    next: u64,
    /// Why we killed it, if we did.
    killed: Option<Killed>,
    ended: Option<HookError>,
}

/// A hook's number, its deadline, and who waits for it.
type Waiting = (u64, Instant, SyncSender<Result<Done, HookError>>);

#[derive(Clone)]
enum Killed {
    Late(String),
    Cpu(String),
    Other(String),
}

impl Process {
    /// Hands a parked worker its agent and waits until it has loaded (or refused) it.
    ///
    /// # Errors
    /// [`HookError::Refused`] when the source is not an agent or does not load; otherwise how the
    /// process ended, or that the deadline passed.
    pub(super) fn load(
        parked: Parked,
        orders: Orders,
        deadline: Instant,
        settings: &Settings,
        secret: &str,
        host: Arc<dyn Host>,
        crew: &Crew,
    ) -> Result<Loaded, HookError> {
        let no_process = |error: io::Error| match is_starved(&error) {
            true => HookError::Starved(format!("the agent's process: {error}")),
            false => HookError::NoProcess(format!("the agent's process: {error}")),
        };
        let Parked { pid, pidfd, bridge, output, exit } = parked;
        let reader = bridge.try_clone().map_err(no_process)?;
        host.started(pid.as_raw_nonzero().get());
        let (told, outcome) = sync_channel(1);
        let process = Arc::new(Process {
            pid,
            pidfd,
            writer: Mutex::new(bridge),
            exit,
            state: Mutex::new(State {
                hook: Some((LOAD, deadline, told)),
                next: LOAD + 1,
                killed: None,
                ended: None,
            }),
            calls: AtomicUsize::new(0),
            idle: Mutex::default(),
        });
        let mut side = Side {
            process: Arc::clone(&process),
            output: Output::new(Arc::clone(&host), secret),
            secret: secret.to_owned(),
            host,
            crew: crew.clone(),
            calls_at_once: settings.calls_at_once,
            max_frame_bytes: settings.max_frame_bytes,
        };
        let started = std::thread::Builder::new().name("bridge".into()).spawn(move || {
            let attending = std::panic::AssertUnwindSafe(|| side.attend(reader, output));
            if std::panic::catch_unwind(attending).is_err() {
                // Nobody attends to this process any more.
                side.process.kill("the node failed at what it sent");
            }
            side.tell_end();
        });
        started.map_err(no_process)?;
        if let Some((seal, ruleset)) = orders.seal {
            process.seal(&seal, ruleset).map_err(no_process)?;
        }
        for (resource, most) in orders.limits {
            let refused = |error| {
                HookError::NoProcess(format!("the agent's limit of {resource:?} can't be {most}: {error}"))
            };
            let limit = Rlimit { current: Some(most), maximum: Some(most) };
            prlimit(Some(pid), resource, limit).map_err(refused)?;
        }
        let cpu = orders.cpu.map(|limit| Meter::start(pid, limit));
        process.send(&[&orders.load], deadline)?;
        drop(orders.load);
        let done = process.await_outcome(&outcome, deadline, cpu, "loading the source")?;
        match done.outcome {
            Ok(_) => Ok((process, done.memory)),
            Err(error) => {
                process.kill("its source was refused");
                Err(HookError::Refused(error))
            }
        }
    }

    /// Orders the worker to seal itself. The order is short and the first that the worker gets, so that
    /// it is sent without waiting.
    fn seal(&self, seal: &Seal, ruleset: Option<OwnedFd>) -> io::Result<()> {
        let order = format!("{{\"seal\":{}}}\n", serde_json::to_string(seal)?);
        let mut writer = lock(&self.writer);
        match ruleset {
            Some(ruleset) => match send_with_fds(writer.as_fd(), order.as_bytes(), &[ruleset.as_fd()]) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()), // its end is told
                other => other,
            },
            None => write_until(&mut writer, order.as_bytes(), Instant::now() + WRITE_LIMIT),
        }
    }

    /// Runs one hook. The caller holds the agent's turn: hooks do not overlap.
    ///
    /// # Errors
    /// The process ended, or the deadline passed and it was ended for that.
    pub(super) fn hook(
        &self,
        name: &str,
        payload: &str,
        deadline: Instant,
        cpu: Option<Duration>,
    ) -> Result<Done, HookError> {
        let (told, outcome) = sync_channel(1);
        let number = {
            let mut state = lock(&self.state);
            if let Some(ended) = &state.ended {
                return Err(ended.clone());
            }
            let number = state.next;
            state.next += 1;
            state.hook = Some((number, deadline, told));
            number
        };
        let cpu = cpu.map(|limit| Meter::start(self.pid, limit));
        let head = format!("{{\"hook\":{number},\"name\":\"{name}\",\"payload\":");
        self.send(&[head.as_bytes(), payload.as_bytes(), b"}"], deadline)?;
        self.await_outcome(&outcome, deadline, cpu, name)
    }

    /// Whether what a hook left behind has taken more than `limit` of CPU time while none runs.
    pub(super) fn burns_idle(&self, limit: Duration) -> bool {
        let running = lock(&self.state).hook.is_some();
        let mut idle = lock(&self.idle);
        match running {
            true => idle.is_not(),
            false => return idle.is_over(self.pid, limit),
        }
        false
    }

    /// Ends the process (SIGKILL); the zygote ends its process group when it reaps it.
    pub(super) fn kill(&self, why: &str) {
        lock(&self.state).killed.get_or_insert(Killed::Other(why.to_owned()));
        self.signal();
    }

    /// Whether it has ended, or was told to.
    pub(super) fn is_over(&self) -> bool {
        let state = lock(&self.state);
        state.ended.is_some() || state.killed.is_some()
    }

    /// Whether it ends within `limit`.
    fn is_gone(&self, limit: Duration) -> bool {
        let Some(pidfd) = &self.pidfd else { return false };
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos() as _ };
        matches!(poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&limit)), Ok(1))
    }

    pub(super) fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    fn signal(&self) {
        // What it started and detached would outlive it; listed before its parent is gone.
        let descendants = tree::descendants(self.pid);
        let sent = match &self.pidfd {
            Some(pidfd) => rustix::process::pidfd_send_signal(pidfd, Signal::KILL),
            None if lock(&self.state).ended.is_none() => {
                rustix::process::kill_process(self.pid, Signal::KILL)
            }
            None => Ok(()),
        };
        let _ = sent; // already gone is as good
        tree::signal_all(&descendants, Signal::KILL);
    }

    fn await_outcome(
        &self,
        outcome: &Receiver<Result<Done, HookError>>,
        deadline: Instant,
        mut cpu: Option<Meter>,
        what: &str,
    ) -> Result<Done, HookError> {
        let allowed = deadline.saturating_duration_since(Instant::now());
        let received = loop {
            let until = cpu.as_ref().map_or(deadline, |meter| meter.next().min(deadline));
            let received = outcome.recv_timeout(until.saturating_duration_since(Instant::now()));
            match (received, &mut cpu) {
                (Err(RecvTimeoutError::Timeout), Some(meter)) if Instant::now() < deadline => {
                    if meter.is_over() {
                        let text = format!(
                            "{what} took more than the {} s of CPU time that it may (cpu_s); the agent's process was ended",
                            meter.limit()
                        );
                        lock(&self.state).killed.get_or_insert(Killed::Cpu(text.clone()));
                        self.signal();
                        return outcome.recv_timeout(STATUS_LIMIT * 2).unwrap_or(Err(HookError::Cpu(text)));
                    }
                }
                (received, _) => break received,
            }
        };
        match received {
            Ok(done) => done,
            Err(RecvTimeoutError::Disconnected) => {
                Err(HookError::Ended("the agent's process is gone".into()))
            }
            Err(RecvTimeoutError::Timeout) => {
                let text = format!(
                    "{what} took longer than its {:.1} s; the agent's process was ended",
                    allowed.as_secs_f64()
                );
                lock(&self.state).killed.get_or_insert(Killed::Late(text.clone()));
                self.signal();
                // The bridge's thread tells the end, and an answer that came just now is one.
                outcome.recv_timeout(STATUS_LIMIT * 2).unwrap_or(Err(HookError::Timeout(text)))
            }
        }
    }

    /// Sends a line, given in parts, at most until the deadline or for [`WRITE_LIMIT`].
    fn send(&self, line: &[&[u8]], deadline: Instant) -> Result<(), HookError> {
        let limit = deadline.min(Instant::now() + WRITE_LIMIT);
        let mut writer = lock(&self.writer);
        // Short ones leave in one piece: each piece wakes the other side.
        let sent = match line.iter().map(|part| part.len()).sum::<usize>() {
            0..=JOINED => write_until(&mut writer, &[line, &[NEWLINE]].concat().concat(), limit),
            _ => line.iter().chain([&NEWLINE]).try_for_each(|part| write_until(&mut writer, part, limit)),
        };
        drop(writer);
        match sent {
            Ok(()) => Ok(()),
            // A broken pipe is a process that ended; its end is told through the outcome.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(error) => {
                self.kill("it does not read its bridge");
                Err(HookError::Ended(format!("the agent's process does not read its bridge: {error}")))
            }
        }
    }

    /// Answers a call. One that does not reach the agent has no other consequence than its end.
    fn reply(&self, number: u64, outcome: Result<Box<RawValue>, CallError>) {
        let _ = self.send(&[reply_line(number, outcome).as_bytes()], Instant::now() + WRITE_LIMIT);
    }

    fn finish(&self, number: u64, done: Result<Done, HookError>) {
        let mut state = lock(&self.state);
        if state.hook.as_ref().is_some_and(|hook| hook.0 == number) {
            if let Some((_, _, told)) = state.hook.take() {
                let _ = told.send(done); // nobody waits any more: its deadline passed
            }
        }
    }
}

/// `write_all` with a deadline for all of it, not for each part that the agent cares to read.
fn write_until(writer: &mut UnixStream, mut data: &[u8], deadline: Instant) -> io::Result<()> {
    while !data.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        writer.set_write_timeout(Some(left.max(Duration::from_millis(1))))?;
        match writer.write(data) {
            Ok(length) => data = &data[length..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if left.is_zero() && !data.is_empty() {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}

/// What the bridge's thread holds.
struct Side {
    process: Arc<Process>,
    secret: String,
    host: Arc<dyn Host>,
    output: Output,
    crew: Crew,
    calls_at_once: usize,
    max_frame_bytes: usize,
}

impl Side {
    /// Reads frames and output until the process is gone.
    fn attend(&mut self, mut bridge: UnixStream, output: OwnedFd) {
        let mut output = std::fs::File::from(output);
        let mut frames = Frames::new(self.max_frame_bytes);
        let mut chunk = vec![0u8; 64 * 1024];
        let mut output_open = true;
        let mut wrong = None;
        // A process that it forked may go on writing to its bridge; what counts is what it left there.
        let mut left_by_the_dead = self.max_frame_bytes;
        while let Ok(ready) = self.wait(&bridge, &output, output_open) {
            if ready.output {
                output_open = self.drain_output(&mut output, &mut chunk);
            }
            if ready.gone && (!ready.bridge || left_by_the_dead == 0) {
                break;
            }
            if ready.bridge {
                match bridge.read(&mut chunk) {
                    Ok(0) => break,
                    Ok(length) => {
                        wrong = self.take_frames(&mut frames, &chunk[..length]).err();
                        if ready.gone {
                            left_by_the_dead = left_by_the_dead.saturating_sub(length);
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
            if let Some(wrong) = &wrong {
                self.process.kill(wrong);
                break;
            }
        }
        if output_open {
            self.drain_output(&mut output, &mut chunk);
        }
        self.output.finish();
    }

    fn wait(
        &self,
        bridge: &UnixStream,
        output: &std::fs::File,
        output_open: bool,
    ) -> rustix::io::Result<Ready> {
        let mut fds = vec![PollFd::new(bridge, PollFlags::IN)];
        if output_open {
            fds.push(PollFd::new(output, PollFlags::IN));
        }
        // The process itself too: something it forked may hold the bridge open.
        if let Some(pidfd) = &self.process.pidfd {
            fds.push(PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN));
        }
        loop {
            match poll(&mut fds, None) {
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error),
                Ok(_) => break,
            }
        }
        let set = |index: usize| fds.get(index).is_some_and(|fd| !fd.revents().is_empty());
        Ok(Ready {
            bridge: set(0),
            output: output_open && set(1),
            gone: self.process.pidfd.is_some() && set(fds.len() - 1),
        })
    }

    /// Takes what is there; false once the pipe has ended.
    fn drain_output(&mut self, output: &mut std::fs::File, chunk: &mut [u8]) -> bool {
        // Bounded: an agent that prints without end must not keep its bridge from being read.
        for _ in 0..16 {
            match output.read(chunk) {
                Ok(0) => return false,
                Ok(length) => self.output.feed(&chunk[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }

    fn take_frames(&self, frames: &mut Frames, data: &[u8]) -> Result<(), String> {
        frames.push(data);
        while let Some(frame) = frames.next_frame()? {
            self.take(frame);
        }
        Ok(())
    }

    fn take(&self, frame: Frame) {
        let Frame { what, memory, left, stale } = frame;
        if !left.is_empty() {
            self.host.left_behind(&left);
        }
        let (hook, outcome) = match what {
            Said::Loaded => (LOAD, Ok(RawValue::NULL.to_owned())),
            Said::Refused(error) => (LOAD, Err(error)),
            Said::Done { hook, result } => (hook, Ok(result)),
            Said::Failed { hook, error } => (hook, Err(error)),
            Said::Call { number, hook, name, args } => return self.call(number, hook, name, args, memory),
        };
        let outcome = outcome.map_err(|error| error.fit_to_tell(&self.secret));
        self.process.finish(hook, Ok(Done { outcome, memory, stale }));
    }

    fn call(
        &self,
        number: u64,
        hook: Option<u64>,
        name: String,
        args: Box<RawValue>,
        memory: Option<Box<RawValue>>,
    ) {
        let deadline = {
            let state = lock(&self.process.state);
            state.hook.as_ref().filter(|running| Some(running.0) == hook).map(|running| running.1)
        };
        let call = HostCall {
            name,
            args,
            memory,
            in_hook: deadline.is_some(),
            deadline: deadline.unwrap_or_else(|| Instant::now() + WRITE_LIMIT),
        };
        let (host, process) = (Arc::clone(&self.host), Arc::clone(&self.process));
        if host.is_quick(&call.name) {
            process.reply(number, carried_out(&*host, call));
            return;
        }
        if process.calls.fetch_add(1, Ordering::AcqRel) >= self.calls_at_once {
            process.calls.fetch_sub(1, Ordering::AcqRel);
            let text = format!("more than {} calls of this agent are under way", self.calls_at_once);
            process.reply(number, Err(CallError::new("busy", text)));
            return;
        }
        let counted = Counted(Arc::clone(&process));
        let started = self.crew.run(move || {
            let counted = counted;
            let outcome = carried_out(&*host, call);
            counted.0.reply(number, outcome);
        });
        if !started {
            process.reply(number, Err(CallError::new("busy", "the node has no thread for this call")));
        }
    }

    fn tell_end(&self) {
        let mut ending = self.process.exit.wait(STATUS_LIMIT);
        if ending == Ending::Unknown && !self.process.is_over() && !self.process.is_gone(GONE_LIMIT) {
            self.process.kill("it closed its bridge");
            ending = self.process.exit.wait(STATUS_LIMIT);
        }
        let killed = lock(&self.process.state).killed.clone();
        let how = match ending {
            Ending::Exited(status) => format!("exited with status {status}"),
            Ending::Signalled(signal) => format!("was killed by signal {signal} ({})", signal_name(signal)),
            Ending::Unknown => "ended".to_owned(),
        };
        let (error, words) = match killed {
            Some(Killed::Cpu(text)) => (HookError::Cpu(text.clone()), text),
            Some(Killed::Late(text)) => (HookError::Timeout(text.clone()), text),
            Some(Killed::Other(why)) => {
                (HookError::Ended(format!("the agent's process was ended: {why}")), format!("ended: {why}"))
            }
            None if ending == Ending::Unknown => {
                (HookError::Lost("the agent's process ended with the one that starts agents".into()), how)
            }
            None => (HookError::Ended(format!("the agent's process {how}")), how),
        };
        let waiting = {
            let mut state = lock(&self.process.state);
            state.ended = Some(error.clone());
            state.hook.take()
        };
        if let Some((_, _, told)) = waiting {
            let _ = told.send(Err(error));
        }
        self.host.ended(&words);
    }
}

/// Carries out a call; a panic in it is an error of this call, and of nothing else.
fn carried_out(host: &dyn Host, call: HostCall) -> Result<Box<RawValue>, CallError> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| host.call(call)))
        .unwrap_or_else(|_| Err(CallError::new("internal", "the node failed at this call; its log says how")))
}

struct Ready {
    bridge: bool,
    output: bool,
    gone: bool,
}

/// Counts a call out, however its job ends.
struct Counted(Arc<Process>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::AcqRel);
    }
}

fn reply_line(number: u64, outcome: Result<Box<RawValue>, CallError>) -> String {
    match outcome {
        Ok(result) => format!("{{\"reply\":{number},\"result\":{}}}", result.get()),
        Err(error) => {
            let message = serde_json::Value::from(error.message);
            let detail = error.detail.as_ref().map_or("null", |detail| detail.get());
            format!(
                "{{\"reply\":{number},\"error\":{{\"code\":\"{}\",\"message\":{message},\"detail\":{detail}}}}}",
                error.code
            )
        }
    }
}

/// The usual signals by name.
fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGSYS => "SIGSYS",
        _ => "unnamed",
    }
}
