# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

from demo.proxy.page import draw
from demo.terminal import Terminal


@pytest.mark.parametrize(
    ("browser", "why_not"), [(False, "no Chromium was found"), (True, "playwright is not installed")]
)
def test_what_is_not_drawn_is_no_step(
    browser: bool, why_not: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if browser:
        (tmp_path / "chromium").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "playwright", None)
    out = io.StringIO()
    assert draw(Terminal(Console(file=out)), "http://127.0.0.1:9/", "token", tmp_path / "page.png") == why_not
    assert out.getvalue() == ""


def test_a_browser_that_fails_is_said_after_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("playwright")
    program = tmp_path / "chromium"
    program.write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    out = io.StringIO()
    found = draw(Terminal(Console(file=out)), "http://127.0.0.1:9/", "token", tmp_path / "page.png")
    assert found is not None
    assert found.startswith("the browser failed: ")
    assert out.getvalue().startswith("Draw the page: ")
