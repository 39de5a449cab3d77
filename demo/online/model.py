# SPDX-License-Identifier: Apache-2.0
"""Define a click model without vocabularies: strings, and pairs of strings, have rows once they occur."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

import elastic_training as et
from demo.movielens import FEATURES

Tensor = Any

DIM = 8
#: Lists of values are joined by "|"; their rows, and those of pairs with them, are averaged.
LISTS = ("genres",)
PAIRS = (("user_id", "genres"), ("occupation", "item_id"), ("age_band", "item_id"), ("gender", "item_id"))
HIDDEN = (32, 16)
#: A row's gradient is its part of the mean over a batch: beside Keras' accumulator of 0.1, rows would hardly move.
ADAGRAD: dict[str, Any] = {"learning_rate": 0.1, "initial_accumulator": 1e-4}
_DENSE_RATE = 2e-3


class Ranker(tf.Module):  # type: ignore[misc]
    """Compute the probability of a click: a ReLU tower over the rows of values and of pairs of values."""

    def __init__(self, optimizer: Any = None, seed: int = 1) -> None:
        """Create an untrained model; `optimizer` trains its rows, Adagrad by default."""
        super().__init__(name="ranker")
        names = [*FEATURES, *(_pair_name(pair) for pair in PAIRS)]
        self.rows = et.FeatureEmbeddingsModule(
            {name: et.Feature(combiner="mean" if LISTS[0] in name else None) for name in names},
            dim=DIM,
            optimizer=optimizer or et.Adagrad(**ADAGRAD),
            # Rows of keys that are met once or twice should say little.
            embeddings_initializer=et.Uniform(-0.003, 0.003),
        )
        random = tf.random.Generator.from_seed(seed)
        self.kernels, self.biases, width = [], [], DIM * len(names)
        for layer, units in enumerate((*HIDDEN, 1)):
            kernel = random.normal([width, units], stddev=(2.0 / width) ** 0.5)
            self.kernels.append(tf.Variable(kernel, name=f"kernel_{layer}"))
            self.biases.append(tf.Variable(tf.zeros([units]), name=f"bias_{layer}"))
            width = units

    def logits(self, features: Mapping[str, Tensor], training: bool) -> Tensor:
        """Return log-odds [batch] float32 for features [batch] string."""
        values = {name: tf.strings.split(features[name], "|") if name in LISTS else features[name] for name in FEATURES}
        values |= {_pair_name((left, right)): _pair(values[left], values[right]) for left, right in PAIRS}
        hidden = tf.concat(list(self.rows(values, training=training).values()), axis=1)
        for layer, (kernel, bias) in enumerate(zip(self.kernels, self.biases, strict=True)):
            hidden = tf.nn.bias_add(tf.matmul(hidden, kernel), bias)
            if layer < len(HIDDEN):
                hidden = tf.nn.relu(hidden)
        return tf.squeeze(hidden, axis=1)

    def counts(self) -> tuple[int, int]:
        """Return the number of rows, and how many of them are all zero."""
        stats = [table.stats() for table in self.rows.tables.values()]
        return sum(found["rows"] for found in stats), sum(found["zero_rows"] for found in stats)


def make_step(model: Ranker) -> Callable[[Mapping[str, Tensor], Tensor], Tensor]:
    """Return a function that learns one batch, and returns the probabilities [batch] that the model gave it before."""
    optimizer = tf.keras.optimizers.Adam(_DENSE_RATE)
    variables = model.trainable_variables
    optimizer.build(variables)

    @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
    def step(features: Mapping[str, Tensor], clicks: Tensor) -> Tensor:
        with tf.GradientTape() as tape:
            logits = model.logits(features, training=True)
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=clicks, logits=logits))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return tf.sigmoid(logits)

    learn: Callable[[Mapping[str, Tensor], Tensor], Tensor] = step
    return learn


def export(model: Ranker, folder: Path) -> None:
    """Write a SavedModel: `serving_default` takes each feature as [batch] string and returns `probability` [batch]."""
    et.export(
        model,
        folder,
        inputs={name: tf.TensorSpec([None], tf.string) for name in FEATURES},
        function=lambda features: {"probability": tf.sigmoid(model.logits(features, training=False))},
    )


def _pair(left: Tensor, right: Tensor) -> Tensor:
    """Join each value of `left` [batch] with the value, or with every value of the list, in `right`."""
    if not isinstance(right, tf.RaggedTensor):
        return tf.strings.join([left, right], "\x01")
    spread = tf.gather(left, right.value_rowids())
    return right.with_flat_values(tf.strings.join([spread, right.flat_values], "\x01"))


def _pair_name(pair: tuple[str, str]) -> str:
    return "_x_".join(pair)
