"""The console at `/`, as a person uses it, against a service with the tools of a shop's support desk."""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import harness
import postgres

HERE = Path(__file__).parent
CONSOLE = HERE.parent.parent / "console"
KEYS = {"support-agent": "support-key-0123456789abcdef", "billing-agent": "billing-key-0123456789abcdef", "operator": "operator-key-0123456789abcdef"}
CALLERS = f"""
callers:
  - {{name: support-agent, key: {KEYS['support-agent']}, deny: [stock_report]}}
  - {{name: billing-agent, key: {KEYS['billing-agent']}}}
  - {{name: operator, key: {KEYS['operator']}, admin: true}}
"""
APPROVED = ("refund_payment: {effect: write,", "refund_payment: {effect: write, approval: {wait: 60s, message: 'Pays money back'},")
VIEWS = {"now": "Now", "calls": "Calls", "runs": "Runs", "tools": "Tools", "approvals": "Approvals", "usage": "Usage"}


def open_shop(start, tmp_path, keys=False, change=None, **options):
    """A service with the shop's tools. `change`: a text of the manifest, and what stands there instead."""
    folder = tmp_path / "shop"
    shutil.copytree(HERE / "shop", folder)
    manifest = (HERE / "shop/toolcrib.yaml").read_text(encoding="utf-8")
    if change:
        assert change[0] in manifest
        manifest = manifest.replace(*change)
    crib = start((CALLERS if keys else "") + manifest, folder=folder, **options)
    crib.ready()
    harness.poll(lambda: crib.get("/tools/order_status", key=KEYS["operator"] if keys else None).status == 200, what="the shop's tools")
    return crib


def fill(crib, key=None, other=None):
    """A run with successes, a cached answer, an error result, a refusal, retries and a picture. Returns the ids by name."""
    def call(name, tool, arguments, key=key, **more):
        body = crib.invoke(tool, arguments, key=key, **more).json
        found[name] = body["invocation_id"]
    found = {}
    call("order", "order_status", {"order": "A-1001"}, run_id="chat-81")
    call("products", "search_products", {"text": "jacket", "max_price": 200}, run_id="chat-81")
    call("photo", "product_photo", {"sku": "J-412"}, run_id="chat-81")
    call("refund", "refund_payment", {"order": "A-1003", "amount": 89, "reason": "arrived late"}, run_id="chat-81")
    call("cached", "order_status", {"order": "A-1001"}, key=other or key, run_id="chat-82")
    call("missing", "order_status", {"order": "A-7777"}, run_id="chat-82")
    call("refused", "refund_payment", {"order": "A-1003", "amount": "all"}, run_id="chat-82")
    call("failed", "flaky_upstream", {"currency": "SEK"}, run_id="chat-82")
    for number in range(4):
        call(f"limited{number}", "refund_payment", {"order": "A-1002", "amount": 10 + number, "reason": "damaged"}, run_id="chat-83")
    call("used up", "refund_payment", {"order": "A-1001", "amount": 5, "reason": "again"}, run_id="chat-83")
    return found


def visit(page, crib, where="now"):
    page.goto(f"{crib.base}/#/{where}")
    heading = page.get_by_role("heading", level=1).first
    heading.wait_for()
    return page


def sign_in(page, crib, caller="operator"):
    page.goto(crib.base)
    page.get_by_label("Key").fill(KEYS[caller])
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", level=1, name="Now").wait_for()


def until(page, expression):
    """Waits in the test, since the page's policy refuses the polling of the driver."""
    harness.poll(lambda: page.evaluate(expression), what=expression)


def fits(page):
    """Nothing is wider than the window."""
    return page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_without_callers_the_page_opens_at_once(page, start, tmp_path, screenshot):
    crib = open_shop(start, tmp_path)
    fill(crib)
    visit(page, crib)
    assert page.get_by_label("Key").count() == 0
    page.get_by_text("in the last minute").wait_for()
    failures = page.get_by_role("region", name="Failures in 24 hours")
    failures.get_by_role("listitem").filter(has_text="flaky_upstream").get_by_text("Connection refused").wait_for()
    failures.get_by_role("listitem").filter(has_text="order_status").get_by_text("there is no order A-7777").wait_for()
    limits = page.get_by_role("region", name="Limits that run out")
    limits.get_by_role("link", name="refund_payment").wait_for()
    limits.get_by_text("used up").first.wait_for()
    page.locator(".tile", has_text="Queue").get_by_text("no call waits").wait_for()
    sources = page.get_by_role("region", name="Sources of tools")
    sources.filter(has_text=re.compile("desk.*6 tools", re.DOTALL)).wait_for()
    page.get_by_role("region", name="Service").get_by_text("ready").first.wait_for()


