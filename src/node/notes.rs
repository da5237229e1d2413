//! What the node notes in its journal, and what it keeps out of it: secrets and sources.
//!
//! A text that somebody else chose passes [`Node::without_secrets`]. Sentences of errors are noted only where the node
//! alone makes them: one about a source, a capsule or a payload may quote it.

use super::messages::Mode;
use super::outbox::Traveller;
use super::senders::Signed;
use super::{Node, Record};
use crate::journal::Event;
use crate::log::Level;
use crate::wire::{Answer, Code, Failure, Request, Secret};
use std::cell::Cell;
use std::cmp::Reverse;
use std::net::TcpStream;

/// The longest text that is made for a line, characters: one more than it takes, so that it shows that it was cut.
const CHARACTERS: usize = 201;
/// The shortest secret that is looked for, bytes: one of a few characters would stand in every other word.
const SHORTEST: usize = 6;

impl Node {
    /// The node listens.
    pub fn note_start(&self, address: &str) {
        let version = env!("CARGO_PKG_VERSION");
        let start = Event::new("start").text("version", version).number("pid", u64::from(std::process::id()));
        let start = start.text("node", self.name()).text("address", address);
        self.journal.note(&start.flag("clean", self.journal.ended_well()));
        self.journal.settle();
    }

    /// The node stops; the last line.
    pub fn note_stop(&self) {
        self.journal.note(&Event::new("stop"));
        self.journal.close();
    }

    /// An agent was deployed.
    pub(super) fn note_deploy(&self, record: &Record) {
        self.journal.note(&settled("deploy", record));
        self.journal.settle();
    }

    /// An agent arrived.
    pub(super) fn note_arrival(&self, record: &Record, mode: &str, from: &str) {
        let from = self.without_secrets(from, Some(&record.manifest().secret));
        self.journal.note(&settled("arrival", record).text("mode", mode).text("from", &from));
        self.journal.settle();
    }

    /// What became of an agent, or a copy of it, that was sent on: `arrived`, `unclear`, or a code.
    pub(super) fn note_journey(&self, traveller: &Traveller, mode: Mode, to: &str, outcome: &str) {
        let to = self.without_secrets(to, Some(&traveller.secret));
        self.journal
            .note(&Event::new(mode.as_str()).agent(&traveller.id).text("to", &to).text("outcome", outcome));
        self.journal.settle();
    }

    /// A process loads an agent.
    pub fn note_process_start(&self, id: &str, pid: i32) {
        self.journal
            .note(&Event::new("process_start").agent(id).number("pid", u64::from(pid.unsigned_abs())));
    }

    /// An agent's process ended.
    pub fn note_process_end(&self, id: &str, how: &str) {
        self.journal.note(&Event::new("process_end").agent(id).text("how", how));
    }

    /// A line that could not be read as a message, or for which there was no place.
    pub fn note_unread(&self, stream: &TcpStream, code: Code) {
        self.journal
            .note_refused(&Event::new("refused").text("peer", &peer(stream)).text("code", code.as_str()));
    }

    /// A connection on which no TLS came about.
    pub fn note_handshake(&self, stream: &TcpStream, why: &str) {
        let peer = peer(stream);
        self.log.event(Level::Warn, "handshake_failed", &[("peer", &peer), ("error", why)]);
        self.journal.note_refused(&Event::new("refused").text("peer", &peer).text("code", "handshake"));
    }

    /// A message that nobody known has signed.
    pub fn note_stranger(&self, request: &Request, stream: &TcpStream, failure: &Failure) {
        let event = self.about(request, None).event("refused").text("peer", &peer(stream));
        self.journal.note_refused(&self.failed(event, failure.code.as_str(), &failure.message, None));
    }

    /// The head of a text, as much as a line takes, without the secrets of the admin and the operators and
    /// without `own`.
    pub fn without_secrets(&self, text: &str, own: Option<&Secret>) -> String {
        let config = self.config();
        let known =
            config.admin_secrets.iter().chain(config.operators.values().map(|operator| &operator.secret));
        let secrets = own.map(|own| (own.expose(), "[its secret]")).into_iter();
        let secrets = secrets.chain(known.map(|secret| (secret.expose(), "[a secret]")));
        masked(text, &secrets.collect::<Vec<_>>(), CHARACTERS)
    }

    /// Says in the log that the journal cannot be written.
    pub(super) fn tell_of_the_journal(&self) {
        if let Some(why) = self.journal.trouble() {
            self.log.event(Level::Error, "journal_failed", &[("error", &why)]);
        }
    }

    fn about(&self, request: &Request, own: Option<&Secret>) -> About {
        let clean = |text: &str| self.without_secrets(text, own);
        let names_one = matches!(
            request.kind.as_str(),
            "invoke_agent"
                | "dispatch_agent"
                | "remove_agent"
                | "transfer_status"
                | "transfer_cancel"
                | "create_identity"
                | "rotate_identity"
                | "revoke_identity"
        );
        let agent = names_one.then(|| request.payload_json().get("agent_id")).flatten();
        let agent = agent.and_then(|id| id.as_str()).map(|id| clean(&id));
        About { kind: clean(&request.kind), sender: clean(&request.sender), agent }
    }

    fn failed(&self, event: Event, code: &str, sentence: &str, own: Option<&Secret>) -> Event {
        let event = event.text("code", code);
        match code.parse() {
            Ok(code) if is_ours(code) => event.text("error", &self.without_secrets(sentence, own)),
            _ => event,
        }
    }
}

