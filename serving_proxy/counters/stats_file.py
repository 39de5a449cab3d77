# SPDX-License-Identifier: Apache-2.0
"""Read a host's `stats.json` and `shadow.json`; missing or invalid values count as 0."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from serving_proxy.counters.histogram import Histogram
from serving_proxy.counters.tally import Moments, Scores, Tally

Key = tuple[str, int]
"""Model and version."""


def read_tallies(stats: Mapping[str, Any]) -> dict[Key, Tally]:
    """Return the counters of every version of a host.

    Parameters
    ----------
    stats : mapping
        The content of `stats.json`, with that of `shadow.json` under `shadow`.
    """
    shadows = _versions(_mapping(stats.get("shadow")))
    found = {key: _tally(version, shadows.pop(key, {})) for key, version in _versions(stats).items()}
    return found | {key: _tally({}, shadow) for key, shadow in shadows.items()}


def in_flight(stats: Mapping[str, Any], model: str, number: int) -> int | None:
    """Return how many requests of a version wait or run; None if the host does not count them."""
    counted = _version(stats, model, number)
    return _count(counted["in_flight"]) if "in_flight" in counted else None


def live_state(stats: Mapping[str, Any], model: str, number: int) -> dict[str, Any] | None:
    """Return the state of a version that follows a timeline; None if it follows none."""
    live = _mapping(_version(stats, model, number).get("live"))
    return dict(live) if {"epoch", "oldest_epoch", "newest_epoch"} <= live.keys() else None


def precision_now(live: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the entry `precision` of a version that follows a timeline; empty if hosts do not report it."""
    precision = _mapping(_mapping(live).get("precision")).get("precision")
    return {"precision": precision} if precision else {}


def fallback_of(stats: Mapping[str, Any], model: str, number: int) -> tuple[str, str] | None:
    """Return the precision that a version fell back to, and the reason; None if it did not."""
    precision = _mapping(_mapping(_version(stats, model, number).get("live")).get("precision"))
    return (str(precision.get("precision")), str(precision.get("reason"))) if precision.get("fell_back") else None


def live_text(live: Mapping[str, Any], wanted: int | None = None, said: str = "") -> str:
    """Return the state of a version that follows a timeline, as text.

    Parameters
    ----------
    wanted : int, optional
        The epoch at which it is to be held.
    said : str, optional
        Text beside it, whose error is not repeated.
    """
    text = f"epoch {live['epoch']}"
    known = _number(live.get("knows_us"))
    if known > 0:
        text += time.strftime(", as of %Y-%m-%d %H:%M:%S", time.localtime(known / 1e6))
    if wanted is not None and wanted != live["epoch"]:
        text += f"; to be held at epoch {wanted}"
    elif live.get("held"):
        text += f", held; the newest is {live['newest_epoch']}" + "; to follow again" * (wanted is None)
    precision = _mapping(live.get("precision"))
    if precision.get("fell_back"):
        text += f"; in {precision.get('precision')}: {precision.get('reason')}"
    error = live.get("error")
    return text + (f"; refused: {error}" if error and str(error) not in said else "")


def _version(stats: Mapping[str, Any], model: str, number: int) -> Mapping[str, Any]:
    versions = _mapping(_mapping(_mapping(stats.get("models")).get(model)).get("versions"))
    return _mapping(versions.get(str(number)))


def _versions(data: Mapping[str, Any]) -> dict[Key, Mapping[str, Any]]:
    found = {}
    for model, entry in _mapping(data.get("models")).items():
        for number, counted in _mapping(_mapping(entry).get("versions")).items():
            if str(number).isascii() and str(number).isdecimal() and len(str(number)) < 20:
                found[str(model), int(number)] = _mapping(counted)
    return found


def _tally(data: Mapping[str, Any], shadow: Mapping[str, Any]) -> Tally:
    answered = _count(shadow.get("requests"))
    mismatched = min(answered, _count(shadow.get("mismatches")))
    compared = answered - mismatched
    failed = _count(shadow.get("errors")) + mismatched
    return Tally(
        outcomes=_counts(data.get("outcomes")),
        latency=_histogram(_mapping(data.get("duration_us"))),
        queue=_time(data.get("queue_us")),
        run=_time(data.get("run_us")),
        arms=_counts(data.get("arms")),
        sheds=_counts(data.get("shed")),
        scores=_scores(data.get("scores")),
        shadow={"compared": compared, "failed": failed, "dropped": _count(shadow.get("dropped"))} if shadow else {},
        shadow_scores=_rates(shadow, compared, "nan", "infinite"),
        baseline_scores=_rates(shadow, compared, "live_nan", "live_infinite"),
        difference=_difference(shadow),
        correlation=_correlation(shadow),
    )


def _histogram(data: Mapping[str, Any]) -> Histogram:
    """Read pairs of a bucket's upper bound and its count."""
    pairs = data.get("buckets")
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        return Histogram()
    bounds = tuple(_number(pair[0]) for pair in pairs)
    if not bounds or not all(low < high for low, high in pairwise(bounds)):
        return Histogram()
    below = [0, *(_count(pair[1]) for pair in pairs), _count(data.get("count"))]
    return Histogram(bounds, tuple(max(0, later - earlier) for earlier, later in pairwise(below)))


def _difference(shadow: Mapping[str, Any]) -> Moments:
    count, largest = _number(shadow.get("compared_requests")), _number(shadow.get("max_absolute_difference"))
    return _moments(shadow, count, "request_difference", largest * largest, largest)


def _correlation(shadow: Mapping[str, Any]) -> Moments:
    return _moments(shadow, _number(shadow.get("rank_correlation_requests")), "rank_correlation", 1.0, 1.0)


def _moments(data: Mapping[str, Any], count: float, name: str, most: float, largest: float) -> Moments:
    """Read a mean and the mean of the squares; if the latter is missing, use its largest possible value."""
    squares = data.get(f"{name}_squares")
    return Moments(
        count, count * _number(data.get(name)), count * (most if squares is None else _number(squares)), largest
    )


def _time(value: Any) -> Moments:
    data = _mapping(value)
    count = _number(data.get("count"))
    return Moments(count, count * _number(data.get("mean")), 0.0, _number(data.get("max")))


def _rates(shadow: Mapping[str, Any], answers: int, nan: str, infinite: str) -> Scores:
    count = _count(shadow.get("scores"))
    return Scores(answers, count, *(round(count * min(1.0, _number(shadow.get(name)))) for name in (nan, infinite)))


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
