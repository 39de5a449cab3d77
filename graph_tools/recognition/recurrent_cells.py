# SPDX-License-Identifier: Apache-2.0
"""Recognize the cells of recurrent layers in the terms of a loop: a GRU in both of its forms, and an LSTM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graph_tools.analysis.loop_terms import Term
from graph_tools.rewriting.outcome import Found, NoMatch, Outcome, Refused

#: A bias: an argument of the loop, and its row if it has several.
Bias = tuple[int, int | None]


@dataclass(frozen=True)
class Cell:
    """The cell that a loop computes for each position.

    Attributes
    ----------
    kind : str
        Its name in `RecRecurrentLayer`.
    units : int
    x : Term
        The input at a position.
    kernel, recurrent : int
        Arguments of the loop with the weights, gates side by side in the op's order.
    biases : tuple of tuple of Bias
        The biases of the products with x, and, for a GRU that resets afterwards, of the products with the state; the
        elements of each tuple are added.
    """

    kind: str
    units: int
    x: Term
    kernel: int
    recurrent: int
    biases: tuple[tuple[Bias, ...], tuple[Bias, ...]]


@dataclass(frozen=True)
class _Sum:
    """The sum `x · W + h · U + b` of one gate; `rest` contains the other terms."""

    x: Term
    kernel: int
    state: tuple[Term, int] | None
    biases: frozenset[Bias]
    gate: int
    rest: tuple[Term, ...] = ()


def find_gru(new: Term, state: Term) -> Outcome[Cell]:
    """Recognize the new state of a GRU."""
    for update, candidate in _mixtures(new, state):
        if update[0] != "Sigmoid":
            return Refused(f"its update gate is '{update[0]}', expected a sigmoid")
        if candidate[0] != "Tanh":
            return Refused(f"its activation is '{candidate[0]}', expected tanh")
        units = _units(update[1])
        z, inner = _read_gate(update[1], units), _read_gate(candidate[1], units)
        if z is None or inner is None or z.state is None or z.rest or z.gate != 0 or inner.gate != 2:
            return Refused("its gates are not sums of products with x and the state, with z, r and h side by side")
        cell = _gru(z, inner, state, units)
        return Refused("its reset gate is applied in an unknown way") if cell is None else Found(cell)
    return NoMatch()


def _mixtures(new: Term, state: Term) -> Iterator[tuple[Term, Term]]:
    """Find z and c in `z ∘ state + (1 - z) ∘ c`."""
    if new[0] != "sum" or len(new[1]) != 2 or any(term[0] != "product" or len(term[1]) != 2 for term in new[1]):
        return
    for kept, added in (new[1], new[1][::-1]):
        for update in (factor for factor in kept[1] if state in kept[1] and factor != state):
            for rest, candidate in (added[1], added[1][::-1]):
                if rest[0] == "-" and rest[1][0] == "const" and rest[1][1] == (1.0,) and rest[2] == update:
                    yield update, candidate


def _gru(z: _Sum, inner: _Sum, state: Term, units: int) -> Cell | None:
    """Distinguish the two forms by the term that is added to the candidate's product with x."""
    if z.state is None or z.state[0] != state or (inner.x, inner.kernel) != (z.x, z.kernel):
        return None
    recurrent = z.state[1]
    if inner.state is not None:
        reset = _other_factor(inner.state[0], state)
        kind, recurrent_biases = "gru_reset_before", frozenset[Bias]()
        if inner.rest or reset is None or inner.state[1] != recurrent:
            return None
    else:
        if len(inner.rest) != 1 or inner.rest[0][0] != "product" or len(inner.rest[0][1]) != 2:
            return None
        kind = "gru"
        for reset, gated in (inner.rest[0][1], inner.rest[0][1][::-1]):
            part = _read_state(gated, units)
            if part is not None and part[:3] == (state, recurrent, 2) and reset[0] == "Sigmoid":
                recurrent_biases = part[3]
                break
        else:
            return None
    if reset[0] != "Sigmoid":
        return None
    r = _read_gate(reset[1], units)
    if r is None or r.rest or r.gate != 1 or r.state != z.state or (r.x, r.kernel) != (z.x, z.kernel):
        return None
    if inner.biases & recurrent_biases or not z.biases == r.biases == inner.biases | recurrent_biases:
        return None
    return Cell(kind, units, z.x, z.kernel, recurrent, (_sorted_biases(inner.biases), _sorted_biases(recurrent_biases)))


