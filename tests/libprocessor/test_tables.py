# SPDX-License-Identifier: Apache-2.0
"""Tables as TensorFlow sees them: resources that stock sessions initialize, and pages that their users share."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from graph_tools.store.layout import ROW_TYPES
from graph_tools.tensors import ArrayTensor
from helpers.models.embedding_tables import INDEX_KINDS, rows_of, spec_of, written
from helpers.models.table_files import direct_table, write_direct_table
from helpers.system.programs import LIBRARY

tf1 = tf.compat.v1
DIM = 8
WHAT_TO_DO = "; copy the artifact again, or make it again with graph-tools fuse"


@pytest.fixture(scope="module", autouse=True)
def ops() -> None:
    # Other tests may have loaded it: then it has no module of functions any more, so graphs are imported here.
    tf.load_op_library(str(LIBRARY))


def add_table(filename: tf.Tensor, shared_name: str = "prices", dim: int = DIM) -> tuple[tf.Operation, tf.Operation]:
    """Add a table to the default graph: the op that initializes it, and one that fails where there is none."""
    graph = tf1.GraphDef()
    table = graph.node.add(name="table", op="RecEmbeddingTable")
    table.attr["shared_name"].s = shared_name.encode()
    table.attr["dim"].i = dim
    name = graph.node.add(name="filename", op="Placeholder")
    name.attr["dtype"].type = tf.string.as_datatype_enum
    graph.node.add(name="initialize", op="RecInitializeEmbeddingTable", input=["table", "filename"])
    drop = graph.node.add(name="drop", op="DestroyResourceOp", input=["table"])
    drop.attr["ignore_lookup_error"].b = False
    wanted = ["initialize", "drop"]
    return tuple(tf.graph_util.import_graph_def(graph, {"filename": filename}, wanted, name=shared_name))


def initialize(path: Path, dim: int = DIM) -> None:
    with tf.Graph().as_default(), tf1.Session() as session:
        init, drop = add_table(tf.constant(str(path)), dim=dim)
        session.run(init)
        session.run(init)  # a second time: what is there stays or is replaced
        session.run(drop)


def test_a_table_is_initialized(tmp_path: Path) -> None:
    path = write_direct_table(tmp_path / "table.emb", 10, DIM)
    initialize(path)
    with tf.Graph().as_default(), tf1.Session() as session:
        _, drop = add_table(tf.constant(str(path)))
        with pytest.raises(tf.errors.NotFoundError, match="prices"):
            session.run(drop)  # of another session


def test_faulty_files_are_refused_by_name(tmp_path: Path) -> None:
    good = direct_table(10, DIM)
    altered = good[:4000] + b"\1" + good[4001:]
    cases = {
        "missing": (None, tf.errors.NotFoundError, "no such file, expected an embedding table"),
        "empty": (b"", tf.errors.DataLossError, "0 bytes, expected a header of 256"),
        "header": (good[:256], tf.errors.DataLossError, f"256 bytes, expected {len(good)}"),
        "truncated": (good[:-1], tf.errors.DataLossError, f"{len(good) - 1} bytes, expected {len(good)}"),
        "longer": (good + b"\0", tf.errors.DataLossError, f"{len(good) + 1} bytes, expected {len(good)}"),
        "gap": (altered, tf.errors.DataLossError, "bytes between the sections that are not zero"),
        "row": (good[:-2] + b"\1" + good[-1:], tf.errors.DataLossError, "row_data: wrong checksum"),
        "head": (good[:24] + b"\7" + good[25:], tf.errors.DataLossError, "header: wrong checksum"),
    }
    for name, (content, error, text) in cases.items():
        path = tmp_path / f"{name}.emb"
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(error, match=re.escape(f"table '{path}': ") + ".*" + re.escape(text + WHAT_TO_DO)):
            initialize(path)


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    path = write_direct_table(tmp_path / "table.emb", 10, DIM, version=3)
    text = f"table '{path}': version 3 of the format, expected at most 2; update recprocessor"
    with pytest.raises(tf.errors.FailedPreconditionError, match=re.escape(text)):
        initialize(path)


def test_a_table_of_another_dim_is_refused(tmp_path: Path) -> None:
    path = write_direct_table(tmp_path / "table.emb", 10, DIM)
    text = f"table '{path}': rows of {DIM}, expected 4 for 'prices'"
    with pytest.raises(tf.errors.InvalidArgumentError, match=re.escape(text)):
        initialize(path, dim=4)


def test_files_of_graph_tools_are_read(tmp_path: Path) -> None:
    # The reader checks that every key is where its search goes, so this compares both sides' idea of an index.
    policies = [{}, {"absent_key": "error"}, {"absent_key": "default", "default_rows": ArrayTensor(rows_of(3, 5))}]
    paths = []
    for kind in INDEX_KINDS:
        for count in (0, 1, 4, 5, 6, 97, 5000):
            specs = [spec_of(kind, count, **policy) for policy in policies]
            specs += [spec_of(kind, count, row_type=row_type) for row_type in ROW_TYPES]
            paths += [written(tmp_path, spec) for spec in specs]
    with tf.Graph().as_default(), tf1.Session() as session:
        filename = tf1.placeholder(tf.string, [])
        init, _ = add_table(filename, dim=5)
        for path in paths:
            session.run(init, {filename: str(path)})


def export(folder: Path, table: Path, shared_name: str) -> Path:
    """A SavedModel whose signature drops the table that its asset initialized."""
    with tf.Graph().as_default(), tf1.Session() as session:
        asset = tf.constant(str(table))
        tf1.add_to_collection(tf1.GraphKeys.ASSET_FILEPATHS, asset)
        init, drop = add_table(asset, shared_name)
        x = tf1.placeholder(tf.float32, [None], "x")
        with tf.control_dependencies([drop]):
            y = tf.identity(x)
        builder = tf1.saved_model.Builder(str(folder))
        signature = tf1.saved_model.predict_signature_def({"x": x}, {"y": y})
        builder.add_meta_graph_and_variables(
            session,
            [tf.saved_model.SERVING],
            {"serving_default": signature},
            assets_collection=tf1.get_collection(tf1.GraphKeys.ASSET_FILEPATHS),
            main_op=init,
        )
        builder.save()
    return folder


def test_a_saved_model_finds_its_asset(tmp_path: Path) -> None:
    table = write_direct_table(tmp_path / "table.emb", 10, DIM)
    model = export(tmp_path / "model", table, "of_saved_model")
    table.unlink()
    with tf.Graph().as_default(), tf1.Session() as session:
        tf1.saved_model.load(session, [tf.saved_model.SERVING], str(model))
        assert session.run("Identity:0", {"x:0": [3.0]}) == 3.0
    serve = tf.saved_model.load(str(model)).signatures["serving_default"]
    assert serve(x=tf.constant([3.0]))["y"].numpy() == 3.0
    with pytest.raises(tf.errors.NotFoundError):
        serve(x=tf.constant([3.0]))  # dropped by the first call


def test_a_saved_model_with_an_altered_table_is_not_loaded(tmp_path: Path) -> None:
    model = export(tmp_path / "model", write_direct_table(tmp_path / "table.emb", 10, DIM), "of_altered_model")
    asset = model / "assets" / "table.emb"
    content = bytearray(asset.read_bytes())
    content[-1] ^= 1
    asset.write_bytes(content)
    with pytest.raises(tf.errors.DataLossError, match=r"assets/table\.emb': row_data: wrong checksum"):
        tf.saved_model.load(str(model))


# Two resources of one file in each of two processes; prints what smaps knows while both have it.
USER = """
import json
import sys
import tensorflow as tf

