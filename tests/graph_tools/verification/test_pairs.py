# SPDX-License-Identifier: Apache-2.0
"""Tables found again in what was written, whatever their layout; one changed row, key or absent row is found."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sparse_table_models import lookup_model, make_table

from graph_tools import cut
from graph_tools.bundle import BundleReader, BundleWriter
from graph_tools.cutting import rewrite
from graph_tools.model import Model
from graph_tools.options import CutOptions
from graph_tools.passes.convert_sparse_lookups import ConvertSparseLookups
from graph_tools.readers import read_model
from graph_tools.tables.table import SparseTable
from graph_tools.tensors import ArrayTensor
from graph_tools.verification import VerifyReport, verify
from graph_tools.verification.compare import Tolerance
from graph_tools.verification.pairs import table_pairs
from graph_tools.verification.tables import compare_tables
from graph_tools.writer import write_saved_model
from load_tests.workloads import sparse_exports

DIM = 6
Array = np.ndarray[Any, Any]
Change = Callable[[dict[str, Array]], None]


def _keys(layout: str, count: int, random: np.random.Generator) -> Array:
    if layout == "strings":
        return np.array([b"", *(b"key \xc5\x82 %d" % one for one in range(1, count))], object)
    if layout == "hashed":
        return random.permutation(np.unique(random.integers(-(2**62), 2**62, count)))
    if layout == "ascending":
        return np.sort(random.permutation(count + 20)[:count]) - 10
    return random.permutation(count + 20)[:count] - 10


def _rows(sharing: str, count: int, random: np.random.Generator) -> Array:
    rows = random.normal(size=(count, DIM)).astype(np.float32)
    if sharing != "none":
        rows[random.random(count) < 0.4] = 0
    return rows[random.integers(0, count // 4, count)] if sharing == "equal" else rows


def _absent(kind: str) -> Array | None:
    count = {"zero": 0, "row": 1, "modulo": 7}[kind]
    return np.random.default_rng(9).normal(size=(count, DIM)).astype(np.float32) if count else None


def changed_copy(model: Path, target: Path, change: Change) -> Path:
    """Copy a SavedModel with other tensors in its checkpoint."""
    shutil.copytree(model, target)
    reader = BundleReader(model / "variables" / "variables")
    tensors = {name: reader.tensor(name).read().copy() for name in reader.names()}
    change(tensors)
    shutil.rmtree(target / "variables")
    with BundleWriter(target / "variables" / "variables") as writer:
        for name, value in tensors.items():
            writer.add(name, ArrayTensor(value))
        writer.finish()
    return target


def _one(tensors: dict[str, Array], ending: str) -> Array:
    (found,) = (value for name, value in tensors.items() if name.endswith(ending))
    return found


# ---- Every layout and row type, without a request


@pytest.mark.parametrize("row_type", ["fp32", "bf16", "fp16", "int8", "int4"])
@pytest.mark.parametrize("absent", ["zero", "row", "modulo"])
@pytest.mark.parametrize("sharing", ["none", "zero", "equal"])
@pytest.mark.parametrize("layout", ["dense", "ascending", "hashed", "strings"])
def test_every_stored_table_is_found_again(
    tmp_path: Path, layout: str, sharing: str, absent: str, row_type: str
) -> None:
    if (layout, absent) == ("strings", "modulo"):
        return
    random = np.random.default_rng([len(layout), len(sharing)])
    keys = _keys(layout, 600, random)
    table = make_table(keys, _rows(sharing, len(keys), random), _absent(absent), parts=3)
    model = lookup_model(table)
    ConvertSparseLookups(CutOptions(embedding_dtype=row_type)).apply(model)
    write_saved_model(model, tmp_path / "out")

    exact = Tolerance(0, 0) if row_type == "fp32" else Tolerance({"int4": 0.3, "int8": 0.03}.get(row_type, 0.01), 0.01)
    for memory in (1 << 30, 4000):
        (found,) = compare_tables(table_pairs(model, read_model(tmp_path / "out")), exact, memory)
        assert found.equal, found
        assert (found.rows, found.different > 0) == (600, row_type != "fp32")
        assert found.stored + found.absent == 600

    def change(tensors: dict[str, Array]) -> None:
        name = next(name for name in tensors if "/rows" in name or "/codes" in name)
        tensors[name][3] = ~tensors[name][3] if "/codes" in name else tensors[name][3] + tensors[name].dtype.type(9)

    broken = read_model(changed_copy(tmp_path / "out", tmp_path / "broken", change))
    (wrong,) = compare_tables(table_pairs(model, broken), exact)
    assert not wrong.equal
    assert wrong.worst is not None
