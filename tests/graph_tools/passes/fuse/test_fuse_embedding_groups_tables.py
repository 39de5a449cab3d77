# SPDX-License-Identifier: Apache-2.0
"""Hash tables, vocabularies and tables that `cut` stores in another form become tables with keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.options import CutOptions
from graph_tools.passes.cut import run_passes, serving_passes
from graph_tools.plans.embedding_parts import FastHash, Key
from graph_tools.writer import write_saved_model
from helpers.graph_tools.group_checks import Fused, fuse_model, fused, strings
from helpers.models.idiom_models import KEY, export_function, table
from helpers.models.sparse_table_models import lookup_model, make_table, reference

WORDS = ("apple", "pear", "", "plum", "fig")


def fuse_words(
    path: Path,
    numbers: Callable[[Any, Any, Any], Any],
    values: list[int],
    default: int,
    rows: int = 9,
    dtype: str = "string",
) -> Fused:
    """Fuse `gather(weights, numbers(tf, table, x))` with a hash table from words to `values`."""
    import tensorflow as tf

    keys: Any = list(WORDS) if dtype == "string" else np.array([7, -1, 1 << 40, 0, 5], dtype)
    initializer = tf.lookup.KeyValueTensorInitializer(keys, np.array(values, np.int64))
    held = tf.lookup.StaticHashTable(initializer, default)
    weights = tf.Variable(table(rows, 4))

    def serve(x: Any) -> dict[str, Any]:
        return {"rows": tf.gather(weights, numbers(tf, held, x))}

    specs = [tf.TensorSpec([None], dtype, name="x")]
    return fused(export_function(path / "in", serve, specs, weights=weights, held=held))


def find(tf: Any, held: Any, x: Any) -> Any:
    return held.lookup(x)


ABSENT = strings("apple", "nothing", "fig", "", "apple ")


@pytest.mark.parametrize("values", [[0, 1, 2, 3, 4], [2, 3, 4, 5, 6], [4, 0, 8, 2, 6], [1, 1, 0, 1, 8]])
def test_vocabulary_and_rows_become_one_table(values: list[int], tmp_path: Path) -> None:
    made = fuse_words(tmp_path, find, values, 7)
    (held,) = made.tables
    assert (held.index_kind, held.absent_key, held.rows.shape, held.default_rows.shape) == (
        "string",
        "default",
        (5, 4),
        (1, 4),
    )
    assert made.ops() == set()
    assert not made.model.hash_tables
    assert not made.model.init
    made.check({"x": ABSENT})


def test_request_for_a_word_without_a_row_fails_as_before(tmp_path: Path) -> None:
    made = fuse_words(tmp_path, find, [0, 1, 2, 3, 4], -1)
    made.check({"x": strings("fig", "apple")})
    made.refuses({"x": ABSENT})


def test_masked_absent_words_give_zeros(tmp_path: Path) -> None:
    import tensorflow as tf

    held = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(list(WORDS), np.arange(5, dtype=np.int64)), -1)
    weights = tf.Variable(table(6, 4))

    def serve(x: Any) -> dict[str, Any]:
        found = held.lookup(x)
        rows = tf.gather(weights, tf.where(found >= 0, found, np.int64(0)))
        return {
            "rows": tf.where((found >= 0)[:, None], rows, 0.0),
            "other": tf.gather(weights, tf.maximum(found, 0)),
        }

    made = fused(
        export_function(tmp_path / "in", serve, [tf.TensorSpec([None], "string", name="x")], weights=weights, held=held)
    )
    assert sorted(one.absent_key for one in made.tables) == ["error", "zeros"]  # the other's numbers are a feature
    made.check({"x": ABSENT})


OUT_OF_VOCABULARY: dict[str, tuple[str, Callable[[Any, Any, Any], Any]]] = {
    "hashed words": (
        "string",
        lambda tf, held, x: tf.where(
            tf.equal(held.lookup(x), -1), tf.strings.to_hash_bucket_fast(x, 3) + np.int64(5), held.lookup(x)
        ),
    ),
    "hashed first": (
        "string",
        lambda tf, held, x: tf.where(
            held.lookup(x) < 0, tf.strings.to_hash_bucket_fast(x, 3), held.lookup(x) + np.int64(3)
        ),
    ),
    "remainders": (
        "int64",
        lambda tf, held, x: tf.where(held.lookup(x) != -1, held.lookup(x), tf.math.floormod(x, 4) + 5),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OUT_OF_VOCABULARY)
def test_buckets_for_unknown_words_become_default_rows(case: str, tmp_path: Path) -> None:
    dtype, numbers = OUT_OF_VOCABULARY[case]
    made = fuse_words(tmp_path, numbers, [0, 1, 2, 3, 4], -1, dtype=dtype)
    (held,) = made.tables
    assert held.absent_key == "default"
    assert held.default_rows.shape[0] > 2
    assert made.ops() == set()
    made.check({"x": ABSENT if dtype == "string" else np.array([7, -1, -2, -9, 12345, 1 << 40, 5])})


def test_other_hashes_of_unknown_words_stay_before_the_group(tmp_path: Path) -> None:
    def numbers(tf: Any, held: Any, x: Any) -> Any:
        hashed = tf.strings.to_hash_bucket_fast(tf.strings.as_string(x), 4) + np.int64(5)
        return tf.where(held.lookup(x) < 0, hashed, held.lookup(x))

    made = fuse_words(tmp_path, numbers, [0, 1, 2, 3, 4], -1, dtype="int64")
    assert "LookupTableFindV2" in made.ops()
    assert made.tables[0].index_kind == "direct"
    made.check({"x": np.array([7, -1, -2, 0])})


def test_hash_table_with_rows_beyond_the_variable_stays(tmp_path: Path) -> None:
    made = fuse_words(tmp_path, find, [0, 1, 2, 3, 11], 0)
    assert "LookupTableFindV2" in made.ops()
    assert any("beyond the 9 rows" in why for _, why in made.result.refused)


def test_vocabulary_file_becomes_a_table(tmp_path: Path) -> None:
    import tensorflow as tf

    file = tmp_path / "words.txt"
    file.write_bytes(b"apple\npear\r\n plum\xff")
    initializer = tf.lookup.TextFileInitializer(
        str(file), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
    )
    held, weights = tf.lookup.StaticHashTable(initializer, 4), tf.Variable(table(5, 4))
    specs = [tf.TensorSpec([None], "string", name="x")]
    source = export_function(
        tmp_path / "in", lambda x: {"rows": tf.gather(weights, held.lookup(x))}, specs, weights=weights, held=held
    )
    made = fused(source)
    assert made.tables[0].index_kind == "string"
    assert not made.model.assets
    made.check({"x": strings("apple", "pear", "pear\r", "", b" plum\xff", "plum")})


@pytest.mark.parametrize("oov", [1, 3])
@pytest.mark.parametrize("kind", ["StringLookup", "IntegerLookup", "Hashing"])
def test_keras_preprocessing_layers_are_fused(kind: str, oov: int, tmp_path: Path) -> None:
    import keras

    text = kind == "StringLookup"
    inputs = keras.Input((1,), dtype="string" if text else "int64", name="x")
    if kind == "Hashing":
        layer = keras.layers.Hashing(num_bins=12)
    else:
        words: Any = ["a", "b", "c"] if text else [10, 20, 30]
        layer = getattr(keras.layers, kind)(vocabulary=words, num_oov_indices=oov)
    rows = keras.layers.Embedding(12, 4)(layer(inputs))
    keras.Model(inputs, keras.layers.Flatten()(rows)).export(str(tmp_path / "in"), verbose=False)
    made = fused(tmp_path / "in")
    x = strings("a", "c", "zz", "", "y")[:, None] if text else np.array([[10], [30], [7], [-8], [11]])
    assert made.ops() == set()
    made.check({next(iter(made.model.signatures[KEY].inputs)): x})


def _converted(path: Path, keys: np.ndarray, absent: np.ndarray | None, **options: Any) -> tuple[Fused, Any]:
    """Cut and fuse a table of another system; rows of which one in three is zero."""
    rows = table(len(keys), 5)
    rows[::3] = 0
    held = make_table(keys, rows, absent)
    model = lookup_model(held)
    model.signatures[KEY].inputs["keys"] = replace(model.signatures[KEY].inputs["keys"], shape=(None,))
    model.graph.set_attr(model.graph["keys"], "shape", (None,))
    run_passes(model, serving_passes(CutOptions(keep_graph_names=True, **options)))
    write_saved_model(model, path / "plain")
    return Fused(path / "plain", model, fuse_model(model)), held


SPARSE_KEYS = np.array([5, -(1 << 62), 1 << 62, 17, 0, 123456789, -4, 99], np.int64)
DENSE_KEYS = np.arange(40, 64, dtype=np.int64)
ABSENT_ROWS = {"zeros": None, "one row": table(1, 5, 3), "powers": table(8, 5, 3), "rows by remainder": table(7, 5, 3)}


@pytest.mark.parametrize("absent", ABSENT_ROWS)
@pytest.mark.parametrize(
    "keys", [SPARSE_KEYS, DENSE_KEYS, np.append(DENSE_KEYS[::3], 7)], ids=["hashed", "dense", "gaps"]
)
def test_tables_of_other_systems_keep_their_rows_of_absent_keys(keys: np.ndarray, absent: str, tmp_path: Path) -> None:
    made, held = _converted(tmp_path, keys, ABSENT_ROWS[absent])
    asked = np.concatenate([keys, [1, 2, -1, -(1 << 63), (1 << 63) - 1, 39, 64, 70]])
    assert len(made.model.graph.of("RecEmbeddingGroup")) == 1
    made.check({"keys": asked})
    assert reference(held, asked).shape == (len(asked), 5)


def test_string_keys_of_another_system_are_looked_up(tmp_path: Path) -> None:
    made, _ = _converted(tmp_path, strings("a", "b", "", "ü", "e"), table(1, 5, 3))
    assert made.tables[0].index_kind == "string"
    made.check({"keys": strings("a", "x", "", "ü", "b")})


@pytest.mark.parametrize("row_type", ["int8", "int4", "bf16", "fp16"])
@pytest.mark.parametrize("dim", [16, 7])
def test_rows_keep_the_type_in_which_cut_stored_them(row_type: str, dim: int, tmp_path: Path) -> None:
    import tensorflow as tf

    weights = tf.Variable(table(50, dim))
    specs = [tf.TensorSpec([None], "int64", name="x")]
    source = export_function(tmp_path / "in", lambda x: {"rows": tf.gather(weights, x)}, specs, weights=weights)
    made = fused(source, embedding_dtype=row_type)
    assert made.tables[0].row_type == row_type
    assert made.ops() == set()
    assert not made.model.variables
    made.check({"x": np.array([0, 49, 7])})
    made.refuses({"x": np.array([50])})


@pytest.mark.parametrize("row_type", ["fp32", "bf16", "int8"])
def test_sum_with_a_layer_over_looked_up_rows_stays_outside_the_group(row_type: str, tmp_path: Path) -> None:
    import tensorflow as tf

    deep, wide, kernel = tf.Variable(table(50, 16)), tf.Variable(table(50, 1)), tf.constant(table(16, 1))

    def serve(x: Any) -> dict[str, Any]:
        return {"rows": tf.gather(deep, x), "score": tf.nn.relu(tf.gather(deep, x)) @ kernel + tf.gather(wide, x)}

    specs = [tf.TensorSpec([None], "int64", name="x")]
    source = export_function(tmp_path / "in", serve, specs, deep=deep, wide=wide)
    made = fused(source, embedding_dtype=row_type)
    assert {"MatMul", "Relu"} <= made.ops()
    made.check({"x": np.array([0, 49, 7])}, exact=False)


def test_equal_rows_stay_shared(tmp_path: Path) -> None:
    import tensorflow as tf

    weights = tf.Variable(np.repeat(table(5, 64), 400, axis=0))
    specs = [tf.TensorSpec([None], "int64", name="x")]
    source = export_function(tmp_path / "in", lambda x: {"rows": tf.gather(weights, x)}, specs, weights=weights)
    made = fused(source)
    assert made.tables[0].rows.shape == (5, 64)
    assert made.tables[0].index_kind == "int64"
    made.check({"x": np.array([0, 1999, 800])})
    made.refuses({"x": np.array([-1])})


def test_hashes_of_words_are_looked_up_in_a_table_with_keys(tmp_path: Path) -> None:
    def numbers(tf: Any, held: Any, x: Any) -> Any:
        return held.lookup(tf.strings.to_hash_bucket_fast(x, 8))

    import tensorflow as tf

    held = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(np.arange(0, 8, 2), np.array([3, 1, 2, 0])), 4)
    weights = tf.Variable(table(5, 4))
    specs = [tf.TensorSpec([None], "string", name="x")]
    source = export_function(
        tmp_path / "in", lambda x: {"rows": tf.gather(weights, numbers(tf, held, x))}, specs, weights=weights, held=held
    )
    made = fused(source)
    assert made.plan.keys == (Key(0, steps=(FastHash(8),)),)
    assert made.tables[0].index_kind == "int64"
    made.check({"x": ABSENT})
