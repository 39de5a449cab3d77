# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from load_tests.elastic import code_lookups


def test_answers_are_those_of_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_lookups, "FORMS", ("keys", "codes"))
    figures = code_lookups.measure(2000, 1, 0.01)
    assert figures["wrong"] == 0
    assert set(figures["ids per CPU-second"]) == set(code_lookups.FORMS)
    assert min(figures["times"].values()) > 0


def test_targets() -> None:
    def passes(ratio: float, wrong: int) -> list[bool]:
        return [target.ok for target in code_lookups.judge({"times": {"codes / keys": ratio}, "wrong": wrong})]

    assert passes(1.4, 0) == [True, True]
    assert passes(1.6, 1) == [False, False]
