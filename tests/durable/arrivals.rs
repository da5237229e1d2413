//! The destination's rules of a transfer, across restarts.

use super::node::{secret_of, Node};
use crate::lines::{code, is_signed, member, signed, stamped, word};
use crate::support::lab::{agent, keys, until, Lab};
use agentcontainer::node::Keys;
use agentcontainer::wire::{unix_now, ReceivedAnswer, RequestOptions, SignedRequest};
use serde_json::{json, Value};
use std::time::Duration;

/// Counts its activations and resumptions in its memory and in a file.
const COUNTS: &str = "def __init__(self):\n    self.activated = 0\n    self.resumed = []\ndef on_activate(self, ctx, p):\n    self.activated += 1\n    open(ctx.state_dir() + '/activated', 'a').write('x')\n    if p.get('sleep'):\n        __import__('time').sleep(p['sleep'])\n    return self.activated\ndef on_resume(self, ctx, p):\n    self.resumed.append(p)\ndef on_message(self, ctx, m):\n    started = open(ctx.state_dir() + '/activated', 'a+')\n    started.seek(0)\n    started = started.read()\n    return [self.activated, self.resumed, len(started)]";

/// An attempt of a transfer, signed by the agent.
fn attempt(id: &str, transfer: &str, activate: Value) -> SignedRequest {
    attempt_of(&agent(id, COUNTS), id, transfer, activate)
}

fn attempt_of(source: &str, id: &str, transfer: &str, activate: Value) -> SignedRequest {
    let payload =
        json!({"source_code": source, "mode": "move", "activate_payload": activate, "transfer_id": transfer});
    by_agent("receive_agent", id, payload)
}

fn by_agent(kind: &str, id: &str, payload: Value) -> SignedRequest {
    signed(kind, id, secret_of(id).expose(), &payload.to_string(), RequestOptions::default())
}

/// Asks about a transfer as its agent, with two lines of manifest.
fn question(kind: &str, id: &str, transfer: &str) -> SignedRequest {
    let source = agent(id, "pass");
    by_agent(kind, id, json!({"transfer_id": transfer, "source_code": source}))
}

/// The answer to an agent's message, which must be signed with its secret.
#[track_caller]
fn genuine(node: &Node, request: &SignedRequest, id: &str) -> ReceivedAnswer {
    let answer = node.line(&request.line);
    assert!(is_signed(&answer, secret_of(id).expose(), request), "{}", answer.line());
    answer
}

#[track_caller]
fn standing(node: &Node, id: &str, transfer: &str) -> Value {
    let answer = genuine(node, &question("transfer_status", id, transfer), id);
    let result: Value = serde_json::from_str(answer.result().unwrap()).unwrap();
    assert_eq!(result["transfer"], word(&answer));
    result
}

/// How many entries the ledger has on disk.
fn entries(node: &Node) -> usize {
    std::fs::read_dir(node.state("ledger")).unwrap().count()
}

#[test]
fn accepted_once_a_second_try_gets_the_same_answer_also_where_it_would_be_refused_now() {
    let mut node = Node::new("d", &[]).with("max_agents", json!(1));
    node.start();
    let first = genuine(&node, &attempt("visitor", "t-1", json!({})), "visitor");
    assert_eq!(word(&first), "done");
    for restart in [false, true] {
        if node.has("visitor") {
            node.ok("remove_agent", json!({"agent_id": "visitor"}));
            node.deploy(&agent("resident", "pass"));
        }
        if restart {
            node.crash_and_restart();
        }
        // Another transfer finds no room; this one is known.
        let other = genuine(&node, &attempt("visitor", "t-2", json!({})), "visitor");
        assert_eq!((word(&other).as_str(), code(&other).as_str()), ("refused", "rejected"));
        let again = genuine(&node, &attempt("visitor", "t-1", json!({})), "visitor");
        assert_eq!((word(&again).as_str(), again.result()), ("done", first.result()), "{}", again.line());
        assert!(!node.has("visitor"));
    }
}

