//! A node's configuration: the file, its keys, their defaults and bounds.

use super::federation::TreeNode;
use super::senders::check_type;
use crate::agent::{manifest, python};
use crate::capsule::{registry_file, Policy, PublicKey};
use crate::input;
use crate::journal;
use crate::plain::{only_from_object, plain_error};
use crate::roster::grants::Grant;
use crate::roster::identities::{self, Trust};
use crate::roster::quotas::{Quota, Quotas};
use crate::roster::token;
use crate::sandbox::Wanted;
use crate::state::Fsync;
use crate::wire::tls::{self, Acceptor, Clients};
use crate::wire::{Address, Secret};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The shortest admin secret that a node listening beyond loopback starts with, characters.
pub const STRONG_SECRET: usize = 16;

/// The longest time that can be configured, seconds; some thirty years.
const MOST_SECONDS: f64 = 1e9;

/// What all lines on their way may hold, unless it is configured, bytes.
const IN_FLIGHT: usize = 256 << 20;

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
    /// What is shown to whoever connects, if the node speaks TLS.
    pub tls: Option<Arc<Acceptor>>,
    /// Whose capability tokens count.
    pub token_keys: Vec<TokenKey>,
}

/// A key whose tokens count.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenKey {
    /// What the configuration calls it.
    pub name: String,
    /// What its tokens are signed with.
    pub key: PublicKey,
    /// What it may give.
    pub grant: Grant,
}

/// Someone who may send some types of message.
#[derive(Debug, Clone, PartialEq)]
pub struct Operator {
    /// What its messages are signed with.
    pub secret: Secret,
    /// The types it may send.
    pub allow: Vec<String>,
}

/// The keys of the configuration file. Times in seconds, sizes in bytes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
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
    /// The node speaks TLS, and nothing else.
    pub tls: Option<TlsKeys>,
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
    /// How much all lines on their way may hold, with the answers to them; default: 256 MiB, or twice
    /// [`Keys::max_message_bytes`] if that is more.
    pub max_bytes_in_flight: Option<usize>,
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
    /// What running hooks get when the node is to end.
    pub shutdown_grace_s: f64,
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
    /// RLIMIT_FSIZE of an agent's process.
    pub agent_file_bytes: u64,
    /// RLIMIT_NPROC of agents together.
    pub agent_processes: u64,
    /// As whom agents run where the node is root's: a name, or `UID:GID`.
    pub agent_user: Option<String>,
    /// How much of the sandbox is wanted around agents' processes.
    pub sandbox: Wanted,
    /// CPU seconds of a hook; 0: no bound.
    pub agent_cpu_s: u64,
    /// Bytes in an agent's own directory; 0: no bound.
    pub agent_state_bytes: u64,
    /// `ctx` calls of an agent a minute; 0: no bound.
    pub agent_calls_per_minute: u64,
    /// Bytes of files that an agent reads a minute; 0: no bound.
    pub agent_read_bytes_per_minute: u64,
    /// Bytes of HTTP bodies that an agent exchanges an hour; 0: no bound.
    pub agent_http_bytes_per_hour: u64,
    /// A text for `ctx.prompt()`.
    pub prompt_file: Option<PathBuf>,
    /// The policy that capsules of agents are checked under.
    pub capsule_policy: Option<PathBuf>,
    /// The registry of keys that is trusted in them; read anew for each.
    pub trust_registry: Option<PathBuf>,
    /// Who may arrive.
    pub trust: Trust,
    /// The key that signs the identities which this node takes from the root of the tree; none: it is a root.
    pub identity_root_key: Option<String>,
    /// Keys whose capability tokens count here, by name.
    pub token_keys: BTreeMap<String, TokenKeyKeys>,
    /// When what hooks and messages change reaches the disk itself.
    pub memory_fsync: Fsync,
    /// When the journal reaches the disk itself.
    pub journal_fsync: Fsync,
    /// From which size on a file of the journal is closed.
    pub journal_file_bytes: u64,
    /// How many of them are kept.
    pub journal_files: usize,
    /// The id of the node's manager.
    pub manager: String,
    /// No manager at all.
    pub ruthless: bool,
}

/// A value, or a list of them.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(untagged, expecting = "must be a string or a list of strings")]
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

