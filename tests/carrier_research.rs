//! The research tools as a user runs them: corpora, comparisons, experiments, their results beside the documented
//! shape and the reference implementation's numbers, and the page as a browser shows it.

mod support;

#[path = "capsule_interop/peer.rs"]
mod peer;

use agentcontainer::research::{golden, report};
use serde_json::{json, Value};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::browser::Browser;
use support::cli::BINARY;
use support::TempDir;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Runs `carrier WORDS` in a directory: status, output, errors.
fn carrier(dir: &Path, words: &[&str]) -> (Option<i32>, String, String) {
    let done = Command::new(BINARY).arg("carrier").args(words).current_dir(dir).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (done.status.code(), text(done.stdout), text(done.stderr))
}

#[track_caller]
fn works(dir: &Path, words: &[&str]) -> String {
    let (status, out, err) = carrier(dir, words);
    assert_eq!(status, Some(0), "{words:?}: {err}");
    out
}

/// One line on standard error which says that, nothing else.
#[track_caller]
fn refuses(dir: &Path, words: &[&str], what: &str) {
    let (status, out, err) = carrier(dir, words);
    assert_eq!((status, &*out), (Some(2), ""), "{words:?}: {err}");
    assert!(
        err.contains(what) && err.trim_end().lines().count() == 1,
        "{words:?}: {what:?} is not in {err:?}"
    );
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path.as_ref())
        .unwrap_or_else(|error| panic!("{}: {error}", path.as_ref().display()))
}

fn json_of(path: impl AsRef<Path>) -> Value {
    serde_json::from_str(&read(path)).unwrap()
}

/// The names in a directory, sorted; hidden ones, too.
fn names(dir: impl AsRef<Path>) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn example(name: &str) -> String {
    format!("{ROOT}/examples/carrier/{name}")
}

/// An example's configuration with paths of its own and another place for its results.
fn configuration(name: &str, out: &Path, change: impl FnOnce(&mut Value)) -> String {
    let mut config = json_of(example(name));
    for key in ["/payload_path", "/quality_text_path", "/model/training/corpus_path"] {
        if let Some(value) = config.pointer_mut(key) {
            *value = json!(example(value.as_str().unwrap()));
        }
    }
    config["output_dir"] = json!(out);
    change(&mut config);
    config.to_string()
}

// ---- corpora ---------------------------------------------------------------------------------

#[test]
fn corpora_and_splits_are_the_same_each_time() {
    let dir = TempDir::new("research-corpus");
    for (out, seed) in [("a", "7"), ("b", "7"), ("c", "8")] {
        let said =
            works(dir.path(), &["corpus", "--out", out, "--lines", "50", "--seed", seed, "--domain", "logs"]);
        assert!(said.contains("domain: logs\n") && said.contains("lines: 50\n"), "{said}");
    }
    let text = |name: &str| read(dir.path().join(name));
    assert_eq!(text("a"), text("b"));
    assert_ne!(text("a"), text("c"));
    let parts = |to: &str, seed: &str| {
        let (train, held_out) = (format!("{to}-train"), format!("{to}-held"));
        let words = [
            "split",
            "--input",
            "a",
            "--train-out",
            &train,
            "--heldout-out",
            &held_out,
            "--heldout-ratio",
            "0.3",
        ];
        let said = works(dir.path(), &[&words[..], &["--seed", seed, "--filter-vocab"]].concat());
        assert!(said.contains("train lines: 35\n") && said.contains("heldout lines: 15\n"), "{said}");
        (text(&train), text(&held_out))
    };
    assert_eq!(parts("x", "1"), parts("y", "1"));
    assert_ne!(parts("x", "1"), parts("z", "2"));

    let before = names(dir.path());
    dir.write("one", "only this line\n");
    let split = ["split", "--input", "one", "--train-out", "t", "--heldout-out", "h"];
    refuses(dir.path(), &split, "one: two lines are needed to split a text, it has 1");
    let at =
        |ratio| ["split", "--input", "a", "--train-out", "t", "--heldout-out", "h", "--heldout-ratio", ratio];
    refuses(dir.path(), &at("1"), "the held-out ratio is above 0 and below 1, not 1");
    refuses(dir.path(), &at("nan"), "a finite number above 0 and below 1, not \"nan\"");
    refuses(dir.path(), &["split", "--input", "a", "--train-out", "t", "--heldout-out", "t"], "are both t");
    let over = ["split", "--input", "a", "--train-out", "t", "--heldout-out", "a"];
    refuses(dir.path(), &over, "would overwrite a");
    let sea = ["corpus", "--out", "t", "--domain", "sea"];
    refuses(
        dir.path(),
        &sea,
        "no domain \"sea\"; there are: harbour, kitchen, weather, workshop, logs, mixed",
    );
    refuses(
        dir.path(),
        &["corpus", "--out", "t", "--lines", "0"],
        "--lines needs a whole number from 1 to 10000000, not \"0\"",
    );
    refuses(dir.path(), &["corpus", "--out", "no/t"], "writing no/t: ");
    std::fs::remove_file(dir.path().join("one")).unwrap();
    assert_eq!(names(dir.path()), before, "a refusal left something");
}

