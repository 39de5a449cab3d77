# SPDX-License-Identifier: Apache-2.0
"""Keys in every form: dense, ragged and sparse, integers and strings, in each Keras and outside."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import elastic_training as et
from helpers.elastic.tables import new_rows, rows_of

DIM = 4
RAGGED = tf.ragged.constant([[3, 1], [], [2, 2, 3]], dtype=tf.int64)


def _layer(**options: Any) -> et.HashEmbedding:
    return et.HashEmbedding(DIM, table="keys", **options)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, np.int64])
def test_integers_of_all_widths_are_the_same_keys(dtype: Any) -> None:
    layer = _layer()
    rows = new_rows(layer, range(5))
    assert np.array_equal(layer(np.arange(5, dtype=dtype)).numpy(), rows)
    assert layer.table.size() == 5


def test_unsigned_keys_keep_their_bits() -> None:
    layer = _layer()
    largest = np.array([2**64 - 1, 2**63, 2**63 - 1], np.uint64)
    rows = layer(largest, training=True).numpy()
    assert np.array_equal(rows_of(layer, [-1, -(2**63), 2**63 - 1]), rows)
    assert len(np.unique(rows, axis=0)) == 3


def test_strings_are_keys_of_any_bytes() -> None:
    layer = _layer()
    keys = np.array([["a", "b"], ["", "日本"]], dtype=object)
    rows = layer(tf.constant(keys), training=True)
    assert rows.shape == (2, 2, DIM)
    assert layer.table.config.key == "string"
    assert layer.table.size() == 4
    assert np.array_equal(layer(np.array(["b", "a"])).numpy(), rows.numpy()[0, ::-1])


def test_one_key_is_a_row() -> None:
    layer = _layer()
    assert layer(tf.constant(7), training=True).shape == (DIM,)
    assert layer.table.size() == 1


def test_no_keys_give_no_rows() -> None:
    layer = _layer()
    assert layer(tf.zeros([0, 3], tf.int64), training=True).shape == (0, 3, DIM)
    assert _layer(combiner="mean")(tf.zeros([2, 0], tf.int64), training=True).numpy().tolist() == [[0.0] * DIM] * 2


def test_ragged_keys_give_ragged_rows() -> None:
    layer = _layer()
    rows = layer(RAGGED, training=True)
    assert isinstance(rows, tf.RaggedTensor)
    assert rows.shape.as_list() == [3, None, DIM]
    assert np.array_equal(rows.flat_values.numpy(), rows_of(layer, RAGGED.flat_values.numpy()))
    deep = tf.ragged.constant([[[3], [1, 2]], [[]]], dtype=tf.int64)
    assert layer(deep).shape.as_list() == [2, None, None, DIM]
    assert layer(tf.RaggedTensor.from_row_splits(tf.constant([[1, 2], [3, 4]]), [0, 1, 2])).shape[-2:] == (2, DIM)


def _expected(layer: Any, combiner: str) -> np.ndarray[Any, Any]:
    """Pool the rows of RAGGED in NumPy."""
    pooled = np.zeros((3, DIM), np.float32)
    for row, keys in enumerate(RAGGED.to_list()):
        if keys:
            rows = rows_of(layer, keys)
            pooled[row] = rows.sum(axis=0) / {"sum": 1, "mean": len(keys), "sqrtn": np.sqrt(len(keys))}[combiner]
    return pooled


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("kind", ["int64", "string"])
def test_forms_of_the_same_keys_pool_alike(combiner: str, kind: str) -> None:
    keys = RAGGED if kind == "int64" else tf.strings.as_string(RAGGED)
    each = _layer()
    each(keys, training=True)
    pooled = et.HashEmbedding(table=each.table, combiner=combiner)
    expected = _expected(each, combiner) if kind == "int64" else pooled(keys).numpy()
    forms = [
        keys,
        keys.to_sparse(),
        tf.RaggedTensor.from_row_splits(keys, [0, 3]),
        tf.sparse.expand_dims(keys.to_sparse(), 0),
    ]
    for form in forms:
        rows = pooled(form)
        rows = rows.to_tensor() if isinstance(rows, tf.RaggedTensor) else rows
        np.testing.assert_allclose(tf.reshape(rows, [-1, DIM]).numpy(), expected, rtol=1e-6, atol=1e-8)
        assert rows.shape[:-1] == ((3,) if form.shape.rank == 2 else (1, 3))


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_padding_is_not_pooled(combiner: str) -> None:
    each = _layer()
    each(RAGGED, training=True)
    padded = RAGGED.to_tensor()
    masked = et.HashEmbedding(table=each.table, combiner=combiner, mask_zero=True)
    by_mask = et.HashEmbedding(table=each.table, combiner=combiner)
    for rows in (masked(padded, training=True), by_mask(padded, mask=padded != 0)):
        np.testing.assert_allclose(rows.numpy(), _expected(each, combiner), rtol=1e-6, atol=1e-8)
    assert each.table.size() == 3


def test_mask_zero_masks_and_trains_no_row() -> None:
    inputs = keras.Input((3,), dtype="int64")
    layer = _layer(mask_zero=True)
    rows = layer(inputs)
    assert rows.shape == (None, 3, DIM)
    model = keras.Model(inputs, keras.layers.GlobalAveragePooling1D()(rows))
    keys = np.array([[1, 2, 0], [3, 0, 0]])
    outputs = model(keys, training=True).numpy()
    assert layer.table.size() == 3
    each = rows_of(layer, [1, 2, 3])
    np.testing.assert_allclose(outputs, [each[:2].mean(axis=0), each[2]], rtol=1e-6)
    assert layer.compute_mask(tf.constant(["a", ""])).numpy().tolist() == [True, False]


@pytest.mark.parametrize(
    ("form", "shape", "options"),
    [
        ({"shape": (), "dtype": "string"}, (None, DIM), {}),
        ({"shape": (5,), "dtype": "string", "combiner": "sum"}, (None, DIM), {}),
        ({"shape": (2, 5), "dtype": "int32"}, (None, 2, 5, DIM), {}),
        ({"shape": (2, 5), "dtype": "int32", "combiner": "mean"}, (None, 2, DIM), {}),
        ({"shape": (None,), "dtype": "int64", "ragged": True}, (None, None, DIM), {"ragged": True}),
        ({"shape": (None,), "dtype": "int64", "ragged": True, "combiner": "mean"}, (None, DIM), {"ragged": False}),
        ({"shape": (5,), "dtype": "int64", "sparse": True, "combiner": "mean"}, (None, DIM), {"sparse": False}),
    ],
)
def test_shapes_in_functional_models(form: dict[str, Any], shape: Any, options: dict[str, bool]) -> None:
    rows = _layer(combiner=form.pop("combiner", None))(keras.Input(**form))
    assert rows.shape == shape
    for name, value in options.items():
        assert getattr(rows, name) is value


def test_functional_model_trains_on_ragged_and_sparse_inputs() -> None:
    for form, keys in (({"ragged": True}, RAGGED), ({"sparse": True}, RAGGED.to_sparse())):
        inputs = keras.Input((None,), dtype="int64", **form)
        layer = _layer(combiner="mean", optimizer=et.SGD(0.1))
        model = keras.Model(inputs, keras.layers.Dense(1)(layer(inputs)))
        model.compile("sgd", "mse")
        data = tf.data.Dataset.from_tensors((keys, tf.ones([3, 1]))).repeat(2)
        model.fit(data, verbose=0)
        assert layer.table.size() == 3
        assert int(layer.table.step()) == 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: _layer()(tf.constant([1.5])), "HashEmbedding .*: keys of float32, expected integers or strings"),
        (
            lambda: keras.Sequential([_layer()]).predict(np.array([1]), verbose=0),
            r"Keras casts inputs without a dtype: begin with keras.Input\(shape, dtype='int64'\)",
        ),
        (lambda: _layer()(keras.Input((3,))), "keys of float32"),
        (lambda: _layer()(tf.constant([True])), "keys of bool"),
        (lambda: _layer()(RAGGED.to_sparse()), "sparse keys without a combiner"),
        (lambda: _layer(combiner="sum")(tf.constant([1, 2])), "keys of rank 1 with a combiner"),
        (lambda: _layer()(RAGGED, weights=tf.ones([7])), "weights without a combiner"),
        (lambda: _layer(combiner="sum")(RAGGED, weights=tf.ones([3, 3])), "weights are .*Tensor, keys RaggedTensor"),
        (
            lambda: _layer(combiner="sum")(tf.ones([2, 3], tf.int64), weights=tf.ones([2, 2])),
            r"weights of shape \(2, 2\)",
        ),
        (lambda: _layer(combiner="max"), "combiner: 'max', expected None, 'sum', 'mean' or 'sqrtn'"),
        (lambda: et.HashEmbedding(), "table 'hash_embedding.*': no dim"),
        (lambda: et.HashEmbedding(4, admit="often"), "admit: 'often', expected one of AlwaysAdmit, CountFilter"),
    ],
)
def test_wrong_input_is_named(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_table_of_integers_refuses_strings() -> None:
    layer = _layer()
    layer(tf.constant([1]), training=True)
    with pytest.raises(ValueError, match="are string, but table 'keys' has int64 keys"):
        layer(tf.constant(["1"]))
