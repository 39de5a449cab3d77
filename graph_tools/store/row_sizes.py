# SPDX-License-Identifier: Apache-2.0
"""The sizes of rows in table files (docs/table_format.md)."""

from __future__ import annotations

__all__ = ["row_size", "row_stride"]


def row_size(row_type: str, dim: int) -> int:
    """Return the bytes of a row."""
    return {
        "fp32": 4 * dim,
        "bf16": 2 * dim,
        "fp16": 2 * dim,
        "int8": 4 + dim,
        "int4": 4 + (dim + 1) // 2,
    }[row_type]


def row_stride(row_type: str, dim: int) -> int:
    """Return the number of bytes from one row to the next.

    Rows that begin at cache lines touch as few lines as possible. The stride is therefore a power of two below a line,
    or a whole number of lines, if that costs at most a quarter of the space.
    """
    size = row_size(row_type, dim)
    lines = 1 << (size - 1).bit_length() if size <= 64 else -(-size // 64) * 64
    alignment = 4 if size >= 4 else 2
    return lines if 4 * lines <= 5 * size else -(-size // alignment) * alignment
