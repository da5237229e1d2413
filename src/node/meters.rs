//! What agents have used of their quotas: counts a minute and an hour, by id, so that no new generation begins anew.
//! In memory; a start begins anew.

use super::{state_files, Node, Record};
use crate::agent::host::CallError;
use crate::journal::Event;
use crate::log::Level;
use crate::roster::quotas::{Quota, Quotas, ALL};
use crate::sync::lock;
use crate::wire::{Code, Failure};
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// From how many agents on those are forgotten whose windows are over.
const MANY: usize = 10_000;

/// What one agent has used of one quota.
#[derive(Default)]
struct Window {
    began: Option<Instant>,
    used: u64,
    told: bool,
}

/// What agents have used, by id.
#[derive(Default)]
pub(super) struct Meters {
    windows: Mutex<HashMap<String, [Window; ALL.len()]>>,
}

impl Window {
    fn is_over(&self, length: Duration, now: Instant) -> bool {
        self.began.is_none_or(|began| now.duration_since(began) >= length)
    }
}

impl Meters {
    /// What is left of a quota's window.
    fn left(&self, id: &str, quota: Quota, most: u64) -> u64 {
        let Some(length) = quota.window() else { return most };
        let windows = lock(&self.windows);
        match windows.get(id).map(|all| &all[quota as usize]) {
            Some(window) if !window.is_over(length, Instant::now()) => most.saturating_sub(window.used),
            _ => most,
        }
    }

    /// Whether it is not told yet, in this window, that a quota was used up.
    fn is_news(&self, id: &str, quota: Quota) -> bool {
        let mut windows = lock(&self.windows);
        let window = &mut windows.entry(id.to_owned()).or_default()[quota as usize];
        let now = Instant::now();
        if quota.window().is_some_and(|length| window.is_over(length, now)) {
            *window = Window { began: Some(now), ..Window::default() };
        }
        !std::mem::replace(&mut window.told, true)
    }

    /// Notes what was used. If that is more than there is: whether it is the first time in this window.
    fn charge(&self, id: &str, quota: Quota, most: u64, amount: u64) -> Result<(), bool> {
        let Some(length) = quota.window() else { return Ok(()) };
        let now = Instant::now();
        let mut windows = lock(&self.windows);
        if windows.len() >= MANY && !windows.contains_key(id) {
            windows.retain(|_, all| {
                ALL.iter().any(|quota| {
                    quota.window().is_some_and(|length| !all[*quota as usize].is_over(length, now))
                })
            });
        }
        let window = &mut windows.entry(id.to_owned()).or_default()[quota as usize];
        if window.is_over(length, now) {
            *window = Window { began: Some(now), ..Window::default() };
        }
        window.used = window.used.saturating_add(amount);
        match window.used <= most {
            true => Ok(()),
            false => Err(!std::mem::replace(&mut window.told, true)),
        }
    }
}

impl Node {
    /// What bounds an agent now: the configuration, and over it its grant.
    pub fn quotas_of(&self, record: &Record) -> Quotas {
        self.grant_of(record).quotas().over(&self.config().quotas())
    }

    /// How much an agent may use of a quota before the window is over; none: as much as it likes.
    pub fn left_of(&self, record: &Record, quota: Quota) -> Option<u64> {
        let most = self.quotas_of(record).get(quota)?;
        Some(self.meters.left(&record.id, quota, most))
    }

    /// Notes what an agent has used of a quota.
    ///
    /// # Errors
    /// `quota`: that is more than it may.
    pub fn charge(&self, record: &Record, quota: Quota, amount: u64) -> Result<(), CallError> {
        let Some(most) = self.quotas_of(record).get(quota) else { return Ok(()) };
        self.meters.charge(&record.id, quota, most, amount).map_err(|first| {
            if first {
                self.tell_quota(&record.id, quota, most);
            }
            CallError::new("quota", exceeded(quota, most))
        })
    }

    /// What is said of a call that would use more than is left.
    pub fn over(&self, record: &Record, quota: Quota) -> CallError {
        let most = self.quotas_of(record).get(quota).unwrap_or(0);
        if self.meters.is_news(&record.id, quota) {
            self.tell_quota(&record.id, quota, most);
        }
        CallError::new("quota", exceeded(quota, most))
    }

    /// Checks the size of an agent's own directory, with `more` bytes to come.
    ///
    /// # Errors
    /// `quota`: it holds more than it may.
    pub fn check_state(&self, record: &Record, more: u64) -> Result<(), Failure> {
        let Some(most) = self.quotas_of(record).get(Quota::StateBytes) else { return Ok(()) };
        if state_files::measure(record.state_dir(), most).saturating_add(more) <= most {
            return Ok(());
        }
        self.tell_quota(&record.id, Quota::StateBytes, most);
        Err(Failure::new(Code::Quota, format!("{}: {}", record.id, exceeded(Quota::StateBytes, most))))
    }

    /// Ends processes that burn CPU time between hooks.
    pub(super) fn end_what_burns(&self) {
        for record in self.agents() {
            let live = record.life.pid().is_some() && !record.life.is_running();
            let limit = live.then(|| self.quotas_of(&record).get(Quota::Cpu)).flatten();
            if let Some(most) = limit.filter(|most| record.life.end_if_it_burns(Duration::from_secs(*most))) {
                self.tell_quota(&record.id, Quota::Cpu, most);
            }
        }
    }

    /// Says that an agent has used more than it may.
    pub(super) fn tell_quota(&self, id: &str, quota: Quota, most: u64) {
        let name = quota.name();
        let fields = [("agent", id), ("quota", name), ("limit", &most.to_string())];
        self.log.event(Level::Warn, "quota_exceeded", &fields);
        self.journal.note(&Event::new("quota").agent(id).text("quota", name).number("limit", most));
    }
}

/// What is said to whoever used more than it may.
fn exceeded(quota: Quota, most: u64) -> String {
    let what = match quota {
        Quota::Cpu => "more CPU seconds than a hook may take",
        Quota::StateBytes => "its directory holds more bytes than it may",
        Quota::Calls => "more ctx calls than it may make a minute",
        Quota::ReadBytes => "more bytes of files than it may read a minute",
        Quota::HttpBytes => "more bytes of bodies than it may exchange an hour",
        Quota::Memory | Quota::OpenFiles | Quota::FileBytes => "more than its process may have",
    };
    format!("the quota {} is {most}: {what}", quota.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_counts_for_its_window_and_is_told_once() {
        let meters = Meters::default();
        for _ in 0..3 {
            assert_eq!(meters.charge("a", Quota::Calls, 3, 1), Ok(()));
        }
        assert_eq!(meters.left("a", Quota::Calls, 3), 0);
        assert_eq!(meters.charge("a", Quota::Calls, 3, 1), Err(true));
        assert_eq!(meters.charge("a", Quota::Calls, 3, 1), Err(false));
        assert_eq!(meters.charge("b", Quota::Calls, 3, 1), Ok(()));
        assert_eq!((meters.left("a", Quota::ReadBytes, 9), meters.left("a", Quota::Calls, 9)), (9, 4));
        let ago = Instant::now().checked_sub(Duration::from_secs(61)).unwrap();
        lock(&meters.windows).get_mut("a").unwrap()[Quota::Calls as usize].began = Some(ago);
        assert_eq!(meters.left("a", Quota::Calls, 3), 3);
        assert_eq!(meters.charge("a", Quota::Calls, 3, 1), Ok(()));
    }
}
