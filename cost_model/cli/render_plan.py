# SPDX-License-Identifier: Apache-2.0
"""Render a plan for the terminal."""

from __future__ import annotations

import math

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cost_model.machine import Machine
from cost_model.planning import Addition, Explanation, Plan
from cost_model.queueing import Prediction


def console() -> Console:
    """Return a console as wide as the terminal; 140 columns in a pipe or a file."""
    screen = Console(highlight=False)
    return screen if screen.is_terminal else Console(width=140, highlight=False)


def make_table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, show_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", overflow="fold")
    return table


def render_plan(made: Plan, added: str | None = None) -> None:
    """Print allocations, the models nearest to or beyond their SLO, and notes; `added` is the model that was tried."""
    screen = console()
    word = "[green]feasible[/]" if made.feasible else "[bold red]not feasible[/]"
    name = f"Plan with {escape(added)}" if added else "Plan"
    screen.print(f"[bold]{name}[/] {word}: {made.summary}", soft_wrap=True)
    if made.memory is not None:
        limit = "" if made.memory.limit is None else f" of {made.memory.limit / 1e9:,.1f}"
        screen.print(f"  memory: {made.memory.used / 1e9:,.1f}{limit} GB", soft_wrap=True)
    for reason in made.reasons:
        screen.print(f"  - {escape(reason)}", soft_wrap=True)
    screen.print()
    table = make_table(
        "Allocations", "models", "cores", "nodes", "which", "sessions", "busy", "worst p99 / SLO", "headroom", "late"
    )
    for allocation in made.allocations:
        worst = max(allocation.predicted.values(), key=lambda predicted: predicted.late)
        nodes = sorted({made.machine.cores[core].node for core in allocation.cores})
        threads = f" x {allocation.threads_per_session}" if allocation.threads_per_session > 1 else ""
        table.add_row(
            escape(allocation.name),
            str(len(allocation.cores)),
            ",".join(map(str, nodes)),
            _which(allocation.cores, made.machine),
            f"{allocation.sessions}{threads}",
            f"{worst.utilisation:.0%}",
            _p99(worst),
            _growth(allocation.growth),
            f"{worst.late:.2%}",
        )
    screen.print(table)
    screen.print()


def render_addition(made: Addition) -> None:
    """Print the verdict for a model that was tried out."""
    color = {"fits": "green", "needs_cores": "yellow"}.get(made.verdict, "bold red")
    console().print(f"[bold]{escape(made.name)}[/] [{color}]{escape(made.sentence)}[/]\n", soft_wrap=True)


def render_explanation(made: Explanation) -> None:
    """Print why a model has its allocation."""
    screen = console()
    predicted = made.predicted
    screen.print(
        f"[bold]{escape(made.name)}[/]: {predicted.qps:,.0f} requests/s, service {made.service_mean_ms:.2f} ms "
        f"(p99 {made.service_p99_ms:.1f}); keeps {made.demand_cores:.1f} cores busy, its allocation "
        f"{made.demand_pool_cores:.1f} of {len(made.allocation.cores)}",
        soft_wrap=True,
    )
    for sentence in made.why:
        screen.print(f"  {escape(sentence)}", soft_wrap=True)
    table = make_table("", "cores", "sessions", "p99", "headroom", "SLOs")
    for point in made.curve:
        mark = " <" if point.cores == len(made.allocation.cores) else ""
        threads = f" x {point.threads_per_session}" if point.threads_per_session > 1 else ""
        table.add_row(
            f"{point.cores}{mark}",
            f"{point.sessions}{threads}",
            f"{point.p99_ms:.2f} ms" if math.isfinite(point.p99_ms) else "overload",
            _growth(point.growth),
            "met" if point.meets else "missed",
        )
    screen.print(table)
    screen.print()


def _p99(predicted: Prediction) -> str:
    return f"{predicted.p99_ms:.1f} / {predicted.slo_p99_ms:g} ms" if math.isfinite(predicted.p99_ms) else "overload"


def _growth(growth: float) -> str:
    return f"{growth:.2f} x" if math.isfinite(growth) else "any"


def _which(cores: tuple[int, ...], machine: Machine) -> str:
    """Return the first CPUs of cores in Linux's list format."""
    from cost_model.machine import cpu_ranges

    return cpu_ranges(sorted(machine.cores[core].cpus[0] for core in cores))
