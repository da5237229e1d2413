//! `receive_agent` and the ledger: whose secret counts, and what becomes of a transfer (TRANSFER.md,
//! "At the destination").

#[path = "support/lines.rs"]
mod lines;
#[path = "support/mod.rs"]
mod support;
use agentcontainer::node::Keys;
use agentcontainer::wire::{ReceivedAnswer, RequestOptions};
use lines::{code, is_signed, member, operator, send, signed, stamped, word};
use serde_json::{json, Value};
use support::lab::{keys, until, Lab, ADMIN};

/// An agent that writes down each activation below the node's data, so that a second one shows.
fn traveller(id: &str, secret: &str) -> String {
    format!(
        "AGENT_ID = \"{id}\"\nAGENT_SECRET = \"{secret}\"\n\nclass Agent:\n    \
         def on_activate(self, ctx, payload):\n        \
             self.runs = getattr(self, 'runs', 0) + 1\n        \
             return {{'runs': self.runs, 'got': payload, 'trace': ctx.trace}}\n    \
         def on_message(self, ctx, message):\n        return getattr(self, 'runs', 0)\n"
    )
}

fn arrival(source: &str, transfer: &str) -> Value {
    json!({"source_code": source, "transfer_id": transfer, "mode": "move"})
}

/// Sends as an agent; the answer must be genuine under `secret`.
#[track_caller]
fn genuine(lab: &Lab, kind: &str, sender: &str, secret: &str, payload: &Value) -> ReceivedAnswer {
    let request = signed(kind, sender, secret, &payload.to_string(), RequestOptions::default());
    let answer = send(lab, &request.line);
    assert!(is_signed(&answer, secret, &request), "{kind} of {sender} is not signed: {}", answer.line());
    answer
}

fn result(answer: &ReceivedAnswer) -> Value {
    serde_json::from_str(answer.result().unwrap_or_else(|| panic!("{}", answer.line()))).unwrap()
}

#[test]
fn a_stranger_with_the_secret_of_its_own_source_comes_in_and_is_pinned() {
    let lab = Lab::start("strangers");
    let source = traveller("nina", "n-secret");
    let answer = genuine(&lab, "receive_agent", "nina", "n-secret", &arrival(&source, "t-1"));
    assert_eq!(word(&answer), "done");
    let told = result(&answer);
    assert_eq!((&told["agent_id"], &told["status"]), (&json!("nina"), &json!("active")));
    assert_eq!(told["activate_result"], json!({"runs": 1, "got": {}, "trace": []}), "absent: {{}}");
    // From now on it may ask, with that secret and no other.
    assert!(genuine(&lab, "describe_container", "nina", "n-secret", &json!({})).is_ok());
    assert_eq!(code(&lab.ask_as("nina", "other", "describe_container", "{}")), "bad_signature");
    // Also when it is gone.
    lab.ok("remove_agent", json!({"agent_id": "nina"}));
    assert!(genuine(&lab, "network_tree", "nina", "n-secret", &json!({})).is_ok());
    // Another one of that name brings its own secret: a signed refusal, and final.
    for _ in 0..2 {
        let other = traveller("nina", "impostor");
        let answer = genuine(&lab, "receive_agent", "nina", "impostor", &arrival(&other, "t-2"));
        assert_eq!((code(&answer), word(&answer)), ("bad_signature".into(), "refused".into()));
    }
    assert!(!lab.has("nina"));
    // The one who is known still comes, by the same transfer id even.
    let answer = genuine(&lab, "receive_agent", "nina", "n-secret", &arrival(&source, "t-2"));
    assert_eq!(word(&answer), "done", "{}", answer.line());
}

