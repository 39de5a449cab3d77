# SPDX-License-Identifier: Apache-2.0
"""The heads of attention: how graphs split [rows, positions, heads * dim] into heads, and join them again."""

from __future__ import annotations

from dataclasses import dataclass, replace

from graph_tools.analysis.flat import Flat
from graph_tools.graph import Node, Output, attribute, skip

_CONCAT = "ConcatV2"


@dataclass(frozen=True)
class Heads:
    """Positions whose elements are heads side by side.

    Attributes
    ----------
    given : Output
        [rows, positions, heads * dim], or [rows, positions, heads, dim].
    count : int
    layout : str
        The layout in a product: `bhtd` for [rows, heads, positions, dim]; `hbtd`; `ntd`, in which heads and rows are
        one dimension, with the rows of the first head first; `btd`, one head.
    turned : bool
        Whether the last two dimensions are transposed.
    """

    given: Output
    count: int
    layout: str
    turned: bool = False


def split_heads(flat: Flat, output: Output) -> Heads | None:
    """Recognize the heads in an operand of a product; None if it has none."""
    output = skip(flat.graph, output)
    node = flat.graph[output.node]
    if node.controls:
        return None
    if node.op == "Pack" and attribute(node, "axis", 0) == 0:
        return _split(flat, list(node.inputs), "hbtd")
    if node.op == _CONCAT and flat.shapes.numbers(node.inputs[-1]) == [0]:
        return _split(flat, list(node.inputs[:-1]), "ntd")
    if node.op == "Transpose":
        order = flat.shapes.numbers(node.inputs[1])
        given = skip(flat.graph, node.inputs[0])
        sizes = flat.known(given)
        if order in ([0, 2, 1, 3], [0, 2, 3, 1]) and len(sizes) == 4 and sizes[2] and sizes[3]:
            return Heads(given, sizes[2], "bhtd", turned=order[3] == 1)
        inner = split_heads(flat, given) if order == [0, 1, 3, 2] else None
        if inner is not None and inner.layout in {"bhtd", "hbtd"}:
            return replace(inner, turned=not inner.turned)
        if order == [0, 2, 1] and len(sizes) == 3 and sizes[2]:
            return Heads(given, 1, "btd", turned=True)
    sizes = flat.known(output)
    return Heads(output, 1, "btd") if len(sizes) == 3 and sizes[2] else None


def _split(flat: Flat, parts: list[Output], layout: str) -> Heads | None:
    """Recognize the parts of a split along the last dimension of three, in their order."""
    node = _split_of(flat, parts)
    if node is None:
        return None
    given = skip(flat.graph, node.inputs[1])
    sizes = flat.known(given)
    if len(sizes) != 3 or not sizes[2] or flat.shapes.numbers(node.inputs[0]) not in ([2], [-1]):
        return None
    return Heads(given, len(parts), layout)


def _split_of(flat: Flat, parts: list[Output]) -> Node | None:
    """Return the Split or Unpack whose outputs these are, all of them in order."""
    parts = [skip(flat.graph, part) for part in parts]
    node = flat.graph[parts[0].node]
    count = attribute(node, "num_split" if node.op == "Split" else "num", 0)
    whole = [node.output(port) for port in range(len(parts))]
    fits = node.op in {"Split", "Unpack"} and not node.controls and parts == whole and count == len(parts)
    return node if fits else None


def joined_heads(flat: Flat, product: Output, heads: Heads) -> Output | None:
    """Return the output at which the heads of a product are side by side again, or None."""
    if heads.layout == "btd":
        return product
    user = _only_reader(flat, product)
    if user is None:
        return None
    if heads.layout == "bhtd":
        fits = user.op == "Transpose" and flat.shapes.numbers(user.inputs[1]) == [0, 2, 1, 3]
        return user.output() if fits else None
    # Heads are the first dimension, or the outer part of it.
    if user.op == "Split" and flat.shapes.numbers(user.inputs[0]) == [0]:
        last = ([-1], [len(flat.known(product)) - 1])
    elif user.op == "Unpack" and heads.layout == "hbtd" and attribute(user, "axis", 0) == 0:
        last = ([-1], [len(flat.known(product)) - 2])
    else:
        return None
    readers = {reader.name for reader in flat.graph.users(user.name)}
    join = flat.graph[readers.pop()] if len(readers) == 1 and user.name not in flat.roots else None
    if join is None or join.op != _CONCAT or join.controls or _split_of(flat, list(join.inputs[:-1])) != user:
        return None
    fits = len(join.inputs) - 1 == heads.count and flat.shapes.numbers(join.inputs[-1]) in last
    return join.output() if fits else None


def _only_reader(flat: Flat, output: Output) -> Node | None:
    """Return the only node that uses the elements of an output; users of its shape do not count."""
    if output.node in flat.roots:
        return None
    users = [user for user in flat.graph.users(output.node) if user.op != "Shape"]
    if len(users) != 1 or users[0].controls:
        return None
    return _only_reader(flat, users[0].output()) if users[0].op == "Identity" else users[0]


def untiled(flat: Flat, output: Output, axis: int, count: int) -> Output | None:
    """Return the mask of [rows, positions] that is repeated for each head and along an axis of [rows · heads, 1, 1].

    `Tile(ExpandDims(Tile(mask, [heads, 1]), axis), ...)`; with one head the inner repetition may be missing.
    """
    sizes = flat.known(output)
    node = flat.direct(output, "Tile", "BroadcastTo")
    inner = output if node is None else skip(flat.graph, node.inputs[0])
    before = flat.known(inner)
    if len(sizes) != 3 or len(before) != 3 or before[axis] != 1:
        return None
    if node is not None and node.op == "Tile":
        times = flat.shapes.value(node.inputs[1])
        if times is None or any(time.known != 1 for place, time in enumerate(times) if place != axis):
            return None
    matrix = next((view for view in flat.views(inner) if len(flat.known(view)) == 2), None)
    repeated = None if matrix is None else flat.direct(matrix, "Tile")
    if count == 1 and repeated is None:
        return matrix or inner
    if repeated is None or flat.shapes.numbers(repeated.inputs[1]) != [count, 1]:
        return None
    return skip(flat.graph, repeated.inputs[0])
