# SPDX-License-Identifier: Apache-2.0
"""Pool padded sequences in one node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from graph_tools.analysis.flat import Flat
from graph_tools.graph import Node, Output, skip
from graph_tools.recognition.masks import Mask, alike, comes_from_booleans, find_mask
from graph_tools.rewriting.interaction_pass import Fusion, InteractionPass, reshapable
from graph_tools.rewriting.outcome import Found, NoMatch, Outcome, Refused

#: Ops that produce a mask of numbers.
_ORIGINS = {"Cast", "Placeholder", "PlaceholderWithDefault"}


@dataclass
class _Pooling:
    values: Output
    mask: Mask
    attrs: dict[str, Any] = field(default_factory=dict)


class FuseSequencePooling(InteractionPass):
    """Replace sums, means and maxima over the positions of sequences that a mask or lengths select.

    Before: `Sum(x * mask, 1)`, `Sum(x * mask, 1) / (Sum(mask, 1) + 1e-8)`, `Max(x - (1 - mask) * 1e9, 1)` with x
    [rows, length, dim] and a mask that may be cast, expanded, tiled, or made from lengths.
    After: `RecSequencePooling(x, mask)`.

    It runs after `fuse_embedding_groups`, which itself pools the rows that it looks up.
    """

    name = "fuse_sequence_pooling"

    def roots(self, flat: Flat) -> Iterable[Node]:
        # Divisions first: a mean contains a sum.
        return [*flat.graph.of("RealDiv", "Div", "DivNoNan"), *flat.graph.of("Sum", "Max")]

    def match(self, flat: Flat, node: Node) -> Outcome[Fusion]:
        if node.op == "Sum":
            found = next(_sums(flat, node), None)
        elif node.op == "Max":
            found = _max(flat, node)
        else:
            found = _mean(flat, node)
        if found is None:
            return _why_no_mask(flat, node) if node.op == "Sum" else NoMatch()
        dim = flat.known(found.values)[2]
        if not flat.is_float(found.values):
            return Refused(f"'{found.values.node}' is not float32")
        if not reshapable(flat, node.output()):
            return Refused(f"shape of '{node.name}' is not known")
        attrs = {"Tmask": found.mask.dtype, **found.attrs}
        inputs: list[Any] = [found.values, found.mask.given]
        return Found(Fusion(node.output(), "RecSequencePooling", inputs, attrs, (None, dim), (None, 1, dim)))


def _sums(flat: Flat, node: Node) -> Iterator[_Pooling]:
    """Find `Sum(x * mask, 1)`; with x [rows, length, 1] either factor may be the mask."""
    times = flat.direct(node.inputs[0], "Mul")
    if times is None or flat.reduced(node) != (1,):
        return
    for side, other in ((0, 1), (1, 0)):
        values = skip(flat.graph, times.inputs[side])
        mask = _mask(flat, values, times.inputs[other])
        if mask is not None:
            yield _Pooling(values, mask, {"combiner": "sum"})


def _why_no_mask(flat: Flat, node: Node) -> NoMatch | Refused:
    """Refuse a sum that is not replaced although one of its factors may be a mask of positions."""
    times = flat.direct(node.inputs[0], "Mul")
    if times is None or flat.reduced(node) != (1,):
        return NoMatch()
    for side, other in ((0, 1), (1, 0)):
        mask, values = times.inputs[other], times.inputs[side]
        sizes, whole = flat.known(mask), flat.known(values)
        if len(sizes) != 3 or len(whole) != 3 or sizes[2] != 1 or not comes_from_booleans(flat, mask):
            continue
        if whole[2] is None:
            return Refused(f"the size of the vectors of '{values.node}' is not known")
        if None in (sizes[1], whole[1]):
            shown = [f"'{output.node}' {_shown(flat, output)}" for output in (mask, values)]
            return Refused(f"mask {shown[0]} is not known to have one element for each position of {shown[1]}")
        if sizes[1] == whole[1]:
            return Refused(f"mask '{mask.node}' may be of other rows than '{values.node}'")
    return NoMatch()


def _shown(flat: Flat, output: Output) -> str:
    return "[" + ", ".join("?" if size is None else str(size) for size in flat.known(output)) + "]"


def _mask(flat: Flat, values: Output, output: Output) -> Mask | None:
    """Find a mask that is combined with values, element by element."""
    sizes, whole = flat.sizes(output), flat.sizes(values)
    if not whole or not sizes or len(whole) != 3 or len(sizes) != 3 or whole[2].known is None:
        return None
    if not alike(whole[0], sizes[0]) or whole[1] != sizes[1]:
        return None
    if whole[0] != sizes[0] and flat.graph.of("RecCollapseRows"):
        # The user's side may have one row and the items' side many.
        return None
    mask = find_mask(flat, output, whole[:2])
    # Other numbers per position are gates over experts, or attention.
    is_mask = mask is not None and (mask.given != mask.origin or flat.graph[mask.origin.node].op in _ORIGINS)
    return mask if mask is not None and (is_mask or mask.is_boolean) else None


def _mean(flat: Flat, node: Node) -> _Pooling | None:
    """Find a sum over positions that is divided by their number."""
    summed = flat.node(node.inputs[0], "Sum")
    for found in () if summed is None else _sums(flat, summed):
        attrs = _count(flat, node.inputs[1], found.mask, (flat.sizes(found.values) or ())[0])
        if attrs is None:
            continue
        # Weights from clients may be negative or cancel, so their sum may be near 0; a count is 0 or at least 1.
        if node.op == "DivNoNan" and ({"least", "epsilon"} & set(attrs) or found.mask.dtype.is_floating):
            continue
        # Zero divided by a tiny number is zero.
        least = {"least": 1e-30} if node.op == "DivNoNan" else {}
        return _Pooling(found.values, found.mask, {"combiner": "mean", **attrs, **least})
    return None


def _count(flat: Flat, output: Output, mask: Mask, rows: Any) -> dict[str, Any] | None:
    """Return how the number of positions is changed before it divides, or None if the divisor is another number."""
    sizes = flat.sizes(output)
    if not sizes or not alike(sizes[0], rows) or any(size.known != 1 for size in sizes[1:]):
        return None
    node = flat.node(output, "Add", "AddV2", "Maximum")
    if node is None:
        return _counts(flat, output, mask)
    for side, other in ((0, 1), (1, 0)):
        number, counts = flat.scalar(node.inputs[other]), _counts(flat, node.inputs[side], mask)
        if number is not None and number >= 0 and counts is not None:
            return {"least" if node.op == "Maximum" else "epsilon": number, **counts}
    return None


def _counts(flat: Flat, output: Output, mask: Mask) -> dict[str, Any] | None:
    """Return how an output counts positions: as the sum of a mask, or as the lengths from which the mask was made."""
    node = flat.node(output, "Cast")
    while node is not None:
        output = flat.source(node.inputs[0])
        if output == flat.source(mask.given) and mask.given != mask.origin:
            return {"by_length": True}
        node = flat.node(output, "Cast")
    summed = flat.node(output, "Sum")
    sizes = None if summed is None else flat.sizes(summed.inputs[0])
    if summed is None or not sizes or len(sizes) < 2 or flat.reduced(summed) != (1,):
        return None
    found = find_mask(flat, summed.inputs[0], sizes[:2])
    return {} if found is not None and found.origin == mask.origin else None


def _max(flat: Flat, node: Node) -> _Pooling | None:
    """Recognize `Max(x - (1 - mask) * big, 1)`, or the maximum of elements that a mask selects."""
    if flat.reduced(node) != (1,):
        return None
    shifted = flat.direct(node.inputs[0], "Sub", "Add", "AddV2", "SelectV2")
    if shifted is None:
        return None
    if shifted.op == "SelectV2":
        values, padding = skip(flat.graph, shifted.inputs[1]), flat.scalar(shifted.inputs[2])
        whole = flat.known(values) == flat.known(shifted.output())
        mask = None if padding is None or not whole else _mask(flat, values, shifted.inputs[0])
        return None if mask is None else _Pooling(values, mask, {"combiner": "max", "padding": padding})
    for side in (0,) if shifted.op == "Sub" else (0, 1):
        values = skip(flat.graph, shifted.inputs[side])
        times = flat.direct(shifted.inputs[1 - side], "Mul")
        for rest, factor in () if times is None else (times.inputs, times.inputs[::-1]):
            number, absent = flat.scalar(factor), flat.direct(rest, "Sub")
            if number is None or absent is None or flat.scalar(absent.inputs[0]) != 1.0:
                continue
            mask = _mask(flat, values, absent.inputs[1])
            if mask is not None:
                padding = -number if shifted.op == "Sub" else number
                return _Pooling(values, mask, {"combiner": "max", "padding": padding, "shift": True})
    return None
