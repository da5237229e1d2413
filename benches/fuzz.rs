//! Throws mutated texts at the readers of what strangers send, and of what a disk may have made of state
//! files, for as long as it is told.
//!
//! `make fuzz SECONDS=600`; `TARGET=bridge` for one reader alone, `SEED=…` for the same inputs again. A panic,
//! a broken promise or five seconds over one input end the run, with that input written below target/. The
//! seeds are made here; mutation is by bytes, lines and splices of two inputs. No coverage feedback: what a
//! guided fuzzer needs is not on every machine, and this runs wherever the tests do.

use agentcontainer::agent::frame::{Frame, Frames, Said};
use agentcontainer::agent::Manifest;
use agentcontainer::capsule::bundle::{Bundle, Writer};
use agentcontainer::capsule::{
    self, pack, pack_agent, Agent, Keys, PackOptions, Policy, PrivateKey, Registry, Signing,
};
use agentcontainer::carrier::{self, ngram, transformer, Decoding, Encoding, Model, NGram, Transformer};
use agentcontainer::journal::Line;
use agentcontainer::node::messages::{self, check_transfer_id};
use agentcontainer::node::readers::StateFile;
use agentcontainer::node::{federation, Keys as NodeKeys};
use agentcontainer::roster::grants::Grant;
use agentcontainer::roster::token::{Narrowing, Token};
use agentcontainer::wire::{self, Address, Form, ReceivedAnswer, Request, RequestOptions, Secret};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::{Duration, Instant};

/// A reader: its name, what it is fed with to begin with, and how it is run.
struct Target {
    name: &'static str,
    seeds: fn() -> Vec<Vec<u8>>,
    run: fn(&[u8]),
}

const TARGETS: [Target; 23] = [
    Target { name: "carrier-text", seeds: carriers, run: run_carrier },
    Target { name: "carrier-model", seeds: carrier_models, run: run_model },
    Target { name: "envelope", seeds: capsules, run: |data| drop(capsule::Envelope::parse(&normal(data))) },
    Target {
        name: "open",
        seeds: capsules,
        run: |data| drop(capsule::open(&text(data), &Policy::default(), None)),
    },
    Target { name: "manifest", seeds: capsules, run: |data| drop(capsule::Manifest::parse(&text(data))) },
    Target { name: "bundle", seeds: bundles, run: run_bundle },
    Target { name: "scan", seeds: capsules, run: run_scan },
    Target {
        name: "policy-and-registry",
        seeds: capsule_files,
        run: |data| {
            let _ = Policy::parse(&text(data));
            let _ = Registry::parse(&text(data), std::path::Path::new("/nowhere"));
        },
    },
    Target { name: "token", seeds: tokens, run: run_token },
    Target { name: "request", seeds: requests, run: run_request },
    Target { name: "canonical", seeds: documents, run: run_canonical },
    Target { name: "address", seeds: addresses, run: run_address },
    Target {
        name: "answer",
        seeds: answers,
        run: |data| {
            if let Ok(answer) = ReceivedAnswer::parse(data) {
                let _ =
                    (answer.genuine(&secret(), "n"), answer.result(), answer.field("x"), answer.known_code());
            }
        },
    },
    Target { name: "payloads", seeds: payloads, run: run_payloads },
    Target { name: "bridge", seeds: frames, run: run_bridge },
    Target { name: "agent-manifest", seeds: sources, run: |data| drop(Manifest::read(&text(data))) },
    Target { name: "configuration", seeds: configurations, run: |data| drop(NodeKeys::parse(&text(data))) },
    Target {
        name: "journal-line",
        seeds: journal_lines,
        run: |data| {
            if let Ok(line) = Line::read(data) {
                line.is_genuine();
            }
        },
    },
    Target { name: "state-record", seeds: state_files, run: |data| drop(StateFile::Record.check(data)) },
    Target { name: "state-ledger", seeds: state_files, run: |data| drop(StateFile::LedgerEntry.check(data)) },
    Target { name: "state-outbox", seeds: state_files, run: |data| drop(StateFile::Transfer.check(data)) },
    Target { name: "state-known", seeds: state_files, run: |data| drop(StateFile::Known.check(data)) },
    Target {
        name: "state-replay",
        seeds: state_files,
        run: |data| drop(StateFile::ReplayMemory.check(data)),
    },
];

