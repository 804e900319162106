"""Python workers that are slow, hang, crash or are killed. Only the call that caused it is affected, and nothing is left behind."""

import json
import os
import pathlib
import signal
import socket
import time

import pytest

from harness import children, is_alive, is_zombie, in_background, now, ok, parallel, poll, problem, processes, elapsed, text_of
from recipes import PYTHON, module
from test_cancel import ENDED
from test_lifecycle import connect

FILES = pathlib.Path(__file__).resolve().parent / "modules"
READ = {"effect": "read", "timeout": "20s"}
NAMES = ["pid", "pid_async", "ends", "ends_async", "family", "nap", "nap_async", "tidy", "stubborn", "blocks", "busy", "threads", "dies_while"]
WIDE = {"concurrency": {"max": 64, "queue": 64, "wait": "20s"}}


def start_rough(start, workers=1, **policies):
    """A service with rough.py; policies by tool name."""
    tools = {name: dict(READ, **policies.get(name, {})) for name in NAMES}
    return start({"defaults": WIDE, "python_modules": {"rough": module(FILES / "rough.py", workers=workers, tools=tools)}}).ready()


def workers(crib):
    return [pid for pid in children(crib.pid) if not is_zombie(pid)]


def data_of(reply):
    return ok(reply)["structured_content"]


# ---- side by side ------------------------------------------------------------------------------------------------------

def test_async_calls_share_one_loop(start):
    crib = start_rough(start)
    ok(crib.invoke("nap_async"))
    began = now()
    naps = parallel(20, lambda _: data_of(crib.invoke("nap_async", {"seconds": 0.2})))
    assert elapsed(began) < 1
    assert len({nap["pid"] for nap in naps}) == 1
    assert max(nap["begun"] for nap in naps) < min(nap["ended"] for nap in naps), "all at the same time"


@pytest.mark.parametrize("count", [1, 3])
def test_sync_calls_run_one_per_worker(start_plain, count):
    crib = start_rough(start_plain, workers=count)
    warm = lambda: len({data_of(reply)["pid"] for reply in parallel(6, lambda _: crib.invoke("nap", {"seconds": 0.1}))})  # noqa: E731
    poll(lambda: warm() == count, 20, f"{count} workers")
    naps = parallel(6, lambda _: data_of(crib.invoke("nap", {"seconds": 0.2})))
    assert len({nap["pid"] for nap in naps}) == count
    at_once = max(sum(other["begun"] <= nap["begun"] < other["ended"] for other in naps) for nap in naps)
    assert at_once == count
    assert max(nap["ended"] for nap in naps) - min(nap["begun"] for nap in naps) < 0.2 * 6 / count + 0.6


def test_calls_side_by_side_start_workers(start, tmp_path):
    """Without `workers:` five slow calls of one message are all answered, within a timeout that one worker could not meet."""
    (tmp_path / "slow.py").write_text("import time\n\ndef slow(n: int) -> int:\n    'Waits.'\n    time.sleep(2)\n    return n\n")
    entry = {"module": str(tmp_path / "slow.py"), "interpreter": PYTHON, "functions": ["slow"], "tools": {"slow": {"timeout": "5s"}}}
    crib = start({"python_modules": {"slow": entry}}).ready()
    count = lambda: crib.get("/sources").json["sources"][0]["workers"]  # noqa: E731
    assert count() == 1
    calls = [{"id": f"c{n}", "type": "function", "function": {"name": "slow", "arguments": json.dumps({"n": n})}} for n in range(5)]
    reply = crib.post("/calls", json.dumps({"role": "assistant", "tool_calls": calls}), headers={"content-type": "application/json"})
    assert reply.status == 200, reply
    answer = reply.json
    assert [message["content"] for message in answer["messages"]] == ["0", "1", "2", "3", "4"], answer
    assert count() >= 4


def test_slow_sync_call_delays_no_async(start):
    crib = start_rough(start)
    slow = in_background(lambda: crib.invoke("nap", {"seconds": 2}))
    crib.wait_row("state=running")
    began = now()
    ok(crib.invoke("nap_async"))
    assert elapsed(began) < 1
    ok(slow())


