# SPDX-License-Identifier: Apache-2.0
"""Diff: compare the interfaces and the contents of two exported models."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from graph_tools.graph.op_library import Libraries, load_libraries
from graph_tools.report.diff import Change, DiffReport, ModelTotals, OpCounts
from graph_tools.report.inspect import Inspection, SignatureInfo, TensorInfo
from graph_tools.verbs.inspect import by_name, inspect_model


def diff(a: str | Path, b: str | Path, *, op_library: Libraries = None) -> DiffReport:
    """Compare the contents of two exported models; `verify` compares their outputs.

    `op_library` is libprocessor.so, for models with its ops; if it is installed, it is found without this option.

    Raises
    ------
    UnreadableError, UsageError
    """
    load_libraries(op_library)
    first, second = inspect_model(Path(a)), inspect_model(Path(b))
    return DiffReport(
        a=_totals(first),
        b=_totals(second),
        signatures=list(_signatures(first, second)),
        ops=[
            OpCounts(op, first.ops.get(op, 0), second.ops.get(op, 0))
            for op in sorted(set(first.ops) | set(second.ops))
            if first.ops.get(op, 0) != second.ops.get(op, 0)
        ],
        variables=_changes(*(_variables(model, _with_content(first, second)) for model in (first, second))),
        tables=_changes(_tables(first), _tables(second)),
        assets=_changes(_assets(first), _assets(second)),
    )


def _with_content(a: Inspection, b: Inspection) -> set[str]:
    """Return the names of the variables that can differ only in their content."""
    others = by_name(b.variables)
    return {
        variable.name
        for variable in a.variables
        if variable.name in others
        and (variable.dtype, variable.shape) == (others[variable.name].dtype, others[variable.name].shape)
        and variable.checksums
        and others[variable.name].checksums
    }


def _totals(model: Inspection) -> ModelTotals:
    return ModelTotals(
        path=model.path,
        kind=model.kind,
        bytes=model.bytes,
        nodes=model.nodes,
        functions=model.functions,
        variables=len(model.variables),
        variable_bytes=sum(variable.bytes for variable in model.variables),
        tables=len(model.tables),
        table_bytes=sum(table.bytes for table in model.tables),
        assets=len(model.assets),
    )


def _changes(a: Mapping[str, str], b: Mapping[str, str]) -> list[Change]:
    return [Change(name, a.get(name), b.get(name)) for name in sorted(set(a) | set(b)) if a.get(name) != b.get(name)]


def _signatures(a: Inspection, b: Inspection) -> Iterable[Change]:
    first, second = by_name(a.signatures), by_name(b.signatures)
    for name in sorted(set(first) | set(second)):
        if name not in first or name not in second:
            texts = [_signature_text(side[name]) if name in side else None for side in (first, second)]
            yield Change(name, *texts)
            continue
        for kind in ("inputs", "outputs"):
            ends = [
                {endpoint.name: _end_text(endpoint) for endpoint in getattr(side[name], kind)}
                for side in (first, second)
            ]
            for change in _changes(*ends):
                yield Change(f"{name}/{kind[:-1]}/{change.name}", change.a, change.b)


def _signature_text(signature: SignatureInfo) -> str:
    return f"{len(signature.inputs)} inputs, {len(signature.outputs)} outputs"


def _end_text(endpoint: TensorInfo) -> str:
    shape = "any rank" if endpoint.shape is None else str(["?" if size is None else size for size in endpoint.shape])
    return f"{endpoint.dtype} {shape}".replace("'", "")


def _variables(model: Inspection, with_content: set[str]) -> dict[str, str]:
    found = {}
    for variable in model.variables:
        text = f"{variable.dtype} {variable.shape}, {variable.bytes} bytes"
        content = " ".join(f"{crc:08x}" for crc in variable.checksums)
        found[variable.name] = f"{text}, checksum {content}" if variable.name in with_content else text
    return found


def _tables(model: Inspection) -> dict[str, str]:
    return {
        table.name: f"{table.family}, {'?' if table.rows is None else table.rows} rows of {table.dim or 1} "
        f"{table.dtype}, {table.bytes} bytes, absent keys: {table.absent}"
        + (f", file {table.file[:16]}" if table.file else "")
        for table in model.tables
    }


def _assets(model: Inspection) -> dict[str, str]:
    folder = Path(model.path) / "assets"
    found = {}
    for asset in model.assets:
        with (folder / asset.name).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        found[asset.name] = f"{asset.bytes} bytes, sha256 {digest[:16]}"
    return found
