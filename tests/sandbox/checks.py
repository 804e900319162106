"""What a hostile program would try. Each check tries one thing, and answers REACHED or DENIED with the reason.

Run as a tool: standard input is {"plan": TEXT}, and TEXT is JSON: the names of the checks under `run`, and the paths, numbers and
ports of what they try to reach. Prints one line of JSON. A check runs in a process of its own, so that it may die of what it does.
"""

import ctypes
import errno
import fcntl
import json
import mmap
import os
import platform
import resource
import select
import signal
import socket
import struct
import sys
import threading
import time

libc = ctypes.CDLL(None, use_errno=True)
PLAN = {}
CHECKS = {}
MEGABYTE = 1 << 20

# Numbers of system calls (x86_64, aarch64). From 424 on they are equal.
CALLS = {
    "open": (2, None), "ioctl": (16, 29), "clone": (56, 220), "ptrace": (101, 117), "syslog": (103, 116), "personality": (135, 92),
    "pivot_root": (155, 41), "chroot": (161, 51), "sethostname": (170, 161), "mount": (165, 40), "umount2": (166, 39),
    "swapon": (167, 224), "init_module": (175, 105), "tgkill": (234, 131), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219), "ioprio_set": (251, 30), "inotify_init1": (294, 26), "inotify_add_watch": (254, 27), "unshare": (272, 97),
    "perf_event_open": (298, 241), "fanotify_init": (300, 262), "fanotify_mark": (301, 263), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265), "clock_settime": (227, 112), "setns": (308, 268), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "kcmp": (312, 272), "finit_module": (313, 273), "kexec_file_load": (320, 294), "bpf": (321, 280),
    "userfaultfd": (323, 282), "pidfd_send_signal": (424, 424), "io_uring_setup": (425, 425), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "pidfd_open": (434, 434), "clone3": (435, 435), "openat2": (437, 437),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440), "mount_setattr": (442, 442), "acct": (163, 89), "quotactl": (179, 60),
}
COLUMN = 0 if platform.machine() == "x86_64" else 1
NEWNS, NEWUSER, NEWPID, NEWNET = 0x20000, 0x10000000, 0x20000000, 0x40000000


class Denied(Exception):
    """The check did not reach what it tried."""


def check(function):
    CHECKS[function.__name__] = function
    return function


def system(name, *arguments):
    """A system call. An error is an OSError."""
    given = [argument if isinstance(argument, (bytes, ctypes.Array, ctypes.Structure)) or argument is None else ctypes.c_long(argument)
             for argument in arguments]
    answer = libc.syscall(ctypes.c_long(CALLS[name][COLUMN] if isinstance(name, str) else name), *given)
    if answer == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer


def surface(name, *arguments):
    """A system call that must not be answered by the code behind it. Errors of that code count as reached."""
    try:
        return f"answered {system(name, *arguments)}"
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM, errno.EACCES):
            raise
        return f"the call is there: {error.strerror}"


def read(path, length=64):
    with open(path, "rb", buffering=0) as file:
        data = file.read(length)
    if not data:
        raise Denied("it is empty")
    return f"read {len(data)} bytes"


def holds(path, mark):
    """Reads a file, and compares it with what is in it."""
    with open(path, "rb") as file:
        if mark.encode() not in file.read(1 << 16):
            raise Denied("it is another file")
    return "read"


def own(name):
    """A path in a folder that the program may write."""
    for folder in (os.environ.get("TMPDIR"), ".", "/tmp"):
        if folder and os.access(folder, os.W_OK):
            return os.path.join(folder, f"{name}-{os.getpid()}")
    raise Denied("no folder to write in")


def in_user_namespace(flags=NEWNS):
    """A user namespace in which this process has all capabilities."""
    user, group = os.getuid(), os.getgid()
    system("unshare", NEWUSER | flags)
    for name, text in {"setgroups": "deny", "uid_map": f"0 {user} 1", "gid_map": f"0 {group} 1"}.items():
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def mount(source, target, kind=None, flags=0, data=None):
    as_bytes = [part.encode() if isinstance(part, str) else part for part in (source, target, kind, data)]
    system("mount", as_bytes[0], as_bytes[1], as_bytes[2], flags, as_bytes[3])


# ---- controls: what every sandbox must leave, so that the others say something ---------------------------------------------

@check
def control_read_own():
    return read("checks.py")


@check
def control_write_temporary():
    path = own("control")
    with open(path, "w") as file:
        file.write("x")
    os.unlink(path)
    return "written"


@check
def control_start_program():
    status = os.spawnv(os.P_WAIT, "/bin/sh", ["sh", "-c", "exit 7"])
    if status != 7:
        raise Denied(f"status {status}")
    return "started"


@check
def control_threads_and_pairs():
    left, right = socket.socketpair()
    thread = threading.Thread(target=left.send, args=(b"x",))
    thread.start()
    thread.join()
    return f"received {right.recv(1)}"


@check
def control_signal_own_child():
    child = os.fork()
    if child == 0:
        time.sleep(5)
        os._exit(0)
    os.kill(child, signal.SIGKILL)
    if os.waitpid(child, 0)[1] != signal.SIGKILL:
        raise Denied("it lives on")
    return "ended"


# ---- files of the service, and of others -----------------------------------------------------------------------------------

@check
def read_ledger():
    return holds(PLAN["ledger"], "SQLite format 3")


@check
def write_ledger():
    with open(PLAN["ledger"], "r+b", buffering=0) as file:
        if file.read(6) != b"SQLite":
            raise Denied("it is another file")
    return "opened for writing"


@check
def truncate_ledger():
    os.truncate(PLAN["ledger"] + ".head", os.stat(PLAN["ledger"] + ".head").st_size)
    return "truncate(2) is permitted"


