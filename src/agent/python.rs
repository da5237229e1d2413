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

/// The file that `configured` (a path, or a name to look up), else `python3`, is.
///
/// # Errors
/// `NotFound`, naming what was looked for and where.
pub fn locate(configured: Option<&Path>) -> io::Result<PathBuf> {
    let wanted = configured.unwrap_or(Path::new("python3"));
    let found = if wanted.components().count() > 1 {
        wanted.is_file().then(|| wanted.to_path_buf())
    } else {
        std::env::split_paths(&search_path()).map(|folder| folder.join(wanted)).find(|file| file.is_file())
    };
    found.ok_or_else(|| {
        let message = format!("no Python interpreter {} (looked in {})", wanted.display(), search_path());
        io::Error::new(io::ErrorKind::NotFound, message)
    })
}

/// The interpreter to start, as [`locate`] finds it.
///
/// A wrapper script (as version managers install) is asked once for the program behind it: it would
/// cost its own start-up each time and stand between the node and the process.
///
/// # Errors
/// As [`locate`]; or the wrapper cannot be started.
pub fn find(configured: Option<&Path>) -> io::Result<PathBuf> {
    let found = locate(configured)?;
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

/// The oldest Python that agents run on.
const OLDEST: (u32, u32) = (3, 6);

/// Why a zygote did not start, from what it printed.
pub fn not_started(printed: &str) -> String {
    match printed.contains("Unknown option: -I") {
        true => format!("it is older than 3; {} or newer is needed ({printed})", oldest()),
        false => printed.to_owned(),
    }
}

/// Checks the version that a zygote reports, `3.11.7`.
///
/// # Errors
/// It is too old.
pub fn check_version(version: &str) -> io::Result<()> {
    let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(0));
    if (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= OLDEST {
        return Ok(());
    }
    Err(io::Error::other(format!("Python {version} is too old; {} or newer is needed", oldest())))
}

fn oldest() -> String {
    format!("{}.{}", OLDEST.0, OLDEST.1)
}

fn is_script(file: &Path) -> bool {
    use std::io::Read;
    let mut start = [0u8; 2];
    std::fs::File::open(file).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == *b"#!"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_python_that_is_too_old_is_told_so() {
        assert!(not_started("exit status: 2 Unknown option: -I | usage: python").contains("3.6 or newer"));
        assert_eq!(not_started("exit status: 1 no"), "exit status: 1 no");
        for version in ["2.7.18", "3.5.10", "x", ""] {
            assert!(check_version(version).unwrap_err().to_string().contains("3.6"), "{version}");
        }
        for version in ["3.6.0", "3.13.1", "4.0"] {
            assert!(check_version(version).is_ok(), "{version}");
        }
    }
}
