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

/// The names that an agent may call, sorted. `asked` is its `AGENT_CAPABILITIES`: names of calls or
/// of groups; absent: everything that it is granted.
pub fn list(asked: Option<&[String]>, allow_subprocess: bool) -> Vec<&'static str> {
    let mut names: Vec<_> = GROUPS
        .iter()
        .flat_map(|(group, calls)| calls.iter().map(move |call| (*group, *call)))
        .filter(|(_, call)| allow_subprocess || *call != "run")
        .filter(|(group, call)| {
            asked.is_none_or(|asked| asked.iter().any(|name| name == group || name == call))
        })
        .map(|(_, call)| call)
        .collect();
    names.sort_unstable();
    names
}

/// Whether an agent may make this call.
///
/// # Errors
/// `forbidden`, naming what is missing.
pub fn check(name: &str, asked: Option<&[String]>, allow_subprocess: bool) -> Result<(), CallError> {
    let Some((group, _)) = GROUPS.iter().find(|(_, calls)| calls.contains(&name)) else { return Ok(()) };
    if FREE.contains(&name) || list(asked, allow_subprocess).contains(&name) {
        return Ok(());
    }
    let why = if name == "run" && !allow_subprocess {
        "the node's configuration has \"allow_subprocess\": false".to_owned()
    } else {
        format!("the agent's AGENT_CAPABILITIES name neither {name:?} nor its group {group:?}")
    };
    Err(CallError::new("forbidden", format!("{name} is not granted: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_narrows_what_is_granted() {
        let asked = ["files".to_owned(), "move".to_owned()];
        assert_eq!(list(Some(&asked), true), ["move", "read_file", "resources", "search_files"]);
        assert!(list(None, true).contains(&"run") && !list(None, false).contains(&"run"));
        assert!(check("run", Some(&asked), true).unwrap_err().message.contains("process"));
        assert!(check("run", None, false).unwrap_err().message.contains("allow_subprocess"));
        assert!(check("log", Some(&[]), false).is_ok());
        assert_eq!(check("clone", Some(&asked), true).unwrap_err().code, "forbidden");
    }
}
