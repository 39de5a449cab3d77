# SPDX-License-Identifier: Apache-2.0
"""Draw the course of a fleet: how busy its machines are, and what a bad version costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cost_model.fleet.course import FleetResult
from cost_model.fleet.rollouts import BadVersion


def draw_fleet(result: FleetResult, versions: Sequence[BadVersion], path: Path) -> None:
    """Write a picture.

    Parameters
    ----------
    result : FleetResult
    versions : sequence of BadVersion
    path : Path
        PNG, SVG or PDF.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 4.2), layout="constrained")
    times = [at for at, *_ in result.utilization]
    left.plot(times, [mean for _, mean, _ in result.utilization], label="all allocated cores")
    left.plot(times, [most for *_, most in result.utilization], label="busiest allocation")
    left.axhline(1.0, color="black", lw=0.8, ls="--")
    left.set(xlabel="seconds", ylabel="utilization", title=f"{result.traffic}: {result.failures} failures")
    left.set_ylim(bottom=0)
    left.legend()
    for failing in dict.fromkeys(version.failing for version in versions):
        own = [version for version in versions if version.failing == failing]
        right.plot(
            [version.percent for version in own], [max(version.failed, 0.5) for version in own], marker="o", ms=3,
            label=f"{failing:.0%} of its requests fail",
        )  # fmt: skip
    right.set(xscale="log", yscale="log", xlabel="percent of the traffic", ylabel="failed requests until it is stopped")
    right.set_title("a bad version")
    right.legend()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
