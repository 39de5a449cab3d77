# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import keras
import pytest

import elastic_training as et
from elastic_training.initializers import Initializer


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("uniform", et.Uniform(-0.05, 0.05)),
        ("zeros", et.Zeros()),
        (keras.initializers.RandomUniform(-1.0, 2.0), et.Uniform(-1.0, 2.0)),
        (keras.initializers.RandomNormal(stddev=0.5), et.Normal(0.5)),
        (keras.initializers.TruncatedNormal(stddev=0.5), et.TruncatedNormal(0.5)),
        (keras.initializers.Constant(3.0), et.Constant(3.0)),
        (keras.initializers.Ones(), et.Constant(1.0)),
        ({"kind": "normal", "stddev": 2.0}, et.Normal(2.0)),
    ],
)
def test_initializers_of_keras_are_taken(value: Any, expected: Initializer) -> None:
    assert Initializer.of(value) == expected


@pytest.mark.parametrize(
    "value", ["glorot", keras.initializers.RandomNormal(mean=1.0), keras.initializers.GlorotUniform(), 0.5]
)
def test_other_initializers_are_refused_by_name(value: Any) -> None:
    with pytest.raises(ValueError, match=r"embeddings_initializer: .*expected one of Constant, Normal"):
        Initializer.of(value)
