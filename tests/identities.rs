//! Who exists in the swarm and who may come: identities, their way down the tree, trust levels. Real nodes,
//! real agents, the real binary.

#[path = "support/mod.rs"]
mod support;
use agentcontainer::capsule::{self, Agent, PackOptions, PrivateKey, Signing};
use agentcontainer::node::federation::TreeNode;
use agentcontainer::node::Keys;
use agentcontainer::roster::identities::{digest, Table, Trust};
use agentcontainer::roster::snapshot;
use agentcontainer::wire::{hex, unix_now, ReceivedAnswer, Secret};
use serde_json::{json, Value};
use support::cli::Home;
use support::lab::{agent, keys, until, Lab};

const BODY: &str =
    "def on_activate(self, ctx, p):\n    return p\ndef on_message(self, ctx, m):\n    return m";

fn hash(secret: &str) -> String {
    hex::encode(&digest(&Secret::new(secret).unwrap()))
}

/// An agent's source with a secret of its own.
fn source(id: &str, secret: &str) -> String {
    agent(id, BODY).replace(&format!("secret of {id}"), secret)
}

/// It arrives on its own signature.
fn arrives(lab: &Lab, id: &str, secret: &str) -> ReceivedAnswer {
    lab.ask_as(id, secret, "receive_agent", &json!({"source_code": source(id, secret)}).to_string())
}

#[track_caller]
fn refused(answer: &ReceivedAnswer, part: &str) {
    let error = answer.error().unwrap_or_else(|| panic!("no error: {}", answer.line()));
    assert!(answer.code() == Some("rejected") && error.contains(part), "{part:?}: {}", answer.line());
}

#[track_caller]
fn fine(answer: &ReceivedAnswer) {
    assert!(answer.is_ok(), "{}", answer.line());
}

fn create(lab: &Lab, id: &str, secret: &str) -> Value {
    lab.ok("create_identity", json!({"agent_id": id, "secret_sha256": hash(secret)}))
}

fn known(name: &str, trust: Trust) -> Keys {
    Keys { trust, ..keys(name) }
}

#[test]
fn an_identity_is_made_once_and_outlives_the_node() {
    let dir = support::TempDir::new("identities-kept");
    let mut keys = keys("identities");
    keys.state_dir = Some(dir.path().join("state"));
    let lab = Lab::with(keys.clone());
    let made = create(&lab, "a", "first");
    assert!(made["created"] == true && made["identity"]["status"] == "active", "{made}");
    assert_eq!(made["identity"]["created_by"], "admin");
    let again = create(&lab, "a", "second");
    assert!(again["created"] == false && again["identity"] == made["identity"], "{again}");
    for (payload, part) in [
        (json!({"agent_id": "../a", "secret_sha256": hash("x")}), "../a"),
        (json!({"agent_id": "admin", "secret_sha256": hash("x")}), "taken by the node"),
        (json!({"agent_id": "b", "secret_sha256": "x"}), "SHA-256"),
        (json!({"agent_id": "b", "secret_sha256": hash("x").to_uppercase()}), "lower-case"),
        (json!({"agent_id": "b", "secret_sha256": hash("x"), "public_key": "AAAA"}), "public_key"),
        (json!({"agent_id": "b", "secret_sha256": hash("x"), "status": "active"}), "status"),
    ] {
        let (code, error) = lab.err("create_identity", payload);
        assert!(code == "bad_payload" && error.contains(part), "{error}");
    }
    assert_eq!(lab.err("revoke_identity", json!({"agent_id": "b"})).0, "bad_payload");
    assert_eq!(lab.ok("revoke_identity", json!({"agent_id": "a"}))["changed"], true);
    let key = lab.ok("list_identities", json!({}))["root_key"].clone();
    drop(lab);
    use std::os::unix::fs::PermissionsExt;
    let file = std::fs::metadata(dir.path().join("state/keys/identity.key")).unwrap();
    assert_eq!(file.permissions().mode() & 0o777, 0o600);
    let lab = Lab::with(keys);
    let listed = lab.ok("list_identities", json!({}));
    assert!(listed["root_key"] == key && listed["identities"][0]["status"] == "revoked", "{listed}");
    assert_eq!(create(&lab, "a", "first")["identity"]["status"], "revoked", "it stays so");
}

