//! Locks and threads that the rest shares.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Takes a mutex. A thread that panicked while it held it must not take the node down with it: what
/// our mutexes guard is whole between any two statements.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long a thread of a [`Crew`] waits for more work before it ends.
const LINGER: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// Threads that take jobs, are kept for a while, and grow in number on demand up to a bound.
#[derive(Clone)]
pub struct Crew {
    shared: Arc<Shared>,
}

struct Shared {
    name: &'static str,
    most: usize,
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

impl Crew {
    /// A crew of at most `most` threads, none of them started yet.
    pub fn new(name: &'static str, most: usize) -> Self {
        Crew { shared: Arc::new(Shared { name, most, state: Mutex::default(), work: Condvar::new() }) }
    }

    /// Runs `job` on a thread of the crew; above the bound it waits for one to be free.
    /// Returns false (and drops the job) if no thread at all could be started.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) -> bool {
        let mut state = lock(&self.shared.state);
        state.jobs.push_back(Box::new(job));
        if state.idle >= state.jobs.len() {
            self.shared.work.notify_one();
            return true;
        }
        if state.threads >= self.shared.most {
            return true;
        }
        let shared = Arc::clone(&self.shared);
        match std::thread::Builder::new().name(self.shared.name.into()).spawn(move || shared.serve()) {
            Ok(_) => {
                state.threads += 1;
                true
            }
            Err(_) if state.threads > 0 => true,
            Err(_) => {
                state.jobs.pop_back();
                false
            }
        }
    }
}

impl Shared {
    fn serve(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                // A job that panics has been reported by the panic hook; the thread goes on.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
                state = lock(&self.state);
                continue;
            }
            state.idle += 1;
            let (guard, wait) = self
                .work
                .wait_timeout_while(state, LINGER, |state| state.jobs.is_empty())
                .unwrap_or_else(PoisonError::into_inner);
            state = guard;
            state.idle -= 1;
            if wait.timed_out() && state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}
