//! The benchmark's part of the page: time against size, this program beside the reference.

use super::super::speed::{Speed, MODELS, OPERATIONS};
use super::draw::{self, Series, Told};
use super::page::{figure, number, rate, table};

/// A figure for each direction, with and without the start of the process; of those that were measured.
pub fn figures(speeds: &[Speed]) -> String {
    let mut out = String::new();
    for process_start in [false, true] {
        for operation in OPERATIONS {
            let of_it = |speed: &&Speed| speed.process_start == process_start && speed.operation == operation;
            let measured: Vec<&Speed> = speeds.iter().filter(of_it).collect();
            if !measured.is_empty() {
                out.push_str(&one(operation, process_start, &measured));
            }
        }
    }
    out
}

fn one(operation: &str, process_start: bool, speeds: &[&Speed]) -> String {
    let what = if operation == OPERATIONS[0] { "Encoding" } else { "Decoding" };
    let (title, id) = match process_start {
        true => (format!("{what} speed, with the start of the process"), format!("speed-{operation}-start")),
        false => (format!("{what} speed"), format!("speed-{operation}")),
    };
    let about = "Time against size as the benchmark measured it, and beside it the reference where that was run. Both \
                 axes are logarithmic: a straight line that rises one decade for each decade is time in proportion \
                 to the size.";
    let mut series = Vec::new();
    for (class, model) in MODELS.iter().enumerate() {
        for (who, hollow) in [("ours", false), ("reference", true)] {
            let seconds = |speed: &Speed| if hollow { speed.reference_seconds } else { Some(speed.seconds) };
            let points: Vec<(f64, f64)> = speeds
                .iter()
                .filter(|speed| speed.model == *model)
                // A logarithm has no place for nothing.
                .filter_map(|speed| Some(((speed.payload_bytes as f64).max(1.0), seconds(speed)?.max(1e-6))))
                .collect();
            if !points.is_empty() {
                series.push(Series { label: format!("{model}, {who}"), class, hollow, points });
            }
        }
    }
    let told = Told {
        id: &format!("plot-{id}"),
        title: &title,
        about: "A point for each measurement: its payload's size to the right, the seconds upwards; dots are ours, \
                hollow squares the reference's.",
    };
    let drawing = draw::points(&told, ("payload, bytes", "time, seconds"), &series);
    let rows: Vec<Vec<String>> = speeds
        .iter()
        .map(|speed| {
            vec![
                speed.model.clone(),
                speed.payload_bytes.to_string(),
                number(Some(speed.seconds), 6),
                rate(speed.payload_bytes, Some(speed.seconds)),
                number(speed.reference_seconds, 6),
                number(speed.times_faster, 1),
                number(speed.peak_bytes.map(|bytes| bytes as f64 / 1e6), 1),
            ]
        })
        .collect();
    let head =
        ["model", "payload, bytes", "time, s", "KiB/s", "reference, s", "times faster", "most memory, MB"];
    figure(&id, &title, about, &drawing, &table(&title, &head, &rows))
}
