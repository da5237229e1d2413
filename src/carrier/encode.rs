//! From a payload to a carrier text, and back.

use std::io::{BufRead, Write};

use super::armour::{self, Header};
use super::coder::{Chooser, Teller};
use super::frame::{Bits, Incoming};
use super::quantise::quantise;
use super::vocabulary::{self, SIZE, SYMBOLS};
use super::{fixed, ngram, transformer, CarrierError, Model, Shape, Walk};

/// Told now and then how many bytes are done, and of how many (0: not known yet).
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// How many symbols are made before the next ones are.
const PART: usize = 32 << 10;

/// How a carrier is written.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Encoding {
    /// How the model's distributions are shaped.
    pub shape: Shape,
    /// Characters a line; 0: all on one.
    pub wrap: usize,
    /// How many symbols it may become; if not given, 64 for each bit of the frame.
    pub max_steps: Option<u64>,
}

/// A carrier that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// How many characters the carrier has.
    pub carrier_chars: u64,
    /// How many characters the whole block has.
    pub armour_chars: u64,
    /// Of the model.
    pub fingerprint: String,
}

/// Writes a payload as a carrier block.
///
/// # Errors
/// Settings that make no sense, a payload beyond 4 GiB, more steps than allowed, or `out` fails.
pub fn encode(
    payload: &[u8],
    model: &Model,
    encoding: &Encoding,
    out: &mut dyn Write,
    progress: Progress<'_>,
) -> Result<Encoded, CarrierError> {
    let shape = &encoding.shape;
    shape.check()?;
    let bits = Bits::new(payload)?;
    let max_steps = encoding.max_steps.unwrap_or_else(|| (bits.count() * 64).max(1024));
    let header = Header { fingerprint: model.fingerprint(), shape: *shape };
    let even = is_even(model, shape)?;
    let mut writer = armour::Writer::begin(out, &header, encoding.wrap)?;
    let total = payload.len() as u64;
    let mut emit = |text: &[u8], bits_done: u64| {
        progress((bits_done / 8).min(total), total);
        writer.write(text)
    };
    match model {
        _ if even => encode_evenly(&bits, max_steps, &mut emit)?,
        Model::Fixed => return Err(CarrierError::Entropy),
        Model::NGram(model) => encode_with(ngram::Walk::new(model, shape), &bits, max_steps, &mut emit)?,
        Model::Transformer(model) => {
            encode_with(transformer::Walk::new(model, shape), &bits, max_steps, &mut emit)?;
        }
    }
    let (carrier_chars, armour_chars) = writer.end()?;
    Ok(Encoded { carrier_chars, armour_chars, fingerprint: header.fingerprint })
}

/// Whether every symbol has the same count at every place. Shaping moves equal probabilities alike, so the
/// fixed model's counts are always even; what they really come to is looked at all the same.
fn is_even(model: &Model, shape: &Shape) -> Result<bool, CarrierError> {
    if *model != Model::Fixed {
        return Ok(false);
    }
    let mut shares = [1.0 / SIZE as f64; SIZE];
    shape.apply(&mut shares)?;
    Ok(quantise(&shares).iter().all(|count| *count == 1024))
}

/// Takes characters, and how many bits of the frame are done.
type Emit<'a> = dyn FnMut(&[u8], u64) -> Result<(), CarrierError> + 'a;

fn encode_evenly(bits: &Bits<'_>, max_steps: u64, emit: &mut Emit<'_>) -> Result<(), CarrierError> {
    let symbols = fixed::symbols(bits);
    if symbols > max_steps {
        return Err(CarrierError::NotConverged { steps: max_steps });
    }
    let mut part = Vec::with_capacity(PART);
    let mut from = 0;
    while from < symbols {
        let upto = symbols.min(from + PART as u64);
        fixed::encode(bits, from, upto, &mut part);
        emit(&part, upto * 6)?;
        part.clear();
        from = upto;
    }
    Ok(())
}

