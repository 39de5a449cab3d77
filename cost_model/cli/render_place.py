# SPDX-License-Identifier: Apache-2.0
"""Render a placement for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape

from cost_model.cli.render_plan import console, make_table
from cost_model.fleet.report import PlacementReport, ReplicaReport

# Rows that a table shows.
_MOST_ROWS = 40


def render_placement(made: PlacementReport) -> None:
    """Print the models with their replicas, the machines, moves and explanations."""
    screen = console()
    word = "[green]feasible[/]" if made.feasible else "[bold red]not feasible[/]"
    models = len({replica.name for replica in made.replicas})
    survives = {"none": "no loss is survived"}.get(made.survive, f"the loss of any {made.survive} is survived")
    gap = "" if made.gap is None else f", at most {made.gap:.1%} above the least possible"
    screen.print(
        f"[bold]Placement[/] {word}: {models} models on {made.machines_used} machines, {survives}; cost "
        f"{made.cost:,.0f}{gap}",
        soft_wrap=True,
    )
    for line in (*made.reasons, *(f"{model.name} has no place: {model.why}" for model in made.unplaced)):
        screen.print(f"  - {escape(line)}", soft_wrap=True)
    screen.print()
    screen.print(_models_table(made.replicas))
    screen.print(_machines_table(made))
    for move in made.moves:
        parts = [f"{text} {', '.join(names)}" for text, names in _directions(move.load_on, move.unload_from) if names]
        screen.print(f"[bold]{escape(move.name)}[/] {escape('; '.join(parts))}", soft_wrap=True)
    for explanation in made.explanations:
        screen.print(f"[bold]{escape(explanation.name)}[/]")
        for sentence in explanation.why:
            screen.print(f"  {escape(sentence)}.", soft_wrap=True)


def _directions(load_on: Sequence[str], unload_from: Sequence[str]) -> list[tuple[str, Sequence[str]]]:
    return [("moves to", load_on), ("leaves", unload_from)]


def _models_table(replicas: Sequence[ReplicaReport]) -> object:
    table = make_table("Models", "model", "requests/s", "replicas", "cores each", "pool", "machines")
    by_name: dict[str, list[ReplicaReport]] = {}
    for replica in replicas:
        by_name.setdefault(replica.name, []).append(replica)
    shown = list(by_name.items())[:_MOST_ROWS]
    for name, own in shown:
        cores = sorted({replica.cores for replica in own})
        each = f"{cores[0]}" if len(cores) == 1 else f"{cores[0]} to {cores[-1]}"
        machines = [replica.machine for replica in own]
        table.add_row(
            escape(name),
            f"{sum(replica.qps for replica in own):,.0f}",
            str(len(own)),
            each,
            "" if own[0].pool is None else str(own[0].pool),
            escape(", ".join(machines[:4]) + (f" and {len(machines) - 4} more" if len(machines) > 4 else "")),
        )
    if len(by_name) > len(shown):
        table.caption = f"and {len(by_name) - len(shown)} more models; --json has all"
    return table


def _machines_table(made: PlacementReport) -> object:
    table = make_table("Machines", "machine", "zone", "cores", "memory [GB]", "models")
    for machine in made.machines[:_MOST_ROWS]:
        table.add_row(
            escape(machine.name),
            escape(machine.zone or ""),
            f"{machine.used_cores} of {machine.cores}",
            f"{machine.used_memory_gb:,.0f} of {machine.memory_gb:,.0f}",
            str(machine.models),
        )
    if len(made.machines) > _MOST_ROWS:
        table.caption = f"and {len(made.machines) - _MOST_ROWS} more machines; --json has all"
    return table
