# SPDX-License-Identifier: Apache-2.0
"""Which tensors have a row for each row of a request, whose they are, and which nodes act on each row alone."""

from __future__ import annotations

from collections.abc import Iterable

from graph_tools.analysis.row_entries import Entries, entries_of, has_entries
from graph_tools.analysis.row_rules import ROWS, SAME_SHAPE, SYMBOL, is_multiple, rows_of, why_not
from graph_tools.analysis.shapes import shapes
from graph_tools.analysis.symbolic_shapes import Rule, Size, Sizes, SymbolicShapes
from graph_tools.graph import Node, Output, op_def, output_types
from graph_tools.model import Model

USER, ITEMS = "user", "items"
Sides = frozenset[str]


class Rows(SymbolicShapes):
    """Follows rows from the inputs of a model to its outputs. A snapshot of the graph.

    Parameters
    ----------
    model : Model
    user, items : iterable of Output
        Inputs. All that are not scalars have the same number of rows.

    Attributes
    ----------
    sides : dict of str to frozenset
        By node: whose rows it is made from, `USER`, `ITEMS`, both or none.
    entries : dict of Output to Entries
        Tensors that have an entry for each of the values of a row.
    filled : dict of Output to Size
        Entries of which each row has one at least, and how many rows these are.
    crossing : dict of str to str
        Nodes that are not seen to act on each row alone, with the reason.
    """

    def __init__(self, model: Model, user: Iterable[Output], items: Iterable[Output]) -> None:
        shape_of = shapes(model)
        self.inputs = {one: side for outputs, side in ((items, ITEMS), (user, USER)) for one in outputs}
        self.sides: dict[str, Sides] = {}
        self.entries: dict[Output, Entries] = {}
        self.filled: dict[Output, Size] = {}
        self.crossing: dict[str, str] = {}
        super().__init__(model.graph, shape_of)

    def is_of(self, output: Output, *sides: str) -> bool:
        """Say whether an output has rows of these sides, or depends on how many they are."""
        return self.sides.get(output.node, frozenset()) == set(sides) and not self.is_free(output)

    def is_free(self, output: Output) -> bool:
        """Say whether an output is the same for any number of rows."""
        if not self.sides.get(output.node):
            return True
        value = self.value(output)
        return value is not None and not any(SYMBOL in one.symbols for one in value)

    def first(self, output: Output) -> Size | None:
        """Return the first size of a tensor of rows: their number, or a multiple where a row is several of it."""
        sizes = self.of(output)
        if not sizes or not is_multiple(sizes[0]) or any(SYMBOL in one.symbols for one in sizes[1:]):
            return None
        return sizes[0]

    def has_rows(self, output: Output) -> bool:
        """Say whether the first dimension of a tensor is that of rows."""
        return self.first(output) == ROWS

    def _rule(self, op: str) -> Rule | None:
        return _same if op in SAME_SHAPE else super()._rule(op)

    def _static(self, output: Output) -> Sizes | None:
        sizes = super()._static(output)
        if output in self.inputs and sizes and sizes[0].known is None:
            return (ROWS, *sizes[1:])
        return sizes

    def _follow(self, node: Node) -> None:
        super()._follow(node)
        given = [self.sides.get(one.node, frozenset()) for one in node.inputs if not self.is_free(one)]
        self.sides[node.name] = frozenset().union(*given)
        for output, side in self.inputs.items():
            if output.node == node.name:
                # A number that a client gives once counts for all rows.
                self.sides[node.name] |= {side} if self.of(output) != () else set()
                return
        if not self.sides[node.name] or self.value(node.output()) is not None:
            return
        if node.op == "IdentityN":
            self._shapes |= {node.output(port): self.of(one) for port, one in enumerate(node.inputs)}
            return
        if has_entries(self, node):
            found = entries_of(self, node)
        else:
            size = rows_of(self, node)
            found = None if size is None else dict.fromkeys(self._ports(node), size)
        if found is None:
            self.crossing[node.name] = why_not(node)
        for port, what in (found or {}).items():
            output = node.output(port)
            sizes = self.of(output)
            if isinstance(what, Entries):
                self.entries[output] = what
            elif sizes:
                self._shapes[output] = (what, *sizes[1:])

    def _ports(self, node: Node) -> range:
        described = op_def(node.op, self.graph.op_defs)
        return range(1 if described is None else len(output_types(described, node.attrs)))


def _same(shapes: SymbolicShapes, node: Node) -> Sizes | None:
    return shapes.of(node.inputs[0])
