//! `compare --payload F --corpus F`: the three models side by side; `sweep --payload F`: one, shaped in many ways.

use super::args::{option, required, Command, Flag, Given};
use super::meter::Telling;
use super::settings::{finite, whole, MODEL, SHAPING};
use super::table::table;
use super::Outcome;
use crate::carrier::{files, ngram, transformer, Encoding, Model, NGram, Shape, Transformer};
use crate::research::experiment::{corpus, MAX_PAYLOAD_BYTES, MAX_TEXT_BYTES};
use crate::research::record::{self, Document, Record};
use crate::research::run::{self, Payload, QualityText};

const PAYLOAD: Flag = required("payload", "FILE", "the bytes");
const QUALITY: Flag = option("quality-text", "FILE", "a text to measure entropy and likelihood on");
const JSON_OUT: Flag = option("json-out", "FILE", "where the results go as JSON");
const WRAP: Flag = option("wrap", "N", "characters a line; 0: all on one (0)");

pub(super) static COMPARE: Command = Command {
    name: "compare",
    about: "Codes a payload with the fixed, an n-gram and a transformer model, and shows them side by side.",
    operand: None,
    flags: &[
        PAYLOAD,
        required("corpus", "FILE", "the text that the two are trained with, as train does"),
        QUALITY,
        JSON_OUT,
        WRAP,
        option("order", "N", "n-gram: how many characters a context has (2)"),
    ],
};

pub(super) static SWEEP: Command = Command {
    name: "sweep",
    about: "Codes a payload with a model shaped in every combination of the values given.",
    operand: None,
    flags: &[
        PAYLOAD,
        MODEL,
        QUALITY,
        JSON_OUT,
        WRAP,
        option("shape-uniform-mix", "U,U…", "shares of the even distribution (0)"),
        option("temperature", "T,T…", "temperatures (1)"),
        option("min-prob", "P,P…", "floors (0)"),
        option("min-entropy-bits", "B,B…", "entropy guards (0)"),
        option("max-steps", "N", "how many characters each may take (64 for each bit)"),
    ],
};

/// How many combinations a sweep has at most.
const MAX_COMBINATIONS: usize = 1000;

/// What both read.
struct Inputs {
    payload: Payload,
    quality: Option<QualityText>,
}

fn inputs(given: &Given) -> Result<Inputs, String> {
    let path = given.needed("payload");
    let bytes = files::read_bytes(&path, MAX_PAYLOAD_BYTES).map_err(|why| why.to_string())?;
    let quality = given.path("quality-text").map(|path| files::read_text(&path, MAX_TEXT_BYTES)).transpose();
    let quality = quality.map_err(|why| why.to_string())?.map(QualityText::new);
    Ok(Inputs { payload: Payload { path: path.display().to_string(), bytes }, quality })
}

pub(super) fn compare(given: &Given) -> Outcome {
    let wrap = whole(given, "wrap", 0..=usize::MAX)?.unwrap_or(0);
    let order = whole(given, "order", 0..=ngram::MAX_ORDER)?.unwrap_or(ngram::Training::default().order);
    let inputs = inputs(given)?;
    let text = corpus(&given.needed("corpus"))?;
    let said = |why: crate::carrier::CarrierError| why.to_string();
    let ngram = NGram::train(&text, &ngram::Training { order, ..Default::default() }).map_err(said)?;
    let mut telling = Telling::default();
    let mut progress = |done, of| telling.tell("training", done, of);
    let transformer =
        Transformer::train(&text, &transformer::Training::default(), &mut progress).map_err(said)?;
    let models = [
        ("fixed", Model::Fixed),
        ("ngram", Model::NGram(Box::new(ngram))),
        ("transformer", Model::Transformer(Box::new(transformer))),
    ];
    let mut records = Vec::new();
    for (name, model) in &models {
        let encoding = Encoding { wrap, ..Encoding::default() };
        let tell = &mut |what, done, of| telling.tell(what, done, of);
        let run = run::measure(name, &inputs.payload, model, &encoding, inputs.quality.as_ref(), tell);
        records.push(run.map_err(said)?.record);
    }
    drop(telling);
    finish(given, "compare", records, &["payload", "corpus", "quality-text"])
}

