//! The calls that can be granted, by tool group.

/// A group and its calls.
pub type Group = (&'static str, &'static [&'static str]);

/// Every group, in the order of the documents.
pub const GROUPS: [Group; 9] = [
    ("files", &["resources", "read_file", "search_files"]),
    ("process", &["run"]),
    ("http", &["http_request"]),
    ("mobility", &["clone", "move", "return_to_stage"]),
    ("federation", &["networks", "trace", "stage"]),
    ("messaging", &["wake", "send"]),
    ("sockets", &["sockets"]),
    ("scheduling", &["request_schedule_prompt", "cancel_schedule", "fire_schedule_now", "edit_schedule"]),
    ("management", &["agent_status", "deploy_log", "agent_files", "read_agent_file", "write_agent_file"]),
];

/// The capability that reaches other agents' files. It is in no group.
pub const MANAGE_ROOT_AGENT: &str = "ManageRootAgent";

/// What agents get that the admin deployed or sent, unless they have a grant of their own.
pub const OF_THE_ADMIN: [&str; 7] =
    ["files", "process", "http", "mobility", "federation", "messaging", "sockets"];

/// What agents get that came on their own signature.
pub const OF_STRANGERS: [&str; 4] = ["files", "federation", "mobility", "messaging"];

/// The group that a call is in.
pub fn of_call(call: &str) -> Option<&'static str> {
    GROUPS.iter().find(|(_, calls)| calls.contains(&call)).map(|(group, _)| *group)
}

/// The calls of a group.
pub fn calls(group: &str) -> Option<&'static [&'static str]> {
    GROUPS.iter().find(|(name, _)| *name == group).map(|(_, calls)| *calls)
}

/// Every name that can be granted: groups, calls and the capability.
pub fn names() -> impl Iterator<Item = &'static str> {
    let both = GROUPS.iter().flat_map(|(group, calls)| std::iter::once(group).chain(calls.iter()));
    both.copied().chain([MANAGE_ROOT_AGENT])
}

/// Every call and capability, without the groups; of names that stand for both, once.
pub fn calls_of_all() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().flat_map(|(_, calls)| calls.iter().copied()).chain([MANAGE_ROOT_AGENT])
}
