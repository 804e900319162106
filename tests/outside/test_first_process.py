"""As the first process of a PID namespace, which is what a container's only program is."""

import functools
import os
import signal
import subprocess

import pytest

from harness import children, is_zombie, later, ok, parallel, poll, said_no, text_of
from recipes import command, params, sh

ALONE = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--fork", "--pid", "--mount-proc",
         "--kill-child"]
# Leaves its group, its parent and its pipes behind, and notes who its parent is then.
DAEMON = ("setsid sh -c 'until read a b c parent e < /proc/self/stat; [ $parent != $0 ]; do sleep 0.05; done; "
          "echo $parent >> {file}' $$ </dev/null >/dev/null 2>&1 & until [ \"$(ps -o sid= $!)\" -eq $! ]; do :; done; echo $$")
WAIT = "sleep 0.05; exit \"$0\""


@pytest.fixture
def first(start):
    """start(...), as process 1."""
    try:
        probe = subprocess.run([*ALONE, "true"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except OSError as missing:
        pytest.skip(f"no PID namespace to be had: {missing}")
    if probe.returncode:
        pytest.skip(f"no PID namespace to be had: {probe.stdout.strip()}")
    return functools.partial(start, within=ALONE)


def family(pid):
    """The process and all that came from it."""
    found = [pid]
    for parent in found:
        found += children(parent)
    return found


def ended(crib):
    """The exit code of a service that ends without being told to by `stop`."""
    process, crib.process = crib.process, None
    code = process.wait(10)
    crib._join()
    return code


def test_daemons_leave_no_zombie_and_take_no_exit_status(first, tmp_path):
    """300 orphans come to process 1 and are collected, while 300 ordinary programs end each with its own status."""
    parents = tmp_path / "parents"
    tools = {"daemon": sh(DAEMON.format(file=parents)),
             "code": command(["/bin/sh", "-c", WAIT, "{{ code }}"], parameters=params(code="integer"))}
    crib = first({"defaults": {"concurrency": {"max": 64}}, "tools": tools})

    def work(thread):
        session = crib.session()
        for turn in range(50):
            if thread % 2:
                assert text_of(ok(session.invoke("daemon"))).isdigit()
            else:
                code = thread * 50 // 2 + turn  # 0 to 299 over the even threads
                answer = session.invoke("code", {"code": code % 256})
                if code % 256:
                    assert f"status {code % 256}" in text_of(said_no(answer)), answer
                else:
                    ok(answer)
        session.close()

    parallel(12, work)
    adopted = poll(lambda: len(lines) == 300 and lines if (lines := parents.read_text().split()) else None, 20, "300 daemons")
    assert set(adopted) == {"1"}, "the test proves nothing unless they came to process 1"
    left = poll(lambda: len(family(crib.pid)) == 2, 5, "nobody but process 1 and the service")
    assert left and not any(is_zombie(pid) for pid in family(crib.pid))
    crib.stop()


def test_sigterm_drains_and_ends_with_0(first):
    """Process 1 hands the signal on: the running call is answered, the exit code is the service's."""
    crib = first({"tools": {"slow": sh("sleep 1; echo done")}})
    answer = later(lambda: crib.invoke("slow"))
    crib.wait_row("tool=slow", lambda row: row["state"] == "running")
    crib.stop()
    assert text_of(ok(answer())) == "done"


def test_a_second_signal_hurries(first):
    """Each signal arrives, and arrives once: the first drains, the second ends the wait."""
    crib = first({"tools": {"slow": sh("sleep 30")}})
    answer = later(lambda: crib.invoke("slow"))
    crib.wait_row("tool=slow", lambda row: row["state"] == "running")
    crib.terminate()
    poll(lambda: "waiting for running ones" in crib.stderr, 5, "the drain")
    assert "told to hurry" not in crib.stderr
    os.kill(crib.pid, signal.SIGINT)
    assert ended(crib) == 0
    assert "told to hurry" in crib.stderr
    answer()


def test_the_end_of_the_service_is_the_end_of_process_1(first):
    """A service that is killed does not leave an empty container that looks alive: 137, as a shell would say."""
    crib = first({"tools": {"calculator": {"kind": "native"}}})
    service, = children(crib.pid)
    os.kill(service, signal.SIGKILL)
    assert ended(crib) == 128 + signal.SIGKILL


def test_a_bad_manifest_still_exits_64(first):
    with pytest.raises(AssertionError, match="serve ended with 64"):
        first({"tools": {"calculator": {"kind": "native", "descripton": "x"}}})
