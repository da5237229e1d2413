//! The capability store, `meta/capabilities.json`: what each agent may do. Only the admin's messages write
//! it.

use super::groups::{self, GROUPS, MANAGE_ROOT_AGENT, OF_STRANGERS, OF_THE_ADMIN};
use super::quotas::{Quotas, QUOTAS};
use super::scope::Scope;
use crate::state;
use crate::sync::lock;
use serde_json::{json, Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// What one agent is granted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grant {
    groups: BTreeSet<String>,
    capabilities: BTreeSet<String>,
    scopes: BTreeMap<String, Scope>,
    quotas: Quotas,
}

/// On whose word an agent is here that has no grant of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// The admin deployed or sent it.
    Admin,
    /// It came on its own signature.
    Own,
}

#[derive(Clone)]
struct Table {
    admin: Arc<Grant>,
    own: Arc<Grant>,
    agents: BTreeMap<String, Arc<Grant>>,
}

/// The store.
pub struct Grants {
    path: PathBuf,
    table: RwLock<Table>,
    /// Held while an entry is changed and written; readers go on with what was.
    editing: Mutex<()>,
    /// The only agent that scheduling can be granted to.
    manager: Option<String>,
}

impl Grant {
    fn of_groups(groups: &[&str]) -> Self {
        Grant { groups: groups.iter().map(|group| (*group).to_owned()).collect(), ..Grant::default() }
    }

    /// Whether a call, or [`MANAGE_ROOT_AGENT`], is granted.
    pub fn has(&self, call: &str) -> bool {
        self.capabilities.contains(call)
            || groups::of_call(call).is_some_and(|group| self.groups.contains(group))
    }

    /// What narrows a call.
    pub fn scope(&self, call: &str) -> Option<&Scope> {
        self.scopes.get(call)
    }

    /// What bounds it, where that is not what bounds every agent.
    pub fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// The same grant with other quotas.
    pub fn with_quotas(mut self, quotas: Quotas) -> Grant {
        self.quotas = quotas;
        self
    }

    /// Adds a group, a call or a capability, narrowed by `scope`; a group's scope narrows each of its
    /// calls that takes it. `quotas` sets those that the scope names.
    ///
    /// # Errors
    /// The name is none, or the scope does not fit it.
    pub fn add(&mut self, name: &str, scope: Option<&Value>) -> Result<(), String> {
        if name == QUOTAS {
            let scope = scope.ok_or("quotas are set by a scope: {\"cpu_s\": 10}")?;
            self.quotas = Quotas::read(scope)?.over(&self.quotas);
            return Ok(());
        }
        let calls: Vec<&str> = match groups::calls(name) {
            Some(calls) => calls.to_vec(),
            None if groups::names().any(|known| known == name) => vec![name],
            None => return Err(unknown(name)),
        };
        let scopes = match scope {
            None => Vec::new(),
            Some(scope) => {
                let read = calls.iter().map(|call| Scope::read(call, scope).map(|scope| (*call, scope)));
                read.collect::<Result<Vec<_>, _>>()?
            }
        };
        for call in &calls {
            self.scopes.remove(*call);
        }
        self.scopes.extend(scopes.into_iter().map(|(call, scope)| (call.to_owned(), scope)));
        match groups::calls(name) {
            Some(_) => self.groups.insert(name.to_owned()),
            None => self.capabilities.insert(name.to_owned()),
        };
        Ok(())
    }

    /// Takes a group, a call or a capability away. A call out of a granted group leaves the group's
    /// others. False if nothing of it was granted.
    ///
    /// # Errors
    /// The name is none.
    pub fn remove(&mut self, name: &str) -> Result<bool, String> {
        let before = self.clone();
        if name == QUOTAS {
            self.quotas = Quotas::default();
        } else if let Some(calls) = groups::calls(name) {
            self.groups.remove(name);
            for call in calls {
                self.capabilities.remove(*call);
                self.scopes.remove(*call);
            }
        } else if groups::names().any(|known| known == name) {
            self.capabilities.remove(name);
            self.scopes.remove(name);
            if let Some(group) = groups::of_call(name).filter(|group| self.groups.remove(*group)) {
                let others = groups::calls(group).unwrap_or_default().iter().filter(|call| **call != name);
                self.capabilities.extend(others.map(|call| (*call).to_owned()));
            }
        } else {
            return Err(unknown(name));
        }
        Ok(*self != before)
    }