#[test]
fn the_examples_texts_are_what_the_commands_write() {
    let dir = TempDir::new("research-examples");
    works(dir.path(), &["corpus", "--out", "corpus", "--lines", "240", "--seed", "7", "--domain", "mixed"]);
    let split = "split --input corpus --train-out train --heldout-out held --heldout-ratio 0.2 --seed 7 --filter-vocab";
    works(dir.path(), &split.split(' ').collect::<Vec<_>>());
    assert_eq!(read(dir.path().join("train")), read(example("train.txt")));
    assert_eq!(read(dir.path().join("held")), read(example("heldout.txt")));
}

// ---- results ---------------------------------------------------------------------------------

#[test]
fn a_comparison_and_a_sweep_write_results_of_the_documented_shape() {
    let dir = TempDir::new("research-compare");
    let (payload, train, held) = (example("payload.txt"), example("train.txt"), example("heldout.txt"));
    let compare = [
        "compare",
        "--payload",
        &payload,
        "--corpus",
        &train,
        "--quality-text",
        &held,
        "--json-out",
        "c.json",
    ];
    let said = works(dir.path(), &compare);
    assert!(
        ["fixed", "ngram", "transformer"].iter().all(|name| said.contains(&format!("\n{name} "))),
        "{said}"
    );
    let compared = json_of(dir.path().join("c.json"));
    check_shape(&compared);
    let mut types = compared["results"].as_array().unwrap().iter().map(|result| &result["model_type"]);
    assert!(types.by_ref().eq(["fixed-v1", "ngram-v1", "transformer-rf-v1"]));
    works(dir.path(), &["compare", "--payload", &payload, "--corpus", &train, "--json-out", "d.json"]);
    let unread = json_of(dir.path().join("d.json"));
    check_shape(&unread);
    assert!(unread["results"][1]["avg_entropy_bits"].is_null());

    let sweep = ["sweep", "--payload", &payload, "--shape-uniform-mix", "0,0.5", "--temperature", "1,1.25,2"];
    works(dir.path(), &["train", "--data", &train, "--out", "m"]);
    let sweep = [&sweep[..], &["--model", "m", "--quality-text", &held, "--json-out", "s.json"]].concat();
    works(dir.path(), &sweep);
    let swept = json_of(dir.path().join("s.json"));
    check_shape(&swept);
    let results = swept["results"].as_array().unwrap();
    let names: Vec<_> = results.iter().map(|result| result["name"].as_str().unwrap()).collect();
    let mixed = ["mix 0.5", "mix 0.5, temperature 1.25", "mix 0.5, temperature 2"];
    assert_eq!(names[..3], ["unshaped", "temperature 1.25", "temperature 2"]);
    assert_eq!(names[3..], mixed);
    assert!(results.iter().all(|result| result["roundtrip_success"] == true));
    let entropy = |at: usize| results[at]["avg_entropy_bits"].as_f64().unwrap();
    assert!(entropy(0) < entropy(1) && entropy(1) < entropy(2) && entropy(0) < entropy(3), "{names:?}");
    // All but the seconds is the same each time.
    works(dir.path(), &[&sweep[..sweep.len() - 1], &["again.json"]].concat());
    assert_eq!(timeless(swept), timeless(json_of(dir.path().join("again.json"))));

    // A guard that refuses, and too few steps, are results.
    works(
        dir.path(),
        &["sweep", "--payload", &payload, "--model", "m", "--min-entropy-bits", "0,5.9", "--json-out", "g"],
    );
    let guarded = json_of(dir.path().join("g"));
    check_shape(&guarded);
    assert_eq!(guarded["results"][1]["error_message"], "probability distribution below entropy guard");
    works(dir.path(), &["sweep", "--payload", &payload, "--max-steps", "9", "--json-out", "g"]);
    let stopped = json_of(dir.path().join("g"));
    check_shape(&stopped);
    assert_eq!(stopped["results"][0]["convergence_failure_count"], 1);

    for (words, what) in [
        (vec!["sweep", "--payload", "no"], "reading no: "),
        (
            vec!["sweep", "--payload", "m", "--temperature", "1,x"],
            "--temperature needs finite numbers above 0, with commas between them, not",
        ),
        (
            vec!["sweep", "--payload", "m", "--temperature", "1,0"],
            "the temperature is above 0 and finite, not 0.0",
        ),
        (vec!["sweep", "--payload", "m", "--json-out", "m"], "would overwrite m"),
        (
            vec!["compare", "--payload", "m", "--corpus", "empty"],
            "empty: training text has no characters in vocab",
        ),
        (
            vec!["compare", "--payload", "m", "--corpus", "m", "--quality-text", "empty"],
            "no characters of the vocab",
        ),
    ] {
        dir.write("empty", "!!\n");
        refuses(dir.path(), &words, what);
    }
    let many = (0..40).map(|at| format!("0.{at:02}")).collect::<Vec<_>>().join(",");
    let words = ["sweep", "--payload", "m", "--shape-uniform-mix", &many, "--min-prob", &many];
    refuses(dir.path(), &words, "these are 1600 combinations, at most 1000");
}

/// Without what is measured with a clock.
fn timeless(mut results: Value) -> Value {
    for result in results["results"].as_array_mut().unwrap() {
        result["encode_seconds"] = Value::Null;
        result["decode_seconds"] = Value::Null;
    }
    results
}

