//! What an agent's process may do: namespaces, Landlock, seccomp, limits; which of it this machine has.
//!
//! Three layers, from the outside in:
//!
//! | layer | where | what |
//! |---|---|---|
//! | launcher | `agent::launcher`, once | user, IPC and UTS namespaces; no capabilities; no_new_privs; the general seccomp filter |
//! | zygote | `agentctx.py` | runs no agent's code; everything is forked from it |
//! | worker | `agentctx.py`, before the agent's source is compiled | its limits; its Landlock ruleset, built here; its own seccomp filter |
//!
//! [`Rights`] says what one agent may do of what the kernel enforces; [`Sandbox`] makes its ruleset.
//! Where a layer is missing the rest is used, and [`Sandbox::level`] names what is missing and why.

pub mod filter;
mod freeze;
pub mod kernel;
mod landlock;
mod owner;
mod syscalls;

pub use freeze::freeze;
pub use landlock::hide;
use landlock::{Access, Place, Ruleset};
pub use owner::{closed_above, Owner};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// How much the operator insists on the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wanted {
    /// None.
    Off,
    /// What this machine has.
    #[default]
    BestEffort,
    /// All of it, or agents do not run.
    Require,
}

/// What the kernel enforces on one agent's process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rights {
    /// It may start programs.
    pub exec: bool,
    /// It may open network sockets.
    pub sockets: bool,
    /// Directories of other agents that it may read and write.
    pub managed: Vec<PathBuf>,
    /// Directories of other agents that it may read.
    pub managed_config: Vec<PathBuf>,
}

/// What the zygote reports about the layers that are its and the launcher's.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Reported {
    /// Where its library is; agents read there.
    #[serde(default)]
    pub paths: Vec<PathBuf>,
    /// Whether it has `ctypes`, with which a worker seals itself.
    #[serde(default)]
    pub ctypes: bool,
    /// What the launcher could not do, in words.
    #[serde(default)]
    pub missing: Vec<String>,
}

/// How much of the sandbox is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Level {
    /// All of it.
    Full,
    /// Without these.
    Partial(Vec<String>),
    /// None, and why.
    None(String),
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Level::Full => f.write_str("full"),
            Level::Partial(missing) => write!(f, "partial: {}", missing.join("; ")),
            Level::None(_) => f.write_str("none"),
        }
    }
}

/// The steps a worker takes to seal itself, as it is told them.
#[derive(Debug, Serialize)]
pub struct Seal {
    /// Whether a ruleset comes with the order.
    landlock: bool,
    /// The name of the filter to load.
    filter: Option<&'static str>,
}

/// The names under which the launcher hands over the workers' filters: exec, sockets.
const FILTERS: [(&str, bool, bool); 4] =
    [("plain", false, false), ("exec", true, false), ("sockets", false, true), ("both", true, true)];

/// Python source with the workers' filters, for the bridge's module.
pub fn filters_for_python() -> String {
    let one = |(name, exec, sockets): &(&str, bool, bool)| {
        let (program, places) = filter::agent(*exec, *sockets);
        format!(
            "{name:?}: (bytes.fromhex(\"{}\"), {places:?}), ",
            crate::wire::hex::encode(&filter::bytes(&program))
        )
    };
    format!("\nFILTERS.update({{{}}})\n", FILTERS.iter().map(one).collect::<String>())
}

/// What this machine has of the sandbox, and the rulesets that are made from it.
pub struct Sandbox {
    wanted: Wanted,
    state_dir: Option<PathBuf>,
    /// As whom agents run, if not as the node does.
    user: Option<Owner>,
    landlock: u32,
    filters: bool,
    /// Whether agents run as root, whose processes the kernel does not count.
    root: bool,
    /// What the zygote that runs now reported.
    ready: Mutex<Option<Arc<Reported>>>,
}

impl Sandbox {
    /// Looks at what the kernel has. No agent gets at `state_dir` but where its rights say so. Agents
    /// run as `user`.
    pub fn new(wanted: Wanted, state_dir: Option<PathBuf>, user: Option<Owner>) -> Sandbox {
        let used = wanted != Wanted::Off;
        let landlock = if !used || lacks("landlock") { 0 } else { kernel::landlock_version() };
        let filters = used && filter::KNOWN && !lacks("seccomp") && kernel::has_filters();
        let root = user.is_none() && rustix::process::geteuid().is_root();
        Sandbox {
            wanted,
            state_dir,
            user,
            landlock: landlock.min(oldest()),
            filters,
            root,
            ready: Mutex::new(None),
        }
    }

    /// What the operator wants.
    pub fn wanted(&self) -> Wanted {
        self.wanted
    }

    /// What the launcher is told to do, a word each.
    pub fn launcher_plan(&self) -> String {
        let user = self.user.map(|user| format!("user={user}"));
        let mut plan: Vec<&str> = user.as_deref().into_iter().collect();
        if self.wanted == Wanted::Off {
            plan.push("off");
            return plan.join(",");
        }
        plan.push("namespaces");
        plan.extend(self.filters.then_some("filter"));
        plan.extend(lacks("namespaces").then_some("lacks-namespaces"));
        plan.extend(lacks("ctypes").then_some("lacks-ctypes"));
        plan.join(",")
    }

