//! A node's configuration: the file, its keys, their defaults and bounds.

use super::federation::TreeNode;
use crate::capsule::{registry_file, Policy};
use crate::wire::{Address, Secret};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// The shortest admin secret that a node listening beyond loopback starts with, characters.
pub const STRONG_SECRET: usize = 16;

/// The longest time that can be configured, seconds; some thirty years.
const MOST_SECONDS: f64 = 1e9;

/// Everything that a node is told before it starts.
#[derive(Debug, Clone)]
pub struct Config {
    /// What the keys of the file say.
    pub keys: Keys,
    /// The admin's secret, or several while a rotation runs.
    pub admin_secrets: Vec<Secret>,
    /// Operators by name.
    pub operators: BTreeMap<String, Operator>,
    /// What capsules of agents must satisfy.
    pub capsule_policy: Policy,
}

/// Someone who may send some types of message.
#[derive(Debug, Clone)]
pub struct Operator {
    /// What its messages are signed with.
    pub secret: Secret,
    /// The types it may send.
    pub allow: Vec<String>,
}

/// The keys of the configuration file. Times in seconds, sizes in bytes.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Keys {
    /// The node's name.
    pub container_name: String,
    /// The address to listen on.
    pub listen_host: String,
    /// The port; 0: any free one.
    pub listen_port: u16,
    /// The admin's secret: a string, or a list while a rotation runs.
    pub admin_secret: Option<OneOrMore>,
    /// A file with the admin's secret, instead.
    pub admin_secret_file: Option<OneOrMore>,
    /// A short secret is accepted beyond loopback too.
    pub allow_weak_secret: bool,
    /// What agents may read; default: `data` in the state directory.
    pub data_root: Option<PathBuf>,
    /// Whether `run` is there.
    pub allow_subprocess: bool,
    /// The tree of nodes, as this node sees it.
    pub federation: Option<TreeNode>,
    /// What others are told of this node's address.
    pub advertise_host: Option<String>,
    /// Operators by name.
    pub operators: BTreeMap<String, OperatorKeys>,
    /// The state directory.
    pub state_dir: Option<PathBuf>,
    /// How far a timestamp may be from the node's clock.
    pub clock_skew_s: u64,
    /// The longest line, either way.
    pub max_message_bytes: usize,
    /// How many signatures of the admin are remembered against replay.
    pub replay_entries: usize,
    /// How many of each agent's and operator's.
    pub replay_entries_agent: usize,
    /// The longest trace.
    pub max_trace: usize,
    /// How many connections are served at once.
    pub max_connections: usize,
    /// How long a request line may take to arrive.
    pub request_timeout_s: f64,
    /// How long a kept-alive connection may be silent.
    pub keep_alive_timeout_s: f64,
    /// How many agents may live here.
    pub max_agents: usize,
    /// How many of them may have a process.
    pub max_live_agents: usize,
    /// After how long without use an agent's process ends; 0: never.
    pub idle_timeout_s: f64,
    /// How long a hook may run.
    pub hook_timeout_s: f64,
    /// How many messages may wait for one agent.
    pub inbox_length: usize,
    /// How many forked workers wait for agents.
    pub parked_workers: usize,
    /// Whether Python is started with the node rather than on first use.
    pub prewarm: bool,
    /// The interpreter.
    pub python: Option<PathBuf>,
    /// Whether agents may import what is installed in its site-packages.
    pub allow_site_packages: bool,
    /// RLIMIT_AS of an agent's process.
    pub agent_memory_bytes: u64,
    /// RLIMIT_NOFILE of an agent's process.
    pub agent_open_files: u64,
    /// A text for `ctx.prompt()`.
    pub prompt_file: Option<PathBuf>,
    /// The policy that capsules of agents are checked under.
    pub capsule_policy: Option<PathBuf>,
    /// The registry of keys that is trusted in them; read anew for each.
    pub trust_registry: Option<PathBuf>,
}

/// A value, or a list of them.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
pub enum OneOrMore {
    /// One.
    One(String),
    /// Several.
    More(Vec<String>),
}

/// Hidden: it may hold secrets.
impl fmt::Debug for OneOrMore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl OneOrMore {
    fn all(&self) -> &[String] {
        match self {
            OneOrMore::One(one) => std::slice::from_ref(one),
            OneOrMore::More(more) => more,
        }
    }
}

