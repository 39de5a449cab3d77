# SPDX-License-Identifier: Apache-2.0
"""Compute DIN's attention over a history in one node."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from graph_tools.analysis.flat import Flat
from graph_tools.graph import Node, Output, skip
from graph_tools.recognition.masks import Mask, alike, find_masks
from graph_tools.recognition.towers.attention_units import (
    Layer,
    Network,
    Parts,
    is_product_of_rows,
    read_network,
    read_parts,
    weights_of,
)
from graph_tools.recognition.towers.pieces import Site
from graph_tools.recognition.towers.search import find_pieces
from graph_tools.rewriting.interaction_pass import Fusion, InteractionPass, reshapable
from graph_tools.rewriting.outcome import Found, NoMatch, Outcome, Refused


@dataclass
class _Scores:
    """Scores of positions on their way from a network to the product with keys."""

    network: Output
    masks: tuple[Mask, ...] = ()
    padding: float = 0.0
    softmax: bool = False
    scale: float = 1.0


class FuseTargetAttention(InteractionPass):
    """Replace a network that scores each position of a history for a candidate, and the sum of keys by these scores.

    Before: `ConcatV2(q, k, q - k, q * k) → dense layers → scores → SelectV2(mask, scores, padding) → Softmax →
    BatchMatMul(k)`, where q is the candidate repeated for each position.
    After: `RecTargetAttention(q, k, mask; weights)`.

    The mask, the softmax and a factor before it may be absent; the input may consist of only some of these four parts.
    The first layer is computed in another order.
    """

    name = "fuse_target_attention"

    def roots(self, flat: Flat) -> Iterable[Node]:
        self._site: Site | None = None
        products = flat.graph.of("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
        return [node for node in products if is_product_of_rows(flat, node)]

    def match(self, flat: Flat, node: Node) -> Outcome[Fusion]:
        keys = skip(flat.graph, node.inputs[1])

        def fusion_of(scores: _Scores) -> Outcome[Fusion]:
            network = self._network(flat, scores.network)
            return network.then(
                lambda found: read_parts(flat, found.x, keys).then(
                    lambda parts: self._fusion(flat, node, scores, found.layers, parts)
                )
            )

        return _scores(flat, node.inputs[0], flat.sizes(keys) or ()).then(fusion_of)

    def _network(self, flat: Flat, output: Output) -> Outcome[Network]:
        """Read the network that computes scores; some of its views may not be pieces."""
        if self._site is None:
            self._site = Site(flat.model)
            find_pieces(self._site)
        for view in flat.views(output):
            if view in self._site.pieces:
                return read_network(self._site, view)
        return NoMatch()

    def _fusion(self, flat: Flat, node: Node, scores: _Scores, layers: list[Layer], parts: Parts) -> Outcome[Fusion]:
        keys = skip(flat.graph, node.inputs[1])
        dim = flat.known(keys)[2]
        if layers[-1].units != 1 or not flat.is_float(keys):
            return Refused(f"the last layer has {layers[-1].units} units, expected 1 and float32")
        if not reshapable(flat, node.output()):
            return Refused(f"shape of '{node.name}' is not known")
        weights = weights_of(layers)
        masks = [mask.given for mask in scores.masks]
        attrs: dict[str, Any] = {
            "num_masks": len(masks),
            "Tmask": scores.masks[0].dtype if masks else np.bool_,
            "num_weights": len(weights),
            "parts": parts.names,
            "activations": [layer.activation for layer in layers],
            "alphas": [layer.alpha for layer in layers],
            "softmax": scores.softmax,
            "padding": scores.padding,
            "scale": scores.scale,
        }
        inputs = [parts.query, keys, *masks, *weights]
        return Found(Fusion(node.output(), "RecTargetAttention", inputs, attrs, (None, dim), (None, 1, dim)))


def _scores(flat: Flat, output: Output, keys: Any) -> Outcome[_Scores]:
    """Follow scores [rows, 1, length] back to the network."""
    found = _Scores(output)
    node = flat.node(output, "Softmax")
    if node is not None:
        sizes = flat.known(node.output())
        if sizes[-1:] != [keys[1].known] or any(size != 1 for size in sizes[1:-1]):
            return NoMatch()
        found.softmax, output = True, skip(flat.graph, node.inputs[0])
    output, found.scale = _scaled(flat, output)
    select = flat.node(output, "SelectV2", "Select")
    if select is not None:
        padding = flat.scalar(select.inputs[2])
        found.masks = find_masks(flat, select.inputs[0], keys[:2])
        if padding is None or not found.masks:
            return Refused(f"'{select.name}' does not select by a mask of positions between scores and one number")
        if len(flat.known(select.inputs[0])) != len(flat.known(select.output())) or select.op == "Select":
            return Refused(f"'{select.name}' broadcasts its mask, expected one of the shape of the scores")
        found.padding, output = padding, skip(flat.graph, select.inputs[1])
    if not found.masks and found.scale == 1.0:
        output, found.scale = _scaled(flat, output)
    found.network = output
    whole = flat.sizes(output)
    return Found(found) if whole and len(whole) > 1 and alike(whole[0], keys[0]) else NoMatch()


def _scaled(flat: Flat, output: Output) -> tuple[Output, float]:
    """Return the scores before a multiplication by one factor for all of them, and this factor."""
    node = flat.node(output, "Mul", "RealDiv", "Div")
    for side in () if node is None else ((0, 1) if node.op == "Mul" else (0,)):
        number = flat.scalar(node.inputs[1 - side]) if node is not None else None
        if number and node is not None:
            return skip(flat.graph, node.inputs[side]), number if node.op == "Mul" else 1.0 / number
    return skip(flat.graph, output), 1.0