#[test]
fn the_example_experiments_are_promoted_and_leave_what_they_say() {
    for name in ["fixed", "ngram", "transformer"] {
        let dir = TempDir::new("research-experiment");
        let out = dir.path().join("deep/out");
        dir.write("config.json", configuration(&format!("{name}.json"), &out, |_| ()));
        let said = works(dir.path(), &["experiment", "config.json"]);
        assert_eq!(said.lines().last(), Some("verdict: promote"), "{said}");
        let result = json_of(out.join("result.json"));
        check_shape(&result);
        let mut wanted = vec!["carrier.txt", "decoded_payload.bin", "model.json", "result.json"];
        wanted.retain(|file| name != "fixed" || *file != "model.json");
        assert_eq!(names(&out), wanted);
        assert_eq!(read(out.join("decoded_payload.bin")), read(example("payload.txt")));
        let checks: Vec<_> = result["promotion"]["checks"].as_array().unwrap().iter().collect();
        let order = [
            "round_trip",
            "hashes_equal",
            "fingerprint_stable",
            "entropy_gate",
            "convergence",
            "golden_unaffected",
        ];
        assert!(checks.iter().map(|check| &check["check"]).eq(order));
        assert_eq!(result["artifacts"]["carrier"], json!(out.join("carrier.txt")));
        // The carrier is one that decode reads, with the model that was left.
        let (text, model) = (out.join("carrier.txt"), out.join("model.json"));
        let mut words = vec!["decode", "--in", text.to_str().unwrap(), "--out", "back"];
        if name != "fixed" {
            words.extend(["--model", model.to_str().unwrap()]);
        }
        works(dir.path(), &words);
        assert_eq!(read(dir.path().join("back")), read(example("payload.txt")));
    }
}

