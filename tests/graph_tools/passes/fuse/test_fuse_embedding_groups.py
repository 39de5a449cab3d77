# SPDX-License-Identifier: Apache-2.0
"""Lookups of a model, and what joins their rows, become one node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.plans.embedding_parts import (
    Add,
    Bucketize,
    Clip,
    Copy,
    FastHash,
    Key,
    Linear,
    Lookup,
    Mod,
    StrongHash,
    ToString,
    WrapNegative,
)
from helpers.graph_tools.group_checks import Fused, fused, strings
from helpers.models.idiom_models import export_function, table

_LARGEST = (1 << 63) - 1


def spec(name: str, dtype: str = "int64", *sizes: int | None) -> Any:
    import tensorflow as tf

    return tf.TensorSpec([None, *sizes], dtype, name=name)


def variable(rows: int, dim: int, seed: int = 0) -> Any:
    import tensorflow as tf

    return tf.Variable(table(rows, dim, seed))


def fuse_function(path: Path, function: Callable[..., Any], specs: list[Any], **held: Any) -> Fused:
    return fused(export_function(path / "in", function, specs, **held))


def look_up_ids(path: Path, made: Callable[[Any], Any], dtype: str = "int64", rows: int = 10) -> Fused:
    """Fuse `gather(weights, made(ids))`."""
    import tensorflow as tf

    weights = variable(rows, 4)
    return fuse_function(
        path, lambda ids: {"rows": tf.gather(weights, made(ids))}, [spec("ids", dtype)], weights=weights
    )


def test_rows_and_numbers_become_one_output(tmp_path: Path) -> None:
    import tensorflow as tf

    held = [variable(10, 4), variable(20, 3, 1)]

    def serve(a: Any, b: Any, x: Any, age: Any) -> dict[str, Any]:
        columns = [x, tf.gather(held[0], a), tf.expand_dims(age, 1), tf.gather(held[1], tf.squeeze(b, 1))]
        return {"columns": tf.concat(columns, 1)}

    specs = [spec("a"), spec("b", "int32", 1), spec("x", "float32", 2), spec("age", "float32")]
    made = fuse_function(tmp_path, serve, specs, held=held)
    assert made.result.applied == 1
    assert made.ops() == set()
    assert made.features == ["serving_default_x", "serving_default_a", "serving_default_age", "serving_default_b"]
    assert made.plan.columns == (Copy(0, 0, 0, 2), Lookup(0, 0, 0, 2), Copy(2, 0, 6, 1), Lookup(1, 1, 0, 7))
    assert not made.model.variables
    assert [one.absent_key for one in made.tables] == ["error", "error"]
    feeds = {
        "a": np.array([0, 9, 3]), "b": np.array([[19], [0], [7]], np.int32),
        "x": table(3, 2), "age": np.array([1, 2, 3], np.float32),
    }  # fmt: skip
    made.check(
        feeds, {key: value[:1] for key, value in feeds.items()}, {key: value[:0] for key, value in feeds.items()}
    )


@pytest.mark.parametrize("ids", [[10], [0, -1]])
def test_request_for_a_missing_row_fails_as_before(ids: list[int], tmp_path: Path) -> None:
    look_up_ids(tmp_path, lambda x: x).refuses({"ids": np.array(ids)})


STEPS: dict[str, tuple[str, Callable[[Any, Any], Any], tuple[Any, ...]]] = {
    "fast hash": ("string", lambda tf, x: tf.strings.to_hash_bucket_fast(x, 10), (FastHash(10),)),
    "strong hash": (
        "string", lambda tf, x: tf.strings.to_hash_bucket_strong(x, 10, [3, -4]), (StrongHash(10, (3, -4)),)
    ),
    "hash of digits": (
        "int64", lambda tf, x: tf.strings.to_hash_bucket_fast(tf.strings.as_string(x), 10), (ToString(), FastHash(10))
    ),
    "remainder": ("int64", lambda tf, x: tf.math.floormod(x, 10), (Mod(10),)),
    "offset": ("int64", lambda tf, x: tf.math.floormod(x, 7) + 3, (Mod(7), Add(3))),
    "difference": ("int64", lambda tf, x: tf.math.floormod(x - 2, 10), (Add(-2), Mod(10))),
    "bounds": ("int64", lambda tf, x: tf.raw_ops.ClipByValue(t=x, clip_value_min=1, clip_value_max=8), (Clip(1, 8),)),
    "least": ("int64", lambda tf, x: tf.minimum(tf.maximum(x, 0), 9), (Clip(0, _LARGEST), Clip(-_LARGEST - 1, 9))),
    "cast": ("int32", lambda tf, x: tf.math.floormod(tf.cast(x, tf.int64), 10), (Mod(10),)),
    "buckets": ("float32", lambda tf, x: tf.raw_ops.Bucketize(input=x, boundaries=[-1.0, 0.5, 3.0]),
                (Bucketize((-1.0, 0.5, 3.0)),)),
}  # fmt: skip


@pytest.mark.parametrize("case", STEPS)
def test_group_computes_ids_from_features(case: str, tmp_path: Path) -> None:
    import tensorflow as tf

    dtype, make, steps = STEPS[case]
    made = look_up_ids(tmp_path, lambda x: make(tf, x), dtype)
    assert made.plan.keys == (Key(0, steps=steps),)
    assert made.features == ["serving_default_ids"]
    if case == "strong hash":
        return  # NumPy has no SipHash; the kernel's test compares it
    values: dict[str, Any] = {
        "string": strings("", "a", "ü", b"\xff\0x"),
        "float32": np.array([-5, -1, 0.5, np.float32(3.0), 9], np.float32),
    }
    made.check({"ids": values[dtype] if dtype in values else np.array([0, 3, 9, 123456, -7], dtype)})


@pytest.mark.parametrize(
    ("dtype", "make"),
    [
        ("int64", lambda tf, x: tf.cast(x, tf.int32)),  # beyond 32 bits it is another id
        ("float32", lambda tf, x: tf.cast(x, tf.int64)),
        ("int64", lambda tf, x: tf.bitwise.bitwise_and(x, 7)),
        ("int32", lambda tf, x: tf.math.floormod(x * 3, 10)),
    ],
)
def test_unknown_preprocessing_stays_before_the_group(
    dtype: str, make: Callable[[Any, Any], Any], tmp_path: Path
) -> None:
    import tensorflow as tf

    made = look_up_ids(tmp_path, lambda x: make(tf, x), dtype)
    assert made.ops() & {"Cast", "BitwiseAnd", "Mul"}
    made.check({"ids": np.array([0, 3, 9], dtype)})


def test_negative_ids_still_count_from_the_end(tmp_path: Path) -> None:
    import tensorflow as tf

    made = look_up_ids(tmp_path, lambda x: tf.where(x < 0, x + 10, x))
    assert made.plan.keys == (Key(0, steps=(WrapNegative(10),)),)
    made.check({"ids": np.array([-10, -1, 0, 9])})
    made.refuses({"ids": np.array([-11])})
    made.refuses({"ids": np.array([10])})


MASKS: dict[str, tuple[str, Callable[[Any, Any, Any], Any], dict[str, Any]]] = {
    "missing text": (
        "string",
        lambda tf, w, x: tf.where((x != "")[:, None], tf.gather(w, tf.strings.to_hash_bucket_fast(x, 10)), 0.0),
        {"ignore": "", "steps": (FastHash(10),)},
    ),
    "missing number": (
        "int64", lambda tf, w, x: tf.where((x != 3)[:, None], tf.gather(w, x), tf.zeros([4])), {"ignore": 3}
    ),
    "negative": (
        "int64",
        lambda tf, w, x: tf.where((x >= 0)[:, None], tf.gather(w, tf.maximum(x, 0)), 0.0),
        {"ignore_negative": True},
    ),
    "both": (
        "int64",
        lambda tf, w, x: tf.where(((x > -1) & (x != 5))[:, None], tf.gather(w, tf.maximum(x, np.int64(0))), 0.0),
        {"ignore": 5, "ignore_negative": True},
    ),
    "repaired": (
        "int64",
        lambda tf, w, x: tf.where((x != -1)[:, None], tf.gather(w, tf.where(x != -1, x, np.int64(0))), 0.0),
        {"ignore": -1},
    ),
    "factor": ("int64", lambda tf, w, x: tf.gather(w, x) * tf.cast(x != 3, tf.float32)[:, None], {"ignore": 3}),
}  # fmt: skip


@pytest.mark.parametrize("case", MASKS)
def test_marks_of_missing_values_give_zeros(case: str, tmp_path: Path) -> None:
    import tensorflow as tf

    dtype, make, fields = MASKS[case]
    weights = variable(10, 4)
    made = fuse_function(tmp_path, lambda ids: {"y": make(tf, weights, ids)}, [spec("ids", dtype)], weights=weights)
    assert made.plan.keys == (Key(0, **fields),)
    assert made.ops() == set()
    values = {"missing number": [3, 0, 9], "factor": [3, 0, 9], "negative": [-7, 0, 9], "both": [-7, 5, 0, 9],
              "repaired": [-1, 0, 9]}  # fmt: skip
    ids = strings("", "a", " ") if dtype == "string" else np.array(values[case])
    made.check({"ids": ids}, {"ids": ids[:1]})


def test_mask_of_another_feature_is_not_fused(tmp_path: Path) -> None:
    import tensorflow as tf

    weights = variable(10, 4)

    def serve(ids: Any, other: Any) -> dict[str, Any]:
        return {"y": tf.where((other != 0)[:, None], tf.gather(weights, ids), 0.0)}

    made = fuse_function(tmp_path, serve, [spec("ids"), spec("other")], weights=weights)
    assert "SelectV2" in made.ops()
    assert ["mask" in why for _, why in made.result.refused] == [True]


def test_wide_part_becomes_one_sum(tmp_path: Path) -> None:
    import tensorflow as tf

    held = [variable(10, 1, i) for i in range(3)]
    kernel, bias = tf.Variable(table(2, 1, 7)), tf.Variable([0.25])

    def serve(a: Any, b: Any, x: Any) -> dict[str, Any]:
        wide = [tf.gather(held[0], a), tf.gather(held[1], b), tf.gather(held[2], a), tf.matmul(x, kernel)]
        return {"wide": tf.nn.bias_add(tf.add_n(wide), bias), "deep": tf.concat([tf.gather(held[0], a), x], 1),
                "all": tf.concat([x, tf.gather(held[1], b)], 1)}  # fmt: skip

    specs = [spec("a"), spec("b"), spec("x", "float32", 2)]
    made = fuse_function(tmp_path, serve, specs, held=held, kernel=kernel, bias=bias)
    outputs = {output.width: number for number, output in enumerate(made.plan.outputs)}
    wide = [column for column in made.plan.columns if column.output == outputs[1]]
    assert made.plan.outputs[outputs[1]].initial == (0.25,)
    assert [type(one) for one in wide] == [Lookup, Lookup, Lookup, Linear]
    assert all(one.accumulate for one in wide)
    feeds = {"a": np.array([0, 9]), "b": np.array([4, 4]), "x": table(2, 2)}
    made.check(feeds, exact=False)


def test_lookups_in_a_sum_with_other_numbers_are_fused(tmp_path: Path) -> None:
    import tensorflow as tf

    held = [variable(10, 2, i) for i in range(2)]
    kernel = tf.Variable(table(3, 2, 7))

    def serve(a: Any, b: Any, x: Any) -> dict[str, Any]:
        wide = tf.add_n([tf.gather(held[0], a), tf.nn.relu(tf.matmul(x, kernel)), tf.gather(held[1], b)])
        return {"wide": wide, "deep": tf.concat([tf.gather(held[0], a), tf.gather(held[1], b), x], 1)}

    made = fuse_function(tmp_path, serve, [spec("a"), spec("b"), spec("x", "float32", 3)], held=held, kernel=kernel)
    (added,) = made.model.graph.of("AddN")
    assert len(added.inputs) == 2
    assert sorted(output.width for output in made.plan.outputs) == [2, 7]
    made.check({"a": np.array([0, 9]), "b": np.array([4, 4]), "x": table(2, 3)})


def test_stacked_fields_become_one_output(tmp_path: Path) -> None:
    import tensorflow as tf

    held = [variable(10, 4, i) for i in range(3)]

    def serve(a: Any, b: Any, c: Any) -> dict[str, Any]:
        fields = tf.stack([tf.gather(w, ids) for w, ids in zip(held, (a, b, c), strict=True)], axis=1)
        return {"fields": fields, "flat": tf.reshape(fields, [-1, 12]), "squares": tf.reduce_sum(fields**2, 1)}

    made = fuse_function(tmp_path, serve, [spec("a"), spec("b"), spec("c")], held=held)
    assert [output.width for output in made.plan.outputs] == [12]
    made.check({"a": np.array([0, 9]), "b": np.array([4, 4]), "c": np.array([2, 1])})


def test_features_with_several_values_are_pooled(tmp_path: Path) -> None:
    import tensorflow as tf

    weights = variable(10, 4)

    def serve(ids: Any, more: Any) -> dict[str, Any]:
        rows = tf.gather(weights, ids)
        masked = tf.where((more != 0)[..., None], tf.gather(weights, more), 0.0)
        count = tf.reduce_sum(tf.cast(more != 0, tf.float32), 1, keepdims=True)
        means = [tf.reduce_mean(tf.gather(weights, ids + 2), 1), tf.math.divide_no_nan(tf.reduce_sum(masked, 1), count)]
        return {
            "flat": tf.reshape(rows, [-1, 12]),
            "sum": tf.reduce_sum(tf.gather(weights, ids + 1), 1),
            "means": tf.concat(means, 1),
        }

    made = fuse_function(tmp_path, serve, [spec("ids", "int64", 3), spec("more", "int64", 5)], weights=weights)
    combiners = {column.combiner for column in made.plan.columns if isinstance(column, Lookup)}
    assert combiners == {None, "sum", "mean"}
    assert any(key.ignore == 0 for key in made.plan.keys)
    assert len(made.tables) == 1
    ids = np.array([[0, 1, 2], [7, 7, 0]])
    made.check({"ids": ids, "more": np.array([[0, 0, 0, 0, 0], [1, 0, 2, 3, 0]])}, exact=False)


def test_histories_become_sequences(tmp_path: Path) -> None:
    import tensorflow as tf

    items, cates = variable(10, 4), variable(5, 3, 1)

    def serve(items_seen: Any, cates_seen: Any, item: Any) -> dict[str, Any]:
        history = tf.concat([tf.gather(items, items_seen), tf.gather(cates, cates_seen)], -1)
        bag = tf.reduce_sum(tf.gather(cates, cates_seen + 1), 1)
        return {"history": history, "item": tf.concat([tf.gather(items, item), bag], 1)}

    specs = [spec("items_seen", "int64", None), spec("cates_seen", "int64", None), spec("item")]
    made = fuse_function(tmp_path, serve, specs, items=items, cates=cates)
    assert sorted((output.width, output.sequence is not None) for output in made.plan.outputs) == [
        (7, False),
        (7, True),
    ]
    seen = np.array([[0, 1, 2], [9, 9, 0]])
    made.check({"items_seen": seen, "cates_seen": seen % 4, "item": np.array([1, 2])}, exact=False)


def test_inputs_of_one_dimension_and_tables_of_any_shape_are_fused(tmp_path: Path) -> None:
    import tensorflow as tf

    bias, cube = tf.Variable(table(10, 1)[:, 0]), tf.Variable(table(10, 6).reshape(10, 2, 3))

    def serve(ids: Any) -> dict[str, Any]:
        return {"bias": tf.gather(bias, ids), "cube": tf.gather(cube, ids)}

    made = fuse_function(tmp_path, serve, [spec("ids")], bias=bias, cube=cube)
    assert sorted(output.width for output in made.plan.outputs) == [1, 6]
    made.check({"ids": np.array([0, 9, 9])})
