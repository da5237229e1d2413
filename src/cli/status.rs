//! `status`: whether a node runs, for scripts and cron, within a bounded time.
//!
//! On this machine the lock of the state directory decides whether a node runs, and an answer whether it
//! can be spoken to. Of a node elsewhere there is only the answer.

use super::args::Given;
use super::ask;
use super::fault::{Fault, UNREACHED};
use super::secrets::{self, nearness, Caller, VARIABLE};
use super::{out, tls};
use crate::boot::lock::{self, Holder};
use crate::boot::{self, whereabouts, Whereabouts};
use crate::log::quoted;
use crate::wire::{self, Address, Secret};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a node has to answer, unless told otherwise.
const WAIT: Duration = Duration::from_secs(3);

/// `status`.
pub fn run(given: &Given) -> Result<(), Fault> {
    let asker = Asker { given, wait: given.seconds("timeout")?.map_or(WAIT, Duration::from_secs_f64) };
    let found = if let Some(dir) = secrets::named_dir(given, 0)? {
        asker.of_dir(&dir)?
    } else if given.has_word(0) {
        asker.of_address(given.address(0)?)?
    } else {
        asker.of_the_only_one()?
    };
    found.print(given.flag("pid"), given.flag("json"))?;
    if found.state == "running" {
        Ok(())
    } else {
        Err(Fault::Status(UNREACHED))
    }
}

fn home() -> Result<PathBuf, Fault> {
    boot::state_home().map_err(Fault::Local)
}

/// What was found, in the order in which it is told.
struct Found {
    state: &'static str,
    facts: Vec<(&'static str, Value)>,
}

impl Found {
    fn new(state: &'static str) -> Self {
        Found { state, facts: Vec::new() }
    }

    fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.facts.push((name, value.into()));
        self
    }

    fn print(&self, pid_only: bool, as_json: bool) -> Result<(), Fault> {
        if pid_only {
            let pid = self.facts.iter().find(|(name, _)| *name == "pid");
            return pid.map_or(Ok(()), |(_, pid)| out::line(&pid.to_string()));
        }
        if as_json {
            let mut all = Map::from_iter([("state".to_owned(), self.state.into())]);
            all.extend(self.facts.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
            return out::result(&Value::from(all).to_string(), true);
        }
        let mut line = self.state.to_owned();
        for (name, value) in &self.facts {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            line.push_str(&format!(" {name}={}", quoted(&out::shown(&text))));
        }
        out::line(&line)
    }
}

struct Asker<'a> {
    given: &'a Given,
    wait: Duration,
}

