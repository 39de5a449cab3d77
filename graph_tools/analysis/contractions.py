# SPDX-License-Identifier: Apache-2.0
"""Find the relus that stock TensorFlow computes together with the product before them.

With oneDNN, such a relu turns NaN into 0, while another relu keeps NaN. The answers of a model to NaN, or to a mean of
no values, depend on it. A fused op must therefore know the kind of each relu in the exported model, before passes
remove the nodes between it and a product.
"""

from __future__ import annotations

from graph_tools.analysis.shapes import ShapeOf, shapes
from graph_tools.graph import PASS_THROUGH, Graph, Node, Output, attribute
from graph_tools.model import Model

#: Attribute that marks such a relu; it is not written into an artifact.
MARK = "_with_product"

_RELUS = ("Relu", "Relu6")
_SUMS = {"Add", "AddV2"}


def mark_contractions(model: Model) -> None:
    """Mark every relu that TensorFlow's rewriter (Grappler's remapper) joins with a product and a bias.

    TensorFlow joins `MatMul → BiasAdd → Relu` of float32, with any added vector as bias, if nothing else uses the
    product or the sum. Nodes that no output of a signature needs do not count. A relu that is in several signatures is
    marked if it is joined in all of them.
    """
    graph = model.graph
    relus = graph.of(*_RELUS)
    if not relus:
        return
    shape_of = shapes(model)
    for signature in model.signatures.values():
        outputs = {output.tensor for output in signature.outputs.values()}
        needed = graph.ancestors(output.node for output in outputs)
        for node in relus:
            if node.name in needed:
                joined = _is_joined(graph, node, needed, outputs, shape_of)
                graph.set_attr(node, MARK, joined and bool(attribute(node, MARK, True)))


def drop_marks(graph: Graph) -> None:
    """Remove the marks from the relus that are left."""
    for node in graph.of(*_RELUS):
        node.attrs.pop(MARK, None)


def is_marked(node: Node) -> bool:
    """Return whether a relu is computed with the product before it."""
    return bool(attribute(node, MARK, False))


def _is_joined(graph: Graph, relu: Node, needed: set[str], outputs: set[Output], shape_of: ShapeOf) -> bool:
    total = _only_producer(graph, relu.inputs[0], relu, needed, outputs)
    if total is None or total.op not in {"BiasAdd", *_SUMS} or not _is_float32(total):
        return False
    for place in (0, 1) if total.op in _SUMS else (0,):
        product = _only_producer(graph, total.inputs[place], total, needed, outputs)
        if product is not None and product.op == "MatMul" and _is_float32(product):
            return total.op == "BiasAdd" or _is_bias(shape_of(total.inputs[1 - place]), shape_of(product.output()))
    return False


def _only_producer(graph: Graph, output: Output, user: Node, needed: set[str], outputs: set[Output]) -> Node | None:
    """Return the node, behind identities, whose result only `user` uses; None if others use it too."""
    while True:
        if output.port or output in outputs:
            return None
        node = graph[output.node]
        users = [each for each in graph.users(node.name) if each.name in needed and not _compute_the_same(each, user)]
        if users or node.controls:
            return None
        if node.op not in PASS_THROUGH:
            return node
        output, user = node.inputs[0], node


def _compute_the_same(first: Node, second: Node) -> bool:
    """Return whether two nodes compute the same, so that TensorFlow keeps only one of them."""
    return first.name == second.name or (first.op == second.op and first.inputs == second.inputs and not first.controls)


def _is_float32(node: Node) -> bool:
    import tensorflow as tf

    return bool(attribute(node, "T") == tf.float32)


def _is_bias(bias: tuple[int | None, ...] | None, product: tuple[int | None, ...] | None) -> bool:
    """Return whether a shape is that of a vector along the last dimension of another shape."""
    if not bias or not product or bias[-1] is None or bias[-1] != product[-1]:
        return False
    return len(bias) <= len(product) and all(size == 1 for size in bias[:-1])
