# SPDX-License-Identifier: Apache-2.0
"""Test dynamic_embedding: graphs and checkpoints with TFRA's layout, and an export that TFRA itself wrote."""

from __future__ import annotations

import os
import shutil
import subprocess
import venv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.errors import ConversionError, UnreadableError
from graph_tools.graph import attribute
from graph_tools.graph.sparse_lookup import lookups
from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
from graph_tools.readers import read_model
from graph_tools.readers.unknown_ops import check_unknown_ops
from graph_tools.tables.checks import check_table
from graph_tools.verification.evaluate import evaluate
from load_tests.workloads.sparse_exports import Export, partitioned, rows_for, score_for, tfra_lookup, tfra_table

REAL = Path(__file__).parents[3] / "data" / "tfra_export"
KINDS = ("inference", "training", "files")
PACKAGES = ("tensorflow==2.16.2", "tensorflow-recommenders-addons==0.8.1", "tf-keras==2.16.0")

KEYS = np.array([3, -9, 7, 0, 2**62], np.int64)
ROWS = np.arange(1, 11, dtype=np.float32).reshape(5, 2) / 4
ASKED = np.array([7, 8, 2**62, -9, 0, 3, 7], np.int64)


def one_table(path: Path, default: Any = 0.0, **table: Any) -> Path:
    export = Export()
    handle = tfra_table(export, "scope/item", KEYS, ROWS, **table)
    given = default(export) if callable(default) else export.const(np.full(2, default, np.float32))
    return export.finish(path / "model", [tfra_lookup(export, handle, export.input("item"), given)], 2)


def answer(path: Path, **options: Any) -> np.ndarray:
    found = evaluate(read_model(path, **options), "serving_default", {"item": ASKED})
    np.testing.assert_allclose(found["score"], score_for(found["rows"]), rtol=1e-6)
    return found["rows"]


@pytest.mark.parametrize("restored", [True, False])
def test_rows_and_default(tmp_path: Path, restored: bool) -> None:
    path = one_table(tmp_path, 0.5, restored=restored)
    model = read_model(path)
    table = model.sparse_tables["scope_item"]
    assert (table.family, table.dim, table.count, table.absent.kind) == ("tfra", 2, 5, "row")
    assert model.tensor_names["scope_item"] == ("scope_item_mht_1of1-keys", "scope_item_mht_1of1-values")
    check_table(table)
    np.testing.assert_array_equal(answer(path), rows_for(ASKED, KEYS, ROWS, lambda _: 0.5))


def test_zero_default(tmp_path: Path) -> None:
    assert read_model(one_table(tmp_path)).sparse_tables["scope_item"].absent.kind == "zero"


def _filled(export: Export) -> str:
    """[keys, 2] of 0.25, as a constant initializer makes it for the keys of a request."""
    shape = export.node("Shape", [export.input("item")], T="int64", out_type="int32")
    dims = export.node("ConcatV2", [shape, export.const(np.array([2], np.int32)), export.const(np.int32(0))],
                       N=2, T="int32", Tidx="int32")  # fmt: skip
    return export.node("Fill", [dims, export.const(np.float32(0.25))], T="float32", index_type="int32")


def test_default_of_one_row_for_each_key_is_one_row(tmp_path: Path) -> None:
    path = one_table(tmp_path, _filled)
    model = read_model(path)
    assert model.sparse_tables["scope_item"].absent.kind == "row"
    assert not attribute(lookups(model.graph)[0], "has_default")
    np.testing.assert_array_equal(answer(path), rows_for(ASKED, KEYS, ROWS, lambda _: 0.25))


def _from_the_key(export: Export) -> str:
    """[keys, 2]: the key itself, twice."""
    value = export.node("Cast", [export.input("item")], SrcT="int64", DstT="float32")
    axis = export.const(np.int32(1))
    column = export.node("ExpandDims", [value, axis], T="float32", Tdim="int32")
    return export.concat([column, column])


