# SPDX-License-Identifier: Apache-2.0
"""Compute CRC-32C (Castagnoli) with a table; the code shares nothing with the product."""

from __future__ import annotations

from functools import cache


@cache
def _crc_table() -> tuple[int, ...]:
    made = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        made.append(value)
    return tuple(made)


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli), computed one byte at a time."""
    table, crc = _crc_table(), 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def masked_crc32c(data: bytes) -> int:
    """Mask a checksum as TFRecord files and TensorFlow's bundles do."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) % 2**32
