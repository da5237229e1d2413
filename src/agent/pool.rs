//! The pool of parked workers: a deployment finds a process that is already there.

use super::zygote::{Notice, Parked, Zygote};
use super::Settings;
use crate::sandbox::Sandbox;
use crate::sync::lock;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How long parking a worker may take: as long as a cold interpreter on a slow machine.
const PARKING_LIMIT: Duration = Duration::from_secs(60);

/// Parked workers and the thread that keeps their number.
pub struct Pool {
    pub(super) settings: Arc<Settings>,
    /// How many messages may wait for one agent: of all that the node decides about them it changes alone
    /// while they live.
    pub(super) inbox_length: Arc<AtomicUsize>,
    sandbox: Arc<Sandbox>,
    zygote: Zygote,
    parked: Mutex<Shelf>,
    changed: Condvar,
}

#[derive(Default)]
struct Shelf {
    ready: VecDeque<Parked>,
    /// Whether anything was taken yet: nothing is parked before the first use, unless prewarmed.
    wanted: bool,
    closed: bool,
}

impl Pool {
    /// A pool that starts nothing until it is used. `notice` hears when the process that forks the agents'
    /// ended or was replaced.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn new(settings: Settings, notice: Notice) -> io::Result<Arc<Self>> {
        let settings = Arc::new(settings);
        let sandbox = Arc::new(Sandbox::new(settings.sandbox, settings.state_dir.clone(), settings.user));
        let zygote = Zygote::new(Arc::clone(&settings), Arc::clone(&sandbox), notice);
        let pool = Arc::new(Pool {
            inbox_length: Arc::new(AtomicUsize::new(settings.inbox_length)),
            settings,
            sandbox,
            zygote,
            parked: Mutex::default(),
            changed: Condvar::new(),
        });
        let refill = Arc::downgrade(&pool);
        std::thread::Builder::new().name("parking".into()).spawn(move || keep_full(&refill))?;
        Ok(pool)
    }

    /// Starts the interpreter and the first workers in the background.
    pub fn prewarm(&self) {
        lock(&self.parked).wanted = true;
        self.changed.notify_all();
    }

    /// Python's version once the zygote runs.
    pub fn python_version(&self) -> Option<String> {
        self.zygote.version()
    }

    /// Starts the zygote if need be and returns Python's version.
    ///
    /// # Errors
    /// No interpreter, or one that does not start.
    pub fn start(&self) -> io::Result<String> {
        self.zygote.start()
    }

    /// What the node decided about its agents' processes.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The sandbox around agents' processes.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Changes how many messages may wait for one agent, also for those that are there.
    pub fn set_inbox_length(&self, most: usize) {
        self.inbox_length.store(most, Ordering::Relaxed);
    }

    /// How many workers wait.
    pub fn parked(&self) -> usize {
        lock(&self.parked).ready.len()
    }

    /// A process for an agent: a parked one, or, when none is left, a fresh fork, at most until the deadline.
    ///
    /// # Errors
    /// Python can't be started, or the fork failed.
    pub(super) fn take(&self, deadline: Instant) -> io::Result<Parked> {
        let taken = {
            let mut shelf = lock(&self.parked);
            shelf.wanted = true;
            loop {
                match shelf.ready.pop_front() {
                    Some(parked) if parked.is_alive() => break Some(parked),
                    Some(_) => {}
                    None => break None,
                }
            }
        };
        let parked = match taken {
            Some(parked) => Ok(parked),
            None => self.zygote.spawn(deadline),
        };
        self.changed.notify_all();
        parked
    }

    /// Ends the zygote and every process below it, once hooks have had their time.
    pub fn end(&self) {
        self.close();
        self.zygote.end();
    }

    /// Ends the parked workers and parks no more.
    pub fn close(&self) {
        let mut shelf = lock(&self.parked);
        shelf.closed = true;
        shelf.ready.clear(); // a worker whose bridge is closed exits
        self.changed.notify_all();
    }
}

/// Parks workers until the pool is gone. After a failure it waits a little: a node without Python
/// stays useful for what needs none, and must not spin.
fn keep_full(pool: &Weak<Pool>) {
    loop {
        let Some(pool) = pool.upgrade() else { return };
        let target = pool.settings.parked_workers;
        let shelf = lock(&pool.parked);
        // The wait is bounded so that a dropped pool is noticed.
        let (shelf, _) = pool
            .changed
            .wait_timeout_while(shelf, Duration::from_millis(500), |shelf| {
                !shelf.closed && (!shelf.wanted || shelf.ready.len() >= target)
            })
            .unwrap_or_else(PoisonError::into_inner);
        if shelf.closed {
            return;
        }
        let needed = shelf.wanted && shelf.ready.len() < target;
        drop(shelf);
        if !needed {
            continue;
        }
        match pool.zygote.spawn(Instant::now() + PARKING_LIMIT) {
            Ok(parked) => {
                let mut shelf = lock(&pool.parked);
                if !shelf.closed {
                    shelf.ready.push_back(parked);
                }
            }
            Err(_) => {
                // Whoever needs a process next gets the error; here it would only repeat.
                drop(pool);
                std::thread::sleep(Duration::from_secs(1));
            }
        }
    }
}
