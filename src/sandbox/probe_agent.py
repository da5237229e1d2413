"""The agent of `agentcontainer selftest`: attempts that must be stopped, and ordinary things that must work.

Each is a function; its first line says what it is, in words. An attempt is stopped if it raises or returns
None; what it returns otherwise is the proof that it was not. An ordinary thing works if it returns.
"""
import ctypes
import os
import signal
import socket
import sys
import threading
import time

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long
ARM = os.uname().machine == "aarch64"
# x86_64, aarch64
CALLS = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "tgkill": (234, 131), "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424), "rt_sigqueueinfo": (129, 138), "ioprio_set": (251, 30), "prlimit64": (302, 261),
    "io_uring_setup": (425, 425), "bpf": (321, 280), "keyctl": (250, 219), "add_key": (248, 217),
    "userfaultfd": (323, 282), "perf_event_open": (298, 241), "unshare": (272, 97), "setns": (308, 268),
    "clone": (56, 220), "clone3": (435, 435), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "capset": (126, 91), "execveat": (322, 281), "inotify_init1": (294, 26), "shmget": (29, 194),
    "mq_open": (240, 180), "msgget": (68, 186), "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264),
    "syslog": (103, 116), "kcmp": (312, 272), "pidfd_getfd": (438, 438), "fsopen": (430, 430), "sethostname": (170, 161),
    "clock_settime": (227, 112), "fanotify_init": (300, 262), "swapon": (167, 224), "init_module": (175, 105),
    "memfd_create": (319, 279), "personality": (135, 92), "move_pages": (279, 239), "acct": (163, 89),
}


def call(name, *args):
    """A system call; its result, or the OSError that it is."""
    ctypes.set_errno(0)
    given = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    result = LIBC.syscall(ctypes.c_long(CALLS[name][ARM]), *given)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)
    return "%s gave %d" % (name, result)


ATTACKS = {}
ORDINARY = {}


def attack(layers, rights="plain"):
    def keep(function):
        ATTACKS[function.__name__] = (function, function.__doc__, layers, rights)
        return function
    return keep


def ordinary(rights="plain"):
    def keep(function):
        ORDINARY[function.__name__] = (function, function.__doc__, "", rights)
        return function
    return keep


def many(table, rows):
    for name, words, layers, rights, function in rows:
        table[name] = (function, words, layers, rights)


def read(path):
    with open(path, "rb") as file:
        return "read %d bytes" % len(file.read(64))


def write(path):
    with open(path, "ab") as file:
        file.write(b"x")
    return "wrote %s" % path


def unchanged(path, what, act):
    """Whether what `what` tells of a file changed by `act`."""
    before = what(os.stat(path))
    act()
    after = what(os.stat(path))
    return None if before == after else "%s became %s" % (before, after)


def own(f, name):
    return os.path.join(f["own"], name)


def linked(f, make):
    path = own(f, "link-%d" % time.time())
    make(f["victim"], path)
    try:
        return read(path)
    finally:
        os.unlink(path)


def fd_of(pid):
    folder = "/proc/%d/fd" % pid
    return "%d descriptors" % len(os.listdir(folder))


def socket_of(family, kind, proto=0):
    with socket.socket(family, kind, proto):
        return "a socket"


def connect(address):
    socket.create_connection(address, 2).close()
    return "connected to %s:%d" % address


def unix(address, kind=socket.SOCK_STREAM):
    with socket.socket(socket.AF_UNIX, kind) as sock:
        sock.connect(address)
        return "connected"


def redirected(f):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        ours.connect(f["socket"])
        return "a datagram socket was pointed elsewhere"


def renamed(f):
    path = own(f, "mine")
    write(path)
    os.rename(path, os.path.join(f["outside"], "moved"))
    return "moved out"


