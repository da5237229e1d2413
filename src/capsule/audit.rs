//! Audit events: one JSON object for each decision, for logs that machines read.
//!
//! | field | what |
//! |---|---|
//! | `event_type`, `schema_version` | `agent_capsule_audit`, 1 |
//! | `operation` | `inspect`, `verify`, `unpack` or `scan` |
//! | `disposition` | `allow`, `review` (valid, but the key is not trusted) or `block` |
//! | `subject` | the file, as it was named |
//! | `policy` | the policy in force |
//! | `reasons` | why |
//! | `result` | what the operation reports; for a failure `{"verification":"failed","verification_error":…}` |

use super::json::Object;
use super::{CapsuleError, Policy, Trust, TrustStatus};

/// What is to be done with a capsule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Go on.
    Allow,
    /// Someone should look at it.
    Review,
    /// Do not use it.
    Block,
}

impl Disposition {
    /// As reports call it.
    pub fn name(self) -> &'static str {
        match self {
            Disposition::Allow => "allow",
            Disposition::Review => "review",
            Disposition::Block => "block",
        }
    }
}

/// An event.
pub fn event(
    operation: &str,
    subject: &str,
    policy: &Policy,
    disposition: Disposition,
    reasons: &[String],
    result: String,
) -> String {
    Object::new()
        .text("event_type", "agent_capsule_audit")
        .number("schema_version", 1)
        .text("operation", operation)
        .text("disposition", disposition.name())
        .text("subject", subject)
        .raw("policy", policy.json())
        .texts("reasons", reasons)
        .raw("result", result)
        .finish()
}

/// The event of a capsule that was verified.
pub fn verified(
    operation: &str,
    subject: &str,
    policy: &Policy,
    trust: Option<&Trust>,
    result: String,
) -> String {
    let (disposition, reason) = match trust {
        Some(trust) if trust.status != TrustStatus::Trusted => (Disposition::Review, trust.reason),
        _ => (Disposition::Allow, "operation verified successfully"),
    };
    event(operation, subject, policy, disposition, &[reason.into()], result)
}

/// The event of an operation that failed.
pub fn failed(operation: &str, subject: &str, policy: &Policy, error: &CapsuleError) -> String {
    let reason = error.reason();
    let result = Object::new().text("verification", "failed").text("verification_error", &reason).finish();
    event(operation, subject, policy, Disposition::Block, &[reason], result)
}
