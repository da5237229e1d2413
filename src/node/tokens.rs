//! Capability tokens on a node: what one that an agent carries is worth here, and revocations.
//!
//! A token speaks for an agent that came on its own signature and has no entry of its own among the grants.
//! Where it counts, the agent may do what the token says and what strangers, or the holder of its key
//! (`token_keys`), may be given. Where it is refused, the agent may do what any stranger may.

use super::arrive::disk_failure;
use super::config::TokenKey;
use super::grants::OF_THE_PROCESS;
use super::messages::RevokeToken;
use super::{Node, Origin, Record};
use crate::journal::Event;
use crate::log::Level;
use crate::roster::grants::Grant;
use crate::roster::revoked_tokens::Refusal;
use crate::roster::token::{is_id, Token, METADATA};
use crate::sync::lock;
use crate::wire::{unix_now, Code, Failure};
use serde_json::{json, Value};
use std::sync::Arc;

/// The token in a record's metadata, read once.
pub(super) struct Carried {
    token: Option<Result<Arc<Token>, String>>,
    /// The word of the last verdict, so that each is told once.
    said: &'static str,
    /// What the kernel enforces of what it could do at the last verdict.
    held: Vec<&'static str>,
}

/// What a token is worth here and now.
enum Verdict {
    Counts { token: Arc<Token>, key: String, grant: Arc<Grant> },
    Refused { token: Option<Arc<Token>>, word: &'static str, why: String },
}

impl Verdict {
    fn word(&self) -> &'static str {
        match self {
            Verdict::Counts { .. } => "counts",
            Verdict::Refused { word, .. } => word,
        }
    }
}

impl Record {
    /// Its token, if its metadata has one.
    fn token(&self) -> Option<Result<Arc<Token>, String>> {
        let mut carried = lock(&self.carried);
        let carried = carried.get_or_insert_with(|| {
            let value = lock(&self.metadata).get(METADATA).filter(|value| !value.is_null()).cloned();
            let read = |value: Value| Token::read(&value.to_string()).map(Arc::new);
            Carried { token: value.map(read), said: "", held: Vec::new() }
        });
        carried.token.clone()
    }

    /// Its metadata has changed, and with it perhaps its token.
    pub(super) fn look_at_token_again(&self) {
        *lock(&self.carried) = None;
    }
}

impl Node {
    /// What an agent's token gives it, where it carries one that counts.
    pub(super) fn grant_by_token(&self, record: &Record) -> Option<Arc<Grant>> {
        match self.verdict(record)? {
            Verdict::Counts { grant, .. } => Some(grant),
            Verdict::Refused { .. } => None,
        }
    }

    /// What an agent's token has to do with its not being granted something; a clause for the error.
    pub fn token_clause(&self, record: &Record) -> Option<String> {
        Some(match self.verdict(record)? {
            Verdict::Counts { key, .. } => {
                format!(
                    "what it may do here is what its capability token says and its key, {key:?}, may give"
                )
            }
            Verdict::Refused { why, .. } => format!("its capability token is refused: {why}"),
        })
    }

    /// The token that an agent carries, whether it counts here or not.
    ///
    /// # Errors
    /// Why it is none; there is none.
    pub fn carried_token(&self, record: &Record) -> Result<Arc<Token>, String> {
        record.token().unwrap_or_else(|| Err("the agent carries no capability token".into()))
    }

    fn verdict(&self, record: &Record) -> Option<Verdict> {
        if record.origin != Origin::Own || self.grants.has_entry(&record.id) {
            return None;
        }
        let token = match record.token()? {
            Ok(token) => token,
            Err(why) => return Some(Verdict::Refused { token: None, word: "unreadable", why }),
        };
        Some(match self.worth(&token, &record.id, unix_now()) {
            Ok((key, grant)) => Verdict::Counts { token, key, grant: Arc::new(grant) },
            Err((word, why)) => Verdict::Refused { token: Some(token), word, why },
        })
    }

