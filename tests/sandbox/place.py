"""What the checks run in: a folder with a service, what a hostile program would like to reach, and those who tell what was reached."""

import concurrent.futures
import ctypes
import json
import os
import pathlib
import random
import shutil
import socket
import subprocess
import tempfile
import threading
import time

from harness import BIN, LEVELS, Crib, at_level, text_of, token

HERE = pathlib.Path(__file__).resolve().parent
# Not the interpreter of a virtual environment: below /root, another user could not start it.
PYTHON = "/usr/bin/python3"
USERS = {"root": 0, "nobody": 65534}
SETTINGS = ("none", "service", "only", "limits", "hosts")
KEY = "key-0123456789abcdef"
SECRET = "secret-9d41c7e2b05a"
SLOW = {"memory_2g": "limits", "processes_300": "limits", "cpu_4s": "limits"}

VICTIM = """
import ctypes, time
data = ctypes.create_string_buffer(b"personal", 4096)
print(ctypes.addressof(data), flush=True)
time.sleep(600)
"""


class Witness:
    """Listens at every kind of socket, answers `hello`, and knows who was there."""

    def __init__(self, folder):
        self.seen, self.sockets = [], []
        self.tcp = self.listen(socket.AF_INET, ("127.0.0.1", 0))[1]
        self.named = self.listen(socket.AF_INET, ("127.0.0.1", 0))[1]
        self.listen(socket.AF_INET, ("127.0.0.2", self.named))
        self.tcp6 = self.listen(socket.AF_INET6, ("::1", 0))[1] if socket.has_ipv6 else 0
        self.udp = self.listen(socket.AF_INET, ("127.0.0.1", 0), socket.SOCK_DGRAM)[1]
        self.dns = f"127.53.{random.randrange(256)}.{random.randrange(1, 255)}"  # one for each place
        self.listen(socket.AF_INET, (self.dns, 53), socket.SOCK_DGRAM)
        self.unix, self.abstract = str(folder / "open" / "victim.sock"), f"toolcrib-{token()}"
        self.listen(socket.AF_UNIX, "\0" + self.abstract)
        self.listen(socket.AF_UNIX, "\0" + self.abstract + "-datagrams", socket.SOCK_DGRAM)
        self.listen(socket.AF_UNIX, self.unix + ".datagrams", socket.SOCK_DGRAM)
        os.chmod(self.unix + ".datagrams", 0o666)
        for path in (self.unix, folder / "run" / "docker.sock", folder / "run" / "systemd" / "resolve" / "io.systemd.Resolve"):
            self.listen(socket.AF_UNIX, str(path))
            os.chmod(path, 0o666)

    def listen(self, family, address, kind=socket.SOCK_STREAM):
        server = socket.socket(family, kind)
        if family != socket.AF_UNIX:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(address)
        self.sockets.append(server)
        if kind == socket.SOCK_STREAM:
            server.listen(64)
        threading.Thread(target=self.serve, args=(server, kind), daemon=True).start()
        return server.getsockname()

    def serve(self, server, kind):
        while True:
            try:
                if kind == socket.SOCK_STREAM:
                    client, _ = server.accept()
                    threading.Thread(target=self.answer, args=(client,), daemon=True).start()
                else:
                    data, sender = server.recvfrom(1024)
                    self.seen.append(data.decode(errors="replace").strip())
                    if sender:
                        server.sendto(b"hello", sender)
            except OSError:
                return

    def answer(self, client):
        with client:
            try:
                client.settimeout(5)
                self.seen.append(client.recv(1024).decode(errors="replace").strip())
                client.sendall(b"hello")
            except OSError:
                pass

    def close(self):
        for server in self.sockets:
            server.close()


