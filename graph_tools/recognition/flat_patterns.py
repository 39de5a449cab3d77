# SPDX-License-Identifier: Apache-2.0
"""Patterns that use `Flat` for shapes and elements."""

from __future__ import annotations

from typing import Any

from graph_tools.rewriting.pattern import Test, Value, op, through, used_once, value

PRODUCT = "BatchMatMul|BatchMatMulV2|BatchMatMulV3"


def rank(count: int) -> Test:
    """Return a test whether a value has `count` dimensions."""
    return lambda flat, output: len(flat.known(output)) == count


def number(wanted: float) -> Value:
    """Match a constant number, or a tensor that is filled with it."""
    return value().where(lambda flat, output: flat.scalar(output) == wanted)


def numbers(*choices: list[int]) -> Value:
    """Match a constant list of integers that is one of some lists."""
    return value().where(lambda flat, output: flat.shapes.numbers(output) in choices)


def sum_over(x: Value, *axes: int, **attributes: Any) -> Value:
    """Match a sum over axes, counted from the first."""
    return op("Sum", x, ..., **attributes).where(lambda flat, output: flat.reduced(flat.graph[output.node]) == axes)


def squared(x: Value) -> Value:
    """Match `Square(x)`, `x * x` and `Pow(x, 2)`."""
    return op("Square", x) | op("Mul", x, x) | op("Pow", x, number(2.0))


def transposed(x: Value, order: list[int]) -> Value:
    """Match a transpose to an order of axes."""
    return op("Transpose", x, numbers(order))


def view_of(x: Value) -> Value:
    """Match a tensor that has the elements of `x` in the same order, in any shape."""
    return through(lambda flat, output: flat.source(output), x)


def alone(x: Value) -> Value:
    """Match `x` if only one node uses it."""
    return x.where(used_once)
