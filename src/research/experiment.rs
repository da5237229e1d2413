//! An experiment: a configuration, its runs, and whether what comes out is good enough to be promoted.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::fields::Fields;
use super::golden;
use super::record::{self, Artifacts, Check, Document, Promotion, Record};
use super::run::{self, Payload, QualityText, Run, Tell};
use crate::capsule::whole_file::{is_same_file, WholeFile};
use crate::carrier::chance::Chance;
use crate::carrier::{
    files, ngram, transformer, vocabulary, CarrierError, Encoding, Model, NGram, Shape, Transformer,
};
use crate::wire;

/// The largest configuration, in bytes.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// The largest payload of an experiment, in bytes.
pub const MAX_PAYLOAD_BYTES: u64 = 1 << 30;

/// The largest text that is trained with or held out, in bytes.
pub const MAX_TEXT_BYTES: u64 = 1 << 30;

/// How many sizes a ladder has at most.
const MAX_SIZES: usize = 64;

/// The files of an experiment, in its output directory.
const RESULT: &str = "result.json";
const CARRIER: &str = "carrier.txt";
const DECODED: &str = "decoded_payload.bin";
const MODEL: &str = "model.json";

/// A configuration; its paths are those of the file, and where relative, relative to its directory.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `experiment_name`.
    pub name: String,
    /// `payload_path`, or `payload_sizes` with `payload_seed`.
    pub source: Source,
    /// `model`.
    pub model: ModelSource,
    /// `shape_settings`, `wrap`, `max_steps`.
    pub encoding: Encoding,
    /// `quality_text_path`.
    pub quality_text: Option<PathBuf>,
    /// `promotion_gate.min_entropy_bits`.
    pub least_entropy_bits: f64,
    /// `run_golden_tests`.
    pub run_golden_tests: bool,
    /// `output_dir`.
    pub output_dir: PathBuf,
}

/// Where payloads come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A file.
    File(PathBuf),
    /// A ladder: pseudo-random bytes of each of these sizes.
    Sizes {
        /// In bytes.
        sizes: Vec<u64>,
        /// The same seed gives the same bytes.
        seed: u64,
    },
}

/// Where the model comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelSource {
    /// It needs nothing.
    Fixed,
    /// A file, which has to hold a model of that type.
    File(PathBuf, &'static str),
    /// Trained with a text.
    NGram(PathBuf, ngram::Training),
    /// Trained with a text.
    Transformer(PathBuf, transformer::Training),
}

/// What an experiment left.
#[derive(Clone, Debug)]
pub struct Done {
    /// The results, one for each payload.
    pub records: Vec<Record>,
    /// Where `result.json` is.
    pub result_path: PathBuf,
}

impl Config {
    /// Reads a configuration.
    ///
    /// # Errors
    /// The file, and the field that is wrong.
    pub fn read(path: &Path) -> Result<Config, String> {
        let text = files::read_text(path, MAX_CONFIG_BYTES).map_err(|why| why.to_string())?;
        let directory = path.parent().unwrap_or(Path::new(""));
        Config::parse(&text, directory).map_err(|why| format!("{}: {why}", path.display()))
    }

    /// Reads a configuration's text; `directory` is what relative paths are relative to.
    ///
    /// # Errors
    /// The field that is wrong.
    pub fn parse(text: &str, directory: &Path) -> Result<Config, String> {
        let json = wire::parse(text).map_err(|why| format!("it is not JSON: {why}"))?;
        let mut f = Fields::of(json, "")?;
        let name = f.needed_text("experiment_name")?;
        let source = source(&mut f, directory)?;
        let Some(model) = f.object("model")? else { return f.wrong("model", "it is missing") };
        let model = model_source(model, directory)?;
        let shape = f.object("shape_settings")?.map(shape).transpose()?.unwrap_or_default();
        let max_steps = f.whole("max_steps", 1..=u64::MAX)?;
        let wrap = f.whole("wrap", 0..=1_000_000)?.unwrap_or(0) as usize;
        let quality_text = f.text("quality_text_path")?.map(|path| directory.join(path));
        let least_entropy_bits = match f.object("promotion_gate")? {
            None => 0.0,
            Some(mut gate) => {
                let least = gate.number("min_entropy_bits", 0.0..=6.0)?.unwrap_or(0.0);
                gate.end()?;
                least
            }
        };
        let run_golden_tests = f.flag("run_golden_tests")?.unwrap_or(true);
        let output_dir = directory.join(f.needed_text("output_dir")?);
        f.end()?;
        let encoding = Encoding { shape, wrap, max_steps };
        Ok(Config {
            name,
            source,
            model,
            encoding,
            quality_text,
            least_entropy_bits,
            run_golden_tests,
            output_dir,
        })
    }