fn main() {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let seconds = variable("SECONDS").and_then(|text| text.parse().ok()).unwrap_or(20u64);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut chance = Chance(variable("SEED").and_then(|text| text.parse().ok()).unwrap_or_else(now));
    let only = variable("TARGET");
    println!("seed {}, {seconds} s", chance.0);
    let chosen: Vec<&Target> =
        TARGETS.iter().filter(|target| only.as_deref().is_none_or(|only| target.name == only)).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        eprintln!("there is no such target; there are {}", names.join(", "));
        std::process::exit(2);
    }
    let seeds: Vec<Vec<Vec<u8>>> = chosen.iter().map(|target| (target.seeds)()).collect();
    std::panic::set_hook(Box::new(|_| {}));
    let mut runs = vec![0u64; chosen.len()];
    while Instant::now() < end {
        for (index, target) in chosen.iter().enumerate() {
            // Now and then another reader's: what is well-formed elsewhere is odd here.
            let of = if chance.below(20) == 0 { chance.below(seeds.len()) } else { index };
            let input = mutated(&seeds[of], &mut chance);
            runs[index] += 1;
            let began = Instant::now();
            let ended = catch_unwind(AssertUnwindSafe(|| (target.run)(&input)));
            if ended.is_err() || began.elapsed() > Duration::from_secs(5) {
                let file = format!("{}/fuzz-{}.input", env!("CARGO_TARGET_TMPDIR"), target.name);
                let _ = std::fs::write(&file, &input);
                let why = match &ended {
                    Ok(()) => "over five seconds".into(),
                    Err(panic) => format!("a panic ({})", words(&**panic)),
                };
                eprintln!("{}: {why} at the input in {file}", target.name);
                std::process::exit(1);
            }
        }
    }
    for (target, runs) in chosen.iter().zip(runs) {
        println!("{:<22} {runs:>10} inputs, no panic", target.name);
    }
}

fn words(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no words")
}

fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(data).into_owned()
}

fn normal(data: &[u8]) -> String {
    capsule::normalized(&text(data)).into_owned()
}

/// A token that is read is read again as it was, and no block of it, nor a further one, says more than the first.
fn run_token(data: &[u8]) {
    let Ok(token) = Token::read(&text(data)) else { return };
    let again = Token::read(&token.text()).expect("what is read can be read again");
    assert!(again.ids().eq(token.ids()) && again.grant() == token.grant());
    let first = token.says().next().and_then(|(_, says)| says.grant.clone()).expect("the first block grants");
    assert_eq!(token.grant().beyond(&first), None);
    if let Ok(narrower) = token.narrow(&Narrowing { grant: Some(first.clone()), ..Narrowing::default() }) {
        assert_eq!(narrower.grant().beyond(token.grant()), None);
    }
}

fn tokens() -> Vec<Vec<u8>> {
    let key = PrivateKey::generate().expect("random bytes");
    let grant =
        serde_json::json!({"groups": ["process", "http"], "scopes": {"run": {"commands": ["ps", "df"]}}});
    let grant = Grant::read(&grant).expect("a grant");
    let nodes = ["a", "b"].map(String::from).into_iter().collect();
    let token = Token::issue(&key, "scout", 1000, 2000, Some(nodes), &grant).expect("a token");
    let mut narrowed = Grant::default();
    narrowed.add("run", Some(&serde_json::json!({"commands": ["df"]}))).expect("a scope");
    let narrowing = Narrowing { expires_at: Some(1500), nodes: None, grant: Some(narrowed) };
    let second = token.narrow(&narrowing).expect("a narrower one");
    let third = second.narrow(&Narrowing::default()).expect("a third block");
    [token, second, third].iter().map(|token| token.text().into_bytes()).collect()
}

fn run_bundle(data: &[u8]) {
    if let Ok(bundle) = Bundle::parse(data) {
        for file in bundle.files() {
            let _ = file.content(&mut Vec::new());
        }
    }
}

fn run_scan(data: &[u8]) {
    let text = text(data);
    let report = capsule::scan::scan(&text, &Policy::default(), &Keys::default());
    wire::parse(&report.json(&Policy::default())).expect("a report is JSON");
}

const CARRIED: &[u8] = b"what a carrier carries";

/// What still decodes is what was packed: the CRC is over all of it. Mutation does not forge one.
fn run_carrier(data: &[u8]) {
    let (decoding, mut quiet) = (Decoding { max_payload: 1 << 20, ..Decoding::default() }, |_, _| ());
    for model in models() {
        if let Ok(payload) = carrier::decode(&mut &*data, &model, &decoding, &mut quiet) {
            assert!(payload == CARRIED, "other bytes with a good CRC");
        }
    }
}

