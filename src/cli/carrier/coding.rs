//! `encode --in F --out F` and `decode --in F --out F`.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use super::args::{option, required, Command, Given};
use super::meter::Meter;
use super::settings::{self, MIN_ENTROPY, MIN_PROB, MIX, MODEL, TEMPERATURE, TOPK};
use super::{create, not_written, Outcome};
use crate::carrier::{self, files, CarrierError, Decoding, Encoding};

pub(super) static ENCODE: Command = Command {
    name: "encode",
    about: "Writes the bytes of a file as a carrier text.",
    operand: None,
    flags: &[
        MODEL,
        required("in", "FILE", "the bytes"),
        required("out", "FILE", "where the text goes"),
        option("wrap", "N", "characters a line; 0: all on one (0)"),
        TOPK,
        MIX,
        TEMPERATURE,
        MIN_PROB,
        MIN_ENTROPY,
        option("max-steps", "N", "how many characters it may take (64 for each bit)"),
    ],
};

pub(super) static DECODE: Command = Command {
    name: "decode",
    about:
        "Reads a carrier text back. How it was shaped stands in it; if options say it too, they must agree.",
    operand: None,
    flags: &[
        MODEL,
        required("in", "FILE", "the text; what stands around the block does not matter"),
        required("out", "FILE", "where the bytes go"),
        TOPK,
        MIX,
        TEMPERATURE,
        MIN_PROB,
        MIN_ENTROPY,
    ],
};

pub(super) fn encode(given: &Given) -> Outcome {
    let (input, out) = (given.needed("in"), given.needed("out"));
    let encoding = Encoding {
        shape: settings::shape(given)?.unwrap_or_default(),
        wrap: settings::whole(given, "wrap", 0..=usize::MAX)?.unwrap_or(0),
        max_steps: settings::whole(given, "max-steps", 0..=u64::MAX)?,
    };
    let model = settings::model(given)?;
    let model_path = given.path(MODEL.name).unwrap_or_default();
    let payload = files::read_bytes(&input, u64::from(u32::MAX)).map_err(|why| why.to_string())?;
    let mut file = create(&out, &[&input, &model_path])?;
    let mut meter = Meter::new("encoding", "bytes");
    let encoded =
        carrier::encode(&payload, &model, &encoding, &mut file, &mut |done, of| meter.tell(done, of));
    drop(meter);
    let encoded = encoded.map_err(|why| about(&out, why))?;
    file.finish().map_err(|error| not_written(&out, &error))?;
    let frame_bits = (payload.len() + carrier::frame::HEADER_BYTES) as f64 * 8.0;
    Ok(format!(
        "payload bytes: {}\ncarrier chars: {}\nfull armour chars: {}\nbits/char: {:.3}\n\
         base64 chars baseline: {}\nmodel fingerprint: {}\n",
        payload.len(),
        encoded.carrier_chars,
        encoded.armour_chars,
        frame_bits / encoded.carrier_chars as f64,
        payload.len().div_ceil(3) * 4,
        encoded.fingerprint
    ))
}

pub(super) fn decode(given: &Given) -> Outcome {
    let (input, out) = (given.needed("in"), given.needed("out"));
    let decoding = Decoding { shape: settings::shape(given)?, ..Decoding::default() };
    let model = settings::model(given)?;
    let model_path = given.path(MODEL.name).unwrap_or_default();
    let source = File::open(&input).map_err(|error| format!("reading {}: {error}", input.display()))?;
    let mut source = BufReader::with_capacity(64 << 10, source);
    let mut meter = Meter::new("decoding", "bytes");
    let payload = carrier::decode(&mut source, &model, &decoding, &mut |done, of| meter.tell(done, of));
    drop(meter);
    let payload = payload.map_err(|why| about(&input, why))?;
    super::write(&out, &[&input, &model_path], &payload)?;
    Ok(format!(
        "payload bytes: {}\nCRC status: ok\nmodel fingerprint: {}\n",
        payload.len(),
        model.fingerprint()
    ))
}

/// The line for a failure; the file is named where it failed, and not its content.
fn about(file: &Path, why: CarrierError) -> String {
    match why {
        CarrierError::Io(what) => format!("{}: {what}", file.display()),
        other => other.to_string(),
    }
}
