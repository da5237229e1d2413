//! Agents on one node: hooks, memory, errors, ends. Real python3 processes.

#[path = "support/mod.rs"]
mod support;
use agentcontainer::node::Keys;
use serde_json::{json, Value};
use std::time::{Duration, Instant};
use support::lab::{agent, keys, until, Lab};

const COUNTER: &str = "def __init__(self):\n    self.count = 0\ndef on_message(self, ctx, message):\n    self.count += 1\n    return self.count";

#[test]
fn an_agent_is_deployed_activated_and_answers() {
    let lab = Lab::start("one");
    let source = agent("echo", "def on_activate(self, ctx, payload):\n    return {'here': ctx.container_name, 'got': payload}\ndef on_message(self, ctx, message):\n    return [message, ctx.agent_id, ctx.trace]");
    let result = lab.deploy(&source);
    assert_eq!(result["activate_result"], json!({"here": "one", "got": {}}), "{result}");
    assert_eq!((result["status"].as_str(), result["sequence"].as_u64()), (Some("active"), Some(1)));
    assert_eq!(lab.invoke("echo", json!({"a": 1})), json!([{"a": 1}, "echo", []]));
    assert_eq!(
        lab.ok("invoke_agent", json!({"agent_id": "echo"}))["result"],
        json!([{}, "echo", []]),
        "absent: {{}}"
    );
    assert_eq!(
        lab.ok("invoke_agent", json!({"agent_id": "echo", "message": null}))["result"][0],
        Value::Null
    );
}

#[test]
fn an_agent_without_activate_payload_is_not_activated() {
    let lab = Lab::start("quiet");
    let source = agent("quiet", "def on_activate(self, ctx, payload):\n    self.woke = True\ndef on_message(self, ctx, m):\n    return hasattr(self, 'woke')");
    let result = lab.ok("deploy_agent", json!({"source_code": source}));
    assert_eq!((result["status"].as_str(), &result["activate_result"]), (Some("registered"), &Value::Null));
    assert_eq!(lab.invoke("quiet", json!(1)), json!(false));
}

#[test]
fn numbers_and_text_pass_through_as_they_are() {
    let lab = Lab::start("numbers");
    lab.deploy(&agent("echo", "def on_message(self, ctx, m):\n    return m"));
    let message = r#"{"agent_id":"echo","message":[9007199254740993,18446744073709551617,1.0,-0.0,1e-7,"ü \u2028 \ud83d\ude00 \u0000"]}"#;
    let answer = lab.ask_as("admin", support::lab::ADMIN, "invoke_agent", message);
    let result = answer.result().unwrap();
    for part in ["9007199254740993", "18446744073709551617", "1.0", "-0.0", "1e-07"] {
        assert!(result.contains(part), "{part}: {result}");
    }
    let told: Value = serde_json::from_str(result).unwrap();
    assert_eq!(told["result"][5], json!("ü \u{2028} 😀 \0"));
}

#[test]
fn async_hooks_run_without_a_loop_with_one_and_side_by_side() {
    let lab = Lab::start("async");
    let plain = agent("plain", "async def on_message(self, ctx, m):\n    names = await ctx.capabilities()\n    tree = await ctx.networks()\n    return [len(names) > 5, tree['name']]");
    lab.deploy(&plain);
    assert_eq!(lab.invoke("plain", json!({})), json!([true, "async"]));
    let looped = format!("import asyncio\n{}", agent("looped", "async def on_message(self, ctx, m):\n    task = asyncio.create_task(ctx.stage()) if hasattr(asyncio, 'create_task') else asyncio.ensure_future(ctx.stage())\n    await asyncio.sleep(0.01)\n    both = await asyncio.gather(ctx.run(['sleep', '0.5']), ctx.run(['sleep', '0.5']), asyncio.sleep(0.5))\n    return [r['returncode'] for r in both[:2]] + [await task, await asyncio.wait_for(ctx.state_dir(), 5) != '']"));
    lab.deploy(&looped);
    let before = Instant::now();
    assert_eq!(lab.invoke("looped", json!({})), json!([0, 0, null, true]));
    assert!(
        before.elapsed() < Duration::from_millis(1400),
        "two sleeps side by side took {:?}",
        before.elapsed()
    );
}

#[test]
fn a_call_that_is_not_awaited_is_made_and_done_before_the_answer() {
    let lab = Lab::start("unawaited");
    for (id, import) in [("with-loop", "import asyncio\n"), ("without-loop", "")] {
        let source = agent(id, "async def on_message(self, ctx, m):\n    ctx.run(['sh', '-c', 'echo made > $HOME/made'])\n    ctx.read_file('missing')\n    return 'over'");
        lab.deploy(&format!("{import}{source}"));
        let made = lab.dir.path().join("data/made");
        let _ = std::fs::remove_file(&made);
        assert_eq!(lab.invoke(id, json!({})), json!("over"));
        assert!(made.exists(), "{id}");
        until(5, "the failed call is told", || {
            lab.logged().contains("was not awaited and failed: not_found")
        });
    }
}