/// The files that TLS needs, PEM.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct TlsKeys {
    /// The node's certificate, and behind it those that lead to its authority. The node also shows it to
    /// other nodes that ask for one.
    pub certificate: PathBuf,
    /// Its private key, not encrypted.
    pub key: PathBuf,
    /// The authorities of clients' certificates, or such certificates themselves; none: clients are not asked.
    #[serde(default)]
    pub client_ca: Option<PathBuf>,
    /// Whether a client without a certificate gets in: `required` (then not) or `optional`.
    #[serde(default)]
    pub client_certificates: Option<ClientCertificates>,
    /// The authorities of other nodes' certificates, where the tree pins no fingerprint.
    #[serde(default)]
    pub peer_ca: Option<PathBuf>,
}
only_from_object!(TlsKeys);

/// Whether clients need a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientCertificates {
    /// Nobody gets in without one.
    Required,
    /// One that is shown has to be good.
    Optional,
}

impl TlsKeys {
    /// Reads the files and checks that they fit together.
    fn acceptor(&self) -> Result<Acceptor, String> {
        let wanted = match self.client_certificates {
            Some(ClientCertificates::Optional) => Clients::Optional,
            _ => Clients::Required,
        };
        let clients = self.client_ca.as_deref().map(|file| (file, wanted));
        self.peer_ca.as_deref().map_or(Ok(()), tls::check_authorities)?;
        Acceptor::read(&self.certificate, &self.key, clients)
    }
}

/// An operator, as the file has it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct OperatorKeys {
    /// A file with its secret.
    pub secret_file: PathBuf,
    /// The types it may send.
    pub allow: Vec<String>,
}
only_from_object!(OperatorKeys);

/// A key for capability tokens, as the file has it: what it may give beside it, as in a grant.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct TokenKeyKeys {
    /// An Ed25519 public key, base64.
    pub key: String,
    /// Groups of calls.
    #[serde(default)]
    pub groups: Vec<String>,
    /// Calls, and `ManageRootAgent`.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// What calls are narrowed to.
    #[serde(default)]
    pub scopes: Map<String, Value>,
}
only_from_object!(TokenKeyKeys);

impl TokenKeyKeys {
    fn read(&self, name: &str) -> Result<TokenKey, String> {
        let key = identities::read_key(&self.key)?;
        let grant = serde_json::json!({
            "groups": self.groups,
            "capabilities": self.capabilities,
            "scopes": self.scopes,
        });
        Ok(TokenKey { name: name.to_owned(), key, grant: token::read_grant(&grant)? })
    }
}

fn read_token_keys(keys: &BTreeMap<String, TokenKeyKeys>) -> Result<Vec<TokenKey>, String> {
    let mut read: Vec<TokenKey> = Vec::new();
    for (name, key) in keys {
        let key = key.read(name).map_err(|why| format!("key \"token_keys\": {name:?}: {why}"))?;
        if let Some(same) = read.iter().find(|known| known.key == key.key) {
            return Err(format!("key \"token_keys\": {name:?} and {:?} are the same key", same.name));
        }
        read.push(key);
    }
    Ok(read)
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
            tls: None,
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
            max_bytes_in_flight: None,
            request_timeout_s: 30.0,
            keep_alive_timeout_s: 60.0,
            max_agents: 1000,
            max_live_agents: 64,
            idle_timeout_s: 600.0,
            hook_timeout_s: 300.0,
            inbox_length: 64,
            shutdown_grace_s: 10.0,
            parked_workers: 2,
            prewarm: true,
            python: None,
            allow_site_packages: false,
            agent_memory_bytes: 2 << 30,
            agent_open_files: 1024,
            agent_file_bytes: 4 << 30,
            agent_cpu_s: 300,
            agent_state_bytes: 1 << 30,
            agent_calls_per_minute: 0,
            agent_read_bytes_per_minute: 0,
            agent_http_bytes_per_hour: 0,
            agent_processes: 512,
            agent_user: None,
            sandbox: Wanted::default(),
            prompt_file: None,
            capsule_policy: None,
            trust_registry: None,
            trust: Trust::default(),
            identity_root_key: None,
            token_keys: BTreeMap::new(),
            memory_fsync: Fsync::default(),
            journal_fsync: Fsync::default(),
            journal_file_bytes: 16 << 20,
            journal_files: 8,
            manager: "ruth".into(),
            ruthless: false,
        }
    }
}