    /// What a token gives an agent, and whose key signed it; or why it gives nothing, in a word and a sentence.
    fn worth(&self, token: &Token, id: &str, now: i64) -> Result<(String, Grant), (&'static str, String)> {
        if token.agent_id() != id {
            return Err(("other_agent", format!("it was made for {:?}", token.agent_id())));
        }
        let config = self.config();
        let key = config.token_keys.iter().find(|known| known.key == *token.issuer());
        let Some(TokenKey { name, grant: may_give, .. }) = key else {
            let key = token.issuer().text();
            return Err((
                "unknown_key",
                format!("{key} signed it, which is not among the node's token_keys"),
            ));
        };
        if self.revoked_tokens.is_lost() {
            return Err(("revoked", "which tokens were revoked here was lost with a damaged file".into()));
        }
        let revoked = self.revoked_tokens.table();
        if let Some(block) = token.ids().find(|id| revoked.contains_key(*id)) {
            return Err(("revoked", format!("{block} was revoked here")));
        }
        if token.nodes().is_some_and(|nodes| !nodes.contains(self.name())) {
            return Err(("wrong_node", format!("it does not name this node, {:?}", self.name())));
        }
        let early = token.issued_at().saturating_sub(now);
        if early > i64::try_from(config.keys.clock_skew_s).unwrap_or(i64::MAX) {
            return Err(("not_yet", format!("by this node's clock it is issued {early} s from now")));
        }
        if now >= token.expires_at() {
            return Err(("expired", format!("it ended {} s ago", now - token.expires_at())));
        }
        let most = self.grants.of_strangers().or(may_give);
        // The token narrows what bounds everybody, too.
        let quotas = most.quotas().over(&config.quotas());
        Ok((name.clone(), token.grant().and(&most.with_quotas(quotas))))
    }

    /// Tells what an agent's token is worth, if that has changed; a process with rights that went with it ends.
    pub(super) fn judge_token(&self, record: &Record) {
        if record.token().is_none() {
            return;
        }
        let verdict = self.verdict(record);
        let word = verdict.as_ref().map_or("", Verdict::word);
        let grant = self.grant_of(record);
        let holds: Vec<&'static str> = OF_THE_PROCESS.into_iter().filter(|name| grant.has(name)).collect();
        let (lost, news) = {
            let mut carried = lock(&record.carried);
            let Some(carried) = carried.as_mut() else { return };
            let lost = carried.held.iter().any(|name| !holds.contains(name));
            carried.held = holds;
            (lost, std::mem::replace(&mut carried.said, word) != word)
        };
        if let Some(verdict) = verdict.filter(|_| news) {
            self.tell_token(record, &verdict);
        }
        if lost {
            record.life.end_process("what it may do went with its capability token");
        }
    }

    fn tell_token(&self, record: &Record, verdict: &Verdict) {
        let id = record.id.as_str();
        let event = Event::new("token").agent(id).text("outcome", verdict.word());
        let event = match verdict {
            Verdict::Counts { token, key, .. } => {
                let fields = [("agent", id), ("token", token.id()), ("key", key)];
                self.log.event(Level::Info, "token_counts", &fields);
                event.text("token", token.id()).text("key", key)
            }
            Verdict::Refused { token, why, .. } => {
                let token = token.as_ref().map_or("?", |token| token.id());
                self.log.event(
                    Level::Warn,
                    "token_refused",
                    &[("agent", id), ("token", token), ("why", why)],
                );
                event
                    .text("token", token)
                    .text("why", &self.without_secrets(why, Some(&record.manifest().secret)))
            }
        };
        self.journal.note(&event);
    }

    /// Looks at all tokens again: time has passed, or what they depend on has changed.
    pub(super) fn judge_tokens(&self) {
        for record in self.agents().iter().filter(|record| record.origin == Origin::Own) {
            self.judge_token(record);
        }
    }

    /// `revoke_token`.
    ///
    /// # Errors
    /// `bad_payload`: no id; `rejected`: too many are revoked; `busy`, `internal`: it can't be written.
    pub fn revoke_token(&self, order: RevokeToken) -> Result<Value, Failure> {
        let id = order.token_id;
        if !is_id(&id) {
            return Err(Failure::new(
                Code::BadPayload,
                "token_id must be the id of a token, or of a block of one",
            ));
        }
        let revoked = self.revoked_tokens.revoke(&id, unix_now()).map_err(|refusal| match refusal {
            Refusal::Full(why) => Failure::new(Code::Rejected, why),
            Refusal::Disk(error) => disk_failure("that a token is revoked", &error),
        })?;
        self.log.event(Level::Info, "token_revoked", &[("token", &id)]);
        let carry = |record: &&Arc<Record>| {
            record.token().is_some_and(|token| token.is_ok_and(|token| token.ids().any(|known| known == id)))
        };
        let agents = self.agents();
        let agents: Vec<&str> = agents.iter().filter(carry).map(|record| record.id.as_str()).collect();
        self.judge_tokens();
        Ok(json!({"token_id": id, "changed": revoked, "agents": agents}))
    }

    /// `list_revoked_tokens`.
    pub fn list_revoked_tokens(&self) -> Value {
        let table = self.revoked_tokens.table();
        table.iter().map(|(id, at)| json!({"token_id": id, "revoked_at": at})).collect()
    }
}