/// An operator, as the file has it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatorKeys {
    /// A file with its secret.
    pub secret_file: PathBuf,
    /// The types it may send.
    pub allow: Vec<String>,
}

impl Default for Keys {
    fn default() -> Self {
        Keys {
            container_name: String::new(),
            listen_host: "127.0.0.1".into(),
            listen_port: 7000,
            admin_secret: None,
            admin_secret_file: None,
            allow_weak_secret: false,
            data_root: None,
            allow_subprocess: true,
            federation: None,
            advertise_host: None,
            operators: BTreeMap::new(),
            state_dir: None,
            clock_skew_s: 300,
            max_message_bytes: 32 << 20,
            replay_entries: 1_000_000,
            replay_entries_agent: 10_000,
            max_trace: 256,
            max_connections: 256,
            request_timeout_s: 30.0,
            keep_alive_timeout_s: 60.0,
            max_agents: 1000,
            max_live_agents: 64,
            idle_timeout_s: 600.0,
            hook_timeout_s: 300.0,
            inbox_length: 64,
            parked_workers: 2,
            prewarm: true,
            python: None,
            allow_site_packages: false,
            agent_memory_bytes: 2 << 30,
            agent_open_files: 1024,
            prompt_file: None,
            capsule_policy: None,
            trust_registry: None,
        }
    }
}

/// The keys of the file, for the nearest known one.
const KEYS: [&str; 36] = [
    "container_name",
    "listen_host",
    "listen_port",
    "admin_secret",
    "admin_secret_file",
    "allow_weak_secret",
    "data_root",
    "allow_subprocess",
    "federation",
    "advertise_host",
    "operators",
    "state_dir",
    "clock_skew_s",
    "max_message_bytes",
    "replay_entries",
    "replay_entries_agent",
    "max_trace",
    "max_connections",
    "request_timeout_s",
    "keep_alive_timeout_s",
    "max_agents",
    "max_live_agents",
    "idle_timeout_s",
    "hook_timeout_s",
    "inbox_length",
    "parked_workers",
    "prewarm",
    "python",
    "allow_site_packages",
    "agent_memory_bytes",
    "agent_open_files",
    "prompt_file",
    "capsule_policy",
    "trust_registry",
    // Of the tree's nodes:
    "name",
    "children",
];

impl Keys {
    /// Reads a configuration file. Relative paths in it are relative to its folder.
    ///
    /// # Errors
    /// One sentence that names the file and the key.
    pub fn from_file(file: &Path) -> Result<Keys, String> {
        let text =
            std::fs::read_to_string(file).map_err(|error| format!("reading {}: {error}", file.display()))?;
        let mut keys = Keys::parse(&text).map_err(|why| format!("{}: {why}", file.display()))?;
        let folder = file.parent().unwrap_or(Path::new("."));
        let beside = |path: &mut Option<PathBuf>| {
            if let Some(path) = path {
                *path = folder.join(&path);
            }
        };
        beside(&mut keys.data_root);
        beside(&mut keys.state_dir);
        beside(&mut keys.prompt_file);
        beside(&mut keys.capsule_policy);
        beside(&mut keys.trust_registry);
        if let Some(python) = &mut keys.python {
            if python.components().count() > 1 {
                *python = folder.join(&*python);
            }
        }
        for operator in keys.operators.values_mut() {
            operator.secret_file = folder.join(&operator.secret_file);
        }
        if let Some(OneOrMore::One(path)) = &keys.admin_secret_file {
            keys.admin_secret_file = Some(OneOrMore::One(folder.join(path).to_string_lossy().into_owned()));
        } else if let Some(OneOrMore::More(paths)) = &keys.admin_secret_file {
            let paths = paths.iter().map(|path| folder.join(path).to_string_lossy().into_owned());
            keys.admin_secret_file = Some(OneOrMore::More(paths.collect()));
        }
        Ok(keys)
    }

    /// Reads the text of a configuration file.
    ///
    /// # Errors
    /// What is wrong, and with which key.
    pub fn parse(text: &str) -> Result<Keys, String> {
        crate::wire::parse(text).map_err(|wrong| wrong.to_string())?; // keys named twice, among others
        let object: Map<String, Value> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        for key in object.keys() {
            if !KEYS[..KEYS.len() - 2].contains(&key.as_str()) {
                return Err(format!("there is no key {key:?}; the nearest is {:?}", nearest(key)));
            }
        }
        // Key by key, so that the error names the one that is wrong.
        for (key, value) in &object {
            let one = Value::Object(Map::from_iter([(key.clone(), value.clone())]));
            serde_json::from_value::<Keys>(one).map_err(|error| format!("key {key:?}: {error}"))?;
        }
        let keys: Keys = serde_json::from_value(object.into()).map_err(|error| error.to_string())?;
        keys.check()?;
        Ok(keys)
    }