def spawned(*command):
    import subprocess
    done = subprocess.run(list(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise OSError(done.returncode, done.stdout.decode("utf-8", "replace")[-200:] or "status")
    return "ran: %s" % done.stdout[:40]


def forked(f):
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return "forked"


def replaced(f):
    os.execv("/bin/true", ["true"])


def memfd(f):
    if not hasattr(os, "memfd_create"):
        raise OSError("no memfd_create here")
    fd = os.memfd_create("x")
    os.write(fd, b"#!/bin/true\n")
    LIBC.syscall.restype = ctypes.c_long
    return call("execveat", fd, ctypes.c_char_p(b""), None, None, 0x1000)


def owned_by(pid):
    import fcntl
    near, far = socket.socketpair()
    fcntl.fcntl(near, fcntl.F_SETOWN, pid)
    fcntl.fcntl(near, 10, int(signal.SIGCONT))
    fcntl.fcntl(near, fcntl.F_SETFL, os.O_ASYNC)
    far.send(b"x")
    return "sent"


def prlimit(pid):
    import resource
    pair = (ctypes.c_uint64 * 2)()
    return call("prlimit64", pid, int(resource.RLIMIT_CORE), ctypes.byref(pair), None)


def handle(f):
    room = (ctypes.c_uint32 * 40)(128)
    mount = ctypes.c_int()
    return call("name_to_handle_at", -100, ctypes.c_char_p(f["victim"].encode()), room, ctypes.byref(mount), 0)


def run_reads(f):
    told = f["ctx"].run(["cat", f["node_file"]])
    return None if told["returncode"] else "the command read it"


def run_writes(f):
    told = f["ctx"].run(["touch", f["victim"] + ".new"])
    return None if told["returncode"] else "the command wrote there"


def as_another(f):
    told = f["ctx"]._call("state_dir", {"agent_id": f["other"]})
    return None if told == f["own"] else told


def wake_another(f):
    f["ctx"]._call("wake", {"from": "nobody", "message": {}, "agent_id": f["other"]})
    raise OSError("only its own inbox was reached")


def frame(text):
    def send(f):
        f["ctx"]._bridge.send(text)
        time.sleep(1)
        return "the node took it"
    return send


def forged_reply(f):
    f["ctx"]._bridge.send('{"reply":1,"result":{}}')
    time.sleep(1)
    return "the node took it"


def out_of_memory(f):
    held = []
    for _ in range(64):
        held.append(bytearray(256 << 20))
    return "%d MB" % (len(held) * 256)


def too_many_threads(f):
    stop = threading.Event()
    count = 0
    try:
        for count in range(20000):
            threading.Thread(target=stop.wait, daemon=True).start()
    except (RuntimeError, MemoryError):
        return None if count < 15000 else "%d threads" % count
    finally:
        stop.set()
    return "%d threads" % count


def too_many_files(f):
    held = []
    try:
        for _ in range(100000):
            held.append(os.dup(1))
    except OSError:
        return None if len(held) < 70000 else "%d" % len(held)
    finally:
        for fd in held:
            os.close(fd)
    return "%d descriptors" % len(held)


def huge_file(f):
    path = own(f, "huge")
    try:
        with open(path, "wb") as file:
            os.ftruncate(file.fileno(), 1 << 42)
        return "4 TB"
    finally:
        os.unlink(path)


def fork_bomb(f):
    children = []
    try:
        for _ in range(3000):
            pid = os.fork()
            if pid == 0:
                time.sleep(20)
                os._exit(0)
            children.append(pid)
    except OSError:
        return None
    finally:
        for pid in children:
            os.kill(pid, 9)
        for pid in children:
            os.waitpid(pid, 0)
    return "%d children" % len(children)


def burn(f):
    end = time.time() + 15
    while time.time() < end:
        pass
    return "15 s of CPU"


def own_program(f):
    path = own(f, "program")
    with open("/bin/true", "rb") as source, open(path, "wb") as file:
        file.write(source.read())
    os.chmod(path, 0o755)
    return spawned(path)


F, S = "landlock", "seccomp"
many(ATTACKS, [
    ("shadow", "read /etc/shadow", F, "plain", lambda f: read("/etc/shadow")),
    ("state_list", "list the state directory", F, "plain", lambda f: os.listdir(f["state_dir"])),
    ("state_read", "read a file of the node's", F, "plain", lambda f: read(f["node_file"])),
    ("journal_read", "list the journal", F, "plain", lambda f: os.listdir(f["state_dir"] + "/journal")),
    ("meta_list", "list the node's meta directory", F, "plain", lambda f: os.listdir(f["state_dir"] + "/meta")),
    ("own_harness", "list its own harness directory", F, "plain", lambda f: os.listdir(f["home"] + "/harness")),
    ("other_state", "read another agent's state", F, "plain", lambda f: read(f["victim"])),
    ("other_config", "read another agent's config", F, "plain", lambda f: read(f["other_home"] + "/config/agent.py")),
    ("other_harness", "list another agent's harness", F, "plain", lambda f: os.listdir(f["other_home"] + "/harness")),
    ("other_write", "write into another agent's state", F, "plain", lambda f: write(f["other_state"] + "/new")),
    ("own_config_write", "write into its own config", F, "plain", lambda f: write(f["home"] + "/config/agent.py")),
    ("data_root", "read data_root around read_file", F, "plain", lambda f: read(f["data_file"])),
    ("node_environment", "read the node's environment", F, "plain", lambda f: read("/proc/%d/environ" % f["node"])),
    ("node_memory", "open the node's memory", F, "plain", lambda f: open("/proc/%d/mem" % f["node"], "rb").name),
    ("node_maps", "read the node's memory map", F, "plain", lambda f: read("/proc/%d/maps" % f["node"])),
    ("node_descriptors", "list the node's descriptors", F, "plain", lambda f: fd_of(f["node"])),
    ("node_root", "read through the node's root", F, "plain", lambda f: read("/proc/%d/root%s" % (f["node"], f["node_file"]))),
    ("node_cmdline", "read the node's command line", F, "plain", lambda f: read("/proc/%d/cmdline" % f["node"])),
    ("sibling_environment", "read a sibling's environment", F, "plain", lambda f: read("/proc/%d/environ" % f["sibling"])),
    ("sibling_memory", "open a sibling's memory", F, "plain", lambda f: open("/proc/%d/mem" % f["sibling"], "r+b").name),
    ("sibling_descriptors", "list a sibling's descriptors", F, "plain", lambda f: fd_of(f["sibling"])),
    ("own_root", "read through its own /proc/self/root", F, "plain", lambda f: read("/proc/self/root" + f["victim"])),
    ("write_tmp", "write into /tmp", F, "plain", lambda f: write("/tmp/agentcontainer-selftest")),
    ("write_outside", "write a file outside its state", F, "plain", lambda f: write(f["outside"] + "/new")),
    ("write_data", "write into data_root", F, "plain", lambda f: write(f["data_file"])),
    ("make_folder", "make a folder outside its state", F, "plain", lambda f: os.mkdir(f["outside"] + "/folder") or "made"),
    ("dot_dot", "write through .. from its state", F, "plain", lambda f: write(f["own"] + "/../new")),
    ("remove", "remove another's file", F, "plain", lambda f: os.unlink(f["victim"]) or "removed"),
    ("rename_out", "move a file out of its state", F, "plain", renamed),
    ("hard_link", "read another's file by a hard link", F, "plain", lambda f: linked(f, os.link)),
    ("symbolic_link", "read another's file by a symbolic link", F, "plain", lambda f: linked(f, os.symlink)),
    ("truncate", "cut another's file", "landlock3", "plain", lambda f: os.truncate(f["victim"], 0) or "cut"),
    ("device", "make a device", F, "plain", lambda f: os.mknod(own(f, "dev"), 0o020600, os.makedev(1, 1)) or "made"),
    ("kernel_memory", "open /dev/mem or /dev/kmsg", F, "plain", lambda f: open("/dev/kmsg", "rb").name),
    ("open_disk", "read /proc/kcore", F, "plain", lambda f: read("/proc/kcore")),
    ("chmod", "change another's mode", S, "plain", lambda f: unchanged(f["victim"], lambda s: s.st_mode, lambda: os.chmod(f["victim"], 0o777))),
    ("utime", "change another's times", S, "plain", lambda f: unchanged(f["victim"], lambda s: s.st_mtime, lambda: os.utime(f["victim"], (1, 1)))),
    ("chown", "change another's owner", S, "plain", lambda f: os.chown(f["victim"], os.getuid(), os.getgid()) or "changed"),
    ("setxattr", "set another's attribute", S, "plain", lambda f: os.setxattr(f["victim"], "user.x", b"1") or "set"),
    ("ptrace_node", "trace the node", S, "plain", lambda f: call("ptrace", 0x4206, f["node"], 0, 0)),
    ("ptrace_sibling", "trace a sibling", S, "plain", lambda f: call("ptrace", 0x4206, f["sibling"], 0, 0)),
    ("vm_read", "read the node's memory by a call", S, "plain", lambda f: call("process_vm_readv", f["node"], 0, 0, 0, 0, 0)),
    ("signal_node", "signal the node", S, "plain", lambda f: os.kill(f["node"], 18) or "sent"),
    ("signal_sibling", "signal a sibling", S, "plain", lambda f: os.kill(f["sibling"], 18) or "sent"),
    ("signal_parent", "signal the zygote", S, "plain", lambda f: os.kill(os.getppid(), 18) or "sent"),
    ("signal_all", "signal everyone", S, "plain", lambda f: os.kill(-1, 18) or "sent"),
    ("tgkill", "signal a thread of the node", S, "plain", lambda f: call("tgkill", f["node"], f["node"], 18)),
    ("sigqueue", "queue a signal to the node", S, "plain", lambda f: call("rt_sigqueueinfo", f["node"], 18, (ctypes.c_char * 128)())),
    ("pidfd_signal", "signal the node by a pidfd", S, "plain", lambda f: call("pidfd_send_signal", os.pidfd_open(f["node"]), 18, 0, 0)),
    ("pidfd_getfd", "take a descriptor of the node's", S, "plain", lambda f: call("pidfd_getfd", os.pidfd_open(f["node"]), 0, 0)),
    ("kcmp", "compare descriptors with the node", S, "plain", lambda f: call("kcmp", os.getpid(), f["node"], 0, 0, 0)),
    ("renice_node", "renice the node", S, "plain", lambda f: os.setpriority(os.PRIO_PROCESS, f["node"], 19) or "set"),
    ("renice_sibling", "renice a sibling", S, "plain", lambda f: os.setpriority(os.PRIO_PROCESS, f["sibling"], 19) or "set"),
    ("ioprio_node", "set the node's I/O priority", S, "plain", lambda f: call("ioprio_set", 1, f["node"], 0x6000)),
    ("renice_user", "renice all that is the node's user's", S, "plain", lambda f: os.setpriority(os.PRIO_USER, 0, os.getpriority(os.PRIO_USER, 0)) or "set"),
    ("ioprio_user", "set the I/O priority of all that is the node's user's", S, "plain", lambda f: call("ioprio_set", 3, 0, 0x4004)),
    ("descriptor_signal", "have the kernel signal the node for a descriptor", S, "plain", lambda f: owned_by(f["node"])),
    ("prlimit_node", "read or set the node's limits", S, "plain", lambda f: prlimit(f["node"])),
    ("prlimit_sibling", "read or set a sibling's limits", S, "plain", lambda f: prlimit(f["sibling"])),
    ("affinity_node", "pin the node to a CPU", S, "plain", lambda f: os.sched_setaffinity(f["node"], {0}) or "set"),
    ("move_pages", "move the node's pages", S, "plain", lambda f: call("move_pages", f["node"], 0, 0, 0, 0, 0)),
    ("tcp", "connect by TCP", S, "plain", lambda f: connect(("127.0.0.1", f["port"]))),
    ("tcp6", "open an IPv6 socket", S, "plain", lambda f: socket_of(socket.AF_INET6, socket.SOCK_STREAM)),
    ("listen", "listen on a port", S, "plain", lambda f: socket_of(socket.AF_INET, socket.SOCK_STREAM)),
    ("udp", "open a UDP socket", S, "plain", lambda f: socket_of(socket.AF_INET, socket.SOCK_DGRAM)),
    ("unix_path", "connect to a Unix socket by its path", S, "plain", lambda f: unix(f["socket"], socket.SOCK_DGRAM)),
    ("unix_abstract", "connect to an abstract Unix socket", S, "plain", lambda f: unix("\0" + f["abstract"], socket.SOCK_DGRAM)),
    ("unix_pair", "point a socket pair at a Unix socket", S, "plain", redirected),
    ("netlink", "open a netlink socket", S, "plain", lambda f: socket_of(socket.AF_NETLINK, socket.SOCK_RAW)),
    ("raw", "open a raw socket", S, "plain", lambda f: socket_of(socket.AF_INET, socket.SOCK_RAW, 1)),
    ("packet", "open a packet socket", S, "plain", lambda f: socket_of(socket.AF_PACKET, socket.SOCK_RAW)),
    ("crypto_socket", "open a kernel crypto socket", S, "plain", lambda f: socket_of(38, socket.SOCK_SEQPACKET)),
    ("io_uring", "set up io_uring", S, "plain", lambda f: call("io_uring_setup", 1, (ctypes.c_char * 256)())),
    ("bpf", "load a BPF map", S, "plain", lambda f: call("bpf", 0, ctypes.byref((ctypes.c_uint32 * 32)(2, 4, 4, 1)), 72)),
    ("keyctl", "use the keyring", S, "plain", lambda f: call("keyctl", 0, -3, 0)),
    ("add_key", "add a key", S, "plain", lambda f: call("add_key", ctypes.c_char_p(b"user"), ctypes.c_char_p(b"x"), ctypes.c_char_p(b"y"), 1, -2)),
    ("userfaultfd", "handle page faults", S, "plain", lambda f: call("userfaultfd", 1)),
    ("perf", "watch performance events", S, "plain", lambda f: call("perf_event_open", (ctypes.c_uint32 * 32)(1, 128), 0, -1, -1, 0)),
    ("user_namespace", "make a user namespace", S, "plain", lambda f: call("unshare", 0x10000000)),
    ("net_namespace", "make a network namespace", S, "plain", lambda f: call("unshare", 0x40000000)),
    ("join_namespace", "join a namespace", S, "plain", lambda f: call("setns", os.open("/proc/self/ns/uts", os.O_RDONLY), 0)),
    ("clone_namespace", "start a process in a namespace", S, "plain", lambda f: call("clone", 0x10000011, 0, 0, 0, 0)),
    ("clone3", "start a process by clone3", S, "plain", lambda f: call("clone3", 0, 0)),
    ("mount", "mount a file system", S, "plain", lambda f: call("mount", ctypes.c_char_p(b"x"), ctypes.c_char_p(f["own"].encode()), ctypes.c_char_p(b"tmpfs"), 0, None)),
    ("unmount", "unmount /proc", S, "plain", lambda f: call("umount2", ctypes.c_char_p(b"/proc"), 0)),
    ("fsopen", "open a file system", S, "plain", lambda f: call("fsopen", ctypes.c_char_p(b"tmpfs"), 0)),
    ("chroot", "change its root", S, "plain", lambda f: os.chroot(f["own"]) or "changed"),
    ("pivot", "pivot its root", S, "plain", lambda f: call("pivot_root", ctypes.c_char_p(b"."), ctypes.c_char_p(b"."))),
    ("setuid", "become another user", S, "plain", lambda f: os.setuid(65534 if os.getuid() != 65534 else 0) or "became"),
    ("setgroups", "change its groups", S, "plain", lambda f: os.setgroups([1]) or "changed"),
    ("capset", "set capabilities", S, "plain", lambda f: call("capset", (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())),
    ("spawn", "start a program", S, "plain", lambda f: spawned("/bin/true")),
    ("exec", "become a program", S, "plain", replaced),
    ("exec_memory", "become a program from memory", S, "plain", memfd),
    ("fork", "fork", S, "plain", forked),
    ("inotify", "watch another's folder", S, "plain", lambda f: call("inotify_init1", 0)),
    ("fanotify", "watch the file system", S, "plain", lambda f: call("fanotify_init", 0, 0)),
    ("shared_memory", "share memory with another process", S, "plain", lambda f: call("shmget", 77, 4096, 0o1777)),
    ("message_queue", "open a message queue", S, "plain", lambda f: call("msgget", 77, 0o1777)),
    ("posix_queue", "open a POSIX message queue", S, "plain", lambda f: call("mq_open", ctypes.c_char_p(b"x"), 0o102, 0o600, None)),
    ("file_handle", "make a handle of another's file", S, "plain", handle),
    ("kernel_log", "read the kernel's log", S, "plain", lambda f: call("syslog", 10, 0, 0)),
    ("host_name", "set the host's name", S, "plain", lambda f: call("sethostname", ctypes.c_char_p(b"x"), 1)),
    ("swap", "use a swap file", S, "plain", lambda f: call("swapon", ctypes.c_char_p(b"/x"), 0)),
    ("module", "load a kernel module", S, "plain", lambda f: call("init_module", None, 0, ctypes.c_char_p(b""))),
    ("personality", "change how it is executed", S, "plain", lambda f: call("personality", 0x0040000)),
    ("ctx_run", "run a command without the grant", "", "plain", lambda f: f["ctx"].run(["true"])),
    ("ctx_up", "read above data_root by read_file", "", "plain", lambda f: f["ctx"].read_file("../state/node.json")),
    ("other_id", "call in another agent's name", "", "plain", as_another),
    ("other_inbox", "wake another agent in a call of its own", "", "plain", wake_another),
    ("forged_frame", "send the node a forged frame", "", "plain", frame('{"loaded":true,"done":1,"result":"forged"}')),
    ("forged_hello", "say hello as another process", "", "plain", frame('{"hello":1}')),
    ("forged_reply", "answer a call that was never made", "", "plain", forged_reply),
    ("memory", "take memory without end", "", "plain", out_of_memory),
    ("memory_file", "take memory in files that only memory has", S, "plain", lambda f: "made %d" % os.memfd_create("x") if hasattr(os, "memfd_create") else call("memfd_create", ctypes.c_char_p(b"x"), 0)),
    ("threads", "start threads without end", "", "plain", too_many_threads),
    ("descriptors", "open descriptors without end", "", "plain", too_many_files),
    ("disk", "make a file of 4 TB", "", "plain", huge_file),
    ("cpu", "compute without end", "cpu", "plain", burn),
    # What is granted to start programs and open sockets stops at the same walls.
    ("granted_read", "with programs: read a file of the node's", F, "armed", lambda f: spawned("cat", f["node_file"])),
    ("granted_write", "with programs: write outside its state", F, "armed", lambda f: spawned("/bin/sh", "-c", "echo x >" + f["outside"] + "/new")),
    ("granted_other", "with programs: read another agent's state", F, "armed", lambda f: spawned("cat", f["victim"])),
    ("granted_environment", "with programs: read the node's environment", F, "armed", lambda f: spawned("cat", "/proc/%d/environ" % f["node"])),
    ("granted_memory", "with programs: open the node's memory", F, "armed", lambda f: open("/proc/%d/mem" % f["node"], "rb").name),
    ("granted_descriptors", "with programs: look at the node's descriptors", F, "armed", lambda f: spawned("readlink", "/proc/%d/fd/0" % f["node"])),
    ("granted_signal", "with programs: signal the node", "landlock6", "armed", lambda f: spawned("/bin/sh", "-c", "kill -CONT %d" % f["node"])),
    ("granted_sibling", "with programs: signal a sibling", "landlock6", "armed", lambda f: os.kill(f["sibling"], 18) or "sent"),
    ("granted_trace", "with programs: trace the node", S, "armed", lambda f: call("ptrace", 0x4206, f["node"], 0, 0)),
    ("granted_own", "with programs: start one of its own making", F, "armed", own_program),
    ("granted_namespace", "with programs: make a user namespace", S, "armed", lambda f: spawned("unshare", "-U", "true")),
    ("granted_unix", "with sockets: connect to a Unix socket", S, "armed", lambda f: unix(f["socket"], socket.SOCK_DGRAM)),
    ("granted_abstract", "with sockets: connect to an abstract socket", S, "armed", lambda f: unix("\0" + f["abstract"], socket.SOCK_DGRAM)),
    ("granted_netlink", "with sockets: open a netlink socket", S, "armed", lambda f: socket_of(socket.AF_NETLINK, socket.SOCK_RAW)),
    ("granted_raw", "with sockets: open a raw socket", S, "armed", lambda f: socket_of(socket.AF_INET, socket.SOCK_RAW, 1)),
    ("granted_bomb", "with programs: fork without end", "processes", "armed", fork_bomb),
    ("run_reads", "the run call reading a file of the node's", "run", "armed", run_reads),
    ("run_writes", "the run call writing into another agent's state", "run", "armed", run_writes),
])


def check(value):
    assert value, "it gave %r" % (value,)
    return True


def looped(make):
    import asyncio
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(make())
    finally:
        loop.close()


async def slept():
    import asyncio
    await asyncio.gather(*[asyncio.sleep(0.01) for _ in range(3)])
    return True


async def in_executor():
    import asyncio
    return await asyncio.get_event_loop().run_in_executor(None, lambda: 42)


async def piped():
    import asyncio
    reader, writer = await asyncio.open_connection(sock=SERVED[0])
    SERVED[1].sendall(b"hello\n")
    line = await reader.readline()
    writer.close()
    return line == b"hello\n"

SERVED = []


def asyncio_streams(f):
    SERVED[:] = socket.socketpair()
    try:
        return check(looped(piped))
    finally:
        SERVED[1].close()


def mod(name):
    return __import__(name, fromlist=["x"])


def temp(f):
    tempfile = mod("tempfile")
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"x")
        return check(os.path.dirname(file.name) == f["own"])


def temp_folder(f):
    with mod("tempfile").TemporaryDirectory() as folder:
        return write(folder + "/x")


def database(f):
    base = mod("sqlite3").connect(own(f, "base.db"))
    try:
        with base:
            base.execute("create table if not exists t (x)")
            base.execute("insert into t values (1)")
        base.execute("pragma journal_mode=wal").fetchall()
        return check(base.execute("select count(*) from t").fetchone()[0] >= 1)
    finally:
        base.close()


def started(count):
    seen = []
    threads = [threading.Thread(target=seen.append, args=(n,)) for n in range(count)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return check(len(seen) == count)


def pooled(f):
    with mod("concurrent.futures").ThreadPoolExecutor(3) as pool:
        return check(list(pool.map(abs, [-1, -2])) == [1, 2])


def copied(f):
    shutil = mod("shutil")
    write(own(f, "a"))
    shutil.copy(own(f, "a"), own(f, "b"))
    shutil.copy2(own(f, "a"), own(f, "c"))
    return check(os.path.exists(own(f, "c")))


def tree(f):
    shutil = mod("shutil")
    shutil.rmtree(own(f, "t"), True)
    shutil.rmtree(own(f, "u"), True)
    os.makedirs(own(f, "t/deep/er"))
    write(own(f, "t/deep/file"))
    shutil.copytree(own(f, "t"), own(f, "u"))
    shutil.move(own(f, "u"), own(f, "t/moved"))
    count = sum(len(files) for _, _, files in os.walk(own(f, "t")))
    shutil.rmtree(own(f, "t"))
    return check(count == 2)


def zipped(f):
    zipfile = mod("zipfile")
    with zipfile.ZipFile(own(f, "z.zip"), "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a", "b" * 1000)
    return check(zipfile.ZipFile(own(f, "z.zip")).read("a") == b"b" * 1000)


def tarred(f):
    tarfile = mod("tarfile")
    write(own(f, "a"))
    with tarfile.open(own(f, "t.tgz"), "w:gz") as file:
        file.add(own(f, "a"), "a")
    os.makedirs(own(f, "x"), exist_ok=True)
    tarfile.open(own(f, "t.tgz")).extractall(own(f, "x"))
    return check(os.path.exists(own(f, "x/a")))


def mapped(f):
    mmap = mod("mmap")
    mmap.mmap(-1, 4096).close()
    with open(own(f, "m"), "w+b") as file:
        file.write(b"0" * 4096)
        file.flush()
        with mmap.mmap(file.fileno(), 4096) as held:
            held[0:1] = b"1"
            return check(held[0:1] == b"1")


def signalled(f):
    signal = mod("signal")
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
    os.kill(os.getpid(), signal.SIGUSR1)
    time.sleep(0.01)
    signal.signal(signal.SIGUSR1, before)
    return check(seen)


def alarmed(f):
    signal = mod("signal")
    seen = []
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    time.sleep(0.1)
    signal.signal(signal.SIGALRM, before)
    return check(seen)


def logged(f):
    logging = mod("logging")
    handler = mod("logging.handlers").RotatingFileHandler(own(f, "log"), maxBytes=100, backupCount=1)
    for _ in range(40):
        handler.emit(logging.LogRecord("x", 20, "x", 1, "a line", (), None))
    handler.close()
    return check(os.path.exists(own(f, "log.1")))


def subprocessed(f):
    subprocess = mod("subprocess")
    told = subprocess.check_output(["sh", "-c", "echo $((6*7)); cat"], input=b"in", stderr=subprocess.DEVNULL)
    return check(told == b"42\nin")


def terminated(f):
    subprocess = mod("subprocess")
    child = subprocess.Popen(["sleep", "30"])
    child.terminate()
    return check(child.wait() == -15)


def python_again(f):
    return check(mod("subprocess").check_output([sys.executable, "-I", "-c", "print(6*7)"]) == b"42\n")


def served(f):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        with socket.create_connection(server.getsockname()) as client, server.accept()[0] as peer:
            client.sendall(b"x")
            return check(peer.recv(1) == b"x")


def datagrams(f):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        one.bind(("127.0.0.1", 0))
        other.sendto(b"x", one.getsockname())
        return check(one.recv(1) == b"x")


def link_of_its_own(f):
    path = own(f, "l")
    if os.path.lexists(path):
        os.unlink(path)
    write(own(f, "a"))
    os.symlink("a", path)
    return read(path)


def shelved(f):
    with mod("shelve").open(own(f, "s")) as shelf:
        shelf["a"] = [1]
        return check(shelf["a"] == [1])


def plain(name, words, function):
    return (name, words, "", "plain", function)


many(ORDINARY, [
    plain("json", "json", lambda f: check(mod("json").loads('{"a": [1]}') == {"a": [1]})),
    plain("asyncio", "asyncio: gather and sleep", lambda f: check(looped(slept))),
    plain("executor", "asyncio: a thread's result", lambda f: check(looped(in_executor) == 42)),
    plain("streams", "asyncio: streams over a socket pair", asyncio_streams),
    plain("re", "re", lambda f: check(mod("re").match("a+b", "aaab"))),
    plain("thread", "threads", lambda f: started(20)),
    plain("pool", "a pool of threads", pooled),
    plain("queue", "queue and heapq", lambda f: check(mod("queue").Queue().put(1) is None)),
    plain("tempfile", "tempfile, in its state directory", temp),
    plain("tempdir", "a temporary folder", temp_folder),
    plain("sqlite3", "sqlite3", database),
    plain("copy", "shutil.copy and copy2", copied),
    plain("tree", "folders made, copied, moved, walked, removed", tree),
    plain("zip", "zipfile", zipped),
    plain("tar", "tarfile", tarred),
    plain("mmap", "mmap", mapped),
    plain("signal", "a signal to itself", signalled),
    plain("alarm", "a timer", alarmed),
    plain("logging", "logging to rotating files", logged),
    plain("symlink", "a symbolic link in its state", link_of_its_own),
    plain("shelve", "shelve", shelved),
    plain("rename", "os.replace in its state", lambda f: (write(own(f, "a")), os.replace(own(f, "a"), own(f, "r"))) and True),
    plain("chmod", "chmod of its own file is answered", lambda f: (write(own(f, "a")), os.chmod(own(f, "a"), 0o600)) and True),
    plain("utime", "utime of its own file is answered", lambda f: (write(own(f, "a")), os.utime(own(f, "a"))) and True),
    plain("stat", "os.stat and os.scandir of its state", lambda f: [entry.stat().st_size for entry in os.scandir(f["own"])] and True),
    plain("fifo", "a named pipe", lambda f: (os.path.exists(own(f, "p")) or os.mkfifo(own(f, "p")), True)[1]),
    plain("devices", "/dev/null, /dev/zero, /dev/urandom", lambda f: write("/dev/null") and read("/dev/zero") and read("/dev/urandom")),
    plain("proc_self", "/proc/self/status", lambda f: read("/proc/self/status")),
    plain("proc_fd", "/proc/self/fd", lambda f: check(os.listdir("/proc/self/fd"))),
    plain("cpus", "os.cpu_count and the affinity", lambda f: check(os.cpu_count() and os.sched_getaffinity(0))),
    plain("random", "random, secrets, uuid", lambda f: check(mod("secrets").token_hex() and mod("uuid").uuid4() and mod("random").random())),
    plain("hash", "hashlib, hmac", lambda f: check(mod("hashlib").sha256(b"x").hexdigest())),
    plain("packers", "gzip, bz2, lzma, zlib", lambda f: check(mod("gzip").decompress(mod("gzip").compress(b"x")) and mod("zlib").compress(b"x") and mod("bz2").compress(b"x") and mod("lzma").compress(b"x"))),
    plain("numbers", "decimal, fractions, statistics, math", lambda f: check(mod("decimal").Decimal("1.1") * 2 and mod("statistics").mean([1, 2]))),
    plain("dates", "datetime and local time", lambda f: check(mod("datetime").datetime.now().astimezone() and time.localtime())),
    plain("xml", "xml.etree", lambda f: check(mod("xml.etree.ElementTree").fromstring("<a><b/></a>").tag == "a")),
    plain("html", "html.parser, urllib.parse", lambda f: check(mod("html.parser").HTMLParser() and mod("urllib.parse").quote("a b"))),
    plain("email", "email", lambda f: check(mod("email.message").EmailMessage() is not None)),
    plain("csv", "csv, configparser", lambda f: check(list(mod("csv").reader(["a,b"])) and mod("configparser").ConfigParser())),
    plain("pickle", "pickle, copy, struct, array", lambda f: check(mod("pickle").loads(mod("pickle").dumps([1])) == [1])),
    plain("ssl", "ssl with the system's certificates", lambda f: check(mod("ssl").create_default_context())),
    plain("unicode", "unicodedata, locale, codecs", lambda f: check(mod("unicodedata").name("a") and mod("locale").getlocale() is not None)),
    plain("platform", "platform and sys", lambda f: check(mod("platform").python_version())),
    plain("import", "a module that was not loaded yet", lambda f: check(mod("smtplib") and mod("wave") and mod("pydoc"))),
    plain("limits", "its own limits", lambda f: check(mod("resource").getrlimit(mod("resource").RLIMIT_NOFILE))),
    plain("priority", "its own priority lowered", lambda f: os.nice(1) >= 0 or True),
    plain("ctypes", "ctypes", lambda f: check(LIBC.getpid() == os.getpid())),
    plain("socketpair", "a socket pair", lambda f: [sock.close() for sock in socket.socketpair()] and True),
    plain("select", "selectors and pipes", lambda f: [os.close(fd) for fd in os.pipe()] and check(mod("selectors").DefaultSelector())),
    plain("ctx", "ctx calls", lambda f: check(f["ctx"].state_dir() == f["own"] and f["ctx"].read_file("data.txt"))),
    ("subprocess", "subprocess, where process is granted", "", "armed", subprocessed),
    ("terminate", "ending a child", "", "armed", terminated),
    ("python", "another Python", "", "armed", python_again),
    ("server", "TCP, where sockets is granted", "", "armed", served),
    ("datagram", "UDP, where sockets is granted", "", "armed", datagrams),
    ("resolve", "a host by its name, where sockets is granted", "", "armed", lambda f: check(socket.getaddrinfo("localhost", 80))),
    ("run", "ctx.run", "", "armed", lambda f: check(f["ctx"].run(["echo", "x"])["stdout"] == "x\n")),
])


class Agent:
    def on_message(self, ctx, message):
        if message == "list":
            tables = (("attack", ATTACKS), ("ordinary", ORDINARY))
            return [[kind, name, words, layers, rights] for kind, table in tables
                    for name, (_, words, layers, rights) in table.items()]
        table = ATTACKS if message["kind"] == "attack" else ORDINARY
        facts = dict(message["facts"], ctx=ctx, own=ctx.state_dir())
        facts["home"] = os.path.dirname(facts["own"])
        try:
            told = table[message["name"]][0](facts)
        except Exception as wrong:
            return {"done": False, "how": "%s: %s" % (type(wrong).__name__, str(wrong)[:200])}
        return {"done": told is not None, "how": str(told)[:200]}
