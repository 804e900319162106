"""Cached results that services share through a real Redis, which may be slow or dead."""

import subprocess
import threading
import time

import pytest

from harness import BIN, clean_env, in_background, poll
from redis_server import RedisServer
from test_cache import cached_tool, invoke_cached


@pytest.fixture
def redis(tmp_path):
    server = RedisServer(tmp_path)
    yield server
    server.kill()


def manifest(upstream, server, **tools):
    return {"cache": {"redis": f"redis://127.0.0.1:{server.port}"}, "tools": {"x": cached_tool(upstream), **tools}}


def counted(crib, operation, outcome):
    name = f'toolcrib_cache_redis_requests_total{{operation="{operation}",outcome="{outcome}"}} '
    lines = [line for line in crib.get("/metrics").body.decode().splitlines() if line.startswith(name)]
    return int(lines[0].split()[-1]) if lines else 0


def is_up(crib):
    return any(line.startswith("toolcrib_cache_redis_up{") and line.endswith(" 1") for line in crib.get("/metrics").body.decode().splitlines())


def shared(one, other):
    """Arguments whose result both have from one run. A busy machine may take longer than a call waits for Redis."""
    for number in range(200):
        first = invoke_cached(one, {"shared": number})
        if invoke_cached(other, {"shared": number}) == ("hit", first[1]):
            return {"shared": number}
        time.sleep(0.1)
    raise AssertionError("no result is shared")


def test_services_share_results_and_purges(start, upstream, redis):
    one, other = (start(manifest(upstream, redis, y=cached_tool(upstream))) for _ in range(2))
    arguments = shared(one, other)
    shared_y = lambda: [invoke_cached(crib, {"same": 1}, "y") for crib in (one, other)]  # noqa: E731
    poll(lambda: shared_y()[1][0] == "hit", what="another tool's result")
    before = invoke_cached(other, {"same": 1}, "y")
    done = subprocess.run([BIN, "purge", "x", "--server", one.base], text=True, capture_output=True, env=clean_env(), timeout=30)
    assert done.returncode == 0, done.stderr
    cache, run = invoke_cached(one, arguments)
    assert cache == "miss"
    poll(lambda: invoke_cached(other, arguments)[1] >= run, what="the purge at the other service")
    assert invoke_cached(other, {"same": 1}, "y") == before, "another tool keeps its results"


def test_killed_redis_fails_no_call(start, upstream, redis):
    cribs = [start(manifest(upstream, redis)) for _ in range(2)]
    end, failed, calls = threading.Event(), [], []

    def load(crib, worker):
        number = 0
        while not end.is_set():
            number += 1
            reply = crib.invoke("x", {"n": f"{worker}-{number % 50}"})
            calls.append(1)
            if reply.status != 200:
                failed.append(reply)

    waits = [in_background(lambda crib=crib, worker=worker: load(crib, worker)) for worker, crib in enumerate(cribs * 2)]
    time.sleep(1)
    redis.kill()
    poll(lambda: all(counted(crib, "read", "failed") + counted(crib, "read", "skipped") + counted(crib, "store", "skipped") for crib in cribs), what="the counters")
    poll(lambda: all(counted(crib, "read", "skipped") > 20 for crib in cribs), 30, "calls that do not ask the dead server")
    assert cribs[0].delete("/tools/x/cache").json["pending"] is True
    for crib in cribs:
        assert counted(crib, "read", "failed") < counted(crib, "read", "skipped"), "few calls wait for a dead server"
    redis.start()
    poll(lambda: all(map(is_up, cribs)), 30, "the connections")
    end.set()
    for wait in waits:
        wait()
    assert not failed and len(calls) > 50
    shared(*cribs)
    assert counted(cribs[0], "purge", "done") == 1
    for crib in cribs:
        crib.wait_for_log("Redis cannot be used: calls go on without it")
        crib.wait_for_log("cached results are shared through Redis")


def test_wrong_password_is_reported_at_the_start(start, upstream, tmp_path):
    server = RedisServer(tmp_path, "--requirepass", "the-right-one")
    try:
        for password, words in (("not-the-right-one", "refuses the user or the password of cache.redis"), ("the-right-one", "are shared through Redis")):
            crib = start({**manifest(upstream, server), "cache": {"redis": f"redis://:${{env:PASSWORD}}@127.0.0.1:{server.port}"}}, env={"PASSWORD": password})
            crib.wait_for_log(words)
            assert invoke_cached(crib, {"n": password})[0] == "miss"
            assert password not in crib.stderr + crib.get("/metrics").body.decode()
    finally:
        server.kill()


def test_check_reports_the_form(tmp_path):
    file = tmp_path / "toolcrib.yaml"
    file.write_text("cache: {redis: 'http://:hidden@cache.test'}\ntools: {calculator: {kind: native}}\n")
    done = subprocess.run([BIN, "check", str(file)], text=True, capture_output=True, env=clean_env(), timeout=30)
    output = done.stdout + done.stderr
    assert done.returncode != 0 and "cache.redis: the URL must begin with redis://" in output and "hidden" not in output
