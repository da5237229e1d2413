//! Finding and ending processes by their descent.
//!
//! A pid that is listed here may have ended before it is signalled. The kernel gives out pids in a
//! circle, so that one would have to be given to somebody else within microseconds of the whole
//! circle's having gone by; that is left to chance.

use crate::sync::lock;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::process::{Child, Command};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How often newcomers are looked for and stopped before everything is killed.
const FREEZE_ROUNDS: usize = 50;

/// The pause between two looks at whether the killed are gone.
const PAUSE: Duration = Duration::from_micros(300);

/// Ends every descendant of this process, which is their subreaper; `reaped` hears of each child
/// that is collected. Returns how many were left after `time` (0 in all ordinary cases).
///
/// Everything is stopped before it is killed: a stopped process forks no more, and what is killed
/// first would make room, under a limit of processes, for what still forks.
pub fn end_descendants(time: Duration, reaped: &mut impl FnMut(Pid, WaitStatus)) -> usize {
    let me = rustix::process::getpid();
    let deadline = Instant::now() + time;
    let mut stopped = HashSet::new();
    let mut urgent = false;
    // No child, living or dead, means no descendant: an orphan becomes our child at once.
    while collect(reaped) != Children::None {
        if !urgent {
            urgent = true;
            // Only root may; a fork bomb has many mouths and the supervisor one.
            let _ = rustix::process::nice(-20);
        }
        for _ in 0..FREEZE_ROUNDS {
            let fresh: Vec<Pid> = descendants(me).into_iter().filter(|&pid| stopped.insert(pid)).collect();
            if fresh.is_empty() || Instant::now() >= deadline {
                break;
            }
            signal_all(&fresh, Signal::STOP);
        }
        signal_all(&descendants(me), Signal::KILL);
        if Instant::now() >= deadline {
            return descendants(me).len();
        }
        std::thread::sleep(PAUSE);
    }
    0
}

/// Ends every process of the sessions: what remains to be done for a supervisor that was killed.
/// Returns how many were left after `time`.
pub fn end_sessions(sessions: &[i32], time: Duration) -> usize {
    let deadline = Instant::now() + time;
    loop {
        let members: Vec<Pid> = processes()
            .into_iter()
            .filter(|process| process.alive && sessions.contains(&process.session))
            .map(|process| process.pid)
            .collect();
        if members.is_empty() || Instant::now() >= deadline {
            return members.len();
        }
        signal_all(&members, Signal::STOP);
        signal_all(&members, Signal::KILL);
        std::thread::sleep(PAUSE);
    }
}

/// The supervisors that run: children of this process that are meant to be there. Held while one is started, so
/// that none is taken for a stray before it stands here.
static SUPERVISORS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Makes this process the reaper of what is below it: what a command leaves that has killed its supervisor comes
/// here, and stays a descendant, instead of going to the system's first process.
///
/// # Errors
/// What the kernel says.
pub fn reap_below() -> std::io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Starts a supervisor.
pub(crate) fn start_supervisor(command: &mut Command) -> std::io::Result<Child> {
    let mut supervisors = lock(&SUPERVISORS);
    let child = command.spawn()?;
    supervisors.insert(Pid::from_child(&child).as_raw_nonzero().get());
    Ok(child)
}

/// Collects a supervisor that has ended or is about to.
pub(crate) fn collect_supervisor(child: &mut Child) {
    let _ = child.wait(); // it is our child, and nobody else waits for it
    lock(&SUPERVISORS).remove(&Pid::from_child(child).as_raw_nonzero().get());
}

/// Ends what came to this process from supervisors that were killed, with all below it. Told by the session: what
/// the node starts itself is in its own until it makes another, which only supervisors and commands do.
pub(crate) fn end_strays(time: Duration) {
    if !matches!(rustix::process::child_subreaper(), Ok(Some(_))) {
        return;
    }
    let pid = rustix::process::getpid();
    // Not by getsid(2): where the session was begun outside this PID namespace its number is 0, which rustix's
    // type cannot say.
    let Some(Process { session, .. }) = process(pid) else { return };
    let me = pid.as_raw_nonzero().get();
    let deadline = Instant::now() + time;
    loop {
        let strays: Vec<Pid> = {
            let supervisors = lock(&SUPERVISORS);
            let ours = |one: &Process| one.parent == me && one.session != session;
            let number = |one: &Process| one.pid.as_raw_nonzero().get();
            let strays =
                processes().into_iter().filter(|one| ours(one) && !supervisors.contains(&number(one)));
            strays.map(|one| one.pid).collect()
        };
        if strays.is_empty() || Instant::now() >= deadline {
            return;
        }
        let mut all = strays.clone();
        all.extend(strays.iter().flat_map(|stray| descendants(*stray)));
        signal_all(&all, Signal::STOP);
        signal_all(&all, Signal::KILL);
        for stray in strays {
            let _ = rustix::process::waitpid(Some(stray), WaitOptions::NOHANG); // the next look tries again
        }
        std::thread::sleep(PAUSE);
    }
}

