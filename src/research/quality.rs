//! What a model says of a text, and how a carrier's characters are spread. The formulas stand in
//! `docs/CARRIERS.md`.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::carrier::{math, shaping, vocabulary, CarrierError, Model, Shape};

/// How many characters a sample has.
pub const SAMPLE_CHARS: usize = 80;

/// Averages over the characters of a held-out text that are in the vocabulary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeldOut {
    /// How many characters.
    pub tokens: u64,
    /// Average negative log-likelihood, bits a character.
    pub nll_bits: f64,
    /// Average entropy of the shaped distributions, bits.
    pub entropy_bits: f64,
    /// Average probability of the likeliest character, 0 to 1.
    pub top_probability: f64,
}

impl HeldOut {
    /// Reads a text with a model whose distributions are shaped; the entropy guard is off, for it is the entropy that
    /// is looked at. `progress` is told how many bytes are done, and of how many.
    ///
    /// # Errors
    /// The text has no character of the vocabulary.
    pub fn of(
        model: &Model,
        shape: &Shape,
        text: &[u8],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<HeldOut, CarrierError> {
        let shape = Shape { min_entropy_bits: 0.0, ..*shape };
        let mut reading = model.reading();
        let (mut tokens, mut nll, mut entropy, mut top) = (0_u64, 0.0, 0.0, 0.0);
        for (at, byte) in text.iter().enumerate() {
            let symbol = vocabulary::index(*byte);
            if symbol == vocabulary::NONE {
                continue;
            }
            let mut shares = reading.probabilities();
            shape.apply(&mut shares)?;
            // A sharp temperature may leave nothing of a share; its logarithm has to stay a number.
            nll -= math::log2(shares[usize::from(symbol)].max(f64::MIN_POSITIVE));
            entropy += shaping::entropy_bits(&shares);
            top += shares.iter().copied().fold(0.0, f64::max);
            tokens += 1;
            reading.advance(symbol);
            if at % 4096 == 0 {
                progress(at as u64, text.len() as u64);
            }
        }
        if tokens == 0 {
            return Err(CarrierError::Io("the quality text has no characters of the vocabulary".into()));
        }
        let count = tokens as f64;
        Ok(HeldOut {
            tokens,
            nll_bits: nll / count,
            entropy_bits: entropy / count,
            top_probability: top / count,
        })
    }
}

/// How often each character of a text stands in it.
pub type Frequencies = BTreeMap<char, u64>;

/// How a carrier's characters are spread.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diversity {
    /// How many different characters there are.
    pub unique_character_count: u64,
    /// How often each stands in the carrier.
    pub character_frequency: Frequencies,
    /// The longest run of one character.
    pub longest_repeated_run: u64,
    /// The sum of the differences between the shares here and in the held-out text, 0 to 2.
    pub char_frequency_l1_divergence: Option<f64>,
    /// How far the shares are from those of the held-out text, in bits; both with one more of each character.
    pub char_frequency_kl_bits: Option<f64>,
    /// How it begins.
    pub preview_sample: String,
}

/// Looks at a carrier that comes in parts.
#[derive(Clone, Debug)]
pub struct Counter {
    counts: [u64; 256],
    run: u64,
    longest: u64,
    last: Option<u8>,
    sample: String,
}

impl Default for Counter {
    fn default() -> Counter {
        Counter { counts: [0; 256], run: 0, longest: 0, last: None, sample: String::new() }
    }
}

impl Counter {
    /// Takes the next characters, ASCII.
    pub fn take(&mut self, text: &[u8]) {
        for byte in text {
            self.counts[usize::from(*byte)] += 1;
            self.run = if self.last == Some(*byte) { self.run + 1 } else { 1 };
            self.longest = self.longest.max(self.run);
            self.last = Some(*byte);
        }
        let missing = SAMPLE_CHARS - self.sample.len().min(SAMPLE_CHARS);
        self.sample.extend(text.iter().take(missing).map(|byte| char::from(*byte)));
    }

    /// What was seen, beside a held-out text if there is one.
    pub fn finish(self, reference: Option<&Frequencies>) -> Diversity {
        let seen = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        let frequencies: Frequencies = seen.map(|(byte, count)| (char::from(byte as u8), *count)).collect();
        Diversity {
            unique_character_count: frequencies.len() as u64,
            char_frequency_l1_divergence: reference.map(|reference| l1(&frequencies, reference)),
            char_frequency_kl_bits: reference.map(|reference| kl_bits(&frequencies, reference)),
            character_frequency: frequencies,
            longest_repeated_run: self.longest,
            preview_sample: self.sample,
        }
    }
}