#[test]
fn a_thread_of_an_async_hook_makes_blocking_calls() {
    let lab = Lab::start("threads");
    lab.deploy(&format!("import asyncio\n{}", agent("threads", "async def on_message(self, ctx, m):\n    loop = asyncio.get_event_loop()\n    inner = await loop.run_in_executor(None, lambda: ctx.networks()['name'])\n    return [inner, (await ctx.networks())['name']]")));
    assert_eq!(lab.invoke("threads", json!({})), json!(["threads", "threads"]));
    let source = agent("sync", "def on_message(self, ctx, m):\n    import threading\n    got = []\n    crew = [threading.Thread(target=lambda: got.append(ctx.run(['echo', 'x'])['stdout'])) for _ in range(8)]\n    [t.start() for t in crew]\n    [t.join() for t in crew]\n    return got");
    lab.deploy(&source);
    assert_eq!(lab.invoke("sync", json!({})), json!(vec!["x\n"; 8]));
}

#[test]
fn hooks_of_one_agent_run_one_at_a_time_in_order() {
    let lab = Lab::start("order");
    lab.deploy(&agent("slow", "def __init__(self):\n    self.seen = []\n    self.inside = 0\ndef on_message(self, ctx, m):\n    import time\n    self.inside += 1\n    assert self.inside == 1\n    time.sleep(0.02)\n    self.inside -= 1\n    self.seen.append(m)\n    return self.seen"));
    std::thread::scope(|scope| {
        for number in 0..10 {
            let lab = &lab;
            scope.spawn(move || lab.invoke("slow", json!(number)));
        }
    });
    assert_eq!(lab.invoke("slow", json!("last")).as_array().unwrap().len(), 11);
}

