"""The manifest: what is told about a bad one (FILE:LINE:COLUMN: path: what, and what would be right), and what a good one may hold."""

import json
import re

import pytest

from harness import cli, now, ok, problem, spent, text_of
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
    """Exit 64 and FILE:LINE:COLUMN; gives (line, column, everything said)."""
    said = done.stderr + done.stdout
    assert done.returncode == 64, done
    assert "panicked" not in said, said
    found = re.search(re.escape(name) + r":(\d+):(\d+): ", said)
    assert found, f"no {name}:LINE:COLUMN: in {said}"
    return int(found.group(1)), int(found.group(2)), said


def line_of(text, part):
    return next(number for number, line in enumerate(text.splitlines(), 1) if part in line)


def test_a_good_manifest(tmp_path):
    done = check(tmp_path, GOOD)
    assert done.returncode == 0, done


def test_a_good_manifest_runs(start):
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


def test_unknown_key(tmp_path):
    """The contract's own example, word for word."""
    text = GOOD.replace("    description: Current weather", "    descripton: Current weather")
    line, column, said = refused(check(tmp_path, text))
    assert line == line_of(text, "descripton") and column == 5, said
    assert re.search(r"toolcrib\.yaml:\d+:\d+: tools\.get_weather\.descripton: unknown key, did you mean description\?", said), said


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
def test_unknown_keys_everywhere(tmp_path, old, new, path, hint):
    text = GOOD.replace(old, new, 1)
    line, _, said = refused(check(tmp_path, text))
    assert line == line_of(text, new.strip().splitlines()[0]), said
    assert path in said and "unknown key" in said and f"did you mean {hint}?" in said, said


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
def test_bad_values(tmp_path, old, new, word):
    """A value of the wrong kind is told at its line, with a word that helps."""
    text = GOOD.replace(old, new, 1)
    assert text != GOOD
    line, _, said = refused(check(tmp_path, text))
    assert word in said, said
    changed = [number for number, (a, b) in enumerate(zip(GOOD.splitlines(), text.splitlines()), 1) if a != b]
    assert abs(line - changed[0]) <= 1, (line, changed, said)


@pytest.mark.parametrize("text", ["tools: [", "tools:\n\tcalculator: {kind: native}\n", "- a\n- b\n", "just words", "tools: 5\n",
                                  "tools:\n  a: {kind: native\n", "a: &x [*x]\n", "tools:\n  calculator: native\n"])
def test_what_is_no_manifest(tmp_path, text):
    refused(check(tmp_path, text))


def test_aliases_that_explode(tmp_path):
    """A billion laughs is refused, or at least harmless, and soon."""
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    started = now()
    assert check(tmp_path, bomb).returncode == 64
    assert spent(started) < 10


def test_a_file_that_is_not_there(tmp_path):
    """Named, no panic; a missing manifest is a bad one (64) or a failed start (1)."""
    for what in (["check"], ["serve", "--listen", "127.0.0.1:0"]):
        done = cli(*what, "--manifest", "nothing.yaml", cwd=tmp_path)
        assert done.returncode in (1, 64) and "nothing.yaml" in done.stderr + done.stdout, done


def test_serve_says_the_same(tmp_path):
    """A bad manifest stops the start with 64 and the same place."""
    text = GOOD.replace("    timeout: 10s", "    timeuot: 10s")
    (tmp_path / "toolcrib.yaml").write_text(text)
    line, _, _ = refused(cli("serve", "--listen", "127.0.0.1:0", cwd=tmp_path))  # toolcrib.yaml here is found without a flag
    assert line == line_of(text, "timeuot")


@pytest.mark.parametrize("text", [
    "tools:\n  calculator: {kind: native}\n  calculator: {kind: native}\n",
    "tools:\n  a:\n    kind: native\n    use: calculator\n    use: calculator\n"])
def test_duplicate_keys(tmp_path, text):
    line, _, said = refused(check(tmp_path, text))
    assert line in (2, 3, 4, 5) and ("duplicate" in said.lower() or "twice" in said.lower() or "already" in said.lower()), said


