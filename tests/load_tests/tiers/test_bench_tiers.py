# SPDX-License-Identifier: Apache-2.0
"""The cases of bench_tiers check their answers, and their judges find what misses a target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from load_tests.tiers import early_reads, index_bytes, kills, peers, resident, serving, training
from load_tests.tiers.served_table import BATCH, IDS, Zipf, keys_of
from load_tests.tiers.setup import Setup


@pytest.mark.parametrize(
    ("ratio", "allowed", "cold", "passes"),
    [
        (0.51, 2.0, 2.9, [True, True]),
        (0.49, 2.0, 3.1, [False, False]),
        (0.25, 0.3, 1.0, [True, True]),
        (0.23, 0.3, 1.0, [False, True]),
    ],
)
def test_judges_compare_with_what_the_device_allows(
    ratio: float, allowed: float, cold: float, passes: list[bool]
) -> None:
    case: dict[str, Any] = {"tiered_over_resident": ratio, "device_over_resident": allowed, "cold_start_s": cold}
    case["peers"] = {"ratios": {}}
    assert [target.ok for target in serving.judge(case)] == passes


def test_judges_compare_with_peers_that_were_measured() -> None:
    assert [target.ok for target in peers.judge({"ratios": {"rocksdb": 5.0, "mapped": 1.5}})] == [True, True]
    assert [target.ok for target in peers.judge({"ratios": {"rocksdb": 4.9, "mapped": 1.4}})] == [False, False]
    assert peers.judge({"ratios": {}}) == []


def test_the_hottest_keys_are_those_that_are_drawn_most() -> None:
    zipf = Zipf(1000)
    keys, counts = np.unique(zipf.draw(np.random.default_rng(0), 30), return_counts=True)
    assert np.array_equal(keys[np.argsort(-counts)[:3]], zipf.hottest(3))
    assert set(zipf.hottest(1000)) == set(keys_of(np.arange(1000)))


def test_keys_are_drawn_by_zipfs_law() -> None:
    rows = 1000
    zipf = Zipf(rows)
    drawn = zipf.draw(np.random.default_rng(0), 30)
    assert drawn.shape == (30, BATCH, IDS)
    counts = np.sort(np.unique(drawn, return_counts=True)[1])[::-1]
    assert set(np.unique(drawn)) <= set(keys_of(np.arange(rows)))
    assert counts[:200].sum() / drawn.size == pytest.approx(zipf.share_of(200), abs=0.01)
    assert zipf.share_of(rows) == 1


def test_early_reads_are_measured_beside_those_of_the_op(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_reads, "PLACES", ((1, 1, 16),))
    case = early_reads.measure(Setup(tmp_path, quick=True))
    (setting,) = case["settings"]
    for rows in early_reads.ROWS:
        figures = setting[f"{rows}_rows"]
        assert 0 < figures["hit_rate"] < 1
        assert figures["reads_of_request"] > 0
        figures["early_over_in_op"] = 1.0
    assert [target.ok for target in early_reads.judge(case)] == [False, True, True]


def test_a_tiered_model_is_measured_beside_one_in_memory(tmp_path: Path) -> None:
    case = serving.measure(Setup(tmp_path, quick=True))
    assert not list(tmp_path.iterdir()), "the table was deleted"
    assert 0 < case["hit_rate"] <= 1
    assert case["reads_of_request"] > 0
    assert case["cold_start"]["tables"]["tier"] == "tiered"
    assert case["memory_bytes"] < case["table_bytes"]
    peers_found = case["peers"]
    assert set(peers_found["ratios"]) | set(peers_found["skipped"]) == {"rocksdb", "mapped"}
    assert set(peers_found["p99_ms"]) == {"tiered", *peers_found["ratios"]}
    assert {target.name.split(":")[0] for target in serving.judge(case)} == {"serving"}


def test_a_resident_model_is_measured_beside_a_mapped_one(tmp_path: Path) -> None:
    case = resident.measure(Setup(tmp_path, quick=True))
    assert not list(tmp_path.iterdir()), "the table was deleted"
    assert case["tables"]["tier"] == "resident"
    assert case["resident_over_mapped"] > 0
    assert [resident.judge({"resident_over_mapped": ratio})[0].ok for ratio in (1.0, 0.9)] == [True, False]


def test_judges_of_training_find_what_misses_a_target() -> None:
    good: dict[str, Any] = {"ratios": {"update_cpu_s": 20.0, "read_cpu_s": 5.0}, "worst_batch": 2.0, "space": 1.5}
    good["index"] = {"index_bytes_per_row": 16.0}
    bad: dict[str, Any] = {"ratios": {"update_cpu_s": 19.9, "read_cpu_s": 4.9}, "worst_batch": 2.1, "space": 1.6}
    bad["index"] = {"index_bytes_per_row": 16.1}
    assert [target.ok for target in training.judge(good)] == [True] * 5
    assert [target.ok for target in training.judge(bad)] == [False] * 5
    assert [kills.judge({"wrong": wrong})[0].ok for wrong in (0, 1)] == [True, False]


def test_kills_find_rows_that_differ_from_what_was_trained() -> None:
    import elastic_training as et

    table = et.Table(et.TableConfig("rows", kills.DIM, optimizer=et.SGD(kills.RATE), initializer=et.Zeros()))
    assert kills.wrong_rows(table, 0) == 0
    keys, counts = np.unique(kills.batch_of(0), return_counts=True)
    weights = np.repeat(-kills.RATE * counts[:, None], kills.DIM, axis=1).astype(np.float32)
    table.insert(keys, weights, meta=np.stack([counts, counts, np.ones_like(counts)], axis=1))
    assert kills.wrong_rows(table, 1) == 0
    table.evict(keys[:2])
    table.insert(keys[2:3], weights[2:3] + 1)
    assert kills.wrong_rows(table, 1) == 3


def test_the_index_of_rows_on_ssd_is_measured(tmp_path: Path) -> None:
    case = index_bytes.measure(tmp_path / "index", 60_000)
    assert not list(tmp_path.iterdir()), "the table was deleted"
    assert case["ssd_rows"] + case["memory_rows"] == 60_000
    assert case["wrong"] == 0
    assert 14.2 < case["index_bytes_per_row"] < case["bytes_per_row"]
    assert case["index_bytes_per_row"] < 18, "segments are a fifth as large as those of large tables"
