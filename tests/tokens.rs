//! Capability tokens: what one gives on nodes that trust its key, and every way to get more out of it. Real nodes,
//! real agents.

#[path = "support/mod.rs"]
mod support;
use agentcontainer::capsule::PrivateKey;
use agentcontainer::node::federation::TreeNode;
use agentcontainer::node::Keys;
use agentcontainer::roster::grants::Grant;
use agentcontainer::roster::token::{Narrowing, Token};
use agentcontainer::wire::unix_now;
use serde_json::{json, Value};
use std::collections::BTreeSet;
use std::path::Path;
use support::cli::Home;
use support::lab::{agent, keys, until, Lab};

/// Tells what it may, tries a call, sends a copy with a narrower token.
const TRIER: &str = "def on_activate(self, ctx, p):\n    if p.get('go'):\n        return self.on_message(ctx, p)\n    return sorted(ctx.capabilities())\ndef on_message(self, ctx, m):\n    try:\n        if m.get('sleep'):\n            import time\n            time.sleep(m['sleep'])\n        if m.get('go'):\n            token = m.get('token')\n            if 'narrow' in m:\n                token = ctx.attenuate(**m['narrow'])\n            return {'ok': ctx.clone(m['go'], m.get('then', {}), token=token)['result']['activate_result']}\n        return {'ok': getattr(ctx, m['call'])(*m.get('args', []), **m.get('kw', {}))}\n    except Exception as wrong:\n        return {'code': getattr(wrong, 'code', type(wrong).__name__), 'text': str(wrong)}";

const STRANGERS: [&str; 10] = [
    "clone",
    "move",
    "networks",
    "read_file",
    "resources",
    "return_to_stage",
    "search_files",
    "send",
    "stage",
    "trace",
];

fn key() -> PrivateKey {
    PrivateKey::generate().unwrap()
}

/// Keys of a node that trusts `ops` to give what `may` says.
fn trusting(name: &str, ops: &PrivateKey, mut may: Value) -> Keys {
    may["key"] = ops.public().text().into();
    Keys { token_keys: serde_json::from_value(json!({ "ops": may })).unwrap(), ..keys(name) }
}

fn grant(value: Value) -> Grant {
    Grant::read(&value).unwrap()
}

fn names(names: &[&str]) -> Option<BTreeSet<String>> {
    Some(names.iter().map(|name| (*name).to_owned()).collect())
}

/// A token for an hour.
fn issued(key: &PrivateKey, id: &str, nodes: &[&str], says: Value) -> Token {
    let now = unix_now();
    let nodes = names(nodes).filter(|nodes| !nodes.is_empty());
    Token::issue(key, id, now, now + 3600, nodes, &grant(says)).unwrap()
}

/// An agent comes on its own signature; what it says it may.
fn arrives(lab: &Lab, id: &str, token: &Value) -> Value {
    let payload = json!({"source_code": agent(id, TRIER), "agent_metadata": {"capability_token": token}});
    let answer = lab.ask_as(id, &format!("secret of {id}"), "receive_agent", &payload.to_string());
    assert!(answer.is_ok(), "{}", answer.line());
    serde_json::from_str::<Value>(answer.result().unwrap()).unwrap()["activate_result"].clone()
}

fn tries(lab: &Lab, id: &str, call: &str, args: Value) -> Value {
    lab.invoke(id, json!({"call": call, "args": args}))
}

#[track_caller]
fn forbidden(told: &Value, part: &str) {
    assert_eq!(told["code"], "forbidden", "{told}");
    assert!(told["text"].as_str().unwrap().contains(part), "{part:?}: {told}");
}

