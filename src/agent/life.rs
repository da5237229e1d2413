//! One generation of one agent: its source, its memory, its queue, and a process when it needs one.

use super::host::Host;
use super::process::{Done, HookError, Loaded, Orders, Process};
use super::turn::{NoTurn, Queue};
use super::{Manifest, Pool};
use crate::sandbox::Rights;
use crate::sync::{lock, Crew};
use serde_json::{json, Value};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// What does not change while a generation lives.
pub struct Spec {
    /// Its Python source.
    pub source: Arc<str>,
    /// What the scanner read from the source.
    pub manifest: Manifest,
    /// The node's name, as the agent sees it.
    pub container_name: String,
    /// The agent's own directory.
    pub state_dir: Option<PathBuf>,
    /// The hops behind it, a JSON list.
    pub trace: String,
}

/// Where a generation's memory is kept beyond its process and the node's.
pub trait Keep: Send + Sync {
    /// Keeps a memory in place of the one before, whole or not at all.
    ///
    /// # Errors
    /// What the system says; the one before is still there.
    fn keep(&self, memory: &str) -> io::Result<()>;
}

/// A memory, and whether it is kept.
#[derive(Default)]
struct Memory {
    text: Option<Arc<str>>,
    unkept: bool,
    /// Why it is older than the last hook.
    stale: Option<String>,
}

/// One generation of one agent.
pub struct Life {
    /// What it was made from.
    pub spec: Spec,
    pool: Arc<Pool>,
    crew: Crew,
    queue: Queue,
    memory: Mutex<Memory>,
    keep: OnceLock<Arc<dyn Keep>>,
    process: Mutex<Option<Arc<Process>>>,
    used: Mutex<Instant>,
    /// What its process was begun with.
    rights: Mutex<Rights>,
}

/// The right to run a hook; given back when it is dropped.
pub struct Turn {
    life: Arc<Life>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        *lock(&self.life.used) = Instant::now();
        if self.life.queue.leave() {
            // It was retired while this hook ran: the hook was its process's last.
            self.life.end_process("this generation is over");
        }
    }
}

/// A place in the queue before a generation; given up when it is dropped.
pub struct Seat {
    life: Arc<Life>,
    ticket: Option<u64>,
}

impl Seat {
    /// Waits for the turn.
    ///
    /// # Errors
    /// The deadline passed, or the generation is over.
    pub fn wait(mut self, deadline: Instant) -> Result<Turn, NoTurn> {
        let ticket = self.ticket.take().ok_or(NoTurn::Over)?;
        self.life.queue.wait(ticket, deadline)?;
        Ok(Turn { life: Arc::clone(&self.life) })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.life.queue.abandon(ticket);
        }
    }
}

impl Turn {
    /// Makes sure that the agent has a process that has loaded it.
    ///
    /// # Errors
    /// The source is refused or does not load, or no process could be had.
    pub fn load(
        &self,
        deadline: Instant,
        host: &dyn Fn() -> Arc<dyn Host>,
    ) -> Result<Arc<Process>, HookError> {
        let life = &self.life;
        // Let go of before anything else: ending the process takes the lock again.
        let running = lock(&life.process).clone().filter(|process| !process.is_over());
        if let Some(process) = running {
            if host().rights() == *lock(&life.rights) {
                return Ok(process);
            }
            // What the kernel enforces can't be changed in a process; its memory is with the node.
            life.end_process("what it may do has changed");
        }
        let loaded = match life.start(deadline, host) {
            // Its worker went with the zygote before it had begun; the next comes from a new one.
            Err(HookError::Lost(_)) => life.start(deadline, host),
            other => other,
        };
        let (process, memory) = loaded?;
        *lock(&life.process) = Some(Arc::clone(&process));
        if let Some(memory) = memory {
            life.remember(memory.get()).map_err(not_kept)?;
        }
        Ok(process)
    }

