# SPDX-License-Identifier: Apache-2.0
"""Test the index against inserting one key after another."""

import numpy as np
import pytest

from graph_tools.errors import ConversionError
from graph_tools.store import index as module
from graph_tools.store.fingerprint import homes
from graph_tools.store.index import Index, buckets_of, home_buckets
from graph_tools.tensors import Array


def built(index: Index) -> Array:
    blocks = list(index.blocks())
    found = buckets_of(np.concatenate(blocks).reshape(-1)) if blocks else np.empty(0)
    assert len(found) == index.buckets >= index.home_buckets
    return found


def inserted(keys: Array, rows: Array, count: int) -> list[list[tuple[int, int]]]:
    """Insert keys in the order of their homes and rows, and return (key, row) of each bucket."""
    home = homes(keys, count).tolist()
    buckets: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for place in sorted(range(len(keys)), key=lambda row: (home[row], rows[row], keys[row])):
        number = home[place]
        while number < len(buckets) and len(buckets[number]) == 5:
            number += 1
        if number == len(buckets):
            buckets.append([])
        buckets[number].append((int(keys[place]), int(rows[place])))
    return [*buckets, []] if len(buckets[-1]) == 5 else buckets


def as_lists(found: Array) -> list[list[tuple[int, int]]]:
    for bucket in found:
        assert not bucket["keys"][bucket["count"] :].any()
        assert not bucket["rows"][bucket["count"] :].any()
    return [
        list(zip(bucket["keys"][: bucket["count"]].tolist(), bucket["rows"][: bucket["count"]].tolist(), strict=True))
        for bucket in found
    ]


@pytest.mark.parametrize("count", [0, 1, 2, 5, 6, 7, 101, 5003])
@pytest.mark.parametrize("part", [1 << 17, 50])
def test_index_is_what_insertion_makes(count: int, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PART_KEYS", part)
    keys = np.random.default_rng(count).integers(0, 1 << 64, count, np.uint64)
    assert as_lists(built(Index(keys, None, True))) == inserted(keys, np.arange(count), home_buckets(count))


@pytest.mark.parametrize("part", [1 << 17, 10])
@pytest.mark.parametrize("homes_of_all", ["first", "last"])
def test_keys_of_one_home_overflow(homes_of_all: str, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PART_KEYS", part)
    count = 60
    wanted = 0 if homes_of_all == "first" else home_buckets(count) - 1
    hashes = np.arange(100_000, dtype=np.uint64)
    keys = hashes[homes(hashes, home_buckets(count)) == wanted][:count]
    found = built(Index(keys, None, True))
    assert as_lists(found) == inserted(keys, np.arange(count), home_buckets(count))
    assert len(found) == (home_buckets(count) if homes_of_all == "first" else home_buckets(count) + 12)


def test_several_keys_of_one_row() -> None:
    keys = np.random.default_rng(3).integers(0, 1 << 64, 999, np.uint64)
    rows = (np.arange(999) % 7).astype(np.uint32)
    index = built(Index(keys, rows, True))
    assert as_lists(index) == inserted(keys, rows, home_buckets(999))
    other = np.random.default_rng(4).permutation(999)
    assert (built(Index(keys[other], rows[other], True)) == index).all()


def test_a_repeated_key_is_named() -> None:
    keys = np.array([5, -3, 7, -3], np.int64).view(np.uint64)
    with pytest.raises(ConversionError, match="key -3: occurs twice"):
        built(Index(keys, None, True))
    index = Index(keys, None, False)
    built(index)
    assert np.concatenate(index.suspects).tolist() == [1, 3]


def test_few_keys_are_far_from_their_home_bucket() -> None:
    keys = np.arange(200_000, dtype=np.uint64)
    found = built(Index(keys, None, True))
    used = np.arange(5) < found["count"][:, None]
    away = np.repeat(np.arange(len(found)), 5).reshape(-1, 5)[used] - homes(found["keys"][used], home_buckets(200_000))
    assert (away > 0).mean() < 0.15
    assert away.max() < 30
