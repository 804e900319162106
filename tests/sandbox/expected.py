"""What each check may reach, and why. What is not named here must be denied wherever there is a sandbox.

The keys are SETTING@LEVEL/USER; `*` or a part left out stands for all. `named` stands for the settings that name what a program may
use: true (`only` in this suite), `limits` and `hosts`. Without a sandbox everything may be reached.
"""

NAMED = ("only", "limits", "hosts")

# Reasons.
FREE = "`service` leaves the user's files, the network and user namespaces open"
NO_FILES = "nothing holds files at this level"
NO_SIGNALS = "nothing holds other processes at this level"
NO_PORTS = "nothing holds TCP ports at this level"
METADATA = "Landlock holds contents, not modes, times, names and events of files"
NAMES = "only a namespace hides the names and numbers of processes"
ROOT = "root owns the files of the system; run the service as another user"
OWN_NETWORK = "a rule of Landlock names a port, not an address"
NO_LIMIT = "no limit is set"
PER_PROCESS = "limits count what each process has alone"
ONE_FILE = "without a namespace, `disk` bounds each file, not their sum"
ROOT_COUNT = "the kernel does not count the processes of root"
PRIORITY = "only a namespace hides other processes from such calls"
IPC = "only a namespace holds System V shared memory"

REPLACED = "a file that takes the place of a hidden one is not hidden from programs that run already"
EXPOSED = "its folder is one that the program may change; the service reports `files` as not enforced"

FILES = {"*@seccomp": NO_FILES}
FILES_OF_ROOT = {"*@seccomp/root": NO_FILES}
OPEN = {"service": FREE}
OPEN_FILES = {"service": FREE, "*@seccomp": NO_FILES}
SIGNALS = {"*@seccomp": NO_SIGNALS}
MOUNTS = {"service@seccomp": NO_FILES}
PORTS = {"service": FREE, "hosts@seccomp": NO_PORTS}
ROOT_ONLY = {"service/root": ROOT, "named@seccomp/root": NO_FILES}

MAY = {
    "control": {"*": "it is what a tool needs"},
    # files
    "read_ledger": FILES, "write_ledger": FILES, "truncate_ledger": FILES, "lock_ledger": FILES, "read_secret_file": FILES,
    "read_manifest": FILES, "read_included_manifest": FILES, "read_other_folder": FILES, "write_other_folder": FILES,
    "replace_manifest": FILES_OF_ROOT, "rename_secret": FILES_OF_ROOT, "rename_secret_folder": FILES_OF_ROOT,
    "move_folder": {"service@landlock/nobody": EXPOSED, "*@seccomp": NO_FILES},
    "read_moved": {"service@landlock/nobody": EXPOSED, "*@seccomp": NO_FILES},
    "replaced_secret": {"service@namespaces": REPLACED, "*@seccomp": NO_FILES},
    "dotdot": FILES, "symlink_out": FILES, "symlink_race": FILES, "link_secret": FILES, "o_path_reopen": FILES, "proc_self_root": FILES,
    "openat2_beneath": FILES, "execute_secret": FILES,
    "chmod_ledger": {"*@landlock": METADATA, "*@seccomp": NO_FILES}, "inotify_ledger": {"*@landlock": METADATA, "*@seccomp": NO_FILES},
    "list_ledger_folder": {"service@landlock": METADATA, "*@seccomp": NO_FILES},
    "read_home": OPEN_FILES, "write_outside": OPEN_FILES, "write_own_folder": OPEN_FILES, "dev_shm": OPEN_FILES,
    "preload_leave": {"service": FREE, "named": "its temporary folder ends with the call", "*@seccomp": NO_FILES},
    "preload_use": OPEN_FILES,
    "raw_disk": ROOT_ONLY, "replace_launcher": ROOT_ONLY, "vsock_device": ROOT_ONLY, "self_exe": {"service/root": ROOT}, "launcher_exe": {"service/root": ROOT},
    # namespaces
    "unshare_user": OPEN, "clone_user": OPEN, "mount_in_userns": OPEN,
    "umount_hidden": MOUNTS, "bind_parent": MOUNTS, "open_tree_parent": MOUNTS, "overlay_parent": MOUNTS,
    "chroot_escape": MOUNTS, "proc_in_userns": {"service@seccomp": NO_SIGNALS}, "chroot": {"service/root": ROOT},
    # processes
    "list_processes": {"*@landlock": NAMES, "*@seccomp": NAMES}, "proc_fd": {"*@landlock/root": NAMES, "*@seccomp/root": NAMES},
    "other_program_environ": SIGNALS, "other_program_mem": SIGNALS,
    "signal_0": SIGNALS, "signal_pidfd": SIGNALS, "signal_thread": SIGNALS, "signal_term": SIGNALS,
    "priority_of_service": {"*@landlock": PRIORITY, "*@seccomp": PRIORITY}, "affinity_of_service": {"*@landlock": PRIORITY, "*@seccomp": PRIORITY},
    "oom_score_of_service": {"service@landlock/root": ROOT, "*@seccomp/root": NO_FILES},
    "sysv_memory": {"service": FREE, "*@landlock": IPC, "*@seccomp": IPC},
    # network
    "connect_service": PORTS, "connect_tcp": PORTS, "connect_tcp6": PORTS, "listen_tcp": PORTS, "tcp_disconnect": PORTS,
    "connect_mptcp": OPEN, "tcp_fastopen": OPEN, "udp": OPEN, "udplite": OPEN, "dns": OPEN, "ping": OPEN, "unix_file": OPEN,
    "docker_socket": OPEN, "resolved_socket": OPEN, "unix_abstract": OPEN, "unix_datagram": OPEN, "unix_datagram_pair": OPEN, "netlink": OPEN,
    "raw_socket": {"service/root": FREE}, "packet_socket": {"service/root": FREE}, "vsock": OPEN, "kernel_crypto": OPEN, "tipc": OPEN,
    "listen_unbound": {"service": FREE, "hosts": "Landlock holds bind, not listen"},
    "tcp_same_port": {"hosts": OWN_NETWORK},
    # the kernel
    "personality": OPEN, "sysctl_write": ROOT_ONLY, "core_pattern": ROOT_ONLY, "uevent_helper": ROOT_ONLY, "write_cgroup": ROOT_ONLY, "sysrq": ROOT_ONLY,
    # limits
    "memory_2g": {}, "memory_shared": {"service": NO_LIMIT, "only": NO_LIMIT, "hosts": NO_LIMIT, "limits": PER_PROCESS},
    "processes_300": {"limits/root": ROOT_COUNT},
    "file_300mb": {"service": NO_LIMIT, "only": NO_LIMIT, "hosts": NO_LIMIT},
    "temporary_300mb": {"service": NO_LIMIT, "only": NO_LIMIT, "hosts": NO_LIMIT, "limits@landlock": ONE_FILE, "limits@seccomp": ONE_FILE},
    "root_300mb": {"service/root": NO_LIMIT, "named@seccomp/root": ONE_FILE},
    "dev_300mb": {"service": NO_LIMIT, "only": NO_LIMIT, "hosts": NO_LIMIT, "limits@seccomp": ONE_FILE},
}

