# SPDX-License-Identifier: Apache-2.0
"""`memory`: resident memory that a key takes beyond its weights and slots."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import numpy as np

from load_tests._report import Target
from load_tests.elastic.own_rows import OwnRows
from load_tests.elastic.setup import BATCH, DIM, Setup, keys_of, one_thread
from load_tests.elastic.tfra import Tfra

__all__ = ["PAYLOAD", "judge", "measure", "resident"]

#: Weights and the slots of Adagrad [bytes].
PAYLOAD = 2 * 4 * DIM
MOST = 24


def resident() -> int:
    """Return the resident memory of this process [bytes]."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _trim() -> None:
    """Let the heap give back what was freed and is kept for more."""
    ctypes.CDLL(None).malloc_trim(0)


def _fill(rows: OwnRows, keys: int) -> None:
    """Make rows as training does: by steps with keys that are new."""
    import tensorflow as tf

    gradients = tf.zeros([BATCH, DIM])
    for start in range(0, keys, BATCH):
        part = tf.constant(keys_of(np.arange(start, min(start + BATCH, keys))))
        rows.step(part, gradients[: part.shape[0]])


def measure(setup: Setup) -> dict[str, Any]:
    """Return the growth of the process while training fills a table, for each key."""
    one_thread()
    # The memory that ops and their first calls take is none of the table's.
    _fill(OwnRows(0), 4 * BATCH)
    rows = OwnRows(0)
    _trim()
    before = resident()
    _fill(rows, setup.keys)
    per_key = (resident() - before) / setup.keys
    _trim()
    trimmed = (resident() - before) / setup.keys
    found = rows.table.size()
    with Tfra(setup.keys, BATCH) as tfra:
        peer = tfra.absent or tfra.found
    return {
        "keys": setup.keys,
        "wrong": abs(setup.keys - found),
        "bytes_per_key": per_key,
        "beyond": per_key - PAYLOAD,
        "beyond_with_key": per_key - PAYLOAD - 8,
        "beyond_trimmed": trimmed - PAYLOAD,
        "table_says": rows.table.bytes() / setup.keys,
        "tfra": peer,
    }


def judge(case: dict[str, Any]) -> list[Target]:
    """Return the target."""
    return [Target("memory of a key beyond weights and slots, bytes", case["beyond"], MOST, at_least=False)]
