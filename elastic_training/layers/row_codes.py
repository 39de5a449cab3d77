# SPDX-License-Identifier: Apache-2.0
"""How a key is turned into a few rows of a small table: by the bits of its code, by several hashes, or by division.

The rows of a code are numbered from 0; each part of the code has rows of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

import tensorflow as tf

from elastic_training._settings import Setting
from elastic_training.layers.key_codes import bits_of, code_of

CUTS = ("succession", "skip")
_MOST_ROWS, _MOST_PARTS = 1 << 31, 64


class RowCode(Setting, ABC):
    """The rows of keys.

    Attributes
    ----------
    sizes : tuple of int
        Number of rows of each part.
    """

    family: ClassVar[str] = "row code"
    sizes: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Number of rows of all parts."""
        return sum(self.sizes)

    @property
    def offsets(self) -> tuple[int, ...]:
        """The first row of each part."""
        return tuple(accumulate(self.sizes[:-1], initial=0))

    @abstractmethod
    def places(self, keys: tf.Tensor) -> list[tf.Tensor]:
        """Return for each part the place of keys [...] within it: Tensors [...] int64, in [0, size of the part)."""

    def _check_sizes(self) -> None:
        if self.rows > _MOST_ROWS:
            raise ValueError(f"{type(self).__name__}: {self.rows} rows, expected at most {_MOST_ROWS}")


@dataclass(frozen=True, eq=False)
class BinaryCode(RowCode):
    """Cut the first bits of a key's code into blocks, each of which is the number of a row.

    Parameters
    ----------
    bits : int
        Length of the code.
    blocks : int
    cut : {"succession", "skip"}
        Whether a block has bits that follow each other, or every `blocks`-th one.
    seed : int

    Notes
    -----
    succession: block j has the bits j·t … (j + 1)·t - 1 with t = ⌈bits / blocks⌉; the last one may be shorter.
    skip: block j has the bits j, j + blocks, j + 2·blocks … below `bits`.

    Source: Yan et al., "Binary Code based Hash Embedding for Web-scale Applications", CIKM 2021.
    """

    bits: int
    blocks: int
    cut: str = "succession"
    seed: int = 0
    kind: ClassVar[str] = "binary_code"

    def __post_init__(self) -> None:
        self._whole("bits", 1, 64)
        self._whole("blocks", 1, min(self.bits, _MOST_PARTS))
        self._whole("seed", 0, (1 << 63) - 1)
        if self.cut not in CUTS:
            raise ValueError(f"BinaryCode: cut is {self.cut!r}, expected 'succession' or 'skip'")
        positions = self.positions()
        if not all(positions):
            raise ValueError(
                f"BinaryCode: {self.bits} bits in {self.blocks} successive blocks of {len(positions[0])} leave a block "
                "without bits, expected fewer blocks, more bits, or cut='skip'"
            )
        if len(positions[0]) > 31:
            raise ValueError(f"BinaryCode: a block of {len(positions[0])} bits, expected at most 31; use more blocks")
        object.__setattr__(self, "sizes", tuple(1 << len(block) for block in positions))
        self._check_sizes()

    def positions(self) -> list[list[int]]:
        """Return the positions of each block's bits in the code, from the lowest on."""
        if self.cut == "skip":
            return [list(range(first, self.bits, self.blocks)) for first in range(self.blocks)]
        length = -(-self.bits // self.blocks)
        starts = range(0, length * self.blocks, length)
        return [list(range(start, min(start + length, self.bits))) for start in starts]

    def places(self, keys: tf.Tensor) -> list[tf.Tensor]:
        code = code_of(keys, self.seed)
        return [bits_of(code, block) for block in self.positions()]


@dataclass(frozen=True, eq=False)
class Hashes(RowCode):
    """Hash a key several times, each time into rows of its own.

    Parameters
    ----------
    each : int
        Number of rows of a hash.
    count : int
        Number of hashes.
    seed : int
        The hashes have the seeds `seed`, `seed` + 1, and so on.
    """

    each: int
    count: int = 2
    seed: int = 0
    kind: ClassVar[str] = "hashes"

    def __post_init__(self) -> None:
        self._whole("each", 1, _MOST_ROWS)
        self._whole("count", 1, _MOST_PARTS)
        self._whole("seed", 0, (1 << 63) - 1 - _MOST_PARTS)
        object.__setattr__(self, "sizes", (self.each,) * self.count)
        self._check_sizes()

    def places(self, keys: tf.Tensor) -> list[tf.Tensor]:
        codes = [code_of(keys, self.seed + number) for number in range(self.count)]
        # 63 bits are a number that is not negative.
        return [tf.math.floormod(bits_of(code, range(63)), tf.constant(self.each, tf.int64)) for code in codes]


@dataclass(frozen=True, eq=False)
class QuotientRemainder(RowCode):
    """Divide a key: the quotient is the number of one row, the remainder of another.

    Keys from 0 to quotients · remainders - 1 have different pairs. Other integers are first replaced by their remainder
    in that range, and strings are hashed into it.

    Parameters
    ----------
    quotients, remainders : int
        Numbers of rows.

    Notes
    -----
    Source: Shi et al., "Compositional Embeddings Using Complementary Partitions", KDD 2020.
    """

    quotients: int
    remainders: int
    kind: ClassVar[str] = "quotient_remainder"

    def __post_init__(self) -> None:
        self._whole("quotients", 1, _MOST_ROWS)
        self._whole("remainders", 1, _MOST_ROWS)
        object.__setattr__(self, "sizes", (self.quotients, self.remainders))
        self._check_sizes()

    def places(self, keys: tf.Tensor) -> list[tf.Tensor]:
        span = self.quotients * self.remainders
        if keys.dtype == tf.string:
            keys = tf.strings.to_hash_bucket_fast(keys, span)
        else:
            keys = tf.math.floormod(keys, tf.constant(span, tf.int64))
        by = tf.constant(self.remainders, tf.int64)
        return [tf.math.floordiv(keys, by), tf.math.floormod(keys, by)]
