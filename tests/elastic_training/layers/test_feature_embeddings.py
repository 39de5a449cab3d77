# SPDX-License-Identifier: Apache-2.0
"""Many features in one op give the rows, and learn the rows, of one layer each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import elastic_training as et
from helpers.elastic.tables import updates

FEATURES = {
    "user": et.Feature(4, optimizer=et.SGD(0.1)),
    "item": et.Feature(table="item"),
    "history": et.Feature(table="item", combiner="mean", mask_zero=False),
    "city": et.Feature(2, combiner="sum"),
    "tags": et.Feature(2, combiner="sqrtn", mask_zero=True),
}
_RANDOM = np.random.default_rng(3)
ROWS = 16
INPUTS: dict[str, tf.Tensor] = {
    "user": tf.constant(_RANDOM.integers(0, 9, ROWS)),
    "item": tf.constant(_RANDOM.integers(1, 20, ROWS)),
    "history": tf.constant(_RANDOM.integers(1, 20, (ROWS, 5))),
    "city": tf.strings.as_string(_RANDOM.integers(0, 5, (ROWS, 2))),
    "tags": tf.constant(_RANDOM.integers(0, 4, (ROWS, 3))),
}
LABELS = _RANDOM.normal(size=(ROWS, 1)).astype(np.float32)


def _layer(**options: Any) -> et.FeatureEmbeddings:
    return et.FeatureEmbeddings(FEATURES, dim=4, optimizer=et.Adagrad(0.1), **options)


def _symbolic() -> dict[str, Any]:
    kinds = {"city": "string"}
    return {
        name: keras.Input(value.shape[1:], dtype=kinds.get(name, "int64"), name=name) for name, value in INPUTS.items()
    }


def _model(embed: Any) -> keras.Model:
    inputs = _symbolic()
    return keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Concatenate()(list(embed(inputs).values()))))


def test_shapes_and_tables() -> None:
    layer = _layer()
    outputs = layer(_symbolic())
    assert {name: rows.shape for name, rows in outputs.items()} == {
        "user": (None, 4),
        "item": (None, 4),
        "history": (None, 4),
        "city": (None, 2),
        "tags": (None, 2),
    }
    assert {name: table.config.key for name, table in layer.tables.items()} == {
        "user": "int64",
        "item": "int64",
        "city": "string",
        "tags": "int64",
    }
    assert layer.tables["user"].config.optimizer == et.SGD(0.1)
    assert layer.tables["item"].config.optimizer == et.Adagrad(0.1)
    assert len(layer.weights) == 1


def test_one_op_trains_as_layers_of_single_features_do() -> None:
    together = _layer()
    model = _model(together)
    alone = {
        name: et.HashEmbedding(feature.dim or 4, optimizer=feature.optimizer or et.Adagrad(0.1), table=name,
                               combiner=feature.combiner, mask_zero=feature.mask_zero)
        for name, feature in FEATURES.items() if feature.table is None
    }  # fmt: skip
    # Of features that share a table the gradients are added, so one layer looks up the keys of both.
    items = et.HashEmbedding(4, optimizer=et.Adagrad(0.1), table="item")

    def separate(inputs: dict[str, Any]) -> dict[str, Any]:
        keys = keras.ops.concatenate([inputs["item"][:, None], inputs["history"]], axis=1)
        rows = items(keys)
        both = {"item": rows[:, 0], "history": keras.ops.mean(rows[:, 1:], axis=1)}
        return {name: both.get(name) if name in both else alone[name](inputs[name]) for name in FEATURES}

    other = _model(separate)
    for each in (model, other):
        each(INPUTS, training=True)
        each.compile(keras.optimizers.SGD(0.1), "mse")
    other.layers[-1].set_weights(model.layers[-1].get_weights())
    for each in (model, other):
        each.fit(tf.data.Dataset.from_tensor_slices((INPUTS, LABELS)).batch(4), epochs=3, verbose=0)
    np.testing.assert_allclose(model(INPUTS), other(INPUTS), rtol=1e-4, atol=1e-6)
    assert {name: updates(table) for name, table in together.tables.items()} == dict.fromkeys(together.tables, 12)


def test_features_with_one_combiner_are_pooled_by_the_op() -> None:
    features = {name: et.Feature(table="item", combiner="mean") for name in ("bought", "seen")}
    features["next"] = et.Feature(table="item")
    layer = et.FeatureEmbeddings(features, dim=4, optimizer=et.SGD(1.0))
    each = et.HashEmbedding(table=et.Table(et.TableConfig("item", 4, optimizer=et.SGD(1.0))))
    bought = tf.ragged.constant([[1, 2], [], [3]], dtype=tf.int64)
    seen = tf.constant([[2, 3], [1, 1], [4, 5]], tf.int64)
    inputs = {"bought": bought, "seen": seen, "next": tf.constant([[5, 1]], tf.int64)}
    graph = tf.function(lambda: layer(inputs, training=True)).get_concrete_function().graph
    (op,) = [op for op in graph.get_operations() if op.type == "ElasticTableLookup"]
    assert op.get_attr("combiners") == [b"mean"]
    outputs = layer(inputs, training=True)
    each(tf.range(6), training=True)
    assert np.array_equal(outputs["next"].numpy(), each(inputs["next"]).numpy())
    rows = each(seen).numpy()
    np.testing.assert_allclose(outputs["seen"].numpy(), rows.mean(axis=1), rtol=1e-6, atol=1e-8)
    assert np.all(outputs["bought"].numpy()[1] == 0)


def test_weights_of_single_features() -> None:
    layer = _layer()
    weights = _RANDOM.normal(size=(ROWS, 5)).astype(np.float32)
    plain = layer(INPUTS, training=True)
    weighted = layer(INPUTS, weights={"history": weights}, training=True)
    rows = et.HashEmbedding(table=layer.tables["item"])(INPUTS["history"]).numpy()
    expected = (rows * weights[..., None]).sum(axis=1) / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(weighted["history"].numpy(), expected, rtol=1e-4, atol=1e-6)
    assert np.array_equal(weighted["city"].numpy(), plain["city"].numpy())


def test_keras_file_restores_features_and_tables(tmp_path: Path) -> None:
    model = _model(_layer(name="embed"))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras").get_layer("embed")
    configs = {name: table.config for name, table in model.get_layer("embed").tables.items()}
    assert {name: table.config for name, table in loaded.tables.items()} == configs
    clone = keras.models.clone_model(model).get_layer("embed")
    assert clone.get_config() == model.get_layer("embed").get_config()


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({}, "no features"),
        ([1], "features is .1., expected"),
        ({"a": et.Feature()}, "table 'a': no dim"),
        (
            {"a": et.Feature(4, et.SGD(0.1), table="t"), "b": et.Feature(4, et.Adagrad(0.1), table="t")},
            r"table 't': optimizer of feature 'b' is Adagrad.*, expected SGD.*, as of feature 'a'",
        ),
        (
            {"a": et.Feature(4, table="t"), "b": et.Feature(4, table="t", mask_zero=True)},
            "table 't': mask_zero of feature 'b' is True, expected False, as of feature 'a'",
        ),
    ],
)
def test_features_that_contradict_each_other_are_refused(features: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"FeatureEmbeddings 'embed': {message}"):
        et.FeatureEmbeddings(features, name="embed")


def test_wrong_inputs_are_named() -> None:
    layer = et.FeatureEmbeddings({"a": et.Feature(4, combiner="sum"), "b": et.Feature(4, table="a")}, name="embed")
    with pytest.raises(ValueError, match="no input for feature 'b', expected"):
        layer({"a": tf.constant([[1]])})
    with pytest.raises(ValueError, match="weights or mask of 'c', expected one of"):
        layer({"a": tf.constant([[1]]), "b": tf.constant([1])}, weights={"c": tf.constant([1.0])})
    with pytest.raises(ValueError, match="keys of feature 'b' are string, but table 'a' has int64 keys"):
        layer({"a": tf.constant([[1]]), "b": tf.constant(["x"])})
    with pytest.raises(ValueError, match="FeatureEmbeddings 'embed': feature 'b': keys of float32"):
        layer({"a": tf.constant([[1]]), "b": tf.constant([1.0])})
