"""`toolcrib check`: each finding with its position, its rule and the correction, for people and for programs; exit 0 or 64."""

import json
import re

import pytest

from harness import cli

CLEAN = """\
callers:
  - {name: agent, key: "${env:AGENT_KEY}", allow: ["get_*"]}
  - {name: operator, key: "${env:OPERATOR_KEY}", admin: true}
tools:
  get_rows:
    kind: http
    description: Rows of a table by name. Use it for questions about stored orders.
    parameters:
      table: {type: string, description: "Table, e.g. orders"}
    request:
      url: https://api.example.com/tables/{{ table }}
      headers: {authorization: "Bearer ${env:ROWS_KEY}"}
    effect: read
    cache: {ttl: 5m}
"""

KEYS = {"AGENT_KEY": "agent-key-0123456789", "OPERATOR_KEY": "operator-key-0123456789", "ROWS_KEY": "rows-key-0123456789"}


def write(folder, text):
    (folder / "toolcrib.yaml").write_text(text, encoding="utf-8")


def findings(folder, text=None, env=KEYS, code=0, args=()):
    """The output of `--format json`; standard output has nothing else."""
    if text is not None:
        write(folder, text)
    done = cli("check", "--format", "json", *args, cwd=folder, env=env)
    assert done.returncode == code, done
    output = json.loads(done.stdout)
    for finding in output["findings"]:
        assert set(finding) == {"file", "line", "column", "path", "severity", "rule", "message"}, finding
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", finding["rule"]), finding
        assert finding["line"] >= 1 and finding["column"] >= 1 and finding["message"], finding
    for plural, severity in (("errors", "error"), ("warnings", "warning"), ("hints", "hint")):
        assert output[plural] == sum(finding["severity"] == severity for finding in output["findings"]), output
    return output


def line_of(text, part):
    return next(number for number, line in enumerate(text.splitlines(), 1) if part in line)


def test_clean_manifest_has_no_findings(tmp_path):
    report = findings(tmp_path, CLEAN)
    assert report["ok"] and report["findings"] == [] and (report["tools"], report["callers"]) == (1, 2), report
    done = cli("check", "--strict", cwd=tmp_path, env=KEYS)
    assert done.returncode == 0 and done.stdout.count("\n") == 1 and "0 warnings, 0 hints" in done.stdout, done


@pytest.mark.parametrize("old, new, rule, path, severity", [
    ("Rows of a table by name. Use it for questions about stored orders.", "Gets rows", "vague-description", "description", "warning"),
    ("    description: Rows of a table by name. Use it for questions about stored orders.\n", "", "missing-description", "", "warning"),
    (', description: "Table, e.g. orders"', "", "undescribed-parameter", "parameters.table", "warning"),
    ("type: string, ", "type: object, ", "open-object", "parameters.table", "warning"),
    ("type: string, ", "type: string, enum: [a, 5], ", "unreachable-enum", "parameters.table.enum.1", "warning"),
    ("type: string, ", "type: string, minLength: 5, maxLength: 4, ", "contradiction", "parameters.table.minLength", "warning"),
    ("    effect: read\n    cache: {ttl: 5m}\n", "    retry: {attempts: 3}\n", "ineffective", "retry", "warning"),
    ("${env:ROWS_KEY}", "0123456789abcdef", "literal-secret", "request.headers.authorization", "warning")])
def test_unusual_tool_settings_are_found(tmp_path, old, new, rule, path, severity):
    """One mistake causes one finding, at its line, in both formats; it is not an error."""
    text = CLEAN.replace(old, new, 1)
    assert text != CLEAN
    report = findings(tmp_path, text)
    assert [finding["rule"] for finding in report["findings"]] == [rule], report
    finding = report["findings"][0]
    assert finding["path"] == ".".join(part for part in ("tools.get_rows", path) if part), finding
    assert finding["severity"] == severity and finding["file"] == "toolcrib.yaml", finding
    changed = CLEAN[:CLEAN.index(old)].count("\n") + 1
    assert abs(finding["line"] - changed) <= 1, (finding, changed)
    line = cli("check", cwd=tmp_path, env=KEYS).stdout.splitlines()[0]
    place = f"toolcrib.yaml:{finding['line']}:{finding['column']}: {severity}: {finding['path']}: "
    assert line == f"{place}{finding['message']} [{rule}]", line
    assert cli("check", "--strict", cwd=tmp_path, env=KEYS).returncode == (64 if severity == "warning" else 0)


@pytest.mark.parametrize("old, new, rule, path", [
    ('["get_*"]', '["fetch_everything"]', "unused-caller", "callers.0"), ('["get_*"]', '["fetch_everything"]', "idle-pattern", "callers.0.allow.0"),
    (", admin: true", ", deny: [\"nothing_like_*\"]", "idle-pattern", "callers.1.deny.0"),
    ('"${env:AGENT_KEY}"', "agent-key-0123456789", "literal-secret", "callers.0.key")])
def test_unusual_caller_settings_are_found(tmp_path, old, new, rule, path):
    report = findings(tmp_path, CLEAN.replace(old, new, 1))
    assert (rule, path) in {(finding["rule"], finding["path"]) for finding in report["findings"]}, report


