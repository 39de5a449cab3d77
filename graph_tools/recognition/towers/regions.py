# SPDX-License-Identifier: Apache-2.0
"""Join pieces into regions, each of which can be one op: no path leaves a region and returns to it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from graph_tools.graph import Output
from graph_tools.recognition.towers.pieces import Piece, Site
from graph_tools.recognition.towers.search import takes


class Regions:
    """A partition of the pieces of a graph.

    The edges of the graph of regions are those that remain once each piece reads its inputs directly. Nodes inside a
    piece do not count, nor do nodes that compute the shape of a reshape.
    """

    def __init__(self, site: Site, pieces: list[Piece]) -> None:
        self.site, self.pieces = site, pieces
        self._place = {piece.output.node: i for i, piece in enumerate(pieces)}
        self._region = list(range(len(pieces)))
        self._members: dict[int, list[int]] = {i: [i] for i in range(len(pieces))}
        self._users: dict[str, set[str]] = {}
        for node in site.graph:
            i = self._place.get(node.name)
            before = [*node.inputs, *map(Output, node.controls)] if i is None else pieces[i].inputs
            for source in before:
                self._users.setdefault(source.node, set()).add(node.name)

    def join_neighbors(self) -> None:
        """Join each piece to the pieces that compute its inputs."""
        for i, piece in enumerate(self.pieces):
            for index in range(len(piece.inputs)):
                before = takes(self.site, piece, index)
                if before is not None:
                    self._join(self._place[before.output.node], i)

    def join_siblings(self) -> None:
        """Join regions that use the same rows."""
        takers: dict[tuple[Output, int], list[int]] = {}
        for i, piece in enumerate(self.pieces):
            if not self._has_layer(i):
                continue
            for output, width in zip(piece.inputs, piece.widths, strict=True):
                takers.setdefault((output, width), []).append(i)
        for found in takers.values():
            for first, second in pairwise(found):
                self._join(first, second)

    def found(self) -> list[list[Piece]]:
        """Return the regions that have a layer, in the order of their first pieces."""
        regions = sorted(sorted(member) for member in self._members.values())
        return [[self.pieces[i] for i in region] for region in regions if self._has_layer(region[0])]

    def _has_layer(self, i: int) -> bool:
        return any(self.pieces[member].kind == "dense" for member in self._members[self._region[i]])

    def _join(self, i: int, k: int) -> bool:
        first, second = self._region[i], self._region[k]
        if first == second:
            return True
        if self._leads_around(first, second) or self._leads_around(second, first):
            return False
        for member in self._members[second]:
            self._region[member] = first
        self._members[first] += self._members.pop(second)
        return True

    def _leads_around(self, begin: int, end: int) -> bool:
        """Return whether a path leads from one region to another through nodes outside of both."""
        outside = [name for name in self._after(begin) if self._region_of(name) not in (begin, end)]
        seen = set(outside)
        while outside:
            name = outside.pop()
            region = self._region_of(name)
            for after in self._users.get(name, ()) if region is None else self._after(region):
                if self._region_of(after) == end:
                    return True
                if after not in seen and self._region_of(after) != begin:
                    seen.add(after)
                    outside.append(after)
        return False

    def _region_of(self, name: str) -> int | None:
        place = self._place.get(name)
        return None if place is None else self._region[place]

    def _after(self, region: int) -> Iterable[str]:
        for member in self._members[region]:
            yield from self._users.get(self.pieces[member].output.node, ())
