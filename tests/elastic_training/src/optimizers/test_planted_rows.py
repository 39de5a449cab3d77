# SPDX-License-Identifier: Apache-2.0
"""Group lasso finds which users have tastes: clicks of users, one in ten of whom were given a vector."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.elastic_training.optimizer_formulas import Setting
from helpers.elastic_training.optimizer_probe import Probe, config_of

USERS, DIM, BATCH, STEPS = 300, 8, 512, 600


def train(probe: Probe, tastes: NDArray[np.float64], rate: float) -> None:
    """Learn the users' vectors from clicks on items whose vectors are known, by logistic regression."""
    random = np.random.default_rng(1)
    for step in range(1, STEPS + 1):
        users = random.integers(0, USERS, BATCH)
        items = random.normal(0, 1, (BATCH, DIM))
        clicks = random.random(BATCH) < 1 / (1 + np.exp(-(tastes[users] * items).sum(axis=1)))
        error = 1 / (1 + np.exp(-(probe.weights[users] * items).sum(axis=1))) - clicks
        gradients = np.zeros((USERS, DIM))
        np.add.at(gradients, users, error[:, None] * items)
        rows = np.unique(users)
        probe.step(rows, gradients[rows], rate, step)


@pytest.mark.parametrize(
    ("setting", "rate"),
    [
        (Setting("sgd", l21=26.0), 0.01),
        (Setting("adagrad", l21=26.0), 0.1),
        (Setting("rowwise_adagrad", l21=26.0), 0.1),
        (Setting("adam", l21=26.0), 0.005),
        (Setting("ftrl", l21=26.0), 0.1),
    ],
    ids=lambda value: value.kind if isinstance(value, Setting) else "",
)
def test_users_without_a_taste_become_zero_rows(setting: Setting, rate: float, probe_library: Path) -> None:
    planted = np.arange(USERS) % 10 == 0
    tastes = np.random.default_rng(0).normal(0, 0.7, (USERS, DIM)) * planted[:, None]
    probe = Probe(probe_library, config_of(setting), np.zeros((USERS, DIM), np.float32))
    train(probe, tastes, rate)
    zero = ~probe.weights.any(axis=1)
    assert zero[~planted].mean() >= 0.97
    assert zero[planted].mean() <= 0.07
    kept = planted & ~zero
    angle = (probe.weights[kept] * tastes[kept]).sum(axis=1)
    cosine = angle / np.linalg.norm(probe.weights[kept], axis=1) / np.linalg.norm(tastes[kept], axis=1)
    assert np.median(cosine) > 0.9
