# SPDX-License-Identifier: Apache-2.0
"""Reads a host's `stats.json` and `shadow.json`; what is missing or not as it should be counts as 0."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from serving_proxy.guard.histogram import Histogram
from serving_proxy.guard.tally import Moments, Scores, Tally

Key = tuple[str, int]
"""Model and version."""


def read_tallies(stats: Mapping[str, Any]) -> dict[Key, Tally]:
    """Return the counters of every version of a host.

    Parameters
    ----------
    stats : mapping
        The content of `stats.json`, with that of `shadow.json` under `shadow`.
    """
    bounds = _bounds(stats.get("latency_bounds_us"))
    shadows = _versions(_mapping(stats.get("shadow")))
    found = {key: _tally(one, bounds, shadows.pop(key, {})) for key, one in _versions(stats).items()}
    return found | {key: _tally({}, bounds, one) for key, one in shadows.items()}


def counting_since(stats: Mapping[str, Any]) -> tuple[str, str]:
    """Return what is another once the host has begun to count anew."""
    return str(stats.get("pid")), str(stats.get("started"))


def _versions(data: Mapping[str, Any]) -> dict[Key, Mapping[str, Any]]:
    found = {}
    for model, one in _mapping(data.get("models")).items():
        for number, counted in _mapping(_mapping(one).get("versions")).items():
            if str(number).isascii() and str(number).isdecimal() and len(str(number)) < 20:
                found[str(model), int(number)] = _mapping(counted)
    return found


def _tally(data: Mapping[str, Any], bounds: tuple[float, ...], shadow: Mapping[str, Any]) -> Tally:
    latency = _mapping(data.get("latency")).get("counts")
    counts = tuple(_count(one) for one in latency[: len(bounds) + 1]) if isinstance(latency, list) else ()
    return Tally(
        outcomes=_counts(data.get("outcomes")),
        latency=Histogram(bounds, counts) if bounds else Histogram(),
        queue=_moments(data.get("queue"), "sum_us"),
        run=_moments(data.get("run"), "sum_us"),
        arms=_counts(data.get("arms")),
        sheds=_counts(data.get("sheds")),
        scores=_scores(data.get("scores")),
        shadow=_counts(shadow.get("outcomes")),
        shadow_scores=_scores(shadow.get("scores")),
        baseline_scores=_scores(shadow.get("baseline_scores")),
        difference=_moments(shadow.get("difference"), "sum"),
        correlation=_moments(shadow.get("correlation"), "sum"),
        batches=_count(data.get("batches")),
        rows=_count(data.get("rows")),
    )


def _bounds(value: Any) -> tuple[float, ...]:
    if not isinstance(value, list):
        return ()
    found = tuple(_number(one) for one in value)
    rising = all(low < high for low, high in pairwise(found))
    return found if rising else ()


def _moments(value: Any, total: str) -> Moments:
    data = _mapping(value)
    return Moments(
        _number(data.get("count")), _number(data.get(total)), _number(data.get("sum_squares")), _number(data.get("max"))
    )


def _scores(value: Any) -> Scores:
    data = _mapping(value)
    return Scores(*(_count(data.get(name)) for name in ("answers", "count", "nan", "infinite")))


def _counts(value: Any) -> dict[str, int]:
    return {str(name): _count(count) for name, count in _mapping(value).items()}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: Any) -> int:
    return max(0, int(_number(value)))


def _number(value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and math.isfinite(value) else 0.0
