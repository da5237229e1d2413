//! What comes over the bridge: from an agent's process, which may send anything, to frames.
//!
//! One JSON object a line. The members stand at the head of `agentctx.py`; a frame is an answer to a hook
//! or to the load order, or a call. Everything in here works on bytes alone, so that a test or a fuzzer can
//! be the hostile child.

use super::output::without_secret;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::fmt;

/// The longest name of a call, and how many attributes left behind are told at once.
const NAME_BYTES: usize = 64;
const MOST_LEFT: usize = 64;
/// What is kept of an exception: of its type, its text, each line of its traceback, and how many.
const ERROR_BYTES: [usize; 3] = [256, 32 * 1024, 4096];
const ERROR_LINES: usize = 64;
/// How deep a memory stands in the message that carries it.
const MEMORY_ENVELOPE: usize = 4;

/// An exception in the agent's code, as it travels to whoever called.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AgentError {
    /// The exception's type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its text.
    pub text: String,
    /// The traceback's lines within the agent's source, outermost first.
    pub traceback: Vec<String>,
}

impl AgentError {
    /// Without the agent's secret, and bounded: `agentctx.py` has bounds of its own, what else writes to
    /// a bridge may not.
    pub fn fit_to_tell(mut self, secret: &str) -> Self {
        self.text = without_secret(&self.text, secret);
        self.traceback.iter_mut().for_each(|line| *line = without_secret(line, secret));
        cut(&mut self.kind, ERROR_BYTES[0]);
        cut(&mut self.text, ERROR_BYTES[1]);
        self.traceback.truncate(ERROR_LINES);
        self.traceback.iter_mut().for_each(|line| cut(line, ERROR_BYTES[2]));
        self
    }
}

fn cut(text: &mut String, most: usize) {
    if text.len() > most {
        let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
    }
}

impl fmt::Display for AgentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.text)
    }
}

/// A frame.
#[derive(Debug)]
pub struct Frame {
    /// What it says.
    pub what: Said,
    /// The agent's memory, where the frame brings it: JSON that any message can carry on.
    pub memory: Option<Box<RawValue>>,
    /// Attributes that cannot travel, at most 64.
    pub left: Vec<String>,
    /// Why the memory could not be taken: what the node has of it is older.
    pub stale: Option<String>,
}

/// What a frame says.
#[derive(Debug)]
pub enum Said {
    /// The source is loaded.
    Loaded,
    /// It is not.
    Refused(AgentError),
    /// A hook returned.
    Done {
        /// The hook's number, as it was ordered.
        hook: u64,
        /// What it returned.
        result: Box<RawValue>,
    },
    /// A hook raised.
    Failed {
        /// The hook's number.
        hook: u64,
        /// What.
        error: AgentError,
    },
    /// A `ctx` call.
    Call {
        /// The call's number; its reply repeats it.
        number: u64,
        /// The hook in which it was made, as the process says.
        hook: Option<u64>,
        /// The method, at most 64 bytes.
        name: String,
        /// JSON.
        args: Box<RawValue>,
    },
}

/// The members as they stand in the line.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Members {
    loaded: Option<bool>,
    refused: Option<AgentError>,
    done: Option<u64>,
    failed: Option<u64>,
    #[serde(default, deserialize_with = "present")]
    result: Option<Box<RawValue>>,
    error: Option<AgentError>,
    #[serde(default, deserialize_with = "present")]
    memory: Option<Box<RawValue>>,
    #[serde(default)]
    left: Vec<String>,
    stale: Option<String>,
    call: Option<u64>,
    hook: Option<u64>,
    name: Option<String>,
    args: Option<Box<RawValue>>,
}

/// A present `null` is a value here, not an absence.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

impl Frame {
    /// Reads one line, without its newline.
    ///
    /// # Errors
    /// What is wrong with it, in words for whoever called the agent. There is no going on after one.
    pub fn parse(line: &[u8]) -> Result<Frame, String> {
        let members: Members = serde_json::from_slice(line)
            .map_err(|error| format!("it sent something that is no frame on its bridge: {error}"))?;
        let Members {
            loaded,
            refused,
            done,
            failed,
            result,
            error,
            memory,
            mut left,
            mut stale,
            call,
            name,
            args,
            hook,
        } = members;
        left.truncate(MOST_LEFT);
        left.iter_mut().for_each(|name| cut(name, ERROR_BYTES[0]));
        stale.iter_mut().for_each(|why| cut(why, ERROR_BYTES[0]));
        if let Some(memory) = &memory {
            check_memory(memory)?;
        }
        let what = match (loaded, refused, done, failed, call) {
            (Some(_), None, None, None, None) => Said::Loaded,
            (None, Some(error), None, None, None) => Said::Refused(error),
            (None, None, Some(hook), None, None) => {
                Said::Done { hook, result: result.ok_or("a result frame without a result")? }
            }
            (None, None, None, Some(hook), None) => {
                Said::Failed { hook, error: error.ok_or("a failure frame without an error")? }
            }
            (None, None, None, None, Some(number)) => {
                let name = name.ok_or("a call without a name")?;
                if name.len() > NAME_BYTES {
                    return Err(format!("a call with a name of {} bytes", name.len()));
                }
                Said::Call { number, hook, name, args: args.ok_or("a call without arguments")? }
            }
            _ => return Err("a frame that is neither a call nor an answer".into()),
        };
        Ok(Frame { what, memory, left, stale })
    }
}

