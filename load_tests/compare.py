# SPDX-License-Identifier: Apache-2.0
"""Decide whether one result file is better or worse than another, with a stated noise band.

    python -m load_tests.compare old.json new.json [--noise 0.05] [--metric speedup]

A figure has changed if it moved by more than the band: the larger of `--noise` and twice the standard error of the
difference of the two medians, estimated from the rounds. The exit status is 1 if any figure became worse.
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import stdev
from typing import Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from load_tests._report import make_console

__all__ = ["METRICS", "Change", "Figure", "compare", "main", "read_figures"]

Verdict = Literal["better", "worse", "same"]

#: Figures of the processor in a serving result, and whether more is better. `speedup` is relative to stock TensorFlow
#: in the same run, so it also compares runs on different machines or on a busy machine.
METRICS = {"speedup": True, "requests_per_s": True, "p50_us": False, "p99_us": False, "cpu_s_per_1000": False}

# Least difference that counts for any ratio, in the figure's unit: memory figures are small numbers near zero.
MEMORY_FLOOR_MB = 1.0
# The resolution of the clock of greenlets.
LATENCY_FLOOR_US = 1000.0


@dataclass(frozen=True)
class Figure:
    """Contain one figure of a result file.

    Parameters
    ----------
    value : float
        The figure.
    error : float
        Its relative standard error; 0 if unknown.
    more_is_better : bool
        Whether a larger value is better.
    floor : float
        Changes up to this value, in the unit of the figure, are noise.
    """

    value: float
    error: float
    more_is_better: bool
    floor: float = 0.0


@dataclass(frozen=True)
class Change:
    """Compare one figure in two files.

    Parameters
    ----------
    name : str
        Name of case and figure.
    old, new : float
        The values.
    band : float
        Relative change that counts as noise.
    verdict : str
        "better", "worse" or "same".
    """

    name: str
    old: float
    new: float
    band: float
    verdict: Verdict


def _median_error(samples: Sequence[float]) -> float:
    """Return the relative standard error of a median: 1.2533 standard deviations over the root of the count."""
    if len(samples) < 2:
        return 0.0
    mean = sum(samples) / len(samples)
    return 1.2533 * stdev(samples) / math.sqrt(len(samples)) / mean if mean else 0.0


def _serving_figures(results: dict[str, Any], metric: str) -> dict[str, Figure]:
    figures = {}
    for case in results["cases"]:
        ours, stock = (case["engines"][name]["rounds"] for name in ("processor", "stock"))
        if metric == "speedup":
            value = case["speedup"]
            samples = [a["requests_per_s"] / b["requests_per_s"] for a, b in zip(ours, stock, strict=True)]
        else:
            value = case["engines"]["processor"][metric]
            samples = [our[metric] for our in ours]
        name = f"{case['workload']} at {case['rows']} rows, {case['protocol']}"
        figures[name] = Figure(value, _median_error(samples), METRICS[metric])
    return figures


def _memory_figures(results: dict[str, Any]) -> dict[str, Figure]:
    figures = {}
    for result in results["sessions"]:
        name = f"{result['workload']}, MB for a further session"
        figures[name] = Figure(result["cost_mb"], 0.0, False, MEMORY_FLOOR_MB)
    for target in results["targets"]:
        if "cycles" in target["name"]:
            figures[target["name"]] = Figure(
                target["value"], 0.0, False, MEMORY_FLOOR_MB if "MB" in target["name"] else 0
            )
    return figures


def _load_test_figures(results: dict[str, Any]) -> dict[str, Figure]:
    """Return the latency of each phase; its error is that of the p99 of its seconds. Repeated phases are numbered.

    Names contain the parameters of the load: runs with different loads have no figure in common.
    """
    figures: dict[str, Figure] = {}
    settings = results["settings"]
    shared = ", all CPUs shared" if settings["shared"] else ""
    load = f"{settings['workload']} at {settings['rate']:g}/s for {settings['seconds']:g} s{shared}"
    title = f"{results['scenario']}, {settings['host']} host, {load}"
    for number, phase in enumerate(results["phases"], 1):
        for figure in ("p50_us", "p99_us"):
            if figure in phase:
                name = f"{title}, {number} {phase['phase']}, {figure}"
                figures[name] = Figure(phase[figure], _median_error(phase["windows_us"]), False, LATENCY_FLOOR_US)
    failed = results["figures"]["failed"]
    figures[f"{title}, failed requests"] = Figure(failed, 0.0, False)
    return figures


def read_figures(results: dict[str, Any], metric: str) -> dict[str, Figure]:
    """Extract the figures from a result file.

    Parameters
    ----------
    results : dict
        Content written by bench_serving.py, bench_memory.py or a load scenario.
    metric : str
        One of METRICS; used for serving results only.

    Returns
    -------
    figures : dict
        Figures by name of the case.

    Raises
    ------
    ValueError
        If the file is of an unknown kind, or of a quick run, whose figures are meaningless.
    """
    kind = results.get("benchmark")
    if kind not in ("serving", "memory", "load-test"):
        raise ValueError(f"results of benchmark {kind!r}, expected serving, memory or load-test")
    if results.get("quick"):
        raise ValueError("results of a quick run, expected those of a full one")
    if kind == "load-test":
        return _load_test_figures(results)
    return _serving_figures(results, metric) if kind == "serving" else _memory_figures(results)


def compare(old: dict[str, Figure], new: dict[str, Figure], noise: float) -> list[Change]:
    """Compare the figures that both files contain.

    Parameters
    ----------
    old, new : dict
        Results of `read_figures`.
    noise : float
        Relative change that always counts as noise, for example 0.05.

    Returns
    -------
    changes : list of Change
        In the order of `new`.
    """
    changes = []
    for name, after in new.items():
        before = old.get(name)
        if before is None:
            continue
        band = max(noise, 2 * math.hypot(before.error, after.error))
        difference = after.value - before.value
        verdict: Verdict = "same"
        if abs(difference) > max(band * abs(before.value), after.floor):
            verdict = "better" if (difference > 0) == after.more_is_better else "worse"
        changes.append(Change(name, before.value, after.value, band, verdict))
    return changes


def _print(console: Console, changes: Sequence[Change], title: str) -> None:
    colors = {"better": "green", "worse": "bold red", "same": "dim"}
    table = Table(title=title)
    table.add_column("case")
    for heading in ("old", "new", "change", "noise band", "verdict"):
        table.add_column(heading, justify="right")
    for change in changes:
        relative = f"{(change.new - change.old) / abs(change.old):+.1%}" if change.old else ""
        color = colors[change.verdict]
        table.add_row(
            change.name,
            f"{change.old:.4g}",
            f"{change.new:.4g}",
            relative,
            f"±{change.band:.1%}",
            f"[{color}]{change.verdict}[/]",
        )
    console.print(table)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare two files.

    Parameters
    ----------
    arguments : sequence of str, optional
        The command line; by default that of the process.

    Returns
    -------
    status : int
        0; 1 if a figure became worse; 2 if the files cannot be compared.
    """
    parser = argparse.ArgumentParser(description="Decide whether new results are better or worse than old ones.")
    parser.add_argument("old", type=Path, help="results of the old version")
    parser.add_argument("new", type=Path, help="results of the new version")
    parser.add_argument("--noise", type=float, default=0.05, help="least relative change that counts (default 0.05)")
    parser.add_argument(
        "--metric", choices=list(METRICS), default="speedup", help="figure of serving results to compare"
    )
    options = parser.parse_args(arguments)
    console = make_console()
    try:
        old, new = (json.loads(path.read_text()) for path in (options.old, options.new))
        if old.get("benchmark") != new.get("benchmark"):
            raise ValueError(f"results of {old.get('benchmark')!r} and {new.get('benchmark')!r}, expected the same")
        before, after = read_figures(old, options.metric), read_figures(new, options.metric)
        changes = compare(before, after, options.noise)
        if not changes:
            raise ValueError("no case is in both files")
    except (OSError, ValueError) as error:
        console.print(f"[bold red]{escape(str(error))}[/]")
        return 2
    _print(console, changes, options.metric if new["benchmark"] == "serving" else new["benchmark"])
    missing = sorted(before.keys() ^ after.keys())
    if missing:
        console.print(f"Found in only one file and not compared: {'; '.join(missing)}")
    worse = sum(change.verdict == "worse" for change in changes)
    better = sum(change.verdict == "better" for change in changes)
    console.print(f"{better} better, {worse} worse, {len(changes) - better - worse} within the noise band")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
