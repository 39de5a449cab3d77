# SPDX-License-Identifier: Apache-2.0
"""Measure how much the requests of a verification cover.

Few rows, an input that never changes, or a table in which no key is found prove little.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from graph_tools.errors import ConversionError
from graph_tools.graph import Graph, Output, dtype_of, is_native
from graph_tools.json_data import Count
from graph_tools.model import Endpoint, Model, Signature
from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
from graph_tools.tensors import Array, byte_size
from graph_tools.verification.request import Request
from graph_tools.verification.runner import Answer, LoadError, SessionRunner, quiet
from graph_tools.verification.structure import find_sparse_inputs
from graph_tools.writer import write_saved_model

#: A signature needs at least this number of successful requests, or at least this number of rows in them.
LEAST_REQUESTS, LEAST_ROWS = 8, 32
#: Least number of different rows of a table to look up; if the table has fewer, all of them.
LEAST_TABLE_ROWS = 2
_GATHERS = {"ResourceGather": 1, "GatherV2": 1, "Gather": 1}
_READS = {"Identity", "ReadVariableOp", "RefIdentity"}


@dataclass
class TableUse:
    """How much of a table was looked up.

    Attributes
    ----------
    rows : int
        Rows of the table.
    used : int
        Different rows that the requests looked up.
    """

    name: str
    rows: Count
    used: Count

    @property
    def enough(self) -> bool:
        return self.used >= min(self.rows, LEAST_TABLE_ROWS)


@dataclass
class Evidence:
    """What the successful requests of a verification covered.

    Attributes
    ----------
    inputs : dict of str to list of str
        By signature: inputs that have the same value in all requests.
    tables : list of TableUse
        Tables for which the use could be determined.
    """

    inputs: dict[str, list[str]] = field(default_factory=dict)
    tables: list[TableUse] = field(default_factory=list)


def gather_evidence(
    model: Model,
    asked: Sequence[Request],
    answers: tuple[Sequence[Answer], Sequence[Answer]],
    found: Mapping[str, int],
    memory_limit: int | None,
) -> Evidence:
    """Return what the requests covered that both models ran successfully.

    Parameters
    ----------
    model : Model
        The first model, as it was read.
    asked, answers
    found : mapping of str to int
        By table, for tables that TensorFlow does not look up itself: the number of different keys that were found.
    memory_limit : int [bytes], optional
        Limit for the variables that are needed to compute ids.
    """
    answered = [
        request
        for request, first, second in zip(asked, *answers, strict=True)
        if isinstance(first, dict) and isinstance(second, dict) and any(value.size for value in first.values())
    ]
    evidence = Evidence()
    for name in {request.signature for request in answered}:
        evidence.inputs[name] = list(
            _constant_inputs(model, name, [request for request in answered if request.signature == name])
        )
    sizes = {name: sum(part.keys.shape[0] for part in table.parts) for name, table in model.sparse_tables.items()}
    evidence.tables = [TableUse(name, sizes[name], found.get(name, 0)) for name in sizes if name in found]
    if answered:
        evidence.tables += _count_gathered_rows(model, answered, memory_limit)
    return evidence


def _constant_inputs(model: Model, name: str, requests: Sequence[Request]) -> list[str]:
    signature = model.signatures[name]
    parts = {key for source in find_sparse_inputs(model, signature) for key in (source.indices, source.dense_shape)}
    return [
        key
        for key, endpoint in signature.inputs.items()
        if key not in parts
        and model.graph.users(endpoint.tensor.node)
        and not _varies([r.inputs[key] for r in requests])
    ]


def _varies(values: Sequence[Array]) -> bool:
    first = next((value.ravel()[0] for value in values if value.size), None)
    # An input that is always empty proves nothing either, and NaN is not equal to itself.
    return first is not None and any(bool((value != first).any()) for value in values if value.size)


def _count_gathered_rows(model: Model, requests: Sequence[Request], memory_limit: int | None) -> list[TableUse]:
    """Count the rows gathered from variables."""
    found = []
    for name, numbers in gathered_rows(model, requests, memory_limit).items():
        total = int(model.variables[name].shape[0])
        used = np.unique(np.concatenate(numbers)) if numbers else np.empty(0, np.int64)
        found.append(TableUse(name, total, int(((used >= 0) & (used < total)).sum())))
    return found


def gathered_rows(model: Model, requests: Sequence[Request], memory_limit: int | None = None) -> dict[str, list[Array]]:
    """Return the numbers of the rows that requests gather from each variable.

    Only the part of the graph runs that computes row numbers. Requests that it refuses are left out.

    Returns
    -------
    dict of str to list of ndarray [n] integer
        By handle; each array has the different numbers of one gather in one request. Empty if the graph does not run.
    """
    tables = _tables(model)
    if not tables:
        return {}
    graph = Graph.from_graph_def(model.graph.to_graph_def())
    graph.op_defs = model.graph.op_defs
    signatures = {}
    for name, signature in model.signatures.items():
        needed = model.graph.ancestors(output.tensor.node for output in signature.outputs.values())
        ids = {ids: ids for gathers in tables.values() for node, ids in gathers if node in needed}
        outputs = {str(output): Endpoint(output, None, None) for output in ids}
        signatures[name] = Signature(dict(signature.inputs), outputs)
    probe = replace(
        model, graph=graph, signatures={name: signature for name, signature in signatures.items() if signature.outputs},
        variables=dict(model.variables), hash_tables=dict(model.hash_tables), assets=dict(model.assets),
        embedding_tables=dict(model.embedding_tables), sparse_tables={}, init=list(model.init), extra=None,
        removed_functions={}, removed_assets={},
    )  # fmt: skip
    PruneUnreachable().apply(probe)
    if memory_limit is not None and sum(map(byte_size, probe.variables.values())) > memory_limit:
        return {}
    rows = _row_numbers(probe, requests)
    if rows is None:
        return {}
    return {name: [block for _, ids in gathers for block in rows.get(str(ids), [])] for name, gathers in tables.items()}


def _tables(model: Model) -> dict[str, list[tuple[str, Output]]]:
    """Return the gathers of each variable whose row numbers TensorFlow can compute, with the output that has these."""
    graph = model.graph
    outputs = [output.tensor.node for signature in model.signatures.values() for output in signature.outputs.values()]
    needed = graph.ancestors(outputs)
    inputs = model.inputs()
    found: dict[str, list[tuple[str, Output]]] = {}
    for node in graph.of(*_GATHERS):
        handle = graph.input(node, 0)
        while handle.op in _READS:
            handle = graph.input(handle, 0)
        variable = model.variables.get(handle.name)
        if node.name not in needed or variable is None or len(variable.shape) < 2:
            continue
        ids = node.inputs[_GATHERS[node.op]]
        before = graph.ancestors([ids.node])
        if before & inputs and all(is_native(graph[name].op) for name in before):
            found.setdefault(handle.name, []).append((node.name, ids))
    return found


def _row_numbers(probe: Model, requests: Sequence[Request]) -> dict[str, list[Array]] | None:
    folder = Path(tempfile.mkdtemp(prefix="graph-tools-evidence-"))
    try:
        _set_output_dtypes(probe)
        write_saved_model(probe, folder / "model")
        with quiet():
            runner = SessionRunner(replace(probe, path=folder / "model"))
        try:
            answers = runner.run(
                [request for request in requests if request.signature in probe.signatures], lambda: None
            )
        finally:
            runner.close()
    except (LoadError, ConversionError):
        return None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rows: dict[str, list[Array]] = {}
    for answer in answers:
        for key, value in answer.items() if isinstance(answer, dict) else ():
            rows.setdefault(key, []).append(np.unique(value))
    return rows


def _set_output_dtypes(probe: Model) -> None:
    """Set the dtypes of the outputs."""
    for signature in probe.signatures.values():
        for key, output in signature.outputs.items():
            signature.outputs[key] = replace(output, dtype=dtype_of(probe.graph, output.tensor))


def weaknesses(evidence: Evidence, answered: Mapping[str, tuple[int, int]]) -> list[str]:
    """Return why a verification proves little, one sentence per reason; the list is empty if it covers enough.

    Parameters
    ----------
    evidence : Evidence
    answered : mapping of str to (int, int)
        By signature: number of successful requests, and of their rows.
    """
    found = [
        f"signature '{name}': {requests} request{'s' * (requests != 1)} with {rows} row{'s' * (rows != 1)} answered, "
        f"expected {LEAST_REQUESTS} requests or {LEAST_ROWS} rows"
        for name, (requests, rows) in answered.items()
        if requests < LEAST_REQUESTS and rows < LEAST_ROWS
    ]
    found += [
        f"signature '{name}', input '{key}': one value in all requests, expected several"
        for name, keys in evidence.inputs.items()
        for key in keys
    ]
    found += [
        f"table '{table.name}': {table.used} of {table.rows:,} rows looked up, expected at least "
        f"{min(table.rows, LEAST_TABLE_ROWS)}"
        for table in evidence.tables
        if not table.enough
    ]
    return found
