# SPDX-License-Identifier: Apache-2.0
"""Recognize the nodes that read rows of a table, in the types in which `cut` stores them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from graph_tools.graph import Graph, Node, Output, attribute, constant_list, is_constant, operand, skip, source
from graph_tools.graph.attributes import const_array
from graph_tools.model import Model
from graph_tools.recognition.lookups.tables import StoredRows
from graph_tools.rewriting.outcome import Found, NoMatch, Outcome, Refused
from graph_tools.tensors import ArrayTensor, TensorSource

_ROW_TYPES = {np.dtype(np.float32): "fp32", np.dtype(np.float16): "fp16", np.dtype(ml_dtypes.bfloat16): "bf16"}
GATHERS = ("ResourceGather", "GatherV2")


@dataclass(frozen=True)
class Gathered:
    """Rows of a table.

    Attributes
    ----------
    rows : StoredRows
    numbers : Output
    gathers : tuple of str
        The nodes that read the variables.
    """

    rows: StoredRows
    numbers: Output
    gathers: tuple[str, ...]


class RowFinder:
    """Finds the rows that nodes read from variables, in a graph that must not change meanwhile."""

    def __init__(self, model: Model) -> None:
        self.model, self.graph = model, model.graph
        self.written = model.written_variables()

    def of(self, output: Output) -> Outcome[Gathered]:
        """Return the rows that an output has as float32; refuse rows that cannot be recognized."""
        node = self.graph[output.node]
        if node.op in GATHERS and not output.port:
            found = self._gathered(node)
            # Rows of another type are those of the Cast after them.
            return NoMatch() if isinstance(found, Found) and found.value.rows.row_type != "fp32" else found
        if node.op == "Cast" and attribute(node, "DstT").name == "float32":
            gather = source(self.graph, node.inputs[0], *GATHERS)
            if gather is None or attribute(node, "SrcT").name not in ("half", "float16", "bfloat16"):
                return NoMatch()
            return self._gathered(gather)
        dequantized = self._dequantized(node) if node.op in {"Add", "AddV2"} else None
        return NoMatch() if dequantized is None else Found(dequantized)

    def table(self, data: Output) -> Outcome[StoredRows]:
        """Return the rows of a variable or constant that is read completely."""
        node = self.graph[skip(self.graph, data).node]
        if node.op == "ReadVariableOp":
            return self._rows_of_variable(skip(self.graph, node.inputs[0]).node)
        return self._rows_of_constant(node) if node.op == "Const" else NoMatch()

    def _gathered(self, gather: Node) -> Outcome[Gathered]:
        if gather.controls:
            return Refused(f"'{gather.name}' runs after '{gather.controls[0]}'")
        if attribute(gather, "batch_dims", 0):
            return Refused(f"'{gather.name}' gathers in batches")
        is_of_value, data = gather.op == "GatherV2", gather.inputs[0]
        rows = self.table(data) if is_of_value else self._rows_of_variable(skip(self.graph, data).node)
        if not isinstance(rows, Found):
            return rows
        if is_of_value and constant_list(self.graph, gather.inputs[2]) != [0]:
            return Refused(f"'{gather.name}' gathers along another axis than the first")
        return Found(Gathered(rows.value, gather.inputs[1], (gather.name,)))

    def _rows_of_variable(self, handle: str) -> Outcome[StoredRows]:
        tensor = self.model.variables.get(handle)
        if tensor is None or self.graph[handle].op != "VarHandleOp":
            return Refused(f"the value of '{handle}' is not known")
        if handle in self.written:
            return Refused(f"variable '{handle}' is written while it is served")
        return _stored_rows(handle, tensor)

    def _rows_of_constant(self, node: Node) -> Outcome[StoredRows]:
        shape = tuple(int(axis.size) for axis in node.attrs["value"].tensor.tensor_shape.dim)
        if not shape or attribute(node, "dtype").name not in ("float32", "half", "float16", "bfloat16"):
            return NoMatch()
        return _stored_rows(node.name, ArrayTensor(const_array(node)))

    def _dequantized(self, node: Node) -> Gathered | None:
        """Recognize `codes · scale + bias`."""
        graph = self.graph
        product = source(graph, node.inputs[0], "Mul")
        bias = operand(graph, node, 1)
        pair = graph[bias.node]
        if (
            product is None
            or pair.op != "Split"
            or bias.port != 1
            or operand(graph, product, 1) != Output(pair.name, 0)
        ):
            return None
        wide, halves = source(graph, product.inputs[0], "Cast"), source(graph, pair.inputs[1], "Cast")
        if wide is None or halves is None or attribute(wide, "SrcT").name != "uint8":
            return None
        pairs = source(graph, halves.inputs[0], *GATHERS)
        found = _gather_of_codes(graph, wide.inputs[0])
        if pairs is None or found is None:
            return None
        gather, four_bits, dim = found
        codes, scales = self._handle_of_bytes(gather, 1), self._handle_of_bytes(pairs, 2)
        if codes is None or scales is None or skip(graph, gather.inputs[1]) != skip(graph, pairs.inputs[1]):
            return None
        count, width = self.model.variables[codes].shape
        if self.model.variables[scales].shape != (count, 2):
            return None
        row_type = "int4" if four_bits else "int8"
        length = width if not four_bits else (2 * width if dim is None else dim)
        rows = StoredRows(codes, scales, row_type, count, (length,))
        return Gathered(rows, gather.inputs[1], (gather.name, pairs.name))

    def _handle_of_bytes(self, gather: Node, size: int) -> str | None:
        """Return the handle of the variable [n, k], with elements of `size` bytes, that a gather reads."""
        if gather.op != "ResourceGather" or attribute(gather, "batch_dims", 0) or gather.controls:
            return None
        handle = skip(self.graph, gather.inputs[0]).node
        tensor = self.model.variables.get(handle)
        known = tensor is not None and len(tensor.shape) == 2 and tensor.dtype.itemsize == size
        return handle if known and handle not in self.written else None


def _stored_rows(name: str, tensor: TensorSource) -> Outcome[StoredRows]:
    if tensor.dtype.kind not in "fV":
        return NoMatch()
    row_type = _ROW_TYPES.get(np.dtype(tensor.dtype))
    if row_type is None or not tensor.shape:
        return Refused(
            f"'{name}' holds {tensor.dtype}{list(tensor.shape)}, expected rows of float32, float16 or bfloat16"
        )
    if not all(tensor.shape) or tensor.shape[0] >= 1 << 31:
        return Refused(f"'{name}' has the shape {list(tensor.shape)}, expected 1 to 2^31 rows of at least one element")
    return Found(StoredRows(name, None, row_type, tensor.shape[0], tuple(tensor.shape[1:])))


def _gather_of_codes(graph: Graph, output: Output) -> tuple[Node, bool, int | None] | None:
    """Return the gather of codes, whether two share a byte, and the length of a row if only a slice gives it."""
    gather = source(graph, output, *GATHERS)
    if gather is not None:
        return gather, False, None
    node, dim = graph[skip(graph, output).node], None
    if node.op == "StridedSlice":
        end = constant_list(graph, node.inputs[2])
        if not end:
            return None
        dim, node = end[-1], graph[operand(graph, node, 0).node]
    if node.op != "Reshape":
        return None
    pack = source(graph, node.inputs[0], "Pack")
    if pack is None or len(pack.inputs) != 2:
        return None
    low, high = source(graph, pack.inputs[0], "BitwiseAnd"), source(graph, pack.inputs[1], "RightShift")
    if low is None or high is None or not is_constant(graph, low.inputs[1], 15):
        return None
    gather = source(graph, low.inputs[0], *GATHERS)
    same = gather is not None and operand(graph, high, 0) == gather.output()
    return (gather, True, dim) if gather is not None and same and is_constant(graph, high.inputs[1], 4) else None


def dim_of(rows: StoredRows) -> int:
    """Return the number of elements of a row."""
    return math.prod(rows.row_shape)
