//! The source's rules of a transfer, across restarts.

use super::node::{between, fails, is, secret_of, stands, Node, Reply, Stage};
use crate::lines::{is_signed, signed};
use crate::support::lab::{agent, until, Lab};
use agentcontainer::wire::RequestOptions;
use serde_json::{json, Value};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Goes where it is told, and counts.
const GOES: &str = "def __init__(self):\n    self.n = 0\n    self.codes = []\ndef on_activate(self, ctx, p):\n    self.n += 1\n    if p.get('back'):\n        ctx.move(p['back'], {})\n    return self.n\ndef on_message(self, ctx, m):\n    self.n += 1\n    if not m.get('go'):\n        return [self.n, self.codes]\n    try:\n        return getattr(ctx, m.get('how', 'move'))(m['go'], m.get('then', {}), **m.get('with', {}))\n    except Exception as error:\n        self.codes.append(error.code)\n        return [error.code, str(error)]";

fn mover(id: &str) -> String {
    agent(id, GOES)
}

/// A source whose tree has `far` at this port, and `id` living there.
fn source(far: u16, id: &str) -> Node {
    let mut node = Node::new("s", &[("far", far)]);
    node.start();
    node.deploy(&mover(id));
    node
}

#[test]
fn what_is_written_before_it_is_sent_arrives_once_whichever_step_the_kill_cuts() {
    for place in ["outbox-written", "answer-received", "outcome-recorded", "generation-removed"] {
        let far = Lab::start("far");
        let mut node = Node::new("s", &[("far", far.running.node.port())]);
        node.start_to_crash(place);
        node.deploy(&mover("walker"));
        let go = json!({"agent_id": "walker", "message": {"go": "far"}});
        let secret = agentcontainer::wire::Secret::new(crate::support::lab::ADMIN).unwrap();
        let line =
            signed("invoke_agent", "admin", secret.expose(), &go.to_string(), RequestOptions::default());
        assert!(node.try_line(&line.line).is_none(), "{place}");
        node.wait_for_crash();
        node.start();
        until(15, "it has arrived, and left", || far.has("walker") && !node.has("walker"));
        until(5, "its files are gone", || !node.state("agents/walker").exists());
        // Once at home, once by the call, once there.
        until(15, "it is activated", || far.invoke("walker", json!({}))[0].as_i64() >= Some(4));
        assert_eq!(far.ok("list_agents", json!({}))[0]["sequence"], 1, "{place}");
    }
}

#[test]
fn a_refusal_is_recorded_before_the_agent_goes_on() {
    let far = Stage::play(|_, got| match got.kind.as_str() {
        "receive_agent" => Reply::Signed(fails("rejected", "refused")),
        _ => Reply::Signed(stands("refused", json!({"code": "rejected", "error": "played"}))),
    });
    let mut node = Node::new("s", &[("far", far.port)]);
    node.start_to_crash("refusal-received");
    node.deploy(&mover("stays"));
    let go = json!({"agent_id": "stays", "message": {"go": "far"}}).to_string();
    let line = signed("invoke_agent", "admin", crate::support::lab::ADMIN, &go, RequestOptions::default());
    assert!(node.try_line(&line.line).is_none());
    node.wait_for_crash();
    node.start();
    assert_eq!(node.agent("stays").unwrap()["status"], "idle");
    // Nothing is asked again, and the memory is that of the call.
    assert_eq!(node.invoke("stays", json!({})), json!([3, []]));
    assert_eq!((far.count("receive_agent"), far.count("transfer_status")), (1, 0));
    assert_eq!(node.outbox(), [] as [Value; 0]);
}