def test_running_call_is_shown_and_cancelled(page, start, tmp_path):
    crib = open_shop(start, tmp_path)
    fill(crib)
    answer = harness.in_background(lambda: crib.invoke("stock_report", {"warehouses": 400}))
    visit(page, crib)
    running = page.get_by_role("region", name="Running calls").first
    running.get_by_role("link", name="stock_report").wait_for()
    running.get_by_role("button", name="Cancel").click()
    running.get_by_text("No call runs.").wait_for()
    assert answer().json["kind"] == "cancelled"
    assert crib.rows("tool=stock_report")[0]["state"] == "cancelled"


def has_route(crib, path):
    return path in crib.get("/openapi.json").json["paths"]


def test_news_arrive_as_events(page, start, tmp_path):
    crib = open_shop(start, tmp_path)
    if not has_route(crib, "/events"):
        pytest.skip("this service has no /events")
    visit(page, crib)
    page.locator(".link-live").wait_for()
    answer = harness.in_background(lambda: crib.invoke("stock_report", {"warehouses": 400}))
    running = page.get_by_role("region", name="Running calls")
    running.get_by_text('"of":400').wait_for()
    running.get_by_role("button", name="Cancel").click()
    running.get_by_text("No call runs.").wait_for()
    assert answer().json["kind"] == "cancelled"


def test_calls_are_filtered_by_the_address(page, start, tmp_path, screenshot):
    crib = open_shop(start, tmp_path)
    fill(crib)
    visit(page, crib, "calls")
    rows = page.locator("table.calls tbody tr")
    rows.nth(12).wait_for()
    assert rows.count() == 13
    screenshot(page, "console-calls.png")
    page.get_by_role("combobox", name="State").select_option("refused")
    until(page, "document.querySelectorAll('table.calls tbody tr').length === 2")
    assert "state=refused" in page.url
    page.get_by_role("combobox", name="Tool").fill("order_status")
    page.get_by_text("No call fits these filters.").wait_for()
    page.get_by_role("button", name="Clear").click()
    rows.nth(12).wait_for()
    visit(page, crib, "calls?tool=order_status&run_id=chat-82")
    until(page, "document.querySelectorAll('table.calls tbody tr').length === 2")
    assert page.get_by_role("combobox", name="Tool").input_value() == "order_status"


def test_new_calls_appear_by_themselves(page, start, tmp_path):
    crib = open_shop(start, tmp_path)
    visit(page, crib, "calls")
    page.get_by_text("There is no call yet").wait_for()
    crib.invoke("calculator", {"expression": "6*7"})
    page.locator("table.calls").get_by_role("link", name="calculator").wait_for()


def test_keyboard_moves_and_opens(page, start, tmp_path):
    crib = open_shop(start, tmp_path)
    found = fill(crib)
    visit(page, crib, "calls")
    page.locator("table.calls tbody tr").nth(12).wait_for()
    for key in "jjjk":
        page.keyboard.press(key)
    until(page, "document.querySelectorAll('tr.chosen').length === 1")
    page.keyboard.press("Enter")
    page.get_by_role("heading", level=1, name="refund_payment").wait_for()
    assert found["limited3"] in page.url or found["limited2"] in page.url
    page.go_back()
    page.locator("table.calls").wait_for()
    page.keyboard.press("/")
    until(page, "document.activeElement.id === 'filter-tool'")