#[test]
fn refused_for_good_also_when_the_first_try_comes_late() {
    let mut node = Node::new("d", &[]).with("max_agents", json!(1));
    node.start();
    node.deploy(&agent("resident", "pass"));
    let (first, second) = (attempt("late", "t-1", json!({})), attempt("late", "t-1", json!({})));
    let refused = genuine(&node, &second, "late");
    assert_eq!((word(&refused).as_str(), code(&refused).as_str()), ("refused", "rejected"));
    node.ok("remove_agent", json!({"agent_id": "resident"}));
    for restart in [false, true] {
        if restart {
            node.crash_and_restart();
        }
        let late = genuine(&node, &first, "late");
        assert_eq!((word(&late).as_str(), code(&late).as_str()), ("refused", "rejected"));
        assert_eq!(late.error(), refused.error());
        assert!(!node.has("late"));
    }
    assert_eq!(word(&genuine(&node, &attempt("late", "t-2", json!({})), "late")), "done");
}

#[test]
fn what_does_not_load_is_refused_for_good_and_leaves_nothing_on_disk() {
    let mut node = Node::alone("d");
    let broken = "AGENT_ID = \"broken\"\nAGENT_SECRET = \"secret of broken\"\nclass Agent:\n    def __init__(self):\n        raise ValueError('not here')\n";
    let answer = genuine(&node, &attempt_of(broken, "broken", "t-1", json!({})), "broken");
    assert_eq!((word(&answer).as_str(), code(&answer).as_str()), ("refused", "agent_error"));
    assert!(!node.state("agents/broken").exists());
    node.crash_and_restart();
    assert_eq!(standing(&node, "broken", "t-1")["transfer"], "refused");
    // The same transfer with a source that would load.
    let answer = genuine(&node, &attempt("broken", "t-1", json!({})), "broken");
    assert_eq!(word(&answer), "refused");
}

#[test]
fn killed_in_on_activate_it_is_there_once_and_resumes_with_the_payload() {
    let mut node = Node::alone("d");
    let request = attempt("torn", "t-1", json!({"sleep": 30, "n": 1.0}));
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| node.try_line(&request.line).is_none());
        let begun = node.state("agents/torn/state/activated");
        until(10, "its activation runs", || std::fs::read(&begun).is_ok_and(|text| text == b"x"));
        assert_eq!(standing(&node, "torn", "t-1")["transfer"], "accepted");
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(i32::try_from(node.pid()).unwrap()).unwrap(),
            rustix::process::Signal::KILL,
        )
        .unwrap();
        assert!(caller.join().unwrap(), "no answer left");
    });
    // Killed again before it could resume: its source is slow to load, say.
    node.kill();
    let harness =
        std::fs::read_dir(node.state("agents/torn/harness")).unwrap().next().unwrap().unwrap().path();
    node.start_with(&[("AGENTCONTAINER_CRASH_AT", "resume-noted")]);
    node.wait_for_crash();
    assert!(harness.join("resume.json").exists());
    node.start();
    let told = standing(&node, "torn", "t-1");
    assert_eq!(
        (told["transfer"].as_str(), told["answer"]["activate_error"]["code"].as_str()),
        (Some("done"), Some("interrupted")),
        "{told}"
    );
    // Started once, not ended, and resumed before the first message.
    assert_eq!(node.invoke("torn", json!({})), json!([0, [{"sleep": 30, "n": 1.0}], 1]));
    let again = genuine(&node, &request, "torn");
    assert_eq!((word(&again).as_str(), node.agent("torn").unwrap()["sequence"].as_u64()), ("done", Some(1)));
    // Once is once.
    assert!(!harness.join("resume.json").exists());
    node.crash_and_restart();
    assert_eq!(node.invoke("torn", json!({}))[1].as_array().unwrap().len(), 1);
}

