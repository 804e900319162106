"""Kind `sql`: bound parameters, faithful types, enforced reads, caps, timeouts, and databases that go down and recover."""

import json
import os
import sqlite3
import threading
import time

import pytest

import postgres
from harness import cli, in_background, now, ok, poll, problem, error_result, elapsed, text_of
from recipes import params

SHOP = """create table customers (id integer primary key, name text unique, revenue numeric, year integer);
insert into customers values (1, 'Ann', 12.5, 2024), (2, 'Bo', 99, 2024), (3, 'Cy', null, 2025);"""
ENDLESS = ("with recursive n(x) as (select 1 union all select x + 1 from n where x < 100000000000)"
           " select count(*) as n from n")
NASTY = ["x' or 1=1 --", "'; drop table customers; --", ":year", "$1", "?1", "\\'; delete from customers; --", "%s", "${env:HOME}",
         "{{ name }}", "1); drop table customers; --", "ÆØÅ 日本", "/* */", "\"", "`", "$$ x $$"]


def sql(database, statement, **more):
    tool = {"kind": "sql", "description": "A statement for the tests of this suite.", "database": database,
            "statement": statement}
    tool.update(more)
    return tool


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    if postgres.programs() is None:
        pytest.skip("no PostgreSQL is installed here")
    server = postgres.Postgres(tmp_path_factory.mktemp("postgres") / "own")
    yield server
    server.stop()


class SqliteShop:
    """The customers in a file beside the manifest."""

    url, sleep = "sqlite://shop.db", ENDLESS

    def __init__(self, folder):
        self.file = folder / "shop.db"
        self.run(SHOP)

    def run(self, script):
        connection = sqlite3.connect(self.file, timeout=20)
        try:
            connection.executescript(script)
        finally:
            connection.close()

    def count(self):
        connection = sqlite3.connect(self.file, timeout=20)
        try:
            return connection.execute("select count(*) from customers").fetchone()[0]
        finally:
            connection.close()


class PostgresShop:
    """The customers in a database of the server."""

    sleep = "select pg_sleep(600)"

    def __init__(self, server, name):
        self.server, self.name = server, name
        server.run(f"create database {name}")
        self.url = server.url(name)
        self.run(SHOP)

    def run(self, script):
        return self.server.run(script, self.name)

    def count(self):
        return int(self.run("select count(*) from customers"))


@pytest.fixture(params=["sqlite", "postgres"])
def shop(request, tmp_path):
    (tmp_path / "crib").mkdir()
    if request.param == "sqlite":
        yield SqliteShop(tmp_path / "crib")
    else:
        name = "t" + str(time.monotonic_ns())
        yield PostgresShop(request.getfixturevalue("server"), name)


@pytest.fixture
def serve(start, tmp_path):
    return lambda tools, **more: start({"tools": tools}, folder=tmp_path / "crib", **more)


def test_documented_manifest_works(serve, shop):
    """One tool as docs/tools/sql.md shows it: rows, their JSON as text, the row in the ledger, the definition."""
    crib = serve({"top_customers": sql(
        shop.url, "select name, year from customers where year = :year order by revenue desc limit 10",
        parameters={"year": {"type": "integer", "minimum": 2000, "description": "Year of the revenue"}}, effect="read")})
    answer = ok(crib.invoke("top_customers", {"year": 2024}))
    assert answer["structured_content"] == [{"name": "Bo", "year": 2024}, {"name": "Ann", "year": 2024}]
    assert json.loads(text_of(answer)) == answer["structured_content"]
    problem(crib.invoke("top_customers", {"year": 1999}), 422, "invalid_arguments")
    tool = crib.get("/tools/top_customers").json
    assert tool["kind"] == "sql" and tool["effect"] == "read" and tool["available"] is True
    assert "customers where" not in json.dumps(tool), "a caller sees what the tool does, not how"
    assert ok(crib.invoke("top_customers", {"year": 1 + 2023}))["meta"]["cache"] == "off"


def test_read_is_the_default_effect(serve, shop):
    """A tool that does not declare its effect reads, and may be cached."""
    crib = serve({"count": sql(shop.url, "select count(*) as n from customers", cache={"ttl": "1h"})})
    assert crib.get("/tools/count").json["effect"] == "read"
    assert ok(crib.invoke("count"))["structured_content"] == [{"n": 3}]
    assert ok(crib.invoke("count"))["meta"]["cache"] == "hit"


