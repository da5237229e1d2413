//! Which secret a command signs with, and as whom.
//!
//! A secret is never an argument: the process list shows those to everyone on the machine. It comes
//! from a file, from the environment, or from the state directory of a node that this user runs here.

use super::args::{opt, Given, Opt};
use super::fault::Fault;
use super::{out, tls};
use crate::agent::manifest::check_id;
use crate::boot::{self, Whereabouts};
use crate::capsule::{CapsuleError, PrivateKey};
use crate::node::{Config, Keys};
use crate::wire::{self, Address, Secret};
use std::fs::Metadata;
use std::net::{IpAddr, ToSocketAddrs, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The private key in this file. Says so on standard error where others may read it, which also shows a public key
/// that was named by mistake: both are 32 bytes in base64.
///
/// # Errors
/// The file cannot be read or holds no key.
pub fn private_key(path: &Path) -> Result<PrivateKey, CapsuleError> {
    let key = PrivateKey::read(path)?;
    let open = |told: Metadata| told.is_file() && told.permissions().mode() & 0o077 != 0;
    if path.metadata().is_ok_and(open) {
        out::note(&format!(
            "{} can be read by others: it is no private key any more, if it ever was one",
            path.display()
        ));
    }
    Ok(key)
}

/// The state directory that `--state-dir` or `--name` says; neither: `None`. `word` is the one that may say the node's
/// address instead.
///
/// # Errors
/// More than one of them is given; the name is none; this user has no home.
pub fn named_dir(given: &Given, word: usize) -> Result<Option<PathBuf>, Fault> {
    let named = ["name", "state-dir"].into_iter().filter(|way| given.flag(way)).count();
    if named + usize::from(given.has_word(word)) > 1 {
        let text = "HOST:PORT, --name and --state-dir all say which node; give one of them";
        return Err(Fault::Usage(text.into()));
    }
    match given.text("name")? {
        Some(name) => {
            check_id(name).map_err(|why| Fault::Usage(format!("--name {name:?} {why}")))?;
            Ok(Some(boot::state_home().map_err(Fault::Local)?.join(name)))
        }
        None => Ok(given.path("state-dir")),
    }
}

/// The environment's secret.
pub const VARIABLE: &str = "AGENTCONTAINER_SECRET";

/// How long an address gets to take a connection when there is no secret for it anyway.
const PROBE: Duration = Duration::from_secs(3);

/// The options that say where the secret is.
pub const OPTIONS: &[Opt] = &[
    opt("secret-file", "F", "a file with the secret to sign with"),
    opt("config", "F", "the node's configuration file, which names it"),
    opt("state-dir", "D", "the node's state directory, which knows it"),
];

/// The option for operators.
pub const AS: Opt = opt("as", "NAME", "sign as this operator, not as admin");

/// Who signs.
#[derive(Debug)]
pub struct Caller {
    /// `admin`, an operator, or an agent.
    pub sender: String,
    /// Its secret.
    pub secret: Secret,
    /// Where the secret was found, for the error when it is the wrong one.
    pub found: String,
}

/// Who signs what is sent to `address`.
///
/// # Errors
/// A secret that can't be read; or none, with all the ways to give one.
pub fn caller(given: &Given, address: Option<&Address>) -> Result<Caller, Fault> {
    caller_by(given, address, "secret-file")
}

/// The same, where the option that names the secret's file is called otherwise.
///
/// # Errors
/// As [`caller`].
pub fn caller_by(given: &Given, address: Option<&Address>, option: &str) -> Result<Caller, Fault> {
    if let Some(caller) = find_by(given, address, None, option)? {
        return Ok(caller);
    }
    // Where nobody listens, that is the news, and not that we could not have signed.
    let reached = address.map_or(Ok(()), |address| wire::open(address, Instant::now() + PROBE).map(drop));
    if let Err(why) = reached {
        return Err(Fault::Unreached(format!("{why} (and no secret for it is known here)")));
    }
    Err(none(address))
}

/// That no secret was found, with all the ways to give one.
pub fn none(address: Option<&Address>) -> Fault {
    let whose = match address {
        Some(address) => {
            format!("no secret is known for {address}: no node of this user is noted as listening there")
        }
        None => "no secret is known: no node of this user is noted as running here".to_owned(),
    };
    let place = match boot::state_home() {
        Ok(home) => format!("in {}/*/node.json", home.display()),
        Err(why) => why,
    };
    Fault::Local(format!(
        "{whose} ({place}); give --secret-file FILE, --config FILE (the node's configuration), \
         --state-dir DIR (the node's), or set {VARIABLE}"
    ))
}

/// Who signs; without an address the node of that name is looked for. Having none is no error.
///
/// # Errors
/// A secret that can't be read.
pub fn find(given: &Given, address: Option<&Address>, name: Option<&str>) -> Result<Option<Caller>, Fault> {
    find_by(given, address, name, "secret-file")
}

fn find_by(
    given: &Given,
    address: Option<&Address>,
    name: Option<&str>,
    option: &str,
) -> Result<Option<Caller>, Fault> {
    let sender = given.text("as")?.or(given.text("sender")?).unwrap_or("admin").to_owned();
    let ways = [option, "config", "state-dir"];
    let named: Vec<&str> = ways.into_iter().filter(|way| given.flag(way)).collect();
    if let [one, other, ..] = named[..] {
        return Err(Fault::Usage(format!(
            "--{one} and --{other} both say where the secret is; give one of them"
        )));
    }
    let made = |secret: Result<Secret, String>, found: String| match secret {
        Ok(secret) => Ok(Some(Caller { sender: sender.clone(), secret, found })),
        Err(why) => Err(Fault::Local(why)),
    };
    if let Some(file) = given.path(option) {
        let secret = Secret::from_file(&file).map_err(|why| why.to_string());
        return made(secret, format!("--{option} {}", file.display()));
    }
    if let Some(file) = given.path("config") {
        return made(of_config(&file, &sender), format!("--config {}", file.display()));
    }
    if let Some(dir) = given.path("state-dir") {
        let secret = Whereabouts::read(&dir)
            .ok_or_else(|| format!("{} has no node.json: no node keeps its state there", dir.display()))
            .and_then(|node| of_node(&node, &sender));
        return made(secret, format!("--state-dir {}", dir.display()));
    }
    if let Some(text) = std::env::var_os(VARIABLE).filter(|text| !text.is_empty()) {
        let secret = text.to_str().ok_or("it is not UTF-8".to_owned());
        let secret = secret.and_then(|text| Secret::new(text).map_err(|why| why.to_string()));
        return made(secret.map_err(|why| format!("{VARIABLE}: {why}")), VARIABLE.to_owned());
    }
    match on_this_machine(address, name)? {
        Some((dir, node)) => made(of_node(&node, &sender), format!("the state directory {}", dir.display())),
        None => Ok(None),
    }
}

/// The node of this user that runs on this machine, and who signs what it is asked: the one that
/// `--node` or `--state-dir` says, or the only one.
///
/// # Errors
/// None runs, or several do; a secret that can't be read.
pub fn node_here(given: &Given) -> Result<(Address, Caller), Fault> {
    let named = given.text("node")?.map(str::parse::<Address>).transpose();
    let named = named.map_err(|why| Fault::Usage(format!("--node: {why}")))?;
    let named = named.map(|address| tls::to_one_found(given, address)).transpose()?;
    let node = match (&named, given.path("state-dir")) {
        (Some(_), _) => None,
        (None, Some(dir)) => Whereabouts::read(&dir),
        (None, None) => on_this_machine(None, None)?.map(|(_, node)| node),
    };
    let address = match (named, &node) {
        (Some(address), _) => address,
        (None, Some(node)) => tls::to_node(given, node)?,
        (None, None) => {
            return Err(Fault::Local(
                "no node of this user runs on this machine, and an outbox is a node's: start one \
                 (agentcontainer server), or say which: --node HOST:PORT"
                    .into(),
            ))
        }
    };
    let address = reachable(address);
    let caller = caller(given, Some(&address))?;
    Ok((address, caller))
}

/// Where a node that listens everywhere is reached from this machine.
fn reachable(address: Address) -> Address {
    let host = match address.host.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) if ip.is_unspecified() => "127.0.0.1".to_owned(),
        Ok(IpAddr::V6(ip)) if ip.is_unspecified() => "::1".to_owned(),
        _ => address.host,
    };
    Address { host, ..address }
}