    /// The file with the admin's secret, where nothing else names one.
    pub fn only_secret_file(&self) -> Option<&Path> {
        let file = self.admin_secret_file.as_ref().filter(|_| self.admin_secret.is_none())?;
        file.all().first().map(Path::new)
    }

    /// Checks what the types do not say.
    fn check(&self) -> Result<(), String> {
        let at_least = |name: &str, value: f64, least: f64| {
            if value.is_finite() && value >= least {
                Ok(())
            } else {
                Err(format!("key {name:?}: must be at least {least}, not {value}"))
            }
        };
        at_least("max_message_bytes", self.max_message_bytes as f64, 1024.0)?;
        at_least("max_connections", self.max_connections as f64, 1.0)?;
        at_least("max_agents", self.max_agents as f64, 1.0)?;
        at_least("max_live_agents", self.max_live_agents as f64, 1.0)?;
        at_least("max_trace", self.max_trace as f64, 1.0)?;
        at_least("replay_entries", self.replay_entries as f64, 1.0)?;
        at_least("replay_entries_agent", self.replay_entries_agent as f64, 1.0)?;
        at_least("inbox_length", self.inbox_length as f64, 1.0)?;
        at_least("request_timeout_s", self.request_timeout_s, 0.1)?;
        at_least("keep_alive_timeout_s", self.keep_alive_timeout_s, 0.1)?;
        at_least("hook_timeout_s", self.hook_timeout_s, 0.01)?;
        at_least("idle_timeout_s", self.idle_timeout_s, 0.0)?;
        for (name, seconds) in [
            ("request_timeout_s", self.request_timeout_s),
            ("keep_alive_timeout_s", self.keep_alive_timeout_s),
            ("hook_timeout_s", self.hook_timeout_s),
            ("idle_timeout_s", self.idle_timeout_s),
        ] {
            // Added to a clock; far enough for anyone, and far from where that overflows.
            if seconds > MOST_SECONDS {
                return Err(format!("key {name:?}: must be at most {MOST_SECONDS}, not {seconds}"));
            }
        }
        at_least("agent_memory_bytes", self.agent_memory_bytes as f64, 64e6)?;
        at_least("agent_open_files", self.agent_open_files as f64, 64.0)?;
        if let Some(tree) = &self.federation {
            tree.check().map_err(|why| format!("key \"federation\": {why}"))?;
            if !self.container_name.is_empty() && tree.find(&self.container_name).is_none() {
                return Err(format!(
                    "key \"federation\": the tree has no node {:?}, this one",
                    self.container_name
                ));
            }
        }
        for name in self.operators.keys() {
            if name == "admin" {
                return Err("key \"operators\": no operator can be called \"admin\"".into());
            }
            crate::agent::manifest::check_id(name)
                .map_err(|why| format!("key \"operators\": {name:?} {why}"))?;
        }
        Ok(())
    }
}

