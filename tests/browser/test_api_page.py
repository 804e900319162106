"""The page of the API at /docs, as a person uses it: open an operation, press Execute."""

import pytest

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
    page.wait_for_selector(".opblock")
    return page


def block(page, path, method="post"):
    return page.locator(f".opblock-{method}").filter(has=page.locator(f'[data-path="{path}"]')).first


def execute(page, path, method="post"):
    """Opens the operation and presses Execute, without any other input. Returns the status and the body."""
    operation = block(page, path, method)
    operation.locator(".opblock-summary").click()
    operation.get_by_role("button", name="Execute").click()
    row = operation.locator(".live-responses-table .response").first
    row.wait_for()
    return int(row.locator(".response-col_status").inner_text().split()[0]), row.inner_text()


def test_first_click_runs_a_tool(page, start, screenshot):
    crib = start(None)
    open_page(page, crib)
    screenshot(page, "api-page.png")
    status, body = execute(page, "/tools/calculator/invoke")
    assert status == 200 and "42" in body
    block(page, "/tools/calculator/invoke").get_by_role("button", name="Execute").scroll_into_view_if_needed()
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
    status, body = execute(open_page(page, crib), path, method)
    assert status in (200, 201), body
    assert '"is_error": true' not in body
    assert page.complaints == []


def test_an_opened_operation_is_short(page, start):
    crib = start(OPEN)
    operation = block(open_page(page, crib), "/tools/repeat/invoke")
    operation.locator(".opblock-summary").click()
    operation.get_by_role("button", name="Execute").wait_for()
    assert operation.bounding_box()["height"] < 1700
    assert operation.locator(".responses-table .response").count() == 2, "the answer, and one entry for all problems"


def test_page_looks_like_the_product(page, start):
    crib = start(OPEN)
    open_page(page, crib)
    assert page.title() == "Toolcrib API"
    assert "smartbear" not in page.content().lower()
    assert page.locator(".authorization__btn, .btn.authorize").count() == 0, "nothing is locked"
    assert page.locator("#notice").is_hidden()


def test_key_shows_the_tools_of_its_caller(page, start, screenshot):
    crib = start(KEYS)
    open_page(page, crib)
    assert "Authorize" in page.locator("#notice").inner_text()
    assert block(page, "/tools/calculator/invoke").count() == 0
    page.locator(".btn.authorize").first.click()
    dialog = page.locator(".modal-ux")
    dialog.locator("input").first.fill(KEY)
    dialog.get_by_role("button", name="Apply credentials").first.click()
    page.get_by_role("button", name="Close").first.click()
    block(page, "/tools/calculator/invoke").wait_for()
    screenshot(page, "api-page-key.png")
    assert block(page, "/tools/current_time/invoke").count() == 0, "another caller's tool"
    status, body = execute(page, "/tools/calculator/invoke")
    assert status == 200 and "42" in body
    assert page.complaints == []


def test_unknown_key_is_reported(page, start):
    crib = start(KEYS)
    open_page(page, crib)
    page.locator(".btn.authorize").first.click()
    dialog = page.locator(".modal-ux")
    dialog.locator("input").first.fill("not-a-key-of-this-service")
    dialog.get_by_role("button", name="Apply credentials").first.click()
    page.locator("#notice", has_text="not known").wait_for()
    assert block(page, "/tools/calculator/invoke").count() == 0
