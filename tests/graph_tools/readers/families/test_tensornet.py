# SPDX-License-Identifier: Apache-2.0
"""Test pulls of TensorNet, with graphs and sparse tables in its layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.errors import ConversionError, UnreadableError
from graph_tools.graph import attribute
from graph_tools.graph.sparse_lookup import lookups
from graph_tools.options import CutOptions
from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
from graph_tools.readers import read_model
from graph_tools.readers.unknown_ops import check_unknown_ops
from graph_tools.tables.checks import check_table
from graph_tools.verbs.cut import cut
from graph_tools.verification.evaluate import evaluate
from helpers.graph_tools.stock_answers import answers
from helpers.models import sparse_files
from helpers.models.sparse_graphs import (
    moved,
    tensornet_blocks,
    tensornet_gather,
    tensornet_pull,
    tensornet_variable,
)
from load_tests.workloads.sparse_exports import Export, rows_for, score_for

DIM = 3
# Signs are hashes of 64 bits without a sign; the graph has them as int64.
SIGNS = [(0x9E3779B97F4A7C15 * (i + 1)) % 2**64 for i in range(40)]
TABLE = {sign: [(i - 20) / 8, float(i % 7), 0.5] for i, sign in enumerate(SIGNS)}
ONES = {sign: [float(i)] for i, sign in enumerate(SIGNS[:9])}
ZERO = {"0": "zero", "1": "zero"}


def as_int64(signs: Any) -> np.ndarray:
    return np.array(list(signs), np.uint64).view(np.int64)


KEYS, ROWS = as_int64(TABLE), np.array(list(TABLE.values()), np.float32)
ASKED = np.concatenate([KEYS[[3, 5, 3, 0]], np.array([17, -17], np.int64), KEYS[[5, 39]]])


def write_tables(folder: Path, **tables: dict[int, Any]) -> None:
    for name, rows in tables.items():
        sparse_files.write_tensornet(folder / "sparse_table" / name.removeprefix("h"), tensornet_blocks(rows))


def write(path: Path, **tables: dict[int, Any]) -> Path:
    """Write a model of two features of one table and one of another, each gathered from its variable by number."""
    export = Export()
    names = [tensornet_variable(export, name, 64, DIM) for name in ("a/weights", "b/weights")]
    pull = tensornet_pull(export, 0, names, [export.input("user"), export.input("item")])
    rows = [tensornet_gather(export, name, f"{pull}:{i}", pull) for i, name in enumerate(names)]
    wide = tensornet_variable(export, "c/weights", 64, 1)
    other = tensornet_pull(export, 1, [wide], ["item"])
    rows.append(tensornet_gather(export, wide, f"{other}:0", other))
    export.finish(path / "model", rows, 2 * DIM + 1)
    write_tables(path / "model", **(tables or {"h0": TABLE, "h1": ONES}))
    return path / "model"


def test_tables_and_lookups(tmp_path: Path) -> None:
    model = read_model(write(tmp_path), absent_key=ZERO)
    PruneUnreachable().apply(model)
    check_unknown_ops(model)
    tables = model.sparse_tables
    assert {name: (table.dim, table.count, table.family, table.absent.kind) for name, table in tables.items()} == {
        "0": (DIM, 40, "tensornet", "zero"),
        "1": (1, 9, "tensornet", "zero"),
    }
    for table in tables.values():
        check_table(table)
    assert [attribute(lookup, "dim") for lookup in lookups(model.graph)].count(DIM) == 2
    # The variables that pulls write to are gone.
    assert list(model.variables) == ["dense/w"]
    item = ASKED[::-1].copy()
    found = evaluate(model, "serving_default", {"user": ASKED, "item": item})
    ones = rows_for(item, as_int64(ONES), np.array(list(ONES.values()), np.float32))
    expected = np.concatenate([rows_for(ASKED, KEYS, ROWS), rows_for(item, KEYS, ROWS), ones], axis=1)
    np.testing.assert_array_equal(found["rows"], expected)
    np.testing.assert_allclose(found["score"], score_for(expected), rtol=1e-6)


def safe_lookup(export: Export, combiner: str, weights: str, indices: str, numbers: str, shape: str, pull: str) -> str:
    """Add what a feature column makes of the numbers of a pull: the nodes of safe_embedding_lookup_sparse."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with v1.Graph().as_default() as graph:
        variable = v1.get_variable("weights", (64, DIM), tf.float32, use_resource=True)
        taken = {
            "indices": v1.placeholder(tf.int64, (None, 2), "indices"),
            "numbers": v1.placeholder(tf.int64, (None,), "numbers"),
            "shape": v1.placeholder(tf.int64, (2,), "shape"),
        }
        with v1.control_dependencies([taken["numbers"]]):
            sparse = tf.SparseTensor(taken["indices"], taken["numbers"], taken["shape"])
            v1.nn.safe_embedding_lookup_sparse([variable], sparse, combiner=combiner)
        graph_def = v1.graph_util.extract_sub_graph(graph.as_graph_def(), [graph.get_operations()[-1].name])
    ends = {"indices": indices, "numbers": numbers, "shape": shape, "weights": weights, "^numbers": f"^{pull}"}
    last = ""
    for node in graph_def.node:
        if node.op in {"Placeholder", "VarHandleOp"}:
            continue
        made = export.graph.node.add()
        made.CopyFrom(node)
        made.name = last = f"safe/{node.name}"
        inputs = [ends.get(name) or (f"^safe/{name[1:]}" if name[0] == "^" else f"safe/{name}") for name in node.input]
        del made.input[:]
        made.input.extend(inputs)
    return last


