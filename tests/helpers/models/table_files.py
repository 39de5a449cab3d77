# SPDX-License-Identifier: Apache-2.0
"""Write files of embedding tables (docs/table_format.md) for tests; the code shares nothing with the product."""

from __future__ import annotations

import struct
from pathlib import Path

from helpers.models.plain_crc import crc32c

_ROWS_AT = 4096


def direct_table(rows: int, dim: int, *, version: int = 1) -> bytes:
    """Return a table of fp32 rows whose keys are row numbers; row r contains dim times the float r."""
    data = b"".join(struct.pack("<f", row) * dim for row in range(rows))
    header = b"RECEMB\r\n" + struct.pack("<2I3Q", version, 256, _ROWS_AT + len(data), rows, 0)
    header += struct.pack("<6I2Q", dim, 0, 4 * dim, 0, 0, 0, 0, 0)
    header += struct.pack("<2Q2I", _ROWS_AT, len(data), crc32c(data), 0)
    header = header.ljust(252, b"\0")
    return (header + struct.pack("<I", crc32c(header))).ljust(_ROWS_AT, b"\0") + data


def write_direct_table(path: Path, rows: int, dim: int, *, version: int = 1) -> Path:
    """Write `direct_table(...)` to `path`."""
    path.write_bytes(direct_table(rows, dim, version=version))
    return path
