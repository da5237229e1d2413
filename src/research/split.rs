//! A text in two: lines to train with, and lines held out.

use crate::carrier::chance::Chance;
use crate::carrier::vocabulary;

/// Both parts, their lines in the order of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// To train with.
    pub train: String,
    /// How many lines that is.
    pub train_lines: usize,
    /// Held out.
    pub held_out: String,
    /// How many lines that is.
    pub held_out_lines: usize,
}

/// Draws the lines that are held out: their share is `ratio`, rounded, and neither part is empty. With `filter` what is
/// outside the vocabulary is left out, and so are lines of which nothing is left. Empty lines are no lines.
///
/// # Errors
/// A ratio that is not between 0 and 1; fewer than two lines.
pub fn split(text: &str, ratio: f64, seed: u64, filter: bool) -> Result<Parts, String> {
    if !(ratio > 0.0 && ratio < 1.0) {
        return Err(format!("the held-out ratio is above 0 and below 1, not {ratio}"));
    }
    let kept = |line: &str| -> String {
        line.chars()
            .filter(|c| !filter || c.is_ascii() && vocabulary::index(*c as u8) != vocabulary::NONE)
            .collect()
    };
    let lines: Vec<String> = text.lines().map(kept).filter(|line| !line.trim().is_empty()).collect();
    if lines.len() < 2 {
        return Err(format!("two lines are needed to split a text, it has {}", lines.len()));
    }
    let wanted = (lines.len() as f64 * ratio).round() as usize;
    let wanted = wanted.clamp(1, lines.len() - 1);
    let mut chance = Chance::new(seed);
    let mut order: Vec<usize> = (0..lines.len()).collect();
    for at in 0..wanted {
        let other = at + chance.below((order.len() - at) as u64) as usize;
        order.swap(at, other);
    }
    let mut is_held_out = vec![false; lines.len()];
    for at in &order[..wanted] {
        is_held_out[*at] = true;
    }
    let mut parts = Parts {
        train: String::new(),
        train_lines: lines.len() - wanted,
        held_out: String::new(),
        held_out_lines: wanted,
    };
    for (line, held_out) in lines.iter().zip(is_held_out) {
        let part = if held_out { &mut parts.held_out } else { &mut parts.train };
        part.push_str(line);
        part.push('\n');
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_in_one_part_and_neither_is_empty() {
        let text: String = (0..100).map(|line| format!("line {line}\n")).collect();
        let parts = split(&text, 0.2, 7, false).unwrap();
        assert_eq!((parts.train_lines, parts.held_out_lines), (80, 20));
        let mut all: Vec<&str> = parts.train.lines().chain(parts.held_out.lines()).collect();
        all.sort_unstable();
        let mut wanted: Vec<&str> = text.lines().collect();
        wanted.sort_unstable();
        assert_eq!(all, wanted);
        assert_eq!(parts, split(&text, 0.2, 7, false).unwrap());
        assert_ne!(parts, split(&text, 0.2, 8, false).unwrap());
        for ratio in [1e-9, 0.999_999] {
            let parts = split("a\nb\nc", ratio, 0, false).unwrap();
            assert!(parts.train_lines > 0 && parts.held_out_lines > 0, "{parts:?}");
        }
    }

    #[test]
    fn what_is_outside_the_vocabulary_goes_if_asked() {
        let text = "caf\u{e9}, yes!\r\n---\n\nplain\n";
        let all = split(text, 0.5, 1, true).unwrap();
        let mut lines: Vec<&str> = all.train.lines().chain(all.held_out.lines()).collect();
        lines.sort_unstable();
        assert_eq!(lines, ["caf yes", "plain"]);
        let kept = split(text, 0.5, 1, false).unwrap();
        assert_eq!(kept.train_lines + kept.held_out_lines, 3);
        for (text, ratio) in [("one\n", 0.5), ("", 0.5), ("a\nb", 0.0), ("a\nb", 1.0), ("a\nb", f64::NAN)] {
            assert!(split(text, ratio, 1, true).is_err(), "{text:?} {ratio}");
        }
    }
}
