# SPDX-License-Identifier: Apache-2.0
"""What patterns of subgraphs match, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np

from graph_tools.graph import Graph, Output
from graph_tools.rewriting.matcher import GraphFacts, Match, Pattern
from graph_tools.rewriting.outcome import Found, NoMatch, Refused
from graph_tools.rewriting.pattern import (
    Value,
    any_attribute,
    const,
    expected,
    op,
    optional,
    repeated,
    through,
    used_once,
    value,
)


class Program:
    """Builds a graph line by line: `program.Mul("y", "x", 2.0)` adds a node `y` of two inputs."""

    def __init__(self, *placeholders: str) -> None:
        self.graph = Graph()
        self.roots: set[str] = set()
        for name in placeholders:
            self.graph.add("Placeholder", name=name)

    def __getattr__(self, op_name: str) -> Any:
        def add(name: str, *inputs: str | float, controls: tuple[str, ...] = (), **attrs: Any) -> None:
            outputs = [
                Output.parse(source) if isinstance(source, str) else self.graph.add_const(np.array(source))
                for source in inputs
            ]
            self.graph.add(op_name, outputs, name=name, controls=controls, attrs=attrs)

        return add

    def match(self, pattern: Pattern | Value, at: str) -> Any:
        pattern = pattern if isinstance(pattern, Pattern) else Pattern(pattern)
        return pattern.match(GraphFacts(self.graph, self.roots), Output.parse(at))

    def found(self, pattern: Pattern | Value, at: str) -> Match:
        outcome = self.match(pattern, at)
        assert isinstance(outcome, Found), outcome
        return outcome.value  # type: ignore[no-any-return]


def test_pattern_is_the_key_to_its_value() -> None:
    program = Program("x")
    program.Relu("relu", "x")
    program.Neg("y", "relu")
    x = value()
    relu = op("Relu", x)
    match = program.found(op("Neg", relu), "y")
    assert match[x] == Output("x")
    assert match.node(relu).name == "relu"


def test_another_op_or_another_number_of_inputs_does_not_match() -> None:
    program = Program("x", "y")
    program.Sub("z", "x", "y")
    assert program.match(op("Mul", value(), value()), "z") == NoMatch()
    assert program.match(op("Sub", value()), "z") == NoMatch()
    assert program.match(op("Sub", value(), value(), value()), "z") == NoMatch()
    assert program.found(op("Add|Sub", value(), value()), "z")


def test_pattern_in_two_places_matches_one_value() -> None:
    program = Program("x", "y")
    program.Mul("square", "x", "x")
    program.Mul("product", "x", "y")
    x = value()
    assert program.found(op("Mul", x, x), "square")[x] == Output("x")
    assert program.match(op("Mul", x, x), "product") == NoMatch()
    assert program.found(op("Mul", value(), value()), "product")


def test_shared_pattern_requires_the_same_node() -> None:
    program = Program("x")
    program.Exp("e", "x")
    program.Exp("f", "x")
    program.Sub("same", "e", "e")
    program.Sub("equal", "e", "f")
    exp = op("Exp", value())
    assert program.found(op("Sub", exp, exp), "same")
    assert program.match(op("Sub", exp, exp), "equal") == NoMatch()


def test_operands_of_a_commutative_op_match_in_either_order() -> None:
    program = Program("x", "y")
    program.Relu("r", "x")
    program.Add("left", "r", "y")
    program.Add("right", "y", "r")
    program.Sub("difference", "y", "r")
    y, relu = value(), op("Relu", value())
    assert program.found(op("Add", relu, y), "left")[y] == Output("y")
    assert program.found(op("Add", relu, y), "right")[y] == Output("y")
    assert program.match(op("Sub", relu, y), "difference") == NoMatch()


def test_matcher_backtracks_to_the_order_that_fits_later_parts() -> None:
    program = Program("x", "y")
    program.Mul("product", "x", "y")
    program.Sub("one", "product", "x")
    program.Sub("other", "product", "y")
    y = value()
    for end, right in (("one", "x"), ("other", "y")):
        assert program.found(op("Sub", op("Mul", value(), y), y), end)[y] == Output(right)


def test_match_contains_the_alternative_that_was_found() -> None:
    program = Program("x", "y")
    program.Square("square", "x")
    program.Mul("product", "x", "x")
    x = value()
    square, product = op("Square", x), op("Mul", x, x)
    match = program.found(square | product, "product")
    assert product in match
    assert square not in match
    assert match[x] == Output("x")
    assert program.match(square | product | op("Pow", x, const(2)), "x") == NoMatch()


def test_optional_part_may_be_absent() -> None:
    program = Program("x")
    program.Relu("plain", "x")
    program.Cast("cast", "x")
    program.Relu("casted", "cast")
    x = value()
    cast = op("Cast", x)
    pattern = op("Relu", optional(lambda inner: cast, x))
    assert cast not in program.found(pattern, "plain")
    assert program.found(pattern, "casted")[x] == Output("x")
    assert cast in program.found(pattern, "casted")


def test_repeated_links_match_any_number_of_times() -> None:
    program = Program("x")
    program.Mul("a", "x", 1.0)
    program.Add("b", "a", 0.0)
    program.Add("c", "b", 2.0)
    x = value()
    pattern = repeated(lambda inner: op("Mul", inner, const(1.0)) | op("Add", inner, const(0.0)), x)
    assert program.found(pattern, "b")[x] == Output("x")
    assert program.found(pattern, "c")[x] == Output("c")
    placeholder = op("Placeholder")
    assert program.found(repeated(lambda inner: op("Add|Mul", inner, const()), placeholder), "c")[placeholder]


def test_identities_are_skipped_unless_they_have_control_inputs() -> None:
    program = Program("x", "before")
    program.Relu("r", "x")
    program.Identity("i", "r")
    program.Identity("waits", "r", controls=("before",))
    program.Neg("through", "i")
    program.Neg("not_through", "waits")
    relu = op("Relu", value())
    assert program.found(op("Neg", relu), "through")[relu] == Output("r")
    assert program.match(op("Neg", relu), "not_through") == NoMatch()


def test_node_with_control_inputs_matches_only_with_waits() -> None:
    program = Program("x", "before")
    program.Relu("r", "x", controls=("before",))
    assert program.match(op("Relu", value()), "r") == NoMatch()
    assert program.found(op("Relu", value(), waits=True), "r")


def test_constants_match_by_their_elements() -> None:
    program = Program("x")
    program.Mul("half", "x", 0.5)
    program.Mul("product", "x", "x")
    factor = const(0.5, 2.0)
    match = program.found(op("Mul", value(), factor), "half")
    assert match.elements(factor) == 0.5
    assert program.match(op("Mul", value(), const(1.0)), "half") == NoMatch()
    assert program.found(op("Mul", value(), const()), "half")
    assert program.found(op("Mul", value(), const(accepts=lambda found: found < 1)), "half")
    assert program.match(op("Mul", value(), const()), "product") == NoMatch()


def test_constant_pattern_in_two_places_may_match_two_constants() -> None:
    program = Program("x")
    program.Add("a", "x", 0.0)
    program.Add("b", "a", 0.0)
    zero = const(0.0)
    assert program.found(op("Add", op("Add", value(), zero), zero), "b")


def test_absent_attribute_counts_as_false() -> None:
    program = Program("x")
    program.MatMul("plain", "x", "x")
    program.MatMul("turned", "x", "x", transpose_b=True)
    pattern = op("MatMul", value(), value(), transpose_b=False)
    assert program.found(pattern, "plain")
    assert program.match(pattern, "turned") == NoMatch()
    assert program.found(op("MatMul", ..., transpose_b=lambda found: found), "turned")


def test_attribute_pattern_in_two_places_matches_one_value() -> None:
    program = Program("x")
    program.Sum("a", "x", 1, keep_dims=True)
    program.Sum("b", "x", 1, keep_dims=True)
    program.Sum("c", "x", 1, keep_dims=False)
    program.Sub("same", "a", "b")
    program.Sub("differ", "a", "c")
    program.Sum("absent", "x", 1)
    program.Sub("alike", "absent", "c")
    keeps = any_attribute()
    pattern = op("Sub", op("Sum", ..., keep_dims=keeps), op("Sum", ..., keep_dims=keeps))
    assert program.found(pattern, "same").attribute(keeps) is True
    assert program.match(pattern, "differ") == NoMatch()
    assert program.found(pattern, "alike")


def test_ellipsis_matches_any_number_of_inputs() -> None:
    program = Program("x", "y", "z")
    program.ConcatV2("joined", "x", "y", "z", 1)
    first, axis = value(), const()
    match = program.found(op("ConcatV2", first, ..., axis), "joined")
    assert match[first] == Output("x")
    assert match.elements(axis) == 1
    assert program.match(op("ConcatV2", ..., first, first), "joined") == NoMatch()


def test_output_pattern_matches_the_numbered_output() -> None:
    program = Program("x")
    program.Unique("unique", "x")
    program.Neg("values", "unique:0")
    program.Neg("numbers", "unique:1")
    unique = op("Unique", value())
    assert program.found(op("Neg", unique.output(1)), "numbers").node(unique).name == "unique"
    assert program.match(op("Neg", unique.output(1)), "values") == NoMatch()
    assert program.match(op("Neg", unique), "numbers") == NoMatch()


def test_conditions_and_steps_use_the_facts_of_the_pass() -> None:
    program = Program("x")
    program.Relu("r", "x")
    program.Neg("y", "r")
    relu = op("Relu", value())
    assert program.found(op("Neg", relu.where(lambda facts, output: output.node == "r")), "y")
    assert program.match(op("Neg", relu.where(lambda facts, output: output.node == "s")), "y") == NoMatch()
    x = op("Placeholder")
    assert program.found(op("Neg", through(lambda facts, output: facts.graph[output.node].inputs[0], x)), "y")
    assert program.match(op("Neg", through(lambda facts, output: None, x)), "y") == NoMatch()


def test_used_once_counts_users_and_signatures() -> None:
    program = Program("x")
    program.Relu("r", "x")
    program.Neg("y", "r")
    pattern = op("Neg", op("Relu", value()).where(used_once))
    assert program.found(pattern, "y")
    program.roots = {"r"}
    assert program.match(pattern, "y") == NoMatch()
    program.roots = set()
    program.Exp("z", "r")
    assert program.match(pattern, "y") == NoMatch()


def test_site_without_an_expected_part_is_refused() -> None:
    program = Program("x", "y")
    program.Relu("r", "x")
    program.Mul("scaled", "r", "y")
    program.Mul("halved", "r", 0.5)
    program.Mul("other", "x", "y")
    factor = const()
    pattern = op("Mul", op("Relu", value()), expected(factor, "'{0.node}' is not constant"))
    assert program.found(pattern, "halved").elements(factor) == 0.5
    assert program.match(pattern, "scaled") == Refused("'y' is not constant")
    assert program.match(pattern, "other") == NoMatch()


def test_expectations_are_checked_last_and_in_order() -> None:
    program = Program("x", "y")
    program.Exp("e", "y")
    program.Select("s", "x", "y", "e")
    one, other = expected(const(), "first"), expected(const(), "second")
    assert program.match(op("Select", one, other, op("Exp", value())), "s") == Refused("first")
    assert program.match(op("Select", one, other, op("Log", value())), "s") == NoMatch()


def test_found_alternative_wins_over_a_refused_one() -> None:
    program = Program("x")
    program.Exp("e", "x")
    program.Exp("f", "e")
    program.Mul("y", "f", "e")
    placeholder = op("Placeholder")
    pattern = op("Mul", op("Exp", expected(placeholder, "no input")), value())
    assert program.found(pattern, "y")[placeholder] == Output("x")


def test_second_root_uses_a_value_of_the_first() -> None:
    program = Program("x", "y")
    program.Where("where", "x")
    program.GatherNd("other", "y", "x")
    program.GatherNd("gather", "y", "where")
    where, gathered = op("Where", value()), value()
    gather = op("GatherNd", gathered, where)
    match = program.found(Pattern(where, gather), "where")
    assert match.node(gather).name == "gather"
    assert match[gathered] == Output("y")
    assert program.match(Pattern(where, op("Neg", where)), "where") == NoMatch()


def test_second_root_may_be_several_nodes_above() -> None:
    program = Program("x")
    program.Relu("r", "x")
    program.Identity("i", "r")
    program.Neg("n", "i")
    program.Exp("e", "n")
    relu = op("Relu", value())
    assert program.found(Pattern(relu, op("Exp", op("Neg", relu))), "r")


def test_above_extends_a_match_by_an_optional_root() -> None:
    program = Program("x")
    program.Relu("r", "x")
    program.Mul("half", "r", 0.5)
    relu = op("Relu", value())
    match = program.found(relu, "r")
    half = op("Mul", relu, const(0.5))
    larger = match.above(half)
    assert larger is not None
    assert larger[half] == Output("half")
    assert match.above(op("Mul", relu, const(2.0))) is None


def test_sites_are_the_nodes_with_ops_of_the_root() -> None:
    program = Program("x")
    program.Relu("r", "x")
    program.Exp("e", "r")
    program.Neg("n", "e")
    root = (op("Relu", value()) | op("Neg", value())).where(lambda facts, output: True)
    assert [node.name for node in Pattern(root).sites(program.graph)] == ["r", "n"]


def test_and_requires_both_patterns_of_one_value() -> None:
    program = Program("x", "y")
    program.MatMul("plain", "x", "y")
    program.MatMul("turned", "x", "y", transpose_b=True)
    x = value()
    pattern = op("MatMul", x, ...) & expected(op("MatMul", ..., transpose_b=False), "'{0.node}' transposes")
    assert program.found(pattern, "plain")[x] == Output("x")
    assert program.match(pattern, "turned") == Refused("'turned' transposes")


def test_given_values_restrict_the_match() -> None:
    program = Program("x", "y")
    program.Mul("product", "x", "y")
    x, other = value(), value()
    pattern, facts = Pattern(op("Mul", x, other)), GraphFacts(program.graph)
    outcome = pattern.match(facts, Output("product"), {x: Output("y")})
    assert isinstance(outcome, Found)
    assert outcome.value[other] == Output("x")
    assert pattern.match(facts, Output("product"), {x: Output("product")}) == NoMatch()
