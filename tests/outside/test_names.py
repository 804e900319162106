"""Names: exact, alias, one unambiguous other spelling, and likeness only where the manifest asks for it."""

import json
import urllib.parse

import pytest

from harness import cli, lines_in, ok, poll, problem
from recipes import CALLERS, KEYS, sh, to_yaml

ANN, ROOT = KEYS["ANN"], KEYS["ROOT"]


def reads(*names, **policy):
    return {name: sh(f"echo {name}", effect="read", **policy) for name in names}


def told(answer, name, real):
    """The answer says under which name it was called, and has the tool's own."""
    assert answer["tool"] == real, answer
    assert any(f"`{name}`" in warning and f"`{real}`" in warning for warning in answer["meta"]["warnings"]), answer


@pytest.fixture(scope="module")
def crib(start_shared):
    return start_shared({"tools": {**reads("get_weather", aliases=["forecast.now"]), **reads("list-rows", "List_Rows", "plain")}})


@pytest.mark.parametrize("name", ["GET_WEATHER", "get-weather", "Get.Weather", "functions.get_weather", "tools.Get-Weather",
                                  "default_api.get_weather", "default_api:get_weather", "Functions:get_weather", "get weather",
                                  "Forecast-Now", "functions.forecast_now"])
def test_another_spelling(crib, name):
    path = urllib.parse.quote(name)
    answer = ok(crib.invoke(path))
    told(answer, name, "get_weather")
    assert crib.row(answer["invocation_id"])["tool"] == "get_weather", "the ledger has one name for it"
    assert crib.get("/tools/" + path).json["name"] == "get_weather"
    assert crib.post(f"/tools/{path}/validate", '{"arguments": {}}').json["valid"] is True
    metrics = crib.get("/metrics").body.decode()
    assert 'tool="get_weather"' in metrics and f'tool="{name}"' not in metrics


@pytest.mark.parametrize("name", ["get_weather", "forecast.now"])
def test_declared_names_need_no_word(crib, name):
    assert ok(crib.invoke(name))["meta"]["warnings"] == []


@pytest.mark.parametrize("name", ["getweather", "getWeather", "get__weather", "functions_get_weather", "mcp__x__get_weather",
                                  "weather", "other.get_weather", "functions.", "get_wether"])
def test_what_is_no_spelling(crib, name):
    problem(crib.invoke(name), 404, "unknown_tool")


def test_two_tools_of_one_spelling(crib):
    """Each is found by its own name, neither by a third, and both are named."""
    for name in ("list-rows", "List_Rows"):
        assert ok(crib.invoke(name))["tool"] == name
    said = problem(crib.invoke("list.rows"), 404, "unknown_tool")
    assert sorted(said["did_you_mean"]) == ["List_Rows", "list-rows"]


def test_operators_routes_take_names_as_they_are(crib):
    for method, path in [("POST", "disable"), ("POST", "enable"), ("POST", "usage/reset"), ("DELETE", "cache")]:
        reply = crib.request(method, f"/tools/Get-Weather/{path}")
        assert problem(reply, 404, "unknown_tool")["did_you_mean"] == ["get_weather"]
    assert crib.get("/tools/get_weather").json["available"] is True


def test_long_and_odd_names_are_refused_quickly(crib):
    for name in ("x" * 8000, "get_weather" + "%20" * 2000, "%00", "%F0%9F%92%A9", "functions." * 500 + "get_weather"):
        assert crib.invoke(name).status in (400, 404), name[:40]
    ok(crib.invoke("get_weather"))


def test_exact_and_similar_are_the_operators_word(start, tmp_path):
    tools = {**reads("get_weather", "list_rows", "list_rowz"), "send_mail": sh(f"echo sent >> {tmp_path / 'sent'}", effect="write"),
             "set_flag": sh("true", effect="idempotent")}
    exact = start({"calls": {"name_matching": "exact"}, "tools": tools})
    assert problem(exact.invoke("Get-Weather"), 404, "unknown_tool")["did_you_mean"] == ["get_weather"]
    similar = start({"calls": {"name_matching": "similar"}, "tools": tools})
    told(ok(similar.invoke("get_wether")), "get_wether", "get_weather")
    told(ok(similar.invoke("functions.Get-Wether")), "functions.Get-Wether", "get_weather")
    told(ok(similar.invoke("set_flags")), "set_flags", "set_flag")
    said = problem(similar.invoke("send_mails"), 404, "unknown_tool")
    assert said["did_you_mean"] == ["send_mail"] and lines_in(tmp_path / "sent") == 0, "never a write on a guess"
    assert sorted(problem(similar.invoke("list_row"), 404)["did_you_mean"]) == ["list_rows", "list_rowz"], "neither is likelier"
    problem(similar.invoke("get_w"), 404, "unknown_tool")
    ok(similar.invoke("Send-Mail"))
    assert lines_in(tmp_path / "sent") == 1, "another spelling is no guess"