def test_includes(start, tmp_path):
    """More tools from other files, relative to the manifest."""
    folder = tmp_path / "with"
    (folder / "tools.d").mkdir(parents=True)
    (folder / "tools.d" / "a.yaml").write_text(to_yaml({"tools": {"extra": sh("echo extra", effect="read")}}))
    crib = start('include: ["tools.d/*.yaml"]\ntools:\n  calculator: {kind: native}\n', folder=folder)
    assert "extra" in text_of(ok(crib.invoke("extra")))
    assert len(crib.get("/tools").json["tools"]) == 2


def test_duplicate_names_over_includes(tmp_path):
    """A second tool of a name is an error that names the tool and a file."""
    (tmp_path / "tools.d").mkdir()
    for name in ("a", "b"):
        (tmp_path / "tools.d" / f"{name}.yaml").write_text(to_yaml({"tools": {"twin": sh(f"echo {name}")}}))
    done = check(tmp_path, 'include: ["tools.d/*.yaml"]\n')
    said = done.stdout + done.stderr
    assert done.returncode == 64 and "twin" in said and re.search(r"[ab]\.yaml:\d+:\d+: ", said), done


def test_an_error_in_an_include_names_its_file(tmp_path):
    (tmp_path / "more.yaml").write_text("tools:\n  a:\n    kind: native\n    usse: calculator\n")
    line, _, said = refused(check(tmp_path, "include: [more.yaml]\n"), "more.yaml")
    assert line == 4 and "did you mean use?" in said, said


@pytest.mark.parametrize("text, word", [
    ("include: [more.yaml]\n", "more.yaml"), ("include: [toolcrib.yaml]\ntools:\n  calculator: {kind: native}\n", "toolcrib.yaml")])
def test_includes_that_lead_nowhere(tmp_path, text, word):
    """A named file that is missing, and one that includes itself: told, never a loop."""
    done = check(tmp_path, text)
    assert done.returncode == 64 and word in done.stderr + done.stdout, done


def test_an_include_may_not_bring_callers(tmp_path):
    (tmp_path / "more.yaml").write_text("callers:\n  - {name: evil, key_sha256: " + "0" * 64 + ", admin: true}\n")
    _, _, said = refused(check(tmp_path, "include: [more.yaml]\n"), "more.yaml")
    assert "callers" in said


def test_alias_clashes(tmp_path):
    tools = {"a": sh("echo a", aliases=["b"]), "b": sh("echo b")}
    done = check(tmp_path, {"tools": tools})
    assert done.returncode == 64 and "b" in done.stdout + done.stderr, done


@pytest.mark.parametrize("when, words", [
    ("result.temprature is definde", "no test `definde`"), ("result|lenght > 3", "no filter `lenght`"), ("temperature > 3", "args and result"),
    ("result. ==", "not an expression"), ("range(9)", "no `range`"), ("result.items()", "no methods"),
    ("result|replace('a', 'b') == 'b'", "no filter `replace`: there are abs"), ("args.a ~ args.b == 'x'", "not joined"),
    ("args.a * 100000 == 'x'", "takes numbers"), ("[args.a, args.b]|length > 1", "constants only")])
@pytest.mark.parametrize("place", ["tools.a", "defaults"])
def test_a_cache_condition_that_cannot_be(tmp_path, when, words, place):
    """Found when the manifest is read, once, with its place and what there is."""
    tool, cache = sh("echo a", effect="read"), {"cache": {"ttl": "5m", "when": when}}
    tools = {"a": dict(tool, **cache), "b": tool} if place == "tools.a" else {"a": tool, "b": tool}
    _, _, said = refused(check(tmp_path, dict({"defaults": cache} if place == "defaults" else {}, tools=tools)))
    assert f"{place}.cache.when: " in said and words in said and said.count("cache.when") == 1, said


