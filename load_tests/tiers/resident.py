# SPDX-License-Identifier: Apache-2.0
"""Requests per second of a resident table beside the same table mapped, with rows drawn at random from all of it."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import processor
from load_tests._programs import find_library
from load_tests._report import Target
from load_tests.elastic.rounds import ratio
from load_tests.tiers.served_table import BATCH, IDS, export_model, keys_of
from load_tests.tiers.setup import Setup

__all__ = ["judge", "measure"]


def measure(setup: Setup) -> dict[str, Any]:
    """Make the table, measure, and delete it."""
    setup.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench_tiers_", dir=setup.folder) as folder:
        model = export_model(Path(folder), setup.resident_rows, find_library(None))
        return _measure(setup, model, Path(folder) / "shared")


def _send(model: processor.Model, requests: NDArray[np.int64]) -> float:
    """Send requests [n, BATCH, IDS] one after the other; return the requests per second."""
    begun = time.perf_counter()
    for ids in requests:
        model.run({"ids": ids})
    return len(requests) / (time.perf_counter() - begun)


def _measure(setup: Setup, folder: Path, share_folder: Path) -> dict[str, Any]:
    config = {"tables": {"tier": "resident", "share_folder": str(share_folder)}, "warmup_runs": 1}
    random = np.random.default_rng(1)

    def draw(count: int) -> NDArray[np.int64]:
        return keys_of(random.integers(setup.resident_rows, size=(count, BATCH, IDS)))

    with processor.Model(folder, {"warmup_runs": 1}) as mapped:
        begun = time.perf_counter()
        with processor.Model(folder, config) as resident:
            load_s = time.perf_counter() - begun
            models = {"mapped": mapped, "resident": resident}
            for ids in draw(20):
                if not np.array_equal(resident.run({"ids": ids})["sums"], mapped.run({"ids": ids})["sums"]):
                    raise AssertionError("the resident model answers otherwise than the mapped one")
            rates: dict[str, list[float]] = {name: [] for name in models}
            for turn in range(setup.rounds):
                requests = draw(setup.resident_requests)
                for name in sorted(models, reverse=turn % 2 == 0):
                    rates[name].append(_send(models[name], requests))
            tables = resident.info["tables"]
    figures = {
        name: {"median": float(np.median(values)), "least": min(values), "greatest": max(values), "rounds": values}
        for name, values in rates.items()
    }
    return {
        "requests_per_s": figures,
        "resident_over_mapped": ratio(figures, "resident", "mapped"),
        "load_s": load_s,
        "tables": tables,
        "ids_of_request": BATCH * IDS,
    }


def judge(case: dict[str, Any]) -> list[Target]:
    """Compare with the mapped table, which a resident one must not fall behind."""
    return [Target("resident: requests/s over mapped", case["resident_over_mapped"], 1.0, True)]
