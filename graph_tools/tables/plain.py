# SPDX-License-Identifier: Apache-2.0
"""Find variables that are embedding tables: matrices of which the graph only gathers rows."""

from __future__ import annotations

from dataclasses import dataclass

from graph_tools.graph import Node, Output, attribute, constant
from graph_tools.live import LiveRows
from graph_tools.model import Model
from graph_tools.model.tables import PlannedTensor

_SEGMENTS = {"SparseSegmentMean", "SparseSegmentSqrtN", "SparseSegmentSum"}


def combines_rows(node: Node) -> bool:
    """Return whether a node sums rows of a table, such as `SparseSegmentSum(table, row numbers, segments)`."""
    return node.op.removesuffix("WithNumSegments") in _SEGMENTS


@dataclass(frozen=True)
class PlainTable:
    """A variable [n, dim] that is read by row number only.

    Attributes
    ----------
    handle : str
    gathers : tuple of str
        Nodes ResourceGather, GatherV2 and SparseSegmentSum, -Mean or -SqrtN, with or without a number of segments.
        Input 1 of each contains row numbers.
    reads : tuple of str
        Nodes between the handle and its GatherV2 or SparseSegment ops, ReadVariableOp and Identity, in order.
    """

    handle: str
    gathers: tuple[str, ...]
    reads: tuple[str, ...]

    def ids(self, model: Model) -> list[Output]:
        """Return the tensors of row numbers."""
        return [model.graph[name].inputs[1] for name in self.gathers]


def plain_tables(model: Model) -> tuple[list[PlainTable], list[tuple[str, str]]]:
    """Return the tables, and (variable, reason) for variables from which rows are gathered but which are not tables."""
    tables: list[PlainTable] = []
    refused: list[tuple[str, str]] = []
    written = model.written_variables()
    for handle in model.graph.of("VarHandleOp"):
        source = model.variables.get(handle.name)
        if source is None or isinstance(source, (PlannedTensor, LiveRows)):
            continue
        if source.dtype.kind not in "fV" or len(source.shape) != 2 or not all(source.shape):
            continue
        gathers, reads, other_use = _readers(model, handle)
        if not gathers:
            continue
        if handle.name in written:
            other_use = "the graph writes it"
        if other_use:
            refused.append((handle.name, other_use))
        else:
            tables.append(PlainTable(handle.name, tuple(gathers), tuple(reads)))
    return tables, refused


def _readers(model: Model, handle: Node) -> tuple[list[str], list[str], str]:
    """Return the nodes that gather rows, the reads between, and a description of any other use of the variable."""
    graph = model.graph
    gathers: list[str] = []
    reads: list[str] = []
    other_use = ""
    outputs = model.outputs()
    for user in graph.users(handle.name):
        if handle.name in user.controls:
            other_use = f"'{user.name}' waits for it"
        elif user.op == "ResourceGather":
            if attribute(user, "batch_dims", 0) or user.inputs[0] != handle.output():
                other_use = f"'{user.name}' gathers in batches"
            gathers.append(user.name)
        elif user.op == "ReadVariableOp":
            wrong = _follow(model, user, gathers, reads, outputs)
            other_use = other_use or wrong
        else:
            other_use = f"'{user.name}' ({user.op}) reads all of it"
    return gathers, reads, other_use


def _follow(model: Model, read: Node, gathers: list[str], reads: list[str], outputs: set[str]) -> str:
    """Collect the nodes that gather rows of a read value, and return a description of any other use of it."""
    graph, other_use = model.graph, ""
    reads.append(read.name)
    if read.name in outputs:
        other_use = "it is an output of the model"
    for user in graph.users(read.name):
        ids_too = any(source.node == read.name for source in user.inputs[1:])
        if read.name in user.controls:
            other_use = f"'{user.name}' waits for it"
        elif user.op == "Identity" and not user.controls:
            other_use = _follow(model, user, gathers, reads, outputs) or other_use
        elif ids_too or not (user.op == "GatherV2" or combines_rows(user)):
            other_use = f"'{user.name}' ({user.op}) reads all of it"
        elif combines_rows(user):
            gathers.append(user.name)
        else:
            axis = constant(graph, user.inputs[2])
            if axis is None or int(axis.reshape(())) not in (0, -2) or attribute(user, "batch_dims", 0):
                other_use = f"'{user.name}' gathers along another axis than the first"
            gathers.append(user.name)
    return other_use
