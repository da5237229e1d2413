//! The vectors: a file each in `vectors/`, named after the attack.
//!
//! Up to the line `~~~` a file says what is attacked and with what the receiver stands there (`policy:`,
//! `registry:`, `hmac:`, `public:`); `expect:` is `ok` or the whole sentence of the refusal, `stage:`
//! `unpack` if it is only refused there. The rest of the file, to the byte, is the text that came.

use std::path::Path;

use agentcontainer::capsule::unpack::unpack;
use agentcontainer::capsule::verify::verified_payload;
use agentcontainer::capsule::{normalized, Envelope, HmacKey, Keys, Policy, PublicKey, Registry};

use super::support::{files_below, Scratch};

#[test]
fn every_attack_is_refused_with_its_sentence_and_writes_nothing() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/capsule/vectors");
    let mut wrong = Vec::new();
    let mut count = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "txt") {
            count += 1;
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            if let Err(what) = check(&std::fs::read_to_string(&path).unwrap()) {
                wrong.push(format!("{name}: {what}"));
            }
        }
    }
    assert!(count >= 100, "only {count} vectors");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn check(vector: &str) -> Result<(), String> {
    let (about, text) = vector.split_once("\n~~~\n").ok_or("no line ~~~")?;
    let given = |name: &str| about.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let expected = given("expect").ok_or("no line expect:")?;
    given("attack").ok_or("no line attack:")?;

    let policy = given("policy").map_or(Policy::default(), |json| Policy::parse(json).unwrap());
    let registry = given("registry").map(|json| Registry::parse(json, Path::new(".")).unwrap());
    let hmac = given("hmac").map(|key| HmacKey::new(key.as_bytes()).unwrap());
    let ed25519 = given("public").map(|key| PublicKey::parse(key).unwrap());
    let keys = Keys { hmac: hmac.as_ref(), ed25519, registry: registry.as_ref() };

    let scratch = Scratch::new();
    let out = scratch.at("made/by/unpack");
    let text = normalized(text);
    let verified = Envelope::parse(&text).and_then(|envelope| {
        verified_payload(&envelope, &policy, &keys).map(|(_, payload)| (envelope, payload))
    });
    let verifies = verified.is_ok();
    let unpacked = verified.and_then(|(envelope, payload)| unpack(&envelope, &payload, &out, false));
    if verifies != (expected == "ok" || given("stage") == Some("unpack")) {
        return Err(format!("verified: {verifies}, then {unpacked:?}"));
    }
    let came = unpacked.as_ref().map_or_else(ToString::to_string, |_| "ok".into());
    if came != expected {
        return Err(format!("expected {expected:?}\n   but it said {came:?}"));
    }
    match unpacked {
        Ok(written) if written.is_empty() => Err("nothing was unpacked".into()),
        Ok(written) => {
            let found = files_below(&out);
            (found == written).then_some(()).ok_or_else(|| format!("{found:?} instead of {written:?}"))
        }
        // Not even the directory.
        Err(_) if scratch.at("made").exists() => Err("something was written".into()),
        Err(_) => Ok(()),
    }
}
