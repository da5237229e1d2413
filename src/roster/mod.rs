//! Who may do what: data and decisions, no I/O but its own files.

pub mod grants;
pub mod groups;
pub mod identities;
pub mod quotas;
pub mod revoked_tokens;
pub mod schedules;
pub mod scope;
pub mod snapshot;
pub mod token;
pub mod topology;