def test_list_is_endless(page, start, tmp_path):
    crib = open_shop(start, tmp_path)
    session = crib.session()
    for number in range(150):
        session.invoke("calculator", {"expression": f"{number}+1"})
    session.close()
    visit(page, crib, "calls")
    until(page, """() => { window.scrollTo(0, document.body.scrollHeight);
        return document.body.innerText.includes('150 calls, no older ones') }""")
    rows = page.locator("table.calls tbody tr:not(.spacer)")
    until(page, "document.querySelector('table.calls tbody').innerText.includes('\"0+1\"')")
    assert rows.count() < 150, "rows far from the window are not in the page"
    height = page.evaluate("document.querySelector('table.calls').offsetHeight / 151")
    assert abs(height - rows.first.bounding_box()["height"]) < 1, "the space of the others is kept"
    page.evaluate("scrollTo(0, 0)")
    rows.first.get_by_text('"149+1"').wait_for()
    for _ in range(130):
        page.keyboard.press("j")
    chosen = page.locator("tr.chosen")
    chosen.get_by_text('"20+1"').wait_for()
    assert 0 < chosen.bounding_box()["y"] < 860, "the keys scroll to rows that were not drawn"


def test_one_call_shows_its_result(page, start, tmp_path, screenshot):
    crib = open_shop(start, tmp_path)
    found = fill(crib)
    visit(page, crib, f"calls/{found['photo']}")
    picture = page.get_by_role("img", name="Picture in the result")
    picture.wait_for()
    until(page, "document.querySelector('.media img').naturalWidth === 320")
    screenshot(page, "console-call.png")
    visit(page, crib, f"calls/{found['products']}")
    page.get_by_role("cell", name="Trail jacket").wait_for()
    page.get_by_role("columnheader", name="price").wait_for()
    page.get_by_role("region", name="Limits charged").get_by_text("39 left").wait_for()
    page.get_by_role("button", name="As JSON").click()
    page.locator(".json-key").first.wait_for()


def test_one_call_tells_why_it_failed(page, start, tmp_path, screenshot):
    crib = open_shop(start, tmp_path)
    found = fill(crib)
    visit(page, crib, f"calls/{found['failed']}")
    attempts = page.get_by_role("region", name="Attempts")
    attempts.wait_for()
    attempts.get_by_role("listitem").nth(2).wait_for()
    assert attempts.get_by_role("listitem").count() == 3
    attempts.get_by_text("Connection refused").first.wait_for()
    screenshot(page, "console-failure.png")
    visit(page, crib, f"calls/{found['refused']}")
    page.get_by_text("`amount` must be a number").first.wait_for()
    visit(page, crib, f"calls/{found['used up']}")
    page.get_by_text("usage limit reached").first.wait_for()


def test_copies_run(page, start, tmp_path):
    """The copied command is a command: it makes the same call."""
    crib = open_shop(start, tmp_path)
    found = fill(crib)
    visit(page, crib, f"calls/{found['order']}")
    page.get_by_role("button", name="Copy as curl").click()
    page.get_by_text("Copied").wait_for()
    text = page.evaluate("navigator.clipboard.readText()")
    done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, timeout=20, env={"PATH": os.environ["PATH"], "TOOLCRIB_KEY": ""})
    assert "PostNord" in done.stdout, done.stderr
    page.get_by_role("button", name="Python", exact=True).click()
    page.get_by_role("button", name="Copy as Python").click()
    until(page, "navigator.clipboard.readText().then(text => text.startsWith('import os'))")
    text = page.evaluate("navigator.clipboard.readText()")
    package = HERE.parent.parent / "python/src"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=20, env={"PATH": os.environ["PATH"], "PYTHONPATH": str(package)})
    assert "PostNord" in done.stdout, done.stderr
    page.get_by_role("button", name="manifest test", exact=True).click()
    page.get_by_role("group", name="The call for test").filter(has_text="structured_content").wait_for()


def test_call_again_fills_the_form(page, start, tmp_path):
    crib = open_shop(start, tmp_path)
    found = fill(crib)
    visit(page, crib, f"calls/{found['order']}")
    page.get_by_role("link", name="Call again").click()
    until(page, "document.querySelector('.try input')?.value === 'A-1001'")
    page.get_by_role("button", name="Run", exact=True).click()
    page.locator(".outcome").get_by_text("PostNord").wait_for()
    page.locator(".outcome").filter(has_text="cache hit").wait_for()