#[test]
fn without_a_deciding_answer_it_stays_departing_across_restarts_and_takes_no_messages() {
    let far = Stage::play(|number, _| match number {
        // None, one of a stranger's, unsigned ones of each kind.
        0 => Reply::Nothing,
        1 => Reply::Forged(stands("done", json!({}))),
        2 => Reply::Unsigned(stands("done", json!({}))),
        3 => Reply::Unsigned(fails("rejected", "refused")),
        4 => Reply::Unsigned(fails("busy", "untouched")),
        5 => Reply::Forged(fails("rejected", "refused")),
        // Genuine, and says nothing.
        6 => Reply::Signed(fails("internal", "")),
        _ => Reply::Nothing,
    });
    let mut node = source(far.port, "open");
    let call = json!({"agent_id": "open", "message": {"go": "far"}, "timeout": 2.0});
    let _ = node.ask("invoke_agent", call);
    for restart in [false, true] {
        if restart {
            node.crash_and_restart();
        }
        let asked = far.count("transfer_status");
        until(40, "the destination was asked", || {
            far.count("transfer_status") > asked + usize::from(restart) * 4
        });
        assert_eq!(node.agent("open").unwrap()["status"], "departing");
        let (code, _) = node.err("invoke_agent", json!({"agent_id": "open", "timeout": 0.3}));
        assert_eq!(code, "timeout");
        assert_eq!(node.outbox()[0]["state"], "unclear");
    }
    assert!(far.count("transfer_status") > 7, "each of these answers was given");
    assert_eq!(far.count("receive_agent"), 1, "nobody said that it is not known");
}

#[test]
fn a_refusal_that_is_not_signed_is_believed_only_when_the_destination_signs_that_it_never_comes() {
    let say = Arc::new(AtomicBool::new(false));
    let says = Arc::clone(&say);
    let far = Stage::play(move |number, got| match (got.kind.as_str(), says.load(Ordering::Acquire)) {
        ("receive_agent", _) => Reply::Unsigned(fails("rejected", "refused")),
        ("transfer_cancel", true) => Reply::Signed(stands("refused", json!({"error": "cancelled"}))),
        ("transfer_cancel", false) if number % 2 == 0 => Reply::Forged(stands("refused", json!({}))),
        ("transfer_status", _) => Reply::Signed(stands("unknown", Value::Null)),
        _ => Reply::Unsigned(stands("refused", json!({}))),
    });
    let node = source(far.port, "unsure");
    let _ = node.ask("invoke_agent", json!({"agent_id": "unsure", "message": {"go": "far"}, "timeout": 1.5}));
    assert_eq!(node.agent("unsure").unwrap()["status"], "departing");
    until(30, "it is asked more than once", || far.count("transfer_cancel") > 2);
    assert_eq!(node.agent("unsure").unwrap()["status"], "departing");
    say.store(true, Ordering::Release);
    until(40, "it stays", || node.agent("unsure").unwrap()["status"] == "idle");
}

#[test]
fn unknown_means_the_same_transfer_again_and_done_ends_it() {
    let far = Stage::play(|number, got| match (got.kind.as_str(), number) {
        ("receive_agent", 0) => Reply::Nothing,
        ("transfer_status", 0) => Reply::Signed(stands("unknown", Value::Null)),
        ("receive_agent", _) => Reply::Signed(stands("done", json!({}))),
        _ => Reply::Signed(stands("done", json!({}))),
    });
    let node = source(far.port, "again");
    node.invoke("again", json!({"go": "far"}));
    assert!(!node.has("again"));
    let got = far.got.lock().unwrap();
    let sent: Vec<_> = got.iter().filter(|got| got.kind == "receive_agent").collect();
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[0].transfer(), sent[1].transfer());
    assert_eq!(sent[0].payload["state"], sent[1].payload["state"]);
    assert_ne!(sent[0].line, sent[1].line, "signed anew");
}

#[test]
fn accepted_is_as_good_as_done() {
    let far = Stage::play(|_, got| match got.kind.as_str() {
        "receive_agent" => Reply::Nothing,
        _ => Reply::Signed(stands("accepted", Value::Null)),
    });
    let node = source(far.port, "taken");
    let answer = node.invoke("taken", json!({"go": "far"}));
    assert_eq!(answer["transfer"], "accepted");
    assert!(!node.has("taken"));
}

