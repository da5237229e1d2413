//! Shaping: what is done to a model's probabilities before they become counts.
//!
//! In this order: a temperature, a share of the even distribution, a floor; and a guard that refuses a
//! distribution of too little entropy. Settings that are not the default travel in the armour.

use super::fsum::fsum;
use super::vocabulary::SIZE;
use super::{float_text, math, CarrierError};

/// The settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// The share of the even distribution, 0 to 1 (0).
    pub uniform_mix: f64,
    /// Above 1 flattens, below 1 sharpens; above 0 (1).
    pub temperature: f64,
    /// What every probability is raised to, before all are normalised again; from 0 on (0). From 1 on none is above
    /// it, and the distribution is even.
    pub min_probability: f64,
    /// The entropy below which a distribution is refused, in bits, not below 0 (0).
    pub min_entropy_bits: f64,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape { uniform_mix: 0.0, temperature: 1.0, min_probability: 0.0, min_entropy_bits: 0.0 }
    }
}

/// The settings' names in the armour.
const NAMES: [&str; 4] = ["SHAPE_UNIFORM_MIX", "TEMPERATURE", "MIN_PROB", "MIN_ENTROPY_BITS"];

impl Shape {
    /// The highest floor: 64 of it have a sum still. The reference's command breaks off where they have none.
    pub const MAX_MIN_PROBABILITY: f64 = 2.8e306;

    /// Refuses settings that make no sense.
    ///
    /// # Errors
    /// The first that is out of its bounds.
    pub fn check(&self) -> Result<(), CarrierError> {
        let wrong = |what: &str, value: f64| {
            Err(CarrierError::Settings(format!("{what}, not {}", float_text::repr(value))))
        };
        if !(0.0..=1.0).contains(&self.uniform_mix) {
            return wrong("the uniform mix is from 0 to 1", self.uniform_mix);
        }
        if !(self.temperature > 0.0 && self.temperature.is_finite()) {
            return wrong("the temperature is above 0 and finite", self.temperature);
        }
        if !(self.min_probability >= 0.0 && self.min_probability <= Self::MAX_MIN_PROBABILITY) {
            return wrong("the least probability is from 0 to 2.8e306", self.min_probability);
        }
        if !(self.min_entropy_bits >= 0.0 && self.min_entropy_bits.is_finite()) {
            return wrong("the least entropy is from 0 on and finite", self.min_entropy_bits);
        }
        Ok(())
    }

    /// Those that are not the default, as they stand in the armour.
    pub fn settings(&self) -> String {
        let (own, default) = (self.values(), Shape::default().values());
        let changed = NAMES.iter().zip(own).zip(default).filter(|((_, own), default)| own != default);
        changed.map(|((name, own), _)| format!("; {name}={}", float_text::exact(own))).collect()
    }

    /// Sets one from the armour; whether it is one of these.
    ///
    /// # Errors
    /// Its value is no number.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool, CarrierError> {
        let field = match NAMES.iter().position(|known| *known == name) {
            Some(0) => &mut self.uniform_mix,
            Some(1) => &mut self.temperature,
            Some(2) => &mut self.min_probability,
            Some(_) => &mut self.min_entropy_bits,
            None => return Ok(false),
        };
        *field =
            value.parse().map_err(|_| CarrierError::Settings(format!("{name} is no number: {value:?}")))?;
        Ok(true)
    }

    fn values(&self) -> [f64; 4] {
        [self.uniform_mix, self.temperature, self.min_probability, self.min_entropy_bits]
    }

    /// Shapes a distribution in place.
    ///
    /// # Errors
    /// Its entropy is below the guard.
    pub fn apply(&self, shares: &mut [f64; SIZE]) -> Result<(), CarrierError> {
        normalise(shares);
        if self.temperature != 1.0 {
            let power = 1.0 / self.temperature;
            for share in shares.iter_mut() {
                *share = math::pow(*share, power);
            }
            normalise(shares);
        }
        if self.uniform_mix != 0.0 {
            let (own, even) = (1.0 - self.uniform_mix, self.uniform_mix / SIZE as f64);
            for share in shares.iter_mut() {
                *share = own * *share + even;
            }
        }
        if self.min_probability > 0.0 {
            for share in shares.iter_mut() {
                *share = share.max(self.min_probability);
            }
            normalise(shares);
        }
        if self.min_entropy_bits > 0.0 && entropy_bits(shares) + 1e-12 < self.min_entropy_bits {
            return Err(CarrierError::Entropy);
        }
        Ok(())
    }
}

