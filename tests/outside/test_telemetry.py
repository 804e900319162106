"""Spans, metrics and logs, as a collector made from the official protobuf definitions gets them."""

import json
import threading

import pytest
from collector import Collector, GrpcCollector, attributes, plain
from harness import cli, error_result, now, ok, poll, problem, elapsed
from model import KEY, Model, calls
from recipes import params, sh, to_yaml, web
from test_mcp import MODERN, messages_of, rpc, send
from test_metrics import scrape, value

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TRACE, CALLER_SPAN = PARENT.split("-")[1:3]
QUIET = PARENT[:-2] + "00"
SECRET = "sesame-open-0123456789"
FAST = {"OTEL_BSP_SCHEDULE_DELAY": "50", "OTEL_BLRP_SCHEDULE_DELAY": "50", "OTEL_METRIC_EXPORT_INTERVAL": "200"}


@pytest.fixture
def collector():
    collector = Collector()
    yield collector
    collector.close()


@pytest.fixture
def serve(start, collector):
    """Starts a service that sends to the collector."""
    def run(manifest, to=collector, env=None, **telemetry):
        return start({**manifest, "telemetry": {"otlp": to.url, **telemetry}}, env={**FAST, **(env or {})})
    return run


def tools(**tools):
    return {"tools": tools}


def test_call_has_a_span_by_the_conventions(serve, collector):
    crib = serve(tools(t=sh("echo hi", effect="read")), env={"OTEL_SERVICE_NAME": "crib", "OTEL_RESOURCE_ATTRIBUTES": "team=blue"})
    reply = ok(crib.invoke("t", run_id="r-7", tool_use_id="call_1", headers={"traceparent": PARENT, "tracestate": "a=1"}))
    span, = collector.wait_span("execute_tool t")
    assert (span.kind, span.trace, span.parent, span.state) == ("INTERNAL", TRACE, CALLER_SPAN, "a=1")
    assert span.flags & 0x301 == 0x301, "sampled, and its parent is remote"
    expected = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "t", "gen_ai.tool.type": "function",
                "gen_ai.tool.call.id": "call_1", "gen_ai.conversation.id": "r-7", "toolcrib.invocation_id": reply["invocation_id"],
                "toolcrib.state": "succeeded", "toolcrib.cache": "off", "toolcrib.attempts": 1, "toolcrib.tool.kind": "command"}
    assert expected.items() <= span.attributes.items()
    assert not span.failed and "error.type" not in span.attributes
    assert not {"gen_ai.tool.call.arguments", "gen_ai.tool.call.result"} & set(span.attributes)
    attempt, = collector.wait_span("attempt")
    assert (attempt.parent, attempt.trace, attempt.attributes["toolcrib.attempt"]) == (span.id, TRACE, 1)
    assert span.began <= attempt.began <= attempt.ended <= span.ended
    assert span.resource["service.name"] == "crib" and span.resource["team"] == "blue" and span.scope == "toolcrib"
    assert span.resource["service.version"] and span.resource["service.instance.id"]


def test_failures_and_retries_show_in_spans(serve, collector, upstream):
    upstream.script("/flaky", 503, "json")
    crib = serve(tools(flaky=web(upstream.base + "/flaky", effect="read", retry={"attempts": 3}),
                       no=sh("exit 3", effect="read"), slow=sh("sleep 30", effect="read", timeout="200ms"),
                       strict=sh("true", effect="read", input_schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})))
    ok(crib.invoke("flaky"))
    span, = collector.wait_span("execute_tool flaky")
    first, second = sorted((span for span in collector.spans() if span.name == "attempt"), key=lambda span: span.began)
    assert (first.parent, second.parent, first.kind) == (span.id, span.id, "CLIENT")
    assert first.attributes["error.type"] == "upstream_failed" and first.failed and not second.failed and not span.failed
    assert span.attributes["toolcrib.attempts"] == 2 and span.parent == ""
    error_result(crib.invoke("no"))
    failed, = collector.wait_span("execute_tool no")
    assert failed.failed and failed.attributes["error.type"] == "tool_error"
    problem(crib.invoke("slow"), 504)
    late, = collector.wait_span("execute_tool slow")
    assert late.failed and late.attributes["error.type"] == "attempt_timed_out" and late.message
    problem(crib.invoke("strict"), 422)
    refused, = collector.wait_span("execute_tool strict")
    assert refused.attributes["error.type"] == "invalid_arguments" and refused.attributes["toolcrib.attempts"] == 0


