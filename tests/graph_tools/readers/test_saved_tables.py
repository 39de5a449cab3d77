# SPDX-License-Identifier: Apache-2.0
"""Test tables in SavedModels: written, read, written again, and loaded with libprocessor's ops."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools import inspect
from graph_tools.errors import ConversionError, UnreadableError
from graph_tools.model import Model
from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
from graph_tools.passes.cut.shorten_names import ShortenNames
from graph_tools.readers import read_model
from graph_tools.readers.saved_model import read_proto
from graph_tools.readers.saved_tables import INITIALIZER, TableOutput
from graph_tools.store import TableReader, TableSpec
from graph_tools.store.table_store import TableStore
from graph_tools.tables.add_table import TABLE, add_embedding_table
from graph_tools.tensors import ArrayTensor
from graph_tools.writer import write_saved_model
from helpers.graph_tools.stock_answers import answers
from helpers.models.embedding_tables import INDEX_KINDS, altered, spec_of

FEEDS = {"x": np.ones((2, 3), np.float32)}


@pytest.fixture
def library() -> None:
    """Load libprocessor, if it has the ops of tables."""
    from graph_tools.graph import is_native
    from graph_tools.graph.op_library import load_library

    try:
        load_library()
    except UnreadableError as error:
        pytest.skip(str(error))
    if not is_native(INITIALIZER):
        pytest.skip("a libprocessor without tables")


def with_tables(source: Path, *specs: TableSpec) -> Model:
    """Read a model and let all its outputs wait for tables."""
    model = read_model(source)
    for spec in specs:
        handle = add_embedding_table(model, "table", spec)
        for name in model.outputs():
            node = model.graph[name]
            model.graph.set_inputs(node, node.inputs, [*node.controls, handle.node])
    return model


def nodes(path: Path, op: str) -> list[Any]:
    return [node for node in read_proto(path).meta_graphs[0].graph_def.node if node.op == op]


@pytest.mark.parametrize("kind", INDEX_KINDS)
def test_tables_are_read_as_they_were_written(tiny_model: Path, tmp_path: Path, kind: str) -> None:
    default = ArrayTensor(np.ones((3, 5), np.float32))
    spec = spec_of(kind, 101, row_type="int8", absent_key="default", default_rows=default)
    output = TableOutput()
    digests = write_saved_model(with_tables(tiny_model, spec), tmp_path / "a", tables=output)
    (file,) = output.files.values()
    assert file.path == tmp_path / "a" / "assets" / file.name
    assert digests[file.path] == file.sha256
    TableReader(file.path).check()

    model = read_model(tmp_path / "a")
    ((name, found),) = model.embedding_tables.items()
    assert (found.dim, found.row_type, found.index_kind, found.absent_key) == (5, "int8", kind, "default")
    assert (found.file, found.rows.shape[0]) == (file.path, 101)
    assert not [node for node in model.graph if node.op == INITIALIZER]
    assert not model.assets
    assert not model.init
    for linked in (found, replace(found, file=None)):
        model.embedding_tables[name] = linked
        out = tmp_path / ("linked" if linked.file else "written")
        write_saved_model(model, out)
        assert (out / "assets" / file.name).read_bytes() == file.path.read_bytes()
        assert [node.attr["shared_name"].s.decode() for node in nodes(out, TABLE)] == [file.sha256]
        assert len(nodes(out, INITIALIZER)) == 1


def test_model_is_not_changed_by_writing(tiny_model: Path, tmp_path: Path) -> None:
    model = with_tables(tiny_model, spec_of("int64", 7))
    before = model.graph.to_graph_def()
    write_saved_model(model, tmp_path / "a")
    assert model.graph.to_graph_def() == before


def test_equal_tables_are_one_file_and_one_resource(tiny_model: Path, tmp_path: Path) -> None:
    model = with_tables(tiny_model, spec_of("int64", 7), spec_of("int64", 7), spec_of("int64", 8))
    write_saved_model(model, tmp_path / "a")
    assert len(list((tmp_path / "a" / "assets").iterdir())) == 2
    names = sorted(node.attr["shared_name"].s for node in nodes(tmp_path / "a", TABLE))
    assert len(names) == 3
    assert len(set(names)) == 2
    assert len(nodes(tmp_path / "a", INITIALIZER)) == 2
    again = read_model(tmp_path / "a")
    assert sorted(table.rows.shape[0] for table in again.embedding_tables.values()) == [7, 7, 8]


def test_one_spec_has_one_node(tiny_model: Path) -> None:
    spec = spec_of("int64", 7)
    model = with_tables(tiny_model, spec, spec)
    assert len(model.graph.of(TABLE)) == 1


def test_tables_go_through_the_store(tiny_model: Path, tmp_path: Path) -> None:
    output = TableOutput(TableStore(tmp_path / "store"))
    inodes = set()
    for name in ("a", "b"):
        write_saved_model(with_tables(tiny_model, spec_of("int64", 7)), tmp_path / name, tables=output)
        (file,) = output.files.values()
        inodes.add(file.path.stat().st_ino)
    assert inodes == {(tmp_path / "store" / file.name).stat().st_ino}


def test_other_initializers_stay(string_model: Path, tmp_path: Path) -> None:
    source = tmp_path / "fused"
    write_saved_model(with_tables(string_model, spec_of("int64", 7)), source)
    model = read_model(source)
    assert len(model.assets) == 1
    assert model.init
    PruneUnreachable().apply(model)
    assert len(model.init) == len(model.embedding_tables) == 1
    write_saved_model(model, tmp_path / "again")
    assert len(list((tmp_path / "again" / "assets").iterdir())) == 2


def test_passes_keep_names_and_drop_unused_variables(tiny_model: Path) -> None:
    model = with_tables(tiny_model, spec_of("int64", 7))
    unused = add_embedding_table(model, "unused", spec_of("int64", 8))
    PruneUnreachable().apply(model)
    assert unused.node not in model.graph
    ShortenNames().apply(model)
    assert list(model.embedding_tables) == [node.name for node in model.graph.of(TABLE)] == ["table"]


def test_table_without_rows_or_of_another_length_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    model = with_tables(tiny_model, spec_of("int64", 7))
    (name,) = model.embedding_tables
    model.embedding_tables[name] = spec_of("int64", 7, dim=6)
    with pytest.raises(ConversionError, match="rows of 6, expected 5"):
        write_saved_model(model, tmp_path / "a")
    del model.embedding_tables[name]
    with pytest.raises(ConversionError, match=f"table '{name}': no rows"):
        write_saved_model(model, tmp_path / "b")


def test_error_of_a_table_names_it(tiny_model: Path, tmp_path: Path) -> None:
    model = with_tables(tiny_model, replace(spec_of("int64", 2), keys=ArrayTensor(np.array([7, 7]))))
    with pytest.raises(ConversionError, match=r"table 'table': .*key 7: occurs twice"):
        write_saved_model(model, tmp_path / "a")


def damaged(model: Path, how: str) -> str:
    """Damage the only table of a model."""
    (file,) = (model / "assets").iterdir()
    copy = altered(file, 16 if how == "header" else file.stat().st_size - 10, b"\xaa")
    file.unlink()
    copy.rename(file)
    if how == "missing":
        file.unlink()
    if how == "truncated":
        file.write_bytes(file.read_bytes()[:-1])
    return file.name


@pytest.mark.parametrize("how", ["header", "truncated", "missing"])
def test_damaged_table_is_named_when_it_is_read(tiny_model: Path, tmp_path: Path, how: str) -> None:
    write_saved_model(with_tables(tiny_model, spec_of("int64", 7)), tmp_path / "a")
    name = damaged(tmp_path / "a", how)
    with pytest.raises(UnreadableError, match=name):
        read_model(tmp_path / "a")


def test_inspect_lists_tables(tiny_model: Path, tmp_path: Path) -> None:
    default = ArrayTensor(np.ones((3, 5), np.float32))
    specs = (
        spec_of("string", 101, row_type="int4", absent_key="default", default_rows=default),
        spec_of("direct", 7, absent_key="error"),
    )
    write_saved_model(with_tables(tiny_model, *specs), tmp_path / "a")
    (found,) = inspect(tmp_path / "a").models
    seen = {
        (table.family, table.rows, table.dim, table.dtype, table.absent, table.index, table.used): table
        for table in found.tables
    }
    keys = [
        ("recprocessor", 101, 5, "int4", "modulo", "string", True),
        ("recprocessor", 7, 5, "fp32", "error", "direct", True),
    ]
    assert sorted(seen) == sorted(keys)
    for table in found.tables:
        assert table.file is not None
        assert table.bytes == (tmp_path / "a" / "assets" / table.file).stat().st_size
    assert found.families == []
    assert TABLE in found.custom_ops


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("kind", INDEX_KINDS)
@pytest.mark.parametrize("count", [0, 1, 6, 20_011])
def test_session_loads_tables(tiny_model: Path, tmp_path: Path, kind: str, count: int) -> None:
    """The initializer checks the file as a whole: every checksum, and that searches can find every key."""
    spec = spec_of(kind, count, row_type="int8")
    write_saved_model(with_tables(tiny_model, spec), tmp_path / "a")
    np.testing.assert_array_equal(answers(tmp_path / "a", FEEDS)["y"], answers(tiny_model, FEEDS)["y"])


@pytest.mark.usefixtures("library")
def test_python_loader_loads_tables(tiny_model: Path, tmp_path: Path) -> None:
    import tensorflow as tf

    write_saved_model(with_tables(tiny_model, spec_of("int64", 101), spec_of("string", 7)), tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    for name in ("a", "b"):
        loaded = tf.saved_model.load(str(tmp_path / name))
        found = loaded.signatures["serving_default"](x=tf.constant(FEEDS["x"]))["y"]
        np.testing.assert_array_equal(found.numpy(), answers(tiny_model, FEEDS)["y"])


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("how", ["header", "content", "truncated", "missing"])
def test_damaged_table_is_named_when_it_is_loaded(tiny_model: Path, tmp_path: Path, how: str) -> None:
    import tensorflow as tf

    write_saved_model(with_tables(tiny_model, spec_of("int64", 7)), tmp_path / "a")
    name = damaged(tmp_path / "a", how)
    with pytest.raises(tf.errors.OpError, match=name):
        answers(tmp_path / "a", FEEDS)