/// Divides by the exact sum; all nothing becomes all the same.
fn normalise(shares: &mut [f64; SIZE]) {
    for share in shares.iter_mut() {
        if !(*share > 0.0 && share.is_finite()) {
            *share = 0.0;
        }
    }
    let sum = fsum(shares);
    if sum == 0.0 || !sum.is_finite() {
        *shares = [1.0 / SIZE as f64; SIZE];
        return;
    }
    for share in shares.iter_mut() {
        *share /= sum;
    }
}

/// The entropy of a distribution, in bits.
pub fn entropy_bits(shares: &[f64]) -> f64 {
    -shares.iter().filter(|share| **share > 0.0).map(|share| share * math::log2(*share)).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        let with = |change: fn(&mut Shape)| {
            let mut shape = Shape::default();
            change(&mut shape);
            shape.check()
        };
        assert_eq!(with(|_| ()), Ok(()));
        for (change, what) in [
            ((|s| s.uniform_mix = 1.5) as fn(&mut Shape), "uniform mix"),
            (|s| s.uniform_mix = f64::NAN, "uniform mix"),
            (|s| s.temperature = 0.0, "temperature"),
            (|s| s.temperature = f64::INFINITY, "temperature"),
            (|s| s.min_probability = -0.1, "least probability"),
            (|s| s.min_probability = f64::NAN, "least probability"),
            (|s| s.min_probability = f64::INFINITY, "least probability"),
            (|s| s.min_probability = 1e307, "least probability"),
            (|s| s.min_entropy_bits = -1.0, "least entropy"),
        ] {
            let why = with(change).unwrap_err().to_string();
            assert!(why.starts_with("invalid settings: ") && why.contains(what), "{why}");
        }
    }

    #[test]
    fn a_distribution_of_too_little_entropy_is_refused() {
        let mut shares = [0.0; SIZE];
        shares[0] = 1.0;
        let shape = Shape { min_entropy_bits: 0.5, ..Shape::default() };
        assert_eq!(shape.apply(&mut shares), Err(CarrierError::Entropy));
        let mut even = [3.0; SIZE];
        let shape = Shape { min_entropy_bits: 6.0, ..Shape::default() };
        assert_eq!(shape.apply(&mut even), Ok(()));
        assert_eq!(even, [1.0 / 64.0; SIZE]);
    }

    #[test]
    fn a_floor_above_every_probability_makes_them_even() {
        for floor in [1.0, 2.0, 1e9, Shape::MAX_MIN_PROBABILITY] {
            let shape = Shape { min_probability: floor, ..Shape::default() };
            assert_eq!(shape.check(), Ok(()));
            let mut shares = [0.0; SIZE];
            shares[7] = 1.0;
            assert_eq!(shape.apply(&mut shares), Ok(()));
            assert_eq!(shares, [1.0 / 64.0; SIZE], "{floor}");
        }
    }

    #[test]
    fn the_armours_settings_read_back() {
        let shape =
            Shape { uniform_mix: 0.8, temperature: 1.25, min_probability: 1e-5, min_entropy_bits: 3.0 };
        let text = shape.settings();
        assert_eq!(
            text,
            "; SHAPE_UNIFORM_MIX=0.80000000000000004; TEMPERATURE=1.25; MIN_PROB=1.0000000000000001e-05; \
             MIN_ENTROPY_BITS=3"
        );
        let mut read = Shape::default();
        for setting in text.split("; ").skip(1) {
            let (name, value) = setting.split_once('=').unwrap();
            assert!(read.set(name, value).unwrap());
        }
        assert_eq!(read, shape);
        assert_eq!(Shape::default().settings(), "");
    }
}
