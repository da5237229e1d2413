//! A payload through a model and back, with all that is measured on the way.

use std::time::Instant;

use sha2::{Digest, Sha256};

use super::quality::{self, Counter, Diversity, Frequencies, HeldOut};
use super::record::{self, Record, Settings, SCHEMA_VERSION};
use crate::carrier::{self, armour, frame, CarrierError, Decoding, Encoding, Model};
use crate::wire::hex;

/// A payload, and where it came from.
#[derive(Clone, Debug)]
pub struct Payload {
    /// The path, or what stands for one.
    pub path: String,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// A text that the model was not trained with.
#[derive(Clone, Debug)]
pub struct QualityText {
    text: String,
    frequencies: Frequencies,
}

impl QualityText {
    /// Of a text.
    pub fn new(text: String) -> QualityText {
        QualityText { frequencies: quality::frequencies(&text), text }
    }

    /// What a model says of it, shaped as that.
    ///
    /// # Errors
    /// It has no character of the vocabulary.
    pub fn read_by(
        &self,
        model: &Model,
        encoding: &Encoding,
        tell: Tell<'_>,
    ) -> Result<HeldOut, CarrierError> {
        HeldOut::of(model, &encoding.shape, self.text.as_bytes(), &mut |done, of| tell("reading", done, of))
    }
}

/// Told what is being done, how much of it is, and of how much.
pub type Tell<'a> = &'a mut dyn FnMut(&'static str, u64, u64);

/// A run.
#[derive(Clone, Debug)]
pub struct Run {
    /// What was measured; neither promotion nor artifacts.
    pub record: Record,
    /// The block, if there is one.
    pub text: Option<Vec<u8>>,
    /// What was decoded, if it could be.
    pub decoded: Option<Vec<u8>>,
}

/// Encodes and decodes a payload. That a step fails is a result; only a quality text that says nothing is an error.
///
/// # Errors
/// The quality text has no character of the vocabulary.
pub fn measure(
    name: &str,
    payload: &Payload,
    model: &Model,
    encoding: &Encoding,
    quality: Option<&QualityText>,
    tell: Tell<'_>,
) -> Result<Run, CarrierError> {
    let held_out = quality.map(|text| text.read_by(model, encoding, tell)).transpose()?;
    let fingerprint = model.fingerprint();
    let mut record = Record {
        schema_version: SCHEMA_VERSION,
        name: name.to_owned(),
        payload_path: payload.path.clone(),
        payload_bytes: payload.bytes.len() as u64,
        payload_sha256: hex::encode(&Sha256::digest(&payload.bytes)),
        decoded_sha256: None,
        model_type: record::model_type(model).to_owned(),
        model_fingerprint: fingerprint.clone(),
        model_path: None,
        fingerprint_stable: false,
        settings: Settings::of(&encoding.shape, encoding.wrap, encoding.max_steps),
        carrier_chars: None,
        full_armour_chars: None,
        bits_per_carrier_char: None,
        base64_baseline_chars: payload.bytes.len().div_ceil(3) as u64 * 4,
        encode_seconds: None,
        decode_seconds: None,
        roundtrip_success: false,
        heldout_nll_bits: held_out.map(|text| text.nll_bits),
        heldout_tokens: held_out.map(|text| text.tokens),
        avg_entropy_bits: held_out.map(|text| text.entropy_bits),
        avg_top_probability: held_out.map(|text| text.top_probability),
        carrier_quality: None,
        convergence_failure_count: 0,
        error_message: None,
        promotion: None,
        artifacts: None,
    };
    let (mut text, mut decoded) = (None, None);
    let reference = quality.map(|text| &text.frequencies);
    if let Err(why) =
        there_and_back(&mut record, payload, model, encoding, reference, (&mut text, &mut decoded), tell)
    {
        record.convergence_failure_count = u64::from(matches!(why, CarrierError::NotConverged { .. }));
        record.error_message = Some(why.to_string());
    }
    record.fingerprint_stable = is_stable(model, &fingerprint);
    Ok(Run { record, text, decoded })
}

fn there_and_back(
    record: &mut Record,
    payload: &Payload,
    model: &Model,
    encoding: &Encoding,
    reference: Option<&Frequencies>,
    (text, decoded): (&mut Option<Vec<u8>>, &mut Option<Vec<u8>>),
    tell: Tell<'_>,
) -> Result<(), CarrierError> {
    let mut made = Vec::with_capacity(payload.bytes.len() / 2 * 3 + 1024);
    let begun = Instant::now();
    let encoded = carrier::encode(&payload.bytes, model, encoding, &mut made, &mut |done, of| {
        tell("encoding", done, of);
    })?;
    record.encode_seconds = Some(begun.elapsed().as_secs_f64());
    record.carrier_chars = Some(encoded.carrier_chars);
    record.full_armour_chars = Some(encoded.armour_chars);
    let frame_bits = (payload.bytes.len() + frame::HEADER_BYTES) as f64 * 8.0;
    record.bits_per_carrier_char = Some(frame_bits / encoded.carrier_chars as f64);
    let made = text.insert(made);
    record.carrier_quality = Some(look_at(made, reference)?);
    let begun = Instant::now();
    let back = carrier::decode(&mut &made[..], model, &Decoding::default(), &mut |done, of| {
        tell("decoding", done, of);
    })?;
    record.decode_seconds = Some(begun.elapsed().as_secs_f64());
    record.decoded_sha256 = Some(hex::encode(&Sha256::digest(&back)));
    record.roundtrip_success = back == payload.bytes;
    *decoded = Some(back);
    Ok(())
}

fn look_at(text: &[u8], reference: Option<&Frequencies>) -> Result<Diversity, CarrierError> {
    let mut counter = Counter::default();
    let mut source = text;
    let (_, reader) = armour::Reader::begin(&mut source)?;
    reader.carrier(&mut |part, _| {
        counter.take(part);
        Ok(true)
    })?;
    Ok(counter.finish(reference))
}

/// Whether the model still has that fingerprint, and has it when it is read from its own text.
fn is_stable(model: &Model, fingerprint: &str) -> bool {
    let read_anew = match model {
        Model::Fixed => Some(Model::Fixed),
        other => Model::parse(&other.file_text()).ok(),
    };
    model.fingerprint() == fingerprint && read_anew.is_some_and(|model| model.fingerprint() == fingerprint)
}