@check
def chmod_ledger():
    os.chmod(PLAN["ledger"], os.stat(PLAN["ledger"]).st_mode & 0o777)
    return "its mode can be changed"


@check
def list_ledger_folder():
    if "ledger.db" not in os.listdir(os.path.dirname(PLAN["ledger"])):
        raise Denied("it is empty")
    return "listed"


@check
def lock_ledger():
    descriptor = os.open(PLAN["ledger"] + ".lock", os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        pass
    return "its lock file is open"


@check
def read_secret_file():
    return holds(PLAN["secret"], PLAN["secret_mark"])


@check
def read_manifest():
    return holds(PLAN["manifest"], "sandbox")


@check
def read_included_manifest():
    return holds(PLAN["included"], "included")


@check
def replace_manifest():
    beside = PLAN["manifest"] + ".new"
    with open(PLAN["manifest"], "rb") as old, open(beside, "wb") as new:
        text = old.read()
        if b"sandbox" not in text:
            raise Denied("it is another file")
        new.write(text)
    os.rename(beside, PLAN["manifest"])
    return "replaced"


@check
def read_other_folder():
    return holds(PLAN["other"], "of another tool")


@check
def write_other_folder():
    path = os.path.join(os.path.dirname(PLAN["other"]), f"left-{os.getpid()}")
    with open(path, "w") as file:
        file.write("x")
    os.unlink(path)
    return "written"


@check
def read_home():
    return holds(PLAN["home"], "of the user")


@check
def write_outside():
    path = os.path.join(PLAN["outside"], f"left-{os.getpid()}")
    with open(path, "w") as file:
        file.write("x")
    os.unlink(path)
    return "written"


@check
def write_own_folder():
    with open(f"left-{os.getpid()}", "w") as file:
        file.write("x")
    os.unlink(file.name)
    return "written"


@check
def dotdot():
    return holds(os.path.relpath(PLAN["secret"], os.getcwd()), PLAN["secret_mark"])


@check
def symlink_out():
    path = own("link")
    os.symlink(PLAN["secret"], path)
    try:
        return holds(path, PLAN["secret_mark"])
    finally:
        os.unlink(path)


@check
def symlink_race():
    """A link that changes between a permitted and a hidden file while it is opened."""
    path, good = own("race"), own("good")
    with open(good, "w") as file:
        file.write("good")
    done = threading.Event()

    def flip():
        while not done.is_set():
            for target in (good, PLAN["secret"]):
                os.symlink(target, path + ".new")
                os.rename(path + ".new", path)

    thread = threading.Thread(target=flip)
    thread.start()
    try:
        for _ in range(3000):
            try:
                return holds(path, PLAN["secret_mark"])
            except (OSError, Denied):
                continue
        raise Denied("3000 races")
    finally:
        done.set()
        thread.join()


@check
def link_secret():
    path = own("hard")
    os.link(PLAN["secret"], path)
    try:
        return holds(path, PLAN["secret_mark"])
    finally:
        os.unlink(path)


@check
def rename_secret():
    path = PLAN["secret"] + ".moved"
    os.rename(PLAN["secret"], path)
    try:
        return holds(path, PLAN["secret_mark"])
    finally:
        os.rename(path, PLAN["secret"])


@check
def rename_secret_folder():
    folder = os.path.dirname(PLAN["secret"])
    os.rename(folder, folder + ".moved")
    try:
        return holds(os.path.join(folder + ".moved", os.path.basename(PLAN["secret"])), PLAN["secret_mark"])
    finally:
        os.rename(folder + ".moved", folder)


@check
def move_folder():
    """Gives the folder of a hidden file another name, for the next call."""
    os.rename(PLAN["movable"], PLAN["movable"] + ".moved")
    return "renamed"


@check
def read_moved():
    return holds(PLAN["movable"] + ".moved/secret", PLAN["secret_mark"])


@check
def replaced_secret():
    """Waits until the operator replaces a hidden file by a new one."""
    time.sleep(1)
    return holds(PLAN["replaced"], PLAN["secret_mark"])


@check
def o_path_reopen():
    descriptor = os.open(PLAN["secret"], os.O_PATH)
    return holds(f"/proc/self/fd/{descriptor}", PLAN["secret_mark"])


@check
def proc_self_root():
    return holds(f"/proc/self/root{PLAN['secret']}", PLAN["secret_mark"])


@check
def proc_first_root():
    return holds(f"/proc/1/root{PLAN['secret']}", PLAN["secret_mark"])


@check
def openat2_beneath():
    """openat2 with no restriction of its own, relative to a folder that was opened before."""
    folder = os.open(".", os.O_PATH | os.O_DIRECTORY)
    how = struct.pack("QQQ", os.O_RDONLY, 0, 0)
    path = os.path.relpath(PLAN["secret"], os.getcwd()).encode()
    descriptor = system("openat2", folder, path, ctypes.create_string_buffer(how, 24), 24)
    return holds(f"/proc/self/fd/{descriptor}", PLAN["secret_mark"])


@check
def execute_secret():
    """The loader reads a file as a program."""
    os.chmod(PLAN["secret"], 0o700)
    try:
        libc.execv(PLAN["secret"].encode(), (ctypes.c_char_p * 2)(b"x", None))
        number = ctypes.get_errno()
        if number == errno.ENOEXEC:
            return "the kernel has read it"
        raise OSError(number, os.strerror(number))
    finally:
        os.chmod(PLAN["secret"], 0o600)


@check
def shocker():
    """docker "shocker", 2014: opens files by their number, past all mounts."""
    handle = ctypes.create_string_buffer(struct.pack("IiQ", 8, 1, 2) + bytes(128))
    folder = os.open("/usr", os.O_RDONLY)
    return surface("open_by_handle_at", folder, handle, 0)


@check
def x32_open():
    """System calls by their x32 numbers, past a filter that knows the usual ones."""
    if COLUMN:
        raise Denied("not on this processor")
    return surface(0x40000000 + 250, 0, 0, 0, 0, 0)  # keyctl


def machine_code(code):
    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))


