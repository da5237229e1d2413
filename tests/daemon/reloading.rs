//! Another configuration in the place of the present one.

use super::*;

#[test]
fn sighup_puts_another_configuration_in_the_place_of_the_present_one() {
    let home = Home::new("daemon-reload");
    home.file("first", "the first secret of the admin");
    home.file("second", "the second secret of the admin");
    home.file("monitor", "the secret of the monitor");
    let write = |config: Value| home.file("node.json", &config.to_string());
    let config = write(json!({"listen_port": 0, "admin_secret_file": "first"}));
    let logged = Logged::start(&home, &["--config", &config, "--name", "lab"]);
    let at = logged.node.at();
    let tree = json!({"name": "lab", "host": "127.0.0.1", "port": logged.node.port,
        "children": [{"name": "below", "host": "127.0.0.1", "port": 9}]});
    home.run(&["tree", &at, "--secret-file", "first"]).exits(0);
    let monitor = ["list", &at, "--as", "monitor", "--secret-file", "monitor"];
    home.run(&monitor).exits(1).says("unknown_sender");

    write(json!({
        "listen_port": 0,
        "admin_secret_file": "second",
        "operators": {"monitor": {"secret_file": "monitor", "allow": []}},
        "federation": tree,
        "max_agents": 1,
        "allow_subprocess": false,
    }));
    let said = logged.reload();
    assert!(said.contains(" info lab configuration_reloaded "), "{said}");
    let changed = "changed=admin_secret_file,allow_subprocess,federation,operators,max_agents";
    assert!(said.contains(changed) && said.ends_with(" needs_restart=-"), "{said}");
    home.run(&monitor).exits(0);
    home.run(&["list", &at, "--secret-file", "first"]).exits(1).says("bad_signature");
    let tree = home.run(&["tree", &at, "--secret-file", "second"]).exits(0).out;
    assert!(tree.contains("below"), "{tree}");
    home.run(&["deploy", &agent("basic/ping"), &at, "--secret-file", "second"]).exits(0);
    home.run(&["deploy", &home.agent("other", SLEEPER), &at, "--secret-file", "second"])
        .exits(1)
        .says("max_agents");
    let told = home.run(&["describe", &at, "--secret-file", "second", "--json"]).exits(0).json();
    assert_eq!((&told["allow_subprocess"], &told["limits"]["max_agents"]), (&json!(false), &json!(1)));

    // The secret alone, in a file that keeps its name.
    home.file("second", "the third secret of the admin");
    assert!(logged.reload().contains(" changed=admin_secret_file "));
    home.run(&["list", &at, "--secret-file", "second"]).exits(0);
    assert!(logged.reload().contains(" changed=- "), "the same once more");

    // An agent that lives here keeps its name.
    write(json!({"listen_port": 0, "operators": {"ping": {"secret_file": "monitor", "allow": []}}}));
    let said = logged.reload();
    assert!(
        said.contains("configuration_kept") && said.contains("operators") && said.contains("ping"),
        "{said}"
    );

    // Without a secret in the configuration the node has its own, and the commands here find it.
    write(json!({"listen_port": 0}));
    assert!(logged.reload().contains("configuration_reloaded"));
    home.run(&["list", &at, "--state-dir", "n"]).exits(0);
}

