# SPDX-License-Identifier: Apache-2.0
"""Find the values that an input may have from how the graph uses it: vocabularies, table keys, numbers of rows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from graph_tools.graph import Graph, Node, Output, attribute, constant
from graph_tools.graph.sparse_lookup import OP as SPARSE_LOOKUP
from graph_tools.graph.sparse_lookup import table_of
from graph_tools.model import Model
from graph_tools.readers.restore import handle_of
from graph_tools.tensors import Array
from graph_tools.verification.domain import Domain
from graph_tools.verification.features import PARSERS, parsed_features
from graph_tools.verification.fused_domain import OP as EMBEDDING_GROUP
from graph_tools.verification.fused_domain import note_group
from graph_tools.verification.sample import SAMPLE, sample

# Op -> inputs whose elements it passes on unchanged, in any order.
_SAME_ELEMENTS: dict[str, tuple[int, ...]] = {
    "Identity": (0,), "IdentityN": (), "Snapshot": (0,), "StopGradient": (0,), "PlaceholderWithDefault": (0,),
    "Reshape": (0,), "ExpandDims": (0,), "Squeeze": (0,), "EnsureShape": (0,), "Transpose": (0,), "Tile": (0,),
    "Unique": (0,), "UniqueV2": (0,), "UniqueWithCounts": (0,), "GatherNd": (0,), "GatherV2": (0,), "Gather": (0,),
    "SparseFillEmptyRows": (1, 3), "SparseReorder": (1,), "StridedSlice": (0,), "Slice": (0,), "Split": (1,),
    "SplitV": (0,), "Unpack": (0,), "DynamicPartition": (0,), "BooleanMask": (0,), "SparseToDense": (2, 3),
    "Select": (1, 2), "SelectV2": (1, 2), "Maximum": (0, 1), "Minimum": (0, 1), "Pad": (0,), "PadV2": (0,),
    "Where": (), "StringStrip": (0,), "StringSplit": (0,), "StringSplitV2": (0,), "Cast": (0,), "ZerosLike": (),
    "SparseSlice": (1,), "SparseConcat": (),
}  # fmt: skip
_ANY_INPUT = {"ConcatV2", "Concat", "Pack", "IdentityN", "DynamicStitch", "ParallelDynamicStitch", "Switch", "Merge"}
_GATHERS = {"ResourceGather": (0, 1), "GatherV2": (0, 1), "Gather": (0, 1), "ResourceGatherNd": (0, 1)}
_FINDS = {"LookupTableFindV2", "LookupTableFind"}
# Op -> the one output that has these elements, if its other outputs are indices or counts.
_ELEMENTS_PORT = {
    "Unique": 0, "UniqueV2": 0, "UniqueWithCounts": 0, "StringSplit": 1, "StringSplitV2": 1, "SparseFillEmptyRows": 1,
    "SparseReorder": 1,
}  # fmt: skip
_SPLITS = {"StringSplit", "StringSplitV2"}
_COMPARISONS = {"Equal", "NotEqual", "Less", "Greater", "LessEqual", "GreaterEqual"}


# Op -> inputs that set the size of its output, or how often it runs.
_EVERY = (-1,)
_SIZES: dict[str, tuple[int, ...]] = {
    "Range": (0, 1, 2), "RaggedRange": (0, 1, 2), "Fill": (0,), "Tile": (1,), "Reshape": (1,), "BroadcastTo": (1,),
    "OneHot": (1,), "LinSpace": (2,), "TensorArrayV3": (0,), "TensorListReserve": (1,), "TensorListFromTensor": (1,),
    "RaggedTensorToTensor": (0, 3, 4), "RaggedTensorToSparse": (0,), "RaggedGather": (0,), "Pad": (1,), "PadV2": (1,),
    "RandomUniform": (0,), "RandomStandardNormal": (0,), "SparseToDense": (1,), "ScatterNd": (2,),
    "While": _EVERY, "StatelessWhile": _EVERY, "Enter": _EVERY,
}  # fmt: skip
_ARITHMETIC = {
    "Add", "AddV2", "Sub", "Mul", "FloorDiv", "Cumsum", "Max", "Min", "Sum", "Prod", "Cast", "SegmentSum", "Neg", "Abs",
}  # fmt: skip


def find_domain(model: Model, source: Output) -> Domain:
    """Follow an input through nodes that pass its elements on, to the ops that show their meaning."""
    graph = model.graph
    domain = Domain(size=is_size(graph, source))
    seen = {source}
    waiting = [source]
    while waiting:
        output = waiting.pop()
        for node, index in graph.uses(output):
            _add_use(model, node, index, domain)
            if not (node.op in _ANY_INPUT or index in _SAME_ELEMENTS.get(node.op, ())):
                continue
            for user in _ports(graph, node):
                if user not in seen and user.port == _ELEMENTS_PORT.get(node.op, user.port):
                    seen.add(user)
                    waiting.append(user)
    return domain


def is_size(graph: Graph, source: Output) -> bool:
    """Return whether a number, or a value computed from it, decides the size of a tensor or the length of a loop."""
    seen = {source}
    waiting = [source]
    while waiting:
        output = waiting.pop()
        for node, index in graph.uses(output):
            sizes = _SIZES.get(node.op, ())
            if index in sizes or (sizes == _EVERY and node.op in _SIZES):
                return True
            if node.op in _ARITHMETIC or node.op in _ANY_INPUT or index in _SAME_ELEMENTS.get(node.op, ()):
                new = _ports(graph, node) - seen
                seen |= new
                waiting.extend(new)
    return False


def _ports(graph: Graph, node: Node) -> set[Output]:
    return {source for user in graph.users(node.name) for source in user.inputs if source.node == node.name}


def _add_use(model: Model, node: Node, index: int, domain: Domain) -> None:
    """Add what one use of the input shows to `domain`."""
    graph = model.graph
    if node.op in _FINDS and index == 1:
        domain.known.extend(native_keys(model, handle_of(graph, node.inputs[0])))
    elif node.op == EMBEDDING_GROUP:
        note_group(model, node, index, domain)
    elif node.op == SPARSE_LOOKUP and index == 0 and table_of(node) in model.sparse_tables:
        domain.tables.add(table_of(node))
        for part in model.sparse_tables[table_of(node)].parts:
            domain.known.append(sample(part.keys))
    elif node.op in _GATHERS and index == 1:
        domain.tables.add(_gather_source(model, node).name)
        rows = _rows(model, node)
        if rows is not None:
            domain.rows = rows if domain.rows is None else min(domain.rows, rows)
    elif node.op in _COMPARISONS:
        value = constant(graph, node.inputs[1 - index])
        if value is not None:
            domain.special.extend(value.ravel()[:8].tolist())
    elif node.op == "Bucketize":
        domain.special.extend(attribute(node, "boundaries", []))
    elif node.op in _SPLITS and index == 0:
        separator = constant(graph, node.inputs[1])
        # If the separator is empty, TensorFlow splits at white space.
        domain.separators.append((separator.item() if separator is not None and separator.size == 1 else b"") or b" ")
    elif node.op == "StringToNumber":
        domain.numeric_text = True
    elif node.op in PARSERS and index == 0:
        domain.examples = (domain.examples or []) + parsed_features(graph, node)


def native_keys(model: Model, handle: str) -> Iterator[Array]:
    """Yield some keys of a native hash table: from the checkpoint, a constant, or an asset file."""
    graph = model.graph
    if handle in model.hash_tables:
        yield sample(model.hash_tables[handle].keys)
        return
    if handle not in graph:
        return
    for node in graph.users(handle):
        if node.op in {"InitializeTableV2", "InitializeTable", "LookupTableImportV2", "LookupTableImport"}:
            keys = constant(graph, node.inputs[1])
            if keys is not None:
                yield keys.ravel()[:SAMPLE]
        elif node.op in {"InitializeTableFromTextFileV2", "InitializeTableFromTextFile"}:
            yield from _text_keys(model, node)


def _text_keys(model: Model, node: Node) -> Iterator[Array]:
    """Read keys from a vocabulary file: whole lines (-2) or a column. Line numbers (-1) yield no keys."""
    graph = model.graph
    name = graph[node.inputs[1].node]
    while name.op == "Identity":
        name = graph.input(name, 0)
    file = model.assets.get(name.name)
    column = int(attribute(node, "key_index", -2))
    if file is None or column == -1:
        return
    delimiter = attribute(node, "delimiter", b"\t") or b"\t"
    with file.open("rb") as lines:
        found = [line.rstrip(b"\r\n") for line in islice(lines, SAMPLE)]
    if column >= 0:
        found = [parts[column] for parts in (line.split(delimiter) for line in found) if column < len(parts)]
    keys = np.array(found, object)
    handle = graph[handle_of(graph, node.inputs[0])]
    if "key_dtype" in handle.attrs and attribute(handle, "key_dtype").is_integer:
        keys = np.array([int(text) for text in found if text.lstrip(b"-").isdigit()], np.int64)
    yield keys


def _gather_source(model: Model, node: Node) -> Node:
    """Return the variable or constant that a gather reads."""
    source = model.graph.input(node, 0)
    while source.op in {"Identity", "ReadVariableOp", "RefIdentity"}:
        source = model.graph.input(source, 0)
    return source


def _rows(model: Model, node: Node) -> int | None:
    """Return the number of rows that a gather reads from, if that is a variable or a constant, else None."""
    source = _gather_source(model, node)
    if source.op == "Const":
        value = constant(model.graph, source.output())
        return None if value is None or not value.ndim else int(value.shape[0])
    if source.name in model.variables:
        shape = model.variables[source.name].shape
        return int(shape[0]) if shape else None
    return None