#[derive(PartialEq, Eq)]
enum Children {
    None,
    Some,
}

/// Collects the children that have ended.
fn collect(reaped: &mut impl FnMut(Pid, WaitStatus)) -> Children {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => reaped(pid, status),
            Err(Errno::CHILD) => return Children::None,
            Ok(None) | Err(_) => return Children::Some,
        }
    }
}

pub(crate) fn signal_all(pids: &[Pid], signal: Signal) {
    for &pid in pids {
        let _ = rustix::process::kill_process(pid, signal); // gone already, or not ours to end
    }
}

/// All descendants of `root`, as the kernel lists them at the moment.
pub(crate) fn descendants(root: Pid) -> Vec<Pid> {
    descendants_by_lists(root).unwrap_or_else(|| descendants_by_scan(root))
}

/// By the `children` files, or `None` where the kernel has none (CONFIG_PROC_CHILDREN).
fn descendants_by_lists(root: Pid) -> Option<Vec<Pid>> {
    let mut found = children(root)?;
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        // One that has ended in the meantime has no list; its children are ours by the next look.
        found.extend(children(pid).unwrap_or_default());
        next += 1;
    }
    Some(found)
}

fn children(pid: Pid) -> Option<Vec<Pid>> {
    let tasks = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).ok()?;
    let mut found = Vec::new();
    let mut listed = false;
    for task in tasks.flatten() {
        if let Ok(list) = fs::read_to_string(task.path().join("children")) {
            listed = true;
            found.extend(list.split_ascii_whitespace().filter_map(|word| Pid::from_raw(word.parse().ok()?)));
        }
    }
    listed.then_some(found)
}

/// By everybody's parent.
fn descendants_by_scan(root: Pid) -> Vec<Pid> {
    let mut by_parent: HashMap<i32, Vec<Pid>> = HashMap::new();
    for process in processes() {
        by_parent.entry(process.parent).or_default().push(process.pid);
    }
    let mut found = by_parent.remove(&root.as_raw_nonzero().get()).unwrap_or_default();
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        found.extend(by_parent.remove(&pid.as_raw_nonzero().get()).unwrap_or_default());
        next += 1;
    }
    found
}

struct Process {
    pid: Pid,
    parent: i32,
    /// 0 for one that was begun outside this PID namespace.
    session: i32,
    /// Not a zombie.
    alive: bool,
}

/// Every process that /proc shows.
fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let number = |name: &str| Pid::from_raw(name.parse().ok()?);
    entries.flatten().filter_map(|entry| process(number(entry.file_name().to_str()?)?)).collect()
}

fn process(pid: Pid) -> Option<Process> {
    parse_stat(pid, &fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?)
}

/// The CPU time that a process, what it started and what of that it waited for have taken; 0 where there is none.
pub(crate) fn cpu_time(root: Pid) -> Duration {
    let all = [root].into_iter().chain(descendants(root));
    let ticks: u64 = all.filter_map(ticks).fold(0, u64::saturating_add);
    Duration::from_millis(ticks.saturating_mul(1000) / rustix::param::clock_ticks_per_second().max(1))
}

/// utime, stime, cutime and cstime of a process.
fn ticks(pid: Pid) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    Some(fields.take(4).filter_map(|field| field.parse::<u64>().ok()).fold(0, u64::saturating_add))
}

/// `PID (NAME) STATE PARENT GROUP SESSION …`, where the name may contain anything, also `)`.
fn parse_stat(pid: Pid, line: &str) -> Option<Process> {
    let mut fields = line.rsplit_once(')')?.1.split_ascii_whitespace();
    let alive = !matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    Some(Process { pid, parent, session, alive })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn both_ways_find_the_same_descendants() {
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 60 & sleep 60 & (sleep 60 & wait) & echo ready; wait"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut ready).unwrap();
        let root = Pid::from_child(&shell);
        let give_up = Instant::now() + Duration::from_secs(10);
        let mut found = Vec::new();
        while found.len() < 4 && Instant::now() < give_up {
            found = descendants_by_lists(root).expect("this kernel has children files");
        }
        let mut scanned = descendants_by_scan(root);
        found.sort_by_key(|pid| pid.as_raw_nonzero());
        scanned.sort_by_key(|pid| pid.as_raw_nonzero());
        assert_eq!(found, scanned);
        assert_eq!(found.len(), 4);
        signal_all(&found, Signal::KILL);
        shell.kill().unwrap();
        shell.wait().unwrap();
    }

    #[test]
    fn a_name_with_brackets_does_not_confuse_the_parser() {
        let pid = Pid::from_raw(7).unwrap();
        let process = parse_stat(pid, "7 (a) Z 1 (b)) S 3 4 5 0 -1").unwrap();
        assert_eq!((process.parent, process.session, process.alive), (3, 5, true));
        assert!(parse_stat(pid, "7 (a").is_none());
    }
}
