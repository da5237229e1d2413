//! The node's roster, `meta/topology.json`: whom this node has state or configuration of, in name order. It
//! is derived from what the node sees, and no authority on whether an agent exists; what `ManageRootAgent`
//! reaches is the set that it gives. Nothing but the node's own pass writes it: the next one overwrites what
//! a hand has changed.

use crate::agent::manifest::check_id;
use crate::input;
use crate::state;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

/// The longest file that is read, bytes; a thousand ids of the longest kind have a hundredth of it.
const LONGEST: u64 = 16 << 20;

/// The agents in the file: a list of ids, or an object whose names they are. A file that is missing, can't be
/// read, or holds anything that is no id names nobody.
pub fn all_agents(path: &Path) -> BTreeSet<String> {
    input::read_text(path, LONGEST).ok().and_then(|text| parse(&text)).unwrap_or_default()
}

fn parse(text: &str) -> Option<BTreeSet<String>> {
    crate::wire::parse(text).ok()?;
    let names: Vec<String> = match serde_json::from_str(text).ok()? {
        Value::Array(names) => {
            names.into_iter().map(|name| name.as_str().map(str::to_owned)).collect::<Option<_>>()?
        }
        Value::Object(parents) => {
            let plain = parents.values().all(|parent| parent.is_null() || parent.is_string());
            plain.then(|| parents.into_iter().map(|(name, _)| name).collect())?
        }
        _ => return None,
    };
    // They become paths: one that is no id makes the whole file nobody's.
    names.iter().all(|name| check_id(name).is_ok()).then(|| names.into_iter().collect())
}

/// Brings the file up to date. True if it had to be written.
///
/// # Errors
/// It can't be written; it is what it was.
pub fn reconcile(path: &Path, agents: &BTreeSet<String>) -> io::Result<bool> {
    let names: Vec<&String> = agents.iter().collect();
    let text = format!("{}\n", Value::from(names.into_iter().cloned().collect::<Vec<_>>()));
    if fs::read(path).is_ok_and(|there| there == text.as_bytes()) {
        return Ok(false);
    }
    state::write(path, text.as_bytes())?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn two_shapes_are_read_and_everything_else_names_nobody() {
        let read = |text: &str| parse(text).map(|names| names.into_iter().collect::<Vec<_>>());
        assert_eq!(read(r#"["bob", "alice"]"#).unwrap(), ["alice", "bob"]);
        assert_eq!(read(r#"{"bob": "ruth", "alice": null}"#).unwrap(), ["alice", "bob"]);
        assert_eq!(read("[]").unwrap().len(), 0);
        for text in [
            "",
            "[",
            "null",
            "\"alice\"",
            "[1]",
            "[\"alice\", null]",
            "[\"../alice\"]",
            "[\"a/b\"]",
            "[\".\"]",
            "[\"\"]",
            r#"{"alice": 1}"#,
            r#"{"..": null}"#,
            r#"{"alice": null, "alice": null}"#,
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn it_is_written_only_when_something_changed_and_a_hand_edit_does_not_stay() {
        let top = TempDir::new("topology");
        let path = top.path().join("topology.json");
        assert!(all_agents(&path).is_empty());
        let names: BTreeSet<String> = ["bob", "alice"].map(String::from).into();
        assert!(reconcile(&path, &names).unwrap());
        let written = fs::metadata(&path).unwrap().ino();
        assert!(!reconcile(&path, &names).unwrap());
        assert_eq!(fs::metadata(&path).unwrap().ino(), written);
        assert_eq!(fs::read_to_string(&path).unwrap(), "[\"alice\",\"bob\"]\n");
        for edit in ["[\"alice\",\"bob\",\"eve\"]\n", "{\"alice\":null,\"bob\":null}", ""] {
            fs::write(&path, edit).unwrap();
            assert!(reconcile(&path, &names).unwrap());
            assert_eq!(all_agents(&path), names);
        }
    }
}
