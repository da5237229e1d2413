//! What whoever manages agents may look at, and change nothing with: `agent_status`, `deploy_log`.

use crate::agent::host::CallError;
use crate::agent::manifest;
use crate::journal::{self, Line, Lines};
use crate::log::clipped;
use crate::node::{Node, Record};
use serde_json::value::{to_raw_value, RawValue};
use serde_json::{json, Map, Value};
use std::collections::VecDeque;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// The largest `config/agent.py` that is compared, bytes.
const SOURCE_BYTES: u64 = 16 << 20;
/// How many lines `deploy_log` gives at most.
const MOST_LINES: usize = 1000;
/// The events it is about.
const KINDS: [&str; 5] = ["deploy", "arrival", "move", "clone", "remove"];
/// How much of a name an error repeats, bytes.
const SHOWN: usize = 200;

type Answer = Result<Box<RawValue>, CallError>;

/// One agent, or all that are here.
///
/// # Errors
/// `unknown_agent`: it neither lives here nor is in `config/`.
pub fn agent_status(node: &Arc<Node>, id: Option<&str>) -> Answer {
    let told = match id {
        None => node.agents().iter().map(|record| status(node, record)).collect(),
        Some(id) => match node.agent(id) {
            Some(record) => status(node, &record),
            None => declared(node, id)?,
        },
    };
    to_raw_value(&told).map_err(|error| CallError::new("internal", error.to_string()))
}

fn status(node: &Arc<Node>, record: &Arc<Record>) -> Value {
    let mut told = record.summary();
    if let Some(told) = told.as_object_mut() {
        told.remove("last_result"); // what it told whoever asked is theirs
        told.insert(
            "config".into(),
            compare(&node.config_source(&record.id), &record.life.spec.source).into(),
        );
        told.insert("schedules".into(), node.schedules_of(&record.id));
        told.insert("manager".into(), node.is_manager(record).into());
    }
    told
}

/// An agent that the operator has put into place and that does not run.
fn declared(node: &Node, id: &str) -> Result<Value, CallError> {
    let there = manifest::check_id(id).is_ok() && node.config_source(id).exists();
    if !there {
        let text = format!("there is no agent {:?} on this node", clipped(id, SHOWN));
        return Err(CallError::new("unknown_agent", text));
    }
    Ok(json!({"agent_id": id, "status": "absent", "live": false, "config": "not_running",
        "schedules": node.schedules_of(id), "manager": false}))
}

/// Whether what runs is what stands in a file: `none` (there is none), `same`, `differs`, `unreadable`.
fn compare(file: &Path, source: &str) -> &'static str {
    match file.symlink_metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return "none",
        Ok(told) if told.is_file() => {}
        _ => return "unreadable",
    }
    let mut content = Vec::new();
    let read = std::fs::File::open(file).and_then(|file| file.take(SOURCE_BYTES).read_to_end(&mut content));
    match read {
        Ok(_) if content == source.as_bytes() => "same",
        Ok(_) => "differs",
        Err(_) => "unreadable",
    }
}

/// The latest lines of the journal about who came, went and was replaced, oldest first.
///
/// # Errors
/// `bad_payload`, `timeout`; `internal`: the journal can't be read.
pub fn deploy_log(node: &Node, limit: usize, deadline: Instant) -> Answer {
    if !(1..=MOST_LINES).contains(&limit) {
        let text = format!("the limit must be from 1 to {MOST_LINES}, not {limit}");
        return Err(CallError::new("bad_payload", text));
    }
    let failed = |error: std::io::Error| CallError::new("internal", format!("reading the journal: {error}"));
    node.journal.settle();
    let mut found: Vec<Value> = Vec::new();
    for (_, file) in journal::files(node.state_dir()).map_err(failed)?.into_iter().rev() {
        let mut lines = match Lines::open(&file) {
            // Rotation has taken it meanwhile.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => break,
            opened => opened.map_err(failed)?,
        };
        let mut here = VecDeque::new();
        while let Some(raw) = lines.next_line().map_err(failed)? {
            if lines.number % 1024 == 0 && Instant::now() >= deadline {
                return Err(CallError::new("timeout", "the journal was not read in time"));
            }
            let told = is_ours(&raw.text).then(|| Line::read(&raw.text).ok()).flatten();
            here.extend(told.as_ref().map(in_json));
            if here.len() > limit - found.len() {
                here.pop_front();
            }
        }
        here.extend(found);
        found = here.into();
        if found.len() >= limit {
            break;
        }
    }
    to_raw_value(&found).map_err(|error| CallError::new("internal", error.to_string()))
}

/// Told from the head of the line: most are of other kinds.
fn is_ours(text: &[u8]) -> bool {
    let head = String::from_utf8_lossy(&text[..text.len().min(100)]);
    KINDS.iter().any(|kind| head.contains(&format!(",\"kind\":\"{kind}\",")))
}

fn in_json(line: &Line<'_>) -> Value {
    let mut told = Map::new();
    told.insert("seq".into(), line.seq.into());
    told.insert("time".into(), (*line.time).into());
    told.insert("kind".into(), (*line.kind).into());
    for (name, value) in line.members() {
        told.insert(name.into_owned(), serde_json::from_str(value.raw()).unwrap_or_default());
    }
    told.into()
}
