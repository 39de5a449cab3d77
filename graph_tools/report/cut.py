# SPDX-License-Identifier: Apache-2.0
"""Define the report of `cut`, from which the JSON report, the manifest and the terminal's tables are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from graph_tools.json_data import Count, JsonSchema, NotNegative, Positive, Report, reported
from graph_tools.model import Model, disk_bytes
from graph_tools.model.table_record import TableRecord, UnusedTensor
from graph_tools.options import CutOptions
from graph_tools.readers.unknown_ops import UnknownOp
from graph_tools.report.tiers import Tiers
from graph_tools.report.version import version
from graph_tools.rewriting.protocol import PassResult
from graph_tools.store.row_sizes import row_stride
from graph_tools.tensors import byte_size
from graph_tools.verification.report import VerifyReport
from graph_tools.writer import asset_files, saved_tensors

_WHY_ROWS_GO = {
    "zero": "zeros, which an absent key is given as well",
    "equal_absent": "what an absent key is given as well",
    "ignored": "the training system would not serve the key either: filtered or blacklisted",
    "misplaced": "in a part that no request for the key is sent to",
    "dead": "no request can ask for it",
    "below_norm": "--min-norm: its norm is smaller",
    "below_frequency": "--min-frequency: the key was seen less often",
    "shared": "equal to another row, which is stored once; the key stays",
}
RowClass = Annotated[str, JsonSchema(enum=list(_WHY_ROWS_GO))]
Saved = Annotated[float, JsonSchema(type="number", maximum=1)]


@dataclass
class ModelSize:
    """A model's size, before or after the conversion.

    Attributes
    ----------
    nodes : int
        Nodes of the flat graph; a called function counts as the nodes of its body.
    variables : int
        Variables that have a value in the checkpoint.
    bytes : int
        Bytes on disk; in a forecast, the bytes of its tensors, graph and assets.
    """

    path: str
    kind: str
    nodes: Count
    variables: Count
    tables: Count
    bytes: Count


@dataclass
class RemovedNode:
    """A node of the source that the result does not have."""

    name: str
    op: str
    reason: str


@dataclass
class RemovedRows:
    """Rows of a table that were removed; rows of the class `shared` are stored once, and their keys stay."""

    table: str
    class_: RowClass
    rows: Positive
    reason: str


@dataclass
class Removed:
    """An asset, function or signature of the source that the result does not have."""

    name: str
    reason: str


@dataclass
class Removals:
    """The parts of the source that the result does not have.

    Attributes
    ----------
    tensors : list of UnusedTensor
        Tensors of the checkpoint.
    rows : list of RemovedRows
        Rows of tables, by class.
    """

    nodes: list[RemovedNode] = field(default_factory=list)
    tensors: list[UnusedTensor] = field(default_factory=list)
    rows: list[RemovedRows] = field(default_factory=list)
    assets: list[Removed] = field(default_factory=list)
    functions: list[Removed] = field(default_factory=list)
    signatures: list[Removed] = field(default_factory=list)


@dataclass
class LeftOut:
    """A pass, or one of its sites, that was left out so that the outputs equal those of the source.

    Attributes
    ----------
    name : str
        Name of the pass.
    site : str or None
        None: the whole pass.
    reason : str
        The difference that it caused.
    """

    name: str
    site: str | None
    reason: str


@dataclass
class CutReport(Report):
    """The report of `graph-tools cut`.

    Attributes
    ----------
    options : CutOptions
        The options of the run.
    target : ModelSize or None
        None: verification failed and nothing was left behind.
    passes : list of PassResult
        In the order in which they ran.
    verification : VerifyReport or None
        None: not requested. `passed` is the verdict of the cut: requests that only the source refuses do not count.
    scores_judged : bool or None
        True if that verdict includes how far scores differ; false in a lossy cut without a tolerance.
    left_out : list of LeftOut
        Passes and sites that would have changed outputs and were left out.
    tiers : Tiers or None
        What the tables would take in memory and on disk in each tier; None unless it is a dry run.
    unknown_ops : list of UnknownOp
        Ops that TensorFlow does not have; they stay unchanged. Without a library that has them, nothing is proved.
    """

    SCHEMA = "cut_report/1"

    source: ModelSize
    options: CutOptions
    tool_version: str = field(default_factory=version)
    target: ModelSize | None = None
    dry_run: bool = False
    passes: list[PassResult] = field(default_factory=list)
    tables: list[TableRecord] = field(default_factory=list)
    removed: Removals = field(default_factory=Removals)
    verification: VerifyReport | None = None
    scores_judged: bool | None = None
    left_out: list[LeftOut] = field(default_factory=list)
    tiers: Tiers | None = None
    unknown_ops: list[UnknownOp] = field(default_factory=list)
    seconds: NotNegative = 0.0

    @property
    @reported
    def lossy(self) -> bool:
        """True if table storage may change scores: rows have fewer bits, or rows that are not zero were dropped."""
        return any(table.lossy for table in self.tables)

    @property
    @reported
    def saved(self) -> Saved:
        """Share of the source's bytes that were saved."""
        return 1 - self.target.bytes / self.source.bytes if self.target and self.source.bytes else 0.0


