# SPDX-License-Identifier: Apache-2.0
"""Convert the results of a generator to figures, and compare them with the limits of a scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from load_tests._report import Target
from load_tests.latencies import percentile
from load_tests.scenarios.arrivals import Phase
from load_tests.scenarios.generators import Sent

__all__ = ["REFUSALS", "Limit", "growth", "judge", "p99_ratio", "phase_figures", "recovery_s", "spread_of", "totals"]

#: Statuses by which a host reports overload: not a fault of the host.
REFUSALS = frozenset({"RESOURCE_EXHAUSTED", "HTTP 429"})
_WINDOW_S = 1.0
_STEP_S = 0.25


@dataclass(frozen=True)
class Limit:
    """Describe the limit of one figure of a scenario.

    Attributes
    ----------
    figure : str
        Name in the figures.
    limit : float
    title : str
        Name of the measurement, with its unit.
    at_least : bool
    spread : str
        Name of a figure that is added to the limit: the spread of repeated measurements.
    """

    figure: str
    limit: float
    title: str
    at_least: bool = False
    spread: str = ""


def phase_figures(phases: Sequence[Phase], sent: Sent) -> list[dict[str, Any]]:
    """Return figures of each phase: requests sent, completed and failed, and latency from the due time."""
    found = []
    for phase, span, count, failed in zip(phases, sent.spans, sent.sent, sent.failed, strict=True):
        part = sent.latencies.within(*span)
        entry: dict[str, Any] = {
            "phase": phase.name,
            "seconds": span[1] - span[0],
            "asked_requests_per_s": phase.rate,
            "sent": count,
            "answered": int(part.size),
            "answered_per_s": part.size / (span[1] - span[0]),
            "failed": failed,
            "windows_us": sent.latencies.windows([span], _WINDOW_S),
        }
        if part.size:
            entry |= {f"p{percent:g}_us": percentile(part, percent) for percent in (50, 95, 99, 99.9)}
            entry["max_us"] = float(part.max())
        found.append(entry)
    return found


def totals(phases: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Count over all phases: failed requests, requests refused because of overload, and those without a response."""
    failed: dict[str, int] = {}
    for phase in phases:
        for kind, count in phase["failed"].items():
            failed[kind] = failed.get(kind, 0) + count
    lost = sum(phase["sent"] - phase["answered"] for phase in phases) - sum(failed.values())
    return {
        "failed": float(sum(failed.values())),
        "failed_otherwise": float(sum(count for kind, count in failed.items() if kind not in REFUSALS)),
        "unanswered": float(max(0, lost)),
    }


def _p99(phases: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[float]:
    found = [phase["p99_us"] for phase in phases if phase["phase"] in names and "p99_us" in phase]
    if not found:
        raise ValueError(f"no request was completed in {' and '.join(names)}")
    return found


def p99_ratio(phases: Sequence[Mapping[str, Any]], busy: str, quiet: Sequence[str]) -> float:
    """Return the p99 of one phase divided by the mean of other phases."""
    return float(_p99(phases, [busy])[0] / np.mean(_p99(phases, quiet)))


def spread_of(phases: Sequence[Mapping[str, Any]], quiet: Sequence[str]) -> float:
    """Return the difference between the p99 of equal phases, divided by their mean."""
    values = _p99(phases, quiet)
    return float((max(values) - min(values)) / np.mean(values))


def recovery_s(sent: Sent, span: tuple[float, float], limit_us: float) -> float:
    """Return how long after the begin of a span latency stays above a limit [s].

    Notes
    -----
    This is the end of the last quarter of a second whose p95 is above it or that has no response; 0 if there is none.
    """
    begin, end = span
    last = 0.0
    for number in range(int((end - begin) / _STEP_S)):
        part = sent.latencies.within(begin + number * _STEP_S, begin + (number + 1) * _STEP_S)
        if not part.size or percentile(part, 95) > limit_us:
            last = (number + 1) * _STEP_S
    return last


def growth(values: Sequence[float]) -> float:
    """Return the median of the last tenth of some values minus the median of the second tenth.

    Notes
    -----
    The first tenth is the start. A median ignores moments in which clients reconnected because the machine was busy.
    """
    tenth = max(1, len(values) // 10)
    return float(np.median(values[-tenth:]) - np.median(values[tenth : 2 * tenth]))


def judge(scenario: str, limits: Sequence[Limit], figures: Mapping[str, float]) -> list[Target]:
    """Compare figures with limits; a missing figure is a fault of the scenario."""
    return [
        Target(
            f"{scenario}: {limit.title}",
            figures[limit.figure],
            limit.limit + (figures[limit.spread] if limit.spread else 0.0),
            at_least=limit.at_least,
        )
        for limit in limits
    ]
