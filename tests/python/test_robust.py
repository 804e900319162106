"""What tools do to their process must not end it, nor reach the protocol."""

import os
import signal
import subprocess
import sys
import time

import pytest
from harness import ok, error_text, text_of

ABUSE = {
    "closes_streams": "sys.stdout.close(); sys.stderr.close(); sys.stdin.close()",
    "closes_descriptors": "os.close(0); os.close(1); os.close(2)",
    "replaces_streams": "sys.stdout = io.StringIO(); sys.stderr = None",
    "writes_garbage": "os.write(1, bytes(range(256)) * 300); print('\\ud800')",
    "changes_folder": "os.chdir('/')",
    "starts_children": "subprocess.run([sys.executable, '-c', 'print(1)'], check=True)",
    "starts_a_shell": "os.system('echo from a shell')",
    "starts_a_pool": "multiprocessing.get_context('fork').Pool(2).map(abs, [1, 2])",
    "forks_and_returns": "os.fork() or None",
    "starts_threads": "[threading.Thread(target=time.sleep, args=(0.05,)).start() for _ in range(20)]",
    "exits_in_a_thread": "threading.Thread(target=sys.exit).start()",
    "raises_in_a_thread": "threading.Thread(target=lambda: 1 / 0).start()",
    "has_a_low_limit": "sys.setrecursionlimit(200)",
    "handles_signals": "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
    "changes_encoding": "locale.setlocale(locale.LC_ALL, 'C')",
    "reads_input": "sys.stdin and sys.stdin.read()",
    "warns": "warnings.simplefilter('error')",
}


@pytest.mark.parametrize("name", ABUSE)
def test_worker_survives_a_tool_that(workshop, name):
    worker, _ = workshop.load(
        f"import io, locale, multiprocessing, os, signal, subprocess, sys, threading, time, warnings\ndef f():\n    {ABUSE[name]}\n    return 'survived'\n"
        "def g(x: str):\n    print('heard ' + x)\n    return x\n",
        functions=["f", "g"],
    )
    for _ in range(2):
        assert worker.call("f")["op"] == "result"
        assert text_of(ok(worker.call("g", {"x": "é"}))) == "é"
    assert worker.close() == 0
    assert "heard é" in worker.log


def test_spawned_process_can_run_tool_functions(workshop):
    worker, _ = workshop.load(
        "import multiprocessing\ndef double(x): return 2 * x\ndef f():\n    with multiprocessing.get_context('spawn').Pool(1) as pool:\n        return pool.map(double, [1, 2])\n",
        name="spawns.py", functions=["f"],
    )  # fmt: skip
    assert ok(worker.call("f"))["structured_content"] == [2, 4]


def test_children_do_not_inherit_protocol_descriptors(workshop):
    worker, _ = workshop.load(
        """
        import os, subprocess
        LIST = "ls -l /proc/self/fd"
        def by_exec(): return subprocess.run(LIST, shell=True, capture_output=True, text=True, close_fds=False).stdout
        def own(): return [os.readlink(f"/proc/self/fd/{n}") for n in range(10) if os.path.islink(f"/proc/self/fd/{n}")]
        """,
        functions=["by_exec", "own"],
    )
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("needs /proc")
    mine = [os.readlink(f"/proc/self/fd/{stream.fileno()}") for stream in (worker.process.stdin, worker.process.stdout)]
    assert set(mine) <= set(worker.call("own")["structured_content"])  # the worker holds them
    assert not [pipe for pipe in mine if pipe in text_of(worker.call("by_exec"))]


def test_forked_child_can_report_progress(workshop):
    """The thread, which the child does not have, may hold the lock: the child must not wait for it."""
    worker, _ = workshop.load(
        """
        import os, sys
        from toolcrib import tool
        @tool(context=True)
        def f(tool_context):
            "Forks in the middle of a line."
            wire = tool_context._call.wire
            wire.lock.acquire()
            child = os.fork()
            if child == 0:
                tool_context.progress("I am nobody")
            wire.lock.release()
            return os.waitpid(child, 0)[1]
        """,
    )
    worker.start_call("f", {}, watched=True)
    answer = worker.receive()
    assert (answer["op"], text_of(answer)) == ("result", str(1 << 8)), answer