def test_arguments_are_never_sql(serve, shop):
    """Whatever a text holds, it is that text."""
    crib = serve({"echo": sql(shop.url, "select :name as name, count(*) as n from customers where name = :name",
                              parameters=params(name="string")) if "sqlite" in shop.url else
                  sql(shop.url, "select :name::text as name, count(*) as n from customers where name = :name",
                      parameters=params(name="string")),
                  "all": sql(shop.url, "select name from customers order by id")})
    for text in NASTY:
        assert ok(crib.invoke("echo", {"name": text}))["structured_content"] == [{"name": text, "n": 0}], text
    assert [row["name"] for row in ok(crib.invoke("all"))["structured_content"]] == ["Ann", "Bo", "Cy"]


def test_optional_arguments_are_null(serve, shop):
    find = "select id from customers where (:name is null or name = :name) and (:year is null or year = :year) order by id"
    optional = {name: {"type": kind, "required": False, "description": "A filter"} for name, kind in
                (("name", "string"), ("year", "integer"))}
    crib = serve({"find": sql(shop.url, find, parameters=optional)})
    ids = lambda **arguments: [row["id"] for row in ok(crib.invoke("find", arguments))["structured_content"]]
    assert (ids(), ids(year=2024), ids(name="Cy"), ids(name="Cy", year=2024)) == ([1, 2, 3], [1, 2], [3], [])


def test_write_must_be_declared(serve, shop, tmp_path):
    """Reported at the start, with the correction; nothing is served."""
    manifest = tmp_path / "crib" / "wrong.yaml"
    manifest.write_text(json.dumps({"tools": {"clear": sql(shop.url, "delete from customers", effect="read")}}))
    for command in ("check", "serve"):
        more = ["--listen", "127.0.0.1:0"] if command == "serve" else []
        done = cli(command, "--manifest", manifest, *more, cwd=tmp_path / "crib")
        assert done.returncode == 64, done
        assert "tools.clear.statement: the statement changes the database" in done.stdout + done.stderr
        assert "declare effect: write" in done.stdout + done.stderr
    assert shop.count() == 3


def test_writes_are_atomic_and_return_rows(serve, shop):
    """Counted, returned, and atomic."""
    insert = "insert into customers (id, name) values (:id, :name) returning id, name"
    crib = serve({
        "add": sql(shop.url, insert, parameters=params(id="integer", name="string"), effect="write"),
        "bonus": sql(shop.url, "update customers set revenue = revenue + 1 where year = :year", effect="write",
                     parameters=params(year="integer"))})
    assert ok(crib.invoke("bonus", {"year": 2024}))["structured_content"] == {"rows_affected": 2}
    assert ok(crib.invoke("add", {"id": 4, "name": "Di"}))["structured_content"] == [{"id": 4, "name": "Di"}]
    refused = error_result(crib.invoke("add", {"id": 5, "name": "Di"}))
    assert "the database reports an error: " in text_of(refused) and shop.count() == 4
    row = crib.row(refused["invocation_id"])
    assert row["state"] == "failed" and row["kind"] is None, row


def test_idempotency_key_writes_once(serve, shop):
    crib = serve({"add": sql(shop.url, "insert into customers (id) select max(id) + 1 from customers returning id",
                             effect="write")})
    replies = [crib.invoke("add", headers={"idempotency-key": "k-1"}) for _ in range(3)]
    assert {ok(reply)["structured_content"][0]["id"] for reply in replies} == {4} and shop.count() == 4


def test_truncated_rows_cause_a_warning(serve, shop):
    numbers = ("with recursive n(x) as (select 1 union all select x + 1 from n where x < :n) select x from n"
               if "sqlite" in shop.url else "select generate_series(1, :n) as x")
    crib = serve({"rows": sql(shop.url, numbers, parameters=params(n="integer"), max_rows=5),
                  "bytes": sql(shop.url, numbers, parameters=params(n="integer"), max_output="1KiB")})
    exact = ok(crib.invoke("rows", {"n": 5}))
    assert len(exact["structured_content"]) == 5 and exact["meta"]["warnings"] == []
    began = now()
    cut = ok(crib.invoke("rows", {"n": 1_000_000_000}))
    assert [row["x"] for row in cut["structured_content"]] == [1, 2, 3, 4, 5] and elapsed(began) < 10
    assert cut["meta"]["warnings"][0].startswith("there are more than 5 rows (max_rows): the first 5 are shown. Ask for fewer")
    cut = ok(crib.invoke("bytes", {"n": 1_000_000_000}))
    rows, note = (block["text"] for block in cut["content"])
    shown = len(json.loads(rows))
    assert len(rows) <= 1024 and "max_output" in cut["meta"]["warnings"][0]
    assert note.startswith(f"[Only the first {shown} items are shown; there are more."), note
    assert (cut["meta"]["overflow"]["shown"], cut["meta"]["overflow"]["total"]) == (shown, None)
    assert ok(crib.invoke("rows", {"n": 1}))["structured_content"] == [{"x": 1}]