#[test]
fn an_exception_comes_back_as_type_text_and_the_agents_own_lines() {
    let lab = Lab::start("raises");
    lab.deploy(&agent("raises", "def on_message(self, ctx, m):\n    return self.helper(m)\ndef helper(self, m):\n    import json\n    return json.loads(m)"));
    let answer = lab.ask("invoke_agent", json!({"agent_id": "raises", "message": "{nope"}));
    assert_eq!(answer.code(), Some("agent_error"));
    let error: Value = serde_json::from_str(answer.field("agent_error").unwrap()).unwrap();
    assert_eq!(error["type"], "json.decoder.JSONDecodeError");
    let lines: Vec<&str> =
        error["traceback"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    assert_eq!(
        lines,
        ["agent.py:6, in on_message: return self.helper(m)", "agent.py:9, in helper: return json.loads(m)"]
    );
    assert!(answer.error().unwrap().contains("Expecting property name"), "{:?}", answer.error());
}

#[test]
fn what_json_cannot_say_is_an_error_that_names_the_type() {
    let lab = Lab::start("unsayable");
    let cases = [
        ("{1, 2}", "set"),
        ("object()", "object"),
        ("{'a': [b'x']}", "bytes"),
        ("float('nan')", "nan"),
        ("'\\ud800'", "surrogate"),
        ("{(1, 2): 3}", "tuple"),
    ];
    for (index, (value, part)) in cases.iter().enumerate() {
        let id = format!("bad-{index}");
        lab.deploy(&agent(&id, &format!("def on_message(self, ctx, m):\n    return {value}")));
        let (code, text) = lab.err("invoke_agent", json!({"agent_id": id}));
        assert!(code == "agent_error" && text.contains(part), "{value}: {code} {text}");
    }
    for (id, body, part) in [
        ("deep", "x = 1\n    for _ in range(70):\n        x = [x]\n    return x", "nested"),
        ("twice", "return {1: 'a', '1': 'b'}", "twice"),
        ("loop", "x = []\n    x.append(x)\n    return x", "contains itself"),
    ] {
        lab.deploy(&agent(id, &format!("def on_message(self, ctx, m):\n    {body}")));
        let (code, text) = lab.err("invoke_agent", json!({"agent_id": id}));
        assert!(
            code == "agent_error" && (text.contains(part) || text.contains("answer")),
            "{id}: {code} {text}"
        );
    }
    lab.deploy(&agent("tuple", "def on_message(self, ctx, m):\n    return (1, {2: 3}, None, True)"));
    assert_eq!(lab.invoke("tuple", json!({})), json!([1, {"2": 3}, null, true]));
}

#[test]
fn a_process_that_ends_in_a_hook_is_an_error_and_the_next_message_finds_an_agent() {
    let lab = Lab::start("ends");
    lab.deploy(&agent("other", COUNTER));
    let body = "def __init__(self):\n    self.count = 0\ndef on_message(self, ctx, how):\n    import os, signal, sys, ctypes\n    if how == 'exit':\n        sys.exit(4)\n    if how == '_exit':\n        os._exit(3)\n    if how == 'kill':\n        os.kill(os.getpid(), signal.SIGKILL)\n    if how == 'segv':\n        ctypes.string_at(0)\n    if how == 'group':\n        os.killpg(0, signal.SIGTERM)\n    self.count += 1\n    return self.count";
    lab.deploy(&agent("ends", body));
    assert_eq!(lab.invoke("ends", json!("count")), json!(1));
    for (expected, (how, part)) in [
        ("exit", "status 4"),
        ("_exit", "status 3"),
        ("kill", "SIGKILL"),
        ("segv", "SIGSEGV"),
        ("group", "SIGTERM"),
    ]
    .into_iter()
    .enumerate()
    {
        let before = Instant::now();
        let (code, text) = lab.err("invoke_agent", json!({"agent_id": "ends", "message": how}));
        assert!(code == "agent_error" && text.contains(part), "{how}: {code} {text}");
        assert!(before.elapsed() < Duration::from_secs(2), "{how}: {:?}", before.elapsed());
        assert_eq!(
            lab.invoke("ends", json!("count")),
            json!(expected + 2),
            "{how}: memory as of the last hook"
        );
    }
    assert_eq!(lab.invoke("other", json!({})), json!(1));
}

#[test]
fn a_hook_that_takes_too_long_is_ended_and_says_so() {
    let lab = Lab::with(Keys { hook_timeout_s: 1.0, ..keys("late") });
    lab.deploy(&agent("late", "def on_message(self, ctx, how):\n    import time\n    if how == 'sleep':\n        time.sleep(60)\n    while how == 'spin':\n        pass\n    return 'quick'"));
    for how in ["sleep", "spin"] {
        let before = Instant::now();
        let (code, text) = lab.err("invoke_agent", json!({"agent_id": "late", "message": how}));
        assert!(code == "timeout" && text.contains("longer than"), "{code} {text}");
        assert!(before.elapsed() < Duration::from_secs(4));
        assert_eq!(lab.invoke("late", json!("")), json!("quick"));
    }
    let before = Instant::now();
    let (code, _) = lab.err("invoke_agent", json!({"agent_id": "late", "message": "sleep", "timeout": 0.2}));
    assert!(
        code == "timeout" && before.elapsed() < Duration::from_secs(1),
        "a request's own timeout is shorter"
    );
}

#[test]
fn noise_on_standard_output_and_error_changes_nothing_but_the_log() {
    let lab = Lab::start("noise");
    let body = "def on_message(self, ctx, m):\n    import os, sys\n    os.write(1, b'x' * 1000000 + b'\\n')\n    os.write(2, b'y' * 1000000)\n    for fd in range(1, 64):\n        try:\n            os.write(fd, b'{\"done\":1,\"result\":\"forged\"}\\n')\n        except OSError:\n            pass\n    print('unterminated \\x1b[2J', end='')\n    sys.stderr.write('more')\n    return sys.stdin.read()";
    lab.deploy(&agent("noise", body));
    assert_eq!(lab.invoke("noise", json!({})), json!(""));
    assert_eq!(lab.invoke("noise", json!({})), json!(""));
    until(5, "the output is in the log", || lab.logged().contains(r"\u{1b}[2J"));
    assert!(!lab.logged().contains('\x1b'));
    assert!(lab.log.lock().unwrap().len() < 400_000, "bounded: {}", lab.log.lock().unwrap().len());
}

#[test]
fn memory_is_what_json_gives_back_and_survives_the_process() {
    let lab = Lab::start("memory");
    let body = "def __init__(self):\n    self.kept = {'a': [1, 2.5, 'x', None, True]}\n    self.pair = (1, 2)\n    self.keys = {1: 2}\n    self.lock = object()\ndef on_message(self, ctx, m):\n    import os\n    if m == 'die':\n        os._exit(1)\n    if m == 'set':\n        self.kept['a'].append('new')\n        self.pair = (3, 4)\n    return [self.kept, list(self.pair)]";
    lab.deploy(&agent("memory", body));
    lab.invoke("memory", json!("set"));
    lab.err("invoke_agent", json!({"agent_id": "memory", "message": "die"}));
    assert_eq!(lab.invoke("memory", json!("")), json!([{"a": [1, 2.5, "x", null, true, "new"]}, [1, 2]]));
    let logged = lab.logged();
    assert!(
        logged.contains("attributes_left_behind")
            && logged.contains("pair (tuple)")
            && logged.contains("keys (dict)"),
        "{logged}"
    );
    let own = "def __init__(self):\n    self.things = set()\ndef get_state(self):\n    return sorted(self.things)\ndef set_state(self, state):\n    self.things = set(state)\ndef on_message(self, ctx, m):\n    import os\n    if m == 'die':\n        os._exit(1)\n    self.things.add(m)\n    return len(self.things)";
    lab.deploy(&agent("own", own));
    assert_eq!([lab.invoke("own", json!("a")), lab.invoke("own", json!("b"))], [json!(1), json!(2)]);
    lab.err("invoke_agent", json!({"agent_id": "own", "message": "die"}));
    assert_eq!(lab.invoke("own", json!("c")), json!(3));
}

#[test]
fn a_deployment_replaces_and_keeps_the_memory_unless_told() {
    let lab = Lab::start("replace");
    let second =
        agent("a", "def on_message(self, ctx, m):\n    return ['second', getattr(self, 'count', None)]");
    lab.deploy(&agent("a", COUNTER));
    assert_eq!(lab.invoke("a", json!({})), json!(1));
    let result = lab.deploy(&second);
    assert_eq!(result["sequence"], 2);
    assert_eq!(lab.invoke("a", json!({})), json!(["second", 1]));
    lab.ok("deploy_agent", json!({"source_code": second, "fresh": true}));
    assert_eq!(lab.invoke("a", json!({})), json!(["second", null]));
    // A source that does not load replaces nothing.
    let broken = agent("a", "def on_message(self, ctx, m)\n    return 1");
    let (code, text) = lab.err("deploy_agent", json!({"source_code": broken}));
    assert!(code == "agent_error" && text.contains("SyntaxError"), "{code} {text}");
    assert_eq!(lab.invoke("a", json!({})), json!(["second", null]));
}

#[test]
fn a_source_that_is_no_agent_is_refused_with_its_reason() {
    let lab = Lab::start("refuse");
    let head = "AGENT_ID = 'x'\nAGENT_SECRET = 's'\n";
    for (source, code, part) in [
        ("x = 1".to_owned(), "bad_payload", "AGENT_ID"),
        ("AGENT_ID = 'admin'\nAGENT_SECRET = 's'".into(), "bad_payload", "taken"),
        (format!("{head}x = 1"), "agent_error", "no class Agent"),
        (
            format!("{head}class Agent:\n    def __init__(self):\n        raise ValueError('not today')"),
            "agent_error",
            "not today",
        ),
        (format!("{head}import nothing_like_it\nclass Agent: pass"), "agent_error", "nothing_like_it"),
        (format!("{head}class Agent: pass\nif True:\n    AGENT_ID = 'y'"), "agent_error", "more than once"),
        (format!("{head}class Agent: pass\nglobals()['AGENT_SECRET'] = 't'"), "agent_error", "another value"),
        (
            format!("{head}class Agent: pass\nfrom os import path as AGENT_ID"),
            "agent_error",
            "more than once",
        ),
        (format!("{head}class Agent: pass\nimport sys\nsys.exit(7)"), "agent_error", "status 7"),
        ("x = '''\nAGENT_ID = 'a'\n'''\nAGENT_SECRET = 's'".into(), "bad_payload", "AGENT_ID"),
        (format!("{head}x = 1{}\nclass Agent: pass", "+1".repeat(400_000)), "agent_error", ""),
        (format!("{head}x = {}\nclass Agent: pass", "(".repeat(10_000)), "agent_error", ""),
        (
            format!("{head}x = {}1{}\nclass Agent: pass", "[".repeat(10_000), "]".repeat(10_000)),
            "agent_error",
            "",
        ),
    ] {
        let (got, text) = lab.err("deploy_agent", json!({"source_code": source}));
        assert!(got == code && text.contains(part), "{}…: {got} {text}", &source[..source.len().min(120)]);
        assert!(!lab.has("x"));
    }
    lab.deploy(&agent("fine", COUNTER));
    assert_eq!(lab.invoke("fine", json!({})), json!(1));
}

#[test]
fn a_load_that_takes_too_long_is_refused() {
    let lab = Lab::with(Keys { hook_timeout_s: 1.0, ..keys("slow-load") });
    let source = format!("import time\ntime.sleep(60)\n{}", agent("slow", COUNTER));
    // Starting Python is not what takes too long here.
    until(30, "a worker is parked", || lab.running.node.pool.parked() > 0);
    let (code, text) = lab.err("deploy_agent", json!({"source_code": source}));
    assert!(code == "timeout" && text.contains("loading the source"), "{code} {text}");
    assert!(!lab.has("slow"));
}

#[test]
fn what_goes_wrong_in_on_activate_is_told_inside_the_result() {
    let lab = Lab::start("activate");
    let result = lab.deploy(&agent(
        "a",
        "def on_activate(self, ctx, p):\n    return 1 / 0\ndef on_message(self, ctx, m):\n    return 'here'",
    ));
    assert_eq!(
        (result["status"].as_str(), result["activate_error"]["agent_error"]["type"].as_str()),
        (Some("failed"), Some("ZeroDivisionError"))
    );
    assert_eq!(lab.invoke("a", json!({})), json!("here"));
    let result = lab.deploy(&agent(
        "deep",
        "def on_activate(self, ctx, p):\n    x = 1\n    for _ in range(62):\n        x = [x]\n    return x",
    ));
    assert!(result["activate_result"].is_null() && result["result_error"].is_string(), "{result}");
}

#[test]
fn an_idle_agent_gives_its_process_back_and_wakes_with_its_memory() {
    let lab = Lab::with(Keys { idle_timeout_s: 0.3, ..keys("idle") });
    lab.deploy(&agent("idle", COUNTER));
    assert_eq!(lab.invoke("idle", json!({})), json!(1));
    until(10, "it hibernates", || lab.ok("list_agents", json!({}))[0]["live"] == json!(false));
    assert_eq!(lab.invoke("idle", json!({})), json!(2));
}

#[test]
fn above_max_live_agents_the_longest_idle_one_gives_way() {
    let lab = Lab::with(Keys { max_live_agents: 2, ..keys("few") });
    for id in ["a", "b", "c", "d"] {
        lab.deploy(&agent(id, COUNTER));
        lab.invoke(id, json!({}));
    }
    let listed = lab.ok("list_agents", json!({}));
    let live: Vec<_> =
        listed.as_array().unwrap().iter().filter(|agent| agent["live"] == json!(true)).collect();
    assert!(listed.as_array().unwrap().len() == 4 && live.len() <= 2, "{listed}");
    for id in ["a", "b", "c", "d"] {
        assert_eq!(lab.invoke(id, json!({})), json!(2), "{id}");
    }
}

#[test]
fn a_full_inbox_and_a_full_node_say_so() {
    let lab = Lab::with(Keys { inbox_length: 1, max_agents: 2, ..keys("full") });
    lab.deploy(&agent(
        "slow",
        "def on_message(self, ctx, m):\n    import time\n    time.sleep(1)\n    return 1",
    ));
    let codes: Vec<String> = std::thread::scope(|scope| {
        let crew: Vec<_> =
            (0..4).map(|_| scope.spawn(|| lab.ask("invoke_agent", json!({"agent_id": "slow"})))).collect();
        crew.into_iter().map(|asked| asked.join().unwrap().code().unwrap_or("ok").to_owned()).collect()
    });
    assert_eq!(codes.iter().filter(|code| *code == "ok").count(), 2, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| *code == "busy").count(), 2, "{codes:?}");
    lab.deploy(&agent("two", COUNTER));
    let (code, text) = lab.err("deploy_agent", json!({"source_code": agent("three", COUNTER)}));
    assert!(code == "rejected" && text.contains("max_agents"), "{code} {text}");
    lab.deploy(&agent("two", COUNTER));
}

