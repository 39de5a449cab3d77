# SPDX-License-Identifier: Apache-2.0
"""Compare published claims with measured results: one table, each row with the command that measured it.

    python -m load_tests.bench_claims             # read the files in results/
    python -m load_tests.bench_claims --run       # measure missing results first: hours for all of them
    python -m load_tests.bench_claims --run --only session-group aot
    python -m load_tests.bench_claims --update    # also put the figures into README.md and docs/claims.md

Writes results/bench_claims.json. docs/claims.md explains each row.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape

from load_tests._environment import describe_environment
from load_tests._programs import ROOT
from load_tests._report import make_console, write_results
from load_tests.claims import CLAIMS, Claim, Measured
from load_tests.claims_tables import long_table, print_table, replace_between_marks, short_table

__all__ = ["main", "read_claim"]

_OF_MAKE = {"MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL", "BENCH_ARGS"}
_KEPT = ("commit", "modified", "time", "cpu", "cpu_features", "cpus", "busy_before", "versions")


def read_claim(claim: Claim, folder: Path) -> dict[str, Any]:
    """Read the results of one claim.

    Returns
    -------
    row : dict
        `claim`, `published`, `command`, and either `figures` with `short`, `text` and the environment of the
        measurement, or `missing`, the reason why there is no figure.
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
    if claim.beside is not None:
        beside = read_claim(claim.beside, folder)
        if "figures" in beside:
            short, text = f"{measured.short}; {beside['short']}", f"{measured.text}. {beside['text']}"
            measured = Measured(short, text, measured.figures | beside["figures"])
    kept = {name: results["environment"][name] for name in _KEPT if name in results["environment"]}
    return row | {"figures": measured.figures, "short": measured.short, "text": measured.text} | kept


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the selected measurements, read, print and write.

    Returns
    -------
    status : int
        0; 1 if a command failed.
    """
    parser = argparse.ArgumentParser(description="Compare the published claims with the measurements.")
    parser.add_argument("--run", action="store_true", help="first measure the rows without a figure")
    parser.add_argument("--again", action="store_true", help="with --run: also measure the rows with a figure")
    parser.add_argument("--only", nargs="+", choices=tuple(CLAIMS), default=list(CLAIMS), help="only these rows")
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="folder of the results")
    parser.add_argument("--update", action="store_true", help="write the table to README.md and docs/claims.md")
    parser.add_argument(
        "--documents", type=Path, default=ROOT, help="with --update: folder that contains README.md and docs"
    )
    options = parser.parse_args(arguments)
    if options.update and options.only != list(CLAIMS):
        parser.error("--update: found only some of the rows, expected all of them")
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
        # The options of this make are not meant for another make.
        environment = {name: value for name, value in os.environ.items() if name not in _OF_MAKE}
        if subprocess.run(words, cwd=ROOT, env=environment).returncode:
            console.print(f"[bold red]{escape(command)}: failed[/]")
            status = 1
    rows = [read_claim(CLAIMS[name], options.results) for name in options.only]
    print_table(console, rows)
    output = options.results / "bench_claims.json"
    write_results(output, {"benchmark": "claims", "environment": describe_environment(ROOT), "rows": rows})
    console.print(f"Written to {output}")
    if options.update and any("missing" in row for row in rows):
        console.print("[bold red]README.md and docs/claims.md are not changed, because a row has no figure[/]")
        return 1
    if options.update:
        replace_between_marks(options.documents / "README.md", short_table(rows))
        replace_between_marks(options.documents / "docs" / "claims.md", long_table(rows))
        console.print("README.md and docs/claims.md have been updated")
    return status


if __name__ == "__main__":
    sys.exit(main())
