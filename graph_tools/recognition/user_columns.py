# SPDX-License-Identifier: Apache-2.0
"""Split a product over columns of the user's side and of the items' side into a product for each side."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np

from graph_tools.analysis.rows import ITEMS, USER, Rows
from graph_tools.analysis.values import Values, is_float
from graph_tools.graph import Node, Output, attribute, dtype_of, skip
from graph_tools.live import contiguous
from graph_tools.model import Model
from graph_tools.rewriting.add_nodes import add_reshape, int32_scalar
from graph_tools.rewriting.add_weights import add_weight
from graph_tools.rewriting.sweep import sweep
from graph_tools.tensors import Array

_PRODUCTS = ("MatMul", "BatchMatMulV2", "BatchMatMulV3")
_VIEWS = {"ExpandDims", "Reshape", "Squeeze"}
_WHY = "the columns of the user and of the items are multiplied apart"


@dataclass(frozen=True)
class Columns:
    """A tensor of rows, and the columns of a matrix that its elements are.

    Attributes
    ----------
    output : Output
    numbers : ndarray of int, of the shape of one row
    """

    output: Output
    numbers: Array


@dataclass
class SplitProduct:
    """A product that can be split.

    Attributes
    ----------
    node : Node
    weights : Output
        Constant weights, before identities.
    user, others : list of Columns
    """

    node: Node
    weights: Output
    user: list[Columns]
    others: list[Columns]


def find_products(model: Model, rows: Rows) -> list[SplitProduct]:
    """Find the products with constant weights whose rows join the user's columns with others."""
    values, found = Values(model), []
    for node in model.graph.of(*_PRODUCTS):
        # A batched product uses weights of rank 2 as a MatMul does, so both kinds are handled alike.
        if not rows.is_of(node.inputs[0], USER, ITEMS) or not rows.is_free(node.inputs[1]) or node.controls:
            continue
        if not is_float(attribute(node, "T")) or attribute(node, "adj_x", False):
            continue
        shape, columns = _shape_of_weights(values, node.inputs[1]), _columns(rows, node.inputs[0])
        if shape is None or len(shape) != 2 or columns is None:
            continue
        user = [column for column in columns if rows.is_of(column.output, USER)]
        others = [column for column in columns if column not in user]
        if user and others:
            found.append(SplitProduct(node, node.inputs[1], user, others))
    return found


def _shape_of_weights(values: Values, output: Output) -> tuple[int, ...] | None:
    handle = values.handle(output)
    if handle is not None:
        return tuple(values.model.variables[handle].shape)
    constant = values.constant(output)
    return None if constant is None else constant.shape


def _columns(rows: Rows, output: Output) -> list[Columns] | None:
    """Split a tensor of rows into the tensors that it joins, in the order of its columns."""
    sizes = rows.of(output)
    if not rows.has_rows(output) or sizes is None or sizes[-1].known is None:
        return None
    if len(sizes) == 2:
        return _split_columns(rows, Columns(output, np.arange(sizes[-1].known)))
    return _split_last_dimension(rows, Columns(output, np.arange(sizes[-1].known)))


def _split_columns(rows: Rows, whole: Columns) -> list[Columns]:
    graph = rows.graph
    output = skip(graph, whole.output)
    node = graph[output.node]
    if not rows.is_of(output, USER, ITEMS) or node.controls:
        return [Columns(output, whole.numbers)]
    parts: list[Columns] = []
    if node.op in _VIEWS:
        shape = _row_shape(rows, node.inputs[0])
        if shape is not None:
            parts = [Columns(node.inputs[0], whole.numbers.reshape(shape))]
    elif node.op == "Pack":
        axis = attribute(node, "axis", 0) % (whole.numbers.ndim + 1)
        parts = [Columns(source, whole.numbers.take(i, axis - 1)) for i, source in enumerate(node.inputs)]
    elif node.op == "ConcatV2":
        parts = _concatenated(rows, node, whole.numbers)
    found = [leaf for part in parts for leaf in _split_columns(rows, part)]
    # A tensor may stay in one piece if nothing in it is the user's.
    return found if any(rows.is_of(column.output, USER) for column in found) else [Columns(output, whole.numbers)]


def _row_shape(rows: Rows, output: Output) -> tuple[int, ...] | None:
    sizes = rows.of(output) or ()
    if not rows.has_rows(output) or any(size.known is None for size in sizes[1:]):
        return None
    return tuple(size.number for size in sizes[1:])


