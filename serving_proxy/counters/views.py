# SPDX-License-Identifier: Apache-2.0
"""The API's views of counters: rates per second, latencies in milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, TypeVar

from pydantic import WithJsonSchema

from serving_proxy.counters.history import Point
from serving_proxy.counters.live import LiveFigures
from serving_proxy.counters.stats_file import Key
from serving_proxy.records.view import View

_T = TypeVar("_T")

# Not as a tuple: OpenAPI tools cannot read its schema, which belongs to another draft.
_NUMBERS = {"type": "array", "items": {"anyOf": [{"type": "number"}, {"type": "null"}]}, "minItems": 5, "maxItems": 5}


PointView = Annotated[Point, WithJsonSchema(_NUMBERS)]


class HistoryView(View):
    """Lines of the last minutes.

    A point is time [s since 1970], requests and failures [1/s], p50 and p99 [ms].
    """

    period_s: float
    models: dict[str, dict[str, list[PointView]]]


class LiveView(View):
    """A version that follows a timeline: the epoch that it serves, and how long ago its newest sample was (`age_s`,
    null at the first epoch).
    """

    epoch: int
    newest_epoch: int
    held: bool
    age_s: float | None
    rows_per_s: float
    overlay_bytes: int
    refused: int
    error: str | None


def live_views(figures: Mapping[Key, LiveFigures]) -> dict[str, dict[str, LiveView]]:
    """Return the versions that follow timelines, by model and version."""
    return _by_model({key: LiveView(**asdict(live)) for key, live in figures.items()})


def point_views(points: Mapping[Key, Point]) -> dict[str, dict[str, Point]]:
    """Return the newest points by model and version."""
    return _by_model(points)


def history_view(lines: Mapping[Key, list[Point]], period_s: float) -> HistoryView:
    """Return all lines."""
    return HistoryView(period_s=period_s, models=_by_model(lines))


def _by_model(values: Mapping[Key, _T]) -> dict[str, dict[str, _T]]:
    found: dict[str, dict[str, _T]] = {}
    for (model, number), value in values.items():
        found.setdefault(model, {})[str(number)] = value
    return found