/// Makes [`KEYS`], and what compares two configurations key by key.
macro_rules! keys {
    (live: [$($live:ident),* $(,)?], fixed: [$($fixed:ident),* $(,)?]) => {
        /// The keys of the file, for the nearest known one.
        const KEYS: &[&str] = &[$(stringify!($live),)* $(stringify!($fixed),)*];

        impl Keys {
            /// The keys that a running node can change, and that differ.
            fn differences(&self, other: &Keys) -> Vec<&'static str> {
                let mut names = Vec::new();
                $(if self.$live != other.$live {
                    names.push(stringify!($live));
                })*
                names
            }

            /// Gives the keys that only a new start changes their old values. Returns the names of those
            /// that had others.
            fn keep_fixed(&mut self, old: &Keys) -> Vec<&'static str> {
                let mut names = Vec::new();
                $(if self.$fixed != old.$fixed {
                    names.push(stringify!($fixed));
                    self.$fixed.clone_from(&old.$fixed);
                })*
                names
            }
        }
    };
}

keys! {
    live: [
        admin_secret,
        admin_secret_file,
        allow_weak_secret,
        allow_subprocess,
        tls,
        federation,
        advertise_host,
        operators,
        replay_entries,
        replay_entries_agent,
        max_trace,
        max_connections,
        max_bytes_in_flight,
        request_timeout_s,
        keep_alive_timeout_s,
        max_agents,
        max_live_agents,
        idle_timeout_s,
        hook_timeout_s,
        inbox_length,
        shutdown_grace_s,
        prompt_file,
        capsule_policy,
        trust_registry,
        trust,
        identity_root_key,
        token_keys,
        agent_cpu_s,
        agent_state_bytes,
        agent_calls_per_minute,
        agent_read_bytes_per_minute,
        agent_http_bytes_per_hour,
    ],
    // The node's name and places; what the replay memory was made for; what the interpreter and the workers
    // that are parked already were started with, and the length of their lines.
    fixed: [
        container_name,
        listen_host,
        listen_port,
        data_root,
        state_dir,
        clock_skew_s,
        max_message_bytes,
        parked_workers,
        prewarm,
        python,
        allow_site_packages,
        agent_memory_bytes,
        agent_open_files,
        agent_file_bytes,
        agent_processes,
        agent_user,
        sandbox,
        memory_fsync,
        journal_fsync,
        journal_file_bytes,
        journal_files,
        manager,
        ruthless,
    ]
}

