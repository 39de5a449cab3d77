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
from graph_tools.recognition.towers.attention_units import is_product_of_rows, read_network, read_parts, weights_of
from graph_tools.recognition.towers.pieces import Site
from graph_tools.recognition.towers.search import find_pieces
from graph_tools.rewriting.interaction_pass import Fusion, InteractionPass, reshapable


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

    def match(self, flat: Flat, node: Node) -> Fusion | str | None:
        keys = skip(flat.graph, node.inputs[1])
        whole = flat.sizes(keys) or ()
        scores = _scores(flat, node.inputs[0], whole)
        if isinstance(scores, str):
            return scores
        if self._site is None:
            self._site = Site(flat.model)
            find_pieces(self._site)
        network = None if scores is None else _network(self._site, flat, scores.network)
        if scores is None or network is None or isinstance(network, str):
            return network if isinstance(network, str) else None
        given, layers = network
        parts = read_parts(flat, given, keys)
        if parts is None or isinstance(parts, str):
            return parts
        query, names = parts
        dim = whole[2].known
        if layers[-1].units != 1 or not flat.is_float(keys):
            return f"the last layer has {layers[-1].units} units, expected 1 and float32"
        if not reshapable(flat, node.output()):
            return f"shape of '{node.name}' is not known"
        weights = weights_of(layers)
        masks = [mask.given for mask in scores.masks]
        attrs: dict[str, Any] = {
            "num_masks": len(masks),
            "Tmask": scores.masks[0].dtype if masks else np.bool_,
            "num_weights": len(weights),
            "parts": names,
            "activations": [layer.activation for layer in layers],
            "alphas": [one.alpha for one in layers],
            "softmax": scores.softmax,
            "padding": scores.padding,
            "scale": scores.scale,
        }
        return Fusion(
            node.output(), "RecTargetAttention", [query, keys, *masks, *weights], attrs, (None, dim), (None, 1, dim)
        )


def _network(site: Site, flat: Flat, output: Output) -> Any:
    """Read the network that computes scores; some of its views may not be pieces."""
    for view in flat.views(output):
        if view in site.pieces:
            return read_network(site, flat, view)
    return None


def _scores(flat: Flat, output: Output, keys: Any) -> _Scores | str | None:
    """Follow scores [rows, 1, length] back to the network; None if they are no scores."""
    found = _Scores(output)
    node = flat.node(output, "Softmax")
    if node is not None:
        sizes = flat.known(node.output())
        if sizes[-1:] != [keys[1].known] or any(size != 1 for size in sizes[1:-1]):
            return None
        found.softmax, output = True, skip(flat.graph, node.inputs[0])
    output, found.scale = _scaled(flat, output)
    select = flat.node(output, "SelectV2", "Select")
    if select is not None:
        padding = flat.scalar(select.inputs[2])
        found.masks = find_masks(flat, select.inputs[0], keys[:2])
        if padding is None or not found.masks:
            return f"'{select.name}' selects by no mask of positions, or something else than one number"
        if len(flat.known(select.inputs[0])) != len(flat.known(select.output())) or select.op == "Select":
            return f"'{select.name}' broadcasts its mask, expected one of the shape of the scores"
        found.padding, output = padding, skip(flat.graph, select.inputs[1])
    if not found.masks and found.scale == 1.0:
        output, found.scale = _scaled(flat, output)
    found.network = output
    whole = flat.sizes(output)
    return found if whole and len(whole) > 1 and alike(whole[0], keys[0]) else None


def _scaled(flat: Flat, output: Output) -> tuple[Output, float]:
    """Return the scores before a multiplication by one factor for all of them, and this factor."""
    node = flat.node(output, "Mul", "RealDiv", "Div")
    for side in () if node is None else ((0, 1) if node.op == "Mul" else (0,)):
        number = flat.scalar(node.inputs[1 - side]) if node is not None else None
        if number and node is not None:
            return skip(flat.graph, node.inputs[side]), number if node.op == "Mul" else 1.0 / number
    return skip(flat.graph, output), 1.0