impl Asker<'_> {
    /// The node that keeps its state in `dir`.
    fn of_dir(&self, dir: &Path) -> Result<Found, Fault> {
        let shown = dir.to_string_lossy().into_owned();
        let holder = lock::holder(dir)
            .map_err(|error| Fault::Local(format!("looking at the lock of {shown}: {error}")))?;
        let Holder::Process(pid) = holder else {
            return Ok(Found::new("not-running").with("state_dir", shown));
        };
        let known = |found: Found| match pid {
            Some(pid) => found.with("pid", pid),
            None => found,
        };
        // What an earlier node left behind says nothing of this one.
        let told = Whereabouts::read(dir).filter(|told| pid.is_none_or(|pid| told.pid == pid));
        let Some(told) = told else {
            return Ok(known(Found::new("starting")).with("state_dir", shown));
        };
        let address = tls::to_node(self.given, &told)?;
        let heard = self.hear(&address, self.caller_of(&told)?.as_ref())?;
        let state = if heard.is_ok() { "running" } else { "not-answering" };
        let mut found = known(Found::new(state).with("name", told.name));
        if let Some(fingerprint) = told.tls {
            found = found.with("tls", fingerprint);
        }
        Ok(heard.finish(found.with("address", address.to_string())).with("state_dir", shown))
    }

    /// The node that listens at `address`, here or elsewhere.
    fn of_address(&self, address: Address) -> Result<Found, Fault> {
        let here = whereabouts::all().into_iter().filter(|(_, node)| node.port == address.port);
        let near = here.filter_map(|(dir, node)| Some((nearness(&address.host, &node.host)?, dir)));
        let running = near.filter(|(_, dir)| !whereabouts::is_stale(dir)).min();
        if let Some((_, dir)) = running {
            return self.of_dir(&dir);
        }
        let caller = match secrets::find(self.given, Some(&address), None) {
            // What a node left behind here is none of the asker's doing.
            Err(_) if !self.says_who_asks() => None,
            found => found?,
        };
        let heard = self.hear(&address, caller.as_ref())?;
        let state = match &heard {
            Heard::Nothing(_) => "not-running",
            Heard::Unclear(_) => "not-answering",
            Heard::Answer(..) => "running",
        };
        let mut found = Found::new(state);
        if let Heard::Answer(name, _) = &heard {
            found = found.with("name", name.clone());
        }
        Ok(heard.finish(found.with("address", address.to_string())))
    }

    /// The one node that this user runs here.
    fn of_the_only_one(&self) -> Result<Found, Fault> {
        let home = home()?;
        let entries = std::fs::read_dir(&home).into_iter().flatten().flatten();
        let mut dirs: Vec<PathBuf> = entries
            .map(|entry| entry.path())
            .filter(|dir| dir.is_dir() && !whereabouts::is_stale(dir))
            .collect();
        dirs.sort();
        match &dirs[..] {
            [] => Ok(Found::new("not-running").with("state_dir", format!("{}/*", home.display()))),
            [dir] => self.of_dir(dir),
            several => {
                let names = several.iter().filter_map(|dir| dir.file_name()?.to_str());
                let names = names.collect::<Vec<_>>().join(", ");
                Err(Fault::Usage(format!("several nodes run here ({names}); say which: --name NAME")))
            }
        }
    }

    /// Who asks a node of this machine. Having no secret is no error: any answer shows that it is there.
    fn caller_of(&self, node: &Whereabouts) -> Result<Option<Caller>, Fault> {
        if self.says_who_asks() {
            return secrets::find(self.given, None, Some(&node.name));
        }
        let from_environment = || Secret::new(std::env::var(VARIABLE).ok()?.as_str()).ok();
        let secret = node.secret().ok().or_else(from_environment);
        let caller = |secret| Caller { sender: "admin".into(), secret, found: "its state directory".into() };
        Ok(secret.map(caller))
    }

    fn says_who_asks(&self) -> bool {
        ["secret-file", "config", "as"].iter().any(|option| self.given.flag(option))
    }

    /// Asks the node at `address` what it is.
    fn hear(&self, address: &Address, caller: Option<&Caller>) -> Result<Heard, Fault> {
        let answered = match caller {
            Some(caller) => ask::heard(address, caller, "describe_container", "{}", self.wait)?,
            None => ask::knock(address, self.wait)?.map(|answer| (answer, false)),
        };
        Ok(match answered {
            Ok((answer, genuine)) => {
                let told = answer.result().filter(|_| genuine && answer.is_ok());
                let told = told.and_then(|text| serde_json::from_str(text).ok());
                Heard::Answer(answer.node().unwrap_or("-").to_owned(), told.unwrap_or_default())
            }
            Err(wire::ExchangeError::NotSent(why)) => Heard::Nothing(why),
            Err(wire::ExchangeError::Unclear(why)) => Heard::Unclear(why),
        })
    }
}

enum Heard {
    /// A node answered: its name, and what it is if it knew us.
    Answer(String, Value),
    /// No connection came about.
    Nothing(String),
    /// One did, and no answer of a node.
    Unclear(String),
}

impl Heard {
    fn is_ok(&self) -> bool {
        matches!(self, Heard::Answer(..))
    }

    fn finish(self, mut found: Found) -> Found {
        match self {
            Heard::Answer(_, told) => {
                let pinned = &told["tls"]["fingerprint"];
                if !pinned.is_null() && found.facts.iter().all(|(name, _)| *name != "tls") {
                    found = found.with("tls", pinned.clone());
                }
                for (name, value) in [
                    ("uptime_s", &told["uptime_s"]),
                    ("agents", &told["counters"]["agents"]),
                    ("live_agents", &told["counters"]["live_agents"]),
                    ("version", &told["version"]),
                ] {
                    if !value.is_null() {
                        found = found.with(name, value.clone());
                    }
                }
                found
            }
            Heard::Nothing(why) | Heard::Unclear(why) => found.with("why", why),
        }
    }
}
