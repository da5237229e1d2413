//! How many events of a kind that strangers can cause are noted.

use std::time::{Duration, Instant};

/// How many in each [`WINDOW`].
const MOST: u32 = 20;
const WINDOW: Duration = Duration::from_secs(1);

/// Lets so many through in each window, and counts the others.
pub(super) struct Bound {
    since: Instant,
    noted: u32,
    left_out: u64,
}

impl Bound {
    pub(super) fn new() -> Bound {
        Bound { since: Instant::now(), noted: 0, left_out: 0 }
    }

    /// Whether one more is noted now.
    pub(super) fn lets_through(&mut self) -> bool {
        if self.noted < MOST {
            self.noted += 1;
            return true;
        }
        self.left_out += 1;
        false
    }

    /// Begins the next window if this one is over (or `now`). How many were left out in it.
    pub(super) fn turn(&mut self, now: bool) -> u64 {
        if !now && self.since.elapsed() < WINDOW {
            return 0;
        }
        self.since = Instant::now();
        self.noted = 0;
        std::mem::take(&mut self.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_is_counted() {
        let mut bound = Bound::new();
        let through = (0..1000).filter(|_| bound.lets_through()).count();
        assert_eq!((through, bound.turn(true), bound.turn(true)), (20, 980, 0));
        assert!(bound.lets_through());
    }
}