@check
def int80_keyctl():
    """System calls of 32 bits, whose numbers mean something else."""
    if COLUMN:
        raise Denied("not on this processor")
    # push rbx; mov eax, 288 (keyctl); xor ebx, ebx; xor ecx, ecx; xor edx, edx; xor esi, esi; xor edi, edi; int 0x80; pop rbx; ret
    answer = machine_code(bytes.fromhex("53b82001000031db31c931d231f631ffcd805bc3"))()
    if answer in (-errno.ENOSYS, -errno.EPERM, -errno.EACCES):
        raise Denied(os.strerror(-answer))
    return f"answered {answer}"


@check
def inotify_ledger():
    watch = system("inotify_init1", 0)
    return f"watched as {system('inotify_add_watch', watch, PLAN['ledger'].encode(), 0xfff)}"


@check
def fanotify():
    descriptor = system("fanotify_init", 0, os.O_RDONLY)
    system("fanotify_mark", descriptor, 0x11, 0x20, -100, b"/")
    return "all files are watched"


@check
def raw_disk():
    """Reads the disk below the file system."""
    device = os.stat(PLAN["home_folder"]).st_dev
    with open("/proc/self/mountinfo") as file:
        names = {line.split(" - ")[1].split()[1] for line in file if line.split()[2] == f"{os.major(device)}:{os.minor(device)}"}
    for name in [*names, "/dev/vda", "/dev/sda", "/dev/nvme0n1"]:
        if name.startswith("/dev/") and os.path.exists(name):
            return f"{name}: {read(name)}"
    raise Denied("no disk to be seen")


@check
def dev_shm():
    path = f"/dev/shm/toolcrib-{PLAN['token']}"
    with open(path, "w") as file:
        file.write("x")
    seen = os.stat(path).st_dev == PLAN["shm_device"]
    os.unlink(path)
    if not seen:
        raise Denied("it is its own")
    return "written for others to see"


@check
def preload_leave():
    """Leaves a library for the next call."""
    left = 0
    for folder in (".", os.environ.get("TMPDIR") or "/tmp", "/tmp", "/var/tmp", "/dev/shm"):
        try:
            with open(f"{folder}/left-{PLAN['token']}.so", "w") as file:
                file.write("x")
            left += 1
        except OSError:
            continue
    if not left:
        raise Denied("nowhere to write")
    return f"left in {left} folders"


@check
def preload_use():
    found = [folder for folder in sorted({".", os.environ.get("TMPDIR") or "/tmp", "/tmp", "/var/tmp", "/dev/shm"})
             if os.path.exists(f"{folder}/left-{PLAN['token']}.so")]
    for folder in set(found):
        os.unlink(f"{folder}/left-{PLAN['token']}.so")
    if not found:
        raise Denied("nothing is left of the call before")
    return f"found in {', '.join(found)}"


@check
def inherited_files():
    extra = [name for name in os.listdir("/proc/self/fd") if int(name) > 2 and os.path.exists(f"/proc/self/fd/{name}")]
    extra = [name for name in extra if int(name) not in PLAN["harness_files"]]
    links = [os.readlink(f"/proc/self/fd/{name}") for name in extra]
    links = [link for link in links if not link.endswith("/fd")]
    if not links:
        raise Denied("none but the standard streams")
    return ", ".join(links)


@check
def self_exe():
    """CVE-2019-5736: writes to the program that started this one."""
    with open(f"/proc/{os.getppid()}/exe", "r+b"):
        return "opened for writing"


@check
def replace_launcher():
    """Puts a program of its own in the place of bubblewrap."""
    with open(f"/usr/bin/toolcrib-{PLAN['token']}", "w"):
        pass
    os.unlink(f"/usr/bin/toolcrib-{PLAN['token']}")
    return "/usr/bin can be written"


@check
def open_5000():
    files = []
    while len(files) < 5000:
        files.append(os.open("/dev/null", os.O_RDONLY))
    return "5000 files"


@check
def core_dump():
    limit = resource.getrlimit(resource.RLIMIT_CORE)
    if limit == (0, 0):
        raise Denied("its limit is 0")
    return f"limit {limit}"


# ---- namespaces and mounts -------------------------------------------------------------------------------------------------

@check
def unshare_user():
    system("unshare", NEWUSER)
    return "made"


