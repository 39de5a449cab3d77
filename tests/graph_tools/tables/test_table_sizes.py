# SPDX-License-Identifier: Apache-2.0
"""Test that forecast sizes are those of written files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graph_tools.store import write_table
from graph_tools.store.layout import BUCKET_BYTES
from graph_tools.tables.costs import Counts, Layout
from graph_tools.tables.table_sizes import planned_size, table_size
from graph_tools.tensors import ArrayTensor
from helpers.models.embedding_tables import INDEX_KINDS, rows_of, spec_of


@pytest.mark.parametrize("row_type", ["fp32", "bf16", "int8", "int4"])
@pytest.mark.parametrize("kind", INDEX_KINDS)
def test_files_have_the_forecast_size(tmp_path: Path, kind: str, row_type: str) -> None:
    for count in (0, 1, 5000):
        default = ArrayTensor(rows_of(3, 5))
        spec = spec_of(kind, count, 5, row_type, absent_key="default", default_rows=default)
        header = write_table(tmp_path, spec).header
        keys = None if kind == "direct" else count
        strings = sum(map(len, spec.keys.read())) if kind == "string" else None
        found = table_size(count + 3, 5, row_type, keys, strings)
        beyond = BUCKET_BYTES * (header.buckets - header.home_buckets)
        sections = (header.index, header.key_offsets, header.key_bytes, header.checksums)
        assert found.index_bytes == sum(section.size for section in sections) - beyond
        assert found.bytes == header.file_size - beyond
        assert (found.row_data, found.row_stride) == (header.row_data.size, header.row_stride)


def test_planned_tables_have_the_rows_of_their_layout() -> None:
    counts = Counts(1000, 700, 200, 2000, 8000, 1, 16, np.dtype(np.float16))
    rows = {
        layout: planned_size(Layout(*layout), counts, "fp32", False, True).rows
        for layout in (("direct",), ("remap", "zero"), ("hashed", "equal"), ("none",))
    }
    assert rows == {("direct",): 2000, ("remap", "zero"): 701, ("hashed", "equal"): 201, ("none",): 0}
    strings = planned_size(Layout("hashed", "zero"), counts, "int8", True, False)
    assert (strings.rows, strings.row_bytes) == (1001, 20)
    assert planned_size(Layout("direct"), counts, "fp32", False, True).row_bytes == 32
