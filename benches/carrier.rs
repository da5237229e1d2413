//! Carriers beside the reference implementation in one run, process start excluded and included, and how time grows
//! with the payload. `make bench-carrier`; results also as JSON (docs/benchmark-result.schema.json) below target/.
//!
//! The best of several runs counts: on a busy machine it is the one that was disturbed least.

use agentcontainer::carrier::{
    self, chance::Chance, ngram, transformer, Decoding, Encoding, Model, NGram, Transformer,
};
use serde_json::{json, Value};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[path = "../tests/capsule_interop/peer.rs"]
mod peer;

/// Times the peer's functions in one process: model, payload and text, and how often; prints two numbers.
const PEER: &str = "
import sys, time, json
from lmcodec import FixedLM, NGramLM, TransformerLM, encode, decode
kind, path, payload, rounds = sys.argv[1:]
model = {'fixed': lambda: FixedLM(), 'ngram-v1': lambda: NGramLM.load(path),
         'transformer-rf-v1': lambda: TransformerLM.load(path)}[kind]()
payload = open(payload, 'rb').read()
best = [1e9, 1e9]
for _ in range(int(rounds)):
    start = time.perf_counter(); text = encode(payload, model=model, wrap=80)
    middle = time.perf_counter(); assert decode(text, model=model) == payload
    end = time.perf_counter()
    best = [min(best[0], middle - start), min(best[1], end - middle)]
print(*best)
";

