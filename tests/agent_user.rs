//! `agent_user`: a root's node whose agents run as somebody else. As an ordinary user only its refusal is shown.

#[path = "support/mod.rs"]
mod support;

#[allow(dead_code)] // a part of it is used here
mod durable {
    pub mod node;
}

use durable::node::Node;
use serde_json::{json, Value};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use support::lab::agent;

/// Who nobody is, and an interpreter that nobody reaches too.
const NOBODY: &str = "65534:65534";
const PYTHON: &str = "/usr/bin/python3";

/// Who it is and what it can open; a file of its own, one more with every message.
const WHO: &str = "def __init__(self):\n    self.n = 0\ndef on_message(self, ctx, path):\n    import os\n    self.n += 1\n    with open(ctx.state_dir() + '/note%d' % self.n, 'w') as out:\n        out.write('mine')\n    try:\n        opened = open(path).read() and 'open'\n    except OSError as wrong:\n        opened = type(wrong).__name__\n    told = ctx.run(['id', '-u'])['stdout'].strip() if 'run' in ctx.capabilities() else None\n    return [os.getuid(), os.getgid(), os.getgroups(), told, opened, self.n]";

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn refused(node: &Node) -> String {
    let told = node.command().output().unwrap();
    let log = std::fs::read_to_string(node.dir.path().join("log")).unwrap();
    assert!(!told.status.success(), "{log}");
    assert!(!log.contains("listening"), "{log}");
    log
}

#[test]
fn who_cannot_be_agents_user_is_refused_at_the_start() {
    let with = |user: &str| Node::new("n", &[]).with("agent_user", json!(user));
    if !is_root() {
        assert!(refused(&with(NOBODY)).contains("only a node that runs as root"));
        return;
    }
    for (user, part) in [
        ("root", "is root"),
        ("0:5", "is root"),
        ("5:0", "of root's group"),
        ("nobody-of-that-name", "there is no user \"nobody-of-that-name\" in /etc/passwd"),
        ("", "there is no user \"\""),
    ] {
        let said = refused(&with(user));
        assert!(said.contains(part) && said.contains("agent_user"), "{user}: {said}");
    }
    let node = with(NOBODY);
    std::fs::set_permissions(node.dir.path(), PermissionsExt::from_mode(0o700)).unwrap();
    let said = refused(&node);
    assert!(said.contains("is closed to other users"), "{said}");
    assert!(said.contains(&*node.dir.path().to_string_lossy()), "{said}");
    std::fs::set_permissions(node.dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let bin = node.dir.path().join("closed/bin");
    std::fs::create_dir_all(&bin).unwrap();
    let python = bin.join("python3");
    std::fs::copy("/bin/true", &python).unwrap();
    std::fs::set_permissions(bin.parent().unwrap(), PermissionsExt::from_mode(0o700)).unwrap();
    let said = refused(&node.with("python", json!(python)));
    assert!(
        said.contains("would not reach the interpreter") && said.contains("take another python"),
        "{said}"
    );
}

#[test]
fn agents_and_their_commands_run_as_that_user_and_reach_their_own_directory_alone() {
    if !is_root() || !std::path::Path::new(PYTHON).exists() {
        eprintln!("not shown here: it takes root and {PYTHON}");
        return;
    }
    for sandbox in ["best-effort", "off"] {
        let mut node = Node::new("n", &[]).with("python", json!(PYTHON)).with("sandbox", json!(sandbox));
        // First without: its files are root's.
        node.start();
        node.deploy(&agent("who", WHO));
        let root = json!([0, 0, [], "0", "PermissionError", 1]);
        let told = node.invoke("who", json!("/etc/shadow"));
        assert_eq!((&told[0], &told[5]), (&root[0], &root[5]), "{told}");
        node.kill();
        let data = node.dir.path().join("data");
        std::fs::create_dir(&data).unwrap();
        let mut node = node.with("agent_user", json!(NOBODY)).with("data_root", json!(data));
        for n in 2..4 {
            node.start();
            for path in ["/etc/shadow", "harness/1/meta.json", "../../node.json"] {
                let path = match path.starts_with('/') {
                    true => path.into(),
                    false => node.state("agents/who").join(path),
                };
                assert!(path.exists(), "{}", path.display());
                let told = node.invoke("who", json!(path));
                let expected = json!([65534, 65534, [], "65534", "PermissionError"]);
                assert_eq!(told.as_array().unwrap()[..5], expected.as_array().unwrap()[..], "{path:?}");
            }
            let own = node.state("agents/who/state");
            for name in ["", "note1", &format!("note{n}")] {
                let told = own.join(name).metadata().unwrap();
                assert_eq!((told.uid(), told.gid()), (65534, 65534), "{name}");
            }
            let closed = node.state("agents/who/harness").metadata().unwrap();
            assert_eq!((closed.uid(), closed.mode() & 0o777), (0, 0o700));
            node.kill();
        }
        // And without again.
        let mut node = node.with("agent_user", Value::Null);
        node.start();
        let told = node.invoke("who", json!(node.state("agents/who/state/note2")));
        assert_eq!((&told[0], &told[4]), (&json!(0), &json!("open")), "{told}");
    }
}

#[test]
fn a_command_reaches_another_node_of_its_user_and_with_agent_user_none() {
    if !is_root() || !std::path::Path::new(PYTHON).exists() {
        eprintln!("not shown here: it takes root and {PYTHON}");
        return;
    }
    let mut other = Node::new("other", &[]);
    other.start();
    let code = "def on_message(self, ctx, command):\n    return ctx.run(command)['returncode']";
    let connect = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])";
    let (note, socket) = (other.state("node.json"), other.state("admin.sock"));
    let pid: Value = serde_json::from_slice(&std::fs::read(&note).unwrap()).unwrap();
    let tries = [
        json!(["cat", note]),
        json!([PYTHON, "-c", connect, socket]),
        json!(["/bin/sh", "-c", format!("kill -0 {}", pid["pid"])]),
    ];
    let mut node = Node::new("n", &[]).with("python", json!(PYTHON));
    let data = node.dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    node = node.with("data_root", json!(data));
    node.start();
    node.deploy(&agent("runs", code));
    for command in &tries {
        assert_eq!(node.invoke("runs", command.clone()), json!(0), "{command}");
    }
    node.kill();
    let mut node = node.with("agent_user", json!(NOBODY));
    node.start();
    assert_eq!(node.invoke("runs", json!(["true"])), json!(0));
    for command in &tries {
        assert_ne!(node.invoke("runs", command.clone()), json!(0), "{command}");
    }
}