/// The source's bits choose the symbols; they end where an encoder that got them would have told the frame.
fn encode_with(
    mut walk: impl Walk,
    bits: &Bits<'_>,
    max_steps: u64,
    emit: &mut Emit<'_>,
) -> Result<(), CarrierError> {
    let count = bits.count();
    let get = |at: u64, count: u32| bits.get(at, count);
    let mut chooser = Chooser::new(get);
    let mut part = Vec::with_capacity(PART);
    for _ in 0..max_steps {
        let symbol = chooser.choose(walk.table()?, get);
        part.push(SYMBOLS[usize::from(symbol & 63)]);
        if chooser.has_told(count, get) {
            return emit(&part, count);
        }
        walk.advance(symbol);
        if part.len() == PART {
            emit(&part, chooser.taken())?;
            part.clear();
        }
    }
    Err(CarrierError::NotConverged { steps: max_steps })
}

/// What a reader asks of a carrier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decoding {
    /// How it has to be shaped; if not given, as it says itself.
    pub shape: Option<Shape>,
    /// How large its payload may be, in bytes.
    pub max_payload: u64,
}

impl Default for Decoding {
    fn default() -> Decoding {
        Decoding { shape: None, max_payload: u64::from(u32::MAX) }
    }
}

/// Reads the first carrier block of a text. The payload is what was packed, or there is none: its CRC is checked.
///
/// # Errors
/// The check that failed.
pub fn decode(
    source: &mut dyn BufRead,
    model: &Model,
    decoding: &Decoding,
    progress: Progress<'_>,
) -> Result<Vec<u8>, CarrierError> {
    let (header, reader) = armour::Reader::begin(source)?;
    let fingerprint = model.fingerprint();
    if header.fingerprint != fingerprint {
        return Err(CarrierError::Fingerprint { block: header.fingerprint, model: fingerprint });
    }
    if let Some(wanted) = decoding.shape.filter(|wanted| *wanted != header.shape) {
        let shown = |shape: Shape| match shape.settings() {
            none if none.is_empty() => "none".to_owned(),
            some => some.trim_start_matches("; ").to_owned(),
        };
        return Err(CarrierError::Settings(format!(
            "the block was shaped with {}, and not with {}",
            shown(header.shape),
            shown(wanted)
        )));
    }
    let frame = Incoming::new(decoding.max_payload);
    let shape = &header.shape;
    match model {
        _ if is_even(model, shape)? => decode_evenly(reader, frame, progress),
        Model::Fixed => Err(CarrierError::Entropy),
        Model::NGram(model) => decode_with(ngram::Walk::new(model, shape), reader, frame, progress),
        Model::Transformer(model) => {
            decode_with(transformer::Walk::new(model, shape), reader, frame, progress)
        }
    }
}

fn decode_evenly(
    reader: armour::Reader<'_>,
    mut frame: Incoming,
    progress: Progress<'_>,
) -> Result<Vec<u8>, CarrierError> {
    let mut decoder = fixed::Decoder::default();
    let mut told = Told::new(progress);
    reader.carrier(&mut |text, line| {
        decoder.decode(text, line, frame.bytes())?;
        told.now(&frame);
        Ok(!frame.is_whole()?)
    })?;
    if !frame.is_whole()? {
        decoder.end(frame.bytes());
    }
    frame.payload()
}

fn decode_with(
    mut walk: impl Walk,
    reader: armour::Reader<'_>,
    mut frame: Incoming,
    progress: Progress<'_>,
) -> Result<Vec<u8>, CarrierError> {
    let mut teller = Teller::default();
    let mut told = Told::new(progress);
    reader.carrier(&mut |text, line| {
        for character in text {
            let symbol = vocabulary::index(*character);
            if symbol == vocabulary::NONE {
                return Err(CarrierError::Character { found: char::from(*character), line });
            }
            teller.tell(walk.table()?, symbol, frame.bytes());
            walk.advance(symbol);
            if frame.received() >= frame.wanted() && frame.is_whole()? {
                return Ok(false);
            }
        }
        told.now(&frame);
        Ok(true)
    })?;
    if !frame.is_whole()? {
        teller.end(frame.bytes());
    }
    frame.payload()
}

/// Tells of progress, not at every line.
struct Told<'a> {
    progress: Progress<'a>,
    next: usize,
}

impl<'a> Told<'a> {
    fn new(progress: Progress<'a>) -> Told<'a> {
        Told { progress, next: 0 }
    }

    fn now(&mut self, frame: &Incoming) {
        if frame.received() >= self.next {
            (self.progress)(frame.received() as u64, frame.expected().unwrap_or(0) as u64);
            self.next = frame.received() + PART;
        }
    }
}