def test_context_variables_do_not_leak_between_calls(workshop):
    worker, _ = workshop.load(
        """
        import contextvars
        user = contextvars.ContextVar("user", default="nobody")
        def f(name: str):
            before = user.get()
            user.set(name)
            return before
        def steps(name: str):
            user.set(name)
            yield
            yield user.get()
        """,
        functions=["f", "steps"],
    )
    assert [text_of(ok(worker.call("f", {"name": name}))) for name in ("ann", "bob")] == ["nobody", "nobody"]
    assert text_of(ok(worker.call("steps", {"name": "ann"}))) == "ann"


def test_surviving_child_does_not_block_the_service(workshop):
    worker, _ = workshop.load(
        """
        import os, time
        def f():
            pid = os.fork()
            if pid == 0:
                time.sleep(20)
                os._exit(0)
            return pid
        """,
        functions=["f"],
    )
    child = int(text_of(ok(worker.call("f"))))
    try:
        began = time.monotonic()
        worker.process.stdin.close()
        assert worker.lines.get(timeout=10) is None  # the protocol has ended, although the child runs
        assert time.monotonic() - began < 5
    finally:
        os.kill(child, signal.SIGKILL)


def test_input_end_runs_handlers_without_threads(workshop):
    worker, _ = workshop.load(
        "import atexit, threading, time\natexit.register(print, 'handler ran')\ndef stay():\n    threading.Thread(target=time.sleep, args=(60,)).start()\n",
        functions=["stay"],
    )
    assert worker.close() == 0
    assert "handler ran" in worker.log
    worker, _ = workshop.load(
        "import threading, time\ndef stay():\n    threading.Thread(target=time.sleep, args=(60,)).start()\n", functions=["stay"]
    )
    worker.call("stay")
    began = time.monotonic()
    worker.close()
    assert time.monotonic() - began < 4


SERVICE = """
import sys
sys.path.insert(0, sys.argv[3])
from harness import Worker
worker = Worker(sys.argv[1], sys.argv[2])
worker.load(sys.argv[2] + "/tools_here.py", functions=["f"])
worker.start_call("f", {}, watched=True)
worker.receive()
print(worker.process.pid, flush=True)
worker.process.wait()
"""


def test_worker_ends_when_the_service_is_killed(workshop):
    workshop.write("import time\ndef f():\n    yield 'running'\n    time.sleep(60)\n")
    service = subprocess.Popen(
        [sys.executable, "-c", SERVICE, workshop.python, str(workshop.folder), os.path.dirname(__file__)], stdout=subprocess.PIPE, text=True
    )
    worker = int(service.stdout.readline())
    os.kill(service.pid, signal.SIGKILL)
    service.wait()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and is_running(worker):
        time.sleep(0.02)
    assert not is_running(worker)


def is_running(pid):
    """A zombie is not running."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_unreadable_message_is_answered(workshop):
    worker, _ = workshop.load("def f(n: int): return 1\n", functions=["f"])
    worker.send_raw('{"op":"call","id":1,"tool":"f","arguments":{"n":%s},"context":{},"watched":false}' % ("1" * 6000))
    answer = worker.receive()
    assert answer["op"] in ("invalid", "result") and answer["id"] == 1
    worker.send_raw('{"op":"call","id":2,"tool":"f","arguments":{"n":%s},"context":{},"watched":false}' % ("[" * 100000))
    answer = worker.receive()
    assert (answer["op"], answer["id"]) == ("invalid", 2)
    worker.count = 2
    assert text_of(ok(worker.call("f", {"n": 1}))) == "1"
    assert worker.call("gone")["op"] == "failed_call"


def test_large_arguments_and_results_are_complete(workshop):
    worker, _ = workshop.load("def f(x: str): return x\n", functions=["f"], max_result=1 << 26)
    text = "é" * 1_000_000
    assert text_of(ok(worker.call("f", {"x": text}))) == text


def test_deep_recursion_is_an_error_result(workshop):
    worker, _ = workshop.load("def f(): return f()\n", functions=["f"])
    assert error_text(worker.call("f")).startswith("Error: RecursionError")
