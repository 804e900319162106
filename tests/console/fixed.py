"""Answers of a service with fixed data, for tests that compare how views look. The clock of the page stands at NOW."""

from datetime import datetime, timedelta, timezone
from urllib.parse import parse_qs, unquote, urlsplit

NOW = datetime(2026, 3, 14, 10, 30, tzinfo=timezone.utc)
STATES = ["succeeded", "succeeded", "failed", "succeeded", "refused", "succeeded", "timed_out", "succeeded"]
KINDS = {"failed": "upstream_failed", "refused": "invalid_arguments", "timed_out": "deadline_exceeded"}
TOOLS = ["order_status", "search_products", "refund_payment", "stock_report", "carrier_quote", "search_knowledge_base_of_the_support_department",
         "list_customers", "update_customers", "list_parcels", "calculator"]
CALLERS = ["support-agent", "billing-agent", "nightly-import"]


def time_of(seconds_ago):
    return (NOW - timedelta(seconds=seconds_ago)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def call(number, ago, tool, state="succeeded", took=18.0, run=None, caller="support-agent", **more):
    return {"invocation_id": f"019ce{9999 - number:04d}-0000-7000-8000-{number:012d}", "tool": tool, "caller": caller, "run_id": run, "tool_use_id": None,
            "idempotency_key": None, "parent": None, "state": state, "kind": KINDS.get(state), "detail": "carrier.example refused the connection" if state == "failed" else None,
            "cache": "hit" if number % 7 == 0 else "off", "attempts": 3 if state == "failed" else 1, "started_at": time_of(ago),
            "duration_ms": None if state in ("running", "waiting") else took, "arguments": {"order": f"A-{1000 + number}", "text": "late delivery"},
            "replica": None, "count": 1, "trace_id": None, **more}


CALLS = [call(n, 4 + 13 * n, TOOLS[n % 10], STATES[n % 8], 3.5 * (n % 9 + 1), f"chat-{90 + n % 5}", CALLERS[n % 3]) for n in range(45)]
RUNNING = [call(900, 12, "stock_report", "running", run="chat-90")]
# Two calls, a model that thinks for two seconds, a call with a call of its own, another pause, and a refund that a person approved.
TURNS = [call(104, 60, "order_status", took=240, run="chat-42"), call(103, 59.9, "search_products", took=400, run="chat-42"),
         call(102, 57.5, "support_agent", took=1800, run="chat-42"), call(101, 57.1, "list_customers", took=300, run="chat-42"),
         call(100, 50, "refund_payment", took=90, run="chat-42")]
TURNS[3]["parent"] = TURNS[2]["invocation_id"]


def approval(of, state="waiting", amount=8900.0, **more):
    return {"invocation_id": of["invocation_id"], "tool": "refund_payment", "caller": "support-agent", "run_id": "chat-42", "tool_use_id": None,
            "arguments": {"order": "A-1003", "amount": amount, "reason": "damaged on arrival"}, "state": state, "message": "Pays money back to a customer.",
            "original_arguments": None, "by": [], "can_decide": True, "requested_at": time_of(54), "expires_at": time_of(-3600),
            "decided_at": None, "decided_by": None, "note": None, **more}


WAITING = [approval(call(910, 54, "refund_payment", "waiting")), approval(call(911, 54, "refund_payment", "waiting"), amount=12.0)]
APPROVED = [approval(TURNS[4], "approved", 89.0, decided_at=time_of(50), decided_by="operator")]


def limit(used, most=20, per="hour", scope="caller", of="tool"):
    return {"limit": most, "calls": most, "per": per, "scope": scope, "of": of, "used": used, "remaining": most - used, "resets_at": time_of(-1800)}


def tool(name):
    return {"name": name, "description": f"Answers questions about {name.replace('_', ' ')}. Use it when a customer asks.", "annotations": {}, "kind": "python", "origin": "manifest",
            "effect": "write" if name.startswith(("refund", "update")) else "read", "tags": ["shop"], "aliases": [], "available": name != "carrier_quote", "definition_hash": "0" * 64,
            "input_schema": {"type": "object", "properties": {"order": {"type": "string", "description": "Number of the order."}, "amount": {"type": "number"}}, "required": ["order"]}, "output_schema": None}


POLICY = {"effect": "read", "timeout": "30s", "deadline": None, "retry": {"attempts": 3}, "limits": [{"calls": 20, "per": "hour", "scope": "caller"}], "cache": None,
          "concurrency": {"max": 16, "queue": 64, "wait": "5s", "per_caller": None}, "on_disconnect": "cancel", "idempotency": "key", "capture": "full", "repeatable": False,
          "strict": False, "enabled": True}
USAGE = [{"tool": name, "caller": CALLERS[n % 3], "calls": 400 - 37 * n, "succeeded": 380 - 37 * n, "failed": 20 if n % 4 == 2 else 0, "refused": n, "cache_hits": 90 if n == 0 else 0,
          "p50_ms": 4.5 * (n + 1), "p99_ms": 40.0 * (n + 1), "limits": [limit(20 if n == 6 else 15 if n == 7 else 2)]} for n, name in enumerate(TOOLS)]
OPERATION = {"tags": ["tools"], "summary": "One tool, with its policy.", "description": "The tool as `GET /tools` shows it.", "operationId": "get_tool",
             "parameters": [{"name": "name", "in": "path", "required": True, "example": "order_status", "schema": {"type": "string"}}],
             "responses": {"200": {"description": "The tool"}, "404": {"description": "There is no such tool"}}}


def detail(found):
    error = {"type": "urn:problem", "title": "The tool failed", "status": 502, "detail": "carrier.example refused the connection", "kind": "upstream_failed", "source": "tool",
             "retryable": True, "retry_after_ms": None}
    answer = {"is_error": False, "content": [{"type": "text", "text": "ok"}], "structured_content": [{"sku": f"J-{n}", "price": 59 + n, "stock": 4 * n} for n in range(6)],
              "meta": {"cache": "off", "attempts": 1, "duration_ms": 18, "usage": [limit(15)], "coercions": [], "overflow": None, "warnings": []}}
    attempts = [{"attempt": n, "kind": "connection", "message": "carrier.example refused the connection", "duration_ms": 30.0 * n} for n in (1, 2, 3)]
    return {**found, "result": answer if found["state"] == "succeeded" else error, "result_digest": None, "attempt_errors": attempts if found["state"] == "failed" else []}


def answer(url):
    """The JSON of a route, text for the metrics, or None: not a route of the data."""
    parts = urlsplit(url)
    path, query = unquote(parts.path), {name: values[0] for name, values in parse_qs(parts.query).items()}
    everything = CALLS + TURNS + RUNNING
    if path == "/console/session":
        return {"needs_key": True, "caller": "operator", "admin": True, "version": "1.0.0"}
    if path == "/invocations":
        rows = TURNS if query.get("run_id") else [] if "parent" in query else RUNNING + CALLS
        if query.get("state"):
            rows = [row for row in rows if row["state"] in query["state"].split(",")]
        return {"invocations": rows, "next_cursor": None}
    if path.startswith("/invocations/"):
        return detail(next(row for row in everything if row["invocation_id"] == path.split("/")[2]))
    if path == "/usage":
        return {"buckets": [{**row, "start": time_of((60 if query["bucket"] == "1m" else 3600) * n), "calls": row["calls"] // (n % 7 + 3), "run_id": None}
                            for n in range(40) for row in USAGE[: n % 5 + 1]]} if "bucket" in query else {"tools": USAGE, "callers": [{"caller": "nightly-import", "limits": [limit(380, 400, "day", of="caller")]}]}
    if path == "/approvals":
        return {"approvals": {"waiting": WAITING, "approved": APPROVED}.get(query.get("state"), []), "next_cursor": None}
    return {
        "/tools": {"tools": [tool(name) for name in TOOLS]},
        "/tools/list_customers": {**tool("list_customers"), "policy": POLICY, "usage": [limit(2)], "env": [], "breaker": "closed"},
        "/sources": {"sources": [{"name": "desk", "kind": "python", "state": "up", "tools": 10, "workers": 2, "replaced": 0, "doing": None, "fault": None, "fault_at": None,
                                  "warnings": [], "stopped": [], "findings": [], "operations": None}]},
        "/replicas": {"replicas": [{"replica": "0" * 36, "version": "1.0.0", "started_at": time_of(9000), "seen_at": time_of(2), "running": 1, "self": True}]},
        "/readyz": {"status": "ready", "manifest": "current", "ledger": "up", "breakers": [{"tool": "carrier_quote", "state": "open", "failures": 9, "retry_after_ms": 900}]},
        "/openapi.json": {"openapi": "3.1.0", "tags": [{"name": "tools", "description": "List tools and run them."}], "paths": {"/tools/{name}": {"get": OPERATION}}},
        "/metrics": 'toolcrib_queued{tool="stock_report"} 3\n',
    }.get(path)
