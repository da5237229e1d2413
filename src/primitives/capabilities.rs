//! What an agent may call: what the node grants, narrowed to what the agent asks for.

use crate::agent::host::CallError;

/// The grantable calls by tool group.
const GROUPS: [(&str, &[&str]); 6] = [
    ("files", &["resources", "read_file", "search_files"]),
    ("process", &["run"]),
    ("http", &["http_request"]),
    ("mobility", &["clone", "move", "return_to_stage"]),
    ("federation", &["networks", "trace", "stage"]),
    ("messaging", &["wake"]),
];

/// Calls that concern nobody but the agent itself; they need no grant.
const FREE: [&str; 6] = ["log", "mark", "capabilities", "state_dir", "prompt", "wake"];

/// What an agent asks for, in names of calls or of groups. Each that is there narrows.
#[derive(Debug, Clone, Copy, Default)]
pub struct Asked<'a> {
    /// Its source's `AGENT_CAPABILITIES`.
    pub source: Option<&'a [String]>,
    /// Its capsule's `requested_capabilities`.
    pub capsule: Option<&'a [String]>,
}

impl Asked<'_> {
    fn names(&self, group: &str, call: &str) -> bool {
        let names = |asked: &[String]| asked.iter().any(|name| name == group || name == call);
        self.source.is_none_or(names) && self.capsule.is_none_or(names)
    }
}

/// The names that an agent may call, sorted.
pub fn list(asked: Asked<'_>, allow_subprocess: bool) -> Vec<&'static str> {
    let mut names: Vec<_> = GROUPS
        .iter()
        .flat_map(|(group, calls)| calls.iter().map(move |call| (*group, *call)))
        .filter(|(_, call)| allow_subprocess || *call != "run")
        .filter(|(group, call)| asked.names(group, call))
        .map(|(_, call)| call)
        .collect();
    names.sort_unstable();
    names
}

/// Whether an agent may make this call.
///
/// # Errors
/// `forbidden`, naming what is missing.
pub fn check(name: &str, asked: Asked<'_>, allow_subprocess: bool) -> Result<(), CallError> {
    let Some((group, _)) = GROUPS.iter().find(|(_, calls)| calls.contains(&name)) else { return Ok(()) };
    if FREE.contains(&name) || list(asked, allow_subprocess).contains(&name) {
        return Ok(());
    }
    let why = if name == "run" && !allow_subprocess {
        "the node's configuration has \"allow_subprocess\": false".to_owned()
    } else {
        let source = Asked { capsule: None, ..asked };
        let whose = match source.names(group, name) {
            false => "the agent's AGENT_CAPABILITIES",
            true => "its capsule's requested_capabilities",
        };
        format!("{whose} name neither {name:?} nor its group {group:?}")
    };
    Err(CallError::new("forbidden", format!("{name} is not granted: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_narrows_what_is_granted() {
        let all = Asked::default();
        let names = ["files".to_owned(), "move".to_owned()];
        let asked = Asked { source: Some(&names), capsule: None };
        assert_eq!(list(asked, true), ["move", "read_file", "resources", "search_files"]);
        assert!(list(all, true).contains(&"run") && !list(all, false).contains(&"run"));
        assert!(check("run", asked, true).unwrap_err().message.contains("process"));
        assert!(check("run", all, false).unwrap_err().message.contains("allow_subprocess"));
        assert!(check("log", Asked { source: Some(&[]), capsule: None }, false).is_ok());
        assert_eq!(check("clone", asked, true).unwrap_err().code, "forbidden");
        let sealed = ["read_file".to_owned(), "run".to_owned()];
        let both = Asked { capsule: Some(&sealed), ..asked };
        assert_eq!(list(both, true), ["read_file"], "both must name it");
        assert!(check("move", both, true).unwrap_err().message.contains("requested_capabilities"));
    }
}
