# SPDX-License-Identifier: Apache-2.0
"""Forecasts, against what training with the same settings makes of the tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import elastic_training as et
from elastic_training.reports.forecast import AS_CONFIGURED, EVERY_KEY
from elastic_training.reports.tier_split import split_rows

LENGTH, BATCH = 8_000, 200


def batches(dtype: Any = np.int64) -> tf.data.Dataset:
    random = np.random.default_rng(1)
    keys = (random.random((LENGTH, 2)) ** 4 * 6_000).astype(np.int64)
    features = keys if dtype is np.int64 else np.char.add("item ", keys.astype(str))
    labels = random.random((LENGTH, 1)).astype(np.float32)
    return tf.data.Dataset.from_tensor_slices((features, labels)).batch(BATCH)


def make_model(admit: Any, dim: int = 8, dtype: str = "int64", **options: Any) -> keras.Model:
    keys = keras.Input((2,), dtype=dtype)
    rows = et.HashEmbedding(dim, et.Adam(0.01), admit, combiner="sum", name="items", **options)(keys)
    model = keras.Model(keys, keras.layers.Dense(1)(rows))
    model.compile("sgd", "mse")
    return model


@pytest.mark.parametrize("dtype", ["int64", "string"])
def test_forecast_is_what_training_makes(dtype: str) -> None:
    dataset = batches(np.int64 if dtype == "int64" else str)
    settings: dict[str, Any] = {"poisson": et.PoissonFilter(5, horizon=2 * LENGTH)}
    if dtype == "int64":
        settings |= {"twice": et.CountFilter(2), "sketch": et.CountingFilter(3, expected_keys=4_000)}
    model = make_model(et.CountFilter(4), dtype=dtype)
    found = et.forecast(dataset, model, settings)
    # The forecast writes nothing.
    assert model.get_layer("items").table.stats()["rows"] == 0
    for label, admit in {AS_CONFIGURED: et.CountFilter(4), EVERY_KEY: et.AlwaysAdmit(), **settings}.items():
        trained = make_model(admit, dtype=dtype)
        trained.fit(dataset, verbose=0)
        stats = trained.get_layer("items").table.stats()
        one = found.of("items", label)
        assert one.rows == stats["rows"]
        assert one.candidates == stats["candidates"]
        assert one.bytes == pytest.approx(stats["used_bytes"], rel=0.01)
        assert one.occurrences == 2 * LENGTH


def test_forecast_counts_rare_and_frequent_keys() -> None:
    found = et.forecast(batches(), make_model(et.PoissonFilter(5, horizon=2 * LENGTH)), {"5": et.CountFilter(5)})
    keys, counts = np.unique(np.concatenate([keys for keys, _ in batches().as_numpy_iterator()]), return_counts=True)
    every, exact, poisson = (found.of("items", label) for label in (EVERY_KEY, "5", AS_CONFIGURED))
    assert every.keys == every.rows == keys.size
    assert every.rare_rows == (counts < 5).sum()
    assert every.trained_share == 1
    assert exact.rows == (counts >= 5).sum()
    assert exact.rare_rows == exact.frequent_without_row == 0
    assert 0 < poisson.rare_rows < 0.06 * (counts < 5).sum()
    assert exact.trained_share < poisson.trained_share < 1
    assert "as configured" in str(found)
    assert found.to_json()["settings"][0]["admission"]["kind"] == "poisson"


def test_a_sample_of_keys_estimates_all() -> None:
    settings = {"sketch": et.CountingFilter(3, expected_keys=4_000), "poisson": et.PoissonFilter(5, horizon=2 * LENGTH)}
    model = make_model(et.CountFilter(3))
    all_keys = et.forecast(batches(), model, settings)
    for dtype in (np.int64, str):
        kind = "int64" if dtype is np.int64 else "string"
        sampled = et.forecast(batches(dtype), make_model(et.CountFilter(3), dtype=kind), settings, sample=0.25)
        for label in (AS_CONFIGURED, EVERY_KEY, *settings):
            expected, found = all_keys.of("items", label), sampled.of("items", label)
            # Four standard errors.
            assert found.keys == pytest.approx(expected.keys, abs=4 * np.sqrt(3 * expected.keys))
            assert found.rows == pytest.approx(expected.rows, abs=4 * np.sqrt(3 * expected.rows) + 0.02 * expected.keys)


def test_forecast_of_features_in_a_module() -> None:
    features = et.FeatureEmbeddingsModule(
        {
            "user": et.Feature(4),
            "item": et.Feature(8, mask_zero=True),
            "seen": et.Feature(table="item", mask_zero=True),
        },
        optimizer=et.SGD(0.1),
    )

    @tf.function
    def model(inputs: Any) -> Any:
        return features(inputs)["user"]

    data = [{"user": tf.constant(["a", "b"]), "item": tf.constant([1, 2]), "seen": tf.constant([0, 1])}]
    found = et.forecast(data, model, {"twice": et.CountFilter(2)})
    assert found.of("item", EVERY_KEY).keys == 2
    assert found.of("item", "twice").rows == 1
    assert found.of("user", "twice").candidates == 2
    assert not tf.config.functions_run_eagerly()


def test_what_a_forecast_refuses() -> None:
    with pytest.raises(ValueError, match="sample is 0, expected a number above 0"):
        et.forecast(batches(), make_model(None), sample=0)
    with pytest.raises(ValueError, match="looked up no keys"):
        et.forecast([], make_model(None))
    found = et.forecast(batches().take(1), make_model(None), {})
    with pytest.raises(KeyError, match="expected one of"):
        found.of("items", "5 occurrences")


def test_rows_beyond_memory_are_forecast_on_ssd(tmp_path: Path) -> None:
    dataset = batches()
    asked = make_model(et.AlwaysAdmit(), 64, tiers=et.Tiers("1MiB", tmp_path / "asked"))
    one = et.forecast(dataset, asked, {}).of("items", AS_CONFIGURED)
    trained = make_model(et.AlwaysAdmit(), 64, tiers=et.Tiers("1MiB", tmp_path / "trained"))
    trained.fit(dataset, verbose=0)
    stats = trained.get_layer("items").table.stats()
    found = stats["tiers"]
    assert found["ssd_rows"] > 1000
    assert one.ssd_rows == pytest.approx(found["ssd_rows"], rel=0.1)
    assert one.bytes == pytest.approx(stats["used_bytes"], rel=0.1)
    assert one.rows == found["ssd_rows"] + found["memory_rows"]
    assert one.ssd_bytes >= one.ssd_rows * 4 * 64 * 3
    assert one.problem == ""


def test_what_fits_nowhere_is_said() -> None:
    tiers = et.Tiers("1MiB", "ssd", ssd_limit="2MiB")
    full = split_rows(tiers, "int64", 4e6, 4000, 16 + 4 * 192)
    assert full.problem.startswith("rows on SSD take up to")
    assert split_rows(tiers, "string", 5e6, 2000, 24 + 4 * 192).problem.startswith("keys and index take")
    assert split_rows(tiers, "int64", 1e6, 2000, 16 + 4 * 192) == split_rows(None, "int64", 1e6, 2000, 784)
