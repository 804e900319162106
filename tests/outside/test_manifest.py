"""The manifest: the errors of a bad one (FILE:LINE:COLUMN: path: what is wrong, and what would be right), and the contents of a good one."""

import json
import re

import pytest

from harness import cli, now, ok, problem, elapsed, text_of
from recipes import sh, to_yaml

GOOD = """\
server:
  max_body: 1MiB
  max_in_flight: 256
  drain: 20s
  allowed_hosts: [toolcrib]
ledger:
  durability: tiered
  retention: 30d
  max_bytes: 2GiB
cache:
  max_bytes: 64MiB
defaults:
  timeout: 30s
  retry: {attempts: 1}
  concurrency: {max: 16, queue: 64, wait: 1s}
tools:
  calculator: {kind: native}
  get_weather:
    kind: http
    description: Current weather for a city. Use for questions about weather now, not for forecasts.
    parameters:
      city: {type: string, description: "City and country, e.g. Oslo, NO"}
      units: {type: string, enum: [celsius, fahrenheit], default: celsius, description: The unit}
    request:
      method: GET
      url: https://api.example.com/v1/cities/{{ city }}/weather
      query: {units: "{{ units }}"}
      headers: {x-literal: "$${not_a_reference}"}
      allow_hosts: []
    response: {pick: /current, error_when: /error}
    effect: read
    timeout: 10s
    deadline: 25s
    retry: {attempts: 3}
    limits: [{calls: 100, per: day, scope: caller}, {calls: 5, per: run}]
    cache: {ttl: 5m, scope: caller, context: [tenant]}
    output_schema: {type: object}
    annotations: {title: Weather}
    aliases: [weather]
    tags: [demo]
    env: [{name: WEATHER_UNIT, description: Unit of the provider, required: false, default: metric}]
  word_count:
    kind: command
    description: Counts the words of a text that is given.
    parameters: {text: {type: string, description: The text}}
    command: [/usr/bin/wc, -w]
    stdin: "{{ text }}"
    output: text
    environment: {LANG: C.UTF-8}
    effect: read
    max_output: 256KiB
    on_disconnect: cancel
    strict: true
    enabled: true
"""


def check(folder, text, name="toolcrib.yaml", env=None):
    (folder / name).write_text(text if isinstance(text, str) else to_yaml(text), encoding="utf-8")
    return cli("check", "--manifest", name, cwd=folder, env=env)


def refused(done, name="toolcrib.yaml"):
    """Exit 64 and FILE:LINE:COLUMN; returns (line, column, all output)."""
    text = done.stderr + done.stdout
    assert done.returncode == 64, done
    assert "panicked" not in text, text
    found = re.search(re.escape(name) + r":(\d+):(\d+): ", text)
    assert found, f"no {name}:LINE:COLUMN: in {text}"
    return int(found.group(1)), int(found.group(2)), text


def line_of(text, part):
    return next(number for number, line in enumerate(text.splitlines(), 1) if part in line)


def test_good_manifest_passes_check(tmp_path):
    done = check(tmp_path, GOOD)
    assert done.returncode == 0, done


def test_good_manifest_runs(start):
    """The tools of the example, their policy and what they declare, from outside."""
    crib = start(GOOD)
    tools = {tool["name"]: tool for tool in crib.get("/tools").json["tools"]}
    assert set(tools) == {"calculator", "get_weather", "word_count"}
    weather = tools["get_weather"]
    assert weather["kind"] == "http" and weather["effect"] == "read" and weather["tags"] == ["demo"]
    assert weather["annotations"]["title"] == "Weather" and weather["output_schema"] == {"type": "object"}
    schema = weather["input_schema"]
    assert schema["type"] == "object" and schema["required"] == ["city"] and schema["additionalProperties"] is False
    assert schema["properties"]["units"]["default"] == "celsius"
    one = crib.get("/tools/get_weather").json
    assert one["policy"] and one["env"][0]["name"] == "WEATHER_UNIT"
    assert {(limit["calls"], limit["per"], limit["scope"]) for limit in one["usage"]} == {(100, "day", "caller"), (5, "run", "tool")}
    assert "3" in text_of(ok(crib.invoke("word_count", {"text": "one two three"})))


