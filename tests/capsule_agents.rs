//! Agents that come and go in capsules.

#[path = "support/mod.rs"]
mod support;
use agentcontainer::capsule::trust::Entry;
use agentcontainer::capsule::{self, pack_agent, Agent, HmacKey, PackOptions, PrivateKey, Registry, Signing};
use agentcontainer::node::federation::TreeNode;
use agentcontainer::node::Keys;
use serde_json::{json, Value};
use support::lab::{agent, keys, Lab};

const BODY: &str = "def __init__(self):\n    self.n = 0\ndef on_activate(self, ctx, p):\n    self.n += 1\n    return [self.n, ctx.capabilities()]\ndef on_message(self, ctx, m):\n    import os\n    self.n += 1\n    if m.get('go'):\n        return getattr(ctx, m['how'])(m['go'], {})\n    path = os.path.join(ctx.state_dir(), 'note')\n    return [self.n, open(path).read() if os.path.exists(path) else None]";

fn sealed(source: &str, signing: Signing, asked: &[&str]) -> String {
    let options = PackOptions {
        signing,
        requested_capabilities: asked.iter().map(|name| (*name).to_owned()).collect(),
        ..PackOptions::default()
    };
    pack_agent(&Agent { source, memory: Some("{\"n\": 40}"), state: None }, &options).unwrap()
}

fn signing(key: &PrivateKey) -> Signing {
    Signing::Ed25519 { key: key.clone().into(), inline: true }
}