#[test]
fn known_takes_whom_its_identities_name_and_their_secrets_only() {
    let lab = Lab::with(known("known", Trust::Known));
    refused(&arrives(&lab, "a", "first secret"), "has no identity");
    assert_eq!(lab.err("deploy_agent", json!({"source_code": source("a", "x")})).0, "rejected");
    create(&lab, "a", "first secret");
    refused(&arrives(&lab, "a", "other secret"), "not the one of its identity");
    fine(&arrives(&lab, "a", "first secret"));
    // The admin's word does not make an identity.
    let sent = lab.ask("receive_agent", json!({"source_code": source("a", "stolen id")}));
    refused(&sent, "not the one of its identity");
    assert_eq!(lab.invoke("a", json!(1)), 1, "who is here goes on");
}

#[test]
fn while_a_rotation_runs_both_secrets_count_and_then_only_the_new() {
    let lab = Lab::with(known("rotation", Trust::Known));
    create(&lab, "a", "old secret");
    fine(&arrives(&lab, "a", "old secret"));
    let rotate = |payload: Value| lab.ok("rotate_identity", payload);
    rotate(json!({"agent_id": "a", "secret_sha256": hash("new secret")}));
    fine(&arrives(&lab, "a", "old secret"));
    fine(&arrives(&lab, "a", "new secret"));
    fine(&arrives(&lab, "a", "old secret"));
    let (code, error) =
        lab.err("rotate_identity", json!({"agent_id": "a", "secret_sha256": hash("third secret")}));
    assert!(code == "bad_payload" && error.contains("runs already"), "{error}");
    rotate(json!({"agent_id": "a", "end": true}));
    refused(&arrives(&lab, "a", "old secret"), "not the one of its identity");
    fine(&arrives(&lab, "a", "new secret"));
    assert_eq!(arrives(&lab, "a", "old secret").code(), Some("bad_signature"), "it is not pinned any more");
    // One that ends by itself.
    rotate(json!({"agent_id": "a", "secret_sha256": hash("third secret"), "overlap_s": 1}));
    until(20, "the rotation is over", || !arrives(&lab, "a", "new secret").is_ok());
    fine(&arrives(&lab, "a", "third secret"));
    // A new secret in an old one's hands: the message is signed with one, the source holds the other.
    let mixed = json!({"source_code": source("a", "third secret")}).to_string();
    assert!(!lab.ask_as("a", "new secret", "receive_agent", &mixed).is_ok());
    for payload in [
        json!({"agent_id": "a"}),
        json!({"agent_id": "a", "end": true, "secret_sha256": hash("x")}),
        json!({"agent_id": "a", "end": false}),
    ] {
        assert_eq!(lab.err("rotate_identity", payload).0, "bad_payload");
    }
}

#[test]
fn a_revoked_identity_comes_nowhere_in_open_nodes_too() {
    for trust in [Trust::Open, Trust::Known] {
        let lab = Lab::with(known("revoked", trust));
        create(&lab, "a", "a's own secret");
        fine(&arrives(&lab, "a", "a's own secret"));
        fine(&lab.ask_as("a", "a's own secret", "describe_container", "{}"));
        lab.ok("revoke_identity", json!({"agent_id": "a"}));
        refused(&arrives(&lab, "a", "a's own secret"), "revoked");
        let asked = lab.ask_as("a", "a's own secret", "describe_container", "{}");
        assert_eq!(asked.code(), Some("forbidden"));
        let deployed = lab.ask("deploy_agent", json!({"source_code": source("a", "a's own secret")}));
        refused(&deployed, "revoked");
        assert_eq!(lab.invoke("a", json!(1)), 1, "who is here goes on until it is removed");
    }
}

#[test]
fn an_open_node_takes_strangers_and_pins_them_whatever_identities_say() {
    let lab = Lab::start("open");
    create(&lab, "a", "of the identity");
    fine(&arrives(&lab, "a", "its own"));
    assert_eq!(arrives(&lab, "a", "of the identity").code(), Some("bad_signature"));
}