    /// What it reads.
    fn inputs(&self) -> Vec<&Path> {
        let mut inputs: Vec<&Path> = self.quality_text.iter().map(PathBuf::as_path).collect();
        if let Source::File(path) = &self.source {
            inputs.push(path);
        }
        match &self.model {
            ModelSource::Fixed => {}
            ModelSource::File(path, _) | ModelSource::NGram(path, _) | ModelSource::Transformer(path, _) => {
                inputs.push(path);
            }
        }
        inputs
    }
}

fn source(f: &mut Fields<'_>, directory: &Path) -> Result<Source, String> {
    let path = f.text("payload_path")?;
    let array = f.maybe("payload_sizes");
    let seed = f.whole("payload_seed", 0..=u64::MAX)?;
    match (path, array) {
        (Some(path), None) if seed.is_none() => Ok(Source::File(directory.join(path))),
        (Some(_), None) => f.wrong("payload_seed", "it goes with payload_sizes, not with payload_path"),
        (Some(_), Some(_)) => f.wrong("payload_sizes", "there is payload_path, too"),
        (None, None) => f.wrong("payload_path", "it is missing, and so is payload_sizes"),
        (None, Some(array)) => {
            let size =
                |json: wire::Json<'_>| json.raw().parse().ok().filter(|size| *size <= MAX_PAYLOAD_BYTES);
            let sizes: Option<Vec<u64>> = array.elements().take(MAX_SIZES + 1).map(size).collect();
            match sizes {
                Some(mut sizes) if (1..=MAX_SIZES).contains(&sizes.len()) => {
                    sizes.sort_unstable();
                    sizes.dedup();
                    Ok(Source::Sizes { sizes, seed: seed.unwrap_or(1) })
                }
                _ => {
                    let what =
                        format!("an array of 1 to {MAX_SIZES} whole numbers from 0 to {MAX_PAYLOAD_BYTES}");
                    f.wrong("payload_sizes", &format!("it is not {what}"))
                }
            }
        }
    }
}

fn model_source(mut f: Fields<'_>, directory: &Path) -> Result<ModelSource, String> {
    let kind = f.needed_text("type")?;
    let path = f.text("path")?.map(|path| directory.join(path));
    let training = f.object("training")?;
    let source = match (&*kind, path, training) {
        ("fixed", None, None) => ModelSource::Fixed,
        ("fixed", ..) => return f.wrong("type", "the fixed model has neither path nor training"),
        ("ngram", Some(path), None) => ModelSource::File(path, ngram::TYPE),
        ("transformer", Some(path), None) => ModelSource::File(path, transformer::TYPE),
        ("ngram" | "transformer", Some(_), Some(_)) => return f.wrong("training", "there is path, too"),
        ("ngram" | "transformer", None, None) => return f.wrong("path", "it is missing, and so is training"),
        ("ngram", None, Some(training)) => ngram_training(training, directory)?,
        ("transformer", None, Some(training)) => transformer_training(training, directory)?,
        (other, ..) => {
            let shown: String = other.chars().take(32).collect();
            return f.wrong("type", &format!("it is {shown:?}, not fixed, ngram or transformer"));
        }
    };
    f.end()?;
    Ok(source)
}

fn ngram_training(mut f: Fields<'_>, directory: &Path) -> Result<ModelSource, String> {
    let corpus = directory.join(f.needed_text("corpus_path")?);
    let default = ngram::Training::default();
    let order = f.whole("order", 0..=ngram::MAX_ORDER as u64)?;
    let training = ngram::Training {
        order: order.map_or(default.order, |order| order as usize),
        alpha: f.number("alpha", f64::MIN_POSITIVE..=f64::MAX)?.unwrap_or(default.alpha),
        uniform_mix: f.number("uniform_mix", 0.0..=1.0)?.unwrap_or(default.uniform_mix),
    };
    f.end()?;
    Ok(ModelSource::NGram(corpus, training))
}