@pytest.mark.parametrize("combiner", ["mean", "sum"])
def test_safe_embedding_lookups_of_bags(tmp_path: Path, combiner: str) -> None:
    export = Export()
    weights = tensornet_variable(export, "weights", 64, DIM)
    export.input("user")
    indices, shape = export.input("indices", "int64", (None, 2)), export.input("shape", "int64", (2,))
    pull = tensornet_pull(export, 0, [weights], ["user"])
    last = safe_lookup(export, combiner, weights, indices, f"{pull}:0", shape, pull)
    path = export.finish(tmp_path / "model", [last], DIM)
    write_tables(path, h0=TABLE)
    model = read_model(path, absent_key={"0": "row:" + str(SIGNS[2])})
    PruneUnreachable().apply(model)
    check_unknown_ops(model)
    # Rows 1 and 4 are empty; the sign of row 3 is not in the table; most signs are negative as int64.
    places = np.array([[0, 0], [0, 1], [0, 2], [2, 0], [3, 0]], np.int64)
    asked = np.array([KEYS[1], KEYS[7], KEYS[1], KEYS[0], 99], np.int64)
    rows = rows_for(asked, KEYS, ROWS, lambda key: ROWS[2])
    bags = [rows[:3], [], rows[3:4], rows[4:], []]
    combine = {"mean": np.mean, "sum": np.sum}[combiner]
    expected = np.array([combine(bag, axis=0) if len(bag) else np.zeros(DIM) for bag in bags], np.float32)
    feeds = {"user": asked, "indices": places, "shape": np.array([5, 3], np.int64)}
    np.testing.assert_allclose(evaluate(model, "serving_default", feeds)["rows"], expected, rtol=1e-6)
    # A request of empty bags alone.
    none = {"user": np.empty(0, np.int64), "indices": np.empty((0, 2), np.int64), "shape": np.array([2, 3], np.int64)}
    np.testing.assert_array_equal(evaluate(model, "serving_default", none)["rows"], np.zeros((2, DIM)))


def test_an_embedding_lookup_deduplicates_signs(tmp_path: Path) -> None:
    export = Export()
    weights = tensornet_variable(export, "weights", 64, DIM)
    pull = tensornet_pull(export, 0, [weights], [export.input("user")])
    unique = export.node("Unique", [f"{pull}:0"], T="int64", out_idx="int32")
    rows = tensornet_gather(export, weights, unique, pull)
    axis = export.const(np.int32(0))
    back = export.node(
        "GatherV2", [rows, f"{unique}:1", axis], Tparams="float32", Tindices="int32", Taxis="int32", batch_dims=0
    )
    path = export.finish(tmp_path / "model", [back], DIM)
    write_tables(path, h0=TABLE)
    model = read_model(path, absent_key=ZERO)
    (lookup,) = lookups(model.graph)
    assert model.graph.input(lookup, 0).op == "Unique"
    found = evaluate(model, "serving_default", {"user": ASKED})
    np.testing.assert_array_equal(found["rows"], rows_for(ASKED, KEYS, ROWS))


