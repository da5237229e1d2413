//! What the agents here are granted, and the admin's changes to it.

use super::arrive::disk_failure;
use super::messages::{Revoke, SetGrant};
use super::{Node, Origin, Record};
use crate::agent::manifest;
use crate::log::Level;
use crate::roster::grants::{Grant, Refusal, Word};
use crate::roster::quotas::{self, Quotas, OF_A_PROCESS};
use crate::wire::{Code, Failure};
use serde_json::{json, Value};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What the kernel enforces: a process that runs has it as it was when it began.
pub(super) const OF_THE_PROCESS: [&str; 3] = ["run", "sockets", crate::roster::groups::MANAGE_ROOT_AGENT];

impl Node {
    /// What an agent is granted now.
    pub fn grant_of(&self, record: &Record) -> Arc<Grant> {
        self.grant_by_token(record).unwrap_or_else(|| self.grants.of(&record.id, word(record.origin)))
    }

    /// The directories that an agent with `ManageRootAgent` reaches: of every other agent here its own, and
    /// what the operator put beside it. Sorted.
    pub fn directories_but_of(&self, id: &str) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let mut others: BTreeSet<String> = self.agents().iter().map(|record| record.id.clone()).collect();
        others.extend(self.declared());
        others.remove(id);
        let of = |name| others.iter().filter_map(|other| self.directory_of(other, name)).collect();
        (of("state"), of("config"))
    }

    /// `set_grant`.
    ///
    /// # Errors
    /// `bad_payload`: no such id, group, call or scope; `busy`, `internal`: it can't be written.
    pub fn set_grant(&self, order: SetGrant) -> Result<Value, Failure> {
        if order.grant == quotas::QUOTAS {
            self.check_raised(order.scope.as_ref())?;
        }
        self.change_grant(&order.agent_id, "granted", &order.grant, |grant| {
            grant.add(&order.grant, order.scope.as_ref()).map(|()| true)
        })
    }

    /// Workers have their limits when they are forked; what is lower then stays so.
    fn check_raised(&self, scope: Option<&Value>) -> Result<(), Failure> {
        let asked = scope.and_then(|scope| Quotas::read(scope).ok()).unwrap_or_default();
        let usual = self.config().quotas();
        let all = asked.over(&usual);
        let raised = OF_A_PROCESS
            .iter()
            .find(|(quota, _)| all.get(*quota).unwrap_or(u64::MAX) > usual.get(*quota).unwrap_or(u64::MAX));
        let Some((quota, _)) = raised else { return Ok(()) };
        let (name, most) = (quota.name(), usual.get(*quota).unwrap_or(0));
        let text = format!(
            "{name} can only narrow: every process begins with the configuration's agent_{name} ({most})"
        );
        Err(Failure::new(Code::BadPayload, text))
    }

    /// `revoke_grant`.
    ///
    /// # Errors
    /// As [`Node::set_grant`].
    pub fn revoke_grant(&self, order: Revoke) -> Result<Value, Failure> {
        self.change_grant(&order.agent_id, "revoked", &order.grant, |grant| grant.remove(&order.grant))
    }

    /// `list_grants`.
    pub fn list_grants(&self) -> Value {
        self.grants.to_json()
    }

    /// Lets an agent of the admin ask this machine's own servers: on a node that was made for it.
    ///
    /// # Errors
    /// It can't be written.
    pub fn name_this_machine(&self, id: &str) -> Result<(), Failure> {
        let scope = json!({"hosts": ["*", "127.0.0.1", "localhost", "::1"]});
        let changed = self.grants.change(id, Word::Admin, |grant| grant.add("http", Some(&scope)));
        changed.map_err(|refusal| match refusal {
            Refusal::Wrong(why) => Failure::new(Code::Internal, why),
            Refusal::Disk(error) => disk_failure("the grant", &error),
        })
    }

    fn change_grant(
        &self,
        id: &str,
        what: &str,
        name: &str,
        change: impl FnOnce(&mut Grant) -> Result<bool, String>,
    ) -> Result<Value, Failure> {
        let bad = |why: String| Failure::new(Code::BadPayload, why);
        manifest::check_id(id).map_err(|why| bad(format!("agent_id {id:?} {why}")))?;
        let record = self.agent(id);
        let word = record.as_ref().map_or(Word::Own, |record| word(record.origin));
        let before = record.as_ref().map_or_else(|| self.grants.of(id, word), |record| self.grant_of(record));
        let changed = self.grants.change(id, word, change).map_err(|refusal| match refusal {
            Refusal::Wrong(why) => bad(why),
            Refusal::Disk(error) => disk_failure("the grant", &error),
        })?;
        let after = self.grants.of(id, word);
        self.log.event(Level::Info, "grant_changed", &[("agent", id), (what, name)]);
        if let Some(record) = record {
            // With an entry of its own its token counts no more; that is told.
            self.judge_token(&record);
            let lost = OF_THE_PROCESS.iter().any(|name| before.has(name) && !after.has(name));
            let won = OF_THE_PROCESS.iter().any(|name| !before.has(name) && after.has(name));
            if lost {
                record.life.end_process("what it may do was revoked");
            } else if won || limits(&before) != limits(&after) {
                record.life.hibernate(Duration::ZERO);
            }
        }
        Ok(json!({"agent_id": id, "changed": changed, "grant": after.to_json()}))
    }
}

/// What of a grant the kernel bounds a process by, from its start on.
fn limits(grant: &Grant) -> Vec<Option<u64>> {
    OF_A_PROCESS.iter().map(|(quota, _)| grant.quotas().get(*quota)).collect()
}

fn word(origin: Origin) -> Word {
    match origin {
        Origin::Admin => Word::Admin,
        // Its own entry is all that the manager has.
        Origin::Own | Origin::Node => Word::Own,
    }
}
