//! The options that commands share: a model, and how it is shaped.

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

/// The model that is given.
pub(super) fn model(given: &Given) -> Result<Model, String> {
    match given.path(MODEL.name) {
        None => Ok(Model::Fixed),
        Some(path) => Model::read(&path).map_err(|why| why.to_string()),
    }
}

/// The shape that is given; none if no option says anything of it.
pub(super) fn shape(given: &Given) -> Result<Option<Shape>, String> {
    if number::<u64>(given, TOPK.name)?.is_some_and(|top| top != 0) {
        return Err("invalid settings: --topk is 0 here".into());
    }
    let mut shape = Shape::default();
    let mut any = false;
    for (flag, field) in [
        (MIX, &mut shape.uniform_mix),
        (TEMPERATURE, &mut shape.temperature),
        (MIN_PROB, &mut shape.min_probability),
        (MIN_ENTROPY, &mut shape.min_entropy_bits),
    ] {
        if let Some(value) = number(given, flag.name)? {
            *field = value;
            any = true;
        }
    }
    shape.check().map_err(|why| why.to_string())?;
    Ok(any.then_some(shape))
}

/// The value of an option, a number.
pub(super) fn number<T: std::str::FromStr>(given: &Given, name: &str) -> Result<Option<T>, String> {
    let Some(text) = given.text(name)? else { return Ok(None) };
    let parsed = text.trim().parse();
    parsed.map(Some).map_err(|_| format!("--{name} needs a number within its bounds, not {text:?}"))
}
