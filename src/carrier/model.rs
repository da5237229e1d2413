//! Models: which of them, read from files, and what they say of the next symbol.

use std::path::Path;

use super::vocabulary::{self, SIZE};
use super::{fixed, ngram, transformer, CarrierError, NGram, Shape, Transformer};
use crate::wire::{self, Json};

/// The largest model file that is read, in bytes.
pub const MAX_FILE_BYTES: u64 = 256 << 20;

/// A model.
#[derive(Clone, Debug, PartialEq)]
pub enum Model {
    /// Every symbol is as likely as any other.
    Fixed,
    /// Counts of what follows what.
    NGram(Box<NGram>),
    /// A small network.
    Transformer(Box<Transformer>),
}

impl Model {
    /// Reads a model's file.
    ///
    /// # Errors
    /// It cannot be read, or is no model; the sentence names the file.
    pub fn read(path: &Path) -> Result<Model, CarrierError> {
        let text = super::files::read_text(path, MAX_FILE_BYTES)?;
        Model::parse(&text).map_err(|why| match why {
            CarrierError::Model(what) => CarrierError::Model(format!("{}: {what}", path.display())),
            other => other,
        })
    }

    /// Reads a model's text.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Model, CarrierError> {
        let json =
            wire::parse(text).map_err(|why| CarrierError::Model(format!("the model is no JSON: {why}")))?;
        if !json.is_object() {
            return Err(CarrierError::Model(format!("a model must be an object, not {}", json.kind())));
        }
        match needed(json, "model_type")?.as_str().as_deref() {
            Some(ngram::TYPE) => Ok(Model::NGram(Box::new(NGram::from_json(json)?))),
            Some(transformer::TYPE) => Ok(Model::Transformer(Box::new(Transformer::from_json(json)?))),
            Some(other) => {
                let shown: String = other.chars().take(32).collect();
                let known = [ngram::TYPE, transformer::TYPE].join(" and ");
                Err(CarrierError::Model(format!("unsupported model type {shown:?}: there are {known}")))
            }
            None => Err(CarrierError::Model("model_type must be a string".into())),
        }
    }

    /// The SHA-256 that the armour names it by.
    pub fn fingerprint(&self) -> String {
        match self {
            Model::Fixed => fixed::fingerprint(),
            Model::NGram(model) => model.fingerprint().to_owned(),
            Model::Transformer(model) => model.fingerprint().to_owned(),
        }
    }

    /// Its type: `fixed`, `ngram-v1`, `transformer-rf-v1`.
    pub fn kind(&self) -> &'static str {
        match self {
            Model::Fixed => "fixed",
            Model::NGram(_) => ngram::TYPE,
            Model::Transformer(_) => transformer::TYPE,
        }
    }

    /// Hands its canonical JSON, without a newline behind it, to `out` in parts; nothing of the fixed one.
    pub fn json(&self, out: impl FnMut(&str)) {
        match self {
            Model::Fixed => {}
            Model::NGram(model) => model.json(out),
            Model::Transformer(model) => model.json(out),
        }
    }

    /// Its file's text: the canonical JSON and a newline.
    pub fn file_text(&self) -> String {
        let mut text = String::new();
        self.json(|part| text.push_str(part));
        text + "\n"
    }

    /// A way through a text, for looking at what it says.
    pub fn reading(&self) -> Reading<'_> {
        let shape = Shape::default();
        match self {
            Model::Fixed => Reading::Fixed,
            Model::NGram(model) => Reading::NGram(ngram::Walk::new(model, &shape)),
            Model::Transformer(model) => {
                Reading::Transformer(Box::new(transformer::Walk::new(model, &shape)))
            }
        }
    }
}

/// What a model says along a text, as numbers.
#[derive(Clone, Debug)]
pub enum Reading<'m> {
    /// Of the fixed model.
    Fixed,
    /// Of an n-gram model.
    NGram(ngram::Walk<'m>),
    /// Of a transformer.
    Transformer(Box<transformer::Walk<'m>>),
}

impl Reading<'_> {
    /// The probabilities of the next symbol, before any shaping ([`Shape::apply`] does that).
    pub fn probabilities(&mut self) -> [f64; SIZE] {
        match self {
            Reading::Fixed => [1.0 / SIZE as f64; SIZE],
            Reading::NGram(walk) => walk.probabilities(),
            Reading::Transformer(walk) => walk.probabilities(),
        }
    }

    /// Goes on behind a symbol, by its number (below [`SIZE`]).
    pub fn advance(&mut self, symbol: u8) {
        use super::Walk;
        match self {
            Reading::Fixed => {}
            Reading::NGram(walk) => walk.advance(symbol),
            Reading::Transformer(walk) => walk.advance(symbol),
        }
    }
}

/// A member that a model has to have.
pub(super) fn needed<'a>(json: Json<'a>, name: &str) -> Result<Json<'a>, CarrierError> {
    json.get(name).ok_or_else(|| CarrierError::Model(format!("the model has no {name}")))
}

/// A whole number within bounds.
pub(super) fn whole(json: Json<'_>, name: &str, least: usize, most: usize) -> Result<usize, CarrierError> {
    let value = needed(json, name)?;
    let number = value.as_i64().and_then(|number| usize::try_from(number).ok());
    number.filter(|number| (least..=most).contains(number)).ok_or_else(|| {
        let shown: String = value.raw().chars().take(32).collect();
        CarrierError::Model(format!("{name} must be a whole number from {least} to {most}, not {shown}"))
    })
}

/// A finite number.
pub(super) fn number(json: Json<'_>, name: &str) -> Result<f64, CarrierError> {
    let value = needed(json, name)?;
    let number = value.raw().parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| {
        let found: String = match value.kind() {
            // One that is beyond the range.
            "a number" => value.raw().chars().take(32).collect(),
            kind => kind.into(),
        };
        CarrierError::Model(format!("{name} must be a finite number, not {found}"))
    })
}

/// There is one vocabulary.
pub(super) fn check_vocabulary(json: Json<'_>) -> Result<(), CarrierError> {
    match needed(json, "vocab")?.as_str().as_deref() == Some(vocabulary::text()) {
        true => Ok(()),
        false => Err(CarrierError::Model(format!("vocab must be {:?}", vocabulary::text()))),
    }
}
