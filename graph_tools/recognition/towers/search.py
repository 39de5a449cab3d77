# SPDX-License-Identifier: Apache-2.0
"""Find all pieces of a graph, and the pieces that may be parts of a tower."""

from __future__ import annotations

from graph_tools.graph import Node, Output
from graph_tools.recognition.formula_graph import Formulas
from graph_tools.recognition.towers.dense import dense
from graph_tools.recognition.towers.elements import element
from graph_tools.recognition.towers.idioms import formula_piece, gated_experts
from graph_tools.recognition.towers.pieces import Piece, Site, controls_others
from graph_tools.rewriting.outcome import Found, Refused

#: Kinds that may come before the first layer, with their number of inputs. Sums of many inputs belong to lookups.
_BEFORE = {"view": 1, "affine": 1, "activation": 1, "layer_norm": 1, "add": 2}
#: Shapes are computed by fewer nodes than this.
_MOST_OF_SHAPE = 64


def find_pieces(site: Site) -> list[Piece]:
    """Find the pieces from which towers may be made, each after the pieces whose outputs it uses."""
    order = site.graph.ordered()
    ordering = controls_others(site.graph)
    plain = [node for node in order if not node.controls and node.name not in ordering]
    idioms = _find_idioms(site, plain)
    claimed = set().union(*(idiom.nodes for idiom in idioms.values())) if idioms else set()
    for node in plain:
        if node.output() in idioms:
            site.pieces[node.output()] = idioms[node.output()]
        elif not _is_inside(site, node, claimed):
            piece = _piece(site, node)
            if piece is not None:
                site.pieces[node.output()] = piece
    return useful(site)


def _find_idioms(site: Site, plain: list[Node]) -> dict[Output, Piece]:
    """Find idioms, the longest first, since a part of one may look like another one."""
    formulas = Formulas(site.model, site.values, site.shapes)
    found: dict[Output, Piece] = {}
    claimed: set[str] = set()
    names = {node.name for node in plain}
    for node in reversed(plain):
        if _is_inside(site, node, claimed):
            continue
        piece = gated_experts(site, node) or formula_piece(site, formulas, node)
        if piece is not None and piece.nodes <= names:
            found[piece.output] = piece
            claimed |= piece.nodes
    return found


def _is_inside(site: Site, node: Node, claimed: set[str]) -> bool:
    """Return whether only nodes of idioms use a node, so that it is removed with them."""
    users = site.graph.users(node.name)
    inside = node.name in claimed and node.name not in site.model.roots() and bool(users)
    return inside and all(user.name in claimed for user in users)


def _piece(site: Site, node: Node) -> Piece | None:
    found = dense(site, node)
    if isinstance(found, Refused):
        site.refused[node.name] = found.reason
        return None
    return found.value if isinstance(found, Found) else element(site, node)


def takes(site: Site, piece: Piece, index: int) -> Piece | None:
    """Return the piece that computes an input of another piece in the same rows."""
    before = site.pieces.get(piece.inputs[index])
    return before if before is not None and before.width == piece.widths[index] else None


def useful(site: Site) -> list[Piece]:
    """Return the pieces that have a layer before them, or that only useful pieces right after them use."""
    deep: set[Output] = set()
    for output, piece in site.pieces.items():
        before = [takes(site, piece, i) for i in range(len(piece.inputs))]
        if piece.kind == "dense" or any(earlier is not None and earlier.output in deep for earlier in before):
            deep.add(output)
    kept = _Kept(site)
    for output, piece in reversed(site.pieces.items()):
        leads = len(piece.inputs) <= _BEFORE.get(piece.kind, 0) and bool(site.graph.users(output.node))
        leads = leads and output.node not in site.model.roots()
        if output in deep or (leads and kept.takes_all_of(output.node)):
            kept.add(piece)
    site.pieces = {output: piece for output, piece in site.pieces.items() if output in kept.outputs}
    return list(site.pieces.values())


class _Kept:
    """The pieces kept so far, beginning with the last one."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.outputs: set[Output] = set()
        self._inside: set[str] = set()
        self._views: set[str] = set()
        self._roots = site.model.roots()

    def add(self, piece: Piece) -> None:
        self.outputs.add(piece.output)
        self._inside |= piece.nodes
        if piece.kind == "view":
            self._views.add(piece.output.node)

    def takes_all_of(self, name: str) -> bool:
        """Return whether only these pieces use a node; nodes that compute the shapes of their views do not count."""
        return all(user.name in self._inside or self._is_of_shape(user) for user in self.site.graph.users(name))

    def _is_of_shape(self, node: Node) -> bool:
        """Return whether a node is only used to compute the second input of views."""
        graph = self.site.graph
        waiting, seen = [node.name], {node.name}
        while waiting:
            name = waiting.pop()
            users = graph.users(name)
            if name in self._roots or not users or len(seen) > _MOST_OF_SHAPE:
                return False
            for user in users:
                data = [i for i, source in enumerate(user.inputs) if source.node == name]
                if user.name in self._views and 0 not in data:
                    continue
                if user.name not in seen:
                    seen.add(user.name)
                    waiting.append(user.name)
        return True
