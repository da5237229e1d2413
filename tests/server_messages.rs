//! What a node takes for a message, from whom, and in which order it says no.

#[path = "support/lines.rs"]
mod lines;
#[path = "support/mod.rs"]
mod support;
use agentcontainer::wire::{unix_now, RequestOptions};
use lines::{admin, code, handmade, is_signed, member, operator, run, send, signed, stamped, Peer, COUNTER};
use serde_json::{json, Value};
use support::lab::{agent, keys, Lab, ADMIN};

/// Signs with the standard library alone, sends, and checks the answer by cutting its signature off.
const PYTHON: &str = r#"
import hashlib, hmac, json, os, re, socket, sys, time
key, port = os.environ["SECRET"].encode(), int(os.environ["PORT"])

def mac(text):
    return hmac.new(key, text.encode("utf-8"), hashlib.sha256).hexdigest()

def ask(message, ascii, separators):
    text = json.dumps(message, sort_keys=True, separators=(",", ":"), ensure_ascii=ascii)
    sent = dict(reversed(list(message.items())), signature=mac(text).upper())
    line = json.dumps(sent, ensure_ascii=not ascii, separators=separators)
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.sendall(line.encode("utf-8") + b"\r\n")
        answer = peer.makefile("rb").read().decode("utf-8")
    signature = re.search(r',"signature":"([0-9a-f]{64})"}\n$', answer)
    assert signature, answer
    cut = answer[:signature.start()] + "}"
    assert mac(cut) == signature.group(1), answer
    answer = json.loads(answer)
    assert answer["nonce"] == message["nonce"], answer
    return answer

values = [0.00001, 1e-6, 1e16, 1.0, -0.0, 2**53 + 1, 2**64 + 1, 1e-300, 123456789.125, -1, 0,
          "é\x7f\u2028\U0001f600\"\\\n\x00\u007f/", True, None, {"b": 1, "a": [{}], "\U0001f600": 1, "\uffff": 2}]
for n, (ascii, separators) in enumerate([(True, (",", ":")), (False, (",", ":")), (True, None), (False, None)]):
    answer = ask({"type": "invoke_agent", "sender": "admin", "timestamp": int(time.time()),
                  "nonce": "é-%d" % n, "payload": {"agent_id": "echo", "message": values}}, ascii, separators)
    assert answer["status"] == "ok", answer
    assert answer["result"]["result"] == {"same": values, "repr": repr(values)}, answer
print("fine")
"#;

fn echo(lab: &Lab) {
    lab.deploy(&agent(
        "echo",
        "def on_message(self, ctx, message):\n    return {'same': message, 'repr': repr(message)}",
    ));
}

#[test]
fn stock_python_signs_any_numbers_and_strings_in_both_forms_and_checks_the_answer() {
    let lab = Lab::start("pythons");
    echo(&lab);
    let port = lab.address().port.to_string();
    let printed = run("python3", &["-I", "-c", PYTHON], &[("SECRET", ADMIN), ("PORT", &port)], "");
    assert_eq!(printed.as_deref(), Ok("fine\n"), "{}", lab.logged());
}

#[test]
fn numbers_are_signed_as_received_and_not_as_they_would_be_printed() {
    let lab = Lab::start("numbers");
    lab.deploy(COUNTER);
    for number in
        ["0.00001", "1e-6", "1E16", "1e+16", "1.0", "-0.0", "-0", "9007199254740993", "18446744073709551617"]
    {
        let request = signed(
            "invoke_agent",
            "admin",
            ADMIN,
            &format!("{{\"agent_id\":\"counter\",\"message\":{number}}}"),
            RequestOptions::default(),
        );
        let answer = send(&lab, &request.line);
        assert!(answer.is_ok(), "{number}: {}", answer.line());
        // The same value written otherwise is another message.
        let other = request.line.replace(&format!(":{number}}}"), &format!(":{number}0}}"));
        let other =
            if number.contains('e') || number.contains('E') { other.replace("60}", "06}") } else { other };
        assert_ne!(other, request.line);
        assert_eq!(code(&send(&lab, &other)).split('_').next(), Some("bad"), "{number}");
    }
}

