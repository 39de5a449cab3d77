# SPDX-License-Identifier: Apache-2.0
"""Run a load scenario against a proxy and a host that it starts; pass or fail.

    python -m load_tests.scenarios steady
    python -m load_tests.scenarios overload --host go --seconds 20

Writes results/load-test/SCENARIO.json and SCENARIO.html, and in the same folder locust's report if locust is used.
docs/benchmarks/load_scenarios.md explains the scenarios.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from load_tests._environment import describe_environment
from load_tests._programs import ROOT, ProgramError, find_library
from load_tests._report import Target, make_console, print_targets, write_results
from load_tests.bench_fused import optimize
from load_tests.scenarios.arrivals import Phase
from load_tests.scenarios.catalog import SCENARIOS, SLO_MS, Run
from load_tests.scenarios.generators import Sent, send_phases
from load_tests.scenarios.judging import judge, phase_figures, totals
from load_tests.scenarios.page import render
from load_tests.scenarios.stage import open_stage
from load_tests.workloads import ensure_model
from serving_proxy.errors import ProxyError

__all__ = ["main"]

#: Requests that are sent before measuring, because first requests open connections and fill caches.
_WARM_UP_S = 3.0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="load_tests.scenarios", description="Run a load scenario against a host, and judge its latency."
    )
    parser.add_argument("scenario", choices=tuple(SCENARIOS), help="scenario to run")
    parser.add_argument("--host", choices=("python", "go"), default="python", help="kind of host")
    parser.add_argument(
        "--workload", choices=("W2", "tiny"), default="W2", help="workload (default W2, which is optimized first)"
    )
    parser.add_argument("--seconds", type=float, help="length in seconds (default: that of the scenario)")
    parser.add_argument("--rate", type=float, help="requests/s of the normal load (default: that of the scenario)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the arrivals")
    parser.add_argument("--shared", action="store_true", help="for noisy_variant: run both models on all CPUs")
    parser.add_argument("--warm-up", type=float, default=_WARM_UP_S, help="seconds of load before the measurement")
    parser.add_argument("--no-limits", action="store_true", help="exit with 0 even if a limit is missed")
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "workloads", help="folder of the cached models")
    parser.add_argument("--output", type=Path, default=ROOT / "results" / "load-test", help="folder of the results")
    return parser.parse_args(arguments)


def _run_scenario(
    options: argparse.Namespace, console: Console, html: Path
) -> tuple[Run, list[Phase], Sent, dict[str, Any]]:
    scenario = SCENARIOS[options.scenario]
    workload = options.workload
    console.print(f"{scenario.title}: {workload}, {options.host} host")
    model = ensure_model(workload, options.cache)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if workload != "tiny":
            # Not into the cache, where another scenario may do the same.
            console.print("Optimizing the model")
            model = optimize(model, folder / "model", "auto", find_library())
        with open_stage(options.host, workload, scenario.rows, model, folder, options.cache) as stage:
            rate, seconds = options.rate or scenario.rate, options.seconds or scenario.seconds
            run = Run(stage, rate, seconds, pinned=not options.shared)
            scenario.prepare(run)
            phases = scenario.phases(run)
            warm = folder / "warm-up"
            warm.mkdir()
            warming = [Phase("warm-up", options.warm_up, rate)]
            send_phases(stage.endpoint, warming, options.seed + 1, warm, warm / "report.html", lambda _, __: None)
            console.print(f"{sum(phase.seconds for phase in phases):.0f} seconds of load")
            sent = send_phases(
                stage.endpoint, phases, options.seed, folder, html, lambda phase, end: scenario.during(run, phase, end)
            )
            entries = phase_figures(phases, sent)
            figures = totals(entries) | {"late_p99_ms": sent.late_us / 1000} | scenario.figures(run, entries, sent)
    return run, phases, sent, {"phases": entries, "figures": figures}


def _table(entries: Sequence[dict[str, Any]], generator: str) -> Table:
    table = Table(title=f"Latency from the intended start, sent by {generator}")
    table.add_column("phase")
    for heading in ("asked/s", "sent", "answered", "failed", "p50 ms", "p99 ms", "max ms"):
        table.add_column(heading, justify="right")
    for entry in entries:
        table.add_row(
            entry["phase"],
            f"{entry['asked_requests_per_s']:,.0f}",
            f"{entry['sent']:,}",
            f"{entry['answered']:,}",
            f"{sum(entry['failed'].values()):,}",
            *(f"{entry[name] / 1000:.2f}" if name in entry else "" for name in ("p50_us", "p99_us", "max_us")),
        )
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the scenario, judge, print and write.

    Returns
    -------
    status : int
        0; 1 if a limit is missed; 2 if the scenario could not be run.
    """
    options = _parse(arguments)
    console = make_console()
    scenario = SCENARIOS[options.scenario]
    environment = describe_environment(ROOT)
    report = options.output / f"{options.scenario}-locust.html"
    report.unlink(missing_ok=True)
    try:
        run, _, sent, found = _run_scenario(options, console, report)
        targets: list[Target] = judge(options.scenario, scenario.limits, found["figures"])
    except (ProgramError, ProxyError, FileNotFoundError, ValueError, psutil.Error) as error:
        console.print(f"[bold red]The scenario could not be run:[/] {escape(str(error))}")
        return 2
    results = {
        "benchmark": "load-test",
        "quick": run.seconds < scenario.seconds,
        "scenario": options.scenario,
        "title": scenario.title,
        "slo_ms": SLO_MS,
        "environment": environment,
        "settings": {
            "host": options.host,
            "workload": options.workload,
            "rows": scenario.rows,
            "rate": run.rate,
            "seconds": run.seconds,
            "seed": options.seed,
            "shared": options.shared,
            "generator": sent.generator,
        },
        **found,
        "noted": run.noted,
        "targets": [target.to_json() for target in targets],
    }
    console.print(_table(found["phases"], sent.generator))
    print_targets(console, targets)
    output = options.output / f"{options.scenario}.json"
    write_results(output, results)
    output.with_suffix(".html").write_text(render(results, report.name if report.is_file() else None))
    console.print(f"Written to {output} and {output.with_suffix('.html')}")
    return 0 if options.no_limits or all(target.ok for target in targets) else 1


if __name__ == "__main__":
    sys.exit(main())
