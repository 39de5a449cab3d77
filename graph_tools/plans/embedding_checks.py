# SPDX-License-Identifier: Apache-2.0
"""Checks of the keys and columns of an embedding plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from graph_tools.plans.embedding_parts import (
    COMBINERS,
    LAYOUTS,
    Add,
    Bits,
    Bucketize,
    Clip,
    Column,
    Copy,
    Divide,
    Factor,
    FastHash,
    GroupOutput,
    Key,
    LegacyHash,
    Linear,
    Lookup,
    Mod,
    Multiply,
    Step,
    StrongHash,
    ToString,
    WrapNegative,
    XorShift,
)
from graph_tools.plans.records import wrong

_INT64 = range(-(1 << 63), 1 << 63)
# The numbers of SipHash's key are unsigned, but may be written as signed ones.
_KEY_NUMBERS = range(-(1 << 63), 1 << 64)


def _within(where: str, name: str, number: int | None, end: int) -> None:
    if number is None or not 0 <= number < end:
        raise wrong(where, f"{name} {number}", f"a number below {end}")


def check_key(key: Key, where: str, features: int) -> None:
    """Raise `UnreadableError` unless the key's features exist and its steps fit each other."""
    if key.layout not in LAYOUTS:
        raise wrong(where, f"layout '{key.layout}'", f"one of {', '.join(LAYOUTS)}")
    _within(where, "feature", key.feature, features)
    for name in {name for names in LAYOUTS.values() for name in names}:
        if name in LAYOUTS[key.layout]:
            _within(where, name, getattr(key, name), features)
        elif getattr(key, name) is not None:
            raise wrong(where, f"'{name}' with layout '{key.layout}'", "none")
    text: bool | None = None
    for number, step in enumerate(key.steps):
        if isinstance(step, Bucketize) and number:
            raise wrong(where, "bucketize after another step", "it first")
        text = _check_step(step, f"{where}: step {number}", text)
    if isinstance(key.ignore, int) and key.ignore not in _INT64:
        raise wrong(where, f"ignore {key.ignore}", "an int64")


def _check_step(step: Step, where: str, text: bool | None) -> bool:
    """Check a step on text or numbers (`text` None: the feature's type), and return whether its result is text."""
    hashes = isinstance(step, (FastHash, StrongHash, LegacyHash))
    if text is not None and hashes != text:
        raise wrong(where, f"{step.op} of {'a string' if text else 'a number'}", "the other")
    problem = _step_problem(step)
    if problem is not None:
        raise wrong(where, *problem)
    return isinstance(step, ToString)


def _step_problem(step: Step) -> tuple[str, str] | None:
    """Return what is wrong with the values of a step, and what was expected; None if they are valid."""
    match step:
        case FastHash() | StrongHash() | LegacyHash() if step.buckets not in range(1, 1 << 63):
            return f"{step.buckets} buckets", "at least 1"
        case StrongHash() if len(step.key) != 2 or any(number not in _KEY_NUMBERS for number in step.key):
            return f"key {list(step.key)}", "two numbers of 64 bits"
        case Mod() if step.by == 0 or step.by not in _INT64:
            return f"mod by {step.by}", "an int64 other than 0"
        case Add() | Multiply() if step.value not in _INT64:
            return f"{step.op} {step.value}", "an int64"
        case Clip() if not (step.low in _INT64 and step.high in _INT64 and step.low <= step.high):
            return f"clip to {step.low}-{step.high}", "two int64, the lower first"
        case WrapNegative() | Divide() if step.by not in range(1, 1 << 63):
            return f"{step.op} by {step.by}", "at least 1"
        case XorShift() if step.by not in range(1, 64):
            return f"xor_shift by {step.by}", "1 to 63"
        case Bits() if not _has_bits(step):
            return f"{step.count} bits from {step.first}, every {step.every}", "1 to 63 of 64 bits"
        case Bucketize() if not (all(map(math.isfinite, step.boundaries)) and _ascends(step.boundaries)):
            return "boundaries that are not finite and ascending", "finite numbers in ascending order"
    return None


