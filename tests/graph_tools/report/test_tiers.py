# SPDX-License-Identifier: Apache-2.0
"""Test the forecast of tiers of `cut --dry-run`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from graph_tools import cut
from graph_tools.errors import UsageError
from graph_tools.model.table_size import RowsOfWidth
from graph_tools.options import CutOptions
from graph_tools.report.tiers import cache_of, caches_of
from helpers.graph_tools.cut_models import DIM, build_sparse, run
from helpers.models.idiom_models import export_function

COUNT = 1000


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = np.random.default_rng(3).normal(size=(COUNT, DIM)).astype(np.float32)
    keys = np.arange(COUNT, dtype=np.int64) * 1_000_003
    return build_sparse(tmp_path_factory.mktemp("tiers") / "model", keys=keys, rows=made)


def test_a_dry_run_forecasts_each_tier(export: Path) -> None:
    tiers = cut(export, None, dry_run=True, options=CutOptions(tier_memory=25_000)).tiers
    assert tiers is not None
    (table,) = tiers.tables
    assert table.disk_bytes == tiers.disk_bytes > COUNT * DIM * 4
    assert table.resident_bytes == 2 << 20
    assert 18 * COUNT < table.index_bytes < 19 * COUNT
    assert table.cached_rows == cache_of(25_000 - table.index_bytes, DIM * 4, COUNT)[0]
    assert table.cache_bytes <= 25_000 - table.index_bytes
    assert table.lookups is None
    assert cut(export, None, dry_run=True).tiers.tables[0].cache_bytes is None


def test_requests_tell_what_caches_answer(export: Path, tmp_path: Path) -> None:
    frequent, rare = np.arange(20), np.arange(20, 220).reshape(20, 10)
    files = []
    for place in range(20):
        asked = np.concatenate([frequent, rare[place]]) * np.int64(1_000_003)
        files.append(tmp_path / f"{place}.npz")
        np.savez(files[-1], item=asked)
    options = CutOptions(tier_memory=25_000)
    (table,) = cut(export, None, dry_run=True, options=options, requests=files).tiers.tables
    assert table.lookups == 20 * 30
    places = table.cached_rows
    assert 20 < places < 220
    assert table.cached_share == pytest.approx((20 * 20 + places - 20) / 600)


def test_requests_are_answered_by_the_cache_of_each_width(tmp_path: Path) -> None:
    rows = np.random.default_rng(5).normal(size=(COUNT, 16)).astype(np.float32)
    rows[100:, 4:] = 0
    serve = lambda item: {"rows": tf.nn.relu(tf.gather(table, item))}  # noqa: E731
    table = tf.Variable(rows, name="table")
    model = export_function(tmp_path / "model", serve, [tf.TensorSpec([None], tf.int64, name="item")], table=table)
    # Wide rows are read alike, and one narrow row is read in every request.
    asked = np.stack([np.arange(100), np.full(100, 500)], axis=1)
    files = [tmp_path / f"{place}.npz" for place in range(100)]
    for file, item in zip(files, asked, strict=True):
        np.savez(file, item=item)
    options = CutOptions(tier_memory=10_000)
    (found,) = cut(model, None, dry_run=True, options=options, requests=files).tiers.tables
    (wide, _), (narrow, _) = caches_of(10_000 - found.index_bytes, [RowsOfWidth(100, 64, 64), RowsOfWidth(900, 16, 16)])
    # An equal part of both widths, up to the twelve places of a set.
    assert abs(wide / 100 - narrow / 900) < 0.12
    assert found.cached_rows == wide + narrow
    assert found.cached_share == pytest.approx((wide + 100) / 200)


def test_memory_below_the_indexes_is_refused(export: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--memory: 9000 bytes, expected more than 18"):
        cut(export, None, dry_run=True, options=CutOptions(tier_memory=9000))
    found = run("cut", export, tmp_path / "out", "--memory", "1GB")
    assert (found.code, "not a dry run" in found.err) == (2, True)
    found = run("cut", export, "--dry-run", "--memory", "1 GB")
    assert "expected a size such as 500MB" in found.err
    found = run("cut", export, "--dry-run", "--memory", "30KB")
    assert (found.code, "Table files of a fused model by tier" in found.out) == (0, True)
