//! The desk at which one agent's calls are taken: checks the grant, reads the arguments, calls the
//! primitive.

use super::capabilities::{self, Allowed, Asked};
use super::{agent_files, attenuate, audit, files, http, manage, run, search, DataRoot};
use crate::agent::host::{CallError, Host, HostCall};
use crate::agent::output::without_secret;
use crate::base64;
use crate::input;
use crate::log::{clipped, escape, Level};
use crate::node::messages::Mode;
use crate::node::travel::Journey;
use crate::node::{federation, MakeHost, Node, Record};
use crate::roster::grants::Grant;
use crate::roster::groups::MANAGE_ROOT_AGENT;
use crate::roster::quotas::Quota;
use crate::roster::schedules::{Edit, New};
use crate::roster::scope::Scope;
use crate::roster::token::Token;
use crate::sandbox::Rights;
use crate::sync::lock;
use crate::throttle::Throttle;
use crate::wire::{Failure, Secret};
use rustix::process::Resource;
use serde::{Deserialize, Serialize};
use serde_json::value::{to_raw_value, RawValue};
use serde_json::{json, Map, Value};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The longest text of one `ctx.log` call, and of all its fields together, bytes.
const LOG_BYTES: usize = 4096;
/// Notes of one hop, and the longest, bytes.
const MOST_NOTES: usize = 16;
const NOTE_BYTES: usize = 1024;
/// How much of a name an error repeats, bytes.
const SHOWN: usize = 200;
/// How many capabilities that nobody knows are told of an agent, and the longest name, bytes.
const MOST_UNKNOWN: usize = 10;
const NAME_BYTES: usize = 64;
/// How many files `resources()` lists.
const LISTED: usize = 50;

/// Answers the `ctx` calls of one generation of one agent.
pub struct Desk {
    node: Arc<Node>,
    data_root: Arc<DataRoot>,
    /// Weak: the process that holds this desk must not keep its own record.
    record: Weak<Record>,
    id: String,
    secret: Secret,
    talk: Arc<Throttle>,
}

/// What makes each agent's desk, for the node; `data_root` is what agents may read.
pub fn maker(data_root: DataRoot) -> MakeHost {
    let data_root = Arc::new(data_root);
    Box::new(move |node, record| {
        tell_unknown(node, record);
        Arc::new(Desk {
            node: Arc::clone(node),
            data_root: Arc::clone(&data_root),
            record: Arc::downgrade(record),
            id: record.id.clone(),
            secret: record.manifest().secret.clone(),
            talk: Arc::clone(&record.talk),
        })
    })
}

type Answer = Result<Box<RawValue>, CallError>;

impl Host for Desk {
    fn is_quick(&self, name: &str) -> bool {
        #[cfg(debug_assertions)]
        if name == "panic_at_once_for_tests" {
            return true;
        }
        matches!(name, "log" | "mark" | "capabilities" | "networks" | "stage" | "state_dir")
    }

    fn may(&self, name: &str) -> Result<(), CallError> {
        let record = self.record()?;
        let grant = self.node.grant_of(&record);
        self.allowed(&record, &grant).check(name).map_err(|error| self.with_token(&record, error))
    }

    fn call(&self, call: HostCall) -> Answer {
        #[cfg(debug_assertions)]
        if matches!(&*call.name, "panic_for_tests" | "panic_at_once_for_tests") {
            panic!("asked for by a test");
        }
        // A line for the log is told with the log's own measure, or a loop of them would fill the journal.
        let told = (call.name != "log").then(|| self.told(&call));
        let answered = self.carry_out(call);
        if let Some(told) = told {
            told.ended(answered.as_ref().err().map_or("ok", |error| error.code));
        }
        answered
    }

    fn rights(&self) -> Rights {
        let Some(record) = self.record.upgrade() else { return Rights::default() };
        let grant = self.node.grant_of(&record);
        let allowed = self.allowed(&record, &grant);
        let (managed, managed_config) = match allowed.has(MANAGE_ROOT_AGENT) {
            true => self.node.directories_but_of(&self.id),
            false => Default::default(),
        };
        Rights { exec: allowed.has("run"), sockets: allowed.has("sockets"), managed, managed_config }
    }

    fn cpu_limit(&self) -> Option<Duration> {
        let record = self.record.upgrade()?;
        self.node.quotas_of(&record).get(Quota::Cpu).map(Duration::from_secs)
    }