#[test]
fn untouched_revives_unless_an_earlier_attempt_is_unclear() {
    let far = Stage::play(|_, _| Reply::Signed(fails("busy", "untouched")));
    let node = source(far.port, "back");
    let told = node.invoke("back", json!({"go": "far"}));
    assert!(told[0] == "busy" && told[1].as_str().unwrap().contains("it was played so"), "{told}");
    assert_eq!(node.invoke("back", json!({})), json!([3, ["busy"]]));
    assert_eq!(node.outbox_files(), [] as [String; 0]);
    // Once an attempt may have arrived, later ones that did not say nothing of it.
    let far = Stage::play(|number, got| match (got.kind.as_str(), number) {
        ("receive_agent", 0) => Reply::Nothing,
        ("transfer_status", 3..) => Reply::Signed(stands("done", json!({}))),
        ("transfer_status", _) => Reply::Signed(stands("unknown", Value::Null)),
        _ => Reply::Signed(fails("stale_timestamp", "untouched")),
    });
    let node = source(far.port, "gone");
    assert_eq!(node.invoke("gone", json!({"go": "far"}))["transfer"], "done");
    assert!(!node.has("gone") && far.count("receive_agent") == 4);
}

#[test]
fn a_clock_ten_minutes_off_is_an_error_and_the_agent_goes_on() {
    let mut far = Node::new("far", &[]);
    let clock = far.dir.path().join("clock");
    std::fs::write(&clock, "-600").unwrap();
    far.start_with(&[("AGENTCONTAINER_CLOCK_FILE", clock.to_str().unwrap())]);
    // What is sent is kept, and sent once more when the clocks agree.
    let kept: Arc<Mutex<Vec<String>>> = Arc::default();
    let keeps = Arc::clone(&kept);
    let port = between(far.port, move |line, pass| {
        keeps.lock().unwrap().push(line.to_owned());
        Some(pass(line))
    });
    let node = source(port, "punctual");
    let told = node.invoke("punctual", json!({"go": "far"}));
    assert_eq!(told[0], "stale_timestamp", "{told}");
    assert_eq!(node.invoke("punctual", json!({}))[0], 3);
    std::fs::write(&clock, "0").unwrap();
    for restart in [false, true] {
        if restart {
            far.crash_and_restart();
        }
        let answer = far.line(kept.lock().unwrap()[0].trim());
        assert!(!answer.is_ok() && !far.has("punctual"), "{}", answer.line());
    }
    assert_eq!(node.invoke("punctual", json!({"go": "far"}))["transfer"], "done");
    assert!(far.has("punctual") && !node.has("punctual"));
}

#[test]
fn returned_home_while_the_outer_move_is_open_it_stays_home() {
    for restart in [false, true] {
        let far = Lab::start("far");
        let open = Arc::new(AtomicBool::new(false));
        let gate = Arc::clone(&open);
        // Its way there is free, and what is answered does not come back before the gate is open.
        let port = between(far.running.node.port(), move |line, pass| {
            let answer = pass(line);
            gate.load(Ordering::Acquire).then_some(answer)
        });
        let mut node = source(port, "boomerang");
        let call =
            json!({"agent_id": "boomerang", "message": {"go": "far", "then": {"back": "s"}}, "timeout": 3.0});
        // The call or the hook: one of them is told first that its time is up.
        let _ = node.ask("invoke_agent", call);
        until(20, "it is home", || node.agent("boomerang").is_some_and(|agent| agent["sequence"] == 2));
        until(20, "it has left there", || !far.has("boomerang"));
        assert_eq!(node.outbox().len(), 1);
        if restart {
            node.crash_and_restart();
        }
        let before = node.invoke("boomerang", json!({}))[0].clone();
        assert_eq!(before, 5, "home, call, there, home again, and this message");
        open.store(true, Ordering::Release);
        until(40, "the outer move has ended", || node.outbox().is_empty());
        until(5, "and what it had to remove is removed", || node.logged().contains("agent_sent"));
        assert_eq!(node.invoke("boomerang", json!({}))[0], 6);
        node.crash_and_restart();
        assert_eq!(node.invoke("boomerang", json!({}))[0], 7);
        assert!(!far.has("boomerang"));
    }
}

