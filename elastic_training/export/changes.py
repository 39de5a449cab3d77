# SPDX-License-Identifier: Apache-2.0
"""Changes of a table: rows by key, and keys that are gone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[Any]


@dataclass(frozen=True)
class Changes:
    """What changed in a table.

    Attributes
    ----------
    keys : ndarray [n] int64 or object (bytes)
        Ascending.
    rows : ndarray [n, dim] float32
    gone : ndarray [m] int64 or object (bytes)
        Ascending keys that have no row any more; none of them is in `keys`.
    """

    keys: Keys
    rows: NDArray[np.float32]
    gone: Keys

    @classmethod
    def of(cls, keys: Keys, rows: NDArray[np.float32], gone: Keys) -> Changes:
        """Return changes whose keys come in any order; keys that are gone may repeat, or be back among `keys`."""
        order = np.argsort(keys, kind="stable")
        ascending, gone = keys[order], np.unique(gone)
        return cls(ascending, rows[order], gone[~is_in(gone, ascending)])

    def __bool__(self) -> bool:
        return bool(len(self.keys) or len(self.gone))

    def then(self, later: Changes) -> Changes:
        """Return these changes and later ones as one."""
        keys = np.concatenate([self.keys, later.keys])
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        # The last of equal keys is the later one.
        last = np.ones(len(order), bool)
        last[:-1] = ordered[1:] != ordered[:-1]
        chosen = order[last]
        chosen = chosen[~is_in(keys[chosen], later.gone)]
        gone = np.concatenate([self.gone[~is_in(self.gone, later.keys)], later.gone])
        gone = np.sort(gone, kind="stable")
        first = np.ones(len(gone), bool)
        first[1:] = gone[1:] != gone[:-1]
        return Changes(keys[chosen], np.concatenate([self.rows, later.rows])[chosen], gone[first])

    def since(self, before: Changes) -> Changes:
        """Return what leads from the rows of `before` to those of this, if each has all rows of a table."""
        place = np.searchsorted(before.keys, self.keys)
        known = is_in(self.keys, before.keys)
        same = np.zeros(len(self.keys), bool)
        mine, theirs = self.rows[known], before.rows[place[known]]
        # Bits are compared, since 0 and -0 are different rows.
        same[known] = (mine.view(np.uint32) == theirs.view(np.uint32)).all(axis=1)
        return Changes(self.keys[~same], self.rows[~same], before.keys[~is_in(before.keys, self.keys)])


def is_in(keys: Keys, ascending: Keys) -> NDArray[np.bool_]:
    """Return which keys [n] are in an ascending array [m]."""
    if not len(ascending):
        return np.zeros(len(keys), bool)
    place = np.minimum(np.searchsorted(ascending, keys), len(ascending) - 1)
    return np.asarray(ascending[place] == keys, bool)
