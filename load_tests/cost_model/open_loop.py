# SPDX-License-Identifier: Apache-2.0
"""Run models under Poisson arrivals through libprocessor in one process, and record a trace.

The program `bench_open_loop` calls the library itself, as `cost-model profile` does, so that both measure the same
work: `loadgen`, which sends to hosts (`load_tests.loadgen`), would add the network threads of a host to the core.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cost_model.calibration import Run, Served, Times
from cost_model.cpu_time import busy_share
from cost_model.profiling.fingerprint import fingerprint
from load_tests._programs import find_library, find_program, run_program
from load_tests.request_files import random_requests, write_requests
from load_tests.workloads import ensure_model

__all__ = ["ModelLoad", "may_go_first", "requests_of", "run_tenants", "wait_for_quiet"]

_SAMPLE = np.dtype(
    [("model", "i4"), ("request", "i4"), ("due", "i8"), ("sent", "i8"), ("done", "i8"), ("queue", "i8"), ("run", "i8")]
)
_REQUESTS = 256
# Before a request is due, for a generator that has its own CPU.
_SPIN_US = 200.0
# A run is repeated, up to this many times, if other processes or the hypervisor used more of the core than this.
_MOST_TAKEN, _MOST_TRIES = 0.03, 3
# Longest time to wait before each try until the machine has been quiet for a second.
_QUIET, _QUIET_WAIT_S = 0.05, 5.0


@dataclass(frozen=True)
class ModelLoad:
    """Describe a model on the cores of a run.

    Parameters
    ----------
    name : str
    workload : str
        Name in `load_tests.workloads`: "W1", "W2", "tiny".
    rows : mapping of rows to weight
    qps : float [requests/s]
    """

    name: str
    workload: str
    rows: Mapping[int, float]
    qps: float


def may_go_first() -> bool:
    """Return whether this process may give a thread real-time priority."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        return False
    os.sched_setscheduler(0, *before)
    return True


def requests_of(tenant: ModelLoad, folder: Path) -> Path:
    """Write a file of requests in which numbers of rows occur according to their weights."""
    counts = _counts(tenant)
    path = folder / f"{tenant.workload}-{'_'.join(f'{count}x{rows}' for rows, count in counts.items())}.bin"
    if not path.exists():
        requests: list[bytes] = []
        for rows, count in counts.items():
            requests += random_requests(tenant.workload, rows, "tfserving", count)
        write_requests(path, requests)
    return path


def _counts(tenant: ModelLoad) -> dict[int, int]:
    """Return how many requests of each number of rows the file contains, in its order."""
    total = sum(tenant.rows.values())
    return {rows: max(1, round(_REQUESTS * weight / total)) for rows, weight in sorted(tenant.rows.items())}