tf.load_op_library(sys.argv[1])
graph = tf.compat.v1.GraphDef()
name = graph.node.add(name="filename", op="Const")
name.attr["dtype"].type = tf.string.as_datatype_enum
name.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(sys.argv[2]))
for table in ("a", "b"):
    graph.node.add(name=table, op="RecEmbeddingTable").attr["dim"].i = int(sys.argv[3])
    graph.node.add(name="init_" + table, op="RecInitializeEmbeddingTable", input=[table, "filename"])
with tf.Graph().as_default() as built, tf.compat.v1.Session() as session:
    tf.graph_util.import_graph_def(graph, name="")
    session.run(["init_a", "init_b"])
    print("ready", flush=True)
    sys.stdin.readline()
    maps, wanted = [], False
    for line in open("/proc/self/smaps"):
        fields = line.split()
        if not fields[0].endswith(":"):
            wanted = fields[-1] == sys.argv[2]
            maps += [{}] if wanted else []
        elif wanted and fields[-1] == "kB":
            maps[-1][fields[0][:-1]] = int(fields[1])
    print(json.dumps(maps), flush=True)
    sys.stdin.readline()
"""


@pytest.mark.slow
def test_pages_are_shared(tmp_path: Path) -> None:
    path = write_direct_table(tmp_path / "table.emb", 20_000, DIM)
    command = [sys.executable, "-c", USER, str(LIBRARY), str(path), str(DIM)]

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    with start() as one, start() as two:
        found = []
        for process in (one, two):
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in (one, two):  # the other waits meanwhile, with its mapping
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            found.append(json.loads(process.stdout.readline()))
        for process in (one, two):
            process.communicate("\n")
    kilobytes = -(-path.stat().st_size // 4096) * 4
    for maps in found:
        assert len(maps) == 1, "two tables of one process have one mapping"
        (pages,) = maps
        assert pages["Size"] == kilobytes
        assert pages["Rss"] == kilobytes, "all of it is there before the first request"
        assert pages["Private_Clean"] + pages["Private_Dirty"] == 0
        assert pages["Shared_Clean"] + pages["Shared_Dirty"] == kilobytes  # dirty: the disk has not got them yet
        assert abs(pages["Pss"] - kilobytes / 2) <= 1
