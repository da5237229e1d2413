//! Python processes: launcher, zygote, pool of parked workers, bridge, one agent's life.

pub mod host;
