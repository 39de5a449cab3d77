# SPDX-License-Identifier: Apache-2.0
"""Targets, and how results are shown and kept."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from load_tests._programs import ROOT

__all__ = ["Target", "make_console", "mark", "print_targets", "results_file", "write_results"]


@dataclass(frozen=True)
class Target:
    """A figure, and what it has to reach.

    Parameters
    ----------
    name : str
        What is measured, with its unit.
    value : float
        What was measured.
    limit : float
        What it is held against.
    at_least : bool
        Whether the limit is the least or the most that is allowed.
    """

    name: str
    value: float
    limit: float
    at_least: bool

    @property
    def ok(self) -> bool:
        """Whether the target is reached."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def to_json(self) -> dict[str, Any]:
        """Answer the target as it stands in a file of results."""
        return asdict(self) | {"ok": self.ok}


def make_console() -> Console:
    """Make a console that is as wide as the terminal, or in a pipe or a file as wide as the widest table."""
    console = Console()
    return console if console.is_terminal else Console(width=120)


def mark(ok: bool) -> str:
    """Answer PASS or FAIL, colored."""
    return "[bold green]PASS[/]" if ok else "[bold red]FAIL[/]"


def print_targets(console: Console, targets: Iterable[Target]) -> None:
    """Print one line for each target."""
    for target in targets:
        relation = "at least" if target.at_least else "at most"
        console.print(f"  {mark(target.ok)}  {target.name}: {target.value:.4g}, {relation} {target.limit:.4g}")


def results_file(name: str, quick: bool) -> Path:
    """Answer where results of a name go; those of a quick run, which mean nothing, never in the place of others."""
    return ROOT / "results" / f"{name}{'_quick' if quick else ''}.json"


def write_results(path: Path, results: dict[str, Any]) -> None:
    """Write a file of results; its folder is made if it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=2) + "\n")
