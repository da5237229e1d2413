//! `tree`: the tree of nodes, drawn; live, if wished.

use super::agents::wait;
use super::args::Given;
use super::ask::{self, ask};
use super::fault::Fault;
use super::{out, secrets, tls};
use crate::node::federation::{carried, TreeNode};
use crate::wire::{self, Address};
use serde_json::{json, Value};
use std::time::{Duration, Instant};

/// How long each node gets with `--live`, unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a node was found.
enum Live {
    /// It is there; its agents, if we may ask.
    Up(Option<Vec<String>>, &'static str),
    /// Nobody answered; why.
    Down(String),
}

/// `tree`.
pub fn run(given: &Given) -> Result<(), Fault> {
    let address = given.address(0)?;
    let caller = secrets::caller(given, Some(&address))?;
    let answer = ask(&address, &caller, "network_tree", "{}", wait(given)?)?;
    let result = answer.result().unwrap_or("null");
    let value: Value = serde_json::from_str(result).unwrap_or_default();
    let (Some(tree), as_json) = (carried(Some(&value)), given.flag("json")) else {
        return out::result(result, given.flag("json"));
    };
    if !given.flag("live") {
        return match as_json {
            true => out::result(result, true),
            false => out::line(&drawn(&tree, &[])),
        };
    }
    let patience = if given.flag("timeout") { wait(given)? } else { PATIENCE };
    let own = answer.node().map(|name| (name.to_owned(), address.clone()));
    let nodes = tree.walk();
    let found: Vec<Live> = std::thread::scope(|scope| {
        let asked: Vec<_> = nodes
            .iter()
            .map(|node| {
                // The one that we just spoke to is reached as it was, whatever its tree says.
                let typed =
                    own.as_ref().filter(|(name, _)| *name == node.name).map(|(_, address)| address.clone());
                scope.spawn(move || look(given, node, typed, patience))
            })
            .collect();
        let failed = || Live::Down("asking it failed".into());
        asked.into_iter().map(|asked| asked.join().unwrap_or_else(|_| failed())).collect()
    });
    match as_json {
        true => out::result(&with_live(&tree, &mut found.iter()).to_string(), true),
        false => out::line(&drawn(&tree, &found)),
    }
}

/// Asks a node whether it is there, and who lives on it.
fn look(given: &Given, node: &TreeNode, typed: Option<Address>, patience: Duration) -> Live {
    let address = match typed.map_or_else(|| node.address(), Ok) {
        Ok(address) => address,
        Err(why) => return Live::Down(why.to_string()),
    };
    let Ok(address) = tls::to_one_found(given, address) else {
        return Live::Down("the options about TLS name files that can't be used".into());
    };
    let Some(caller) = secrets::find(given, Some(&address), None).ok().flatten() else {
        // Nothing that we could sign would be believed; that it takes a connection is all there is.
        return match wire::open(&address, Instant::now() + patience) {
            Ok(_) => Live::Up(None, "takes connections, no secret for it is known here"),
            Err(why) => Live::Down(why.to_string()),
        };
    };
    match ask::exchange(&address, &caller, "list_agents", "{}", patience) {
        Err(Fault::Unreached(why)) => Live::Down(why),
        Err(_) => Live::Down("it can't be asked".into()),
        Ok((answer, genuine)) if answer.is_ok() && genuine => Live::Up(agents(answer.result()), "up"),
        Ok((answer, false)) if answer.is_ok() => Live::Up(None, "up, but its answer is not signed"),
        Ok((answer, _)) => match answer.code() {
            Some("bad_signature" | "unknown_sender") => Live::Up(None, "up, its secret is not known here"),
            Some("forbidden") => Live::Up(None, "up, and does not tell who lives there"),
            _ => Live::Up(None, "up, but answered an error"),
        },
    }
}

fn agents(result: Option<&str>) -> Option<Vec<String>> {
    let list: Vec<Value> = serde_json::from_str(result?).ok()?;
    Some(list.iter().filter_map(|agent| Some(agent.get("agent_id")?.as_str()?.to_owned())).collect())
}

impl Live {
    fn said(&self) -> String {
        match self {
            Live::Down(why) => format!("down: {}", out::shown(why)),
            Live::Up(None, how) => (*how).to_owned(),
            Live::Up(Some(agents), how) if agents.is_empty() => format!("{how}, no agents"),
            Live::Up(Some(agents), how) => {
                let agents: Vec<String> = agents.iter().map(|id| out::shown(id)).collect();
                format!("{how}: {}", agents.join(", "))
            }
        }
    }

    fn json(&self) -> Value {
        match self {
            Live::Down(why) => json!({"up": false, "error": why}),
            Live::Up(Some(agents), _) => json!({"up": true, "agents": agents}),
            Live::Up(None, how) => json!({"up": true, "error": how}),
        }
    }
}

/// The tree with what was found in each node, in the order of [`TreeNode::walk`].
fn with_live<'a>(node: &TreeNode, found: &mut impl Iterator<Item = &'a Live>) -> Value {
    let live = found.next().map_or(Value::Null, Live::json);
    let children: Vec<Value> = node.children.iter().map(|child| with_live(child, found)).collect();
    let mut shown =
        json!({"name": node.name, "host": node.host, "port": node.port, "live": live, "children": children});
    if let Some(pinned) = &node.tls {
        shown["tls"] = pinned.to_json();
    }
    shown
}

/// The tree as lines: the branches, the name, the address, and what was found.
fn drawn(tree: &TreeNode, found: &[Live]) -> String {
    let mut names = Vec::new();
    branches(tree, "", "", &mut names);
    let rows = names.into_iter().zip(tree.walk()).enumerate().map(|(index, (name, node))| {
        let tls = node.tls.as_ref().map(|pinned| Box::new(pinned.tls()));
        let address = Address { host: node.host.clone(), port: node.port, tls };
        let mut row = vec![name, out::shown(&address.to_string())];
        row.extend(found.get(index).map(Live::said));
        row
    });
    out::table(&rows.collect::<Vec<_>>())
}

fn branches(node: &TreeNode, lead: &str, below: &str, names: &mut Vec<String>) {
    let [tee, end, pipe] =
        if out::speaks_utf8() { ["├─ ", "└─ ", "│  "] } else { ["|- ", "`- ", "|  "] };
    names.push(format!("{lead}{}", out::shown(&node.name)));
    for (index, child) in node.children.iter().enumerate() {
        let last = index + 1 == node.children.len();
        let (lead, rest) = if last { (end, "   ") } else { (tee, pipe) };
        branches(child, &format!("{below}{lead}"), &format!("{below}{rest}"), names);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_has_its_line_in_the_order_of_the_walk() {
        let mut root = TreeNode::leaf("root", "::1", 1);
        let mut a = TreeNode::leaf("a", "h", 2);
        a.children.push(TreeNode::leaf("lab\u{1b}[2J", "h", 3));
        root.children.extend([a, TreeNode::leaf("b", "h", 4)]);
        let text = drawn(&root, &[Live::Up(Some(vec!["x".into()]), "up"), Live::Down("gone".into())]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[0].starts_with("root ") && lines[0].ends_with("[::1]:1  up: x"), "{text}");
        assert!(lines[1].ends_with("h:2      down: gone"), "{text}");
        assert!(lines[2].contains(r"lab\u{1b}[2J") && lines[3].contains("b "), "{text}");
    }
}
