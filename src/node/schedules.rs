//! Schedules on this node: what the manager asks for, and the deliveries when they are due.

use super::arrive::disk_failure;
use super::{Node, Record};
use crate::journal::Event;
use crate::log::Level;
use crate::roster::schedules::{Due, Edit, Moment, New, Refusal};
use crate::wire::{Code, Failure};
use serde_json::{json, Value};
use std::sync::Arc;
use std::time::Instant;

/// Now, by both clocks.
pub(super) fn now() -> Moment {
    Moment { wall: crate::wire::unix_now(), steady: Instant::now() }
}

impl Node {
    /// `list_schedules`.
    pub fn list_schedules(&self) -> Value {
        self.schedules.list(now()).into()
    }

    /// The schedules of one agent.
    pub fn schedules_of(&self, id: &str) -> Value {
        let mut all = self.schedules.list(now());
        all.retain(|schedule| schedule["agent_id"] == id);
        all.into()
    }

    /// `request_schedule_prompt`: a new schedule, as `list_schedules` tells it.
    ///
    /// # Errors
    /// `unknown_agent`, `bad_payload`, `busy` (as many as there may be; a full disk), `internal`.
    pub fn add_schedule(&self, new: New) -> Result<Value, Failure> {
        self.agent(&new.agent_id).ok_or_else(|| self.unknown_agent(&new.agent_id))?;
        let told = self.schedules.add(new, now()).map_err(refused)?;
        self.note_schedule("requested", &told);
        Ok(told)
    }

    /// `edit_schedule`: what is given replaces what was.
    ///
    /// # Errors
    /// As [`Node::add_schedule`]; `bad_payload` if there is no such schedule.
    pub fn edit_schedule(&self, edit: Edit) -> Result<Value, Failure> {
        if let Some(id) = &edit.agent_id {
            self.agent(id).ok_or_else(|| self.unknown_agent(id))?;
        }
        let told = self.schedules.edit(edit, now()).map_err(refused)?;
        self.note_schedule("edited", &told);
        Ok(told)
    }

    /// `cancel_schedule`: it is gone; a delivery under way goes on.
    ///
    /// # Errors
    /// `bad_payload` if there is no such schedule; `busy`, `internal`: it can't be written.
    pub fn cancel_schedule(&self, id: &str) -> Result<Value, Failure> {
        let told = self.schedules.cancel(id, now()).map_err(refused)?;
        self.note_schedule("cancelled", &told);
        Ok(told)
    }

    /// `fire_schedule_now`: one delivery more; when it is due next stays.
    ///
    /// # Errors
    /// `bad_payload` if there is no such schedule, `busy` while its last delivery is not over or the agent's
    /// inbox is full, `unknown_agent`.
    pub fn fire_schedule(self: &Arc<Self>, id: &str) -> Result<Value, Failure> {
        let due = self.schedules.fire(id, now()).map_err(refused)?;
        let told = json!({"id": due.id, "agent_id": due.agent_id});
        self.note_schedule("fired", &told);
        self.deliver(due)?;
        Ok(told)
    }

    /// Hands over what is due.
    pub(super) fn pursue_schedules(self: &Arc<Self>) {
        if self.listening.get().is_none() {
            return; // an agent may need to know where it is
        }
        let found = self.schedules.due(now());
        if let Some(error) = found.not_written {
            self.not_written("which schedules have fired", &error);
        }
        for missed in found.missed {
            let (id, agent) = (&missed.id, &missed.agent_id);
            self.log.event(Level::Warn, "schedule_missed", &[("schedule", id), ("agent", agent)]);
        }
        for due in found.due {
            let _ = self.deliver(due); // said there
        }
    }

    fn deliver(self: &Arc<Self>, due: Due) -> Result<(), Failure> {
        let Due { id, agent_id, message, run } = due;
        let fields = [("schedule", &*id), ("agent", &*agent_id)];
        self.log.event(Level::Info, "schedule_fired", &fields);
        let (node, of) = (Arc::clone(self), id.clone());
        let posted = self.agent(&agent_id).ok_or_else(|| self.unknown_agent(&agent_id)).and_then(|record| {
            let record: &Arc<Record> = &record;
            self.post(record, message, move |ended| node.schedule_ended(&of, run, ended.err()))
        });
        posted.inspect_err(|failure| self.schedule_ended(&id, run, Some(failure.clone())))
    }

    fn schedule_ended(&self, id: &str, run: u64, failure: Option<Failure>) {
        let outcome = failure.as_ref().map_or("ok", |failure| failure.code.as_str());
        self.journal
            .note(&Event::new("schedule").text("what", "delivered").text("id", id).text("outcome", outcome));
        let told = failure.map(|failure| failure.to_string());
        if let Some(error) = &told {
            self.log.event(Level::Warn, "schedule_failed", &[("schedule", id), ("error", error)]);
        }
        if let Err(error) = self.schedules.ended(id, run, told) {
            self.not_written("meta/schedules.json", &error);
        }
    }

    fn note_schedule(&self, what: &'static str, told: &Value) {
        let text = |name: &str| told[name].as_str().unwrap_or_default().to_owned();
        let (id, agent) = (text("id"), text("agent_id"));
        self.log.event(
            Level::Info,
            "schedule_changed",
            &[("schedule", &id), ("agent", &agent), ("what", what)],
        );
        self.journal.note(&Event::new("schedule").agent(&agent).text("what", what).text("id", &id));
        self.journal.settle();
    }
}

fn refused(refusal: Refusal) -> Failure {
    match refusal {
        Refusal::Wrong(why) => Failure::new(Code::BadPayload, why),
        Refusal::Busy(why) => Failure::new(Code::Busy, why),
        Refusal::Disk(error) => disk_failure("the schedules", &error),
    }
}
