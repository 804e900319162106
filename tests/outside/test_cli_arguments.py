"""Arguments as people write them: key=value, short addresses, files as ledgers."""

import json

import pytest

from harness import cli, ok
from recipes import sh, to_yaml

ECHO = {"kind": "command", "description": "Prints its arguments as JSON.", "command": ["/bin/cat"], "stdin": "{{ all }}",
        "parameters": {"all": {"type": "string", "description": "A text"}}, "effect": "read"}
@pytest.fixture
def folder(tmp_path):
    (tmp_path / "lib.py").write_text("def show(text: str = '', count: int = 0, tags: list = []) -> dict:\n"
                                     "    'Shows the arguments that arrived.'\n    return dict(text=text, count=count, tags=tags)\n")
    (tmp_path / "toolcrib.yaml").write_text(to_yaml({"python_modules": {"lib": {"module": "./lib.py", "functions": ["show"]}}, "tools": {"echo": ECHO}}))
    return tmp_path


def shown(done):
    assert done.returncode == 0, done
    return json.loads(done.stdout)["structured_content"]


@pytest.mark.parametrize("where", ["in-process", "server"])
def test_key_values_follow_the_schema(folder, start, where):
    """A text where the tool takes a text, else JSON."""
    crib = start((folder / "toolcrib.yaml").read_text().replace("./lib.py", str(folder / "lib.py"))) if where == "server" else None
    args = ("--server", crib.base) if crib else ()
    done = cli("call", "show", "text=5", "count=5", 'tags=["a", 1]', *args, cwd=folder)
    assert shown(done) == {"text": "5", "count": 5, "tags": ["a", 1]}
    done = cli("call", "show", "text:=\"a=b\"", "count:=7", *args, cwd=folder)
    assert shown(done) == {"text": "a=b", "count": 7, "tags": []}
    assert shown(cli("call", "show", '{"text": "x=y"}', *args, cwd=folder))["text"] == "x=y", "the JSON form goes on working"
    assert shown(cli("call", "show", "text=", "count=-3", *args, cwd=folder)) == {"text": "", "count": -3, "tags": []}
    wrong = cli("call", "show", "count=ten", *args, cwd=folder)
    assert wrong.returncode == 64 and wrong.stderr.splitlines()[-1] == (
        "toolcrib: count: `ten` is not JSON, as it must be here: a number, true, false, null, [list], {object} or \"text\""), wrong
    unknown = cli("call", "nope", "x=1", *args, cwd=folder)
    assert unknown.returncode == 1 and json.loads(unknown.stdout)["kind"] == "unknown_tool", unknown
    surplus = cli("call", "show", "txt=1", *args, cwd=folder)
    assert surplus.returncode == 1 and "text" in json.loads(surplus.stdout)["detail"], surplus


@pytest.mark.parametrize("words, message", [
    (("a",), "`a` is no argument: write key=value, or all arguments as one JSON object"),
    (("=1",), "`=1` has no key before the `=`"),
    (("a=1", "a=2"), "`a` is given twice: a list is written as JSON, a:='[1, 2]'"),
    (("a=1", "{}"), "write either one JSON object or key=value for each argument"),
    (("a=1", "-"), "write either one JSON object or key=value for each argument"),
    (("[]",), "the arguments are a JSON object, e.g. '{\"expression\": \"6*7\"}', or key=value for each"),
    (("{a: 1}",), "the arguments are not JSON (line 1, column 2); in a shell, put the object in single quotes, or write key=value "
                  "for each argument")])
def test_unclear_arguments_are_explained(folder, words, message):
    done = cli("call", "echo", *words, cwd=folder)
    assert done.returncode == 64 and done.stderr == f"toolcrib: {message}\n" and not done.stdout, done


@pytest.mark.parametrize("listen", ["0", ":0", "localhost:0", "127.0.0.1:0"])
def test_short_addresses_are_completed(start, listen):
    crib = start({"tools": {"greet": sh("echo hello", effect="read")}}, listen=listen)
    ok(crib.invoke("greet"))


@pytest.mark.parametrize("args, code, message", [
    (("serve", "--listen", "nonsense"), 64, "toolcrib: `nonsense` is no address to listen on: write a port such as 7411, or a host and a "
                                            "port such as 127.0.0.1:7411 or [::1]:7411\n"),
    (("usage", "--server", "ftp://x"), 64, "toolcrib: `ftp://x` is no address of a server: write a URL such as http://127.0.0.1:7411, or a "
                                           "host and a port such as localhost:7411\n"),
    (("usage", "--server", "localhost:1"), 1, "toolcrib: no answer from http://localhost:1: connection refused; is the service running "
                                              "there?\n"),
    (("healthcheck", "--server", "1"), 1, "toolcrib: no answer from http://127.0.0.1:1: connection refused; is the service running there?\n"),
    (("usage", "--ledger", "mysql://x"), 64, "toolcrib: ledger mysql://x: write a file, such as toolcrib.db or sqlite://toolcrib.db, or "
     "postgres://USER@HOST/DATABASE\n"),
    (("usage", "--ledger", "postgres://u:hunter2@h/d?sslmod=require"), 64, "toolcrib: ledger postgres://…: unknown parameter `sslmod`; those of "
     "TLS are sslmode, sslrootcert, sslcert and sslkey: write postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=…, with %XX for characters "
     "that have a meaning in a URL\n"),
    (("usage", "--ledger", ":memory:"), 64, "toolcrib: ledger :memory:: a ledger in memory is not supported; name a file, sqlite://FILE, for "
     "example in a temporary folder, or omit the URL\n"),
    (("usage",), 1, "toolcrib: ledger toolcrib.db: there is no such file; the first call in its folder makes it, and --ledger names "
                    "another\n"),
    (("--log", "===", "schema"), 64, "toolcrib: --log ===: write levels such as warn, or modules with levels such as toolcrib=debug,warn\n"),
    (("import", "mcp", "none.json"), 64, "none.json: No such file or directory\n")])
def test_messages_are_for_people(tmp_path, args, code, message):
    """In full: no word of a library, no number of the system."""
    done = cli(*args, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (code, message)


def test_port_has_a_tip(tmp_path):
    done = cli("serve", "--port", "7411", cwd=tmp_path)
    assert done.returncode == 64 and "tip: a port is an address, too: --listen 7411" in done.stderr, done


def test_ledger_may_be_a_file(tmp_path):
    for ledger in ("x.db", tmp_path / "y.db", f"sqlite://{tmp_path}/z.db"):
        done = cli("call", "calculator", "expression=6*7", "--ledger", ledger, cwd=tmp_path)
        assert done.returncode == 0, done
        usage = cli("usage", "--ledger", ledger, cwd=tmp_path)
        assert json.loads(usage.stdout)["tools"][0]["tool"] == "calculator", usage
    assert {"x.db", "y.db", "z.db"} <= {file.name for file in tmp_path.iterdir()} and not (tmp_path / "toolcrib.db").exists()


def test_server_and_ledger_exclude_each_other(tmp_path):
    done = cli("usage", "--server", "x", "--ledger", "y", cwd=tmp_path)
    assert done.returncode == 64 and "cannot be used with" in done.stderr, done
    cli("call", "calculator", "expression=1", "--ledger", "x.db", cwd=tmp_path)
    done = cli("usage", "--ledger", "x.db", cwd=tmp_path, env={"TOOLCRIB_SERVER": "http://127.0.0.1:1"})
    assert done.returncode == 0, "a variable gives way to a flag"
