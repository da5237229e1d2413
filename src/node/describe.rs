//! What a node says about itself.

use super::federation::TreeNode;
use super::Node;
use crate::sync::lock;
use serde_json::{json, Value};
use std::sync::atomic::{AtomicU64, Ordering};

impl Node {
    /// `describe_container`. `host` is this node's address as the asker sees it.
    pub fn describe(&self, host: &str) -> Value {
        let keys = &self.config().keys;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let agents = self.agents();
        let signers: Vec<Value> = agents
            .iter()
            .filter_map(|record| {
                let mut signer = record.sealed.as_ref()?.signer_json();
                // Null, where nobody signed.
                signer.as_object_mut()?.insert("agent_id".into(), record.id.clone().into());
                Some(signer)
            })
            .collect();
        let live = agents.iter().filter(|record| record.life.pid().is_some()).count();
        json!({
            "container_name": self.name(),
            "listen_host": host,
            "listen_port": self.port(),
            "children": self.place().children,
            "version": env!("CARGO_PKG_VERSION"),
            "uptime_s": self.started.elapsed().as_secs(),
            "python": self.pool.python_version(),
            "allow_subprocess": keys.allow_subprocess,
            "tls": self.config().tls.as_ref().map(|acceptor| acceptor.told()),
            "sandbox": self.pool.sandbox().level().to_string(),
            "signers": signers,
            "counters": {
                "requests": count(&self.counters.requests),
                "errors": count(&self.counters.errors),
                "hooks": count(&self.counters.hooks),
                "arrivals": count(&self.counters.arrivals),
                "departures": count(&self.counters.departures),
                "crashes": count(&self.counters.crashes),
                "bytes_in_flight": self.in_flight.held(),
                "agents": agents.len(),
                "live_agents": live,
                "parked_workers": self.pool.parked(),
                "open_transfers": self.outbox.undecided().len(),
                "ledger_entries": self.ledger.len(),
            },
            "limits": {
                "clock_skew_s": keys.clock_skew_s,
                "max_message_bytes": keys.max_message_bytes,
                "max_connections": keys.max_connections,
                "max_bytes_in_flight": keys.most_in_flight(),
                "max_agents": keys.max_agents,
                "max_live_agents": keys.max_live_agents,
                "max_trace": keys.max_trace,
                "inbox_length": keys.inbox_length,
                "hook_timeout_s": keys.hook_timeout_s,
                "idle_timeout_s": keys.idle_timeout_s,
                "agent_memory_bytes": keys.agent_memory_bytes,
                "agent_open_files": keys.agent_open_files,
                "agent_file_bytes": keys.agent_file_bytes,
                "agent_processes": keys.agent_processes,
                "agent_cpu_s": keys.agent_cpu_s,
                "agent_state_bytes": keys.agent_state_bytes,
                "agent_calls_per_minute": keys.agent_calls_per_minute,
                "agent_read_bytes_per_minute": keys.agent_read_bytes_per_minute,
                "agent_http_bytes_per_hour": keys.agent_http_bytes_per_hour,
            },
        })
    }

    /// What an agent is told of itself when it asks: whether it lives here, how often it has come, and
    /// where it went if it has left. So whoever sent it can follow it with its own secret.
    pub fn standing(&self, id: &str) -> Value {
        let registry = lock(&self.registry);
        let record = registry.agent(id);
        json!({
            "here": record.is_some(),
            "sequence": record.map(|record| record.sequence),
            "moved_to": registry.departed_to(id),
        })
    }

    /// This node's place in its own tree, with the nodes below it.
    pub fn place(&self) -> TreeNode {
        let tree = self.tree();
        tree.find(self.name()).cloned().unwrap_or(tree)
    }
}
