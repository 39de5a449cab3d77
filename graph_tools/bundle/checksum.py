# SPDX-License-Identifier: Apache-2.0
"""Compute CRC-32C as tensor bundles store it."""

from __future__ import annotations

import google_crc32c

from graph_tools.tensors import Array

_MASK_DELTA = 0xA282EAD8


def extend(crc: int, data: bytes | Array) -> int:
    """Return the checksum of some data with checksum `crc` followed by `data` (bytes or a C-ordered array)."""
    return int(google_crc32c.extend(crc, data))


def mask(crc: int) -> int:
    """Return the stored form: rotated and shifted, so that data that contains checksums can be checksummed too."""
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF
