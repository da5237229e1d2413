//! Agents that find their bridge and abuse it: the node stays well, the error is clear, others don't notice.

#[path = "support/mod.rs"]
mod support;
use serde_json::{json, Value};
use std::time::{Duration, Instant};
use support::lab::{agent, until, Lab};

/// What every hostile agent starts with. `send` writes to the bridge behind the runtime's back.
const TOOLS: &str = "import os, socket, subprocess, threading, time

def bridge():
    links = [(int(name), os.readlink('/proc/self/fd/' + name)) for name in os.listdir('/proc/self/fd') if name != '0' and os.path.exists('/proc/self/fd/' + name)]
    return max(number for number, target in links if target.startswith('socket:'))

def send(data):
    socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, os.dup(bridge())).sendall(data)
";

/// A node with an agent that behaves.
fn lab(name: &str) -> Lab {
    let lab = Lab::start(name);
    lab.deploy(&agent("other", "def __init__(self):\n    self.n = 0\ndef on_message(self, ctx, m):\n    self.n += 1\n    return [self.n, ctx.networks()['name']]"));
    lab
}

/// Deploys an agent whose `on_message` is well for `null`, and runs these lines for everything else.
fn hostile(lab: &Lab, id: &str, lines: &str) {
    let lines: String = lines.lines().map(|line| format!("    {line}\n")).collect();
    let body = format!(
        "def on_message(self, ctx, message):\n    if message is None:\n        return 'well'\n{lines}"
    );
    lab.deploy(&format!("{TOOLS}{}", agent(id, &body)));
}

/// The error of one invocation, which must come soon; then it and the other agent are well.
fn error_of(lab: &Lab, id: &str, message: Value) -> String {
    let before = Instant::now();
    let (_, text) = lab.err("invoke_agent", json!({"agent_id": id, "message": message}));
    assert!(before.elapsed() < Duration::from_secs(8), "{id} after {:?}: {text}", before.elapsed());
    all_well(lab, id);
    text
}

fn all_well(lab: &Lab, id: &str) {
    assert_eq!(lab.invoke(id, json!(null)), json!("well"), "{id}");
    others_well(lab);
}

fn others_well(lab: &Lab) {
    let before = Instant::now();
    assert_eq!(lab.invoke("other", json!({}))[1], json!(lab.running.node.name()));
    assert!(before.elapsed() < Duration::from_secs(5), "the other agent waited {:?}", before.elapsed());
    assert!(lab.logged().matches("agent_process_ended agent=other").count() == 0);
}

#[test]
fn what_is_no_frame_ends_the_process_and_says_so() {
    let lab = lab("garbage");
    hostile(&lab, "bad", "send(eval(message))\nreturn 'went on'");
    for (data, part) in [
        ("b'garbage\\n'", "no frame"),
        ("b'\\n'", "no frame"),
        ("b'\\0\\0\\n'", "no frame"),
        ("b'\\xff\\xfe\\n'", "no frame"),
        ("b'{\"done\":99,\"result\":\"\\xff\"}\\n'", "no frame"),
        ("b'{\"done\":99,'", "no frame"), // half a frame: the real answer completes the nonsense
        ("b'{\"done\":1e99,\"result\":1}\\n'", "no frame"),
        ("b'{\"done\":-1,\"result\":1}\\n'", "no frame"),
        ("b'{\"done\":99,\"done\":98,\"result\":1}\\n'", "no frame"),
        ("b'{\"reply\":1,\"result\":2}\\n'", "no frame"),
        ("b'{\"hello\":1}\\n'", "no frame"),
        ("b'[]\\n'", "no frame"),
        ("b'[' * 1000000 + b'\\n'", "no frame"),
        ("b'{}\\n'", "neither a call nor an answer"),
        ("b'{\"done\":99,\"call\":1,\"result\":1}\\n'", "neither a call nor an answer"),
        ("b'{\"done\":99}\\n'", "without a result"),
        ("b'{\"failed\":99}\\n'", "without an error"),
        ("b'{\"call\":1}\\n'", "without a name"),
        ("b'{\"call\":1,\"name\":\"run\"}\\n'", "without arguments"),
        ("b'{\"call\":1,\"args\":{},\"name\":\"' + b'x' * 1000000 + b'\"}\\n'", "a name of 1000000 bytes"),
        ("b'x' * 40000000", "more than 34603008 bytes in one frame"),
        (
            "b'{\"done\":99,\"result\":\"' + b'x' * 40000000 + b'\"}\\n'",
            "more than 34603008 bytes in one frame",
        ),
    ] {
        let text = error_of(&lab, "bad", json!(data));
        assert!(text.contains("the agent's process was ended") && text.contains(part), "{data}: {text}");
    }
}

