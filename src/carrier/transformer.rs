//! The transformer: one attention head over the last characters, one hidden layer, and a trained output.
//!
//! Every sum is made in the order of its index with plain additions, so that it comes out the same
//! everywhere. What is computed side by side are columns, which do not depend on each other. Nothing is
//! fused, but for the exponentials while training (see [`super::math`]).
//!
//! Queries, keys and values are products of an embedding that depends on a character and its place alone:
//! they are computed once for each pair that is met.

use sha2::{Digest, Sha256};

use super::quantise::{quantise, Cumulative};
use super::vocabulary::{self, SIZE};
use super::{columns, float_text, math, model, CarrierError, Shape};
use crate::wire::{hex, Json};

/// The model's type, as its file names it.
pub const TYPE: &str = "transformer-rf-v1";

/// What stands before the text, as a row of the embedding.
const BEFORE: usize = SIZE;

/// The most places, and the widest vectors. Beyond these the tables would not be small any more.
pub const MAX_BLOCK: usize = 256;
/// Of a character's vector.
pub const MAX_MODEL: usize = 256;
/// Of the hidden layer.
pub const MAX_HIDDEN: usize = 1024;

/// How many digits a number has in the file.
const DIGITS: usize = 12;

/// The model's sizes and its seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// How many characters it sees (16).
    pub block_size: usize,
    /// How long a character's vector is (16).
    pub d_model: usize,
    /// How wide the hidden layer is (32).
    pub ff_dim: usize,
    /// What its numbers were drawn with (42).
    pub seed: i64,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes { block_size: 16, d_model: 16, ff_dim: 32, seed: 42 }
    }
}

/// The matrices, row after row, and vectors, in the order of their names in the file.
#[derive(Clone, Debug, PartialEq)]
struct Params {
    b1: Vec<f64>,
    b2: Vec<f64>,
    bout: Vec<f64>,
    position: Vec<f64>,
    token: Vec<f64>,
    w1: Vec<f64>,
    w2: Vec<f64>,
    wk: Vec<f64>,
    wo: Vec<f64>,
    wout: Vec<f64>,
    wq: Vec<f64>,
    wv: Vec<f64>,
}

