# SPDX-License-Identifier: Apache-2.0
"""Encode the keys of the slices of a partitioned variable in the index.

A key is an order-preserving code: the number 0 (so that slices sort before names), the tensor's name, the number of
dimensions, then start and length of each dimension; length -1 means the whole dimension.

* Unsigned number: a byte with the number of bytes, then these bytes, highest first, without leading zeros.
* String: its bytes, 00 written as 00 FF and FF as FF 00, ended by 00 01.
* Signed number: the fewest n bytes of two's complement that leave n bits above the sign bit; these n bits are inverted,
  so that longer numbers sort outside of shorter ones.
"""

from __future__ import annotations

from collections.abc import Sequence

FULL = -1


def slice_key(name: bytes, extents: Sequence[tuple[int, int]]) -> bytes:
    """Return the key of the slice of `name` with (start, length) per dimension."""
    key = _unsigned(0) + _string(name) + _unsigned(len(extents))
    for start, length in extents:
        key += _signed(start) + _signed(length)
    return key


def is_slice_key(key: bytes) -> bool:
    """Return whether this key is that of a slice; no name starts with a zero byte."""
    return key.startswith(b"\0")


def _unsigned(value: int) -> bytes:
    width = (value.bit_length() + 7) // 8
    return bytes([width]) + value.to_bytes(width, "big")


def _string(value: bytes) -> bytes:
    # In one pass over the bytes, since each replacement contains the pattern of the other.
    return b"".join({0: b"\0\xff", 255: b"\xff\0"}.get(byte, bytes([byte])) for byte in value) + b"\0\1"


def _signed(value: int) -> bytes:
    magnitude = ~value if value < 0 else value
    width = magnitude.bit_length() // 7 + 1
    # The `width` highest bits are inverted; they are copies of the sign bit.
    header = ((1 << width) - 1) << (8 * width - width)
    return ((value & ((1 << 8 * width) - 1)) ^ header).to_bytes(width, "big")
