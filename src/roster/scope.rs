//! What narrows a grant: which paths, commands, hosts, destinations.

use serde_json::{json, Map, Value};
use std::net::IpAddr;

/// How many entries a list of a scope has at most, and how long each is, bytes.
const ENTRIES: usize = 1000;
const ENTRY_BYTES: usize = 1024;

/// What one call is narrowed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Of `read_file`, `search_files`, `resources`: what is at or below one of these, relative to
    /// `data_root`.
    Paths(Vec<String>),
    /// Of `run`: the first element of the argument list is one of these.
    Commands(Vec<String>),
    /// Of `http_request`.
    Http {
        /// `host`, `host:port`, `*.host`, `*`.
        hosts: Vec<String>,
        /// Upper case; empty: any.
        methods: Vec<String>,
    },
    /// Of `clone`, `move`, `return_to_stage`: names of nodes.
    Destinations(Vec<String>),
    /// All of these at once: what several speakers say together. It stands in no file.
    All(Vec<Scope>),
}

/// How far a host is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Named {
    /// Not at all.
    No,
    /// By a pattern, or because nothing narrows: enough for any address but this machine's own and its
    /// neighbours'.
    ByPattern,
    /// By its name or number.
    Exactly,
}

impl Scope {
    /// Reads the scope of a call.
    ///
    /// # Errors
    /// The call takes none; a member is missing, unknown or mistyped.
    pub fn read(call: &str, scope: &Value) -> Result<Scope, String> {
        let members = scope.as_object().ok_or_else(|| format!("the scope of {call} must be an object"))?;
        let known: &[&str] = match call {
            "read_file" | "search_files" | "resources" => &["paths"],
            "run" => &["commands"],
            "http_request" => &["hosts", "methods"],
            "clone" | "move" | "return_to_stage" => &["destinations"],
            _ => return Err(format!("{call} takes no scope")),
        };
        if let Some(odd) = members.keys().find(|name| !known.contains(&name.as_str())) {
            return Err(format!("the scope of {call} has no member {odd:?}; it has {}", known.join(", ")));
        }
        if members.is_empty() {
            return Err(format!("the scope of {call} names nothing; it has {}", known.join(", ")));
        }
        let list =
            |name: &str| texts(members, name).map_err(|why| format!("the scope of {call}: {name:?} {why}"));
        Ok(match call {
            "run" => Scope::Commands(list("commands")?),
            "http_request" => {
                let hosts = match members.contains_key("hosts") {
                    true => list("hosts")?,
                    false => vec!["*".to_owned()],
                };
                let methods = list("methods")?.iter().map(|method| method.to_ascii_uppercase()).collect();
                Scope::Http { hosts: hosts.iter().map(|host| host.to_ascii_lowercase()).collect(), methods }
            }
            "clone" | "move" | "return_to_stage" => Scope::Destinations(list("destinations")?),
            _ => {
                let paths = list("paths")?;
                if let Some(odd) = paths.iter().find(|path| cleaned(path).is_none()) {
                    return Err(format!("the scope of {call}: {odd:?} is no relative path without \"..\""));
                }
                Scope::Paths(paths)
            }
        })
    }

    /// What two speakers leave of a call, where `None` narrows nothing. A host counts as named exactly only if
    /// both name it so: one that narrows a pattern to a name must not reach this machine's own servers by that.
    pub fn of_both(call: &str, one: Option<&Scope>, other: Option<&Scope>) -> Option<Scope> {
        one.or(other)?;
        let any_host = || Scope::Http { hosts: vec!["*".to_owned()], methods: Vec::new() };
        let parts = [one, other].map(|scope| match scope {
            None if call == "http_request" => Some(any_host()),
            scope => scope.cloned(),
        });
        let flat = parts.into_iter().flatten().flat_map(|scope| match scope {
            Scope::All(scopes) => scopes,
            scope => vec![scope],
        });
        let mut all: Vec<Scope> = Vec::new();
        for scope in flat {
            if !all.contains(&scope) {
                all.push(scope);
            }
        }
        match all.len() {
            1 => all.pop(),
            _ => Some(Scope::All(all)),
        }
    }

    /// As it stands in the file.
    pub fn to_json(&self) -> Value {
        if let Scope::All(scopes) = self {
            return json!({"all": scopes.iter().map(Scope::to_json).collect::<Vec<_>>()});
        }
        let mut members = Map::new();
        let mut put = |name: &str, list: &[String]| members.insert(name.into(), list.to_vec().into());
        match self {
            Scope::Paths(paths) => drop(put("paths", paths)),
            Scope::Commands(commands) => drop(put("commands", commands)),
            Scope::Destinations(destinations) => drop(put("destinations", destinations)),
            Scope::Http { hosts, methods } => {
                put("hosts", hosts);
                if !methods.is_empty() {
                    put("methods", methods);
                }
            }
            Scope::All(_) => {}
        }
        members.into()
    }