def test_timeout_stops_the_statement(serve, shop, tmp_path):
    """A timeout and a cancellation end the statement in the database, not only the call."""
    crib = serve({"sleep": sql(shop.url, shop.sleep, timeout="500ms"), "long": sql(shop.url, shop.sleep, timeout="10m")})
    began = now()
    problem(crib.invoke("sleep"), 504, "attempt_timed_out")
    assert elapsed(began) < 5
    call = in_background(lambda: crib.invoke("long"))
    row = crib.wait_row("tool=long", lambda row: row["state"] == "running")
    assert crib.delete(f"/invocations/{row['invocation_id']}").status == 200
    problem(call(20), 499, "cancelled")
    if "sqlite" in shop.url:
        def busy():
            def ticks():
                return sum(map(int, open(f"/proc/{crib.pid}/stat").read().rsplit(") ", 1)[1].split()[11:13]))
            before = ticks()
            time.sleep(0.5)
            return ticks() - before
        poll(lambda: busy() < 15, 10, "no thread goes on with it")
    else:
        running = "select count(*) from pg_stat_activity where query like 'select pg_sleep%' and state = 'active'"
        poll(lambda: shop.run(running) == "0", 10, "the server has stopped")


def test_check_validates_statements_against_the_manifest(tmp_path):
    """Every error has its position and the correction; a password is never repeated."""
    folder = tmp_path
    SqliteShop(folder)
    for tool, want in [
        (sql("sqlite://shop.db", "select :yaer as y", parameters=params(year="integer")), "did you mean `:year`?"),
        (sql("sqlite://shop.db", "select 1 as a; select 2 as b"), "line 1, column 16 of the statement: a second statement"),
        (sql("sqlite://shop.db", "selec 1"), "syntax error"),
        (sql("sqlite://shop.db", "select id, id from customers"), "two columns have the name `id`"),
        (sql("sqlite://shop.db", "select ? as x"), "a parameter is written :name"),
        (sql("sqlite://shop.db", "pragma query_only = 0"), "command to the connection"),
        (sql("sqlite://shop.db", "\ufeffpragma query_only = 0"), "command to the connection"),
        (sql("sqlite://shop.db", "explain pragma query_only = 0"), "command to the connection"),
        (sql("mysql://u:hunter2-secret@db/x", "select 1"), "write sqlite://FILE or postgres://"),
        (sql("postgres://u:hunter2-secret@db/x?sslmod=require", "select 1"), "did you mean sslmode?"),
        (sql("sqlite://shop.db", "select 1 as x", max_rows=0), "max_rows: from 1 to 100000"),
        (sql("sqlite://shop.db", "select 1 as x", maxrows=5), "did you mean max_rows?"),
    ]:
        (folder / "m.yaml").write_text(json.dumps({"tools": {"t": tool}}))
        done = cli("check", "--manifest", folder / "m.yaml", cwd=folder)
        assert done.returncode == 64 and want in done.stdout + done.stderr, (want, done)
        assert "hunter2" not in done.stdout + done.stderr
    (folder / "m.yaml").write_text(json.dumps({"tools": {
        "a": sql("sqlite://none.db", "select 1 as x"),
        "b": sql("sqlite://shop.db", "select 1 as x", parameters=params(year="integer")),
        "c": sql("postgres://u:hunter2-secret@127.0.0.1:1/x", "select 1 as x")}}))
    done = cli("check", "--manifest", folder / "m.yaml", cwd=folder)
    text = done.stdout + done.stderr
    assert done.returncode == 0 and not (folder / "none.db").exists(), text
    for want in ("none.db, and the service does not create it", "tools.b.parameters.year: the parameter is not used: write `:year` in `statement`", "127.0.0.1:1/x: no connection", "literal-secret"):
        assert want in text, text
    assert "hunter2" not in text


def test_missing_file_is_reported_and_found_later(serve, tmp_path):
    (tmp_path / "crib").mkdir()
    crib = serve({"read": sql("sqlite://shop.db", "select count(*) as n from customers"), "other": sql("sqlite://shop.db", "select 1 as x")})
    error = problem(crib.invoke("read"), 502, "upstream_failed")
    assert "there is no file" in error["detail"] and not (tmp_path / "crib" / "shop.db").exists()
    SqliteShop(tmp_path / "crib")
    assert ok(crib.invoke("read"))["structured_content"] == [{"n": 3}]


