# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses

import pytest

from graph_tools.model.table_record import TableRecord


@pytest.mark.parametrize(
    ("dtype", "source_dtype", "lossy_rows", "lossy"),
    [
        ("fp32", "float32", 0, False),
        ("fp32", "float64", 0, False),
        ("bf16", "bfloat16", 0, False),
        ("bf16", "float32", 0, True),
        ("fp16", "bfloat16", 0, True),
        ("int8", "float16", 0, True),
        ("fp32", "float32", 1, True),
    ],
)
def test_table_is_lossy_if_rows_are_narrower_or_gone(
    dtype: str, source_dtype: str, lossy_rows: int, lossy: bool
) -> None:
    record = TableRecord(*[0] * len(dataclasses.fields(TableRecord)))
    assert dataclasses.replace(record, dtype=dtype, source_dtype=source_dtype, lossy_rows=lossy_rows).lossy is lossy
