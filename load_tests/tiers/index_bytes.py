# SPDX-License-Identifier: Apache-2.0
"""Part of `training`: the memory of a table for each row that is on SSD.

    python -m load_tests.tiers.index_bytes FOLDER [ROWS]

A table whose memory has room for few of its rows gets all of them. What its memory has besides the rows that are there
is divided by the number of rows on SSD: their index, as full as it happens to be, that of the rows in memory, and what
the table needs itself.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["measure"]

DIM, _BATCH = 32, 20_000


def measure(folder: Path, rows: int) -> dict[str, Any]:
    """Return the numbers of rows and the memory for each one on SSD [bytes]."""
    import elastic_training as et

    tiers = et.Tiers(memory=24 * rows + (1 << 20), ssd=folder)
    table = et.Table(et.TableConfig("index", DIM, optimizer=et.SGD(0.1), tiers=tiers))
    for first in range(0, rows, _BATCH):
        keys = np.arange(first, min(first + _BATCH, rows))
        weights = np.repeat(keys[:, None].astype(np.float32), DIM, axis=1)
        table.insert(keys, weights, meta=np.ones((len(keys), 3), np.int64))
    stats = table.stats()
    tier = stats["tiers"]
    besides = stats["used_bytes"] - tier["memory_rows"] * stats["row_bytes"]
    drawn = np.random.default_rng(0).integers(0, rows, _BATCH)
    wrong = int((table.read(drawn).weights.numpy() != drawn[:, None].astype(np.float32)).any(axis=1).sum())
    shutil.rmtree(folder)
    return {
        "ssd_rows": tier["ssd_rows"],
        "memory_rows": tier["memory_rows"],
        "bytes_per_row": besides / tier["ssd_rows"],
        "index_bytes_per_row": tier.get("ssd_index_bytes", 0) / tier["ssd_rows"],
        "wrong": wrong,
    }


if __name__ == "__main__":
    print(measure(Path(sys.argv[1]) / "index", int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000))
