//! Keys and capsules that many cases need, made once by the peer.

use crate::draft::{base64, HELLO};
use crate::place::{Entry, Node, Program};
use crate::support::TempDir;
use serde_json::{json, Value};
use std::sync::OnceLock;

/// The secret in the environment variable `K`, with which `hmac.txt` is signed.
pub const SECRET: &str = "a shared secret";

/// What is in the box of a case that asks for the kit, and what a case must know about it.
///
/// Files: `p.txt`; the pairs `k.key` `k.pub` and `o.key` `o.pub`; the capsules `plain.txt`, `hmac.txt` (key
/// id `kid`), `ed.txt` (key `k`, id `kid`, the key inline), `anon.txt` (key `k`, no id, the key inline),
/// `bare.txt` (key `k`, no id, no key), `named.txt` (key `k`, id `kid`, no key) and `tree.txt` (a directory).
pub struct Kit {
    pub entries: Vec<(String, Entry)>,
    /// Public key and fingerprint of the pair `k`.
    pub key: (String, String),
    /// Public key and fingerprint of the pair `o`.
    pub other: (String, String),
}

impl Kit {
    pub fn get(peer: &Program) -> &'static Kit {
        static KIT: OnceLock<Kit> = OnceLock::new();
        KIT.get_or_init(|| make(peer))
    }

    /// The text of a file of the kit.
    pub fn text(&self, name: &str) -> String {
        match &self.entries.iter().find(|(known, _)| known == name).expect("a file of the kit").1 {
            Entry::File(bytes) | Entry::Mode(bytes, _) => String::from_utf8(bytes.clone()).unwrap(),
            Entry::Dir | Entry::Link(_) => panic!("{name} is no file"),
        }
    }

    /// A registry entry of the pair `k` under the id `kid`.
    pub fn entry(&self) -> Value {
        json!({"key_id": "kid", "fingerprint": self.key.1, "public_key": self.key.0, "status": "trusted"})
    }

    pub fn other_entry(&self) -> Value {
        json!({"key_id": "oid", "fingerprint": self.other.1, "public_key": self.other.0, "status": "trusted"})
    }
}

fn make(peer: &Program) -> Kit {
    let dir = TempDir::new("interop-kit");
    let place = dir.path().join("box");
    let mut entries = vec![
        ("p.txt".to_owned(), Entry::File(HELLO.to_vec())),
        ("d/one.txt".to_owned(), Entry::File(b"1\n".to_vec())),
        ("d/sub/two".to_owned(), Entry::File(vec![0, 255])),
    ];
    let env = [("K".to_owned(), SECRET.to_owned())];
    for command in [
        "keys generate --private-key k.key --public-key k.pub",
        "keys generate --private-key o.key --public-key o.pub",
        "pack p.txt --out plain.txt",
        "pack p.txt --out hmac.txt --sign-key-env K --signature-key-id kid",
        "pack p.txt --out ed.txt --sign-ed25519-key k.key --signature-key-id kid",
        "pack p.txt --out anon.txt --sign-ed25519-key k.key",
        "pack p.txt --out bare.txt --sign-ed25519-key k.key --no-inline-public-key",
        "pack p.txt --out named.txt --sign-ed25519-key k.key --no-inline-public-key --signature-key-id kid",
        "pack d --out tree.txt --task-id kit",
    ] {
        let args: Vec<_> = command.split(' ').map(Into::into).collect();
        let ran = peer.run(&place, &entries, &env, &args);
        assert_eq!((ran.status, &*ran.stderr), (Some(0), ""), "{command}");
        for (path, node) in ran.after {
            let path = path.into_os_string().into_string().unwrap();
            if let Node::File(mode, bytes) = node {
                if !entries.iter().any(|(known, _)| *known == path) {
                    entries.push((path, Entry::Mode(bytes, mode)));
                }
            }
        }
    }
    entries.retain(|(path, _)| !path.starts_with("d/"));
    let mut kit = Kit { entries, key: Default::default(), other: Default::default() };
    let public = |name: &str| -> (String, String) {
        let key = kit.text(name).trim().to_owned();
        let args: Vec<_> = ["keys", "fingerprint", "--public-key", name].map(Into::into).to_vec();
        let said = peer.run(&place, &kit.entries, &[], &args).stdout;
        (key, said.trim().rsplit(' ').next().unwrap().to_owned())
    };
    (kit.key, kit.other) = (public("k.pub"), public("o.pub"));
    assert_eq!(kit.key.0.len(), base64(&[0; 32]).len());
    kit
}
