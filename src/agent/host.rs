//! What an agent's process may ask of the node that runs it.
//!
//! The agent module defines the question; the node answers it (`primitives` implements [`Host`]),
//! so that nothing in here knows what a file search or a transfer is.

use crate::sandbox::Rights;
use rustix::process::Resource;
use serde_json::value::RawValue;
use std::fmt;
use std::time::{Duration, Instant};

/// One `ctx` call. It speaks for the process it came from, whatever its arguments say.
pub struct HostCall {
    /// The method's name.
    pub name: String,
    /// Its arguments, a JSON object.
    pub args: Box<RawValue>,
    /// The agent's memory at the moment of the call, with `clone`, `move` and `return_to_stage`.
    pub memory: Option<Box<RawValue>>,
    /// Whether a hook is running; a thread that the agent left behind calls without one.
    pub in_hook: bool,
    /// When the hook that called must be over.
    pub deadline: Instant,
}

/// The node, as one agent's process sees it.
pub trait Host: Send + Sync {
    /// Whether a call of this name is over in microseconds and may run on the bridge's own thread.
    fn is_quick(&self, name: &str) -> bool;

    /// Whether the agent may use this name of `ctx`.
    ///
    /// # Errors
    /// `forbidden`, as the agent sees it.
    fn may(&self, name: &str) -> Result<(), CallError>;

    /// Carries out a call. Several may run at once.
    ///
    /// # Errors
    /// What the agent sees as a `CtxError`.
    fn call(&self, call: HostCall) -> Result<Box<RawValue>, CallError>;

    /// What the kernel is to enforce on its process, as of now.
    fn rights(&self) -> Rights;

    /// How much CPU time a hook may take; none: as much as it likes.
    fn cpu_limit(&self) -> Option<Duration>;

    /// What the kernel is to bound its process by, where that is less than every worker has.
    fn process_limits(&self) -> Vec<(Resource, u64)>;

    /// A line that the agent printed, escaped and bounded.
    fn printed(&self, line: &str);

    /// Attributes that cannot travel ("name (type)"), each named the first time it is seen.
    fn left_behind(&self, attributes: &[String]);

    /// A process is about to load the agent. Called once, first.
    fn started(&self, pid: i32);

    /// The process ended; `how` in words. Called once, last.
    fn ended(&self, how: &str);
}

/// Why a `ctx` call failed, as the agent sees it: `CtxError.code`, its text and `CtxError.detail`.
#[derive(Debug, Clone)]
pub struct CallError {
    /// One lower-case word of the protocol's vocabulary (`forbidden`, `timeout`, `bad_payload` …).
    pub code: &'static str,
    /// One clear sentence that names what was wrong, and with what.
    pub message: String,
    /// What there is to hand back all the same (the partial output of a command cut at its
    /// timeout, the destination's answer), as JSON.
    pub detail: Option<Box<RawValue>>,
}

impl CallError {
    /// An error without a detail.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        CallError { code, message: message.into(), detail: None }
    }

    /// The same error with something to hand back.
    pub fn with_detail(mut self, detail: Box<RawValue>) -> Self {
        self.detail = Some(detail);
        self
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for CallError {}
