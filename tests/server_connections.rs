//! How a node treats a connection: lines and their ends, deadlines, who keeps it open, who is cut off.

#[path = "support/lines.rs"]
mod lines;
#[path = "support/mod.rs"]
mod support;
use agentcontainer::node::Keys;
use agentcontainer::wire::{RequestOptions, Secret};
use lines::{admin, code, is_signed, kept, run, signed, Peer, COUNTER};
use serde_json::json;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::lab::{agent, keys, until, Lab, ADMIN};

#[test]
fn the_connection_is_closed_after_the_answer_unless_it_is_kept() {
    let lab = Lab::start("closes");
    let mut peer = Peer::to(&lab);
    peer.send(format!(
        "{}\n{}\n",
        admin("network_tree", json!({})).line,
        admin("list_agents", json!({})).line
    ));
    assert!(peer.answer().is_ok());
    assert_eq!(peer.line(), None, "one answer and the end, though another line had come");
    for keep in ["false", "true"] {
        let mut peer = Peer::to(&lab);
        let options = RequestOptions { keep_alive: keep == "true", ..RequestOptions::default() };
        for _ in 0..2 {
            // An error keeps the connection too, if the message was genuine.
            let request = signed("no_such_type", "admin", ADMIN, "{}", options.clone());
            peer.send(format!("{}\n", request.line));
            assert_eq!(code(&peer.answer()), "unknown_type");
            if keep == "false" {
                assert_eq!(peer.line(), None);
                break;
            }
        }
    }
    // What nobody has signed does not say how long the connection lives.
    let mut peer = Peer::to(&lab);
    let options = RequestOptions { keep_alive: true, ..RequestOptions::default() };
    peer.send(format!("{}\n", signed("list_agents", "admin", "wrong", "{}", options).line));
    assert_eq!(code(&peer.answer()), "bad_signature");
    assert_eq!(peer.line(), None);
}

#[test]
fn a_line_ends_with_lf_or_crlf_or_with_what_is_sent_and_blank_lines_are_none() {
    let lab = Lab::start("ends");
    for (before, end) in [("", "\n"), ("", "\r\n"), ("\n\r\n \t\n", "\r\n"), ("", ""), ("\n", "\r")] {
        let mut peer = Peer::to(&lab);
        let request = admin("network_tree", json!({}));
        peer.send(format!("{before}{}{end}", request.line));
        if !end.ends_with('\n') {
            peer.no_more_to_send();
        }
        let answer = peer.answer();
        assert!(answer.is_ok() && is_signed(&answer, ADMIN, &request), "{end:?}: {}", answer.line());
        assert_eq!(peer.line(), None);
    }
    // Byte by byte, and several in one packet.
    let mut peer = Peer::to(&lab);
    for byte in format!("{}\n", kept("network_tree", json!({})).line).bytes() {
        peer.send([byte]);
    }
    assert!(peer.answer().is_ok());
    // Nothing at all, or only blanks: no answer.
    for nothing in ["", "\n", " \r\n\r\n "] {
        let mut peer = Peer::to(&lab);
        peer.send(nothing);
        peer.no_more_to_send();
        assert_eq!(peer.line(), None, "{nothing:?}");
    }
    // A line that is cut off is no message.
    let mut peer = Peer::to(&lab);
    let line = admin("network_tree", json!({})).line;
    peer.send(&line[..line.len() - 1]);
    peer.no_more_to_send();
    assert_eq!(code(&peer.answer()), "bad_message");
}

#[test]
fn pipelined_lines_are_answered_in_their_order() {
    let lab = Lab::start("pipeline");
    lab.deploy(COUNTER);
    lab.deploy(&agent(
        "slow",
        "def on_message(self, ctx, message):\n    import time\n    time.sleep(0.3)\n    return 'slept'",
    ));
    let mut requests = Vec::new();
    for n in 0..40 {
        let (id, message) = if n == 5 { ("slow", json!(null)) } else { ("counter", json!(n)) };
        let payload = json!({"agent_id": id, "message": message});
        requests.push(if n < 39 { kept("invoke_agent", payload) } else { admin("invoke_agent", payload) });
    }
    let all: String = requests.iter().map(|request| format!("{}\r\n\n", request.line)).collect();
    let mut peer = Peer::to(&lab);
    peer.send(all);
    for (n, request) in requests.iter().enumerate() {
        let answer = peer.answer();
        assert!(answer.is_ok() && is_signed(&answer, ADMIN, request), "{n}: {}", answer.line());
        let expected = if n == 5 { "slept" } else { &format!("\"got\":{n}}}") };
        assert!(answer.line().contains(expected), "{n}: {}", answer.line());
    }
    assert_eq!(peer.line(), None);
}