def test_json_is_yaml(tmp_path):
    done = check(tmp_path, json.dumps({"tools": {"calculator": {"kind": "native"}}}), "toolcrib.json")
    assert done.returncode == 0, done


def test_unknown_key_is_found(tmp_path):
    """The contract's own example, word for word."""
    text = GOOD.replace("    description: Current weather", "    descripton: Current weather")
    line, column, output = refused(check(tmp_path, text))
    assert line == line_of(text, "descripton") and column == 5, output
    assert re.search(r"toolcrib\.yaml:\d+:\d+: tools\.get_weather\.descripton: unknown key, did you mean description\?", output), output


@pytest.mark.parametrize("old, new, path, hint", [
    ("max_body: 1MiB", "max_boddy: 1MiB", "server.max_boddy", "max_body"),
    ("durability:", "durabilty:", "ledger.durabilty", "durability"),
    ("defaults:", "default:", "default", "defaults"),
    ("tools:\n", "tool:\n", "tool", "tools"),
    ("    timeout: 10s", "    timeuot: 10s", "tools.get_weather.timeuot", "timeout"),
    ("      method: GET", "      metod: GET", "tools.get_weather.request.metod", "method"),
    ("{attempts: 3}", "{atempts: 3}", "tools.get_weather.retry.atempts", "attempts"),
    ("{ttl: 5m, scope", "{tll: 5m, scope", "tools.get_weather.cache.tll", "ttl"),
    ("{calls: 100, per", "{cals: 100, per", "tools.get_weather.limits", "calls"),
    ("max: 16", "maks: 16", "defaults.concurrency.maks", "max"),
    ("stdin:", "stdinn:", "tools.word_count.stdinn", "stdin")])
def test_unknown_keys_are_found_everywhere(tmp_path, old, new, path, hint):
    text = GOOD.replace(old, new, 1)
    line, _, output = refused(check(tmp_path, text))
    assert line == line_of(text, new.strip().splitlines()[0]), output
    assert path in output and "unknown key" in output and f"did you mean {hint}?" in output, output


@pytest.mark.parametrize("old, new, word", [
    ("timeout: 10s", "timeout: 10", "timeout"), ("timeout: 10s", "timeout: soon", "timeout"), ("timeout: 10s", "timeout: -5s", "timeout"),
    ("max_output: 256KiB", "max_output: big", "max_output"), ("effect: read\n    timeout", "effect: reads\n    timeout", "read"),
    ("per: day", "per: days", "day"), ("calls: 100", "calls: lots", "calls"), ("calls: 100", "calls: -1", "calls"),
    ("kind: http", "kind: htpp", "http"), ("method: GET", "method: [GET]", "method"), ("output: text", "output: yaml", "output"),
    ("pick: /current", "pick: current", "pick"), ("tags: [demo]", "tags: demo", "tags"),
    ("strict: true", "strict: perhaps", "strict"), ("attempts: 3", "attempts: 0", "attempts"),
    ("{{ city }}", "{{ town }}", "town"), ("{{ text }}", "{{ txt }}", "txt"),
    ("command: [/usr/bin/wc, -w]", "command: /usr/bin/wc -w", "command"), ("command: [/usr/bin/wc, -w]", "command: []", "command"),
    ("url: https://api.example.com/v1", "url: ftp://api.example.com/v1", "url")])
def test_bad_values_are_found(tmp_path, old, new, word):
    """A value of the wrong kind is reported at its line, with a helpful word."""
    text = GOOD.replace(old, new, 1)
    assert text != GOOD
    line, _, output = refused(check(tmp_path, text))
    assert word in output, output
    changed = [number for number, (a, b) in enumerate(zip(GOOD.splitlines(), text.splitlines()), 1) if a != b]
    assert abs(line - changed[0]) <= 1, (line, changed, output)


@pytest.mark.parametrize("text", ["tools: [", "tools:\n\tcalculator: {kind: native}\n", "- a\n- b\n", "just words", "tools: 5\n",
                                  "tools:\n  a: {kind: native\n", "a: &x [*x]\n", "tools:\n  calculator: native\n"])
def test_invalid_documents_are_refused(tmp_path, text):
    refused(check(tmp_path, text))


def test_exponential_aliases_are_harmless(tmp_path):
    """A billion laughs is refused, or at least harmless, and soon."""
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    started = now()
    assert check(tmp_path, bomb).returncode == 64
    assert elapsed(started) < 10