    fn process_limits(&self) -> Vec<(Resource, u64)> {
        let Some(record) = self.record.upgrade() else { return Vec::new() };
        let (ours, usual) = (self.node.quotas_of(&record), self.node.config().quotas());
        let resources = [
            (Quota::Memory, Resource::As),
            (Quota::OpenFiles, Resource::Nofile),
            (Quota::FileBytes, Resource::Fsize),
        ];
        // One that was granted when the configuration had more is what it has now.
        let below = |quota| ours.get(quota).filter(|most| usual.get(quota).is_none_or(|usual| *most < usual));
        resources.into_iter().filter_map(|(quota, resource)| Some((resource, below(quota)?))).collect()
    }

    fn printed(&self, line: &str) {
        self.say(line.len(), || self.node.log.agent(&self.id, "agent_printed", line));
    }

    fn left_behind(&self, attributes: &[String]) {
        #[cfg(debug_assertions)]
        if attributes.iter().any(|name| name == "panic_for_tests") {
            panic!("asked for by a test");
        }
        let names = attributes.join(", ");
        let fields = [("agent", self.id.as_str()), ("attributes", &names)];
        self.say(names.len(), || self.node.log.event(Level::Info, "attributes_left_behind", &fields));
    }

    fn started(&self, pid: i32) {
        self.node.note_process_start(&self.id, pid);
    }

    fn ended(&self, how: &str) {
        let asked_for = how.starts_with("ended: ");
        if !asked_for {
            self.node.counters.crashes.fetch_add(1, Ordering::Relaxed);
        }
        self.node.tell_left_out(&self.id, self.talk.untold());
        let level = if asked_for { Level::Info } else { Level::Warn };
        self.node.log.event(level, "agent_process_ended", &[("agent", &self.id), ("how", how)]);
        self.node.note_process_end(&self.id, how);
    }
}

impl Desk {
    fn carry_out(&self, call: HostCall) -> Answer {
        let record = self.record()?;
        let grant = self.node.grant_of(&record);
        let allowed = self.allowed(&record, &grant);
        allowed.check(&call.name).map_err(|error| self.with_token(&record, error))?;
        // Log lines have a measure of their own.
        if call.name != "log" {
            self.node.charge(&record, Quota::Calls, 1)?;
        }
        let scope = grant.scope(&call.name);
        match call.name.as_str() {
            "log" => self.log(args(&call)?, &call),
            "mark" => mark(&record, args(&call)?),
            "capabilities" => answer(&allowed.list()),
            "networks" => answer(&self.networks(&record)),
            "stage" => answer(&stage(&record)),
            "state_dir" => answer(&record.state_dir()),
            "prompt" => self.prompt(),
            "resources" => self.resources(scope),
            "read_file" => self.read_file(&record, args(&call)?, scope),
            "search_files" => self.search_files(&record, args(&call)?, scope, call.deadline),
            "run" => self.run(args(&call)?, scope, call.deadline),
            "http_request" => self.http_request(&record, args(&call)?, scope, call.deadline),
            "clone" => self.travel(&record, Mode::Clone, scope, call),
            "move" => self.travel(&record, Mode::Move, scope, call),
            "return_to_stage" => self.return_to_stage(&record, scope, call),
            "attenuate" => {
                let token =
                    self.node.carried_token(&record).map_err(|why| CallError::new("forbidden", why))?;
                answer(&attenuate::attenuate(&token, args(&call)?)?)
            }
            "wake" => self.wake(&record, args(&call)?),
            "send" => self.send(args(&call)?),
            "request_schedule_prompt" => told(self.node.add_schedule(args::<New>(&call)?)),
            "edit_schedule" => told(self.node.edit_schedule(args::<Edit>(&call)?)),
            "cancel_schedule" => told(self.node.cancel_schedule(&args::<ScheduleRef>(&call)?.id)),
            "fire_schedule_now" => told(self.node.fire_schedule(&args::<ScheduleRef>(&call)?.id)),
            "agent_status" => {
                manage::agent_status(&self.node, args::<StatusArgs>(&call)?.agent_id.as_deref())
            }
            "agent_files" | "read_agent_file" | "write_agent_file" => {
                allowed.check_root()?;
                self.agent_file(&record, &call)
            }
            "deploy_log" => manage::deploy_log(&self.node, args::<LogOfArgs>(&call)?.limit, call.deadline),
            other => Err(CallError::new("bad_payload", format!("there is no ctx method {other:?}"))),
        }
    }
}

