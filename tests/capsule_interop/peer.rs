//! The reference implementation, installed once below the build folder.

use rustix::fs::{flock, FlockOperation};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const REQUIREMENT: &str = "agentcapsule[signing]==0.1.0";
/// Written last, so that an environment whose making was interrupted is made anew.
const COMPLETE: &str = "interop-complete";
/// How long making the environment may take altogether.
const PATIENCE: Duration = Duration::from_secs(300);

/// The peer's program, or `None` where it cannot be had; then every test says why and passes over.
pub fn program() -> Option<&'static Path> {
    static PEER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match PEER.get_or_init(install) {
        Ok(program) => Some(program),
        Err(reason) => {
            let name = std::thread::current().name().unwrap_or("a test").to_owned();
            // Past the capture of the test runner: who reads the log must see what was not tested.
            let line = format!(
                "capsule_interop: {name} passed over, no {REQUIREMENT}: {reason}
"
            );
            let _ = std::io::stderr().write_all(line.as_bytes());
            None
        }
    }
}

fn install() -> Result<PathBuf, String> {
    let build = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target/tmp has a parent");
    let environment = build.join("interop-venv");
    let program = environment.join("bin/agentcapsule");
    let note = |what: &str, error: std::io::Error| format!("{what}: {error}");

    // The lock keeps out other processes; threads of this one wait on the OnceLock.
    let lock = File::create(build.join("interop-venv.lock")).map_err(|e| note("making the lock file", e))?;
    flock(&lock, FlockOperation::LockExclusive).map_err(|e| note("locking", e.into()))?;
    let complete = environment.join(COMPLETE);
    if fs::read_to_string(&complete).is_ok_and(|made| made == REQUIREMENT) && program.exists() {
        return Ok(program);
    }
    if environment.exists() {
        fs::remove_dir_all(&environment).map_err(|e| note("removing a half-made environment", e))?;
    }
    let give_up = Instant::now() + PATIENCE;
    run("python3 -m venv", Command::new("python3").args(["-m", "venv"]).arg(&environment), give_up)?;
    run(
        "pip install",
        Command::new(environment.join("bin/python"))
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .args(["--retries", "1", "--timeout", "60", REQUIREMENT]),
        give_up,
    )?;
    fs::write(&complete, REQUIREMENT).map_err(|e| note("marking the environment as complete", e))?;
    Ok(program)
}

/// Runs to the end, or to `give_up`; the last line of its errors is the reason of a failure.
fn run(what: &str, command: &mut Command, give_up: Instant) -> Result<(), String> {
    let errors = tempfile();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&errors).map_err(|e| format!("{}: {e}", errors.display()))?)
        .spawn()
        .map_err(|e| format!("{what}: {e}"))?;
    let status = loop {
        match child.try_wait().map_err(|e| format!("{what}: {e}"))? {
            Some(status) => break Some(status),
            None if Instant::now() > give_up => {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let said = fs::read_to_string(&errors).unwrap_or_default();
    let _ = fs::remove_file(&errors);
    match status {
        Some(status) if status.success() => Ok(()),
        Some(_) => Err(format!("{what}: {}", said.trim().lines().last().unwrap_or("failed without a word"))),
        None => Err(format!("{what}: not done after {PATIENCE:?}")),
    }
}

fn tempfile() -> PathBuf {
    std::env::temp_dir().join(format!("agentcontainer-interop-{}.stderr", std::process::id()))
}
