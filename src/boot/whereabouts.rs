//! What a state directory says of its node, and where state directories are.

use super::{lock, secret_of_config};
use crate::state;
use crate::wire::Secret;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// The file in a state directory that says where its node listens.
pub(super) const FILE: &str = "node.json";

/// What a state directory says of its node: `{"name","host","port","pid","tls"?,"secret_file"?,"config"?}`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Whereabouts {
    /// The node's name.
    pub name: String,
    /// The address it listens on.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The process.
    pub pid: u32,
    /// The fingerprint of its certificate, if it speaks TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<String>,
    /// The file with the admin's secret, if it stands in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<PathBuf>,
    /// The configuration file, if the secret stands there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<PathBuf>,
}

impl Whereabouts {
    /// Reads what `state_dir` says, if it says anything. A node that was killed leaves it behind:
    /// [`is_stale`] tells.
    pub fn read(state_dir: &Path) -> Option<Whereabouts> {
        serde_json::from_slice(&fs::read(state_dir.join(FILE)).ok()?).ok()
    }

    /// The admin's secret of that node.
    ///
    /// # Errors
    /// The file that can't be read, or holds none.
    pub fn secret(&self) -> Result<Secret, String> {
        if let Some(file) = &self.secret_file {
            return Secret::from_file(file).map_err(|why| why.to_string());
        }
        let file = self.config.as_ref().ok_or("the node keeps its admin secret elsewhere")?;
        secret_of_config(file)
    }

    pub(super) fn write(&self, state_dir: &Path) -> Result<(), String> {
        let file = state_dir.join(FILE);
        let text = serde_json::to_string(self).map_err(|error| error.to_string())?;
        state::write_durably(&file, text.as_bytes())
            .map_err(|error| format!("writing {}: {error}", file.display()))
    }
}

/// Whether no node runs on a state directory, whatever it says.
pub fn is_stale(state_dir: &Path) -> bool {
    matches!(lock::holder(state_dir), Ok(lock::Holder::Nobody))
}

/// What the state directories of this user's nodes say, as far as they are where nodes keep their state
/// unless told otherwise.
pub fn all() -> Vec<(PathBuf, Whereabouts)> {
    let entries = state_home().ok().and_then(|home| fs::read_dir(home).ok());
    let dirs = entries.into_iter().flatten().flatten().map(|entry| entry.path());
    dirs.filter_map(|dir| Whereabouts::read(&dir).map(|node| (dir, node))).collect()
}

/// Where nodes keep their state unless told otherwise: `$XDG_STATE_HOME/agentcontainer`.
///
/// # Errors
/// Neither the environment nor the user database names a home.
pub fn state_home() -> Result<PathBuf, String> {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(dir) = set("XDG_STATE_HOME") {
        return Ok(dir.join("agentcontainer"));
    }
    let home = set("HOME").or_else(home_of_user);
    let home = home.ok_or("no home directory is known: give --state-dir, or set HOME or XDG_STATE_HOME")?;
    Ok(home.join(".local/state/agentcontainer"))
}

/// The user's home from /etc/passwd: cron and `env -i` set no HOME.
fn home_of_user() -> Option<PathBuf> {
    let uid = rustix::process::getuid().as_raw().to_string();
    let users = fs::read_to_string("/etc/passwd").ok()?;
    users.lines().map(|line| line.split(':').collect::<Vec<_>>()).find_map(|fields| {
        (fields.get(2) == Some(&uid.as_str())).then(|| fields.get(5).map(PathBuf::from)).flatten()
    })
}
