# SPDX-License-Identifier: Apache-2.0
"""Test checkpoints with other partitions than the graph that reads them, and wrong offsets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graph_tools.errors import UnreadableError
from graph_tools.readers import read_model
from graph_tools.tables.checks import check_table
from graph_tools.verification.evaluate import evaluate
from load_tests.workloads.sparse_exports import Export, deeprec_lookup, deeprec_table, partitioned, rows_for

KEYS = np.random.default_rng(1).permutation(4000)[:300].astype(np.int64)
ROWS = np.random.default_rng(2).normal(size=(300, 3)).astype(np.float32)
ASKED = np.concatenate([KEYS[::7], [1, 4001, 99_999]])


def build(path: Path, graph_parts: int, saved_parts: int, offsets: bool = True) -> Path:
    """Write a graph with some number of parts (0: not partitioned) and a checkpoint with another."""
    export = Export()
    stems = ["emb"] if saved_parts == 0 else [f"emb/part_{i}" for i in range(saved_parts)]
    saved = {}
    for number, stem in enumerate(stems):
        mine = KEYS % 1000 % max(saved_parts, 1) == number
        saved[stem] = (KEYS[mine], ROWS[mine])
    names = ["emb"] if graph_parts == 0 else [f"emb/part_{i}" for i in range(graph_parts)]
    shards = []
    for number, name in enumerate(names):
        handle = deeprec_table(
            export, name, KEYS, ROWS, saved=saved if number == 0 else {}, offsets=offsets,
            partition=(number, max(graph_parts, 1)),
        )  # fmt: skip
        shards.append(lambda keys, handle=handle: deeprec_lookup(export, handle, keys))
    ids = export.input("item")
    rows = partitioned(export, ids, shards, buckets=1000) if graph_parts else shards[0](ids)
    return export.finish(path / "model", [rows], 3)


@pytest.mark.parametrize(("graph_parts", "saved_parts"), [(0, 0), (2, 2), (0, 3), (2, 0), (2, 3), (3, 2), (4, 1)])
def test_every_key_is_found_whatever_the_partitions(tmp_path: Path, graph_parts: int, saved_parts: int) -> None:
    model = read_model(build(tmp_path, graph_parts, saved_parts))
    assert len(model.sparse_tables) == max(graph_parts, 1)
    assert sum(table.count for table in model.sparse_tables.values()) == len(KEYS)
    for table in model.sparse_tables.values():
        check_table(table)
    found = evaluate(model, "serving_default", {"item": ASKED})
    np.testing.assert_array_equal(found["rows"], rows_for(ASKED, KEYS, ROWS))


def test_other_parts_need_offsets(tmp_path: Path) -> None:
    path = build(tmp_path, 2, 3, offsets=False)
    with pytest.raises(UnreadableError, match=r"no tensor 'emb/part_0-partition_offset'.*other parts than the"):
        read_model(path)


def test_equal_parts_need_no_offsets(tmp_path: Path) -> None:
    assert sum(table.count for table in read_model(build(tmp_path, 2, 2, offsets=False)).sparse_tables.values()) == 300


def test_missing_part_is_named(tmp_path: Path) -> None:
    export = Export()
    keys = np.array([2], np.int64)
    handle = deeprec_table(export, "emb", keys, ROWS[:1], saved={f"emb/part_{i}": (keys, ROWS[:1]) for i in (0, 2)})
    path = export.finish(tmp_path / "model", [deeprec_lookup(export, handle, export.input("item"))], 3)
    with pytest.raises(UnreadableError, match=r"parts 0, 2 of table 'emb', expected 'emb/part_1-keys' as well"):
        read_model(path)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, 1, "1 at 0, expected offsets that begin at 0"),
        (500, -3, "-3 at 500, expected offsets"),
        (1000, 299, "at 999 and 299 after it, expected offsets that never fall|299 at its end, expected the number"),
        (1000, 301, "301 at its end, expected the number of keys, 300"),
        (400, 300, "300 at 400 and .* after it, expected offsets that never fall"),
    ],
)
def test_wrong_offsets(tmp_path: Path, place: int, value: int, message: str) -> None:
    export = Export()
    handle = deeprec_table(export, "emb", KEYS, ROWS)
    export.saved["emb-partition_offset"][place] = value
    path = export.finish(tmp_path / "model", [deeprec_lookup(export, handle, export.input("item"))], 3)
    with pytest.raises(UnreadableError, match=message):
        read_model(path)


def test_offsets_of_another_length(tmp_path: Path) -> None:
    export = Export()
    handle = deeprec_table(export, "emb", KEYS, ROWS)
    export.saved["emb-partition_offset"] = np.zeros(10, np.int32)
    path = export.finish(tmp_path / "model", [deeprec_lookup(export, handle, export.input("item"))], 3)
    with pytest.raises(UnreadableError, match=r"shape \[10\], expected \[1001\]"):
        read_model(path)
