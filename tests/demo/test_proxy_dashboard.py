# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

from demo.proxy.dashboard import draw
from demo.terminal import Terminal
from helpers.proxies.proxy_runs import ProxyThread
from helpers.system.browser import chromium


@pytest.mark.parametrize(
    ("package", "why_not"),
    [
        (False, "playwright is not installed (make demo-proxy)"),
        (True, "no Chromium (.venv/bin/playwright install chromium)"),
    ],
)
def test_missing_browser_prints_one_line_with_instructions(
    package: bool, why_not: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if package:
        pytest.importorskip("playwright")
    else:
        monkeypatch.setitem(sys.modules, "playwright", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    out = io.StringIO()
    found = draw(Terminal(Console(file=out)), "http://127.0.0.1:9/", "token", tmp_path / "page.png")
    assert found == why_not
    assert out.getvalue() == ""


def test_failure_of_the_browser_is_reported_after_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("playwright")
    program = tmp_path / "chromium"
    program.write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    out = io.StringIO()
    found = draw(Terminal(Console(file=out)), "http://127.0.0.1:9/", "token", tmp_path / "page.png")
    assert found is not None
    assert found.startswith("the browser failed: ")
    assert out.getvalue().startswith("Draw the dashboard: ")


def test_the_dashboard_is_drawn_after_the_login(tmp_path: Path) -> None:
    chromium()
    with ProxyThread(tmp_path / "proxy") as proxy:
        token = (proxy.state_dir / "admin.token").read_text(encoding="ascii").strip()
        picture = tmp_path / "results" / "page.png"
        assert draw(Terminal(Console(file=io.StringIO())), f"{proxy.url}/", token, picture) is None
        assert picture.read_bytes().startswith(b"\x89PNG")