# Where a control must be reached; without an entry, everywhere.
CONTROLS = {"control_proxy_port": ("hosts",), "control_proxy_named": ("hosts",), "control_proxy_socks": ("hosts",)}

# The five published recipes and more, for the page.
PUBLISHED = {
    "shocker": "docker “shocker”, 2014", "self_exe": "CVE-2019-5736", "tiocsti_high_bits": "CVE-2019-7303", "overlay_parent": "CVE-2021-3732",
    "inherited_files": "CVE-2024-21626", "x32_open": "x32 numbers", "core_pattern": "core_pattern", "tcp_fastopen": "MSG_FASTOPEN",
    "connect_mptcp": "MPTCP", "chroot_escape": "chroot", "docker_socket": "docker.sock",
}


def reason(name, setting, level, user):
    """Why a check may be reached; `None`: it must be denied."""
    if setting == "none":
        return "there is no sandbox"
    for key, why in MAY.get("control" if name.startswith("control_") else name, {}).items():
        rest, _, for_user = key.partition("/")
        for_setting, _, for_level = rest.partition("@")
        settings = {"*": (setting,), "named": NAMED}.get(for_setting, (for_setting,))
        if setting in settings and for_level in ("", level) and for_user in ("", user):
            return why
    return None


def must_be_reached(name, setting):
    return name.startswith("control_") and setting in CONTROLS.get(name, (setting,))