def test_a_cache_condition_holds_no_secret(tmp_path):
    """Callers see it in the tool's policy."""
    tool = sh("echo a", effect="read", cache={"ttl": "5m", "when": "'${env:HOME}' == result"})
    _, _, said = refused(check(tmp_path, {"tools": {"a": tool}}))
    assert "tools.a.cache.when: callers see this" in said, said


def test_a_digest_key_that_could_be_guessed(tmp_path):
    _, _, said = refused(check(tmp_path, "ledger: {capture: digest, digest_key: short}\n"))
    assert "ledger.digest_key" in said and "16 bytes" in said, said


def test_a_ledger_bound_that_is_too_small(tmp_path):
    _, _, said = refused(check(tmp_path, "ledger: {max_bytes: 15MiB}\n"))
    assert "ledger.max_bytes" in said and "16.0 MiB" in said, said
    _, _, said = refused(check(tmp_path, "ledger: {max_bytes: 2000000000}\n"))
    assert "ledger.max_bytes" in said and "no size" in said, said


def test_what_later_issues_bring(tmp_path):
    """Not ignored and not 'unknown': the service says honestly that it is not built yet."""
    text = "tools:\n  word:\n    kind: command\n    description: Words\n    command: [/bin/true]\n    sandbox: {network: false}\n"
    _, _, said = refused(check(tmp_path, text))
    assert "not built yet" in said, said


# ---- secrets -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("reference, name", [("${env:NO_SUCH_KEY}", "NO_SUCH_KEY"), ("${file:/no/such/secret}", "/no/such/secret")])
def test_a_missing_secret_stops_the_start_by_name(tmp_path, reference, name):
    text = GOOD.replace('"$${not_a_reference}"', f'"{reference}"')
    (tmp_path / "toolcrib.yaml").write_text(text)
    done = cli("serve", "--listen", "127.0.0.1:0", cwd=tmp_path)
    said = done.stderr + done.stdout
    assert done.returncode in (1, 64) and name in said, done
    assert f"toolcrib.yaml:{line_of(text, reference)}:" in said, said


def test_a_declared_variable_that_is_missing(tmp_path):
    text = GOOD.replace("required: false, default: metric", "required: true")
    (tmp_path / "toolcrib.yaml").write_text(text)
    done = cli("serve", "--listen", "127.0.0.1:0", cwd=tmp_path)
    assert done.returncode in (1, 64) and "WEATHER_UNIT" in done.stderr + done.stdout, done


def test_a_secret_from_a_file_and_a_literal(start, up, tmp_path):
    """`${file:…}` is read without its last newline; `$${` is a literal `${`."""
    secret = tmp_path / "key"
    secret.write_text("from-the-file\n")
    crib = start({"tools": {"x": {"kind": "http", "description": "Echo of what is sent", "parameters": {}, "effect": "read", "request": {
        "method": "GET", "url": up.base + "/echo", "allow_private": True,
        "headers": {"x-key": "${file:%s}" % secret, "x-literal": "$${env:HOME}"}}}}})
    ok(crib.invoke("x"))
    sent = {name.lower(): value for name, value in up.requests[0][2].items()}
    assert sent["x-key"] == "from-the-file" and sent["x-literal"] == "${env:HOME}"


# ---- schemas -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("schema", [
    {"type": "objekt"}, {"type": 12}, {"type": "object", "properties": {"a": {"minimum": "five"}}}, {"type": "object", "required": "a"},
    {"type": "object", "properties": {"a": {"pattern": "("}}}, "a string", 5,
    {"type": "object", "properties": {"a": {"$ref": "#/$defs/missing"}}},
    {"$schema": "https://json-schema.org/draft/1999-99/schema", "type": "object"}])
def test_a_schema_that_is_none(tmp_path, schema):
    text = to_yaml({"tools": {"x": sh("echo x", input_schema=schema)}})
    line, _, said = refused(check(tmp_path, text))
    assert "input_schema" in said or "tools.x" in said, said
    assert line >= 2


