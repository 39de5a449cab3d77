# SPDX-License-Identifier: Apache-2.0
"""What `cut` did: the data that the JSON report, the manifest and the terminal's tables are made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graph_tools.json_data import as_data
from graph_tools.model import Model
from graph_tools.readers.unknown_ops import UnknownOp
from graph_tools.report.version import version
from graph_tools.rewriting.protocol import PassResult
from graph_tools.store.layout import row_stride
from graph_tools.tensors import byte_size
from graph_tools.verbs.leaving_out import LeftOut
from graph_tools.writer import asset_files, saved_tensors

SCHEMA = "cut_report/1"

# Row types that hold every value of a dtype; fp32 leaves rows as they were exported.
_EXACT = {"bf16": "bfloat16", "fp16": "float16"}


@dataclass
class Side:
    """A model's size, before or after.

    Attributes
    ----------
    path : str
    kind : str
    nodes : int
        Of the flat graph; functions that are called count as their bodies.
    variables, tables : int
        Of variables, those that have a value in the checkpoint.
    bytes : int
        On disk; of a forecast, what its tensors and graph would take.
    """

    path: str
    kind: str
    nodes: int
    variables: int
    tables: int
    bytes: int


@dataclass
class Removals:
    """Everything that the source has and the result has not, each with its reason.

    Attributes
    ----------
    nodes : list of {name, op, reason}
    tensors : list of {name, bytes, reason}
        Of the checkpoint.
    rows : list of {table, class, rows, reason}
        Of tables, by class: `zero`, `equal_absent`, `ignored`, `misplaced`, `dead`, `below_norm`, `below_frequency`;
        and `shared`, whose keys stay and point to a row that is stored once.
    assets, functions, signatures : list of {name, reason}
    """

    nodes: list[dict[str, str]] = field(default_factory=list)
    tensors: list[dict[str, Any]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    assets: list[dict[str, str]] = field(default_factory=list)
    functions: list[dict[str, str]] = field(default_factory=list)
    signatures: list[dict[str, str]] = field(default_factory=list)


@dataclass
class CutReport:
    """The report of one cut; `to_json` is valid under `docs/schemas/cut_report.schema.json`.

    Attributes
    ----------
    target : Side or None
        None where verification failed: nothing was left behind.
    tables : list of dict
        What was found in each table, how it is stored, and what it would take in each row type.
    verification : dict or None
        As `verify_report.schema.json` has it; `passed` is the verdict of the cut.
    scores_judged : bool or None
        Whether that verdict is also about how far scores differ; None: not verified.
    left_out : list of LeftOut
        Passes and sites that would have changed answers.
    unknown_ops : list of UnknownOp
        Ops that TensorFlow does not have, which stay as they are.
    """

    source: Side
    options: dict[str, Any]
    tool_version: str = field(default_factory=version)
    target: Side | None = None
    dry_run: bool = False
    passes: list[PassResult] = field(default_factory=list)
    tables: list[dict[str, Any]] = field(default_factory=list)
    removed: Removals = field(default_factory=Removals)
    verification: dict[str, Any] | None = None
    scores_judged: bool | None = None
    left_out: list[LeftOut] = field(default_factory=list)
    unknown_ops: list[UnknownOp] = field(default_factory=list)
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = as_data(self)
        return {"schema": SCHEMA, "lossy": self.lossy, "saved": self.saved} | data

    @property
    def lossy(self) -> bool:
        """Whether a table was stored such that scores may differ: rows of fewer bits, or rows dropped that counted."""
        return any(is_lossy(one) for one in self.tables)

    @property
    def saved(self) -> float:
        """Fraction of the source's bytes that are gone."""
        return 1 - self.target.bytes / self.source.bytes if self.target and self.source.bytes else 0.0


def is_lossy(table: dict[str, Any]) -> bool:
    """Say whether what a table gives may differ from what it gave before."""
    narrower = table["dtype"] != "fp32" and _EXACT.get(table["dtype"]) != table["source_dtype"]
    return bool(narrower or table["lossy_rows"] > 0)


