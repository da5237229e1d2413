//! Whether the codec still gives the texts that it always gave: what promotion asks, without any file.
//!
//! The models are trained with a small text that stands here; the texts' hashes were checked against the reference
//! implementation (`tests/carrier_research.rs` does it again).

use sha2::{Digest, Sha256};

use crate::carrier::{self, ngram, transformer, CarrierError, Encoding, Model, NGram, Shape, Transformer};
use crate::wire::hex;

/// What the n-gram and the transformer are trained with.
pub const TEXT: &str = "the ferry leaves at 7 and comes back before the tide turns.\n\
    ask the Keeper of the lamp for oil. she has 12 cans of it.\n";

/// A message that may not change.
#[derive(Clone, Debug)]
pub struct Golden {
    /// The model's name.
    pub name: &'static str,
    /// The model.
    pub model: Model,
    /// How it is shaped.
    pub shape: Shape,
    /// The SHA-256 of the bytes 0 to 255 as a block of 80 characters a line.
    pub sha256: &'static str,
}

/// One of each model.
///
/// # Errors
/// A training failed: the codec is broken.
pub fn messages() -> Result<[Golden; 3], CarrierError> {
    let training = ngram::Training { order: 2, alpha: 1.0, uniform_mix: 0.5 };
    let ngram = NGram::train(TEXT.as_bytes(), &training)?;
    let sizes = transformer::Sizes { block_size: 8, d_model: 8, ff_dim: 8, seed: 42 };
    let training = transformer::Training { sizes, epochs: 2, learning_rate: 0.05 };
    let transformer = Transformer::train(TEXT.as_bytes(), &training, &mut |_, _| ())?;
    let shaped = Shape { uniform_mix: 0.8, temperature: 1.25, ..Shape::default() };
    Ok([
        Golden {
            name: "fixed",
            model: Model::Fixed,
            shape: Shape::default(),
            sha256: "f53ec3604a378788b20cf6e0aadbfe441a063aa7ce1cea0bef9b1427cbd21e35",
        },
        Golden {
            name: "n-gram",
            model: Model::NGram(Box::new(ngram)),
            shape: Shape::default(),
            sha256: "b38b0a294e8d9cea002f044c517354f28230001e83f30381540cb308251f62fd",
        },
        Golden {
            name: "transformer",
            model: Model::Transformer(Box::new(transformer)),
            shape: shaped,
            sha256: "02c3a06b88e687e885eccd882df5c12f6fca6216d208ba6332d7182fb4797720",
        },
    ])
}

/// The message of the bytes 0 to 255.
///
/// # Errors
/// It could not be made.
pub fn message(golden: &Golden) -> Result<Vec<u8>, CarrierError> {
    let payload: Vec<u8> = (0..=255).collect();
    let encoding = Encoding { shape: golden.shape, wrap: 80, ..Encoding::default() };
    let mut text = Vec::new();
    carrier::encode(&payload, &golden.model, &encoding, &mut text, &mut |_, _| ())?;
    Ok(text)
}

/// Makes them all anew; what differs, as a sentence.
pub fn check() -> Result<(), String> {
    for golden in messages().map_err(|why| why.to_string())? {
        let text = message(&golden).map_err(|why| format!("{}: {why}", golden.name))?;
        let sha256 = hex::encode(&Sha256::digest(&text));
        if sha256 != golden.sha256 {
            return Err(format!(
                "the {} message has the SHA-256 {sha256}, not {}",
                golden.name, golden.sha256
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_golden_messages_are_what_they_were() {
        assert_eq!(super::check(), Ok(()));
    }
}
