//! Agents between nodes: clone, move, coming home, refusals, unclear ends. Real sockets.

#[path = "support/mod.rs"]
mod support;
use agentcontainer::node::federation::TreeNode;
use agentcontainer::node::Keys;
use serde_json::{json, Value};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

use support::lab::{agent, keys, until, Lab};

/// A root with these nodes as children.
fn root_over(children: &[&Lab]) -> Lab {
    root_with("root", children.iter().map(|child| child.tree_node(vec![])).collect())
}

fn root_with(name: &str, children: Vec<TreeNode>) -> Lab {
    // The tree names the root's own port too: agents carry it along and come home by it.
    let port = free_port();
    let tree = TreeNode { children, ..TreeNode::leaf(name, "127.0.0.1", port) };
    Lab::with(Keys { federation: Some(tree), listen_port: port, ..keys(name) })
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

const TRAVELLER: &str = "def __init__(self):\n    self.seen = []\ndef on_activate(self, ctx, p):\n    self.seen.append(ctx.container_name)\n    if p.get('go'):\n        return getattr(ctx, p.get('how', 'move'))(p['go'], p.get('then', {}))\n    return {'seen': self.seen, 'trace': [h['node'] for h in ctx.trace]}\ndef on_message(self, ctx, p):\n    if p.get('go'):\n        return getattr(ctx, p.get('how', 'move'))(p['go'], p.get('then', {}))\n    return self.seen";

#[test]
fn a_clone_carries_memory_files_and_trace_and_the_original_stays() {
    let a = Lab::start("a");
    let root = root_over(&[&a]);
    let body = "def on_activate(self, ctx, p):\n    import os\n    if ctx.container_name == 'root':\n        self.note = 'from root'\n        os.makedirs(os.path.join(ctx.state_dir(), 'sub'))\n        open(os.path.join(ctx.state_dir(), 'sub', 'f'), 'wb').write(b'\\x00\\xff')\n        ctx.mark('left root')\n        return ctx.clone('a', {'n': 1.0})\n    return [self.note, p, ctx.trace, list(open(os.path.join(ctx.state_dir(), 'sub', 'f'), 'rb').read())]\ndef on_message(self, ctx, m):\n    return ctx.container_name";
    let result = root.deploy(&agent("scout", body));
    let answer = &result["activate_result"];
    assert_eq!(
        (answer["status"].as_str(), answer["node"].as_str(), answer["transfer"].as_str()),
        (Some("ok"), Some("a"), Some("done")),
        "{result}"
    );
    assert_eq!(answer["result"]["agent_id"], "scout");
    let there = &answer["result"]["activate_result"];
    assert_eq!(
        (&there[0], &there[1], &there[3]),
        (&json!("from root"), &json!({"n": 1.0}), &json!([0, 255]))
    );
    let hop = &there[2][0];
    assert_eq!(
        (hop["node"].as_str(), hop["host"].as_str(), hop["port"].as_u64()),
        (Some("root"), Some("127.0.0.1"), Some(root.running.node.port().into()))
    );
    assert!(hop["time"].as_i64().is_some() && hop["notes"] == json!(["left root"]), "{hop}");
    assert_eq!([root.invoke("scout", json!({})), a.invoke("scout", json!({}))], [json!("root"), json!("a")]);
    until(5, "the ledger forgets", || {
        a.ok("describe_container", json!({}))["counters"]["ledger_entries"] == 0
    });
}

#[test]
fn a_move_leaves_nothing_and_says_where_it_went() {
    let a = Lab::start("a");
    let root = root_over(&[&a]);
    root.deploy(&agent("mover", TRAVELLER));
    let pid = format!("/proc/{}", root.running.node.agent("mover").unwrap().life.pid().unwrap());
    let answer = root.invoke("mover", json!({"go": "a"}));
    assert_eq!(answer["result"]["activate_result"], json!({"seen": ["root", "a"], "trace": ["root"]}));
    assert!(!root.has("mover") && a.has("mover"));
    until(5, "its process is gone", || !std::path::Path::new(&pid).exists());
    until(5, "its files are gone", || !root.dir.path().join("state/agents/mover").exists());
    let (code, text) = root.err("invoke_agent", json!({"agent_id": "mover"}));
    assert!(code == "unknown_agent" && text.contains("moved to a"), "{text}");
    assert_eq!(root.ok("describe_container", json!({}))["counters"]["open_transfers"], 0);
}

#[test]
fn it_may_come_back_while_the_outer_call_is_open() {
    let a = Lab::start("a");
    let root = root_over(&[&a]);
    // a resolves "root" through the network view that the agent carries, or its trace.
    let result = root.deploy(&agent("boomerang", TRAVELLER));
    assert_eq!(result["status"], "active");
    let answer = root.invoke("boomerang", json!({"go": "a", "then": {"go": "root", "then": {}}}));
    let inner = &answer["result"]["activate_result"];
    assert_eq!(
        inner["result"]["activate_result"],
        json!({"seen": ["root", "a", "root"], "trace": ["root", "a"]}),
        "{answer}"
    );
    assert!(root.has("boomerang") && !a.has("boomerang"));
    assert_eq!(root.invoke("boomerang", json!({})), json!(["root", "a", "root"]));
    assert_eq!(root.ok("list_agents", json!({}))[0]["sequence"], 2);
    // Once more, from the generation that came home.
    root.invoke("boomerang", json!({"go": "a", "then": {"go": "root"}}));
    assert_eq!(root.invoke("boomerang", json!({})), json!(["root", "a", "root", "a", "root"]));
}

#[test]
fn messages_that_wait_while_it_moves_find_the_newer_generation_or_learn_that_it_left() {
    let a = Lab::start("a");
    let root = root_over(&[&a]);
    let body = format!("{TRAVELLER}\ndef slow(self):\n    pass").replace(
        "self.seen.append(ctx.container_name)",
        "self.seen.append(ctx.container_name)\n    __import__('time').sleep(0.3)",
    );
    root.deploy(&agent("busy", &body));
    std::thread::scope(|scope| {
        let outer = scope.spawn(|| root.invoke("busy", json!({"go": "a", "then": {"go": "root"}})));
        until(5, "it departs", || root.ok("list_agents", json!({}))[0]["status"] == "departing");
        let waiting = scope.spawn(|| root.invoke("busy", json!({})));
        assert_eq!(waiting.join().unwrap(), json!(["root", "a", "root"]));
        outer.join().unwrap();
    });
    std::thread::scope(|scope| {
        let outer = scope.spawn(|| root.invoke("busy", json!({"go": "a"})));
        until(5, "it departs", || root.ok("list_agents", json!({}))[0]["status"] == "departing");
        assert_eq!(root.err("invoke_agent", json!({"agent_id": "busy"})).0, "unknown_agent");
        outer.join().unwrap();
    });
}

#[test]
fn later_changes_after_an_accepted_move_are_discarded_and_a_second_journey_is_departing() {
    let a = Lab::start("a");
    let root = root_over(&[&a]);
    let body = "def __init__(self):\n    self.x = 1\ndef on_activate(self, ctx, p):\n    return self.x\ndef on_message(self, ctx, m):\n    import agentctx\n    self.x = 2\n    ctx.move('a', {})\n    self.x = 3\n    codes = []\n    for again in (lambda: ctx.move('a', {}), lambda: ctx.clone('a', {})):\n        try:\n            again()\n        except agentctx.CtxError as error:\n            codes.append(error.code)\n    return codes";
    root.deploy(&agent("once", body));
    assert_eq!(root.invoke("once", json!({})), json!(["departing", "departing"]));
    assert_eq!(a.ok("list_agents", json!({}))[0]["last_result"], json!(2));
    until(5, "it is logged", || root.logged().contains("memory_discarded"));
    // Two moves at once: one goes, the other is told.
    let root = root_over(&[&a]);
    root.deploy(&format!("import asyncio\n{}", agent("twice", "async def on_message(self, ctx, m):\n    both = await asyncio.gather(ctx.move('a', {}), ctx.move('a', {}), return_exceptions=True)\n    return sorted(getattr(one, 'code', 'went') for one in both)")));
    assert_eq!(root.invoke("twice", json!({})), json!(["departing", "went"]));
}

#[test]
fn three_clones_at_once_are_three_transfers_at_once() {
    let nodes = [Lab::start("a"), Lab::start("b"), Lab::start("c")];
    let root = root_over(&[&nodes[0], &nodes[1], &nodes[2]]);
    root.deploy(&format!("import asyncio\n{}", agent("fan", "async def on_activate(self, ctx, p):\n    if ctx.trace:\n        import time\n        begun = time.time()\n        await asyncio.sleep(2)\n        return [ctx.container_name, begun, time.time()]\nasync def on_message(self, ctx, m):\n    answers = await asyncio.gather(*[ctx.clone(c, {}) for c in (await ctx.networks())['children']])\n    return [a['result']['activate_result'] for a in answers]")));
    let told = root.invoke("fan", json!({}));
    let of = |at: usize| told.as_array().unwrap().iter().map(|one| one[at].clone()).collect::<Vec<_>>();
    assert_eq!(of(0), ["a", "b", "c"]);
    let times = |at: usize| of(at).iter().map(|time| time.as_f64().unwrap()).collect::<Vec<_>>();
    let (last_begun, first_ended) =
        (times(1).into_iter().fold(0.0, f64::max), times(2).into_iter().fold(f64::MAX, f64::min));
    assert!(last_begun < first_ended, "one after the other: {told}");
}

#[test]
fn a_refusal_and_a_dead_destination_are_errors_and_the_agent_stays_with_its_memory() {
    let full = Lab::with(Keys { max_agents: 1, ..keys("full") });
    full.deploy(&agent("here-first", "pass"));
    let port = free_port();
    let root = root_with("root", vec![full.tree_node(vec![]), TreeNode::leaf("dead", "127.0.0.1", port)]);
    let body = "def __init__(self):\n    self.tried = []\ndef on_message(self, ctx, to):\n    import agentctx\n    if not to:\n        return self.tried\n    try:\n        ctx.move(to, {})\n    except agentctx.CtxError as error:\n        self.tried.append([error.code, str(error)])\n        return self.tried[-1]";
    root.deploy(&agent("stays", body));
    let told = root.invoke("stays", json!("full"));
    assert!(told[0] == "rejected" && told[1].as_str().unwrap().contains("max_agents"), "{told}");
    let told = root.invoke("stays", json!("dead"));
    assert!(told[0] == "unreachable" && told[1].as_str().unwrap().contains("nothing was sent"), "{told}");
    let told = root.invoke("stays", json!("nowhere"));
    assert!(told[0] == "unknown_destination" && told[1].as_str().unwrap().contains("nowhere"), "{told}");
    assert_eq!(
        root.invoke("stays", json!(null)).as_array().unwrap().len(),
        3,
        "after a refused move changes stay"
    );
    assert!(!full.has("stays"));
    let listed = root.ok("list_agents", json!({}));
    assert_eq!(
        (
            listed[0]["status"].as_str(),
            root.ok("describe_container", json!({}))["counters"]["open_transfers"].as_u64()
        ),
        (Some("idle"), Some(0))
    );
}

#[test]
fn a_source_that_does_not_load_there_is_refused_and_what_fails_in_on_activate_is_not() {
    let a = Lab::start("a");
    let root = root_over(&[&a]);
    let body = "def __init__(self):\n    import os\n    if '/a-' in os.environ.get('AGENTCONTAINER_STATE_DIR', ''):\n        raise OSError('not on this node')\ndef on_message(self, ctx, m):\n    try:\n        ctx.move('a', {})\n    except Exception as error:\n        return [error.code, str(error), error.detail['transfer']]";
    let named = body.replace("'/a-'", "'agentcontainer-a-'");
    root.deploy(&agent("picky", &named));
    let told = root.invoke("picky", json!({}));
    assert!(
        told[0] == "agent_error"
            && told[1].as_str().unwrap().contains("not on this node")
            && told[2] == "refused",
        "{told}"
    );
    root.deploy(&agent("fails", "def on_activate(self, ctx, p):\n    if ctx.trace:\n        raise RuntimeError('arrived badly')\ndef on_message(self, ctx, m):\n    return ctx.move('a', {})"));
    let answer = root.invoke("fails", json!({}));
    assert_eq!(answer["result"]["activate_error"]["agent_error"]["text"], "arrived badly");
    assert!(a.has("fails") && !root.has("fails"));
}

/// A proxy that hands each connection to `treat` with the destination's address.
fn proxy(to: String, treat: impl Fn(usize, TcpStream, &str) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().flatten().enumerate() {
            treat(number, stream, &to);
        }
    });
    port
}

