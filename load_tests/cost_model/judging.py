# SPDX-License-Identifier: Apache-2.0
"""Compute errors of predictions and the spread of two equal runs. All functions are pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from cost_model.calibration.check import Line

__all__ = ["Verdict", "judge", "verdict_table"]

LIMIT = 0.2


@dataclass(frozen=True)
class Verdict:
    """Describe one model at one load.

    Attributes
    ----------
    utilisation : float
        Measured, the mean of the runs.
    p50_ms, p99_ms : tuple of float [ms]
        Measured in each of the runs.
    qps, measured_qps : float [requests/s]
        Offered and completed.
    predicted : mapping of "queue", "simulator" and "uncalibrated" to (p50, p99) [ms]
        `uncalibrated` is the queueing model with profiles alone.
    """

    case: str
    model: str
    load: float
    utilisation: float
    qps: float
    measured_qps: float
    p50_ms: tuple[float, ...]
    p99_ms: tuple[float, ...]
    predicted: Mapping[str, tuple[float, float]]

    @property
    def spread(self) -> float:
        """Return the difference between the runs of the same load, divided by their mean."""
        return (max(self.p99_ms) - min(self.p99_ms)) / (sum(self.p99_ms) / len(self.p99_ms))

    def off(self, what: str) -> float:
        """Return the relative error of a predicted p99 against the mean of the runs."""
        return self.predicted[what][1] / (sum(self.p99_ms) / len(self.p99_ms)) - 1

    def beyond(self, what: str) -> float:
        """Return the relative error of a predicted p99 beyond the span of the runs: 0 within it."""
        p99 = self.predicted[what][1]
        return max(0.0, p99 / max(self.p99_ms) - 1, 1 - p99 / min(self.p99_ms))

    def to_json(self) -> dict[str, Any]:
        names = ("case", "model", "load", "utilisation", "qps", "measured_qps", "p50_ms", "p99_ms")
        return {name: getattr(self, name) for name in names} | {
            "spread": self.spread,
            "predicted": {
                what: {"p50_ms": p50, "p99_ms": p99, "p99_off": self.off(what), "p99_beyond": self.beyond(what)}
                for what, (p50, p99) in self.predicted.items()
            },
        }


def judge(labels: Sequence[str], **predicted: Sequence[Line]) -> list[Verdict]:
    """Group the runs of the same case and load.

    Parameters
    ----------
    labels : sequence of "case|load"
        One label per run.
    predicted : sequences of Line
        For each method of prediction, one line for each model of each run.
    """
    first = next(iter(predicted.values()))
    groups: dict[tuple[str, str], list[int]] = {}
    for place, line in enumerate(first):
        groups.setdefault((labels[line.run], line.name), []).append(place)
    verdicts = []
    for (label, model), places in groups.items():
        case, load = label.split("|")
        lines = [first[place] for place in places]
        verdicts.append(
            Verdict(
                case,
                model,
                float(load),
                _mean([line.utilisation for line in lines]),
                lines[0].qps,
                _mean([line.measured_qps for line in lines]),
                tuple(line.measured_p50_ms for line in lines),
                tuple(line.measured_p99_ms for line in lines),
                {
                    what: (_mean([of[p].p50_ms for p in places]), _mean([of[p].p99_ms for p in places]))
                    for what, of in predicted.items()
                },
            )
        )
    return sorted(verdicts, key=lambda verdict: (verdict.case, verdict.model, verdict.load))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    """Return a table of all points: measured and predicted values, and errors."""
    table = Table(title="p99 [ms], predicted against measured; off by (beyond the spread)", title_justify="left")
    for name in ("case", "model"):
        table.add_column(name)
    for name in ("busy", "qps", "measured", "spread", "queue", "simulator", "profile alone"):
        table.add_column(name, justify="right")
    for verdict in verdicts:
        cells = []
        for what in ("queue", "simulator", "uncalibrated"):
            color = "green" if verdict.beyond(what) <= LIMIT else "red"
            p99 = verdict.predicted[what][1]
            cells.append(f"{p99:.2f} [{color}]{verdict.off(what):+.0%} ({verdict.beyond(what):.0%})[/]")
        measured = " ".join(f"{p99:.2f}" for p99 in verdict.p99_ms)
        table.add_row(
            verdict.case,
            verdict.model,
            f"{verdict.utilisation:.0%}",
            f"{verdict.measured_qps:.0f}",
            measured,
            f"{verdict.spread:.0%}",
            *cells,
        )
    return table