def describe_source(model: Model) -> Side:
    """Measure a model as it was read."""
    tables = len(model.sparse_tables) + len(model.embedding_tables) + len(_native_tables(model))
    return Side(str(model.path), model.kind, len(model.graph), _variables(model), tables, disk_bytes(model.path))


def describe_target(model: Model, path: Path | None = None) -> Side:
    """Measure a model as it is written, or as it would be."""
    size = disk_bytes(path) if path else forecast_bytes(model)
    where = str(path) if path else "(not written)"
    tables = len(table_bytes(model)) + len(_native_tables(model))
    return Side(where, "SavedModel (TF 1)", len(model.graph), _variables(model), tables, size)


def _variables(model: Model) -> int:
    """Count variables as `inspect` and `diff` do: those that have a value; several handles may stand for one."""
    return sum(node.name in model.variables for node in model.graph.of("VarHandleOp", "VariableV2", "Variable"))


def _native_tables(model: Model) -> list[str]:
    return [node.name for node in model.graph if "HashTable" in node.op and not node.inputs]


def disk_bytes(path: Path) -> int:
    """Bytes of a file, or of the files below a folder."""
    return path.stat().st_size if path.is_file() else sum(f.stat().st_size for f in path.rglob("*") if f.is_file())


def forecast_bytes(model: Model) -> int:
    """Bytes that a model would take: its tensors, tables, graph and assets."""
    tensors = sum(byte_size(tensor) for tensor in saved_tensors(model).values()) + sum(table_bytes(model).values())
    graph = int(model.graph.to_graph_def().ByteSize())
    return tensors + graph + sum(file.stat().st_size for file in set(asset_files(model).values()))


def table_bytes(model: Model) -> dict[str, int]:
    """Return about what each table of the graph that has a file of its own takes, one of equal ones at least."""
    seen: set[int] = set()
    found = {}
    for node, spec in model.embedding_tables.items():
        if node in model.graph and id(spec) not in seen:
            seen.add(id(spec))
            found[node] = spec.rows.shape[0] * row_stride(spec.row_type, spec.dim)
            found[node] += 0 if spec.keys is None else byte_size(spec.keys)
    return found


def describe_removals(model: Model, origin: set[str]) -> Removals:
    """List what is gone, of the nodes that the source had.

    Parameters
    ----------
    model : Model
        After the passes.
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
            removed.nodes.append({"name": name, "op": op, "reason": reason})
    if model.checkpoint is not None:
        for name, reason in sorted(model.unused_tensors.items()):
            removed.tensors.append({"name": name, "bytes": model.checkpoint.byte_size(name), "reason": reason})
    removed.rows = [one for record in model.table_records for one in _rows(record)]
    return removed


def _reasons(removed: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "reason": reason} for name, reason in sorted(removed.items())]


_ROWS = {
    "zero": "zeros, which an absent key is given as well",
    "equal_absent": "what an absent key is given as well",
    "ignored": "the training system would not serve the key either: filtered or blacklisted",
    "misplaced": "in a part that no request for the key is sent to",
    "dead": "no request can ask for it",
    "below_norm": "--min-norm: its norm is smaller",
    "below_frequency": "--min-frequency: the key was seen less often",
    "shared": "equal to another row, which is stored once; the key stays",
}


def _rows(record: dict[str, Any]) -> list[dict[str, Any]]:
    """List the rows of one table that are gone, by class."""
    zero = record["absent"] is not None and record["absent"]["kind"] == "zero"
    counts = {"zero" if zero and name == "equal_absent" else name: rows for name, rows in record["dropped"].items()}
    if record["share"] != "none":
        counts["shared"] = max(0, record["kept_keys"] - record["stored_rows"])
    return [
        {"table": record["name"], "class": name, "rows": rows, "reason": _ROWS[name]}
        for name, rows in counts.items()
        if rows
    ]
