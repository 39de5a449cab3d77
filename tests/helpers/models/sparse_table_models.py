# SPDX-License-Identifier: Apache-2.0
"""Build models with one lookup in one sparse table, without any training system, and compute NumPy's results."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.graph import Graph
from graph_tools.graph.sparse_lookup import add_lookup
from graph_tools.model import Endpoint, Model, Signature
from graph_tools.model.tables import Absent, Part, SparseTable
from graph_tools.tables.blocks import as_int64
from graph_tools.tensors import ArrayTensor
from graph_tools.writer import write_saved_model

NAME = "user/embedding"


def make_table(
    keys: np.ndarray, rows: np.ndarray, absent: np.ndarray | None = None, parts: int = 1, **part: Any
) -> SparseTable:
    """Divide keys [n] and rows [n, dim] into parts; `part` are further arguments of the first part."""
    cuts = [len(keys) * index // parts for index in range(parts + 1)]
    made = []
    for number, (begin, end) in enumerate(itertools.pairwise(cuts)):
        held = Part(ArrayTensor(keys[begin:end]), ArrayTensor(rows[begin:end]))
        if number == 0:
            for key, value in part.items():
                setattr(held, key, value)
        made.append(held)
    return SparseTable(
        name=NAME, family="deeprec", key_dtype=keys.dtype, dim=rows.shape[1], dtype=rows.dtype, parts=made,
        absent=Absent(absent, "the test"),
    )  # fmt: skip


def lookup_model(table: SparseTable, *, default: Any = None, lookups: int = 1, modulus: int = 0) -> Model:
    """Build a model: keys [...] -> rows [..., dim], and rows_1 and so on for further lookups.

    Parameters
    ----------
    table : SparseTable
    default : None, ndarray or "fed"
        Second input of the first lookup: none, a constant, or an input `default` of the model.
    lookups : int
    modulus : int
        Keys are taken modulo this before lookup; 0: unchanged.
    """
    import tensorflow as tf

    graph = Graph()
    graph.producer = tf.version.GRAPH_DEF_VERSION
    key_type = tf.string if table.key_dtype.kind == "O" else tf.as_dtype(table.key_dtype)
    dtype = tf.as_dtype(table.dtype)
    fed = graph.add("Placeholder", name="keys", attrs={"dtype": key_type, "shape": None_shape()}).output()
    inputs = {"keys": Endpoint(fed, key_type, None)}
    keys = fed
    if modulus:
        divisor = graph.add_const(np.array(modulus, table.key_dtype))
        keys = graph.add("FloorMod", [fed, divisor], attrs={"T": key_type}).output()
    second = None
    if isinstance(default, str):
        second = graph.add("Placeholder", name="default", attrs={"dtype": dtype, "shape": None_shape()}).output()
        inputs["default"] = Endpoint(second, dtype, None)
    elif default is not None:
        second = graph.add_const(np.asarray(default, table.dtype))
    outputs = {}
    for number in range(lookups):
        node = add_lookup(graph, NAME, keys, key_type, table.dim, dtype, None if number else second, name="lookup")
        rows = graph.add("Identity", [node.output()], name="rows", attrs={"T": dtype}).output()
        outputs[rows.node] = Endpoint(rows, dtype, None)
    signatures = {"serving_default": Signature(inputs, outputs)}
    return Model(Path("model"), "GraphDef", graph, signatures, sparse_tables={NAME: table})


def None_shape() -> Any:
    """Return a completely unknown shape."""
    import tensorflow as tf

    return tf.TensorShape(None).as_proto()


def reference(table: SparseTable, keys: np.ndarray, default: np.ndarray | None = None) -> np.ndarray:
    """Look up keys [...] as the training system does."""
    held: dict[Any, np.ndarray] = {}
    for part in table.parts:
        held |= dict(zip(part.keys.read().tolist(), part.rows.read(), strict=True))
        for key in () if part.ignored is None else part.ignored.tolist():
            held.pop(key, None)
    flat = keys.reshape(-1)
    if default is not None:
        rows = np.broadcast_to(default, (*keys.shape, table.dim)).reshape(len(flat), table.dim).copy()
    elif keys.dtype == object and len(flat):
        rows = np.repeat(table.absent.lookup(np.zeros(1, np.int64), table.dim, table.dtype), len(flat), axis=0)
    else:
        rows = table.absent.lookup(as_int64(flat), table.dim, table.dtype).reshape(len(flat), table.dim)
    for place, key in enumerate(flat.tolist()):
        if key in held:
            rows[place] = held[key]
    return rows.reshape(*keys.shape, table.dim)


class Loaded:
    """Run a SavedModel in a session of stock TensorFlow."""

    def __init__(self, path: Path) -> None:
        import tensorflow as tf

        self.path = path
        self._graph = tf.compat.v1.Graph()
        self._session = tf.compat.v1.Session(graph=self._graph)
        with self._graph.as_default():
            meta = tf.compat.v1.saved_model.load(self._session, ["serve"], str(path))
        self._signature = meta.signature_def["serving_default"]

    def __call__(self, *, output: str = "rows", **feeds: np.ndarray) -> np.ndarray:
        fed = {self._signature.inputs[key].name: value for key, value in feeds.items()}
        found: np.ndarray = self._session.run(self._signature.outputs[output].name, fed)
        return found


class Served(Loaded):
    """Write a model and load it again."""

    def __init__(self, model: Model, path: Path) -> None:
        write_saved_model(model, path)
        super().__init__(path)


def checkpoint_bytes(path: Path) -> int:
    """Return the bytes of a SavedModel's variables."""
    return sum(file.stat().st_size for file in (path / "variables").iterdir())
