# SPDX-License-Identifier: Apache-2.0
"""Put the published claims beside what the benches measured: one table, each row with the command that made it.

    python -m load_tests.bench_claims             # read what is in results/
    python -m load_tests.bench_claims --run       # measure first what is not there: hours for all of it
    python -m load_tests.bench_claims --run --only session-group aot

Writes results/bench_claims.json. docs/benchmarks.md says what stands behind each row.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from load_tests._environment import describe_environment
from load_tests._programs import ROOT
from load_tests._report import make_console, write_results
from load_tests.claims import CLAIMS, Claim, Measured

__all__ = ["main", "read_claim", "render"]


def read_claim(claim: Claim, folder: Path) -> dict[str, Any]:
    """Read one claim's results.

    Returns
    -------
    row : dict
        `claim`, `published`, `command`, and either `figures` with `text`, `commit`, `modified`, `cpu`, `cpus` and
        `time` of the measurement, or `missing`, why there is no figure.
    """
    row: dict[str, Any] = {"claim": claim.title, "published": claim.published, "command": claim.command}
    path = folder / claim.file
    try:
        results = json.loads(path.read_text())
    except FileNotFoundError:
        return row | {"missing": f"not measured: no {claim.file}"}
    except ValueError as error:
        return row | {"missing": f"{claim.file}: {error}"}
    if results.get("quick"):
        return row | {"missing": f"{claim.file} is of a quick run, whose figures mean nothing"}
    try:
        measured: Measured = claim.read(results)
    except (KeyError, StopIteration, IndexError, TypeError, ValueError) as error:
        return row | {"missing": f"{claim.file}: {error!r}, expected a whole run"}
    environment = results["environment"]
    kept = {name: environment[name] for name in ("commit", "modified", "cpu", "cpus", "time")}
    return row | {"figures": measured.figures, "text": measured.text} | kept


def render(console: Console, rows: Sequence[dict[str, Any]]) -> None:
    """Print the table."""
    table = Table(title="Published claims, and what we measured", show_lines=True)
    table.add_column("claim, and the command that measures it", ratio=3)
    table.add_column("published", ratio=1)
    table.add_column("measured", ratio=5)
    table.add_column("commit, date", min_width=10)
    for row in rows:
        where = ""
        if "commit" in row:
            where = f"{(row['commit'] or 'none')[:7]}{'*' if row['modified'] else ''} {row['time'][:10]}"
        text = escape(row["text"]) if "text" in row else f"[yellow]{escape(row['missing'])}[/]"
        table.add_row(f"{escape(row['claim'])}\n[dim]{escape(row['command'])}[/]", row["published"], text, where)
    console.print(table)
    machines = sorted({f"{row['cpu']}, {row['cpus']} CPUs" for row in rows if "cpu" in row})
    console.print(f"Machine: {'; '.join(machines) or 'none yet'}. * files differed from the commit.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for, read, print and write.

    Returns
    -------
    status : int
        0; 1 if a command failed.
    """
    parser = argparse.ArgumentParser(description="Put the published claims beside what was measured.")
    parser.add_argument("--run", action="store_true", help="measure first the rows that have no figure")
    parser.add_argument("--again", action="store_true", help="with --run: measure those that have one, too")
    parser.add_argument("--only", nargs="+", choices=tuple(CLAIMS), default=list(CLAIMS), help="some of the rows")
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="folder of the results")
    options = parser.parse_args(arguments)
    console = make_console()
    status = 0
    # Rows that read the same file are measured once.
    for command in dict.fromkeys(
        CLAIMS[name].command
        for name in options.only
        if options.run and (options.again or "missing" in read_claim(CLAIMS[name], options.results))
    ):
        console.print(f"[bold]{escape(command)}[/]")
        words = shlex.split(command)
        if words[0] == "python":
            words[0] = sys.executable
        if subprocess.run(words, cwd=ROOT).returncode:
            console.print(f"[bold red]{escape(command)}: failed[/]")
            status = 1
    rows = [read_claim(CLAIMS[name], options.results) for name in options.only]
    render(console, rows)
    output = options.results / "bench_claims.json"
    write_results(output, {"benchmark": "claims", "environment": describe_environment(ROOT), "rows": rows})
    console.print(f"Written to {output}")
    return status


if __name__ == "__main__":
    sys.exit(main())