def _concatenated(rows: Rows, node: Node, numbers: Array) -> list[Columns]:
    axis = (rows.numbers(node.inputs[-1]) or [0])[0] % (numbers.ndim + 1)
    shapes = [_row_shape(rows, source) for source in node.inputs[:-1]]
    if any(shape is None for shape in shapes):
        return []
    ends = np.cumsum([shape[axis - 1] for shape in shapes if shape is not None])
    parts = np.split(numbers, ends[:-1], axis - 1)
    return [Columns(source, part) for source, part in zip(node.inputs[:-1], parts, strict=True)]


def _split_last_dimension(rows: Rows, whole: Columns) -> list[Columns]:
    """Split tensors that are joined along the last of more than two dimensions."""
    graph = rows.graph
    output = skip(graph, whole.output)
    node, sizes = graph[output.node], rows.of(output) or ()
    axis = rows.numbers(node.inputs[-1]) if node.op == "ConcatV2" else None
    if axis is None or axis[0] % len(sizes) != len(sizes) - 1 or node.controls or not rows.is_of(output, USER, ITEMS):
        return [Columns(output, whole.numbers)]
    widths = [(rows.of(source) or sizes)[-1].known for source in node.inputs[:-1]]
    if any(width is None for width in widths) or not all(map(rows.has_rows, node.inputs[:-1])):
        return [Columns(output, whole.numbers)]
    parts = np.split(whole.numbers, np.cumsum([width or 0 for width in widths])[:-1])
    return [
        leaf
        for source, part in zip(node.inputs[:-1], parts, strict=True)
        for leaf in _split_last_dimension(rows, Columns(source, part))
    ]


class ProductSplitter:
    """Rewrites products; towers over the same columns share the nodes that join these.

    Parameters
    ----------
    model : Model
    rows : Rows
        The rows of the graph before the rewrite.
    """

    def __init__(self, model: Model, rows: Rows) -> None:
        self.model, self.graph, self.rows = model, model.graph, rows
        self.values = Values(model)
        self._joined: dict[tuple[Output, ...], Output] = {}
        self._weights: dict[tuple[Output, bool, bytes], Output] = {}

    def split(self, product: SplitProduct) -> None:
        """Replace a product by the sum of the product of the user's columns and the product of the others."""
        node, before = product.node, [source.node for source in product.node.inputs]
        terms = []
        for name, columns in (("user", product.user), ("items", product.others)):
            inputs = [self._join(node, columns, name), self._part(product, columns, name)]
            terms.append(self.graph.add(node.op, inputs, name=f"{node.name}/{name}", attrs=dict(node.attrs)).output())
        self.graph.become(node, "AddV2", terms, {"T": attribute(node, "T")})
        sweep(self.model, before, _WHY, give_way=True)

    def _join(self, node: Node, columns: list[Columns], name: str) -> Output:
        key = tuple(column.output for column in columns)
        if key not in self._joined:
            rank = len(self.rows.of(node.inputs[0]) or ())
            parts = [self._flat(column) if rank == 2 else column.output for column in columns]
            self._joined[key] = parts[0]
            if len(parts) > 1:
                dtype = dtype_of(self.graph, parts[0])
                attrs = {"N": len(parts), "T": dtype, "Tidx": np.int32}
                inputs = [*parts, int32_scalar(self.graph, rank - 1)]
                where = self.rows.graph[node.inputs[0].node].name
                self._joined[key] = self.graph.add("ConcatV2", inputs, name=f"{where}/{name}", attrs=attrs).output()
        return self._joined[key]

    def _flat(self, columns: Columns) -> Output:
        output, numbers = columns.output, columns.numbers
        if numbers.ndim == 1:
            return output
        dtype = dtype_of(self.graph, output)
        return add_reshape(self.graph, output, dtype, [-1, numbers.size], f"{output.node}/columns")

    def _part(self, product: SplitProduct, columns: list[Columns], name: str) -> Output:
        """Return the rows of the weights by which some columns are multiplied."""
        node = product.node
        turned = bool(attribute(node, "transpose_b", False) or attribute(node, "adj_y", False))
        numbers = np.concatenate([column.numbers.ravel() for column in columns])
        source = skip(self.graph, product.weights)
        handle = self.values.handle(source)
        key = (Output(handle) if handle is not None else source, turned, numbers.tobytes())
        if key not in self._weights:
            whole = self.values.weight(source, sys.maxsize)
            assert whole is not None
            part = contiguous(whole.take(numbers, 1 if turned else 0))
            self._weights[key] = add_weight(self.model, f"{key[0].node}/{name}", part)
        return self._weights[key]
