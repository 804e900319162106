"""A real browser against the service: Debian's chromium, driven by playwright."""

import os
import shutil
from pathlib import Path

import pytest

pytest_plugins = "service_fixtures"

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


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
def page(browser):
    """A page in a context of its own. A message of the browser about the page, such as a refused script, fails the test."""
    context = browser.new_context(viewport={"width": 1100, "height": 760})
    opened = context.new_page()
    opened.complaints = []
    opened.on("pageerror", lambda error: opened.complaints.append(str(error)))
    opened.on("console", lambda message: message.type == "error" and opened.complaints.append(message.text))
    yield opened
    context.close()


@pytest.fixture
def screenshot():
    """Writes a picture for the documentation, if TOOLCRIB_SCREENSHOTS names a folder."""
    folder = os.environ.get("TOOLCRIB_SCREENSHOTS")
    return lambda shown, name: shown.screenshot(path=str(Path(folder) / name)) if folder else None