/// A parameter's name in the file, its rows (0: it is a vector) and its columns.
type Form = (&'static str, usize, usize);

impl Sizes {
    /// Refuses sizes that make no sense.
    ///
    /// # Errors
    /// The first that is out of its bounds.
    pub fn check(&self) -> Result<(), CarrierError> {
        for (name, value, most) in [
            ("block_size", self.block_size, MAX_BLOCK),
            ("d_model", self.d_model, MAX_MODEL),
            ("ff_dim", self.ff_dim, MAX_HIDDEN),
        ] {
            if !(1..=most).contains(&value) {
                let what = format!("{name} must be positive and at most {most}, not {value}");
                return Err(CarrierError::Model(what));
            }
        }
        Ok(())
    }

    fn forms(&self) -> [Form; 12] {
        let (block, d, f) = (self.block_size, self.d_model, self.ff_dim);
        [
            ("b1", 0, f),
            ("b2", 0, d),
            ("bout", 0, SIZE),
            ("position_embedding", block, d),
            ("token_embedding", SIZE + 1, d),
            ("w1", d, f),
            ("w2", f, d),
            ("wk", d, d),
            ("wo", d, d),
            ("wout", d, SIZE),
            ("wq", d, d),
            ("wv", d, d),
        ]
    }
}

impl Params {
    fn all(&self) -> [&Vec<f64>; 12] {
        [
            &self.b1,
            &self.b2,
            &self.bout,
            &self.position,
            &self.token,
            &self.w1,
            &self.w2,
            &self.wk,
            &self.wo,
            &self.wout,
            &self.wq,
            &self.wv,
        ]
    }

    fn of(all: [Vec<f64>; 12]) -> Params {
        let [b1, b2, bout, position, token, w1, w2, wk, wo, wout, wq, wv] = all;
        Params { b1, b2, bout, position, token, w1, w2, wk, wo, wout, wq, wv }
    }

    /// Drawn by the seed.
    fn drawn(sizes: &Sizes) -> Params {
        let seed = sizes.seed;
        let scale = 1.0 / (sizes.d_model as f64).sqrt();
        let hidden = 1.0 / (sizes.ff_dim as f64).sqrt();
        Params::of(sizes.forms().map(|(name, rows, columns)| {
            let (name, scale) = match name {
                "position_embedding" => ("pos", scale),
                "token_embedding" => ("tok", scale),
                "w2" => ("w2", hidden),
                "wout" => ("wout", 0.01),
                other => (other, scale),
            };
            if rows == 0 {
                return vec![0.0; columns];
            }
            let places = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
            places.map(|(row, column)| gauss(seed, &format!("{name}:{row}:{column}")) * scale).collect()
        }))
    }

    /// To the digits of the file.
    fn rounded(self) -> Params {
        let Params { b1, b2, bout, position, token, w1, w2, wk, wo, wout, wq, wv } = self;
        let mut all = [b1, b2, bout, position, token, w1, w2, wk, wo, wout, wq, wv];
        for value in all.iter_mut().flatten() {
            *value = float_text::rounded(*value, DIGITS);
        }
        Params::of(all)
    }
}

/// A number from 0 to 1 that the key determines.
fn uniform(seed: i64, key: &str) -> f64 {
    let digest: [u8; 32] = Sha256::digest(format!("{seed}:{key}").as_bytes()).into();
    let [a, b, c, d, e, f, g, h, ..] = digest;
    (u64::from_be_bytes([a, b, c, d, e, f, g, h]) as f64 + 0.5) / 18_446_744_073_709_551_616.0
}

/// A normally distributed number that the key determines.
fn gauss(seed: i64, key: &str) -> f64 {
    let first = uniform(seed, &format!("{key}:a")).max(1e-12);
    let second = uniform(seed, &format!("{key}:b"));
    (-2.0 * math::ln(first)).sqrt() * math::cos(std::f64::consts::TAU * second)
}

/// A trained model.
#[derive(Clone, Debug, PartialEq)]
pub struct Transformer {
    sizes: Sizes,
    params: Params,
    /// Numbers that the file has without a point: they are written so, too.
    whole: Vec<(usize, usize)>,
    fingerprint: String,
}

/// How the output is trained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Training {
    /// The model's sizes.
    pub sizes: Sizes,
    /// How often the text is gone through (1).
    pub epochs: u32,
    /// How far each step goes (0.05).
    pub learning_rate: f64,
}

impl Default for Training {
    fn default() -> Training {
        Training { sizes: Sizes::default(), epochs: 1, learning_rate: 0.05 }
    }
}

