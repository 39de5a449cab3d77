# SPDX-License-Identifier: Apache-2.0
"""Filters in native tables, against references in NumPy."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import elastic_training as et
from elastic_training.reports.trial_table import TrialTable

BATCH = 100


def stream(length: int = 20_000, keys: int = 5_000) -> np.ndarray:
    return (np.random.default_rng(4).random(length) ** 3 * keys).astype(np.int64)


def test_exact_count_admits_at_the_threshold() -> None:
    table, seen = TrialTable(et.CountFilter(4)), Counter[int]()
    for keys in stream().reshape(-1, BATCH):
        # A key that reaches the threshold within a batch has a row for all of it.
        seen.update(keys.tolist())
        expected = np.array([seen[key] >= 4 for key in keys.tolist()])
        np.testing.assert_array_equal(table.meet(keys), expected)
    assert table.stats()["candidates"] == sum(count < 4 for count in seen.values())
    assert sorted(table.keys()) == sorted(key for key, count in seen.items() if count >= 4)


def test_counting_filter_ages_as_integers_that_halve() -> None:
    half_life = 2_000
    filtered = et.CountingFilter(4, expected_keys=5_000, half_life_occurrences=half_life)
    table, counts, ages = TrialTable(filtered), Counter[int](), dict[int, int]()
    admitted = set[int]()
    differing = 0
    for batch, keys in enumerate(stream().reshape(-1, BATCH)):
        age = batch * BATCH // half_life
        for key, times in Counter(keys.tolist()).items():
            counts[key] = (counts[key] >> min(age - ages.get(key, age), 4)) + times
            ages[key] = age
            if counts[key] >= 4:
                admitted.add(key)
        differing += int((table.meet(keys) != np.isin(keys, list(admitted))).sum())
    assert len(admitted) > 200
    # Keys that share a count, 0.5 % at the expected number of keys, and what they are admitted too early for.
    assert differing < 0.02 * 20_000
    assert table.stats()["filter_bytes"] * 8 / 5_000 <= 24


def test_published_poisson_filter_draws_with_its_probability() -> None:
    horizon, batches = 100_000, 20
    table = TrialTable(et.PoissonFilter(5, horizon=horizon, prior="none"), seed=7)
    table.meet(np.full(20_000, -1))
    expected = admitted = 0.0
    for batch in range(batches):
        keys = np.arange(batch * 2_000, (batch + 1) * 2_000)
        position = 20_000 + batch * 2_000
        mean = (horizon - position) / position
        expected += keys.size * (1 - np.exp(-mean) * sum(mean**i / np.prod(np.arange(1, i + 1)) for i in range(4)))
        admitted += table.meet(keys).sum()
    assert expected > 2_000
    assert admitted == pytest.approx(expected, abs=4 * np.sqrt(expected))
    assert table.stats()["filter"]["admitted_early"] == admitted


def test_sketches_of_string_keys() -> None:
    table = TrialTable(et.CountingFilter(2, expected_keys=100), key="string")
    assert not table.meet(["a", "b"]).any()
    assert table.meet(["a", "c", "a"]).tolist() == [True, False, True]
    assert sorted(table.keys()) == [b"a"]
