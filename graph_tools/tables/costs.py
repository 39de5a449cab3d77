# SPDX-License-Identifier: Apache-2.0
"""Compute the bytes of a table in the checkpoint, for each way to store it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graph_tools.store.rows import row_bytes

_INDEX_BYTES = 4
# Row numbers are int32.
_MOST_ROWS = (1 << 31) - 1


@dataclass(frozen=True)
class Counts:
    """Numbers of keys and rows to store.

    Attributes
    ----------
    kept : int
        Keys that are served.
    own : int
        Kept keys whose row is not zero.
    distinct : int
        Different rows among these; `own` if sharing is not possible.
    span : int
        Row numbers from the smallest kept key to the largest; for a plain variable, its reachable rows.
    key_bytes : int
        Bytes of all kept keys.
    absent : int
        Rows that absent keys need: 0 for a plain variable.
    dim : int
    dtype : numpy dtype
        Dtype of the export.
    """

    kept: int
    own: int
    distinct: int
    span: int
    key_bytes: int
    absent: int
    dim: int
    dtype: np.dtype[Any]

    @property
    def zeros(self) -> int:
        return self.kept - self.own


@dataclass(frozen=True)
class Layout:
    """How the row of a key is found.

    Attributes
    ----------
    name : str
        `direct`: the row number is the key minus the smallest key. `remap`: that difference is the index into a
        variable of int32, which contains the row number. `hashed`: a hash table returns the row number. `none`: no key
        is left.
    share : str
        `none`; `zero`: all rows that count as zero share one row, without an index; `equal`: equal rows are stored
        once.
    """

    name: str
    share: str = "none"


def table_bytes(layout: Layout, counts: Counts, row_type: str) -> int:
    """Return the bytes of a table."""
    size = row_bytes(row_type, counts.dim, counts.dtype)
    if layout.name == "none":
        return counts.absent * size
    if layout.name == "direct":
        return (counts.span + counts.absent) * size
    rows = stored_rows(layout, counts) + counts.absent
    if layout.name == "remap":
        return _INDEX_BYTES * (counts.span + bool(counts.absent)) + rows * size
    index = _INDEX_BYTES * counts.kept if layout.share == "equal" else 0
    return counts.key_bytes + index + rows * size


def stored_rows(layout: Layout, counts: Counts) -> int:
    """Return the number of stored rows, without those for absent keys."""
    if layout.name == "direct":
        return counts.span
    if layout.share == "none":
        return counts.kept
    return (counts.distinct if layout.share == "equal" else counts.own) + (counts.zeros > 0)


def layouts(counts: Counts, *, plain: bool, direct: bool, indexed: bool, gaps: bool) -> list[Layout]:
    """Return the layouts that a table may have, the simplest first.

    Parameters
    ----------
    counts : Counts
    plain : bool
        The table is a plain variable, which has no keys to hash.
    direct : bool
        Keys are integers, and rows can be written in the order of their keys.
    indexed : bool
        Keys are integers, and an index of their span can be made.
    gaps : bool
        A stored row can represent absent keys inside the span.
    """
    if not counts.kept:
        return [Layout("none")] if counts.absent else [Layout("direct")]
    found: list[Layout] = []
    whole = gaps or counts.span == counts.kept
    if plain or (direct and whole):
        found.append(Layout("direct"))
    shares = ["none", *(["zero"] if counts.zeros else []), *(["equal"] if counts.distinct < counts.own else [])]
    if counts.span <= _MOST_ROWS and (plain or indexed):
        found += [Layout("remap", share) for share in shares if not (plain and share == "none")]
    if not plain:
        # Sharing zero rows needs no index; sharing other rows does.
        found += [Layout("hashed", share) for share in shares if share != "none" or not counts.zeros]
    return found
