# SPDX-License-Identifier: Apache-2.0
"""Run graphs of live models in stock TensorFlow, and write the segments that they follow."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.graph import attr_value
from graph_tools.graph.op_library import load_library
from graph_tools.store.delta import Delta, TableDelta, no_keys
from graph_tools.store.reader import read_header
from graph_tools.store.timeline import Position, first_chain
from graph_tools.store.timeline_writer import TimelineWriter
from graph_tools.tensors import Array, ArrayTensor
from helpers.oracles.embedding_groups import table_of
from helpers.system.programs import LIBRARY

LINEAGE = bytes(range(16))
DIM = 4
KEYS = np.arange(0, 600, 2)
"""The keys of the table of `tower_graph`."""


def lookup_plan(dim: int, **column: Any) -> dict[str, Any]:
    """Return the plan of a group with one lookup."""
    return {
        "version": 1,
        "outputs": [{"width": dim}],
        "keys": [{"feature": 0}],
        "columns": [{"kind": "lookup", "key": 0, "table": 0, "output": 0, "offset": 0, **column}],
    }


@dataclass(frozen=True)
class LiveTable:
    """A table file and its record in live.json."""

    file: Path
    source: str
    key_kind: str = "int64"
    more: Mapping[str, Any] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        found = {"source": self.source, "key_kind": self.key_kind, "dim": read_header(self.file).dim, "rows": "same"}
        return found | {"file": self.file.name, "first_row": 0} | dict(self.more)


class LiveGraph:
    """A graph with one `RecLiveModel`, in a session of stock TensorFlow.

    Parameters
    ----------
    folder : Path
        Where live.json and formulas.pb are written.
    tables : sequence of LiveTable
    variables : dict of str to ndarray float32
        The source variables at epoch 0.
    formulas : dict of str to (names of variables, function)
        The function makes the formula of the nodes of the variables.
    build : callable
        Adds nodes to a GraphDef, given the names of the table nodes and of the view; returns the outputs to import.
    features : sequence of numpy dtypes
        Inputs `feature0`, ... of the graph; `object` for strings.
    """

    def __init__(
        self,
        folder: Path,
        tables: Sequence[LiveTable],
        build: Callable[[Any], list[str]],
        *,
        variables: Mapping[str, Array] | None = None,
        formulas: Mapping[str, tuple[Sequence[str], Callable[..., Any]]] | None = None,
        features: Sequence[Any] = (np.int64,),
    ) -> None:
        import tensorflow as tf

        load_library(LIBRARY)
        tf1 = tf.compat.v1
        description, formulas_path = _write_assets(folder, tables, variables or {}, formulas or {})
        definition = tf1.GraphDef()
        for number, table in enumerate(tables):
            node = definition.node.add(name=f"table{number}", op="RecEmbeddingTable")
            node.attr["shared_name"].s = f"{table.file.stem}/{table.source}".encode()
            node.attr["dim"].i = read_header(table.file).dim
            _constant(definition, f"file{number}", str(table.file).encode())
            definition.node.add(
                name=f"init{number}", op="RecInitializeEmbeddingTable", input=[node.name, f"file{number}"]
            )
        definition.node.add(name="live", op="RecLiveModel")
        _constant(definition, "description", str(description).encode())
        _constant(definition, "formulas", str(formulas_path).encode())
        names = [f"table{number}" for number in range(len(tables))]
        inits = [f"init{number}" for number in range(len(tables))]
        init = definition.node.add(name="init_live", op="RecInitializeLiveModel")
        init.input.extend(["live", *names, "description", "formulas", *(f"^{name}" for name in inits)])
        init.attr["num_tables"].i = len(tables)
        definition.node.add(name="view", op="RecPinView", input=["live"])
        for number, dtype in enumerate(features):
            node = definition.node.add(name=f"feature{number}", op="Placeholder")
            node.attr["dtype"].type = tf.as_dtype(tf.string if dtype is object else dtype).as_datatype_enum
        definition.node.add(name="segments", op="Placeholder").attr["dtype"].type = 7
        definition.node.add(name="apply", op="RecApplySegments", input=["live", "segments"])
        outputs = build(definition)
        with tf.Graph().as_default() as graph:
            tf.graph_util.import_graph_def(definition, name="")
        config = tf1.ConfigProto(intra_op_parallelism_threads=2, inter_op_parallelism_threads=2)
        self._session = tf1.Session(graph=graph, config=config)
        self._outputs = outputs
        self._graph, self._definition = graph, definition
        self._session.run("init_live")

    def initialize_again(self) -> None:
        self._session.run("init_live")

    def __call__(self, *features: Any) -> list[Array]:
        fed = {f"feature{number}:0": value for number, value in enumerate(features)}
        found: list[Array] = self._session.run(self._outputs, fed)
        return found

    def save(self, folder: Path, *, live: bool = True, applies: bool = True) -> Path:
        """Write a SavedModel with outputs `y0`, ... of `feature0`, ..., and a signature `apply` of segments.

        `live`: whether ops read a view; without, there are no outputs of `RecViewVariable`. `applies`: whether there is
        that signature, which changes the state of the model.
        """
        from tensorflow.core.protobuf import saved_model_pb2

        saved = saved_model_pb2.SavedModel(saved_model_schema_version=1)
        meta = saved.meta_graphs.add()
        meta.meta_info_def.tags.append("serve")
        meta.graph_def.CopyFrom(self._definition)
        outputs = self._outputs if live else [name for name in self._outputs if not name.startswith("value")]
        for node in [] if live else meta.graph_def.node:
            if "num_views" in node.attr:
                node.input.remove("view")
                del node.attr["num_views"], node.attr["formulas"]
        if not live:
            kept = [node for node in meta.graph_def.node if node.name not in ("view", "value")]
            del meta.graph_def.node[:]
            meta.graph_def.node.extend(kept)
        serve = meta.signature_def["serving_default"]
        for node in self._definition.node:
            if node.name.startswith("feature"):
                serve.inputs[node.name].CopyFrom(self._info(f"{node.name}:0", [-1]))
        for number, output in enumerate(outputs):
            serve.outputs[f"y{number}"].CopyFrom(self._info(output))
        serve.method_name = "tensorflow/serving/predict"
        if applies:
            apply = meta.signature_def["apply"]
            apply.inputs["segments"].CopyFrom(self._info("segments:0", [-1]))
            apply.outputs["epoch"].CopyFrom(self._info("apply:0"))
            apply.method_name = serve.method_name
        meta.signature_def["__saved_model_init_op"].outputs["__saved_model_init_op"].name = "init_live"
        folder.mkdir(parents=True)
        (folder / "saved_model.pb").write_bytes(saved.SerializeToString())
        return folder

    def _info(self, name: str, shape: Sequence[int] | None = None) -> Any:
        import tensorflow as tf
        from tensorflow.core.protobuf import meta_graph_pb2

        tensor = self._graph.get_tensor_by_name(name)
        sizes = tensor.shape if shape is None else tf.TensorShape([None if size < 0 else size for size in shape])
        return meta_graph_pb2.TensorInfo(name=name, dtype=tensor.dtype.as_datatype_enum, tensor_shape=sizes.as_proto())

    def apply(self, *segments: Path) -> int:
        """Apply segments, and return the epoch."""
        return int(self._session.run("apply:0", {"segments:0": [str(path) for path in segments]}))

    def close(self) -> None:
        self._session.close()


def add_op(definition: Any, op: str, name: str, inputs: Sequence[str], **attributes: Any) -> str:
    """Add a node, and return its name."""
    node = definition.node.add(name=name, op=op, input=inputs)
    for attribute, value in attributes.items():
        node.attr[attribute].CopyFrom(attr_value(value))
    return name


def add_group(definition: Any, plan: dict[str, Any], types: Sequence[Any], tables: int, **more: Any) -> str:
    """Add a `RecEmbeddingGroup` named `group` that reads the view."""
    import tensorflow as tf

    inputs = [*(f"feature{n}" for n in range(len(types))), *(f"table{n}" for n in range(tables)), "view"]
    node = definition.node.add(name="group", op="RecEmbeddingGroup", input=inputs)
    kinds = [tf.as_dtype(tf.string if dtype is object else dtype).as_datatype_enum for dtype in types]
    node.attr["Tfeatures"].list.type.extend(kinds)
    values = {"num_tables": tables, "num_outputs": len(plan["outputs"]), "plan": json.dumps(plan), "num_views": 1}
    for attribute, value in (values | more).items():
        node.attr[attribute].CopyFrom(attr_value(value))
    return "group"


def add_floats(definition: Any, name: str, value: Array) -> str:
    """Add a constant."""
    import tensorflow as tf

    node = definition.node.add(name=name, op="Const")
    node.attr["dtype"].type = 1
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(np.asarray(value, np.float32)))
    return name


class Trainer:
    """Write the segments of a lineage."""

    def __init__(self, folder: Path, lineage: bytes = LINEAGE) -> None:
        self._writer = TimelineWriter(folder, Position.start(lineage), permit_not_finite=True)

    def publish(self, *tables: TableDelta, **variables: Array) -> Path:
        """Publish an epoch; a variable `dense/kernel` is given as `dense__kernel`."""
        values = {name.replace("__", "/"): ArrayTensor(np.asarray(v, np.float32)) for name, v in variables.items()}
        return self._writer.publish(Delta(tables, values)).path


def changes(
    source: str, keys: Sequence[Any], rows: Any, *, deleted: Sequence[Any] = (), kind: str = "int64", **more: Any
) -> TableDelta:
    """Make the changes of a table; `keys` ascend."""
    rows = np.asarray(rows, np.float32)
    return TableDelta(source, kind, rows.shape[1], _keys(keys, kind), ArrayTensor(rows), _keys(deleted, kind), **more)


def rows_at(epoch: float, count: int) -> Array:
    """Return rows [count, DIM] whose elements are the epoch."""
    return np.full((count, DIM), epoch, np.float32)


def tower_graph(folder: Path, **table: Any) -> LiveGraph:
    """Make a model whose score is the mean of a row plus 1000 times the epoch of the weights."""
    layer = {"op": "dense", "inputs": ["x0"], "weights": [0], "bias": 1}
    plan = {"version": 1, "layers": [layer], "outputs": ["h0"]}

    def build(definition: Any) -> list[str]:
        group = add_group(definition, lookup_plan(DIM), [np.int64], 1)
        kernel = add_floats(definition, "kernel", np.full((DIM, 1), 1 / DIM))
        bias = add_floats(definition, "bias", np.zeros(1))
        tower = add_op(
            definition, "RecDenseTower", "tower", [group, kernel, bias, "view"], num_inputs=1, num_weights=2,
            num_outputs=1, plan=json.dumps(plan), num_views=1, formulas=["f0", "f1"],
        )  # fmt: skip
        value = add_op(definition, "RecViewVariable", "value", ["view"], variable="dense/bias", shape=(1,))
        return [f"{group}:0", f"{tower}:0", f"{value}:0"]

    file = table_of(folder, rows_at(0, len(KEYS)), KEYS, **table)
    variables = {"dense/kernel": np.ones((DIM, 1), np.float32), "dense/bias": np.zeros(1, np.float32)}
    formulas = {"f0": (["dense/kernel"], lambda k: k / DIM), "f1": (["dense/bias"], lambda b: b * 1000)}
    tables = [LiveTable(file, "user/embedding")]
    return LiveGraph(folder / "assets", tables, build, variables=variables, formulas=formulas)


def _keys(keys: Sequence[Any], kind: str) -> ArrayTensor:
    if not len(keys):
        return no_keys(kind)
    found = np.empty(len(keys), object if kind == "string" else np.int64)
    found[:] = keys
    return ArrayTensor(found)


def _constant(definition: Any, name: str, value: bytes) -> None:
    import tensorflow as tf

    node = definition.node.add(name=name, op="Const")
    node.attr["dtype"].type = 7
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))


def _write_assets(
    folder: Path,
    tables: Sequence[LiveTable],
    variables: Mapping[str, Array],
    formulas: Mapping[str, tuple[Sequence[str], Callable[..., Any]]],
) -> tuple[Path, Path]:
    import tensorflow as tf

    tf1 = tf.compat.v1
    numbers = {name: number for number, name in enumerate(variables)}
    description = {
        "schema": "live/1",
        "lineage": LINEAGE.hex(),
        "epoch": 0,
        "chain": first_chain(LINEAGE).hex(),
        "tables": [table.record() for table in tables],
        "variables": [{"source": name, "shape": list(np.shape(value))} for name, value in variables.items()],
        "formulas": [
            {"name": name, "inputs": [numbers[source] for source in sources]} for name, (sources, _) in formulas.items()
        ],
        "unserved": ["unserved/embedding", "unserved/kernel"],
    }
    with tf.Graph().as_default() as graph:
        nodes = {
            name: tf1.placeholder_with_default(np.asarray(value, np.float32), np.shape(value), name=f"source/{number}")
            for number, (name, value) in enumerate(variables.items())
        }
        for number, (sources, make) in enumerate(formulas.values()):
            tf.identity(make(*(nodes[source] for source in sources)), name=f"formula/{number}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "live.json").write_text(json.dumps(description), encoding="utf-8")
    (folder / "formulas.pb").write_bytes(graph.as_graph_def().SerializeToString())
    return folder / "live.json", folder / "formulas.pb"
