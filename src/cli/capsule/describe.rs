//! `codecs` and `reference FILE --uri URI`.

use super::args::{required, Command, Given};
use super::receive::{not_text, read_bytes, JSON};
use super::{line, Outcome};
use crate::capsule::codec::CODECS;
use crate::capsule::json::{array, Object};
use crate::capsule::{normalized, reference, Envelope, Policy};

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
    // The hash is of the file's bytes, not of the text they become.
    let file = read_bytes(given.operand(), &Policy::default())?;
    let sha256 = reference::file_sha256(&file);
    let text = String::from_utf8(file).map_err(|_| not_text(given.operand()))?;
    let text = normalized(&text);
    let envelope = Envelope::parse(&text)?;
    Ok(if given.has(JSON.name) {
        line(reference::json(&envelope, &uri, &sha256))
    } else {
        reference::text(&envelope, &uri, &sha256)
    })
}