#[test]
fn an_agent_wakes_itself() {
    let lab = Lab::start("wake");
    lab.deploy(&agent("wake", "def on_activate(self, ctx, p):\n    ctx.wake('me', {'n': 1})\n    self.got = []\ndef on_message(self, ctx, m):\n    self.got.append(m)\n    return self.got"));
    until(5, "the message came", || {
        lab.invoke("wake", json!("x"))[0] == json!({"from": "me", "message": {"n": 1}})
    });
}

#[test]
fn a_removed_agent_is_gone_with_its_files_and_its_running_hook() {
    let lab = Lab::start("remove");
    lab.deploy(&agent("gone", "def on_message(self, ctx, m):\n    import os, time\n    open(os.path.join(ctx.state_dir(), 'f'), 'w').close()\n    if m:\n        time.sleep(60)\n    return ctx.state_dir() == os.environ['AGENTCONTAINER_STATE_DIR']"));
    assert_eq!(lab.invoke("gone", json!(false)), json!(true));
    let dir = lab.dir.path().join("state/agents/gone");
    assert!(dir.join("state/f").is_file());
    let before = Instant::now();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| lab.err("invoke_agent", json!({"agent_id": "gone", "message": true})));
        until(5, "it runs", || lab.ok("list_agents", json!({}))[0]["status"] == "running");
        lab.ok("remove_agent", json!({"agent_id": "gone"}));
        let (code, text) = waiting.join().unwrap();
        assert!(code == "agent_error" && text.contains("removed"), "{code} {text}");
    });
    assert!(before.elapsed() < Duration::from_secs(10));
    until(5, "its files are gone", || !dir.exists());
    assert_eq!(lab.err("remove_agent", json!({"agent_id": "gone"})).0, "unknown_agent");
}

