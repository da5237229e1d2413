//! `codecs` and `reference FILE --uri URI`.

use std::path::Path;

use super::args::{required, Command, Given};
use super::receive::JSON;
use super::{line, Outcome};
use crate::capsule::codec::CODECS;
use crate::capsule::json::{array, Object};
use crate::capsule::{normalized, reference, CapsuleError, Envelope, MAX_TEXT_BYTES};

pub(super) static CODECS_COMMAND: Command =
    Command { name: "codecs", about: "Lists the codecs of this build.", operand: None, flags: &[JSON] };

pub(super) static REFERENCE: Command = Command {
    name: "reference",
    about: "Describes a capsule that is fetched from elsewhere.",
    operand: Some("FILE"),
    flags: &[required("uri", "URI", "where the capsule can be fetched"), JSON],
};

pub(super) fn codecs(given: &Given) -> Outcome {
    if given.has(JSON.name) {
        let codecs = CODECS.iter().map(|codec| {
            Object::new()
                .text("name", codec.name)
                .text("stability", codec.stability)
                .text("purpose", codec.purpose)
                .flag("requires_external_model", codec.requires_external_model)
                .text("notes", codec.notes)
                .finish()
        });
        return Ok(line(Object::new().raw("codecs", array(codecs)).finish()));
    }
    let lines = CODECS.iter().map(|codec| {
        let model = if codec.requires_external_model { "yes" } else { "no" };
        format!(
            "{}\t{}\t{}\n  external model: {model}\n  notes: {}\n",
            codec.name, codec.stability, codec.purpose, codec.notes
        )
    });
    Ok(lines.collect())
}

pub(super) fn reference(given: &Given) -> Outcome {
    let uri = given.text("uri")?.unwrap_or_default();
    let file = read_bytes(given.operand())?;
    let sha256 = reference::file_sha256(&file);
    let not_text = || CapsuleError::Io(format!("reading {}: it is not UTF-8 text", given.subject()));
    let text = String::from_utf8(file).map_err(|_| not_text())?;
    let text = normalized(&text);
    let envelope = Envelope::parse(&text)?;
    Ok(if given.has(JSON.name) {
        line(reference::json(&envelope, &uri, &sha256))
    } else {
        reference::text(&envelope, &uri, &sha256)
    })
}

/// A capsule's file as it lies there: its hash is of these bytes, not of the text they become.
fn read_bytes(path: &Path) -> Result<Vec<u8>, CapsuleError> {
    use std::io::Read;
    let failed = |error: std::io::Error| CapsuleError::Io(format!("reading {}: {error}", path.display()));
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(MAX_TEXT_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_TEXT_BYTES {
        return Err(failed(std::io::Error::other(format!("more than {MAX_TEXT_BYTES} bytes"))));
    }
    Ok(bytes)
}