# ---- too slow ----------------------------------------------------------------------------------------------------------

def test_timed_out_sync_call_ends_its_children(start, mark):
    crib = start_rough(start, workers=2, family={"timeout": "1s"})
    parallel(2, lambda _: ok(crib.invoke("nap", {"seconds": 0.5})))
    others = [in_background(lambda: crib.invoke("nap", {"seconds": 3})), in_background(lambda: crib.invoke("nap_async", {"seconds": 3}))]
    crib.wait_row("tool=nap&state=running")
    # On a busy machine the family may take longer to start than the call may: then another call has to show it.
    for _ in range(20):
        answers = []
        family = in_background(lambda: answers.append(crib.invoke("family", {"mark": mark})))
        complete = poll(lambda: len(processes(mark)) >= 3 and "whole" or answers and "ended", 30, "the family or its end") == "whole"
        family()
        if answers[0].status == 503:  # both workers were busy for half of its time
            continue
        error = problem(answers[0], 504, "attempt_timed_out")
        if complete:
            break
    assert complete, "the family was never seen whole"
    poll(lambda: not processes(mark), 1, "the whole family dead within a second")
    assert crib.row(error["invocation_id"])["state"] == "timed_out"
    for other in others:
        ok(other())
    ok(crib.invoke("nap"))


def test_busy_loop_is_ended_by_timeout(start):
    crib = start_rough(start, busy={"timeout": "500ms"})
    began = now()
    problem(crib.invoke("busy"), 504, "attempt_timed_out")
    assert elapsed(began) < 1.5
    began = now()
    ok(crib.invoke("nap"))
    assert elapsed(began) < 1


def test_timed_out_async_call_is_cancelled_alone(start, tmp_path):
    crib = start_rough(start, tidy={"timeout": "500ms"})
    pid = text_of(ok(crib.invoke("pid_async")))
    other = in_background(lambda: crib.invoke("nap_async", {"seconds": 2}))
    crib.wait_row("tool=nap_async&state=running")
    problem(crib.invoke("tidy", {"path": str(tmp_path / "tidied")}), 504, "attempt_timed_out")
    poll(lambda: (tmp_path / "tidied").exists(), 1, "its `finally` ran")
    assert str(data_of(other())["pid"]) == pid == text_of(ok(crib.invoke("pid_async"))), "the worker lives on"


@pytest.mark.parametrize("name", ["stubborn", "blocks"])
def test_stubborn_async_call_ends_its_worker(start_plain, name):
    """Its worker ends within some seconds, sync calls are not affected, and async ones work again at once."""
    crib = start_rough(start_plain, **{name: {"timeout": "500ms"}})
    pid = int(text_of(ok(crib.invoke("pid_async"))))
    sync = in_background(lambda: crib.invoke("nap", {"seconds": 3}))
    began = now()
    problem(crib.invoke(name), 504, "attempt_timed_out")
    assert elapsed(began) < 1.5, "its caller does not wait for the worker"
    poll(lambda: not is_alive(pid), 4, "the worker is gone")
    began = now()
    assert int(text_of(ok(crib.invoke("pid_async")))) != pid
    assert elapsed(began) < 1.5
    ok(sync())


def test_call_in_a_blocked_loop_is_retried(start):
    """Other calls in the blocked loop end within their own time; those that may be retried are."""
    crib = start_rough(start, blocks={"timeout": "500ms"}, nap_async={"retry": {"attempts": 3}})
    ok(crib.invoke("nap_async"))
    other = in_background(lambda: crib.invoke("nap_async", {"seconds": 1}))
    crib.wait_row("tool=nap_async&state=running")
    problem(crib.invoke("blocks"), 504, "attempt_timed_out")
    ok(other())