#[test]
fn a_namesake_learns_nothing_and_spoils_nothing() {
    let lab = Lab::with(Keys { replay_entries_agent: 5, ..keys("namesakes") });
    let source = traveller("anna", "a-secret");
    let theirs = traveller("anna", "impostor");
    genuine(&lab, "receive_agent", "anna", "a-secret", &arrival(&source, "t-1"));
    // The stored answer of a transfer is for who made it.
    let answer = genuine(&lab, "receive_agent", "anna", "impostor", &arrival(&theirs, "t-1"));
    assert_eq!(code(&answer), "bad_signature");
    assert!(!answer.line().contains("runs"), "{}", answer.line());
    for transfer in ["t-1", "t-2"] {
        let payload = json!({"transfer_id": transfer, "source_code": theirs});
        for kind in ["transfer_cancel", "transfer_forget"] {
            let answer = genuine(&lab, kind, "anna", "impostor", &payload);
            assert_eq!(code(&answer), "bad_signature", "{kind}: {}", answer.line());
        }
        // Not an error: its source may have lost the refusal, sends again, and gets it.
        let answer = genuine(&lab, "transfer_status", "anna", "impostor", &payload);
        assert_eq!(result(&answer), json!({"transfer_id": transfer, "transfer": "unknown"}));
    }
    // However many they send, with whatever stamps, the real one's memory of replays stays its own.
    for n in 0..20 {
        let payload = arrival(&theirs, &format!("x-{n}")).to_string();
        for offset in [250, 1_000_000] {
            let answer = send(&lab, &stamped("receive_agent", "anna", "impostor", &payload, offset).line);
            assert_ne!(word(&answer), "done", "{}", answer.line());
        }
    }
    let answer = genuine(&lab, "receive_agent", "anna", "a-secret", &arrival(&source, "t-2"));
    assert_eq!(word(&answer), "done", "{}", answer.line());
    assert_eq!(lab.ok("describe_container", json!({}))["counters"]["ledger_entries"], 2);
}

#[test]
fn an_agent_brings_no_source_but_its_own() {
    let lab = Lab::start("sources");
    lab.deploy(&traveller("one", "secret-1"));
    let two = traveller("two", "secret-2");
    genuine(&lab, "receive_agent", "two", "secret-2", &arrival(&two, "t-1"));
    // Known here: signed. It does not get the other's stored answer either.
    for transfer in ["t-1", "t-2"] {
        let answer = genuine(&lab, "receive_agent", "one", "secret-1", &arrival(&two, transfer));
        assert_eq!((code(&answer), word(&answer)), ("forbidden".into(), "refused".into()));
        assert!(answer.error().unwrap().contains("two"), "{}", answer.line());
    }
    // Not known: whose secret should check it?
    let answer = lab.ask_as("three", "secret-2", "receive_agent", &arrival(&two, "t-3").to_string());
    assert_eq!(code(&answer), "forbidden");
    assert!(answer.field("signature").is_none());
    // The refusal of one's transfer is no refusal of the other's by the same id.
    let answer = genuine(&lab, "receive_agent", "two", "secret-2", &arrival(&two, "t-2"));
    assert_eq!(word(&answer), "done", "{}", answer.line());
}

#[test]
fn the_admin_sends_any_agent_and_names_that_are_taken_are_refused() {
    let dir = support::TempDir::new("taken");
    let mut keys = keys("admins");
    operator(&mut keys, &dir, "olga", &["receive_agent"]);
    operator(&mut keys, &dir, "otto", &[]);
    let lab = Lab::with(keys);
    let source = traveller("anna", "a-secret");
    let mut payload = arrival(&source, "t-1");
    payload["trace"] = json!(["root", {"node": "b", "host": "h", "port": 1, "time": 2, "more": true}]);
    payload["activate_payload"] = json!(null);
    payload["some_day"] = json!({"unknown": "fields are passed over"});
    // One who may not leaves no mark.
    let answer = genuine(&lab, "receive_agent", "otto", "secret of otto", &payload);
    assert_eq!((code(&answer), word(&answer)), ("forbidden".into(), "refused".into()));
    let answer = genuine(&lab, "receive_agent", "admin", ADMIN, &payload);
    assert_eq!(word(&answer), "done", "{}", answer.line());
    let told = result(&answer);
    assert_eq!(told["activate_result"]["got"], json!(null), "a null that is there is handed over");
    assert_eq!(
        told["activate_result"]["trace"][0],
        json!({"node": "root"}),
        "a bare string is a node's name"
    );
    assert_eq!(told["activate_result"]["trace"][1]["more"], json!(true));
    let other = traveller("berta", "b-secret");
    assert_eq!(
        word(&genuine(&lab, "receive_agent", "olga", "secret of olga", &arrival(&other, "t-2"))),
        "done"
    );
    // Pinned, so that the agent can speak for itself from now on.
    let payload = json!({"transfer_id": "t-1"});
    let answer = genuine(&lab, "transfer_status", "anna", "a-secret", &payload);
    assert_eq!(word(&answer), "done");
    for name in ["admin", "olga"] {
        let answer = genuine(&lab, "receive_agent", "admin", ADMIN, &arrival(&traveller(name, "x"), "t-3"));
        assert_eq!((code(&answer), word(&answer)), ("bad_payload".into(), "refused".into()), "{name}");
    }
}

