# SPDX-License-Identifier: Apache-2.0
"""Multiply the weights of the layers that read a tensor by a matrix, instead of the tensor."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from graph_tools.analysis.flat import Flat
from graph_tools.graph import Node, Output, attribute, constant
from graph_tools.rewriting.add_weights import add_weight
from graph_tools.rewriting.sweep import sweep
from graph_tools.tensors import Array

#: Layers with larger weights stay as they are: a fold makes another copy of them.
_MOST_BYTES = 1 << 28


@dataclass(frozen=True)
class _Use:
    """A layer `x → MatMul(weights)` of whose input some columns, from `first` on, are a tensor's."""

    layer: str
    first: int


def fold_into_layers(flat: Flat, tensor: Output, matrix: Array) -> bool:
    """Make `x B W` of `x W`: replace W by `B W` in all layers that read x, also if it is joined with others.

    Before: `ConcatV2(…, x, …) → MatMul(W)`, several of them, or a Reshape that puts n vectors side by side.
    After: the same nodes, where W has other rows for x.

    Parameters
    ----------
    flat : Flat
        Of the model before any change; weights may have changed since.
    tensor : Output [batch, dim] or [batch, n, dim] float32
    matrix : ndarray [dim, dim] float32

    Returns
    -------
    bool
        False: something other than such layers reads the tensor, and nothing was changed.
    """
    uses = _uses(flat, tensor, 0, len(matrix[0]))
    if not uses:
        return False
    firsts = defaultdict(list)
    for use in uses:
        firsts[use.layer].append(use.first)
    for name, starts in firsts.items():
        _fold(flat, flat.graph[name], sorted(starts, reverse=True), matrix)
    return True


def _fold(flat: Flat, layer: Node, starts: list[int], matrix: Array) -> None:
    """Replace the rows of a layer's weights from each of `starts` on, the last one first."""
    model, dim = flat.model, matrix.shape[1]
    before = layer.inputs[1]
    weights = _weights(flat, layer)
    assert weights is not None
    for first in starts:
        product = (matrix @ weights[first : first + dim]).astype(np.float32)
        weights = np.concatenate([weights[:first], product, weights[first + dim :]])
    turned = weights.T if attribute(layer, "transpose_b", False) else weights
    made = add_weight(model, f"{layer.name}/folded", np.ascontiguousarray(turned))
    model.graph.set_input(layer, 1, made)
    sweep(model, [before.node], "another product is folded into these weights")


def _uses(flat: Flat, tensor: Output, first: int, dim: int) -> list[_Use]:
    """Return all layers that read a tensor, or none if something else reads it as well.

    Parameters
    ----------
    first : int
        Column of `tensor` from which on the columns are those that are multiplied.
    dim : int
        Number of these columns.
    """
    found: list[_Use] = []
    if _is_fetched(flat, tensor):
        return []
    for user, index in flat.graph.uses(tensor):
        made = [] if user.controls else list(_uses_of(flat, user, index, first, dim))
        if not made:
            return []
        found += made
    return found


def _uses_of(flat: Flat, user: Node, index: int, first: int, dim: int) -> Iterator[_Use]:
    if user.op == "Identity":
        yield from _uses(flat, user.output(), first, dim)
    elif user.op == "MatMul" and index == 0 and not attribute(user, "transpose_a", False):
        weights = _weights(flat, user)
        if weights is not None and first + dim <= len(weights):
            yield _Use(user.name, first)
    elif user.op == "Reshape" and index == 0:
        sizes, after = flat.known(user.inputs[0]), flat.known(user.output())
        if len(sizes) == 3 and len(after) == 2 and sizes[1] is not None and after[1] == sizes[1] * dim:
            for place in range(sizes[1]):
                yield from _uses(flat, user.output(), place * dim, dim)
    elif user.op == "ConcatV2":
        axis, parts = constant(flat.graph, user.inputs[-1]), user.inputs[:-1]
        before = [sizes[1] for sizes in map(flat.known, parts[:index]) if len(sizes) == 2]
        known = [width for width in before if width is not None]
        last = axis is not None and int(axis.reshape(())) in (1, -1)
        if last and len(known) == index:
            yield from _uses(flat, user.output(), first + sum(known), dim)


def _weights(flat: Flat, layer: Node) -> Array | None:
    """Return the weights [n, m] of a MatMul if they are known."""
    weights = flat.values.value(layer.inputs[1], _MOST_BYTES)
    if weights is None or weights.ndim != 2 or weights.dtype != np.float32:
        return None
    return weights.T if attribute(layer, "transpose_b", False) else weights


def _is_fetched(flat: Flat, tensor: Output) -> bool:
    signatures = flat.model.signatures.values()
    return any(endpoint.tensor == tensor for signature in signatures for endpoint in signature.outputs.values())