@check
def clone_user():
    flags = NEWUSER | signal.SIGCHLD
    child = system("clone", flags, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return "made"


@check
def clone3_user():
    """The flags are in memory, where a filter of system calls cannot see them."""
    arguments = ctypes.create_string_buffer(struct.pack("QQQQQQQQ", NEWUSER, 0, 0, 0, signal.SIGCHLD, 0, 0, 0))
    child = system("clone3", arguments, 64)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return "made"


@check
def mount_in_userns():
    in_user_namespace()
    folder = own("mount")
    os.mkdir(folder)
    mount("tmpfs", folder, "tmpfs")
    return "mounted"


@check
def umount_hidden():
    """Takes away what hides a file, in a user namespace."""
    in_user_namespace()
    for path in (PLAN["secret"], os.path.dirname(PLAN["secret"])):
        try:
            system("umount2", path.encode(), 2)
        except OSError:
            continue
    return holds(PLAN["secret"], PLAN["secret_mark"])


@check
def bind_parent():
    """A bind of the folder above, without what is mounted below it."""
    in_user_namespace()
    folder = own("bind")
    os.mkdir(folder)
    mount(PLAN["base"], folder, None, 0x1000)
    return holds(os.path.join(folder, os.path.relpath(PLAN["secret"], PLAN["base"])), PLAN["secret_mark"])


@check
def open_tree_parent():
    in_user_namespace()
    tree = system("open_tree", -100, PLAN["base"].encode(), 1)
    return holds(f"/proc/self/fd/{tree}/" + os.path.relpath(PLAN["secret"], PLAN["base"]), PLAN["secret_mark"])


@check
def overlay_parent():
    """CVE-2021-3732: an overlay shows the folder without its mounts."""
    in_user_namespace()
    folder = own("overlay")
    os.mkdir(folder)
    mount("tmpfs", folder, "tmpfs")
    for name in ("upper", "work", "merged"):
        os.mkdir(f"{folder}/{name}")
    mount("overlay", f"{folder}/merged", "overlay", 0, f"lowerdir={PLAN['base']},upperdir={folder}/upper,workdir={folder}/work")
    return holds(os.path.join(folder, "merged", os.path.relpath(PLAN["secret"], PLAN["base"])), PLAN["secret_mark"])


@check
def pivot_root():
    """A root of its own, and the old one taken away layer by layer."""
    in_user_namespace()
    folder = own("pivot")
    os.makedirs(folder, exist_ok=True)
    mount("none", "/", None, 0x44000)
    mount("/", folder, None, 0x5000)
    system("pivot_root", folder.encode(), f"{folder}/tmp".encode())
    for path in ("/tmp" + PLAN["secret"], "/tmp" + os.path.dirname(PLAN["secret"])):
        try:
            system("umount2", path.encode(), 2)
        except OSError:
            continue
    return holds("/tmp" + PLAN["secret"], PLAN["secret_mark"])


@check
def leave_mounts():
    """Leaves all mounts, and renames a hidden file through a folder that is still open."""
    folder, name = os.path.split(PLAN["secret"])
    opened, temporary = os.open(folder, os.O_RDONLY), own("empty")
    in_user_namespace()
    os.makedirs(temporary, exist_ok=True)
    mount("none", "/", None, 0x44000)
    mount("tmpfs", temporary, "tmpfs")
    os.mkdir(f"{temporary}/old")
    system("pivot_root", temporary.encode(), f"{temporary}/old".encode())
    os.chdir("/")
    system("umount2", b"/old", 2)
    os.rename(name, f"{name}.moved", src_dir_fd=opened, dst_dir_fd=opened)
    try:
        with open(os.open(f"{name}.moved", os.O_RDONLY, dir_fd=opened)) as file:
            if PLAN["secret_mark"] not in file.read():
                raise Denied("it is another file")
    finally:
        os.rename(f"{name}.moved", name, src_dir_fd=opened, dst_dir_fd=opened)
    return "read under another name"


@check
def detach_root():
    """Detaches the root with all mounts."""
    in_user_namespace()
    mount("none", "/", None, 0x44000)
    system("umount2", b"/", 2)
    return "detached"


@check
def mount_beneath():
    """Mounts something beneath the root, and takes the root away."""
    in_user_namespace()
    mount("none", "/", None, 0x44000)
    context = system("fsopen", b"tmpfs", 0)
    system(431, context, 6, None, None, 0)
    system("move_mount", system(432, context, 0, 0), b"", -100, b"/", 0x204)
    return "mounted"


@check
def chroot_escape():
    """The old way out: a folder that is open while the root changes."""
    in_user_namespace()
    folder = own("root")
    os.mkdir(folder)
    outside = os.open("/", os.O_RDONLY)
    os.chroot(folder)
    os.fchdir(outside)
    for _ in range(64):
        os.chdir("..")
    os.chroot(".")
    return holds(PLAN["secret"], PLAN["secret_mark"])


@check
def proc_in_userns():
    """A /proc of its own that shows the processes outside."""
    in_user_namespace()
    folder = own("proc")
    os.mkdir(folder)
    mount("proc", folder, "proc")
    return holds(f"{folder}/{PLAN['service']}/cmdline", "serve")


@check
def setns_pidfd():
    """Joins the namespaces of the service through a pidfd."""
    descriptor = system("pidfd_open", PLAN["service"], 0)
    system("setns", descriptor, NEWNS)
    return "joined"


@check
def setns_proc():
    descriptor = os.open("/proc/1/ns/mnt", os.O_RDONLY)
    system("setns", descriptor, NEWNS)
    return holds(PLAN["secret"], PLAN["secret_mark"])


@check
def fsopen():
    descriptor = system("fsopen", b"tmpfs", 0)
    return f"opened as {descriptor}"


@check
def mount_setattr():
    system("mount_setattr", -100, b"/", 0x8000, ctypes.create_string_buffer(struct.pack("QQQQ", 0, 1, 0, 0), 32), 32)
    return "the mounts can be changed"


@check
def mount_tmpfs():
    folder = own("mounted")
    os.mkdir(folder)
    mount("tmpfs", folder, "tmpfs")
    system("umount2", folder.encode(), 2)
    return "mounted"


@check
def chroot():
    os.chroot(".")
    return "changed"


@check
def hostname():
    name = socket.gethostname().encode()
    system("sethostname", name, len(name))
    return "set"


@check
def mknod():
    """A device of its own for the first disk."""
    path = own("node")
    os.mknod(path, 0o60600, os.stat(PLAN["home_folder"]).st_dev)
    os.unlink(path)
    return "made"


# ---- processes -------------------------------------------------------------------------------------------------------------

@check
def list_processes():
    with open(f"/proc/{PLAN['service']}/cmdline") as file:
        if "serve" not in file.read():
            raise Denied("it is another process")
    return "the command line of the service"


def of_service(name, victim="service"):
    path = f"/proc/{PLAN[victim]}/{name}"
    if name == "root" or name == "cwd":
        return f"leads to {os.readlink(path)}"
    if name == "fd":
        return f"{len(os.listdir(path))} files"
    return read(path)


@check
def proc_cwd():
    return of_service("cwd")


@check
def proc_environ():
    with open(f"/proc/{PLAN['service']}/environ", "rb") as file:
        file.read()
    return "read"


@check
def proc_fd():
    return of_service("fd")


@check
def proc_maps():
    return of_service("maps")


@check
def proc_mem():
    with open(f"/proc/{PLAN['service']}/mem", "rb", buffering=0):
        return "opened"


@check
def proc_root():
    return of_service("root")


@check
def launcher_exe():
    with open(f"/proc/{PLAN['service']}/exe", "r+b"):
        return "opened for writing"


@check
def other_program_environ():
    """The variables of another tool's program, with its secrets."""
    return holds(f"/proc/{PLAN['victim']}/environ", "VICTIM")


@check
def other_program_mem():
    with open(f"/proc/{PLAN['victim']}/mem", "rb", buffering=0) as file:
        file.seek(PLAN["victim_address"])
        return f"read {file.read(8)}"


@check
def signal_0():
    os.kill(PLAN["service"], 0)
    return "the service can be signalled"


@check
def signal_pidfd():
    descriptor = system("pidfd_open", PLAN["service"], 0)
    system("pidfd_send_signal", descriptor, 0, None, 0)
    return "the service can be signalled"


@check
def signal_thread():
    system("tgkill", PLAN["service"], PLAN["service"], 0)
    return "the service can be signalled"


@check
def signal_term():
    os.kill(PLAN["disposable"], signal.SIGTERM)
    return "ended a program of another tool"


@check
def ptrace_attach():
    system("ptrace", 16, PLAN["victim"], 0, 0)
    os.waitpid(PLAN["victim"], 0x40000000)
    system("ptrace", 17, PLAN["victim"], 0, 0)
    return "attached"


@check
def ptrace_seize():
    system("ptrace", 0x4206, PLAN["victim"], 0, 0)
    return "attached"


def vector(address, length):
    return ctypes.create_string_buffer(struct.pack("QQ", address, length), 16)


@check
def process_vm_readv():
    buffer = ctypes.create_string_buffer(8)
    count = system("process_vm_readv", PLAN["victim"], vector(ctypes.addressof(buffer), 8), 1, vector(PLAN["victim_address"], 8), 1, 0)
    return f"read {count} bytes"


@check
def process_vm_writev():
    buffer = ctypes.create_string_buffer(b"writable", 8)
    count = system("process_vm_writev", PLAN["victim"], vector(ctypes.addressof(buffer), 8), 1, vector(PLAN["victim_address"], 8), 1, 0)
    return f"wrote {count} bytes"


@check
def pidfd_getfd():
    descriptor = system("pidfd_open", PLAN["victim"], 0)
    return f"took a file as {system('pidfd_getfd', descriptor, 0, 0)}"


@check
def process_madvise():
    descriptor = system("pidfd_open", PLAN["victim"], 0)
    system("process_madvise", descriptor, vector(PLAN["victim_address"] & ~4095, 4096), 1, 20, 0)
    return "its memory can be paged out"


@check
def kcmp():
    system("kcmp", os.getpid(), PLAN["victim"], 1, 0, 0)
    return "compared"


@check
def limits_of_service():
    """Lowers a limit of the service: RLIMIT_CPU of a second would end it."""
    now = resource.prlimit(PLAN["service"], resource.RLIMIT_MSGQUEUE)
    resource.prlimit(PLAN["service"], resource.RLIMIT_MSGQUEUE, now)
    return "set"


@check
def priority_of_service():
    os.setpriority(os.PRIO_PROCESS, PLAN["service"], os.getpriority(os.PRIO_PROCESS, PLAN["service"]))
    return "set"


@check
def affinity_of_service():
    os.sched_setaffinity(PLAN["service"], os.sched_getaffinity(PLAN["service"]))
    return "set"


@check
def oom_score_of_service():
    with open(f"/proc/{PLAN['service']}/oom_score_adj", "r+") as file:
        score = file.read()
        file.seek(0)
        file.write(score)
    return "set"


@check
def sysv_memory():
    """Shared memory of another program of the same user."""
    if libc.shmget(PLAN["shm_key"], 0, 0) == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "found"


# ---- what lasts ------------------------------------------------------------------------------------------------------------

def execute(program, arguments, environment):
    """Becomes another program, or ends."""
    try:
        os.execve(program, arguments, environment)
    except OSError:
        os._exit(126)


def daemon(environment):
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        time.sleep(0.3)
        return "started"  # the test looks whether it lives on
    os.setsid()
    if os.fork():
        os._exit(0)
    null = os.open("/dev/null", os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    os.closerange(3, 256)
    execute("/bin/sleep", ["sleep", PLAN["sleep"]], environment)


@check
def outlive():
    return daemon(dict(os.environ))


@check
def outlive_hidden():
    """With a cleared environment, in a session of its own."""
    return daemon({})


# ---- network ---------------------------------------------------------------------------------------------------------------

def say(connection, name):
    connection.settimeout(3)
    connection.sendall(f"{PLAN['token']} {name}\n".encode())
    answer = connection.recv(64)
    if not answer.startswith(b"hello"):
        raise Denied(f"answered {answer!r}")
    return "connected"


def connect(family, address, name, kind=socket.SOCK_STREAM, protocol=0):
    with socket.socket(family, kind, protocol) as connection:
        connection.settimeout(3)
        connection.connect(address)
        return say(connection, name)


@check
def connect_service():
    with socket.create_connection(("127.0.0.1", PLAN["port"]), 3) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        if not connection.recv(64).startswith(b"HTTP/1.1 200"):
            raise Denied("no answer")
    return "connected"


@check
def connect_tcp():
    return connect(socket.AF_INET, ("127.0.0.1", PLAN["tcp"]), "connect_tcp")


@check
def connect_tcp6():
    return connect(socket.AF_INET6, ("::1", PLAN["tcp6"]), "connect_tcp6")


@check
def connect_mptcp():
    """MPTCP: Landlock's rules for TCP do not hold it."""
    return connect(socket.AF_INET, ("127.0.0.1", PLAN["tcp"]), "connect_mptcp", protocol=262)


@check
def tcp_fastopen():
    """A connection by sendto with MSG_FASTOPEN, which does not call connect."""
    with socket.socket() as connection:
        connection.sendto(f"{PLAN['token']} tcp_fastopen\n".encode(), 0x20000000, ("127.0.0.1", PLAN["tcp"]))
        connection.settimeout(3)
        if not connection.recv(64).startswith(b"hello"):
            raise Denied("no answer")
    return "connected"


@check
def tcp_disconnect():
    """Connects to what is permitted, and then the same socket to something else."""
    with socket.socket() as connection:
        connection.settimeout(3)
        connection.connect(("127.0.0.1", proxy_port()))
        libc.connect(connection.fileno(), ctypes.create_string_buffer(16), 16)
        connection.connect(("127.0.0.1", PLAN["tcp"]))
        return say(connection, "tcp_disconnect")


@check
def tcp_same_port():
    """The port of the proxy, at another host."""
    port = proxy_port()
    with socket.socket() as connection:
        connection.settimeout(3)
        connection.connect(("127.0.0.2", port))
        return say(connection, "tcp_same_port")


def is_shared_network():
    if os.stat("/proc/self/ns/net").st_ino != PLAN["network"]:
        raise Denied("only in a network of its own")


@check
def listen_tcp():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        is_shared_network()
    return "listens"


@check
def listen_unbound():
    """Landlock holds bind, but listen takes a port without it."""
    with socket.socket() as server:
        server.listen()
        is_shared_network()
        return f"listens at {server.getsockname()[1]}"


@check
def udp():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        connection.settimeout(3)
        connection.connect(("127.0.0.1", PLAN["udp"]))
        return say(connection, "udp")


@check
def udplite():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 136) as connection:
        connection.connect(("127.0.0.1", PLAN["udp"]))
        connection.send(b"x")
        is_shared_network()
    return "sent"


@check
def dns():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        connection.settimeout(3)
        connection.connect((PLAN["dns"], 53))
        return say(connection, "dns")


@check
def ping():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP):
        is_shared_network()
    return "an ICMP socket"