#[test]
fn answers_to_other_hooks_and_calls_of_nobody_change_nothing() {
    let lab = lab("true-name");
    hostile(&lab, "forger", "for number in (0, ctx._hook - 1, ctx._hook + 1, ctx._hook + 2, 10**6, 2**64 - 1):\n    send(b'{\"done\":%d,\"result\":\"forged\",\"memory\":{\"n\":1}}\\n' % number)\n    send(b'{\"failed\":%d,\"error\":{\"type\":\"T\",\"text\":\"t\",\"traceback\":[]}}\\n' % number)\nsend(b'{\"loaded\":true}\\n{\"refused\":{\"type\":\"T\",\"text\":\"t\",\"traceback\":[]}}\\n')\nsend(b'{\"done\":99,\"result\":' + b'[' * 200000 + b']' * 200000 + b'}\\n')\nsend(b'{\"call\":0,\"name\":\"no_such_call\",\"args\":[1]}\\n{\"call\":18446744073709551615,\"hook\":77,\"name\":\"move\",\"args\":[]}\\n')\nreturn ctx.networks()['name']");
    for _ in 0..3 {
        assert_eq!(lab.invoke("forger", json!(1)), json!("true-name"));
        all_well(&lab, "forger");
    }
    assert!(lab.has("forger"), "it may not move between hooks");
}

#[test]
fn an_agent_that_answers_its_own_hook_early_has_answered() {
    let lab = lab("early");
    hostile(
        &lab,
        "early",
        "send(b'{\"done\":%d,\"result\":\"early\"}\\n' % ctx._hook)\ntime.sleep(0.3)\nreturn 'late'",
    );
    for _ in 0..3 {
        assert_eq!(lab.invoke("early", json!(1)), json!("early"));
        all_well(&lab, "early");
    }
}

#[test]
fn a_forged_error_or_memory_is_bounded() {
    let lab = lab("bounded");
    hostile(&lab, "liar", "error = b'{\"type\":\"%s\",\"text\":\"%s\",\"traceback\":[%s]}' % (b'T' * 1000000, '\u{fc}'.encode() * 1000000, b','.join([b'\"' + b'z' * 100000 + b'\"'] * 100))\nsend(b'{\"failed\":%d,\"left\":[%s],\"error\":%s}\\n' % (ctx._hook, b','.join([b'\"' + b'y' * 1000 + b'\"'] * 10000), error))\nreturn 1");
    let answer = lab.ask("invoke_agent", json!({"agent_id": "liar", "message": 1}));
    assert!(answer.code() == Some("agent_error") && answer.line().len() < 1 << 20, "{}", answer.line().len());
    assert!(lab.log.lock().unwrap().len() < 100_000);
    all_well(&lab, "liar");
    // A memory that no message could carry.
    hostile(
        &lab,
        "deep",
        "send(b'{\"done\":%d,\"result\":1,\"memory\":%s}\\n' % (ctx._hook, b'[' * 200000 + b']' * 200000))",
    );
    let (code, text) = lab.err("invoke_agent", json!({"agent_id": "deep", "message": 1}));
    assert!(code == "agent_error" && (text.contains("memory") || text.contains("frame")), "{code} {text}");
    all_well(&lab, "deep");
}

