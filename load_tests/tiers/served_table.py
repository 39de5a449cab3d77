# SPDX-License-Identifier: Apache-2.0
"""A model that is one large table: it sums the rows of a request's ids, which are drawn by Zipf's law."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graph_tools.graph.op_library import load_library
from graph_tools.plans import EmbeddingPlan
from graph_tools.plans.embedding_parts import GroupOutput, Key, Lookup
from graph_tools.store import TableSpec, write_table
from graph_tools.tensors import ArrayTensor, StreamTensor

__all__ = ["BATCH", "DIM", "IDS", "ROW_BYTES", "Zipf", "export_model", "keys_of"]

DIM, BATCH, IDS = 64, 256, 32
ROW_BYTES = 4 * DIM
_EXPONENT = 1.05
# Odd numbers: keys and the rows of ranks are scattered, and different.
_KEY_STEP, _RANK_STEP = 7919, 2654435761


def keys_of(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the keys of rows, int64 of the same shape."""
    return rows * _KEY_STEP + 13


def _values(begin: int, end: int) -> NDArray[np.float32]:
    """Return rows float32 [end - begin, DIM] in [0, 1): neighbors differ in all columns."""
    rows = np.arange(begin, end, dtype=np.uint32)[:, None] * np.uint32(_RANK_STEP)
    spread = rows + np.arange(DIM, dtype=np.uint32) * np.uint32(40503)
    return ((spread >> np.uint32(8)) / np.float32(1 << 24)).astype(np.float32)


def _stream(rows: int) -> StreamTensor:
    def chunks(count: int) -> Iterator[NDArray[np.float32]]:
        for begin in range(0, rows, count):
            yield _values(begin, min(begin + count, rows))

    return StreamTensor(np.dtype(np.float32), (rows, DIM), chunks)


class Zipf:
    """Draw keys of a table by Zipf's law with exponent 1.05.

    Parameters
    ----------
    rows : int
        Of the table.
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._power = 1 - _EXPONENT
        self._begin = 0.5**self._power
        self._end = (rows + 0.5) ** self._power

    def draw(self, random: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Return keys of `count` requests, int64 [count, BATCH, IDS]."""
        uniform = random.random((count, BATCH, IDS))
        ranks = (self._begin + uniform * (self._end - self._begin)) ** (1 / self._power) + 0.5
        rows = np.clip(ranks, 1, self._rows).astype(np.int64) * _RANK_STEP % self._rows
        return keys_of(rows)

    def hottest(self, count: int) -> NDArray[np.int64]:
        """Return the keys of the `count` most frequent rows, int64 [count], the most frequent one first."""
        return keys_of(np.arange(1, count + 1, dtype=np.int64) * _RANK_STEP % self._rows)

    def share_of(self, count: float) -> float:
        """Return the share of all draws that the `count` most frequent rows have."""
        return float(((count + 0.5) ** self._power - self._begin) / (self._end - self._begin))


def export_model(folder: Path, rows: int, library: Path) -> Path:
    """Write a SavedModel with a table of `rows` rows and int64 keys, and return its folder.

    The input `ids` is int64 [n, IDS], the output `sums` float32 [n, DIM].
    """
    import tensorflow as tf

    load_library(library)
    keys = ArrayTensor(keys_of(np.arange(rows, dtype=np.int64)))
    table = write_table(folder, TableSpec(DIM, _stream(rows), keys=keys)).path
    plan = EmbeddingPlan((GroupOutput(DIM),), (Key(0),), (Lookup(0, 0, 0, 0, "sum"),))
    # The builder copies assets; it gets an empty file, so that gigabytes are written once.
    stub = folder / "stub" / table.name
    stub.parent.mkdir()
    stub.touch()
    v1 = tf.compat.v1
    model = folder / "model"
    with tf.Graph().as_default(), v1.Session() as session:
        asset = tf.constant(str(stub))
        v1.add_to_collection(v1.GraphKeys.ASSET_FILEPATHS, asset)
        ids = v1.placeholder(tf.int64, [None, IDS], "ids")
        graph = v1.GraphDef()
        made = graph.node.add(name="table", op="RecEmbeddingTable")
        made.attr["shared_name"].s = table.stem.encode()
        made.attr["dim"].i = DIM
        graph.node.add(name="init", op="RecInitializeEmbeddingTable", input=["table", "file"])
        graph.node.add(name="file", op="Placeholder").attr["dtype"].type = tf.string.as_datatype_enum
        graph.node.add(name="given", op="Placeholder").attr["dtype"].type = tf.int64.as_datatype_enum
        group = graph.node.add(name="group", op="RecEmbeddingGroup", input=["given", "table"])
        group.attr["Tfeatures"].list.type.append(tf.int64.as_datatype_enum)
        group.attr["num_tables"].i = group.attr["num_outputs"].i = 1
        group.attr["plan"].s = plan.to_json().encode()
        sums, init = tf.graph_util.import_graph_def(
            graph, {"file:0": asset, "given:0": ids}, ["group:0", "init"], name=""
        )
        builder = v1.saved_model.Builder(str(model))
        signature = v1.saved_model.predict_signature_def({"ids": ids}, {"sums": sums})
        builder.add_meta_graph_and_variables(
            session,
            [tf.saved_model.SERVING],
            {"serving_default": signature},
            assets_collection=v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS),
            main_op=init,
        )
        builder.save()
    shutil.rmtree(stub.parent)
    table.replace(model / "assets" / table.name)
    return model
