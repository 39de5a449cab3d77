# SPDX-License-Identifier: Apache-2.0
"""The record of a converted table: where its rows were, and under which names they are now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from graph_tools.model.tables import SparseTable
from graph_tools.tensors import Array


@dataclass(frozen=True)
class Reach:
    """The integers between two ends, both included; None: the end is not known."""

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
        """Return the smallest range that contains both."""
        low = None if self.low is None or other.low is None else min(self.low, other.low)
        high = None if self.high is None or other.high is None else max(self.high, other.high)
        return Reach(low, high)


EVERYTHING = Reach()


@dataclass(frozen=True)
class StoredTable:
    """A table, as it was exported and as it is stored.

    Attributes
    ----------
    source : SparseTable
        The original table. Keys are int64 or strings, as in lookups; for a plain variable, they are row numbers.
    reach : Reach
        Keys that the graph can look up: only these must have their rows.
    plain : bool
        Whether this is a variable and not a sparse table.
    layout, share, row_type : str
        As in `TablePlan`.
    names : mapping of str to str
        Handles by part: `rows`, or `codes` and `scale_bias`; `index`; `table`.
    low : int
        Key of row 0, if keys are not hashed.
    stored : int
        Number of rows with keys; with `has_zero_row`, the last one has zeros. The rows of absent keys come after them.
    has_zero_row : bool
    absent : int
        Number of rows of absent keys.
    missing : int
        The number in an index that marks an absent key.
    has_gaps : bool
        Whether some keys between the smallest and the largest one are absent.
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
