# SPDX-License-Identifier: Apache-2.0
"""`threads`: how much more two threads do than one, against what two threads of a spin loop get at the same time."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from load_tests._report import Target
from load_tests.elastic.own_rows import OwnRows
from load_tests.elastic.rounds import alternate
from load_tests.elastic.setup import BATCH, DIM, Setup, batches_of, keys_of

__all__ = ["judge", "measure", "scaling", "wall_rate"]

LEAST = 0.9
_BATCHES, _CALLS = 64, 8
_BLOCK = bytes(4 << 20)


def wall_rate(work: Callable[[int], int], threads: int, seconds: float) -> float:
    """Return how much `threads` threads do in a second of wall-clock time.

    Parameters
    ----------
    work : callable
        Does some work for thread i, and returns how much.
    seconds : float
        All threads begin together, and none begins another call after it [s].
    """
    together = threading.Barrier(threads)
    rates = [0.0] * threads

    def run(number: int) -> None:
        together.wait()
        done, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds or done == 0:
            done += work(number)
        rates[number] = done / (time.perf_counter() - start)

    workers = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(rates)


def _spin(number: int) -> int:
    # Releases the interpreter's lock, and stays within a core's caches but for its input.
    hashlib.sha256(_BLOCK).digest()
    return 1


def scaling(figures: dict[str, Any], what: str) -> float:
    """Return the median over the rounds of: two threads over one of `what`, over the same of the spin loop."""
    one, two, spin_one, spin_two = (
        figures[name]["rounds"] for name in (f"{what}, 1", f"{what}, 2", "spin loop, 1", "spin loop, 2")
    )
    turns = zip(one, two, spin_one, spin_two, strict=True)
    found = [(second / first) / (spin_second / spin_first) for first, second, spin_first, spin_second in turns]
    return float(median(found))


def measure(setup: Setup) -> dict[str, Any]:
    """Return the work in a second of one and of two threads, and the ratios."""
    import tensorflow as tf

    # Each thread's call runs on one thread of this pool, and a batch of one table on no other.
    tf.config.threading.set_inter_op_parallelism_threads(2)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    rows = OwnRows(setup.keys)
    batches = tf.constant(np.stack([keys_of(part) for part in batches_of(setup.keys, BATCH, _BATCHES)]))
    gradients = tf.constant(np.random.default_rng(1).normal(size=(BATCH, DIM)).astype(np.float32))
    wrong = sum(rows.wrong_rows(part) for part in batches_of(setup.keys, BATCH, 4))

    # A graph of several batches, so that threads do not wait for the interpreter's lock.
    def graph(body: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def run(start: Any) -> None:
            for turn in range(_CALLS):
                body(batches[(start + turn) % _BATCHES])

        traced: Callable[[Any], Any] = tf.function(run, input_signature=[tf.TensorSpec([], tf.int32)])
        return traced

    look_up = graph(lambda keys: rows.look_up(keys, training=False))
    step = graph(lambda keys: rows.step(keys, gradients))
    # Threads begin at different batches.
    at = [0, _BATCHES // 2]

    def work(call: Callable[[Any], Any]) -> Callable[[int], int]:
        def run(number: int) -> int:
            call(tf.constant(at[number]))
            at[number] = (at[number] + _CALLS) % _BATCHES
            return _CALLS * BATCH

        return run

    works = {"spin loop": _spin, "lookup": work(look_up), "step": work(step)}
    for one in works.values():
        one(0)
    contestants = {
        f"{name}, {threads}": lambda do=do, threads=threads: wall_rate(do, threads, setup.seconds)
        for name, do in works.items()
        for threads in (1, 2)
    }
    figures = alternate(contestants, setup.rounds + 2)
    return {"keys": setup.keys, "wrong": wrong, **figures} | {
        "scaling": {what: scaling(figures, what) for what in ("lookup", "step")}
    }


def judge(case: dict[str, Any]) -> list[Target]:
    """Return a target for lookups, and one for steps."""
    return [
        Target(f"{what}: two threads over one, against a spin loop", value, LEAST, at_least=True)
        for what, value in case["scaling"].items()
    ]
