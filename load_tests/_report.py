# SPDX-License-Identifier: Apache-2.0
"""Define targets, and print and save results."""

import json
from argparse import Namespace
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from load_tests._programs import ROOT

__all__ = ["Target", "finish", "finish_cases", "make_console", "mark", "print_targets", "results_file", "write_results"]


@dataclass(frozen=True)
class Target:
    """Describe a figure and its target.

    Parameters
    ----------
    name : str
        Name of the figure, with its unit.
    value : float
        Measured value.
    limit : float
        Target value.
    at_least : bool
        True if the limit is a minimum, false if it is a maximum.
    """

    name: str
    value: float
    limit: float
    at_least: bool

    @property
    def ok(self) -> bool:
        """Return whether the target is reached."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def to_json(self) -> dict[str, Any]:
        """Return the target in the format of a result file."""
        return asdict(self) | {"ok": self.ok}


def make_console() -> Console:
    """Return a console as wide as the terminal; in a pipe or a file, as wide as the widest table."""
    console = Console()
    return console if console.is_terminal else Console(width=120)


def mark(ok: bool) -> str:
    """Return PASS or FAIL, colored."""
    return "[bold green]PASS[/]" if ok else "[bold red]FAIL[/]"


def print_targets(console: Console, targets: Iterable[Target]) -> None:
    """Print one line for each target."""
    for target in targets:
        relation = "at least" if target.at_least else "at most"
        console.print(f"  {mark(target.ok)}  {target.name}: {target.value:.4g}, {relation} {target.limit:.4g}")


def results_file(name: str, quick: bool) -> Path:
    """Return the path of a result file; quick runs have separate files, because their figures are meaningless."""
    return ROOT / "results" / f"{name}{'_quick' if quick else ''}.json"


def write_results(path: Path, results: dict[str, Any]) -> None:
    """Write a result file; create its folder if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=2) + "\n")


def finish(console: Console, path: Path, results: dict[str, Any], targets: Sequence[Target], strict: bool) -> int:
    """Print the targets, write the results with them, and return the exit status: 1 if `strict` and one is missed."""
    print_targets(console, targets)
    write_results(path, results | {"targets": [target.to_json() for target in targets]})
    console.print(f"Written to {path}")
    return 1 if strict and not all(target.ok for target in targets) else 0


def finish_cases(
    console: Console,
    options: Namespace,
    benchmark: str,
    environment: dict[str, Any],
    cases: dict[str, Any],
    targets: Sequence[Target],
) -> int:
    """Print what is wrong in the cases of a benchmark, then do what `finish` does; quick runs have no targets.

    Parameters
    ----------
    options : Namespace
        `quick`, `strict`, and `output`, the path of the results.

    Returns
    -------
    status : int
        1 also if a case has `wrong` answers.
    """
    wrong = [name for name, case in cases.items() if case.get("wrong")]
    if wrong:
        console.print(f"[bold red]Wrong answers:[/] {', '.join(wrong)}")
    if options.quick:
        targets = []
        console.print("A quick run: the answers are right; its figures are no measurement.")
    results = {"benchmark": benchmark, "quick": options.quick, "environment": environment, "cases": cases}
    status = finish(console, options.output, results, targets, options.strict)
    return 1 if wrong else status