#[test]
fn fifty_deaths_and_two_hundred_commands_leave_nothing_behind() {
    let lab = Lab::start("leaks");
    lab.deploy(&agent("dies", "def on_message(self, ctx, m):\n    import os\n    os._exit(1)"));
    lab.deploy(&agent(
        "runs",
        "def on_message(self, ctx, n):\n    return sum(ctx.run(['true'])['returncode'] for _ in range(n))",
    ));
    let die = || drop(lab.err("invoke_agent", json!({"agent_id": "dies"})));
    die();
    lab.invoke("runs", json!(3));
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = count();
    for _ in 0..50 {
        die();
    }
    lab.invoke("runs", json!(200));
    // Other tests of this file run in the same process; the few descriptors that theirs hold at the
    // moment are far fewer than a leak of one each would leave.
    until(20, "the descriptors are given back", || count() < before + 60);
    let zombies = support::zombies_below(std::process::id());
    until(10, "no zombie is left", || support::zombies_below(std::process::id()).is_empty());
    drop(zombies);
}

/// An agent that starts processes in every way that loses their parent.
const DETACHES: &str = "def on_message(self, ctx, how):\n    import os, subprocess, time\n    mark = how[1]\n    subprocess.Popen(['sh', '-c', 'setsid sleep %s & sleep 0.05' % mark]).wait()\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0:\n            os.execvp('sleep', ['sleep', mark])\n        os._exit(0)\n    os.wait()\n    if how[0] == 'die':\n        os._exit(1)\n    return os.getppid()";

