# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.graph import Graph, Output
from graph_tools.model import HashTableContent, Model
from graph_tools.model.stored_table import EVERYTHING, Reach
from graph_tools.tables.reachable_rows import reachable
from graph_tools.tensors import ArrayTensor


class Builder:
    """Adds nodes to a model that has an input of integers and one of strings."""

    def __init__(self) -> None:
        import tensorflow as tf

        self.graph = Graph()
        self.model = Model(Path("m"), "GraphDef", self.graph, {})
        self.ids = self.graph.add("Placeholder", name="ids", attrs={"dtype": tf.int64}).output()
        self.words = self.graph.add("Placeholder", name="words", attrs={"dtype": tf.string}).output()

    def add(self, op: str, *inputs: Any, **attrs: Any) -> Output:
        given = [source if isinstance(source, Output) else self.graph.add_const(np.int64(source)) for source in inputs]
        return self.graph.add(op, given, attrs=attrs).output()

    def reach(self, *outputs: Output) -> tuple[int | None, int | None]:
        found = reachable(self.model, list(outputs))
        return found.low, found.high


def test_hashes_remainders_and_what_is_made_of_them() -> None:
    build = Builder()
    hashed = build.add("StringToHashBucketFast", build.words, num_buckets=100)
    assert build.reach(hashed) == (0, 99)
    remainder = build.add("FloorMod", build.ids, 50, T=np.int64)
    assert build.reach(remainder) == (0, 49)
    assert build.reach(build.add("Mod", build.ids, 50, T=np.int64)) == (None, None)
    assert build.reach(build.add("Mod", hashed, 50, T=np.int64)) == (0, 49)
    unique = build.add("Unique", hashed, T=np.int64, out_idx=np.int32)
    assert build.reach(unique) == (0, 99)
    assert build.reach(Output(unique.node, 1)) == (None, None)
    assert build.reach(build.add("ConcatV2", hashed, remainder, 0, N=2, T=np.int64)) == (0, 99)
    assert build.reach(build.add("DynamicStitch", 0, 1, hashed, remainder, N=2, T=np.int64)) == (0, 99)
    assert build.reach(build.add("DynamicPartition", hashed, 0, num_partitions=2, T=np.int64)) == (0, 99)
    assert build.reach(build.add("Split", 0, hashed, num_split=2, T=np.int64)) == (0, 99)
    assert build.reach(hashed, remainder) == (0, 99)
    assert build.reach(hashed, build.ids) == (None, None)


@pytest.mark.parametrize(("low", "high", "expected"), [(0, 9, (0, 9)), (-5, 3, (-5, 3)), (200, 300, (200, 300))])
def test_clipped_ids_lie_between_their_bounds(low: int, high: int, expected: tuple[int, int]) -> None:
    build = Builder()
    clipped = build.add("ClipByValue", build.ids, low, high, T=np.int64)
    assert build.reach(clipped) == expected


def test_clip_of_a_known_range_is_sound() -> None:
    build = Builder()
    hashed = build.add("StringToHashBucketFast", build.words, num_buckets=100)
    assert build.reach(build.add("ClipByValue", hashed, 20, 50, T=np.int64)) == (20, 50)
    assert build.reach(build.add("ClipByValue", hashed, -20, 500, T=np.int64)) == (0, 99)
    assert build.reach(build.add("ClipByValue", build.add("AddV2", hashed, 1000, T=np.int64), 0, 9, T=np.int64)) == (
        9,
        9,
    )


def test_table_gives_its_values_or_its_default(tmp_path: Path) -> None:
    build = Builder()
    handle = build.add("HashTableV2", key_dtype=np.object_, value_dtype=np.int64)
    build.model.hash_tables[handle.node] = HashTableContent(ArrayTensor(np.array([b"a", b"b"], object)), None)
    found = build.add("LookupTableFindV2", handle, build.words, -1, Tin=np.object_, Tout=np.int64)
    assert build.reach(found) == (-1, 1)
    build.model.hash_tables[handle.node].values = ArrayTensor(np.array([7, 40]))
    assert build.reach(found) == (-1, 40)


@pytest.mark.parametrize(("text", "lines"), [("a\nb\nc\n", 3), ("a\nb", 2)])
def test_table_of_a_file_gives_its_lines(tmp_path: Path, text: str, lines: int) -> None:
    build = Builder()
    vocabulary = tmp_path / "words.txt"
    vocabulary.write_text(text, encoding="utf-8")
    handle = build.add("HashTableV2", key_dtype=np.object_, value_dtype=np.int64)
    name = build.graph.add_const("words.txt", "asset")
    build.model.assets["asset"] = vocabulary
    attrs = {"key_index": -2, "value_index": -1, "vocab_size": -1}
    build.add("InitializeTableFromTextFileV2", handle, name, **attrs)
    found = build.add("LookupTableFindV2", handle, build.words, 9, Tin=np.object_, Tout=np.int64)
    assert build.reach(found) == (0, 9)
    found = build.add("LookupTableFindV2", handle, build.words, 0, Tin=np.object_, Tout=np.int64)
    assert build.reach(found) == (0, lines - 1)


def test_reach_contains_the_numbers_between_its_ends() -> None:
    keys = np.array([-5, 0, 3, 9])
    assert Reach(0, 3).holds(keys).tolist() == [False, True, True, False]
    assert Reach(None, 3).holds(keys).tolist() == [True, True, True, False]
    assert EVERYTHING.holds(keys).all()
    assert Reach(0, 3).union(Reach(2, None)) == Reach(0, None)
