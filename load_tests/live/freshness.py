# SPDX-License-Identifier: Apache-2.0
"""Measure how long it takes from the name of a segment to the first answer of its epoch, under load."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from load_tests._report import Target
from load_tests.live.large import LargeModel
from load_tests.live.setup import Setup

__all__ = ["judge", "measure"]

#: Longest median and 99th percentile [s].
MEDIAN_S, P99_S = 0.5, 1.0
_RATE = 1000.0
_INTERVAL_S = 1.0


def measure(setup: Setup) -> dict[str, Any]:
    """Publish an epoch each second while clients ask, and return the time to its first answer [ms].

    The time begins just before the complete segment gets its name. `named_...` is how long the file system took for
    that, including the flush of the folder.
    """
    epochs = setup.size(100, 3)
    ages, named, rows = list[float](), list[float](), 0
    with tempfile.TemporaryDirectory() as folder:
        model = LargeModel(setup, Path(folder))
        with model.clients(model.writer.folder, _RATE) as clients:
            clients.measure()
            for epoch in range(1, epochs + 1):
                due = time.monotonic() + (0.1 if setup.quick else _INTERVAL_S)
                segment, linked = model.publish()
                named.append((time.monotonic_ns() - linked) / 1e6)
                (table,) = segment.delta.tables
                rows = table.changed.shape[0]
                ages.append((clients.wait_for(epoch) - linked) / 1e6)
                setup.tick(f"epoch {epoch}: {ages[-1]:.1f} ms")
                time.sleep(max(0.0, due - time.monotonic()))
            load = clients.measure()
    found = {name: value for name, value in clients.report.items() if name != "switches"}
    return found | {
        "wrong": found["wrong"] + found["failed"],
        "keys": model.shape.keys,
        "changed_rows": rows,
        "epochs": epochs,
        "median_ms": round(float(np.median(ages)), 2),
        "p99_ms": round(float(np.quantile(ages, 0.99, method="higher")), 2),
        "most_ms": round(max(ages), 2),
        "named_median_ms": round(float(np.median(named)), 2),
        "named_most_ms": round(max(named), 2),
        "load": load,
        "ages_ms": [round(age, 2) for age in ages],
    }


def judge(case: dict[str, Any]) -> list[Target]:
    """Compare the times with the targets."""
    label = f"from the name of a segment to the first answer, {case['epochs']} epochs"
    return [
        Target(f"{label}, median, s", case["median_ms"] / 1e3, MEDIAN_S, at_least=False),
        Target(f"{label}, p99, s", case["p99_ms"] / 1e3, P99_S, at_least=False),
    ]