#[test]
fn what_an_agent_detached_ends_with_it_however_it_ends() {
    let lab = Lab::start("detached");
    for (number, how) in ["remove", "die", "replace", "stop"].into_iter().enumerate() {
        let mark = format!("77{number}.{}", std::process::id());
        lab.deploy(&agent("parent", DETACHES));
        let command = format!("sleep {mark}");
        let asked = lab.ask("invoke_agent", json!({"agent_id": "parent", "message": [how, mark]}));
        assert_eq!(asked.is_ok(), how != "die", "{}", asked.line());
        if how != "die" {
            until(5, "it runs", || support::is_running(&command));
        }
        match how {
            "remove" => drop(lab.ok("remove_agent", json!({"agent_id": "parent"}))),
            "replace" => drop(lab.ok("deploy_agent", json!({"source_code": agent("parent", COUNTER)}))),
            "stop" => lab.running.stop(Duration::from_secs(1)),
            _ => {}
        }
        until(5, how, || !support::is_running(&command));
    }
}

#[test]
fn everything_ends_with_the_node() {
    let lab = Lab::start("over");
    lab.deploy(&agent("child", "def on_message(self, ctx, m):\n    import subprocess\n    subprocess.Popen(['sleep', '4321'], start_new_session=True)\n    return __import__('os').getpid()"));
    let pid = lab.invoke("child", json!({})).as_i64().unwrap();
    assert!(std::path::Path::new(&format!("/proc/{pid}")).exists());
    drop(lab);
    until(5, "the agent's process is gone", || !std::path::Path::new(&format!("/proc/{pid}")).exists());
    until(5, "what it started is gone", || !support::is_running("sleep 4321"));
}

#[test]
fn the_zygote_may_die_and_the_agents_come_back_with_their_memory() {
    let lab = Lab::start("zygote");
    lab.deploy(&agent("a", COUNTER));
    lab.deploy(&agent("b", COUNTER));
    assert_eq!([lab.invoke("a", json!({})), lab.invoke("b", json!({}))], [json!(1), json!(1)]);
    for round in 2..5 {
        rustix::process::kill_process(zygote_of(&lab, "a"), rustix::process::Signal::KILL).unwrap();
        until(5, "the agents' processes end with it", || {
            ["a", "b"].iter().all(|id| lab.running.node.agent(id).unwrap().life.pid().is_none())
        });
        assert_eq!([lab.invoke("a", json!({})), lab.invoke("b", json!({}))], [json!(round), json!(round)]);
    }
}

/// The process from which this agent's was forked.
fn zygote_of(lab: &Lab, id: &str) -> rustix::process::Pid {
    let pid = lab.running.node.agent(id).unwrap().life.pid().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let parent = stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap().parse().unwrap();
    rustix::process::Pid::from_raw(parent).unwrap()
}

