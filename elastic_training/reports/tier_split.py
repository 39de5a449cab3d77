# SPDX-License-Identifier: Apache-2.0
"""Forecast how the rows of a table divide between memory and SSD."""

from __future__ import annotations

import math
from dataclasses import dataclass

from elastic_training.tiers import Tiers

# What memory has of a row on SSD, without and with a string key (src/storage/ssd_index.h), and what the index of rows
# in memory has of each.
_COLD_BYTES, _INDEX_BYTES = {"int64": 16, "string": 24}, 6
# What a record has besides its values (src/ssd/record.h).
_RECORD_HEADER = 20
# Bytes of a row in memory besides its values, without and with a string key (src/storage/row_layout.h).
_ROW_HEADER = {"int64": 16, "string": 24}
# Files are reclaimed when they take more than this times the rows on SSD.
_MOST_SPACE = 1.4


@dataclass(frozen=True)
class TierSplit:
    """Where the rows of a table would be.

    Attributes
    ----------
    bytes : float [bytes]
        Memory: rows, and what of those on SSD is in memory.
    ssd_rows, ssd_bytes : float
        Rows on SSD, and the most space of their files [bytes].
    problem : str
        Why training would end with an error; "" if it would not.
    """

    bytes: float
    ssd_rows: float
    ssd_bytes: float
    problem: str = ""


def split_rows(tiers: Tiers | None, key: str, used: float, rows: float, row_bytes: int) -> TierSplit:
    """Divide the rows of a table.

    Parameters
    ----------
    tiers : Tiers or None
        None: all rows are in memory.
    key : {"int64", "string"}
    used : float [bytes]
        Memory if all rows are there, with index, strings, candidates and filter.
    rows : float
    row_bytes : int
        Bytes of a row in memory.
    """
    if tiers is None:
        return TierSplit(used, 0.0, 0.0)
    memory = int(tiers.memory)
    saved = row_bytes + _INDEX_BYTES - _COLD_BYTES[key]
    cold = min(rows, math.ceil((used - memory) / saved)) if used > memory and saved > 0 else 0.0
    values = (row_bytes - _ROW_HEADER[key]) // 4
    record = _RECORD_HEADER + 4 * values
    left, space = used - cold * saved, _MOST_SPACE * record * cold
    problem = ""
    if left > memory:
        problem = f"keys and index take {left / 1e6:,.1f} MB, expected at most memory={memory / 1e6:,.1f} MB"
    elif tiers.ssd_limit is not None and space > int(tiers.ssd_limit):
        limit = int(tiers.ssd_limit) / 1e6
        problem = f"rows on SSD take up to {space / 1e6:,.1f} MB, expected at most ssd_limit={limit:,.1f} MB"
    return TierSplit(left, cold, space, problem)
