//! The options that commands share: a model, and how it is shaped.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::args::{option, Flag, Given};
use crate::carrier::{Model, Shape};

pub(super) const MODEL: Flag =
    option("model", "FILE", "the model, as train writes it; without it the fixed one");
pub(super) const TOPK: Flag = option("topk", "N", "0, which is all there is");
pub(super) const MIX: Flag =
    option("shape-uniform-mix", "U", "the share of the even distribution, 0 to 1 (0)");
pub(super) const TEMPERATURE: Flag = option("temperature", "T", "above 1 flattens, below sharpens (1)");
pub(super) const MIN_PROB: Flag = option("min-prob", "P", "what every probability is raised to (0)");
pub(super) const MIN_ENTROPY: Flag =
    option("min-entropy-bits", "B", "refuse distributions of less entropy than this (0)");

/// The numbers that shape, and their bounds.
pub(super) const SHAPING: [(Flag, &str); 4] = [
    (MIX, "from 0 to 1"),
    (TEMPERATURE, "above 0"),
    (MIN_PROB, "from 0 to 2.8e306"),
    (MIN_ENTROPY, "from 0 on"),
];

/// The model that is given.
pub(super) fn model(given: &Given) -> Result<Model, String> {
    match given.path(MODEL.name) {
        None => Ok(Model::Fixed),
        Some(path) => Model::read(&path).map_err(|why| why.to_string()),
    }
}

/// The shape that is given; none if no option says anything of it.
pub(super) fn shape(given: &Given) -> Result<Option<Shape>, String> {
    if let Some(top) = given.text(TOPK.name)?.filter(|top| top.trim().parse() != Ok(0_u64)) {
        return Err(format!("invalid settings: --topk is 0 here, not {top:?}"));
    }
    let mut shape = Shape::default();
    let mut any = false;
    let fields = [
        &mut shape.uniform_mix,
        &mut shape.temperature,
        &mut shape.min_probability,
        &mut shape.min_entropy_bits,
    ];
    for ((flag, bounds), field) in SHAPING.iter().zip(fields) {
        let value = real(given, flag.name, bounds).map_err(|why| format!("invalid settings: {why}"))?;
        if let Some(value) = value {
            *field = value;
            any = true;
        }
    }
    shape.check().map_err(|why| why.to_string())?;
    Ok(any.then_some(shape))
}

/// The value of an option, a whole number.
pub(super) fn whole<T: FromStr + PartialOrd + Display>(
    given: &Given,
    name: &str,
    bounds: RangeInclusive<T>,
) -> Result<Option<T>, String> {
    let Some(text) = given.text(name)? else { return Ok(None) };
    match text.trim().parse().ok().filter(|number| bounds.contains(number)) {
        Some(number) => Ok(Some(number)),
        None => {
            let (least, most) = bounds.into_inner();
            Err(format!("--{name} needs a whole number from {least} to {most}, not {text:?}"))
        }
    }
}

/// The value of an option, any finite number; whoever takes it looks at its bounds, which are named here.
pub(super) fn real(given: &Given, name: &str, bounds: &str) -> Result<Option<f64>, String> {
    let Some(text) = given.text(name)? else { return Ok(None) };
    match finite(&text) {
        Some(number) => Ok(Some(number)),
        None => Err(format!("--{name} needs a finite number {bounds}, not {text:?}")),
    }
}

/// A number that is neither infinite nor none.
pub(super) fn finite(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|number: &f64| number.is_finite())
}
