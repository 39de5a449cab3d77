# SPDX-License-Identifier: Apache-2.0
"""What the guard and the history show of themselves. Shares are in percent, latencies in milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import WithJsonSchema

from serving_proxy.control.views import View
from serving_proxy.counters.history import Point
from serving_proxy.counters.stats_file import Key
from serving_proxy.counters.tally import Tally
from serving_proxy.guard.loop import Watched
from serving_proxy.records.guard_settings import GuardSettings
from serving_proxy.records.models import Model


class FindingView(View):
    """One limit of the guard; `what` is `errors`, `p99`, `nan`, `correlation` or `difference`."""

    what: str
    ruling: str
    value: float | None
    limit: float
    sample: int
    text: str
    baseline: float | None


class ScoresView(View):
    """Shadow answers against the baseline's, within the guard's window; `max_difference` since the hosts started."""

    compared: int
    dropped: int
    failed: int
    nan_percent: float | None
    mean_difference: float | None
    max_difference: float | None
    correlation: float | None


class VerdictView(View):
    """What the guard says of a version; `ruling` is `wait`, `ok`, `bad` or `promote`, `role` as what it is judged."""

    role: str
    ruling: str
    reason: str
    within_since: float | None
    requests: int
    error_percent: float | None
    p50_ms: float | None
    p99_ms: float | None
    nan_percent: float | None
    scores: ScoresView | None
    findings: list[FindingView]


class GuardView(View):
    """The limits of a model, and the verdicts of its versions by number."""

    settings: GuardSettings
    versions: dict[str, VerdictView]


class CpuView(View):
    """A CPU of the machine."""

    cpu: int
    core: int
    package: int
    busy: float | None


class OwnerView(View):
    """A version and the CPUs it has; `wanted`: those it is to have, where that is another; `own`: given to it."""

    host: str
    model: str
    version: int
    cpus: list[int]
    wanted: list[int] | None
    own: bool


class PoolView(View):
    """Versions that share CPUs; `demand` in busy cores, `reason` of the last change."""

    name: str
    kind: str
    versions: list[str]
    cpus: list[int]
    demand: float
    reason: str


class CoresView(View):
    """Who divides cores among versions: `off`, `plan` or `control`; and how they are divided."""

    mode: str
    pools: list[PoolView]
    notes: list[str]


class MachineView(View):
    """Which version owns which CPU."""

    cpus: list[CpuView]
    owners: list[OwnerView]
    cores: CoresView


# Not as a tuple, whose schema tools for OpenAPI take for one of another draft.
_NUMBERS = {"type": "array", "items": {"anyOf": [{"type": "number"}, {"type": "null"}]}, "minItems": 5, "maxItems": 5}
PointView = Annotated[Point, WithJsonSchema(_NUMBERS)]


class WatchView(View):
    """What changes all the time: `points` by model and version, verdicts, CPUs."""

    points: dict[str, dict[str, PointView]]
    guards: dict[str, GuardView]
    machine: MachineView


class HistoryView(View):
    """Lines of the last minutes.

    A point is time [s since 1970], requests and failures [1/s], p50 and p99 [ms].
    """

    period_s: float
    models: dict[str, dict[str, list[PointView]]]


def guard_view(model: Model, watched: Mapping[int, Watched]) -> GuardView:
    """Show the limits and verdicts of a model."""
    versions = {str(number): _verdict(one) for number, one in sorted(watched.items())}
    return GuardView(settings=model.guard, versions=versions)


def point_views(points: Mapping[Key, Point]) -> dict[str, dict[str, Point]]:
    """Show the newest points by model and version."""
    found: dict[str, dict[str, Point]] = {}
    for (model, number), point in points.items():
        found.setdefault(model, {})[str(number)] = point
    return found


def history_view(lines: Mapping[Key, list[Point]], period_s: float) -> HistoryView:
    """Show all lines."""
    found: dict[str, dict[str, list[Point]]] = {}
    for (model, number), points in lines.items():
        found.setdefault(model, {})[str(number)] = points
    return HistoryView(period_s=period_s, models=found)


def _verdict(one: Watched) -> VerdictView:
    recent = one.recent
    return VerdictView(
        role=one.role.value,
        ruling=one.verdict.ruling.value,
        reason=one.verdict.reason,
        within_since=one.within_since,
        requests=recent.judged,
        error_percent=_percent(recent.failures, recent.judged),
        p50_ms=_milliseconds(recent, 0.5),
        p99_ms=_milliseconds(recent, 0.99),
        nan_percent=_percent(recent.scores.nan + recent.scores.infinite, recent.scores.count),
        scores=_scores(recent) if any(recent.shadow.values()) else None,
        findings=[
            FindingView(
                what=found.what,
                ruling=found.ruling.value,
                value=found.value,
                limit=found.limit,
                sample=found.sample,
                text=found.text,
                baseline=found.baseline,
            )
            for found in one.verdict.findings
        ],
    )


def _scores(recent: Tally) -> ScoresView:
    bad = recent.shadow_scores.nan + recent.shadow_scores.infinite
    return ScoresView(
        compared=recent.shadow.get("compared", 0),
        dropped=recent.shadow.get("dropped", 0),
        failed=recent.shadow.get("failed", 0),
        nan_percent=_percent(bad, recent.shadow_scores.count),
        mean_difference=recent.difference.mean,
        max_difference=recent.difference.max if recent.difference.count else None,
        correlation=recent.correlation.mean,
    )


def _percent(hits: int, trials: int) -> float | None:
    return 100 * hits / trials if trials else None


def _milliseconds(recent: Tally, fraction: float) -> float | None:
    found = recent.latency.quantile(fraction)
    return None if found is None else found / 1000