#[test]
fn a_flood_of_calls_whose_replies_nobody_reads_ends_with_the_hook() {
    let lab = lab("flood");
    for (id, name) in [("quick-flood", "log"), ("slow-flood", "run"), ("no-flood", "no_such_call")] {
        hostile(&lab, id, &format!("line = b'{{\"call\":1,\"hook\":null,\"name\":\"{name}\",\"args\":{{\"message\":\"\"}}}}\\n'\nwhile True:\n    send(line * 1000)"));
        let before = Instant::now();
        std::thread::scope(|scope| {
            let asked = scope
                .spawn(|| lab.err("invoke_agent", json!({"agent_id": id, "message": 1, "timeout": 1.5})));
            while !asked.is_finished() {
                others_well(&lab);
            }
            let (code, text) = asked.join().unwrap();
            assert!(code == "timeout" && text.contains("longer than its 1.5"), "{id}: {code} {text}");
        });
        assert!(before.elapsed() < Duration::from_secs(6), "{id}: {:?}", before.elapsed());
        all_well(&lab, id);
    }
    lab.log.lock().unwrap().clear();
}

#[test]
fn an_agent_that_reads_its_bridge_byte_by_byte_keeps_nobody_beyond_the_deadline() {
    let lab = lab("drip");
    hostile(&lab, "drip", "def receive(flags=0, sock=ctx._bridge.sock):\n    sock.recv(1)\n    time.sleep(0.05)\nctx._bridge.receive = receive\nreturn 'slow from now on'");
    assert_eq!(lab.invoke("drip", json!(1)), json!("slow from now on"));
    let before = Instant::now();
    let (_, text) =
        lab.err("invoke_agent", json!({"agent_id": "drip", "message": "x".repeat(1 << 20), "timeout": 1}));
    assert!(text.contains("does not read its bridge"), "{text}");
    assert!(before.elapsed() < Duration::from_secs(5), "{:?}", before.elapsed());
    all_well(&lab, "drip");
}

