//! The admin's secret: one that the node made for itself, or that a configuration names.

use super::files::make_private;
use crate::node::{Config, Keys};
use crate::state;
use crate::wire::{hex, Secret};
use std::path::Path;

/// The admin secret that a node made for itself, below the state directory.
pub(super) const FILE: &str = "meta/admin.secret";

/// The secret in the state directory, made at the first start.
pub(super) fn own(state_dir: &Path) -> Result<Secret, String> {
    let file = state_dir.join(FILE);
    if file.exists() {
        return Secret::from_file(&file).map_err(|why| why.to_string());
    }
    make_private(&state_dir.join("meta"))?;
    let mut bytes = [0u8; 32];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| format!("making an admin secret: {error}"))?;
    let text = hex::encode(&bytes);
    state::write_durably(&file, format!("{text}\n").as_bytes())
        .map_err(|error| format!("writing {}: {error}", file.display()))?;
    Secret::new(&text).map_err(|why| why.to_string())
}

/// The same where `keys` name none.
pub(super) fn own_if_needed(keys: &Keys, state_dir: &Path) -> Result<Option<Secret>, String> {
    match keys.admin_secret.is_none() && keys.admin_secret_file.is_none() {
        true => own(state_dir).map(Some),
        false => Ok(None),
    }
}

/// The first admin secret that a configuration file names.
///
/// # Errors
/// What is wrong with the file, or that it names none.
pub fn secret_of_config(file: &Path) -> Result<Secret, String> {
    // Who asks for the secret needs neither Python nor prompt.
    let keys = Keys { allow_weak_secret: true, python: None, prompt_file: None, ..Keys::from_file(file)? };
    let config = Config::new(keys, None)?;
    config.admin_secrets.into_iter().next().ok_or_else(|| format!("{} names no admin secret", file.display()))
}