fn read_line(stream: &TcpStream) -> String {
    let mut line = String::new();
    let _ = BufReader::new(stream).read_line(&mut line);
    line
}

fn pass_on(line: &str, to: &str) -> String {
    let mut far = TcpStream::connect(to).unwrap();
    far.write_all(line.as_bytes()).unwrap();
    read_line(&far)
}

const GOES: &str = "def __init__(self):\n    self.n = 0\ndef on_activate(self, ctx, p):\n    self.n += 1\n    return self.n\ndef on_message(self, ctx, m):\n    return ctx.move('a', {})";

#[test]
fn an_answer_that_is_lost_is_asked_for_and_the_agent_is_there_once() {
    let a = Lab::start("a");
    let port = proxy(a.address().to_string(), |number, mut stream, to| {
        let line = read_line(&stream);
        let answer = pass_on(&line, to);
        if number > 0 {
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    let root = root_with("root", vec![TreeNode::leaf("a", "127.0.0.1", port)]);
    root.deploy(&agent("lost", GOES));
    let answer = root.invoke("lost", json!({}));
    assert_eq!(
        (answer["transfer"].as_str(), &answer["result"]["activate_result"]),
        (Some("done"), &json!(2)),
        "{answer}"
    );
    assert!(a.has("lost") && !root.has("lost"));
    assert_eq!(a.ok("list_agents", json!({}))[0]["sequence"], 1);
}

#[test]
fn a_request_that_is_lost_is_sent_again_under_the_same_transfer() {
    let a = Lab::start("a");
    let port = proxy(a.address().to_string(), |number, mut stream, to| {
        let line = read_line(&stream);
        if number > 0 {
            let _ = stream.write_all(pass_on(&line, to).as_bytes());
        }
    });
    let root = root_with("root", vec![TreeNode::leaf("a", "127.0.0.1", port)]);
    root.deploy(&agent("again", GOES));
    assert_eq!(root.invoke("again", json!({}))["result"]["activate_result"], json!(2));
    assert!(a.has("again") && !root.has("again") && a.ok("list_agents", json!({}))[0]["sequence"] == 1);
}

#[test]
fn a_forged_or_unsigned_done_removes_nothing() {
    let port = proxy(String::new(), |_, mut stream, _| {
        let line = read_line(&stream);
        let nonce = line.split("\"nonce\":\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or("");
        let signature = "0".repeat(64);
        let _ = writeln!(stream, "{{\"node\":\"a\",\"nonce\":\"{nonce}\",\"result\":{{\"transfer\":\"done\"}},\"status\":\"ok\",\"transfer\":\"done\",\"signature\":\"{signature}\"}}");
    });
    let root = root_with("root", vec![TreeNode::leaf("a", "127.0.0.1", port)]);
    root.deploy(&agent("forged", GOES));
    let (code, text) = root.err("invoke_agent", json!({"agent_id": "forged", "timeout": 1.5}));
    assert!(code == "timeout" || code == "agent_error", "{code} {text}");
    assert!(root.has("forged"));
    assert_eq!(root.ok("list_agents", json!({}))[0]["status"], "departing");
}

#[test]
fn a_move_with_its_own_deadline_is_called_off_by_a_refusal_of_the_destination() {
    let a = Lab::start("a");
    // The transfer itself never gets through; questions do.
    let port = proxy(a.address().to_string(), |_, mut stream, to| {
        let line = read_line(&stream);
        if line.contains("\"type\":\"transfer_cancel\"") {
            let _ = stream.write_all(pass_on(&line, to).as_bytes());
        }
    });
    let root = root_with("root", vec![TreeNode::leaf("a", "127.0.0.1", port)]);
    root.deploy(&agent("off", &GOES.replace("ctx.move('a', {})", "self.go(ctx)").replace("def on_activate", "def go(self, ctx):\n    try:\n        ctx.move('a', {}, timeout=0.5)\n    except Exception as error:\n        return [error.code, str(error)]\ndef on_activate")));
    let told = root.invoke("off", json!({}));
    assert!(told[0] == "timeout" && told[1].as_str().unwrap().contains("cancelled"), "{told}");
    assert!(root.has("off") && root.ok("list_agents", json!({}))[0]["status"] == "idle");
}

#[test]
fn a_transfer_left_open_is_pursued_after_the_hook_and_its_messages_wait() {
    let a = Lab::start("a");
    let open = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let gate = std::sync::Arc::clone(&open);
    let port = proxy(a.address().to_string(), move |_, mut stream, to| {
        let line = read_line(&stream);
        if gate.load(std::sync::atomic::Ordering::Acquire) {
            let _ = stream.write_all(pass_on(&line, to).as_bytes());
        }
    });
    let root = root_with("root", vec![TreeNode::leaf("a", "127.0.0.1", port)]);
    root.deploy(&agent("late", GOES));
    assert!(!root.ask("invoke_agent", json!({"agent_id": "late", "timeout": 1.0})).is_ok());
    assert_eq!(root.ok("list_agents", json!({}))[0]["status"], "departing");
    assert_eq!(
        root.err("invoke_agent", json!({"agent_id": "late", "timeout": 0.3})).0,
        "timeout",
        "it takes no messages"
    );
    open.store(true, std::sync::atomic::Ordering::Release);
    until(15, "it arrives after all", || a.has("late") && !root.has("late"));
    assert_eq!(a.ok("list_agents", json!({}))[0]["sequence"], 1);
}

#[test]
fn an_unclear_clone_is_not_retried_and_says_that_it_may_have_arrived() {
    let a = Lab::start("a");
    let port = proxy(a.address().to_string(), |_, stream, to| {
        pass_on(&read_line(&stream), to);
    });
    let root = root_with("root", vec![TreeNode::leaf("a", "127.0.0.1", port)]);
    root.deploy(&agent("copy", "def on_message(self, ctx, m):\n    try:\n        ctx.clone('a', {})\n    except Exception as error:\n        return [error.code, str(error)]"));
    let told = root.invoke("copy", json!({}));
    assert!(told[0] == "timeout" && told[1].as_str().unwrap().contains("may have arrived"), "{told}");
    assert!(root.has("copy") && a.has("copy") && root.ok("list_agents", json!({}))[0]["status"] == "idle");
}

#[test]
fn a_node_of_the_base_implementation_decides_with_its_plain_answer() {
    let port = proxy(String::new(), |_, mut stream, _| {
        let line: Value = serde_json::from_str(&read_line(&stream)).unwrap();
        let payload = &line["payload"];
        let plain = payload.get("transfer_id").is_none()
            && payload["trace"][0]["node"] == "root"
            && line["signature"].is_string();
        let answer = match (plain, payload["activate_payload"]["ok"].as_bool()) {
            (true, Some(true)) => json!({"status": "ok", "agent_id": "old"}),
            _ => json!({"status": "error", "error": "no thanks"}),
        };
        let _ = writeln!(stream, "{answer}");
    });
    let old = TreeNode { unsigned: true, ..TreeNode::leaf("old", "127.0.0.1", port) };
    let root = root_with("root", vec![old]);
    assert_eq!(root.ok("network_tree", json!({}))["children"][0]["unsigned"], json!(true));
    root.deploy(&agent("tourist", "def on_message(self, ctx, ok):\n    try:\n        return ctx.move('old', {'ok': ok})['agent_id']\n    except Exception as error:\n        return str(error)"));
    assert!(root.invoke("tourist", json!(false)).as_str().unwrap().contains("no thanks"));
    assert!(root.has("tourist"));
    assert_eq!(root.invoke("tourist", json!(true)), json!("old"));
    assert!(!root.has("tourist"));
}

#[test]
fn the_admin_dispatches_with_a_patch_of_the_metadata() {
    let a = Lab::start("a");
    let root = root_over(&[&a]);
    root.deploy(&agent("sent", "def on_activate(self, ctx, p):\n    return [p, ctx.stage()]"));
    let stage = json!({"name": "home", "host": "127.0.0.1", "port": 9});
    let answer = root.ok("dispatch_agent", json!({"agent_id": "sent", "destination": "a", "mode": "clone", "activate_payload": [1], "metadata_patch": {"stage": stage}}));
    assert_eq!(answer["result"]["activate_result"], json!([[1], stage]), "{answer}");
    let answer = root.ok(
        "dispatch_agent",
        json!({"agent_id": "sent", "destination": a.address().to_string(), "mode": "move"}),
    );
    assert!(answer["status"] == "ok" && !root.has("sent") && a.has("sent"), "{answer}");
    assert_eq!(
        root.err("dispatch_agent", json!({"agent_id": "sent", "destination": "a", "mode": "move"})).0,
        "unknown_agent"
    );
}

#[test]
fn what_does_not_fit_a_message_is_too_large_before_anything_is_marked() {
    let a = Lab::start("a");
    let tree = TreeNode { children: vec![a.tree_node(vec![])], ..TreeNode::leaf("small", "127.0.0.1", 1) };
    let small = Lab::with(Keys { federation: Some(tree), max_message_bytes: 64 << 10, ..keys("small") });
    small.deploy(&agent("big", "def on_message(self, ctx, n):\n    self.load = 'ü' * n\n    try:\n        ctx.move('a', {})\n        return 'went'\n    except Exception as error:\n        return [error.code, str(error)]"));
    let told = small.invoke("big", json!(12_000));
    assert!(told[0] == "too_large" && told[1].as_str().unwrap().contains("max_message_bytes"), "{told}");
    assert_eq!(small.ok("list_agents", json!({}))[0]["status"], "idle");
    assert_eq!(small.invoke("big", json!(10)), json!("went"));
}

#[test]
fn a_trace_has_a_ceiling_and_a_bare_string_is_a_node() {
    let a = Lab::with(Keys { max_trace: 3, ..keys("a") });
    let source = agent("hops", "def on_activate(self, ctx, p):\n    return ctx.trace");
    let arrive = |trace: Value| a.ask("receive_agent", json!({"source_code": source, "trace": trace}));
    let answer: Value = serde_json::from_str(arrive(json!(["x", {"node": "y"}])).result().unwrap()).unwrap();
    assert_eq!(answer["activate_result"], json!([{"node": "x"}, {"node": "y"}]));
    let refused = arrive(json!(["1", "2", "3", "4"]));
    assert!(
        refused.code() == Some("rejected") && refused.error().unwrap().contains("max_trace"),
        "{}",
        refused.line()
    );
}

#[test]
fn a_clone_storm_is_bounded_by_max_agents() {
    let crowded = Lab::with(Keys { max_agents: 5, ..keys("crowded") });
    let root = root_over(&[&crowded]);
    for number in 0..8 {
        root.deploy(&agent(&format!("n{number}"), "def on_message(self, ctx, m):\n    try:\n        return ctx.clone('crowded', {})['status']\n    except Exception as error:\n        return error.code"));
    }
    let told: Vec<Value> = std::thread::scope(|scope| {
        let crew: Vec<_> = (0..8)
            .map(|n| {
                let root = &root;
                scope.spawn(move || root.invoke(&format!("n{n}"), json!({})))
            })
            .collect();
        crew.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(told.iter().filter(|one| **one == json!("ok")).count(), 5, "{told:?}");
    assert_eq!(told.iter().filter(|one| **one == json!("rejected")).count(), 3, "{told:?}");
}

#[test]
fn a_tour_of_many_hops_keeps_most_of_its_time() {
    let port = free_port();
    let far = Lab::start("far");
    let tree =
        TreeNode { children: vec![far.tree_node(vec![])], ..TreeNode::leaf("root", "127.0.0.1", port) };
    let root =
        Lab::with(Keys { federation: Some(tree), listen_port: port, hook_timeout_s: 30.0, ..keys("root") });
    let body = "def on_activate(self, ctx, p):\n    n = p.get('n', 0)\n    if not n:\n        return 'end'\n    answer = ctx.move('far' if ctx.container_name == 'root' else 'root', {'n': n - 1})\n    inner = answer['result']\n    return inner.get('activate_result') or inner.get('result_error') or inner['activate_error']['error']";
    root.deploy(&agent("shuttle", body));
    let answer = root.ok("dispatch_agent", json!({"agent_id": "shuttle", "destination": "far", "mode": "move", "activate_payload": {"n": 20}, "timeout": 20}));
    assert_eq!(answer["result"]["activate_result"], "end", "{answer}");
}