#[test]
fn a_configuration_that_is_wrong_changes_nothing_and_the_log_names_the_key() {
    let home = Home::new("daemon-reload-wrong");
    home.file("secret", "the secret of the admin");
    let good = json!({"listen_port": 0, "admin_secret_file": "secret", "max_agents": 7}).to_string();
    let config = home.file("node.json", &good);
    let logged = Logged::start(&home, &["--config", &config, "--name", "lab"]);
    let limits = |logged: &Logged| {
        let told = home.run(&["describe", &logged.node.at(), "--state-dir", "n", "--json"]);
        told.exits(0).json()["limits"].clone()
    };
    let before = limits(&logged);
    for (text, part) in [
        (r#"{"listen_port": 0, "max_agents": 9, "max_agnets": 9}"#, "max_agents"),
        (r#"{"listen_port": 0, "max_agents": 9, "inbox_length": 0}"#, "inbox_length"),
        (r#"{"max_agents": 9, "admin_secret_file": "none"}"#, "none"),
        (r#"{"max_agents": 9, "operators": {"m": {"secret_file": "no-such", "allow": []}}}"#, "no-such"),
        (r#"{"max_agents": 9, "federation": {"name": "other", "host": "h", "port": 1}}"#, "lab"),
        (r#"{"max_agents": 9, "capsule_policy": "nowhere.json"}"#, "capsule_policy"),
        (r#"{"max_agents": 9, "trust_registry": "nowhere.json"}"#, "trust_registry"),
        (r#"{"max_agents": 9, "prompt_file": "nowhere"}"#, "prompt_file"),
        (r#"{"max_agents": "#, "node.json"),
    ] {
        home.file("node.json", text);
        let said = logged.reload();
        assert!(
            said.contains(" error lab configuration_kept file=") && said.contains(part),
            "{text}: {said}"
        );
        assert_eq!(limits(&logged), before, "{text}");
    }
    std::fs::remove_file(home.path("node.json")).unwrap();
    assert!(logged.reload().contains("configuration_kept"));
    home.file("node.json", &good);
    assert!(logged.reload().contains(" configuration_reloaded "));
    assert_eq!(limits(&logged), before);
}

#[test]
fn what_cannot_change_while_it_runs_is_named_and_the_command_line_outranks_the_file() {
    let home = Home::new("daemon-reload-fixed");
    let other = home.path("other");
    std::fs::create_dir(&other).unwrap();
    let config = home.file("node.json", r#"{"max_agents": 7}"#);
    let logged = Logged::start(&home, &["127.0.0.1:0", "--config", &config, "--name", "lab"]);
    // The command line has given name, address and state directory: the file's do not matter.
    let text = json!({"container_name": "x", "listen_host": "0.0.0.0", "listen_port": 1, "state_dir": "y",
        "max_agents": 8});
    home.file("node.json", &text.to_string());
    let said = logged.reload();
    assert!(said.contains("changed=max_agents needs_restart=-"), "{said}");
    let text = json!({"data_root": other, "clock_skew_s": 9, "max_message_bytes": 4096, "parked_workers": 0,
        "prewarm": false, "python": "python3", "allow_site_packages": true, "agent_memory_bytes": 1 << 30,
        "agent_open_files": 99, "max_agents": 9});
    home.file("node.json", &text.to_string());
    let said = logged.reload();
    let fixed = "data_root,clock_skew_s,max_message_bytes,parked_workers,prewarm,python,allow_site_packages,agent_memory_bytes,agent_open_files";
    assert!(said.contains(" warn lab configuration_reloaded "), "{said}");
    assert!(said.ends_with(&format!(" changed=max_agents needs_restart={fixed}")), "{said}");
    let told = home.run(&["describe", &logged.node.at(), "--state-dir", "n", "--json"]).exits(0).json();
    assert_eq!(told["limits"]["max_agents"], 9);
    assert_eq!(
        (&told["limits"]["clock_skew_s"], &told["limits"]["max_message_bytes"]),
        (&json!(300), &json!(33554432))
    );
    // What was named is named again as long as it is asked for.
    assert!(logged.reload().ends_with(&format!(" changed=- needs_restart={fixed}")));
}

#[test]
fn limits_that_were_copied_take_effect_too() {
    let home = Home::new("daemon-reload-limits");
    let config = home.file("node.json", r#"{"listen_port": 0, "inbox_length": 3}"#);
    let logged = Logged::start(&home, &["--config", &config]);
    let at = logged.node.at();
    home.run(&["deploy", &home.agent("sleeper", SLEEPER), &at, "--state-dir", "n"]).exits(0);
    home.file("node.json", r#"{"listen_port": 0, "inbox_length": 1, "max_connections": 4}"#);
    let said = logged.reload();
    assert!(said.contains("changed=max_connections,inbox_length "), "{said}");

    let message = ["invoke", "sleeper", &at, "--state-dir", "n", "--message", "600"];
    let ask = || home.command(&message).stdout(Stdio::null()).spawn().unwrap();
    let mut askers = vec![ask()];
    wait_until("the hook runs", || {
        home.run(&["list", &at, "--state-dir", "n", "--json"]).exits(0).json()[0]["status"] == "running"
    });
    askers.extend([ask(), ask()]);
    let mut refused = None;
    wait_until("of two messages one may wait", || {
        refused = askers.iter_mut().position(|asker| asker.try_wait().unwrap().is_some());
        refused.is_some()
    });
    let refused = askers.remove(refused.unwrap()).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("as many messages waiting as it may (1)"), "{said}");

    let two: Vec<TcpStream> =
        (0..2).map(|_| TcpStream::connect(("127.0.0.1", logged.node.port)).unwrap()).collect();
    wait_until("a fifth connection is one too many", || {
        home.run(&["list", &at, "--state-dir", "n"]).err.contains("serves 4 connections")
    });
    drop(two);
    for asker in &mut askers {
        asker.kill().unwrap();
        asker.wait().unwrap();
    }
}

#[test]
fn it_reloads_under_nohup_and_reading_for_ever_keeps_it_from_nothing() {
    let home = Home::new("daemon-nohup");
    let config = home.file("node.json", r#"{"listen_port": 0}"#);
    let (dir, log) = (home.path("n"), home.path("log"));
    let mut shell = Command::new("sh");
    let line = r#"trap "" HUP; exec "$@""#;
    shell.args(["-c", line, "sh", BINARY, "server", "--config", &config, "--log-file"]).arg(&log);
    shell.arg("--state-dir").arg(&dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut logged = Logged { node: Server::wait(shell.spawn().unwrap(), dir), log };
    home.file("node.json", r#"{"listen_port": 0, "max_agents": 3}"#);
    assert!(logged.reload().contains("changed=max_agents"));
    // A configuration that nobody ever writes to its end.
    std::fs::remove_file(&config).unwrap();
    assert!(Command::new("mkfifo").arg(&config).status().unwrap().success());
    logged.node.signal(Signal::HUP);
    logged.node.signal(Signal::HUP);
    home.run(&["list", &logged.node.at(), "--state-dir", "n"]).exits(0);
    logged.node.signal(Signal::TERM);
    assert_eq!(logged.node.end().code(), Some(0));
}