    /// Takes a zygote's report.
    pub fn ready(&self, mut reported: Reported) {
        // The root of everything is nobody's library.
        reported.paths.retain(|path| path.is_absolute() && path.components().count() > 1);
        *crate::sync::lock(&self.ready) = Some(Arc::new(reported));
    }

    /// What is in force; before the first zygote has reported, what this kernel has.
    pub fn level(&self) -> Level {
        if self.wanted == Wanted::Off {
            return Level::None("the configuration has \"sandbox\": \"off\"".into());
        }
        let ready = crate::sync::lock(&self.ready).clone();
        let mut missing = Vec::new();
        let no_ctypes = ready.as_ref().is_some_and(|ready| !ready.ctypes);
        if no_ctypes {
            missing.push("files, sockets and programs are open, because this Python has no ctypes".into());
        } else {
            self.missing_of_landlock(ready.as_deref(), &mut missing);
        }
        if !self.filters {
            missing.push("system calls are open, because this kernel has no seccomp filters".into());
        }
        if self.root {
            let what = "an agent that may start programs can start any number of them";
            missing.push(format!("{what}, because the node runs as root"));
        }
        missing.extend(ready.iter().flat_map(|ready| ready.missing.iter().cloned()));
        match missing.is_empty() {
            true => Level::Full,
            false if !self.filters && (no_ctypes || self.landlock == 0) => Level::None(missing.join("; ")),
            false => Level::Partial(missing),
        }
    }

    fn missing_of_landlock(&self, ready: Option<&Reported>, missing: &mut Vec<String>) {
        match self.landlock {
            0 => missing.push("files are open, because this kernel has no Landlock".into()),
            version => {
                if version < landlock::TRUNCATES {
                    let what = "files elsewhere can be cut short, where the node's user may";
                    missing.push(format!("{what}, because Landlock {version} does not cover it"));
                }
                if version < landlock::SCOPES {
                    let what = "an agent that may start programs can signal the node's user's processes";
                    missing.push(format!("{what}, because Landlock {version} does not cover it"));
                }
            }
        }
        let Some(state_dir) = &self.state_dir else { return };
        let programs = landlock::PROGRAMS.map(PathBuf::from);
        let reported = ready.map(|ready| &ready.paths);
        if let Some(holder) =
            landlock::holder(programs.iter().chain(reported.into_iter().flatten()), state_dir)
        {
            let what = "the state directory can be read, because it is below";
            missing.push(format!("{what} {}, which agents read", holder.display()));
        }
    }

    /// Whether a layer is in force, as the attempts of the self-test name it: `landlock` with the version that
    /// is needed, `seccomp`, `processes`; an empty name is no part of the sandbox.
    pub fn has(&self, layer: &str) -> bool {
        let ready = crate::sync::lock(&self.ready).clone();
        let sealed = ready.as_ref().is_some_and(|ready| ready.ctypes);
        match layer.strip_prefix("landlock") {
            Some(version) => sealed && self.landlock >= version.parse().unwrap_or(1),
            None => match layer {
                "seccomp" => sealed && self.filters,
                "run" => self.landlock > 0,
                "processes" => !self.root && ready.is_some_and(|ready| ready.missing.is_empty()),
                _ => true,
            },
        }
    }

    /// As whom agents and their commands run, if not as the node does.
    pub fn user(&self) -> Option<Owner> {
        self.user
    }

    /// What commands that agents run are kept from: the state directory, unless there is no sandbox.
    pub fn hidden(&self) -> Option<&Path> {
        self.state_dir.as_deref().filter(|_| self.landlock > 0)
    }

    /// Why agents do not run here, if they do not.
    ///
    /// # Errors
    /// The operator wants all of the sandbox, and not all of it is there.
    pub fn admits(&self) -> Result<(), String> {
        match self.level() {
            Level::Partial(missing) if self.wanted == Wanted::Require => Err(format!(
                "the configuration has \"sandbox\": \"require\", and it is partial here: {}",
                missing.join("; ")
            )),
            Level::None(why) if self.wanted == Wanted::Require => {
                Err(format!("the configuration has \"sandbox\": \"require\", and there is none here: {why}"))
            }
            _ => Ok(()),
        }
    }

    /// What a worker is told to do before it loads an agent with these rights, and the ruleset that goes
    /// with it. `pid` is its process, `own` the agent's own directory, `config` what the operator put beside
    /// it. `None`: nothing.
    ///
    /// # Errors
    /// A directory can't be opened, or the kernel refuses a rule.
    pub fn seal(
        &self,
        rights: &Rights,
        pid: i32,
        own: Option<&Path>,
    ) -> io::Result<Option<(Seal, Option<OwnedFd>)>> {
        match (self.user, own, &self.state_dir) {
            (Some(user), Some(own), Some(top)) => user.hand_over(own, top)?,
            (None, Some(own), _) => owner::take_back(own)?,
            _ => {}
        }
        let ready = crate::sync::lock(&self.ready).clone();
        let Some(ready) = ready.filter(|ready| ready.ctypes && self.wanted != Wanted::Off) else {
            return Ok(None);
        };
        let ruleset = match self.landlock {
            0 => None,
            _ => Some(self.ruleset(&ready, rights, pid, own)?),
        };
        let same =
            |(_, exec, sockets): &&(&str, bool, bool)| (*exec, *sockets) == (rights.exec, rights.sockets);
        let filter = FILTERS.iter().find(same).map(|(name, ..)| *name).filter(|_| self.filters);
        Ok(Some((Seal { landlock: ruleset.is_some(), filter }, ruleset)))
    }