    /// Whether a path below `data_root` is in this scope.
    pub fn has_path(&self, path: &str) -> bool {
        if let Scope::All(scopes) = self {
            return scopes.iter().all(|scope| scope.has_path(path));
        }
        let Scope::Paths(paths) = self else { return true };
        let Some(path) = cleaned(path) else { return false };
        paths.iter().filter_map(|known| cleaned(known)).any(|known| path.starts_with(&known))
    }

    /// Whether a command is in this scope: as it is written, no search, no shell.
    pub fn has_command(&self, command: &str) -> bool {
        match self {
            Scope::Commands(commands) => commands.iter().any(|known| known == command),
            Scope::All(scopes) => scopes.iter().all(|scope| scope.has_command(command)),
            _ => true,
        }
    }

    /// Whether a node's name is in this scope.
    pub fn has_destination(&self, name: &str) -> bool {
        match self {
            Scope::Destinations(destinations) => destinations.iter().any(|known| known == name),
            Scope::All(scopes) => scopes.iter().all(|scope| scope.has_destination(name)),
            _ => true,
        }
    }

    /// Whether a method is in this scope.
    pub fn has_method(&self, method: &str) -> bool {
        match self {
            Scope::Http { methods, .. } => methods.is_empty() || methods.iter().any(|known| known == method),
            Scope::All(scopes) => scopes.iter().all(|scope| scope.has_method(method)),
            _ => true,
        }
    }

    /// How far a host is named. `host` without brackets.
    pub fn names_host(&self, host: &str, port: u16) -> Named {
        if let Scope::All(scopes) = self {
            return scopes.iter().map(|scope| scope.names_host(host, port)).min().unwrap_or(Named::No);
        }
        let Scope::Http { hosts, .. } = self else { return Named::ByPattern };
        let host = host.to_ascii_lowercase();
        let host = host.strip_suffix('.').unwrap_or(&host);
        let fits = |known: &String| {
            let (name, its_port) = split_port(known);
            if its_port.is_some_and(|its| its != port) {
                return Named::No;
            }
            match name.strip_prefix('*') {
                Some("") => Named::ByPattern,
                Some(end) if end.starts_with('.') && host.len() > end.len() && host.ends_with(end) => {
                    Named::ByPattern
                }
                Some(_) => Named::No,
                None if name == host => Named::Exactly,
                None => Named::No,
            }
        };
        let all: Vec<Named> = hosts.iter().map(fits).collect();
        [Named::Exactly, Named::ByPattern].into_iter().find(|named| all.contains(named)).unwrap_or(Named::No)
    }
}

/// Whether an address is of this machine or its link, so that it must be named to be asked.
pub fn must_be_named(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            ip.is_loopback() || ip.is_link_local() || ip.is_unspecified() || ip.octets()[0] == 0
        }
        IpAddr::V6(ip) => {
            let inner = ip.to_ipv4_mapped().or_else(|| {
                // The old compatible form, `::127.0.0.1`; `::1` is none.
                let low = u128::from(ip);
                (low >> 32 == 0 && low > 0xffff).then(|| std::net::Ipv4Addr::from(low as u32))
            });
            let link_local = ip.segments()[0] & 0xffc0 == 0xfe80;
            ip.is_loopback()
                || ip.is_unspecified()
                || link_local
                || inner.is_some_and(|inner| must_be_named(IpAddr::V4(inner)))
        }
    }
}

/// `host`, `host:port`, `[v6]:port`, `v6`.
fn split_port(text: &str) -> (&str, Option<u16>) {
    if let Some(rest) = text.strip_prefix('[') {
        return match rest.split_once(']') {
            Some((host, port)) => (host, port.strip_prefix(':').and_then(|port| port.parse().ok())),
            None => (text, None),
        };
    }
    match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') => (host, port.parse().ok().or(Some(0))),
        _ => (text, None),
    }
}

/// The steps of a relative path; none, if it leads up or is absolute.
fn cleaned(path: &str) -> Option<Vec<&str>> {
    if path.starts_with('/') {
        return None;
    }
    let mut steps = Vec::new();
    for step in path.split('/') {
        match step {
            "" | "." => {}
            ".." => return None,
            step => steps.push(step),
        }
    }
    Some(steps)
}

