# SPDX-License-Identifier: Apache-2.0
"""Change a model so that a request can alter its numbers in their last place, to see how far scores depend on rounding.

Before: a weight, a row that is looked up, or a computed number → the ops that compute with it.

After: the same times `1 ± 2^-23`; the sign is a function of the number itself, so that equal numbers stay equal
wherever they are read. Three more inputs of every signature select this function, or move all numbers up or down. This
is Monte Carlo arithmetic, with noise that is the same whenever a request is repeated.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graph_tools.graph import PASS_THROUGH, Graph, Node, Output, constant, dtype_of
from graph_tools.graph.sparse_lookup import OP as SPARSE_LOOKUP
from graph_tools.model import Endpoint, Model, Signature
from graph_tools.verification.request import Request

# Odd multipliers, so that every bit of a number affects the highest bit of the product.
_MIXTURES = (-1640531527, 1274126177, -862048943, 461845907, -2048144789, 668265263)
NUDGES = 2 + len(_MIXTURES)
"""Number of variants: all up, all down, and several mixtures, since the effect of one mixture on a score is random."""

_MULTIPLIER, _BIAS, _STEP = "nudge/multiplier", "nudge/bias", "nudge/step"
_MULTIPLIERS = (1, 1, *_MIXTURES)
_BIASES = (2.0, -2.0, *[0.0] * len(_MIXTURES))
_READS = {"ReadVariableOp", "VariableV2", "Variable"}
_LOOKUPS = {"ResourceGather", "GatherV2", "Gather", SPARSE_LOOKUP}
#: Ops that round their results; with another order of additions they would round differently.
_ROUNDS = {
    "Add", "AddN", "AddV2", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "BiasAdd", "Conv2D", "Cumsum", "Div",
    "DivNoNan", "Einsum", "Erf", "Exp", "FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", "Log", "Log1p",
    "MatMul", "Mean", "Mul", "Pow", "Prod", "RealDiv", "Rsqrt", "SegmentMean", "SegmentSum", "Sigmoid", "Softmax",
    "SparseSegmentMean", "SparseSegmentMeanWithNumSegments", "SparseSegmentSqrtN",
    "SparseSegmentSqrtNWithNumSegments", "SparseSegmentSum", "SparseSegmentSumWithNumSegments",
    "SparseTensorDenseMatMul", "Sqrt", "Square", "SquaredDifference", "Sub", "Sum", "Tanh", "UnsortedSegmentSum",
    "_FusedMatMul",
}  # fmt: skip
#: Ops that read only the shape or dtype of a tensor, not its numbers.
_SHAPES = {"Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike"}


def nudgeable_copy(model: Model) -> Model:
    """Return a copy of a model whose numbers can be nudged; a model without float32 stays unchanged."""
    graph = Graph.from_graph_def(model.graph.to_graph_def())
    graph.op_defs = model.graph.op_defs
    serving = graph.ancestors(
        end.tensor.node for signature in model.signatures.values() for end in signature.outputs.values()
    )
    numbers = [number for number in _numbers(graph) if number.node in serving]
    copy = replace(model, graph=graph)
    if not numbers:
        return copy
    inputs = {
        name: Endpoint(graph.add("Placeholder", name=name, attrs={"dtype": dtype, "shape": ()}).output(), dtype, ())
        for name, dtype in _dtypes().items()
    }
    ports = {name: source.tensor for name, source in inputs.items()}
    for number in numbers:
        _nudge(graph, number, ports, serving)
    copy.signatures = {
        name: Signature(dict(signature.inputs) | inputs, dict(signature.outputs), signature.method_name)
        for name, signature in model.signatures.items()
    }
    return copy


def is_nudgeable(model: Model) -> bool:
    """Return whether a model has the inputs that `nudged` adds to a request."""
    return all(_MULTIPLIER in signature.inputs for signature in model.signatures.values())


def nudged(request: Request, kind: int) -> Request:
    """Return a request with the inputs that nudge numbers in the way `kind`, of 0 to `NUDGES` - 1."""
    more = {
        _MULTIPLIER: np.array(_MULTIPLIERS[kind], np.int32),
        _BIAS: np.array(_BIASES[kind], np.float32),
        _STEP: np.array(np.finfo(np.float32).eps, np.float32),
    }
    return replace(request, inputs=dict(request.inputs) | more)


def without_nudges(request: Request) -> Request:
    """Return a request without the inputs that `nudged` added, for a model that does not have them."""
    return replace(request, inputs={key: source for key, source in request.inputs.items() if key not in _dtypes()})


def _dtypes() -> dict[str, object]:
    import tensorflow as tf

    return {_MULTIPLIER: tf.int32, _BIAS: tf.float32, _STEP: tf.float32}


def _numbers(graph: Graph) -> list[Output]:
    """Return the outputs that read weights, whole or by row, and those that compute numbers."""
    import tensorflow as tf

    found = []
    for node in list(graph):
        output = node.output()
        if node.op == "Const":
            value = constant(graph, output)
            wanted = value is not None and value.size > 1
        else:
            wanted = node.op in _READS | _ROUNDS or (node.op in _LOOKUPS and _is_of_weights(graph, node))
        if wanted and dtype_of(graph, output) == tf.float32:
            found.append(output)
    return found


def _is_of_weights(graph: Graph, node: Node) -> bool:
    return node.op in {"ResourceGather", SPARSE_LOOKUP} or _source(graph, node.inputs[0]).op in {*_READS, "Const"}


def _source(graph: Graph, output: Output) -> Node:
    node = graph[output.node]
    while node.op in PASS_THROUGH:
        node = graph[node.inputs[0].node]
    return node


def _nudge(graph: Graph, number: Output, ports: dict[str, Output], serving: set[str]) -> None:
    """Replace a number by its product with `1 ± step` in all ops that compute with it, but not in lookups."""
    import tensorflow as tf

    users = [
        (user, index)
        for user, index in graph.uses(number)
        if user.name in serving and user.op not in _SHAPES and not (user.op in _LOOKUPS and index == 0)
    ]
    plain = [user for user in users if user[0].op not in PASS_THROUGH]
    for user, _ in users:
        if user.op in PASS_THROUGH:
            _nudge(graph, user.output(), ports, serving)
    if not plain:
        return
    integer, real = {"T": tf.int32}, {"T": tf.float32}

    def add(op: str, *inputs: Output, **attrs: object) -> Output:
        return graph.add(op, list(inputs), name=f"nudge/{number.node}/{op}", attrs=attrs).output()

    bits = add("Bitcast", number, T=tf.float32, type=tf.int32)
    mixed = add("Mul", bits, ports[_MULTIPLIER], **integer)
    highest = add("RightShift", mixed, graph.add_const(np.array(31, np.int32)), **integer)
    signs = add("AddV2", add("Cast", highest, SrcT=tf.int32, DstT=tf.float32), _half_constant(graph), **real)
    # ±0.5 from the bits of the number; with a bias of ±2 all signs are that of the bias.
    signs = add("Sign", add("AddV2", signs, ports[_BIAS], **real), **real)
    moved = add("Mul", number, add("Mul", signs, ports[_STEP], **real), **real)
    new = add("AddV2", number, moved, **real)
    for user, index in plain:
        graph.set_input(user, index, new)


def _half_constant(graph: Graph) -> Output:
    return graph.add_const(np.array(0.5, np.float32), "nudge/half")
