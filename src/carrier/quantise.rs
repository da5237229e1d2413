//! Probabilities as whole counts that sum to [`TOTAL`], so that the coder works with integers alone.

use super::fsum::fsum;
use super::vocabulary::SIZE;

/// What the counts of all symbols sum to.
pub const TOTAL: u32 = 65_536;

/// Of each symbol the counts of all before it, and [`TOTAL`] last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cumulative([u32; SIZE + 1]);

impl Cumulative {
    /// From the counts.
    pub fn of(counts: &[u32; SIZE]) -> Cumulative {
        let mut below = [0; SIZE + 1];
        for (index, count) in counts.iter().enumerate() {
            below[index + 1] = below[index] + count;
        }
        Cumulative(below)
    }

    /// The counts of the symbols before this one and up to it.
    #[inline(always)]
    pub fn range(&self, symbol: u8) -> (u32, u32) {
        let at = usize::from(symbol & 63);
        (self.0[at], self.0[at + 1])
    }

    /// The last symbol whose part of an interval of that width begins at `offset` or before it.
    ///
    /// It is the one at the place ⌊((offset + 1)·TOTAL − 1)/width⌋ of the counts: ⌊c·width/TOTAL⌋ ≤ offset
    /// says the same of a count c as c ≤ that place, without the division.
    #[inline(always)]
    pub fn symbol_at(&self, offset: u32, width: u64) -> u8 {
        let mut at = 0_usize;
        // Unrolled by hand: the optimiser for size would keep a loop.
        macro_rules! step {
            ($by:expr) => {
                let next = at + $by;
                at =
                    if (u64::from(self.0[next & 63]) * width) >> 16 <= u64::from(offset) { next } else { at };
            };
        }
        step!(32);
        step!(16);
        step!(8);
        step!(4);
        step!(2);
        step!(1);
        at as u8
    }
}

/// Turns probabilities into counts, each at least 1.
///
/// What is not finite or not above 0 counts as 0; if all do, all count the same. Shares are rounded down, and
/// what is missing then is handed out one each to the largest remainders (of equal ones, the first), round and
/// round; what is too much, because small shares are raised to 1, is taken back one each from the smallest.
pub fn quantise(probabilities: &[f64; SIZE]) -> [u32; SIZE] {
    let mut shares = *probabilities;
    let sum = fsum(clear(&mut shares));
    if sum == 0.0 || !sum.is_finite() {
        return [TOTAL / SIZE as u32; SIZE];
    }
    let (mut counts, mut remainders, mut total) = ([0_u32; SIZE], [0_f64; SIZE], 0_u32);
    for index in 0..SIZE {
        let scaled = shares[index] / sum * f64::from(TOTAL);
        let whole = scaled as u32;
        remainders[index] = scaled - f64::from(whole);
        counts[index] = whole.max(1);
        total += counts[index];
    }
    match total.cmp(&TOTAL) {
        std::cmp::Ordering::Less => hand_out(&mut counts, &remainders, TOTAL - total),
        std::cmp::Ordering::Equal => {}
        std::cmp::Ordering::Greater => take_back(&mut counts, &remainders, total - TOTAL),
    }
    counts
}

/// Sets to 0 what is no probability.
fn clear(values: &mut [f64; SIZE]) -> &[f64; SIZE] {
    for value in values.iter_mut() {
        if !(*value > 0.0 && value.is_finite()) {
            *value = 0.0;
        }
    }
    values
}

/// Remainders are below 1, so that their bits sort as they do; the index decides between equal ones.
fn keys(remainders: &[f64; SIZE]) -> [(u64, u8); SIZE] {
    std::array::from_fn(|index| (remainders[index].to_bits(), index as u8))
}

