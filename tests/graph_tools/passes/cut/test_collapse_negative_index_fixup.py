# SPDX-License-Identifier: Apache-2.0
"""Gathers from a variable become one node; the repair of negative ids is removed if no id can be negative."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.passes.cut.collapse_negative_index_fixup import CollapseNegativeIndexFixup
from helpers.models.idiom_models import assert_same, export_function, ops, passed, table

REPAIR = {"Less", "AddV2", "SelectV2"}


def fixed(ids: Any, rows: int) -> Any:
    """Repair negative ids as Keras 3 does."""
    import tensorflow as tf

    return tf.where(ids < 0, ids + rows, ids)


def export(path: Path, made: Callable[[Any], Any], dtype: str, read: bool = True, axis: int = 0) -> Path:
    import tensorflow as tf

    weights = tf.Variable(table(10, 6))

    def serve(ids: Any) -> dict[str, Any]:
        whole = weights.read_value() if read else weights
        return {"rows": tf.gather(whole, made(ids), axis=axis)}

    return export_function(path, serve, [tf.TensorSpec([None], dtype, name="ids")], weights=weights)


@pytest.mark.parametrize("read", [True, False])
def test_ids_that_may_be_negative_keep_their_repair(read: bool, tmp_path: Path) -> None:
    source = export(tmp_path / "in", lambda ids: fixed(ids, 10), "int64", read)
    model, (result,) = passed(source, CollapseNegativeIndexFixup())
    assert ops(model)["ResourceGather"] == 1
    assert "GatherV2" not in ops(model)
    assert set(ops(model)) >= REPAIR
    assert result.applied == int(read)
    feeds = [{"ids": np.array(ids, np.int64)} for ids in ([-1, 3, -10], [0], [])]
    assert_same(source, model, tmp_path / "out", feeds, [{"ids": np.array([10])}, {"ids": np.array([-11])}])


@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize("kind", ["hash", "table", "unsigned"])
def test_ids_that_are_never_negative_need_no_repair(kind: str, read: bool, tmp_path: Path) -> None:
    import tensorflow as tf

    held = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "b"], np.array([4, 9], np.int64)), 0)
    makers: dict[str, tuple[Callable[[Any], Any], str]] = {
        "hash": (lambda ids: tf.strings.to_hash_bucket_fast(ids, 10), "string"),
        "table": (held.lookup, "string"),
        "unsigned": (lambda ids: tf.cast(ids, tf.int32), "uint8"),
    }
    make, dtype = makers[kind]
    weights = tf.Variable(table(10, 6))

    def serve(ids: Any) -> dict[str, Any]:
        return {"rows": tf.gather(weights.read_value() if read else weights, fixed(make(ids), 10))}

    specs = [tf.TensorSpec([None], dtype, name="ids")]
    source = export_function(tmp_path / "in", serve, specs, weights=weights, held=held)
    model, (first, second) = passed(source, CollapseNegativeIndexFixup(), CollapseNegativeIndexFixup())
    assert (first.applied, second.applied, second.refused) == (1, 0, [])
    assert not REPAIR & set(ops(model))
    values = np.array([b"a", b"", b"b"], object) if dtype == "string" else np.array([0, 9, 3], np.uint8)
    assert_same(source, model, tmp_path / "out", [{"ids": values}, {"ids": values[:0]}])


def test_keras_embedding_is_one_gather(tmp_path: Path) -> None:
    import keras

    model = keras.Sequential([keras.Input((3,), dtype="int32", name="ids"), keras.layers.Embedding(10, 4)])
    model.export(str(tmp_path / "in"), verbose=False)
    cut, (result,) = passed(tmp_path / "in", CollapseNegativeIndexFixup())
    # Keras exports the same function as two signatures.
    assert result.applied == len(cut.signatures) == ops(cut)["ResourceGather"]
    assert "GatherV2" not in ops(cut)
    feeds = [{key: np.array([[1, 9, 0]], np.int32)} for key in cut.signatures["serving_default"].inputs]
    assert_same(tmp_path / "in", cut, tmp_path / "out", feeds)


def test_other_axis_is_refused(tmp_path: Path) -> None:
    source = export(tmp_path / "in", lambda ids: ids, "int64", axis=1)
    _, (result,) = passed(source, CollapseNegativeIndexFixup())
    assert result.applied == 0
    assert "axis [1]" in result.refused[0][1]
