# SPDX-License-Identifier: Apache-2.0
"""Find inputs that belong together: the indices, values and dense shape of a sparse tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graph_tools.graph import Graph
from graph_tools.model import Model, Signature
from graph_tools.tensors import Array
from graph_tools.verification.request import Request

# Op -> positions of indices, values and dense shape among its inputs.
_SPARSE_USES: dict[str, tuple[int, int, int]] = {
    "SparseFillEmptyRows": (0, 1, 2),
    "SparseToDense": (0, 2, 1),
    "SparseTensorDenseMatMul": (0, 1, 2),
    "SparseReorder": (0, 1, 2),
    "SparseSoftmax": (0, 1, 2),
    "SparseReduceSum": (0, 1, 2),
    "SparseReduceMax": (0, 1, 2),
    "SparseSlice": (0, 1, 2),
    "SerializeSparse": (0, 1, 2),
    "SparseDenseCwiseMul": (0, 1, 2),
    "SparseSparseMinimum": (0, 1, 2),
    "RaggedTensorFromSparse": (0, 1, 2),
}


@dataclass(frozen=True)
class SparseInput:
    """Keys of the inputs that form one sparse tensor."""

    indices: str
    values: str
    dense_shape: str


def find_sparse_inputs(model: Model, signature: Signature) -> list[SparseInput]:
    """Find the sparse tensors among a signature's inputs: by their use, then by shape and name."""
    found: list[SparseInput] = []
    taken: set[str] = set()

    def add(sparse: SparseInput) -> None:
        if not {sparse.indices, sparse.values, sparse.dense_shape} & taken:
            found.append(sparse)
            taken.update((sparse.indices, sparse.values, sparse.dense_shape))

    indices, shapes, values = _by_role(signature)
    if indices and shapes and values:
        for sparse in _by_use(model.graph, signature, indices, shapes, values):
            add(sparse)
        for sparse in _by_name(indices, shapes, values):
            add(sparse)
    return found


def row_count(request: Request, answer: Mapping[str, Array], sparse: Sequence[SparseInput]) -> int:
    """Return the number of rows of a request: the first size of its outputs, if some input has the same size.

    Values of sparse and ragged tensors are not rows: the first size of a dense shape counts, and the number of row
    splits minus one.
    """
    inputs = request.inputs
    parts = {key for tensor in sparse for key in (tensor.indices, tensor.values, tensor.dense_shape)}
    sizes = [int(inputs[tensor.dense_shape][0]) for tensor in sparse if inputs[tensor.dense_shape].size]
    sizes += [len(value) for key, value in inputs.items() if key not in parts and value.ndim]
    splits = {len(value) - 1 for value in inputs.values() if value.ndim == 1 and value.dtype.kind == "i" and len(value)}
    answered = {len(value) for value in answer.values() if value.ndim}
    if len(answered) == 1 and answered <= {*sizes, *splits}:
        return answered.pop()
    return max(sizes, default=1)


def _by_role(signature: Signature) -> tuple[list[str], list[str], list[str]]:
    """Return the keys that may be indices (int64 [n, k]), dense shapes (int64 [k]) and values ([n])."""
    ranked = {key: (source, len(source.shape)) for key, source in signature.inputs.items() if source.shape is not None}
    indices = [key for key, (endpoint, rank) in ranked.items() if rank == 2 and endpoint.dtype.name == "int64"]
    shapes = [key for key, (endpoint, rank) in ranked.items() if rank == 1 and endpoint.dtype.name == "int64"]
    values = [key for key, (endpoint, rank) in ranked.items() if rank == 1 and endpoint.shape == (None,)]
    return indices, shapes, values


def _by_use(
    graph: Graph, signature: Signature, indices: list[str], shapes: list[str], values: list[str]
) -> list[SparseInput]:
    """Find sparse tensors by the ops that use them, from the inputs that each of the three parts comes from."""
    keys = {source.tensor.node: key for key, source in signature.inputs.items()}
    found = []
    for node in graph:
        places = _SPARSE_USES.get(node.op)
        if places is None or len(node.inputs) <= max(places):
            continue
        origins = [
            {keys[name] for name in _element_sources(graph, node.inputs[place].node) if name in keys}
            for place in places
        ]
        index = [key for key in indices if key in origins[0]]
        value = [key for key in values if key in origins[1]]
        # Indices may contribute to the dense shape (SparseReshape), and ids are int64 [n] like dense shapes.
        shape = [key for key in shapes if key in origins[2] and key not in value]
        if len(index) == len(value) == len(shape) == 1:
            found.append(SparseInput(index[0], value[0], shape[0]))
    return found


def _element_sources(graph: Graph, name: str) -> set[str]:
    """Return the nodes whose elements may arrive here; a mask that selects elements does not count."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            node = graph[name]
            inputs = node.inputs[:1] if node.op in {"GatherV2", "GatherNd", "Gather"} else node.inputs
            waiting += [source.node for source in inputs]
    return seen


def _by_name(indices: list[str], shapes: list[str], values: list[str]) -> list[SparseInput]:
    """Pair names such as `x_indices`, `x_values`, `x_shape`, and `x`, `x_1`, `x_2` as TensorFlow flattens them."""
    found = []
    for key in indices:
        stem = _stem(key, ("indices", "index", "idx"))
        shape = [name for name in shapes if stem is not None and _stem(name, ("dense_shape", "shape")) == stem]
        value = [name for name in values if stem is not None and _stem(name, ("values", "value", "ids")) == stem]
        if shape and value:
            found.append(SparseInput(key, value[0], shape[0]))
        elif f"{key}_1" in values and f"{key}_2" in shapes:
            found.append(SparseInput(key, f"{key}_1", f"{key}_2"))
    return found


def _stem(key: str, endings: tuple[str, ...]) -> str | None:
    lower = key.lower()
    for ending in endings:
        if lower.endswith(ending):
            return lower[: -len(ending)].rstrip("_/.:-")
    return None