#[test]
fn what_is_not_good_enough_is_rejected_by_the_check_that_failed() {
    let dir = TempDir::new("research-reject");
    let out = dir.path().join("out");
    let failed = |change: fn(&mut Value)| -> Vec<String> {
        dir.write("config.json", configuration("ngram.json", &out, change));
        let said = works(dir.path(), &["experiment", "config.json"]);
        assert_eq!(said.lines().last(), Some("verdict: reject"), "{said}");
        let result = json_of(out.join("result.json"));
        check_shape(&result);
        let checks = result["promotion"]["checks"].as_array().unwrap();
        let failed = checks.iter().filter(|check| check["passed"] == false);
        failed.map(|check| check["check"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(failed(|config| config["promotion_gate"]["min_entropy_bits"] = json!(5.5)), ["entropy_gate"]);
    assert_eq!(failed(|config| config["quality_text_path"] = Value::Null), ["entropy_gate"]);
    assert_eq!(failed(|config| config["run_golden_tests"] = json!(false)), ["golden_unaffected"]);
    let unfinished = failed(|config| config["max_steps"] = json!(20));
    assert_eq!(unfinished, ["round_trip", "hashes_equal", "convergence"]);
    // What an earlier run left beside it would belie this result.
    assert_eq!(names(&out), ["model.json", "result.json"]);
}

#[test]
fn an_experiment_that_cannot_run_says_why_and_touches_nothing() {
    let dir = TempDir::new("research-refused");
    let out = dir.path().join("out");
    dir.write("file", "x");
    let refused = |change: &dyn Fn(&mut Value), what: &str| {
        dir.write("config.json", configuration("ngram.json", &out, change));
        refuses(dir.path(), &["experiment", "config.json"], what);
        assert!(!out.exists(), "{what}");
    };
    refused(
        &|config| config["paylod_path"] = json!("x"),
        "config.json: field paylod_path: it is unknown; there are: ",
    );
    refused(
        &|config| config["model"]["training"]["ordr"] = json!(1),
        "field model.training.ordr: it is unknown",
    );
    refused(&|config| config["payload_path"] = json!("gone"), "gone: No such file");
    refused(
        &|config| config["quality_text_path"] = json!("config.json.gone"),
        "config.json.gone: No such file",
    );
    refused(
        &|config| config["model"]["training"]["corpus_path"] = json!("/dev/null"),
        "/dev/null: training text has no",
    );
    refused(&|config| config["output_dir"] = json!("file"), "file is no directory");
    refused(
        &|config| config["model"] = json!({"type": "transformer", "path": "file"}),
        "the model is no JSON",
    );
    refuses(dir.path(), &["experiment", "nowhere"], "reading nowhere: ");
    refuses(dir.path(), &["experiment"], "CONFIG.json is missing");

    // A model of another type; and one in the place where the trained one would go.
    works(dir.path(), &["train", "--data", &example("train.txt"), "--out", "m"]);
    refused(
        &|config| config["model"] = json!({"type": "transformer", "path": "m"}),
        "type ngram-v1, not transformer",
    );
    std::fs::create_dir(dir.path().join("own")).unwrap();
    std::fs::copy(example("payload.txt"), dir.path().join("own/carrier.txt")).unwrap();
    dir.write(
        "config.json",
        configuration("fixed.json", &dir.path().join("own"), |config| {
            config["payload_path"] = json!("own/carrier.txt");
        }),
    );
    refuses(dir.path(), &["experiment", "config.json"], "would overwrite");
    assert_eq!(read(dir.path().join("own/carrier.txt")), read(example("payload.txt")));
    assert_eq!(names(dir.path().join("own")), ["carrier.txt"]);
}

#[test]
fn an_experiment_that_is_killed_leaves_no_broken_result() {
    let dir = TempDir::new("research-killed");
    let out = dir.path().join("out");
    dir.write(
        "config.json",
        configuration("size-ladder.json", &out, |config| {
            config["payload_sizes"] = json!([64, 1 << 22, 1 << 23]);
        }),
    );
    let mut child = Command::new(BINARY)
        .args(["carrier", "experiment", "config.json"])
        .current_dir(dir.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let first = out.join("64/result.json");
    let give_up = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !first.exists() && child.try_wait().unwrap().is_none() {
        assert!(std::time::Instant::now() < give_up, "there is no first result");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert!(!status.success(), "it was done before it was killed");
    check_shape(&json_of(first));
    assert!(!out.join("result.json").exists(), "a ladder that is not done has a result");
}

#[test]
fn a_ladder_has_a_result_for_each_size() {
    let dir = TempDir::new("research-ladder");
    let out = dir.path().join("out");
    dir.write(
        "config.json",
        configuration("size-ladder.json", &out, |config| {
            config["payload_sizes"] = json!([512, 0, 4096]);
        }),
    );
    works(dir.path(), &["experiment", "config.json"]);
    assert_eq!(names(&out), ["0", "4096", "512", "model.json", "result.json"]);
    let ladder = json_of(out.join("result.json"));
    check_shape(&ladder);
    for (result, size) in ladder["results"].as_array().unwrap().iter().zip([0, 512, 4096]) {
        assert_eq!(result["payload_bytes"], size);
        assert_eq!(*result, json_of(out.join(format!("{size}/result.json"))));
    }
}

/// Speed, as `make bench-carrier` writes it: beside the reference without and with the start of the process, and a
/// ladder of sizes.
fn speed() -> Value {
    let mut results = Vec::new();
    for (model, size) in [("fixed", 65_536), ("ngram-v1", 65_536), ("transformer-rf-v1", 16_384)] {
        for operation in ["encode", "decode"] {
            let one = |size: u64, start: bool, reference: Option<f64>, peak: Option<u64>| {
                let seconds = size as f64 / 3e7;
                json!({"model": model, "operation": operation, "payload_bytes": size, "process_start": start,
                    "seconds": seconds, "reference_seconds": reference,
                    "times_faster": reference.map(|reference| reference / seconds), "peak_bytes": peak})
            };
            results.push(one(size, false, Some(0.75), None));
            results.push(one(size, true, Some(0.875), None));
            results.push(one(size, true, None, Some(5_000_000)));
            results.push(one(size * 16, true, None, Some(6_250_000)));
        }
    }
    json!({"benchmark": "carrier", "schema_version": 1, "results": results})
}

/// Checks a result against `docs/benchmark-result.schema.json`.
#[track_caller]
fn check_shape(value: &Value) {
    let schema = json_of(format!("{ROOT}/docs/benchmark-result.schema.json"));
    assert_eq!(fault(&schema, &schema, value, "result"), None);
}

#[test]
fn the_shape_is_checked() {
    let dir = TempDir::new("research-shape");
    works(dir.path(), &["sweep", "--payload", &example("payload.txt"), "--json-out", "s"]);
    let good = json_of(dir.path().join("s"));
    check_shape(&good);
    let schema = json_of(format!("{ROOT}/docs/benchmark-result.schema.json"));
    for (at, value) in [
        ("/kind", json!("other")),
        ("/results/0/payload_sha256", json!("no")),
        ("/results/0/carrier_chars", json!("7")),
        ("/results/0/settings/topk", json!(1)),
        ("/results/0/bits_per_carrier_char", json!(-1)),
        ("/results", json!([])),
        ("/results/0/carrier_quality/character_frequency/a", json!(0)),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(at).unwrap_or_else(|| panic!("{at}")) = value;
        assert!(fault(&schema, &schema, &bad, "result").is_some(), "{at}");
        dir.write("bad", bad.to_string());
        let field = at.rsplit('/').next().unwrap().replace("character_frequency/a", "character_frequency");
        let field = if field == "a" { "character_frequency".into() } else { field };
        refuses(dir.path(), &["report", "bad", "--out", "page"], &field);
    }
    // The benchmark's form, which `benches/carrier.rs` writes.
    let good_speed = speed();
    check_shape(&good_speed);
    for (at, value) in [
        ("/benchmark", json!("other")),
        ("/schema_version", json!(2)),
        ("/results", json!([])),
        ("/results/0/model", json!("fixed-v1")),
        ("/results/0/operation", json!("code")),
        ("/results/0/payload_bytes", json!(-1)),
        ("/results/0/process_start", json!(0)),
        ("/results/0/seconds", json!(-1)),
        ("/results/0/seconds", json!(null)),
        ("/results/0/reference_seconds", json!("1")),
        ("/results/0/times_faster", json!(-2)),
        ("/results/0/peak_bytes", json!(0.5)),
    ] {
        let mut bad = good_speed.clone();
        *bad.pointer_mut(at).unwrap_or_else(|| panic!("{at}")) = value;
        assert!(fault(&schema, &schema, &bad, "result").is_some(), "{at}");
        dir.write("bad", bad.to_string());
        let field = at.trim_start_matches('/').replace("results/0/", "results[0].");
        refuses(dir.path(), &["report", "bad", "--out", "page"], &format!("bad: field {field}: it is "));
    }
    let mut more = good_speed.clone();
    more["results"][0]["extra"] = json!(1);
    assert!(fault(&schema, &schema, &more, "result").is_some());
    dir.write("bad", more.to_string());
    refuses(dir.path(), &["report", "bad", "--out", "page"], "bad: field results[0].extra: it is unknown");
    assert!(!dir.path().join("page").exists());
    let mut more = good.clone();
    more["results"][0]["extra"] = json!(1);
    assert!(fault(&schema, &schema, &more, "result").unwrap().contains("result"));
}

/// What of the value is not as the schema says; the keywords that the schema uses, and no others.
fn fault(root: &Value, schema: &Value, value: &Value, path: &str) -> Option<String> {
    let is = |kind: &Value| match kind.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        other => panic!("type {other}"),
    };
    let members = || value.as_object().into_iter().flatten();
    for (keyword, want) in schema.as_object().unwrap() {
        let good = match keyword.as_str() {
            "$schema" | "title" | "description" | "$defs" => true,
            "$ref" => {
                let at = want.as_str().unwrap().strip_prefix('#').unwrap();
                if let Some(fault) = fault(root, root.pointer(at).unwrap(), value, path) {
                    return Some(fault);
                }
                true
            }
            "oneOf" => {
                let faults: Vec<_> =
                    want.as_array().unwrap().iter().map(|one| fault(root, one, value, path)).collect();
                if faults.iter().filter(|fault| fault.is_none()).count() != 1 {
                    return Some(format!("{path}: none or several of {faults:?}"));
                }
                true
            }
            "type" => match want.as_array() {
                Some(kinds) => kinds.iter().any(is),
                None => is(want),
            },
            "const" => value == want,
            "enum" => want.as_array().unwrap().contains(value),
            "minimum" => value.as_f64().is_none_or(|number| number >= want.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|number| number <= want.as_f64().unwrap()),
            "minLength" => value.as_str().is_none_or(|text| !text.is_empty()),
            "minItems" => value.as_array().is_none_or(|items| !items.is_empty()),
            "pattern" => {
                assert_eq!(want, "^[0-9a-f]{64}$");
                let hex = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
                value.as_str().is_none_or(|text| text.len() == 64 && hex(text))
            }
            "required" => want.as_array().unwrap().iter().all(|name| {
                value.as_object().is_none_or(|object| object.contains_key(name.as_str().unwrap()))
            }),
            "properties" => {
                for (name, member) in members() {
                    let known = want.get(name);
                    let found = known.and_then(|one| fault(root, one, member, &format!("{path}.{name}")));
                    if found.is_some() {
                        return found;
                    }
                }
                true
            }
            "additionalProperties" => members().all(|(name, member)| {
                let known = schema.get("properties").is_some_and(|known| known.get(name).is_some());
                known || *want != json!(false) && fault(root, want, member, path).is_none()
            }),
            "items" => {
                for (at, item) in value.as_array().into_iter().flatten().enumerate() {
                    if let Some(fault) = fault(root, want, item, &format!("{path}[{at}]")) {
                        return Some(fault);
                    }
                }
                true
            }
            other => panic!("the schema uses {other}, which this does not know"),
        };
        if !good {
            return Some(format!("{path}: not {keyword} {want}"));
        }
    }
    None
}

// ---- beside the reference --------------------------------------------------------------------

/// Measures as the reference does: arguments are model, payload, text and shape; prints JSON.
const MEASURE: &str = "
import json, sys
from lmcodec import benchmarking, codec, experiments, lm, transformer
model, payload, text, shape = sys.argv[1:]
kind = json.load(open(model))['model_type'] if model != 'fixed' else 'fixed'
loaded = {'fixed': lambda: lm.FixedLM(), 'ngram-v1': lambda: lm.NGramLM.load(model),
          'transformer-rf-v1': lambda: transformer.TransformerLM.load(model)}[kind]()
settings = codec.CodecSettings(shape=codec.ProbabilityShapeSettings(**json.loads(shape)))
data = open(payload, 'rb').read()
metrics = experiments.measure_roundtrip('x', data, loaded, settings=settings, wrap=80, quality_text=open(text).read())
print(json.dumps(benchmarking.metrics_record(metrics=metrics, payload=benchmarking.payload_info(payload, data),
    model_type_name=benchmarking.model_type(loaded), model_path=None, settings=settings)))
";

#[test]
fn the_numbers_are_those_of_the_reference() {
    let Some(program) = peer::program() else { return };
    let python = program.with_file_name("python");
    let (payload, held) = (example("payload.txt"), example("heldout.txt"));
    for name in ["fixed", "ngram", "transformer"] {
        let dir = TempDir::new("research-peer");
        let out = dir.path().join("out");
        dir.write("config.json", configuration(&format!("{name}.json"), &out, |_| ()));
        works(dir.path(), &["experiment", "config.json"]);
        let ours = json_of(out.join("result.json"));
        let model: PathBuf = if name == "fixed" { "fixed".into() } else { out.join("model.json") };
        let shape = ours["settings"]["shape"].to_string();
        let done =
            Command::new(&python).args(["-c", MEASURE]).arg(model).args([&payload, &held, &shape]).output();
        let done = done.unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let theirs: Value = serde_json::from_slice(&done.stdout).unwrap();
        let same = "model_type model_fingerprint payload_bytes payload_sha256 carrier_chars full_armour_chars \
                    base64_baseline_chars roundtrip_success heldout_tokens convergence_failure_count error_message";
        for field in same.split_whitespace() {
            assert_eq!(ours[field], theirs[field], "{name}: {field}");
        }
        for field in ["total", "topk"] {
            assert_eq!(ours["settings"][field], theirs["settings"][field], "{name}: {field}");
        }
        let spread =
            ["character_frequency", "longest_repeated_run", "preview_sample", "unique_character_count"];
        for field in spread {
            assert_eq!(ours["carrier_quality"][field], theirs["carrier_quality"][field], "{name}: {field}");
        }
        for field in [
            "/bits_per_carrier_char",
            "/heldout_nll_bits",
            "/avg_entropy_bits",
            "/avg_top_probability",
            "/carrier_quality/char_frequency_l1_divergence",
            "/carrier_quality/char_frequency_kl_bits",
        ] {
            let number = |of: &Value| of.pointer(field).unwrap().as_f64().unwrap();
            assert!((number(&ours) - number(&theirs)).abs() < 1e-9, "{name}: {field}: {ours} {theirs}");
        }
    }
}

#[test]
fn the_golden_messages_are_the_references() {
    let Some(program) = peer::program() else { return };
    let python = program.with_file_name("python");
    for golden in golden::messages().unwrap() {
        let dir = TempDir::new("research-golden");
        dir.write("payload", (0..=255_u8).collect::<Vec<u8>>());
        let mut command = Command::new(&python);
        command
            .args("-m lmcodec.cli encode --in payload --out text --wrap 80".split(' '))
            .current_dir(dir.path());
        command.args(["--shape-uniform-mix", &golden.shape.uniform_mix.to_string()]);
        command.args(["--temperature", &golden.shape.temperature.to_string()]);
        if golden.name != "fixed" {
            dir.write("model", golden.model.file_text());
            command.args(["--model", "model"]);
        }
        let done = command.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let ours = String::from_utf8(golden::message(&golden).unwrap()).unwrap();
        assert_eq!(ours, read(dir.path().join("text")), "{}", golden.name);
    }
}

// ---- the page --------------------------------------------------------------------------------

/// Results of every kind, as texts.
fn results() -> Vec<String> {
    let dir = TempDir::new("research-results");
    let out = dir.path().join("out");
    let (payload, train, held) = (example("payload.txt"), example("train.txt"), example("heldout.txt"));
    works(
        dir.path(),
        &["compare", "--payload", &payload, "--corpus", &train, "--quality-text", &held, "--json-out", "c"],
    );
    works(dir.path(), &["sweep", "--payload", &payload, "--max-steps", "9", "--json-out", "s"]);
    dir.write(
        "config.json",
        configuration("size-ladder.json", &out, |config| {
            config["payload_sizes"] = json!([0, 1024, 4096]);
        }),
    );
    works(dir.path(), &["experiment", "config.json"]);
    [dir.path().join("c"), dir.path().join("s"), out.join("result.json"), out.join("1024/result.json")]
        .map(read)
        .into()
}

fn page(texts: &[String]) -> Result<String, String> {
    report::render(texts.iter().map(|text| ("a file", &**text)))
}

#[test]
fn a_browser_shows_every_plot_and_number() {
    let Some(browser) = Browser::find() else { return };
    let texts = results();
    let dom = browser.dom(&page(&texts).unwrap());
    assert!(dom.contains("data-results=\"8\" data-back=\"7\""), "{}", &dom[..dom.len().min(9000)]);
    for plot in ["bits", "time", "entropy", "frequencies"] {
        let section = between(&dom, &format!("data-plot=\"{plot}\""), "</section>");
        let svg = between(section, "<svg ", "</svg>");
        assert!(svg.contains("role=\"img\"") && svg.contains("<title") && svg.contains("<desc"), "{plot}");
        assert!(section.contains("<caption>") && section.contains("scope=\"row\""), "{plot} has no table");
    }
    let bits = between(&dom, "data-plot=\"bits\"", "</section>");
    assert_eq!(between(bits, "<svg ", "</svg>").matches("<rect ").count(), 7);
    assert_eq!(between(bits, "<tbody>", "</tbody>").matches("<tr>").count(), 8);
    assert!(bits.contains("bits a carrier character") && bits.contains("encoding did not converge"));
    let time = between(&dom, "data-plot=\"time\"", "</section>");
    assert!(time.contains("payload, bytes") && time.contains("time, seconds"));
    // One mark for each of seven results, and one in the legend for each of three models.
    assert_eq!(time.matches("<circle ").count(), 7 + 3);
    let spreads = between(&dom, "data-plot=\"frequencies\"", "</section>");
    assert_eq!(spreads.matches("<svg ").count(), 7);
    assert_eq!(between(spreads, "<svg ", "</svg>").matches("<rect ").count(), 64);
    assert!(dom.contains("<b data-verdict=\"promote\">promote</b>"));
}

#[test]
fn speed_is_drawn_as_time_against_size_beside_the_reference() {
    let texts = [speed().to_string()];
    let alone = page(&texts).unwrap();
    assert!(
        alone.contains("data-results=\"0\" data-back=\"0\" data-speeds=\"24\">24 measurements of speed.<")
    );
    for plot in ["bits", "time", "entropy", "frequencies"] {
        assert!(!alone.contains(&format!("data-plot=\"{plot}\"")), "{plot} has nothing to show");
    }
    let with_results = page(&[results(), texts.into()].concat()).unwrap();
    assert!(with_results.contains("data-results=\"8\" data-back=\"7\" data-speeds=\"24\">8 results; "));
    let Some(browser) = Browser::find() else { return };
    for page in [alone, with_results] {
        let dom = browser.dom(&page);
        for (plot, heading, sizes, rows) in [
            ("speed-encode", "Encoding speed", 1, 3),
            ("speed-decode", "Decoding speed", 1, 3),
            ("speed-encode-start", "Encoding speed, with the start of the process", 3, 9),
            ("speed-decode-start", "Decoding speed, with the start of the process", 3, 9),
        ] {
            let section = between(&dom, &format!("data-plot=\"{plot}\""), "</section>");
            assert!(section.contains(&format!("><bdi>{heading}</bdi></h2>")), "{plot}");
            let svg = between(section, "<svg ", "</svg>");
            assert!(
                svg.contains("role=\"img\"")
                    && svg.contains("payload, bytes")
                    && svg.contains("time, seconds")
            );
            // The drawing is 720 wide, a digit of a tick 7: the last one is within it, too.
            for tick in
                svg.split("<text ").filter(|text| text.contains("text-anchor=\"middle\" class=\"tick\""))
            {
                let x: f64 = between(tick, "x=\"", "\"").parse().unwrap();
                let width = 7.0 * between(tick, ">", "<").len() as f64;
                assert!(x + width / 2.0 < 720.0, "{plot}: {tick}");
            }
            // A dot for each measurement of ours, a square for each of the reference's; and one of each a model in
            // the legend.
            assert_eq!(svg.matches("<circle ").count(), 3 * sizes + 3, "{plot}");
            assert_eq!(svg.matches("<rect ").count(), 3 + 3, "{plot}");
            for label in ["fixed, ours", "transformer-rf-v1, reference"] {
                assert!(svg.contains(&format!(">{label}</text>")), "{plot}: {label}");
            }
            let body = between(section, "<tbody>", "</tbody>");
            assert_eq!(body.matches("<tr>").count(), rows, "{plot}");
            assert!(body.contains("<td>0.750000</td>") || body.contains("<td>0.875000</td>"), "{plot}");
            assert_eq!(body.contains("<td>6.2</td>"), rows == 9, "{plot}");
        }
    }
}

#[test]
fn hostile_results_stay_text_in_a_browser() {
    let hostile = "</title></svg></style><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\u{202e}\u{200b}";
    let mut texts = results();
    for text in &mut texts {
        let mut value: Value = serde_json::from_str(text).unwrap();
        let change = |result: &mut Value| {
            for field in ["name", "payload_path", "model_path", "error_message"] {
                result[field] = json!(hostile);
            }
            if result["carrier_quality"].is_object() {
                result["carrier_quality"]["preview_sample"] = json!(hostile);
                result["carrier_quality"]["character_frequency"] = json!({"<": result["carrier_chars"]});
                result["carrier_quality"]["unique_character_count"] = json!(1);
            }
            if result["promotion"].is_object() {
                result["promotion"]["checks"][0]["detail"] = json!(hostile);
                result["promotion"]["checks"][0]["check"] = json!(hostile);
            }
        };
        match value.get_mut("results").and_then(Value::as_array_mut) {
            Some(results) => results.iter_mut().for_each(change),
            None => change(&mut value),
        }
        *text = value.to_string();
    }
    let page = page(&texts).unwrap();
    for never in ["<script", "<img", "\u{202e}", "\u{200b}", "http:", "https:", "url(", "@import", "href="] {
        assert!(!page.contains(never), "{never:?}");
    }
    assert_eq!(page.matches("</style>").count(), 1);
    assert!(page.contains("&lt;script&gt;") && page.contains("U+202E"));
    let Some(browser) = Browser::find() else { return };
    let dom = browser.dom(&page);
    assert!(dom.contains("<title>Carrier results</title>"), "something ran");
    assert!(!dom.contains("<script") && !dom.contains("<img"));
}

#[test]
fn the_page_fits_a_phone_and_has_a_light_and_a_dark_side() {
    let Some(browser) = Browser::find() else { return };
    let mut texts = results();
    texts[3] = texts[3].replace("n-gram, order 3", &"0123456789abcdef".repeat(40));
    let page = page(&texts).unwrap();
    // The page itself forbids scripts; the ruler is laid on a copy that does not, in a frame as wide as a phone.
    let from = page.find("<meta http-equiv").unwrap();
    let policy = &page[from..from + page[from..].find('>').unwrap() + 1];
    let ruler = "<script>onload = () => parent.postMessage(innerWidth + ' ' + \
                 document.documentElement.scrollWidth, '*')</script></body>";
    let copy = page.replace(policy, "").replace("<details>", "<details open>").replace("</body>", ruler);
    let copy = copy.replace('&', "&amp;").replace('"', "&quot;");
    let frame = format!(
        "<!DOCTYPE html><body><script>onmessage = told => document.body.dataset.widths = told.data</script>\
         <iframe style=\"border:0;width:360px;height:700px\" srcdoc=\"{copy}\"></iframe></body>"
    );
    let dom = browser.run(&frame, &["--virtual-time-budget=5000", "--hide-scrollbars", "--dump-dom"]);
    assert!(dom.contains("data-widths=\"360 360\""), "{}", &dom[..dom.len().min(300)]);

    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("carrier-report");
    std::fs::create_dir_all(&folder).unwrap();
    let seen = [("dark", 0), ("light", 1)].map(|(scheme, number)| {
        let file = folder.join(format!("{scheme}.png"));
        let _ = std::fs::remove_file(&file);
        let scheme = format!("--blink-settings=preferredColorScheme={number}");
        let screenshot = format!("--screenshot={}", file.display());
        browser.run(&page, &["--window-size=1100,4200", &scheme, "--hide-scrollbars", &screenshot]);
        std::fs::read(&file).unwrap()
    });
    assert_ne!(seen[0], seen[1], "light and dark look the same");
    println!("screenshots: {}", folder.display());
}

#[test]
fn files_that_are_no_results_are_refused_by_name() {
    let dir = TempDir::new("research-hostile");
    let good = results()[3].clone();
    let value: Value = serde_json::from_str(&good).unwrap();
    let changed = |at: &str, to: Value| {
        let mut bad = value.clone();
        *bad.pointer_mut(at).unwrap() = to;
        bad.to_string()
    };
    dir.write("good", &good);
    for (text, what) in [
        (String::new(), "bad: it is not JSON"),
        ("[]".into(), "bad: the document must be an object, not an array"),
        ("{}".into(), "bad: field schema_version: it is missing"),
        ("{\"results\":7}".into(), "bad: field schema_version: it is missing"),
        (good[..good.len() / 2].to_owned(), "bad: it is not JSON"),
        ("[".repeat(100_000), "bad: it is not JSON"),
        (
            changed("/schema_version", json!(2)),
            "field schema_version: it is 2, not a whole number from 1 to 1",
        ),
        (
            changed("/encode_seconds", json!(-1)),
            "field encode_seconds: it is -1, not a number from 0 to 1000000000",
        ),
        (changed("/carrier_chars", json!(1e300)), "field carrier_chars: it is "),
        (changed("/decoded_sha256", json!("0".repeat(64))), "field roundtrip_success: it is true, but"),
        (changed("/carrier_chars", json!(1)), "its counts do not add up to carrier_chars"),
        (
            changed("/carrier_quality/character_frequency", json!({"ab": 1})),
            "a key of it is not one character",
        ),
        (
            changed("/promotion/verdict", json!("reject")),
            "field promotion.verdict: it is reject, and the checks say",
        ),
        (changed("/promotion/checks/0/passed", json!(1)), "field promotion.checks[0].passed: it is a number"),
        (changed("/settings/shape", json!({})), "field settings.shape.uniform_mix: it is missing"),
        (
            good.replacen("\"encode_seconds\": ", "\"encode_seconds\": 1e999, \"x\": ", 1),
            "field encode_seconds: ",
        ),
    ] {
        dir.write("bad", text);
        refuses(dir.path(), &["report", "good", "bad", "--out", "page.html"], what);
        assert!(!dir.path().join("page.html").exists(), "{what}");
    }
    refuses(dir.path(), &["report", "--out", "page.html"], "RESULTS… is missing");
    refuses(dir.path(), &["report", "nowhere", "--out", "page.html"], "reading nowhere: ");
    refuses(dir.path(), &["report", "/dev/zero", "--out", "page.html"], "more than 67108864 bytes");
    refuses(dir.path(), &["report", "good", "--out", "good"], "would overwrite good");
    assert_eq!(
        works(dir.path(), &["report", "good", "good", "--out", "page.html"]),
        "report path: page.html\n"
    );
    assert!(read(dir.path().join("page.html")).contains("data-results=\"2\""));
}

#[track_caller]
fn between<'a>(dom: &'a str, from: &str, to: &str) -> &'a str {
    let start = dom.find(from).unwrap_or_else(|| panic!("there is no {from}")) + from.len();
    let rest = &dom[start..];
    &rest[..rest.find(to).unwrap_or_else(|| panic!("there is no {to} behind {from}"))]
}

// ---- the demo --------------------------------------------------------------------------------

#[test]
fn the_demo_ends_with_its_line_and_leaves_the_page() {
    let dir = TempDir::new("research-demo");
    let out = dir.path().join("out");
    let done = Command::new("sh")
        .arg(example("demo.sh"))
        .env("AGENTCONTAINER", BINARY)
        .env("OUT", &out)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
    let line = format!(
        "carriers: every payload came back, 4 of 4 experiments promoted; the page is {}",
        out.join("report.html").display()
    );
    assert_eq!(said.lines().last(), Some(&*line));
    assert!(read(out.join("report.html")).contains("8 of 8 passed every check of promotion"));
}
