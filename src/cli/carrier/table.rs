//! Results as a table for people.

use crate::research::record::Record;

const HEAD: [&str; 8] =
    ["name", "payload", "chars", "bits/char", "encode s", "decode s", "NLL bits", "entropy"];

/// One line a result; what went wrong behind it.
pub(super) fn table(records: &[Record]) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(records.iter().map(row));
    let widths: Vec<usize> =
        (0..HEAD.len()).map(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        let name = format!("{:<width$}", row[0], width = widths[0]);
        let rest = row.iter().zip(&widths).skip(1).map(|(cell, width)| format!("  {cell:>width$}"));
        let error = index.checked_sub(1).and_then(|at| records[at].error_message.as_deref());
        let error = error.map_or(String::new(), |error| format!("  {error}"));
        text.push_str(&format!("{name}{}{error}\n", rest.collect::<String>()));
    }
    text
}

fn row(record: &Record) -> [String; 8] {
    let number =
        |value: Option<f64>, digits: usize| value.map_or("-".into(), |value| format!("{value:.digits$}"));
    [
        // A name may have held anything.
        crate::log::escape(&record.name),
        record.payload_bytes.to_string(),
        record.carrier_chars.map_or("-".into(), |chars| chars.to_string()),
        number(record.bits_per_carrier_char, 3),
        number(record.encode_seconds, 4),
        number(record.decode_seconds, 4),
        number(record.heldout_nll_bits, 3),
        number(record.avg_entropy_bits, 3),
    ]
}
