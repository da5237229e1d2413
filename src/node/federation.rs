//! The tree of nodes: as configured, as an agent carries it, and where a name leads.

use crate::plain::only_from_object;
use crate::wire::{Address, AddressError, Fingerprint, Tls};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{json, Map, Value};

/// The deepest tree that is read; a line's own nesting limit is 64.
const DEPTH: usize = 24;

/// A node of the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct TreeNode {
    /// The node's name, unique in the tree.
    pub name: String,
    /// Where it listens.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The nodes below it.
    #[serde(default)]
    pub children: Vec<TreeNode>,
    /// A node of the base implementation: it signs no answers (TRANSFER.md).
    #[serde(default, skip_serializing_if = "is_false")]
    pub unsigned: bool,
    /// It speaks TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Pinned>,
}

only_from_object!(TreeNode and write);

/// That a node speaks TLS: `{"fingerprint": "…"}`, the SHA-256 of its certificate; a list of them, while one
/// certificate takes another's place; `{}`: an authority decides (`peer_ca`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pinned(pub Vec<Fingerprint>);

impl Pinned {
    /// What a member `tls` says.
    ///
    /// # Errors
    /// It says none of that.
    fn read(value: &Value, strictly: bool) -> Result<Pinned, String> {
        let members = value.as_object().ok_or("key \"tls\" of a node: must be an object")?;
        if let Some(odd) = members.keys().find(|key| strictly && *key != "fingerprint") {
            return Err(format!(
                "key \"tls\" of a node: there is no key {odd:?}; the only one is \"fingerprint\""
            ));
        }
        let all = match members.get("fingerprint") {
            None => Vec::new(),
            Some(Value::Array(all)) if !all.is_empty() => all.iter().collect(),
            Some(one) => vec![one],
        };
        let read = |value: &Value| {
            let text = value.as_str().ok_or("key \"fingerprint\": must be a string or a list of strings")?;
            Fingerprint::parse(text)
        };
        all.into_iter().map(read).collect::<Result<_, String>>().map(Pinned)
    }

    /// The member `tls` that says so.
    pub fn to_json(&self) -> Value {
        match &self.0[..] {
            [] => json!({}),
            [one] => json!({"fingerprint": one.to_string()}),
            all => json!({"fingerprint": all.iter().map(Fingerprint::to_string).collect::<Vec<_>>()}),
        }
    }

    /// How the node is known then.
    pub fn tls(&self) -> Tls {
        Tls::pinned(self.0.clone())
    }
}

impl<'de> Deserialize<'de> for Pinned {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Pinned::read(&Value::deserialize(deserializer)?, true).map_err(serde::de::Error::custom)
    }
}

impl Serialize for Pinned {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_json().serialize(serializer)
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

impl TreeNode {
    /// A node without children.
    pub fn leaf(name: &str, host: &str, port: u16) -> Self {
        TreeNode {
            name: name.into(),
            host: host.into(),
            port,
            children: Vec::new(),
            unsigned: false,
            tls: None,
        }
    }

    /// Where it listens, and how it is spoken to.
    ///
    /// # Errors
    /// Its host is none.
    pub fn address(&self) -> Result<Address, AddressError> {
        Ok(Address::new(&self.host, self.port)?.with_tls(self.tls.as_ref().map(Pinned::tls)))
    }

    /// What is pinned of the node at this address, here or below.
    pub fn pinned_at(&self, address: &Address) -> Option<&Pinned> {
        let there = |node: &&TreeNode| {
            let host = node.host.trim_start_matches('[').trim_end_matches(']');
            node.port == address.port && host.eq_ignore_ascii_case(&address.host)
        };
        self.walk().into_iter().filter(there).find_map(|node| node.tls.as_ref())
    }

    /// The node called `name`, here or below.
    pub fn find(&self, name: &str) -> Option<&TreeNode> {
        if self.name == name {
            return Some(self);
        }
        self.children.iter().find_map(|child| child.find(name))
    }

    /// The same, to be changed.
    pub fn find_mut(&mut self, name: &str) -> Option<&mut TreeNode> {
        if self.name == name {
            return Some(self);
        }
        self.children.iter_mut().find_map(|child| child.find_mut(name))
    }

    /// Every node, parents before children.
    pub fn walk(&self) -> Vec<&TreeNode> {
        let mut all = vec![self];
        for child in &self.children {
            all.extend(child.walk());
        }
        all
    }

    /// The tree with the node of `own`'s name replaced by `own`; that keeps the children it had if
    /// `own` has none of its own.
    pub fn with_own(mut self, own: &TreeNode) -> TreeNode {
        if self.name == own.name {
            let children = if own.children.is_empty() { self.children } else { own.children.clone() };
            return TreeNode { children, ..own.clone() };
        }
        self.children = self.children.into_iter().map(|child| child.with_own(own)).collect();
        self
    }

