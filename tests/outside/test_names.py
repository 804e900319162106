"""Names: exact, alias, one unambiguous other spelling, and likeness only where the manifest asks for it."""

import json
import urllib.parse

import pytest

from harness import cli, lines_in, ok, poll, problem
from recipes import CALLERS, KEYS, sh, to_yaml

ANN, ROOT = KEYS["ANN"], KEYS["ROOT"]


def read_tools(*names, **policy):
    return {name: sh(f"echo {name}", effect="read", **policy) for name in names}


def assert_name_warning(answer, name, real):
    """The answer names the requested spelling and has the tool's own name."""
    assert answer["tool"] == real, answer
    assert any(f"`{name}`" in warning and f"`{real}`" in warning for warning in answer["meta"]["warnings"]), answer


@pytest.fixture(scope="module")
def crib(start_shared):
    return start_shared({"tools": {**read_tools("get_weather", aliases=["forecast.now"]), **read_tools("list-rows", "List_Rows", "plain")}})


@pytest.mark.parametrize("name", ["GET_WEATHER", "get-weather", "Get.Weather", "functions.get_weather", "tools.Get-Weather",
                                  "default_api.get_weather", "default_api:get_weather", "Functions:get_weather", "get weather",
                                  "Forecast-Now", "functions.forecast_now"])
def test_other_spellings_find_the_tool(crib, name):
    path = urllib.parse.quote(name)
    answer = ok(crib.invoke(path))
    assert_name_warning(answer, name, "get_weather")
    assert crib.row(answer["invocation_id"])["tool"] == "get_weather", "the ledger has one name for it"
    assert crib.get("/tools/" + path).json["name"] == "get_weather"
    assert crib.post(f"/tools/{path}/validate", '{"arguments": {}}').json["valid"] is True
    metrics = crib.get("/metrics").body.decode()
    assert 'tool="get_weather"' in metrics and f'tool="{name}"' not in metrics


@pytest.mark.parametrize("name", ["get_weather", "forecast.now"])
def test_declared_names_cause_no_warning(crib, name):
    assert ok(crib.invoke(name))["meta"]["warnings"] == []


@pytest.mark.parametrize("name", ["getweather", "getWeather", "get__weather", "functions_get_weather", "mcp__x__get_weather",
                                  "weather", "other.get_weather", "functions.", "get_wether"])
def test_unrelated_names_are_unknown(crib, name):
    problem(crib.invoke(name), 404, "unknown_tool")


def test_ambiguous_spelling_finds_no_tool(crib):
    """Each is found by its own name, neither by a third, and both are suggested."""
    for name in ("list-rows", "List_Rows"):
        assert ok(crib.invoke(name))["tool"] == name
    error = problem(crib.invoke("list.rows"), 404, "unknown_tool")
    assert sorted(error["did_you_mean"]) == ["List_Rows", "list-rows"]


def test_operator_routes_need_exact_names(crib):
    for method, path in [("POST", "/disable"), ("POST", "/enable"), ("POST", "/usage/reset"), ("DELETE", "/cache"), ("DELETE", "")]:
        reply = crib.request(method, f"/tools/Get-Weather{path}")
        assert problem(reply, 404, "unknown_tool")["did_you_mean"] == ["get_weather"]
    assert crib.get("/tools/get_weather").json["available"] is True


def test_long_and_odd_names_are_refused_quickly(crib):
    for name in ("x" * 8000, "get_weather" + "%20" * 2000, "%00", "%F0%9F%92%A9", "functions." * 500 + "get_weather"):
        assert crib.invoke(name).status in (400, 404), name[:40]
    ok(crib.invoke("get_weather"))


def test_name_matching_setting_is_honoured(start, tmp_path):
    tools = {**read_tools("get_weather", "list_rows", "list_rowz", "read_mail"), "read_mail_all": sh("true", effect="write"), "send_mail": sh(f"echo sent >> {tmp_path / 'sent'}", effect="write"),
             "set_flag": sh("true", effect="idempotent")}
    exact = start({"calls": {"name_matching": "exact"}, "tools": tools})
    assert problem(exact.invoke("Get-Weather"), 404, "unknown_tool")["did_you_mean"] == ["get_weather"]
    similar = start({"calls": {"name_matching": "similar"}, "tools": tools})
    assert_name_warning(ok(similar.invoke("get_wether")), "get_wether", "get_weather")
    assert_name_warning(ok(similar.invoke("functions.Get-Wether")), "functions.Get-Wether", "get_weather")
    assert_name_warning(ok(similar.invoke("set_flags")), "set_flags", "set_flag")
    error = problem(similar.invoke("send_mails"), 404, "unknown_tool")
    assert error["did_you_mean"] == ["send_mail"] and lines_in(tmp_path / "sent") == 0, "never a write on a guess"
    assert sorted(problem(similar.invoke("list_row"), 404)["did_you_mean"]) == ["list_rows", "list_rowz"], "neither is likelier"
    assert problem(similar.invoke("read_mails_all"), 404)["did_you_mean"] == ["read_mail_all"], "nor what is less like it in its place"
    problem(similar.invoke("get_w"), 404, "unknown_tool")
    ok(similar.invoke("Send-Mail"))
    assert lines_in(tmp_path / "sent") == 1, "another spelling is no guess"


