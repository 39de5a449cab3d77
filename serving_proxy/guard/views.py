# SPDX-License-Identifier: Apache-2.0
"""The API's views of the guard's verdicts. Shares are in percent, latencies in milliseconds."""

from __future__ import annotations

from collections.abc import Mapping

from serving_proxy.counters.tally import Tally
from serving_proxy.guard.loop import WatchedVersion
from serving_proxy.records.guard_settings import GuardSettings
from serving_proxy.records.models import Model
from serving_proxy.records.view import View


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
    """Scores of a shadow version compared with the baseline's, within the guard's window; `max_difference` counts from
    the start of the hosts.
    """

    compared: int
    dropped: int
    failed: int
    nan_percent: float | None
    mean_difference: float | None
    max_difference: float | None
    correlation: float | None


class VerdictView(View):
    """The guard's verdict on a version; `ruling` is `wait`, `ok`, `bad` or `promote`, `role` is the role in which it is
    judged.
    """

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


def guard_view(model: Model, watched: Mapping[int, WatchedVersion]) -> GuardView:
    """Return the limits and verdicts of a model."""
    versions = {str(number): _verdict(version) for number, version in sorted(watched.items())}
    return GuardView(settings=model.guard, versions=versions)


def _verdict(watched: WatchedVersion) -> VerdictView:
    recent = watched.recent
    return VerdictView(
        role=watched.role.value,
        ruling=watched.verdict.ruling.value,
        reason=watched.verdict.reason,
        within_since=watched.within_since,
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
            for found in watched.verdict.findings
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
