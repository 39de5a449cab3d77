# SPDX-License-Identifier: Apache-2.0
"""Search for patterns in a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from types import MappingProxyType
from typing import Any

from graph_tools.graph import Graph, Node, Output, constant, skip
from graph_tools.rewriting.outcome import Found, NoMatch, Outcome, Refused
from graph_tools.rewriting.pattern import AnyAttribute, Facts, State, Value
from graph_tools.tensors import Array


class GraphFacts:
    """Facts about a graph that need no analysis."""

    def __init__(self, graph: Graph, roots: Set[str] = frozenset()) -> None:
        self.graph, self.roots = graph, roots

    def origin(self, output: Output) -> Output:
        """Follow an output back through identities."""
        return skip(self.graph, output)

    def known_value(self, output: Output) -> Array | None:
        """Return the elements of a constant, also behind casts and arithmetic on integers."""
        return constant(self.graph, output)


class Match:
    """The values that a pattern matched, by the patterns of which it consists."""

    def __init__(self, facts: Facts, bound: Mapping[Any, Any]) -> None:
        self._facts, self._bound = facts, bound

    def __getitem__(self, pattern: Value) -> Output:
        """Return the output that a pattern matched, behind nodes that only pass it on."""
        found: Output = self._bound[pattern]
        return found

    def get(self, pattern: Value) -> Output | None:
        """Return the output that a pattern matched, or None if the pattern has no part in the match."""
        return self._bound.get(pattern)

    def __contains__(self, pattern: Value) -> bool:
        """Return whether a pattern that is optional or an alternative has a part in the match."""
        return pattern in self._bound

    def node(self, pattern: Value) -> Node:
        """Return the node whose output a pattern matched."""
        return self._facts.graph[self[pattern].node]

    def attribute(self, pattern: AnyAttribute) -> Any:
        """Return the value of an attribute, or None if the node does not have it."""
        return self._bound[pattern]

    def elements(self, pattern: Value) -> Array:
        """Return the elements of a constant."""
        found = self._facts.known_value(self[pattern])
        assert found is not None
        return found

    def above(self, root: Value) -> Match | None:
        """Return the match with one more root, which uses a matched value, or None if there is no such root."""
        return next(self.each_above(root), None)

    def each_above(self, root: Value) -> Iterator[Match]:
        """Yield the match with one more root, once for each node that may be this root."""
        return (Match(self._facts, state.bound) for state in _above(self._facts, root, State(self._bound)))


class Pattern:
    """A pattern with one or several roots, each of which uses a value of the roots before it."""

    def __init__(self, root: Value, *others: Value) -> None:
        self.root, self.others = root, others

    def sites(self, graph: Graph) -> list[Node]:
        """Return the nodes that may be the first root."""
        return graph.of(*self.root.ops)

    def match(
        self, facts: Facts, output: Output, given: Mapping[Value, Output] = MappingProxyType({})
    ) -> Outcome[Match]:
        """Search for the pattern with its first root at an output, and with given values for some of its parts."""
        refused: Outcome[Match] = NoMatch()
        for state in self.root.matches(facts, output, State(given)):
            for whole in _with_others(facts, self.others, state):
                outcome = _check_expectations(facts, whole)
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


def _check_expectations(facts: Facts, state: State) -> Outcome[Match]:
    """Check the additional expectations of a match; refuse the match if one does not hold."""
    while state.expected:
        (expected, output), *rest = state.expected
        found = next(expected.inner.matches(facts, output, State(state.bound, tuple(rest))), None)
        if found is None:
            return Refused(expected.reason.format(output))
        state = found
    return Found(Match(facts, state.bound))


def _above(facts: Facts, root: Value, state: State) -> Iterator[State]:
    """Match a root that uses the nearest matched value, through as many nodes as the pattern has between them."""
    level: tuple[Value, ...] = (root,)
    held: list[Value] = []
    steps, anchor = 0, None
    while level and anchor is None:
        held = [pattern for pattern in level if pattern in state.bound]
        anchor = held[0] if held else None
        level = tuple(part for pattern in level for part in pattern.parts)
        steps += anchor is None
    if anchor is not None:
        for output in dict.fromkeys(_users(facts, state.bound[anchor].node, steps)):
            yield from root.matches(facts, output, state)


def _users(facts: Facts, name: str, steps: int) -> Iterator[Output]:
    """Yield the first outputs of nodes that use a node through at most `steps` nodes; identities do not count."""
    for user in facts.graph.users(name):
        result = user.output()
        passes_on = facts.origin(result) != result
        if not passes_on:
            yield result
        if passes_on or steps > 1:
            yield from _users(facts, user.name, steps if passes_on else steps - 1)
