//! `golden --out DIR`: the golden messages anew, for an intended change of the codec.

use std::path::{Path, PathBuf};

use super::args::{option, required, Command, Given};
use super::Outcome;
use crate::carrier::{self, files, ngram, transformer, Encoding, Model, NGram, Shape, Transformer};
use crate::wire::hex;
use sha2::{Digest, Sha256};

pub(super) static COMMAND: Command = Command {
    name: "golden",
    about: "Writes the golden messages and models anew, for an intended change of the codec.",
    operand: None,
    flags: &[
        required("out", "DIR", "where they go; made if it is not there"),
        option("corpus", "FILE", "the text the models are trained with (corpus.txt in DIR)"),
        option("transformer", "FILE", "a transformer to use in the place of the one trained here"),
    ],
};

/// The largest corpus, in bytes.
const MAX_CORPUS_BYTES: u64 = 16 << 20;

pub(super) fn run(given: &Given) -> Outcome {
    let out = given.needed("out");
    let corpus = given.path("corpus").unwrap_or_else(|| out.join("corpus.txt"));
    let corpus = files::read_bytes(&corpus, MAX_CORPUS_BYTES).map_err(|why| why.to_string())?;
    std::fs::create_dir_all(&out).map_err(|error| format!("making {}: {error}", out.display()))?;
    let training = ngram::Training { order: 1, alpha: 1.0, uniform_mix: 0.75 };
    let ngram = NGram::train(&corpus, &training).map_err(|why| why.to_string())?;
    let transformer = match given.path("transformer") {
        Some(path) => Model::read(&path).map_err(|why| why.to_string())?,
        None => {
            let training = transformer::Training::default();
            let model = Transformer::train(&corpus, &training, &mut |_, _| ());
            Model::Transformer(Box::new(model.map_err(|why| why.to_string())?))
        }
    };
    let shaped = Shape { uniform_mix: 0.8, temperature: 1.25, ..Shape::default() };
    let plain = Shape::default();
    let mut lines = String::new();
    for (name, model, shape) in [
        ("", Model::Fixed, plain),
        ("ngram", Model::NGram(Box::new(ngram)), plain),
        ("transformer", transformer, shaped),
    ] {
        lines += &write_one(&out, name, &model, shape)?;
    }
    Ok(lines)
}

/// Writes the model, if it is one that has a file, and the message of the bytes 0 to 255.
fn write_one(out: &Path, name: &str, model: &Model, shape: Shape) -> Result<String, String> {
    let payload: Vec<u8> = (0..=255).collect();
    let mut message = Vec::new();
    let encoding = Encoding { shape, wrap: 80, ..Encoding::default() };
    let encoded = carrier::encode(&payload, model, &encoding, &mut message, &mut |_, _| ());
    let encoded = encoded.map_err(|why| why.to_string())?;
    let begun = if name.is_empty() { String::new() } else { format!("{name}_") };
    let path: PathBuf = out.join(format!("{begun}golden_message_v1.txt"));
    super::write(&path, &[], &message)?;
    if *model != Model::Fixed {
        let path = out.join(format!("{begun}model_v1.json"));
        super::write(&path, &[], model.file_text().as_bytes())?;
    }
    let sha256 = hex::encode(&Sha256::digest(&message));
    Ok(format!(
        "{}: {} carrier chars, sha256 {sha256}, model {}\n",
        path.display(),
        encoded.carrier_chars,
        encoded.fingerprint
    ))
}