/// Stopped, it neither forks nor dies: whoever deploys would wait for as long as he may.
#[test]
fn a_zygote_that_is_stopped_is_replaced_and_said_so() {
    for parked_workers in [0, 1] {
        let lab = Lab::with(Keys { parked_workers, ..keys("stopped") });
        lab.deploy(&agent("a", COUNTER));
        assert_eq!(lab.invoke("a", json!({})), json!(1));
        let zygote = zygote_of(&lab, "a");
        rustix::process::kill_process(zygote, rustix::process::Signal::STOP).unwrap();
        for id in ["b", "c", "d"] {
            let order = json!({"source_code": agent(id, COUNTER), "timeout": 15});
            assert_eq!(lab.ok("deploy_agent", order)["status"], json!("registered"));
            assert_eq!(lab.invoke(id, json!({})), json!(1));
        }
        until(5, "it is gone", || {
            !std::path::Path::new(&format!("/proc/{}", zygote.as_raw_nonzero())).exists()
        });
        assert_eq!(lab.logged().matches("python_replaced").count(), 1, "{}", lab.logged());
        assert_eq!(lab.invoke("a", json!({})), json!(2));
        // A second one fares no worse, and a node that ends does not wait for it.
        rustix::process::kill_process(zygote_of(&lab, "a"), rustix::process::Signal::STOP).unwrap();
        let before = std::time::Instant::now();
        drop(lab);
        assert!(before.elapsed().as_secs() < 5, "{:?}", before.elapsed());
    }
}

#[test]
fn a_zygote_that_died_is_told_in_the_log() {
    let lab = Lab::start("told");
    lab.deploy(&agent("a", COUNTER));
    rustix::process::kill_process(zygote_of(&lab, "a"), rustix::process::Signal::KILL).unwrap();
    until(5, "the log says so", || lab.logged().contains("python_ended why=\"signal: 9"));
    until(5, "its agents end with it", || lab.running.node.agent("a").unwrap().life.pid().is_none());
    assert_eq!(lab.invoke("a", json!({})), json!(1));
}

#[test]
fn the_agents_secret_stays_out_of_log_and_errors() {
    let lab = Lab::start("hush");
    let secret = "TOPSECRET-123456789";
    let broken = format!("AGENT_ID = 'hush'\nif True:\nAGENT_SECRET = '{secret}'\nclass Agent: pass");
    let answer = lab.ask("deploy_agent", json!({"source_code": broken}));
    assert!(answer.code() == Some("agent_error") && !answer.line().contains(secret), "{}", answer.line());
    let talks = format!("AGENT_ID = 'talks'\nAGENT_SECRET = '{secret}'\nclass Agent:\n    def on_message(self, ctx, m):\n        print(AGENT_SECRET)\n        ctx.log('it is ' + AGENT_SECRET, s=AGENT_SECRET)\n        raise ValueError(AGENT_SECRET)");
    lab.deploy(&talks);
    let answer = lab.ask("invoke_agent", json!({"agent_id": "talks"}));
    assert!(answer.code() == Some("agent_error") && !answer.line().contains(secret), "{}", answer.line());
    until(5, "it is in the log", || lab.logged().contains("it is [its secret]"));
    assert!(!lab.logged().contains(secret));
}

#[test]
fn max_live_agents_holds_when_many_start_at_once() {
    let lab = Lab::with(Keys { max_live_agents: 2, ..keys("storm") });
    let body = "def on_message(self, ctx, m):\n    import time\n    time.sleep(0.5)\n    return 1";
    for number in 0..5 {
        lab.deploy(&agent(&format!("n{number}"), body));
    }
    std::thread::scope(|scope| {
        let crew: Vec<_> = (0..5)
            .map(|n| {
                let lab = &lab;
                scope.spawn(move || lab.ask("invoke_agent", json!({"agent_id": format!("n{n}")})))
            })
            .collect();
        let live = || {
            let listed = lab.ok("list_agents", json!({}));
            listed.as_array().unwrap().iter().filter(|agent| agent["live"] == json!(true)).count()
        };
        while !crew.iter().all(|one| one.is_finished()) {
            assert!(live() <= 2, "{}", live());
        }
        for one in crew {
            let answer = one.join().unwrap();
            assert!(answer.is_ok() || answer.code() == Some("busy"), "{}", answer.line());
        }
    });
}

#[test]
fn an_attribute_name_that_is_no_text_stays_behind() {
    let lab = Lab::start("odd-name");
    lab.deploy(&agent(
        "odd",
        "def on_message(self, ctx, m):\n    setattr(self, 'x\\ud800', 1)\n    self.n = 1\n    return 'well'",
    ));
    assert_eq!([lab.invoke("odd", json!({})), lab.invoke("odd", json!({}))], [json!("well"), json!("well")]);
}

