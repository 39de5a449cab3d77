# SPDX-License-Identifier: Apache-2.0
"""Replace the nodes that a RecEmbeddingGroup computes by this op."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graph_tools.graph import Output, dtype_of
from graph_tools.model import Model
from graph_tools.plans.embedding_parts import Column, Copy, Factor, GroupOutput, Key, Linear, Lookup
from graph_tools.plans.embedding_plan import EmbeddingPlan
from graph_tools.recognition.lookups.contents import table_spec
from graph_tools.recognition.lookups.groups import Group, Root
from graph_tools.recognition.lookups.pieces import KeySource, Part, Piece, static
from graph_tools.recognition.lookups.tables import TableSource
from graph_tools.recognition.lookups.vocabularies import Vocabularies
from graph_tools.rewriting.add_nodes import add_reshape
from graph_tools.tables.add_table import add_embedding_table

OP = "RecEmbeddingGroup"
_STRUCTURE = ("indices", "shape", "row_splits", "segment_ids", "rows")


class TableMaker:
    """Makes one node for each table, even if several groups look it up."""

    def __init__(self, model: Model, vocabularies: Vocabularies) -> None:
        self.model, self.vocabularies = model, vocabularies
        self._made: dict[TableSource, Output] = {}

    def handle(self, source: TableSource) -> Output:
        if source not in self._made:
            spec = table_spec(self.model, source, self.vocabularies)
            self._made[source] = add_embedding_table(self.model, f"{source.rows.values}/table", spec)
        return self._made[source]


class _Plan:
    """A plan, with features, tables and keys numbered in the order of their first use."""

    def __init__(self) -> None:
        self.features: dict[Output, int] = {}
        self.tables: dict[TableSource, int] = {}
        self.keys: dict[KeySource, int] = {}
        self.outputs: dict[tuple[object, ...], int] = {}
        self.made: list[GroupOutput] = []
        self.columns: list[Column] = []
        self.output_formulas: list[Output | None] = []
        self.column_formulas: list[Output | None] = []

    def output(self, piece: Piece) -> int:
        """Return the number of the output that has the columns of a piece, whatever their shape."""
        place = (piece.parts, piece.width, piece.initial, piece.sequence)
        if place not in self.outputs:
            number = self.outputs[place] = len(self.made)
            sequence = None if piece.sequence is None else self._key(piece.sequence)
            initial = None if piece.initial is None else tuple(map(float, piece.initial.read()))
            self.made.append(GroupOutput(piece.width, initial, sequence))
            self.output_formulas.append(None if piece.initial is None else piece.initial.formula)
            self.columns += [self._column(part, number) for part in piece.parts]
            self.column_formulas += [None if part.matrix is None else part.matrix.formula for part in piece.parts]
        return self.outputs[place]

    def feature(self, output: Output) -> int:
        return self.features.setdefault(output, len(self.features))

    def _key(self, source: KeySource) -> int:
        if source not in self.keys:
            self.feature(source.values)
            self.keys[source] = len(self.keys)
            for name in _STRUCTURE:
                if getattr(source, name) is not None:
                    self.feature(getattr(source, name))
        return self.keys[source]

    def _table(self, source: TableSource) -> int:
        return self.tables.setdefault(source, len(self.tables))

    def _column(self, part: Part, output: int) -> Column:
        if part.table is not None and part.key is not None:
            table = self._table(part.table)
            weights = None if part.weights is None else self.feature(part.weights)
            return Lookup(
                self._key(part.key),
                table,
                output,
                part.offset,
                combiner=part.combiner,
                weights=weights,
                positive_weights=part.positive_weights,
                empty=part.empty,
                accumulate=part.accumulate,
                factors=tuple(Factor(self._key(key), self._table(table)) for key, table in part.factors),
            )
        assert part.feature is not None
        feature = self.feature(part.feature)
        if part.matrix is not None:
            rows = tuple(tuple(map(float, row)) for row in part.matrix.read())
            return Linear(feature, output, part.offset, rows, part.accumulate)
        return Copy(feature, output, part.offset, part.width, part.accumulate)

    def plan(self) -> EmbeddingPlan:
        keys = []
        for source in self.keys:
            structure = {
                name: self.features[getattr(source, name)] for name in _STRUCTURE if getattr(source, name) is not None
            }
            keys.append(
                Key(
                    self.features[source.values],
                    source.layout,
                    ignore=source.ignore,
                    ignore_negative=source.ignore_negative,
                    steps=source.steps,
                    **structure,
                )
            )
        return EmbeddingPlan(tuple(self.made), tuple(keys), tuple(self.columns))


def emit(model: Model, group: Group, tables: TableMaker, name: str) -> dict[Output, Output]:
    """Add the node of a group, and return the output that replaces each tensor of the group.

    Raises
    ------
    UnreadableError
        The plan is inconsistent.
    """
    graph = model.graph
    plan = _Plan()
    numbers = [plan.output(root.piece) for root in group.roots]
    made = plan.plan()
    made.check(len(plan.features), [source.dim for source in plan.tables])
    handles = [tables.handle(source) for source in plan.tables]
    types = [dtype_of(graph, feature) for feature in plan.features]
    attrs = {"Tfeatures": types, "num_tables": len(handles), "num_outputs": len(plan.made), "plan": made.to_json()}
    node = graph.add(OP, [*plan.features, *handles], name=name, attrs=attrs)
    if model.live is not None:
        model.live.of_plans[node.name] = [*plan.output_formulas, *plan.column_formulas]
    return {
        root.output: _add_reshape_for(model, root, node.output(number))
        for root, number in zip(group.roots, numbers, strict=True)
    }


def _add_reshape_for(model: Model, root: Root, made: Output) -> Output:
    """Reshape an output of a group [batch, width] to the shape of the tensor that it replaces."""
    piece = root.piece
    if piece.sequence is not None or len(piece.shape) == 1:
        return made
    shape: Sequence[int] = [-1, *static(piece.shape)]
    return add_reshape(model.graph, made, np.float32, shape, f"{root.output.node}/shape")