pub(super) fn sweep(given: &Given) -> Outcome {
    let shapes = shapes(given)?;
    let wrap = whole(given, "wrap", 0..=usize::MAX)?.unwrap_or(0);
    let max_steps = whole(given, "max-steps", 0..=u64::MAX)?;
    let model = super::settings::model(given)?;
    let model_path = given.path(MODEL.name).map(|path| path.display().to_string());
    let inputs = inputs(given)?;
    let mut telling = Telling::default();
    let mut records = Vec::new();
    for shape in shapes {
        let encoding = Encoding { shape, wrap, max_steps };
        let tell = &mut |what, done, of| telling.tell(what, done, of);
        let run =
            run::measure(&name(&shape), &inputs.payload, &model, &encoding, inputs.quality.as_ref(), tell);
        let mut record = run.map_err(|why| why.to_string())?.record;
        record.model_path.clone_from(&model_path);
        records.push(record);
    }
    drop(telling);
    finish(given, "sweep", records, &["payload", "model", "quality-text"])
}

/// What is not the default, in a word or four.
fn name(shape: &Shape) -> String {
    let default = Shape::default();
    let parts = [
        ("mix", shape.uniform_mix, default.uniform_mix),
        ("temperature", shape.temperature, default.temperature),
        ("floor", shape.min_probability, default.min_probability),
        ("guard", shape.min_entropy_bits, default.min_entropy_bits),
    ];
    let changed = parts.iter().filter(|(_, own, default)| own != default);
    let changed: Vec<String> = changed.map(|(name, own, _)| format!("{name} {own}")).collect();
    if changed.is_empty() {
        "unshaped".into()
    } else {
        changed.join(", ")
    }
}

fn shapes(given: &Given) -> Result<Vec<Shape>, String> {
    let mixes = values(given, 0, 0.0)?;
    let temperatures = values(given, 1, 1.0)?;
    let floors = values(given, 2, 0.0)?;
    let guards = values(given, 3, 0.0)?;
    let count = mixes.len().saturating_mul(temperatures.len()).saturating_mul(floors.len());
    let count = count.saturating_mul(guards.len());
    if count > MAX_COMBINATIONS {
        return Err(format!("these are {count} combinations, at most {MAX_COMBINATIONS} are tried"));
    }
    let mut shapes = Vec::new();
    for uniform_mix in &mixes {
        for temperature in &temperatures {
            for min_probability in &floors {
                for min_entropy_bits in &guards {
                    let shape = Shape {
                        uniform_mix: *uniform_mix,
                        temperature: *temperature,
                        min_probability: *min_probability,
                        min_entropy_bits: *min_entropy_bits,
                    };
                    shape.check().map_err(|why| why.to_string())?;
                    shapes.push(shape);
                }
            }
        }
    }
    Ok(shapes)
}

/// The values of the option that [`SHAPING`] has at that place.
fn values(given: &Given, at: usize, default: f64) -> Result<Vec<f64>, String> {
    let (Flag { name, .. }, bounds) = &SHAPING[at];
    let Some(text) = given.text(name)? else { return Ok(vec![default]) };
    let wrong = || format!("--{name} needs finite numbers {bounds}, with commas between them, not {text:?}");
    text.split(',').map(|part| finite(part).ok_or_else(wrong)).collect()
}

fn finish(given: &Given, kind: &str, records: Vec<Record>, read: &[&str]) -> Outcome {
    let mut text = table(&records);
    if let Some(out) = given.path("json-out") {
        let read: Vec<_> = read.iter().filter_map(|name| given.path(name)).collect();
        let read: Vec<_> = read.iter().map(|path| path.as_path()).collect();
        super::write(&out, &read, record::text(&Document::new(kind, records)).as_bytes())?;
        text.push_str(&format!("json path: {}\n", out.display()));
    }
    Ok(text)
}