# ---- crashes -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("how", ["exit", "exit 0", "SIGSEGV", "SIGKILL", "SIGTERM", "SIGABRT"])
def test_worker_death_fails_its_call(start_plain, how):
    crib = start_rough(start_plain)
    before = text_of(ok(crib.invoke("pid")))
    error = problem(crib.invoke("ends", {"how": how}), 502, "tool_unavailable")
    assert error["source"] == "tool", error
    began = now()
    after = text_of(ok(crib.invoke("pid")))
    assert elapsed(began) < 1 and after != before
    row = crib.row(error["invocation_id"])
    assert (row["state"], row["kind"], row["attempts"]) == ("failed", "tool_unavailable", 1), row


def test_worker_death_does_not_repeat_a_write(start, tmp_path):
    """It may have had its effect."""
    crib = start_rough(start, ends={"effect": "write", "retry": {"attempts": 3}})
    error = problem(crib.invoke("ends", {"how": "exit"}), 502, "tool_unavailable")
    assert crib.row(error["invocation_id"])["attempts"] == 1 and error["retryable"] is False, error


def test_worker_killed_from_outside_costs_one_call(start_plain):
    """A busy worker costs its call; an idle one costs none."""
    crib = start_rough(start_plain, workers=2)
    other = in_background(lambda: crib.invoke("nap", {"seconds": 2}))
    crib.wait_row("tool=nap&state=running")
    pid = int(text_of(ok(crib.invoke("pid"))))
    victim = in_background(lambda: crib.invoke("nap", {"seconds": 30}))
    poll(lambda: len(crib.rows("tool=nap&state=running")) == 2, 5, "both at work")
    os.kill(pid, signal.SIGKILL)
    problem(victim(5), 502, "tool_unavailable")
    ok(other())
    for _ in range(3):
        for name in ("pid", "pid_async"):
            pid = int(text_of(ok(crib.invoke(name))))
            os.kill(pid, signal.SIGKILL)
            poll(lambda: not is_alive(pid), 2, "it is dead")
            time.sleep(0.1)
            assert text_of(ok(crib.invoke(name))) != str(pid)


def test_async_worker_crash_ends_its_calls(start):
    crib = start_rough(start)
    ok(crib.invoke("pid_async"))
    others = [in_background(lambda: crib.invoke("nap_async", {"seconds": 20})) for _ in range(8)]
    poll(lambda: len(crib.rows("tool=nap_async&state=running")) == 8, 5, "all at work")
    problem(crib.invoke("ends_async"), 502, "tool_unavailable")
    for other in others:
        problem(other(5), 502, "tool_unavailable")
    assert crib.get("/tools/nap_async").json["breaker"] == "closed", "one death is one failure, however many calls it met"
    ok(crib.invoke("nap_async"))
    ok(crib.invoke("nap"))


def test_repeated_worker_deaths_open_the_circuit(start, tmp_path):
    flag = tmp_path / "flag"
    flag.touch()
    crib = start_rough(start)
    replies = [crib.invoke("dies_while", {"flag": str(flag)}) for _ in range(12)]
    assert {reply.status for reply in replies} == {502, 503}, [reply.status for reply in replies]
    first_rest = next(number for number, reply in enumerate(replies) if reply.status == 503)
    assert first_rest >= 3, "a few crashes are answered by a new worker at once"
    for reply in replies:
        problem(reply, {502, 503}, "tool_unavailable")
    assert all(int(reply.headers["retry-after"]) >= 1 for reply in replies if reply.status == 503)
    flag.unlink()
    poll(lambda: crib.invoke("dies_while", {"flag": str(flag)}).status == 200, 20, "well again")


