# SPDX-License-Identifier: Apache-2.0
"""Generate random graphs of `RecEmbeddingGroup`, with the equivalent lookups of stock TensorFlow."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from helpers.oracles.stock_draws import INTEGERS, Case, Random, floats, plain, small, some_rows


def _steps(random: Random, size: int) -> tuple[list[dict[str, Any]], Callable[..., Any]]:
    """Draw a conversion of numbers to ids, and the same with stock ops; ids may be outside of the table."""
    kind = str(random.choice(["none", "mod", "clip", "add", "hash", "strong", "wrap", "divide", "code"]))
    key = [int(integer) for integer in random.integers(-5, 2**62, 2)]
    low, high = int(random.integers(-3, 2)), int(random.integers(2, size + 4))
    steps: dict[str, list[dict[str, Any]]] = {
        "none": [],
        "mod": [{"op": "mod", "by": size}],
        "clip": [{"op": "clip", "low": low, "high": high}],
        "add": [{"op": "multiply", "value": 3}, {"op": "add", "value": 2}, {"op": "mod", "by": size}],
        "hash": [{"op": "to_string"}, {"op": "fast_hash", "buckets": size}],
        "strong": [{"op": "to_string"}, {"op": "strong_hash", "buckets": size, "key": key}],
        "wrap": [{"op": "wrap_negative", "by": size}],
        "divide": [{"op": "mod", "by": 3 * size}, {"op": "divide", "by": 3}],
        "code": [
            {"op": "multiply", "value": -7},
            {"op": "xor_shift", "by": 29},
            {"op": "bits", "first": 2, "count": 2, "every": 5},
        ],
    }

    def stock(tf: Any, ids: Any) -> Any:
        ids = tf.cast(ids, tf.int64)
        return {
            "none": lambda: ids,
            "mod": lambda: tf.math.floormod(ids, size),
            "clip": lambda: tf.minimum(tf.maximum(ids, tf.constant(low, tf.int64)), high),
            "add": lambda: tf.math.floormod(ids * 3 + 2, size),
            "hash": lambda: tf.strings.to_hash_bucket_fast(tf.as_string(ids), size),
            "strong": lambda: tf.strings.to_hash_bucket_strong(tf.as_string(ids), size, key),
            "wrap": lambda: tf.where(ids < 0, ids + size, ids),
            "divide": lambda: tf.math.floordiv(tf.math.floormod(ids, 3 * size), 3),
            "code": lambda: _code(tf, ids),
        }[kind]()

    return steps[kind], stock


def _code(tf: Any, ids: Any) -> Any:
    """Return the number of bits 2 and 7 of mixed ids."""
    word = tf.bitcast(ids * -7, tf.uint64)
    word = tf.bitwise.bitwise_xor(word, tf.bitwise.right_shift(word, tf.constant(29, tf.uint64)))
    low, high = (tf.bitcast(tf.bitwise.right_shift(word, tf.constant(bit, tf.uint64)), tf.int64) for bit in (2, 7))
    return low % 2 + high % 2 * 2


def _found(tf: Any, table: Any, ids: Any) -> Any:
    """Look up ids; ids outside of the table give zeros."""
    held = (ids >= 0) & (ids < tf.shape(table, tf.int64)[0])
    return tf.where(held[..., None], tf.gather(table, tf.where(held, ids, 0)), 0.0)


def group(random: Random) -> Case:
    """Columns of all kinds: rows as they are, pooled with weights or without, copied, multiplied, by ranges."""
    rows, size, dim, n = some_rows(random), int(random.integers(1, 9)), small(random, 9), small(random, 4)
    table = floats(random, size, dim)
    dtype = np.int64 if random.random() < 0.6 else np.int32
    ids = random.integers(-2, size + 3, (rows, n)).astype(np.int64)
    extreme = random.random(ids.shape) < 0.15
    ids[extreme] = random.choice(INTEGERS, int(extreme.sum()))
    weights, numbers = floats(random, rows, n), floats(random, rows, 2)
    given = numbers.astype(np.float64) if random.random() < 0.3 else numbers
    steps, stepped = _steps(random, size)
    combiner = str(random.choice(["sum", "mean", "sqrtn"]))
    weighted, positive, negative = (bool(random.random() < 0.5) for _ in range(3))
    boundaries = [-0.5, 0.0, 0.25]
    kernel = plain(random, 2, 3)
    pooled: dict[str, Any] = {"kind": "lookup", "key": 0, "table": 0, "output": 1, "offset": 0, "combiner": combiner}
    if weighted:
        pooled |= {"weights": 1, "positive_weights": positive}
    plan = {
        "version": 1,
        "outputs": [{"width": n * dim}, {"width": dim}, {"width": 5}, {"width": 2 * dim}],
        "keys": [
            {"feature": 0, "steps": steps, "ignore_negative": negative},
            {"feature": 2, "steps": [{"op": "bucketize", "boundaries": boundaries}]},
        ],
        "columns": [
            {"kind": "lookup", "key": 0, "table": 0, "output": 0, "offset": 0},
            pooled,
            {"kind": "copy", "feature": 3, "output": 2, "offset": 0, "width": 2},
            {"kind": "linear", "feature": 2, "output": 2, "offset": 2, "weights": kernel.tolist()},
            {"kind": "lookup", "key": 1, "table": 0, "output": 3, "offset": 0},
        ],
    }

    def stock(tf: Any, ids: Any, weights: Any, numbers: Any, given: Any, table: Any) -> list[Any]:
        keys = stepped(tf, ids)
        found = _found(tf, table, keys)
        used = tf.ones_like(weights) if not weighted else weights
        counts = tf.ones_like(keys, tf.bool)
        if weighted and positive:
            counts &= weights > 0
        if negative:
            counts &= keys >= 0
        # embedding_lookup_sparse receives only the values that count.
        places = tf.where(counts)
        values, row = tf.gather_nd(found, places), places[:, 0]
        scale = tf.gather_nd(used, places)
        total = tf.math.unsorted_segment_sum
        summed = total(values * scale[:, None], row, rows)
        divisor = {"sum": None, "mean": total(scale, row, rows), "sqrtn": tf.sqrt(total(scale**2, row, rows))}[combiner]
        # As in tf.nn.embedding_lookup_sparse: 0 for rows without values and for weights with the sum 0.
        made = summed if divisor is None else tf.math.divide_no_nan(summed, divisor[:, None])
        buckets = tf.cast(tf.raw_ops.Bucketize(input=numbers, boundaries=boundaries), tf.int64)
        beside = tf.concat([tf.cast(given, tf.float32), tf.matmul(numbers, kernel)], 1)
        flat = tf.reshape(found, [rows, n * dim])
        return [flat, made, beside, tf.reshape(_found(tf, table, buckets), [rows, 2 * dim])]

    inputs = [np.clip(ids, -(2**31), 2**31 - 1).astype(dtype) if dtype == np.int32 else ids, weights, numbers, given]
    return Case("RecEmbeddingGroup", inputs, {"plan": json.dumps(plan)}, stock, 4, [table])
