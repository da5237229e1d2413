//! The execution node for mobile agents, as a library: `main` only parses, runs and exits.

pub mod agent;
