//! One node at a time on a state directory, on a port, and nothing that an agent left behind in the way.

use super::*;

#[test]
fn a_second_server_on_the_same_state_names_the_first_also_where_the_port_is_the_same() {
    let home = Home::new("daemon-second");
    let first = home.server("n", &["127.0.0.1:0"]);
    let again = ["server", &first.at(), "--state-dir", "n"];
    home.run(&again).exits(2).says(&format!("the node of process {} runs on ", first.child.id()));
    let quiet = home.run(&[&again[..], &["--if-not-running"]].concat()).exits(0);
    assert_eq!((quiet.out.as_str(), quiet.err.as_str()), ("", ""), "cron would send a mail");
    let detached = home.run(&[&again[..], &["--if-not-running", "--detach"]].concat()).exits(0);
    assert_eq!((detached.out.as_str(), detached.err.as_str()), ("", ""));
    home.run(&["list", &first.at(), "--state-dir", "n"]).exits(0);
    // Another state directory, the same port: that is no node of ours which runs already.
    home.run(&["server", &first.at(), "--state-dir", "m", "--if-not-running"]).exits(2).says("in use");
    assert!(!home.path("m").exists(), "nothing was made for it");
}

#[test]
fn a_lock_file_with_the_number_of_a_living_process_blocks_nobody() {
    let home = Home::new("daemon-stale");
    let mut first = home.server("n", &["127.0.0.1:0"]);
    first.signal(Signal::KILL);
    first.end();
    home.file("n/lock", &format!("{}\n", std::process::id()));
    let second = home.server("n", &["127.0.0.1:0", "--if-not-running"]);
    let lock = std::fs::read_to_string(second.dir.join("lock")).unwrap();
    assert_eq!(lock, format!("{}\n", second.child.id()));
}