/// The journal of a node.
fn journal(lab: &Lab) -> Vec<Value> {
    let text = std::fs::read_to_string(lab.dir.path().join("state/journal/000000000001.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[track_caller]
fn journaled(lab: &Lab, id: &str, outcome: &str) -> Value {
    let found = || {
        let events = journal(lab).into_iter().rev();
        let mut found = events.filter(|event| event["kind"] == "token" && event["agent"] == *id);
        found.next().filter(|event| event["outcome"] == *outcome)
    };
    until(5, outcome, || found().is_some());
    found().unwrap()
}

#[test]
fn a_token_gives_what_it_says_and_no_more_than_its_key_may() {
    let ops = key();
    let lab = Lab::with(trusting(
        "n",
        &ops,
        json!({"groups": ["process"], "scopes": {"run": {"commands": ["true", "echo"]}}}),
    ));
    let says = json!({"groups": ["process", "http", "management"], "capabilities": ["read_file"],
        "scopes": {"run": {"commands": ["echo", "sh"]}, "read_file": {"paths": ["docs"]}}});
    let token = issued(&ops, "a", &["n"], says);
    // Of the key's groups what the token says, of a stranger's too: what either alone says is not there.
    assert_eq!(arrives(&lab, "a", &token.to_json()), json!(["read_file", "run"]));
    assert_eq!(tries(&lab, "a", "run", json!([["echo", "x"]]))["ok"]["stdout"], "x\n");
    for command in ["true", "sh"] {
        forbidden(&tries(&lab, "a", "run", json!([[command]])), "its scope does not have it");
    }
    lab.dir.write("data/docs/a", "text");
    lab.dir.write("data/b", "text");
    assert_eq!(tries(&lab, "a", "read_file", json!(["docs/a"]))["ok"], "text");
    forbidden(&tries(&lab, "a", "read_file", json!(["b"])), "its scope");
    for call in ["http_request", "search_files"] {
        forbidden(
            &tries(&lab, "a", call, json!(["x", "y"])),
            "what its capability token says and its key, \"ops\", may give",
        );
    }
    let event = journaled(&lab, "a", "counts");
    assert_eq!((&event["token"], &event["key"]), (&token.id().into(), &"ops".into()));
    // Nobody else has it.
    assert_eq!(arrives(&lab, "b", &Value::Null), json!(STRANGERS));
    // Neither the key that signs blocks for a holder nor the token itself is written down.
    let proof = token.to_json()["proof"].as_str().unwrap().to_owned();
    let told = lab.invoke("a", json!({"go": "nowhere", "narrow": {"ttl": 60}}));
    forbidden(&told, "clone is not granted");
    let text = journal(&lab).iter().map(Value::to_string).collect::<String>();
    assert!(!text.contains(&proof) && !lab.logged().contains(&proof));
}

#[test]
fn what_does_not_count_gives_nothing_and_says_why() {
    let (ops, stranger) = (key(), key());
    let lab = Lab::with(trusting("n", &ops, json!({"groups": ["process", "files"]})));
    let now = unix_now();
    let process = || json!({"groups": ["process"]});
    let wide = issued(&ops, "a", &["n", "m"], json!({"groups": ["process", "files"]}));
    let narrow = wide
        .narrow(&Narrowing { grant: Some(grant(json!({"groups": ["files"]}))), ..Narrowing::default() })
        .unwrap();
    let narrowest = narrow.narrow(&Narrowing { nodes: names(&["n"]), ..Narrowing::default() }).unwrap();
    let altered = |token: &Token, change: &dyn Fn(&mut Value)| {
        let mut json = token.to_json();
        change(&mut json);
        json
    };
    let cut = |json: &mut Value, keep: usize| {
        json["blocks"].as_array_mut().unwrap().truncate(keep);
    };
    let forged = |json: &mut Value| {
        // A block of its own making behind a token that it has not: any key will do, but the right one.
        let own = issued(&stranger, "a", &[], process()).narrow(&Narrowing::default()).unwrap();
        let block = own.to_json()["blocks"][1].clone();
        json["blocks"].as_array_mut().unwrap().push(block);
    };
    let cases = [
        (
            "expired",
            Token::issue(&ops, "a", now - 60, now - 10, None, &grant(process())).unwrap().to_json(),
            "it ended 1",
        ),
        (
            "not_yet",
            Token::issue(&ops, "a", now + 900, now + 999, None, &grant(process())).unwrap().to_json(),
            "s from now",
        ),
        ("other_agent", issued(&ops, "b", &[], process()).to_json(), "it was made for \"b\""),
        ("unknown_key", issued(&stranger, "a", &[], process()).to_json(), "not among the node's token_keys"),
        ("wrong_node", issued(&ops, "a", &["m"], process()).to_json(), "does not name this node, \"n\""),
        ("unreadable", altered(&narrow, &|json| cut(json, 1)), "blocks were cut off"),
        ("unreadable", altered(&narrowest, &|json| cut(json, 2)), "blocks were cut off"),
        (
            "unreadable",
            altered(&narrowest, &|json| json["blocks"].as_array_mut().unwrap().swap(1, 2)),
            "block 2",
        ),
        (
            "unreadable",
            altered(&narrowest, &|json| drop(json["blocks"].as_array_mut().unwrap().remove(1))),
            "block 2",
        ),
        (
            "unreadable",
            altered(&wide, &|json| json["blocks"][0]["expires_at"] = (now + 7200).into()),
            "not signed",
        ),
        ("unreadable", altered(&wide, &|json| json["blocks"][0]["nodes"] = json!(["n", "x"])), "not signed"),
        ("unreadable", altered(&narrow, &|json| json["blocks"][1]["grant"] = process()), "not signed"),
        ("unreadable", altered(&wide, &forged), "block 2"),
        (
            "unreadable",
            altered(&issued(&stranger, "a", &[], process()), &|json| {
                json["blocks"][0]["issuer"] = ops.public().text().into();
            }),
            "not signed",
        ),
        ("unreadable", json!("a text"), "an object of \"blocks\" and \"proof\""),
        ("unreadable", json!({"blocks": [], "proof": "x".repeat(20_000)}), "at most 16384 bytes"),
    ];
    for (word, token, part) in cases {
        let may = arrives(&lab, "a", &token);
        assert_eq!(may, json!(STRANGERS), "{word}: {part}");
        forbidden(&tries(&lab, "a", "run", json!([["true"]])), "its capability token is refused: ");
        forbidden(&tries(&lab, "a", "run", json!([["true"]])), part);
        let event = journaled(&lab, "a", word);
        assert!(event["why"].as_str().unwrap().contains(part), "{event}");
    }
    assert!(lab.logged().contains("token_refused"));
    assert_eq!(arrives(&lab, "a", &wide.to_json()).as_array().unwrap().len(), 4);
}

#[test]
fn it_ends_when_it_is_over_also_in_the_middle() {
    let ops = key();
    let lab = Lab::with(trusting("n", &ops, json!({"groups": ["process"]})));
    let now = unix_now();
    let token = Token::issue(&ops, "a", now, now + 3, None, &grant(json!({"groups": ["process"]}))).unwrap();
    assert_eq!(arrives(&lab, "a", &token.to_json()), json!(["run"]));
    // The kernel may hold rights of its process open: it does not outlive the token.
    let (code, text) =
        lab.err("invoke_agent", json!({"agent_id": "a", "message": {"call": "capabilities", "sleep": 15}}));
    assert!(code == "agent_error" && text.contains("went with its capability token"), "{text}");
    forbidden(&tries(&lab, "a", "run", json!([["true"]])), "it ended ");
    journaled(&lab, "a", "expired");
    assert_eq!(tries(&lab, "a", "capabilities", json!([]))["ok"], json!(STRANGERS));
}

#[test]
fn a_revocation_counts_at_once_for_all_that_was_made_from_it_and_outlives_the_node() {
    let ops = key();
    let dir = support::TempDir::new("tokens-revoked");
    let node = Keys {
        state_dir: Some(dir.path().join("state")),
        ..trusting("n", &ops, json!({"groups": ["process"]}))
    };
    let lab = Lab::with(node.clone());
    let says = json!({"groups": ["process"]});
    let (first, second) = (issued(&ops, "a", &[], says.clone()), issued(&ops, "b", &[], says));
    let narrower = first.narrow(&Narrowing::default()).unwrap();
    let block = narrower.ids().nth(1).unwrap().to_owned();
    assert_eq!(arrives(&lab, "a", &narrower.to_json()), json!(["run"]));
    assert_eq!(arrives(&lab, "b", &second.to_json()), json!(["run"]));
    // By the id of a further block: that one and what comes of it, not the token that it was made from.
    let told = lab.ok("revoke_token", json!({"token_id": block}));
    assert_eq!(told, json!({"token_id": block, "changed": true, "agents": ["a"]}));
    forbidden(&tries(&lab, "a", "run", json!([["true"]])), &format!("{block} was revoked here"));
    assert_eq!(arrives(&lab, "a", &first.to_json()), json!(["run"]));
    // By the token's: a hook that runs with it ends.
    let running = std::thread::scope(|scope| {
        let hook = scope.spawn(|| {
            lab.err("invoke_agent", json!({"agent_id": "a", "message": {"call": "stage", "sleep": 15}}))
        });
        until(5, "it runs", || lab.running.node.agent("a").unwrap().status() == "running");
        lab.ok("revoke_token", json!({"token_id": first.id()}));
        hook.join().unwrap()
    });
    assert!(running.1.contains("went with its capability token"), "{running:?}");
    forbidden(&tries(&lab, "a", "run", json!([["true"]])), "was revoked here");
    assert_eq!(lab.ok("revoke_token", json!({"token_id": first.id()}))["changed"], false);
    assert_eq!(tries(&lab, "b", "run", json!([["true"]]))["ok"]["returncode"], 0);
    // Nobody but the admin.
    for kind in ["revoke_token", "list_revoked_tokens"] {
        assert!(!lab.ask_as("a", "secret of a", kind, r#"{"token_id":"x"}"#).is_ok());
    }
    for odd in ["", "../x", &"x".repeat(65)] {
        assert_eq!(lab.err("revoke_token", json!({"token_id": odd})).0, "bad_payload");
    }
    drop(lab);
    let lab = Lab::with(node.clone());
    forbidden(&tries(&lab, "a", "run", json!([["true"]])), "was revoked here");
    assert_eq!(lab.ok("list_revoked_tokens", json!({})).as_array().unwrap().len(), 2);
    drop(lab);
    // Whoever lost the list trusts none.
    std::fs::write(dir.path().join("state/meta/revoked_tokens.json"), "{").unwrap();
    for _ in 0..2 {
        let lab = Lab::with(node.clone());
        forbidden(&tries(&lab, "b", "run", json!([["true"]])), "was lost with a damaged file");
    }
}

/// `m`, a node that `n` knows.
fn two(ops: &PrivateKey, may: Value) -> (Lab, Lab) {
    let m = Lab::with(trusting("m", ops, may.clone()));
    let tree = TreeNode { children: vec![m.tree_node(vec![])], ..TreeNode::leaf("n", "127.0.0.1", 1) };
    let n = Lab::with(Keys { federation: Some(tree), ..trusting("n", ops, may) });
    (n, m)
}

#[test]
fn a_holder_narrows_it_for_a_clone_and_the_clone_can_not_widen_it() {
    let ops = key();
    let (n, m) = two(&ops, json!({"groups": ["process", "files", "mobility"]}));
    let token = issued(&ops, "a", &["n", "m"], json!({"groups": ["process", "files", "mobility"]}));
    assert!(arrives(&n, "a", &token.to_json()).as_array().unwrap().contains(&json!("run")));
    let send = |then: Value| n.invoke("a", then);
    // As it is, narrowed, and narrowed to what a stranger has less of.
    let whole = send(json!({"go": "m"}))["ok"].clone();
    assert_eq!(whole.as_array().unwrap().len(), 7, "{whole}");
    let narrow = json!({"grants": ["run", "read_file"], "scopes": {"run": {"commands": ["true"]}}, "nodes": ["m"], "ttl": 600});
    assert_eq!(send(json!({"go": "m", "narrow": narrow}))["ok"], json!(["read_file", "run"]));
    assert_eq!(tries(&m, "a", "run", json!([["true"]]))["ok"]["returncode"], 0);
    forbidden(&tries(&m, "a", "run", json!([["echo"]])), "its scope");
    forbidden(&tries(&m, "a", "search_files", json!(["x"])), "its capability token says");
    assert_eq!(
        tries(&n, "a", "run", json!([["echo", "x"]]))["ok"]["stdout"],
        "x\n",
        "its own is what it was"
    );
    // The clone asks for more: a call, a node, a scope, more time.
    for (more, part) in [
        (json!({"grants": ["clone"]}), "it grants \"clone\""),
        (json!({"grants": ["files"]}), "widens"),
        (json!({"nodes": ["n", "m"]}), "it names the node \"n\""),
        (json!({"grants": ["fly"]}), "neither a group"),
        (json!({"scopes": {"http": {"hosts": ["*"]}}}), "\"http_request\""),
        (json!({"ttl": 0}), "ttl must be"),
        (json!({"grants": ["scheduling"]}), "scheduling"),
    ] {
        let told = m.invoke("a", json!({"call": "attenuate", "kw": more}));
        assert_eq!(told["code"], "bad_payload", "{told}");
        assert!(told["text"].as_str().unwrap().contains(part), "{part:?}: {told}");
    }
    let longer = m.invoke("a", json!({"call": "attenuate", "kw": {"ttl": 1e9}}))["ok"].clone();
    let longer = Token::read(&longer.to_string()).unwrap();
    assert!(longer.expires_at() <= unix_now() + 600);
    let wider = m
        .invoke("a", json!({"call": "attenuate", "kw": {"scopes": {"run": {"commands": ["echo", "true"]}}}}));
    let wider = Token::read(&wider["ok"].to_string()).unwrap();
    assert!(!wider.grant().scope("run").unwrap().has_command("echo"));
    // Another's token, or one of its own making, in a clone's luggage.
    let others = issued(&ops, "b", &[], json!({"groups": ["process"]})).to_json();
    let told = send(json!({"go": "m", "token": others}));
    assert!(
        told["code"] == "bad_payload" && told["text"].as_str().unwrap().contains("made for \"b\""),
        "{told}"
    );
    let own = issued(&key(), "a", &[], json!({"groups": ["process", "http"]})).to_json();
    assert_eq!(send(json!({"go": "m", "token": own}))["ok"], json!(STRANGERS));
    journaled(&m, "a", "unknown_key");
    let mut cut = Token::read(&longer.text()).unwrap().to_json();
    cut["blocks"].as_array_mut().unwrap().truncate(1);
    let told = send(json!({"go": "m", "token": cut}));
    assert!(told["text"].as_str().unwrap().contains("blocks were cut off"), "{told}");
    // One who has none makes none.
    arrives(&n, "c", &Value::Null);
    forbidden(&n.invoke("c", json!({"call": "attenuate"})), "carries no capability token");
}

#[test]
fn narrowing_a_pattern_to_this_machine_does_not_name_it() {
    let ops = key();
    let lab = Lab::with(trusting("n", &ops, json!({"groups": ["http"]})));
    let here = format!("127.0.0.1:{}", lab.running.node.port());
    let named = json!({"groups": ["http"], "scopes": {"http_request": {"hosts": [here]}}});
    arrives(&lab, "a", &issued(&ops, "a", &[], named.clone()).to_json());
    let url = format!("http://{here}/");
    forbidden(&tries(&lab, "a", "http_request", json!(["GET", url])), "must be named");
    forbidden(
        &tries(&lab, "a", "http_request", json!(["GET", "http://192.0.2.1/"])),
        "its scope does not have it",
    );
    // The node's operator names it for the key: then the token may, too.
    let lab = Lab::with(trusting(
        "n",
        &ops,
        json!({"groups": ["http"], "scopes": {"http_request": {"hosts": ["*", "127.0.0.1"]}}}),
    ));
    let here = format!("127.0.0.1:{}", lab.running.node.port());
    let named = json!({"groups": ["http"], "scopes": {"http_request": {"hosts": [here]}}});
    arrives(&lab, "a", &issued(&ops, "a", &[], named).to_json());
    let told = tries(&lab, "a", "http_request", json!(["GET", format!("http://{here}/")]));
    assert_ne!(told["code"], "forbidden", "{told}");
}

#[test]
fn the_admins_word_outranks_a_token_and_the_configuration_decides_whose_count() {
    let ops = key();
    let keys = trusting("n", &ops, json!({"groups": ["process"]}));
    let lab = Lab::with(keys.clone());
    let token = issued(&ops, "a", &[], json!({"groups": ["process"]})).to_json();
    arrives(&lab, "a", &token);
    // Not one of the keys any more: at the next call.
    let without = Keys { token_keys: Default::default(), ..keys.clone() };
    let config = |keys: Keys| agentcontainer::node::Config::new(keys, None).unwrap();
    lab.running.node.reload(config(without)).unwrap();
    forbidden(&tries(&lab, "a", "run", json!([["true"]])), "not among the node's token_keys");
    journaled(&lab, "a", "unknown_key");
    lab.running.node.reload(config(keys)).unwrap();
    assert_eq!(tries(&lab, "a", "run", json!([["true"]]))["ok"]["returncode"], 0);
    // An entry of its own is all that counts.
    lab.ok("revoke_grant", json!({"agent_id": "a", "grant": "process"}));
    let told = tries(&lab, "a", "run", json!([["true"]]));
    forbidden(&told, "neither \"run\" nor its group");
    assert!(!told["text"].as_str().unwrap().contains("token"), "{told}");
    // One that the admin deploys has the admin's word.
    let order = json!({"source_code": agent("d", TRIER), "agent_metadata": {"capability_token": token}, "activate_payload": {}});
    let may = lab.ok("deploy_agent", order)["activate_result"].clone();
    assert!(may.as_array().unwrap().contains(&json!("read_file")), "{may}");
}

#[test]
fn an_agent_that_tries_to_raise_itself_has_what_it_had() {
    let ops = key();
    let (n, m) = two(&ops, json!({"groups": ["process"]}));
    let good = issued(&ops, "b", &[], json!({"groups": ["process"]})).to_json();
    assert_eq!(arrives(&n, "a", &Value::Null), json!(STRANGERS));
    // As a sender of messages: a deployment with a token, a patch of its metadata, a revocation.
    let source = agent("a", TRIER);
    for sender in ["a", "admin", "ops"] {
        for (kind, payload) in [
            ("deploy_agent", json!({"source_code": source, "agent_metadata": {"capability_token": good}})),
            (
                "dispatch_agent",
                json!({"agent_id": "a", "destination": "m", "mode": "clone", "metadata_patch": {"capability_token": good}}),
            ),
            (
                "queue_agent",
                json!({"source_code": source, "destination": "m", "agent_metadata": {"capability_token": good}}),
            ),
            ("set_grant", json!({"agent_id": "a", "grant": "process"})),
            ("revoke_token", json!({"token_id": "x"})),
        ] {
            let answer = n.ask_as(sender, "secret of a", kind, &payload.to_string());
            assert!(!answer.is_ok(), "{sender} {kind}: {}", answer.line());
        }
    }
    // As an arrival with another's token, under several names of the member, and with what a grant looks like.
    let own = issued(&key(), "a", &[], json!({"groups": ["process"]})).to_json();
    for metadata in [
        json!({"capability_token": good}),
        json!({"capability_token": own}),
        json!({"token": good, "token_keys": {"x": own}, "grant": {"groups": ["process"]}, "origin": "admin"}),
        json!({"capability_token": {"grant": {"groups": ["process"]}}}),
        json!({"capability_token": [good]}),
        json!({"capability_token": good.to_string()}),
        json!({"capability_token": null}),
    ] {
        let payload = json!({"source_code": source, "agent_metadata": metadata, "token": good});
        let answer = n.ask_as("a", "secret of a", "receive_agent", &payload.to_string());
        let may: Value = serde_json::from_str(answer.result().unwrap()).unwrap();
        assert_eq!(may["activate_result"], json!(STRANGERS), "{metadata}");
        forbidden(&tries(&n, "a", "run", json!([["true"]])), "run is not granted");
    }
    // As a caller: names that are no methods, members that no call has, a token in the luggage of its copies.
    let sneak = "def on_activate(self, ctx, p):\n    return sorted(ctx.capabilities())\ndef on_message(self, ctx, m):\n    told = []\n    for name, args in m['calls']:\n        try:\n            told.append(ctx._call(name, args, ',\"memory\":null' if name == 'clone' else ''))\n        except Exception as wrong:\n            told.append(getattr(wrong, 'code', str(wrong)))\n    return told";
    let payload = json!({"source_code": agent("a", sneak)});
    assert!(n.ask_as("a", "secret of a", "receive_agent", &payload.to_string()).is_ok());
    let calls = json!([
        ["revoke_token", {"token_id": "x"}],
        ["set_token", {"token": good}],
        ["attenuate", {"token": good}],
        ["attenuate", {"grants": ["process"]}],
        ["clone", {"destination": "m", "payload": {}, "token": good}],
        ["clone", {"destination": "m", "payload": {}, "agent_metadata": {"capability_token": good}, "capability_token": good, "token": own}],
        ["run", {"command": ["true"], "timeout": 1, "token": good}],
    ]);
    let told = n.invoke("a", json!({"calls": calls}));
    let cloned = told[5]["result"]["activate_result"].clone();
    assert_eq!(cloned, json!(STRANGERS), "{told}");
    assert_eq!(
        [&told[0], &told[1], &told[2], &told[3], &told[4], &told[6]],
        ["bad_payload", "bad_payload", "forbidden", "forbidden", "bad_payload", "forbidden"]
    );
    assert!(m.has("a"));
    assert_eq!(n.ok("list_grants", json!({}))["agents"], json!({}));
}

fn write_token(home: &Home, name: &str, arguments: &[&str]) -> String {
    let text = home.run(&[&["token"], arguments].concat()).exits(0).out;
    assert_eq!(text.lines().count(), 1, "{text}");
    home.file(name, &text)
}

#[test]
fn the_commands_make_show_narrow_and_revoke_tokens() {
    let home = Home::new("tokens-cli");
    home.run(&["capsule", "keys", "generate", "--private-key", "ops.key", "--public-key", "ops.pub"])
        .exits(0);
    let public = std::fs::read_to_string(home.path("ops.pub")).unwrap();
    let config = json!({"token_keys": {"ops": {"key": public.trim(), "groups": ["process", "files"]}}, "container_name": "lab"});
    let config = home.file("node.json", &config.to_string());
    let server = home.server("node", &["127.0.0.1:0", "--config", &config]);
    let at = server.at();
    let issue = [
        "issue",
        "--agent",
        "probe",
        "--grant",
        "files",
        "--scope",
        r#"process={"commands":["true"]}"#,
        "--node",
        "lab",
        "--ttl",
        "10m",
        "--key",
        "ops.key",
    ];
    let token = write_token(&home, "probe.token", &issue);
    let shown = home.run(&["token", "show", &token]).exits(0).out;
    for part in [
        "for probe: the chain is whole",
        public.trim(),
        "on lab",
        "run only {\"commands\":[\"true\"]}",
        "block 1 (",
    ] {
        assert!(shown.contains(part), "{part:?}: {shown}");
    }
    let narrower =
        write_token(&home, "narrower.token", &["attenuate", &token, "--grant", "read_file", "--ttl", "1m"]);
    let json = home.run(&["token", "show", &narrower, "--json"]).exits(0).json();
    assert_eq!(json["blocks"].as_array().unwrap().len(), 2);
    assert_eq!(json["grant"]["capabilities"], json!(["read_file"]));
    assert_eq!(
        (&json["agent_id"], &json["expired"], &json["nodes"]),
        (&json!("probe"), &json!(false), &json!(["lab"]))
    );
    home.run(&["token", "attenuate", &narrower, "--grant", "files"])
        .exits(2)
        .says("widens: it grants \"resources\"");
    home.run(&["token", "attenuate", &token, "--node", "other"]).exits(2).says("the node \"other\"");
    home.run(&["token", "issue", "--agent", "probe", "--key", "ops.key"]).exits(2).says("--grant");
    home.run(&["token", "issue", "--agent", "probe", "--grant", "fly", "--key", "ops.key"])
        .exits(2)
        .says("neither a group");
    home.run(&[
        "token", "issue", "--agent", "probe", "--grant", "http", "--key", "ops.key", "--ttl", "10000h",
    ])
    .exits(2)
    .says("must end");
    home.run(&["token", "show", "ops.pub"]).exits(2).says("ops.pub: a token is one JSON object");
    home.run(&["token", "show", &token, "--grant", "x"]).exits(2).says("no option --grant");
    home.run(&["token", "fly"]).exits(2).says("issue, show, attenuate");
    // Sent on its own signature: the journey's node knows nobody's secret but the agent's.
    let agent = home.agent("probe", "    def on_activate(self, ctx, p):\n        try:\n            ctx.run(['true'])\n            told = 'ran'\n        except Exception as wrong:\n            told = str(wrong)\n        return {'may': ctx.capabilities(), 'run': told}");
    let secret = home.file("probe.secret", "secret-of-probe-0123");
    let source = std::fs::read_to_string(&agent).unwrap();
    let arrive = |token: &str| {
        let token: Value = serde_json::from_str(&std::fs::read_to_string(token).unwrap()).unwrap();
        let payload =
            json!({"source_code": source, "agent_metadata": {"capability_token": token}}).to_string();
        let payload = format!("@{}", home.file("payload.json", &payload));
        home.run(&[
            "call",
            "receive_agent",
            &at,
            "--sender",
            "probe",
            "--secret-file",
            &secret,
            "--payload",
            &payload,
        ])
        .exits(0)
        .json()["activate_result"]
            .clone()
    };
    assert_eq!(arrive(&token)["run"], "ran");
    assert_eq!(arrive(&narrower)["may"], json!(["read_file"]));
    let id = json["token_id"].as_str().unwrap();
    let with = |arguments: &[&str]| home.run(&[arguments, &["--state-dir", server.dir()]].concat());
    let told = with(&["token", "revoke", id, &at]).exits(0).says("carried here by probe");
    assert_eq!(told.out, format!("{id}: revoked\n"));
    with(&["token", "revoke", id, &at]).exits(0).says("already");
    with(&["token", "revoke", "mistyped", &at]).exits(0).says("no agent here carries it");
    assert!(with(&["token", "revoked", &at]).exits(0).out.contains(id));
    assert!(arrive(&token)["run"].as_str().unwrap().contains("was revoked here"));
    assert!(Path::new(&token).exists());
}