    /// Runs a hook, starting a process first if there is none, and keeps the memory that it left.
    ///
    /// # Errors
    /// As [`Turn::load`], and when the process ends in the middle, the deadline passes, or the memory
    /// can't be kept (then the next hook's end tries again).
    pub fn run(
        &self,
        hook: &str,
        payload: &str,
        deadline: Instant,
        host: &dyn Fn() -> Arc<dyn Host>,
    ) -> Result<Done, HookError> {
        let mut done = self.load(deadline, host)?.hook(hook, payload, deadline, host().cpu_limit())?;
        lock(&self.life.memory).stale = done.stale.take();
        let before = self.life.memory();
        done.memory = done.memory.filter(|memory| Some(memory.get()) != before.as_deref());
        let kept = match &done.memory {
            Some(memory) => self.life.remember(memory.get()),
            None => self.life.keep_what_is_not(),
        };
        kept.map_err(not_kept)?;
        Ok(done)
    }
}

fn not_kept(error: io::Error) -> HookError {
    HookError::NotKept(Arc::new(error))
}

impl Life {
    /// A generation without a process yet.
    pub fn new(spec: Spec, memory: Option<Arc<str>>, pool: Arc<Pool>, crew: Crew) -> Arc<Self> {
        let queue = Queue::new(Arc::clone(&pool.inbox_length));
        Arc::new(Life {
            spec,
            pool,
            crew,
            queue,
            memory: Mutex::new(Memory { text: memory, ..Memory::default() }),
            keep: OnceLock::new(),
            process: Mutex::new(None),
            used: Mutex::new(Instant::now()),
            rights: Mutex::default(),
        })
    }

    /// Waits for this generation's turn, first come, first served.
    ///
    /// # Errors
    /// Too many wait, the deadline passed, or the generation is over.
    pub fn enter(self: &Arc<Self>, deadline: Instant) -> Result<Turn, NoTurn> {
        self.queue.enter(deadline)?;
        Ok(Turn { life: Arc::clone(self) })
    }

    /// Takes a place in the queue without waiting for the turn.
    ///
    /// # Errors
    /// Too many wait, or the generation is over.
    pub fn join(self: &Arc<Self>) -> Result<Seat, NoTurn> {
        Ok(Seat { ticket: Some(self.queue.join()?), life: Arc::clone(self) })
    }

    /// A turn, if it is free this instant.
    pub fn try_enter(self: &Arc<Self>) -> Option<Turn> {
        self.queue.try_enter().then(|| Turn { life: Arc::clone(self) })
    }

    /// Marks this generation as departing: nobody gets a turn until it stays or is over. False if
    /// it departs already or is over.
    pub fn depart(&self) -> bool {
        self.queue.close()
    }

    /// Lets nobody in while a move is open, or lets them in again.
    pub fn set_departing(&self, departing: bool) {
        self.queue.set_closed(departing);
    }

    /// Whether a move of this generation is open.
    pub fn is_departing(&self) -> bool {
        self.queue.is_closed()
    }

    /// Whether this generation is over.
    pub fn is_over(&self) -> bool {
        self.queue.is_over()
    }

    /// Whether a hook is running.
    pub fn is_running(&self) -> bool {
        self.queue.is_held()
    }

    /// How many messages wait.
    pub fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    /// The process's number, if there is one.
    pub fn pid(&self) -> Option<i32> {
        lock(&self.process).as_ref().filter(|process| !process.is_over()).map(|process| process.pid())
    }

    /// When it was last used.
    pub fn last_used(&self) -> Instant {
        *lock(&self.used)
    }

    /// The memory as of the last hook's end, JSON text.
    pub fn memory(&self) -> Option<Arc<str>> {
        lock(&self.memory).text.clone()
    }

    /// Why the memory is older than what the agent's process knows, if it is: it could not be taken.
    pub fn stale(&self) -> Option<String> {
        // With the process went what it knew: the memory is all there is.
        self.pid()?;
        lock(&self.memory).stale.clone()
    }

    /// Says where the memory is kept from now on; what it is now is kept there already.
    pub fn keep_in(&self, keep: Arc<dyn Keep>) {
        lock(&self.memory).unkept = false;
        let _ = self.keep.set(keep); // the first one stays
    }

    /// Replaces the memory, and keeps it where it is kept. One that did not change costs nothing.
    ///
    /// # Errors
    /// It can't be kept; the node has it all the same, and tries again at the next hook's end.
    pub fn remember(&self, memory: &str) -> io::Result<()> {
        {
            let mut here = lock(&self.memory);
            if here.text.as_deref() != Some(memory) {
                here.text = Some(memory.into());
                here.unkept = true;
            }
        }
        self.keep_what_is_not()
    }

