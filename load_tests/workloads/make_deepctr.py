# SPDX-License-Identifier: Apache-2.0
"""Train models of the DeepCTR package briefly, with the package's own code and Keras 2, and export them.

    python make_deepctr.py DEEPCTR_FOLDER OUT_DIR MODEL ...      # needs TensorFlow and tf-keras

MODEL is a key of `MODELS`, and is exported into OUT_DIR/MODEL. Inputs C0..C3 and hist are ids, city strings that the
model hashes, I0..I2 numbers; models of sequences take user, gender, item_id, cate_id, pay_score, the history
hist_item_id, hist_cate_id (0: padding) and its seq_length.

DIEN is missing: DeepCTR 0.9.4 uses functions for it that TensorFlow 2.13 removed.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

ROWS = 256
HISTORY = 20
UNITS = (64, 32)


class Recipe(NamedTuple):
    """Describe how a model is made: the name of its constructor, its features, and further arguments.

    `features` is "fields" for linear and deep features, "deep" for deep features only, "history" for deep features and
    the names of those with a history.
    """

    maker: str
    features: str = "fields"
    arguments: Mapping[str, Any] = MappingProxyType({})
    labels: int = 1


_DEEP: dict[str, Any] = {"dnn_hidden_units": UNITS, "dnn_dropout": 0.1}
_NORMED = _DEEP | {"dnn_use_bn": True}
_TASKS: dict[str, Any] = {"expert_dnn_hidden_units": UNITS, "tower_dnn_hidden_units": (16,)}

MODELS = {
    "DeepFM": Recipe("DeepFM", arguments=_NORMED),
    "WDL": Recipe("WDL", arguments=_DEEP),
    "DCN": Recipe("DCN", arguments=_NORMED),
    "DCNMatrix": Recipe("DCN", arguments=_NORMED | {"cross_num": 3, "cross_parameterization": "matrix"}),
    "xDeepFM": Recipe("xDeepFM", arguments=_DEEP | {"cin_layer_size": (32, 32)}),
    "AutoInt": Recipe("AutoInt", arguments=_DEEP | {"att_layer_num": 2}),
    "NFM": Recipe("NFM", arguments={"dnn_hidden_units": UNITS}),
    "PNN": Recipe("PNN", "deep", _DEEP | {"use_outter": True}),
    "PNNVector": Recipe("PNN", "deep", _DEEP | {"use_inner": False, "use_outter": True, "kernel_type": "vec"}),
    "DIN": Recipe("DIN", "history", _DEEP),
    "DINSoftmax": Recipe(
        "DIN",
        "history",
        _DEEP | {"att_hidden_size": (16, 8), "att_activation": "sigmoid", "att_weight_normalization": True},
    ),
    "BST": Recipe("BST", "history", _DEEP | {"att_head_num": 4}),
    "MMOE": Recipe("MMOE", "deep", _TASKS, labels=2),
    "PLE": Recipe("PLE", "deep", _TASKS, labels=2),
}


def main(package: str, out: str, *names: str) -> None:
    """Export models into folders below `out`."""
    sys.path.insert(0, package)
    # The package queries its registry for a newer version when it is imported.
    sys.modules.setdefault("requests", types.ModuleType("requests"))
    import deepctr.models
    import numpy as np
    import tensorflow as tf

    tf.keras.utils.set_random_seed(0)
    for name in names:
        recipe = MODELS[name]
        random = np.random.default_rng(0)
        columns, data = _histories(random) if recipe.features == "history" else _fields(random, recipe.features)
        model = getattr(deepctr.models, recipe.maker)(*columns, **recipe.arguments)
        # A high rate, so that short training has a visible effect on scores.
        model.compile(tf.keras.optimizers.Adam(0.02), "binary_crossentropy")
        labels = [random.integers(0, 2, ROWS) for _ in range(recipe.labels)]
        model.fit(data, labels if len(labels) > 1 else labels[0], verbose=0, batch_size=16)
        tf.saved_model.save(model, os.path.join(out, name))


def _fields(random: Any, kind: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    import numpy as np
    from deepctr.feature_column import DenseFeat, SparseFeat, VarLenSparseFeat

    features = [SparseFeat(f"C{i}", vocabulary_size=100 * (i + 1), embedding_dim=8) for i in range(4)]
    features += [DenseFeat(f"I{i}", 1) for i in range(3)]
    features.append(SparseFeat("city", vocabulary_size=50, embedding_dim=8, use_hash=True, dtype="string"))
    features.append(
        VarLenSparseFeat(SparseFeat("hist", vocabulary_size=60, embedding_dim=8), maxlen=5, combiner="mean")
    )
    data = {f"C{i}": random.integers(0, 100 * (i + 1), ROWS) for i in range(4)}
    data |= {f"I{i}": random.normal(size=ROWS).astype(np.float32) for i in range(3)}
    data["city"] = np.array([b"city %d" % i for i in random.integers(0, 30, ROWS)], object)
    data["hist"] = random.integers(0, 60, (ROWS, 5))
    return ((features,) if kind == "deep" else (features, features)), data


def _histories(random: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    import numpy as np
    from deepctr.feature_column import DenseFeat, SparseFeat, VarLenSparseFeat

    sizes = {"item_id": 500, "cate_id": 40}
    features: list[Any] = [SparseFeat("user", 300, embedding_dim=8), SparseFeat("gender", 3, embedding_dim=8)]
    features += [SparseFeat(name, size + 1, embedding_dim=16) for name, size in sizes.items()]
    features.append(DenseFeat("pay_score", 1))
    data = {"user": random.integers(0, 300, ROWS), "gender": random.integers(0, 3, ROWS)}
    data |= {"pay_score": random.uniform(size=ROWS).astype(np.float32)}
    lengths = random.integers(1, HISTORY + 1, ROWS)
    for name, size in sizes.items():
        feature = SparseFeat(f"hist_{name}", size + 1, embedding_dim=16, embedding_name=name)
        features.append(VarLenSparseFeat(feature, maxlen=HISTORY, length_name="seq_length"))
        data[name] = random.integers(1, size + 1, ROWS)
        data[f"hist_{name}"] = random.integers(1, size + 1, (ROWS, HISTORY)) * (np.arange(HISTORY) < lengths[:, None])
    data["seq_length"] = lengths
    return (features, list(sizes)), data


if __name__ == "__main__":
    main(*sys.argv[1:])
