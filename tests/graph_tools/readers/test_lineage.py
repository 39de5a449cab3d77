# SPDX-License-Identifier: Apache-2.0
"""Test that exports have a lineage that follows from their weights."""

from pathlib import Path

import numpy as np
import pytest

from graph_tools.errors import ConversionError
from graph_tools.readers import read_model
from graph_tools.readers.lineage import digest_export, find_position
from graph_tools.store.lineage import write_lineage
from graph_tools.store.timeline import Position, first_chain
from helpers.models.exports_in_time import export_at
from helpers.models.model_builders import build_linear
from load_tests.workloads.sparse_exports import Export, tfplus_lookup, tfplus_table, tfra_lookup, tfra_table

KEYS = np.array([3, -9, 7], np.int64)
ROWS = np.arange(9, dtype=np.float32).reshape(3, 3)


def _sparse(path: Path, rows: np.ndarray) -> Path:
    export = Export()
    handle = tfplus_table(export, "scope/item", KEYS, rows)
    return export.finish(path, [tfplus_lookup(export, handle, export.input("item"))], 3)


def test_lineage_follows_from_variables(tmp_path: Path) -> None:
    first, again, other = (
        find_position(build_linear(tmp_path / name, scale)) for name, scale in (("a", 1), ("b", 1), ("c", 2))
    )
    assert first == again != other
    assert (first.epoch, first.chain) == (0, first_chain(first.lineage))


def test_lineage_follows_from_rows_of_tables(tmp_path: Path) -> None:
    found = {name: find_position(_sparse(tmp_path / name, rows)) for name, rows in (("a", ROWS), ("b", ROWS + 1))}
    assert found["a"] != found["b"]


def test_lineage_in_the_export_comes_first(tmp_path: Path) -> None:
    model = build_linear(tmp_path / "model")
    position = Position(bytes(range(16)), 3, bytes(32))
    write_lineage(model, position)
    assert find_position(model) == position


def test_weights_from_a_checkpoint_have_their_own_lineage(tmp_path: Path) -> None:
    model, other = build_linear(tmp_path / "a"), build_linear(tmp_path / "b", 2)
    write_lineage(model, Position(bytes(range(16)), 3, bytes(32)))
    assert find_position(model, other / "variables" / "variables") == find_position(other)


def test_model_without_weights_has_no_lineage(tmp_path: Path) -> None:
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        tf.identity(tf.compat.v1.placeholder(tf.float32, [None], "x"), "y")
    (tmp_path / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
    with pytest.raises(ConversionError, match="no variables and no tables, expected weights that can change"):
        digest_export(tmp_path / "graph.pb")


def test_lineage_does_not_depend_on_the_values_of_absent_keys(tmp_path: Path) -> None:
    def saved(name: str, default: float) -> Path:
        export = Export()
        handle = tfra_table(export, "scope/item", KEYS, ROWS)
        given = export.const(np.full(3, default, np.float32))
        return export.finish(tmp_path / name, [tfra_lookup(export, handle, export.input("item"), given)], 3)

    assert find_position(saved("a", 0)) == find_position(saved("b", 1))


def test_export_that_is_read_with_an_option_only_has_a_lineage(tmp_path: Path) -> None:
    export = export_at("tensornet", tmp_path / "model", 0)
    with pytest.raises(ConversionError, match="--absent-key 0=zero"):
        read_model(export)
    assert find_position(export).epoch == 0