@check
def unix_file():
    return connect(socket.AF_UNIX, PLAN["unix"], "unix_file")


@check
def docker_socket():
    """The socket of a container engine: who may connect is root."""
    return connect(socket.AF_UNIX, "/run/docker.sock", "docker_socket")


@check
def resolved_socket():
    """Names are sent out by the system's resolver."""
    return connect(socket.AF_UNIX, "/run/systemd/resolve/io.systemd.Resolve", "resolved_socket")


@check
def unix_abstract():
    return connect(socket.AF_UNIX, "\0" + PLAN["abstract"], "unix_abstract")


@check
def unix_datagram():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
        connection.sendto(f"{PLAN['token']} unix_datagram".encode(), "\0" + PLAN["abstract"] + "-datagrams")
    return "sent"


@check
def unix_datagram_pair():
    """A pair of sockets that sends to a socket in a folder."""
    left, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    left.sendto(f"{PLAN['token']} unix_datagram_pair".encode(), PLAN["unix"] + ".datagrams")
    return "sent"


@check
def control_packet_pair():
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    left.send(b"x")
    return f"received {right.recv(1)}"


@check
def netlink():
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as connection:
        connection.bind((0, 0))
        is_shared_network()
    return "interfaces and routes of the machine"


@check
def raw_socket():
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP):
        is_shared_network()
    return "opened"


