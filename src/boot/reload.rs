//! A configuration in the place of another, while the node runs.

use super::{secret, Running};
use crate::log::Level;
use crate::node::{Config, Keys};
use std::path::Path;

impl Running {
    /// Puts the configuration that `keys` make in the place of the present one, as far as a running node
    /// can, and logs what has changed and what needs a restart; or why not, and then nothing has changed.
    /// True if it was taken.
    pub fn reload(&self, keys: Result<Keys, String>, config_file: Option<&Path>) -> bool {
        let file = config_file.map_or("-".into(), |file| file.to_string_lossy());
        let log = &self.node.log;
        match keys.and_then(|keys| self.take_over(keys)) {
            Ok((changed, kept)) => {
                if let Err(why) = self.tell_whereabouts(config_file) {
                    log.event(Level::Warn, "whereabouts_not_written", &[("error", &why)]);
                }
                let some = |names: Vec<&str>| if names.is_empty() { "-".into() } else { names.join(",") };
                // What was asked for and does not hold is something to act on.
                let level = if kept.is_empty() { Level::Info } else { Level::Warn };
                let (changed, kept) = (some(changed), some(kept));
                let fields = [("file", &*file), ("changed", &changed), ("needs_restart", &kept)];
                log.event(level, "configuration_reloaded", &fields);
                true
            }
            Err(why) => {
                log.event(Level::Error, "configuration_kept", &[("file", &*file), ("error", &why)]);
                false
            }
        }
    }

    /// The names of the keys that have changed, and of those that would have.
    fn take_over(&self, keys: Keys) -> Result<(Vec<&'static str>, Vec<&'static str>), String> {
        let old = self.node.config();
        let (keys, kept) = keys.in_place_of(&old.keys)?;
        let made = secret::own_if_needed(&keys, &self.state_dir)?;
        let new = Config::new(keys, made)?;
        let changed = new.differences(&old);
        self.node.reload(new)?;
        Ok((changed, kept))
    }
}