def test_unloadable_module_is_unavailable_until_repaired(start_plain, tmp_path):
    """Its worker dies and no new one starts: 503 with Retry-After, and it recovers when the cause is removed."""
    flag = tmp_path / "flag"
    (tmp_path / "moody.py").write_text(f"import os\nif os.path.exists({str(flag)!r}):\n    raise RuntimeError('not today')\n"
                                       "def ask() -> int:\n    'Asks.'\n    return os.getpid()\n")
    crib = start_plain({"python_modules": {"moody": module(tmp_path / "moody.py", functions=["ask"], tools={"ask": {"effect": "read"}})}}).ready()
    pid = int(text_of(ok(crib.invoke("ask"))))
    flag.touch()
    os.kill(pid, signal.SIGKILL)

    def rests():
        reply = crib.invoke("ask")
        return reply if reply.status == 503 else problem(reply, 502, "tool_unavailable") and None

    output = poll(rests, 15, "it rests")
    problem(output, 503, "tool_unavailable")
    assert int(output.headers["retry-after"]) >= 1
    crib.wait_for_log("not today")
    crib.wait_for_log("moody.py:3")
    assert crib.get("/livez").status == 200
    flag.unlink()
    poll(lambda: crib.invoke("ask").status == 200, 40, "well again")


def test_hundred_kills_leave_nothing(start):
    crib = start_rough(start, workers=2, busy={"timeout": "50ms"})
    for name in ("nap", "pid_async", "busy"):
        crib.invoke(name)
    parallel(2, lambda _: ok(crib.invoke("nap", {"seconds": 0.3})))

    def descriptors():
        return len(os.listdir(f"/proc/{crib.pid}/fd"))

    def threads():
        return len(os.listdir(f"/proc/{crib.pid}/task"))

    time.sleep(0.5)
    before, workers_before, threads_before = descriptors(), len(workers(crib)), threads()

    def one(_):
        return {crib.invoke("busy").status for _ in range(50)}

    statuses = set.union(*parallel(2, one))
    assert statuses <= {504, 503}, statuses  # a circuit may have opened
    poll(lambda: crib.invoke("nap").status == 200, 10, "well")
    poll(lambda: crib.invoke("pid_async").status == 200, 10, "well")
    poll(lambda: len(workers(crib)) <= workers_before and descriptors() <= before + 3, 10,
         f"as before: {workers_before} workers, {before} descriptors; now {len(workers(crib))}, {descriptors()}")
    assert not [pid for pid in children(crib.pid) if is_zombie(pid)]
    assert threads() <= threads_before + 2


def test_hundred_crashes_leave_nothing(start):
    crib = start_rough(start, workers=2, ends={"repeatable": True})
    parallel(2, lambda _: ok(crib.invoke("nap", {"seconds": 0.3})))
    time.sleep(0.3)
    before = len(os.listdir(f"/proc/{crib.pid}/fd"))
    for number in range(100):
        # Each has answered a call before it is killed: none of them died at its start.
        reply = poll(lambda: (lambda r: r if r.status == 200 else None)(crib.invoke("pid")), 3, f"a worker after {number} kills")
        os.kill(int(text_of(reply)), signal.SIGKILL)
    poll(lambda: crib.invoke("nap").status == 200, 3, "well")
    poll(lambda: len(os.listdir(f"/proc/{crib.pid}/fd")) <= before + 3 and not [p for p in children(crib.pid) if is_zombie(p)], 10,
         f"descriptors as before ({before})")
    assert len(workers(crib)) <= 4


# ---- the end of the service --------------------------------------------------------------------------------------------

def test_kill_nine_leaves_no_worker(start, mark):
    crib = start_rough(start, workers=2)
    for name in ("pid", "pid_async"):
        ok(crib.invoke(name))
    calls = [in_background(lambda: crib.invoke("busy")), in_background(lambda: crib.invoke("nap", {"seconds": 50})), in_background(lambda: crib.invoke("blocks"))]
    poll(lambda: len(crib.rows("state=running")) == 3, 5, "all at work")
    there = workers(crib)
    assert len(there) >= 3
    crib.kill9()
    for call in calls:
        with pytest.raises(Exception):
            call()
    poll(lambda: not any(is_alive(pid) for pid in there), 3, f"no worker of {there} left")