@check
def packet_socket():
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x300):
        is_shared_network()
    return "opened"


def family(number, kind):
    with socket.socket(number, kind):
        return "opened"


@check
def vsock():
    """Sockets to the hypervisor, which no network namespace holds."""
    return family(40, socket.SOCK_STREAM)


@check
def kernel_crypto():
    """AF_ALG, often a way into the kernel."""
    return family(38, socket.SOCK_SEQPACKET)


@check
def tipc():
    return family(30, socket.SOCK_SEQPACKET)


@check
def vsock_device():
    with open("/dev/vsock", "rb"):
        return "opened"


# ---- the proxy of `network: [HOSTS]` ---------------------------------------------------------------------------------------

def proxy_port():
    address = os.environ.get("HTTP_PROXY", "").rpartition(":")[2]
    if not address:
        raise Denied("there is no proxy")
    return int(address)


def through_proxy(request, name):
    with socket.create_connection(("127.0.0.1", proxy_port()), 3) as connection:
        connection.settimeout(5)
        connection.sendall(request if isinstance(request, bytes) else request.encode())
        head = connection.recv(4096)
        if b" 200 " in head.partition(b"\r\n")[0]:
            return say(connection, name)
        raise Denied(head.partition(b"\r\n")[0].decode(errors="replace") or "closed")


