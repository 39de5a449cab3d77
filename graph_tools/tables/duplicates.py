# SPDX-License-Identifier: Apache-2.0
"""Find rows that are equal bit for bit: compare hashes first, then the elements."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graph_tools.tables.bits import Bits
from graph_tools.tables.blocks import TableRows
from graph_tools.tensors import Array

_SEED = 0x5EED
_ODD = np.uint64(0x9E3779B97F4A7C15)


def row_hashes(rows: Array) -> Array:
    """Return 64-bit hashes [n] uint64 of rows [n, dim]; equal rows have equal hashes.

    Notes
    -----
    The hash is the sum of m xor m >> 32 over the words of the row, each times another odd number, modulo 2^64, and
    mixed at the end; m is the word times an odd number. A product alone would keep the low bits of the floats, which
    are zero.
    """
    rows = np.ascontiguousarray(rows)
    size = rows.shape[1] * rows.itemsize
    raw = rows.view(np.uint8).reshape(len(rows), size)
    word: type[np.unsignedinteger] = next(
        t for t in (np.uint64, np.uint32, np.uint16, np.uint8) if size % t().nbytes == 0
    )
    words = raw.view(word)
    odd = np.random.default_rng(_SEED).integers(0, 1 << 63, words.shape[1], np.uint64) * np.uint64(2) + np.uint64(1)
    mixed = words.astype(np.uint64, copy=False) * _ODD
    mixed ^= mixed >> np.uint64(32)
    hashed: Array = mixed @ odd
    hashed ^= hashed >> np.uint64(31)
    hashed *= np.uint64(0x94D049BB133111EB)
    hashed ^= hashed >> np.uint64(29)
    return hashed


class HashSample:
    """Hashes of a table's rows: all of them or, if they need too much memory, one part in 2^n of all hash values.

    The hash decides whether a row is in the sample. Equal rows are therefore sampled together, and their share can be
    estimated.

    Attributes
    ----------
    seen : int
        Number of added rows, in the sample or not.
    """

    def __init__(self, rows: int, memory_bytes: int) -> None:
        self._shift = 0
        while (rows * 8 >> self._shift) > memory_bytes:
            self._shift += 1
        self._held: list[Array] = []
        self._numbers: list[Array] = []
        self.seen = 0

    @property
    def complete(self) -> bool:
        return self._shift == 0

    def add(self, hashes: Array) -> None:
        """Add the hashes [n] uint64 of further rows."""
        self.seen += len(hashes)
        if self._shift:
            hashes = hashes[(hashes & np.uint64((1 << self._shift) - 1)) == 0]
        self._held.append(hashes)

    def hashes(self) -> Array:
        if len(self._held) != 1:
            self._held = [np.concatenate(self._held) if self._held else np.empty(0, np.uint64)]
        return self._held[0]

    def duplicates(self) -> int:
        """Return the number of rows that equal an earlier one; an estimate unless `complete`."""
        hashes = np.sort(self.hashes())
        if len(hashes) < 2:
            return 0
        again = int(np.count_nonzero(hashes[1:] == hashes[:-1]))
        return again if self.complete else int(self.seen * again / len(hashes))


@dataclass
class SharedRows:
    """The stored rows, and the number of the stored row for each given row.

    Attributes
    ----------
    first : Bits [rows of the table]
        Rows that are stored.
    target : ndarray [given rows] int32
        Number of the stored row.
    """

    first: Bits
    target: Array


def share_rows(source: TableRows, given: Bits, hashes: Array, memory_bytes: int) -> SharedRows:
    """Store equal rows once.

    Parameters
    ----------
    source : TableRows
    given : Bits
        Rows to compare; the other rows are not shared.
    hashes : ndarray [given rows] uint64
        Hashes of these rows, in order.
    memory_bytes : int
        Memory for the first rows of groups; groups of equal rows beyond it are not shared.

    Notes
    -----
    Rows with equal hashes form a group; one pass over the table compares every row of a group with its first row.
    """
    order = np.argsort(hashes, kind="stable").astype(np.int32)
    ranked = hashes[order]
    new = np.ones(len(order), bool)
    new[1:] = ranked[1:] != ranked[:-1]
    del ranked
    starts = np.flatnonzero(new)
    sizes = np.diff(np.append(starts, len(order)))
    row_bytes = max(1, source.dim * source.dtype.itemsize)
    chosen = np.flatnonzero(sizes > 1)
    if len(chosen) * row_bytes > memory_bytes:
        largest = np.argsort(sizes[chosen], kind="stable")[::-1][: memory_bytes // row_bytes]
        chosen = np.sort(chosen[largest])
    # Number of the group of each given row, by position; -1 for rows without a group.
    group = np.full(len(order), -1, np.int32)
    for number, index in enumerate(chosen.tolist()):
        group[order[starts[index] : starts[index] + sizes[index]]] = number
    leader = order[starts[chosen]]
    same = _equal_rows(source, given, group, leader)
    return _assign_numbers(source, given, group, leader, same)


def _equal_rows(source: TableRows, given: Bits, group: Array, leader: Array) -> Array:
    """Return [given rows] bool: true if the row is in a group, is not its first, and equals the first bit for bit."""
    size = source.dim * source.dtype.itemsize
    firsts = np.empty((len(leader), size), np.uint8)
    same = np.zeros(len(group), bool)
    place = 0
    for block in source.blocks(keys=False):
        assert block.rows is not None
        mine = np.flatnonzero(given.get(block.begin, block.begin + len(block)))
        grouped = np.flatnonzero(group[place : place + len(mine)] >= 0)
        if len(grouped):
            rows = np.ascontiguousarray(block.rows[mine[grouped]]).view(np.uint8).reshape(len(grouped), size)
            numbers = group[place + grouped]
            leads = leader[numbers] == place + grouped
            firsts[numbers[leads]] = rows[leads]
            same[place + grouped] = (rows == firsts[numbers]).all(axis=1) & ~leads
        place += len(mine)
    return same


def _assign_numbers(source: TableRows, given: Bits, group: Array, leader: Array, same: Array) -> SharedRows:
    """Assign numbers to stored rows in their order; other rows have the number of their group's first row."""
    target = np.cumsum(~same, dtype=np.int32) - np.int32(1)
    numbers = target[leader] if len(leader) else np.empty(0, np.int32)
    target[same] = numbers[group[same]]
    first = Bits(given.length)
    place = 0
    step = 8 * 65536
    for begin in range(0, given.length, step):
        mask = given.get(begin, min(begin + step, given.length)).copy()
        count = int(np.count_nonzero(mask))
        mask[mask] = ~same[place : place + count]
        first.set(begin, mask)
        place += count
    return SharedRows(first, target)
