//! Carrier codecs: exact bytes as text whose characters a small model makes likely.
//!
//! The bits of a frame around the payload are read as if they were an arithmetic code: under the model's
//! probabilities they choose one character after the other. Whoever has the model turns the characters back into
//! the bits. The text is the same on every machine, to the bit; see `docs/CARRIERS.md` for what it is not.
//!
//! ```text
//! payload ─ frame ─► bits ─ coder, model: shaping, quantise ─► characters ─ armour ─► text
//! ```
//!
//! # An example
//!
//! ```
//! use agentcontainer::carrier::{self, ngram, Decoding, Encoding, Model, NGram};
//!
//! let model = NGram::train(b"the cat sat on the mat. the dog sat.", &ngram::Training::default())?;
//! let model = Model::NGram(Box::new(model));
//! let (mut text, mut quiet) = (Vec::new(), |_, _| ());
//! let encoding = Encoding { wrap: 80, ..Encoding::default() };
//! carrier::encode(b"some bytes", &model, &encoding, &mut text, &mut quiet)?;
//!
//! let payload = carrier::decode(&mut &text[..], &model, &Decoding::default(), &mut quiet)?;
//! assert_eq!(payload, b"some bytes");
//! let other = carrier::decode(&mut &text[..], &Model::Fixed, &Decoding::default(), &mut quiet);
//! assert!(other.unwrap_err().to_string().starts_with("fingerprint mismatch"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod armour;
pub mod chance;
pub mod coder;
pub mod columns;
mod encode;
mod error;
pub mod files;
pub mod fixed;
pub mod float_text;
pub mod frame;
pub mod fsum;
pub mod math;
mod model;
pub mod ngram;
pub mod quantise;
pub mod shaping;
pub mod transformer;
pub mod vocabulary;

pub use encode::{decode, encode, Decoding, Encoded, Encoding, Progress};
pub use error::CarrierError;
pub use model::{Model, Reading, MAX_FILE_BYTES};
pub use ngram::NGram;
pub use shaping::Shape;
pub use transformer::Transformer;

/// A model on its way through a text: a table of counts for the next symbol, again and again.
trait Walk {
    /// The counts for the next symbol; the same until [`Walk::advance`].
    fn table(&mut self) -> Result<&quantise::Cumulative, CarrierError>;
    /// Goes on behind a symbol.
    fn advance(&mut self, symbol: u8);
}