#[test]
fn the_same_transfer_again_gets_the_stored_answer_and_runs_nothing() {
    let lab = Lab::start("again");
    let source = traveller("anna", "a-secret");
    let payload = arrival(&source, "t-1");
    let request =
        signed("receive_agent", "anna", "a-secret", &payload.to_string(), RequestOptions::default());
    let first = send(&lab, &request.line);
    assert_eq!(word(&first), "done");
    // The same bytes (the replay check does not apply), and signed anew.
    let second = send(&lab, &request.line);
    assert!(is_signed(&second, "a-secret", &request));
    let third = genuine(&lab, "receive_agent", "anna", "a-secret", &payload);
    for again in [&second, &third] {
        assert_eq!(again.result(), first.result());
        assert_eq!(word(again), "done");
    }
    assert_eq!(lab.invoke("anna", json!({})), json!(1), "activated once");
    let list = lab.ok("list_agents", json!({}));
    assert_eq!(list[0]["sequence"], 1, "{list}");
    // Without a transfer id it is a plain arrival: each one arrives.
    let payload = json!({"source_code": source});
    for sequence in 2..4 {
        let answer = genuine(&lab, "receive_agent", "anna", "a-secret", &payload);
        assert_eq!(result(&answer)["sequence"], sequence, "{}", answer.line());
        assert_eq!(word(&answer), "");
    }
    // Its replay is one, and the promise is kept that these bytes never act.
    let request =
        signed("receive_agent", "anna", "a-secret", &payload.to_string(), RequestOptions::default());
    assert!(send(&lab, &request.line).is_ok());
    let answer = send(&lab, &request.line);
    assert_eq!((code(&answer), word(&answer)), ("replayed".into(), "untouched".into()));
    assert!(is_signed(&answer, "a-secret", &request));
}

#[test]
fn of_one_transfer_sent_many_times_at_once_every_copy_gets_the_one_answer() {
    let lab = Lab::start("copies");
    let source = traveller("anna", "a-secret")
        .replace("self.runs = getattr", "import time; time.sleep(0.5); self.runs = getattr");
    let payload = arrival(&source, "t-1").to_string();
    let same = signed("receive_agent", "anna", "a-secret", &payload, RequestOptions::default());
    let one = |n: usize| {
        let own = signed("receive_agent", "anna", "a-secret", &payload, RequestOptions::default());
        send(&lab, if n.is_multiple_of(2) { &same.line } else { &own.line })
    };
    let one = &one;
    let answers: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..12).map(|n| scope.spawn(move || one(n))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for answer in &answers {
        assert_eq!(word(answer), "done", "{}", answer.line());
        assert_eq!(answer.result(), answers[0].result());
    }
    assert_eq!(lab.invoke("anna", json!({})), json!(1), "activated once");
}

