# SPDX-License-Identifier: Apache-2.0
"""Decompress raw Snappy, which the small blocks of an index may use."""

from __future__ import annotations

from graph_tools.bundle import varints


def decompress(data: bytes) -> bytes:
    """Return the decompressed data; raise ValueError if it is damaged."""
    size, position = varints.decode(data, 0)
    out = bytearray()
    while position < len(data):
        tag = data[position]
        position += 1
        length = (tag >> 2) + 1
        if tag & 3 == 0:
            if length > 60:  # the length is in the next one to four bytes
                width = length - 60
                length = int.from_bytes(_piece(data, position, width), "little") + 1
                position += width
            out += _piece(data, position, length)
            position += length
        else:
            if tag & 3 == 1:
                width, length, high = 1, (tag >> 2 & 7) + 4, tag >> 5 << 8
            else:
                width, high = (2, 0) if tag & 3 == 2 else (4, 0)
            distance = high | int.from_bytes(_piece(data, position, width), "little")
            position += width
            _copy(out, distance, length)
        if len(out) > size:
            break
    if len(out) != size:
        raise ValueError(f"{len(out)} bytes when decompressed, expected {size}")
    return bytes(out)


def _piece(data: bytes, position: int, length: int) -> bytes:
    piece = data[position : position + length]
    if len(piece) != length:
        raise ValueError(f"the compressed data ends at byte {len(data)}, expected {length} bytes from {position}")
    return piece


def _copy(out: bytearray, distance: int, length: int) -> None:
    """Append `length` bytes from `distance` bytes back; if `length` is larger than `distance`, the bytes repeat."""
    if not 0 < distance <= len(out):
        raise ValueError(f"a copy from {distance} bytes back, expected at most {len(out)}")
    piece = out[-distance:][:length]
    repeats = -(-length // len(piece))
    out += (piece * repeats)[:length]
