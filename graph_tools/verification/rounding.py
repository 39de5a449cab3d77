# SPDX-License-Identifier: Apache-2.0
"""Measure how much of a difference is due to rounding: run the model again with numbers changed in their last place.

A fused op may add in another order than the first model, and a folded normalization multiplies in another order. If
numbers such as 1e6 cancel, the results of two orders differ by more than the tolerance, and neither is wrong. The
output of the first model itself changes as soon as its numbers change in their last place: the inputs, the weights, and
the numbers computed from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from graph_tools.tensors import Array
from graph_tools.verification.compare import Tolerance, is_real, outside
from graph_tools.verification.nudging import NUDGES, nudged
from graph_tools.verification.request import Request
from graph_tools.verification.runner import Answer

# Permitted difference of sums of some hundred numbers, in multiples of the effect of changing each number in its last
# place.
_FACTOR = 4.0

Slacks = dict[int, dict[str, Array]]
"""By number of the request and by output: the amount to add to the tolerance of each element."""


def slacks(
    asked: Sequence[Request],
    first: Sequence[Answer],
    second: Sequence[Answer],
    tolerance: Tolerance,
    ask: Callable[[list[Request]], list[Answer]],
) -> Slacks:
    """Measure how far the first model's outputs depend on rounding, if the second's are beyond the tolerance.

    Parameters
    ----------
    asked : sequence of Request
    first, second : sequence of Answer
    tolerance : Tolerance
    ask : callable
        Runs requests on the first model; its numbers are nudged as the requests say, if it supports that (see
        `nudgeable_copy`).
    """
    wanted = [
        number
        for number, (a, b) in enumerate(zip(first, second, strict=True))
        if isinstance(a, dict) and isinstance(b, dict) and _differ(a, b, tolerance)
    ]
    if not wanted:
        return {}
    answers = ask([nudged(_nudged(asked[number], kind), kind) for number in wanted for kind in range(NUDGES)])
    found: Slacks = {}
    for place, number in enumerate(wanted):
        again = answers[place * NUDGES : (place + 1) * NUDGES]
        answer = first[number]
        assert isinstance(answer, dict)
        found[number] = {key: _slack(value, key, again) for key, value in answer.items() if is_real(value)}
    return found


def _differ(a: dict[str, Array], b: dict[str, Array], tolerance: Tolerance) -> bool:
    return any(
        key in b and is_real(value) and is_real(b[key]) and value.shape == b[key].shape
        and bool(outside(value, b[key], tolerance).any())
        for key, value in a.items()
    )  # fmt: skip


def _nudged(request: Request, kind: int) -> Request:
    """Change every real number of a request in its last place."""
    rng = np.random.default_rng(kind)

    def nudge(value: Array) -> Array:
        if value.dtype.kind != "f":
            return value
        up = np.full(value.shape, kind == 0) if kind < 2 else rng.random(value.shape) < 0.5
        target = np.where(up, np.inf, -np.inf).astype(value.dtype)
        moved: Array = np.nextafter(value, target)
        return moved

    return replace(request, inputs={key: nudge(value) for key, value in request.inputs.items()})


def _slack(value: Array, key: str, again: Sequence[Answer]) -> Array:
    moved = np.zeros(value.shape)
    for answer in again:
        if isinstance(answer, dict) and answer[key].shape == value.shape:
            with np.errstate(invalid="ignore"):
                apart = np.abs(answer[key].astype(np.float64) - value.astype(np.float64))
            moved = np.maximum(moved, np.where(np.isfinite(apart), apart, 0.0))
    return _FACTOR * moved
