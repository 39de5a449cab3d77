# SPDX-License-Identifier: Apache-2.0
"""Read the loop of a recurrent layer: its sequence of positions, its cell, its mask and its results."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from graph_tools.analysis.flat import Flat
from graph_tools.analysis.loop_terms import Term, Terms
from graph_tools.analysis.symbolic_shapes import Size
from graph_tools.graph import Node, Output, skip
from graph_tools.recognition.recurrent_cells import Cell, find_gru, find_lstm
from graph_tools.rewriting.outcome import Found, Outcome, Refused

#: The order of dimensions that turns [rows, positions, ...] into [positions, rows, ...], and back.
TURNED = [1, 0, 2]


@dataclass(frozen=True)
class Loop:
    """A loop that processes one position after the other.

    Attributes
    ----------
    node : Node
    returned : list of Term
        Its results, as terms of its arguments.
    time : int
        The argument that counts the positions.
    """

    node: Node
    returned: list[Term]
    time: int

    def is_position(self, term: Term) -> bool:
        return bool(term[0] == "item" and term[1][0] == "arg" and term[2] == ("arg", self.time))


@dataclass(frozen=True)
class Layer:
    """A recurrent layer that a loop computes: the cell, and the arguments of state, results and mask."""

    cell: Cell
    state: int
    results: int | None
    mask: int | None


def read_loop(flat: Flat, node: Node) -> Outcome[Loop]:
    """Read a loop, and check that it processes every position of a sequence once."""
    library = flat.graph.library
    body, condition = (library.get(node.attrs[key].func.name) for key in ("body", "cond"))
    if body is None or condition is None or node.controls:
        return Refused("its functions are not known")

    def shape_of(index: int) -> list[int | None] | None:
        return _shape(flat, node.inputs[index])

    returned, (check,) = Terms(body, shape_of).returned, Terms(condition, shape_of).returned
    counters = [
        i
        for i, term in enumerate(returned)
        if term[0] == "sum" and ("arg", i) in term[1] and ("const", (1,), ()) in term[1] and len(term[1]) == 2
        and flat.scalar(node.inputs[i]) == 0
    ]  # fmt: skip
    items = {term[2] for term in _walk(returned) if term[0] == "item"}
    if len(items) != 1:
        return Refused("it reads sequences at several places" if items else "it reads no sequence")
    (place,) = items
    if place[0] != "arg" or place[1] not in counters:
        return Refused("it does not read one position after the other")
    limits = [check] if check[0] == "Less" else list(check[1:]) if check[0] == "LogicalAnd" else []
    if not limits or any(limit[0] != "Less" or limit[1][0] != "arg" or limit[1][1] not in counters for limit in limits):
        return Refused("its condition does not only compare the position with a number of positions")
    lists = {term[1][1] for term in _walk(returned) if term[0] == "item" and term[1][0] == "arg"}
    sequences = [sequence_of(flat, node.inputs[index]) for index in lists]
    lengths = [None if found is None else (flat.sizes(found[0]) or [None, None])[1] for found in sequences]
    for limit in limits:
        count = _size(flat, node, limit[2])
        if count is None or any(length != count for length in lengths):
            return Refused("it is not known to go through whole sequences")
    return Found(Loop(node, returned, place[1]))


def read_layer(loop: Loop) -> Outcome[Layer]:
    """Recognize the layer that a loop computes."""
    refused = Refused("its state is changed in another way")
    states = [i for i, term in enumerate(loop.returned) if term[0] in {"sum", "product", "select"} and i != loop.time]
    for state in states:
        outcome = _find_cell(loop, state, states)
        if isinstance(outcome, Found):
            return _layer(loop, outcome.value, state)
        refused = outcome or refused
    return refused


def _find_cell(loop: Loop, state: int, states: list[int]) -> Outcome[Cell]:
    """Recognize the cell whose state is an argument; another argument may be its memory."""
    new, mask = _unmasked(loop, state)
    cell = find_gru(new, ("arg", state))
    for memory in states:
        if not cell and memory != state:
            memory_new, memory_mask = _unmasked(loop, memory)
            cell = find_lstm(new, memory_new, ("arg", state), ("arg", memory))
            if isinstance(cell, Found) and memory_mask != mask:
                cell = Refused("memory and state have different masks")
    return cell


def _layer(loop: Loop, cell: Cell, state: int) -> Outcome[Layer]:
    """Check the input and the mask of a cell, and find its results."""
    new, mask = _unmasked(loop, state)
    if not loop.is_position(cell.x):
        return Refused("its cell reads values other than the positions of a sequence")
    if mask is not None and not loop.is_position(mask):
        return Refused("its mask is not a sequence")
    return _with_results(loop, Layer(cell, state, None, None if mask is None else mask[1][1]), new)


def _unmasked(loop: Loop, state: int) -> tuple[Term, Term | None]:
    """Return the new state at positions that count, and the mask, of `select(mask, new, state)`."""
    new = loop.returned[state]
    if new[0] == "select" and new[3] == ("arg", state):
        return new[2], new[1]
    return new, None


def _with_results(loop: Loop, layer: Layer, new: Term) -> Outcome[Layer]:
    """Find the list to which the states are written."""
    lists = [i for i, term in enumerate(loop.returned) if term[0] == "set"]
    if len(lists) != 1:
        return Refused("it writes several lists") if lists else Found(layer)
    _, written, _, value = loop.returned[lists[0]]
    if written != ("arg", lists[0]):
        return Refused("it writes to another list than the one that it returns")
    if value[0] == "select" and layer.mask is not None and value[1][1] == ("arg", layer.mask) and value[2] == new:
        # At a position that does not count, the result before is kept; like the state, it begins with zero.
        before = value[3]
        if before[0] != "arg" or loop.returned[before[1]] not in (value, loop.returned[layer.state]):
            return Refused("positions that its mask omits do not repeat the previous result")
    elif value != new or layer.mask is not None:
        return Refused("it writes values other than its state")
    return Found(replace(layer, results=lists[0]))


def sequence_of(flat: Flat, output: Output) -> tuple[Output, bool] | None:
    """Return the tensor [rows, positions, ...] whose positions a list contains, and whether they are reversed."""
    made = flat.direct(output, "TensorListFromTensor")
    if made is None:
        return None
    given = made.inputs[0]
    reverse = flat.direct(given, "ReverseV2")
    if reverse is not None:
        if flat.shapes.numbers(reverse.inputs[1]) != [0]:
            return None
        given = reverse.inputs[0]
    turned = flat.direct(given, "Transpose")
    if turned is None or flat.shapes.numbers(turned.inputs[1]) != TURNED or len(flat.known(turned.inputs[0])) != 3:
        return None
    return skip(flat.graph, turned.inputs[0]), reverse is not None


def _size(flat: Flat, node: Node, term: Term) -> Any:
    """Return the number of positions that a term is: a constant of the loop, or an argument that it does not change."""
    if term[0] == "const" and len(term[1]) == 1:
        return Size(int(term[1][0]))
    if term[0] != "arg":
        return None
    output = skip(flat.graph, node.inputs[term[1]])
    largest = flat.direct(output, "Max")
    value = flat.shapes.value(output if largest is None else largest.inputs[0])
    return value[0] if value is not None and len(value) == 1 else None


def _shape(flat: Flat, output: Output) -> list[int | None] | None:
    """Return the shape of a weight, or of the variable if the weight is a handle."""
    node = flat.graph[skip(flat.graph, output).node]
    if node.op == "VarHandleOp":
        source = flat.model.variables.get(node.name)
        return None if source is None else list(source.shape)
    shape = flat.shape_of(skip(flat.graph, output))
    return None if shape is None else list(shape)


def _walk(terms: Iterable[Term]) -> Iterable[Term]:
    """Yield terms and all terms that they contain."""
    waiting = list(terms)
    while waiting:
        term = waiting.pop()
        if not term or not isinstance(term[0], str):
            waiting += [part for part in term if isinstance(part, tuple)]
            continue
        yield term
        waiting += [part for part in term[1:] if isinstance(part, tuple)]
