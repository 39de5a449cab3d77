# SPDX-License-Identifier: Apache-2.0
"""Codes of keys: a few row numbers for each key, from bits of a hash, several hashes, or a division.

The codes are those of `BinaryCodeEmbedding` and `MultiHashEmbedding` of elastic_training, with seed 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from graph_tools.errors import UsageError
from graph_tools.store.fingerprint import fingerprints
from graph_tools.tensors import Array

CUTS = ("succession", "skip")
STEP = np.uint64(0x9E3779B97F4A7C15)
ROUNDS = ((30, np.uint64(0xBF58476D1CE4E5B9)), (27, np.uint64(0x94D049BB133111EB)))
LAST_SHIFT = 31
STRING_BUCKETS = 1 << 62
#: Of a hash, so many bits are a number that is not negative.
NUMBER_BITS = 63
_MOST_ROWS, _MOST_PARTS = 1 << 31, 64


class RowCode(ABC):
    """The rows of keys: one of each part."""

    @property
    @abstractmethod
    def method(self) -> str:
        """Name of the kind of code, for reports."""

    @property
    @abstractmethod
    def sizes(self) -> list[int]:
        """Number of rows of each part."""

    @property
    def offsets(self) -> list[int]:
        """The first row of each part."""
        return list(accumulate(self.sizes[:-1], initial=0))

    @abstractmethod
    def places(self, keys: Array) -> list[Array]:
        """Return for each part the number [n] int64 of each key's row within it.

        Parameters
        ----------
        keys : ndarray [n] of integers or object (bytes)
        """


@dataclass(frozen=True)
class BinaryCode(RowCode):
    """The first bits of a hash of a key, cut into blocks, each of which is the number of a row.

    Attributes
    ----------
    bits : int
        1 to 64.
    blocks : int
    cut : str
        `succession`: a block has bits that follow each other. `skip`: every `blocks`-th bit.

    Raises
    ------
    UsageError
        A block would have no bits, or more than 31.
    """

    bits: int
    blocks: int
    cut: str = "succession"

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 64:
            raise UsageError(f"--bits {self.bits}: expected 1 to 64")
        if not 1 <= self.blocks <= self.bits:
            raise UsageError(f"--blocks {self.blocks}: expected 1 to {self.bits}, the number of bits")
        if self.cut not in CUTS:
            raise UsageError(f"--cut {self.cut}: expected one of {', '.join(CUTS)}")
        lengths = [len(block) for block in self.positions]
        if not all(lengths):
            raise UsageError(f"--blocks {self.blocks}: leaves a block of {self.bits} bits without any, expected fewer")
        if max(lengths) > 31:
            raise UsageError(f"--blocks {self.blocks}: a block would have {max(lengths)} bits, expected at most 31")

    @property
    def positions(self) -> list[list[int]]:
        """Positions of each block's bits in the hash, from the lowest on."""
        if self.cut == "skip":
            return [list(range(first, self.bits, self.blocks)) for first in range(self.blocks)]
        length = -(-self.bits // self.blocks)
        starts = range(0, length * self.blocks, length)
        return [list(range(start, min(start + length, self.bits))) for start in starts]

    @property
    def method(self) -> str:
        return "binary_code"

    @property
    def sizes(self) -> list[int]:
        return [1 << len(block) for block in self.positions]

    def places(self, keys: Array) -> list[Array]:
        words = _hashes(keys, 0)
        found = []
        for block in self.positions:
            place = np.zeros(len(words), np.uint64)
            for bit, position in enumerate(block):
                place |= (words >> np.uint64(position) & np.uint64(1)) << np.uint64(bit)
            found.append(place.view(np.int64))
        return found


@dataclass(frozen=True)
class Hashes(RowCode):
    """Several hashes of a key, each of which is the number of a row of its own part.

    Attributes
    ----------
    count : int
    each : int
        Number of rows of a hash.

    Raises
    ------
    UsageError
        One of them is not in its range.
    """

    count: int
    each: int

    def __post_init__(self) -> None:
        if not 1 <= self.count <= _MOST_PARTS or not 1 <= self.each * self.count <= _MOST_ROWS:
            raise UsageError(f"--hashes {self.count}x{self.each}: expected 1 to {_MOST_PARTS} hashes, and some rows")

    @property
    def method(self) -> str:
        return "hashes"

    @property
    def sizes(self) -> list[int]:
        return [self.each] * self.count

    def places(self, keys: Array) -> list[Array]:
        mask, each = np.uint64((1 << NUMBER_BITS) - 1), np.uint64(self.each)
        return [((_hashes(keys, seed) & mask) % each).view(np.int64) for seed in range(self.count)]


@dataclass(frozen=True)
class QuotientRemainder(RowCode):
    """The quotient of a key and `remainders` is the number of one row, the remainder of another.

    Integers are first replaced by their remainder in the range of `quotients` times `remainders`, and strings are
    hashed into it.

    Attributes
    ----------
    quotients, remainders : int
        Numbers of rows.

    Raises
    ------
    UsageError
        One of them is not positive, or there are too many rows.
    """

    quotients: int
    remainders: int

    def __post_init__(self) -> None:
        if min(self.sizes) < 1 or sum(self.sizes) > _MOST_ROWS:
            raise UsageError(
                f"--quotient-remainder {self.quotients}x{self.remainders}: expected positive numbers of at most "
                f"{_MOST_ROWS} rows"
            )

    @property
    def method(self) -> str:
        return "quotient_remainder"

    @property
    def sizes(self) -> list[int]:
        return [self.quotients, self.remainders]

    @property
    def span(self) -> int:
        """Number of different pairs of rows."""
        return self.quotients * self.remainders

    def places(self, keys: Array) -> list[Array]:
        if keys.dtype.kind == "O":
            numbers = (fingerprints(keys) % np.uint64(self.span)).view(np.int64)
        else:
            numbers = _words(keys).view(np.int64) % np.int64(self.span)
        return [numbers // self.remainders, numbers % self.remainders]


def _words(keys: Array) -> Array:
    """Return integers as their two's complement [n] uint64."""
    words: Array = keys.astype(np.int64 if keys.dtype.kind == "i" else np.uint64).view(np.uint64)
    return words


def _hashes(keys: Array, seed: int) -> Array:
    """Return the hashes [n] uint64 of keys."""
    words = fingerprints(keys) % np.uint64(STRING_BUCKETS) if keys.dtype.kind == "O" else _words(keys)
    words = words + first_step(seed)
    for shift, factor in ROUNDS:
        words = (words ^ words >> np.uint64(shift)) * factor
    hashed: Array = words ^ words >> np.uint64(LAST_SHIFT)
    return hashed


def first_step(seed: int) -> np.uint64:
    """Return the word that a hash with a seed adds to a key first."""
    return np.uint64(int(STEP) * (seed + 1) % (1 << 64))