/// A model that is taken is written as one that is taken, and carries.
fn run_model(data: &[u8]) {
    let Ok(model) = Model::parse(&text(data)) else { return };
    let again = Model::parse(&model.file_text()).expect("what was written is a model");
    assert_eq!(again.fingerprint(), model.fingerprint());
    let (mut text, mut quiet) = (Vec::new(), |_, _| ());
    let encoding = Encoding { max_steps: Some(2000), ..Encoding::default() };
    if carrier::encode(b"a", &model, &encoding, &mut text, &mut quiet).is_ok() {
        let read = carrier::decode(&mut &text[..], &model, &Decoding::default(), &mut quiet);
        assert_eq!(read.expect("it was just written"), b"a");
    }
}

/// Small ones of each kind.
fn models() -> Vec<Model> {
    const TEXT: &[u8] = b"a small text to learn from. it is enough for a mutation.";
    let ngram = NGram::train(TEXT, &ngram::Training::default()).expect("a model");
    let sizes = transformer::Sizes { block_size: 2, d_model: 2, ff_dim: 3, seed: 1 };
    let training = transformer::Training { sizes, ..transformer::Training::default() };
    let transformer = Transformer::train(TEXT, &training, &mut |_, _| ()).expect("a model");
    vec![Model::Fixed, Model::NGram(Box::new(ngram)), Model::Transformer(Box::new(transformer))]
}

fn carriers() -> Vec<Vec<u8>> {
    let encoded = |model: &Model| {
        let mut text = b"before\n".to_vec();
        let encoding = Encoding { wrap: 20, ..Encoding::default() };
        carrier::encode(CARRIED, model, &encoding, &mut text, &mut |_, _| ()).expect("it encodes");
        text
    };
    models().iter().map(encoded).collect()
}

fn carrier_models() -> Vec<Vec<u8>> {
    models().iter().skip(1).map(|model| model.file_text().into_bytes()).collect()
}

/// What is still genuine after it was changed must say what was signed.
fn run_request(data: &[u8]) {
    let Ok(request) = Request::parse(data) else { return };
    wire::parse(request.payload()).expect("a payload is JSON");
    let _ = request.payload_json().get("timeout");
    if request.verify(&secret()) {
        let line = String::from_utf8_lossy(data);
        let said =
            wire::canonical(&wire::parse(&line).expect("it is a request"), Form::Ascii, Some("signature"));
        assert!(
            GENUINE.iter().any(|payload| said == signed_part(payload)),
            "another message verifies: {said}"
        );
    }
}

/// The canonical text reads as the same document, and is its own canonical text.
fn run_canonical(data: &[u8]) {
    let text = text(data);
    let Ok(json) = wire::parse(&text) else { return };
    serde_json::from_str::<&serde_json::value::RawValue>(text.trim_matches([' ', '\t', '\r', '\n']))
        .expect("what we take, another reader takes too");
    let ascii = wire::canonical(&json, Form::Ascii, None);
    assert!(ascii.bytes().all(|byte| matches!(byte, b' '..=b'~')));
    for form in [Form::Ascii, Form::Utf8 { escape_del: false }, Form::Utf8 { escape_del: true }] {
        let said = wire::canonical(&json, form, None);
        let again = wire::parse(&said).expect("canonical text is JSON");
        assert_eq!(wire::canonical(&again, form, None), said);
        assert_eq!(wire::canonical(&again, Form::Ascii, None), ascii);
    }
}

fn run_address(data: &[u8]) {
    let text = text(data);
    if let Ok(address) = text.parse::<Address>() {
        assert_eq!(address.to_string().parse::<Address>().expect("it was one"), address);
    }
    let _ = Address::parse_listening(&text);
    let _ = Address::new(&text, 1);
}