def test_context_that_goes_out_is_that_of_the_attempt(serve, collector, upstream):
    crib = serve(tools(echo=web(upstream.base + "/echo", effect="read")))
    sent = ok(crib.invoke("echo", headers={"traceparent": PARENT, "tracestate": "a=1"}))["structured_content"]["headers"]
    attempt, = collector.wait_span("attempt")
    assert sent["traceparent"] == f"00-{TRACE}-{attempt.id}-01" and sent["tracestate"] == "a=1"
    quiet = ok(crib.invoke("echo", headers={"traceparent": QUIET}))["structured_content"]["headers"]
    assert quiet["traceparent"] == QUIET, "the caller does not record, so nothing is"
    root = ok(crib.invoke("echo"))["structured_content"]["headers"]["traceparent"]
    collector.wait_span("attempt", test=lambda span: root == f"00-{span.trace}-{span.id}-03")
    assert len([span for span in collector.spans() if span.name == "execute_tool echo"]) == 2


def test_sampling_leaves_calls_out(start, collector, upstream):
    manifest = tools(t=sh("true", effect="read"), echo=web(upstream.base + "/echo", effect="read"))
    crib = start({**manifest, "telemetry": {"otlp": collector.url, "sample": 0}}, env=FAST)
    sent = ok(crib.invoke("echo"))["structured_content"]["headers"]
    assert sent["traceparent"].endswith(("-00", "-02")), "who is called learns that the trace is not recorded"
    ok(crib.invoke("t", headers={"traceparent": PARENT}))
    span, = collector.wait_span("execute_tool t")
    assert [span.name for span in collector.spans()] == ["attempt", "execute_tool t"], "the caller's decision goes before"
    crib.stop()
    collector.messages.clear()
    crib = start({**manifest, "telemetry": {"otlp": collector.url}}, env={**FAST, "OTEL_TRACES_SAMPLER": "always_off"})
    ok(crib.invoke("t", headers={"traceparent": PARENT}))
    crib.stop()
    assert collector.spans() == [] and collector.logs(), "only traces are sampled"


def test_agent_turns_and_nested_calls_are_below_the_call(serve, collector):
    model = Model()
    try:
        model.script("m", calls(("calculator", {"expression": "20 + 22"})), "It is 42.")
        agent = {"kind": "agent", "description": "Works out arithmetic.", "effect": "read", "tools": ["calculator"],
                 "model": {"base_url": model.base_url, "name": "m", "key": KEY}}
        crib = serve(tools(calculator={"kind": "native"}, math=agent))
        ok(crib.invoke("math", {"task": "20 + 22"}, headers={"traceparent": PARENT}))
    finally:
        model.close()
    call, = collector.wait_span("execute_tool math")
    invoked, = collector.wait_span("invoke_agent math")
    turns = collector.wait_span("chat m", 2)
    nested, = collector.wait_span("execute_tool calculator")
    assert invoked.parent == call.id and invoked.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert {span.parent for span in turns} == {invoked.id} and {span.kind for span in turns} == {"CLIENT"}
    assert {span.trace for span in (call, invoked, nested, *turns)} == {TRACE}
    assert {span.attributes["toolcrib.turn"] for span in turns} == {1, 2}
    assert turns[0].attributes["gen_ai.request.model"] == "m" and "gen_ai.usage.input_tokens" in turns[0].attributes
    assert nested.parent == invoked.id and nested.flags & 0x200 == 0, "its parent is in this process"
    assert nested.attributes["gen_ai.agent.name"] == "math"
    assert nested.attributes["toolcrib.parent_invocation_id"] == call.attributes["toolcrib.invocation_id"]


def test_mcp_requests_follow_the_conventions(serve, collector):
    crib = serve(tools(t=sh("echo hi", effect="read")))
    meta = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}, "traceparent": PARENT}
    fields = {"mcp_protocol_version": MODERN}
    call = rpc("tools/call", {"name": "t", "arguments": {}, "_meta": meta}, id="c-1")
    assert messages_of(send(crib, call, mcp_method="tools/call", mcp_name="t", **fields))[-1]["result"]
    assert messages_of(send(crib, rpc("tools/list", {"_meta": meta}, id=5), mcp_method="tools/list", **fields))[-1]["result"]
    span, = collector.wait_span("execute_tool t")
    shared = {"mcp.protocol.version": MODERN, "network.transport": "tcp"}
    assert (span.kind, span.trace, span.parent) == ("SERVER", TRACE, CALLER_SPAN)
    assert {**shared, "mcp.method.name": "tools/call", "jsonrpc.request.id": "c-1"}.items() <= span.attributes.items()
    listed, = collector.wait_span("tools/list")
    assert (listed.kind, listed.trace, listed.parent) == ("SERVER", TRACE, CALLER_SPAN)
    assert {**shared, "mcp.method.name": "tools/list", "jsonrpc.request.id": "5"}.items() <= listed.attributes.items()


