# SPDX-License-Identifier: Apache-2.0
"""Test that differences caused by rounding are distinguished from others."""

from __future__ import annotations

from typing import Any

import numpy as np

from graph_tools.verification import OutputComparison, Request, Tolerance
from graph_tools.verification.rounding import slacks
from graph_tools.verification.runner import Answer, Refusal

STRICT = Tolerance()


def _score(x: np.ndarray) -> np.ndarray:
    """The sum of each row, one after the other in float32."""
    total = np.zeros(len(x), np.float32)
    for column in x.T:
        with np.errstate(over="ignore"):
            total = (total + column).astype(np.float32)
    return total


def _ask(asked: list[Request]) -> list[Answer]:
    return [{"y": _score(np.asarray(request.inputs["x"])), "id": np.arange(2)} for request in asked]


def _request(*rows: list[float], dtype: Any = np.float32) -> Request:
    return Request("s", {"x": np.array(rows, dtype), "name": np.array([b"a"] * len(rows), object)}, "r")


CANCELLING = [1e6, 0.37, -1e6, 0.21]
PLAIN = [1.0, 0.37, -0.5, 0.21]


def _compared(request: Request, second: np.ndarray) -> OutputComparison:
    (first,) = _ask([request])
    assert isinstance(first, dict)
    answer: dict[str, np.ndarray] = {"y": second, "id": first["id"]}
    found = slacks([request], [first], [answer], STRICT, _ask)
    compared = OutputComparison("s", "y", "float32")
    compared.add(first["y"], second, STRICT, "r", slack=found.get(0, {}).get("y"))
    return compared


def test_another_order_of_summation_is_not_a_difference() -> None:
    request = _request(CANCELLING, PLAIN)
    other = _score(np.asarray(request.inputs["x"])[:, [0, 2, 1, 3]])
    compared = _compared(request, other)
    assert compared.max_abs_difference > 1e-3
    assert (compared.beyond, compared.unsettled, compared.equal, compared.bit_exact) == (0, 1, True, False)


def test_a_difference_is_found_beside_such_numbers() -> None:
    request = _request(CANCELLING, PLAIN)
    right = _score(np.asarray(request.inputs["x"]))
    for row, more in ((1, 1e-3), (0, 10.0)):
        wrong = right.copy()
        wrong[row] += np.float32(more)
        compared = _compared(request, wrong)
        assert (compared.beyond, compared.unsettled, compared.equal) == (1, 0, False)
        assert compared.worst is not None
        assert compared.worst.index == [row]


def test_nudged_requests_are_sent_only_if_scores_differ() -> None:
    def refuse(asked: list[Request]) -> list[Answer]:
        raise AssertionError(asked)

    request = _request(PLAIN)
    (first,) = _ask([request])
    assert isinstance(first, dict)
    assert slacks([request], [first], [first], STRICT, refuse) == {}
    refused = Refusal("INTERNAL", "x")
    assert slacks([request] * 2, [refused, first], [first, refused], STRICT, refuse) == {}


def test_nan_gives_no_extra_tolerance() -> None:
    request = _request([3e38, 3e38, -3e38])
    (first,) = _ask([request])
    assert isinstance(first, dict)
    assert np.isinf(first["y"]).all()
    compared = _compared(request, np.zeros(1, np.float32))
    assert (compared.beyond, compared.unsettled) == (1, 0)
