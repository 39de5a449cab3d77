# SPDX-License-Identifier: Apache-2.0
"""Run the demo from the data to the tables."""

from __future__ import annotations

import tempfile
from pathlib import Path

from rich.markup import escape

from demo import movielens
from demo.measure import find_library
from demo.online.options import Options
from demo.report import environment
from demo.terminal import Terminal


def run(options: Options, terminal: Terminal) -> int:
    """Run everything and print the tables; return 0 if there was no fault, otherwise 1.

    Raises
    ------
    DataError
        If the data set cannot be obtained.
    ServingError
        If the proxy could not be started or refused a command.
    """
    find_library(options.root)
    options.work.mkdir(parents=True, exist_ok=True)
    with terminal.step("Fetch MovieLens-100K"):
        wheel = movielens.fetch(options.cache)
    with terminal.step("Start TensorFlow"):
        from demo.online import lasso, live, report, stream
    rows = stream.read(wheel, options.share)
    with tempfile.TemporaryDirectory(prefix="state-", dir=options.work) as name:
        folder = Path(name)
        found, curves, faults = live.run(options, terminal, folder, rows)
        with terminal.step("Learn again, with group lasso"):
            variants = lasso.compare(rows, folder)
    text = report.as_json(found, variants, faults, environment(options.root))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(text)
    report.draw(options.picture, found, *curves)
    console = terminal.console
    console.print()
    console.print(report.stream_table(found))
    console.print(report.lasso_table(variants))
    for fault in faults:
        console.print(f"[bold red]{escape(fault)}.[/]")
    if not faults:
        console.print(
            f"[bold green]None of {found.requests:,} requests was lost[/] while {found.epochs:,} epochs were learned, "
            f"published and served. The last one gives TensorFlow's scores within {found.largest_difference:.1g}."
        )
    places = [_shown(path) for path in (options.json, options.picture)]
    console.print(f"All figures: {places[0]}; picture: {places[1]}")
    return 1 if faults else 0


def _shown(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