def test_content_only_on_request_and_never_secrets(serve, start, collector):
    script = 'cat; printf %s "$KEY"'
    secret = {"env": [{"name": "KEY", "description": "a key", "required": True}]}
    schema = {"type": "object", "properties": {"word": {"type": "string"}, "pin": {"type": "string", "writeOnly": True}}}
    manifest = tools(t=sh(script, effect="read", input_schema=schema, **secret), d=sh("echo digested-result", effect="read", capture="digest"),
                     plain=sh('echo "a result and $KEY"', effect="read", **secret))
    crib = serve(manifest, capture=True, headers={"authorization": "Bearer ${env:OTLP_KEY}"}, env={"KEY": SECRET, "OTLP_KEY": "otlp-key-0123456789"})
    ok(crib.invoke("t", {"word": "wörd " + SECRET, "pin": "4711-4711"}))
    ok(crib.invoke("d", {"n": 424242}))
    ok(crib.invoke("plain"))
    shown, = collector.wait_span("execute_tool plain")
    assert "a result and" in shown.attributes["gen_ai.tool.call.result"]
    span, = collector.wait_span("execute_tool t")
    assert "wörd" in span.attributes["gen_ai.tool.call.arguments"]
    assert "gen_ai.tool.call.result" not in span.attributes, "it may repeat the value that is writeOnly"
    digested, = collector.wait_span("execute_tool d")
    assert "gen_ai.tool.call.arguments" not in digested.attributes and "gen_ai.tool.call.result" not in digested.attributes
    crib.stop()
    assert all(headers["authorization"] == "Bearer otlp-key-0123456789" for headers in collector.headers)
    for word in (SECRET, "4711-4711", "424242", "digested-result", "otlp-key"):
        assert word.encode() not in collector.raw, word
    collector.raw = b""
    crib = serve(manifest, env={"KEY": SECRET})
    ok(crib.invoke("t", {"word": "unique-word"}))
    crib.stop()
    assert collector.raw and b"unique-word" not in collector.raw


def test_metrics_are_those_of_the_route(serve, collector):
    crib = serve(tools(t=sh("true", effect="read", cache="5m")))
    for _ in range(3):
        ok(crib.invoke("t"))

    def counted():
        points = collector.metrics().get("toolcrib_calls_total")
        return points and sum(point.as_double for point in points.sum.data_points) == 3
    poll(counted, what="three calls in the metrics")
    found, (samples, types) = collector.metrics(), scrape(crib)
    names = {name + ("_total" if kind == "counter" else "") for name, kind in types.items()}
    assert set(found) <= names and len(names - set(found)) <= 1, names ^ set(found)
    calls = found["toolcrib_calls_total"].sum
    assert calls.is_monotonic and calls.aggregation_temporality == 2
    assert {(attributes(point)["cache"], point.as_double) for point in calls.data_points} >= {("miss", 1.0), ("hit", 2.0)}
    times = found["toolcrib_call_duration_seconds"]
    point, = times.histogram.data_points
    assert times.unit == "s" and point.count == 3 == sum(point.bucket_counts) and len(point.bucket_counts) == len(point.explicit_bounds) + 1
    assert 0 < point.start_time_unix_nano < point.time_unix_nano
    poll(lambda: value(scrape(crib)[0], "toolcrib_telemetry_records_total", signal="metrics", outcome="exported") > 0, what="exported points")


def test_log_lines_carry_the_trace(serve, collector):
    crib = serve(tools(t=sh("true", effect="read")))
    ok(crib.invoke("t", headers={"traceparent": PARENT}))
    ok(crib.invoke("t", headers={"traceparent": QUIET}))
    span, = collector.wait_span("execute_tool t")

    def lines():
        return [record for record in collector.logs() if plain(record.body) == "call"]
    poll(lambda: len(lines()) == 2, what="the lines of both calls")
    recorded, quiet = sorted(lines(), key=lambda record: -len(record.span_id))
    assert (recorded.trace_id.hex(), recorded.span_id.hex(), recorded.flags) == (TRACE, span.id, 1)
    assert (quiet.trace_id.hex(), quiet.span_id, quiet.flags) == (TRACE, b"", 0)
    assert attributes(recorded)["tool"] == "t" and recorded.severity_text == "INFO" and recorded.time_unix_nano
    crib.wait_for_log(f'"trace_id":"{TRACE}"')
    crib.stop()
    others = {plain(record.body) for record in collector.logs()} - {"call"}
    assert others, "lines that are not about calls come too"
    assert not any(attributes(record)["code.namespace"].startswith(("hyper", "reqwest")) for record in collector.logs())


