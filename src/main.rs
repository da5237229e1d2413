//! The command `agentcontainer`.

fn main() {}