#[test]
fn a_refusal_is_final_and_a_passing_one_is_not() {
    let lab = Lab::with(Keys { max_agents: 1, max_trace: 3, ..keys("final") });
    lab.deploy(&traveller("here", "h-secret"));
    let source = traveller("anna", "a-secret");
    let status = |transfer: &str| {
        let answer = genuine(&lab, "transfer_status", "anna", "a-secret", &json!({"transfer_id": transfer}));
        assert_eq!(member(&answer, "transfer"), result(&answer)["transfer"]);
        result(&answer)
    };
    // No room: refused for good, though room comes later.
    let answer = genuine(&lab, "receive_agent", "anna", "a-secret", &arrival(&source, "t-room"));
    assert_eq!((code(&answer), word(&answer)), ("rejected".into(), "refused".into()), "{}", answer.line());
    assert_eq!(status("t-room")["answer"]["code"], "rejected");
    lab.ok("remove_agent", json!({"agent_id": "here"}));
    let again = genuine(&lab, "receive_agent", "anna", "a-secret", &arrival(&source, "t-room"));
    assert_eq!((code(&again), again.error()), (code(&answer), answer.error()));
    assert!(!lab.has("anna"));
    // What does not load, a trace that is too long, payloads that do not fit.
    let breaks = format!("{source}\nraise ValueError('no')\n");
    let answer = genuine(&lab, "receive_agent", "anna", "a-secret", &arrival(&breaks, "t-load"));
    assert_eq!((code(&answer), word(&answer)), ("agent_error".into(), "refused".into()));
    assert!(member(&answer, "agent_error").to_string().contains("ValueError"), "{}", answer.line());
    for (transfer, field, value) in [
        ("t-trace", "trace", json!(["a", "b", "c", "d"])),
        ("t-type", "trace", json!("a")),
        ("t-time", "timeout", json!(-1)),
        ("t-mode", "mode", json!("teleport")),
        ("t-file", "state", json!({"files": [{"path": "../x", "content_base64": ""}]})),
    ] {
        let mut payload = arrival(&source, transfer);
        payload[field] = value;
        let answer = genuine(&lab, "receive_agent", "anna", "a-secret", &payload);
        assert_eq!(word(&answer), "refused", "{transfer}: {}", answer.line());
        // The same transfer in order: still refused, with the same words.
        let again = genuine(&lab, "receive_agent", "anna", "a-secret", &arrival(&source, transfer));
        assert_eq!((word(&again), again.error()), ("refused".into(), answer.error()), "{transfer}");
    }
    assert!(!lab.has("anna"));
    // A stale one is untouched: these bytes never act, another attempt may.
    for offset in [-9999, 9999] {
        let payload = arrival(&source, "t-stale").to_string();
        let request = stamped("receive_agent", "anna", "a-secret", &payload, offset);
        let answer = send(&lab, &request.line);
        assert_eq!((code(&answer), word(&answer)), ("stale_timestamp".into(), "untouched".into()));
        assert!(is_signed(&answer, "a-secret", &request) && answer.field("node_time").is_some());
    }
    let answer = genuine(&lab, "receive_agent", "anna", "a-secret", &arrival(&source, "t-stale"));
    assert_eq!(word(&answer), "done", "{}", answer.line());
}

#[test]
fn null_for_a_field_that_may_be_absent_counts_as_absent() {
    let lab = Lab::start("nulls");
    let payload = json!({
        "source_code": traveller("anna", "a-secret"), "transfer_id": null, "mode": null, "trace": null,
        "state": null, "agent_metadata": null, "timeout": null,
    });
    assert!(genuine(&lab, "receive_agent", "anna", "a-secret", &payload).is_ok());
    let payload = json!({
        "source_code": traveller("anna", "a-secret"), "state": {"memory": null, "files": null},
    });
    assert!(genuine(&lab, "receive_agent", "anna", "a-secret", &payload).is_ok());
}

#[test]
fn a_busy_node_touches_nothing_and_the_attempt_does_not_act_later() {
    let lab = Lab::with(Keys { max_live_agents: 1, ..keys("busy") });
    let sleeper = "AGENT_ID = \"sleeper\"\nAGENT_SECRET = \"s\"\n\nclass Agent:\n    def on_message(self, ctx, message):\n        import time\n        time.sleep(1)\n";
    lab.deploy(sleeper);
    let source = traveller("anna", "a-secret");
    let payload = arrival(&source, "t-1").to_string();
    let request = signed("receive_agent", "anna", "a-secret", &payload, RequestOptions::default());
    std::thread::scope(|scope| {
        scope.spawn(|| lab.invoke("sleeper", json!({})));
        until(5, "the hook runs", || lab.running.node.agent("sleeper").unwrap().life.is_running());
        let answer = send(&lab, &request.line);
        assert_eq!((code(&answer), word(&answer)), ("busy".into(), "untouched".into()), "{}", answer.line());
        assert!(is_signed(&answer, "a-secret", &request));
    });
    let answer = send(&lab, &request.line);
    assert_eq!((code(&answer), word(&answer)), ("replayed".into(), "untouched".into()), "{}", answer.line());
    assert!(!lab.has("anna"));
    let answer = genuine(&lab, "receive_agent", "anna", "a-secret", &arrival(&source, "t-1"));
    assert_eq!(word(&answer), "done", "{}", answer.line());
}

