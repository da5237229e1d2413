//! The page: HTML from results.

use sha2::{Digest, Sha256};

use super::super::quality::Diversity;
use super::super::record::{Record, MODEL_TYPES};
use super::super::speed::Speed;
use super::draw::{self, Bar, Series, Told};
use super::speed;
use crate::base64;
use crate::capsule::report::text::{plain, shown};
use crate::carrier::vocabulary::{SIZE, SYMBOLS};

const STYLE: &str = include_str!("page.css");

/// How many bars a plot has at most, and how many results get a plot of their characters; tables have all.
const MAX_BARS: usize = 40;
const MAX_SPREADS: usize = 12;

/// The whole page: what there are results for.
pub fn page(records: &[Record], speeds: &[Speed]) -> String {
    let mut out = head();
    out.push_str("<header>\n<p class=\"above\">Carrier codecs</p>\n<h1>Results</h1>\n");
    out.push_str(&summary(records, speeds));
    out.push_str("</header>\n<main>\n");
    if !records.is_empty() {
        out.push_str(&bits(records));
        out.push_str(&times(records));
    }
    out.push_str(&speed::figures(speeds));
    if !records.is_empty() {
        out.push_str(&entropies(records));
        out.push_str(&spreads(records));
        out.push_str(&checks(records));
    }
    out.push_str(&format!(
        "</main>\n<footer>\n<p>Made by agentcontainer {} from result files. The page runs nothing and loads nothing; \
         what the files say is shown as text. What the numbers mean stands in docs/CARRIERS.md.</p>\n</footer>\n\
         </body>\n</html>\n",
        env!("CARGO_PKG_VERSION")
    ));
    out
}

/// The style is the only thing that the page may use, and it is named by its hash.
fn head() -> String {
    let style = format!("\n{STYLE}");
    let hash = base64::encode(&Sha256::digest(style.as_bytes()));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-{hash}'; \
         base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>Carrier results</title>\n<style>{style}</style>\n</head>\n<body>\n"
    )
}

fn summary(records: &[Record], speeds: &[Speed]) -> String {
    let back = records.iter().filter(|record| record.roundtrip_success).count();
    let verdicts: Vec<&str> =
        records.iter().filter_map(|record| record.promotion.as_ref()).map(|p| &*p.verdict).collect();
    let promoted = verdicts.iter().filter(|verdict| **verdict == "promote").count();
    let promotion = match verdicts.len() {
        0 => String::new(),
        all => format!(" {promoted} of {all} passed every check of promotion."),
    };
    let all = records.len();
    let mut said = Vec::new();
    if all > 0 {
        said.push(format!("{all} results; the payload came back in {back}.{promotion}"));
    }
    if !speeds.is_empty() {
        said.push(format!("{} measurements of speed.", speeds.len()));
    }
    format!(
        "<p class=\"lead\" data-results=\"{all}\" data-back=\"{back}\" data-speeds=\"{}\">{}</p>\n",
        speeds.len(),
        said.join(" ")
    )
}

/// The place of a model's type among the colours.
fn class(record: &Record) -> usize {
    MODEL_TYPES.iter().position(|kind| *kind == record.model_type).unwrap_or(0)
}

/// A figure: a heading, what it is about, the drawing, and the numbers.
pub(super) fn figure(id: &str, title: &str, about: &str, drawing: &str, table: &str) -> String {
    let drawing = match drawing.is_empty() {
        true => "<p class=\"soft\">Nothing of this was measured.</p>\n".to_owned(),
        false => format!(
            "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{}, the plot\">\n{drawing}</div>\n",
            plain(title)
        ),
    };
    format!(
        "<section aria-labelledby=\"{id}\" data-plot=\"{id}\">\n<h2 id=\"{id}\">{}</h2>\n<p class=\"lead\">{about}</p>\n\
         <div class=\"card\">\n{drawing}{table}</div>\n</section>\n",
        shown(title)
    )
}

/// A table; the first cell of a row names it. Cells are HTML.
pub(super) fn table(caption: &str, head: &[&str], rows: &[Vec<String>]) -> String {
    let mut out = format!(
        "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{0}, the numbers\">\n<table>\n\
         <caption>{0}</caption>\n<thead><tr>",
        plain(caption)
    );
    for name in head {
        out.push_str(&format!("<th scope=\"col\">{name}</th>"));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in rows {
        for (at, cell) in row.iter().enumerate() {
            out.push_str(&match at {
                0 => format!("<tr><th scope=\"row\">{cell}</th>"),
                _ => format!("<td>{cell}</td>"),
            });
        }
        out.push_str("</tr>\n");
    }
    out + "</tbody>\n</table>\n</div>\n"
}

pub(super) fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or("not measured".into(), |value| format!("{value:.digits$}"))
}

pub(super) fn rate(bytes: u64, seconds: Option<f64>) -> String {
    match seconds {
        Some(seconds) if seconds > 0.0 => format!("{:.1}", bytes as f64 / 1024.0 / seconds),
        _ => "not measured".into(),
    }
}