impl Keys {
    /// Reads a configuration file. Relative paths in it are relative to its folder.
    ///
    /// # Errors
    /// One sentence that names the file and the key.
    pub fn from_file(file: &Path) -> Result<Keys, String> {
        let text = input::read_text(file, input::MOST)
            .map_err(|error| format!("reading {}: {error}", file.display()))?;
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
        if let Some(tls) = &mut keys.tls {
            tls.certificate = folder.join(&tls.certificate);
            tls.key = folder.join(&tls.key);
            beside(&mut tls.client_ca);
            beside(&mut tls.peer_ca);
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
        let object: Map<String, Value> = serde_json::from_str(text).map_err(|error| plain_error(&error))?;
        for key in object.keys() {
            if !KEYS.contains(&key.as_str()) {
                let hint = match nearest(key, KEYS.iter().copied()) {
                    Some(near) => format!("the nearest is {near:?}"),
                    None => "README.md has a table of them".into(),
                };
                return Err(format!("there is no key {key:?}; {hint}"));
            }
        }
        for (name, operator) in object.get("operators").and_then(Value::as_object).into_iter().flatten() {
            serde_json::from_value::<OperatorKeys>(operator.clone())
                .map_err(|error| format!("key \"operators\": {name:?}: {}", plain_error(&error)))?;
        }
        // Key by key, so that the error names the one that is wrong.
        for (key, value) in &object {
            let one = Value::Object(Map::from_iter([(key.clone(), value.clone())]));
            serde_json::from_value::<Keys>(one)
                .map_err(|error| format!("key {key:?}: {}", plain_error(&error)))?;
        }
        let keys: Keys = serde_json::from_value(object.into()).map_err(|error| plain_error(&error))?;
        keys.check()?;
        Ok(keys)
    }

    /// How much all lines on their way may hold, bytes.
    pub fn most_in_flight(&self) -> usize {
        let usual = || IN_FLIGHT.max(self.max_message_bytes.saturating_mul(2));
        self.max_bytes_in_flight.unwrap_or_else(usual)
    }

    /// These keys for a node that runs with `old` ones: what only a new start changes stays. The second
    /// names the keys of which that is so and that would have changed.
    ///
    /// # Errors
    /// What does not go together with what stays; names the key.
    pub fn in_place_of(mut self, old: &Keys) -> Result<(Keys, Vec<&'static str>), String> {
        if self.container_name.is_empty() {
            // The name was made, or is that of the tree: none is asked for.
            self.container_name.clone_from(&old.container_name);
        }
        let kept = self.keep_fixed(old);
        self.check()?;
        Ok((self, kept))
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
        if let Some(most) = self.max_bytes_in_flight.filter(|most| *most < self.max_message_bytes) {
            return Err(format!(
                "key \"max_bytes_in_flight\": must be at least max_message_bytes ({}), not {most}",
                self.max_message_bytes
            ));
        }
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
        at_least("shutdown_grace_s", self.shutdown_grace_s, 0.0)?;
        for (name, seconds) in [
            ("request_timeout_s", self.request_timeout_s),
            ("keep_alive_timeout_s", self.keep_alive_timeout_s),
            ("hook_timeout_s", self.hook_timeout_s),
            ("idle_timeout_s", self.idle_timeout_s),
            ("shutdown_grace_s", self.shutdown_grace_s),
        ] {
            // Added to a clock; far enough for anyone, and far from where that overflows.
            if seconds > MOST_SECONDS {
                return Err(format!("key {name:?}: must be at most {MOST_SECONDS}, not {seconds}"));
            }
        }
        at_least("agent_memory_bytes", self.agent_memory_bytes as f64, 64e6)?;
        at_least("agent_open_files", self.agent_open_files as f64, 64.0)?;
        at_least("agent_file_bytes", self.agent_file_bytes as f64, 65536.0)?;
        at_least("agent_processes", self.agent_processes as f64, 8.0)?;
        at_least("journal_file_bytes", self.journal_file_bytes as f64, 4096.0)?;
        at_least("journal_files", self.journal_files as f64, 1.0)?;
        if !self.container_name.is_empty() {
            // The name is that of a directory, too.
            manifest::check_id(&self.container_name)
                .map_err(|why| format!("key \"container_name\": {why}"))?;
        }
        manifest::check_id(&self.manager).map_err(|why| format!("key \"manager\": {why}"))?;
        if self.manager == "admin" || (!self.ruthless && self.operators.contains_key(&self.manager)) {
            let whose = if self.manager == "admin" { "the admin's" } else { "an operator's" };
            return Err(format!("key \"manager\": {:?} is {whose} name", self.manager));
        }
        self.check_files()?;
        if let Some(key) = &self.identity_root_key {
            identities::read_key(key).map_err(|why| format!("key \"identity_root_key\": {why}"))?;
        }
        read_token_keys(&self.token_keys)?;
        if let Some(host) = &self.advertise_host {
            Address::new(host, 1).map_err(|why| format!("key \"advertise_host\": {why}"))?;
        }
        if let Some(tree) = &self.federation {
            tree.check().map_err(|why| format!("key \"federation\": {why}"))?;
            if !self.container_name.is_empty() && tree.find(&self.container_name).is_none() {
                return Err(format!(
                    "key \"federation\": the tree has no node {:?}, this one",
                    self.container_name
                ));
            }
        }
        for (name, operator) in &self.operators {
            if name == "admin" {
                return Err("key \"operators\": no operator can be called \"admin\"".into());
            }
            manifest::check_id(name).map_err(|why| format!("key \"operators\": {name:?} {why}"))?;
            for kind in &operator.allow {
                check_type(kind).map_err(|why| format!("key \"operators\": {name:?}: \"allow\": {why}"))?;
            }
        }
        Ok(())
    }

    /// Checks that what names a file can: an empty name would come to mean the configuration's folder.
    fn check_files(&self) -> Result<(), String> {
        let check = |key: &str, file: &Path| match file.as_os_str().as_encoded_bytes() {
            [] => Err(format!("key {key:?}: names no file, it is empty")),
            name if name.contains(&0) => Err(format!("key {key:?}: no file's name holds a NUL")),
            _ => Ok(()),
        };
        for (key, file) in [
            ("data_root", &self.data_root),
            ("state_dir", &self.state_dir),
            ("python", &self.python),
            ("prompt_file", &self.prompt_file),
            ("capsule_policy", &self.capsule_policy),
            ("trust_registry", &self.trust_registry),
        ] {
            file.as_deref().map_or(Ok(()), |file| check(key, file))?;
        }
        if let Some(tls) = &self.tls {
            let named = [("certificate", Some(&tls.certificate)), ("key", Some(&tls.key))];
            let named = named
                .into_iter()
                .chain([("client_ca", tls.client_ca.as_ref()), ("peer_ca", tls.peer_ca.as_ref())]);
            for (key, file) in named {
                file.map_or(Ok(()), |file| check(key, file)).map_err(|why| format!("key \"tls\": {why}"))?;
            }
            if tls.client_certificates.is_some() && tls.client_ca.is_none() {
                return Err("key \"tls\": client_certificates says nothing without client_ca".into());
            }
        }
        for file in self.admin_secret_file.iter().flat_map(OneOrMore::all) {
            check("admin_secret_file", Path::new(file))?;
        }
        for (name, operator) in &self.operators {
            check("secret_file", &operator.secret_file)
                .map_err(|why| format!("key \"operators\": {name:?}: {why}"))?;
        }
        Ok(())
    }

    /// Checks what on this machine the node will need.
    fn check_machine(&self) -> Result<(), String> {
        if self.python.is_some() {
            python::locate(self.python.as_deref()).map_err(|error| format!("key \"python\": {error}"))?;
        }
        if let Some(file) = &self.prompt_file {
            input::read_text(file, input::MOST)
                .map_err(|error| format!("key \"prompt_file\": reading {}: {error}", file.display()))?;
        }
        Ok(())
    }
}

impl Config {
    /// The configuration that `keys` make, with the secrets read from their files. `made` is the
    /// secret that the state directory holds, where the keys name none.
    ///
    /// # Errors
    /// A secret that can't be read, is empty, or too short for where the node listens; a Python or a
    /// prompt that is configured and not there.
    pub fn new(keys: Keys, made: Option<Secret>) -> Result<Config, String> {
        keys.check_machine()?;
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
        let tls = keys.tls.as_ref().map(TlsKeys::acceptor).transpose();
        let tls = tls.map_err(|why| format!("key \"tls\": {why}"))?.map(Arc::new);
        let token_keys = read_token_keys(&keys.token_keys)?;
        Ok(Config { keys, admin_secrets, operators, capsule_policy, token_keys, tls })
    }

