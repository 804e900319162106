"""The kinds of calls whose cost is watched: by benches/guard, and by benches/compare."""

import contextlib
import sqlite3

from lib import load, mcp, parts, python, upstream

ADD_SQL = """\
  add_sql:
    kind: sql
    description: Adds two numbers.
    parameters: {a: {type: integer, description: One.}, b: {type: integer, description: Other.}}
    database: sqlite://work.db
    statement: select :a + :b as sum
"""
ASK_HTTP = """\
  ask_http:
    kind: http
    description: Answers with a text.
    parameters: {text: {type: string, description: The text.}}
    request: {url: "UPSTREAM/echo", query: {text: "{{ text }}"}, allow_private: true}
    effect: read
"""
MCP_SERVERS = """mcp_servers:
  peer: {url: "UPSTREAM/mcp", tools: {sum: {effect: read}}}
  session: {url: "UPSTREAM/session", tools: {sum: {effect: read}}}
"""
MCP_TOOLS = ("peer_sum", "session_sum")
MANIFEST = parts.MANIFEST + ADD_SQL
# case -> (path, body, headers, value of meta.cache once warm)
CASES = {
    "cached": ("/tools/sum_cached/invoke", load.BODY, {}, "hit"),
    "native": ("/tools/sum_uncached/invoke", load.BODY, {}, "off"),
    "limited": ("/tools/sum_limited/invoke", load.BODY, {}, "off"),
    "sql": ("/tools/add_sql/invoke", '{"arguments": {"a": 40, "b": 2}}', {}, "off"),
    "http": ("/tools/ask_http/invoke", '{"arguments": {"text": "How warm is it in Oslo?"}}', {}, "off"),
    "python": ("/tools/add/invoke", '{"arguments": {"a": 40, "b": 2}}', {}, "off"),
    "mcp": (*mcp.stateless(), "hit"),
    "mcp_url": ("/tools/peer_sum/invoke", load.BODY, {}, "off"),
    "mcp_session": ("/tools/session_sum/invoke", load.BODY, {}, "off"),
}


@contextlib.contextmanager
def prepared(folder):
    """Makes in this folder what the calls need, and gives the manifest."""
    make_database(folder)
    with upstream.upstream() as url, upstream.mcp_server() as mcp_url:
        tools = MANIFEST + ASK_HTTP.replace("UPSTREAM", url)
        yield tools + MCP_SERVERS.replace("UPSTREAM", mcp_url) + python.module_of(folder)


def await_tools(server):
    """Python modules and MCP servers are listed while the service is up already."""
    for name in ("add", *MCP_TOOLS):
        python.await_tools(server, name)


def make_database(folder):
    """What add_sql opens."""
    with contextlib.closing(sqlite3.connect(folder / "work.db")) as db:
        db.execute("create table work (id integer primary key)")
