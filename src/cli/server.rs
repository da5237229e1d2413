//! `server`: a node in the foreground.

use super::args::Given;
use super::fault::Fault;
use super::{out, secrets};
use crate::boot::{self, Start};
use crate::node::config::OneOrMore;
use crate::node::Keys;
use crate::sys::Signals;
use crate::wire::Address;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

/// What running hooks get at the first signal.
const GRACE: Duration = Duration::from_secs(10);

/// Runs a node until a signal ends it.
pub fn run(given: &Given) -> Result<(), Fault> {
    let keys = keys(given)?;
    let signals = Signals::block().map_err(|error| Fault::Local(format!("holding back signals: {error}")))?;
    let start = Start { config_file: given.path("config"), ..Start::new(keys) };
    let running = boot::start(start).map_err(Fault::Local)?;
    if std::io::stderr().is_terminal() {
        let at = running.server.address();
        out::note(&format!(
            "the node {} listens on {at}; try: agentcontainer list {at}",
            running.node.name()
        ));
    }
    signals.wait();
    let stopped = std::thread::Builder::new().name("stop".into()).spawn(move || {
        running.stop(GRACE);
        // What still runs (threads in a connection's last seconds) ends with the process.
        std::process::exit(0);
    });
    match stopped {
        // A second signal: somebody does not want to wait.
        Ok(_) => std::process::exit(128 + signals.wait()),
        Err(error) => Err(Fault::Local(format!("starting a thread to stop in good order: {error}"))),
    }
}

/// The configuration: the file's, outranked by the command line.
fn keys(given: &Given) -> Result<Keys, Fault> {
    let mut keys = match given.path("config") {
        Some(file) => Keys::from_file(&file).map_err(Fault::Local)?,
        None => Keys::default(),
    };
    if given.has_word(0) {
        let address =
            Address::parse_listening(given.word(0)?).map_err(|why| Fault::Usage(why.to_string()))?;
        keys.listen_host = address.host;
        keys.listen_port = address.port;
    }
    if let Some(name) = given.text("name")? {
        // The name is that of a directory, too.
        crate::agent::manifest::check_id(name)
            .map_err(|why| Fault::Usage(format!("--name {name:?} {why}")))?;
        if keys.federation.as_ref().is_some_and(|tree| tree.find(name).is_none()) {
            return Err(Fault::Usage(format!(
                "--name {name:?}: the configuration's federation has no such node"
            )));
        }
        keys.container_name = name.to_owned();
    }
    let or = |given: Option<PathBuf>, before: Option<PathBuf>| given.or(before);
    keys.data_root = or(given.path("data-root"), keys.data_root.take());
    keys.state_dir = or(given.path("state-dir"), keys.state_dir.take());
    if given.flag("secret-file") {
        keys.admin_secret_file = given.text("secret-file")?.map(|file| OneOrMore::One(file.to_owned()));
        keys.admin_secret = None;
    } else if keys.admin_secret.is_none() && keys.admin_secret_file.is_none() {
        if let Some(text) = std::env::var_os(secrets::VARIABLE).filter(|text| !text.is_empty()) {
            let text = text.into_string();
            let text = text.map_err(|_| Fault::Local(format!("{} is not UTF-8", secrets::VARIABLE)))?;
            keys.admin_secret = Some(OneOrMore::One(text));
        }
    }
    Ok(keys)
}
