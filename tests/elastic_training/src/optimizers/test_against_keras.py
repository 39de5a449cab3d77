# SPDX-License-Identifier: Apache-2.0
"""The plain steps against Keras' own optimizers, on rows that all get a gradient in every step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from helpers.elastic_training.optimizer_formulas import Setting
from helpers.elastic_training.optimizer_probe import Probe, config_of

CASES: list[tuple[Setting, Any]] = [
    (Setting("sgd"), lambda: keras.optimizers.SGD(0.05)),
    (Setting("adagrad"), lambda: keras.optimizers.Adagrad(0.05)),
    (Setting("adam"), lambda: keras.optimizers.Adam(0.05)),
    (Setting("adam", beta_1=0.5, beta_2=0.9), lambda: keras.optimizers.Adam(0.05, beta_1=0.5, beta_2=0.9)),
    (Setting("ftrl"), lambda: keras.optimizers.Ftrl(0.05)),
    (
        Setting("ftrl", learning_rate_power=-0.7, l1=0.02, l2=0.01, l2_shrinkage=0.1, beta=0.2),
        lambda: keras.optimizers.Ftrl(
            0.05,
            learning_rate_power=-0.7,
            l1_regularization_strength=0.02,
            l2_regularization_strength=0.01,
            l2_shrinkage_regularization_strength=0.1,
            beta=0.2,
        ),
    ),
]


@pytest.mark.parametrize(
    ("setting", "make"), CASES, ids=[f"{n}-{setting.kind}" for n, (setting, _) in enumerate(CASES)]
)
def test_plain_steps_are_those_of_keras(setting: Setting, make: Any, probe_library: Path) -> None:
    random = np.random.default_rng(0)
    weights = random.uniform(-0.05, 0.05, (6, 16)).astype(np.float32)
    variable, optimizer = keras.Variable(weights), make()
    probe = Probe(probe_library, config_of(setting), weights)
    for step in range(1, 101):
        gradients = random.normal(0.05, 0.5, weights.shape).astype(np.float32)
        optimizer.apply([gradients], [variable])
        probe.step(np.arange(6), gradients, 0.05, step)
    np.testing.assert_allclose(probe.weights, np.asarray(variable), rtol=2e-4, atol=2e-6)
