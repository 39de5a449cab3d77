# SPDX-License-Identifier: Apache-2.0
"""Generate serialized `tf.Example` messages for inputs that the graph parses itself."""

from __future__ import annotations

import numpy as np

from graph_tools.tensors import Array
from graph_tools.verification.domain import Domain
from graph_tools.verification.features import Feature
from graph_tools.verification.values import pools_of, strings


def example_strings(features: list[Feature], kind: str, rng: np.random.Generator, count: int) -> Array:
    """Return `count` serialized examples with these features and values of a kind; see `values`."""
    return strings([_example(features, kind, rng) for _ in range(count)])


def _example(features: list[Feature], kind: str, rng: np.random.Generator) -> bytes:
    import tensorflow as tf

    example = tf.train.Example()
    for feature in features:
        count = int(rng.integers(0, 4)) if feature.size is None else feature.size
        values = pools_of(feature.dtype, Domain()).draw(kind, rng, count)
        target = example.features.feature[feature.name]
        if feature.dtype == tf.string:
            target.bytes_list.value.extend(values.tolist())
        elif feature.dtype.is_integer:
            target.int64_list.value.extend(int(value) for value in values)
        else:
            target.float_list.value.extend(float(value) for value in values)
    serialized: bytes = example.SerializeToString()
    return serialized