def test_missing_file_is_reported(tmp_path):
    """Named, no panic; a missing manifest is a bad one (64) or a failed start (1)."""
    for what in (["check"], ["serve", "--listen", "127.0.0.1:0"]):
        done = cli(*what, "--manifest", "nothing.yaml", cwd=tmp_path)
        assert done.returncode in (1, 64) and "nothing.yaml" in done.stderr + done.stdout, done


def test_serve_reports_the_same_errors(tmp_path):
    """A bad manifest stops the start with 64 and the same position."""
    text = GOOD.replace("    timeout: 10s", "    timeuot: 10s")
    (tmp_path / "toolcrib.yaml").write_text(text)
    line, _, _ = refused(cli("serve", "--listen", "127.0.0.1:0", cwd=tmp_path))  # toolcrib.yaml here is found without a flag
    assert line == line_of(text, "timeuot")


@pytest.mark.parametrize("text", [
    "tools:\n  calculator: {kind: native}\n  calculator: {kind: native}\n",
    "tools:\n  a:\n    kind: native\n    use: calculator\n    use: calculator\n"])
def test_duplicate_keys_are_refused(tmp_path, text):
    line, _, output = refused(check(tmp_path, text))
    assert line in (2, 3, 4, 5) and ("duplicate" in output.lower() or "twice" in output.lower() or "already" in output.lower()), output


def test_includes_add_tools(start, tmp_path):
    """More tools from other files, relative to the manifest."""
    folder = tmp_path / "with"
    (folder / "tools.d").mkdir(parents=True)
    (folder / "tools.d" / "a.yaml").write_text(to_yaml({"tools": {"extra": sh("echo extra", effect="read")}}))
    crib = start('include: ["tools.d/*.yaml"]\ntools:\n  calculator: {kind: native}\n', folder=folder)
    assert "extra" in text_of(ok(crib.invoke("extra")))
    assert len(crib.get("/tools").json["tools"]) == 2


def test_duplicate_names_across_includes_are_refused(tmp_path):
    """A second tool of a name is an error that names the tool and a file."""
    (tmp_path / "tools.d").mkdir()
    for name in ("a", "b"):
        (tmp_path / "tools.d" / f"{name}.yaml").write_text(to_yaml({"tools": {"twin": sh(f"echo {name}")}}))
    done = check(tmp_path, 'include: ["tools.d/*.yaml"]\n')
    text = done.stdout + done.stderr
    assert done.returncode == 64 and "twin" in text and re.search(r"[ab]\.yaml:\d+:\d+: ", text), done


def test_error_in_an_include_names_its_file(tmp_path):
    (tmp_path / "more.yaml").write_text("tools:\n  a:\n    kind: native\n    usse: calculator\n")
    line, _, output = refused(check(tmp_path, "include: [more.yaml]\n"), "more.yaml")
    assert line == 4 and "did you mean use?" in output, output


@pytest.mark.parametrize("text, word", [
    ("include: [more.yaml]\n", "more.yaml"), ("include: [toolcrib.yaml]\ntools:\n  calculator: {kind: native}\n", "toolcrib.yaml")])
def test_missing_and_circular_includes_are_reported(tmp_path, text, word):
    """A missing file, and one that includes itself: reported, never a loop."""
    done = check(tmp_path, text)
    assert done.returncode == 64 and word in done.stderr + done.stdout, done


def test_include_cannot_add_callers(tmp_path):
    (tmp_path / "more.yaml").write_text("callers:\n  - {name: evil, key_sha256: " + "0" * 64 + ", admin: true}\n")
    _, _, output = refused(check(tmp_path, "include: [more.yaml]\n"), "more.yaml")
    assert "callers" in output


def test_alias_conflict_is_refused(tmp_path):
    tools = {"a": sh("echo a", aliases=["b"]), "b": sh("echo b")}
    done = check(tmp_path, {"tools": tools})
    assert done.returncode == 64 and "b" in done.stdout + done.stderr, done