impl Transformer {
    /// Draws a model and trains its output with a text; characters outside the vocabulary are passed over.
    /// `progress` is told how many characters are done, and of how many.
    ///
    /// # Errors
    /// Settings that make no sense; a text without a character.
    pub fn train(
        text: &[u8],
        training: &Training,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Transformer, CarrierError> {
        training.sizes.check()?;
        if training.epochs == 0 {
            return Err(CarrierError::Model("epochs must be positive".into()));
        }
        let rate = training.learning_rate;
        if !(rate > 0.0 && rate.is_finite()) {
            let rate = float_text::repr(rate);
            return Err(CarrierError::Model(format!(
                "learning_rate must be positive and finite, not {rate}"
            )));
        }
        let symbols: Vec<u8> =
            text.iter().map(|byte| vocabulary::index(*byte)).filter(|at| *at != vocabulary::NONE).collect();
        if symbols.is_empty() {
            return Err(CarrierError::NothingToLearn);
        }
        let mut params = Params::drawn(&training.sizes);
        let (mut out, mut bias) = (std::mem::take(&mut params.wout), unigram_bias(&symbols));
        let steps = symbols.len() as u64 * u64::from(training.epochs);
        let mut done = 0;
        {
            let mut features = Features::<true>::new(&training.sizes, &params);
            for _ in 0..training.epochs {
                features.restart();
                for symbol in &symbols {
                    let vector = features.compute();
                    let mut slopes = bias;
                    columns::add_products(&mut slopes, vector, &out);
                    softmax::<true>(&mut slopes);
                    slopes[usize::from(*symbol)] -= 1.0;
                    for (own, slope) in bias.iter_mut().zip(&slopes) {
                        *own -= rate * slope;
                    }
                    for (feature, row) in vector.iter().zip(out.chunks_exact_mut(SIZE)) {
                        for (own, slope) in row.iter_mut().zip(&slopes) {
                            *own -= rate * slope * feature;
                        }
                    }
                    features.advance(*symbol);
                    done += 1;
                    if done % 4096 == 0 {
                        progress(done, steps);
                    }
                }
            }
        }
        params.wout = out;
        params.bout = bias.to_vec();
        if !params.all().iter().all(|values| values.iter().all(|value| value.is_finite())) {
            return Err(CarrierError::Model(
                "the training left the range of numbers: a smaller learning rate".into(),
            ));
        }
        Ok(Transformer::new(training.sizes, params.rounded(), Vec::new()))
    }

    fn new(sizes: Sizes, params: Params, whole: Vec<(usize, usize)>) -> Transformer {
        let mut model = Transformer { sizes, params, whole, fingerprint: String::new() };
        let mut hash = Sha256::new();
        model.json(|part| hash.update(part.as_bytes()));
        model.fingerprint = hex::encode(&hash.finalize());
        model
    }

    /// Reads a model's file that was checked to be JSON of this type.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_json(json: Json<'_>) -> Result<Transformer, CarrierError> {
        model::check_vocabulary(json)?;
        let sizes = Sizes {
            block_size: model::whole(json, "block_size", 1, MAX_BLOCK)?,
            d_model: model::whole(json, "d_model", 1, MAX_MODEL)?,
            ff_dim: model::whole(json, "ff_dim", 1, MAX_HIDDEN)?,
            seed: model::needed(json, "seed")?
                .as_i64()
                .ok_or_else(|| CarrierError::Model("seed must be a whole number of 64 bits".into()))?,
        };
        let given = model::needed(json, "params")?;
        if !given.is_object() {
            return Err(CarrierError::Model(format!("params must be an object, not {}", given.kind())));
        }
        let forms = sizes.forms();
        if let Some(other) = given.members().find(|member| forms.iter().all(|form| form.0 != member.key)) {
            let shown: String = other.key.chars().take(32).collect();
            return Err(CarrierError::Model(format!("params has no {shown:?}")));
        }
        let mut all: [Vec<f64>; 12] = Default::default();
        let mut whole = Vec::new();
        for (at, (form, values)) in forms.iter().zip(&mut all).enumerate() {
            let value =
                given.get(form.0).ok_or_else(|| CarrierError::Model(format!("params has no {}", form.0)))?;
            read_values(form, value, values, |index| whole.push((at, index)))?;
        }
        Ok(Transformer::new(sizes, Params::of(all), whole))
    }

    /// Hands the canonical JSON, without a newline behind it, to `out` in parts.
    pub fn json(&self, mut out: impl FnMut(&str)) {
        let Sizes { block_size, d_model, ff_dim, seed } = self.sizes;
        out(&format!("{{\"block_size\":{block_size},\"d_model\":{d_model},\"ff_dim\":{ff_dim},"));
        out(&format!("\"model_type\":\"{TYPE}\",\"params\":{{"));
        let mut whole = self.whole.iter().peekable();
        for (at, ((name, rows, columns), values)) in
            self.sizes.forms().iter().zip(self.params.all()).enumerate()
        {
            out(&format!("{}\"{name}\":{}", if at > 0 { "," } else { "" }, if *rows > 0 { "[" } else { "" }));
            for (index, value) in values.iter().enumerate() {
                let (row, column) = (index / columns, index % columns);
                let before = match (column, row) {
                    (0, 0) => "[",
                    (0, _) => "],[",
                    _ => ",",
                };
                out(before);
                match whole.next_if(|place| **place == (at, index)) {
                    Some(_) => out(&format!("{value:.0}")),
                    None => out(&float_text::repr(*value)),
                }
            }
            out(if *rows > 0 { "]]" } else { "]" });
        }
        out(&format!("}},\"seed\":{seed},\"vocab\":\"{}\"}}", vocabulary::text()));
    }

    /// The SHA-256 of its canonical JSON.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Its sizes and its seed.
    pub fn sizes(&self) -> &Sizes {
        &self.sizes
    }
}

