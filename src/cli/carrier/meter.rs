//! A line that tells how far a long work is, on a terminal alone.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How long a work lasts before it is told of.
const PATIENCE: Duration = Duration::from_millis(500);

/// How long a line stays.
const REFRESH: Duration = Duration::from_millis(200);

/// The line. It goes when the meter does.
pub struct Meter {
    what: &'static str,
    unit: &'static str,
    shown: Option<Instant>,
    begun: Instant,
    terminal: bool,
}

impl Meter {
    /// For a work that is called so, measured in that unit.
    pub fn new(what: &'static str, unit: &'static str) -> Meter {
        let terminal = std::io::stderr().is_terminal();
        Meter { what, unit, shown: None, begun: Instant::now(), terminal }
    }

    /// Tells how much is done, and of how much; 0: of an unknown number.
    pub fn tell(&mut self, done: u64, of: u64) {
        let since = self.shown.map_or(self.begun.elapsed() >= PATIENCE, |shown| shown.elapsed() >= REFRESH);
        if !self.terminal || !since {
            return;
        }
        self.shown = Some(Instant::now());
        let line = line(self.what, self.unit, done, of, self.begun.elapsed());
        let _ = write!(std::io::stderr(), "\r{line:<78}");
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if self.shown.is_some() {
            let _ = write!(std::io::stderr(), "\r{:78}\r", "");
        }
    }
}

/// The line of a work with several steps: when another step begins, so does its line.
#[derive(Default)]
pub struct Telling {
    meter: Option<Meter>,
}

impl Telling {
    /// Tells what is being done, how much of it is, and of how much.
    pub fn tell(&mut self, what: &'static str, done: u64, of: u64) {
        if self.meter.as_ref().is_none_or(|meter| meter.what != what) {
            // The old line goes first.
            self.meter = None;
        }
        let unit = if matches!(what, "training") { "characters" } else { "bytes" };
        self.meter.get_or_insert_with(|| Meter::new(what, unit)).tell(done, of);
    }
}

fn line(what: &str, unit: &str, done: u64, of: u64, time: Duration) -> String {
    if of == 0 || done == 0 {
        return format!("{what}: {done} {unit}");
    }
    let left = time.as_secs_f64() * (of.saturating_sub(done) as f64 / done as f64);
    format!("{what}: {done} of {of} {unit}, {} %, about {left:.0} s left", done * 100 / of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_far_and_how_long() {
        let time = Duration::from_secs(10);
        assert_eq!(line("encoding", "bytes", 0, 10, time), "encoding: 0 bytes");
        assert_eq!(line("encoding", "bytes", 25, 0, time), "encoding: 25 bytes");
        assert_eq!(
            line("encoding", "bytes", 25, 100, time),
            "encoding: 25 of 100 bytes, 25 %, about 30 s left"
        );
    }
}
