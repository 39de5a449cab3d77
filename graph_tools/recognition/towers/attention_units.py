# SPDX-License-Identifier: Apache-2.0
"""The network inside DIN's attention unit, and its inputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graph_tools.analysis.flat import Flat
from graph_tools.graph import Node, Output, skip
from graph_tools.recognition.towers.pieces import Piece, Site, Weight
from graph_tools.rewriting.outcome import Found, NoMatch, Outcome, Refused
from graph_tools.tensors import Array

#: The activations of the op, with the weights that they use.
ACTIVATIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            "relu", "relu6", "leaky_relu", "elu", "selu", "sigmoid", "tanh", "gelu", "gelu_tanh", "swish", "softplus",
        ), ()
    ),
    "prelu": ("weight",),
    "dice": ("weight", "scale", "shift"),
}  # fmt: skip


@dataclass
class Layer:
    """A dense layer.

    Attributes
    ----------
    kernel : Output
        [inputs, units].
    units : int
    bias : Output, ndarray or None
    activation : str
        "" for no activation.
    alpha : float
    weights : list of Output or ndarray
        The weights of the activation.
    """

    kernel: Output
    units: int
    bias: Weight | None = None
    activation: str = ""
    alpha: float = 0.0
    weights: list[Weight] | None = None


@dataclass
class Network:
    """Layers one after the other, the first of which reads `x`."""

    x: Output
    layers: list[Layer]


@dataclass
class Parts:
    """The query that a network compares with keys, and the names of the combinations of both that it reads."""

    query: Output
    names: list[str]


def read_network(site: Site, output: Output) -> Outcome[Network]:
    """Follow dense layers from a score back to the input of the first one."""
    layers: list[Layer] = []
    bias: Weight | None = None
    activation: Piece | None = None
    output = skip(site.graph, output)
    while True:
        piece = site.pieces.get(output)
        if piece is None or piece.kind == "concat":
            break
        if piece.kind == "affine":
            if set(piece.weights) != {"shift"} or bias is not None:
                return Refused(f"'{output.node}' scales the result of a layer, expected a bias")
            bias = piece.weights["shift"]
        elif piece.kind == "activation":
            if bias is not None or activation is not None:
                return Refused(f"'{output.node}' comes before a bias, expected it after")
            if piece.activation not in ACTIVATIONS:
                return Refused(f"'{output.node}' computes {piece.activation}, expected an activation of the op")
            activation = piece
        elif piece.kind == "dense":
            layer = _layer(piece, bias, activation)
            if layer is None:
                return Refused(f"weights of '{output.node}' are not stored as they are used")
            layers.insert(0, layer)
            bias, activation = None, None
        elif piece.kind != "view":
            break
        output = piece.inputs[0]
    if not layers or bias is not None or activation is not None:
        return NoMatch()
    return Found(Network(output, layers))


def _layer(piece: Piece, bias: Weight | None, activation: Piece | None) -> Layer | None:
    kernel, own = piece.weights["kernel"], piece.weights.get("bias")
    if not isinstance(kernel, Output) or piece.transpose or (own is not None and bias is not None):
        return None
    if piece.activation is not None:
        return None
    layer = Layer(kernel, piece.width, bias if own is None else own)
    if activation is not None and activation.activation is not None:
        layer.activation, layer.alpha = activation.activation, activation.alpha or 0.0
        names = ACTIVATIONS[layer.activation]
        if any(name not in activation.weights for name in names):
            return None
        layer.weights = [activation.weights[name] for name in names]
    return layer


def weights_of(layers: list[Layer]) -> list[Output | Array]:
    """Return the weights of layers in the order of the op's inputs."""
    weights: list[Output | Array] = []
    for layer in layers:
        bias = np.zeros(layer.units, np.float32) if layer.bias is None else layer.bias
        weights += [layer.kernel, bias, *(layer.weights or [])]
    return weights


def read_parts(flat: Flat, output: Output, keys: Output) -> Outcome[Parts]:
    """Split a network's input for each position into its combinations of query and key."""
    node = flat.node(output, "ConcatV2")
    sizes = flat.known(output)
    if node is None or flat.shapes.numbers(node.inputs[-1]) not in ([2], [-1]):
        return NoMatch()
    length, dim = flat.known(keys)[1:]
    parts: list[str] = []
    queries: set[Output] = set()
    for source in node.inputs[:-1]:
        if flat.known(source)[1:] != [length, dim]:
            return Refused(f"'{source.node}' does not have the shape of the keys '{keys.node}'")
        found = _part(flat, skip(flat.graph, source), keys)
        if found is None:
            return Refused(f"'{source.node}' is not made from a query and the keys '{keys.node}'")
        parts.append(found[0])
        if found[1] is not None:
            queries.add(found[1])
    if len(queries) != 1 or not sizes:
        return Refused(f"'{node.name}' joins parts of {len(queries)} queries, expected one")
    return Found(Parts(queries.pop(), parts))


def _part(flat: Flat, output: Output, keys: Output) -> tuple[str, Output | None] | None:
    if output == keys:
        return "key", None
    query = _repeated(flat, output, keys)
    if query is not None:
        return "query", query
    node = flat.direct(output, "Sub", "Mul")
    if node is None:
        return None
    left, right = (skip(flat.graph, source) for source in node.inputs)
    if right == keys:
        query = _for_each_key(flat, left, keys)
        return None if query is None else ("product" if node.op == "Mul" else "query-key", query)
    query = _for_each_key(flat, right, keys) if left == keys else None
    return None if query is None else ("product" if node.op == "Mul" else "key-query", query)


def _for_each_key(flat: Flat, output: Output, keys: Output) -> Output | None:
    """Return the query that is combined with each key: repeated, or of one position."""
    return _repeated(flat, output, keys) or _single(flat, output, keys)


def _single(flat: Flat, output: Output, keys: Output) -> Output | None:
    sizes, whole = flat.sizes(output), flat.sizes(keys)
    fits = sizes and whole and len(sizes) == 3 and sizes[1].known == 1 and sizes[2] == whole[2]
    return flat.source(output) if fits else None


def _repeated(flat: Flat, output: Output, keys: Output) -> Output | None:
    """Return the query that is repeated for each position, by a join, a tile or a broadcast."""
    node = flat.direct(output, "ConcatV2", "Tile", "BroadcastTo")
    if node is None or flat.known(output)[1:] != flat.known(keys)[1:]:
        return None
    if node.op == "ConcatV2":
        first = skip(flat.graph, node.inputs[0])
        same = all(skip(flat.graph, source) == first for source in node.inputs[:-1])
        return _single(flat, first, keys) if same and flat.shapes.numbers(node.inputs[-1]) == [1] else None
    return _single(flat, skip(flat.graph, node.inputs[0]), keys)


def is_product_of_rows(flat: Flat, node: Node) -> bool:
    """Return whether a node multiplies [rows, 1, length] with [rows, length, dim]."""
    if flat.adjoined(node):
        return False
    scores, keys = flat.known(node.inputs[0]), flat.known(node.inputs[1])
    return len(scores) == len(keys) == 3 and scores[1] == 1 and None not in keys[1:]