fn hand_out(counts: &mut [u32; SIZE], remainders: &[f64; SIZE], missing: u32) {
    let size = SIZE as u32;
    if missing >= size {
        counts.iter_mut().for_each(|count| *count += missing / size);
    }
    let missing = (missing % size) as usize;
    if missing == 0 {
        return;
    }
    // Only who gets one matters, not in which order: all above a 64th in which the rest is chosen.
    let mut in_part = [0_u8; SIZE];
    let mut sizes = [0_usize; SIZE];
    for (part, remainder) in in_part.iter_mut().zip(remainders) {
        *part = (remainder * 64.0) as u8 & 63;
        sizes[usize::from(*part)] += 1;
    }
    let (mut part, mut left) = (SIZE - 1, missing);
    while sizes[part] < left {
        left -= sizes[part];
        part -= 1;
    }
    for (count, own) in counts.iter_mut().zip(&in_part) {
        *count += u32::from(usize::from(*own) > part);
    }
    for _ in 0..left {
        let mut best = SIZE;
        for index in 0..SIZE {
            let larger = best == SIZE || remainders[index] > remainders[best];
            if usize::from(in_part[index]) == part && larger {
                best = index;
            }
        }
        in_part[best] = u8::MAX;
        counts[best] += 1;
    }
}

fn take_back(counts: &mut [u32; SIZE], remainders: &[f64; SIZE], mut surplus: u32) {
    let mut keys = keys(remainders);
    keys.sort_unstable();
    // Some count is above 1 as long as there is a surplus: the total is above the number of symbols.
    while surplus > 0 {
        for (_, index) in &keys {
            let count = &mut counts[usize::from(*index)];
            if *count > 1 && surplus > 0 {
                *count -= 1;
                surplus -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carrier::chance::Chance;

    fn shares(chance: &mut Chance) -> [f64; SIZE] {
        let power = 1 + chance.below(40) as i32;
        std::array::from_fn(|_| chance.unit().powi(power))
    }

    #[test]
    fn counts_sum_to_the_total_and_none_is_nothing() {
        let mut chance = Chance::new(5);
        for _ in 0..5_000 {
            let counts = quantise(&shares(&mut chance));
            assert_eq!(counts.iter().sum::<u32>(), TOTAL);
            assert!(counts.iter().all(|count| *count >= 1));
        }
    }

    #[test]
    fn what_is_missing_goes_to_the_largest_remainders() {
        let mut chance = Chance::new(15);
        for round in 0..3_000 {
            let mut remainders: [f64; SIZE] = std::array::from_fn(|_| chance.unit());
            if round % 3 == 0 {
                remainders = remainders.map(|value| (value * 5.0).floor() / 5.0);
            }
            let missing = chance.below(200) as u32;
            let mut order: Vec<usize> = (0..SIZE).collect();
            order.sort_by(|a, b| remainders[*b].total_cmp(&remainders[*a]).then(a.cmp(b)));
            let (mut expected, mut counts) = ([1; SIZE], [1; SIZE]);
            (0..missing as usize).for_each(|index| expected[order[index % SIZE]] += 1);
            hand_out(&mut counts, &remainders, missing);
            assert_eq!(counts, expected, "{missing} of {remainders:?}");
        }
    }

    #[test]
    fn what_is_no_probability_counts_as_nothing() {
        let even = [1024; SIZE];
        assert_eq!(quantise(&[0.0; SIZE]), even);
        assert_eq!(quantise(&[f64::NAN; SIZE]), even);
        assert_eq!(quantise(&[-1.0; SIZE]), even);
        let mut one = [0.0; SIZE];
        one[9] = 0.3;
        one[10] = f64::INFINITY;
        let mut counts = [1; SIZE];
        counts[9] = TOTAL - 63;
        assert_eq!(quantise(&one), counts);
    }

    #[test]
    fn equal_remainders_go_by_the_index() {
        let mut three = [0.0; SIZE];
        three[7] = 1.0;
        three[8] = 1.0;
        three[9] = 1.0;
        let counts = quantise(&three);
        // 3 · 21845 + 61 · 1 is 60 too much: taken from those above 1, whose remainders are equal.
        assert_eq!(counts[7..10], [21_825, 21_825, 21_825]);
    }

    #[test]
    fn the_symbol_at_a_place_is_the_one_that_the_division_finds() {
        let mut chance = Chance::new(6);
        for _ in 0..2_000 {
            let table = Cumulative::of(&quantise(&shares(&mut chance)));
            let width = (1 << 30) + 1 + chance.below(3 << 30);
            for _ in 0..50 {
                let offset = chance.below(width);
                let place = ((offset + 1) * u64::from(TOTAL) - 1) / width;
                let symbol = (0..64_u8).find(|symbol| place < u64::from(table.range(*symbol).1));
                assert_eq!(Some(table.symbol_at(offset as u32, width)), symbol, "{offset} of {width}");
            }
        }
    }
}