fn transformer_training(mut f: Fields<'_>, directory: &Path) -> Result<ModelSource, String> {
    let corpus = directory.join(f.needed_text("corpus_path")?);
    let default = transformer::Training::default();
    let mut sizes = default.sizes;
    for (name, most, field) in [
        ("block_size", transformer::MAX_BLOCK, &mut sizes.block_size),
        ("d_model", transformer::MAX_MODEL, &mut sizes.d_model),
        ("ff_dim", transformer::MAX_HIDDEN, &mut sizes.ff_dim),
    ] {
        if let Some(size) = f.whole(name, 1..=most as u64)? {
            *field = size as usize;
        }
    }
    if let Some(seed) = f.whole("seed", 0..=i64::MAX as u64)? {
        sizes.seed = seed as i64;
    }
    let epochs = f.whole("epochs", 1..=10_000)?;
    let training = transformer::Training {
        sizes,
        epochs: epochs.map_or(default.epochs, |epochs| epochs as u32),
        learning_rate: f
            .number("learning_rate", f64::MIN_POSITIVE..=f64::MAX)?
            .unwrap_or(default.learning_rate),
    };
    f.end()?;
    Ok(ModelSource::Transformer(corpus, training))
}

fn shape(mut f: Fields<'_>) -> Result<Shape, String> {
    let default = Shape::default();
    let shape = Shape {
        uniform_mix: f.number("uniform_mix", 0.0..=1.0)?.unwrap_or(default.uniform_mix),
        temperature: f.number("temperature", f64::MIN_POSITIVE..=f64::MAX)?.unwrap_or(default.temperature),
        min_probability: f
            .number("min_probability", 0.0..=Shape::MAX_MIN_PROBABILITY)?
            .unwrap_or(default.min_probability),
        min_entropy_bits: f.number("min_entropy_bits", 0.0..=f64::MAX)?.unwrap_or(default.min_entropy_bits),
    };
    f.end()?;
    Ok(shape)
}

