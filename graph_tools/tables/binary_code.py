# SPDX-License-Identifier: Apache-2.0
"""Binary codes of keys: a few row numbers for each key, in NumPy and as nodes of a graph.

The codes are those of `BinaryCodeEmbedding` of elastic_training, with `hash_seed` 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from graph_tools.errors import UsageError
from graph_tools.graph import Graph, Output
from graph_tools.store.fingerprint import fingerprints
from graph_tools.tensors import Array

CUTS = ("succession", "skip")
_STEP = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS = ((30, np.uint64(0xBF58476D1CE4E5B9)), (27, np.uint64(0x94D049BB133111EB)))
_LAST_SHIFT = 31
_STRING_BUCKETS = 1 << 62


@dataclass(frozen=True)
class BinaryCode:
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
    def sizes(self) -> list[int]:
        """Number of rows of each block."""
        return [1 << len(block) for block in self.positions]

    @property
    def offsets(self) -> list[int]:
        """The first row of each block."""
        return list(accumulate(self.sizes[:-1], initial=0))

    def places(self, keys: Array) -> list[Array]:
        """Return for each block the number [n] int64 of each key's row within it.

        Parameters
        ----------
        keys : ndarray [n] of integers or object (bytes)
        """
        words = _hashes(keys)
        found = []
        for block in self.positions:
            place = np.zeros(len(words), np.uint64)
            for bit, position in enumerate(block):
                place |= (words >> np.uint64(position) & np.uint64(1)) << np.uint64(bit)
            found.append(place.view(np.int64))
        return found


def _hashes(keys: Array) -> Array:
    """Return the hashes [n] uint64 of keys."""
    if keys.dtype.kind == "O":
        words = fingerprints(keys) % np.uint64(_STRING_BUCKETS)
    else:
        words = keys.astype(np.int64 if keys.dtype.kind == "i" else np.uint64).view(np.uint64)
    words = words + _STEP
    for shift, factor in _ROUNDS:
        words = (words ^ words >> np.uint64(shift)) * factor
    hashed: Array = words ^ words >> np.uint64(_LAST_SHIFT)
    return hashed


class CodeNodes:
    """Adds the nodes that look up the rows of a code and add them.

    Parameters
    ----------
    rows : Output
        Handle of the variable [rows, dim] float32 with the rows of all blocks.
    """

    def __init__(self, graph: Graph, code: BinaryCode, rows: Output, name: str) -> None:
        import tensorflow as tf

        self.tf, self.graph, self.code, self.rows, self.name = tf, graph, code, rows, name

    def look_up(self, keys: Output, key_type: Any) -> Output:
        """Return the rows [..., dim] float32 of keys [...]."""
        tf = self.tf
        word, found = self._hash(keys, key_type), []
        for block, offset in zip(self.code.positions, self.code.offsets, strict=True):
            number = self._add("Bitcast", self._bits(word, block), T=tf.uint64, type=tf.int64)
            if offset:
                number = self._add("AddV2", number, self._const(np.int64(offset)), T=tf.int64)
            found.append(self._add("ResourceGather", self.rows, number, dtype=tf.float32, Tindices=tf.int64))
        return found[0] if len(found) == 1 else self._add("AddN", *found, N=len(found), T=tf.float32)

    def _hash(self, keys: Output, key_type: Any) -> Output:
        tf = self.tf
        if key_type == tf.string:
            keys, key_type = self._add("StringToHashBucketFast", keys, num_buckets=_STRING_BUCKETS), tf.int64
        if key_type not in (tf.int64, tf.uint64):
            keys, key_type = self._add("Cast", keys, SrcT=key_type, DstT=tf.int64), tf.int64
        word = self._add("Bitcast", keys, T=tf.int64, type=tf.uint64) if key_type == tf.int64 else keys
        word = self._word("AddV2", word, _STEP)
        for shift, factor in _ROUNDS:
            word = self._word("Mul", self._mixed(word, shift), factor)
        return self._mixed(word, _LAST_SHIFT)

    def _mixed(self, word: Output, shift: int) -> Output:
        shifted = self._word("RightShift", word, np.uint64(shift))
        return self._add("BitwiseXor", word, shifted, T=self.tf.uint64)

    def _bits(self, word: Output, block: list[int]) -> Output:
        """Return the number that some bits form."""
        tf, first, count = self.tf, block[0], len(block)
        if block == list(range(first, first + count)):
            shifted = self._word("RightShift", word, np.uint64(first)) if first else word
            return self._word("BitwiseAnd", shifted, np.uint64((1 << count) - 1))
        wide = self._add("ExpandDims", word, self._const(np.int32(-1)), T=tf.uint64, Tdim=tf.int32)
        single = self._word("BitwiseAnd", self._word("RightShift", wide, np.array(block, np.uint64)), np.uint64(1))
        placed = self._word("LeftShift", single, np.arange(count, dtype=np.uint64))
        return self._add("Sum", placed, self._const(np.int32(-1)), T=tf.uint64, Tidx=tf.int32, keep_dims=False)

    def _word(self, op: str, word: Output, operand: Any) -> Output:
        return self._add(op, word, self._const(operand), T=self.tf.uint64)

    def _const(self, value: Any) -> Output:
        return self.graph.add_const(np.asarray(value), f"{self.name}/Const")

    def _add(self, op: str, *inputs: Output, **attrs: Any) -> Output:
        return self.graph.add(op, inputs, name=f"{self.name}/{op}", attrs=attrs).output()