#[test]
fn an_agent_that_closed_its_loops_descriptors_works_again_at_the_next_message() {
    let lab = Lab::start("closed-loop");
    let body = "async def on_message(self, ctx, close):\n    import os\n    if close:\n        os.closerange(3, 300)\n        return 'closed'\n    await asyncio.sleep(0.01)\n    return (await ctx.networks())['name']";
    lab.deploy(&format!("import asyncio\n{}", agent("closes", body)));
    for _ in 0..2 {
        let _ = lab.ask("invoke_agent", json!({"agent_id": "closes", "message": true, "timeout": 5}));
        assert_eq!(
            lab.ok("invoke_agent", json!({"agent_id": "closes", "message": false, "timeout": 5}))["result"],
            "closed-loop"
        );
    }
}

#[test]
fn a_memory_that_cannot_be_taken_does_not_travel_as_it_was() {
    let far = Lab::start("elsewhere");
    let lab = Lab::start("stale");
    let body = "v = 0\ndef get_state(self):\n    if self.v < 0:\n        raise ValueError('not today')\n    return self.v\ndef set_state(self, state):\n    self.v = state\ndef on_message(self, ctx, m):\n    if m == 'go':\n        try:\n            ctx.move('elsewhere', {})\n        except ValueError as error:\n            return str(error)\n    self.v = m\n    return m";
    lab.deploy(&agent("keeper", body));
    lab.invoke("keeper", json!(5));
    lab.invoke("keeper", json!(-5));
    for mode in ["clone", "move"] {
        let to = far.address().to_string();
        let order = json!({"agent_id": "keeper", "destination": to, "mode": mode});
        let (code, text) = lab.err("dispatch_agent", order);
        assert!(code == "agent_error" && text.contains("ValueError: not today"), "{code} {text}");
    }
    assert_eq!(lab.invoke("keeper", json!("go")), "not today");
    assert!(lab.has("keeper") && !far.has("keeper"));
    // What can be taken again goes.
    lab.invoke("keeper", json!(7));
    let order = json!({"agent_id": "keeper", "destination": far.address().to_string(), "mode": "move"});
    lab.ok("dispatch_agent", order);
    assert_eq!(far.running.node.agent("keeper").unwrap().life.memory().as_deref(), Some("7"));
}

#[test]
fn an_agent_does_not_find_the_files_of_another_that_had_its_id() {
    let lab = Lab::start("leftover");
    let body = "def on_message(self, ctx, m):\n    import os\n    return os.listdir(ctx.state_dir())";
    // As a node of an earlier version left them, or one that was ended before it could tidy up.
    let left = lab.dir.path().join("state/agents/late/state");
    std::fs::create_dir_all(&left).unwrap();
    std::fs::write(left.join("another's"), "x").unwrap();
    lab.deploy(&agent("late", body));
    assert_eq!(lab.invoke("late", json!({})), json!([]));
    let own = lab.running.node.agent("late").unwrap().state_dir().join("own");
    std::fs::write(own, "x").unwrap();
    lab.deploy(&agent("late", body));
    assert_eq!(lab.invoke("late", json!({})), json!(["own"]), "its own stay");
    lab.ok("remove_agent", json!({"agent_id": "late"}));
    lab.deploy(&agent("late", body));
    assert_eq!(lab.invoke("late", json!({})), json!([]));
}

#[test]
fn a_file_name_that_no_message_can_say_is_named() {
    let lab = Lab::start("names");
    let body = "def on_message(self, ctx, m):\n    import os\n    place = os.fsencode(ctx.state_dir())\n    if m == 'make':\n        os.mkdir(place + b'/sub')\n        open(place + b'/sub/a\\xff', 'w').close()\n    return 1";
    lab.deploy(&agent("named", body));
    lab.invoke("named", json!("make"));
    let order = json!({"agent_id": "named", "destination": "127.0.0.1:9", "mode": "move"});
    let (code, text) = lab.err("dispatch_agent", order);
    assert!(
        code == "rejected" && text.contains(r#""sub/a\xFF""#) && text.contains("rename"),
        "{code} {text}"
    );
    assert_eq!(lab.ok("list_agents", json!({}))[0]["status"], "idle");
}

#[test]
fn what_a_newer_source_sets_up_is_there_beside_an_older_memory() {
    let lab = Lab::start("newer");
    let first = "def __init__(self):\n    self.a = 1\ndef on_message(self, ctx, m):\n    self.a += 1\n    return self.a";
    lab.deploy(&agent("grows", first));
    lab.invoke("grows", json!({}));
    let second = "def __init__(self):\n    self.a, self.b = 1, 2\ndef on_message(self, ctx, m):\n    return [self.a, self.b]";
    lab.deploy(&agent("grows", second));
    assert_eq!(lab.invoke("grows", json!({})), json!([2, 2]));
}