/// Does what a configuration asks for. The files are written when all is measured, `result.json` last: where it is, the
/// others are those that it speaks of.
///
/// # Errors
/// A file that cannot be read, trained with or written. Then no result of an earlier run is touched, unless it was the
/// writing that failed.
pub fn run(config: &Config, tell: Tell<'_>) -> Result<Done, String> {
    let out = &config.output_dir;
    if out.exists() && !out.is_dir() {
        return Err(format!("output_dir {} is no directory", out.display()));
    }
    let said = |why: CarrierError| why.to_string();
    let quality = config.quality_text.as_deref().map(|path| files::read_text(path, MAX_TEXT_BYTES));
    let quality = quality.transpose().map_err(said)?.map(QualityText::new);
    let model = model(&config.model, tell)?;
    let trained = matches!(config.model, ModelSource::NGram(..) | ModelSource::Transformer(..));
    let golden = config.run_golden_tests.then(golden::check);
    let measured = |name: &str, payload: &Payload, tell: Tell<'_>| {
        let mut run =
            run::measure(name, payload, &model, &config.encoding, quality.as_ref(), tell).map_err(said)?;
        run.record.promotion = Some(promotion(&run.record, config.least_entropy_bits, golden.as_ref()));
        run.record.model_path = match &config.model {
            ModelSource::File(path, _) => Some(shown(path)),
            _ => trained.then(|| shown(&out.join(MODEL))),
        };
        Ok::<Run, String>(run)
    };
    let result_path = out.join(RESULT);
    let writing = Writing { inputs: config.inputs() };
    match &config.source {
        Source::File(path) => {
            let bytes = files::read_bytes(path, MAX_PAYLOAD_BYTES).map_err(said)?;
            let mut run = measured(&config.name, &Payload { path: shown(path), bytes }, tell)?;
            writing.begin(out)?;
            let model_path = writing.model(out, trained.then_some(&model))?;
            writing.run(out, &mut run, model_path)?;
            Ok(Done { records: vec![run.record], result_path })
        }
        Source::Sizes { sizes, seed } => {
            writing.begin(out)?;
            let model_path = writing.model(out, trained.then_some(&model))?;
            let mut records = Vec::new();
            for size in sizes {
                let bytes = Chance::new(*seed).bytes(*size as usize);
                let payload = Payload { path: format!("random bytes, seed {seed}"), bytes };
                let mut run = measured(&format!("{} {size}", config.name), &payload, tell)?;
                let directory = out.join(size.to_string());
                writing.begin(&directory)?;
                writing.run(&directory, &mut run, model_path.clone())?;
                records.push(run.record);
            }
            let text = record::text(&Document::new("ladder", records.clone()));
            writing.file(&result_path, text.as_bytes())?;
            Ok(Done { records, result_path })
        }
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// The model of a configuration.
fn model(source: &ModelSource, tell: Tell<'_>) -> Result<Model, String> {
    match source {
        ModelSource::Fixed => Ok(Model::Fixed),
        ModelSource::File(path, kind) => {
            let model = Model::read(path).map_err(|why| why.to_string())?;
            match model.kind() == *kind {
                true => Ok(model),
                false => {
                    Err(format!("{}: it is a model of type {}, not {kind}", path.display(), model.kind()))
                }
            }
        }
        ModelSource::NGram(path, training) => {
            let model = NGram::train(&corpus(path)?, training);
            model
                .map(|model| Model::NGram(Box::new(model)))
                .map_err(|why| format!("{}: {why}", path.display()))
        }
        ModelSource::Transformer(path, training) => {
            let mut progress = |done, of| tell("training", done, of);
            let model = Transformer::train(&corpus(path)?, training, &mut progress);
            let model = model.map(|model| Model::Transformer(Box::new(model)));
            model.map_err(|why| format!("{}: {why}", path.display()))
        }
    }
}

/// A text to train with: one that has something to learn from.
///
/// # Errors
/// It cannot be read, or has no character of the vocabulary.
pub fn corpus(path: &Path) -> Result<Vec<u8>, String> {
    let text = files::read_bytes(path, MAX_TEXT_BYTES).map_err(|why| why.to_string())?;
    match text.iter().any(|byte| vocabulary::index(*byte) != vocabulary::NONE) {
        true => Ok(text),
        false => Err(format!("{}: {}", path.display(), CarrierError::NothingToLearn)),
    }
}

/// The checks, in the order in which they are named.
fn promotion(record: &Record, least_entropy_bits: f64, golden: Option<&Result<(), String>>) -> Promotion {
    let check = |check: &str, passed: bool, detail: String| Check { check: check.to_owned(), passed, detail };
    let either = |passed: bool, yes: &str, no: &str| if passed { yes } else { no }.to_owned();
    let error = record.error_message.as_deref();
    let hashes_equal = record.decoded_sha256.as_ref() == Some(&record.payload_sha256);
    let converged = record.convergence_failure_count == 0 && record.carrier_chars.is_some();
    let (entropy, about_entropy) = match record.avg_entropy_bits {
        // What is at the gate may lie a rounding below it.
        Some(bits) => {
            (bits + 1e-9 >= least_entropy_bits, format!("{bits:.6} bits, the gate is {least_entropy_bits}"))
        }
        None if least_entropy_bits == 0.0 => (true, "no least entropy is asked for".to_owned()),
        None => (false, "not measured: there is no quality_text_path".to_owned()),
    };
    let (unaffected, about_golden) = match golden {
        Some(Ok(())) => (true, "the golden messages are what they were".to_owned()),
        Some(Err(what)) => (false, what.clone()),
        None => (false, "not run: run_golden_tests is false".to_owned()),
    };
    let lost = error.unwrap_or("what came back differs");
    let checks = vec![
        check(
            "round_trip",
            record.roundtrip_success,
            either(record.roundtrip_success, "the payload came back", lost),
        ),
        check(
            "hashes_equal",
            hashes_equal,
            either(hashes_equal, &record.payload_sha256, "there are not two equal ones"),
        ),
        check(
            "fingerprint_stable",
            record.fingerprint_stable,
            either(record.fingerprint_stable, &record.model_fingerprint, "it changed"),
        ),
        check("entropy_gate", entropy, about_entropy),
        check(
            "convergence",
            converged,
            either(converged, "the encoding ended", error.unwrap_or("it did not end")),
        ),
        check("golden_unaffected", unaffected, about_golden),
    ];
    let verdict = either(checks.iter().all(|check| check.passed), "promote", "reject");
    Promotion { verdict, checks }
}

/// Writes files, but none over one that is read.
struct Writing<'a> {
    inputs: Vec<&'a Path>,
}