def test_default_that_is_computed_from_the_key_stays_an_input(tmp_path: Path) -> None:
    path = one_table(tmp_path, _from_the_key)
    model = read_model(path)
    assert attribute(lookups(model.graph)[0], "has_default")
    np.testing.assert_array_equal(answer(path), rows_for(ASKED, KEYS, ROWS, lambda key: float(key)))
    np.testing.assert_array_equal(answer(path, absent_key={"scope_item": "zero"}), rows_for(ASKED, KEYS, ROWS))


def _random(op: str) -> Any:
    def make(export: Export) -> str:
        shape = export.node("Shape", [export.input("item")], T="int64", out_type="int32")
        two, axis = export.const(np.array([2], np.int32)), export.const(np.int32(0))
        dims = export.node("ConcatV2", [shape, two, axis], N=2, T="int32", Tidx="int32")
        if op == "StatelessRandomUniform":
            seed = export.const(np.array([1, 2], np.int32))
            return export.node(op, [dims, seed], dtype="float32", T="int32", Tseed="int32")
        return export.node(op, [dims], dtype="float32", T="int32", seed=3)

    return make


@pytest.mark.parametrize("op", ["RandomUniform", "RandomStandardNormal", "TruncatedNormal", "StatelessRandomUniform"])
def test_random_default_is_for_the_user_to_choose(tmp_path: Path, op: str) -> None:
    path = one_table(tmp_path, _random(op))
    with pytest.raises(ConversionError, match=rf"table 'scope_item'.*{op}.*--absent-key scope_item=zero"):
        read_model(path)
    with pytest.raises(ConversionError):
        read_model(path, absent_key={"scope_item": "default"})
    np.testing.assert_array_equal(answer(path, absent_key={"scope_item": "zero"}), rows_for(ASKED, KEYS, ROWS))
    found = answer(path, absent_key={"*": "row:-9"})
    np.testing.assert_array_equal(found, rows_for(ASKED, KEYS, ROWS, lambda _: ROWS[1]))


def test_lookups_of_one_table_with_different_defaults(tmp_path: Path) -> None:
    export = Export()
    ids = export.input("item")
    handle = tfra_table(export, "emb", KEYS, ROWS)
    rows = [tfra_lookup(export, handle, ids, export.const(np.full(2, value, np.float32))) for value in (1.0, 2.0, 1.0)]
    path = export.finish(tmp_path / "model", rows, 6)
    model = read_model(path)
    assert [attribute(lookup, "has_default") for lookup in lookups(model.graph)] == [False, True, False]
    expected = [rows_for(ASKED, KEYS, ROWS, lambda _, value=value: value) for value in (1.0, 2.0, 1.0)]
    np.testing.assert_array_equal(answer(path), np.concatenate(expected, 1))


@pytest.mark.parametrize("prefix", ["TFRA>", ""])
def test_shards_are_parts_and_tfras_own_kernels_become_tensorflows(tmp_path: Path, prefix: str) -> None:
    export = Export()
    keys = np.abs(KEYS)
    shards = []
    for part in range(2):
        mine = keys % 2 == part
        handle = tfra_table(export, "emb", keys[mine], ROWS[mine], (part, 2))
        default = export.const(np.full(2, 0.5, np.float32))
        shards.append(lambda keys, table=handle, two=default: tfra_lookup(export, table, keys, two))
    rows = partitioned(export, export.input("item"), shards, prefix=prefix)
    path = export.finish(tmp_path / "model", [rows], 2)
    model = read_model(path)
    assert sorted(model.sparse_tables) == ["emb/part_0", "emb/part_1"]
    PruneUnreachable().apply(model)
    check_unknown_ops(model)
    np.testing.assert_array_equal(answer(path), rows_for(ASKED, keys, ROWS, lambda _: 0.5))


def test_hkv_table(tmp_path: Path) -> None:
    export = Export()
    handle = tfra_table(export, "emb", KEYS, ROWS, op="TFRA>HkvHashTableOfTensors", restored=False)
    default = export.const(np.zeros(2, np.float32))
    rows = export.node(
        "TFRA>HkvHashTableFind", [handle, export.input("item"), default], key_dtype="int64", value_dtype="float32"
    )
    path = export.finish(tmp_path / "model", [rows], 2)
    np.testing.assert_array_equal(answer(path), rows_for(ASKED, KEYS, ROWS))


