//! Running commands: their results, their bounds, and that nothing of them stays behind.

mod support;

use agentcontainer::agent::host::CallError;
use agentcontainer::primitives::run::{minimal_environment, run, RunResult, RunSetup, MAX_OUTPUT_BYTES};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::{wait_until, TempDir};

const LONG: Duration = Duration::from_secs(60);
const SUPERVISOR: &str = env!("CARGO_BIN_EXE_agentcontainer");

/// Every process of a test carries this variable, with a value of its own.
const MARK: &str = "AGENTCONTAINER_TEST_MARK";

/// Runs in `directory`, every process marked with `mark`.
fn run_marked(
    directory: &Path,
    mark: &str,
    command: &[&str],
    timeout: Duration,
) -> Result<RunResult, CallError> {
    let mut environment = minimal_environment(directory);
    environment.push((MARK.to_owned(), mark.to_owned()));
    if let Ok(path) = std::env::var("PATH") {
        environment[0].1 = path; // python3 may live elsewhere here
    }
    let setup = RunSetup {
        supervisor: Path::new(SUPERVISOR),
        directory,
        user: None,
        hidden: None,
        environment: &environment,
    };
    let command: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
    run(&setup, &command, timeout)
}

fn simple(command: &[&str]) -> Result<RunResult, CallError> {
    run_marked(&std::env::temp_dir(), "simple", command, LONG)
}

/// The living processes that carry the mark.
fn living(mark: &str) -> Vec<i32> {
    let entry = format!("{MARK}={mark}");
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let environment = std::fs::read(process.path().join("environ")).unwrap_or_default();
        if environment.split(|&byte| byte == 0).any(|variable| variable == entry.as_bytes()) {
            found.push(pid);
        }
    }
    found
}