impl Writing<'_> {
    /// Makes the directory, and takes away the result of an earlier run before its files are.
    fn begin(&self, directory: &Path) -> Result<(), String> {
        for name in [RESULT, CARRIER, DECODED, MODEL] {
            self.check(&directory.join(name))?;
        }
        fs::create_dir_all(directory).map_err(|error| format!("making {}: {error}", directory.display()))?;
        for name in [RESULT, CARRIER, DECODED] {
            let path = directory.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(format!("removing {}: {error}", path.display()))
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn check(&self, path: &Path) -> Result<(), String> {
        match self.inputs.iter().find(|input| is_same_file(path, input)) {
            Some(input) => Err(format!("output_dir: {} would overwrite {}", path.display(), input.display())),
            None => Ok(()),
        }
    }

    fn file(&self, path: &Path, bytes: &[u8]) -> Result<(), String> {
        let written = WholeFile::create(path).and_then(|mut file| {
            file.write_all(bytes)?;
            file.finish()
        });
        written.map_err(|error| format!("writing {}: {error}", path.display()))
    }

    fn model(&self, directory: &Path, model: Option<&Model>) -> Result<Option<String>, String> {
        let Some(model) = model else { return Ok(None) };
        let path = directory.join(MODEL);
        self.file(&path, model.file_text().as_bytes())?;
        Ok(Some(shown(&path)))
    }

    fn run(&self, directory: &Path, run: &mut Run, model: Option<String>) -> Result<(), String> {
        let file = |name: &str, bytes: Option<&Vec<u8>>| -> Result<Option<String>, String> {
            let Some(bytes) = bytes else { return Ok(None) };
            let path = directory.join(name);
            self.file(&path, bytes)?;
            Ok(Some(shown(&path)))
        };
        let carrier = file(CARRIER, run.text.as_ref())?;
        let decoded_payload = file(DECODED, run.decoded.as_ref())?;
        run.record.artifacts = Some(Artifacts { carrier, decoded_payload, model });
        self.file(&directory.join(RESULT), record::text(&run.record).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = r#"{"experiment_name":"x","payload_path":"p","model":{"type":"ngram","training":
        {"corpus_path":"c","order":1,"alpha":0.5,"uniform_mix":0.75}},"shape_settings":{"temperature":1.25},
        "max_steps":null,"wrap":80,"promotion_gate":{"min_entropy_bits":3},"output_dir":"/out"}"#;

    #[test]
    fn paths_are_relative_to_the_configuration() {
        let config = Config::parse(CONFIG, Path::new("/at")).unwrap();
        assert_eq!(config.source, Source::File("/at/p".into()));
        assert_eq!(config.output_dir, Path::new("/out"));
        let training = ngram::Training { order: 1, alpha: 0.5, uniform_mix: 0.75 };
        assert_eq!(config.model, ModelSource::NGram("/at/c".into(), training));
        assert_eq!((config.encoding.wrap, config.encoding.max_steps), (80, None));
        assert!(config.run_golden_tests && config.least_entropy_bits == 3.0);
    }

    #[test]
    fn what_is_wrong_is_named_by_its_path() {
        for (from, to, what) in [
            (
                "\"wrap\":80",
                "\"warp\":80",
                "field warp: it is unknown; there are: experiment_name, payload_path",
            ),
            ("\"order\":1", "\"ordre\":1", "field model.training.ordre: it is unknown"),
            (
                "\"order\":1",
                "\"order\":17",
                "field model.training.order: it is 17, not a whole number from 0 to 16",
            ),
            ("\"order\":1", "\"order\":\"1\"", "field model.training.order: it is a string, not a whole"),
            ("1.25", "1e400", "field shape_settings.temperature: it is 1e400, not a finite number above 0"),
            ("0.75", "1.5", "field model.training.uniform_mix: it is 1.5, not a number from 0 to 1"),
            ("\"alpha\":0.5", "\"alpha\":0", "field model.training.alpha: it is 0, not"),
            ("1.25", "0", "field shape_settings.temperature: it is 0, not a finite number above 0"),
            ("{\"temperature\"", "{\"topk\":1,\"temperature\"", "field shape_settings.topk: it is unknown"),
            (
                "\"ngram\"",
                "\"markov\"",
                "field model.type: it is \"markov\", not fixed, ngram or transformer",
            ),
            ("\"ngram\"", "\"fixed\"", "field model.type: the fixed model has neither"),
            ("\"ngram\",", "\"ngram\",\"path\":\"m\",", "field model.training: there is path, too"),
            ("\"payload_path\":\"p\",", "", "field payload_path: it is missing, and so is payload_sizes"),
            (
                "\"payload_path\":\"p\"",
                "\"payload_sizes\":[1,-1]",
                "field payload_sizes: it is not an array of 1 to",
            ),
            (
                "\"payload_path\":\"p\"",
                "\"payload_sizes\":[]",
                "field payload_sizes: it is not an array of 1 to",
            ),
            ("\"experiment_name\":\"x\",", "", "field experiment_name: it is missing"),
            ("\"/out\"", "\"\"", "field output_dir: it is empty"),
            ("\"max_steps\":null", "\"max_steps\":0", "field max_steps: it is 0, not a whole number from 1"),
            ("\"wrap\":80", "\"wrap\":80,\"wrap\":80", "it is not JSON"),
            ("{\"min_entropy_bits\":3}", "[]", "field promotion_gate must be an object, not an array"),
        ] {
            assert!(CONFIG.contains(from), "{from}");
            let why = Config::parse(&CONFIG.replacen(from, to, 1), Path::new("")).unwrap_err();
            assert!(why.contains(what), "{what:?} is not in {why:?}");
        }
    }
}
