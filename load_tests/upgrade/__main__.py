# SPDX-License-Identifier: Apache-2.0
"""Replace the programs of an earlier commit one by one by those of today under load, and then go back.

    python -m load_tests.upgrade --from COMMIT

Checks out and builds the commit below build/releases, which takes minutes the first time. Writes results/upgrade.json,
and exits with 1 if a request was lost or answered wrongly. docs/benchmarks/fleet.md explains it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from load_tests._environment import describe_environment
from load_tests._programs import ROOT
from load_tests._releases import Release, build_release
from load_tests._report import make_console, mark, write_results
from load_tests.upgrade.clients import Step
from load_tests.upgrade.fleet import upgrade_fleet
from load_tests.upgrade.machine import upgrade_machine

__all__ = ["CASES", "main"]

CASES: dict[str, Callable[[Path, Path, Release, float], list[Step]]] = {
    "machine": upgrade_machine,
    "fleet": upgrade_fleet,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Upgrade and go back, print and write what clients saw.

    Returns
    -------
    status : int
        0; 1 if a request was lost or answered wrongly.
    """
    parser = argparse.ArgumentParser(prog="load_tests.upgrade", description="Upgrade under load, and go back.")
    parser.add_argument("--from", dest="commit", required=True, help="commit of the earlier release")
    parser.add_argument("--only", nargs="+", choices=tuple(CASES), default=list(CASES), help="cases (default: all)")
    parser.add_argument("--seconds", type=float, default=2.0, help="time after each step (default: 2)")
    parser.add_argument("--output", type=Path, default=ROOT / "results" / "upgrade.json", help="file of the results")
    options = parser.parse_args(arguments)
    console, begun = make_console(), time.monotonic()
    with console.status("building the earlier release"):
        earlier = build_release(options.commit)
    cases = {name: _measure(CASES[name], earlier, options.seconds) for name in options.only}
    for name, steps in cases.items():
        console.print(_table(f"{name}: from {earlier.name} and back", steps))
    every = [step.counts for steps in cases.values() for step in steps]
    counts = {key: sum(step[key] for step in every) for key in every[0]}
    results = {"benchmark": "upgrade", "environment": describe_environment(ROOT), "from": earlier.name, **counts}
    results["cases"] = {
        name: [{"step": step.name, **step.counts, "reasons": step.reasons[:20]} for step in steps]
        for name, steps in cases.items()
    }
    write_results(options.output, {**results, "seconds": round(time.monotonic() - begun, 1)})
    ok = not counts["lost"] and not counts["wrong"]
    console.print(f"  {mark(ok)}  {counts['right']:,} right answers, {counts['lost']} lost, {counts['wrong']} wrong")
    console.print(f"Written to {options.output}")
    return 0 if ok else 1


def _measure(case: Callable[[Path, Path, Release, float], list[Step]], earlier: Release, seconds: float) -> list[Step]:
    with tempfile.TemporaryDirectory(prefix="recprocessor-upgrade-", ignore_cleanup_errors=True) as name:
        models, folder = Path(name) / "models", Path(name) / "state"
        folder.mkdir()
        subprocess.run([sys.executable, "-m", "load_tests.upgrade.models", str(models)], check=True, cwd=ROOT)
        return case(folder, models, earlier, seconds)


def _table(title: str, steps: Sequence[Step]) -> Table:
    table = Table(title=title)
    table.add_column("step")
    for heading in ("right", "lost", "wrong"):
        table.add_column(heading, justify="right")
    table.add_column("reasons", overflow="fold")
    for step in steps:
        table.add_row(
            step.name, *(f"{count:,}" for count in step.counts.values()), escape(", ".join(step.reasons)[:300])
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