    /// The first name of a call, or capability, that this grant has and `other` has not.
    pub fn beyond(&self, other: &Grant) -> Option<&'static str> {
        groups::calls_of_all().find(|call| self.has(call) && !other.has(call))
    }

    /// What both grant, in calls, each narrowed as both narrow it.
    pub fn and(&self, other: &Grant) -> Grant {
        let mut both = Grant { quotas: self.quotas.and(&other.quotas), ..Grant::default() };
        for call in groups::calls_of_all().filter(|call| self.has(call) && other.has(call)) {
            both.capabilities.insert(call.to_owned());
            if let Some(scope) = Scope::of_both(call, self.scope(call), other.scope(call)) {
                both.scopes.insert(call.to_owned(), scope);
            }
        }
        both
    }

    /// What either grants, in calls. One that both narrow is narrowed as `other` does.
    pub fn or(&self, other: &Grant) -> Grant {
        let mut either = Grant { quotas: other.quotas.over(&self.quotas), ..Grant::default() };
        for call in groups::calls_of_all() {
            let scope = match (self.has(call), other.has(call)) {
                (false, false) => continue,
                (true, false) => self.scope(call),
                (false, true) => other.scope(call),
                (true, true) => self.scope(call).and(other.scope(call)),
            };
            either.capabilities.insert(call.to_owned());
            either.scopes.extend(scope.map(|scope| (call.to_owned(), scope.clone())));
        }
        either
    }

    /// As it stands in the file.
    pub fn to_json(&self) -> Value {
        let scopes: Map<String, Value> =
            self.scopes.iter().map(|(call, scope)| (call.clone(), scope.to_json())).collect();
        let mut json = json!({"groups": self.groups, "capabilities": self.capabilities, "scopes": scopes});
        if !self.quotas.is_empty() {
            json[QUOTAS] = self.quotas.to_json();
        }
        json
    }

    /// Reads one as it stands in the file, or in a token.
    ///
    /// # Errors
    /// A member, a name or a scope that is wrong.
    pub fn read(value: &Value) -> Result<Self, String> {
        let members = value.as_object().ok_or("must be an object")?;
        if let Some(odd) =
            members.keys().find(|name| !["groups", "capabilities", "scopes", QUOTAS].contains(&name.as_str()))
        {
            return Err(format!("has no member {odd:?}; it has groups, capabilities, scopes, quotas"));
        }
        let mut grant = Grant::default();
        for name in ["groups", "capabilities"] {
            let Some(list) = members.get(name) else { continue };
            let list = list.as_array().ok_or_else(|| format!("{name:?} must be a list of strings"))?;
            for entry in list {
                let text = entry.as_str().ok_or_else(|| format!("{name:?} must be a list of strings"))?;
                grant.add(text, None)?;
            }
        }
        if let Some(quotas) = members.get(QUOTAS) {
            grant.quotas = Quotas::read(quotas)?;
        }
        if let Some(scopes) = members.get("scopes") {
            let scopes = scopes.as_object().ok_or("\"scopes\" must be an object")?;
            for (call, scope) in scopes {
                let scope = Scope::read(call, scope)?;
                grant.scopes.insert(call.clone(), scope);
            }
        }
        Ok(grant)
    }
}

