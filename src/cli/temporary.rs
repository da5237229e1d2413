//! A node for the length of one command, gone again however the command ends.

use super::fault::Fault;
use super::out;
use crate::boot::{self, Running, Start};
use crate::log::Show;
use crate::node::{Admits, Keys};
use crate::sync::lock;
use crate::sys::{Signals, ENDING};
use crate::wire;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A running node with a state directory of its own. Dropping it ends the node and removes the
/// directory; SIGTERM, SIGINT and SIGHUP do the same and end the process with status 128 + signal.
pub struct Temporary {
    held: Arc<Mutex<Held>>,
}

#[derive(Default)]
struct Held {
    running: Option<Running>,
    dir: Option<PathBuf>,
}

impl Temporary {
    /// Starts one. To be called before the process has any other thread.
    ///
    /// # Errors
    /// What could not be made or started.
    pub fn start(mut keys: Keys, admits: Admits, show: Show) -> Result<Temporary, Fault> {
        let signals = Signals::block(&ENDING, &[])
            .map_err(|error| Fault::Local(format!("holding back signals: {error}")))?;
        let unique = wire::random_nonce().map_err(|error| Fault::Local(format!("making a name: {error}")))?;
        let name = format!("agentcontainer-{}-{}", std::process::id(), &unique[..8]);
        let dir = std::env::temp_dir().join(name);
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&dir)
            .map_err(|error| Fault::Local(format!("making {}: {error}", dir.display())))?;
        keys.state_dir = Some(dir.clone());
        keys.ruthless = true; // one agent comes, and goes with the node
                              // From here on the directory is removed, also when the node does not start.
        let held = Arc::new(Mutex::new(Held { running: None, dir: Some(dir) }));
        let temporary = Temporary { held: Arc::clone(&held) };
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || end_at_signal(&signals, &held))
            .map_err(|error| Fault::Local(format!("starting a thread: {error}")))?;
        crate::supervise::reap_below()
            .map_err(|error| Fault::Local(format!("becoming the reaper of what agents start: {error}")))?;
        let mut held = lock(&temporary.held);
        let started = boot::start(Start { show, admits, ..Start::new(keys) });
        match started {
            Ok(running) => held.running = Some(running),
            Err(why) => {
                drop(held);
                return Err(Fault::Local(why.to_string()));
            }
        }
        drop(held);
        Ok(temporary)
    }

    /// The node, while it runs.
    pub fn with<T>(&self, look: impl FnOnce(&Running) -> T) -> Result<T, Fault> {
        match &lock(&self.held).running {
            Some(running) => Ok(look(running)),
            None => Err(Fault::Local("the node has ended".into())),
        }
    }

    /// Ends it in good order: open answers still get out, within `grace`.
    pub fn end(&self, grace: Duration) {
        lock(&self.held).end(grace);
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

impl Held {
    fn end(&mut self, grace: Duration) {
        if let Some(running) = self.running.take() {
            running.stop(grace);
        }
        if let Some(dir) = self.dir.take() {
            // An agent's process that was just killed may have been writing: once more, then.
            let gone = crate::state::remove_tree(&dir).or_else(|_| {
                std::thread::sleep(Duration::from_millis(50));
                crate::state::remove_tree(&dir)
            });
            if let Err(error) = gone {
                out::note(&format!("removing {}: {error}", dir.display()));
            }
        }
    }
}

fn end_at_signal(signals: &Signals, held: &Mutex<Held>) {
    let signal = signals.wait();
    let status = 128 + signal;
    let end = || {
        // Kept locked: the main thread must not end first, and with another status.
        let mut held = lock(held);
        held.end(Duration::ZERO);
        std::process::exit(status);
    };
    std::thread::scope(|scope| {
        let ending = std::thread::Builder::new().name("end".into()).spawn_scoped(scope, end);
        if ending.is_err() {
            end(); // without a way out for the impatient
        }
        std::process::exit(128 + signals.wait());
    });
}
