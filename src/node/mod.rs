//! The container: who lives here, how they come, go and are spoken to. It implements nothing of an
//! agent's inside.
//!
//! The registry is a map behind one mutex, held for map operations only: never across a file, a
//! socket, a process or a hook.

pub mod arrive;
pub mod config;
mod declared;
pub mod describe;
pub mod federation;
mod grants;
mod harness;
pub mod identities;
mod inbox;
mod known;
mod ledger;
mod manager;
pub mod messages;
mod meters;
mod notes;
mod outbox;
pub mod package;
pub mod readers;
pub mod record;
mod replay_log;
mod restore;
mod roster;
mod schedules;
pub mod senders;
mod state_files;
mod stopped;
mod tokens;
pub mod travel;

pub use config::{Config, Keys};
pub use notes::Heard;
pub use record::{Origin, Record};

use crate::agent::host::Host;
use crate::agent::{Done, Fate, HookError, Life, NoTurn, Pool, Settings, Turn};
use crate::crash;
use crate::journal::{Event, Journal};
use crate::log::{Level, Log};
use crate::roster::grants::Grants;
use crate::roster::identities::Identities;
use crate::roster::quotas::Quota;
use crate::roster::revoked_tokens::RevokedTokens;
use crate::roster::schedules::Schedules;
use crate::roster::snapshot::Held;
use crate::state::{self, Syncer};
use crate::sync::{lock, Crew};
use crate::throttle::{LeftOut, Throttle};
use crate::wire::Address;
use crate::wire::{Code, Failure, Room, Secret};
use federation::{Pinned, TreeNode};
use known::Known;
use ledger::Ledger;
use outbox::Outbox;
use record::Registry;
use replay_log::ReplayLog;
use restore::{Interrupted, Left};
use serde_json::value::RawValue;
use serde_json::{json, Value};
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// How many `ctx` calls and background jobs run at once on the whole node.
const CREW: usize = 256;
/// How often idle processes and open transfers are looked at.
const TICK: Duration = Duration::from_millis(200);
/// How often what is due for an fsync gets it.
const FLUSH: Duration = Duration::from_secs(1);

/// Makes what answers an agent's `ctx` calls; the primitives give it to the node.
pub type MakeHost = Box<dyn Fn(&Arc<Node>, &Arc<Record>) -> Arc<dyn Host> + Send + Sync>;

/// Who may arrive here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admits {
    /// Whoever the trust level lets in.
    Anyone,
    /// One agent: a stage waits for its own.
    Only(String),
}

/// What the node is made from.
pub struct Parts {
    /// The configuration.
    pub config: Config,
    /// Where it keeps its state; exists, mode 0700.
    pub state_dir: PathBuf,
    /// Where events go.
    pub log: Log,
    /// How agents' processes are made.
    pub settings: Settings,
    /// What answers `ctx` calls.
    pub make_host: MakeHost,
    /// Who may arrive.
    pub admits: Admits,
    /// The state directory is a backup: its agents may have moved on, and wait for the operator.
    pub restored: bool,
}

/// Counts since the start.
#[derive(Default)]
pub struct Counters {
    /// Lines answered.
    pub requests: AtomicU64,
    /// Of these, with an error.
    pub errors: AtomicU64,
    /// Hooks run.
    pub hooks: AtomicU64,
    /// Agents registered: deployed or arrived.
    pub arrivals: AtomicU64,
    /// Agents and copies sent on.
    pub departures: AtomicU64,
    /// Processes of agents that ended without being asked to.
    pub crashes: AtomicU64,
}