#[test]
fn an_agent_that_closes_its_bridge_is_ended() {
    let lab = lab("closed");
    for (id, how, part) in [
        ("closes", "os.close(bridge())", "it closed its bridge"),
        ("hides", "os.dup2(os.open('/dev/null', os.O_RDWR), bridge())", "it closed its bridge"),
        ("shuts", "ctx._bridge.sock.shutdown(socket.SHUT_WR)", "it closed its bridge"),
        ("crosses", "os.dup2(1, bridge())", "it closed its bridge"),
    ] {
        hostile(&lab, id, &format!("ctx.log('pid %d.' % os.getpid())\n{how}\ntime.sleep(60)"));
        let text = error_of(&lab, id, json!(1));
        assert!(text.contains(part), "{id}: {text}");
        let logged = lab.logged();
        let pid = logged.rsplit("pid ").next().unwrap().split('.').next().unwrap();
        until(5, "the process is gone", || !std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
    // Without the sleep it ends by itself, one way or the other.
    hostile(&lab, "closes-and-returns", "os.close(bridge())\nreturn 1");
    let text = error_of(&lab, "closes-and-returns", json!(1));
    assert!(text.contains("the agent's process"), "{text}");
}

#[test]
fn what_a_dead_agents_child_writes_to_its_bridge_does_not_keep_it_alive() {
    let lab = lab("haunted");
    hostile(&lab, "ghost", "number, hook = bridge(), ctx._hook\nif os.fork() == 0:\n    os.setsid()\n    while True:\n        os.write(number, b'{\"done\":%d,\"result\":\"from the grave\"}\\n' % (hook + 1) * 100)\nos._exit(5)");
    let text = error_of(&lab, "ghost", json!(1));
    assert!(text.contains("status 5"), "{text}");
}

#[test]
fn garbage_between_hooks_costs_the_agent_its_process_and_nothing_else() {
    let lab = lab("between");
    hostile(
        &lab,
        "later",
        "threading.Timer(0.05, send, [b'garbage\\n']).start()\nself.kept = 'kept'\nreturn 'now'",
    );
    for count in 1..3 {
        assert_eq!(lab.invoke("later", json!(1)), json!("now"));
        until(5, "it is ended", || lab.logged().matches("agent_process_ended agent=later").count() == count);
        all_well(&lab, "later");
    }
}

#[test]
fn output_without_end_keeps_neither_the_agent_nor_others_from_answering() {
    let lab = lab("loud");
    hostile(&lab, "loud", "def shout():\n    while True:\n        os.write(1, b'x' * 65536)\nthreading.Thread(target=shout, daemon=True).start()\nreturn os.getpid()");
    let pid = lab.invoke("loud", json!(1));
    for _ in 0..20 {
        all_well(&lab, "loud");
    }
    let size = lab.log.lock().unwrap().len();
    assert!(size < 400_000, "bounded: {size}");
    lab.ok("remove_agent", json!({"agent_id": "loud"}));
    until(5, "it is gone", || !std::path::Path::new(&format!("/proc/{pid}")).exists());
}

/// How much of the log is about this agent, bytes.
fn said_by(lab: &Lab, id: &str) -> usize {
    let mark = format!("agent={id} ");
    lab.logged().lines().filter(|line| line.contains(&mark)).map(str::len).sum()
}

#[test]
fn ten_thousand_lines_for_the_log_are_quick_and_bounded_and_what_is_left_out_is_counted() {
    let lab = lab("logs");
    hostile(&lab, "logs", "for number in range(10000):\n    ctx.log('line', n=number)\nreturn 'logged'");
    let before = Instant::now();
    assert_eq!(lab.invoke("logs", json!(1)), json!("logged"));
    assert!(before.elapsed() < Duration::from_secs(15), "{:?}", before.elapsed());
    all_well(&lab, "logs");
    lab.ok("remove_agent", json!({"agent_id": "logs"}));
    until(5, "its end is told", || lab.logged().contains("agent_process_ended agent=logs"));
    let logged = lab.logged();
    let lines = logged.matches("agent_log agent=logs").count();
    assert!((2000..9999).contains(&lines), "{lines}");
    let left_out: usize = logged
        .lines()
        .filter(|line| line.contains("agent_left_out agent=logs"))
        .map(|line| line.split("… ").nth(1).unwrap().split(' ').next().unwrap().parse::<usize>().unwrap())
        .sum();
    assert_eq!(lines + left_out, 10_000, "each line is there or counted");
    lab.log.lock().unwrap().clear();
}

/// Each way to the log, from an agent that knows no end.
#[test]
fn an_agent_that_talks_in_a_loop_does_not_fill_the_log_whichever_way_it_talks() {
    let lab = lab("talk");
    for (id, line) in [
        ("logger", "ctx.log('x' * 3000)"),
        ("printer", "print('y' * 1000, flush=True)"),
        ("namer", "send(b'{\"done\":%d,\"result\":1,\"left\":[\"' % 10**9 + b'z' * 200 + b'\"]}\\n')"),
        ("waker", "try:\n        ctx.wake('me', 1)\n    except Exception:\n        pass"),
    ] {
        let text = format!("for n in range(4000):\n    {line}\nreturn 'said'");
        hostile(&lab, id, &text);
        // A message of the waker's own brings about more of them; half of those fail.
        assert_eq!(lab.invoke(id, json!(1)), json!("said"), "{id}");
        others_well(&lab);
        let said = said_by(&lab, id);
        assert!(said < 700_000, "{id}: {said}");
        lab.ok("remove_agent", json!({"agent_id": id}));
    }
    lab.log.lock().unwrap().clear();
}

#[test]
fn an_agent_may_do_as_it_likes_with_its_descriptors_zero_to_two() {
    let lab = lab("standard");
    hostile(&lab, "mute", "null = os.open('/dev/null', os.O_RDWR)\nfor number in (0, 1, 2):\n    os.dup2(null, number)\nprint('into the void')\nreturn ctx.networks()['name']");
    hostile(&lab, "shut", "import sys\nsys.stdout.close()\nsys.stderr = None\nfor number in (0, 1, 2):\n    os.close(number)\nopen('/dev/null')\nreturn ctx.networks()['name']");
    for id in ["mute", "shut"] {
        assert_eq!(lab.invoke(id, json!(1)), json!("standard"), "{id}");
        all_well(&lab, id);
    }
    hostile(
        &lab,
        "onto",
        "for number in (1, 2):\n    os.dup2(bridge(), number)\nprint('this goes to the node')\nreturn 1",
    );
    let text = error_of(&lab, "onto", json!(1));
    assert!(text.contains("no frame"), "{text}");
    assert_eq!(lab.logged().matches("this goes to the node").count(), 0);
}