    fn ruleset(
        &self,
        ready: &Reported,
        rights: &Rights,
        pid: i32,
        own: Option<&Path>,
    ) -> io::Result<OwnedFd> {
        let rules = Ruleset::new(self.landlock, rights.sockets)?;
        let programs = if rights.exec { Access::ReadExecute } else { Access::Read };
        let library = ready.paths.iter().map(PathBuf::as_path);
        for path in library.chain(landlock::PROGRAMS.map(Path::new)) {
            rules.allow_path(path, programs)?;
        }
        for path in landlock::READABLE {
            rules.allow_path(Path::new(path), Access::Read)?;
        }
        for path in landlock::DEVICES {
            rules.allow_path(Path::new(path), Access::Device)?;
        }
        for path in landlock::OF_SOCKETS.iter().filter(|_| rights.sockets) {
            rules.allow_path(Path::new(path), Access::Read)?;
        }
        for path in landlock::OF_PROGRAMS.iter().filter(|_| rights.exec) {
            rules.allow_path(Path::new(path), Access::Read)?;
        }
        rules.allow_path(Path::new(&format!("/proc/{pid}")), Access::Read)?;
        if let Some(own) = own {
            rules.allow(&Place::open_itself(own)?, Access::Own)?;
            if let Some(config) = own.parent().map(|home| home.join("config")) {
                rules.allow_path(&config, Access::Read)?;
            }
        }
        for path in &rights.managed {
            rules.allow_path(path, Access::Own)?;
        }
        for path in &rights.managed_config {
            rules.allow_path(path, Access::Read)?;
        }
        Ok(rules.into_fd())
    }
}

/// In a debug build: whether a test says that this layer is missing.
fn lacks(layer: &str) -> bool {
    let named = |list: String| list.split(',').any(|word| word == layer);
    cfg!(debug_assertions) && std::env::var("AGENTCONTAINER_TEST_LACKS").is_ok_and(named)
}

/// In a debug build: the newest version of Landlock that a test lets this kernel have.
fn oldest() -> u32 {
    let told = std::env::var("AGENTCONTAINER_TEST_LANDLOCK").ok().filter(|_| cfg!(debug_assertions));
    told.and_then(|version| version.parse().ok()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(wanted: Wanted, landlock: u32, filters: bool, reported: Option<Reported>) -> Sandbox {
        let sandbox = Sandbox {
            wanted,
            user: None,
            state_dir: Some("/var/x".into()),
            landlock,
            filters,
            root: false,
            ready: Mutex::new(None),
        };
        if let Some(reported) = reported {
            sandbox.ready(reported);
        }
        sandbox
    }

    fn well() -> Option<Reported> {
        Some(Reported { ctypes: true, ..Reported::default() })
    }

    #[test]
    fn the_level_names_what_is_missing_and_require_refuses_it() {
        let full = sandbox(Wanted::Require, 7, true, well());
        assert_eq!(full.level(), Level::Full);
        assert!(full.admits().is_ok());
        let lesser = [
            (0, true, well(), "no Landlock"),
            (2, true, well(), "Landlock 2"),
            (5, true, well(), "Landlock 5"),
            (7, false, well(), "no seccomp"),
            (7, true, Some(Reported::default()), "no ctypes"),
            (
                7,
                true,
                Some(Reported { missing: vec!["no user namespace".into()], ..well().unwrap() }),
                "no user",
            ),
        ];
        for (landlock, filters, reported, part) in lesser {
            let partial = sandbox(Wanted::Require, landlock, filters, reported.clone());
            let level = partial.level().to_string();
            assert!(level.starts_with("partial: ") && level.contains(part), "{part}: {level}");
            assert!(partial.admits().unwrap_err().contains(part), "{part}");
            assert!(sandbox(Wanted::BestEffort, landlock, filters, reported).admits().is_ok());
        }
        let none = sandbox(Wanted::Require, 0, false, well());
        assert_eq!(none.level().to_string(), "none");
        assert!(none.admits().is_err());
        assert_eq!(sandbox(Wanted::Off, 7, true, well()).level().to_string(), "none");
    }

    #[test]
    fn a_state_directory_below_what_agents_read_is_told() {
        let paths = vec![PathBuf::from("/var")];
        let below = sandbox(Wanted::BestEffort, 7, true, Some(Reported { paths, ..well().unwrap() }));
        assert!(below.level().to_string().contains("/var"), "{}", below.level());
    }
}
