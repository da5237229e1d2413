//! Finding the interpreter.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where `python3` is looked for when the environment says nothing (cron, `env -i`).
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The search path that agents and the commands they run are given: the node's own, or the usual one.
pub fn search_path() -> String {
    std::env::var("PATH").ok().filter(|path| !path.is_empty()).unwrap_or_else(|| DEFAULT_PATH.into())
}

/// The interpreter to start: `configured` (a path, or a name to look up), else `python3`.
///
/// A wrapper script (as version managers install) is asked once for the program behind it: it would
/// cost its own start-up each time and stand between the node and the process.
///
/// # Errors
/// `NotFound`, naming what was looked for and where.
pub fn find(configured: Option<&Path>) -> io::Result<PathBuf> {
    let wanted = configured.unwrap_or(Path::new("python3"));
    let found = if wanted.components().count() > 1 {
        wanted.is_file().then(|| wanted.to_path_buf())
    } else {
        std::env::split_paths(&search_path()).map(|folder| folder.join(wanted)).find(|file| file.is_file())
    };
    let found = found.ok_or_else(|| {
        let message = format!("no Python interpreter {} (looked in {})", wanted.display(), search_path());
        io::Error::new(io::ErrorKind::NotFound, message)
    })?;
    if !is_script(&found) {
        return Ok(found);
    }
    let told = Command::new(&found)
        .args(["-I", "-c", "import sys; sys.stdout.write(sys.executable)"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()?;
    let behind = PathBuf::from(String::from_utf8_lossy(&told.stdout).into_owned());
    Ok(if told.status.success() && behind.is_file() { behind } else { found })
}

fn is_script(file: &Path) -> bool {
    use std::io::Read;
    let mut start = [0u8; 2];
    std::fs::File::open(file).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == *b"#!"
}
