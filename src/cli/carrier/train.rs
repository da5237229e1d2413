//! `train --data F --out M`.

use super::args::{option, required, Command, Given};
use super::meter::Meter;
use super::settings::{real, whole};
use super::Outcome;
use crate::carrier::{files, float_text, ngram, transformer, vocabulary, Model, NGram, Transformer};

pub(super) static COMMAND: Command = Command {
    name: "train",
    about: "Trains a model with a text; the same text gives the same model everywhere.",
    operand: None,
    flags: &[
        required("data", "FILE", "the text; characters outside the vocabulary are passed over"),
        required("out", "FILE", "where the model goes"),
        option("model-type", "TYPE", "ngram or transformer (ngram)"),
        option("order", "N", "n-gram: how many characters a context has (2)"),
        option("alpha", "A", "n-gram: added to each count (1)"),
        option("uniform-mix", "U", "n-gram: the share of the even distribution (0.5)"),
        option("block-size", "N", "transformer: how many characters it sees (16)"),
        option("d-model", "N", "transformer: how long a character's vector is (16)"),
        option("ff-dim", "N", "transformer: how wide its hidden layer is (32)"),
        option("seed", "N", "transformer: what its numbers are drawn with (42)"),
        option("epochs", "N", "transformer: how often the text is gone through (1)"),
        option("learning-rate", "R", "transformer: how far each step goes (0.05)"),
    ],
};

/// The largest text that is trained with, in bytes.
const MAX_TEXT_BYTES: u64 = 1 << 30;

pub(super) fn run(given: &Given) -> Outcome {
    let (data, out) = (given.needed("data"), given.needed("out"));
    let kind = given.choice("model-type", &["ngram", "transformer"])?;
    let text = || files::read_bytes(&data, MAX_TEXT_BYTES).map_err(|why| why.to_string());
    let (model, about) = if kind.as_deref() == Some("transformer") {
        let training = transformer_training(given)?;
        let mut meter = Meter::new("training", "characters");
        let model = Transformer::train(&text()?, &training, &mut |done, of| meter.tell(done, of));
        drop(meter);
        let model = model.map_err(|why| why.to_string())?;
        let sizes = *model.sizes();
        let about = format!(
            "block size: {}\nd model: {}\nff dim: {}\nseed: {}\n",
            sizes.block_size, sizes.d_model, sizes.ff_dim, sizes.seed
        );
        (Model::Transformer(Box::new(model)), about)
    } else {
        let default = ngram::Training::default();
        let training = ngram::Training {
            order: whole(given, "order", 0..=ngram::MAX_ORDER)?.unwrap_or(default.order),
            alpha: real(given, "alpha", "above 0")?.unwrap_or(default.alpha),
            uniform_mix: real(given, "uniform-mix", "from 0 to 1")?.unwrap_or(default.uniform_mix),
        };
        let model = NGram::train(&text()?, &training).map_err(|why| why.to_string())?;
        let mix = float_text::repr(model.uniform_mix());
        let about = format!("order: {}\nuniform mix: {mix}\n", model.order());
        (Model::NGram(Box::new(model)), about)
    };
    super::write(&out, &[&data], model.file_text().as_bytes())?;
    Ok(format!(
        "model path: {}\nmodel type: {}\n{about}vocab size: {}\nmodel fingerprint: {}\n",
        out.display(),
        model.kind(),
        vocabulary::SIZE,
        model.fingerprint()
    ))
}

fn transformer_training(given: &Given) -> Result<transformer::Training, String> {
    let default = transformer::Training::default();
    let sizes = transformer::Sizes {
        block_size: whole(given, "block-size", 1..=transformer::MAX_BLOCK)?
            .unwrap_or(default.sizes.block_size),
        d_model: whole(given, "d-model", 1..=transformer::MAX_MODEL)?.unwrap_or(default.sizes.d_model),
        ff_dim: whole(given, "ff-dim", 1..=transformer::MAX_HIDDEN)?.unwrap_or(default.sizes.ff_dim),
        seed: whole(given, "seed", i64::MIN..=i64::MAX)?.unwrap_or(default.sizes.seed),
    };
    Ok(transformer::Training {
        sizes,
        epochs: whole(given, "epochs", 1..=u32::MAX)?.unwrap_or(default.epochs),
        learning_rate: real(given, "learning-rate", "above 0")?.unwrap_or(default.learning_rate),
    })
}
