# SPDX-License-Identifier: Apache-2.0
"""Run `RecEmbeddingGroup` in stock TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.graph.op_library import load_library
from graph_tools.plans import EmbeddingPlan
from graph_tools.store import TableSpec
from graph_tools.store.reader import read_header
from graph_tools.tensors import Array, ArrayTensor
from helpers.models.embedding_tables import written
from helpers.system.programs import LIBRARY


class Group:
    """Build a graph with one group: features are fed, tables are files.

    Parameters
    ----------
    plan : EmbeddingPlan or str
    types : sequence of numpy dtypes
        Types of the features; `object` for strings.
    tables : sequence of Path
    outputs : int
    shapes : sequence of shapes, or None
        Static shapes of the features in the graph; by default unknown.
    threads : int
        Size of the pool over which a batch is divided.
    initialize : bool
        Map the tables.
    cache_share : float or None
        Open the tables as tiered ones, with caches of so much of their rows.
    """

    def __init__(
        self,
        plan: EmbeddingPlan | str,
        types: Sequence[Any],
        tables: Sequence[Path] = (),
        *,
        outputs: int = 1,
        shapes: Sequence[Any] | None = None,
        threads: int = 1,
        initialize: bool = True,
        cache_share: float | None = None,
    ) -> None:
        import tensorflow as tf

        load_library(LIBRARY)
        tf1 = tf.compat.v1
        graph = tf.Graph()
        with graph.as_default():
            self._features = [
                tf1.placeholder(tf.string if type_ is object else tf.as_dtype(type_), None if shapes is None else shape)
                for type_, shape in zip(types, shapes or [None] * len(types), strict=True)
            ]
            files = [tf1.placeholder(tf.string, []) for _ in tables]
            definition = tf1.GraphDef()
            for number, path in enumerate(tables):
                table = definition.node.add(name=f"table{number}", op="RecEmbeddingTable")
                table.attr["shared_name"].s = b"table%d" % number
                table.attr["dim"].i = read_header(path).dim
                init = definition.node.add(
                    name=f"init{number}", op="RecInitializeEmbeddingTable", input=[f"table{number}", f"file{number}"]
                )
                if cache_share is not None:
                    init.attr["tiered"].b = True
                    init.attr["cache_share"].f = cache_share
                definition.node.add(name=f"file{number}", op="Placeholder").attr["dtype"].type = 7
            group = definition.node.add(name="group", op="RecEmbeddingGroup")
            group.input.extend([f"feature{number}" for number in range(len(types))])
            group.input.extend([f"table{number}" for number in range(len(tables))])
            group.attr["Tfeatures"].list.type.extend([feature.dtype.as_datatype_enum for feature in self._features])
            group.attr["num_tables"].i = len(tables)
            group.attr["num_outputs"].i = outputs
            group.attr["plan"].s = (plan if isinstance(plan, str) else plan.to_json()).encode()
            for number, feature in enumerate(self._features):
                node = definition.node.add(name=f"feature{number}", op="Placeholder")
                node.attr["dtype"].type = feature.dtype.as_datatype_enum
            fed = {f"feature{number}:0": feature for number, feature in enumerate(self._features)}
            fed |= {f"file{number}:0": file for number, file in enumerate(files)}
            wanted = [f"group:{number}" for number in range(outputs)] + [
                f"init{number}" for number in range(len(tables))
            ]
            found = tf.graph_util.import_graph_def(definition, fed, wanted, name="")
        self.outputs = found[:outputs]
        config = tf1.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=1)
        self._session = tf1.Session(graph=graph, config=config)
        if initialize:
            self._session.run(found[outputs:], dict(zip(files, map(str, tables), strict=True)))

    def __call__(self, *features: Any) -> list[Array]:
        fed = {}
        for placeholder, value in zip(self._features, features, strict=True):
            strings = placeholder.dtype.name == "string"
            fed[placeholder] = np.asarray(value, object if strings else placeholder.dtype.as_numpy_dtype)
        found: list[Array] = self._session.run(self.outputs, fed)
        return found

    def close(self) -> None:
        self._session.close()


def table_of(folder: Path, rows: Array, keys: Any = None, **more: Any) -> Path:
    """Write rows float32 [n, dim] as a table, by default direct."""
    if keys is not None:
        made = np.empty(len(keys), object) if isinstance(keys[0], bytes) else np.empty(len(keys), np.int64)
        made[:] = keys
        keys = ArrayTensor(made)
    return written(folder, TableSpec(rows.shape[1], ArrayTensor(rows), keys=keys, **more))