fn texts(members: &Map<String, Value>, name: &str) -> Result<Vec<String>, String> {
    let Some(value) = members.get(name) else { return Ok(Vec::new()) };
    let list = value.as_array().ok_or("must be a list of strings")?;
    if list.len() > ENTRIES {
        return Err(format!("has {} entries, more than {ENTRIES}", list.len()));
    }
    list.iter()
        .map(|entry| match entry.as_str() {
            Some(text) if text.is_empty() || text.len() > ENTRY_BYTES => {
                Err(format!("has an entry that is empty or longer than {ENTRY_BYTES} bytes"))
            }
            Some(text) => Ok(text.to_owned()),
            None => Err("must be a list of strings".to_owned()),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_says_what_is_wrong_with_it() {
        for (call, scope, part) in [
            ("read_file", json!([]), "must be an object"),
            ("read_file", json!({"path": ["a"]}), "no member \"path\""),
            ("read_file", json!({}), "names nothing"),
            ("read_file", json!({"paths": "a"}), "list of strings"),
            ("read_file", json!({"paths": ["../a"]}), "\"../a\""),
            ("read_file", json!({"paths": ["/a"]}), "\"/a\""),
            ("run", json!({"commands": [1]}), "list of strings"),
            ("run", json!({"commands": [""]}), "empty"),
            ("log", json!({"x": []}), "takes no scope"),
        ] {
            let why = Scope::read(call, &scope).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn a_path_is_in_its_scope_step_by_step() {
        let scope = Scope::read("read_file", &json!({"paths": ["docs/", "a/b.txt"]})).unwrap();
        for path in ["docs", "docs/x", "./docs//x", "a/b.txt"] {
            assert!(scope.has_path(path), "{path}");
        }
        for path in ["docs2", "a", "a/b.txt2", "docs/../a", "/docs", "", "."] {
            assert!(!scope.has_path(path), "{path}");
        }
    }

    #[test]
    fn a_host_is_named_exactly_by_pattern_or_not() {
        let scope = json!({"hosts": ["API.example.org:443", "*.lab.example", "[::1]:80", "127.0.0.1"], "methods": ["get"]});
        let scope = Scope::read("http_request", &scope).unwrap();
        for (host, port, named) in [
            ("api.example.org", 443, Named::Exactly),
            ("api.example.org.", 443, Named::Exactly),
            ("api.example.org", 80, Named::No),
            ("x.lab.example", 1, Named::ByPattern),
            ("lab.example", 1, Named::No),
            ("xlab.example", 1, Named::No),
            ("::1", 80, Named::Exactly),
            ("::1", 81, Named::No),
            ("127.0.0.1", 9, Named::Exactly),
            ("127.0.0.2", 9, Named::No),
        ] {
            assert_eq!(scope.names_host(host, port), named, "{host}:{port}");
        }
        assert!(scope.has_method("GET") && !scope.has_method("POST"));
        assert_eq!(Scope::read("http_request", &scope.to_json()).unwrap(), scope);
    }

    #[test]
    fn addresses_of_this_machine_in_every_form() {
        for ip in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.1.1",
            "::1",
            "::",
            "fe80::1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "::ffff:169.254.0.1",
        ] {
            assert!(must_be_named(ip.parse().unwrap()), "{ip}");
        }
        for ip in ["10.0.0.1", "192.168.1.1", "8.8.8.8", "2001:db8::1", "::ffff:8.8.8.8", "fd00::1"] {
            assert!(!must_be_named(ip.parse().unwrap()), "{ip}");
        }
    }

    #[test]
    fn two_scopes_together_never_reach_further_than_one() {
        let read = |call: &str, scope: Value| Scope::read(call, &scope).unwrap();
        let both =
            |call, one: Option<&Scope>, other: Option<&Scope>| Scope::of_both(call, one, other).unwrap();
        let (docs, inner) = (
            read("read_file", json!({"paths": ["docs"]})),
            read("read_file", json!({"paths": ["docs/a", "x"]})),
        );
        let paths = both("read_file", Some(&docs), Some(&inner));
        assert!(paths.has_path("docs/a/1") && !paths.has_path("docs/b") && !paths.has_path("x"));
        assert_eq!(both("read_file", None, Some(&docs)), docs);
        assert_eq!(both("read_file", Some(&docs), Some(&docs)), docs);
        assert_eq!(Scope::of_both("run", None, None), None);
        let commands = both(
            "run",
            Some(&read("run", json!({"commands": ["ps", "df"]}))),
            Some(&read("run", json!({"commands": ["df", "sh"]}))),
        );
        assert!(commands.has_command("df") && !commands.has_command("ps") && !commands.has_command("sh"));
        // A pattern, or nothing, that is narrowed to a name of this machine's does not name it.
        let here = read("http_request", json!({"hosts": ["127.0.0.1:80"], "methods": ["GET"]}));
        let any = read("http_request", json!({"hosts": ["*"]}));
        for wide in [None, Some(&any)] {
            let http = both("http_request", wide, Some(&here));
            assert_eq!(http.names_host("127.0.0.1", 80), Named::ByPattern);
            assert_eq!(http.names_host("127.0.0.1", 81), Named::No);
            assert!(http.has_method("GET") && !http.has_method("POST"));
        }
        let named = both("http_request", Some(&here), Some(&here));
        assert_eq!(named.names_host("127.0.0.1", 80), Named::Exactly);
    }
}
