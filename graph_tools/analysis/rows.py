# SPDX-License-Identifier: Apache-2.0
"""Find the tensors with a row for each row of a request, their side, and the nodes that compute rows independently."""

from __future__ import annotations

from graph_tools.analysis.row_entries import entries_of, has_entries
from graph_tools.analysis.row_facts import ITEMS, ROWS, USER, Entries, RowFacts
from graph_tools.analysis.row_rules import SAME_SHAPE, rows_of, why_not
from graph_tools.analysis.symbolic_sizes import Rule, SizeFacts, Sizes
from graph_tools.graph import Node, Output, op_def, output_types

__all__ = ["ITEMS", "USER", "Rows"]


class Rows(RowFacts):
    """Follows rows from the inputs of a model to its outputs, in a snapshot of the graph."""

    def _rule(self, op: str) -> Rule | None:
        return _same if op in SAME_SHAPE else super()._rule(op)

    def _static(self, output: Output) -> Sizes | None:
        sizes = super()._static(output)
        if output in self.inputs and sizes and sizes[0].known is None:
            return (ROWS, *sizes[1:])
        return sizes

    def _follow(self, node: Node) -> None:
        super()._follow(node)
        given = [self.sides.get(source.node, frozenset()) for source in node.inputs if not self.is_free(source)]
        self.sides[node.name] = frozenset().union(*given)
        for output, side in self.inputs.items():
            if output.node == node.name:
                # A number that a client sends once is used for all rows.
                self.sides[node.name] |= {side} if self.of(output) != () else set()
                return
        if not self.sides[node.name] or self.value(node.output()) is not None:
            return
        if node.op == "IdentityN":
            self._shapes |= {node.output(port): self.of(source) for port, source in enumerate(node.inputs)}
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


def _same(shapes: SizeFacts, node: Node) -> Sizes | None:
    return shapes.of(node.inputs[0])
