# SPDX-License-Identifier: Apache-2.0
"""Encode TensorFlow Serving's Predict messages as far as the demo needs them: string features, one float output.

The code is written by hand, so that a client needs neither TensorFlow nor generated code. Field numbers are those of
tensorflow.serving.PredictRequest and PredictResponse and of tensorflow.TensorProto.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_DT_FLOAT, _DT_STRING = 1, 7
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def encode_request(features: Mapping[str, NDArray[np.bytes_]], model: str = "") -> bytes:
    """Return a serialized PredictRequest for features [rows] bytes, to the default signature of `model`."""
    message = _field(1, _field(1, model.encode())) if model else b""
    for name, values in features.items():
        message += _field(2, _field(1, name.encode()) + _field(2, _string_tensor(values)))
    return message


def decode_response(data: bytes, output: str) -> NDArray[np.float32]:
    """Return the named output [rows] float32 of a serialized PredictResponse.

    Raises
    ------
    ValueError
        If there is no such output, it is not of type float, or the bytes cannot be parsed.
    """
    names = []
    for number, entry in _fields(data):
        if number == 1 and isinstance(entry, bytes):
            parts = dict(_fields(entry))
            name, tensor = parts.get(1, b""), parts.get(2, b"")
            if name == output.encode() and isinstance(tensor, bytes):
                return _float_tensor(tensor)
            names.append(name)
    raise ValueError(f"response: found outputs {names}, expected {output!r}")


def write_framed(path: Path, messages: Iterable[bytes]) -> None:
    """Write messages to a file, each as its length (4 bytes, little-endian) and its bytes."""
    with path.open("wb") as file:
        for message in messages:
            file.write(struct.pack("<I", len(message)) + message)


def read_framed(path: Path) -> list[bytes]:
    """Return the messages of a file that `write_framed` or a host wrote.

    Raises
    ------
    ValueError
        If the file ends inside a message.
    """
    data, messages, place = path.read_bytes(), [], 0
    while place < len(data):
        size = int.from_bytes(data[place : place + 4], "little")
        if place + 4 + size > len(data):
            raise ValueError(f"{path.name}: found {len(data)} bytes, expected {place + 4 + size}")
        messages.append(data[place + 4 : place + 4 + size])
        place += 4 + size
    return messages


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, payload: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(payload)) + payload


def _string_tensor(values: NDArray[np.bytes_]) -> bytes:
    """Return a TensorProto of rank 1: dtype (1), tensor_shape (2) { dim (2) { size (1) } }, string_val (8)."""
    size = _varint(1 << 3 | _VARINT) + _varint(len(values))
    head = _varint(1 << 3 | _VARINT) + _varint(_DT_STRING) + _field(2, _field(2, size))
    return head + b"".join([_field(8, value) for value in values.tolist()])


def _float_tensor(data: bytes) -> NDArray[np.float32]:
    """Return the values of a TensorProto of floats, from tensor_content (4) or float_val (5, packed or not)."""
    dtype, content = 0, bytearray()
    for number, value in _fields(data):
        if number == 1 and isinstance(value, int):
            dtype = value
        elif number in (4, 5) and isinstance(value, bytes):
            content += value
    if dtype != _DT_FLOAT:
        raise ValueError(f"response: found a tensor of type {dtype}, expected {_DT_FLOAT} (float)")
    return np.frombuffer(bytes(content), "<f4")


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field of a message: a number for a varint, otherwise bytes."""
    place = 0
    while place < len(data):
        key, place = _read_varint(data, place)
        kind = key & 7
        if kind == _VARINT:
            number, place = _read_varint(data, place)
            yield key >> 3, number
            continue
        if kind == _BYTES:
            size, place = _read_varint(data, place)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"response: found wire type {kind}, expected 0, 1, 2 or 5")
        if place + size > len(data):
            raise ValueError(f"response: found {len(data) - place} bytes in field {key >> 3}, expected {size}")
        yield key >> 3, data[place : place + size]
        place += size


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(data) and shift < 64:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
    raise ValueError("response: found a number that does not end, expected a varint")
