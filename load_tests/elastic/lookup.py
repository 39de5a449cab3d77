# SPDX-License-Identifier: Apache-2.0
"""`lookup`: rows of random keys for each CPU-second, beside TFRA and TensorFlow's dense gather."""

from __future__ import annotations

from typing import Any

import numpy as np

from load_tests._report import Target
from load_tests.elastic.own_rows import OwnRows
from load_tests.elastic.rounds import alternate, cpu_rate
from load_tests.elastic.setup import BATCH, Setup, batches_of, keys_of, one_thread, values_of
from load_tests.elastic.tfra import Tfra

__all__ = ["judge", "measure"]

LEAST = 8e6
_BATCHES = 64


def measure(setup: Setup) -> dict[str, Any]:
    """Return rows per CPU-second of each contestant, and how many answers were wrong."""
    one_thread()
    import tensorflow as tf

    rows = OwnRows(setup.keys)
    numbers = batches_of(setup.keys, BATCH, _BATCHES)
    dense = tf.Variable(values_of(np.arange(setup.keys)))
    wrong = sum(rows.wrong_rows(part) for part in numbers)
    ready, positions = [tf.constant(keys_of(part)) for part in numbers], [tf.constant(part) for part in numbers]
    contestants = {
        "elastic": lambda: cpu_rate(
            lambda turn: rows.look_up(ready[turn % _BATCHES], training=False), BATCH, setup.seconds
        ),
        "elastic, in training": lambda: cpu_rate(
            lambda turn: rows.look_up(ready[turn % _BATCHES], training=True), BATCH, setup.seconds
        ),
        "dense gather": lambda: cpu_rate(
            lambda turn: tf.raw_ops.ResourceGather(
                resource=dense.handle, indices=positions[turn % _BATCHES], dtype=tf.float32
            ),
            BATCH,
            setup.seconds,
        ),
    }
    with Tfra(setup.keys, BATCH) as tfra:
        if tfra.absent is None:
            wrong += tfra.found["wrong_lookups"]
            contestants["TFRA"] = lambda: tfra.rate("lookup", setup.seconds)
        speeds = alternate(contestants, setup.rounds)
        return {"keys": setup.keys, "batch": BATCH, "wrong": wrong, "tfra": tfra.absent or tfra.found} | speeds


def judge(case: dict[str, Any]) -> list[Target]:
    """Return the target."""
    return [Target("lookup, rows per CPU-second", case["elastic"]["median"], LEAST, at_least=True)]
