# SPDX-License-Identifier: Apache-2.0
"""Render results of simulations as tables and as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.markup import escape
from rich.table import Table

from cost_model.simulation.inputs import BROKEN, P99_MISSES, Unjudged
from cost_model.simulation.run import Result
from cost_model.simulation.study import Comparison, Row


def capacity_table(rows: Sequence[Row]) -> Table:
    """Return a table of capacities: a row per kind of traffic, a column per policy, means over seeds."""
    policies = list(dict.fromkeys(row.policy for row in rows))
    table = Table(title="requests/s at which every model meets its p99 SLO", title_justify="left")
    table.add_column("traffic")
    table.add_column("interference", justify="right")
    for policy in policies:
        table.add_column(policy, justify="right")
    table.add_column("bound", justify="right")
    table.add_column("limited by", justify="left")
    for scale, traffic in dict.fromkeys((row.interference, row.traffic) for row in rows):
        cells, binding = [], ""
        for policy in policies:
            of = [row for row in rows if (row.interference, row.traffic, row.policy) == (scale, traffic, policy)]
            if not of:
                cells.append("")
                continue
            rates = [row.qps for row in of]
            spread = f" ±{(max(rates) - min(rates)) / 2:,.0f}" if len(rates) > 1 else ""
            cells.append(f"{sum(rates) / len(rates):,.0f}{spread}" if max(rates) else "none")
            binding = ", ".join(sorted({row.binding for row in of if row.binding})) or binding
        bounds = [row.bound_qps for row in rows if (row.interference, row.traffic) == (scale, traffic)]
        table.add_row(traffic, f"x{scale:g}", *cells, f"{sum(bounds) / len(bounds):,.0f}", binding)
    return table


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """Return a table of ratios between policies."""
    table = Table(title="ratio of requests/s (geometric mean over seeds; least)", title_justify="left")
    pairs = list(dict.fromkeys((comparison.policy, comparison.against) for comparison in comparisons))
    table.add_column("traffic")
    table.add_column("interference", justify="right")
    for policy, against in pairs:
        table.add_column(f"{policy} / {against}", justify="right")
    for scale, traffic in dict.fromkeys((comparison.interference, comparison.traffic) for comparison in comparisons):
        known = {
            (comparison.policy, comparison.against): comparison
            for comparison in comparisons
            if (comparison.interference, comparison.traffic) == (scale, traffic)
        }
        cells = [f"{known[pair].mean:.3f}; {known[pair].least:.3f}" if pair in known else "-" for pair in pairs]
        table.add_row(traffic, f"x{scale:g}", *cells)
    return table


def judging_notes(unjudged: Sequence[Unjudged], allowed: Mapping[str, float]) -> list[str]:
    """Return notes on models that are not held to their usual SLO, and why.

    Parameters
    ----------
    unjudged : sequence of Unjudged
    allowed : mapping of model to float
        Part of its requests that may miss the SLO.
    """
    reasons = [str(excused) for excused in unjudged]
    more = [f"{name} {part:.1%}" for name, part in allowed.items() if part > P99_MISSES]
    if more:
        reasons.append(
            f"these models may miss more than {P99_MISSES:.0%} (twice the part that they miss alone on idle cores, at "
            f"most {BROKEN:.0%}): {', '.join(more)}"
        )
    return reasons


def models_table(traffic: str, result: Result) -> Table:
    """Return a table of every model's results in a run; `*` marks models that were not judged for a time."""
    excused = {excuse.name for excuse in result.unjudged}
    lenient = excused or any(model.allowed > P99_MISSES for model in result.models)
    met = "no judged model misses more than it may" if lenient else "every model meets its SLO"
    verdict = f"[green]{met}[/]" if result.met else "[red]not every model meets its SLO[/]"
    table = Table(title=f"{traffic}, {result.policy}, {result.qps:,.0f} requests/s: {verdict}", title_justify="left")
    for name in ("model", "requests", "dropped", "missed", "allowed", "p50 [ms]", "p99 [ms]", "cores", "borrowed"):
        table.add_column(escape(name), justify="left" if name == "model" else "right")
    for model in result.models:
        mark = "" if model.met else "[red]"
        star = " *" if model.name in excused else ""
        table.add_row(
            f"{model.name}{star}", f"{model.arrived:,}", f"{model.dropped:,}", f"{mark}{model.missed:.2%}",
            f"{model.allowed:.2%}", f"{model.p50_ms:.2f}", f"{model.p99_ms:.2f}", f"{model.cores:.2f}",
            f"{model.borrowed_cores:.2f}",
        )  # fmt: skip
    return table


def result_json(result: Result) -> dict[str, Any]:
    """Return a run as JSON; NaN, which JSON lacks, becomes null."""
    models = [asdict(model) | {"met": model.met} for model in result.models]
    for model in models:
        model.update({key: None for key, value in model.items() if isinstance(value, float) and math.isnan(value)})
    return {
        "policy": result.policy,
        "qps": result.qps,
        "met": result.met,
        "simulated_s": result.simulated_s,
        "requests": result.arrived,
        "requests_per_wall_s": result.arrived / max(result.wall_s, 1e-9),
        "utilisation": result.utilisation,
        "slowdown": result.slowdown,
        "models": models,
        "moves": [
            {"at_s": at_s, "pool": move.pool, "before": move.before, "after": move.after, "reason": move.reason}
            for at_s, move in result.moves
        ],
    }