class Place:
    """A folder for a level and a user, with a service. `run` gives the verdicts of the checks at a setting."""

    def __init__(self, level, user, names):
        self.level, self.user, self.number, self.names = level, user, USERS[user], names
        # Not below /tmp or /home, which a program with `sandbox: service` must be able to write.
        os.makedirs("/srv", exist_ok=True)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="toolcrib-checks-", dir="/srv"))
        self.crib, self.programs, self.witness = None, [], None
        try:
            self.make_files()
            self.witness = Witness(self.folder)
            self.start_service()
        except BaseException:
            self.close()
            raise

    def make_files(self):
        self.folder.chmod(0o755)
        for name in ("open", "run/systemd/resolve", "bin"):
            (self.folder / name).mkdir(parents=True)
        for name in ("data", "work/a", "work/b", "work/out", "home", "outside", "secrets/inner", "keys/inner"):
            (self.folder / name).mkdir(parents=True)
        for name, text in {"secrets/key": KEY, "secrets/inner/secret": SECRET, "secrets/replaced": SECRET,
                           "keys/inner/secret": SECRET, "more.yaml": "# included\ntools: {}\n",
                           "work/b/notes": "of another tool", "home/notes": "of the user",
                           "hosts": "127.0.0.1 localhost loop.test\n::1 localhost\n169.254.169.254 meta.test\n"}.items():
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o644 if name == "hosts" else 0o600)
        shutil.copy(HERE / "checks.py", self.folder / "work" / "a")
        self.program = self.folder / "bin" / "toolcrib"
        shutil.copy(BIN, self.program)
        self.suid = self.folder / "bin" / "id"
        shutil.copy("/usr/bin/id", self.suid)
        self.suid.chmod(0o4755)
        for name in ("data", "work/a", "work/a/checks.py", "work/b", "work/b/notes", "work/out", "home", "home/notes", "outside",
                     "secrets/key", "secrets/inner/secret", "secrets/replaced", "keys", "keys/inner", "keys/inner/secret", "more.yaml"):
            os.chown(self.folder / name, self.number, self.number)
        # `secrets` belongs to root, so that only `keys` is in a folder that the program may change.
        for name in ("secrets", "secrets/inner"):
            os.chown(self.folder / name, 0, self.number)
            (self.folder / name).chmod(0o750)

    def manifest(self):
        tool = {"kind": "command", "description": "Runs checks.", "command": [PYTHON, "-I", "-S", "./checks.py"], "workdir": "./work/a",
                "parameters": {"plan": {"type": "string", "description": "What to run."}}, "output": "text", "max_output": "1MiB",
                "timeout": "120s"}
        shell = {**tool, "command": ["/bin/sh", "-c", "true"]}
        limits = {"network": False, "memory": "512MiB", "cpu": "2s", "processes": 64, "files": 256, "disk": "100MiB"}
        hosts = {"network": [f"127.0.0.1:{self.witness.named}", f"loop.test:{self.witness.tcp}", "meta.test", f"*.any.test:{self.witness.named}"]}
        settings = {"none": "none", "service": "service", "only": True, "limits": limits, "hosts": hosts}
        leave = {**tool, "command": ["/bin/sh", "-c", f"ln -s {self.folder}/data/ledger.db result.txt"], "workdir": "./work/out",
                 "output": {"file": "result.txt"}, "sandbox": {"write": ["./work/out"]}}
        return {"include": ["more.yaml"], 
                "callers": [{"name": "me", "key": "${file:./secrets/key}", "admin": True, "allow": ["*"]}],
                "tools": {**{name: {**tool, "sandbox": setting} for name, setting in settings.items()},
                          **{f"sh_{name}": {**shell, "sandbox": setting} for name, setting in settings.items()},
                          "leave": leave,
                          "other": {**shell, "workdir": "./work/b", "environment": {
                              "A": "${file:./secrets/inner/secret}", "B": "${file:./secrets/replaced}", "C": "${file:./keys/inner/secret}"}}}}

    def start_service(self):
        path = self.folder / "toolcrib.yaml"
        path.write_text("")
        os.chown(path, self.number, self.number)
        within = at_level(self.level, self.folder, self.number)
        self.crib = Crib(self.folder, self.manifest(), ledger=self.folder / "data" / "ledger.db", within=within, program=self.program)

    def in_force(self, tool="only"):
        """The level that the service reports, and what it cannot enforce."""
        found = self.get(f"/tools/{tool}").json["sandbox"]
        return found["in_force"], found["not_enforced"]

    def get(self, path):
        return self.crib.get(path, key=KEY)

    def start_program(self, *command, environment=None):
        program = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env={"PATH": "/usr/bin:/bin", **(environment or {})},
                                   user=self.number, group=self.number, extra_groups=[])
        self.programs.append(program)
        return program

    def plan(self, names, mark, victim, address, disposable):
        folder, witness = self.folder, self.witness
        return {"run": names, "token": mark, "base": str(folder), "ledger": str(folder / "data/ledger.db"), "manifest": str(folder / "toolcrib.yaml"),
                "included": str(folder / "more.yaml"), "secret": str(folder / "secrets/inner/secret"), "secret_mark": SECRET[:8],
                "movable": str(folder / "keys/inner"), "replaced": str(folder / "secrets/replaced"),
                "other": str(folder / "work/b/notes"), "home": str(folder / "home/notes"), "home_folder": str(folder / "home"),
                "outside": str(folder / "outside"), "suid": str(self.suid), "service": self.crib.pid, "port": self.crib.port,
                "victim": victim.pid, "victim_address": address, "disposable": disposable.pid, "shm_key": self.shared_memory(),
                "shm_device": os.stat("/dev/shm").st_dev, "network": os.stat("/proc/self/ns/net").st_ino, "sleep": f"600.{int(mark[-8:], 36)}",
                "tcp": witness.tcp, "tcp6": witness.tcp6, "udp": witness.udp, "dns": witness.dns, "unix": witness.unix,
                "abstract": witness.abstract, "named": witness.named}

    def shared_memory(self):
        """The key of shared memory that belongs to the user."""
        if not hasattr(self, "shm_key"):
            self.shm_key = 0x70000000 | os.getpid() & 0xFFFF | self.number & 0xFF << 16
            program = self.start_program(PYTHON, "-I", "-S", "-c", f"import ctypes; print(ctypes.CDLL(None).shmget({self.shm_key}, 4096, 0o1600))")
            self.shm = int(program.communicate()[0])
        return self.shm_key

    def run(self, setting):
        """{check: (verdict, reason)} of all checks at a setting."""
        mark = token()
        victim = self.start_program(PYTHON, "-I", "-S", "-c", VICTIM, environment={"VICTIM": "1"})
        address = int(victim.stdout.readline())
        disposable = self.start_program("/bin/sleep", "600")
        later, waits = ["preload_use", "read_moved"], ["replaced_secret"]
        slow = [name for name in SLOW if setting in ("none", SLOW[name])]
        if self.level != "namespaces" and setting == "none":
            slow = []
        first = [name for name in self.names if name not in [*SLOW, *later, *waits]]

        def call(names):
            plan = json.dumps(self.plan(names, mark, victim, address, disposable))
            answer = self.crib.invoke(setting, {"plan": plan}, key=KEY).json
            assert not answer["is_error"], text_of(answer)
            return json.loads(text_of(answer))

        if setting == "hosts":  # another host that listens at the port of the proxy
            self.witness.listen(socket.AF_INET, ("127.0.0.2", int(call(["control_proxy_port"])["control_proxy_port"][1])))
        with concurrent.futures.ThreadPoolExecutor() as pool:
            waiting = pool.submit(call, waits)
            found = call(first)
            time.sleep(0.3)
            self.replace("secrets/replaced")
            found.update(waiting.result())
        found.update(self.lives_on(mark))
        for names in filter(None, (later, slow)):
            found.update(call(names))
        if (self.folder / "keys/inner.moved").exists():
            (self.folder / "keys/inner.moved").rename(self.folder / "keys/inner")
        self.ask_witness(found, mark)
        if disposable.poll() is not None:
            found["signal_term"] = ["REACHED", "ended a program of another tool"]
        return found

    def replace(self, name):
        """As editors and tools for secrets do: a new file takes the place of the old one."""
        path = self.folder / name
        new = path.with_name("new")
        new.write_text(path.read_text())
        new.chmod(0o600)
        os.chown(new, self.number, self.number)
        new.rename(path)

    def lives_on(self, mark):
        """Looks for the daemons of `outlive` after the end of their call. They have a moment to be found."""
        wanted = f"sleep\0600.{int(mark[-8:], 36)}\0".encode()

        def alive():
            found = []
            for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    if path.read_bytes() == wanted:
                        found.append(int(path.parent.name))
                except OSError:
                    continue
            return found

        end = time.monotonic() + 1
        while alive() and time.monotonic() < end:
            time.sleep(0.05)
        left, answer = alive(), {}
        environments = {pid: pathlib.Path(f"/proc/{pid}/environ").read_bytes() for pid in left}
        for name, is_it in {"outlive": lambda text: text != b"", "outlive_hidden": lambda text: text == b""}.items():
            lives = any(is_it(text) for text in environments.values())
            answer[name] = ["REACHED", "it lives on"] if lives else ["DENIED", "it ended with its call"]
        for pid in left:
            os.kill(pid, 9)
        return answer

    def ask_witness(self, found, mark):
        """What was seen outside counts as reached, whatever the check says."""
        for line in self.witness.seen:
            sent, _, name = line.partition(" ")
            if sent == mark and name in found and found[name][0] != "REACHED":
                found[name] = ["REACHED", "it was seen outside"]

    def close(self):
        if self.crib and self.crib.process:
            self.crib.kill9()
        if self.witness:
            self.witness.close()
        for program in self.programs:
            program.kill()
            program.wait()
            program.stdout.close()
        if hasattr(self, "shm"):
            ctypes.CDLL(None).shmctl(self.shm, 0, None)
        shutil.rmtree(self.folder, ignore_errors=True)
