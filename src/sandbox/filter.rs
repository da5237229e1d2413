//! Seccomp filters: a small assembler, and what the two filters around an agent say.
//!
//! The general one is loaded by the launcher, for the interpreter and everything below it. The agent's own
//! is loaded by its worker before the agent's source is compiled. Both are one program for every word size
//! that the kernel runs: a process is not out of reach because it speaks the other one.
//!
//! Neither ends the process: a call that is refused is answered with an error, so that an agent sees an
//! exception and not a signal.

use super::syscalls::{CALLS, LAST, NO};

/// One instruction of a classic BPF program, as the kernel takes it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    value: u32,
}

/// What stands in a program for the number of the process that loads it.
const OWN_PID: u32 = 0x7ffd_ad1d;

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const GO: u16 = 0x05;
const IF_EQUAL: u16 = 0x15;
const IF_ABOVE: u16 = 0x25;
const RETURN: u16 = 0x06;
const ALLOW: u32 = 0x7fff_0000;
const ERRNO: u32 = 0x0005_0000;

/// Offsets in what the kernel shows a filter (`struct seccomp_data`); all three are little-endian.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const ARGUMENTS: u32 = 16;

const EPERM: u32 = libc::EPERM as u32;
const ENOSYS: u32 = libc::ENOSYS as u32;
const ENOTSUP: u32 = libc::ENOTSUP as u32;

/// The audit names of the architectures, each with its column in the table.
#[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
const ARCHS: &[(u32, usize)] = &[(0xc000_003e, 0), (0x4000_0003, 1)];
#[cfg(target_arch = "aarch64")]
const ARCHS: &[(u32, usize)] = &[(0xc000_00b7, 2)];
#[cfg(not(any(target_arch = "x86_64", target_arch = "x86", target_arch = "aarch64")))]
const ARCHS: &[(u32, usize)] = &[];

/// Whether filters are known for what this program was built for.
pub const KNOWN: bool = !ARCHS.is_empty();

