# SPDX-License-Identifier: Apache-2.0
"""Without a terminal, waiting for an operation tells each step, and every ten seconds that it goes on."""

from __future__ import annotations

import time
from typing import Any

import pytest

from serving_proxy.cli import progress


def test_steps_are_told_once_and_long_ones_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def job(step: str, done: int = 0, total: int = 0) -> dict[str, Any]:
        return {"step": step, "done": done, "total": total}

    with progress._show_progress("clicks/1") as show_step:
        for at, told in (
            (0, job("optimizing")),
            (4, job("optimizing")),
            (5, job("optimizing: Writing", 0, 8)),
            (14, job("optimizing: Writing", 1, 8)),
            (16, job("optimizing: Writing", 2, 8)),
            (25, job("optimizing: Writing", 7, 8)),
            (26, job("loading")),
            (36, job("loading")),
            (37, job("")),
        ):
            now[0] = at
            show_step(told)
    assert capsys.readouterr().err.splitlines() == [
        "clicks/1: optimizing",
        "clicks/1: optimizing: Writing",
        "clicks/1: optimizing: Writing, 11 s, 25%",
        "clicks/1: loading",
        "clicks/1: loading, 10 s",
    ]