impl Grants {
    /// The store in a file. One that can't be read is set aside, and nothing is granted to anybody: the
    /// second says what was wrong.
    ///
    /// # Errors
    /// The file is there and the system does not let it be read or moved.
    pub fn open(path: &Path, manager: Option<&str>) -> io::Result<(Self, Option<String>)> {
        let (table, damaged) = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => (Table::usual(), None),
            Err(error) if error.kind() != io::ErrorKind::InvalidData => return Err(error),
            read => match read.map_err(|error| error.to_string()).and_then(|text| Table::read(&text)) {
                Ok(table) => (table, None),
                Err(why) => {
                    let aside = state::set_aside(path)?;
                    let what = format!("{}: {why}; no agent is granted anything", aside.display());
                    (Table::nothing(), Some(what))
                }
            },
        };
        let grants = Grants {
            path: path.to_owned(),
            table: RwLock::new(table),
            editing: Mutex::new(()),
            manager: manager.map(str::to_owned),
        };
        Ok((grants, damaged))
    }

    /// What agents get that came on their own signature, unless they have an entry of their own.
    pub fn of_strangers(&self) -> Arc<Grant> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner).own)
    }

    /// What an agent is granted: by its own entry, or else by how it came.
    pub fn of(&self, id: &str, word: Word) -> Arc<Grant> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let usual = match word {
            Word::Admin => &table.admin,
            Word::Own => &table.own,
        };
        Arc::clone(table.agents.get(id).unwrap_or(usual))
    }

    /// Whether an agent has an entry of its own.
    pub fn has_entry(&self, id: &str) -> bool {
        self.table.read().unwrap_or_else(PoisonError::into_inner).agents.contains_key(id)
    }

    /// Changes an agent's own entry, which begins as what it is granted now (`word`). What `change`
    /// refuses changes nothing.
    ///
    /// # Errors
    /// What `change` says; that the file can't be written.
    pub fn change<T>(
        &self,
        id: &str,
        word: Word,
        change: impl FnOnce(&mut Grant) -> Result<T, String>,
    ) -> Result<T, Refusal> {
        let _editing = lock(&self.editing);
        let mut grant = (*self.of(id, word)).clone();
        let told = change(&mut grant).map_err(Refusal::Wrong)?;
        let scheduling = groups::calls("scheduling").unwrap_or_default();
        let schedules = grant.groups.contains("scheduling")
            || scheduling.iter().any(|call| grant.capabilities.contains(*call));
        if schedules && self.manager.as_deref() != Some(id) {
            return Err(Refusal::Wrong(
                "scheduling is the manager's alone: its requests exist in no other agent's socket".into(),
            ));
        }
        let mut changed = self.table.read().unwrap_or_else(PoisonError::into_inner).clone();
        changed.agents.insert(id.to_owned(), Arc::new(grant));
        state::write_durably(&self.path, changed.to_json().to_string().as_bytes()).map_err(Refusal::Disk)?;
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = changed;
        Ok(told)
    }

    /// The default grant of the manager, every group and [`MANAGE_ROOT_AGENT`], where it has no entry yet.
    ///
    /// # Errors
    /// It can't be written.
    pub fn default_of_the_manager(&self) -> io::Result<()> {
        let Some(manager) = self.manager.as_deref().filter(|manager| !self.has_entry(manager)) else {
            return Ok(());
        };
        let everything = |grant: &mut Grant| {
            *grant = Grant::of_groups(&GROUPS.map(|(group, _)| group));
            grant.add(MANAGE_ROOT_AGENT, None)
        };
        match self.change(manager, Word::Own, everything) {
            Err(Refusal::Disk(error)) => Err(error),
            Err(Refusal::Wrong(why)) => Err(io::Error::other(why)),
            Ok(()) => Ok(()),
        }
    }

    /// The whole table, as it stands in the file.
    pub fn to_json(&self) -> Value {
        self.table.read().unwrap_or_else(PoisonError::into_inner).to_json()
    }
}

/// Why a grant was not changed.
#[derive(Debug)]
pub enum Refusal {
    /// What was asked for is wrong.
    Wrong(String),
    /// It could not be written.
    Disk(io::Error),
}

impl Table {
    fn usual() -> Self {
        Table {
            admin: Arc::new(Grant::of_groups(&OF_THE_ADMIN)),
            own: Arc::new(Grant::of_groups(&OF_STRANGERS)),
            agents: BTreeMap::new(),
        }
    }

    fn nothing() -> Self {
        Table { admin: Arc::default(), own: Arc::default(), agents: BTreeMap::new() }
    }