def run_tenants(
    tenants: Sequence[ModelLoad],
    *,
    seconds: float,
    seed: int,
    cpu: int,
    folder: Path,
    label: str = "",
    careful: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> Run:
    """Run models under Poisson arrivals, each with one session on the same CPU.

    If allowed, the generator runs on that CPU too, with higher priority: on a virtual machine, another CPU is stopped
    at other times and then sends requests late. Otherwise it spins on the next CPU. If allowed, the models' threads
    have priority over other processes, too, and equal priority among themselves.

    Parameters
    ----------
    tenants : sequence of ModelLoad
    seconds : float [s]
    seed : int
    cpu : int
    folder : Path
        Folder for request files.
    label : str
    careful : bool
        Wait until the machine is quiet, and repeat a run that was disturbed.
    progress : callable
        Called with a message if a run was disturbed and is repeated.

    Raises
    ------
    ProgramError
        If the generator failed.
    """
    best: Run | None = None
    for attempt in range(_MOST_TRIES if careful else 1):
        if careful:
            wait_for_quiet()
        report, samples = _run_generator(tenants, seconds, seed, cpu, folder)
        run = _summary(tenants, report, samples, seconds, seed, label)
        if best is None or run.others + run.stolen < best.others + best.stolen:
            best = run
        if run.others + run.stolen <= _MOST_TAKEN or not careful:
            break
        progress(
            f"{label}: other processes took {run.others:.1%} of the core, the hypervisor {run.stolen:.1%}; "
            f"attempt {attempt + 1} of {_MOST_TRIES}"
        )
    assert best is not None
    return best


def wait_for_quiet() -> None:
    """Wait until the machine has been idle for a second, or for a few at most."""
    end = time.monotonic() + _QUIET_WAIT_S
    while time.monotonic() < end:
        if busy_share(1.0) < _QUIET:
            return


def _run_generator(
    tenants: Sequence[ModelLoad], seconds: float, seed: int, cpu: int, folder: Path
) -> tuple[dict[str, Any], Any]:
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "session_num": 1,
        "cpusets": str(cpu),
        "intra_op_parallelism_threads": 1,
        "max_queue_size": 1_000_000,
    }
    models = [
        {
            "model": str(ensure_model(tenant.workload)),
            "config": config,
            "requests": str(requests_of(tenant, folder)),
            "rate": tenant.qps,
        }
        for tenant in tenants
    ]
    first = may_go_first()
    others = sorted(os.sched_getaffinity(0) - {cpu}) or [cpu]
    plan = {"seconds": seconds, "warmup": 0.5, "seed": seed, "cpu": cpu if first else others[0]}
    plan |= {"realtime": first, "nice": -20 if first else 0, "spin_us": 0.0 if first else _SPIN_US}
    with tempfile.TemporaryDirectory(prefix="open-loop-") as scratch:
        place = Path(scratch)
        (place / "plan.json").write_text(json.dumps(plan | {"models": models}))
        arguments = {"plan": place / "plan.json", "samples": place / "samples", "library": find_library()}
        report = run_program(find_program("bench_open_loop"), arguments)
        return report, np.fromfile(place / "samples", _SAMPLE)


def _summary(
    tenants: Sequence[ModelLoad], report: Mapping[str, Any], samples: Any, seconds: float, seed: int, label: str
) -> Run:
    ended = samples[samples["done"] >= 0]
    ended = ended[np.argsort(ended["done"], kind="stable")]
    served = []
    for place, tenant in enumerate(tenants):
        mine = ended[ended["model"] == place]
        sent = int((samples["model"] == place).sum())
        counts = _counts(tenant)
        total = sum(counts.values())
        served.append(
            Served(
                tenant.name,
                fingerprint(ensure_model(tenant.workload)),
                tuple((rows, count / total) for rows, count in counts.items()),
                tenant.qps,
                sent,
                sent - len(mine),
                Times.of((mine["done"] - mine["due"]) / 1e3),
                *(_services(mine, counts) if len(tenants) == 1 else ((), ())),
            )
        )
    machine_s = report["seconds"] * report["cpus"]
    return Run(
        1,
        seconds,
        seed,
        _busy_ns(ended) / (1e9 * seconds),
        report["late_p99_us"],
        report["stolen_s"] / machine_s,
        report["others_s"] / machine_s,
        tuple(served),
        label,
    )


def _services(ended: Any, counts: Mapping[int, int]) -> tuple[tuple[tuple[int, Times], ...], ...]:
    """Return the times from the possible start in the session to completion, by rows, in the order of completion.

    First of requests that waited, then of requests that found the core idle.
    """
    before = np.concatenate(([0], ended["done"][:-1]))
    idle = ended["due"] >= before
    taken = (ended["done"] - np.maximum(ended["due"], before)) / 1e3
    rows = np.searchsorted(np.cumsum([0, *counts.values()]), ended["request"], side="right") - 1
    return tuple(
        tuple(
            (size, Times.of(taken[which & (rows == n)])) for n, size in enumerate(counts) if np.any(which & (rows == n))
        )
        for which in (~idle, idle)
    )


def _busy_ns(ended: Any) -> float:
    """Return the time during which at least one request was running: the union of their periods."""
    by_due = ended[np.argsort(ended["due"], kind="stable")]
    reached = np.maximum.accumulate(by_due["done"])
    begin = np.maximum(by_due["due"][1:], reached[:-1])
    first = by_due["done"][0] - by_due["due"][0]
    return float(first + np.maximum(0, by_due["done"][1:] - begin).sum())
