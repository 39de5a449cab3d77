# SPDX-License-Identifier: Apache-2.0
"""Tables of live models know the source of each row, and keep what a delta may change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.model import Model
from graph_tools.options import CutOptions
from graph_tools.readers import read_model
from graph_tools.store.spec import TableSpec
from helpers.graph_tools.group_checks import strings
from helpers.graph_tools.live_checks import followed, fused
from helpers.models.idiom_models import KEY, export_function, export_graph, table
from helpers.models.sparse_table_models import NAME, lookup_model, make_table

WORDS = ("apple", "pear", "", "plum", "fig")
VARIABLE = "weights"


def tables_of(model: Model, **options: Any) -> list[TableSpec]:
    """Fuse a model that follows its source, and return its tables."""
    followed(model, partial(fused, options=CutOptions(keep_graph_names=True, **options)))
    return [model.embedding_tables[node.name] for node in model.graph.of("RecEmbeddingTable")]


def words_model(path: Path, values: list[int], default: int, rows: int = 9) -> Model:
    """Look up words in a vocabulary, and their numbers in a variable."""
    import tensorflow as tf

    initializer = tf.lookup.KeyValueTensorInitializer(list(WORDS), np.array(values, np.int64))
    held = tf.lookup.StaticHashTable(initializer, default)
    weights = tf.Variable(table(rows, 4), name=VARIABLE)
    specs = [tf.TensorSpec([None], tf.string, name="x")]
    export_function(
        path / "in", lambda x: {"rows": tf.gather(weights, held.lookup(x))}, specs, weights=weights, held=held
    )
    return read_model(path / "in")


@pytest.mark.parametrize("values", [[0, 1, 2, 3, 4], [2, 3, 4, 5, 6], [4, 0, 8, 2, 6], [1, 1, 0, 1, 8]])
def test_rows_of_a_vocabulary_are_rows_of_the_variable(values: list[int], tmp_path: Path) -> None:
    (spec,) = tables_of(words_model(tmp_path, values, 7))
    origin = spec.origin
    assert origin is not None
    assert (origin.source.key_kind, origin.source.rows) == ("row_number", 9)
    numbers = np.arange(5) + origin.first_row if origin.rows is None else origin.rows
    np.testing.assert_array_equal(spec.rows.read(), table(9, 4)[numbers])
    assert spec.default_rows is not None
    assert origin.default_rows == (7,)
    np.testing.assert_array_equal(spec.default_rows.read(), table(9, 4)[[7]])
    by_word = dict(zip(spec.keys.read().tolist() if spec.keys is not None else (), numbers.tolist(), strict=True))
    assert by_word == {word.encode(): value for word, value in zip(WORDS, values, strict=True)}


def test_default_row_of_zeros_stays_since_it_may_change(tmp_path: Path) -> None:
    model = words_model(tmp_path, [0, 1, 2, 3, 4], 5, rows=6)
    (name,) = model.variables
    held = model.variables[name].read().copy()
    held[5] = 0
    model.variables[name].read()[...] = held
    (spec,) = tables_of(model)
    assert (spec.absent_key, spec.origin and spec.origin.default_rows) == ("default", (5,))


KEYS: dict[str, tuple[Callable[[], np.ndarray], str]] = {
    "dense": (lambda: np.arange(10, 40), "int64"),
    "wide": (lambda: np.array([5, -3, 1 << 40, 7, 0]), "int64"),
    "words": (lambda: strings("a", "b", "", "ü", "e"), "string"),
}


@pytest.mark.parametrize("absent", [None, 1, 3])
@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_a_training_system_stay_keys(kind: str, absent: int | None) -> None:
    keys, key_kind = KEYS[kind][0](), KEYS[kind][1]
    if absent == 3 and key_kind == "string":
        pytest.skip("string keys have one default row")
    rows = table(len(keys), 4)
    rows[1] = 0
    defaults = None if absent is None else np.zeros((absent, 4), np.float32)
    model = lookup_model(make_table(keys, rows, defaults))
    model.signatures[KEY].inputs["keys"] = replace(model.signatures[KEY].inputs["keys"], shape=(None,))
    model.graph.set_attr(model.graph["keys"], "shape", (None,))
    (spec,) = tables_of(model)
    origin = spec.origin
    assert origin is not None
    assert (origin.source.name, origin.source.key_kind, origin.rows) == (NAME, key_kind, None)
    assert spec.index_kind == key_kind
    # A zero row is dropped only if absent keys always read zeros.
    assert spec.rows.shape[0] == len(keys) - (absent is None)
    assert origin.default_rows == tuple(range(absent or 0))
    assert (spec.default_rows is None) == (absent is None)


def test_equal_and_unreachable_rows_keep_their_numbers(tmp_path: Path) -> None:
    import tensorflow as tf

    weights = tf.Variable(np.repeat(table(5, 64), 400, axis=0), name=VARIABLE)
    specs = [tf.TensorSpec([None], tf.int64, name="x")]
    export_function(tmp_path / "in", lambda x: {"rows": tf.gather(weights, x % 1000)}, specs, weights=weights)
    (spec,) = tables_of(read_model(tmp_path / "in"))
    assert spec.index_kind == "direct"
    assert spec.origin is not None
    assert (spec.origin.first_row, spec.origin.rows) == (0, None)
    assert spec.origin.source.rows == 2000


@pytest.mark.parametrize("row_type", ["int8", "bf16"])
def test_rows_of_fewer_bits_keep_their_source(row_type: str, tmp_path: Path) -> None:
    import tensorflow as tf

    weights = tf.Variable(table(50, 16), name=VARIABLE)
    specs = [tf.TensorSpec([None], tf.int64, name="x")]
    export_function(tmp_path / "in", lambda x: {"rows": tf.gather(weights, x)}, specs, weights=weights)
    model = read_model(tmp_path / "in")
    (name,) = model.variables
    (spec,) = tables_of(model, embedding_dtype=row_type)
    assert spec.row_type == row_type
    assert spec.origin is not None
    assert (spec.origin.source.name, spec.origin.source.key_kind) == (name, "row_number")


def test_parts_of_a_variable_stay_separate(tmp_path: Path) -> None:
    def build(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        x = v1.placeholder(v1.int64, [None], name="x")
        weights = v1.get_variable("w", [20, 4], partitioner=v1.fixed_size_partitioner(2))
        return {"x": x}, {"y": v1.nn.embedding_lookup(weights, x, partition_strategy="div")}

    made = tables_of(read_model(export_graph(tmp_path / "in", build)))
    origins = [spec.origin for spec in made if spec.origin is not None]
    assert {origin.source.name for origin in origins} <= {"w/part_0", "w/part_1"}
