//! The exact sum of floating-point numbers, rounded once, as Python's `math.fsum` gives it.
//!
//! Where the numbers allow it they are added as integers of 128 bits; a test compares that with the
//! general way, which keeps the sum as numbers that do not overlap (Shewchuk 1997).

/// The unit of the integers is 2^-UNIT.
const UNIT: i32 = 116;

/// The exact sum, rounded to nearest, ties to even. All have to be finite and not below 0.
pub fn fsum(values: &[f64]) -> f64 {
    as_integers(values).unwrap_or_else(|| general(values))
}

/// The sum of numbers below 2^4 that are multiples of 2^-UNIT, up to 128 of them.
#[inline]
fn as_integers(values: &[f64]) -> Option<f64> {
    if values.len() > 128 {
        return None;
    }
    let mut sum = 0_u128;
    for value in values {
        let bits = value.to_bits();
        let exponent = (bits >> 52) as i32;
        if exponent == 0 && bits << 1 == 0 {
            continue;
        }
        let shift = exponent - 1075 + UNIT;
        // Below 2^4, and no digit below the unit; a sign makes the exponent too large.
        if shift < 0 || exponent >= 1023 + 4 {
            return None;
        }
        sum += u128::from(bits & ((1 << 52) - 1) | 1 << 52) << shift;
    }
    // The conversion rounds to nearest, ties to even; the scale is a power of two.
    Some(sum as f64 * f64::from_bits(((1023 - UNIT) as u64) << 52))
}

fn general(values: &[f64]) -> f64 {
    let mut partials: Vec<f64> = Vec::new();
    for value in values {
        let mut carried = *value;
        let mut kept = 0;
        for at in 0..partials.len() {
            let (large, small) = match carried.abs() < partials[at].abs() {
                true => (partials[at], carried),
                false => (carried, partials[at]),
            };
            let high = large + small;
            let low = small - (high - large);
            if low != 0.0 {
                partials[kept] = low;
                kept += 1;
            }
            carried = high;
        }
        partials.truncate(kept);
        partials.push(carried);
    }
    rounded(&partials)
}

/// The sum of numbers that do not overlap, the largest last.
fn rounded(partials: &[f64]) -> f64 {
    let Some((last, mut rest)) = partials.split_last() else { return 0.0 };
    let (mut high, mut low) = (*last, 0.0);
    while let Some((next, before)) = rest.split_last() {
        rest = before;
        let larger = high;
        high = larger + next;
        low = next - (high - larger);
        if low != 0.0 {
            break;
        }
    }
    // Half a unit left over: what stands below decides, and the addition above did not see it.
    if let Some(next) = rest.last() {
        if (low < 0.0 && *next < 0.0) || (low > 0.0 && *next > 0.0) {
            let twice = low * 2.0;
            let sum = high + twice;
            if twice == sum - high {
                high = sum;
            }
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carrier::chance::Chance;

    #[test]
    fn both_ways_agree() {
        let mut chance = Chance::new(11);
        for round in 0..20_000 {
            let count = 1 + chance.below(64) as usize;
            let power = 1 + chance.below(30) as i32;
            let values: Vec<f64> = (0..count).map(|_| chance.unit().powi(power)).collect();
            let sum = fsum(&values);
            assert_eq!(sum.to_bits(), general(&values).to_bits(), "round {round}: {values:?}");
        }
    }

    #[test]
    fn the_sum_is_rounded_once() {
        assert_eq!(fsum(&[0.1; 10]), 1.0);
        assert_eq!(fsum(&[]), 0.0);
        // Half a unit, and a little more: the little decides.
        let half = f64::EPSILON / 2.0;
        assert_eq!(fsum(&[1.0, half, 1e-300]), 1.0 + f64::EPSILON);
        assert_eq!(fsum(&[1.0, half]), 1.0);
        assert_eq!(general(&[1.0, half]), 1.0);
        assert_eq!(fsum(&[1e300, 1e-300, 5e-324]), 1e300);
    }
}
