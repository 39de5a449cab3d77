# SPDX-License-Identifier: Apache-2.0
"""Artifacts of live models say what they follow, and everything else is refused with a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import saved_model_pb2

from graph_tools import cut, fuse, optimize
from graph_tools.errors import ConversionError, UsageError
from graph_tools.graph import attribute
from graph_tools.model import Model
from graph_tools.options import CutOptions
from graph_tools.readers import read_model
from graph_tools.readers.lineage import find_position
from graph_tools.store.lineage import read_lineage, write_lineage
from graph_tools.store.timeline import Position
from helpers.models.idiom_models import export_function, table

LINEAGE = Position.start(bytes(range(16)))
WORDS = ("apple", "pear", "plum")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Export equal tables, one over a vocabulary, a batch normalization, and a variable that is an output."""
    held = {
        "first": tf.Variable(table(9, 4), name="first"),
        "second": tf.Variable(table(9, 4), name="second"),
        "worded": tf.Variable(table(6, 4), name="worded"),
        "kernel": tf.Variable(table(12, 3), name="kernel"),
        "gamma": tf.Variable(np.ones(3, np.float32), name="gamma"),
        "variance": tf.Variable(np.full(3, 2.0, np.float32), name="variance"),
        "momentum": tf.Variable(table(12, 3), name="momentum"),
        "temperature": tf.Variable(np.float32(1.5), name="temperature"),
        "steps": tf.Variable(np.int64(7), name="steps"),
    }
    values = tf.constant([3, 1, 4], tf.int64)
    words = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(list(WORDS), values), 0)

    def serve(a: Any, b: Any, word: Any) -> dict[str, Any]:
        parts = [
            tf.gather(held["first"], a),
            tf.gather(held["second"], b),
            tf.gather(held["worded"], words.lookup(word)),
        ]
        x = tf.matmul(tf.concat(parts, 1), held["kernel"])
        x = tf.nn.batch_normalization(x, tf.zeros(3), held["variance"], None, held["gamma"], 1e-3)
        return {"y": tf.nn.relu(x), "temperature": tf.identity(held["temperature"])}

    specs = [tf.TensorSpec([None], tf.int64, name=name) for name in ("a", "b")]
    specs.append(tf.TensorSpec([None], tf.string, name="word"))
    path = export_function(tmp_path_factory.mktemp("live") / "in", serve, specs, words=words, **held)
    write_lineage(path, LINEAGE)
    return path


@pytest.fixture(scope="module")
def artifact(source: Path) -> Path:
    out = source.with_name("out")
    report = fuse(source, out, live=True, precision="fp32", accept_weak_proof=True)
    assert report.live is not None
    assert report.requires.recprocessor_ops >= 4
    return out


