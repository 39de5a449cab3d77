# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graph_tools.errors import UsageError
from graph_tools.model.tables import SparseTable
from graph_tools.options import ROW_TYPES, CutOptions
from graph_tools.passes.cut.convert_sparse_lookups import ConvertSparseLookups
from graph_tools.tables.plan import forecast
from helpers.models.sparse_table_models import NAME, Served, checkpoint_bytes, lookup_model, make_table

DIM = 12


def table_of(kind: str) -> SparseTable:
    random = np.random.default_rng(0)
    keys = {
        "dense": lambda: random.permutation(3000),
        "sparse": lambda: np.unique(random.integers(-(1 << 60), 1 << 60, 3000)),
        "string": lambda: np.array([b"key %d" % index * (1 + index % 30) for index in range(3000)], object),
    }[kind]()
    rows = random.normal(size=(3000, DIM)).astype(np.float32)
    rows[random.random(3000) < 0.3] = 0
    rows[random.random(3000) < 0.2] = rows[0]
    return make_table(keys, rows, random.normal(size=(1, DIM)).astype(np.float32))


@pytest.mark.parametrize("kind", ["dense", "sparse", "string"])
def test_forecast_is_what_is_written(tmp_path: Path, kind: str) -> None:
    options = CutOptions()
    model = lookup_model(table_of(kind))
    nodes = len(model.graph)
    (record,) = forecast(model, options)
    assert len(model.graph) == nodes
    assert model.sparse_tables
    assert record.bytes == record.forecast["fp32"]
    sizes = [record.forecast[row_type] for row_type in ROW_TYPES]
    assert sizes == sorted(sizes, reverse=True)
    for row_type in ROW_TYPES:
        model = lookup_model(table_of(kind))
        ConvertSparseLookups(CutOptions(embedding_dtype=row_type)).apply(model)
        written = checkpoint_bytes(Served(model, tmp_path / row_type).path)
        assert 0 <= written - record.forecast[row_type] < 1500


def test_the_memory_limit_leaves_duplicates_with_a_reason() -> None:
    rows = np.repeat(np.random.default_rng(1).normal(size=(400000, 8)).astype(np.float32), 2, axis=0)
    table = make_table(np.arange(800000) * 1000, rows)
    (record,) = forecast(lookup_model(table), CutOptions(memory_limit=64 << 20))
    assert record.share == "none"
    assert not record.duplicates_exact
    assert any("not shared: finding them exceeds the memory limit" in reason for reason in record.reasons)
    (record,) = forecast(lookup_model(table), CutOptions())
    assert record.share == "equal"
    assert record.stored_rows == 400000


def test_duplicates_that_are_not_worth_an_index_stay() -> None:
    rows = np.random.default_rng(2).normal(size=(1000, 8)).astype(np.float32)
    rows[1] = rows[0]
    (record,) = forecast(lookup_model(make_table(np.arange(1000) * 10**6, rows)), CutOptions())
    assert (record.duplicates, record.share) == (1, "none")
    assert any("the index would take more" in reason for reason in record.reasons)


def test_dense_keys_in_no_order_are_hashed_where_sorting_takes_too_much_memory() -> None:
    keys = np.random.default_rng(3).permutation(1 << 21)
    table = make_table(keys, np.ones((1 << 21, 16), np.float32) * np.arange(1 << 21, dtype=np.float32)[:, None])
    assert forecast(lookup_model(table), CutOptions())[0].layout == "direct"
    assert forecast(lookup_model(table), CutOptions(memory_limit=64 << 20))[0].layout == "remap"
    table = make_table(np.sort(keys), table.parts[0].rows.read())
    assert forecast(lookup_model(table), CutOptions(memory_limit=64 << 20))[0].layout == "direct"


def test_option_that_names_no_table_is_refused() -> None:
    model = lookup_model(table_of("dense"))
    with pytest.raises(UsageError, match="--tensor-type item: no table of this name, expected one of: user/embedding"):
        forecast(model, CutOptions(tensor_types={"item": "int8"}))
    options = CutOptions(tensor_types={NAME: "int8"})
    convert = ConvertSparseLookups(options)
    convert.apply(model)
    # A second run knows the tables that the first one converted.
    assert convert.apply(model).applied == 0