/// Reads a matrix or a vector; `whole` is told which of its numbers have no point.
fn read_values(
    (name, rows, columns): &Form,
    value: Json<'_>,
    values: &mut Vec<f64>,
    mut whole: impl FnMut(usize),
) -> Result<(), CarrierError> {
    let form = match rows {
        0 => format!("{columns} numbers"),
        _ => format!("{rows} rows of {columns} numbers"),
    };
    let wrong = || CarrierError::Model(format!("{name} must be {form}"));
    let mut row_values = |row: Json<'_>| {
        let mut count = 0;
        for element in row.elements() {
            let number: f64 = element.raw().parse().map_err(|_| wrong())?;
            if !number.is_finite() {
                return Err(CarrierError::Model(format!("{name} has a number beyond the range")));
            }
            let pointed = element.raw().contains(['.', 'e', 'E']);
            if !pointed {
                // Exactly representable, or it would not be written as it was read.
                if number.abs() > 9e15 || element.raw() == "-0" {
                    return Err(CarrierError::Model(format!("{name} has a whole number that is none")));
                }
                whole(values.len());
            }
            values.push(if pointed { float_text::rounded(number, DIGITS) } else { number });
            count += 1;
            if count > *columns {
                return Err(wrong());
            }
        }
        if count == *columns {
            Ok(())
        } else {
            Err(wrong())
        }
    };
    if *rows == 0 {
        return row_values(value);
    }
    let mut count = 0;
    for row in value.elements() {
        row_values(row)?;
        count += 1;
        if count > *rows {
            return Err(wrong());
        }
    }
    if count == *rows {
        Ok(())
    } else {
        Err(wrong())
    }
}

/// The logarithms of how often each symbol stands in the text, a quarter added to each.
fn unigram_bias(symbols: &[u8]) -> [f64; SIZE] {
    const SMOOTHING: f64 = 0.25;
    let mut counts = [0_u32; SIZE];
    for symbol in symbols {
        counts[usize::from(*symbol)] += 1;
    }
    let total = symbols.len() as f64 + SMOOTHING * SIZE as f64;
    counts.map(|count| math::ln((f64::from(count) + SMOOTHING) / total))
}

/// Exponentials divided by their sum, the largest subtracted before.
#[inline(always)]
fn softmax<const FUSED: bool>(values: &mut [f64]) {
    let most = values.iter().fold(f64::NEG_INFINITY, |most, value| if *value > most { *value } else { most });
    let mut sum = 0.0;
    for value in values.iter_mut() {
        *value = math::exp::<FUSED>(*value - most);
        sum += *value;
    }
    for value in values.iter_mut() {
        *value /= sum;
    }
}

/// The part of the model below its output, walking through a text.
#[derive(Clone, Debug)]
struct Features<'m, const FUSED: bool> {
    sizes: Sizes,
    params: &'m Params,
    scale: f64,
    /// The last characters, the oldest first.
    context: Vec<u8>,
    /// For each character at each place: its embedding, its key and its value.
    known: Vec<bool>,
    keys: Vec<f64>,
    values: Vec<f64>,
    /// For each character at the last place: the query.
    queries: Vec<f64>,
    weights: Vec<f64>,
    /// The values of the context's characters, one below the other.
    seen: Vec<f64>,
    attended: Vec<f64>,
    residual: Vec<f64>,
    hidden: Vec<f64>,
    features: Vec<f64>,
}

impl<'m, const FUSED: bool> Features<'m, FUSED> {
    fn new(sizes: &Sizes, params: &'m Params) -> Self {
        let Sizes { block_size, d_model, ff_dim, .. } = *sizes;
        let rows = (SIZE + 1) * block_size;
        Features {
            sizes: *sizes,
            params,
            scale: 1.0 / (d_model as f64).sqrt(),
            context: vec![BEFORE as u8; block_size],
            known: vec![false; rows],
            keys: vec![0.0; rows * d_model],
            values: vec![0.0; rows * d_model],
            queries: vec![0.0; (SIZE + 1) * d_model],
            weights: vec![0.0; block_size],
            seen: vec![0.0; block_size * d_model],
            attended: vec![0.0; d_model],
            residual: vec![0.0; d_model],
            hidden: vec![0.0; ff_dim],
            features: vec![0.0; d_model],
        }
    }

    fn restart(&mut self) {
        self.context.fill(BEFORE as u8);
    }

    #[inline(always)]
    fn advance(&mut self, symbol: u8) {
        self.context.copy_within(1.., 0);
        if let Some(last) = self.context.last_mut() {
            *last = symbol;
        }
    }