#[test]
fn a_refused_one_whose_id_was_taken_meanwhile_is_put_aside() {
    for restart in [false, true] {
        let decide = Arc::new(AtomicBool::new(false));
        let decided = Arc::clone(&decide);
        let far = Stage::play(move |_, _| match decided.load(Ordering::Acquire) {
            true => Reply::Signed(stands("refused", json!({"code": "rejected", "error": "played"}))),
            false => Reply::Nothing,
        });
        let mut node = source(far.port, "double");
        let call = json!({"agent_id": "double", "message": {"go": "far"}, "timeout": 1.0});
        let _ = node.ask("invoke_agent", call);
        // A newer one of its id arrives.
        let payload = json!({"source_code": mover("double"), "state": {"memory": {"n": 100, "codes": []}, "files": []}});
        let secret = secret_of("double");
        let line = signed(
            "receive_agent",
            "double",
            secret.expose(),
            &payload.to_string(),
            RequestOptions::default(),
        );
        let answer = node.line(&line.line);
        assert!(answer.is_ok() && is_signed(&answer, secret.expose(), &line), "{}", answer.line());
        if restart {
            node.crash_and_restart();
        }
        decide.store(true, Ordering::Release);
        let aside = node.state("outbox/superseded");
        until(30, "the older one is put aside", || {
            std::fs::read_dir(&aside).is_ok_and(|dir| dir.count() == 1)
        });
        until(5, "the log says so", || node.logged().contains("agent_superseded"));
        assert_eq!(node.invoke("double", json!({}))[0], 102);
        let kept = std::fs::read_dir(&aside).unwrap().next().unwrap().unwrap().path();
        assert!(std::fs::read_to_string(kept).unwrap().contains("secret of double"), "whole, for a person");
        node.crash_and_restart();
        assert_eq!((node.invoke("double", json!({}))[0].clone(), node.outbox().len()), (json!(103), 0));
    }
}

#[test]
fn a_move_that_is_called_off_in_flight_is_refused_when_it_comes() {
    let mut far = Node::alone("far");
    let held: Arc<Mutex<Vec<String>>> = Arc::default();
    let holds = Arc::clone(&held);
    let port = between(far.port, move |line, pass| {
        if is(line, "receive_agent") {
            holds.lock().unwrap().push(line.to_owned());
            // It is on its way, and nobody hears of it.
            std::thread::sleep(Duration::from_secs(2));
            return None;
        }
        Some(pass(line))
    });
    let node = source(port, "recalled");
    let told = node.invoke("recalled", json!({"go": "far", "with": {"timeout": 0.5}}));
    assert!(told[0] == "timeout" && told[1].as_str().unwrap().contains("cancelled"), "{told}");
    assert_eq!(node.agent("recalled").unwrap()["status"], "idle");
    for restart in [false, true] {
        if restart {
            far.crash_and_restart();
        }
        let answer = far.line(held.lock().unwrap()[0].trim());
        assert_eq!(answer.field("transfer"), Some("\"refused\""), "{}", answer.line());
        assert!(!far.has("recalled"));
    }
    assert_eq!(node.invoke("recalled", json!({}))[0], 3);
}

#[test]
fn after_a_refused_move_the_memory_is_what_the_hook_left_also_where_that_is_what_it_began_with() {
    let far = Stage::play(|_, _| Reply::Signed(fails("rejected", "refused")));
    let mut node = Node::new("s", &[("far", far.port)]);
    node.start();
    node.deploy(&agent("restless", "def __init__(self):\n    self.mood = 'calm'\ndef on_message(self, ctx, m):\n    if m.get('go'):\n        self.mood = 'leaving'\n        try:\n            ctx.move('far', {})\n        except Exception:\n            self.mood = m['then']\n    return self.mood"));
    for then in ["calm", "leaving", "angry"] {
        assert_eq!(node.invoke("restless", json!({"go": 1, "then": then})), then);
        node.crash_and_restart();
        assert_eq!(node.invoke("restless", json!({})), then);
    }
}

