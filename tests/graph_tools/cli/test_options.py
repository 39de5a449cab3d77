# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from graph_tools.cli.options import assignments, memory_bytes
from graph_tools.errors import UsageError


def test_assignments() -> None:
    assert assignments(None, "--x") == {}
    assert assignments(["user/*=int8", "a=b=zero"], "--x") == {"user/*": "int8", "a=b": "zero"}


@pytest.mark.parametrize("text", ["a", "=int8", "a="])
def test_malformed_assignments_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=rf"--x: '{text}', expected NAME=VALUE"):
        assignments([text], "--x")


def test_memory() -> None:
    assert memory_bytes(1.5) == 1_500_000_000
    for wrong in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(UsageError, match=r"expected at least 0\.1 GB"):
            memory_bytes(wrong)