def test_what_others_may_use_is_out_of_the_way_and_out_of_sight(start):
    callers = [dict(CALLERS[0], deny=["get-weather", "secret_rows"]), *CALLERS[1:]]
    crib = start({"callers": callers, "calls": {"name_matching": "similar"},
                  "tools": reads("get_weather", "get-weather", "secret_rows")}, env=KEYS)
    problem(crib.invoke("Get.Weather", key=ROOT), 404, "unknown_tool")
    told(ok(crib.invoke("Get.Weather", key=ANN)), "Get.Weather", "get_weather")
    problem(crib.invoke("get-weather", key=ANN), 403, "forbidden")
    for name in ("Secret-Rows", "secret_row", "functions.secret_rows"):
        said = problem(crib.invoke(name, key=ANN), 404, "unknown_tool")
        assert "secret_rows" not in json.dumps(said).replace(name, ""), said


def test_no_registered_tool_takes_a_spelling_away(start):
    crib = start({"tools": reads("get_weather", aliases=["forecast"])})
    body = json.dumps({"kind": "http", "description": "x", "request": {"url": "https://api.example.com/"}, "parameters": {}})
    for name in ("Get-Weather", "functions.get_weather", "FORECAST"):
        said = problem(crib.request("PUT", f"/tools/{name}", body), 409)
        assert "another spelling of `get_weather`" in said["detail"], said
    assert crib.request("PUT", "/tools/get_weather_2", body).status == 201
    told(ok(crib.invoke("Get-Weather")), "Get-Weather", "get_weather")


def test_the_settings_change_while_it_runs(start):
    manifest = {"calls": {"name_matching": "exact"}, "tools": reads("get_weather")}
    crib = start(manifest)
    problem(crib.invoke("Get-Weather"), 404)
    crib.manifest.write_text(to_yaml({**manifest, "calls": {"name_matching": "normalized"}}))
    poll(lambda: crib.invoke("Get-Weather").status == 200, 8, "the new setting")


@pytest.mark.parametrize("calls, says", [
    ("{parallel: 0}", "calls.parallel: at least one call must be able to run"),
    ("{max_parse_attempts: 0}", "calls.max_parse_attempts"),
    ("{name_matching: fuzzy}", "`exact`, `normalized`, `similar`"),
    ("{paralel: 5}", "did you mean parallel?"),
    ("[]", "calls: a map is expected here"),
])
def test_bad_settings(tmp_path, calls, says):
    (tmp_path / "toolcrib.yaml").write_text(f"calls: {calls}\ntools: {{calculator: {{kind: native}}}}\n")
    done = cli("check", cwd=tmp_path)
    assert done.returncode == 64 and says in done.stdout + done.stderr, done


def test_check_warns_of_names_that_differ_in_spelling_only(tmp_path):
    (tmp_path / "toolcrib.yaml").write_text(
        "tools:\n  add_up: {kind: native, use: calculator}\n  Add-Up: {kind: native, use: calculator}\n")
    done = cli("check", "--format", "json", cwd=tmp_path)
    found = [one for one in json.loads(done.stdout)["findings"] if one["rule"] == "ambiguous-name"]
    assert [(one["severity"], one["line"]) for one in found] == [("warning", 3)], done
    assert "`add_up`" in found[0]["message"], found


def test_the_command_line_says_it_too(tmp_path):
    (tmp_path / "toolcrib.yaml").write_text("tools: {calculator: {kind: native}}\n")
    done = cli("call", "functions.Calculator", '{"expression": "6*7"}', cwd=tmp_path)
    assert done.returncode == 0 and "42" in done.stdout, done
