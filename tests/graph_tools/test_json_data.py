# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import resource
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.json_data import as_data, to_text, write_json


@dataclass
class _Inner:
    count: Any
    _hidden: int = 1


@dataclass
class _Outer:
    inner: list[_Inner]
    path: Path
    more: dict[Any, Any] = field(default_factory=dict)


def test_values_as_json_data() -> None:
    outer = _Outer([_Inner(np.int64(3)), _Inner(np.float32(0.5))], Path("a/b"), {1: (2, None), "s": {"y", "x"}})
    assert as_data(outer) == {
        "inner": [{"count": 3}, {"count": 0.5}], "path": "a/b", "more": {"1": [2, None], "s": ["x", "y"]}
    }  # fmt: skip


def test_infinities_and_nan_become_words_in_json() -> None:
    assert as_data([float("inf"), np.float32("-inf"), float("nan")]) == ["inf", "-inf", "nan"]


def test_other_things_are_refused() -> None:
    with pytest.raises(TypeError, match="report: a bytes, expected a type that JSON has"):
        as_data({"x": b"y"})


def test_a_report_is_written_whole(tmp_path: Path) -> None:
    write_json({"ü": 1}, tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8")) == {"ü": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]
    with pytest.raises(ValueError):
        to_text({"x": float("nan")})


def test_a_report_that_does_not_fit_names_its_file(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            write_json({"text": "x" * 1000}, tmp_path / "report.json")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.filename == str(tmp_path / "report.json")
    assert list(tmp_path.iterdir()) == []
