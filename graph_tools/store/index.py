# SPDX-License-Identifier: Apache-2.0
"""Compute the buckets in which keys are found, for some thousand keys at a time.

With buckets of five slots and linear probing, key i in the order of homes has the slot
`max(5 · home[i], slot[i - 1] + 1)`, which is a cumulative maximum. A bucket is complete once all keys with homes up to
it are placed. Buckets are therefore yielded before keys with later homes are processed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from graph_tools.errors import ConversionError
from graph_tools.store.fingerprint import homes
from graph_tools.store.layout import BUCKET_BYTES, BUCKET_KEYS
from graph_tools.tensors import Array

#: Bytes of memory for each key that `Index` needs while it is computed, including the key.
KEY_BYTES = 8 + 2 + 8
_PART_KEYS = 1 << 17
_SLOTS = np.uint64(BUCKET_KEYS)
# Seven tenths of the slots are used: one key in eight is not in its home, but in the next bucket or one after it. With
# four fifths it is one in four, and a search takes a fifth longer.
_LOAD = (2, 7)

_BUCKET = np.dtype([("keys", "<u8", BUCKET_KEYS), ("rows", "<u4", BUCKET_KEYS), ("count", "<u4")])
assert _BUCKET.itemsize == BUCKET_BYTES


def home_buckets(keys: int) -> int:
    """Return the number of home buckets of a table with this number of keys."""
    return max(1, -(-keys * _LOAD[0] // _LOAD[1]))


class Index:
    """The index of keys [n].

    Parameters
    ----------
    keys : ndarray [n] uint64
        int64 keys as two's complement, or fingerprints of strings.
    rows : ndarray [n] uint32, or None
        None: 0, 1, …, n - 1.
    unique : bool
        Refuse a key that occurs twice; fingerprints may occur twice.

    Attributes
    ----------
    home_buckets, buckets : int
        `buckets` is known once all blocks have been yielded.
    suspects : list of ndarray of int64
        Positions in `keys` of equal keys, if equal keys are permitted.
    """

    def __init__(self, keys: Array, rows: Array | None, unique: bool) -> None:
        self.keys, self.rows, self._unique = keys, rows, unique
        self.home_buckets = home_buckets(len(keys))
        self.buckets = 0
        self.suspects: list[Array] = []

    def blocks(self) -> Iterator[Array]:
        """Yield the buckets in order, as bytes [n, 64].

        Raises
        ------
        ConversionError
            A key occurs twice.
        """
        self.buckets, self.suspects = 0, []
        waiting: list[Array] = [np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.uint32)]
        slot = 0
        for begin, end, places in self._parts():
            keys = self.keys[places]
            rows = places.astype(np.uint32) if self.rows is None else self.rows[places]
            home = homes(keys, self.home_buckets)
            # A part has fewer than 2^16 homes; numbers of 16 bits are radix-sorted, which is fast.
            near = (home - np.uint64(begin)).astype(np.uint16)
            order = np.argsort(near, kind="stable") if self.rows is None else np.lexsort((keys, rows, near))
            self._find_equal(keys, places)
            slots = _slots(home[order], slot)
            slot = int(slots[-1]) + 1 if len(slots) else slot
            placed = (slots, keys[order], rows[order])
            candidates = [np.concatenate(both) for both in zip(waiting, placed, strict=True)]
            now = candidates[0] < np.uint64(end) * _SLOTS
            yield self._fill_buckets(begin, end, *(array[now] for array in candidates))
            waiting = [array[~now] for array in candidates]
        # After the last home: the remaining keys, and a last bucket that is not full.
        if slot >= self.home_buckets * BUCKET_KEYS:
            yield self._fill_buckets(self.home_buckets, slot // BUCKET_KEYS + 1, *waiting)

    def _parts(self) -> Iterator[tuple[int, int, Array]]:
        """Yield (first home, last home + 1, positions of the keys with these homes, ascending)."""
        count = -(-len(self.keys) // _PART_KEYS) or 1
        step = -(-self.home_buckets // count)
        if count == 1:
            yield 0, self.home_buckets, np.arange(len(self.keys))
            return
        part = np.empty(len(self.keys), np.uint16)
        for begin in range(0, len(part), _PART_KEYS):
            block = slice(begin, begin + _PART_KEYS)
            part[block] = homes(self.keys[block], self.home_buckets) // np.uint64(step)
        ends = np.cumsum(np.bincount(part, minlength=count))
        order = np.argsort(part, kind="stable")
        del part
        for number in range(count):
            begin, end = number * step, min((number + 1) * step, self.home_buckets)
            if begin < end:
                yield begin, end, order[ends[number - 1] if number else 0 : ends[number]]

    def _find_equal(self, keys: Array, places: Array) -> None:
        ordered = np.sort(keys)
        equal = ordered[1:][ordered[1:] == ordered[:-1]]
        if not len(equal):
            return
        if self._unique:
            raise ConversionError(f"key {equal[:1].view(np.int64)[0]}: occurs twice, expected every key once")
        self.suspects.append(places[np.isin(keys, equal)])

    def _fill_buckets(self, begin: int, end: int, slots: Array, keys: Array, rows: Array) -> Array:
        """Return the buckets from `begin` to `end` with these keys in these slots."""
        made = np.zeros(end - begin, _BUCKET)
        places = slots.astype(np.int64) - begin * BUCKET_KEYS
        bucket = places // BUCKET_KEYS
        column = places - bucket * BUCKET_KEYS
        made["keys"][bucket, column] = keys
        made["rows"][bucket, column] = rows
        made["count"] = np.bincount(bucket, minlength=len(made))
        self.buckets = end
        return made.view(np.uint8).reshape(-1, BUCKET_BYTES)


def _slots(home: Array, first: int) -> Array:
    """Return the slots [n] uint64 of keys with ascending homes [n], none before `first`."""
    if not len(home):
        return np.empty(0, np.uint64)
    step = np.arange(len(home), dtype=np.int64)
    wanted = home.astype(np.int64) * BUCKET_KEYS
    wanted[0] = max(int(wanted[0]), first)
    wanted -= step
    np.maximum.accumulate(wanted, out=wanted)
    wanted += step
    return wanted.astype(np.uint64)


def buckets_of(raw: Array) -> Array:
    """Return bytes [64 · n] as buckets with the fields `keys` [5], `rows` [5] and `count`."""
    return raw.view(_BUCKET)
