# SPDX-License-Identifier: Apache-2.0
"""Decide which tensors groups produce, and which tensors one group can produce together."""

from __future__ import annotations

from dataclasses import dataclass, field

from graph_tools.analysis.batches import joined_parts
from graph_tools.analysis.sizes import Size
from graph_tools.graph import Node, Output
from graph_tools.recognition.lookups.piece_finder import PieceFinder
from graph_tools.recognition.lookups.pieces import Piece, as_sequence


@dataclass(frozen=True)
class Root:
    """A tensor that a node outside of groups needs."""

    output: Output
    piece: Piece


@dataclass
class Group:
    """Tensors that one node may produce.

    Attributes
    ----------
    batch : Size
        Number of rows, the same for all roots.
    level : int
        Number of lookups, one after another, that come before.
    needs : frozenset of str
        The signatures that need the roots.
    roots : list of Root
    """

    batch: Size
    level: int
    needs: frozenset[str]
    roots: list[Root] = field(default_factory=list)


def find_groups(finder: PieceFinder) -> list[Group]:
    """Return the groups of a graph, each after those whose lookups its features need."""
    wanted = _needed(finder)
    groups: dict[tuple[Size, int, frozenset[str]], Group] = {}
    for node in finder.graph.ordered():
        if node.name not in wanted:
            continue
        piece = finder.pieces[node.output()]
        batch, level = finder.batches.leader(piece.batch), max(map(finder.depth, piece.features()))
        place = (batch, level, finder.batches.needs[node.name])
        groups.setdefault(place, Group(*place)).roots.append(Root(node.output(), _simple(piece)))
    return sorted(groups.values(), key=lambda group: group.level)


def _needed(finder: PieceFinder) -> set[str]:
    """Return the names of the nodes that groups may replace, without those that only other such nodes need."""
    graph, wanted, seen = finder.graph, set(), set()
    waiting = list(finder.model.outputs())
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        node = graph[name]
        piece = finder.pieces.get(node.output())
        if piece is not None and piece.looks_up:
            wanted.add(name)
            waiting.extend(feature.node for feature in piece.features())
        else:
            waiting.extend([*(source.node for source in node.inputs), *node.controls])
    return wanted


def _simple(piece: Piece) -> Piece:
    """Return a piece in a form whose output needs no reshape."""
    return (as_sequence(piece) or piece) if len(piece.shape) == 2 else piece


def partial_joins(finder: PieceFinder) -> list[tuple[Node, list[list[int]]]]:
    """Return the nodes that join pieces with other tensors, and the inputs that a group may join before them.

    Returns
    -------
    list of (node, runs)
        Runs of two inputs or more: adjacent inputs of a ConcatV2, any inputs of an AddN.
    """
    found = []
    for node in finder.graph.of("ConcatV2", "AddN"):
        if node.output() in finder.pieces or node.controls or node.name not in finder.batches.needs:
            continue
        parts = joined_parts(node)
        if len(set(parts)) < len(parts):
            continue
        runs: list[list[int]] = [[]]
        for number, part in enumerate(parts):
            piece = finder.pieces.get(part)
            if piece is not None and piece.looks_up:
                runs[-1].append(number)
            elif node.op == "ConcatV2" and runs[-1]:
                runs.append([])
        long = [run for run in runs if 1 < len(run) < len(parts)]
        if long:
            found.append((node, long))
    return found