#[test]
fn a_half_closed_client_gets_its_answer_after_three_seconds_of_work() {
    let lab = Lab::start("half");
    lab.deploy(&agent(
        "worker",
        "def on_message(self, ctx, message):\n    import time\n    time.sleep(3)\n    return 'worked'",
    ));
    let port = lab.address().port.to_string();
    let request = admin("invoke_agent", json!({"agent_id": "worker"}));
    let line = format!("{}\n", request.line);
    std::thread::scope(|scope| {
        let nc = scope.spawn(|| run("nc", &["-N", "127.0.0.1", &port], &[], &line));
        let request = admin("invoke_agent", json!({"agent_id": "worker", "timeout": 15}));
        let mut peer = Peer::to(&lab);
        peer.send(&request.line);
        peer.no_more_to_send();
        match nc.join().unwrap() {
            Ok(printed) => assert!(printed.contains("\"worked\""), "{printed}"),
            Err(error) if error.starts_with("starting nc") => eprintln!("not shown with nc: {error}"),
            Err(error) => panic!("{error}"),
        }
        let answer = peer.answer();
        assert!(
            answer.line().contains("\"worked\"") && is_signed(&answer, ADMIN, &request),
            "{}",
            answer.line()
        );
    });
}

#[test]
fn a_client_that_drips_is_cut_off_at_the_total_deadline() {
    let lab = Lab::with(Keys { request_timeout_s: 1.0, ..keys("drip") });
    let started = Instant::now();
    let mut peer = Peer::to(&lab);
    let mut drip = peer.stream.try_clone().unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let line = admin("network_tree", json!({})).line;
            for byte in line.bytes().cycle() {
                if over.load(Ordering::Relaxed) || drip.write_all(&[byte]).is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        let answer = peer.answer();
        assert_eq!(code(&answer), "timeout");
        assert!(answer.error().unwrap().contains("1 s"), "{}", answer.line());
        assert!(answer.field("signature").is_none());
        assert_eq!(peer.line(), None);
        over.store(true, Ordering::Relaxed);
    });
    let took = started.elapsed();
    assert!(took > Duration::from_millis(990) && took < Duration::from_secs(6), "{took:?}");
    // One that says nothing, one that sends only blank lines.
    for nothing in ["", "\n\n\n"] {
        let mut peer = Peer::to(&lab);
        peer.send(nothing);
        assert_eq!(code(&peer.answer()), "timeout");
        assert_eq!(peer.line(), None);
    }
}

#[test]
fn a_kept_connection_ends_when_it_has_been_silent_for_long_enough() {
    let lab = Lab::with(Keys { keep_alive_timeout_s: 0.5, request_timeout_s: 20.0, ..keys("silent") });
    let mut peer = Peer::to(&lab);
    for _ in 0..3 {
        peer.send(format!("{}\n", kept("network_tree", json!({})).line));
        assert!(peer.answer().is_ok());
    }
    let started = Instant::now();
    assert_eq!(peer.line(), None, "no answer to silence, just the end");
    assert!(started.elapsed() > Duration::from_millis(400), "{:?}", started.elapsed());
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
}

#[test]
fn a_client_that_sends_and_disappears_has_sent_all_the_same() {
    let lab = Lab::start("gone");
    lab.deploy(COUNTER);
    let hooks = || lab.running.node.agent("counter").unwrap().activations.load(Ordering::Relaxed);
    let before = hooks();
    for n in 1..=10_u64 {
        let mut peer = Peer::to(&lab);
        peer.send(format!("{}\n", admin("invoke_agent", json!({"agent_id": "counter"})).line));
        if n.is_multiple_of(2) {
            // Once the line has been taken, a reset instead of an orderly end.
            rustix::net::sockopt::set_socket_linger(&peer.stream, Some(Duration::ZERO)).unwrap();
            until(20, "the lines were taken", || hooks() == before + n);
        }
    }
    assert_eq!(lab.invoke("counter", json!(0))["count"], 11);
}