def test_show_and_click_make_rows_two_longer(tmp_path: Path) -> None:
    export = Export()
    weights = tensornet_variable(export, "weights", 64, DIM + 2)
    pull = tensornet_pull(export, 0, [weights], [export.input("user")])
    path = export.finish(tmp_path / "model", [tensornet_gather(export, weights, f"{pull}:0", pull)], DIM + 2)
    lines = [sparse_files.tensornet_adagrad_line(7, [1, 2, 3], show=4, click=1)]
    blocks = [[sparse_files.tensornet_text("AdaGrad", DIM, lines if index == 0 else []) for index in range(8)]]
    sparse_files.write_tensornet(path / "sparse_table" / "0", blocks)
    model = read_model(path, absent_key=ZERO)
    assert model.sparse_tables["0"].dim == DIM + 2
    found = evaluate(model, "serving_default", {"user": np.array([7, 8], np.int64)})["rows"]
    np.testing.assert_allclose(found, [[1, 2, 3, 4, np.log(2) - np.log(5)], [0] * 5], rtol=1e-6)


def test_the_user_must_choose_the_value_of_absent_signs(tmp_path: Path) -> None:
    path = write(tmp_path)
    with pytest.raises(
        ConversionError, match=r"table 0: TensorNet's server makes a row, .* expected --absent-key 0=zero"
    ):
        read_model(path)
    with pytest.raises(ConversionError, match=r"table 1: .* or 1=default for zeros"):
        read_model(path, absent_key={"0": "zero"})
    model = read_model(path, absent_key={"*": "default"})
    assert {table.absent.kind for table in model.sparse_tables.values()} == {"zero"}
    assert "makes a new row for a key" in model.sparse_tables["0"].absent.source


def test_sub_models_hold_no_pull_and_pass_as_they_are(tmp_path: Path) -> None:
    export = Export()
    path = export.finish(tmp_path / "model", [export.input("embeddings", "float32", (None, DIM))], DIM)
    write_tables(tmp_path, h0=TABLE)
    model = read_model(path)
    assert model.sparse_tables == {}
    rows = np.ones((2, DIM), np.float32)
    np.testing.assert_allclose(evaluate(model, "serving_default", {"embeddings": rows})["score"], score_for(rows))


@pytest.mark.parametrize("place", ["beside", "given", "given sparse_table"])
def test_tables_are_found_beside_the_model_and_in_the_given_folder(tmp_path: Path, place: str) -> None:
    path = write(tmp_path)
    target = path.parent if place == "beside" else tmp_path / "elsewhere"
    moved(path / "sparse_table", target / "sparse_table")
    given = {"beside": None, "given": target, "given sparse_table": target / "sparse_table"}[place]
    if given is not None:
        with pytest.raises(UnreadableError, match=r"no tables, expected the folder of table 0 that node .* pulls from"):
            read_model(path, absent_key=ZERO)
    assert set(read_model(path, checkpoint=given, absent_key=ZERO).sparse_tables) == {"0", "1"}


def test_tables_named_after_layers(tmp_path: Path) -> None:
    """Newer releases name a table's folder after its layer, whose scope the pull is in."""
    export = Export()
    rows = []
    for number, layer in enumerate(("wide", "deep")):
        variable = tensornet_variable(export, f"{layer}/weights", 64, DIM)
        pull = tensornet_pull(export, number, [variable], [export.input("user")], name=f"model/{layer}/SparseTablePull")
        rows.append(tensornet_gather(export, variable, f"{pull}:0", pull))
    path = export.finish(tmp_path / "model", rows, 2 * DIM)
    twice = {sign: [2 * value for value in row] for sign, row in TABLE.items()}
    write_tables(path, wide=TABLE, deep=twice)
    model = read_model(path, absent_key={"*": "zero"})
    found = evaluate(model, "serving_default", {"user": ASKED})["rows"]
    expected = rows_for(ASKED, KEYS, ROWS)
    np.testing.assert_array_equal(found, np.concatenate([expected, 2 * expected], axis=1))
    moved(path / "sparse_table" / "deep", path / "sparse_table" / "other")
    with pytest.raises(
        UnreadableError, match=r"sparse_table: tables other, wide, expected a folder '1' for the table_ha"
    ):
        read_model(path, absent_key={"*": "zero"})