#[test]
fn an_interrupted_agent_that_is_on_its_way_resumes_if_it_turns_out_to_stay() {
    let mut node = Node::new("d", &[("nowhere", super::node::free_port())]);
    node.start();
    let body = COUNTS
        .replace("self.activated += 1\n", "self.activated += 1\n    ctx.move('nowhere', {}, queue=True)\n");
    let request = attempt_of(&agent("torn", &body), "torn", "t-1", json!({"sleep": 30}));
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| node.try_line(&request.line));
        let begun = node.state("agents/torn/state/activated");
        until(10, "its activation runs", || std::fs::read(&begun).is_ok_and(|text| text == b"x"));
        let pid = rustix::process::Pid::from_raw(i32::try_from(node.pid()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        assert!(caller.join().unwrap().is_none());
    });
    node.crash_and_restart();
    assert_eq!(node.agent("torn").unwrap()["status"], "departing");
    let id = node.outbox()[0]["transfer_id"].clone();
    until(10, "no attempt runs", || node.ask("cancel_outbox", json!({"transfer_id": id})).is_ok());
    until(10, "it resumed", || node.invoke("torn", json!({})) == json!([1, [{"sleep": 30}], 1]));
}

#[test]
fn an_arrival_that_was_not_committed_is_none_and_its_transfer_is_taken_when_it_comes_again() {
    let mut node = Node::new("d", &[]);
    node.start_to_crash("arrival-prepared");
    assert!(node.try_line(&attempt("early", "t-1", json!({})).line).is_none());
    node.wait_for_crash();
    assert!(node.state("agents/early").exists());
    node.start();
    assert!(!node.has("early") && !node.state("agents/early").exists(), "nothing of it is left");
    assert_eq!(standing(&node, "early", "t-1")["transfer"], "unknown");
    assert_eq!(word(&genuine(&node, &attempt("early", "t-1", json!({})), "early")), "done");
    assert_eq!(node.invoke("early", json!({})), json!([1, [], 1]));
}

#[test]
fn a_committed_arrival_is_there_wherever_the_node_was_killed() {
    for place in ["arrival-committed", "activated", "done-recorded"] {
        let mut node = Node::new("d", &[]);
        node.start_to_crash(place);
        assert!(node.try_line(&attempt("kept", "t-1", json!({})).line).is_none(), "{place}");
        node.wait_for_crash();
        node.start();
        let told = standing(&node, "kept", "t-1");
        assert_eq!(told["transfer"], "done", "{place}");
        // As far as the ledger knows, its activation was interrupted.
        let ran = usize::from(place != "arrival-committed");
        let resumed = usize::from(place != "done-recorded");
        let told = node.invoke("kept", json!({}));
        assert_eq!((&told[0], told[1].as_array().unwrap().len()), (&json!(ran), resumed), "{place}");
        assert_eq!(word(&genuine(&node, &attempt("kept", "t-1", json!({})), "kept")), "done", "{place}");
        assert_eq!(node.agent("kept").unwrap()["sequence"], 1, "{place}");
    }
}

#[test]
fn a_cancelled_transfer_never_comes_and_an_accepted_one_is_not_cancelled() {
    let mut node = Node::alone("d");
    // Cancelled while the request is in flight: the destination never heard of it.
    let in_flight = attempt("flyer", "t-1", json!({}));
    let answer = genuine(&node, &question("transfer_cancel", "flyer", "t-1"), "flyer");
    assert_eq!(word(&answer), "refused");
    for restart in [false, true] {
        if restart {
            node.crash_and_restart();
        }
        assert_eq!(word(&genuine(&node, &in_flight, "flyer")), "refused");
        assert!(!node.has("flyer"));
    }
    // Cancelled while it is activated.
    let slow = attempt("flyer", "t-2", json!({"sleep": 0.5}));
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| word(&genuine(&node, &slow, "flyer")));
        until(10, "it is activated", || standing(&node, "flyer", "t-2")["transfer"] == "accepted");
        assert_eq!(word(&genuine(&node, &question("transfer_cancel", "flyer", "t-2"), "flyer")), "accepted");
        // And it can't be forgotten either.
        let answer = genuine(&node, &question("transfer_forget", "flyer", "t-2"), "flyer");
        assert!(answer.result().unwrap().contains("\"forgotten\":false"), "{}", answer.line());
        assert_eq!(caller.join().unwrap(), "done");
    });
    assert!(node.has("flyer"));
}

