//! What `ctx` offers an agent, one file a group of primitives.
//!
//! The desk takes an agent's call and knows the node. The other files do not: what they need comes in
//! as parameters, what they found goes out as a struct that serialises, and what went wrong as a
//! [`crate::agent::host::CallError`].

mod agent_files;
mod attenuate;
mod audit;
pub mod capabilities;
pub mod data_root;
pub mod desk;
pub mod files;
pub mod http;
mod manage;
mod needle;
mod prompt;
pub mod run;
pub mod search;
mod walk;

pub use data_root::DataRoot;

use crate::agent::host::CallError;
use serde::Serialize;
use std::time::{Duration, Instant};

/// The longest time any call is given, a year; what is longer is cut to it, so that adding it to
/// the clock cannot overflow.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// The moment at which a call that starts now and may take `timeout` has to end.
fn deadline_after(timeout: Duration) -> Instant {
    Instant::now() + timeout.min(LONGEST)
}

/// The same error, with `partial` handed back as its detail.
fn with_partial(error: CallError, partial: &impl Serialize) -> CallError {
    match serde_json::value::to_raw_value(partial) {
        Ok(detail) => error.with_detail(detail),
        Err(_) => error, // our structs always serialise; the error alone is worth more than a panic
    }
}
