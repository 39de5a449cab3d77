# SPDX-License-Identifier: Apache-2.0
"""Measure a closed loop of clients."""

from __future__ import annotations

import dataclasses
import os
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from demo.workload import Workload

#: Largest difference of a score from TensorFlow's that the demo accepts from fp32 computations.
TOLERANCE = 1e-5

_T = TypeVar("_T")


class ServingError(RuntimeError):
    """A host could not be built or started, or refused a request."""


@dataclasses.dataclass(frozen=True)
class Timing:
    """Contain the measurements of one round.

    Attributes
    ----------
    requests_per_s : float
        Requests completed per second, over all clients.
    p50_us, p99_us : float
        Latency as measured by the client [µs].
    """

    requests_per_s: float
    p50_us: float
    p99_us: float


class Timed(Protocol):
    """Define a host that runs requests and can be measured.

    Attributes
    ----------
    name, key : str
        Its names in the table and in the JSON.
    megabytes : float
        Size of the model that it serves [MB].
    """

    name: str
    key: str
    megabytes: float

    def measure(self, work: Workload, threads: int, seconds: float) -> Timing:
        """Let `threads` clients each send one request after the other for `seconds`."""


class WayIn(Timed, Protocol):
    """Define one way to call the processor; `short` is its name in the progress bar.

    Attributes
    ----------
    tolerance : float
        Largest difference of its scores from TensorFlow's that the demo accepts.
    """

    short: str
    tolerance: float

    def scores(self, work: Workload) -> NDArray[np.float32]:
        """Return the scores of all rows [rows] float32."""


def megabytes(folder: Path) -> float:
    """Return the size of all files in a folder [MB]."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def find_library(root: Path) -> Path:
    """Return the path of libprocessor.so in a checkout.

    Raises
    ------
    ServingError
        If it has not been built.
    """
    library = root / "processor" / "libprocessor.so"
    if not library.is_file():
        raise ServingError(f"{library}: not found; run `make build` first")
    return library


def usable_cpus() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def median(rounds: Sequence[Timing]) -> Timing:
    """Return the median of each figure over the rounds."""
    return Timing(
        *(statistics.median(getattr(timing, field.name) for timing in rounds) for field in dataclasses.fields(Timing))
    )


def closed_loop(send: Callable[[int], object], requests: int, threads: int, seconds: float) -> Timing:
    """Measure a function that sends request number 0 .. `requests` - 1.

    Parameters
    ----------
    send : callable
        Sends one request and waits for its response; called from several threads.
    requests : int
        Number of requests; each thread begins at another one and starts over after the last.
    threads : int
        Number of clients.
    seconds : float
        Duration [s]; every client sends at least one request.
    """
    latencies: list[list[int]] = [[] for _ in range(threads)]
    failures: list[BaseException] = []
    starts: list[int] = []
    # Taken before any client goes on: this thread may continue long after them on a busy machine.
    barrier = threading.Barrier(threads + 1, action=lambda: starts.append(time.perf_counter_ns()))

    def client(number: int) -> None:
        mine, place, now = latencies[number], number * requests // threads, time.perf_counter_ns
        barrier.wait()
        try:
            end = now() + int(seconds * 1e9)
            before = now()
            while True:
                send(place)
                after = now()
                mine.append(after - before)
                if after >= end:
                    return
                before, place = after, (place + 1) % requests
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=client, args=(number,), daemon=True) for number in range(threads)]
    for worker in workers:
        worker.start()
    barrier.wait()
    for worker in workers:
        worker.join()
    spent = (time.perf_counter_ns() - starts[0]) * 1e-9
    if failures:
        raise failures[0]
    all_us = np.concatenate([np.array(mine, np.int64) for mine in latencies]) * 1e-3
    p50, p99 = np.percentile(all_us, [50, 99])
    return Timing(len(all_us) / spent, float(p50), float(p99))


def in_order(function: Callable[[_T], NDArray[np.float32]], items: Sequence[_T]) -> NDArray[np.float32]:
    """Call a function from several threads; return its results concatenated in the order of `items`."""
    with ThreadPoolExecutor(2 * usable_cpus()) as pool:
        return np.concatenate(list(pool.map(function, items)))


def run_tool(what: str, command: Sequence[str], **options: object) -> str:
    """Run a program to its end and return its standard output.

    Raises
    ------
    ServingError
        If it cannot be started or its status is not 0; the message contains the end of its standard error.
    """
    try:
        done = subprocess.run(  # type: ignore[call-overload]
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, **options
        )
    except OSError as error:
        raise ServingError(f"{what}: {error}") from error
    if done.returncode != 0:
        tail = "\n".join((done.stderr or done.stdout).strip().splitlines()[-15:])
        raise ServingError(f"{what}: {command[0]} ended with status {done.returncode}\n{tail}")
    return str(done.stdout)