fn run_payloads(data: &[u8]) {
    let text = text(data);
    // As behind the wire's own reader, which is the stricter one.
    if wire::parse(&text).is_err() {
        return;
    }
    if let Ok(order) = messages::read::<messages::Deploy>("deploy_agent", &text) {
        let _ = messages::deadline(order.timeout, Duration::from_secs(1));
        let stage = order.agent_metadata.as_ref().and_then(federation::stage);
        let _ = stage.as_ref().and_then(federation::Destination::of);
        if let Some(tree) =
            federation::carried(order.agent_metadata.as_ref().and_then(|all| all.get("network")))
        {
            let _ = (tree.check(), tree.walk().len());
        }
    }
    if let Ok(order) = messages::read::<messages::Receive>("receive_agent", &text) {
        if order.check().is_ok() {
            let leaf = federation::TreeNode::leaf("n", "h", 1);
            let _ = federation::resolve("a", &leaf, &order.agent_metadata.unwrap_or_default(), &order.trace);
        }
    }
    let _ = messages::read::<messages::Invoke>("invoke_agent", &text);
    let _ = messages::read::<messages::Dispatch>("dispatch_agent", &text);
    let _ = messages::read::<messages::Remove>("remove_agent", &text);
    let _ = messages::read::<messages::Nothing>("list_agents", &text);
    if let Ok(order) = messages::read::<messages::TransferRef>("transfer_status", &text) {
        check_transfer_id(&order.transfer_id).expect("it was checked");
    }
}

/// However the bytes come, they mean the same; what is handed on stays within its bounds.
fn run_bridge(data: &[u8]) {
    const MOST: usize = 4096;
    let read = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let (mut frames, mut got) = (Frames::new(MOST), Vec::new());
        for piece in pieces {
            frames.push(piece);
            loop {
                match frames.next_frame() {
                    Ok(Some(frame)) => got.push(told(frame)),
                    Ok(None) => break,
                    Err(why) => {
                        got.push(why);
                        return got;
                    }
                }
            }
        }
        got
    };
    let whole = read(&mut std::iter::once(data));
    // Where a frame is too long it depends on the pieces how much of it is seen first.
    let plain = data.split(|byte| *byte == b'\n').all(|line| line.len() <= MOST);
    for size in [1, 3, 1000] {
        let parts = read(&mut data.chunks(size));
        assert!(!plain || parts == whole, "in pieces of {size}: {parts:?}, whole: {whole:?}");
    }
}

fn told(frame: Frame) -> String {
    assert!(frame.left.len() <= 64 && frame.left.iter().all(|name| name.len() <= 256));
    if let Some(memory) = &frame.memory {
        wire::parse_within(memory.get(), 4).expect("a memory goes into a message");
    }
    match frame.what {
        Said::Refused(error) | Said::Failed { error, .. } => {
            let error = error.fit_to_tell("a secret for fuzzing");
            assert!(error.kind.len() <= 256 && error.text.len() <= 32 << 10 && error.traceback.len() <= 64);
            error.to_string()
        }
        Said::Call { name, args, number, hook } => {
            assert!(name.len() <= 64);
            format!("{number} {hook:?} {name} {args}")
        }
        other => format!("{other:?}"),
    }
}

fn secret() -> Secret {
    Secret::new("a secret for fuzzing").expect("it is one")
}

fn now() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_nanos() as u64) | 1
}

const SOURCE: &str = "AGENT_ID = \"a\"\nAGENT_SECRET = 'a secret'\nAGENT_CAPABILITIES = ['files', \"run\"]  # why\nAGENT_NAME = \"n\"\nAGENT_VERSION = '1'\nclass Agent:\n    \"\"\"doc\"\"\"\n    x = '''AGENT_ID = 'b' '''\n";

fn sources() -> Vec<Vec<u8>> {
    vec![
        SOURCE.into(),
        b"class Agent: pass\nAGENT_ID='x.y-z_1'\r\nAGENT_SECRET = \"s\" ;\nAGENT_CAPABILITIES = []\n".to_vec(),
        b"# -*- coding: utf-8 -*-\n\"\"\"\nAGENT_ID = 'no'\n\"\"\"\nAGENT_ID = \"yes\"\nAGENT_SECRET = \"\\\"\"\nAGENT_CAPABILITIES = [\n  'a',\n  # b\n  'c',\n]\nclass Agent(object):\n  f = f'{x!r}'\n"
            .to_vec(),
    ]
}

fn capsules() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let key = PrivateKey::generate().expect("random bytes");
    for signing in [Signing::None, Signing::Ed25519 { key: Box::new(key), inline: true }] {
        let options =
            PackOptions { signing, requested_capabilities: vec!["files".into()], ..PackOptions::default() };
        let agent = Agent { source: SOURCE, memory: Some("{\"n\":1}"), state: None };
        seeds.push(pack_agent(&agent, &options).expect("it fits").into_bytes());
        let mut text = b"Hello,\r\n\r\n".to_vec();
        let content = pack::Content::file("note.txt", b"some bytes \x00\xff".to_vec()).expect("a plain name");
        capsule::pack(&content, &options, &mut text).expect("it packs");
        text.extend_from_slice("\nBye \u{200b}".as_bytes());
        seeds.push(text);
    }
    seeds
}

