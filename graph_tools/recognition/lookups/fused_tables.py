# SPDX-License-Identifier: Apache-2.0
"""Find the tables that `fuse` would make of the lookups of a model, without changing it."""

from __future__ import annotations

from collections.abc import Iterator

from graph_tools.model import Model
from graph_tools.recognition.lookups.contents import table_spec
from graph_tools.recognition.lookups.groups import find_groups
from graph_tools.recognition.lookups.piece_finder import PieceFinder
from graph_tools.store.spec import TableSpec


def fused_tables(model: Model) -> Iterator[tuple[str, TableSpec]]:
    """Yield the handle of the rows and the content of each table.

    Raises
    ------
    ConversionError
        The content of a hash table has changed.
    """
    finder = PieceFinder(model)
    parts = [part for group in find_groups(finder) for root in group.roots for part in root.piece.parts]
    found = [table for part in parts for table in (part.table, *(table for _, table in part.factors))]
    for source in dict.fromkeys(table for table in found if table is not None):
        yield source.rows.values, table_spec(model, source, finder.lookups.vocabularies)
