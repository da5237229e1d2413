//! Following an agent on its journey, with its own secret.
//!
//! A node tells an agent that asks whether it lives there and how often it has come
//! (`describe_container`, `sender`). So whoever sent it asks each node that it may have come to, a
//! few times a second.

use super::ask;
use super::out;
use super::secrets::Caller;
use crate::node::federation::carried;
use crate::sync::lock;
use crate::wire::{parse, Address};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How often the nodes are asked.
const EVERY: Duration = Duration::from_millis(250);
/// How long one may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long one that did not answer is left alone.
const AFTER_SILENCE: Duration = Duration::from_secs(5);
/// How many nodes are asked at most.
const MOST: usize = 256;

/// What is known of a journey.
pub struct Follow {
    caller: Caller,
    began: Instant,
    aloud: bool,
    over: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    nodes: Vec<Known>,
    last: Option<Sighting>,
}

struct Known {
    address: Address,
    /// How often the agent was registered there, as far as we saw.
    sequence: u64,
    /// Whether its own tree was looked at.
    explored: bool,
    not_before: Instant,
}

/// Where the agent was seen.
#[derive(Clone)]
pub struct Sighting {
    /// The node's name.
    pub node: String,
    /// Where it listens.
    pub address: Address,
    /// Whether it was still there when last asked.
    pub here: bool,
}

impl Follow {
    /// Begins at the first node. `aloud`: each hop is shown as it is seen.
    pub fn new(caller: Caller, first: Address, aloud: bool) -> Self {
        let began = Instant::now();
        let first = Known { address: first, sequence: 0, explored: false, not_before: began };
        let state = State { nodes: vec![first], last: None };
        Follow { caller, began, aloud, over: AtomicBool::new(false), state: Mutex::new(state) }
    }

    /// Asks until [`Follow::end`].
    pub fn keep_asking(&self) {
        while !self.over.load(Ordering::Acquire) {
            let round = Instant::now();
            self.ask_all();
            while round.elapsed() < EVERY && !self.over.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// Ends it.
    pub fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Whether the agent lives at `address` now, as far as the node there says.
    pub fn is_at(&self, address: &Address) -> bool {
        self.ask_one(address).is_some_and(|(_, sequence)| sequence.is_some())
    }

    /// Where it was seen last.
    pub fn last_seen(&self) -> Option<Sighting> {
        lock(&self.state).last.clone()
    }

    /// Shows something about the journey, with the time since it began.
    pub fn tell(&self, what: &str) {
        if self.aloud {
            out::note(&format!("{:6.1} s  {what}", self.began.elapsed().as_secs_f64()));
        }
    }

    fn ask_all(&self) {
        let count = lock(&self.state).nodes.len();
        for index in 0..count {
            let due = {
                let state = lock(&self.state);
                state
                    .nodes
                    .get(index)
                    .filter(|node| node.not_before <= Instant::now())
                    .map(|node| node.address.clone())
            };
            let Some(address) = due else { continue };
            if self.over.load(Ordering::Acquire) {
                return;
            }
            match self.ask_one(&address) {
                Some((name, sequence)) => self.heard(index, &address, &name, sequence),
                None => self.silent(index),
            }
        }
    }

    /// The node's name, and the sequence if the agent lives there. A refusal (it was never there) is
    /// no sequence.
    fn ask_one(&self, address: &Address) -> Option<(String, Option<u64>)> {
        let (answer, genuine) =
            ask::exchange(address, &self.caller, "describe_container", "{}", PATIENCE).ok()?;
        let name = answer.node().unwrap_or("?").to_owned();
        if !genuine || !answer.is_ok() {
            return Some((name, None));
        }
        let sequence = parse(answer.result()?).ok().and_then(|told| {
            let standing = told.get("sender")?;
            standing.get("here")?.as_bool().filter(|here| *here)?;
            u64::try_from(standing.get("sequence")?.as_i64()?).ok()
        });
        Some((name, sequence))
    }

    fn heard(&self, index: usize, address: &Address, name: &str, sequence: Option<u64>) {
        let mut explore = false;
        let mut arrived = false;
        {
            let mut state = lock(&self.state);
            if let Some(sighting) = state.last.as_mut().filter(|sighting| sighting.address == *address) {
                sighting.here = sequence.is_some();
            }
            if let (Some(sequence), Some(node)) = (sequence, state.nodes.get_mut(index)) {
                arrived = sequence > node.sequence;
                node.sequence = sequence.max(node.sequence);
                explore = !std::mem::replace(&mut node.explored, true);
            }
            if arrived {
                state.last = Some(Sighting { node: name.to_owned(), address: address.clone(), here: true });
            }
        }
        if arrived {
            self.tell(&format!("seen on {name} ({address})"));
        }
        if explore {
            self.explore(address);
        }
    }

    fn silent(&self, index: usize) {
        if let Some(node) = lock(&self.state).nodes.get_mut(index) {
            node.not_before = Instant::now() + AFTER_SILENCE;
        }
    }

    /// Adds the nodes of the tree of a node that the agent has come to.
    fn explore(&self, address: &Address) {
        let Ok((answer, true)) = ask::exchange(address, &self.caller, "network_tree", "{}", PATIENCE) else {
            return;
        };
        let tree = answer.result().and_then(|text| serde_json::from_str(text).ok());
        let Some(tree) = carried(tree.as_ref()) else { return };
        let own = answer.node().unwrap_or_default();
        let mut state = lock(&self.state);
        for node in tree.walk().into_iter().filter(|node| node.name != own) {
            let Ok(mut found) = node.address() else { continue };
            if let (Some(tls), Some(asked)) = (&mut found.tls, &address.tls) {
                tls.authorities.clone_from(&asked.authorities);
                tls.identity.clone_from(&asked.identity);
            }
            let address = found;
            let known = state.nodes.iter().any(|known| known.address == address);
            if !known && address.port != 0 && state.nodes.len() < MOST {
                state.nodes.push(Known { address, sequence: 0, explored: false, not_before: self.began });
            }
        }
    }
}
