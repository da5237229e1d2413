//! Results of the benchmark of speed: the third form that `docs/benchmark-result.schema.json` describes.

use super::fields::Fields;
use super::record::{self, MOST, MOST_SECONDS};
use crate::carrier::{ngram, transformer};
use crate::wire::Json;

/// How the benchmark names the models.
pub const MODELS: [&str; 3] = ["fixed", ngram::TYPE, transformer::TYPE];

/// What it times.
pub const OPERATIONS: [&str; 2] = ["encode", "decode"];

/// One payload through one model in one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct Speed {
    /// One of [`MODELS`].
    pub model: String,
    /// One of [`OPERATIONS`].
    pub operation: String,
    /// How long the payload is.
    pub payload_bytes: u64,
    /// Whether the start of the process is within the time.
    pub process_start: bool,
    /// How long it took.
    pub seconds: f64,
    /// How long the reference took, where it was run.
    pub reference_seconds: Option<f64>,
    /// How many times that is.
    pub times_faster: Option<f64>,
    /// The most memory that was held, where it was looked at.
    pub peak_bytes: Option<u64>,
}

/// The results in a document of the benchmark.
///
/// # Errors
/// The first thing that is not as it is described, with the field's path.
pub fn read(mut fields: Fields<'_>) -> Result<Vec<Speed>, String> {
    record::choice(&mut fields, "benchmark", &["carrier"])?;
    record::schema_version(&mut fields)?;
    let all = record::elements(&mut fields, speed)?;
    fields.end()?;
    Ok(all)
}

fn speed(json: Json<'_>, path: &str) -> Result<Speed, String> {
    let mut f = Fields::of(json, path)?;
    let speed = Speed {
        model: record::choice(&mut f, "model", &MODELS)?,
        operation: record::choice(&mut f, "operation", &OPERATIONS)?,
        payload_bytes: f.needed_whole("payload_bytes", 0..=MOST)?,
        process_start: record::needed_flag(&mut f, "process_start")?,
        seconds: record::needed_number(&mut f, "seconds", MOST_SECONDS)?,
        reference_seconds: f.number("reference_seconds", 0.0..=MOST_SECONDS)?,
        times_faster: f.number("times_faster", 0.0..=f64::MAX)?,
        peak_bytes: f.whole("peak_bytes", 0..=MOST)?,
    };
    f.end()?;
    Ok(speed)
}