#[test]
fn a_cancellation_wins_over_an_arrival_that_is_still_loading() {
    let node = Lab::start("d");
    let body = COUNTS.replace("self.activated = 0", "self.activated = 0\n    __import__('time').sleep(0.5)");
    let slow = attempt_of(&agent("loading", &body), "loading", "t-1", json!({}));
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| crate::lines::send(&node, &slow.line));
        until(10, "it is loading", || {
            node.ok("describe_container", json!({}))["counters"]["ledger_entries"] == 1
        });
        let cancelled = crate::lines::send(&node, &question("transfer_cancel", "loading", "t-1").line);
        assert_eq!(word(&cancelled), "refused");
        assert_eq!(word(&caller.join().unwrap()), "refused");
    });
    assert!(!node.has("loading") && !node.dir.path().join("state/agents/loading").exists());
}

#[test]
fn a_repeat_waits_for_the_activation_that_runs() {
    let node = Node::alone("d");
    let first = attempt("twice", "t-1", json!({"sleep": 0.5}));
    let second = attempt("twice", "t-1", json!({"sleep": 0.5}));
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| genuine(&node, &first, "twice"));
        until(10, "it is activated", || standing(&node, "twice", "t-1")["transfer"] == "accepted");
        // This very line, too: the replay check does not apply to what the ledger knows.
        let copy = scope.spawn(|| genuine(&node, &first, "twice"));
        let again = genuine(&node, &second, "twice");
        let first = caller.join().unwrap();
        assert_eq!((word(&first).as_str(), again.result()), ("done", first.result()));
        assert_eq!(copy.join().unwrap().result(), first.result());
    });
    assert_eq!(node.invoke("twice", json!({})), json!([1, [], 1]));
}

#[test]
fn the_ledger_outlives_the_agent_and_answers_under_its_secret() {
    let mut node = Node::alone("d");
    assert_eq!(word(&genuine(&node, &attempt("rover", "t-1", json!({})), "rover")), "done");
    node.ok("remove_agent", json!({"agent_id": "rover"}));
    node.crash_and_restart();
    assert_eq!(standing(&node, "rover", "t-1")["answer"]["activate_result"], 1);
    // Its namesake with another secret lives here now; the transfer still has its own.
    let other = agent("rover", "pass").replace("secret of rover", "a newer secret");
    node.deploy(&other);
    node.crash_and_restart();
    let told = standing(&node, "rover", "t-1");
    assert_eq!(told["transfer"], "done");
    let bare = by_agent("transfer_status", "rover", json!({"transfer_id": "t-1"}));
    assert_eq!(word(&genuine(&node, &bare, "rover")), "done", "without the source, too");
    // Of another transfer that secret says nothing.
    let answer = node.line(&by_agent("transfer_status", "rover", json!({"transfer_id": "t-2"})).line);
    assert_eq!(code(&answer), "bad_signature");
}

#[test]
fn after_forgetting_the_generation_speaks_for_itself() {
    let mut node = Node::alone("d");
    assert_eq!(word(&genuine(&node, &attempt("settled", "t-1", json!({})), "settled")), "done");
    assert_eq!(entries(&node), 1);
    let answer = genuine(&node, &question("transfer_forget", "settled", "t-1"), "settled");
    assert!(answer.result().unwrap().contains("\"forgotten\":true"), "{}", answer.line());
    assert_eq!(entries(&node), 0);
    for _ in 0..2 {
        node.crash_and_restart();
        assert_eq!(node.invoke("settled", json!({})), json!([1, [], 1]));
    }
    let answer = genuine(&node, &question("transfer_forget", "settled", "t-1"), "settled");
    assert!(answer.result().unwrap().contains("\"forgotten\":false"), "nothing to forget is no error");
    // A refusal can be forgotten as well.
    genuine(&node, &question("transfer_cancel", "settled", "t-3"), "settled");
    assert_eq!(entries(&node), 1);
    genuine(&node, &question("transfer_forget", "settled", "t-3"), "settled");
    assert_eq!(entries(&node), 0);
}