def test_a_run_is_a_time_line(page, start, tmp_path):
    crib = open_shop(start, tmp_path)
    fill(crib)
    visit(page, crib, "runs")
    page.get_by_role("link", name="chat-81").click()
    page.get_by_role("heading", level=1, name="Run chat-81").wait_for()
    line = page.locator("table.waterfall tbody tr.call")
    line.nth(3).wait_for()
    assert [row.split("\n")[0].split("\t")[0].strip() for row in line.all_inner_texts()] == ["order_status", "search_products", "product_photo", "refund_payment"]


def test_service_that_stops_is_reported(page, start, tmp_path):
    crib = open_shop(start, tmp_path)
    fill(crib)
    page.expected += ["ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE", "status of 503"]
    visit(page, crib, "calls")
    page.locator("table.calls tbody tr").nth(12).wait_for()
    address = crib.base.removeprefix("http://")
    crib.kill9()
    page.get_by_text("The service cannot be reached. The page shows what it loaded last").wait_for()
    assert page.locator("table.calls tbody tr").count() == 13, "the rows stay"
    crib.args[crib.args.index("--listen") + 1] = address
    crib.start()
    page.get_by_text("The service cannot be reached.").wait_for(state="detached")
    crib.invoke("calculator", {"expression": "2+3"})
    page.locator("table.calls").get_by_role("link", name="calculator").wait_for()


def test_tools_are_searched_and_tried(page, start, tmp_path, screenshot):
    crib = open_shop(start, tmp_path)
    fill(crib)
    visit(page, crib, "tools")
    rows = page.locator("table.tools tbody tr")
    rows.nth(8).wait_for()
    screenshot(page, "console-tools.png")
    page.get_by_role("searchbox", name="Search").fill("catalogue jacket")
    page.get_by_text("No tool fits.").wait_for()
    page.get_by_role("searchbox", name="Search").fill("photo")
    until(page, "document.querySelectorAll('table.tools tbody tr').length === 1")
    page.get_by_role("searchbox", name="Search").fill("report")
    page.get_by_role("link", name="stock_report").click()
    page.get_by_label("warehouses").fill("3")
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_role("heading", name="Progress").wait_for()
    page.locator(".outcome").get_by_text("3612").wait_for()
    page.locator(".progress").filter(has_text="3 reports").wait_for()


def test_form_shows_what_is_wrong(page, start, tmp_path, screenshot):
    crib = open_shop(start, tmp_path)
    page.expected.append("status of 422.*/validate")
    visit(page, crib, "tools/refund_payment")
    page.get_by_label("order").fill("A-1001")
    page.get_by_role("button", name="Check only").click()
    page.locator("#main .field .fault").first.wait_for()
    page.get_by_role("region", name="Try it").filter(has_text="`reason` is required").wait_for()
    page.get_by_label("amount").fill("12.5")
    page.get_by_label("reason").fill("broken")
    page.get_by_role("button", name="Check only").click()
    page.get_by_text("The arguments are valid. Nothing was run.").wait_for()
    assert crib.rows("tool=refund_payment&state=succeeded") == []
    page.get_by_role("button", name="Run", exact=True).click()
    page.locator(".outcome").get_by_text("R-A-1001").wait_for()
    page.get_by_role("region", name="Limits").get_by_text("4 left").wait_for()
    screenshot(page, "console-tool.png")


ROOMS = ("tools:\n  calculator", "  rooms: {module: ./rooms.py}\n\ntools:\n  calculator")


def test_a_tool_asks_while_it_runs(page, start, tmp_path):
    crib = open_shop(start, tmp_path, change=ROOMS)
    page.expected.append("status of 422.*/answer")
    visit(page, crib, "tools/book_room")
    page.get_by_label("nights").fill("2")
    page.get_by_role("button", name="Run", exact=True).click()
    question = page.get_by_role("form", name="Question of book_room")
    question.get_by_text("2 nights in which room?").wait_for()
    question.get_by_label("room").select_option("garden")
    question.get_by_role("button", name="Answer").click()
    question.locator(".fault").first.wait_for()
    question.get_by_label("guests").fill("3")
    question.get_by_role("button", name="Answer").click()
    page.locator(".outcome").get_by_text("booked: garden for 3").wait_for()