    /// The keys of which this configuration has other values than `old`, or finds others in the files that
    /// they name.
    pub fn differences(&self, old: &Config) -> Vec<&'static str> {
        let mut names = self.keys.differences(&old.keys);
        let mut contents = |name: &'static str, same: bool, besides: &[&str]| {
            if !same && !names.iter().any(|known| *known == name || besides.contains(known)) {
                names.push(name);
            }
        };
        contents("admin_secret_file", self.admin_secrets == old.admin_secrets, &["admin_secret"]);
        contents("operators", self.operators == old.operators, &[]);
        contents("tls", self.tls == old.tls, &[]);
        contents("capsule_policy", self.capsule_policy == old.capsule_policy, &[]);
        names
    }

    /// What bounds agents whose grant does not say otherwise.
    pub fn quotas(&self) -> Quotas {
        Quotas::of([
            (Quota::Cpu, self.keys.agent_cpu_s),
            (Quota::StateBytes, self.keys.agent_state_bytes),
            (Quota::Calls, self.keys.agent_calls_per_minute),
            (Quota::ReadBytes, self.keys.agent_read_bytes_per_minute),
            (Quota::HttpBytes, self.keys.agent_http_bytes_per_hour),
            (Quota::Memory, self.keys.agent_memory_bytes),
            (Quota::OpenFiles, self.keys.agent_open_files),
            (Quota::FileBytes, self.keys.agent_file_bytes),
        ])
    }

    /// How the journal is kept.
    pub fn journal(&self) -> journal::Settings {
        let Keys { journal_file_bytes: file_bytes, journal_files: files, journal_fsync: fsync, .. } =
            self.keys;
        journal::Settings { file_bytes, files, fsync }
    }

    /// The manager's id, unless the node has none.
    pub fn manager(&self) -> Option<&str> {
        (!self.keys.ruthless).then_some(&*self.keys.manager)
    }

    /// Whether `name` is nobody's to take as an agent id.
    pub fn is_reserved(&self, name: &str) -> bool {
        name == "admin" || self.operators.contains_key(name) || self.manager() == Some(name)
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

/// The one of `known` that `name` probably means: it holds it, or differs in a third of the characters at
/// most. Nothing, where none resembles it.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let far = |known: &&str| (!known.contains(name), distance(name, known));
    let near = known.into_iter().min_by_key(far).filter(|_| !name.is_empty())?;
    let length = name.chars().count();
    let most = (length.max(near.chars().count()) / 3).max(2);
    let differing = distance(name, near);
    // A letter or two stand in nearly every name.
    let contained = length >= 3 && near.contains(name);
    (contained || (differing <= most && differing < length)).then_some(near)
}

