# SPDX-License-Identifier: Apache-2.0
"""Encode and decode variable-length integers, seven bits per byte, lowest first: single ones and whole arrays."""

from __future__ import annotations

from mmap import mmap

import numpy as np

from graph_tools.tensors import Array

# Lengths and offsets are below 2^63, which is nine bytes.
MAX_BYTES = 9


def encode(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode(data: bytes | mmap, position: int) -> tuple[int, int]:
    """Return the integer at `position` and the position after it; raise ValueError if it does not end."""
    value = 0
    for shift in range(0, 7 * MAX_BYTES, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("an integer that does not end")


def encode_array(values: Array) -> Array:
    """Encode values [n] int64, none negative, to bytes [m] uint8."""
    if not values.size or values.max() < 0x80:
        return values.astype(np.uint8)
    widths = np.ones(len(values), np.int64)
    for count in range(1, MAX_BYTES):
        widths += values >= 1 << 7 * count
    starts = np.cumsum(widths) - widths
    out = np.empty(int(widths.sum()), np.uint8)
    for place in range(int(widths.max())):
        has = widths > place
        more = np.where(widths[has] > place + 1, 0x80, 0)
        out[starts[has] + place] = values[has] >> 7 * place & 0x7F | more
    return out


def decode_array(raw: Array) -> Array:
    """Decode bytes [m] uint8, whose last byte ends an integer, to values [n] int64; raise ValueError from 2^63 on."""
    ends = np.flatnonzero(raw < 0x80)
    if len(ends) == len(raw):
        return raw.astype(np.int64)
    starts = np.concatenate([[0], ends[:-1] + 1])
    widths = ends - starts + 1
    if widths.max() > MAX_BYTES:
        raise ValueError("an integer that does not end")
    values: Array = (raw[starts] & 0x7F).astype(np.int64)
    for place in range(1, int(widths.max())):
        has = widths > place
        values[has] |= (raw[starts[has] + place] & 0x7F).astype(np.int64) << 7 * place
    return values
