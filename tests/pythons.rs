//! The bridge on every Python from 3.6 to 3.13 that this machine has.

#[path = "support/mod.rs"]
mod support;
use agentcontainer::node::Keys;
use serde_json::{json, Value};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};
use support::lab::{agent, keys, until, Lab, ADMIN};

// ---- the interpreters and a node for each ---------------------------------------------------

/// Version (minor) and path of each interpreter.
fn pythons() -> &'static [(u32, PathBuf)] {
    static FOUND: OnceLock<Vec<(u32, PathBuf)>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let mut places = Vec::new();
        if let Some(home) = std::env::var_os("HOME") {
            let versions = std::fs::read_dir(PathBuf::from(home).join(".pyenv/versions"));
            places.extend(versions.into_iter().flatten().flatten().map(|one| one.path().join("bin/python3")));
        }
        let path = std::env::var("PATH").unwrap_or_default();
        for folder in std::env::split_paths(&format!("{path}:/usr/bin:/usr/local/bin")) {
            places.extend((6..=13).map(|minor| folder.join(format!("python3.{minor}"))));
            places.push(folder.join("python3"));
        }
        let mut found: Vec<(u32, PathBuf)> = Vec::new();
        for place in places.into_iter().filter(|place| place.is_file()) {
            let asked = Command::new(&place)
                .args(["-c", "import sys; print('%d %d' % sys.version_info[:2]); print(sys.executable)"])
                .output();
            let text = asked.map(|asked| String::from_utf8_lossy(&asked.stdout).into_owned());
            let text = text.unwrap_or_default();
            let Some((version, program)) = text.trim().split_once('\n') else { continue };
            let Some(minor) = version.strip_prefix("3 ").and_then(|minor| minor.parse().ok()) else {
                continue;
            };
            if (6..=13).contains(&minor) && found.iter().all(|(other, _)| *other != minor) {
                found.push((minor, program.into()));
            }
        }
        found.sort();
        let names: Vec<String> =
            found.iter().map(|(minor, path)| format!("3.{minor} ({})", path.display())).collect();
        println!("found: {}", names.join(", "));
        assert!(!found.is_empty(), "no Python from 3.6 to 3.13 on this machine");
        found
    })
}

struct Python {
    minor: u32,
    lab: Lab,
}

/// The nodes are shared by the tests that run at the same time, and go with the last of them.
fn nodes() -> Arc<Vec<Python>> {
    static SHARED: Mutex<Weak<Vec<Python>>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(nodes) = shared.upgrade() {
        return nodes;
    }
    std::env::set_var("LC_ALL", "C"); // what a node started by cron has
    let start = |(minor, path): &(u32, PathBuf)| {
        let name = format!("py3{minor}");
        Python { minor: *minor, lab: Lab::with(Keys { python: Some(path.clone()), ..keys(&name) }) }
    };
    let nodes = Arc::new(pythons().iter().map(start).collect());
    *shared = Arc::downgrade(&nodes);
    nodes
}