/// What a filter says to a call.
#[derive(Clone, Copy)]
enum Rule {
    /// Answered with this error (0: as if it had been done) and not carried out.
    Answer(u32),
    /// Carried out if all hold, else EPERM.
    If(&'static [Check]),
    /// EPERM if this argument's lower word is one of these.
    Unless(u32, &'static [u32]),
}

/// An argument's lower word, masked, is one of these.
type Check = (u32, u32, &'static [u32]);

type Said = (&'static [&'static str], Rule);

const ALL: u32 = u32::MAX;

/// Every CLONE_NEW… flag: a thread or a child, but no namespace. (CLONE_NEWTIME stands in the byte of the
/// exit signal and counts for `clone3` and `unshare` only.)
const NEW_NAMESPACES: u32 = 0x7e02_0000;
const CLONE_THREAD: u32 = 0x0001_0000;
const SOCK_STREAM: u32 = 1;
const SOCK_DGRAM: u32 = 2;
const SOCK_SEQPACKET: u32 = 5;
/// The bits of a socket's type that are no flags.
const SOCK_TYPE: u32 = 0xf;
const PRIO_PROCESS: u32 = 0;
const IOPRIO_WHO_PROCESS: u32 = 1;
const F_SETOWN: u32 = 8;
const F_SETSIG: u32 = 10;
const F_SETOWN_EX: u32 = 15;
const FIOSETOWN: u32 = 0x8901;
const SIOCSPGRP: u32 = 0x8902;
const AF_UNIX: u32 = 1;
const AF_INET: u32 = 2;
const AF_INET6: u32 = 10;

/// What nobody below the launcher needs.
const GENERAL: &[Said] = &[
    (
        &[
            "ptrace",
            "process_vm_readv",
            "process_vm_writev",
            "kcmp",
            "pidfd_getfd",
            "pidfd_send_signal",
            "process_madvise",
            "process_mrelease",
            "move_pages",
            "migrate_pages",
            "perf_event_open",
            "bpf",
            "userfaultfd",
            "keyctl",
            "add_key",
            "request_key",
            "fanotify_init",
            "open_by_handle_at",
            "name_to_handle_at",
            "lookup_dcookie",
            "quotactl",
            "quotactl_fd",
            "acct",
            "syslog",
            "vhangup",
            "reboot",
            "kexec_load",
            "kexec_file_load",
            "init_module",
            "finit_module",
            "delete_module",
            "create_module",
            "query_module",
            "get_kernel_syms",
            "swapon",
            "swapoff",
            "nfsservctl",
            "uselib",
            "_sysctl",
            "sysfs",
            "ustat",
            "iopl",
            "ioperm",
            "modify_ldt",
            "vm86",
            "vm86old",
            "mount",
            "umount",
            "umount2",
            "pivot_root",
            "chroot",
            "move_mount",
            "open_tree",
            "fsopen",
            "fsconfig",
            "fsmount",
            "fspick",
            "mount_setattr",
            "unshare",
            "setns",
            "settimeofday",
            "clock_settime",
            "clock_settime64",
            "clock_adjtime",
            "clock_adjtime64",
            "adjtimex",
            "stime",
            "sethostname",
            "setdomainname",
            "setuid",
            "setuid32",
            "setgid",
            "setgid32",
            "setreuid",
            "setreuid32",
            "setregid",
            "setregid32",
            "setresuid",
            "setresuid32",
            "setresgid",
            "setresgid32",
            "setfsuid",
            "setfsuid32",
            "setfsgid",
            "setfsgid32",
            "setgroups",
            "setgroups32",
            "capset",
            "shmget",
            "semget",
            "msgget",
            "mq_open",
            "ipc",
            "io_uring_setup",
            "io_uring_enter",
            "io_uring_register",
        ],
        Rule::Answer(EPERM),
    ),
    // The libraries fall back to `clone`, whose flags a filter can see.
    (&["clone3"], Rule::Answer(ENOSYS)),
    (&["clone"], Rule::If(&[(0, NEW_NAMESPACES, &[0])])),
    (&["personality"], Rule::If(&[(0, ALL, &[0, ALL])])),
    (
        &["socket"],
        Rule::If(&[
            (0, ALL, &[AF_INET, AF_INET6]),
            (1, SOCK_TYPE, &[SOCK_STREAM, SOCK_DGRAM]),
            (2, ALL, &[0, libc::IPPROTO_TCP as u32, libc::IPPROTO_UDP as u32]),
        ]),
    ),
    // No datagrams: such a socket can be pointed at any other, by a path or an abstract name.
    (&["socketpair"], Rule::If(&[(0, ALL, &[AF_UNIX]), (1, SOCK_TYPE, &[SOCK_STREAM, SOCK_SEQPACKET])])),
    // Its arguments are in memory, where a filter can't see them.
    (&["socketcall"], SOCKETCALL),
];

/// The one way of a 32-bit interpreter to `socketpair`; on a 64-bit node nobody needs it.
#[cfg(target_arch = "x86")]
const SOCKETCALL: Rule = Rule::If(&[(0, ALL, &[4, 5, 6, 7, 8, 9, 10, 13, 14, 15, 16, 17, 18, 19, 20])]);
#[cfg(not(target_arch = "x86"))]
const SOCKETCALL: Rule = Rule::Answer(EPERM);

/// What no agent's process needs, whatever it is granted.
const AGENTS: &[Said] = &[
    // Not covered by Landlock, and no more than a courtesy to an agent's own files: `shutil.copy` would
    // fail if they were refused.
    (
        &["chmod", "fchmod", "fchmodat", "utime", "utimes", "futimesat", "utimensat", "utimensat_time64"],
        Rule::Answer(0),
    ),
    (
        &[
            "chown",
            "chown32",
            "fchown",
            "fchown32",
            "lchown",
            "lchown32",
            "fchownat",
            "inotify_init",
            "inotify_init1",
        ],
        Rule::Answer(EPERM),
    ),
    (
        &["setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr"],
        Rule::Answer(ENOTSUP),
    ),
    (
        &["prlimit64", "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler"],
        Rule::If(&[(0, ALL, &[0, OWN_PID])]),
    ),
    // Of a process only: 0 as a user's number is everything that is the node's user's.
    (&["setpriority"], Rule::If(&[(0, ALL, &[PRIO_PROCESS]), (1, ALL, &[0, OWN_PID])])),
    (&["ioprio_set"], Rule::If(&[(0, ALL, &[IOPRIO_WHO_PROCESS]), (1, ALL, &[0, OWN_PID])])),
    // A descriptor's owner is signalled by the kernel, with any signal, whoever that is: Landlock before 6
    // knows nothing of it.
    (&["fcntl", "fcntl64"], Rule::Unless(1, &[F_SETOWN, F_SETSIG, F_SETOWN_EX])),
    (&["ioctl"], Rule::Unless(1, &[FIOSETOWN, SIOCSPGRP])),
    // Files in memory, which no limit of memory counts.
    (&["memfd_create", "memfd_secret"], Rule::Answer(ENOSYS)),
];

/// Without the right to start programs an agent is one process, and knows no other.
const ONE_PROCESS: &[Said] = &[
    (&["execve", "execveat", "fork", "vfork", "tkill"], Rule::Answer(EPERM)),
    (&["clone"], Rule::If(&[(0, CLONE_THREAD, &[CLONE_THREAD])])),
    (&["kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"], Rule::If(&[(0, ALL, &[0, OWN_PID])])),
];

const NO_SOCKETS: &[Said] = &[(&["socket"], Rule::Answer(EPERM))];

/// The program that the launcher loads.
pub fn general() -> Vec<Instruction> {
    assemble(&[GENERAL], Some(ENOSYS))
}

/// The program that a worker loads, by what its agent may do. Where it names the loading process stands
/// beside it: places that are to hold its number.
pub fn agent(exec: bool, sockets: bool) -> (Vec<Instruction>, Vec<usize>) {
    let mut parts = vec![AGENTS];
    if !exec {
        parts.push(ONE_PROCESS);
    }
    if !sockets {
        parts.push(NO_SOCKETS);
    }
    let program = assemble(&parts, None);
    let own = |(at, one): (usize, &Instruction)| (one.code == IF_EQUAL && one.value == OWN_PID).then_some(at);
    let places = program.iter().enumerate().filter_map(own).collect();
    (program, places)
}

/// A program's bytes, as they stand in memory.
pub fn bytes(program: &[Instruction]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(program.len() * 8);
    for one in program {
        bytes.extend_from_slice(&one.code.to_ne_bytes());
        bytes.extend_from_slice(&[one.if_true, one.if_false]);
        bytes.extend_from_slice(&one.value.to_ne_bytes());
    }
    bytes
}

fn step(code: u16, value: u32) -> Instruction {
    Instruction { code, if_true: 0, if_false: 0, value }
}

fn branch(code: u16, value: u32, if_true: usize, if_false: usize) -> Instruction {
    // Bodies are short; a test walks every rule.
    Instruction { code, if_true: if_true as u8, if_false: if_false as u8, value }
}

/// One section an architecture; calls above the last known one are answered with `unknown`, and so is an
/// architecture that is not in the table.
fn assemble(parts: &[&[Said]], unknown: Option<u32>) -> Vec<Instruction> {
    let mut program = vec![step(LOAD, ARCH)];
    for (arch, column) in ARCHS {
        let section = section(parts, *column, unknown);
        program.push(branch(IF_EQUAL, *arch, 1, 0));
        program.push(step(GO, section.len() as u32));
        program.extend(section);
    }
    program.push(step(RETURN, ERRNO | ENOSYS));
    program
}

fn section(parts: &[&[Said]], column: usize, unknown: Option<u32>) -> Vec<Instruction> {
    let mut section = vec![step(LOAD, NUMBER)];
    if let Some(error) = unknown {
        section.extend([branch(IF_ABOVE, LAST, 0, 1), step(RETURN, ERRNO | error)]);
    }
    for (names, rule) in parts.iter().copied().flatten() {
        for number in names.iter().map(|name| number(name, column)).filter(|number| *number != NO) {
            let body = body(*rule);
            section.push(branch(IF_EQUAL, number, 0, body.len()));
            section.extend(body);
        }
    }
    section.push(step(RETURN, ALLOW));
    section
}

fn body(rule: Rule) -> Vec<Instruction> {
    let checks = match rule {
        Rule::Answer(error) => return vec![step(RETURN, ERRNO | error)],
        Rule::Unless(argument, values) => {
            let mut body = vec![step(LOAD, ARGUMENTS + 8 * argument)];
            for (at, value) in values.iter().enumerate() {
                body.push(branch(IF_EQUAL, *value, values.len() - at, 0));
            }
            body.extend([step(RETURN, ALLOW), step(RETURN, ERRNO | EPERM)]);
            return body;
        }
        Rule::If(checks) => checks,
    };
    let mut body = Vec::new();
    for (argument, mask, values) in checks {
        body.push(step(LOAD, ARGUMENTS + 8 * argument));
        if *mask != ALL {
            body.push(step(AND, *mask));
        }
        for (at, value) in values.iter().enumerate() {
            // To behind the refusal, which follows the last value.
            body.push(branch(IF_EQUAL, *value, values.len() - at, 0));
        }
        body.push(step(RETURN, ERRNO | EPERM));
    }
    body.push(step(RETURN, ALLOW));
    body
}

fn number(name: &str, column: usize) -> u32 {
    let Ok(at) = CALLS.binary_search_by(|row| row.0.cmp(name)) else { return NO };
    let (_, x86_64, i386, aarch64) = CALLS[at];
    [x86_64, i386, aarch64][column]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program as the kernel would.
    fn run(program: &[Instruction], arch: u32, number: u32, arguments: &[u32]) -> u32 {
        let (mut at, mut held) = (0, 0u32);
        loop {
            let one = program[at];
            at += 1;
            match one.code {
                LOAD if one.value == NUMBER => held = number,
                LOAD if one.value == ARCH => held = arch,
                LOAD => held = *arguments.get(((one.value - ARGUMENTS) / 8) as usize).unwrap_or(&0),
                AND => held &= one.value,
                GO => at += one.value as usize,
                IF_EQUAL => at += if held == one.value { one.if_true } else { one.if_false } as usize,
                IF_ABOVE => at += if held > one.value { one.if_true } else { one.if_false } as usize,
                RETURN => return one.value,
                other => panic!("an instruction {other:#x}"),
            }
        }
    }

    fn everything() -> Vec<(&'static str, Vec<Instruction>)> {
        vec![
            ("general", general()),
            ("nothing granted", agent(false, false).0),
            ("exec", agent(true, false).0),
            ("sockets", agent(false, true).0),
            ("both", agent(true, true).0),
        ]
    }

    #[test]
    fn the_table_is_sorted_and_has_every_name() {
        assert!(CALLS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for part in [GENERAL, AGENTS, ONE_PROCESS, NO_SOCKETS] {
            for name in part.iter().flat_map(|(names, _)| names.iter()) {
                assert!(CALLS.iter().any(|row| row.0 == *name), "{name}");
            }
        }
    }

    #[test]
    fn every_program_ends_for_every_call_and_is_short_enough() {
        for (name, program) in everything() {
            assert!(program.len() < 4096, "{name}: {}", program.len());
            for (arch, _) in ARCHS {
                for number in 0..=LAST + 10 {
                    let _ = run(&program, *arch, number, &[0; 6]);
                }
            }
            assert_eq!(run(&program, 0x1234, 1, &[]), ERRNO | ENOSYS, "{name}: an unknown architecture");
        }
    }

    #[test]
    fn calls_are_answered_as_the_tables_say_in_every_word_size() {
        for (arch, column) in ARCHS {
            let asks = |program: &[Instruction], name: &str, arguments: &[u32]| {
                run(program, *arch, number(name, *column), arguments)
            };
            let general = general();
            for refused in ["ptrace", "bpf", "mount", "unshare", "keyctl", "io_uring_setup", "setuid"] {
                assert_eq!(asks(&general, refused, &[]), ERRNO | EPERM, "{refused}");
            }
            assert_eq!(run(&general, *arch, LAST + 1, &[]), ERRNO | ENOSYS);
            assert_eq!(run(&general, *arch, 0x4000_0001, &[]), ERRNO | ENOSYS, "x32");
            assert_eq!(asks(&general, "socket", &[AF_INET, SOCK_STREAM | 0o2000000, 6]), ALLOW);
            for wrong in [[AF_UNIX, 1, 0], [16, 3, 0], [AF_INET, 3, 1], [17, 3, 0], [AF_INET, 2, 1]] {
                assert_eq!(asks(&general, "socket", &wrong), ERRNO | EPERM, "{wrong:?}");
            }
            assert_eq!(asks(&general, "socketpair", &[AF_UNIX, SOCK_STREAM]), ALLOW);
            assert_eq!(asks(&general, "socketpair", &[AF_UNIX, SOCK_DGRAM]), ERRNO | EPERM);
            assert_eq!(asks(&general, "clone", &[0x1000_0011]), ERRNO | EPERM, "a user namespace");
            assert_eq!(asks(&general, "clone", &[0x0120_0011]), ALLOW, "a fork");
            let (alone, places) = agent(false, false);
            assert!(!places.is_empty());
            assert_eq!(asks(&alone, "clone", &[0x0120_0011]), ERRNO | EPERM);
            assert_eq!(asks(&alone, "clone", &[0x003d_0f00]), ALLOW, "a thread");
            assert_eq!(asks(&alone, "execve", &[]), ERRNO | EPERM);
            assert_eq!(asks(&alone, "kill", &[OWN_PID]), ALLOW);
            assert_eq!(asks(&alone, "kill", &[1]), ERRNO | EPERM);
            assert_eq!(asks(&alone, "socket", &[AF_INET, SOCK_STREAM, 0]), ERRNO | EPERM);
            let both = agent(true, true).0;
            assert_eq!(asks(&both, "execve", &[]), ALLOW);
            assert_eq!(asks(&both, "prlimit64", &[1]), ERRNO | EPERM);
            assert_eq!(asks(&both, "setpriority", &[0, 1]), ERRNO | EPERM);
            assert_eq!(asks(&both, "setpriority", &[0, 0]), ALLOW);
            assert_eq!(asks(&both, "ioprio_set", &[1, 0]), ALLOW);
            for everyone in ["setpriority", "ioprio_set"] {
                for which in [2, 3] {
                    assert_eq!(asks(&both, everyone, &[which, 0]), ERRNO | EPERM, "{everyone} {which}");
                }
            }
            for (name, ordinary, refused) in
                [("fcntl", 3, &[8, 10, 15][..]), ("ioctl", 0x5421, &[0x8901, 0x8902])]
            {
                assert_eq!(asks(&both, name, &[0, ordinary]), ALLOW, "{name}");
                for command in refused {
                    assert_eq!(asks(&both, name, &[0, *command]), ERRNO | EPERM, "{name} {command}");
                }
            }
            assert_eq!(asks(&both, "memfd_create", &[]), ERRNO | ENOSYS);
        }
    }
}