fn count(value: Option<u64>) -> String {
    value.map_or("none".into(), |value| value.to_string())
}

/// Bars, of those results that have a value.
fn bars(told: &Told<'_>, axis: &str, records: &[Record], value: impl Fn(&Record) -> Option<f64>) -> String {
    let bars: Vec<Bar> = records
        .iter()
        .filter_map(|record| {
            Some(Bar { label: record.name.clone(), value: value(record)?, class: class(record) })
        })
        .take(MAX_BARS)
        .collect();
    if bars.is_empty() {
        String::new()
    } else {
        draw::bars(told, axis, &bars, 3)
    }
}

fn more(records: &[Record], most: usize) -> String {
    match records.len() > most {
        true => format!(" The plot shows the first {most} of {}; the table has all.", records.len()),
        false => String::new(),
    }
}

fn bits(records: &[Record]) -> String {
    let title = "Bits a character";
    let about = format!(
        "How many bits of the frame each character of the carrier holds. 6 is what 64 characters can hold at most; \
         Base64 holds 6, too.{}",
        more(records, MAX_BARS)
    );
    let told =
        Told { id: "plot-bits", title, about: "A bar for each result; its length is the bits a character." };
    let drawing = bars(&told, "bits a carrier character", records, |record| record.bits_per_carrier_char);
    let rows: Vec<Vec<String>> = records
        .iter()
        .map(|record| {
            vec![
                shown(&record.name),
                shown(&record.model_type),
                record.payload_bytes.to_string(),
                count(record.carrier_chars),
                count(record.full_armour_chars),
                record.base64_baseline_chars.to_string(),
                number(record.bits_per_carrier_char, 3),
                match &record.error_message {
                    Some(error) => shown(error),
                    None if record.roundtrip_success => "yes".into(),
                    None => "no".into(),
                },
            ]
        })
        .collect();
    let head = [
        "result",
        "model",
        "payload, bytes",
        "carrier, chars",
        "block, chars",
        "Base64, chars",
        "bits a char",
        "came back",
    ];
    figure("bits", title, &about, &drawing, &table(title, &head, &rows))
}

fn times(records: &[Record]) -> String {
    let title = "Time against size";
    let about =
        "How long encoding and decoding took for how large a payload. Both axes are logarithmic: what takes \
                 time in proportion to the size is a straight line that rises one decade for each decade.";
    let mut series = Vec::new();
    for (at, kind) in MODEL_TYPES.iter().enumerate() {
        for (what, hollow) in [("encoding", false), ("decoding", true)] {
            let seconds =
                |record: &Record| if hollow { record.decode_seconds } else { record.encode_seconds };
            let points: Vec<(f64, f64)> = records
                .iter()
                .filter(|record| record.model_type == *kind)
                // A logarithm has no place for nothing.
                .filter_map(|record| {
                    Some(((record.payload_bytes as f64).max(1.0), seconds(record)?.max(1e-6)))
                })
                .collect();
            if !points.is_empty() {
                series.push(Series { label: format!("{kind}, {what}"), class: at, hollow, points });
            }
        }
    }
    let told = Told {
        id: "plot-time",
        title,
        about: "A point for each result: its payload's size to the right, the seconds upwards; dots are encoding, \
                hollow squares decoding.",
    };
    let drawing = match series.is_empty() {
        true => String::new(),
        false => draw::points(&told, ("payload, bytes", "time, seconds"), &series),
    };
    let rows: Vec<Vec<String>> = records
        .iter()
        .map(|record| {
            vec![
                shown(&record.name),
                shown(&record.model_type),
                record.payload_bytes.to_string(),
                number(record.encode_seconds, 6),
                number(record.decode_seconds, 6),
                rate(record.payload_bytes, record.encode_seconds),
                rate(record.payload_bytes, record.decode_seconds),
            ]
        })
        .collect();
    let head = [
        "result",
        "model",
        "payload, bytes",
        "encoding, s",
        "decoding, s",
        "encoding, KiB/s",
        "decoding, KiB/s",
    ];
    figure("time", title, about, &drawing, &table(title, &head, &rows))
}

fn entropies(records: &[Record]) -> String {
    let title = "Entropy";
    let about = format!(
        "The average entropy of the shaped distributions along the held-out text, and in the table how surprised the \
         model is by it. A carrier may hold more a character: its bits lead it where the model saw little.{}",
        more(records, MAX_BARS)
    );
    let told = Told {
        id: "plot-entropy",
        title,
        about: "A bar for each result; its length is the average entropy.",
    };
    let drawing = bars(&told, "average entropy, bits", records, |record| record.avg_entropy_bits);
    let rows: Vec<Vec<String>> = records
        .iter()
        .map(|record| {
            let quality = record.carrier_quality.as_ref();
            vec![
                shown(&record.name),
                number(record.avg_entropy_bits, 3),
                number(record.heldout_nll_bits, 3),
                number(record.avg_top_probability, 4),
                count(record.heldout_tokens),
                number(quality.and_then(|quality| quality.char_frequency_l1_divergence), 3),
                number(quality.and_then(|quality| quality.char_frequency_kl_bits), 3),
            ]
        })
        .collect();
    let head = [
        "result",
        "entropy, bits",
        "NLL, bits",
        "top probability",
        "held-out chars",
        "L1 to held-out",
        "KL to held-out, bits",
    ];
    figure("entropy", title, &about, &drawing, &table(title, &head, &rows))
}