def test_table_in_redis_is_refused(tmp_path: Path) -> None:
    export = Export()
    export.node("TFRA>RedisTableOfTensors", name="redis", key_dtype="int64", value_dtype="float32", value_shape=(2,))
    default = export.const(np.zeros(2, np.float32))
    rows = export.node(
        "TFRA>RedisTableFind", ["redis", export.input("item"), default], "find", Tin="int64", Tout="float32"
    )
    path = export.finish(tmp_path / "model", [rows], 2)
    with pytest.raises(ConversionError, match="node 'find': the rows of TFRA>RedisTableFind are in Redis"):
        read_model(path)


def test_outputs_that_depend_on_whether_a_key_was_found_are_refused(tmp_path: Path) -> None:
    export = Export()
    handle = tfra_table(export, "emb", KEYS, ROWS)
    default = export.const(np.zeros(2, np.float32))
    rows = tfra_lookup(export, handle, export.input("item"), default, exists=True)
    export.node("Cast", [f"{rows}:1"], "found", SrcT="bool", DstT="float32")
    with pytest.raises(ConversionError, match="node 'found': uses whether"):
        read_model(export.finish(tmp_path / "model", [rows], 2, {"found": "found"}))


def test_tables_that_no_output_looks_up_have_that_reason(tmp_path: Path) -> None:
    export = Export()
    handle = tfra_table(export, "emb", KEYS, ROWS)
    tfra_table(export, "emb_Adam_m", KEYS, ROWS)
    default = export.const(np.zeros(2, np.float32))
    model = read_model(
        export.finish(tmp_path / "model", [tfra_lookup(export, handle, export.input("item"), default)], 2)
    )
    assert "optimizer slots" in model.unused_tensors["emb_Adam_m_mht_1of1-values"]
    assert list(model.sparse_tables) == ["emb"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"emb_mht_1of1-keys": KEYS[:4]}, "has 4 keys and 'emb_mht_1of1-values' 5 rows, expected equally many"),
        ({"emb_mht_1of1-values": None}, "no tensor 'emb_mht_1of1-values'"),
        ({"emb_mht_1of1-keys": None}, r"no keys of the table 'emb_mht_1of1' in its checkpoint or in .*TFRADynamic"),
        ({"emb_mht_1of1-values": np.ones((5, 4), np.float32)}, r"rows float32\[5, 4\], expected float32\[n, 2\]"),
    ],
)
def test_checkpoint_that_contradicts_itself(tmp_path: Path, change: dict[str, np.ndarray | None], message: str) -> None:
    export = Export()
    handle = tfra_table(export, "emb", KEYS, ROWS)
    for name, value in change.items():
        if value is None:
            del export.saved[name]
        else:
            export.saved[name] = value
    default = export.const(np.zeros(2, np.float32))
    path = export.finish(tmp_path / "model", [tfra_lookup(export, handle, export.input("item"), default)], 2)
    with pytest.raises(UnreadableError, match=message):
        read_model(path)


# ---- What TFRA's FileSystemSaver writes


def write_files(folder: Path, stem: str, parts: list[tuple[np.ndarray, np.ndarray]], processes: int = 1) -> None:
    """Write the raw files of a table: `parts` are shard by shard, of one process after the other."""
    folder.mkdir(parents=True, exist_ok=True)
    shards = len(parts) // processes
    for number, (keys, rows) in enumerate(parts):
        rank, shard = divmod(number, shards)
        name = f"{stem}_mht_{shard + 1}of{shards}_rank{rank}_size{processes}"
        (folder / f"{name}-keys").write_bytes(keys.astype("<i8").tobytes())
        (folder / f"{name}-values").write_bytes(rows.astype("<f4").tobytes())