/// A node.
pub struct Node {
    /// Where events go.
    pub log: Arc<Log>,
    /// Where they are kept for whoever audits.
    pub journal: Arc<Journal>,
    /// Counts since the start.
    pub counters: Counters,
    /// Who it is: its name and address as others know them.
    pub pool: Arc<Pool>,
    /// What lines on their way hold.
    pub in_flight: Room,
    name: String,
    config: RwLock<Arc<Config>>,
    state_dir: PathBuf,
    places: Arc<state_files::Places>,
    /// Processes that are being started: they have room already and are not seen yet.
    starting: Mutex<usize>,
    crew: Crew,
    registry: Mutex<Registry>,
    ledger: Ledger,
    outbox: Outbox,
    replay: Mutex<ReplayLog>,
    known: Known,
    grants: Grants,
    revoked_tokens: RevokedTokens,
    meters: meters::Meters,
    /// The manager's id; `None`: the node has none.
    manager: Option<String>,
    schedules: Schedules,
    inboxes: inbox::Inboxes,
    identities: Identities,
    snapshot: Held,
    handing: Mutex<HashMap<String, identities::Handing>>,
    roster: roster::Roster,
    stopped: stopped::Stopped,
    /// The declarations that were started, or failed, as they are.
    autostarted: Mutex<HashMap<String, [u8; 32]>>,
    registering: Mutex<HashSet<String>>,
    syncer: Arc<Syncer>,
    flushed: Mutex<Instant>,
    interrupted: Mutex<Vec<Interrupted>>,
    make_host: MakeHost,
    admits: Admits,
    started: Instant,
    listening: OnceLock<SocketAddr>,
    stopping: AtomicBool,
}

/// Room for a process that is being started.
pub(crate) struct Starting<'a>(&'a Node);

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        *lock(&self.0.starting) -= 1;
    }
}

/// A hook's end, for whoever asked for it.
pub struct Outcome {
    /// What it returned.
    pub result: Box<RawValue>,
}