/// A capsule of an agent, signed or not.
fn sealed(id: &str, key: Option<&PrivateKey>) -> String {
    let source = source(id, "sealed secret");
    let signing =
        key.map_or(Signing::None, |key| Signing::Ed25519 { key: Box::new(key.clone()), inline: true });
    let options = PackOptions { signing, key_id: key.map(|_| "k".into()), ..PackOptions::default() };
    capsule::pack_agent(&Agent { source: &source, memory: None, state: None }, &options).unwrap()
}

#[test]
fn signed_takes_only_capsules_of_the_identitys_key_or_of_the_registry() {
    let dir = support::TempDir::new("signed-registry");
    let (own, other) = (PrivateKey::generate().unwrap(), PrivateKey::generate().unwrap());
    let registry = |status: &str| {
        json!({"keys": [{"key_id": "k", "fingerprint": other.public().fingerprint(),
            "public_key": other.public().text(), "status": status}]})
        .to_string()
    };
    dir.write("trusted.json", registry("trusted"));
    let mut keys = known("signed", Trust::Signed);
    keys.trust_registry = Some(dir.path().join("trusted.json"));
    let lab = Lab::with(keys);
    let with_key = json!({
        "agent_id": "keyed", "secret_sha256": hash("sealed secret"), "public_key": own.public().text(),
    });
    lab.ok("create_identity", with_key);
    create(&lab, "free", "sealed secret");
    let comes = |id: &str, text: &str| {
        lab.ask_as(id, "sealed secret", "receive_agent", &json!({"capsule": text}).to_string())
    };
    refused(&arrives(&lab, "keyed", "sealed secret"), "did not come in a capsule");
    refused(&comes("keyed", &sealed("keyed", None)), "did not come in a capsule");
    refused(&comes("keyed", &sealed("keyed", Some(&other))), "not signed with the key of its identity");
    refused(&comes("free", &sealed("free", Some(&own))), "not in the trust registry");
    fine(&comes("free", &sealed("free", Some(&other))));
    fine(&comes("keyed", &sealed("keyed", Some(&own))));
    dir.write("trusted.json", registry("revoked"));
    assert!(!comes("free", &sealed("free", Some(&other))).is_ok());
}

/// A node below a root.
fn below(dir: &support::TempDir, name: &str, key: &str, children: Vec<TreeNode>) -> Keys {
    let mut tree = TreeNode::leaf(name, "127.0.0.1", 1);
    tree.children = children;
    Keys {
        state_dir: Some(dir.path().join(name)),
        federation: Some(tree),
        identity_root_key: Some(key.into()),
        ..known(name, Trust::Known)
    }
}

fn sequence(lab: &Lab) -> u64 {
    lab.ok("list_identities", json!({}))["sequence"].as_u64().unwrap_or(0)
}

