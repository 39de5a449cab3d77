# SPDX-License-Identifier: Apache-2.0
"""The API's view of the history: rates per second, latencies in milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import WithJsonSchema

from serving_proxy.counters.history import Point
from serving_proxy.counters.stats_file import Key
from serving_proxy.records.view import View

# Not as a tuple: OpenAPI tools cannot read its schema, which belongs to another draft.
_NUMBERS = {"type": "array", "items": {"anyOf": [{"type": "number"}, {"type": "null"}]}, "minItems": 5, "maxItems": 5}


PointView = Annotated[Point, WithJsonSchema(_NUMBERS)]


class HistoryView(View):
    """Lines of the last minutes.

    A point is time [s since 1970], requests and failures [1/s], p50 and p99 [ms].
    """

    period_s: float
    models: dict[str, dict[str, list[PointView]]]


def point_views(points: Mapping[Key, Point]) -> dict[str, dict[str, Point]]:
    """Return the newest points by model and version."""
    found: dict[str, dict[str, Point]] = {}
    for (model, number), point in points.items():
        found.setdefault(model, {})[str(number)] = point
    return found


def history_view(lines: Mapping[Key, list[Point]], period_s: float) -> HistoryView:
    """Return all lines."""
    found: dict[str, dict[str, list[Point]]] = {}
    for (model, number), points in lines.items():
        found.setdefault(model, {})[str(number)] = points
    return HistoryView(period_s=period_s, models=found)
