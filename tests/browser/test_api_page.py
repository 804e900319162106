"""The page of the API at /docs, as a person uses it: open an operation, press Execute."""

import json
import os
import subprocess

import pytest

import harness

KEY = "ann-key-0123456789abcdef"
KEYS = {
    "callers": [{"name": "ann", "key": KEY, "allow": ["calculator"]}],
    "tools": {"calculator": {"kind": "native"}, "current_time": {"kind": "native"}},
}


def echo(description, parameters, **more):
    return dict({"kind": "command", "description": description, "effect": "read", "parameters": parameters,
                 "command": ["/usr/bin/printf", "%s", "{{ value }}"]}, **more)


OPEN = {"tools": {
    "calculator": {"kind": "native"},
    "repeat": echo("Repeats a word. Use it to test the service.", {"value": {"type": "string", "description": "A word"}},
                   examples=[{"arguments": {"value": "hello"}, "result": "hello"}]),
    "order_status": echo("Shows one order. Use it for questions about one order.",
                         {"value": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4}$", "description": "Number of the order"}}),
}}


def open_page(page, crib, path="/docs"):
    page.goto(f"{crib.base}{path}")
    page.locator(".operation").first.wait_for()
    return page


def block(page, path, method="post"):
    """The operation with this method and path."""
    head = page.locator(f".operation-head:has(.method-{method}):has(code.path:text-is('{path}'))")
    return page.locator(".operation").filter(has=head).first


def send(page, path, method="post"):
    """Opens the operation and presses Send, without any other input. Returns the status and the body."""
    operation = block(page, path, method)
    operation.locator(".operation-head").click()
    operation.get_by_role("button", name="Send").click()
    status = operation.locator(".outcome .status")
    status.wait_for()
    return int(status.inner_text()), operation.locator(".outcome").inner_text()


def has_operation(page, path, method="post"):
    return block(page, path, method).count() == 1


def test_first_click_runs_a_tool(page, start, screenshot):
    crib = start(None)
    open_page(page, crib)
    screenshot(page, "api-page.png")
    status, body = send(page, "/tools/calculator/invoke")
    assert status == 200 and "42" in body
    block(page, "/tools/calculator/invoke").get_by_role("button", name="Send").scroll_into_view_if_needed()
    screenshot(page, "api-page-call.png")
    assert page.complaints == []


@pytest.mark.parametrize("path, method", [
    ("/tools/repeat/invoke", "post"), ("/tools/order_status/invoke", "post"), ("/tools/{name}/invoke", "post"),
    ("/tools/{name}/validate", "post"), ("/calls", "post"), ("/tools", "get"), ("/tools/{name}", "get"), ("/usage", "get"),
    ("/invocations", "get"), ("/sources", "get"), ("/tools/{name}/disable", "post"), ("/tools/{name}/enable", "post"),
    ("/tools/{name}/usage/reset", "post"), ("/tools/{name}/cache", "delete"), ("/cache", "delete"), ("/readyz", "get"),
    ("/tools/{name}", "put"), ("/metrics", "get"),
])
def test_each_example_succeeds(page, start, path, method):
    crib = start(OPEN)
    status, body = send(open_page(page, crib), path, method)
    assert status in (200, 201), body
    assert '"is_error": true' not in body
    assert page.complaints == []


def test_copied_command_makes_the_same_request(page, start):
    crib = start(OPEN)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    operation = block(open_page(page, crib), "/tools/repeat/invoke")
    operation.locator(".operation-head").click()
    operation.get_by_role("button", name="Copy as curl").click()
    text = harness.poll(lambda: page.evaluate("navigator.clipboard.readText()"), what="the copied command")
    done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, timeout=20, env={"PATH": os.environ["PATH"]})
    assert json.loads(done.stdout)["content"] == [{"type": "text", "text": "hello"}], done.stderr


def test_operation_shows_its_schemas(page, start):
    crib = start(OPEN)
    operation = block(open_page(page, crib), "/tools/{name}", "get")
    operation.locator(".operation-head").click()
    operation.get_by_label("name").wait_for()
    assert operation.get_by_label("name").input_value() == "calculator"
    operation.locator("summary", has_text="Answer 200").click()
    fields = operation.locator("dl.fields").first
    assert "policy" in fields.inner_text() and "What the operator decided." in fields.inner_text()
    operation.locator("summary", has_text="Problems").click()
    assert operation.get_by_text("404").count() == 1
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_operations_are_grouped_and_searched(page, start):
    crib = start(OPEN)
    open_page(page, crib)
    groups = page.get_by_role("heading", level=2).all_inner_texts()
    assert groups[:6] == ["invoke", "tools", "mcp", "ledger", "operator", "health"]
    count = len(crib.get("/openapi.json").json["paths"])
    assert page.locator(".operation").count() >= count
    page.get_by_role("searchbox", name="Search").fill("replicas")
    page.get_by_text("/replicas").first.wait_for()
    harness.poll(lambda: page.locator(".operation").count() < 4, what="the search")
    page.get_by_role("searchbox", name="Search").fill("nothing-like-this")
    page.get_by_text("No operation fits.").wait_for()


def test_events_are_shown_as_they_arrive(page, start):
    crib = start(OPEN)
    operation = block(open_page(page, crib), "/events", "get")
    operation.locator(".operation-head").click()
    operation.get_by_role("button", name="Send").click()
    operation.locator(".outcome", has_text="open").wait_for()
    crib.invoke("repeat", {"value": "hello"})
    operation.get_by_role("group", name="Answer").get_by_text("invocation.ended").wait_for()
    operation.get_by_role("button", name="Stop").click()
    operation.get_by_role("button", name="Stop").wait_for(state="detached")
    assert page.complaints == []


def test_page_looks_like_the_product(page, start):
    crib = start(OPEN)
    open_page(page, crib)
    assert page.title() == "API · Toolcrib"
    assert page.get_by_role("link", name="Sign in").count() == 0, "nothing is locked"
    assert page.get_by_role("link", name="Calls").count() == 1, "the views of the console are beside it"
    assert page.url.endswith("/#/api")


def test_key_shows_the_tools_of_its_caller(page, start, screenshot):
    crib = start(KEYS)
    open_page(page, crib)
    page.get_by_text("Sign in with a caller's key.").wait_for()
    assert not has_operation(page, "/tools/calculator/invoke")
    page.get_by_role("link", name="Sign in").first.click()
    page.get_by_label("Key").fill(KEY)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name="API").click()
    block(page, "/tools/calculator/invoke").wait_for()
    screenshot(page, "api-page-key.png")
    assert not has_operation(page, "/tools/current_time/invoke"), "another caller's tool"
    status, body = send(page, "/tools/calculator/invoke")
    assert status == 200 and "42" in body
    assert KEY not in page.url
    assert page.complaints == []