/// How many characters differ (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
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
            (r#"{"journal_files": 0}"#, "journal_files"),
            (r#"{"journal_file_bytes": 100}"#, "journal_file_bytes"),
            (r#"{"memory_fsync": "often"}"#, "memory_fsync"),
            (r#"{"journal_fsync": 1}"#, "journal_fsync"),
            (r#"{"max_bytes_in_flight": 33554431}"#, "at least max_message_bytes (33554432)"),
            (r#"{"trust": "closed"}"#, "trust"),
            (r#"{"identity_root_key": "AAAA"}"#, "identity_root_key"),
            (r#"{"hook_timeout_s": -1}"#, "hook_timeout_s"),
            (r#"{"hook_timeout_s": 1e19}"#, "hook_timeout_s"),
            (r#"{"request_timeout_s": 1e19}"#, "request_timeout_s"),
            (r#"{"keep_alive_timeout_s": 1e300}"#, "keep_alive_timeout_s"),
            (r#"{"operators": {"admin": {"secret_file": "x", "allow": []}}}"#, "admin"),
            (r#"{"federation": {"name": "a", "host": "h", "port": 0}}"#, "port"),
            (r#"{"federation": {"name": "a", "host": "h", "port": 1, "childs": []}}"#, "childs"),
            (r#"{"container_name": "x", "federation": {"name": "a", "host": "h", "port": 1}}"#, "\"x\""),
            (r#"{"prewarm": true, "prewarm": true}"#, "prewarm"),
            (r#"["x"]"#, "an object"),
            (r#"{"container_name": "a/b"}"#, "container_name"),
            (r#"{"container_name": "a\u0000b"}"#, "container_name"),
            (r#"{"federation": {"name": "a\u001b[2J", "host": "h", "port": 1}}"#, "federation"),
            (r#"{"federation": ["n", "127.0.0.1", 1, [], false]}"#, "an object, not a list"),
            (
                r#"{"federation": {"name":"n","host":"h","port":1,"children":[["n","h",1]]}}"#,
                "an object, not",
            ),
            (r#"{"data_root": ""}"#, "data_root"),
            (r#"{"state_dir": "a\u0000"}"#, "state_dir"),
            (r#"{"python": ""}"#, "python"),
            (r#"{"prompt_file": ""}"#, "prompt_file"),
            (r#"{"advertise_host": ""}"#, "advertise_host"),
            (r#"{"advertise_host": "a b"}"#, "advertise_host"),
            (r#"{"admin_secret_file": ""}"#, "admin_secret_file"),
            (r#"{"admin_secret_file": ["x", ""]}"#, "admin_secret_file"),
            (
                r#"{"operators": {"m": {"secret_file": "x", "allow": ["list_agent"]}}}"#,
                "nearest is \"list_agents\"",
            ),
            (r#"{"operators": {"m": {"secret_file": "x", "allow": ["*"]}}}"#, "no message type \"*\""),
            (r#"{"operators": {"m": {"secret_file": "", "allow": []}}}"#, "\"m\": key \"secret_file\""),
            (r#"{"operators": {"m": "SECRET"}}"#, "\"m\": must be an object, not a string"),
            (r#"{"operators": {"m": ["SECRET", []]}}"#, "\"m\": must be an object, not a list"),
            (r#"{"tls": true}"#, "tls"),
            (r#"{"tls": {"certificate": "a"}}"#, "`key`"),
            (r#"{"tls": {"certificate": "", "key": "b"}}"#, "key \"tls\": key \"certificate\""),
            (r#"{"tls": {"certificate": "a", "key": "b", "keys": 1}}"#, "keys"),
            (
                r#"{"tls": {"certificate": "a", "key": "b", "client_certificates": "optional"}}"#,
                "without client_ca",
            ),
            (
                r#"{"tls": {"certificate": "a", "key": "b", "client_ca": "c", "client_certificates": "maybe"}}"#,
                "\"required\" or \"optional\"",
            ),
            (
                r#"{"federation": {"name": "a", "host": "h", "port": 1, "tls": {"fingerprint": "ab"}}}"#,
                "SHA-256",
            ),
            (
                r#"{"federation": {"name": "a", "host": "h", "port": 1, "tls": {"fingerprints": []}}}"#,
                "fingerprints",
            ),
            (r#"{"manager": ""}"#, "manager"),
            (r#"{"manager": "admin"}"#, "manager"),
            (r#"{"operators": {"ruth": {"secret_file": "x", "allow": []}}}"#, "manager"),
            (r#"{"ruthless": 1}"#, "ruthless"),
            (r#"{"token_keys": {"ops": "AAAA"}}"#, "token_keys"),
            (r#"{"token_keys": {"ops": {"key": "AAAA"}}}"#, "\"ops\": invalid Ed25519 public key"),
            (
                r#"{"token_keys": {"ops": {"key": "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=", "groups": ["fly"]}}}"#,
                "\"ops\": \"fly\" is neither a group",
            ),
            (
                r#"{"token_keys": {"a": {"key": "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="},
                    "b": {"key": "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="}}}"#,
                "the same key",
            ),
            (r#"{"admin_secret": 515151}"#, "must be a string or a list of strings"),
            (r#"{"admin_secret": ["SECRET", 515151]}"#, "must be a string or a list of strings"),
        ] {
            let error = Keys::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
            assert!(!error.contains("SECRET") && !error.contains("515151"), "{text}: {error}");
        }
        assert!(Keys::parse(&format!(r#"{{"container_name": "{}"}}"#, "x".repeat(5000))).is_err());
    }

    #[test]
    fn the_nearest_is_named_only_where_it_is_near() {
        let near = |name: &str| nearest(name, KEYS.iter().copied());
        assert_eq!(near("listen_prot"), Some("listen_port"));
        assert_eq!(near("pyhton"), Some("python"));
        assert_eq!(near("skew"), Some("clock_skew_s"));
        for odd in ["zzz", "", "x", "qq", "zz", "colour_of_the_sky"] {
            assert_eq!(near(odd), None, "{odd}");
        }
        let error = Keys::parse(r#"{"zzz": 1}"#).unwrap_err();
        assert!(error.contains("README.md") && !error.contains("nearest"), "{error}");
    }

    #[test]
    fn a_python_or_prompt_that_is_not_there_keeps_the_node_from_starting() {
        let secret = || Some(Secret::new("a secret").unwrap());
        let python = Keys { python: Some("/nowhere/python3".into()), ..Keys::default() };
        let why = Config::new(python, secret()).unwrap_err();
        assert!(why.contains("\"python\"") && why.contains("/nowhere/python3"), "{why}");
        let prompt = Keys { prompt_file: Some("/nowhere/prompt".into()), ..Keys::default() };
        let why = Config::new(prompt, secret()).unwrap_err();
        assert!(why.contains("\"prompt_file\"") && why.contains("/nowhere/prompt"), "{why}");
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