#[test]
fn a_tree_of_three_levels_goes_on_while_the_root_is_away_and_its_nodes_start_anew() {
    let dir = support::TempDir::new("three-levels");
    let mut root_keys = Keys { state_dir: Some(dir.path().join("root")), ..known("root", Trust::Known) };
    let root = Lab::with(root_keys.clone());
    let key = create(&root, "a", "secret of a")["root_key"].as_str().unwrap().to_owned();
    let mut leaf_keys = below(&dir, "leaf", &key, vec![]);
    let leaf = Lab::with(leaf_keys.clone());
    leaf_keys.listen_port = leaf.running.node.port();
    let mut middle_keys = below(&dir, "middle", &key, vec![leaf.tree_node(vec![])]);
    let middle = Lab::with(middle_keys.clone());
    middle_keys.listen_port = middle.running.node.port();
    refused(&arrives(&leaf, "a", "secret of a"), "have not come");
    let mut tree = TreeNode::leaf("root", "127.0.0.1", 1);
    tree.children = vec![middle.tree_node(vec![])];
    root_keys.federation = Some(tree);
    assert!(root.running.reload(Ok(root_keys.clone()), None));

    let pushed = root.ok("push_identities", json!({}));
    assert_eq!(pushed["children"], json!([{"node": "middle", "taken": true, "error": null}]));
    let first = pushed["sequence"].as_u64().unwrap();
    until(20, "the leaf has it", || sequence(&leaf) == first);
    fine(&arrives(&leaf, "a", "secret of a"));
    refused(&arrives(&leaf, "b", "secret of b"), "no identity");
    assert_eq!(
        leaf.err("create_identity", json!({"agent_id": "b", "secret_sha256": hash("x")})).0,
        "rejected"
    );

    // The leaf is away while the next one comes; the root goes, and the middle is started anew meanwhile.
    drop(leaf);
    create(&root, "b", "secret of b");
    root.ok("revoke_identity", json!({"agent_id": "a"}));
    let second = root.ok("push_identities", json!({}))["sequence"].as_u64().unwrap();
    assert!(second > first);
    drop(root);
    drop(middle);
    let leaf = Lab::with(leaf_keys.clone());
    assert_eq!(sequence(&leaf), first, "it works from its last good one");
    fine(&arrives(&leaf, "a", "secret of a"));
    let middle = Lab::with(middle_keys);
    until(20, "the middle hands on what the leaf missed", || sequence(&leaf) == second);
    refused(&arrives(&leaf, "a", "secret of a"), "revoked");
    fine(&arrives(&leaf, "b", "secret of b"));
    assert_eq!(leaf.invoke("a", json!(1)), 1, "residents go on");

    // The root is back, as a backup has it, and is not behind itself.
    let root = Lab::with(root_keys);
    let third = root.ok("push_identities", json!({"expires_in_s": 2}))["sequence"].as_u64().unwrap();
    assert!(third > second);
    until(20, "the leaf has the short one", || sequence(&leaf) == third);
    drop(root);
    until(20, "it has expired", || !arrives(&leaf, "b", "secret of b").is_ok());
    refused(&arrives(&leaf, "b", "secret of b"), "have expired");
    refused(&arrives(&leaf, "a", "secret of a"), "revoked");
    assert_eq!(leaf.invoke("b", json!(2)), 2, "residents go on");
    drop(leaf);
    let leaf = Lab::with(leaf_keys);
    refused(&arrives(&leaf, "b", "secret of b"), "have expired");
    assert_eq!(leaf.invoke("b", json!(3)), 3);
    drop(middle);
}

#[test]
fn a_node_refuses_snapshots_that_are_older_expired_or_not_its_roots() {
    let dir = support::TempDir::new("snapshots-refused");
    let (root, other) = (PrivateKey::generate().unwrap(), PrivateKey::generate().unwrap());
    let lab = Lab::with(below(&dir, "below", &root.public().text(), vec![]));
    let now = unix_now();
    let made = |sequence: u64, key: &PrivateKey, expires: i64| -> Value {
        let table = Table { sequence, ..Table::default() };
        serde_json::from_str(&snapshot::issue(&table, "root", key, now, expires).text).unwrap()
    };
    let push = |snapshot: Value| lab.ask("push_identities", json!({"snapshot": snapshot}));
    fine(&push(made(5, &root, now + 100)));
    fine(&push(made(5, &root, now + 100)));
    refused(&push(made(4, &root, now + 100)), "older");
    refused(&push(made(6, &root, now - 1)), "expired");
    refused(&push(made(6, &other, now + 100)), "not signed by the root's key");
    let mut changed = made(6, &root, now + 100);
    changed["expires_at"] = json!(now + 101);
    refused(&push(changed), "not signed");
    assert_eq!(sequence(&lab), 5);
    // Whoever hands one down needs no secret of this node, and can do nothing else.
    let key = root.public().text();
    let handed = |kind: &str, payload: Value| lab.ask_as(".identities", &key, kind, &payload.to_string());
    fine(&handed("push_identities", json!({"snapshot": made(7, &root, now + 100)})));
    assert_eq!(sequence(&lab), 7);
    assert!(!handed("push_identities", json!({})).is_ok());
    for kind in agentcontainer::node::senders::TYPES.into_iter().filter(|kind| *kind != "push_identities") {
        let code = handed(kind, json!({})).code().map(str::to_owned);
        assert!(matches!(code.as_deref(), Some("unknown_sender" | "bad_payload")), "{kind}: {code:?}");
    }
    let forged = lab.ask_as(".identities", "another key", "push_identities", "{}");
    assert_eq!(forged.code(), Some("bad_signature"));
    // A root takes them from nobody.
    let root_node = Lab::start("a-root");
    let told = root_node.ask("push_identities", json!({"snapshot": made(8, &root, now + 100)}));
    refused(&told, "takes identities from nobody");
}

