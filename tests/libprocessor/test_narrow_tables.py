# SPDX-License-Identifier: Apache-2.0
"""Rows of different widths in one table answer as the same vectors at full width do, in each tier."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

import processor
from graph_tools import cut, optimize
from graph_tools.options import CutOptions
from graph_tools.plans import EmbeddingPlan
from graph_tools.plans.embedding_parts import GroupOutput, Key, Lookup
from graph_tools.store import TableReader
from graph_tools.store.delta import Delta, TableDelta, no_keys
from graph_tools.store.layout import ROW_TYPES
from graph_tools.store.lineage import write_lineage
from graph_tools.store.row_runs import NarrowRows
from graph_tools.store.timeline_writer import TimelineWriter
from graph_tools.tensors import ArrayTensor
from helpers.models.embedding_tables import keys_of, rows_of
from helpers.models.idiom_models import export_function
from helpers.models.live_models import START
from helpers.oracles.embedding_groups import Group, table_of
from helpers.system.waiting import wait_until

COUNT, DIM, ROWS = 700, 21, 1000
NARROW = (NarrowRows(30, 9), NarrowRows(200, 4), NarrowRows(500, 1))
TIERED = {"tier": "tiered", "memory": "10KB"}  # a third of the rows of the model


@pytest.mark.parametrize("kind", ["direct", "int64", "string"])
@pytest.mark.parametrize("row_type", ROW_TYPES)
def test_lookups_answer_as_with_wide_rows(tmp_path: Path, kind: str, row_type: str) -> None:
    rows, keys = rows_of(COUNT, DIM), keys_of(kind, COUNT)
    for each in NARROW:
        rows[each.first :, each.dim :] = 0
    default = ArrayTensor(rows_of(3, DIM, 5))
    more: dict[str, Any] = {"absent_key": "default", "narrow": NARROW}
    narrow = table_of(tmp_path, rows, keys, row_type=row_type, default_rows=default, **more)
    stored = TableReader(narrow).rows(np.arange(COUNT + 3))
    wide = table_of(
        tmp_path, stored[:COUNT], keys, absent_key="default", default_rows=ArrayTensor(stored[COUNT:])
    )  # fmt: skip
    asked: Any = np.arange(COUNT) if keys is None else keys
    empty: Any = asked[9] if kind == "string" else int(asked[9])
    empty = empty.decode() if isinstance(empty, bytes) else empty
    columns = (
        Lookup(0, 0, 0, 0, "mean", empty=empty),
        Lookup(0, 0, 0, DIM, "sum"),
        Lookup(0, 0, 0, 2 * DIM, "sqrtn", weights=1),
        Lookup(0, 0, 1, 0),
    )
    plan = EmbeddingPlan((GroupOutput(3 * DIM), GroupOutput(4 * DIM)), (Key(0),), columns)
    random = np.random.default_rng(1)
    types = [asked.dtype, np.float32]
    whole = Group(plan, types, [wide], outputs=2)
    # Mapped, and tiered with caches for some or all rows.
    groups = [Group(plan, types, [narrow], outputs=2, cache_share=share) for share in (None, 0, 0.3, 2)]
    for n in (1, 5, 700, 2000):
        batch = asked[random.integers(COUNT, size=(n, 4))]
        batch[0, 0] = b"none" if kind == "string" else 10 * COUNT
        weights = random.normal(size=(n, 4)).astype(np.float32)
        expected = whole(batch, weights)
        for group in groups:
            for found, wanted in zip(group(batch, weights), expected, strict=True):
                assert np.array_equal(found, wanted)
    for group in (whole, *groups):
        group.close()


def _values(rows: NDArray[np.int64], value: float = 0) -> NDArray[np.float32]:
    return (rows[..., None] + np.arange(16) / 100 + 1 + value).astype(np.float32)


def _first() -> NDArray[np.float32]:
    """Return the rows before all changes: the last nine tenths have four elements."""
    rows = _values(np.arange(ROWS))
    rows[ROWS // 10 :, 4:] = 0
    return rows


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A live model with the input `a` (row numbers) and the output `rows` [n, 16]."""
    folder = tmp_path_factory.mktemp("narrow")
    table, bias = tf.Variable(_first(), name="table"), tf.Variable(np.zeros(16, np.float32), name="bias")

    def serve(a: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"rows": tf.nn.relu(tf.gather(table, a) + bias)}

    specs = [tf.TensorSpec([None], tf.int64, name="a")]
    source = export_function(folder / "export", serve, specs, table=table, bias=bias)
    write_lineage(source, START)
    report = optimize(source, folder / "artifact", live=True, precision="fp32", accept_weak_proof=True)
    assert report.table_files[0].narrow == [NarrowRows(ROWS // 10, 4)]
    return folder / "artifact"


def _ask(model: processor.Model) -> NDArray[np.float32]:
    return np.asarray(model.run({"a": np.arange(ROWS)})["rows"])


@pytest.mark.parametrize("tier", ["mapped", "resident", "tiered"])
def test_deltas_give_narrow_rows_their_full_width(artifact: Path, tmp_path: Path, tier: str) -> None:
    writer = TimelineWriter(tmp_path / "timeline", START, "a test")
    expected, random = _first(), np.random.default_rng(2)
    tables = TIERED if tier == "tiered" else {"tier": tier}
    config = {"follow": str(writer.folder), "warmup_runs": 1, "tables": tables}
    with processor.Model(artifact, config) as model:
        np.testing.assert_array_equal(_ask(model), expected)
        stop, wrong = threading.Event(), []

        def ask_on() -> None:
            while not stop.is_set():
                shift = _ask(model) - _values(np.arange(ROWS))
                if not np.allclose(shift[:, :4], shift[:, :1], atol=1e-3):
                    wrong.append(shift)

        asking = threading.Thread(target=ask_on)
        asking.start()
        for epoch in range(1, 11):
            rows = np.sort(random.choice(ROWS, 300, replace=False)).astype(np.int64)
            expected[rows] = _values(rows, epoch)
            keys, values = ArrayTensor(rows), ArrayTensor(expected[rows])
            changed = TableDelta("table", "row_number", 16, keys, values, no_keys("row_number"))
            writer.publish(Delta((changed,), {}))
            wait_until(lambda: model.info["live"]["epoch"] == epoch, f"epoch {epoch}")  # noqa: B023
            np.testing.assert_array_equal(_ask(model), expected)
        stop.set()
        asking.join()
        assert not wrong


def test_a_tiered_model_takes_what_was_forecast(artifact: Path) -> None:
    forecast = cut(artifact.parent / "export", None, dry_run=True, options=CutOptions(tier_memory=10_000))
    (table,), (file,) = forecast.tiers.tables, artifact.glob("**/*.emb")
    assert table.disk_bytes == file.stat().st_size
    with processor.Model(artifact, {"session_num": 1, "warmup_runs": 1, "tables": TIERED}) as tiered:
        found = tiered.info["tables"]
    assert (table.cached_rows, table.cache_bytes) == (found["cache_rows"], found["cache_bytes"])


@pytest.mark.parametrize("early", [True, False])
def test_a_tiered_model_answers_as_a_resident_one(artifact: Path, early: bool) -> None:
    random = np.random.default_rng(3)
    requests = [random.integers(ROWS, size=random.integers(1, 60)) for _ in range(60)]
    config: dict[str, Any] = {"session_num": 1, "worker_threads": 1, "warmup_runs": 1}

    async def ask_all(model: processor.Model) -> list[Any]:
        return await asyncio.gather(*(model.arun({"a": rows}) for rows in requests))

    with (
        processor.Model(artifact, config | {"tables": {"tier": "resident"}}) as resident,
        processor.Model(artifact, config | {"tables": TIERED | {"early_reads": early}}) as tiered,
    ):
        expected = [resident.run({"a": rows})["rows"] for rows in requests]
        for _ in range(3):
            for answer, wanted in zip(asyncio.run(ask_all(tiered)), expected, strict=True):
                assert np.array_equal(answer["rows"], wanted)
        np.testing.assert_array_equal(_ask(tiered), _first())
        tables = tiered.info["tables"]
    assert 0 < tables["hits"] < tables["lookups"]
    assert 0 < tables["cached_rows"] <= tables["cache_rows"] < ROWS
    assert tables["cache_bytes"] <= 10_000
    assert (tables["early_rows"] > 0) == early