/// The secret that a configuration file names for `sender`, or the one that its node made for itself.
fn of_config(file: &Path, sender: &str) -> Result<Secret, String> {
    if sender != "admin" {
        return of_operator(file, sender);
    }
    boot::secret_of_config(file).or_else(|why| {
        let keys = Keys::from_file(file)?;
        let home = || Some(boot::state_home().ok()?.join(&keys.container_name));
        let dir = keys.state_dir.clone().or_else(|| home().filter(|_| !keys.container_name.is_empty()));
        let node = dir.and_then(|dir| Whereabouts::read(&dir)).filter(|node| node.secret_file.is_some());
        node.map_or(Err(format!("{}: {why}", file.display())), |node| node.secret())
    })
}

fn of_operator(file: &Path, name: &str) -> Result<Secret, String> {
    // Whether the admin's own secret can be read does not matter to an operator.
    let keys = Keys {
        allow_weak_secret: true,
        admin_secret: None,
        admin_secret_file: None,
        ..Keys::from_file(file)?
    };
    let operator = Keys {
        operators: keys.operators.into_iter().filter(|(known, _)| known == name).collect(),
        ..Keys::default()
    };
    if operator.operators.is_empty() {
        return Err(format!("{} knows no operator {name:?}", file.display()));
    }
    let stand_in = Secret::new("stand-in").map_err(|why| why.to_string())?;
    let config = Config::new(operator, Some(stand_in))?;
    config.operators.into_values().next().map(|operator| operator.secret).ok_or_else(|| "no operator".into())
}

