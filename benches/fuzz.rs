//! Throws mutated texts at the readers of what strangers send, for as long as it is told.
//!
//! `make fuzz SECONDS=600`. A panic ends the run with the input that caused it, written below target/.
//! The seeds are made here; mutation is by bytes, lines and splices of two inputs. No coverage feedback:
//! what a guided fuzzer needs is not on every machine, and this runs wherever the tests do.

use agentcontainer::agent::Manifest;
use agentcontainer::capsule::bundle::{Bundle, Writer};
use agentcontainer::capsule::{
    self, pack, pack_agent, Agent, Keys, PackOptions, Policy, PrivateKey, Registry, Signing,
};
use agentcontainer::journal::Line;
use agentcontainer::node::Keys as NodeKeys;
use agentcontainer::wire::{self, ReceivedAnswer, Request, RequestOptions, Secret};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::{Duration, Instant};

/// A reader, and its name.
type Target = (&'static str, fn(&[u8]));

const TARGETS: [Target; 10] = [
    ("envelope", |data| drop(capsule::Envelope::parse(&capsule::normalized(&String::from_utf8_lossy(data))))),
    ("open", |data| drop(capsule::open(&String::from_utf8_lossy(data), &Policy::default(), None))),
    ("manifest", |data| drop(capsule::Manifest::parse(&String::from_utf8_lossy(data)))),
    ("bundle", |data| {
        if let Ok(bundle) = Bundle::parse(data) {
            for file in bundle.files() {
                let _ = file.content(&mut Vec::new());
            }
        }
    }),
    ("scan", |data| {
        let text = String::from_utf8_lossy(data);
        let report = capsule::scan::scan(&text, &Policy::default(), &Keys::default());
        wire::parse(&report.json(&Policy::default())).expect("a report is JSON");
    }),
    ("policy and registry", |data| {
        let text = String::from_utf8_lossy(data);
        let _ = Policy::parse(&text);
        let _ = Registry::parse(&text, std::path::Path::new("/nowhere"));
    }),
    ("request and answer", |data| {
        if let Ok(request) = Request::parse(data) {
            request.verify(&secret());
        }
        let _ = ReceivedAnswer::parse(data);
    }),
    ("agent manifest", |data| drop(Manifest::read(&String::from_utf8_lossy(data)))),
    ("journal line", |data| {
        if let Ok(line) = Line::read(data) {
            line.is_genuine();
        }
    }),
    ("configuration", |data| drop(NodeKeys::parse(&String::from_utf8_lossy(data)))),
];

fn main() {
    let seconds = std::env::var("SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(20u64);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut chance =
        Chance(std::env::var("SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(now));
    println!("seed {}, {seconds} s", chance.0);
    let seeds = seeds();
    std::panic::set_hook(Box::new(|_| {}));
    let mut runs = [0u64; TARGETS.len()];
    while Instant::now() < end {
        let input = mutated(&seeds, &mut chance);
        for (index, (name, target)) in TARGETS.iter().enumerate() {
            runs[index] += 1;
            let began = Instant::now();
            let ended = catch_unwind(AssertUnwindSafe(|| target(&input)));
            if ended.is_err() || began.elapsed() > Duration::from_secs(5) {
                let file = format!("{}/fuzz-{}.input", env!("CARGO_TARGET_TMPDIR"), name.replace(' ', "-"));
                let _ = std::fs::write(&file, &input);
                eprintln!(
                    "{name}: {} at the input in {file}",
                    if ended.is_err() { "a panic" } else { "over five seconds" }
                );
                std::process::exit(1);
            }
        }
    }
    for ((name, _), runs) in TARGETS.iter().zip(runs) {
        println!("{name:<22} {runs:>10} inputs, no panic");
    }
}

fn secret() -> Secret {
    Secret::new("a secret for fuzzing").expect("it is one")
}

fn now() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_nanos() as u64) | 1
}

/// Well-formed inputs to begin with.
fn seeds() -> Vec<Vec<u8>> {
    let source = "AGENT_ID = \"a\"\nAGENT_SECRET = 'a secret'\nAGENT_CAPABILITIES = ['files', \"run\"]  # why\nclass Agent:\n    \"\"\"doc\"\"\"\n";
    let mut seeds = vec![source.as_bytes().to_vec()];
    let key = PrivateKey::generate().expect("random bytes");
    for signing in [Signing::None, Signing::Ed25519 { key: Box::new(key), inline: true }] {
        let options =
            PackOptions { signing, requested_capabilities: vec!["files".into()], ..PackOptions::default() };
        let agent = Agent { source, memory: Some("{\"n\":1}"), state: None };
        seeds.push(pack_agent(&agent, &options).expect("it fits").into_bytes());
        let mut text = b"Hello,\r\n\r\n".to_vec();
        let content = pack::Content::file("note.txt", b"some bytes \x00\xff".to_vec()).expect("a plain name");
        capsule::pack(&content, &options, &mut text).expect("it packs");
        text.extend_from_slice("\nBye \u{200b}".as_bytes());
        seeds.push(text);
    }
    let mut writer = Writer::default();
    writer.add("a/b.txt", b"one").expect("a path");
    writer.add("c", b"").expect("a path");
    let (bundle, _) = writer.finish();
    seeds.push(bundle);
    seeds.push(Policy::default().json().into_bytes());
    let mut registry = Registry::default();
    let public = PrivateKey::generate().expect("random bytes").public();
    registry.add(capsule::trust::Entry::new("publisher", public)).expect("a new key");
    seeds.push(registry.json().into_bytes());
    let payload = r#"{"agent_id":"a","message":[1.0,-0,1e5,"\ud83d\ude00",null,true,{"x":[]}]}"#;
    let signed = wire::signed_request("invoke_agent", "admin", &secret(), payload, RequestOptions::default());
    seeds.push(signed.expect("it signs").line.into_bytes());
    seeds.push(br#"{"node":"n","nonce":"1","result":{"a":1},"status":"ok","signature":"00"}"#.to_vec());
    seeds.push(br#"{"seq":1,"time":"2026-05-09T00:00:00Z","kind":"call","agent":"a","n":7,"ok":true,"prev":"00","hash":"00"}"#.to_vec());
    seeds.push(br#"{"container_name":"n","listen_port":7000,"federation":{"name":"n","host":"h","port":1,"children":[]},"operators":{}}"#.to_vec());
    seeds
}

/// Xorshift: repeatable from its seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % most.max(1) as u64) as usize
    }
}

fn mutated(seeds: &[Vec<u8>], chance: &mut Chance) -> Vec<u8> {
    const WORDS: [&str; 12] = [
        "-----BEGIN AGENT CAPSULE-----\n",
        "-----PAYLOAD-----\n",
        "-----END AGENT CAPSULE-----",
        "\"",
        "{",
        "[",
        "\\ud800",
        "../",
        "99999999999999999999",
        "\u{200b}",
        ": ",
        "\r\n",
    ];
    let mut input = seeds[chance.below(seeds.len())].clone();
    for _ in 0..1 + chance.below(8) {
        let at = chance.below(input.len() + 1);
        let until = (at + chance.below(40)).min(input.len());
        match chance.below(8) {
            0 => drop(input.drain(at..until)),
            1 => input.insert(at, chance.below(256) as u8),
            2 if at < input.len() => input[at] ^= 1 << chance.below(8),
            3 => drop(input.splice(at..at, WORDS[chance.below(WORDS.len())].bytes())),
            4 => {
                let piece = input[at..until].to_vec();
                let times = 1 + chance.below(200);
                input.splice(at..at, piece.repeat(times));
            }
            5 => {
                let other = &seeds[chance.below(seeds.len())];
                let from = chance.below(other.len() + 1);
                input.splice(at.., other[from..].iter().copied());
            }
            6 => input.truncate(at),
            _ => {
                let mut lines: Vec<&[u8]> = input.split(|byte| *byte == b'\n').collect();
                let (a, b) = (chance.below(lines.len()), chance.below(lines.len()));
                lines.swap(a, b);
                input = lines.join(&b'\n');
            }
        }
    }
    input
}
