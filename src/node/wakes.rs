//! Messages to an agent that nobody waits for (`ctx.wake`), delivered one after the other.

use crate::sync::lock;
use std::collections::VecDeque;
use std::sync::Mutex;

/// What waits for one generation of an agent.
#[derive(Default)]
pub(super) struct Wakes(Mutex<State>);

#[derive(Default)]
struct State {
    messages: VecDeque<String>,
    /// Whether somebody delivers them.
    delivering: bool,
}

/// What became of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Put {
    /// Too many wait.
    Full,
    /// It waits; somebody delivers.
    Waits,
    /// It waits, and the caller has to see that somebody delivers.
    First,
}

impl Wakes {
    /// Puts a message behind those that wait, of which there may be `most`.
    pub(super) fn put(&self, message: String, most: usize) -> Put {
        let mut state = lock(&self.0);
        if state.messages.len() >= most {
            return Put::Full;
        }
        state.messages.push_back(message);
        match std::mem::replace(&mut state.delivering, true) {
            true => Put::Waits,
            false => Put::First,
        }
    }

    /// The next one; after `None` nobody delivers any more.
    pub(super) fn next(&self) -> Option<String> {
        let mut state = lock(&self.0);
        let next = state.messages.pop_front();
        state.delivering = next.is_some();
        next
    }

    /// Drops what waits: nobody could be found to deliver it.
    pub(super) fn forget(&self) {
        *lock(&self.0) = State::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_delivers_all_and_whoever_comes_later_finds_another() {
        let wakes = Wakes::default();
        assert_eq!(wakes.put("a".into(), 2), Put::First);
        assert_eq!(wakes.put("b".into(), 2), Put::Waits);
        assert_eq!(wakes.put("c".into(), 2), Put::Full);
        assert_eq!(wakes.next().as_deref(), Some("a"));
        assert_eq!(wakes.put("c".into(), 2), Put::Waits);
        assert_eq!([wakes.next().as_deref(), wakes.next().as_deref()], [Some("b"), Some("c")]);
        assert_eq!(wakes.next(), None);
        assert_eq!(wakes.put("d".into(), 2), Put::First);
        wakes.forget();
        assert_eq!(wakes.put("e".into(), 2), Put::First);
    }
}
