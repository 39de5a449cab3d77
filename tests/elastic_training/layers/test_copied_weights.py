# SPDX-License-Identifier: Apache-2.0
"""Weights that are copied as arrays do not silently leave rows behind."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

import elastic_training as et

_KEYS, _LABELS = np.arange(8), np.ones((8, 1), np.float32)


def _model(framework: Any, layer: Any) -> Any:
    keys = framework.Input((), dtype="int64")
    model = framework.Model(keys, framework.layers.Dense(1)(layer(keys)))
    model.compile("sgd", "mse")
    return model


@pytest.mark.parametrize("name", ["keras", "tf_keras"])
def test_early_stopping_that_would_mix_weights_and_rows_is_refused(name: str) -> None:
    framework = pytest.importorskip(name)
    model = _model(framework, (et if name == "keras" else et.tf_keras).HashEmbedding(2))
    stop = framework.callbacks.EarlyStopping("loss", restore_best_weights=True)
    with pytest.raises(ValueError, match=r"EarlyStopping\(restore_best_weights=True\) does not restore rows, expected"):
        model.fit(_KEYS, _LABELS, verbose=0, epochs=2, callbacks=[stop])
    stop = framework.callbacks.EarlyStopping("loss")
    assert len(model.fit(_KEYS, _LABELS, verbose=0, epochs=2, callbacks=[stop]).epoch) == 2


def test_what_the_error_says_restores_the_best_rows(tmp_path: Any) -> None:
    model = _model(keras, et.HashEmbedding(2, optimizer=et.SGD(1.0)))
    path = str(tmp_path / "best.keras")
    best = keras.callbacks.ModelCheckpoint(path, monitor="val_loss", save_best_only=True)
    stop = keras.callbacks.EarlyStopping(patience=2)
    history = model.fit(
        _KEYS, _LABELS, validation_data=(_KEYS, -_LABELS), verbose=0, epochs=9, callbacks=[best, stop]
    ).history["val_loss"]
    assert history[-1] > min(history)
    loaded = keras.saving.load_model(path)
    assert loaded.evaluate(_KEYS, -_LABELS, verbose=0) == pytest.approx(min(history), rel=1e-5)


def test_set_weights_says_that_rows_stay() -> None:
    model = _model(keras, et.HashEmbedding(2))
    weights = model.get_weights()
    with pytest.warns(UserWarning, match="HashEmbedding .*: set_weights leaves the rows of tables as they are"):
        model.set_weights(weights)