/// What is noted of a message, whatever becomes of it.
struct About {
    kind: String,
    sender: String,
    agent: Option<String>,
}

impl About {
    fn event(&self, kind: &'static str) -> Event {
        let event = Event::new(kind).text("type", &self.kind).text("sender", &self.sender);
        match &self.agent {
            Some(id) => event.agent(id),
            None => event,
        }
    }
}

/// A message whose signature is good, on its way: it is noted when it was accepted, and when it failed.
pub struct Heard<'a> {
    node: &'a Node,
    about: About,
    secret: &'a Secret,
    peer: String,
    accepted: Cell<bool>,
}

impl<'a> Heard<'a> {
    /// One that came over `stream`.
    pub fn new(node: &'a Node, request: &Request, signed: &'a Signed, stream: &TcpStream) -> Self {
        let about = node.about(request, Some(&signed.secret));
        Heard { node, about, secret: &signed.secret, peer: peer(stream), accepted: Cell::new(false) }
    }

    /// It passed all checks and is acted on.
    pub fn accepted(&self) {
        self.accepted.set(true);
        self.node.journal.note(&self.event("accepted"));
    }

    /// This is the answer to it.
    pub fn ended(&self, answer: &Answer) {
        let Some((code, sentence)) = answer.error() else {
            if !self.accepted.get() {
                // A transfer that came before: its answer is kept, nothing is done again.
                self.node.journal.note(&self.event("accepted").flag("again", true));
            }
            return;
        };
        if self.accepted.get() {
            let failed = self.node.failed(self.event("failed"), &code, &sentence, Some(self.secret));
            self.node.journal.note(&failed);
        } else {
            let refused = self.node.failed(self.event("refused"), &code, &sentence, Some(self.secret));
            self.node.journal.note_refused(&refused);
        }
    }

    fn event(&self, kind: &'static str) -> Event {
        self.about.event(kind).text("peer", &self.peer)
    }
}

/// Codes whose sentences quote neither source nor payload.
fn is_ours(code: Code) -> bool {
    !matches!(code, Code::BadMessage | Code::BadPayload | Code::AgentError | Code::Rejected | Code::Internal)
}

fn settled(kind: &'static str, record: &Record) -> Event {
    let event = Event::new(kind).agent(&record.id).number("sequence", record.sequence);
    let event = event.text("origin", record.origin.as_str());
    match record.sealed.as_ref().map(|sealed| sealed.signer.as_ref()) {
        None => event.text("form", "source"),
        Some(None) => event.text("form", "capsule"),
        Some(Some(signer)) => {
            event.text("form", "capsule").text("signer", signer.key_id.as_deref().unwrap_or("?"))
        }
    }
}

/// At most `most` characters of a text, each secret in it replaced by what stands beside it. Of a long text no more is
/// looked at than it takes to fill them, and the cut leaves no part of a secret.
fn masked(text: &str, secrets: &[(&str, &str)], most: usize) -> String {
    let mut masked = String::new();
    let (mut rest, mut room) = (text, most);
    while room > 0 && !rest.is_empty() {
        let end = rest.char_indices().nth(room).map_or(rest.len(), |(at, _)| at);
        let begins = |(secret, mark): &(&str, &'_ str)| {
            let reach = (end + secret.len()..rest.len()).find(|at| rest.is_char_boundary(*at));
            let at = rest[..reach.unwrap_or(rest.len())].find(secret)?;
            (at < end).then(|| (at, secret.len(), mark.to_string()))
        };
        let found = secrets.iter().filter(|(secret, _)| secret.len() >= SHORTEST).filter_map(begins);
        let Some((at, length, mark)) = found.min_by_key(|(at, length, _)| (*at, Reverse(*length))) else {
            masked.push_str(&rest[..end]);
            break;
        };
        masked.push_str(&rest[..at]);
        masked.push_str(&mark);
        room = room.saturating_sub(rest[..at].chars().count() + mark.chars().count());
        rest = &rest[at + length..];
    }
    masked
}

fn peer(stream: &TcpStream) -> String {
    stream.peer_addr().map_or_else(|_| "?".into(), |address| address.to_string())
}

#[cfg(test)]
mod tests {
    use super::masked;

    #[test]
    fn no_part_of_a_secret_is_left_however_it_stands() {
        let long = "sécret-".repeat(40);
        let secrets = [("hunter2", "[a]"), (&*long, "[b]"), ("hunter2-and-more", "[c]"), ("the", "[d]")];
        let masked = |text: &str, most| masked(text, &secrets, most);
        assert_eq!(masked("the hunter2, hunter2hunter2", 100), "the [a], [a][a]");
        assert_eq!(masked("hunter2-and-more", 100), "[c]");
        assert_eq!(masked("abcdefgh", 3), "abc");
        assert_eq!(masked("", 3), "");
        // Begun within what is shown, and reaching beyond it; and behind one that made room.
        assert_eq!(masked(&format!("ab{long}{long}"), 4), "ab[b]");
        assert_eq!(
            masked(&format!("{long}{}{long}", "x".repeat(290)), 300),
            format!("[b]{}[b]", "x".repeat(290))
        );
        for most in 0..40 {
            let shown = masked(&format!("some text hunter2 {long} end"), most);
            assert!(!shown.contains("hunt") && !shown.contains("sécret"), "{most}: {shown}");
        }
        assert_eq!(masked(&"é".repeat(1000), 201).chars().count(), 201);
    }
}
