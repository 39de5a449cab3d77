# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

import pytest

from graph_tools.errors import UnreadableError
from graph_tools.readers.shards import shard_sets


def paths(*names: str) -> list[Path]:
    return [Path("dump") / name for name in names]


def test_groups_in_order() -> None:
    found = shard_sets(paths("b-00001-of-00002", "a-00000-of-00001", "b-00000-of-00002", "other", "b-1-of-2"))
    assert {prefix: [path.name for path in shards] for prefix, shards in found.items()} == {
        "a": ["a-00000-of-00001"],
        "b": ["b-00000-of-00002", "b-00001-of-00002"],
    }


def test_a_missing_shard() -> None:
    with pytest.raises(UnreadableError, match=r"dump/a-00003-of-00005: does not exist, expected all 5 shards"):
        shard_sets(paths(*(f"a-{i:05d}-of-00005" for i in (0, 1, 2, 4))))


def test_shards_with_different_totals_are_refused() -> None:
    with pytest.raises(UnreadableError, match="a-00000-of-00002: one of 2 shards, expected one of 1"):
        shard_sets(paths("a-00000-of-00001", "a-00000-of-00002"))


def test_a_number_that_is_too_large() -> None:
    with pytest.raises(UnreadableError, match="a-00001-of-00001: shard 1 of 1, expected a number below 1"):
        shard_sets(paths("a-00001-of-00001"))