#[test]
fn the_destination_is_told_to_forget_only_when_the_outcome_is_on_disk() {
    let node: Arc<Mutex<Option<std::path::PathBuf>>> = Arc::default();
    let outbox = Arc::clone(&node);
    // While the source waits for the answer its record becomes one that can't be replaced.
    let far = Stage::play(move |_, got| {
        if got.kind == "receive_agent" {
            let beside =
                outbox.lock().unwrap().clone().unwrap().join(format!("{}.unfinished", got.transfer()));
            std::fs::create_dir(beside).unwrap();
        }
        Reply::Signed(stands("done", json!({})))
    });
    let mut source = source(far.port, "clerk");
    *node.lock().unwrap() = Some(source.state("outbox"));
    assert_eq!(source.invoke("clerk", json!({"go": "far"}))["transfer"], "done");
    assert!(!source.has("clerk"));
    until(10, "it tries to tell", || source.logged().matches("not_written").count() > 2);
    assert_eq!(far.count("transfer_forget"), 0);
    source.crash_and_restart();
    until(10, "it asks again", || far.count("transfer_status") > 0);
    assert_eq!(far.count("transfer_forget"), 0);
    let blocked =
        std::fs::read_dir(source.state("outbox")).unwrap().flatten().find(|entry| entry.path().is_dir());
    std::fs::remove_dir(blocked.unwrap().path()).unwrap();
    let recorded = |source: &Node| {
        let files = source.outbox_files();
        files.iter().any(|name| {
            let text = std::fs::read_to_string(source.state("outbox").join(name)).unwrap();
            text.contains("\"outcome\":\"arrived\"") && text.lines().count() == 1
        })
    };
    until(20, "the outcome is on disk", || recorded(&source));
    assert_eq!(source.outbox().len(), 0);
}

#[test]
fn when_a_destination_may_be_told_to_forget_outlives_the_source() {
    let far = Stage::play(|number, got| match (got.kind.as_str(), number) {
        ("receive_agent", 0) => Reply::Nothing,
        _ => Reply::Signed(stands("done", json!({}))),
    });
    let mut node = source(far.port, "past");
    node.invoke("past", json!({"go": "far"}));
    // A copy of the first attempt may still be on its way.
    assert_eq!((far.count("transfer_forget"), node.outbox_files().len()), (0, 1));
    node.crash_and_restart();
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!((far.count("transfer_forget"), node.outbox_files().len()), (0, 1));
    node.kill();
    // An hour later none can be.
    let clock = node.dir.path().join("clock");
    std::fs::write(&clock, "3700").unwrap();
    node.start_with(&[("AGENTCONTAINER_CLOCK_FILE", clock.to_str().unwrap())]);
    until(10, "it is told", || far.count("transfer_forget") == 1 && node.outbox_files().is_empty());
}

#[test]
fn a_refused_clone_is_forgotten_and_an_unclear_one_is_not_tried_again() {
    let far = Stage::play(|number, got| match (got.kind.as_str(), number) {
        ("receive_agent", 0) => Reply::Signed(fails("rejected", "refused")),
        ("receive_agent", _) => Reply::Nothing,
        _ => Reply::Signed(stands("unknown", Value::Null)),
    });
    let node = source(far.port, "original");
    assert_eq!(node.invoke("original", json!({"go": "far", "how": "clone"}))[0], "rejected");
    until(5, "it is forgotten", || far.count("transfer_forget") == 1);
    let told = node.invoke("original", json!({"go": "far", "how": "clone"}));
    assert!(told[0] == "timeout" && told[1].as_str().unwrap().contains("may have arrived"), "{told}");
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!((far.count("receive_agent"), far.count("transfer_status")), (2, 0));
    assert!(node.has("original") && node.outbox_files().is_empty());
}