    /// The embedding of a character at a place.
    fn embedding(&self, character: usize, place: usize, out: &mut [f64]) {
        let d = self.sizes.d_model;
        let own = &self.params.token[character * d..][..d];
        let there = &self.params.position[place * d..][..d];
        for (out, (own, there)) in out.iter_mut().zip(own.iter().zip(there)) {
            *out = own + there;
        }
    }

    #[cold]
    #[inline(never)]
    fn learn(&mut self, character: usize, place: usize) {
        let d = self.sizes.d_model;
        let mut embedding = vec![0.0; d];
        self.embedding(character, place, &mut embedding);
        let row = (place * (SIZE + 1) + character) * d;
        columns::add_products(&mut self.keys[row..row + d], &embedding, &self.params.wk);
        columns::add_products(&mut self.values[row..row + d], &embedding, &self.params.wv);
        if place + 1 == self.sizes.block_size {
            let row = character * d;
            columns::add_products(&mut self.queries[row..row + d], &embedding, &self.params.wq);
        }
        self.known[place * (SIZE + 1) + character] = true;
    }

    /// What the output is made of.
    #[inline(always)]
    fn compute(&mut self) -> &[f64] {
        let d = self.sizes.d_model;
        for place in 0..self.context.len() {
            let character = usize::from(self.context[place]);
            if !self.known[place * (SIZE + 1) + character] {
                self.learn(character, place);
            }
        }
        let places = self.context.len();
        let last = usize::from(self.context[places - 1]);
        let query = &self.queries[last * d..][..d];
        for (place, weight) in self.weights.iter_mut().enumerate() {
            let row = (place * (SIZE + 1) + usize::from(self.context[place])) * d;
            *weight = columns::product(query, &self.keys[row..row + d]) * self.scale;
            self.seen[place * d..][..d].copy_from_slice(&self.values[row..row + d]);
        }
        softmax::<FUSED>(&mut self.weights);
        self.attended.fill(0.0);
        columns::add_products(&mut self.attended, &self.weights, &self.seen);
        let params = self.params;
        self.residual.fill(0.0);
        columns::add_products(&mut self.residual, &self.attended, &params.wo);
        let own = &params.token[last * d..][..d];
        let there = &params.position[(places - 1) * d..][..d];
        for (residual, (own, there)) in self.residual.iter_mut().zip(own.iter().zip(there)) {
            *residual += own + there;
        }
        self.hidden.fill(0.0);
        columns::add_products(&mut self.hidden, &self.residual, &params.w1);
        for (hidden, bias) in self.hidden.iter_mut().zip(&params.b1) {
            *hidden = math::tanh::<FUSED>(*hidden + bias);
        }
        self.features.fill(0.0);
        columns::add_products(&mut self.features, &self.hidden, &params.w2);
        for (feature, (bias, residual)) in self.features.iter_mut().zip(params.b2.iter().zip(&self.residual))
        {
            *feature = residual + (*feature + bias);
        }
        &self.features
    }
}

/// A way through a text.
#[derive(Clone, Debug)]
pub struct Walk<'m> {
    features: Features<'m, false>,
    shape: Shape,
    table: Cumulative,
}

impl<'m> Walk<'m> {
    /// One that begins before the text.
    pub fn new(model: &'m Transformer, shape: &Shape) -> Walk<'m> {
        let features = Features::new(&model.sizes, &model.params);
        Walk { features, shape: *shape, table: Cumulative::of(&[0; SIZE]) }
    }

    /// What the model says of the next symbol, unshaped.
    #[inline(always)]
    pub fn probabilities(&mut self) -> [f64; SIZE] {
        let params = self.features.params;
        let mut logits = [0.0; SIZE];
        logits.copy_from_slice(&params.bout);
        columns::add_products(&mut logits, self.features.compute(), &params.wout);
        softmax::<false>(&mut logits);
        logits
    }
}

impl super::Walk for Walk<'_> {
    #[inline(always)]
    fn table(&mut self) -> Result<&Cumulative, CarrierError> {
        let mut shares = self.probabilities();
        self.shape.apply(&mut shares)?;
        self.table = Cumulative::of(&quantise(&shares));
        Ok(&self.table)
    }

    #[inline(always)]
    fn advance(&mut self, symbol: u8) {
        self.features.advance(symbol);
    }
}
