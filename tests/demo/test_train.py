# SPDX-License-Identifier: Apache-2.0
"""Check that the model of the demo learns, and that its export accepts strings."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from demo import train
from demo.movielens import FEATURES, Rows

ROWS = 1024


def make_rows() -> Rows:
    """Make rows whose clicks follow from gender and first genre."""
    random = np.random.default_rng(0)
    genders, genres = random.integers(0, 2, ROWS), random.integers(0, 3, ROWS)
    features = {name: np.array([b"%d" % value for value in random.integers(0, 20, ROWS)]) for name in FEATURES}
    features["gender"] = np.array([b"FM"[gender : gender + 1] for gender in genders])
    features["genres"] = np.array([[b"War|Drama", b"Comedy", b"Drama|Comedy|War"][genre] for genre in genres])
    return Rows(features, (genders == (genres == 1)).astype(np.float32))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Rows]:
    folder, rows = tmp_path_factory.mktemp("model"), make_rows()
    told: list[tuple[int, int]] = []
    model = train.train(rows, folder, lambda done, total: told.append((done, total)), epochs=15)
    train.export(model, folder / "1")
    assert told[-1] == (30, 30)
    return folder / "1", rows


def test_auc_of_known_orders() -> None:
    clicks = np.array([0, 0, 1, 1], np.float32)
    assert train.auc(clicks, np.array([0.1, 0.2, 0.3, 0.4], np.float32)) == 1.0
    assert train.auc(clicks, np.array([0.4, 0.3, 0.2, 0.1], np.float32)) == 0.0
    assert train.auc(clicks, np.array([0.5, 0.5, 0.5, 0.5], np.float32)) == 0.5
    assert train.auc(clicks, np.array([0.1, 0.3, 0.2, 0.4], np.float32)) == 0.75


def test_auc_refuses_one_class() -> None:
    with pytest.raises(ValueError, match="one class"):
        train.auc(np.ones(3, np.float32), np.zeros(3, np.float32))


def test_vocabularies_split_lists() -> None:
    found = train.vocabularies(make_rows())
    assert found["gender"] == [b"F", b"M"]
    assert found["genres"] == [b"Comedy", b"Drama", b"War"]


def test_exported_model_has_a_high_auc(exported: tuple[Path, Rows]) -> None:
    path, rows = exported
    scores = train.reference_scores(path, rows, lambda done, total: None, chunk=300)
    assert scores.shape == (ROWS,)
    assert train.auc(rows.clicks, scores) > 0.95


def test_exported_signature_takes_raw_strings(exported: tuple[Path, Rows]) -> None:
    signature = tf.saved_model.load(str(exported[0])).signatures["serving_default"]
    inputs = signature.structured_input_signature[1]
    assert {name: (spec.dtype, spec.shape.as_list()) for name, spec in inputs.items()} == {
        name: (tf.string, [None]) for name in FEATURES
    }
    assert {name: spec.dtype for name, spec in signature.structured_outputs.items()} == {"probability": tf.float32}


def test_values_never_seen_are_scored(exported: tuple[Path, Rows]) -> None:
    strange = {name: np.array([b"never seen", b"", b"a|b|\xff"]) for name in FEATURES}
    scores = train.reference_scores(exported[0], Rows(strange, np.zeros(3, np.float32)), lambda done, total: None)
    assert np.isfinite(scores).all()


def test_export_contains_no_optimizer_state(exported: tuple[Path, Rows]) -> None:
    names = [name for name, _ in tf.train.list_variables(str(exported[0] / "variables" / "variables"))]
    assert names
    assert not [name for name in names if "adam" in name.lower() or "momentum" in name.lower()]