#[test]
fn a_secret_is_rotated_by_the_registered_one_and_the_old_one_still_closes_its_transfer() {
    let lab = Lab::start("rotates");
    let old = traveller("anna", "old secret");
    let new = traveller("anna", "new secret");
    genuine(&lab, "receive_agent", "anna", "old secret", &arrival(&old, "t-1"));
    let moved = genuine(&lab, "receive_agent", "anna", "old secret", &arrival(&new, "t-2"));
    assert_eq!(word(&moved), "done", "{}", moved.line());
    // The new one counts, the old one is nobody's.
    assert!(genuine(&lab, "describe_container", "anna", "new secret", &json!({})).is_ok());
    assert_eq!(code(&lab.ask_as("anna", "old secret", "describe_container", "{}")), "bad_signature");
    assert_eq!(
        code(&lab.ask_as("anna", "old secret", "receive_agent", &arrival(&new, "t-3").to_string())),
        "bad_signature"
    );
    let answer = genuine(&lab, "receive_agent", "anna", "old secret", &arrival(&old, "t-3"));
    assert_eq!((code(&answer), word(&answer)), ("bad_signature".into(), "refused".into()));
    // But its source may have lost the answer: a repeat of that transfer, and questions about it, are
    // answered under the secret they were made with.
    let again = genuine(&lab, "receive_agent", "anna", "old secret", &arrival(&new, "t-2"));
    assert_eq!((again.result(), word(&again)), (moved.result(), "done".into()));
    let asked = genuine(&lab, "transfer_status", "anna", "old secret", &json!({"transfer_id": "t-2"}));
    assert_eq!(word(&asked), "done");
    let forgot = genuine(&lab, "transfer_forget", "anna", "old secret", &json!({"transfer_id": "t-2"}));
    assert_eq!(result(&forgot)["forgotten"], true);
    // Forgotten, it opens nothing any more.
    assert_eq!(
        code(&lab.ask_as("anna", "old secret", "receive_agent", &arrival(&new, "t-2").to_string())),
        "bad_signature"
    );
    assert_eq!(lab.invoke("anna", json!({})), json!(1));
}

#[test]
fn a_cancelled_transfer_never_arrives() {
    let lab = Lab::start("cancels");
    let source = traveller("anna", "a-secret");
    genuine(&lab, "receive_agent", "anna", "a-secret", &arrival(&source, "t-0"));
    lab.ok("remove_agent", json!({"agent_id": "anna"}));
    let ask = |kind: &str, transfer: &str| {
        let answer = genuine(&lab, kind, "anna", "a-secret", &json!({"transfer_id": transfer}));
        assert!(answer.is_ok(), "{kind}: {}", answer.line());
        answer
    };
    assert_eq!(word(&ask("transfer_status", "t-1")), "unknown");
    assert_eq!(word(&ask("transfer_cancel", "t-1")), "refused");
    assert_eq!(word(&ask("transfer_cancel", "t-1")), "refused");
    assert_eq!(word(&ask("transfer_status", "t-1")), "refused");
    let late = genuine(&lab, "receive_agent", "anna", "a-secret", &arrival(&source, "t-1"));
    assert_eq!((code(&late), word(&late)), ("rejected".into(), "refused".into()));
    assert!(late.error().unwrap().contains("cancelled") && !lab.has("anna"));
    // What is done stays done.
    assert_eq!(word(&ask("transfer_cancel", "t-0")), "done");
    let status = ask("transfer_status", "t-0");
    assert_eq!(result(&status)["answer"]["activate_result"]["runs"], 1, "{}", status.line());
    // Forgetting: what is over goes, nothing else is there to forget.
    for (transfer, forgotten) in [("t-0", true), ("t-0", false), ("t-1", true), ("never", false)] {
        assert_eq!(result(&ask("transfer_forget", transfer))["forgotten"], forgotten, "{transfer}");
    }
    assert_eq!(word(&ask("transfer_status", "t-0")), "unknown");
    assert_eq!(lab.ok("describe_container", json!({}))["counters"]["ledger_entries"], 0);
    // The admin asks for any agent.
    let payload = json!({"transfer_id": "t-9", "agent_id": "anna"});
    assert_eq!(lab.ok("transfer_cancel", payload.clone())["transfer"], "refused");
    assert_eq!(lab.ok("transfer_status", payload)["transfer"], "refused");
    let late = genuine(&lab, "receive_agent", "anna", "a-secret", &arrival(&source, "t-9"));
    assert_eq!(word(&late), "refused", "{}", late.line());
}

