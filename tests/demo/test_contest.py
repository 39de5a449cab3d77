# SPDX-License-Identifier: Apache-2.0
"""Check that all hosts get the same requests in turn, and that their scores are compared with the expected ones."""

import io
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from rich.console import Console

from demo.contest import Question, contest, difference
from demo.measure import ServingError, Timing
from demo.movielens import Rows
from demo.terminal import Terminal
from demo.workload import Workload


class Fixed:
    """Answers fixed scores and notes when it was measured."""

    def __init__(self, key: str, scores: NDArray[np.float32], order: list[str]) -> None:
        self.name = self.short = self.key = key
        self.tolerance, self.megabytes = 1e-5, 0.8
        self._scores, self._order = scores, order

    def scores(self, work: Workload) -> NDArray[np.float32]:
        return self._scores

    def measure(self, work: Workload, threads: int, seconds: float) -> Timing:
        self._order.append(f"{self.key} {work.name}")
        return Timing(float(len(self._order)), 1.0, 2.0)


def make_question(name: str, rows_per_request: int) -> Question:
    expected = np.array([0.1, 0.9, 0.8, 0.2], np.float32)
    rows = Rows({}, np.array([0, 1, 0, 1], np.float32))
    held_out = np.array([True, True, False, False])
    return Question(Workload(name, rows_per_request, rows, held_out, [], [], Path("none"), Path("none")), expected)


def test_contest_alternates_and_compares() -> None:
    order: list[str] = []
    expected = make_question("a", 1).expected
    good, bad = Fixed("good", expected, order), Fixed("bad", expected + np.array([0, 0, 0, 0.5], np.float32), order)
    stock = Fixed("stock", expected, order)
    terminal = Terminal(Console(file=io.StringIO()))
    questions = [make_question("a", 1), make_question("b", 2)]
    lines = contest(terminal, stock, [good, bad], questions, rounds=2, seconds=0.1)
    in_turn = ["stock a", "good a", "bad a", "stock b", "good b", "bad b"]
    assert order == in_turn + in_turn
    assert [(line.key, line.rows, line.agrees) for line in lines] == [
        ("stock", 1, True),
        ("good", 1, True),
        ("bad", 1, False),
        ("stock", 2, True),
        ("good", 2, True),
        ("bad", 2, False),
    ]
    assert lines[2].difference == pytest.approx(0.5)
    assert [timing.requests_per_s for timing in lines[0].rounds] == [1.0, 7.0]
    # Only the first two rows are held out, and they are ordered correctly.
    assert {line.auc for line in lines} == {1.0}


def test_difference_of_a_nan_score_is_nan() -> None:
    assert np.isnan(difference(np.array([0.5, np.nan], np.float32), np.array([0.5, 0.5], np.float32)))


def test_difference_refuses_missing_scores() -> None:
    with pytest.raises(ServingError, match=r"found shape \(1,\), expected \(2,\)"):
        difference(np.zeros(1, np.float32), np.zeros(2, np.float32))