#[test]
fn busy_is_untouched_and_the_same_bytes_do_not_act_later() {
    let mut node = Node::new("d", &[]).with("max_live_agents", json!(1));
    node.start();
    node.deploy(&agent("hog", "def on_message(self, ctx, m):\n    __import__('time').sleep(m)"));
    let request = attempt("guest", "t-1", json!({}));
    std::thread::scope(|scope| {
        let hog = scope.spawn(|| node.invoke("hog", json!(1.0)));
        until(5, "it runs", || node.agent("hog").unwrap()["status"] == "running");
        let answer = genuine(&node, &request, "guest");
        assert_eq!((word(&answer).as_str(), code(&answer).as_str()), ("untouched", "busy"));
        hog.join().unwrap();
    });
    assert_eq!(entries(&node), 0);
    for restart in [false, true] {
        if restart {
            node.crash_and_restart();
        }
        let answer = genuine(&node, &request, "guest");
        assert_eq!((word(&answer).as_str(), code(&answer).as_str()), ("untouched", "replayed"));
        assert!(!node.has("guest"));
    }
    assert_eq!(word(&genuine(&node, &attempt("guest", "t-1", json!({})), "guest")), "done");
}

#[test]
fn shutting_down_is_untouched() {
    let node = Lab::with(Keys { max_agents: 1, ..keys("d") });
    // Agents and processes end; the server goes on, so that the answer can be seen.
    node.running.node.stop(Duration::ZERO);
    let request = attempt("guest", "t-1", json!({}));
    let answer = crate::lines::send(&node, &request.line);
    assert_eq!((word(&answer).as_str(), code(&answer).as_str()), ("untouched", "shutting_down"));
    let answer = crate::lines::send(&node, &request.line);
    assert_eq!((word(&answer).as_str(), code(&answer).as_str()), ("untouched", "replayed"));
    // What waits in an agent's queue learns it, too, and does not wait for an agent that never comes.
    let (code, _) = node.err("invoke_agent", json!({"agent_id": "guest"}));
    assert_eq!(code, "shutting_down");
}

#[test]
fn an_arrival_that_a_shutdown_cuts_is_untouched_and_so_is_one_for_which_no_process_can_be_had() {
    let node = Lab::start("d");
    let body = COUNTS.replace("self.activated = 0", "self.activated = 0\n    open(__import__('os').environ['AGENTCONTAINER_STATE_DIR'] + '/loading', 'w').close()\n    __import__('time').sleep(15)");
    let slow = attempt_of(&agent("cut", &body), "cut", "t-1", json!({}));
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| crate::lines::send(&node, &slow.line));
        let loading = node.dir.path().join("state/agents/cut/state/loading");
        until(10, "it is loading", || loading.exists());
        // Agents and processes end; the server goes on, so that the answer can be seen.
        node.running.node.stop(Duration::ZERO);
        let answer = caller.join().unwrap();
        assert_eq!((word(&answer).as_str(), code(&answer).as_str()), ("untouched", "shutting_down"));
    });
    assert_eq!(std::fs::read_dir(node.dir.path().join("state/ledger")).unwrap().count(), 0);
    // An interpreter that ends at once.
    let mut node = Node::new("d", &[]).with("python", json!("/bin/false")).with("prewarm", json!(false));
    node.start();
    let answer = genuine(&node, &attempt("guest", "t-1", json!({})), "guest");
    assert_eq!((word(&answer).as_str(), code(&answer).as_str()), ("untouched", "busy"), "{}", answer.line());
    assert_eq!(standing(&node, "guest", "t-1")["transfer"], "unknown");
}

