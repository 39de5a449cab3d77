# SPDX-License-Identifier: Apache-2.0
"""Which row numbers or keys a graph can ask a table for, as far as its ops prove it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graph_tools.graph import Output
from graph_tools.model import Model
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


def reachable(model: Model, outputs: list[Output]) -> Reach:
    """Return what integer tensors can hold in any request, all of them together.

    A hash of strings into n buckets ends at n - 1, a remainder below its divisor, and a table's lookup gives the values
    that the table is filled with, or its default.
    """
    # Late, since the passes import this package.
    from graph_tools.analysis.ranges import RangeFinder

    finder = RangeFinder(model)
    found: Reach | None = None
    for output in outputs:
        one = Reach(*finder.of(output))
        found = one if found is None else found.union(one)
    return found or EVERYTHING