def test_the_page_of_a_call_has_its_question(page, start, tmp_path):
    crib = open_shop(start, tmp_path, change=ROOMS)
    harness.poll(lambda: crib.get("/tools/book_room").status == 200, what="the tool that asks")
    asked = crib.invoke("book_room", {"nights": 3})
    assert asked.status == 202
    visit(page, crib, f"calls/{asked.json['invocation_id']}")
    question = page.get_by_role("form", name="Question of book_room")
    question.get_by_text("3 nights in which room?").wait_for()
    question.get_by_role("button", name="Decline").click()
    page.get_by_text("nothing is booked").first.wait_for()


def test_lists_and_json_in_forms(page, start, tmp_path):
    crib = open_shop(start, tmp_path)
    visit(page, crib, "tools/search_products")
    page.get_by_label("text").fill("jacket")
    page.get_by_role("button", name="Add").click()
    page.get_by_label("colours 1", exact=True).fill("navy")
    page.get_by_role("button", name="Run", exact=True).click()
    page.locator(".outcome").get_by_role("cell", name="Rain jacket").wait_for()
    assert page.locator(".outcome tbody tr").count() == 2
    page.get_by_role("button", name="JSON", exact=True).click()
    page.get_by_label("Arguments as JSON").fill('{"text": "j", "colours": ["red"]}')
    page.get_by_role("button", name="Run", exact=True).click()
    page.locator(".outcome").get_by_role("cell", name="Trail jacket").wait_for()
    assert crib.rows("tool=search_products")[0]["arguments"]["colours"] == ["red"]


def test_operator_switches_purges_and_resets(page, start, tmp_path):
    crib = open_shop(start, tmp_path)
    fill(crib)
    visit(page, crib, "tools/refund_payment")
    page.get_by_role("button", name="Disable").click()
    page.get_by_role("button", name="Yes").click()
    page.get_by_role("heading", level=1).get_by_text("disabled").wait_for()
    assert crib.invoke("refund_payment", {"order": "A", "amount": 1, "reason": "r"}).status == 403
    page.get_by_role("button", name="Enable").click()
    page.get_by_role("button", name="Disable").wait_for()
    page.get_by_role("region", name="Limits").get_by_text("0 left").wait_for()
    page.get_by_role("button", name="Reset usage").click()
    page.get_by_role("button", name="Yes").click()
    page.get_by_role("region", name="Limits").get_by_text("5 left").wait_for()
    visit(page, crib, "tools/order_status")
    page.get_by_role("button", name="Purge cache").click()
    page.get_by_text("Its stored results were removed").wait_for()
    assert crib.invoke("order_status", {"order": "A-1001"}).json["meta"]["cache"] == "miss"


def test_failures_are_found_by_state_and_text(page, start, tmp_path):
    """The list tells why a call failed, and a person saves what the filters leave."""
    crib = open_shop(start, tmp_path)
    found = fill(crib)
    visit(page, crib, "calls")
    rows = page.locator("table.calls tbody tr")
    page.get_by_label("State").select_option("without success")
    until(page, "document.querySelectorAll('table.calls tbody tr').length === 2")
    rows.filter(has_text="there is no order A-7777").wait_for()
    page.get_by_label("Text").fill("a-7777")
    until(page, "document.querySelectorAll('table.calls tbody tr').length === 1")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export").click()
    lines = Path(download.value.path()).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["invocation_id"] for line in lines] == [found["missing"]]
    page.get_by_role("button", name="Clear").click()
    until(page, "document.querySelectorAll('table.calls tbody tr').length === 13")


def test_tables_are_sorted_and_tools_grouped(page, start, tmp_path):
    crib = open_shop(start, tmp_path)
    fill(crib)
    visit(page, crib, "tools")
    names = lambda: [row.split("\t")[0].strip() for row in page.locator("table.tools tbody tr").all_inner_texts()]
    page.locator("table.tools tbody tr").nth(8).wait_for()
    everything = names()
    assert everything == sorted(everything)
    page.get_by_role("button", name="Calls").click()
    until(page, "document.querySelector('table.tools tbody tr').innerText.includes('refund_payment')")
    page.get_by_label("Source").select_option("desk")
    until(page, "document.querySelectorAll('table.tools tbody tr').length === 6")
    assert "sort=-calls" in page.url and "source=desk" in page.url
    visit(page, crib, "runs")
    failed = page.locator("table.runs tbody tr").filter(has_text="chat-83").locator("td").nth(4)
    failed.wait_for()
    assert failed.inner_text() == "", "a refused call has not failed"