#[test]
fn a_stale_message_is_untouched_and_never_acts_later_whatever_the_clock_does() {
    let mut node = Node::new("d", &[]);
    let clock = node.dir.path().join("clock");
    let set = |by: i64| std::fs::write(&clock, by.to_string()).unwrap();
    for by in [-600, 600] {
        set(by);
        let name = format!("early{}", by + 600);
        node.start_with(&[("AGENTCONTAINER_CLOCK_FILE", clock.to_str().unwrap())]);
        let request = attempt(&name, "t-1", json!({}));
        let answer = genuine(&node, &request, &name);
        assert_eq!((word(&answer).as_str(), code(&answer).as_str()), ("untouched", "stale_timestamp"));
        assert!(member(&answer, "node_time").is_i64());
        set(0);
        // What is stamped later does not count as old for it.
        let stamped = unix_now();
        until(5, "the next second", || unix_now() > stamped);
        for restart in [false, true] {
            if restart {
                node.kill();
                node.start();
            }
            let answer = genuine(&node, &request, &name);
            assert_eq!(word(&answer), "untouched", "{by} {}", answer.line());
            assert!(!node.has(&name));
        }
        let answer = genuine(&node, &attempt(&name, "t-1", json!({})), &name);
        assert_eq!(word(&answer), "done", "{}", answer.line());
        node.kill();
    }
}

#[test]
fn what_is_below_a_floor_stays_there_when_the_node_comes_back() {
    let mut node = Node::new("d", &[]);
    let clock = node.dir.path().join("clock");
    std::fs::write(&clock, "600").unwrap();
    node.start_with(&[("AGENTCONTAINER_CLOCK_FILE", clock.to_str().unwrap())]);
    let stamped = |offset| {
        let payload = json!({"source_code": agent("old", COUNTS), "transfer_id": "t-1"}).to_string();
        stamped("receive_agent", "old", secret_of("old").expose(), &payload, offset)
    };
    // The first is noted, forgotten for its age at once, and leaves a floor; the second is below that.
    let (first, second) = (stamped(-10), stamped(-20));
    for request in [&first, &second] {
        let answer = genuine(&node, request, "old");
        assert_eq!((word(&answer).as_str(), code(&answer).as_str()), ("untouched", "stale_timestamp"));
    }
    for _ in 0..2 {
        node.kill();
        node.start();
        for request in [&second, &first] {
            assert_eq!(word(&genuine(&node, request, "old")), "untouched");
        }
    }
    assert!(!node.has("old"));
}

#[test]
fn a_late_copy_of_a_transfer_that_the_ledger_knows_is_not_called_untouched() {
    let mut node = Node::new("d", &[]);
    let clock = node.dir.path().join("clock");
    node.start_with(&[("AGENTCONTAINER_CLOCK_FILE", clock.to_str().unwrap())]);
    let request = attempt("here", "t-1", json!({}));
    assert_eq!(word(&genuine(&node, &request, "here")), "done");
    std::fs::write(&clock, "600").unwrap();
    let answer = genuine(&node, &request, "here");
    assert_eq!(
        (word(&answer).as_str(), code(&answer).as_str()),
        ("", "stale_timestamp"),
        "{}",
        answer.line()
    );
}

#[test]
fn an_agent_that_lost_its_place_to_a_newer_one_of_its_id_does_not_come_back() {
    let mut node = Node::alone("d");
    for transfer in ["t-1", "t-2"] {
        assert_eq!(word(&genuine(&node, &attempt("same", transfer, json!({})), "same")), "done");
    }
    for _ in 0..2 {
        assert_eq!(node.invoke("same", json!({})), json!([1, [], 1]));
        assert_eq!(node.agent("same").unwrap()["sequence"], 2);
        let kept = std::fs::read_dir(node.state("agents/same/harness")).unwrap().count();
        assert_eq!(kept, 1);
        node.crash_and_restart();
    }
}

#[test]
fn a_long_answer_is_kept_whole_across_a_restart() {
    let mut node = Node::alone("d");
    let body = "def on_activate(self, ctx, p):\n    return 'x' * 100000";
    let request = attempt_of(&agent("long", body), "long", "t-1", json!({}));
    let first = genuine(&node, &request, "long");
    node.crash_and_restart();
    let again = genuine(&node, &request, "long");
    assert_eq!((word(&again).as_str(), again.result()), ("done", first.result()));
    assert!(standing(&node, "long", "t-1")["answer"]["activate_result"].as_str().unwrap().len() == 100_000);
}