/// Runs a test on each Python at the same time.
fn on_each(test: impl Fn(&Lab, u32) + Sync) {
    let nodes = nodes();
    let failed: Vec<String> = std::thread::scope(|scope| {
        let started: Vec<_> = nodes
            .iter()
            .map(|python| (python.minor, scope.spawn(|| test(&python.lab, python.minor))))
            .collect();
        let failed = started.into_iter().filter_map(|(minor, crew)| Some((minor, crew.join().err()?)));
        failed.map(|(minor, why)| format!("on Python 3.{minor}: {}", words(&*why))).collect()
    });
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// Deploys an agent: what stands before its class, and the class's body.
fn deploy(lab: &Lab, id: &str, before: &str, body: &str) {
    lab.deploy(&format!("{before}\n{}", agent(id, body)));
}

/// Deploys an agent whose `on_message` has these lines, and invokes it.
fn answer_of(lab: &Lab, id: &str, lines: &str) -> Value {
    deploy(lab, id, "", &hook(lines));
    lab.invoke(id, json!({}))
}

fn hook(lines: &str) -> String {
    let lines: String = lines.lines().map(|line| format!("    {line}\n")).collect();
    format!("def on_message(self, ctx, message):\n{lines}")
}

fn async_hook(lines: &str) -> String {
    format!("async {}", hook(lines))
}

fn error_of(lab: &Lab, id: &str, message: Value) -> String {
    let (code, text) = lab.err("invoke_agent", json!({"agent_id": id, "message": message}));
    assert_eq!(code, "agent_error", "{text}");
    text
}

// ---- hooks ----------------------------------------------------------------------------------

#[test]
fn the_node_runs_the_python_that_is_configured() {
    on_each(|lab, minor| {
        let told = answer_of(lab, "version", "import sys\nreturn list(sys.version_info[:2])");
        assert_eq!(told, json!([3, minor]));
        let python = lab.ok("describe_container", json!({}))["python"].clone();
        assert!(python.as_str().unwrap().starts_with(&format!("3.{minor}.")), "{python}");
    });
}

#[test]
fn hooks_may_be_plain_async_decorated_static_or_of_the_class() {
    on_each(|lab, _| {
        deploy(
            lab,
            "h-async",
            "",
            &async_hook("return [(await ctx.networks())['name'], await ctx.stage(), message]"),
        );
        assert_eq!(lab.invoke("h-async", json!(1)), json!([lab.running.node.name(), null, 1]));
        let decorated = "import functools\ndef traced(hook):\n    @functools.wraps(hook)\n    def around(*args):\n        return hook(*args)\n    return around";
        for (id, import) in [("h-decorated", ""), ("h-decorated-loop", "import asyncio\n")] {
            let body =
                format!("@traced\n{}", async_hook("return [(await ctx.networks())['children'], message]"));
            deploy(lab, id, &format!("{import}{decorated}"), &body);
            assert_eq!(lab.invoke(id, json!(2)), json!([[], 2]));
        }
        deploy(
            lab,
            "h-static",
            "",
            "@staticmethod\ndef on_message(ctx, message):\n    return [ctx.agent_id, message]",
        );
        assert_eq!(lab.invoke("h-static", json!(3)), json!(["h-static", 3]));
        deploy(lab, "h-class", "", "@classmethod\nasync def on_message(cls, ctx, message):\n    return [cls.__name__, (await ctx.capabilities())[0], message]");
        assert_eq!(lab.invoke("h-class", json!(4)), json!(["Agent", "clone", 4]));
        deploy(lab, "h-async-static", "import asyncio", "@staticmethod\nasync def on_message(ctx, message):\n    return await asyncio.wait_for(ctx.stage(), 5)");
        assert_eq!(lab.invoke("h-async-static", json!({})), json!(null));
        deploy(lab, "h-child", "class Base:\n    def on_message(self, ctx, message):\n        return self.word\nclass Other(Base):\n    word = 'wrong'", "pass");
        let child = "AGENT_ID = 'h-child'\nAGENT_SECRET = 's'\nclass Base:\n    def __init__(self):\n        self.n = 0\n    def on_message(self, ctx, message):\n        self.n += 1\n        return [self.word, self.n]\nclass Agent(Base):\n    word = 'inherited'";
        lab.deploy(child);
        assert_eq!(lab.invoke("h-child", json!({})), json!(["inherited", 1]));
        assert_eq!(lab.invoke("h-child", json!({})), json!(["inherited", 2]));
    });
}

#[test]
fn a_hook_that_yields_is_a_clear_error() {
    on_each(|lab, _| {
        for (id, word) in [("y-async", "async "), ("y-plain", "")] {
            deploy(lab, id, "", &format!("{word}def on_message(self, ctx, message):\n    yield 1"));
            let text = error_of(lab, id, json!({}));
            assert!(text.contains("the hook yields; it must return its answer"), "{text}");
        }
    });
}

#[test]
fn an_event_loop_is_there_for_whoever_imports_asyncio_wherever() {
    on_each(|lab, _| {
        let lines = "import asyncio\nstart = getattr(asyncio, 'create_task', asyncio.ensure_future)\none, two = start(ctx.stage()), asyncio.ensure_future(ctx.capabilities())\nawait asyncio.sleep(0.001)\nall = await asyncio.gather(ctx.networks(), ctx.run(['echo', 'ü']), asyncio.sleep(0, 'slept'), ctx.read_file('missing'), return_exceptions=True)\nreturn [await one, (await two)[0], all[0]['name'], all[1]['stdout'], all[2], all[3].code, await asyncio.wait_for(ctx.stage(), 5)]";
        deploy(lab, "loop", "", &async_hook(lines));
        for _ in 0..2 {
            assert_eq!(
                lab.invoke("loop", json!({})),
                json!([null, "clone", lab.running.node.name(), "ü\n", "slept", "not_found", null])
            );
        }
        deploy(
            lab,
            "no-loop",
            "import time\nclass Odd:\n    def __await__(self):\n        yield 1",
            &async_hook("await Odd()"),
        );
        let text = error_of(lab, "no-loop", json!({}));
        assert!(text.contains("import asyncio in the agent's source"), "{text}");
        deploy(lab, "loop-late", "", &async_hook("import asyncio\ntry:\n    await asyncio.wait_for(asyncio.sleep(30), 0.02)\nexcept asyncio.TimeoutError:\n    return 'late'"));
        assert_eq!(lab.invoke("loop-late", json!({})), json!("late"));
    });
}

#[test]
fn a_task_left_running_ends_with_its_hook() {
    on_each(|lab, _| {
        let body = "def __init__(self):\n    self.seen = []\nasync def linger(self):\n    try:\n        await asyncio.sleep(60)\n        self.seen.append('slept')\n    except asyncio.CancelledError:\n        self.seen.append('cancelled')\n        raise\nasync def on_message(self, ctx, message):\n    asyncio.ensure_future(self.linger())\n    await asyncio.sleep(0)\n    return len(self.seen)";
        deploy(lab, "task", "import asyncio", body);
        let before = Instant::now();
        assert_eq!([lab.invoke("task", json!({})), lab.invoke("task", json!({}))], [json!(0), json!(1)]);
        assert!(before.elapsed() < Duration::from_secs(10));
    });
}

#[test]
fn calls_that_are_not_awaited_are_made_however_many() {
    on_each(|lab, _| {
        for (id, import) in [("many-loop", "import asyncio"), ("many", "")] {
            // The replies to some hundreds fill the socket; nobody reads it before the hook's end.
            deploy(lab, id, import, &async_hook("for n in range(3000):\n    ctx.capabilities()\nctx.read_file('missing')\nreturn (await ctx.networks())['name']"));
            let before = Instant::now();
            assert_eq!(lab.invoke(id, json!({})), json!(lab.running.node.name()));
            assert!(before.elapsed() < Duration::from_secs(15), "{id}: {:?}", before.elapsed());
        }
        until(10, "what failed is told", || {
            lab.logged().contains("ctx.read_file() was not awaited and failed: not_found")
        });
    });
}

#[test]
fn threads_of_an_agent_make_calls_in_hooks_and_between_them() {
    on_each(|lab, _| {
        let crew = "import threading\ngot = []\ncrew = [threading.Thread(target=lambda: got.append(len(ctx.capabilities()))) for _ in range(6)]\nfor one in crew:\n    one.start()\nfor one in crew:\n    one.join()\nreturn len(got)";
        assert_eq!(answer_of(lab, "t-plain", crew), json!(6));
        let lines = "loop = asyncio.get_event_loop()\nmany = [loop.run_in_executor(None, lambda: ctx.networks()['name']) for _ in range(6)]\nreturn len(await asyncio.gather(*many)) + len([await ctx.stage()])";
        deploy(lab, "t-loop", "import asyncio", &async_hook(lines));
        assert_eq!(lab.invoke("t-loop", json!({})), json!(7));
        // A thread that makes calls nobody waits for, beside a loop and between hooks.
        let body = "def go_on(self, ctx):\n    import time\n    while self.running:\n        print('between hooks ü')\n        ctx.log('from a thread')\n        try:\n            ctx.move('nowhere')\n        except Exception as error:\n            self.told = str(error)\n        time.sleep(0.01)\nasync def on_message(self, ctx, message):\n    self.running = message\n    if message:\n        self.told = ''\n        threading.Thread(target=self.go_on, args=(ctx,), daemon=True).start()\n    await asyncio.sleep(0.02)\n    return self.told";
        deploy(lab, "t-between", "import asyncio, threading", body);
        lab.invoke("t-between", json!(true));
        let printed = "agent=t-between text=\"between hooks ü\"";
        until(10, "it prints between hooks", || lab.logged().matches(printed).count() > 3);
        until(10, "it calls between hooks", || {
            lab.logged().matches("agent=t-between text=\"from a thread\"").count() > 3
        });
        let told = lab.invoke("t-between", json!(false));
        assert!(
            told.as_str().unwrap().contains("nowhere") || told.as_str().unwrap().contains("hook"),
            "{told}"
        );
    });
}

// ---- errors and ends ------------------------------------------------------------------------

#[test]
fn an_exception_names_type_text_and_the_agents_own_lines() {
    on_each(|lab, minor| {
        // A form feed and U+2028 end lines for `splitlines`, not for Python.
        let before = "import json\nPAGE = 1\n\x0c\nTEXT = 'a\u{2028}b'\nclass Odd(Exception):\n    def __str__(self):\n        raise ValueError('no text')";
        deploy(lab, "raises", before, "def on_message(self, ctx, how):\n    return getattr(self, how)(ctx)\ndef parse(self, ctx):\n    return json.loads('{')\ndef odd(self, ctx):\n    raise Odd()\ndef deep(self, ctx):\n    return self.deep(ctx)\ndef base(self, ctx):\n    raise KeyboardInterrupt('ü \\ud800')\ndef long(self, ctx):\n    raise RuntimeError('x' * 1000000)\ndef memory(self, ctx):\n    return bytearray(3 << 30)");
        let ask = |how: &str| {
            let answer = lab.ask("invoke_agent", json!({"agent_id": "raises", "message": how}));
            assert_eq!(answer.code(), Some("agent_error"), "{}", answer.line());
            serde_json::from_str::<Value>(answer.field("agent_error").unwrap()).unwrap()
        };
        let error = ask("parse");
        assert_eq!(error["type"], "json.decoder.JSONDecodeError");
        assert_eq!(
            error["traceback"],
            json!([
                "agent.py:13, in on_message: return getattr(self, how)(ctx)",
                "agent.py:15, in parse: return json.loads('{')"
            ])
        );
        assert_eq!(ask("odd")["text"], "(its text could not be made: ValueError)");
        let deep = ask("deep");
        let lines = deep["traceback"].as_array().unwrap();
        assert!(deep["type"] == "RecursionError" && lines.len() == 51, "{deep}");
        let base = ask("base");
        assert_eq!(
            (base["type"].as_str(), base["text"].as_str()),
            (Some("KeyboardInterrupt"), Some("ü \\ud800"))
        );
        assert_eq!(ask("long")["text"].as_str().unwrap().len(), 8192);
        assert_eq!(ask("memory")["type"], "MemoryError");
        if minor >= 11 {
            deploy(lab, "group", "", &hook("raise ExceptionGroup('two', [ValueError(1), KeyError(2)])"));
            assert!(error_of(lab, "group", json!({})).contains("two (2 sub-exceptions)"));
        }
        let source = agent("syntax", "def on_message(self, ctx, m):\n    return ((1)");
        let (code, text) = lab.err("deploy_agent", json!({"source_code": source}));
        assert!(code == "agent_error" && text.contains("SyntaxError"), "{text}");
        let source = format!("{}\n1 / 0", agent("module", "pass"));
        let answer = lab.ask("deploy_agent", json!({"source_code": source}));
        let error: Value = serde_json::from_str(answer.field("agent_error").unwrap()).unwrap();
        assert_eq!(error["traceback"], json!(["agent.py:7, in <module>: 1 / 0"]), "{error}");
    });
}

#[test]
fn a_process_that_ends_says_how_and_its_memory_is_that_of_the_last_hook() {
    on_each(|lab, _| {
        let plain = "def __init__(self):\n    self.n = 0\n    self.text = {'ü': [1.5, None, True, '\\U0001f600', 2**70]}\n    self.pair = (1, 2)\n";
        let own = "def __init__(self):\n    self.n = 0\n    self.names = set()\ndef get_state(self):\n    return {'n': self.n, 'names': sorted(self.names)}\ndef set_state(self, state):\n    self.n, self.names = state['n'], set(state['names'])\n";
        let slots = "__slots__ = ('n', '__hidden', 'never')\ndef __init__(self):\n    self.n = 0\n    self.__hidden = []\n";
        let ends = "import os, signal, sys\nself.n += 100 if message else 1\nif message == 'exit':\n    sys.exit(4)\nif message == '_exit':\n    os._exit(3)\nif message == 'kill':\n    os.kill(os.getpid(), signal.SIGKILL)\nif message == 'text':\n    sys.exit('in words')\n";
        for (id, import, start, rest) in [
            ("e-plain", "", plain, "return [self.n, self.text['ü'][4] == 2**70]"),
            ("e-own", "", own, "self.names.add('x')\nreturn [self.n, self.names == {'x'}]"),
            (
                "e-slots",
                "",
                slots,
                "self.__hidden.append(self.n)\nreturn [self.n, self.__hidden == list(range(1, self.n + 1))]",
            ),
            (
                "e-loop",
                "import asyncio",
                plain,
                "await asyncio.sleep(0)\nreturn [self.n, self.text['ü'][1] is None]",
            ),
        ] {
            let lines = format!("{ends}{rest}");
            let body = if import.is_empty() { hook(&lines) } else { async_hook(&lines) };
            deploy(lab, id, import, &format!("{start}{body}"));
            assert_eq!(lab.invoke(id, json!(null)), json!([1, true]), "{id}");
            for (count, (how, part)) in
                [("exit", "status 4"), ("_exit", "status 3"), ("kill", "SIGKILL"), ("text", "status 1")]
                    .into_iter()
                    .enumerate()
            {
                let before = Instant::now();
                let text = error_of(lab, id, json!(how));
                assert!(text.contains(part), "{id} {how}: {text}");
                assert!(before.elapsed() < Duration::from_secs(5), "{id} {how}: {:?}", before.elapsed());
                assert_eq!(lab.invoke(id, json!(null)), json!([count + 2, true]), "{id} after {how}");
            }
        }
    });
}

#[test]
fn the_end_of_an_agent_is_seen_at_once_though_its_children_hold_its_descriptors() {
    on_each(|lab, _| {
        for (id, session) in [("fork", ""), ("fork-away", "        os.setsid()\n")] {
            let body = format!("def on_message(self, ctx, message):\n    import os, time\n    if not message:\n        return 'alive'\n    if os.fork() == 0:\n{session}        time.sleep(6)\n        os._exit(0)\n    os._exit(5)");
            deploy(lab, id, "", &body);
            let before = Instant::now();
            let text = error_of(lab, id, json!(true));
            assert!(text.contains("status 5"), "{text}");
            assert!(before.elapsed() < Duration::from_secs(4), "{id}: {:?}", before.elapsed());
            assert_eq!(lab.invoke(id, json!(false)), json!("alive"));
        }
    });
}

#[test]
fn a_forked_child_that_goes_on_as_the_agent_is_none() {
    on_each(|lab, _| {
        let lines = "import os\nread, write = os.pipe()\npid = os.fork()\nif pid == 0:\n    try:\n        ctx.networks()\n        os.write(write, b'made a call')\n    except Exception as error:\n        os.write(write, str(error).encode())\n    return 'from the child'\nos.close(write)\ntold = os.read(read, 1000).decode()\nreturn [told, os.WEXITSTATUS(os.waitpid(pid, 0)[1])]";
        deploy(lab, "forks", "", &hook(lines));
        for _ in 0..2 {
            let told = lab.invoke("forks", json!({}));
            assert!(told[0].as_str().unwrap().starts_with("forbidden: ctx is the agent's own"), "{told}");
            assert_eq!(told[1], 0);
        }
    });
}

// ---- values ---------------------------------------------------------------------------------

#[test]
fn text_is_utf8_though_the_node_runs_under_lc_all_c() {
    on_each(|lab, _| {
        let lines = "import locale, sys\nprint('printed ü \u{1f600}')\nprint('to error ü', file=sys.stderr)\nctx.log('logged ü', field='é')\npath = ctx.state_dir() + '/dätei ü'\nwith open(path, 'w') as file:\n    file.write('inside ü \\u20ac')\nwith open(path, 'rb') as file:\n    raw = file.read()\nwith open(path) as file:\n    text = file.read()\nrun = ctx.run(['printf', '%s', message])\nimport os, subprocess\ninner = subprocess.check_output(['printf', '%s', message])\nreturn [message, text, raw == text.encode('utf-8'), run['stdout'], inner.decode(), os.listdir(ctx.state_dir()), sys.stdout.encoding.lower(), sys.getfilesystemencoding().lower(), locale.getpreferredencoding(False).lower()]";
        deploy(lab, "utf8", "", &hook(lines));
        let text = "grüß \u{1f600} \u{2028} 漢";
        assert_eq!(
            lab.invoke("utf8", json!(text)),
            json!([text, "inside ü €", true, text, text, ["dätei ü"], "utf-8", "utf-8", "utf-8"])
        );
        for line in ["printed ü", "to error ü", "logged ü field=é"] {
            until(10, "it is in the log", || lab.logged().contains(line));
        }
        // A name that is not UTF-8 is no reason for a crash.
        let lines = "import os\nprint(os.fsdecode(b'\\xff'))\nopen(os.fsencode(ctx.state_dir()) + b'/\\xfe', 'w').close()\nreturn [name.encode('utf-8', 'backslashreplace').decode() for name in os.listdir(ctx.state_dir())]";
        deploy(lab, "not-utf8", "", &hook(lines));
        assert_eq!(lab.invoke("not-utf8", json!({})), json!(["\\udcfe"]));
    });
}

#[test]
fn values_pass_both_ways_as_they_are() {
    on_each(|lab, _| {
        deploy(lab, "echo", "", &hook("return message"));
        let long = "7".repeat(6000);
        let message = format!(
            r#"{{"agent_id":"echo","message":[18446744073709551617,{long},-0.0,1e-07,1.0,1e+16,true,null,"",[],{{}},{{"a b":{{"":[1]}}}},"\u0000\ud83d\ude00\u2028\u007f"]}}"#
        );
        let answer = lab.ask_as("admin", ADMIN, "invoke_agent", &message);
        let result = answer.result().unwrap_or_else(|| panic!("{}", answer.line()));
        for part in ["18446744073709551617", &long, "-0.0", "1e-07", "1.0", "1e+16"] {
            assert!(result.contains(part), "{part}: {result}");
        }
        let told: Value = serde_json::from_str(result).unwrap();
        assert_eq!(told["result"][12], json!("\0\u{1f600}\u{2028}\u{7f}"));
        assert_eq!(told["result"][11], json!({"a b": {"": [1]}}));
        let kinds = "import collections, enum\nclass Level(enum.IntEnum):\n    LOW = 1\nclass Text(str):\n    pass\nPoint = collections.namedtuple('Point', 'x y')\nreturn [Level.LOW, Text('t'), Point(1, 2), collections.OrderedDict([('b', 1), ('a', 2)]), {1: 2, None: 3, True: 4.5}, 2**64 + 1, {'n': (1, (2,))}]";
        let told = answer_of(lab, "kinds", kinds);
        assert_eq!(told[0], 1);
        assert_eq!(told[4].as_object().unwrap().len(), 2, "1 and True are one key: {told}");
        assert_eq!(told[6], json!({"n": [1, [2]]}));
    });
}

#[test]
fn five_megabytes_pass_both_ways_and_through_calls() {
    on_each(|lab, minor| {
        std::fs::write(lab.dir.path().join("data/big.txt"), "y".repeat(5_000_000)).unwrap();
        let lines = "assert not message or len(message) == 5000000\ntext = ctx.read_file('big.txt')\nctx.log(text)\nself.kept = text\nreturn message or len(text)";
        deploy(lab, "big", "", &hook(lines));
        assert_eq!(lab.invoke("big", json!("")), json!(5_000_000));
        // A debug build takes seconds to sign and check such lines: the ends of the range will do.
        if minor == pythons()[0].0 || minor == pythons()[pythons().len() - 1].0 {
            let text = format!("{}ü", "x".repeat(4_999_999));
            assert_eq!(lab.invoke("big", json!(text)), json!(text));
        }
        lab.ok("remove_agent", json!({"agent_id": "big"}));
    });
}

#[test]
fn deep_nesting_is_refused_wherever_it_comes_from() {
    on_each(|lab, _| {
        let body = "def nest(self, n):\n    value = 1\n    for _ in range(n):\n        value = [value]\n    return value\ndef on_message(self, ctx, message):\n    how, n = message\n    if how == 'memory':\n        self.deep = self.nest(n)\n        return 'kept'\n    if how == 'call':\n        ctx.wake('me', self.nest(n))\n    return self.nest(n)";
        deploy(lab, "deep", "", body);
        let ask = |how: &str, depth: u32| {
            lab.ask("invoke_agent", json!({"agent_id": "deep", "message": [how, depth]}))
        };
        assert!(ask("result", 50).is_ok());
        for depth in [70, 127, 130, 199, 250, 5000, 100_000] {
            let answer = ask("result", depth);
            assert_eq!(answer.code(), Some("agent_error"), "{depth}: {}", answer.line());
        }
        for depth in [250, 5000, 100_000] {
            let answer = ask("call", depth);
            assert!(answer.error().unwrap_or("").contains("nested"), "{depth}: {}", answer.line());
        }
        for depth in [40, 5000, 100_000] {
            assert!(ask("memory", depth).is_ok(), "{depth}");
        }
        until(10, "what is too deep stays behind", || lab.logged().contains("deep (list)"));
        assert!(ask("result", 3).is_ok(), "it is well");
    });
}

#[test]
fn what_json_cannot_say_is_named_in_results_and_arguments() {
    on_each(|lab, _| {
        deploy(lab, "unsayable", "import collections, datetime", "def on_message(self, ctx, message):\n    value = eval(message[1])\n    return value if message[0] == 'result' else ctx.wake('me', value)");
        for (value, part) in [
            ("{1, 2}", "set"),
            ("{'a': [b'x']}", "bytes at"),
            ("1j", "complex"),
            ("datetime.datetime(2020, 1, 1)", "datetime.datetime"),
            ("float('inf')", "inf"),
            ("[float('nan')]", "nan"),
            ("'\\ud800'", "lone surrogate"),
            ("{'\\udfff': 1}", "lone surrogate"),
            ("{(1, 2): 3}", "a key of type tuple"),
            ("len", "builtin_function_or_method"),
            ("(lambda x: x.append(x) or x)([])", "contains itself"),
            ("object()", "object"),
            ("collections.deque()", "collections.deque"),
        ] {
            for place in ["result", "argument"] {
                let text = error_of(lab, "unsayable", json!([place, value]));
                assert!(text.contains("JSON cannot say") && text.contains(part), "{place} {value}: {text}");
            }
        }
        assert_eq!(lab.invoke("unsayable", json!(["result", "'well'"])), json!("well"));
    });
}

#[test]
fn ctx_errors_are_caught_by_their_class_and_tell_their_code() {
    on_each(|lab, _| {
        let lines = "import agentctx\nfrom agentctx import CtxError\ntry:\n    ctx.read_file('missing')\nexcept agentctx.CtxError as error:\n    first = [error.code, str(error).startswith('not_found: '), error.detail, CtxError is agentctx.CtxError]\ntry:\n    ctx.run(['sh', '-c', 'echo so far; sleep 30'], timeout=0.3)\nexcept CtxError as error:\n    return first + [error.code, error.detail['stdout']]";
        assert_eq!(
            answer_of(lab, "caught", lines),
            json!(["not_found", true, null, true, "timeout", "so far\n"])
        );
        deploy(
            lab,
            "caught-async",
            "from agentctx import *\nimport asyncio",
            &async_hook(
                "try:\n    await ctx.read_file('missing')\nexcept CtxError as error:\n    return error.code",
            ),
        );
        assert_eq!(lab.invoke("caught-async", json!({})), json!("not_found"));
        deploy(lab, "uncaught", "", &hook("ctx.read_file('missing')"));
        let text = error_of(lab, "uncaught", json!({}));
        assert!(text.contains("agentctx.CtxError: not_found"), "{text}");
    });
}

// ---- sources --------------------------------------------------------------------------------

#[test]
fn a_source_may_come_from_any_editor() {
    on_each(|lab, minor| {
        let source =
            |id: &str| agent(id, "def on_message(self, ctx, message):\n    return ['ü', __name__, __file__]");
        let wanted = json!(["ü", "agent", "agent.py"]);
        for (id, text) in [
            ("s-bom", format!("\u{feff}{}", source("s-bom"))),
            ("s-bom-comment", format!("\u{feff}# -*- coding: utf-8 -*-\n{}", source("s-bom-comment"))),
            ("s-crlf", source("s-crlf").replace('\n', "\r\n")),
            ("s-tabs", source("s-tabs").replace("    ", "\t")),
            ("s-latin", format!("# -*- coding: latin-1 -*-\n{}", source("s-latin"))),
            (
                "s-shebang",
                format!("#!/usr/bin/env python3\n# vim: set fileencoding=ascii :\n{}", source("s-shebang")),
            ),
            (
                "s-main",
                format!(
                    "{}\nif __name__ == '__main__':\n    raise SystemExit('not a script')",
                    source("s-main")
                ),
            ),
            ("s-no-end", source("s-no-end").trim_end().to_owned()),
            (
                "s-doc",
                format!("\"\"\"Ümlauts.\"\"\"\nfrom __future__ import generator_stop\n{}", source("s-doc")),
            ),
        ] {
            lab.deploy(&text);
            assert_eq!(lab.invoke(id, json!({})), wanted, "{id}");
        }
        if minor >= 7 {
            let before = "import dataclasses, pickle, inspect, typing\n@dataclasses.dataclass\nclass Point:\n    x: int\n    y: 'typing.List[int]'";
            deploy(lab, "s-data", before, &hook("again = pickle.loads(pickle.dumps(Point(1, [2])))\nreturn [dataclasses.asdict(again), len(typing.get_type_hints(Point)), 'class Point' in inspect.getsource(Point)]"));
            assert_eq!(lab.invoke("s-data", json!({})), json!([{"x": 1, "y": [2]}, 2, true]));
        }
    });
}

#[test]
fn every_agent_of_the_repository_loads() {
    let mut sources = Vec::new();
    for category in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/agents")).unwrap().flatten() {
        for file in std::fs::read_dir(category.path()).unwrap().flatten() {
            if file.path().extension().is_some_and(|end| end == "py") {
                sources.push(std::fs::read_to_string(file.path()).unwrap());
            }
        }
    }
    on_each(|lab, _| {
        for source in &sources {
            let id = lab.ok("deploy_agent", json!({"source_code": source}))["agent_id"].clone();
            lab.ok("remove_agent", json!({"agent_id": id}));
        }
    });
}

#[test]
fn a_program_that_an_agent_starts_has_neither_its_bridge_nor_its_log() {
    on_each(|lab, _| {
        let told = answer_of(lab, "inherits", "import os, subprocess\nlisted = subprocess.check_output(['ls', '/proc/self/fd'], close_fds=False)\nreturn [max(map(int, listed.split())) < 100, os.read(0, 10).decode()]");
        assert_eq!(told, json!([true, ""]));
    });
}
