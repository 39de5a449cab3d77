# SPDX-License-Identifier: Apache-2.0
"""Inject faults, and check that all responses stay right and serving recovers.

    python -m load_tests.faults                      # all of them, with both hosts: under 30 minutes
    python -m load_tests.faults --only aborts --host go --seed 7

Writes results/faults.json. Exits with 1 if a check failed. docs/testing.md lists the faults.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from load_tests._environment import describe_environment
from load_tests._programs import ROOT, ProgramError
from load_tests._report import make_console, mark, write_results
from load_tests.faults.bad_versions import aborts, eats_memory, hangs
from load_tests.faults.bombs import bombs
from load_tests.faults.case import RECOVERY_S, Case, Found
from load_tests.faults.kills import kills
from load_tests.faults.machine import full_disk, host_stands_still, lost_database
from serving_proxy.errors import ProxyError

__all__ = ["CASES", "main"]

HOSTS = ("python", "go")
CASES: dict[str, Callable[[Case], None]] = {
    fault.__name__: fault
    for fault in (aborts, hangs, eats_memory, full_disk, lost_database, host_stands_still, bombs, kills)
}


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="load_tests.faults", description="Make faults on purpose.")
    parser.add_argument("--only", action="append", choices=tuple(CASES), help="cause only this fault; repeatable")
    parser.add_argument("--host", action="append", choices=HOSTS, help="kind of host; repeatable (default: both)")
    parser.add_argument(
        "--kills", type=int, default=100, help="total number of kill -9, divided among the hosts (default: 100)"
    )
    parser.add_argument("--seed", type=int, help="seed of the random moments (default: a new one, which is printed)")
    parser.add_argument("--output", type=Path, default=ROOT / "results" / "faults.json", help="file of the results")
    return parser.parse_args(arguments)


def _run_fault(name: str, kind: str, options: argparse.Namespace, models: Path, folder: Path) -> tuple[Found, float]:
    folder.mkdir()
    hosts = len(options.host)
    share = options.kills // hosts + (options.kills % hosts if kind == options.host[0] else 0)
    case = Case(kind, models, folder, random.Random(f"{options.seed}/{name}/{kind}"), share, options.seed)
    begun = time.monotonic()
    try:
        CASES[name](case)
    except (ProgramError, ProxyError, OSError, AssertionError) as error:
        case.found.problems.append(f"{type(error).__name__}: {error}")
    return case.found, time.monotonic() - begun


def _row(table: Table, name: str, kind: str, found: Found, seconds: float) -> None:
    figures = ", ".join(f"{key} {value}" for key, value in found.figures.items() if value is not None)
    table.add_row(
        name,
        kind,
        str(found.faults),
        f"{len(found.responses.answered):,}",
        str(len(found.responses.wrong)),
        f"{found.recovery_s:.1f}",
        f"{seconds:.0f}",
        mark(found.ok),
        escape(figures[:200]),
    )


def _table() -> Table:
    table = Table(title="Faults")
    table.add_column("fault")
    table.add_column("host")
    for heading in ("faults", "right answers", "wrong", "longest gap s", "took s"):
        table.add_column(heading, justify="right")
    table.add_column("")
    table.add_column("seen", overflow="fold")
    return table


def _result(name: str, kind: str, found: Found, seconds: float) -> dict[str, Any]:
    return {
        "fault": name,
        "host": kind,
        "ok": found.ok,
        "faults": found.faults,
        "answered": len(found.responses.answered),
        "wrong": found.responses.wrong[:20],
        "failed": dict(found.responses.failed),
        "recovery_s": round(found.recovery_s, 3),
        "seconds": round(seconds, 1),
        "problems": found.problems,
        "figures": found.figures,
    }


def _run(options: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    table, results = _table(), []
    with tempfile.TemporaryDirectory(prefix="recprocessor-faults-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        models = folder / "models"
        subprocess.run([sys.executable, "-m", "load_tests.faults.models", str(models)], check=True, cwd=ROOT)
        for fault in options.only:
            for kind in options.host:
                console.print(f"{fault}, {kind} host")
                found, seconds = _run_fault(fault, kind, options, models, folder / f"{fault}-{kind}")
                for problem in found.problems:
                    console.print(f"  [bold red]{escape(problem)}[/]")
                _row(table, fault, kind, found, seconds)
                results.append(_result(fault, kind, found, seconds))
    console.print(table)
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    """Inject the faults, print and write the results.

    Returns
    -------
    status : int
        0; 1 if a check failed.
    """
    options = _parse(arguments)
    options.only = options.only or list(CASES)
    options.host = options.host or list(HOSTS)
    options.seed = random.SystemRandom().randrange(1 << 31) if options.seed is None else options.seed
    console = make_console()
    console.print(f"Seed {options.seed}")
    environment, begun = describe_environment(ROOT), time.monotonic()
    results = _run(options, console)
    worst = max((result["recovery_s"] for result in results), default=0.0)
    ok = all(result["ok"] for result in results)
    write_results(
        options.output,
        {
            "benchmark": "faults",
            "environment": environment,
            "settings": {"seed": options.seed, "kills": options.kills, "recovery_limit_s": RECOVERY_S},
            "seconds": round(time.monotonic() - begun, 1),
            "worst_recovery_s": worst,
            "ok": ok,
            "results": results,
        },
    )
    console.print(f"  {mark(ok)}  longest time without a correct response {worst:.1f} s, limit {RECOVERY_S:g} s")
    console.print(f"Written to {options.output}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
