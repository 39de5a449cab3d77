# SPDX-License-Identifier: Apache-2.0
"""Nodes that scale and shift each channel, and weights into which these can be folded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from graph_tools.analysis.shapes import ShapeOf
from graph_tools.analysis.values import Values, is_float
from graph_tools.graph import PASS_THROUGH, Node, Output, attribute, const_array
from graph_tools.graph.attributes import const_attributes
from graph_tools.live import LiveTensor, as_float64, is_traced, read_weight
from graph_tools.model import Model
from graph_tools.rewriting.add_weights import become_weight, weight_tensor
from graph_tools.tensors import Array, ArrayTensor, StreamTensor, TensorSource, rows_per_chunk

LINEAR = ("MatMul", "Conv2D", "DepthwiseConv2dNative")
_BATCH_NORMS = {"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"}


@dataclass
class Affine:
    """y = scale · x + offset, for each element of the last axis.

    Attributes
    ----------
    source : Output
        x
    scale, offset : ndarray [] or [channels] float64
    shifted_first : bool
        Whether an offset is added before a scale is applied; in the other order, large offsets lose digits.
    nodes : list of str
        The nodes in order.
    """

    source: Output
    scale: Array
    offset: Array
    shifted_first: bool
    nodes: list[str]

    @property
    def scales(self) -> bool:
        return bool(np.any(self.scale != 1))

    def then(self, after: Affine) -> Affine:
        """Combine this with an `Affine` that is applied to the result."""
        shifts = bool(np.any(self.offset != 0))
        return Affine(
            self.source,
            self.scale * after.scale,
            self.offset * after.scale + after.offset,
            self.shifted_first or after.shifted_first or (shifts and after.scales),
            [*self.nodes, *after.nodes],
        )


class Affines:
    """Recognizes affine nodes in a snapshot of a graph, like `Values` and shapes."""

    def __init__(self, model: Model, shape_of: ShapeOf) -> None:
        self.model, self.graph, self.shape_of = model, model.graph, shape_of
        self.values = Values(model)
        self.roots = model.roots()

    def of(self, node: Node) -> Affine | None:
        """Return the scale and offset of one node, or None if it is not affine."""
        if node.controls or (node.op not in _BATCH_NORMS and not is_float(attribute(node, "T"))):
            return None
        if node.op in _BATCH_NORMS:
            return self._batch_norm(node)
        if node.op in {"Mul", "Add", "AddV2"}:
            for side in (1, 0):
                vector = self._vector(node, side)
                if vector is not None:
                    return _affine_of(node, 1 - side, *((vector, 0.0) if node.op == "Mul" else (1.0, vector)))
            return None
        vector = self._vector(node, 1) if node.op in {"Sub", "RealDiv", "Div", "BiasAdd"} else None
        if vector is None or attribute(node, "data_format", b"NHWC") != b"NHWC":
            return None
        if node.op in {"RealDiv", "Div"}:
            return _affine_of(node, 0, 1.0 / vector, 0.0) if np.all(vector != 0) else None
        return _affine_of(node, 0, 1.0, -vector if node.op == "Sub" else vector)

    def _batch_norm(self, node: Node) -> Affine | None:
        training, layout = attribute(node, "is_training", True), attribute(node, "data_format", b"NHWC")
        if training or layout != b"NHWC" or not is_float(attribute(node, "T")):
            return None
        if any(
            source.node == node.name and source.port for user in self.graph.users(node.name) for source in user.inputs
        ):
            return None
        gamma, beta, mean, variance = (self.values.weight(source) for source in node.inputs[1:5])
        if gamma is None or beta is None or mean is None or variance is None:
            return None
        epsilon = attribute(node, "epsilon", 1e-4)
        scale = gamma.astype(np.float64) / np.sqrt(variance.astype(np.float64) + epsilon)
        return _affine_of(node, 0, scale, beta - mean * scale)

    def _vector(self, node: Node, index: int) -> Array | None:
        """Return a known operand: one number, or one for each element of the other operand's last axis."""
        value = self.values.weight(node.inputs[index])
        shape = self.shape_of(node.inputs[1 - index])
        if value is None or value.dtype == object or not shape or value.ndim > len(shape) or not value.size:
            return None
        channels = value.shape[-1] if value.shape else 1
        if value.size != channels or channels not in (1, shape[-1]) or not np.all(np.isfinite(value)):
            return None
        return value.reshape(() if channels == 1 else (channels,)).astype(np.float64)

    def chain(self, start: Output) -> Affine | None:
        """Combine the nodes that follow an output, as long as each is the only user of the one before."""
        whole: Affine | None = None
        while True:
            if whole is not None and start.node in self.roots:
                return whole
            node = self.only_user(start)
            affine = self.of(node) if node is not None else None
            if node is None or affine is None or affine.source != start:
                return whole
            whole = affine if whole is None else whole.then(affine)
            start = node.output()

    def only_user(self, output: Output) -> Node | None:
        users = self.graph.users(output.node)
        return users[0] if len(users) == 1 and users[0].inputs.count(output) == 1 else None


