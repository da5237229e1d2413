//! The replay memory across restarts, and clocks that are set.

use super::node::Node;
use crate::lines::{admin, stamped};
use crate::support::lab::{agent, until, ADMIN};
use agentcontainer::wire::{unix_now, SignedRequest};
use serde_json::json;
use std::time::{Duration, Instant};

const COUNTS: &str =
    "def __init__(self):\n    self.n = 0\ndef on_message(self, ctx, m):\n    self.n += 1\n    return self.n";

fn counter() -> Node {
    let node = Node::alone("n");
    node.deploy(&agent("counter", COUNTS));
    node
}

fn invoke() -> SignedRequest {
    admin("invoke_agent", json!({"agent_id": "counter"}))
}

/// Stamped `offset` seconds from now.
fn invoke_stamped(offset: i64) -> SignedRequest {
    stamped("invoke_agent", "admin", ADMIN, &json!({"agent_id": "counter"}).to_string(), offset)
}

fn code(node: &Node, request: &SignedRequest) -> Option<String> {
    node.line(&request.line).code().map(str::to_owned)
}

#[test]
fn the_same_line_after_a_kill_is_replayed() {
    let mut node = counter();
    let line = invoke();
    assert_eq!(code(&node, &line), None);
    for stop in [false, true, false] {
        if stop {
            node.stop();
            node.start();
        } else {
            node.crash_and_restart();
        }
        assert_eq!(code(&node, &line).as_deref(), Some("replayed"));
    }
    assert_eq!(node.invoke("counter", json!({})), 2);
}

#[test]
fn what_was_forgotten_for_want_of_room_stays_refused() {
    let mut node = Node::new("n", &[]).with("replay_entries", json!(4));
    node.start();
    node.deploy(&agent("counter", COUNTS));
    // Accepted in the order of their stamps; the oldest go first.
    let lines: Vec<SignedRequest> = (0..8).map(|number| invoke_stamped(number - 200)).collect();
    for line in &lines {
        assert!(matches!(code(&node, line).as_deref(), None | Some("stale_timestamp")));
    }
    for restart in [false, true, true] {
        if restart {
            node.crash_and_restart();
        }
        for line in &lines {
            let code = code(&node, line);
            assert!(matches!(code.as_deref(), Some("replayed" | "stale_timestamp")), "{code:?}");
        }
        // And what was never sent, but is as old.
        assert_eq!(code(&node, &invoke_stamped(-250)).as_deref(), Some("stale_timestamp"));
    }
}

#[test]
fn a_full_file_is_rewritten_and_forgets_nothing() {
    let mut node = Node::new("n", &[]).with("prewarm", json!(false));
    // Lines of an earlier run, as many as make it rewrite the file at once.
    std::fs::create_dir_all(node.state("meta")).unwrap();
    let now = unix_now();
    let text: String = (0..30_000).map(|n| format!("{} {n:032x} \"somebody\"\n", now - 2000 - n)).collect();
    std::fs::write(node.state("meta/replay.log"), &text).unwrap();
    node.start();
    let line = admin("list_agents", json!({}));
    assert!(node.line(&line.line).is_ok());
    let kept = std::fs::metadata(node.state("meta/replay.log")).unwrap().len();
    assert!(kept <= text.len() as u64 + 4096, "{kept}");
    node.crash_and_restart();
    assert_eq!(code(&node, &line).as_deref(), Some("replayed"));
    node.crash_and_restart();
    let kept = std::fs::metadata(node.state("meta/replay.log")).unwrap().len();
    assert!(kept < 4096, "what is too old has gone, and left a floor: {kept}");
    assert_eq!(code(&node, &line).as_deref(), Some("replayed"));
}

#[test]
fn after_a_restart_of_the_machine_what_is_stamped_before_the_start_is_stale() {
    let mut node = counter();
    let line = invoke();
    assert_eq!(code(&node, &line), None);
    node.kill();
    // The power cut took the last lines, which were not synced; the kernel calls its run otherwise.
    let file = node.state("meta/replay.log");
    let text = std::fs::read_to_string(&file).unwrap();
    let boot = text.lines().find(|line| line.starts_with("boot ")).unwrap();
    let lost = text.trim_end().rfind('\n').unwrap() + 1;
    let stamped = unix_now();
    until(5, "two seconds later", || unix_now() > stamped + 1);
    for other_boot in [false, true] {
        if other_boot {
            std::fs::write(&file, text[..lost].replace(boot, "boot 00000000")).unwrap();
        }
        node.start();
        let told = code(&node, &line);
        assert_eq!(told.as_deref(), Some(if other_boot { "stale_timestamp" } else { "replayed" }));
        node.kill();
    }
    node.start();
    assert_eq!(code(&node, &line).as_deref(), Some("stale_timestamp"), "the floor is there to stay");
    assert_eq!(node.invoke("counter", json!({})), 2);
    assert!(!node.logged().contains("state_damaged"));
}

#[test]
fn a_clock_set_back_or_forward_by_an_hour_lets_nothing_act_twice_and_moves_no_deadline() {
    for by in [-3600, 3600] {
        let mut node = Node::new("n", &[]);
        let clock = node.dir.path().join("clock");
        let set = |by: i64| std::fs::write(&clock, by.to_string()).unwrap();
        set(0);
        let environment = [("AGENTCONTAINER_CLOCK_FILE", clock.to_str().unwrap())];
        node.start_with(&environment);
        node.deploy(&agent("counter", COUNTS));
        node.deploy(&agent(
            "slow",
            "def on_message(self, ctx, m):\n    __import__('time').sleep(m)\n    return 'done'",
        ));
        let line = invoke();
        assert_eq!(code(&node, &line), None);
        // While a hook runs the clock is set: its time is not over, and it does end.
        std::thread::scope(|scope| {
            let slow = scope.spawn(|| node.invoke("slow", json!(1.0)));
            until(5, "it runs", || node.agent("slow").unwrap()["status"] == "running");
            set(by);
            assert_eq!(slow.join().unwrap(), "done");
            let late = stamped(
                "invoke_agent",
                "admin",
                ADMIN,
                &json!({"agent_id": "slow", "message": 30, "timeout": 0.5}).to_string(),
                by,
            );
            let began = Instant::now();
            assert_eq!(code(&node, &late).as_deref(), Some("timeout"));
            assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
        });
        // A message of before is stale, and the error says by how much.
        let answer = node.line(&invoke().line);
        assert_eq!(answer.code(), Some("stale_timestamp"));
        let text = answer.error().unwrap();
        assert!(
            text.contains(if by < 0 { "ahead of" } else { "behind" }) && text.contains("300 s are allowed"),
            "{text}"
        );
        let there = invoke_stamped(by);
        assert_eq!(code(&node, &there), None, "who has the node's time is heard");
        for restart in [false, true] {
            if restart {
                node.kill();
                node.start_with(&environment);
            }
            assert_eq!(code(&node, &there).as_deref(), Some("replayed"));
            assert_eq!(code(&node, &line).as_deref(), Some("stale_timestamp"));
        }
        // Back to normal: what acted before does not act again.
        set(0);
        for restart in [false, true] {
            if restart {
                node.kill();
                node.start_with(&environment);
            }
            assert!(matches!(code(&node, &line).as_deref(), Some("replayed" | "stale_timestamp")));
            assert_eq!(code(&node, &there).as_deref(), Some("stale_timestamp"));
        }
        let heard = unix_now();
        until(5, "the next second", || unix_now() > heard);
        assert_eq!(node.invoke("counter", json!({})), 3);
    }
}
