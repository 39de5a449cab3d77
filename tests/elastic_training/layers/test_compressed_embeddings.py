# SPDX-License-Identifier: Apache-2.0
"""Layers whose keys share the rows of a small table: rows, training, forms of keys, files and exports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import elastic_training as et
import graph_tools
import processor
from graph_tools.readers import read_model

KEYS = np.array([[5, 0, 1 << 62], [7, 7, -1], [0, 0, 0]], np.int64)
WORDS = np.array([["a", "", "b"], ["c", "c", "d"], ["", "", ""]])


def binary(**options: Any) -> et.BinaryCodeEmbedding:
    given = {"bits": 9, "blocks": 3, "optimizer": et.SGD(0.5), "name": "code"}
    return et.BinaryCodeEmbedding(6, **{**given, **options})


def multi(code: Any, **options: Any) -> et.MultiHashEmbedding:
    return et.MultiHashEmbedding(6, code, **{"optimizer": et.SGD(0.5), "name": "code", **options})


def rows_by_hand(layer: Any, keys: Any) -> np.ndarray[Any, Any]:
    """Return rows [*keys, dim] that are made of the rows of the layer's table in NumPy, in the order of its parts."""
    places = layer.code.places(tf.constant(keys))
    table = next(iter(layer.tables.values()))
    parts = [
        table.read(tf.reshape(place + offset + 1, [-1])).weights.numpy().reshape(*place.shape, table.dim)
        for place, offset in zip(places, layer.code.offsets, strict=True)
    ]
    combine = layer._group.combine
    if combine == "concat":
        return np.concatenate(parts, -1)
    made = parts[0]
    for part in parts[1:]:
        made = made * part if combine == "mul" else made + part
    return made


def train(layer: Any, keys: Any, **options: Any) -> np.ndarray[Any, Any]:
    """Train one step towards rows of ones; returns the output before it."""
    with tf.GradientTape() as tape:
        rows = layer(tf.constant(keys) if isinstance(keys, np.ndarray) else keys, training=True, **options)
        flat = rows.flat_values if isinstance(rows, tf.RaggedTensor) else rows
        loss = tf.reduce_sum(tf.square(flat - 1)) / 2
    tape.gradient(loss, layer.trainable_variables)
    return flat.numpy()


LAYERS = {
    "succession": lambda **options: binary(**options),
    "skip": lambda **options: binary(cut="skip", **options),
    "binary concat": lambda **options: binary(fuse="concat", **options),
    "hashes": lambda **options: multi(et.Hashes(11, 2), **options),
    "quotient, mul": lambda **options: multi(
        et.QuotientRemainder(5, 4), combine="mul", **{"embeddings_initializer": et.Uniform(0.5, 1.5), **options}
    ),
    "quotient, concat": lambda **options: multi(et.QuotientRemainder(5, 4), combine="concat", **options),
}
MODULES: dict[str, Any] = {
    "binary module": lambda: et.BinaryCodeEmbeddingModule(6, 9, 3, "skip", optimizer=et.SGD(0.5), name="code"),
    "hashes module": lambda: et.MultiHashEmbeddingModule(6, et.Hashes(11, 2), optimizer=et.SGD(0.5), name="code"),
}
layers = pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)


@layers
@pytest.mark.parametrize("keys", [KEYS, WORDS], ids=["int64", "string"])
def test_rows_are_made_of_the_rows_of_their_parts(make: Any, keys: np.ndarray[Any, Any]) -> None:
    layer = make()
    before = train(layer, keys)
    assert before.shape == (3, 3, 6)
    after = layer(tf.constant(keys), training=False).numpy()
    np.testing.assert_array_equal(after, rows_by_hand(layer, keys))
    assert np.all(np.any(after != before, -1))
    assert next(iter(layer.tables.values())).size() <= layer.code.rows


@pytest.mark.parametrize("make", MODULES.values(), ids=MODULES)
def test_modules_train_are_saved_and_exported(make: Any, tmp_path: Path) -> None:
    module = make()
    before = train(module, KEYS)
    after = module(tf.constant(KEYS), training=False).numpy()
    np.testing.assert_array_equal(after, rows_by_hand(module, KEYS))
    assert np.all(np.any(after != before, -1))
    path = tf.train.Checkpoint(model=module).save(str(tmp_path / "ckpt"))
    again = make()
    again(tf.constant(KEYS), training=False)
    tf.train.Checkpoint(model=again).restore(path)
    np.testing.assert_array_equal(again(tf.constant(KEYS), training=False), after)
    inputs = {"keys": tf.TensorSpec([None, 3], tf.int64)}
    et.export(
        module, tmp_path / "export", inputs=inputs, function=lambda f: {"rows": module(f["keys"], training=False)}
    )
    served = tf.saved_model.load(str(tmp_path / "export")).signatures["serving_default"]
    np.testing.assert_array_equal(served(keys=tf.constant(KEYS))["rows"], after)


