# SPDX-License-Identifier: Apache-2.0
"""Analyze every row of a table in one pass: needed rows, equal rows, and the ranges of keys and values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from graph_tools.errors import UnreadableError
from graph_tools.model.stored_table import Reach
from graph_tools.model.tables import Absent
from graph_tools.options import CutOptions
from graph_tools.tables.bits import Bits
from graph_tools.tables.blocks import Block, TableRows
from graph_tools.tables.checks import LARGEST_VALUE
from graph_tools.tables.duplicates import HashSample, row_hashes
from graph_tools.tensors import Array

Progress = Callable[[str, int], None]
"""Called with a table's name and the number of bytes read since the last call."""

# Sharing a row costs an index entry of four bytes.
_SHORTEST_SHARED_ROW = 8
# Hashing every row takes as long as the rest of the analysis. In a larger table, one row in 2^5 is hashed first; the
# other rows are hashed only if at least one in a hundred of these equals another.
_SAMPLED_BYTES = 64 << 20
_SAMPLE_SHIFT = 5
_WORTH_HASHING = 0.01


@dataclass
class Analysis:
    """Result of one pass over a table.

    Every row is counted under each of `zero_rows`, `equal_absent` and `below_norm` that applies; `dropped` counts each
    row once, under the first reason that applies.

    Attributes
    ----------
    rows : int
    zero_rows : int
        Rows of zeros of either sign.
    equal_absent : int
        Rows equal to the absent value of their key; zeros of either sign are equal.
    below_norm, below_frequency : int
    dropped : dict of str to int
        Dropped keys, by reason: `ignored`, `dead`, `equal_absent`, `below_frequency`, `below_norm`.
    shrunk : int
        Kept rows that count as zero only because their norm is small.
    duplicates : int
        Kept rows that equal an earlier one, without zero rows; an estimate unless `duplicates_exact`.
    duplicates_few : bool
        True if that estimate is below one in a hundred, so that the exact number was not computed.
    own, zeros : Bits
        Kept rows that do not count as zero, and kept rows that do.
    low, high : int or None
        Smallest and largest kept key, as int64.
    ascending : bool
        Every kept key is larger than the one before.
    largest : float
        Largest absolute value of a row.
    key_bytes : int
        Bytes of the kept keys in a checkpoint.
    hashes : HashSample or None
        Hashes of the rows in `own`, for sharing; removed when the plan is made.
    """

    rows: int
    own: Bits
    zeros: Bits
    zero_rows: int = 0
    equal_absent: int = 0
    below_norm: int = 0
    below_frequency: int = 0
    shrunk: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    duplicates: int = 0
    duplicates_exact: bool = True
    duplicates_few: bool = False
    low: int | None = None
    high: int | None = None
    ascending: bool = True
    largest: float = 0.0
    key_bytes: int = 0
    hashes: HashSample | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def kept(self) -> int:
        return self.own.count + self.zeros.count