@pytest.mark.parametrize("way", ["down", "hanging", "refusing"])
def test_dead_collector_costs_a_call_nothing(start, way):
    release = threading.Event()
    collector = Collector({"down": lambda path: 200, "hanging": lambda path: release.wait(60) and 503, "refusing": lambda path: 400}[way])
    if way == "down":
        collector.close()
    try:
        env = {**FAST, "OTEL_BSP_MAX_QUEUE_SIZE": "8", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "4", "OTEL_EXPORTER_OTLP_TIMEOUT": "500"}
        crib = start({**tools(calculator={"kind": "native"}), "telemetry": {"otlp": collector.url}}, env=env)
        began = now()
        for n in range(200):
            ok(crib.invoke("calculator", {"expression": f"{n} + 1"}))
        assert elapsed(began) < 10

        def lost():
            samples = scrape(crib)[0]
            return sum(value(samples, "toolcrib_telemetry_records_total", signal="traces", outcome=outcome) for outcome in ("dropped", "failed"))
        poll(lost, seconds=20, what="a lost span in the metrics")
        poll(lambda: "telemetry cannot be delivered" in crib.stderr, what="the line about the collector")
        crib.stop(within=10)
        assert crib.stderr.count("telemetry cannot be delivered") == 1, crib.stderr
    finally:
        release.set()
        if way != "down":
            collector.close()


def test_collector_that_comes_back_gets_what_waited(start):
    dead = {"is": True}
    collector = Collector(lambda path: 503 if dead["is"] else 200)
    try:
        crib = start({**tools(t=sh("true", effect="read")), "telemetry": {"otlp": collector.url}}, env=FAST)
        ok(crib.invoke("t"))
        crib.wait_for_log("telemetry cannot be delivered")
        dead["is"] = False
        collector.wait_span("execute_tool t")
        crib.wait_for_log("telemetry is delivered again")
    finally:
        collector.close()


def test_what_waits_is_sent_when_the_service_stops(start, collector):
    crib = start({**tools(t=sh("true", effect="read")), "telemetry": {"otlp": collector.url}})
    ok(crib.invoke("t"))
    assert not collector.spans(), "it collects for five seconds"
    crib.stop()
    assert [span.name for span in collector.spans()] == ["attempt", "execute_tool t"]
    assert collector.metrics()["toolcrib_calls_total"] and collector.logs()


def test_grpc_speaks_to_the_official_library(start):
    collector = GrpcCollector()
    try:
        manifest = {**tools(t=sh("true", effect="read")), "telemetry": {"otlp": collector.url, "protocol": "grpc", "headers": {"x-key": "abc"}}}
        crib = start(manifest, env=FAST)
        ok(crib.invoke("t", headers={"traceparent": PARENT}))
        span, = collector.wait_span("execute_tool t")
        assert span.parent == CALLER_SPAN
        poll(lambda: collector.logs() and collector.metrics(), what="the other signals")
        assert collector.headers[0]["x-key"] == "abc"
        import grpc
        collector.refuse = grpc.StatusCode.PERMISSION_DENIED
        ok(crib.invoke("t"))
        crib.wait_for_log("gRPC status 7")
        collector.refuse = None
        crib.stop()
        assert "panicked" not in crib.stderr
    finally:
        collector.close()


def test_variables_alone_configure_it(start, collector):
    env = {**FAST, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_EXPORTER_OTLP_HEADERS": "x-key=a%20b", "OTEL_METRICS_EXPORTER": "none"}
    crib = start(tools(t=sh("env", effect="read")), env=env)
    answer = ok(crib.invoke("t"))
    assert "OTEL" not in json.dumps(answer), "a tool does not get the variables"
    collector.wait_span("execute_tool t")
    crib.stop()
    assert not collector.metrics() and collector.headers[0]["x-key"] == "a b"
    collector.messages.clear()
    crib = start(tools(t=sh("true", effect="read")), env={**env, "OTEL_SDK_DISABLED": "true"})
    ok(crib.invoke("t"))
    crib.stop()
    assert not collector.messages
    assert "toolcrib_telemetry" not in str(collector.messages)


def test_check_reports_what_is_wrong(tmp_path):
    manifest = {**tools(t=sh("true")), "telemetry": {"otlp": "collector:4318", "sample": 2, "headers": {"a b": "c"}, "protocol": "json"}}
    (tmp_path / "toolcrib.yaml").write_text(to_yaml(manifest))
    done = cli("check", cwd=tmp_path)
    assert done.returncode == 64
    manifest["telemetry"].pop("protocol")
    (tmp_path / "toolcrib.yaml").write_text(to_yaml(manifest))
    done = cli("check", cwd=tmp_path)
    text = done.stdout + done.stderr
    assert done.returncode == 64
    for key in ("telemetry.otlp", "telemetry.sample", "telemetry.headers.a b"):
        assert key in text, text


def test_key_of_the_environment_is_in_no_output(start, collector):
    crib = start(tools(t=sh(f"echo {SECRET}", effect="read")),
                 env={**FAST, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{SECRET}"})
    assert SECRET not in ok(crib.invoke("t"))["content"][0]["text"]
    collector.wait_span("execute_tool t")
