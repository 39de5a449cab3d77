# SPDX-License-Identifier: Apache-2.0
"""Tables that are split into parts: find the part to which an id is sent, and make one tensor of all parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np

from graph_tools.graph import Graph, Node, Output, is_native, skip
from graph_tools.model import Model
from graph_tools.model.tables import Absent, Part
from graph_tools.rewriting.outcome import Found, Outcome, Refused
from graph_tools.tensors import Array, StreamTensor, TensorSource, rows_per_chunk

_NO_STATE = {"VarHandleOp", "HashTableV2", "MutableHashTableV2", "MutableHashTableOfTensorsV2", "Placeholder"}

Route = Callable[[Array], list[Array]]
"""Given ids [n], returns [n] for each of the requested outputs."""


def route_function(model: Model, ids: Output, wanted: list[Output], dtype: object) -> Outcome[Route]:
    """Return a function that computes outputs from ids by TensorFlow; refuse if the nodes cannot run alone.

    Parameters
    ----------
    model : Model
    ids : Output [n]
    wanted : list of Output [n]
        Outputs computed from `ids`, element by element.
    dtype : TensorFlow dtype
        The type of `ids`.
    """
    import tensorflow as tf

    graph = model.graph
    ids = skip(graph, ids)
    alone = Graph()
    alone.producer = graph.producer
    fed = alone.add("Placeholder", name="ids", attrs={"dtype": dtype, "shape": (None,)}).output()
    fetched, clones = [], {ids: fed}
    for output in wanted:
        clone = _clone_of(graph, output, alone, clones)
        if not isinstance(clone, Found):
            return clone
        fetched.append(str(clone.value))
    imported = tf.Graph()
    with imported.as_default():
        tf.graph_util.import_graph_def(alone.to_graph_def(), name="")
    kind = tf.as_dtype(dtype).as_numpy_dtype
    session = tf.compat.v1.Session(graph=imported, config=tf.compat.v1.ConfigProto(device_count={"GPU": 0}))

    def run(values: Array) -> list[Array]:
        results: list[Array] = session.run(fetched, {str(fed): values.astype(kind, copy=False)})
        return results

    return Found(run)


def _clone_of(graph: Graph, output: Output, alone: Graph, clones: dict[Output, Output]) -> Outcome[Output]:
    """Clone the nodes that compute an output into the graph `alone`; `clones` has those that are there already."""
    output = skip(graph, output)
    if output in clones:
        return Found(clones[output])
    node = graph[output.node]
    if node.op in _NO_STATE or not is_native(node.op):
        return Refused(f"'{node.name}' ({node.op}) computes the part of an id, expected arithmetic only")
    inputs = []
    for source in node.inputs:
        found = _clone_of(graph, source, alone, clones)
        if not isinstance(found, Found):
            return found
        inputs.append(found.value)
    clone = alone.add(node.op, inputs, name=node.name, attrs=dict(node.attrs))
    clones[output] = Output(clone.name, output.port)
    return Found(clones[output])


def layout_of(route: Route, sizes: list[int], dtype: np.dtype[np.generic], rows: int = 1 << 20) -> str | None:
    """Return how the rows of one table are divided into parts: `div` (consecutive), `mod` (every n-th), None (neither).

    Every id for which the parts have a row is tried.

    Parameters
    ----------
    route : callable
        Ids [n] to (part [n], row in the part [n]).
    sizes : list of int
        Number of rows of each part.
    """
    total, count = sum(sizes), len(sizes)
    offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    div = True
    mod = all(size == (total - part + count - 1) // count for part, size in enumerate(sizes))
    for begin in range(0, total, rows):
        ids = np.arange(begin, min(begin + rows, total)).astype(dtype)
        part, row = (found.astype(np.int64) for found in route(ids))
        if part.min() < 0 or part.max() >= count:
            return None
        div = div and bool((offsets[part] + row == ids).all())
        mod = mod and bool((row * count + part == ids).all())
        if not div and not mod:
            return None
    return "div" if div else "mod" if mod else None


def exact_chunks(tensor: TensorSource, rows: int) -> Iterator[Array]:
    """Yield blocks of exactly `rows` rows; the last may be smaller."""
    held: list[Array] = []
    count = 0
    for chunk in tensor.chunks(rows):
        held.append(chunk)
        count += len(chunk)
        while count >= rows:
            whole = held[0] if len(held) == 1 else np.concatenate(held)
            yield whole[:rows]
            held, count = [whole[rows:]], len(whole) - rows
    if count:
        yield np.concatenate(held)


def interleaved(parts: list[TensorSource]) -> StreamTensor:
    """Return the tensor whose row i is row i // n of part i mod n."""
    count = len(parts)
    total = sum(part.shape[0] for part in parts)

    def make(rows: int) -> Iterator[Array]:
        each = max(1, rows // count)
        streams = [exact_chunks(part, each) for part in parts]
        while True:
            blocks = [next(stream, None) for stream in streams]
            have = [block for block in blocks if block is not None]
            if not have:
                return
            block = np.empty((sum(map(len, have)), *have[0].shape[1:]), have[0].dtype)
            for part, rows_of_part in enumerate(have):
                block[part::count] = rows_of_part
            for begin in range(0, len(block), rows):
                yield block[begin : begin + rows]

    return StreamTensor(parts[0].dtype, (total, *parts[0].shape[1:]), make)


def misplaced(part: Part, number: int, route: Route) -> Array:
    """Return the positions of the keys of a part that lookups send to another part."""
    found: list[Array] = []
    begin = 0
    for keys in part.keys.chunks(rows_per_chunk(part.keys)):
        (numbers,) = route(keys)
        found.append(begin + np.flatnonzero(numbers != number))
        begin += len(keys)
    return np.concatenate(found) if found else np.empty(0, np.int64)


def without(tensor: TensorSource, positions: Array) -> TensorSource:
    """Return a tensor without the rows at some positions, which must be sorted."""
    if not len(positions):
        return tensor

    def make(rows: int) -> Iterator[Array]:
        begin = 0
        for chunk in tensor.chunks(rows):
            first, last = np.searchsorted(positions, [begin, begin + len(chunk)])
            yield np.delete(chunk, positions[first:last] - begin, axis=0) if last > first else chunk
            begin += len(chunk)

    return StreamTensor(tensor.dtype, (tensor.shape[0] - len(positions), *tensor.shape[1:]), make)


def same_absent(first: Absent, second: Absent) -> bool:
    """Return whether two tables return the same rows for every absent key."""
    if first.rows is None or second.rows is None or "zero" in (first.kind, second.kind):
        return first.kind == second.kind == "zero"
    return np.array_equal(first.rows, second.rows)


def common_name(names: list[str]) -> str:
    """Return the name of a table whose parts are called `name/part_0`, `name/part_1`, …."""
    stems = {re.sub(r"/part_\d+(?=/|$)", "", name) for name in names}
    return stems.pop() if len(stems) == 1 else f"{names[0]}/merged"


def partition_number(graph: Graph, output: Output, op: str) -> tuple[Node, int] | None:
    """Return the partitioning node that produces an output, and the number of the part."""
    found = skip(graph, output)
    node = graph[found.node]
    return (node, found.port) if node.op == op else None