impl Desk {
    fn allowed<'a>(&'a self, record: &'a Record, grant: &'a Grant) -> Allowed<'a> {
        let subprocess = self.node.config().keys.allow_subprocess;
        let manager = self.node.is_manager(record);
        Allowed { agent: &self.id, asked: asked(record), grant, subprocess, manager }
    }
}

impl Desk {
    /// What is not granted, with what the agent's token has to do with it.
    fn with_token(&self, record: &Record, error: CallError) -> CallError {
        match self.node.token_clause(record) {
            Some(clause) => CallError { message: format!("{}; {clause}", error.message), ..error },
            None => error,
        }
    }
}

/// What an agent asks for.
fn asked(record: &Record) -> Asked<'_> {
    Asked {
        source: record.manifest().capabilities.as_deref(),
        capsule: record.sealed.as_ref().and_then(|sealed| sealed.requested.as_deref()),
    }
}

/// Names that an agent asks for and this node does not have, before its first hook: it may have meant
/// others.
fn tell_unknown(node: &Node, record: &Record) {
    if record.activations.load(Ordering::Relaxed) > 0 {
        return;
    }
    for (of, name) in asked(record).unknown().take(MOST_UNKNOWN) {
        let name = cut(name, NAME_BYTES);
        let near = capabilities::near(&name);
        let mut fields = vec![("agent", record.id.as_str()), ("name", &name), ("in", of)];
        fields.extend(near.map(|near| ("nearest", near)));
        node.log.event(Level::Warn, "unknown_capability", &fields);
    }
}

#[derive(Deserialize)]
struct LogArgs {
    message: String,
    #[serde(default)]
    fields: Map<String, Value>,
}

#[derive(Deserialize)]
struct NoteArgs {
    note: String,
}

#[derive(Deserialize)]
struct ReadArgs {
    path: String,
    #[serde(default)]
    binary: bool,
}

#[derive(Deserialize)]
struct AgentArgs {
    agent_id: String,
}

#[derive(Deserialize)]
struct AgentReadArgs {
    agent_id: String,
    path: String,
    #[serde(default)]
    binary: bool,
}

#[derive(Deserialize)]
struct AgentWriteArgs {
    agent_id: String,
    path: String,
    body: Option<String>,
    body_base64: Option<String>,
}

#[derive(Deserialize)]
struct SearchArgs {
    query: String,
    path: String,
    limit: usize,
}

#[derive(Deserialize)]
struct RunArgs {
    command: Vec<String>,
    timeout: f64,
}

#[derive(Deserialize)]
struct HttpArgs {
    method: String,
    url: String,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    body_base64: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    timeout: f64,
}

#[derive(Deserialize)]
struct TravelArgs {
    #[serde(default)]
    destination: Option<Value>,
    payload: Box<RawValue>,
    #[serde(default)]
    timeout: Option<f64>,
    #[serde(default)]
    queue: bool,
    #[serde(default)]
    token: Option<Value>,
}

#[derive(Deserialize)]
struct WakeArgs {
    from: Value,
    message: Box<RawValue>,
}

#[derive(Deserialize)]
struct SendArgs {
    agent_id: String,
    message: Box<RawValue>,
}

#[derive(Deserialize)]
struct ScheduleRef {
    id: String,
}

#[derive(Deserialize)]
struct StatusArgs {
    #[serde(default)]
    agent_id: Option<String>,
}

#[derive(Deserialize)]
struct LogOfArgs {
    limit: usize,
}

impl Desk {
    fn record(&self) -> Result<Arc<Record>, CallError> {
        let gone = || CallError::new("departing", "this generation of the agent is over");
        self.record.upgrade().ok_or_else(gone)
    }

    fn say(&self, bytes: usize, write: impl FnOnce()) {
        self.node.let_say(&self.id, &self.talk, bytes, write);
    }

