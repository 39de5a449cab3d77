# SPDX-License-Identifier: Apache-2.0
"""Train models of the DeepCTR package for a moment, with the package's own code and Keras 2, and export them.

    python make_deepctr.py DEEPCTR_FOLDER OUT_DIR MODEL ...      # needs tf-keras beside TensorFlow

MODEL is DeepFM, WDL or DCN, and is exported into OUT_DIR/MODEL. Inputs C0..C3 and hist are ids, city strings that the
model hashes, I0..I2 numbers.
"""

from __future__ import annotations

import os
import sys
import types

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

ROWS = 256


def main(package: str, out: str, *names: str) -> None:
    """Export models into folders below `out`."""
    sys.path.insert(0, package)
    # It asks its registry for a newer version when it is imported.
    sys.modules.setdefault("requests", types.ModuleType("requests"))
    import deepctr.models
    import numpy as np
    import tensorflow as tf
    from deepctr.feature_column import DenseFeat, SparseFeat, VarLenSparseFeat

    tf.keras.utils.set_random_seed(0)
    features = [SparseFeat(f"C{i}", vocabulary_size=100 * (i + 1), embedding_dim=8) for i in range(4)]
    features += [DenseFeat(f"I{i}", 1) for i in range(3)]
    features.append(SparseFeat("city", vocabulary_size=50, embedding_dim=8, use_hash=True, dtype="string"))
    features.append(
        VarLenSparseFeat(SparseFeat("hist", vocabulary_size=60, embedding_dim=8), maxlen=5, combiner="mean")
    )
    random = np.random.default_rng(0)
    data = {f"C{i}": random.integers(0, 100 * (i + 1), ROWS) for i in range(4)}
    data |= {f"I{i}": random.normal(size=ROWS).astype(np.float32) for i in range(3)}
    data["city"] = np.array([b"city %d" % i for i in random.integers(0, 30, ROWS)], object)
    data["hist"] = random.integers(0, 60, (ROWS, 5))
    for name in names:
        more = {} if name == "WDL" else {"dnn_use_bn": True}
        model = getattr(deepctr.models, name)(features, features, dnn_hidden_units=(64, 32), dnn_dropout=0.1, **more)
        model.compile("adam", "binary_crossentropy")
        model.fit(data, random.integers(0, 2, ROWS), verbose=0, batch_size=64)
        tf.saved_model.save(model, os.path.join(out, name))


if __name__ == "__main__":
    main(*sys.argv[1:])