def test_callers_limit_stands_once(page, start, tmp_path):
    change = (f"name: support-agent, key: {KEYS['support-agent']},", f"name: support-agent, key: {KEYS['support-agent']}, limits: [{{calls: 3, per: day}}],")
    callers = CALLERS.replace(*change)
    folder = tmp_path / "shop"
    shutil.copytree(HERE / "shop", folder)
    crib = start(callers + (HERE / "shop/toolcrib.yaml").read_text(encoding="utf-8"), folder=folder)
    crib.ready()
    for number in range(3):
        crib.invoke("calculator", {"expression": f"{number}+1"}, key=KEYS["support-agent"])
    sign_in(page, crib)
    limits = page.get_by_role("region", name="Limits that run out")
    limits.get_by_text("used up").wait_for()
    assert limits.locator(".limit").count() == 1
    assert "support-agent all tools" in limits.locator(".limit .line-head").inner_text()


def test_pages_in_the_history_hold_no_connection(page, start, tmp_path):
    """Chromium has six connections for each service, and keeps old pages in its back/forward cache."""
    crib = open_shop(start, tmp_path)
    for number in range(9):
        page.goto(f"{crib.base}/?visit={number}#/now")
        page.get_by_role("heading", level=1, name="Now").wait_for()
        page.locator(".link-live").wait_for()
    page.go_back()
    page.locator(".link-live").wait_for()
    crib.invoke("calculator", {"expression": "2+3"})
    page.goto(f"{crib.base}/?visit=last#/calls")
    page.locator("table.calls").get_by_role("link", name="calculator").wait_for()


def test_usage_names_who_used_up_the_limit(page, start, tmp_path, screenshot):
    crib = open_shop(start, tmp_path, keys=True)
    fill(crib, key=KEYS["support-agent"], other=KEYS["billing-agent"])
    sign_in(page, crib)
    visit(page, crib, "usage")
    limits = page.get_by_role("region", name="Limits that run out")
    limits.get_by_text("used up").wait_for()
    assert re.search(r"refund_payment\s+support-agent", limits.inner_text())
    page.get_by_role("button", name="By caller").click()
    page.get_by_role("link", name="billing-agent").wait_for()
    screenshot(page, "console-usage.png")
    page.get_by_role("link", name="support-agent").first.click()
    page.locator("table.calls").wait_for()
    assert "caller=support-agent" in page.url


def test_key_is_needed_and_is_in_no_address(page, start, tmp_path, screenshot):
    crib = open_shop(start, tmp_path, keys=True)
    fill(crib, key=KEYS["support-agent"], other=KEYS["billing-agent"])
    page.expected.append("status of 401")
    addresses = []
    page.on("request", lambda request: addresses.append(request.url))
    page.goto(crib.base)
    page.get_by_label("Key").fill("not-a-key-of-this-service")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_text("This key is not known here.").wait_for()
    screenshot(page, "console-key.png")
    sign_in(page, crib, "billing-agent")
    visit(page, crib, "calls")
    page.locator("table.calls tbody tr").first.wait_for()
    assert page.locator("table.calls tbody tr").count() == 1, "a caller sees its own calls"
    page.reload()
    page.locator("table.calls tbody tr").first.wait_for()
    assert not [address for address in addresses if "key-0123" in address]
    assert KEYS["billing-agent"] not in page.content()
    assert page.evaluate("JSON.stringify(localStorage)").count("key-") == 0
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Key").wait_for()
    until(page, "sessionStorage.length === 0")


def test_approvals_without_any(page, start, tmp_path):
    crib = open_shop(start, tmp_path)
    visit(page, crib, "approvals")
    page.get_by_text(re.compile("No call waits|This service has no approvals")).wait_for()


