//! `corpus --out F --lines N` and `split --input F …`: texts to train with and to measure on.

use std::io::{BufWriter, Write};

use super::args::{option, required, switch, Command, Given};
use super::settings::{real, whole};
use super::{create, not_written, Outcome};
use crate::carrier::files;
use crate::research::corpus::{self, MAX_LINES};
use crate::research::experiment::MAX_TEXT_BYTES;
use crate::research::split;

pub(super) static CORPUS: Command = Command {
    name: "corpus",
    about: "Writes a text of made-up sentences inside the vocabulary; the same seed gives the same text.",
    operand: None,
    flags: &[
        required("out", "FILE", "where the text goes"),
        option("lines", "N", "how many lines (1000)"),
        option("seed", "N", "what it is drawn with (42)"),
        option("domain", "NAME", "harbour, kitchen, weather, workshop, logs, or all of them: mixed (mixed)"),
    ],
};

pub(super) static SPLIT: Command = Command {
    name: "split",
    about: "Draws the lines of a text that are held out from training.",
    operand: None,
    flags: &[
        required("input", "FILE", "the text"),
        required("train-out", "FILE", "where the lines to train with go"),
        required("heldout-out", "FILE", "where the others go"),
        option("heldout-ratio", "R", "the share of the others, above 0 and below 1 (0.2)"),
        option("seed", "N", "what they are drawn with (42)"),
        switch("filter-vocab", "leave out what is outside the vocabulary"),
    ],
};

pub(super) fn corpus(given: &Given) -> Outcome {
    let out = given.needed("out");
    let lines = whole(given, "lines", 1..=MAX_LINES)?.unwrap_or(1000);
    let seed = whole(given, "seed", 0..=u64::MAX)?.unwrap_or(42);
    let domain = given.text("domain")?.unwrap_or_else(|| "mixed".into());
    if !corpus::is_known(&domain) {
        return Err(format!("no domain {domain:?}; there are: {}", corpus::domains().join(", ")));
    }
    let mut file = create(&out, &[])?;
    let mut buffer = BufWriter::with_capacity(64 << 10, &mut file);
    let written = corpus::write(&domain, lines, seed, &mut buffer);
    let written = written.and_then(|bytes| buffer.flush().map(|()| bytes));
    drop(buffer);
    let bytes =
        written.and_then(|bytes| file.finish().map(|()| bytes)).map_err(|error| not_written(&out, &error))?;
    Ok(format!(
        "corpus path: {}\ndomain: {domain}\nseed: {seed}\nlines: {lines}\nbytes: {bytes}\n",
        out.display()
    ))
}

pub(super) fn split(given: &Given) -> Outcome {
    let (input, train, held_out) =
        (given.needed("input"), given.needed("train-out"), given.needed("heldout-out"));
    let ratio = real(given, "heldout-ratio", "above 0 and below 1")?.unwrap_or(0.2);
    let seed = whole(given, "seed", 0..=u64::MAX)?.unwrap_or(42);
    let text = files::read_text(&input, MAX_TEXT_BYTES).map_err(|why| why.to_string())?;
    let parts = split::split(&text, ratio, seed, given.has("filter-vocab"));
    let parts = parts.map_err(|why| format!("{}: {why}", input.display()))?;
    if train == held_out {
        return Err(format!("--train-out and --heldout-out are both {}", train.display()));
    }
    // Both stand beside their places before either is in it.
    let mut files = [(&train, &parts.train, None), (&held_out, &parts.held_out, None)];
    for (path, text, file) in &mut files {
        let mut new = create(path, &[&input])?;
        new.write_all(text.as_bytes()).map_err(|error| not_written(path, &error))?;
        *file = Some(new);
    }
    for (path, _, file) in files {
        if let Some(file) = file {
            file.finish().map_err(|error| not_written(path, &error))?;
        }
    }
    Ok(format!(
        "train path: {}\ntrain lines: {}\nheldout path: {}\nheldout lines: {}\n",
        train.display(),
        parts.train_lines,
        held_out.display(),
        parts.held_out_lines
    ))
}
