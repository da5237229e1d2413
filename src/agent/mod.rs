//! Python processes: launcher, zygote, pool of parked workers, bridge, one agent's life.
//!
//! ```text
//!  node ──spawn──► launcher ──exec──► zygote ──fork──► worker (parked) ──load──► an agent's process
//!    ▲                                   │ ends, by slot        ▲
//!    └───────────────────────────────────┘        bridge: hooks down, calls and results up
//! ```
//!
//! The module knows nothing of what a `ctx` call does: it asks its [`host::Host`].

mod cpu;
pub mod frame;
pub mod host;
pub mod launcher;
pub mod life;
pub mod manifest;
pub mod output;
mod pool;
mod process;
pub mod python;
mod turn;
mod zygote;

pub use frame::AgentError;
pub use life::{Keep, Life, Seat, Spec, Turn};
pub use manifest::Manifest;
pub use pool::Pool;
pub use process::{Done, HookError};
pub use turn::NoTurn;
pub use zygote::{Ending, Fate};

use crate::sandbox::{Owner, Wanted};
use std::path::PathBuf;

/// What the node decides about its agents' processes.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The interpreter: a path or a name; `None`: `python3` from the search path.
    pub python: Option<PathBuf>,
    /// This program, which becomes the launcher (`/proc/self/exe` but in tests).
    pub self_exe: PathBuf,
    /// How many forked workers wait for an agent.
    pub parked_workers: usize,
    /// Whether agents may import what is installed in the interpreter's site-packages.
    pub site_packages: bool,
    /// RLIMIT_AS of an agent's process, bytes.
    pub memory_bytes: u64,
    /// RLIMIT_NOFILE of an agent's process.
    pub open_files: u64,
    /// RLIMIT_FSIZE of an agent's process, bytes.
    pub file_bytes: u64,
    /// RLIMIT_NPROC: how many processes all agents may have; set where they have a user namespace of their own,
    /// because elsewhere it counts what else its user runs.
    pub processes: u64,
    /// How much of the sandbox is wanted around it.
    pub sandbox: Wanted,
    /// As whom agents run, where the node is root's.
    pub user: Option<Owner>,
    /// The node's state directory, which agents must not see.
    pub state_dir: Option<PathBuf>,
    /// How many messages may wait for one agent.
    pub inbox_length: usize,
    /// How many `ctx` calls of one agent may be under way at once.
    pub calls_at_once: usize,
    /// The longest frame that an agent may send, bytes.
    pub max_frame_bytes: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            python: None,
            self_exe: PathBuf::from("/proc/self/exe"),
            parked_workers: 2,
            site_packages: false,
            memory_bytes: 2 << 30,
            open_files: 1024,
            file_bytes: 4 << 30,
            processes: 512,
            sandbox: Wanted::default(),
            user: None,
            state_dir: None,
            inbox_length: 64,
            calls_at_once: 64,
            max_frame_bytes: 33 << 20,
        }
    }
}

impl Settings {
    /// The resource limits in the form the worker sets them.
    fn limits_json(&self) -> String {
        format!(
            r#"{{"core":0,"nofile":{},"as":{},"fsize":{},"nproc":{}}}"#,
            self.open_files, self.memory_bytes, self.file_bytes, self.processes
        )
    }

    /// All that an agent's process finds in its environment.
    fn environment(&self) -> Vec<(String, String)> {
        let mut environment: Vec<(String, String)> = [
            ("LC_ALL", "C.UTF-8"),
            ("LANG", "C.UTF-8"),
            ("PYTHONIOENCODING", "utf-8"),
            ("HOME", "/"),
            // More arenas reserve address space for each thread and starve RLIMIT_AS.
            ("MALLOC_ARENA_MAX", "1"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        environment.push(("PATH".into(), python::search_path()));
        if let Ok(zone) = std::env::var("TZ") {
            environment.push(("TZ".into(), zone));
        }
        environment
    }
}