def test_gradients_of_keys_that_share_a_row_are_added() -> None:
    layer = multi(et.Hashes(1, 2), embeddings_initializer="zeros")
    train(layer, np.array([1, 2, 3]))
    # Three gradients of -1 at a rate of 0.5, in each of two rows.
    np.testing.assert_array_equal(layer(tf.constant([9]), training=False), np.full((1, 6), 3.0))


@layers
@pytest.mark.parametrize(
    ("form", "combiner"),
    [("dense", "sum"), ("ragged", "mean"), ("sparse", "sqrtn"), ("weights", "mean"), ("mask", "sum")],
)
def test_rows_of_several_keys_are_pooled(make: Any, combiner: str, form: str) -> None:
    layer = make(combiner=combiner, mask_zero=True)
    keys, present, weights = tf.constant(KEYS), KEYS != 0, np.ones(KEYS.shape, np.float32)
    options: dict[str, Any] = {}
    if form == "ragged":
        keys = tf.RaggedTensor.from_tensor(keys, padding=0)
        present = keys.to_tensor(shape=(3, 3)).numpy() != 0
    elif form == "sparse":
        keys = tf.sparse.from_dense(keys)
    elif form == "weights":
        weights = np.array([[2, 1, 0.5], [0.25, 1, 3], [1, 1, 1]], np.float32)
        options["weights"] = tf.constant(weights)
    elif form == "mask":
        mask = np.array([[True, True, False], [True, False, True], [True] * 3])
        options["mask"], present = tf.constant(mask), present & mask
    first = train(layer, keys, **options)
    assert first.shape == (3, 6)
    pooled = layer(keys, training=False, **options).numpy()
    dense = keys.to_tensor(shape=(3, 3)).numpy() if form == "ragged" else KEYS
    rows = rows_by_hand(layer, dense)
    weights = weights * present
    total = (rows * weights[..., None]).sum(1)
    norm = {"sum": 1, "mean": weights.sum(1), "sqrtn": np.sqrt(np.square(weights).sum(1))}[combiner]
    norm = np.broadcast_to(np.asarray(norm, np.float32), 3)[:, None]
    expected = np.divide(total, norm, out=np.zeros_like(total), where=norm != 0)
    np.testing.assert_allclose(pooled, expected, rtol=1e-5, atol=1e-6)
    assert not pooled[2].any()
    assert np.all(np.any(pooled[:2] != first[:2], -1))


def test_a_masked_key_reads_zeros_and_is_not_trained() -> None:
    layer = binary(mask_zero=True)
    rows = train(layer, KEYS)
    assert not rows[KEYS == 0].any()
    assert np.all(np.any(rows[KEYS != 0] != 0, -1))
    before = next(iter(layer.tables.values())).stats()["rows"]
    train(layer, np.zeros((2, 2), np.int64))
    assert next(iter(layer.tables.values())).stats()["rows"] == before
    np.testing.assert_array_equal(layer.compute_mask(tf.constant(KEYS)), KEYS != 0)


def test_ragged_keys_without_a_combiner_keep_their_form() -> None:
    layer = binary()
    keys = tf.ragged.constant([[1, 2], [], [3]], dtype=tf.int64)
    train(layer, keys)
    rows = layer(keys, training=False)
    assert rows.row_lengths().numpy().tolist() == [2, 0, 1]
    np.testing.assert_array_equal(rows.flat_values, rows_by_hand(layer, np.array([1, 2, 3])))


def model_of(layer: Any, dtype: str = "int64") -> keras.Model:
    # With some dense weights, products of rows would grow without end.
    keras.utils.set_random_seed(1)
    inputs = keras.Input((3,), dtype=dtype, name="keys")
    hidden = layer(inputs)
    hidden = hidden if layer._group.feature.combiner else keras.layers.Flatten()(hidden)
    model = keras.Model(inputs, keras.layers.Dense(1, name="score")(hidden))
    model.compile("sgd", "mse")
    return model


FILES = {
    "succession": (None, KEYS),
    "skip": ("sum", WORDS),
    "binary concat": ("mean", KEYS),
    "hashes": (None, WORDS),
    "quotient, mul": ("sum", KEYS),
}


@pytest.mark.parametrize("name", FILES)
def test_files_and_exports_score_as_the_model(name: str, tmp_path: Path) -> None:
    combiner, keys = FILES[name]
    dtype = "string" if keys.dtype.kind == "U" else "int64"
    model = model_of(LAYERS[name](combiner=combiner, mask_zero=combiner is not None), dtype)
    given = tf.constant(keys)
    model.fit(given, tf.ones([3, 1]), batch_size=1, epochs=2, verbose=0)
    expected = model(given, training=False).numpy()
    assert np.isfinite(expected).all()
    assert np.ptp(expected) > 0
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.layers[1].get_config() == model.layers[1].get_config()
    # TensorFlow adds the rows that are pooled in any order.
    tolerance = 0 if combiner is None else 1e-5
    np.testing.assert_allclose(loaded(given, training=False), expected, rtol=tolerance)
    et.export(model, tmp_path / "export")
    scores = tf.saved_model.load(str(tmp_path / "export")).signatures["serving_default"](keys=given)["score"].numpy()
    np.testing.assert_allclose(scores, expected, rtol=tolerance)


