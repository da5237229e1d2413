//! `report RESULTS… --out page.html`: results as a page.

use super::args::{required, Command, Given};
use super::Outcome;
use crate::carrier::files;
use crate::research::{record, report};

pub(super) static COMMAND: Command = Command {
    name: "report",
    about: "Draws results of compare, sweep, experiment and make bench-carrier as one page.",
    operand: Some("RESULTS…"),
    flags: &[required("out", "FILE", "where the page goes")],
};

/// Of all files together, in bytes.
const MAX_BYTES: u64 = 4 * record::MAX_FILE_BYTES;

pub(super) fn run(given: &Given) -> Outcome {
    let out = given.needed("out");
    let paths = given.operands();
    let mut texts = Vec::new();
    let mut left = MAX_BYTES;
    for path in &paths {
        let text = files::read_text(path, left.min(record::MAX_FILE_BYTES)).map_err(|why| why.to_string())?;
        left -= text.len() as u64;
        texts.push((path.display().to_string(), text));
    }
    let page = report::render(texts.iter().map(|(name, text)| (&**name, &**text)))?;
    super::write(&out, &paths, page.as_bytes())?;
    Ok(format!("report path: {}\n", out.display()))
}
