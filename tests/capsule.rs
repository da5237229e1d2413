//! Capsules: attacks that are refused, damage that is not one, and what the commands print.

mod capsule {
    pub mod support;

    mod agents;
    mod commands;
    mod registries;
    mod round_trips;
    mod scans;
    mod unpacking;
    mod vectors;
}
