# SPDX-License-Identifier: Apache-2.0
"""`pauses`: the longest call of training while the table grows, evicts, is cut and published, and torn rows.

Two threads train all the time. A pause is CPU time of one of their calls, since the machine has other work: a thread
that splits a segment or takes a step of a sweep does it in its own call, and the other one waits for it no longer than
that. What a thread waits for locks is reported as well (wall-clock time without its CPU time and without the time it
was ready to run).

Every gradient is 1, so a row that has been updated n times has one value in all its columns: the learning rate times a
sum over n. A row that was read while it was written, or whose slots are older than its weights, does not.

A push of a publisher is measured as well: the CPU time that `et.Publisher.push` takes of the thread that calls it. What
is published at the end is compared with the table.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from load_tests._report import Target
from load_tests.elastic.own_rows import OwnRows
from load_tests.elastic.setup import DIM, RATE, Setup, keys_of

__all__ = ["PHASES", "judge", "measure", "torn"]

PHASES = ("steady", "growth", "eviction", "cut", "publish")
MOST_MS = 5.0
BATCH = 512
# Time between two pushes, at least [s].
_EVERY = 0.1
# A whole number, so that the accumulator counts the updates.
_START = 1.0
_MOST_UPDATES = 200_000


def _weights_after() -> NDArray[np.float32]:
    """Return the weight of a row by its number of updates, as float32 computes it."""
    steps = np.float32(RATE) / np.sqrt(_START + 1 + np.arange(_MOST_UPDATES, dtype=np.float32))
    return np.concatenate([np.zeros(1, np.float32), -np.cumsum(steps, dtype=np.float32)])


_WEIGHTS = _weights_after()


def torn(weights: NDArray[np.float32], slots: NDArray[np.float32]) -> int:
    """Return how many rows have columns that differ, or weights of another update than their slots.

    Parameters
    ----------
    weights, slots : ndarray [n, DIM] float32
    """
    mixed = (weights != weights[:, :1]).any(axis=1) | (slots != slots[:, :1]).any(axis=1)
    updates = slots[:, 0] - _START
    whole = (updates >= 0) & (updates < _MOST_UPDATES) & (updates == np.rint(updates))
    expected = _WEIGHTS[np.where(whole, updates, 0).astype(int)]
    return int((mixed | ~whole | (np.abs(weights[:, 0] - expected) > 1e-3 * np.abs(expected) + 1e-5)).sum())


def _delay() -> float:
    """Return how long this thread has been ready to run and did not [s]."""
    return int(Path(f"/proc/self/task/{threading.get_native_id()}/schedstat").read_text().split()[1]) / 1e9


class _Training:
    """Two threads that train; `phase` says for which phase calls count."""

    def __init__(self, rows: OwnRows, keys: int) -> None:
        import tensorflow as tf

        self._rows, self._keys = rows, keys
        self._ones = tf.ones([BATCH, DIM])
        self.phase, self.grows = "", False
        self.calls: dict[str, list[tuple[float, float]]] = {phase: [] for phase in PHASES}
        self.failed: list[BaseException] = []
        self._new = [keys, keys + (1 << 40)]
        self._ended = False
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(2)]

    def _run(self, number: int) -> None:
        import tensorflow as tf

        random = np.random.default_rng(number)
        try:
            while not self._ended:
                picked = random.choice(self._keys, BATCH, replace=False, shuffle=False)
                if self.grows:
                    picked[: BATCH // 2] = np.arange(self._new[number], self._new[number] + BATCH // 2)
                    self._new[number] += BATCH // 2
                keys, phase = tf.constant(keys_of(picked)), self.phase
                delay, wall, cpu = _delay(), time.perf_counter(), time.thread_time()
                self._rows.step(keys, self._ones)
                spent, passed = time.thread_time() - cpu, time.perf_counter() - wall
                if phase:
                    self.calls[phase].append((spent, max(passed - spent - (_delay() - delay), 0.0)))
        except BaseException as error:
            self.failed.append(error)

    def __enter__(self) -> _Training:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        for thread in self._threads:
            thread.join()


class _Checker(threading.Thread):
    """Reads rows all the time, some of which are being written."""

    def __init__(self, rows: OwnRows, keys: int) -> None:
        super().__init__()
        self._rows, self._keys = rows, keys
        self.rows_read = self.torn = 0
        self.ended = False

    def run(self) -> None:
        random = np.random.default_rng(7)
        while not self.ended:
            found = self._rows.table.read(keys_of(random.integers(0, self._keys, 4096)))
            there = found.meta.numpy()[:, 2] == 1
            self.torn += torn(found.weights.numpy()[there], found.slots.numpy()[there])
            self.rows_read += int(there.sum())


def _cut(rows: OwnRows) -> tuple[int, int]:
    """Take a cut; return how many rows it had, and how many were torn."""
    import tensorflow as tf

    from elastic_training import _library

    ops = _library.ops()
    cut, *_ = ops.elastic_table_cut_begin([rows.table.handle], base=0, token=0, memory_bytes=256 << 20)
    count = wrong = 0
    while True:
        keys, _, _, values, meta = ops.elastic_table_cut_read(cut, table=0, bytes=tf.constant(1 << 20, tf.int64))
        if not len(keys):
            break
        full = values.numpy()
        count += len(full)
        wrong += torn(full[:, :DIM], full[:, DIM:]) + int((meta.numpy()[:, 2] == 1).sum() != len(full))
    ops.elastic_table_cut_end(cut, succeeded=True)
    return count, wrong


class _Publishing:
    """Publishes the rows of a table into a folder.

    Parameters
    ----------
    table : Table
        It is empty: what it gets later is published.
    """

    def __init__(self, table: Any, folder: Path) -> None:
        import tensorflow as tf

        import elastic_training as et

        self._table, self._export, self._timeline = table, folder / "export", folder / "timeline"
        self._module = et.HashEmbeddingModule(table=table)
        specs = {"keys": tf.TensorSpec([None], tf.int64)}
        et.export(self._module, self._export, inputs=specs, function=lambda found: self._module(found["keys"]))
        self._publisher: Any = None

    def begin(self) -> None:
        """Publish all rows."""
        import elastic_training as et

        self._publisher = et.Publisher(self._timeline, every=_EVERY, export=self._export, model=self._module)
        self._publisher.flush()

    def push(self) -> None:
        """Publish what changed, if it is due and the thread of the publisher is ready."""
        self._publisher.step()

    def end(self) -> tuple[dict[str, Any], int]:
        """Publish the rest; return what the publisher did, and how many rows differ from those of the table."""
        from elastic_training.export.changes import Changes
        from elastic_training.export.contents import read_contents
        from elastic_training.export.published_state import read_state
        from graph_tools.store.lineage import read_lineage

        epoch, stats = self._publisher.flush(), self._publisher.stats()
        self._publisher.close()
        contents = read_contents(self._export)
        state = read_state(self._export, contents, self._timeline, read_lineage(self._export), epoch)
        keys, rows = self._table.export()
        now = Changes.of(keys, rows.weights.numpy(), keys[:0])
        difference = now.since(state.tables[contents.tables[0].name])
        return stats, len(difference.keys) + len(difference.gone)


def _summary(calls: list[tuple[float, float]]) -> dict[str, float]:
    cpu, waits = (np.array(part) * 1000 for part in zip(*calls, strict=True))
    return {
        "calls": len(calls),
        "median_cpu_ms": float(np.median(cpu)),
        "p999_cpu_ms": float(np.percentile(cpu, 99.9)),
        "longest_cpu_ms": float(cpu.max()),
        "longest_wait_ms": float(waits.max()),
    }


def measure(setup: Setup) -> dict[str, Any]:
    """Return the longest calls of each phase, what happened in it, and the number of torn rows."""
    import elastic_training as et

    keys, seconds = (10_000, 0.25) if setup.quick else (500_000, 10.0)
    # Training takes the steps of sweeps that the number of rows begins; those by hand are beside it. Rows that no batch
    # has had for a second are evicted, and the oldest until the number is right.
    config = et.TableConfig(
        "rows",
        DIM,
        seed=1,
        initializer=et.Zeros(),
        optimizer=et.Adagrad(RATE, initial_accumulator=_START, epsilon=0.0),
        eviction=et.Ttl(1 / 86400, triggers=(et.Rows(6 * keys),)),
    )
    rows = OwnRows(0, et.Table(config))
    with tempfile.TemporaryDirectory() as folder:
        return _measure(rows, keys, seconds, _Publishing(rows.table, Path(folder)))


def _measure(rows: OwnRows, keys: int, seconds: float, publishing: _Publishing) -> dict[str, Any]:
    for start in range(0, keys, 50_000):
        rows.table.insert(keys_of(np.arange(start, min(start + 50_000, keys))))
    checker = _Checker(rows, keys)
    happened: dict[str, Any] = {"rows": [rows.table.size()]}

    def pause() -> None:
        time.sleep(0.05)

    def sweep() -> None:
        sweeps.append(rows.table.evict())
        pause()

    def publish() -> None:
        publishing.push()
        pause()

    cuts: list[tuple[int, int]] = []
    sweeps: list[int] = []
    actions: dict[str, Callable[[], object]] = {
        "steady": pause,
        "growth": pause,
        "eviction": sweep,
        "cut": lambda: cuts.append(_cut(rows)),
        "publish": publish,
    }
    with _Training(rows, keys) as training:
        checker.start()
        try:
            time.sleep(seconds / 10)
            for phase in PHASES:
                training.grows, training.phase = phase in ("growth", "eviction"), phase
                if phase == "publish":
                    publishing.begin()
                end = time.monotonic() + seconds
                while time.monotonic() < end:
                    actions[phase]()
                training.phase = ""
                happened["rows"].append(rows.table.size())
        finally:
            checker.ended = True
            checker.join()
    if training.failed:
        raise training.failed[0]
    published, different = publishing.end()
    phases = {phase: _summary(calls) for phase, calls in training.calls.items()}
    return {
        "phases": phases,
        "longest_ms": max(figures["longest_cpu_ms"] for figures in phases.values()),
        "rows": happened["rows"],
        "evicted": rows.table.stats()["evicted"],
        "evicted_by_hand": sum(sweeps),
        "cuts": len(cuts),
        "rows_cut": sum(count for count, _ in cuts),
        "longest_push_ms": published["push_cpu_ms_longest"],
        "published": {name: published[name] for name in ("pushes", "postponed", "segments", "rows", "deleted")},
        "rows_read": checker.rows_read,
        "wrong": checker.torn + sum(wrong for _, wrong in cuts) + different,
    }


def judge(case: dict[str, Any]) -> list[Target]:
    """Return the targets."""
    return [
        Target("longest pause of training, ms of CPU time", case["longest_ms"], MOST_MS, at_least=False),
        Target("longest push of a publisher, ms of CPU time", case["longest_push_ms"], MOST_MS, at_least=False),
        Target("torn rows, or published ones that differ", case["wrong"], 0, at_least=False),
    ]
