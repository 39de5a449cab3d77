# SPDX-License-Identifier: Apache-2.0
"""Describe subgraphs by patterns, which are written like the programs that they match.

    x, keep = value(), any_attribute()
    total = op("Sum", x, const(1), keep_dims=keep)
    squares = op("Sum", squared(x), const(1), keep_dims=keep)
    fm = op("Sub", squared(total), squares)

A pattern that is used in two places matches the same value in both. The patterns are the keys to the matched values:
`match[x]`, `match.node(total)`, `match.attribute(keep)`. `graph_tools.rewriting.matcher` searches for patterns.

Operands of commutative ops match in either order. Nodes with control inputs match only if `waits=True`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from types import EllipsisType, MappingProxyType
from typing import Any, NamedTuple, Protocol

from graph_tools.graph import Graph, Output, attribute
from graph_tools.tensors import Array

_COMMUTATIVE = {
    "Add", "AddV2", "Equal", "LogicalAnd", "LogicalOr", "Maximum", "Minimum", "Mul", "NotEqual", "SquaredDifference",
}  # fmt: skip


class Facts(Protocol):
    """The facts about a graph that patterns use; the tests of `where` may use analyses that have more of them."""

    @property
    def graph(self) -> Graph:
        """Return the graph."""

    @property
    def roots(self) -> Set[str]:
        """Return the names of nodes that are outputs or are kept for another reason."""

    def origin(self, output: Output) -> Output:
        """Follow an output back through nodes that only pass it on."""

    def known_value(self, output: Output) -> Array | None:
        """Return the elements of an output that is known before any request, or None."""


#: A condition on a value, given the facts about the graph. `Any` stands for the type of facts that the pass uses.
Test = Callable[[Any, Output], object]


class State(NamedTuple):
    """The values that have been matched so far.

    Attributes
    ----------
    bound : mapping
        Value or attribute by its pattern.
    expected : tuple of (Expected, Output)
        The additional conditions to check once the rest has matched.
    """

    bound: Mapping[Any, Any] = MappingProxyType({})
    expected: tuple[tuple[Expected, Output], ...] = ()

    def bind(self, pattern: object, found: object) -> State:
        return self._replace(bound={**self.bound, pattern: found})


class Value:
    """Any value, independent of the node that computes it.

    Attributes
    ----------
    parts : tuple of Value
        The patterns of which this one consists.
    ops : frozenset of str
        Ops of the nodes that may compute it; empty: any.
    """

    def __init__(self, parts: Iterable[Value] = (), ops: Iterable[str] = ()) -> None:
        self.parts, self.ops = tuple(parts), frozenset(ops)

    def where(self, test: Test) -> Value:
        """Match only if a test holds."""
        return _Where(self, test)

    def __and__(self, other: Value) -> Value:
        """Match if both patterns match."""
        return _Both(self, other)

    def __or__(self, other: Value) -> Value:
        """Match either of two patterns; try the first one first."""
        return _Either((*(self.parts if isinstance(self, _Either) else (self,)), other))

    def matches(self, facts: Facts, output: Output, state: State) -> Iterator[State]:
        """Yield each way in which an output matches."""
        output = facts.origin(output)
        if self.ops and facts.graph[output.node].op not in self.ops:
            return
        if self in state.bound:
            if state.bound[self] == output:
                yield state
            return
        for found in self._matches(facts, output, state):
            yield found.bind(self, output)

    def _matches(self, facts: Facts, output: Output, state: State) -> Iterator[State]:
        yield state


class _Where(Value):
    def __init__(self, inner: Value, test: Test) -> None:
        super().__init__([inner], inner.ops)
        self.inner, self.test = inner, test

    def _matches(self, facts: Facts, output: Output, state: State) -> Iterator[State]:
        for found in self.inner.matches(facts, output, state):
            if self.test(facts, output):
                yield found


class _Both(Value):
    def __init__(self, first: Value, second: Value) -> None:
        super().__init__([first, second], first.ops)

    def _matches(self, facts: Facts, output: Output, state: State) -> Iterator[State]:
        return _match_all(facts, [(part, output) for part in self.parts], state)


class _Either(Value):
    def __init__(self, alternatives: tuple[Value, ...]) -> None:
        each = [alternative.ops for alternative in alternatives]
        super().__init__(alternatives, frozenset().union(*each) if all(each) else ())

    def _matches(self, facts: Facts, output: Output, state: State) -> Iterator[State]:
        for alternative in self.parts:
            yield from alternative.matches(facts, output, state)


class Constant(Value):
    """A value that is known before any request; in two places it may have different elements."""

    def __init__(self, accepts: Callable[[Array], object]) -> None:
        super().__init__()
        self.accepts = accepts

    def matches(self, facts: Facts, output: Output, state: State) -> Iterator[State]:
        elements = facts.known_value(output)
        if elements is not None and self.accepts(elements):
            yield state.bind(self, facts.origin(output))


class AnyAttribute:
    """An attribute of a node; in two places it has the same value in both."""


class Op(Value):
    """The first output of a node."""

    def __init__(
        self, ops: Iterable[str], inputs: tuple[Value | EllipsisType, ...], attributes: dict[str, Any], waits: bool
    ) -> None:
        super().__init__([source for source in inputs if isinstance(source, Value)], ops)
        self.attributes, self.waits = attributes, waits
        self.has_more = ... in inputs
        self.ahead = inputs.index(...) if self.has_more else len(inputs)

    def output(self, port: int) -> Value:
        """Return the pattern of another output of the same node."""
        return _Port(self, port)

    def _matches(self, facts: Facts, output: Output, state: State) -> Iterator[State]:
        node = facts.graph[output.node]
        if output.port or (node.controls and not self.waits):
            return
        count, given = len(self.parts), node.inputs
        if len(given) < count or (len(given) > count and not self.has_more):
            return
        for key, expected in self.attributes.items():
            held = _with_attribute(state, attribute(node, key, None), expected)
            if held is None:
                return
            state = held
        named = [*given[: self.ahead], *given[len(given) - count + self.ahead :]]
        yield from _match_all(facts, list(zip(self.parts, named, strict=True)), state)
        if node.op in _COMMUTATIVE and count == 2:
            yield from _match_all(facts, list(zip(self.parts, named[::-1], strict=True)), state)


def _with_attribute(state: State, found: Any, expected: Any) -> State | None:
    if isinstance(expected, AnyAttribute):
        if expected not in state.bound:
            return state.bind(expected, found)
        expected = state.bound[expected]
    fits = expected(found) if callable(expected) else (found or False) == (expected or False)
    return state if fits else None


def _match_all(facts: Facts, pairs: list[tuple[Value, Output]], state: State) -> Iterator[State]:
    if not pairs:
        yield state
        return
    (pattern, output), *rest = pairs
    for found in pattern.matches(facts, output, state):
        yield from _match_all(facts, rest, found)


class _Port(Value):
    def __init__(self, of: Op, port: int) -> None:
        super().__init__([of])
        self.of, self.port = of, port

    def _matches(self, facts: Facts, output: Output, state: State) -> Iterator[State]:
        if output.port == self.port:
            yield from self.of.matches(facts, Output(output.node), state)


class _Through(Value):
    def __init__(self, step: Callable[[Any, Output], Output | None], inner: Value) -> None:
        super().__init__([inner])
        self.step, self.inner = step, inner

    def _matches(self, facts: Facts, output: Output, state: State) -> Iterator[State]:
        before = self.step(facts, output)
        if before is not None:
            yield from self.inner.matches(facts, before, state)


class _Repeated(Value):
    def __init__(self, link: Callable[[Value], Value], inner: Value) -> None:
        self.given, self.inner = Value(), inner
        self.link = link(self.given)
        super().__init__([self.link, inner])

    def _matches(self, facts: Facts, output: Output, state: State) -> Iterator[State]:
        for found in self.link.matches(facts, output, State()):
            yield from self._matches(facts, found.bound[self.given], state)
        yield from self.inner.matches(facts, output, state)


class Expected(Value):
    """A condition on a site that otherwise matches; if it does not hold, the site is refused with `reason`."""

    def __init__(self, inner: Value, reason: str) -> None:
        super().__init__([inner])
        self.inner, self.reason = inner, reason

    def _matches(self, facts: Facts, output: Output, state: State) -> Iterator[State]:
        yield state._replace(expected=(*state.expected, (self, output)))


def value() -> Value:
    """Match any value; the same value wherever the pattern is used."""
    return Value()


def op(ops: str, *inputs: Value | EllipsisType, waits: bool = False, **attributes: Any) -> Op:
    """Match the first output of a node.

    Parameters
    ----------
    ops : str
        Names of ops, separated by `|`.
    *inputs : Value or ...
        `...` stands for any number of inputs that do not matter.
    waits : bool
        Whether the node may have control inputs.
    **attributes
        Conditions on attributes: a value (a false value also matches an absent attribute), a test of the value, or an
        `any_attribute()`.
    """
    return Op(ops.split("|"), inputs, attributes, waits)


def const(*numbers: float | bytes, accepts: Callable[[Array], object] | None = None) -> Constant:
    """Match a constant: any constant, one whose only element is among `numbers`, or one that passes a test."""
    if accepts is not None:
        return Constant(accepts)
    return Constant(lambda elements: not numbers or (elements.size == 1 and elements.ravel()[0] in numbers))


def integers(*numbers: int) -> Constant:
    """Match a constant list of integers."""
    return Constant(lambda elements: elements.dtype.kind in "iu" and elements.ravel().tolist() == list(numbers))


def any_attribute() -> AnyAttribute:
    """Match any value of an attribute; the same value wherever the pattern is used."""
    return AnyAttribute()


def optional(wrap: Callable[[Value], Value], inner: Value) -> Value:
    """Match `wrap(inner)`, or `inner` itself."""
    return wrap(inner) | inner


def repeated(link: Callable[[Value], Value], inner: Value) -> Value:
    """Match `inner`, `link(inner)`, `link(link(inner))` …, the longest first; links are not in the match."""
    return _Repeated(link, inner)


def through(step: Callable[[Any, Output], Output | None], inner: Value) -> Value:
    """Match `inner` at the output to which a step leads, for example to one that has the same elements."""
    return _Through(step, inner)


def expected(inner: Value, reason: str) -> Value:
    """Refuse a site if all but this matches; in `reason`, `{0}` is the output found there, `{0.node}` its node."""
    return Expected(inner, reason)


def used_once(facts: Facts, output: Output) -> bool:
    """Return whether only one node, and no signature, uses an output."""
    return len(facts.graph.users(output.node)) == 1 and output.node not in facts.roots
