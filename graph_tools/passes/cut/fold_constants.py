# SPDX-License-Identifier: Apache-2.0
"""Compute values before serving that are the same for every request."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graph_tools.analysis.shapes import ShapeOf, shapes
from graph_tools.analysis.static_shapes import static_targets, static_values
from graph_tools.analysis.values import SMALL_BYTES, Values
from graph_tools.graph import CONTROL_FLOW, Graph, Node, Output, attribute, dtype_of, has_effect, op_def, output_types
from graph_tools.graph.op_defs import tf_type
from graph_tools.live import LiveTensor, Traced, generic, read_weight
from graph_tools.model import Model
from graph_tools.rewriting.add_weights import add_weight, become_weight
from graph_tools.rewriting.protocol import Pass, PassResult
from graph_tools.rewriting.sweep import sweep
from graph_tools.tensors import Array, byte_size

#: Variables up to this size take part in folding.
_VARIABLE_BYTES = 1 << 24
#: A result of a few numbers up to this size may be larger than the constants and variables that it is made from.
_SCALAR_BYTES = 64
_NEVER = CONTROL_FLOW | {
    "Const", "Placeholder", "PlaceholderWithDefault", "NoOp", "Identity", "IdentityN", "Snapshot", "ReadVariableOp",
    "Assert", "StatelessIf", "StatelessWhile", "StatelessCase", "PartitionedCall", "ImmutableConst",
}  # fmt: skip


@dataclass
class _Known:
    """A node whose outputs are the same for every request.

    Attributes
    ----------
    bytes : int
        Size of all outputs together.
    leaves : int
        Size in bytes of the constants and variables from which it is computed.
    variables : bool
        Whether a variable is among them.
    alone : bool
        Whether nothing else uses these constants and variables.
    feed : str or None
        The variable that the node reads.
    live : bool
        Whether a variable that a trainer may change is among them.
    """

    bytes: int
    leaves: int
    variables: bool = False
    alone: bool = True
    feed: str | None = field(default=None)
    live: bool = False


class FoldConstants(Pass):
    """Replace subgraphs of constants by their values, which TensorFlow computes once.

    Before: `rsqrt(Read(variance) + 0.001) · Read(gamma) → Mul(x, ·)`, and `Shape(y) → StridedSlice → Pack` if the
    shape of y is known.
    After: `Const → Mul(x, ·)`. A Reshape to `Pack(batch, 24)` becomes a Reshape to `[-1, 24]`.

    Ops that are random, stateful or part of control flow are never folded. A result has at most 64 KiB, or at most the
    size of the weights from which it is computed, if nothing else uses them. A result computed from variables is not
    larger than these, so that weights stored in few bits, as codes with a scale, stay so; over a kilobyte it becomes a
    variable.
    """

    name = "fold_constants"

    def __init__(self) -> None:
        self._uncomputable: set[Output] = set()

    def process(self, model: Model, result: PassResult) -> None:
        shape_of = shapes(model)
        result.applied += self._fold_shapes(model, shape_of)
        known = self._known(model, shape_of)
        fetched = self._frontier(model, known)
        if fetched:
            result.applied += self._replace(model, known, fetched, result)

    def ensures(self, model: Model) -> Iterator[str]:
        """Yield the outputs that TensorFlow could still compute before serving."""
        fetched = self._frontier(model, self._known(model, shapes(model)))
        return (str(output) for output in fetched if output not in self._uncomputable)

    def _fold_shapes(self, model: Model, shape_of: ShapeOf) -> int:
        graph = model.graph
        targets = static_targets(graph, shape_of)
        for name, target in targets.items():
            node = graph[name]
            before = node.inputs[1].node
            graph.set_input(node, 1, graph.add_const(target, f"{name}/shape"))
            sweep(model, [before], f"computes the shape of '{name}', which is known but for one size")
        found = static_values(graph, shape_of)
        return len(targets) + sum(_replace_output(model, output, value) for output, value in found.items())

    def _known(self, model: Model, shape_of: ShapeOf) -> dict[str, _Known]:
        graph, values = model.graph, Values(model)
        known: dict[str, _Known] = {}
        for node in graph.ordered():
            if node.op == "Const" and not node.controls:
                size = node.attrs["value"].tensor.ByteSize()
                known[node.name] = _Known(size, size, alone=len(graph.users(node.name)) == 1)
                continue
            handle = values.handle(node.output()) if node.op == "ReadVariableOp" else None
            if handle is not None:
                size = byte_size(model.variables[handle])
                if size <= _VARIABLE_BYTES:
                    alone = len(graph.users(handle)) == 1 and len(graph.users(node.name)) == 1
                    live = isinstance(model.variables[handle], LiveTensor)
                    known[node.name] = _Known(size, size, True, alone, handle, live)
                continue
            if self._may_fold(graph, node) and all(source.node in known for source in node.inputs):
                made = self._known_node(graph, node, known, shape_of)
                if made is not None:
                    known[node.name] = made
        return known

    def _may_fold(self, graph: Graph, node: Node) -> bool:
        if node.op in _NEVER or "Random" in node.op or not node.inputs or node.controls:
            return False
        described = op_def(node.op)
        return described is not None and not described.is_stateful and not has_effect(graph, node)

    def _known_node(self, graph: Graph, node: Node, known: dict[str, _Known], shape_of: ShapeOf) -> _Known | None:
        size = 0
        for port, number in enumerate(output_types(op_def(node.op), node.attrs)):
            dtype, shape = tf_type(number), shape_of(node.output(port))
            if shape is None or None in shape or not _storable(dtype):
                return None
            size += math.prod(axis or 0 for axis in shape) * (16 if dtype.name == "string" else dtype.size)
        before = [known[name] for name in {source.node for source in node.inputs}]
        leaves = sum(operand.leaves for operand in before)
        alone = all(operand.alone for operand in before) and len(graph.users(node.name)) <= 1
        variables = any(operand.variables for operand in before)
        if size > SMALL_BYTES and not (size <= leaves and all(operand.alone for operand in before)):
            return None
        if variables and size > max(leaves, _SCALAR_BYTES):
            return None
        return _Known(size, leaves, variables, alone, live=any(operand.live for operand in before))

    def _frontier(self, model: Model, known: dict[str, _Known]) -> list[Output]:
        """Return the outputs to compute: inputs of nodes that are not folded, and outputs of signatures."""
        graph, roots = model.graph, model.roots()
        fetched: dict[Output, None] = {}

        def fetch(output: Output) -> None:
            if not known[output.node].live or dtype_of(graph, output) == "float32":
                fetched[output] = None

        for name in known:
            node = graph[name]
            if node.op in {"Const", "ReadVariableOp"}:
                continue
            if name in roots:
                fetch(node.output())
            for user in graph.users(name):
                for source in user.inputs if user.name not in known else ():
                    if source.node == name:
                        fetch(source)
        return list(fetched)

    def _replace(self, model: Model, known: dict[str, _Known], fetched: list[Output], result: PassResult) -> int:
        count = 0
        try:
            computed = dict(zip(fetched, evaluate(model, known_feeds(known), fetched), strict=True))
        except _FoldingError:
            computed = {}
            for output in fetched:
                try:
                    computed[output] = evaluate(model, known_feeds(known), [output])[0]
                except _FoldingError as error:
                    self._uncomputable.add(output)
                    result.refused.append((output.node, f"TensorFlow cannot compute it alone: {error}"))
        traced = _traced(model, known, computed)
        for output, value in computed.items():
            count += _replace_output(model, output, traced.get(output, value))
        return count


def known_feeds(known: dict[str, _Known]) -> dict[str, str]:
    """Return the name of the variable that each reading node reads, by node."""
    return {name: node.feed for name, node in known.items() if node.feed is not None}


def _storable(dtype: Any) -> bool:
    import tensorflow as tf

    return dtype not in (tf.resource, tf.variant) and not dtype._is_ref_dtype and not dtype.is_quantized


def _traced(model: Model, known: dict[str, _Known], computed: dict[Output, Array]) -> dict[Output, Any]:
    """Return the computed outputs that depend on variables that a trainer may change, with their formulas."""
    copied: dict[str, Output] = {}
    for name, node in known.items():
        tensor = None if node.feed is None else model.variables[node.feed]
        if isinstance(tensor, LiveTensor):
            copied[name] = tensor.traced.output
        elif tensor is not None and model.live is not None:
            copied[name] = model.live.constant(tensor.read())
    return {
        output: Traced(model.live, model.live.copy(model.graph, output, copied), value)
        for output, value in computed.items()
        if model.live is not None and known[output.node].live
    }


class _FoldingError(Exception):
    pass


def evaluate(model: Model, feeds: dict[str, str], fetched: list[Output]) -> list[Array]:
    """Compute outputs from constants and from the variables in `feeds`: variable by the node that reads it.

    Variables that a trainer may change have generic values.
    """
    import tensorflow as tf

    part = Graph()
    part.producer = model.graph.producer
    part.library = model.graph.library
    fed: dict[str, Array] = {}
    needed: list[str] = [output.node for output in fetched]
    while needed:
        name = needed.pop()
        if name in part:
            continue
        node = model.graph[name]
        if name in feeds:
            source = model.variables[feeds[name]]
            fed[f"{name}:0"] = generic(read_weight(source))
            attrs = {"dtype": attribute(node, "dtype"), "shape": source.shape}
            part.become(part.add("NoOp", name=name), "Placeholder", [], attrs)
        else:
            part._insert(Node(name, node.op, list(node.inputs), [], dict(node.attrs)))
            needed.extend(source.node for source in node.inputs)
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    with tf.Graph().as_default() as imported:
        tf.graph_util.import_graph_def(part.to_graph_def(), name="")
        with tf.compat.v1.Session(graph=imported, config=config) as session:
            try:
                found = session.run([str(output) for output in fetched], fed)
            except tf.errors.OpError as error:
                raise _FoldingError(error.message) from error
    # TensorFlow returns a scalar as a NumPy number, and a string as bytes.
    return [np.array(value, object) if isinstance(value, bytes) else np.asarray(value) for value in found]


def _replace_output(model: Model, output: Output, value: Any) -> int:
    """Replace an output by its value and return 1; return 0 if a signature needs the node."""
    graph = model.graph
    node = graph[output.node]
    before = [source.node for source in node.inputs]
    outputs = output_types(op_def(node.op), node.attrs)
    if len(outputs) == 1:
        become_weight(model, node, value)
    elif node.name in model.roots():
        return 0
    else:
        graph.replace(output, add_weight(model, f"{node.name}/output_{output.port}", value))
        sweep(model, [node.name], "folded into constants", "only constants that are folded needed it")
    sweep(model, before, "only a constant needed it that was computed from it")
    return 1
