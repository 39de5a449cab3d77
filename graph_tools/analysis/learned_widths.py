# SPDX-License-Identifier: Apache-2.0
"""Sizes that TensorFlow does not know before a request, but that follow from a layer's weights."""

from __future__ import annotations

from collections.abc import Callable

from graph_tools.analysis.symbolic_shapes import Size, SymbolicShapes
from graph_tools.graph import Node, Output, attribute, skip
from graph_tools.model import Model

Symbol = tuple[str, int, int]


def learn_widths(model: Model, shapes: SymbolicShapes, kernel_rows: Callable[[Output], int | None]) -> None:
    """Complete shapes by the widths that products with constant weights demand of their rows.

    `ConcatV2(known, unknown) → MatMul(W)` has as many columns as W has rows, so the unknown part has the missing ones.
    The product refuses a request with another width, and so does the op that replaces it. A width is known only if
    every signature that has these rows multiplies them.

    Parameters
    ----------
    model : Model
    shapes : SymbolicShapes
        The shapes to complete.
    kernel_rows : callable
        Output -> number of rows of a constant weight, or None if it is not a constant weight.
    """
    found: dict[Symbol, int] = {}
    for node in model.graph.of("MatMul", "_FusedMatMul"):
        if attribute(node, "transpose_a", False) or attribute(node, "transpose_b", False) or node.controls:
            continue
        rows = kernel_rows(node.inputs[1])
        x = skip(model.graph, node.inputs[0])
        sizes = shapes.of(x)
        if (
            not rows
            or not sizes
            or len(sizes) != 2
            or sizes[1].known is not None
            or not _is_always_asked(model, node, x)
        ):
            continue
        _learn(shapes, x, rows, found)
    if found:
        shapes.complete(found)


def _learn(shapes: SymbolicShapes, x: Output, width: int, found: dict[Symbol, int]) -> None:
    """Record the size of the last dimension of rows, and of the only unknown part of a concatenation."""
    sizes = shapes.of(x)
    if not sizes or sizes[-1].number != 1 or len(sizes[-1].symbols) != 1:
        return
    found.setdefault(sizes[-1].symbols[0], width)
    node = shapes.graph[x.node]
    if node.op != "ConcatV2" or shapes.numbers(node.inputs[-1]) not in ([1], [-1]):
        return
    parts = [skip(shapes.graph, source) for source in node.inputs[:-1]]
    last = [(shapes.of(part) or (Size(1),))[-1].known for part in parts]
    unknown = [part for part, size in zip(parts, last, strict=True) if size is None]
    rest = width - sum(columns or 0 for columns in last)
    if len(unknown) == 1 and rest > 0 and len(shapes.of(unknown[0]) or ()) == 2:
        _learn(shapes, unknown[0], rest, found)


def _is_always_asked(model: Model, node: Node, x: Output) -> bool:
    """Return whether every signature that computes rows also multiplies them."""
    for signature in model.signatures.values():
        needed = model.graph.ancestors(output.tensor.node for output in signature.outputs.values())
        if x.node in needed and node.name not in needed:
            return False
    return True
