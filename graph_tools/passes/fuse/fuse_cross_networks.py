# SPDX-License-Identifier: Apache-2.0
"""Compute all layers of a cross network in one node."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from graph_tools.analysis.flat import Flat
from graph_tools.graph import Node, Output
from graph_tools.recognition.towers.cross_layers import CrossLayer, cross_layer
from graph_tools.rewriting.interaction_pass import Fusion, InteractionPass, as_matrix, reshapable
from graph_tools.rewriting.outcome import Found, Outcome, Refused
from graph_tools.tensors import Array


class FuseCrossNetworks(InteractionPass):
    """Replace the layers of DCN's cross network, with vectors, matrices, or products of two thin matrices.

    Before: `x0 * MatMul(x, w) + b + x`, or `x0 * (MatMul(x, W) + b) + x`, for each layer, where x is the result of the
    layer before.
    After: `RecCrossNetwork(x0; w, …, b, …)`.

    The rows of x0 may have additional dimensions of size 1, as `tf.tensordot` needs them. Products may be rounded
    differently.
    """

    name = "fuse_cross_networks"

    def roots(self, flat: Flat) -> Iterable[Node]:
        self._layers: dict[Output, CrossLayer] = {}
        self._refused: dict[str, Refused] = {}
        for node in flat.graph.ordered():
            if node.controls:
                continue
            outcome = cross_layer(flat, node)
            if isinstance(outcome, Refused):
                self._refused[node.name] = outcome
            elif isinstance(outcome, Found):
                self._layers[node.output()] = outcome.value
        # A layer without its bias also looks like a layer.
        inside = {name for layer in self._layers.values() for name in layer.nodes - {layer.root.node}}
        self._layers = {root: layer for root, layer in self._layers.items() if root.node not in inside}
        # The last network first: a network that begins at the end of another one still finds that end in the graph.
        ends = [chain[-1] for chain in reversed(self._chains(flat))]
        return [flat.graph[name] for name in [*self._refused, *(end.root.node for end in ends)]]

    def match(self, flat: Flat, node: Node) -> Outcome[Fusion]:
        if node.name in self._refused:
            return self._refused[node.name]
        chain = self._chain[node.output()]
        first, last = chain[0], chain[-1]
        if first.x != first.start:
            return Refused(f"'{first.x.node}' is crossed with '{first.start.node}', expected a layer before it")
        if not reshapable(flat, last.root):
            return Refused(f"shape of '{last.root.node}' is not known")
        x = as_matrix(flat, first.given, first.width)
        biases: list[Output | Array] = []
        if any(layer.bias is not None for layer in chain):
            biases = [np.zeros(layer.width, np.float32) if layer.bias is None else layer.bias for layer in chain]
        kernels = [kernel for layer in chain for kernel in layer.kernels]
        attrs = {
            "num_kernels": len(kernels),
            "num_biases": len(biases),
            "version": first.version,
            "transposed": first.transposed,
        }
        return Found(Fusion(last.root, "RecCrossNetwork", [x, *kernels, *biases], attrs, (None, first.width)))

    def _chains(self, flat: Flat) -> list[list[CrossLayer]]:
        """Join each layer with the next one if only this one uses its result."""
        self._chain: dict[Output, list[CrossLayer]] = {}
        for root, layer in self._layers.items():
            before = self._chain.get(layer.x)
            if before is not None and layer.x != layer.start and _continues(flat, before[-1], layer):
                del self._chain[layer.x]
                self._chain[root] = [*before, layer]
            else:
                self._chain[root] = [layer]
        return list(self._chain.values())


def _continues(flat: Flat, before: CrossLayer, layer: CrossLayer) -> bool:
    """Return whether one node may compute two layers, because nothing else uses the result of the first."""
    alike = (before.start, before.version, before.transposed) == (layer.start, layer.version, layer.transposed)
    if not alike or before.root.node in flat.roots:
        return False
    waiting = [before.root.node]
    while waiting:
        for user in flat.graph.users(waiting.pop()):
            if user.name in layer.nodes or (user.op == "Shape" and not user.controls):
                continue
            if not flat.is_view(user) or user.name in flat.roots:
                return False
            waiting.append(user.name)
    return True