impl Config {
    /// The configuration that `keys` make, with the secrets read from their files. `made` is the
    /// secret that the state directory holds, where the keys name none.
    ///
    /// # Errors
    /// A secret that can't be read, is empty, or too short for where the node listens.
    pub fn new(keys: Keys, made: Option<Secret>) -> Result<Config, String> {
        let mut admin_secrets = Vec::new();
        for text in keys.admin_secret.iter().flat_map(OneOrMore::all) {
            admin_secrets.push(Secret::new(text).map_err(|why| format!("key \"admin_secret\": {why}"))?);
        }
        for file in keys.admin_secret_file.iter().flat_map(OneOrMore::all) {
            admin_secrets.push(Secret::from_file(Path::new(file)).map_err(|why| why.to_string())?);
        }
        admin_secrets.extend(made);
        if admin_secrets.is_empty() {
            return Err("the node has no admin secret".into());
        }
        if !keys.allow_weak_secret && !is_loopback(&keys.listen_host) {
            let short = admin_secrets.iter().any(|secret| secret.expose().chars().count() < STRONG_SECRET);
            if short {
                return Err(format!(
                    "the admin secret is shorter than {STRONG_SECRET} characters and the node would listen on {}; \
                     take a longer one (or \"allow_weak_secret\": true)",
                    keys.listen_host
                ));
            }
        }
        let mut operators = BTreeMap::new();
        for (name, operator) in &keys.operators {
            let secret = Secret::from_file(&operator.secret_file)
                .map_err(|why| format!("operator {name:?}: {why}"))?;
            operators.insert(name.clone(), Operator { secret, allow: operator.allow.clone() });
        }
        let capsule_policy = match &keys.capsule_policy {
            None => Policy::default(),
            Some(file) => registry_file::read_text(file)
                .and_then(|text| Policy::parse(&text))
                .map_err(|error| format!("key \"capsule_policy\" ({}): {error}", file.display()))?,
        };
        if let Some(file) = &keys.trust_registry {
            registry_file::read(file)
                .map_err(|error| format!("key \"trust_registry\" ({}): {error}", file.display()))?;
        }
        Ok(Config { keys, admin_secrets, operators, capsule_policy })
    }

    /// Whether `name` is nobody's to take as an agent id.
    pub fn is_reserved(&self, name: &str) -> bool {
        name == "admin" || self.operators.contains_key(name)
    }
}

/// Whether only this machine reaches what listens on `host`.
pub fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The name a node gets when it is told none: the machine's, and the port.
pub fn default_name(address: &Address) -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let host: String =
        host.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' }).collect();
    format!("{}-{}", if host.is_empty() { "node" } else { &host }, address.port)
}

fn nearest(key: &str) -> &'static str {
    KEYS[..KEYS.len() - 2]
        .iter()
        .min_by_key(|known| distance(key, known))
        .copied()
        .unwrap_or("container_name")
}

/// How many characters differ (Levenshtein).
pub fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let cost = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = cost.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_names_the_nearest() {
        let error = Keys::parse(r#"{"listen_prot": 1}"#).unwrap_err();
        assert!(error.contains("listen_prot") && error.contains("\"listen_port\""), "{error}");
    }

    #[test]
    fn a_wrong_value_names_its_key() {
        for (text, part) in [
            (r#"{"listen_port": "x"}"#, "listen_port"),
            (r#"{"listen_port": 70000}"#, "listen_port"),
            (r#"{"max_agents": 0}"#, "max_agents"),
            (r#"{"hook_timeout_s": -1}"#, "hook_timeout_s"),
            (r#"{"hook_timeout_s": 1e19}"#, "hook_timeout_s"),
            (r#"{"request_timeout_s": 1e19}"#, "request_timeout_s"),
            (r#"{"keep_alive_timeout_s": 1e300}"#, "keep_alive_timeout_s"),
            (r#"{"operators": {"admin": {"secret_file": "x", "allow": []}}}"#, "admin"),
            (r#"{"federation": {"name": "a", "host": "h", "port": 0}}"#, "port"),
            (r#"{"federation": {"name": "a", "host": "h", "port": 1, "childs": []}}"#, "childs"),
            (r#"{"container_name": "x", "federation": {"name": "a", "host": "h", "port": 1}}"#, "\"x\""),
            (r#"{"prewarm": true, "prewarm": true}"#, "prewarm"),
            (r#"["x"]"#, "map"),
        ] {
            let error = Keys::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_short_secret_is_refused_beyond_loopback() {
        let with = |host: &str, secret: &str, weak: bool| {
            let keys = Keys { listen_host: host.into(), allow_weak_secret: weak, ..Keys::default() };
            Config::new(keys, Some(Secret::new(secret).unwrap()))
        };
        assert!(with("127.0.0.1", "short", false).is_ok());
        assert!(with("::1", "short", false).is_ok());
        assert!(with("0.0.0.0", "short", false).unwrap_err().contains("16"));
        assert!(with("0.0.0.0", "short", true).is_ok());
        assert!(with("0.0.0.0", "0123456789abcdef", false).is_ok());
    }

    #[test]
    fn secrets_stay_out_of_debug_output() {
        let keys = Keys::parse(r#"{"admin_secret": "hush-hush"}"#).unwrap();
        assert!(!format!("{keys:?}").contains("hush"));
        assert!(!format!("{:?}", Config::new(keys, None).unwrap()).contains("hush"));
    }
}
