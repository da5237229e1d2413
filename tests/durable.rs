//! What outlives a node: agents, transfers, the replay memory; what a damaged file and a full disk cost.
//! The built binary, killed and started again; destinations that are nodes, or play one.

#[path = "support/mod.rs"]
mod support;

#[path = "support/lines.rs"]
mod lines;

mod durable {
    pub mod node;

    mod arrivals;
    mod damage;
    mod disk;
    mod journeys;
    mod registry;
    mod replay;
}