    fn told(&self, call: &HostCall) -> audit::Told<'_> {
        audit::Told::new(&self.node, &self.id, &self.secret, call, !self.is_quick(&call.name))
    }

    fn log(&self, args: LogArgs, call: &HostCall) -> Answer {
        let mut text = cut(&args.message, LOG_BYTES);
        let mut fields = String::new();
        for (name, value) in &args.fields {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            fields.push_str(&format!(" {}={}", escape(name), escape(&value)));
        }
        text.push_str(&cut(&fields, LOG_BYTES));
        let text = without_secret(&text, self.secret.expose());
        self.say(text.len(), || {
            self.node.log.agent(&self.id, "agent_log", &text);
            self.told(call).ended("ok");
        });
        answer(&())
    }

    /// This node's place in the tree: the configured one, or that of the view which the agent brought.
    fn networks(&self, record: &Record) -> federation::TreeNode {
        let own = self.node.place();
        if self.node.config().keys.federation.is_some() {
            return own;
        }
        let view = federation::carried(lock(&record.metadata).get("network"));
        match view {
            Some(tree) => tree.with_own(&own).find(&own.name).cloned().unwrap_or(own),
            None => own,
        }
    }

    fn prompt(&self) -> Answer {
        let Some(file) = &self.node.config().keys.prompt_file else { return answer(&()) };
        let text = input::read_text(file, input::MOST)
            .map_err(|error| CallError::new("internal", format!("reading the prompt file: {error}")))?;
        answer(&super::prompt::for_agents(&text))
    }

    fn resources(&self, scope: Option<&Scope>) -> Answer {
        let mut files = files::list_first(&self.data_root, LISTED)?;
        files.retain(|path| scope.is_none_or(|scope| scope.has_path(path)));
        let host = &self.node.config().keys.advertise_host;
        let container = self.node.describe(host.as_deref().unwrap_or(&self.node.config().keys.listen_host));
        answer(&json!({
            "container": container,
            "data_root": self.data_root.path().to_string_lossy(),
            "files": files,
            "allow_subprocess": self.node.config().keys.allow_subprocess,
        }))
    }

    /// How many bytes of a file a call gives at most: what goes over the bridge is at most a line, and base64
    /// takes a third more.
    fn most_read(&self) -> u64 {
        (self.node.config().keys.max_message_bytes as u64 / 2).min(files::MAX_FILE_BYTES)
    }

    fn read_file(&self, record: &Record, args: ReadArgs, scope: Option<&Scope>) -> Answer {
        in_paths(scope, "read_file", &args.path)?;
        let read = |most| files::read_file(&self.data_root, &args.path, most, args.binary);
        let content = self.counted(record, read)?;
        self.node.charge(record, Quota::ReadBytes, content.size)?;
        answer(&content.text.or(content.base64))
    }

    /// Reads at most what a call may, and what the agent's quota leaves.
    fn counted<T>(
        &self,
        record: &Record,
        read: impl FnOnce(u64) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let most = self.most_read();
        match self.node.left_of(record, Quota::ReadBytes).filter(|left| *left < most) {
            None => read(most),
            Some(left) => read(left).map_err(|error| match error.code {
                "too_large" => self.node.over(record, Quota::ReadBytes),
                _ => error,
            }),
        }
    }

    fn agent_file(&self, record: &Record, call: &HostCall) -> Answer {
        match call.name.as_str() {
            "agent_files" => answer(&agent_files::list(&self.node, &args::<AgentArgs>(call)?.agent_id)?),
            "read_agent_file" => {
                let args: AgentReadArgs = args(call)?;
                let read =
                    |most| agent_files::read(&self.node, &args.agent_id, &args.path, most, args.binary);
                let content = self.counted(record, read)?;
                let size = content.as_ref().map_or(0, String::len) as u64;
                self.node.charge(record, Quota::ReadBytes, size)?;
                answer(&content)
            }
            _ => {
                let args: AgentWriteArgs = args(call)?;
                let content = match (args.body, args.body_base64) {
                    (Some(text), None) => text.into_bytes(),
                    (None, Some(text)) => base64::decode(&text)
                        .map_err(|why| CallError::new("bad_payload", format!("the content: {why}")))?,
                    _ => return Err(CallError::new("bad_payload", "the content must be text or bytes")),
                };
                if let Some(whose) = self.node.agent(&args.agent_id) {
                    self.node.check_state(&whose, content.len() as u64).map_err(call_error)?;
                }
                answer(&agent_files::write(&self.node, &args.agent_id, &args.path, &content)?)
            }
        }
    }

    fn search_files(
        &self,
        record: &Record,
        args: SearchArgs,
        scope: Option<&Scope>,
        deadline: Instant,
    ) -> Answer {
        in_paths(scope, "search_files", &args.path)?;
        let budget = match self.node.left_of(record, Quota::ReadBytes) {
            Some(0) => return Err(self.node.over(record, Quota::ReadBytes)),
            left => search::Budget::new(left.unwrap_or(u64::MAX)),
        };
        let SearchArgs { query, path, limit } = &args;
        let found = search::search_within(&self.data_root, query, path, *limit, deadline, &budget);
        self.node.charge(record, Quota::ReadBytes, budget.read())?;
        let found = found?;
        if found.skipped > 0 {
            let skipped = found.skipped.to_string();
            let fields = [("agent", self.id.as_str()), ("unreadable", &skipped)];
            self.say(0, || self.node.log.event(Level::Info, "search_passed_over", &fields));
        }
        answer(&found)
    }

    fn run(&self, args: RunArgs, scope: Option<&Scope>, deadline: Instant) -> Answer {
        let command = args.command.first().map_or("", String::as_str);
        if scope.is_some_and(|scope| !scope.has_command(command)) {
            return Err(out_of_scope("run", "command", command));
        }
        let home = self.data_root.path();
        let mut environment = run::minimal_environment(home);
        for (name, value) in &mut environment {
            if name == "PATH" {
                *value = crate::agent::python::search_path();
            }
        }
        let setup = run::RunSetup {
            supervisor: &self.node.pool.settings().self_exe,
            directory: home,
            user: self.node.pool.sandbox().user(),
            hidden: self.node.pool.sandbox().hidden(),
            environment: &environment,
        };
        answer(&run::run(&setup, &args.command, within(args.timeout, deadline)?)?)
    }

    fn travel(&self, record: &Arc<Record>, mode: Mode, scope: Option<&Scope>, call: HostCall) -> Answer {
        let order: TravelArgs = args(&call)?;
        let name = match &order.destination {
            Some(Value::String(name)) => name.clone(),
            // A node as `networks()` gives it serves as well as its name.
            Some(Value::Object(node)) => {
                node.get("name").and_then(Value::as_str).unwrap_or_default().to_owned()
            }
            _ => return Err(CallError::new("bad_payload", "the destination must be the name of a node")),
        };
        in_destinations(scope, &call.name, &name)?;
        let destination = self.node.resolve(record, &name)?;
        self.go(record, mode, destination, order, call)
    }

    fn return_to_stage(&self, record: &Arc<Record>, scope: Option<&Scope>, call: HostCall) -> Answer {
        let stage = federation::stage(&lock(&record.metadata));
        let home = stage.as_ref().and_then(federation::Destination::of);
        let home =
            home.ok_or_else(|| CallError::new("unknown_destination", "the agent was not sent from a stage"))?;
        in_destinations(scope, &call.name, &home.name)?;
        let order = args(&call)?;
        self.go(record, Mode::Move, home, order, call)
    }

    fn go(
        &self,
        record: &Arc<Record>,
        mode: Mode,
        destination: federation::Destination,
        order: TravelArgs,
        call: HostCall,
    ) -> Answer {
        if !call.in_hook {
            return Err(CallError::new("forbidden", "an agent travels only from within a hook"));
        }
        let deadline = match order.timeout {
            Some(seconds) => Instant::now() + within(seconds, call.deadline)?,
            None => call.deadline,
        };
        let journey = Journey {
            mode,
            destination,
            activate: order.payload.get().to_owned(),
            memory: call.memory.map(|memory| memory.get().into()),
            deadline,
            cancel: order.timeout.is_some() && !order.queue,
            queue: order.queue,
            token: order.token.map(|token| self.own_token(&token)).transpose()?,
        };
        self.node.travel(record, journey)
    }

    /// A token that goes along with a journey: one of this agent's, whole.
    fn own_token(&self, token: &Value) -> Result<Value, CallError> {
        let bad =
            |why: String| CallError::new("bad_payload", format!("the token that is to go along: {why}"));
        let token = Token::read(&token.to_string()).map_err(bad)?;
        match token.agent_id() == self.id {
            true => Ok(token.to_json()),
            false => Err(bad(format!("it was made for {:?}", token.agent_id()))),
        }
    }

    fn http_request(
        &self,
        record: &Record,
        args: HttpArgs,
        scope: Option<&Scope>,
        deadline: Instant,
    ) -> Answer {
        let decoded = args.body_base64.as_deref().map(base64::decode).transpose();
        let decoded = decoded.map_err(|why| CallError::new("bad_payload", format!("the body: {why}")))?;
        let body = args.body.map(String::into_bytes).or(decoded);
        let timeout = within(args.timeout, deadline)?;
        let sent = body.as_ref().map_or(0, Vec::len) as u64;
        let left = match self.node.left_of(record, Quota::HttpBytes) {
            Some(left) if left == 0 || sent > left => return Err(self.node.over(record, Quota::HttpBytes)),
            left => left,
        };
        self.node.charge(record, Quota::HttpBytes, sent)?;
        let most = left.map_or(http::MAX_BODY_BYTES, |left| left - sent);
        let (method, url, body) = (&args.method, &args.url, body.as_deref());
        match http::http_request_within(method, url, body, &args.headers, scope, timeout, most) {
            Ok(response) => {
                self.node.charge(record, Quota::HttpBytes, response.size)?;
                answer(&response)
            }
            // As much came as was left, and more would have.
            Err(error) if error.code == "too_large" && most < http::MAX_BODY_BYTES => {
                let _ = self.node.charge(record, Quota::HttpBytes, most);
                Err(self.node.over(record, Quota::HttpBytes))
            }
            Err(error) => Err(error),
        }
    }

    fn wake(&self, record: &Arc<Record>, args: WakeArgs) -> Answer {
        let message = letter(&args.from, &args.message);
        self.node.mail(record, message, &self.id).map_err(call_error)?;
        answer(&())
    }

    /// A message to an agent here, from this one whatever it says.
    fn send(&self, args: SendArgs) -> Answer {
        let to = self.node.agent(&args.agent_id).ok_or_else(|| {
            let name = clipped(&args.agent_id, SHOWN);
            CallError::new("unknown_agent", format!("there is no agent {name:?} on this node"))
        })?;
        let message = letter(&Value::from(self.id.as_str()), &args.message);
        self.node.mail(&to, message, &self.id).map_err(call_error)?;
        answer(&())
    }
}

