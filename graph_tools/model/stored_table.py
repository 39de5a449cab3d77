# SPDX-License-Identifier: Apache-2.0
"""What a conversion remembers of a table: where its rows were, and under which names they are now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from graph_tools.model.tables import SparseTable
from graph_tools.tensors import Array


@dataclass(frozen=True)
class Reach:
    """Integers between two ends that are included; None: no end is known."""

    low: int | None = None
    high: int | None = None

    @property
    def everything(self) -> bool:
        return self.low is None and self.high is None

    def holds(self, keys: Array) -> Array:
        """Return [n] bool for keys [n] int64."""
        inside = np.ones(len(keys), bool)
        if self.low is not None:
            inside &= keys >= self.low
        if self.high is not None:
            inside &= keys <= self.high
        return inside

    def union(self, other: Reach) -> Reach:
        """Return the smallest range that holds both."""
        low = None if self.low is None or other.low is None else min(self.low, other.low)
        high = None if self.high is None or other.high is None else max(self.high, other.high)
        return Reach(low, high)


EVERYTHING = Reach()


@dataclass(frozen=True)
class StoredTable:
    """A table as it was and as it is stored.

    Attributes
    ----------
    source : SparseTable
        Keys int64 or strings, as lookups ask for them; of a plain variable, the row numbers.
    reach : Reach
        Keys that the graph can ask for: only they have to have their rows.
    plain : bool
        A variable, not a sparse table.
    layout, share, row_type : str
        As in `TablePlan`.
    names : mapping of str to str
        Handles by part: `rows`, or `codes` and `scale_bias`; `index`; `table`.
    low : int
        Key of row 0, where keys are not hashed.
    stored : int
        Rows with keys; the last is of zeros where `has_zero_row`. Those of absent keys are behind them.
    has_zero_row : bool
    absent : int
        Rows of absent keys.
    missing : int
        What an index holds for a key that is absent.
    has_gaps : bool
        Between the smallest and the largest key, some are absent.
    """

    source: SparseTable
    reach: Reach
    plain: bool
    layout: str
    share: str
    row_type: str
    names: Mapping[str, str]
    low: int
    stored: int
    has_zero_row: bool
    absent: int
    missing: int
    has_gaps: bool