#[test]
fn a_key_twice_is_refused_however_it_is_spelled_and_wherever_it_stands() {
    let lab = Lab::start("twice");
    let now = unix_now();
    for twice in [
        r#""payload":{},"payload":{}"#.to_owned(),
        r#""payload":{},"p\u0061yload":{}"#.to_owned(),
        r#""payload":{"a":1,"\u0061":2}"#.to_owned(),
        r#""payload":{"deep":[{"x":{"k":1,"l":2,"k":3}}]}"#.to_owned(),
        r#""payload":{},"sender":"admin""#.to_owned(),
        r#""payload":{},"😀":1,"\ud83d\ude00":1"#.to_owned(),
    ] {
        let line = format!(
            r#"{{"type":"list_agents","sender":"admin","timestamp":{now},"nonce":"n","signature":"{}",{twice}}}"#,
            "0".repeat(64)
        );
        let answer = send(&lab, &line);
        assert_eq!(code(&answer), "bad_message", "{twice}");
        assert!(answer.error().unwrap().contains("second time"), "{}", answer.line());
        assert!(answer.field("signature").is_none());
    }
}

#[test]
fn what_is_no_message_is_refused_and_the_sentence_names_the_field() {
    let lab = Lab::start("malformed");
    let now = unix_now();
    let with = |changes: &[(&str, Value)]| {
        let mut message = json!({"type": "list_agents", "sender": "admin", "timestamp": now, "nonce": "n",
                                 "payload": {}, "signature": "0".repeat(64)});
        for (name, value) in changes {
            match value {
                Value::String(gone) if gone == "(gone)" => {
                    drop(message.as_object_mut().unwrap().remove(*name))
                }
                value => message[*name] = value.clone(),
            }
        }
        message.to_string()
    };
    let mut cases: Vec<(String, &str)> = Vec::new();
    for name in ["type", "sender", "timestamp", "nonce", "payload", "signature"] {
        cases.push((with(&[(name, json!("(gone)"))]), name));
        cases.push((with(&[(name, Value::Null)]), name));
        cases.push((with(&[(name, json!([1]))]), name));
    }
    for (name, value) in [
        ("timestamp", json!("now")),
        ("timestamp", json!(1.5)),
        ("timestamp", json!(true)),
        ("nonce", json!("")),
        ("nonce", json!(7)),
        ("nonce", json!("x".repeat(129))),
        ("nonce", json!("é".repeat(65))),
        ("payload", json!("{}")),
        ("payload", json!([])),
        ("signature", json!("")),
        ("signature", json!("00")),
        ("signature", json!("zz".repeat(32))),
        ("keep_alive", json!("yes")),
        ("keep_alive", json!(1)),
        ("keep_alive", Value::Null),
    ] {
        cases.push((with(&[(name, value)]), name));
    }
    cases.push((with(&[]).replace(&now.to_string(), "123456789012345678901234567890"), "timestamp"));
    cases.push((with(&[]).replace(&now.to_string(), "1e9"), "timestamp"));
    for text in
        ["hello", "[]", "null", "{", "{}x", "{\"a\":01}", "{\"a\":\"\\ud800\"}", "{'a':1}", "{\"a\":1,}"]
    {
        cases.push((text.to_owned(), ""));
    }
    cases.push((format!("{}{}", "[".repeat(65), "]".repeat(65)), "nested more than 64"));
    for (line, part) in cases {
        let answer = send(&lab, &line);
        assert_eq!(code(&answer), "bad_message", "{line}: {}", answer.line());
        assert!(answer.error().unwrap().contains(part), "{line}: {}", answer.line());
        assert!(answer.field("signature").is_none() && answer.field("nonce").is_none(), "{}", answer.line());
        assert_eq!(answer.node(), Some("malformed"));
    }
    // Bytes that are not UTF-8 at all.
    let mut peer = Peer::to(&lab);
    peer.send(b"{\"type\":\"\xff\"}\n");
    assert_eq!(code(&peer.answer()), "bad_message");
}

