# SPDX-License-Identifier: Apache-2.0
"""The analyses that the finders of lookups share."""

from __future__ import annotations

from graph_tools.analysis.batches import Batches
from graph_tools.analysis.ranges import RangeFinder
from graph_tools.model import Model
from graph_tools.recognition.lookups.entries import EntryFinder
from graph_tools.recognition.lookups.keys import KeyFinder
from graph_tools.recognition.lookups.masks import MaskFinder
from graph_tools.recognition.lookups.new_tables import TableFinder
from graph_tools.recognition.lookups.numbers import NumberFinder
from graph_tools.recognition.lookups.rows import RowFinder
from graph_tools.recognition.lookups.vocabularies import Vocabularies


class LookupAnalyses:
    """Analyses of a graph, which must not change meanwhile."""

    def __init__(self, model: Model, batches: Batches) -> None:
        self.graph, self.batches = model.graph, batches
        self.vocabularies = Vocabularies(model)
        self.keys = KeyFinder(batches, RangeFinder(model), self.vocabularies)
        self.numbers = NumberFinder(model, self.keys)
        self.masks = MaskFinder(self.keys, self.numbers)
        self.rows = RowFinder(model)
        self.entries = EntryFinder(batches, self.keys, self.numbers, self.masks)
        self.tables = TableFinder(model, self.vocabularies)


class LookupFinder:
    """The base of the finders of lookups."""

    def __init__(self, analyses: LookupAnalyses) -> None:
        self.graph, self.batches = analyses.graph, analyses.batches
        self.keys, self.numbers, self.masks = analyses.keys, analyses.numbers, analyses.masks
        self.rows, self.entries, self.tables = analyses.rows, analyses.entries, analyses.tables