# What a check tries, where neither its name nor its first line says it well.
ABOUT = {
    "truncate_ledger": "Cut a file of the ledger", "chmod_ledger": "Change the mode of the ledger", "lock_ledger": "Lock the ledger's lock file",
    "list_ledger_folder": "List the folder of the ledger", "read_other_folder": "Read the folder of another tool",
    "write_other_folder": "Write into the folder of another tool", "read_home": "Read the user's files", "write_outside": "Write outside of its folder",
    "dotdot": "Read a secret file by `..`", "symlink_out": "Read a secret file through a link", "link_secret": "Hard link to a secret file",
    "rename_secret": "Move a secret file", "rename_secret_folder": "Move the folder of a secret file, and read it there",
    "read_moved": "The call after `move_folder` reads the file", "o_path_reopen": "Open by O_PATH, then through /proc/self/fd",
    "proc_self_root": "Through /proc/self/root", "proc_first_root": "Through the root of the first process",
    "inotify_ledger": "Watch the ledger by inotify", "fanotify": "Watch all files by fanotify", "dev_shm": "Write into the shared /dev/shm",
    "preload_use": "The call after `preload_leave` finds the library", "inherited_files": "Use files that were left open",
    "open_5000": "Open 5,000 files", "core_dump": "Write a core dump", "unshare_user": "Make a user namespace by unshare",
    "clone_user": "Make a user namespace by clone", "mount_in_userns": "Mount in a user namespace", "setns_proc": "Join the namespaces of the first process",
    "fsopen": "Mount by fsopen", "mount_setattr": "Change mounts", "mount_tmpfs": "Mount a file system", "chroot": "Change the root folder",
    "hostname": "Set the hostname", "list_processes": "Read the command line of the service", "proc_cwd": "/proc of the service: its folder",
    "proc_environ": "/proc of the service: its variables", "proc_fd": "/proc of the service: its open files", "proc_maps": "/proc of the service: its addresses",
    "proc_mem": "/proc of the service: its memory", "proc_root": "/proc of the service: its root", "launcher_exe": "/proc of the service: its program, for writing",
    "other_program_mem": "/proc of another tool's program: its memory", "signal_0": "Signal the service", "signal_pidfd": "Signal the service by pidfd",
    "signal_thread": "Signal a thread of the service", "signal_term": "End another tool's program", "ptrace_attach": "Attach a debugger to another program",
    "ptrace_seize": "Seize another program", "process_vm_readv": "Read the memory of another program", "process_vm_writev": "Write the memory of another program",
    "pidfd_getfd": "Take an open file of another program", "process_madvise": "Page out another program", "kcmp": "Compare with another program",
    "priority_of_service": "Change the priority of the service", "affinity_of_service": "Change the processors of the service",
    "oom_score_of_service": "Make the kernel prefer to end the service", "outlive": "Live on after the call, in a session of its own",
    "outlive_hidden": "The same with a cleared environment", "connect_service": "Connect to the service's port", "connect_tcp": "Connect to a port of the machine",
    "connect_tcp6": "The same by IPv6", "listen_tcp": "Listen at a port", "udp": "Send UDP", "udplite": "Send UDP-Lite", "dns": "Ask a name server by UDP",
    "ping": "Make an ICMP socket", "unix_file": "Connect to a Unix socket in a folder", "unix_abstract": "Connect to an abstract Unix socket",
    "unix_datagram": "Send to an abstract Unix socket", "netlink": "Read interfaces and routes", "raw_socket": "Make a raw socket",
    "packet_socket": "Make a packet socket", "tipc": "Make a socket of another rare family", "vsock_device": "Open /dev/vsock",
    "proxy_other_host": "Proxy: another host", "proxy_other_port": "Proxy: another port of a named host", "proxy_service": "Proxy: the service itself",
    "proxy_loopback_socks": "Proxy: the same by SOCKS5", "proxy_private_socks": "Proxy: a private address by SOCKS5",
    "proxy_mapped_socks": "Proxy: an IPv4 address written as IPv6", "proxy_socks_bind": "Proxy: SOCKS5 BIND", "proxy_userinfo": "Proxy: `named@other`",
    "proxy_fragment": "Proxy: `other#named`", "proxy_nul": "Proxy: a name with a zero byte", "proxy_suffix": "Proxy: a name that only begins as loopback",
    "keyctl": "Use the kernel's keys", "add_key": "Add a key to the kernel", "request_key": "Ask the kernel for a key", "userfaultfd": "Handle page faults",
    "io_uring": "Use io_uring", "perf_event": "Count events of the processor", "bpf": "Load BPF", "tiocsti": "Type into a terminal",
    "tioclinux": "Paste into a console", "load_module": "Load a kernel module", "kexec": "Load another kernel", "kernel_log": "Read the kernel's log",
    "set_clock": "Set the clock", "swap": "Add swap space", "accounting": "Start process accounting", "sysctl_write": "Write a setting of the kernel",
    "uevent_helper": "Write a setting in /sys", "sysrq": "Open /proc/sysrq-trigger", "write_cgroup": "Make a cgroup",
    "setuid_program": "Run a set-user-ID program", "memory_2g": "Use 2 GiB of memory", "memory_shared": "Map 2 GiB of shared memory", "processes_300": "Start 300 processes",
    "cpu_4s": "Compute for 4 seconds", "file_300mb": "Make a file of 300 MiB", "temporary_300mb": "Make four files of 75 MiB in the temporary folder",
    "dev_300mb": "The same in /dev/shm", "root_300mb": "The same in the root folder", "raise_limits": "Raise its own limits",
    "symlink_race": "Change a link while it is opened", "replaced_secret": "Read a secret file that is replaced during the call",
}
