# SPDX-License-Identifier: Apache-2.0
"""Follow ids back to the feature from which they are computed, step by step."""

from __future__ import annotations

from typing import Any

import numpy as np

from graph_tools.analysis.batches import Batches, is_reshape
from graph_tools.analysis.ranges import ANY, RangeFinder
from graph_tools.graph import Node, Output, attribute, constant, dtype_of, skip, source
from graph_tools.plans.embedding_parts import (
    Add,
    Bits,
    Bucketize,
    Clip,
    Divide,
    FastHash,
    LegacyHash,
    Mod,
    Multiply,
    Step,
    StrongHash,
    ToString,
    WrapNegative,
)
from graph_tools.recognition.lookups.code_steps import OPS as CODE_OPS
from graph_tools.recognition.lookups.code_steps import code_step
from graph_tools.recognition.lookups.pieces import KeySource
from graph_tools.recognition.lookups.vocabularies import Vocabularies
from graph_tools.rewriting.outcome import Found, Refused, value_of

#: Types from which a key may be computed; floats too if the first step is `bucketize`.
INTEGERS = ("int32", "int64", "uint32", "uint64")
_FLOATS = ("float32", "float64")
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
# These bring a sum that exceeds 32 bits to the number that is left of it in 32 bits.
_HALF = 1 << 31
_WRAP = (Add(_HALF), Bits(0, 32), Add(-_HALF))
_AS_STRING = {"precision": -1, "scientific": False, "shortest": False, "width": -1, "fill": b""}