/// A node with a policy and a registry that trusts `key`.
fn careful(name: &str, key: &PrivateKey, tree: Option<TreeNode>) -> Careful {
    let dir = support::TempDir::new("careful");
    let mut registry = Registry::default();
    registry.add(Entry::new("publisher", key.public())).unwrap();
    dir.write("registry.json", registry.json());
    dir.write("policy.json", r#"{"allow_unsigned": false, "require_signature_registry": true}"#);
    let lab = Lab::with(Keys {
        capsule_policy: Some(dir.path().join("policy.json")),
        trust_registry: Some(dir.path().join("registry.json")),
        listen_port: tree.as_ref().map_or(0, |tree| tree.port),
        federation: tree,
        ..keys(name)
    });
    Careful { lab, _dir: dir }
}

/// A node and the directory with its policy and registry, which it reads anew for each capsule.
struct Careful {
    lab: Lab,
    _dir: support::TempDir,
}

impl std::ops::Deref for Careful {
    type Target = Lab;
    fn deref(&self) -> &Lab {
        &self.lab
    }
}

fn deploy(lab: &Lab, capsule: &str) -> Value {
    lab.ok("deploy_agent", json!({"capsule": capsule, "activate_payload": {}}))
}

#[test]
fn a_capsule_pasted_into_a_mail_deploys_and_narrows_what_the_agent_may_call() {
    let lab = Lab::start("mail");
    let capsule = sealed(&agent("posted", BODY), Signing::None, &["files", "stage"]);
    let mail = format!("Hello,\r\n\r\nas agreed:\r\n\r\n{}\r\nRegards", capsule.replace('\n', "\r\n"));
    let result = deploy(&lab, &mail);
    assert_eq!(result["activate_result"], json!([41, ["read_file", "resources", "search_files", "stage"]]));
    let listed = lab.ok("list_agents", json!({}));
    assert_eq!(listed[0]["signer"]["fingerprint"], Value::Null, "nobody signed it");
    // A source may ask for less than its capsule.
    let source = format!("AGENT_CAPABILITIES = ['read_file', 'run']\n{}", agent("less", BODY));
    let result = deploy(&lab, &sealed(&source, Signing::None, &["files"]));
    assert_eq!(result["activate_result"][1], json!(["read_file"]));
}

#[test]
fn policy_and_registry_decide_before_anything_is_looked_at() {
    let (key, other) = (PrivateKey::generate().unwrap(), PrivateKey::generate().unwrap());
    let lab = careful("careful", &key, None);
    let source = agent("signed", BODY);
    let trusted = sealed(&source, signing(&key), &[]);
    for (capsule, part) in [
        (sealed(&source, Signing::None, &[]), "sign"),
        (sealed(&source, signing(&other), &[]), "registry"),
        (trusted.replace("requested_capabilities\":[]", "requested_capabilities\":[\"run\"]"), "signature"),
        (trusted.replace("-----END AGENT CAPSULE-----", ""), "end marker"),
        ("no capsule at all".into(), "begin marker"),
    ] {
        let (code, text) = lab.err("deploy_agent", json!({"capsule": capsule}));
        assert!(code == "rejected" && text.contains(part), "{part}: {code} {text}");
        assert!(!lab.has("signed"));
    }
    let (code, text) = lab.err("deploy_agent", json!({"capsule": trusted, "source_code": source}));
    assert!(code == "bad_payload" && text.contains("both"), "{text}");
    assert_eq!(lab.err("deploy_agent", json!({})).0, "bad_payload");
    deploy(&lab, &trusted);
    let signer = lab.ok("list_agents", json!({}))[0]["signer"].clone();
    assert_eq!(
        (signer["trust"].as_str(), signer["fingerprint"].as_str()),
        (Some("trusted"), Some(&*key.public().fingerprint())),
        "{signer}"
    );
    assert_eq!(lab.ok("describe_container", json!({}))["signers"][0]["agent_id"], "signed");
}

#[test]
fn a_key_that_the_node_does_not_have_is_told_in_words_of_a_node() {
    let lab = Lab::start("keyless");
    let source = agent("signed", BODY);
    let shared = Signing::Hmac(capsule::HmacKey::new(b"a shared secret").unwrap());
    let key = PrivateKey::generate().unwrap();
    let bare = Signing::Ed25519 { key: key.into(), inline: false };
    for (signing, part) in
        [(shared, "a shared key (hmac-sha256), which no node has"), (bare, "nor in a trust registry")]
    {
        let (code, text) = lab.err("deploy_agent", json!({"capsule": sealed(&source, signing, &[])}));
        assert!(code == "rejected" && text.contains(part) && !text.contains("--"), "{code} {text}");
    }
}

#[test]
fn a_key_revoked_a_moment_ago_is_revoked() {
    let key = PrivateKey::generate().unwrap();
    let lab = careful("revoking", &key, None);
    let capsule = sealed(&agent("signed", BODY), signing(&key), &[]);
    deploy(&lab, &capsule);
    let file = lab.running.node.config().keys.trust_registry.clone().unwrap();
    capsule::registry_file::edit(&file, |registry| registry.revoke(Some("publisher"), None, None).map(drop))
        .unwrap();
    let (code, text) = lab.err("deploy_agent", json!({"capsule": capsule}));
    assert!(code == "rejected" && text.contains("revoked"), "{code} {text}");
}

#[test]
fn clones_and_moves_carry_the_same_capsule_on_with_memory_and_files_beside_it() {
    let key = PrivateKey::generate().unwrap();
    let far = careful("far", &key, None);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let tree =
        TreeNode { children: vec![far.tree_node(vec![])], ..TreeNode::leaf("near", "127.0.0.1", port) };
    let near = careful("near", &key, Some(tree));
    let capsule = sealed(&agent("traveller", BODY), signing(&key), &[]);
    deploy(&near, &capsule);
    assert_eq!(near.invoke("traveller", json!({})), json!([42, null]));
    let state = near.running.node.agent("traveller").unwrap().state_dir().join("note");
    std::fs::write(state, "kept").unwrap();
    for how in ["clone", "move"] {
        let answer = near.invoke("traveller", json!({"go": "far", "how": how}));
        assert_eq!(answer["status"], "ok", "{how}: {answer}");
        let there = far.running.node.agent("traveller").unwrap();
        assert_eq!(there.sealed.as_ref().map(|sealed| sealed.text.as_str()), Some(capsule.as_str()), "{how}");
        assert_eq!(far.ok("list_agents", json!({}))[0]["signer"]["trust"], "trusted");
    }
    assert!(!near.has("traveller"));
    // 40 packed, +1 activated, +1 message, +1 per going, +1 each time it arrived.
    assert_eq!(far.invoke("traveller", json!({})), json!([46, "kept"]));
}

#[test]
fn a_stranger_may_come_in_a_capsule() {
    let lab = Lab::start("open");
    let capsule = sealed(&agent("stranger", BODY), Signing::None, &[]);
    let answer = lab.ask_as(
        "stranger",
        "secret of stranger",
        "receive_agent",
        &json!({"capsule": capsule, "transfer_id": "t1"}).to_string(),
    );
    assert!(answer.is_ok() && answer.field("transfer") == Some("\"done\""), "{}", answer.line());
    assert_eq!(lab.invoke("stranger", json!({})), json!([42, null]));
    let forged = capsule.replacen("bmV", "bmW", 1).replace("created_by: ", "created_by: x");
    let answer = lab.ask_as("someone", "guess", "receive_agent", &json!({"capsule": forged}).to_string());
    assert!(!answer.is_ok() && !lab.has("someone"), "{}", answer.line());
}

/// A node whose tree has `far` below it.
fn above(name: &str, far: &[&Lab]) -> Lab {
    let children = far.iter().map(|far| far.tree_node(vec![])).collect();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let tree = TreeNode { children, ..TreeNode::leaf(name, "127.0.0.1", port) };
    Lab::with(Keys { listen_port: port, federation: Some(tree), ..keys(name) })
}

#[test]
fn a_node_that_cannot_sign_its_refusal_does_not_keep_the_agent_from_coming_back() {
    let (key, other) = (PrivateKey::generate().unwrap(), PrivateKey::generate().unwrap());
    let far = careful("far", &key, None);
    let small = Lab::with(Keys { max_message_bytes: 20_000, ..keys("small") });
    let taken = careful("taken", &key, None);
    let namesake = agent("mover", BODY).replace("secret of mover", "another's secret");
    deploy(&taken, &sealed(&namesake, signing(&key), &[]));
    let near = above("near", &[&far, &small, &taken]);
    let capsule = sealed(&agent("mover", BODY), signing(&other), &[]);
    deploy(&near, &capsule);
    let large = near.running.node.agent("mover").unwrap().state_dir().join("large");
    std::fs::write(large, vec![b'x'; 30_000]).unwrap();
    for (to, code, part) in [
        ("far", "rejected", "not trusted by local registry"),
        ("small", "too_large", "max_message_bytes"),
        ("taken", "bad_signature", "mover"),
    ] {
        for how in ["clone", "move"] {
            let message = json!({"agent_id": "mover", "message": {"go": to, "how": how}});
            let (_, told) = near.err("invoke_agent", message);
            assert!(told.contains(code) && told.contains(part), "{how} to {to}: {told}");
            let order = json!({"agent_id": "mover", "destination": to, "mode": how});
            let (told, text) = near.err("dispatch_agent", order);
            assert!(told == code && text.contains(part), "{how} to {to}: {told} {text}");
            assert_eq!(near.ok("list_agents", json!({}))[0]["status"], "idle", "{how} to {to}");
        }
    }
    assert_eq!(near.ok("list_outbox", json!({})), json!([]));
    assert!(!far.has("mover") && !small.has("mover"));
    assert_eq!(taken.invoke("mover", json!({}))[1], Value::Null, "the one that lives there is as it was");
}

#[test]
fn a_fresh_deployment_of_a_capsule_begins_with_what_it_holds() {
    let lab = Lab::start("fresh");
    let capsule = sealed(&agent("again", BODY), Signing::None, &[]);
    deploy(&lab, &capsule);
    let note = || lab.running.node.agent("again").unwrap().state_dir().join("note");
    std::fs::write(note(), "mine").unwrap();
    deploy(&lab, &capsule);
    assert_eq!(lab.invoke("again", json!({})), json!([43, "mine"]), "without fresh it goes on");
    lab.ok("deploy_agent", json!({"capsule": capsule, "activate_payload": {}, "fresh": true}));
    assert_eq!(lab.invoke("again", json!({})), json!([42, null]));
    // Of a plain source, `fresh` is about the memory.
    std::fs::write(note(), "mine").unwrap();
    lab.ok("deploy_agent", json!({"source_code": agent("again", BODY), "fresh": true}));
    assert_eq!(lab.invoke("again", json!({})), json!([1, "mine"]));
}

#[test]
fn a_capsule_that_no_node_takes_says_why_in_a_nodes_words() {
    let lab = Lab::start("words");
    let (key, source) = (PrivateKey::generate().unwrap(), agent("worded", BODY));
    let without = Signing::Ed25519 { key: key.into(), inline: false };
    for (capsule, part) in [
        (
            sealed(&source, Signing::Hmac(HmacKey::new(b"shared").unwrap()), &[]),
            "which no node has; sign with an Ed25519 key",
        ),
        (sealed(&source, without, &[]), "neither in it nor in a trust registry"),
        (bundle(&[("agent.py", source.as_bytes()), ("memory.json", b"[1]")]), "an array, not an object"),
        (bundle(&[("agent.py", source.as_bytes()), ("memory.json", b"null")]), "null, not an object"),
    ] {
        let (code, text) = lab.err("deploy_agent", json!({"capsule": capsule}));
        assert!(code == "rejected" && text.contains(part) && !text.contains("--key-env"), "{text}");
    }
}

/// An unsigned capsule of these files, whatever they are.
fn bundle(files: &[(&str, &[u8])]) -> String {
    let dir = support::TempDir::new("bundle");
    for (name, bytes) in files {
        dir.write(name, *bytes);
    }
    let mut text = Vec::new();
    let content = capsule::pack::Content::read(dir.path()).unwrap();
    capsule::pack::pack(&content, &PackOptions::default(), &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

#[test]
fn names_that_no_node_has_are_told_and_the_trace_is_granted_like_a_call() {
    let lab = Lab::start("asked");
    let body = "def on_message(self, ctx, m):\n    try:\n        return ctx.trace\n    except Exception as error:\n        return [error.code, str(error)]";
    let source = format!("AGENT_CAPABILITIES = ['fils', 'federation']\n{}", agent("asks", body));
    let capsule = sealed(&source, Signing::None, &["trac", "stage"]);
    deploy(&lab, &capsule);
    let logged = lab.logged();
    for part in [
        "unknown_capability agent=asks name=fils in=AGENT_CAPABILITIES nearest=files",
        "unknown_capability agent=asks name=trac in=requested_capabilities nearest=trace",
    ] {
        assert_eq!(logged.matches(part).count(), 1, "{part}: {logged}");
    }
    let told = lab.invoke("asks", json!({}));
    assert!(told[0] == "forbidden" && told[1].as_str().unwrap().contains("requested_capabilities"), "{told}");
    deploy(&lab, &sealed(&source, Signing::None, &["trace"]));
    assert_eq!(lab.invoke("asks", json!({})), json!([]));
}
