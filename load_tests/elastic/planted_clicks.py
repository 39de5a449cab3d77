# SPDX-License-Identifier: Apache-2.0
"""Generate clicks of users, a few of whom have tastes: the others click as the average user does.

A model needs rows for the users with tastes alone, and the truth says which these are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Clicks", "PlantedClicks", "auc"]

Floats = NDArray[np.floating[Any]]
# An odd number: keys are as spread as hashes are, and different.
_KEY_STEP = 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class Clicks:
    """Samples in the order of time.

    Parameters
    ----------
    users : ndarray [n] int64
        Keys of users.
    items : ndarray [n] int64
    clicked : ndarray [n] float32
        0 or 1.
    chance : ndarray [n] float32
        The probability of the click.
    """

    users: NDArray[np.int64]
    items: NDArray[np.int64]
    clicked: NDArray[np.float32]
    chance: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.users)


class PlantedClicks:
    """A population of users and items, from which samples are drawn.

    The logit of a click is the item's appeal; a user with tastes adds an inclination of their own, and the product of
    their taste with the item's properties. Users with tastes are as a rule more active, as regular visitors are, but
    activities vary so much (lognormal) that some of them are rare, and many of the
    others are not.

    Parameters
    ----------
    users : int
    items : int
    seed : int
    share : float
        Share of the users with tastes.
    activity : float
        Mean number of samples of a user without tastes (times 1.0).
    boost : float
        How many times as active users with tastes are.
    properties : int
        Length of a taste.
    spread : float
        Standard deviation of the logarithm of a user's activity.
    """

    def __init__(
        self,
        users: int,
        items: int = 1000,
        seed: int = 0,
        *,
        share: float = 0.07,
        activity: float = 5.0,
        boost: float = 15.0,
        properties: int = 3,
        spread: float = 1.0,
    ) -> None:
        self._random = random = np.random.default_rng([seed, users, items])
        self.planted = random.random(users) < share
        activities = random.lognormal(-spread * spread / 2, spread, users) * activity
        self._activity = activities * np.where(self.planted, boost, 1.0)
        self._tastes = random.normal(0, 1.5, (users, properties)).astype(np.float32) * self.planted[:, None]
        self._inclination = random.normal(0, 1.5, users).astype(np.float32) * self.planted
        self._properties = random.normal(0, 1, (items, properties)).astype(np.float32)
        self._appeal = random.normal(-1.5, 0.6, items).astype(np.float32)
        popularity = np.arange(1, items + 1) ** -0.8
        self._popularity = np.cumsum(popularity) / popularity.sum()

    def keys(self, users: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """Return the keys of users by their numbers."""
        return ((users.astype(np.uint64) + 1) * np.uint64(_KEY_STEP)).view(np.int64)

    def draw(self, share: float = 1.0) -> Clicks:
        """Draw samples: Poisson numbers for each user, with `share` of the user's activity as the mean, shuffled."""
        random = self._random
        users = np.repeat(np.arange(len(self.planted)), random.poisson(self._activity * share))
        random.shuffle(users)
        items = np.searchsorted(self._popularity, random.random(len(users)))
        logits = self._appeal[items] + self._inclination[users]
        logits += np.einsum("nk,nk->n", self._tastes[users], self._properties[items])
        chance = 1 / (1 + np.exp(-logits))
        clicked = (random.random(len(users)) < chance).astype(np.float32)
        return Clicks(self.keys(users), items.astype(np.int64), clicked, chance.astype(np.float32))


def auc(scores: Floats, clicked: Floats) -> float:
    """Return the area under the ROC curve; ties count half."""
    order = np.argsort(scores, kind="stable")
    sorted_scores = scores[order]
    bounds = np.flatnonzero(np.r_[True, sorted_scores[1:] != sorted_scores[:-1], True])
    ranks = np.repeat((bounds[:-1] + bounds[1:] + 1) / 2, np.diff(bounds))
    positive = clicked[order] > 0.5
    count = int(positive.sum())
    return float((ranks[positive].sum() - count * (count + 1) / 2) / (count * (len(scores) - count)))