class KeyFinder:
    """Finds the keys of ids in a graph, which must not change meanwhile."""

    def __init__(self, batches: Batches, ranges: RangeFinder, vocabularies: Vocabularies) -> None:
        self.batches, self.ranges, self.vocabularies = batches, ranges, vocabularies
        self.graph = batches.graph
        self._known: dict[Output, tuple[Output, tuple[Step, ...]]] = {}

    def of(self, ids: Output, shaped: bool = True) -> Found[KeySource] | Refused:
        """Return the key whose values, after its steps, are ids.

        Parameters
        ----------
        ids : Output
            Integers or strings.
        shaped : bool
            Whether the first size of ids is the batch. If not, they are a vector of values, and reshapes are not
            followed.
        """
        values, steps = self.walk(ids, shaped)
        dtype = dtype_of(self.graph, values)
        name = dtype.name if dtype is not None else "unknown"
        allowed = ("string", *INTEGERS, *(_FLOATS if steps and isinstance(steps[0], Bucketize) else ()))
        if name not in allowed:
            return Refused(f"'{values}' is {name}, expected one of {', '.join(allowed)}")
        sizes = self.batches.of(values) if shaped else None
        return Found(KeySource(values, steps, length=sizes[1] if sizes is not None and len(sizes) == 2 else None))

    def walk(self, output: Output, shaped: bool = True) -> tuple[Output, tuple[Step, ...]]:
        """Return the earliest tensor from which steps compute an output, and the steps in order."""
        output = skip(self.graph, output)
        place = output
        if shaped and place in self._known:
            return self._known[place]
        found = self._walk(output, shaped)
        if shaped:
            self._known[place] = found
        return found

    def _walk(self, output: Output, shaped: bool) -> tuple[Output, tuple[Step, ...]]:
        node = self.graph[output.node]
        if node.controls or output.port:
            return output, ()
        if is_reshape(self.graph, node):
            return self.walk(node.inputs[0]) if shaped and self.batches.keeps_rows(node) else (output, ())
        if node.op == "Cast" and attribute(node, "SrcT").name != "uint64":
            return self.walk(node.inputs[0], shaped) if self._keeps_every_value(node) else (output, ())
        if node.op in {"Bitcast", "Cast"}:
            return self._walk_word(node, output, shaped)
        if node.op == "Bucketize":
            return self._walk_bucketize(node, shaped)
        found = self.step(node)
        if found is None:
            return output, ()
        before, step = found
        values, steps = self.walk(before, shaped)
        wrapped = (step, *_WRAP) if step != Add(0) and self._may_overflow(node) else (step,)
        for each in wrapped:
            steps = _joined(steps, each)
        return values, steps

    def _walk_word(self, node: Node, output: Output, shaped: bool) -> tuple[Output, tuple[Step, ...]]:
        """Follow a change of the type of 64 bits, after which steps give what ops on the new type give.

        Ops on uint64 from which steps are made treat the bits alike, signed or not; those on int64 do not, so that the
        bits must be a small number by then.
        """
        names = ("T", "type") if node.op == "Bitcast" else ("SrcT", "DstT")
        before, after = (attribute(node, name) for name in names)
        if node.op == "Bitcast" and (before.name, after.name) == ("int64", "uint64"):
            return self.walk(node.inputs[0], shaped)
        if (before.name, after.name) != ("uint64", "int64"):
            return output, ()
        values, steps = self.walk(node.inputs[0], shaped)
        return (values, steps) if steps and isinstance(steps[-1], Bits) else (output, ())

    def _may_overflow(self, node: Node) -> bool:
        """Return whether a sum of int32 may be another number than one of int64."""
        narrow = node.op in {"Add", "AddV2", "Sub"} and attribute(node, "T").name == "int32"
        return bool(narrow and self.ranges.of(node.output()) == ANY)

    def _keeps_every_value(self, cast: Node) -> bool:
        before, after = attribute(cast, "SrcT"), attribute(cast, "DstT")
        if before.name not in INTEGERS or not after.is_integer:
            return False
        if after.name == "int64":
            return True
        if before == after:
            return True
        low, high = self.ranges.of(cast.inputs[0])
        limits = np.iinfo(after.as_numpy_dtype)
        return low is not None and high is not None and limits.min <= low and high <= limits.max

    def _walk_bucketize(self, node: Node, shaped: bool) -> tuple[Output, tuple[Step, ...]]:
        values, steps = self.walk(node.inputs[0], shaped)
        boundaries = tuple(map(float, node.attrs["boundaries"].list.f))
        if steps:
            values = skip(self.graph, node.inputs[0])
        return values, (Bucketize(boundaries),)

    def step(self, node: Node) -> tuple[Output, Step] | None:
        """Return the input of a node and the step that the node computes from it; None: a plan has no such step."""
        inputs = node.inputs
        if node.op == "StringToHashBucketFast":
            return inputs[0], FastHash(attribute(node, "num_buckets"))
        if node.op == "StringToHashBucketStrong":
            return inputs[0], StrongHash(attribute(node, "num_buckets"), tuple(map(int, attribute(node, "key"))))
        if node.op == "StringToHashBucket":
            return inputs[0], LegacyHash(attribute(node, "num_buckets"))
        if node.op == "AsString":
            plain = all(attribute(node, key, default) == default for key, default in _AS_STRING.items())
            number = attribute(node, "T").name in ("int32", "int64")
            return (inputs[0], ToString()) if plain and number else None
        if node.op in {"Select", "SelectV2"}:
            return self._wrap_step(node)
        if node.op in CODE_OPS:
            return code_step(self.graph, node)
        if node.op in {"Add", "AddV2", "Sub", "Mul", "FloorDiv", "FloorMod", "Maximum", "Minimum"}:
            return self._word_arithmetic(node) if attribute(node, "T").name == "uint64" else self._arithmetic(node)
        if node.op == "ClipByValue":
            low, high = map(self.number, inputs[1:])
            return (inputs[0], Clip(low, high)) if low is not None and high is not None and low <= high else None
        return None

    def _arithmetic(self, node: Node) -> tuple[Output, Step] | None:
        dtype: Any = attribute(node, "T")
        if dtype.name not in ("int32", "int64"):
            return None
        number, before = self.number(node.inputs[1]), node.inputs[0]
        if number is None and node.op not in {"Sub", "FloorDiv", "FloorMod"}:
            number, before = self.number(node.inputs[0]), node.inputs[1]
        if number is None or self.number(before) is not None:
            return None
        if node.op == "FloorMod":
            return (before, Mod(number)) if number > 0 else None
        if node.op == "FloorDiv":
            return (before, Divide(number)) if number > 0 else None
        if node.op == "Mul":
            return (before, Multiply(number)) if dtype.name == "int64" else None
        if node.op == "Maximum":
            return before, Clip(number, _MOST)
        if node.op == "Minimum":
            return before, Clip(_LEAST, number)
        return before, Add(-number if node.op == "Sub" else number)

    def _word_arithmetic(self, node: Node) -> tuple[Output, Step] | None:
        """Return the step of a sum or product of 64 bits with a constant."""
        if node.op not in {"Add", "AddV2", "Mul"}:
            return None
        for before, other in (node.inputs, node.inputs[::-1]):
            number = self.number(other)
            if number is not None:
                # A plan has the bits as a signed number.
                signed = number - (1 << 64) if number > _MOST else number
                return before, Multiply(signed) if node.op == "Mul" else Add(signed)
        return None

    def _wrap_step(self, select: Node) -> tuple[Output, Step] | None:
        """Recognize `where(ids < 0, ids + n, ids)`, Keras 3's repair of negative ids."""
        ids = skip(self.graph, select.inputs[2])
        less = source(self.graph, select.inputs[0], "Less")
        added = source(self.graph, select.inputs[1], "AddV2", "Add")
        if less is None or added is None or skip(self.graph, less.inputs[0]) != ids:
            return None
        if self.number(less.inputs[1]) != 0 or skip(self.graph, added.inputs[0]) != ids:
            return None
        number = self.number(added.inputs[1])
        return (ids, WrapNegative(number)) if number is not None and number > 0 else None

    def number(self, output: Output) -> int | None:
        """Return the number that an integer tensor has in every request, which may be the size of a hash table."""
        node = self.graph[skip(self.graph, output).node]
        if node.op == "LookupTableSizeV2":
            vocabulary = value_of(self.vocabularies.of(skip(self.graph, node.inputs[0]).node))
            return None if vocabulary is None else vocabulary.keys.shape[0]
        if node.op in {"Fill", "Tile"}:
            return self.number(node.inputs[1 if node.op == "Fill" else 0])
        if node.op == "Mul" and 0 in map(self.number, node.inputs):
            return 0
        array = constant(self.graph, output)
        if array is None or array.size != 1 or array.dtype.kind not in "iu" or array.ndim > 1:
            return None
        return int(array.reshape(-1)[0])


def _joined(steps: tuple[Step, ...], step: Step) -> tuple[Step, ...]:
    """Return steps with one more; two sums become one."""
    if not isinstance(step, Add):
        return (*steps, step)
    last = steps[-1] if steps else None
    if isinstance(last, Add) and _LEAST <= step.value + last.value <= _MOST:
        steps, step = steps[:-1], Add(step.value + last.value)
    return (*steps, step) if step.value else steps