/// Counts the characters of a held-out text: all of them, line ends and those outside the vocabulary too.
pub fn frequencies(text: &str) -> Frequencies {
    let mut found = Frequencies::new();
    for character in text.chars() {
        *found.entry(character).or_insert(0) += 1;
    }
    found
}

/// The characters of either, with how often they stand in each.
fn pairs<'a>(left: &'a Frequencies, right: &'a Frequencies) -> impl Iterator<Item = (f64, f64)> + 'a {
    let only_right = right.keys().filter(|character| !left.contains_key(character));
    left.keys().chain(only_right).map(|character| {
        let count = |of: &Frequencies| of.get(character).map_or(0.0, |count| *count as f64);
        (count(left), count(right))
    })
}

fn total(of: &Frequencies) -> f64 {
    of.values().sum::<u64>() as f64
}

/// The sum of the differences between the shares; 2 if only one text has characters, 0 if none has.
pub fn l1(left: &Frequencies, right: &Frequencies) -> f64 {
    match (total(left), total(right)) {
        (0.0, 0.0) => 0.0,
        (0.0, _) | (_, 0.0) => 2.0,
        (all_left, all_right) => {
            pairs(left, right).map(|(left, right)| (left / all_left - right / all_right).abs()).sum()
        }
    }
}

/// The Kullback-Leibler divergence of the left shares from the right ones in bits, each character counted once more.
pub fn kl_bits(left: &Frequencies, right: &Frequencies) -> f64 {
    let kinds = pairs(left, right).count() as f64;
    let (all_left, all_right) = (total(left) + kinds, total(right) + kinds);
    let part = |(left, right): (f64, f64)| {
        let (left, right) = ((left + 1.0) / all_left, (right + 1.0) / all_right);
        left * math::log2(left / right)
    };
    // Rounding may leave a little less than nothing.
    pairs(left, right).map(part).sum::<f64>().max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divergences_are_those_of_the_formulas() {
        for (left, right, l1_wanted, kl_wanted) in [
            ("aabbb", "abc", 2.0 / 3.0, 0.179_323_438_491_598),
            ("aabbb", "", 2.0, 0.014_771_863_965_748),
            ("a", "abc", 4.0 / 3.0, 0.084_962_500_721_156),
            ("hello world", "abc", 2.0, 0.336_781_826_245_919),
            ("", "abc", 2.0, 0.0),
            ("hello world", "hello  there\n", 120.0 / 143.0, 0.182_443_937_868_453),
            ("", "", 0.0, 0.0),
            ("abab", "ab", 0.0, 0.0),
        ] {
            let (left, right) = (frequencies(left), frequencies(right));
            assert!((l1(&left, &right) - l1_wanted).abs() < 1e-12, "{left:?} {right:?}");
            assert!((kl_bits(&left, &right) - kl_wanted).abs() < 1e-12, "{left:?} {right:?}");
        }
    }

    #[test]
    fn runs_go_on_over_the_parts() {
        let mut counter = Counter::default();
        for part in [&b"abb"[..], b"", b"bb", b"a"] {
            counter.take(part);
        }
        let seen = counter.finish(None);
        assert_eq!((seen.longest_repeated_run, seen.unique_character_count), (4, 2));
        assert_eq!((&*seen.preview_sample, seen.char_frequency_kl_bits), ("abbbba", None));
        let mut long = Counter::default();
        long.take(&[b'a'; 79]);
        long.take(b"bcd");
        assert!(long.finish(None).preview_sample.ends_with("ab"));
    }

    #[test]
    fn the_fixed_model_has_six_bits_everywhere() {
        let seen = HeldOut::of(&Model::Fixed, &Shape::default(), b"hello!\nworld", &mut |_, _| ()).unwrap();
        let wanted = HeldOut { tokens: 10, nll_bits: 6.0, entropy_bits: 6.0, top_probability: 1.0 / 64.0 };
        assert_eq!(seen, wanted);
        let why = HeldOut::of(&Model::Fixed, &Shape::default(), b"!?\n", &mut |_, _| ()).unwrap_err();
        assert_eq!(why.to_string(), "the quality text has no characters of the vocabulary");
    }
}