fn bundles() -> Vec<Vec<u8>> {
    let mut writer = Writer::default();
    writer.add("a/b.txt", b"one").expect("a path");
    writer.add("c", b"").expect("a path");
    vec![writer.finish().0]
}

fn capsule_files() -> Vec<Vec<u8>> {
    let mut registry = Registry::default();
    let public = PrivateKey::generate().expect("random bytes").public();
    registry.add(capsule::trust::Entry::new("publisher", public)).expect("a new key");
    vec![Policy::default().json().into_bytes(), registry.json().into_bytes()]
}

fn journal_lines() -> Vec<Vec<u8>> {
    vec![br#"{"seq":1,"time":"2026-05-09T00:00:00Z","kind":"call","agent":"a","n":7,"ok":true,"prev":"00","hash":"00"}"#.to_vec()]
}

/// The payloads of the requests that were signed.
const GENUINE: [&str; 3] = [
    r#"{"agent_id":"a","message":[1.0,-0,1e5,"\ud83d\ude00",null,true,{"x":[]}]}"#,
    r#"{"agent_id":"a","message":{"z":1,"a":"é\u007f","m":{"b":[],"a":{}}}}"#,
    "{}",
];

fn signed_line(payload: &str) -> String {
    let options =
        RequestOptions { timestamp: Some(1_700_000_000), nonce: Some("n".into()), keep_alive: true };
    wire::signed_request("invoke_agent", "admin", &secret(), payload, options).expect("it signs").line
}

fn signed_part(payload: &str) -> String {
    let line = signed_line(payload);
    wire::canonical(&wire::parse(&line).expect("it is JSON"), Form::Ascii, Some("signature"))
}

fn requests() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = GENUINE.iter().map(|payload| signed_line(payload).into_bytes()).collect();
    // The same in another order and with room between.
    let line = signed_line(GENUINE[0]);
    let inner = line.trim_start_matches('{').trim_end_matches('}');
    let (nonce, rest) = inner.split_once(",\"payload\"").expect("it has one");
    seeds.push(format!("{{ \"payload\"{rest} ,\t{nonce} }}").into_bytes());
    seeds
}

fn documents() -> Vec<Vec<u8>> {
    let mut seeds = requests();
    seeds.extend([
        b" [1, -0.0e+5, \"\\u0000\\/\\b\\ud83d\\ude00\", {\"b\":1,\"a\":{\"\":null}}, true,[[[]]]]\r\n"
            .to_vec(),
        "{\"é\":1,\"e\u{301}\":2,\"\u{10ffff}\":3,\"\u{ffff}\":4,\"\u{7f}\":5}".into(),
    ]);
    seeds
}

fn addresses() -> Vec<Vec<u8>> {
    ["127.0.0.1:7000", "[::1]:7000", "node.example:65535", "[fe80::1%eth0]:1", "localhost:0", "::1:7000"]
        .map(|text| text.as_bytes().to_vec())
        .into()
}

fn answers() -> Vec<Vec<u8>> {
    let proof = secret();
    let ok = wire::Answer::ok("alpha", "{\"n\":2.0,\"é\":[]}").expect("JSON").to_line(Some(("n", &proof)));
    vec![
        ok.into_bytes(),
        br#"{"node":"n","nonce":"1","result":{"a":1},"status":"ok","signature":"00"}"#.to_vec(),
        br#"{"code":"busy","error":"no","node":"n","status":"error","transfer":"untouched"}"#.to_vec(),
    ]
}

