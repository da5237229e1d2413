//! What was measured, as JSON: `docs/benchmark-result.schema.json` describes it field by field.
//!
//! A file holds one result (`result.json` of an experiment), a document with several, or one of the benchmark
//! ([`speed`]). Files are read as strictly as
//! they are described: whoever wrote them may have written anything.

use serde::Serialize;

use super::fields::Fields;
use super::quality::{Diversity, Frequencies};
use super::speed::{self, Speed};
use crate::carrier::quantise::TOTAL;
use crate::carrier::{ngram, transformer, Model, Shape};
use crate::wire::{self, Json};

/// Which shape this is.
pub const SCHEMA_VERSION: u64 = 1;

/// The largest file of results that is read, in bytes.
pub const MAX_FILE_BYTES: u64 = 64 << 20;

/// How many results a document holds at most.
pub const MAX_RESULTS: usize = 10_000;

/// The model types.
pub const MODEL_TYPES: [&str; 3] = ["fixed-v1", ngram::TYPE, transformer::TYPE];

/// The type of a model as results name it.
pub fn model_type(model: &Model) -> &'static str {
    match model {
        Model::Fixed => MODEL_TYPES[0],
        other => other.kind(),
    }
}

/// A payload through one model, there and back.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Record {
    /// 1.
    pub schema_version: u64,
    /// What it is called.
    pub name: String,
    /// Where the payload came from.
    pub payload_path: String,
    /// How long it is.
    pub payload_bytes: u64,
    /// Its SHA-256.
    pub payload_sha256: String,
    /// Of what was decoded.
    pub decoded_sha256: Option<String>,
    /// One of [`MODEL_TYPES`].
    pub model_type: String,
    /// Of the model.
    pub model_fingerprint: String,
    /// Where the model came from or went.
    pub model_path: Option<String>,
    /// Whether the model has the same fingerprint after its work, and read anew from its own text.
    pub fingerprint_stable: bool,
    /// How it was coded.
    pub settings: Settings,
    /// Characters of the carrier.
    pub carrier_chars: Option<u64>,
    /// Characters of the whole block.
    pub full_armour_chars: Option<u64>,
    /// Bits of the frame for each character of the carrier.
    pub bits_per_carrier_char: Option<f64>,
    /// How many characters Base64 takes for the payload.
    pub base64_baseline_chars: u64,
    /// How long encoding took.
    pub encode_seconds: Option<f64>,
    /// How long decoding took.
    pub decode_seconds: Option<f64>,
    /// Whether the payload came back.
    pub roundtrip_success: bool,
    /// Average negative log-likelihood of the held-out text.
    pub heldout_nll_bits: Option<f64>,
    /// How many of its characters are in the vocabulary.
    pub heldout_tokens: Option<u64>,
    /// Average entropy along it.
    pub avg_entropy_bits: Option<f64>,
    /// Average probability of the likeliest character along it.
    pub avg_top_probability: Option<f64>,
    /// How the carrier's characters are spread.
    pub carrier_quality: Option<Diversity>,
    /// 1 if the encoding took more steps than allowed.
    pub convergence_failure_count: u64,
    /// Why there is no carrier, or none that could be read.
    pub error_message: Option<String>,
    /// Of an experiment: whether it is good enough.
    pub promotion: Option<Promotion>,
    /// Of an experiment: its files.
    pub artifacts: Option<Artifacts>,
}

/// How a payload was coded.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Settings {
    /// The total of the counts, 65536.
    pub total: u64,
    /// 0.
    pub topk: u64,
    /// How the distributions were shaped.
    pub shape: ShapeSettings,
    /// Characters a line; 0: all on one.
    pub wrap: u64,
    /// The most steps, if they were limited further than always.
    pub max_steps: Option<u64>,
}

/// [`Shape`], as results name it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ShapeSettings {
    /// The share of the even distribution.
    pub uniform_mix: f64,
    /// The temperature.
    pub temperature: f64,
    /// The floor.
    pub min_probability: f64,
    /// The entropy guard.
    pub min_entropy_bits: f64,
}

/// The checks and what comes of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Promotion {
    /// `promote`, if every check passed; else `reject`.
    pub verdict: String,
    /// All of them.
    pub checks: Vec<Check>,
}

