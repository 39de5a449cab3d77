# SPDX-License-Identifier: Apache-2.0
"""Look for patterns in a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from types import MappingProxyType
from typing import Any

from graph_tools.graph import Graph, Node, Output, constant, skip
from graph_tools.rewriting.outcome import Found, NoMatch, Outcome, Refused
from graph_tools.rewriting.pattern import AnyAttribute, Facts, State, Value
from graph_tools.tensors import Array


class GraphFacts:
    """What a graph tells without an analysis."""

    def __init__(self, graph: Graph, roots: Set[str] = frozenset()) -> None:
        self.graph, self.roots = graph, roots

    def origin(self, output: Output) -> Output:
        """Follow an output back through identities."""
        return skip(self.graph, output)

    def constant(self, output: Output) -> Array | None:
        """Return the elements of a constant, seen through casts and arithmetic on integers."""
        return constant(self.graph, output)


class Match:
    """What a pattern found, by the patterns that it is made of."""

    def __init__(self, facts: Facts, bound: Mapping[Any, Any]) -> None:
        self._facts, self._bound = facts, bound

    def __getitem__(self, pattern: Value) -> Output:
        """Return the output that a pattern matched, behind nodes that only pass it on."""
        found: Output = self._bound[pattern]
        return found

    def get(self, pattern: Value) -> Output | None:
        """Return the output that a pattern matched, None where it has no part in the match."""
        return self._bound.get(pattern)

    def __contains__(self, pattern: Value) -> bool:
        """Return whether a pattern has a part in the match, of alternatives and what is optional."""
        return pattern in self._bound

    def node(self, pattern: Value) -> Node:
        """Return the node whose output a pattern matched."""
        return self._facts.graph[self[pattern].node]

    def attribute(self, pattern: AnyAttribute) -> Any:
        """Return the value of an attribute, None where the node has none."""
        return self._bound[pattern]

    def elements(self, pattern: Value) -> Array:
        """Return the elements of a constant."""
        found = self._facts.constant(self[pattern])
        assert found is not None
        return found

    def above(self, root: Value) -> Match | None:
        """Return the match with one more root, which uses what is matched already, None where nothing does so."""
        return next(self.each_above(root), None)

    def each_above(self, root: Value) -> Iterator[Match]:
        """Yield the match with one more root for each node that may be it."""
        return (Match(self._facts, state.bound) for state in _above(self._facts, root, State(self._bound)))


class Pattern:
    """A pattern of one root or several, each of which uses a value that those before it hold."""

    def __init__(self, root: Value, *others: Value) -> None:
        self.root, self.others = root, others

    def sites(self, graph: Graph) -> list[Node]:
        """Return the nodes that may be the first root."""
        return graph.of(*self.root.ops)

    def match(
        self, facts: Facts, output: Output, given: Mapping[Value, Output] = MappingProxyType({})
    ) -> Outcome[Match]:
        """Look for the pattern with its first root at an output, and with values that are given in their places."""
        refused: Outcome[Match] = NoMatch()
        for state in self.root.matches(facts, output, State(given)):
            for whole in _with_others(facts, self.others, state):
                outcome = _settle(facts, whole)
                if isinstance(outcome, Found):
                    return outcome
                refused = refused or outcome
        return refused


def _with_others(facts: Facts, others: tuple[Value, ...], state: State) -> Iterator[State]:
    if not others:
        yield state
        return
    for found in _above(facts, others[0], state):
        yield from _with_others(facts, others[1:], found)


def _settle(facts: Facts, state: State) -> Outcome[Match]:
    """Match what is expected besides, or say what is there instead."""
    while state.expected:
        (expected, output), *rest = state.expected
        found = next(expected.inner.matches(facts, output, State(state.bound, tuple(rest))), None)
        if found is None:
            return Refused(expected.reason.format(output))
        state = found
    return Found(Match(facts, state.bound))


def _above(facts: Facts, root: Value, state: State) -> Iterator[State]:
    """Match a root that uses, by as many nodes as the pattern has between, the nearest value that is matched."""
    level: tuple[Value, ...] = (root,)
    held: list[Value] = []
    steps, anchor = 0, None
    while level and anchor is None:
        held = [one for one in level if one in state.bound]
        anchor = held[0] if held else None
        level = tuple(part for one in level for part in one.parts)
        steps += anchor is None
    if anchor is not None:
        for output in dict.fromkeys(_users(facts, state.bound[anchor].node, steps)):
            yield from root.matches(facts, output, state)


def _users(facts: Facts, name: str, steps: int) -> Iterator[Output]:
    """Yield the first outputs of the nodes that use a node by at most so many nodes; identities do not count."""
    for user in facts.graph.users(name):
        result = user.output()
        passes_on = facts.origin(result) != result
        if not passes_on:
            yield result
        if passes_on or steps > 1:
            yield from _users(facts, user.name, steps if passes_on else steps - 1)