#[test]
fn an_unknown_top_level_field_is_allowed_and_signed_like_any_other() {
    let lab = Lab::start("extra");
    let now = unix_now();
    let members = |more: &str| {
        format!(
            r#""type":"network_tree","sender":"admin","timestamp":{now},"nonce":"n-{}","payload":{{}},"x-id":{more}"#,
            more.len()
        )
    };
    let line = handmade(&members("[1,{\"b\":2,\"a\":null}]"));
    assert!(send(&lab, &line).is_ok());
    assert_eq!(
        code(&send(&lab, &handmade(&members("7")).replace("\"x-id\":7", "\"x-id\":8"))),
        "bad_signature"
    );
    // Keys in any order, blanks, a signature in capitals: still the same message.
    let line = handmade(&members("{}"));
    let (rest, signature) = line[..line.len() - 2].split_once(",\"signature\":\"").unwrap();
    let loud = format!(" {{ \"signature\" : \"{}\" ,\t{} }} \r", signature.to_uppercase(), &rest[1..]);
    assert!(send(&lab, &loud).is_ok());
}

#[test]
fn a_stale_message_says_so_with_the_nodes_time_and_the_skew_and_is_signed_if_its_signature_is_good() {
    let lab = Lab::with(agentcontainer::node::Keys { clock_skew_s: 120, ..keys("stale") });
    for (offset, side) in [(-200, "behind"), (200, "ahead"), (-1_000_000_000, "behind"), (86_400, "ahead")] {
        let request = stamped("describe_container", "admin", ADMIN, "{}", offset);
        let before = unix_now();
        let answer = send(&lab, &request.line);
        assert_eq!(code(&answer), "stale_timestamp");
        let node_time = member(&answer, "node_time").as_i64().unwrap();
        assert!((before..=unix_now()).contains(&node_time), "{}", answer.line());
        assert_eq!(member(&answer, "clock_skew_s"), json!(120));
        let text = answer.error().unwrap();
        for part in [side, &node_time.to_string(), "120 s"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(is_signed(&answer, ADMIN, &request), "{}", answer.line());
        // With a wrong signature it is stale just as well, and nobody vouches for the answer.
        let forged = stamped("describe_container", "admin", "wrong", "{}", offset);
        let answer = send(&lab, &forged.line);
        assert_eq!(code(&answer), "stale_timestamp");
        assert!(answer.field("signature").is_none() && answer.field("nonce").is_none());
    }
    for offset in [-110, 110] {
        let answer = send(&lab, &stamped("network_tree", "admin", ADMIN, "{}", offset).line);
        assert!(answer.is_ok(), "{offset}: {}", answer.line());
    }
    for extreme in ["9223372036854775807", "-9223372036854775808"] {
        let line = handmade(&format!(
            r#""type":"network_tree","sender":"admin","timestamp":{extreme},"nonce":"n","payload":{{}}"#
        ));
        assert_eq!(code(&send(&lab, &line)), "stale_timestamp", "{extreme}");
    }
}

#[test]
fn of_fifty_identical_lines_at_once_exactly_one_acts() {
    let lab = Lab::start("replays");
    lab.deploy(COUNTER);
    let request = admin("invoke_agent", json!({"agent_id": "counter", "message": "once"}));
    let line = format!("{}\n", request.line);
    let gate = std::sync::Barrier::new(50);
    let at_once = |mut peer: Peer| {
        gate.wait();
        peer.send(&line);
        peer.answer()
    };
    let answers: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..50).map(|_| Peer::to(&lab)).map(|peer| scope.spawn(|| at_once(peer))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    for answer in answers.iter().filter(|answer| !answer.is_ok()) {
        assert_eq!(code(answer), "replayed");
        assert!(is_signed(answer, ADMIN, &request), "{}", answer.line());
    }
    assert_eq!(lab.invoke("counter", json!(2))["count"], 2);
    // Written otherwise, with the same signature, it is still the same message.
    let blanks = request.line.replace(",\"payload\"", " ,\t\"payload\"");
    assert_eq!(code(&send(&lab, &blanks)), "replayed");
    let keys = request.line.to_string().replacen("{\"nonce\"", "{ \"nonce\"", 1);
    assert_eq!(code(&send(&lab, &keys)), "replayed");
    assert_eq!(lab.invoke("counter", json!(3))["count"], 3);
}

#[test]
fn nothing_is_done_for_a_message_whose_signature_is_wrong() {
    let dir = support::TempDir::new("untouched");
    let lab = Lab::with(agentcontainer::node::Keys { prewarm: false, ..keys("unsigned") });
    let state = |lab: &Lab| {
        let mut found = Vec::new();
        let mut waiting = vec![lab.running.state_dir.clone()];
        while let Some(dir) = waiting.pop() {
            for entry in std::fs::read_dir(&dir).unwrap().flatten() {
                if entry.file_type().unwrap().is_dir() {
                    waiting.push(entry.path());
                }
                found.push(entry.path());
            }
        }
        found.sort();
        found
    };
    let before = state(&lab);
    let mark = dir.path().join("ran");
    let source = format!("open({mark:?}, 'w')\n{}", agent("evil", "pass"));
    let payload = json!({"source_code": source, "activate_payload": {}, "transfer_id": "t"}).to_string();
    for (kind, sender) in [
        ("deploy_agent", "admin"),
        ("receive_agent", "admin"),
        ("receive_agent", "evil"),
        ("deploy_agent", "evil"),
    ] {
        let request = signed(kind, sender, "not the secret", &payload, RequestOptions::default());
        let answer = send(&lab, &request.line);
        let expected =
            if (kind, sender) == ("deploy_agent", "evil") { "unknown_sender" } else { "bad_signature" };
        assert_eq!(code(&answer), expected, "{kind} {sender}");
        assert!(answer.field("signature").is_none());
        // It may be sent again and again: a wrong signature is not remembered either.
        assert_eq!(code(&send(&lab, &request.line)), expected);
    }
    assert!(!mark.exists());
    assert_eq!(state(&lab), before);
    assert!(lab.running.node.agents().is_empty());
    let told = lab.ok("describe_container", json!({}));
    assert_eq!(told["counters"]["ledger_entries"], 0);
    assert_eq!(told["counters"]["live_agents"], 0);
}

#[test]
fn who_may_send_what() {
    let dir = support::TempDir::new("operators");
    let mut keys = keys("allowed");
    operator(&mut keys, &dir, "olga", &["invoke_agent"]);
    operator(&mut keys, &dir, "otto", &[]);
    let lab = Lab::with(keys);
    lab.deploy(COUNTER);
    let payload = |kind: &str| match kind {
        "deploy_agent" => json!({"source_code": COUNTER}),
        "receive_agent" => json!({"source_code": COUNTER, "transfer_id": format!("t-{}", unix_now())}),
        "invoke_agent" => json!({"agent_id": "counter"}),
        "dispatch_agent" => json!({"agent_id": "counter", "destination": "nowhere", "mode": "clone"}),
        "remove_agent" => json!({"agent_id": "nobody"}),
        kind if kind.starts_with("transfer_") => json!({"transfer_id": "t", "agent_id": "counter"}),
        _ => json!({}),
    };
    let everyone = ["describe_container", "network_tree"];
    let of_agents =
        ["receive_agent", "transfer_status", "transfer_cancel", "transfer_forget", everyone[0], everyone[1]];
    let may = |sender: &str, kind: &str| match sender {
        "admin" => true,
        "olga" => ["invoke_agent", "list_agents"].contains(&kind) || everyone.contains(&kind),
        "otto" => kind == "list_agents" || everyone.contains(&kind),
        _ => of_agents.contains(&kind),
    };
    for sender in ["admin", "olga", "otto", "counter"] {
        let secret = if sender == "admin" { ADMIN.to_owned() } else { format!("secret of {sender}") };
        for kind in agentcontainer::node::senders::TYPES {
            let request =
                signed(kind, sender, &secret, &payload(kind).to_string(), RequestOptions::default());
            let answer = send(&lab, &request.line);
            assert!(is_signed(&answer, &secret, &request), "{sender} {kind}: {}", answer.line());
            let forbidden = answer.code() == Some("forbidden");
            assert_eq!(forbidden, !may(sender, kind), "{sender} {kind}: {}", answer.line());
        }
    }
    for kind in agentcontainer::node::senders::TYPES.iter().filter(|kind| **kind != "receive_agent") {
        let answer = lab.ask_as("nobody", "x", kind, "{}");
        assert_eq!(code(&answer), "unknown_sender", "{kind}");
        assert!(answer.error().unwrap().contains("nobody"), "{}", answer.line());
    }
}

#[test]
fn an_unknown_type_names_the_nearest_however_long_it_is() {
    let lab = Lab::start("types");
    for (kind, near) in [
        ("list_agent", "list_agents"),
        ("describe", "describe_container"),
        ("tree", "network_tree"),
        ("deploy-agent", "deploy_agent"),
    ] {
        let (code, text) = lab.err(kind, json!({}));
        assert_eq!(code, "unknown_type");
        assert!(text.contains(kind) && text.contains(&format!("{near:?}")), "{text}");
    }
    let (_, text) = lab.err("zzz", json!({}));
    assert!(text.contains("docs/PROTOCOL.md") && !text.contains("nearest"), "{text}");
    // Looking for the nearest costs no time that grows with a name of megabytes; nor is it repeated.
    let started = std::time::Instant::now();
    let (code, text) = lab.err(&"list_agents".repeat(500_000), json!({}));
    assert_eq!(code, "unknown_type");
    assert!(text.len() < 1000, "{}", text.len());
    assert!(started.elapsed().as_secs() < 10, "{:?}", started.elapsed());
}

/// A stranger's line can be megabytes of one name; neither the answer nor the log repeats it.
#[test]
fn refusals_do_not_repeat_megabytes() {
    let lab = Lab::start("short");
    let long = "q".repeat(3 << 20);
    let now = unix_now();
    let head = format!(r#""timestamp":{now},"nonce":"n","payload":{{}},"signature":"{}""#, "0".repeat(64));
    for (line, expected) in [
        (format!(r#"{{"type":"x","sender":"{long}",{head}}}"#), "unknown_sender"),
        (format!(r#"{{"type":"receive_agent","sender":"{long}",{head}}}"#), "bad_payload"),
        (format!(r#"{{"{long}":1,"{long}":2}}"#), "bad_message"),
        (format!(r#"{{"type":"x","sender":"y","timestamp":{}}}"#, "1".repeat(3 << 20)), "bad_message"),
    ] {
        let answer = send(&lab, &line);
        assert_eq!(code(&answer), expected);
        assert!(answer.line().len() < 4096, "{expected}: {}", answer.line().len());
    }
    let (code, text) = lab.err("remove_agent", json!({"agent_id": "a", long.clone(): 1}));
    assert_eq!(code, "bad_payload");
    assert!(text.len() < 4096, "{}", text.len());
    let (code, _) = lab.err("remove_agent", json!({"agent_id": long}));
    assert_eq!(code, "unknown_agent");
    assert!(lab.logged().len() < 256 << 10, "{}", lab.logged().len());
}

#[test]
fn the_checks_come_in_the_protocols_order() {
    let dir = support::TempDir::new("order");
    let mut keys = keys("order");
    operator(&mut keys, &dir, "otto", &[]);
    let lab = Lab::with(keys);
    let otto = "secret of otto";
    let plain = RequestOptions::default;
    // Syntax before freshness, freshness before the sender, that before the signature.
    let line = stamped("nonsense", "nobody", "x", "{}", -9999).line;
    assert_eq!(code(&send(&lab, &line)), "stale_timestamp");
    assert_eq!(code(&send(&lab, &line.replace("\"payload\":{}", "\"payload\":3"))), "bad_message");
    assert_eq!(code(&send(&lab, &signed("nonsense", "nobody", "x", "{}", plain()).line)), "unknown_sender");
    // The signature before the type; replay before whether it is allowed; that before the payload.
    assert_eq!(code(&send(&lab, &signed("nonsense", "admin", "x", "{}", plain()).line)), "bad_signature");
    assert_eq!(code(&send(&lab, &signed("nonsense", "admin", ADMIN, "{}", plain()).line)), "unknown_type");
    assert_eq!(code(&send(&lab, &stamped("nonsense", "admin", ADMIN, "{}", 9999).line)), "stale_timestamp");
    for kind in ["deploy_agent", "receive_agent", "nonsense"] {
        let request = signed(kind, "otto", otto, r#"{"what":1}"#, plain());
        let expected = if kind == "nonsense" { "unknown_type" } else { "forbidden" };
        assert_eq!(code(&send(&lab, &request.line)), expected, "{kind}");
        assert_eq!(code(&send(&lab, &request.line)), "replayed", "{kind}");
    }
    let request = admin("deploy_agent", json!({"what": 1}));
    assert_eq!(code(&send(&lab, &request.line)), "bad_payload");
    assert_eq!(code(&send(&lab, &request.line)), "replayed");
}

#[test]
fn payloads_are_typed_and_the_sentence_names_what_is_wrong() {
    let lab = Lab::start("payloads");
    lab.deploy(COUNTER);
    for (kind, payload, part) in [
        ("deploy_agent", json!({}), "source_code"),
        ("deploy_agent", json!({"source_code": 3}), "string"),
        ("deploy_agent", json!({"source_code": null}), "neither source_code nor capsule"),
        ("deploy_agent", json!({"source_code": "x = 1"}), "AGENT_ID"),
        ("deploy_agent", json!({"source_code": COUNTER, "sourcecode": ""}), "sourcecode"),
        ("deploy_agent", json!({"source_code": COUNTER, "fresh": "yes"}), "\"fresh\" must be true or false"),
        ("deploy_agent", json!({"source_code": COUNTER, "agent_metadata": []}), "an object"),
        ("invoke_agent", json!({}), "agent_id"),
        ("invoke_agent", json!({"agent_id": null}), "null"),
        ("invoke_agent", json!({"agent_id": "counter", "mesage": 1}), "mesage"),
        (
            "invoke_agent",
            json!({"agent_id": "counter", "timeout": "3"}),
            "\"timeout\" must be a number, not a string",
        ),
        ("invoke_agent", json!({"agent_id": "counter", "timeout": -1}), "positive"),
        ("invoke_agent", json!({"agent_id": "counter", "timeout": 0}), "positive"),
        ("invoke_agent", json!({"agent_id": "counter", "timeout": -0.0}), "positive"),
        ("invoke_agent", json!({"agent_id": "counter", "timeout": [1]}), "not a list"),
        ("dispatch_agent", json!({"agent_id": "counter", "destination": "x"}), "mode"),
        ("dispatch_agent", json!({"agent_id": "counter", "destination": "x", "mode": "MOVE"}), "\"move\""),
        ("remove_agent", json!({"agent_id": "counter", "force": true}), "force"),
        ("list_agents", json!({"all": true}), "all"),
        ("describe_container", json!({"x": null}), "x"),
        ("network_tree", json!({"live": true}), "live"),
        ("transfer_status", json!({"agent_id": "counter"}), "transfer_id"),
        ("transfer_status", json!({"transfer_id": "t"}), "agent_id"),
        ("transfer_status", json!({"transfer_id": 5, "agent_id": "counter"}), "string"),
        ("transfer_cancel", json!({"transfer_id": "", "agent_id": "counter"}), "transfer_id"),
        ("transfer_cancel", json!({"transfer_id": "t".repeat(129), "agent_id": "counter"}), "transfer_id"),
        ("receive_agent", json!({"source_code": COUNTER, "mode": "swap"}), "\"clone\" or \"move\""),
        ("receive_agent", json!({"source_code": COUNTER, "trace": "root"}), "a list"),
        ("receive_agent", json!({"source_code": COUNTER, "trace": ["a", 5]}), "trace[1]"),
        ("receive_agent", json!({"source_code": COUNTER, "trace": [""]}), "trace[0]"),
        ("receive_agent", json!({"source_code": COUNTER, "trace": ["a/b"]}), "trace[0]"),
        ("receive_agent", json!({"source_code": COUNTER, "trace": [{"host": "h"}]}), "\"node\""),
        ("receive_agent", json!({"source_code": COUNTER, "trace": [{"node": "\u{1b}"}]}), "trace[0]"),
        ("receive_agent", json!({"source_code": COUNTER, "trace": [{"node": "a", "host": 1}]}), "\"host\""),
        ("receive_agent", json!({"source_code": COUNTER, "trace": [{"node": "a", "port": 0}]}), "\"port\""),
        ("receive_agent", json!({"source_code": COUNTER, "trace": [{"node": "a", "port": "1"}]}), "\"port\""),
        ("receive_agent", json!({"source_code": COUNTER, "agent_metadata": {"stage": []}}), "stage"),
        ("receive_agent", json!({"source_code": COUNTER, "agent_metadata": {"network": "x"}}), "network"),
        ("receive_agent", json!({"source_code": COUNTER, "agent_metadata": {"agent_name": 1}}), "agent_name"),
        (
            "receive_agent",
            json!({"source_code": COUNTER, "state": [null, []]}),
            "\"state\" must be an object",
        ),
        ("receive_agent", json!({"source_code": COUNTER, "state": {"files": [["a", ""]]}}), "an object"),
        ("receive_agent", json!({"source_code": COUNTER, "transfer_id": 1}), "string"),
        ("receive_agent", json!({"source_code": COUNTER, "transfer_id": "t".repeat(1000)}), "transfer_id"),
        ("receive_agent", json!({"source_code": COUNTER, "transfer_id": ""}), "transfer_id"),
        ("receive_agent", json!({"source_code": COUNTER, "timeout": -3, "transfer_id": "t-3"}), "positive"),
    ] {
        let (code, text) = lab.err(kind, payload.clone());
        assert_eq!(code, "bad_payload", "{kind} {payload}: {text}");
        assert!(text.contains(part), "{kind} {payload}: {text}");
        assert!(!text.contains(" at line "), "{text}");
    }
    assert_eq!(lab.invoke("counter", json!(null))["got"], json!(null), "null is a message");
    assert_eq!(
        lab.ok("invoke_agent", json!({"agent_id": "counter"}))["result"],
        json!({"count": 2, "got": {}}),
        "nothing was done for all that was refused"
    );
    for timeout in ["1e300", "1e19", "0.5e2", "3600", "null"] {
        let payload = format!(r#"{{"agent_id":"counter","timeout":{timeout}}}"#);
        assert!(lab.ask_as("admin", ADMIN, "invoke_agent", &payload).is_ok(), "{timeout}");
    }
    let answer = lab.ask_as("admin", ADMIN, "invoke_agent", r#"{"agent_id":"counter","timeout":1e999}"#);
    assert_eq!(code(&answer), "bad_payload", "{}", answer.line());
}

/// Whatever a payload holds, the answer is one of a request's errors, never a fault of the node.
#[test]
fn no_payload_makes_the_node_fail() {
    let lab = Lab::start("fuzzed");
    lab.deploy(COUNTER);
    let odd = [
        json!(null),
        json!(-1),
        json!(1e300),
        json!(""),
        json!("\u{0}"),
        json!("counter"),
        json!("../x"),
        json!([]),
        json!([[], {}, null]),
        json!({}),
        json!({"name": "x", "host": "h", "port": 70000, "children": [null]}),
        json!({"memory": 3, "files": [{"path": "../x", "content_base64": "!"}]}),
        json!({"memory": [], "files": [{"path": "a", "content_base64": ""}]}),
        json!({"network": {"name": 3}, "stage": [1]}),
    ];
    let fields = [
        "activate_payload",
        "agent_metadata",
        "fresh",
        "timeout",
        "mode",
        "trace",
        "state",
        "transfer_id",
        "agent_id",
        "message",
        "destination",
        "metadata_patch",
        "source_code",
    ];
    let mut peer = Peer::to(&lab);
    for kind in agentcontainer::node::senders::TYPES {
        for field in fields {
            for value in &odd {
                let mut payload =
                    json!({"agent_id": "nobody", "source_code": "x", "destination": "x", "mode": "move"});
                payload[field] = value.clone();
                let request = lines::kept(kind, payload.clone());
                peer.send(format!("{}\n", request.line));
                let answer = peer.answer();
                assert_ne!(answer.code(), Some("internal"), "{kind} {payload}: {}", answer.line());
                assert!(is_signed(&answer, ADMIN, &request), "{kind} {payload}: {}", answer.line());
            }
        }
    }
}

#[test]
fn an_answer_that_does_not_fit_a_line_is_an_error_of_its_own() {
    let lab = Lab::with(agentcontainer::node::Keys { max_message_bytes: 8192, ..keys("tight") });
    lab.deploy(&agent("big", "def on_message(self, ctx, message):\n    return message * 3000"));
    assert_eq!(lab.invoke("big", json!("ab")).as_str().map(str::len), Some(6000));
    // As UTF-8 it would fit; as the ASCII that is signed it does not.
    let (code, text) = lab.err("invoke_agent", json!({"agent_id": "big", "message": "é"}));
    assert_eq!(code, "too_large", "{text}");
    assert!(text.contains("max_message_bytes"), "{text}");
    assert_eq!(lab.invoke("big", json!("a")).as_str().map(str::len), Some(3000));
}