def test_one_call_is_approved_and_one_denied(page, start, tmp_path, axe, screenshot):
    folder = tmp_path / "probe"
    if not has_route(start({"tools": {"calculator": {"kind": "native"}}}, folder=folder), "/approvals"):
        pytest.skip("this service has no /approvals")
    shutil.copytree(HERE / "shop", tmp_path / "shop")
    manifest = (HERE / "shop/toolcrib.yaml").read_text(encoding="utf-8")
    manifest = manifest.replace(*APPROVED)
    crib = start(CALLERS + manifest, folder=tmp_path / "shop")
    harness.poll(lambda: crib.get("/tools/refund_payment", key=KEYS["operator"]).status == 200, what="the shop's tools")
    sign_in(page, crib)

    def ask(order, amount):
        return harness.in_background(lambda: crib.invoke("refund_payment", {"order": order, "amount": amount, "reason": "late"}, key=KEYS["support-agent"], run_id="chat-90"))

    def card():
        visit(page, crib, "approvals")
        found = page.get_by_role("article")
        found.wait_for()
        return found

    first = ask("A-1001", 20)
    page.locator(".badge").wait_for()
    card().get_by_role("button", name="Approve").click()
    assert first().json["structured_content"]["amount"] == 20
    page.get_by_text("No call waits").wait_for()
    second = ask("A-1002", 900)
    waiting = card()
    waiting.get_by_role("row", name="amount 20 900").wait_for()
    assert axe(page) == []
    screenshot(page, "console-approvals.png")
    waiting.get_by_label("Note").fill("too much")
    waiting.get_by_role("button", name="Deny").click()
    assert second().json["kind"] == "approval_denied"
    page.get_by_text("No call waits").wait_for()
    third = ask("A-1003", 500)
    waiting = card()
    waiting.get_by_role("button", name="Change the arguments").click()
    waiting.get_by_label("amount").fill("50")
    waiting.get_by_role("button", name="Approve the change").click()
    assert third().json["structured_content"]["amount"] == 50
    page.get_by_role("button", name="Denied").click()
    page.get_by_text("Note: too much").wait_for()
    visit(page, crib, "runs/chat-90")
    page.locator("tr.call").get_by_text("approved by operator").first.wait_for()
    page.locator("tr.call").get_by_text("denied by operator").wait_for()


NOTICES = """() => {
    window.notices = [];
    window.Notification = class {
        static permission = "default";
        static async requestPermission() { return (this.permission = "granted"); }
        constructor(title, options) { window.notices.push([title, options.body]); window.lastNotice = this; }
    };
    Object.defineProperty(document, "hidden", {get: () => window.looksAway === true});
}"""


def test_a_waiting_call_is_notified(page, start, tmp_path):
    """The browser notifies of a call that begins to wait, once it may, and only while the page is not looked at."""
    crib = open_shop(start, tmp_path, change=APPROVED)
    page.add_init_script(f"({NOTICES})()")
    visit(page, crib, "approvals")
    page.get_by_role("button", name="Notify me").click()
    page.get_by_role("button", name="Notify me").wait_for(state="detached")

    def ask(order):
        return harness.in_background(lambda: crib.invoke("refund_payment", {"order": order, "amount": 20, "reason": "late"}))

    seen = ask("A-1001")
    # The frame of the page loads a list of its own, which may come after the one of the view.
    until(page, "document.title.startsWith('(1) ')")
    assert page.evaluate("notices") == [], "the page is looked at"
    page.evaluate("window.looksAway = true")
    unseen = ask("A-1002")
    until(page, "notices.length === 1")
    (title, body), = page.evaluate("notices")
    assert title == "refund_payment waits for approval" and body.startswith("called by ")
    page.evaluate("location.hash = '#/tools'")
    page.evaluate("lastNotice.onclick()")
    page.get_by_role("heading", level=1, name="Approvals").wait_for()
    until(page, "document.title.startsWith('(2) ')")
    for _ in range(2):
        page.get_by_role("article").first.get_by_role("button", name="Deny").click()
        page.get_by_text("refund_payment was denied").wait_for()
        until(page, "document.querySelectorAll('article').length < 2")
    page.get_by_text("No call waits").wait_for()
    assert {seen().json["kind"], unseen().json["kind"]} == {"approval_denied"}


SLOW_LISTS = """() => {
    window.loads = 0;
    const send = window.fetch;
    window.fetch = async (path, options) => {
        if (!String(path).includes("/approvals?")) return send(path, options);
        await new Promise((done) => setTimeout(done, 2000));
        return send(path, options).finally(() => { window.loads += 1; });
    };
}"""


