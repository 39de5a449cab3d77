# SPDX-License-Identifier: Apache-2.0
"""Convert a table that exists in no file, and print the memory that this needs as JSON.

`python convert_generated_table.py OUT GIGABYTES MEMORY_LIMIT_BYTES [ROW_TYPE]`
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from graph_tools.json_data import as_data
from graph_tools.model.tables import Absent, Part, SparseTable
from graph_tools.options import CutOptions
from graph_tools.passes.cut.convert_sparse_lookups import ConvertSparseLookups
from graph_tools.tensors import StreamTensor
from graph_tools.writer import write_saved_model
from helpers.models.sparse_table_models import NAME, checkpoint_bytes, lookup_model
from helpers.system.process_state import peak_resident_bytes

DIM = 32
ZEROS = 0.9
_CYCLE = 4099


def generated_table(count: int) -> SparseTable:
    """Return a table of `count` unordered keys; rows are mostly zero and otherwise all different."""
    random = np.random.default_rng(0)
    base = random.normal(size=(_CYCLE, DIM)).astype(np.float32)
    base[random.random(_CYCLE) < ZEROS] = 0

    def keys(rows: int) -> Iterator[np.ndarray]:
        for begin in range(0, count, rows):
            numbers = np.arange(begin, min(begin + rows, count), dtype=np.uint64)
            yield (numbers * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)

    def rows_of(rows: int) -> Iterator[np.ndarray]:
        for begin in range(0, count, rows):
            numbers = np.arange(begin, min(begin + rows, count))
            yield base[numbers % _CYCLE] * (1 + numbers // _CYCLE).astype(np.float32)[:, None] / 64

    part = Part(
        StreamTensor(np.dtype(np.int64), (count,), keys), StreamTensor(np.dtype(np.float32), (count, DIM), rows_of)
    )
    return SparseTable(NAME, "tfplus", np.dtype(np.int64), DIM, np.dtype(np.float32), [part], Absent(None, "the test"))


def main() -> None:
    out, gigabytes, limit = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    row_type = sys.argv[4] if len(sys.argv) > 4 else "fp32"
    warm = lookup_model(generated_table(1000))
    ConvertSparseLookups().apply(warm)
    write_saved_model(warm, out / "warm")
    table = generated_table(int(gigabytes * 1e9) // (DIM * 4 + 8))
    model = lookup_model(table)
    before = peak_resident_bytes()
    begun = time.process_time()
    convert = ConvertSparseLookups(CutOptions(embedding_dtype=row_type, memory_limit=limit))
    convert.apply(model)
    write_saved_model(model, out / "big")
    answer = {
        "resident_bytes": peak_resident_bytes(),
        "resident_bytes_before": before,
        "cpu_seconds": time.process_time() - begun,
        "source_bytes": table.source_bytes,
        "written_bytes": checkpoint_bytes(out / "big"),
        "record": as_data(convert.records[0]),
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