def by_connect(target, name, more=""):
    return through_proxy(f"CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n{more}\r\n", name)


def by_socks(kind, host, port, name, command=1):
    with socket.create_connection(("127.0.0.1", proxy_port()), 3) as connection:
        connection.settimeout(5)
        connection.sendall(b"\5\1\0")
        connection.recv(2)
        connection.sendall(bytes([5, command, 0, kind]) + host + struct.pack(">H", port))
        answer = connection.recv(10)
        if len(answer) < 2 or answer[1] != 0:
            raise Denied(f"SOCKS answer {answer[1] if len(answer) > 1 else 'none'}")
        return say(connection, name)


def named(host):
    return bytes([len(host)]) + host


@check
def control_proxy_port():
    return str(proxy_port())


@check
def control_proxy_named():
    return by_connect(f"127.0.0.1:{PLAN['named']}", "control_proxy_named")


@check
def control_proxy_socks():
    return by_socks(1, socket.inet_aton("127.0.0.1"), PLAN["named"], "control_proxy_socks")


@check
def proxy_other_host():
    return by_connect(f"127.0.0.2:{PLAN['named']}", "proxy_other_host")


@check
def proxy_other_port():
    return by_connect(f"127.0.0.1:{PLAN['tcp']}", "proxy_other_port")


@check
def proxy_service():
    return by_connect(f"127.0.0.1:{PLAN['port']}", "proxy_service")


@check
def proxy_loopback_name():
    """A permitted name that leads to this machine."""
    return by_connect(f"loop.test:{PLAN['tcp']}", "proxy_loopback_name")


@check
def proxy_loopback_socks():
    return by_socks(3, named(b"loop.test"), PLAN["tcp"], "proxy_loopback_socks")


@check
def proxy_metadata():
    """A permitted name that leads to the metadata service of a cloud."""
    try:
        return by_connect("meta.test:80", "proxy_metadata")
    except Denied as refused:
        if "403" in str(refused) or "no proxy" in str(refused):
            raise
        return f"it was tried: {refused}"


@check
def proxy_private_socks():
    return by_socks(1, socket.inet_aton("127.0.0.1"), PLAN["tcp"], "proxy_private_socks")


@check
def proxy_mapped_socks():
    return by_socks(4, socket.inet_pton(socket.AF_INET6, "::ffff:127.0.0.1"), PLAN["tcp"], "proxy_mapped_socks")


@check
def proxy_socks_bind():
    return by_socks(1, socket.inet_aton("127.0.0.1"), PLAN["named"], "proxy_socks_bind", command=2)


@check
def proxy_userinfo():
    return by_connect(f"127.0.0.1:{PLAN['named']}@127.0.0.1:{PLAN['tcp']}", "proxy_userinfo")


@check
def proxy_fragment():
    return by_connect(f"127.0.0.1:{PLAN['tcp']}#127.0.0.1:{PLAN['named']}", "proxy_fragment")


@check
def proxy_decimal():
    """An address in another notation."""
    return by_connect(f"2130706433:{PLAN['tcp']}", "proxy_decimal")


@check
def proxy_nul():
    return by_socks(3, named(b"127.0.0.2\0.any.test"), PLAN["named"], "proxy_nul")


@check
def proxy_suffix():
    return by_connect(f"localhost.any.test.:{PLAN['tcp']}", "proxy_suffix")


@check
def proxy_host_field():
    """The field Host names another server than the request line."""
    target = f"127.0.0.1:{PLAN['tcp']}"
    with socket.create_connection(("127.0.0.1", proxy_port()), 3) as connection:
        connection.settimeout(3)
        connection.sendall(f"GET http://127.0.0.2:{PLAN['named']}/ HTTP/1.1\r\nhost: {target}\r\n\r\n".encode())
        head = connection.recv(200)
        if b"hello" not in head:
            raise Denied(head.partition(b"\r\n")[0].decode(errors="replace") or "closed")
    return "answered"


# ---- kernel surface --------------------------------------------------------------------------------------------------------

@check
def keyctl():
    return surface("keyctl", 0, -3, 1)


@check
def add_key():
    return surface("add_key", b"user", b"toolcrib", b"x", 1, -3)


@check
def request_key():
    return surface("request_key", b"user", b"toolcrib-none", None, 0)


@check
def userfaultfd():
    return surface("userfaultfd", 1)


@check
def io_uring():
    return surface("io_uring_setup", 4, ctypes.create_string_buffer(120))


@check
def perf_event():
    attributes = ctypes.create_string_buffer(struct.pack("IIQ", 1, 128, 0) + bytes(24) + struct.pack("Q", 0x61) + bytes(72), 128)
    return surface("perf_event_open", attributes, 0, -1, -1, 0)


@check
def personality():
    """ADDR_NO_RANDOMIZE: addresses can be guessed."""
    system("personality", 0x0040000)
    return "set"


@check
def bpf():
    return surface("bpf", 0, ctypes.create_string_buffer(struct.pack("IIII", 1, 4, 4, 1) + bytes(104)), 120)


def terminal(request, argument):
    """An ioctl on a terminal that controls this process."""
    os.setsid()
    main, other = os.openpty()
    fcntl.ioctl(other, 0x540E, 0)
    system("ioctl", other, request, argument)
    return "typed into the terminal"


@check
def tiocsti():
    return terminal(0x5412, ctypes.create_string_buffer(b"x"))


@check
def tiocsti_high_bits():
    """CVE-2019-7303: the kernel takes 32 bits of the request, the filter compared 64."""
    return terminal(0x5412 | 1 << 32, ctypes.create_string_buffer(b"x"))


