//! What an agent may call: what the node grants, narrowed to what the agent asks for.

use crate::agent::host::CallError;
use crate::node::config::nearest;
use crate::roster::grants::Grant;
use crate::roster::groups::{self, GROUPS};

/// Calls that concern nobody but the agent itself; they need no grant.
const FREE: [&str; 7] = ["log", "mark", "capabilities", "state_dir", "prompt", "wake", "attenuate"];

/// The group that needs more than a grant.
const SCHEDULING: &str = "scheduling";

/// What an agent asks for, in names of calls or of groups. Each that is there narrows.
#[derive(Debug, Clone, Copy, Default)]
pub struct Asked<'a> {
    /// Its source's `AGENT_CAPABILITIES`.
    pub source: Option<&'a [String]>,
    /// Its capsule's `requested_capabilities`.
    pub capsule: Option<&'a [String]>,
}

/// What one agent may do here.
#[derive(Clone, Copy)]
pub struct Allowed<'a> {
    /// Its id.
    pub agent: &'a str,
    /// What it asks for.
    pub asked: Asked<'a>,
    /// What the node grants it.
    pub grant: &'a Grant,
    /// Whether commands run here at all.
    pub subprocess: bool,
    /// Whether it is the node's manager: only its socket carries the scheduling requests.
    pub manager: bool,
}

impl Asked<'_> {
    fn names(&self, group: &str, call: &str) -> bool {
        let names = |asked: &[String]| asked.iter().any(|name| name == group || name == call);
        self.source.is_none_or(names) && self.capsule.is_none_or(names)
    }
}

impl<'a> Asked<'a> {
    /// Names that this node does not have, and where each stands.
    pub fn unknown(self) -> impl Iterator<Item = (&'static str, &'a str)> {
        let lists = [("AGENT_CAPABILITIES", self.source), ("requested_capabilities", self.capsule)];
        let all = |(of, names): (&'static str, Option<&'a [String]>)| {
            names.unwrap_or_default().iter().map(move |name| (of, name.as_str()))
        };
        lists.into_iter().flat_map(all).filter(|(_, name)| !is_known(name))
    }
}

fn known() -> impl Iterator<Item = &'static str> {
    groups::names().chain(FREE)
}

/// Whether a name is that of a group or a call.
pub fn is_known(name: &str) -> bool {
    known().any(|known| known == name)
}

/// The group or call whose name is nearest to one that is not known and not long.
pub fn near(name: &str) -> Option<&'static str> {
    nearest(name, known())
}