#[test]
fn clients_that_never_read_their_answers_hold_up_nobody() {
    let lab = Lab::start("unread");
    lab.deploy(&agent("big", "def on_message(self, ctx, message):\n    return 'x' * (6 << 20)"));
    let deaf: Vec<_> = (0..2)
        .map(|_| {
            let mut peer = Peer::to(&lab);
            peer.send(format!("{}\n", admin("invoke_agent", json!({"agent_id": "big"})).line));
            peer
        })
        .collect();
    // Deploying was the first; the hooks run one after the other.
    let hooks = || lab.running.node.agent("big").unwrap().activations.load(Ordering::Relaxed);
    until(30, "two big answers", || hooks() == 3);
    for _ in 0..20 {
        let started = Instant::now();
        lab.ok("network_tree", json!({}));
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    }
    // Late readers still get the whole of it.
    let mut peer = deaf.into_iter().next().unwrap();
    let answer = peer.answer();
    assert!(answer.is_ok() && answer.line().len() > 6 << 20);
}

#[test]
fn what_comes_after_a_line_that_is_too_long_is_no_message() {
    let lab = Lab::with(Keys { max_message_bytes: 4096, ..keys("long") });
    lab.deploy(COUNTER);
    let real = admin("invoke_agent", json!({"agent_id": "counter"})).line;
    let mut peer = Peer::to(&lab);
    peer.send(format!("{}{real}\n{real}\n", "x".repeat(10_000)));
    let answer = peer.answer();
    assert_eq!(code(&answer), "too_large");
    assert!(
        answer.error().unwrap().contains("4096") && answer.error().unwrap().contains("max_message_bytes")
    );
    assert_eq!(peer.line(), None);
    // At the limit and one byte beyond it; the newline does not count.
    let padded = |bytes: usize| {
        let message =
            |fill: usize| kept("invoke_agent", json!({"agent_id": "counter", "message": "y".repeat(fill)}));
        let fill = bytes - message(0).line.len();
        message(fill).line
    };
    let mut peer = Peer::to(&lab);
    peer.send(format!("{}\n{}\n", padded(4096), padded(4097)));
    assert!(peer.answer().is_ok());
    assert_eq!(code(&peer.answer()), "too_large");
    assert_eq!(lab.invoke("counter", json!(0))["count"], 2);
}

/// The answer must get through although most of what was sent has not been read when it is written.
#[test]
fn a_long_line_gets_its_refusal_and_not_a_reset() {
    let lab = Lab::with(Keys { max_message_bytes: 2048, ..keys("noreset") });
    for _ in 0..10 {
        let mut peer = Peer::to(&lab);
        peer.send(vec![b'z'; 8 << 20]);
        peer.no_more_to_send();
        let mut text = String::new();
        peer.stream.read_to_string(&mut text).unwrap();
        assert!(text.contains("\"too_large\"") && text.ends_with("}\n"), "{text}");
    }
}

#[test]
fn a_node_that_stops_answers_what_is_open_and_takes_nothing_new() {
    let lab = Lab::start("stops");
    lab.deploy(&agent(
        "worker",
        "def on_message(self, ctx, message):\n    import time\n    time.sleep(0.7)\n    return 'worked'",
    ));
    let mut idle = Peer::to(&lab);
    idle.send(format!("{}\n", kept("network_tree", json!({})).line));
    assert!(idle.answer().is_ok());
    let mut peer = Peer::to(&lab);
    let request = kept("invoke_agent", json!({"agent_id": "worker"}));
    peer.send(format!("{}\n", request.line));
    until(5, "the hook runs", || lab.running.node.agent("worker").unwrap().life.is_running());
    std::thread::scope(|scope| {
        scope.spawn(|| lab.running.stop(Duration::from_secs(5)));
        until(5, "it stops", || lab.running.node.is_stopping());
        let late = kept("list_agents", json!({}));
        idle.send(format!("{}\n", late.line));
        let answer = idle.answer();
        assert_eq!(code(&answer), "shutting_down");
        assert!(answer.genuine(&Secret::new(ADMIN).unwrap(), &late.nonce));
        assert_eq!(idle.line(), None, "not kept open by a node that ends");
        let arrival = signed(
            "receive_agent",
            "new",
            "secret of new",
            &json!({"source_code": agent("new", "pass"), "transfer_id": "t"}).to_string(),
            RequestOptions::default(),
        );
        // The listening socket may be closed already; if not, the arrival is untouched.
        if let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", lab.address().port)) {
            let _ = stream.write_all(format!("{}\n", arrival.line).as_bytes());
        }
        assert!(!lab.has("new"));
        let answer = peer.answer();
        assert!(answer.line().contains("worked") && is_signed(&answer, ADMIN, &request), "{}", answer.line());
        assert_eq!(peer.line(), None);
    });
}