/// Before it was ever here nobody knows its secret: its source tells, as it does for an arrival.
#[test]
fn a_stranger_can_ask_about_its_transfer_and_call_it_off() {
    let lab = Lab::start("asks");
    let source = traveller("anna", "a-secret");
    let plain = json!({"transfer_id": "t-1"});
    let proven = json!({"transfer_id": "t-1", "source_code": source});
    assert_eq!(
        code(&lab.ask_as("anna", "a-secret", "transfer_status", &plain.to_string())),
        "unknown_sender"
    );
    assert_eq!(word(&genuine(&lab, "transfer_status", "anna", "a-secret", &proven)), "unknown");
    assert_eq!(word(&genuine(&lab, "transfer_cancel", "anna", "a-secret", &proven)), "refused");
    // Now the ledger has its secret.
    assert_eq!(word(&genuine(&lab, "transfer_status", "anna", "a-secret", &plain)), "refused");
    assert_eq!(word(&genuine(&lab, "transfer_status", "anna", "a-secret", &proven)), "refused");
    let late = genuine(&lab, "receive_agent", "anna", "a-secret", &arrival(&source, "t-1"));
    assert_eq!(word(&late), "refused", "{}", late.line());
    // That makes it known for nothing else, and its source must be its own.
    assert_eq!(code(&lab.ask_as("anna", "a-secret", "network_tree", &proven.to_string())), "unknown_sender");
    let others = json!({"transfer_id": "t-1", "source_code": source});
    assert!(!lab.ask_as("eve", "a-secret", "transfer_cancel", &others.to_string()).is_ok());
}

/// The destination dies before it has read the transfer and comes back knowing nothing: the source
/// must be able to ask, or its agent would be departing for ever.
#[test]
fn a_move_to_a_node_that_restarts_and_never_knew_the_agent_is_decided() {
    let lab = Lab::start("leaves");
    lab.deploy(&traveller("anna", "a-secret"));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::scope(|scope| {
        let order = json!({"agent_id": "anna", "destination": format!("127.0.0.1:{port}"), "mode": "move"});
        let moving = scope.spawn(|| lab.ok("dispatch_agent", order));
        let (peer, _) = listener.accept().unwrap();
        drop((peer, listener));
        let there = Lab::with(Keys { listen_port: port, ..keys("returns") });
        let answer = moving.join().unwrap();
        assert_eq!(answer["transfer"], "done", "{answer}");
        assert!(there.has("anna") && !lab.has("anna"));
    });
}