def test_locked_file_is_waited_for(serve, tmp_path):
    (tmp_path / "crib").mkdir()
    shop = SqliteShop(tmp_path / "crib")
    crib = serve({"bonus": sql(shop.url, "update customers set revenue = 1", effect="write", timeout="2s")})
    other = sqlite3.connect(shop.file, isolation_level=None)
    other.execute("begin exclusive")
    error = problem(crib.invoke("bonus"), {502, 504})
    assert error["kind"] in ("upstream_failed", "attempt_timed_out"), error
    call = in_background(lambda: crib.invoke("bonus"))
    time.sleep(0.3)
    other.execute("commit")
    other.close()
    assert ok(call(10))["structured_content"] == {"rows_affected": 3}


def test_sqlite_types_are_converted(serve, tmp_path):
    """By value, not by column."""
    (tmp_path / "crib").mkdir()
    shop = SqliteShop(tmp_path / "crib")
    shop.run("create table v (v integer); insert into v values (9223372036854775807), (0.1), ('text'), (x'00ff'), (null), (9e999)")
    crib = serve({"all": sql(shop.url, "select v from v order by rowid")})
    reply = crib.invoke("all")
    assert [row["v"] for row in ok(reply)["structured_content"]] == [2**63 - 1, 0.1, "text", "AP8=", None, "Infinity"]
    assert b"9223372036854775807" in reply.body


def test_postgres_types_are_converted(serve, server, tmp_path):
    (tmp_path / "crib").mkdir()
    expressions = {
        "9223372036854775807::int8": 2**63 - 1, "12.50::numeric(8,2)": "12.50", "0.1::float4": 0.1, "'NaN'::float8": "NaN",
        "true": True, "'2024-02-29'::date": "2024-02-29", "'2024-02-29 12:00+02'::timestamptz": "2024-02-29T10:00:00Z",
        "'2024-02-29 12:00'::timestamp": "2024-02-29T12:00:00", "'1 day 2 hours'::interval": "P1DT2H", "'\\x00ff'::bytea": "AP8=",
        "'{\"a\": [1, null]}'::jsonb": {"a": [1, None]}, "array[[1, null], [3, 4]]": [[1, None], [3, 4]],
        "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "'10.1.0.0/16'::cidr": "10.1.0.0/16",
        "'[1,5)'::int4range": "[1,5)", "row(1, 'x')": "(1,x)", "'(1,2)'::point": "(1,2)", "null::int": None,
    }
    columns = ", ".join(f"{expression} as c{at}" for at, expression in enumerate(expressions))
    crib = serve({"all": sql(server.url(), f"select {columns}")})
    row = ok(crib.invoke("all"))["structured_content"][0]
    for at, (expression, want) in enumerate(expressions.items()):
        assert row[f"c{at}"] == want, expression


def test_invalid_postgres_arguments_are_violations(serve, server, tmp_path):
    """Reported with their pointer, as schema violations are."""
    (tmp_path / "crib").mkdir()
    crib = serve({"day": sql(server.url(), "select :day::date + :days::int as day",
                             parameters=params(day="string", days="integer"))})
    assert ok(crib.invoke("day", {"day": "2024-02-28", "days": 1}))["structured_content"] == [{"day": "2024-02-29"}]
    error = problem(crib.invoke("day", {"day": "2024-02-30", "days": 1}), 422, "invalid_arguments")
    assert error["violations"][0]["pointer"] == "/day" and "out of range" in error["violations"][0]["message"]
    error = problem(crib.invoke("day", {"day": "2024-02-28", "days": 2**40}), 422, "invalid_arguments")
    assert error["violations"][0]["pointer"] == "/days"


def test_postgres_outage_ends_without_a_restart(start, tmp_path):
    """An unavailable database does not stop the start, and works without a restart when it is back; meanwhile the circuit opens."""
    if postgres.programs() is None:
        pytest.skip("no PostgreSQL is installed here")
    server = postgres.Postgres(tmp_path / "postgres")
    try:
        server.stop()
        crib = start({"tools": {"one": sql(server.url(), "select 1 as x"), "time": {"kind": "native", "use": "current_time"}}})
        ok(crib.invoke("time"))
        error = problem(crib.invoke("one"), 502, "upstream_failed")
        assert "no connection" in error["detail"] and error["retryable"] is True
        server.start()
        assert ok(crib.invoke("one"))["structured_content"] == [{"x": 1}]
        server.stop()
        for _ in range(5):
            problem(crib.invoke("one"), 502, "upstream_failed")
        problem(crib.invoke("one"), 503, "tool_unavailable")
        server.start()
        poll(lambda: crib.invoke("one").status == 200, 15, "the breaker lets it through again")
    finally:
        if server.process.poll() is None:
            server.stop()


