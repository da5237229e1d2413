//! One connection: lines in, answers out, deadlines that are total.

use super::budget::Budgets;
use super::{door, requests};
use crate::node::Node;
use crate::wire::{Answer, Code, Failure, Hold, Line, LineReader, ReadError, Stream};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a peer may still send after its last answer, and how long it may take: closing with unread
/// data would reset the connection and could take the answer with it.
const DRAIN_BYTES: usize = 64 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(2);
/// How long a peer may take to read its answer.
const WRITE_TIME: Duration = Duration::from_secs(60);

/// Serves a connection to its end, over TLS if the node speaks it. While a line of it is being answered, it counts in `answering`.
pub(super) fn serve(node: &Arc<Node>, tcp: &TcpStream, budgets: &Budgets, answering: &AtomicUsize) {
    let config = node.config();
    let keys = &config.keys;
    let seconds = |value: f64| Duration::try_from_secs_f64(value).unwrap_or(Duration::from_secs(3600));
    let (line_time, idle_time) = (seconds(keys.request_timeout_s), seconds(keys.keep_alive_timeout_s));
    let _ = tcp.set_nodelay(true);
    // The handshake is part of the first line's time.
    let mut deadline = Instant::now() + line_time;
    let secured;
    let stream: &dyn Stream = match &config.tls {
        None => tcp,
        Some(acceptor) => match door::enter(node, tcp, acceptor, deadline, budgets) {
            Some(entered) => {
                secured = entered;
                &secured
            }
            None => return crate::wire::close(tcp, DRAIN_BYTES, DRAIN_TIME),
        },
    };
    let most = keys.most_in_flight();
    let hold = Hold::new(&node.in_flight, most, keys.max_message_bytes);
    let mut reader = LineReader::new(stream, keys.max_message_bytes).within(&hold);
    let mut first = true;
    let mut _answer = None; // until whoever asked has read it
    loop {
        _answer = None;
        if !first {
            if !matches!(reader.wait(Instant::now() + idle_time), Ok(true)) {
                break;
            }
            deadline = Instant::now() + line_time;
        }
        first = false;
        let line = reader.next_line(deadline);
        _answer = Some(Counted::new(answering));
        let (answer, keep) = match line {
            Ok(Line::Text(line)) => {
                hold.settle(line.capacity());
                respond(node, line, tcp, budgets)
            }
            Ok(Line::End) => break,
            Err(ReadError::TooLarge { limit }) => {
                let text = format!("the line is longer than {limit} bytes (max_message_bytes)");
                if requests::is_written_down(node, tcp, budgets) {
                    node.note_unread(tcp, Code::TooLarge);
                }
                (unsigned(node, Code::TooLarge, &text), false)
            }
            Err(ReadError::TimedOut { .. }) => {
                let text = format!("no whole request line came within {:.0} s", line_time.as_secs_f64());
                (unsigned(node, Code::Timeout, &text), false)
            }
            Err(ReadError::Secured) => {
                if requests::is_written_down(node, tcp, budgets) {
                    node.note_unread(tcp, Code::BadMessage);
                }
                let text = "this is a TLS handshake, and the node speaks plain TCP (its configuration has no \"tls\")";
                (unsigned(node, Code::BadMessage, text), false)
            }
            Err(ReadError::NoRoom) => {
                let text = format!("the lines on their way hold as much as they may ({most} bytes, max_bytes_in_flight); try again");
                (unsigned(node, Code::Busy, &text), false)
            }
            Err(_) => return, // reset, or gone: nobody is there to be told
        };
        // What was done is known before the answer is, also if the node is killed in between.
        node.journal.settle();
        hold.settle(answer.len());
        let written = crate::wire::write_line(stream, &answer, Instant::now() + WRITE_TIME);
        drop(answer);
        hold.settle(0);
        if written.is_err() || !keep {
            break;
        }
    }
    crate::wire::close(stream, DRAIN_BYTES, DRAIN_TIME);
}

/// One more in a count, for as long as it lives.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Counted(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn respond(node: &Arc<Node>, line: Vec<u8>, stream: &TcpStream, budgets: &Budgets) -> (String, bool) {
    node.counters.requests.fetch_add(1, Ordering::Relaxed);
    let answered = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        requests::answer(node, line, stream, budgets)
    }));
    let (answer, keep) = answered.unwrap_or_else(|_| {
        (unsigned(node, Code::Internal, "the node failed at this request; its log says how"), false)
    });
    if !answer.contains("\"status\":\"ok\"") {
        node.counters.errors.fetch_add(1, Ordering::Relaxed);
    }
    (answer, keep && !node.is_stopping())
}

fn unsigned(node: &Node, code: Code, text: &str) -> String {
    Answer::failure(node.name(), &Failure::new(code, text)).to_line(None)
}