#[test]
fn a_transfer_can_be_cancelled_while_it_loads_and_not_once_it_is_accepted() {
    let lab = Lab::start("loading");
    let dir = support::TempDir::new("gates");
    let gate = dir.path().join("open");
    let waits = format!(
        "import os, time\ndef gate():\n    end = time.time() + 15\n    while not os.path.exists({gate:?}) and time.time() < end:\n        time.sleep(0.01)\n"
    );
    genuine(
        &lab,
        "receive_agent",
        "anna",
        "a-secret",
        &json!({"source_code": traveller("anna", "a-secret")}),
    );
    lab.ok("remove_agent", json!({"agent_id": "anna"}));
    let status = |transfer: &str| {
        word(&genuine(&lab, "transfer_status", "anna", "a-secret", &json!({"transfer_id": transfer})))
    };
    let cancel = |transfer: &str| {
        word(&genuine(&lab, "transfer_cancel", "anna", "a-secret", &json!({"transfer_id": transfer})))
    };
    // In loading: at the top of the source.
    let loads = format!("{}{waits}gate()\n", traveller("anna", "a-secret"));
    std::thread::scope(|scope| {
        let arriving =
            scope.spawn(|| genuine(&lab, "receive_agent", "anna", "a-secret", &arrival(&loads, "t-load")));
        until(5, "it loads", || lab.ok("describe_container", json!({}))["counters"]["ledger_entries"] == 1);
        assert_eq!(status("t-load"), "unknown", "nothing is promised yet");
        assert_eq!(cancel("t-load"), "refused");
        std::fs::write(&gate, "").unwrap();
        let answer = arriving.join().unwrap();
        assert_eq!(word(&answer), "refused", "{}", answer.line());
    });
    assert!(!lab.has("anna"));
    std::fs::remove_file(&gate).unwrap();
    // In activation: accepted. A repeat waits for it; one with a short timeout is told nothing that decides.
    let acts = format!(
        "{waits}{}",
        traveller("anna", "a-secret").replace("self.runs = getattr", "gate(); self.runs = getattr")
    );
    std::thread::scope(|scope| {
        let arriving =
            scope.spawn(|| genuine(&lab, "receive_agent", "anna", "a-secret", &arrival(&acts, "t-act")));
        until(5, "it acts", || status("t-act") == "accepted");
        assert_eq!(cancel("t-act"), "accepted");
        let forgot = genuine(&lab, "transfer_forget", "anna", "a-secret", &json!({"transfer_id": "t-act"}));
        assert_eq!(result(&forgot)["forgotten"], false);
        let mut short = arrival(&acts, "t-act");
        short["timeout"] = json!(0.05);
        let early = genuine(&lab, "receive_agent", "anna", "a-secret", &short);
        assert_eq!((code(&early), word(&early)), ("timeout".into(), String::new()), "{}", early.line());
        let repeat =
            scope.spawn(|| genuine(&lab, "receive_agent", "anna", "a-secret", &arrival(&acts, "t-act")));
        std::fs::write(&gate, "").unwrap();
        let (first, second) = (arriving.join().unwrap(), repeat.join().unwrap());
        assert_eq!((word(&first), word(&second)), ("done".into(), "done".into()), "{}", first.line());
        assert_eq!(first.result(), second.result());
    });
    assert_eq!(lab.invoke("anna", json!({})), json!(1));
}

#[test]
fn what_goes_wrong_in_the_activation_is_no_refusal() {
    let lab = Lab::with(Keys { max_message_bytes: 64 << 10, ..keys("failing") });
    let acts = |id: &str, body: &str| {
        format!("AGENT_ID = \"{id}\"\nAGENT_SECRET = \"x\"\n\nclass Agent:\n    def on_activate(self, ctx, payload):\n        {body}\n")
    };
    for (id, body, said) in [
        ("raises", "raise KeyError('lost')", "KeyError"),
        ("dies", "import os; os._exit(3)", "3"),
        ("odd", "return {1, 2}", "set"),
        ("loud", "raise ValueError('é' * 100000)", "ValueError"),
    ] {
        let answer = genuine(&lab, "receive_agent", id, "x", &arrival(&acts(id, body), "t"));
        assert_eq!(word(&answer), "done", "{}", answer.line());
        let told = result(&answer);
        assert_eq!(told["status"], "failed", "{told}");
        assert_eq!(told["activate_error"]["code"], "agent_error", "{told}");
        assert!(told["activate_error"].to_string().contains(said), "{told}");
        assert!(lab.has(id));
    }
    // Results that no line can take become null, with a word; counted as the ASCII that is signed, or
    // the answer and every later status would be too large and the source would never know.
    for (id, body) in [
        ("long", "return 'a' * 100000"),
        ("wide", "return 'é' * 14000"),
        ("deep", "x = []\n        for n in range(70):\n            x = [x]\n        return x"),
    ] {
        let answer = genuine(&lab, "receive_agent", id, "x", &arrival(&acts(id, body), "t"));
        assert_eq!(word(&answer), "done", "{id}: {}", answer.line());
        assert_eq!(result(&answer)["activate_result"], json!(null));
        assert!(result(&answer)["result_error"].is_string(), "{id}: {}", answer.line());
        let asked = genuine(&lab, "transfer_status", id, "x", &json!({"transfer_id": "t"}));
        assert_eq!(word(&asked), "done", "{id}: {}", asked.line());
    }
}