@pytest.mark.parametrize("when, words", [
    ("result.temprature is definde", "no test `definde`"), ("result|lenght > 3", "no filter `lenght`"), ("temperature > 3", "args and result"),
    ("result. ==", "not an expression"), ("range(9)", "no `range`"), ("result.items()", "no methods"),
    ("result|replace('a', 'b') == 'b'", "no filter `replace`: there are abs"), ("args.a ~ args.b == 'x'", "not joined"),
    ("args.a * 100000 == 'x'", "takes numbers"), ("[args.a, args.b]|length > 1", "constants only")])
@pytest.mark.parametrize("place", ["tools.a", "defaults"])
def test_invalid_cache_condition_is_found(tmp_path, when, words, place):
    """Found once when the manifest is read, with its position and the available names."""
    tool, cache = sh("echo a", effect="read"), {"cache": {"ttl": "5m", "when": when}}
    tools = {"a": dict(tool, **cache), "b": tool} if place == "tools.a" else {"a": tool, "b": tool}
    _, _, output = refused(check(tmp_path, dict({"defaults": cache} if place == "defaults" else {}, tools=tools)))
    assert f"{place}.cache.when: " in output and words in output and output.count("cache.when") == 1, output


def test_cache_condition_cannot_hold_a_secret(tmp_path):
    """Callers see it in the tool's policy."""
    tool = sh("echo a", effect="read", cache={"ttl": "5m", "when": "'${env:HOME}' == result"})
    _, _, output = refused(check(tmp_path, {"tools": {"a": tool}}))
    assert "tools.a.cache.when: callers can see this" in output, output


def test_short_digest_key_is_refused(tmp_path):
    _, _, output = refused(check(tmp_path, "ledger: {capture: digest, digest_key: short}\n"))
    assert "ledger.digest_key" in output and "16 bytes" in output, output


def test_ledger_max_bytes_has_a_minimum(tmp_path):
    _, _, output = refused(check(tmp_path, "ledger: {max_bytes: 15MiB}\n"))
    assert "ledger.max_bytes" in output and "16.0 MiB" in output, output
    _, _, output = refused(check(tmp_path, "ledger: {max_bytes: 2000000000}\n"))
    assert "ledger.max_bytes" in output and "not a size" in output, output


# ---- secrets -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("reference, name", [("${env:NO_SUCH_KEY}", "NO_SUCH_KEY"), ("${file:/no/such/secret}", "/no/such/secret")])
def test_missing_secret_stops_the_start(tmp_path, reference, name):
    text = GOOD.replace('"$${not_a_reference}"', f'"{reference}"')
    (tmp_path / "toolcrib.yaml").write_text(text)
    done = cli("serve", "--listen", "127.0.0.1:0", cwd=tmp_path)
    output = done.stderr + done.stdout
    assert done.returncode in (1, 64) and name in output, done
    assert f"toolcrib.yaml:{line_of(text, reference)}:" in output, output


def test_missing_declared_variable_stops_the_start(tmp_path):
    text = GOOD.replace("required: false, default: metric", "required: true")
    (tmp_path / "toolcrib.yaml").write_text(text)
    done = cli("serve", "--listen", "127.0.0.1:0", cwd=tmp_path)
    assert done.returncode in (1, 64) and "WEATHER_UNIT" in done.stderr + done.stdout, done


def test_secret_file_and_literal_dollar(start, upstream, tmp_path):
    """`${file:…}` is read without its last newline; `$${` is a literal `${`."""
    secret = tmp_path / "key"
    secret.write_text("from-the-file\n")
    crib = start({"tools": {"x": {"kind": "http", "description": "Echo of what is sent", "parameters": {}, "effect": "read", "request": {
        "method": "GET", "url": upstream.base + "/echo", "allow_private": True,
        "headers": {"x-key": "${file:%s}" % secret, "x-literal": "$${env:HOME}"}}}}})
    ok(crib.invoke("x"))
    sent = {name.lower(): value for name, value in upstream.requests[0][2].items()}
    assert sent["x-key"] == "from-the-file" and sent["x-literal"] == "${env:HOME}"


# ---- schemas -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("schema", [
    {"type": "objekt"}, {"type": 12}, {"type": "object", "properties": {"a": {"minimum": "five"}}}, {"type": "object", "required": "a"},
    {"type": "object", "properties": {"a": {"pattern": "("}}}, "a string", 5,
    {"type": "object", "properties": {"a": {"$ref": "#/$defs/missing"}}},
    {"$schema": "https://json-schema.org/draft/1999-99/schema", "type": "object"}])
