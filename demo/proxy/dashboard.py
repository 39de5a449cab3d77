# SPDX-License-Identifier: Apache-2.0
"""Draw a picture of the dashboard if a browser is installed; no other step depends on it."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

from demo.terminal import Terminal

_COMMANDS = ("chromium", "chromium-browser", "google-chrome", "chrome")
_LIVE_MS = 10_000
#: Waiting time that gives the charts of the last minutes some data.
_WATCH_MS = 2_000


def draw(terminal: Terminal, url: str, token: str, file: Path) -> str | None:
    """Log in and write a picture of the dashboard to a file; if that fails, return the reason and the remedy."""
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed (make demo-proxy)"
    command = next((path for name in _COMMANDS if (path := shutil.which(name))), None) or _playwrights()
    if command is None:
        return "no Chromium (.venv/bin/playwright install chromium)"
    file.parent.mkdir(parents=True, exist_ok=True)
    with terminal.step("Draw the dashboard"):
        return _picture(command, url, token, file)


def _playwrights() -> str | None:
    """Return the path of the Chromium that playwright has downloaded, or None."""
    from playwright.sync_api import Error, sync_playwright

    try:
        with sync_playwright() as playwright:
            found = playwright.chromium.executable_path
    except (Error, OSError):
        return None
    return found if Path(found).is_file() else None


def _picture(command: str, url: str, token: str, file: Path) -> str | None:
    from playwright.sync_api import Error, sync_playwright

    try:
        with sync_playwright() as playwright:
            # Chromium has no sandbox as root in a container; it only opens our own dashboard.
            browser = playwright.chromium.launch(
                executable_path=command, args=["--no-sandbox", "--disable-dev-shm-usage"]
            )
            try:
                page = browser.new_page(viewport={"width": 1280, "height": 860})
                page.goto(url)
                page.get_by_label("Token", exact=True).fill(token)
                page.keyboard.press("Enter")
                page.locator(".connection.up").wait_for(timeout=_LIVE_MS)
                page.wait_for_timeout(_WATCH_MS)
                page.screenshot(path=file)
            finally:
                browser.close()
    except (Error, OSError) as error:
        return f"the browser failed: {str(error).strip().splitlines()[0]}"
    return None
