# SPDX-License-Identifier: Apache-2.0
"""Generate clicks that depend on 26 features with vocabularies from 50 to half a million ids, and on 13 numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from load_tests.elastic.setup import keys_of

__all__ = ["FEATURES", "NUMBERS", "PlantedFeatures", "Samples"]

FEATURES, NUMBERS = 26, 13


@dataclass(frozen=True)
class Samples:
    """Samples in batches.

    Attributes
    ----------
    dense : ndarray [batches, batch, NUMBERS] float32
    ids : ndarray [batches, batch, FEATURES] int64
        Position in the vocabulary of the feature, as a dense table needs it.
    clicked, chance : ndarray [batches, batch, 1] float32
        0 or 1, and its probability.
    """

    dense: NDArray[np.float32]
    ids: NDArray[np.int64]
    clicked: NDArray[np.float32]
    chance: NDArray[np.float32]

    def keys(self, feature: int) -> NDArray[np.int64]:
        """Return the keys of a feature [batches, batch] int64, as they come when there is no vocabulary."""
        return keys_of(self.ids[:, :, feature])


class PlantedFeatures:
    """A world from which samples are drawn; the logit is a sum of effects of ids and numbers.

    Parameters
    ----------
    largest : int
        Ids of the largest vocabulary; the sizes are a geometric series.
    """

    def __init__(self, largest: int, seed: int = 0) -> None:
        self._random = random = np.random.default_rng([seed, largest])
        self.sizes = np.geomspace(50, largest, FEATURES).astype(int)
        self._effects = [random.normal(0, 0.35, size).astype(np.float32) for size in self.sizes]
        self._weights = random.normal(0, 0.2, NUMBERS).astype(np.float32)

    def draw(self, batches: int, batch: int) -> Samples:
        """Draw samples, with ids that follow Zipf's law with an exponent of 1.05."""
        random, shape = self._random, (batches, batch)
        dense = random.normal(0, 1, (*shape, NUMBERS)).astype(np.float32)
        ids = np.empty((*shape, FEATURES), np.int64)
        logits: NDArray[Any] = dense @ self._weights - 1.5
        for feature, size in enumerate(self.sizes):
            sums = np.cumsum(np.arange(1, size + 1) ** -1.05)
            ids[:, :, feature] = np.searchsorted(sums, random.random(shape) * sums[-1])
            logits += self._effects[feature][ids[:, :, feature]]
        chance = (1 / (1 + np.exp(-logits))).astype(np.float32)
        clicked = (random.random(shape) < chance).astype(np.float32)
        return Samples(dense, ids, clicked[:, :, None], chance[:, :, None])