@pytest.mark.parametrize("where", ["beside the checkpoint", "in a folder", "in the folder itself"])
def test_rows_in_files(tmp_path: Path, where: str) -> None:
    path = one_table(tmp_path, 0.5, restored=False, to_checkpoint=False)
    inside = path / "variables" / "TFRADynamicEmbedding"
    folder = {"in a folder": tmp_path / "files" / "TFRADynamicEmbedding", "in the folder itself": tmp_path / "files"}
    write_files(folder.get(where, inside), "scope_item", [(KEYS, ROWS)])
    options = {} if where == "beside the checkpoint" else {"checkpoint": tmp_path / "files"}
    np.testing.assert_array_equal(answer(path, **options), rows_for(ASKED, KEYS, ROWS, lambda _: 0.5))


def test_shards_in_the_files_of_two_processes(tmp_path: Path) -> None:
    export = Export()
    keys = np.abs(KEYS)
    shards = []
    for part in range(2):
        handle = tfra_table(export, "emb", keys, ROWS, (part, 2), restored=False, to_checkpoint=False)
        default = export.const(np.zeros(2, np.float32))
        shards.append(lambda keys, table=handle, two=default: tfra_lookup(export, table, keys, two))
    path = export.finish(tmp_path / "model", [partitioned(export, export.input("item"), shards)], 2)
    first, odd = np.arange(5) < 2, keys % 2 == 1
    parts = [(keys[here & mine], ROWS[here & mine]) for here in (first, ~first) for mine in (~odd, odd)]
    write_files(path / "variables" / "TFRADynamicEmbedding", "emb", parts, processes=2)
    assert [len(table.parts) for table in read_model(path).sparse_tables.values()] == [2, 2]
    np.testing.assert_array_equal(answer(path), rows_for(ASKED, keys, ROWS))


def test_files_of_another_number_of_shards(tmp_path: Path) -> None:
    path = one_table(tmp_path, restored=False, to_checkpoint=False)
    write_files(path / "variables" / "TFRADynamicEmbedding", "scope_item", [(KEYS[:2], ROWS[:2]), (KEYS[2:], ROWS[2:])])
    with pytest.raises(UnreadableError, match="table scope_item has 2 shards, expected 1 as in the graph"):
        read_model(path)


# ---- What TFRA itself wrote; tests/data/make_tfra_export.py says how


def unpacked(folder: Path, kind: str, to: Path) -> Path:
    shutil.unpack_archive(folder / f"{kind}.zip", to / kind)
    return to / kind


def check_real_export(folder: Path, kind: str, to: Path) -> None:
    """Read an export of TFRA's and compare all answers with those that TFRA gave itself."""
    model = read_model(unpacked(folder, kind, to))
    assert sorted(model.sparse_tables) == ["item/emb/part_0", "item/emb/part_1", "user"]
    PruneUnreachable().apply(model)
    check_unknown_ops(model)
    for table in model.sparse_tables.values():
        check_table(table)
    with np.load(folder / "requests.npz") as requests:
        count = int(requests["count"])
        assert count >= 3
        for number in range(count):
            feeds = {key: requests[f"{number}/{key}"] for key in ("user", "item")}
            found = evaluate(model, "serving_default", feeds)
            np.testing.assert_array_equal(found["rows"], requests[f"{number}/rows"])
            np.testing.assert_allclose(found["score"], requests[f"{number}/score"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_real_export_gives_the_scores_of_tfra(kind: str, tmp_path: Path) -> None:
    check_real_export(REAL, kind, tmp_path)


def test_real_training_export_loses_its_wrappers_and_slots(tmp_path: Path) -> None:
    model = read_model(unpacked(REAL, "training", tmp_path))
    assert any("slots" in reason for reason in model.unused_tensors.values())
    PruneUnreachable().apply(model)
    assert not model.graph.of("AssignVariableOp")
    assert [node.name for node in model.graph.of("VarHandleOp")] == ["w"]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_an_export_by_tfra_itself_is_read(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True)
    script = REAL.parent / "make_tfra_export.py"
    subprocess.run([python, script, tmp_path / "made"], check=True, env={"PATH": os.environ["PATH"]})
    for kind in KINDS:
        check_real_export(tmp_path / "made", kind, tmp_path)
