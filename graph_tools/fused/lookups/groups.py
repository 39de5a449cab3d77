# SPDX-License-Identifier: Apache-2.0
"""Decide which tensors a group produces, and which of them one group can produce together."""

from __future__ import annotations

from dataclasses import dataclass, field

from graph_tools.fused.lookups.finder import PieceFinder
from graph_tools.fused.lookups.pieces import Piece, as_sequence
from graph_tools.graph import Node, Output
from graph_tools.passes._sizes import Size


@dataclass(frozen=True)
class Root:
    """A tensor that something needs which is no part of a group."""

    output: Output
    piece: Piece


@dataclass
class Group:
    """Tensors that one node may produce.

    Attributes
    ----------
    batch : Size
        Rows of all of them.
    level : int
        How many lookups have to be done before.
    needs : frozenset of str
        The signatures that need them.
    roots : list of Root
    """

    batch: Size
    level: int
    needs: frozenset[str]
    roots: list[Root] = field(default_factory=list)


def find_groups(finder: PieceFinder) -> list[Group]:
    """Return the groups of a graph, each after those whose lookups its features need."""
    groups: dict[tuple[Size, int, frozenset[str]], Group] = {}
    for node in finder.graph.ordered():
        output = node.output()
        piece = finder.pieces.get(output)
        if piece is None or not piece.looks_up or not _is_root(finder, node):
            continue
        batch, level = finder.batches.leader(piece.batch), max(map(finder.depth, piece.features()))
        place = (batch, level, finder.batches.needs[node.name])
        groups.setdefault(place, Group(*place)).roots.append(Root(output, _simple(piece)))
    return sorted(groups.values(), key=lambda group: group.level)


def _is_root(finder: PieceFinder, node: Node) -> bool:
    """Say whether anything but a larger piece takes what a node gives."""
    graph = finder.graph
    if node.name in finder.model.outputs():
        return True
    taken = [user for user in graph.users(node.name) if user.name in finder.batches.needs]
    return any(not _is_absorbed(finder, node, user) for user in taken)


def _is_absorbed(finder: PieceFinder, node: Node, user: Node) -> bool:
    piece = finder.pieces.get(user.output())
    if piece is None or not piece.looks_up or node.name in user.controls:
        return False
    # A tensor that is a feature of its user's piece, not one of its parts, has to be there.
    return node.output() not in set(piece.features())


def _simple(piece: Piece) -> Piece:
    """Return a piece in the form whose output needs no reshape."""
    return (as_sequence(piece) or piece) if len(piece.shape) == 2 else piece


def partial_joins(finder: PieceFinder) -> list[tuple[Node, list[list[int]]]]:
    """List nodes that join pieces with what is none, and which inputs a group may join before them.

    Returns
    -------
    list of (node, runs)
        Runs of two inputs or more: next to each other of a ConcatV2, any of an AddN.
    """
    found = []
    for node in finder.graph.of("ConcatV2", "AddN"):
        if node.output() in finder.pieces or node.controls or node.name not in finder.batches.needs:
            continue
        parts = node.inputs[:-1] if node.op == "ConcatV2" else node.inputs
        runs: list[list[int]] = [[]]
        for number, one in enumerate(parts):
            piece = finder.pieces.get(one)
            if piece is not None and piece.looks_up:
                runs[-1].append(number)
            elif node.op == "ConcatV2" and runs[-1]:
                runs.append([])
        long = [run for run in runs if len(run) > 1]
        if long:
            found.append((node, long))
    return found