def _affine_of(node: Node, source: int, scale: Any, offset: Any) -> Affine:
    return Affine(node.inputs[source], as_float64(scale), as_float64(offset), False, [node.name])


class Weights:
    """The weights of a linear node."""

    def __init__(self, affines: Affines, node: Node) -> None:
        self.model, self.node = affines.model, node
        self.handle = affines.values.handle(node.inputs[1])
        self.transposed = bool(attribute(node, "transpose_b", False))
        origin = self.model.graph[node.inputs[1].node]
        self.const = origin if origin.op == "Const" and not origin.controls else None

    def refusal(self) -> str | None:
        """Return why these weights must stay as they are, or None."""
        if not is_float(attribute(self.node, "T")):
            return f"its weights are {attribute(self.node, 'T').name}, expected float32 or float64"
        if self.handle is None and self.const is None:
            return "its weights are not known before serving, expected a variable that is only read or a constant"
        return None if self.sharers() else "another node uses its weights too, expected nodes of its kind only"

    def sharers(self) -> list[Node]:
        """Return the nodes that use these weights as this node does, with itself; empty if one uses them differently.

        Several signatures over one model share its weights.
        """
        graph, found = self.model.graph, []
        waiting = [self.handle or (self.const or self.node).name]
        while waiting:
            name = waiting.pop()
            for user in graph.users(name):
                if user.op in PASS_THROUGH | {"ReadVariableOp"} and not user.controls:
                    waiting.append(user.name)
                elif self._uses_alike(user, name):
                    found.append(user)
                else:
                    return []
        return found

    def _uses_alike(self, user: Node, weights: str) -> bool:
        if user.op != self.node.op or [source.node for source in user.inputs].index(weights) != 1:
            return False
        if attribute(user, "data_format", b"NHWC") != attribute(self.node, "data_format", b"NHWC"):
            return False
        return bool(attribute(user, "transpose_b", False)) == self.transposed

    @property
    def source(self) -> TensorSource:
        if self.handle is not None:
            return self.model.variables[self.handle]
        assert self.const is not None
        return ArrayTensor(const_array(self.const))

    @property
    def channels(self) -> int:
        """Return the length of the last axis of the result."""
        shape = self.source.shape
        if self.node.op == "DepthwiseConv2dNative":
            return shape[2] * shape[3]
        return shape[0] if self.transposed else shape[-1]

    def scale_outputs(self, scale: Array) -> None:
        """Multiply the weights of each channel of the result."""
        shape = self.source.shape
        if self.node.op == "DepthwiseConv2dNative":
            factors = np.broadcast_to(scale, (self.channels,)).reshape(1, 1, *shape[2:])
        elif self.transposed:
            factors = np.broadcast_to(scale, shape[:1]).reshape(-1, 1)
        else:
            factors = scale.reshape((1,) * (len(shape) - 1) + (-1,))
        self._multiply(factors)

    def scale_inputs(self, scale: Array) -> None:
        """Multiply the weights of each channel of a MatMul's input."""
        rows = scale.reshape(1, -1) if self.transposed else np.broadcast_to(scale, self.source.shape[:1]).reshape(-1, 1)
        self._multiply(rows)

    def applied_to(self, vector: Array) -> Array:
        """Multiply a vector [inputs] by a MatMul's weights, in float64: [outputs]."""
        source = self.source
        if isinstance(source, LiveTensor) or is_traced(vector):
            whole = as_float64(read_weight(source))
            return whole @ vector if self.transposed else vector @ whole
        if self.transposed:
            parts = [chunk.astype(np.float64) @ vector for chunk in source.chunks(rows_per_chunk(source))]
            return np.concatenate(parts)
        total, begin = np.zeros(source.shape[1]), 0
        for chunk in source.chunks(rows_per_chunk(source)):
            total += vector[begin : begin + len(chunk)] @ chunk.astype(np.float64)
            begin += len(chunk)
        return total

    def _multiply(self, factors: Array) -> None:
        source = self.source
        if self.handle is not None and not isinstance(source, LiveTensor) and not is_traced(factors):
            self.model.variables[self.handle] = _multiplied(source, factors)
            return
        value = (read_weight(source) * factors).astype(source.dtype)
        if self.handle is not None:
            self.model.variables[self.handle] = weight_tensor(value)
        elif is_traced(value):
            assert self.const is not None
            become_weight(self.model, self.const, value)
        else:
            assert self.const is not None
            self.model.graph.become(self.const, "Const", [], const_attributes(value))


def _multiplied(source: TensorSource, factors: Array) -> StreamTensor:
    def make(rows: int) -> Iterator[Array]:
        begin = 0
        for chunk in source.chunks(rows):
            part = factors if len(factors) == 1 else factors[begin : begin + len(chunk)]
            yield (chunk * part).astype(source.dtype)
            begin += len(chunk)

    return StreamTensor(source.dtype, source.shape, make)
