"""As the first process of a PID namespace, which is what a container's only program is."""

import functools
import os
import signal
import subprocess

import pytest

from harness import children, descendants, error_result, in_background, is_zombie, ok, parallel, poll, text_of
from recipes import command, params, sh

ALONE = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--fork", "--pid", "--mount-proc",
         "--kill-child"]
# Leaves its group, its parent and its pipes, and writes down its parent afterwards. The call waits for that, since the daemon ends
# with the call.
DAEMON = ("export D='until read a b c parent e < /proc/self/stat; [ $parent != $0 ]; do sleep 0.05; done; "
          "echo $parent >> {file}; : > {file}.$1'; sh -c 'setsid sh -c \"$D\" $$ \"$0\" </dev/null >/dev/null 2>&1 &' $$; "
          "until [ -e {file}.$$ ]; do sleep 0.05; done; echo $$")
WAIT = "sleep 0.05; exit \"$0\""


@pytest.fixture
def start_as_process_1(start):
    """start(...), as process 1."""
    try:
        probe = subprocess.run([*ALONE, "true"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except OSError as missing:
        pytest.skip(f"no PID namespace to be had: {missing}")
    if probe.returncode:
        pytest.skip(f"no PID namespace to be had: {probe.stdout.strip()}")
    return functools.partial(start, within=ALONE)


def exit_code(crib):
    """The exit code of a service that ends without `stop`."""
    process, crib.process = crib.process, None
    code = process.wait(10)
    crib._join()
    return code


def test_daemons_leave_no_zombie_or_exit_status(start_as_process_1, tmp_path):
    """300 orphans come to process 1 and are collected, while 300 ordinary programs end each with its own status."""
    parents = tmp_path / "parents"
    tools = {"daemon": sh(DAEMON.format(file=parents)),
             "code": command(["/bin/sh", "-c", WAIT, "{{ code }}"], parameters=params(code="integer"))}
    crib = start_as_process_1({"defaults": {"concurrency": {"max": 64}, "sandbox": "none"}, "tools": tools})

    def work(thread):
        session = crib.session()
        for turn in range(50):
            if thread % 2:
                assert text_of(ok(session.invoke("daemon"))).isdigit()
            else:
                code = thread * 50 // 2 + turn  # 0 to 299 over the even threads
                answer = session.invoke("code", {"code": code % 256})
                if code % 256:
                    assert f"status {code % 256}" in text_of(error_result(answer)), answer
                else:
                    ok(answer)
        session.close()

    parallel(12, work)
    adopted = poll(lambda: len(lines) == 300 and lines if (lines := parents.read_text().split()) else None, 20, "300 daemons")
    assert set(adopted) == {"1"}, "the test proves nothing unless they came to process 1"
    poll(lambda: len(descendants(crib.pid)) == 1, 5, "nobody but process 1 and the service")
    assert not any(is_zombie(pid) for pid in {crib.pid} | descendants(crib.pid))
    crib.stop()


def test_sigterm_drains_and_exits_with_0(start_as_process_1):
    """Process 1 hands the signal on: the running call is answered, the exit code is the service's."""
    crib = start_as_process_1({"tools": {"slow": sh("sleep 1; echo done")}})
    answer = in_background(lambda: crib.invoke("slow"))
    crib.wait_row("tool=slow", lambda row: row["state"] == "running")
    crib.stop()
    assert text_of(ok(answer())) == "done"


def test_second_signal_ends_the_wait(start_as_process_1):
    """Each signal arrives, and arrives once: the first drains, the second ends the wait."""
    crib = start_as_process_1({"tools": {"slow": sh("sleep 30")}})
    answer = in_background(lambda: crib.invoke("slow"))
    crib.wait_row("tool=slow", lambda row: row["state"] == "running")
    crib.terminate()
    poll(lambda: "waiting for running ones" in crib.stderr, 5, "the drain")
    assert "second stop signal" not in crib.stderr
    os.kill(crib.pid, signal.SIGINT)
    assert exit_code(crib) == 0
    assert "second stop signal" in crib.stderr
    answer()


def test_service_death_ends_process_1(start_as_process_1):
    """A killed service does not leave an empty container that looks alive: 137, as in a shell."""
    crib = start_as_process_1({"tools": {"calculator": {"kind": "native"}}})
    service, = children(crib.pid)
    os.kill(service, signal.SIGKILL)
    assert exit_code(crib) == 128 + signal.SIGKILL


def test_bad_manifest_exits_with_64(start_as_process_1):
    with pytest.raises(AssertionError, match="serve ended with 64"):
        start_as_process_1({"tools": {"calculator": {"kind": "native", "descripton": "x"}}})