def test_a_new_approval_is_shown_soon_although_the_list_loads_slowly(page, start, tmp_path):
    """A list that takes long to load is loaded less often, but not this one: without the exception, the page waits 15 s."""
    crib = open_shop(start, tmp_path, change=APPROVED)
    page.add_init_script(f"({SLOW_LISTS})()")
    visit(page, crib, "approvals")
    until(page, "loads >= 2")
    answer = harness.in_background(lambda: crib.invoke("refund_payment", {"order": "A-1001", "amount": 20, "reason": "late"}))
    page.get_by_role("article").wait_for(timeout=14_000)
    page.get_by_role("article").get_by_role("button", name="Deny").click()
    assert answer().json["kind"] == "approval_denied"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_is_accessible_and_fits(new_page, start, tmp_path, axe, scheme):
    crib = open_shop(start, tmp_path, keys=True)
    found = fill(crib, key=KEYS["support-agent"], other=KEYS["billing-agent"])
    page = new_page(scheme)
    page.goto(crib.base)
    page.get_by_label("Key").wait_for()
    assert axe(page) == []
    sign_in(page, crib)
    places = [*VIEWS, "api", "api/invoke_tool", "runs/chat-82", "tools/search_products", "tools/flaky_upstream", *(f"calls/{found[name]}" for name in ("photo", "products", "failed", "refused"))]
    for where in places:
        visit(page, crib, where)
        page.locator(".panel, .empty").first.wait_for()
        for size in ({"width": 360, "height": 740}, {"width": 3840, "height": 2160}, {"width": 1360, "height": 860}):
            page.set_viewport_size(size)
            assert fits(page), (where, size)
            if size["width"] != 3840:
                assert axe(page) == [], (where, scheme, size)


def test_views_on_postgresql(page, start, tmp_path):
    if postgres.programs() is None:
        pytest.skip("PostgreSQL is not installed")
    server = postgres.Postgres(tmp_path / "postgres")
    try:
        crib = open_shop(start, tmp_path, ledger=server.url())
        found = fill(crib)
        visit(page, crib, "calls?state=failed")
        until(page, "document.querySelectorAll('table.calls tbody tr').length === 2")
        visit(page, crib, f"calls/{found['failed']}")
        page.get_by_role("region", name="Attempts").wait_for()
        visit(page, crib, "runs/chat-81")
        page.locator("table.waterfall tbody tr.call").nth(3).wait_for()
        visit(page, crib, "usage")
        page.get_by_role("region", name="Limits that run out").get_by_text("used up").wait_for()
        visit(page, crib)
        page.get_by_role("region", name="Failures in 24 hours").get_by_role("link", name="flaky_upstream").wait_for()
        page.goto("about:blank")
        crib.stop()
    finally:
        server.stop()


def test_colours_are_switched_and_kept(page, start, tmp_path, screenshot):
    crib = open_shop(start, tmp_path)
    fill(crib)
    visit(page, crib, "calls")
    theme = "document.documentElement.dataset.theme"
    until(page, f"{theme} === 'light'")
    page.get_by_role("button", name="Dark colours").click()
    until(page, f"{theme} === 'dark'")
    page.reload()
    page.locator("table.calls").wait_for()
    until(page, f"{theme} === 'dark'")
    page.set_viewport_size({"width": 400, "height": 760})
    screenshot(page, "console-dark.png")


def test_page_is_small():
    compressed = sum(len(gzip.compress(path.read_bytes(), 9)) for path in (CONSOLE / "dist").iterdir())
    assert compressed < 120_000


def test_committed_files_are_what_the_source_builds_to(tmp_path):
    modules = Path(os.environ.get("TOOLCRIB_CONSOLE_MODULES") or CONSOLE / "node_modules")
    if not (modules / ".bin/vite").exists():
        pytest.skip("no npm packages of the console here")
    copy = tmp_path / "console"
    shutil.copytree(CONSOLE, copy, ignore=shutil.ignore_patterns("node_modules", "dist"))
    (copy / "node_modules").symlink_to(modules.resolve())
    done = subprocess.run(["npm", "run", "--silent", "build"], cwd=copy, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    names = sorted(path.name for path in (CONSOLE / "dist").iterdir())
    assert sorted(path.name for path in (copy / "dist").iterdir()) == names
    for name in names:
        assert (copy / "dist" / name).read_bytes() == (CONSOLE / "dist" / name).read_bytes(), f"{name} is out of date: npm run build in console/"