/// A memory must go into any message that carries it on.
fn check_memory(memory: &RawValue) -> Result<(), String> {
    crate::wire::parse_within(memory.get(), MEMORY_ENVELOPE)
        .map(drop)
        .map_err(|wrong| format!("its memory cannot be kept: {}", wrong.what))
}

/// Cuts what comes over a bridge into frames.
#[derive(Debug)]
pub struct Frames {
    buffer: Vec<u8>,
    /// Where the next line starts in `buffer`.
    start: usize,
    /// Up to where `buffer` holds no newline.
    searched: usize,
    most: usize,
}

impl Frames {
    /// A reader of frames of at most `most` bytes.
    pub fn new(most: usize) -> Self {
        Frames { buffer: Vec::new(), start: 0, searched: 0, most }
    }

    /// Takes over what came.
    pub fn push(&mut self, data: &[u8]) {
        self.buffer.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        self.buffer.extend_from_slice(data);
    }

    /// The next whole frame, if there is one.
    ///
    /// # Errors
    /// As [`Frame::parse`]; or a frame is too long.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, String> {
        let Some(at) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') else {
            self.searched = self.buffer.len();
            if self.buffer.len() - self.start > self.most {
                return Err(format!("it sent more than {} bytes in one frame", self.most));
            }
            return Ok(None);
        };
        let end = self.searched + at;
        let frame = Frame::parse(&self.buffer[self.start..end]);
        self.start = end + 1;
        self.searched = self.start;
        if self.start == self.buffer.len() {
            self.start = 0;
            self.searched = 0;
            self.buffer.clear();
            // One long frame must not cost its memory for as long as the agent lives.
            self.buffer.shrink_to(KEPT);
        }
        frame.map(Some)
    }
}

/// What a bridge keeps of its buffer between two frames, bytes.
const KEPT: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_one_by_one_whatever_the_reads() {
        let text = b"{\"loaded\":true}\n{\"done\":1,\"result\":null,\"memory\":{\"n\":1.0}}\n{\"call\":3,\"name\":\"log\",\"args\":{}}\n";
        for step in [1, 2, 7, 40, text.len()] {
            let mut frames = Frames::new(100);
            let mut got = Vec::new();
            for piece in text.chunks(step) {
                frames.push(piece);
                while let Some(frame) = frames.next_frame().unwrap() {
                    got.push(frame);
                }
            }
            assert_eq!(got.len(), 3, "by {step}");
            assert!(matches!(got[0].what, Said::Loaded));
            assert!(matches!(&got[1].what, Said::Done { hook: 1, result } if result.get() == "null"));
            assert_eq!(got[1].memory.as_ref().unwrap().get(), "{\"n\":1.0}");
            assert!(matches!(&got[2].what, Said::Call { number: 3, name, .. } if name == "log"));
        }
    }

    #[test]
    fn a_frame_without_end_is_refused_at_the_limit_and_a_long_one_leaves_no_memory_behind() {
        let mut frames = Frames::new(1000);
        frames.push(&[b'x'; 1001]);
        assert!(frames.next_frame().unwrap_err().contains("more than 1000 bytes"));

        let mut frames = Frames::new(4 << 20);
        frames.push(format!("{{\"done\":1,\"result\":\"{}\"}}\n", "y".repeat(3 << 20)).as_bytes());
        assert!(frames.next_frame().unwrap().is_some());
        assert!(frames.buffer.capacity() <= KEPT, "{}", frames.buffer.capacity());
    }

    /// Beside its neighbours a frame costs its own length, not theirs.
    #[test]
    fn thousands_of_frames_in_one_read_are_not_copied_around() {
        let many = 200_000;
        let mut frames = Frames::new(100);
        frames.push("{\"done\":7,\"result\":1}\n".repeat(many).as_bytes());
        let began = std::time::Instant::now();
        let mut count = 0;
        while frames.next_frame().unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, many);
        // Copying what is left after each frame would move 440 gigabytes.
        assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    }
}