@pytest.mark.parametrize("name", ["nap", "nap_async"])
def test_sigterm_lets_a_call_finish(start, name):
    crib = start_rough(start)
    ok(crib.invoke(name))
    call = in_background(lambda: crib.invoke(name, {"seconds": 2}))
    crib.wait_row(f"tool={name}&state=running")
    there = workers(crib)
    crib.stop()
    ok(call())
    assert not any(is_alive(pid) for pid in there)


def test_leftover_thread_does_not_delay_shutdown(start):
    crib = start_rough(start)
    ok(crib.invoke("threads"))
    there, began = workers(crib), now()
    crib.stop()
    assert elapsed(began) < 10
    poll(lambda: not any(is_alive(pid) for pid in there), 3, "no worker left")


@pytest.mark.parametrize("file, functions", [("rough.py", ["pid", "pid_async"]), ("plain.py", ["echo"])])
def test_idle_modules_stop_at_once(start, file, functions):
    """All side by side: a stop is to be over within 28 s, however many there are. With async functions and without."""
    crib = start({"python_modules": {f"m{n}": module(FILES / file, prefix=f"m{n}_", functions=functions) for n in range(6)}}).ready()
    began = now()
    crib.stop()
    assert elapsed(began) < 2


def test_shutdown_during_the_start(start, tmp_path):
    """A slow module load does not delay the shutdown."""
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(30)\ndef f() -> int:\n    'F.'\n    return 1\n")
    crib = start({"python_modules": {"slow": module(tmp_path / "slow.py", functions=["f"])}})
    poll(lambda: workers(crib), 5, "it loads")
    assert crib.get("/livez").status == 200 and crib.get("/readyz").status == 503
    there, began = workers(crib), now()
    crib.stop()
    assert elapsed(began) < 8
    poll(lambda: not any(is_alive(pid) for pid in there), 3, "no worker left")


# ---- cancelling --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("by", ["delete", "disconnect"])
def test_cancel_ends_children_of_a_sync_call(start, mark, by):
    crib = start_rough(start, workers=2)
    body = {"mark": mark}
    if by == "delete":
        answer = in_background(lambda: crib.invoke("family", body))
    else:
        sock = socket.create_connection(("127.0.0.1", crib.port))
        text = '{"arguments": {"mark": "%s"}}' % mark
        sock.sendall((f"POST /tools/family/invoke HTTP/1.1\r\nhost: 127.0.0.1:{crib.port}\r\ncontent-type: application/json\r\n"
                      f"content-length: {len(text)}\r\n\r\n{text}").encode())
    poll(lambda: len(processes(mark)) >= 3, 5, "the family")
    invocation = crib.wait_row("tool=family&state=running")["invocation_id"]
    if by == "delete":
        reply = crib.delete(f"/invocations/{invocation}")
        assert reply.status == 200 and reply.json["state"] == "cancelled", reply
        problem(answer(), 499, "cancelled")
    else:
        sock.close()
    poll(lambda: not processes(mark), 1.5, "the whole family dead")
    row = poll(lambda: (lambda r: r if r["state"] in ENDED else None)(crib.row(invocation)), 5, "its end")
    assert (row["state"], row["kind"]) == ("cancelled", "cancelled"), row
    ok(crib.invoke("nap"))


@pytest.mark.parametrize("by", ["delete", "disconnect"])
def test_cancel_reaches_an_async_call(start, tmp_path, by):
    crib = start_rough(start)
    file = tmp_path / "tidied"
    ok(crib.invoke("pid_async"))
    other = in_background(lambda: crib.invoke("nap_async", {"seconds": 2}))
    if by == "delete":
        answer = in_background(lambda: crib.invoke("tidy", {"path": str(file)}))
    else:
        sock = socket.create_connection(("127.0.0.1", crib.port))
        text = '{"arguments": {"path": "%s"}}' % file
        sock.sendall((f"POST /tools/tidy/invoke HTTP/1.1\r\nhost: 127.0.0.1:{crib.port}\r\ncontent-type: application/json\r\n"
                      f"content-length: {len(text)}\r\n\r\n{text}").encode())
    invocation = crib.wait_row("tool=tidy&state=running")["invocation_id"]
    time.sleep(0.3)
    if by == "delete":
        assert crib.delete(f"/invocations/{invocation}").status == 200
        problem(answer(), 499, "cancelled")
    else:
        sock.close()
    poll(file.exists, 2, "its `finally` ran")
    ok(other())


