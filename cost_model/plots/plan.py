# SPDX-License-Identifier: Apache-2.0
"""Draw which model owns which core, and how far each model is from its SLO."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cost_model.planning import Plan
from cost_model.queueing import Prediction

_COLUMNS = 16
# More names cannot be read; the models that are left out are the farthest from missing their SLO.
_NAMES = 48
# Limit of p99 divided by SLO: larger values are drawn at the edge.
_CUT = 2.0


def plot_plan(made: Plan, path: Path) -> None:
    """Draw a plan: on the left a square for each core, on the right p99 divided by SLO for every model."""
    from matplotlib.figure import Figure

    rows = -(-len(made.machine.cores) // _COLUMNS)
    names = min(_NAMES, len(made.qps))
    # Space for the squares with their legend on the left, and a line for each name on the right.
    height = max(3.5, 1.5 + 0.42 * rows + 0.2 * len(made.allocations), 1.3 + 0.16 * names)
    figure = Figure(figsize=(14, height), layout="constrained")
    map_axes, model_axes = figure.subplots(1, 2, width_ratios=(1.1, 1))
    figure.suptitle(f"Plan {'feasible' if made.feasible else 'not feasible'}: {made.summary}", fontsize=11)
    _draw_cores(map_axes, made)
    _draw_models(model_axes, made)
    figure.savefig(path, dpi=110)


def _draw_cores(axes: Any, plan: Plan) -> None:
    from matplotlib.patches import Rectangle

    cores = len(plan.machine.cores)
    for number, allocation in enumerate(plan.allocations):
        color = _color(number)
        for core in allocation.cores:
            axes.add_patch(Rectangle((core % _COLUMNS, core // _COLUMNS - 0.45), 0.9, 0.9, color=color))
        cores_text = _count_text(len(allocation.cores), "core")
        label = f"{allocation.name}: {cores_text}, {_count_text(allocation.sessions, 'session')}"
        if allocation.threads_per_session > 1:
            label += f" of {allocation.threads_per_session}"
        axes.plot([], [], "s", color=color, label=label, markersize=9)
    for node in plan.machine.nodes:
        first = min(place for place, core in enumerate(plan.machine.cores) if core.node == node)
        axes.text(-0.4, first // _COLUMNS, f"node {node}", ha="right", va="center", fontsize=8)
    axes.set(xlim=(-1.6, min(cores, _COLUMNS)), ylim=(-(-cores // _COLUMNS), -0.6), aspect="equal", anchor="N")
    axes.set_axis_off()
    axes.set_title("Owner of each core", fontsize=10)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), frameon=False, fontsize=8)


def _draw_models(axes: Any, plan: Plan) -> None:
    """Draw a line for each model; the model nearest to its SLO, or furthest beyond it, is on top."""
    models = [
        (_ratio(predicted), name, number)
        for number, allocation in enumerate(plan.allocations)
        for name, predicted in allocation.predicted.items()
    ]
    models.sort(key=lambda model: (-model[0], model[1]))
    shown, rest = models[:_NAMES], models[_NAMES:]
    for place, (ratio, _, number) in enumerate(shown):
        axes.plot([0, min(ratio, _CUT)], [place, place], color=_color(number), linewidth=1, alpha=0.5)
        mark = "o" if ratio <= _CUT else ">"
        axes.plot(min(ratio, _CUT), place, mark, color=_color(number), markersize=5, clip_on=False)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_yticks(range(len(shown)), [name for _, name, _ in shown], fontsize=7)
    most = min(_CUT, max(1.0, shown[0][0]))
    axes.set(xlim=(0, most * 1.05), ylim=(len(shown) - 0.4, -0.6), xlabel="predicted p99 / SLO")
    axes.grid(axis="x", alpha=0.3)
    notes = [f"; {len(rest)} more are below {rest[0][0]:.2f}"] if rest else []
    notes += [f"; > is above {_CUT:g}"] if shown[0][0] > _CUT else []
    axes.set_title("Left of the line the SLO is met" + "".join(notes), fontsize=10)


def _ratio(predicted: Prediction) -> float:
    return predicted.p99_ms / predicted.slo_p99_ms


def _color(number: int) -> str:
    return f"C{number % 10}"


def _count_text(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")
