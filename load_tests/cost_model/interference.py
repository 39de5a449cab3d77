# SPDX-License-Identifier: Apache-2.0
r"""Measure how much models slow each other down here, for `cost_model/scenarios/interference.json`.

    python -m load_tests.cost_model.interference [--seconds 1] [--rounds 5] [--out results/interference.json]

* `switch`, `shared_cache`: two copies of a model on one core, in turn and at once (as in `cost-model profile`),
  for the reference models; the median over rounds and models.
* `bandwidth`: a model on one core while other processes copy memory on the others, at four paces. u is the traffic of a
  pace divided by the traffic that all cores together can copy. The coefficient b is fitted to the slow-down (median of
  the rounds) :math:`b\,\max(0, u - k)/(1 - k)` by least squares. u does not include the model's own traffic. This needs
  two CPUs, and more if one of them alone does not exceed the knee; otherwise the file has no `bandwidth`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Sequence
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

import numpy as np

from cost_model.interference import Interference
from cost_model.machine import this_machine
from cost_model.profiling.measure import profile_model
from load_tests._environment import describe_environment
from load_tests._programs import ROOT
from load_tests._report import make_console, write_results
from load_tests.request_files import random_inputs
from load_tests.workloads import ensure_model

MODELS = {"W2": 64, "W1": 16}
PACES = (0.25, 0.5, 0.75, 1.0)
_MEGABYTES = 256
_BLOCKS = 64


def copy_memory(cpu: int, pace: float, copied: Synchronized[float], going: Synchronized[int]) -> None:
    """Copy blocks of a large array on a CPU, working for a part `pace` of the time."""
    os.sched_setaffinity(0, {cpu})
    source = np.ones((_BLOCKS, _MEGABYTES * 1_000_000 // _BLOCKS // 8))
    target = np.empty_like(source)
    block = 0
    while going.value:
        began = time.perf_counter()
        np.copyto(target[block], source[block])
        # Read into the cache and then written.
        copied.value += 3 * source[block].nbytes
        block = (block + 1) % _BLOCKS
        time.sleep((time.perf_counter() - began) * (1 / pace - 1))


class Copying:
    """Run processes that copy memory during a `with` statement; `rate` returns their traffic [GB/s]."""

    def __init__(self, cpus: Sequence[int], pace: float) -> None:
        context = multiprocessing.get_context("spawn")
        self._going: Any = context.Value("i", 1)
        self._copied: list[Any] = [context.Value("d", 0.0) for _ in cpus]
        self._processes = [
            context.Process(target=copy_memory, args=(cpu, pace, copied, self._going), daemon=True)
            for cpu, copied in zip(cpus, self._copied, strict=True)
        ]

    def __enter__(self) -> Copying:
        for process in self._processes:
            process.start()
        while not all(copied.value > 1e9 for copied in self._copied):
            time.sleep(0.05)
        self._began, self._before = time.perf_counter(), self._bytes()
        return self

    def __exit__(self, *_: object) -> None:
        self._going.value = 0
        for process in self._processes:
            process.join()

    def _bytes(self) -> float:
        return float(sum(copied.value for copied in self._copied))

    def rate(self) -> float:
        """Return the traffic since the `with` began [GB/s]."""
        return (self._bytes() - self._before) / (time.perf_counter() - self._began) / 1e9


def most_copied(cpus: Sequence[int], seconds: float) -> float:
    """Return the traffic of all CPUs together [GB/s]."""
    with Copying(cpus, 1.0) as copying:
        time.sleep(seconds)
        return copying.rate()


def slow_downs(workload: str, rows: int, cpus: Sequence[int], seconds: float) -> list[tuple[float, float]]:
    """Return (traffic [GB/s], slow-down) at each pace; the model is measured alone between paces."""
    from processor import Model

    inputs = random_inputs(workload, rows, np.random.default_rng(1))
    config = {"session_num": 1, "cpusets": str(cpus[0]), "intra_op_parallelism_threads": 1}

    def median_us(model: Any) -> float:
        times, end = [], time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.perf_counter_ns()
            model.run(inputs)
            times.append(time.perf_counter_ns() - began)
        return float(np.median(times)) / 1e3

    found = []
    with Model(ensure_model(workload), config) as model:
        median_us(model)
        for pace in PACES:
            alone = median_us(model)
            with Copying(cpus[1:], pace) as copying:
                beside, traffic = median_us(model), copying.rate()
            found.append((traffic, 2 * beside / (alone + median_us(model)) - 1))
    return found


def fit_bandwidth(points: Sequence[tuple[float, float]], most: float, knee: float) -> float | None:
    """Return the coefficient b from (traffic [GB/s], slow-down); None if nothing goes beyond the knee."""
    beyond = np.array([max(0.0, traffic / most - knee) / (1 - knee) for traffic, _ in points])
    slower = np.array([slow for _, slow in points])
    return max(0.0, float(beyond @ slower / (beyond @ beyond))) if beyond.any() else None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of each measurement in seconds")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds; the medians count")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "interference.json", help="file of the results")
    chosen = parser.parse_args(arguments)
    console = make_console()
    cpus = [core.cpus[0] for core in this_machine().cores]
    environment = describe_environment(ROOT)
    if len(cpus) < 2:
        console.print(f"cpus: {len(cpus)} core found, expected at least two, because one copies memory")
        return 2
    most = most_copied(cpus, chosen.seconds)
    shared: dict[str, dict[str, float]] = {}
    points: dict[str, list[tuple[float, float]]] = {}
    every: dict[str, Any] = {}
    for name, rows in MODELS.items():
        profiled, beside = [], []
        for _ in range(chosen.rounds):
            profile = profile_model(ensure_model(name), cpus[:1], [rows], [1], seconds=chosen.seconds)
            profiled.append(profile.interference)
            beside.append(slow_downs(name, rows, cpus, chosen.seconds))
        shared[name] = {key: float(np.median([costs[key] for costs in profiled])) for key in profiled[0]}
        points[name] = [(float(gb), float(slow)) for gb, slow in np.median(np.array(beside), axis=0)]
        every[name] = {"shared": profiled, "beside": beside}
        costs = ", ".join(f"{key} {value:.1%}" for key, value in shared[name].items())
        console.print(
            f"{name}: {costs}; next to memory traffic of "
            + ", ".join(f"{gb:.1f} GB/s {slow:+.1%}" for gb, slow in points[name])
        )
    knee = Interference().knee
    found = {
        "switch": float(np.median([costs["switch"] for costs in shared.values()])),
        "shared_cache": float(np.median([costs["shared_cache"] for costs in shared.values()])),
    }
    fits = [fit for point in points.values() if (fit := fit_bandwidth(point, most, knee)) is not None]
    if fits:
        found |= {"bandwidth": float(np.median(fits)), "knee": knee}
    else:
        reached = max(gb for measured in points.values() for gb, _ in measured) / most
        console.print(
            f"bandwidth: not measured, because all cores except one copy only {reached:.0%} of the traffic of "
            f"{len(cpus)} cores, expected more than {knee:.0%} (the knee); use a machine with more cores"
        )
    console.print(found)
    measured = {"most_gbs": most, "shared": shared, "traffic_gbs_and_slow_down": points, "rounds": every}
    write_results(
        chosen.out,
        {
            "command": "python -m load_tests.cost_model.interference",
            "environment": environment,
            "interference": {name: round(value, 4) for name, value in found.items()},
            "measured": measured,
        },
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
