//! The sandbox, tried by `agentcontainer selftest` on every Python here, as root and as an ordinary user, and
//! with layers missing.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

const BINARY: &str = env!("CARGO_BIN_EXE_agentcontainer");
/// How many selftests run at once.
const AT_ONCE: usize = 2;

/// The interpreters from 3.6 to 3.13, one a minor version.
fn pythons() -> Vec<(u32, PathBuf)> {
    let mut places = vec![PathBuf::from("/usr/bin/python3")];
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    let versions = std::fs::read_dir(home.join(".pyenv/versions"));
    places.extend(versions.into_iter().flatten().flatten().map(|one| one.path().join("bin/python3")));
    let mut found: Vec<(u32, PathBuf)> = Vec::new();
    for place in places.into_iter().filter(|place| place.is_file()) {
        let asked = Command::new(&place).args(["-c", "import sys; print(sys.version_info[1])"]).output();
        let minor = asked.ok().and_then(|asked| String::from_utf8_lossy(&asked.stdout).trim().parse().ok());
        if let Some(minor) = minor.filter(|minor| (6..=13).contains(minor)) {
            if found.iter().all(|(other, _)| *other != minor) {
                found.push((minor, place));
            }
        }
    }
    assert!(!found.is_empty(), "no Python from 3.6 to 3.13 on this machine");
    found
}

fn selftest(python: &Path, lacks: &[(&str, &str)], as_nobody: bool) -> Result<Value, String> {
    let mut command = if as_nobody {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", BINARY]);
        command
    } else {
        Command::new(BINARY)
    };
    command.args(["selftest", "--json", "--python"]).arg(python);
    command.envs(lacks.iter().copied()).current_dir("/");
    let told = command.output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    let report: Value = serde_json::from_slice(&told.stdout).map_err(|error| format!("{error}: {said}"))?;
    if report["ok"] != told.status.success() {
        return Err(format!("status {} and ok {}", told.status, report["ok"]));
    }
    Ok(report)
}

/// What is not as it should be, by name.
fn faults(report: &Value) -> Vec<String> {
    let tried = report["tried"].as_array().unwrap();
    let wrong = tried.iter().filter(|one| one["as_it_should"] != true);
    wrong.map(|one| format!("{} {}: {} ({})", one["kind"], one["name"], one["result"], one["how"])).collect()
}

fn count(report: &Value, result: &str) -> usize {
    report["tried"].as_array().unwrap().iter().filter(|one| one["result"] == result).count()
}

#[test]
fn every_attempt_is_stopped_and_every_ordinary_thing_works_on_every_python() {
    let left = Mutex::new(pythons());
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| loop {
                let Some((minor, python)) = left.lock().unwrap().pop() else { return };
                let told = match selftest(&python, &[], false) {
                    Ok(report) => {
                        if count(&report, "stopped") < 60 || count(&report, "works") < 40 {
                            vec!["fewer attempts than there are".into()]
                        } else {
                            faults(&report)
                        }
                    }
                    Err(why) => vec![why],
                };
                wrong.lock().unwrap().extend(told.into_iter().map(|what| format!("3.{minor}: {what}")));
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_ordinary_user_has_the_same_walls() {
    let reachable = |path: &str| {
        let mut asked = Command::new("setpriv");
        asked.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", path, "--version"]);
        asked.output().is_ok_and(|told| told.status.success())
    };
    if !rustix::process::geteuid().is_root() {
        return; // the other test is of an ordinary user then
    }
    if !reachable(BINARY) || !reachable("/usr/bin/python3") {
        eprintln!("not shown here: nobody can't start {BINARY} or /usr/bin/python3");
        return;
    }
    let report = selftest(Path::new("/usr/bin/python3"), &[], true).unwrap();
    assert!(faults(&report).is_empty(), "{}", faults(&report).join("\n"));
    assert!(count(&report, "works") >= 40, "{report}");
}

#[test]
fn with_a_layer_missing_the_rest_holds_and_the_level_says_so() {
    let python = Path::new("/usr/bin/python3");
    let python = if python.is_file() { python.to_path_buf() } else { pythons().remove(0).1 };
    let lacks = "AGENTCONTAINER_TEST_LACKS";
    for (missing, part) in [
        ((lacks, "landlock"), "no Landlock"),
        ((lacks, "seccomp"), "no seccomp"),
        ((lacks, "namespaces"), "no user namespace"),
        ((lacks, "ctypes"), "no ctypes"),
        (("AGENTCONTAINER_TEST_LANDLOCK", "1"), "Landlock 1 "),
    ] {
        let report = selftest(&python, &[missing], false).unwrap();
        let level = report["level"].as_str().unwrap();
        assert!(level.starts_with("partial: ") && level.contains(part), "{missing:?}: {level}");
        assert!(faults(&report).is_empty(), "{missing:?}: {}", faults(&report).join("\n"));
        let open = count(&report, "open");
        assert!(open > 0, "{missing:?}: all were tried");
    }
}