    fn read(text: &str) -> Result<Self, String> {
        crate::wire::parse(text).map_err(|wrong| wrong.to_string())?; // names that stand twice, among others
        let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let members = value.as_object().ok_or("it is no object")?;
        if let Some(odd) = members.keys().find(|name| !["default", "agents"].contains(&name.as_str())) {
            return Err(format!("it has no member {odd:?}"));
        }
        let mut table = Table::usual();
        if let Some(default) = members.get("default") {
            let default = default.as_object().ok_or("\"default\" must be an object")?;
            for (word, grant) in default {
                let grant = Grant::read(grant).map_err(|why| format!("default.{word} {why}"))?;
                match word.as_str() {
                    "admin" => table.admin = Arc::new(grant),
                    "own" => table.own = Arc::new(grant),
                    _ => return Err(format!("\"default\" has no member {word:?}; it has admin, own")),
                }
            }
        }
        if let Some(agents) = members.get("agents") {
            for (id, grant) in agents.as_object().ok_or("\"agents\" must be an object")? {
                let grant = Grant::read(grant).map_err(|why| format!("agents.{id} {why}"))?;
                table.agents.insert(id.clone(), Arc::new(grant));
            }
        }
        Ok(table)
    }

    fn to_json(&self) -> Value {
        let agents: Map<String, Value> =
            self.agents.iter().map(|(id, grant)| (id.clone(), grant.to_json())).collect();
        json!({
            "default": {"admin": self.admin.to_json(), "own": self.own.to_json()},
            "agents": agents,
        })
    }
}

fn unknown(name: &str) -> String {
    let groups: Vec<&str> = GROUPS.iter().map(|(group, _)| *group).collect();
    format!(
        "{name:?} is neither a group ({}), nor one of their calls, nor {MANAGE_ROOT_AGENT}, nor quotas",
        groups.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_out_of_a_group_leaves_the_others() {
        let mut grant = Grant::of_groups(&["files", "process"]);
        assert!(grant.has("read_file") && grant.has("run") && !grant.has("clone"));
        assert!(grant.remove("read_file").unwrap());
        assert!(!grant.has("read_file") && grant.has("search_files"));
        assert!(!grant.remove("http").unwrap());
        grant.add("run", Some(&json!({"commands": ["ps"]}))).unwrap();
        assert!(grant.scope("run").unwrap().has_command("ps"));
        assert!(grant.add("fly", None).unwrap_err().contains("\"fly\""));
        assert!(grant.add("mobility", Some(&json!({"commands": []}))).is_err());
        assert_eq!(Grant::read(&grant.to_json()).unwrap(), grant);
    }

    #[test]
    fn what_changed_is_there_again_and_a_damaged_file_grants_nothing() {
        let top = crate::testing::TempDir::new("grants");
        let path = top.path().join("capabilities.json");
        let (grants, damaged) = Grants::open(&path, Some("ruth")).unwrap();
        assert!(
            damaged.is_none()
                && grants.of("a", Word::Admin).has("run")
                && !grants.of("a", Word::Own).has("run")
        );
        grants.change("a", Word::Own, |grant| grant.add("http", None)).unwrap();
        assert!(matches!(
            grants.change("a", Word::Own, |grant| grant.add("scheduling", None)),
            Err(Refusal::Wrong(_))
        ));
        grants.change("ruth", Word::Own, |grant| grant.add("scheduling", None)).unwrap();
        let (again, _) = Grants::open(&path, None).unwrap();
        let grant = again.of("a", Word::Own);
        assert!(
            grant.has("http_request")
                && grant.has("move")
                && !grant.has("run")
                && !grant.has("edit_schedule")
        );
        for text in ["", "{}x", r#"{"agents":{"a":{"groups":["fly"]}}}"#, r#"{"agents":{},"agents":{}}"#] {
            fs::write(&path, text).unwrap();
            let (damaged, why) = Grants::open(&path, None).unwrap();
            assert!(why.is_some() && !damaged.of("a", Word::Admin).has("read_file"), "{text}");
        }
    }
}
