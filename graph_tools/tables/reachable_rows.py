# SPDX-License-Identifier: Apache-2.0
"""Which row numbers or keys a graph can ask a table for, as far as its ops prove it."""

from __future__ import annotations

from graph_tools.analysis.ranges import RangeFinder
from graph_tools.graph import Output
from graph_tools.model import Model
from graph_tools.model.stored_table import EVERYTHING, Reach


def reachable(model: Model, outputs: list[Output]) -> Reach:
    """Return what integer tensors can hold in any request, all of them together.

    A hash of strings into n buckets ends at n - 1, a remainder below its divisor, and a table's lookup gives the values
    that the table is filled with, or its default.
    """
    finder = RangeFinder(model)
    found: Reach | None = None
    for output in outputs:
        one = Reach(*finder.of(output))
        found = one if found is None else found.union(one)
    return found or EVERYTHING