def test_short_secrets_are_found(tmp_path):
    """A key that can be guessed and a secret that cannot be redacted; neither is shown."""
    report = findings(tmp_path, CLEAN, env={**KEYS, "AGENT_KEY": "hunter22hunter2", "ROWS_KEY": "hunter2"})
    assert [finding["rule"] for finding in report["findings"]] == ["short-key", "short-secret"], report
    assert "hunter2" not in json.dumps(report)


def test_names_refused_by_providers_are_found(tmp_path):
    """Each names the providers that refuse it, and a name that all accept."""
    report = findings(tmp_path, CLEAN.replace("  get_rows:", "  get_rows.v2:").replace("table:", "'table[id]':").replace("{{ table }}", "x"))
    by_rule = {finding["rule"]: finding["message"] for finding in report["findings"]}
    assert "OpenAI, Anthropic and Bedrock" in by_rule["refused-name"] and "get_rows_v2" in by_rule["refused-name"], report
    assert "Anthropic" in by_rule["refused-parameter"] and "table_id_" in by_rule["refused-parameter"], report


def test_missing_secrets_are_found_with_their_positions(tmp_path):
    report = findings(tmp_path, CLEAN, env={}, code=64)
    missing = {finding["path"]: finding["line"] for finding in report["findings"] if finding["rule"] == "missing-secret"}
    assert missing == {"callers.0.key": 2, "callers.1.key": 3, "tools.get_rows.request.headers.authorization": 12}, report
    assert not report["ok"] and report["errors"] == 3, report
    # Another mistake in the same tool hides no reference, and no reference hides the next.
    text = CLEAN.replace("${env:ROWS_KEY}", "${env:ROWS_USER}${file:no-such-file}").replace("effect: read", "effect: reads")
    report = findings(tmp_path, text, env={}, code=64)
    (tool,) = [finding for finding in report["findings"] if finding["rule"] == "missing-secret" and finding["line"] == 12]
    assert "ROWS_USER" in tool["message"] and "no-such-file" in tool["message"] and report["errors"] == 4, report


def test_errors_and_lints_are_sorted_by_severity(tmp_path):
    """A mistake in one tool does not hide the findings of another."""
    text = CLEAN.replace("effect: read", "efect: read") + "  other:\n    kind: command\n    description: Does stuff\n    command: [/bin/true]\n"
    report = findings(tmp_path, text, code=64)
    assert [finding["severity"] for finding in report["findings"]][:2] == ["error", "warning"], report
    rules = {(finding["rule"], finding["line"]) for finding in report["findings"]}
    assert ("unknown-key", line_of(text, "efect")) in rules and ("vague-description", line_of(text, "Does stuff")) in rules, report


def test_finding_in_an_include_names_its_file(tmp_path):
    (tmp_path / "more.yaml").write_text("tools:\n  other:\n    kind: command\n    description: TODO\n    command: [/bin/true]\n")
    report = findings(tmp_path, "include: [more.yaml, 'none.d/*.yaml']\n" + CLEAN.split("tools:")[0])
    places = {(finding["rule"], finding["file"], finding["line"]) for finding in report["findings"]}
    assert ("vague-description", "./more.yaml", 4) in places or ("vague-description", "more.yaml", 4) in places, report
    assert ("idle-include", "toolcrib.yaml", 1) in places, report


@pytest.mark.parametrize("text, rule", [("tools: [", "unreadable"), ("- a\n", "unreadable"), (None, "unreadable"),
                                        ("tools:\n  a: {}\n  a: {}\n", "duplicate-name"), ("tool: {}\n", "unknown-key")])
def test_unreadable_manifest_is_reported_as_json(tmp_path, text, rule):
    report = findings(tmp_path, text, code=64)
    assert [finding["rule"] for finding in report["findings"]] == [rule] and report["findings"][0]["severity"] == "error", report
    assert report["findings"][0]["file"] == "toolcrib.yaml", report


@pytest.mark.parametrize("written", ["' '", "", "~", r'"\u200b\u2060\ufeff"', r'"\u2800"'])
def test_empty_description_is_an_error(tmp_path, written):
    text = f"tools:\n  x:\n    kind: command\n    description: {written}\n    command: [/bin/true]\n"
    (finding,) = [one for one in findings(tmp_path, text, code=64)["findings"] if one["severity"] == "error"]
    assert (finding["line"], "the description is empty" in finding["message"]) == (4, True), finding


def test_serve_does_not_lint(start):
    """The service's log reports settings without effect, not suggestions."""
    crib = start("tools:\n  x:\n    kind: command\n    description: Does stuff\n    command: [/bin/true]\n    retry: {attempts: 3}\n")
    crib.stop()
    assert "has no effect" in crib.stderr and "vague" not in crib.stderr, crib.stderr


def test_help_lists_the_rules(tmp_path):
    done = cli("check", "--help", cwd=tmp_path)
    assert done.returncode == 0
    for rule in ("vague-description", "open-object", "unreachable-enum", "missing-secret", "unused-caller"):
        assert rule in done.stdout, done.stdout