def _has_bits(step: Bits) -> bool:
    within = step.first >= 0 and step.every >= 1 and 1 <= step.count <= 63
    return within and step.first + (step.count - 1) * step.every < 64


def _ascends(numbers: Sequence[float]) -> bool:
    return all(a <= b for a, b in pairwise(numbers))


def check_output(output: GroupOutput, where: str, keys: int) -> None:
    """Raise `UnreadableError` unless the output has columns, and its initial values and key fit."""
    if output.width < 1:
        raise wrong(where, f"width {output.width}", "at least 1")
    if output.initial is not None:
        if len(output.initial) != output.width:
            raise wrong(where, f"{len(output.initial)} initial values", f"{output.width}")
        if not all(math.isfinite(value) for value in output.initial):
            raise wrong(where, "an initial value that is not finite", "finite ones")
    if output.sequence is not None and not 0 <= output.sequence < keys:
        raise wrong(where, f"sequence {output.sequence}", f"a key below {keys}")


def check_column(
    column: Column,
    where: str,
    outputs: Sequence[GroupOutput],
    keys: Sequence[Key],
    features: int,
    dims: Sequence[int],
) -> None:
    """Raise `UnreadableError` unless the objects that the column refers to exist and its columns fit the output."""
    _within(where, "output", column.output, len(outputs))
    if isinstance(column, Lookup):
        width = _check_lookup(column, where, outputs, keys, features, dims)
    else:
        _within(where, "feature", column.feature, features)
        width = column.width if isinstance(column, Copy) else _linear_width(column, where)
        if outputs[column.output].sequence is not None:
            raise wrong(where, f"{column.kind} into a sequence output", "a lookup")
    _within(where, "offset", column.offset, outputs[column.output].width)
    if width < 1 or column.offset + width > outputs[column.output].width:
        found = f"columns {column.offset}-{column.offset + width}"
        raise wrong(where, found, f"at least one, and none beyond {outputs[column.output].width}")


def _check_lookup(
    column: Lookup,
    where: str,
    outputs: Sequence[GroupOutput],
    keys: Sequence[Key],
    features: int,
    dims: Sequence[int],
) -> int:
    _within(where, "key", column.key, len(keys))
    _within(where, "table", column.table, len(dims))
    key = keys[column.key]
    if column.combiner is None:
        if column.weights is not None or column.empty is not None:
            raise wrong(where, "weights or an empty key without combiner", f"one of {', '.join(COMBINERS)}")
        if key.layout != "dense":
            raise wrong(where, f"layout '{key.layout}' without combiner", f"one of {', '.join(COMBINERS)}")
    elif column.combiner not in COMBINERS:
        raise wrong(where, f"combiner '{column.combiner}'", f"one of {', '.join(COMBINERS)}")
    elif outputs[column.output].sequence is not None:
        raise wrong(where, "a combiner into a sequence output", "none")
    for number, factor in enumerate(column.factors):
        _check_factor(factor, column, f"{where}: factor {number}", keys, dims)
    if column.factors and column.empty is not None:
        raise wrong(where, "an empty key with factors", "one of both")
    if column.weights is not None:
        _within(where, "weights", column.weights, features)
    elif column.positive_weights:
        raise wrong(where, "positive_weights without weights", "both")
    return dims[column.table]


def _check_factor(factor: Factor, column: Lookup, where: str, keys: Sequence[Key], dims: Sequence[int]) -> None:
    _within(where, "key", factor.key, len(keys))
    _within(where, "table", factor.table, len(dims))
    if not keys[factor.key].is_laid_out_as(keys[column.key]):
        raise wrong(where, f"key {factor.key}, whose values have another form", f"one of the form of key {column.key}")
    if dims[factor.table] != dims[column.table]:
        raise wrong(where, f"rows of {dims[factor.table]} elements", str(dims[column.table]))


def _linear_width(column: Linear, where: str) -> int:
    widths = {len(row) for row in column.weights}
    if len(widths) != 1:
        raise wrong(where, f"weights with rows of {sorted(widths)} elements", "at least one row, all of one length")
    if not all(math.isfinite(weight) for row in column.weights for weight in row):
        raise wrong(where, "a weight that is not finite", "finite ones")
    return widths.pop()