/// What `on_message` is given of a message that another agent, or the agent itself, has left.
fn letter(from: &Value, message: &RawValue) -> String {
    format!("{{\"from\":{from},\"message\":{}}}", message.get())
}

fn call_error(failure: Failure) -> CallError {
    CallError::new(failure.code.as_str(), failure.message)
}

fn told(done: Result<Value, Failure>) -> Answer {
    answer(&done.map_err(call_error)?)
}

fn mark(record: &Record, args: NoteArgs) -> Answer {
    let mut notes = lock(&record.notes);
    if notes.len() >= MOST_NOTES || args.note.len() > NOTE_BYTES {
        let text = format!("a hop of the trace takes {MOST_NOTES} notes of at most {NOTE_BYTES} bytes");
        return Err(CallError::new("too_large", text));
    }
    notes.push(args.note);
    answer(&())
}

fn stage(record: &Record) -> Option<Value> {
    let stage = federation::stage(&lock(&record.metadata))?;
    Some(json!({"name": stage.name, "host": stage.host, "port": stage.port}))
}

/// What a scope leaves out is forbidden, and named.
fn out_of_scope(call: &str, what: &str, name: &str) -> CallError {
    let name = clipped(name, SHOWN);
    CallError::new(
        "forbidden",
        format!("{call} is granted, but not for the {what} {name:?}: its scope does not have it"),
    )
}

