"""`check` without secrets and with started sources, and the exit codes of commands that list sources."""

import json

import pytest

from harness import cli
from recipes import to_yaml

SECRETS = {
    "server": {"listen": "${env:LISTEN}"},
    "ledger": {"url": "${env:LEDGER}", "digest_key": "${file:/none/digest-key}"},
    "callers": [{"name": "a", "key": "${env:A_KEY}"}, {"name": "b", "key_sha256": "${env:B_HASH}", "admin": True}],
    "tools": {
        "get_order": {"kind": "http", "description": "Reads an order of the shop by its number.", "effect": "read", "cache": {"ttl": "1m"},
                      "env": [{"name": "SHOP_KEY", "description": "Key of the shop"}],
                      "request": {"url": "${env:SHOP}/orders/{{ id }}", "headers": {"authorization": "Bearer ${env:SHOP_KEY}"}},
                      "parameters": {"id": {"type": "string", "description": "Number of the order"}}},
        "count_rows": {"kind": "sql", "description": "Counts the rows of the table of orders.", "effect": "read", "cache": {"ttl": "1m"},
                       "database": "postgres://crib:${env:DB_PASSWORD}@127.0.0.1:1/x", "statement": "select count(*) from orders"}},
    "openapi": {"shop": {"document": "https://shop.example/openapi.json", "headers": {"x-key": "${env:API_KEY}"}}},
}


def test_secrets_may_be_absent(tmp_path):
    """Each reference without a value is a hint, also for --strict; a database server is not asked."""
    (tmp_path / "toolcrib.yaml").write_text(to_yaml(SECRETS))
    assert cli("check", cwd=tmp_path).returncode == 64
    done = cli("check", "--no-secrets", cwd=tmp_path)
    assert done.returncode == 0 and "2 tools, 1 OpenAPI document" in done.stdout, done
    report = json.loads(cli("check", "--no-secrets", "--format", "json", cwd=tmp_path).stdout)
    assert report["ok"] and report["errors"] == 0 and report["apis"] == 1, report
    others = {finding["rule"] for finding in report["findings"] if (finding["rule"], finding["severity"]) != ("missing-secret", "hint")}
    assert others <= {"unpinned-server"}, report
    (tmp_path / "toolcrib.yaml").write_text(to_yaml({name: section for name, section in SECRETS.items() if name != "openapi"}))
    assert cli("check", "--no-secrets", "--strict", cwd=tmp_path).returncode == 0, "hints never count"
    named = " ".join(finding["message"] for finding in report["findings"])
    for name in ("LISTEN", "LEDGER", "/none/digest-key", "A_KEY", "B_HASH", "SHOP_KEY", "SHOP ", "DB_PASSWORD", "API_KEY"):
        assert name in named, name


@pytest.mark.parametrize("path, value, words", [
    ("url", "https://shop.example/${env:}", "`` is no name of an environment variable"), ("url", "https://shop.example/${env:A B}", "`A B` is no name"),
    ("url", "https://shop.example/${env:A", "without `}`"), ("method", "FETCH", "FETCH"), ("headrs", {}, "did you mean headers?")])
def test_other_faults_are_found_without_secrets(tmp_path, path, value, words):
    tool = {"kind": "http", "description": "Reads an order of the shop.", "request": {"url": "https://shop.example/${env:KEY}"}}
    tool["request"][path] = value
    (tmp_path / "toolcrib.yaml").write_text(to_yaml({"tools": {"get_order": tool}}))
    done = cli("check", "--no-secrets", cwd=tmp_path)
    assert done.returncode == 64 and words in done.stderr, done


def test_values_that_are_set_are_checked(tmp_path):
    (tmp_path / "toolcrib.yaml").write_text(to_yaml({"ledger": {"retention": "${env:KEEP}"}, "tools": {"calculator": {"kind": "native"}}}))
    assert cli("check", "--no-secrets", cwd=tmp_path).returncode == 0
    assert cli("check", "--no-secrets", cwd=tmp_path, env={"KEEP": "30d"}).returncode == 0
    done = cli("check", "--no-secrets", cwd=tmp_path, env={"KEEP": "for ever"})
    assert done.returncode == 64 and "ledger.retention" in done.stderr, done


def write_modules(folder, bad):
    def write(name, function, parameter):
        (folder / name).write_text(f'def {function}({parameter}: int) -> int:\n    """Computes a number from another one, for tests of lists.\n\n'
                                   f'    Args:\n        {parameter}: The number to begin with.\n    """\n    return {parameter}\n')
    write("lib.py", "add_one", "number")
    write("bad.py", "subtract_one", "number")
    if bad:
        (folder / "bad.py").write_text("import no_such_module_at_all\n")
    modules = {"lib": {"module": "./lib.py", "functions": ["add_one"]}, "bad": {"module": "./bad.py", "functions": ["subtract_one"]}}
    (folder / "toolcrib.yaml").write_text(to_yaml({"python_modules": modules}))


def test_live_check_lists_the_sources(tmp_path):
    write_modules(tmp_path, bad=False)
    done = cli("check", "--live", cwd=tmp_path)
    assert done.returncode == 0 and "ok: 2 tools, 2 modules, 0 callers" in done.stdout, done
    report = json.loads(cli("check", "--live", "--format", "json", cwd=tmp_path).stdout)
    assert report["ok"] and report["tools"] == 2 and report["failures"] == [], report
    assert "failures" not in json.loads(cli("check", "--format", "json", cwd=tmp_path).stdout)
    assert not list(tmp_path.glob("*.db")), "no ledger is made"


