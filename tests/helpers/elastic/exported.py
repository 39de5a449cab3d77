# SPDX-License-Identifier: Apache-2.0
"""A model with tables of all kinds that tests train, export and publish."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import elastic_training as et
from elastic_training.export.changes import Changes
from elastic_training.export.contents import read_contents
from elastic_training.export.published_state import State, read_state
from elastic_training.layers.parts_of_model import tables_of, weights_of
from graph_tools.store.lineage import read_lineage

ROWS = 96


def ranker(seed: int = 1) -> keras.Model:
    """A user's own layer (int64), and features with strings, a shared table and pooled, padded keys."""
    keras.utils.set_random_seed(seed)
    inputs = {
        "user": keras.Input((), dtype="int64", name="user"),
        "item": keras.Input((), dtype="string", name="item"),
        "seen": keras.Input((4,), dtype="string", name="seen"),
        "tags": keras.Input((None,), dtype="int64", name="tags"),
    }
    user = et.HashEmbedding(8, optimizer=et.Adagrad(0.1), name="user_rows")(inputs["user"])
    embed = et.FeatureEmbeddings(
        {
            "item": et.Feature(table="item"),
            "seen": et.Feature(table="item", combiner="sum"),
            "tags": et.Feature(2, combiner="mean", mask_zero=True),
        },
        dim=4,
        optimizer=et.Adagrad(0.1),
        name="features",
    )
    others = embed({name: inputs[name] for name in ("item", "seen", "tags")})
    hidden = keras.layers.Dense(8, activation="relu")(keras.layers.Concatenate()([user, *others.values()]))
    model = keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid", name="score")(hidden))
    model.compile(keras.optimizers.SGD(0.1), "binary_crossentropy")
    return model


def batch(seed: int, first_user: int = 0) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Return random features and labels [ROWS, 1]."""
    random = np.random.default_rng(seed)
    features = {
        "user": tf.constant(random.integers(first_user, first_user + 60, ROWS) * 10**15),
        "item": tf.strings.as_string(random.integers(0, 40, ROWS)),
        "seen": tf.strings.as_string(random.integers(0, 40, (ROWS, 4))),
        "tags": tf.constant(random.integers(0, 6, (ROWS, 3))),
    }
    return features, tf.constant(random.integers(0, 2, (ROWS, 1)).astype(np.float32))


def train(model: keras.Model, seed: int, callbacks: tuple[Any, ...] = (), **options: Any) -> None:
    """Train one epoch of four batches."""
    model.fit(*batch(seed, **options), batch_size=ROWS // 4, verbose=0, shuffle=False, callbacks=list(callbacks))


def published(export: Path, timeline: Path) -> State:
    """Return what an export and its timeline say."""
    start = read_lineage(export)
    return read_state(export, read_contents(export), timeline, start, 10**9)


def check_published(model: Any, export: Path, timeline: Path) -> None:
    """Check that an export and its timeline have the rows and weights of a model, bit for bit, and no others."""
    contents, state = read_contents(export), published(export, timeline)
    for entry in contents.tables:
        keys, rows = tables_of(model)[entry.place].export()
        full = rows.meta.numpy()[:, 2] == 1
        now = Changes.of(keys[full], rows.weights.numpy()[full], keys[:0])
        difference = now.since(state.tables[entry.name])
        assert (len(difference.keys), len(difference.gone)) == (0, 0), entry
        assert len(now.keys) > 0
    for variable in contents.variables:
        value = weights_of(model)[variable.place].numpy()
        np.testing.assert_array_equal(state.variables[variable.name], value, strict=True)
