# SPDX-License-Identifier: Apache-2.0
"""Sizes as a number times symbols, and the facts about them that the rules for ops use."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from graph_tools.analysis.shapes import ShapeOf
from graph_tools.graph import Graph, Node, Output


class Size(NamedTuple):
    """A number times symbols; a symbol is a size of some tensor: (node, port, axis)."""

    number: int
    symbols: tuple[tuple[str, int, int], ...] = ()

    @property
    def known(self) -> int | None:
        return None if self.symbols else self.number


Sizes = tuple[Size, ...]

ONE = Size(1)


class SizeFacts(Protocol):
    """The sizes and small integer tensors that are known so far."""

    graph: Graph
    shape_of: ShapeOf

    def of(self, output: Output) -> Sizes | None:
        """Return the sizes of an output, or None if its rank is not known."""

    def value(self, output: Output) -> Sizes | None:
        """Return the elements of a small integer tensor of sizes, or None."""

    def numbers(self, output: Output) -> list[int] | None:
        """Return the elements of a small integer tensor that are the same in every request, or None."""


Rule = Callable[[SizeFacts, Node], Sizes | None]
"""Returns the sizes of a node's first output, or its elements if it is a small integer tensor; None: not known."""


def product(sizes: Iterable[Size]) -> Size:
    """Multiply sizes."""
    sizes = list(sizes)
    return Size(math.prod(size.number for size in sizes), tuple(sorted(s for size in sizes for s in size.symbols)))


def quotient(whole: Size, part: Size) -> Size | None:
    """Divide sizes, or return None if the quotient is not a size."""
    left = list(whole.symbols)
    for symbol in part.symbols:
        if symbol not in left:
            return None
        left.remove(symbol)
    if not part.number or whole.number % part.number:
        return None
    return Size(whole.number // part.number, tuple(left))
