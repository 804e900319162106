"""A real browser at the console: Debian's chromium, driven by playwright, and axe for accessibility."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

pytest_plugins = "service_fixtures"

HERE = Path(__file__).parent
CONSOLE = HERE.parent.parent / "console"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
WIDE = {"width": 1360, "height": 860}


@pytest.fixture(scope="session")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is missing")
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("no chromium here")
    with playwright.sync_playwright() as driver:
        # As root, in a container, chromium has no sandbox of its own.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        started = driver.chromium.launch(executable_path=program, args=arguments)
        yield started
        started.close()


@pytest.fixture
def new_page(browser):
    """new_page(scheme, viewport, ...) opens a page of its own. After the test, no page may have had a complaint of the browser, such as a
    refused script. Answers that a test expects to be refused are in `page.expected`."""
    pages = []

    def open_page(scheme="light", viewport=None, permissions=(), **options):
        context = browser.new_context(viewport=viewport or WIDE, color_scheme=scheme, reduced_motion="reduce", **options)
        context.grant_permissions(["clipboard-read", "clipboard-write", *permissions])
        page = context.new_page()
        page.complaints, page.expected = [], []
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("console", lambda message: message.type == "error" and page.complaints.append(f"{message.text} {message.location.get('url')}"))
        pages.append((context, page))
        return page

    yield open_page
    for context, page in pages:
        left = [text for text in page.complaints if not any(re.search(words, text) for words in page.expected)]
        context.close()
        assert left == []


@pytest.fixture
def page(new_page):
    return new_page()


@pytest.fixture(scope="session")
def axe():
    """Checks a page with axe: the violations, each with the elements."""
    places = [os.environ.get("TOOLCRIB_CONSOLE_MODULES"), CONSOLE / "node_modules"]
    script = next((path for place in places if place and (path := Path(place) / "axe-core/axe.min.js").exists()), None)
    if script is None:
        pytest.skip("axe-core is missing: npm ci in console/")
    source = script.read_text(encoding="utf-8")

    def check(page):
        # Evaluated by the driver, which the page's policy does not concern.
        page.evaluate(source)
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        return [(rule["id"], [node["html"][:160] + " | " + json.dumps(node["any"][:1])[:300] for node in rule["nodes"][:3]]) for rule in found]

    return check


@pytest.fixture
def screenshot():
    """Writes a picture for the documentation, if TOOLCRIB_SCREENSHOTS names a folder."""
    folder = os.environ.get("TOOLCRIB_SCREENSHOTS")
    return lambda shown, name: shown.screenshot(path=str(Path(folder) / name)) if folder else None