fn unique(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

fn detail(error: &CallError) -> serde_json::Value {
    serde_json::from_str(error.detail.as_ref().expect("a detail").get()).unwrap()
}

#[test]
fn results_are_as_in_python() {
    let result = simple(&["sh", "-c", "echo out; echo err >&2; exit 3"]).unwrap();
    let expected = RunResult {
        returncode: 3,
        stdout: "out\n".to_owned(),
        stderr: "err\n".to_owned(),
        stdout_truncated: false,
        stderr_truncated: false,
        stdout_utf8: true,
        stderr_utf8: true,
        left_running: 0,
    };
    assert_eq!(result, expected);
    assert_eq!(simple(&["true"]).unwrap().returncode, 0);
    assert_eq!(simple(&["sh", "-c", "kill -TERM $$"]).unwrap().returncode, -15);
    assert_eq!(simple(&["sh", "-c", "kill -KILL $$"]).unwrap().returncode, -9);
    assert_eq!(simple(&["printf", "%s|", "a b", "*", "$HOME", ""]).unwrap().stdout, "a b|*|$HOME||");
}

#[test]
fn the_command_gets_the_directory_the_environment_and_nothing_else() {
    let dir = TempDir::new("run-dir");
    let result = run_marked(dir.path(), "env", &["sh", "-c", "pwd -P; cat | wc -c; env"], LONG).unwrap();
    let mut lines = result.stdout.lines();
    assert_eq!(Path::new(lines.next().unwrap()), dir.path().canonicalize().unwrap());
    assert_eq!(lines.next().unwrap().trim(), "0");
    let mut names: Vec<_> = lines.filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    names.retain(|name| !["_", "PWD", "SHLVL", "OLDPWD"].contains(name)); // the shell's own
    names.sort_unstable();
    assert_eq!(
        names,
        [MARK, "HOME", "LANG", "PATH"]
            .into_iter()
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .collect::<Vec<_>>()
    );
}

#[test]
fn no_descriptor_leaks_into_the_command() {
    // One that the node forgot to mark close-on-exec.
    let file = std::fs::File::open("/dev/null").unwrap();
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
    let script = "import os\nfor n in range(1024):\n  try: os.fstat(n); print(n)\n  except OSError: pass";
    assert_eq!(simple(&["python3", "-I", "-S", "-c", script]).unwrap().stdout, "0\n1\n2\n");
}

#[test]
fn what_cannot_be_run_says_why() {
    let dir = TempDir::new("cannot");
    dir.write("plain", "not executable");
    dir.write("orphan", "#!/no/such/interpreter\n");
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(dir.path().join("orphan"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("circle", dir.path().join("circle")).unwrap();
    let (huge, long) = ("x".repeat(300_000), "x".repeat(5000));
    for (command, code) in [
        (vec![], "bad_payload"),
        (vec![""], "bad_payload"),
        (vec!["echo", "a\0b"], "bad_payload"),
        (vec![long.as_str()], "bad_payload"),
        (vec!["./circle"], "bad_payload"),
        (vec!["no-such-command-here"], "not_found"),
        (vec!["./no-such"], "not_found"),
        (vec!["./orphan"], "not_found"),
        (vec!["./plain"], "forbidden"),
        (vec!["/"], "forbidden"),
        (vec!["echo", huge.as_str()], "too_large"),
    ] {
        let error = run_marked(dir.path(), "cannot", &command, LONG).unwrap_err();
        assert_eq!(error.code, code, "{error}");
        assert!(error.message.len() < 1000, "{error}");
        if code == "not_found" {
            assert!(error.message.contains(command[0]), "{error}");
        }
    }
    let error = run_marked(&dir.path().join("gone"), "cannot", &["true"], LONG).unwrap_err();
    assert_eq!(error.code, "internal");
}

#[test]
fn output_is_bounded_marked_and_decoded() {
    let result =
        simple(&["sh", "-c", "yes 2>/dev/null | head -c 3000000; head -c 1048577 /dev/zero >&2"]).unwrap();
    assert_eq!(
        (result.returncode, result.stdout.len(), result.stdout_truncated),
        (0, MAX_OUTPUT_BYTES, true)
    );
    assert_eq!(
        (result.stderr.len(), result.stderr_truncated, result.stderr_utf8),
        (MAX_OUTPUT_BYTES, true, true)
    );
    let result = simple(&["sh", "-c", "head -c 1048576 /dev/zero; printf 'a\\377b' >&2"]).unwrap();
    assert_eq!((result.stdout.len(), result.stdout_truncated), (MAX_OUTPUT_BYTES, false));
    assert_eq!((result.stderr.as_str(), result.stderr_utf8), ("a\u{fffd}b", false));
    // A character that the bound cuts in two is not "not UTF-8".
    let script = "import sys; sys.stdout.buffer.write(b'x' + 'ä'.encode() * 600000)";
    let result = simple(&["python3", "-I", "-S", "-c", script]).unwrap();
    assert_eq!(
        (result.stdout_utf8, result.stdout_truncated, result.stdout.len()),
        (true, true, MAX_OUTPUT_BYTES - 1)
    );
}

#[test]
fn at_the_timeout_everything_is_gone_and_the_output_is_handed_back() {
    let stubborn = "
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGHUP, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for fd in range(3): os.close(fd)
        time.sleep(600)
    os._exit(0)
print('forked', flush=True)
time.sleep(600)
";
    let shell = "echo partial; sleep 600 & setsid sleep 600 & (setsid sh -c 'sleep 600 & wait' &) ; trap '' TERM HUP INT; wait";
    for (name, command) in [("python", ["python3", "-c", stubborn]), ("shell", ["sh", "-c", shell])] {
        let mark = unique(name);
        let start = Instant::now();
        let error =
            run_marked(&std::env::temp_dir(), &mark, &command, Duration::from_millis(700)).unwrap_err();
        let took = start.elapsed();
        assert_eq!(living(&mark), [0; 0], "{name}");
        assert_eq!(error.code, "timeout", "{error}");
        let detail = detail(&error);
        assert_eq!(detail["returncode"], -9);
        assert!(["forked\n", "partial\n"].contains(&detail["stdout"].as_str().unwrap()), "{detail}");
        assert_eq!(detail["left_running"], 0);
        assert!(took < Duration::from_secs(3), "{name} took {took:?}");
    }
}

#[test]
fn a_command_that_forks_on_and_on_is_ended() {
    // A process that hops from pid to pid, and a crowd that is renewed without a pause.
    let hop = "import os\nwhile True:\n  if os.fork(): os._exit(0)";
    let crowd = "
import os
for _ in range(20): os.fork() if _ < 4 else None
while True:
    pid = os.fork()
    if pid == 0: os._exit(0)
    os.waitpid(pid, 0)
";
    for (name, script) in [("hop", hop), ("crowd", crowd)] {
        let mark = unique(name);
        let script = if name == "hop" {
            format!("import os\nif os.fork() == 0:\n  exec({hop:?})\nelse:\n  import time; time.sleep(600)")
        } else {
            script.to_owned()
        };
        let start = Instant::now();
        let error =
            run_marked(&std::env::temp_dir(), &mark, &["python3", "-c", &script], Duration::from_millis(500))
                .unwrap_err();
        assert_eq!(error.code, "timeout");
        assert_eq!(detail(&error)["left_running"], 0);
        assert_eq!(living(&mark), [0; 0], "{name}");
        eprintln!("{name}: ended after {:?}", start.elapsed() - Duration::from_millis(500));
    }
}

#[test]
fn a_child_in_the_background_neither_holds_the_call_nor_survives_it() {
    for script in [
        "sleep 600 & echo done",
        "setsid sleep 600 & echo done",
        "(sleep 600 &) ; (setsid sleep 600 &) ; echo done",
    ] {
        let mark = unique("background");
        let start = Instant::now();
        let result = run_marked(&std::env::temp_dir(), &mark, &["sh", "-c", script], LONG).unwrap();
        assert_eq!((result.returncode, result.stdout.as_str()), (0, "done\n"));
        assert_eq!(living(&mark), [0; 0], "{script}");
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}

#[test]
fn a_command_that_attacks_its_supervisor_does_not_get_away() {
    let mark = unique("stops");
    let command = ["sh", "-c", "sleep 600 & kill -STOP $PPID; sleep 600"];
    let error = run_marked(&std::env::temp_dir(), &mark, &command, Duration::from_millis(300)).unwrap_err();
    assert_eq!(error.code, "timeout");
    assert_eq!(living(&mark), [0; 0]);

    let mark = unique("kills");
    let command = ["sh", "-c", "trap '' HUP TERM; echo before; sleep 600 & kill -KILL $PPID; sleep 600"];
    let error = run_marked(&std::env::temp_dir(), &mark, &command, LONG).unwrap_err();
    assert_eq!(error.code, "internal", "{error}");
    assert_eq!(detail(&error)["stdout"], "before\n");
    // Swept by the node, reaped by whoever inherits them.
    support::wait_until("all of it is gone", || living(&mark).is_empty());
}

#[test]
fn the_command_cannot_gain_privileges() {
    let result = simple(&["grep", "NoNewPrivs", "/proc/self/status"]).unwrap();
    assert_eq!(result.stdout, "NoNewPrivs:\t1\n");
}

/// This test's own binary again, to run one test of it alone in a process.
fn again(test: &str, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env("AGENTCONTAINER_TEST_ROLE", role);
    command
}

fn role() -> Option<String> {
    std::env::var("AGENTCONTAINER_TEST_ROLE").ok()
}

#[test]
fn when_the_node_is_killed_its_commands_die_with_it() {
    let script = "sleep 600 & setsid sleep 600 & (setsid sleep 600 &) ; sleep 600";
    if let Some(mark) = role() {
        let _ = run_marked(&std::env::temp_dir(), &mark, &["sh", "-c", script], LONG);
        return;
    }
    let mark = unique("node");
    let mut node = again("when_the_node_is_killed_its_commands_die_with_it", &mark);
    let mut node = node.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the command and its children run", || living(&mark).len() >= 6);
    let start = Instant::now();
    node.kill().unwrap();
    node.wait().unwrap();
    wait_until("everything is gone", || living(&mark).is_empty());
    let took = start.elapsed();
    eprintln!("everything gone {took:?} after the node");
    assert!(took < Duration::from_millis(500), "{took:?}");
}

#[test]
fn two_hundred_runs_leave_no_zombie_and_no_descriptor() {
    const TEST: &str = "two_hundred_runs_leave_no_zombie_and_no_descriptor";
    if role().is_none() {
        let output = again(TEST, "alone").output().unwrap();
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{output:?}");
        return;
    }
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    let start = Instant::now();
    for i in 0..200 {
        match i % 4 {
            0 => assert_eq!(simple(&["no-such-command"]).unwrap_err().code, "not_found"),
            1 => assert_eq!(simple(&["sh", "-c", "sleep 600 & exit 7"]).unwrap().returncode, 7),
            2 => {
                let error =
                    run_marked(&std::env::temp_dir(), "x", &["sleep", "600"], Duration::from_millis(1))
                        .unwrap_err();
                assert_eq!(error.code, "timeout");
            }
            _ => assert_eq!(simple(&["true"]).unwrap().returncode, 0),
        }
    }
    eprintln!("200 runs in {:?}", start.elapsed());
    let start = Instant::now();
    for _ in 0..100 {
        simple(&["true"]).unwrap();
    }
    eprintln!("one run of `true`: {:?}", start.elapsed() / 100);
    assert_eq!(descriptors(), before);
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        assert_eq!(std::fs::read_to_string(task.path().join("children")).unwrap(), "");
    }
}

#[test]
fn runs_side_by_side_do_not_disturb_each_other() {
    std::thread::scope(|scope| {
        for i in 0..16 {
            scope.spawn(move || {
                for j in 0..5 {
                    let text = format!("{i}-{j}");
                    assert_eq!(simple(&["echo", &text]).unwrap().stdout, format!("{text}\n"));
                }
            });
        }
    });
}