#[test]
fn old_and_new_admin_secret_count_while_a_rotation_runs() {
    let mut keys = keys("admin-rotation");
    let old = "an admin secret for tests";
    keys.admin_secret = Some(serde_json::from_value(json!([old, "the next admin secret"])).unwrap());
    let lab = Lab::with(keys.clone());
    for secret in [old, "the next admin secret"] {
        fine(&lab.ask_as("admin", secret, "list_identities", "{}"));
    }
    keys.admin_secret = Some(serde_json::from_value(json!("the next admin secret")).unwrap());
    assert!(lab.running.reload(Ok(keys), None));
    assert_eq!(lab.ask_as("admin", old, "list_identities", "{}").code(), Some("bad_signature"));
    fine(&lab.ask_as("admin", "the next admin secret", "list_identities", "{}"));
}

#[test]
fn the_commands_make_show_rotate_revoke_and_push() {
    let home = Home::new("identity-cli");
    let server = home.server("node", &["127.0.0.1:0"]);
    let at = server.at();
    let with = |arguments: &[&str]| home.run(&[arguments, &["--state-dir", server.dir()]].concat());
    let agent = home.agent("scout", "    def on_activate(self, ctx, payload):\n        return 1");
    let made = with(&["identity", "create", "scout", &at, "--source", &agent]).exits(0);
    assert!(made.out.starts_with("scout: active, created "), "{}", made.out);
    let made = made.says("identity_root_key");
    assert!(!made.err.contains("secret-of-scout"));
    with(&["identity", "create", "scout", &at, "--source", &agent]).exits(0).says("nothing was changed");
    let file = home.file("new", "another secret of the scout\n");
    with(&["identity", "create", "scout", &at, "--secret-file", &file])
        .exits(0)
        .says("its secret is another");
    with(&["identity", "create", "other", &at, "--source", &agent]).exits(2).says("AGENT_ID is \"scout\"");
    let told =
        with(&["identity", "rotate", "scout", &at, "--secret-file", &file, "--overlap", "2h"]).exits(0).out;
    assert!(told.contains("two secrets (a rotation runs until "), "{told}");
    let told = with(&["identity", "rotate", "scout", &at, "--end"]).exits(0).out;
    assert!(!told.contains("two secrets"), "{told}");
    with(&["identity", "rotate", "scout", &at, "--end"]).exits(1).says("no rotation");
    let listed = with(&["identity", "list", &at]).exits(0).says("the root; its key: ").out;
    assert!(listed.contains("scout") && listed.contains("active"), "{listed}");
    let pushed = with(&["identity", "push", &at, "--expires", "10m"]).exits(0).out;
    assert!(pushed.starts_with("1 identities in snapshot "), "{pushed}");
    let told = with(&["identity", "revoke", "scout", &at, "--json"]).exits(0).json();
    assert!(told["changed"] == true && told["identity"]["status"] == "revoked", "{told}");
    with(&["identity", "revoke", "scout", &at]).exits(0).says("revoked already");
    with(&["deploy", &agent, &at]).exits(1).says("revoked");
    // The admin's secret has an option of its own here.
    let secret = server.dir.join("meta/admin.secret");
    let secret = secret.to_str().unwrap();
    home.run(&["identity", "create", "b", &at, "--secret-file", &file, "--admin-secret-file", secret])
        .exits(0);
    home.run(&["identity", "list", &at, "--secret-file", secret]).exits(0);
}