def test_tools_of_others_are_not_matched(start):
    callers = [dict(CALLERS[0], deny=["get-weather", "secret_rows"]), *CALLERS[1:]]
    crib = start({"callers": callers, "calls": {"name_matching": "similar"},
                  "tools": read_tools("get_weather", "get-weather", "secret_rows")}, env=KEYS)
    problem(crib.invoke("Get.Weather", key=ROOT), 404, "unknown_tool")
    assert_name_warning(ok(crib.invoke("Get.Weather", key=ANN)), "Get.Weather", "get_weather")
    problem(crib.invoke("get-weather", key=ANN), 403, "forbidden")
    for name in ("Secret-Rows", "secret_row", "functions.secret_rows"):
        error = problem(crib.invoke(name, key=ANN), 404, "unknown_tool")
        assert "secret_rows" not in json.dumps(error).replace(name, ""), error


@pytest.mark.parametrize("matching", ["exact", "normalized"])
def test_registered_tool_cannot_take_a_spelling(start, matching):
    """Neither that of a tool of the manifest, which may be disabled, nor that of another registered tool."""
    crib = start({"calls": {"name_matching": matching}, "tools": read_tools("get_weather", aliases=["forecast"], enabled=False)})

    def put(name, *aliases):
        body = {"kind": "http", "description": "x", "request": {"url": "https://api.example.com/"}, "parameters": {}, "aliases": aliases}
        return crib.request("PUT", f"/tools/{name}", json.dumps(body))

    assert put("r_a", "late").status == 201
    for name, alias, words in [
            ("Get-Weather", (), "`get_weather`, a tool of the manifest"), ("functions.get_weather", (), "`get_weather`"),
            ("FORECAST", (), "`get_weather`"), ("free", ("Get.Weather",), "`get_weather`"), ("free", ("ForeCast",), "`get_weather`"),
            ("R_a", (), "`r_a`, a tool that is registered already"), ("tools.r-a", (), "`r_a`"), ("Late", (), "`r_a`"), ("free", ("R.A",), "`r_a`")]:
        error = problem(put(name, *alias), 409, "invalid_request")
        assert f"is another spelling of {words}" in error["detail"], error
    assert [tool["name"] for tool in crib.get("/tools?origin=registered").json["tools"]] == ["r_a"]
    assert put("r_a", "R-A").status == 200, "its own name in another spelling"
    assert crib.delete("/tools/r_a").status == 200 and put("r-a").status == 201


def test_settings_change_on_reload(start):
    manifest = {"calls": {"name_matching": "exact"}, "tools": read_tools("get_weather")}
    crib = start(manifest)
    problem(crib.invoke("Get-Weather"), 404)
    crib.manifest.write_text(to_yaml({**manifest, "calls": {"name_matching": "normalized"}}))
    poll(lambda: crib.invoke("Get-Weather").status == 200, 8, "the new setting")


@pytest.mark.parametrize("calls, says", [
    ("{parallel: 0}", "calls.parallel: at least one call must be able to run"),
    ("{max_parse_attempts: {gpt-*: 0}}", "calls.max_parse_attempts: the first attempt counts too"),
    ("{format_reminder_every: -1}", "calls.format_reminder_every: 0 or more is expected here"),
    ("{name_matching: fuzzy}", "there are exact, normalized, similar"),
    ("{paralel: 5}", "did you mean parallel?"),
    ("[]", "calls: a map is expected here"),
])
def test_bad_settings_are_found(tmp_path, calls, says):
    (tmp_path / "toolcrib.yaml").write_text(f"calls: {calls}\ntools: {{calculator: {{kind: native}}}}\n")
    done = cli("check", cwd=tmp_path)
    assert done.returncode == 64 and says in done.stdout + done.stderr, done


def test_command_line_matches_names(tmp_path):
    (tmp_path / "toolcrib.yaml").write_text("tools: {calculator: {kind: native}}\n")
    done = cli("call", "functions.Calculator", '{"expression": "6*7"}', cwd=tmp_path)
    assert done.returncode == 0 and "42" in done.stdout, done
