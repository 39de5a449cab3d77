# SPDX-License-Identifier: Apache-2.0
"""Test lookups of HPS's TensorFlow plugin, with graphs, configurations and folders in HugeCTR's layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.errors import UnreadableError
from graph_tools.graph import attribute
from graph_tools.graph.sparse_lookup import lookups
from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
from graph_tools.readers import read_model
from graph_tools.readers.unknown_ops import check_unknown_ops
from graph_tools.tables.checks import check_table
from graph_tools.verbs.cut import cut
from graph_tools.verification.evaluate import evaluate
from helpers.graph_tools.stock_answers import answers
from helpers.models import sparse_files
from helpers.models.sparse_graphs import hps_configuration, hps_init, hps_lookup, moved
from load_tests.workloads.sparse_exports import Export, rows_for, score_for

KEYS = np.array([3, -9, 7, 0, 2**62], np.int64)
WIDE = (np.arange(1, 16, dtype=np.float32) / 4).reshape(5, 3)
NARROW = np.arange(-5, 0, dtype=np.float32).reshape(5, 1)
ASKED = np.array([7, 8, 2**62, -9, 0, 3, 7], np.int64)
TABLES = [("wide", "model_0.sparse", 3, 0.5), ("narrow", "model_1.sparse", 1, 0.0)]


def write(
    path: Path, config: str = "ps.json", dims: tuple[int, int] = (3, 1), numbers: Any = (0, 1), **how: Any
) -> Path:
    """Write a model of two tables with its configuration and folders beside it."""
    export = Export()
    status = hps_init(export, config)
    dtype = how.get("dtype", "int64")
    wide = hps_lookup(export, status, export.input("user", dtype), "m", numbers[0], dims[0], dtype)
    narrow = hps_lookup(export, status, export.input("item"), "m", numbers[1], dims[1])
    model = export.finish(path / "model", [wide, narrow], sum(dims))
    hps_configuration(path / "ps.json", how.get("models", {"other": TABLES[1:], "m": TABLES}), **how.get("others", {}))
    sparse_files.write_hps(path / "model_0.sparse", KEYS.tolist(), WIDE.tolist())
    sparse_files.write_hps(path / "model_1.sparse", KEYS.tolist(), NARROW.tolist())
    return model


def expected_rows(user: Any, item: Any) -> np.ndarray:
    wide, narrow = rows_for(user, KEYS, WIDE, lambda key: 0.5), rows_for(item, KEYS, NARROW)
    return np.concatenate([wide, narrow], axis=1)


def test_tables_lookups_and_defaults(tmp_path: Path) -> None:
    model = read_model(write(tmp_path))
    PruneUnreachable().apply(model)
    check_unknown_ops(model)
    tables = model.sparse_tables
    # Two models have a table 'narrow'.
    assert {name: (table.dim, table.count, table.family) for name, table in tables.items()} == {
        "wide": (3, 5, "hps"),
        "m/narrow": (1, 5, "hps"),
    }
    assert tables["wide"].absent.kind == "row"
    assert tables["wide"].absent.source == "HPS: default_value_for_each_table of the configuration, 0.5"
    assert tables["m/narrow"].absent.kind == "zero"
    for table in tables.values():
        check_table(table)
    assert {attribute(lookup, "dim") for lookup in lookups(model.graph)} == {1, 3}
    assert not model.graph.of("Lookup", "Init")
    found = evaluate(model, "serving_default", {"user": ASKED, "item": ASKED[::-1].copy()})
    rows = expected_rows(ASKED, ASKED[::-1])
    np.testing.assert_array_equal(found["rows"], rows)
    np.testing.assert_allclose(found["score"], score_for(rows), rtol=1e-6)


def test_ids_of_32_bits(tmp_path: Path) -> None:
    model = read_model(write(tmp_path, dtype="int32"))
    asked = np.array([7, -9, 5, 3], np.int32)
    found = evaluate(model, "serving_default", {"user": asked, "item": asked.astype(np.int64)})
    np.testing.assert_array_equal(found["rows"], expected_rows(asked.tolist(), asked.tolist()))


def test_ids_of_two_axes_keep_them(tmp_path: Path) -> None:
    export = Export()
    ids = export.input("user", "int64", (None, 2))
    rows = hps_lookup(export, hps_init(export, ""), ids, "m", 0, 3)
    export.node("Identity", [rows], "out", T="float32")
    path = export.write(tmp_path / "model", {"out": "out"})
    hps_configuration(tmp_path / "any.json", {"m": TABLES[:1]})
    sparse_files.write_hps(tmp_path / "model_0.sparse", KEYS.tolist(), WIDE.tolist())
    found = evaluate(read_model(path, checkpoint=tmp_path), "serving_default", {"user": np.array([[7, 8], [3, 0]])})
    assert found["out"].shape == (2, 2, 3)
    np.testing.assert_array_equal(found["out"].reshape(4, 3), rows_for([7, 8, 3, 0], KEYS, WIDE, lambda key: 0.5))


def test_an_output_that_is_the_lookup_itself_keeps_its_name(tmp_path: Path) -> None:
    export = Export()
    rows = hps_lookup(export, hps_init(export, "ps.json"), export.input("user"), "m", 0, 3)
    path = export.write(tmp_path / "model", {"out": rows})
    hps_configuration(tmp_path / "ps.json", {"m": TABLES[:1]})
    sparse_files.write_hps(tmp_path / "model_0.sparse", KEYS.tolist(), WIDE.tolist())
    model = read_model(path)
    assert str(model.signatures["serving_default"].outputs["out"].tensor) == f"{rows}:0"
    found = evaluate(model, "serving_default", {"user": ASKED})
    np.testing.assert_array_equal(found["out"], rows_for(ASKED, KEYS, WIDE, lambda key: 0.5))


@pytest.mark.parametrize("config", ["/hps/config/ps.json", "ps.json", ""])
def test_files_of_another_machine_are_found_in_the_given_folder(tmp_path: Path, config: str) -> None:
    path = moved(
        write(tmp_path, config, models={"m": [("wide", "/hps/7/model_0.sparse", *TABLES[0][2:]), TABLES[1]]}),
        tmp_path / "elsewhere" / "deep" / "model",
    )
    with pytest.raises(
        UnreadableError, match=rf"ps_config_file '{config}' of node 'Lookup_\d+' does not exist, expected"
    ):
        read_model(path)
    model = read_model(path, checkpoint=tmp_path)
    found = evaluate(model, "serving_default", {"user": ASKED, "item": ASKED})
    np.testing.assert_array_equal(found["rows"], expected_rows(ASKED, ASKED))


def test_fused_tables_are_one(tmp_path: Path) -> None:
    """With fuse_embedding_table the server finds a key in any table of one row length; the last default counts."""
    more = np.array([100, 101], np.int64)
    tables = [*TABLES, ("third", "model_2.sparse", 3, 0.25)]
    path = write(tmp_path, models={"m": tables}, others={"fuse_embedding_table": True})
    sparse_files.write_hps(tmp_path / "model_2.sparse", more.tolist(), (WIDE[:2] * 10).tolist())
    model = read_model(path)
    assert model.sparse_tables["wide"].count == 7
    asked = np.array([7, 100, 55], np.int64)
    found = evaluate(model, "serving_default", {"user": asked, "item": asked})["rows"][:, :3]
    both = rows_for(asked, np.r_[KEYS, more], np.r_[WIDE, WIDE[:2] * 10], lambda key: 0.25)
    np.testing.assert_array_equal(found, both)


def test_the_user_chooses_what_absent_keys_are_given(tmp_path: Path) -> None:
    model = read_model(write(tmp_path), absent_key={"wide": "row:-9", "m/narrow": "zero"})
    found = evaluate(model, "serving_default", {"user": np.array([8]), "item": np.array([8])})
    np.testing.assert_array_equal(found["rows"], [[*WIDE[1], 0.0]])


def test_ops_of_other_libraries_with_these_names_are_left_alone(tmp_path: Path) -> None:
    export = Export()
    ids = export.input("user")
    rows = export.node("Lookup", [ids, ids, ids], value_dtype="int64", dtype="float32", status_dtype="int64")
    model = read_model(export.write(tmp_path / "model", {"out": rows}))
    assert model.graph.of("Lookup")
    assert model.sparse_tables == {}


def test_without_a_default_lookups_give_zeros_with_a_reason(tmp_path: Path) -> None:
    path = write(tmp_path)
    config = json.loads((tmp_path / "ps.json").read_text())
    for model in config["models"]:
        del model["default_value_for_each_table"]
    (tmp_path / "ps.json").write_text(json.dumps(config))
    absent = read_model(path).sparse_tables["wide"].absent
    assert absent.kind == "zero"
    assert "its configuration was not given" in absent.source


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"models": {"x": TABLES}}, r"ps\.json: models x, expected 'm' as node 'Lookup_\d+' looks up in"),
        (
            {"numbers": (0, 2)},
            r"ps\.json: 2 tables of model 'm', expected one with the table_id 2 of node 'Lookup_\d+'",
        ),
        ({"dims": (2, 1)}, r"table wide: rows of 3, expected 2 as emb_vec_size of node 'Lookup_\d+'"),
        (
            {"models": {"m": [("wide", "gone", 3, 0.0), TABLES[1]]}},
            r"ps\.json: the folder 'gone' of table wide does not exist, expected it beside the configuration",
        ),
        (
            {"models": {"m": [("wide", "model_0.sparse", 4, 0.0), TABLES[1]]}, "dims": (4, 1)},
            r"model_0\.sparse/emb_vector: 60 bytes, expected 80 \(5 keys x 4 floats\)",
        ),
    ],
)
def test_bad_configurations(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = write(tmp_path, **change)
    with pytest.raises(UnreadableError, match=message):
        read_model(path)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("key", None, "model_0.sparse/key: does not exist"),
        ("key", bytes(12), "model_0.sparse/key: 12 bytes, expected a multiple of 8"),
        ("emb_vector", bytes(59), r"model_0.sparse/emb_vector: 59 bytes, expected 60"),
        ("emb_vector", None, "model_0.sparse/emb_vector: does not exist"),
    ],
)
def test_bad_files(tmp_path: Path, file: str, content: bytes | None, message: str) -> None:
    path = write(tmp_path)
    broken = tmp_path / "model_0.sparse" / file
    if content is None:
        broken.unlink()
    else:
        broken.write_bytes(content)
    with pytest.raises(UnreadableError, match=message):
        read_model(path)


def test_tables_that_no_signature_needs_may_be_missing(tmp_path: Path) -> None:
    export = Export()
    status = hps_init(export, "ps.json")
    hps_lookup(export, status, export.input("item"), "m", 1, 1)
    path = export.finish(tmp_path / "model", [hps_lookup(export, status, export.input("user"), "m", 0, 3)], 3)
    hps_configuration(tmp_path / "ps.json", {"m": TABLES})
    sparse_files.write_hps(tmp_path / "model_0.sparse", KEYS.tolist(), WIDE.tolist())
    assert list(read_model(path).sparse_tables) == ["wide"]


def test_a_cut_runs_in_stock_tensorflow(tmp_path: Path) -> None:
    cut(write(tmp_path), tmp_path / "cut")
    found = answers(tmp_path / "cut", {"user": ASKED, "item": ASKED})
    np.testing.assert_array_equal(found["rows"], expected_rows(ASKED, ASKED))
