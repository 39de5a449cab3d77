# SPDX-License-Identifier: Apache-2.0
"""Compare lookups in a table of which a tenth has changed with lookups in one without changes."""

from __future__ import annotations

from statistics import median
from typing import Any

from load_tests._programs import find_program, run_program
from load_tests._report import Target
from load_tests.live.latency import interval_of
from load_tests.live.setup import Setup

__all__ = ["judge", "measure", "summarize"]

#: Largest time of lookups with changed rows over that without.
MOST = 1.1
#: Tables whose keys are looked up in an index, and tables whose keys are row numbers. The rows were written in place,
#: as they are soon after an epoch, or have just come.
_CASES = {
    f"{keys}, {state}": f"live/lookups/{keys}/changed:10%/{state}"
    for keys in ("keys", "rows")
    for state in ("in_place", "new")
}


def measure(setup: Setup) -> dict[str, Any]:
    """Run the cases of `bench_kernels` several times; it checks the answers, and both tables take turns in it.

    Returns
    -------
    case : dict
        `summarize()` of each kind of table.
    """
    program = find_program("bench_kernels", setup.program.parent)
    runs: dict[str, list[dict[str, Any]]] = {kind: [] for kind in _CASES}
    for number in range(setup.size(5, 1)):
        for kind, name in _CASES.items():
            runs[kind].append(run_program(program, {"filter": name, "seconds": setup.size(5, 1)}))
        setup.tick(f"run {number + 1}")
    return {kind: summarize(of_kind) for kind, of_kind in runs.items()}


def summarize(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the ratio of the times, as the median of the runs, and its interval.

    Parameters
    ----------
    runs : list of dict
        Outputs of `bench_kernels` for one case.
    """
    times = [{way["way"]: way["p50_us"] for way in run["ways"]} for run in runs]
    ratios = [turn["changed"] / turn["same"] for turn in times]
    return {
        "case": runs[0]["case"],
        "ratio": round(median(ratios), 4),
        "interval": [round(value, 4) for value in interval_of(ratios)],
        "changed_us": median(turn["changed"] for turn in times),
        "same_us": median(turn["same"] for turn in times),
        "runs": runs,
    }


def judge(case: dict[str, Any]) -> list[Target]:
    """Compare the ratios of rows in place with the target; rows are new only for some milliseconds after an epoch."""
    return [
        Target(f"lookups by {kind} with 10 % changed rows, time over none", of_kind["ratio"], MOST, at_least=False)
        for kind, of_kind in case.items()
        if kind.endswith("in_place")
    ]