/// A check.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// Its name.
    pub check: String,
    /// Whether it passed.
    pub passed: bool,
    /// What was found.
    pub detail: String,
}

/// The files of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Artifacts {
    /// The block.
    pub carrier: Option<String>,
    /// What came back.
    pub decoded_payload: Option<String>,
    /// The model, if it was trained.
    pub model: Option<String>,
}

/// Several results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Document {
    /// 1.
    pub schema_version: u64,
    /// What made them: `compare`, `sweep` or `ladder`.
    pub kind: String,
    /// Which program, with its version.
    pub program: String,
    /// At least one.
    pub results: Vec<Record>,
}

/// What a document may be.
pub const KINDS: [&str; 3] = ["compare", "sweep", "ladder"];

impl Settings {
    /// Those of a shape.
    pub fn of(shape: &Shape, wrap: usize, max_steps: Option<u64>) -> Settings {
        let shape = ShapeSettings {
            uniform_mix: shape.uniform_mix,
            temperature: shape.temperature,
            min_probability: shape.min_probability,
            min_entropy_bits: shape.min_entropy_bits,
        };
        Settings { total: u64::from(TOTAL), topk: 0, shape, wrap: wrap as u64, max_steps }
    }
}

impl Document {
    /// One of this program.
    pub fn new(kind: &str, results: Vec<Record>) -> Document {
        let program = format!("agentcontainer {}", env!("CARGO_PKG_VERSION"));
        Document { schema_version: SCHEMA_VERSION, kind: kind.to_owned(), program, results }
    }
}