    /// Checks what the types do not say.
    ///
    /// # Errors
    /// A name twice, an empty name or host, port 0, or a tree too deep; the sentence names it.
    pub fn check(&self) -> Result<(), String> {
        if self.depth() > DEPTH {
            return Err(format!("the tree is deeper than {DEPTH}"));
        }
        let all = self.walk();
        for (index, node) in all.iter().enumerate() {
            check_name(&node.name)?;
            if node.port == 0 {
                return Err(format!("node {:?} needs a port from 1 to 65535", node.name));
            }
            Address::new(&node.host, node.port).map_err(|why| format!("node {:?}: {why}", node.name))?;
            if all[..index].iter().any(|other| other.name == node.name) {
                return Err(format!("the name {:?} stands in the tree twice", node.name));
            }
        }
        Ok(())
    }

    fn depth(&self) -> usize {
        1 + self.children.iter().map(TreeNode::depth).max().unwrap_or(0)
    }
}

/// The longest name of a node, characters.
const NAME_CHARACTERS: usize = 128;

/// Whether a node of a tree or a trace can be called so: the names of others are shown to people, and
/// stand in paths.
///
/// # Errors
/// What it must be.
pub fn check_name(name: &str) -> Result<(), String> {
    match name.chars().count() {
        0 => return Err("a node has an empty name".into()),
        1..=NAME_CHARACTERS => {}
        length => {
            return Err(format!("the name of a node has {length} characters, more than {NAME_CHARACTERS}"))
        }
    }
    match name.chars().find(|c| c.is_control() || *c == '/') {
        Some(odd) => Err(format!("the name {name:?} of a node holds {odd:?}")),
        None => Ok(()),
    }
}

/// Reads a tree that an agent carries; what is not one is none.
pub fn carried(value: Option<&Value>) -> Option<TreeNode> {
    let tree: TreeNode = serde_json::from_value(tolerant(value?, 0)?).ok()?;
    tree.walk().iter().all(|node| check_name(&node.name).is_ok()).then_some(tree)
}

/// Only the known members of a foreign tree, so that a newer node's additions do no harm.
fn tolerant(value: &Value, depth: usize) -> Option<Value> {
    let object = value.as_object().filter(|_| depth < DEPTH)?;
    let mut kept = Map::new();
    for name in ["name", "host", "port", "unsigned"] {
        if let Some(value) = object.get(name) {
            kept.insert(name.into(), value.clone());
        }
    }
    if let Some(tls) = object.get("tls") {
        // Whoever says something of TLS that can't be read does not mean plain TCP.
        kept.insert("tls".into(), Pinned::read(tls, false).ok()?.to_json());
    }
    let children = object.get("children").and_then(Value::as_array);
    let children: Vec<Value> =
        children.into_iter().flatten().filter_map(|child| tolerant(child, depth + 1)).collect();
    kept.insert("children".into(), children.into());
    Some(kept.into())
}

/// Where a transfer goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// The name it was found under.
    pub name: String,
    /// Where it listens.
    pub address: Address,
    /// A node of the base implementation.
    pub unsigned: bool,
}

impl Destination {
    /// The destination that a node of a tree is, if its address is one.
    pub fn of(node: &TreeNode) -> Option<Self> {
        let address = node.address().ok().filter(|address| address.port != 0)?;
        Some(Destination { name: node.name.clone(), address, unsigned: node.unsigned })
    }
}

/// Finds `name` in the order of the protocol: the local tree, the agent's own network view and its
/// stage, the hops of its trace (the latest first).
pub fn resolve(
    name: &str,
    local: &TreeNode,
    metadata: &Map<String, Value>,
    trace: &[Value],
) -> Option<Destination> {
    let known = local.find(name).cloned();
    let carried = || carried(metadata.get("network")).as_ref().and_then(|tree| tree.find(name)).cloned();
    let home = || stage(metadata).filter(|stage| stage.name == name);
    let passed = || {
        trace.iter().rev().find_map(|hop| {
            let hop = hop.as_object().filter(|hop| hop.get("node").and_then(Value::as_str) == Some(name))?;
            let port = u16::try_from(hop.get("port")?.as_u64()?).ok()?;
            let tls = hop.get("tls").map(|tls| Pinned::read(tls, false)).transpose().ok()?;
            Some(TreeNode { tls, ..TreeNode::leaf(name, hop.get("host")?.as_str()?, port) })
        })
    };
    Destination::of(&known.or_else(carried).or_else(home).or_else(passed)?)
}

