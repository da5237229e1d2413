//! Agents on one node: hooks, memory, errors, ends. Real python3 processes.

#[path = "support/mod.rs"]
mod support;
use serde_json::json;
use support::lab::{agent, until, Lab};

#[test]
fn an_agent_is_deployed_activated_and_answers() {
    let lab = Lab::start("one");
    let source = agent("echo", "def on_activate(self, ctx, payload):\n    return {'here': ctx.container_name, 'got': payload}\ndef on_message(self, ctx, message):\n    return [message, ctx.agent_id, ctx.trace]");
    let result = lab.deploy(&source);
    assert_eq!(result["activate_result"], json!({"here": "one", "got": {}}), "{result}");
    assert_eq!(result["status"], "active");
    assert_eq!(lab.invoke("echo", json!({"a": 1})), json!([{"a": 1}, "echo", []]));
}