@pytest.fixture(scope="module")
def described(artifact: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((artifact / "assets/live.json").read_text())
    return found


@pytest.fixture(scope="module")
def graph(artifact: Path) -> Model:
    return read_model(artifact)


def test_manifest_and_lineage_are_those_of_the_source(artifact: Path, described: dict[str, Any]) -> None:
    manifest = json.loads((artifact / "assets.extra/recprocessor/manifest.json").read_text())
    assert manifest["live"]["lineage"] == described["lineage"] == LINEAGE.lineage.hex()
    assert manifest["live"]["epoch"] == described["epoch"] == 0
    assert described["chain"] == LINEAGE.chain.hex()
    assert read_lineage(artifact) == LINEAGE
    assert {"assets/live.json", "assets/formulas.pb"} <= set(manifest["files"])
    assert len(manifest["live"]["tables"]) == 3


def test_each_source_table_has_its_own_resource(described: dict[str, Any], artifact: Path) -> None:
    (message,) = saved_model_pb2.SavedModel.FromString((artifact / "saved_model.pb").read_bytes()).meta_graphs
    shared = [node.attr["shared_name"].s.decode() for node in message.graph_def.node if node.op == "RecEmbeddingTable"]
    assert sorted(shared) == sorted(
        f"{one['file'].removesuffix('.emb')}/{one['source']}" for one in described["tables"]
    )
    assert len({name.split("/")[0] for name in shared}) == 2
    fills = [node for node in message.graph_def.node if node.op == "RecInitializeEmbeddingTable"]
    (begins,) = [node for node in message.graph_def.node if node.op == "RecInitializeLiveModel"]
    assert {f"^{node.name}" for node in fills} <= set(begins.input)
    handles = {node.name: node.attr["shared_name"].s.decode().split("/", 1)[1] for node in message.graph_def.node
               if node.op == "RecEmbeddingTable"}  # fmt: skip
    assert [handles[name] for name in begins.input[1:4]] == [one["source"] for one in described["tables"]]


def test_rows_of_a_vocabulary_are_listed(described: dict[str, Any], artifact: Path) -> None:
    (worded,) = [one for one in described["tables"] if one["rows"] != "same"]
    assert (worded["key_kind"], worded["source_rows"], worded["dim"]) == ("row_number", 6, 4)
    numbers = np.fromfile(artifact / "assets" / worded["rows"]["asset"], "<i8")
    assert numbers.tolist() == [1, 3, 4, 0]
    others = [one for one in described["tables"] if one is not worded]
    assert all((one["first_row"], one["source_rows"]) == (0, 9) for one in others)


def test_every_weight_has_a_view_and_a_formula(graph: Model, described: dict[str, Any]) -> None:
    (view,) = graph.graph.of("RecPinView")
    (tower,), (group,) = graph.graph.of("RecDenseTower"), graph.graph.of("RecEmbeddingGroup")
    assert [tower.inputs[-1], group.inputs[-1]] == [view.output()] * 2
    formulas = [name.decode() for name in attribute(tower, "formulas")]
    assert all(formulas)
    assert len(formulas) == attribute(tower, "num_weights")
    (read,) = graph.graph.of("RecViewVariable")
    known = {one["name"] for one in described["formulas"]}
    assert {*formulas, attribute(read, "variable").decode()} == known
    followed = {one["source"] for one in described["variables"]}
    assert {name.split("/")[0] for name in followed} == {"kernel", "gamma", "variance", "temperature"}
    assert [name.split("/")[0] for name in described["unserved"]] == ["momentum"]


def test_formulas_compute_the_weights_of_the_artifact(graph: Model, described: dict[str, Any], artifact: Path) -> None:
    message = graph_pb2.GraphDef.FromString((artifact / "assets/formulas.pb").read_bytes())
    tower = graph.graph.of("RecDenseTower")[0]
    weights = tower.inputs[attribute(tower, "num_inputs") : -1]
    served = [graph.variables[graph.graph.input(graph.graph[read.node], 0).name].read() for read in weights]
    numbers = [int(name.decode()[1:]) for name in attribute(tower, "formulas")]
    gamma = next(i for i, one in enumerate(described["variables"]) if one["source"].startswith("gamma"))
    with tf.Graph().as_default() as imported, tf.compat.v1.Session(graph=imported) as session:
        tf.graph_util.import_graph_def(message, name="")
        fetched = [f"formula/{number}:0" for number in numbers]
        for weight, value in zip(served, session.run(fetched), strict=True):
            np.testing.assert_array_equal(value, weight)
        changed = session.run(fetched, {f"source/{gamma}:0": np.float32([2, 4, 0])})
    kernel = next(i for i, one in enumerate(served) if one.shape == (12, 3))
    np.testing.assert_allclose(changed[kernel], served[kernel] * np.float32([2, 4, 0]), rtol=1e-6)
    used = [set(one["inputs"]) for one in described["formulas"]]
    assert gamma in used[numbers[kernel]]


def test_lineage_of_an_export_without_one_is_computed(source: Path, tmp_path: Path) -> None:
    weights = tf.Variable(table(5, 4))
    specs = [tf.TensorSpec([None], tf.int64, name="x")]
    plain = export_function(tmp_path / "in", lambda x: {"y": tf.gather(weights, x)}, specs, weights=weights)
    cut(plain, tmp_path / "cut", accept_weak_proof=True)
    assert read_lineage(tmp_path / "cut") == find_position(plain)
    assert find_position(plain) != LINEAGE


def test_options_that_drop_rows_are_refused(source: Path, tmp_path: Path) -> None:
    for options, name in ((CutOptions(min_norm=0.1), "--min-norm"), (CutOptions(min_frequency=2), "--min-frequency")):
        with pytest.raises(UsageError, match=f"{name}.*--live"):
            optimize(source, tmp_path / "out", options=options, live=True)


def test_models_that_were_converted_before_are_refused(source: Path, artifact: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is live already"):
        fuse(artifact, tmp_path / "again", live=True)
    cut(source, tmp_path / "cut", accept_weak_proof=True)
    with pytest.raises(UsageError, match="optimize --live"):
        fuse(tmp_path / "cut", tmp_path / "fused", live=True)


def test_model_without_variables_is_refused(tmp_path: Path) -> None:
    specs = [tf.TensorSpec([None, 3], tf.float32, name="x")]
    source = export_function(tmp_path / "in", lambda x: {"y": tf.nn.relu(x @ np.ones((3, 2), np.float32))}, specs)
    with pytest.raises(ConversionError, match="serves no float32 variable and no table"):
        fuse(source, tmp_path / "out", live=True, precision="fp32", accept_weak_proof=True)
    assert not (tmp_path / "out").exists()


def test_lookup_that_is_not_fused_reads_the_variable_of_the_view(tmp_path: Path) -> None:
    weights = tf.Variable(table(5, 4), name="weights")
    specs = [tf.TensorSpec([None], tf.int64, name="x")]
    source = export_function(tmp_path / "in", lambda x: {"y": tf.gather(weights, x)}, specs, weights=weights)
    report = fuse(
        source,
        tmp_path / "out",
        live=True,
        precision="fp32",
        accept_weak_proof=True,
        skip_passes=["fuse_embedding_groups"],
    )
    assert report.live is not None
    assert (report.live.tables, len(report.live.variables)) == ([], 1)
    graph = read_model(tmp_path / "out").graph
    (gather,) = graph.of("GatherV2")
    assert graph.input(gather, 0).op == "RecViewVariable"
