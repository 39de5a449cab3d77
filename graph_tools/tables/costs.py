# SPDX-License-Identifier: Apache-2.0
"""Bytes of a table in the checkpoint, for every way of storing it."""

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
    """What there is to store.

    Attributes
    ----------
    kept : int
        Keys that are served.
    own : int
        Those of them with a row that is not zero.
    distinct : int
        Different rows among these; `own` where sharing is not possible.
    span : int
        Row numbers from the smallest kept key to the largest; of a plain variable, its rows that are reachable.
    key_bytes : int
        Of all kept keys.
    absent : int
        Rows that absent keys need: 0 for a plain variable.
    dim : int
    dtype : numpy dtype
        As exported.
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
    """How keys find their row.

    Attributes
    ----------
    name : str
        `direct`: the row number is the key less the smallest key. `remap`: that number has an int32 in a variable,
        which is the row's. `hashed`: a hash table gives the row's number. `none`: no key is left.
    share : str
        `none`; `zero`: rows that count as zero are one row, without an index; `equal`: all equal rows are one.
    """

    name: str
    share: str = "none"


def table_bytes(layout: Layout, counts: Counts, row_type: str) -> int:
    """Return the bytes of a table."""
    one = row_bytes(row_type, counts.dim, counts.dtype)
    if layout.name == "none":
        return counts.absent * one
    if layout.name == "direct":
        return (counts.span + counts.absent) * one
    rows = stored_rows(layout, counts) + counts.absent
    if layout.name == "remap":
        return _INDEX_BYTES * (counts.span + bool(counts.absent)) + rows * one
    index = _INDEX_BYTES * counts.kept if layout.share == "equal" else 0
    return counts.key_bytes + index + rows * one


def stored_rows(layout: Layout, counts: Counts) -> int:
    """Return how many rows a table stores beside those for absent keys."""
    if layout.name == "direct":
        return counts.span
    if layout.share == "none":
        return counts.kept
    return (counts.distinct if layout.share == "equal" else counts.own) + (counts.zeros > 0)


def layouts(counts: Counts, *, plain: bool, direct: bool, indexed: bool, gaps: bool) -> list[Layout]:
    """List the layouts that a table may have, the simplest first.

    Parameters
    ----------
    counts : Counts
    plain : bool
        A variable, which has no keys to hash.
    direct : bool
        Keys are integers, and rows can be written in their order.
    indexed : bool
        Keys are integers, and an index of their span can be made.
    gaps : bool
        Absent keys inside the span need no other value than a row can give.
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
        # Zero rows are shared without an index; the others need one.
        found += [Layout("hashed", share) for share in shares if share != "none" or not counts.zeros]
    return found