#[test]
fn of_many_that_start_at_once_one_runs() {
    let home = Home::new("daemon-many");
    let mut started: Vec<Child> = Vec::new();
    for _ in 0..8 {
        let arguments = ["server", "127.0.0.1:0", "--state-dir", "n", "--if-not-running"];
        started.push(home.command(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    }
    let mut running = started;
    wait_until("all but one have ended", || {
        running.retain_mut(|child| match child.try_wait().unwrap() {
            Some(status) => {
                assert_eq!(status.code(), Some(0));
                false
            }
            None => true,
        });
        running.len() == 1
    });
    let node = Server::wait(running.pop().unwrap(), home.path("n"));
    home.run(&["list", &node.at(), "--state-dir", "n"]).exits(0);
}

/// Starts a process that outlives whoever started it, in a session of its own, and returns its number.
const DAEMONIZES: &str = "    def on_activate(self, ctx, payload):\n        import os\n        \
    here, there = os.pipe()\n        if os.fork() == 0:\n            os.setsid()\n            \
    pid = os.fork()\n            if pid:\n                os.write(there, str(pid).encode())\n                os._exit(0)\n            \
    os.execvp('sleep', ['sleep', '600'])\n        os.close(there)\n        return int(os.read(here, 20))\n    \
    async def on_message(self, ctx, payload):\n        \
    done = await ctx.run(['sh', '-c', 'setsid sleep 600 & echo $! >' + payload + '; sleep 600'], timeout=600)\n        return done";

#[test]
fn what_an_agent_leaves_behind_holds_neither_port_nor_files_nor_lock() {
    let home = Home::new("daemon-grandchild");
    let log = home.path("log");
    let mut node = home.server("n", &[&own_address(), "--log-file", log.to_str().unwrap()]);
    let made = home.run(&["deploy", &home.agent("detaches", DAEMONIZES), &node.at(), "--state-dir", "n"]);
    let forked = Leftover(i32::try_from(made.exits(0).json().as_i64().unwrap()).unwrap());
    // Beside the state directory, where a command may write: not right in a folder on the way to it.
    std::fs::create_dir(home.path("notes")).unwrap();
    let note = home.path("notes/note");
    let message = format!("{note:?}");
    let asker = home.command(&["invoke", "detaches", &node.at(), "--state-dir", "n", "--message", &message]);
    let mut asker = { asker }.spawn().unwrap();
    let number = || std::fs::read_to_string(&note).ok()?.trim().parse::<i32>().ok();
    wait_until("the command's child runs", || number().is_some());
    let commanded = Leftover(number().unwrap());
    wait_until("both are what they become", || {
        [&forked, &commanded].iter().all(|one| {
            std::fs::read(format!("/proc/{}/cmdline", one.0)).is_ok_and(|line| line.starts_with(b"sleep"))
        })
    });
    let nodes_own = sockets_and_files(node.child.id());
    assert!(nodes_own.iter().any(|name| name.ends_with("/lock")), "{nodes_own:?}");
    for one in [&forked, &commanded] {
        let open = sockets_and_files(one.0.unsigned_abs());
        let shared: Vec<&String> = open.iter().filter(|name| nodes_own.contains(name)).collect();
        assert!(shared.is_empty(), "{}: {shared:?}", one.0);
    }
    // Whoever would end them is killed first and the node last, so that they do outlive it.
    node.signal(Signal::STOP);
    let keepers: Vec<u32> = below(node.child.id())
        .into_iter()
        .filter(|pid| ![forked.0, commanded.0].contains(&i32::try_from(*pid).unwrap()))
        .collect();
    for signal in [Signal::STOP, Signal::KILL] {
        // Stopped before the first is killed: each would end what that one leaves.
        for pid in &keepers {
            signal_pid(i32::try_from(*pid).unwrap(), signal);
        }
    }
    node.signal(Signal::KILL);
    node.end();
    wait_for(&mut asker);
    assert!(!is_gone(forked.0) && !is_gone(commanded.0), "they outlive it");
    let next = home.server("n", &[&node.at(), "--log-file", log.to_str().unwrap()]);
    home.run(&["list", &next.at(), "--state-dir", "n"]).exits(0);
}

/// What a process has open that another could miss: sockets and files, devices aside.
fn sockets_and_files(pid: u32) -> Vec<String> {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let names = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    let passing = ["/dev/", "anon_inode:", "pipe:"]; // what a command prints goes to the node by a pipe
    names.filter(|name| !passing.iter().any(|kind| name.starts_with(kind))).collect()
}

#[test]
fn the_port_can_be_taken_again_at_once() {
    let home = Home::new("daemon-rebind");
    let mut node = home.server("n", &[&own_address()]);
    for _ in 0..20 {
        // The node closes first, and so its side is the one that waits.
        let mut stream = TcpStream::connect(("127.0.0.1", node.port)).unwrap();
        stream.write_all(b"{}\n").unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
    }
    let open: Vec<TcpStream> =
        (0..5).map(|_| TcpStream::connect(("127.0.0.1", node.port)).unwrap()).collect();
    wait_until("connections are in TIME_WAIT", || in_time_wait(node.port) >= 20);
    node.signal(Signal::KILL);
    node.end();
    let next = home.server("n", &[&node.at()]);
    assert!(in_time_wait(node.port) > 0, "while they still are");
    home.run(&["list", &next.at(), "--state-dir", "n"]).exits(0);
    drop(open);
}

/// How many connections of this local port wait for stray packets (state 06).
fn in_time_wait(port: u16) -> usize {
    let port = format!(":{port:04X}");
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let rows = table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row.len() > 3 && row[1].ends_with(&port) && row[3] == "06").count()
}

#[test]
fn what_a_killed_zygote_leaves_is_reaped() {
    let home = Home::new("daemon-zygote");
    let node = home.server("n", &[&own_address()]);
    let answers = "    def on_message(self, ctx, payload):\n        import os\n        return os.getppid()";
    home.run(&["deploy", &home.agent("asked", answers), &node.at(), "--state-dir", "n"]).exits(0);
    let asked = || home.run(&["invoke", "asked", &node.at(), "--state-dir", "n"]);
    for _ in 0..3 {
        let zygote = i32::try_from(asked().exits(0).json().as_i64().unwrap()).unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_raw(zygote).unwrap(), Signal::KILL).unwrap();
        wait_until("another one serves", || {
            // What reaches the old one before its death is known there is answered with an error.
            let answer = asked();
            answer.status == 0 && answer.json() != zygote
        });
        wait_until("nothing of it is left", || support::zombies_below(node.child.id()).is_empty());
    }
}
