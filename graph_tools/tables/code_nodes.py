# SPDX-License-Identifier: Apache-2.0
"""Add the nodes to a graph that look up the rows of a code and add them."""

from __future__ import annotations

from typing import Any

import numpy as np

from graph_tools.graph import Graph, Output
from graph_tools.tables.row_codes import (
    LAST_SHIFT,
    NUMBER_BITS,
    ROUNDS,
    STRING_BUCKETS,
    BinaryCode,
    Hashes,
    QuotientRemainder,
    RowCode,
    first_step,
)


class CodeNodes:
    """Adds the nodes that look up the rows of a code and add them.

    Parameters
    ----------
    rows : Output
        Handle of the variable [rows, dim] float32 with the rows of all parts.
    """

    def __init__(self, graph: Graph, code: RowCode, rows: Output, name: str) -> None:
        import tensorflow as tf

        self.tf, self.graph, self.code, self.rows, self.name = tf, graph, code, rows, name

    def look_up(self, keys: Output, key_type: Any) -> Output:
        """Return the rows [..., dim] float32 of keys [...]."""
        tf = self.tf
        found = []
        for number, offset in zip(self._places(keys, key_type), self.code.offsets, strict=True):
            if offset:
                number = self._add("AddV2", number, self._const(np.int64(offset)), T=tf.int64)
            found.append(self._add("ResourceGather", self.rows, number, dtype=tf.float32, Tindices=tf.int64))
        return found[0] if len(found) == 1 else self._add("AddN", *found, N=len(found), T=tf.float32)

    def _places(self, keys: Output, key_type: Any) -> list[Output]:
        """Return for each part the number int64 of the row within it."""
        code = self.code
        if isinstance(code, BinaryCode):
            word = self._hash(self._numbers(keys, key_type, STRING_BUCKETS), 0)
            return [self._number(self._bits(word, block)) for block in code.positions]
        if isinstance(code, Hashes):
            numbers, bits = self._numbers(keys, key_type, STRING_BUCKETS), list(range(NUMBER_BITS))
            words = [self._hash(numbers, seed) for seed in range(code.count)]
            return [self._divide("FloorMod", self._number(self._bits(word, bits)), code.each) for word in words]
        assert isinstance(code, QuotientRemainder)
        number = self._numbers(keys, key_type, code.span)
        if key_type != self.tf.string:
            number = self._divide("FloorMod", number, code.span)
        return [self._divide(op, number, code.remainders) for op in ("FloorDiv", "FloorMod")]

    def _numbers(self, keys: Output, key_type: Any, buckets: int) -> Output:
        """Return keys as int64; strings are hashed."""
        tf = self.tf
        if key_type == tf.string:
            return self._add("StringToHashBucketFast", keys, num_buckets=buckets)
        if key_type == tf.uint64:
            return self._number(keys)
        return keys if key_type == tf.int64 else self._add("Cast", keys, SrcT=key_type, DstT=tf.int64)

    def _number(self, word: Output) -> Output:
        return self._add("Bitcast", word, T=self.tf.uint64, type=self.tf.int64)

    def _divide(self, op: str, number: Output, by: int) -> Output:
        return self._add(op, number, self._const(np.int64(by)), T=self.tf.int64)

    def _hash(self, numbers: Output, seed: int) -> Output:
        word = self._add("Bitcast", numbers, T=self.tf.int64, type=self.tf.uint64)
        word = self._word("AddV2", word, first_step(seed))
        for shift, factor in ROUNDS:
            word = self._word("Mul", self._mixed(word, shift), factor)
        return self._mixed(word, LAST_SHIFT)

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
