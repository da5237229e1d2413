//! CPU time of a hook: of the agent's process and of what it started, from `/proc`. The limits that the kernel
//! keeps count a process's whole life, each by itself; here all of them are counted together, from the hook's start.
//!
//! What a child took counts on when its parent has waited for it. One that nobody waits for counts as it was last
//! seen: what it burned in the quarter of a second before its end is lost.

use crate::supervise::tree;
use rustix::process::{prlimit, Pid, Resource, Rlimit};
use std::time::{Duration, Instant};

/// How often it is looked at, at most and at least.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(250);
/// How much more than the quota the kernel lets a process take, seconds.
const BACKSTOP: u64 = 10;

/// From which limit on a hook is looked at only when it has run for [`GRACE`]: most are over by then, and a look
/// takes as long as they do. What it used until then is not counted, a hundredth of the limit at most on a machine
/// of two processors.
const GENEROUS: Duration = Duration::from_secs(10);
const GRACE: Duration = Duration::from_millis(50);

/// The meter of one hook.
pub(super) struct Meter {
    pid: Pid,
    limit: Duration,
    /// What was taken before the hook; none: not looked at yet.
    before: Option<Duration>,
    /// What was seen last of all processes together.
    seen: Duration,
    /// What was seen of processes that have gone and that nobody waited for.
    lost: Duration,
    next: Instant,
    processors: u32,
}

impl Meter {
    /// Begins to count. `limit`: how much the hook may take.
    pub(super) fn start(pid: Pid, limit: Duration) -> Meter {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
        let (seen, lost) = (Duration::ZERO, Duration::ZERO);
        let mut meter =
            Meter { pid, limit, before: None, seen, lost, next: Instant::now() + GRACE, processors };
        if limit < GENEROUS {
            meter.begin();
        }
        meter
    }

    /// When it is to be looked at again.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Whether the hook has taken more than it may.
    pub(super) fn is_over(&mut self) -> bool {
        let Some(before) = self.before else {
            self.begin();
            return false;
        };
        let now = tree::cpu_time(self.pid);
        self.lost += self.seen.saturating_sub(now);
        self.seen = now;
        let used = (now + self.lost).saturating_sub(before);
        self.next = Instant::now() + self.pause(used);
        used > self.limit
    }

    /// How much it may take, seconds.
    pub(super) fn limit(&self) -> u64 {
        self.limit.as_secs()
    }

    fn begin(&mut self) {
        let before = tree::cpu_time(self.pid);
        (self.before, self.seen) = (Some(before), before);
        // Should the node be held up.
        let most = before.as_secs().saturating_add(self.limit.as_secs()).saturating_add(BACKSTOP);
        let_take(self.pid, Some(most));
        self.next = Instant::now() + self.pause(Duration::ZERO);
    }

    /// So long at least nothing can have gone over the limit.
    fn pause(&self, used: Duration) -> Duration {
        (self.limit.saturating_sub(used) / self.processors).clamp(SHORTEST, LONGEST)
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if self.before.is_some() {
            // A life is longer than a hook.
            let_take(self.pid, None);
        }
    }
}

/// Sets how much the kernel lets a process take in its whole life, seconds. That it can't be set is no reason not
/// to run a hook.
fn let_take(pid: Pid, most: Option<u64>) {
    let _ = prlimit(Some(pid), Resource::Cpu, Rlimit { current: most, maximum: None });
}

/// What a process takes while no hook runs: threads and processes that a hook left behind.
#[derive(Default)]
pub(super) struct Idle {
    since: Option<Duration>,
}

impl Idle {
    /// A hook runs, and is measured itself.
    pub(super) fn is_not(&mut self) {
        self.since = None;
    }

    /// Whether it has taken more than `limit` since it was first seen without a hook.
    pub(super) fn is_over(&mut self, pid: Pid, limit: Duration) -> bool {
        let now = tree::cpu_time(pid);
        now.saturating_sub(*self.since.get_or_insert(now)) > limit
    }
}
