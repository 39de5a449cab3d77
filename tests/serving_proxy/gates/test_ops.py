# SPDX-License-Identifier: Apache-2.0
"""Ops that real models reach, and a check that the list covers TensorFlow's registry."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.core.framework import op_def_pb2

from serving_proxy.errors import DeniedError, InvalidError
from serving_proxy.gates.op_list import CACHES, FILE_INPUTS, NAMES_NOTHING, OPS
from serving_proxy.gates.ops import check_allowed, check_ops, reached_ops
from serving_proxy.gates.saved_model import read_meta_graph

Score = Callable[[Any], Any]
TEXT = tf.TensorSpec([None], tf.string, name="text")
_LIST_OPS = """
import sys
from tensorflow.python.client import pywrap_tf_session as session
sys.stdout.buffer.write(session.TF_GetBuffer(session.TF_GetAllOpList()))
"""


def export(folder: Path, score: Score, module: tf.Module | None = None) -> Path:
    """Save a module with `serving_default`, text [batch] string -> score."""
    module = module or tf.Module()
    served = tf.function(lambda text: {"score": score(text)}, input_signature=[TEXT])
    module.served = served
    tf.saved_model.save(module, str(folder), signatures={"serving_default": served})
    return folder


def ops_of(folder: Path) -> set[str]:
    return {op.op for op in reached_ops(read_meta_graph(folder))}


def in_a_loop(text: Any) -> Any:
    return tf.while_loop(lambda i, _: i < 1, lambda i, _: (i + 1, tf.io.read_file(text[0])), [0, ""])[1]


def in_a_branch(text: Any) -> Any:
    return tf.cond(tf.size(text) > 0, lambda: tf.io.read_file(text[0]), lambda: "")


def in_a_dataset(text: Any) -> Any:
    rows = tf.data.Dataset.from_tensor_slices(text).map(tf.io.read_file)
    return rows.reduce("", lambda before, item: before + item)


def by_control(text: Any) -> Any:
    with tf.control_dependencies([tf.io.write_file("/tmp/x", text[0])]):
        return tf.identity(text)


def printed(text: Any) -> Any:
    tf.print(text, output_stream="file:///tmp/x")
    return text


@pytest.mark.parametrize(
    ("score", "op"),
    [
        (lambda text: tf.io.read_file(text[0]), "ReadFile"),
        (tf.function(lambda text: tf.function(tf.io.read_file)(text[0])), "ReadFile"),
        (lambda text: tf.map_fn(tf.io.read_file, text), "ReadFile"),
        (in_a_loop, "ReadFile"),
        (in_a_branch, "ReadFile"),
        (in_a_dataset, "ReadFile"),
        (by_control, "WriteFile"),
        (printed, "PrintV2"),
        (tf.io.matching_files, "MatchingFiles"),
        (lambda text: tf.py_function(lambda text: text, [text], tf.string), "EagerPyFunc"),
        (lambda text: tf.numpy_function(lambda text: text, [text], tf.string), "PyFunc"),
        (lambda text: tf.raw_ops.DebugIdentity(input=text, debug_urls=["grpc://127.0.0.1:1"]), "DebugIdentity"),
        (
            lambda text: tf.raw_ops.RestoreV2(
                prefix=text[0], tensor_names=["a"], shape_and_slices=[""], dtypes=[tf.string]
            )[0],
            "RestoreV2",
        ),
        (lambda text: tf.data.TextLineDataset(text).reduce("", lambda before, item: before + item), "TextLineDataset"),
        (
            lambda text: tf.data.Dataset.from_tensor_slices(text).cache("/tmp/x").reduce("", lambda a, b: a + b),
            "CacheDatasetV2",
        ),
    ],
)
def test_ops_that_touch_files_or_the_process_are_found(tmp_path: Path, score: Score, op: str) -> None:
    folder = export(tmp_path / "1", score)
    assert op in ops_of(folder)
    graph = read_meta_graph(folder)
    with pytest.raises(DeniedError, match=rf"signature 'serving_default' reaches {op} '.*', which .*--allow-op {op}"):
        check_ops("x", graph, ())
    assert op in check_ops("x", graph, ops_of(folder))


def table_of(file: str) -> Any:
    reader = tf.lookup.TextFileInitializer(
        file, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
    )
    return tf.lookup.StaticHashTable(reader, -1)


def test_models_may_read_their_own_files(tmp_path: Path) -> None:
    """Variables that are restored, a vocabulary in `assets/`, and a line on stderr."""
    (tmp_path / "vocabulary").write_text("a\nb\n", encoding="utf-8")
    module = tf.Module()
    module.table = table_of(str(tmp_path / "vocabulary"))
    module.weights = tf.Variable(tf.ones([3]))

    def score(text: Any) -> Any:
        tf.print("asked", text)
        kept = tf.data.Dataset.from_tensor_slices(text).cache().reduce(0, lambda count, _: count + 1)
        return tf.gather(module.weights, module.table.lookup(text) + 1) + tf.cast(kept, tf.float32)

    folder = export(tmp_path / "1", score, module)
    ops = {node.op for node in read_meta_graph(folder).graph_def.node}
    ops |= {node.op for f in read_meta_graph(folder).graph_def.library.function for node in f.node_def}
    assert {"RestoreV2", "SaveV2", "MergeV2Checkpoints", "InitializeTableFromTextFileV2", "PrintV2"} <= ops
    assert ops_of(folder) == set()


def test_a_vocabulary_outside_the_assets_is_refused(tmp_path: Path) -> None:
    (tmp_path / "vocabulary").write_text("a\n", encoding="utf-8")
    module = tf.Module()
    module.table = table_of(str(tmp_path / "vocabulary"))
    folder = export(tmp_path / "1", lambda text: module.table.lookup(text), module)
    assert ops_of(folder) == set()
    graph = read_meta_graph(folder)
    (asset,) = graph.asset_file_def
    for name in ("../../secret", "/etc/passwd", ""):
        asset.filename = name
        with pytest.raises(DeniedError, match="the initializer reaches InitializeTableFromTextFileV2"):
            check_ops("x", graph, ())
    del graph.asset_file_def[:]
    with pytest.raises(DeniedError, match="the initializer reaches InitializeTableFromTextFileV2"):
        check_ops("x", graph, ())


def reading_an_asset(tmp_path: Path) -> Any:
    (tmp_path / "banner").write_text("x", encoding="utf-8")
    module = tf.Module()
    module.asset = tf.saved_model.Asset(str(tmp_path / "banner"))
    return read_meta_graph(export(tmp_path / "1", lambda text: tf.io.read_file(module.asset.asset_path) + text, module))


def test_a_signature_may_read_an_asset(tmp_path: Path) -> None:
    assert reached_ops(reading_an_asset(tmp_path)) == []


@pytest.mark.parametrize("change", ["constant", "fed", "assigned", "passed on", "named twice"])
def test_a_path_that_may_vary_does_not_count_as_an_asset(tmp_path: Path, change: str) -> None:
    """The author of a model may change the tensor of an asset, or pass its variable on."""
    graph = reading_an_asset(tmp_path)
    nodes = {node.name: node for node in graph.graph_def.node}
    asset = nodes[graph.asset_file_def[0].tensor_info.name.partition(":")[0]]
    (assign,) = (node for node in nodes.values() if node.op == "AssignVariableOp" and asset.name in node.input)
    variable = nodes[assign.input[0]]
    add = graph.graph_def.node.add
    if change == "constant":
        asset.op = "Const"
    elif change == "fed":
        graph.signature_def["serving_default"].inputs["path"].name = f"{asset.name}:0"
    elif change == "assigned":
        add(name="evil", op="Const")
        add(name="assign", op="AssignVariableOp", input=[variable.name, "evil"])
    elif change == "passed on":
        add(name="call", op="StatefulPartitionedCall", input=[variable.name])
    else:
        other = add(name="other", op="VarHandleOp")
        other.attr["shared_name"].s = variable.attr["shared_name"].s or variable.name.encode()
    assert {(op.op, op.root) for op in reached_ops(graph)} == {("ReadFile", "signature 'serving_default'")}


def test_paths_fed_to_a_signature_are_found_in_graphs_of_tf1(tmp_path: Path) -> None:
    def save(name: str, fed: int) -> Path:
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            path = tf.compat.v1.placeholder(tf.string, [], name="path")
            content = tf.io.read_file(path)
            score = tf.strings.length(content)
            builder = tf.compat.v1.saved_model.Builder(str(tmp_path / name))
            signature = tf.compat.v1.saved_model.predict_signature_def({"x": (path, content)[fed]}, {"score": score})
            with tf.control_dependencies([tf.io.write_file("/tmp/x", "y")]):
                started = tf.no_op()
            builder.add_meta_graph_and_variables(
                session, ["serve"], {"serving_default": signature}, main_op=started if name == "main" else None
            )
            builder.save()
        return tmp_path / name

    assert ops_of(save("path", 0)) == {"ReadFile"}
    assert ops_of(save("content", 1)) == set()
    (found,) = reached_ops(read_meta_graph(save("main", 1)))
    assert (found.op, found.root) == ("WriteFile", "the initializer")


def test_recursive_functions_are_searched_once(tmp_path: Path) -> None:
    folder = export(tmp_path / "1", lambda text: tf.map_fn(tf.io.read_file, text))
    graph = read_meta_graph(folder)
    for function in graph.graph_def.library.function:
        for other in graph.graph_def.library.function:
            if "save" in other.signature.name or "restore" in other.signature.name:
                continue
            node = function.node_def.add(name=f"again_{other.signature.name}", op="PartitionedCall")
            node.attr["f"].func.name = other.signature.name
    assert {op.op for op in reached_ops(graph)} == {"ReadFile"}


def test_a_chain_of_calls_may_be_long(tmp_path: Path) -> None:
    graph = read_meta_graph(export(tmp_path / "1", lambda text: text))
    library = graph.graph_def.library
    for number in range(5000):
        function = library.function.add()
        function.signature.name = f"f{number}"
        if number:
            function.node_def.add(name="call", op=f"f{number - 1}")
        else:
            function.node_def.add(name="last", op="Abort")
    graph.graph_def.node.add(name="begin", op="f4999")
    graph.signature_def["serving_default"].outputs["more"].name = "begin:0"
    assert [op.op for op in reached_ops(graph)] == ["Abort"]


def test_only_ops_that_are_refused_can_be_allowed() -> None:
    assert check_allowed(["ReadFile", "PyFunc", "ReadFile"]) == ("PyFunc", "ReadFile")
    with pytest.raises(InvalidError, match="--allow-op 'MatMul': expected an op that is refused"):
        check_allowed(["MatMul"])


# Names that sound as if they did what is refused, and why they do not: TensorFlow 2.21.
_SOUNDS = re.compile(
    r"file|save|restore|py_?func|rpc|record|abort|debug|http|sql|lmdb|snapshot|checkpoint|customcall|vocab|"
    r"textline|csv|summary.*writer|dump|heartbeat|dataservice|registerdataset",
    re.IGNORECASE,
)
_HARMLESS = {
    # They put names together.
    "ShardedFilename": "", "ShardedFilespec": "",
    # They need the handle of a reader, a summary writer or a client, or write in memory only.
    "ReaderRestoreState": "", "ReaderRestoreStateV2": "", "ReaderNumRecordsProduced": "",
    "ReaderNumRecordsProducedV2": "", "CloseSummaryWriter": "", "FlushSummaryWriter": "", "SummaryWriter": "",
    "StatsAggregatorSetSummaryWriter": "", "RpcCheckStatus": "", "RpcGetValue": "", "DeleteRpcFutureResource": "",
    # It is the identity; they compute numbers of a tensor; they split text.
    "Snapshot": "", "DebugGradientIdentity": "", "DebugGradientRefIdentity": "", "DebugNumericSummaryV2": "",
    "BoostedTreesExampleDebugOutputs": "", "DecodeCSV": "", "CheckNumericsV2": "",
}  # fmt: skip


def registry() -> dict[str, Any]:
    """Return the ops of TensorFlow itself."""
    found = op_def_pb2.OpList()
    # Of a process of its own: other tests have loaded libraries of ops into this one.
    found.ParseFromString(subprocess.run([sys.executable, "-c", _LIST_OPS], capture_output=True, check=True).stdout)
    return {definition.name: definition for definition in found.op if ">" not in definition.name}


def test_no_op_of_the_registry_was_forgotten() -> None:
    ops = registry()
    assert OPS.keys() <= ops.keys()
    assert FILE_INPUTS.keys() | NAMES_NOTHING.keys() | CACHES <= OPS.keys()
    sounds = {name for name in ops if _SOUNDS.search(name)}
    assert sounds - OPS.keys() - _HARMLESS.keys() == set()
    # And by what they take: the name of a file, a folder or a server.
    words = re.compile(r"file|path|dir(?!ection)|address|url|prefix$|ckpt", re.IGNORECASE)
    named = {
        name
        for name, op in ops.items()
        if any(argument.type == tf.string.as_datatype_enum and words.search(argument.name) for argument in op.input_arg)
        or any(attribute.type in {"string", "list(string)"} and words.search(attribute.name) for attribute in op.attr)
    }
    # The prefix of a counter.
    reviewed = {"SetStatsAggregatorDataset", "ExperimentalSetStatsAggregatorDataset"}
    assert named - OPS.keys() - _HARMLESS.keys() - reviewed == set()
    for name, place in FILE_INPUTS.items():
        assert words.search(ops[name].input_arg[place].name), name
    for name in CACHES:
        assert ops[name].input_arg[1].name == "filename"
    for name, (attribute, _) in NAMES_NOTHING.items():
        assert attribute in {attribute.name for attribute in ops[name].attr}
