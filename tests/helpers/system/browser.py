# SPDX-License-Identifier: Apache-2.0
"""Run a headless Chromium that reaches only this machine, and pages that record their errors."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from helpers.system.programs import ROOT, skip_or_fail

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PICTURES = ROOT / "results" / "page"
_COMMANDS = ("chromium", "chromium-browser", "google-chrome", "chrome")
# As root in a container, Chromium has no sandbox; names are never resolved.
_OPTIONS = (
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


def chromium() -> str:
    """Return the command of a Chromium; skip the test without one, or fail it if CI=true."""
    found = next((path for name in _COMMANDS if (path := shutil.which(name))), None)
    if found is None:
        skip_or_fail(f"{' or '.join(_COMMANDS)}: not found, expected one in PATH")
    return found


@contextmanager
def browser() -> Iterator[Browser]:
    """Run a Chromium for the duration of the block."""
    command = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=command, args=list(_OPTIONS))
        try:
            yield made
        finally:
            made.close()


class Visit:
    """Open a page in its own context.

    Attributes
    ----------
    complaints : list of str
        Warnings and errors that the page wrote to the console, and uncaught exceptions.
    asked : list of str
        Every URL that was requested.
    """

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.url = url
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.page.on(
            "console",
            lambda message: self.complaints.append(message.text) if message.type in {"error", "warning"} else None,
        )
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def __enter__(self) -> Visit:
        self.page.goto(self.url)
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def live(self) -> Visit:
        """Wait until the page has received data from the proxy."""
        self.page.locator(".connection.up").wait_for()
        return self

    def picture(self, name: str) -> None:
        """Write a screenshot of the whole page."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=PICTURES / f"{name}.png", full_page=True)

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than its window."""
        found: int = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        return found