@pytest.mark.parametrize("where", ["http://127.0.0.1:{port}/schema.json", "https://127.0.0.1:{port}/s", "file:///etc/passwd", "other.json"])
def test_references_outside_are_not_resolved(tmp_path, up, where):
    """No network, no file: refused at the check, and nobody was asked."""
    schema = {"type": "object", "properties": {"a": {"$ref": where.format(port=up.port)}}}
    _, _, said = refused(check(tmp_path, {"tools": {"x": sh("echo x", input_schema=schema)}}))
    assert "$ref" in said and "root:" not in said and up.hits() == 0, said


LOOPS = [{"$ref": "#"}, {"type": "object", "properties": {"child": {"$ref": "#"}}}, {"type": "object", "allOf": [{"$ref": "#"}]},
         {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
         {"type": "object", "properties": {"a": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}, {"$ref": "#"}]}}}]

REGEXES = [r"^(a+)+$", r"^(a|aa)+$", r"^(a*)*b$", r"^((a{1,100}){1,100}){1,100}$", r"^(?=(a+)+b)a", r"^(a+)\1+$", r"(x+x+)+y", r"^(.*a){25}$"]


def fast_or_refused(start, tmp_path, schema, arguments):
    """Refused by the check with its place, or legal: then it starts and answers fast, yes or no."""
    manifest = {"tools": {"x": sh("echo fine", effect="read", input_schema=schema)}}
    started = now()
    done = check(tmp_path, manifest)
    assert spent(started) < 5
    if done.returncode != 0:
        refused(done)
        return
    crib = start(manifest)
    for given in arguments:
        started = now()
        reply = crib.invoke("x", given)
        assert spent(started) < 2, given
        if reply.status != 200:
            problem(reply, {400, 422}, {"invalid_arguments", "invalid_request"})


@pytest.mark.parametrize("schema", LOOPS, ids=range(len(LOOPS)))
def test_recursive_schemas(start, tmp_path, schema):
    deep = {}
    for _ in range(40):
        deep = {"child": deep}
    fast_or_refused(start, tmp_path, schema, [{}, {"a": "x"}, {"child": {"child": {}}}, deep, {"a": {"a": {"a": {"a": {"a": 1}}}}}])


@pytest.mark.parametrize("pattern", REGEXES)
def test_no_pattern_explodes(start, tmp_path, pattern):
    schema = {"type": "object", "properties": {"text": {"type": "string", "pattern": pattern}}, "patternProperties": {pattern: {"type": "string"}}}
    texts = ["a" * 40 + "!", "a" * 20_000 + "!", "x" * 5_000, "b" * 10_000]
    fast_or_refused(start, tmp_path, schema, [{"text": text} for text in texts] + [{text: 1} for text in texts])


def test_a_recursive_schema_is_exact(start):
    """Where recursion is legal it is checked all the way down."""
    schema = {"type": "object", "properties": {"name": {"type": "string"}, "child": {"$ref": "#"}}, "required": ["name"]}
    crib = start({"tools": {"tree": sh("echo fine", effect="read", input_schema=schema)}})
    ok(crib.invoke("tree", {"name": "a", "child": {"name": "b"}}))
    said = problem(crib.invoke("tree", {"name": "a", "child": {"name": "b", "child": {"name": 5}}}), 422, "invalid_arguments")
    assert said["violations"][0]["pointer"] == "/child/child/name"


# ---- warnings ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("tool, word", [
    (sh("echo x", effect="write", retry={"attempts": 3}), "retry"),
    ({"kind": "http", "description": "Reads something inside", "parameters": {}, "effect": "read",
      "request": {"method": "GET", "url": "http://10.0.0.1/x"}}, "10.0.0.1")])
def test_a_policy_without_effect_is_a_warning(tmp_path, tool, word):
    """What cannot take effect is said, and is no error."""
    done = check(tmp_path, {"tools": {"x": tool}})
    assert done.returncode == 0 and word in done.stdout + done.stderr, done