def describe_source(model: Model) -> ModelSize:
    """Return the size of a model as it was read."""
    tables = len(model.sparse_tables) + len(model.embedding_tables) + len(_native_tables(model))
    return ModelSize(str(model.path), model.kind, len(model.graph), _variables(model), tables, disk_bytes(model.path))


def describe_target(model: Model, path: Path | None = None) -> ModelSize:
    """Return the size of a model as it is written, or as it would be."""
    size = disk_bytes(path) if path else forecast_bytes(model)
    where = str(path) if path else "(not written)"
    tables = len(table_bytes(model)) + len(_native_tables(model))
    return ModelSize(where, "SavedModel (TF 1)", len(model.graph), _variables(model), tables, size)


def _variables(model: Model) -> int:
    """Count variables as `inspect` and `diff` do: those that have a value; several handles may share one."""
    return sum(node.name in model.variables for node in model.graph.of("VarHandleOp", "VariableV2", "Variable"))


def _native_tables(model: Model) -> list[str]:
    return [node.name for node in model.graph if "HashTable" in node.op and not node.inputs]


def forecast_bytes(model: Model) -> int:
    """Return the bytes that a model would need: its tensors, tables, graph and assets."""
    tensors = sum(byte_size(tensor) for tensor in saved_tensors(model).values()) + sum(table_bytes(model).values())
    graph = int(model.graph.to_graph_def().ByteSize())
    return tensors + graph + sum(file.stat().st_size for file in set(asset_files(model).values()))


def table_bytes(model: Model) -> dict[str, int]:
    """Return the approximate bytes of each table of the graph with a file of its own; a shared `spec` counts once."""
    seen: set[int] = set()
    found = {}
    for node, spec in model.embedding_tables.items():
        if node in model.graph and id(spec) not in seen:
            seen.add(id(spec))
            found[node] = spec.rows.shape[0] * row_stride(spec.row_type, spec.dim)
            found[node] += 0 if spec.keys is None else byte_size(spec.keys)
    return found


def describe_removals(model: Model, origin: set[str]) -> Removals:
    """List the parts that were removed, of those that the source had.

    Parameters
    ----------
    model : Model
        Model after the passes.
    origin : set of str
        The nodes of the source.
    """
    graph = model.graph
    removed = Removals(
        functions=_reasons(model.removed_functions),
        assets=_reasons(model.removed_assets),
        signatures=_reasons(model.removed_signatures),
    )
    for name, (op, reason) in sorted(graph.removed.items()):
        if name in origin and name not in graph:
            removed.nodes.append(RemovedNode(name, op, reason))
    if model.checkpoint is not None:
        for name, reason in sorted(model.unused_tensors.items()):
            removed.tensors.append(UnusedTensor(name, model.checkpoint.byte_size(name), reason))
    removed.rows = [rows for record in model.table_records for rows in _rows(record)]
    return removed


def _reasons(removed: dict[str, str]) -> list[Removed]:
    return [Removed(name, reason) for name, reason in sorted(removed.items())]


def _rows(record: TableRecord) -> list[RemovedRows]:
    """Return the removed rows of one table, by class."""
    zero = record.absent is not None and record.absent.kind == "zero"
    counts = {"zero" if zero and name == "equal_absent" else name: rows for name, rows in record.dropped.items()}
    if record.share != "none":
        counts["shared"] = max(0, record.kept_keys - record.stored_rows)
    return [RemovedRows(record.name, name, rows, _WHY_ROWS_GO[name]) for name, rows in counts.items() if rows]
