# SPDX-License-Identifier: Apache-2.0
"""Test that written tables of every layout are found, and that a changed row, key or absent row is found in them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools import cut
from graph_tools.bundle import BundleReader, BundleWriter
from graph_tools.model import Model
from graph_tools.options import CutOptions
from graph_tools.passes.cut.convert_sparse_lookups import ConvertSparseLookups
from graph_tools.readers import read_model
from graph_tools.tensors import ArrayTensor
from graph_tools.verbs.cut import rewrite
from graph_tools.verification import VerifyReport, verify
from graph_tools.verification.compare import Tolerance
from graph_tools.verification.pairs import table_pairs
from graph_tools.verification.tables import compare_tables
from graph_tools.writer import write_saved_model
from helpers.models.sparse_table_models import lookup_model, make_table
from load_tests.workloads import sparse_exports
from load_tests.workloads.big_table import export_big_table

DIM = 6
Array = np.ndarray[Any, Any]
Change = Callable[[dict[str, Array]], None]


def _keys(layout: str, count: int, random: np.random.Generator) -> Array:
    if layout == "strings":
        return np.array([b"", *(b"key \xc5\x82 %d" % index for index in range(1, count))], object)
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

    (stored,) = model.stored_tables
    expected = {"dense": ("direct", "remap"), "ascending": ("direct", "remap")}.get(layout, ("hashed",))
    assert stored.layout in expected
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


# ---- Whole conversions of exports, above the memory limit


def _tfplus(folder: Path) -> Path:
    export, random = sparse_exports.Export(), np.random.default_rng(1)
    user = sparse_exports.tfplus_table(export, "users", *_some(random, "hashed"), blacklist=[7])
    item = sparse_exports.tfplus_table(export, "items", *_some(random, "dense"))
    found = [
        sparse_exports.tfplus_lookup(export, user, export.input("user")),
        sparse_exports.tfplus_lookup(export, item, export.input("item")),
    ]
    return export.finish(folder, found, 2 * DIM)


def _deeprec(folder: Path) -> Path:
    export, random = sparse_exports.Export(), np.random.default_rng(2)
    matrix = random.normal(size=(5, DIM)).astype(np.float32)
    keys, rows = _some(random, "hashed")
    shards = []
    for number in range(3):
        mine = keys % 3 == number
        name = f"items/part_{number}"
        shards.append(sparse_exports.deeprec_table(export, name, keys[mine], rows[mine], default=matrix))
    item = sparse_exports.partitioned(export, export.input("item"), [_looked_up(export, handle) for handle in shards])
    user = sparse_exports.deeprec_table(export, "users", *_some(random, "dense"), default=matrix[:1])
    users = sparse_exports.deeprec_lookup(export, user, export.input("user"))
    return export.finish(folder, [item, users], 2 * DIM)


def _looked_up(export: sparse_exports.Export, handle: str) -> Callable[[str], str]:
    return lambda ids: sparse_exports.deeprec_lookup(export, handle, ids)


def _tfra(folder: Path) -> Path:
    export, random = sparse_exports.Export(), np.random.default_rng(3)
    default = export.const(np.full(DIM, 0.25, np.float32))
    found = []
    for name, layout in (("user", "hashed"), ("item", "dense")):
        table = sparse_exports.tfra_table(export, f"{name}s", *_some(random, layout))
        found.append(sparse_exports.tfra_lookup(export, table, export.input(name), default))
    return export.finish(folder, found, 2 * DIM)


def _some(random: np.random.Generator, layout: str) -> tuple[Array, Array]:
    keys = _keys(layout, 900, random)
    return keys, _rows("zero", len(keys), random)


def _verified(source: Path, converted: Model, result: Path, **more: Any) -> VerifyReport:
    pairs = lambda _, read: table_pairs(converted, read)  # noqa: E731
    return verify(read_model(source), result, memory_limit=2000, tables=pairs, samples=13, **more)


EXPORTS = {"tfplus": _tfplus, "deeprec": _deeprec, "tfra": _tfra}


@pytest.fixture(scope="module", params=list(EXPORTS))
def conversion(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model, Path]:
    """Return the export of a training system, the model after the passes, and where it was written."""
    folder = tmp_path_factory.mktemp(request.param)
    source = EXPORTS[request.param](folder / "in")
    model = read_model(source)
    rewrite(model, CutOptions())
    write_saved_model(model, folder / "out")
    return source, model, folder / "out"


def test_conversions_are_proved_by_streams(conversion: tuple[Path, Model, Path]) -> None:
    report = _verified(*conversion)
    assert report.passed, report.reasons
    assert report.bit_exact
    assert (report.a.how, report.b.how) == ("TensorFlow, lookups in NumPy",) * 2
    data = report.to_json()
    assert {table["name"]: table["equal"] for table in data["tables"]} == {"users": True, "items": True}
    assert not data["not_compared"]
    assert all(table["rows"] >= 890 for table in data["tables"])


@pytest.mark.parametrize("what", ["row", "key", "absent row"])
def test_one_change_is_found(conversion: tuple[Path, Model, Path], what: str, tmp_path: Path) -> None:
    source, model, written = conversion

    def change(tensors: dict[str, Array]) -> None:
        name = next(name for name in sorted(tensors) if name.endswith("/keys") or ("/rows" in name and what != "key"))
        if what == "key":
            tensors[name][450] += 1
        else:
            rows = next(value for name, value in sorted(tensors.items()) if "/rows" in name)
            rows[450 if what == "row" else -1] += 0.5

    report = _verified(source, model, changed_copy(written, tmp_path / "out", change))
    assert not report.passed
    wrong = [table for table in report.tables if not table.equal]
    assert len(wrong) == 1
    assert any(reason.startswith(f"table '{wrong[0].name}'") for reason in report.reasons)
    # Rows that went because they equal the absent row are given the changed one as well.
    assert wrong[0].beyond >= 1


def test_rows_of_fewer_bits_are_shown_and_differ(tmp_path: Path) -> None:
    source = _deeprec(tmp_path / "in")
    for row_type in ("bf16", "int8", "int4"):
        model = read_model(source)
        rewrite(model, CutOptions(embedding_dtype=row_type))
        write_saved_model(model, tmp_path / row_type)
        report = _verified(source, model, tmp_path / row_type, tolerance="0.5,0")
        assert report.passed, report.reasons
        assert {table.name for table in report.tables if table.different} == {"users", "items"}
        assert not _verified(source, model, tmp_path / row_type, tolerance="1e-7,0").passed


@pytest.mark.parametrize("row_type", ["fp32", "int8"])
@pytest.mark.parametrize("zero_share", [0.0, 0.8])
def test_variables_are_found_again(tmp_path: Path, zero_share: float, row_type: str) -> None:
    import tensorflow as tf

    random = np.random.default_rng(5)
    rows = random.normal(size=(5000, DIM)).astype(np.float32)
    rows[random.random(5000) < zero_share] = 0
    module = tf.Module()
    module.table = tf.Variable(rows, name="table")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, name="ids")])
    def serve(ids: Any) -> dict[str, Any]:
        # Rows from 4000 on are never asked for.
        return {"rows": tf.nn.embedding_lookup(module.table, tf.math.floormod(ids, 4000))}

    tf.saved_model.save(module, str(tmp_path / "in"), signatures={"serving_default": serve})
    model = read_model(tmp_path / "in")
    rewrite(model, CutOptions(embedding_dtype=row_type))
    write_saved_model(model, tmp_path / "out")
    tolerance = None if row_type == "fp32" else "0.1,0"
    report = _verified(tmp_path / "in", model, tmp_path / "out", tolerance=tolerance)
    assert report.passed, report.reasons
    (table,) = report.tables
    assert table.rows in (4000, 5000)

    def change(tensors: dict[str, Array]) -> None:
        name = next(name for name, value in tensors.items() if len(value) > 10 and value.dtype != np.float16)
        tensors[name][5] = (tensors[name][5] + 7) % 100

    assert not _verified(tmp_path / "in", model, changed_copy(tmp_path / "out", tmp_path / "wrong", change)).passed


def test_cut_streams_tables_above_the_memory_limit(tmp_path: Path) -> None:
    export_big_table(tmp_path / "in", 1_000_000, 0.5)
    report = cut(tmp_path / "in", tmp_path / "out", options=CutOptions(memory_limit=64 << 20), samples=12)
    assert report.verification is not None
    assert report.verification.bit_exact
    assert [side.how for side in (report.verification.a, report.verification.b)] == ["TensorFlow, lookups in NumPy"] * 2
    (table,) = report.verification.tables
    assert (table.name, table.rows, table.equal) == ("item", 1_000_000, True)
    assert 490_000 < table.absent < 510_000


def test_a_result_can_be_cut_again(conversion: tuple[Path, Model, Path], tmp_path: Path) -> None:
    _, _, written = conversion
    report = cut(written, tmp_path / "again")
    assert report.verification is not None
    assert report.verification.bit_exact
