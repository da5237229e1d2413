//! How a node is spoken to: plainly, or over TLS and known by what.
//!
//! Of a node that this user runs on this machine the state directory says whether it speaks TLS, and which
//! certificate is its own; of another one the address or the options do.

use super::args::{flag, opt, Given, Opt};
use super::fault::Fault;
use super::secrets::nearness;
use crate::boot::{whereabouts, Whereabouts};
use crate::node::Keys;
use crate::wire::certificate::read_certificates;
use crate::wire::tls::{check_authorities, check_identity};
use crate::wire::{Address, Fingerprint, Tls};
use std::path::PathBuf;

/// The options that say so.
pub const OPTIONS: &[Opt] = &[
    flag("tls", "the node speaks TLS (as with tls://HOST:PORT); of a node of this user here it is known"),
    opt("tls-fingerprint", "HEX", "the SHA-256 of its certificate, which alone counts then"),
    opt("tls-ca", "F", "the certificate of the authority that signed the node's, or the node's own"),
    opt("tls-cert", "F", "the certificate to show to the node, with its key or --tls-key"),
    opt("tls-key", "F", "the key of --tls-cert (the same file)"),
];

/// Whether an option is one of them.
pub fn is_option(name: &str) -> bool {
    OPTIONS.iter().any(|option| option.name == name)
}

/// The node at an address that was typed.
///
/// # Errors
/// The options contradict each other or the address, or name files that can't be used; nothing says how
/// the node is known.
pub fn to(given: &Given, address: Address) -> Result<Address, Fault> {
    let named = ["tls", "tls-fingerprint", "tls-ca"].iter().any(|option| given.flag(option));
    let pins = pins(given)?;
    let mut tls = match (&address.tls, named) {
        (None, false) => match known(given, &address) {
            Some(fingerprint) => Tls::pinned(vec![fingerprint]),
            None => return identity(given).map(|_| address),
        },
        (Some(typed), _) if !typed.fingerprints.is_empty() && !pins.is_empty() => {
            let text = format!(
                "{address}#… and --tls-fingerprint both say whose certificate it is; give one of them"
            );
            return Err(Fault::Usage(text));
        }
        (Some(typed), _) if pins.is_empty() => (**typed).clone(),
        _ => Tls::pinned(pins),
    };
    tls.authorities = authorities(given)?;
    if tls.authorities.is_some() && !tls.fingerprints.is_empty() {
        return Err(Fault::Usage(
            "the fingerprint alone says whose certificate it is: --tls-ca would count for nothing; give one of them".into(),
        ));
    }
    if tls.authorities.is_none() && tls.fingerprints.is_empty() {
        let fingerprint = known(given, &address).ok_or_else(|| {
            Fault::Usage(format!(
                "{address}: nothing says whose certificate it must be; give --tls-fingerprint (the node's \
                 log and agentcontainer status print it) or --tls-ca"
            ))
        })?;
        tls.fingerprints.push(fingerprint);
    }
    tls.identity = identity(given)?;
    Ok(address.with_tls(Some(tls)))
}

/// A node that another one has told of: it says whether TLS is spoken there, and the options which
/// authority is believed and what is shown.
///
/// # Errors
/// The options name files that can't be used.
pub fn to_one_found(given: &Given, address: Address) -> Result<Address, Fault> {
    let Some(mut tls) = address.tls.as_deref().cloned() else {
        // Of one on this machine more is known than it is told of.
        let tls = here(&address).map(|fingerprint| Tls::pinned(vec![fingerprint]));
        return Ok(address.with_tls(tls));
    };
    tls.authorities = authorities(given)?;
    tls.identity = identity(given)?;
    Ok(address.with_tls(Some(tls)))
}

/// The same in words, for a node that shall speak to it: `tls://HOST:PORT#FINGERPRINT`. A name of its tree
/// stays as it is.
///
/// # Errors
/// As [`to`]; an authority can't be named in words.
pub fn in_words(given: &Given, destination: &str) -> Result<String, Fault> {
    let Ok(address) = destination.parse::<Address>() else { return Ok(destination.to_owned()) };
    let address = to(given, address)?;
    match &address.tls {
        None => Ok(destination.to_owned()),
        Some(tls) => match &tls.fingerprints[..] {
            [one, ..] => Ok(format!("{address}#{one}")),
            [] => {
                Err(Fault::Usage("an authority can't be left to the outbox: give --tls-fingerprint".into()))
            }
        },
    }
}

/// A node of this user on this machine.
///
/// # Errors
/// What its state directory says is no address; the options name files that can't be used.
pub fn to_node(given: &Given, node: &Whereabouts) -> Result<Address, Fault> {
    let local = |why: String| Fault::Local(why);
    let address = Address::new(&node.host, node.port).map_err(|why| local(why.to_string()))?;
    let Some(fingerprint) = &node.tls else { return Ok(address) };
    let fingerprint = Fingerprint::parse(fingerprint).map_err(local)?;
    let identity = identity(given)?;
    Ok(address.with_tls(Some(Tls { identity, ..Tls::pinned(vec![fingerprint]) })))
}

/// The certificate of the node at this address, by its configuration or state directory, where an option
/// names one, else by what nodes say that run here.
fn known(given: &Given, address: &Address) -> Option<Fingerprint> {
    let configured = || {
        let keys = Keys::from_file(&given.path("config")?).ok()?;
        let certificate = keys.tls.filter(|_| keys.listen_port == address.port)?.certificate;
        Some(Fingerprint::of(read_certificates(&certificate).ok()?.first()?))
    };
    let noted = || {
        let node = Whereabouts::read(&given.path("state-dir")?)?;
        Fingerprint::parse(&node.tls.filter(|_| node.port == address.port)?).ok()
    };
    noted().or_else(configured).or_else(|| here(address))
}

/// What `node.json` says of the certificate of a node that runs here.
fn here(address: &Address) -> Option<Fingerprint> {
    let all = whereabouts::all().into_iter().filter(|(_, node)| node.port == address.port);
    let near = all.filter_map(|(dir, node)| Some((nearness(&address.host, &node.host)?, dir, node)));
    let running = near.filter(|(_, dir, _)| !whereabouts::is_stale(dir));
    let (_, _, node) = running.min_by_key(|(nearness, _, _)| *nearness)?;
    Fingerprint::parse(&node.tls?).ok()
}

fn pins(given: &Given) -> Result<Vec<Fingerprint>, Fault> {
    let Some(text) = given.text("tls-fingerprint")? else { return Ok(Vec::new()) };
    match Fingerprint::parse(text) {
        Ok(pin) => Ok(vec![pin]),
        Err(why) => Err(Fault::Usage(format!("--tls-fingerprint: {why}"))),
    }
}

fn authorities(given: &Given) -> Result<Option<PathBuf>, Fault> {
    let Some(file) = given.path("tls-ca") else { return Ok(None) };
    check_authorities(&file).map_err(|why| Fault::Local(format!("--tls-ca: {why}")))?;
    Ok(Some(file))
}

/// The files of what is shown to the node.
///
/// # Errors
/// A key without a certificate; files that can't be used, or do not fit each other.
pub fn identity(given: &Given) -> Result<Option<(PathBuf, PathBuf)>, Fault> {
    match (given.path("tls-cert"), given.path("tls-key")) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(Fault::Usage("--tls-key is the key of a --tls-cert, which is missing".into())),
        (Some(certificate), key) => {
            let key = key.unwrap_or_else(|| certificate.clone());
            check_identity(&certificate, &key).map_err(|why| Fault::Local(format!("--tls-cert: {why}")))?;
            Ok(Some((certificate, key)))
        }
    }
}