fn payloads() -> Vec<Vec<u8>> {
    [
        r#"{"source_code":"AGENT_ID = \"a\"","activate_payload":null,"agent_metadata":{"agent_name":"n","stage":{"name":"s","host":"h","port":1},"network":{"name":"a","host":"h","port":1,"children":[{"name":"b","host":"i","port":2}]}},"fresh":true,"timeout":1.5}"#,
        r#"{"capsule":"-----BEGIN AGENT CAPSULE-----","mode":"move","trace":["a",{"node":"b","host":"h","port":1,"time":1,"notes":["x"]}],"state":{"memory":{"n":1},"files":[{"path":"a/b","content_base64":"AA=="}]},"transfer_id":"t-1","agent_metadata":{"tokens":[]},"timeout":3}"#,
        r#"{"agent_id":"a","message":{"x":[1.0]},"timeout":0.1}"#,
        r#"{"agent_id":"a","destination":"b","mode":"clone","activate_payload":1,"metadata_patch":{"x":1}}"#,
        r#"{"transfer_id":"t","agent_id":"a","source_code":"x"}"#,
        "{}",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}

fn frames() -> Vec<Vec<u8>> {
    [
        "{\"loaded\":true,\"memory\":{\"n\":1}}\n{\"done\":1,\"result\":null,\"memory\":{\"n\":[2.0]},\"left\":[\"sock (socket)\"]}\n",
        "{\"refused\":{\"type\":\"SyntaxError\",\"text\":\"a secret for fuzzing\",\"traceback\":[\"line 1\",\"x\"]}}\n",
        "{\"call\":7,\"hook\":1,\"name\":\"log\",\"args\":{\"message\":\"é\",\"fields\":{}}}\n{\"failed\":1,\"error\":{\"type\":\"E\",\"text\":\"t\",\"traceback\":[]}}\n",
        "{\"call\":8,\"hook\":null,\"name\":\"move\",\"args\":{},\"memory\":{}}\n\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}

fn configurations() -> Vec<Vec<u8>> {
    let tree =
        r#"{"name":"n","host":"h","port":1,"children":[{"name":"m","host":"::1","port":2,"unsigned":true}]}"#;
    let defaults = r#""listen_host":"127.0.0.1","listen_port":0,"allow_subprocess":false,"clock_skew_s":300,"max_message_bytes":33554432,"max_connections":256,"request_timeout_s":30,"hook_timeout_s":0.5,"python":"python3","data_root":"data","parked_workers":2,"prewarm":true"#;
    vec![
        format!(r#"{{"container_name":"n","federation":{tree},"admin_secret":["a","b"],{defaults}}}"#).into_bytes(),
        br#"{"operators":{"monitor":{"secret_file":"m.secret","allow":["list_agents"]}},"admin_secret_file":"s","advertise_host":"node.example"}"#.to_vec(),
        format!("{{{defaults}}}").into_bytes(),
    ]
}

/// Files of a state directory; each is read by its reader.
fn state_files() -> Vec<Vec<u8>> {
    let texts = [
        (StateFile::Record, r#"{"metadata":{"a":1},"origin":"admin","registered_at":1780000000,"requested_capabilities":["run"],"sequence":2,"signer":null,"state_dir":"state.7","trace":[{"node":"n"}],"transfer":"t-1","version":1}"#.to_owned()),
        (StateFile::LedgerEntry, "{\"agent\":\"a\",\"generation\":3,\"refusal\":null,\"secret\":\"a secret\",\"standing\":\"done\",\"transfer\":\"t-1\"}\n{\"agent_id\":\"a\",\"activate_result\":1}".to_owned()),
        (StateFile::LedgerEntry, "{\"agent\":\"a\",\"generation\":null,\"refusal\":{\"code\":\"rejected\",\"error\":\"no\"},\"secret\":\"a secret\",\"standing\":\"refused\",\"transfer\":\"t-1\"}\nnull".to_owned()),
        (StateFile::Transfer, "{\"agent\":\"a\",\"created\":1780000000,\"destination\":{\"host\":\"127.0.0.1\",\"name\":\"b\",\"port\":7001},\"generation\":4,\"head\":\"AGENT_ID = \\\"a\\\"\",\"mode\":\"move\",\"outcome\":null,\"forget_after\":0,\"tried\":true,\"queued\":true,\"secret\":\"a secret\",\"transfer\":\"0123abcd\"}\n{\"mode\":\"move\",\"transfer_id\":\"0123abcd\"".to_owned()),
        (StateFile::Known, "{\"id\":\"a\",\"secret\":\"a secret\",\"sequence\":1}\n".to_owned()),
        (StateFile::ReplayMemory, format!("floor -9223372036854775808\nboot 0-1\nbelow 1780000000 \"b\"\n1780000000 {} \"a\"\n", "0f".repeat(16))),
    ];
    let made = texts.map(|(kind, text)| {
        kind.check(text.as_bytes()).expect("a seed is read");
        text.into_bytes()
    });
    made.into()
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