fn of_node(node: &Whereabouts, sender: &str) -> Result<Secret, String> {
    if sender == "admin" {
        return node.secret().map_err(|why| format!("the admin secret of {}: {why}", node.name));
    }
    let file = node.config.as_ref();
    let file = file.ok_or_else(|| {
        format!("{} does not say where the secret of {sender:?} is; give --secret-file", node.name)
    })?;
    of_operator(file, sender)
}

/// The node of this machine and user that listens at `address`, or has that name, or is the only one.
///
/// # Errors
/// Several are meant alike.
pub fn on_this_machine(
    address: Option<&Address>,
    name: Option<&str>,
) -> Result<Option<(PathBuf, Whereabouts)>, Fault> {
    let mut known: Vec<(u8, PathBuf, Whereabouts)> = Vec::new();
    for (dir, node) in boot::whereabouts::all() {
        let nearness = match address {
            Some(address) if address.port != node.port => continue,
            Some(address) => match nearness(&address.host, &node.host) {
                Some(nearness) => nearness,
                None => continue,
            },
            None if name.is_some_and(|name| name != node.name) => continue,
            None => 0,
        };
        // A node that was killed leaves its note behind; one that runs is meant rather.
        let stale = boot::whereabouts::is_stale(&dir);
        known.push((nearness + 4 * u8::from(stale), dir, node));
    }
    known.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    if address.is_none() {
        if let [first, second, ..] = &known[..] {
            if first.0 == second.0 {
                let names: Vec<String> = known
                    .iter()
                    .map(|(_, _, node)| format!("{} at {}:{}", node.name, node.host, node.port))
                    .collect();
                let text =
                    format!("several nodes run here ({}); say which: --node HOST:PORT", names.join(", "));
                return Err(Fault::Usage(text));
            }
        }
    }
    Ok(known.into_iter().next().map(|(_, dir, node)| (dir, node)))
}

/// How well the host that was typed fits the address listened on; `None`: another machine.
pub(super) fn nearness(asked: &str, listened: &str) -> Option<u8> {
    if asked.eq_ignore_ascii_case(listened) {
        return Some(0);
    }
    let listened: IpAddr = listened.parse().ok()?;
    let here = listened.is_loopback() || listened.is_unspecified();
    let number = asked.parse::<IpAddr>().ok();
    let asked_here =
        number.map_or(asked.eq_ignore_ascii_case("localhost"), |ip| ip.is_loopback() || ip.is_unspecified());
    if here && asked_here {
        let same_kind = number.is_none_or(|ip| ip.is_ipv4() == listened.is_ipv4());
        return Some(if same_kind { 1 } else { 2 });
    }
    let addresses: Vec<IpAddr> = match number {
        Some(ip) => vec![ip],
        None => (asked, 0).to_socket_addrs().ok()?.map(|address| address.ip()).collect(),
    };
    // Only an address of this machine can be bound.
    let own = |ip: &IpAddr| UdpSocket::bind((*ip, 0)).is_ok();
    let reaches = |ip: &IpAddr| *ip == listened || (listened.is_unspecified() && own(ip));
    addresses.iter().any(reaches).then_some(3)
}

#[cfg(test)]
mod tests {
    use super::nearness;

    #[test]
    fn names_of_this_machine_are_the_same_machine() {
        assert_eq!(nearness("127.0.0.1", "127.0.0.1"), Some(0));
        assert_eq!(nearness("localhost", "127.0.0.1"), Some(1));
        assert_eq!(nearness("127.0.0.1", "0.0.0.0"), Some(1));
        assert_eq!(nearness("::1", "0.0.0.0"), Some(2));
        assert_eq!(nearness("localhost", "::1"), Some(1));
        assert_eq!(nearness("192.0.2.7", "0.0.0.0"), None, "a documentation address is nobody's");
        assert_eq!(nearness("192.0.2.7", "127.0.0.1"), None);
        assert_eq!(nearness("127.0.0.1", "192.0.2.7"), None);
    }
}