def test_write_finishes_after_disconnect(start, tmp_path):
    crib = start_rough(start, nap={"effect": "write"})
    ok(crib.invoke("nap"))
    sock = connect(crib)
    text = '{"arguments": {"seconds": 1}}'
    sock.sendall((f"POST /tools/nap/invoke HTTP/1.1\r\nhost: 127.0.0.1:{crib.port}\r\ncontent-type: application/json\r\n"
                  f"content-length: {len(text)}\r\n\r\n{text}").encode())
    invocation = crib.wait_row("tool=nap&state=running")["invocation_id"]
    time.sleep(0.3)  # it is recorded a moment before it runs
    sock.close()
    row = poll(lambda: (lambda r: r if r["state"] in ENDED else None)(crib.row(invocation)), 5, "its end")
    assert row["state"] == "succeeded", row


@pytest.mark.parametrize("by", ["delete", "disconnect"])
def test_queued_write_is_cancelled_at_no_cost(start, mark, by):
    crib = start_rough(start, family={"effect": "write", "limits": [{"calls": 9, "per": "lifetime", "scope": "tool"}]})
    slow = in_background(lambda: crib.invoke("nap", {"seconds": 2}))
    crib.wait_row("tool=nap&state=running")
    text = '{"arguments": {"mark": "%s", "seconds": 0}}' % mark
    sock = connect(crib)
    sock.sendall((f"POST /tools/family/invoke HTTP/1.1\r\nhost: 127.0.0.1:{crib.port}\r\ncontent-type: application/json\r\n"
                  f"content-length: {len(text)}\r\n\r\n{text}").encode())
    invocation = crib.wait_row("tool=family&state=running")["invocation_id"]
    time.sleep(0.3)  # it is on record a moment before it waits
    if by == "delete":
        reply = crib.delete(f"/invocations/{invocation}")
        assert reply.status == 200 and reply.json["state"] == "cancelled", reply
    sock.close()
    row = poll(lambda: (lambda r: r if r["state"] in ENDED else None)(crib.row(invocation)), 1, "its end, before a worker is free")
    assert (row["state"], row["attempts"]) == ("cancelled", 0), row
    ok(slow())
    assert crib.get("/tools/family").json["usage"][0]["used"] == 0
    assert crib.get("/sources").json["sources"][0]["replaced"] == 0, "no worker was ended for it"


def test_mixed_calls_and_kills_end_correctly(start):
    """Sync, async, timeouts and crashes all at once, and every call has exactly one fitting end."""
    crib = start_rough(start, workers=2, busy={"timeout": "100ms"})
    ok(crib.invoke("nap"))
    rows = len(crib.all_rows())

    def one(number):
        session, statuses = crib.session(), []
        for turn in range(10):
            kind = (number + turn) % 10
            if kind == 0:
                statuses.append(("busy", session.invoke("busy").status))
            elif kind == 1:
                statuses.append(("ends", session.invoke("ends", {"how": "exit"}).status))
            elif kind < 6:
                statuses.append(("nap", session.invoke("nap", {"seconds": 0.005}).status))
            else:
                statuses.append(("nap_async", session.invoke("nap_async", {"seconds": 0.005}).status))
        session.close()
        return statuses

    ends = [end for some in parallel(12, one) for end in some]
    # Three workers in a row that die at their first call count as a broken module: then other calls get 503, too.
    fitting = {"busy": {504, 503}, "ends": {502, 503}, "nap": {200, 503}, "nap_async": {200}}
    wrong = [end for end in ends if end[1] not in fitting[end[0]]]
    assert not wrong, wrong
    assert ("nap", 200) in ends
    poll(lambda: len(crib.all_rows()) == rows + 120, 5, "a row each")
    assert all(row["state"] in ENDED for row in crib.all_rows())