impl Allowed<'_> {
    /// The names that the agent may call or use, sorted.
    pub fn list(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = GROUPS
            .iter()
            .flat_map(|(_, calls)| calls.iter().copied())
            .filter(|call| self.has(call) && !FREE.contains(call))
            .collect();
        let root = groups::MANAGE_ROOT_AGENT;
        names.extend(self.has(root).then_some(root));
        names.sort_unstable();
        names
    }

    /// Whether a call or a capability is the agent's.
    pub fn has(&self, name: &str) -> bool {
        let group = groups::of_call(name).unwrap_or(name);
        self.grant.has(name)
            && self.asked.names(group, name)
            && (self.subprocess || name != "run")
            && (self.manager || group != SCHEDULING)
    }

    /// Whether the agent reaches other agents' files.
    ///
    /// # Errors
    /// `forbidden`, naming what is missing.
    pub fn check_root(&self) -> Result<(), CallError> {
        let root = groups::MANAGE_ROOT_AGENT;
        match (self.has(root), self.grant.has(root)) {
            (true, _) => Ok(()),
            (_, true) => Err(CallError::new("forbidden", format!("{} does not ask for {root}", self.agent))),
            _ => Err(CallError::new("forbidden", format!("the node does not grant {} {root}", self.agent))),
        }
    }

    /// Whether the agent may make this call.
    ///
    /// # Errors
    /// `forbidden`, naming what is missing.
    pub fn check(&self, name: &str) -> Result<(), CallError> {
        let Some(group) = groups::of_call(name) else { return Ok(()) };
        if FREE.contains(&name) || self.has(name) {
            return Ok(());
        }
        let why = if group == SCHEDULING && !self.manager {
            "only the manager's socket carries scheduling requests".to_owned()
        } else if name == "run" && !self.subprocess {
            "the node's configuration has \"allow_subprocess\": false".to_owned()
        } else if !self.grant.has(name) {
            format!("the node grants {} neither {name:?} nor its group {group:?}", self.agent)
        } else {
            let source = Asked { capsule: None, ..self.asked };
            let whose = match source.names(group, name) {
                false => "the agent's AGENT_CAPABILITIES",
                true => "its capsule's requested_capabilities",
            };
            format!("{whose} name neither {name:?} nor its group {group:?}")
        };
        Err(CallError::new("forbidden", format!("{name} is not granted: {why}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(names: &[&str]) -> Grant {
        let mut grant = Grant::default();
        names.iter().for_each(|name| grant.add(name, None).unwrap());
        grant
    }

    #[test]
    fn what_is_asked_for_narrows_what_is_granted() {
        let all = granted(&["files", "process", "mobility", "federation", "messaging"]);
        let allowed =
            |asked, subprocess| Allowed { agent: "a", asked, grant: &all, subprocess, manager: false };
        let names = ["files".to_owned(), "move".to_owned(), "http".to_owned()];
        let asked = Asked { source: Some(&names), capsule: None };
        assert_eq!(allowed(asked, true).list(), ["move", "read_file", "resources", "search_files"]);
        let any = Asked::default();
        assert!(allowed(any, true).has("run") && !allowed(any, false).has("run"));
        let why = |asked, subprocess, call| allowed(asked, subprocess).check(call).unwrap_err();
        assert!(why(asked, true, "run").message.contains("process"));
        assert!(why(any, false, "run").message.contains("allow_subprocess"));
        assert!(why(any, true, "http_request").message.contains("the node grants a neither"));
        assert!(allowed(Asked { source: Some(&[]), capsule: None }, false).check("log").is_ok());
        assert_eq!(why(asked, true, "clone").code, "forbidden");
        let sealed = ["read_file".to_owned(), "run".to_owned()];
        let both = Asked { capsule: Some(&sealed), ..asked };
        assert_eq!(allowed(both, true).list(), ["read_file"], "both must name it");
        let scheduling = granted(&["scheduling"]);
        let with = |manager| Allowed { manager, grant: &scheduling, ..allowed(any, true) };
        assert!(with(true).check("edit_schedule").is_ok() && with(true).list().len() == 4);
        assert!(with(false).check("edit_schedule").unwrap_err().message.contains("only the manager's"));
        assert_eq!(with(false).list(), [""; 0], "a grant alone does not do it");
        assert!(why(both, true, "move").message.contains("requested_capabilities"));
        assert!(
            !allowed(any, true).has("x")
                && !allowed(any, true).list().contains(&"wake")
                && allowed(asked, true).check("wake").is_ok()
        );
    }

    #[test]
    fn a_name_that_no_node_has_is_found_and_the_nearest_told() {
        let source = ["fils".to_owned(), "messaging".to_owned(), "wake".to_owned()];
        let capsule = ["Files".to_owned(), "socks".to_owned()];
        let asked = Asked { source: Some(&source), capsule: Some(&capsule) };
        let unknown: Vec<_> = asked.unknown().collect();
        assert_eq!(
            unknown,
            [
                ("AGENT_CAPABILITIES", "fils"),
                ("requested_capabilities", "Files"),
                ("requested_capabilities", "socks")
            ]
        );
        assert_eq!(
            (near("fils"), near("Files"), near("socks")),
            (Some("files"), Some("files"), Some("sockets"))
        );
    }
}
