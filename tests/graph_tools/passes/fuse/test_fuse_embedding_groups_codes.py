# SPDX-License-Identifier: Apache-2.0
"""Keys that have several rows of small tables: quotient and remainder, mixed bits, and blocks of bits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.plans.embedding_parts import Add, Bits, Divide, Mod, Multiply, XorShift
from helpers.graph_tools.group_checks import Fused, fused
from helpers.models.idiom_models import export_function, table

WORDS = np.array([0, 1, -1, 5, 1 << 62, -(1 << 63), (1 << 63) - 1, 1234567890123456789], np.int64)
IDS = np.array([0, 1, 6, 7, 55, 27, 9, 14], np.int64)


def fuse(path: Path, function: Callable[..., Any], rows: int = 8, tables: int = 2, **spec: Any) -> Fused:
    """Fuse `function(ids, [table, …])`."""
    import tensorflow as tf

    held = [tf.Variable(table(rows, 4, seed)) for seed in range(tables)]
    ids = tf.TensorSpec(spec.get("shape", [None]), spec.get("dtype", "int64"), name="ids")
    return fused(export_function(path / "in", lambda ids: {"rows": function(ids, held)}, [ids], held=held))


@pytest.mark.parametrize("operation", ["add", "mul", "concat"])
@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_quotient_and_remainder_become_one_node(operation: str, dtype: str, tmp_path: Path) -> None:
    """The multi-hash variable of DeepRec."""
    import tensorflow as tf

    def serve(ids: Any, held: Any) -> Any:
        quotient, remainder = tf.math.floordiv(ids, 7), tf.math.floormod(ids, 7)
        rows = [tf.nn.embedding_lookup(held[0], quotient), tf.nn.embedding_lookup(held[1], remainder)]
        joined = {
            "add": lambda: rows[0] + rows[1],
            "mul": lambda: rows[0] * rows[1],
            "concat": lambda: tf.concat(rows, 1),
        }
        return joined[operation]()

    made = fuse(tmp_path, serve, dtype=dtype)
    assert made.ops() == set()
    assert {key.steps for key in made.plan.keys} == {(Divide(7),), (Mod(7),)}
    assert made.features == ["serving_default_ids"]
    assert len(made.plan.outputs) == 1
    assert sum(len(column.factors) for column in made.plan.columns) == (operation == "mul")
    made.check({"ids": IDS.astype(dtype)})


def mixed(tf: Any, ids: Any) -> Any:
    """A finalizer of another hash than that of this package."""
    word = tf.bitcast(ids, tf.uint64)
    for shift, factor in ((33, 0xFF51AFD7ED558CCD), (33, 0xC4CEB9FE1A85EC53)):
        word = tf.bitwise.bitwise_xor(tf.bitwise.right_shift(word, tf.constant(shift, tf.uint64)), word)
        word = tf.constant(factor, tf.uint64) * word
    return word


def test_blocks_of_mixed_bits_become_one_node(tmp_path: Path) -> None:
    import tensorflow as tf

    def serve(ids: Any, held: Any) -> Any:
        word, mask = mixed(tf, ids), tf.constant(3, tf.uint64)
        blocks = [word, tf.bitwise.right_shift(word, tf.constant(2, tf.uint64))]
        numbers = [tf.cast(tf.bitwise.bitwise_and(mask, block), tf.int64) for block in blocks]
        return tf.add_n([tf.gather(held[0], number + 4 * i) for i, number in enumerate(numbers)])

    made = fuse(tmp_path, serve, tables=1)
    assert made.ops() == set()
    steps = (
        XorShift(33),
        Multiply(0xFF51AFD7ED558CCD - (1 << 64)),
        XorShift(33),
        Multiply(0xC4CEB9FE1A85EC53 - (1 << 64)),
    )
    assert [key.steps for key in made.plan.keys] == [(*steps, Bits(0, 2)), (*steps, Bits(2, 2), Add(4))]
    made.check({"ids": WORDS})


def every_second(tf: Any, word: Any, first: int, order: list[int]) -> Any:
    single = tf.bitwise.right_shift(tf.expand_dims(word, -1), tf.constant([first, first + 2, first + 4], tf.uint64))
    single = tf.bitwise.bitwise_and(single, tf.constant(1, tf.uint64))
    return tf.bitcast(tf.reduce_sum(tf.bitwise.left_shift(single, tf.constant(order, tf.uint64)), -1), tf.int64)


@pytest.mark.parametrize("sizes", [(), (3,), (None,)], ids=str)
def test_every_second_bit_of_ids_of_any_form_becomes_one_node(sizes: tuple[int | None, ...], tmp_path: Path) -> None:
    import tensorflow as tf

    def serve(ids: Any, held: Any) -> Any:
        word = tf.bitcast(ids, tf.uint64)
        return tf.add_n([tf.gather(held[first], every_second(tf, word, first, [0, 1, 2])) for first in range(2)])

    made = fuse(tmp_path, serve, shape=[None, *sizes])
    assert made.ops() == set()
    assert [key.steps for key in made.plan.keys] == [(Bits(first, 3, 2),) for first in range(2)]
    assert all(column.accumulate for column in made.plan.columns)
    made.check({"ids": np.resize(WORDS, (8, *(size or 3 for size in sizes)))})


def test_sums_of_sequences_are_pooled(tmp_path: Path) -> None:
    import tensorflow as tf

    def serve(ids: Any, held: Any) -> Any:
        rows = tf.gather(held[0], tf.math.floordiv(ids, 7)) + tf.gather(held[1], tf.math.floormod(ids, 7))
        return tf.reduce_sum(rows, 1)

    made = fuse(tmp_path, serve, shape=[None, None])
    assert made.ops() == set()
    assert [column.combiner for column in made.plan.columns] == ["sum", "sum"]
    made.check({"ids": np.stack([IDS, IDS[::-1]], 1)}, exact=False)


PRODUCTS: dict[str, tuple[Any, Callable[..., Any]]] = {
    "one": ([None], lambda tf, rows: rows),
    "several": ([None, 3], lambda tf, rows: tf.reshape(rows, [-1, 12])),
    "sequence": ([None, None], lambda tf, rows: rows),
    "sum": ([None, None], lambda tf, rows: tf.reduce_sum(rows, 1)),
    "mean": ([None, 3], lambda tf, rows: tf.reduce_mean(rows, 1)),
    "biased": ([None], lambda tf, rows: rows + tf.constant([1.0, 2.0, 3.0, 4.0])),
}


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_of_single_rows_also_if_pooled(name: str, count: int, tmp_path: Path) -> None:
    import tensorflow as tf

    shape, join = PRODUCTS[name]

    def serve(ids: Any, held: Any) -> Any:
        numbers = [tf.math.floordiv(ids, 49), tf.math.floormod(tf.math.floordiv(ids, 7), 7), tf.math.floormod(ids, 7)]
        rows = [tf.gather(*pair) for pair in zip(held, numbers[-count:], strict=True)]
        product = rows[0] * rows[1]
        return join(tf, product * rows[2] if count == 3 else product)

    made = fuse(tmp_path, serve, shape=shape, tables=count)
    assert made.ops() == set()
    (column,) = made.plan.columns
    assert len(column.factors) == count - 1
    ids = IDS if len(shape) == 1 else np.stack([IDS, IDS[::-1], IDS % 7], 1)
    made.check({"ids": ids % 49}, exact=name not in {"sum", "mean"})


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_products_of_sparse_ids_are_pooled(combiner: str, tmp_path: Path) -> None:
    """As `embedding_lookup_sparse` of DeepRec pools the rows of a multi-hash variable."""
    import tensorflow as tf

    segment = {"sum": tf.sparse.segment_sum, "mean": tf.sparse.segment_mean, "sqrtn": tf.sparse.segment_sqrt_n}

    held = [tf.Variable(table(8, 4, seed)) for seed in range(2)]

    def serve(indices: Any, values: Any, shape: Any) -> Any:
        ids, places = tf.unique(values)
        quotient, remainder = tf.math.floordiv(ids, 7), tf.math.floormod(ids, 7)
        rows = tf.nn.embedding_lookup(held[0], quotient) * tf.nn.embedding_lookup(held[1], remainder)
        return {"rows": segment[combiner](rows, places, tf.cast(indices[:, 0], tf.int32), num_segments=shape[0])}

    specs = [
        tf.TensorSpec([None, 2], tf.int64, name="indices"),
        tf.TensorSpec([None], tf.int64, name="values"),
        tf.TensorSpec([2], tf.int64, name="shape"),
    ]
    made = fused(export_function(tmp_path / "in", serve, specs, held=held))
    assert not made.ops() & {"Mul", "Unique"}
    assert len(made.plan.columns[0].factors) == 1
    indices = np.array([[0, 0], [0, 1], [2, 0], [2, 1], [3, 5]], np.int64)
    made.check({"indices": indices, "values": IDS[:5], "shape": np.array([5, 9])}, exact=False)


@pytest.mark.parametrize("second", ["same rows", "another feature", "another width"])
def test_other_products_stay(second: str, tmp_path: Path) -> None:
    import tensorflow as tf

    held = [tf.Variable(table(8, 4, 0)), tf.Variable(table(8, 4, 1)), tf.Variable(table(8, 1, 2))]

    def serve(ids: Any, others: Any) -> Any:
        rows = tf.gather(held[0], ids)
        factor = {
            "same rows": lambda: rows,
            "another feature": lambda: tf.gather(held[1], others),
            "another width": lambda: tf.gather(held[2], tf.math.floormod(ids, 7)),
        }
        return {"rows": rows * factor[second]()}

    specs = [tf.TensorSpec([None], tf.int64, name=name) for name in ("ids", "others")]
    made = fused(export_function(tmp_path / "in", serve, specs, held=held))
    assert made.ops() & {"Mul", "Square"}
    assert not any(column.factors for _, plan in made.groups for column in plan.columns)


@pytest.mark.parametrize(
    "numbers",
    {
        # The sign is shifted in.
        "int64": lambda tf, ids: tf.bitwise.bitwise_and(tf.bitwise.right_shift(ids, 62), 7),
        # The remainder of a signed number differs.
        "signed": lambda tf, ids: tf.math.floormod(tf.bitcast(mixed(tf, ids), tf.int64), 8),
        # Bits in another order.
        "order": lambda tf, ids: every_second(tf, tf.bitcast(ids, tf.uint64), 1, [2, 1, 0]),
        # No mask of the lowest bits.
        "mask": lambda tf, ids: tf.bitcast(
            tf.bitwise.bitwise_and(tf.bitcast(ids, tf.uint64), tf.constant(5, tf.uint64)), tf.int64
        ),
        # Truncation towards zero.
        "truncated": lambda tf, ids: tf.math.abs(tf.truncatemod(ids, tf.constant(8, tf.int64))),
    }.items(),
    ids=lambda item: item[0],
)
def test_other_arithmetic_stays_and_its_numbers_are_a_feature(numbers: Any, tmp_path: Path) -> None:
    import tensorflow as tf

    made = fuse(tmp_path, lambda ids, held: tf.gather(held[0], numbers[1](tf, ids)), tables=1)
    assert made.ops() != set()
    assert made.features != ["serving_default_ids"]
    made.check({"ids": WORDS})


@pytest.mark.parametrize(
    "numbers",
    {
        "remainder": lambda tf, ids: tf.math.floormod(ids + 5, 8),
        "reshaped": lambda tf, ids: tf.math.floormod(tf.reshape(ids + 5, [-1]), 8),
        "cast": lambda tf, ids: tf.math.floormod(tf.cast(ids + 5, tf.int64), 7),
        "quotient": lambda tf, ids: tf.math.abs(tf.math.floordiv(tf.cast(ids - 7, tf.int64), 1 << 30)),
        "clip": lambda tf, ids: tf.clip_by_value(ids + 5 - 3, 0, 7),
        "text": lambda tf, ids: tf.strings.to_hash_bucket_fast(tf.strings.as_string(ids + 5), 8),
    }.items(),
    ids=lambda item: item[0],
)
def test_sums_of_32_bits_overflow_as_in_tensorflow(numbers: Any, tmp_path: Path) -> None:
    import tensorflow as tf

    made = fuse(tmp_path, lambda ids, held: tf.gather(held[0], numbers[1](tf, ids)), tables=1, dtype="int32")
    most, least = (1 << 31) - 1, -(1 << 31)
    made.check({"ids": np.array([0, 3, -3, most, most - 4, most - 5, least, least + 6, least + 7], np.int32)})