def test_password_is_never_exposed(serve, server, tmp_path):
    (tmp_path / "crib").mkdir()
    url = server.url("nowhere", "postgres:${env:DB_PASSWORD}")
    crib = serve({"one": sql(url, "select 1 as x")}, env={"DB_PASSWORD": "hunter2-the-password"})
    error = problem(crib.invoke("one"), 502, "upstream_failed")
    assert "database \"nowhere\" does not exist" in error["detail"]
    shown = crib.get("/tools/one").body + crib.get("/tools").body + crib.get("/invocations").body + json.dumps(error).encode()
    assert b"hunter2" not in shown and "hunter2" not in crib.stderr + crib.stdout


def test_parallel_calls_share_connections(serve, shop):
    """Connections are shared and bounded; no call is lost."""
    crib = serve({"count": sql(shop.url, "select count(*) as n from customers", concurrency={"max": 64, "queue": 200})})
    calls = [in_background(lambda: crib.invoke("count")) for _ in range(60)]
    assert all(ok(call(30))["structured_content"] == [{"n": 3}] for call in calls)
    if "postgres" in shop.url:
        mine = f"select count(*) from pg_stat_activity where datname = '{shop.name}' and application_name = 'toolcrib'"
        assert 1 <= int(shop.run(mine)) <= 8
    elif os.path.isdir(f"/proc/{crib.pid}/fd"):
        links = [os.path.join(f"/proc/{crib.pid}/fd", name) for name in os.listdir(f"/proc/{crib.pid}/fd")]
        assert 1 <= sum(os.path.exists(link) and os.readlink(link).endswith("shop.db") for link in links) <= 8


def test_large_cells_are_refused_without_memory(serve, shop):
    """Four at once, each with a value of 200 MB: refused before it is read, and the next call is answered."""
    if "sqlite" in shop.url:
        shop.run("create table docs (doc); insert into docs values (zeroblob(200000000))")
        large = {"made": "select hex(zeroblob(100000000)) as x", "stored": "select doc as x from docs"}
    else:
        shop.run("create table docs (doc text); insert into docs select repeat('x', 200000000)")
        # A constant would be made three times before the call, by the planner.
        large = {"made": "select repeat('x', :bytes) as x", "stored": "select doc as x from docs where :bytes::int > 0",
                 "written": "insert into customers (id) values (9) returning repeat('x', :bytes) as x"}
    parameters = {} if "sqlite" in shop.url else params(bytes="integer")
    arguments = {name: 200_000_000 for name in parameters}
    tools = {name: sql(shop.url, statement, effect="write" if name == "written" else "read", concurrency={"max": 8}, timeout="2m",
                       parameters=parameters)
             for name, statement in large.items()}
    crib = serve({**tools, "count": sql(shop.url, "select count(*) as n from customers")})
    assert ok(crib.invoke("count"))["structured_content"] == [{"n": 3}]
    before, most, is_over = crib.rss(), 0, threading.Event()

    def watch():
        nonlocal most
        while not is_over.wait(0.002):
            most = max(most, crib.rss())

    watcher = in_background(watch)
    for name in tools:
        calls = [in_background(lambda name=name: crib.invoke(name, arguments)) for _ in range(4)]
        for call in calls:
            kind = "upstream_failed" if name == "written" else "bad_output"
            error = problem(call(150), 502, kind)
            assert "raise max_output" in error["detail"] and error["retryable"] is False, error
    is_over.set()
    watcher()
    most = max(most, crib.rss())
    print(f"{shop.url.split(':')[0]}: {before >> 20} MiB before, {most >> 20} MiB at most")
    assert most - before < 50 << 20, (before, most)
    assert ok(crib.invoke("count"))["structured_content"] == [{"n": 3}]


def test_explain_is_a_tool(serve, shop):
    """Asking how a statement would run changes nothing."""
    crib = serve({"plan": sql(shop.url, ("explain query plan " if "sqlite" in shop.url else "explain ") + "select * from customers")})
    assert "customers" in text_of(ok(crib.invoke("plan")))
