# SPDX-License-Identifier: Apache-2.0
"""The facts about the rows of tensors that the rules for ops use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from graph_tools.analysis.shapes import shapes
from graph_tools.analysis.symbolic_shapes import Size, SymbolicShapes
from graph_tools.graph import Output
from graph_tools.model import Model

#: The symbol for the number of rows of a request; no node has this name.
SYMBOL = ("", 0, 0)
ROWS = Size(1, (SYMBOL,))

USER, ITEMS = "user", "items"
Sides = frozenset[str]

PLACES, NUMBERS, VALUES = "places", "numbers of rows", "values"


@dataclass(frozen=True)
class Entries:
    """The meaning of a tensor that has an element or row for each entry.

    Attributes
    ----------
    kind : str
        `PLACES` [entries, dimensions], the first of which is the row number; `NUMBERS` of rows [entries]; `VALUES`
        [entries, ...] that depend only on the row.
    of : Output
        The places that list the entries.
    """

    kind: str
    of: Output


def is_multiple(size: Size) -> bool:
    """Return whether a size is the number of rows, exactly once, times other factors."""
    return size.symbols.count(SYMBOL) == 1


def is_number_of_rows(size: Size) -> bool:
    """Return whether a size is the number of rows itself."""
    return size == ROWS


class RowFacts(SymbolicShapes):
    """The facts about rows that rules query; `Rows` computes them.

    Parameters
    ----------
    model : Model
    user, items : iterable of Output
        The inputs of each side. All that are not scalars have the same number of rows.

    Attributes
    ----------
    sides : dict of str to frozenset
        By node: the sides from whose rows it is computed, `USER`, `ITEMS`, both or none.
    entries : dict of Output to Entries
        Tensors that have an entry for each of the values of a row.
    filled : dict of Output to Size
        Entries of which each row has at least one, and the number of rows.
    crossing : dict of str to str
        Nodes that are not known to compute each row independently, with the reason.
    """

    def __init__(self, model: Model, user: Iterable[Output], items: Iterable[Output]) -> None:
        shape_of = shapes(model)
        self.inputs = {output: side for outputs, side in ((items, ITEMS), (user, USER)) for output in outputs}
        self.sides: dict[str, Sides] = {}
        self.entries: dict[Output, Entries] = {}
        self.filled: dict[Output, Size] = {}
        self.crossing: dict[str, str] = {}
        super().__init__(model.graph, shape_of)

    def is_of(self, output: Output, *sides: str) -> bool:
        """Return whether an output has rows of these sides, or depends on their number."""
        return self.sides.get(output.node, frozenset()) == set(sides) and not self.is_free(output)

    def is_free(self, output: Output) -> bool:
        """Return whether an output is the same for any number of rows."""
        if not self.sides.get(output.node):
            return True
        value = self.value(output)
        return value is not None and not any(SYMBOL in size.symbols for size in value)

    def first(self, output: Output) -> Size | None:
        """Return the first size of a tensor of rows: their number, or a multiple if a row takes several places."""
        sizes = self.of(output)
        if not sizes or not is_multiple(sizes[0]) or any(SYMBOL in size.symbols for size in sizes[1:]):
            return None
        return sizes[0]

    def has_rows(self, output: Output) -> bool:
        """Return whether the first dimension of a tensor is the dimension of rows."""
        return self.first(output) == ROWS
