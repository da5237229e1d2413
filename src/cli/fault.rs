//! Why a command did not succeed, and the exit status that says so.

use super::out;
use crate::log::escape;
use crate::wire::{Code, ReceivedAnswer};
use serde_json::Value;

/// The node, or the agent, answered an error.
pub const ANSWERED: u8 = 1;
/// Wrong usage, or something on this machine.
pub const LOCAL: u8 = 2;
/// Not reached, or not in time.
pub const UNREACHED: u8 = 3;

/// Why a command did not succeed.
#[derive(Debug)]
pub enum Fault {
    /// The command line is wrong.
    Usage(String),
    /// Something on this machine failed.
    Local(String),
    /// The node or the agent answered an error.
    Answered(Box<Answered>),
    /// The node could not be reached, or did not answer in time.
    Unreached(String),
    /// Whoever read our output has gone: no error.
    PipeClosed,
    /// All is said already; only the status is left.
    Status(u8),
}

/// An error that a node answered.
#[derive(Debug)]
pub struct Answered {
    /// Who answered.
    pub node: String,
    /// The code, as it stands in the answer.
    pub code: String,
    /// Its sentence.
    pub error: String,
    /// The lines of the agent's traceback.
    pub lines: Vec<String>,
    /// What the caller may do about it.
    pub hint: Option<String>,
    /// Whether the answer's signature is good.
    pub signed: bool,
}

impl Answered {
    /// Takes the error from an answer.
    pub fn from_answer(answer: &ReceivedAnswer, signed: bool) -> Self {
        let lines = answer.field("agent_error").and_then(|text| serde_json::from_str(text).ok());
        Answered {
            node: answer.node().unwrap_or("the node").to_owned(),
            code: answer.code().unwrap_or("error").to_owned(),
            error: answer.error().unwrap_or("it gave no reason").to_owned(),
            lines: lines.map_or_else(Vec::new, |error: Value| traceback(&error)),
            hint: None,
            signed,
        }
    }

    /// Takes it from the `activate_error` of a result: the agent is there, and its hook failed.
    pub fn from_activation(node: &str, error: &Value) -> Self {
        let text = |name: &str| error.get(name).and_then(Value::as_str);
        Answered {
            node: node.to_owned(),
            code: text("code").unwrap_or("agent_error").to_owned(),
            error: text("error").map_or_else(|| error.to_string(), str::to_owned),
            lines: error.get("agent_error").map_or_else(Vec::new, traceback),
            hint: None,
            signed: true,
        }
    }

    /// The same with advice, unless there is some already.
    pub fn advised(mut self, hint: impl Into<String>) -> Self {
        self.hint.get_or_insert_with(|| hint.into());
        self
    }

    /// As one compact line.
    fn to_json(&self) -> String {
        let Answered { node, code, error, lines, signed, .. } = self;
        serde_json::json!({
            "status": "error", "node": node, "code": code, "error": error, "traceback": lines, "signed": signed
        })
        .to_string()
    }
}

/// The lines of an exception within the agent's source.
fn traceback(error: &Value) -> Vec<String> {
    let lines = error.get("traceback").and_then(Value::as_array);
    lines.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

impl From<Answered> for Fault {
    fn from(answered: Answered) -> Fault {
        Fault::Answered(Box::new(answered))
    }
}

impl Fault {
    /// The exit status. A time limit that the node noticed counts as one that we noticed.
    pub fn status(&self) -> u8 {
        match self {
            Fault::Usage(_) | Fault::Local(_) => LOCAL,
            Fault::Answered(answered) if answered.code == Code::Timeout.as_str() => UNREACHED,
            Fault::Answered(_) => ANSWERED,
            Fault::Unreached(_) => UNREACHED,
            Fault::PipeClosed => 0,
            Fault::Status(status) => *status,
        }
    }

    /// What is wrong, in a sentence for a log.
    pub fn sentence(&self) -> String {
        match self {
            Fault::Usage(text) | Fault::Local(text) | Fault::Unreached(text) => text.clone(),
            Fault::Answered(answered) => answered.error.clone(),
            Fault::PipeClosed | Fault::Status(_) => String::new(),
        }
    }

    /// Says it on standard error: for people, or as one line of JSON.
    pub fn tell(&self, command: &str, as_json: bool) {
        match self {
            Fault::PipeClosed | Fault::Status(_) => {}
            Fault::Answered(answered) if as_json => out::note_raw(&answered.to_json()),
            Fault::Usage(text) | Fault::Local(text) | Fault::Unreached(text) if as_json => {
                out::note_raw(&serde_json::json!({"status": "error", "error": text}).to_string());
            }
            Fault::Usage(text) => {
                let about = if command.is_empty() { String::new() } else { format!(" {command}") };
                out::note(&format!("{text}\n(agentcontainer{about} --help says more)"));
            }
            Fault::Local(text) | Fault::Unreached(text) => out::note(text),
            Fault::Answered(answered) => {
                let Answered { node, code, error, lines, hint, signed } = &**answered;
                let doubt = if *signed { "" } else { " (unsigned)" };
                let mut text = format!("{} answered {}{doubt}: {error}", escape(node), escape(code));
                for line in lines {
                    text.push_str("\n    ");
                    text.push_str(line.trim_end());
                }
                if let Some(hint) = hint {
                    text.push_str(&format!("\n({hint})"));
                }
                out::note(&text);
            }
        }
    }
}