@pytest.mark.parametrize("name", ["skip", "quotient, mul"])
def test_optimized_exports_are_served_by_one_lookup(name: str, tmp_path: Path) -> None:
    model = model_of(LAYERS[name](mask_zero=True))
    model.fit(KEYS, np.ones((3, 1)), verbose=0)
    et.export(model, tmp_path / "export")
    graph_tools.cut(tmp_path / "export", tmp_path / "cut")
    cut = tf.saved_model.load(str(tmp_path / "cut")).signatures["serving_default"]
    # A graph and an eager call may fuse the dense layer in different ways.
    np.testing.assert_allclose(cut(keys=tf.constant(KEYS))["score"], model(KEYS, training=False), rtol=1e-6)
    graph_tools.optimize(tmp_path / "export", tmp_path / "artifact", precision="fp32", accept_weak_proof=True)
    ops = [node.op for node in read_model(tmp_path / "artifact").graph]
    assert ops.count("RecEmbeddingGroup") == ops.count("RecEmbeddingTable") == 1
    assert not {op for op in ops if "Lookup" in op or "Gather" in op or "Shift" in op or "Bit" in op or op == "Mul"}
    with processor.Model(tmp_path / "artifact", {"warmup_runs": 1}) as served:
        scores = served.run({"keys": KEYS})["score"]
    np.testing.assert_allclose(scores, model(KEYS, training=False), rtol=1e-5)


def test_checkpoints_and_reports_have_the_table(tmp_path: Path) -> None:
    layer = binary()
    model = model_of(layer)
    model.fit(KEYS, np.ones((3, 1)), verbose=0)
    expected = model(KEYS).numpy()
    et.Checkpoints(str(tmp_path / "checkpoints"), model=model).save()
    train(layer, KEYS)
    assert np.any(model(KEYS).numpy() != expected)
    et.Checkpoints(str(tmp_path / "checkpoints"), model=model).restore()
    np.testing.assert_array_equal(model(KEYS), expected)
    assert et.report(model).tables[0].features == ("code",)
    with pytest.raises(ValueError, match="have no rows of their own"):
        et.explain(layer, 5)


def test_tf_keras_and_keras_give_the_same_rows(tmp_path: Path) -> None:
    tf_keras = pytest.importorskip("tf_keras")
    for name, arguments in (
        ("BinaryCodeEmbedding", {"bits": 9, "blocks": 3, "cut": "skip"}),
        ("MultiHashEmbedding", {"code": et.Hashes(11, 2)}),
    ):
        inputs = tf_keras.Input((3,), dtype="int64")
        other = getattr(et.tf_keras, name)(6, **arguments, optimizer=et.SGD(0.5), name="code")
        model = tf_keras.Model(inputs, tf_keras.layers.Flatten()(other(inputs)))
        model.compile("sgd", "mse")
        layer = getattr(et, name)(6, **arguments, optimizer=et.SGD(0.5), name="code")
        np.testing.assert_array_equal(train(other, KEYS), train(layer, KEYS))
        np.testing.assert_array_equal(other(KEYS, training=False), layer(KEYS, training=False))
        model.save(str(tmp_path / f"{name}.keras"))
        loaded = tf_keras.models.load_model(str(tmp_path / f"{name}.keras"))
        np.testing.assert_array_equal(loaded(KEYS), model(KEYS))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: et.BinaryCodeEmbedding(5, bits=8, blocks=2, fuse="concat"), "dim 5 in 2 parts"),
        (lambda: et.BinaryCodeEmbedding(4, bits=8, blocks=2, fuse="mul"), "fuse is 'mul'"),
        (lambda: et.BinaryCodeEmbedding(0, bits=8, blocks=2), "dim: 0, expected the number of columns"),
        (lambda: multi(et.BinaryCode(8, 2)), "expected Hashes or QuotientRemainder"),
        (lambda: multi(et.Hashes(8), combine="max"), "combine is 'max'"),
        (lambda: binary(combiner="max"), "combiner: 'max'"),
    ],
)
def test_wrong_settings_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_numbers_and_strings_are_not_mixed() -> None:
    layer = binary()
    layer(tf.constant(KEYS), training=False)
    with pytest.raises(ValueError, match="keys are string, expected int64"):
        layer(tf.constant(WORDS), training=False)
    with pytest.raises(ValueError, match="float32, expected integers or strings"):
        binary()(tf.constant([1.5]), training=False)