    /// Only the holder of the turn, or whoever moves the agent in its name, gets here: no two at once
    /// but for a hook's own calls, which see the same memory.
    fn keep_what_is_not(&self) -> io::Result<()> {
        let Some(keep) = self.keep.get() else { return Ok(()) };
        let text = {
            let here = lock(&self.memory);
            here.text.clone().filter(|_| here.unkept)
        };
        let Some(text) = text else { return Ok(()) };
        match keep.keep(&text) {
            // Its directory went with the generation.
            Err(_) if self.is_over() => return Ok(()),
            other => other?,
        }
        let mut here = lock(&self.memory);
        if here.text.as_ref().is_some_and(|now| Arc::ptr_eq(now, &text)) {
            here.unkept = false;
        }
        Ok(())
    }

    /// Ends this generation: a hook that runs may finish, whoever waits looks the agent up again.
    pub fn retire(&self) {
        if self.queue.end() {
            self.end_process("this generation is over");
        }
    }

    /// Ends the process now, in the middle of a hook or not.
    pub fn end_process(&self, why: &str) {
        if let Some(process) = lock(&self.process).take() {
            process.kill(why);
        }
    }

    /// Ends a process that has taken more than `limit` of CPU time while no hook runs. Returns whether it did.
    pub fn end_if_it_burns(&self, limit: Duration) -> bool {
        let process = lock(&self.process).clone().filter(|process| !process.is_over());
        let burns = process.is_some_and(|process| process.burns_idle(limit));
        if burns {
            self.end_process("what its hooks left behind took more CPU time than a hook may (cpu_s)");
        }
        burns
    }

    /// Ends the process of an agent that has been idle for `idle`; its memory is here already.
    /// Returns whether it did.
    pub fn hibernate(self: &Arc<Self>, idle: Duration) -> bool {
        if self.pid().is_none() || self.last_used().elapsed() < idle || !self.queue.try_enter() {
            return false;
        }
        // Not a Turn: this must not count as use.
        self.end_process("idle");
        if self.queue.leave() {
            self.end_process("this generation is over");
        }
        true
    }

    fn start(&self, deadline: Instant, host: &dyn Fn() -> Arc<dyn Host>) -> Result<Loaded, HookError> {
        let parked = self.pool.take(deadline).map_err(|error| HookError::no_process(&error, deadline))?;
        let sandbox = self.pool.sandbox();
        sandbox.admits().map_err(HookError::NoProcess)?;
        let host = host();
        let rights = host.rights();
        let seal = sandbox
            .seal(&rights, parked.pid.as_raw_nonzero().get(), self.spec.state_dir.as_deref())
            .map_err(|error| HookError::no_process(&error, deadline))?;
        let secret = self.spec.manifest.secret.expose();
        let orders = Orders {
            limits: host.process_limits(),
            cpu: host.cpu_limit(),
            seal,
            load: self.load_order(&*host),
        };
        let loaded = Process::load(parked, orders, deadline, &self.pool.settings, secret, host, &self.crew)?;
        *lock(&self.rights) = rights;
        Ok(loaded)
    }

    /// The load order: built in one piece, as source and memory may have megabytes.
    fn load_order(&self, host: &dyn Host) -> Vec<u8> {
        let spec = &self.spec;
        let rest = json!({
            "manifest": spec.manifest.facts(),
            "agent_id": spec.manifest.id,
            "container_name": spec.container_name,
            "state_dir": spec.state_dir,
        })
        .to_string();
        let memory = self.memory();
        let memory = memory.as_deref().unwrap_or("null");
        // The one that is no call: what is not granted does not get there.
        let trace = match host.may("trace") {
            Ok(()) => format!("\"trace\":{}", spec.trace),
            Err(denied) => format!("\"trace_denied\":{}", Value::from(denied.message)),
        };
        let mut order = Vec::with_capacity(spec.source.len() + memory.len() + rest.len() + trace.len() + 100);
        order.extend_from_slice(b"{\"load\":{\"source\":");
        // Into memory it cannot fail.
        let _ = serde_json::to_writer(&mut order, &*spec.source);
        for part in [",", &rest[1..rest.len() - 1], ",", &trace, ",\"memory\":", memory, "}}"] {
            order.extend_from_slice(part.as_bytes());
        }
        order
    }
}
