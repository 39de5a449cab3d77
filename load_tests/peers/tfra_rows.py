# SPDX-License-Identifier: Apache-2.0
"""A table of TFRA 0.8.1 for `bench_elastic`. Runs in .venv-tfra, which has TensorFlow 2.16 and tf-keras.

    tfra_rows.py KEYS BATCH

Writes a line with what was checked, then answers each line {"what": "lookup" | "step", "seconds": s} with a line
{"rate": rows per CPU-second}.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from load_tests.elastic.setup import ACCUMULATOR, DIM, RATE, adagrad, batches_of, keys_of, one_thread, values_of

_PART = 100_000
_BATCHES = 64


def _resident() -> int:
    """Return the resident memory of this process [bytes]."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class _Rows:
    """A dynamic variable, and steps of legacy Adagrad, which writes slots beside it."""

    def __init__(self, keys: int) -> None:
        import tensorflow as tf
        from tensorflow_recommenders_addons import dynamic_embedding as de

        self._tf, self._de = tf, de
        self.variable = de.get_variable(
            "rows", key_dtype=tf.int64, value_dtype=tf.float32, dim=DIM, initializer=0.0, devices=["/CPU:0"]
        )
        self._optimizer = de.DynamicEmbeddingOptimizer(
            tf.keras.optimizers.legacy.Adagrad(RATE, initial_accumulator_value=ACCUMULATOR)
        )
        self.before = _resident()
        for start in range(0, keys, _PART):
            numbers = np.arange(start, min(start + _PART, keys))
            self.variable.upsert(tf.constant(keys_of(numbers)), tf.constant(values_of(numbers)))

        # In graphs: a step by eager ops takes half as long again.
        self._shadow = de.shadow_ops.ShadowVariable(self.variable, name="step")
        self.look_up = tf.function(self.variable.lookup, reduce_retracing=True)
        self.step = tf.function(self._step, reduce_retracing=True)

    def _step(self, keys: Any, gradients: Any) -> None:
        with self._tf.GradientTape() as tape:
            rows = self._de.shadow_ops.embedding_lookup(self._shadow, keys)
            loss = self._tf.reduce_sum(rows * gradients)
        self._optimizer.apply_gradients([(tape.gradient(loss, self._shadow), self._shadow)])


def _check(rows: _Rows, numbers: Any, gradients: Any) -> dict[str, int]:
    """Return how many rows of a lookup and of a first step are wrong."""
    keys = rows._tf.constant(keys_of(numbers))
    looked_up = rows.look_up(keys).numpy()
    rows.step(keys, rows._tf.constant(gradients))
    expected = adagrad(values_of(numbers), ACCUMULATOR, gradients, 1e-7)
    stepped = rows.look_up(keys).numpy()
    return {
        "wrong_lookups": int((looked_up != values_of(numbers)).any(axis=1).sum()),
        "wrong_steps": int((np.abs(stepped - expected) > 1e-5).any(axis=1).sum()),
    }


def _rate(work: Callable[[int], object], rows: int, seconds: float) -> float:
    work(0)
    count, start = 0, time.process_time()
    while (spent := time.process_time() - start) < seconds or count == 0:
        work(count)
        count += 1
    return count * rows / spent


def main() -> None:
    """Make the table, check it, and answer until the input ends."""
    keys, batch = int(sys.argv[1]), int(sys.argv[2])
    one_thread()
    rows = _Rows(keys)
    tf = rows._tf
    numbers = batches_of(keys, batch, _BATCHES)
    gradients = np.random.default_rng(1).normal(size=(batch, DIM)).astype(np.float32)
    found: dict[str, Any] = _check(rows, numbers[0], gradients)
    # Every row gets its slot, as in training that has met all keys.
    for start in range(0, keys, batch):
        part = keys_of(np.arange(start, min(start + batch, keys)))
        rows.step(tf.constant(part), tf.zeros([len(part), DIM]))
    found |= {"tensorflow": tf.__version__, "bytes_per_key": (_resident() - rows.before) / keys}
    print(json.dumps(found), flush=True)
    ready = [tf.constant(keys_of(part)) for part in numbers]
    gradient = tf.constant(gradients)
    work = {
        "lookup": lambda turn: rows.look_up(ready[turn % _BATCHES]),
        "step": lambda turn: rows.step(ready[turn % _BATCHES], gradient),
    }
    for line in sys.stdin:
        wanted = json.loads(line)
        print(json.dumps({"rate": _rate(work[wanted["what"]], batch, wanted["seconds"])}), flush=True)


if __name__ == "__main__":
    main()
