# SPDX-License-Identifier: Apache-2.0
"""A tiered model beside the same table in RocksDB, and mapped into memory, with equal memory.

* RocksDB: `bench_rocksdb`, a program in C++, which explains how it is tuned. It is compiled where librocksdb is
  installed. Its cache of rows is filled with the most frequent ones first.
* Mapped: `mapped_peer`, in a memory cgroup. It starts with cold pages, and is sent requests before it is measured.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from load_tests._programs import find_program
from load_tests._report import Target
from load_tests.elastic.rounds import ratio
from load_tests.tiers.clients import MOST_ANSWERS, THREADS, Contestant, PeerProcess
from load_tests.tiers.cold_start import drop_pages
from load_tests.tiers.memory_cgroup import memory_cgroup
from load_tests.tiers.served_table import BATCH, IDS, ROW_BYTES, Zipf
from load_tests.tiers.setup import Setup

__all__ = ["judge", "measure"]

# About what a cached row takes in RocksDB.
_ROCKSDB_ROW_BYTES = ROW_BYTES + 144
# Of which the cache is filled at a time.
_FILLED_REQUESTS = 16


def _rocksdb(setup: Setup, table: Path, folder: Path, memory: int) -> PeerProcess:
    command = [find_program("bench_rocksdb", None), "--table", table, "--folder", folder / "rocksdb"]
    command += ["--rows", setup.served_rows, "--memory", memory, "--threads", THREADS]
    return PeerProcess(command, folder)


def _fill(setup: Setup, zipf: Zipf, peer: PeerProcess) -> dict[str, float]:
    """Read the most frequent rows, as many as the cache has room for and the time permits; return how many."""
    count = min(setup.served_rows, peer.started["cache_bytes"] // _ROCKSDB_ROW_BYTES)
    ids = BATCH * IDS
    keys = zipf.hottest(max(count // ids, 1) * ids).reshape(-1, BATCH, IDS)
    begun, filled = time.monotonic(), 0
    while filled < len(keys) and time.monotonic() - begun < setup.fill_seconds:
        peer.send(keys[filled : filled + _FILLED_REQUESTS])
        filled = min(filled + _FILLED_REQUESTS, len(keys))
    return {"filled_rows": filled * ids, "of_rows": keys.size, "fill_s": time.monotonic() - begun}


def measure(
    setup: Setup, model: Path, memory: int, tiered: Contestant, zipf: Zipf, random: np.random.Generator
) -> dict[str, Any]:
    """Measure in turns, each of which sends the same new requests to all.

    Parameters
    ----------
    model : Path
        The model that `tiered` serves with `memory` bytes for indexes and rows, which the others get as well.
    """
    (table,) = (model / "assets").glob("*.emb")
    contestants: dict[str, Contestant] = {"tiered": tiered}
    started, skipped = dict[str, Any](), dict[str, str]()
    with ExitStack() as stack:
        try:
            rocksdb = stack.enter_context(_rocksdb(setup, table, model.parent, memory))
            filled = _fill(setup, zipf, rocksdb)
            contestants["rocksdb"], started["rocksdb"] = rocksdb, rocksdb.started | filled
        except FileNotFoundError as error:
            skipped["rocksdb"] = str(error)
        drop_pages(model)
        try:
            group = stack.enter_context(memory_cgroup())
            command = [sys.executable, "-m", "load_tests.tiers.mapped_peer", model, group, memory]
            mapped = stack.enter_context(PeerProcess(command, model.parent))
            contestants["mapped"], started["mapped"] = mapped, mapped.started
        except OSError as error:
            skipped["mapped"] = str(error)
        _compare(contestants, zipf.draw(random, MOST_ANSWERS - 1))
        warm = zipf.draw(random, 2 * setup.peer_requests)
        for peer in contestants.values():
            peer.send(warm)
        figures = _alternate(setup, contestants, zipf, random)
    return {
        **figures,
        "ratios": {name: ratio(figures["requests_per_s"], "tiered", name) for name in contestants if name != "tiered"},
        "started": started,
        "skipped": skipped,
    }


def _compare(contestants: dict[str, Contestant], requests: NDArray[np.int64]) -> None:
    expected = contestants["tiered"].answer(requests)
    for name, contestant in contestants.items():
        if not np.array_equal(contestant.answer(requests), expected):
            raise AssertionError(f"{name} answers otherwise than the tiered model")


def _alternate(
    setup: Setup, contestants: dict[str, Contestant], zipf: Zipf, random: np.random.Generator
) -> dict[str, Any]:
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    p99: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(setup.rounds):
        requests = zipf.draw(random, setup.peer_requests)
        for name in sorted(contestants, reverse=turn % 2 == 0):
            rate, latencies = contestants[name].send(requests)
            rates[name].append(rate)
            p99[name].append(float(np.percentile(latencies, 99)))
    return {
        "requests_per_s": {
            name: {"median": float(np.median(values)), "least": min(values), "greatest": max(values), "rounds": values}
            for name, values in rates.items()
        },
        "p99_ms": {name: float(np.median(values)) for name, values in p99.items()},
    }


def judge(found: dict[str, Any]) -> list[Target]:
    """Compare with the targets of those peers that could be measured."""
    names = {"rocksdb": ("RocksDB", 5.0), "mapped": ("a mapped file in a memory cgroup", 1.5)}
    return [
        Target(f"serving: requests/s, tiered over {name} with equal memory", found["ratios"][peer], limit, True)
        for peer, (name, limit) in names.items()
        if peer in found["ratios"]
    ]