@check
def tioclinux():
    try:
        return terminal(0x541C, ctypes.create_string_buffer(b"\x02"))
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES):
            raise
        return f"the call is there: {error.strerror}"


@check
def load_module():
    return surface("finit_module", -1, b"", 0)


@check
def kexec():
    return surface("kexec_file_load", -1, -1, 0, None, 0)


@check
def kernel_log():
    return surface("syslog", 10, None, 0)


@check
def set_clock():
    return surface("clock_settime", 999, None)


@check
def swap():
    return surface("swapon", b"/nonexistent", 0)


@check
def accounting():
    return surface("acct", b"/nonexistent")


@check
def sysctl_write():
    with open("/proc/sys/vm/swappiness", "r+") as file:
        value = file.read()
        file.seek(0)
        file.write(value)
    return "written"


@check
def core_pattern():
    """The kernel starts the program that is named here, as root and outside."""
    with open("/proc/sys/kernel/core_pattern", "r+") as file:
        value = file.read()
        file.seek(0)
        file.write(value)
    return "written"


@check
def uevent_helper():
    with open("/sys/kernel/uevent_helper" if os.path.exists("/sys/kernel/uevent_helper") else "/sys/kernel/mm/ksm/run", "r+") as file:
        value = file.read()
        file.seek(0)
        file.write(value)
    return "written"


@check
def sysrq():
    with open("/proc/sysrq-trigger", "w"):
        return "opened for writing"


@check
def write_cgroup():
    path = f"/sys/fs/cgroup/toolcrib-{PLAN['token']}"
    os.mkdir(path)
    os.rmdir(path)
    return "made"


@check
def setuid_program():
    output, other = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(other, 1)
        execute(PLAN["suid"], [PLAN["suid"], "-u"], {})
    os.close(other)
    os.waitpid(child, 0)
    answer = os.read(output, 64).strip()
    if answer != b"0" or os.getuid() == 0:
        raise Denied(f"it runs as {answer.decode() or 'nobody: it did not start'}")
    return "it runs as root"


# ---- limits ----------------------------------------------------------------------------------------------------------------

@check
def memory_2g():
    memory = mmap.mmap(-1, 2048 * MEGABYTE, flags=mmap.MAP_PRIVATE)
    for at in range(0, 600 * MEGABYTE, 4096):
        memory[at] = 1
    return "600 MiB used of 2 GiB"


@check
def memory_shared():
    """Shared memory does not count as the process's own data."""
    mmap.mmap(-1, 2048 * MEGABYTE, flags=mmap.MAP_SHARED)
    return "2 GiB"


@check
def processes_300():
    children = []
    try:
        while len(children) < 300:
            child = os.fork()
            if child == 0:
                signal.pause()
                os._exit(0)
            children.append(child)
        return "300 processes"
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


@check
def cpu_4s():
    while time.process_time() < 4:
        pass
    return "4 seconds"


@check
def file_300mb():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    path = own("large")
    with open(path, "wb") as file:
        try:
            os.ftruncate(file.fileno(), 300 * MEGABYTE)
        finally:
            os.unlink(path)
    return "300 MiB"


def several_files(folder):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    made = []
    try:
        for number in range(4):
            path = os.path.join(folder, f"part-{os.getpid()}-{number}")
            with open(path, "wb") as file:
                made.append(path)
                os.posix_fallocate(file.fileno(), 0, 75 * MEGABYTE)
        return "300 MiB in four files"
    finally:
        for path in made:
            os.unlink(path)


@check
def temporary_300mb():
    return several_files(os.environ.get("TMPDIR") or "/tmp")


@check
def dev_300mb():
    """Not the temporary folder, but the other file systems in memory."""
    return several_files("/dev/shm")


@check
def root_300mb():
    return several_files("/")


@check
def raise_limits():
    for limit in (resource.RLIMIT_CORE, resource.RLIMIT_NOFILE):
        resource.setrlimit(limit, (1 << 16, 1 << 16))
    return "raised"


# ---- running ---------------------------------------------------------------------------------------------------------------

def attempt(name):
    try:
        return "REACHED", CHECKS[name]()
    except Denied as denied:
        return "DENIED", str(denied)
    except (OSError, OverflowError, MemoryError, RuntimeError) as error:
        return "DENIED", getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
    except ValueError as error:  # such as bytes that a socket does not take
        return "DENIED", str(error)


def run(name):
    """Runs a check in a process of its own."""
    reader, writer = os.pipe()
    try:
        child = os.fork()
    except OSError as error:
        return ["BROKEN", f"fork: {error.strerror}"]
    if child == 0:
        PLAN["harness_files"] = [reader, writer]
        try:
            answer = attempt(name)
        except BaseException as error:
            answer = "BROKEN", f"{type(error).__name__}: {error}"
        os.write(writer, json.dumps(answer).encode() + b"\n")
        os._exit(0)
    os.close(writer)
    data, end = b"", time.monotonic() + 20
    while not data.endswith(b"\n") and time.monotonic() < end:
        if select.select([reader], [], [], 0.2)[0]:
            part = os.read(reader, 4096)
            if not part:
                break
            data += part
    os.close(reader)
    if not data and time.monotonic() >= end:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return ["DENIED", "no answer"]
    status = os.waitpid(child, 0)[1]
    if data.endswith(b"\n"):
        return json.loads(data)
    number = os.WTERMSIG(status)
    return ["DENIED", f"ended by {signal.Signals(number).name}" if number else f"ended with {status >> 8}"]


def main():
    PLAN.update(json.loads(json.load(sys.stdin)["plan"]))
    print(json.dumps({name: run(name) for name in PLAN["run"]}))


if __name__ == "__main__":
    main()
