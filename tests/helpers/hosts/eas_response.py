# SPDX-License-Identifier: Apache-2.0
"""Read a `tensorflow.eas.PredictResponse` by hand, for tests that have no generated code."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

_PACKED = {1: (3, np.float32), 2: (4, np.float64)}
_VARINTS = {3: (5, np.int32), 9: (7, np.int64), 10: (8, np.bool_)}
_STRING = 7


def decode_response(data: bytes) -> dict[str, np.ndarray]:
    """Return the outputs by name; strings as arrays of bytes objects."""
    outputs = {}
    for number, entry in _fields(data):
        assert number == 1, f"field {number} in a response"
        parts = dict(_fields(entry))
        outputs[parts.get(1, b"").decode()] = _array(parts[2])
    return outputs


def _array(data: bytes) -> np.ndarray:
    fields = list(_fields(data))
    values = {number: value for number, value in fields if number != 6}
    dtype = values.get(1, 0)
    shape = [size for number, packed in _fields(values.get(2, b"")) if number == 1 for size in _varints(packed)]
    if dtype == _STRING:
        array = np.empty(len([1 for number, _ in fields if number == 6]), object)
        array[:] = [value for number, value in fields if number == 6]
        return array.reshape(shape)
    if dtype in _PACKED:
        number, kind = _PACKED[dtype]
        return np.frombuffer(values.get(number, b""), kind).reshape(shape)
    number, kind = _VARINTS[dtype]
    numbers = [value - 2**64 if value >= 2**63 else value for value in _varints(values.get(number, b""))]
    return np.array(numbers, kind).reshape(shape)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        if key & 7 == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        assert key & 7 == 2, f"wire type {key & 7}"
        size, at = _varint(data, at)
        assert at + size <= len(data)
        yield key >> 3, data[at : at + size]
        at += size


def _varints(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _varint(data, at)
        yield value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if byte < 0x80:
            return value, at