fn main() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/carrier/corpus.txt");
    let corpus = std::fs::read(corpus).expect("the corpus");
    let training = ngram::Training { order: 3, ..ngram::Training::default() };
    let ngram = NGram::train(&corpus, &training).expect("a model");
    let transformer = Transformer::train(&corpus, &transformer::Training::default(), &mut |_, _| ());
    let models = [
        (Model::Fixed, 64 << 10, &[64 << 10, 1 << 20, 16 << 20, 64 << 20][..]),
        (Model::NGram(Box::new(ngram)), 64 << 10, &[64 << 10, 1 << 20, 16 << 20, 64 << 20]),
        (
            Model::Transformer(Box::new(transformer.expect("a model"))),
            16 << 10,
            &[16 << 10, 128 << 10, 1 << 20],
        ),
    ];
    let dir = std::env::temp_dir().join(format!("bench-carrier-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let mut results = Vec::new();
    println!("{:<44}{:>12}{:>12}{:>9}", "", "ours", "reference", "times");
    for (model, size, _) in &models {
        compare(model, *size, &dir, &mut results);
    }
    println!("\n{:<27}{:>12}{:>12}{:>12}{:>12}", "ladder", "encode", "at most", "decode", "at most");
    for (model, _, ladder) in &models {
        for size in *ladder {
            step(model, *size, &dir, &mut results);
        }
    }
    let _ = std::fs::remove_dir_all(&dir);
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("bench-carrier.json");
    let report = json!({"benchmark": "carrier", "schema_version": 1, "results": results});
    std::fs::write(&out, format!("{report:#}\n")).expect("a file below target/");
    println!("\n{}", out.display());
}

fn compare(model: &Model, size: usize, dir: &Path, results: &mut Vec<Value>) {
    let payload = Chance::new(1).bytes(size);
    let (file, model_file) = (dir.join("payload"), dir.join("model"));
    std::fs::write(&file, &payload).expect("a file");
    std::fs::write(&model_file, model.file_text()).expect("a file");
    let own = ours(model, &payload, 9);
    let python = peer::program().map(|program| program.with_file_name("python"));
    let other = python.as_ref().map(|python| inside(python, model, &model_file, &file));
    for (at, operation) in ["encode", "decode"].iter().enumerate() {
        let (own, other) = (pick(own, at), other.map(|other| pick(other, at)));
        line(model, operation, size, false, own, other, results);
    }
    let begin = match model {
        Model::Fixed => vec![],
        _ => vec!["--model".into(), model_file.into_os_string()],
    };
    for (operation, from, to) in [("encode", "payload", "text"), ("decode", "text", "back")] {
        let mut args = vec![operation.into(), "--in".into(), from.into(), "--out".into(), to.into()];
        args.extend(begin.iter().cloned());
        let started = |program: &Path, first: &[&str]| {
            let once = || {
                let start = Instant::now();
                let status = Command::new(program)
                    .args(first)
                    .args(&args)
                    .current_dir(dir)
                    .stdout(Stdio::null())
                    .status()
                    .expect("the program runs");
                assert!(status.success(), "{}", program.display());
                start.elapsed().as_secs_f64()
            };
            once().min(once()).min(once())
        };
        let other = python.as_ref().map(|python| started(python, &["-m", "lmcodec.cli"]));
        let own = started(Path::new(env!("CARGO_BIN_EXE_agentcontainer")), &["carrier"]);
        line(model, operation, size, true, own, other, results);
    }
}

/// One payload there and back by the program: its time, start included, and the most memory that it held.
fn step(model: &Model, size: usize, dir: &Path, results: &mut Vec<Value>) {
    let payload = Chance::new(2).bytes(size);
    std::fs::write(dir.join("payload"), &payload).expect("a file");
    std::fs::write(dir.join("model"), model.file_text()).expect("a file");
    print!("{:<27}", format!("{}, {} KiB", model.kind(), size >> 10));
    for (operation, from, to) in [("encode", "payload", "text"), ("decode", "text", "back")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_agentcontainer"));
        command
            .args(["carrier", operation, "--in", from, "--out", to])
            .current_dir(dir)
            .stdout(Stdio::null());
        if *model != Model::Fixed {
            command.args(["--model", "model"]);
        }
        let start = Instant::now();
        let mut child = command.spawn().expect("the program runs");
        let mut peak = 0;
        let status = loop {
            peak = peak.max(most_held(child.id()));
            if let Some(status) = child.try_wait().expect("our child") {
                break status;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let seconds = start.elapsed().as_secs_f64();
        assert!(status.success(), "{operation} of {size} bytes");
        print!("{seconds:>10.3} s{:>9.1} MB", peak as f64 / 1e6);
        let mut result = result(model, operation, size, true, seconds, None);
        result["peak_bytes"] = peak.into();
        results.push(result);
    }
    println!();
    assert!(std::fs::read(dir.join("back")).expect("what came back") == payload);
}

/// The most memory that a process has held so far, bytes; 0 once it has ended.
fn most_held(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// The best times of encoding and decoding, in seconds.
fn ours(model: &Model, payload: &[u8], rounds: u32) -> (f64, f64) {
    let mut best = (f64::MAX, f64::MAX);
    for _ in 0..rounds {
        let (mut text, mut quiet) = (Vec::new(), |_, _| ());
        let encoding = Encoding { wrap: 80, ..Encoding::default() };
        let start = Instant::now();
        carrier::encode(payload, model, &encoding, &mut text, &mut quiet).expect("it encodes");
        best.0 = best.0.min(start.elapsed().as_secs_f64());
        let start = Instant::now();
        let back = carrier::decode(&mut &text[..], model, &Decoding::default(), &mut quiet);
        best.1 = best.1.min(start.elapsed().as_secs_f64());
        assert!(back.expect("it decodes") == payload);
    }
    best
}

fn inside(python: &Path, model: &Model, model_file: &PathBuf, payload: &PathBuf) -> (f64, f64) {
    let rounds = if matches!(model, Model::Transformer(_)) { "1" } else { "3" };
    let ran = Command::new(python)
        .args(["-c", PEER, model.kind()])
        .args([model_file, payload])
        .arg(rounds)
        .output()
        .expect("python runs");
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    let mut times = text.split_whitespace().filter_map(|time| time.parse().ok());
    let (encode, decode) = (times.next(), times.next());
    encode.zip(decode).unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&ran.stderr)))
}

fn pick(pair: (f64, f64), at: usize) -> f64 {
    [pair.0, pair.1][at]
}

fn line(
    model: &Model,
    operation: &str,
    size: usize,
    start: bool,
    own: f64,
    other: Option<f64>,
    results: &mut Vec<Value>,
) {
    let with = if start { ", with process start" } else { "" };
    let what = format!("{} {operation} {} KiB{with}", model.kind(), size >> 10);
    match other {
        Some(other) => {
            println!("{what:<44}{:>9.3} ms{:>9.1} ms{:>9.1}", own * 1e3, other * 1e3, other / own);
        }
        None => println!("{what:<44}{:>9.3} ms{:>12}{:>9}", own * 1e3, "-", "-"),
    }
    results.push(result(model, operation, size, start, own, other));
}

/// One of the results that docs/benchmark-result.schema.json describes.
fn result(model: &Model, operation: &str, size: usize, start: bool, own: f64, other: Option<f64>) -> Value {
    json!({
        "model": model.kind(),
        "operation": operation,
        "payload_bytes": size,
        "process_start": start,
        "seconds": own,
        "reference_seconds": other,
        "times_faster": other.map(|other| other / own),
        "peak_bytes": null,
    })
}
