# SPDX-License-Identifier: Apache-2.0
"""Who owns which core, and how far from its objective each model is."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cost_model.planning import Plan

_COLUMNS = 16


def plot_plan(made: Plan, path: Path) -> None:
    """Draw a plan: on the left a square for each core, on the right p99 over objective of every model."""
    from matplotlib.figure import Figure

    cores = len(made.machine.cores)
    rows = -(-cores // _COLUMNS)
    figure = Figure(figsize=(13, max(4.5, 1.5 + 0.5 * rows)), layout="constrained")
    map_axes, model_axes = figure.subplots(1, 2, width_ratios=(1.2, 1))
    palette = [f"C{number}" for number in range(10)]
    for number, one in enumerate(made.allocations):
        colour = palette[number % len(palette)]
        for core in one.cores:
            map_axes.add_patch(_square(core, colour))
        label = f"{one.name}: {len(one.cores)} cores, {one.sessions} sessions of {one.threads_per_session}"
        map_axes.plot([], [], "s", color=colour, label=label, markersize=9)
        predicted = list(one.predicted.values())
        ratio = [min(x.p99_ms / x.slo_p99_ms, 2.0) for x in predicted]
        model_axes.plot([x.qps for x in predicted], ratio, "o", color=colour, alpha=0.75)
    for node in made.machine.nodes:
        first = min(place for place, core in enumerate(made.machine.cores) if core.node == node)
        map_axes.text(-0.4, first // _COLUMNS, f"node {node}", ha="right", va="center", fontsize=8)
    map_axes.set(xlim=(-1.6, min(cores, _COLUMNS)), ylim=(rows, -0.6), aspect="equal")
    map_axes.set_axis_off()
    map_axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), frameon=False, fontsize=8)
    word = "feasible" if made.feasible else "not feasible"
    growth = f"{made.growth:.2f} times" if np.isfinite(made.growth) else "any times"
    map_axes.set_title(
        f"Plan, {word}: {sum(made.qps.values()):,.0f} requests/s, room for {growth} as many", fontsize=10
    )
    model_axes.axhline(1.0, color="black", linewidth=1)
    model_axes.set_xscale("symlog", linthresh=1.0)
    model_axes.set(
        xlim=(0, None), ylim=(0, 2.05), xlabel="requests/s of the model", ylabel="predicted p99 / objective (cut at 2)"
    )
    model_axes.set_title("Below the line the objective is met", fontsize=10)
    figure.savefig(path, dpi=110)


def _square(core: int, colour: str) -> object:
    from matplotlib.patches import Rectangle

    return Rectangle((core % _COLUMNS, core // _COLUMNS - 0.45), 0.9, 0.9, color=colour)
