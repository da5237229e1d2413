//! The execution node for mobile agents, as a library: `main` only parses, runs and exits.

pub mod agent;
pub mod base64;
pub mod boot;
pub mod capsule;
pub mod carrier;
pub mod cli;
pub mod clock;
mod crash;
mod input;
pub mod journal;
pub mod log;
pub mod node;
mod plain;
pub mod primitives;
pub mod research;
pub mod roster;
pub mod sandbox;
pub mod server;
pub mod state;
pub mod supervise;
pub mod sync;
mod sys;
#[cfg(test)]
mod testing;
pub mod throttle;
pub mod wire;

/// Prepares the process for lines of any length; the first thing that a program does.
pub fn settle_memory() {
    sys::give_memory_back();
}
