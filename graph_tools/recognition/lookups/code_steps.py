# SPDX-License-Identifier: Apache-2.0
"""Recognize the ops that mix the bits of ids, and that make row numbers of some of these bits."""

from __future__ import annotations

import numpy as np

from graph_tools.graph import Graph, Node, Output, attribute, constant, constant_list, skip, source
from graph_tools.plans.embedding_parts import Bits, Step, XorShift
from graph_tools.tensors import Array

_WORD_BITS = 64
OPS = {"BitwiseAnd", "BitwiseXor", "Sum"}


def code_step(graph: Graph, node: Node) -> tuple[Output, Step] | None:
    """Return the input of a node of OPS and the step that the node computes from it; None: a plan has no such step."""
    if attribute(node, "T").name != "uint64":
        return None
    if node.op == "BitwiseXor":
        return _xor_shift(graph, node)
    return _bits(graph, node) if node.op == "BitwiseAnd" else _single_bits(graph, node)


def _xor_shift(graph: Graph, node: Node) -> tuple[Output, Step] | None:
    """Recognize `x ^ (x >> by)`."""
    for whole, shifted in (node.inputs, node.inputs[::-1]):
        shift = source(graph, shifted, "RightShift")
        if shift is None or shift.controls or skip(graph, shift.inputs[0]) != skip(graph, whole):
            continue
        by = _word(graph, shift.inputs[1])
        if by is not None and 1 <= by < _WORD_BITS:
            return whole, XorShift(by)
    return None


def _bits(graph: Graph, node: Node) -> tuple[Output, Step] | None:
    """Recognize `(x >> first) & (2^count - 1)`, or the same without the shift."""
    for value, masked in (node.inputs, node.inputs[::-1]):
        mask = _word(graph, masked)
        if mask is None or mask <= 0 or mask & (mask + 1):
            continue
        count = mask.bit_length()
        shift = source(graph, value, "RightShift")
        first = _word(graph, shift.inputs[1]) if shift is not None and not shift.controls else None
        if shift is None or first is None or not 0 <= first < _WORD_BITS:
            return (value, Bits(0, count)) if count < _WORD_BITS else None
        count = min(count, _WORD_BITS - first)
        return (shift.inputs[0], Bits(first, count)) if count < _WORD_BITS else None
    return None


def _single_bits(graph: Graph, node: Node) -> tuple[Output, Step] | None:
    """Recognize `sum over i of (x >> (first + i · every) & 1) << i`, with a new last axis for i."""
    left = source(graph, node.inputs[0], "LeftShift")
    one = source(graph, left.inputs[0], "BitwiseAnd") if left is not None else None
    right = source(graph, one.inputs[0], "RightShift") if one is not None else None
    if left is None or one is None or right is None or attribute(node, "keep_dims", False):
        return None
    wide = source(graph, right.inputs[0], "ExpandDims")
    if wide is None or any(each.controls for each in (left, one, right, wide)) or _word(graph, one.inputs[1]) != 1:
        return None
    if constant_list(graph, node.inputs[1]) != [-1] or constant_list(graph, wide.inputs[1]) != [-1]:
        return None
    places, order = _vector(graph, right.inputs[1]), _vector(graph, left.inputs[1])
    if places is None or order is None or len(places) != len(order) or not 2 <= len(places) < _WORD_BITS:
        return None
    first, every = int(places[0]), int(places[1]) - int(places[0])
    expected = [first + number * every for number in range(len(places))]
    if every < 1 or places.tolist() != expected or expected[-1] >= _WORD_BITS:
        return None
    return (wide.inputs[0], Bits(first, len(places), every)) if order.tolist() == list(range(len(order))) else None


def _word(graph: Graph, output: Output) -> int | None:
    array = constant(graph, output)
    return int(array.reshape(-1)[0]) if array is not None and array.ndim == 0 and array.dtype.kind in "iu" else None


def _vector(graph: Graph, output: Output) -> Array | None:
    array = constant(graph, output)
    return array if array is not None and array.ndim == 1 and array.dtype == np.uint64 else None
