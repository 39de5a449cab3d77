# SPDX-License-Identifier: Apache-2.0
"""Export a Keras 3 ranking model in both ways: `model.export()`, and `tf.saved_model.save` after Adam.

    python make_keras.py OUT_DIR        # makes OUT_DIR/export and OUT_DIR/save

Inputs user and item int64 [batch, 1]; 25.6 MB of parameters, nearly all in two embedding tables.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import keras
import numpy as np
import tensorflow as tf

USERS, ITEMS, DIM = 300_000, 95_000, 16


def main(out: str) -> None:
    """Fit for one step, so that Adam has its slots, and export twice."""
    keras.utils.set_random_seed(0)
    user = keras.Input([1], dtype="int64", name="user")
    item = keras.Input([1], dtype="int64", name="item")
    rows = [
        keras.layers.Flatten()(keras.layers.Embedding(count, DIM, name=name)(source))
        for source, count, name in ((user, USERS, "users"), (item, ITEMS, "items"))
    ]
    hidden = keras.layers.Dense(128, activation="relu")(keras.layers.Concatenate()(rows))
    hidden = keras.layers.Dropout(0.2)(keras.layers.BatchNormalization()(hidden))
    score = keras.layers.Dense(1, activation="sigmoid", name="score")(hidden)
    model = keras.Model([user, item], score)
    model.compile("adam", "binary_crossentropy")
    random = np.random.default_rng(0)
    data = [random.integers(0, count, (64, 1)) for count in (USERS, ITEMS)]
    model.fit(data, random.integers(0, 2, (64, 1)), verbose=0)
    model.export(os.path.join(out, "export"), verbose=False)
    tf.saved_model.save(model, os.path.join(out, "save"))


if __name__ == "__main__":
    main(sys.argv[1])
