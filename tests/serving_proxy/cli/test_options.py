# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from serving_proxy.cli.options import json_object, seconds, shares
from serving_proxy.errors import InvalidError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90", 90),
        ("30s", 30),
        ("15m", 900),
        ("1h", 3600),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("250ms", 0.25),
        ("2d", 172800),
    ],
)
def test_durations(text: str, expected: float) -> None:
    assert seconds(text, "--over") == expected


@pytest.mark.parametrize("text", ["", "h", "1x", "-5", "1h30", "1 h", "1e3", "∞"])
def test_invalid_durations_are_refused(text: str) -> None:
    with pytest.raises(InvalidError, match="--over: "):
        seconds(text, "--over")


def test_shares() -> None:
    assert shares(["3=90", "4=9.99%", "canary=0.01"]) == {"3": 90, "4": 9.99, "canary": 0.01}


@pytest.mark.parametrize("text", ["4", "=4", "4=", "4=-1", "4=101", "4=nan", "4=1=2"])
def test_invalid_shares_are_refused(text: str) -> None:
    with pytest.raises(InvalidError, match=r"^share '.*': .*, expected (VERSION=PERCENT|a percentage from 0 to 100)"):
        shares([text])


def test_json_from_the_line_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text('{"a": 1}', encoding="utf-8")
    assert json_object('{"a": 1}', "--config") == json_object(f"@{tmp_path / 'c.json'}", "--config") == {"a": 1}
    assert json_object(None, "--config") is None
    with pytest.raises(InvalidError, match="--config: "):
        json_object("@/gone", "--config")