def test_a_sign_in_two_blocks_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path)
    line = sparse_files.tensornet_adagrad_line(SIGNS[0], [1, 1, 1])
    block = path / "sparse_table" / "0" / "rank_0" / f"sparse_block_{(SIGNS[0] // 2 + 1) % 8}.gz"
    sparse_files.write_tensornet(tmp_path / "extra", [[sparse_files.tensornet_text("AdaGrad", DIM, [line])]])
    block.write_bytes((tmp_path / "extra" / "rank_0" / "sparse_block_0.gz").read_bytes())
    with pytest.raises(UnreadableError, match=f"table 0: key {SIGNS[0]} more than once"):
        check_table(read_model(path, absent_key=ZERO).sparse_tables["0"])


def test_bad_tables(tmp_path: Path) -> None:
    path = write(tmp_path, h0=TABLE, h1=TABLE)
    with pytest.raises(
        UnreadableError, match=r"table 1: rows of 3, expected 1 as the variable that node 'SparseTablePul"
    ):
        read_model(path, absent_key=ZERO)
    block = path / "sparse_table" / "0" / "rank_1" / "sparse_block_3.gz"
    whole = block.read_bytes()
    block.write_bytes(whole[:-9])
    with pytest.raises(UnreadableError, match=r"sparse_block_3\.gz"):
        read_model(path, absent_key=ZERO)
    block.unlink()
    with pytest.raises(UnreadableError, match="rank_1: block 3 does not exist, expected blocks 0 to 7"):
        read_model(path, absent_key=ZERO)


def test_other_uses_of_a_pulled_variable_are_refused(tmp_path: Path) -> None:
    export = Export()
    weights = tensornet_variable(export, "weights", 64, DIM)
    tensornet_pull(export, 0, [weights], [export.input("user")], name="pull")
    export.node("Mul", ["weights/Read", "weights/Read"], "whole", T="float32")
    export.node("Cast", ["pull:0"], "numbers", SrcT="int64", DstT="float32")
    export.write(tmp_path / "model", {"whole": "whole", "numbers": "numbers"})
    write_tables(tmp_path / "model", h0=TABLE)
    with pytest.raises(ConversionError, match=r"node 'whole' \(Mul\): reads the variable 'weights' that 'pull' fills"):
        read_model(tmp_path / "model", absent_key=ZERO)


def test_a_gather_before_any_pull_is_refused(tmp_path: Path) -> None:
    export = Export()
    weights = tensornet_variable(export, "weights", 64, DIM)
    pull = tensornet_pull(export, 0, [weights], [export.input("user")])
    export.node("Cast", [f"{pull}:0"], "numbers", SrcT="int64", DstT="float32")
    ids = export.const(np.array([0], np.int64))
    early = export.node("ResourceGather", [weights, ids], dtype="float32", Tindices="int64")
    export.write(tmp_path / "model", {"early": early, "numbers": "numbers"})
    write_tables(tmp_path / "model", h0=TABLE)
    with pytest.raises(ConversionError, match="gathers from 'weights' after 0 pulls, expected one of them"):
        read_model(tmp_path / "model", absent_key=ZERO)


def test_one_variable_for_two_features_is_refused(tmp_path: Path) -> None:
    export = Export()
    weights = tensornet_variable(export, "weights", 64, DIM)
    pull = tensornet_pull(export, 0, [weights, weights], [export.input("user"), export.input("item")])
    export.finish(tmp_path / "model", [tensornet_gather(export, weights, f"{pull}:1", pull)], DIM)
    write_tables(tmp_path / "model", h0=TABLE)
    with pytest.raises(ConversionError, match="fills 'weights' twice, expected a variable for each feature"):
        read_model(tmp_path / "model", absent_key=ZERO)


def test_a_cut_runs_in_stock_tensorflow(tmp_path: Path) -> None:
    report = cut(write(tmp_path), tmp_path / "cut", options=CutOptions(absent_key={"*": "zero"}))
    assert {table.name for table in report.tables} == {"0", "1"}
    found = answers(tmp_path / "cut", {"user": ASKED, "item": ASKED})["rows"]
    rows = rows_for(ASKED, KEYS, ROWS)
    ones = rows_for(ASKED, as_int64(ONES), np.array(list(ONES.values()), np.float32))
    np.testing.assert_array_equal(found, np.concatenate([rows, rows, ones], axis=1))
