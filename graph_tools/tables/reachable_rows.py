# SPDX-License-Identifier: Apache-2.0
"""Find the row numbers or keys that a graph can look up in a table, as far as its ops prove it."""

from __future__ import annotations

from graph_tools.analysis.ranges import RangeFinder
from graph_tools.graph import Output
from graph_tools.model import Model
from graph_tools.model.stored_table import EVERYTHING, Reach


def reachable(model: Model, outputs: list[Output]) -> Reach:
    """Return the range of values that integer tensors can have in any request, for all tensors together.

    A hash of strings into n buckets is at most n - 1, and a remainder is below its divisor. A table's lookup returns
    the values in the table, or its default.
    """
    finder = RangeFinder(model)
    found: Reach | None = None
    for output in outputs:
        reach = Reach(*finder.of(output))
        found = reach if found is None else found.union(reach)
    return found or EVERYTHING
