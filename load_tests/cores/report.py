# SPDX-License-Identifier: Apache-2.0
"""Print and judge the measurements of the cost model on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from load_tests._report import Target
from load_tests.cores.measure import BEFORE_S, BURST_S, SIDES

__all__ = ["draw", "judge", "spread_of", "table"]

#: Largest p99 of the baseline divided by its p99 alone, in addition to the spread of A against A.
MOST = 1.3
#: Largest number of seconds until the baseline meets its SLO.
RECOVERY_S = 5.0
_TITLES = {
    "alone": "alone on its CPUs",
    "planned": "next to the overload, `--cores control`",
    "shared": "next to the overload, no plan",
    "alone again": "alone on its CPUs, again",
}
_COLORS = {"alone": "#1f77b4", "planned": "#2ca02c", "shared": "#d62728", "alone again": "#7fb2d9"}


def alone_p99_us(sides: Mapping[str, Mapping[str, Any]]) -> float:
    """Return the baseline's p99 alone [us], the mean of both measurements."""
    return float(sides["alone"]["p99_us"] + sides["alone again"]["p99_us"]) / 2


def spread_of(sides: Mapping[str, Mapping[str, Any]]) -> float:
    """Return the difference between the two measurements alone, divided by their mean."""
    return float(abs(sides["alone"]["p99_us"] - sides["alone again"]["p99_us"])) / alone_p99_us(sides)


def judge(sides: Mapping[str, Mapping[str, Any]], bursts: Mapping[str, Mapping[str, Any]]) -> list[Target]:
    """Compare the figures with the targets."""
    ratio = sides["planned"]["p99_us"] / alone_p99_us(sides)
    failed = float(sum(sum(sides[name]["failed"].values()) for name in SIDES if name != "shared"))
    found = [
        Target("baseline's p99 beside an overloaded variant over p99 alone", ratio, MOST + spread_of(sides), False),
        Target("baseline's failed requests, alone and with the plan", failed, 0.0, at_least=False),
    ]
    for burst in bursts.values():
        name = f"s after the {burst['from']} of a burst of {burst['title']}, p99 within the SLO"
        found.append(Target(name, burst["recovery_s"], RECOVERY_S, at_least=False))
    return found


def table(sides: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return a table of the sides."""
    found = Table(title="W2 over gRPC on real hosts: the baseline's latency")
    found.add_column("baseline")
    for heading in ("requests", "failed", "p50 ms", "p99 ms", "over alone", "variant responses/s", "variant refused"):
        found.add_column(heading, justify="right")
    alone = alone_p99_us(sides)
    for name in SIDES:
        side = sides[name]
        found.add_row(
            _TITLES[name],
            f"{side['requests']:,}",
            str(sum(side["failed"].values())),
            f"{side['p50_us'] / 1000:.2f}",
            f"{side['p99_us'] / 1000:.2f}",
            f"{side['p99_us'] / alone:.2f}",
            f"{side['variant_per_s']:.0f}" if side["variant_per_s"] else "",
            f"{side['variant_shed']:,}" if side["variant_shed"] else "",
        )
    return found


def draw(results: Mapping[str, Any], path: Path) -> None:
    """Write a picture: p99 of each round by side, and p99 around the bursts with the SLO and the moves."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    bursts, slo_ms = results["bursts"], results["objective_ms"]
    figure, axes = pyplot.subplots(
        1, 1 + len(bursts), figsize=(5.5 * (1 + len(bursts)), 4.4), layout="constrained", squeeze=False
    )
    first, *others = axes[0]
    for name in SIDES:
        rounds = [result / 1000 for result in results["sides"][name]["rounds_p99_us"]]
        first.plot(range(1, len(rounds) + 1), rounds, marker="o", color=_COLORS[name], label=_TITLES[name])
    first.set(title="Baseline's p99 by round", xlabel="round", ylabel="ms", yscale="log")
    first.legend(fontsize=8)
    for axis, burst in zip(others, bursts.values(), strict=True):
        seen = [window for window in burst["course"] if "p99_us" in window and window["from"] >= -BEFORE_S]
        axis.axvspan(0, BURST_S, color="#eeeeee")
        axis.plot(
            [window["from"] for window in seen],
            [window["p99_us"] / 1000 for window in seen],
            color="#2ca02c",
            label="p99",
        )
        axis.plot(
            [window["from"] for window in seen],
            [window["p50_us"] / 1000 for window in seen],
            color="#98df8a",
            label="p50",
        )
        axis.axhline(slo_ms, color="#d62728", ls="--", lw=1, label="SLO")
        for number, move in enumerate(burst["moves"]):
            axis.axvline(move["at"], color="#888888", ls=":", lw=1, label=None if number else "cores move")
        axis.set(title=f"Burst of {burst['title']}", xlabel="s from its begin", ylabel="baseline, ms", yscale="log")
        axis.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