#[test]
fn a_queued_transfer_that_reached_nobody_can_be_given_up_after_a_restart() {
    let nobody = super::node::free_port();
    let mut node = source(nobody, "patient");
    let told = node.invoke("patient", json!({"go": "far", "with": {"queue": true}}));
    assert_eq!((told["status"].as_str(), told["state"].as_str()), (Some("queued"), Some("waiting")));
    node.crash_and_restart();
    assert_eq!(node.agent("patient").unwrap()["status"], "departing");
    until(10, "it was tried again", || node.outbox()[0]["attempts"].as_u64() > Some(0));
    let id = json!({"transfer_id": told["transfer_id"]});
    until(5, "no attempt runs", || node.ask("cancel_outbox", id.clone()).is_ok());
    assert_eq!(node.invoke("patient", json!({}))[0], 3);
    assert_eq!(node.outbox_files(), [] as [String; 0]);
}

#[test]
fn a_queued_transfer_that_may_have_arrived_is_given_up_by_the_destination_alone() {
    let say = Arc::new(AtomicBool::new(false));
    let says = Arc::clone(&say);
    let far = Stage::play(move |_, got| match (got.kind.as_str(), says.load(Ordering::Acquire)) {
        ("transfer_cancel", true) => Reply::Signed(stands("refused", json!({"error": "cancelled"}))),
        _ => Reply::Nothing,
    });
    let mut node = source(far.port, "patient");
    let told = node.invoke("patient", json!({"go": "far", "with": {"queue": true}}));
    let id = json!({"transfer_id": told["transfer_id"]});
    let cancel = |node: &Node| {
        let mut told = None;
        until(15, "no attempt runs", || {
            let answer = node.ask("cancel_outbox", id.clone());
            let busy = answer.code() == Some("busy");
            told = Some(answer);
            !busy
        });
        told.unwrap()
    };
    for restart in [false, true] {
        if restart {
            node.crash_and_restart();
        }
        let answer = cancel(&node);
        assert_eq!(answer.code(), Some("unreachable"), "{}", answer.line());
        assert_eq!(node.agent("patient").unwrap()["status"], "departing");
    }
    say.store(true, Ordering::Release);
    let answer = cancel(&node);
    assert!(answer.is_ok(), "{}", answer.line());
    assert_eq!(node.agent("patient").unwrap()["status"], "idle");
}

#[test]
fn a_record_that_lost_its_request_is_cancelled_and_not_guessed_at() {
    let far = Stage::play(|_, got| match got.kind.as_str() {
        "transfer_cancel" => Reply::Signed(stands("refused", json!({"error": "cancelled"}))),
        "transfer_status" => Reply::Signed(stands("unknown", Value::Null)),
        _ => Reply::Nothing,
    });
    let mut node = source(far.port, "torn");
    let call = json!({"agent_id": "torn", "message": {"go": "far"}, "timeout": 0.5});
    let _ = node.ask("invoke_agent", call);
    node.kill();
    let file = node.state("outbox").join(&node.outbox_files()[0]);
    let whole = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, &whole[..whole.len() - 40]).unwrap();
    let sent = far.count("receive_agent");
    node.start();
    until(20, "it has stayed", || node.agent("torn").unwrap()["status"] == "idle");
    assert_eq!(far.count("receive_agent"), sent, "half a request is not sent");
    until(5, "the log says so", || node.logged().contains("no whole request"));
    assert_eq!(node.invoke("torn", json!({}))[0], 3);
}

#[test]
fn a_second_journey_from_the_same_hook_is_departing() {
    let far = Stage::play(|_, _| Reply::Nothing);
    let mut node = Node::new("s", &[("far", far.port)]);
    node.start();
    node.deploy(&agent("hasty", "def on_message(self, ctx, m):\n    codes = []\n    for how in (ctx.move, ctx.move, ctx.clone):\n        try:\n            how('far', {}, queue=True)\n            codes.append('queued')\n        except Exception as error:\n            codes.append(error.code)\n    return codes"));
    assert_eq!(node.invoke("hasty", json!({})), json!(["queued", "departing", "departing"]));
}