def test_live_check_reports_failed_sources(tmp_path):
    write_modules(tmp_path, bad=True)
    assert cli("check", cwd=tmp_path).returncode == 0
    done = cli("check", "--live", cwd=tmp_path)
    assert done.returncode == 1 and "source `bad` failed: " in done.stderr and "no_such_module_at_all" in done.stderr, done
    assert done.stderr.splitlines()[-1] == "toolcrib.yaml: 0 errors, 1 failure, 0 warnings, 0 hints", done.stderr
    report = json.loads(cli("check", "--live", "--format", "json", cwd=tmp_path).stdout)
    assert not report["ok"] and report["tools"] == 1 and len(report["failures"]) == 1, report
    assert cli("check", "--live", "--no-secrets", cwd=tmp_path).returncode == 64


def test_live_check_warns_of_source_tools(tmp_path):
    """What `GET /sources` warns of: here a policy that has no effect on a tool of the module."""
    write_modules(tmp_path, bad=False)
    (tmp_path / "lib.py").write_text("import asyncio\n\nclass Both:\n    def add(self, a: int) -> int:\n        'Adds one.'\n        return a + 1\n\n"
                                     "    async def sub(self, a: int) -> int:\n        'Subtracts one.'\n        return a - 1\n")
    (tmp_path / "toolcrib.yaml").write_text(to_yaml({"python_modules": {"lib": {"module": "./lib.py", "object": "Both", "functions": ["add", "sub"]}}}))
    done = cli("check", "--live", cwd=tmp_path)
    assert done.returncode == 0 and "source `lib`: warning: " in done.stdout, done
    assert cli("check", "--live", "--strict", cwd=tmp_path).returncode == 64
    report = json.loads(cli("check", "--live", "--format", "json", cwd=tmp_path).stdout)
    assert report["ok"] and len(report["source_warnings"]) == 1 and report["warnings"] >= 1, report


def test_live_check_lints_listed_tools(tmp_path):
    """A function without docstring and hints is a tool without a description and types."""
    (tmp_path / "lib.py").write_text("def greet(name, times=1):\n    return name * times\n")
    (tmp_path / "toolcrib.yaml").write_text(to_yaml({"python_modules": {"lib": {"module": "./lib.py", "functions": ["greet"]}}}))
    assert cli("check", "--strict", cwd=tmp_path).returncode == 0
    done = cli("check", "--live", cwd=tmp_path)
    assert done.returncode == 0 and "source `lib`: warning: greet: " in done.stdout and " 0 warnings" not in done.stdout, done
    assert cli("check", "--live", "--strict", cwd=tmp_path).returncode == 64
    report = json.loads(cli("check", "--live", "--format", "json", cwd=tmp_path).stdout)
    assert report["warnings"] > 0 and {finding["tool"] for finding in report["source_findings"]} == {"greet"}, report


def test_live_check_of_a_bad_manifest_starts_nothing(tmp_path):
    write_modules(tmp_path, bad=False)
    (tmp_path / "lib.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    (tmp_path / "toolcrib.yaml").write_text((tmp_path / "toolcrib.yaml").read_text() + "\ntols: {}\n")
    assert cli("check", "--live", cwd=tmp_path).returncode == 64 and not (tmp_path / "ran").exists()


def test_failed_sources_are_failures_of_every_list(tmp_path):
    """`tools`, in each format, and `openapi` print the rest and exit 1."""
    write_modules(tmp_path, bad=True)
    for args in (("tools",), ("tools", "--format", "table"), ("tools", "--format", "openai"), ("openapi", "--manifest", "toolcrib.yaml")):
        done = cli(*args, cwd=tmp_path)
        assert done.returncode == 1 and "add" in done.stdout and "source `bad` failed" in done.stderr, done


def test_imported_servers_pass_the_check(tmp_path):
    """Names stay distinct, defaults are kept, and what a person must fill in is a comment."""
    settings = {"inputs": [{"id": "api-key", "description": "Key of the shop"}], "servers": {
        "my shop": {"command": "sh", "args": ["-c", "${input:api-key} ${REGION:-eu}"], "cwd": "/x"}, "my/shop": {"command": "sh", "args": ["${userHome}"]}}}
    (tmp_path / "mcp.json").write_text(json.dumps(settings))
    done = cli("import", "mcp", "mcp.json", cwd=tmp_path)
    assert done.returncode == 0, done
    for comment in ("# my_shop: the other client asks a person for `api-key` (Key of the shop): set the environment variable API_KEY",
                    "# my_shop: REGION has the default `eu`, which is declared below `env`",
                    "# my_shop2: named `my/shop` before; its tools begin with `my_shop2_`"):
        assert comment in done.stdout.splitlines(), done.stdout
    assert "    workdir: /x" in done.stdout.splitlines(), done.stdout
    (tmp_path / "toolcrib.yaml").write_text(done.stdout)
    checked = cli("check", "--no-secrets", cwd=tmp_path, env={"HOME": "/nonexistent"})
    assert checked.returncode == 0 and "2 MCP servers" in checked.stdout, checked