class Analyzer:
    """Makes one pass over one table.

    Parameters
    ----------
    source : TableRows
    absent : Absent or None
        None: rows equal to the absent value must stay, since lookups use different values, or the table is a plain
        variable.
    reach : Reach
        Keys that the graph can look up.
    options : CutOptions
    """

    def __init__(self, source: TableRows, absent: Absent | None, reach: Reach, options: CutOptions) -> None:
        self.source, self.absent, self.reach, self.options = source, absent, reach, options
        self.result = Analysis(source.count, Bits(source.count), Bits(source.count))
        row_bytes = source.dim * source.dtype.itemsize
        if row_bytes > _SHORTEST_SHARED_ROW:
            self.result.hashes = HashSample(source.count, options.memory_limit // 16)
        self._thin = _SAMPLE_SHIFT if source.count * row_bytes > _SAMPLED_BYTES else 0
        self._last: int | None = None
        self._wide = source.dtype in (np.float32, np.float64)
        frequencies = options.min_frequency > 0
        if frequencies and not source.plain and not source.has_frequencies:
            self.result.notes.append("--min-frequency: no frequencies in the export, every key stays")
            frequencies = False
        self._frequencies = frequencies and source.has_frequencies

    def run(self, progress: Progress | None = None) -> Analysis:
        """Read the table and return the analysis.

        Raises
        ------
        UnreadableError
            A value is not finite, or its absolute value is 1e30 or more.
        """
        row_bytes = self.source.dim * self.source.dtype.itemsize
        with np.errstate(over="ignore", under="ignore"):
            for block in self.source.blocks(frequencies=self._frequencies):
                self._analyze_block(block)
                if progress is not None:
                    progress(self.source.name, len(block) * row_bytes)
        result = self.result
        if result.hashes is not None:
            self._count_duplicates(result, result.hashes)
        return result

    def _count_duplicates(self, result: Analysis, hashes: HashSample) -> None:
        if self._thin:
            share = hashes.duplicates() / max(1, hashes.seen)
            # Rows with the same norm are either all in the sample or all outside it.
            fair = hashes.seen >= result.own.count >> self._thin + 1
            if fair and share < _WORTH_HASHING:
                result.duplicates, result.duplicates_exact = int(share * result.own.count), False
                result.duplicates_few, result.hashes = True, None
                return
            hashes = result.hashes = HashSample(self.source.count, self.options.memory_limit // 16)
            for block in self.source.blocks(keys=False):
                assert block.rows is not None
                hashes.add(row_hashes(block.rows[result.own.get(block.begin, block.begin + len(block))]))
        result.duplicates = hashes.duplicates()
        result.duplicates_exact = hashes.complete

    def _analyze_block(self, block: Block) -> None:
        rows, keys, result = block.rows, block.keys, self.result
        assert rows is not None
        assert keys is not None
        values = rows if self._wide else rows.astype(np.float32)
        largest = self._largest_value(block, values)
        squares = np.einsum("ij,ij->i", values, values)
        zero = squares == 0
        # Squares of small numbers underflow to zero as well.
        doubtful = np.flatnonzero(zero)
        if len(doubtful) and largest > 0:
            zero[doubtful] = ~(values[doubtful] if len(doubtful) < len(zero) else values).any(axis=1)
        equal = self._equal_absent(keys, values, zero)
        small = ~zero & (squares < self.options.min_norm**2) if self.options.min_norm else None
        gone = self._find_dropped(block, keys, equal, small)
        result.zero_rows += int(np.count_nonzero(zero))
        nothing = zero
        if small is not None:
            nothing = zero | small
            result.shrunk += int(np.count_nonzero(small if gone is None else small & ~gone))
        zeros, own = (nothing, ~nothing) if gone is None else (nothing & ~gone, ~nothing & ~gone)
        if not self.source.plain:
            self._note_keys(keys if gone is None else keys[~gone])
        result.zeros.set(block.begin, zeros)
        result.own.set(block.begin, own)
        result.largest = max(result.largest, largest)
        if result.hashes is not None:
            hashed = own & _sample(squares, self._thin) if self._thin else own
            result.hashes.add(row_hashes(rows if hashed.all() else rows[hashed]))

    def _largest_value(self, block: Block, values: Array) -> float:
        """Return the largest absolute value of a block."""
        if not values.size:
            return 0.0
        high, low = float(values.max()), float(values.min())
        # NaN makes both of these NaN, and comparisons with NaN are false.
        if high < LARGEST_VALUE and low > -LARGEST_VALUE:
            return max(high, -low)
        row, column = np.argwhere(~(np.abs(values) < LARGEST_VALUE))[0]
        key = "" if self.source.plain or block.keys is None else f" (key {block.keys[row : row + 1].tolist()[0]!r})"
        raise UnreadableError(
            f"table {self.source.name}: row {block.begin + row}{key} has {values[row, column]} in column {column}, "
            f"expected finite values below {LARGEST_VALUE:g} in size"
        )

    def _equal_absent(self, keys: Array, values: Array, zero: Array) -> Array | None:
        """Return [n] bool, true if a row is the absent value of its key; None if that is no reason to drop it."""
        if self.absent is None:
            return None
        absent = self.absent.rows
        if absent is None:
            equal = zero
        else:
            wanted = absent.astype(self.source.dtype).astype(values.dtype)
            place = 0 if len(wanted) == 1 else keys % len(wanted)
            equal = values[:, 0] == wanted[place, 0]
            hits = np.flatnonzero(equal)
            rows_wanted = wanted if len(wanted) == 1 else wanted[np.asarray(place)[hits]]
            equal[hits] = (values[hits] == rows_wanted).all(axis=1)
        self.result.equal_absent += int(np.count_nonzero(equal))
        return equal

    def _find_dropped(self, block: Block, keys: Array, equal: Array | None, small: Array | None) -> Array | None:
        """Return [n] bool, true if a key is dropped, and count it under the first reason; None if no key is dropped."""
        masks: list[tuple[str, Array]] = []
        ignored = self.source.ignored[block.part]
        if ignored is not None:
            masks.append(("ignored", is_in(keys, ignored)))
        if not self.reach.everything and not self.source.string_keys:
            masks.append(("dead", ~self.reach.holds(keys)))
        if equal is not None:
            masks.append(("equal_absent", equal))
        if self._frequencies and block.frequencies is not None:
            rare = block.frequencies < self.options.min_frequency
            self.result.below_frequency += int(np.count_nonzero(rare))
            masks.append(("below_frequency", rare))
        if small is not None:
            self.result.below_norm += int(np.count_nonzero(small))
            if self.absent is not None and self.absent.kind == "zero":
                masks.append(("below_norm", small))
        gone: Array | None = None
        for reason, mask in masks:
            count = int(np.count_nonzero(mask if gone is None else mask & ~gone))
            if count:
                self.result.dropped[reason] = self.result.dropped.get(reason, 0) + count
                gone = mask if gone is None else gone | mask
        return gone

    def _note_keys(self, keys: Array) -> None:
        result = self.result
        if not len(keys):
            return
        if self.source.string_keys:
            lengths = np.fromiter(map(len, keys.tolist()), np.int64, len(keys))
            result.key_bytes += int(lengths.sum() + np.count_nonzero(lengths > 127) + len(keys))
            return
        result.key_bytes += 8 * len(keys)
        low, high = int(keys.min()), int(keys.max())
        result.low = low if result.low is None else min(low, result.low)
        result.high = high if result.high is None else max(high, result.high)
        if result.ascending:
            joined = self._last is None or keys[0] > self._last
            result.ascending = bool(joined and (keys[1:] > keys[:-1]).all())
            self._last = int(keys[-1])


def _sample(squares: Array, shift: int) -> Array:
    """Return [n] bool, true for one row in 2^shift, chosen by its squared norm, so that equal rows match alike."""
    if squares.itemsize == 4:
        mixed: Array = squares.view(np.uint32) * np.uint32(0x9E3779B1) >> np.uint32(32 - shift)
    else:
        mixed = squares.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(64 - shift)
    found: Array = mixed == 0
    return found


def is_in(keys: Array, wanted: Array) -> Array:
    """Return [n] bool, true if a key of keys [n] is in wanted [m], which is sorted."""
    if keys.dtype == object:
        held = set(wanted.tolist())
        return np.fromiter((key in held for key in keys.tolist()), np.bool_, len(keys))
    place = np.searchsorted(wanted, keys)
    place[place == len(wanted)] = 0
    found: Array = wanted[place] == keys
    return found


def analyze(
    source: TableRows,
    absent: Absent | None,
    reach: Reach,
    options: CutOptions,
    progress: Progress | None = None,
) -> Analysis:
    """Analyze every row of a table in one pass; memory grows with the table only by a few bits per row."""
    return Analyzer(source, absent, reach, options).run(progress)