/// The stage that an agent carries, if it names one.
pub fn stage(metadata: &Map<String, Value>) -> Option<TreeNode> {
    carried(metadata.get("stage"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tree() -> TreeNode {
        let mut root = TreeNode::leaf("root", "127.0.0.1", 7000);
        let mut a = TreeNode::leaf("a", "127.0.0.1", 7001);
        a.children.push(TreeNode::leaf("lab", "127.0.0.1", 7003));
        root.children.extend([a, TreeNode::leaf("b", "127.0.0.1", 7002)]);
        root
    }

    #[test]
    fn a_name_is_looked_up_in_tree_then_network_then_stage_then_trace() {
        let network = json!({"name":"x","host":"h","port":1,"extra":true,"children":[{"name":"y","host":"h2","port":2}]});
        let metadata = json!({"network": network, "stage": {"name":"home","host":"h3","port":3}});
        let metadata = metadata.as_object().unwrap();
        let trace = [
            json!({"node":"old","host":"h4","port":4}),
            json!("bare"),
            json!({"node":"a","host":"no","port":9}),
        ];
        let at = |name: &str| resolve(name, &tree(), metadata, &trace).map(|found| found.address.to_string());
        assert_eq!(at("lab").as_deref(), Some("127.0.0.1:7003"));
        assert_eq!(at("a").as_deref(), Some("127.0.0.1:7001"), "the tree comes first");
        assert_eq!(at("y").as_deref(), Some("h2:2"));
        assert_eq!(at("home").as_deref(), Some("h3:3"));
        assert_eq!(at("old").as_deref(), Some("h4:4"));
        assert_eq!(at("bare"), None);
    }

    #[test]
    fn a_carried_tree_takes_this_nodes_own_configuration() {
        let own = TreeNode::leaf("a", "10.0.0.1", 9);
        let merged = tree().with_own(&own);
        let a = merged.find("a").unwrap();
        assert_eq!((a.host.as_str(), a.port, a.children.len()), ("10.0.0.1", 9, 1));
    }

    #[test]
    fn that_a_node_speaks_tls_is_never_lost_on_the_way() {
        let pin = "ab".repeat(32);
        let pinned = |tls: Value| carried(Some(&json!({"name": "x", "host": "h", "port": 1, "tls": tls})));
        let tls = |tree: Option<TreeNode>| Destination::of(&tree.unwrap()).unwrap().address.tls.unwrap();
        assert_eq!(tls(pinned(json!({"fingerprint": pin, "newer": 1}))).fingerprints.len(), 1);
        assert_eq!(tls(pinned(json!({"fingerprint": [pin, pin]}))).fingerprints.len(), 2);
        assert_eq!(tls(pinned(json!({}))).fingerprints.len(), 0);
        for wrong in [json!(true), json!({"fingerprint": "x"}), json!({"fingerprint": []}), json!(null)] {
            assert_eq!(pinned(wrong.clone()), None, "{wrong}");
        }
        let trace = [json!({"node": "old", "host": "h4", "port": 4, "tls": {"fingerprint": pin}})];
        let found = resolve("old", &tree(), &Map::new(), &trace).unwrap();
        assert_eq!(found.address.tls.unwrap().fingerprints[0].to_string(), pin);
        let trace = [json!({"node": "old", "host": "h4", "port": 4, "tls": 1})];
        assert_eq!(resolve("old", &tree(), &Map::new(), &trace), None);
        let mut root = tree();
        root.children[1].tls = Some(Pinned(vec![Fingerprint::parse(&pin).unwrap()]));
        let text = serde_json::to_string(&root).unwrap();
        assert_eq!(serde_json::from_str::<TreeNode>(&text).unwrap(), root);
        assert!(root.pinned_at(&"127.0.0.1:7002".parse().unwrap()).is_some());
        assert!(root.pinned_at(&"127.0.0.1:7001".parse().unwrap()).is_none());
    }

    #[test]
    fn names_that_do_harm_where_they_are_shown_are_none() {
        for name in ["", "a/b", "a\0b", "a\nb", "\u{1b}[2J", "\u{85}", &"x".repeat(129)] {
            assert!(TreeNode::leaf(name, "h", 1).check().is_err(), "{name:?}");
            let below =
                json!({"name":"x","host":"h","port":1,"children":[{"name":name,"host":"h","port":2}]});
            assert_eq!(carried(Some(&below)), None, "{name:?}");
        }
        assert!(TreeNode::leaf(&"ü".repeat(128), "h", 1).check().is_ok());
    }

    #[test]
    fn a_tree_with_a_name_twice_or_without_port_is_refused() {
        let mut twice = tree();
        twice.children.push(TreeNode::leaf("lab", "h", 1));
        assert!(twice.check().unwrap_err().contains("lab"));
        assert!(TreeNode::leaf("a", "h", 0).check().is_err());
        assert!(tree().check().is_ok());
    }
}
