# SPDX-License-Identifier: Apache-2.0
"""Requests per second of a tiered table with and without reads before requests take a place, with equal sessions."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import processor
from load_tests._programs import find_library
from load_tests._report import Target
from load_tests.elastic.rounds import ratio
from load_tests.request_files import encode_request
from load_tests.tiers.served_table import BATCH, ROW_BYTES, Zipf, export_model, keys_of
from load_tests.tiers.setup import Setup

__all__ = ["judge", "measure", "measure_model"]

#: Rows of a request, of 32 ids each: few misses each, and as many as `serving` has.
ROWS = (4, 32, 256)
#: (sessions, threads of each, requests that are on the way at a time); threads 0: those of the
#: process, one for each CPU.
PLACES = ((1, 1, 16), (1, 1, 128), (2, 0, 1), (2, 0, 16), (2, 0, 128))


def measure(setup: Setup) -> dict[str, Any]:
    """Make the table, measure, and delete it."""
    setup.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench_tiers_", dir=setup.folder) as folder:
        return measure_model(setup, export_model(Path(folder), setup.early_rows, find_library(None)))


def measure_model(setup: Setup, folder: Path) -> dict[str, Any]:
    """Measure all settings with one cache: equal caches of one file are shared as long as a model has it."""
    memory = next((folder / "assets").glob("*.emb")).stat().st_size - setup.early_rows * ROW_BYTES * 4 // 5
    tiered = {"tier": "tiered", "memory": memory}
    zipf, random = Zipf(setup.early_rows), np.random.default_rng(1)
    with processor.Model(folder, {"warmup_runs": 1, "tables": tiered}) as filled:
        _check_all_blocks(filled, setup.early_rows)
        for _ in range(setup.early_fills):
            for ids in zipf.draw(random, 256):
                filled.run({"ids": ids})
        return {"settings": [_measure(setup, folder, tiered, random, *places) for places in PLACES]}


def _send(model: processor.Model, requests: list[bytes], at_a_time: int) -> tuple[float, list[bytes]]:
    """Send requests, `at_a_time` together; return the requests per second and the answers."""
    answers: list[bytes] = []
    begun = time.perf_counter()
    for first in range(0, len(requests), at_a_time):
        answers += model.process_many(requests[first : first + at_a_time], "tfserving")
    return len(requests) / (time.perf_counter() - begun), answers


def _measure(
    setup: Setup,
    folder: Path,
    tiered: dict[str, Any],
    random: np.random.Generator,
    sessions: int,
    threads: int,
    at_a_time: int,
) -> dict[str, Any]:
    config = {"session_num": sessions, "warmup_runs": 1} | ({"worker_threads": threads} if threads else {})
    zipf = Zipf(setup.early_rows)
    found: dict[str, Any] = {"sessions": sessions, "worker_threads": threads, "requests_at_a_time": at_a_time}

    def draw(count: int, rows: int) -> list[bytes]:
        ids: NDArray[np.int64] = zipf.draw(random, -(-count * rows // BATCH)).reshape(-1, rows, 32)[:count]
        return [encode_request({"ids": one}, "tfserving") for one in ids]

    with ExitStack() as stack:
        models = {
            name: stack.enter_context(processor.Model(folder, config | {"tables": tiered | {"early_reads": early}}))
            for name, early in (("early", True), ("in_op", False))
        }
        for rows in ROWS:
            rates: dict[str, list[float]] = {name: [] for name in models}
            before = models["early"].info["tables"]
            for turn in range(2 * setup.rounds):
                requests = draw(setup.early_ids // rows, rows)
                # Not the same requests for both: the second would find the rows of the first in the cache.
                for name in sorted(models, reverse=turn % 2 == 0):
                    rates[name].append(_send(models[name], requests, at_a_time)[0])
                    requests = draw(len(requests), rows)
            same = draw(64, rows)
            if _send(models["early"], same, at_a_time)[1] != _send(models["in_op"], same, at_a_time)[1]:
                raise AssertionError("the answers differ")
            after = models["early"].info["tables"]
            figures = {name: {"median": float(np.median(values)), "rounds": values} for name, values in rates.items()}
            lookups = after["lookups"] - before["lookups"]
            found[f"{rows}_rows"] = {
                "requests_per_s": figures,
                "early_over_in_op": ratio(figures, "early", "in_op"),
                "hit_rate": (after["hits"] - before["hits"]) / lookups,
                "reads_of_request": (after["reads"] - before["reads"]) / (lookups / (32 * rows)),
            }
    return found


def _check_all_blocks(model: processor.Model, rows: int) -> None:
    """Read a row of each block, so that blocks are not checked while it is measured."""
    step = 65536 // ROW_BYTES // 2
    keys = keys_of(np.arange(0, rows, step, dtype=np.int64))
    keys = np.resize(keys, (-(-len(keys) // 32), 32))
    for first in range(0, len(keys), BATCH):
        model.run({"ids": keys[first : first + BATCH]})


def judge(case: dict[str, Any]) -> list[Target]:
    """Compare the figures with the targets: one session keeps a device busy, and nothing becomes slower."""
    targets = []
    for setting in case["settings"]:
        places = f"{setting['sessions']} sessions, {setting['worker_threads']} threads"
        many = setting["sessions"] == 1
        for rows in ROWS:
            name = f"early reads: {places}, {setting['requests_at_a_time']} requests of {rows} rows: early over in op"
            limit = 1.2 if many and rows == min(ROWS) else 0.9
            targets.append(Target(name, setting[f"{rows}_rows"]["early_over_in_op"], limit, True))
    return targets
