//! The files that people start nodes with are accepted by the programs that read them.

#[path = "support/mod.rs"]
mod support;
use agentcontainer::node::Keys;
use std::path::{Path, PathBuf};
use std::process::Command;

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")
}

/// Runs a program; `None`, said aloud, where the machine lacks it.
fn run(program: &str, arguments: &[&str], dir: &Path) -> Option<String> {
    match Command::new(program).args(arguments).current_dir(dir).output() {
        Ok(output) => {
            let said = format!(
                "{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
            assert!(output.status.success(), "{program} {arguments:?}: {}\n{said}", output.status);
            Some(said)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("passed over: there is no {program} here");
            None
        }
        Err(error) => panic!("{program}: {error}"),
    }
}

#[test]
fn the_nodes_configurations_parse_and_agree_about_the_tree() {
    let mut trees = Vec::new();
    for folder in [examples(), examples().join("docker")] {
        for entry in std::fs::read_dir(&folder).unwrap().flatten() {
            if entry.path().extension().is_some_and(|kind| kind == "json") {
                let keys = Keys::from_file(&entry.path()).unwrap();
                trees.push((folder.clone(), keys));
            }
        }
    }
    assert_eq!(trees.len(), 8);
    for (folder, keys) in &trees {
        let own = keys.federation.as_ref().unwrap().find(&keys.container_name).unwrap();
        assert_eq!(own.port, keys.listen_port, "{}", keys.container_name);
        for (other_folder, other) in &trees {
            if let Some(seen) = other
                .federation
                .as_ref()
                .unwrap()
                .find(&keys.container_name)
                .filter(|_| folder == other_folder)
            {
                assert_eq!(seen, own, "{} as {} sees it", keys.container_name, other.container_name);
            }
        }
    }
}

#[test]
fn docker_compose_accepts_its_file() {
    run("docker-compose", &["-f", "docker-compose.yml", "config", "-q"], &examples());
}

#[test]
fn systemd_accepts_the_unit() {
    let dir = support::TempDir::new("unit");
    let unit = std::fs::read_to_string(examples().join("agentcontainer.service")).unwrap();
    // The program that the unit names need not be installed for the unit to be right.
    let unit = unit.replace("/usr/local/bin/agentcontainer", env!("CARGO_BIN_EXE_agentcontainer"));
    dir.write("agentcontainer.service", &unit);
    // Reloading is a signal that the node heeds.
    assert!(unit.contains("\nExecReload=/bin/kill -HUP $MAINPID\n"));
    run("systemd-analyze", &["verify", "--man=no", "./agentcontainer.service"], dir.path());
}

#[test]
fn shell_examples_parse() {
    for script in ["lab.sh", "clients/sign_jq.sh", "clients/sign_python.sh", "clients/check_answer.sh"] {
        run("sh", &["-n", script], &examples());
    }
    let crontab = std::fs::read_to_string(examples().join("crontab")).unwrap();
    for line in crontab
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#') && !line.contains("="))
    {
        let fields = if line.starts_with('@') { 1 } else { 5 };
        let command = line.split_whitespace().skip(fields).collect::<Vec<_>>().join(" ");
        assert!(command.contains("agentcontainer"), "{line}");
        run("sh", &["-n", "-c", &command], &examples());
    }
}

#[test]
fn the_lines_for_cron_keep_one_node_running_and_print_nothing() {
    let home = support::TempDir::new("cron");
    std::fs::create_dir(home.path().join("agent-data")).unwrap();
    let free =
        || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let (first, second) = (free(), free());
    let crontab = std::fs::read_to_string(examples().join("crontab")).unwrap();
    let crontab = crontab.replace("/usr/local/bin/agentcontainer", env!("CARGO_BIN_EXE_agentcontainer"));
    let crontab = crontab.replace(":7001", &format!(":{second}")).replace(":7000", &format!(":{first}"));
    // What cron gives a command, and no more.
    let cron = |command: &str| {
        let mut shell = Command::new("/bin/sh");
        shell
            .args(["-c", command])
            .env_clear()
            .envs([("HOME", home.path().to_str().unwrap()), ("PATH", "/usr/bin:/bin")]);
        let output = shell.current_dir(home.path()).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    };
    let status = |name: &str, option: &str| {
        cron(&format!("{} status --name {name} {option}", env!("CARGO_BIN_EXE_agentcontainer")))
    };
    let commands: Vec<String> = crontab
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
        .map(|line| {
            let fields = if line.starts_with('@') { 1 } else { 5 };
            line.split_whitespace().skip(fields).collect::<Vec<_>>().join(" ")
        })
        .collect();
    let [boot, again, night, alarm, rotate] = &commands[..] else { panic!("{commands:?}") };
    let quiet = (Some(0), String::new());
    assert_eq!(cron(alarm), (Some(0), "the node lab is down\n".into()));
    let all = [cron(boot), cron(again), cron(night), cron(night), cron(alarm)];
    let (one, two) = (status("lab", ""), status("night", ""));
    let rotated = cron(rotate);
    let log = home.path().join(".local/state/agentcontainer/lab/node.log");
    let give_up = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while !log.exists() && std::time::Instant::now() < give_up {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let reopened = log.exists();
    // Ended whatever they did.
    for name in ["lab", "night"] {
        cron(&format!("kill -TERM {}", status(name, "--pid").1));
        while !status(name, "--pid").1.is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
    assert!(all.iter().all(|said| *said == quiet), "{all:?}");
    assert!(one.0 == Some(0) && one.1.starts_with("running name=lab "), "{one:?}");
    assert!(two.0 == Some(0) && two.1.starts_with("running name=night "), "{two:?}");
    assert_eq!(rotated, quiet);
    assert!(reopened, "a new log");
    assert_eq!(status("lab", "").0, Some(3));
}

/// A script of `examples/`: its exit status and what it says on standard error.
fn script(name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String) {
    let output = Command::new("sh")
        .arg(examples().join(name))
        .args(arguments)
        .env_remove("AGENTCONTAINER_SECRET")
        .env("AGENTCONTAINER", env!("CARGO_BIN_EXE_agentcontainer"))
        .envs(environment.iter().copied())
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn shell_clients_say_how_they_are_called() {
    let secret = [("AGENTCONTAINER_SECRET", "a secret")];
    for name in ["clients/sign_jq.sh", "clients/sign_python.sh", "clients/check_answer.sh"] {
        let (status, said) = script(name, &[], &[]);
        assert_eq!((status, said.lines().count()), (Some(2), 1), "{name}: {said}");
        assert!(said.starts_with("usage: "), "{name}: {said}");
    }
    let (status, said) = script("clients/sign_jq.sh", &["127.0.0.1", "7000"], &secret);
    assert!(status == Some(2) && said.starts_with("usage: "), "{said}");
    let (status, said) = script("clients/sign_python.sh", &["127.0.0.1", "1", "x", "{"], &secret);
    assert!(status == Some(1) && said.lines().count() == 1 && said.contains("not JSON"), "{said}");
}

#[test]
fn the_demo_takes_no_odd_ports_and_nobody_elses_node_for_its_own() {
    for port in ["x", "0", "80", "1023", "65533", "07000", "99999999", "-1"] {
        let (status, said) = script("lab.sh", &[], &[("LAB_PORT", port)]);
        assert!(status == Some(2) && said.starts_with("usage: "), "{port}: {said}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().min(65532).to_string();
    let (status, said) = script("lab.sh", &[], &[("LAB_PORT", &port)]);
    assert!(status == Some(1) && said.contains("Address already in use"), "{said}");
}
