# SPDX-License-Identifier: Apache-2.0
"""Describe the tables that lookups need: the rows of variables, with the keys that lead to them."""

from __future__ import annotations

import numpy as np

from graph_tools.model import Model
from graph_tools.recognition.lookups.numbers import Numbers, changed
from graph_tools.recognition.lookups.rows import dim_of
from graph_tools.recognition.lookups.tables import IDENTITY, ArrayIndex, DefaultRows, HashIndex, StoredRows, TableSource
from graph_tools.recognition.lookups.vocabularies import Vocabularies
from graph_tools.rewriting.outcome import Found, Outcome, Refused, value_of
from graph_tools.tensors import rows_per_chunk


class TableFinder:
    """Finds the tables of lookups, and checks that every key of a table leads to one of its rows."""

    def __init__(self, model: Model, vocabularies: Vocabularies) -> None:
        self.model, self.vocabularies = model, vocabularies
        self._fitting: dict[tuple[ArrayIndex, int], bool] = {}

    def of(self, rows: StoredRows, numbers: Numbers) -> Outcome[TableSource]:
        """Return the table that has some stored rows, and the keys from which their numbers are found."""
        dim = dim_of(rows)
        absent, span = numbers.absent, rows.count if numbers.span is None else numbers.span
        if rows.values.startswith(f"{IDENTITY}/"):
            beyond = isinstance(absent, DefaultRows) and absent.first >= rows.count
            absent, span = "zeros" if beyond or absent == "error" else absent, min(span, rows.count)
        if span > rows.count:
            return Refused(f"keys up to {span} for the {rows.count} rows of '{rows.values}'")
        if isinstance(absent, DefaultRows) and absent.first + absent.count > rows.count:
            if absent.count > 1:
                return Refused(f"default rows beyond the {rows.count} rows of '{rows.values}'")
            absent = "error"
        if not self._fits(numbers, rows.count):
            return Refused(f"an index leads beyond the {rows.count} rows of '{rows.values}'")
        if numbers.index is not None and rows.count != span:
            return Refused(f"{span} keys for '{rows.values}', expected an index without a range of keys")
        return Found(TableSource(rows, dim, span, numbers.index, absent))

    def _fits(self, numbers: Numbers, count: int) -> bool:
        """Return whether every number in an index is the number of a row."""
        index = numbers.index
        if isinstance(index, HashIndex):
            vocabulary = value_of(self.vocabularies.of(index.handle))
            assert vocabulary is not None
            if vocabulary.most < vocabulary.least:
                return True
            bounds = [changed(number, index.changes) for number in (vocabulary.least, vocabulary.most)]
            return bounds[0] >= 0 and bounds[1] < count
        return index is None or self._array_fits(index, count)

    def _array_fits(self, index: ArrayIndex, count: int) -> bool:
        if (index, count) not in self._fitting:
            tensor, left = self.model.variables[index.values], index.span
            fits = True
            for chunk in tensor.chunks(rows_per_chunk(tensor)):
                some = np.asarray(chunk[:left])
                present = some if index.absent is None else some[some != index.absent]
                fits = fits and not bool(((present < 0) | (present >= count)).any())
                left -= len(some)
            self._fitting[index, count] = fits
        return self._fitting[index, count]