def test_invalid_schema_is_refused(tmp_path, schema):
    text = to_yaml({"tools": {"x": sh("echo x", input_schema=schema)}})
    line, _, output = refused(check(tmp_path, text))
    assert "input_schema" in output or "tools.x" in output, output
    assert line >= 2


@pytest.mark.parametrize("where", ["http://127.0.0.1:{port}/schema.json", "https://127.0.0.1:{port}/s", "file:///etc/passwd", "other.json"])
def test_external_references_are_not_resolved(tmp_path, upstream, where):
    """No network, no file: refused at the check, without a request."""
    schema = {"type": "object", "properties": {"a": {"$ref": where.format(port=upstream.port)}}}
    _, _, output = refused(check(tmp_path, {"tools": {"x": sh("echo x", input_schema=schema)}}))
    assert "$ref" in output and "root:" not in output and upstream.hits() == 0, output


LOOPS = [{"$ref": "#"}, {"type": "object", "properties": {"child": {"$ref": "#"}}}, {"type": "object", "allOf": [{"$ref": "#"}]},
         {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
         {"type": "object", "properties": {"a": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}, {"$ref": "#"}]}}}]

REGEXES = [r"^(a+)+$", r"^(a|aa)+$", r"^(a*)*b$", r"^((a{1,100}){1,100}){1,100}$", r"^(?=(a+)+b)a", r"^(a+)\1+$", r"(x+x+)+y", r"^(.*a){25}$"]


def fast_or_refused(start, tmp_path, schema, arguments):
    """Refused by the check with its position, or valid: then it starts and answers fast."""
    manifest = {"tools": {"x": sh("echo fine", effect="read", input_schema=schema)}}
    started = now()
    done = check(tmp_path, manifest)
    assert elapsed(started) < 5
    if done.returncode != 0:
        refused(done)
        return
    crib = start(manifest)
    for given in arguments:
        started = now()
        reply = crib.invoke("x", given)
        assert elapsed(started) < 2, given
        if reply.status != 200:
            problem(reply, {400, 422}, {"invalid_arguments", "invalid_request"})


@pytest.mark.parametrize("schema", LOOPS, ids=range(len(LOOPS)))
def test_recursive_schemas_are_fast_or_refused(start, tmp_path, schema):
    deep = {}
    for _ in range(40):
        deep = {"child": deep}
    fast_or_refused(start, tmp_path, schema, [{}, {"a": "x"}, {"child": {"child": {}}}, deep, {"a": {"a": {"a": {"a": {"a": 1}}}}}])


@pytest.mark.parametrize("pattern", REGEXES)
def test_patterns_run_in_bounded_time(start, tmp_path, pattern):
    schema = {"type": "object", "properties": {"text": {"type": "string", "pattern": pattern}}, "patternProperties": {pattern: {"type": "string"}}}
    texts = ["a" * 40 + "!", "a" * 20_000 + "!", "x" * 5_000, "b" * 10_000]
    fast_or_refused(start, tmp_path, schema, [{"text": text} for text in texts] + [{text: 1} for text in texts])


def test_recursive_schema_is_checked_at_every_level(start):
    """Where recursion is legal it is checked at every level."""
    schema = {"type": "object", "properties": {"name": {"type": "string"}, "child": {"$ref": "#"}}, "required": ["name"]}
    crib = start({"tools": {"tree": sh("echo fine", effect="read", input_schema=schema)}})
    ok(crib.invoke("tree", {"name": "a", "child": {"name": "b"}}))
    error = problem(crib.invoke("tree", {"name": "a", "child": {"name": "b", "child": {"name": 5}}}), 422, "invalid_arguments")
    assert error["violations"][0]["pointer"] == "/child/child/name"


# ---- warnings ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("tool, word", [
    (sh("echo x", effect="write", retry={"attempts": 3}), "retry"),
    ({"kind": "http", "description": "Reads something inside", "parameters": {}, "effect": "read",
      "request": {"method": "GET", "url": "http://10.0.0.1/x"}}, "10.0.0.1")])
def test_policy_without_effect_is_a_warning(tmp_path, tool, word):
    """A setting without effect is reported, but is not an error."""
    done = check(tmp_path, {"tools": {"x": tool}})
    assert done.returncode == 0 and word in done.stdout + done.stderr, done
