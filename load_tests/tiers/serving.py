# SPDX-License-Identifier: Apache-2.0
"""Requests per second of a tiered table beside the same one in memory, and peers with equal memory; its cold start."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

import processor
from load_tests._programs import ROOT, find_library, find_program, run_program
from load_tests._report import Target
from load_tests.elastic.rounds import ratio
from load_tests.tiers import peers
from load_tests.tiers.clients import THREADS, ModelClient
from load_tests.tiers.served_table import BATCH, IDS, ROW_BYTES, Zipf, export_model
from load_tests.tiers.setup import Setup

__all__ = ["judge", "measure"]


def measure(setup: Setup) -> dict[str, Any]:
    """Make the table, measure, and delete it."""
    setup.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench_tiers_", dir=setup.folder) as folder:
        model = export_model(Path(folder), setup.served_rows, find_library(None))
        return _measure(setup, model)


def _cold_start(model: Path, config: dict[str, Any], rows: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "load_tests.tiers.cold_start", str(model), json.dumps(config), str(rows)]
    done = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _device_reads(setup: Setup, table: Path) -> float:
    """Return the random reads per second of 4 KiB that the device answers."""
    program = find_program("bench_reads", None)
    found = run_program(program, {"file": table, "bytes": 4096, "seconds": setup.seconds})
    return float(found["reads_per_s"])


def _measure(setup: Setup, model: Path) -> dict[str, Any]:
    (table,) = (model / "assets").glob("*.emb")
    index = table.stat().st_size - setup.served_rows * ROW_BYTES
    memory = index + setup.served_rows * ROW_BYTES // 5
    config = {"tables": {"tier": "tiered", "memory": memory}, "warmup_runs": 1}
    zipf = Zipf(setup.served_rows)
    random = np.random.default_rng(1)
    with ExitStack() as stack:
        tiered = stack.enter_context(processor.Model(model, config))
        resident = stack.enter_context(processor.Model(model, {"warmup_runs": 1}))
        for ids in zipf.draw(random, 20):
            if not np.array_equal(tiered.run({"ids": ids})["sums"], resident.run({"ids": ids})["sums"]):
                raise AssertionError("the tiered model answers otherwise than the one in memory")
        clients = {"resident": ModelClient(resident), "tiered": ModelClient(tiered)}
        warm = _warm_up(setup, clients["tiered"], tiered, random)
        rates: dict[str, list[float]] = {name: [] for name in clients}
        p99: dict[str, list[float]] = {name: [] for name in clients}
        before = tiered.info["tables"]
        sent, device = 0, list[float]()
        for turn in range(setup.rounds):
            requests = zipf.draw(random, setup.requests)
            for name in sorted(clients, reverse=turn % 2 == 0):
                rate, latencies = clients[name].send(requests)
                rates[name].append(rate)
                p99[name].append(float(np.percentile(latencies, 99)))
            sent += len(requests)
            # Between the rounds, because other work on the machine disturbs both.
            device.append(_device_reads(setup, table))
        after = tiered.info["tables"]
        resident.close()
        others = peers.measure(setup, model, memory, clients["tiered"], zipf, random)
    cold = _cold_start(model, config, setup.served_rows)
    reads = float(np.median(device))
    lookups, hits = (after[name] - before[name] for name in ("lookups", "hits"))
    reads_of_request = (after["reads"] - before["reads"]) / sent
    figures = {
        name: {"median": float(np.median(values)), "least": min(values), "greatest": max(values), "rounds": values}
        for name, values in rates.items()
    }
    allowed = reads / max(reads_of_request, 1e-9)
    return {
        "requests_per_s": figures,
        "p99_ms": {name: float(np.median(values)) for name, values in p99.items()},
        "tiered_over_resident": ratio(figures, "tiered", "resident"),
        "device_reads_per_s": reads,
        "device_rounds": device,
        "reads_of_request": reads_of_request,
        "device_allows_requests_per_s": allowed,
        "tiered_over_device": figures["tiered"]["median"] / allowed,
        "device_over_resident": allowed / figures["resident"]["median"],
        "hit_rate": hits / lookups,
        "best_hit_rate": zipf.share_of(after["cache_rows"]),
        "table_bytes": table.stat().st_size,
        "memory_bytes": memory,
        "index_bytes": after["index_bytes"],
        "cache_bytes": after["cache_bytes"],
        "ids_of_request": BATCH * IDS,
        "peers": others,
        "threads": THREADS,
        "warm_up": warm,
        "cold_start_s": cold["first_answer_s"],
        "cold_start": cold,
    }


def _warm_up(
    setup: Setup, client: ModelClient, model: processor.Model, random: np.random.Generator
) -> dict[str, float]:
    """Send requests until the cache is full and its hits hardly rise; return how long that took."""
    begun, hit_rate, last = time.monotonic(), 0.0, -1.0
    zipf = Zipf(setup.served_rows)
    before = model.info["tables"]
    is_full = False
    while (not is_full or hit_rate - last > 0.002) and time.monotonic() - begun < setup.warm_up_seconds:
        client.send(zipf.draw(random, 2 * setup.requests))
        after = model.info["tables"]
        last, hit_rate = hit_rate, (after["hits"] - before["hits"]) / (after["lookups"] - before["lookups"])
        before, is_full = after, after["cached_rows"] > 0.98 * after["cache_rows"]
    return {"seconds": time.monotonic() - begun, "hit_rate": hit_rate, "read_bytes": before["read_bytes"]}


def judge(case: dict[str, Any]) -> list[Target]:
    """Compare the figures with the targets."""
    limit = min(0.5, 0.8 * case["device_over_resident"])
    return [
        Target("serving: requests/s, tiered over resident", case["tiered_over_resident"], limit, True),
        *peers.judge(case["peers"]),
        Target("serving: first answer after a cold start [s]", case["cold_start_s"], 3, False),
    ]
