//! Agents that come and go in capsules.

#[path = "support/mod.rs"]
mod support;
use agentcontainer::capsule::trust::Entry;
use agentcontainer::capsule::{self, pack_agent, Agent, PackOptions, PrivateKey, Registry, Signing};
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
