# SPDX-License-Identifier: Apache-2.0
"""`dlrm`: samples for each CPU-second of a DLRM with 26 features, beside dense tf-keras and the tower alone.

The tower is that of DeepRec's DLRM: numbers through 512-256-64-16, products of all pairs of rows, then 512-256-1.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from load_tests._report import Target
from load_tests.elastic.planted_clicks import auc
from load_tests.elastic.planted_features import FEATURES, NUMBERS, PlantedFeatures, Samples
from load_tests.elastic.rounds import alternate, ratio
from load_tests.elastic.setup import DIM, Setup

__all__ = ["FORMS", "build", "judge", "measure"]

#: Name, and whether it is built with Keras 3.
FORMS = {"elastic": True, "tower": True, "dense tf-keras": False, "dense Keras 3": True}
TIMES_DENSE, OF_TOWER, AUC_APART = 2.0, 0.7, 0.01
RATE, BATCH = 0.05, 2048
_NAMES = [f"feature_{number}" for number in range(FEATURES)]


def _tower(kit: Any, dense: Any, rows: list[Any]) -> Any:
    """Return the logit of numbers and rows [batch, DIM]; `kit` is keras or tf_keras."""
    import tensorflow as tf

    layers = kit.layers
    low = dense
    for units in (512, 256, 64, DIM):
        low = layers.Dense(units, "relu")(low)
    # Each pair once.
    first, second = np.triu_indices(FEATURES + 1, 1)
    pairs = (first * (FEATURES + 1) + second).astype(np.int32)

    def products(stacked: Any) -> Any:
        all_pairs = tf.reshape(tf.matmul(stacked, stacked, transpose_b=True), [-1, (FEATURES + 1) ** 2])
        return tf.gather(all_pairs, pairs, axis=1)

    one = layers.Reshape((1, DIM))
    parts = [one(low), *(row if len(row.shape) == 3 else one(row) for row in rows)]
    stacked = layers.Concatenate(axis=1)(parts)
    top = layers.Concatenate()([low, layers.Lambda(products, output_shape=(len(pairs),))(stacked)])
    for units in (512, 256):
        top = layers.Dense(units, "relu")(top)
    return layers.Dense(1)(top)


def build(form: str, sizes: Any) -> Any:
    """Return a compiled model.

    Parameters
    ----------
    form : str
        One of FORMS; "tower" takes ready rows instead of keys.
    sizes : sequence of int
        Sizes of the vocabularies, for dense tables.
    """
    if FORMS[form]:
        import keras as kit
    else:
        import tf_keras as kit
    kit.utils.set_random_seed(0)
    dense = kit.Input((NUMBERS,), name="numbers")
    inputs = {"numbers": dense}
    if form == "tower":
        inputs["rows"] = kit.Input((FEATURES, DIM), name="rows")
        rows = [inputs["rows"]]
    else:
        keys = {name: kit.Input((), dtype="int64", name=name) for name in _NAMES}
        inputs |= keys
        if form == "elastic":
            import elastic_training as et

            embed = et.FeatureEmbeddings({name: et.Feature() for name in _NAMES}, dim=DIM, optimizer=et.Adagrad(RATE))
            rows = list(embed(keys).values())
        else:
            rows = [kit.layers.Embedding(int(size), DIM)(keys[name]) for name, size in zip(_NAMES, sizes, strict=True)]
    model = kit.Model(inputs, _tower(kit, dense, rows))
    model.compile(kit.optimizers.Adagrad(RATE), kit.losses.BinaryCrossentropy(from_logits=True))
    return model


def _inputs(form: str, samples: Samples) -> dict[str, Any]:
    inputs: dict[str, Any] = {"numbers": samples.dense}
    if form == "tower":
        shape = (*samples.dense.shape[:2], FEATURES, DIM)
        return inputs | {"rows": np.random.default_rng(0).normal(0, 0.05, shape).astype(np.float32)}
    if form == "elastic":
        return inputs | {name: samples.keys(feature) for feature, name in enumerate(_NAMES)}
    return inputs | {name: samples.ids[:, :, feature] for feature, name in enumerate(_NAMES)}


def _score(form: str, model: Any, samples: Samples) -> float:
    """Return the AUC of a model."""
    inputs = {name: values.reshape(-1, *values.shape[2:]) for name, values in _inputs(form, samples).items()}
    scores = model.predict(inputs, batch_size=BATCH, verbose=0)[:, 0]
    return auc(scores, samples.clicked.ravel())


def measure(setup: Setup) -> dict[str, Any]:
    """Return samples per CPU-second of each form, and the AUCs after the rounds."""
    import tensorflow as tf

    world = PlantedFeatures(2_000 if setup.quick else 500_000)
    batches, rounds = (2, 2) if setup.quick else (16, 5)
    models = {form: build(form, world.sizes) for form in FORMS}
    learned = [world.draw(batches, BATCH) for _ in range(rounds + 1)]
    wall: dict[str, list[float]] = {form: [] for form in FORMS}

    def fit(form: str) -> Callable[[], float]:
        turns = iter(learned)

        def run() -> float:
            samples = next(turns)
            data = tf.data.Dataset.from_tensor_slices((_inputs(form, samples), samples.clicked))
            start, clock = time.process_time(), time.perf_counter()
            models[form].fit(data, verbose=0, shuffle=False)
            wall[form].append(batches * BATCH / (time.perf_counter() - clock))
            return batches * BATCH / (time.process_time() - start)

        return run

    runs = {form: fit(form) for form in FORMS}
    for run in runs.values():
        # The first traces the graph.
        run()
    speeds = alternate(runs, rounds)
    test = world.draw(2 if setup.quick else 10, BATCH)
    aucs = {form: _score(form, model, test) for form, model in models.items() if form != "tower"}
    return {
        "batch": BATCH,
        "rows": int(world.sizes.sum()),
        "auc": aucs | {"truth": auc(test.chance.ravel(), test.clicked.ravel())},
        "wrong": int(abs(aucs["elastic"] - aucs["dense tf-keras"]) > AUC_APART and not setup.quick),
        **speeds,
        "samples_per_s": {form: float(np.median(values[1:])) for form, values in wall.items()},
        "times": {form: ratio(speeds, "elastic", form) for form in FORMS if form != "elastic"},
    }


def judge(case: dict[str, Any]) -> list[Target]:
    """Return the targets."""
    return [
        Target("DLRM: times dense tf-keras", case["times"]["dense tf-keras"], TIMES_DENSE, at_least=True),
        Target("DLRM: share of the tower's speed", case["times"]["tower"], OF_TOWER, at_least=True),
    ]