fn spreads(records: &[Record]) -> String {
    let title = "Character frequencies";
    let measured: Vec<(&Record, &Diversity)> =
        records.iter().filter_map(|record| Some((record, record.carrier_quality.as_ref()?))).collect();
    let rest = match measured.len() > MAX_SPREADS {
        true => format!(" Here are the first {MAX_SPREADS} of {}.", measured.len()),
        false => String::new(),
    };
    let mut out = format!(
        "<section aria-labelledby=\"frequencies\" data-plot=\"frequencies\">\n<h2 id=\"frequencies\">{title}</h2>\n\
         <p class=\"lead\">The share of each character in the carrier. The dashed level is an even spread, 1 of 64.{rest}</p>\n"
    );
    if measured.is_empty() {
        out.push_str("<p class=\"soft\">Nothing of this was measured.</p>\n");
    }
    for (at, (record, quality)) in measured.into_iter().take(MAX_SPREADS).enumerate() {
        out.push_str(&spread(at, record, quality));
    }
    out + "</section>\n"
}

fn spread(at: usize, record: &Record, quality: &Diversity) -> String {
    let total = quality.character_frequency.values().sum::<u64>().max(1) as f64;
    let symbols: Vec<char> = SYMBOLS.iter().map(|byte| char::from(*byte)).collect();
    let others = quality.character_frequency.iter().filter(|(character, _)| !symbols.contains(character));
    let others: u64 = others.map(|(_, count)| count).sum();
    let counts =
        symbols.iter().map(|character| (*character, quality.character_frequency.get(character).copied()));
    let mut columns: Vec<(String, u64)> =
        counts.map(|(character, count)| (name(character), count.unwrap_or(0))).collect();
    if others > 0 {
        columns.push(("other".into(), others));
    }
    let shares: Vec<(String, f64)> =
        columns.iter().map(|(name, count)| (name.clone(), *count as f64 / total * 100.0)).collect();
    let id = format!("plot-spread-{at}");
    let title = format!("Character frequencies: {}", record.name);
    let told = Told {
        id: &id,
        title: &title,
        about: "A column for each character; its height is its share in the carrier.",
    };
    let even = 100.0 / SIZE as f64;
    let drawing = draw::columns(&told, "share, %", &shares, (even, &format!("even, {even:.2} %")));
    let rows: Vec<Vec<String>> = columns
        .iter()
        .zip(&shares)
        .map(|((name, count), (_, share))| {
            let name = if name == "\u{2423}" { "space".to_owned() } else { plain(name) };
            vec![name, count.to_string(), format!("{share:.2}")]
        })
        .collect();
    format!(
        "<div class=\"card\">\n<h3>{}</h3>\n<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{}\">\n\
         {drawing}</div>\n<p class=\"sample\">{} different characters, the longest run is {}. It begins: <code>{}</code></p>\n\
         <details><summary>The numbers</summary>\n{}</details>\n</div>\n",
        shown(&record.name),
        plain(&title),
        quality.unique_character_count,
        quality.longest_repeated_run,
        shown(&quality.preview_sample),
        table(&title, &["character", "count", "share, %"], &rows)
    )
}

/// A character below its column.
fn name(character: char) -> String {
    match character {
        ' ' => "\u{2423}".into(),
        other => other.into(),
    }
}

fn checks(records: &[Record]) -> String {
    let judged: Vec<_> =
        records.iter().filter_map(|record| Some((record, record.promotion.as_ref()?))).collect();
    if judged.is_empty() {
        return String::new();
    }
    let mut rows = Vec::new();
    for (record, promotion) in judged {
        for check in &promotion.checks {
            let mark =
                if check.passed { "<b class=\"good\">passed</b>" } else { "<b class=\"bad\">failed</b>" };
            rows.push(vec![
                shown(&record.name),
                format!("<b data-verdict=\"{0}\">{0}</b>", plain(&promotion.verdict)),
                shown(&check.check),
                mark.to_owned(),
                shown(&check.detail),
            ]);
        }
    }
    let head = ["result", "verdict", "check", "outcome", "what was found"];
    format!(
        "<section aria-labelledby=\"promotion\">\n<h2 id=\"promotion\">Promotion</h2>\n<div class=\"card\">\n{}</div>\n</section>\n",
        table("Promotion", &head, &rows)
    )
}
