# SPDX-License-Identifier: Apache-2.0
"""Draw values for generated requests: values that the model knows, and unusual ones that a server may receive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graph_tools.tensors import Array
from graph_tools.verification.domain import Domain

UNICODE = (
    "müsli",
    "日本語",
    "🎬 film",
    "שלום",
    "a\u0301",
    "\u0000x",
    "İstanbul",
    "\uff21\uff22",
    " tab\t",
    "line\n",
    "\ufeffbom",
)
BAD_BYTES = (b"\xff\xfe", b"\x80", b"a\x00b")
NUMBERS = (b"0", b"1", b"-7", b"3.25", b"1e6", b"123456789012")
_FLOATS = (0.0, 1.0, -1.0, 0.5, -0.5, 1e-6, 100.0, -1234.5, 1e6)
_LARGE = (1e9, -1e9, 3e20, -3e20, 1e30)
#: Not finite or denormal numbers; each float input receives them in separate rows.
NOT_FINITE = (np.nan, np.inf, -np.inf, 1e-40)

# Share of numbers that are not finite, if they cannot be placed row by row.
_NOT_FINITE_SHARE = 0.05

Pool = Callable[[np.random.Generator, int], Array]


def strings(values: list[bytes]) -> Array:
    made = np.empty(len(values), object)
    made[:] = values
    return made


def pick(rng: np.random.Generator, values: Array, count: int) -> Array:
    """Draw `count` of the values, with repetition."""
    picked: Array = values[rng.integers(0, len(values), count)]
    return picked


class StringPools:
    """Strings by kind: known, absent, empty, unicode, and all of these mixed."""

    def __init__(self, domain: Domain) -> None:
        known = [key for block in domain.known if block.dtype.kind == "O" for key in block.tolist()]
        known += [value for value in domain.special if isinstance(value, bytes)]
        # If strings are split, join each with the next two.
        lists = zip(known, known[1:] + known[:1], known[2:] + known[:2], strict=True)
        known += [separator.join(words) for words in list(lists) for separator in domain.separators]
        self.known = strings(known) if known else None
        self.numbers = domain.numeric_text

    def draw(self, kind: str, rng: np.random.Generator, count: int) -> Array:
        if kind == "empty":
            return strings([b""] * count)
        if self.numbers:
            return pick(rng, strings(list(NUMBERS)), count)
        if kind == "unicode":
            return pick(rng, strings([text.encode() for text in UNICODE] + list(BAD_BYTES)), count)
        if kind == "mixed":
            return self._draw_mixed(rng, count)
        if kind == "absent" or self.known is None:
            # No table or vocabulary has these strings; hash buckets accept them like any other.
            return strings(
                [b"v%d" % integer for integer in rng.integers(0, 1 << (48 if kind == "absent" else 14), count)]
            )
        return pick(rng, self.known, count)

    def _draw_mixed(self, rng: np.random.Generator, count: int) -> Array:
        kinds = rng.choice(["known", "absent", "empty", "unicode"], count, p=[0.6, 0.2, 0.1, 0.1])
        made = np.empty(count, object)
        for kind in ("known", "absent", "empty", "unicode"):
            places = kinds == kind
            made[places] = self.draw(kind, rng, int(places.sum()))
        return made


class IntegerPools:
    """Integers by kind: known, absent, empty (-1, or 0 for row numbers and unsigned dtypes), negative, huge, mixed."""

    def __init__(self, domain: Domain, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        self.bounds = np.iinfo(dtype)
        self.rows = domain.rows
        self.size = domain.size
        known = [key for block in domain.known if block.dtype.kind in "iu" for key in block.tolist()]
        known += [
            int(value) for value in domain.special if isinstance(value, (int, float)) and float(value).is_integer()
        ]
        known = [value for value in known if self.bounds.min <= value <= self.bounds.max]
        if self.rows is not None:
            known = [value for value in known if 0 <= value < self.rows]
        self.known = np.array(known, dtype) if known else None

    def draw(self, kind: str, rng: np.random.Generator, count: int) -> Array:
        if self.size:
            return self._within(rng.integers(0, 8, count))
        if kind == "out of range":
            return pick(rng, self._all([-1, self.rows or 0, self.bounds.min, self.bounds.max]), count)
        if self.rows is not None:
            return self._row_numbers(kind, rng, count)
        if kind == "mixed":
            return self._draw_mixed(rng, count)
        if kind == "empty":
            return np.full(count, -1 if self.bounds.min < 0 else 0, self.dtype)
        if kind == "negative":
            return self._within(-rng.integers(1, 1 << 40, count))
        if kind == "huge":
            return pick(rng, self._all([2**31 - 1, 2**31, 2**53 + 1, 2**62, self.bounds.max, self.bounds.min]), count)
        if kind == "absent":
            return self._within(rng.integers(1 << 40, 1 << 60, count))
        if self.known is not None:
            return pick(rng, self.known, count)
        return self._within(rng.integers(0, 100, count))

    def _row_numbers(self, kind: str, rng: np.random.Generator, count: int) -> Array:
        """Draw existing row numbers, with the last one for `huge`; numbers out of range are a separate kind."""
        assert self.rows is not None
        last = max(0, min(self.rows - 1, int(self.bounds.max)))
        if kind == "empty":
            return np.zeros(count, self.dtype)
        made = rng.integers(0, last + 1, count)
        if kind == "huge" and count:
            made[0] = last
        return made.astype(self.dtype)

    def _draw_mixed(self, rng: np.random.Generator, count: int) -> Array:
        kinds = rng.choice(["known", "absent", "empty", "negative", "huge"], count, p=[0.6, 0.2, 0.1, 0.05, 0.05])
        made = np.empty(count, self.dtype)
        for kind in ("known", "absent", "empty", "negative", "huge"):
            places = kinds == kind
            made[places] = self.draw(kind, rng, int(places.sum()))
        return made

    def _all(self, values: list[int]) -> Array:
        fitting = sorted({value for value in values if self.bounds.min <= value <= self.bounds.max})
        return np.array(fitting or [0], self.dtype)

    def _within(self, values: Array) -> Array:
        """Bring values into the range of the dtype, by remainder if that range is small."""
        if self.bounds.max >= 1 << 62:
            return values.astype(self.dtype)
        wrapped = np.abs(values) % self.bounds.max
        return np.where((values < 0) & (self.bounds.min < 0), -wrapped, wrapped).astype(self.dtype)


class FloatPools:
    """Numbers around zero, boundaries of the model and their neighbors, large numbers, NaN and infinities."""

    def __init__(self, domain: Domain, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        edges = [float(value) for value in domain.special if isinstance(value, (int, float))]
        with np.errstate(over="ignore"):
            near = (
                [float(np.nextafter(dtype.type(edge), dtype.type(side))) for edge in edges for side in (-1e9, 1e9)]
                if dtype.itemsize > 2
                else []
            )
            self.plain = np.array([*_FLOATS, *edges, *near], dtype)
            large = np.array([*_LARGE], np.float64).astype(dtype)
        self.large = (
            large[np.isfinite(large.astype(np.float64))] if np.isfinite(large.astype(np.float64)).any() else self.plain
        )

    def draw(self, kind: str, rng: np.random.Generator, count: int) -> Array:
        if kind == "empty":
            return np.zeros(count, self.dtype)
        if kind == "huge":
            return pick(rng, self.large, count)
        normal: Array = rng.normal(size=count).astype(self.dtype)
        if kind == "known":
            return normal
        if kind == "not finite":
            special = pick(rng, np.array(NOT_FINITE).astype(self.dtype), count)
            return np.where(rng.random(count) < _NOT_FINITE_SHARE, special, normal)
        if kind == "negative":
            return np.negative(np.abs(normal))
        mixed: Array = np.where(rng.random(count) < 0.5, normal, pick(rng, self.plain, count))
        return mixed


class OtherPools:
    """Booleans and complex numbers."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype

    def draw(self, kind: str, rng: np.random.Generator, count: int) -> Array:
        if kind == "empty":
            return np.zeros(count, self.dtype)
        if self.dtype.kind == "b":
            return rng.integers(0, 2, count).astype(self.dtype)
        made: Array = (rng.normal(size=count) + 1j * rng.normal(size=count)).astype(self.dtype)
        return made


Pools = StringPools | IntegerPools | FloatPools | OtherPools


def pools_of(dtype: Any, domain: Domain) -> Pools:
    """Return the pools for a TensorFlow dtype."""
    if dtype.name == "string":
        return StringPools(domain)
    numpy_dtype = np.dtype(dtype.as_numpy_dtype)
    if numpy_dtype.kind in "iu":
        return IntegerPools(domain, numpy_dtype)
    return FloatPools(domain, numpy_dtype) if dtype.is_floating else OtherPools(numpy_dtype)