/// As it stands in a file: indented, with a newline at the end.
pub fn text(value: &impl Serialize) -> String {
    // Strings, numbers and maps with characters for keys: nothing of that is refused.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

/// What a file holds: results, or measurements of speed.
#[derive(Clone, Debug, PartialEq)]
pub enum Results {
    /// Of payloads there and back.
    Records(Vec<Record>),
    /// Of the benchmark.
    Speeds(Vec<Speed>),
}

/// The results in the text of a file.
///
/// # Errors
/// The first thing that is not as it is described, with the field's path.
pub fn read(text: &str) -> Result<Results, String> {
    let json = wire::parse(text).map_err(|why| format!("it is not JSON: {why}"))?;
    let mut fields = Fields::of(json, "")?;
    if json.get("benchmark").is_some() {
        return speed::read(fields).map(Results::Speeds);
    }
    if json.get("results").is_none_or(|results| results.raw() == "null") {
        return Ok(Results::Records(vec![record(json, "")?]));
    }
    schema_version(&mut fields)?;
    choice(&mut fields, "kind", &KINDS)?;
    fields.needed_text("program")?;
    let all = elements(&mut fields, record)?;
    fields.end()?;
    Ok(Results::Records(all))
}

/// The elements of `results`, at least one, each read with its path.
pub(super) fn elements<'a, T>(
    fields: &mut Fields<'a>,
    read: impl Fn(Json<'a>, &str) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    let results = fields.needed("results")?;
    if !results.raw().starts_with('[') {
        return fields.wrong("results", &format!("it is {}, not an array", results.kind()));
    }
    let mut all = Vec::new();
    for (at, result) in results.elements().enumerate() {
        if at == MAX_RESULTS {
            return fields.wrong("results", &format!("they are more than {MAX_RESULTS}"));
        }
        all.push(read(result, &format!("results[{at}]"))?);
    }
    if all.is_empty() {
        return fields.wrong("results", "it is empty");
    }
    Ok(all)
}

/// No size, count or time is beyond this.
pub(super) const MOST: u64 = 1 << 53;
pub(super) const MOST_SECONDS: f64 = 1e9;
const MOST_BITS: f64 = 1100.0;

fn record(json: Json<'_>, path: &str) -> Result<Record, String> {
    let mut f = Fields::of(json, path)?;
    let record = Record {
        schema_version: schema_version(&mut f)?,
        name: f.needed_text("name")?,
        payload_path: f.needed_text("payload_path")?,
        payload_bytes: f.needed_whole("payload_bytes", 0..=MOST)?,
        payload_sha256: needed_hash(&mut f, "payload_sha256")?,
        decoded_sha256: hash(&mut f, "decoded_sha256")?,
        model_type: choice(&mut f, "model_type", &MODEL_TYPES)?,
        model_fingerprint: needed_hash(&mut f, "model_fingerprint")?,
        model_path: f.text("model_path")?,
        fingerprint_stable: needed_flag(&mut f, "fingerprint_stable")?,
        settings: settings(&mut f)?,
        carrier_chars: f.whole("carrier_chars", 0..=MOST)?,
        full_armour_chars: f.whole("full_armour_chars", 0..=MOST)?,
        bits_per_carrier_char: f.number("bits_per_carrier_char", 0.0..=MOST_BITS)?,
        base64_baseline_chars: f.needed_whole("base64_baseline_chars", 0..=MOST)?,
        encode_seconds: f.number("encode_seconds", 0.0..=MOST_SECONDS)?,
        decode_seconds: f.number("decode_seconds", 0.0..=MOST_SECONDS)?,
        roundtrip_success: needed_flag(&mut f, "roundtrip_success")?,
        heldout_nll_bits: f.number("heldout_nll_bits", 0.0..=MOST_BITS)?,
        heldout_tokens: f.whole("heldout_tokens", 1..=MOST)?,
        avg_entropy_bits: f.number("avg_entropy_bits", 0.0..=MOST_BITS)?,
        avg_top_probability: f.number("avg_top_probability", 0.0..=1.0)?,
        carrier_quality: f.object("carrier_quality")?.map(diversity).transpose()?,
        convergence_failure_count: f.needed_whole("convergence_failure_count", 0..=1)?,
        error_message: f.text("error_message")?,
        promotion: f.object("promotion")?.map(promotion).transpose()?,
        artifacts: f.object("artifacts")?.map(artifacts).transpose()?,
    };
    if record.roundtrip_success && record.decoded_sha256.as_ref() != Some(&record.payload_sha256) {
        return f.wrong("roundtrip_success", "it is true, but decoded_sha256 is not payload_sha256");
    }
    let counted =
        record.carrier_quality.as_ref().map(|quality| quality.character_frequency.values().sum::<u64>());
    if counted.is_some() && counted != record.carrier_chars {
        return f.wrong("carrier_quality.character_frequency", "its counts do not add up to carrier_chars");
    }
    f.end()?;
    Ok(record)
}

pub(super) fn schema_version(f: &mut Fields<'_>) -> Result<u64, String> {
    f.needed_whole("schema_version", SCHEMA_VERSION..=SCHEMA_VERSION)
}

pub(super) fn choice(f: &mut Fields<'_>, name: &'static str, choices: &[&str]) -> Result<String, String> {
    let text = f.needed_text(name)?;
    match choices.contains(&&*text) {
        true => Ok(text),
        false => {
            let shown: String = text.chars().take(32).collect();
            f.wrong(name, &format!("it is {shown:?}, not one of {}", choices.join(", ")))
        }
    }
}

fn hash(f: &mut Fields<'_>, name: &'static str) -> Result<Option<String>, String> {
    let Some(text) = f.text(name)? else { return Ok(None) };
    let is_hash = text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    match is_hash {
        true => Ok(Some(text)),
        false => f.wrong(name, "it is no SHA-256 of 64 hexadecimal digits"),
    }
}

fn needed_hash(f: &mut Fields<'_>, name: &'static str) -> Result<String, String> {
    match hash(f, name)? {
        Some(hash) => Ok(hash),
        None => f.wrong(name, "it is missing"),
    }
}

pub(super) fn needed_flag(f: &mut Fields<'_>, name: &'static str) -> Result<bool, String> {
    match f.flag(name)? {
        Some(flag) => Ok(flag),
        None => f.wrong(name, "it is missing"),
    }
}

pub(super) fn needed_number(f: &mut Fields<'_>, name: &'static str, most: f64) -> Result<f64, String> {
    match f.number(name, 0.0..=most)? {
        Some(number) => Ok(number),
        None => f.wrong(name, "it is missing"),
    }
}

fn settings(f: &mut Fields<'_>) -> Result<Settings, String> {
    let Some(mut f) = f.object("settings")? else { return f.wrong("settings", "it is missing") };
    let Some(mut shape) = f.object("shape")? else { return f.wrong("shape", "it is missing") };
    let settings = Settings {
        total: f.needed_whole("total", u64::from(TOTAL)..=u64::from(TOTAL))?,
        topk: f.needed_whole("topk", 0..=0)?,
        shape: ShapeSettings {
            uniform_mix: needed_number(&mut shape, "uniform_mix", 1.0)?,
            temperature: needed_number(&mut shape, "temperature", f64::MAX)?,
            min_probability: needed_number(&mut shape, "min_probability", Shape::MAX_MIN_PROBABILITY)?,
            min_entropy_bits: needed_number(&mut shape, "min_entropy_bits", f64::MAX)?,
        },
        wrap: f.needed_whole("wrap", 0..=MOST)?,
        max_steps: f.whole("max_steps", 0..=MOST)?,
    };
    shape.end()?;
    f.end()?;
    Ok(settings)
}

fn diversity(mut f: Fields<'_>) -> Result<Diversity, String> {
    let counts = f.needed("character_frequency")?;
    if !counts.is_object() {
        return f.wrong("character_frequency", &format!("it is {}, not an object", counts.kind()));
    }
    let mut character_frequency = Frequencies::new();
    let mut sum = 0_u64;
    for member in counts.members() {
        let mut characters = member.key.chars();
        let (Some(character), None) = (characters.next(), characters.next()) else {
            return f.wrong("character_frequency", "a key of it is not one character");
        };
        let count = member.value.raw().parse().ok().filter(|count| (1..=MOST).contains(count));
        let Some(count) = count else {
            return f.wrong(
                "character_frequency",
                &format!("{character:?} has no whole number from 1 to {MOST}"),
            );
        };
        sum = sum.saturating_add(count);
        character_frequency.insert(character, count);
    }
    if sum > MOST || character_frequency.len() > 4096 {
        return f.wrong("character_frequency", "its counts are too many");
    }
    let diversity = Diversity {
        unique_character_count: f.needed_whole("unique_character_count", 0..=MOST)?,
        longest_repeated_run: f.needed_whole("longest_repeated_run", 0..=MOST)?,
        char_frequency_l1_divergence: f.number("char_frequency_l1_divergence", 0.0..=2.0 + 1e-9)?,
        char_frequency_kl_bits: f.number("char_frequency_kl_bits", 0.0..=MOST_BITS)?,
        preview_sample: match f.maybe("preview_sample").map(|value| (value, value.as_str())) {
            Some((_, Some(text))) if text.len() <= 4096 => text.into_owned(),
            Some((value, _)) => {
                return f.wrong("preview_sample", &format!("it is {}, not a short string", value.kind()))
            }
            None => return f.wrong("preview_sample", "it is missing"),
        },
        character_frequency,
    };
    if diversity.unique_character_count != diversity.character_frequency.len() as u64 {
        return f.wrong("unique_character_count", "it is not how many character_frequency has");
    }
    f.end()?;
    Ok(diversity)
}

fn promotion(mut f: Fields<'_>) -> Result<Promotion, String> {
    let verdict = choice(&mut f, "verdict", &["promote", "reject"])?;
    let array = f.needed("checks")?;
    let mut checks = Vec::new();
    for (at, json) in array.elements().enumerate().take(100) {
        let mut check = Fields::of(json, &format!("{}[{at}]", f.path("checks")))?;
        checks.push(Check {
            check: check.needed_text("check")?,
            passed: needed_flag(&mut check, "passed")?,
            detail: check.needed_text("detail")?,
        });
        check.end()?;
    }
    if checks.is_empty() {
        return f.wrong("checks", "there is none");
    }
    if (verdict == "promote") != checks.iter().all(|check| check.passed) {
        return f.wrong("verdict", &format!("it is {verdict}, and the checks say otherwise"));
    }
    f.end()?;
    Ok(Promotion { verdict, checks })
}

fn artifacts(mut f: Fields<'_>) -> Result<Artifacts, String> {
    let artifacts = Artifacts {
        carrier: f.text("carrier")?,
        decoded_payload: f.text("decoded_payload")?,
        model: f.text("model")?,
    };
    f.end()?;
    Ok(artifacts)
}
