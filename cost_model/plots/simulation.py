# SPDX-License-Identifier: Apache-2.0
"""Draw simulations: latency against load per policy, and which group owns which core over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cost_model.simulation.run import Result
from cost_model.workload import Tenant

# Limit of missed divided by allowed: smaller values are drawn here.
_LEAST = 1e-2

_COLORS = {
    "shared": "#888888",
    "static": "#b58900",
    "baseline-pool": "#1f77b4",
    "planned": "#2ca02c",
    "dynamic": "#d62728",
}


def draw_simulation(
    curves: Mapping[str, Sequence[Result]], owned: Result | None, title: str, baseline: Tenant, path: Path
) -> None:
    """Write a picture: how much of its allowed misses the worst model uses, the baseline's p99, and the cores.

    Parameters
    ----------
    curves : mapping of policy to results at rising rates
    owned : Result, optional
        A run whose core owners are shown.
    title : str
    baseline : Tenant
        Its p99 and its SLO are shown.
    path : Path
        PNG, SVG or PDF.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    highest, count = 1.0, 3 if owned else 2
    figure, axes = pyplot.subplots(1, count, figsize=(6 * count, 4.6), layout="constrained")
    for policy, results in curves.items():
        rates = [result.qps / 1e3 for result in results]
        color = _COLORS.get(policy)
        worst = [result.worst.missed / result.worst.allowed for result in results]
        axes[0].plot(rates, np.maximum(worst, _LEAST), marker="o", ms=3, color=color, label=policy)
        highest = max(highest, *worst)
        p99 = [next(model.p99_ms for model in result.models if model.name == baseline.name) for result in results]
        axes[1].plot(rates, p99, marker="o", ms=3, color=color, label=policy)
    axes[0].axhline(1.0, color="black", lw=0.8, ls="--")
    axes[0].set(
        yscale="log", ylim=(_LEAST * 0.8, 1.5 * highest), xlabel="thousand requests/s",
        ylabel="missed / allowed, of the worst model", title="SLOs are met below the dashed line",
    )  # fmt: skip
    axes[0].yaxis.set_major_formatter("{x:g}")
    axes[1].axhline(baseline.slo_p99_ms, color="black", lw=0.8, ls="--")
    axes[1].set(xlabel="thousand requests/s", ylabel="p99 [ms]", title=f"p99 of {baseline.name} and its SLO")
    axes[1].set_ylim(bottom=0)
    axes[0].legend()
    notes = []
    if owned:
        draw_owners(axes[2], owned)
        notes = [
            f"{excused.name} is not judged from {excused.from_s:g} to {excused.until_s:g} s"
            for excused in owned.unjudged
        ]
    figure.suptitle("; ".join([title, *notes]))
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def draw_owners(axis: Any, result: Result) -> None:
    """Draw who owns which core over time, one color per group of models."""
    from matplotlib import colormaps
    from matplotlib.patches import Patch

    labels = list(dict.fromkeys(label for _, owner in result.owners for label in owner.labels))
    palette = [*colormaps["tab20"](range(20)), *colormaps["tab20b"](range(20))]
    times = np.arange(0.0, max(1.0, result.simulated_s))
    cores = len(result.owners[0][1].core_owner)
    picture = np.zeros((cores, len(times)), int)
    for at_s, assignment in result.owners:
        shown = [labels.index(assignment.labels[group]) for group in assignment.core_owner]
        picture[:, times >= at_s] = np.array(shown)[:, None]
    colors = np.array([palette[place % len(palette)][:3] for place in range(len(labels))])
    axis.imshow(colors[picture], aspect="auto", origin="lower", extent=(0, result.simulated_s, 0, cores))
    moved = f"{len(result.moves)} moves" if result.moves else "no moves"
    title = f"owner of each core: {result.policy} at {result.qps / 1e3:.3g} thousand requests/s, {moved}"
    axis.set(xlabel="seconds", ylabel="core")
    axis.set_title(title, fontsize="medium")
    most = sorted(range(len(labels)), key=lambda place: -int((picture == place).sum()))[:12]
    handles = [Patch(color=colors[place], label=labels[place]) for place in most]
    axis.legend(handles=handles, fontsize="x-small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