impl Node {
    /// A node that does not listen yet, with all that earlier runs left in its state directory. Starts
    /// its background threads.
    ///
    /// # Errors
    /// No thread can be started, or the state directory can't be read or written. A file in it that
    /// makes no sense is set aside and named in the log.
    pub fn new(parts: Parts) -> Result<Arc<Node>, String> {
        let Parts { config, state_dir, log, settings, make_host, admits, restored } = parts;
        let log = Arc::new(log);
        let zygote_log = Arc::clone(&log);
        let notice = move |fate| match fate {
            Fate::Ended(why) => zygote_log.event(Level::Warn, "python_ended", &[("why", &why)]),
            Fate::Replaced(why) => zygote_log.event(Level::Warn, "python_replaced", &[("why", &why)]),
        };
        let pool =
            Pool::new(settings, Arc::new(notice)).map_err(|error| format!("starting a thread: {error}"))?;
        if config.keys.prewarm {
            pool.prewarm();
        }
        let journal = Journal::open(&state_dir, config.journal())?;
        let syncer = Arc::new(Syncer::new(config.keys.memory_fsync));
        let doing = |what: &str, error: std::io::Error| {
            format!("opening {} in {}: {error}", what, state_dir.display())
        };
        let meta = state_dir.join("meta");
        state::make_durable_dir(&meta).map_err(|error| doing("meta", error))?;
        let (ledger, arrivals, damaged_entries) =
            Ledger::open_dir(&state_dir.join("ledger")).map_err(|error| doing("ledger", error))?;
        let (outbox, transfers, damaged_transfers) =
            Outbox::open_dir(&state_dir.join("outbox")).map_err(|error| doing("outbox", error))?;
        let (known, facts, damaged_facts) = Known::open(&meta.join("known.jsonl"), &syncer)
            .map_err(|error| doing("meta/known.jsonl", error))?;
        let skew = config.keys.clock_skew_s;
        let (replay, damaged_memory) =
            ReplayLog::open(&meta.join("replay.log"), skew, &syncer, crate::wire::unix_now())
                .map_err(|error| doing("meta/replay.log", error))?;
        let manager = config.manager().filter(|_| admits == Admits::Anyone).map(str::to_owned);
        let (grants, damaged_grants) = Grants::open(&meta.join("capabilities.json"), manager.as_deref())
            .map_err(|error| doing("meta/capabilities.json", error))?;
        let (schedules, damaged_schedules) =
            Schedules::open(&meta, crate::sys::utc_offset, schedules::now(), Arc::clone(&syncer))
                .map_err(|error| doing("meta/schedules.json", error))?;
        let (revoked_tokens, damaged_tokens) = RevokedTokens::open(&meta.join("revoked_tokens.json"))
            .map_err(|error| doing("meta/revoked_tokens.json", error))?;
        let grants_known = damaged_grants.is_none();
        let (identities, damaged_identities) = Identities::open(&meta.join("identities.json"))
            .map_err(|error| doing("meta/identities.json", error))?;
        let root_key = identities::root_key(&config, &state_dir)?;
        let (snapshot, damaged_snapshot) = Held::open(&meta.join("snapshot.json"), root_key.as_ref())
            .map_err(|error| doing("meta/snapshot.json", error))?;
        let (stopped, damaged_stopped) = stopped::Stopped::open(&meta.join("stopped.json"))
            .map_err(|error| doing("meta/stopped.json", error))?;
        let suspend = restored || damaged_stopped.is_some();
        let node = Arc::new(Node {
            journal,
            replay: Mutex::new(replay),
            known,
            grants,
            revoked_tokens,
            meters: meters::Meters::default(),
            manager,
            schedules,
            inboxes: inbox::Inboxes::default(),
            identities,
            snapshot,
            handing: Mutex::default(),
            roster: roster::Roster::new(&meta),
            stopped,
            autostarted: Mutex::default(),
            registering: Mutex::default(),
            syncer,
            flushed: Mutex::new(Instant::now()),
            interrupted: Mutex::default(),
            name: config.keys.container_name.clone(),
            config: RwLock::new(Arc::new(config)),
            log,
            counters: Counters::default(),
            pool,
            in_flight: Room::default(),
            state_dir,
            places: Arc::default(),
            starting: Mutex::new(0),
            crew: Crew::new("work", CREW),
            registry: Mutex::default(),
            ledger,
            outbox,
            make_host,
            admits,
            started: Instant::now(),
            listening: OnceLock::new(),
            stopping: AtomicBool::new(false),
        });
        let damaged = damaged_entries.into_iter().chain(damaged_transfers).chain(damaged_facts);
        let damaged = damaged.chain(damaged_memory).chain(damaged_grants).chain(damaged_schedules);
        for what in damaged
            .chain(damaged_identities)
            .chain(damaged_snapshot)
            .chain(damaged_stopped)
            .chain(damaged_tokens)
        {
            node.damaged(&what);
        }
        node.restore(Left { known: facts, arrivals, transfers })?;
        node.register_manager(grants_known);
        if suspend {
            node.suspend_all().map_err(|error| format!("writing meta/stopped.json: {error}"))?;
        }
        node.reconcile();
        let weak = Arc::downgrade(&node);
        let timers = std::thread::Builder::new().name("timers".into()).spawn(move || loop {
            std::thread::sleep(TICK);
            match weak.upgrade() {
                Some(node) if !node.is_stopping() => {
                    // Reported by the panic hook; the next tick may fare better, and without any ticks
                    // no transfer would go on.
                    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| node.tick()));
                }
                _ => return,
            }
        });
        timers.map_err(|error| format!("starting a thread: {error}"))?;
        Ok(node)
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The configuration as it is now; a reload puts another in its place.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts another configuration in the place of the present one. What runs already, a hook or a
    /// connection, goes on with the limits that it began with.
    ///
    /// # Errors
    /// A new operator has the name of an agent that lives here; then nothing has changed.
    pub fn reload(&self, config: Config) -> Result<(), String> {
        let old = self.config();
        let mut new = config.operators.keys().filter(|name| !old.operators.contains_key(*name));
        if let Some(name) = new.find(|name| self.agent(name).is_some()) {
            return Err(format!("key \"operators\": {name:?} is the id of an agent that lives here"));
        }
        self.pool.set_inbox_length(config.keys.inbox_length);
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
        Ok(())
    }

    /// Tells the node where it listens. Agents whose activation an earlier run did not finish go on.
    pub fn set_listening(self: &Arc<Self>, address: SocketAddr) {
        let _ = self.listening.set(address); // the first one stays
        self.resume_interrupted();
        self.autostart();
    }

    /// The port it listens on; 0 before it does.
    pub fn port(&self) -> u16 {
        self.listening.get().map_or(0, SocketAddr::port)
    }

    /// This node's tree: as configured, or itself alone. Its own certificate is the one that it shows.
    pub fn tree(&self) -> TreeNode {
        let config = self.config();
        let mut tree = match &config.keys.federation {
            Some(tree) => tree.clone(),
            None => TreeNode::leaf(self.name(), &config.keys.listen_host, self.port()),
        };
        if let (Some(pinned), Some(own)) = (self.pinned(), tree.find_mut(self.name())) {
            own.tls.get_or_insert(pinned);
        }
        tree
    }

    /// How others know this node, if it speaks TLS.
    fn pinned(&self) -> Option<Pinned> {
        self.config().tls.as_ref().map(|acceptor| Pinned(vec![acceptor.fingerprint()]))
    }

    /// This node, as whoever is at `address` is told of it: `{"NAME": name, "host", "port", "tls"?}`.
    pub fn told_to(&self, address: &Address, name: &str) -> Value {
        let mut told = json!({name: self.name(), "host": self.advertised_to(address), "port": self.port()});
        if let Some(pinned) = self.pinned() {
            told["tls"] = pinned.to_json();
        }
        told
    }

    /// How the node at `address` is spoken to: what this node's own tree pins there counts before what
    /// anybody else says. The node shows its own certificate, where it has one.
    pub fn secured(&self, address: &Address) -> Address {
        let pinned = self.tree().pinned_at(address).map(Pinned::tls);
        let mut tls = pinned.or_else(|| address.tls.as_deref().cloned());
        if let (Some(tls), Some(own)) = (&mut tls, &self.config().keys.tls) {
            tls.authorities.clone_from(&own.peer_ca);
            tls.identity = Some((own.certificate.clone(), own.key.clone()));
        }
        address.clone().with_tls(tls)
    }

    /// What is told of this node's address to a peer at `address`: as configured, else the address
    /// listened on, else, where that is every address, the local one of a connection to that peer.
    pub fn advertised_to(&self, address: &crate::wire::Address) -> String {
        if let Some(host) = &self.config().keys.advertise_host {
            return host.clone();
        }
        match self.listening.get() {
            Some(listening) if listening.ip().is_unspecified() => {
                local_address_towards(address).unwrap_or_else(|| "127.0.0.1".into())
            }
            Some(listening) => listening.ip().to_string(),
            None => self.config().keys.listen_host.clone(),
        }
    }

    /// Runs `job` in the background.
    pub fn in_background(&self, job: impl FnOnce() + Send + 'static) -> bool {
        self.crew.run(job)
    }

    /// The current generation of an agent.
    pub fn agent(&self, id: &str) -> Option<Arc<Record>> {
        lock(&self.registry).agent(id)
    }

    /// Everyone who lives here, by id.
    pub fn agents(&self) -> Vec<Arc<Record>> {
        lock(&self.registry).all()
    }

    /// Pins an agent's secret before it comes: a stage knows who it waits for.
    pub fn expect(&self, id: &str, secret: Secret) {
        lock(&self.registry).pin(id, secret);
    }

    /// Pins the secret of an agent that will come, for later runs too.
    ///
    /// # Errors
    /// `bad_payload`: another secret is pinned; `busy`, `internal`: it can't be written down.
    pub(crate) fn pin(&self, manifest: &crate::agent::Manifest) -> Result<(), Failure> {
        let fact = {
            let mut registry = lock(&self.registry);
            match registry.pinned(&manifest.id) {
                Some(secret) if secret != manifest.secret => {
                    let text = format!("{:?} is known here with another secret", manifest.id);
                    return Err(Failure::new(Code::BadPayload, text));
                }
                Some(_) => return Ok(()),
                None => registry.pin(&manifest.id, manifest.secret.clone()),
            }
            registry.fact(&manifest.id)
        };
        let noted = fact.map_or(Ok(()), |fact| self.known.note(&manifest.id, &fact));
        noted.map_err(|error| arrive::disk_failure("the agent's secret", &error))
    }

    /// An agent's own room in the state directory.
    pub(crate) fn home(&self, id: &str) -> PathBuf {
        self.state_dir.join("agents").join(id)
    }

    /// Where the node keeps its state.
    pub fn state_dir(&self) -> &std::path::Path {
        &self.state_dir
    }

    /// Where the operator puts the source of an agent.
    pub fn config_source(&self, id: &str) -> PathBuf {
        self.home(id).join("config").join("agent.py")
    }

    /// Something could not be written that nobody waits for.
    pub(crate) fn not_written(&self, what: &str, error: &std::io::Error) {
        let error = error.to_string();
        self.log.event(Level::Error, "not_written", &[("what", what), ("error", &error)]);
    }

    /// Syncs what is due.
    pub fn flush(&self) {
        if let Err(error) = self.schedules.keep() {
            self.not_written("which schedules have fired", &error);
        }
        if let Some((file, error)) = self.syncer.flush() {
            self.not_written(&file.to_string_lossy(), &error);
        }
    }

    /// The longest that a hook may run.
    pub fn hook_limit(&self) -> Duration {
        Duration::try_from_secs_f64(self.config().keys.hook_timeout_s).unwrap_or(Duration::from_secs(300))
    }

    /// What running hooks get when the node is to end.
    pub fn shutdown_grace(&self) -> Duration {
        Duration::try_from_secs_f64(self.config().keys.shutdown_grace_s).unwrap_or(Duration::from_secs(10))
    }

    /// Whether the node is shutting down.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Takes nothing more in, waits at most `grace` for running hooks, ends all processes.
    pub fn stop(&self, grace: Duration) {
        self.stopping.store(true, Ordering::Release);
        self.pool.close();
        let deadline = Instant::now() + grace;
        let agents = self.agents();
        while agents.iter().any(|record| record.life.is_running()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        for record in agents {
            record.life.retire();
            record.life.end_process("the node is shutting down");
        }
        self.pool.end();
        self.flush();
    }

    /// Sends a message to an agent and waits for what its `on_message` returns.
    ///
    /// # Errors
    /// `unknown_agent`, `busy` (too many wait, no process is free), `timeout`, `agent_error`.
    pub fn invoke(self: &Arc<Self>, id: &str, message: &str, deadline: Instant) -> Result<Outcome, Failure> {
        loop {
            self.may_run(id)?;
            let record = self.agent(id).ok_or_else(|| self.unknown_agent(id))?;
            let turn = match record.life.enter(deadline) {
                Ok(turn) => turn,
                Err(NoTurn::Over) if self.is_stopping() => {
                    return Err(Failure::new(Code::ShuttingDown, "the node is shutting down"));
                }
                // Moved, replaced or removed while the message waited: look again.
                Err(NoTurn::Over) => continue,
                Err(NoTurn::Full) => {
                    let text = format!(
                        "{id} has as many messages waiting as it may ({})",
                        self.config().keys.inbox_length
                    );
                    return Err(Failure::new(Code::Busy, text));
                }
                Err(NoTurn::Late) => {
                    let text = format!("{id} was busy with other messages until this one's time was over");
                    return Err(Failure::new(Code::Timeout, text));
                }
            };
            return self.run_hook(&record, &turn, "on_message", message, deadline);
        }
    }

    /// Runs a hook of an agent whose turn the caller holds.
    pub(crate) fn run_hook(
        self: &Arc<Self>,
        record: &Arc<Record>,
        turn: &Turn,
        hook: &str,
        payload: &str,
        deadline: Instant,
    ) -> Result<Outcome, Failure> {
        self.may_run(&record.id)?;
        let starts = record.life.pid().is_none();
        self.load(record, turn, deadline)?;
        if let Err(why) = self.may_run(&record.id).map_err(|why| (why, starts)) {
            if why.1 {
                // Meanwhile: the process that was to end was not there yet.
                record.life.end_process("the operator stopped it");
            }
            return Err(why.0);
        }
        crash::point("hook-begins");
        record.activations.fetch_add(1, Ordering::Relaxed);
        self.counters.hooks.fetch_add(1, Ordering::Relaxed);
        let ended = self.hook_outcome(record, turn, hook, payload, deadline);
        if matches!(self.admits, Admits::Only(_)) {
            record.keep_outcome(ended.as_ref().map(|ended| ended.result.clone()).map_err(Clone::clone));
        }
        ended
    }

    /// Makes sure that an agent whose turn the caller holds has a process.
    fn load(self: &Arc<Self>, record: &Arc<Record>, turn: &Turn, deadline: Instant) -> Result<(), Failure> {
        if record.life.pid().is_none() {
            let _starting = self.make_room()?;
            let host = || (self.make_host)(self, record);
            turn.load(deadline, &host).map_err(|error| self.hook_failure(&record.id, error))?;
        }
        Ok(())
    }

    fn hook_outcome(
        self: &Arc<Self>,
        record: &Arc<Record>,
        turn: &Turn,
        hook: &str,
        payload: &str,
        deadline: Instant,
    ) -> Result<Outcome, Failure> {
        let host = || (self.make_host)(self, record);
        let done =
            turn.run(hook, payload, deadline, &host).map_err(|error| self.hook_failure(&record.id, error))?;
        crash::point("hook-ended");
        self.after_hook(record, &done);
        // It has moved, perhaps, and its files with it.
        if !record.life.is_over() {
            self.check_state(record, 0)?;
        }
        match done.outcome {
            Ok(result) => {
                record.keep_result(&result);
                Ok(Outcome { result })
            }
            Err(error) => {
                let failure = Failure::new(Code::AgentError, format!("{} raised {error}", record.id));
                Err(match serde_json::value::to_raw_value(&error) {
                    Ok(raw) => failure.with("agent_error", raw),
                    Err(_) => failure,
                })
            }
        }
    }

    fn after_hook(&self, record: &Record, done: &Done) {
        if record.life.is_over() && done.memory.is_some() {
            self.log.event(
                Level::Info,
                "memory_discarded",
                &[("agent", &record.id), ("why", "a move was accepted, or a newer generation came")],
            );
        }
    }

    fn hook_failure(&self, id: &str, error: HookError) -> Failure {
        self.log.event(Level::Warn, "hook_failed", &[("agent", id), ("error", &error.to_string())]);
        let text = format!("{id}: {error}");
        match error {
            HookError::Timeout(_) => Failure::new(Code::Timeout, text),
            HookError::Cpu(_) => {
                // One that does not load yet is nobody's record: what bounds everybody.
                let quotas =
                    self.agent(id).map_or_else(|| self.config().quotas(), |here| self.quotas_of(&here));
                self.tell_quota(id, Quota::Cpu, quotas.get(Quota::Cpu).unwrap_or(0));
                Failure::new(Code::Quota, text)
            }
            HookError::NoProcess(_) => Failure::new(Code::Internal, text),
            HookError::Starved(_) => Failure::new(Code::Busy, text),
            HookError::NotKept(error) => arrive::disk_failure(&format!("the memory of {id}"), &error),
            HookError::Ended(_) | HookError::Lost(_) => Failure::new(Code::AgentError, text),
            HookError::Refused(error) => {
                let failure = Failure::new(Code::AgentError, text);
                match serde_json::value::to_raw_value(&error) {
                    Ok(raw) => failure.with("agent_error", raw),
                    Err(_) => failure,
                }
            }
        }
    }

    /// Makes room for one more process: the agent that was idle longest gives its own back. The room is
    /// kept until what is returned is dropped, when the process counts by itself.
    pub(crate) fn make_room(&self) -> Result<Starting<'_>, Failure> {
        let mut starting = lock(&self.starting);
        let most = self.config().keys.max_live_agents;
        let mut live: Vec<_> =
            self.agents().into_iter().filter(|record| record.life.pid().is_some()).collect();
        live.sort_by_key(|record| record.life.last_used());
        let surplus = (live.len() + *starting + 1).saturating_sub(most);
        let mut ended = 0;
        for record in &live {
            if ended < surplus && record.life.hibernate(Duration::ZERO) {
                self.sync_memory(record);
                self.log.event(
                    Level::Info,
                    "agent_hibernated",
                    &[("agent", &record.id), ("why", "max_live_agents")],
                );
                ended += 1;
            }
        }
        if ended < surplus {
            let text =
                format!("all {most} processes that agents may have here are running hooks (max_live_agents)");
            return Err(Failure::new(Code::Busy, text));
        }
        *starting += 1;
        drop(starting);
        Ok(Starting(self))
    }

    fn sync_memory(&self, record: &Record) {
        if let Err(error) = record.harness().sync_memory() {
            self.not_written(&format!("the memory of {}", record.id), &error);
        }
    }

    /// Removes an agent and its files.
    ///
    /// # Errors
    /// `rejected` for the manager; `unknown_agent`; `internal` if its record can't be removed from the disk.
    pub fn remove(&self, id: &str) -> Result<(), Failure> {
        if self.manager.as_deref() == Some(id) {
            return Err(Failure::new(Code::Rejected, manager::STAYS));
        }
        let removed = {
            let mut registry = lock(&self.registry);
            let record = registry.agent(id);
            record.filter(|record| registry.remove(record))
        };
        let record = removed.ok_or_else(|| self.unknown_agent(id))?;
        let discarded = record.discard();
        record.life.retire();
        record.life.end_process("the agent was removed");
        self.log.event(Level::Info, "agent_removed", &[("agent", id)]);
        self.journal.note(&Event::new("remove").agent(id));
        self.was_removed(id);
        self.roster_changed();
        discarded.map_err(|error| arrive::disk_failure(&format!("that {id} is gone"), &error))
    }

    pub(crate) fn unknown_agent(&self, id: &str) -> Failure {
        let hint = match lock(&self.registry).departed_to(id) {
            Some(destination) => format!("; it moved to {destination}"),
            None => String::new(),
        };
        Failure::new(Code::UnknownAgent, format!("there is no agent {id:?} on this node{hint}"))
    }

    /// Writes something of `bytes` that an agent brought about to the log, unless it said too much lately.
    pub fn let_say(&self, id: &str, talk: &Throttle, bytes: usize, write: impl FnOnce()) {
        if let Some(left_out) = talk.admit(bytes) {
            self.tell_left_out(id, left_out);
            write();
        }
    }

    /// Says in the log how much of what an agent said is not in it.
    pub fn tell_left_out(&self, id: &str, LeftOut { lines, bytes }: LeftOut) {
        if lines > 0 {
            let text = format!("… {lines} lines, {bytes} bytes, left out: more than an agent may say");
            self.log.agent(id, "agent_left_out", &text);
        }
    }

    fn tick(self: &Arc<Self>) {
        let idle = Duration::try_from_secs_f64(self.config().keys.idle_timeout_s).unwrap_or(Duration::MAX);
        if !idle.is_zero() {
            for record in self.agents() {
                if record.life.hibernate(idle) {
                    self.sync_memory(&record);
                    self.log.event(
                        Level::Info,
                        "agent_hibernated",
                        &[("agent", &record.id), ("why", "idle")],
                    );
                }
            }
        }
        self.pursue_transfers();
        self.pursue_schedules();
        self.judge_tokens();
        self.reconcile_if_due();
        self.hand_down();
        let due = {
            let mut flushed = lock(&self.flushed);
            let due = flushed.elapsed() >= FLUSH;
            if due {
                *flushed = Instant::now();
            }
            due
        };
        if due {
            self.flush();
            self.end_what_burns();
        }
        self.tell_of_the_journal();
    }

    pub(crate) fn new_life(&self, spec: crate::agent::Spec, memory: Option<Arc<str>>) -> Arc<Life> {
        Life::new(spec, memory, Arc::clone(&self.pool), self.crew.clone())
    }
}

/// The local address that a connection to `address` would have. Sends nothing.
fn local_address_towards(address: &crate::wire::Address) -> Option<String> {
    use std::net::{ToSocketAddrs, UdpSocket};
    let target = (address.host.as_str(), address.port).to_socket_addrs().ok()?.next()?;
    let any: &str = if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(target).ok()?;
    Some(socket.local_addr().ok()?.ip().to_string())
}