# ---- one object for all ------------------------------------------------------------------------------------------------

ACCOUNT = ["add", "add_async", "nap", "watches", "nap_async", "fails"]


def start_account(start, **more):
    policies = more.pop("policies", {})
    tools = {name: dict(READ, **policies.get(name, {})) for name in ACCOUNT}
    entry = module(FILES / "shared.py", object="Account", init={"start": 100}, tools=tools, **more)
    return start({"defaults": WIDE, "python_modules": {"account": entry}}).ready()


def warnings(crib):
    return crib.get("/sources").json["sources"][0]["warnings"]


def test_shared_object_is_one_for_both_kinds(start_plain):
    crib = start_account(start_plain, share=True)
    assert data_of(crib.invoke("add", {"amount": 1}))["sum"] == 101
    on_loop, on_thread = data_of(crib.invoke("add_async", {"amount": 1})), data_of(crib.invoke("add", {"amount": 1}))
    assert (on_loop["sum"], on_thread["sum"], on_thread["thread"]) == (102, 103, True)
    assert on_loop["pid"] == on_thread["pid"] and workers(crib) == [on_loop["pid"]]
    parallel(20, lambda _: ok(crib.invoke("add", {"amount": 1})))
    assert data_of(crib.invoke("add_async", {"amount": 0}))["sum"] == 123, "blocking calls run one at a time"
    failed = crib.invoke("fails").json
    assert failed["is_error"] and "no such account" in failed["content"][0]["text"]
    assert warnings(crib) == []


def test_object_in_two_processes_is_warned_of(start):
    crib = start_account(start)
    ok(crib.invoke("add", {"amount": 1}))
    assert data_of(crib.invoke("add_async", {"amount": 1}))["sum"] == 101, "an instance of its own"
    (warning,) = warnings(crib)
    assert "`Account`" in warning and "share: true" in warning


def test_shared_loop_runs_beside_a_blocking_call(start):
    crib = start_account(start, share=True)
    slow = in_background(lambda: crib.invoke("nap", {"seconds": 2}))
    crib.wait_row("tool=nap&state=running")
    began = now()
    ok(crib.invoke("add_async", {"amount": 1}))
    assert elapsed(began) < 1
    ok(slow())


def test_shared_cancelled_call_keeps_the_object(start_plain):
    crib = start_account(start_plain, share=True, policies={"watches": {"timeout": "500ms"}})
    pid = data_of(crib.invoke("add_async", {"amount": 5}))["pid"]
    problem(crib.invoke("watches"), 504, "attempt_timed_out")
    time.sleep(1.5)
    assert data_of(crib.invoke("add", {"amount": 1}))["sum"] == 106 and workers(crib) == [pid]


def test_shared_call_that_hangs_ends_the_process(start_plain):
    crib = start_account(start_plain, share=True, policies={"nap": {"timeout": "500ms"}})
    pid = data_of(crib.invoke("add_async", {"amount": 5}))["pid"]
    other = in_background(lambda: crib.invoke("nap_async", {"seconds": 3}))
    crib.wait_row("tool=nap_async&state=running")
    began = now()
    problem(crib.invoke("nap", {"seconds": 60}), 504, "attempt_timed_out")
    assert elapsed(began) < 1.5
    poll(lambda: not is_alive(pid), 4, "the process is gone")
    assert data_of(crib.invoke("add", {"amount": 1}))["sum"] == 101, "a new object"
    ok(other())


def test_blocking_call_without_thread_has_not_run(start):
    crib = start_account(start, share=True, policies={"add": {"timeout": "1s"}})
    slow = in_background(lambda: crib.invoke("nap", {"seconds": 3}))
    crib.wait_row("tool=nap&state=running")
    problem(crib.invoke("add", {"amount": 1}), 503, "tool_unavailable")
    ok(slow())
    assert data_of(crib.invoke("add_async", {"amount": 0}))["sum"] == 100