def find_lstm(new: Term, memory_new: Term, state: Term, memory: Term) -> Outcome[Cell]:
    """Recognize the new state and memory of an LSTM."""
    output = _other_factor(new, ("Tanh", memory_new))
    if output is None or memory_new[0] != "sum" or len(memory_new[1]) != 2:
        return NoMatch()
    for kept, added in (memory_new[1], memory_new[1][::-1]):
        forget = _other_factor(kept, memory)
        if forget is None or added[0] != "product" or len(added[1]) != 2:
            continue
        for entry, candidate in (added[1], added[1][::-1]):
            if candidate[0] != "Tanh" or any(gate[0] != "Sigmoid" for gate in (entry, forget, output)):
                continue
            units = _units(output[1])
            sums = [_read_gate(activated[1], units) for activated in (entry, forget, candidate, output)]
            first = sums[0]
            if first is None or first.state is None or first.state[0] != state:
                return Refused("its gates are not sums of products with x and with the state")
            for number, gate in enumerate(sums):
                if gate is None or gate.rest or gate.gate != number or _parts(gate) != _parts(first):
                    return Refused("its gates are not i, f, c and o side by side in one matrix")
            return Found(Cell("lstm", units, first.x, first.kernel, first.state[1], (_sorted_biases(first.biases), ())))
        return Refused("its gates are not sigmoids, or its activations are not tanh")
    return NoMatch()


def _parts(gate: _Sum) -> tuple[object, ...]:
    return gate.x, gate.kernel, gate.state, gate.biases


def _other_factor(term: Term, factor: Term) -> Term | None:
    """Return the other factor of a product of two factors."""
    if term[0] != "product" or len(term[1]) != 2 or factor not in term[1]:
        return None
    first, second = term[1]
    found: Term = second if first == factor else first
    return found


def _units(term: Term) -> int:
    """Return the number of columns that the first product of a sum uses, or 0 if there is no product."""
    parts = term[1] if term[0] == "sum" else (term,)
    return next((part[4] - part[3] for part in parts if part[0] == "dot"), 0)


def _gate_number(begin: int, end: int, units: int) -> int | None:
    return begin // units if units and end - begin == units and begin % units == 0 else None


def _read_gate(term: Term, units: int) -> _Sum | None:
    """Read the sum of a gate; of two products, the one with an element of a list is the product with x."""
    parts = term[1] if term[0] == "sum" else (term,)
    of_x = [part for part in parts if part[0] == "dot" and part[1][0] == "item"]
    of_state = [part for part in parts if part[0] == "dot" and part[1][0] != "item"]
    biases = [part for part in parts if part[0] == "columns"]
    gates = {_gate_number(part[-2], part[-1], units) for part in [*of_x, *of_state, *biases]}
    if len(of_x) != 1 or len(of_state) > 1 or len(gates) != 1 or None in gates:
        return None
    rest = tuple(part for part in parts if part[0] not in {"dot", "columns"})
    state = (of_state[0][1], of_state[0][2]) if of_state else None
    named = _set_of_biases(biases)
    gate = gates.pop()
    return None if named is None or gate is None else _Sum(of_x[0][1], of_x[0][2], state, named, gate, rest)


def _read_state(term: Term, units: int) -> tuple[Term, int, int, frozenset[Bias]] | None:
    """Read `h · U + c` of a gate: the state, the weights, the gate and the biases."""
    parts = term[1] if term[0] == "sum" else (term,)
    products = [part for part in parts if part[0] == "dot"]
    biases = [part for part in parts if part[0] == "columns"]
    gates = {_gate_number(part[-2], part[-1], units) for part in [*products, *biases]}
    gate = gates.pop() if len(gates) == 1 else None
    named = _set_of_biases(biases)
    if len(products) != 1 or len(products) + len(biases) != len(parts) or gate is None or named is None:
        return None
    return products[0][1], products[0][2], gate, named


def _set_of_biases(biases: list[Term]) -> frozenset[Bias] | None:
    named = frozenset((bias[1], bias[2]) for bias in biases)
    return named if len(named) == len(biases) else None


def _sorted_biases(biases: frozenset[Bias]) -> tuple[Bias, ...]:
    return tuple(sorted(biases, key=repr))
