//! How much one agent may say to the log: much at once, little in the long run, the rest is counted.

use crate::sync::lock;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// What may be said at once, bytes, and what is added to it each second, up to that.
const BURST: u64 = 256 << 10;
const PER_SECOND: u64 = 8 << 10;
const NANOS_A_BYTE: u64 = 1_000_000_000 / PER_SECOND;
/// What a line costs beside its text: its time, the node, the agent.
const LINE: u64 = 64;
/// How much must have come together before one who said too much is heard again, so that the log is not
/// half of notes about what it lacks.
const REOPENS: u64 = 64 << 10;

/// What one agent has said lately. It outlives the agent's process.
#[derive(Debug)]
pub struct Throttle {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Bytes that may be said now, and when that was reckoned.
    room: u64,
    at: Instant,
    left_out: LeftOut,
}

/// What was not let through since the last line that was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Lines.
    pub lines: u64,
    /// Bytes of text.
    pub bytes: u64,
}

impl Default for Throttle {
    fn default() -> Self {
        let state = State { room: BURST, at: Instant::now(), left_out: LeftOut::default() };
        Throttle { state: Mutex::new(state) }
    }
}

impl Throttle {
    /// Whether a line of `bytes` may be said; if so, what was left out before it.
    pub fn admit(&self, bytes: usize) -> Option<LeftOut> {
        lock(&self.state).admit(bytes as u64, Instant::now())
    }

    /// What was left out and not told yet; from now on it counts as told.
    pub fn untold(&self) -> LeftOut {
        std::mem::take(&mut lock(&self.state).left_out)
    }
}

impl State {
    fn admit(&mut self, bytes: u64, now: Instant) -> Option<LeftOut> {
        let passed = now.saturating_duration_since(self.at);
        // Up to an hour, which fills it many times over.
        let nanos = passed.min(Duration::from_secs(3600)).as_nanos() as u64;
        let gained = nanos / NANOS_A_BYTE;
        self.room = (self.room + gained).min(BURST);
        // What did not make a whole byte yet is not lost.
        self.at += passed - Duration::from_nanos(nanos - gained * NANOS_A_BYTE);
        let closed = self.left_out != LeftOut::default();
        let needed = (bytes + LINE).max(if closed { REOPENS } else { 0 });
        if self.room < needed.min(BURST) {
            self.left_out.lines += 1;
            self.left_out.bytes += bytes;
            return None;
        }
        self.room = self.room.saturating_sub(bytes + LINE);
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn much_is_said_at_once_little_in_the_long_run_and_the_rest_is_counted() {
        let start = Instant::now();
        let mut state = State { room: BURST, at: start, left_out: LeftOut::default() };
        // An hour of a line of 100 bytes each millisecond.
        let (mut lines, mut notes, mut left_out) = (0u64, 0u64, 0u64);
        for millisecond in 0..3_600_000u64 {
            if let Some(left) = state.admit(100, start + Duration::from_millis(millisecond)) {
                lines += 1;
                notes += u64::from(left.lines > 0);
                left_out += left.lines;
                assert_eq!(left.bytes, left.lines * 100);
            }
        }
        let said = lines * (100 + LINE);
        assert!(said > 3_500 * PER_SECOND && said <= BURST + 3_601 * PER_SECOND, "{said}");
        assert_eq!(lines + left_out + state.left_out.lines, 3_600_000);
        assert!(notes < lines / 100, "{notes} notes among {lines} lines");
    }

    #[test]
    fn who_says_little_is_never_cut_and_one_line_of_any_length_passes() {
        let start = Instant::now();
        let mut state = State { room: BURST, at: start, left_out: LeftOut::default() };
        for second in 0..10_000 {
            let now = start + Duration::from_millis(second * 1000 + second % 7);
            assert_eq!(state.admit(4000, now), Some(LeftOut::default()));
        }
        assert!(state.admit(BURST * 3, start + Duration::from_secs(20_000)).is_some());
        // A clock that stands or goes back gains nothing and breaks nothing.
        assert!(state.admit(1, start).is_none());
    }
}