fn in_paths(scope: Option<&Scope>, call: &str, path: &str) -> Result<(), CallError> {
    match scope.is_none_or(|scope| scope.has_path(path)) {
        true => Ok(()),
        false => Err(out_of_scope(call, "path", path)),
    }
}

fn in_destinations(scope: Option<&Scope>, call: &str, name: &str) -> Result<(), CallError> {
    match scope.is_none_or(|scope| scope.has_destination(name)) {
        true => Ok(()),
        false => Err(out_of_scope(call, "destination", name)),
    }
}

/// `seconds`, but not past the hook's deadline.
fn within(seconds: f64, deadline: Instant) -> Result<Duration, CallError> {
    if seconds.is_nan() || seconds <= 0.0 {
        return Err(CallError::new(
            "bad_payload",
            format!("the timeout must be a positive number of seconds, not {seconds}"),
        ));
    }
    let left = deadline.saturating_duration_since(Instant::now());
    Ok(Duration::try_from_secs_f64(seconds).unwrap_or(left).min(left))
}

fn args<'a, T: Deserialize<'a>>(call: &'a HostCall) -> Result<T, CallError> {
    let bad = |text: &str| CallError::new("bad_payload", format!("the arguments of {}: {text}", call.name));
    // As strict as a message: what an agent says here may have to travel.
    crate::wire::parse(call.args.get()).map_err(|wrong| bad(&wrong.what))?;
    crate::plain::read_object(call.args.get()).map_err(|why| bad(&why))
}

fn answer(value: &impl Serialize) -> Answer {
    to_raw_value(value).map_err(|error| CallError::new("internal", error.to_string()))
}

fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let mut end = most;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{} … ({} bytes more)", &text[..end], text.len() - end)
}
