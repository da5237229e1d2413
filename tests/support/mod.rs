//! What several test files need. Each uses a part of it.
#![allow(dead_code)]

pub mod browser;
pub mod cli;
pub mod lab;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A fresh directory below the system's temporary one, removed on drop.
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let unique =
            format!("agentcontainer-{name}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(unique);
        std::fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Polls until `done`; panics after ten seconds.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(Instant::now() < give_up, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The zombies among the descendants of `root`.
pub fn zombies_below(root: u32) -> Vec<u32> {
    let mut parents = std::collections::HashMap::new();
    let mut zombies = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((_, rest)) = stat.rsplit_once(") ") else { continue };
        let mut fields = rest.split(' ');
        let state = fields.next().unwrap_or("").to_owned();
        let parent: u32 = fields.next().and_then(|text| text.parse().ok()).unwrap_or(0);
        parents.insert(pid, parent);
        if state == "Z" {
            zombies.push(pid);
        }
    }
    zombies.retain(|pid| {
        let mut at = *pid;
        for _ in 0..64 {
            match parents.get(&at) {
                Some(parent) if *parent == root => return true,
                Some(parent) => at = *parent,
                None => return false,
            }
        }
        false
    });
    zombies
}

/// Whether a process with this command line runs.
pub fn is_running(command: &str) -> bool {
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).trim_end_matches('\0').replace('\0', " ") == command
    })
}
